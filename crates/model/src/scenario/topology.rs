//! What is between the generator and the server: nothing, or sidecars. These are proxies that translate one protocol
//! into another, of which the client and the server are unaware.

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use super::axis::AxisValue;
use h2lab_base::units::ParseQuantityError;

/// Where sidecars stand. The link is always behind the client's.
///
/// ```text
/// direct        generator ═══ link ═══ server
/// sidecar       generator ── sidecar ═══ link ═══ server
/// two-sidecars  generator ── sidecar ═══ link ═══ sidecar ── origin
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Topology {
    /// None: the generator speaks the cell's protocol over the link.
    #[default]
    Direct,
    /// One beside the client. It receives HTTP/1.1 and speaks the cell's protocol over the link.
    Sidecar,
    /// The same program at both ends of the link; the server's forwards to our origin in HTTP/1.1.
    TwoSidecars,
}

impl Topology {
    /// All.
    pub const ALL: [Self; 3] = [Self::Direct, Self::Sidecar, Self::TwoSidecars];

    /// The name in scenarios, flags and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Sidecar => "sidecar",
            Self::TwoSidecars => "two-sidecars",
        }
    }
}

impl AxisValue for Topology {
    fn parse(text: &str) -> Result<Self, ParseQuantityError> {
        let named = Self::ALL.into_iter().find(|topology| topology.name() == text);
        named.ok_or_else(|| ParseQuantityError::new(text, "a topology (direct, sidecar, two-sidecars)"))
    }

    fn print(&self) -> String {
        self.name().to_owned()
    }
}

/// The client's sidecar in a cell, and how the generator talks to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sidecar {
    /// The program: a proxy of `sut/`.
    pub name: String,
    /// Connections that the generator opens to it before measuring.
    pub warm_pool: u32,
    /// Connections up to which that grows on demand.
    pub max_connections: u32,
}

impl Sidecar {
    /// Programs whose number of HTTP/2 connections to the upstream can be configured: one for each worker, or
    /// by a setting (h2lab). All others decide by themselves. A test of the lab's servers checks this.
    const CONFIGURABLE: [&str; 4] = ["envoy", "envoy-retry", "h2lab", "nghttpx"];

    /// Whether it holds as many connections of HTTP/2 over the link as its cell asks for.
    pub fn can_be_configured(&self) -> bool {
        Self::CONFIGURABLE.contains(&self.name.as_str())
    }
}

//! One point of the matrix.

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use super::capture::CaptureOptions;
use super::need::Need;
use super::setup::ServerSetup;
use super::sysctl::Sysctls;
use super::topology::{Sidecar, Topology};
use crate::workload::{ClientPolicy, DialPolicy, EngineSettings, H2cMode, Protocol, Work};
use h2lab_link::LinkSpec;

/// The server of a cell.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Target {
    /// Our built-in server, behind the emulated link.
    Origin,
    /// A real server that we start behind the emulated link, by its name in `sut/`.
    Sut {
        /// `nginx` …
        name: String,
    },
    /// A live server, over the live network, without emulation.
    Url {
        /// As given.
        url: String,
    },
}

impl Target {
    /// The name in tables: `origin`, `nginx`, or the URL.
    pub fn name(&self) -> &str {
        match self {
            Self::Origin => "origin",
            Self::Sut { name } => name,
            Self::Url { url } => url,
        }
    }
}

/// One repetition of one point of the matrix: all that a lab needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The point's index in the matrix: repetitions of one point share it.
    pub index: u32,
    /// Repetitions of one group differ only in how they talk to the target (protocol, connections, streams, limit of requests,
    /// dial policy), and are compared with each other.
    pub group: u32,
    /// The 0-based repetition: the same cell with the next seed.
    pub repetition: u32,
    /// The seed of everything random in this repetition, except for what `request_seed` decides.
    pub seed: u64,
    /// The seed of the requests: when those of a Poisson process are due, their kinds, what their placeholders stand for. The cells
    /// of a group have the same one in each repetition, so that they carry the same load. 0 in records of runs older than this.
    #[serde(default)]
    pub request_seed: u64,
    /// The target.
    pub target: Target,
    /// The sidecar on the client's side of the link; `None` if the generator itself uses the link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sidecar: Option<Sidecar>,
    /// The protocol: over the link, whatever is spoken on both sides of it.
    pub protocol: Protocol,
    /// How connections begin if the protocol is `h2c`.
    #[serde(default)]
    pub h2c_mode: H2cMode,
    /// 0, or n for the (n + 1)-th mention of the same protocol in an A/A run: `h1#2` has 1.
    pub twin: u32,
    /// Connections opened before measuring: exactly these for a multiplexed protocol, the warm pool for the others. With
    /// a sidecar it is the sidecar's setting, if it has one.
    pub connections: u32,
    /// Up to how many the pool may grow on demand; equal to `connections` for a multiplexed protocol.
    pub max_connections: u32,
    /// Streams per connection that we allow ourselves (`-m`); 1 for HTTP/1.1.
    pub streams: u32,
    /// Requests after which a server that we start ends a connection; `None` for no limit, and for live servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_requests_per_connection: Option<u32>,
    /// The emulated link; `None` over a real network, and over the loopback device, where our origin is.
    pub link: Option<LinkSpec>,
    /// Congestion control of both ends; `None` leaves the system's.
    pub congestion: Option<String>,
    /// Kernel settings of both ends' network namespaces, besides those that every lab has.
    #[serde(default, skip_serializing_if = "Sysctls::is_empty")]
    pub sysctls: Sysctls,
    /// How our client's HTTP/2 engine behaves.
    #[serde(default)]
    pub client: EngineSettings,
    /// How our origin's HTTP/2 engine behaves.
    #[serde(default, skip_serializing_if = "EngineSettings::is_default")]
    pub server: EngineSettings,
    /// How the configuration of the server that we start differs from our own.
    #[serde(default, skip_serializing_if = "ServerSetup::is_default")]
    pub setup: ServerSetup,
    /// How our client dials when no connection is usable.
    #[serde(default, skip_serializing_if = "DialPolicy::is_default")]
    pub dial: DialPolicy,
    /// How our client treats its connections.
    #[serde(default, skip_serializing_if = "ClientPolicy::is_default")]
    pub policy: ClientPolicy,
    /// What the bytes of packets are used for.
    #[serde(default, skip_serializing_if = "CaptureOptions::is_default")]
    pub capture: CaptureOptions,
    /// What is sent, and when.
    pub work: Work,
}

impl Cell {
    /// How tables name the cell within its group: `h1`, `h2c × 4`, `h1#2`; in bulk work `h1 × 4`, too.
    pub fn label(&self) -> String {
        // In bulk work HTTP/1.1 has no growing pool: it has as many connections as configured.
        let is_reported = self.protocol.is_multiplexed() || self.work.bulk;
        let connections = if is_reported { format!(" × {}", self.connections) } else { String::new() };
        format!("{}{connections}", self.spoken())
    }

    /// The protocol, with the number of its mention: `h2c`, `h1#2`.
    pub(super) fn spoken(&self) -> String {
        let twin = if self.twin == 0 { String::new() } else { format!("#{}", self.twin + 1) };
        format!("{}{twin}", self.protocol)
    }

    /// Where sidecars stand.
    pub fn topology(&self) -> Topology {
        match (&self.sidecar, &self.target) {
            (None, _) => Topology::Direct,
            (Some(sidecar), Target::Sut { name }) if *name == sidecar.name => Topology::TwoSidecars,
            (Some(_), _) => Topology::Sidecar,
        }
    }

    /// The parties after the generator, as text: `origin`, `haproxy sidecar, origin`, `two haproxy sidecars`.
    pub fn parties(&self) -> String {
        match (&self.sidecar, self.topology()) {
            (None, _) => self.target.name().to_owned(),
            (Some(sidecar), Topology::TwoSidecars) => format!("two {} sidecars", sidecar.name),
            (Some(sidecar), _) => format!("{} sidecar, {}", sidecar.name, self.target.name()),
        }
    }

    /// The cell as the generator sees it: before a sidecar it speaks HTTP/1.1, and how connections and streams of the link
    /// are treated is up to the sidecar. Requests carry their number if causes are asked for.
    #[must_use]
    pub fn as_generated(&self) -> Self {
        let mut cell = self.clone();
        if self.capture.causes {
            cell.work = cell.work.identified();
        }
        if let Some(sidecar) = &self.sidecar {
            (cell.protocol, cell.streams, cell.dial) = (Protocol::H1, 1, DialPolicy::default());
            (cell.connections, cell.max_connections) = (sidecar.warm_pool, sidecar.max_connections);
        }
        cell
    }

    /// Connections over the link that the PFTK model predicts for the cell's work, in a multiplexed protocol; `None` if it does
    /// not cover the link or the congestion control.
    pub fn connections_predicted(&self) -> Option<u32> {
        Need { link: self.link.as_ref(), congestion: self.congestion.as_deref() }.connections(&self.work)
    }

    /// Loss of the link, as a share; 0 without a link. The worse direction counts, and the worst time.
    pub fn loss(&self) -> f64 {
        self.link
            .as_ref()
            .map_or(0.0, |link| link.uplink.worst_loss().get().max(link.downlink.worst_loss().get()))
    }
}

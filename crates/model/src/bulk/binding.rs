//! Which limit held a transfer back: the result, without its derivation.

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::VariantArray;

use crate::{Confidence, Fix};

/// What can hold a transfer back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::Display, strum::IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum BindingKind {
    /// The stream windows of HTTP (RFC 9113 §6.9), of the end that receives.
    StreamWindow,
    /// The connection window of HTTP, of the end that receives.
    ConnectionWindow,
    /// The socket buffer of the end that sends: TCP keeps all that is not acknowledged in it.
    SendBuffer,
    /// The socket buffer of the end that receives, by the window that TCP offers.
    ReceiveBuffer,
    /// The congestion window of TCP or QUIC.
    CongestionWindow,
    /// A disk, at either end.
    Disk,
    /// A thread that had no CPU time left, at either end.
    Cpu,
    /// The other end: it provided nothing to send, or was late to take what arrived.
    Peer,
    /// The link is full.
    Link,
    /// Nothing that was seen explains it.
    Unknown,
}

impl BindingKind {
    /// All kinds, in the order in which they are listed.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// The name in JSON.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// As the subject of a sentence.
    pub const fn words(self) -> &'static str {
        match self {
            Self::StreamWindow => "the stream window",
            Self::ConnectionWindow => "the connection window",
            Self::SendBuffer => "the send buffer",
            Self::ReceiveBuffer => "the receive buffer",
            Self::CongestionWindow => "the congestion window",
            Self::Disk => "the disk",
            Self::Cpu => "the CPU",
            Self::Peer => "the other end",
            Self::Link => "the link",
            Self::Unknown => "undetermined",
        }
    }
}

/// The limit that a connection ran into.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Binding {
    /// What it is.
    pub kind: BindingKind,
    /// The id of the cause that it is evidence for, as `h2lab explain` lists them: `FLOW102`; absent if it is for none or several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// How sure that is; `None` if nothing was found.
    pub confidence: Option<Confidence>,
    /// What shows it, in a sentence with figures.
    pub sentence: String,
    /// What lifts it: the settings of an end, or of a product.
    pub fixes: Vec<Fix>,
}

impl Binding {
    /// As the subject of a sentence, with the cause: `the stream window (FLOW102)`.
    pub fn words(&self) -> String {
        let cause = self.cause.as_ref().map_or(String::new(), |cause| format!(" ({cause})"));
        format!("{}{cause}", self.kind.words())
    }
}

//! What is kept of the link's packets besides the packet log: none of it by default, since it costs memory and disk.

use serde::{Deserialize, Serialize};

/// What the bytes of packets are used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct CaptureOptions {
    /// A file for Wireshark of each repetition: every packet at both ends of the link, with the secrets of TLS (`--pcap`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pcap: bool,
    /// The most bytes of each packet in the file, from the IP header on (`--snaplen`); `None` keeps all. What is cut
    /// cannot be decrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snaplen: Option<u32>,
    /// What each slow request waited for, by the packets (`--causes`). Each request then carries its number in a
    /// field of its own, see [`Work::identified`](crate::workload::Work::identified).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub causes: bool,
}

impl CaptureOptions {
    /// Whether they are not used.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the bytes of packets are needed at all.
    pub const fn needs_packets(&self) -> bool {
        self.pcap || self.causes
    }
}

//! The way in: packets of a link one by one, then a visit to explain.

use super::explain::Waits;
use crate::record::{CellRecord, PacketRecord};

/// All TCP connections of a link, as its packets tell them.
///
/// Give it every packet in the order in which packets entered the link, both directions together, and with the ledger's
/// record *as it is at the end* of the visit, when it is known what became of the packet.
#[derive(Debug, Default)]
pub struct Capture {}

impl Capture {
    /// A capture without packets. `key_log` is the text of a key log (`SSLKEYLOGFILE`, RFC 9850), or of several one behind
    /// the other; empty where there is none. Lines that are none are passed over.
    pub fn new(key_log: &str) -> Self {
        let _ = key_log;
        Self::default()
    }

    /// The next packet that entered the link. `bytes` begin with its IP header; they are empty, or cut short, where they were
    /// not kept, which costs the connection's names from there on.
    pub fn packet(&mut self, record: &PacketRecord, bytes: &[u8]) {
        let _ = (record, bytes);
    }

    /// What the slow requests of the visit waited for. `ids` has the value of [`ID_HEADER`](super::ID_HEADER) of each of its
    /// samples, in their order; it is empty if requests had none, as in a cell without sidecars, where connection and
    /// stream tell.
    pub fn explain(self, visit: &CellRecord, ids: &[u64]) -> Waits {
        let _ = (visit, ids);
        Waits::default()
    }

    /// The same of every measured request that took longer than `slower_than`, rather than of the slowest twentieth.
    pub fn explain_above(self, visit: &CellRecord, ids: &[u64], slower_than: std::time::Duration) -> Waits {
        let _ = (visit, ids, slower_than);
        Waits::default()
    }
}

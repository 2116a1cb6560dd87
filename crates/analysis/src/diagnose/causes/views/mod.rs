//! What several rules need from a repetition, computed in one place.

pub(super) mod bodies;
pub(super) mod calm;
pub(super) mod dials;
pub(super) mod effort;
pub(super) mod ends;
pub(super) mod failed;
pub(in crate::diagnose) mod missing;
pub(super) mod open;
mod paced;
pub(super) mod quota;
pub(in crate::diagnose) mod slots;
pub(super) mod spans;
pub(in crate::diagnose) mod stopped;
#[cfg(test)]
pub(in crate::diagnose) mod transfer;
pub(super) mod waiting;
pub(in crate::diagnose) mod windows;

use std::time::Duration;

use crate::diagnose::Case;
use h2lab_model::Fix;
use h2lab_model::record::{ConnectionRecord, PacketFate};
use h2lab_model::scenario::Cell;
use h2lab_model::settings::{Knob, Peer, Role, Wish, advise};
use h2lab_wire::h2::setting;

/// The mean of `n` times with this sum; the sum if there are none.
pub(super) fn mean(sum: Duration, n: u64) -> Duration {
    sum / u32::try_from(n).unwrap_or(u32::MAX).max(1)
}

/// The median of these times; 0 if there are none.
pub(super) fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Names the connection, where it is not the generator's own.
pub(super) const fn hop_words(cell: &Cell) -> &'static str {
    if cell.sidecar.is_some() { ", on the sidecar's connection over the link" } else { "" }
}

/// What a sender that paces does about a full queue.
pub(super) const PACED: &str = "at the sender: it paces what it sends, and does not fill the queue";

/// Whether all packets that are known to be lost found a queue full, and there are any: then no loss was random.
pub(super) fn is_lost_to_full_queues(case: &Case<'_>) -> bool {
    let packets = case.records().flat_map(|record| &record.packets);
    let mut lost =
        packets.filter(|packet| packet.fate.is_drop() || packet.marks.corrupt.is_some()).peekable();
    lost.peek().is_some() && lost.all(|packet| packet.fate == PacketFate::TailDropped)
}

/// A change at the client, with the flag of our own client for it in parentheses.
pub(super) fn at_client(words: &str, knob: Knob, value: Option<u64>, why: impl Into<String>) -> Fix {
    let wish = Wish { knob, role: Role::Client, value };
    let flag = advise(&Peer::started("h2lab"), wish).setting;
    Fix { wish: Some(wish), ..Fix::new("client", &format!("{words} ({flag})"), why) }
}

/// The same for this number of connections.
pub(super) fn more_connections(value: Option<u64>, why: impl Into<String>) -> Fix {
    at_client("more connections", Knob::UpstreamConnections, value, why)
}

/// How many streams the server of a connection allows, by its SETTINGS: `u32::MAX` if these set no limit; `None` if no
/// SETTINGS arrived.
pub(super) fn streams_allowed(connection: &ConnectionRecord) -> Option<u32> {
    let settings = &connection.http.settings_remote;
    let bound = settings.iter().find(|(key, _)| *key == setting::MAX_CONCURRENT_STREAMS);
    (!settings.is_empty()).then(|| bound.map_or(u32::MAX, |(_, value)| *value))
}

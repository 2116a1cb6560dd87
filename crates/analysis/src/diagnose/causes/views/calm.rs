//! Connections that the server ended with `ENHANCE_YOUR_CALM`, and what the client had done on them.

use std::time::Duration;

use super::ends::{Cost, Ends};
use crate::diagnose::Case;
use h2lab_model::record::{ConnectionRecord, GoAwayRecord};
use h2lab_model::settings::Peer;
use h2lab_wire::ErrorCode;
use h2lab_wire::trace::FrameKind;

/// The words of Tomcat, which adds up everything that it counts (PINGs, resets, small frames) and does not name the
/// largest part.
const TOTAL: &str = "too much overhead";

/// One such connection.
#[derive(Debug, Clone, Copy)]
pub(in crate::diagnose::causes) struct Calm<'a> {
    pub connection: &'a ConnectionRecord,
    pub goaway: &'a GoAwayRecord,
}

/// All such connections of a cell.
pub(in crate::diagnose::causes) fn of<'a>(case: &Case<'a>) -> impl Iterator<Item = Calm<'a>> {
    case.connections().filter_map(calm)
}

fn calm(connection: &ConnectionRecord) -> Option<Calm<'_>> {
    let is_calm = |goaway: &&GoAwayRecord| ErrorCode(goaway.code) == ErrorCode::ENHANCE_YOUR_CALM;
    let goaway = connection.goaways.iter().find(is_calm)?;
    Some(Calm { connection, goaway })
}

/// What the connections that `is_one` selects cost.
pub(in crate::diagnose::causes) fn cost(case: &Case<'_>, is_one: fn(&Calm<'_>) -> bool) -> Cost {
    Cost::of(&case.repetitions, |repetition| {
        let picked = repetition.record.connections.iter().filter_map(calm).filter(is_one);
        Ends::new(repetition.record, picked.map(|calm| (calm.connection.index, calm.goaway.at)))
    })
}

impl Calm<'_> {
    /// PINGs that the client sent, including acknowledgements of the server's PINGs.
    pub const fn pings(&self) -> u64 {
        self.connection.counters.frames_sent[FrameKind::PING.0 as usize]
    }

    /// Streams that the client reset.
    pub fn resets(&self) -> u64 {
        self.connection.http.resets_sent.iter().map(|(_, count)| u64::from(*count)).sum()
    }

    /// How long the connection lasted.
    pub fn age(&self) -> Duration {
        self.goaway.at.since(self.connection.connected_at)
    }

    /// Whether its debug data has one of these words, whatever their case.
    pub fn says(&self, words: &[&str]) -> bool {
        let said = self.goaway.debug.to_ascii_lowercase();
        words.iter().any(|word| said.contains(word))
    }

    /// Whether the server does not name what exceeded a limit, so that the client's actions have to be judged.
    pub fn gives_no_reason(&self) -> bool {
        self.goaway.debug.is_empty() || self.is_of_total()
    }

    /// Whether the connection was ended because of the sum of everything that the server counts.
    pub fn is_of_total(&self) -> bool {
        self.says(&[TOTAL])
    }

    /// The server, whose debug data may identify its product.
    pub fn peer(&self, case: &Case<'_>) -> Peer {
        if self.is_of_total() { Peer::started("tomcat") } else { case.peer() }
    }

    /// Its debug data for a sentence: ` ("too_many_pings")`, or nothing.
    pub fn quoted(&self) -> String {
        if self.goaway.debug.is_empty() { String::new() } else { format!(" (\"{}\")", self.goaway.debug) }
    }
}

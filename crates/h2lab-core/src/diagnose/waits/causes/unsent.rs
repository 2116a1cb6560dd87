//! Requests that never entered the link: what kept them at its near end, in the client's sidecar or in the generator.
//!
//! Where every packet of the link is known, what is not among them did not go. On which connection it would have gone the
//! generator says of its own, once it has given the request to one: then that one alone held it. Of the others nobody knows,
//! neither those that were given to none nor those of a sidecar; but connections are few, and what they were doing is known.
//! While one of them would have let it go and it did not come, the near end had it. While none would, that is what it waited for.

use super::{Delays, Timeline, claim_holds, handshake};
use crate::diagnose::waits::connection::Traced;
use crate::diagnose::waits::story::{Cause, Interval};
use crate::record::Sample;
use crate::trace::Direction;
use crate::units::Time;
use std::time::Duration;

/// What would have kept a new request from entering the link, at any time of a visit.
#[derive(Debug)]
pub(in super::super) struct NearEnd {
    /// In order, without gaps, from the first time to the last.
    barriers: Vec<Interval>,
}

impl NearEnd {
    /// That of a visit with these connections, of which all is known.
    pub fn new(traced: &[Traced], delays: &Delays) -> Self {
        let gates: Vec<Vec<Interval>> = traced.iter().map(gate).collect();
        let mut barriers = Timeline::new(Time::ZERO, Time::NEVER);
        // Whichever connection is open counts for all; what kept the others does not matter then.
        for is_open in [true, false] {
            let parts = gates.iter().flatten().filter(|part| (part.cause == Cause::Client) == is_open);
            for part in parts {
                barriers.claim(part.from, part.until, part.cause);
            }
        }
        for part in traced.iter().flat_map(|connection| set_up(connection, delays)) {
            barriers.claim(part.from, part.until, part.cause);
        }
        Self { barriers: barriers.finish() }
    }

    /// The life of a request that never entered the link, of which nobody knows on which connection it would have. `is_direct`:
    /// they are the generator's own, so that what it says of its wait for a stream comes first; else that was for a connection
    /// to a sidecar which could not go on itself.
    pub fn life(&self, sample: &Sample, is_direct: bool) -> Vec<Interval> {
        let (due, end) = (sample.scheduled_at, sample.completed_at);
        let slot_until = due + Duration::from_nanos(sample.stall_open_ns);
        let mut timeline = Timeline::new(due, end);
        if is_direct {
            timeline.claim(due, slot_until, Cause::StreamSlot);
        }
        let first = self.barriers.partition_point(|part| part.until <= due);
        for part in self.barriers[first..].iter().take_while(|part| part.from < end) {
            if !matches!(part.cause, Cause::Client | Cause::Unknown) {
                timeline.claim(part.from, part.until, part.cause);
            }
        }
        timeline.claim(due, slot_until, Cause::StreamSlot);
        timeline.claim(due, end, Cause::Client);
        timeline.finish()
    }
}

/// The life of a request that the generator gave to a connection of its own, where it lies in the socket: what other connections
/// would have let go says nothing of it.
pub(in super::super) fn assigned(traced: &Traced, sample: &Sample, delays: &Delays) -> Vec<Interval> {
    let (due, end) = (sample.scheduled_at, sample.completed_at);
    let mut timeline = Timeline::new(due, end);
    for part in set_up(traced, delays) {
        timeline.claim(part.from, part.until, part.cause);
    }
    timeline.claim(due, due + Duration::from_nanos(sample.stall_open_ns), Cause::StreamSlot);
    claim_holds(&traced.up, &mut timeline, due);
    timeline.claim(due, end, Cause::Client);
    timeline.finish()
}

/// The time in which a connection was set up. One on which nobody has said anything is ready when its SYN is answered.
fn set_up(traced: &Traced, delays: &Delays) -> impl Iterator<Item = Interval> {
    let is_silent = traced.up.history.all().is_empty();
    let until = if is_silent { traced.answer.arrived() } else { Time::NEVER };
    let mut within = Timeline::new(traced.begins_at, until);
    handshake::claim(traced, delays, &mut within);
    within.finish().into_iter().filter(|part| part.cause != Cause::Unknown)
}

/// From a connection's first request to its end, or to the GOAWAY with which the server takes no more: when it would have let
/// another one go, told as [`Cause::Client`], and why not at other times.
fn gate(traced: &Traced) -> Vec<Interval> {
    let first = traced.frames(Direction::Up).all().first();
    let Some(from) = first.map(|frame| traced.up.first_sent(frame.bytes.start)) else { return Vec::new() };
    let until = traced.ends_at.min(traced.leaves_at());
    let mut gate = Timeline::new(from, until);
    for (full, free) in traced.full() {
        gate.claim(full, free, Cause::StreamSlot);
    }
    // A connection of HTTP/1.1 that sends has a request, and so no room for another.
    claim_holds(&traced.up, &mut gate, from);
    gate.claim(from, until, Cause::Client);
    gate.finish()
}

//! Requests that never entered the link: what held them at its near end, in the client's sidecar or in the generator.
//!
//! If every packet of the link is known, a request without packets was not sent. The generator records the connection
//! of its own request once it has assigned one: then only that connection held the request. Otherwise the connection is
//! unknown, for an unassigned request as for a sidecar's. But connections are few, and their states are known. While
//! one of them would have allowed the request and it was not sent, the near end held it. While none would, the request
//! waited for what blocked them.

use super::{Delays, Timeline, claim_holds, handshake};
use crate::diagnose::waits::connection::Traced;
use crate::diagnose::waits::latency_breakdown::{Cause, Interval};
use h2lab_base::units::Time;
use h2lab_model::record::Sample;
use h2lab_wire::trace::Direction;
use std::time::Duration;

/// What would have kept a new request from entering the link, at any time of a repetition.
#[derive(Debug)]
pub(in super::super) struct NearEnd {
    /// In order, without gaps, from the first time to the last.
    barriers: Vec<Interval>,
}

impl NearEnd {
    /// The near end of a repetition with these connections, all fully known, in the order in which they begin.
    /// `is_tls`: they are encrypted.
    pub fn new(traced: &[Traced], is_tls: bool, delays: &Delays) -> Self {
        let sendable: Vec<Vec<Interval>> =
            traced.iter().map(|connection| may_send(connection, is_tls)).collect();
        let mut barriers = Timeline::new(Time::ZERO, Time::NEVER);
        // If any connection is open, the request could be sent; then it does not matter what blocked the others.
        for is_open in [true, false] {
            let parts = sendable.iter().flatten().filter(|part| (part.cause == Cause::Client) == is_open);
            for part in parts {
                barriers.claim(part.from, part.until, part.cause);
            }
        }
        let nexts = traced.iter().skip(1).map(|next| next.begins_at).chain([Time::NEVER]);
        let set_ups =
            traced.iter().zip(nexts).flat_map(|(connection, next)| set_up(connection, next, delays));
        for part in set_ups {
            barriers.claim(part.from, part.until, part.cause);
        }
        Self { barriers: barriers.finish() }
    }

    /// The intervals of a request that never entered the link, for an unknown connection. `is_direct`: the connections
    /// are the generator's own, so that its recorded wait for a stream comes first; otherwise that wait was for a
    /// connection to a sidecar that was blocked itself.
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

/// The intervals of a request that the generator assigned to a connection; it waits in the socket of that connection,
/// and the others do not matter.
pub(in super::super) fn assigned(traced: &Traced, sample: &Sample, delays: &Delays) -> Vec<Interval> {
    let (due, end) = (sample.scheduled_at, sample.completed_at);
    let mut timeline = Timeline::new(due, end);
    for part in set_up(traced, Time::NEVER, delays) {
        timeline.claim(part.from, part.until, part.cause);
    }
    timeline.claim(due, due + Duration::from_nanos(sample.stall_open_ns), Cause::StreamSlot);
    claim_holds(&traced.up, &mut timeline, due);
    timeline.claim(due, end, Cause::Client);
    timeline.finish()
}

/// The time in which a connection was set up. A connection without data is ready when its SYN is answered. A client
/// that abandons a connection before its SYN is answered sends no packet to show it: such a connection counts until the
/// `next` one begins.
fn set_up(traced: &Traced, next: Time, delays: &Delays) -> impl Iterator<Item = Interval> {
    let answered = traced.answer.arrived();
    let is_silent = traced.up.history.all().is_empty();
    let until = match is_silent {
        true if answered.happened() => answered,
        true => next,
        false => Time::NEVER,
    };
    let mut within = Timeline::new(traced.begins_at, until.min(traced.ends_at));
    handshake::claim(traced, delays, &mut within);
    within.finish().into_iter().filter(|part| part.cause != Cause::Unknown)
}

/// The period from when a connection could take its first request to its end, or to the GOAWAY with which the server
/// accepts no more. Times in which it could have sent another request are [`Cause::Client`]; other times have the
/// reason why it could not. In clear the period begins when the SYN was answered, even if the connection was never
/// used. With TLS, whose handshake involves both sides, it begins when the client first sent data after the handshake.
fn may_send(traced: &Traced, is_tls: bool) -> Vec<Interval> {
    let said = traced.frames(Direction::Up).all().first();
    let spoke = said.map_or(Time::NEVER, |frame| traced.up.first_sent(frame.bytes.start));
    let from = if is_tls { spoke } else { traced.answer.arrived() };
    let until = traced.ends_at.min(traced.leaves_at());
    let mut may_send = Timeline::new(from, until);
    for (full, free) in traced.full() {
        may_send.claim(full, free, Cause::StreamSlot);
    }
    // A connection of HTTP/1.1 that is sending has a request, and so no room for another.
    claim_holds(&traced.up, &mut may_send, from);
    may_send.claim(from, until, Cause::Client);
    may_send.finish()
}

//! Causes of requests whose stream is unknown.

use super::{Delays, Timeline, handshake};
use crate::diagnose::waits::connection::{HalfConnection, Traced};
use crate::diagnose::waits::latency_breakdown::{Cause, Interval, Repair, Whose};
use h2lab_base::units::Time;
use h2lab_model::record::Sample;

/// The intervals of a request on one of the generator's connections whose bytes could not be read; it could carry
/// requests from `ready_at` on.
pub(in super::super) fn unread(
    traced: &Traced,
    sample: &Sample,
    ready_at: Time,
    delays: &Delays,
) -> Vec<Interval> {
    let mut timeline = Timeline::new(sample.scheduled_at, sample.completed_at);
    let mut before = Timeline::new(sample.scheduled_at, sample.sent_at.min(ready_at));
    handshake::claim(traced, delays, &mut before);
    for part in before.finish() {
        if part.cause != Cause::Unknown {
            timeline.claim(part.from, part.until, part.cause);
        }
    }
    let slot = std::time::Duration::from_nanos(sample.stall_open_ns);
    timeline.claim(sample.scheduled_at, sample.scheduled_at + slot, Cause::StreamSlot);
    let come = sample.completed_at;
    for half_connection in [&traced.up, &traced.down] {
        claim_losses(half_connection, delays, (sample.sent_at, come), &mut timeline);
    }
    timeline.claim(sample.sent_at, sample.sent_at + delays.round_trip(), Cause::Propagation);
    timeline.finish()
}

/// The intervals of a sidecar's request on an unknown connection: `traced` are all connections that could not be read.
/// Only a loss that was repaired just before the request's end shows which connection it was.
pub(in super::super) fn unlocated(traced: &[&Traced], sample: &Sample, delays: &Delays) -> Vec<Interval> {
    let mut timeline = Timeline::new(sample.scheduled_at, sample.completed_at);
    let slack = delays.round_trip() + super::delays::PROMPT * 5;
    let mut is_found = false;
    for connection in traced {
        for half_connection in [&connection.up, &connection.down] {
            let ends = half_connection.history.missing(sample.scheduled_at, u64::MAX).iter();
            let repaired = ends
                .take_while(|byte_range| byte_range.sent.first_sent() < sample.completed_at)
                .any(|byte_range| {
                    let come = byte_range.sent.arrived();
                    byte_range.sent.drops().next().is_some()
                        && come <= sample.completed_at
                        && come + slack >= sample.completed_at
                });
            if repaired {
                is_found = true;
                claim_losses(
                    half_connection,
                    delays,
                    (sample.scheduled_at, sample.completed_at),
                    &mut timeline,
                );
            }
        }
    }
    if is_found {
        // Whatever the connection, the request crossed the link both ways.
        timeline.claim(sample.scheduled_at, sample.scheduled_at + delays.round_trip(), Cause::Propagation);
    }
    timeline.finish()
}

/// Claims the times in which a direction lacked bytes that had been lost.
fn claim_losses(
    half_connection: &HalfConnection,
    delays: &Delays,
    (from, until): (Time, Time),
    timeline: &mut Timeline,
) {
    let missing = half_connection.history.missing(from, u64::MAX).iter();
    for byte_range in missing.take_while(|byte_range| byte_range.sent.first_sent() < until) {
        for lack in delays.lacks(half_connection.direction, &byte_range.sent) {
            let sending = &half_connection.sending;
            let repair = lack.next.map_or(Repair::Never, |next| sending.repair(lack.lost.at, next.at));
            let drop = lack.lost.drop(half_connection.direction);
            let cause = Cause::Loss { whose: Whose::Unnamed, drop, repair };
            timeline.claim(lack.from.max(from), lack.until.min(until), cause);
        }
    }
}

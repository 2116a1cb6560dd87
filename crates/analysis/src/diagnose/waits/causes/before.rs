//! Before the link: what a request waited for until its first byte entered it.

use super::delays::PROMPT;
use super::half_exchange::HalfExchange;
use super::handshake;
use super::timeline::Timeline;
use crate::diagnose::waits::latency_breakdown::Cause;
use h2lab_base::units::Time;
use h2lab_model::record::Sample;
use std::time::Duration;

/// Claims the time from when the request was due to when its first byte entered the link.
pub(super) fn claim(up: &HalfExchange<'_>, sample: &Sample, is_direct: bool, timeline: &mut Timeline) {
    let (due, sent) = (sample.scheduled_at, up.first_sent());
    if due >= sent {
        return;
    }
    handshake_within(up, due, sent, timeline);
    if is_direct {
        direct(up, sample, sent, timeline);
    } else {
        slot(up, due, sent, timeline);
        // The generator's wait for a connection to the sidecar, unless the sidecar was blocked itself.
        let handed_over = (due + Duration::from_nanos(sample.stall_open_ns)).min(sent);
        up.claim_held(due, handed_over, Cause::StreamSlot, timeline);
        up.claim_held(handed_over, sent, Cause::Client, timeline);
    }
    timeline.claim(due, sent, Cause::Client);
}

/// The handshake, if the connection was not established when the request was due.
fn handshake_within(up: &HalfExchange<'_>, due: Time, sent: Time, timeline: &mut Timeline) {
    let mut within = Timeline::new(due, sent);
    handshake::claim(up.traced, up.delays, &mut within);
    for part in within.finish() {
        if part.cause != Cause::Unknown {
            timeline.claim(part.from, part.until, part.cause);
        }
    }
}

/// The generator's own record of what its request waited for.
fn direct(up: &HalfExchange<'_>, sample: &Sample, sent: Time, timeline: &mut Timeline) {
    let (due, written) = (sample.scheduled_at, sample.sent_at);
    let slot = Duration::from_nanos(sample.stall_open_ns);
    timeline.claim(due, (due + slot).min(sent), Cause::StreamSlot);
    // From when it was in the socket, or would have been if there had been room.
    let ready = (written - Duration::from_nanos(sample.stall_socket_ns)).max(due);
    if written.happened() && sent.since(ready) > PROMPT {
        let after = up.traced.up.sending.shrunk_by(up.start);
        timeline.claim(ready, sent, Cause::CongestionWindow { after });
    }
}

/// A sidecar's wait for a stream: until it could open this one, it had as many open as the server allows.
fn slot(up: &HalfExchange<'_>, due: Time, sent: Time, timeline: &mut Timeline) {
    let just_before = sent - PROMPT;
    let Some(limit) = up.traced.stream_limit_at(just_before) else { return };
    if up.traced.open_at(just_before) >= limit {
        timeline.claim(due, sent, Cause::StreamSlot);
    }
}

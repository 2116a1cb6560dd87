//! Waiting for a connection to be set up.

use super::delays::Delays;
use super::timeline::Timeline;
use crate::diagnose::waits::connection::Traced;
use crate::diagnose::waits::flow::Transmissions;
use crate::diagnose::waits::latency_breakdown::Cause;
use h2lab_base::units::Time;
use h2lab_wire::trace::Direction;

/// Claims the handshake of a connection, its losses separately. It ends with the connection's first frame, since TLS is
/// part of it.
pub(super) fn claim(traced: &Traced, delays: &Delays, timeline: &mut Timeline) {
    let Some(begin) = traced.opening.all().first().map(|syn| syn.at) else { return };
    let first_frame = traced.frames(Direction::Up).all().first().map(|frame| frame.bytes.clone());
    let first = first_frame.as_ref().and_then(|bytes| traced.up.history.of(bytes.clone()).first());
    let end = first.map_or(Time::NEVER, |byte_range| byte_range.sent.first_sent());
    // A client sends as soon as it has the SYN-ACK: losses of either SYN matter only until one of them arrived.
    claim_losses(&traced.opening, Direction::Up, delays, end, timeline);
    claim_losses(&traced.answer, Direction::Down, delays, end, timeline);
    let before = first_frame.map_or(0, |bytes| bytes.start);
    for half_connection in [&traced.up, &traced.down] {
        let is_hello = |start: u64| half_connection.direction == Direction::Down || start < before;
        let within =
            half_connection.history.all().iter().take_while(|byte_range| byte_range.sent.first_sent() < end);
        for byte_range in within.filter(|byte_range| is_hello(byte_range.bytes.start)) {
            claim_losses(&byte_range.sent, half_connection.direction, delays, end, timeline);
        }
    }
    timeline.claim(begin, end, Cause::Handshake { drop: None });
}

/// Claims the times in which packets with the same contents were missing.
fn claim_losses(
    sent: &Transmissions,
    direction: Direction,
    delays: &Delays,
    until: Time,
    timeline: &mut Timeline,
) {
    for lack in delays.lacks(direction, sent) {
        let drop = Some(lack.lost.drop(direction));
        timeline.claim(lack.from, lack.until.min(until), Cause::Handshake { drop });
    }
}

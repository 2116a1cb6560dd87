//! Waiting for a flow-control window of HTTP/2 (RFC 9113 §5.2).
//!
//! No simulation is needed: all the credit that DATA up to the end of a frame uses must have been granted before the
//! frame could be sent. So its sender cannot have sent it before it could read the last WINDOW_UPDATE that was needed.

use std::cmp::Reverse;

use super::delays::PROMPT;
use super::half_exchange::HalfExchange;
use super::timeline::Timeline;
use crate::diagnose::waits::flow::ByteRange;
use crate::diagnose::waits::latency_breakdown::Cause;
use crate::diagnose::waits::streams::{DEFAULT_WINDOW, Placed, Update};
use h2lab_base::units::Time;
use h2lab_wire::trace::Direction;

/// The WINDOW_UPDATE that unblocked a frame.
#[derive(Clone, Copy)]
struct Opened<'a> {
    /// When its receiver, the sender of the DATA, could read it.
    at: Time,
    /// The connection window was too small, rather than the stream window.
    connection: bool,
    update: &'a Update,
}

/// Claims the part of the time between `from` and `until` in which the frame waited for a window; bytes of the frame
/// were sent at the end of that time. `others` are bytes of other streams that the receiver lacked meanwhile: it grants
/// no credit for what it cannot read.
pub(super) fn claim(
    half_exchange: &HalfExchange<'_>,
    frame: &Placed,
    others: &[&ByteRange],
    (from, until): (Time, Time),
    timeline: &mut Timeline,
) {
    let Some(opened) = opened(half_exchange, frame, until) else { return };
    if opened.at <= from || opened.at > until + PROMPT {
        return;
    }
    let back = half_exchange.traced.half_connection(opposite(half_exchange.direction));
    let given = back.history.of(opened.update.begins_at..opened.update.ends_at).first();
    let given = given.map_or(Time::NEVER, |byte_range| byte_range.sent.first_sent());
    half_exchange.claim_losses(others, from, given.min(opened.at), timeline);
    let late = back.history.missing(given, opened.update.ends_at).iter();
    let lost = late.max_by_key(|byte_range| (byte_range.sent.arrived(), Reverse(byte_range.bytes.start)));
    let lost = lost.and_then(|byte_range| Some((byte_range, byte_range.sent.drops().next()?.0)));
    let window = |drop| Cause::FlowWindow { connection: opened.connection, drop };
    if let Some((byte_range, lost)) = lost {
        let due = half_exchange.delays.due(back.direction, lost, byte_range.sent.brought());
        timeline.claim(due.max(from), opened.at.min(until), window(Some(lost.drop(back.direction))));
    }
    timeline.claim(from, opened.at.min(until), window(None));
}

/// What unblocked a frame that was sent at `sent`; `None` if the initial windows sufficed.
fn opened<'a>(half_exchange: &HalfExchange<'a>, frame: &Placed, sent: Time) -> Option<Opened<'a>> {
    let direction = opposite(half_exchange.direction);
    let (back, granted) =
        (half_exchange.traced.half_connection(direction), half_exchange.traced.frames(direction));
    let known = |place| back.history.readable(place) <= sent;
    let opened = |stream: u32, taken: u64, initial: u64| {
        let needed = taken.checked_sub(initial).filter(|needed| *needed > 0)?;
        let update = granted.update(stream, needed)?;
        Some(Opened { at: back.history.readable(update.ends_at), connection: stream == 0, update })
    };
    let connection = opened(0, frame.connection_flow, DEFAULT_WINDOW);
    let stream = opened(frame.stream, frame.stream_flow, granted.initial_window(known));
    connection.into_iter().chain(stream).max_by_key(|opened| opened.at)
}

const fn opposite(direction: Direction) -> Direction {
    match direction {
        Direction::Up => Direction::Down,
        Direction::Down => Direction::Up,
    }
}

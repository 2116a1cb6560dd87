//! The time of a request over HTTP/3, interval by interval.
//!
//! As over TCP, a request in transit waits for its own bytes that are missing because of a drop, else for its own bytes
//! that the sender still holds, else for its own bytes in flight; but never for another stream's.

use std::cmp::Reverse;
use std::time::Duration;

use super::connection::Traced;
use super::half::{Credit, StreamHistory, TracedHalf};
use crate::diagnose::waits::causes::{Delays, PROMPT, Timeline};
use crate::diagnose::waits::flow::{ByteRange, History};
use crate::diagnose::waits::latency_breakdown::{Cause, Interval, Repair, Whose};
use h2lab_base::units::Time;
use h2lab_model::record::Sample;
use h2lab_wire::trace::Direction;

/// The intervals of a request on a stream of a connection; `None` if the stream is not there.
pub(super) fn life(traced: &Traced, stream: u64, sample: &Sample, delays: &Delays) -> Option<Vec<Interval>> {
    let up = Message::new(traced, stream, Direction::Up, delays)?;
    let down = Message::new(traced, stream, Direction::Down, delays);
    let mut timeline = Timeline::new(sample.scheduled_at, sample.completed_at);
    let sent = up.first_sent();
    before(&up, sample, sent, &mut timeline);
    let (answered, come) =
        down.as_ref().map_or((Time::NEVER, Time::NEVER), |down| (down.first_sent(), down.come()));
    // A response may begin before the request has ended. If it even ends before that, nothing waited for the rest of
    // the request.
    let asked = if up.come() <= come { up.come() } else { answered.max(sent) };
    up.claim(sent, asked, Cause::Client, &mut timeline);
    if let Some(down) = &down {
        down.claim_unsent(0, (asked, answered), Cause::Server, &mut timeline);
        down.claim(answered.max(asked), come, Cause::Server, &mut timeline);
        if !down.stream.is_whole {
            down.claim_window(down.stream.end, (come, Time::NEVER), &mut timeline);
            claim_holds(&traced.down, come, &mut timeline);
            timeline.claim(come, Time::NEVER, Cause::Server);
        }
    } else {
        claim_holds(&traced.down, asked, &mut timeline);
        timeline.claim(asked, Time::NEVER, Cause::Server);
    }
    timeline.claim(come, Time::NEVER, Cause::Client);
    Some(timeline.finish())
}

/// The intervals of a request that never entered the link, on the connection to which it was assigned, or on the first
/// one if it had none: all packets are known.
pub(super) fn unsent(traced: &Traced, sample: &Sample, is_assigned: bool, delays: &Delays) -> Vec<Interval> {
    let (due, end) = (sample.scheduled_at, sample.completed_at);
    let mut timeline = Timeline::new(due, end);
    claim_handshake(traced, delays, &mut timeline);
    if is_assigned {
        timeline.claim(due, due + Duration::from_nanos(sample.stall_open_ns), Cause::StreamSlot);
        claim_holds(&traced.up, due, &mut timeline);
        timeline.claim(due, end, Cause::Client);
    } else {
        timeline.claim(due, end, Cause::StreamSlot);
    }
    timeline.finish()
}

/// Claims the time from when the request was due to when its first byte entered the link.
fn before(up: &Message<'_>, sample: &Sample, sent: Time, timeline: &mut Timeline) {
    let due = sample.scheduled_at;
    let mut within = Timeline::new(due, sent);
    claim_handshake(up.traced, up.delays, &mut within);
    for part in within.finish().into_iter().filter(|part| part.cause != Cause::Unknown) {
        timeline.claim(part.from, part.until, part.cause);
    }
    let slot = Duration::from_nanos(sample.stall_open_ns);
    timeline.claim(due, (due + slot).min(sent), Cause::StreamSlot);
    // From when QUIC had it, or would have accepted it.
    let ready = (sample.sent_at - Duration::from_nanos(sample.stall_socket_ns)).max(due);
    up.claim_unsent(0, (ready, sent), Cause::Client, timeline);
    timeline.claim(due, sent, Cause::Client);
}

/// The handshake of a connection, its losses separately; it ends with the client's first stream.
fn claim_handshake(traced: &Traced, delays: &Delays, timeline: &mut Timeline) {
    let end = traced.up.begins_at;
    for half in [&traced.up, &traced.down] {
        let byte_ranges = half.handshake.iter().flat_map(History::all);
        for lack in byte_ranges.flat_map(|byte_range| delays.lacks(half.direction, &byte_range.sent)) {
            let drop = Some(lack.lost.drop(half.direction));
            timeline.claim(lack.from, lack.until.min(end), Cause::Handshake { drop });
        }
    }
    timeline.claim(traced.begins_at, end, Cause::Handshake { drop: None });
}

/// Claims the times from `from` on in which one end held back data of the connection.
fn claim_holds(half: &TracedHalf, from: Time, timeline: &mut Timeline) {
    for hold in half.sending.holds().skip_while(|hold| hold.until <= from) {
        timeline.claim(hold.from.max(from), hold.until, Cause::CongestionWindow { after: hold.after });
    }
}

/// A request or a response.
struct Message<'a> {
    traced: &'a Traced,
    half: &'a TracedHalf,
    /// The other direction, which grants windows.
    back: &'a TracedHalf,
    id: u64,
    stream: &'a StreamHistory,
    delays: &'a Delays,
}

/// What unblocked a byte.
struct Opened<'a> {
    at: Time,
    is_connection: bool,
    credit: Option<&'a Credit>,
    /// A packet with enough credit that was lost before that.
    lost: Option<&'a Credit>,
}

impl<'a> Message<'a> {
    fn new(traced: &'a Traced, id: u64, direction: Direction, delays: &'a Delays) -> Option<Self> {
        let (half, back) = (traced.half(direction), traced.half(direction.opposite()));
        let stream = half.streams.get(&id).filter(|stream| stream.end > 0)?;
        Some(Self { traced, half, back, id, stream, delays })
    }

    fn first_sent(&self) -> Time {
        self.stream.history.all().first().map_or(Time::NEVER, |byte_range| byte_range.sent.first_sent())
    }

    /// When its last byte could be read.
    fn come(&self) -> Time {
        self.stream.history.readable(self.stream.end)
    }

    /// Claims the time between `from` and `until`, in which the message is in transit. `idle` is why bytes that could
    /// have been sent did not exist yet.
    fn claim(&self, from: Time, until: Time, idle: Cause, timeline: &mut Timeline) {
        if from >= until {
            return;
        }
        let missing = self.stream.history.missing(from, self.stream.end);
        self.claim_losses(missing, (from, until), timeline);
        let mut since = from;
        for byte_range in missing {
            let sent = byte_range.sent.first_sent().min(until);
            self.claim_unsent(byte_range.bytes.start, (since, sent), idle, timeline);
            since = since.max(sent);
        }
        for byte_range in missing {
            self.delays.claim_transit(self.half.direction, &byte_range.sent, (from, until), timeline);
        }
    }

    /// Claims the times in which lost bytes were missing. The loss that was repaired last is claimed first: without it
    /// the others would have mattered less.
    fn claim_losses(&self, missing: &[ByteRange], (from, until): (Time, Time), timeline: &mut Timeline) {
        let mut late: Vec<&ByteRange> = missing.iter().collect();
        late.sort_by_key(|byte_range| Reverse(byte_range.sent.arrived()));
        for lack in
            late.iter().flat_map(|byte_range| self.delays.lacks(self.half.direction, &byte_range.sent))
        {
            let repair = |next| self.half.sending.repair(lack.lost.at, next);
            let repair = lack.next.map_or(Repair::Never, |next| repair(next.at));
            let cause = Cause::Loss { whose: Whose::Own, drop: lack.lost.drop(self.half.direction), repair };
            timeline.claim(lack.from.max(from), lack.until.min(until), cause);
        }
    }

    /// Claims the time between `from` and `until`; this byte was sent at its end.
    fn claim_unsent(&self, byte: u64, (from, until): (Time, Time), idle: Cause, timeline: &mut Timeline) {
        if from >= until {
            return;
        }
        self.claim_window(byte, (from, until), timeline);
        let byte_range = self.stream.history.of(byte..byte + 1).first();
        let first = byte_range.and_then(|byte_range| byte_range.sent.all().first());
        let held = first.and_then(|sent| self.half.sending.held(self.half.place(sent.index)?));
        if let Some((since, after)) = held {
            timeline.claim(since.max(from), until, Cause::CongestionWindow { after });
        }
        timeline.claim(from, until, idle);
    }

    /// Claims the part of the time between `from` and `until` in which this byte waited for a window (RFC 9000 §4.1):
    /// its sender cannot have sent it before it could read the credit that it needs.
    fn claim_window(&self, byte: u64, (from, until): (Time, Time), timeline: &mut Timeline) {
        let Some(opened) = self.opened(byte) else { return };
        if opened.at <= from || opened.at > until + PROMPT {
            return;
        }
        let (connection, until) = (opened.is_connection, opened.at.min(until));
        if let Some(Credit { sent: lost, .. }) = opened.lost {
            let brought = opened.credit.map(|credit| &credit.sent);
            let due = self.delays.due(self.back.direction, lost, brought);
            let drop = Some(lost.drop(self.back.direction));
            timeline.claim(due.max(from), until, Cause::FlowWindow { connection, drop });
        }
        timeline.claim(from, until, Cause::FlowWindow { connection, drop: None });
    }

    /// What unblocked a byte; `None` if the initial windows sufficed, or are unknown. The end of a stream uses no
    /// credit.
    fn opened(&self, byte: u64) -> Option<Opened<'a>> {
        let windows = self.back.windows?;
        let is_end = self.stream.is_whole && byte + 1 >= self.stream.end;
        if is_end {
            return None;
        }
        // Request streams are opened by the client.
        let own =
            if self.half.direction == Direction::Up { windows.others_streams } else { windows.own_streams };
        let of_window = |stream: Option<u64>, needed: u64, initial: u64| {
            let enough = self.back.credits(stream).iter().filter(move |credit| credit.limit >= needed);
            let credit = enough.clone().min_by_key(|credit| credit.sent.out_at);
            let at = credit.map_or(Time::NEVER, |credit| credit.sent.out_at);
            let lost = enough.clone().find(|credit| credit.sent.is_lost && credit.sent.at < at);
            (initial < needed).then_some(Opened { at, is_connection: stream.is_none(), credit, lost })
        };
        let stream = of_window(Some(self.id), byte + 1, own);
        let connection =
            self.stream.needed(byte).and_then(|needed| of_window(None, needed, windows.connection));
        connection.into_iter().chain(stream).max_by_key(|opened| opened.at)
    }
}

//! Times in which streams of a connection waited together because segments were missing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_model::record::{CellRecord, ConnectionRecord};
use h2lab_wire::StreamId;
use h2lab_wire::trace::{Direction, Facts, Flight, FrameEvent, FrameKind, Hole, Stall};

use crate::diagnose::facts::retransmissions_of;

/// The least distance that the end of a stall may have from the repair of a hole: on a busy machine the server and we
/// need a few milliseconds to read and answer.
const LEAST_SLACK: Duration = Duration::from_millis(5);

/// A time in which several streams of a connection waited behind missing segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::diagnose) struct Blocked {
    /// The connection.
    pub connection: u32,
    /// When the first of these segments could have been used, or the stall began.
    pub begin: Time,
    /// When frames arrived again.
    pub end: Time,
    /// Streams that were in flight all the time.
    pub sharing: usize,
    /// Streams whose answers were overdue in this time.
    pub overdue: usize,
    /// The sum of the times for which they were overdue.
    pub stream_time: Duration,
    /// The part of `stream_time` for requests that were sent again on another connection, before or after this time.
    pub again: Duration,
    /// Segments that were missing: dropped, or retransmitted.
    pub segments: usize,
}

/// The stalls of a repetition shared by two or more streams because segments were missing. There may be many thousands,
/// and many more requests: each request is visited only while it is open.
pub(in crate::diagnose) fn blocked(record: &CellRecord, facts: &Facts) -> Vec<Blocked> {
    // For a sidecar's connections no attempts are known.
    let attempts = if record.cell.sidecar.is_none() { attempts(record, facts) } else { Vec::new() };
    let replayed: BTreeSet<(u32, StreamId)> = replayed(record).collect();
    let mut blocked = Vec::new();
    for stalls in facts.stalls.chunk_by(|one, next| one.connection == next.connection) {
        let connection = stalls[0].connection;
        let holes = Holes::of(facts.holes_of(connection));
        let first = attempts.partition_point(|flight| flight.connection < connection);
        let earlier = attempts[first..].iter().take_while(|flight| flight.connection == connection);
        let is_again = |flight: &Flight| replayed.contains(&(flight.connection, flight.stream));
        let last = facts.flights_of(connection).iter().map(|flight| (flight, is_again(flight)));
        let mut flights: Vec<(&Flight, bool)> = last.chain(earlier.map(|flight| (flight, true))).collect();
        flights.sort_by_key(|(flight, _)| flight.sent_at);
        let mut to_come = flights.into_iter().peekable();
        let mut open: Vec<(&Flight, bool)> = Vec::new();
        for stall in stalls {
            open.retain(|(flight, _)| flight.ended_at > stall.begin);
            let sent = std::iter::from_fn(|| to_come.next_if(|(flight, _)| flight.sent_at < stall.end));
            open.extend(sent.filter(|(flight, _)| flight.ended_at > stall.begin));
            if stall.streams.len() >= 2 {
                blocked.extend(of_stall(facts, &holes, stall, &open));
            }
        }
    }
    blocked
}

/// The part of a stall that missing segments explain. `flights` are all requests that were open in it, and whether each
/// was sent again.
fn of_stall(facts: &Facts, holes: &Holes<'_>, stall: &Stall, flights: &[(&Flight, bool)]) -> Option<Blocked> {
    let (begin, segments) =
        if facts.has_packet_log { holes.explain(facts, stall) } else { by_retransmission(facts, stall) }?;
    let is_sharing = |flight: &Flight| flight.sent_at <= begin && flight.is_open_between(begin, stall.end);
    let sharing = flights.iter().filter(|(flight, _)| is_sharing(flight)).count();
    let overdue = flights.iter().map(|(flight, again)| (flight.overdue_between(begin, stall.end), *again));
    let overdue: Vec<(Duration, bool)> = overdue.filter(|(time, _)| !time.is_zero()).collect();
    (sharing >= 2).then(|| Blocked {
        connection: stall.connection,
        begin,
        end: stall.end,
        sharing,
        overdue: overdue.len(),
        stream_time: overdue.iter().map(|(time, _)| *time).sum(),
        again: overdue.iter().filter(|(_, again)| *again).map(|(time, _)| *time).sum(),
        segments,
    })
}

/// The connection and stream on which each request that was sent again ended.
fn replayed(record: &CellRecord) -> impl Iterator<Item = (u32, StreamId)> {
    let replayed = record.samples.iter().filter(|sample| sample.replays > 0);
    replayed.map(|sample| (sample.connection, sample.stream))
}

/// Requests while they were on connections that left them unprocessed, by connection and then by time. A request that
/// is sent again is recorded with its last connection only; the frames show the earlier ones. There it has no answer,
/// and it lasts from its HEADERS to the GOAWAY whose last stream is below its own.
fn attempts(record: &CellRecord, facts: &Facts) -> Vec<Flight> {
    if replayed(record).next().is_none() {
        return Vec::new();
    }
    let ended: BTreeMap<u32, &ConnectionRecord> = record
        .connections
        .iter()
        .filter(|connection| !connection.goaways.is_empty())
        .map(|connection| (connection.index, connection))
        .collect();
    let mut known: BTreeSet<(u32, StreamId)> =
        facts.flights.iter().map(|flight| (flight.connection, flight.stream)).collect();
    let mut attempts = Vec::new();
    for frame in record.frames.iter().filter(|frame| is_request(frame)) {
        let Some(connection) = ended.get(&frame.connection) else { continue };
        let leaving = connection.goaways.iter().filter(|goaway| goaway.last_stream < frame.stream.0);
        let Some(ended_at) = leaving.map(|goaway| goaway.at).min() else { continue };
        // Trailers are HEADERS as well.
        if known.insert((frame.connection, frame.stream)) {
            attempts.push(Flight {
                connection: frame.connection,
                stream: frame.stream,
                sent_at: frame.at,
                due_at: frame.at + facts.quickest,
                ended_at,
            });
        }
    }
    attempts.sort_by_key(|flight| (flight.connection, flight.sent_at));
    attempts
}

/// Whether a frame is a request's head.
fn is_request(frame: &FrameEvent) -> bool {
    frame.direction == Direction::Up && frame.kind == FrameKind::HEADERS
}

/// The holes of a connection, by begin and by end.
#[derive(Debug)]
struct Holes<'a> {
    by_begin: &'a [Hole],
    /// The latest end of each of these and all before it.
    latest: Vec<Time>,
    /// The ends in order, each with its begin.
    by_end: Vec<(Time, Time)>,
    /// The beginning of the first hole that was never repaired.
    open_since: Option<Time>,
}

impl<'a> Holes<'a> {
    fn of(by_begin: &'a [Hole]) -> Self {
        let latest = by_begin.iter().scan(Time::ZERO, |latest, hole| {
            *latest = hole.end.max(*latest);
            Some(*latest)
        });
        let mut by_end: Vec<(Time, Time)> = by_begin.iter().map(|hole| (hole.end, hole.begin)).collect();
        by_end.sort_unstable();
        let open_since = by_begin.iter().find(|hole| !hole.end.happened()).map(|hole| hole.begin);
        Self { by_begin, latest: latest.collect(), by_end, open_since }
    }

    /// From when on missing segments explain a stall, and how many. They explain it if frames resumed when a hole was
    /// repaired, and if a chain of overlapping holes was open for at least half of the stall: a drop somewhere in a
    /// pause of the server is repaired long before the pause ends, and one near its end covers little of it.
    fn explain(&self, facts: &Facts, stall: &Stall) -> Option<(Time, usize)> {
        let slack = (facts.rtt / 4).max(LEAST_SLACK);
        let first = self.by_end.partition_point(|(end, _)| *end < stall.end - slack);
        let ending = self.by_end[first..].iter().take_while(|(end, _)| *end <= stall.end + slack);
        let begins = ending.map(|(_, begin)| *begin).chain(self.open_since);
        let mut begin = begins.filter(|begin| *begin < stall.end).min()?;
        let mut n = self.by_begin.partition_point(|hole| hole.begin < begin);
        while n > 0 && self.latest[n - 1] >= begin {
            n -= 1;
            if self.by_begin[n].end >= begin {
                begin = self.by_begin[n].begin;
            }
        }
        let begin = begin.max(stall.begin);
        let length = stall.end.since(begin);
        let covers = length >= facts.least_stall() && length * 2 >= stall.end.since(stall.begin);
        // All holes that had ended by then are among those that had begun.
        let started = self.by_begin.partition_point(|hole| hole.begin < stall.end);
        let over = self.by_end.partition_point(|(end, _)| *end <= begin);
        covers.then(|| (begin, started.saturating_sub(over)))
    }
}

/// Like [`Holes::explain`], over a network without a packet log: frames resumed when a retransmitted segment arrived,
/// and the stall lasted for the round trip that it takes to detect a loss.
fn by_retransmission(facts: &Facts, stall: &Stall) -> Option<(Time, usize)> {
    let slack = (facts.rtt / 4).max(LEAST_SLACK);
    if stall.end.since(stall.begin) < facts.rtt.max(facts.least_stall()) {
        return None;
    }
    let of_end = |server: bool| {
        let way = if server { facts.rtt / 2 } else { facts.quickest };
        let steps = retransmissions_of(facts, stall.connection, server);
        let first = steps.partition_point(|step| step.until + way + slack < stall.end);
        let ending = steps[first..].iter().take_while(|step| step.after + way <= stall.end + slack);
        ending.map(|step| step.segments).sum::<u32>()
    };
    let segments = of_end(false) + of_end(true);
    (segments > 0).then_some((stall.begin, segments as usize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::testing::Scene;

    /// LOSS101's case, with `requests` more requests in the stall that a GOAWAY left unprocessed at its end, and that
    /// were answered later on another connection.
    fn left(requests: u32) -> Blocked {
        let streams = (0..requests).map(|n| 7 + 2 * n);
        let mut scene = Scene::with_shared_stall().goaway(0, 155, 5, 0).goaway(1, 400, 99, 0);
        for stream in streams.clone() {
            scene = scene.request(1, stream, 100, 300, 300);
        }
        let mut record = scene.established(1, 250).record();
        let head = |connection: u32, stream: u32, at: u64| FrameEvent {
            at: Time::from_millis(at),
            connection,
            stream: StreamId(stream),
            length: 10,
            value: 0,
            kind: FrameKind::HEADERS,
            flags: 5,
            direction: Direction::Up,
        };
        for stream in streams {
            record.frames.extend([head(0, stream, 100), head(1, stream, 260)]);
        }
        record.frames.sort_by_key(|frame| frame.at);
        for sample in record.samples.edit().iter_mut().filter(|sample| sample.connection == 1) {
            sample.replays = 1;
        }
        let facts = crate::diagnose::facts::of(&record);
        let second = facts.flights_of(1);
        assert_eq!(second.len(), requests as usize);
        assert!(second.iter().all(|flight| flight.sent_at == Time::from_millis(260)), "{second:?}");
        blocked(&record, &facts).remove(0)
    }

    #[test]
    fn requests_that_a_connection_left_unprocessed_waited_there_for_its_missing_segments() {
        let (none, two) = (left(0), left(2));
        assert_eq!([none.sharing, two.sharing], [2, 4]);
        assert_eq!([none.again, two.again], [0, 59].map(Duration::from_millis));
        assert_eq!(two.stream_time, none.stream_time + two.again, "29.5 ms each");
    }
}

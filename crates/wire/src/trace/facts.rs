//! The facts of a repetition for rules: requests in flight, stalls, holes in the byte stream, ends of connections.
//!
//! Facts are measured, or follow from measurements by the rules of TCP alone; none of them is a judgement. They are
//! built from a whole record by `diagnose::facts`, which this layer may not import.

use std::time::Duration;

use super::Direction;
use crate::StreamId;
use h2lab_base::units::Time;

/// All facts of one repetition.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Facts {
    /// The round trip of the path without queueing: the link's, or else the lowest that TCP saw.
    pub rtt: Duration,
    /// The shortest time from a request to the first byte of its answer; never below `rtt`.
    pub quickest: Duration,
    /// Whether the packet log was kept: drops are then seen, else they are inferred from retransmissions.
    pub has_packet_log: bool,
    /// Requests that were sent on connections on which a segment was missing or that the server may have ended, by
    /// connection and then by time. Rules need no others, of which there may be millions.
    pub flights: Vec<Flight>,
    /// Times without a frame on these connections although an answer was due, by connection and then by time.
    pub stalls: Vec<Stall>,
    /// Holes that drops left in byte streams, by connection and then by begin. Empty without a packet log.
    pub holes: Vec<Hole>,
    /// Steps of the retransmission counters, by connection and then by time.
    pub retransmissions: Vec<Retransmission>,
    /// Connections that the server ended in an orderly way, by connection.
    pub ends: Vec<ServerEnd>,
}

impl Facts {
    /// The requests of one connection, by time.
    pub fn flights_of(&self, connection: u32) -> &[Flight] {
        let from = self.flights.partition_point(|flight| flight.connection < connection);
        let until = self.flights.partition_point(|flight| flight.connection <= connection);
        &self.flights[from..until]
    }

    /// The holes of one connection, by begin.
    pub fn holes_of(&self, connection: u32) -> &[Hole] {
        let from = self.holes.partition_point(|hole| hole.connection < connection);
        let until = self.holes.partition_point(|hole| hole.connection <= connection);
        &self.holes[from..until]
    }

    /// How long an absence of frames must last to count: half a round trip, but not so little that the scheduling of
    /// our own processes shows.
    pub fn least_stall(&self) -> Duration {
        const LEAST: Duration = Duration::from_millis(2);
        (self.rtt / 2).max(LEAST)
    }
}

/// A request while it was in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flight {
    /// Its connection.
    pub connection: u32,
    /// Its stream.
    pub stream: StreamId,
    /// When its head was handed to the socket.
    pub sent_at: Time,
    /// When the quickest answer of the repetition would have come: before this, waiting is not a stall.
    pub due_at: Time,
    /// When it ended.
    pub ended_at: Time,
}

/// A time in which no frame arrived on a connection although at least one answer was due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stall {
    /// The connection.
    pub connection: u32,
    /// When the last frame had arrived, or the first of the waiting answers was due, whichever was later.
    pub begin: Time,
    /// When the next frame arrived; the end of the last waiting request if none did.
    pub end: Time,
    /// The streams that were in flight throughout.
    pub streams: Vec<StreamId>,
}

/// A time in which TCP could not deliver because a segment was missing: from when it would have arrived to when a
/// later transmission of the same bytes did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hole {
    /// The connection.
    pub connection: u32,
    /// The direction of the missing bytes.
    pub direction: Direction,
    /// When the link dropped the packet.
    pub dropped_at: Time,
    /// When it could first affect the client. Downlink: when the packet would have arrived. Uplink: when the quickest
    /// answer to it would have.
    pub begin: Time,
    /// When its retransmission could first affect the client, likewise; [`Time::NEVER`] if it was never repaired.
    pub end: Time,
}

/// An end of a connection had retransmitted more segments in one sample of `TCP_INFO` than in the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retransmission {
    /// The connection.
    pub connection: u32,
    /// The earlier sample.
    pub after: Time,
    /// The sample that showed it.
    pub until: Time,
    /// How many segments more.
    pub segments: u32,
    /// Whether it was the server's end.
    pub server: bool,
}

/// The server ended a connection in an orderly way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerEnd {
    /// The connection.
    pub connection: u32,
    /// When we learnt of it.
    pub at: Time,
    /// Requests up to the last that the server declared accepted; an upper bound if it declared none.
    pub requests: u32,
    /// Requests that had certainly reached it when it ended the connection: the same number, unless it declared none.
    pub least: u32,
    /// Requests up to the last that it had answered by then; all of them if that is not known. If several were in
    /// flight, the one for which it ended the connection is not before this; all but the last if it certainly ended it
    /// for that.
    pub answered: u32,
    /// For how long the last of them had been answered by then; zero if it had not been, or is not known. If the server
    /// does not declare the last: for how long no new one can have reached it.
    pub idle: Duration,
    /// For how long the connection had been established.
    pub age: Duration,
    /// Whether it ended by GOAWAY rather than by closing.
    pub goaway: bool,
}

impl ServerEnd {
    /// Whether the end can have come after exactly this many requests.
    pub const fn allows(&self, requests: u32) -> bool {
        self.least <= requests && requests <= self.requests
    }
}

/// Finds the stalls of one connection that last at least `min_length`.
///
/// `arrivals` are the times at which frames came from the server, in order; `flights` are the requests of that
/// connection, in the order of `sent_at`. Takes time in proportion to both, and to the requests that are open in each
/// stall.
pub fn stalls(connection: u32, arrivals: &[Time], flights: &[Flight], min_length: Duration) -> Vec<Stall> {
    let last_end = flights.iter().map(|flight| flight.ended_at).filter(|at| at.happened()).max();
    let last_arrival = arrivals.last().copied().unwrap_or(Time::ZERO);
    let starts = std::iter::once(Time::ZERO).chain(arrivals.iter().copied());
    let ends = arrivals.iter().copied().chain(last_end.filter(|end| *end > last_arrival));
    let gaps = starts.zip(ends).filter(|(start, end)| end.since(*start) >= min_length);
    let mut to_come = flights.iter().peekable();
    let mut candidates: Vec<&Flight> = Vec::new();
    gaps.filter_map(|(start, end)| {
        // A request that ended before this gap is not open in a later one either, and one sent after it is not open
        // yet.
        candidates.retain(|flight| flight.ended_at > start);
        let sent = std::iter::from_fn(|| to_come.next_if(|flight| flight.sent_at < end));
        candidates.extend(sent.filter(|flight| flight.ended_at > start));
        let open = candidates.iter().filter(|flight| flight.is_open_between(start, end));
        let due = open.map(|flight| flight.due_at).min()?;
        let begin = start.max(due);
        let waited = |flight: &&&Flight| flight.sent_at <= begin && flight.is_open_between(begin, end);
        let stall = Stall {
            connection,
            begin,
            end,
            streams: candidates.iter().filter(waited).map(|flight| flight.stream).collect(),
        };
        (end.since(begin) >= min_length).then_some(stall)
    })
    .collect()
}

impl Flight {
    /// Whether it was in flight up to `end`, given that nothing could complete since `begin`. It then ended at one of
    /// the two or after them. So the middle decides, although the clock is not read at the same nanosecond for a frame
    /// and for a request.
    pub fn is_open_between(&self, begin: Time, end: Time) -> bool {
        let begin = begin.max(self.sent_at);
        begin < end && self.ended_at > begin + end.since(begin) / 2
    }

    /// For how much of the time between `begin` and `end` its answer was overdue.
    pub fn overdue_between(&self, begin: Time, end: Time) -> Duration {
        self.ended_at.min(end).since(self.due_at.max(begin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: Duration = Duration::from_millis(10);

    /// A request in flight from `sent` to `ended`, with an answer due after 25 ms.
    fn flight(stream: u32, sent: u64, ended: u64) -> Flight {
        Flight {
            connection: 0,
            stream: StreamId(stream),
            sent_at: Time::from_millis(sent),
            due_at: Time::from_millis(sent + 25),
            ended_at: Time::from_millis(ended),
        }
    }

    fn found(arrivals: &[u64], flights: &[Flight]) -> Vec<(u64, u64, Vec<u32>)> {
        let arrivals: Vec<Time> = arrivals.iter().map(|&at| Time::from_millis(at)).collect();
        let millis = |at: Time| at.as_nanos() / 1_000_000;
        let shape = |stall: Stall| {
            (millis(stall.begin), millis(stall.end), stall.streams.iter().map(|stream| stream.0).collect())
        };
        stalls(0, &arrivals, flights, MIN).into_iter().map(shape).collect()
    }

    #[test]
    fn waiting_for_an_answer_that_is_not_due_is_no_stall() {
        assert_eq!(found(&[125], &[flight(1, 100, 125)]), []);
        assert_eq!(found(&[134], &[flight(1, 100, 134)]), [], "9 ms late are below the least length");
        assert_eq!(found(&[135], &[flight(1, 100, 135)]), [(125, 135, vec![1])]);
    }

    #[test]
    fn a_stall_begins_with_the_last_frame_when_answers_were_due_before() {
        let flights = [flight(1, 100, 125), flight(3, 100, 160), flight(5, 130, 160)];
        assert_eq!(found(&[125, 160], &flights), [(125, 160, vec![3])], "stream 5 was sent later");
    }

    #[test]
    fn any_frame_ends_a_stall() {
        let flights = [flight(1, 100, 200), flight(3, 100, 200)];
        assert_eq!(found(&[150, 200], &flights), [(125, 150, vec![1, 3]), (150, 200, vec![1, 3])]);
    }

    #[test]
    fn an_idle_connection_does_not_stall() {
        assert_eq!(found(&[125, 5_025], &[flight(1, 100, 125), flight(3, 5_000, 5_025)]), []);
    }

    #[test]
    fn a_connection_that_never_answers_stalls_to_the_end() {
        assert_eq!(found(&[], &[flight(1, 100, 900), flight(3, 110, 900)]), [(125, 900, vec![1, 3])]);
    }

    #[test]
    fn stalls_of_a_connection_with_a_hundred_thousand_requests_are_found_in_time() {
        // A request every 20 ms, each answered after 100: five are open in each gap. Looking at all of them for each
        // gap would take 10^10 steps.
        const COUNT: u64 = 100_000;
        let flights: Vec<Flight> =
            (0..COUNT).map(|n| flight(n as u32, 1_000 + 20 * n, 1_100 + 20 * n)).collect();
        let arrivals: Vec<u64> = (0..COUNT).map(|n| 1_100 + 20 * n).collect();
        let found = found(&arrivals, &flights);
        assert_eq!(found.len() as u64, COUNT);
        assert_eq!(found[50_000], (1_001_080, 1_001_100, (50_000..50_005).collect()));
    }

    #[test]
    fn time_before_an_answer_is_due_is_not_overdue() {
        let flight = flight(1, 100, 200);
        let overdue = |begin, end| flight.overdue_between(Time::from_millis(begin), Time::from_millis(end));
        assert_eq!(overdue(100, 150), Duration::from_millis(25));
        assert_eq!(overdue(150, 300), Duration::from_millis(50));
        assert_eq!(overdue(0, 110), Duration::ZERO);
    }
}

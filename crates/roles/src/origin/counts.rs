//! What the origin has counted so far, for the lab: it shows how a proxy asks its upstream, and how the origin writes.

use h2lab_base::units::Time;
use h2lab_lab::sut::ORIGIN_COUNTS as LINE;
use h2lab_model::record::OriginCounts;
use h2lab_net::clock::Clock;

use super::Served;

/// What is counted besides [`Served`].
#[derive(Debug, Default)]
pub(super) struct Counter {
    /// Connections that have a request to answer.
    busy: u64,
    /// The most of them at a time.
    most_busy: u64,
    /// For how long they had, in sum, in nanoseconds, until `since`.
    busy_ns: u64,
    since: Time,
    /// Requests when the last line was made.
    told: u64,
}

impl Counter {
    /// A connection has got a request to answer, or has answered all.
    pub fn turned(&mut self, now: Time, is_busy: bool) {
        self.busy_ns += self.busy * now.nanos_since(self.since);
        self.since = now;
        self.busy = if is_busy { self.busy + 1 } else { self.busy.saturating_sub(1) };
        self.most_busy = self.most_busy.max(self.busy);
    }

    /// A line: `origin-counts TIME REQUESTS CONNECTIONS MULTIPLEXED MOST-BUSY BUSY WRITES FRAMES`, as in [`OriginCounts`];
    /// the time is in nanoseconds of the monotonic clock. `None` if no request has come since the last one and none is
    /// to be answered.
    pub fn line(&mut self, clock: Clock, served: &Served) -> Option<String> {
        if self.told == served.requests && self.busy == 0 {
            return None;
        }
        self.told = served.requests;
        let now = clock.now();
        let at = clock.origin_ns() + now.as_nanos();
        let busy_ns = self.busy_ns + self.busy * now.nanos_since(self.since);
        let Served { requests, connections, multiplexed, writes, frames, .. } = served;
        let most_busy = self.most_busy;
        Some(format!(
            "{LINE}{at} {requests} {connections} {multiplexed} {most_busy} {busy_ns} {writes} {frames}"
        ))
    }
}

/// When such a line was made, on the clock with this origin, and what it says, without the time in which that was
/// counted; `None` if the line is not one.
pub fn read(line: &str, origin_ns: u64) -> Option<(Time, OriginCounts)> {
    let mut fields = line.trim_end().strip_prefix(LINE)?.split(' ').map(|field| field.parse::<u64>().ok());
    let mut next = || fields.next().flatten();
    let at = Time::from_nanos(next()?.checked_sub(origin_ns)?);
    let counts = OriginCounts {
        requests: next()?,
        connections: next()?,
        multiplexed: next()?,
        most_busy: next()?,
        busy_ns: next()?,
        writes: next()?,
        frames: next()?,
        wall_ns: 0,
    };
    Some((at, counts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_connections_are_counted_for_as_long_as_they_are() {
        let mut counter = Counter::default();
        for (at, is_busy) in [(10, true), (20, true), (50, false), (60, false), (90, true), (95, false)] {
            counter.turned(Time::from_millis(at), is_busy);
        }
        // One from 10 to 20, two until 50, one until 60, and one for 5 ms.
        assert_eq!((counter.busy_ns, counter.busy, counter.most_busy), (85_000_000, 0, 2));
    }

    #[test]
    fn a_line_reads_back_and_comes_only_if_there_is_something_new() {
        let clock = Clock::start();
        let served = Served {
            requests: 7,
            connections: 3,
            multiplexed: 1,
            writes: 9,
            frames: 20,
            ..Served::default()
        };
        let mut counter = Counter { most_busy: 2, busy_ns: 5, ..Counter::default() };
        let line = counter.line(clock, &served).expect("requests came");
        let (_, counts) = read(&line, clock.origin_ns()).expect("it is one");
        let expected = OriginCounts {
            requests: 7,
            connections: 3,
            multiplexed: 1,
            most_busy: 2,
            busy_ns: 5,
            writes: 9,
            frames: 20,
            wall_ns: 0,
        };
        assert_eq!(counts, expected);
        assert_eq!(counter.line(clock, &served), None, "nothing has come since");
        counter.busy = 1;
        assert!(counter.line(clock, &served).is_some(), "a request is being answered");
        for other in ["", "served 3", "origin-counts 900 1 2 3 4 5 6 7", "origin-counts 2000 1 2"] {
            assert_eq!(read(other, 1_000), None, "{other}");
        }
    }
}

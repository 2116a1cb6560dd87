//! Every request of a cell: what is known of it, which of them wait, and what becomes of them when a connection fails.

use std::collections::VecDeque;
use std::time::Duration;

use h2lab_core::record::{Outcome, Sample};
use h2lab_core::trace::FrameEvent;
use h2lab_core::units::{Time, nanos};
use h2lab_core::wire::StreamId;

use crate::client::{Exchange, Fate};

/// A request without a connection.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    request: u32,
    since: Time,
}

/// The requests of a cell. A request's number is its place among the samples, which are in the order of `scheduled_at`;
/// with one timeout for all, the oldest unfinished request is also the first to time out.
#[derive(Debug)]
pub(super) struct Requests {
    samples: Vec<Sample>,
    waiting: VecDeque<Waiting>,
    /// All requests before this one are finished.
    oldest: usize,
    finished: usize,
    succeeded: u64,
    failed: u64,
    timeout: Duration,
    replays: u8,
    given_up: Outcome,
    /// Closed loop: when requests ended whose successors have not been made.
    ended: Option<Vec<Time>>,
    frames: Vec<FrameEvent>,
    /// Frames that found no room.
    frames_lost: u64,
    frame_limit: usize,
}

/// A request that has timed out on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expired {
    /// Its number.
    pub request: u32,
    /// The index of its connection.
    pub connection: u32,
    /// Its stream there.
    pub stream: StreamId,
}

/// What [`Requests`] needs to know of the work.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expectation {
    /// How many requests there will be, as far as that is known.
    pub requests: usize,
    /// After what time a request is given up.
    pub timeout: Duration,
    /// As what it is booked then.
    pub given_up: Outcome,
    /// How often a request may be sent again that was certainly not processed; with 0 nothing is sent again, ever.
    pub replays: u8,
    /// Whether each end of a request is the beginning of the next.
    pub closed_loop: bool,
}

impl Requests {
    /// Frames that are kept: 32 bytes each, so 128 MiB.
    const FRAME_LIMIT: usize = 4 << 20;
    /// Frames of a small exchange: HEADERS and DATA both ways, and a share of the connection's own.
    const FRAMES_PER_REQUEST: usize = 6;

    pub fn new(expectation: Expectation) -> Self {
        let frames = (expectation.requests * Self::FRAMES_PER_REQUEST).min(Self::FRAME_LIMIT);
        Self {
            samples: Vec::with_capacity(expectation.requests),
            waiting: VecDeque::with_capacity(1024),
            oldest: 0,
            finished: 0,
            succeeded: 0,
            failed: 0,
            timeout: expectation.timeout,
            replays: expectation.replays,
            given_up: expectation.given_up,
            ended: expectation.closed_loop.then(Vec::new),
            frames: Vec::with_capacity(frames),
            frames_lost: 0,
            frame_limit: Self::FRAME_LIMIT,
        }
    }

    /// A request is due; it waits for a connection from `now` on.
    pub fn add(&mut self, scheduled_at: Time, measured: bool, now: Time) {
        let request = self.samples.len() as u32;
        self.samples.push(Sample::due(scheduled_at, measured));
        self.waiting.push_back(Waiting { request, since: now });
    }

    /// The number of a request among all of the cell, see [`crate::client::Prepared`].
    #[expect(clippy::unused_self, reason = "a request's place among the samples is its number")]
    pub const fn number(&self, request: u32) -> u64 {
        request as u64
    }

    /// The newest request is of this kind.
    pub fn set_kind(&mut self, kind: u16) {
        if let Some(sample) = self.samples.last_mut() {
            sample.kind = kind;
        }
    }

    /// As what a request is booked that is given up.
    pub const fn given_up(&self) -> Outcome {
        self.given_up
    }

    /// Requests that were due so far.
    pub fn due(&self) -> usize {
        self.samples.len()
    }

    /// Requests that are not finished.
    pub fn outstanding(&self) -> usize {
        self.samples.len() - self.finished
    }

    /// Requests that wait for a connection.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Requests answered with 2xx or 3xx so far.
    pub const fn succeeded(&self) -> u64 {
        self.succeeded
    }

    /// Requests that failed so far.
    pub const fn failed(&self) -> u64 {
        self.failed
    }

    /// In closed loop the time at which a request ended whose successor has not been made.
    pub fn take_ended(&mut self) -> Option<Time> {
        self.ended.as_mut()?.pop()
    }

    /// The request that waits longest.
    pub fn next_waiting(&self) -> Option<u32> {
        self.waiting.front().map(|waiting| waiting.request)
    }

    /// The request that waited longest has got a connection and a stream at `now`.
    pub fn assigned(&mut self, now: Time, connection: u32, stream: StreamId) {
        if let Some(waiting) = self.waiting.pop_front() {
            let sample = &mut self.samples[waiting.request as usize];
            sample.stall_open_ns += nanos(now.since(waiting.since));
            sample.connection = connection;
            sample.stream = stream;
        }
    }

    /// When the next request times out.
    pub fn next_timeout(&mut self) -> Time {
        while self.samples.get(self.oldest).is_some_and(|sample| sample.completed_at.happened()) {
            self.oldest += 1;
        }
        self.samples.get(self.oldest).map_or(Time::NEVER, |sample| sample.scheduled_at + self.timeout)
    }

    /// A request that has timed out at `now` and must be cancelled on its connection and stream; those that wait for a
    /// connection are booked right here.
    pub fn next_expired(&mut self, now: Time) -> Option<Expired> {
        while self.next_timeout() <= now {
            let request = self.oldest as u32;
            let sample = &self.samples[self.oldest];
            if sample.connection != Sample::NO_CONNECTION {
                return Some(Expired { request, connection: sample.connection, stream: sample.stream });
            }
            let place = self.waiting.iter().position(|waiting| waiting.request == request);
            let waiting = place.and_then(|place| self.waiting.remove(place));
            self.leave_queue(waiting, now);
            self.finish(request, now, self.given_up, 0);
        }
        None
    }

    /// No connection can be made: all that wait for one have failed.
    pub fn fail_waiting(&mut self, now: Time, outcome: Outcome) {
        while let Some(waiting) = self.waiting.pop_front() {
            self.leave_queue(Some(waiting), now);
            self.finish(waiting.request, now, outcome, 0);
        }
    }

    /// The cell is cut at `now`: those that still wait are unfinished. Those on connections have been told already.
    pub fn cut(&mut self, now: Time) -> u64 {
        let backlog = self.waiting.len() as u64;
        self.fail_waiting(now, Outcome::Unfinished);
        backlog
    }

    /// The samples, the frames in the order of their time, and how many frames were lost.
    pub fn into_parts(mut self) -> (Vec<Sample>, Vec<FrameEvent>, u64) {
        self.frames.sort_by_key(|frame| frame.at);
        (self.samples, self.frames, self.frames_lost)
    }

    fn leave_queue(&mut self, waiting: Option<Waiting>, now: Time) {
        if let Some(waiting) = waiting {
            self.samples[waiting.request as usize].stall_open_ns += nanos(now.since(waiting.since));
        }
    }

    fn finish(&mut self, request: u32, at: Time, outcome: Outcome, code: u32) {
        let sample = &mut self.samples[request as usize];
        sample.completed_at = at;
        sample.outcome = outcome;
        sample.code = code;
        self.finished += 1;
        self.succeeded += u64::from(outcome.is_success());
        self.failed += u64::from(outcome.is_failure());
        if let Some(ended) = &mut self.ended {
            ended.push(at);
        }
    }

    /// Sends a request again, before all others, unless that has been done `limit` times.
    fn replay(&mut self, request: u32, at: Time, limit: u8, otherwise: Outcome) {
        let sample = &mut self.samples[request as usize];
        if sample.replays >= limit {
            self.finish(request, at, otherwise, 0);
            return;
        }
        sample.replays += 1;
        // What of a response had come is void. `sent_at` stays: the first attempt began the service time.
        sample.connection = Sample::NO_CONNECTION;
        sample.stream = StreamId::CONNECTION;
        sample.first_byte_at = Time::NEVER;
        sample.status = 0;
        sample.body_bytes = 0;
        self.waiting.push_front(Waiting { request, since: at });
    }
}

impl Exchange for Requests {
    fn sent(&mut self, request: u32, at: Time, waited: Duration) {
        let sample = &mut self.samples[request as usize];
        if !sample.sent_at.happened() {
            sample.stall_socket_ns = nanos(waited);
        }
        sample.sent_at = sample.sent_at.min(at);
    }

    fn head(&mut self, request: u32, at: Time, status: u16) {
        let sample = &mut self.samples[request as usize];
        sample.first_byte_at = at;
        sample.status = status;
    }

    fn body(&mut self, request: u32, bytes: u64) {
        self.samples[request as usize].body_bytes += bytes;
    }

    fn waited_for_window(&mut self, request: u32, time: Duration) {
        self.samples[request as usize].stall_window_ns += nanos(time);
    }

    fn ended(&mut self, request: u32, at: Time, fate: Fate) {
        match fate {
            Fate::Complete => {
                let succeeded = (200..400).contains(&self.samples[request as usize].status);
                self.finish(request, at, if succeeded { Outcome::Succeeded } else { Outcome::Status }, 0);
            }
            Fate::Unprocessed => self.replay(request, at, self.replays, Outcome::Refused),
            Fate::Unanswered { outcome } => self.replay(request, at, self.replays.min(1), outcome),
            Fate::Failed { outcome, code } => self.finish(request, at, outcome, code),
        }
    }

    fn frame(&mut self, event: FrameEvent) {
        if self.frames.len() < self.frame_limit {
            self.frames.push(event);
        } else {
            self.frames_lost += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE_SECOND: Duration = Duration::from_secs(1);

    fn requests(closed_loop: bool) -> Requests {
        let given_up = Outcome::Timeout;
        Requests::new(Expectation { requests: 8, timeout: ONE_SECOND, given_up, replays: 3, closed_loop })
    }

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    /// A request that was due at `ms` and got stream `2n + 1` of connection 0 at once.
    fn begun(requests: &mut Requests, ms: u64) -> u32 {
        let request = requests.due() as u32;
        requests.add(at(ms), true, at(ms));
        requests.assigned(at(ms), 0, StreamId::of_request(request));
        request
    }

    #[test]
    fn waiting_for_a_connection_or_the_socket_is_a_stall_and_not_lateness() {
        let mut requests = requests(false);
        requests.add(at(10), true, at(11)); // the generator was 1 ms late
        requests.assigned(at(31), 4, StreamId(9));
        requests.sent(0, at(82), Duration::from_millis(50)); // and took 1 ms to write
        let (samples, ..) = requests.into_parts();
        assert_eq!(samples[0].stall_open_ns, 20_000_000);
        assert_eq!(samples[0].stall_socket_ns, 50_000_000);
        assert_eq!(samples[0].lateness(), Some(Duration::from_millis(2)));
        assert_eq!((samples[0].connection, samples[0].stream), (4, StreamId(9)));
    }

    #[test]
    fn a_response_is_a_success_up_to_399() {
        let mut requests = requests(false);
        for (status, outcome) in
            [(200, Outcome::Succeeded), (399, Outcome::Succeeded), (400, Outcome::Status)]
        {
            let request = begun(&mut requests, 1);
            requests.head(request, at(2), status);
            requests.ended(request, at(3), Fate::Complete);
            assert_eq!(requests.samples[request as usize].outcome, outcome);
        }
        assert_eq!((requests.succeeded(), requests.failed(), requests.outstanding()), (2, 1, 0));
    }

    #[test]
    fn an_unprocessed_request_is_sent_again_three_times_and_then_refused() {
        let mut requests = requests(false);
        let request = begun(&mut requests, 0);
        requests.add(at(1), true, at(1));
        for replay in 1..=3 {
            requests.ended(request, at(10), Fate::Unprocessed);
            assert_eq!(requests.samples[0].replays, replay);
            assert_eq!(requests.next_waiting(), Some(request)); // before the younger one
            requests.assigned(at(10), 1, StreamId(1));
        }
        requests.ended(request, at(20), Fate::Unprocessed);
        assert_eq!((requests.samples[0].outcome, requests.samples[0].replays), (Outcome::Refused, 3));
    }

    #[test]
    fn an_unanswered_request_is_sent_again_once() {
        let fate = Fate::Unanswered { outcome: Outcome::GoAway };
        let mut get = requests(false);
        begun(&mut get, 0);
        get.ended(0, at(1), fate);
        assert_eq!(get.waiting(), 1);
        get.assigned(at(1), 1, StreamId(1));
        get.ended(0, at(2), fate);
        assert_eq!((get.waiting(), get.samples[0].outcome), (0, Outcome::GoAway));
    }

    #[test]
    fn nothing_is_sent_again_when_replays_are_off() {
        let expectation = Expectation {
            requests: 8,
            timeout: ONE_SECOND,
            replays: 0,
            given_up: Outcome::Timeout,
            closed_loop: false,
        };
        let mut requests = Requests::new(expectation);
        let fates = [Fate::Unprocessed, Fate::Unanswered { outcome: Outcome::Closed }];
        for (fate, outcome) in fates.into_iter().zip([Outcome::Refused, Outcome::Closed]) {
            let request = begun(&mut requests, 0);
            requests.ended(request, at(1), fate);
            let sample = &requests.samples[request as usize];
            assert_eq!((sample.outcome, sample.replays), (outcome, 0));
        }
        assert_eq!((requests.waiting(), requests.failed()), (0, 2));
    }

    #[test]
    fn requests_time_out_by_their_schedule_wherever_they_are() {
        let mut requests = requests(false);
        begun(&mut requests, 0);
        requests.add(at(1), true, at(1)); // waits
        begun_second(&mut requests);
        assert_eq!(requests.next_expired(at(999)), None);
        assert_eq!(requests.next_timeout(), at(1_000));
        assert_eq!(
            requests.next_expired(at(1_000)),
            Some(Expired { request: 0, connection: 0, stream: StreamId(1) })
        );
        requests.ended(0, at(1_000), Fate::Failed { outcome: Outcome::Timeout, code: 8 });
        assert_eq!(requests.next_expired(at(1_001)), None);
        let waited = requests.samples[1];
        assert_eq!((waited.outcome, waited.connection), (Outcome::Timeout, Sample::NO_CONNECTION));
        assert_eq!(waited.stall_open_ns, 1_000_000_000);
        assert_eq!(requests.next_timeout(), at(1_500));
    }

    /// A third request, answered never; due at 500 ms.
    fn begun_second(requests: &mut Requests) {
        requests.add(at(500), true, at(500));
    }

    #[test]
    fn a_closed_loop_owes_one_request_for_each_that_ended() {
        let mut requests = requests(true);
        begun(&mut requests, 0);
        assert_eq!(requests.take_ended(), None);
        requests.ended(0, at(7), Fate::Complete);
        assert_eq!((requests.take_ended(), requests.take_ended()), (Some(at(7)), None));
    }

    #[test]
    fn the_cut_books_what_waits_as_unfinished_with_its_age() {
        let mut requests = requests(false);
        requests.add(at(100), true, at(100));
        assert_eq!(requests.cut(at(400)), 1);
        assert_eq!(requests.samples[0].outcome, Outcome::Unfinished);
        assert_eq!(requests.samples[0].response_time(), Duration::from_millis(300));
        assert_eq!((requests.failed(), requests.outstanding()), (0, 0));
    }
}

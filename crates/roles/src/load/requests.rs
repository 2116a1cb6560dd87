//! The live requests of a cell: what is known of each, which of them wait, and what becomes of them when a connection
//! fails. Those that have ended are handed to the [`Recorder`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use h2lab_base::units::{Time, nanos};
use h2lab_model::record::{Histogram, Level, Outcome, Sample};
use h2lab_wire::trace::FrameEvent;
use h2lab_wire::{ResponseHead, StreamId};

use super::recorder::{Recorder, Recording};
use super::spec::SampleListener;
use crate::client::{RequestEnd, RequestObserver};

/// A request without a connection.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    request: u32,
    since: Time,
}

/// No request.
const NONE: u32 = u32::MAX;

/// A place for a live request, with its neighbours in the order in which they were made.
#[derive(Debug)]
struct Place {
    sample: Sample,
    /// Its number among all requests of the cell, see [`crate::client::Prepared`].
    number: u64,
    older: u32,
    newer: u32,
}

/// The requests of a cell that have not ended. A request's number is its index in a table with reused entries, so that memory
/// grows with the requests in flight and not with all. With one timeout for all, the oldest is also the first to time out: the
/// live ones are linked in the order in which they were made, which is that of `scheduled_at`.
#[derive(Debug)]
pub(super) struct Requests {
    expectation: Expectation,
    live: Vec<Place>,
    /// Places that are not in use.
    free: Vec<u32>,
    oldest: u32,
    newest: u32,
    waiting: VecDeque<Waiting>,
    due: u64,
    finished: u64,
    succeeded: u64,
    failed: u64,
    /// When the last request ended.
    last_end: Time,
    /// Closed loop: when requests ended whose successors have not been made, but for so many at its front.
    ended: Option<(Vec<Time>, usize)>,
    recorder: Recorder,
    frames: Vec<FrameEvent>,
    /// Frames that found no room.
    frames_lost: u64,
    frame_limit: usize,
    /// The listener that is notified of each request that ends, and the number of our thread.
    listener: Option<(u32, Arc<dyn SampleListener>)>,
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
    /// What is kept of them.
    pub recording: Recording,
    /// Which part of the cell's requests these are, from 0, and of how many, over all shares: parts take turns in their numbers.
    pub part: (u32, u32),
    /// After what time a request is given up.
    pub timeout: Duration,
    /// As what it is recorded then.
    pub given_up: Outcome,
    /// How often a request may be sent again that was certainly not processed; with 0 nothing is sent again, ever.
    pub replays: u8,
    /// Whether each end of a request is the beginning of the next.
    pub closed_loop: bool,
}

impl Requests {
    /// Frames that are kept, over all threads: 32 bytes each, so 128 MiB.
    const FRAME_LIMIT: usize = 4 << 20;
    /// Frames of a small exchange: HEADERS and DATA both ways, and a share of the connection's own.
    const FRAMES_PER_REQUEST: usize = 6;

    pub fn new(expectation: Expectation) -> Self {
        let frame_limit = Self::FRAME_LIMIT / expectation.recording.threads.max(1) as usize;
        let frames = (expectation.requests * Self::FRAMES_PER_REQUEST).min(frame_limit);
        Self {
            live: Vec::with_capacity(1024),
            free: Vec::with_capacity(1024),
            oldest: NONE,
            newest: NONE,
            waiting: VecDeque::with_capacity(1024),
            due: 0,
            finished: 0,
            succeeded: 0,
            failed: 0,
            last_end: Time::ZERO,
            ended: expectation.closed_loop.then(Default::default),
            recorder: Recorder::new(expectation.recording, expectation.requests),
            frames: Vec::with_capacity(frames),
            frames_lost: 0,
            frame_limit,
            listener: None,
            expectation,
        }
    }

    /// Has each request that ends reported to `listener`, as one of thread `thread` of this process.
    pub fn listen(&mut self, thread: u32, listener: Arc<dyn SampleListener>) {
        self.listener = Some((thread, listener));
    }

    /// Whether there is a listener.
    pub const fn is_heard(&self) -> bool {
        self.listener.is_some()
    }

    /// Reports to the listener that connections have moved so many more bytes.
    pub fn moved(&self, bytes: u64) {
        if let Some((_, listener)) = &self.listener {
            listener.moved(bytes);
        }
    }

    /// The cell begins at `start`.
    pub fn begin(&mut self, start: Time) {
        self.recorder.begin(start);
    }

    /// A request is due; it waits for a connection from `now` on.
    pub fn add(&mut self, scheduled_at: Time, measured: bool, kind: u16, now: Time) {
        let number = self.next_number();
        let sample = Sample { number: number as u32, kind, ..Sample::due(scheduled_at, measured) };
        let place = Place { sample, number, older: self.newest, newer: NONE };
        let request = match self.free.pop() {
            Some(request) => {
                self.live[request as usize] = place;
                request
            }
            None => {
                self.live.push(place);
                self.live.len() as u32 - 1
            }
        };
        match self.newest {
            NONE => self.oldest = request,
            newest => self.live[newest as usize].newer = request,
        }
        self.newest = request;
        self.due += 1;
        self.waiting.push_back(Waiting { request, since: now });
    }

    /// The number of the request that is made next, among all of the cell.
    pub const fn next_number(&self) -> u64 {
        self.expectation.part.0 as u64 + self.due * self.expectation.part.1 as u64
    }

    /// The number of a request among all of the cell, see [`crate::client::Prepared`].
    pub fn number(&self, request: u32) -> u64 {
        self.live[request as usize].number
    }

    /// As what a request is recorded that is given up.
    pub const fn given_up(&self) -> Outcome {
        self.expectation.given_up
    }

    /// Requests that were due so far.
    pub const fn due(&self) -> u64 {
        self.due
    }

    /// Requests that are not finished.
    pub const fn outstanding(&self) -> u64 {
        self.due - self.finished
    }

    /// When the last request ended that has: no clock is read for it.
    pub const fn last_end(&self) -> Time {
        self.last_end
    }

    /// Has the recorder process the recent requests, see [`Recorder::look`]. Once not every request is kept, frames are not
    /// either.
    pub fn look(&mut self, now: Time) -> Histogram {
        let recent = self.recorder.look(now);
        if self.recorder.level() != Level::Full {
            self.frame_limit = self.frames.len();
        }
        recent
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

    /// In closed loop the time at which the request ended that ended first among those whose successors have not been made.
    pub fn take_ended(&mut self) -> Option<Time> {
        let (ended, taken) = self.ended.as_mut()?;
        let Some(&first) = ended.get(*taken) else {
            (*ended).clear();
            *taken = 0;
            return None;
        };
        *taken += 1;
        Some(first)
    }

    /// The request that waits longest.
    pub fn next_waiting(&self) -> Option<u32> {
        self.waiting.front().map(|waiting| waiting.request)
    }

    /// The request that waited longest has got a connection and a stream at `now`.
    pub fn assigned(&mut self, now: Time, connection: u32, stream: StreamId) {
        if let Some(waiting) = self.waiting.pop_front() {
            let sample = self.sample(waiting.request);
            sample.stall_open_ns += now.nanos_since(waiting.since);
            sample.connection = connection;
            sample.stream = stream;
        }
    }

    /// When the next request times out.
    pub fn next_timeout(&self) -> Time {
        let oldest = self.live.get(self.oldest as usize);
        oldest.map_or(Time::NEVER, |place| place.sample.scheduled_at + self.expectation.timeout)
    }

    /// A request that has timed out at `now` and must be cancelled on its connection and stream; those that wait for a
    /// connection are recorded right here.
    pub fn next_expired(&mut self, now: Time) -> Option<Expired> {
        while self.next_timeout() <= now {
            let request = self.oldest;
            let sample = self.sample(request);
            if sample.connection != Sample::NO_CONNECTION {
                return Some(Expired { request, connection: sample.connection, stream: sample.stream });
            }
            let place = self.waiting.iter().position(|waiting| waiting.request == request);
            let waiting = place.and_then(|place| self.waiting.remove(place));
            self.leave_queue(waiting, now);
            self.finish(request, now, self.expectation.given_up, 0);
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

    /// The cell is cut at `now`: those that still wait are unfinished. Those on connections have been reported already.
    pub fn cut(&mut self, now: Time) -> u64 {
        let backlog = self.waiting.len() as u64;
        self.fail_waiting(now, Outcome::Unfinished);
        backlog
    }

    /// The recorder, the frames in no order, and how many frames were lost.
    pub fn into_parts(self) -> (Recorder, Vec<FrameEvent>, u64) {
        (self.recorder, self.frames, self.frames_lost)
    }

    fn sample(&mut self, request: u32) -> &mut Sample {
        &mut self.live[request as usize].sample
    }

    fn leave_queue(&mut self, waiting: Option<Waiting>, now: Time) {
        if let Some(waiting) = waiting {
            self.sample(waiting.request).stall_open_ns += now.nanos_since(waiting.since);
        }
    }

    fn finish(&mut self, request: u32, at: Time, outcome: Outcome, code: u32) {
        let place = &mut self.live[request as usize];
        let (older, newer) = (place.older, place.newer);
        place.sample.completed_at = at;
        place.sample.outcome = outcome;
        place.sample.code = code;
        self.recorder.record(&place.sample);
        if let Some((thread, listener)) = &self.listener {
            listener.ended(*thread, &place.sample);
        }
        match older {
            NONE => self.oldest = newer,
            older => self.live[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.live[newer as usize].older = older,
        }
        self.free.push(request);
        self.finished += 1;
        self.last_end = at;
        self.succeeded += u64::from(outcome.is_success());
        self.failed += u64::from(outcome.is_failure());
        if let Some((ended, _)) = &mut self.ended {
            ended.push(at);
        }
    }

    /// Sends a request again, before all others, unless that has been done `limit` times.
    fn replay(&mut self, request: u32, at: Time, limit: u8, otherwise: Outcome) {
        let sample = self.sample(request);
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

impl RequestObserver for Requests {
    fn sent(&mut self, request: u32, at: Time, waited: Duration) {
        let sample = self.sample(request);
        if !sample.sent_at.happened() {
            sample.stall_socket_ns = nanos(waited);
        }
        sample.sent_at = sample.sent_at.min(at);
    }

    fn head(&mut self, request: u32, at: Time, head: &ResponseHead<'_>) {
        let sample = self.sample(request);
        sample.first_byte_at = at;
        sample.status = head.status;
    }

    fn body(&mut self, request: u32, data: &[u8]) {
        self.sample(request).body_bytes += data.len() as u64;
    }

    fn waited_for_window(&mut self, request: u32, time: Duration) {
        self.sample(request).stall_window_ns += nanos(time);
    }

    fn ended(&mut self, request: u32, at: Time, fate: RequestEnd) {
        match fate {
            RequestEnd::Complete => {
                let succeeded = (200..400).contains(&self.sample(request).status);
                self.finish(request, at, if succeeded { Outcome::Succeeded } else { Outcome::Status }, 0);
            }
            RequestEnd::Unprocessed => self.replay(request, at, self.expectation.replays, Outcome::Refused),
            RequestEnd::Unanswered { outcome, may_have_arrived: false } => {
                self.replay(request, at, self.expectation.replays, outcome);
            }
            RequestEnd::Unanswered { outcome, .. } => self.finish(request, at, outcome, 0),
            RequestEnd::Failed { outcome, code } => self.finish(request, at, outcome, code),
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
    use h2lab_model::workload::Phases;
    use h2lab_wire::Fields;

    use super::*;

    const ONE_SECOND: Duration = Duration::from_secs(1);
    const PHASES: Phases = Phases { warmup: Duration::ZERO, measure: ONE_SECOND, drain: ONE_SECOND };
    const RECORDING: Recording = Recording { level: Some(Level::Full), threads: 1, seed: 1, phases: PHASES };

    fn requests(closed_loop: bool) -> Requests {
        Requests::new(Expectation {
            requests: 8,
            recording: RECORDING,
            part: (0, 1),
            timeout: ONE_SECOND,
            given_up: Outcome::Timeout,
            replays: 3,
            closed_loop,
        })
    }

    /// What the requests have become that have ended, in the order in which they did.
    fn ended(requests: Requests) -> Vec<Sample> {
        requests.into_parts().0.finish(Level::Full, 0).0
    }

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    /// A request that was due at `ms` and got stream `2n + 1` of connection 0 at once.
    fn begun(requests: &mut Requests, ms: u64) -> u32 {
        let stream = StreamId::of_request(requests.due() as u32);
        requests.add(at(ms), true, 0, at(ms));
        let request = requests.newest;
        requests.assigned(at(ms), 0, stream);
        request
    }

    #[test]
    fn waiting_for_a_connection_or_the_socket_is_a_stall_and_not_lateness() {
        let mut requests = requests(false);
        requests.add(at(10), true, 0, at(11)); // the generator was 1 ms late
        requests.assigned(at(31), 4, StreamId(9));
        requests.sent(0, at(82), Duration::from_millis(50)); // and took 1 ms to write
        requests.ended(0, at(90), RequestEnd::Complete);
        let samples = ended(requests);
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
            requests.head(
                request,
                at(2),
                &ResponseHead { status, is_http10: false, fields: Fields::default() },
            );
            requests.ended(request, at(3), RequestEnd::Complete);
            assert_eq!(requests.live[request as usize].sample.outcome, outcome);
        }
        assert_eq!((requests.succeeded(), requests.failed(), requests.outstanding()), (2, 1, 0));
    }

    #[test]
    fn an_unprocessed_request_is_sent_again_three_times_and_then_refused() {
        let mut requests = requests(false);
        let request = begun(&mut requests, 0);
        requests.add(at(1), true, 0, at(1));
        for replay in 1..=3 {
            requests.ended(request, at(10), RequestEnd::Unprocessed);
            assert_eq!(requests.sample(0).replays, replay);
            assert_eq!(requests.next_waiting(), Some(request)); // before the younger one
            requests.assigned(at(10), 1, StreamId(1));
        }
        requests.ended(request, at(20), RequestEnd::Unprocessed);
        let refused = ended(requests)[0];
        assert_eq!((refused.outcome, refused.replays), (Outcome::Refused, 3));
    }

    #[test]
    fn an_unanswered_request_is_sent_again_only_if_it_never_arrived() {
        let fate = |may_have_arrived| RequestEnd::Unanswered { outcome: Outcome::Closed, may_have_arrived };
        let mut requests = requests(false);
        begun(&mut requests, 0);
        requests.ended(0, at(1), fate(false));
        assert_eq!(requests.waiting(), 1);
        requests.next_waiting();
        requests.assigned(at(1), 1, StreamId(1));
        requests.ended(0, at(2), fate(true));
        let sample = ended(requests)[0];
        assert_eq!((sample.outcome, sample.replays), (Outcome::Closed, 1));
    }

    #[test]
    fn nothing_is_sent_again_when_replays_are_off() {
        let expectation = Expectation {
            requests: 8,
            recording: RECORDING,
            part: (0, 1),
            timeout: ONE_SECOND,
            replays: 0,
            given_up: Outcome::Timeout,
            closed_loop: false,
        };
        let mut requests = Requests::new(expectation);
        let unanswered = RequestEnd::Unanswered { outcome: Outcome::Closed, may_have_arrived: false };
        let fates = [RequestEnd::Unprocessed, unanswered];
        for (fate, outcome) in fates.into_iter().zip([Outcome::Refused, Outcome::Closed]) {
            let request = begun(&mut requests, 0);
            requests.ended(request, at(1), fate);
            let sample = requests.sample(request);
            assert_eq!((sample.outcome, sample.replays), (outcome, 0));
        }
        assert_eq!((requests.waiting(), requests.failed()), (0, 2));
    }

    #[test]
    fn requests_time_out_by_their_schedule_wherever_they_are() {
        let mut requests = requests(false);
        begun(&mut requests, 0);
        requests.add(at(1), true, 0, at(1)); // waits
        begun_second(&mut requests);
        assert_eq!(requests.next_expired(at(999)), None);
        assert_eq!(requests.next_timeout(), at(1_000));
        assert_eq!(
            requests.next_expired(at(1_000)),
            Some(Expired { request: 0, connection: 0, stream: StreamId(1) })
        );
        requests.ended(0, at(1_000), RequestEnd::Failed { outcome: Outcome::Timeout, code: 8 });
        assert_eq!(requests.next_expired(at(1_001)), None);
        assert_eq!(requests.next_timeout(), at(1_500));
        let waited = ended(requests)[1];
        assert_eq!((waited.outcome, waited.connection), (Outcome::Timeout, Sample::NO_CONNECTION));
        assert_eq!(waited.stall_open_ns, 1_000_000_000);
    }

    /// A third request, answered never; due at 500 ms.
    fn begun_second(requests: &mut Requests) {
        requests.add(at(500), true, 0, at(500));
    }

    #[test]
    fn a_closed_loop_owes_one_request_for_each_that_ended() {
        let mut requests = requests(true);
        begun(&mut requests, 0);
        assert_eq!(requests.take_ended(), None);
        requests.ended(0, at(7), RequestEnd::Complete);
        assert_eq!((requests.take_ended(), requests.take_ended()), (Some(at(7)), None));
        let two = [begun(&mut requests, 7), begun(&mut requests, 7)];
        for (request, ms) in two.into_iter().zip([8, 9]) {
            requests.ended(request, at(ms), RequestEnd::Complete);
        }
        let in_order = [requests.take_ended(), requests.take_ended()];
        assert_eq!(
            in_order,
            [Some(at(8)), Some(at(9))],
            "the next ones are made in the order in which they are due"
        );
    }

    #[test]
    fn the_cut_records_what_waits_as_unfinished_with_its_age() {
        let mut requests = requests(false);
        requests.add(at(100), true, 0, at(100));
        assert_eq!(requests.cut(at(400)), 1);
        assert_eq!((requests.failed(), requests.outstanding()), (0, 0));
        let cut = ended(requests)[0];
        assert_eq!(cut.outcome, Outcome::Unfinished);
        assert_eq!(cut.response_time(), Duration::from_millis(300));
    }

    #[test]
    fn places_are_used_again_and_the_oldest_live_request_times_out_first() {
        let mut requests = requests(false);
        for round in 0..1_000 {
            for ms in 0..3 {
                begun(&mut requests, round * 10 + ms);
            }
            let oldest = requests.oldest;
            let second = requests.live[oldest as usize].newer;
            requests.ended(second, at(round * 10 + 5), RequestEnd::Complete);
            assert_eq!(requests.next_timeout(), at(round * 10 + 1_000));
            requests.ended(oldest, at(round * 10 + 6), RequestEnd::Complete);
            assert_eq!(requests.next_timeout(), at(round * 10 + 1_002));
            requests.ended(requests.newest, at(round * 10 + 7), RequestEnd::Complete);
            assert_eq!(requests.next_timeout(), Time::NEVER);
        }
        assert_eq!((requests.live.len(), requests.due(), requests.outstanding()), (3, 3_000, 0));
        assert_eq!(ended(requests).len(), 3_000);
    }
}

//! Every request of a repetition: when it was due, whether it waits, how it ended. The rules are those of the generator.

use std::collections::VecDeque;
use std::time::Duration;

use h2lab_base::units::{Time, nanos};
use h2lab_model::record::{Outcome, Sample};

/// How often an unprocessed request is replayed.
const MAX_REPLAYS: u8 = 3;

/// How a request ended on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Its response is complete.
    Complete,
    /// It was certainly not processed, and may be sent again (RFC 9113 §8.7).
    Unprocessed,
    /// It failed; with the HTTP/2 error code, or 0. A possibly processed request is never replayed here.
    Failed(Outcome, u32),
}

/// The requests in the order in which they were due.
#[derive(Debug)]
pub struct Requests {
    samples: Vec<Sample>,
    /// Requests without a connection, and since when.
    waiting: VecDeque<(usize, Time)>,
    finished: usize,
    /// All requests before this one are finished.
    oldest: usize,
    timeout: Duration,
    /// In a closed loop: when requests ended whose successors have not been made.
    ended: Option<Vec<Time>>,
}

impl Requests {
    /// No requests yet; each is given up after `timeout`. In a closed loop the end of each is the beginning of another.
    pub fn new(timeout: Duration, closed_loop: bool) -> Self {
        Self {
            samples: Vec::new(),
            waiting: VecDeque::new(),
            finished: 0,
            oldest: 0,
            timeout,
            ended: closed_loop.then(Vec::new),
        }
    }

    /// A request is due at `at`.
    pub fn add(&mut self, at: Time, measured: bool) {
        self.waiting.push_back((self.samples.len(), at));
        self.samples.push(Sample::due(at, measured));
    }

    /// Requests that wait for a connection.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Requests that have not ended.
    pub fn outstanding(&self) -> usize {
        self.samples.len() - self.finished
    }

    /// The end of a request whose successor has not been made.
    pub fn take_ended(&mut self) -> Option<Time> {
        self.ended.as_mut()?.pop()
    }

    /// Takes the request that has waited longest, with its sample so far.
    pub fn next_waiting(&mut self, now: Time) -> Option<(usize, Sample)> {
        let (request, since) = self.waiting.pop_front()?;
        let sample = &mut self.samples[request];
        sample.stall_open_ns += nanos(now.since(since));
        Some((request, *sample))
    }

    /// Puts a request back that no connection took.
    pub fn put_back(&mut self, now: Time, request: usize) {
        self.waiting.push_front((request, now));
    }

    /// When the oldest unfinished request is given up.
    pub fn next_timeout(&mut self) -> Time {
        while self.samples.get(self.oldest).is_some_and(|sample| sample.completed_at.happened()) {
            self.oldest += 1;
        }
        self.samples.get(self.oldest).map_or(Time::NEVER, |sample| sample.scheduled_at + self.timeout)
    }

    /// The oldest request if it has timed out and a connection carries it; one that still waits is ended here.
    pub fn next_expired(&mut self, now: Time) -> Option<usize> {
        while self.next_timeout() <= now {
            let request = self.oldest;
            let Some(place) = self.waiting.iter().position(|(waiting, _)| *waiting == request) else {
                return Some(request);
            };
            self.waiting.remove(place);
            self.finish(request, now, Outcome::Timeout, 0);
        }
        None
    }

    /// A request has ended on its connection, which reports its fate.
    pub fn ended(&mut self, now: Time, request: usize, sample: Sample, fate: Fate) {
        self.samples[request] = sample;
        match fate {
            Fate::Complete if (200..400).contains(&sample.status) => {
                self.finish(request, now, Outcome::Succeeded, 0);
            }
            Fate::Complete => self.finish(request, now, Outcome::Status, 0),
            Fate::Failed(outcome, code) => self.finish(request, now, outcome, code),
            Fate::Unprocessed if sample.replays >= MAX_REPLAYS => {
                self.finish(request, now, Outcome::Refused, 0);
            }
            Fate::Unprocessed => {
                // `sent_at` stays: the first attempt began the service time.
                let fresh = Sample::due(sample.scheduled_at, sample.measured);
                self.samples[request] = Sample {
                    replays: sample.replays + 1,
                    sent_at: sample.sent_at,
                    stall_open_ns: sample.stall_open_ns,
                    stall_socket_ns: sample.stall_socket_ns,
                    stall_window_ns: sample.stall_window_ns,
                    ..fresh
                };
                self.waiting.push_front((request, now));
            }
        }
    }

    /// Records requests that still wait as unfinished, and returns their number.
    pub fn cut(&mut self, now: Time) -> u64 {
        let backlog = self.waiting.len() as u64;
        while let Some((request, sample)) = self.next_waiting(now) {
            self.ended(now, request, sample, Fate::Failed(Outcome::Unfinished, 0));
        }
        backlog
    }

    /// The samples in the order in which they were due.
    pub fn into_samples(self) -> Vec<Sample> {
        self.samples
    }

    fn finish(&mut self, request: usize, now: Time, outcome: Outcome, code: u32) {
        let sample = &mut self.samples[request];
        assert!(!sample.completed_at.happened(), "request {request} ended twice: {sample:?}, now {outcome}");
        (sample.completed_at, sample.outcome, sample.code) = (now, outcome, code);
        self.finished += 1;
        if let Some(ended) = &mut self.ended {
            ended.push(now);
        }
    }
}

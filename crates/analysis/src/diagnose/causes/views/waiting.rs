//! Requests that waited for a connection or a stream, and for how long.

use std::time::Duration;

use super::mean;
use crate::diagnose::Evidence;
use h2lab_base::counts::plural;
use h2lab_base::units::{measured_time, millis_f64};

/// Requests that waited.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::diagnose::causes) struct Waiting {
    /// How many.
    pub requests: u64,
    /// How long, all together.
    pub time: Duration,
}

impl Waiting {
    /// Adds what a request waited; zero if it did not wait.
    pub fn add(&mut self, wait: Duration) {
        self.requests += u64::from(!wait.is_zero());
        self.time += wait;
    }

    /// How long each of them waited on average.
    pub fn each(&self) -> Duration {
        mean(self.time, self.requests)
    }

    /// `6 requests waited 25 ms each`.
    pub fn words(&self) -> String {
        format!("{} waited {} each", plural(self.requests, "request"), measured_time(self.each()))
    }

    /// Their number, which is that of `what`, and their time.
    pub fn evidence(&self, what: &str) -> Vec<Evidence> {
        let time = ("their waiting time", millis_f64(self.time), "ms");
        Evidence::list([(what, self.requests as f64, "requests"), time])
    }
}

impl FromIterator<Duration> for Waiting {
    fn from_iter<I: IntoIterator<Item = Duration>>(waits: I) -> Self {
        let mut waiting = Self::default();
        waits.into_iter().for_each(|wait| waiting.add(wait));
        waiting
    }
}

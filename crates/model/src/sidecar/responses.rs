//! What an instance answers.

use serde::{Deserialize, Serialize};

/// Responses of an instance, counted by status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Responses {
    /// By class of the status, from 1xx (101) to 5xx.
    pub classes: [u64; 5],
    /// Responses that failed only by `grpc-status`: UNKNOWN, INTERNAL, UNAVAILABLE, `DATA_LOSS`.
    pub grpc_failed: u64,
}

impl Responses {
    /// Counts a response with this status of HTTP.
    pub fn record(&mut self, status: u16) {
        let class = usize::from(status / 100).wrapping_sub(1);
        if let Some(count) = self.classes.get_mut(class) {
            *count += 1;
        }
    }

    /// Adds those of another thread, or of another time.
    pub fn add(&mut self, other: &Self) {
        self.classes.iter_mut().zip(&other.classes).for_each(|(own, other)| *own += other);
        self.grpc_failed += other.grpc_failed;
    }

    /// All of them.
    pub fn n(&self) -> u64 {
        self.classes.iter().sum()
    }

    /// Those with 5xx, and those that gRPC calls a failure.
    pub const fn failed(&self) -> u64 {
        self.classes[4] + self.grpc_failed
    }

    /// The part of them that failed, 0 to 1; 0 where there are none.
    pub fn failing(&self) -> f64 {
        self.failed() as f64 / self.n().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_counted_by_class() {
        let mut responses = Responses { grpc_failed: 1, ..Responses::default() };
        for status in [0, 99, 101, 200, 204, 301, 404, 500, 599, 600] {
            responses.record(status);
        }
        assert_eq!((responses.classes, responses.n(), responses.failed()), ([1, 2, 1, 1, 2], 7, 3));
        let mut both = responses;
        both.add(&responses);
        assert_eq!((both.n(), both.grpc_failed), (14, 2));
        assert!((both.failing() - 3.0 / 7.0).abs() < 1e-9 && Responses::default().failing() == 0.0);
    }
}

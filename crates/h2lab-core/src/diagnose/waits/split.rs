//! The time of a cell's tail, split by cause.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::story::{Cause, Kind, Repair, Story};
use crate::units::nanos;

/// What one kind of cause took of a tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Part {
    /// Time that was spent on it, over all requests of the tail, in nanoseconds.
    pub time_ns: u64,
    /// Requests of which it is the dominant cause.
    pub requests: u64,
}

/// The time of all requests of a tail, by cause.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Split {
    /// What each kind took; kinds that took nothing are not here.
    pub parts: BTreeMap<Kind, Part>,
    /// Of the time that waited for lost segments, named or not, how much each way to repair them took, in nanoseconds.
    pub repairs_ns: BTreeMap<Repair, u64>,
    /// The time of all, in nanoseconds: the sum of the parts.
    pub total_ns: u64,
    /// Requests in the tail.
    pub requests: u64,
}

impl Split {
    /// Adds a request.
    pub fn add(&mut self, story: &Story) {
        self.requests += 1;
        self.parts.entry(story.dominant).or_default().requests += 1;
        for interval in &story.intervals {
            let time = nanos(interval.length());
            self.total_ns += time;
            self.parts.entry(interval.cause.kind()).or_default().time_ns += time;
            if let Cause::Loss { repair, .. } = interval.cause {
                *self.repairs_ns.entry(repair).or_default() += time;
            }
        }
    }

    /// Adds the tail of another visit to the same cell.
    pub fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.total_ns += other.total_ns;
        for (kind, part) in &other.parts {
            let sum = self.parts.entry(*kind).or_default();
            sum.time_ns += part.time_ns;
            sum.requests += part.requests;
        }
        for (repair, time) in &other.repairs_ns {
            *self.repairs_ns.entry(*repair).or_default() += time;
        }
    }

    /// The share of the tail's time that a kind took; 0 of an empty tail.
    pub fn share(&self, kind: Kind) -> f64 {
        let time = self.parts.get(&kind).map_or(0, |part| part.time_ns);
        if self.total_ns == 0 { 0.0 } else { time as f64 / self.total_ns as f64 }
    }

    /// The time of one kind.
    pub fn time(&self, kind: Kind) -> Duration {
        Duration::from_nanos(self.parts.get(&kind).map_or(0, |part| part.time_ns))
    }
}

impl<'a> FromIterator<&'a Story> for Split {
    fn from_iter<I: IntoIterator<Item = &'a Story>>(stories: I) -> Self {
        let mut split = Self::default();
        stories.into_iter().for_each(|story| split.add(story));
        split
    }
}

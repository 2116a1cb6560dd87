//! What the record of a load keeps of the agents that made it: one [`ShareSummary`] for each share.
//!
//! The figures of the load are those of the merged shares. Here is what merging hides: which agent was late, how far
//! the clocks were known, and which share is missing.

use h2lab_base::JsonSchema;
use h2lab_base::text::made_printable;
use serde::{Deserialize, Serialize};

use super::{GeneratorSummary, HostId};

/// One agent's share of a load. Times are those of the driver's clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShareSummary {
    /// The agent's name.
    pub agent: String,
    /// Its kernel and machine; null if it never said so.
    pub machine: Option<String>,
    /// Which machine that is: the boot ID of its kernel. Empty if it is not known.
    #[serde(default)]
    #[schemars(with = "String")]
    pub host: HostId,
    /// Its version of h2lab; null if it never said so.
    pub version: Option<String>,
    /// How its clock was related to the driver's; null if that was not measured, and of a lost one.
    pub clock: Option<ShareClock>,
    /// Which share it had, from 0 on.
    pub number: u32,
    /// Into how many shares the load was divided.
    pub of: u32,
    /// Requests that were due at it in the measured time; null of a lost one.
    pub due: Option<u64>,
    /// How late it sent its measured requests; null of a lost one.
    pub late: Option<ShareLateness>,
    /// How its generator did; null of a lost one.
    pub generator: Option<GeneratorSummary>,
    /// How late its first request was sent, counted from the common instant, in nanoseconds; null if that is not known.
    pub start_late_ns: Option<u64>,
    /// Of that, for how long after the common instant its schedule began, in nanoseconds: 0 unless its agent heard of
    /// the instant too late. Null if that is not known.
    pub schedule_late_ns: Option<u64>,
    /// Why its figures are missing; null if they are there.
    pub lost: Option<LostShare>,
    /// Why its own figures must not be believed, in sentences, judged before they were merged with those of others:
    /// among many agents the lateness of one would not be seen.
    pub doubts: Vec<String>,
}

/// How the monotonic clock of an agent's machine was related to that of the driver's. On one machine they are one, unless a time
/// namespace is between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShareClock {
    /// By how much the agent's clock is ahead of the driver's, in nanoseconds; negative if it is behind.
    pub offset_ns: i64,
    /// The largest possible error of that, in nanoseconds.
    pub uncertainty_ns: u64,
}

/// How late requests were sent, in nanoseconds after they were due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ShareLateness {
    /// Half of them were no later.
    pub p50_ns: u64,
    /// 99 % of them were no later.
    pub p99_ns: u64,
    /// None was later.
    pub max_ns: u64,
}

/// A share whose figures are missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LostShare {
    /// Why, in words.
    pub why: String,
    /// What the agent reported last while it was under way; null if it reported nothing.
    pub progress: Option<LastProgress>,
}

/// How far a lost share was when its agent reported for the last time, counted from the beginning of the warm-up on. None of these
/// requests is in the figures of the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LastProgress {
    /// Since its first request was due, in nanoseconds.
    pub elapsed_ns: u64,
    /// Requests that were due.
    #[serde(default)]
    pub due: u64,
    /// Requests that had been answered with 2xx or 3xx.
    pub succeeded: u64,
    /// Requests that had failed.
    pub failed: u64,
}

impl ShareSummary {
    /// A share of which nothing is known yet.
    pub fn new(agent: &str, number: u32, of: u32) -> Self {
        Self {
            agent: made_printable(agent).into_owned(),
            machine: None,
            host: HostId::default(),
            version: None,
            clock: None,
            number,
            of,
            due: None,
            late: None,
            generator: None,
            start_late_ns: None,
            schedule_late_ns: None,
            lost: None,
            doubts: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_reads_back_as_it_was_whole_or_lost() {
        let whole = ShareSummary {
            machine: Some("Linux 6.12, 8 CPUs".to_owned()),
            host: HostId::new("x"),
            clock: Some(ShareClock { offset_ns: -5, uncertainty_ns: 7 }),
            due: Some(60_000),
            late: Some(ShareLateness::default()),
            generator: Some(GeneratorSummary::default()),
            start_late_ns: Some(0),
            ..ShareSummary::new("kek-1", 0, 3)
        };
        let progress = Some(LastProgress { elapsed_ns: 1, due: 6, succeeded: 2, failed: 3 });
        let lost = ShareSummary {
            lost: Some(LostShare { why: "it was silent for 60s".to_owned(), progress }),
            ..ShareSummary::new("kek-2", 1, 3)
        };
        for share in [whole, lost] {
            let text = serde_json::to_string(&share).unwrap();
            assert_eq!(serde_json::from_str::<ShareSummary>(&text).unwrap(), share);
        }
    }

    #[test]
    fn what_was_not_measured_of_a_share_is_null_and_no_zero() {
        let stored = serde_json::to_value(ShareSummary::new("kek-1", 0, 2)).unwrap();
        for name in ["due", "late", "generator", "clock"] {
            assert!(stored[name].is_null(), "{name}: {stored}");
        }
    }

    #[test]
    fn a_name_that_is_shown_is_printable() {
        assert!(!ShareSummary::new("a\x1b[2J", 0, 1).agent.contains('\x1b'));
    }
}

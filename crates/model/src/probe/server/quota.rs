//! After how many requests a connection ends, from sequential requests.

use crate::probe::{Bound, Severity, Verdict};
use h2lab_base::counts::{noun_of, plural};

/// From here on a quota costs little.
const LARGE_QUOTA: u64 = 10_000;

/// Why a sequence of requests ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The server ended the connection gracefully. `declared` is the number of processed requests that it declared, if any.
    Ended {
        /// The way it ended, as text.
        how: String,
        /// From the last stream of its last GOAWAY.
        declared: Option<u64>,
    },
    /// A request was not answered, or the connection ended for an error: that is no quota.
    Failed(String),
    /// The largest number that is ever tried was sent.
    Range,
    /// The budget ended; why, and what allows more.
    Budget(String),
}

/// Sequential requests on one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SequentialRequests {
    /// How many were answered.
    pub answered: u64,
    /// Why there were no more.
    pub stop: Stop,
}

impl SequentialRequests {
    /// The number after which the connection ended: between these two. `None` if it did not end gracefully.
    pub fn end(&self) -> Option<(u64, u64)> {
        let Stop::Ended { declared, .. } = self.stop else { return None };
        let declared = declared.unwrap_or(self.answered);
        Some((declared.min(self.answered), declared.max(self.answered)))
    }
}

/// The quota by two connections, the verdict, its severity, and a sentence. Over HTTP/1.1 (`is_shared` false) a
/// quota costs one connection of many and is no defect.
pub fn quota(
    first: &SequentialRequests,
    second: Option<&SequentialRequests>,
    is_shared: bool,
) -> (Bound, Verdict, Severity, String) {
    let at_least = |why: &str| Bound::between(Some(first.answered), None, "requests", why);
    let undecided = |bound, summary: String| (bound, Verdict::Undecided, Severity::Info, summary);
    let answered = first.answered;
    let ((low, high), how) = match (&first.stop, first.end()) {
        (Stop::Ended { how, .. }, Some(end)) => (end, how),
        (Stop::Failed(why), _) => {
            return undecided(
                at_least(why),
                format!("answered {}, and then: {why}", plural(answered, "request")),
            );
        }
        (Stop::Budget(why), _) => {
            let summary = format!("no end within {}; {why}", plural(answered, "request"));
            return undecided(at_least(why), summary);
        }
        _ => {
            let bound = at_least("no more were made");
            return (
                bound,
                Verdict::Pass,
                Severity::Info,
                format!("no end within {}", plural(answered, "request")),
            );
        }
    };
    let Some((second_low, second_high)) = second.and_then(SequentialRequests::end) else {
        let other = second.map_or_else(
            || "it was seen on one connection only".to_owned(),
            |row| match &row.stop {
                Stop::Failed(why) | Stop::Budget(why) => {
                    format!("another one served {} and then: {why}", row.answered)
                }
                _ => format!("another one served {} and did not end", row.answered),
            },
        );
        let bound = Bound::between(Some(low), None, "requests", format!("{how}; {other}"));
        return undecided(
            bound,
            format!("a connection ended after {} ({how}), but {other}", plural(low, "request")),
        );
    };
    // The second connection's end may be known only as a range.
    let agrees = low == high && (second_low..=second_high).contains(&low);
    let (low, high) = if agrees { (low, high) } else { (low.min(second_low), high.max(second_high)) };
    let (bound, number) = if low == high {
        (Bound::exact(low, "requests", how.as_str()), format!("exactly {low}"))
    } else {
        (Bound::between(Some(low), Some(high), "requests", how.as_str()), format!("{low} to {high}"))
    };
    let requests = noun_of(if low == high { low } else { high }, "request");
    let summary = format!("the connection ends after {number} {requests}: {how}");
    if !is_shared {
        return (bound, Verdict::Pass, Severity::Info, format!("{summary}; HTTP/1.1 loses little"));
    }
    let severity = if low < LARGE_QUOTA { Severity::Medium } else { Severity::Low };
    (bound, Verdict::Fail, severity, summary)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(answered: u64, declared: Option<u64>) -> SequentialRequests {
        SequentialRequests { answered, stop: Stop::Ended { how: "GOAWAY".to_owned(), declared } }
    }

    fn stopped(stop: Stop) -> SequentialRequests {
        SequentialRequests { answered: 30, stop }
    }

    /// Value, least, most and verdict.
    fn is(
        first: &SequentialRequests,
        second: Option<&SequentialRequests>,
    ) -> (Option<u64>, Option<u64>, Option<u64>, Verdict) {
        let (bound, verdict, ..) = quota(first, second, true);
        (bound.value, bound.at_least, bound.at_most, verdict)
    }

    #[test]
    fn a_quota_is_exact_when_two_connections_agree_on_it() {
        let fail = Verdict::Fail;
        assert_eq!(is(&ended(20, None), Some(&ended(20, Some(20)))), (Some(20), Some(20), Some(20), fail));
        assert_eq!(is(&ended(20, None), Some(&ended(18, None))), (None, Some(18), Some(20), fail));
        assert_eq!(is(&ended(20, Some(22)), Some(&ended(20, None))), (None, Some(20), Some(22), fail));
        assert_eq!(is(&ended(20, None), Some(&ended(19, Some(26)))), (Some(20), Some(20), Some(20), fail));
        let severity = |n| quota(&ended(n, None), Some(&ended(n, None)), true).2;
        assert_eq!((severity(9_999), severity(10_000)), (Severity::Medium, Severity::Low));
        assert_eq!(quota(&ended(20, None), Some(&ended(20, None)), false).1, Verdict::Pass);
    }

    #[test]
    fn one_connection_alone_or_an_error_decides_nothing() {
        let budget = || stopped(Stop::Budget("used up; --i-own-this-host allows more".to_owned()));
        let failed = || stopped(Stop::Failed("request 31 was not answered in time".to_owned()));
        for (first, second) in [
            (ended(20, None), None),
            (ended(20, None), Some(stopped(Stop::Range))),
            (ended(20, None), Some(failed())),
            (failed(), Some(ended(20, None))),
            (budget(), None),
        ] {
            let (value, least, most, verdict) = is(&first, second.as_ref());
            assert_eq!((value, most, verdict), (None, None, Verdict::Undecided), "{first:?} {second:?}");
            assert!(least.is_some());
        }
        let (.., summary) = quota(&budget(), None, true);
        assert!(summary.ends_with("--i-own-this-host allows more"), "{summary}");
        assert_eq!(is(&stopped(Stop::Range), None), (None, Some(30), None, Verdict::Pass));
    }
}

//! The checks that follow from the cases.

use super::super::smuggling::checks::items_of;
use super::case::{DowngradeCase, Topic};
use super::judge::{Handling, Judged};
use crate::probe::{Check, CheckMeta, EvidenceItem, Severity, Verdict, id};

/// The check that a topic belongs to.
pub const fn meta(topic: Topic) -> &'static CheckMeta {
    match topic {
        Topic::FieldValue => id::DOWN101,
        Topic::FieldName => id::DOWN102,
        Topic::RequestLine => id::DOWN103,
        Topic::Authority => id::DOWN104,
        Topic::ContentLength => id::DOWN105,
        Topic::TransferEncoding => id::DOWN106,
        Topic::ConnectionSpecific => id::DOWN107,
        Topic::Trailers => id::DOWN108,
    }
}

/// The check of one case. `answer` describes the proxy's answer, `items` is the client's connection.
pub fn check(case: &DowngradeCase, judged: &Judged, answer: &str, items: Vec<EvidenceItem>) -> Check {
    let verdict = match judged.handling {
        Handling::Rejected | Handling::Normalised => Verdict::Pass,
        Handling::Raw => Verdict::Fail,
        Handling::Unknown => Verdict::Undecided,
    };
    let summary = format!("{}: {} ({answer})", case.about, judged.handling.words());
    let mut check = Check::new(meta(case.topic), verdict, summary).of(case.id);
    if case.is_mild {
        check = check.severe(Severity::Low);
    }
    if !items.is_empty() {
        check = check.with("between client and proxy", items);
    }
    if judged.backend_saw.is_empty() {
        return check.with("nothing reached the backend", Vec::new());
    }
    check.with("what the backend received, byte for byte", items_of(&judged.backend_saw, 0.0))
}

/// The checks of all topics if no well-formed request comes through; `why` says what happened instead.
pub fn none(verdict: Verdict, why: &str) -> Vec<Check> {
    let topics = [
        Topic::FieldValue,
        Topic::FieldName,
        Topic::RequestLine,
        Topic::Authority,
        Topic::ContentLength,
        Topic::TransferEncoding,
        Topic::ConnectionSpecific,
        Topic::Trailers,
    ];
    topics.map(|topic| Check::new(meta(topic), verdict, why)).into()
}

#[cfg(test)]
mod tests {
    use super::super::CASES;
    use super::*;

    #[test]
    fn only_what_is_forwarded_raw_fails_and_mild_cases_mildly() {
        let upper = CASES.iter().find(|case| case.id == "name-upper-case").unwrap();
        for (handling, verdict) in [
            (Handling::Rejected, Verdict::Pass),
            (Handling::Normalised, Verdict::Pass),
            (Handling::Raw, Verdict::Fail),
            (Handling::Unknown, Verdict::Undecided),
        ] {
            let judged = Judged { handling, backend_saw: Vec::new() };
            assert_eq!(check(&CASES[0], &judged, "x", Vec::new()).verdict, verdict);
            let mild = check(upper, &judged, "x", Vec::new());
            assert!(!mild.is_at_least(Severity::Medium), "{mild:?}");
        }
    }

    #[test]
    fn every_topic_has_its_check() {
        let checks = none(Verdict::Unsupported, "no HTTP/2");
        assert_eq!(checks.len(), 8);
        assert!(CASES.iter().all(|case| checks.iter().any(|check| check.id == meta(case.topic).id)));
    }
}

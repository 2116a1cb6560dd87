//! The result of a POST that expects 100-continue.

use super::{Answer, AnswerEnd};
use crate::probe::Verdict;

/// The verdict on such a POST, whose body was held back, and why (RFC 9110 §10.1.1).
pub fn expectation(answer: &Answer) -> (Verdict, String) {
    let outcome = answer.outcome();
    let declared: Vec<String> = answer.interim.iter().map(|(status, ..)| status.to_string()).collect();
    let declared = if declared.is_empty() { String::new() } else { format!("{}, ", declared.join(", ")) };
    let first = |at| answer.body_sent_at.is_none_or(|sent| at <= sent);
    let continued = answer.interim.iter().find(|(status, ..)| *status == 100).map(|(.., at)| *at);
    if let Some(at) = continued {
        return if first(at) {
            let ms = at.as_millis();
            (Verdict::Pass, format!("100 after {ms} ms, before the body was sent, and then {outcome}"))
        } else {
            (
                Verdict::Ignored,
                "100 received only after the body; the client waited for it without result".to_owned(),
            )
        };
    }
    let early = answer.head_at.is_some_and(first);
    match (answer.status, &answer.ended) {
        (0, AnswerEnd::Silence) => {
            (Verdict::Undecided, format!("{declared}no final response in time to a POST with Expect"))
        }
        (0, _) => {
            (Verdict::Fail, format!("a POST that expects 100-continue is not answered: {declared}{outcome}"))
        }
        (417, _) => (Verdict::Unsupported, "it refuses every Expect: 417".to_owned()),
        (status @ 400.., _) if early => {
            (Verdict::Pass, format!("it refuses before the body is sent: {declared}{status}"))
        }
        (status, _) => {
            (Verdict::Ignored, format!("no 100, then {declared}{status}: the client waits needlessly"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_a_100_or_a_refusal_before_the_body_is_as_it_should_be() {
        let ms = Duration::from_millis;
        let made = |interim: &[(u16, u64)], status, head, body: Option<u64>| {
            let answer = Answer {
                interim: interim.iter().map(|(status, at)| (*status, Vec::new(), ms(*at))).collect(),
                status,
                head_at: (status > 0).then(|| ms(head)),
                body_sent_at: body.map(ms),
                ended: if status > 0 { AnswerEnd::Complete } else { AnswerEnd::Closed("so".to_owned()) },
                ..Answer::none()
            };
            expectation(&answer).0
        };
        assert_eq!(made(&[(100, 3)], 200, 9, Some(3)), Verdict::Pass);
        assert_eq!(made(&[(103, 1), (100, 3)], 200, 9, Some(3)), Verdict::Pass);
        assert_eq!(made(&[(100, 1_001)], 200, 1_002, Some(1_000)), Verdict::Ignored);
        assert_eq!(made(&[(103, 3)], 200, 1_003, Some(1_000)), Verdict::Ignored);
        assert_eq!(made(&[], 200, 1_003, Some(1_000)), Verdict::Ignored);
        assert_eq!(made(&[], 413, 3, None), Verdict::Pass);
        assert_eq!(made(&[], 413, 1_003, Some(1_000)), Verdict::Ignored);
        assert_eq!(made(&[], 417, 3, None), Verdict::Unsupported);
        assert_eq!(made(&[], 0, 0, None), Verdict::Fail);
        assert_eq!(expectation(&Answer::none()).0, Verdict::Undecided);
    }
}

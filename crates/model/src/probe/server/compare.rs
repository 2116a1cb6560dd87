//! Whether a request has the same answer over both versions.

use std::collections::BTreeSet;

use super::{Answer, AnswerEnd};

/// Fields that depend on the connection, the time or the program that writes them, and may differ.
const PASSING: [&str; 13] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
    "content-length",
    "date",
    "age",
    "via",
    "alt-svc",
    "expires",
    "last-modified",
    "server", // hypercorn names its engine of each version
];

/// The answers to one request over both versions, and over the first once more.
#[derive(Debug)]
pub struct ComparedAnswers {
    /// Over HTTP/1.1.
    pub h1: Answer,
    /// Over HTTP/1.1 once more: differences from this vary from call to call.
    pub again: Answer,
    /// Over HTTP/2.
    pub h2: Answer,
}

/// The result of comparing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Comparison {
    /// No difference; holds what was not compared, or only partly.
    Same(Vec<String>),
    /// The differences.
    Differ(Vec<String>),
    /// Nothing can be compared.
    Undecided(String),
}

impl ComparedAnswers {
    /// Differences between the versions, without those within the first.
    pub fn compare(&self) -> Comparison {
        let Self { h1, again, h2 } = self;
        for (which, answer) in [("", h1), (" once more", again)] {
            if !answer.is_answered() {
                return Comparison::Undecided(format!(
                    "no complete response over HTTP/1.1{which}: {}",
                    answer.outcome()
                ));
            }
        }
        if h1.status != again.status {
            let (one, other) = (h1.status, again.status);
            return Comparison::Undecided(format!("HTTP/1.1 itself answers {one} and then {other}"));
        }
        if h2.ended == AnswerEnd::Silence {
            return Comparison::Undecided(format!(
                "no complete response over HTTP/2 in time: {}",
                h2.outcome()
            ));
        }
        if h1.outcome() != h2.outcome() {
            let (one, other) = (h1.outcome(), h2.outcome());
            return Comparison::Differ(vec![format!("HTTP/1.1 ends with {one}, HTTP/2 with {other}")]);
        }
        let mut differences = self.fields();
        let mut notes = Vec::new();
        differences.extend(self.bodies(&mut notes));
        differences.extend(self.interim(&mut notes));
        if differences.is_empty() { Comparison::Same(notes) } else { Comparison::Differ(differences) }
    }

    fn fields(&self) -> Vec<String> {
        let Self { h1, again, h2 } = self;
        let names: BTreeSet<&String> = h1.fields.iter().chain(&h2.fields).map(|(name, _)| name).collect();
        let mut found = Vec::new();
        for name in names {
            if PASSING.contains(&name.as_str()) || name.starts_with(':') {
                continue;
            }
            let values = |answer: &Answer| -> Vec<String> {
                let its = answer.fields.iter().filter(|(found, _)| found == name);
                its.map(|(_, value)| value.clone()).collect()
            };
            let (first, second, other) = (values(h1), values(again), values(h2));
            if first == second && first != other {
                found.push(format!("{name} is {first:?} over HTTP/1.1 and {other:?} over HTTP/2"));
            }
        }
        found
    }

    fn bodies(&self, notes: &mut Vec<String>) -> Option<String> {
        let Self { h1, again, h2 } = self;
        let differ = || Some(format!("the bodies differ: {} and {} bytes", h1.body_bytes, h2.body_bytes));
        let is_empty = |answer: &Answer| answer.body_bytes == 0;
        let all = [h1, again, h2];
        if all.iter().all(|answer| answer.ended == AnswerEnd::Complete) {
            if h1.body == again.body && h1.body_bytes == again.body_bytes {
                let is_same = h1.body == h2.body && h1.body_bytes == h2.body_bytes;
                return if is_same { None } else { differ() };
            }
        } else {
            // Of truncated bodies only the beginning can be compared; their length is where the probe stopped.
            let common = all.iter().map(|answer| answer.body.len()).min().unwrap_or_default();
            if common > 0 && h1.body[..common] == again.body[..common] {
                notes.push(format!("of the bodies the first {common} bytes were compared"));
                return if h1.body[..common] == h2.body[..common] { None } else { differ() };
            }
        }
        notes.push("the body changes between requests: only its presence was compared".to_owned());
        if is_empty(h1) == is_empty(again) && is_empty(h1) != is_empty(h2) { differ() } else { None }
    }

    /// 1xx that HTTP/2 loses. A 100 depends on when the body is sent.
    fn interim(&self, notes: &mut Vec<String>) -> Option<String> {
        let statuses = |answer: &Answer| -> BTreeSet<u16> {
            answer.interim.iter().map(|(status, ..)| *status).filter(|status| *status != 100).collect()
        };
        let declared = |statuses: &BTreeSet<u16>| {
            statuses.iter().map(u16::to_string).collect::<Vec<String>>().join(", ")
        };
        let (first, second, other) = (statuses(&self.h1), statuses(&self.again), statuses(&self.h2));
        let both: BTreeSet<u16> = first.intersection(&second).copied().collect();
        let lost: BTreeSet<u16> = both.difference(&other).copied().collect();
        let more: BTreeSet<u16> = other.difference(&first).copied().collect();
        if !more.is_empty() {
            notes.push(format!("{} over HTTP/2 only", declared(&more)));
        }
        (!lost.is_empty()).then(|| format!("{} over HTTP/1.1 is lost over HTTP/2", declared(&lost)))
    }

    /// Both versions' trailers as text if they differ, else `None`. Values are compared only if those of HTTP/1.1 do
    /// not change.
    pub fn trailers_differ(&self) -> Option<(String, String)> {
        let Self { h1, again, h2 } = self;
        let declared = |answer: &Answer, by_value: bool| {
            let mut all: Vec<String> = answer
                .trailers
                .iter()
                .map(|(name, value)| if by_value { format!("{name}: {value}") } else { name.clone() })
                .collect();
            all.sort_unstable();
            all.join(", ")
        };
        let by_value = h1.trailers == again.trailers;
        let (one, other) = (declared(h1, by_value), declared(h2, by_value));
        (one != other).then_some((one, other))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use h2lab_wire::ErrorCode;

    fn answer(status: u16, fields: &[(&str, &str)], body: &str) -> Answer {
        let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Answer {
            status,
            fields,
            body: body.into(),
            body_bytes: body.len() as u64,
            ended: AnswerEnd::Complete,
            ..Answer::none()
        }
    }

    fn plain(body: &str) -> Answer {
        answer(200, &[], body)
    }

    fn compare(h1: &Answer, again: &Answer, h2: &Answer) -> Comparison {
        ComparedAnswers { h1: h1.clone(), again: again.clone(), h2: h2.clone() }.compare()
    }

    #[test]
    fn only_what_differs_between_versions_and_not_from_call_to_call_is_a_difference() {
        // The same in both answers over HTTP/1.1, and another or none over HTTP/2: these fields depend on the version.
        let over_h1 = |id, date| {
            let fields =
                [("x-a", "1"), ("x-id", id), ("date", date), ("server", "a-h1"), ("connection", "close")];
            answer(200, &fields, "b")
        };
        let (h1, again) = (over_h1("7", "a"), over_h1("8", "b"));
        let same = answer(200, &[("x-a", "1"), ("x-id", "9"), ("date", "c"), ("server", "a-h2")], "b");
        assert_eq!(compare(&h1, &again, &same), Comparison::Same(Vec::new()));
        let Comparison::Differ(other) = compare(&h1, &again, &answer(200, &[("x-id", "9")], "bb")) else {
            panic!("they differ");
        };
        assert_eq!(other.len(), 2, "{other:?}");
        assert!(other[0].starts_with("x-a is") && other[1].starts_with("the bodies differ"), "{other:?}");
        let error = compare(&h1, &again, &answer(500, &[], ""));
        assert!(matches!(&error, Comparison::Differ(all) if all[0].contains("HTTP/2 with 500")), "{error:?}");
    }

    #[test]
    fn without_final_answers_that_agree_over_the_first_version_nothing_is_compared() {
        let (fine, gone) = (plain("b"), answer(503, &[], ""));
        let none = Answer { ended: AnswerEnd::Closed("in order".to_owned()), ..Answer::none() };
        let silent = Answer { ended: AnswerEnd::Silence, ..plain("") };
        let reset = Answer { ended: AnswerEnd::Reset(ErrorCode::INTERNAL_ERROR), ..Answer::none() };
        for (h1, again, h2) in [
            (&none, &none, &none),
            (&none, &fine, &fine),
            (&fine, &none, &fine),
            (&fine, &gone, &fine),
            (&fine, &fine, &silent),
        ] {
            assert!(matches!(compare(h1, again, h2), Comparison::Undecided(_)), "{h1:?} {again:?} {h2:?}");
        }
        assert!(matches!(compare(&fine, &fine, &reset), Comparison::Differ(_)));
    }

    #[test]
    fn of_bodies_that_change_only_whether_there_is_one_is_compared() {
        let same = compare(&plain("a"), &plain("b"), &plain("c"));
        assert!(
            matches!(&same, Comparison::Same(notes) if notes[0].contains("changes between requests")),
            "{same:?}"
        );
        assert!(matches!(compare(&plain("a"), &plain("b"), &plain("")), Comparison::Differ(_)));
    }

    #[test]
    fn lengths_of_bodies_that_we_cut_off_are_no_difference() {
        let cut = |body: &str, body_bytes| Answer { ended: AnswerEnd::Cut, body_bytes, ..plain(body) };
        let same = compare(&cut("abc", 70_000), &cut("abc", 66_000), &cut("ab", 65_000));
        assert!(matches!(&same, Comparison::Same(notes) if notes[0].contains("first 2 bytes")), "{same:?}");
        let other = compare(&cut("abc", 70_000), &cut("abc", 66_000), &cut("ax", 65_000));
        assert!(matches!(other, Comparison::Differ(_)), "{other:?}");
    }

    #[test]
    fn interim_responses_that_http2_loses_are_a_difference() {
        let with = |status| Answer { interim: vec![(status, Vec::new(), Duration::ZERO)], ..plain("b") };
        let lost = compare(&with(103), &with(103), &plain("b"));
        assert!(
            matches!(&lost, Comparison::Differ(all) if all[0].starts_with("103 over HTTP/1.1")),
            "{lost:?}"
        );
        assert_eq!(compare(&with(100), &with(100), &plain("b")), Comparison::Same(Vec::new()));
        let more = compare(&plain("b"), &plain("b"), &with(103));
        assert_eq!(more, Comparison::Same(vec!["103 over HTTP/2 only".to_owned()]));
    }

    #[test]
    fn trailers_are_compared_by_value_unless_they_change() {
        let with = |value: &str| Answer { trailers: vec![("x-sum".into(), value.into())], ..plain("b") };
        let pair = |h1, again, h2| ComparedAnswers { h1: with(h1), again: with(again), h2: with(h2) };
        assert_eq!(pair("1", "1", "1").trailers_differ(), None);
        assert_eq!(pair("1", "1", "2").trailers_differ(), Some(("x-sum: 1".into(), "x-sum: 2".into())));
        assert_eq!(pair("1", "2", "3").trailers_differ(), None);
        let none = ComparedAnswers { h2: plain("b"), ..pair("1", "2", "3") };
        assert_eq!(none.trailers_differ(), Some(("x-sum".into(), String::new())));
    }
}

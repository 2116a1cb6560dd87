//! How large heads and bodies may be.

use std::time::Duration;

use h2lab_core::probe::{Bound, Check, Verdict, id};
use h2lab_core::units::format_bytes;
use h2lab_core::wire::ErrorCode;
use h2lab_core::wire::h2::frame::kind;
use h2lab_core::workload::Protocol;

use super::super::Found;
use crate::probe::talk::{Opening, Talk};
use crate::probe::{ProbeError, Prober};

/// The first value that is tried, in bytes.
const FIRST: u64 = 1 << 10;
/// The longest field that is tried, in bytes.
const LONGEST_FIELD: u64 = 1 << 20;
/// The longest body that is announced, in bytes: far above any limit.
const LONGEST_BODY: u64 = 1 << 40;
/// The part of the budget that one search may use.
const SHARE: u64 = 3;
/// How long a server may take to refuse a body by its announced length; what it takes, it is silent about.
const REFUSAL: Duration = Duration::from_millis(250);

/// Searches the boundary between what is taken and what is not, from [`FIRST`] to `most`.
struct Search {
    taken: Option<u64>,
    refused: Option<u64>,
    most: u64,
}

impl Search {
    const fn new(most: u64) -> Self {
        Self { taken: None, refused: None, most }
    }

    /// What to try next: doubled until something is refused, then one more than a round number, then the middle. `None` once
    /// the boundary is known or `most` is taken.
    fn next(&self) -> Option<u64> {
        match (self.taken, self.refused) {
            (None, None) => Some(FIRST),
            (None, Some(refused)) => (refused > 1).then_some(refused / 2),
            (Some(taken), None) => (taken < self.most).then_some((taken * 2).min(self.most)),
            (Some(taken), Some(refused)) if refused - taken > 1 => {
                // Limits are round numbers: what is just above one decides it at once.
                if taken.is_power_of_two() { Some(taken + 1) } else { Some(taken + (refused - taken) / 2) }
            }
            _ => None,
        }
    }

    fn note(&mut self, value: u64, taken: bool) {
        if taken {
            self.taken = self.taken.max(Some(value));
        } else {
            self.refused = Some(self.refused.map_or(value, |refused| refused.min(value)));
        }
    }

    /// What is known, and why no more.
    fn bound(&self, how: String) -> Bound {
        match (self.taken, self.refused) {
            (Some(taken), Some(refused)) if refused == taken + 1 => Bound::exact(taken, "bytes", how),
            (taken, refused) => Bound::between(taken, refused.map(|n| n - 1), "bytes", how),
        }
    }
}

/// How the last value that was not taken was refused, and why the search ended early if it did.
#[derive(Default)]
struct Notes {
    refusal: String,
    stopped: Option<String>,
}

/// The longest value of one header field.
pub fn field(prober: &mut Prober, protocol: Protocol, found: &mut Found) -> Result<Check, ProbeError> {
    let baseline = found.h2_answer.as_ref().map_or(200, |answer| answer.status);
    let (bytes, requests) = (prober.budget().bytes_left() / SHARE, prober.budget().requests_left() / SHARE);
    let floor = (prober.budget().bytes_left() - bytes, prober.budget().requests_left() - requests);
    let (mut search, mut notes) = (Search::new(LONGEST_FIELD), Notes::default());
    let mut talk: Option<Talk> = None;
    let mut exhibits = Vec::new();
    while let Some(n) = search.next() {
        let left = (prober.budget().bytes_left(), prober.budget().requests_left());
        if left.0 < floor.0 + n || left.1 <= floor.1 {
            notes.stopped = Some("the share of the budget for this is used up".to_owned());
            break;
        }
        let mut open = match talk.take().filter(|talk| talk.ended().is_none()) {
            Some(talk) => talk,
            None => Talk::open(prober, protocol, &Opening::default())?,
        };
        let value = "v".repeat(n as usize);
        let path = prober.host.path.clone();
        let stream = open.request(prober, "GET", &path, &[("x-h2lab", &value)], true)?;
        let answer = open.answer(prober, stream)?;
        let taken = answer.status == Some(baseline) && answer.ended;
        if !taken {
            notes.refusal = match (answer.status, answer.reset, open.ended()) {
                (Some(status), ..) => status.to_string(),
                (_, Some(code), _) => format!("RST_STREAM {code}"),
                (.., Some(ended)) => ended,
                _ => "silence".to_owned(),
            };
            exhibits = open.ending(4);
        }
        search.note(n, taken);
        talk = Some(open);
    }
    let how = notes.stopped.unwrap_or_else(|| match notes.refusal.as_str() {
        "" => "no longer one was tried".to_owned(),
        refusal => format!("beyond it: {refusal}"),
    });
    let bound = search.bound(how.clone());
    let summary = format!("{}: {how}", told(&bound));
    let refusal = notes.refusal.as_str();
    let verdict =
        if refusal == "silence" || refusal.starts_with('5') { Verdict::Fail } else { Verdict::Pass };
    found.limits.header_field = Some(bound);
    Ok(Check::new(id::LIMT106, verdict, summary).with("one field of growing length", exhibits))
}

fn told(bound: &Bound) -> String {
    match (bound.value, bound.at_least, bound.at_most) {
        (Some(value), ..) => format!("exactly {value} bytes are taken"),
        (_, Some(least), Some(most)) => format!("between {least} and {most} bytes are taken"),
        (_, Some(least), None) => format!("{} are taken", format_bytes(least)),
        (_, None, _) => "nothing of this length is taken".to_owned(),
    }
}

/// The longest body that is not refused by its announced length. Nothing of it is sent.
pub fn body(prober: &mut Prober, protocol: Protocol, found: &mut Found) -> Result<Check, ProbeError> {
    let requests = prober.budget().requests_left() / SHARE;
    let floor = prober.budget().requests_left() - requests;
    let mut search = Search::new(LONGEST_BODY);
    let mut notes = Notes::default();
    let mut talk = Talk::open(prober, protocol, &Opening::default())?;
    // The longest first: who takes that looks at no announcement.
    let first = announced(prober, &mut talk, LONGEST_BODY)?;
    let exhibits = talk.ending(4);
    if first != Some(413) {
        let bound = Bound::between(Some(LONGEST_BODY), None, "bytes", "announced, and not refused by that");
        found.limits.request_body = Some(bound);
        let what = first.map_or_else(|| "it waits for them".to_owned(), |status| status.to_string());
        let summary = format!("{} are announced and not refused: {what}", format_bytes(LONGEST_BODY));
        // An answer that does not wait for the body needs no limit.
        let verdict = if first.is_some() { Verdict::Pass } else { Verdict::Undecided };
        return Ok(Check::new(id::LIMT107, verdict, summary).with("a body that is announced", exhibits));
    }
    search.note(LONGEST_BODY, false);
    search.note(0, true);
    let mut next = Some(FIRST);
    while let Some(n) = next {
        if prober.budget().requests_left() <= floor {
            notes.stopped = Some("the share of the budget for this is used up".to_owned());
            break;
        }
        if talk.ended().is_some() {
            talk = Talk::open(prober, protocol, &Opening::default())?;
        }
        let taken = announced(prober, &mut talk, n)? != Some(413);
        search.note(n, taken);
        // Doubled until the first refusal below the longest.
        let grows = taken && search.refused == Some(LONGEST_BODY);
        next = if grows { Some(n * 2).filter(|n| *n < LONGEST_BODY) } else { search.next() };
    }
    let how = notes.stopped.unwrap_or_else(|| "beyond it: 413 by the announced length".to_owned());
    let bound = search.bound(how.clone());
    let summary = format!("{}: {how}", told(&bound));
    found.limits.request_body = Some(bound);
    Ok(Check::new(id::LIMT107, Verdict::Pass, summary).with("a body that is announced", exhibits))
}

/// Announces a body of `n` bytes and sends nothing of it; the status, if one comes.
fn announced(prober: &mut Prober, talk: &mut Talk, n: u64) -> Result<Option<u16>, ProbeError> {
    let (path, length) = (prober.host.path.clone(), n.to_string());
    let stream = talk.request(prober, "POST", &path, &[("content-length", &length)], false)?;
    let until = prober.now() + REFUSAL;
    let has_status = |talk: &Talk| {
        talk.streams.get(&stream).is_none_or(|stream| stream.status.is_some() || stream.is_over())
    };
    talk.until(prober, until, has_status)?;
    let status = talk.streams.get(&stream).and_then(|stream| stream.status);
    if !talk.is_over(stream) {
        talk.frame(prober, kind::RST_STREAM, 0, stream, &ErrorCode::CANCEL.0.to_be_bytes())?;
    }
    talk.streams.remove(&stream);
    Ok(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the search makes of a server that takes `limit`, and how many tries that takes.
    fn search(limit: u64, most: u64) -> (Bound, usize) {
        let (mut search, mut tries) = (Search::new(most), 0);
        while let Some(n) = search.next() {
            search.note(n, n <= limit);
            tries += 1;
            assert!(tries < 100);
        }
        (search.bound(String::new()), tries)
    }

    #[test]
    fn every_limit_is_found_exactly() {
        for limit in [1, 2, 1_023, 1_024, 1_025, 8_192, 16_000, 16_384, 65_535, 1_000_000] {
            assert_eq!(search(limit, 1 << 20).0.value, Some(limit), "{limit}");
        }
        let (bound, _) = search(u64::MAX, 1 << 20);
        assert_eq!((bound.value, bound.at_least), (None, Some(1 << 20)));
    }

    #[test]
    fn round_numbers_are_found_quickly() {
        assert!(search(1 << 20, 1 << 40).1 <= 13);
        assert!(search(8_192, 1 << 20).1 <= 7);
    }
}

//! What each server of a chain does with interim responses, promises and trailers that come from behind it.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::summary::{Summary, TimelineStream};
use super::waterfall::{Stream, Waterfall};
use crate::workload::Protocol;

/// An interim response that comes so much later than it left the server behind, or half the time that it was ahead of the
/// response, whichever is more, was held back: a proxy that forwards takes a fraction of a millisecond.
const HELD_BACK_MS: f64 = 5.0;

/// What a server did with something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// There was nothing of the kind.
    None,
    /// All of it came through at once.
    Forwarded,
    /// Some of it did.
    Partly,
    /// It came through, too late to be of use.
    HeldBack,
    /// None of it came through; the response did.
    Swallowed,
    /// The server told the one behind not to send it.
    Refused,
    /// The server made it; nothing of the kind came from behind.
    Added,
    /// The response did not come through.
    Broken,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::Forwarded => "forwarded",
            Self::Partly => "partly forwarded",
            Self::HeldBack => "held back",
            Self::Swallowed => "swallowed",
            Self::Refused => "refused",
            Self::Added => "added",
            Self::Broken => "BROKEN",
        })
    }
}

/// A verdict and what it rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ruling {
    /// What was done.
    pub verdict: Verdict,
    /// What was seen on either side, in a sentence.
    pub evidence: String,
}

impl Ruling {
    fn new(verdict: Verdict, evidence: impl Into<String>) -> Self {
        Self { verdict, evidence: evidence.into() }
    }

    fn none() -> Self {
        Self::new(Verdict::None, "")
    }
}

/// The exchange as it was seen in front of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Leg {
    /// The server.
    pub server: String,
    /// Its version.
    pub version: String,
    /// What it was asked in.
    pub protocol: Protocol,
    /// Whether whoever asked it told it not to push, or could not be pushed to.
    pub refuses_push: bool,
    /// In how many runs the request was answered.
    pub answered: u32,
    /// In how many runs it was asked.
    pub asked: u32,
    /// Medians of what was seen.
    #[serde(flatten)]
    pub summary: Summary,
}

impl Leg {
    /// Of these runs, in which `path` was asked for.
    pub fn of(server: &str, version: &str, protocol: Protocol, path: &str, runs: &[Waterfall]) -> Self {
        let asked: Vec<&Stream> = runs.iter().filter_map(|run| main_of(run, path)).collect();
        let is_answered = |one: &&&Stream| one.status.is_some() && one.end_ms.is_some();
        Self {
            server: server.to_owned(),
            version: version.to_owned(),
            protocol,
            refuses_push: !protocol.is_multiplexed() || runs.iter().any(|run| run.refuses_push),
            answered: asked.iter().filter(is_answered).count() as u32,
            asked: asked.len() as u32,
            summary: Summary::of(runs),
        }
    }

    fn main(&self, path: &str) -> Option<&Stream> {
        let mut asked = self.streams().filter(|stream| !stream.pushed);
        let first = asked.clone().next();
        asked.find(|stream| stream.path == path).or(first)
    }

    fn streams(&self) -> impl Iterator<Item = &Stream> + Clone {
        self.summary.streams.iter().map(|TimelineStream { stream, .. }| stream)
    }

    fn promises(&self) -> Vec<f64> {
        self.streams().filter_map(|stream| stream.promise_ms).collect()
    }
}

/// What was asked for, wherever a server rewrote its path.
fn main_of<'a>(run: &'a Waterfall, path: &str) -> Option<&'a Stream> {
    run.asked(Some(path)).or_else(|| run.asked(None))
}

/// What a server did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hop {
    /// Its name.
    pub server: String,
    /// With interim responses.
    pub early_hints: Ruling,
    /// With promises.
    pub push: Ruling,
    /// With trailers.
    pub trailers: Ruling,
}

/// What the server did that was asked over `front` and asked over `back`, of the exchange about `path`.
pub fn judge(front: &Leg, back: &Leg, path: &str) -> Hop {
    let hop = |early_hints, push, trailers| Hop { server: front.server.clone(), early_hints, push, trailers };
    let (Some(before), Some(behind)) = (front.main(path), back.main(path)) else {
        let unasked = || Ruling::new(Verdict::None, "the server behind it was not asked");
        return hop(unasked(), unasked(), unasked());
    };
    hop(early_hints(front, before, back, behind), push(front, before, back), trailers(before, behind))
}

fn early_hints(front: &Leg, before: &Stream, back: &Leg, behind: &Stream) -> Ruling {
    if front.answered < front.asked && back.answered == back.asked {
        return Ruling::new(Verdict::Broken, breakage(front, before, behind));
    }
    let response = before.headers_ms.unwrap_or(f64::INFINITY);
    match (before.interim.len(), behind.interim.len()) {
        (0, 0) => Ruling::none(),
        (_, 0) => {
            let first = &before.interim[0];
            let ahead = response - first.ms;
            let evidence = format!(
                "it sends {} itself at {:.1} ms, {ahead:.1} ms before the response",
                first.status, first.ms
            );
            Ruling::new(Verdict::Added, evidence)
        }
        (0, came) => {
            let promises = front.promises();
            let came = named(came, behind);
            let evidence = match promises.iter().copied().reduce(f64::min) {
                Some(first) => format!(
                    "{came} came from behind, none went on; {} pushed instead, from {first:.1} ms on, {:.1} ms \
                     before the response",
                    resources(promises.len()),
                    response - first
                ),
                None => {
                    format!("{came} came from behind, none went on; the response came at {response:.1} ms")
                }
            };
            Ruling::new(Verdict::Swallowed, evidence)
        }
        (went, came) if went < came => {
            let evidence = format!("{} came from behind, {went} went on", named(came, behind));
            Ruling::new(Verdict::Partly, evidence)
        }
        _ => forwarded(before, behind),
    }
}

fn forwarded(before: &Stream, behind: &Stream) -> Ruling {
    let late = |(went, came): (&super::Interim, &super::Interim)| went.ms - came.ms;
    let most = before.interim.iter().zip(&behind.interim).map(late).fold(0.0, f64::max);
    let ahead = behind.headers_ms.map(|response| response - behind.interim[0].ms);
    let went: Vec<String> = before.interim.iter().map(|one| format!("{:.1}", one.ms)).collect();
    let rest = ahead.map_or_else(
        || "no response followed it there".to_owned(),
        |ahead| format!("it was {ahead:.1} ms ahead of the response there"),
    );
    let evidence = format!(
        "{} at {} ms, {most:.1} ms after the server behind sent it; {rest}",
        before.interim[0].status,
        went.join(", ")
    );
    let is_held = most > HELD_BACK_MS.max(ahead.unwrap_or(0.0) / 2.0);
    Ruling::new(if is_held { Verdict::HeldBack } else { Verdict::Forwarded }, evidence)
}

/// How a response was lost that came from behind.
fn breakage(front: &Leg, before: &Stream, behind: &Stream) -> String {
    let lost = front.asked - front.answered;
    let times =
        if front.asked == 1 { String::new() } else { format!(" (in {lost} of {} runs)", front.asked) };
    let response = format!("the response from behind ({})", behind.status.unwrap_or_default());
    let interim = before.interim.first().or(behind.interim.first());
    let status = interim.map_or(103, |one| one.status);
    if before.ended_by_interim {
        return format!(
            "it took the {status} for the response and ended the stream with it; {response} never came{times}"
        );
    }
    match (&before.reset, before.interim.is_empty(), behind.interim.is_empty()) {
        (Some(reset), false, _) if reset.by == super::Initiator::Server => {
            format!(
                "it forwarded {status}, and then reset the stream ({}); {response} never came{times}",
                reset.error_code
            )
        }
        (Some(reset), _, _) if reset.by == super::Initiator::Server => {
            format!("it reset the stream ({}); {response} never came{times}", reset.error_code)
        }
        (_, false, _) => format!(
            "it took the {status} for the response: nothing came after it, {response} never did{times}"
        ),
        (_, true, false) => {
            format!("{status} came from behind, and nothing went on, not even {response}{times}")
        }
        (_, true, true) => format!("{response} never came{times}"),
    }
}

fn push(front: &Leg, before: &Stream, back: &Leg) -> Ruling {
    let (went, came) = (front.promises(), back.promises());
    let first = went.iter().copied().reduce(f64::min);
    let told = |first: f64| {
        let lead = before.headers_ms.map_or(0.0, |response| response - first);
        format!("{} promised from {first:.1} ms on, {lead:.1} ms before the response", resources(went.len()))
    };
    match (first, came.len()) {
        (Some(first), 0) => Ruling::new(Verdict::Added, told(first)),
        (Some(first), n) if went.len() < n => {
            Ruling::new(Verdict::Partly, format!("{}; {n} came from behind", told(first)))
        }
        (Some(first), _) => Ruling::new(Verdict::Forwarded, told(first)),
        (None, 0) if !back.protocol.is_multiplexed() => {
            Ruling::new(Verdict::Refused, "it asks in HTTP/1.1, which has no push")
        }
        (None, 0) if back.refuses_push => {
            Ruling::new(Verdict::Refused, "it tells the server behind SETTINGS_ENABLE_PUSH = 0")
        }
        (None, 0) => Ruling::none(),
        (None, n) => {
            Ruling::new(Verdict::Swallowed, format!("{} promised from behind, none went on", resources(n)))
        }
    }
}

fn trailers(before: &Stream, behind: &Stream) -> Ruling {
    match (before.trailers_ms, behind.trailers_ms) {
        (Some(_), Some(_)) => Ruling::new(Verdict::Forwarded, "they came through"),
        (None, Some(at)) => {
            Ruling::new(Verdict::Swallowed, format!("they came from behind at {at:.1} ms, and none went on"))
        }
        (Some(_), None) => Ruling::new(Verdict::Added, "it adds some"),
        (None, None) => Ruling::none(),
    }
}

/// `103`, `3 interim responses`.
fn named(count: usize, stream: &Stream) -> String {
    match count {
        1 => stream.interim[0].status.to_string(),
        n => format!("{n} interim responses"),
    }
}

fn resources(count: usize) -> String {
    if count == 1 { "1 resource is".to_owned() } else { format!("{count} resources are") }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{exchange, pushed};
    use super::*;

    fn leg(name: &str, run: Waterfall) -> Leg {
        Leg::of(name, "1", Protocol::H2c, "/", &[run])
    }

    /// What a proxy did that showed `before` to its client of what it saw as `behind`.
    fn ruling(before: Waterfall, behind: Waterfall) -> Hop {
        judge(&leg("proxy", before), &leg("origin", behind), "/")
    }

    #[test]
    fn what_comes_through_at_once_is_forwarded_and_what_comes_with_the_response_is_held_back() {
        let origin = || exchange("/", &[(103, 2.0)], 82.0);
        let at = |ms| ruling(exchange("/", &[(103, ms)], 83.0), origin()).early_hints.verdict;
        assert_eq!(
            (at(2.5), at(41.9), at(42.1), at(83.0)),
            (Verdict::Forwarded, Verdict::Forwarded, Verdict::HeldBack, Verdict::HeldBack)
        );
    }

    #[test]
    fn who_stands_before_the_server_that_broke_a_response_is_not_blamed_for_it() {
        let lost = |ms| {
            let mut run = exchange("/", &[(103, ms)], 80.0);
            let main = &mut run.streams[0];
            (main.status, main.headers_ms, main.end_ms) = (None, None, None);
            run
        };
        let front = ruling(lost(2.1), lost(2.0)).early_hints;
        assert_eq!(front.verdict, Verdict::Forwarded);
        assert!(front.evidence.contains("no response followed it there"), "{front:?}");
        let culprit = ruling(lost(2.0), exchange("/", &[(103, 1.9)], 80.0)).early_hints;
        assert_eq!(culprit.verdict, Verdict::Broken);
    }

    #[test]
    fn a_few_milliseconds_are_no_holding_back_where_the_response_follows_at_once() {
        let at = |ms| {
            ruling(exchange("/", &[(103, ms)], 10.0), exchange("/", &[(103, 1.0)], 2.0)).early_hints.verdict
        };
        assert_eq!((at(5.9), at(6.1)), (Verdict::Forwarded, Verdict::HeldBack));
    }

    #[test]
    fn what_does_not_come_through_is_swallowed_and_what_is_new_was_added() {
        let with = || exchange("/", &[(103, 2.0), (103, 20.0)], 80.0);
        let without = || exchange("/", &[], 80.0);
        assert_eq!(ruling(without(), with()).early_hints.verdict, Verdict::Swallowed);
        assert_eq!(ruling(with(), without()).early_hints.verdict, Verdict::Added);
        assert_eq!(ruling(without(), without()).early_hints.verdict, Verdict::None);
        let first_only = ruling(exchange("/", &[(103, 2.0)], 80.0), with()).early_hints;
        assert_eq!(first_only.verdict, Verdict::Partly);
        assert!(
            first_only.evidence.contains("2 interim responses") && first_only.evidence.contains("1 went on")
        );
    }

    #[test]
    fn hints_that_become_a_push_are_told_as_such() {
        let mut before = exchange("/", &[], 80.0);
        before.streams.push(pushed("/style.css", 3.0, 5.0));
        let hop = ruling(before, exchange("/", &[(103, 2.0)], 80.0));
        assert_eq!((hop.early_hints.verdict, hop.push.verdict), (Verdict::Swallowed, Verdict::Added));
        assert!(hop.early_hints.evidence.contains("pushed instead, from 3.0 ms on, 77.0 ms"), "{hop:?}");
    }

    #[test]
    fn a_response_that_never_comes_is_broken_and_says_how() {
        let lost = |ended_by_interim: bool| {
            let mut run = exchange("/", &[(103, 2.0)], 80.0);
            let main = &mut run.streams[0];
            (main.status, main.headers_ms, main.end_ms) = (None, None, ended_by_interim.then_some(2.0));
            main.ended_by_interim = ended_by_interim;
            ruling(run, exchange("/", &[(103, 1.0)], 80.0)).early_hints
        };
        assert_eq!((lost(true).verdict, lost(false).verdict), (Verdict::Broken, Verdict::Broken));
        assert!(lost(true).evidence.contains("ended the stream with it"), "{:?}", lost(true));
        assert!(lost(false).evidence.contains("nothing came after it"), "{:?}", lost(false));
    }

    #[test]
    fn who_speaks_http_1_behind_it_or_says_so_cannot_be_pushed_to() {
        let none = || exchange("/", &[], 8.0);
        let behind = |protocol, refuses_push| {
            let back = Leg::of("origin", "1", protocol, "/", &[Waterfall { refuses_push, ..none() }]);
            judge(&leg("proxy", none()), &back, "/").push.verdict
        };
        assert_eq!(behind(Protocol::H1, false), Verdict::Refused);
        assert_eq!(behind(Protocol::H2c, true), Verdict::Refused);
        assert_eq!(behind(Protocol::H2c, false), Verdict::None);
    }

    #[test]
    fn trailers_are_followed_too() {
        let with = || {
            let mut run = exchange("/", &[], 8.0);
            run.streams[0].trailers_ms = Some(8.5);
            run
        };
        let without = || exchange("/", &[], 8.0);
        assert_eq!(ruling(with(), with()).trailers.verdict, Verdict::Forwarded);
        assert_eq!(ruling(without(), with()).trailers.verdict, Verdict::Swallowed);
        assert_eq!(ruling(without(), without()).trailers.verdict, Verdict::None);
    }
}

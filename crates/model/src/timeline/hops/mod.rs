//! What each server of a chain does with interim responses, promises and trailers that come from behind it.

mod early_hints;
mod passage;
mod push;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::summary::{Summary, TimelineStream};
use super::waterfall::{Connecting, Stream, Waterfall};
use crate::workload::Protocol;
use early_hints::early_hints;
use passage::{Seen, runs_with};
use push::push;

/// What a server did with something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HopVerdict {
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
    /// The response did not come through, or what was promised did not.
    Broken,
}

impl fmt::Display for HopVerdict {
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
    pub verdict: HopVerdict,
    /// What was seen on either side, in a sentence.
    pub evidence: String,
}

impl Ruling {
    fn new(verdict: HopVerdict, evidence: impl Into<String>) -> Self {
        Self { verdict, evidence: evidence.into() }
    }

    fn none() -> Self {
        Self::new(HopVerdict::None, "")
    }
}

/// The exchange as it was seen in front of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Leg {
    /// The server; one of several of the same name with a number behind it: `haproxy-2`.
    pub server: String,
    /// Its version.
    pub version: String,
    /// What it was asked in.
    pub protocol: Protocol,
    /// Whether whoever asked it told it not to push, or could not be pushed to.
    pub refuses_push: bool,
    /// In how many runs the request was answered completely.
    pub answered: u32,
    /// In how many runs at least the head of the response came.
    pub headed: u32,
    /// In how many runs it was asked.
    pub asked: u32,
    /// The first of the exchanges in which not even that came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<Stream>,
    /// Medians of what was seen.
    #[serde(flatten)]
    pub summary: Summary,
}

impl Leg {
    /// Of these runs, in which `path` was asked for.
    pub fn of(server: &str, version: &str, protocol: Protocol, path: &str, runs: &[Waterfall]) -> Self {
        let asked: Vec<&Stream> = runs.iter().filter_map(|run| main_of(run, path)).collect();
        let is_answered = |one: &&&Stream| one.status.is_some() && one.end_ms.is_some();
        let mut summary = Summary::of(runs);
        keep_common(&mut summary, runs);
        Self {
            server: server.to_owned(),
            version: version.to_owned(),
            protocol,
            refuses_push: !protocol.is_multiplexed() || runs.iter().any(|run| run.refuses_push),
            answered: asked.iter().filter(is_answered).count() as u32,
            headed: asked.iter().filter(|one| one.status.is_some()).count() as u32,
            asked: asked.len() as u32,
            lost: asked.iter().find(|one| one.status.is_none()).map(|one| (*one).clone()),
            summary,
        }
    }

    fn main(&self, path: &str) -> Option<&TimelineStream> {
        let mut asked = self.summary.streams.iter().filter(|one| !one.stream.pushed);
        let first = asked.clone().next();
        asked.find(|one| one.stream.path == path).or(first)
    }

    fn pushed(&self, path: &str) -> Option<&TimelineStream> {
        self.summary.streams.iter().find(|one| one.stream.pushed && one.stream.path == path)
    }

    /// The promises, in the order of time.
    fn promises(&self) -> Vec<Seen> {
        let promise = |one: &TimelineStream| {
            let ms = one.stream.promise_ms?;
            Some(Seen { what: one.stream.path.clone(), ms, runs: runs_with(one, "promise_ms") })
        };
        let mut promises: Vec<Seen> = self.summary.streams.iter().filter_map(promise).collect();
        promises.sort_by(|a, b| a.ms.total_cmp(&b.ms));
        promises
    }
}

/// Keeps the facts of connections that all runs with a request saw: servers reuse connections, and what
/// happened on one before a run is not part of that run.
fn keep_common(summary: &mut Summary, runs: &[Waterfall]) {
    let is_common = |time: fn(&Connecting) -> Option<f64>| {
        runs.iter().filter(|run| !run.streams.is_empty()).all(|run| time(&run.connect).is_some())
    };
    let (connect, spread) = (&mut summary.connect, &mut summary.connect_spread);
    for (name, time, is_common) in [
        ("connected_ms", &mut connect.connected_ms, is_common(|one| one.connected_ms)),
        ("tls_ms", &mut connect.tls_ms, is_common(|one| one.tls_ms)),
        ("settings_ms", &mut connect.settings_ms, is_common(|one| one.settings_ms)),
    ] {
        if !is_common {
            *time = None;
            spread.remove(name);
        }
    }
}

/// The requested exchange, also if a server rewrote its path.
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

/// What the server between `front` and `back` did in the exchange about `path`.
pub fn judge(front: &Leg, back: &Leg, path: &str) -> Hop {
    let hop = |early_hints, push, trailers| Hop { server: front.server.clone(), early_hints, push, trailers };
    let (Some(before), Some(behind)) = (front.main(path), back.main(path)) else {
        let unasked = Ruling::new(HopVerdict::None, "the server behind it was not asked");
        return hop(unasked, Ruling::none(), Ruling::none());
    };
    hop(
        early_hints(front, before, back, behind),
        push(front, &before.stream, back, &behind.stream),
        trailers(&before.stream, &behind.stream),
    )
}

fn trailers(before: &Stream, behind: &Stream) -> Ruling {
    match (before.trailers_ms, behind.trailers_ms) {
        (Some(_), Some(_)) => Ruling::new(HopVerdict::Forwarded, "they came through"),
        // The response that they precede did not come through.
        (None, Some(_)) if before.end_ms.is_none() => Ruling::none(),
        (None, Some(at)) => Ruling::new(
            HopVerdict::Swallowed,
            format!("they came from behind at {at:.1} ms, and none went on"),
        ),
        (Some(_), None) => Ruling::new(HopVerdict::Added, "it adds some"),
        (None, None) => Ruling::none(),
    }
}

fn resources(count: usize) -> String {
    if count == 1 { "1 resource is".to_owned() } else { format!("{count} resources are") }
}

#[cfg(test)]
mod tests;

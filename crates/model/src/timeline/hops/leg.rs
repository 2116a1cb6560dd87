//! The exchange as it was seen in front of a server.

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::summary::{TimelineStream, TimelineSummary};
use super::super::waterfall::{Connecting, Waterfall, WaterfallStream};
use super::passage::{Seen, runs_with};
use crate::workload::Protocol;

/// The exchange as it was seen in front of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Leg {
    /// The server; if several have the same name, with a number appended: `haproxy-2`.
    pub server: String,
    /// Its version.
    pub version: String,
    /// The protocol in which it was asked.
    pub protocol: Protocol,
    /// Whether its client disabled push, or could not be pushed to.
    pub refuses_push: bool,
    /// In how many runs the request was answered completely.
    pub answered: u32,
    /// In how many runs at least the head of the response came.
    pub headed: u32,
    /// In how many runs it was asked.
    pub asked: u32,
    /// The first of the exchanges in which not even that came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<WaterfallStream>,
    /// Medians of what was seen.
    #[serde(flatten)]
    pub summary: TimelineSummary,
}

impl Leg {
    /// The leg in these runs, in which `path` was asked for.
    pub fn of(server: &str, version: &str, protocol: Protocol, path: &str, runs: &[Waterfall]) -> Self {
        let asked: Vec<&WaterfallStream> = runs.iter().filter_map(|run| main_of(run, path)).collect();
        let is_answered = |one: &&&WaterfallStream| one.status.is_some() && one.end_ms.is_some();
        let mut summary = TimelineSummary::of(runs);
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

    pub(super) fn main(&self, path: &str) -> Option<&TimelineStream> {
        let mut asked = self.summary.streams.iter().filter(|one| !one.stream.pushed);
        let first = asked.clone().next();
        asked.find(|one| one.stream.path == path).or(first)
    }

    pub(super) fn pushed(&self, path: &str) -> Option<&TimelineStream> {
        self.summary.streams.iter().find(|one| one.stream.pushed && one.stream.path == path)
    }

    /// The promises, in the order of time.
    pub(super) fn promises(&self) -> Vec<Seen> {
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
fn keep_common(summary: &mut TimelineSummary, runs: &[Waterfall]) {
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
fn main_of<'a>(run: &'a Waterfall, path: &str) -> Option<&'a WaterfallStream> {
    run.asked(Some(path)).or_else(|| run.asked(None))
}

//! The JSON document of `timeline --json`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::timeline::hops::{Hop, Leg};
use crate::timeline::{Connecting, Spread, Summary, TimelineStream, Waterfall};
use crate::workload::Protocol;
use std::collections::BTreeMap;

/// The document of a timeline. Times are in milliseconds since the client began to connect; medians where there are several
/// runs; `null` for what never happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimelineDocument {
    /// Version of h2lab.
    pub version: String,
    /// What was asked for, as given; behind `--hops` the path.
    pub url: String,
    /// The protocol that was spoken.
    pub protocol: Protocol,
    /// The method of the request.
    pub method: String,
    /// Whether the server might push.
    pub push: bool,
    /// Runs that were made, each over a connection of its own.
    pub runs: u32,
    /// Runs in which the request was answered completely, with any status.
    pub answered: u32,
    /// Whether a signal ended it.
    pub interrupted: bool,
    /// How the connection came to be.
    pub connect: Connecting,
    /// How far its times lie apart; empty with one run.
    pub connect_spread: BTreeMap<String, Spread>,
    /// The request's stream, and those that were pushed.
    pub streams: Vec<TimelineStream>,
    /// With `--hops`: the exchange in front of each server, from the client to the origin.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub legs: Vec<Leg>,
    /// With `--hops`: what each server but the origin did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hops: Vec<Hop>,
    /// Each run by itself.
    pub each: Vec<Waterfall>,
}

/// What was asked, of whom, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimelineAsked {
    /// The URL as given, or a path.
    pub url: String,
    /// The protocol that was spoken.
    pub protocol: Protocol,
    /// The method.
    pub method: String,
    /// Whether the server might push.
    pub push: bool,
    /// Whether a signal ended it.
    pub interrupted: bool,
}

/// The document of these runs, and of the legs of each behind them, if there are any.
pub fn timeline_document(
    asked: TimelineAsked,
    each: Vec<Waterfall>,
    (legs, hops): (Vec<Leg>, Vec<Hop>),
) -> TimelineDocument {
    let Summary { connect, connect_spread, streams } = Summary::of(&each);
    let is_answered =
        |run: &&Waterfall| run.asked(None).is_some_and(|main| main.status.is_some() && main.end_ms.is_some());
    let TimelineAsked { url, protocol, method, push, interrupted } = asked;
    TimelineDocument {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        url,
        protocol,
        method,
        push,
        runs: each.len() as u32,
        answered: each.iter().filter(is_answered).count() as u32,
        interrupted,
        connect,
        connect_spread,
        streams,
        legs,
        hops,
        each,
    }
}

impl TimelineDocument {
    /// What the streams and the connection say, together.
    pub fn summary(&self) -> Summary {
        Summary {
            connect: self.connect.clone(),
            connect_spread: self.connect_spread.clone(),
            streams: self.streams.clone(),
        }
    }
}

//! The JSON document of `timeline --json`.

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use h2lab_model::timeline::hops::{Hop, Leg};
use h2lab_model::timeline::{TimelineSummary, Waterfall};
use h2lab_model::workload::Protocol;

/// The document of a timeline. Times are in milliseconds since the client began to connect; medians where there are several
/// runs; `null` for what never happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimelineDocument {
    /// Version of h2lab.
    pub version: String,
    /// What was requested, and how.
    #[serde(flatten)]
    pub asked: TimelineAsked,
    /// Runs that were made, each over a connection of its own.
    pub runs: u32,
    /// Runs in which the request was answered completely, with any status. What `--h2c-mode upgrade` asks before does not
    /// count.
    pub answered: u32,
    /// The events of the connection and of the streams.
    #[serde(flatten)]
    pub summary: TimelineSummary,
    /// With `--hops`: the exchange in front of each server, from the client to the origin.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub legs: Vec<Leg>,
    /// With `--hops`: what each server but the origin did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hops: Vec<Hop>,
    /// Each run by itself.
    pub each: Vec<Waterfall>,
}

/// What was requested, from which server, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TimelineAsked {
    /// What was asked for, as given; behind `--hops` the path.
    pub url: String,
    /// The protocol that was spoken.
    pub protocol: Protocol,
    /// The method of the request.
    pub method: String,
    /// Whether the server might push.
    pub push: bool,
    /// Whether a signal ended it.
    pub interrupted: bool,
}

/// The document of these runs, and of the legs behind each, if there are any.
pub fn timeline_document(
    asked: TimelineAsked,
    each: Vec<Waterfall>,
    (legs, hops): (Vec<Leg>, Vec<Hop>),
) -> TimelineDocument {
    TimelineDocument {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        asked,
        runs: each.len() as u32,
        answered: each.iter().filter(|run| run.failed.is_none()).count() as u32,
        summary: TimelineSummary::of(&each),
        legs,
        hops,
        each,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_model::timeline::testing::exchange;

    #[test]
    fn what_asks_for_an_upgrade_is_no_answer_to_the_request() {
        let mut run = exchange("*", &[(101, 1.0)], 2.0);
        run.streams.extend(exchange("/page", &[], 9.0).streams);
        let lost = {
            let mut run = run.clone();
            let main = &mut run.streams[1];
            (main.status, main.headers_ms, main.end_ms) = (None, None, None);
            Waterfall { failed: Some("it ended as `timeout`".to_owned()), ..run }
        };
        let asked = TimelineAsked {
            url: "http://h/page".to_owned(),
            protocol: Protocol::H2c,
            method: "GET".to_owned(),
            push: true,
            interrupted: false,
        };
        let answered = |runs| timeline_document(asked.clone(), runs, (Vec::new(), Vec::new())).answered;
        assert_eq!((answered(vec![run.clone(), lost.clone()]), answered(vec![lost])), (1, 0));
    }
}

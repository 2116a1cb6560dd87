//! The report of a probe, for scripts.

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use super::smuggling::judge::Observation;
use super::{Check, Severity, Spent, Verdict, id};

/// What was probed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Subject {
    /// A server, by its URL.
    Server,
    /// A proxy, with a backend of ours behind it.
    Proxy,
    /// A client, against a server of ours.
    Client,
}

/// A number that was found by searching, or an interval that it lies in.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Bound {
    /// The number itself, if it is known.
    pub value: Option<u64>,
    /// It is not less than this: so much was seen to work.
    pub at_least: Option<u64>,
    /// It is not more than this: so much was seen not to work.
    pub at_most: Option<u64>,
    /// `requests`, `streams`, `bytes`, `ms`, `frames`.
    pub unit: String,
    /// How it is known, or why it is not known better.
    pub how: String,
}

impl Bound {
    /// The exact value.
    pub fn exact(value: u64, unit: &str, how: impl Into<String>) -> Self {
        let bound = Some(value);
        Self { value: bound, at_least: bound, at_most: bound, unit: unit.to_owned(), how: how.into() }
    }

    /// Between these two, if they are known.
    pub fn between(at_least: Option<u64>, at_most: Option<u64>, unit: &str, how: impl Into<String>) -> Self {
        Self { value: None, at_least, at_most, unit: unit.to_owned(), how: how.into() }
    }
}

/// What a server takes at most. What was not looked for, or does not apply, is null.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct ServerLimits {
    /// Requests on one connection of HTTP/2 before it ends.
    pub requests_per_connection: Option<Bound>,
    /// Requests on one connection of HTTP/1.1 before it ends.
    pub h1_requests_per_connection: Option<Bound>,
    /// `SETTINGS_MAX_CONCURRENT_STREAMS`.
    pub concurrent_streams_advertised: Option<Bound>,
    /// Streams that were really served at a time.
    pub concurrent_streams: Option<Bound>,
    /// How long a connection of HTTP/2 may be idle, in ms.
    pub idle_ms: Option<Bound>,
    /// How long a connection of HTTP/1.1 may be idle, in ms.
    pub h1_idle_ms: Option<Bound>,
    /// `SETTINGS_MAX_HEADER_LIST_SIZE`.
    pub header_list_advertised: Option<Bound>,
    /// The longest value of one header field that is taken, in bytes.
    pub header_field: Option<Bound>,
    /// Bytes of names and values of many fields that are taken together.
    #[serde(default)]
    pub header_block: Option<Bound>,
    /// The longest body that is not answered 413.
    pub request_body: Option<Bound>,
    /// PINGs in a row that are answered.
    pub pings: Option<Bound>,
    /// The longest DATA frame that the server sent.
    pub data_frame: Option<Bound>,
    /// Bytes of a body that it takes before it returns credit for its stream.
    pub stream_credit: Option<Bound>,
    /// The stream window that it opens with, in bytes.
    pub stream_window: Option<Bound>,
    /// The connection window that it opens with, in bytes.
    pub connection_window: Option<Bound>,
    /// What the stream window had grown to at its largest, in bytes.
    pub largest_stream_window: Option<Bound>,
}

/// Whether a point of a checklist is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mark {
    /// Nothing to do.
    Ticked,
    /// Something to do.
    Crossed,
    /// It could not be decided from here.
    Open,
}

/// A point of a checklist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChecklistItem {
    /// What is to be settled.
    pub item: String,
    /// Whether it is.
    pub mark: Mark,
    /// Why.
    pub why: String,
    /// The checks that it follows from.
    pub checks: Vec<String>,
}

/// What a probe found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeReport {
    /// What was probed: its URL, or the command.
    pub target: String,
    /// What kind of thing it is.
    pub subject: Subject,
    /// The software that it says it is, from its `server` field.
    pub software: Option<String>,
    /// All checks, in the order of their groups.
    pub checks: Vec<Check>,
    /// What it takes at most.
    pub limits: ServerLimits,
    /// What is left to do before a migration to h2c; empty if that was not looked at.
    pub checklist: Vec<ChecklistItem>,
    /// Each offer of h2c that was made to a proxy, with what both sides saw of it; empty if there were none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Observation>,
    /// What was sent.
    pub spent: Spent,
    /// Warnings about the probe itself.
    pub warnings: Vec<String>,
    /// The version of h2lab.
    pub version: String,
}

impl ProbeReport {
    /// Whether the server was found to speak any protocol.
    pub fn speaks_any(&self) -> bool {
        let protocols = [id::PROT101, id::PROT103, id::PROT104, id::PROT105, id::PROT106];
        let is_spoken = |check: &Check| {
            check.verdict == Verdict::Pass && protocols.iter().any(|protocol| protocol.id == check.id)
        };
        self.checks.iter().any(is_spoken)
    }

    /// The checks that failed with at least this severity.
    pub fn failed(&self, severity: Severity) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(move |check| check.is_at_least(severity))
    }

    /// How many checks have this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.checks.iter().filter(|check| check.verdict == verdict).count()
    }
}

//! What is to be checked of a server, and what is known of it so far.

use std::time::Duration;

use h2lab_model::probe::server::Answer;
use h2lab_model::probe::{Check, CheckMeta, ServerLimits, Verdict};
use h2lab_model::workload::Protocol;

use crate::probe::{Prober, Result};

/// What is known of the server so far.
#[derive(Debug, Default)]
pub struct UrlResults {
    pub checks: Vec<Check>,
    pub limits: ServerLimits,
    pub warnings: Vec<String>,
    /// Its `server` field.
    pub software: Option<String>,
    /// What its `alt-svc` field announces.
    pub alt_svc: Option<String>,
    /// HTTP/1.1, if it speaks that, and its answer.
    pub h1: Option<Protocol>,
    pub h1_answer: Option<Answer>,
    /// HTTP/2, if it speaks that at once, and its answer.
    pub h2: Option<Protocol>,
    pub h2_answer: Option<Answer>,
    /// Whether it switches to h2c by an upgrade.
    pub upgrades: bool,
    /// What became of a POST that expects 100-continue.
    pub expected: Vec<(Protocol, Answer)>,
    pub h3: bool,
    /// The response of the path is so large that it is requested in full only once.
    pub is_large: bool,
}

/// A response above this is large, in bytes of its body.
const LARGE: u64 = 1 << 20;
/// What is read of a large response once that is known.
const READ_OF_LARGE: u64 = 128 << 10;

impl UrlResults {
    pub fn add(&mut self, check: Check) {
        self.checks.push(check);
    }

    /// Adds a check, or why it could not be made; what must end the whole probe is passed on as an error.
    pub fn decide(&mut self, meta: &CheckMeta, check: impl FnOnce(&mut Self) -> Result<Check>) -> Result<()> {
        let check = check(self);
        self.add(decided(meta, check)?);
        Ok(())
    }

    /// Notes how large the response of the path is: a large one is not fetched again and again.
    pub fn weigh(&mut self, prober: &mut Prober, answer: &Answer) {
        let announced = answer.field("content-length").and_then(|length| length.parse().ok());
        if announced.unwrap_or(0).max(answer.body_bytes) > LARGE {
            self.is_large = true;
            prober.most_read = READ_OF_LARGE;
        }
    }

    /// The names of what it speaks.
    pub fn spoken(&self) -> Vec<String> {
        let protocols = [self.h1, self.h2].into_iter().flatten().map(|protocol| protocol.to_string());
        let more = [(self.upgrades, "h2c by upgrade"), (self.h3, "h3 (UDP)")];
        protocols.chain(more.into_iter().filter(|(is, _)| *is).map(|(_, name)| name.to_owned())).collect()
    }

    /// The method of requests where only the number matters.
    pub const fn method(&self) -> &'static str {
        if self.is_large { "HEAD" } else { "GET" }
    }
}

/// What to check of a server beyond its protocols.
#[derive(Debug, Clone, Default)]
pub struct CheckOptions {
    /// Other ports of the host, to be checked for their protocols.
    pub ports: Vec<u16>,
    /// How long idle connections are watched at most.
    pub idle: Duration,
    /// Whether attacks are made.
    pub resistance: bool,
    /// The server's process, if its memory is to be watched during attacks.
    pub pid: Option<u32>,
}

/// The check, or why it could not be made; what must end the whole probe is passed on as an error.
pub fn decided(meta: &CheckMeta, check: Result<Check>) -> Result<Check> {
    match check {
        Ok(check) => Ok(check),
        Err(error) if error.ends_it() => Err(error),
        Err(error) => Ok(Check::new(meta, Verdict::Undecided, error.to_string())),
    }
}

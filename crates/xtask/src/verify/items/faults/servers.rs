//! The hostile servers, as data that their program reads too.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Deserialize;

/// What a server can be found to answer by a client that makes no mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answers {
    /// No request completely.
    None,
    /// Some requests.
    Some,
    /// Every request, with a success.
    All,
    /// Every request, with a status that is none.
    Refused,
    /// Every request, with a redirection, which is a success for whoever measures and none for whoever wants a file.
    Redirect,
}

/// One row. What it does is read by the program alone: `crates/h2lab/examples/hostile`.
#[derive(Debug, Clone, Deserialize)]
pub struct Server {
    /// What it does, for people.
    pub is: String,
    /// Over what: each is a server of its own.
    pub speaks: Vec<String>,
    /// What it answers.
    pub answers: Answers,
    /// Exit codes of commands for which that does not hold.
    #[serde(default)]
    pub codes: BTreeMap<String, Vec<i32>>,
    /// Why.
    pub because: Option<String>,
}

/// All of them by name.
pub fn all() -> Result<BTreeMap<String, Server>> {
    toml::from_str(include_str!("../../../../../h2lab/examples/hostile/servers.toml"))
        .context("crates/h2lab/examples/hostile/servers.toml")
}

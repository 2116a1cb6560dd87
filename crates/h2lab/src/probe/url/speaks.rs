//! What a server speaks.

use h2lab_core::probe::{Check, Verdict, id};
use h2lab_core::workload::Protocol;

use super::decided;
use crate::client::url::Url;
use crate::probe::ask::{Question, Way, ask};
use crate::probe::{ProbeError, Prober};

/// What was found.
#[derive(Debug, Default)]
pub struct Spoken {
    /// The checks, in their order.
    pub checks: Vec<Check>,
    /// The `server` field of the first answer that has one.
    pub software: Option<String>,
}

/// Tries each protocol that the URL's scheme allows.
pub fn look(prober: &mut Prober, url: &Url) -> Result<Spoken, ProbeError> {
    let mut spoken = Spoken::default();
    let http1 = if url.is_tls() { Protocol::H1s } else { Protocol::H1 };
    let check = http1_check(prober, http1, &mut spoken);
    spoken.checks.push(decided(id::PROT101, check)?);
    Ok(spoken)
}

fn http1_check(prober: &mut Prober, protocol: Protocol, spoken: &mut Spoken) -> Result<Check, ProbeError> {
    let path = prober.host.path.clone();
    let answer = ask(prober, Way::Plain(protocol), &Question::get(&path))?;
    if spoken.software.is_none() {
        spoken.software = answer.field("server").map(str::to_owned);
    }
    let verdict = if answer.status > 0 { Verdict::Pass } else { Verdict::Fail };
    let summary = format!("{protocol}: {}", answer.outcome());
    Ok(Check::new(id::PROT101, verdict, summary).with("one request of HTTP/1.1", answer.exhibits))
}

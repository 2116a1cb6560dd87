//! CONN101: the server ends each connection after a fixed number of requests.

#[cfg(test)]
mod tests;

use super::conn::CONN101 as META;
use super::views::ends::{Cost, Ends, LONG_AGE_MS};
use super::views::more_connections;
use super::views::quota::{Quota, quota};
use crate::diagnose::case::started;
use crate::diagnose::{Case, Confidence, Evidence, Finding, Rule};
use h2lab_base::counts::{count, plural};
use h2lab_base::units::measured_time;
use h2lab_model::Fix;
use h2lab_model::scenario::Cell;
use h2lab_model::settings::{Knob, Role, written};

/// A connection should take at least this many requests: then its handshake costs little.
pub(super) const ENOUGH: u64 = 100_000;
/// Why the idle timeout comes before a limit of requests, where it may be either of them.
const FIRST: &str = "look for this first: 0 ends each connection with its first request";
/// Why a setting is the fix, where it is known to be the one.
const SINGLE: &str = "connections end with their first request here";
/// An idle timeout of a minute.
const IDLE_MS: u64 = 60_000;

/// The rule.
#[derive(Debug)]
pub(super) struct RequestQuota;

impl Rule for RequestQuota {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let Some(quota) = quota(&case.repetitions) else { return Vec::new() };
        // Where no request gets an answer, fewer ends of connections would help none.
        let mut samples = case.samples().peekable();
        if samples.peek().is_some() && !samples.any(|sample| sample.first_byte_at.happened()) {
            return Vec::new();
        }
        let cost = Cost::of(&case.repetitions, Ends::by_server);
        let is_worth = !cost.is_known() || case.is_worth(cost.whole());
        vec![Finding {
            symptom: symptom(&quota, &cost),
            evidence: evidence(&quota).into_iter().chain(cost.evidence()).collect(),
            cost: cost.sentence() + if is_worth { "" } else { "; too little to change a setting for" },
            // If the server does not name the last request, or something else fits as well, a step is inferred.
            confidence: if quota.is_named && quota.age.is_none() && !quota.is_at_once {
                Confidence::Observed
            } else {
                Confidence::Inferred
            },
            fixes: if is_worth { fixes(case, &quota, &cost) } else { Vec::new() },
            confirm: confirm(case.cell(), &quota),
            ..case.finding_of_share(&META, cost.share())
        }]
    }
}

fn symptom(quota: &Quota<'_>, cost: &Cost) -> String {
    let how = if quota.first.goaway { "GOAWAY" } else { "closing" };
    let after = match quota.requests {
        1 => "their only request".to_owned(),
        n if quota.is_named && quota.is_exact() => format!("exactly {} requests each", count(n.into())),
        _ => format!("{} requests each", quota.words()),
    };
    let age = quota.age.map(measured_time).map_or(String::new(), |age| {
        format!(", at an age of {age}: a limit of requests or of age: at an even rate both look alike")
    });
    let at_once = if quota.is_at_once {
        ", all at one moment: a limit of requests, or a restart that met an even load"
    } else {
        ""
    };
    let useless = match cost.useless {
        0 => String::new(),
        n => format!(", {} of which carried no request", count(n as u64)),
    };
    let stampede = if is_stampede(quota, cost) { ": each waiting caller dialled its own" } else { "" };
    format!(
        "the server ended {} by {how} after {after}{age}{at_once}; {} {} opened{useless}{stampede}",
        plural(quota.agreeing as u64, "connection"),
        count(cost.opened as u64),
        if cost.opened == 1 { "was" } else { "were" }
    )
}

/// Whether at least one dial was useless for each connection that ended. A client that dials once for all waiting
/// requests has one connection to spare at the end of the load, when no request waits any more.
const fn is_stampede(quota: &Quota<'_>, cost: &Cost) -> bool {
    cost.useless >= quota.agreeing && cost.useless > 0
}

fn evidence(quota: &Quota<'_>) -> Vec<Evidence> {
    let after = "requests after which the server ended a connection";
    let after = Evidence::new(after, quota.requests.into(), "requests");
    let mut evidence = vec![after.seen(quota.first.connection, quota.first.at)];
    if !quota.is_exact() {
        let least = "it is not fewer, by what had been answered when the server ended it";
        evidence.push(Evidence::new(least, quota.least.into(), "requests"));
    }
    evidence.extend(Evidence::list([
        ("connections that it ended after just as many", quota.agreeing as f64, "connections"),
        ("connections that it ended in all", quota.ends as f64, "connections"),
    ]));
    evidence
}

/// What to change: the server's limit, by its name if known, and the client's reaction.
fn fixes(case: &Case<'_>, quota: &Quota<'_>, cost: &Cost) -> Vec<Fix> {
    let goaway = quota.first.goaway;
    // An idle timeout of 0 looks like a limit of 1, and is more usual.
    let may_be_idle = quota.requests == 1 && !is_idle_long(case);
    let may_be_limit = !may_be_idle || !is_changed(case, limit_knob(quota));
    let idle =
        because(if may_be_limit { FIRST } else { SINGLE }, case.advise(Knob::H2IdleTimeout, Some(IDLE_MS)));
    let age = because("if it is their age", case.advise(Knob::ConnectionAge, Some(LONG_AGE_MS)));
    let again = Fix::new(
        "client",
        "send again what a GOAWAY left unprocessed",
        "streams above its last were not begun, so that any request may be sent again (RFC 9113 §6.8)",
    );
    let dials = Fix::new(
        "client",
        "one dial for all who wait (single-flight)",
        "no connection is opened that carries nothing; Go's net/http and others dial for each caller that waits",
    );
    // Over HTTP/1.1 there are as many connections as requests in flight.
    let more = more_connections(None, "they end one after another, and no request waits for the only one");
    [
        may_be_idle.then_some(idle),
        may_be_limit.then(|| limit(case, quota, may_be_idle)),
        quota.age.map(|_| age),
        (goaway && cost.lost > 0).then_some(again),
        is_stampede(quota, cost).then_some(dials),
        goaway.then_some(more),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The same fix, with its reason in this case first.
fn because(words: &str, fix: Fix) -> Fix {
    Fix { why: format!("{words}; {}", fix.why), ..fix }
}

/// The setting that limits the requests of the connections that ended.
const fn limit_knob(quota: &Quota<'_>) -> Knob {
    if quota.first.goaway { Knob::H2Requests } else { Knob::H1Requests }
}

/// Whether this setting of the server was changed: then it is not what still ends connections.
fn is_changed(case: &Case<'_>, knob: Knob) -> bool {
    case.cell().setup.changes.iter().any(|change| change.knob == knob)
}

/// Whether idle connections are known to stay open: our own configurations keep them.
fn is_idle_long(case: &Case<'_>) -> bool {
    let cell = case.cell();
    let is_ours = started(cell).is_some() && (cell.sidecar.is_some() || cell.setup.config.is_none());
    is_ours || is_changed(case, Knob::H2IdleTimeout)
}

/// The setting of the server that was seen, and a limit that costs little. It may be the idle timeout instead if `may_be_idle`.
fn limit(case: &Case<'_>, quota: &Quota<'_>, may_be_idle: bool) -> Fix {
    let knob = limit_knob(quota);
    let requests = u64::from(quota.requests);
    let fix = case.advise(knob, Some(ENOUGH.max(10 * requests)));
    let words = quota.words();
    if fix.has_setting() {
        if requests == 1 {
            return because(
                if may_be_idle { "if the idle timeout is not 0, this is 1" } else { SINGLE },
                fix,
            );
        }
        let written = written(&case.peer(), knob, Role::Front, requests).filter(|_| quota.is_exact());
        let written = written.map_or(String::new(), |written| format!(", which is {written} written"));
        return because(&format!("connections end after {words} requests here{written}"), fix);
    }
    let why = format!(
        "{}; look in its manual, and in that of a proxy in front of it, for a limit of {words} requests, or of one \
         less: some do not count the first",
        fix.why
    );
    Fix { why, ..fix }
}

/// The experiment that must make the ends disappear, or distinguish a limit of requests from one of age.
fn confirm(cell: &Cell, quota: &Quota<'_>) -> String {
    let words = quota.words();
    if quota.is_at_once {
        return format!(
            "run the same cell for longer: a limit ends the next connections after {words} requests, too; a restart does not"
        );
    }
    if let Some(age) = quota.age.map(measured_time) {
        return format!(
            "run the same cell at half the rate: connections that end after {words} requests again have a limit of \
             requests, those that end at {age} again one of age"
        );
    }
    format!(
        "raise the limit that ends connections of {} after {words} requests and run the same cell again: connections \
         opened must fall to the {} that were asked for",
        started(cell).unwrap_or_else(|| cell.target.name()),
        cell.connections
    )
}

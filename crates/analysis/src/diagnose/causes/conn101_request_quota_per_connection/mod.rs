//! CONN101: the server ends each connection after a fixed number of requests.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use super::conn::CONN101 as META;
use super::views::ends::{self, Cost, End, Ends, has_several_moments};
use super::views::more_connections;
use crate::diagnose::case::started;
use crate::diagnose::{Case, Confidence, Evidence, Finding, Repetition, Rule};
use h2lab_base::counts::{count, plural};
use h2lab_base::units::{Time, measured_time};
use h2lab_model::Fix;
use h2lab_model::record::Sample;
use h2lab_model::scenario::Cell;
use h2lab_model::settings::{Knob, Peer, Role, Wish, advise};
use h2lab_wire::trace::ServerEnd;

/// The rule.
#[derive(Debug)]
pub(super) struct RequestQuota;

impl Rule for RequestQuota {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let Some(quota) = quota(&case.repetitions) else { return Vec::new() };
        let cost = Cost::of(&case.repetitions, Ends::by_server);
        let is_worth = !cost.is_known() || case.is_worth(cost.whole());
        vec![Finding {
            symptom: symptom(&quota, &cost),
            evidence: quota.evidence().into_iter().chain(cost.evidence()).collect(),
            cost: cost.sentence() + if is_worth { "" } else { "; too little to change a setting for" },
            // If the server does not name the last request, or something else fits as well, a step is inferred.
            confidence: if quota.is_named && quota.age.is_none() && !quota.is_at_once {
                Confidence::Observed
            } else {
                Confidence::Inferred
            },
            fixes: if is_worth { fixes(&case.peer(), &quota, &cost) } else { Vec::new() },
            confirm: confirm(case.cell(), &quota),
            ..case.finding_of_share(&META, cost.share())
        }]
    }
}

fn symptom(quota: &Quota<'_>, cost: &Cost) -> String {
    let how = if quota.first.goaway { "GOAWAY" } else { "closing" };
    let (ended, opened, useless) = (quota.agreeing, cost.opened, cost.useless);
    let is_exact = quota.is_named && quota.is_exact();
    let after = match quota.requests {
        1 => "their only request".to_owned(),
        requests if is_exact => format!("exactly {} requests each", count(u64::from(requests))),
        _ => format!("{} requests each", quota.words()),
    };
    let at_once = if quota.is_at_once {
        ", all at one moment: a limit of requests, or a restart that met an even load"
    } else {
        ""
    };
    let age = quota.age.map_or(String::new(), |age| {
        format!(
            ", at an age of {}: a limit of requests or of age: at an even rate both look alike",
            measured_time(age)
        )
    });
    let mut symptom = format!(
        "the server ended {} by {how} after {after}{age}{at_once}; {} {} opened",
        plural(ended as u64, "connection"),
        count(opened as u64),
        if opened == 1 { "was" } else { "were" }
    );
    if useless > 0 {
        let _ = write!(symptom, ", {} of which carried no request", count(useless as u64));
    }
    if is_stampede(quota, cost) {
        symptom.push_str(": each waiting caller dialled its own");
    }
    symptom
}

/// Whether at least one dial was useless for each connection that ended. A client that dials once for all waiting
/// requests has one connection to spare at the end of the load, when no request waits any more.
const fn is_stampede(quota: &Quota<'_>, cost: &Cost) -> bool {
    cost.useless >= quota.agreeing && cost.useless > 0
}

/// A quota ends a connection within this time, or within a quarter of a round trip, after the request that fills it: a
/// server ends it when that request arrives or is answered, and a busy machine takes a few milliseconds.
const PROMPT: Duration = Duration::from_millis(5);

/// At least this many connections that end at one moment after exactly the same number of requests may have met a
/// limit: an even load is hardly that even by chance.
const AT_ONCE: usize = 4;

/// Lifetimes that differ by less than this, or by less than the longest divided by [`AGE_STEP`], may be those of a
/// timer.
const TIMER: Duration = Duration::from_millis(5);
/// Nobody would set a shorter maximum age: products count it in seconds.
const SHORTEST_AGE: Duration = Duration::from_millis(500);
/// A timer may be inexact by a lifetime divided by this number.
const AGE_STEP: u32 = 100;

/// At least this many HTTP/2 connections that end after their only request indicate a server that keeps none open.
const LEAST_SINGLE: usize = 5;

/// A range no wider than its upper end divided by this may be reported as a number.
const NARROW: u32 = 20;

/// A number of requests after which connections end.
pub(super) struct Quota<'a> {
    requests: u32,
    /// The quota is not smaller than this: where several requests were in flight, the server may have decided before
    /// the last of them.
    least: u32,
    /// Whether the server said which request was the last.
    is_named: bool,
    /// The age at which all connections ended, if a maximum age explains their ends as well.
    age: Option<Duration>,
    /// Whether all ended at one moment, as in a restart.
    is_at_once: bool,
    /// Connections that ended after exactly this number.
    agreeing: usize,
    /// Connections that the server ended in all.
    ends: usize,
    /// One of them.
    first: &'a ServerEnd,
}

/// The quota, if there is one: two or more connections ended after the same number of requests, right after the last of
/// them, not all at one moment, and they are more than half of those that the server ended.
///
/// A maximum age ends a connection some time after its last request. A reload ends all connections at once. If these
/// share an even load, they have then had about as many requests, some of them exactly as many: only if all of them had
/// exactly as many is a quota as likely. A "quota" of one request means a server that keeps no connection open; over
/// HTTP/1.1 the cause of that is its idle timeout.
///
/// A server that announces the end without naming the last request leaves a range on each connection: the quota lies
/// where most ranges overlap. The largest number there is reported, since the client receives the announcement late.
pub(super) fn quota<'a>(repetitions: &'a [Repetition<'_>]) -> Option<Quota<'a>> {
    let ends = ends::all(repetitions);
    let prompt = |(repetition, end): &&End<'_>| end.idle <= PROMPT.max(repetition.facts().rtt / 4);
    let prompt: Vec<End<'a>> = ends.iter().filter(prompt).copied().collect();
    let requests = shared_by_most(prompt.iter().map(|(_, end)| *end))?;
    let agreeing: Vec<End<'a>> = prompt.iter().filter(|(_, end)| end.allows(requests)).copied().collect();
    let is_named = agreeing.iter().all(|(_, end)| end.least == end.requests);
    // A request that had been answered did not make the server end the connection.
    let least = |end: &ServerEnd| if is_named { requests.min(end.answered + 1) } else { end.least };
    let least = agreeing.iter().map(|(_, end)| least(end)).max()?;
    let age = if is_named { maximum_age(repetitions, &prompt) } else { None };
    // With a maximum age, connections have had different numbers of requests, and some the same by chance.
    let is_age = age.is_some() && agreeing.len() < prompt.len();
    let (all, first) = (ends.len(), agreeing.first()?.1);
    let is_at_once = !has_several_moments(&agreeing);
    let all_agree = is_named && agreeing.len() == all && all >= AT_ONCE;
    let quota =
        Quota { requests, least, is_named, age, is_at_once, agreeing: agreeing.len(), ends: all, first };
    let is_single = requests == 1 && first.goaway && agreeing.len() >= LEAST_SINGLE;
    let is_quota =
        (requests >= 2 || is_single) && agreeing.len() * 2 > all && (!is_at_once || all_agree) && !is_age;
    (is_quota && (is_named || is_reported_by_ranges(&quota, &agreeing))).then_some(quota)
}

/// The age at which all of `ends` may have come: they differ by no more than the inexactness of a timer plus the
/// interval between requests, with which a server notices that the age is reached. `None` if a connection sent a
/// request at a greater age.
fn maximum_age(repetitions: &[Repetition<'_>], ends: &[End<'_>]) -> Option<Duration> {
    let ages = || ends.iter().map(|(_, end)| end.age);
    let (shortest, longest) = (ages().min()?, ages().max()?);
    let between_requests = |(_, end): &End<'_>| end.age / end.requests.max(1);
    let step = ends.iter().map(between_requests).max()?;
    let inexact = TIMER.max(longest / AGE_STEP) + step;
    let is_one_age = shortest >= SHORTEST_AGE && longest <= shortest + inexact;
    let is_older = |repetition: &Repetition<'_>| {
        let connections = &repetition.record.connections;
        let connected: BTreeMap<u32, Time> = connections.iter().map(|c| (c.index, c.connected_at)).collect();
        let outlives = |sample: &Sample| {
            let connected = connected.get(&sample.connection);
            sample.sent_at.happened()
                && connected.is_some_and(|at| sample.sent_at.since(*at) > longest + inexact)
        };
        repetition.record.samples.iter().any(|sample| outlives(&sample))
    };
    (is_one_age && !repetitions.iter().any(is_older)).then_some(longest)
}

/// The number of requests that is in most of the ranges of `ends`; the largest if several are. There may be an end for
/// each request.
fn shared_by_most<'a>(ends: impl Iterator<Item = &'a ServerEnd>) -> Option<u32> {
    let (mut least, mut most): (Vec<u32>, Vec<u32>) = ends.map(|end| (end.least, end.requests)).unzip();
    least.sort_unstable();
    most.sort_unstable();
    let containing = |requests: u32| {
        let begun = least.partition_point(|least| *least <= requests);
        begun - most.partition_point(|most| *most < requests)
    };
    most.iter().copied().max_by_key(|&requests| (containing(requests), requests))
}

/// Whether the ranges are enough to report a quota: three or more overlap in an interval no wider than half of the
/// number, and the lifetimes of the connections do not all agree as with a timer.
fn is_reported_by_ranges(quota: &Quota<'_>, agreeing: &[End<'_>]) -> bool {
    let ages = || agreeing.iter().map(|(_, end)| end.age);
    let (Some(shortest), Some(longest)) = (ages().min(), ages().max()) else { return false };
    let is_timer = longest.saturating_sub(shortest) <= TIMER.max(longest / AGE_STEP);
    quota.agreeing >= 3 && quota.least >= quota.requests / 2 && !is_timer
}

impl Quota<'_> {
    /// Whether only one number is possible.
    const fn is_exact(&self) -> bool {
        self.least == self.requests
    }

    /// The number, as closely as it is known: `1000`, `306 to 310`, `about 1000`, `between 101 and 200`.
    fn words(&self) -> String {
        let Self { requests, least, .. } = *self;
        match requests.saturating_sub(least) {
            0 => requests.to_string(),
            _ if self.is_named => format!("{least} to {requests}"),
            width if width * NARROW <= requests => format!("about {requests}"),
            _ => format!("between {least} and {requests}"),
        }
    }

    fn evidence(&self) -> Vec<Evidence> {
        let after = "requests after which the server ended a connection";
        let mut evidence = vec![
            Evidence::new(after, self.requests.into(), "requests").seen(self.first.connection, self.first.at),
        ];
        if !self.is_exact() {
            let least = "it is not fewer, by what had been answered when the server ended it";
            evidence.push(Evidence::new(least, self.least.into(), "requests"));
        }
        let just = "connections that it ended after just as many";
        evidence.push(Evidence::new(just, self.agreeing as f64, "connections"));
        let all = "connections that it ended in all";
        evidence.push(Evidence::new(all, self.ends as f64, "connections"));
        evidence
    }
}

/// A connection should take at least this many requests: then its handshake costs little.
const ENOUGH: u64 = 100_000;
/// An idle timeout of a minute.
const IDLE_MS: u64 = 60_000;
/// A maximum age that costs little: an hour.
const LONG_AGE_MS: u64 = 3_600_000;

/// What to change: the server's limit, by its name if known, and the client's reaction.
fn fixes(peer: &Peer, quota: &Quota<'_>, cost: &Cost) -> Vec<Fix> {
    let goaway = quota.first.goaway;
    let server = server_fix(peer, quota);
    let again = Fix::new(
        "client",
        "send again what a GOAWAY left unprocessed",
        "streams above its last were not begun, so that any request may be sent again (RFC 9113 §6.8)",
    );
    // Over HTTP/1.1 there are as many connections as requests in flight.
    let more = more_connections(None, "they end one after another, and no request waits for the only one");
    let dials = Fix::new(
        "client",
        "one dial for all who wait (single-flight)",
        "no connection is opened that carries nothing; Go's net/http and others dial for each caller that waits",
    );
    let is_lossy = goaway && cost.lost > 0;
    [
        (quota.requests == 1).then(|| idle_fix(peer)),
        Some(server),
        quota.age.map(|_| age_fix(peer)),
        is_lossy.then_some(again),
        is_stampede(quota, cost).then_some(dials),
        goaway.then_some(more),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The setting of the server that was seen, and a limit that costs little.
fn server_fix(peer: &Peer, quota: &Quota<'_>) -> Fix {
    let knob = if quota.first.goaway { Knob::H2Requests } else { Knob::H1Requests };
    let value = ENOUGH.max(10 * u64::from(quota.requests));
    let fix = advise(peer, Wish { knob, role: Role::Front, value: Some(value) });
    let words = quota.words();
    let noun = if quota.requests == 1 { "request" } else { "requests" };
    let why = if fix.has_setting() {
        format!("connections end after {words} {noun} here; {}", fix.why)
    } else {
        format!(
            "{}; look in its manual, and in that of a proxy in front of it, for a limit of {words} requests, or of one \
             less: some do not count the first",
            fix.why
        )
    };
    Fix { why, ..fix }
}

/// The setting of the idle timeout: if it is 0, a server keeps no connection open.
fn idle_fix(peer: &Peer) -> Fix {
    let fix = advise(peer, Wish { knob: Knob::H2IdleTimeout, role: Role::Front, value: Some(IDLE_MS) });
    Fix { why: format!("if it is 0, connections end with their first request; {}", fix.why), ..fix }
}

/// The setting of a maximum age.
fn age_fix(peer: &Peer) -> Fix {
    let fix = advise(peer, Wish { knob: Knob::ConnectionAge, role: Role::Front, value: Some(LONG_AGE_MS) });
    Fix { why: format!("if it is their age; {}", fix.why), ..fix }
}

/// The experiment that must make the ends disappear, or distinguish a limit of requests from one of age.
fn confirm(cell: &Cell, quota: &Quota<'_>) -> String {
    let words = quota.words();
    if quota.is_at_once {
        return format!(
            "run the same cell for longer: a limit ends the next connections after {words} requests, too; a restart does not"
        );
    }
    if let Some(age) = quota.age {
        return format!(
            "run the same cell at half the rate: connections that end after {words} requests again have a limit of \
             requests, those that end at {} again one of age",
            measured_time(age)
        );
    }
    format!(
        "raise the limit that ends connections of {} after {words} requests and run the same cell again: connections \
         opened must fall to the {} that were asked for",
        started(cell).unwrap_or_else(|| cell.target.name()),
        cell.connections
    )
}

//! PROXY101: a proxy asks its upstream for one thing at a time on each connection, and has too few of these, or dials one
//! for each request.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::proxy::PROXY101 as META;
use crate::diagnose::{Case, Confidence, Evidence, Finding, Repetition, Rule};
use h2lab_base::counts::{count, plural};
use h2lab_base::units::{Time, millis_f64};
use h2lab_model::Fix;
use h2lab_model::record::OriginCounts;
use h2lab_model::scenario::Target;
use h2lab_model::settings::{Knob, Role, Wish, advise};

/// Fewer requests may be those of a pool that is being filled.
const LEAST: u64 = 100;
/// The upstream connections are the limit if all of them had a request for this part of the time: it includes the start
/// of the load.
const BUSY: f64 = 0.8;
/// Half of the requests must be in the proxy for this many times as long as the upstream takes for one: where only some
/// are, a lost segment held them on the link.
const IN_PROXY: f64 = 1.5;
/// With as many connections for each request, the proxy dials for every second request or more.
const DIALS: f64 = 0.5;

/// The rule.
#[derive(Debug)]
pub(super) struct NoMultiplexingUpstream;

impl Rule for NoMultiplexingUpstream {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let cell = case.cell();
        let is_proxied = matches!(cell.target, Target::Sut { .. }) && cell.sidecar.is_none();
        if !is_proxied || !cell.protocol.is_multiplexed() {
            return Vec::new();
        }
        let mut asked = Asked::default();
        for repetition in &case.repetitions {
            let server = repetition.record.server.as_ref();
            let Some(counts) = server.and_then(|server| server.origin.as_ref()) else { continue };
            asked.add(repetition, counts);
        }
        if asked.requests < LEAST || asked.multiplexed > 0 {
            return Vec::new();
        }
        if case.is_worth_time(asked.waited) {
            return vec![finding(case, &asked)];
        }
        asked.is_dialled().then(|| observation(case, &asked)).into_iter().collect()
    }
}

/// How the proxy asked its upstream, in all repetitions.
#[derive(Debug, Default)]
struct Asked {
    requests: u64,
    connections: u64,
    /// Of these, connections that can carry several requests at a time.
    multiplexed: u64,
    /// The most requests that the upstream had at a time: one on each connection.
    most: u64,
    /// The most that were in flight at the proxy's front.
    peak: u64,
    /// For how long connections of the upstream had a request, added up over them.
    busy: Duration,
    /// The same if all of the most had one all the time.
    whole: Duration,
    /// How long requests waited in the proxy while all upstream connections had another one.
    waited: Duration,
}

impl Asked {
    fn add(&mut self, repetition: &Repetition<'_>, counts: &OriginCounts) {
        self.requests += counts.requests;
        self.connections += counts.connections;
        self.multiplexed += counts.multiplexed;
        self.most = self.most.max(counts.most_busy);
        let busy = Duration::from_nanos(counts.busy_ns);
        let whole = Duration::from_nanos(counts.wall_ns).mul_f64(counts.most_busy as f64);
        self.busy += busy;
        self.whole += whole;
        let stays = stays(repetition);
        let (waited, peak) = waited(&stays, counts.most_busy);
        self.peak = self.peak.max(peak);
        let is_busy = counts.most_busy > 0 && busy.as_secs_f64() >= BUSY * whole.as_secs_f64();
        let of_one = busy.as_secs_f64() / counts.requests as f64;
        if is_busy && median(&stays).as_secs_f64() >= IN_PROXY * of_one {
            self.waited += waited;
        }
    }

    fn is_dialled(&self) -> bool {
        self.connections as f64 >= DIALS * self.requests as f64
    }

    fn evidence(&self) -> Vec<Evidence> {
        vec![
            Evidence::new("requests that reached the upstream", self.requests as f64, "requests"),
            Evidence::new("HTTP/1.1 connections for them", self.connections as f64, "connections"),
            Evidence::new("the most requests at the upstream at a time", self.most as f64, "requests"),
            Evidence::new("the most in flight at the proxy's front", self.peak as f64, "requests"),
        ]
    }
}

/// From when until when each request of a repetition was in the proxy, by its times at the client.
fn stays(repetition: &Repetition<'_>) -> Vec<(Time, Time)> {
    let one_way = repetition.facts().rtt / 2;
    let samples = repetition.record.samples.iter();
    let samples = samples.filter(|sample| sample.sent_at.happened() && sample.first_byte_at.happened());
    let stays = samples.map(|sample| (sample.sent_at + one_way, sample.first_byte_at - one_way));
    stays.filter(|(begin, end)| begin < end).collect()
}

fn median(stays: &[(Time, Time)]) -> Duration {
    let mut times: Vec<Duration> = stays.iter().map(|(begin, end)| end.since(*begin)).collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// How long requests waited in the proxy beyond the `most` that the upstream had at a time, and the most that were in the
/// proxy.
fn waited(stays: &[(Time, Time)], most: u64) -> (Duration, u64) {
    let mut changes: Vec<(Time, bool)> =
        stays.iter().flat_map(|(begin, end)| [(*begin, true), (*end, false)]).collect();
    changes.sort_unstable();
    let (mut waited, mut open, mut peak, mut last) = (Duration::ZERO, 0_u64, 0, Time::ZERO);
    for (at, is_begin) in changes {
        let more = u32::try_from(open.saturating_sub(most)).unwrap_or(u32::MAX);
        waited += at.since(last) * more;
        open = if is_begin { open + 1 } else { open - 1 };
        (last, peak) = (at, open.max(peak));
    }
    (waited, peak)
}

fn finding(case: &Case<'_>, asked: &Asked) -> Finding {
    let busy = 100.0 * asked.busy.as_secs_f64() / asked.whole.as_secs_f64();
    let front = if case.cell().protocol.is_quic() { "HTTP/3 connection" } else { "HTTP/2 connection" };
    let mut evidence = asked.evidence();
    evidence.extend([
        Evidence::new("part of the time in which each of these connections had one", busy, "%"),
        Evidence::new("time of requests in the proxy beyond these", millis_f64(asked.waited), "ms"),
    ]);
    Finding {
        symptom: format!(
            "{} asked its upstream over HTTP/1.1, one request at a time on each of at most {}, while up to {} were in flight on {}: \
             the others waited in it",
            case.cell().target.name(),
            plural(asked.most, "connection"),
            count(asked.peak),
            plural(case.cell().connections.into(), front),
        ),
        evidence,
        confidence: Confidence::Observed,
        fixes: fixes(case, asked),
        confirm: case.compare("").trim_end().to_owned()
            + ", before and after the change: requests no longer wait in the proxy",
        ..case.finding(&META, asked.waited, "in the proxy, for a connection to its upstream")
    }
}

/// Several requests at a time on a connection, or as many connections as requests, and these kept.
fn fixes(case: &Case<'_>, asked: &Asked) -> Vec<Fix> {
    let wish = |knob, value| advise(&case.peer(), Wish { knob, role: Role::Back, value });
    let mut fixes = vec![wish(Knob::UpstreamProtocol, None)];
    fixes.push(wish(Knob::UpstreamConnections, Some(asked.peak)));
    if asked.is_dialled() {
        fixes.push(kept(case, asked));
    }
    // One setting that there is says more than what there is not.
    if fixes.iter().any(Fix::has_setting) {
        fixes.retain(Fix::has_setting);
    }
    fixes
}

/// As many connections as requests, and these kept.
fn kept(case: &Case<'_>, asked: &Asked) -> Fix {
    let wish = Wish { knob: Knob::UpstreamKeepAlive, role: Role::Back, value: Some(asked.peak) };
    advise(&case.peer(), wish)
}

fn observation(case: &Case<'_>, asked: &Asked) -> Finding {
    Finding {
        symptom: format!(
            "{} opened {} to its upstream for {}: {:.1} requests on each, on average",
            case.cell().target.name(),
            plural(asked.connections, "connection"),
            plural(asked.requests, "request"),
            asked.requests as f64 / asked.connections as f64,
        ),
        evidence: asked.evidence(),
        cost:
            "an observation: what the dials took is not known, and no request is known to have waited longer"
                .to_owned(),
        explains: Some(0.0),
        confidence: Confidence::Observed,
        fixes: Some(kept(case, asked)).filter(Fix::has_setting).into_iter().collect(),
        confirm: case.compare("").trim_end().to_owned()
            + ", before and after connections to the upstream are kept: responses must begin sooner",
        ..case.finding_of_share(&META, 0.0)
    }
}

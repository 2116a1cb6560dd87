//! CONN104: each request that finds no usable connection dials its own, although one would carry them all.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use super::conn::CONN104 as META;
use super::views::dials::{self, Burst};
use super::views::streams_allowed;
use super::views::waiting::Waiting;
use crate::diagnose::{Case, Confidence, Evidence, Finding, Rule};
use h2lab_base::counts::{count, plural};
use h2lab_base::units::{Time, measured_time, millis_f64};
use h2lab_model::Fix;
use h2lab_model::record::{CellRecord, ConnectionRecord};
use h2lab_model::workload::DialPolicy;

/// At least this many dials must have been useless, over all repetitions: the end of a load causes one or two.
const LEAST_USELESS: usize = 4;

/// The rule.
#[derive(Debug)]
pub(super) struct DialStampede;

impl Rule for DialStampede {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let cell = case.cell();
        if !cell.protocol.is_multiplexed() || cell.sidecar.is_some() {
            return Vec::new();
        }
        // A pool of several connections dials that many when all of them have ended.
        let asked_for = cell.connections.max(1) as usize;
        let mut total = Total::default();
        for record in case.records() {
            let mut stampedes = dials::bursts(record);
            stampedes
                .retain(|burst| burst.dials.len() > asked_for && burst.useless() * 2 >= burst.dials.len());
            total.add(record, &stampedes);
        }
        (total.useless >= LEAST_USELESS).then(|| total.finding(case)).into_iter().collect()
    }
}

/// A stampede whose connections carry one request each, as with clients that dial for each request and keep one of the
/// connections. Only where all connections belong to one client: in a capture at a server they may belong to many,
/// which cannot share them.
pub(in crate::diagnose) fn of_one_client(case: &Case<'_>) -> Option<Finding> {
    let bursts: Vec<Burst<'_>> = case.records().flat_map(dials::bursts).collect();
    // The largest one: the others have the same cause.
    let burst = bursts.iter().max_by_key(|burst| burst.dials.len())?;
    let first = burst.dials.iter().min_by_key(|dial| dial.ready_at)?;
    let requests: u32 = burst.dials.iter().map(|dial| dial.requests).sum();
    // The connection that is kept need not be the first that was ready.
    let kept = burst.dials.iter().max_by_key(|dial| (dial.requests, dial.index == first.index))?;
    let is_needless = |dial: &&&ConnectionRecord| {
        dial.index != kept.index && dial.requests <= 1 && dial.remote_port == first.remote_port
    };
    let needless: Vec<&&ConnectionRecord> = burst.dials.iter().filter(is_needless).collect();
    // Of a connection that carried nothing, the SETTINGS may be unknown: those of the others are the same.
    let allowed = burst.dials.iter().filter_map(|dial| streams_allowed(dial)).min();
    let would_carry = first.ready_at.happened() && allowed.is_none_or(|most| most >= requests);
    if needless.len() < LEAST_USELESS || needless.len() + 1 < burst.dials.len() || !would_carry {
        return None;
    }
    let begin = burst.begin();
    let within = burst.dials.last()?.dialled_at.since(begin);
    let wait = first.ready_at.since(begin);
    let beyond =
        |dial: &&&ConnectionRecord| dial.ready_at.happened().then(|| dial.ready_at.since(first.ready_at));
    let excess: Duration = needless.iter().filter(|dial| dial.requests > 0).filter_map(beyond).sum();
    let at_once = Evidence::new("connections dialled at once", burst.dials.len() as f64, "connections");
    let others = Evidence::list([
        ("from the first dial to the last", millis_f64(within), "ms"),
        ("from the first dial to the first connection that was ready", millis_f64(wait), "ms"),
        ("of these, connections with a request at most", needless.len() as f64, "connections"),
        ("requests on all of them", requests.into(), "requests"),
        ("waiting after one was ready", millis_f64(excess), "ms"),
    ]);
    let finding = Finding {
        symptom: format!(
            "the client opened {} within {}, before the first of them was ready after {}; all but one carried a request at \
             most, and the first could have carried the {requests}",
            plural(burst.dials.len() as u64, "connection"),
            measured_time(within),
            measured_time(wait),
        ),
        evidence: [vec![at_once.seen(first.index, begin)], others].concat(),
        cost: format!(
            "{} for nothing at both ends; requests waited for them after another was ready, {} in sum",
            plural(needless.len() as u64, "handshake"),
            measured_time(excess)
        ),
        confidence: Confidence::Observed,
        fixes: vec![
            Fix::new(
                "client",
                "share one client object, and wait for the response to a first request before many are sent at once",
                "each request that finds no connection opens its own; one that is ready carries all of them",
            ),
            Fix::new(
                "JDK HttpClient",
                "one HttpClient for all, and send() a request before the first sendAsync()",
                "of connections that were dialled at once it keeps the first, and closes the others after a request each",
            ),
        ],
        confirm: case.compare("--dial-policy single-flight,stampede"),
        ..case.finding(&META, excess, "waiting for a connection after another one was ready")
    };
    Some(worth_a_fix(case, excess, finding))
}

/// The finding of dials for which requests waited so long; an observation without a fix where that is not worth one.
fn worth_a_fix(case: &Case<'_>, waited: Duration, finding: Finding) -> Finding {
    if case.is_worth_time(waited) {
        return finding;
    }
    Finding {
        cost: format!(
            "{}; an observation: what requests waited for it is below {:.0} % of their time",
            finding.cost,
            case.least_share() * 100.0
        ),
        explains: Some(0.0),
        fixes: Vec::new(),
        ..finding
    }
}

/// All stampedes of a cell.
#[derive(Debug, Default)]
struct Total {
    stampedes: usize,
    dials: usize,
    useless: usize,
    /// Requests that waited for a connection of a stampede, beyond what the quickest dial took.
    excess: Waiting,
    opened: usize,
    largest: Option<(usize, u32, Time)>,
}

impl Total {
    fn add(&mut self, record: &CellRecord, stampedes: &[Burst<'_>]) {
        self.opened += record.connections.len();
        let took = |dial: &ConnectionRecord| dial.ready_at.since(dial.dialled_at);
        let ready = record.connections.iter().filter(|dial| dial.ready_at.happened());
        let quickest = ready.map(took).min().unwrap_or_default();
        // The longest time that a request on each of their connections waited unnecessarily.
        let mut excess: BTreeMap<u32, Duration> = BTreeMap::new();
        for stampede in stampedes {
            self.stampedes += 1;
            self.dials += stampede.dials.len();
            self.useless += stampede.useless();
            let first = stampede.dials[0];
            if self.largest.is_none_or(|(size, ..)| stampede.dials.len() > size) {
                self.largest = Some((stampede.dials.len(), first.index, first.dialled_at));
            }
            let most = stampede.ready().since(stampede.begin()).saturating_sub(quickest);
            excess.extend(stampede.dials.iter().map(|dial| (dial.index, most)));
        }
        for sample in &record.samples {
            let Some(most) = excess.get(&sample.connection) else { continue };
            self.excess.add(dials::waited(record, &sample).min(*most));
        }
    }

    fn finding(&self, case: &Case<'_>) -> Finding {
        let each = self.dials as f64 / self.stampedes.max(1) as f64;
        let mut evidence = Evidence::list([
            ("times at which several connections were dialled at once", self.stampedes as f64, "times"),
            ("connections dialled then", self.dials as f64, "connections"),
            ("of these, connections that carried no request", self.useless as f64, "connections"),
            ("waiting beyond what the quickest dial took", millis_f64(self.excess.time), "ms"),
        ]);
        if let Some((size, connection, at)) = self.largest {
            evidence.push(Evidence::new("the most at once", size as f64, "connections").seen(connection, at));
        }
        let is_ours = case.cell().dial == DialPolicy::Stampede;
        let policy = if is_ours { " (--dial-policy single-flight)" } else { "" };
        let finding = Finding {
            symptom: format!(
                "{}, with {each:.1} dials on average where one would do: {} of {} opened carried no request",
                plural(self.stampedes as u64, "stampede"),
                count(self.useless as u64),
                plural(self.opened as u64, "connection"),
            ),
            cost: format!(
                "{} for nothing at both ends; {} waited longer for them than the quickest dial took, by {} in sum",
                plural(self.useless as u64, "handshake"),
                plural(self.excess.requests, "request"),
                measured_time(self.excess.time)
            ),
            evidence,
            confidence: Confidence::Observed,
            fixes: vec![Fix::new(
                "client",
                &format!("one dial for all that wait{policy}"),
                "an HTTP/2 connection carries all of them as soon as it is ready; Go's net/http and others dial for each caller",
            )],
            confirm: case.compare("--dial-policy single-flight,stampede")
                + ": with single-flight no connection is opened that carries nothing",
            ..case.finding(
                &META,
                self.excess.time,
                "waiting longer for a connection than the quickest dial took",
            )
        };
        worth_a_fix(case, self.excess.time, finding)
    }
}

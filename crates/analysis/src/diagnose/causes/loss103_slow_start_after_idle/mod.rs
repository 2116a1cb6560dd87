//! LOSS103: a connection that was idle sends with the congestion window of a new one.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use super::loss::LOSS103 as META;
use crate::diagnose::{Case, Confidence, Evidence, Finding, Repetition, Rule};
use h2lab_base::counters::TcpTick;
use h2lab_base::counts::plural;
use h2lab_base::units::{Time, measured_time, millis_f64};
use h2lab_model::record::Sample;
use h2lab_model::settings::{Knob, Peer, Role, Wish, advise};

/// The shortest retransmission timeout of Linux, which is also the shortest idle time after which slow start begins
/// again.
const IDLE: Duration = Duration::from_millis(200);
/// Bytes of a segment over Ethernet.
const SEGMENT: u64 = 1_448;
/// Fewer requests after an idle time may be chance.
const LEAST: usize = 5;

/// The rule.
#[derive(Debug)]
pub(super) struct SlowStartAfterIdle;

impl Rule for SlowStartAfterIdle {
    fn check(&self, case: &Case<'_>) -> Vec<Finding> {
        let cell = case.cell();
        // Which of several kinds of bodies a request had is unknown here.
        if cell.protocol.is_quic() || !cell.protocol.is_multiplexed() || !cell.work.mix.is_empty() {
            return Vec::new();
        }
        let restarts: Vec<Restart> = case.repetitions.iter().flat_map(restarts).collect();
        let time: Duration = restarts.iter().map(|restart| restart.cost).sum();
        let is_it = restarts.len() >= LEAST && case.is_worth_time(time);
        is_it.then(|| finding(case, &restarts, time)).into_iter().collect()
    }
}

/// A body that was sent after an idle time, through a window that had become smaller meanwhile.
#[derive(Debug, Clone, Copy)]
struct Restart {
    connection: u32,
    at: Time,
    idle: Duration,
    /// Segments of the congestion window before and after.
    windows: [u32; 2],
    /// The round trips that the smaller window takes beyond those of the larger one.
    cost: Duration,
}

/// The restarts of a repetition that took additional round trips.
fn restarts(repetition: &Repetition<'_>) -> Vec<Restart> {
    let record = repetition.record;
    let rtt = repetition.facts().rtt;
    let segments = record.cell.work.body_length().div_ceil(SEGMENT);
    let mut ticks: BTreeMap<u32, Vec<&TcpTick>> = BTreeMap::new();
    for tick in record.tcp.iter().filter(|tick| !tick.server) {
        ticks.entry(tick.connection).or_default().push(tick);
    }
    let mut samples: Vec<Sample> = record.samples.iter().filter(|sample| sample.sent_at.happened()).collect();
    samples.sort_unstable_by_key(|sample| sample.sent_at);
    // For each connection, the end of the latest request on it so far.
    let mut busy_until: BTreeMap<u32, Time> = BTreeMap::new();
    let mut restarts = Vec::new();
    for sample in &samples {
        let before = busy_until.get(&sample.connection).copied();
        let end = busy_until.entry(sample.connection).or_default();
        *end = sample.completed_at.max(*end);
        // A new connection begins with the same window: that is a cost of dialling, not of being idle.
        let Some(idle) = before.map(|before| sample.sent_at.since(before)).filter(|idle| *idle >= IDLE)
        else {
            continue;
        };
        let ticks = ticks.get(&sample.connection).map_or(&[][..], Vec::as_slice);
        let Some(windows) = windows(ticks, sample) else { continue };
        let [before, after] = windows.map(|window| round_trips(segments, window));
        let most = sample.service_time().saturating_sub(rtt * before);
        let cost = (rtt * after.saturating_sub(before)).min(most);
        if !cost.is_zero() {
            restarts.push(Restart { connection: sample.connection, at: sample.sent_at, idle, windows, cost });
        }
    }
    restarts
}

/// The congestion windows before a body was sent and while it was sent, if the second is smaller, and not because of a
/// loss.
fn windows(ticks: &[&TcpTick], sample: &Sample) -> Option<[u32; 2]> {
    let first = ticks.partition_point(|tick| tick.at <= sample.sent_at);
    let before = ticks[..first].last()?;
    let during = ticks[first..].iter().take_while(|tick| tick.at <= sample.completed_at);
    let after = during.min_by_key(|tick| tick.cwnd)?;
    let is_it = after.cwnd > 0 && after.cwnd < before.cwnd && after.retransmits == before.retransmits;
    is_it.then_some([before.cwnd, after.cwnd])
}

/// The round trips that this many segments need with a window that doubles in each.
fn round_trips(segments: u64, window: u32) -> u32 {
    (segments.div_ceil(window.max(1).into()) + 1).next_power_of_two().ilog2()
}

fn finding(case: &Case<'_>, restarts: &[Restart], time: Duration) -> Finding {
    let count = u32::try_from(restarts.len()).unwrap_or(u32::MAX).max(1);
    let mean = |of: fn(&Restart) -> u32| {
        restarts.iter().map(|restart| f64::from(of(restart))).sum::<f64>() / f64::from(count)
    };
    let (before, after) = (mean(|restart| restart.windows[0]), mean(|restart| restart.windows[1]));
    let idle = restarts.iter().map(|restart| restart.idle).min().unwrap_or_default();
    let costliest = restarts.iter().max_by_key(|restart| restart.cost);
    let windows =
        Evidence::new("requests after such a time whose window was smaller", count.into(), "requests");
    let fix = Wish { knob: Knob::SlowStartAfterIdle, role: Role::Kernel, value: None };
    Finding {
        symptom: format!(
            "after {} or more without traffic the congestion window of the client fell from {before:.0} to {after:.0} segments, \
             {}; bodies then took {} longer on average",
            measured_time(idle),
            plural(count.into(), "time"),
            measured_time(time / count)
        ),
        evidence: vec![
            costliest.map_or_else(
                || windows.clone(),
                |restart| windows.clone().seen(restart.connection, restart.at),
            ),
            Evidence::new("congestion window before, on average", before, "segments"),
            Evidence::new("congestion window after, on average", after, "segments"),
            Evidence::new("the shortest of the idle times", millis_f64(idle), "ms"),
        ],
        confidence: Confidence::Observed,
        fixes: vec![advise(&Peer::started("linux"), fix)],
        confirm: case.compare("--sysctl-client net.ipv4.tcp_slow_start_after_idle=1,0")
            + ": with 0 bodies after a pause must take fewer round trips",
        ..case.finding(
            &META,
            time,
            "on round trips of a congestion window that an idle time had made smaller",
        )
    }
}

//! Whether a cell's figures can be trusted: ok, unstable, failed, invalid or unsupported.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use super::connections::unreachable;
use super::summary::{CellState, CellSummary, Failed, Instability};
use super::tallied::{response_time, window};
use super::{shares, silence, summarise, tallied, transfer, transport};
use h2lab_base::counts::plural;
use h2lab_base::units::{Time, measured_time, nanos};
use h2lab_model::record::tally::TallyPhase;
use h2lab_model::record::{
    CellRecord, Disturbance, GeneratorSummary, LinkSummary, Outcome, Sample, Samples, ServerSummary,
};
use h2lab_model::workload::Arrival;

/// A cell is unstable if less than this share of the offered requests was served inside the measured time.
pub(super) const SERVED_SHARE: f64 = 0.98;
/// This many requests per repetition may be missing whatever their share: they are in flight at the end of the window.
const SERVED_SLACK: f64 = 2.0;
/// A server may stop for this long at the end of the measured time, or for [`STALL_TRIPS`] round trips, if that is no
/// more than [`STALL_SHARE`] of it: requests due then are answered after the end.
const STALL: Duration = Duration::from_millis(500);
/// A new connection over TLS takes three round trips, and the first response on it one more; one packet may be lost.
const STALL_TRIPS: u32 = 6;
/// See [`STALL`].
const STALL_SHARE: f64 = 0.25;
/// The second half's mean response time may exceed the first half's by this, or by two round trips.
const GROWTH: Duration = Duration::from_millis(100);
/// The p99 of the link's lateness may be this, or 5 % of the round trip.
const LINK_LATE: Duration = Duration::from_micros(250);
/// In a shorter run, the handshakes at its beginning are a large part.
const SHORT: Duration = Duration::from_secs(1);
/// A shorter run is busy from its first to its last request, which shows nothing about a load. In a closed loop, a time
/// slice of another program makes all its requests late: only a pause makes it invalid.
const SHORTEST_BUSY: Duration = Duration::from_millis(100);
/// The p99 of the generator's lateness may be this, or 5 % of the median response time.
const GENERATOR_LATE: Duration = Duration::from_millis(1);
/// The generator may fail to run for this long in total, or at a time for this or 5 % of the median response time.
/// Shorter pauses happen on virtual machines; in an open loop they are in the lateness.
const PAUSE: Duration = Duration::from_millis(100);
/// The generator may fail to run for this share of its time: above it, a p99 may consist of answers that waited for the
/// generator.
const PAUSED_SHARE: f64 = 0.01;
/// A server that was runnable for this share of its time may have limited the load.
const LOADED: f64 = 0.5;
/// Other programs may have taken this share of the time in which such a server was runnable.
const TAKEN_SHARE: f64 = 0.1;
/// The share in those bounds that depend on another time.
const LATE_SHARE: f64 = 0.05;
/// A core of ours that is at least this busy may be what was measured.
const BUSY: f64 = 0.95;
/// The share of stolen CPU time above which it is reported.
const STOLEN: f64 = 0.02;

/// The state of a cell. States that invalidate figures precede those that only qualify them.
pub(super) fn judge(summary: &CellSummary, repetitions: &[&CellRecord]) -> CellState {
    // A server that is gone may have answered nothing; that does not mean that it does not speak the protocol.
    if let Some(why) = (0..repetitions.len()).find_map(|n| failed(&repetitions[..=n])) {
        return CellState::Failed { why, how: Failed::ServerEnded };
    }
    let phases = &summary.cell.work.phases;
    if summary.measured.is_zero() && !phases.warmup.is_zero() && !summary.cell.work.bulk {
        let why = "it was stopped during the warm-up: nothing was measured";
        return CellState::Invalid { reasons: vec![why.to_owned()] };
    }
    let disturbances = || repetitions.iter().flat_map(|repetition| disturbances(repetition));
    if let Some(why) = unsupported(summary, repetitions).filter(|_| disturbances().next().is_none()) {
        return CellState::Unsupported { why };
    }
    // This is certain even if we were late; the reason for a missing answer is not.
    if let Some(why) = summary.no_success() {
        return CellState::Failed { why, how: Failed::NoSuccess };
    }
    let reasons: Vec<String> =
        repetitions.iter().flat_map(|repetition| invalid_reasons(repetition)).collect();
    if !reasons.is_empty() {
        return CellState::Invalid { reasons };
    }
    if none_began(summary) {
        let why = "no request began in the measured time, since those before it lasted too long: \
                   measure for longer (-z)";
        return CellState::Invalid { reasons: vec![why.to_owned()] };
    }
    if let Some(why) = transfer::too_short(summary) {
        return CellState::Invalid { reasons: vec![why] };
    }
    if let Some(why) = summary.no_response() {
        return CellState::Failed { why, how: Failed::NoResponse };
    }
    match instability(summary, repetitions) {
        Some(why) => {
            CellState::Unstable { offered_rps: summary.offered_rps, served_rps: summary.served_rps, why }
        }
        None => CellState::Ok,
    }
}

/// The server and the sidecar of a repetition.
fn servers(repetition: &CellRecord) -> impl Iterator<Item = &ServerSummary> {
    repetition.server.iter().chain(repetition.sidecar.as_ref().map(|sidecar| &sidecar.process))
}

/// What stopped or ended these processes.
fn disturbances(repetition: &CellRecord) -> impl Iterator<Item = &Disturbance> {
    servers(repetition).filter_map(|process| process.disturbance.as_ref())
}

/// Why the server failed in the last of these repetitions, if it did: it ended by itself, or it could no longer be
/// reached or stopped answering after it had responded. For a server that we started, its end is known.
fn failed(repetitions: &[&CellRecord]) -> Option<String> {
    let repetition = *repetitions.last()?;
    let own = disturbances(repetition).find(|disturbance| disturbance.is_of_the_server());
    let is_watched = repetition.server.is_some();
    let has_answered = |one: &&CellRecord| {
        one.samples.iter().any(|sample| sample.outcome.is_complete())
            || one.tallies.iter().any(|tally| tally.class.outcome.is_complete())
    };
    own.map(Disturbance::to_string).or_else(|| {
        let is_lost = || unreachable(repetition).or_else(|| silence::to_the_end(repetition, repetitions));
        is_lost().filter(|_| !is_watched && repetitions.iter().any(has_answered))
    })
}

/// Whether requests began before the measured time, and none in it: a closed loop waits for the responses.
fn none_began(summary: &CellSummary) -> bool {
    summary.requests.sent == 0 && summary.connections.requests > 0 && !summary.cell.work.bulk
}

/// Why the cell has no result: no request got any answer of the protocol.
fn unsupported(summary: &CellSummary, repetitions: &[&CellRecord]) -> Option<String> {
    // A server that closes every connection before it has received a request does not speak the protocol.
    let is_never_asked = summary.connections.requests == 0;
    let hopeless = |kind| match kind {
        Outcome::Connect | Outcome::Tls | Outcome::Protocol => true,
        Outcome::Closed => is_never_asked,
        _ => false,
    };
    let answered = summary.requests.sent > summary.requests.failed;
    if answered || none_began(summary) || !summary.errors.iter().all(|error| hopeless(error.kind)) {
        return None;
    }
    let mut causes: BTreeMap<&str, u64> = BTreeMap::new();
    for connection in repetitions.iter().flat_map(|repetition| &repetition.connections) {
        if let Some(why) = connection.closed.why() {
            *causes.entry(why).or_insert(0) += 1;
        }
    }
    let cause = causes.into_iter().max_by_key(|&(_, count)| count).map(|(why, _)| why.to_owned());
    match (cause, summary.errors.first()) {
        (Some(cause), _) => Some(cause),
        (None, Some(error)) => Some(format!("every request ended with `{}`", error.kind)),
        (None, None) => Some("no request was sent".to_owned()),
    }
}

/// The symptom that the cell cannot carry its load, if there is one.
fn instability(summary: &CellSummary, repetitions: &[&CellRecord]) -> Option<Instability> {
    // Bulk work takes what the path carries. Its responses last long, and as unequally as the path carries them.
    if summary.cell.work.bulk {
        return None;
    }
    let open_loop = !matches!(summary.cell.work.arrival, Arrival::Closed { .. });
    let share = summary.served_share();
    let missing = (summary.offered_rps - summary.served_rps) * summary.measured.as_secs_f64();
    let slack = SERVED_SLACK * f64::from(summary.repetitions);
    if open_loop && share < SERVED_SHARE && missing > slack && !is_missing_at_the_end(repetitions) {
        let failed = summary.requests.failed as f64 / summary.requests.sent.max(1) as f64;
        return Some(Instability::Served { share, failed });
    }
    let (first, second) = halves(repetitions);
    let allowed = GROWTH.max(transport::round_trip(repetitions) * 2);
    (second.saturating_sub(first) > allowed).then_some(Instability::Growing { first, second })
}

/// Whether a stall at the end is the only reason why a cell did not serve its load: all but a few requests succeeded,
/// after the end if not before, and the cell was not behind earlier. One that cannot carry its load is just as far
/// behind if the measured time is shorter by [`STALL`]; a server that only stopped for a moment is not. For requests
/// that were only counted, the times when they were due are unknown; there are too many of them for a moment to matter.
fn is_missing_at_the_end(repetitions: &[&CellRecord]) -> bool {
    let is_few = |missing: u64, due: u64| {
        let missing = missing as f64;
        missing <= SERVED_SLACK * repetitions.len() as f64 || missing <= (1.0 - SERVED_SHARE) * due as f64
    };
    let measured = || repetitions.iter().flat_map(|one| one.samples.iter()).filter(|one| one.measured);
    let unsuccessful = measured().filter(|sample| !sample.outcome.is_success()).count() as u64;
    if !is_few(unsuccessful, measured().count() as u64) {
        return false;
    }
    let stall = STALL.max(transport::round_trip(repetitions) * STALL_TRIPS);
    let (mut due, mut served) = (0, 0);
    for repetition in repetitions {
        let phases = &repetition.cell.work.phases;
        if !repetition.tallies.is_empty() || phases.measure.is_zero() {
            return false;
        }
        let mut cell = repetition.cell.clone();
        cell.work.phases.measure -= stall.min(phases.measure.mul_f64(STALL_SHARE));
        let until = cell.work.phases.measure_until(repetition.started_at);
        let cut =
            |sample: Sample| Sample { measured: sample.measured && sample.scheduled_at < until, ..sample };
        let samples: Samples = repetition.samples.iter().map(cut).collect();
        due += samples.iter().filter(|sample| sample.measured).count() as u64;
        let shorter = CellRecord { started_at: repetition.started_at, samples, ..CellRecord::empty(cell) };
        served += summarise::served_by(&shorter);
    }
    is_few(due.saturating_sub(served), due)
}

/// Mean response times of the requests due in the first and in the second half of the measured time. The first requests
/// of a closed loop are left out: they come all at once, and the k-th of them waits only for those before it. All later
/// ones wait equally.
fn halves(repetitions: &[&CellRecord]) -> (Duration, Duration) {
    let half = |part: TallyPhase| {
        let (mut sum_ns, mut n) = (0_u128, 0_u64);
        for repetition in repetitions {
            if repetition.tallies.is_empty() {
                let middle = window(repetition).0 + repetition.cell.work.phases.measure / 2;
                let filled = filled(repetition);
                for sample in
                    repetition.samples.iter().filter(|s| s.measured && Some(s.scheduled_at) > filled)
                {
                    if (sample.scheduled_at >= middle) == (part == TallyPhase::Second)
                        && let Some(time) = response_time(&sample)
                    {
                        sum_ns += time.as_nanos();
                        n += 1;
                    }
                }
            }
            let of_part = repetition.tallies.iter().filter(|tally| tally.class.part == part);
            for tally in of_part.filter(|tally| tallied::is_latency(tally.class.outcome)) {
                sum_ns += tally.response.sum_ns();
                n += tally.response.n();
            }
        }
        let mean = sum_ns.checked_div(u128::from(n)).unwrap_or(0);
        Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    };
    (half(TallyPhase::First), half(TallyPhase::Second))
}

/// When the last of the first requests of a closed loop was due; before all requests in an open loop.
fn filled(repetition: &CellRecord) -> Option<Time> {
    let Arrival::Closed { concurrency } = repetition.cell.work.arrival else { return None };
    let mut due: Vec<Time> = repetition.samples.iter().map(|sample| sample.scheduled_at).collect();
    due.sort_unstable();
    due.get(concurrency.saturating_sub(1) as usize).or(due.last()).copied()
}

/// Why a repetition cannot be trusted, in sentences; empty if it can. The runner repeats such a cell.
pub fn invalid_reasons(repetition: &CellRecord) -> Vec<String> {
    let mut reasons = Vec::new();
    // A failed server is the result, however late we were: another attempt might not show it.
    if failed(&[repetition]).is_some() {
        return reasons;
    }
    if let Some(link) = &repetition.link {
        link_reasons(link, transport::round_trip(&[repetition]), &mut reasons);
    }
    reasons.extend(shares::reasons(repetition));
    // Each agent's generator was judged by its own record.
    if repetition.agents.is_empty() {
        generator_reasons(repetition, &mut reasons);
        reasons.extend(disturbances(repetition).map(Disturbance::to_string));
    }
    // Without a request to answer, the figures of another attempt would be as empty.
    let is_asked = !repetition.tallies.is_empty() || repetition.samples.iter().any(|sample| sample.measured);
    let asked = servers(repetition).filter(|_| is_asked || repetition.bulk.is_some());
    reasons.extend(asked.filter_map(|process| starved(process, repetition)));
    // Stolen time alone is no reason: a generator that needs no more time was not late.
    if !reasons.is_empty() && repetition.agents.is_empty() {
        reasons.extend(theft(&repetition.generator));
    }
    reasons
}

/// The stolen CPU time, if it is large: then another machine or another time of day helps.
fn theft(generator: &GeneratorSummary) -> Option<String> {
    let share = generator.stolen_ns as f64 / generator.wall_ns.max(1) as f64;
    (share >= STOLEN).then(|| {
        format!("the hypervisor gave {:.0} % of this machine's CPU time to others (steal)", share * 100.0)
    })
}

/// Why the times over an emulated link are not to be trusted: the link itself was late. Empty if they are.
pub fn link_doubts(link: &LinkSummary, rtt: Duration) -> Vec<String> {
    let mut reasons = Vec::new();
    link_reasons(link, rtt, &mut reasons);
    reasons
}

fn link_reasons(link: &LinkSummary, rtt: Duration, reasons: &mut Vec<String>) {
    let (late, allowed) = (Duration::from_nanos(link.late_p99_ns), LINK_LATE.max(rtt.mul_f64(LATE_SHARE)));
    if late > allowed {
        reasons.push(format!(
            "the emulated link was late: p99 {}, {} is allowed",
            measured_time(late),
            measured_time(allowed)
        ));
    }
    // Fewer than a hundredth of the packets may have waited for the whole length of a pause.
    let (latest, allowed) = (Duration::from_nanos(link.late_max_ns), PAUSE.max(rtt.mul_f64(LATE_SHARE)));
    if latest > allowed {
        reasons.push(format!(
            "the emulated link was late by up to {} at once, {} is allowed: it was stopped, or had no CPU",
            measured_time(latest),
            measured_time(allowed)
        ));
    }
    let busy = link.cpu_ns as f64 / link.wall_ns.max(1) as f64;
    if busy >= BUSY {
        reasons.push(format!("the link's core was {:.0} % busy", busy * 100.0));
    }
    for (name, totals) in [("uplink", &link.up), ("downlink", &link.down)] {
        if !totals.adds_up() {
            let out = totals.delivered + totals.dropped() + totals.in_flight;
            reasons.push(format!(
                "the {name}'s packet log does not add up: {} packets in, {out} accounted for",
                totals.packets_in + totals.duplicated
            ));
        }
    }
    if link.device_drops > 0 {
        reasons.push(format!(
            "the kernel dropped {} at our devices, outside the link model",
            plural(link.device_drops, "packet")
        ));
    }
}

/// Whether a server waited for CPUs that other programs used, as a sentence, if that affects its figures: one long wait
/// is a stall, like a pause of the generator; many waits delay each response; and a server that limits the load serves
/// less.
fn starved(process: &ServerSummary, repetition: &CellRecord) -> Option<String> {
    let delay = &process.run_delay;
    let [longest, taken] = [delay.longest_ns, delay.taken_ns()].map(Duration::from_nanos);
    let relative = tallied::RESPONSE.quantile(repetition, 0.5).mul_f64(LATE_SHARE);
    let requests: u32 = repetition.connections.iter().map(|connection| connection.requests).sum();
    // In bulk work, a response lasts as long as the measurement.
    let delays = repetition.bulk.is_none() && taken / requests.max(1) > GENERATOR_LATE.max(relative);
    let able = (delay.ran_ns + delay.waited_ns) as f64;
    let is_loaded = able >= process.wall_ns as f64 * LOADED;
    let costs = is_loaded && delay.taken_ns() as f64 > able * TAKEN_SHARE;
    (longest > PAUSE.max(relative) || delays || costs).then(|| {
        let shown = |ns: u64| measured_time(Duration::from_millis(ns / 1_000_000));
        format!(
            "{}'s threads together waited {} (in {} of time) for a CPU used by other programs{}",
            process.name,
            shown(delay.taken_ns()),
            shown(process.wall_ns),
            if longest > PAUSE {
                format!(", {} of it at once", shown(delay.longest_ns))
            } else {
                String::new()
            },
        )
    })
}

/// Whether the generator did not run when it had to, as a sentence, if that lasted long.
fn paused(generator: &GeneratorSummary, median: Duration) -> Option<String> {
    let longest = Duration::from_nanos(generator.longest_pause_ns);
    let sum = Duration::from_nanos(generator.paused_ns);
    let allowed = PAUSE.max(Duration::from_nanos(generator.wall_ns).mul_f64(PAUSED_SHARE));
    (longest > PAUSE.max(median.mul_f64(LATE_SHARE)) || sum > allowed).then(|| {
        format!(
            "the generator did not run for {} of {}, at most {} at a time: it, or its machine, was stopped",
            measured_time(Duration::from_millis(generator.paused_ns / 1_000_000)),
            measured_time(Duration::from_millis(generator.wall_ns / 1_000_000)),
            measured_time(Duration::from_millis(generator.longest_pause_ns / 1_000_000)),
        )
    })
}

fn is_closed(repetition: &CellRecord) -> bool {
    matches!(repetition.cell.work.arrival, Arrival::Closed { .. })
}

/// The share of requests, the most punctual ones, by which the generator's lateness is judged: 99 %. At the beginning
/// of a closed loop, all requests that it has in flight are due at once, and writing them takes time that says nothing
/// about how punctual the others are. In a short run they are more than a hundredth, in a very short one all of them.
/// So that many requests may be late.
fn judged_share(repetition: &CellRecord) -> f64 {
    let Arrival::Closed { concurrency } = repetition.cell.work.arrival else { return 0.99 };
    let requests: u64 = repetition.connections.iter().map(|connection| u64::from(connection.requests)).sum();
    let first = u64::from(concurrency).min(requests);
    0.99 * (1.0 - first as f64 / requests.max(1) as f64)
}

fn generator_reasons(repetition: &CellRecord, reasons: &mut Vec<String>) {
    let share = judged_share(repetition);
    let late = tallied::LATENESS.quantile(repetition, share);
    let median = tallied::RESPONSE.quantile(repetition, 0.5);
    let is_over_at_once = is_closed(repetition) && repetition.generator.wall_ns < nanos(SHORTEST_BUSY);
    // If all requests are the first ones of the loop, none is left to judge.
    let floor = if is_over_at_once || share <= 0.0 { PAUSE } else { GENERATOR_LATE };
    let allowed = floor.max(median.mul_f64(LATE_SHARE));
    if late > allowed {
        let which = match share * 100.0 {
            percent if percent < 0.5 => "at least".to_owned(),
            percent => format!("p{percent:.0}"),
        };
        let wall = Duration::from_millis(repetition.generator.wall_ns / 1_000_000);
        let advice = if wall < SHORT {
            format!(" (all requests took {}; a longer run, -z or -n, is less sensitive)", measured_time(wall))
        } else {
            String::new()
        };
        reasons.push(format!(
            "the generator was late: {which} {}, {} is allowed{advice}",
            measured_time(late),
            measured_time(allowed)
        ));
    }
    let generator = &repetition.generator;
    reasons.extend(paused(generator, median));
    // Bulk work has no due times: a saturated client is its limit, and is reported as that.
    if repetition.bulk.is_some() {
        return;
    }
    let wall_ns = generator.wall_ns.max(1) as f64;
    let all = generator.cpu_ns.saturating_sub(generator.awake_ns) as f64
        / (wall_ns * f64::from(generator.threads.max(1)));
    // One busy thread makes its requests late, even if the others are idle.
    let busiest = all.max(generator.busiest_ns as f64 / wall_ns);
    if busiest >= BUSY && generator.wall_ns >= nanos(SHORTEST_BUSY) {
        let which = match generator.threads {
            0 | 1 => "thread was".to_owned(),
            threads => format!("busiest of {threads} threads was"),
        };
        reasons.push(format!("the generator's {which} {:.0} % busy", busiest * 100.0));
    }
}

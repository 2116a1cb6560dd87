//! Whether a cell's figures may be trusted: ok, unstable, failed, invalid or unsupported.

use std::collections::BTreeMap;
use std::time::Duration;

use super::connections::unreachable;
use super::summary::{CellState, CellSummary, Failed, Instability};
use super::tallied::{response_time, window};
use super::{summarise, tallied, transport};
use h2lab_base::counts::plural;
use h2lab_base::units::{Time, format_duration, nanos};
use h2lab_model::record::tally::TallyPhase;
use h2lab_model::record::{
    CellRecord, Disturbance, GeneratorSummary, LinkSummary, Outcome, Sample, Samples, ServerSummary,
};
use h2lab_model::workload::Arrival;

/// Below this share of the offered requests served inside the measured time, a cell is unstable.
pub(super) const SERVED_SHARE: f64 = 0.98;
/// So many requests per repetition may be missing whatever their share: they straddle the end of the window.
const SERVED_SLACK: f64 = 2.0;
/// A server may stop for so long at the end of the measured time, as we may ([`PAUSE`]): what was due then is answered behind it.
const EDGE: Duration = PAUSE;
/// The second half's mean response time may exceed the first half's by this or two round trips.
const GROWTH: Duration = Duration::from_millis(100);
/// The link's lateness p99 may be this or 5 % of the round trip.
const LINK_LATE: Duration = Duration::from_micros(250);
/// Of a shorter run the handshakes at its beginning are a large part.
const SHORT: Duration = Duration::from_secs(1);
/// A run that is shorter is busy from its first to its last request, and says nothing of a load. In a closed loop a time slice of
/// another program makes all its requests late: only a pause makes it invalid.
const SHORTEST_BUSY: Duration = Duration::from_millis(100);
/// The generator's lateness p99 may be this or 5 % of the median response time.
const GENERATOR_LATE: Duration = Duration::from_millis(1);
/// The generator may fail to run for so long, or at a time for 5 % of the median response time. What is shorter happens on virtual
/// machines; the lateness of an open loop has it.
const PAUSE: Duration = Duration::from_millis(100);
/// It may fail to run for this share of its time: more, and a p99 may be of answers that waited for it.
const PAUSED_SHARE: f64 = 0.01;
/// A server that was able to run for this share of its time may be what limited the load.
const LOADED: f64 = 0.5;
/// Other programs may have taken this share of the time in which such a server was able to run.
const TAKEN_SHARE: f64 = 0.1;
/// The share of those larger bounds.
const LATE_SHARE: f64 = 0.05;
/// A core of ours that is busier than this may be what was measured.
const BUSY: f64 = 0.95;
/// The share of stolen CPU time that is worth reporting.
const STOLEN: f64 = 0.02;

/// The state of a cell. States that invalidate figures precede those that only qualify them.
pub(super) fn judge(summary: &CellSummary, repetitions: &[&CellRecord]) -> CellState {
    // A server that is gone may have answered nothing, and still it is not one that does not speak the protocol.
    if let Some(why) = repetitions.iter().find_map(|repetition| failed(repetition)) {
        return CellState::Failed { why, how: Failed::ServerEnded };
    }
    let disturbances = || repetitions.iter().flat_map(|repetition| disturbances(repetition));
    if let Some(why) = unsupported(summary, repetitions).filter(|_| disturbances().next().is_none()) {
        return CellState::Unsupported { why };
    }
    // That is known however late we were; why nothing was answered is not.
    if let Some(why) = summary.no_success() {
        return CellState::Failed { why, how: Failed::NoSuccess };
    }
    let reasons: Vec<String> =
        repetitions.iter().flat_map(|repetition| invalid_reasons(repetition)).collect();
    if !reasons.is_empty() {
        return CellState::Invalid { reasons };
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

/// What stopped or ended them.
fn disturbances(repetition: &CellRecord) -> impl Iterator<Item = &Disturbance> {
    servers(repetition).filter_map(|process| process.disturbance.as_ref())
}

/// That the server ended by itself, or could no longer be reached after it had responded, if so. Of a server that we started we know what
/// became of it.
fn failed(repetition: &CellRecord) -> Option<String> {
    let own = disturbances(repetition).find(|disturbance| disturbance.is_of_the_server());
    let is_watched = repetition.server.is_some();
    let has_responded = || {
        repetition.samples.iter().any(|sample| sample.outcome.is_complete())
            || repetition.tallies.iter().any(|tally| tally.class.outcome.is_complete())
    };
    own.map(Disturbance::to_string)
        .or_else(|| unreachable(repetition).filter(|_| !is_watched && has_responded()))
}

/// Why the cell has no result: no request got any answer of the protocol.
fn unsupported(summary: &CellSummary, repetitions: &[&CellRecord]) -> Option<String> {
    // A server that closes every connection before a request is on it does not speak the protocol.
    let is_never_asked = summary.connections.requests == 0;
    let hopeless = |kind| match kind {
        Outcome::Connect | Outcome::Tls | Outcome::Protocol => true,
        Outcome::Closed => is_never_asked,
        _ => false,
    };
    let answered = summary.requests.sent > summary.requests.failed;
    if answered || !summary.errors.iter().all(|error| hopeless(error.kind)) {
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

/// How the cell shows that it cannot carry its load, if it does.
fn instability(summary: &CellSummary, repetitions: &[&CellRecord]) -> Option<Instability> {
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

/// Whether a stall at the end is all that keeps a cell from having served its load: what cannot carry a load is as far behind when the
/// measured time is shorter by [`EDGE`], and a server that only stopped for a moment is not. Of requests that were only counted it is not
/// known when each was due; there are too many of them for a moment to matter.
fn is_missing_at_the_end(repetitions: &[&CellRecord]) -> bool {
    let (mut due, mut served) = (0, 0);
    for repetition in repetitions {
        let work = &repetition.cell.work;
        if !repetition.tallies.is_empty() || work.phases.measure < EDGE * 2 {
            return false;
        }
        let mut cell = repetition.cell.clone();
        cell.work.phases.measure -= EDGE;
        let until = cell.work.phases.measure_until(repetition.started_at);
        let cut =
            |sample: Sample| Sample { measured: sample.measured && sample.scheduled_at < until, ..sample };
        let samples: Samples = repetition.samples.iter().map(cut).collect();
        due += samples.iter().filter(|sample| sample.measured).count() as u64;
        let shorter = CellRecord { started_at: repetition.started_at, samples, ..CellRecord::empty(cell) };
        served += summarise::served_by(&shorter);
    }
    let missing = due.saturating_sub(served) as f64;
    missing <= SERVED_SLACK * repetitions.len() as f64 || missing <= (1.0 - SERVED_SHARE) * due as f64
}

/// Mean response times of the requests due in the first and in the second half of the measured time. Not of those with which a
/// closed loop begins: they come all at once, and the k-th of them waits only for those before it. All later ones wait alike.
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

/// When the last of the requests was due with which a closed loop begins; before all requests in an open loop.
fn filled(repetition: &CellRecord) -> Option<Time> {
    let Arrival::Closed { concurrency } = repetition.cell.work.arrival else { return None };
    let mut due: Vec<Time> = repetition.samples.iter().map(|sample| sample.scheduled_at).collect();
    due.sort_unstable();
    due.get(concurrency.saturating_sub(1) as usize).or(due.last()).copied()
}

/// Why a repetition must not be believed, in sentences; empty if it may be. The runner repeats such a cell.
pub fn invalid_reasons(repetition: &CellRecord) -> Vec<String> {
    let mut reasons = Vec::new();
    // It is the result, however late we were: another try might not show it.
    if failed(repetition).is_some() {
        return reasons;
    }
    if let Some(link) = &repetition.link {
        link_reasons(link, transport::round_trip(&[repetition]), &mut reasons);
    }
    generator_reasons(repetition, &mut reasons);
    reasons.extend(disturbances(repetition).map(Disturbance::to_string));
    reasons.extend(servers(repetition).filter_map(|process| starved(process, repetition)));
    // By itself it is no reason: a generator that needs no more time was not late.
    if !reasons.is_empty() {
        reasons.extend(theft(&repetition.generator));
    }
    reasons
}

/// The stolen CPU time, if it is large: another machine or another hour helps then.
fn theft(generator: &GeneratorSummary) -> Option<String> {
    let share = generator.stolen_ns as f64 / generator.wall_ns.max(1) as f64;
    (share >= STOLEN).then(|| {
        format!("the hypervisor gave {:.0} % of this machine's CPU time to others (steal)", share * 100.0)
    })
}

fn link_reasons(link: &LinkSummary, rtt: Duration, reasons: &mut Vec<String>) {
    let (late, allowed) = (Duration::from_nanos(link.late_p99_ns), LINK_LATE.max(rtt.mul_f64(LATE_SHARE)));
    if late > allowed {
        reasons.push(format!(
            "the emulated link was late: p99 {}, {} is allowed",
            format_duration(late),
            format_duration(allowed)
        ));
    }
    // Fewer than a hundredth of the packets may have waited for all of a pause.
    let (latest, allowed) = (Duration::from_nanos(link.late_max_ns), PAUSE.max(rtt.mul_f64(LATE_SHARE)));
    if latest > allowed {
        reasons.push(format!(
            "the emulated link was late by up to {} at once, {} is allowed: it was stopped, or had no CPU",
            format_duration(latest),
            format_duration(allowed)
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

/// That a server waited for CPUs that other programs used, if that is in its figures: one long wait is a stall, as a pause of the
/// generator is; many delay each response; and a server that is the limit of the load serves less.
fn starved(process: &ServerSummary, repetition: &CellRecord) -> Option<String> {
    let delay = &process.run_delay;
    let [longest, taken] = [delay.longest_ns, delay.taken_ns()].map(Duration::from_nanos);
    let relative = tallied::RESPONSE.quantile(repetition, 0.5).mul_f64(LATE_SHARE);
    let requests: u32 = repetition.connections.iter().map(|connection| connection.requests).sum();
    // Of bulk work a response lasts for as long as the measurement.
    let delays = repetition.bulk.is_none() && taken / requests.max(1) > GENERATOR_LATE.max(relative);
    let able = (delay.ran_ns + delay.waited_ns) as f64;
    let is_loaded = able >= process.wall_ns as f64 * LOADED;
    let costs = is_loaded && delay.taken_ns() as f64 > able * TAKEN_SHARE;
    (longest > PAUSE.max(relative) || delays || costs).then(|| {
        let shown = |ns: u64| format_duration(Duration::from_millis(ns / 1_000_000));
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

/// That the generator did not run when it had to, if so for long.
fn paused(generator: &GeneratorSummary, median: Duration) -> Option<String> {
    let longest = Duration::from_nanos(generator.longest_pause_ns);
    let sum = Duration::from_nanos(generator.paused_ns);
    let allowed = PAUSE.max(Duration::from_nanos(generator.wall_ns).mul_f64(PAUSED_SHARE));
    (longest > PAUSE.max(median.mul_f64(LATE_SHARE)) || sum > allowed).then(|| {
        format!(
            "the generator did not run for {} of {}, at most {} at a time: it, or its machine, was stopped",
            format_duration(Duration::from_millis(generator.paused_ns / 1_000_000)),
            format_duration(Duration::from_millis(generator.wall_ns / 1_000_000)),
            format_duration(Duration::from_millis(generator.longest_pause_ns / 1_000_000)),
        )
    })
}

fn is_closed(repetition: &CellRecord) -> bool {
    matches!(repetition.cell.work.arrival, Arrival::Closed { .. })
}

/// The share of requests, the most punctual ones, by which the generator's lateness is judged: 99 %. A closed loop begins with all
/// requests that it has in flight due at once, and writing these takes time that says nothing of how punctual the others are:
/// of a short run they are more than a hundredth, of a very short one all. So as many as begin it may be late.
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
    // None is left to judge where all requests are those that begin the loop.
    let floor = if is_over_at_once || share <= 0.0 { PAUSE } else { GENERATOR_LATE };
    let allowed = floor.max(median.mul_f64(LATE_SHARE));
    if late > allowed {
        let which = match share * 100.0 {
            percent if percent < 0.5 => "at least".to_owned(),
            percent => format!("p{percent:.0}"),
        };
        let wall = Duration::from_millis(repetition.generator.wall_ns / 1_000_000);
        let advice = if wall < SHORT {
            format!(
                " (all requests took {}; a longer run, -z or -n, is less sensitive)",
                format_duration(wall)
            )
        } else {
            String::new()
        };
        reasons.push(format!(
            "the generator was late: {which} {}, {} is allowed{advice}",
            format_duration(late),
            format_duration(allowed)
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
    // One busy thread makes its requests late, however idle the others are.
    let busiest = all.max(generator.busiest_ns as f64 / wall_ns);
    if busiest >= BUSY && generator.wall_ns >= nanos(SHORTEST_BUSY) {
        let which = match generator.threads {
            0 | 1 => "thread was".to_owned(),
            threads => format!("busiest of {threads} threads was"),
        };
        reasons.push(format!("the generator's {which} {:.0} % busy", busiest * 100.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_model::record::testing::{Model, cell, one_repetition};
    use h2lab_model::record::{
        BulkRepetition, ByteMeter, CloseReason, DisturbanceKind, FrameFigures, IoFigures, RunDelay,
        SidecarSummary,
    };
    use h2lab_model::workload::Protocol;

    fn clean() -> CellRecord {
        one_repetition(&cell(0, 0, Protocol::H2c, 4, 0.0), 0, &Model::CLEAN)
    }

    fn state_of(record: &CellRecord) -> CellState {
        CellSummary::of(&[record]).state
    }

    #[test]
    fn a_generator_that_did_not_run_makes_its_figures_invalid() {
        let paused = |total_ms: u64, longest_ms: u64| {
            let mut record = clean();
            record.generator.wall_ns = 20_000_000_000;
            record.generator.paused_ns = total_ms * 1_000_000;
            record.generator.longest_pause_ns = longest_ms * 1_000_000;
            invalid_reasons(&record)
        };
        assert_eq!(paused(100, 100), Vec::<String>::new());
        assert_eq!(paused(200, 40), Vec::<String>::new(), "1 % of twenty seconds");
        assert_eq!(paused(201, 40).len(), 1);
        assert_eq!(paused(101, 101).len(), 1);
        let reasons = paused(2_000, 2_000);
        assert!(reasons[0].contains("did not run for 2s of 20s, at most 2s at a time"), "{reasons:?}");
    }

    fn disturbed(kind: DisturbanceKind) -> CellRecord {
        let disturbance = Some(Disturbance { process: "nginx".to_owned(), after_ns: 1_500_000_000, kind });
        let mut record = clean();
        record.server = Some(ServerSummary { disturbance, ..ServerSummary::default() });
        record
    }

    /// Why the figures are invalid of a server that ran, waited, at a time waited, while others ran, for so many milliseconds of
    /// ten seconds.
    fn starved_by(ran: u64, waited: u64, longest: u64, others: u64) -> Vec<String> {
        let [ran_ns, waited_ns, longest_ns, others_ns] =
            [ran, waited, longest, others].map(|ms| ms * 1_000_000);
        let run_delay = RunDelay { ran_ns, waited_ns, longest_ns, others_ns };
        let server = ServerSummary {
            name: "nginx".to_owned(),
            wall_ns: 10_000_000_000,
            run_delay,
            ..ServerSummary::default()
        };
        let mut record = clean();
        let requests: u32 = record.connections.iter().map(|connection| connection.requests).sum();
        assert!((1_000..100_000).contains(&requests), "{requests}");
        record.connections[0].requests += 100_000 - requests;
        record.server = Some(server.clone());
        let reasons = invalid_reasons(&record);
        record.server = None;
        record.sidecar = Some(SidecarSummary { process: server, connections: 1 });
        assert_eq!(invalid_reasons(&record), reasons, "a sidecar is judged alike");
        reasons
    }

    #[test]
    fn a_server_that_got_no_cpu_for_long_at_a_time_is_measured_again() {
        assert_eq!(starved_by(100, 200, 100, 10_000), Vec::<String>::new());
        let reasons = starved_by(100, 200, 101, 10_000);
        assert!(
            reasons[0].starts_with("nginx's threads together waited 200ms (in 10s of time) for a CPU"),
            "{reasons:?}"
        );
    }

    #[test]
    fn a_loaded_server_may_lose_a_tenth_of_its_cpu_to_other_programs_and_an_idle_one_more() {
        assert_eq!(starved_by(9_000, 1_000, 0, 10_000), Vec::<String>::new());
        assert_eq!(starved_by(8_999, 1_001, 0, 10_000).len(), 1);
        assert_eq!(starved_by(1_000, 3_999, 0, 10_000), Vec::<String>::new(), "it was not the limit");
        assert_eq!(starved_by(1_000, 4_001, 0, 10_000).len(), 1);
    }

    #[test]
    fn a_server_that_overloads_its_cpus_itself_is_data() {
        assert_eq!(starved_by(20_000, 60_000, 0, 8_000), Vec::<String>::new(), "others took a tenth");
        assert_eq!(starved_by(20_000, 60_000, 0, 8_001).len(), 1);
    }

    #[test]
    fn a_server_may_wait_a_millisecond_per_request_or_five_percent_of_the_median() {
        let waited = |micros_each: u64| {
            let mut record = clean();
            let requests: u32 = record.connections.iter().map(|connection| connection.requests).sum();
            let waited_ns = micros_each * 1_000 * u64::from(requests);
            let run_delay = RunDelay { waited_ns, others_ns: waited_ns, ..RunDelay::default() };
            // So long a time that the server is idle for most of it.
            let wall_ns = waited_ns * 100;
            record.server = Some(ServerSummary { run_delay, wall_ns, ..ServerSummary::default() });
            invalid_reasons(&record).len()
        };
        // 5 % of a little more than 25 ms.
        assert_eq!([1_250, 1_300].map(waited), [0, 1]);
    }

    #[test]
    fn a_server_that_others_stop_or_kill_is_no_result_and_is_measured_again() {
        for kind in [
            DisturbanceKind::Stopped { for_ns: 1_000_000_000 },
            DisturbanceKind::ChildEnded,
            DisturbanceKind::Killed { signal: 9 },
        ] {
            let record = disturbed(kind);
            let CellState::Invalid { reasons } = state_of(&record) else { panic!() };
            assert_eq!(reasons, invalid_reasons(&record));
            assert!(reasons[0].contains("nginx"), "{reasons:?}");
        }
    }

    #[test]
    fn a_server_that_ends_by_itself_is_a_result_and_no_reason_to_measure_again() {
        for kind in [DisturbanceKind::Exited { code: 1 }, DisturbanceKind::Crashed { signal: 11 }] {
            let mut record = disturbed(kind);
            record.link.as_mut().unwrap().late_p99_ns = 5_000_000;
            assert_eq!(invalid_reasons(&record), Vec::<String>::new(), "late or not");
            let CellState::Failed { why, how: Failed::ServerEnded } = state_of(&record) else { panic!() };
            assert!(why.contains("nginx") && why.contains("1.5s"), "{why}");
        }
    }

    #[test]
    fn a_cell_without_a_success_failed_and_says_what_came_instead() {
        let ended = |outcome, status, n: usize| {
            let mut record = clean();
            for sample in record.samples.edit().iter_mut().take(n) {
                (sample.outcome, sample.status) = (outcome, status);
            }
            state_of(&record)
        };
        let all = usize::MAX;
        let CellState::Failed { why, how: Failed::NoSuccess } = ended(Outcome::Status, 404, all) else {
            panic!()
        };
        assert!(why.starts_with("no response was a success: ") && why.ends_with("× 404"), "{why}");
        let CellState::Failed { why, how: Failed::NoResponse } = ended(Outcome::Timeout, 0, all) else {
            panic!()
        };
        assert!(why.ends_with("most ended as `timeout`"), "{why}");
        let but_one = clean().samples.len() - 1;
        assert!(matches!(ended(Outcome::Status, 404, but_one), CellState::Unstable { .. }), "one succeeded");
        let mut bulk = clean();
        bulk.cell.work.bulk = true;
        bulk.samples.edit().iter_mut().for_each(|sample| sample.outcome = Outcome::Timeout);
        assert!(!matches!(state_of(&bulk), CellState::Failed { .. }), "its bytes count");
    }

    #[test]
    fn a_cell_that_serves_what_it_is_offered_is_ok() {
        assert_eq!(state_of(&clean()), CellState::Ok);
    }

    /// What becomes of each measured request, by its number and the measured time.
    type Change<'a> = &'a dyn Fn(usize, &mut Sample, (Time, Time));

    #[test]
    fn a_stall_at_the_end_is_no_overload_and_the_same_share_missing_all_the_time_is() {
        let mut short = cell(0, 0, Protocol::H1, 4, 0.0);
        short.work.arrival = Arrival::Constant { rate: 100.0 };
        short.work.phases.measure = Duration::from_secs(1);
        let of = |change: Change<'_>| {
            let mut record = one_repetition(&short, 0, &Model::CLEAN);
            let window = window(&record);
            for (n, sample) in record.samples.edit().iter_mut().filter(|s| s.measured).enumerate() {
                change(n, sample, window);
            }
            state_of(&record)
        };
        // All that was due in the last so many milliseconds, or would have been answered then, is answered after the end.
        let stalled_for = |millis: u64| {
            of(&move |_, sample, (_, until)| {
                if sample.completed_at + Duration::from_millis(millis) >= until {
                    sample.completed_at = sample.completed_at.max(until);
                }
            })
        };
        assert_eq!(stalled_for(60), CellState::Ok, "six of a hundred at once");
        assert!(matches!(stalled_for(200), CellState::Unstable { .. }));
        // A server that falls behind by 6 % of the time.
        let slower = of(&|_, sample, (from, _)| {
            sample.completed_at += sample.scheduled_at.since(from).mul_f64(0.06);
        });
        assert!(matches!(slower, CellState::Unstable { .. }), "{slower:?}");
        let failing = of(&|n, sample, _| {
            if n % 20 == 0 {
                sample.outcome = Outcome::Reset;
            }
        });
        assert!(matches!(failing, CellState::Unstable { .. }), "5 % failed");
    }

    /// Makes `n` measured requests of a clean repetition complete after the window.
    fn postponed(n: usize) -> CellRecord {
        let mut record = clean();
        let (_, until) = window(&record);
        let is_inside = |sample: &&mut Sample| sample.measured && sample.completed_at < until;
        for sample in record.samples.edit().iter_mut().filter(is_inside).step_by(20).take(n) {
            sample.completed_at = until;
        }
        record
    }

    #[test]
    fn serving_less_than_98_percent_is_unstable() {
        assert_eq!(state_of(&postponed(59)), CellState::Ok);
        let CellState::Unstable { offered_rps, served_rps, why } = state_of(&postponed(62)) else { panic!() };
        assert!((offered_rps - 1000.0).abs() < 1e-9 && (979.0..980.0).contains(&served_rps), "{served_rps}");
        assert!(matches!(why, Instability::Served { .. }), "{why}");
    }

    #[test]
    fn a_request_that_straddles_the_end_of_a_slow_cells_window_is_no_instability() {
        let mut slow = cell(0, 0, Protocol::H1, 4, 0.0);
        slow.work.arrival = Arrival::Constant { rate: 10.0 };
        let with_missing = |n: usize| {
            let mut record = one_repetition(&slow, 0, &Model::CLEAN);
            record
                .samples
                .edit()
                .iter_mut()
                .filter(|s| s.measured)
                .take(n)
                .for_each(|s| s.outcome = Outcome::Closed);
            state_of(&record)
        };
        assert_eq!(with_missing(2), CellState::Ok);
        assert!(matches!(with_missing(3), CellState::Unstable { .. }));
    }

    #[test]
    fn an_open_loop_without_warm_up_is_stable_although_the_last_answers_come_late() {
        let mut sudden = cell(0, 0, Protocol::H1, 4, 0.0);
        sudden.work.phases.warmup = Duration::ZERO;
        let mut record = one_repetition(&sudden, 0, &Model::CLEAN);
        let (_, until) = window(&record);
        record.samples.edit().iter_mut().for_each(|sample| sample.completed_at += Duration::from_millis(200));
        let late = record.samples.iter().filter(|sample| sample.measured && sample.completed_at >= until);
        assert!(late.count() as f64 > (1.0 - SERVED_SHARE) * record.samples.len() as f64);
        assert_eq!(state_of(&record), CellState::Ok);
    }

    #[test]
    fn the_fill_of_a_closed_loop_is_no_growth_and_what_comes_after_it_is() {
        // A server of one request per 100 ms, and ten in flight: the first ten wait 100 ms, 200 ms …, all others a second.
        let after_the_fill = |late: Duration| {
            let mut record = clean();
            record.cell.work.arrival = Arrival::Closed { concurrency: 10 };
            let (from, until) = window(&record);
            let middle = from + record.cell.work.phases.measure / 2;
            let kept = record.samples.iter().filter(|sample| sample.measured).take(30);
            let samples = (0_u64..)
                .zip(kept)
                .map(|(k, sample)| {
                    let ended = from + Duration::from_millis(100 * (k + 1));
                    let due = if k < 10 { from } else { from + Duration::from_millis(100 * (k - 9)) };
                    let more = if due >= middle { late } else { Duration::ZERO };
                    let completed_at = (ended + more).min(until - Duration::from_nanos(1));
                    Sample {
                        scheduled_at: due,
                        sent_at: due,
                        first_byte_at: completed_at,
                        completed_at,
                        ..sample
                    }
                })
                .collect();
            record.samples = samples;
            let summary = CellSummary::of(&[&record]);
            instability(&summary, &[&record])
        };
        assert_eq!(after_the_fill(Duration::ZERO), None);
        let grown = after_the_fill(Duration::from_millis(300));
        assert!(matches!(grown, Some(Instability::Growing { .. })), "{grown:?}");
    }

    #[test]
    fn response_times_that_grow_are_unstable() {
        let grown_by = |millis: u64| {
            let mut record = clean();
            let middle = window(&record).0 + record.cell.work.phases.measure / 2;
            let until = window(&record).1;
            for sample in record.samples.edit().iter_mut().filter(|s| s.scheduled_at >= middle) {
                // The last ones stay inside the window, so that only the growth can show.
                let room = until.since(sample.completed_at).saturating_sub(Duration::from_nanos(1));
                sample.completed_at += Duration::from_millis(millis).min(room);
            }
            state_of(&record)
        };
        assert_eq!(grown_by(95), CellState::Ok);
        assert!(matches!(grown_by(120), CellState::Unstable { why: Instability::Growing { .. }, .. }));
    }

    #[test]
    fn a_late_link_is_invalid_beyond_five_percent_of_the_round_trip() {
        let late = |ns: u64| {
            let mut record = clean();
            record.link.as_mut().unwrap().late_p99_ns = ns;
            state_of(&record)
        };
        assert_eq!(late(1_250_000), CellState::Ok); // 5 % of 25 ms
        let CellState::Invalid { reasons } = late(1_250_001) else { panic!() };
        assert_eq!(reasons, ["the emulated link was late: p99 1.25ms, 1.25ms is allowed"]);
    }

    #[test]
    fn a_link_that_did_not_run_for_a_tenth_of_a_second_is_invalid() {
        let late = |millis: u64| {
            let mut record = clean();
            record.link.as_mut().unwrap().late_max_ns = millis * 1_000_000;
            invalid_reasons(&record)
        };
        assert_eq!(late(100), Vec::<String>::new());
        assert!(late(101)[0].contains("late by up to 101ms at once"), "{:?}", late(101));
    }

    #[test]
    fn of_a_machine_that_was_taken_away_is_reported_if_that_did_harm() {
        let taken = |percent: u64, late_ns: u64| {
            let mut record = clean();
            record.generator.stolen_ns = record.generator.wall_ns / 100 * percent;
            record.link.as_mut().unwrap().late_p99_ns = late_ns;
            invalid_reasons(&record)
        };
        assert!(taken(50, 0).is_empty(), "nothing was late");
        assert_eq!(taken(1, 2_000_000).len(), 1);
        let [_, why] = &taken(21, 2_000_000)[..] else { panic!() };
        assert_eq!(why, "the hypervisor gave 21 % of this machine's CPU time to others (steal)");
    }

    #[test]
    fn a_late_generator_is_invalid_beyond_a_millisecond_or_five_percent_of_the_median() {
        let late = |micros: u64| {
            let mut record = clean();
            for sample in record.samples.edit().iter_mut() {
                sample.sent_at = sample.scheduled_at + Duration::from_micros(micros);
            }
            state_of(&record)
        };
        assert_eq!(late(1_250), CellState::Ok); // 5 % of a little more than 25 ms
        assert!(matches!(late(1_300), CellState::Invalid { .. }));
    }

    /// Why the figures are invalid of a closed loop of ten requests that took so long, each request so late.
    fn closed(wall: Duration, late: impl Fn(usize) -> Duration) -> Vec<String> {
        let mut record = clean();
        record.cell.work.arrival = Arrival::Closed { concurrency: 10 };
        record.generator.wall_ns = nanos(wall);
        record.generator.cpu_ns = 0;
        for (n, sample) in record.samples.edit().iter_mut().enumerate() {
            sample.sent_at = sample.scheduled_at + late(n);
        }
        invalid_reasons(&record)
    }

    #[test]
    fn a_closed_loop_that_is_over_at_once_is_invalid_only_beyond_a_pause() {
        let all = |late: u64| move |_| Duration::from_millis(late);
        let [short, longer] = [99, 100].map(Duration::from_millis);
        assert_eq!(closed(short, all(100)), Vec::<String>::new());
        assert!(closed(short, all(101))[0].contains("100ms is allowed"));
        assert!(closed(longer, all(3))[0].contains("the generator was late"));
        let mut open = clean();
        open.generator.wall_ns = nanos(short);
        open.samples.edit().iter_mut().for_each(|s| s.sent_at = s.scheduled_at + Duration::from_millis(3));
        assert!(invalid_reasons(&open)[0].contains("the generator was late"), "an open loop has due times");
    }

    #[test]
    fn the_requests_that_begin_a_closed_loop_may_be_late_and_no_more_of_them() {
        let measured = clean().samples.iter().filter(|sample| sample.measured).count();
        let late = |n: usize| {
            let mut record = clean();
            record.cell.work.arrival = Arrival::Closed { concurrency: 400 };
            record.connections.truncate(1);
            record.connections[0].requests = measured as u32;
            for sample in record.samples.edit().iter_mut().filter(|sample| sample.measured).take(n) {
                sample.sent_at = sample.scheduled_at + Duration::from_millis(5);
            }
            invalid_reasons(&record)
        };
        let others = (measured - 400) / 100;
        assert_eq!(
            late(400 + others - 1),
            Vec::<String>::new(),
            "the first 400, and a hundredth of the others"
        );
        assert!(late(400 + others + 1)[0].contains("the generator was late"));
    }

    #[test]
    fn waiting_for_a_connection_is_not_the_generators_lateness() {
        let mut record = clean();
        for sample in record.samples.edit().iter_mut() {
            sample.sent_at = sample.scheduled_at + Duration::from_millis(20);
            sample.stall_open_ns = 19_900_000;
        }
        assert_eq!(state_of(&record), CellState::Ok);
    }

    #[test]
    fn a_client_of_bulk_may_be_what_holds_it_back() {
        let mut record = clean();
        record.generator.cpu_ns = record.generator.wall_ns;
        assert_eq!(invalid_reasons(&record).len(), 1);
        record.bulk = Some(BulkRepetition {
            meter: ByteMeter::new(Time::ZERO),
            frames: FrameFigures::default(),
            io: IoFigures::default(),
            offered: None,
            receive_buffer: None,
            send_buffer: None,
        });
        assert_eq!(invalid_reasons(&record), Vec::<String>::new());
    }

    #[test]
    fn a_busy_core_of_ours_is_invalid() {
        let busy = |percent: u64, awake: u64| {
            let mut record = clean();
            record.generator.cpu_ns = record.generator.wall_ns / 100 * percent;
            record.generator.awake_ns = record.generator.wall_ns / 100 * awake;
            state_of(&record)
        };
        assert_eq!(busy(94, 0), CellState::Ok);
        assert!(matches!(busy(95, 0), CellState::Invalid { .. }));
        // Busy-waiting to be on time is no overload.
        assert_eq!(busy(99, 5), CellState::Ok);
        assert!(matches!(busy(99, 4), CellState::Invalid { .. }));
        let mut record = clean();
        record.generator.threads = 4;
        record.generator.busiest_ns = record.generator.wall_ns / 100 * 94;
        assert_eq!(state_of(&record), CellState::Ok);
        record.generator.busiest_ns = record.generator.wall_ns / 100 * 96;
        let CellState::Invalid { reasons } = state_of(&record) else { panic!() };
        assert_eq!(reasons, ["the generator's busiest of 4 threads was 96 % busy"]);
        let mut record = clean();
        let link = record.link.as_mut().unwrap();
        link.cpu_ns = link.wall_ns;
        assert!(matches!(state_of(&record), CellState::Invalid { .. }));
    }

    #[test]
    fn a_packet_that_nobody_can_account_for_is_invalid() {
        let mut record = clean();
        record.link.as_mut().unwrap().down.delivered -= 1;
        let CellState::Invalid { reasons } = state_of(&record) else { panic!() };
        assert!(reasons[0].contains("downlink's packet log"), "{reasons:?}");
        let mut record = clean();
        record.link.as_mut().unwrap().device_drops = 1;
        assert!(matches!(state_of(&record), CellState::Invalid { .. }));
    }

    #[test]
    fn a_cell_without_any_answer_of_its_protocol_is_unsupported_and_says_why() {
        let mut record = clean();
        for sample in record.samples.edit().iter_mut() {
            sample.outcome = Outcome::Protocol;
        }
        for connection in &mut record.connections {
            connection.closed = CloseReason::Local { why: "the peer does not speak HTTP/2".to_owned() };
        }
        assert_eq!(
            state_of(&record),
            CellState::Unsupported { why: "the peer does not speak HTTP/2".to_owned() }
        );
        record.samples.edit().last_mut().unwrap().outcome = Outcome::Succeeded;
        assert!(matches!(state_of(&record), CellState::Unstable { .. }));
    }
}

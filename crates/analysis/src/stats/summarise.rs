//! From the records of a cell's repetitions to its summary.

use std::collections::BTreeMap;
use std::time::Duration;

use super::connections::ConnectionTotals;
use super::process::ProcessTotals;
use super::shares::LostShares;
use super::summary::{CellState, CellSummary, ErrorCount, RepetitionSeries, RequestCounts};
use super::tallied::{self, Tallies, response_time, window};
use super::transfer::Transfers;
use super::transport::{GeneratorTotals, LinkTotals, PerRequest, QuicEnd, TcpEnd};
use super::{checks, pool, reproduction, shares, silence, state};
use h2lab_base::units::Time;
use h2lab_model::record::tally::Counts;
use h2lab_model::record::{CellRecord, Fault, Level, Outcome, Tally};
use h2lab_model::scenario::{Naming, Target};
use h2lab_model::workload::Arrival;

/// A timeout is the server's fault only if the request spent at most this share of it waiting for a connection.
const WAITED: f64 = 0.1;

impl CellSummary {
    /// The summary of one cell from all repetitions of it, which must not be empty.
    pub fn of(repetitions: &[&CellRecord]) -> Self {
        let cell = repetitions.first().expect("a cell has at least one repetition").cell.clone();
        let unsupported = repetitions.iter().find_map(|repetition| repetition.unsupported.clone());
        let repetitions: Vec<&CellRecord> =
            repetitions.iter().copied().filter(|repetition| repetition.unsupported.is_none()).collect();
        let repetitions = repetitions.as_slice();
        let measured: Duration =
            repetitions.iter().map(|repetition| repetition.cell.work.phases.measure).sum();
        let seconds = measured.as_secs_f64().max(f64::MIN_POSITIVE);
        let tallies = Tallies::of(repetitions);
        let requests = count(&tallies);
        let lost_shares = LostShares::of(repetitions);
        let series: Vec<RepetitionSeries> = repetitions
            .iter()
            .zip(tallies.by_repetition())
            .map(|(repetition, counted)| series(repetition, counted))
            .collect();
        let served: u64 = series.iter().flat_map(|series| &series.served).map(|(_, served)| served).sum();
        let completed = Counts::total(tallies.all());
        let succeeded =
            Counts::total(tallies.measured().filter(|tally| tally.class.outcome == Outcome::Succeeded));
        let bytes_each = match completed.served {
            0 => succeeded.body_bytes as f64 / succeeded.requests.max(1) as f64,
            served => completed.served_bytes as f64 / served as f64,
        };
        let mut summary = Self {
            label: cell.label(),
            naming: Naming::default(),
            repetitions: repetitions.len() as u32,
            congestion: congestion(repetitions),
            measured,
            requests,
            statuses: statuses(&tallies),
            body_quartiles: body_quartiles(repetitions),
            errors: errors(repetitions, &tallies),
            offered_rps: lost_shares
                .as_ref()
                .and_then(|lost| lost.asked_rps)
                .unwrap_or(requests.sent as f64 / seconds),
            served_rps: served as f64 / seconds,
            goodput_bytes_per_s: served as f64 * bytes_each / seconds,
            response: tallied::RESPONSE.of(repetitions),
            service: tallied::SERVICE.of(repetitions),
            ttfb: tallied::TTFB.of(repetitions),
            series,
            connections: ConnectionTotals::of(repetitions, &tallies),
            tcp_client: TcpEnd::of(repetitions, false),
            tcp_server: TcpEnd::of(repetitions, true),
            quic_client: QuicEnd::of(repetitions),
            transfers: Transfers::of(repetitions),
            link: LinkTotals::of(repetitions),
            generator: GeneratorTotals::of(repetitions, &tallies),
            server: ProcessTotals::of(repetitions, &tallies, |repetition| repetition.server.as_ref()),
            sidecar: ProcessTotals::of(repetitions, &tallies, |repetition| {
                Some(&repetition.sidecar.as_ref()?.process)
            }),
            hop_connections: hop_connections(repetitions),
            per_request: PerRequest::of(repetitions),
            level: level(repetitions),
            machines: reproduction::machines(repetitions),
            lost_shares,
            pool: None,
            silence: None,
            state: CellState::Ok,
            warnings: repetitions.iter().flat_map(|repetition| repetition.warnings.iter().cloned()).collect(),
            cell,
        };
        summary.pool = pool::limit(&summary, repetitions);
        summary.state = match unsupported {
            Some(why) if repetitions.is_empty() => CellState::Unsupported { why },
            _ => state::judge(&summary, repetitions),
        };
        // Those checks are about requests; bulk work may have a single one that does not end.
        if !repetitions.is_empty() && !summary.cell.work.bulk {
            // For a server that ended, the reason is known, and is in the state.
            let is_there = !matches!(summary.state, CellState::Failed { .. });
            summary.silence = silence::of(&summary, repetitions).filter(|_| is_there);
            summary.warnings.extend(checks::warnings(&summary, repetitions, &tallies));
        }
        summary.warnings.extend(shares::warnings(repetitions, summary.is_invalid()));
        let mut seen = std::collections::BTreeSet::new();
        summary.warnings.retain(|warning| seen.insert(warning.clone()));
        summary
    }
}

/// See [`CellSummary::hop_connections`].
fn hop_connections(repetitions: &[&CellRecord]) -> Option<u64> {
    // The sum of no values would be 0.
    let _ = repetitions.first()?;
    repetitions
        .iter()
        .map(|repetition| repetition.sidecar.as_ref().map(|sidecar| u64::from(sidecar.connections)))
        .sum()
}

fn count(tallies: &Tallies<'_>) -> RequestCounts {
    let mut counts = RequestCounts::default();
    for tally in tallies.measured() {
        let n = tally.counts.requests;
        counts.sent += n;
        counts.replayed += tally.counts.replays;
        counts.unsent += n.saturating_sub(tally.counts.sent);
        match tally.class.outcome {
            Outcome::Succeeded => counts.succeeded += n,
            Outcome::Unfinished => counts.unfinished += n,
            _ => counts.failed += n,
        }
    }
    counts
}

fn statuses(tallies: &Tallies<'_>) -> BTreeMap<u16, u64> {
    let mut statuses = BTreeMap::new();
    for tally in tallies.measured().filter(|tally| tally.class.outcome.is_complete()) {
        *statuses.entry(tally.class.status).or_insert(0) += tally.counts.requests;
    }
    statuses
}

/// See [`CellSummary::body_quartiles`].
fn body_quartiles(repetitions: &[&CellRecord]) -> Option<[u64; 3]> {
    if repetitions.iter().any(|repetition| !repetition.tallies.is_empty() || repetition.bulk.is_some()) {
        return None;
    }
    let samples = repetitions.iter().flat_map(|repetition| repetition.samples.iter());
    let answered = samples.filter(|sample| sample.measured && sample.outcome.is_success());
    let mut lengths: Vec<u64> = answered.map(|sample| sample.body_bytes).collect();
    lengths.sort_unstable();
    let at = |quarters: usize| {
        lengths.get((lengths.len() * quarters / 4).min(lengths.len().checked_sub(1)?)).copied()
    };
    Some([at(1)?, at(2)?, at(3)?])
}

fn errors(repetitions: &[&CellRecord], tallies: &Tallies<'_>) -> Vec<ErrorCount> {
    let mut counts: BTreeMap<(Outcome, u32, Fault), u64> = BTreeMap::new();
    for (repetition, counted) in repetitions.iter().zip(tallies.by_repetition()) {
        for tally in counted.iter().filter(|tally| tally.class.part.is_measured()) {
            let class = &tally.class;
            let Some(fault) = class.outcome.fault() else { continue };
            let fault = match (fault, &repetition.cell.target) {
                // The rest of its timeout may have been too short for any server.
                _ if class.outcome == Outcome::Unanswered && has_waited(repetition, tally) => Fault::Client,
                (Fault::Sut, Target::Origin) => Fault::Origin,
                (fault, _) => fault,
            };
            let code = if class.outcome == Outcome::Status { u32::from(class.status) } else { class.code };
            *counts.entry((class.outcome.kind(), code, fault)).or_insert(0) += tally.counts.requests;
        }
    }
    let mut errors: Vec<ErrorCount> = counts
        .into_iter()
        .map(|((kind, code, fault), count)| ErrorCount { kind, code, fault, count })
        .collect();
    errors.sort_by_key(|error| std::cmp::Reverse(error.count));
    errors
}

/// Whether requests spent a good part of their timeout waiting for a connection, on average.
fn has_waited(repetition: &CellRecord, tally: &Tally) -> bool {
    let counts = &tally.counts;
    let waited = Duration::from_nanos(counts.stall_open_ns / counts.requests.max(1));
    waited > repetition.cell.work.timeout.mul_f64(WAITED)
}

/// The coarsest level at which a repetition was recorded.
fn level(repetitions: &[&CellRecord]) -> Level {
    repetitions.iter().map(|repetition| repetition.generator.level).max().unwrap_or_default()
}

fn series(repetition: &CellRecord, counted: &[Tally]) -> RepetitionSeries {
    let (from, _) = window(repetition);
    let measured = repetition.samples.iter().filter(|sample| sample.measured);
    let points = if repetition.tallies.is_empty() {
        measured.filter_map(|s| Some((s.scheduled_at.since(from), response_time(&s)?))).collect()
    } else {
        tallied::points(repetition)
    };
    RepetitionSeries {
        round: repetition.cell.repetition,
        duration: repetition.cell.work.phases.measure,
        longest_stall: longest_stall(repetition),
        points,
        served: served(repetition, counted),
        failed: failed(repetition, counted),
    }
}

/// See [`RepetitionSeries::failed`].
fn failed(repetition: &CellRecord, counted: &[Tally]) -> Vec<(Duration, u64)> {
    use Outcome::{Closed, GoAway, Protocol, Reset, Status};
    let (from, _) = window(repetition);
    let is_failure = |tally: &&Tally| match tally.class.outcome {
        Status => !matches!(tally.class.status, 429 | 503),
        outcome => matches!(outcome, Closed | GoAway | Protocol | Reset),
    };
    let mut slices: BTreeMap<Time, u64> = BTreeMap::new();
    for tally in counted.iter().filter(|tally| tally.class.part.is_measured()).filter(is_failure) {
        *slices.entry(tally.at.max(from)).or_insert(0) += tally.counts.requests;
    }
    slices.into_iter().map(|(at, n)| (at.since(from), n)).collect()
}

/// In an open loop, requests of the warm-up may take the place of those that end after the measured time, but only as
/// many: a backlog from before does not belong to what was offered. It is answered first.
fn drop_backlog(slices: &mut BTreeMap<Time, u64>, counted: &[Tally]) {
    let measured = counted.iter().filter(|tally| tally.class.part.is_measured());
    let due =
        measured.filter(|tally| matches!(tally.class.outcome, Outcome::Succeeded | Outcome::Unfinished));
    let due: u64 = due.map(|tally| tally.counts.requests).sum();
    let mut excess = slices.values().sum::<u64>().saturating_sub(due);
    for served in slices.values_mut() {
        let dropped = excess.min(*served);
        *served -= dropped;
        excess -= dropped;
    }
}

/// In an open loop whose warm-up is shorter than a response takes: requests that succeeded after the measured time and
/// take the place of those that could not be answered yet at its beginning. These are as many as are due during a quick
/// response; the quick responses show how long that is. If more is missing than this explains, the cell is overloaded,
/// and none is added to what it `served`.
fn on_their_way(repetition: &CellRecord, counted: &[Tally], served: u64) -> u64 {
    let lead = tallied::RESPONSE.quantile(repetition, 0.1).saturating_sub(repetition.cell.work.phases.warmup);
    let measured = || counted.iter().filter(|tally| tally.class.part.is_measured());
    let due: u64 = measured().map(|tally| tally.counts.requests).sum();
    let share = lead.as_secs_f64() / repetition.cell.work.phases.measure.as_secs_f64().max(f64::MIN_POSITIVE);
    let succeeded = measured().filter(|tally| tally.class.outcome == Outcome::Succeeded);
    let late: u64 = succeeded.map(|tally| tally.counts.requests - tally.counts.served).sum();
    let late = late.min((due as f64 * share.min(1.0)).ceil() as u64);
    let explains_all = (served + late) as f64 >= due as f64 * state::SERVED_SHARE;
    if explains_all { late } else { 0 }
}

/// How many requests a repetition served of which every request was kept, in the sense of [`RepetitionSeries::served`].
pub(super) fn served_by(repetition: &CellRecord) -> u64 {
    let tallies = Tallies::of(&[repetition]);
    tallies.by_repetition().flat_map(|counted| served(repetition, counted)).map(|(_, served)| served).sum()
}

/// See [`RepetitionSeries::served`].
fn served(repetition: &CellRecord, counted: &[Tally]) -> Vec<(Duration, u64)> {
    let (from, _) = window(repetition);
    let mut slices: BTreeMap<Time, u64> = BTreeMap::new();
    for tally in counted.iter().filter(|tally| tally.counts.served > 0) {
        *slices.entry(tally.at.max(from)).or_insert(0) += tally.counts.served;
    }
    if !matches!(repetition.cell.work.arrival, Arrival::Closed { .. }) {
        drop_backlog(&mut slices, counted);
        let served = slices.values().sum();
        *slices.entry(from).or_insert(0) += on_their_way(repetition, counted, served);
    }
    slices.into_iter().map(|(at, served)| (at.since(from), served)).collect()
}

/// See [`RepetitionSeries::longest_stall`]. Requests that wait for a connection count under the one that they got. If
/// not every request was kept, it is unknown which of them waited together: then it is the time that the slowest may
/// have shared.
fn longest_stall(repetition: &CellRecord) -> Duration {
    if !repetition.tallies.is_empty() {
        let slowest = tallied::RESPONSE.quantile(repetition, 1.0);
        return slowest.saturating_sub(tallied::RESPONSE.quantile(repetition, 0.5));
    }
    let counted = || repetition.samples.iter().filter(|s| s.measured && response_time(s).is_some());
    let median = tallied::RESPONSE.quantile(repetition, 0.5);
    // Per connection: when its latest request so far ended. The last place is for requests that never got a connection.
    let none = repetition.connections.len();
    let mut ended = vec![Time::ZERO; none + 1];
    let mut longest = Duration::ZERO;
    for sample in counted() {
        let ended = &mut ended[(sample.connection as usize).min(none)];
        let together = sample.completed_at.min(*ended).since(sample.scheduled_at);
        longest = longest.max(together);
        *ended = sample.completed_at.max(*ended);
    }
    longest.saturating_sub(median)
}

/// The value read back, else the configured one.
fn congestion(repetitions: &[&CellRecord]) -> Option<String> {
    let first = repetitions.first()?;
    if let Some(quic) = QuicEnd::of(repetitions) {
        return Some(quic.congestion_control); // the namespace's value is about TCP
    }
    let read_back = &first.environment.congestion_client;
    if read_back.is_empty() { first.cell.congestion.clone() } else { Some(read_back.clone()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_model::record::Sample;
    use h2lab_model::record::testing::{Model, cell, counted, one_repetition};
    use h2lab_model::workload::Protocol;

    fn clean() -> CellRecord {
        one_repetition(&cell(0, 0, Protocol::H1, 32, 0.0), 0, &Model::CLEAN)
    }

    #[test]
    fn repetitions_of_a_cell_are_pooled() {
        let cell = cell(0, 0, Protocol::H2c, 4, 0.0);
        let repetitions = [one_repetition(&cell, 0, &Model::CLEAN), one_repetition(&cell, 1, &Model::CLEAN)];
        let summary = CellSummary::of(&[&repetitions[0], &repetitions[1]]);
        assert_eq!(summary.measured, Duration::from_secs(6));
        assert_eq!(
            summary.requests,
            RequestCounts { sent: 6000, succeeded: 6000, failed: 0, unfinished: 0, replayed: 0, unsent: 0 }
        );
        assert!((summary.served_rps - 1000.0).abs() < 1.0, "{}", summary.served_rps);
        assert_eq!(summary.connections.opened, 8);
        assert!((summary.requests_per_connection() - 875.0).abs() < 1e-9);
    }

    #[test]
    fn a_cell_that_could_not_be_measured_says_why_and_nothing_else() {
        let mut cell = cell(0, 0, Protocol::H2, 1, 0.0);
        cell.work.arrival = h2lab_model::workload::Arrival::Closed { concurrency: 8 };
        let record = CellRecord::unsupported(cell, "it speaks HTTP/1.1 only".to_owned());
        let summary = CellSummary::of(&[&record]);
        assert_eq!(summary.state, CellState::Unsupported { why: "it speaks HTTP/1.1 only".to_owned() });
        assert_eq!((summary.repetitions, summary.measured), (0, Duration::ZERO));
        assert_eq!(summary.hop_connections, None, "a sidecar that never ran held none");
        assert_eq!(summary.warnings, Vec::<String>::new());
        // An existing repetition takes precedence over a missing one.
        assert_eq!(CellSummary::of(&[&record, &clean()]).state, CellState::Ok);
    }

    #[test]
    fn failures_are_counted_and_kept_out_of_latency() {
        let mut record = clean();
        let measured: Vec<usize> =
            (0..record.samples.len()).filter(|&i| record.samples.get(i).unwrap().measured).collect();
        for &i in &measured[..3] {
            record.samples.edit()[i].outcome = Outcome::Status;
            record.samples.edit()[i].status = 503;
        }
        record.samples.edit()[measured[3]].outcome = Outcome::Timeout;
        record.samples.edit()[measured[4]].outcome = Outcome::Unanswered;
        let summary = CellSummary::of(&[&record]);
        assert_eq!(
            summary.requests,
            RequestCounts { sent: 3000, succeeded: 2995, failed: 5, unfinished: 0, replayed: 0, unsent: 0 }
        );
        assert_eq!(summary.response.n(), 2995);
        assert_eq!(summary.statuses, BTreeMap::from([(200, 2995), (503, 3)]));
        let kinds: Vec<_> = summary.errors.iter().map(|e| (e.kind, e.code, e.fault, e.count)).collect();
        let expected = [
            (Outcome::Status, 503, Fault::Origin, 3),
            (Outcome::Timeout, 0, Fault::Client, 1),
            (Outcome::Timeout, 0, Fault::Origin, 1),
        ];
        assert_eq!(kinds, expected);
    }

    #[test]
    fn a_server_is_not_blamed_for_the_timeout_of_requests_that_waited_for_a_connection() {
        let fault = |waited: f64| {
            let mut record = clean();
            let waited = record.cell.work.timeout.mul_f64(waited);
            for sample in record.samples.edit().iter_mut() {
                (sample.outcome, sample.status) = (Outcome::Unanswered, 0);
                sample.stall_open_ns = waited.as_nanos() as u64;
            }
            let errors = CellSummary::of(&[&record]).errors;
            errors.iter().map(|error| (error.kind, error.fault)).collect::<Vec<_>>()
        };
        assert_eq!(fault(0.05), [(Outcome::Timeout, Fault::Origin)]);
        assert_eq!(fault(0.2), [(Outcome::Timeout, Fault::Client)]);
    }

    #[test]
    fn failures_in_time_are_without_those_by_which_a_server_refuses_a_load() {
        let mut record = clean();
        let outcomes = [Outcome::Reset, Outcome::Closed, Outcome::Timeout, Outcome::Unfinished];
        let answers = [429, 500, 503].map(|status| (Outcome::Status, status));
        let ends: Vec<(Outcome, u16)> =
            outcomes.map(|outcome| (outcome, 0)).into_iter().chain(answers).collect();
        let mut samples = record.samples.edit();
        let measured = samples.iter_mut().filter(|sample| sample.measured);
        measured
            .zip(ends)
            .for_each(|(sample, (outcome, status))| (sample.outcome, sample.status) = (outcome, status));
        drop(samples);
        let series = CellSummary::of(&[&record]).series;
        assert_eq!(series[0].failed.iter().map(|(_, n)| n).sum::<u64>(), 3, "reset, closed and 500");
    }

    #[test]
    fn an_unfinished_request_counts_with_the_age_it_reached() {
        let mut record = clean();
        let last = record.samples.len() - 1;
        let cut = record.cell.work.phases.cut(record.started_at);
        record.samples.edit()[last].outcome = Outcome::Unfinished;
        record.samples.edit()[last].completed_at = cut;
        let summary = CellSummary::of(&[&record]);
        assert_eq!(summary.requests.unfinished, 1);
        assert_eq!(summary.response.quantile(1.0), cut.since(record.samples.get(last).unwrap().scheduled_at));
        assert_eq!(summary.service.n(), 2999);
    }

    #[test]
    fn what_is_served_beside_a_slow_request_counts_when_it_ends() {
        let mut record = one_repetition(&cell(0, 0, Protocol::H1, 32, 0.0), 0, &Model::CLEAN);
        let (_, until) = tallied::window(&record);
        record.samples.edit()[0].completed_at = Time::from_nanos(until.as_nanos() - 1);
        let summary = CellSummary::of(&[&record]);
        let series = &summary.series[0];
        let pieces = series.served_in_pieces(10);
        let rate = pieces.iter().sum::<f64>() / series.duration.as_secs_f64();
        assert!((rate / summary.served_rps - 1.0).abs() < 1e-6, "{rate} of {}", summary.served_rps);
        assert!(pieces.iter().all(|piece| *piece > summary.served_rps / 20.0), "{pieces:?}");
    }

    #[test]
    fn what_completes_in_the_drain_is_not_served() {
        let mut record = clean();
        let (_, until) = window(&record);
        let (mut moved, served) = (0, CellSummary::of(&[&record]).served_rps);
        for sample in
            record.samples.edit().iter_mut().filter(|s| s.measured && s.completed_at < until).take(600)
        {
            sample.completed_at = until;
            moved += 1;
        }
        assert_eq!(moved, 600);
        assert!((served - CellSummary::of(&[&record]).served_rps - 200.0).abs() < 1e-6);
    }

    #[test]
    fn what_queued_up_before_measuring_is_no_part_of_what_was_served() {
        let mut record = clean();
        let (from, until) = window(&record);
        let inside = |sample: &Sample| sample.completed_at >= from && sample.completed_at < until;
        let steady = CellSummary::of(&[&record]);
        // All requests of the warm-up are answered when the measured time begins.
        for sample in record.samples.edit().iter_mut().filter(|sample| !sample.measured) {
            sample.completed_at = from + Duration::from_millis(1);
        }
        assert!(record.samples.iter().filter(|sample| inside(sample)).count() > 3_400);
        let summary = CellSummary::of(&[&record]);
        assert!((summary.served_rps - summary.offered_rps).abs() < 1e-6, "{}", summary.served_rps);
        let bytes_each = |summary: &CellSummary| summary.goodput_bytes_per_s / summary.served_rps;
        assert!((bytes_each(&summary) - bytes_each(&steady)).abs() < 1e-6);
        let series = summary.series[0].served.iter().map(|(_, served)| served).sum::<u64>();
        assert_eq!(series, 3_000);
        // In a closed loop, what is offered is what it serves.
        record.cell.work.arrival = Arrival::Closed { concurrency: 32 };
        assert!(CellSummary::of(&[&record]).served_rps > 1_130.0);
    }

    #[test]
    fn requests_that_are_on_their_way_as_measuring_begins_and_ends_make_up_for_each_other() {
        let mut sudden = cell(0, 0, Protocol::H1, 32, 0.0);
        sudden.work.phases.warmup = Duration::ZERO;
        let mut record = one_repetition(&sudden, 0, &Model::CLEAN);
        let (_, until) = window(&record);
        record.samples.edit().iter_mut().for_each(|sample| sample.completed_at += Duration::from_secs(1));
        assert!(record.samples.iter().filter(|sample| sample.completed_at >= until).count() > 900);
        let summary = CellSummary::of(&[&record]);
        let share = summary.served_rps / summary.offered_rps;
        assert!((0.98..1.02).contains(&share), "{share}");
        assert_eq!(summary.state, CellState::Ok);
        // All answers come after the end: still the offered load was served.
        record.samples.edit().iter_mut().for_each(|sample| sample.completed_at += Duration::from_secs(3));
        let summary = CellSummary::of(&[&record]);
        assert!(summary.served_rps > summary.offered_rps * 0.98 && summary.goodput_bytes_per_s > 0.0);
    }

    #[test]
    fn a_stall_is_as_long_as_two_requests_of_a_connection_wait_together() {
        let longest_stall = |protocol: Protocol, millis: [u64; 2]| {
            let mut record = one_repetition(&cell(0, 0, protocol, 1, 0.0), 0, &Model::CLEAN);
            for (sample, millis) in
                record.samples.edit().iter_mut().filter(|s| s.measured).skip(1000).zip(millis)
            {
                sample.connection = if protocol.is_multiplexed() { 0 } else { 99 };
                sample.completed_at = sample.scheduled_at + Duration::from_millis(millis);
            }
            CellSummary::of(&[&record]).series[0].longest_stall.as_millis()
        };
        // Two requests a millisecond apart; the median is a little above 25 ms.
        assert_eq!(longest_stall(Protocol::H2c, [500, 499]), 473);
        assert_eq!(longest_stall(Protocol::H1, [500, 25]), 0, "the second waited for nothing");
        assert_eq!(longest_stall(Protocol::H1, [500, 200]), 174, "of the first's wait it shared its own");
        assert_eq!(longest_stall(Protocol::H1, [25, 500]), 0);
    }

    #[test]
    fn of_counted_requests_the_slowest_may_have_shared_a_stall() {
        let mut record = one_repetition(&cell(0, 0, Protocol::H2c, 1, 0.0), 0, &Model::CLEAN);
        for slow in record.samples.edit().iter_mut().filter(|s| s.measured).skip(1000).take(1) {
            slow.completed_at = slow.scheduled_at + Duration::from_millis(500);
        }
        let counted = counted(record);
        assert!(counted.samples.is_empty());
        let stall = CellSummary::of(&[&counted]).series[0].longest_stall.as_millis();
        assert!((470..=476).contains(&stall), "{stall}");
    }
}

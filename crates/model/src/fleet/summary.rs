//! The figures of a fleet, from its record.

use h2lab_base::JsonSchema;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{AgentRecord, FleetRecord, PairEnd, PairRecord};
use crate::bulk::rate::{bits_per_second, cpu_per_gb};
use crate::bulk::record::{MOST_PAUSED_SHARE, SILENCE, exceeds};
use crate::bulk::{ByteMeter, FrameFigures, RateSpread, TransferDirection, TransferOutcome, TransferTally};

/// What became of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum PairState {
    /// It fetched until its time was over.
    Complete,
    /// It was interrupted before.
    Partial,
    /// Something went wrong: a file failed, or nothing could be fetched. What had come counts.
    Failed,
    /// An agent died or fell silent, so that there is no report. What it had reported until then counts.
    Lost,
    /// Its client did not run for more than 10 % of its time: what came says nothing of the server.
    Invalid,
}

impl PairState {
    /// The name in JSON and reports.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The number of pairs by state; every pair is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct PairTally {
    /// They fetched until their time was over.
    pub complete: u64,
    /// They were interrupted before.
    pub partial: u64,
    /// Something went wrong; what had come counts.
    pub failed: u64,
    /// An agent died or fell silent; what it had reported until then counts.
    pub lost: u64,
    /// Their clients did not run for more than 10 % of their time.
    pub invalid: u64,
}

impl PairTally {
    /// All of them.
    pub const fn all(self) -> u64 {
        self.complete + self.partial + self.failed + self.lost + self.invalid
    }

    fn count(&mut self, state: PairState) {
        *match state {
            PairState::Complete => &mut self.complete,
            PairState::Partial => &mut self.partial,
            PairState::Failed => &mut self.failed,
            PairState::Lost => &mut self.lost,
            PairState::Invalid => &mut self.invalid,
        } += 1;
    }
}

impl PairRecord {
    /// What became of it.
    pub fn state(&self) -> PairState {
        match &self.end {
            PairEnd::Lost { .. } => PairState::Lost,
            PairEnd::Failed { .. } => PairState::Failed,
            PairEnd::Reported(figures) if figures.interrupted => PairState::Partial,
            PairEnd::Reported(figures) if figures.is_failed() => PairState::Failed,
            PairEnd::Reported(figures)
                if exceeds(figures.paused, MOST_PAUSED_SHARE, figures.meter.elapsed()) =>
            {
                PairState::Invalid
            }
            PairEnd::Reported(_) => PairState::Complete,
        }
    }

    /// Bytes that are known to have come.
    pub fn bytes(&self) -> u64 {
        match &self.end {
            PairEnd::Reported(figures) => figures.bytes(),
            PairEnd::Failed { .. } | PairEnd::Lost { .. } => self.meter.total(),
        }
    }

    /// Its bytes over its own time, in bits per second; 0 if none came.
    pub fn rate(&self) -> f64 {
        bits_per_second(self.bytes(), self.meter.elapsed()).unwrap_or(0.0)
    }

    /// CPU seconds of its client per GB that came; `None` if it was not reported, or nothing came.
    pub fn cpu_per_gb(&self) -> Option<f64> {
        let PairEnd::Reported(figures) = &self.end else { return None };
        cpu_per_gb(figures.cpu, figures.bytes())
    }

    /// How its files ended; unknown for a lost pair.
    pub fn files(&self) -> TransferTally {
        let mut tally = TransferTally::default();
        if let PairEnd::Reported(figures) = &self.end {
            for ending in &figures.endings {
                *match ending.outcome {
                    TransferOutcome::Complete => &mut tally.complete,
                    TransferOutcome::Partial { .. } => &mut tally.partial,
                    TransferOutcome::Failed { .. } => &mut tally.failed,
                } += ending.files;
            }
        }
        tally
    }
}

/// The figures of a fleet. Rates are in bits per second.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetSummary {
    /// How the pairs ended.
    pub pairs: PairTally,
    /// How the files ended, as far as known.
    pub files: TransferTally,
    /// Bytes of all pairs, those that failed or were lost among them.
    pub bytes: u64,
    /// Of these, bytes of pairs that were lost: as last reported.
    pub lost_bytes: u64,
    /// From the first request of any pair to the last byte of any, on one clock.
    pub elapsed: Duration,
    /// All bytes over all that time; `None` if there was none.
    pub aggregate: Option<f64>,
    /// The rate of each pair over its own time: for fairness, never to be added up. Those that failed or
    /// were lost are among them.
    pub per_pair: Option<RateSpread>,
    /// Bytes of all pairs over time.
    pub meter: ByteMeter,
    /// Frames of all pairs.
    pub frames: FrameFigures,
    /// CPU seconds of clients per GB, over all pairs that reported it; `None` if nothing came of these.
    pub cpu_per_gb: Option<f64>,
    /// The latest start of a pair after the common instant, by its client's clock; `None` if none was begun.
    pub latest_start: Option<Duration>,
    /// The largest clock uncertainty of a pair's client against the driver.
    pub clock_uncertainty: Option<Duration>,
}

impl FleetSummary {
    /// The summary of a record.
    pub fn of(record: &FleetRecord) -> Self {
        let (mut pairs, mut files, mut frames) =
            (PairTally::default(), TransferTally::default(), FrameFigures::default());
        let (mut cpu, mut reported_bytes) = (Duration::ZERO, 0);
        for pair in &record.pairs {
            pairs.count(pair.state());
            let of_pair = pair.files();
            files.complete += of_pair.complete;
            files.partial += of_pair.partial;
            files.failed += of_pair.failed;
            if let PairEnd::Reported(figures) = &pair.end {
                frames.add(&figures.frames);
                (cpu, reported_bytes) = (cpu + figures.cpu, reported_bytes + figures.bytes());
            }
        }
        let lost = |pair: &&PairRecord| pair.state() == PairState::Lost;
        let bytes = record.pairs.iter().map(PairRecord::bytes).sum();
        let meter = all_bytes(&record.pairs);
        let took_part = |pair: &PairRecord| record.clients.get(pair.pair.client as usize)?.offset;
        Self {
            pairs,
            files,
            bytes,
            lost_bytes: record.pairs.iter().filter(lost).map(PairRecord::bytes).sum(),
            elapsed: meter.elapsed(),
            aggregate: bits_per_second(bytes, meter.elapsed()),
            per_pair: RateSpread::of(record.pairs.iter().map(PairRecord::rate)),
            meter,
            frames,
            cpu_per_gb: cpu_per_gb(cpu, reported_bytes),
            latest_start: record.pairs.iter().filter_map(|pair| pair.late).max(),
            clock_uncertainty: record
                .pairs
                .iter()
                .filter_map(took_part)
                .map(|offset| offset.uncertainty)
                .max(),
        }
    }
}

/// A late or uncertain start of more than this share of a run's time makes the sum doubtful, and so does an agent that did not run.
const DOUBTFUL: f64 = 0.01;

impl FleetSummary {
    /// What makes the figures of a record doubtful, in sentences.
    pub fn doubts(&self, record: &FleetRecord) -> Vec<String> {
        let is_long = |time: &Duration| exceeds(*time, DOUBTFUL, record.asked.duration);
        let share =
            |time: Duration| 100.0 * time.as_secs_f64() / record.asked.duration.as_secs_f64().max(1e-9);
        let late = self.latest_start.filter(is_long).map(|late| {
            format!(
                "a pair began {late:.1?} after the common start: {:.0} % of the time was not shared",
                share(late)
            )
        });
        let unsure = self.clock_uncertainty.filter(is_long).map(|most| {
            format!("a client's clock is known only to ±{most:.1?}, {:.0} % of the time: the common start may be off \
                 by that", share(most))
        });
        let agents = record.clients.iter().chain(&record.servers);
        let others = agents.filter_map(|agent| {
            let version = agent.version.as_ref().filter(|version| **version != record.version)?;
            Some(format!("{} has h2lab {version}, the driver {}", agent.name, record.version))
        });
        let silent = record.pairs.iter().filter_map(|pair| {
            let PairEnd::Reported(figures) = &pair.end else { return None };
            let cut = record.asked.duration.saturating_sub(figures.meter.elapsed());
            (pair.state() == PairState::Complete && cut >= SILENCE).then(|| {
                let [client, server] = [
                    record.clients.get(pair.pair.client as usize),
                    record.servers.get(pair.pair.server as usize),
                ]
                .map(|agent| agent.map_or("?", |agent| agent.name.as_str()));
                let (way, moved) = match record.asked.direction {
                    TransferDirection::Get => ("from", "received"),
                    TransferDirection::Put => ("to", "sent"),
                };
                format!("{client} {way} {server}: no data {moved} in the last {cut:.1?} before the end")
            })
        });
        let undeclared =
            record.servers.iter().filter(|server| record.start_at.happened() && server.is_unreported());
        let undeclared =
            undeclared.map(|server| format!("{} did not report its CPU time and retransmits", server.name));
        let clients = record.pairs.iter().filter_map(|pair| {
            let PairEnd::Reported(figures) = &pair.end else { return None };
            Some((record.clients.get(pair.pair.client as usize)?, figures.paused))
        });
        let servers =
            record.servers.iter().filter_map(|server| Some((server, server.served.as_ref()?.paused)));
        let paused = clients.chain(servers).filter(|(_, paused)| is_long(paused)).map(|(agent, paused)| {
            let share = share(paused);
            format!(
                "{} did not run for {paused:.1?}, {share:.0} % of the time: it, or its machine, was stopped",
                agent.name
            )
        });
        let doubts = late.into_iter().chain(unsure).chain(silent).chain(others).chain(undeclared);
        doubts.chain(paused).collect()
    }

    /// Whether a server did not run for so long that what its clients got says nothing.
    pub fn is_void(&self, record: &FleetRecord) -> bool {
        let paused =
            |server: &AgentRecord| server.served.as_ref().map_or(Duration::ZERO, |served| served.paused);
        record.servers.iter().any(|server| exceeds(paused(server), MOST_PAUSED_SHARE, record.asked.duration))
    }
}

impl AgentRecord {
    /// Whether this is a server that could have reported what it spent, and did not. A lost one is already reported as lost; one
    /// that ran before has no agent, and no version.
    fn is_unreported(&self) -> bool {
        self.url.is_some() && self.version.is_some() && self.lost.is_none() && self.served.is_none()
    }
}

/// The bytes of all pairs on one meter, which begins with the first request of those that carried any.
fn all_bytes(pairs: &[PairRecord]) -> ByteMeter {
    let with_bytes = || pairs.iter().map(|pair| &pair.meter).filter(|meter| meter.total() > 0);
    let mut all = ByteMeter::new(with_bytes().map(ByteMeter::began).min().unwrap_or_default());
    with_bytes().for_each(|meter| all.add_all(meter, |time| time));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::{ClockOffset, RoundTrip, testing};
    use h2lab_base::units::Time;

    #[test]
    fn a_pair_whose_client_did_not_run_is_invalid_and_named() {
        let mut record = testing::record();
        let doubts = FleetSummary::of(&record).doubts(&record).len();
        let pair = record.pairs.iter_mut().find(|pair| pair.state() == PairState::Complete).expect("one is");
        let PairEnd::Reported(figures) = &mut pair.end else { panic!("it is complete") };
        figures.paused = Duration::from_millis(200);
        assert_eq!(pair.state(), PairState::Complete, "a busy machine");
        let PairEnd::Reported(figures) = &mut pair.end else { panic!("it is complete") };
        figures.paused = Duration::from_millis(1_100);
        assert_eq!(pair.state(), PairState::Invalid);
        let summary = FleetSummary::of(&record);
        assert_eq!((summary.pairs.invalid, summary.pairs.all()), (1, record.pairs.len() as u64));
        let named = summary.doubts(&record);
        assert_eq!(named.len(), doubts + 1);
        assert!(
            named.iter().any(|doubt| doubt.contains("did not run for 1.1s, 11 % of the time")),
            "{named:?}"
        );
        assert!(!summary.is_void(&record));
        let served =
            record.servers.iter_mut().find_map(|server| server.served.as_mut()).expect("one reports");
        served.paused = Duration::from_secs(3);
        assert!(FleetSummary::of(&record).is_void(&record));
    }

    #[test]
    fn the_sum_is_all_bytes_over_one_wall_clock_and_no_mean_of_rates() {
        // One pair carries 1 Gbit/s in the first second, the other one in the second.
        let mut record = testing::record();
        record.pairs.truncate(2);
        for (n, pair) in (0..).zip(&mut record.pairs) {
            let figures = testing::figures(1000 * n, 125_000_000, 1);
            pair.meter = figures.meter.clone();
            pair.end = PairEnd::Reported(Box::new(figures));
        }
        let summary = FleetSummary::of(&record);
        assert_eq!((summary.bytes, summary.elapsed), (250_000_000, Duration::from_secs(2)));
        assert_eq!(summary.aggregate, Some(1e9));
        assert_eq!(summary.per_pair, RateSpread::of([1e9, 1e9]));
        assert_eq!(summary.meter.total(), summary.bytes);
    }

    #[test]
    fn what_failed_or_was_lost_counts_with_what_is_known_of_it() {
        let record = testing::record();
        let states: Vec<PairState> = record.pairs.iter().map(PairRecord::state).collect();
        assert_eq!(states, [PairState::Complete, PairState::Failed, PairState::Lost, PairState::Failed]);
        let summary = FleetSummary::of(&record);
        let PairTally { complete, partial, failed, lost, .. } = summary.pairs;
        assert_eq!((complete, partial, failed, lost, summary.pairs.all()), (1, 0, 2, 1, 4));
        assert_eq!(summary.bytes, record.pairs.iter().map(PairRecord::bytes).sum::<u64>());
        assert!(summary.lost_bytes > 0 && summary.lost_bytes == record.pairs[2].bytes());
        assert!(summary.per_pair.unwrap().min <= 0.0, "who could fetch nothing is among them");
        assert_eq!(summary.per_pair.unwrap().n, 4);
        assert!(summary.files.failed > 0 && summary.files.complete > 0);
    }

    #[test]
    fn a_start_that_was_not_kept_a_clock_that_is_not_known_and_another_version_are_doubts() {
        let doubts = |record: &FleetRecord| FleetSummary::of(record).doubts(record);
        let mut record = testing::record();
        assert_eq!(doubts(&record), Vec::<String>::new());
        // Ten seconds: a hundredth of them is still fine.
        record.pairs[0].late = Some(Duration::from_millis(100));
        assert_eq!(doubts(&record), Vec::<String>::new());
        record.pairs[0].late = Some(Duration::from_millis(101));
        assert!(doubts(&record)[0].contains("101.0ms after the common start"), "{:?}", doubts(&record));
        let trip = RoundTrip { sent: Time::ZERO, theirs: Time::ZERO, received: Time::from_millis(300) };
        record.clients[0].offset = ClockOffset::of(&[trip]);
        record.servers[1].version = Some("0.0.1".to_owned());
        let reported = doubts(&record);
        assert!(
            reported[1].contains("±150.0ms") && reported[2].starts_with("ssh:lyon-2 has h2lab 0.0.1"),
            "{reported:?}"
        );
        assert_eq!(reported.len(), 3);
    }

    #[test]
    fn a_server_that_hung_is_a_doubt_and_one_that_gave_nothing_a_failure() {
        let mut record = testing::record();
        record.pairs.truncate(1);
        let figures = testing::figures(0, 125_000_000, 1);
        let hung = figures.meter.elapsed() + SILENCE;
        (record.pairs[0].end, record.asked.duration) = (PairEnd::Reported(Box::new(figures.clone())), hung);
        let doubts = |record: &FleetRecord| FleetSummary::of(record).doubts(record);
        assert!(doubts(&record)[0].contains("no data received in the last 3.0s"), "{:?}", doubts(&record));
        record.asked.direction = TransferDirection::Put;
        assert!(doubts(&record)[0].contains(" to ssh:lyon-1: no data sent"), "{:?}", doubts(&record));
        record.asked.direction = TransferDirection::Get;
        record.asked.duration -= Duration::from_millis(1);
        assert!(!doubts(&record).iter().any(|reported| reported.contains("no data received")));
        let mut nothing = figures;
        nothing.endings.iter_mut().for_each(|ending| ending.bytes = 0);
        record.pairs[0].end = PairEnd::Reported(Box::new(nothing));
        assert_eq!(record.pairs[0].state(), PairState::Failed);
    }

    #[test]
    fn a_server_that_reported_nothing_is_a_doubt_unless_nobody_could_have_reported() {
        let mut record = testing::record();
        let doubts = |record: &FleetRecord| FleetSummary::of(record).doubts(record);
        record.servers[1].served = None;
        assert!(
            doubts(&record)[0].starts_with("ssh:lyon-2 did not report its CPU time"),
            "{:?}",
            doubts(&record)
        );
        assert_eq!(doubts(&FleetRecord { start_at: Time::NEVER, ..record.clone() }), Vec::<String>::new());
        for change in [
            |server: &mut AgentRecord| server.lost = Some("it was killed".to_owned()),
            |server: &mut AgentRecord| server.version = None,
            |server: &mut AgentRecord| server.url = None,
        ] {
            let mut record = record.clone();
            change(&mut record.servers[1]);
            assert_eq!(doubts(&record), Vec::<String>::new());
        }
    }

    #[test]
    fn cpu_time_of_clients_is_per_gb_of_the_pairs_that_reported() {
        let mut record = testing::record();
        let each: Vec<Option<f64>> = record.pairs.iter().map(PairRecord::cpu_per_gb).collect();
        assert_eq!(each, [Some(0.3 / 1.25), Some(0.3 / 0.125), None, None]);
        assert_eq!(FleetSummary::of(&record).cpu_per_gb, Some(0.6 / 1.375));
        record.pairs.drain(..2);
        assert_eq!(FleetSummary::of(&record).cpu_per_gb, None, "what was lost has no CPU time");
    }

    #[test]
    fn an_interrupted_pair_is_partial_and_a_cut_one_is_not() {
        let mut pair = testing::record().pairs.remove(0);
        assert_eq!(pair.state(), PairState::Complete, "its last files were cut when the time was over");
        if let PairEnd::Reported(figures) = &mut pair.end {
            figures.interrupted = true;
        }
        assert_eq!(pair.state(), PairState::Partial);
    }

    #[test]
    fn a_fleet_of_which_nobody_fetched_anything_has_no_rate() {
        let mut record = testing::record();
        for pair in &mut record.pairs {
            pair.end = PairEnd::Failed { why: "refused".to_owned() };
            pair.meter = ByteMeter::new(Time::ZERO);
        }
        let summary = FleetSummary::of(&record);
        assert_eq!((summary.bytes, summary.aggregate, summary.pairs.failed), (0, None, 4));
    }
}

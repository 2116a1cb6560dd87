//! What agents have measured: the part of each share is fetched, checked and deleted, and the shares are merged.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use h2lab_analysis::stats::{invalid_reasons, measured_requests_due, share_lateness};
use h2lab_base::text::made_printable;
use h2lab_base::units::{format_bytes, nanos};
use h2lab_model::fleet::{ClockOffset, LoadOutcome, PartReport, ShareEnd, ShareProgress, ShareRecord};
use h2lab_model::foreign;
use h2lab_model::record::agents::{LastProgress, LostShare, ShareClock, ShareSummary};
use h2lab_model::record::merge::{SharePart, merge_shares};
use h2lab_model::record::{CellRecord, Environment, HostId, tally};
use h2lab_model::scenario::Cell;
use h2lab_model::workload::Arrival;
use h2lab_nats::{NatsError, Parts};
use h2lab_net::clock::Clock;
use h2lab_roles::fleet::agent::SILENCE_TIMEOUT;

use super::super::super::note;
use super::super::plan::LoadPlan;
use super::super::run::{had_its_time, shorten};
use crate::run::agent::who::Present;
use crate::run::messages::with_causes;
use crate::run::{part, store};

/// What came of a load.
pub struct Collected {
    /// The record of all shares that are there; `None` if none is.
    pub record: Option<CellRecord>,
    /// Why each share that is not there is lost, with its agent's name.
    pub lost: Vec<String>,
}

/// Fetches what agents have stored of the load of `plan`, and merges it. A part that cannot be had is a
/// lost share. `present` are the agents as they described themselves before the load.
pub fn collect(
    outcome: &LoadOutcome,
    clock: Clock,
    plan: &LoadPlan,
    parts: &Parts,
    present: &Present,
) -> Result<Collected> {
    let (mut summaries, mut shares) = (Vec::new(), Vec::new());
    for share in &outcome.shares {
        let mut fetched = match &share.end {
            ShareEnd::Reported(report) => fetch(report, &plan.cell, parts).map_err(|error| Lost {
                why: format!("its part {} cannot be used: {}", report.object, with_causes(&error)),
                progress: Some(Box::new(report.last.clone())),
            }),
            ShareEnd::Failed { why } => Err(Lost { why: why.clone(), progress: None }),
            ShareEnd::Lost { why, progress } => Err(Lost { why: why.clone(), progress: progress.clone() }),
        };
        if let Ok(record) = &mut fetched
            && has_ended_early(record, outcome, plan)
        {
            shorten(record);
        }
        let summary = summary(outcome, clock, share, fetched.as_mut());
        summaries.push(ShareSummary { host: host(share, present), ..summary });
        if let Ok(record) = fetched {
            let shift = share.agent.offset.map_or(0, ClockOffset::nanos);
            shares.push(SharePart { agent: share.agent.name.clone(), record, shift });
        }
    }
    let lost = |share: &ShareSummary| Some(format!("{}: {}", share.agent, share.lost.as_ref()?.why));
    let lost = summaries.iter().filter_map(lost).collect();
    let merged = if shares.is_empty() { None } else { Some(merge_shares(shares)?) };
    let record = merged.map(|record| CellRecord { agents: summaries, ..record });
    Ok(Collected { record, lost })
}

/// Whether a share ended before its time as it should: the load was stopped, or it had its part of the requests of -n.
fn has_ended_early(record: &CellRecord, outcome: &LoadOutcome, plan: &LoadPlan) -> bool {
    (outcome.interrupted || plan.requests.is_some()) && !had_its_time(record)
}

/// How long a part is asked for again where NATS does not answer: as long as its agent would try to store it.
const FETCHING: Duration = SILENCE_TIMEOUT;

/// Why a share has no figures.
struct Lost {
    why: String,
    progress: Option<Box<ShareProgress>>,
}

/// The record in the part of a share, once it is known to be what the agent said, and of this load.
fn fetch(report: &PartReport, planned: &Cell, parts: &Parts) -> Result<CellRecord> {
    ensure!(
        report.bytes <= part::MOST_BYTES,
        "it has {}, and no more than {} are taken: give --record tail",
        format_bytes(report.bytes),
        format_bytes(part::MOST_BYTES)
    );
    let folder = tempfile::tempdir().context("no temporary folder can be made")?;
    let file = folder.path().join("part.tar");
    let until = Instant::now() + FETCHING;
    let stored = loop {
        match parts.get(&report.object, &file, report.bytes) {
            Err(NatsError::Unreachable { .. } | NatsError::Timeout { .. }) if Instant::now() < until => {}
            ended => break ended?,
        }
    };
    let read = || -> Result<CellRecord> {
        ensure!(
            (stored.bytes, &stored.digest) == (report.bytes, &report.digest),
            "it is not what the agent stored: {} of {}",
            format_bytes(stored.bytes),
            format_bytes(report.bytes)
        );
        read(&file, &folder.path().join("run"), planned)
    };
    let record = read();
    // Nobody else needs it; the store drops it in days otherwise.
    if let Err(error) = parts.delete(&report.object) {
        note(&format_args!("the part {} stays in NATS' object store for some days: {error}", report.object));
    }
    record
}

/// The share in a part, if that is all that it has, and of the load whose cell is `planned`.
fn read(file: &Path, folder: &Path, planned: &Cell) -> Result<CellRecord> {
    part::unpack(file, folder, part::MOST_BYTES)?;
    let mut records = store::read(folder)?.repetitions;
    match (records.pop(), records.is_empty()) {
        (Some(record), true) => share_of(record, planned),
        _ => bail!("it has not exactly one repetition"),
    }
}

/// The share of the load whose cell is `planned` in a record that an agent has stored. Only what a share has is taken
/// of the record, and the cell is the planned one: how long the load measured, above all, is never taken from an agent.
fn share_of(record: CellRecord, planned: &Cell) -> Result<CellRecord> {
    ensure!(is_of(&record.cell, planned)?, "it is of another load");
    ensure!(
        tally::add_up(&record.tallies),
        "its counts of requests contradict each other, or are more than an agent can have made"
    );
    let placement = record.environment.placement;
    Ok(CellRecord {
        started_at: record.started_at,
        samples: record.samples,
        tallies: record.tallies,
        connections: record.connections,
        frames: record.frames,
        tcp: record.tcp,
        generator: record.generator,
        environment: Environment { placement, ..Environment::default() },
        warnings: record.warnings,
        ..CellRecord::empty(planned.clone())
    })
}

/// Whether an agent's cell is the one that was asked for. It is stored without secrets and with printable texts.
fn is_of(measured: &Cell, planned: &Cell) -> Result<bool> {
    let comparable = |cell: &Cell| -> Result<Cell> {
        Ok(foreign::read(&serde_json::to_string(&cell.without_secrets())?, &[])?)
    };
    Ok(comparable(measured)? == comparable(planned)?)
}

/// How far the monotonic clock of an agent's machine is ahead of ours; `None` where the agent did not report where its own begins.
fn machine_clock(clock: Clock, share: &ShareRecord) -> Option<ShareClock> {
    let (ShareEnd::Reported(report), Some(offset)) = (&share.end, share.agent.offset) else { return None };
    let between = i128::from(report.clock_origin_ns) - i128::from(clock.origin_ns());
    let offset_ns = i64::try_from(between - i128::from(offset.nanos())).ok()?;
    Some(ShareClock { offset_ns, uncertainty_ns: nanos(offset.uncertainty) })
}

/// What the record of the load keeps of a share, of which this was fetched.
fn summary(
    outcome: &LoadOutcome,
    clock: Clock,
    share: &ShareRecord,
    fetched: Result<&mut CellRecord, &mut Lost>,
) -> ShareSummary {
    let clock = machine_clock(clock, share);
    let known = ShareSummary {
        machine: share.agent.machine.clone(),
        version: share.agent.version.clone(),
        clock,
        start_late_ns: share.late.map(nanos),
        schedule_late_ns: schedule_late(outcome, share).map(nanos),
        ..ShareSummary::new(&share.agent.name, share.share.number, share.share.of)
    };
    match fetched {
        Ok(record) => ShareSummary {
            due: Some(measured_requests_due(record)),
            late: Some(share_lateness(record)),
            generator: Some(record.generator),
            doubts: doubts(share, record, outcome.interrupted),
            ..known
        },
        Err(Lost { why, progress }) => ShareSummary {
            lost: Some(LostShare {
                why: made_printable(why).into_owned(),
                progress: progress.as_deref().map(last),
            }),
            ..known
        },
    }
}

/// The machine of a share, as its agent reports it, or has described it before the load.
fn host(share: &ShareRecord, present: &Present) -> HostId {
    let mut cards = present.agents.iter().map(|seen| &seen.card);
    match &share.end {
        ShareEnd::Reported(report) => report.host.clone(),
        ShareEnd::Failed { .. } | ShareEnd::Lost { .. } => cards
            .find(|card| card.name.as_str() == share.agent.name)
            .map_or_else(HostId::default, |card| card.host.clone()),
    }
}

/// For how long after the common instant a share's schedule began.
fn schedule_late(outcome: &LoadOutcome, share: &ShareRecord) -> Option<Duration> {
    let (ShareEnd::Reported(report), Some(offset)) = (&share.end, share.agent.offset) else { return None };
    Some(offset.to_us(report.started_at).since(outcome.start_at))
}

/// Why a share must not be believed, in sentences. One that ended before its time is doubtful unless the whole load was
/// `stopped`.
fn doubts(share: &ShareRecord, record: &mut CellRecord, stopped: bool) -> Vec<String> {
    let ended_early = matches!(&share.end, ShareEnd::Reported(report) if report.interrupted) && !stopped;
    let early = ended_early.then(|| "its agent ended it before its time was over".to_owned());
    // Of a closed loop it has only its part of the requests in flight.
    let whole = record.cell.work.arrival;
    if let Arrival::Closed { concurrency } = &mut record.cell.work.arrival {
        *concurrency = concurrency.div_ceil(share.share.of.max(1));
    }
    let reasons = invalid_reasons(record);
    record.cell.work.arrival = whole;
    early.into_iter().chain(reasons).collect()
}

fn last(progress: &ShareProgress) -> LastProgress {
    LastProgress {
        elapsed_ns: nanos(progress.elapsed),
        due: progress.due,
        succeeded: progress.succeeded,
        failed: progress.failed,
    }
}

#[cfg(test)]
mod tests {
    use h2lab_base::units::Time;
    use h2lab_model::fleet::{AgentCard, AgentRecord, RoundTrip, testing};
    use h2lab_model::record::testing::{Model, cell, counted, one_repetition};
    use h2lab_model::record::{LinkSummary, MeasuredOn, ServerSummary, SidecarSummary};
    use h2lab_model::scenario::Scenario;
    use h2lab_model::workload::{Protocol, Share};

    use super::*;
    use crate::run::agent::who::Seen;

    /// What became of the only share of a load that began at 1 s; its agent's clock is 10 s behind ours.
    fn outcome(end: ShareEnd) -> LoadOutcome {
        let trip = RoundTrip {
            sent: Time::from_millis(10_000),
            theirs: Time::ZERO,
            received: Time::from_millis(10_000),
        };
        let agent = AgentRecord {
            name: "kek-1".to_owned(),
            url: None,
            machine: Some("Linux".to_owned()),
            version: Some("0.1.0".to_owned()),
            offset: ClockOffset::of(&[trip]),
            served: None,
            lost: None,
        };
        let share = ShareRecord {
            agent,
            share: Share { number: 1, of: 3 },
            end,
            late: Some(Duration::from_millis(3)),
        };
        LoadOutcome { start_at: Time::from_millis(12_000), interrupted: false, shares: vec![share] }
    }

    fn measured() -> CellRecord {
        let mut record = one_repetition(&cell(0, 0, Protocol::H1, 4, 0.0), 0, &Model::CLEAN);
        record.link = None;
        record
    }

    #[test]
    fn what_is_kept_of_a_share_is_what_merging_hides() {
        let report = PartReport {
            started_at: Time::from_millis(2_002),
            clock_origin_ns: 5,
            interrupted: false,
            ..testing::part_report("kek-1")
        };
        let outcome = outcome(ShareEnd::Reported(Box::new(report)));
        let mut record = measured();
        let summary = summary(&outcome, Clock::new(7), &outcome.shares[0], Ok(&mut record));
        assert_eq!((summary.agent.as_str(), summary.number, summary.of), ("kek-1", 1, 3));
        let measured = record.samples.iter().filter(|sample| sample.measured).count() as u64;
        assert!(measured < record.samples.len() as u64, "the warm-up has requests");
        assert_eq!(summary.due, Some(measured));
        assert!(summary.late.is_some());
        assert_eq!(summary.clock.map(|clock| clock.offset_ns), Some(-10_000_000_002));
        assert_eq!((summary.start_late_ns, summary.schedule_late_ns), (Some(3_000_000), Some(2_000_000)));
        assert_eq!(summary.generator, Some(record.generator));
        assert_eq!((summary.lost, summary.doubts), (None, vec![]));
    }

    #[test]
    fn a_share_that_its_agent_ended_is_doubtful_unless_all_were_stopped() {
        let doubts = |interrupted, stopped| {
            let report = PartReport { interrupted, ..testing::part_report("kek-1") };
            let outcome = outcome(ShareEnd::Reported(Box::new(report)));
            super::doubts(&outcome.shares[0], &mut measured(), stopped).len()
        };
        assert_eq!((doubts(true, false), doubts(true, true), doubts(false, false)), (1, 0, 0));
    }

    #[test]
    fn judging_a_share_leaves_its_record_as_it_was() {
        let mut record = measured();
        record.cell.work.arrival = Arrival::Closed { concurrency: 4 };
        let before = record.clone();
        let outcome = outcome(ShareEnd::Failed { why: String::new() });
        doubts(&outcome.shares[0], &mut record, false);
        assert_eq!(record, before);
    }

    #[test]
    fn a_lost_share_has_its_last_report_and_a_reason_that_is_printable() {
        let why = "it was \x1b[2J silent".to_owned();
        let outcome = outcome(ShareEnd::Lost { why: why.clone(), progress: None });
        let progress = Some(Box::new(testing::share_progress(5)));
        let due = progress.as_ref().map(|progress| progress.due);
        let summary = summary(&outcome, Clock::new(7), &outcome.shares[0], Err(&mut Lost { why, progress }));
        let lost = summary.lost.unwrap();
        assert!(!lost.why.contains('\x1b'), "{}", lost.why);
        assert_eq!(lost.progress.map(|progress| progress.elapsed_ns), Some(5_000_000_000));
        assert_eq!(lost.progress.map(|progress| progress.due), due);
        assert_eq!((summary.due, summary.late, summary.schedule_late_ns), (None, None, None));
    }

    #[test]
    fn the_machine_of_a_lost_share_is_that_of_its_agents_card() {
        let mut present = Present::default();
        let known = |present: &Present, end| host(&outcome(end).shares[0], present);
        let lost = || ShareEnd::Failed { why: String::new() };
        assert_eq!(known(&present, lost()), HostId::default());
        present.agents = ["kek-2", "kek-1"].map(card_of).into();
        assert_eq!(known(&present, lost()), HostId::new("kek-1"));
        let report = PartReport { host: HostId::new("x"), ..testing::part_report("kek-1") };
        assert_eq!(known(&present, ShareEnd::Reported(Box::new(report))), HostId::new("x"));
    }

    /// An agent whose machine has the same name.
    fn card_of(name: &str) -> Seen {
        let card = AgentCard { host: HostId::new(name), ..testing::agent_card(name) };
        Seen { card, clock: None }
    }

    #[test]
    fn a_share_ends_early_with_its_requests_or_when_all_are_stopped_and_else_not() {
        let planned = cell(0, 0, Protocol::H1, 4, 0.0);
        let time = planned.work.phases.warmup + planned.work.phases.measure;
        let early = |wall: Duration, requests, interrupted| {
            let plan = LoadPlan { scenario: Scenario::default(), cell: planned.clone(), requests };
            let mut record = measured();
            record.generator.wall_ns = nanos(wall);
            let outcome = LoadOutcome { interrupted, ..outcome(ShareEnd::Failed { why: String::new() }) };
            has_ended_early(&record, &outcome, &plan)
        };
        let short = time.checked_sub(Duration::from_nanos(1)).unwrap();
        assert!(early(short, Some(10), false) && early(short, None, true));
        assert!(!early(time, Some(10), false) && !early(short, None, false));
        assert!(!early(time, None, true), "it was over when the load was stopped");
    }

    #[test]
    fn a_part_is_of_the_load_that_was_asked_for_and_of_no_other() {
        let planned = measured().cell;
        assert!(is_of(&planned.without_secrets(), &planned).unwrap());
        let changes: [fn(&mut Cell); 5] = [
            |cell| cell.work.arrival = Arrival::Constant { rate: 1.0 },
            |cell| cell.work.path = "/other".to_owned(),
            |cell| cell.work.phases.warmup += Duration::from_secs(3_600),
            |cell| cell.work.phases.measure *= 2,
            |cell| cell.work.phases.measure /= 2,
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut record = measured();
            change(&mut record.cell);
            let why = share_of(record, &planned).unwrap_err().to_string();
            assert_eq!(why, "it is of another load", "change {number}");
        }
    }

    #[test]
    fn of_what_an_agent_stored_only_what_a_share_has_is_taken_and_the_cell_is_the_planned_one() {
        let mut planned = measured().cell;
        planned.work.headers.push(("authorization".to_owned(), "Bearer x".to_owned()));
        let placement = vec![("generator priority".to_owned(), "real-time".to_owned())];
        let environment = Environment { placement, ..Environment::default() };
        let honest = CellRecord {
            cell: planned.without_secrets(),
            environment: environment.clone(),
            packets: Vec::new(),
            warnings: vec!["it rained".to_owned()],
            ..measured()
        };
        assert_ne!(honest.cell, planned);
        let share = share_of(honest.clone(), &planned).unwrap();
        assert_eq!(share, CellRecord { cell: planned.clone(), ..honest.clone() });
        let claims = CellRecord {
            attempt: 7,
            link: Some(LinkSummary::default()),
            server: Some(ServerSummary::default()),
            sidecar: Some(SidecarSummary::default()),
            agents: vec![ShareSummary::new("kek-2", 0, 1)],
            environment: Environment { root: true, ..environment },
            unsupported: Some("it is not".to_owned()),
            machine: Some(MeasuredOn {
                agent: "kek-2".to_owned(),
                machine: String::new(),
                likeness: String::new(),
                host: HostId::default(),
            }),
            ..honest
        };
        assert_eq!(share_of(claims, &planned).unwrap(), share);
    }

    #[test]
    fn counts_of_requests_that_contradict_each_other_are_refused() {
        let planned = measured().cell;
        let mut record = counted(measured());
        assert!(share_of(record.clone(), &planned).is_ok());
        record.tallies[0].counts.requests = u64::MAX;
        let why = share_of(record, &planned).unwrap_err().to_string();
        assert!(why.contains("contradict each other"), "{why}");
    }
}

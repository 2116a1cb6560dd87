//! Servers whose agents hang or die in the middle: the run ends in time, without their figures.

use std::fs;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use h2lab_model::bulk::TransferDirection;
use h2lab_model::fleet::plan::PlanInput;
use h2lab_model::fleet::{
    FleetJob, FleetPlan, FleetRecord, FleetSummary, FleetTimeouts, PairRecord, PairState, Pairing, Reach,
    Server, ServerPlace, Stage, Trust,
};
use h2lab_model::workload::{EngineSettings, Protocol};
use h2lab_roles::fleet::{TransportKind, drive};
use h2lab_transfer::Sizes;
use rustix::process::{Signal, kill_process};

use super::{TIMEOUT, pid};
use crate::support::{binary, folder};

/// One client here that fetches from two servers, for ten seconds: far more than both take to send something.
fn job() -> FleetJob {
    let input = PlanInput {
        clients: 1,
        servers: 2,
        concurrency: 2,
        connections: Some(1),
        pairing: Pairing::All,
        seed: 1,
    };
    let server = |name: &str| Server {
        name: name.to_owned(),
        place: ServerPlace::Agent { listen: "127.0.0.1:0".parse().unwrap(), host: "127.0.0.1".to_owned() },
    };
    FleetJob {
        direction: TransferDirection::Get,
        clients: vec!["client".to_owned()],
        servers: vec![server("one"), server("two")],
        concurrency: input.concurrency,
        plan: FleetPlan::make(&input).unwrap(),
        protocol: Protocol::H2c,
        upgrade: false,
        sizes: Sizes::Fixed(1 << 40),
        duration: Duration::from_secs(10),
        timeout: Duration::from_secs(60),
        settings: EngineSettings::default(),
        fields: Vec::new(),
        congestion: None,
        trust: Trust::default(),
        reach: Reach::default(),
        seed: 1,
        waits: FleetTimeouts { setup: TIMEOUT, grace: Duration::from_secs(10) },
    }
}

/// Runs the drive, and sends the second server this signal when something has come from both. Returns the result, and
/// how long after the start the coordinator waits for the last agent; `coordinator::tests` checks that it ends then.
fn drive_and(signal: Signal) -> (FleetRecord, Duration) {
    let folder = folder();
    let file = folder.path().join("pid");
    let mut agent = Command::new(binary());
    agent.args(["agent", "--stdio"]);
    let mut other = Command::new("/bin/sh");
    other.args(["-c", "echo $$ > \"$0\"; exec \"$1\" agent --stdio"]).arg(&file).arg(binary());
    let transports = vec![
        TransportKind::Thread(h2lab_analysis::fleet::pair_figures),
        TransportKind::Command(agent),
        TransportKind::Command(other),
    ];
    let mut sent = None;
    let record = drive(job(), transports, &AtomicBool::new(false), &mut |coordinator, _| {
        if sent.is_none() && (0..2).all(|pair| coordinator.bytes_of(pair) > 0) {
            kill_process(pid(&file), signal).unwrap();
            let Stage::Running { start, until, .. } = coordinator.stage() else {
                panic!("all are under way")
            };
            sent = Some(until.since(start));
        }
    });
    assert!(fs::exists(&file).unwrap());
    (record.unwrap(), sent.expect("something came of both"))
}

/// Whether it fetched until its time was over; it is invalid if a busy machine stopped its client for a part of that
/// time.
fn is_over(pair: &PairRecord) -> bool {
    matches!(pair.state(), PairState::Complete | PairState::Invalid)
}

/// Fails unless the run has ended in time and the first server has reported, whatever happened to the second one.
#[track_caller]
fn assert_rest_is_kept(record: &FleetRecord, waited: Duration) {
    let job = job();
    assert_eq!(waited, job.duration + job.waits.grace);
    assert!(is_over(&record.pairs[0]), "{record:#?}");
    assert!(record.pairs.iter().all(|pair| pair.bytes() > 0));
    let first = record.servers[0].served.as_ref().expect("it has reported what it spent");
    assert!(first.is_sound() && first.sent >= record.pairs[0].bytes(), "{record:#?}");
    assert!(record.servers[0].lost.is_none() && record.servers[1].served.is_none(), "{record:#?}");
}

#[test]
fn one_that_hangs_reports_nothing_of_what_it_spent_and_delays_nobody() {
    let (record, waited) = drive_and(Signal::STOP);
    assert_rest_is_kept(&record, waited);
    assert!(is_over(&record.pairs[1]), "its client knows what came: {record:#?}");
    assert_eq!(record.servers[1].lost, None);
    let doubts = FleetSummary::of(&record).doubts(&record);
    assert!(doubts.iter().any(|doubt| doubt.starts_with("two did not report its CPU time")), "{doubts:?}");
}

#[test]
fn one_that_is_killed_is_lost_and_not_asked() {
    let (record, waited) = drive_and(Signal::KILL);
    assert_rest_is_kept(&record, waited);
    assert_eq!(record.pairs[1].state(), PairState::Failed, "its client tells that it has gone");
    assert!(record.servers[1].lost.as_deref().is_some_and(|why| why.contains("signal: 9")), "{record:#?}");
    assert_eq!(record.pairs.iter().filter(|pair| PairRecord::state(pair) == PairState::Lost).count(), 0);
}

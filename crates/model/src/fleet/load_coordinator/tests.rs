//! Well-behaved and misbehaving agents, in virtual time.

use super::*;
use crate::fleet::testing::{load_job, part_report, server_figures, share_progress};
use crate::workload::Share;

fn ms(ms: u64) -> Time {
    Time::from_millis(ms)
}

/// Agents whose clocks all differ from ours, and that answer after a millisecond.
struct Fleet {
    coordinator: LoadCoordinator,
    now: Time,
    /// Nanoseconds that each agent's clock is ahead of ours.
    ahead: Vec<u64>,
    /// Silent agents.
    mute: Vec<usize>,
    /// The share that each was last asked to make, and when to begin.
    shares: Vec<Option<Share>>,
    starts: Vec<Option<Time>>,
    stopped: Vec<usize>,
    /// Agents that were told that their driver leaves.
    left: Vec<usize>,
}

impl Fleet {
    /// A load of 11 seconds whose agents are ready at once, but for those that are silent. Grace is 4 seconds.
    fn new(agents: usize, mute: &[usize]) -> Self {
        Self::of(load_job(agents as u32), mute)
    }

    fn of(job: LoadJob, mute: &[usize]) -> Self {
        let agents = job.agents.len();
        let mut fleet = Self {
            coordinator: LoadCoordinator::new(job, ms(0)),
            now: ms(0),
            ahead: (0..agents as u64).map(|n| n * 1_000_000_007).collect(),
            mute: mute.to_vec(),
            shares: vec![None; agents],
            starts: vec![None; agents],
            stopped: Vec::new(),
            left: Vec::new(),
        };
        for agent in 0..agents {
            fleet.wake(agent);
        }
        fleet.exchange();
        fleet
    }

    fn wake(&mut self, agent: usize) {
        let (version, machine) = ("0.1.0".to_owned(), "Linux".to_owned());
        self.say(agent, FromAgent::Ready { version, machine });
    }

    fn theirs(&self, agent: usize, ours: Time) -> Time {
        ours + Duration::from_nanos(self.ahead[agent])
    }

    fn say(&mut self, agent: usize, message: FromAgent) {
        if !self.mute.contains(&agent) {
            self.coordinator.handle_message(self.now, agent, message);
        }
    }

    /// Exchanges messages until none is left.
    fn exchange(&mut self) {
        while let Some((agent, message)) = self.coordinator.poll_message() {
            let shown = self.theirs(agent, self.now + Duration::from_micros(300));
            self.now += Duration::from_millis(1);
            match message {
                ToAgent::Ping { number } => self.say(agent, FromAgent::Pong { number, at: shown }),
                ToAgent::Load(task) => {
                    self.shares[agent] = Some(task.share);
                    self.say(agent, FromAgent::Planned);
                }
                ToAgent::StartAt { at } => self.starts[agent] = Some(at),
                ToAgent::Stop => self.stopped.push(agent),
                ToAgent::Bye => self.left.push(agent),
                other => panic!("not of loads: {other:?}"),
            }
        }
    }

    /// Lets time pass, timeouts included.
    fn wait_until(&mut self, until: Time) {
        while self.coordinator.poll_timeout() <= until {
            self.now = self.now.max(self.coordinator.poll_timeout());
            self.coordinator.handle_timeout(self.now);
            self.exchange();
        }
        self.now = until;
    }

    fn start(&self) -> Time {
        match self.coordinator.stage() {
            Stage::Running { start, .. } => start,
            other => panic!("{other:?}"),
        }
    }

    fn progress(&mut self, agent: usize, seconds: u64) {
        self.say(agent, FromAgent::Loading(Box::new(share_progress(seconds))));
    }

    /// The report of an agent whose schedule began so long after the common instant.
    fn report(&self, agent: usize, late: Duration) -> PartReport {
        let started_at = self.theirs(agent, self.start() + late);
        PartReport { started_at, ..part_report(&format!("kek-{agent}")) }
    }

    /// An agent stores its part.
    fn finish(&mut self, agent: usize) {
        let report = self.report(agent, Duration::ZERO);
        self.say(agent, FromAgent::Part(report));
        self.exchange();
    }

    fn ends(self) -> Vec<&'static str> {
        self.coordinator.into_result().shares.iter().map(|share| end(&share.end)).collect()
    }
}

fn end(end: &ShareEnd) -> &'static str {
    match end {
        ShareEnd::Reported(_) => "reported",
        ShareEnd::Failed { .. } => "failed",
        ShareEnd::Lost { .. } => "lost",
    }
}

/// Why a share was lost, and how many requests of it were due by the last report.
fn lost(share: &ShareRecord) -> (&str, Option<u64>) {
    match &share.end {
        ShareEnd::Lost { why, progress } => (why, progress.as_ref().map(|progress| progress.due)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_makes_its_share_and_all_begin_at_one_instant_by_clocks_of_their_own() {
    let fleet = Fleet::new(3, &[]);
    let start = fleet.start();
    assert!(start >= fleet.now, "there is time to hear of it");
    for agent in 0..3 {
        assert_eq!(fleet.shares[agent], Some(Share { number: agent as u32, of: 3 }));
        let (told, expected) = (fleet.starts[agent].unwrap(), fleet.theirs(agent, start));
        let off = told.since(expected).max(expected.since(told));
        assert!(off < Duration::from_millis(3), "{off:?}");
    }
}

#[test]
fn what_all_have_stored_is_the_outcome_on_one_clock() {
    let mut fleet = Fleet::new(2, &[]);
    let start = fleet.start();
    fleet.wait_until(start + Duration::from_secs(11));
    fleet.finish(0);
    assert!(!fleet.coordinator.is_over());
    let late = fleet.report(1, Duration::from_millis(50));
    fleet.say(1, FromAgent::Part(late));
    assert!(fleet.coordinator.is_over());
    assert_eq!(fleet.coordinator.poll_timeout(), Time::NEVER);
    assert!(fleet.stopped.is_empty());
    let outcome = fleet.coordinator.into_result();
    assert_eq!((outcome.start_at, outcome.interrupted), (start, false));
    let lates: Vec<u128> = outcome.shares.iter().map(|share| share.late.unwrap().as_millis()).collect();
    assert!(lates[0] < 3 && (48..53).contains(&lates[1]), "{lates:?}");
    for share in &outcome.shares {
        assert!(matches!(&share.end, ShareEnd::Reported(report) if report.bytes == 100_000));
    }
}

#[test]
fn the_sum_of_progress_has_each_response_time_once_and_no_report_twice() {
    let mut fleet = Fleet::new(2, &[]);
    fleet.progress(0, 3);
    fleet.progress(1, 4);
    fleet.progress(1, 4);
    let sum = fleet.coordinator.progress();
    assert_eq!((sum.due, sum.connections, sum.recent.n()), (14_000, 16, 4));
    assert_eq!(fleet.coordinator.progress().recent.n(), 0);
    // What is older than what is known changes nothing.
    fleet.progress(1, 2);
    fleet.progress(0, 5);
    let sum = fleet.coordinator.progress();
    assert_eq!((sum.due, sum.recent.n()), (18_000, 2));
    // Of what is over only the counts are left.
    fleet.finish(1);
    let sum = fleet.coordinator.progress();
    assert_eq!((sum.due, sum.connections, sum.in_flight), (30_000, 8, 8));
}

#[test]
fn an_agent_that_is_never_there_is_left_out_and_the_others_begin() {
    let mut fleet = Fleet::new(3, &[1]);
    fleet.wait_until(ms(29_999));
    assert!(matches!(fleet.coordinator.stage(), Stage::Comparing(_)));
    fleet.wait_until(ms(30_000));
    assert_eq!(fleet.shares, [Some(Share { number: 0, of: 3 }), None, Some(Share { number: 2, of: 3 })]);
    assert!(fleet.starts[0].is_some() && fleet.starts[1].is_none());
    fleet.finish(0);
    fleet.finish(2);
    assert!(fleet.coordinator.is_over());
    let outcome = fleet.coordinator.into_result();
    let lost = &outcome.shares[1];
    assert!(lost.agent.lost.as_deref().unwrap().contains("not ready within 30s"), "{lost:?}");
    assert!(matches!(&lost.end, ShareEnd::Lost { progress: None, .. }));
    assert_eq!(lost.late, None);
}

#[test]
fn a_refusal_before_the_start_keeps_the_load_from_beginning_and_one_in_the_middle_does_not_end_it() {
    let (refused, with) = ("--allow does not permit it", "ann at desk");
    for (said, words) in [
        (FromAgent::Refused { why: refused.to_owned() }, refused),
        (
            FromAgent::Busy { with: with.to_owned() },
            "it is busy with ann at desk; `h2lab agents` shows when it is free",
        ),
    ] {
        let mut fleet = Fleet::new(3, &[1, 2]);
        // Whom a refusal ends besides is not lost; who died before is.
        fleet.coordinator.handle_gone(fleet.now, 2, "it is gone");
        fleet.mute.clear();
        fleet.say(1, said);
        fleet.exchange();
        assert!(fleet.coordinator.is_over() && fleet.starts.iter().all(Option::is_none));
        let lost: Vec<_> = fleet.coordinator.lost().collect();
        assert_eq!(lost, [(1, "kek-1", words), (2, "kek-2", "it is gone")]);
        let outcome = fleet.coordinator.into_result();
        assert_eq!(outcome.start_at, Time::NEVER);
        assert_eq!(outcome.shares[1].end, ShareEnd::Failed { why: words.to_owned() });
        let ends: Vec<_> = outcome.shares.iter().map(|share| end(&share.end)).collect();
        assert_eq!(ends, ["lost", "failed", "lost"]);
        assert_eq!(outcome.shares[0].agent.lost, None);
    }
    let mut fleet = Fleet::new(2, &[]);
    fleet.progress(1, 3);
    fleet.say(1, FromAgent::Refused { why: "the disk is full".to_owned() });
    assert!(!fleet.coordinator.is_over(), "the others go on");
    fleet.finish(0);
    let outcome = fleet.coordinator.into_result();
    assert_eq!(lost(&outcome.shares[1]), ("the disk is full", Some(6_000)));
}

#[test]
fn an_agent_whose_connections_do_not_come_up_does_not_hold_up_the_others_for_ever() {
    let mut fleet = Fleet::new(2, &[0, 1]);
    fleet.mute.clear();
    // Both are ready, but one never says that its connections are up.
    for agent in 0..2 {
        fleet.wake(agent);
    }
    while fleet.coordinator.stage() == Stage::Comparing(ms(30_000)) {
        let (agent, message) = fleet.coordinator.poll_message().unwrap();
        let ToAgent::Ping { number } = message else { panic!("{message:?}") };
        let at = fleet.theirs(agent, fleet.now);
        fleet.say(agent, FromAgent::Pong { number, at });
    }
    fleet.mute = vec![1];
    fleet.exchange();
    let Stage::Planning(until) = fleet.coordinator.stage() else { panic!("the other one is waited for") };
    fleet.wait_until(until);
    assert!(fleet.starts[0].is_some() && fleet.starts[1].is_none());
    assert_eq!(fleet.left, [1], "it must not keep connections for a start that never comes");
    fleet.finish(0);
    let outcome = fleet.coordinator.into_result();
    let lost = outcome.shares[1].agent.lost.as_deref().unwrap();
    assert!(lost.contains("connections were not up within 30s"), "{lost}");
}

#[test]
fn an_agent_that_dies_in_the_middle_is_lost_with_what_it_had_reported_and_the_others_are_kept() {
    let mut fleet = Fleet::new(2, &[]);
    fleet.wait_until(fleet.start() + Duration::from_secs(5));
    fleet.progress(1, 5);
    fleet.coordinator.handle_gone(fleet.now, 1, "nothing was heard of it for 60s");
    assert!(!fleet.coordinator.is_over());
    // What comes after all changes nothing.
    fleet.progress(1, 6);
    fleet.finish(1);
    fleet.finish(0);
    assert!(fleet.coordinator.is_over());
    assert_eq!(fleet.coordinator.progress().due, 30_000, "10,000 of them were lost");
    let outcome = fleet.coordinator.into_result();
    assert_eq!(lost(&outcome.shares[1]), ("nothing was heard of it for 60s", Some(10_000)));
}

#[test]
fn a_part_that_never_comes_is_waited_for_to_the_end_of_the_grace_and_not_a_moment_longer() {
    let mut fleet = Fleet::new(2, &[]);
    let end = fleet.start() + Duration::from_secs(11);
    fleet.wait_until(end);
    fleet.finish(0);
    fleet.wait_until(end + Duration::from_millis(1_999));
    assert!(fleet.stopped.is_empty());
    fleet.wait_until(end + Duration::from_secs(2));
    assert_eq!(fleet.stopped, [1], "an agent that has stored its part is not stopped");
    fleet.wait_until(end + Duration::from_millis(3_999));
    assert!(!fleet.coordinator.is_over());
    fleet.wait_until(end + Duration::from_secs(4));
    assert!(fleet.coordinator.is_over());
    let outcome = fleet.coordinator.into_result();
    let lost = outcome.shares[1].agent.lost.as_deref().unwrap();
    assert!(lost.contains("within 15s after the start"), "{lost}");
}

#[test]
fn an_agent_that_leaves_after_it_has_stored_its_part_is_not_lost() {
    let mut fleet = Fleet::new(2, &[]);
    fleet.finish(0);
    fleet.coordinator.handle_gone(fleet.now, 0, "it was drained");
    fleet.finish(1);
    let outcome = fleet.coordinator.into_result();
    assert_eq!(outcome.shares[0].agent.lost, None);
    assert_eq!(end(&outcome.shares[0].end), "reported");
}

#[test]
fn an_interruption_collects_what_there_is_and_waits_no_longer_than_the_grace() {
    let mut fleet = Fleet::new(2, &[]);
    let middle = fleet.start() + Duration::from_secs(3);
    fleet.wait_until(middle);
    fleet.coordinator.handle_interrupt(middle);
    fleet.exchange();
    fleet.coordinator.handle_interrupt(middle + Duration::from_secs(1));
    fleet.exchange();
    assert_eq!(fleet.stopped, [0, 1], "once");
    fleet.finish(0);
    fleet.wait_until(middle + Duration::from_millis(3_999));
    assert!(!fleet.coordinator.is_over());
    fleet.wait_until(middle + Duration::from_secs(4));
    assert!(fleet.coordinator.is_over());
    let outcome = fleet.coordinator.into_result();
    assert!(outcome.interrupted);
    assert_eq!(outcome.shares.iter().map(|share| end(&share.end)).collect::<Vec<_>>(), ["reported", "lost"]);
    let lost = outcome.shares[1].agent.lost.as_deref().unwrap();
    assert!(lost.contains("within 4s after the interruption"), "{lost}");
}

#[test]
fn a_load_that_is_abandoned_waits_for_nothing_and_asks_for_nothing_more() {
    let mut fleet = Fleet::new(2, &[]);
    fleet.finish(0);
    fleet.progress(1, 3);
    fleet.coordinator.handle_interrupt(fleet.now);
    assert!(!fleet.coordinator.is_over(), "the part of the other one is waited for");
    fleet.exchange();
    fleet.coordinator.abandon();
    assert!(fleet.coordinator.is_over() && fleet.coordinator.poll_message().is_none());
    assert_eq!(fleet.coordinator.poll_timeout(), Time::NEVER);
    let outcome = fleet.coordinator.into_result();
    assert!(outcome.interrupted && matches!(outcome.shares[0].end, ShareEnd::Reported(_)));
    assert_eq!(lost(&outcome.shares[1]), ("it was ended without results", Some(6_000)));
}

#[test]
fn an_interruption_before_the_start_ends_at_once() {
    let mut fleet = Fleet::new(2, &[1]);
    fleet.coordinator.handle_interrupt(fleet.now);
    assert!(fleet.coordinator.is_over());
    assert_eq!(fleet.coordinator.start_at, Time::NEVER);
    assert_eq!(fleet.ends(), ["lost", "lost"]);
}

#[test]
fn nobody_is_waited_for_when_nobody_is_left() {
    let mut fleet = Fleet::new(2, &[0, 1]);
    fleet.coordinator.handle_gone(fleet.now, 0, "no such agent");
    assert!(!fleet.coordinator.is_over());
    fleet.coordinator.handle_gone(fleet.now, 1, "no such agent");
    assert!(fleet.coordinator.is_over());
    assert!(LoadCoordinator::new(load_job(0), ms(0)).is_over(), "nor when nobody was asked");
}

#[test]
fn what_an_agent_has_no_business_to_say_changes_nothing() {
    let mut fleet = Fleet::new(2, &[1]);
    // There is no part before the start, and no progress without a task.
    fleet.say(0, FromAgent::Part(part_report("kek-0")));
    fleet.progress(0, 3);
    assert_eq!(fleet.coordinator.progress().due, 0);
    fleet.mute.clear();
    fleet.wake(1);
    fleet.exchange();
    let stage = fleet.coordinator.stage();
    fleet.start();
    for message in [
        FromAgent::Pong { number: 3, at: ms(1) },
        FromAgent::Serving { address: "1.2.3.4:1".parse().unwrap() },
        FromAgent::Planned,
        FromAgent::Progress { at: ms(1), bytes: vec![(0, 5)] },
        FromAgent::Result { pair: 0, began: ms(0), figures: Err("no pair".to_owned()) },
        FromAgent::Served(server_figures()),
        FromAgent::Ready { version: String::new(), machine: String::new() },
    ] {
        fleet.say(0, message);
        fleet.exchange();
        assert_eq!(fleet.coordinator.stage(), stage);
    }
    fleet.coordinator.handle_message(fleet.now, 99, FromAgent::Planned);
    fleet.coordinator.handle_gone(fleet.now, 99, "who?");
    fleet.finish(0);
    let twice = PartReport { bytes: 1, ..fleet.report(0, Duration::ZERO) };
    fleet.say(0, FromAgent::Part(twice));
    fleet.finish(1);
    let outcome = fleet.coordinator.into_result();
    assert!(matches!(&outcome.shares[0].end, ShareEnd::Reported(report) if report.bytes == 100_000));
}

#[test]
fn figures_that_cannot_be_are_no_progress_and_no_part() {
    let mut fleet = Fleet::new(3, &[]);
    fleet.progress(0, 3);
    let absurd = ShareProgress { due: u64::MAX, ..share_progress(4) };
    fleet.say(0, FromAgent::Loading(Box::new(absurd.clone())));
    assert_eq!(fleet.coordinator.progress().due, 6_000);
    let report = PartReport { last: absurd, ..fleet.report(0, Duration::ZERO) };
    fleet.say(0, FromAgent::Part(report));
    // The part of another agent would be counted twice, and taken away from it.
    fleet.say(1, FromAgent::Part(fleet.report(2, Duration::ZERO)));
    fleet.finish(2);
    assert!(fleet.coordinator.is_over());
    assert_eq!(fleet.ends(), ["lost", "lost", "reported"]);
}

#[test]
fn a_clock_that_cannot_be_compared_takes_no_part() {
    let mut fleet = Fleet::new(2, &[0, 1]);
    fleet.mute.clear();
    fleet.wake(0);
    fleet.wake(1);
    let absurd = Time::from_nanos(u64::MAX - 1);
    while let Some((agent, message)) = fleet.coordinator.poll_message() {
        match message {
            ToAgent::Ping { number } if agent == 0 => fleet.say(0, FromAgent::Pong { number, at: absurd }),
            ToAgent::Ping { number } => fleet.say(1, FromAgent::Pong { number, at: ms(1) }),
            ToAgent::Load(_) => fleet.say(agent, FromAgent::Planned),
            _ => {}
        }
    }
    fleet.start();
    let outcome = fleet.coordinator.into_result();
    assert_eq!(outcome.shares[0].agent.lost.as_deref(), Some("its clock cannot be compared"));
}

/// Names of silent agents.
fn silent(fleet: &Fleet) -> Vec<&str> {
    fleet.coordinator.silent(fleet.now).map(|(_, name, _)| name).collect()
}

#[test]
fn an_agent_that_works_is_silent_after_five_seconds_without_a_word_and_one_that_stores_is_not() {
    let mut fleet = Fleet::new(3, &[]);
    let start = fleet.start();
    let seconds = |n| start + Duration::from_secs(n);
    fleet.now = seconds(1);
    fleet.progress(0, 1);
    // Nothing of it runs any more.
    let over = share_progress(1).when_over();
    fleet.say(1, FromAgent::Loading(Box::new(over)));
    fleet.now = start + Duration::from_millis(4_999);
    assert!(silent(&fleet).is_empty());
    fleet.now = seconds(5);
    assert_eq!(silent(&fleet), ["kek-2"], "it has said nothing since the start");
    fleet.now = seconds(6);
    assert_eq!(silent(&fleet), ["kek-0", "kek-2"]);
    fleet.now = seconds(13);
    assert_eq!(silent(&fleet), ["kek-0", "kek-1", "kek-2"]);
    // Any message counts. An agent whose part is stored is not waited for.
    fleet.say(0, FromAgent::Pong { number: u32::MAX, at: seconds(13) });
    fleet.finish(2);
    assert_eq!(silent(&fleet), ["kek-1"]);
    let waiting: Vec<_> = fleet.coordinator.waiting().map(|(_, name)| name).collect();
    assert_eq!(waiting, ["kek-0", "kek-1"]);
}

#[test]
fn nobody_is_silent_before_the_load_runs() {
    let mut fleet = Fleet::new(2, &[1]);
    fleet.now = ms(20_000);
    assert!(silent(&fleet).is_empty(), "its connections may take this long");
}

#[test]
fn after_an_interruption_a_silent_agent_is_waited_for_only_while_another_one_stores() {
    let mut job = load_job(2);
    job.waits.grace = Duration::from_secs(30);
    let mut fleet = Fleet::of(job, &[]);
    let start = fleet.start();
    let seconds = |n| start + Duration::from_secs(n);
    fleet.now = seconds(1);
    fleet.progress(0, 1);
    fleet.progress(1, 1);
    fleet.now = seconds(3);
    fleet.coordinator.handle_interrupt(seconds(3));
    fleet.exchange();
    fleet.now = seconds(8);
    fleet.progress(1, 2);
    fleet.wait_until(seconds(12));
    assert!(!fleet.coordinator.is_over(), "the other one stores its part");
    fleet.finish(1);
    assert_eq!(fleet.coordinator.poll_timeout(), seconds(11), "10 s after its last word");
    fleet.wait_until(seconds(12));
    assert!(fleet.coordinator.is_over());
    let outcome = fleet.coordinator.into_result();
    let (why, due) = lost(&outcome.shares[0]);
    assert!(why.contains("nothing was heard of it for 10s"), "{why}");
    assert_eq!((due, end(&outcome.shares[1].end)), (Some(2_000), "reported"));
}

#[test]
fn without_an_interruption_a_silent_agent_is_waited_for_to_the_end_of_the_grace() {
    let mut fleet = Fleet::new(1, &[]);
    fleet.wait_until(fleet.start() + Duration::from_millis(14_999));
    assert!(!fleet.coordinator.is_over());
}

#[test]
fn a_driver_that_was_stopped_reads_what_came_meanwhile_before_it_gives_a_share_up() {
    let late = Duration::from_secs(60);
    // The deadline is 15 s after the start: 11 s, and the grace of 4.
    let deadline = |fleet: &Fleet| fleet.start() + Duration::from_secs(15);
    let mut fleet = Fleet::new(2, &[]);
    fleet.now = deadline(&fleet) + late;
    fleet.coordinator.handle_timeout(fleet.now);
    fleet.finish(0);
    let again = fleet.coordinator.poll_timeout();
    assert!(again > fleet.now && again <= fleet.now + Duration::from_secs(5));
    fleet.wait_until(again);
    assert_eq!(fleet.ends(), ["reported", "lost"]);
    // One that looks a little late was not stopped.
    let mut fleet = Fleet::new(2, &[]);
    fleet.now = deadline(&fleet) + Duration::from_secs(4);
    fleet.coordinator.handle_timeout(fleet.now);
    assert!(fleet.coordinator.is_over());
    assert_eq!(fleet.ends(), ["lost", "lost"]);
    // So it is after an interruption, when agents are given up sooner.
    let mut fleet = Fleet::new(2, &[]);
    fleet.now = fleet.start() + Duration::from_secs(1);
    fleet.coordinator.handle_interrupt(fleet.now);
    fleet.now += late;
    fleet.coordinator.handle_timeout(fleet.now);
    fleet.finish(1);
    assert!(!fleet.coordinator.is_over());
    let again = fleet.coordinator.poll_timeout();
    fleet.wait_until(again);
    assert_eq!(fleet.ends(), ["lost", "reported"]);
}

#[test]
fn an_interruption_after_the_load_ends_the_waiting_for_shares_and_is_none_of_the_load() {
    let interrupted = |after: u64, is_cut: bool| {
        let mut fleet = Fleet::new(2, &[]);
        let at = fleet.start() + Duration::from_millis(after);
        fleet.wait_until(at);
        fleet.coordinator.handle_interrupt(at);
        fleet.exchange();
        let report = PartReport { interrupted: is_cut, ..fleet.report(0, Duration::ZERO) };
        fleet.say(0, FromAgent::Part(report));
        fleet.wait_until(at + Duration::from_secs(4));
        assert!(fleet.coordinator.is_over() && fleet.coordinator.is_interrupted());
        let outcome = fleet.coordinator.into_result();
        assert!(matches!(outcome.shares[1].end, ShareEnd::Lost { .. }));
        outcome.interrupted
    };
    // Requests are due for 10 s; then 1 s is left for the last answers.
    assert!(interrupted(9_999, false));
    assert!(!interrupted(10_000, false));
    assert!(interrupted(10_000, true), "a share that waited for its last answers was cut");
}

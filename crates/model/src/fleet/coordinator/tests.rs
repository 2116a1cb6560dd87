//! Well-behaved and misbehaving agents, in virtual time.

/// Servers at the end.
mod closing;

use std::time::Duration;

use super::*;
use crate::fleet::FleetSummary;
use crate::fleet::PairState;
use crate::fleet::testing::{figures, job, part_report, server_figures, share_progress};

fn ms(ms: u64) -> Time {
    Time::from_millis(ms)
}

/// Agents whose clocks all differ from ours, and that answer after a millisecond.
struct Fleet {
    coordinator: Coordinator,
    now: Time,
    /// Nanoseconds that each agent's clock is ahead of ours.
    ahead: Vec<u64>,
    /// Silent agents.
    mute: Vec<usize>,
    /// The pairs that each was last asked to fetch, and when to begin.
    plans: Vec<Vec<u32>>,
    starts: Vec<Option<Time>>,
    stopped: Vec<usize>,
    /// Agents that were told that their driver leaves.
    left: Vec<usize>,
}

impl Fleet {
    fn new(job: FleetJob, mute: &[usize]) -> Self {
        let agents = job.clients.len() + job.servers.len();
        let mut fleet = Self {
            coordinator: Coordinator::new(job, ms(0)),
            now: ms(0),
            ahead: (0..agents as u64).map(|n| n * 1_000_000_007).collect(),
            mute: mute.to_vec(),
            plans: vec![Vec::new(); agents],
            starts: vec![None; agents],
            stopped: Vec::new(),
            left: Vec::new(),
        };
        for agent in 0..agents {
            let (version, machine) = ("0.1.0".to_owned(), "Linux".to_owned());
            fleet.say(agent, FromAgent::Ready { version, machine });
        }
        fleet.exchange();
        fleet
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
                ToAgent::Serve(_) => {
                    let address = "0.0.0.0:8080".parse().unwrap();
                    self.say(agent, FromAgent::Serving { address });
                }
                ToAgent::FleetPlan(tasks) => {
                    self.plans[agent] = tasks.iter().map(|task| task.pair).collect();
                    self.say(agent, FromAgent::Planned);
                }
                ToAgent::StartAt { at } => self.starts[agent] = Some(at),
                ToAgent::Stop => {
                    self.stopped.push(agent);
                    if agent >= self.coordinator.job.clients.len() {
                        self.say(agent, FromAgent::Served(server_figures()));
                    }
                }
                ToAgent::Bye => self.left.push(agent),
                ToAgent::Open { .. } | ToAgent::Load(_) => panic!("not of transfers"),
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

    /// An agent reports that one of its pairs was begun at once and carried so many bytes in the ten seconds.
    fn finish(&mut self, agent: usize, pair: u32, bytes: u64) {
        let began = self.theirs(agent, self.start());
        let reported = figures(began.as_nanos() / 1_000_000, bytes, 10);
        self.say(agent, FromAgent::Result { pair, began, figures: Ok(Box::new(reported)) });
        self.exchange();
    }

    fn states(self) -> Vec<PairState> {
        self.coordinator.into_record().pairs.iter().map(PairRecord::state).collect()
    }
}

use PairState::{Complete, Failed, Lost, Partial};

#[test]
fn all_begin_at_one_instant_by_clocks_of_their_own() {
    let fleet = Fleet::new(job(2, 2), &[]);
    let start = fleet.start();
    assert!(start >= fleet.now, "there is time to hear of it");
    assert_eq!(fleet.starts[2..], [None, None], "servers have nothing to begin");
    assert_eq!(fleet.plans[..2], [vec![0, 1], vec![2, 3]]);
    for client in 0..2 {
        let reported = fleet.starts[client].unwrap();
        let expected = fleet.theirs(client, start);
        let off = reported.since(expected).max(expected.since(reported));
        let known_to = fleet.coordinator.set.agents[client].record.offset.unwrap().uncertainty;
        assert!(off <= known_to && known_to < Duration::from_millis(3), "{off:?}, {known_to:?}");
    }
}

#[test]
fn what_all_report_is_the_record_on_one_clock() {
    let mut fleet = Fleet::new(job(2, 2), &[]);
    let start = fleet.start();
    fleet.wait_until(start + Duration::from_secs(10));
    for (agent, pair) in [(0, 0), (0, 1), (1, 2), (1, 3)] {
        assert!(!fleet.coordinator.is_over());
        fleet.finish(agent, pair, 1_000_000_000);
    }
    assert!(fleet.coordinator.is_over());
    assert_eq!(fleet.stopped, [2, 3], "only servers have to be stopped");
    let record = fleet.coordinator.into_record();
    let summary = FleetSummary::of(&record);
    assert_eq!((summary.pairs.complete, summary.bytes), (4, 4_000_000_000));
    let (elapsed, aggregate) = (summary.elapsed, summary.aggregate.unwrap());
    assert!(elapsed.abs_diff(Duration::from_secs(10)) < Duration::from_millis(5), "{elapsed:?}");
    assert!((3.19e9..3.21e9).contains(&aggregate), "{aggregate}");
    assert!(summary.latest_start.unwrap() < Duration::from_millis(3));
    assert!(summary.clock_uncertainty.unwrap() < Duration::from_millis(3));
    let urls: Vec<&str> = record.servers.iter().map(|server| server.url.as_deref().unwrap()).collect();
    assert_eq!(urls, ["http://10.0.0.1:8080", "http://10.0.0.2:8080"]);
}

#[test]
fn a_client_that_dies_is_lost_with_what_it_had_reported_and_the_others_are_kept() {
    let mut fleet = Fleet::new(job(2, 2), &[]);
    let start = fleet.start();
    fleet.wait_until(start + Duration::from_secs(5));
    let at = fleet.theirs(1, fleet.now);
    fleet.say(1, FromAgent::Progress { at, bytes: vec![(2, 1000), (3, 70)] });
    fleet.coordinator.handle_gone(fleet.now, 1, "killed by signal 9");
    assert!(!fleet.coordinator.is_over(), "the other one is still fetching");
    fleet.wait_until(start + Duration::from_secs(10));
    fleet.finish(0, 0, 1_000_000_000);
    fleet.finish(0, 1, 1_000_000_000);
    assert!(fleet.coordinator.is_over());
    let record = fleet.coordinator.into_record();
    let states: Vec<PairState> = record.pairs.iter().map(PairRecord::state).collect();
    assert_eq!(states, [Complete, Complete, Lost, Lost]);
    assert_eq!(record.pairs[2].bytes(), 1000);
    assert!(record.clients[1].lost.as_deref().unwrap().contains("signal 9"));
    let summary = FleetSummary::of(&record);
    assert_eq!((summary.bytes, summary.lost_bytes), (2_000_001_070, 1070));
    let reported_for = record.pairs[2].meter.elapsed();
    assert!(reported_for.abs_diff(Duration::from_secs(5)) < Duration::from_millis(3), "{reported_for:?}");
}

#[test]
fn a_silent_client_is_asked_to_stop_and_then_given_up_and_not_a_moment_later() {
    let mut fleet = Fleet::new(job(2, 1), &[]);
    let end = fleet.start() + Duration::from_secs(10);
    fleet.wait_until(end);
    fleet.finish(0, 0, 1_000_000_000);
    fleet.wait_until(end + Duration::from_millis(1999));
    assert!(fleet.stopped.is_empty());
    fleet.wait_until(end + Duration::from_secs(2));
    assert_eq!(fleet.stopped, [1], "an agent that has reported everything is not stopped");
    fleet.wait_until(end + Duration::from_millis(3999));
    assert_eq!(fleet.stopped, [1, 2], "a client that hangs takes no figures of its server along");
    assert!(!fleet.coordinator.is_over());
    fleet.wait_until(end + Duration::from_secs(4));
    assert!(fleet.coordinator.is_over());
    // What comes too late changes nothing.
    let began = fleet.now;
    let late = FromAgent::Result { pair: 1, began, figures: Ok(Box::new(figures(0, 1000, 10))) };
    fleet.say(1, late);
    assert_eq!(fleet.states(), [Complete, Lost]);
}

#[test]
fn an_agent_that_is_never_there_is_lost_and_the_others_begin_without_it() {
    let mut fleet = Fleet::new(job(2, 2), &[1]);
    assert!(matches!(fleet.coordinator.stage(), Stage::Comparing(_)));
    fleet.wait_until(ms(29_999));
    assert!(matches!(fleet.coordinator.stage(), Stage::Comparing(_)));
    fleet.wait_until(ms(30_000));
    assert!(fleet.starts[0].is_some() && fleet.starts[1].is_none());
    assert_eq!(fleet.left, [1], "it may be there, and must not wait for its task");
    fleet.finish(0, 0, 1000);
    fleet.finish(0, 1, 1000);
    assert_eq!(fleet.states(), [Complete, Complete, Lost, Lost]);
}

#[test]
fn a_server_that_cannot_serve_takes_its_pairs_along_and_no_others() {
    let mut fleet = Fleet::new(job(2, 2), &[3]);
    fleet.mute.clear();
    let why = "0.0.0.0:80: permission denied".to_owned();
    fleet.say(3, FromAgent::Refused { why });
    fleet.exchange();
    assert_eq!(fleet.plans[..2], [vec![0], vec![2]]);
    fleet.finish(0, 0, 1000);
    fleet.finish(1, 2, 1000);
    let record = fleet.coordinator.into_record();
    let states: Vec<PairState> = record.pairs.iter().map(PairRecord::state).collect();
    assert_eq!(states, [Complete, Failed, Complete, Failed]);
    let refused = "server-1 refused: 0.0.0.0:80: permission denied".to_owned();
    assert_eq!(record.pairs[1].end, PairEnd::Failed { why: refused });
}

#[test]
fn a_client_that_refuses_before_the_start_has_failed_and_one_that_gives_up_in_the_middle_is_lost() {
    let (refused, with) = ("--allow does not permit it", "ann at desk");
    for (said, words) in [
        (FromAgent::Refused { why: refused.to_owned() }, refused),
        (
            FromAgent::Busy { with: with.to_owned() },
            "it is busy with ann at desk; `h2lab agents` shows when it is free",
        ),
    ] {
        let mut fleet = Fleet::new(job(2, 1), &[1]);
        fleet.mute.clear();
        fleet.say(1, said);
        fleet.exchange();
        assert_eq!(fleet.left, [1]);
        fleet.finish(0, 0, 1000);
        let record = fleet.coordinator.into_record();
        assert_eq!(record.pairs[0].state(), Complete);
        assert_eq!(record.pairs[1].end, PairEnd::Failed { why: format!("client-1 refused: {words}") });
        assert_eq!(record.clients[1].lost.as_deref(), Some(words));
    }
    let mut fleet = Fleet::new(job(2, 1), &[]);
    fleet.start();
    fleet.say(1, FromAgent::Refused { why: "the disk is full".to_owned() });
    fleet.finish(0, 0, 1000);
    let record = fleet.coordinator.into_record();
    assert_eq!(record.pairs[1].end, PairEnd::Lost { why: "client-1: the disk is full".to_owned() });
}

#[test]
fn a_drive_that_is_abandoned_waits_for_nothing_and_asks_for_nothing_more() {
    let mut fleet = Fleet::new(job(2, 1), &[]);
    fleet.finish(0, 0, 1000);
    fleet.coordinator.handle_interrupt(fleet.now);
    fleet.exchange();
    assert!(!fleet.coordinator.is_over(), "the other pair is waited for");
    fleet.coordinator.abandon();
    assert!(fleet.coordinator.is_over() && fleet.coordinator.poll_message().is_none());
    assert_eq!(fleet.coordinator.poll_timeout(), Time::NEVER);
    let record = fleet.coordinator.into_record();
    assert!(record.interrupted && record.pairs[0].state() == Complete);
    assert_eq!(record.pairs[1].end, PairEnd::Lost { why: ABANDONED.to_owned() });
}

#[test]
fn a_server_that_dies_in_the_middle_is_reported_by_its_clients() {
    let mut fleet = Fleet::new(job(1, 2), &[]);
    fleet.coordinator.handle_gone(fleet.now, 2, "killed by signal 9");
    assert!(!fleet.coordinator.is_over(), "the client knows what it got until then");
    fleet.finish(0, 0, 1000);
    let began = fleet.start();
    fleet.say(0, FromAgent::Result { pair: 1, began, figures: Err("connection refused".to_owned()) });
    fleet.exchange();
    assert!(fleet.coordinator.is_over());
    let record = fleet.coordinator.into_record();
    assert!(record.servers[1].lost.is_some() && record.servers[1].url.is_some());
    assert_eq!(record.pairs.iter().map(PairRecord::state).collect::<Vec<_>>(), [Complete, Failed]);
}

#[test]
fn nobody_is_waited_for_when_nobody_is_left() {
    let mut fleet = Fleet::new(job(2, 1), &[0, 1, 2]);
    fleet.coordinator.handle_gone(fleet.now, 0, "ssh: no such host");
    assert!(!fleet.coordinator.is_over());
    fleet.coordinator.handle_gone(fleet.now, 1, "ssh: no such host");
    assert!(fleet.coordinator.is_over());
    assert_eq!(fleet.coordinator.poll_timeout(), Time::NEVER);
    let record = fleet.coordinator.into_record();
    assert_eq!(record.start_at, Time::NEVER);
    assert!(record.pairs.iter().all(|pair| pair.state() == Lost && pair.late.is_none()));
}

#[test]
fn an_interruption_collects_what_there_is_and_waits_no_longer_than_the_grace() {
    let mut fleet = Fleet::new(job(2, 1), &[]);
    let middle = fleet.start() + Duration::from_secs(3);
    fleet.wait_until(middle);
    fleet.coordinator.handle_interrupt(middle);
    fleet.exchange();
    assert_eq!(fleet.stopped, [0, 1]);
    let began = fleet.theirs(0, fleet.start());
    let mut reported = figures(began.as_nanos() / 1_000_000, 1000, 3);
    reported.interrupted = true;
    fleet.say(0, FromAgent::Result { pair: 0, began, figures: Ok(Box::new(reported)) });
    fleet.wait_until(middle + Duration::from_millis(3999));
    assert!(!fleet.coordinator.is_over());
    fleet.wait_until(middle + Duration::from_secs(4));
    assert!(fleet.coordinator.is_over());
    let record = fleet.coordinator.into_record();
    assert!(record.interrupted);
    assert_eq!(record.pairs.iter().map(PairRecord::state).collect::<Vec<_>>(), [Partial, Lost]);
}

#[test]
fn an_interruption_before_the_start_ends_at_once() {
    let mut fleet = Fleet::new(job(1, 1), &[1]);
    fleet.coordinator.handle_interrupt(fleet.now);
    assert!(fleet.coordinator.is_over());
    assert_eq!(fleet.states(), [Lost]);
}

#[test]
fn what_an_agent_has_no_business_to_say_changes_nothing() {
    let mut fleet = Fleet::new(job(2, 1), &[]);
    let stage = fleet.coordinator.stage();
    let address = "1.2.3.4:1".parse().unwrap();
    let others = FromAgent::Result { pair: 1, began: ms(0), figures: Err("not mine".to_owned()) };
    let none = FromAgent::Result { pair: 99, began: ms(0), figures: Err("nobody's".to_owned()) };
    let again = FromAgent::Ready { version: String::new(), machine: String::new() };
    for message in [
        FromAgent::Pong { number: 3, at: ms(1) },
        FromAgent::Serving { address },
        FromAgent::Planned,
        FromAgent::Progress { at: ms(1), bytes: vec![(1, 5), (99, 5)] },
        FromAgent::Served(server_figures()),
        FromAgent::Loading(Box::new(share_progress(1))),
        FromAgent::Part(part_report("client-0")),
        others,
        none,
        again,
    ] {
        fleet.say(0, message);
        fleet.exchange();
        assert_eq!(fleet.coordinator.stage(), stage);
    }
    fleet.coordinator.handle_message(fleet.now, 99, FromAgent::Planned);
    fleet.coordinator.handle_gone(fleet.now, 99, "who?");
    assert_eq!(fleet.coordinator.progress(), (0, 0));
}

#[test]
fn figures_that_cannot_be_are_no_result_and_no_panic() {
    let mut fleet = Fleet::new(job(1, 1), &[]);
    fleet.wait_until(fleet.start() + Duration::from_secs(5));
    fleet.say(0, FromAgent::Progress { at: Time::from_nanos(u64::MAX - 1), bytes: vec![(0, u64::MAX)] });
    fleet.say(0, FromAgent::Progress { at: ms(0), bytes: vec![(0, 1), (0, u64::MAX)] });
    let mut reported = figures(0, 1000, 10);
    reported.endings.iter_mut().for_each(|ending| ending.bytes = u64::MAX);
    let began = Time::from_nanos(u64::MAX - 1);
    fleet.say(0, FromAgent::Result { pair: 0, began, figures: Ok(Box::new(reported)) });
    let record = fleet.coordinator.into_record();
    assert_eq!(record.pairs[0].state(), Lost);
    let summary = FleetSummary::of(&record);
    assert!(summary.aggregate.is_some_and(f64::is_finite));
    assert_eq!(summary.elapsed, Duration::from_secs(5), "nothing can have come later than now");
    assert!(record.pairs[0].late.is_some_and(|late| late <= Duration::from_secs(5)));
}

#[test]
fn progress_before_the_start_is_none() {
    let mut fleet = Fleet::new(job(2, 1), &[1]);
    assert!(matches!(fleet.coordinator.stage(), Stage::Comparing(_)));
    fleet.say(0, FromAgent::Progress { at: ms(1), bytes: vec![(0, 1000)] });
    assert_eq!(fleet.coordinator.progress(), (0, 0));
}

#[test]
fn figures_of_another_time_are_no_result_and_leave_the_sum_as_it_is() {
    // Grace is four seconds: what began so long before the start, or ended so long after the end, is still possible.
    for (shift_ms, seconds, is_possible) in [
        (0, 10, true),
        (-3_980, 10, true),
        (-4_020, 10, false),
        (3_980, 10, true),
        (4_020, 10, false),
        (0, 15, false),
        (10_000_000_000_000, 1, false),
    ] {
        let mut fleet = Fleet::new(job(2, 1), &[1]);
        // So late that all clocks have times before the start.
        (fleet.now, fleet.mute) = (ms(10_000), Vec::new());
        fleet.say(1, FromAgent::Ready { version: String::new(), machine: String::new() });
        fleet.exchange();
        let start = fleet.start();
        fleet.wait_until(start + Duration::from_secs(10));
        fleet.finish(0, 0, 1000);
        let began_ms = (fleet.theirs(1, start).as_nanos() / 1_000_000).saturating_add_signed(shift_ms);
        let reported = figures(began_ms, 1000, seconds);
        let began = Time::from_millis(began_ms);
        fleet.say(1, FromAgent::Result { pair: 1, began, figures: Ok(Box::new(reported)) });
        let record = fleet.coordinator.into_record();
        let expected = if is_possible { Complete } else { Lost };
        assert_eq!(record.pairs[1].state(), expected, "{shift_ms} ms, {seconds} s");
        assert!(FleetSummary::of(&record).elapsed <= Duration::from_secs(15), "{shift_ms} ms, {seconds} s");
    }
}

#[test]
fn servers_that_run_already_have_no_agent_and_need_none() {
    let mut job = job(1, 2);
    job.servers[0].place = ServerPlace::Url("http://10.1.1.1:80".to_owned());
    let fleet = Fleet::new(job, &[]);
    assert_eq!(fleet.coordinator.set.agents.len(), 2, "the client's and the other server's");
    assert_eq!(fleet.plans[0], [0, 1]);
    let record = fleet.coordinator.into_record();
    assert_eq!(record.servers[0].url.as_deref(), Some("http://10.1.1.1:80"));
    assert_eq!(record.servers[1].url.as_deref(), Some("http://10.0.0.2:8080"));
}

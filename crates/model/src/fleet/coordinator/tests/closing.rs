//! Servers that are sent Stop, and report what they spent, or do not.

use super::*;
use crate::fleet::{AgentRecord, ServerFigures};

/// A fleet of one client and two servers whose pairs are over, and the time of that. Mute servers have been sent Stop, and are
/// silent.
fn over(mute: &[usize]) -> (Fleet, Time) {
    let mut fleet = Fleet::new(job(1, 2), &[]);
    fleet.mute = mute.to_vec();
    fleet.wait_until(fleet.start() + Duration::from_secs(10));
    fleet.finish(0, 0, 1_000_000_000);
    let now = fleet.now;
    fleet.finish(0, 1, 1_000_000_000);
    assert_eq!(fleet.stopped, [1, 2], "all servers are stopped, once");
    (fleet, now)
}

/// The servers in the end; whatever happened to them cost no pair.
fn servers(fleet: Fleet) -> Vec<AgentRecord> {
    let record = fleet.coordinator.into_record();
    assert!(record.pairs.iter().all(|pair| pair.state() == Complete));
    record.servers
}

fn reported(servers: &[AgentRecord]) -> Vec<bool> {
    servers.iter().map(|server| server.served.is_some()).collect()
}

#[test]
fn servers_say_what_they_spent_when_all_pairs_are_over_and_it_ends_with_the_last_word() {
    let (mut fleet, _) = over(&[2]);
    assert!(matches!(fleet.coordinator.stage(), Stage::Closing(_)), "the other one is waited for");
    fleet.mute.clear();
    let figures = ServerFigures { retransmits: None, ..server_figures() };
    fleet.say(2, FromAgent::Served(figures.clone()));
    assert!(fleet.coordinator.is_over());
    let servers = servers(fleet);
    assert_eq!(servers[0].served, Some(server_figures()));
    assert_eq!(servers[1].served, Some(figures));
}

#[test]
fn a_silent_server_is_waited_for_two_seconds_and_is_not_lost() {
    let (mut fleet, since) = over(&[2]);
    fleet.wait_until(since + Duration::from_millis(1999));
    assert!(!fleet.coordinator.is_over());
    fleet.wait_until(since + Duration::from_millis(2003));
    assert!(fleet.coordinator.is_over());
    let servers = servers(fleet);
    assert_eq!((reported(&servers), servers[1].lost.as_deref()), (vec![true, false], None));
}

#[test]
fn no_server_is_waited_for_beyond_the_grace() {
    let mut fleet = Fleet::new(job(1, 1), &[]);
    let until = fleet.start() + Duration::from_secs(14);
    fleet.mute = vec![1];
    fleet.wait_until(until - Duration::from_millis(500));
    fleet.finish(0, 0, 1000);
    assert_eq!(fleet.stopped, [0, 1], "once, although the time for it came before the result");
    fleet.wait_until(until - Duration::from_millis(1));
    assert!(!fleet.coordinator.is_over());
    fleet.wait_until(until);
    assert!(fleet.coordinator.is_over());
    assert_eq!(reported(&servers(fleet)), [false]);
}

#[test]
fn a_server_that_dies_while_it_is_asked_is_lost_and_not_waited_for() {
    let (mut fleet, _) = over(&[1, 2]);
    fleet.coordinator.handle_gone(fleet.now, 2, "killed by signal 9");
    assert!(!fleet.coordinator.is_over(), "there is another one");
    fleet.coordinator.handle_gone(fleet.now, 1, "killed by signal 9");
    assert!(fleet.coordinator.is_over());
    let servers = servers(fleet);
    assert_eq!(reported(&servers), [false, false]);
    assert!(servers.iter().all(|server| server.lost.is_some()));
}

#[test]
fn an_interruption_while_servers_are_asked_ends_at_once() {
    let (mut fleet, _) = over(&[2]);
    fleet.coordinator.handle_interrupt(fleet.now);
    assert!(fleet.coordinator.is_over());
    assert_eq!(reported(&servers(fleet)), [true, false]);
}

#[test]
fn servers_of_an_interrupted_run_report_too() {
    let mut fleet = Fleet::new(job(1, 1), &[]);
    fleet.wait_until(fleet.start() + Duration::from_secs(3));
    fleet.coordinator.handle_interrupt(fleet.now);
    fleet.exchange();
    assert_eq!(fleet.stopped, [0]);
    fleet.finish(0, 0, 1000);
    assert!(fleet.coordinator.is_over());
    assert_eq!(reported(&servers(fleet)), [true]);
}

#[test]
fn a_server_that_runs_already_and_one_that_is_lost_are_not_asked() {
    let mut job = job(1, 3);
    job.servers[0].place = ServerPlace::Url("http://10.1.1.1:80".to_owned());
    let mut fleet = Fleet::new(job, &[]);
    fleet.coordinator.handle_gone(fleet.now, 1, "killed by signal 9");
    (0..3).for_each(|pair| fleet.finish(0, pair, 1000));
    assert_eq!(fleet.stopped, [2]);
    assert!(fleet.coordinator.is_over());
    assert_eq!(reported(&servers(fleet)), [false, false, true]);
}

#[test]
fn what_is_reported_unasked_twice_or_by_a_client_is_no_figure_and_neither_is_what_cannot_be() {
    let mut fleet = Fleet::new(job(1, 1), &[]);
    (0..2).for_each(|agent| fleet.say(agent, FromAgent::Served(server_figures())));
    fleet.mute = vec![1];
    fleet.finish(0, 0, 1000);
    fleet.mute.clear();
    fleet.say(0, FromAgent::Served(server_figures()));
    assert!(matches!(fleet.coordinator.stage(), Stage::Closing(_)), "its server is still to come");
    fleet.say(1, FromAgent::Served(ServerFigures { sent: u64::MAX, ..server_figures() }));
    assert!(fleet.coordinator.is_over());
    fleet.say(1, FromAgent::Served(server_figures()));
    let record = fleet.coordinator.into_record();
    assert_eq!((&record.clients[0].served, &record.servers[0].served), (&None, &None));
    assert_eq!(record.servers[0].lost, None);
}

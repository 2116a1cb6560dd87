//! The traps that other pools of HTTP/2 connections fell into, and the tests for each. `it::` are integration tests of
//! h2lab.
//!
//! | trap | tests |
//! |---|---|
//! | 1. A stream counts when it is sent: all that come at once choose the same connection | `traps::requests_of_one_turn_…` |
//! | 2. The number falls without a bound | `estimate::it_falls_step_by_step_…`, `losses::after_losses_begin_…` |
//! | 3. The number swings | `steady::chance_does_not_make_the_number_swing`, `steady::over_tcp_neither` |
//! | 4. Of equal connections the same one is always taken | `place::connections_take_turns_…` |
//! | 5. A connection is used before it is ready | `it::sidecar_streams`, `goaway::what_a_goaway_in_the_middle_…` |
//! | 6. Two connections at least, of which one may end | `goaway::a_quota_is_learned_…`, `instances::while_the_only_one_…` |
//! | 7. Round robin: requests one after another open all connections, each cold | `traps::one_after_the_other_needs_one_connection` |
//! | 8. Callers that come at once make as many dials | `dials::callers_that_come_at_once_…` |
//! | 9. Idle connections are never closed | `idle::…`, `liveness::…`, `it::sidecar_pool` |
//! | 10. Old connections are never closed | `instances::one_that_joins_cold_…`, as far as instances are known by name |
//! | 11. All connections of a peer are on one of its threads | `it::sidecar_threads` |
//! | 12. All rush to an instance that is new, or back | `instances::…`, `place::one_that_has_just_appeared_…` |
//!
//! To 6: the minimum is one here, and nothing rests on a second. The next connection is up before the only one has spent its quota, and
//! where one ends without notice requests wait for one dial.
//!
//! To 10: connections have no maximum age. Instances that a registry names have connections of their own, and load moves with the choice
//! of the instance. Behind one address that stands for several instances nothing moves it.

use std::time::Duration;

use h2lab_base::random::Counter;
use h2lab_proxy::config::Policy;
use h2lab_proxy::pool::dials::{self, Count};
use h2lab_proxy::pool::path::PathReading;
use h2lab_proxy::pool::place::{self, Load, Room};
use h2lab_proxy::pool::portion::Portion;

/// How many of `requests` that come in one turn go to each connection with such a path.
fn placed(paths: &[PathReading], requests: u32) -> Vec<u32> {
    let (mut added, mut last) = (vec![0; paths.len()], 0);
    for _ in 0..requests {
        let room = |(path, added): (&PathReading, &u32)| Room {
            free: 100 - added,
            open: *added,
            wait: place::wait(path, *added),
        };
        let rooms: Vec<Room> = paths.iter().zip(&added).map(room).collect();
        last = place::connection(&rooms, last).expect("there is room");
        added[last] += 1;
    }
    added
}

#[test]
fn requests_of_one_turn_are_spread_over_connections() {
    let rtt = Duration::from_millis(25);
    let path = PathReading { rtt, window: 10, ..PathReading::default() };
    assert_eq!(placed(&[path; 8], 64), [8; 8]);
    // The connection that looks best when the turn begins gets one window of requests, and no more than the others that
    // have room: not all.
    let busy = PathReading { in_flight: 8, ..path };
    assert_eq!(placed(&[path, busy, busy, busy], 16), [10, 2, 2, 2]);
    let repairing = PathReading { is_repairing: true, ..path };
    assert_eq!(placed(&[path, repairing, path], 20), [10, 0, 10]);
    assert_eq!(placed(&[path, repairing, path], 27)[1], 7, "a repair takes less than a round trip");
}

#[test]
fn requests_of_one_turn_are_spread_over_instances() {
    let mut random = Counter::new(1, "traps");
    let quick = Load { takes: Some(Duration::from_millis(10)), weight: 1, ..Load::default() };
    let new = Load { takes: None, ..quick };
    let mut loads = [quick, quick, quick, new];
    for _ in 0..200 {
        let chosen = place::instance(&loads, &mut random).expect("one");
        loads[chosen].open += 1;
    }
    assert!(loads.iter().all(|load| (40..=60).contains(&load.open)), "{loads:?}");
}

/// The number of connections after requests of a caller that has `at_once` of them under way at a time.
fn connections(policy: Policy, at_once: u32) -> u32 {
    let (mut open, mut last) = (Vec::<u32>::new(), 0);
    for _ in 0..100 {
        open.fill(0); // all were answered
        for _ in 0..at_once {
            let room = |open: &u32| Room { free: 100 - open, open: *open, wait: Duration::ZERO };
            let rooms: Vec<Room> = open.iter().map(room).collect();
            let chosen = place::connection(&rooms, last);
            let is_enough = dials::is_enough(chosen.map(|chosen| rooms[chosen]), chosen.is_some());
            let count =
                Count { lasting: open.len() as u32, dialling: 0, waiting: u32::from(chosen.is_none()) };
            if !is_enough && count.wanted(policy, false, 1, Portion::default()) > count.lasting {
                open.push(0); // it is established at once
            }
            last = chosen.unwrap_or(0);
            open[last] += 1;
        }
    }
    open.len() as u32
}

#[test]
fn one_after_the_other_needs_one_connection() {
    assert_eq!([1, 2, 3, 20].map(|at_once| connections(Policy::Fixed(8), at_once)), [1, 2, 3, 8]);
    assert_eq!([1, 20].map(|at_once| connections(Policy::Adaptive, at_once)), [1, 1]);
}

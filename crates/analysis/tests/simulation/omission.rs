//! Coordinated omission: a server that sleeps once, as measured by clients that send on schedule, and by clients that
//! wait for an answer before they send again.

use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_model::record::Sample;
use h2lab_model::scenario::{Axis, Scenario};
use h2lab_model::workload::Protocol;

use crate::model::{Answer, Setup, repetition};
use crate::trial;

const CONNECTIONS: u32 = 10;
const RATE: u32 = 1_000;
const MEASURED: Duration = Duration::from_secs(3);
const SLEEP: Duration = Duration::from_millis(500);
/// The server's time per request when it is awake.
const WORK: Duration = Duration::from_millis(1);
/// A request that took longer was in flight during the sleep.
const SLOW: Duration = Duration::from_millis(50);

/// Sleeps once, 1.5 s after everything began.
fn sleeping_once(now: Time, _path: &[u8]) -> Answer {
    let falls_asleep = Time::from_millis(1_500);
    let awake = if now >= falls_asleep { now.max(falls_asleep + SLEEP) } else { now };
    Answer { due: awake + WORK, status: 200, body_bytes: 16 }
}

/// HTTP/1.1 over ten connections on a path of 0.2 ms, without loss.
fn scenario() -> Scenario {
    let mut scenario = trial::one(Protocol::H1, CONNECTIONS, 0.0);
    scenario.link.delay = Axis::one(Duration::from_micros(100));
    scenario.matrix.warm_pool = CONNECTIONS;
    scenario.matrix.max_connections = CONNECTIONS;
    scenario.work.warmup = Duration::ZERO;
    scenario.work.measure = Axis::one(MEASURED);
    scenario
}

/// The times of all requests in ascending order.
fn times(scenario: &Scenario, of: impl Fn(&Sample) -> Duration) -> Vec<Duration> {
    let setup = Setup { application: &sleeping_once, ..Setup::new() };
    let record = repetition(&trial::cell(scenario), &setup).record;
    assert!(record.samples.iter().all(|sample| sample.outcome.is_success()));
    let mut times: Vec<Duration> = record.samples.iter().map(|sample| of(&sample)).collect();
    times.sort_unstable();
    times
}

fn percentile(times: &[Duration], share: f64) -> f64 {
    times[(times.len() as f64 * share).ceil() as usize - 1].as_secs_f64() * 1e3
}

/// 500 of 3,000 requests are due while the server sleeps, evenly: a tenth of all requests waits for 200 ms and longer,
/// a hundredth for 470 ms. Working off the backlog afterwards adds 60 ms.
#[test]
fn from_the_schedule_a_sleep_is_as_long_as_it_was_for_those_who_asked() {
    let mut scenario = scenario();
    scenario.work.rate = Axis::one(f64::from(RATE));
    let times = times(&scenario, Sample::response_time);
    assert!((2_999..=3_000).contains(&times.len()), "none is skipped: {}", times.len());
    let (p90, p99) = (percentile(&times, 0.9), percentile(&times, 0.99));
    println!("open loop, from the schedule: p90 {p90:.1} ms, p99 {p99:.1} ms");
    assert!((200.0..280.0).contains(&p90) && (470.0..540.0).contains(&p99), "p90 {p90}, p99 {p99}");
    let slow = times.iter().filter(|time| **time > SLOW).count();
    assert!((450..=560).contains(&slow), "{slow} waited");
}

/// The same requests, each measured from when it was sent: only the ten that were on the connections when the sleep
/// began were slow. That is 0.3 % of them, so that p99 is an ordinary answer.
#[test]
fn from_sending_the_same_run_hides_it() {
    let mut scenario = scenario();
    scenario.work.rate = Axis::one(f64::from(RATE));
    let times = times(&scenario, Sample::service_time);
    let p99 = percentile(&times, 0.99);
    println!("open loop, from sending: p99 {p99:.1} ms");
    assert!(p99 < 5.0, "{p99}");
    assert_eq!(times.iter().filter(|time| **time > SLOW).count(), CONNECTIONS as usize);
}

/// A naive generator: ten clients, each of which sends again when it has been answered. None sends while all ten wait,
/// so that ten of about twenty thousand requests were slow, and not even p99.9 shows them.
#[test]
fn a_closed_loop_reports_ten_slow_requests_however_long_the_server_slept() {
    let mut scenario = scenario();
    scenario.work.concurrency = Some(CONNECTIONS);
    let times = times(&scenario, Sample::response_time);
    let (p99, p999) = (percentile(&times, 0.99), percentile(&times, 0.999));
    println!("closed loop: {} requests, p99 {p99:.1} ms, p99.9 {p999:.1} ms", times.len());
    assert!(times.len() > 15_000, "{}", times.len());
    assert!(p99 < 5.0 && p999 < 5.0, "p99 {p99}, p99.9 {p999}");
    let slow: Vec<_> = times.iter().filter(|time| **time > SLOW).collect();
    assert_eq!(slow.len(), CONNECTIONS as usize);
    assert!(slow.iter().all(|time| **time > Duration::from_millis(490)), "{slow:?}");
}

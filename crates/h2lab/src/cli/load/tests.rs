use std::time::Duration;

use clap::Parser;
use h2lab_model::workload::{Arrival, ClientPolicy, DialPolicy, Protocol};

use super::plan::{self, LoadPlan};
use super::{LoadArgs, requests};

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    load: LoadArgs,
}

/// The plan of a command line in the protocol that is tried first.
fn planned(line: &str) -> LoadPlan {
    let args = Line::try_parse_from(["load"].into_iter().chain(line.split(' '))).unwrap().load;
    let requests =
        requests::read(&args.urls, args.urls_file.as_deref(), args.client.request.template).unwrap();
    let protocols = plan::protocols(&args, requests.url.is_tls()).unwrap();
    plan::plan(&args, &requests, protocols[0]).unwrap()
}

/// Connections, streams on each, requests in flight.
fn size(line: &str) -> (u32, u32, Arrival) {
    let cell = planned(line).cell;
    (cell.connections, cell.streams, cell.work.arrival)
}

#[test]
fn without_flags_it_is_what_hey_does() {
    let plan = planned("http://a/x");
    let work = &plan.cell.work;
    assert_eq!((work.method.as_str(), work.path.as_str(), plan.cell.protocol), ("GET", "/x", Protocol::H1));
    assert_eq!(work.phases.measure, Duration::from_secs(10));
    assert!(work.phases.warmup.is_zero() && work.headers.is_empty());
    assert_eq!(size("http://a/"), (50, 1, Arrival::Closed { concurrency: 50 }));
    assert_eq!(size("https://a/"), (1, 100, Arrival::Closed { concurrency: 100 }));
}

#[test]
fn connections_asked_for_are_never_a_hundred_times_as_many_requests() {
    assert_eq!(size("-c 50 https://a/"), (50, 1, Arrival::Closed { concurrency: 50 }));
    assert_eq!(size("-c 4 -m 25 https://a/"), (4, 25, Arrival::Closed { concurrency: 100 }));
    assert_eq!(size("-n 2 -c 50 http://a/").0, 2, "no more than requests");
}

#[test]
fn an_open_loop_opens_as_many_streams_as_it_takes() {
    let (connections, streams, arrival) = size("-q 500 --http2-prior-knowledge http://a/");
    assert_eq!((connections, arrival), (1, Arrival::Constant { rate: 500.0 }));
    assert!(streams > 10_000, "{streams}");
    let over = Duration::from_secs(2);
    assert_eq!(size("--ramp 1..9/2s http://a/").2, Arrival::Ramp { from: 1.0, to: 9.0, over, steps: 0 });
    assert_eq!(size("-q 5 --arrival poisson http://a/").2, Arrival::Poisson { rate: 5.0 });
}

#[test]
fn the_number_of_requests_is_the_end_unless_a_time_is_given_too() {
    assert_eq!(planned("-n 5 http://a/").cell.work.phases.measure, plan::ENDLESS);
    assert_eq!(planned("-n 5 -z 3s http://a/").cell.work.phases.measure, Duration::from_secs(3));
}

#[test]
fn policies_templates_and_kinds_reach_the_cell() {
    let cell = planned(
        "--proto h2c --dial-policy stampede --reconnect-every 10 --pool-size 2 --cancel-after 5ms --no-replay --template \
         http://a/1 http://a/2",
    )
    .cell;
    let expected = ClientPolicy {
        reconnect_every: Some(10),
        pool_size: Some(2),
        cancel_after: Some(Duration::from_millis(5)),
        ..ClientPolicy::default()
    };
    assert_eq!((cell.dial, cell.policy), (DialPolicy::Stampede, expected));
    assert!(cell.work.template && !cell.work.replay);
    let paths: Vec<&str> = cell.work.mix.iter().map(|kind| kind.path.as_str()).collect();
    assert_eq!(paths, ["/1", "/2"]);
    assert!(planned("http://a/1").cell.work.mix.is_empty(), "one kind is the work itself");
}

#[test]
fn a_body_makes_a_post_unless_a_method_is_given() {
    let method = |line: &str| planned(line).cell.work.method;
    assert_eq!(method("-d x http://a/"), "POST");
    assert_eq!(method("--body-bytes 1k http://a/"), "POST");
    assert_eq!(method("-X PUT -d x http://a/"), "PUT");
}

//! Both sides of every threshold.

use crate::diagnose::Finding;
use crate::diagnose::testing::{self, Scene};
use h2lab_model::record::{CellRecord, OriginCounts, ServerSummary};
use h2lab_model::scenario::Target;
use h2lab_model::workload::Protocol;

fn finding(record: CellRecord) -> Option<Finding> {
    testing::found("PROXY101", record)
}

/// Two connections, each with a request all the time.
const FULL: OriginCounts = OriginCounts {
    requests: 100,
    connections: 2,
    multiplexed: 0,
    most_busy: 2,
    busy_ns: 200_000_000,
    wall_ns: 100_000_000,
    writes: 0,
    frames: 0,
};

/// Four requests come to `HAProxy` at once, over a path of 25 ms. Its upstream takes 50 ms for each, and has two of them at a
/// time.
fn record(protocol: Protocol, counts: OriginCounts) -> CellRecord {
    let scene = Scene::new(protocol).request(0, 1, 100, 175, 175).request(0, 3, 100, 175, 175);
    let mut record = scene.request(0, 5, 100, 225, 225).request(0, 7, 100, 225, 225).record();
    record.cell.target = Target::Sut { name: "haproxy".to_owned() };
    record.server = Some(ServerSummary {
        name: "haproxy".to_owned(),
        version: "2.6.12".to_owned(),
        origin: Some(counts),
        ..ServerSummary::default()
    });
    record
}

#[test]
fn requests_that_wait_for_one_of_a_few_upstream_connections_are_told_with_what_would_carry_more() {
    let found = finding(record(Protocol::H2c, FULL)).expect("a finding");
    assert!(
        found.symptom.starts_with("haproxy asked its upstream over HTTP/1.1, one request at a time on each"),
        "{}",
        found.symptom
    );
    let most = "at most 2 connections, while up to 4 were in flight on 1 HTTP/2 connection:";
    assert!(found.symptom.contains(most), "{}", found.symptom);
    // Two of four waited for 50 ms, of 75, 75, 125 and 125 ms.
    assert!((found.cost_share - 100.0 / 400.0).abs() < 1e-6, "{}", found.cost_share);
    let settings: Vec<&str> = found.fixes.iter().map(|fix| fix.setting.as_str()).collect();
    assert!(settings[0].contains("proto h2") && settings[1].contains("maxconn 4"), "{settings:?}");
    assert!(!found.is_observation());
    let h3 = finding(record(Protocol::H3, FULL)).expect("a finding");
    assert!(h3.symptom.contains("in flight on 1 HTTP/3 connection:"), "{}", h3.symptom);
}

#[test]
fn connections_that_were_not_busy_all_the_time_were_no_limit() {
    let busy = |busy_ns| finding(record(Protocol::H2c, OriginCounts { busy_ns, ..FULL }));
    assert!(busy(161_000_000).is_some());
    assert_eq!(busy(159_000_000), None, "something else held the requests up");
    let enough = OriginCounts { most_busy: 4, busy_ns: 400_000_000, ..FULL };
    assert_eq!(finding(record(Protocol::H2c, enough)), None, "the upstream had all of them");
}

#[test]
fn a_few_requests_that_the_link_held_up_did_not_wait_in_the_proxy() {
    // Half of them are in the proxy for 100 ms.
    let found = |of_one_ms: u64| {
        let wall_ns = of_one_ms * FULL.requests * 1_000_000 / FULL.most_busy;
        finding(record(Protocol::H2c, OriginCounts { wall_ns, busy_ns: wall_ns * FULL.most_busy, ..FULL }))
    };
    assert!(found(66).is_some());
    assert_eq!(found(67), None, "the usual request does not wait");
}

#[test]
fn a_hundred_requests_are_wanted() {
    assert_eq!(finding(record(Protocol::H2c, OriginCounts { requests: 99, ..FULL })), None);
}

#[test]
fn a_connection_for_every_second_request_is_observed_with_what_keeps_connections() {
    let dialled =
        |connections| finding(record(Protocol::H2c, OriginCounts { connections, most_busy: 4, ..FULL }));
    let found = dialled(50).expect("an observation");
    assert!(found.is_observation(), "{found:?}");
    let settings: Vec<&str> = found.fixes.iter().map(|fix| fix.setting.as_str()).collect();
    assert_eq!(settings, ["http-reuse always"]);
    let opened = "haproxy opened 50 connections to its upstream for 100 requests: 2.0 requests on each";
    assert_eq!(found.symptom, format!("{opened}, on average"));
    assert_eq!(dialled(49), None);
    let both = finding(record(Protocol::H2c, OriginCounts { connections: 50, ..FULL })).expect("a finding");
    assert!(both.fixes.iter().any(|fix| fix.setting.starts_with("http-reuse")), "{:?}", both.fixes);
}

#[test]
fn each_proxy_has_its_own_line_that_keeps_connections_and_none_if_we_know_of_none() {
    let fixes = |name: &str, version: &str| {
        let dialled = OriginCounts { connections: 100, most_busy: 4, ..FULL };
        let mut record = record(Protocol::H2c, dialled);
        record.cell.target = Target::Sut { name: name.to_owned() };
        let server = record.server.as_mut().expect("it has one");
        (server.name, server.version) = (name.to_owned(), version.to_owned());
        finding(record).expect("an observation").fixes
    };
    let nginx = fixes("nginx", "1.22.1");
    assert_eq!(nginx[0].setting, "keepalive 4;");
    let needs = "proxy_http_version 1.1; proxy_set_header Connection \"\";";
    assert!(nginx[0].why.contains(needs), "{}", nginx[0].why);
    // What these take is a time, not how many.
    assert_eq!(fixes("h2o", "2.2.5")[0].setting, "proxy.timeout.keepalive: 10000");
    assert_eq!(fixes("nghttpx", "1.52.0")[0].setting, "--backend-keep-alive-timeout=10");
    let apache = fixes("apache", "2.4.71");
    assert!(apache[0].setting.ends_with("enablereuse=on"), "{}", apache[0].setting);
    assert!(apache[0].why.ends_with("(unchecked)"), "{}", apache[0].why);
    assert!(fixes("tomcat", "10.1").is_empty());
}

#[test]
fn what_looks_alike_is_silent() {
    assert_eq!(finding(record(Protocol::H1, FULL)), None, "the front does not multiplex either");
    let h2 = OriginCounts { multiplexed: 1, ..FULL };
    assert_eq!(finding(record(Protocol::H2c, h2)), None, "the upstream is asked over HTTP/2");
    let mut own = record(Protocol::H2c, FULL);
    own.cell.target = Target::Origin;
    assert_eq!(finding(own), None, "our origin is no upstream");
    let mut unknown = record(Protocol::H2c, FULL);
    unknown.server = None;
    assert_eq!(finding(unknown), None, "no proxy of ours");
}

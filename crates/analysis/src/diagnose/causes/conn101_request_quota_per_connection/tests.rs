//! When a number may be reported, and when not.
#![allow(clippy::float_cmp, reason = "counts and halves of milliseconds are exact in binary")]

use crate::diagnose::testing::Scene;
use crate::diagnose::{Confidence, Finding, run};
use h2lab_base::units::Time;
use h2lab_model::record::Outcome;
use h2lab_model::scenario::{Sidecar, Target};
use h2lab_model::workload::Protocol;

fn finding(scene: Scene) -> Option<Finding> {
    run(&[scene.record()]).into_iter().find(|finding| finding.rule == "CONN101")
}

/// The finding if nothing is known of the cost, since no request was measured: it has fixes nevertheless.
fn unmeasured(scene: Scene) -> Option<Finding> {
    let mut record = scene.record();
    record.samples.edit().iter_mut().for_each(|sample| sample.measured = false);
    run(&[record]).into_iter().find(|finding| finding.rule == "CONN101")
}

/// Connections, one second apart, that each ended with a GOAWAY with one of these last streams.
fn goaways(last_streams: &[u32]) -> Scene {
    let scene = Scene::new(Protocol::H2).connections(last_streams.len() as u32 + 1);
    let numbered = last_streams.iter().enumerate();
    numbered.fold(scene, |scene, (n, &last)| scene.goaway(n as u32, 1_000 * (n as u64 + 1), last, 0))
}

#[test]
fn two_connections_with_the_same_last_stream_state_the_quota() {
    let finding = finding(goaways(&[1_999, 1_999]).server_software("nginx/1.22.1")).expect("a finding");
    assert_eq!(
        finding.symptom,
        "the server ended 2 connections by GOAWAY after exactly 1,000 requests each; 3 were opened"
    );
    assert_eq!(finding.evidence[0].value, 1_000.0);
    assert_eq!(
        (finding.fixes[0].product.as_str(), finding.fixes[0].setting.as_str()),
        ("nginx", "keepalive_requests 100000;")
    );
    assert!(
        finding.fixes[0].why.starts_with("connections end after 1000 requests here; "),
        "{}",
        finding.fixes[0].why
    );
}

#[test]
fn one_connection_alone_states_nothing() {
    assert_eq!(finding(goaways(&[1_999])), None);
}

#[test]
fn two_repetitions_with_one_connection_each_state_it_together() {
    let first = goaways(&[1_999]).record();
    let mut second = first.clone();
    second.cell.repetition = 1;
    assert_eq!(run(&[first, second]).len(), 1);
}

#[test]
fn a_reload_or_a_maximum_age_is_silent() {
    assert_eq!(finding(goaways(&[1_999, 2_001, 1_951])), None, "different streams");
    assert_eq!(finding(goaways(&[1_999, 1_999, 1_001, 777])), None, "two of four agree by chance");
    assert!(finding(goaways(&[1_999, 1_999, 1_001])).is_some(), "two of three do not");
}

/// Connections that all ended after 1,000 requests, at these times.
fn ends_at(times: &[u64]) -> Scene {
    let scene = Scene::new(Protocol::H2).connections(times.len() as u32 + 1);
    times.iter().enumerate().fold(scene, |scene, (n, &at)| scene.goaway(n as u32, at, 1_999, 0))
}

#[test]
fn a_reload_that_finds_an_even_load_is_silent() {
    assert_eq!(finding(ends_at(&[1_000, 1_050, 1_020])), None, "one moment: 50 ms");
    assert!(finding(ends_at(&[1_000, 1_051, 1_020])).is_some());
    let first = ends_at(&[1_000, 1_000]).record();
    let mut second = first.clone();
    second.cell.repetition = 1;
    assert_eq!(run(&[first, second]).len(), 1, "in two repetitions it is no reload");
}

#[test]
fn a_maximum_age_that_ends_connections_after_as_many_requests_is_silent() {
    // The last request of each is answered at 900 ms or 1,900 ms; the slack is a quarter of the round trip of 25 ms.
    let ended = |after: u64| {
        let scene = ends_at(&[900 + after, 1_900 + after]);
        finding(scene.request(0, 1_999, 870, 895, 900).request(1, 1_999, 1_870, 1_895, 1_900))
    };
    assert!(ended(0).is_some() && ended(6).is_some());
    assert_eq!(ended(7), None);
}

#[test]
fn an_http1_server_that_closes_after_the_same_number_of_requests_has_a_quota_too() {
    let scene = |gap: u64, second: u32| {
        let mut scene = Scene::new(Protocol::H1s).server_software("Apache/2.4.62 (Debian)");
        for (connection, requests) in [(0, 3), (1, second)] {
            for n in 0..requests {
                let at = 100 + 1_000 * u64::from(connection) + 30 * u64::from(n);
                scene = scene.request(connection, 2 * n + 1, at, at + 25, at + 25);
            }
            let last = 100 + 1_000 * u64::from(connection) + 30 * u64::from(requests - 1) + 25;
            scene = scene.closed_by_server(connection, last + gap);
        }
        scene
    };
    let free = finding(scene(0, 3)).expect("a finding");
    assert!(
        free.fixes.is_empty() && free.cost.ends_with("too little to change a setting for"),
        "{}",
        free.cost
    );
    let found = unmeasured(scene(0, 3)).expect("a finding");
    assert!(found.symptom.contains("2 connections by closing after exactly 3 requests"), "{}", found.symptom);
    assert_eq!(found.fixes[0].setting, "MaxKeepAliveRequests 100000");
    assert_eq!(found.fixes.len(), 1, "more connections help HTTP/2 only");
    assert_eq!(finding(scene(0, 4)), None, "different numbers");
    assert_eq!(finding(scene(60, 3)), None, "an idle timeout");
}

#[test]
fn a_server_that_keeps_no_connection_of_http2_has_a_quota_of_one() {
    assert_eq!(finding(goaways(&[1, 1, 1, 1])), None, "too few");
    assert!(finding(goaways(&[3, 3])).is_some());
    let found = finding(goaways(&[1, 1, 1, 1, 1]).server_software("nginx/1.22.1")).expect("a finding");
    assert!(found.symptom.contains("5 connections by GOAWAY after their only request"), "{}", found.symptom);
    let settings: Vec<&str> = found.fixes.iter().map(|fix| fix.setting.as_str()).collect();
    assert_eq!(settings[..2], ["keepalive_timeout 60s;", "keepalive_requests 100000;"]);
}

#[test]
fn a_product_without_a_known_setting_has_none_and_is_never_given_a_guess() {
    for (software, product, setting) in [
        ("Caddy", "Caddy", "none"),
        ("h2o/2.2.5", "h2o", "none"),
        ("HAProxy/2.6.12", "HAProxy", "none"),
        ("acme/1", "acme/1", "unknown"),
        ("Apache/2.4", "Apache", "none"),
    ] {
        let fix = finding(goaways(&[199, 199]).server_software(software)).unwrap().fixes.remove(0);
        assert_eq!((fix.product.as_str(), fix.setting.as_str()), (product, setting));
        assert!(fix.why.contains("limit of 100"), "{}", fix.why);
    }
    assert_eq!(finding(goaways(&[199, 199])).unwrap().fixes[0].product, "server");
}

#[test]
fn the_settings_of_products_that_we_know_are_named() {
    for (software, setting) in [
        ("envoy", "max_requests_per_connection: 100000"),
        ("HAProxy", "tune.h2.fe.max-total-streams 100000"),
        ("nginx/1.18.0", "http2_max_requests 100000;"),
        ("openresty/1.21.4.1", "keepalive_requests 100000;"),
        ("h2lab/0.1.0", "--max-requests-per-connection 100000"),
    ] {
        assert_eq!(
            finding(goaways(&[199, 199]).server_software(software)).unwrap().fixes[0].setting,
            setting
        );
    }
}

#[test]
fn the_cost_counts_what_waited_was_sent_again_or_lost() {
    let mut record = goaways(&[1_999, 1_999])
        .established(2, 1_040)
        .request(2, 1, 1_040, 1_140, 1_140)
        .request(2, 3, 1_000, 1_100, 1_100)
        .request(2, 5, 2_500, 2_600, 2_600)
        .request(0, 1_999, 990, 1_015, 1_015)
        .record();
    record.connections[2].dialled_at = Time::from_millis(1_000);
    // Due at 1000 ms, when connection 0 ended: one waited 40 ms for the next, one was sent again; one waited later, for something else.
    for sample in record.samples.edit().iter_mut() {
        match (sample.connection, sample.stream.0) {
            (2, 1) => {
                sample.stall_open_ns = 40_000_000;
                sample.scheduled_at = Time::from_millis(1_000);
            }
            (2, 3) => sample.replays = 2,
            (2, 5) => sample.stall_open_ns = 40_000_000,
            (0, 1_999) => sample.outcome = Outcome::GoAway,
            _ => {}
        }
    }
    let finding = run(&[record]).remove(0);
    assert_eq!(
        finding.cost,
        "3 connections opened; requests sent again 2 times, 1 lost; 1 waited 40 ms each on average for a new connection, and \
         those sent again took 75 ms longer in sum (31.5 % of all response time)"
    );
    // Of 100 ms the quickest takes 25 ms, and 40 ms were waiting.
    assert!((finding.cost_share - 115.0 / 365.0).abs() < 1e-9);
}

/// The `last_stream` of a GOAWAY that only announces the end, without naming the last request.
const ANNOUNCEMENT: u32 = 0x7fff_ffff;

/// Connections of a server that only announces ends. For each: how many requests were sent, how many of them had been
/// answered by the end, and the age of the connection in ms. All requests are sent 1 ms before the end.
fn announced(connections: &[(u32, u32, u64)]) -> Scene {
    let mut scene = Scene::new(Protocol::H2).connections(connections.len() as u32 + 1);
    for (index, &(begun, answered, age)) in (0..).zip(connections) {
        let end = 10_000 * (u64::from(index) + 1);
        for n in 0..begun {
            let answered_at = if n < answered { end } else { end + 20 };
            scene = scene.request(index, 2 * n + 1, end - 1, answered_at, answered_at);
        }
        scene = scene.goaway(index, end, ANNOUNCEMENT, 0).established(index, end - age);
    }
    scene.server_software("envoy")
}

#[test]
fn a_server_that_only_announces_ends_has_the_quota_that_all_of_them_allow() {
    let found = unmeasured(announced(&[(27, 17, 100), (20, 11, 120), (25, 16, 140)])).expect("a finding");
    assert_eq!(
        found.symptom,
        "the server ended 3 connections by GOAWAY after between 17 and 20 requests each; 4 were opened"
    );
    assert_eq!((found.evidence[0].value, found.evidence[1].value), (20.0, 17.0));
    assert_eq!(found.confidence, Confidence::Inferred);
    assert_eq!(found.fixes[0].setting, "max_requests_per_connection: 100000");
    assert!(
        found.fixes[0].why.starts_with("connections end after between 17 and 20 requests here; "),
        "{}",
        found.fixes[0].why
    );
}

#[test]
fn a_range_of_a_twentieth_is_reported_as_a_number() {
    let rendered = |answered| {
        let ends = [(40, answered, 100), (45, 20, 120), (50, 20, 140)];
        finding(announced(&ends)).expect("a finding").symptom
    };
    assert!(rendered(38).contains("after about 40 requests each"), "{}", rendered(38));
    assert!(rendered(37).contains("after between 37 and 40 requests each"), "{}", rendered(37));
}

#[test]
fn announced_ends_that_do_not_meet_are_too_few_or_too_wide_say_nothing() {
    let third =
        |begun, answered, age| finding(announced(&[(27, 17, 100), (20, 11, 120), (begun, answered, age)]));
    assert!(third(30, 20, 140).is_some(), "20 fits all three");
    assert_eq!(third(30, 21, 140), None, "only two agree");
    assert_eq!(finding(announced(&[(27, 17, 100), (20, 11, 120)])), None, "two are too few");
    let wide = |answered| finding(announced(&[(20, answered, 100), (25, 9, 120), (30, 9, 140)]));
    assert!(wide(10).is_some());
    assert_eq!(wide(9), None, "more than half of 20 is open");
}

#[test]
fn announced_ends_after_equal_lifetimes_are_a_maximum_age() {
    let of = |age| finding(announced(&[(27, 17, 100), (20, 11, 102), (25, 16, age)]));
    assert_eq!(of(105), None);
    assert!(of(106).is_some());
}

#[test]
fn dials_that_carried_nothing_are_reported_with_who_made_them() {
    let scene = |dialled: &[u64]| {
        let mut record = ends_at(&[1_000, 2_000]).connections(3 + dialled.len() as u32).record();
        for connection in &mut record.connections[..3] {
            connection.requests = 1_000;
        }
        for (connection, &at) in record.connections[3..].iter_mut().zip(dialled) {
            (connection.dialled_at, connection.ready_at) = (Time::from_millis(at), Time::from_millis(at + 1));
        }
        run(&[record]).remove(0)
    };
    let found = scene(&[999, 1_000, 2_001]);
    assert!(
        found
            .symptom
            .ends_with("6 were opened, 2 of which carried no request: each waiting caller dialled its own"),
        "{}",
        found.symptom
    );
    assert!(found.fixes[1].setting.contains("single-flight"));
    let spare = scene(&[1_000]);
    assert!(spare.symptom.ends_with("4 were opened, 1 of which carried no request"), "{}", spare.symptom);
    assert!(spare.fixes.iter().all(|fix| !fix.setting.contains("single-flight")), "fewer than ends");
    let none = scene(&[999]);
    assert!(none.symptom.ends_with("4 were opened"), "the one was there before: {}", none.symptom);
    assert_eq!(none.fixes.len(), 2);
}

#[test]
fn sending_again_is_advised_where_requests_were_lost() {
    let advised = |outcome| {
        let mut record = ends_at(&[1_000, 2_000]).request(0, 2_001, 990, 995, 1_000).record();
        record.samples.edit()[0].outcome = outcome;
        run(&[record]).remove(0).fixes.iter().any(|fix| fix.setting.starts_with("send again"))
    };
    assert!(advised(Outcome::GoAway) && !advised(Outcome::Succeeded));
}

#[test]
fn lost_is_what_failed_by_the_end_and_nothing_else() {
    let lost = |outcome, completed: u64, connection: u32| {
        let mut record = ends_at(&[1_000, 2_000]).request(connection, 2_001, 990, 995, completed).record();
        record.samples.edit()[0].outcome = outcome;
        let cost = run(&[record]).remove(0).cost;
        cost.contains(", 1 lost;")
    };
    assert!(lost(Outcome::Refused, 1_000, 0) && lost(Outcome::Closed, 1_010, 0));
    assert!(lost(Outcome::Reset, 1_000, 0) && !lost(Outcome::Reset, 999, 0));
    assert!(!lost(Outcome::Closed, 1_010, 2), "a connection that nobody ended");
    assert!(!lost(Outcome::Timeout, 1_010, 0) && !lost(Outcome::Status, 1_010, 0));
}

#[test]
fn the_setting_is_that_of_the_proxy_that_we_started_and_not_of_its_upstream() {
    let mut record = goaways(&[199, 199]).server_software("h2lab").record();
    record.cell.target = Target::Sut { name: "haproxy".to_owned() };
    let found = run(&[record]).remove(0);
    assert_eq!(found.fixes[0].setting, "tune.h2.fe.max-total-streams 100000");
}

#[test]
fn the_setting_is_that_of_the_sidecar_that_ends_the_clients_connections() {
    let mut record = goaways(&[199, 199]).server_software("nginx/1.22.1").record();
    record.cell.sidecar = Some(Sidecar { name: "envoy".to_owned(), warm_pool: 1, max_connections: 1 });
    let found = run(&[record]).remove(0);
    assert_eq!(found.fixes[0].setting, "max_requests_per_connection: 100000");
    assert!(found.confirm.contains("ends connections of envoy"), "{}", found.confirm);
}

/// Connections that the server ended at these ages in ms, one after the other, each after the given number of requests.
fn aged(ends: &[(u64, u32)]) -> Scene {
    let scene = Scene::new(Protocol::H2).connections(ends.len() as u32 + 1).server_software("nginx/1.22.1");
    let mut at = 0;
    (0..).zip(ends).fold(scene, |scene, (n, &(age, requests))| {
        let begin = at;
        at += age + 100;
        scene.established(n, begin).goaway(n, begin + age, 2 * requests - 1, 0)
    })
}

#[test]
fn equal_lifetimes_with_as_many_requests_may_be_an_age_and_that_is_told() {
    // 200 requests in 2 s are one in 10 ms, with which a server notices that the age is reached; 1 % of 2 s is 20 ms:
    // 30 ms in total.
    let found = finding(aged(&[(2_000, 200), (2_010, 200), (2_020, 200)])).expect("a finding");
    assert_eq!(
        found.symptom,
        "the server ended 3 connections by GOAWAY after exactly 200 requests each, at an age of 2.02 s: a limit \
         of requests or of age: at an even rate both look alike; 4 were opened"
    );
    assert_eq!(found.confidence, Confidence::Inferred);
    let settings: Vec<&str> = found.fixes.iter().map(|fix| fix.setting.as_str()).collect();
    assert_eq!(settings[..2], ["keepalive_requests 100000;", "keepalive_time 3600s;"]);
    assert!(found.confirm.contains("at half the rate"), "{}", found.confirm);
    let apart = finding(aged(&[(2_000, 200), (2_010, 200), (2_032, 200)])).expect("a finding");
    assert_eq!(apart.confidence, Confidence::Observed, "{}", apart.symptom);
    let short = finding(aged(&[(499, 200), (499, 200), (500, 200)])).expect("a finding");
    assert_eq!(short.confidence, Confidence::Observed, "no maximum age is so short");
}

#[test]
fn equal_lifetimes_with_other_numbers_of_requests_are_a_maximum_age() {
    assert_eq!(finding(aged(&[(2_000, 200), (2_005, 200), (2_010, 201)])), None);
    assert!(finding(aged(&[(1_000, 200), (2_005, 200), (3_010, 201)])).is_some(), "the lifetimes differ");
}

#[test]
fn a_connection_that_took_requests_at_a_greater_age_rules_a_maximum_age_out() {
    let with = |sent: u64| {
        let scene = aged(&[(2_000, 200), (2_010, 200), (2_020, 200)]);
        finding(scene.request(3, 1, sent, sent + 20, sent + 20)).expect("a finding").confidence
    };
    assert_eq!(with(2_050), Confidence::Inferred);
    assert_eq!(with(2_051), Confidence::Observed);
}

#[test]
fn where_several_requests_were_in_flight_the_limit_is_a_range() {
    // The last five of 310 requests were sent together. The server may have ended the connection for any of them, also
    // for one that was answered before the GOAWAY.
    let scene = goaways(&[619, 619]).server_software("nginx/1.22.1");
    let scene = [0, 1].into_iter().fold(scene, |scene, connection| {
        let end = 1_000 * (u64::from(connection) + 1);
        (306..=310).fold(scene, |scene, n| {
            let answered = if n == 306 { end - 1 } else { end + 20 };
            scene.request(connection, 2 * n - 1, end - 30, answered, answered)
        })
    });
    let found = unmeasured(scene).expect("a finding");
    assert!(found.symptom.contains("by GOAWAY after 306 to 310 requests each"), "{}", found.symptom);
    assert!(found.fixes[0].why.contains("after 306 to 310 requests"), "{}", found.fixes[0].why);
    assert_eq!(found.confidence, Confidence::Observed);
}

#[test]
fn requests_that_came_one_by_one_leave_no_doubt_which_was_the_last() {
    let after = |apart: u64| {
        let scene = [0, 1].into_iter().fold(goaways(&[619, 619]), |scene, connection| {
            let end = 1_000 * (u64::from(connection) + 1);
            (306..=310).fold(scene, |scene, n: u32| {
                let sent = end - 30 - u64::from(310 - n) * apart;
                scene.request(connection, 2 * n - 1, sent, sent + 25, sent + 25)
            })
        });
        finding(scene).expect("a finding").symptom
    };
    assert!(after(2).contains("after exactly 310 requests"), "{}", after(2));
    assert!(
        after(1).contains("after 309 to 310 requests"),
        "the last two may have come together: {}",
        after(1)
    );
}

#[test]
fn many_that_end_at_one_moment_after_just_as_many_may_be_a_quota_and_that_is_told() {
    let at_once = |times: &[u64]| finding(ends_at(times));
    let found = at_once(&[1_000, 1_010, 1_020, 1_030]).expect("a finding");
    assert!(
        found.symptom.contains("all at one moment: a limit of requests, or a restart"),
        "{}",
        found.symptom
    );
    assert_eq!(found.confidence, Confidence::Inferred);
    assert!(found.confirm.contains("for longer"), "{}", found.confirm);
    assert_eq!(at_once(&[1_000, 1_010, 1_020]), None, "three may be chance");
    assert_eq!(
        finding(ends_at(&[1_000, 1_010, 1_020, 1_030]).goaway(4, 1_015, 2_001, 0)),
        None,
        "one differs"
    );
}

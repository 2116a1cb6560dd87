//! What is said of a quota, what it costs, and which setting is its fix. When there is one: see `views::quota`.

use crate::diagnose::Confidence::{self, Inferred, Observed};
use crate::diagnose::testing::{self, Scene, says};
use crate::diagnose::{Finding, run};
use h2lab_base::units::Time;
use h2lab_model::record::{CellRecord, Outcome};
use h2lab_model::scenario::{Cell, Change, Sidecar, Target};
use h2lab_model::settings::Knob;

fn found(record: CellRecord) -> Finding {
    testing::found("CONN101", record).expect("a finding")
}

fn settings(found: &Finding) -> Vec<&str> {
    found.fixes.iter().map(|fix| fix.setting.as_str()).collect()
}

/// Connections that ended at these times, each after so many requests, and one more.
fn ended(times: &[u64], requests: u32) -> Scene {
    Scene::ended(times.iter().map(|&at| (0, at, requests)))
}

/// The same with ages of 2 s.
fn aged() -> Scene {
    Scene::ended([0, 10_000, 20_000].map(|begin| (begin, begin + 2_000, 200)))
}

/// Checks the symptom, the first fix and the experiment, where nothing is known of the cost: it has fixes nevertheless.
fn check(scene: Scene, software: &str, confidence: Confidence, expected: &str) -> Finding {
    let mut record = scene.server_software(software).record();
    record.samples.edit().iter_mut().for_each(|sample| sample.measured = false);
    let found = found(record);
    says(&format!("{}\n{}\n{}", found.symptom, found.fixes[0].line(), found.confirm), expected);
    assert_eq!(found.confidence, confidence, "{}", found.symptom);
    found
}

#[test]
fn what_is_known_of_the_quota_is_told_with_what_is_to_be_set() {
    let nginx = "nginx/1.22.1";
    check(
        ended(&[1_000, 2_000], 1_000),
        nginx,
        Observed,
        "the server ended 2 connections by GOAWAY after exactly 1,000 requests each; 3 were opened\n\
         nginx: keepalive_requests 100000; - connections end after 1000 requests here; …",
    );
    let only = "…5 connections by GOAWAY after their only request…: keepalive_timeout 60s; - …";
    let at_once = Scene::ended([1_000, 2_000, 3_000, 4_000, 5_000].map(|at| (at - 30, at, 1)));
    check(at_once, nginx, Observed, only);
    let by_range = "the server ended 3 connections by GOAWAY after between 17 and 20 requests each; 4 were opened\n\
                    Envoy: max_requests_per_connection: 100000 - connections end after between 17 and 20 requests here; …";
    check(Scene::announced(&[(27, 17, 100), (20, 11, 120), (25, 16, 140)]), "envoy", Inferred, by_range);
    let at_once = "…all at one moment: a limit of requests, or a restart…\n…for longer…";
    check(ended(&[1_000, 1_010, 1_020, 1_030], 1_000), nginx, Inferred, at_once);
    let of_age = "the server ended 3 connections by GOAWAY after exactly 200 requests each, at an age of 2 s: a limit \
                  of requests or of age: at an even rate both look alike; 4 were opened\n…at half the rate…";
    check(aged(), nginx, Inferred, of_age);
    // The last two of four requests on each connection came together.
    let in_flight = [0, 1].into_iter().fold(ended(&[1_000, 2_000], 4), |scene, n| {
        let sent = 970 + 1_000 * u64::from(n);
        scene.request(n, 5, sent, sent + 50, sent + 50).request(n, 7, sent, sent + 50, sent + 50)
    });
    check(
        in_flight,
        nginx,
        Observed,
        "…by GOAWAY after 3 to 4 requests each…end after 3 to 4 requests here; …",
    );
    let closing = "…2 connections by closing after exactly 138 requests each…: MaxKeepAliveRequests 100000 - connections \
                   end after 138 requests here, which is 137 written; …it lets through 1 more than is written…";
    let closing = check(Scene::closed(0, [138, 138]), "Apache/2.4.71", Observed, closing);
    assert_eq!(closing.fixes.len(), 1, "more connections help HTTP/2 only");
    let as_written = "…after exactly 138 requests each…- connections end after 138 requests here; …";
    check(Scene::closed(0, [138, 138]), "nginx/1.27.0", Observed, as_written);
}

#[test]
fn the_evidence_is_the_number_its_least_where_that_is_lower_and_how_many_ended_after_it() {
    let numbers = |scene: Scene| {
        let found = found(scene.record());
        found.evidence.iter().take(4).map(|one| one.value as u32).collect::<Vec<_>>()
    };
    assert_eq!(numbers(ended(&[1_000, 2_000], 1_000)), [1_000, 2, 2, 3], "the last are those opened");
    assert_eq!(numbers(Scene::announced(&[(27, 17, 100), (20, 11, 120), (25, 16, 140)])), [20, 17, 3, 3]);
}

#[test]
fn an_end_that_costs_nothing_needs_no_setting_and_one_with_two_explanations_has_two() {
    let free = found(Scene::closed(0, [3, 3]).record());
    assert!(free.fixes.is_empty());
    says(&free.cost, "…too little to change a setting for");
    let first_two = |scene: Scene| {
        let found = found(scene.server_software("nginx/1.22.1").record());
        settings(&found)[..2].iter().map(|setting| (*setting).to_owned()).collect::<Vec<_>>()
    };
    let single = ended(&[1_000, 2_000, 3_000, 4_000, 5_000], 1);
    assert_eq!(first_two(single), ["keepalive_timeout 60s;", "keepalive_requests 100000;"]);
    assert_eq!(first_two(aged()), ["keepalive_requests 100000;", "keepalive_time 3600s;"]);
}

/// The settings and reasons of the first two fixes where connections of nginx end after so many requests.
fn first_two_of(requests: u32, start: impl Fn(&mut Cell)) -> Vec<(String, String)> {
    let scene = Scene::ended([1_000, 2_000, 3_000, 4_000, 5_000].map(|at| (at - 30, at, requests)));
    let mut record = scene.server_software("nginx/1.22.1").record();
    start(&mut record.cell);
    let fixes = found(record).fixes.into_iter().take(2);
    let reason = |why: &str| why.split("; ").next().unwrap_or_default().to_owned();
    fixes.map(|fix| (fix.setting, reason(&fix.why))).collect()
}

#[test]
fn of_two_settings_that_end_connections_after_one_request_the_more_usual_one_is_to_be_looked_for_first() {
    let of_one = first_two_of(1, |_| {});
    let [idle, limit] = &of_one[..] else { panic!("{of_one:?}") };
    assert_eq!(idle.0, "keepalive_timeout 60s;");
    assert_eq!(idle.1, super::FIRST);
    assert_eq!(limit.0, "keepalive_requests 100000;");
    assert_eq!(limit.1, "if the idle timeout is not 0, this is 1");
    let of_two = first_two_of(2, |_| {});
    assert_eq!(of_two[0].0, "keepalive_requests 100000;", "only a limit ends them after two");
    assert!(of_two.iter().all(|(setting, _)| !setting.contains("keepalive_timeout")));
}

#[test]
fn where_it_is_known_which_of_two_settings_it_is_only_that_one_is_named() {
    let started = |config: Option<&str>, changed: &[Knob]| {
        first_two_of(1, |cell| {
            cell.target = Target::Sut { name: "nginx".to_owned() };
            cell.setup.config = config.map(str::to_owned);
            cell.setup.changes = changed.iter().map(|&knob| Change { knob, value: Some(100_000) }).collect();
        })
    };
    let names = |config, changed: &[Knob]| -> Vec<bool> {
        let settings = started(config, changed);
        ["keepalive_timeout", "keepalive_requests"]
            .map(|name| settings.iter().any(|(setting, _)| setting.starts_with(name)))
            .to_vec()
    };
    assert_eq!(names(Some("nginx.conf"), &[]), [true, true], "nobody knows what it says");
    assert_eq!(names(None, &[]), [false, true], "ours keeps idle connections open");
    assert_eq!(names(Some("nginx.conf"), &[Knob::H2IdleTimeout]), [false, true]);
    assert_eq!(names(Some("nginx.conf"), &[Knob::H2Requests]), [true, false]);
    assert_eq!(started(Some("nginx.conf"), &[Knob::H2Requests])[0].1, super::SINGLE);
    assert_eq!(started(None, &[])[0].1, super::SINGLE);
}

#[test]
fn where_no_request_is_answered_a_limit_of_requests_is_no_cause() {
    let with = |answered: usize| {
        let scene = ended(&[1_000, 2_000], 1_000).request(0, 1_997, 985, 995, 1_000);
        let mut record = scene.request(0, 1_999, 990, 995, 1_000).record();
        for sample in record.samples.edit().iter_mut().skip(answered) {
            (sample.outcome, sample.status, sample.first_byte_at) = (Outcome::Reset, 0, Time::NEVER);
        }
        testing::found("CONN101", record).is_some()
    };
    assert!(with(1) && !with(0));
}

#[test]
fn ends_in_two_repetitions_state_it_together_and_are_no_reload() {
    for scene in [ended(&[1_000], 1_000), ended(&[1_000, 1_000], 1_000)] {
        let first = scene.record();
        let mut second = first.clone();
        second.cell.repetition = 1;
        assert_eq!(run(&[first, second]).len(), 1);
    }
}

#[test]
fn settings_of_products_that_we_know_are_named_and_of_others_none_is_guessed() {
    for (software, product, setting) in [
        ("Caddy", "Caddy", "none"),
        ("h2o/2.2.5", "h2o", "none"),
        ("HAProxy/2.6.12", "HAProxy", "none"),
        ("acme/1", "acme/1", "unknown"),
        ("Apache/2.4", "Apache", "none"),
        ("envoy", "Envoy", "max_requests_per_connection: 100000"),
        ("HAProxy", "HAProxy", "tune.h2.fe.max-total-streams 100000"),
        ("nginx/1.18.0", "nginx", "http2_max_requests 100000;"),
        ("openresty/1.21.4.1", "nginx", "keepalive_requests 100000;"),
        ("h2lab/0.1.0", "h2lab", "--max-requests-per-connection 100000"),
    ] {
        let fix = found(ended(&[1_000, 2_000], 100).server_software(software).record()).fixes.remove(0);
        assert_eq!((fix.product.as_str(), fix.setting.as_str()), (product, setting));
        assert!(fix.has_setting() || fix.why.contains("limit of 100"), "{}", fix.why);
    }
    assert_eq!(found(ended(&[1_000, 2_000], 100).record()).fixes[0].product, "server");
}

#[test]
fn the_setting_is_that_of_what_we_started_before_the_server() {
    let front = |software: &str, start: fn(&mut Cell)| {
        let mut record = ended(&[1_000, 2_000], 100).server_software(software).record();
        start(&mut record.cell);
        found(record)
    };
    let proxy = front("h2lab", |cell| cell.target = Target::Sut { name: "haproxy".to_owned() });
    assert_eq!(settings(&proxy)[0], "tune.h2.fe.max-total-streams 100000");
    let sidecar = front("nginx/1.22.1", |cell| {
        cell.sidecar = Some(Sidecar { name: "envoy".to_owned(), warm_pool: 1, max_connections: 1 });
    });
    assert_eq!(settings(&sidecar)[0], "max_requests_per_connection: 100000");
    says(&sidecar.confirm, "…ends connections of envoy…");
}

#[test]
fn the_cost_counts_what_waited_was_sent_again_or_lost() {
    let mut record = ended(&[1_000, 2_000], 1_000)
        .dialled(2, 1_000, 1_040)
        .waited(2, 1, [1_000, 1_040, 1_140])
        .request(2, 3, 1_000, 1_100, 1_100)
        .request(2, 5, 2_500, 2_600, 2_600)
        .request(0, 1_999, 990, 1_015, 1_015)
        .record();
    // When connection 0 ended, one waited 40 ms for the next, one was sent again; one waited later, for something else.
    for sample in record.samples.edit().iter_mut() {
        match (sample.connection, sample.stream.0) {
            (2, 3) => sample.replays = 2,
            (2, 5) => sample.stall_open_ns = 40_000_000,
            (0, 1_999) => sample.outcome = Outcome::GoAway,
            _ => {}
        }
    }
    let found = found(record);
    assert_eq!(
        found.cost,
        "3 connections opened; requests sent again 2 times, 1 lost; 1 waited 40 ms each on average for a new connection, and \
         those sent again took 75 ms longer in sum (31.5 % of all response time)"
    );
    // Of 100 ms the quickest takes 25 ms, and 40 ms were waiting.
    assert!((found.cost_share - 115.0 / 365.0).abs() < 1e-9);
}

#[test]
fn dials_that_carried_nothing_are_reported_with_who_made_them() {
    let each = ", 2 of which carried no request: each waiting caller dialled its own";
    for (dialled, useless, why) in [
        (&[999, 1_000, 2_001][..], each, "one for each end"),
        (&[1_000][..], ", 1 of which carried no request", "fewer than ends"),
        (&[999][..], "", "it was there before"),
    ] {
        let dials = (3..).zip(dialled);
        let scene = dials.fold(ended(&[1_000, 2_000], 1_000), |scene, (n, &at)| scene.dialled(n, at, at + 1));
        let mut record = scene.record();
        record.connections[..3].iter_mut().for_each(|one| one.requests = 1_000);
        let found = found(record);
        says(&found.symptom, &format!("…; {} were opened{useless}", 3 + dialled.len()));
        assert_eq!(settings(&found)[1].contains("single-flight"), useless == each, "{why}");
        assert_eq!(found.fixes.len(), 2 + usize::from(useless == each), "{why}");
    }
}

#[test]
fn lost_is_what_failed_by_the_end_and_nothing_else_and_only_that_is_to_be_sent_again() {
    for (outcome, completed, connection, is_lost) in [
        (Outcome::GoAway, 1_000, 0, true),
        (Outcome::Refused, 1_000, 0, true),
        (Outcome::Closed, 1_010, 0, true),
        (Outcome::Closed, 1_010, 2, false), // nobody ended that connection
        (Outcome::Reset, 1_000, 0, true),
        (Outcome::Reset, 999, 0, false),
        (Outcome::Timeout, 1_010, 0, false),
        (Outcome::Status, 1_010, 0, false),
        (Outcome::Succeeded, 1_000, 0, false),
    ] {
        let scene = ended(&[1_000, 2_000], 1_000).request(connection, 2_001, 990, 995, completed);
        let mut record = scene.record();
        record.samples.edit()[0].outcome = outcome;
        let found = found(record);
        assert_eq!(found.cost.contains(", 1 lost;"), is_lost, "{outcome:?}: {}", found.cost);
        let again = settings(&found).iter().any(|setting| setting.starts_with("send again"));
        assert_eq!(again, is_lost, "{outcome:?}");
    }
}

//! Proxies that end connections after a number of requests: short versions of the shipped scenarios, run by the binary.
//!
//! Everything asserted is a count that does not depend on the machine's speed: for any number of requests, a certain
//! number of connections must have been opened.

use serde_json::Value;

use crate::support::{DRAIN, h2lab, need, workspace};

/// A limit that is reached many times within the three seconds that a cell is measured, on any machine.
const LIMIT: u64 = 20;
/// A limit that is not reached.
const NO_LIMIT: &str = "1000000";
/// Requests in flight.
const CONCURRENCY: u64 = 10;

/// A proxy, the scenario that ships for it, and what its limit is called.
struct Proxy {
    name: &'static str,
    scenario: &'static str,
    setting: &'static str,
    /// The program in `tests/needs.toml`.
    program: &'static str,
}

const NGINX: Proxy = Proxy {
    name: "nginx-proxy",
    scenario: "keepalive-requests.toml",
    setting: "keepalive_requests",
    program: "nginx",
};

const ENVOY: Proxy = Proxy {
    name: "envoy",
    scenario: "keepalive-requests-envoy.toml",
    setting: "max_requests_per_connection",
    program: "envoy",
};

impl Proxy {
    /// Runs its scenario, made short, and changed by `more`.
    ///
    /// There is no warm-up, so that the requests that are counted are all that were sent.
    #[track_caller]
    fn run(&self, more: &[&str]) -> Vec<Value> {
        let scenario = workspace().join("scenarios").join(self.scenario);
        let scenario = scenario.to_str().expect("the workspace's path is UTF-8").to_owned();
        let concurrency = format!("--concurrency={CONCURRENCY}");
        let short = [
            "run",
            &scenario,
            "--json",
            "--out=run",
            "-z=3s",
            "--warmup=0s",
            "--repetitions=1",
            // CONN101 counts ends that follow the last request within a quarter of a round trip, which is long enough
            // for a busy machine.
            "--delay=25ms",
            DRAIN,
            &concurrency,
        ];
        let finished = h2lab(&[&short[..], more].concat());
        // A machine that is busy with other tests is late: its figures are doubtful, but its counts are right.
        finished.assert_measured();
        let document = finished.json();
        document["cells"].as_array().expect("cells is a list").clone()
    }
}

/// The cells of HTTP/2 at `target` under `limit`.
fn cells<'a>(cells: &'a [Value], target: &str, limit: Option<u64>) -> Vec<&'a Value> {
    let fits =
        |cell: &&Value| cell["target"] == target && cell["max_requests_per_connection"] == Value::from(limit);
    let found: Vec<&Value> = cells.iter().filter(fits).collect();
    assert!(!found.is_empty(), "no cell at {target} with {limit:?}: {cells:#?}");
    found
}

fn number(cell: &Value, path: &str) -> u64 {
    cell.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} of {cell:#}"))
}

/// The finding of the rule about limits, if there is one.
fn finding(cell: &Value) -> Option<&Value> {
    cell["findings"]
        .as_array()
        .expect("findings is a list")
        .iter()
        .find(|finding| finding["rule"] == "CONN101")
}

/// Whether the report says that the machine was too busy: the generator was late, or the cell is invalid.
fn is_disturbed(cell: &Value) -> bool {
    if cell["state"] == "invalid" {
        return true;
    }
    let reasons = cell["reasons"].as_array().expect("reasons is a list");
    reasons.iter().any(|reason| reason.as_str().is_some_and(|reason| reason.contains("generator was late")))
}

/// How many connections were still being dialled when the work ended, connected by TCP or not.
fn not_established(cell: &Value) -> u64 {
    let closed = cell["connections_closed"].as_array().expect("connections_closed is a list");
    closed.iter().filter(|end| end["reason"] == "not-established").map(|end| number(end, "/count")).sum()
}

/// The effect that the limit must have on HTTP/2 and on nothing else. `most`: the requests that a connection may carry
/// under it.
#[track_caller]
fn check(proxy: &Proxy, most: u64) {
    if need(proxy.program).is_none() {
        return;
    }
    let limits = format!("--max-requests-per-connection={NO_LIMIT},{LIMIT}");
    let all = proxy.run(&["--proto=h2", &limits]);
    for cell in &all {
        let requests = |which: &str| number(cell, &format!("/requests/{which}"));
        assert!(requests("sent") > 3 * most, "too few to tell: {cell:#}");
        assert_eq!((requests("failed"), requests("unfinished")), (0, 0), "nothing is lost: {cell:#}");
    }
    let direct = cells(&all, "origin", None);
    let free = cells(&all, proxy.name, NO_LIMIT.parse().ok());
    for cell in direct.into_iter().chain(free) {
        assert_eq!(number(cell, "/connections_opened"), 1, "{cell:#}");
        assert!(finding(cell).is_none(), "it is not this hop, or there is no limit: {cell:#}");
    }
    for cell in cells(&all, proxy.name, Some(LIMIT)) {
        limited(proxy, most, cell);
    }
}

/// Checks a cell whose connections reach the limit.
#[track_caller]
fn limited(proxy: &Proxy, most: u64, cell: &Value) {
    let (sent, opened) = (number(cell, "/requests/sent"), number(cell, "/connections_opened"));
    let asked = opened - number(cell, "/useless_dials");
    // The work may end while dials are under way: connections that TCP had established, but not TLS, carried nothing.
    let used = asked.saturating_sub(not_established(cell))..=asked;
    // The last connection may have reached its limit with the very last requests, which the client cannot know to be
    // the last.
    let needed = sent.div_ceil(most)..=sent / LIMIT + 1;
    assert!(
        used.start() <= needed.end() && used.end() >= needed.start(),
        "{used:?} connections for {sent}: {cell:#}"
    );
    if cell["dial_policy"] == "single-flight" {
        assert!(number(cell, "/useless_dials") <= 1, "a dial serves all that wait: {cell:#}");
    }
    let Some(finding) = finding(cell) else {
        // The rule needs ends that follow the last request at once, which a busy generator does not see.
        assert!(is_disturbed(cell), "CONN101 is silent: {cell:#}");
        return;
    };
    let report = finding["evidence"][0]["value"].as_f64().expect("a number");
    assert!((LIMIT as f64..=most as f64).contains(&report), "{finding:#}");
    let settings: Vec<&str> =
        finding["fixes"].as_array().unwrap().iter().filter_map(|fix| fix["setting"].as_str()).collect();
    assert!(settings.iter().any(|setting| setting.contains(proxy.setting)), "{finding:#}");
}

#[test]
fn nginx_takes_just_so_many_requests_on_a_connection_and_none_is_lost() {
    check(&NGINX, LIMIT);
}

#[test]
fn envoy_takes_what_is_on_its_way_besides_and_none_is_lost() {
    check(&ENVOY, LIMIT + CONCURRENCY);
}

#[test]
fn http1_through_the_same_proxies_loses_nothing_either() {
    for proxy in [NGINX, ENVOY] {
        if need(proxy.program).is_none() {
            continue;
        }
        let limit = format!("--max-requests-per-connection={LIMIT}");
        for cell in proxy.run(&["--proto=h1s", "--dial-policy=single-flight", &limit]) {
            let requests = |which: &str| number(&cell, &format!("/requests/{which}"));
            assert_eq!((requests("failed"), requests("replayed")), (0, 0), "{cell:#}");
            if cell["target"] == "origin" {
                assert!(finding(&cell).is_none(), "{cell:#}");
            } else {
                let used = number(&cell, "/connections_opened") - number(&cell, "/useless_dials");
                assert!(used >= requests("sent").div_ceil(LIMIT), "{cell:#}");
            }
        }
    }
}

#[test]
fn what_nginx_refuses_is_lost_where_nothing_is_sent_again() {
    if need(NGINX.program).is_none() {
        return;
    }
    // Not a multiple of the concurrency: otherwise all requests of a round would go to one connection, and none would
    // be refused.
    let limit = format!("--max-requests-per-connection={}", LIMIT - 3);
    for cell in NGINX.run(&["--origin=nginx-proxy", "--proto=h2", "--no-replay", &limit]) {
        assert!(number(&cell, "/requests/failed") > 0, "{cell:#}");
        assert_eq!(number(&cell, "/requests/replayed"), 0, "{cell:#}");
        let kinds: Vec<&Value> =
            cell["errors"].as_array().unwrap().iter().map(|error| &error["kind"]).collect();
        assert!(
            kinds.iter().all(|kind| ["go-away", "refused"].contains(&kind.as_str().unwrap())),
            "{kinds:?}"
        );
    }
}

#[test]
fn envoy_announces_the_end_so_that_nothing_is_lost_even_where_nothing_is_sent_again() {
    if need(ENVOY.program).is_none() {
        return;
    }
    let limit = format!("--max-requests-per-connection={LIMIT}");
    for cell in ENVOY.run(&["--origin=envoy", "--proto=h2", "--no-replay", &limit]) {
        assert_eq!(number(&cell, "/requests/failed"), 0, "{cell:#}");
    }
}

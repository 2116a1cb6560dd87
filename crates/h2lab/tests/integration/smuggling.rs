//! `h2lab probe smuggling`: real proxies, configured to be safe and not.

use std::net::TcpListener;
use std::path::Path;

use serde_json::Value;

use crate::support::{Finished, folder, h2lab, need, run_program};

/// Runs the probe on a fixture.
#[track_caller]
fn probe(fixture: &str, more: &[&str]) -> Value {
    let arguments = ["probe", "smuggling", "--json", "--fixture", fixture];
    let finished = h2lab(&[&arguments, more].concat());
    assert_eq!(finished.code, Some(0), "{}", finished.transcript());
    finished.json()
}

/// The checks with this id.
fn checks<'a>(report: &'a Value, id: &str) -> Vec<&'a Value> {
    let all = report["checks"].as_array().expect("a list");
    let found: Vec<&Value> = all.iter().filter(|check| check["id"] == id).collect();
    assert!(!found.is_empty(), "no {id}: {report:#}");
    found
}

/// The cases of `id` with this verdict.
fn cases(report: &Value, id: &str, verdict: &str) -> Vec<String> {
    let has = |check: &&&Value| check["verdict"] == verdict;
    let case = |check: &&Value| check["case"].as_str().unwrap_or_default().to_owned();
    checks(report, id).iter().filter(has).map(case).collect()
}

/// Fails unless nothing leads through the proxy.
#[track_caller]
fn assert_clean(fixture: &str, report: &Value) {
    for id in ["SMUG101", "SMUG102", "SMUG104"] {
        assert_eq!(cases(report, id, "fail"), [""; 0], "{fixture} {id}: {report:#}");
        assert_eq!(cases(report, id, "undecided"), [""; 0], "{fixture} {id}: {report:#}");
    }
}

const UPGRADE: &[&str] = &["--upgrade-only"];

#[test]
fn haproxy_of_debian_is_vulnerable_by_default_and_not_with_the_fix() {
    let Some(_) = need("haproxy") else { return };
    let report = probe("haproxy-default", UPGRADE);
    let strict = cases(&report, "SMUG101", "fail");
    assert!(strict.contains(&"both-tokens".to_owned()) && strict.contains(&"split".to_owned()), "{strict:?}");
    assert!(cases(&report, "SMUG102", "fail").contains(&"no-settings".to_owned()), "{report:#}");
    let found = checks(&report, "SMUG101").into_iter().find(|check| check["case"] == "both-tokens").unwrap();
    assert_eq!(found["severity"], "critical");
    assert!(found["summary"].as_str().unwrap().contains("/forbidden"), "{found:#}");
    assert_eq!(found["fix"][0]["product"], "haproxy", "{found:#}");
    let evidence = found["evidence"].to_string();
    assert!(evidence.contains("HTTP/1.1 101") && evidence.contains("SETTINGS[0]"), "{evidence}");
    assert!(evidence.to_lowercase().contains("upgrade: h2c"), "{evidence}");
    assert_clean("haproxy-fixed", &probe("haproxy-fixed", UPGRADE));
}

#[test]
fn nginx_is_clean_by_default_and_with_a_map_but_not_with_the_recipes_for_websocket() {
    let Some(_) = need("nginx") else { return };
    for fixture in ["nginx-default", "nginx-mapped"] {
        let report = probe(fixture, UPGRADE);
        assert_clean(fixture, &report);
        assert_eq!(checks(&report, "SMUG103")[0]["verdict"], "pass", "{report:#}");
        assert!(!cases(&report, "SMUG101", "ignored").is_empty(), "{report:#}");
    }
    let report = probe("nginx-websocket", UPGRADE);
    assert_eq!(cases(&report, "SMUG101", "fail"), [""; 0], "a careful backend misses its token: {report:#}");
    assert!(cases(&report, "SMUG102", "fail").contains(&"both-tokens".to_owned()), "{report:#}");
    assert_eq!(checks(&report, "SMUG103")[0]["verdict"], "fail");
    let report = probe("nginx-connection", UPGRADE);
    assert!(cases(&report, "SMUG101", "fail").contains(&"both-tokens".to_owned()), "{report:#}");
}

#[test]
fn apache_is_clean_but_for_upgrade_any_and_its_own_upgrade_is_no_tunnel() {
    let Some(_) = need("apache2") else { return };
    for fixture in ["apache-default", "apache-websocket", "apache-h2c"] {
        let report = probe(fixture, UPGRADE);
        assert_clean(fixture, &report);
        let own = if fixture == "apache-h2c" { "pass" } else { "unsupported" };
        assert_eq!(checks(&report, "SMUG104")[0]["verdict"], own, "{fixture}: {report:#}");
    }
    let report = probe("apache-any", UPGRADE);
    assert!(!cases(&report, "SMUG102", "fail").is_empty(), "{report:#}");
}

#[test]
fn other_proxies_are_what_their_fixtures_say() {
    for (program, safe, not) in [
        ("caddy", &["caddy-fixed"][..], &["caddy-default"][..]),
        ("envoy", &["envoy-default", "envoy-websocket"], &[]),
        ("h2o", &["h2o-default"], &[]),
        ("nghttpx", &[], &["nghttpx-default"]),
    ] {
        let Some(_) = need(program) else { continue };
        for fixture in safe {
            assert_clean(fixture, &probe(fixture, UPGRADE));
        }
        for fixture in not {
            let report = probe(fixture, UPGRADE);
            let found = ["SMUG101", "SMUG102"].map(|id| cases(&report, id, "fail").len());
            assert_ne!(found, [0, 0], "{fixture}: {report:#}");
        }
    }
}

#[test]
fn what_http_2_must_not_say_does_not_reach_the_backend_of_real_proxies() {
    for (program, fixture) in
        [("haproxy", "haproxy-fixed"), ("nginx", "nginx-default"), ("apache2", "apache-default")]
    {
        let Some(_) = need(program) else { continue };
        let report = probe(fixture, &["--downgrade-only"]);
        for id in ["DOWN101", "DOWN102", "DOWN105", "DOWN106", "DOWN108"] {
            let raw: Vec<String> =
                cases(&report, id, "fail").into_iter().filter(|case| case != "name-upper-case").collect();
            assert_eq!(raw, [""; 0], "{fixture} {id}: {report:#}");
        }
        let lines = checks(&report, "DOWN101");
        assert!(lines.iter().any(|check| check["case"] == "value-crlf"), "{report:#}");
    }
}

#[test]
fn a_fixture_that_fails_makes_the_exit_code_1_and_is_told_with_its_fix() {
    let Some(_) = need("haproxy") else { return };
    let arguments =
        ["probe", "smuggling", "--fixture", "haproxy-default", "--upgrade-only", "--fail-on", "high"];
    let finished = h2lab(&arguments);
    assert_eq!(finished.code, Some(1), "{}", finished.transcript());
    assert!(
        finished.stdout.contains("fix, haproxy: http-request del-header upgrade"),
        "{}",
        finished.transcript()
    );
}

/// A proxy that leads nowhere, and what is said of it.
#[track_caller]
fn refused(arguments: &[&str]) -> Finished {
    let words = [&["probe", "smuggling"][..], arguments].concat();
    h2lab(&words)
}

#[test]
fn a_proxy_of_the_user_needs_their_word_and_must_lead_to_our_backend() {
    const USAGE: i32 = 2;
    const UNREACHABLE: i32 = 3;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let both = ["--proxy", &url, "--backend-listen", "127.0.0.1:0"];
    let finished = refused(&both);
    assert_eq!(finished.code, Some(USAGE), "{}", finished.transcript());
    assert!(finished.stderr.contains("--i-own-this-host"), "{}", finished.transcript());
    drop(listener);
    let finished = refused(&[&both[..], &["--i-own-this-host"]].concat());
    assert_eq!(finished.code, Some(UNREACHABLE), "{}", finished.transcript());
    let finished = refused(&["--fixture", "squid"]);
    assert_eq!(finished.code, Some(USAGE), "{}", finished.transcript());
    assert!(finished.stderr.contains("haproxy-default"), "{}", finished.transcript());
}

#[test]
fn a_proxy_that_leads_elsewhere_is_said_to() {
    const UNREACHABLE: i32 = 3;
    let origin = crate::origin::Origin::start(&[]);
    let url = format!("http://{}/", origin.clear);
    let finished = refused(&["--proxy", &url, "--backend-listen", "127.0.0.1:0", "--i-own-this-host"]);
    assert_eq!(finished.code, Some(UNREACHABLE), "{}", finished.transcript());
    assert!(finished.stderr.contains("did not reach our backend"), "{}", finished.transcript());
}

#[test]
fn the_configuration_of_a_fixture_is_one_that_its_program_takes() {
    let Some(haproxy) = need("haproxy") else { return };
    let finished = h2lab(&["probe", "smuggling", "--config", "haproxy-fixed"]);
    assert_eq!(finished.code, Some(0), "{}", finished.transcript());
    let folder = folder();
    std::fs::write(folder.path().join("haproxy.cfg"), &finished.stdout).unwrap();
    let checked = run_program(&haproxy, Path::new(folder.path()), &["-c", "-f", "haproxy.cfg"]);
    assert_eq!(checked.code, Some(0), "{}", checked.transcript());
    let listed = h2lab(&["probe", "smuggling", "--fixtures"]);
    assert!(listed.stdout.contains("nginx-websocket"), "{}", listed.transcript());
}

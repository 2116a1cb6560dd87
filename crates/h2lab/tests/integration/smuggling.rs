//! `h2lab probe smuggling`: real proxies, configured to be safe and not.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{DEADLINE, Finished, closed_port, folder, free_ports, h2lab, need, run_program};

/// All of these proxies answer: only a busy machine delays one, and then the probe waits for it.
const PATIENT: [&str; 2] = ["--timeout", "60s"];

/// Runs the probe on a fixture.
#[track_caller]
fn probe(fixture: &str, more: &[&str]) -> Value {
    let arguments = [&["probe", "smuggling", "--json", "--fixture", fixture][..], &PATIENT].concat();
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

/// Fails unless nothing tunnels through the proxy.
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
    assert_eq!(found["fix"][0]["product"], "HAProxy", "{found:#}");
    let attempts = report["attempts"].as_array().expect("a list");
    let attempt =
        attempts.iter().find(|attempt| attempt["offer"] == "both-tokens" && attempt["backend"] == "strict");
    for question in ["forwards_upgrade", "forwards_settings", "tunnels_101", "reaches_forbidden"] {
        assert_eq!(attempt.unwrap()[question], true, "{question}: {attempt:?}");
    }
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
fn every_fixture_is_what_its_list_says() {
    let listed = h2lab(&["probe", "smuggling", "--fixtures"]);
    let mut seen = 0;
    // Further lines of a long description are indented.
    for line in listed.stdout.lines().filter(|line| !line.starts_with(' ')) {
        let words: Vec<&str> = line.split_whitespace().take(2).collect();
        let [fixture, safe] = words[..] else { panic!("{}", listed.transcript()) };
        let product = fixture.split('-').next().unwrap();
        let program = if product == "apache" { "apache2" } else { product };
        let Some(_) = need(program) else { continue };
        let report = probe(fixture, UPGRADE);
        let tunnels: Vec<String> =
            ["SMUG101", "SMUG102"].iter().flat_map(|id| cases(&report, id, "fail")).collect();
        assert_eq!(safe == "safe", tunnels.is_empty(), "{fixture} is {safe}: {tunnels:?}: {report:#}");
        assert_eq!(cases(&report, "SMUG101", "undecided"), [""; 0], "{fixture}: {report:#}");
        seen += 1;
    }
    assert!(seen > 0, "{}", listed.transcript());
}

#[test]
fn caddys_own_upgrade_is_not_taken_for_the_backends_though_it_forwards_the_offer_too() {
    let Some(_) = need("caddy") else { return };
    let report = probe("caddy-h2c", UPGRADE);
    let own = checks(&report, "SMUG104")[0];
    assert_eq!(own["verdict"], "pass", "{own:#}");
    assert!(cases(&report, "SMUG101", "fail").is_empty(), "{report:#}");
    assert!(cases(&report, "SMUG101", "pass").contains(&"both-tokens".to_owned()), "{report:#}");
}

#[test]
fn what_http_2_must_not_say_does_not_reach_the_backend_of_real_proxies() {
    // The harmless findings that pass through the versions of Debian 12.
    const MILD: [(&str, &str, &str); 2] =
        [("haproxy-fixed", "DOWN104", "authority-path"), ("nginx-default", "DOWN107", "proxy-connection")];
    for (program, fixture) in
        [("haproxy", "haproxy-fixed"), ("nginx", "nginx-default"), ("apache2", "apache-default")]
    {
        let Some(_) = need(program) else { continue };
        let report = probe(fixture, &["--downgrade-only"]);
        for id in ["DOWN101", "DOWN102", "DOWN103", "DOWN104", "DOWN105", "DOWN106", "DOWN107", "DOWN108"] {
            let known: Vec<&str> = MILD
                .iter()
                .filter(|(proxy, check, _)| (*proxy, *check) == (fixture, id))
                .map(|(.., case)| *case)
                .collect();
            assert_eq!(cases(&report, id, "fail"), known, "{fixture} {id}: {report:#}");
            assert_eq!(cases(&report, id, "undecided"), [""; 0], "{fixture} {id}: {report:#}");
        }
        let lines = checks(&report, "DOWN101");
        assert!(lines.iter().any(|check| check["case"] == "value-crlf"), "{report:#}");
    }
}

#[test]
fn a_fixture_that_fails_makes_the_exit_code_1_and_is_reported_with_its_fix() {
    let Some(_) = need("haproxy") else { return };
    let arguments =
        ["probe", "smuggling", "--fixture", "haproxy-default", "--upgrade-only", "--fail-on", "high"];
    let finished = h2lab(&[&arguments[..], &PATIENT].concat());
    assert_eq!(finished.code, Some(1), "{}", finished.transcript());
    assert!(
        finished.stdout.contains("fix, HAProxy: http-request del-header upgrade"),
        "{}",
        finished.transcript()
    );
}

/// A proxy that cannot be probed, and the message about it.
#[track_caller]
fn refused(arguments: &[&str]) -> Finished {
    let words = [&["probe", "smuggling"][..], arguments].concat();
    h2lab(&words)
}

#[test]
fn a_proxy_of_the_user_needs_their_word_and_must_lead_to_our_backend() {
    const USAGE: i32 = 2;
    const UNREACHABLE: i32 = 3;
    let (_socket, address) = closed_port();
    let url = format!("http://{address}/");
    let both = ["--proxy", &url, "--backend-listen", "127.0.0.1:0"];
    let finished = refused(&both);
    assert_eq!(finished.code, Some(USAGE), "{}", finished.transcript());
    assert!(finished.stderr.contains("--i-own-this-host"), "{}", finished.transcript());
    let finished = refused(&[&both[..], &["--i-own-this-host"]].concat());
    assert_eq!(finished.code, Some(UNREACHABLE), "{}", finished.transcript());
    for (arguments, words) in [
        (&["--fixture", "haproxy-fixed,nginx-default", "--json"][..], "one --fixture"),
        (&["--fixture", "haproxy-fixed", "--backend-listen", "127.0.0.1:0"], "--backend-listen"),
    ] {
        let finished = refused(arguments);
        assert_eq!(finished.code, Some(USAGE), "{}", finished.transcript());
        assert!(finished.stderr.contains(words), "{}", finished.transcript());
    }
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
fn a_proxy_that_never_stops_talking_is_not_listened_to_for_ever() {
    const UNREACHABLE: i32 = 3;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    // The server ends with the connection, and the thread with the test's process.
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            while stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").is_ok() {}
        }
    });
    let words = ["--proxy", &url, "--backend-listen", "127.0.0.1:0", "--i-own-this-host", "--timeout", "3s"];
    let finished = refused(&words);
    assert_eq!(finished.code, Some(UNREACHABLE), "{}", finished.transcript());
    assert!(finished.stderr.contains("did not respond"), "{}", finished.transcript());
}

/// A proxy, configured with `options`, in front of a backend that does not run yet.
struct Proxy {
    child: Child,
    clear: SocketAddr,
    backend: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Proxy {
    fn start(haproxy: &Path, options: &str) -> Self {
        let first = free_ports(3);
        let [clear, h2c, backend] = [0, 1, 2].map(|n| SocketAddr::from((Ipv4Addr::LOCALHOST, first + n)));
        let example = h2lab(&["probe", "smuggling", "--config", "haproxy-fixed"]).stdout;
        let text = example
            .replace("127.0.0.1:8080", &clear.to_string())
            .replace("127.0.0.1:8081", &h2c.to_string())
            .replace("127.0.0.1:9000", &format!("{backend} {options}"));
        assert!(text.contains(options), "{example}");
        let folder = folder();
        std::fs::write(folder.path().join("haproxy.cfg"), text).expect("a temporary file");
        let child = Command::new(haproxy)
            .current_dir(folder.path())
            .args(["-db", "-f", "haproxy.cfg"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("haproxy runs");
        let deadline = Instant::now() + DEADLINE;
        while TcpStream::connect(clear).is_err() {
            assert!(Instant::now() < deadline, "haproxy does not listen");
            std::thread::sleep(Duration::from_millis(20)); // polling interval: the other program gives no sign
        }
        Self { child, clear, backend, _folder: folder }
    }

    fn probe(&self, more: &[&str]) -> Finished {
        let (url, backend) = (format!("http://{}/", self.clear), self.backend.to_string());
        let words = ["--proxy", &url, "--backend-listen", &backend, "--i-own-this-host"];
        refused(&[&words[..], more].concat())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_proxy_that_takes_the_backend_for_dead_is_waited_for() {
    let Some(haproxy) = need("haproxy") else { return };
    let proxy = Proxy::start(&haproxy, "check inter 1s fall 1 rise 2");
    // The first health check fails; the backend is down until two have succeeded.
    let deadline = Instant::now() + DEADLINE;
    while !is_unavailable(proxy.clear) {
        assert!(Instant::now() < deadline, "it never takes its backend for dead");
        std::thread::sleep(Duration::from_millis(50)); // polling interval: its health checks, which nothing else shows
    }
    let finished = proxy.probe(&[&["--upgrade-only", "--json"][..], &PATIENT].concat());
    assert_eq!(finished.code, Some(0), "{}", finished.transcript());
    assert!(
        finished.stderr.contains(&format!("listening on {}", proxy.backend)),
        "{}",
        finished.transcript()
    );
    assert_clean("haproxy-fixed with checks", &finished.json());
}

/// Whether a proxy answers 503.
fn is_unavailable(proxy: SocketAddr) -> bool {
    let mut answer = [0; 12];
    TcpStream::connect(proxy).is_ok_and(|mut stream| {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").is_ok()
            && stream.read_exact(&mut answer).is_ok()
    }) && answer == *b"HTTP/1.1 503"
}

#[test]
fn a_proxy_that_speaks_http_2_to_the_backend_learns_of_it() {
    const UNREACHABLE: i32 = 3;
    let Some(haproxy) = need("haproxy") else { return };
    let finished = Proxy::start(&haproxy, "proto h2").probe(&["--timeout", "10s"]);
    assert_eq!(finished.code, Some(UNREACHABLE), "{}", finished.transcript());
    assert!(finished.stderr.contains("what it sends to the backend is HTTP/2"), "{}", finished.transcript());
}

#[test]
fn ctrl_c_ends_all_fixtures_and_leaves_no_folder() {
    const INTERRUPTED: i32 = 130;
    let Some(_) = need("haproxy") else { return };
    let folder = folder();
    // So many that the command is still running when the signal comes.
    let many = ["haproxy-default,haproxy-fixed"; 20].join(",");
    let mut child = Command::new(crate::support::binary())
        .args(["probe", "smuggling", "--fixture", &many])
        .env("TMPDIR", folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("h2lab runs");
    let mut said = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut line = String::new();
    said.read_line(&mut line).expect("a line");
    assert!(line.contains("offers of h2c"), "{line}");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    let status = child.wait().expect("it is ours");
    assert_eq!(status.code(), Some(INTERRUPTED));
    let left: Vec<_> =
        std::fs::read_dir(folder.path()).expect("ours").flatten().map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "{left:?}");
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

//! What the sidecar reports about its work: access log, trace context, admin listener, and the diagnosis of its own
//! connections.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Instant;

use h2lab_net::process::Child;
use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::origin::Origin;
use crate::support::{DEADLINE, binary, folder, h2lab};

/// A running `h2lab sidecar` with an admin listener.
pub struct Watched {
    pub child: Child,
    pub clear: SocketAddr,
    admin: SocketAddr,
}

impl Watched {
    pub fn to(url: &str, more: &[&str]) -> Self {
        let mut command = Command::new(binary());
        command
            .args(["sidecar", "--listen", "127.0.0.1:0", "--to", url, "--admin", "127.0.0.1:0"])
            .args(more);
        Self::run(command)
    }

    pub fn run(command: Command) -> Self {
        let child = Child::spawn(command, None).expect("the binary starts");
        let line = |prefix: &str| {
            child
                .wait_for_line(DEADLINE, |line| line.strip_prefix(prefix)?.parse().ok())
                .unwrap_or_else(|error| panic!("{error}: {}", child.log()))
        };
        let (clear, admin) = (line("listening http://"), line("admin http://"));
        Self { child, clear, admin }
    }

    /// Head and body of the answer to a GET.
    pub fn get(&self, path: &str) -> (String, String) {
        exchange(self.admin, &format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n"))
    }

    pub fn admin_url(&self) -> String {
        format!("http://{}", self.admin)
    }

    pub fn ask(&self, request: &str) -> String {
        exchange(self.clear, request).0
    }

    pub fn stop(mut self) {
        let exit = self.child.stop(Signal::TERM, DEADLINE).expect("it ends");
        assert_eq!(exit.status.code(), Some(0), "{}", self.child.log());
    }
}

pub fn exchange(address: SocketAddr, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).expect("it accepts");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout above zero");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response);
    let text = String::from_utf8_lossy(&response);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    (head.to_owned(), body.to_owned())
}

const GET: &str = "GET /bytes/100?a=%22b HTTP/1.1\r\nhost: users.test\r\nconnection: close\r\n\r\n";

#[test]
fn the_log_has_each_request_with_its_way_and_what_peers_send_breaks_no_line() {
    let origin = Origin::start(&[]);
    let folder = folder();
    let path = folder.path().join("access.log");
    let name = path.to_str().expect("a name");
    let watched =
        Watched::to(&format!("h2c://{}", origin.clear), &["--access-log", name, "--log-format", "json"]);
    assert!(watched.ask(GET).starts_with("HTTP/1.1 200 "));
    let hostile = "GET /\\x\"\u{1b}[31m HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    watched.ask(hostile);
    watched.ask("POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello");
    watched.stop();
    let log = fs::read_to_string(&path).expect("a log");
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let by_path =
        |path: &str| lines.iter().find(|line| line["path"] == path).unwrap_or_else(|| panic!("{log}"));
    let ok = by_path("/bytes/100?a=%22b");
    assert_eq!(
        (&ok["status"], &ok["method"], &ok["authority"]),
        (&200.into(), &"GET".into(), &"users.test".into())
    );
    assert_eq!(
        (&ok["bytes_sent"], &ok["tries"], &ok["version"]),
        (&100.into(), &1.into(), &"HTTP/1.1".into())
    );
    assert_eq!((&ok["client"], &ok["connection"]), (&"127.0.0.1".into(), &1.into()));
    assert_eq!(ok["instance"], format!("h2c://{}", origin.clear));
    assert!(ok["duration_ms"].as_f64().is_some_and(|ms| ms > 0.0) && ok.get("failed").is_none(), "{ok}");
    assert!(ok["time"].as_str().is_some_and(|time| time.len() == 24 && time.ends_with('Z')), "{ok}");
    let echo = by_path("/echo");
    assert_eq!((&echo["bytes_received"], &echo["bytes_sent"]), (&5.into(), &5.into()));
    assert!(log.bytes().all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte)), "{log}");
}

#[test]
fn a_request_that_fails_is_logged_with_the_reason_on_standard_output_too() {
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port");
    let watched = Watched::to(&format!("h2c://{closed}"), &["--access-log", "-"]);
    assert!(watched.ask(GET).starts_with("HTTP/1.1 502 "));
    let line: String = watched
        .child
        .wait_for_line(DEADLINE, |line| line.contains("\"GET users.test").then(|| line.to_owned()))
        .expect("a line");
    assert!(line.contains(" 502 0 ") && line.contains("cannot connect to h2c://"), "{line}");
    let (_, status) = watched.get("/status");
    let status: Value = serde_json::from_str(&status).expect("JSON");
    assert_eq!(
        (&status["errors"][0]["status"], &status["instances"][0]["is_down"]),
        (&502.into(), &true.into()),
        "{status}"
    );
    let page = watched.get("/").1;
    assert!(page.contains("1 of 1 instance is unreachable") && page.contains("cannot connect to"), "{page}");
    watched.stop();
}

#[test]
fn a_log_that_was_renamed_is_made_again_after_hangup() {
    let origin = Origin::start(&[]);
    let folder = folder();
    let (path, old) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
    let name = path.to_str().expect("a name");
    let watched = Watched::to(&format!("h2c://{}", origin.clear), &["--access-log", name]);
    let logged = |path: &std::path::Path, count: usize| {
        let began = Instant::now();
        while fs::read_to_string(path).map_or(0, |text| text.lines().count()) < count {
            assert!(began.elapsed() < DEADLINE, "{}", path.display());
            thread::yield_now();
        }
    };
    watched.ask(GET);
    logged(&path, 1);
    fs::rename(&path, &old).expect("it is renamed");
    kill_process(watched.child.pid(), Signal::HUP).expect("it is ours");
    let began = Instant::now();
    while !path.exists() {
        assert!(began.elapsed() < DEADLINE);
        thread::yield_now();
    }
    watched.ask(GET);
    logged(&path, 1);
    assert_eq!(fs::read_to_string(&old).expect("the old one").lines().count(), 1);
    watched.stop();
}

/// The value of each line by name and labels; every metric must be announced before.
fn parsed(text: &str) -> BTreeMap<String, String> {
    let mut kinds = BTreeMap::new();
    let mut values = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a kind");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "{line}");
        } else if !line.starts_with("# HELP ") {
            let (key, value) = line.rsplit_once(' ').expect("a value");
            let name = key.split('{').next().expect("a name");
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            assert!(kinds.contains_key(name) || base.is_some_and(|base| kinds.contains_key(base)), "{line}");
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert!(values.insert(key.to_owned(), value.to_owned()).is_none(), "{line} twice");
        }
    }
    values
}

#[test]
fn metrics_status_and_page_tell_what_was_passed_on() {
    let origin = Origin::start(&[]);
    let watched = Watched::to(&format!("h2c://{}", origin.clear), &[]);
    for _ in 0..3 {
        assert!(watched.ask(GET).starts_with("HTTP/1.1 200 "));
    }
    watched.ask("GET /status/404 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    let (head, text) = watched.get("/metrics");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("version=0.0.4"), "{head}");
    let metrics = parsed(&text);
    let value = |key: &str| metrics.get(key).map_or_else(|| panic!("{key} is not in {text}"), String::as_str);
    let requests = "h2lab_sidecar_requests_total{service=\"service\",protocol=\"h1\"";
    assert_eq!(
        (value(&format!("{requests},code=\"200\"}}")), value(&format!("{requests},code=\"404\"}}"))),
        ("3", "1")
    );
    assert_eq!(value("h2lab_sidecar_request_duration_seconds_count{service=\"service\"}"), "4");
    assert_eq!(value("h2lab_sidecar_request_duration_seconds_bucket{service=\"service\",le=\"+Inf\"}"), "4");
    let instance = format!("{{service=\"service\",instance=\"h2c://{}\"}}", origin.clear);
    assert_eq!(value(&format!("h2lab_sidecar_instance_requests_total{instance}")), "4");
    assert_eq!(value(&format!("h2lab_sidecar_instance_up{instance}")), "1");
    assert!(value("h2lab_sidecar_memory_bytes").len() > 6, "a megabyte and more");
    let status: Value = serde_json::from_str(&watched.get("/status").1).expect("JSON");
    assert_eq!(
        (&status["instances"][0]["requests"], &status["clients_accepted"]),
        (&4.into(), &4.into()),
        "{status}"
    );
    let page = watched.get("/").1;
    for words in
        ["4 requests in ", "Instance <code class=\"url\">h2c:&#x2f;&#x2f;127.0.0.1", "None since the start."]
    {
        assert!(page.contains(words), "{words}: {page}");
    }
    assert!(watched.get("/config").1.contains("policy = \"adaptive\""));
    assert_eq!(watched.get("/healthz").1, "ok\n");
    watched.stop();
}

#[test]
fn while_it_is_being_stopped_it_is_healthy_and_not_ready() {
    // An instance that answers when the test says so.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let watched = Watched::to(&url, &[]);
    assert!(watched.get("/ready").0.starts_with("HTTP/1.1 200 "));
    let mut client = TcpStream::connect(watched.clear).expect("it accepts");
    client.set_read_timeout(Some(DEADLINE)).expect("a timeout above zero");
    client.write_all(GET.as_bytes()).expect("it reads");
    let (mut instance, _) = listener.accept().expect("a connection");
    kill_process(watched.child.pid(), Signal::TERM).expect("it is ours");
    let began = Instant::now();
    while !watched.get("/ready").0.starts_with("HTTP/1.1 503 ") {
        assert!(began.elapsed() < DEADLINE);
        thread::yield_now();
    }
    assert!(watched.get("/healthz").0.starts_with("HTTP/1.1 200 "));
    let status: Value = serde_json::from_str(&watched.get("/status").1).expect("JSON");
    assert_eq!(status["draining"], true);
    instance.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").expect("it reads");
    let mut response = String::new();
    client.read_to_string(&mut response).expect("a response");
    assert!(response.ends_with("ok"), "{response}");
    watched.stop();
}

#[test]
fn an_admin_listener_that_others_reach_must_be_asked_for() {
    let refused =
        h2lab(&["sidecar", "--listen", "127.0.0.1:0", "--to", "h2c://127.0.0.1:1", "--admin", "0.0.0.0:0"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.transcript().contains("public = true"), "{}", refused.transcript());
}

#[test]
fn a_hop_that_joins_traces_is_the_parent_of_what_follows_and_others_pass_them() {
    let origin = Origin::start(&[]);
    let folder = folder();
    let log = folder.path().join("log");
    let config = |context: &str| {
        let path = folder.path().join(format!("{context}.toml"));
        let text = format!(
            "listen = [{{ address = '127.0.0.1:0', service = 'a' }}]\n[service.a]\ninstances = ['h2c://{}']\n[admin]\naddress = \
             '127.0.0.1:0'\n[trace]\ncontext = '{context}'\n[log]\nfile = '{}'\nformat = 'json'\n",
            origin.clear,
            log.display()
        );
        fs::write(&path, text).expect("a file");
        let mut command = Command::new(binary());
        command.arg("sidecar").arg("--config").arg(path);
        Watched::run(command)
    };
    // The origin returns in its body what it received.
    let sent = |watched: &Watched, fields: &str| {
        exchange(
            watched.clear,
            &format!("GET /headers HTTP/1.1\r\nhost: a\r\n{fields}connection: close\r\n\r\n"),
        )
        .1
    };
    let plain = config("pass");
    let passed = sent(&plain, &format!("traceparent: {PARENT}\r\ntracestate: a=b\r\nb3: 1-2-3\r\n"));
    assert!(passed.contains(PARENT) && passed.contains("a=b") && passed.contains("1-2-3"), "{passed}");
    assert!(!sent(&plain, "").contains("traceparent"));
    plain.stop();
    let joins = config("join");
    let joined = sent(&joins, &format!("traceparent: {PARENT}\r\ntracestate: a=b\r\n"));
    assert!(joined.contains("4bf92f3577b34da6a3ce929d0e0e4736") && joined.contains("a=b"), "{joined}");
    assert!(!joined.contains("00f067aa0ba902b7"), "{joined}");
    assert!(sent(&joins, "").contains("traceparent"));
    let b3 = sent(&joins, "x-b3-traceid: 80f198ee56343ba8\r\n");
    assert!(b3.contains("80f198ee56343ba8") && !b3.contains("traceparent"), "{b3}");
    joins.stop();
    let lines = fs::read_to_string(&log).expect("a log");
    let spans: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let of_trace = spans.iter().filter(|line| line["trace_id"] == "4bf92f3577b34da6a3ce929d0e0e4736");
    let ids: Vec<&str> = of_trace.filter_map(|line| line["span_id"].as_str()).collect();
    assert_eq!(ids.len(), 2, "{lines}");
    assert_eq!(ids[0], "00f067aa0ba902b7", "where it only passes, that of the caller");
    assert!(joined.contains(ids[1]), "{joined} {}", ids[1]);
}

/// A trace of a client.
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

pub fn diagnosed(watched: &Watched) -> Value {
    let url = format!("http://{}", watched.admin);
    let done = h2lab(&["diagnose", "--sidecar", &url, "--json"]);
    assert_eq!(done.code, Some(0), "{}", done.transcript());
    done.json()
}

pub fn found(document: &Value) -> Vec<String> {
    let findings = document["findings"].as_array().unwrap_or_else(|| panic!("{document}"));
    findings.iter().map(|finding| finding["rule"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn a_healthy_sidecar_has_no_finding_and_a_quota_of_the_instance_is_named() {
    let healthy = Origin::start(&[]);
    let watched = Watched::to(&format!("h2c://{}", healthy.clear), &[]);
    for _ in 0..50 {
        watched.ask(GET);
    }
    let document = diagnosed(&watched);
    assert!(found(&document).is_empty(), "{document}");
    let url = format!("http://{}", watched.admin);
    let text = h2lab(&["diagnose", "--sidecar", &url]);
    assert!(
        text.stdout.contains("No cause was found.") && text.stdout.contains("50 requests over h2c"),
        "{}",
        text.transcript()
    );
    watched.stop();
    let quota = Origin::start(&["--max-requests-per-connection", "20"]);
    let watched = Watched::to(&format!("h2c://{}", quota.clear), &["--policy", "fixed:1"]);
    let began = Instant::now();
    loop {
        for _ in 0..60 {
            assert!(watched.ask(GET).starts_with("HTTP/1.1 200 "));
        }
        let document = diagnosed(&watched);
        if found(&document).contains(&"CONN101".to_owned()) {
            break;
        }
        // If a process was stopped in between, an end may have looked like an idle timeout.
        assert!(began.elapsed() < DEADLINE, "{document}");
    }
    watched.stop();
}

#[test]
fn who_asks_for_the_diagnosis_of_no_sidecar_is_told_so() {
    let origin = Origin::start(&[]);
    let of = |value: &str, more: &[&str]| h2lab(&[&["diagnose", "--sidecar", value], more].concat());
    let other = of(&format!("http://{}", origin.clear), &[]);
    assert!(other.transcript().contains("is that the admin listener"), "{}", other.transcript());
    let nobody = of("http://127.0.0.1:1", &[]);
    assert!(nobody.code == Some(3) || nobody.code == Some(1), "{}", nobody.transcript());
    let tls = of("https://127.0.0.1:1", &[]);
    assert_eq!(tls.code, Some(2), "{}", tls.transcript());
    for flags in [["--loss", "3%"], ["--budget", "60s"]] {
        let both = of("http://127.0.0.1:1", &flags);
        assert!(both.code == Some(2) && both.transcript().contains("only watched"), "{}", both.transcript());
    }
}

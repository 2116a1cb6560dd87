//! What a load reports while it runs, `--prometheus` and `--dump`: the server withholds the last answer, so that all others must
//! be reported before the load is over.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use h2lab_net::process::Child;
use rustix::process::Signal;
use serde_json::Value;

use crate::origin::Origin;
use crate::support::{DEADLINE, Finished, binary, folder, h2lab, run_program};

/// Requests of each load.
const REQUESTS: u64 = 50;

/// A server of HTTP/1.1 for one connection that answers all requests but the last at once, every tenth of them with
/// 503; the last when the sender is used.
fn withholding() -> (String, Sender<()>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let url = format!("http://{}/", listener.local_addr().expect("it is bound"));
    let (release, released) = channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut buffer = [0; 4096];
        for number in 1..=REQUESTS {
            // Requests are small and arrive one at a time: each read is one.
            assert!(stream.read(&mut buffer).expect("a request") > 0);
            if number == REQUESTS {
                released.recv().expect("the test says when");
            }
            let status = if number % 10 == 0 { "503 Service Unavailable" } else { "200 OK" };
            write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nok").expect("the client reads");
        }
        // Until the client has closed: closing first would race with its reading.
        while matches!(stream.read(&mut buffer), Ok(1..)) {}
    });
    (url, release)
}

/// Starts `load --json` of all requests over one connection.
fn start(folder: &Path, url: &str, more: &[&str]) -> std::process::Child {
    let number = format!("-n={REQUESTS}");
    Command::new(binary())
        .current_dir(folder)
        .args(["load", "--json", "--no-store", "-c=1", "--proto=h1", &number, url])
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary is there")
}

/// Asks until `report` accepts the answer, and returns it.
#[track_caller]
fn until<T>(mut ask: impl FnMut() -> T, report: impl Fn(&T) -> bool) -> T {
    let end = Instant::now() + DEADLINE;
    loop {
        let answer = ask();
        if report(&answer) {
            return answer;
        }
        assert!(Instant::now() < end, "it never comes to that");
        std::thread::yield_now();
    }
}

/// Prometheus' text format 0.0.4: each sample's value by its name and labels. Fails on an invalid line, on a sample whose metric
/// has no TYPE, and on a duplicate.
#[track_caller]
fn samples(text: &str) -> BTreeMap<String, f64> {
    let (mut all, mut types) = (BTreeMap::new(), BTreeMap::new());
    assert!(text.ends_with('\n'), "the last line has an end");
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let words: Vec<&str> = comment.splitn(3, ' ').collect();
            assert!(matches!(words[..], ["HELP" | "TYPE", _, _]), "{line}");
            if words[0] == "TYPE" {
                assert_eq!(types.insert(words[1].to_owned(), words[2].to_owned()), None, "{line}");
            }
            continue;
        }
        let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no sample: {line}"));
        let name = series.split('{').next().expect("a part");
        let base =
            ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        assert!(types.contains_key(base), "{line} has no TYPE");
        let labels = series[name.len()..].trim_start_matches('{').trim_end_matches('}');
        let well_formed = |label: &str| {
            label
                .split_once('=')
                .is_some_and(|(_, value)| value.len() >= 2 && value.starts_with('"') && value.ends_with('"'))
        };
        assert!(labels.is_empty() || labels.split(',').all(well_formed), "{line}");
        let value = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
        assert_eq!(all.insert(series.to_owned(), value), None, "twice: {line}");
    }
    all
}

/// What `/metrics` answers.
fn scrape(address: &str) -> BTreeMap<String, f64> {
    let mut stream = TcpStream::connect(address).expect("the exporter listens");
    stream.set_read_timeout(Some(DEADLINE)).expect("above zero");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: h\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it closes");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("text/plain; version=0.0.4"), "{head}");
    samples(body)
}

/// How many requests ended with an outcome and status.
fn ended(metrics: &BTreeMap<String, f64>, outcome: &str, status: u16) -> f64 {
    let series = format!("h2lab_requests_total{{outcome=\"{outcome}\",status=\"{status}\"}}");
    metrics.get(&series).copied().unwrap_or(0.0)
}

#[test]
fn prometheus_reads_what_the_load_has_done_so_far_and_the_summary_ends_where_it_was() {
    let (folder, (url, release)) = (folder(), withholding());
    let mut process = start(folder.path(), &url, &["--prometheus=0", "--quiet"]);
    let mut report = BufReader::new(process.stderr.take().expect("it is piped")).lines();
    let line = report.next().expect("a line").expect("text");
    let address = line.strip_prefix("metrics at http://").and_then(|rest| rest.strip_suffix("/metrics"));
    let address = address.unwrap_or_else(|| panic!("{line}"));
    let total =
        |metrics: &BTreeMap<String, f64>| ended(metrics, "succeeded", 200) + ended(metrics, "status", 503);
    let waits = |metrics: &BTreeMap<String, f64>| {
        let [due, in_flight] =
            ["due_total", "in_flight"].map(|name| metrics[&format!("h2lab_requests_{name}")]);
        (total(metrics), due, in_flight) == (49.0, 50.0, 1.0)
    };
    let seen = until(|| scrape(address), waits);
    assert_eq!((ended(&seen, "succeeded", 200), ended(&seen, "status", 503)), (45.0, 4.0));
    assert_eq!((seen["h2lab_connections_open"], seen["h2lab_connections_opened_total"]), (1.0, 1.0));
    let buckets: Vec<f64> =
        seen.iter().filter(|(series, _)| series.contains("_bucket{")).map(|(_, count)| *count).collect();
    let most = buckets.iter().copied().fold(0.0, f64::max);
    let all =
        ["bucket{le=\"+Inf\"}", "count"].map(|name| seen[&format!("h2lab_response_time_seconds_{name}")]);
    assert_eq!((most, all), (45.0, [45.0, 45.0]), "successes only: {seen:?}");
    assert!(seen["h2lab_response_time_seconds_sum"] > 0.0);
    release.send(()).expect("the server waits for it");
    let finished: Finished = process.wait_with_output().expect("it ends").into();
    let summary = finished.json();
    assert_eq!(summary["status"], serde_json::json!({"200": 45, "503": 5}), "{}", finished.transcript());
}

#[test]
fn counters_only_grow_while_a_load_runs() {
    let (origin, folder) = (Origin::start(&[]), folder());
    let url = format!("http://{}/delay/1", origin.clear);
    // It goes on until it is interrupted, however late it is asked.
    let mut command = Command::new(binary());
    command.current_dir(folder.path());
    command.args(["load", "--quiet", "--no-store", "--prometheus=0", "-c=2", "-z=1h", &url]);
    let mut process = Child::spawn(command, None).expect("the binary is there");
    let is_named =
        |line: &str| Some(line.strip_prefix("metrics at http://")?.strip_suffix("/metrics")?.to_owned());
    let address = process.wait_for_line(DEADLINE, is_named).expect("it says where");
    let mut last = BTreeMap::new();
    let mut steps = 0;
    while steps < 3 {
        let now = scrape(&address);
        for (series, value) in
            last.iter().filter(|(series, _): &(&String, &f64)| !series.contains("_in_flight"))
        {
            let is_gauge =
                series.contains("_open") && !series.contains("_opened") || series.contains("_waiting");
            assert!(is_gauge || now.get(series).is_some_and(|later| later >= value), "{series}");
        }
        steps += u32::from(
            ended(&now, "succeeded", 200)
                > last.get("h2lab_response_time_seconds_count").copied().unwrap_or(0.0),
        );
        last = now;
    }
    let ended = process.stop(Signal::INT, DEADLINE).expect("it ends");
    assert_eq!(ended.status.code(), Some(130), "{}", process.log());
}

#[test]
fn a_dump_has_each_request_when_it_ends_and_as_many_as_there_were() {
    for ending in ["csv", "jsonl"] {
        let (folder, (url, release)) = (folder(), withholding());
        let path = folder.path().join(format!("d.{ending}"));
        let dump = format!("--dump={}", path.display());
        let process = start(folder.path(), &url, &["--quiet", &dump]);
        let header = usize::from(ending == "csv");
        let lines = || std::fs::read_to_string(&path).unwrap_or_default().lines().count();
        until(lines, |lines| *lines == 49 + header);
        release.send(()).expect("the server waits for it");
        let finished: Finished = process.wait_with_output().expect("it ends").into();
        finished.assert_measured();
        let text = std::fs::read_to_string(&path).expect("it was written");
        let rows: Vec<&str> = text.lines().skip(header).collect();
        assert_eq!(rows.len() as u64, REQUESTS);
        if ending == "jsonl" {
            let rows: Vec<Value> =
                rows.iter().map(|row| serde_json::from_str(row).expect("an object")).collect();
            assert_eq!(rows.iter().filter(|row| row["status"] == 503).count(), 5);
            assert!(rows.iter().all(|row| row["body_bytes"] == 2 && row["connection"] == 0), "{text}");
        } else {
            assert_eq!(rows.iter().filter(|row| row.contains(",status,503,")).count(), 5, "{text}");
        }
    }
}

#[test]
fn a_dump_to_stdout_has_it_alone_and_the_summary_goes_to_stderr() {
    let (origin, folder) = (Origin::start(&[]), folder());
    let url = format!("http://{}/", origin.clear);
    let finished = run_program(
        &binary(),
        folder.path(),
        &["load", "--no-store", "--quiet", "-n=137", "-c=3", "--dump=-", &url],
    );
    finished.assert_measured();
    assert_eq!(finished.stdout.lines().count(), 138, "a header and each request");
    let columns = finished.stdout.lines().map(|line| line.matches(',').count());
    assert!(columns.collect::<std::collections::BTreeSet<_>>().len() == 1, "{}", finished.stdout);
    assert!(finished.stderr.contains("137 sent"), "{}", finished.transcript());
    let both = h2lab(&["load", "--dump=-", "--json", &url]);
    assert_eq!(both.code, Some(2), "{}", both.transcript());
}

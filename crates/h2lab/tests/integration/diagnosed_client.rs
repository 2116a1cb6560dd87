//! `h2lab diagnose --run`: real clients against our origin, and commands that are no clients.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{DEADLINE, Finished, as_nobody, binary, folder, h2lab, need, run_program};

/// A command for a shell that makes six requests one after another, each by a program of its own.
fn six(client: &str) -> String {
    format!("for n in 1 2 3 4 5 6; do {client}; done")
}

/// `diagnose --run` with these flags before it, as JSON. The command is run once.
#[track_caller]
fn document(flags: &[&str], command: &str) -> Value {
    let done = h2lab(&[&["diagnose", "--json", "--budget=0s"], flags, &["--run", command]].concat());
    assert_read(&done);
    done.json()
}

/// Fails unless the client was seen. On a busy machine the times cannot be trusted, which is reported and fails no
/// test.
#[track_caller]
fn assert_read(done: &Finished) {
    assert!(matches!(done.code, Some(0 | 5)), "{}", done.transcript());
}

fn rules(document: &Value) -> Vec<&str> {
    let findings = document["findings"].as_array().expect("a list");
    findings.iter().map(|finding| finding["rule"].as_str().expect("text")).collect()
}

fn protocols(document: &Value) -> Vec<&str> {
    let cells = document["cells"].as_array().expect("a list");
    cells.iter().map(|cell| cell["protocol"].as_str().expect("text")).collect()
}

#[test]
fn a_client_that_dials_for_each_request_is_told_to_keep_its_connection() {
    let Some(_) = need("curl") else { return };
    let command = six("curl -sS -o /dev/null --http2-prior-knowledge {url}");
    let found = document(&[], &command);
    assert_eq!((rules(&found), protocols(&found)), (vec!["CONN107"], vec!["h2c"]), "{found:#}");
    let confirm = found["findings"][0]["confirm"].as_str().expect("text");
    assert!(confirm.contains("run the same command"), "{confirm}");
    // The same as text, without the client's own output in it.
    let text = h2lab(&["diagnose", "--run", &command.replace("-o /dev/null", "-w 'the client speaks\\n'")]);
    assert_read(&text);
    for words in ["Answer: ", "CONN107", "Seen: 6 requests of h2c on 6 connections", "not confirmed"] {
        assert!(text.stdout.contains(words), "{words}\n{}", text.transcript());
    }
    assert!(!(text.stdout.clone() + &text.stderr).contains("\nthe client speaks"), "{}", text.transcript());
}

#[test]
fn over_tls_a_client_that_resumes_no_session_is_told_to_and_one_without_h2_that_it_did_not_offer_it() {
    let Some(_) = need("curl") else { return };
    // With a short delay, where the CPU time of a full handshake is a large part of a request.
    let near = ["--tls", "--delay=1ms"];
    let found = document(&near, &six("curl -sS -o /dev/null --http2 --cacert {ca} {url}"));
    assert_eq!(protocols(&found), ["h2"], "{found:#}");
    assert!(rules(&found).contains(&"CONN111"), "{found:#}");
    let products = |finding: &Value| {
        let fixes = finding["fixes"].as_array().expect("a list");
        fixes.iter().map(|fix| fix["product"].as_str().expect("text").to_owned()).collect::<Vec<_>>()
    };
    let findings = found["findings"].as_array().expect("a list");
    assert!(findings.iter().all(|finding| products(finding) == ["client"]), "{found:#}");
    let found = document(&["--tls"], "curl -sS -o /dev/null --http1.1 --cacert {ca} {url}");
    assert_eq!((rules(&found), protocols(&found)), (vec!["CONN108"], vec!["h1s"]), "{found:#}");
}

#[test]
fn a_client_that_shares_one_connection_has_no_finding_about_connections() {
    let Some(_) = need("nghttp") else { return };
    let found = document(&["--delay=5ms"], "h2load -n 100 -c 1 -m 10 {url}");
    assert!(!rules(&found).iter().any(|rule| rule.starts_with("CONN")), "{found:#}");
    assert_eq!(found["cells"][0]["protocol"], "h2c", "{found:#}");
}

#[test]
fn a_client_with_small_windows_is_told_to_raise_them() {
    let Some(_) = need("nghttp") else { return };
    // A stop counts if it lasts at most a round trip and a quarter, which is long enough for a busy machine.
    let found = document(&["--delay=100ms"], "nghttp -n -w 14 -W 14 {url}bytes/128k");
    assert!(rules(&found).iter().any(|rule| rule.starts_with("FLOW10")), "{found:#}");
}

/// A client that uploads 1 MB.
const UPLOAD: &str = "head -c 1000000 /dev/zero \
                      | curl -sS -o /dev/null --http2-prior-knowledge --data-binary @- {url}";

#[test]
fn a_small_window_of_the_server_is_confirmed_by_a_larger_one_and_fails_a_build() {
    let Some(_) = need("curl") else { return };
    let flags = ["diagnose", "--json", "--delay=50ms", "-w", "64k", "--fail-on=confirmed", "--run", UPLOAD];
    let done = h2lab(&flags);
    let found = done.json();
    let trials = found["trials"].as_array().unwrap_or_else(|| panic!("{}", done.transcript()));
    let window = trials.iter().find(|trial| trial["change"] == "a server's stream window of 16 MiB");
    let window = window.unwrap_or_else(|| panic!("{}", done.transcript()));
    // On a busy machine.
    if done.code == Some(5) || window["outcome"] == "void" {
        return;
    }
    assert_eq!((window["outcome"].as_str(), done.code), (Some("confirmed"), Some(1)), "{found:#}");
    assert!(window["effect"].as_f64().is_some_and(|effect| effect > 1.3), "{found:#}");
    assert!(window["rounds"].as_u64().is_some_and(|rounds| rounds >= 3), "{found:#}");
    let causes = found["causes"].as_array().expect("a list");
    let is_it = |cause: &Value| {
        cause["confidence"] == "confirmed" && cause["id"].as_str().is_some_and(|id| id.starts_with("FLOW10"))
    };
    assert!(causes.iter().any(is_it), "{found:#}");
}

#[test]
fn a_client_without_a_fault_is_told_of_none_however_often_it_is_run() {
    let Some(_) = need("curl") else { return };
    let done = h2lab(&["diagnose", "--json", "--delay=50ms", "--budget=10s", "--run", UPLOAD]);
    assert_read(&done);
    let found = done.json();
    assert!(!rules(&found).iter().any(|rule| rule.starts_with("FLOW")), "{found:#}");
    let trials = found["trials"].as_array().map_or(&[][..], Vec::as_slice);
    assert!(trials.iter().all(|trial| trial["outcome"] != "confirmed"), "{found:#}");
}

#[test]
fn a_command_is_run_again_only_within_the_budget() {
    let Some(_) = need("curl") else { return };
    let runs = |budget: &str| {
        let folder = folder();
        let command = format!("echo >> runs; {UPLOAD}");
        let done = run_in(folder.path(), &["--delay=50ms", "-w", "64k", budget], &command);
        assert_read(&done);
        (std::fs::read_to_string(folder.path().join("runs")).expect("a file").len(), done)
    };
    assert_eq!(runs("--budget=0s").0, 1);
    // It takes more than a second.
    let (once, short) = runs("--budget=3s");
    assert_eq!(once, 1, "{}", short.transcript());
    let said = short.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("one run takes") && said.contains("give --budget"), "{}", short.transcript());
    let (several, enough) = runs("--budget=20s");
    // On a busy machine two rounds are made.
    assert!(several >= 5, "{several}: {}", enough.transcript());
}

/// A client of HTTP/1.1 in clear.
const PYTHON: &str = "python3 -c 'import sys, urllib.request as r; r.urlopen(sys.argv[1]).read()' {url}";

#[test]
fn http1_in_clear_is_no_finding_and_a_page_has_the_report() {
    let Some(_) = need("python3") else { return };
    let folder = folder();
    let done = run_program(&binary(), folder.path(), &["diagnose", "-o", "report.html", "--run", PYTHON]);
    assert_read(&done);
    assert!(done.stdout.contains("needs prior knowledge"), "{}", done.transcript());
    let page = std::fs::read_to_string(folder.path().join("report.html")).expect("a page");
    assert!(page.contains("needs prior knowledge"), "the page says the same");
    let nobody = as_nobody(&["diagnose", "--run", PYTHON]);
    assert_read(&nobody);
}

/// What is left of runs in the folder of temporary files.
fn left(folder: &Path) -> usize {
    std::fs::read_dir(folder).expect("a folder").count()
}

fn run_in(folder: &Path, flags: &[&str], command: &str) -> Finished {
    let program = binary();
    let words = [&[program.to_str().expect("text"), "diagnose"], flags, &["--run", command]].concat();
    let temporary = format!("TMPDIR={}", folder.display());
    run_program(Path::new("env"), folder, &[&[temporary.as_str()], &words[..]].concat())
}

#[test]
fn a_command_that_is_no_client_ends_with_its_reason_and_its_last_lines() {
    let folder = folder();
    let cases = [
        ("no-such-client-of-h2lab {url}", 4, &["did not connect", "127", "not found"][..]),
        (
            "echo a; echo b; printf 'c\\033[31m'; exit 3 # {url}",
            3,
            &["exit status: 3", "\n  b", "c\\u{1b}[31m"],
        ),
        ("kill -9 $$ # {url}", 3, &["signal: 9"]),
        ("true {url}", 3, &["did not connect", "without an error"]),
        ("'unclosed {url}", 3, &["exit status: 2"]),
    ];
    for (command, code, all) in cases {
        let done = run_in(folder.path(), &[], command);
        assert_eq!(done.code, Some(code), "{command}: {}", done.transcript());
        for words in all {
            assert!(done.stderr.contains(words), "{words}: {}", done.transcript());
        }
        assert!(done.stdout.is_empty(), "{}", done.transcript());
    }
    assert_eq!(left(folder.path()), 0, "nothing is left behind");
}

#[test]
fn a_command_that_hangs_is_killed_and_what_it_had_sent_is_reported() {
    let (Some(_), folder) = (need("curl"), folder()) else { return };
    let none = run_in(folder.path(), &["--time-limit=200ms"], "sleep 600 # {url}");
    assert_eq!(none.code, Some(3), "{}", none.transcript());
    assert!(none.stderr.contains("--time-limit"), "{}", none.transcript());
    let command = "curl -sS -o /dev/null --http2-prior-knowledge {url} && echo waits && sleep 600";
    let some = run_in(folder.path(), &["--time-limit=5s"], command);
    assert_read(&some);
    assert!(
        some.stdout.contains("killed after 5s") && some.stdout.contains("waits"),
        "{}",
        some.transcript()
    );
    assert_eq!(left(folder.path()), 0, "nothing is left behind");
}

/// Interrupts a client that has made one request and hangs, by a signal to the started process only.
#[track_caller]
fn interrupted(folder: &Path, signal: Signal) -> (Option<i32>, String) {
    let command =
        "curl -sS -o /dev/null --http2-prior-knowledge {url} && echo > asked && sleep 600; echo > survived";
    let run = Command::new("env")
        .arg("--default-signal")
        .arg(format!("TMPDIR={}", folder.join("tmp").display()))
        .arg(binary())
        .args(["diagnose", "--run", command])
        .current_dir(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let until = Instant::now() + DEADLINE;
    while !folder.join("asked").exists() {
        assert!(Instant::now() < until, "the client made no request");
        sleep(Duration::from_millis(5)); // polling interval
    }
    kill_process(Pid::from_child(&run), signal).expect("it is ours");
    let output = run.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text.into_owned())
}

#[test]
fn an_interrupt_of_the_process_outside_alone_ends_the_client_and_reports_what_it_did() {
    let Some(_) = need("curl") else { return };
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let folder = folder();
        std::fs::create_dir(folder.path().join("tmp")).expect("a folder");
        let (code, text) = interrupted(folder.path(), signal);
        assert_eq!(code, Some(130), "{signal:?}: {text}");
        for words in ["Seen: 1 request of h2c", "it was killed, since the run was interrupted"] {
            assert!(text.contains(words), "{signal:?}: {words}: {text}");
        }
        assert!(!folder.path().join("survived").exists(), "the client goes on");
        assert_eq!(left(&folder.path().join("tmp")), 0, "nothing is left behind");
    }
}

#[test]
fn streams_refused_before_settings_are_found_whether_they_are_sent_again_or_not() {
    let Some(_) = need("nghttp") else { return };
    for command in ["nghttp -n -m 40 {url}", "h2load -n 200 -c 1 -m 40 {url}"] {
        let found = document(&["-m", "5"], command);
        let rules = rules(&found);
        assert!(rules.contains(&"CONN102") && !rules.contains(&"CONN103"), "{command}: {found:#}");
    }
}

#[test]
fn a_client_that_ends_its_connection_itself_is_told_of_no_goaway() {
    let (Some(_), Some(_)) = (need("curl"), need("nghttp")) else { return };
    for command in ["curl -sS -o /dev/null --http2-prior-knowledge {url}", "nghttp -n {url}"] {
        let done = h2lab(&["diagnose", "--budget=0s", "--delay=100ms", "--run", command]);
        assert_read(&done);
        assert!(!done.stdout.contains("GOAWAY"), "{command}: {}", done.transcript());
    }
}

#[test]
fn a_client_without_a_success_fails_the_check_and_one_in_clear_is_told_of_tls() {
    let Some(_) = need("curl") else { return };
    let clear = "curl -sS -o /dev/null --http2-prior-knowledge $(echo {url} | sed s/https/http/)";
    let status = "curl -sS -o /dev/null --http2-prior-knowledge {url}status/503";
    for (flags, command, is_told) in [(&["--tls"][..], clear, true), (&[], status, false)] {
        let done = h2lab(&[&["diagnose", "--budget=0s"], flags, &["--run", command]].concat());
        // On a busy machine.
        assert!(matches!(done.code, Some(1 | 5)), "{}", done.transcript());
        let said = done.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(said.contains("must begin with https://"), is_told, "{}", done.transcript());
    }
}

#[test]
fn what_is_not_http_is_said_to_be_none() {
    let Some(_) = need("python3") else { return };
    let garbage = "python3 -c 'import os, socket; s = socket.create_connection((os.environ[\"H2LAB_SERVER\"], 8080)); \
                   s.sendall(bytes(range(256)) * 9); s.settimeout(5); s.recv(1)' # {url}";
    let done = h2lab(&["diagnose", "--run", garbage]);
    assert_eq!(done.code, Some(3), "{}", done.transcript());
    assert!(
        done.stderr.contains("no request of HTTP came from the client on 1 connection"),
        "{}",
        done.transcript()
    );
}

#[test]
fn credentials_in_the_command_are_in_no_output() {
    let Some(_) = need("curl") else { return };
    let command = "curl -sS -o /dev/null --http2-prior-knowledge -H 'Authorization: Bearer c4n4ry' \
                   '{url}?token=c4n4ry'";
    for flags in [&["diagnose", "--budget=0s", "--json"][..], &["probe", "client", "--case=plain", "--json"]]
    {
        let done = h2lab(&[flags, &["--run", command]].concat());
        assert!(done.stdout.contains("Authorization: ***"), "{}", done.transcript());
        let output = done.stdout.clone() + &done.stderr;
        assert!(!output.contains("c4n4ry"), "{}", done.transcript());
    }
}

#[test]
fn flags_of_requests_and_servers_are_refused() {
    let url = "curl {url}";
    for flags in [
        &["--run", "curl"][..],
        &["--run", "curl {url} --cacert {ca}"],
        &["--run", url, "-q", "5"],
        &["--run", url, "--origin", "nginx"],
        &["--run", url, "--delay", "1ms,2ms"],
        &["--run", url, "http://127.0.0.1:1/"],
        &["--run", url, "--fix"],
        &["--run", url, "--fail-on", "confirmed", "--budget", "0s"],
        &["--run", url, "--no-tls-resumption"],
        &["--run", url, "--keylog", "/dev/null"],
        &["--tls"],
        &["--time-limit", "5s"],
    ] {
        let refused = h2lab(&[&["diagnose"], flags].concat());
        assert_eq!(refused.code, Some(2), "{flags:?}: {}", refused.transcript());
    }
}

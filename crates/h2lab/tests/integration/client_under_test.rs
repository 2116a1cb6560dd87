//! `h2lab probe client`: clients that are not ours, graded.

use std::fs;

use serde_json::Value;

use crate::go::GoProgram;
use crate::support::{folder, h2lab, need};

/// The verdicts on a client, by the ids of their checks.
struct Graded(Value);

impl Graded {
    /// Runs all test cases with `command`.
    #[track_caller]
    fn new(command: &str, more: &[&str]) -> Self {
        let arguments = ["probe", "client", "--json", "--run", command];
        let finished = h2lab(&[&arguments, more].concat());
        assert_eq!(finished.code, Some(0), "{}", finished.transcript());
        Self(finished.json())
    }

    #[track_caller]
    fn check(&self, id: &str) -> &Value {
        let checks = self.0["checks"].as_array().expect("a list");
        checks.iter().find(|check| check["id"] == id).unwrap_or_else(|| panic!("no {id}: {:#}", self.0))
    }

    /// Fails unless each of these checks came to this verdict.
    #[track_caller]
    fn assert(&self, verdict: &str, ids: &[&str]) {
        for id in ids {
            let check = self.check(id);
            assert_eq!(check["verdict"], verdict, "{check:#}");
        }
    }

    /// Fails unless the client acknowledged settings that changed. On a busy machine it may instead have ended before
    /// anything that was sent to it had an answer.
    #[track_caller]
    fn assert_acknowledges(&self) {
        let check = self.check("CLNT112");
        let was_unheard =
            || check["summary"].as_str().is_some_and(|why| why.starts_with("it ended before it was heard"));
        assert!(check["verdict"] == "pass" || check["verdict"] == "undecided" && was_unheard(), "{check:#}");
    }
}

#[test]
fn curl_opens_large_windows_replays_what_was_refused_and_has_no_limit_of_its_own() {
    let Some(curl) = need("curl") else { return };
    // Over TLS: curl 7.88 cannot reuse a prior-knowledge connection, whatever the server.
    let command = format!("{} -q -s --cacert {{ca}} {{urls}}", curl.display());
    let graded = Graded::new(&command, &["--tls", "-n", "9"]);
    graded.assert("pass", &["CLNT101", "CLNT103", "CLNT104", "CLNT108", "CLNT109", "CLNT110", "CLNT111"]);
    graded.assert("pass", &["CLNT113", "CLNT117"]);
    graded.assert_acknowledges();
    graded.assert("fail", &["CLNT102", "CLNT106", "CLNT114", "CLNT115", "CLNT116"]);
    graded.assert("pass", &["CLNT107"]);
    // It makes one request after the other, and uploads nothing.
    graded.assert("undecided", &["CLNT105", "CLNT119"]);
    let lost = graded.check("CLNT106")["summary"].as_str().unwrap();
    assert!(lost.starts_with("2 lost") && lost.contains("; 2 had been begun above"), "{lost}");
    let software = graded.0["software"].as_str().unwrap_or_default();
    assert!(software.starts_with("curl/"), "{software}");
    let card = graded.0["checklist"].as_array().expect("a score card");
    assert_eq!((&card[0]["item"], &card[0]["mark"]), (&"grade D".into(), &"crossed".into()), "{card:#?}");
}

#[test]
fn curl_in_clear_by_prior_knowledge_and_over_http_1_1() {
    let Some(curl) = need("curl") else { return };
    let cases = ["--case", "interim"];
    let clear = format!("{} -q -s --http2-prior-knowledge {{url}}", curl.display());
    Graded::new(&clear, &cases).assert("pass", &["CLNT101", "CLNT103", "CLNT109"]);
    let old = format!("{} -q -s {{url}}", curl.display());
    let graded = Graded::new(&old, &cases);
    graded.assert("unsupported", &["CLNT101"]);
    // Test cases that cannot be graded are not run.
    assert_eq!(graded.0["spent"]["requests"], 1, "{:#}", graded.0);
}

#[test]
fn curl_uploads_through_small_windows() {
    let Some(curl) = need("curl") else { return };
    let folder = folder();
    let file = folder.path().join("body");
    fs::write(&file, vec![b'.'; 200_000]).expect("a temporary file");
    let command = format!("{} -q -s --cacert {{ca}} -T {} {{url}}", curl.display(), file.display());
    let graded = Graded::new(&command, &["--tls", "--case", "small-windows"]);
    graded.assert("pass", &["CLNT119"]);
}

#[test]
fn a_daemon_that_the_command_leaves_behind_does_not_live_on() {
    let Some(curl) = need("curl") else { return };
    // It leaves the process group; the number identifies it, since no other process has it.
    let seconds = 1_000_000 + std::process::id();
    let command =
        format!("setsid sleep {seconds} & {} -q -s --http2-prior-knowledge {{url}}", curl.display());
    Graded::new(&command, &["--case", "plain"]).assert("pass", &["CLNT101"]);
    let words = format!("sleep\0{seconds}\0");
    let lives = fs::read_dir("/proc")
        .expect("Linux")
        .flatten()
        .any(|entry| fs::read(entry.path().join("cmdline")).is_ok_and(|found| found == words.as_bytes()));
    assert!(!lives, "sleep {seconds} is still there");
}

/// Go's client.
static CLIENT_GO: GoProgram = GoProgram::new("client_go");

#[test]
fn gos_client_replays_what_a_goaway_left_and_returns_credit_too_often() {
    let Some(client) = CLIENT_GO.path() else { return };
    let command = format!("{} {{url}} 30", client.display());
    let graded = Graded::new(&command, &[]);
    graded.assert("pass", &["CLNT101", "CLNT103", "CLNT106", "CLNT107", "CLNT108", "CLNT109", "CLNT110"]);
    graded.assert("pass", &["CLNT113", "CLNT117", "CLNT118"]);
    graded.assert_acknowledges();
    graded.assert("fail", &["CLNT102", "CLNT104", "CLNT114", "CLNT115", "CLNT116"]);
    assert_eq!(graded.check("CLNT104")["fix"][0]["product"], "Go");
    // Whether all callers dial at once is a race among them: with a fast server, the first one sometimes wins it.
    let together =
        Graded::new(&format!("{command} together"), &["--case", "plain,stream-quota,graceful-goaway"]);
    together.assert("fail", &["CLNT105"]);
    // Many requests at once begin on a new connection while its SETTINGS arrive, and some of them are sent after the
    // acknowledgement.
    let command = format!("{} {{url}} 3", client.display());
    Graded::new(&command, &["--case", "plain,one-stream"]).assert("pass", &["CLNT111"]);
}

#[test]
fn nodes_client_loses_what_a_goaway_left() {
    let Some(node) = need("node") else { return };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/integration/client_node.js");
    let graded = Graded::new(&format!("{} {script} {{url}} 30", node.display()), &[]);
    graded.assert("pass", &["CLNT101", "CLNT109", "CLNT110", "CLNT113", "CLNT117"]);
    graded.assert_acknowledges();
    graded.assert("fail", &["CLNT102", "CLNT103", "CLNT106", "CLNT108", "CLNT115", "CLNT116"]);
    graded.assert("pass", &["CLNT104", "CLNT105", "CLNT107", "CLNT111"]);
    graded.assert("fail", &["CLNT114", "CLNT118"]);
    let lost = graded.check("CLNT106")["summary"].as_str().unwrap();
    assert!(lost.contains("lost") && lost.contains("could be sent again"), "{lost}");
}

#[test]
fn a_client_that_asks_by_ping_whether_a_silent_server_lives_is_seen_to() {
    let Some(node) = need("node") else { return };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/integration/client_node.js");
    let command = format!("{} {script} {{url}} 3 100", node.display());
    let graded = Graded::new(&command, &["--case", "black-out"]);
    graded.assert("pass", &["CLNT116"]);
    // It sends a PING, and ignores that no answer comes.
    graded.assert("fail", &["CLNT115"]);
    assert!(graded.check("CLNT116")["evidence"].to_string().contains("PING"), "{:#}", graded.0);
}

#[test]
fn nghttp_makes_one_connection_and_never_another() {
    let Some(nghttp) = need("nghttp") else { return };
    let graded = Graded::new(&format!("{} -n {{urls}}", nghttp.display()), &["-n", "12"]);
    graded.assert("pass", &["CLNT101", "CLNT107", "CLNT109", "CLNT111", "CLNT113", "CLNT117"]);
    graded.assert_acknowledges();
    graded.assert("fail", &["CLNT102", "CLNT103", "CLNT106", "CLNT108", "CLNT114", "CLNT115", "CLNT116"]);
    graded.assert("pass", &["CLNT104", "CLNT105", "CLNT110"]);
}

#[test]
fn mistakes_are_named() {
    const USAGE: i32 = 2;
    for (arguments, words) in [
        (&["--run", "curl"][..], "{url}"),
        (&["--run", "curl {url}", "--case", "nap"], "stream-quota"),
        (&[], "--run"),
        (&["--run", "curl --cacert {ca} {url}"], "--tls"),
        (&["--run", "curl {url}", "-n", "3"], "{urls}"),
    ] {
        let finished = h2lab(&[&["probe", "client"], arguments].concat());
        assert_eq!(finished.code, Some(USAGE), "{}", finished.transcript());
        assert!(finished.stderr.contains(words), "{}", finished.transcript());
    }
    // A command that is not there is a client that makes no request.
    let graded = Graded::new("no-such-client {url}", &["--case", "plain"]);
    graded.assert("undecided", &["CLNT101"]);
    let summary = graded.check("CLNT101")["summary"].as_str().unwrap();
    assert!(summary.contains("exit code 127") && summary.contains("not found"), "{summary}");
}

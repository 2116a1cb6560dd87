//! What goes wrong in a fleet, each with a load under way: nothing is counted twice, nothing hangs, a run folder is whole or
//! absent, and words say what happened.

mod peers;
mod server;

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::doing;
use super::figures::{list, number, queried, text};
use super::fleet::{DEADLINE, Fleet, THREE};
use crate::verify::items::{Item, item};
use crate::verify::outcome::ItemOutcome;
use crate::verify::started::{Ended, Ending, Started};

/// Requests per second of a load here.
const RATE: u32 = 600;
/// For how long it sends them.
const SECONDS: u32 = 14;
/// What an agent that is busy needs until it sends requests: clocks, connections, the common instant.
const SETTLING: Duration = Duration::from_secs(3);
/// The run folder of a load.
const RUN: &str = "run";
/// Exit codes.
const DONE: i32 = 0;
const UNREACHABLE: i32 = 3;

/// The items.
pub fn items() -> Vec<Item> {
    vec![
        item(
            "fault-restart",
            "nats-server killed and started again in the middle of a load: no share is lost",
            server::restarted,
        ),
        item(
            "fault-absent",
            "nats-server absent at the start: agents wait, drivers say so and end",
            server::absent,
        ),
        item(
            "fault-slow",
            "a slow consumer at nats-server is cut off, and a load beside it is whole",
            server::slow,
        ),
        item(
            "fault-quota",
            "a quota of JetStream is reached: all shares are lost with the reason, no run folder",
            server::quota,
        ),
        item(
            "fault-permission",
            "an agent without a permission: its share is lost with the subject, others are kept",
            server::permission,
        ),
        item(
            "fault-partition",
            "an agent cut off from NATS for 5 s loses nothing, and one for good its share only",
            peers::partition,
        ),
        item(
            "fault-killed",
            "an agent killed in the middle: its share is lost, and it may come back at once",
            peers::killed,
        ),
        item(
            "fault-stopped",
            "an agent stopped (SIGSTOP): its share is lost, and it works for others afterwards",
            peers::stopped,
        ),
        item(
            "fault-disk",
            "the disk of an agent is full: its share is lost with the system's words",
            peers::disk_full,
        ),
        item(
            "fault-driver",
            "a driver is killed: its agents are free within 70 s, and work for another one",
            peers::driver_killed,
        ),
        item(
            "fault-two",
            "two drivers at once: the second is refused and told which driver has the agents, also if one of its agents is free; the \
             first gets all its results",
            peers::two_drivers,
        ),
        item(
            "fault-version",
            "an agent and a driver of another version are refused, with both versions",
            peers::other_version,
        ),
    ]
}

/// Begins a load by three agents, and waits until all of them send requests.
fn loading(fleet: &Fleet<'_>) -> Result<Started> {
    let mut driver = begun(fleet, RUN)?;
    let begun = fleet.await_busy(THREE[0], DEADLINE, |busy| busy);
    begun.with_context(|| format!("the load has not begun: {}", driver.stderr()))?;
    std::thread::sleep(SETTLING);
    ensure!(driver.ending()?.is_none(), "the load is over already: {}", driver.stderr());
    Ok(driver)
}

/// Begins a load by three agents.
fn begun(fleet: &Fleet<'_>, out: &str) -> Result<Started> {
    begun_by(fleet, &THREE, out)
}

/// Begins a load by these agents.
fn begun_by(fleet: &Fleet<'_>, agents: &[&str], out: &str) -> Result<Started> {
    let (names, url, rate, time) =
        (agents.join(","), fleet.url("/")?, format!("-q{RATE}"), format!("-z{SECONDS}s"));
    doing(format!("a load of {SECONDS} s by {names}"));
    let waits = ["--setup-timeout", "20s", "--grace", "10s", "--drain", "2s"];
    let words = ["load", "--json", "--quiet", "--record", "full", "-c30", &rate, &time, "--agents", &names];
    let all: Vec<&str> = words.into_iter().chain(waits).chain(["--out", out, &url]).collect();
    fleet.begin(&all)
}

/// What must be true of every load: it ended by itself in time with one of these codes, says no more than what happened, and its run
/// folder is whole or absent. Its document, if it has one.
fn judged(
    outcome: &mut ItemOutcome,
    fleet: &Fleet<'_>,
    what: &str,
    ended: &Ended,
    codes: &[i32],
    out: &str,
) -> Result<Option<Value>> {
    let is_allowed = matches!(ended.ending, Ending::Code(code) if codes.contains(&code));
    let is_panic = ended.stderr.contains("panicked at");
    let text =
        format!("{what}: {} after {:.1} s: {}", ended.ending, ended.took.as_secs_f64(), ended.last_words());
    outcome.check(is_allowed && !is_panic, text);
    // A folder that is neither is an error.
    let kept = fleet.report(out)?;
    let words = if kept.is_some() { "whole" } else { "absent" };
    let is_one = kept.is_some() != ended.stdout.trim().is_empty();
    outcome.check(is_one, format!("{what}: the run folder is {words}, as its document is"));
    if kept.is_some() {
        let sql = "SELECT count(*) - count(DISTINCT (connection, stream, scheduled_at_ns, sent_at_ns)) FROM 'samples.parquet'";
        let twice = queried(&fleet.folder().join(out), sql)?;
        outcome.check(twice.abs() < 0.5, format!("{what}: {twice} requests are in it twice"));
        let rows = queried(&fleet.folder().join(out), "SELECT count(*) FROM 'samples.parquet'")?;
        let sent = kept.as_ref().and_then(sent);
        let by_report = sent.map_or_else(|| "none".to_owned(), |sent| sent.to_string());
        let text = format!("{what}: {rows} requests are in it, {by_report} by its report");
        outcome.check(sent.is_some_and(|sent| (sent - rows).abs() < 0.5), text);
    }
    if ended.stdout.trim().is_empty() {
        return Ok(None);
    }
    let document: Value = serde_json::from_str(&ended.stdout).context("stdout is no document")?;
    added_up(outcome, what, &document)?;
    Ok(Some(document))
}

/// How many requests a report of a load has.
fn sent(report: &Value) -> Option<f64> {
    let of_load = report.pointer("/requests/sent").or_else(|| report.pointer("/cells/0/requests/sent"));
    of_load.and_then(Value::as_f64)
}

/// Requests are those of the shares that are there, and no more than were due.
fn added_up(outcome: &mut ItemOutcome, what: &str, document: &Value) -> Result<()> {
    let sent = number(document, "/requests/sent")?;
    let ends = ["succeeded", "failed", "unfinished"].map(|end| number(document, &format!("/requests/{end}")));
    let sum = ends.into_iter().sum::<Result<f64>>()?;
    let (mut of_shares, mut state) = (0.0, String::new());
    for share in list(document, "/agents/shares")? {
        let (name, is) = (text(share, "/agent")?, text(share, "/state")?);
        if is != "lost" {
            of_shares += number(share, "/due")?;
        }
        let why = share
            .pointer("/lost/why")
            .and_then(Value::as_str)
            .map_or_else(String::new, |why| format!(" ({why})"));
        let _ = write!(state, " {name} {is}{why};");
    }
    let most = f64::from(RATE * SECONDS) + THREE.len() as f64;
    let text = format!("{what}: {sent} sent, {sum} ended, {of_shares} due at shares:{state}");
    let adds_up = (sent - sum).abs() < 0.5 && (sent - of_shares).abs() < 0.5 && sent <= most;
    outcome.check(adds_up, text);
    Ok(())
}

/// Whether exactly these agents' shares are lost.
fn lost(outcome: &mut ItemOutcome, what: &str, document: Option<&Value>, expected: &[&str]) -> Result<()> {
    let document = document.context("a load without a document")?;
    let shares = list(document, "/agents/shares")?;
    let is_lost = |share: &&Value| share["state"] == "lost";
    let names: Vec<&str> =
        shares.iter().filter(is_lost).filter_map(|share| share["agent"].as_str()).collect();
    outcome.check(names == expected, format!("{what}: lost: {names:?}"));
    Ok(())
}

/// Whether a text says this, in the line that is shown.
fn says(outcome: &mut ItemOutcome, who: &str, said: &str, words: &str) {
    let line = said.lines().find(|line| line.contains(words));
    let shown = line.map_or_else(|| format!("nothing of `{words}`"), |line| line.trim().to_owned());
    outcome.check(line.is_some(), format!("{who}: {shown}"));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document(sent: u64, due: u64) -> Value {
        json!({
            "requests": {"sent": sent, "succeeded": sent, "failed": 0, "unfinished": 0},
            "agents": {"shares": [
                {"agent": "a", "state": "whole", "due": due, "lost": null},
                {"agent": "b", "state": "lost", "due": 7, "lost": {"why": "silent"}},
            ]},
        })
    }

    fn holds(document: &Value) -> bool {
        let mut outcome = ItemOutcome::default();
        added_up(&mut outcome, "a load", document).unwrap();
        outcome.holds()
    }

    #[test]
    fn requests_are_those_of_shares_that_are_there_and_no_more_than_were_due() {
        let due = u64::from(RATE * SECONDS);
        assert!(holds(&document(2_000, 2_000)) && holds(&document(due, due)));
        assert!(!holds(&document(2_007, 2_000)), "those of the lost one are counted");
        assert!(!holds(&document(2 * due, 2 * due)), "counted twice");
    }

    #[test]
    fn the_requests_of_a_report_are_those_of_its_only_cell() {
        assert_eq!(sent(&document(7, 7)), Some(7.0));
        assert_eq!(sent(&json!({"cells": [{"requests": {"sent": 5}}]})), Some(5.0));
        assert_eq!(sent(&json!({"cells": []})), None);
    }

    #[test]
    fn exactly_the_agents_that_are_named_are_lost() {
        let is = |expected: &[&str]| {
            let mut outcome = ItemOutcome::default();
            lost(&mut outcome, "a load", Some(&document(1, 1)), expected).unwrap();
            outcome.holds()
        };
        assert!(is(&["b"]) && !is(&[]) && !is(&["a", "b"]));
    }

    #[test]
    fn words_that_nobody_says_are_missed() {
        let mut outcome = ItemOutcome::default();
        says(&mut outcome, "x", "a\nbusy with c\n", "busy with");
        assert!(outcome.holds());
        says(&mut outcome, "x", "", "busy with");
        assert!(!outcome.holds());
    }
}

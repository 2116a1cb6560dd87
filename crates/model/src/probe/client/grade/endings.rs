//! What it does when a server ends a connection or refuses a stream.

use super::evidence::{CaseRuns, broken, frames, many};
use crate::probe::client::seen::{CaseRun, ConnectionSeen, FrameNote, RequestSeen};
use crate::probe::client::{AnswerState, TestCase};
use crate::probe::{Check, CheckMeta, Verdict, id};
use h2lab_wire::trace::FrameKind;

/// More connections for each GOAWAY than this are a reconnect storm.
const MOST_DIALS: f64 = 2.0;

/// Requests needed to observe it.
const SEVERAL: usize = 3;

/// The checks of these test cases.
pub fn all(case_runs: CaseRuns<'_>) -> Vec<Check> {
    let expected = case_runs.expected();
    let mut checks = Vec::new();
    if let Some(quota) = case_runs.of(TestCase::Quota) {
        checks.push(dials(case_runs, quota, expected));
        checks.push(lost(id::CLNT106, quota, expected));
    }
    checks.extend(case_runs.of(TestCase::Graceful).map(|graceful| lost(id::CLNT107, graceful, expected)));
    checks.extend(case_runs.of(TestCase::Abrupt).map(|abrupt| abrupt_end(abrupt, expected)));
    checks.extend(case_runs.of(TestCase::Refuse).map(|refuse| refused(refuse, expected)));
    checks
}

fn too_few(meta: &CheckMeta, expected: usize) -> Check {
    let summary = format!(
        "the command makes {}, but at least {SEVERAL} are needed: let it make more, for example with {{urls}}",
        many((expected, "request"))
    );
    Check::new(meta, Verdict::Undecided, summary)
}

/// Connections that it dials for each GOAWAY.
fn dials(case_runs: CaseRuns<'_>, quota: &CaseRun, expected: usize) -> Check {
    if expected < SEVERAL {
        return too_few(id::CLNT105, expected);
    }
    let goaways = quota.goaways();
    if goaways == 0 {
        return Check::new(id::CLNT105, Verdict::Undecided, "no connection reached its quota");
    }
    let plain = case_runs.of(TestCase::Plain).map_or(1, CaseRun::dials);
    let more = quota.dials().saturating_sub(plain);
    let useless = quota.connections.iter().filter(|connection| connection.requests.is_empty()).count();
    let each = more as f64 / goaways as f64;
    let rendered = format!(
        "{each:.1} dials per GOAWAY: {} connections for {goaways} GOAWAY ({plain} without any); {useless} carried nothing",
        quota.dials()
    );
    let at_a_time = case_runs.of(TestCase::Plain).map_or(0, CaseRun::at_a_time).max(quota.at_a_time());
    let (verdict, summary) = if each > MOST_DIALS {
        (Verdict::Fail, rendered)
    } else if at_a_time < 2 {
        let why = "but it has only one concurrent request, and only several can dial at once";
        (Verdict::Undecided, format!("{rendered}; {why}"))
    } else {
        (Verdict::Pass, rendered)
    };
    Check::new(id::CLNT105, verdict, summary)
        .with("GOAWAY as sent", frames(quota, |item| item.seen.starts_with("GOAWAY")))
}

/// Requests that were lost with connections that ended.
fn lost(meta: &'static CheckMeta, case_run: &CaseRun, expected: usize) -> Check {
    if expected < SEVERAL {
        return too_few(meta, expected);
    }
    let answered = case_run.answered();
    let replayable: usize = case_run.h2().map(ConnectionSeen::beyond_goaway).sum();
    let goaways = case_run.goaways();
    let lost = expected.saturating_sub(answered);
    let rendered = format!(
        "{answered} of {expected} requests were answered over {goaways} GOAWAY; {replayable} had been begun above the last \
         stream, and could be sent again"
    );
    let check = if lost > 0 || !case_run.is_content() {
        let lead =
            if lost > 0 { format!("{lost} lost") } else { "none lost, but it did not end well".to_owned() };
        broken(meta, case_run, &format!("{lead}: {rendered}"))
    } else if goaways == 0 {
        Check::new(meta, Verdict::Undecided, format!("no connection reached its quota; {rendered}"))
    } else if replayable == 0 && case_run.test_case == TestCase::Quota {
        Check::new(meta, Verdict::Undecided, format!("none lost, and none had to be sent again: {rendered}"))
    } else {
        Check::new(meta, Verdict::Pass, format!("none lost: {rendered}"))
    };
    check.with("GOAWAY as sent", frames(case_run, |item| item.seen.starts_with("GOAWAY")))
}

/// Whether it survives an end that loses requests, and retries what it may.
fn abrupt_end(case_run: &CaseRun, expected: usize) -> Check {
    let is_error = |frame: &FrameNote| frame.value != 0;
    let cut = case_run.h2().find(|seen| seen.received(FrameKind::GOAWAY).any(is_error));
    let Some(cut) = cut else {
        let summary = format!("no connection got far enough to be cut; {}", case_run.ending());
        return Check::new(id::CLNT118, Verdict::Undecided, summary);
    };
    let (answered, replayable) = (case_run.answered(), cut.beyond_goaway());
    // Begun at or below the last stream, and not answered: they may have been processed, and only the application knows whether a
    // retry is safe.
    let is_cut_off = |request: &&RequestSeen| {
        request.fate == AnswerState::Open && Some(request.stream) <= cut.last_stream()
    };
    let cut_off = cut.requests.iter().filter(is_cut_off).count();
    let lost = expected.saturating_sub(answered);
    let rendered = format!(
        "{answered} of {expected} requests were answered; {replayable} were above the last stream, and could be sent \
         again, and {cut_off} were in progress below it"
    );
    let check = if case_run.ran_out {
        broken(id::CLNT118, case_run, &format!("it did not finish: {rendered}"))
    } else if lost > cut_off || lost == 0 && !case_run.is_content() {
        broken(id::CLNT118, case_run, &format!("{lost} lost: {rendered}"))
    } else if replayable == 0 {
        Check::new(id::CLNT118, Verdict::Undecided, format!("none had to be sent again: {rendered}"))
    } else {
        Check::new(id::CLNT118, Verdict::Pass, format!("{lost} lost: {rendered}; {}", case_run.ending()))
    };
    check.with("GOAWAY as sent", frames(case_run, |item| item.seen.starts_with("GOAWAY")))
}

/// Whether it retries what was refused.
fn refused(case_run: &CaseRun, expected: usize) -> Check {
    let (answered, refused) = (case_run.answered(), case_run.count(AnswerState::Refused));
    let check = if refused == 0 {
        Check::new(id::CLNT108, Verdict::Undecided, "received no request that could be refused")
    } else if answered >= expected.max(1) && case_run.is_content() {
        let summary = format!("sent again: {refused} refused, {answered} of {expected} answered in the end");
        Check::new(id::CLNT108, Verdict::Pass, summary)
    } else {
        let what = format!("given up: {refused} refused, {answered} of {expected} answered in the end");
        broken(id::CLNT108, case_run, &what)
    };
    check.with("as refused", frames(case_run, |item| item.seen.starts_with("RST_STREAM")))
}

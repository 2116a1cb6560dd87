//! What it does when a server ends a connection or refuses a stream.

use super::evidence::{Played, broken, frames, many};
use crate::probe::client::seen::{ConnectionSeen, FrameNote, Performance, RequestSeen};
use crate::probe::client::{Act, Fate};
use crate::probe::{Check, CheckMeta, Verdict, id};
use h2lab_wire::trace::FrameKind;

/// More connections for each GOAWAY than this are a stampede.
const MOST_DIALS: f64 = 2.0;

/// Needed to see anything of it.
const SEVERAL: usize = 3;

/// The checks of these acts.
pub fn all(played: Played<'_>) -> Vec<Check> {
    let expected = played.expected();
    let mut checks = Vec::new();
    if let Some(quota) = played.of(Act::Quota) {
        checks.push(dials(played, quota, expected));
        checks.push(lost(id::CLNT106, quota, expected));
    }
    checks.extend(played.of(Act::Graceful).map(|graceful| lost(id::CLNT107, graceful, expected)));
    checks.extend(played.of(Act::Abrupt).map(|abrupt| abrupt_end(abrupt, expected)));
    checks.extend(played.of(Act::Refuse).map(|refuse| refused(refuse, expected)));
    checks
}

fn too_few(meta: &CheckMeta, expected: usize) -> Check {
    let summary = format!(
        "the command makes {}, and {SEVERAL} at least are needed: let it make more, by {{urls}} for example",
        many((expected, "request"))
    );
    Check::new(meta, Verdict::Undecided, summary)
}

/// Connections that it dials for each GOAWAY.
fn dials(played: Played<'_>, quota: &Performance, expected: usize) -> Check {
    if expected < SEVERAL {
        return too_few(id::CLNT105, expected);
    }
    let goaways = quota.goaways();
    if goaways == 0 {
        return Check::new(id::CLNT105, Verdict::Undecided, "no connection came to the end of its quota");
    }
    let plain = played.of(Act::Plain).map_or(1, Performance::dials);
    let more = quota.dials().saturating_sub(plain);
    let useless = quota.connections.iter().filter(|connection| connection.requests.is_empty()).count();
    let each = more as f64 / goaways as f64;
    let told = format!(
        "{each:.1} dials per GOAWAY: {} connections for {goaways} GOAWAY ({plain} without any); {useless} carried nothing",
        quota.dials()
    );
    let at_a_time = played.of(Act::Plain).map_or(0, Performance::at_a_time).max(quota.at_a_time());
    let (verdict, summary) = if each > MOST_DIALS {
        (Verdict::Fail, told)
    } else if at_a_time < 2 {
        let why = "but it has one request open at a time, and only several can dial at once";
        (Verdict::Undecided, format!("{told}; {why}"))
    } else {
        (Verdict::Pass, told)
    };
    Check::new(id::CLNT105, verdict, summary)
        .with("GOAWAY as sent", frames(quota, |exhibit| exhibit.seen.starts_with("GOAWAY")))
}

/// Requests that were lost with connections that ended.
fn lost(meta: &'static CheckMeta, performance: &Performance, expected: usize) -> Check {
    if expected < SEVERAL {
        return too_few(meta, expected);
    }
    let answered = performance.answered();
    let replayable: usize = performance.h2().map(ConnectionSeen::beyond_goaway).sum();
    let goaways = performance.goaways();
    let lost = expected.saturating_sub(answered);
    let told = format!(
        "{answered} of {expected} requests were answered over {goaways} GOAWAY; {replayable} had been begun above the last \
         stream, and could be sent again"
    );
    let check = if lost > 0 || !performance.is_content() {
        broken(meta, performance, &format!("{lost} lost: {told}"))
    } else if goaways == 0 {
        Check::new(meta, Verdict::Undecided, format!("no connection came to the end of its quota; {told}"))
    } else if replayable == 0 && performance.act == Act::Quota {
        Check::new(meta, Verdict::Undecided, format!("none lost, and none had to be sent again: {told}"))
    } else {
        Check::new(meta, Verdict::Pass, format!("none lost: {told}"))
    };
    check.with("GOAWAY as sent", frames(performance, |exhibit| exhibit.seen.starts_with("GOAWAY")))
}

/// Whether it lives through an end that takes requests along, and sends again what it may.
fn abrupt_end(performance: &Performance, expected: usize) -> Check {
    let is_error = |frame: &FrameNote| frame.value != 0;
    let cut = performance.h2().find(|seen| seen.received(FrameKind::GOAWAY).any(is_error));
    let Some(cut) = cut else {
        let summary = format!("no connection came so far that it could be cut; {}", performance.ending());
        return Check::new(id::CLNT118, Verdict::Undecided, summary);
    };
    let (answered, replayable) = (performance.answered(), cut.beyond_goaway());
    // Begun below the last stream, and not answered: they may have been processed, and only the application knows if they may be again.
    let is_cut_off =
        |request: &&RequestSeen| request.fate == Fate::Open && Some(request.stream) <= cut.last_stream();
    let cut_off = cut.requests.iter().filter(is_cut_off).count();
    let lost = expected.saturating_sub(answered);
    let told = format!(
        "{answered} of {expected} requests were answered; {replayable} were above the last stream, and could be sent again, and \
         {cut_off} were under way below it"
    );
    let check = if performance.ran_out {
        broken(id::CLNT118, performance, &format!("it did not come to its end: {told}"))
    } else if lost > cut_off || lost == 0 && !performance.is_content() {
        broken(id::CLNT118, performance, &format!("{lost} lost: {told}"))
    } else if replayable == 0 {
        Check::new(id::CLNT118, Verdict::Undecided, format!("none had to be sent again: {told}"))
    } else {
        Check::new(id::CLNT118, Verdict::Pass, format!("{lost} lost: {told}; {}", performance.ending()))
    };
    check.with("GOAWAY as sent", frames(performance, |exhibit| exhibit.seen.starts_with("GOAWAY")))
}

/// Whether it sends again what was refused.
fn refused(performance: &Performance, expected: usize) -> Check {
    let (answered, refused) = (performance.answered(), performance.count(Fate::Refused));
    let check = if refused == 0 {
        Check::new(id::CLNT108, Verdict::Undecided, "no request came that could be refused")
    } else if answered >= expected.max(1) && performance.is_content() {
        let summary = format!("sent again: {refused} refused, {answered} of {expected} answered in the end");
        Check::new(id::CLNT108, Verdict::Pass, summary)
    } else {
        let what = format!("given up: {refused} refused, {answered} of {expected} answered in the end");
        broken(id::CLNT108, performance, &what)
    };
    check.with("as refused", frames(performance, |exhibit| exhibit.seen.starts_with("RST_STREAM")))
}

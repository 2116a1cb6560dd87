//! What a server makes of the parts of HTTP/2 that not everybody has.

use std::time::Duration;

use h2lab_core::probe::{Bound, Check, Verdict, id};
use h2lab_core::wire::connection::setting_name;
use h2lab_core::workload::Protocol;

use super::{Found, decided};
use crate::probe::ask::{Answer, Question, Way, ask};
use crate::probe::{ProbeError, Prober};

/// How long a client that expects a 100 waits for it here (RFC 9110 §10.1.1 leaves it open).
const EXPECTATION: Duration = Duration::from_secs(1);

/// A name that nobody has (RFC 6761 §6.4).
const NOBODY: &str = "h2lab-probe.invalid";

/// Checks them.
pub fn look(prober: &mut Prober, found: &mut Found) -> Result<(), ProbeError> {
    if let Some(answer) = found.h2_answer.clone() {
        announced(&answer, found);
        found.add(settings(&answer));
        found.add(extended_connect(&answer));
    }
    for protocol in found.h1.into_iter().chain(found.h2) {
        let check = interim(prober, protocol, found);
        found.add(decided(id::PROT110, check)?.of(protocol.to_string()));
    }
    if let Some(protocol) = found.h2 {
        let check = push(prober, protocol);
        found.add(decided(id::PROT111, check)?);
    }
    if let Some(protocol) = found.h2.or(found.h1) {
        let check = misdirected(prober, protocol);
        found.add(decided(id::PROT112, check)?);
    }
    Ok(())
}

/// Notes what SETTINGS announce.
fn announced(answer: &Answer, found: &mut Found) {
    let limits = &mut found.limits;
    let told = |id: u16, unit: &str| {
        answer.setting(id).map(|value| Bound::exact(u64::from(value), unit, "as SETTINGS say or leave it"))
    };
    // Who announces no limit has none; our engine says so with the highest number.
    let limited = |bound: &Bound| bound.value.is_some_and(|value| value < u64::from(u32::MAX));
    limits.concurrent_streams_advertised = told(3, "streams").filter(limited);
    limits.header_list_advertised = told(6, "bytes").filter(limited);
    limits.stream_window = told(4, "bytes");
}

fn settings(answer: &Answer) -> Check {
    let told: Vec<String> = answer
        .settings
        .iter()
        .map(|(id, value)| match setting_name(*id) {
            Some(name) => format!("{name}={value}"),
            None => format!("{id:#06x}={value}"),
        })
        .collect();
    let few = answer.setting(3).filter(|streams| *streams < 100);
    let (verdict, summary) = match few {
        Some(streams) => (
            Verdict::Fail,
            format!(
                "at most {streams} streams at a time, where RFC 9113 §6.5.2 recommends 100; {}",
                told.join(", ")
            ),
        ),
        None => (Verdict::Pass, told.join(", ")),
    };
    let settings = answer.exhibits.iter().filter(|exhibit| exhibit.seen.starts_with("SETTINGS")).cloned();
    Check::new(id::PROT108, verdict, summary).with("the SETTINGS of both sides", settings.collect())
}

fn extended_connect(answer: &Answer) -> Check {
    match answer.setting(8) {
        Some(1) => Check::new(id::PROT109, Verdict::Pass, "ENABLE_CONNECT_PROTOCOL=1: WebSocket over HTTP/2"),
        _ => Check::new(
            id::PROT109,
            Verdict::Unsupported,
            "no ENABLE_CONNECT_PROTOCOL: WebSocket needs HTTP/1.1",
        ),
    }
}

fn interim(prober: &mut Prober, protocol: Protocol, found: &mut Found) -> Result<Check, ProbeError> {
    let path = prober.host.path.clone();
    let question = Question {
        method: "POST".to_owned(),
        body: b"h2lab".to_vec(),
        waits_for_100: Some(EXPECTATION),
        ..Question::get(&path)
    };
    let answer = ask(prober, Way::Plain(protocol), &question.with("expect", "100-continue"))?;
    let statuses: Vec<u16> = answer.interim.iter().map(|(status, ..)| *status).collect();
    found.expected.push((protocol, statuses, answer.status));
    let told: Vec<String> = answer.interim.iter().map(|(status, ..)| status.to_string()).collect();
    let outcome = answer.outcome();
    let (verdict, summary) = match (told.as_slice(), answer.status) {
        (_, 0) => (Verdict::Fail, format!("a POST that expects 100-continue is not answered: {outcome}")),
        ([], 417) => (Verdict::Unsupported, "it refuses to be expected of anything: 417".to_owned()),
        ([], status @ 400..) => (Verdict::Pass, format!("it refuses before the body is sent: {status}")),
        ([], status) => {
            (Verdict::Ignored, format!("no 100, and then {status}: the client waits for nothing"))
        }
        (told, _) => (Verdict::Pass, format!("{} and then {outcome}", told.join(", "))),
    };
    Ok(Check::new(id::PROT110, verdict, summary).with("a POST that expects 100-continue", answer.exhibits))
}

fn push(prober: &mut Prober, protocol: Protocol) -> Result<Check, ProbeError> {
    let path = prober.host.path.clone();
    let question = Question { accepts_push: true, ..Question::get(&path) };
    let answer = ask(prober, Way::Plain(protocol), &question)?;
    let (verdict, summary) = if answer.pushes.is_empty() {
        (Verdict::Unsupported, "nothing is pushed with this path, though we take it".to_owned())
    } else {
        (Verdict::Pass, format!("it promises {}", answer.pushes.join(", ")))
    };
    Ok(Check::new(id::PROT111, verdict, summary).with("a GET with ENABLE_PUSH=1", answer.exhibits))
}

fn misdirected(prober: &mut Prober, protocol: Protocol) -> Result<Check, ProbeError> {
    let path = prober.host.path.clone();
    let question = Question { authority: Some(NOBODY.to_owned()), ..Question::get(&path) };
    let answer = ask(prober, Way::Plain(protocol), &question)?;
    let outcome = answer.outcome();
    let (verdict, summary) = match answer.status {
        421 => (Verdict::Pass, "421 for a name that it does not serve".to_owned()),
        0 => (Verdict::Pass, format!("it does not serve a name that is not its own: {outcome}")),
        status @ 400.. => {
            (Verdict::Pass, format!("{status}, though not 421, for a name that it does not serve"))
        }
        status => (Verdict::Ignored, format!("{status} for {NOBODY}: it answers to every name")),
    };
    Ok(Check::new(id::PROT112, verdict, summary).with("a GET for a name that nobody has", answer.exhibits))
}

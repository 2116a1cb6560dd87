//! How a server handles the parts of HTTP/2 that not every server supports.

use std::time::Duration;

use h2lab_model::probe::server::{Answer, AnswerEnd, expectation};
use h2lab_model::probe::{Bound, Check, Verdict, id};
use h2lab_model::workload::Protocol;
use h2lab_wire::connection::setting_name;

use super::results::{UrlResults, decided};
use crate::probe::ask::{Question, ask};
use crate::probe::{Prober, Result};

/// How long a client that expects a 100 waits for it here (RFC 9110 §10.1.1 leaves it open).
const EXPECTATION: Duration = Duration::from_secs(1);

/// A name that does not exist (RFC 6761 §6.4).
const NOBODY: &str = "h2lab-probe.invalid";

/// Checks them.
pub fn look(prober: &mut Prober, found: &mut UrlResults) -> Result<()> {
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
        found.decide(id::PROT111, |_| push(prober, protocol))?;
    }
    if let Some(protocol) = found.h2.or(found.h1) {
        found.decide(id::PROT112, |found| misdirected(prober, protocol, found))?;
    }
    Ok(())
}

/// Notes what SETTINGS announce.
fn announced(answer: &Answer, found: &mut UrlResults) {
    let limits = &mut found.limits;
    let rendered = |id: u16, unit: &str| {
        answer.setting(id).map(|value| Bound::exact(u64::from(value), unit, "as set or left by SETTINGS"))
    };
    // A server that announces no limit has none; our engine then reports the highest number.
    let limited = |bound: &Bound| bound.value.is_some_and(|value| value < u64::from(u32::MAX));
    limits.concurrent_streams_advertised = rendered(3, "streams").filter(limited);
    limits.header_list_advertised = rendered(6, "bytes").filter(limited);
    limits.stream_window = rendered(4, "bytes");
}

fn settings(answer: &Answer) -> Check {
    let rendered: Vec<String> = answer
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
                "at most {streams} concurrent streams; RFC 9113 §6.5.2 recommends at least 100; {}",
                rendered.join(", ")
            ),
        ),
        None => (Verdict::Pass, rendered.join(", ")),
    };
    let settings = answer.items.iter().filter(|item| item.seen.starts_with("SETTINGS")).cloned();
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

fn interim(prober: &mut Prober, protocol: Protocol, found: &mut UrlResults) -> Result<Check> {
    let question = Question {
        method: "POST".to_owned(),
        body: b"h2lab".to_vec(),
        waits_for_100: Some(EXPECTATION),
        ..Question::get()
    };
    let answer = ask(prober, protocol, &question.with("expect", "100-continue"))?;
    let (verdict, summary) = expectation(&answer);
    let items = answer.items.clone();
    found.expected.push((protocol, answer));
    Ok(Check::new(id::PROT110, verdict, summary).with("a POST that expects 100-continue", items))
}

fn push(prober: &mut Prober, protocol: Protocol) -> Result<Check> {
    let question = Question { accepts_push: true, ..Question::get() };
    let answer = ask(prober, protocol, &question)?;
    let (verdict, summary) = if answer.pushes.is_empty() && !answer.is_answered() {
        (Verdict::Undecided, format!("no complete response: {}", answer.outcome()))
    } else if answer.pushes.is_empty() {
        (Verdict::Unsupported, "nothing is pushed for this path, though we accept pushes".to_owned())
    } else {
        (Verdict::Pass, format!("it promises {}", answer.pushes.join(", ")))
    };
    Ok(Check::new(id::PROT111, verdict, summary).with("a GET with ENABLE_PUSH=1", answer.items))
}

fn misdirected(prober: &mut Prober, protocol: Protocol, found: &UrlResults) -> Result<Check> {
    let own = if protocol.is_multiplexed() { &found.h2_answer } else { &found.h1_answer };
    let ordinary = own.as_ref().map_or(0, |answer| answer.status);
    let question = Question { authority: Some(NOBODY.to_owned()), ..Question::get() };
    let answer = ask(prober, protocol, &question)?;
    let (verdict, summary) = stranger(&answer, ordinary);
    Ok(Check::new(id::PROT112, verdict, summary).with("a GET for a name that does not exist", answer.items))
}

/// What an answer for an unknown name means, where the host's own name is answered with the status `ordinary`.
fn stranger(answer: &Answer, ordinary: u16) -> (Verdict, String) {
    let outcome = answer.outcome();
    match (answer.status, &answer.ended) {
        (421, _) => (Verdict::Pass, "421 for a name that it does not serve".to_owned()),
        (0, AnswerEnd::Silence) => {
            (Verdict::Undecided, "no response in time for a name that it does not serve".to_owned())
        }
        (0, _) => (Verdict::Pass, format!("it does not serve a foreign name: {outcome}")),
        (status, _) if status == ordinary => {
            (Verdict::Ignored, format!("{status} for {NOBODY}, as for its own name: it ignores the name"))
        }
        (status @ 400.., _) => {
            (Verdict::Pass, format!("{status}, though not 421, for a name that it does not serve"))
        }
        (status, _) => (Verdict::Ignored, format!("{status} for {NOBODY}, but {ordinary} for its own name")),
    }
}

#[cfg(test)]
mod tests {
    use h2lab_wire::ErrorCode;
    use h2lab_wire::h2::frame::{flag, kind};
    use h2lab_wire::h2::raw::{field_block, frame};

    use super::*;
    use crate::probe::testing::{checks, h2, response, verdicts};

    #[test]
    fn a_name_that_nobody_has_is_compared_with_the_hosts_own() {
        let answer = |status, ended| Answer { status, ended, ..Answer::none() };
        let is = |status, ended, ordinary| stranger(&answer(status, ended), ordinary).0;
        assert_eq!(is(421, AnswerEnd::Complete, 421), Verdict::Pass);
        assert_eq!(is(404, AnswerEnd::Complete, 200), Verdict::Pass);
        assert_eq!(is(404, AnswerEnd::Complete, 404), Verdict::Ignored);
        assert_eq!(is(200, AnswerEnd::Complete, 200), Verdict::Ignored);
        assert_eq!(is(0, AnswerEnd::Reset(ErrorCode::REFUSED_STREAM), 200), Verdict::Pass);
        assert_eq!(is(0, AnswerEnd::Silence, 200), Verdict::Undecided);
    }

    #[test]
    fn extensions_are_reported_as_the_server_has_them() {
        let look = |settings: &'static [(u16, u32)]| {
            verdicts(
                h2(move |peer, request| {
                    if request.fields.iter().any(|(_, value)| value == NOBODY) {
                        peer.send(&response(request.stream, 421, &[], b""));
                    } else {
                        peer.send(&response(request.stream, 200, &[], b"body"));
                    }
                })
                .announcing(settings),
                |prober, found| {
                    let answer = ask(prober, Protocol::H2c, &Question::get())?;
                    (found.h2, found.h2_answer) = (Some(Protocol::H2c), Some(answer));
                    super::look(prober, found)
                },
            )
        };
        let fine = look(&[(3, 100), (8, 1)]);
        assert_eq!(fine["PROT108"], Verdict::Pass);
        assert_eq!(fine["PROT109"], Verdict::Pass);
        assert_eq!(fine["PROT110"], Verdict::Ignored);
        assert_eq!(fine["PROT111"], Verdict::Unsupported);
        assert_eq!(fine["PROT112"], Verdict::Pass);
        let few = look(&[(3, 9)]);
        assert_eq!((few["PROT108"], few["PROT109"]), (Verdict::Fail, Verdict::Unsupported));
    }

    #[test]
    fn a_promise_is_reported() {
        let server = h2(|peer, request| {
            let authority = request.field(":authority").unwrap_or_default();
            let fields =
                [(":method", "GET"), (":scheme", "http"), (":authority", authority), (":path", "/style.css")];
            let block = field_block(fields.map(|(name, value)| (name.as_bytes(), value.as_bytes())));
            let payload = [&2_u32.to_be_bytes()[..], &block].concat();
            peer.send(&frame(kind::PUSH_PROMISE, flag::END_HEADERS, request.stream, &payload));
            peer.send(&response(request.stream, 200, &[], b"body"));
        });
        let found = checks(server, |prober, found| {
            let check = push(prober, Protocol::H2c)?;
            found.add(check);
            Ok(())
        });
        assert_eq!(found[0].verdict, Verdict::Pass);
        assert!(found[0].summary.contains("/style.css"), "{}", found[0].summary);
    }
}

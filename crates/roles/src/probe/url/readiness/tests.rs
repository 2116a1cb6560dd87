use std::collections::BTreeMap;

use super::*;
use crate::probe::testing::{Peer, Request, Server, h2, head, response, verdicts};

/// The verdicts of all checks of readiness on a server whose GETs are answered so.
fn look_at(
    on_head: impl Fn(&mut Peer, &str) + Send + Sync + 'static,
    on_request: impl Fn(&mut Peer, &Request) + Send + Sync + 'static,
) -> BTreeMap<String, Verdict> {
    verdicts(h2(on_request).and_h1(on_head), |prober, found| {
        (found.h1, found.h2) = (Some(Protocol::H1), Some(Protocol::H2c));
        found.h1_answer = Some(ask(prober, Protocol::H1, &Question::get("/"))?);
        look(prober, found)
    })
}

fn fine_h1(peer: &mut Peer, head: &str) {
    let body = if head.starts_with("HEAD") { "" } else { "ok" };
    peer.send(format!("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{body}").as_bytes());
}

fn fine_h2(peer: &mut Peer, request: &Request) {
    let body: &[u8] = if request.field(":method") == Some("HEAD") { b"" } else { b"ok" };
    peer.send(&response(request.stream, 200, &[], body));
}

#[test]
fn a_server_that_is_the_same_over_both_is_ready() {
    let found = look_at(fine_h1, fine_h2);
    assert_eq!(found["MIGR101"], Verdict::Pass);
    assert_eq!(found["MIGR102"], Verdict::Pass);
    assert_eq!(found["MIGR103"], Verdict::Unsupported);
    assert_eq!(found["MIGR104"], Verdict::Unsupported);
    assert_eq!(found["MIGR105"], Verdict::Unsupported);
    assert_eq!(found["MIGR106"], Verdict::Undecided, "it was not asked");
    assert_eq!(found["MIGR107"], Verdict::Unsupported);
    assert_eq!(found["MIGR108"], Verdict::Pass);
}

#[test]
fn another_answer_over_http2_and_forbidden_fields_fail() {
    let found = look_at(fine_h1, |peer, request| {
        peer.send(&response(request.stream, 200, &[("connection", "close")], b"no"));
    });
    assert_eq!((found["MIGR101"], found["MIGR102"]), (Verdict::Fail, Verdict::Fail));
}

#[test]
fn what_is_not_answered_is_not_compared() {
    let found = look_at(fine_h1, |_, _| {});
    assert_eq!((found["MIGR101"], found["MIGR102"]), (Verdict::Undecided, Verdict::Undecided));
}

#[test]
fn a_body_that_is_held_back_to_its_end_does_not_stream() {
    let slow = |peer: &mut Peer, head: &str| {
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n");
        if !head.starts_with("HEAD") {
            peer.send(b"o");
            std::thread::sleep(Duration::from_millis(150)); // the handler's pause
            peer.send(b"k");
        }
    };
    assert_eq!(look_at(slow, fine_h2)["MIGR103"], Verdict::Fail);
    let streamed = look_at(slow, |peer, request| {
        if request.field(":method") == Some("HEAD") {
            return fine_h2(peer, request);
        }
        let whole = response(request.stream, 200, &[], b"k");
        let first = [head(request.stream, 200, &[]), h2lab_wire::h2::raw::frame(0, 0, request.stream, b"o")];
        peer.send(&first.concat());
        std::thread::sleep(Duration::from_millis(150)); // the pause that it keeps
        peer.send(&whole[head(request.stream, 200, &[]).len()..]);
    });
    assert_eq!(streamed["MIGR103"], Verdict::Pass);
}

#[test]
fn trailers_that_http2_loses_fail() {
    let with_trailers = |peer: &mut Peer, head: &str| {
        if head.starts_with("HEAD") {
            return fine_h1(peer, head);
        }
        peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-sum: 1\r\n\r\n");
    };
    assert_eq!(look_at(with_trailers, fine_h2)["MIGR104"], Verdict::Fail);
}

#[test]
fn a_websocket_needs_rfc_8441_over_http2() {
    let switches = |peer: &mut Peer, head: &str| {
        if head.contains("websocket") {
            peer.send(
                b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
            );
        } else {
            fine_h1(peer, head);
        }
    };
    let look = |server: Server| {
        verdicts(server.and_h1(switches), |prober, found| {
            let check = connection_upgrade(prober, Protocol::H1, Some(Protocol::H2c))?;
            found.add(check);
            Ok(())
        })["MIGR105"]
    };
    assert_eq!(look(h2(fine_h2)), Verdict::Fail);
    assert_eq!(look(h2(fine_h2).announcing(&[(8, 1)])), Verdict::Pass);
    assert_eq!(look(h2(|_, _| {}).announcing(&[(8, 1)])), Verdict::Undecided);
}

#[test]
fn expectations_are_compared_only_where_they_were_answered() {
    let answer = |status, interim: &[u16], ended: Ended| Answer {
        status,
        interim: interim.iter().map(|one| (*one, Vec::new(), Duration::ZERO)).collect(),
        ended,
        ..Answer::none()
    };
    let is = |h1: Answer, h2: Answer| {
        let expected = vec![(Protocol::H1, h1), (Protocol::H2c, h2)];
        expect(&Found { expected, ..Found::default() }).verdict
    };
    let fine = || answer(200, &[100], Ended::Complete);
    assert_eq!(is(fine(), fine()), Verdict::Pass);
    assert_eq!(is(fine(), answer(200, &[], Ended::Complete)), Verdict::Fail);
    assert_eq!(is(fine(), answer(0, &[], Ended::Closed("so".to_owned()))), Verdict::Fail);
    assert_eq!(is(fine(), answer(0, &[], Ended::Silence)), Verdict::Undecided);
    assert_eq!(
        is(answer(0, &[], Ended::Closed("so".to_owned())), answer(0, &[], Ended::Silence)),
        Verdict::Undecided
    );
}

#[test]
fn a_gibibyte_on_an_upgrade_is_refused_or_taken() {
    assert_eq!(upgraded_body(Some(413), 0, false).0, Verdict::Pass);
    assert_eq!(upgraded_body(Some(200), 0, false).0, Verdict::Pass);
    assert_eq!(upgraded_body(Some(101), 0, false).0, Verdict::Fail);
    assert_eq!(upgraded_body(None, UPLOAD, true).0, Verdict::Pass);
    assert_eq!(upgraded_body(None, UPLOAD, false).0, Verdict::Undecided);
    let look = |on_head: fn(&mut Peer, &str)| {
        verdicts(crate::probe::testing::h1(on_head), |prober, found| {
            let check = upgrade_body(prober, Protocol::H1, true)?;
            found.add(check);
            Ok(())
        })["MIGR107"]
    };
    assert_eq!(look(|peer, _| peer.send(b"HTTP/1.1 413 Too Large\r\n\r\n")), Verdict::Pass);
    assert_eq!(look(|peer, _| peer.send(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")), Verdict::Fail);
}

#[test]
fn a_large_response_is_told_and_one_without_a_known_length_is_not_judged() {
    let answer = |body_bytes, length: Option<&str>, ended: Ended| {
        let fields = length.map(|length| ("content-length".to_owned(), length.to_owned()));
        large(&Answer { body_bytes, fields: fields.into_iter().collect(), ended, ..Answer::none() }).verdict
    };
    assert_eq!(answer(10, None, Ended::Complete), Verdict::Pass);
    assert_eq!(answer(LARGE, None, Ended::Cut), Verdict::Fail);
    assert_eq!(answer(1 << 20, Some("99999999"), Ended::Cut), Verdict::Fail);
    assert_eq!(answer(1 << 20, None, Ended::Cut), Verdict::Undecided);
}

use std::collections::BTreeMap;

use h2lab_wire::h2::frame::{flag, kind};
use h2lab_wire::h2::raw::frame;

use super::*;
use crate::probe::testing::{Peer, Request, Server, h2, head, prober, response, verdicts};

/// The verdicts of all checks of readiness on this server.
fn look_at(server: Server) -> BTreeMap<String, Verdict> {
    verdicts(server, |prober, found| {
        (found.h1, found.h2) = (Some(Protocol::H1), Some(Protocol::H2c));
        found.h1_answer = Some(ask(prober, Protocol::H1, &Question::get())?);
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
    let found = look_at(h2(fine_h2).and_h1(fine_h1));
    assert_eq!(found["MIGR101"], Verdict::Pass);
    assert_eq!(found["MIGR102"], Verdict::Pass);
    assert_eq!(found["MIGR103"], Verdict::Unsupported);
    assert_eq!(found["MIGR104"], Verdict::Unsupported);
    assert_eq!(found["MIGR105"], Verdict::Unsupported);
    assert_eq!(found["MIGR106"], Verdict::Undecided, "it was not asked");
    assert_eq!(found["MIGR107"], Verdict::Unsupported);
    assert_eq!(found["MIGR108"], Verdict::Pass);
    assert_eq!(found["MIGR109"], Verdict::Pass);
}

#[test]
fn another_answer_over_http2_and_forbidden_fields_fail() {
    let other = h2(|peer, request| {
        peer.send(&response(request.stream, 200, &[("connection", "close")], b"no"));
    });
    let found = look_at(other.and_h1(fine_h1));
    assert_eq!((found["MIGR101"], found["MIGR102"]), (Verdict::Fail, Verdict::Fail));
}

#[test]
fn what_is_not_answered_is_not_compared() {
    let found = look_at(h2(|_, _| {}).and_h1(fine_h1).silent());
    assert_eq!((found["MIGR101"], found["MIGR102"]), (Verdict::Undecided, Verdict::Undecided));
}

#[test]
fn a_body_that_is_held_back_to_its_end_does_not_stream() {
    let answer = |spread: Duration| Answer {
        status: 200,
        pieces: Some((Duration::ZERO, spread)),
        ended: AnswerEnd::Complete,
        ..Answer::none()
    };
    let pair = |h1, again, h2| ComparedAnswers { h1: answer(h1), again: answer(again), h2: answer(h2) };
    let (ns, slow) = (Duration::from_nanos(1), 3 * STREAMS);
    for (h1, again, h2, verdict) in [
        (slow, slow, Duration::ZERO, Verdict::Fail),
        (slow, slow, (slow / 4).saturating_sub(ns), Verdict::Fail),
        (slow, slow, slow / 4, Verdict::Pass),
        (STREAMS, slow, STREAMS / 4, Verdict::Pass),
        (slow, STREAMS.saturating_sub(ns), slow, Verdict::Unsupported),
    ] {
        assert_eq!(streaming(&pair(h1, again, h2)).verdict, verdict, "{h1:?} {again:?} {h2:?}");
    }
    let silent = ComparedAnswers { h2: Answer::none(), ..pair(slow, slow, slow) };
    assert_eq!(streaming(&silent).verdict, Verdict::Undecided);
}

#[test]
fn the_time_between_pieces_of_a_body_is_seen_over_both() {
    /// More than the sockets of both ends hold: once all of it was sent, its beginning was read.
    const FIRST: usize = 7 << 20;
    /// What is measured.
    const PAUSE: Duration = Duration::from_millis(60);
    let server = h2(|peer, request| {
        let data = |flags, bytes: &[u8]| frame(kind::DATA, flags, request.stream, bytes);
        peer.send(&[head(request.stream, 200, &[]), data(0, b"o")].concat());
        peer.until_read();
        std::thread::sleep(PAUSE);
        peer.send(&data(flag::END_STREAM, b"k"));
    });
    let server = server.and_h1(|peer, _| {
        peer.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", FIRST + 1).as_bytes());
        peer.send(&vec![b'o'; FIRST]);
        std::thread::sleep(PAUSE);
        peer.send(b"k");
    });
    let mut prober = prober(server);
    for protocol in [Protocol::H1, Protocol::H2c] {
        let answer = ask(&mut prober, protocol, &Question::get()).unwrap();
        assert_eq!(answer.ended, AnswerEnd::Complete, "{protocol}");
        assert!(answer.spread() >= PAUSE, "{protocol}: {:?}", answer.spread());
    }
}

#[test]
fn trailers_that_http2_loses_fail() {
    let with_trailers = |peer: &mut Peer, head: &str| {
        if head.starts_with("HEAD") {
            return fine_h1(peer, head);
        }
        peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-sum: 1\r\n\r\n");
    };
    assert_eq!(look_at(h2(fine_h2).and_h1(with_trailers))["MIGR104"], Verdict::Fail);
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
    assert_eq!(look(h2(|_, _| {}).announcing(&[(8, 1)]).silent()), Verdict::Undecided);
}

#[test]
fn expectations_are_compared_only_where_they_were_answered() {
    let answer = |status, interim: &[u16], ended: AnswerEnd| Answer {
        status,
        interim: interim.iter().map(|one| (*one, Vec::new(), Duration::ZERO)).collect(),
        ended,
        ..Answer::none()
    };
    let is = |h1: Answer, h2: Answer| {
        let expected = vec![(Protocol::H1, h1), (Protocol::H2c, h2)];
        expect(&UrlResults { expected, ..UrlResults::default() }).verdict
    };
    let fine = || answer(200, &[100], AnswerEnd::Complete);
    assert_eq!(is(fine(), fine()), Verdict::Pass);
    assert_eq!(is(fine(), answer(200, &[], AnswerEnd::Complete)), Verdict::Fail);
    assert_eq!(is(fine(), answer(0, &[], AnswerEnd::Closed("so".to_owned()))), Verdict::Fail);
    assert_eq!(is(fine(), answer(0, &[], AnswerEnd::Silence)), Verdict::Undecided);
    assert_eq!(
        is(answer(0, &[], AnswerEnd::Closed("so".to_owned())), answer(0, &[], AnswerEnd::Silence)),
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
fn a_limit_of_bodies_that_holds_over_one_way_in_alone_fails() {
    use super::body_limit::{BY_UPGRADE, Taken, judged};
    const ENOUGH: u64 = 128 << 10;
    let (open, refused) = (Taken::Open(ENOUGH, None), Taken::Refused("413".to_owned()));
    let verdict = |ways: &[&Taken]| {
        let ways: Vec<(&str, &Taken)> = ways.iter().map(|taken| ("a way", *taken)).collect();
        judged(&ways).0
    };
    // Go's MaxBytesHandler around x/net's h2c handler.
    assert_eq!(verdict(&[&refused, &open, &Taken::Broken(500)]), Verdict::Fail);
    assert_eq!(verdict(&[&refused, &open]), Verdict::Fail);
    assert_eq!(verdict(&[&refused, &Taken::Broken(500)]), Verdict::Fail);
    assert_eq!(verdict(&[&refused, &Taken::Refused("RST_STREAM CANCEL".to_owned())]), Verdict::Pass);
    assert_eq!(verdict(&[&open, &Taken::Open(2 * ENOUGH, Some(200))]), Verdict::Pass, "neither limits it");
    assert_eq!(verdict(&[&Taken::Other(405), &Taken::Other(405)]), Verdict::Pass);
    assert_eq!(verdict(&[&Taken::Other(405), &Taken::Other(404)]), Verdict::Undecided);
    assert_eq!(verdict(&[&Taken::Other(405), &open]), Verdict::Undecided);
    assert_eq!(
        verdict(&[&refused, &Taken::Open(ENOUGH - 1, None)]),
        Verdict::Undecided,
        "too little was taken"
    );
    assert_eq!(verdict(&[&refused]), Verdict::Unsupported);
    let stricter = [("HTTP/1.1", &open), ("HTTP/2", &open), (BY_UPGRADE, &refused)];
    assert_eq!(judged(&stricter).0, Verdict::Pass, "an upgrade should have a limit of its own");
    let looser = [("HTTP/1.1", &refused), ("HTTP/2", &refused), (BY_UPGRADE, &open)];
    assert_eq!(judged(&looser).0, Verdict::Fail);
}

#[test]
fn a_body_goes_over_each_way_in() {
    let limited = |peer: &mut Peer, head: &str| {
        let status = if head.contains("h2c") { "500 Broken" } else { "413 Too Large" };
        peer.send(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes());
    };
    let without_a_limit = h2(|peer, request| peer.send(&response(request.stream, 200, &[], b"ok")));
    let found = crate::probe::testing::checks(without_a_limit.and_h1(limited), |prober, found| {
        (found.h1, found.h2, found.upgrades) = (Some(Protocol::H1), Some(Protocol::H2c), true);
        let check = super::body_limit::body_limit(prober, Protocol::H1, found)?;
        found.add(check);
        Ok(())
    });
    assert_eq!((found[0].id.as_str(), found[0].verdict), ("MIGR109", Verdict::Fail));
    let summary = &found[0].summary;
    assert!(summary.starts_with("HTTP/1.1: 413; HTTP/2: 200 after "), "{summary}");
    assert!(summary.ends_with("; h2c by upgrade: 500"), "{summary}");
}

#[test]
fn a_large_response_is_reported_and_one_without_a_known_length_is_not_judged() {
    let answer = |body_bytes, length: Option<&str>, ended: AnswerEnd| {
        let fields = length.map(|length| ("content-length".to_owned(), length.to_owned()));
        large(&Answer { body_bytes, fields: fields.into_iter().collect(), ended, ..Answer::none() }).verdict
    };
    assert_eq!(answer(10, None, AnswerEnd::Complete), Verdict::Pass);
    assert_eq!(answer(LARGE, None, AnswerEnd::Cut), Verdict::Fail);
    assert_eq!(answer(1 << 20, Some("99999999"), AnswerEnd::Cut), Verdict::Fail);
    assert_eq!(answer(1 << 20, None, AnswerEnd::Cut), Verdict::Undecided);
}

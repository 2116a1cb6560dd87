use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::probe::testing::{Server, checks, h1, h2, prober, reset, response};

/// The verdict of the one check that `look` makes of `server`.
fn verdict(
    server: Server,
    look: impl FnOnce(&mut Prober, &mut UrlResults) -> Result<Check>,
) -> (Verdict, String) {
    let mut all = checks(server, |prober, found| {
        let check = look(prober, found)?;
        found.add(check);
        Ok(())
    });
    let check = all.pop().unwrap();
    (check.verdict, check.summary)
}

const FINE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

#[test]
fn http1_is_decided_by_an_answer_and_not_by_silence() {
    let is = |server| verdict(server, |prober, found| http1(prober, Protocol::H1, found)).0;
    assert_eq!(is(h1(|peer, _| peer.send(FINE.as_bytes()))), Verdict::Pass);
    assert_eq!(is(h1(|peer, _| peer.close())), Verdict::Fail);
    assert_eq!(is(h1(|_, _| {}).silent()), Verdict::Undecided);
}

#[test]
fn an_answer_in_http10_is_none_of_http11() {
    let server = h1(|peer, _| peer.send(b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok"));
    let (verdict, summary) = verdict(server, |prober, found| http1(prober, Protocol::H1, found));
    assert_eq!(verdict, Verdict::Fail);
    assert!(summary.ends_with("in HTTP/1.0"), "{summary}");
}

#[test]
fn http10_ends_by_closing_and_a_long_body_is_not_waited_for() {
    let is = |answer: &'static str, closes: bool, most_read: u64| {
        let server = h1(move |peer, _| {
            peer.send(answer.as_bytes());
            if closes {
                peer.close();
            }
        });
        verdict(if closes { server } else { server.silent() }, |prober, _| {
            prober.most_read = most_read;
            http10(prober, Protocol::H1)
        })
    };
    assert_eq!(is("HTTP/1.0 200 OK\r\n\r\nok", true, 100).0, Verdict::Pass);
    assert_eq!(is(FINE, false, 100).0, Verdict::Fail);
    assert_eq!(
        is("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", true, 100).0,
        Verdict::Fail
    );
    assert_eq!(is("HTTP/1.1 505 No\r\n\r\n", true, 100).0, Verdict::Unsupported);
    assert_eq!(is("HTTP/1.0 200 OK\r\n\r\nmore than a little", false, 4).0, Verdict::Undecided);
    assert_eq!(is("HTTP/1.0 200 OK\r\ncontent-length: 9\r\n\r\nok", false, 100).0, Verdict::Undecided);
    assert_eq!(is("", false, 100).0, Verdict::Undecided);
}

#[test]
fn http2_with_a_body_that_is_cut_off_is_spoken() {
    let is = |server: Server, most_read| {
        verdict(server, |prober, found| {
            prober.most_read = most_read;
            http2(prober, Protocol::H2c, found)
        })
        .0
    };
    let fine = || h2(|peer, request| peer.send(&response(request.stream, 200, &[], &[b'x'; 9_000])));
    assert_eq!(is(fine(), 1 << 20), Verdict::Pass);
    assert_eq!(is(fine(), 1_000), Verdict::Pass);
    assert_eq!(is(h2(|peer, request| peer.send(&reset(request.stream, 2))), 1_000), Verdict::Fail);
    assert_eq!(is(h2(|_, _| {}).silent(), 1_000), Verdict::Undecided);
    assert_eq!(is(h1(|peer, _| peer.close()), 1_000), Verdict::Unsupported);
}

#[test]
fn an_offer_is_taken_refused_or_ignored() {
    let is = |answer: &'static str| {
        let server = h1(move |peer, _| {
            peer.send(answer.as_bytes());
            if answer.is_empty() {
                peer.close();
            }
        });
        let is_whole = answer.is_empty() || answer.contains("content-length");
        verdict(if is_whole { server } else { server.silent() }, |prober, found| {
            found.h1_answer = Some(Answer { status: 200, ..Answer::none() });
            upgrade(prober, Protocol::H1, found)
        })
        .0
    };
    assert_eq!(is(FINE), Verdict::Ignored);
    assert_eq!(
        is("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
        Verdict::Ignored
    );
    assert_eq!(is("HTTP/1.1 403 No\r\ncontent-length: 0\r\n\r\n"), Verdict::Unsupported);
    assert_eq!(is(""), Verdict::Unsupported);
    assert_eq!(is("HTTP/1.1 101 Switching Protocols\r\n\r\n"), Verdict::Fail);
    assert_eq!(is("HTTP/1.1 200 O"), Verdict::Unsupported);
    let silent = verdict(h1(|_, _| {}).silent(), |prober, found| upgrade(prober, Protocol::H1, found));
    assert_eq!(silent.0, Verdict::Undecided);
}

#[test]
fn over_tls_an_offer_is_made_too() {
    // That a server speaks no TLS shows in the attempt, not in the scheme.
    let (verdict, summary) =
        verdict(h1(|peer, _| peer.close()), |prober, found| upgrade(prober, Protocol::H1s, found));
    assert_eq!(verdict, Verdict::Unsupported, "{summary}");
    assert!(!summary.contains("ALPN"), "{summary}");
}

#[test]
fn alt_svc_names_host_and_port() {
    assert_eq!(h3_alternatives("h3=\":443\"; ma=86400"), [("", 443)]);
    assert_eq!(h3_alternatives("h2=\":1\", h3=\"a.example:8443\", h3-29=\":2\""), [("a.example", 8_443)]);
    assert_eq!(h3_alternatives("clear"), []);
}

#[test]
fn http3_that_is_announced_elsewhere_is_not_asked_and_not_judged() {
    let is = |alt_svc: Option<String>| {
        let mut prober = prober(h1(|_, _| {}));
        let (_, port) = prober.host.authority.split_once(':').unwrap();
        let alt_svc = alt_svc.map(|one| one.replace("PORT", port));
        http3(&mut prober, &mut UrlResults { alt_svc, ..UrlResults::default() }).unwrap()
    };
    assert_eq!(is(None).verdict, Verdict::Unsupported);
    assert_eq!(is(Some("h3=\":PORT\"".to_owned())).verdict, Verdict::Fail);
    let elsewhere = is(Some("h3=\":1\"".to_owned()));
    assert_eq!(elsewhere.verdict, Verdict::Undecided, "{}", elsewhere.summary);
    assert!(elsewhere.evidence[0].items[0].seen.contains("h3="));
}

#[test]
fn a_redirect_to_tls_serves_nothing_in_clear() {
    let answer = |status, to: &str| Answer {
        status,
        fields: vec![("location".to_owned(), to.to_owned())],
        ..Answer::none()
    };
    assert!(serves_in_clear(&answer(200, "")) && serves_in_clear(&answer(302, "/login")));
    assert!(!serves_in_clear(&answer(301, "HTTPS://a.example/")) && !serves_in_clear(&answer(426, "")));
}

#[test]
fn what_else_a_port_speaks_is_undecided_when_nothing_comes_back() {
    let is = |server: Server, timeout_over: bool| {
        verdict(server, |prober, found| {
            found.h1 = Some(Protocol::H1s);
            if timeout_over {
                while prober.take_request().is_ok() {}
            }
            ports(prober, true, found)
        })
        .0
    };
    assert_eq!(is(h1(|peer, _| peer.send(FINE.as_bytes())), false), Verdict::Fail);
    assert_eq!(is(h1(|_, _| {}).silent(), false), Verdict::Undecided);
    assert_eq!(is(h1(|peer, _| peer.close()), false), Verdict::Unsupported);
    assert_eq!(is(h1(|peer, _| peer.send(FINE.as_bytes())), true), Verdict::Undecided);
}

#[test]
fn a_large_response_is_fetched_in_full_only_once() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let server = h1(move |peer, _| {
        peer.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", 64 << 20).as_bytes());
        for _ in 0..1_024 {
            peer.send(&vec![b'x'; 64 << 10]);
            counted.fetch_add(64 << 10, Ordering::Relaxed);
        }
    });
    let mut found = UrlResults::default();
    let mut prober = prober(server);
    http1(&mut prober, Protocol::H1, &mut found).unwrap();
    assert!(found.is_large && found.method() == "HEAD");
    let first = prober.budget.spent(prober.now()).received;
    http10(&mut prober, Protocol::H1).unwrap();
    let both = prober.budget.spent(prober.now()).received;
    assert!(first < 10 << 20 && both - first < 2 << 20, "{first} {both}");
}

#[test]
fn text_of_the_peer_is_shown_and_not_obeyed() {
    assert_eq!(shown("\x1b[31mred\r\n"), "\\u{1b}[31mred\\r\\n");
    assert_eq!(shown(&"x".repeat(500)).chars().count(), WIDTH + 2);
}

#[test]
fn only_the_protocols_that_are_asked_for_are_tried_with_the_users_fields() {
    let is_ours = |value: Option<&str>| if value == Some("1") { 200 } else { 400 };
    let server = h2(move |peer, request| {
        peer.send(&response(request.stream, is_ours(request.field("x-me")), &[], b"x"));
    })
    .and_h1(|peer, request| {
        assert!(request.contains("Upgrade: h2c"), "HTTP/1.1 is not asked for by itself");
        peer.send(FINE.as_bytes());
    });
    let mut prober = prober(server);
    prober.host.fields = vec![("x-me".to_owned(), "1".to_owned())];
    prober.host.protocols = vec![Protocol::H2c];
    let mut found = UrlResults::default();
    look(&mut prober, &"http://localhost/".parse().unwrap(), &mut found).unwrap();
    let checks: Vec<&str> = found.checks.iter().map(|check| check.id.as_str()).collect();
    assert_eq!(checks, ["PROT104", "PROT105"]);
    assert_eq!(found.h2_answer.unwrap().status, 200);
    prober.host.protocols = vec![Protocol::H1];
    let names = ["X-Me"];
    assert_eq!(prober.host.fields_beside(&names).count(), 0, "a check's own field goes instead");
}

use std::collections::BTreeMap;

use h2lab_model::probe::{Allowance, Budget, Check, Exhausted, ServerLimits, Verdict};
use h2lab_model::workload::Protocol;
use h2lab_wire::h2::frame::{flag, kind};
use h2lab_wire::h2::raw::frame;

use super::*;
use crate::probe::ProbeError;
use crate::probe::ask::{Question, ask};
use crate::probe::raw_h2_client::{Opening, RawH2Client};
use crate::probe::testing::{Peer, Request, Server, h1, h2, head, prober, prober_within, reset, response};

/// `NO_ERROR`, `REFUSED_STREAM` and `ENHANCE_YOUR_CALM`.
const CODES: (u32, u32, u32) = (0, 7, 11);

fn fine(peer: &mut Peer, request: &Request) {
    peer.send(&response(request.stream, 200, &[], b"ok"));
}

/// What `look` finds of `server`.
fn find(
    server: Server,
    allowance: Allowance,
    look: impl FnOnce(&mut Prober, &mut UrlResults) -> Result<()>,
) -> (BTreeMap<String, Check>, ServerLimits) {
    let mut found = UrlResults::default();
    look(&mut prober_within(server, allowance), &mut found).unwrap();
    (found.checks.into_iter().map(|check| (check.id.clone(), check)).collect(), found.limits)
}

fn fast(requests: u64) -> Allowance {
    Allowance { requests, rate: 100_000.0, ..Allowance::OWNED }
}

/// Verdict and summary of the one check of `look`.
fn one(
    server: Server,
    look: impl FnOnce(&mut Prober, &mut UrlResults) -> Result<Check>,
) -> (Verdict, String) {
    let (checks, _) = find(server, fast(30_000), |prober, found| {
        let check = look(prober, found)?;
        found.add(check);
        Ok(())
    });
    let check = checks.into_values().next().unwrap();
    (check.verdict, check.summary)
}

/// A server that ends each connection in an orderly way after the fifth request.
fn five(peer: &mut Peer, request: &Request) {
    match peer.requests {
        ..=4 => fine(peer, request),
        5 => {
            fine(peer, request);
            peer.goaway(request.stream, CODES.0);
        }
        _ => {}
    }
}

fn quota_of(server: Server, requests: u64) -> (BTreeMap<String, Check>, ServerLimits) {
    find(server, fast(requests), |prober, found| quota::http2(prober, Protocol::H2c, found))
}

#[test]
fn a_quota_that_two_connections_agree_on_is_exact() {
    let (checks, limits) = quota_of(h2(five), 1_000);
    assert_eq!(limits.requests_per_connection.unwrap().value, Some(5));
    assert_eq!(checks["LIMT101"].verdict, Verdict::Fail);
    assert_eq!(checks["LIMT102"].verdict, Verdict::Fail, "abrupt");
    assert_eq!(checks["LIMT103"].verdict, Verdict::Pass);
}

#[test]
fn what_is_merely_not_answered_or_fails_is_no_quota() {
    let third = |what: fn(&mut Peer, &Request)| {
        h2(move |peer, request| if peer.requests == 3 { what(peer, request) } else { fine(peer, request) })
    };
    for (server, words) in [
        (third(|_, _| {}).silent(), "request 3 was not answered in time"),
        (third(|peer, request| peer.send(&reset(request.stream, CODES.1))), "request 3 was reset"),
        (third(|peer, request| peer.goaway(request.stream, CODES.2)), "ENHANCE_YOUR_CALM"),
    ] {
        let (checks, limits) = quota_of(server, 1_000);
        let quota = &checks["LIMT101"];
        assert_eq!(quota.verdict, Verdict::Undecided, "{}", quota.summary);
        assert!(quota.summary.contains(words), "{}", quota.summary);
        assert_eq!(limits.requests_per_connection.unwrap().value, None);
        assert_eq!(checks["LIMT102"].verdict, Verdict::Undecided);
    }
}

#[test]
fn a_second_connection_that_ends_elsewhere_makes_it_an_interval() {
    let server = h2(|peer, request| {
        let last = if peer.connection == 0 { 9 } else { 6 };
        if peer.requests <= last {
            fine(peer, request);
        }
        if peer.requests == last {
            peer.goaway(request.stream, CODES.0);
        }
    });
    let quota = quota_of(server, 1_000).1.requests_per_connection.unwrap();
    assert_eq!((quota.value, quota.at_least, quota.at_most), (None, Some(6), Some(9)));
}

#[test]
fn a_budget_that_ends_before_a_quota_is_met_decides_nothing() {
    let (checks, _) = quota_of(h2(fine), 60);
    let quota = &checks["LIMT101"];
    assert_eq!(quota.verdict, Verdict::Undecided);
    assert!(quota.summary.ends_with("--max-requests allows more"), "{}", quota.summary);
}

#[test]
fn a_graceful_end_passes_and_a_close_without_goaway_fails() {
    let graceful = h2(|peer, request| {
        fine(peer, request);
        if peer.requests == 5 {
            peer.goaway(0x7fff_ffff, CODES.0);
            peer.goaway(request.stream, CODES.0);
        }
    });
    assert_eq!(quota_of(graceful, 1_000).0["LIMT102"].verdict, Verdict::Pass);
    let rude = h2(|peer, request| {
        fine(peer, request);
        if peer.requests == 5 {
            peer.close();
        }
    });
    let (checks, _) = quota_of(rude, 1_000);
    assert_eq!(checks["LIMT102"].verdict, Verdict::Fail);
    assert_eq!(checks["LIMT102"].severity, h2lab_model::probe::Severity::Medium);
}

#[test]
fn requests_above_the_last_stream_must_not_be_answered() {
    let twice = h2(|peer, request| {
        if peer.requests == 5 {
            peer.goaway(request.stream, CODES.0);
        }
        fine(peer, request);
    });
    let (checks, _) = quota_of(twice, 1_000);
    assert_eq!(checks["LIMT103"].verdict, Verdict::Fail, "{}", checks["LIMT103"].summary);
    // Those below it that are open still decide nothing.
    let waiting = h2(|peer, request| match peer.requests {
        ..=4 => fine(peer, request),
        5 => {
            fine(peer, request);
            let more = if peer.connection == 0 { 0 } else { 4 };
            peer.goaway(request.stream + more, CODES.0);
        }
        _ => {}
    });
    let (checks, _) = quota_of(waiting.silent(), 1_000);
    assert_eq!(checks["LIMT103"].verdict, Verdict::Undecided, "{}", checks["LIMT103"].summary);
}

#[test]
fn http1_ends_after_as_many_requests_as_were_answered() {
    let quota = |server: Server| {
        let mut prober = prober_within(server, fast(400));
        let mut found = UrlResults::default();
        let check = quota::http1(&mut prober, Protocol::H1, &mut found).unwrap();
        (check.verdict, found.limits.h1_requests_per_connection.unwrap().value)
    };
    // An interim response is none of the responses.
    let four = h1(|peer, _| {
        let close = if peer.requests == 4 { "connection: close\r\n" } else { "" };
        let hints = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n";
        peer.send(format!("{hints}HTTP/1.1 200 OK\r\n{close}content-length: 2\r\n\r\nok").as_bytes());
        if peer.requests == 4 {
            peer.close();
        }
    });
    assert_eq!(quota(four), (Verdict::Pass, Some(4)));
    assert_eq!(quota(h1(|_, _| {}).silent()), (Verdict::Undecided, None));
    let endless = h1(|peer, _| peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"));
    assert_eq!(quota(endless), (Verdict::Undecided, None));
}

#[test]
fn a_body_that_never_ends_is_left() {
    let endless = h1(|peer, _| {
        peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        while peer.is_open() {
            peer.send(b"1\r\nx\r\n");
        }
    });
    let mut prober = prober(endless);
    prober.most_read = 1 << 20;
    let check = quota::http1(&mut prober, Protocol::H1, &mut UrlResults::default()).unwrap();
    assert_eq!(check.verdict, Verdict::Undecided, "{}", check.summary);
    let received = prober.budget.spent(prober.now()).received;
    assert!(received < 2 * prober.most_read, "{received}: {}", check.summary);
}

#[test]
fn frames_without_an_end_are_left_and_not_kept() {
    let flood = h2(|peer, _| {
        let updates: Vec<u8> = (0..1_000_u32)
            .flat_map(|n| frame(kind::WINDOW_UPDATE, 0, 2 * n + 1_001, &1_u32.to_be_bytes()))
            .collect();
        let debug = [&[0_u8; 8][..], &[0x1b; 9_000]].concat();
        while peer.is_open() {
            peer.send(&updates);
            peer.send(&frame(kind::GOAWAY, 0, 0, &debug));
        }
    });
    let mut prober = prober(flood.silent().endless());
    let mut client = RawH2Client::open(&mut prober, Protocol::H2c, &Opening::default()).unwrap();
    client.request(&mut prober, "GET", &[], true).unwrap();
    let until = prober.soon();
    assert!(!client.until(until, &mut prober, |_| false).unwrap());
    assert!(prober.now() >= until, "nothing else ends it");
    assert_eq!(client.streams.len(), 1);
    assert!(client.goaways.len() <= 16);
    let rendered = client.ended().unwrap();
    assert!(rendered.len() < 4_000 && !rendered.contains('\x1b'), "{} bytes", rendered.len());
}

#[test]
fn what_may_be_received_is_bounded() {
    let server = h2(|peer, request| {
        peer.send(&head(request.stream, 200, &[]));
        while peer.is_open() {
            peer.send(&frame(kind::DATA, 0, request.stream, &[0; 16_384]));
        }
    });
    let mut prober = prober_within(server, Allowance { received: 1 << 20, ..Allowance::OWNED });
    let mut client = RawH2Client::open(&mut prober, Protocol::H2c, &Opening::default()).unwrap();
    assert!(matches!(client.ask(&mut prober, "GET"), Err(ProbeError::Exhausted(_))));
    assert_eq!(prober.budget.spent(prober.now()).received, 1 << 20);
}

/// Serves the first `N` requests of a connection and refuses others.
fn holds<const N: usize>(peer: &mut Peer, request: &Request) {
    let bytes =
        if peer.requests <= N { head(request.stream, 200, &[]) } else { reset(request.stream, CODES.1) };
    peer.send(&bytes);
}

#[test]
fn streams_at_a_time_are_those_whose_response_begins_while_all_are_open() {
    let look = |announced: u32, server: Server| {
        one(server.announcing(&[(3, announced)]), move |prober, found| {
            let bound = h2lab_model::probe::Bound::exact(u64::from(announced), "streams", "so");
            found.limits.concurrent_streams_advertised = Some(bound);
            streams::look(prober, Protocol::H2c, found)
        })
    };
    assert_eq!(look(5, h2(holds::<5>)).0, Verdict::Pass);
    assert_eq!(look(5, h2(holds::<3>)).0, Verdict::Fail);
    assert_eq!(look(5, h2(fine)).0, Verdict::Undecided, "no body holds them open");
    assert_eq!(look(5, h2(|_, _| {}).silent()).0, Verdict::Undecided, "nothing is answered");
}

#[test]
fn an_idle_connection_ends_within_an_interval() {
    let look = |server: Server, longest: u64| {
        let (checks, limits) = find(server, fast(100), |prober, found| {
            found.h2 = Some(Protocol::H2c);
            idle::look(prober, Duration::from_millis(longest), found, &mut |_| ())
        });
        (checks["LIMT105"].clone(), limits.idle_ms.unwrap())
    };
    let after = |goes: fn(&mut Peer, u32)| {
        h2(move |peer, request| {
            fine(peer, request);
            goes(peer, request.stream);
            peer.close();
        })
    };
    let (check, bound) = look(after(|peer, last| peer.goaway(last, CODES.0)), 20_000);
    assert_eq!(check.verdict, Verdict::Pass, "{}", check.summary);
    assert!(bound.at_least.unwrap() <= bound.at_most.unwrap(), "{bound:?}");
    assert_eq!(look(after(|_, _| {}), 20_000).0.verdict, Verdict::Fail);
    let (open, bound) = look(h2(fine), 60);
    assert_eq!((open.verdict, bound.at_most), (Verdict::Undecided, None));
    assert!(open.summary.contains("--idle watches longer"), "{}", open.summary);
}

#[test]
fn an_idle_watch_that_the_budget_ends_says_how_long_it_was() {
    let mut told = Vec::new();
    let (checks, _) = find(h2(fine), fast(100), |prober, found| {
        found.h2 = Some(Protocol::H2c);
        let all = idle::open(prober, found)?;
        let short = Allowance { time: Duration::from_millis(50), ..fast(100) };
        prober.budget = Budget::new(short, prober.now());
        idle::watch(prober, all, Duration::from_secs(600), found, &mut |what| told.push(what.to_owned()))
    });
    assert_eq!(told, [format!("{}: 0 s left", idle::STEP)], "each second once");
    let check = &checks["LIMT105"];
    assert_eq!(check.verdict, Verdict::Undecided);
    assert!(
        !check.summary.contains("600") && check.summary.contains("its time is over"),
        "{}",
        check.summary
    );
}

#[test]
fn a_wait_ends_with_the_budget_and_is_not_taken_for_silence() {
    let silent = || prober_within(h2(|_, _| {}), Allowance { time: Duration::from_millis(50), ..fast(100) });
    let mut prober = silent();
    let asked = RawH2Client::open(&mut prober, Protocol::H2c, &Opening::default())
        .and_then(|mut client| client.ask(&mut prober, "GET").map(drop));
    assert!(matches!(asked, Err(ProbeError::Exhausted(Exhausted::Time(_)))), "{asked:?}");
    let asked = ask(&mut silent(), Protocol::H2c, &Question::get()).map(drop);
    assert!(matches!(asked, Err(ProbeError::Exhausted(Exhausted::Time(_)))), "{asked:?}");
}

/// A server that takes heads whose fields have up to `most` bytes, and does `else` with others.
fn heads_to(most: usize, other: fn(&mut Peer, &Request)) -> Server {
    h2(move |peer, request| {
        let is_ours = |(name, _): &&(String, String)| name == "x-h2lab";
        let ours = request.fields.iter().filter(is_ours);
        let bytes: usize = ours.map(|(name, value)| name.len() + value.len()).sum();
        if bytes <= most { fine(peer, request) } else { other(peer, request) }
    })
}

#[test]
fn the_longest_head_is_found_and_only_a_refusal_is_one() {
    let look = |server: fn() -> Server| {
        let field = one(server(), |prober, found| sizes::field(prober, Protocol::H2c, found));
        let block = one(server(), |prober, found| sizes::block(prober, Protocol::H2c, found));
        (field, block)
    };
    let (field, block) =
        look(|| heads_to(5_000, |peer, request| peer.send(&response(request.stream, 431, &[], b""))));
    assert_eq!(field, (Verdict::Pass, "exactly 4993 bytes are accepted: beyond it: 431".to_owned()));
    assert_eq!(block, (Verdict::Pass, "exactly 5000 bytes are accepted: beyond it: 431".to_owned()));
    let (field, block) =
        look(|| heads_to(5_000, |peer, request| peer.send(&response(request.stream, 500, &[], b""))));
    assert_eq!((field.0, block.0), (Verdict::Fail, Verdict::Fail));
    let (field, block) = look(|| heads_to(5_000, |_, _| {}).silent());
    assert_eq!((field.0, block.0), (Verdict::Undecided, Verdict::Undecided));
}

#[test]
fn a_request_above_the_last_stream_is_made_again() {
    // Every third request of a connection is left unprocessed by an orderly GOAWAY.
    let server = h2(|peer, request| {
        let bytes: usize = request.fields.iter().map(|(_, value)| value.len()).sum();
        match peer.requests {
            3 => {
                peer.goaway(request.stream - 2, CODES.0);
                peer.close();
            }
            _ if bytes < 4_000 => fine(peer, request),
            _ => peer.send(&response(request.stream, 431, &[], b"")),
        }
    });
    let (verdict, summary) = one(server, |prober, found| sizes::field(prober, Protocol::H2c, found));
    assert!(verdict == Verdict::Pass && summary.starts_with("exactly 39"), "{verdict} {summary}");
}

#[test]
fn the_longest_body_is_found_by_its_announcement_or_by_sending_it() {
    let announced =
        |request: &Request| request.field("content-length").map_or(0, |n| n.parse::<u64>().unwrap());
    let look = |server: Server| one(server, |prober, found| sizes::body(prober, Protocol::H2c, found));
    let refuses = h2(move |peer, request| {
        let status = if announced(request) > 5_000 { 413 } else { 200 };
        peer.send(&response(request.stream, status, &[], b""));
    });
    let (verdict, summary) = look(refuses);
    assert!(verdict == Verdict::Pass && summary.starts_with("exactly 5000 bytes"), "{summary}");
    let (verdict, _) = look(h2(fine));
    assert_eq!(verdict, Verdict::Pass, "an answer that does not wait needs no limit");
    let (verdict, summary) = look(h2(|peer, request| peer.send(&response(request.stream, 401, &[], b""))));
    assert_eq!(verdict, Verdict::Undecided, "{summary}");
    let other = h2(move |peer, request| {
        let status = match announced(request) {
            0..10_000 => 200,
            10_000..1_000_000_000 => 405,
            _ => 413,
        };
        peer.send(&response(request.stream, status, &[], b""));
    });
    let (verdict, summary) = look(other);
    assert!(verdict == Verdict::Undecided && !summary.contains("between"), "{summary}");
    assert!(summary.starts_with("the limit was not found: ") && summary.contains(" get 405"), "{summary}");
    let counts = h2(|_, _| {}).framing(|peer, one| {
        if one.header.kind == kind::DATA {
            peer.frames += 1_000;
            if peer.frames > 3_000 {
                peer.send(&response(one.header.stream, 413, &[], b""));
            }
        }
        one.header.kind == kind::DATA
    });
    let (verdict, summary) = look(counts.silent());
    assert!(verdict == Verdict::Pass && summary.contains("413 within"), "{summary}");
    assert_eq!(look(h2(|_, _| {}).silent()).0, Verdict::Undecided);
}

#[test]
fn pings_are_answered_or_the_server_is_silent_altogether() {
    let look = |server: Server| one(server, |prober, found| flow::pings(prober, Protocol::H2c, found)).0;
    let ignoring = |peer: &mut Peer, one: &crate::probe::testing::ClientFrame| {
        let _ = peer;
        one.header.kind == kind::PING
    };
    assert_eq!(look(h2(fine)), Verdict::Pass);
    assert_eq!(look(h2(fine).framing(ignoring).silent()), Verdict::Fail);
    assert_eq!(look(h2(|_, _| {}).framing(ignoring).silent()), Verdict::Undecided);
    let strict = h2(fine).framing(|peer, one| {
        if one.header.kind == kind::PING && peer.frames > 20 {
            peer.goaway(0, CODES.2);
            peer.close();
        }
        false
    });
    assert_eq!(look(strict), Verdict::Fail);
}

#[test]
fn uploads_need_credit_in_pieces_of_some_size() {
    let server = |credit: fn(u32) -> Vec<u32>| {
        h2(|_, _| {}).framing(move |peer, one| {
            if one.header.kind != kind::DATA {
                return false;
            }
            for n in credit(one.header.length) {
                for stream in [0, one.header.stream] {
                    peer.send(&frame(kind::WINDOW_UPDATE, 0, stream, &n.to_be_bytes()));
                }
            }
            if one.header.has(flag::END_STREAM) {
                peer.send(&response(one.header.stream, 200, &[], b"ok"));
            }
            true
        })
    };
    let look = |server| one(server, |prober, found| flow::upload(prober, Protocol::H2c, found));
    assert_eq!(look(server(|n| vec![n])).0, Verdict::Pass);
    let (verdict, summary) = look(server(|n| vec![256; n as usize / 256]));
    assert_eq!(verdict, Verdict::Fail, "{summary}");
    let (verdict, summary) = look(server(|_| Vec::new()).silent());
    assert!(verdict == Verdict::Fail && summary.contains("no more credit"), "{summary}");
}

#[test]
fn data_frames_of_a_few_bytes_fail() {
    let look = |pieces: usize, piece: usize| {
        let server = h2(move |peer, request| {
            let mut bytes = head(request.stream, 200, &[]);
            for _ in 0..pieces {
                bytes.extend(frame(kind::DATA, 0, request.stream, &vec![b'x'; piece]));
            }
            bytes.extend(frame(kind::DATA, flag::END_STREAM, request.stream, &[]));
            peer.send(&bytes);
        });
        one(server, |prober, found| flow::frames(prober, Protocol::H2c, found)).0
    };
    assert_eq!(look(10, 16_000), Verdict::Pass);
    assert_eq!(look(1_000, 100), Verdict::Fail);
    assert_eq!(look(2, 100), Verdict::Undecided);
}

#[test]
fn an_answer_is_asked_for_within_the_budget() {
    let within = Allowance { bytes: 20, ..Allowance::GENTLE };
    let mut prober = prober_within(h2(fine), within);
    assert!(matches!(ask(&mut prober, Protocol::H2c, &Question::get()), Err(ProbeError::Exhausted(_))));
    assert_eq!(prober.budget.spent(prober.now()).bytes, 0, "nothing goes that has no room");
}

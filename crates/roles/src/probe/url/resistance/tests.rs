use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::probe::testing::{ClientFrame, Peer, Request, Server, checks, h2, head, prober, reset, response};

fn fine(peer: &mut Peer, request: &Request) {
    peer.send(&response(request.stream, 200, &[], b"ok"));
}

fn held(peer: &mut Peer, request: &Request) {
    peer.send(&head(request.stream, 200, &[]));
}

/// Frames of floods are read and discarded.
fn forgets(_: &mut Peer, one: &ClientFrame) -> bool {
    let is_flood = matches!(one.header.kind, kind::PING | kind::DATA | kind::CONTINUATION);
    is_flood || one.header.kind == kind::SETTINGS && one.payload == settings(&[(4, 65_535)])
}

/// The connection ends with its sixtieth frame.
fn counts(peer: &mut Peer, one: &ClientFrame) -> bool {
    if peer.frames > 60 {
        peer.goaway(0, ErrorCode::ENHANCE_YOUR_CALM.0);
        peer.close();
    }
    forgets(peer, one)
}

/// The verdict on one attack, with fewer rounds where those are many.
fn made(attack: &Attack, server: Server) -> Check {
    let mut prober = prober(server);
    let watch = Watch::new(None);
    let mut under = Under {
        prober: &mut prober,
        protocol: Protocol::H2c,
        ordinary: Some(200),
        after: None,
        watch: &watch,
    };
    under.made(attack).unwrap()
}

#[test]
fn every_attack_shows_whether_there_is_a_bound() {
    for attack in attacks() {
        let attack =
            Attack { most: if attack.not_reading { |_| Some(3_000) } else { attack.most }, ..attack };
        let id = attack.meta.id;
        let unbounded = if attack.holds { h2(held).announcing(&[(3, 30)]) } else { h2(fine) };
        // A bound by count, or where there are few rounds, by a refusal.
        let bounded = if id == "RESI104" {
            h2(|peer, request| peer.send(&response(request.stream, 431, &[], b"")))
        } else {
            h2(fine).framing(counts)
        };
        let check = made(&attack, unbounded.framing(forgets).silent());
        assert_eq!(check.verdict, Verdict::Fail, "{id}: {}", check.summary);
        assert!(check.summary.ends_with("other clients are served meanwhile"), "{id}: {}", check.summary);
        let check = made(&attack, bounded);
        assert_eq!(check.verdict, Verdict::Pass, "{id}: {}", check.summary);
    }
}

#[test]
fn what_the_path_answers_to_everybody_is_no_sign() {
    let [rapid, ..] = attacks();
    let mut prober = prober(h2(|peer, request| peer.send(&response(request.stream, 503, &[], b""))));
    let watch = Watch::new(None);
    let mut under = Under {
        prober: &mut prober,
        protocol: Protocol::H2c,
        ordinary: Some(503),
        after: None,
        watch: &watch,
    };
    assert_eq!(under.made(&rapid).unwrap().verdict, Verdict::Fail);
}

#[test]
fn responses_that_end_with_a_closed_window_decide_nothing() {
    let [.., beyond] = attacks();
    let check = made(&beyond, h2(fine).announcing(&[(3, 30)]));
    assert_eq!(check.verdict, Verdict::Undecided, "{}", check.summary);
    let much = made(&beyond, h2(held).announcing(&[(3, 100_000)]));
    assert_eq!(much.verdict, Verdict::Undecided, "{}", much.summary);
    let refuses = h2(|peer, request| {
        let bytes =
            if peer.requests > 30 { reset(request.stream, 7) } else { head(request.stream, 200, &[]) };
        peer.send(&bytes);
    });
    assert_eq!(made(&beyond, refuses.announcing(&[(3, 30)])).verdict, Verdict::Pass);
}

#[test]
fn a_field_block_goes_on_to_twice_what_is_announced() {
    let most = |settings: &[(u16, u32)]| {
        let mut prober = prober(h2(fine).announcing(settings));
        twice_the_header_list(&RawH2Client::open(&mut prober, Protocol::H2c, &Opening::default()).unwrap())
    };
    for announced in [None, Some(1_048_896), Some(1 << 20)] {
        let settings: Vec<(u16, u32)> = announced.map(|n| (6, n)).into_iter().collect();
        let bytes = most(&settings).unwrap() * JUNK.1;
        assert!(bytes >= 2 * announced.unwrap_or(1 << 20), "{announced:?}: {bytes}");
    }
    assert_eq!(most(&[(6, u32::MAX)]), None);
}

#[test]
fn a_response_that_nobody_takes_is_given_up_or_held() {
    let verdict = |server: Server| {
        let mut prober = prober(server);
        let watch = Watch::new(None);
        let mut under = Under {
            prober: &mut prober,
            protocol: Protocol::H2c,
            ordinary: None,
            after: None,
            watch: &watch,
        };
        under.zero_window(Duration::from_millis(100)).unwrap().verdict
    };
    assert_eq!(verdict(h2(held)), Verdict::Undecided);
    assert_eq!(verdict(h2(|peer, request| peer.send(&reset(request.stream, 8)))), Verdict::Pass);
    assert_eq!(verdict(h2(fine)), Verdict::Undecided);
    assert_eq!(held_for(LONG).0, Verdict::Fail);
    assert_eq!(held_for(LONG.saturating_sub(Duration::from_millis(1))).0, Verdict::Undecided);
}

/// The verdicts of all attacks by their ids, with how bad they are.
fn look_at(server: Server, pid: Option<u32>) -> BTreeMap<String, Check> {
    let options =
        CheckOptions { idle: Duration::from_millis(50), resistance: true, pid, ..CheckOptions::default() };
    let all = checks(server, |prober, found| look(prober, Protocol::H2c, &options, found, &mut |_| {}));
    all.into_iter().map(|check| (check.id.clone(), check)).collect()
}

#[test]
fn a_server_that_answers_nobody_is_not_judged_by_attacks() {
    let found = look_at(h2(|peer, _| peer.close()), None);
    assert_eq!(found.len(), 9);
    assert!(found.values().all(|check| check.verdict == Verdict::Undecided), "{found:#?}");
}

#[test]
fn the_first_death_is_critical_and_the_last_attack() {
    let dead = Arc::new(AtomicBool::new(false));
    let (dies, is_dead) = (Arc::clone(&dead), dead);
    let server = h2(fine).framing(move |peer, _| {
        if peer.requests > 100 {
            dies.store(true, Ordering::Relaxed);
        }
        if is_dead.load(Ordering::Relaxed) {
            peer.close();
        }
        false
    });
    let found = look_at(server, None);
    let critical = found.values().filter(|check| check.severity == Severity::Critical).count();
    let undecided = found.values().filter(|check| check.verdict == Verdict::Undecided).count();
    assert_eq!((critical, undecided), (1, 8), "{found:#?}");
    assert!(found["RESI102"].summary.contains("RESI101"), "{}", found["RESI102"].summary);
}

#[test]
fn memory_of_the_servers_process_is_reported_and_judged() {
    let growth = |from: u64, to: u64| {
        let mut watch = Watch { pid: Some(1), first: Some(from), worst: None, gone: false };
        watch.note("an attack", Some(from), Some(to));
        watch.check().unwrap().verdict
    };
    assert_eq!(growth(10 << 20, (10 << 20) + GROWTH), Verdict::Pass);
    assert_eq!(growth(10 << 20, (10 << 20) + GROWTH + 1), Verdict::Fail);
    let mut gone = Watch { pid: Some(1), first: Some(1), worst: None, gone: false };
    gone.note("an attack", Some(1), None);
    assert_eq!(gone.check().unwrap().verdict, Verdict::Fail);
    assert!(Watch::new(None).check().is_none());
    let unknown = Watch { pid: Some(1), first: None, worst: None, gone: false };
    assert_eq!(unknown.check().unwrap().verdict, Verdict::Undecided);
}

#[test]
fn pages_have_the_numbers_of_the_attacks() {
    let with_commas = |n: u32| {
        let digits = n.to_string();
        let mut rendered = String::new();
        for (k, digit) in digits.chars().enumerate() {
            if k > 0 && (digits.len() - k).is_multiple_of(3) {
                rendered.push(',');
            }
            rendered.push(digit);
        }
        rendered
    };
    let mut prober = prober(h2(fine));
    let client = RawH2Client::open(&mut prober, Protocol::H2c, &Opening::default()).unwrap();
    for attack in attacks() {
        let rendered = match attack.meta.id {
            "RESI103" => "2 MiB".to_owned(),
            "RESI108" => with_commas(BEYOND.1),
            _ => with_commas((attack.most)(&client).unwrap()),
        };
        let page = attack.meta.doc.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(page.contains(&rendered), "{} does not say {rendered}", attack.meta.id);
    }
}

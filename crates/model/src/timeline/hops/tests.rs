//! The rulings for what was seen on both sides.

use super::*;
use crate::timeline::testing::{exchange, pushed};
use crate::timeline::{Reset, ResetSender, Waterfall};
use crate::workload::Protocol;

fn leg(name: &str, run: Waterfall) -> Leg {
    Leg::of(name, "1", Protocol::H2c, "/", &[run])
}

/// The ruling on a proxy with `before` towards its client and `behind` towards its server.
fn ruling(before: Waterfall, behind: Waterfall) -> Hop {
    judge(&leg("proxy", before), &leg("origin", behind), "/")
}

#[test]
fn what_comes_through_at_once_is_forwarded_and_what_comes_with_the_response_is_held_back() {
    let origin = || exchange("/", &[(103, 2.0)], 82.0);
    let at = |ms| ruling(exchange("/", &[(103, ms)], 83.0), origin()).early_hints.verdict;
    assert_eq!(
        (at(2.5), at(41.9), at(42.1), at(83.0)),
        (HopVerdict::Forwarded, HopVerdict::Forwarded, HopVerdict::HeldBack, HopVerdict::HeldBack)
    );
}

#[test]
fn who_stands_before_the_server_that_broke_a_response_is_not_blamed_for_it() {
    let lost = |ms| {
        let mut run = exchange("/", &[(103, ms)], 80.0);
        let main = &mut run.streams[0];
        (main.status, main.headers_ms, main.end_ms) = (None, None, None);
        run
    };
    let front = ruling(lost(2.1), lost(2.0)).early_hints;
    assert_eq!(front.verdict, HopVerdict::Forwarded);
    assert!(front.evidence.contains("no response followed it there"), "{front:?}");
    let culprit = ruling(lost(2.0), exchange("/", &[(103, 1.9)], 80.0)).early_hints;
    assert_eq!(culprit.verdict, HopVerdict::Broken);
}

#[test]
fn a_few_milliseconds_are_no_holding_back_where_the_response_follows_at_once() {
    let at =
        |ms| ruling(exchange("/", &[(103, ms)], 10.0), exchange("/", &[(103, 1.0)], 2.0)).early_hints.verdict;
    assert_eq!((at(5.9), at(6.1)), (HopVerdict::Forwarded, HopVerdict::HeldBack));
}

#[test]
fn what_does_not_come_through_is_swallowed_and_what_is_new_was_added() {
    let with = || exchange("/", &[(103, 2.0), (103, 20.0)], 80.0);
    let without = || exchange("/", &[], 80.0);
    assert_eq!(ruling(without(), with()).early_hints.verdict, HopVerdict::Swallowed);
    assert_eq!(ruling(with(), without()).early_hints.verdict, HopVerdict::Added);
    assert_eq!(ruling(without(), without()).early_hints.verdict, HopVerdict::None);
    let first_only = ruling(exchange("/", &[(103, 2.0)], 80.0), with()).early_hints;
    assert_eq!(first_only.verdict, HopVerdict::Partly);
    assert!(
        first_only.evidence.contains("2 interim responses") && first_only.evidence.contains("forwarded 1")
    );
}

#[test]
fn hints_that_become_a_push_are_reported_as_such() {
    let mut before = exchange("/", &[], 80.0);
    before.streams.push(pushed("/style.css", 3.0, 5.0));
    let hop = ruling(before, exchange("/", &[(103, 2.0)], 80.0));
    assert_eq!((hop.early_hints.verdict, hop.push.verdict), (HopVerdict::Swallowed, HopVerdict::Added));
    assert!(hop.early_hints.evidence.contains("pushed instead, from 3.0 ms on, 77.0 ms"), "{hop:?}");
}

#[test]
fn a_response_that_never_comes_is_broken_and_says_how() {
    let lost = |ended_by_interim: bool| {
        let mut run = exchange("/", &[(103, 2.0)], 80.0);
        let main = &mut run.streams[0];
        (main.status, main.headers_ms, main.end_ms) = (None, None, ended_by_interim.then_some(2.0));
        main.ended_by_interim = ended_by_interim;
        ruling(run, exchange("/", &[(103, 1.0)], 80.0)).early_hints
    };
    assert_eq!((lost(true).verdict, lost(false).verdict), (HopVerdict::Broken, HopVerdict::Broken));
    assert!(lost(true).evidence.contains("ended the stream with it"), "{:?}", lost(true));
    assert!(lost(false).evidence.contains("nothing followed"), "{:?}", lost(false));
}

#[test]
fn who_speaks_http_1_behind_it_or_says_so_cannot_be_pushed_to() {
    let none = || exchange("/", &[], 8.0);
    let behind = |protocol, refuses_push| {
        let back = Leg::of("origin", "1", protocol, "/", &[Waterfall { refuses_push, ..none() }]);
        judge(&leg("proxy", none()), &back, "/").push.verdict
    };
    assert_eq!(behind(Protocol::H1, false), HopVerdict::Refused);
    assert_eq!(behind(Protocol::H2c, true), HopVerdict::Refused);
    assert_eq!(behind(Protocol::H2c, false), HopVerdict::None);
}

#[test]
fn trailers_are_followed_too() {
    let with = || {
        let mut run = exchange("/", &[], 8.0);
        run.streams[0].trailers_ms = Some(8.5);
        run
    };
    let without = || exchange("/", &[], 8.0);
    assert_eq!(ruling(with(), with()).trailers.verdict, HopVerdict::Forwarded);
    assert_eq!(ruling(without(), with()).trailers.verdict, HopVerdict::Swallowed);
    assert_eq!(ruling(without(), without()).trailers.verdict, HopVerdict::None);
}

/// The ruling on a proxy in these runs, each seen before and behind it.
fn over(runs: Vec<(Waterfall, Waterfall)>) -> Hop {
    let (before, behind): (Vec<Waterfall>, Vec<Waterfall>) = runs.into_iter().unzip();
    let front = Leg::of("proxy", "1", Protocol::H2c, "/", &before);
    let back = Leg::of("origin", "1", Protocol::H2c, "/", &behind);
    judge(&front, &back, "/")
}

/// The same without the end of its response, after `bytes` of it.
fn cut(mut run: Waterfall, bytes: u64) -> Waterfall {
    (run.streams[0].end_ms, run.streams[0].bytes) = (None, bytes);
    run
}

/// The same with another status.
fn with_status(status: u16, mut run: Waterfall) -> Waterfall {
    run.streams[0].status = Some(status);
    run
}

#[test]
fn a_body_that_is_under_way_on_both_sides_is_nobodys_fault() {
    let run = |ms| cut(exchange("/", &[(103, ms)], 80.0), 5);
    let hop = ruling(run(2.1), run(2.0));
    assert_eq!(hop.early_hints.verdict, HopVerdict::Forwarded);
    assert!(!hop.early_hints.evidence.contains("body"), "{hop:?}");
}

#[test]
fn a_body_that_is_lost_behind_its_head_breaks_no_interim_response_and_is_reported() {
    let before = cut(exchange("/", &[(103, 2.1)], 80.0), 4);
    let hop = ruling(before, exchange("/", &[(103, 2.0)], 80.0));
    assert_eq!(hop.early_hints.verdict, HopVerdict::Forwarded);
    assert!(hop.early_hints.evidence.ends_with("not all of the body: 4 of 10 bytes"), "{hop:?}");
    let hop = ruling(cut(exchange("/", &[], 80.0), 4), exchange("/", &[], 80.0));
    assert_eq!(hop.early_hints.verdict, HopVerdict::None);
    assert!(hop.early_hints.evidence.contains("4 of 10 bytes"), "{hop:?}");
}

#[test]
fn a_proxys_own_error_in_the_place_of_a_response_is_broken() {
    let behind = || exchange("/", &[(103, 2.0)], 80.0);
    let hop = ruling(with_status(502, exchange("/", &[], 3.0)), behind());
    assert_eq!(hop.early_hints.verdict, HopVerdict::Broken);
    assert_eq!(hop.early_hints.evidence, "it answered 502 itself; received 200 from upstream");
    // The response from upstream is the origin's.
    let both = ruling(with_status(503, exchange("/", &[(103, 2.1)], 80.0)), with_status(503, behind()));
    assert_eq!(both.early_hints.verdict, HopVerdict::Forwarded);
    let once = over(vec![
        (exchange("/", &[(103, 2.1)], 80.0), behind()),
        (with_status(502, exchange("/", &[], 3.0)), behind()),
    ]);
    assert!(once.early_hints.evidence.ends_with("(in 1 of 2 runs)"), "{once:?}");
}

#[test]
fn who_says_504_because_nothing_came_from_behind_is_right() {
    let mut silent = exchange("/", &[(103, 2.0)], 80.0);
    let main = &mut silent.streams[0];
    (main.status, main.headers_ms, main.end_ms) = (None, None, None);
    let late = || with_status(504, exchange("/", &[(103, 2.1)], 900.0));
    let good = || (exchange("/", &[(103, 2.1)], 80.0), exchange("/", &[(103, 2.0)], 80.0));
    assert_eq!(ruling(late(), silent.clone()).early_hints.verdict, HopVerdict::Forwarded);
    assert_eq!(over(vec![good(), (late(), silent)]).early_hints.verdict, HopVerdict::Forwarded);
}

#[test]
fn each_interim_response_is_measured_by_its_own_lead() {
    let behind = || exchange("/", &[(103, 0.0), (103, 60.0)], 80.0);
    let at = |second| ruling(exchange("/", &[(103, 0.1), (103, second)], 81.0), behind()).early_hints;
    assert_eq!((at(69.9).verdict, at(70.1).verdict), (HopVerdict::Forwarded, HopVerdict::HeldBack));
    assert!(at(80.0).evidence.contains("20.0 ms after") && at(80.0).evidence.contains("20.0 ms ahead"));
}

#[test]
fn what_a_proxy_adds_before_it_shifts_no_partner() {
    let behind = || exchange("/", &[(103, 40.0)], 80.0);
    let hop = ruling(exchange("/", &[(103, 1.0), (103, 40.5)], 81.0), behind());
    assert_eq!(hop.early_hints.verdict, HopVerdict::Forwarded);
    assert!(hop.early_hints.evidence.contains("0.5 ms after"), "{hop:?}");
    assert!(hop.early_hints.evidence.contains("1 itself"), "{hop:?}");
    let own = ruling(exchange("/", &[(103, 1.0)], 81.0), behind()).early_hints;
    assert_eq!(own.verdict, HopVerdict::Swallowed, "what went before it came is not it: {own:?}");
    let other = ruling(exchange("/", &[(102, 41.0)], 81.0), behind()).early_hints;
    assert_eq!(other.verdict, HopVerdict::Swallowed, "another status: {other:?}");
}

#[test]
fn what_goes_on_in_some_runs_only_is_partly_forwarded() {
    let behind = || exchange("/", &[(103, 2.0)], 80.0);
    let hop =
        over(vec![(exchange("/", &[(103, 2.1)], 80.0), behind()), (exchange("/", &[], 80.0), behind())]);
    assert_eq!(hop.early_hints.verdict, HopVerdict::Partly);
    assert!(hop.early_hints.evidence.contains("in 2 runs, forwarded it in 1"), "{hop:?}");
}

/// An exchange with promises of these paths, each answered 2 ms later.
fn promising(promises: &[(&str, f64)]) -> Waterfall {
    let mut run = exchange("/", &[], 80.0);
    run.streams.extend(promises.iter().map(|(path, ms)| pushed(path, *ms, ms + 2.0)));
    run
}

#[test]
fn promises_meet_by_their_paths_and_are_late_as_interim_responses_are() {
    let push =
        |before: &[(&str, f64)], behind: &[(&str, f64)]| ruling(promising(before), promising(behind)).push;
    let behind = [("/a", 2.0), ("/b", 3.0)];
    assert_eq!(push(&[("/a", 2.2), ("/b", 3.4)], &behind).verdict, HopVerdict::Forwarded);
    assert_eq!(push(&[("/a", 2.2), ("/b", 79.0)], &behind).verdict, HopVerdict::HeldBack);
    assert_eq!(push(&[("/b", 3.2)], &behind).verdict, HopVerdict::Partly);
    assert_eq!(push(&[], &behind).verdict, HopVerdict::Swallowed);
    assert_eq!(
        push(&[("/c", 3.2), ("/d", 3.3)], &behind).verdict,
        HopVerdict::Swallowed,
        "others of its own"
    );
    assert_eq!(push(&[("/c", 3.2)], &[]).verdict, HopVerdict::Added);
    let more = push(&[("/a", 2.2), ("/b", 3.4), ("/c", 3.4)], &behind);
    assert_eq!(more.verdict, HopVerdict::Forwarded);
    assert!(more.evidence.contains("1 itself"), "{more:?}");
}

#[test]
fn a_promise_that_is_forwarded_and_never_kept_is_broken() {
    let mut before = promising(&[("/a", 2.2)]);
    before.streams[1].end_ms = None;
    let broken = ruling(before.clone(), promising(&[("/a", 2.0)])).push;
    assert_eq!(broken.verdict, HopVerdict::Broken, "{broken:?}");
    let mut behind = promising(&[("/a", 2.0)]);
    behind.streams[1].end_ms = None;
    assert_eq!(
        ruling(before.clone(), behind).push.verdict,
        HopVerdict::Forwarded,
        "it cannot send what it has not"
    );
    before.streams[1].reset =
        Some(Reset { by: ResetSender::Client, error_code: "CANCEL".to_owned(), ms: 3.0 });
    let given_up = ruling(before, promising(&[("/a", 2.0)])).push;
    assert_eq!(given_up.verdict, HopVerdict::Forwarded, "who asked gave it up");
}

#[test]
fn what_a_kept_connection_said_before_is_of_no_run_that_did_not_hear_it() {
    let run = |connected: f64, settings: Option<f64>| {
        let mut run = exchange("/", &[], 8.0);
        (run.connect.connected_ms, run.connect.settings_ms) = (Some(connected), settings);
        run
    };
    let leg = |runs: &[Waterfall]| Leg::of("origin", "1", Protocol::H2c, "/", runs).summary;
    let kept = leg(&[run(1.0, Some(1.5)), run(3.0, None)]);
    assert_eq!((kept.connect.connected_ms, kept.connect.settings_ms), (Some(2.0), None));
    assert!(!kept.connect_spread.contains_key("settings_ms"));
    // A run without a request does not count.
    let unreached = Waterfall { failed: Some("refused".to_owned()), ..Waterfall::default() };
    assert_eq!(leg(&[run(1.0, Some(1.5)), unreached]).connect.settings_ms, Some(1.5));
}

#[test]
fn how_a_response_was_lost_is_reported_of_a_run_that_lost_it() {
    let mut lost = exchange("/", &[], 80.0);
    let main = &mut lost.streams[0];
    (main.status, main.headers_ms, main.end_ms) = (None, None, None);
    main.reset = Some(Reset { by: ResetSender::Server, error_code: "INTERNAL_ERROR".to_owned(), ms: 3.0 });
    let behind = || exchange("/", &[(103, 2.0)], 80.0);
    let hop = over(vec![(exchange("/", &[(103, 2.1)], 80.0), behind()), (lost, behind())]);
    assert_eq!(hop.early_hints.verdict, HopVerdict::Broken);
    assert!(hop.early_hints.evidence.starts_with("it reset the stream (INTERNAL_ERROR)"), "{hop:?}");
    assert!(hop.early_hints.evidence.ends_with("(in 1 of 2 runs)"), "{hop:?}");
}

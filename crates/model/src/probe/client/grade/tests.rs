use std::time::Duration;

use super::super::test_case::{LARGE, WINDOWS};
use super::super::{AnswerState, CaseRun, ConnectionSeen, FrameNote, RequestSeen};
use super::*;
use crate::probe::Verdict;
use h2lab_base::units::Time;
use h2lab_wire::h2::frame::flag;
use h2lab_wire::trace::{Direction, FrameKind};

fn note(ms: u64, direction: Direction, kind: FrameKind, stream: u32) -> FrameNote {
    FrameNote {
        at: Time::from_millis(ms),
        direction,
        kind,
        flags: 0,
        stream,
        length: 0,
        value: 0,
        last_stream: None,
        settings: Vec::new(),
    }
}

fn settings(ms: u64, values: &[(u16, u32)]) -> FrameNote {
    FrameNote { settings: values.to_vec(), ..note(ms, Direction::Up, FrameKind::SETTINGS, 0) }
}

fn ack(ms: u64) -> FrameNote {
    FrameNote { flags: flag::ACK, ..note(ms, Direction::Up, FrameKind::SETTINGS, 0) }
}

fn goaway(ms: u64, last: u32) -> FrameNote {
    FrameNote { last_stream: Some(last), ..note(ms, Direction::Down, FrameKind::GOAWAY, 0) }
}

fn head(ms: u64, stream: u32) -> FrameNote {
    note(ms, Direction::Up, FrameKind::HEADERS, stream)
}

fn end(ms: u64, stream: u32) -> FrameNote {
    FrameNote { flags: flag::END_STREAM, ..note(ms, Direction::Down, FrameKind::DATA, stream) }
}

fn request(stream: u32, fate: AnswerState) -> RequestSeen {
    RequestSeen { at: Time::ZERO, stream, line: "GET /".to_owned(), fate }
}

/// A connection of HTTP/2 with these frames and this many answered requests.
fn connection(frames: Vec<FrameNote>, answered: u32) -> ConnectionSeen {
    let requests = (0..answered).map(|n| request(2 * n + 1, AnswerState::Answered)).collect();
    ConnectionSeen { protocol: Some("h2"), frames, requests, ..ConnectionSeen::default() }
}

fn case_run(test_case: TestCase, exit: Option<i32>, connections: Vec<ConnectionSeen>) -> CaseRun {
    CaseRun {
        test_case,
        began: Time::ZERO,
        exit,
        ran_out: exit.is_none(),
        took: Duration::from_millis(120),
        connections,
        by_line: false,
        said: "curl: (56) failure".to_owned(),
    }
}

fn plain(answered: u32) -> CaseRun {
    case_run(TestCase::Plain, Some(0), vec![connection(vec![settings(0, &[])], answered)])
}

/// The verdict on `id` when these test cases were run after a plain one of 12 requests.
#[track_caller]
fn verdict(id: &str, test_cases: Vec<CaseRun>) -> Verdict {
    let case_runs: Vec<CaseRun> = std::iter::once(plain(12)).chain(test_cases).collect();
    let checks = checks(CaseRuns(&case_runs));
    checks.iter().find(|check| check.id == id).unwrap_or_else(|| panic!("no {id}: {checks:?}")).verdict
}

#[test]
fn a_client_of_http_1_1_is_not_graded() {
    let connection = ConnectionSeen { protocol: Some("http/1.1"), ..ConnectionSeen::default() };
    let case_runs = [case_run(TestCase::Plain, Some(0), vec![connection])];
    let checks = checks(CaseRuns(&case_runs));
    assert_eq!((checks.len(), checks[0].verdict), (1, Verdict::Unsupported));
    let silent = [case_run(TestCase::Plain, Some(7), Vec::new())];
    let checks = super::checks(CaseRuns(&silent));
    assert_eq!(checks[0].verdict, Verdict::Undecided);
    assert!(checks[0].summary.contains("curl: (56) failure"), "{}", checks[0].summary);
}

#[test]
fn a_client_that_fails_by_itself_is_not_graded_by_test_cases() {
    let broken = CaseRun { exit: Some(16), ..plain(1) };
    let quota = case_run(TestCase::Quota, Some(16), vec![connection(Vec::new(), 1)]);
    let case_runs = [broken, quota];
    let checks = checks(CaseRuns(&case_runs));
    assert_eq!(checks[0].verdict, Verdict::Fail);
    assert!(checks[0].summary.starts_with("1 request over 1 connection,"), "{}", checks[0].summary);
    assert!(checks.iter().all(|check| check.id != "CLNT106"));
}

#[test]
fn windows_and_frames_at_their_defaults_fail_and_larger_ones_pass() {
    let with = |values: &[(u16, u32)], update: u32| {
        let opened = FrameNote { value: update, ..note(0, Direction::Up, FrameKind::WINDOW_UPDATE, 0) };
        let seen = connection(vec![settings(0, values), opened], 1);
        let case_runs = [case_run(TestCase::Plain, Some(0), vec![seen])];
        let checks = checks(CaseRuns(&case_runs));
        let of = |id: &str| checks.iter().find(|check| check.id == id).unwrap().verdict;
        (of("CLNT102"), of("CLNT103"))
    };
    assert_eq!(with(&[], 0), (Verdict::Fail, Verdict::Fail));
    assert_eq!(
        with(&[(5, 16_384), (4, 65_536)], 0),
        (Verdict::Fail, Verdict::Fail),
        "the connection's is small"
    );
    assert_eq!(with(&[(5, 16_385), (4, 65_536)], 1), (Verdict::Pass, Verdict::Pass));
}

#[test]
fn an_update_for_less_than_16_kib_is_too_often() {
    let with = |updates: u64| {
        let data = (0..LARGE / 16_384)
            .map(|_| FrameNote { length: 16_384, ..note(1, Direction::Down, FrameKind::DATA, 1) });
        let updates = (0..updates)
            .map(|_| FrameNote { value: 1, ..note(2, Direction::Up, FrameKind::WINDOW_UPDATE, 1) });
        let seen = connection(data.chain(updates).collect(), 1);
        verdict("CLNT104", vec![case_run(TestCase::LargeBody, Some(0), vec![seen])])
    };
    assert_eq!(with(LARGE / 16_384), Verdict::Pass);
    assert_eq!(with(LARGE / 16_384 + 1), Verdict::Fail);
    assert_eq!(with(0), Verdict::Pass);
}

#[test]
fn more_than_two_dials_per_goaway_are_a_stampede() {
    let with = |useless: usize, streams: u32| {
        let streams = (0..streams).map(|n| head(1, 2 * n + 1));
        let mut connections =
            vec![connection(streams.chain([goaway(5, 7)]).collect(), 4), connection(Vec::new(), 8)];
        connections.extend((0..useless).map(|_| connection(Vec::new(), 0)));
        verdict("CLNT105", vec![case_run(TestCase::Quota, Some(0), connections)])
    };
    assert_eq!(with(0, 2), Verdict::Pass);
    assert_eq!(with(1, 2), Verdict::Pass);
    assert_eq!(with(2, 2), Verdict::Fail);
    // A client with one open request at a time cannot cause a reconnect storm, which proves nothing.
    assert_eq!(with(0, 1), Verdict::Undecided);
    assert_eq!(with(2, 1), Verdict::Fail);
}

#[test]
fn requests_above_the_last_stream_must_be_sent_again() {
    let with = |answered_later, exit| {
        let first = connection(vec![head(1, 7), goaway(5, 7), head(5, 9), head(5, 11)], 4);
        assert_eq!(first.beyond_goaway(), 2);
        let test_cases =
            vec![case_run(TestCase::Quota, exit, vec![first, connection(Vec::new(), answered_later)])];
        verdict("CLNT106", test_cases)
    };
    assert_eq!(with(8, Some(0)), Verdict::Pass);
    assert_eq!(with(7, Some(0)), Verdict::Fail);
    assert_eq!(with(8, Some(1)), Verdict::Fail);
}

#[test]
fn where_nothing_had_to_be_sent_again_nothing_is_decided() {
    let test_case = |test_case| {
        let first = connection(vec![head(1, 7), goaway(5, 7)], 4);
        vec![case_run(test_case, Some(0), vec![first, connection(Vec::new(), 8)])]
    };
    assert_eq!(verdict("CLNT106", test_case(TestCase::Quota)), Verdict::Undecided);
    // A graceful end must cost no request.
    assert_eq!(verdict("CLNT107", test_case(TestCase::Graceful)), Verdict::Pass);
}

#[test]
fn all_answers_and_a_bad_end_are_not_called_zero_lost() {
    let first = connection(vec![head(1, 7), goaway(5, 7)], 4);
    let runs = [plain(12), case_run(TestCase::Graceful, Some(1), vec![first, connection(Vec::new(), 8)])];
    let checks = checks(CaseRuns(&runs));
    let check = checks.iter().find(|check| check.id == "CLNT107").unwrap();
    assert_eq!(check.verdict, Verdict::Fail);
    assert!(check.summary.starts_with("none lost, but it did not end well: 12 of 12"), "{}", check.summary);
    assert!(!check.summary.contains("0 lost"), "{}", check.summary);
}

#[test]
fn an_abrupt_end_may_take_what_was_under_way_and_nothing_else() {
    let with = |cut_off: u32, answered_later, exit| {
        let goaway = FrameNote { value: 2, ..goaway(5, 7) };
        // Frames after the end are seen without their requests.
        let mut first = connection(vec![head(1, 7), goaway, head(5, 9), head(6, 11)], 4 - cut_off);
        first.requests.extend((0..cut_off).map(|n| request(7 - 2 * n, AnswerState::Open)));
        first.requests.push(request(9, AnswerState::Open));
        let test_cases =
            vec![case_run(TestCase::Abrupt, exit, vec![first, connection(Vec::new(), answered_later)])];
        verdict("CLNT118", test_cases)
    };
    assert_eq!(with(0, 8, Some(0)), Verdict::Pass);
    assert_eq!(with(2, 8, Some(1)), Verdict::Pass, "two were under way");
    assert_eq!(with(2, 7, Some(1)), Verdict::Fail, "three were lost");
    assert_eq!(with(0, 8, Some(1)), Verdict::Fail, "nothing was lost");
    assert_eq!(with(2, 8, None), Verdict::Fail, "it never ended");
    assert_eq!(verdict("CLNT118", vec![case_run(TestCase::Abrupt, Some(0), Vec::new())]), Verdict::Undecided);
}

#[test]
fn small_windows_are_honoured_as_far_as_they_are_acknowledged() {
    let ours = |ms, value| FrameNote {
        settings: vec![(4, value)],
        ..note(ms, Direction::Down, FrameKind::SETTINGS, 0)
    };
    let data = |length| FrameNote { length, ..note(4, Direction::Up, FrameKind::DATA, 1) };
    let credit = |value| FrameNote { value, ..note(4, Direction::Down, FrameKind::WINDOW_UPDATE, 1) };
    let [before, after] = WINDOWS;
    let with = |frames: Vec<FrameNote>, answered| {
        verdict(
            "CLNT119",
            vec![case_run(TestCase::SmallWindows, Some(0), vec![connection(frames, answered)])],
        )
    };
    let greeting = || vec![ours(1, before), ack(2)];
    let whole = [data(before), credit(before), data(before)];
    assert_eq!(with([greeting(), whole.to_vec()].concat(), 12), Verdict::Pass);
    assert_eq!(with([greeting(), whole.to_vec()].concat(), 11), Verdict::Fail, "one was not answered");
    assert_eq!(with([greeting(), vec![data(before), credit(9), data(10)]].concat(), 12), Verdict::Fail);
    assert_eq!(
        with([greeting(), vec![data(before)]].concat(), 12),
        Verdict::Undecided,
        "one window was enough"
    );
    // A setting counts from its acknowledgement.
    let lowered = [ours(3, after), data(before), credit(before), ack(4), data(after), credit(1)];
    assert_eq!(with([greeting(), lowered.to_vec()].concat(), 12), Verdict::Pass);
    assert_eq!(with([greeting(), lowered.to_vec(), vec![data(2)]].concat(), 12), Verdict::Fail);
}

#[test]
fn what_the_client_threw_away_is_not_answered_and_what_came_twice_is_once() {
    let reset = note(3, Direction::Up, FrameKind::RST_STREAM, 3);
    let gave_up = FrameNote { value: 1, ..note(3, Direction::Up, FrameKind::GOAWAY, 0) };
    let answered = |frames| case_run(TestCase::Plain, Some(0), vec![connection(frames, 4)]).answered();
    assert_eq!(answered(Vec::new()), 4);
    assert_eq!(answered(vec![reset]), 3);
    assert_eq!(answered(vec![gave_up.clone()]), 0);
    assert_eq!(answered(vec![FrameNote { value: 0, ..gave_up }]), 4);
    let twice =
        || case_run(TestCase::Plain, Some(0), vec![connection(Vec::new(), 2), connection(Vec::new(), 1)]);
    assert_eq!(twice().answered(), 3);
    assert_eq!(CaseRun { by_line: true, ..twice() }.answered(), 1, "all lines are the same");
}

#[test]
fn a_refused_request_is_sent_again_or_given_up() {
    let with = |answered, exit| {
        let mut seen = connection(Vec::new(), answered);
        seen.requests.push(request(1, AnswerState::Refused));
        verdict("CLNT108", vec![case_run(TestCase::Refuse, exit, vec![seen])])
    };
    assert_eq!(with(12, Some(0)), Verdict::Pass);
    assert_eq!(with(11, Some(1)), Verdict::Fail);
    let none = case_run(TestCase::Refuse, Some(0), vec![connection(Vec::new(), 12)]);
    assert_eq!(verdict("CLNT108", vec![none]), Verdict::Undecided);
}

#[test]
fn a_second_stream_counts_only_after_the_settings_were_acknowledged() {
    let with = |frames| {
        verdict("CLNT111", vec![case_run(TestCase::OneStream, Some(0), vec![connection(frames, 12)])])
    };
    assert_eq!(with(vec![head(1, 1), head(1, 3), ack(2), end(3, 1), end(3, 3), head(4, 5)]), Verdict::Pass);
    assert_eq!(with(vec![ack(2), head(3, 1), end(4, 1), head(5, 3)]), Verdict::Pass);
    assert_eq!(with(vec![ack(2), head(3, 1), head(4, 3)]), Verdict::Fail);
    let broken = ConnectionSeen { error: Some("a rule".to_owned()), ..connection(Vec::new(), 12) };
    let test_cases = vec![case_run(TestCase::OneStream, Some(0), vec![broken])];
    assert_eq!(verdict("CLNT111", test_cases), Verdict::Fail);
}

#[test]
fn a_client_that_does_not_end_well_with_one_stream_has_its_refusals_or_fails() {
    let with = |exit, answered, refused: bool| {
        let refusal = FrameNote { value: 7, ..note(1, Direction::Down, FrameKind::RST_STREAM, 3) };
        let frames = if refused { vec![refusal] } else { Vec::new() };
        verdict("CLNT111", vec![case_run(TestCase::OneStream, exit, vec![connection(frames, answered)])])
    };
    assert_eq!(with(Some(0), 12, false), Verdict::Pass);
    assert_eq!(with(Some(1), 11, true), Verdict::Pass);
    assert_eq!(with(Some(1), 12, false), Verdict::Fail);
    assert_eq!(with(Some(0), 11, false), Verdict::Fail);
    assert_eq!(with(None, 12, true), Verdict::Fail, "it never ended");
}

#[test]
fn changed_settings_want_a_second_acknowledgement() {
    let with = |acks: u64, exit: i32| {
        let ours = |ms| note(ms, Direction::Down, FrameKind::SETTINGS, 0);
        let frames = [ours(0), ours(5)].into_iter().chain((0..acks).map(|n| ack(6 + n))).collect();
        verdict("CLNT112", vec![case_run(TestCase::Change, Some(exit), vec![connection(frames, 12)])])
    };
    assert_eq!(with(2, 0), Verdict::Pass);
    assert_eq!(with(1, 0), Verdict::Fail);
    assert_eq!(with(0, 0), Verdict::Undecided, "it had its responses, and its last frames were lost");
    assert_eq!(with(0, 1), Verdict::Fail, "it did not end well");
}

#[test]
fn a_silent_connection_is_left_given_up_or_waited_for() {
    let dark = |frames| ConnectionSeen { dark_since: Some(Time::from_millis(10)), ..connection(frames, 0) };
    let later = ConnectionSeen { opened_at: Time::from_millis(500), ..connection(Vec::new(), 12) };
    let test_case = |exit, connections| vec![case_run(TestCase::BlackOut, exit, connections)];
    assert_eq!(verdict("CLNT115", test_case(Some(0), vec![dark(Vec::new()), later.clone()])), Verdict::Pass);
    assert_eq!(
        verdict("CLNT115", test_case(None, vec![dark(Vec::new()), later.clone()])),
        Verdict::Fail,
        "it never ended"
    );
    let killed = CaseRun { ran_out: false, ..test_case(None, vec![dark(Vec::new())]).remove(0) };
    assert_eq!(verdict("CLNT115", vec![killed]), Verdict::Undecided, "a signal ended it");
    assert_eq!(verdict("CLNT115", test_case(Some(28), vec![dark(Vec::new())])), Verdict::Pass);
    assert_eq!(verdict("CLNT115", test_case(None, vec![dark(Vec::new())])), Verdict::Fail);
    let ping = note(20, Direction::Up, FrameKind::PING, 0);
    assert_eq!(verdict("CLNT116", test_case(None, vec![dark(vec![ping])])), Verdict::Pass);
    assert_eq!(verdict("CLNT116", test_case(None, vec![dark(Vec::new())])), Verdict::Fail);
    let early = note(9, Direction::Up, FrameKind::PING, 0);
    assert_eq!(
        verdict("CLNT116", test_case(None, vec![dark(vec![early.clone()])])),
        Verdict::Fail,
        "it was not silent yet"
    );
    let other = ConnectionSeen { frames: vec![note(600, Direction::Up, FrameKind::PING, 0)], ..later };
    assert_eq!(
        verdict("CLNT116", test_case(None, vec![dark(vec![early]), other])),
        Verdict::Fail,
        "another connection"
    );
}

#[test]
fn a_stalled_body_is_given_up_or_not() {
    let test_case = |exit, at| {
        let stalled_since = Some(Time::from_millis(at)).filter(|at| *at > Time::ZERO);
        let seen = ConnectionSeen { stalled_since, ..connection(Vec::new(), 1) };
        vec![case_run(TestCase::StalledBody, exit, vec![seen])]
    };
    assert_eq!(verdict("CLNT114", test_case(Some(28), 20)), Verdict::Pass);
    assert_eq!(verdict("CLNT114", test_case(None, 20)), Verdict::Fail);
    assert_eq!(
        verdict("CLNT114", test_case(Some(0), 20)),
        Verdict::Undecided,
        "it did not miss the other half"
    );
    assert_eq!(verdict("CLNT114", test_case(None, 0)), Verdict::Undecided, "nothing stopped");
}

#[test]
fn interim_responses_promises_and_drops_may_do_no_harm() {
    for (id, test_case) in [("CLNT109", TestCase::Interim), ("CLNT113", TestCase::SlowBody)] {
        let with = |exit, answered| {
            verdict(id, vec![case_run(test_case, exit, vec![connection(Vec::new(), answered)])])
        };
        assert_eq!(with(Some(0), 12), Verdict::Pass, "{id}");
        assert_eq!(with(Some(1), 12), Verdict::Fail, "{id}");
        assert_eq!(with(Some(0), 11), Verdict::Fail, "{id}");
    }
    let promise = note(1, Direction::Down, FrameKind::PUSH_PROMISE, 1);
    let with = |values: &[(u16, u32)], exit| {
        let seen = connection(vec![settings(0, values), promise.clone()], 12);
        verdict("CLNT110", vec![case_run(TestCase::Push, exit, vec![seen])])
    };
    assert_eq!(with(&[(2, 0)], Some(0)), Verdict::Pass);
    assert_eq!(with(&[], Some(0)), Verdict::Pass);
    assert_eq!(with(&[], Some(1)), Verdict::Fail);
}

/// Node ends its session with GOAWAY, receives the promised response only then, and treats that as an error; it has all requested
/// responses.
#[test]
fn an_error_behind_a_goodbye_takes_no_answer_back() {
    let said = |ms, code| FrameNote { value: code, ..note(ms, Direction::Up, FrameKind::GOAWAY, 0) };
    let answers = || (0..12).map(|n| end(2, 2 * n + 1));
    let with = |frames: Vec<FrameNote>| {
        let promise = note(1, Direction::Down, FrameKind::PUSH_PROMISE, 1);
        let seen = connection([vec![settings(0, &[]), promise], frames].concat(), 12);
        verdict("CLNT110", vec![case_run(TestCase::Push, Some(0), vec![seen])])
    };
    let all: Vec<FrameNote> = answers().collect();
    assert_eq!(with([all.clone(), vec![said(3, 0), said(4, 1)]].concat()), Verdict::Pass);
    assert_eq!(with([all.clone(), vec![said(4, 1)]].concat()), Verdict::Fail);
    assert_eq!(with([all.clone(), vec![said(3, 1), said(4, 0)]].concat()), Verdict::Fail);
    let (first, last) = all.split_at(11);
    assert_eq!(with([first, &[said(3, 0)], last, &[said(4, 1)]].concat()), Verdict::Fail);
}

#[test]
fn nodelay_is_known_or_not() {
    let with = |seen: [Option<bool>; 2]| {
        let connections = seen.map(|no_delay| ConnectionSeen { no_delay, ..connection(Vec::new(), 6) });
        verdict("CLNT117", vec![case_run(TestCase::Refuse, Some(0), connections.into())])
    };
    assert_eq!(with([None, None]), Verdict::Undecided);
    assert_eq!(with([Some(true), None]), Verdict::Pass);
    assert_eq!(with([Some(true), Some(false)]), Verdict::Fail);
}

//! How requests end that a GOAWAY, a refusal or a reset ends, and what the client made of it.

use super::*;
use h2lab_wire::ErrorCode;

const RST_STREAM: u8 = 3;
/// Flags of frames, one each.
const END_STREAM: u8 = 0x01;
const END_HEADERS: u8 = 0x04;

/// A client behind this run's own link, or in a capture of somebody else's, that asks for these streams.
fn asked(is_run: bool, streams: &[u32]) -> Scene {
    let capture = if is_run { Capture::of_run(LinkSpec::default()) } else { Capture::new("") };
    let mut scene = Scene { capture, ..Scene::new(0) };
    scene.packet(Direction::Up, 100, 0, SYN, &[2, 4, 5, 180], &[]);
    scene.packet(Direction::Down, 120, 0, SYN | ACK, &[2, 4, 5, 180], &[]);
    scene.packet(Direction::Up, 120, 1, ACK, &[], &[]);
    scene.asked(streams)
}

fn goaway(last_stream: u32) -> Vec<u8> {
    frame(GOAWAY, 0, 0, &[&last_stream.to_be_bytes()[..], &[0; 4]].concat())
}

fn reset(stream: u32, code: ErrorCode) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &code.0.to_be_bytes())
}

/// The client closes the connection.
fn close(scene: &mut Scene, at: u64) {
    let place = scene.next(Direction::Up, &[0]);
    scene.packet(Direction::Up, at, place, ACK | FIN, &[], &[]);
}

fn outcomes(captured: &Captured) -> Vec<(Outcome, u32)> {
    let samples = captured.records.iter().flat_map(|record| record.samples.iter());
    let mut samples: Vec<_> =
        samples.map(|sample| (sample.stream.0, (sample.outcome, sample.code))).collect();
    samples.sort_unstable_by_key(|(stream, _)| *stream);
    samples.into_iter().map(|(_, ended)| ended).collect()
}

fn rules(captured: &Captured) -> Vec<String> {
    diagnose::run(&captured.records).into_iter().map(|finding| finding.rule).collect()
}

#[test]
fn what_a_client_gives_up_when_a_goaway_arrives_is_lost_by_the_goaway() {
    let ended = |last_stream: u32, given_up: u64, resets: Option<ErrorCode>| {
        let mut scene = asked(true, &[1, 3]);
        scene.say(Direction::Down, 145, &[answer(1), goaway(last_stream)].concat());
        if let Some(code) = resets {
            scene.say(Direction::Up, given_up, &reset(3, code));
        }
        close(&mut scene, given_up);
        outcomes(&scene.finish())[1]
    };
    for resets in [None, Some(ErrorCode::CANCEL)] {
        assert_eq!(ended(3, 145, resets), (Outcome::GoAway, 0));
        assert_eq!(ended(3, 245, resets), (Outcome::GoAway, 0));
        let cancelled = (Outcome::Cancelled, resets.map_or(0, |code| code.0));
        assert_eq!(ended(3, 246, resets), cancelled, "for a reason of its own");
        assert_eq!(ended(1, 246, resets), (Outcome::Refused, 0), "whatever the client did later");
    }
    let objects = ErrorCode::FLOW_CONTROL_ERROR;
    assert_eq!(ended(3, 145, Some(objects)), (Outcome::Cancelled, objects.0));
}

#[test]
fn a_client_that_closes_at_a_goaway_has_the_cause_of_lost_requests() {
    let is_found = |answered: &[u32], last_stream: Option<u32>| {
        let mut scene = asked(true, &[1, 3, 5]);
        let answers = answered.iter().flat_map(|stream| answer(*stream));
        let end = last_stream.map_or_else(Vec::new, goaway);
        scene.say(Direction::Down, 145, &answers.chain(end).collect::<Vec<u8>>());
        close(&mut scene, 147);
        rules(&scene.finish()).contains(&"CONN103".to_owned())
    };
    assert!(is_found(&[1], Some(1)), "above the last stream");
    assert!(is_found(&[1], Some(5)), "the server would have answered them");
    assert!(!is_found(&[1], None), "for a reason of its own");
    assert!(!is_found(&[1, 3, 5], Some(5)), "all were answered");
}

#[test]
fn a_goaway_that_the_clients_own_end_crosses_ends_nothing() {
    let goaways = |streams: &[u32], leaves: bool, closed: u64| {
        let mut scene = asked(true, streams);
        scene.say(Direction::Down, 145, &answer(1));
        if leaves {
            scene.say(Direction::Up, 148, &goaway(0));
        }
        if closed <= 150 {
            close(&mut scene, closed);
        }
        scene.say(Direction::Down, 150, &goaway(1));
        if closed > 150 {
            close(&mut scene, closed);
        }
        scene.finish().records[0].connections[0].goaways.len()
    };
    assert_eq!((goaways(&[1], false, 149), goaways(&[1], false, 151)), (0, 1), "a FIN");
    assert_eq!(goaways(&[1], true, 151), 0, "a GOAWAY");
    assert_eq!(goaways(&[1, 3], true, 151), 1, "a request is open");
}

/// Four requests, two of which are refused by the server's limit of two streams; then a GOAWAY if `ends`, and `later`
/// requests, which are answered.
fn refused(is_run: bool, ends: bool, later: u32) -> Captured {
    let mut scene = asked(is_run, &[1, 3, 5, 7]);
    let settings = frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 2]);
    let refusals = [5, 7].map(|stream| reset(stream, ErrorCode::REFUSED_STREAM)).concat();
    scene.say(Direction::Down, 145, &[settings, refusals, answer(1), answer(3)].concat());
    for n in 0..later {
        let at = 200 + 50 * u64::from(n);
        scene.say(Direction::Up, at, &frame(HEADERS, END, 9 + 2 * n, &[0x82, 0x84, 0x86]));
        scene.say(Direction::Down, at + 20, &answer(9 + 2 * n));
    }
    if ends {
        scene.say(Direction::Down, 500, &goaway(3));
    }
    close(&mut scene, 501);
    scene.finish()
}

#[test]
fn refusals_before_settings_are_no_loss_by_a_later_goaway() {
    let captured = refused(true, true, 0);
    let refusal = (Outcome::Refused, ErrorCode::REFUSED_STREAM.0);
    assert_eq!(outcomes(&captured)[2..], [refusal, refusal]);
    let rules = rules(&captured);
    assert!(rules.contains(&"CONN102".to_owned()) && !rules.contains(&"CONN103".to_owned()), "{rules:?}");
    assert!(!noted(&captured, "left out"), "{:?}", captured.notes);
}

#[test]
fn refused_requests_that_may_have_been_sent_again_are_told_and_have_their_cause() {
    for (is_run, later) in [(true, 2), (false, 2), (false, 0)] {
        let captured = refused(is_run, false, later);
        assert!(outcomes(&captured).iter().all(|(outcome, _)| outcome.is_success()));
        assert!(noted(&captured, "2 requests were refused unprocessed"), "{:?}", captured.notes);
        let found = diagnose::run(&captured.records);
        let found = found.iter().find(|finding| finding.rule == "CONN102").expect("a finding");
        assert!(found.cost.ends_with("whether the client sent them again is not known"), "{}", found.cost);
    }
}

#[test]
fn a_run_whose_requests_were_all_refused_has_a_record() {
    let captured = |is_run| {
        let mut scene = asked(is_run, &[1, 3]);
        let refusals = [1, 3].map(|stream| reset(stream, ErrorCode::REFUSED_STREAM)).concat();
        scene.say(Direction::Down, 145, &refusals);
        scene.finish()
    };
    assert_eq!(outcomes(&captured(true)).len(), 2);
    assert!(captured(false).records.is_empty() && noted(&captured(false), "2 requests were refused"));
}

/// What is reported of an upload with a `content-length` of 5 and a body of `bytes`, sent completely or not, that the server
/// resets with this code.
fn reset_upload(is_run: bool, bytes: usize, is_sent: bool, code: ErrorCode) -> String {
    let mut scene = asked(is_run, &[]);
    // POST, and a literal without indexing of static name 28 (RFC 7541 §6.2.2).
    let head = [0x83, 0x84, 0x86, 0x0f, 0x0d, 1, b'5'];
    let body = frame(DATA, if is_sent { END_STREAM } else { 0 }, 1, &vec![0; bytes]);
    scene.say(Direction::Up, 130, &[frame(HEADERS, END_HEADERS, 1, &head), body].concat());
    scene.say(Direction::Down, 150, &reset(1, code));
    let captured = scene.finish();
    assert_eq!(outcomes(&captured), [(Outcome::Reset, code.0)]);
    captured.notes.iter().map(ToString::to_string).find(|note| note.contains("RST_STREAM")).expect("a note")
}

#[test]
fn who_reset_a_request_and_why_is_told() {
    let told = |bytes, is_sent| reset_upload(true, bytes, is_sent, ErrorCode::PROTOCOL_ERROR);
    let plain = "h2lab's server reset 1 request (RST_STREAM, PROTOCOL_ERROR)";
    assert_eq!(told(5, true), plain);
    assert_eq!(told(4, false), plain, "the rest may follow");
    for (bytes, is_sent) in [(6, false), (4, true)] {
        let why = format!("{plain}: the client sent {bytes} bytes of a body whose content-length is 5,");
        assert!(told(bytes, is_sent).starts_with(&why), "{}", told(bytes, is_sent));
    }
    let other = reset_upload(false, 6, false, ErrorCode::INTERNAL_ERROR);
    assert_eq!(other, "the server reset 1 request (RST_STREAM, INTERNAL_ERROR)");
}

use proptest::prelude::*;

use super::*;
use crate::fleet::AGENT_VERSION;
use h2lab_base::random::Counter;

/// A network between two ends that loses, doubles and delays packets by chance.
struct Network {
    random: Counter,
    /// Shares of packets.
    lost: f64,
    doubled: f64,
    /// By their arrival and a number: to which end, and what.
    under_way: BTreeMap<(Time, u64), (usize, Vec<u8>)>,
    count: u64,
}

impl Network {
    fn new(seed: u64, lost: f64, doubled: f64) -> Self {
        Self { random: Counter::new(seed, "network"), lost, doubled, under_way: BTreeMap::new(), count: 0 }
    }

    fn carry(&mut self, now: Time, to: usize, packet: &[u8]) {
        let copies = 1 + u32::from(self.random.next_f64() < self.doubled);
        for _ in 0..copies {
            if self.random.next_f64() >= self.lost {
                let arrival = now + Duration::from_millis(self.random.below(500));
                self.count += 1;
                self.under_way.insert((arrival, self.count), (to, packet.to_vec()));
            }
        }
    }

    fn next_at(&self) -> Time {
        self.under_way.keys().next().map_or(Time::NEVER, |(arrival, _)| *arrival)
    }

    fn arrived(&mut self, now: Time) -> Option<(usize, Vec<u8>)> {
        let first = self.under_way.first_entry().filter(|first| first.key().0 <= now)?;
        Some(first.remove())
    }
}

/// Exchanges until everything has arrived at both ends; what each received. Each end tells a line with every one that
/// it receives.
fn exchanged(network: &mut Network, lines: [Vec<String>; 2]) -> [Vec<String>; 2] {
    let mut now = Time::ZERO;
    let mut ends = [1, 2].map(|epoch| Session::new(now, epoch));
    for (end, lines) in ends.iter_mut().zip(lines) {
        for line in lines {
            end.send(now, line);
        }
    }
    let mut received = [Vec::new(), Vec::new()];
    loop {
        for (from, end) in ends.iter_mut().enumerate() {
            while let Some(packet) = end.poll_packet(now) {
                network.carry(now, 1 - from, &packet);
            }
        }
        if ends.iter().all(Session::is_delivered) {
            return received;
        }
        let next = ends.iter().map(Session::poll_timeout).chain([network.next_at()]).min().unwrap();
        assert!(next < Time::from_millis(1_000_000), "nothing goes on after {now}");
        now = now.max(next);
        while let Some((to, packet)) = network.arrived(now) {
            for line in ends[to].handle(now, &packet).unwrap() {
                ends[to].send_once(format!("once {}", received[to].len()));
                received[to].push(line);
            }
        }
    }
}

/// A session of two ends that have heard of each other, and nothing under way.
fn acquainted() -> [Session; 2] {
    let mut ends = [1, 2].map(|epoch| Session::new(Time::ZERO, epoch));
    ends[0].send(Time::ZERO, "hello".to_owned());
    ends[1].send(Time::ZERO, "hello".to_owned());
    for _ in 0..2 {
        for from in 0..2 {
            while let Some(packet) = ends[from].poll_packet(Time::ZERO) {
                ends[1 - from].handle(Time::ZERO, &packet).unwrap();
            }
        }
    }
    assert!(ends.iter().all(Session::is_delivered));
    assert_eq!(ends[0].poll_timeout(), Time::NEVER);
    ends
}

/// A packet of an end with the epoch 9, which has heard nothing.
fn hostile(carries: &str) -> Vec<u8> {
    let message = format!(r#"{{"from":9,"ack":0,"held":0,"carries":{carries}}}"#);
    format!(r#"{{"agent":{AGENT_VERSION},"message":{message}}}"#).into_bytes()
}

fn fragment(number: u64, length: usize, last: bool) -> Vec<u8> {
    let text = "x".repeat(length);
    hostile(&format!(r#"{{"fragment":{{"number":{number},"text":"{text}","last":{last}}}}}"#))
}

fn line() -> impl Strategy<Value = String> {
    let length = prop_oneof![12 => 0_usize..200, 1 => 100_000_usize..600_000];
    let character = prop::sample::select(vec!["a", "\"", "\u{1}", "é", "🦀"]);
    (length, character).prop_map(|(length, character)| character.repeat(length / character.len()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn lines_arrive_once_and_in_their_order_in_both_directions(
        seed in any::<u64>(),
        lost in 0.0..0.4_f64,
        doubled in 0.0..0.4_f64,
        there in prop::collection::vec(line(), 0..12),
        back in prop::collection::vec(line(), 0..12),
    ) {
        let received = exchanged(&mut Network::new(seed, lost, doubled), [there.clone(), back.clone()]);
        let reliable = received.map(|lines| {
            lines.into_iter().filter(|line| !line.starts_with("once ")).collect::<Vec<_>>()
        });
        prop_assert!(reliable == [back, there]);
    }

    #[test]
    fn no_packet_is_more_than_an_error(packet in prop::collection::vec(any::<u8>(), 0..300), text in ".*") {
        let mut session = Session::new(Time::ZERO, 1);
        let is_error = session.handle(Time::ZERO, &packet).is_err();
        prop_assert!(is_error);
        let _ = session.handle(Time::ZERO, text.as_bytes());
        let _ = session.handle(Time::ZERO, &hostile(&text));
        session.poll_packet(Time::ZERO);
    }

    #[test]
    fn no_numbers_are_more_than_an_error(numbers in prop::array::uniform5(any::<u64>()), is_once in any::<bool>()) {
        let [to, ack, held, number, after] = numbers;
        for (to, ack) in [(1, ack), (1, 0), (to, 0)] {
            let carries = if is_once {
                format!(r#"{{"once":{{"number":{number},"after":{after},"text":""}}}}"#)
            } else {
                format!(r#"{{"fragment":{{"number":{number},"text":"","last":true}}}}"#)
            };
            let message = format!(r#"{{"from":9,"to":{to},"ack":{ack},"held":{held},"carries":{carries}}}"#);
            let mut session = Session::new(Time::ZERO, 1);
            session.send(Time::ZERO, "line".to_owned());
            session.poll_packet(Time::ZERO);
            let packet = format!(r#"{{"agent":{AGENT_VERSION},"message":{message}}}"#);
            let _ = session.handle(Time::ZERO, packet.as_bytes());
            session.poll_packet(Time::from_millis(300));
        }
    }
}

#[test]
fn without_losses_each_line_is_one_packet_and_each_is_answered_by_one() {
    let mut ends = acquainted();
    ends[0].send(Time::ZERO, "line".to_owned());
    let packet = ends[0].poll_packet(Time::ZERO).unwrap();
    assert_eq!(ends[0].poll_packet(Time::ZERO), None);
    assert_eq!(ends[1].handle(Time::ZERO, &packet).unwrap(), ["line"]);
    let answer = ends[1].poll_packet(Time::ZERO).unwrap();
    assert_eq!(ends[1].poll_packet(Time::ZERO), None);
    assert!(!ends[0].is_delivered());
    assert_eq!(ends[0].handle(Time::ZERO, &answer).unwrap(), [""; 0]);
    assert!(ends[0].is_delivered());
    assert_eq!(ends[0].poll_packet(Time::from_millis(60_000)), None);
}

#[test]
fn what_is_not_acknowledged_is_sent_again_after_200_ms_then_more_and_more_seldom_up_to_2_s() {
    let mut session = Session::new(Time::ZERO, 1);
    session.send(Time::ZERO, "line".to_owned());
    assert_eq!(session.poll_timeout(), Time::ZERO);
    let mut now = Time::ZERO;
    let mut waits = Vec::new();
    for _ in 0..7 {
        let first = session.poll_packet(now).unwrap();
        assert!(String::from_utf8(first).unwrap().contains("line"));
        let next = session.poll_timeout();
        let early = next - Duration::from_nanos(1);
        assert_eq!(session.poll_packet(early), None);
        waits.push(next.since(now).as_millis());
        now = next;
    }
    assert_eq!(waits, [200, 400, 800, 1600, 2000, 2000, 2000]);
}

/// An end whose line was sent in vain so often that the next time is far ahead, and when that was.
fn forgotten(end: &mut Session) -> Time {
    end.send(Time::ZERO, "lost".to_owned());
    let mut now = Time::ZERO;
    for _ in 0..8 {
        assert!(end.poll_packet(now).is_some());
        now = end.poll_timeout();
    }
    now - LONGEST_WAIT
}

#[test]
fn what_was_lost_is_sent_again_at_once_when_something_is_heard_after_a_silence() {
    let [mut one, mut other] = acquainted();
    let now = forgotten(&mut one) + Duration::from_millis(1);
    assert_eq!(one.poll_packet(now), None);
    other.send(now, "after the silence".to_owned());
    one.handle(now, &other.poll_packet(now).unwrap()).unwrap();
    assert_eq!(one.poll_timeout(), now);
    let again = one.poll_packet(now).unwrap();
    assert_eq!(other.handle(now, &again).unwrap(), ["lost"]);
    assert_eq!(one.poll_packet(now), None);
    assert_eq!(one.poll_timeout(), now + FIRST_WAIT, "and then as often as at first");
}

#[test]
fn what_is_heard_without_a_silence_before_it_makes_nothing_more_frequent() {
    let [mut one, mut other] = acquainted();
    let early = Time::ZERO + FIRST_WAIT;
    one.send(Time::ZERO, "lost".to_owned());
    assert!(one.poll_packet(Time::ZERO).is_some() && one.poll_packet(early).is_some());
    other.send(early, "answer".to_owned());
    one.handle(early, &other.poll_packet(early).unwrap()).unwrap();
    // Only the answer to that.
    assert!(one.poll_packet(early).is_some() && one.poll_packet(early).is_none());
    assert_eq!(one.poll_timeout(), early + 2 * FIRST_WAIT);
}

#[test]
fn what_is_on_its_way_is_sent_again_at_once_on_demand() {
    let [mut one, _] = acquainted();
    let now = forgotten(&mut one) + Duration::from_millis(1);
    one.send_again(now);
    assert!(one.poll_packet(now).is_some() && one.poll_packet(now).is_none());
}

#[test]
fn only_what_is_missing_is_sent_again() {
    let mut ends = acquainted();
    for number in 0..5 {
        ends[0].send(Time::ZERO, format!("line {number}"));
    }
    let packets: Vec<Vec<u8>> = std::iter::from_fn(|| ends[0].poll_packet(Time::ZERO)).collect();
    assert_eq!(packets.len(), 5);
    for (place, packet) in packets.iter().enumerate().filter(|(place, _)| *place != 1) {
        let expected: &[&str] = if place == 0 { &["line 0"] } else { &[] };
        assert_eq!(ends[1].handle(Time::ZERO, packet).unwrap(), expected);
    }
    let answer = ends[1].poll_packet(Time::ZERO).unwrap();
    ends[0].handle(Time::ZERO, &answer).unwrap();
    let later = Time::from_millis(200);
    let again: Vec<Vec<u8>> = std::iter::from_fn(|| ends[0].poll_packet(later)).collect();
    assert_eq!(again.len(), 1);
    assert_eq!(ends[1].handle(later, &again[0]).unwrap(), ["line 1", "line 2", "line 3", "line 4"]);
}

#[test]
fn of_lines_that_are_sent_once_only_the_newest_goes_and_only_in_its_place() {
    let mut ends = acquainted();
    ends[0].send_once("1 %".to_owned());
    ends[0].send_once("2 %".to_owned());
    let second = ends[0].poll_packet(Time::ZERO).unwrap();
    assert_eq!((ends[0].poll_packet(Time::ZERO), ends[0].poll_timeout()), (None, Time::NEVER));
    ends[0].send_once("3 %".to_owned());
    let third = ends[0].poll_packet(Time::ZERO).unwrap();
    ends[0].send(Time::ZERO, "over".to_owned());
    let over = ends[0].poll_packet(Time::ZERO).unwrap();
    ends[0].send_once("late".to_owned());
    let late = ends[0].poll_packet(Time::ZERO).unwrap();
    let mut receives = |packet: &[u8]| ends[1].handle(Time::ZERO, packet).unwrap();
    assert_eq!(receives(&late), [""; 0], "what was before it is missing");
    assert_eq!(receives(&third), ["3 %"]);
    assert_eq!(receives(&second), [""; 0], "it is older");
    assert_eq!(receives(&third), [""; 0], "it came before");
    assert_eq!(receives(&over), ["over"]);
    assert_eq!(receives(&late), ["late"]);
    // A line that is sent once goes behind what was sent before it.
    ends[0].send(Time::ZERO, "next".to_owned());
    ends[0].send_once("4 %".to_owned());
    let next = ends[0].poll_packet(Time::ZERO).unwrap();
    assert_eq!(ends[1].handle(Time::ZERO, &next).unwrap(), ["next"]);
}

#[test]
fn a_line_sent_once_that_does_not_fit_a_packet_goes_as_any_other_if_nothing_else_is_on_its_way() {
    let long = "x".repeat(FRAGMENT + 1);
    let mut ends = acquainted();
    ends[0].send_once(long.clone());
    let packets: Vec<Vec<u8>> = std::iter::from_fn(|| ends[0].poll_packet(Time::ZERO)).collect();
    ends[0].send_once(long.clone());
    assert_eq!((packets.len(), ends[0].poll_packet(Time::ZERO)), (2, None));
    assert_eq!(ends[1].handle(Time::ZERO, &packets[0]).unwrap(), [""; 0]);
    assert_eq!(ends[1].handle(Time::ZERO, &packets[1]).unwrap(), [long]);
}

#[test]
fn a_packet_is_far_below_1_mib_whatever_a_line_has() {
    for character in ["a", "\"", "\u{1}", "🦀"] {
        let mut session = Session::new(Time::ZERO, u64::MAX);
        session.send(Time::ZERO, character.repeat(LONGEST_LINE / character.len()));
        let packets: Vec<Vec<u8>> = std::iter::from_fn(|| session.poll_packet(Time::ZERO)).collect();
        assert!(packets.iter().all(|packet| packet.len() < FRAGMENT + 500), "{character}");
        let bytes: usize = packets.iter().map(Vec::len).sum();
        assert!(packets.len() >= 4 && bytes < 8 * WINDOW_BYTES, "{character}: {bytes}");
    }
}

#[test]
fn a_packet_of_another_version_is_recognised_whatever_else_it_says() {
    let mut session = Session::new(Time::ZERO, 1);
    let theirs = AGENT_VERSION + 1;
    for message in [r#"{"from":[]}"#, "null", r#"{"from":9,"ack":0}"#] {
        let packet = format!(r#"{{"agent":{theirs},"message":{message}}}"#);
        match session.handle(Time::from_millis(5), packet.as_bytes()) {
            Err(SessionError::Message(MessageError::OtherVersion { theirs: found })) => {
                assert_eq!(found, theirs);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(session.heard_at(), Time::ZERO);
}

#[test]
fn garbage_is_an_error_in_printable_words_and_changes_nothing() {
    let mut ends = acquainted();
    for garbage in [&b"\xff\xfe\x00\x1b[2J"[..], b"", b"\x1b[2J", b"{}", &vec![b'['; 100_000]] {
        let error = ends[1].handle(Time::from_millis(5), garbage).unwrap_err();
        assert!(matches!(error, SessionError::Message(MessageError::NoMessage { .. })), "{error}");
        let text = error.to_string();
        assert!(!text.contains('\u{1b}') && text.len() < 1000, "{text}");
    }
    assert_eq!(ends[1].heard_at(), Time::ZERO);
    assert_eq!(ends[1].poll_packet(Time::from_millis(5)), None);
    ends[0].send(Time::ZERO, "line".to_owned());
    let packet = ends[0].poll_packet(Time::ZERO).unwrap();
    assert_eq!(ends[1].handle(Time::from_millis(7), &packet).unwrap(), ["line"]);
    assert_eq!(ends[1].heard_at(), Time::from_millis(7));
}

#[test]
fn an_end_that_was_restarted_is_noticed_by_both_and_nobody_answers_for_ever() {
    let [mut ours, _] = acquainted();
    let mut restarted = Session::new(Time::ZERO, 3);
    ours.send(Time::ZERO, "line".to_owned());
    let packet = ours.poll_packet(Time::ZERO).unwrap();
    assert!(matches!(restarted.handle(Time::ZERO, &packet), Err(SessionError::Restarted)));
    let answer = restarted.poll_packet(Time::ZERO).expect("its epoch");
    assert_eq!(restarted.poll_packet(Time::ZERO), None);
    assert!(matches!(ours.handle(Time::ZERO, &answer), Err(SessionError::Restarted)));
    assert_eq!(ours.poll_packet(Time::ZERO), None, "an answer would be answered");
}

#[test]
fn an_end_that_was_restarted_and_speaks_first_is_noticed_too() {
    let [mut ours, mut theirs] = acquainted();
    let mut restarted = Session::new(Time::ZERO, 3);
    restarted.send(Time::ZERO, "hello".to_owned());
    let packet = restarted.poll_packet(Time::ZERO).unwrap();
    assert!(matches!(ours.handle(Time::ZERO, &packet), Err(SessionError::Restarted)));
    // Such a packet has changed nothing.
    theirs.send(Time::ZERO, "line".to_owned());
    let packet = theirs.poll_packet(Time::ZERO).unwrap();
    assert_eq!(ours.handle(Time::ZERO, &packet).unwrap(), ["line"]);
}

#[test]
fn a_peer_that_leaves_a_hole_makes_us_keep_no_more_than_a_bound() {
    let mut session = Session::new(Time::ZERO, 1);
    for number in 1..WINDOW + 10 {
        assert_eq!(session.handle(Time::ZERO, &fragment(number, FRAGMENT, true)).unwrap(), [""; 0]);
    }
    assert!(session.held_bytes <= HELD_BYTES && session.held_bytes > HELD_BYTES - 2 * FRAGMENT);
    for number in 1..1000 {
        session.handle(Time::ZERO, &fragment(number, 0, true)).unwrap();
    }
    assert!((session.held.len() as u64) < WINDOW);
    // The answer has a bit for each that was kept, and what is missing is taken all the same.
    session.poll_packet(Time::ZERO).unwrap();
    let lines = session.handle(Time::ZERO, &fragment(0, FRAGMENT, true)).unwrap();
    assert_eq!((lines.len() as u64, session.held_bytes), (WINDOW, 0));
}

#[test]
fn a_line_that_never_ends_is_refused_and_one_of_the_longest_length_is_not() {
    let count = (LONGEST_LINE / FRAGMENT) as u64;
    let mut session = Session::new(Time::ZERO, 1);
    for number in 0..count {
        session.handle(Time::ZERO, &fragment(number, FRAGMENT, false)).unwrap();
    }
    for _ in 0..2 {
        let refused = session.handle(Time::ZERO, &fragment(count, 1, false));
        assert!(matches!(refused, Err(SessionError::TooLong)));
    }
    assert_eq!(session.unfinished.len(), LONGEST_LINE);
    let lines = session.handle(Time::ZERO, &fragment(count, 0, true)).unwrap();
    assert_eq!(lines[0].len(), LONGEST_LINE);
}

#[test]
fn what_no_h2lab_sends_is_refused() {
    let mut session = Session::new(Time::ZERO, 1);
    let refused = session.handle(Time::ZERO, &fragment(0, FRAGMENT + 1, false));
    assert!(matches!(refused, Err(SessionError::Invalid { .. })));
    let long = "x".repeat(FRAGMENT + 1);
    let once = hostile(&format!(r#"{{"once":{{"number":1,"after":0,"text":"{long}"}}}}"#));
    assert!(matches!(session.handle(Time::ZERO, &once), Err(SessionError::Invalid { .. })));
    session.send(Time::ZERO, "line".to_owned());
    session.poll_packet(Time::ZERO).unwrap();
    let acknowledges = |ack| {
        let message = format!(r#"{{"from":9,"ack":{ack},"held":0}}"#);
        format!(r#"{{"agent":{AGENT_VERSION},"message":{message}}}"#).into_bytes()
    };
    let refused = session.handle(Time::ZERO, &acknowledges(2)).unwrap_err().to_string();
    assert!(refused.contains("acknowledges what was not sent"), "{refused}");
    assert!(!session.is_delivered());
    session.handle(Time::ZERO, &acknowledges(1)).unwrap();
    assert!(session.is_delivered());
}

#[test]
fn a_peer_that_asks_and_never_acknowledges_an_answer_is_no_longer_listened_to() {
    let mut session = Session::new(Time::ZERO, 1);
    let mut answered = 0;
    for number in 0..1000 {
        for _ in session.handle(Time::ZERO, &fragment(number, 4, true)).unwrap() {
            session.send(Time::ZERO, "y".repeat(1 << 20));
            answered += 1;
        }
        while session.poll_packet(Time::ZERO).is_some() {}
    }
    // Some are on their way besides those that wait.
    let most = (MOST_QUEUED + 2 * WINDOW_BYTES) >> 20;
    assert!((17..=most).contains(&answered), "{answered}");
}

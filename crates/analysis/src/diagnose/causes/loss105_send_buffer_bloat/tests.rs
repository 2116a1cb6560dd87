//! Both sides of every threshold, and what looks the same.

use h2lab_base::units::Time;
use h2lab_model::record::CellRecord;
use h2lab_model::workload::Protocol;
use h2lab_wire::StreamId;
use h2lab_wire::trace::FrameKind;

use crate::diagnose::testing::{self, Scene, frame};
use crate::diagnose::{Confidence, Finding};

/// Bytes of a DATA frame.
const FRAME: u32 = 16_384;

fn finding(record: CellRecord) -> Option<Finding> {
    testing::found("LOSS105", record)
}

/// A large download beside short responses, on one connection whose quickest response takes 25 ms.
#[derive(Clone, Copy)]
struct Beside {
    /// Short responses that arrive behind frames of the large one, 125 ms and more after the beginning.
    behind: u64,
    /// The number of frames, 5 ms apart.
    frames: u64,
    /// Whether more frames come after each.
    goes_on: bool,
    /// Short responses at other times.
    alone: u64,
    /// How long these wait, in milliseconds beyond the round trip.
    late: u64,
    /// For how many milliseconds before the short response no frame arrives.
    pause: u64,
    /// Bytes of a short response.
    body: u64,
    /// The shortest round trip, in milliseconds.
    best: u32,
    /// The round trip of our client's TCP meanwhile, in milliseconds.
    rtt: u32,
}

/// Six that wait behind eight frames for 45 ms, and six that do not wait.
const BLOAT: Beside =
    Beside { behind: 6, frames: 8, goes_on: true, alone: 6, late: 0, pause: 0, body: 100, best: 8, rtt: 8 };

impl Beside {
    fn record(self) -> CellRecord {
        let mut scene = Scene::new(Protocol::H2c).no_link();
        // The quickest.
        scene = scene.request(0, 1, 10, 35, 35);
        for n in 0..self.alone {
            let sent = 10_000 + 500 * n;
            scene =
                scene.request(0, 1_001 + 2 * n as u32, sent, sent + 25 + self.late, sent + 25 + self.late);
        }
        let waited = 5 * self.frames + 5 + self.pause;
        for n in 0..self.behind {
            let came = 1_000 * n + 125 + waited;
            scene = scene.request(0, 101 + 2 * n as u32, 1_000 * n + 100, came, came);
        }
        scene = scene.tick(0, 0, 0, false).tick(0, 120, 0, false);
        let mut record = scene.record();
        (record.tcp[0].rtt_us, record.tcp[1].rtt_us) = (self.best * 1_000, self.rtt * 1_000);
        for sample in record.samples.edit().iter_mut() {
            sample.body_bytes = self.body;
        }
        for n in 0..self.behind {
            let after = if self.goes_on { 2 } else { 0 };
            let before = (0..self.frames).map(|frame| 5 * frame + 5);
            let rest = (0..after).map(|frame| waited + 5 * frame + 5);
            for at in before.chain(rest) {
                record.frames.push(frame(FrameKind::DATA, 3 + 2 * n as u32, FRAME, 1_000 * n + 125 + at));
            }
        }
        record.frames.sort_by_key(|frame| frame.at);
        record
    }

    fn finding(self) -> Option<Finding> {
        finding(self.record())
    }
}

#[test]
fn short_responses_behind_queued_data_are_found_with_what_they_waited() {
    let found = BLOAT.finding().expect("a finding");
    assert_eq!(
        found.symptom,
        "6 short responses came 45 ms late on average, behind 128 KiB of a large one on the same connection, \
         which then went on: it was queued in the server's socket or the path"
    );
    // Six of 70 ms and seven of 25 ms: 270 ms of 595 ms.
    assert!((found.cost_share - 270.0 / 595.0).abs() < 1e-9, "{}", found.cost);
    assert_eq!(found.confidence, Confidence::Inferred, "the server's buffer is not seen");
    assert!(found.fixes[0].setting.contains("tcp_notsent_lowat"), "{:?}", found.fixes);
}

#[test]
fn a_queue_of_four_frames_is_more_than_taking_turns() {
    assert!(Beside { frames: 4, ..BLOAT }.finding().is_some());
    assert_eq!(Beside { frames: 3, ..BLOAT }.finding(), None);
}

#[test]
fn what_tcp_has_on_its_way_is_no_queue() {
    // 45 ms are three round trips of 15 ms, and less than three of 16 ms.
    assert!(Beside { best: 15, rtt: 15, ..BLOAT }.finding().is_some());
    assert_eq!(Beside { best: 16, rtt: 16, ..BLOAT }.finding(), None);
}

#[test]
fn five_that_waited_and_five_that_did_not_are_wanted() {
    assert!(Beside { behind: 5, ..BLOAT }.finding().is_some());
    assert_eq!(Beside { behind: 4, ..BLOAT }.finding(), None);
    // The quickest is one of them.
    assert!(Beside { alone: 4, ..BLOAT }.finding().is_some());
    assert_eq!(Beside { alone: 3, ..BLOAT }.finding(), None);
}

#[test]
fn a_handler_that_takes_its_time_is_slow_without_a_download_as_well() {
    // A quarter of 45 ms.
    assert!(Beside { late: 11, ..BLOAT }.finding().is_some());
    assert_eq!(Beside { late: 12, ..BLOAT }.finding(), None);
}

#[test]
fn a_scheduler_that_serves_the_large_response_to_its_end_is_another_cause() {
    assert_eq!(Beside { goes_on: false, ..BLOAT }.finding(), None);
    // Three of six are half.
    let without = |streams: &[u32]| {
        let mut record = BLOAT.record();
        let ends = |n: u64| Time::from_millis(1_000 * n + 125 + 45);
        record.frames.retain(|frame| {
            let n = u64::from(frame.stream.0.saturating_sub(3) / 2);
            frame.kind != FrameKind::DATA || !streams.contains(&frame.stream.0) || frame.at < ends(n)
        });
        finding(record)
    };
    assert!(without(&[3, 5, 7]).is_some());
    assert_eq!(without(&[3, 5, 7, 9]), None);
}

#[test]
fn a_pause_before_the_response_is_a_stall_or_its_handler() {
    // 40 ms of data, then 5 ms and this pause: a quarter of the whole is the bound.
    assert!(Beside { pause: 8, ..BLOAT }.finding().is_some());
    assert_eq!(Beside { pause: 9, ..BLOAT }.finding(), None);
}

#[test]
fn responses_that_are_no_shorter_than_an_eighth_of_the_queue_wait_for_themselves() {
    assert!(Beside { body: 16_384, ..BLOAT }.finding().is_some());
    assert_eq!(Beside { body: 16_385, ..BLOAT }.finding(), None);
}

#[test]
fn many_equal_responses_before_one_are_a_full_path_and_no_large_one() {
    let mut record = BLOAT.record();
    for (n, frame) in record.frames.iter_mut().filter(|frame| frame.kind == FrameKind::DATA).enumerate() {
        frame.stream = StreamId(5_001 + 2 * (n as u32 % 5));
    }
    assert_eq!(finding(record), None);
}

#[test]
fn pushed_data_is_another_cause() {
    let mut record = BLOAT.record();
    for frame in record.frames.iter_mut().filter(|frame| frame.kind == FrameKind::DATA) {
        frame.stream.0 += 1;
    }
    assert_eq!(finding(record), None);
}

#[test]
fn a_round_trip_that_has_grown_puts_the_queue_into_the_path() {
    let place = |rtt: u32| Beside { rtt, ..BLOAT }.finding().expect("a finding");
    // By half of 45 ms.
    let found = place(31);
    assert!(found.symptom.ends_with("it was queued in the path"), "{}", found.symptom);
    assert!(found.fixes[0].setting.contains("congestion"), "{:?}", found.fixes);
    assert!(place(30).symptom.ends_with("it was queued in the server's socket or the path"));
}

#[test]
fn it_is_no_cause_of_protocols_with_a_connection_for_each() {
    let mut record = BLOAT.record();
    record.cell.protocol = Protocol::H1;
    assert_eq!(finding(record), None);
}

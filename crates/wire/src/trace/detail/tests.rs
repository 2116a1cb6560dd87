//! The reader compared with the tap, and its output for each type.

use proptest::prelude::*;

use super::*;
use crate::trace::Tap;
use crate::trace::frame::FrameEvent;

/// A frame on the wire.
fn wire(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The details of `bytes` that arrive from `direction`, all at once.
fn detailed(dialect: Dialect, direction: Direction, bytes: &[u8]) -> Vec<DetailedFrame> {
    let (mut reader, mut detailed) = (Reader::new(dialect, 0), Vec::new());
    reader.feed(Time::ZERO, direction, bytes, &mut |one| detailed.push(one));
    reader.end(&mut |one| detailed.push(one));
    detailed
}

/// The detail of a single HTTP/2 frame.
fn detail(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Detail {
    detailed(Dialect::Http2, Direction::Down, &wire(kind, flags, stream, payload)).swap_remove(0).detail
}

fn fields(detail: &Detail) -> Vec<String> {
    let Detail::Head(head) = detail else { panic!("no head: {detail:?}") };
    head.fields.iter().map(|field| format!("{} {}", field.name, field.value)).collect()
}

fn start_line(detail: &Detail) -> &str {
    let Detail::Head(head) = detail else { panic!("no head: {detail:?}") };
    head.start_line.as_deref().unwrap_or_default()
}

#[test]
fn settings_go_by_name_and_an_acknowledgement_is_empty() {
    let settings = detail(4, 0, 0, &[0, 3, 0, 0, 0, 100, 0, 0x77, 0, 0, 1, 0]);
    let setting = |name: &str, id, value| Setting { name: name.to_owned(), id, value };
    let expected = vec![setting("MAX_CONCURRENT_STREAMS", 3, 100), setting("0x0077", 0x77, 256)];
    assert_eq!(settings, Detail::Settings { settings: expected, is_cut: false });
    assert_eq!(detail(4, 1, 0, &[]), Detail::Settings { settings: Vec::new(), is_cut: false });
    assert!(matches!(detail(4, 0, 0, &[0; 5]), Detail::Malformed { .. }));
}

#[test]
fn at_most_a_hundred_settings_are_kept_and_the_rest_is_said_to_be_missing() {
    for (count, cut) in [(100, false), (101, true)] {
        let Detail::Settings { settings, is_cut } = detail(4, 0, 0, &[0; 6].repeat(count)) else { panic!() };
        assert_eq!((settings.len(), is_cut), (100, cut));
    }
}

#[test]
fn a_goaway_reports_code_last_stream_and_printable_debug_data() {
    let goaway =
        detail(7, 0, 0, &[&0x8000_07cf_u32.to_be_bytes()[..], &[0, 0, 0, 11], b"calm\x1bdown"].concat());
    let expected = Detail::GoAway {
        last_stream_id: 1999,
        error_code: "ENHANCE_YOUR_CALM".to_owned(),
        debug: "calm\\u{1b}down".to_owned(),
    };
    assert_eq!(goaway, expected);
    assert!(matches!(detail(7, 0, 0, &[0; 7]), Detail::Malformed { .. }));
}

#[test]
fn the_small_frames_report_their_numbers() {
    assert_eq!(detail(8, 0, 1, &[0x80, 0, 1, 0]), Detail::WindowUpdate { increment: 256 });
    assert_eq!(detail(3, 0, 1, &[0, 0, 0, 8]), Detail::Reset { error_code: "CANCEL".to_owned() });
    assert_eq!(detail(3, 0, 1, &[0, 0, 0, 99]), Detail::Reset { error_code: "0x63".to_owned() });
    assert_eq!(detail(6, 0, 0, b"\0\x01\x02abcde"), Detail::Ping { opaque: "0001026162636465".to_owned() });
    let Dependency { depends_on, weight, exclusive } = match detail(2, 0, 3, &[0x80, 0, 0, 1, 255]) {
        Detail::Priority(dependency) => dependency,
        other => panic!("{other:?}"),
    };
    assert_eq!((depends_on, weight, exclusive), (1, 256, true));
    let update = Detail::PriorityUpdate { prioritized_stream: 5, priority_field_value: "u=1, i".to_owned() };
    assert_eq!(detail(0x10, 0, 0, b"\0\0\0\x05u=1, i"), update);
    assert_eq!(detail(0xbb, 7, 9, &[0xca, 0xfe]), Detail::Unknown { payload: "cafe".to_owned() });
}

#[test]
fn padding_counts_apart_from_data_and_must_fit() {
    let data = |data_bytes, padding| Detail::Data { data_bytes, padding, chunk: None };
    assert_eq!(detail(0, 1, 1, b"abc"), data(3, None));
    assert_eq!(detail(0, 8, 1, &[2, b'a', 0, 0]), data(1, Some(2)));
    assert_eq!(detail(0, 8, 1, &[3, 0, 0, 0]), data(0, Some(3)));
    assert!(matches!(detail(0, 8, 1, &[4, 0, 0, 0]), Detail::Malformed { .. }));
    assert!(matches!(detail(0, 8, 1, &[]), Detail::Malformed { .. }));
}

#[test]
fn fields_are_decoded_along_the_connection_and_across_continuations() {
    let bytes = [
        wire(1, 0x0, 1, b"\x88\x40\x04x-"),
        wire(9, 0x4, 1, b"id\x01a"),
        wire(1, 0x2d, 3, &[2, 0, 0, 0, 1, 15, 0xbe, 0, 0]),
        wire(5, 0xc, 1, &[1, 0, 0, 0, 2, 0x82, 0xbe, 0]),
    ]
    .concat();
    let detailed = detailed(Dialect::Http2, Direction::Down, &bytes);
    assert!(matches!(&detailed[0].detail, Detail::Head(head) if head.continues && head.fields.is_empty()));
    assert_eq!(fields(&detailed[1].detail), [":status 200", "x-id a"]);
    assert_eq!(fields(&detailed[2].detail), ["x-id a"], "the table remembers it");
    assert!(
        matches!(&detailed[2].detail, Detail::Head(head) if head.padding == Some(2) && head.priority.unwrap().weight == 16)
    );
    assert_eq!(fields(&detailed[3].detail), [":method GET", "x-id a"]);
    assert!(matches!(&detailed[3].detail, Detail::Head(head) if head.promised_stream == Some(2)));
}

#[test]
fn a_block_that_is_never_finished_or_too_long_ends_decoding_and_says_so() {
    let unfinished = wire(1, 0, 1, &[0x88]);
    let too_long = wire(1, 4, 1, &vec![0x88; KEPT + 1]);
    for block in [unfinished, too_long] {
        let bytes = [wire(4, 0, 0, &[]), block, wire(1, 4, 3, &[0x88])].concat();
        let detailed = detailed(Dialect::Http2, Direction::Down, &bytes);
        assert!(
            matches!(&detailed[2].detail, Detail::Head(head) if head.undecoded.is_some()),
            "{:?}",
            detailed[2]
        );
    }
}

#[test]
fn long_values_are_cut_and_their_length_is_reported() {
    let long = |length: usize| {
        let head = format!("HTTP/1.1 200 OK\r\nx-long: {}\r\ncontent-length: 0\r\n\r\n", "v".repeat(length));
        detailed(Dialect::Http1, Direction::Down, head.as_bytes()).swap_remove(0).detail
    };
    for (length, cut) in [(4_096, false), (4_097, true)] {
        let Detail::Head(head) = long(length) else { panic!() };
        assert_eq!((head.is_cut, head.fields[0].value.len()), (cut, 4_096));
        assert_eq!(head.fields[0].value_bytes as usize, length);
    }
}

#[test]
fn a_chunked_message_reports_start_line_fields_chunks_and_trailers() {
    let bytes =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4;x=y\r\nWiki\r\n0\r\nx-sum: 42\r\n\r\n";
    let detailed = detailed(Dialect::Http1, Direction::Down, bytes);
    let names: Vec<String> = detailed.iter().map(|detailed| detailed.event.to_string()).collect();
    assert_eq!(names, ["HEADERS[1]", "DATA[1]", "DATA[1]"]);
    assert!(
        matches!(&detailed[0].detail, Detail::Head(head) if head.start_line.as_deref() == Some("HTTP/1.1 200 OK"))
    );
    assert_eq!(fields(&detailed[0].detail), ["Transfer-Encoding chunked"]);
    let chunk = Some("4;x=y".to_owned());
    assert_eq!(detailed[1].detail, Detail::Data { data_bytes: 4, padding: None, chunk });
    assert_eq!(fields(&detailed[2].detail), ["x-sum 42"]);
}

#[test]
fn the_heads_before_an_upgrade_are_reported_on_stream_1_however_they_are_cut() {
    let up = b"OPTIONS * HTTP/1.1\r\nUpgrade: h2c\r\n\r\nPRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let down = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n";
    let expected: [(_, &[u8], &[&str]); 2] = [
        (Direction::Up, up, &["OPTIONS * HTTP/1.1"]),
        (Direction::Down, down, &["HTTP/1.1 100 Continue", "HTTP/1.1 101 Switching Protocols"]),
    ];
    for (direction, heads, lines) in expected {
        let bytes = [heads, &wire(4, 0, 0, &[])].concat();
        for step in 1..bytes.len() {
            let (mut reader, mut detailed) = (Reader::new(Dialect::Http2, 0), Vec::new());
            for piece in bytes.chunks(step) {
                reader.feed(Time::ZERO, direction, piece, &mut |one| detailed.push(one));
            }
            let settings = detailed.pop().expect("the frame behind the heads");
            assert_eq!(settings.event.to_string(), "SETTINGS[0]");
            assert!(detailed.iter().all(|one| one.event.to_string() == "HEADERS[1]"), "{detailed:?}");
            let seen: Vec<_> = detailed.iter().map(|one| start_line(&one.detail)).collect();
            assert_eq!(seen, lines, "in steps of {step}");
            assert_eq!(fields(&detailed.last().expect("a head").detail), ["Upgrade h2c"]);
        }
    }
}

#[test]
fn a_head_before_an_upgrade_that_never_ends_is_reported_as_cut_off() {
    let detailed = detailed(Dialect::Http2, Direction::Down, b"HTTP/1.1 101 Swit");
    assert_eq!((detailed.len(), detailed[0].detail.clone()), (1, Detail::CutOff { received: 17 }));
}

#[test]
fn a_frame_that_the_connection_cuts_off_is_reported_at_its_end() {
    let bytes = wire(0, 1, 1, &[0; 100]);
    let detailed = detailed(Dialect::Http2, Direction::Down, &bytes[..39]);
    assert_eq!(
        (detailed[0].detail.clone(), detailed[0].is_complete),
        (Detail::CutOff { received: 30 }, false)
    );
}

/// What both report for the same pieces: the tap's events, and the reader's with whether they are complete.
fn both(dialect: Dialect, pieces: &[(bool, Vec<u8>)]) -> (Vec<FrameEvent>, Vec<(FrameEvent, bool)>) {
    let (mut tap, mut reader) = (Tap::new(dialect, 3), Reader::new(dialect, 3));
    let (mut events, mut detailed) = (Vec::new(), Vec::new());
    for (n, (up, bytes)) in pieces.iter().enumerate() {
        let (now, direction) =
            (Time::from_millis(n as u64), if *up { Direction::Up } else { Direction::Down });
        tap.feed(now, direction, bytes, &mut |event| events.push(event));
        reader.feed(now, direction, bytes, &mut |one| detailed.push((one.event, one.is_complete)));
    }
    reader.end(&mut |one| detailed.push((one.event, one.is_complete)));
    (events, detailed)
}

/// The tap reports uplink frames at their header, the reader at their end: the same frames in each direction's order.
/// The tap does not report downlink frames, or those with a number, that are cut off.
fn assert_alike(dialect: Dialect, pieces: &[(bool, Vec<u8>)]) {
    let (events, detailed) = both(dialect, pieces);
    for direction in [Direction::Up, Direction::Down] {
        let events: Vec<_> = events.iter().filter(|event| event.direction == direction).copied().collect();
        let early =
            |event: &FrameEvent| direction == Direction::Up && frames::value_offset(event.kind).is_none();
        let detailed: Vec<_> = detailed
            .iter()
            .filter(|(event, complete)| event.direction == direction && (*complete || early(event)))
            .map(|(event, _)| *event)
            .collect();
        assert_eq!(events, detailed);
    }
}

/// Frames that are mostly well-formed, so that the interesting paths are met.
fn frames_on_the_wire() -> impl Strategy<Value = Vec<u8>> {
    let frame = (0..18_u8, any::<u8>(), 0..6_u32, prop::collection::vec(any::<u8>(), 0..60));
    prop::collection::vec(frame, 1..20).prop_map(|frames| {
        frames
            .iter()
            .flat_map(|(kind, flags, stream, payload)| wire(*kind, *flags, *stream, payload))
            .collect()
    })
}

/// Cuts `bytes` into pieces of `step` bytes, all on the same side.
fn cut(bytes: &[u8], step: usize, side: bool) -> Vec<(bool, Vec<u8>)> {
    bytes.chunks(step).map(|piece| (side, piece.to_vec())).collect()
}

proptest! {
    #[test]
    fn any_bytes_in_any_pieces_are_reported_as_by_the_tap(
        pieces in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..80)), 0..30),
        http1 in any::<bool>(),
    ) {
        // The tap does not report heads before an upgrade, which begin like this.
        let begins_like_a_head = |side| {
            let mut bytes = pieces.iter().filter(|(up, _)| *up == side).flat_map(|(_, bytes)| bytes);
            bytes.next().is_some_and(u8::is_ascii_uppercase)
        };
        prop_assume!(http1 || !(begins_like_a_head(true) || begins_like_a_head(false)));
        assert_alike(if http1 { Dialect::Http1 } else { Dialect::Http2 }, &pieces);
    }

    #[test]
    fn frames_are_reported_as_by_the_tap(
        bytes in frames_on_the_wire(), step in 1..90_usize, side in any::<bool>(),
    ) {
        assert_alike(Dialect::Http2, &cut(&bytes, step, side));
    }

    #[test]
    fn messages_are_reported_as_by_the_tap(
        parts in prop::collection::vec(0..9_usize, 1..12), step in 1..50_usize, side in any::<bool>(),
    ) {
        const PARTS: [&str; 9] = [
            "HTTP/1.1 200 OK\r\n", "GET / HTTP/1.1\r\n", "content-length: 4\r\n", "transfer-encoding: chunked\r\n",
            "\r\n", "body", "4\r\nbody\r\n", "0\r\n", "x: y\r\n",
        ];
        let text: String = parts.iter().map(|part| PARTS[*part]).collect();
        assert_alike(Dialect::Http1, &cut(text.as_bytes(), step, side));
    }
}

#[test]
fn the_end_of_a_frame_is_found_by_its_place_in_the_stream_however_the_bytes_are_cut() {
    let upgrade = b"GET / HTTP/1.1\r\nupgrade: h2c\r\n\r\n".as_slice();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice();
    let frames = [preface, &wire(4, 0, 0, &[]), &wire(0, 1, 1, b"abc")].concat();
    let chunked = b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".as_slice();
    let cases: [(Dialect, Vec<u8>, &[u64]); 4] = [
        (Dialect::Http2, frames.clone(), &[33, 45]),
        (Dialect::Http2, [upgrade, &frames].concat(), &[32, 65, 77]),
        (Dialect::Http1, b"GET / HTTP/1.1\r\n\r\n".repeat(2), &[18, 36]),
        (Dialect::Http1, chunked.to_vec(), &[47, 53, 60]),
    ];
    for (dialect, bytes, expected) in cases {
        for step in 1..=bytes.len() {
            let (mut reader, mut ends) = (Reader::new(dialect, 0), Vec::new());
            for piece in bytes.chunks(step) {
                reader.feed(Time::ZERO, Direction::Up, piece, &mut |detailed| ends.push(detailed.ends_at));
            }
            // A body of HTTP/1.1 is described in the pieces in which it came.
            assert!(expected.iter().all(|end| ends.contains(end)), "{ends:?} in steps of {step}");
            assert_eq!(ends.last(), expected.last());
        }
    }
}

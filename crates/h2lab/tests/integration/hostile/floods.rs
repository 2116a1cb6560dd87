use h2lab_wire::ErrorCode;
use h2lab_wire::h2::frame::{flag, kind};

use super::attacker::{block, frame, initial_window, nth, request, window_update};
use super::{Attacker, FAR, attack};
use crate::support::DEADLINE;

const END: u8 = flag::END_STREAM;

fn reset(stream: u32) -> Vec<u8> {
    frame(kind::RST_STREAM, 0, stream, &ErrorCode::CANCEL.0.to_be_bytes())
}

#[test]
fn rapid_reset() {
    let received = attack(&[], |origin| {
        let mut attacker = Attacker::new(origin.clear);
        let sent =
            attacker.flood(FAR, |n| [request(nth(n), END, "GET", "/delay/60000"), reset(nth(n))].concat());
        println!("{sent} requests sent and reset");
        attacker.until_closed()
    });
    received.assert_calmed("resets: more than 1000 streams were begun and reset");
    assert_eq!(received.served, 0);
}

#[test]
fn made_you_reset() {
    let received = attack(&[], |origin| {
        let mut attacker = Attacker::new(origin.clear);
        attacker
            .flood(FAR, |n| [request(nth(n), END, "GET", "/delay/60000"), window_update(nth(n), 0)].concat());
        attacker.until_closed()
    });
    received.assert_calmed("stream-errors: more than 1024 stream errors");
    assert!(received.resets.iter().all(|reset| reset.1 == ErrorCode::PROTOCOL_ERROR));
    assert_eq!((received.resets.len(), received.served), (1_024, 0));
}

#[test]
fn continuation_flood_with_and_without_fields() {
    let field = [&[0x00, 6][..], b"x-junk", &[70], &[b'v'; 70]].concat();
    for fragment in [field, Vec::new()] {
        let received = attack(&[], |origin| {
            let mut attacker = Attacker::new(origin.clear);
            attacker.send(&frame(kind::HEADERS, END, 1, &block("GET", "/")));
            attacker.flood(FAR, |_| frame(kind::CONTINUATION, 0, 1, &fragment));
            attacker.until_closed()
        });
        received.assert_calmed("continuations: more than 8 CONTINUATION frames in a field block");
    }
}

#[test]
fn field_block_of_many_large_frames() {
    let received = attack(&[], |origin| {
        let mut attacker = Attacker::new(origin.clear);
        attacker.send(&frame(kind::HEADERS, END, 1, &block("GET", "/")));
        attacker.flood(FAR, |_| frame(kind::CONTINUATION, 0, 1, &[0x82; 16_384]));
        attacker.until_closed()
    });
    received.assert_calmed("field-block: more than 262144 bytes of a field block in pieces");
}

#[test]
fn hpack_bomb() {
    let received = attack(&[], |origin| {
        let mut attacker = Attacker::new(origin.clear);
        // A value of 4,000 bytes that enters the dynamic table, and 12,000 references to it, in every request.
        let entry = [&[0x40, 1, b'x', 0x7f, 0xa1, 0x1e][..], &[b'v'; 4_000]].concat();
        attacker.flood(FAR, |n| {
            let block = [block("GET", "/"), entry.clone(), vec![0xbe; 12_000]].concat();
            frame(kind::HEADERS, END | flag::END_HEADERS, nth(n), &block)
        });
        attacker.until_closed()
    });
    received.assert_calmed("field-list: more than 262144 bytes of fields in a block");
}

#[test]
fn names_without_a_letter() {
    let received = attack(&[], |origin| {
        let mut attacker = Attacker::new(origin.clear);
        let nameless = [0x00, 0, 1, b'v'].repeat(100);
        attacker.flood(FAR, |n| {
            let block = [block("GET", "/"), nameless.clone()].concat();
            frame(kind::HEADERS, END | flag::END_HEADERS, nth(n), &block)
        });
        attacker.until_closed()
    });
    received.assert_calmed("stream-errors: more than 1024 stream errors");
    assert_eq!(received.served, 0);
}

#[test]
fn empty_data() {
    let received = attack(&[], |origin| {
        let mut attacker = Attacker::new(origin.clear);
        attacker.send(&request(1, 0, "POST", "/echo"));
        attacker.flood(FAR, |_| frame(kind::DATA, 0, 1, &[]));
        attacker.until_closed()
    });
    received.assert_calmed("empty-data: more than 100 DATA frames in a row without data");
}

#[test]
fn data_byte_by_byte_costs_no_more_than_its_bytes() {
    let received = attack(&[], |origin| {
        let mut attacker = Attacker::new(origin.clear);
        attacker.send(&request(1, 0, "POST", "/echo"));
        assert_eq!(attacker.flood(FAR, |_| frame(kind::DATA, 0, 1, b"x")), FAR);
        attacker.send(&frame(kind::DATA, END, 1, &[]));
        attacker.finish(1)
    });
    assert_eq!((received.goaway, received.served), (None, 1));
    assert_eq!(received.data.iter().sum::<usize>(), FAR);
}

#[test]
fn data_byte_by_byte_without_end() {
    let received = attack(&["--limit=short-data=1000/0"], |origin| {
        let mut attacker = Attacker::new(origin.clear);
        attacker.send(&request(1, 0, "POST", "/echo"));
        attacker.flood(FAR, |_| frame(kind::DATA, 0, 1, b"x"));
        attacker.until_closed()
    });
    received.assert_calmed("short-data: more than 1000 DATA frames of less than 16 bytes");
}

#[test]
fn credit_that_nobody_needs() {
    for stream in [0, 1] {
        let received = attack(&[], |origin| {
            let mut attacker = Attacker::new(origin.clear);
            attacker.send(&request(1, END, "GET", "/delay/60000"));
            attacker.flood(FAR, |_| window_update(stream, 1));
            attacker.until_closed()
        });
        received.assert_calmed("noise: more than 1100 frames that change nothing");
    }
}

/// What an attacker sends after its GOAWAY is read for a limited time only.
#[test]
fn bytes_after_the_last_word() {
    const MOST: usize = 512 << 20;
    let sent = attack(&[], |origin| {
        let mut attacker = Attacker::not_reading(origin.clear, None);
        attacker.send(&frame(kind::DATA, 0, 1, b"on an idle stream"));
        let piece = frame(kind::DATA, 0, 1, &[0; 16_384]);
        attacker.flood(MOST / piece.len(), |_| piece.clone()) * piece.len()
    });
    // What the origin reads, and what fits into the sockets' buffers.
    assert!(sent < 256 << 20, "{sent} bytes were taken");
}

#[test]
fn frames_that_change_nothing() {
    let priority = frame(kind::PRIORITY, 0, 3, &[0, 0, 0, 0, 16]);
    let unknown = frame(0xbe, 0xff, 7, b"grease");
    for noise in [priority, unknown, reset(1), frame(kind::SETTINGS, flag::ACK, 0, &[])] {
        let received = attack(&[], |origin| {
            let mut attacker = Attacker::new(origin.clear);
            attacker.send(&[request(1, END, "GET", "/delay/60000"), reset(1)].concat());
            attacker.flood(FAR, |_| noise.clone());
            attacker.until_closed()
        });
        received.assert_calmed("noise: more than 1100 frames that change nothing");
    }
}

#[test]
fn pings_whose_answers_are_read() {
    let received = attack(&[], |origin| {
        let mut attacker = Attacker::new(origin.clear);
        assert_eq!(attacker.flood(FAR, |_| frame(kind::PING, 0, 0, &[7; 8])), FAR);
        attacker.finish(0)
    });
    assert_eq!((received.goaway, received.frames[usize::from(kind::PING)]), (None, FAR as u32 + 1));
}

#[test]
fn pings_whose_answers_are_not_read() {
    let log = attack(&[], |origin| {
        let mut attacker = Attacker::not_reading(origin.clear, Some(4_096));
        // Megabytes fit into the sockets' buffers before the first answer has to wait.
        let sent = attacker.flood(100 * FAR, |_| frame(kind::PING, 0, 0, &[7; 8]));
        println!("{sent} PINGs until the origin took no more");
        assert!(sent < 100 * FAR);
        origin.child.log()
    });
    assert!(log.contains("unread-answers: more than 1000 answers that the peer does not read"), "{log}");
}

#[test]
fn settings_flood() {
    for not_reading in [false, true] {
        let received = attack(&[], |origin| {
            let mut attacker = if not_reading {
                Attacker::not_reading(origin.clear, Some(4_096))
            } else {
                Attacker::new(origin.clear)
            };
            attacker.flood(FAR, |n| initial_window(n % 2));
            attacker.until_closed()
        });
        received.assert_calmed("settings: more than 100 SETTINGS");
    }
}

#[test]
fn streams_beyond_the_limit() {
    let received = attack(&["--max-concurrent-streams", "100"], |origin| {
        let mut attacker = Attacker::new(origin.clear);
        attacker.flood(FAR, |n| request(nth(n), END, "GET", "/delay/60000"));
        attacker.until_closed()
    });
    received.assert_calmed("stream-errors: more than 1024 stream errors");
    assert!(received.resets.iter().all(|reset| reset.1 == ErrorCode::REFUSED_STREAM));
    assert_eq!(received.resets.len(), 1_024);
}

#[test]
fn requests_whose_answers_are_not_read() {
    attack(&["--limit", "stall=500ms", "--max-concurrent-streams", "100000"], |origin| {
        let mut attacker = Attacker::not_reading(origin.clear, Some(4_096));
        attacker
            .send(&[initial_window(i32::MAX as u32), window_update(0, i32::MAX as u32 - 65_535)].concat());
        // Megabytes fit into the sockets' buffers before the first answer has to wait. Fewer than the streams that may be
        // open, so that none is refused.
        let sent = attacker.flood(2 * FAR, |n| request(nth(n), END, "GET", "/bytes/64k"));
        println!("{sent} requests until the origin took no more");
        let stalled =
            |line: &str| line.contains("stall: for more than 500 ms the peer took nothing").then_some(());
        origin.child.wait_for_line(DEADLINE, stalled).expect("the origin times out");
    });
}

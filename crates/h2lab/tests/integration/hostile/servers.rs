//! Attacks of a server on our client: the load generator, driven by `h2lab compare`.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use h2lab_model::record::{CloseReason, Outcome};
use h2lab_wire::ErrorCode;
use h2lab_wire::h2::frame::{flag, kind};

use super::attacker::{Attacker, frame, initial_window, window_update};
use super::server::{Attack, Met, head, meet, meet_any, served};
use super::{FAR, SHORT};

/// `:status: 200` of the static table.
const OK: &[u8] = &[0x88];
/// `:status: 103`.
const EARLY: &[u8] = &[0x08, 3, b'1', b'0', b'3'];
/// The most bytes that a frame holds, unless more was agreed.
const FRAME: usize = 16_384;

/// Bytes of one write of an endless flood: the kernel must limit it, and not this test.
const WRITE: usize = 8 << 20;

fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(kind::RST_STREAM, 0, stream, &code.to_be_bytes())
}

fn goaway(last: u32, debug: &[u8]) -> Vec<u8> {
    frame(kind::GOAWAY, 0, 0, &[&last.to_be_bytes()[..], &[0; 4], debug].concat())
}

/// Floods with this frame while reading what our client says.
fn flood(server: &mut Attacker, count: usize, noise: &[u8]) {
    server.listen();
    server.flood(count, |_| noise.to_vec());
}

/// The attacked requests, all of which ended with this error.
#[track_caller]
fn assert_outcomes(met: &Met, outcome: Outcome, code: ErrorCode) {
    let failed = met.failed();
    assert!(!failed.is_empty());
    for sample in failed {
        assert_eq!((sample.outcome, ErrorCode(sample.code)), (outcome, code), "{sample:?}");
    }
}

/// Fails unless every third request was reset by our client with `code`, and all others were served on the same connection, which
/// lasted to the end.
#[track_caller]
fn assert_streams_reset(met: &Met, code: ErrorCode) {
    assert_outcomes(met, Outcome::Protocol, code);
    assert_eq!(
        (&met.connection.closed, met.received.frames[usize::from(kind::GOAWAY)]),
        (&CloseReason::Cell, 1)
    );
    let codes: Vec<ErrorCode> = met.received.resets.iter().map(|reset| reset.1).collect();
    assert_eq!(codes, vec![code; met.failed().len()]);
    let served = met.samples(true).filter(|sample| sample.outcome == Outcome::Succeeded).count();
    assert!(served >= 2 * met.failed().len(), "{served} served");
}

#[test]
fn continuation_flood_with_and_without_fields() {
    let with_fields = |server: &mut Attacker, stream| {
        let field = [&[0x00, 6][..], b"x-junk", &[70], &[b'v'; 70]].concat();
        server.send(&frame(kind::HEADERS, 0, stream, OK));
        flood(server, FAR, &frame(kind::CONTINUATION, 0, stream, &field));
    };
    let empty = |server: &mut Attacker, stream| {
        server.send(&frame(kind::HEADERS, 0, stream, OK));
        flood(server, FAR, &frame(kind::CONTINUATION, 0, stream, &[]));
    };
    for attack in [Attack::Http2(with_fields), Attack::Http2(empty)] {
        let met = meet(attack, &[]);
        let words = "continuations: more than 8 CONTINUATION frames in a field block";
        met.assert_ended(ErrorCode::ENHANCE_YOUR_CALM, words);
        assert_outcomes(&met, Outcome::Protocol, ErrorCode::ENHANCE_YOUR_CALM);
    }
}

#[test]
fn response_head_that_never_ends() {
    let attack = Attack::Http2(|server, stream| {
        server.send(&frame(kind::HEADERS, 0, stream, OK));
        flood(server, FAR, &frame(kind::CONTINUATION, 0, stream, &[0x88; FRAME]));
    });
    let words = "field-block: more than 262144 bytes of a field block in pieces";
    meet(attack, &[]).assert_ended(ErrorCode::ENHANCE_YOUR_CALM, words);
}

#[test]
fn hpack_bomb() {
    let attack = Attack::Http2(|server, stream| {
        // A value of 4,000 bytes that enters the dynamic table, and 12,000 references to it.
        let entry = [&[0x40, 1, b'x', 0x7f, 0xa1, 0x1e][..], &[b'v'; 4_000]].concat();
        server.send(&head(stream, 0, &[OK, &entry, &[0xbe; 12_000]].concat()));
    });
    let words = "field-list: more than 262144 bytes of fields in a block";
    meet(attack, &[]).assert_ended(ErrorCode::ENHANCE_YOUR_CALM, words);
}

#[test]
fn names_without_a_letter() {
    let attack = |stream| head(stream, flag::END_STREAM, &[OK, &[0x00, 0, 1, b'v'].repeat(100)].concat());
    assert_streams_reset(&meet(Attack::Streams(attack), &[]), ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn body_longer_than_its_content_length() {
    let attack = |stream| {
        // 28 of the static table is content-length.
        let head = head(stream, 0, &[OK, &[0x0f, 13, 1, b'4']].concat());
        [head, frame(kind::DATA, flag::END_STREAM, stream, b"hello")].concat()
    };
    assert_streams_reset(&meet(Attack::Streams(attack), &[]), ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn interim_responses_one_after_the_other() {
    let attack = |stream| [head(stream, 0, EARLY).repeat(101), served(stream)].concat();
    assert_streams_reset(&meet(Attack::Streams(attack), &[]), ErrorCode::ENHANCE_YOUR_CALM);
}

#[test]
fn windows_of_streams_that_overflow() {
    let attack = |stream| [window_update(stream, i32::MAX as u32), served(stream)].concat();
    assert_streams_reset(&meet(Attack::Streams(attack), &[]), ErrorCode::FLOW_CONTROL_ERROR);
}

#[test]
fn streams_that_the_server_resets() {
    let met = meet(Attack::Streams(|stream| reset(stream, stream)), &[]);
    assert_eq!(met.connection.closed, CloseReason::Cell);
    for sample in met.failed() {
        assert_eq!((sample.outcome, sample.code), (Outcome::Reset, sample.stream.0));
    }
}

#[test]
fn resets_of_a_stream_that_is_over() {
    let attack = Attack::Http2(|server, stream| flood(server, FAR, &reset(stream, 8)));
    meet(attack, &[]).assert_calmed("noise: more than ");
}

#[test]
fn empty_data() {
    let attack = Attack::Http2(|server, stream| {
        server.send(&head(stream, 0, OK));
        flood(server, FAR, &frame(kind::DATA, 0, stream, &[]));
    });
    let words = "empty-data: more than 100 DATA frames in a row without data";
    meet(attack, &[]).assert_ended(ErrorCode::ENHANCE_YOUR_CALM, words);
}

#[test]
fn frames_that_change_nothing() {
    let priority =
        |server: &mut Attacker, _| flood(server, FAR, &frame(kind::PRIORITY, 0, 3, &[0, 0, 0, 0, 16]));
    let unknown = |server: &mut Attacker, _| flood(server, FAR, &frame(0xbe, 0xff, 7, b"grease"));
    let acks = |server: &mut Attacker, _| flood(server, FAR, &frame(kind::SETTINGS, flag::ACK, 0, &[]));
    for attack in [Attack::Http2(priority), Attack::Http2(unknown), Attack::Http2(acks)] {
        meet(attack, &[]).assert_calmed("noise: more than ");
    }
}

#[test]
fn settings_flood_whether_their_answers_are_read_or_not() {
    let reading = |server: &mut Attacker, _| {
        server.listen();
        server.flood(FAR, |n| initial_window(n % 2));
    };
    let not_reading = |server: &mut Attacker, _| {
        server.flood(FAR, |n| initial_window(n % 2));
    };
    for attack in [Attack::Http2(reading), Attack::Http2(not_reading)] {
        meet(attack, &[]).assert_ended(ErrorCode::ENHANCE_YOUR_CALM, "settings: more than 100 SETTINGS");
    }
}

#[test]
fn pings_and_window_updates_that_cost_us_nothing() {
    let met = meet(
        Attack::Http2(|server, stream| {
            server.listen();
            let pair =
                [frame(kind::PING, 0, 0, &[7; 8]), window_update(0, 1), window_update(stream, 1)].concat();
            server.flood(FAR, |_| pair.clone());
            server.send(&[served(stream), goaway(stream, b"")].concat());
        }),
        &[],
    );
    assert_eq!((met.failed(), &met.connection.closed), (Vec::new(), &CloseReason::Server));
    assert_eq!(met.received.frames[usize::from(kind::PING)], FAR as u32);
}

#[test]
fn pings_whose_answers_are_not_read() {
    let attack = Attack::Http2(|server, _| {
        // Megabytes fit into the sockets' buffers before the first answer has to wait.
        server.flood(100 * FAR, |_| frame(kind::PING, 0, 0, &[7; 8]));
    });
    // No GOAWAY: it would not be read either.
    meet(attack, &[]).assert_recorded("unread-answers: more than 1000 answers that the peer does not read");
}

#[test]
fn window_of_the_connection_that_overflows() {
    let attack = Attack::Http2(|server, _| flood(server, FAR, &window_update(0, 1 << 30)));
    let words = "the connection window exceeds 2^31 - 1 (RFC 9113 §6.9.1)";
    meet(attack, &[]).assert_ended(ErrorCode::FLOW_CONTROL_ERROR, words);
}

#[test]
fn promises_that_nobody_wants() {
    let attack = Attack::Http2(|server, stream| {
        server.listen();
        server.flood(FAR, |n| {
            let promised = (2 * n + 2).to_be_bytes();
            let payload = [&promised[..], &super::attacker::block("GET", "/")].concat();
            frame(kind::PUSH_PROMISE, flag::END_HEADERS, stream, &payload)
        });
    });
    let words = "PUSH_PROMISE although push is disabled (RFC 9113 §8.4)";
    meet(attack, &[]).assert_ended(ErrorCode::PROTOCOL_ERROR, words);
}

#[test]
fn goaways_without_end() {
    // Each with as much to store as a frame holds.
    let falling = |server: &mut Attacker, _| {
        server.listen();
        server.flood(FAR, |n| goaway(i32::MAX as u32 - 2 * n, &[b'!'; FRAME - 8]));
    };
    let met = meet(Attack::Http2(falling), &[]);
    met.assert_calmed("noise: more than ");
    assert_eq!(met.connection.goaways.len(), 16);
    assert!(met.connection.goaways.iter().all(|goaway| goaway.debug.len() == 1_024));
    let rising = |server: &mut Attacker, _| {
        server.listen();
        server.flood(FAR, |n| goaway(i32::MAX as u32 - 100 + 2 * n, b""));
    };
    let words = "a second GOAWAY raises the last stream id (RFC 9113 §6.8)";
    meet(Attack::Http2(rising), &[]).assert_ended(ErrorCode::PROTOCOL_ERROR, words);
}

#[test]
fn response_on_a_stream_that_was_never_opened() {
    let attack = Attack::Http2(|server, stream| {
        server.send(&served(stream + 10_000));
    });
    let met = meet(attack, &[]);
    met.assert_ended(ErrorCode::PROTOCOL_ERROR, "a frame on an idle stream (RFC 9113 §5.1)");
    assert_outcomes(&met, Outcome::Protocol, ErrorCode::PROTOCOL_ERROR);
}

#[test]
fn head_that_dribbles() {
    let attack = Attack::Http2(|server, stream| {
        server.listen();
        // As slow as it can be and never idle: the pace is the attack.
        let drop_by_drop = head(stream, 0, &[0x88; FRAME]);
        for byte in &drop_by_drop {
            if !server.send(&[*byte]) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    // The run goes on for much longer than a head may take.
    let met = meet_any(attack, &[&timeout(), "-z=5s"]);
    met.assert_ended(ErrorCode::ENHANCE_YOUR_CALM, "slow-head: a head took more than 500 ms");
}

/// A short `--timeout`, and as much time for what was begun at the end.
fn timeout() -> String {
    format!("--timeout={}ms", SHORT.as_millis())
}

/// The timeout ended it: the requests failed that late, and the connection lasted until the run was over.
fn assert_timed_out(met: &Met) {
    assert_eq!(met.connection.closed, CloseReason::Cell);
    let failed = met.failed();
    assert!(failed.iter().all(|sample| sample.outcome.kind() == Outcome::Timeout), "{failed:?}");
}

#[test]
fn body_that_never_ends() {
    // As fast as the socket takes it: the run must not go on reading it for ever.
    let attack = Attack::Http2(|server, stream| {
        server.send(&head(stream, 0, OK));
        server.listen();
        let much = frame(kind::DATA, 0, stream, &[b'!'; FRAME]).repeat(WRITE / FRAME);
        while server.send(&much) {}
    });
    let met = meet_any(attack, &[&timeout()]);
    assert_timed_out(&met);
}

#[test]
fn windows_that_stay_closed() {
    let attack = Attack::Http2(|server, _| {
        server.send(&initial_window(0));
    });
    let met = meet_any(attack, &[&timeout(), "-X=POST", "--body-bytes=100k"]);
    assert_timed_out(&met);
}

#[test]
fn another_protocol_instead_of_http2() {
    let attack = Attack::Greeting(|stream| {
        stream.write_all(b"220 mail.example ESMTP ready\r\n").unwrap_or_default();
    });
    let met = meet(attack, &[]);
    assert!(
        matches!(&met.connection.closed, CloseReason::Local { why } if why.starts_with("the peer does not speak HTTP/2")),
        "{:?}",
        met.connection.closed
    );
}

#[test]
fn server_that_accepts_and_never_answers() {
    let attack = Attack::Greeting(|stream| {
        std::io::copy(stream, &mut std::io::sink()).unwrap_or_default();
    });
    let met = meet_any(attack, &[&timeout()]);
    assert_eq!(met.connection.bytes_received, 0);
    assert_timed_out(&met);
}

/// Sends `begin`, and then `rest` again and again until our client takes no more.
fn http1_flood(stream: &mut TcpStream, begin: &str, rest: &str) {
    let rest = rest.repeat(WRITE / rest.len());
    let mut taken = stream.write_all(begin.as_bytes());
    while taken.is_ok() {
        taken = stream.write_all(rest.as_bytes());
    }
}

#[test]
fn http1_whose_parts_never_end() {
    const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    /// Long enough that many fields exceed the limit of size before the limit of number.
    fn field() -> String {
        format!("x-junk: {}\r\n", "v".repeat(1_000))
    }
    let lines = |stream: &mut TcpStream| http1_flood(stream, "HTTP/1.1 200 OK\r\n", &field());
    let line = |stream: &mut TcpStream| http1_flood(stream, "HTTP/1.1 200 OK\r\nx-junk: ", "vvvvvvvv");
    let extension = |stream: &mut TcpStream| http1_flood(stream, &format!("{CHUNKED}5;x="), "vvvvvvvv");
    let trailers = |stream: &mut TcpStream| http1_flood(stream, &format!("{CHUNKED}0\r\n"), &field());
    let interims = |stream: &mut TcpStream| http1_flood(stream, "", "HTTP/1.1 103 Early Hints\r\n\r\n");
    let unasked = |stream: &mut TcpStream| {
        http1_flood(stream, "", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    };
    let too_large = "invalid HTTP/1.1 from the peer: header fields larger than our limit";
    let attacks = [
        (Attack::Http1(lines), too_large),
        (Attack::Http1(line), too_large),
        (Attack::Http1(extension), "invalid HTTP/1.1 from the peer: a chunk's extensions are too long"),
        (Attack::Http1(trailers), too_large),
        (Attack::Http1(interims), "interims: more than 100 interim responses to a request"),
        (Attack::Http1(unasked), "invalid HTTP/1.1 from the peer: unsolicited response"),
    ];
    for (attack, why) in attacks {
        let met = meet(attack, &[]);
        met.assert_recorded(why);
    }
}

#[test]
fn http1_body_that_never_ends() {
    let attack = |stream: &mut TcpStream| http1_flood(stream, "HTTP/1.1 200 OK\r\n\r\n", &"!".repeat(1_000));
    let met = meet_any(Attack::Http1(attack), &[&timeout()]);
    met.assert_recorded("a request was not answered in time");
}

#[test]
fn http1_head_that_dribbles() {
    let attack = |stream: &mut TcpStream| {
        let mut taken = stream.write_all(b"HTTP/1.1 200 OK\r\nx-junk: ");
        while taken.is_ok() {
            // Never idle, never done: the pace is the attack.
            std::thread::sleep(Duration::from_millis(10));
            taken = stream.write_all(b"v");
        }
    };
    let met = meet_any(Attack::Http1(attack), &[&timeout()]);
    assert!(matches!(met.connection.closed, CloseReason::Local { .. }), "{:?}", met.connection.closed);
}

//! What decoding costs, in nanoseconds per field: `cargo xtask bench hpack` runs each measurement in the release
//! profile, and once more with its instructions counted. No test depends on it; the goal is 60 ns on typical requests.
#![allow(clippy::print_stdout, reason = "the figures are all that it is for")]

use std::hint::black_box;
use std::time::Instant;

use super::{Decoder, Encoder};
use crate::compression::{FieldEncoder, FieldList};

/// Messages of one connection.
const MESSAGES: usize = 400;
/// How often they are decoded; the median counts.
const ROUNDS: usize = 25;

type Message = Vec<(&'static str, String)>;

/// A page's requests by a browser: much that repeats, a path that does not.
fn browser(n: usize) -> Message {
    let fixed = [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "www.example.com"),
        ("sec-ch-ua", "\"Chromium\";v=\"128\", \"Not;A=Brand\";v=\"24\""),
        ("sec-ch-ua-mobile", "?0"),
        (
            "user-agent",
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/128.0.0.0",
        ),
        ("accept", "image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8"),
        ("sec-fetch-site", "same-origin"),
        ("sec-fetch-mode", "no-cors"),
        ("referer", "https://www.example.com/catalogue/index.html"),
        ("accept-encoding", "gzip, deflate, br, zstd"),
        ("accept-language", "en-GB,en;q=0.9,de;q=0.8"),
        ("cookie", "session=5f2b8c1d9e7a4f6b8c1d9e7a4f6b8c1d; theme=dark; consent=1"),
    ];
    let mut message: Message = fixed.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    message.insert(3, (":path", format!("/assets/images/product-{n}/thumbnail.webp?v={}", n * 7919 % 1000)));
    message
}

/// Calls of one service by another: few fields, of which some are new each time.
fn service(n: usize) -> Message {
    let id = (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let fixed = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "orders.internal:8080"),
        (":path", "/orders.v1.Orders/Place"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("user-agent", "grpc-go/1.66.0"),
        ("authorization", "Bearer eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJjaGVja291dCJ9.c2lnbmF0dXJl"),
    ];
    let mut message: Message = fixed.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    message.push(("traceparent", format!("00-{id:016x}{:016x}-{:016x}-01", !id, id.rotate_left(17))));
    message.push(("grpc-timeout", format!("{}m", 900 + n % 100)));
    message
}

/// Answers of such a service.
fn response(n: usize) -> Message {
    vec![
        (":status", "200".to_owned()),
        ("content-type", "application/grpc".to_owned()),
        ("server", "envoy".to_owned()),
        ("date", format!("Mon, 21 Oct 2013 20:{:02}:{:02} GMT", n / 60 % 60, n % 60)),
        ("x-envoy-upstream-service-time", (n % 17).to_string()),
    ]
}

/// The blocks of a connection as our encoder writes them.
fn blocks(message: fn(usize) -> Message) -> (Vec<Vec<u8>>, usize) {
    let (mut encoder, mut fields) = (Encoder::new(), 0);
    let blocks = (0..MESSAGES).map(|n| {
        let mut block = Vec::new();
        encoder.begin(&mut block);
        for (name, value) in message(n) {
            encoder.field(name.as_bytes(), value.as_bytes(), &mut block);
            fields += 1;
        }
        block
    });
    let blocks = blocks.collect();
    (blocks, fields)
}

/// Decodes the blocks of a connection in their order. A separate function, so that its instructions can be counted
/// separately.
#[inline(never)]
fn decode_all(blocks: &[Vec<u8>], decoder: &mut Decoder, list: &mut FieldList) {
    for block in blocks {
        decoder.decode(black_box(block), list).expect("our own blocks");
        black_box(&list);
    }
}

/// Nanoseconds per field: the median of the rounds, each with a new decoder.
#[allow(clippy::disallowed_methods, reason = "a measurement, not the engine, asks the time")]
fn nanos_per_field(blocks: &[Vec<u8>], fields: usize) -> f64 {
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let (mut decoder, mut list) = (Decoder::new(4_096), FieldList::new(65_536));
        let begun = Instant::now();
        decode_all(blocks, &mut decoder, &mut list);
        rounds.push(begun.elapsed().as_nanos() as f64 / fields as f64);
    }
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

/// Measures messages of a kind, and prints a line that the bench reads.
fn measure(name: &str, message: fn(usize) -> Message) {
    let (blocks, fields) = blocks(message);
    let bytes: usize = blocks.iter().map(Vec::len).sum();
    println!(
        "hpack {name}: {:.1} ns per field, {:.1} fields and {:.1} bytes per block, {} fields in all",
        nanos_per_field(&blocks, fields),
        fields as f64 / MESSAGES as f64,
        bytes as f64 / MESSAGES as f64,
        fields * ROUNDS
    );
}

#[test]
#[ignore = "a measurement: cargo xtask bench hpack"]
fn requests_of_a_browser() {
    measure("requests of a browser", browser);
}

#[test]
#[ignore = "a measurement: cargo xtask bench hpack"]
fn requests_of_a_service() {
    measure("requests of a service", service);
}

#[test]
#[ignore = "a measurement: cargo xtask bench hpack"]
fn responses_of_a_service() {
    measure("responses of a service", response);
}

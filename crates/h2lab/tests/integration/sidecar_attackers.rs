//! Clients that attack the sidecar over both of its listeners, in clear and over TLS, with an instance of HTTP/1.1 and
//! one of HTTP/2 behind it, all at once. Each is ended, with the reason in the access log, and counted; meanwhile a
//! well-behaved client is served.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;

use h2lab_wire::ErrorCode;
use h2lab_wire::h2::frame::{PREFACE, flag, kind};
use h2lab_wire::h2::inspect::FieldBlocks;

use crate::hostile::attacker::{Attacker, Frames, block, frame, initial_window, nth, request, window_update};
use crate::hostile::bystander::Bystander;
use crate::hostile::tunnel::over_tls;
use crate::origin::Origin;
use crate::sidecar_admin::Watched;
use crate::sidecar_reload::until;
use crate::support::{DEADLINE, allocated_bytes, binary, folder};

const END: u8 = flag::END_STREAM;
/// Far more than an attack needs to meet its bound.
const FAR: usize = 20_000;
/// How much the sidecar may grow while all of them attack at once.
const GROWTH: u64 = 64 << 20;

/// A path on which bodies may be silent for 5 s. Everywhere else it is five minutes.
const IMPATIENT: &str = "/delay/600000";

/// A sidecar whose two listeners lead to an origin by this scheme, and where the one with TLS is. Its log is `log` in the folder.
fn sidecar(folder: &Path, origin: &Origin, scheme: &str) -> (Watched, SocketAddr) {
    let file = folder.join("sidecar.toml");
    let listen = format!(
        "[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\nroute = [{{ path = '{IMPATIENT}', service = 'b' }}]\n"
    );
    let instance = format!("instances = ['{scheme}://{}']\n", origin.clear);
    let text = format!(
        "{listen}{listen}tls = true\n[service.a]\n{instance}[service.b]\n{instance}timeouts = {{ stream = '5s' }}\n\
         [log]\nfile = 'log'\n[admin]\naddress = '127.0.0.1:0'\n"
    );
    fs::write(&file, text).expect("a file");
    let mut command = Command::new(binary());
    command.arg("sidecar").arg("--config").arg(file);
    let watched = Watched::run(command);
    let tls =
        watched.child.wait_for_line(DEADLINE, |line| line.strip_prefix("listening https://")?.parse().ok());
    let tls = tls.unwrap_or_else(|error| panic!("{error}: {}", watched.child.log()));
    (watched, tls)
}

/// One of the two listeners.
#[derive(Clone, Copy)]
struct To {
    /// It takes HTTP/2 at `h2`, and HTTP/1.1 at `h1`: what is sent there in clear is forwarded over TLS if the listener
    /// has TLS.
    h2: SocketAddr,
    h1: SocketAddr,
    /// The listener itself.
    listener: SocketAddr,
    /// The listener in clear, for attacks that must not have a tunnel in between.
    clear: SocketAddr,
}

/// What an attack leaves open until all of them have been ended.
type Open = Option<Attacker>;

/// Words of the access log, and the attack that they report.
type Attack<'a> = (&'static str, &'a (dyn Fn(To) -> Open + Sync));

/// Runs `attacks` against a sidecar before an instance of HTTP/1.1, and against one before an instance of HTTP/2.
fn attack(attacks: &[Attack<'_>], counted: usize) {
    thread::scope(|scope| {
        let both = ["http", "h2c"].map(|scheme| scope.spawn(move || attack_before(scheme, attacks, counted)));
        for one in both {
            one.join().expect("both hold");
        }
    });
}

/// Runs `attacks` against both listeners at once, and checks what holds for all of them. The words of each must be in
/// the log for either listener, as often as they occur in the list; at least `counted` of the attacks are counted as
/// bad requests, since they had no request under way.
fn attack_before(scheme: &str, attacks: &[Attack<'_>], counted: usize) {
    // The origin's own bound is not the one under test.
    let origin = Origin::start(&["--limit=stall=600s"]);
    let folder = folder();
    let (sidecar, tls) = sidecar(folder.path(), &origin, scheme);
    let clear = sidecar.clear;
    let listeners = [
        To { h2: clear, h1: clear, listener: clear, clear },
        To { h2: over_tls(tls, "h2"), h1: over_tls(tls, "http/1.1"), listener: tls, clear },
    ];
    let before = allocated_bytes(&sidecar.child);
    let bystander = Bystander::begin(sidecar.clear);
    let mut open: Vec<Open> = Vec::new();
    thread::scope(|scope| {
        let all = listeners.iter().flat_map(|to| attacks.iter().map(move |(_, attack)| (to, attack)));
        let all: Vec<_> = all.map(|(to, attack)| scope.spawn(move || attack(*to))).collect();
        open.extend(all.into_iter().map(|one| one.join().expect("each ends as it should")));
    });
    // Lines about the bystander are left out.
    let log = || {
        let text = fs::read_to_string(folder.path().join("log")).expect("a log");
        text.lines().filter(|line| !line.contains("GET bystander ")).collect::<Vec<_>>().join("\n")
    };
    for (words, _) in attacks {
        let wanted = listeners.len() * attacks.iter().filter(|(other, _)| other == words).count();
        until(|| log().matches(words).count() >= wanted, || format!("{wanted} times {words}: {}", log()));
    }
    let after = allocated_bytes(&sidecar.child);
    assert!(after > 0, "it has ended: {}", sidecar.child.log());
    let grown = after.saturating_sub(before);
    let served = bystander.end();
    println!("{scheme}: {served} requests of the bystander served; it grew by {} KiB", grown / 1024);
    assert!(grown < GROWTH, "{scheme}: it grew by {grown} bytes");
    let metrics = sidecar.get("/metrics").1;
    let value = metrics.lines().find_map(|line| line.strip_prefix("h2lab_sidecar_bad_requests_total "));
    let bad: usize = value.and_then(|text| text.parse().ok()).expect("a number");
    assert!(bad >= listeners.len() * counted, "{scheme}: {bad} bad requests: {}", log());
    origin.assert_serves();
    sidecar.stop();
}

/// Sends `first`, and then the results of `make` for 0, 1, 2 … until the sidecar ends the connection with these words.
fn flood(to: To, words: &str, first: &[u8], make: impl FnMut(u32) -> Vec<u8>) -> Open {
    let mut attacker = Attacker::new(to.h2);
    attacker.send(first);
    attacker.flood(20 * FAR, make);
    attacker.until_closed().assert_calmed(words);
    None
}

const CONTINUATIONS: &str = "continuations: more than 8 CONTINUATION frames in a field block";
const FIELD_BLOCK: &str = "field-block: more than 262144 bytes of a field block in pieces";
const STREAM_ERRORS: &str = "stream-errors: more than 1024 stream errors";
const SETTINGS: &str = "settings: more than 100 SETTINGS";
const SHORT_DATA: &str = "short-data: more than 100000 DATA frames of less than 16 bytes";
const NOISE: &str = "noise: more than 1100 frames that change nothing";
/// A hundred for each stream that was begun, plus a thousand.
const NOISE_OF_TWO: &str = "noise: more than 1200 frames that change nothing";
const IDLE_STREAM: &str = "a frame on an idle stream";
/// The sidecar refuses each of a thousand before it ends the connection.
const NAMES: &str = "an illegal field name";

const RESETS: &str = "resets: more than 100 streams were begun and reset";
const EMPTY_DATA: &str = "empty-data: more than 100 DATA frames in a row without data";
const FIELD_LIST: &str = "field-list: more than 262144 bytes of fields in a block";
const UNREAD: &str = "unread-answers: more than 1000 answers that the client does not read";

/// A request that is answered a minute later.
fn waits(stream: u32) -> Vec<u8> {
    request(stream, END, "GET", "/delay/60000")
}

fn reset(stream: u32) -> Vec<u8> {
    frame(kind::RST_STREAM, 0, stream, &ErrorCode::CANCEL.0.to_be_bytes())
}

/// A flood of one frame beside a request that is under way.
fn noise(to: To, frame: &[u8]) -> Open {
    flood(to, NOISE, &waits(1), |_| frame.to_vec())
}

#[test]
fn floods_of_requests_over_both_listeners_are_ended_with_the_reason() {
    // A value of 4,000 bytes that enters the dynamic table, and 12,000 references to it.
    let entry = [&[0x40, 1, b'x', 0x7f, 0xa1, 0x1e][..], &[b'v'; 4_000]].concat();
    let bomb = [block("GET", "/"), entry, vec![0xbe; 12_000]].concat();
    attack(
        &[
            (RESETS, &|to| flood(to, RESETS, &[], |n| [waits(nth(n)), reset(nth(n))].concat())),
            // The sidecar resets them itself.
            (STREAM_ERRORS, &|to| {
                flood(to, STREAM_ERRORS, &[], |n| [waits(nth(n)), window_update(nth(n), 0)].concat())
            }),
            (FIELD_LIST, &|to| {
                flood(to, FIELD_LIST, &[], |n| frame(kind::HEADERS, END | flag::END_HEADERS, nth(n), &bomb))
            }),
        ],
        1,
    );
}

#[test]
fn floods_over_both_listeners_are_ended_with_the_reason() {
    let begun = frame(kind::HEADERS, END, 1, &block("GET", "/"));
    let field = [&[0x00, 6][..], b"x-junk", &[70], &[b'v'; 70]].concat();
    let over = [waits(1), waits(3), reset(3)].concat();
    attack(
        &[
            (CONTINUATIONS, &|to| {
                flood(to, CONTINUATIONS, &begun, |_| frame(kind::CONTINUATION, 0, 1, &field))
            }),
            (CONTINUATIONS, &|to| flood(to, CONTINUATIONS, &begun, |_| frame(kind::CONTINUATION, 0, 1, &[]))),
            (FIELD_BLOCK, &|to| {
                flood(to, FIELD_BLOCK, &begun, |_| frame(kind::CONTINUATION, 0, 1, &[0x82; 16_384]))
            }),
            (NAMES, &|to| {
                flood(to, STREAM_ERRORS, &[], |n| {
                    let block = [block("GET", "/"), [0x00, 0, 1, b'v'].repeat(100)].concat();
                    frame(kind::HEADERS, END | flag::END_HEADERS, nth(n), &block)
                })
            }),
            (SETTINGS, &|to| flood(to, SETTINGS, &[], |n| initial_window(n % 2))),
            (SHORT_DATA, &|to| {
                let post = request(1, 0, "POST", "/echo");
                flood(to, SHORT_DATA, &post, |_| frame(kind::DATA, 0, 1, b"x"))
            }),
            (EMPTY_DATA, &|to| {
                flood(to, EMPTY_DATA, &request(1, 0, "POST", "/echo"), |_| frame(kind::DATA, 0, 1, &[]))
            }),
            // More of them than a client may have open.
            (STREAM_ERRORS, &|to| flood(to, STREAM_ERRORS, &[], |n| waits(nth(n)))),
            (UNREAD, &|to| {
                // The kernel's buffers take megabytes before the first answer has to wait.
                let mut attacker = Attacker::not_reading(to.clear, Some(4_096));
                assert!(attacker.flood(100 * FAR, |_| frame(kind::PING, 0, 0, &[7; 8])) < 100 * FAR);
                None
            }),
            (NOISE, &|to| noise(to, &window_update(0, 1))),
            (NOISE, &|to| noise(to, &window_update(1, 1))),
            (NOISE, &|to| noise(to, &frame(kind::PRIORITY, 0, 3, &[0, 0, 0, 0, 16]))),
            (NOISE, &|to| noise(to, &frame(0xbe, 0xff, 7, b"grease"))),
            (NOISE, &|to| noise(to, &frame(kind::SETTINGS, flag::ACK, 0, &[]))),
            (NOISE_OF_TWO, &|to| flood(to, NOISE_OF_TWO, &over, |_| reset(3))),
            // What follows the sidecar's GOAWAY is read for a bounded time.
            (IDLE_STREAM, &|to| {
                const MOST: usize = 512 << 20;
                let mut attacker = Attacker::not_reading(to.h2, None);
                attacker.send(&frame(kind::DATA, 0, 1, b"on an idle stream"));
                let piece = frame(kind::DATA, 0, 1, &[0; 16_384]);
                let taken = attacker.flood(MOST / piece.len(), |_| piece.clone()) * piece.len();
                assert!(taken < MOST / 2, "{taken} bytes were taken");
                None
            }),
        ],
        7,
    );
}

/// All that the sidecar sends until it closes.
fn until_closed(address: SocketAddr, begin: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("it accepts");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout above zero");
    stream.write_all(begin).expect("it reads");
    let mut said = Vec::new();
    stream.read_to_end(&mut said).expect("it closes in good order");
    said
}

/// Opens a connection of HTTP/2 with these frames.
fn begin(to: To, frames: &[u8]) -> Frames {
    let mut stream = TcpStream::connect(to.h2).expect("it accepts");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout above zero");
    let ack = frame(kind::SETTINGS, flag::ACK, 0, &[]);
    stream.write_all(&[&PREFACE[..], frames, &ack].concat()).expect("it reads");
    Frames(stream)
}

/// Reads on such a connection until stream 1 is reset: the stream ends, and not the connection.
fn until_reset(to: To, frames: &[u8]) -> Open {
    let reset = begin(to, frames).find(|(header, _)| header.kind == kind::RST_STREAM);
    let (header, payload) = reset.expect("the stream is reset, and the connection is not ended before");
    assert_eq!((header.stream, payload), (1, ErrorCode::ENHANCE_YOUR_CALM.0.to_be_bytes().into()));
    None
}

fn slow_head(to: To, bytes: &[u8]) -> Open {
    let mut attacker = Attacker::new(to.h2);
    attacker.send(bytes);
    attacker.until_closed().assert_calmed(SLOW_HEAD);
    None
}

const SLOW_HEAD: &str = "slow-head: a head took more than 10000 ms";
const STALL: &str = "stall: for more than 30000 ms the client took nothing";
/// About a request's body, over any version.
const SLOW_BODY: &str = "the rest of the request body did not arrive within 5s";
/// A head that never came, over HTTP/1.1.
const NO_HEAD: &str = "\"- - - HTTP/1.1\" 408 ";
/// About a stream only.
const STALLED: &str = "its stream was reset (ENHANCE_YOUR_CALM)";
/// A client that never sent anything has no line in the log.
const NOTHING: &str = "";

/// The time limits are the defaults, the longest of them 30 s: all attacks run at the same time.
#[test]
fn those_who_are_too_slow_over_both_listeners_are_ended() {
    let head = frame(kind::HEADERS, END, 1, &block("GET", "/")[..5]);
    let asked = request(1, END, "GET", "/bytes/100M");
    attack(
        &[
            (NOTHING, &|to| {
                assert_eq!(until_closed(to.listener, b""), b"");
                None
            }),
            // The beginning of a TLS record, and not of a request.
            (NOTHING, &|to| {
                let _ = until_closed(to.listener, &[0x16, 3, 1]);
                None
            }),
            (SLOW_HEAD, &|to| slow_head(to, &head)),
            (SLOW_HEAD, &|to| slow_head(to, &head[..12])),
            (NO_HEAD, &|to| {
                let told = until_closed(to.h1, b"GET / HTTP/1.1\r\nhost: a\r\n");
                assert!(told.starts_with(b"HTTP/1.1 408 "), "{}", String::from_utf8_lossy(&told));
                None
            }),
            (SLOW_BODY, &|to| {
                let post = format!("POST {IMPATIENT} HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nx");
                let told = until_closed(to.h1, post.as_bytes());
                assert!(told.starts_with(b"HTTP/1.1 408 "), "{}", String::from_utf8_lossy(&told));
                None
            }),
            (SLOW_BODY, &|to| {
                let begun = [request(1, 0, "POST", IMPATIENT), frame(kind::DATA, 0, 1, b"x")].concat();
                let head = begin(to, &[frame(kind::SETTINGS, 0, 0, &[]), begun].concat())
                    .find(|(header, _)| header.kind == kind::HEADERS);
                let (_, block) = head.expect("it is answered before the connection ends");
                let mut blocks = FieldBlocks::default();
                let (fields, _) = blocks.decode(&block).expect("a field block");
                let status = fields.iter().find(|field| field.name == b":status").map(|field| field.value);
                assert_eq!(status, Some(&b"408"[..]));
                None
            }),
            (STALLED, &|to| until_reset(to, &[initial_window(0), asked.clone()].concat())),
            (STALLED, &|to| {
                let begun = [initial_window(1), asked.clone()].concat();
                until_reset(to, &[begun, window_update(1, 1).repeat(1_000)].concat())
            }),
            (STALL, &|to| {
                let mut attacker = Attacker::not_reading(to.h2, Some(4_096));
                attacker.send(&[initial_window(1 << 30), window_update(0, 1 << 30)].concat());
                attacker.flood(20, |n| request(nth(n), END, "GET", "/bytes/100M"));
                Some(attacker)
            }),
        ],
        3,
    );
}

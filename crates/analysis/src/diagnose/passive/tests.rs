mod endings;
mod own_link;
mod tls_records;
mod unused;
mod warm_pool;

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::diagnose;
use h2lab_link::capture_file::{CaptureFile, Entry};
use h2lab_model::record::{CloseReason, ConnectionRecord, Outcome};
use h2lab_model::workload::{Arrival, Protocol};

/// The one-way delay between client and server, in milliseconds.
const WAY: u64 = 10;
const CLIENT: u16 = 40_000;
const SERVER: u16 = 8_080;
/// Sequence number of the client's SYN: it wraps soon.
const FIRST_UP: u32 = u32::MAX - 10;
const FIRST_DOWN: u32 = 7;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const FIN: u8 = 0x01;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END: u8 = 0x05;

/// A connection, captured at this distance from the client, in milliseconds. Times are the client's.
struct Scene {
    capture: Capture,
    from_client: u64,
    interface: u32,
    name: &'static str,
    /// The client's.
    port: u16,
    /// At most this many bytes of each packet are kept.
    snap: usize,
    sent: [u32; 2],
    /// Nanoseconds in which times are given.
    unit: u64,
}

impl Scene {
    fn new(from_client: u64) -> Self {
        let capture = Capture::new("");
        let (snap, unit) = (usize::MAX, 1_000_000);
        Self { capture, from_client, interface: 0, name: "", port: CLIENT, snap, sent: [1, 1], unit }
    }

    /// With its handshake: dialled at 100 ms, established at 120 ms.
    fn established(from_client: u64) -> Self {
        let mut scene = Self::new(from_client);
        scene.packet(Direction::Up, 100, 0, SYN, &[2, 4, 5, 180], &[]);
        scene.packet(Direction::Down, 120, 0, SYN | ACK, &[2, 4, 5, 180], &[]);
        scene.packet(Direction::Up, 120, 1, ACK, &[], &[]);
        scene
    }

    /// A packet that the client sends or receives at `at`, whose first byte is at this place; 0 is the SYN.
    fn packet(
        &mut self,
        direction: Direction,
        at: u64,
        place: u32,
        flags: u8,
        options: &[u8],
        payload: &[u8],
    ) {
        let is_up = direction == Direction::Up;
        let seen = if is_up { at + self.from_client } else { at - self.from_client };
        let (ports, number, acked) = if is_up {
            ([self.port, SERVER], FIRST_UP.wrapping_add(place), FIRST_DOWN.wrapping_add(self.sent[1]))
        } else {
            ([SERVER, self.port], FIRST_DOWN.wrapping_add(place), FIRST_UP.wrapping_add(self.sent[0]))
        };
        let length = 40 + options.len() + payload.len();
        let mut bytes = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, TCP, 0, 0];
        bytes[2..4].copy_from_slice(&u16::try_from(length).unwrap_or(0).to_be_bytes());
        let (client, server) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        for address in if is_up { [client, server] } else { [server, client] } {
            bytes.extend(address);
        }
        bytes.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
        bytes.extend(number.to_be_bytes());
        bytes.extend(acked.to_be_bytes());
        bytes.extend([((20 + options.len()) * 4) as u8, flags, 0xff, 0xff, 0, 0, 0, 0]);
        bytes.extend_from_slice(options);
        bytes.extend_from_slice(payload);
        let kept = bytes.len().min(self.snap);
        self.capture.packet(&CapturedPacket {
            interface: self.interface,
            name: self.name,
            at_nanos: 1_000_000_000 + seen * self.unit,
            bytes: &bytes[..kept],
            length: length as u32,
        });
    }

    /// The next bytes of a direction.
    fn say(&mut self, direction: Direction, at: u64, payload: &[u8]) {
        let place = self.next(direction, payload);
        self.packet(direction, at, place, ACK, &[], payload);
    }

    /// The place of these bytes, which were sent and not captured.
    fn next(&mut self, direction: Direction, payload: &[u8]) -> u32 {
        let sent = &mut self.sent[usize::from(direction == Direction::Down)];
        let place = *sent;
        *sent += payload.len() as u32;
        place
    }

    /// HTTP/2 requests on these streams at 125 ms, after the preface.
    fn asked(mut self, streams: &[u32]) -> Self {
        let preface = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(SETTINGS, 0, 0, &[])].concat();
        let requests = streams.iter().flat_map(|stream| frame(HEADERS, END, *stream, &[0x82, 0x84, 0x86]));
        let bytes: Vec<u8> = preface.into_iter().chain(requests).collect();
        self.say(Direction::Up, 125, &bytes);
        self
    }

    fn finish(self) -> Captured {
        self.capture.finish(true)
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A response of status 200 without a body.
fn answer(stream: u32) -> Vec<u8> {
    frame(HEADERS, END, stream, &[0x88])
}

fn noted(captured: &Captured, what: &str) -> bool {
    captured.notes.iter().any(|note| note.0.contains(what))
}

/// Time zero of a record is a second before the first packet.
fn ms_between(from: Time, until: Time) -> u128 {
    until.since(from).as_millis()
}

#[test]
fn times_are_those_of_the_client_wherever_the_capture_was_made() {
    let places = [
        (0, "the capture point is near the client"),
        (WAY / 2, "the capture point is between them"),
        (WAY, "the capture point is near the server"),
    ];
    for (from_client, place) in places {
        let mut scene = Scene::established(from_client).asked(&[1]);
        scene.say(Direction::Down, 160, &answer(1));
        let captured = scene.finish();
        assert!(noted(&captured, place), "{:?}", captured.notes);
        let record = &captured.records[0];
        let (sample, connection) = (record.samples.get(0).unwrap(), &record.connections[0]);
        let since_dial = [connection.connected_at, connection.ready_at, sample.sent_at, sample.completed_at]
            .map(|at| ms_between(connection.dialled_at, at));
        assert_eq!(since_dial, [20, 25, 25, 60]);
        assert_eq!((sample.scheduled_at, sample.stall_open_ns), (connection.dialled_at, 25_000_000));
        assert_eq!((sample.outcome, sample.status), (Outcome::Succeeded, 200));
        assert_eq!(diagnose::facts::of(record).rtt, Duration::from_millis(2 * WAY));
        assert_eq!((record.cell.protocol, record.cell.connections), (Protocol::H2c, 1));
        assert_eq!(record.frames.len(), 3);
    }
}

#[test]
fn at_the_clients_end_of_a_link_no_distance_is_inferred_from_the_handshake() {
    let took = |capture: Capture, name: &'static str| {
        let mut scene = Scene { capture, name, ..Scene::new(0) };
        scene.packet(Direction::Up, 100, 0, SYN, &[2, 4, 5, 180], &[]);
        scene.packet(Direction::Down, 120, 0, SYN | ACK, &[2, 4, 5, 180], &[]);
        // A busy kernel acknowledges it after 4 ms.
        scene.packet(Direction::Up, 124, 1, ACK, &[], &[]);
        let mut scene = scene.asked(&[1]);
        scene.say(Direction::Down, 160, &answer(1));
        let sample = scene.finish().records[0].samples.get(0).unwrap();
        ms_between(sample.sent_at, sample.completed_at)
    };
    assert_eq!(took(Capture::new(""), ""), 35 + 4, "half of it on each way");
    assert_eq!(took(Capture::new(""), "uplink in"), 35);
    assert_eq!(took(Capture::of_run(LinkSpec::default()), ""), 35);
}

#[test]
fn priorities_that_a_client_states_in_fields_and_frames_are_kept_in_order() {
    let mut scene = Scene::established(0).asked(&[1]);
    // A literal field with a new name (RFC 7541 §6.2.2), then `PRIORITY_UPDATE` (RFC 9218 §7.1).
    let field = [&[0, 8][..], b"priority", &[3], b"u=0"].concat();
    let request = frame(HEADERS, END, 3, &[&[0x82, 0x84, 0x86][..], &field].concat());
    let update = frame(0x10, 0, 0, &[&3_u32.to_be_bytes()[..], b"u=7"].concat());
    scene.say(Direction::Up, 130, &[request, update].concat());
    scene.say(Direction::Down, 160, &[answer(1), answer(3)].concat());
    let captured = scene.finish();
    assert_eq!(captured.records[0].connections[0].http.priorities, [(3, 0), (3, 7)]);
}

/// Streams 3 and 5 are answered in one segment that arrives `late` ms after the following one, or never.
fn with_hole(late: Option<u64>) -> Captured {
    let mut scene = Scene::established(0).asked(&[1, 3, 5, 7]);
    scene.say(Direction::Down, 145, &answer(1));
    let missing = [answer(3), answer(5)].concat();
    let place = scene.next(Direction::Down, &missing);
    scene.say(Direction::Down, 146, &answer(7));
    if let Some(late) = late {
        scene.packet(Direction::Down, 146 + late, place, ACK, &[], &missing);
    }
    scene.say(Direction::Up, 300, &frame(6, 0, 0, &[0; 8]));
    // The client has received everything that it requested, whatever the capture has.
    let place = scene.next(Direction::Up, &[0]);
    scene.packet(Direction::Up, 310, place, ACK | FIN, &[], &[]);
    scene.finish()
}

#[test]
fn a_segment_that_was_sent_again_stalls_the_streams_behind_it() {
    let captured = with_hole(Some(30));
    let record = &captured.records[0];
    assert_eq!(record.samples.iter().filter(|sample| sample.outcome == Outcome::Succeeded).count(), 4);
    let facts = diagnose::facts::of(record);
    assert_eq!((facts.retransmissions.len(), facts.retransmissions[0].server), (1, true));
    let found = diagnose::run(&captured.records);
    assert_eq!(found.iter().map(|finding| finding.rule.as_str()).collect::<Vec<_>>(), ["LOSS101"]);
    // After a millisecond it was reordered; detecting a loss takes about a round trip.
    let overtaken = with_hole(Some(1));
    assert_eq!(diagnose::facts::of(&overtaken.records[0]).retransmissions, []);
    assert_eq!(diagnose::run(&overtaken.records), []);
    assert!(!noted(&captured, "the capture lacks"));
}

#[test]
fn bytes_that_the_receiver_has_and_the_capture_lacks_are_told() {
    let captured = with_hole(None);
    assert!(
        noted(&captured, "1 connection has bytes that the receiver acknowledged"),
        "{:?}",
        captured.notes
    );
    // When the others ended is unknown: they are neither timed nor in flight.
    let outcomes: Vec<Outcome> = captured.records[0].samples.iter().map(|sample| sample.outcome).collect();
    assert_eq!(outcomes, [Outcome::Succeeded]);
    assert_eq!(captured.records[0].cell.work.arrival, Arrival::Closed { concurrency: 1 });
    assert!(noted(&captured, "3 of 4 requests left out: the capture lacks when they ended"));
}

#[test]
fn a_handshake_that_a_busy_client_acknowledged_late_puts_no_more_requests_in_flight() {
    let mut scene = Scene::new(0);
    scene.unit = 1_000;
    scene.packet(Direction::Up, 100_000, 0, SYN, &[2, 4, 5, 180], &[]);
    scene.packet(Direction::Down, 100_007, 0, SYN | ACK, &[2, 4, 5, 180], &[]);
    scene.packet(Direction::Up, 100_049, 1, ACK, &[], &[]);
    let preface = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(SETTINGS, 0, 0, &[])].concat();
    scene.say(Direction::Up, 100_100, &preface);
    for n in 0..4_u32 {
        let at = 101_000 + 1_000 * u64::from(n);
        scene.say(Direction::Up, at, &frame(HEADERS, END, 2 * n + 1, &[0x82, 0x84, 0x86]));
        scene.say(Direction::Down, at + 980, &answer(2 * n + 1));
    }
    let captured = scene.finish();
    assert_eq!(captured.records[0].samples.iter().count(), 4);
    assert_eq!(captured.records[0].cell.work.arrival, Arrival::Closed { concurrency: 1 });
}

#[test]
fn a_file_without_packets_has_none() {
    let notes: Vec<String> = Capture::new("").finish(true).notes.iter().map(ToString::to_string).collect();
    assert_eq!(notes, ["it has no packets"]);
}

#[test]
fn secrets_that_are_none_of_others_or_wrong_are_told_apart() {
    let record =
        |kind: u8, body: &[u8]| [&[kind, 3, 3][..], &(body.len() as u16).to_be_bytes(), body].concat();
    // Up to the random (RFC 8446 §4.1); then, from the server: no session, TLS_AES_128_GCM_SHA256, and that the version
    // is TLS 1.3.
    let hello = |kind: u8, rest: &[u8]| [&[kind, 0, 0, 76, 3, 3][..], &[kind; 32], rest].concat();
    let server = hello(2, &[0, 0x13, 0x01, 0, 0, 6, 0, 43, 0, 2, 3, 4]);
    let told = |key_log: &str| {
        let mut scene = Scene { capture: Capture::new(key_log), ..Scene::new(0) };
        scene.packet(Direction::Up, 100, 0, SYN, &[], &[]);
        scene.packet(Direction::Down, 120, 0, SYN | ACK, &[], &[]);
        scene.packet(Direction::Up, 120, 1, ACK, &[], &[]);
        scene.say(Direction::Up, 121, &record(22, &hello(1, &[0; 40])));
        scene.say(Direction::Down, 140, &record(22, &server));
        for n in 0..4 {
            scene.say(Direction::Up, 150 + n, &record(23, &[7; 40]));
        }
        let captured = scene.finish();
        assert!(captured.records.is_empty());
        captured
            .notes
            .iter()
            .map(ToString::to_string)
            .find(|note| note.contains("encrypted"))
            .expect("a note")
    };
    let lines = |random: &str| {
        let line = |label: &str| format!("{label} {random} {}\n", "00".repeat(32));
        ["CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0"].map(line).concat()
    };
    assert!(told("").contains("give --keylog FILE"));
    assert!(told("no key log").contains("the file of --keylog is no key log"));
    assert!(told(&lines(&"09".repeat(32))).contains("there are secrets of others but not of these"));
    assert!(told(&lines(&"01".repeat(32))).contains("the secrets that were given for them do not open them"));
}

#[test]
fn a_connection_that_began_before_the_capture_is_not_read() {
    let mut scene = Scene::new(0);
    scene.say(Direction::Down, 100, &frame(DATA, 0, 5, &[0; 100]));
    scene.say(Direction::Up, 101, &frame(HEADERS, END, 7, &[0x82, 0xbe]));
    let captured = scene.finish();
    assert!(captured.records.is_empty() && noted(&captured, "open before the capture began"));
    assert!(noted(&captured, "no whole handshake"));
    // Its first bytes are in the capture, although its handshake is not.
    let mut scene = Scene::new(0).asked(&[1]);
    scene.say(Direction::Down, 160, &answer(1));
    assert_eq!(scene.finish().records[0].samples.iter().count(), 1);
}

#[test]
fn a_handshake_that_was_repeated_measures_no_round_trip() {
    let mut scene = Scene::new(0);
    scene.packet(Direction::Up, 100, 0, SYN, &[], &[]);
    scene.packet(Direction::Up, 1_100, 0, SYN, &[], &[]);
    // The answer to the first SYN was lost; this one was sent again meanwhile, and answers neither.
    scene.packet(Direction::Down, 1_105, 0, SYN | ACK, &[], &[]);
    scene.packet(Direction::Up, 1_105, 1, ACK, &[], &[]);
    let mut scene = scene.asked(&[1]);
    scene.say(Direction::Down, 1_200, &answer(1));
    let captured = scene.finish();
    assert!(noted(&captured, "no whole handshake"), "{:?}", captured.notes);
    assert_eq!(diagnose::facts::of(&captured.records[0]).rtt, Duration::ZERO);
}

#[test]
fn packets_that_the_capture_cut_are_told_and_not_read_on() {
    let mut scene = Scene::established(0).asked(&[1]);
    scene.snap = 60;
    scene.say(Direction::Down, 145, &[answer(1), frame(DATA, 0, 3, &[0; 500])].concat());
    scene.say(Direction::Down, 146, &answer(3));
    let captured = scene.finish();
    assert!(
        noted(&captured, "1 connection has packets that the capture cut (snap length)"),
        "{:?}",
        captured.notes
    );
    assert!(!noted(&captured, "the capture lacks"), "that is another thing");
    assert_eq!(captured.records[0].samples.get(0).unwrap().status, 200, "what was kept of them is read");
}

#[test]
fn segments_larger_than_the_receiver_takes_are_told() {
    for length in [1_460, 1_461, 70_000] {
        let mut scene = Scene::established(0).asked(&[1]);
        let bytes = frame(DATA, 0, 9, &vec![0; length - 9]);
        scene.say(Direction::Down, 145, &bytes);
        let captured = scene.finish();
        assert_eq!(
            noted(&captured, "1 segment is larger than its receiver takes"),
            length > 1_460,
            "{length}"
        );
    }
}

#[test]
fn each_packet_counts_at_one_interface_alone() {
    let mut scene = Scene::established(0).asked(&[1]);
    scene.interface = 1;
    scene.say(Direction::Down, 145, &answer(1));
    scene.interface = 0;
    scene.packet(Direction::Down, 146, 1, ACK, &[], &answer(1));
    let captured = scene.finish();
    assert!(noted(&captured, "1 packet was seen at a second interface"));
    // h2lab's own captures have each packet before and behind the link.
    let mut scene = Scene::established(0).asked(&[1]);
    scene.name = "downlink in";
    scene.packet(Direction::Down, 140, 1, ACK, &[], &answer(1));
    scene.name = "downlink out";
    scene.say(Direction::Down, 145, &answer(1));
    let captured = scene.finish();
    assert!(noted(&captured, "as the client saw it"));
    let sample = captured.records[0].samples.get(0).unwrap();
    assert_eq!(ms_between(sample.sent_at, sample.completed_at), 20);
}

#[test]
fn the_end_of_a_connection_is_its_servers_or_its_clients() {
    let ended = |direction, last_stream: u32| {
        let mut scene = Scene::established(0).asked(&[1, 3]);
        let goaway = frame(GOAWAY, 0, 0, &[&last_stream.to_be_bytes()[..], &[0; 4]].concat());
        scene.say(Direction::Down, 145, &[answer(1), goaway].concat());
        let place = scene.next(direction, &[0]);
        scene.packet(direction, 150, place, ACK | FIN, &[], &[]);
        let captured = scene.finish();
        let record = &captured.records[0];
        let outcomes: Vec<Outcome> = record.samples.iter().map(|sample| sample.outcome).collect();
        (
            outcomes,
            record.connections[0].closed.clone(),
            record.connections[0].goaways.len(),
            noted(&captured, "refused"),
        )
    };
    let (outcomes, closed, goaways, is_told) = ended(Direction::Down, 1);
    assert_eq!((outcomes, closed, goaways), (vec![Outcome::Succeeded], CloseReason::Server, 1));
    assert!(is_told, "stream 3 was not processed");
    let (outcomes, ..) = ended(Direction::Down, 3);
    assert_eq!(outcomes, [Outcome::Succeeded, Outcome::GoAway]);
    let (outcomes, closed, ..) = ended(Direction::Up, 3);
    assert_eq!(outcomes, [Outcome::Succeeded, Outcome::GoAway], "it closed because of the GOAWAY");
    assert!(matches!(closed, CloseReason::Local { .. }));
}

#[test]
fn the_answer_to_an_offer_to_upgrade_decides_the_version_of_http() {
    const OFFER: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n";
    const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    let read = |answers: &[&[u8]]| {
        let mut scene = Scene::established(0);
        scene.say(Direction::Up, 125, OFFER);
        for (at, answer) in (145..).zip(answers) {
            scene.say(Direction::Down, at, answer);
        }
        if !answers.is_empty() {
            scene.say(Direction::Up, 160, OFFER);
        }
        let captured = scene.finish();
        let record = &captured.records[0];
        let is_told = noted(
            &captured,
            "1 connection asked for HTTP/2 by an upgrade (Upgrade: h2c), which the server declined",
        );
        assert_eq!(is_told, record.cell.protocol == Protocol::H1, "{:?}", captured.notes);
        (record.cell.protocol, record.samples.iter().map(|sample| sample.outcome).collect::<Vec<_>>())
    };
    let declined = (Protocol::H1, vec![Outcome::Succeeded, Outcome::Unfinished]);
    assert_eq!(read(&[OK]), declined, "and the next request is one, too");
    assert_eq!(read(&[&OK[..11], &OK[11..]]), declined, "in two packets");
    assert_eq!(read(&[b"HTTP/1.1 100 Continue\r\n\r\n", OK]), declined);
    assert_eq!(read(&[]), (Protocol::H1, vec![Outcome::Unfinished]), "no answer");
    let taken =
        [&b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\n\r\n"[..], &frame(SETTINGS, 0, 0, &[])]
            .concat();
    assert_eq!(read(&[&taken]).0, Protocol::H2c);
}

/// h2load (12 requests), nghttp (1) and curl (2 over HTTP/1.1 in clear, 2 and 1 over HTTP/2 with TLS 1.3 and 1.2, 1 over HTTP/1.1
/// with TLS 1.3) against nginx 1.22, on loopback by dumpcap, with the secrets embedded by editcap.
const NGINX: &[u8] = include_bytes!("data/nginx.pcapng");

fn read(file: &[u8]) -> Captured {
    let (mut capture, mut blocks) = (Capture::new(""), CaptureFile::default());
    let _ = blocks.feed(file, &mut |entry| match entry {
        Entry::Packet(packet) => capture.packet(&packet),
        Entry::Secrets(lines) => capture.secrets(lines),
        Entry::Untimed => capture.untimed(),
    });
    capture.finish(blocks.is_whole())
}

/// Counts by tshark 4.0.17, which agree.
#[test]
fn a_capture_of_real_programs_has_the_frames_that_tshark_finds() {
    let captured = read(NGINX);
    let requests: Vec<(Protocol, usize, usize)> = captured
        .records
        .iter()
        .map(|record| (record.cell.protocol, record.connections.len(), record.samples.iter().count()))
        .collect();
    assert_eq!(
        requests,
        [(Protocol::H2c, 2, 13), (Protocol::H2, 2, 3), (Protocol::H1, 1, 2), (Protocol::H1s, 1, 1)],
        "{:?}",
        captured.notes
    );
    let mut kinds = [0_usize; 10];
    for record in captured.records.iter().filter(|record| record.cell.protocol.is_multiplexed()) {
        record.frames.iter().for_each(|frame| kinds[usize::from(frame.kind.0)] += 1);
    }
    assert_eq!(kinds, [16, 32, 5, 0, 15, 0, 0, 2, 7, 0]);
    let all = || captured.records.iter().flat_map(|record| record.samples.iter());
    assert_eq!(all().filter(|sample| sample.status == 404).count(), 1);
    assert_eq!(all().filter(|sample| sample.outcome.is_success()).count(), 18);
    let resumed: Vec<Option<bool>> =
        captured.records[1].connections.iter().map(|connection| connection.tls_resumed).collect();
    assert_eq!(resumed, [Some(false), None], "TLS 1.3 says it");
    for record in &captured.records {
        let is_tls = record.cell.protocol.is_tls();
        let counted =
            |connection: &ConnectionRecord| connection.tls_records.early_bytes > connection.bytes_received;
        assert!(record.connections.iter().all(|connection| counted(connection) == is_tls), "{is_tls}");
    }
    assert!(
        captured.records[0].connections[0].server_software.as_deref().is_some_and(|s| s.starts_with("nginx"))
    );
    assert!(noted(&captured, "near both"), "{:?}", captured.notes);
    assert_eq!(diagnose::run(&captured.records), [], "nothing is wrong with them");
}

#[test]
fn without_secrets_encrypted_connections_are_told() {
    let without = NGINX.windows(4).position(|word| word == 10_u32.to_le_bytes()).unwrap();
    let mut file = NGINX.to_vec();
    file[without] = 11; // a block of another kind
    let captured = read(&file);
    assert_eq!(captured.records.len(), 2);
    assert!(noted(&captured, "3 connections: encrypted, and no secrets open them"), "{:?}", captured.notes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn no_damage_of_a_capture_panics(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..40),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut file = NGINX.to_vec();
        for (place, byte) in flips {
            let place = place.index(file.len());
            file[place] = byte;
        }
        file.truncate(cut.map_or(file.len(), |cut| cut.index(file.len())));
        let captured = read(&file);
        prop_assert!(captured.records.iter().all(|record| record.samples.iter().next().is_some()));
        diagnose::run(&captured.records);
    }
}

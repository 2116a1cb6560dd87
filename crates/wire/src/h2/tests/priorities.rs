//! Priorities (RFC 9218) where they matter: on a link with less bandwidth than the responses could fill, in virtual
//! time.

use std::collections::BTreeMap;
use std::time::Duration;

use super::support::*;
use crate::h2::frame::{flag, kind};
use crate::testing::Seen;
use crate::{Config, Connection, ErrorCode, Event, Priority, StreamId};
use h2lab_base::units::Time;

/// Bytes that the link carries in a millisecond: 80 Mbit/s.
const PER_MS: usize = 10_000;
/// How much may be encoded ahead of the link; a reprioritisation takes effect behind it.
const BUFFER: usize = 64 * 1024;

/// A server that answers every request with a body of a size, and a client behind a slow link that reads everything.
struct Slow {
    client: Connection,
    server: Connection,
    now: Time,
    sizes: BTreeMap<u32, usize>,
    left: BTreeMap<u32, usize>,
    /// By stream: body bytes that have arrived, and when the last of them did.
    arrived: BTreeMap<u32, (usize, Option<Time>)>,
}

impl Slow {
    fn new() -> Self {
        let (mut client, mut server) = (client_config(), server_config());
        client.flow.stream_window = 1 << 30;
        client.flow.connection_window = 1 << 30;
        server.send_buffer = BUFFER;
        server.max_concurrent_streams = Some(1_000);
        let mut slow = Self {
            client: Connection::h2(client, Time::ZERO),
            server: Connection::h2(server, Time::ZERO),
            now: Time::ZERO,
            sizes: BTreeMap::new(),
            left: BTreeMap::new(),
            arrived: BTreeMap::new(),
        };
        slow.run(1);
        slow
    }

    /// Asks for `size` bytes with this `priority` field, if any.
    fn ask(&mut self, size: usize, priority: Option<&str>) -> u32 {
        let fields: Vec<_> = priority.iter().map(|value| field("priority", value)).collect();
        let request = crate::connection::Request { fields: &fields, ..get("/") };
        let stream = self.client.send_request(self.now, &request).expect("a stream").0;
        self.sizes.insert(stream, size);
        stream
    }

    /// Sends as much of a stream's body as the engine takes.
    fn push(&mut self, stream: u32) {
        let Some(left) = self.left.get_mut(&stream) else { return };
        while *left > 0 {
            let piece = body((*left).min(50_000), stream);
            let taken = self.server.send_data(self.now, StreamId(stream), &piece, piece.len() == *left);
            *left -= taken;
            if taken < piece.len() {
                break;
            }
        }
    }

    /// Lets this many milliseconds pass. The uplink has unlimited bandwidth.
    fn run(&mut self, milliseconds: usize) {
        for _ in 0..milliseconds {
            self.now += Duration::from_millis(1);
            let up = self.client.poll_transmit(self.now).to_vec();
            self.client.handle_transmitted(self.now, up.len());
            self.server.handle_input(self.now, &up);
            let mut budget = PER_MS;
            loop {
                self.serve();
                let n = self.server.poll_transmit(self.now).len().min(budget);
                if n == 0 {
                    break;
                }
                let down = self.server.poll_transmit(self.now)[..n].to_vec();
                self.server.handle_transmitted(self.now, n);
                self.client.handle_input(self.now, &down);
                budget -= n;
            }
            self.read();
        }
    }

    fn serve(&mut self) {
        let (mut begun, mut writable) = (Vec::new(), Vec::new());
        while let Some(event) = self.server.poll_event(self.now) {
            match event {
                Event::Request { stream, .. } => begun.push(stream),
                Event::Writable { stream } => writable.push(stream.0),
                _ => {}
            }
        }
        for stream in begun {
            self.server.send_response(self.now, stream, &OK);
            self.left.insert(stream.0, self.sizes[&stream.0]);
            self.push(stream.0);
        }
        for stream in writable {
            self.push(stream);
        }
    }

    fn read(&mut self) {
        while let Some(event) = self.client.poll_event(self.now) {
            if let Event::Data { stream, data, end_stream } = event {
                let entry = self.arrived.entry(stream.0).or_default();
                entry.0 += data.len();
                entry.1 = end_stream.then_some(self.now);
            }
        }
    }

    fn bytes(&self, stream: u32) -> usize {
        self.arrived.get(&stream).map_or(0, |arrived| arrived.0)
    }

    fn end(&self, stream: u32) -> Time {
        self.arrived[&stream].1.expect("it has ended")
    }

    /// Streams in the order in which they ended.
    fn order(&self, streams: &[u32]) -> Vec<u32> {
        let mut order = streams.to_vec();
        order.sort_by_key(|stream| self.end(*stream));
        order
    }
}

/// The most by which the streams' bytes differ.
fn spread(slow: &Slow, streams: &[u32]) -> usize {
    let bytes = || streams.iter().map(|stream| slow.bytes(*stream));
    bytes().max().unwrap() - bytes().min().unwrap()
}

#[test]
fn equals_share_the_link_frame_by_frame_and_none_starves() {
    for priority in [None, Some("i"), Some("u=6, i")] {
        let mut slow = Slow::new();
        let streams: Vec<u32> = (0..20).map(|_| slow.ask(200_000, priority)).collect();
        for _ in 0..38 {
            slow.run(10);
            // What the first stream sent before it met the others, and one round.
            assert!(spread(&slow, &streams) <= BUFFER + 2 * 16_384, "{priority:?}: {:?}", slow.arrived);
        }
        slow.run(30);
        // Apart from the first one's start, all end within one round: 20 frames of 16 KiB, 33 ms.
        let ends: Vec<Time> = streams[1..].iter().map(|stream| slow.end(*stream)).collect();
        let last_round = ends.iter().max().unwrap().since(*ends.iter().min().unwrap());
        assert!(last_round <= Duration::from_millis(36), "{priority:?}: {last_round:?}");
    }
}

#[test]
fn every_one_of_five_hundred_equals_goes_on_in_every_round() {
    let mut slow = Slow::new();
    let streams: Vec<u32> = (0..500).map(|_| slow.ask(1 << 20, None)).collect();
    // A round is 500 frames of 16 KiB: 820 ms.
    let mut before = vec![0; streams.len()];
    for _ in 0..4 {
        slow.run(900);
        let after: Vec<usize> = streams.iter().map(|stream| slow.bytes(*stream)).collect();
        let stuck = before.iter().zip(&after).filter(|(before, after)| before == after).count();
        assert_eq!(stuck, 0);
        before = after;
    }
}

#[test]
fn an_urgent_response_overtakes_those_under_way_and_they_go_on_after_it() {
    let mut slow = Slow::new();
    let large = [slow.ask(2 << 20, None), slow.ask(2 << 20, Some("u=5, i"))];
    slow.run(50);
    let begun = slow.now;
    let urgent = slow.ask(100_000, Some("u=0"));
    let relaxed = slow.ask(1_000, Some("u=7"));
    slow.run(430);
    // Its own 10 ms and what was encoded before it came.
    let took = slow.end(urgent).since(begun);
    assert!(took <= Duration::from_millis(10 + 7 + 2), "{took:?}");
    // Streams that end within one millisecond are taken in the expected order.
    let expected = [urgent, large[0], large[1], relaxed];
    assert_eq!(slow.order(&expected), expected);
}

#[test]
fn responses_that_are_of_no_use_in_part_come_one_after_another_by_their_ids() {
    let mut slow = Slow::new();
    let streams: Vec<u32> = (0..5).map(|_| slow.ask(200_000, Some("u=3"))).collect();
    slow.run(60);
    assert_eq!(slow.end(streams[0]).since(Time::ZERO).as_millis() / 10, 2, "20 ms for 200 kB");
    assert!(slow.bytes(streams[4]) <= BUFFER, "{:?}", slow.arrived);
    slow.run(60);
    assert_eq!(slow.order(&streams), streams);
    let ends: Vec<Time> = streams.iter().map(|stream| slow.end(*stream)).collect();
    for pair in ends.windows(2) {
        let between = pair[1].since(pair[0]).as_millis();
        assert!((14..=26).contains(&between), "{ends:?}");
    }
}

#[test]
fn one_after_another_and_shared_divide_an_urgency_between_them() {
    let mut slow = Slow::new();
    let one_by_one = [slow.ask(400_000, Some("u=4")), slow.ask(400_000, Some("u=4"))];
    let shared = [slow.ask(400_000, Some("u=4, i")), slow.ask(400_000, Some("u=4, i"))];
    slow.run(90);
    // Three share: the first of the non-incremental ones, and the two others.
    assert!(spread(&slow, &[one_by_one[0], shared[0], shared[1]]) <= BUFFER + 16_384, "{:?}", slow.arrived);
    assert!(slow.bytes(one_by_one[1]) <= BUFFER);
}

#[test]
fn a_priority_update_moves_a_response_that_is_under_way() {
    let mut slow = Slow::new();
    let streams: Vec<u32> = (0..4).map(|_| slow.ask(300_000, Some("i"))).collect();
    slow.run(20);
    let at_change = slow.bytes(streams[2]);
    let urgent = Priority { urgency: 1, incremental: false };
    slow.client.send_priority_update(slow.now, StreamId(streams[2]), urgent);
    slow.run((300_000 - at_change) / PER_MS + 10);
    assert!(slow.end(streams[2]) > Time::ZERO);
    assert!(
        streams.iter().all(|stream| *stream == streams[2] || slow.bytes(*stream) < 150_000),
        "{:?}",
        slow.arrived
    );
    slow.run(120);
    assert_eq!(slow.order(&streams)[0], streams[2]);
}

#[test]
fn a_small_response_waits_for_one_round_of_its_equals_and_no_longer() {
    let mut slow = Slow::new();
    for _ in 0..10 {
        slow.ask(1 << 20, None);
    }
    slow.run(50);
    let begun = slow.now;
    let small = slow.ask(1_000, None);
    slow.run(60);
    // Ten frames of 16 KiB, and what was encoded before.
    let took = slow.end(small).since(begun);
    assert!(took <= Duration::from_millis(17 + 7 + 3), "{took:?}");
}

/// A `PRIORITY_UPDATE`.
fn update(stream: u32, value: &str) -> Vec<u8> {
    frame(kind::PRIORITY_UPDATE, 0, 0, &[&stream.to_be_bytes()[..], value.as_bytes()].concat())
}

/// A GET on `stream` that is complete.
fn asked(stream: u32) -> Vec<u8> {
    frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, &get_block())
}

/// The streams whose DATA a server sends, in order, when all of `streams` have a frame to send before the window opens.
fn order_of(server: &mut Scripted, streams: &[u32]) -> Vec<u32> {
    for stream in streams {
        server.engine.send_response(server.now, StreamId(*stream), &OK);
        assert_eq!(server.engine.send_data(server.now, StreamId(*stream), &body(16_384, 0), true), 0);
    }
    server.sent();
    opened(server)
}

/// The streams that get `Writable`, and send, once the window opens.
fn opened(server: &mut Scripted) -> Vec<u32> {
    server.engine.handle_input(server.now, &frame(kind::WINDOW_UPDATE, 0, 0, &(1_u32 << 20).to_be_bytes()));
    let mut order = Vec::new();
    while let Some(event) = server.engine.poll_event(server.now) {
        let Event::Writable { stream } = event else { panic!("{event:?}") };
        assert_eq!(server.engine.send_data(server.now, stream, &body(16_384, 0), true), 16_384);
        order.push(stream.0);
    }
    order
}

/// A server whose connection window is used up.
fn full_server() -> Scripted {
    let mut server = Scripted::new(server_config());
    server.receive(&asked(1));
    server.engine.send_response(server.now, StreamId(1), &OK);
    assert_eq!(server.engine.send_data(server.now, StreamId(1), &body(65_535, 0), true), 65_535);
    server.sent();
    server
}

#[test]
fn a_stream_that_may_send_and_has_nothing_to_send_does_not_block_the_others() {
    let mut server = full_server();
    server.receive(&[asked(3), asked(5), asked(7)].concat());
    for stream in [3, 5, 7] {
        server.engine.send_response(server.now, StreamId(stream), &OK);
        assert_eq!(server.engine.send_data(server.now, StreamId(stream), &body(1 << 20, 0), true), 0);
    }
    server.sent();
    let mut may_send = server.receive(&frame(kind::WINDOW_UPDATE, 0, 0, &(1_u32 << 20).to_be_bytes()));
    // Nothing of these is sent: their bytes are still on a disk.
    for _ in 0..3 {
        assert_eq!(server.sent(), [], "nothing to send");
        may_send.extend(server.receive(&[]));
    }
    assert_eq!(may_send, [3, 5, 7].map(|stream| Seen::Writable { stream }));
    // When the bytes come, each may send without a further event.
    for stream in [7, 3, 5] {
        assert!(
            server.engine.send_data(server.now, StreamId(stream), &body(16_384, 0), true) > 0,
            "{stream}"
        );
    }
}

#[test]
fn a_wish_may_come_before_its_request_and_the_last_one_holds() {
    let mut server = full_server();
    server.receive(
        &[update(7, "u=1"), update(5, "u=6"), update(5, "u=0"), asked(3), asked(5), asked(7)].concat(),
    );
    assert_eq!(order_of(&mut server, &[3, 5, 7]), [5, 7, 3]);
    server.receive(&[update(5, "u=0"), update(1, "u=0")].concat());
    assert_eq!(server.codes(), (None, vec![]), "streams that have ended");
}

#[test]
fn an_update_replaces_all_that_was_said_before() {
    let mut server = full_server();
    let with = |stream, value| {
        let get = [
            (":method", "GET"),
            (":scheme", "http"),
            (":authority", "a"),
            (":path", "/"),
            ("priority", value),
        ];
        frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, &block(&get))
    };
    server.receive(&[with(3, "u=5"), with(5, "u=4"), with(7, "u=1"), update(7, "i")].concat());
    assert_eq!(order_of(&mut server, &[3, 5, 7]), [7, 5, 3], "u=3 again");
}

#[test]
fn a_hundred_early_wishes_are_kept_and_the_oldest_gives_way() {
    let mut server = full_server();
    let updates: Vec<u8> = (1..=101).flat_map(|n| update(2 * n + 1, "u=0")).collect();
    server.receive(&[updates, asked(3), asked(5), asked(7)].concat());
    assert_eq!(order_of(&mut server, &[3, 5, 7]), [5, 7, 3]);
}

#[test]
fn updates_that_cannot_be_end_the_connection() {
    for (bytes, code) in [
        (update(0, "u=1"), ErrorCode::PROTOCOL_ERROR),
        (update(2, "u=1"), ErrorCode::PROTOCOL_ERROR),
        (frame(kind::PRIORITY_UPDATE, 0, 1, &[0, 0, 0, 1]), ErrorCode::PROTOCOL_ERROR),
        (frame(kind::PRIORITY_UPDATE, 0, 0, &[0; 3]), ErrorCode::FRAME_SIZE_ERROR),
    ] {
        let mut server = Scripted::new(server_config());
        server.receive(&bytes);
        assert_eq!(server.codes().0, Some(code.0));
    }
    let mut client = Scripted::new(client_config());
    let stream = client.request();
    client.receive(&update(stream, "u=1"));
    assert_eq!(client.codes().0, Some(ErrorCode::PROTOCOL_ERROR.0));
}

#[test]
fn an_update_that_cannot_be_read_is_the_default() {
    let mut server = full_server();
    server.receive(&[asked(3), asked(5), update(3, "u=9, \u{0}\u{ff}"), update(5, "u=2")].concat());
    assert_eq!(order_of(&mut server, &[3, 5]), [5, 3]);
    assert_eq!(server.codes(), (None, vec![]));
}

#[test]
fn many_changes_of_mind_cost_no_more_memory_than_a_few() {
    let mut server = full_server();
    server.receive(&[asked(3), asked(5)].concat());
    for stream in [3, 5] {
        server.engine.send_response(server.now, StreamId(stream), &OK);
        server.engine.send_data(server.now, StreamId(stream), &body(16_384, 0), true);
    }
    for n in 0..1_000 {
        server.receive(&update(3, ["u=0", "u=7", "i"][n % 3]));
    }
    let crate::Connection::H2(engine) = &server.engine else { panic!("HTTP/2") };
    assert!(engine.backlog.send_places() <= 2 * 2 + 64, "{}", engine.backlog.send_places());
    assert_eq!(opened(&mut server), [3, 5]);
}

#[test]
fn a_server_says_that_the_old_priorities_mean_nothing_to_it() {
    let announced =
        |config: Config| frames(Connection::h2(config, Time::ZERO).poll_transmit(Time::ZERO))[0].1.clone();
    let entry = [0, 9, 0, 0, 0, 1];
    assert!(announced(server_config()).chunks(6).any(|setting| setting == entry));
    assert!(!announced(client_config()).chunks(6).any(|setting| setting == entry));
}

//! Two engines of HTTP/3 over two sessions and real datagrams, on one thread.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use h2lab_wire::connection::{Request, Response};
use h2lab_wire::trace::Crossing;
use h2lab_wire::{Config, Connection, ErrorCode, Event, FlowControl, Initiator, Priority, Role, StreamId};

use bytes::Bytes;
use quinn_proto::ConnectionError;

use super::*;
use crate::clock::Clock;
use crate::tls::{ClientTls, ServerTls, TlsOptions};
use crate::transport::{Received, Sent, Transport, TransportError};

/// Far more than any test here takes.
const DEADLINE: Duration = Duration::from_secs(60);

/// What a role received, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
enum RoleEvent {
    Request(StreamId),
    Response(u16),
    Data(usize, bool),
    Reset(ErrorCode, Initiator),
    GoAway,
    Closed(bool),
}

struct End {
    transport: Transport,
    engine: Connection,
    events: Vec<RoleEvent>,
}

impl End {
    fn new(quic: QuicSession, config: &Config, clock: Clock) -> Self {
        let engine = Connection::h3(*config, clock.now());
        Self { transport: Transport::Quic(Box::new(quic)), engine, events: Vec::new() }
    }

    /// Takes what has come and sends what is due.
    fn proceed(&mut self, clock: Clock) -> Result<(), TransportError> {
        self.transport.handle_timeout(clock.now());
        while let Received::Bytes(_) = self.receive(clock)? {}
        while let Sent::Bytes { .. } = self.transport.send(&mut self.engine, clock.now(), &mut |_| ())? {}
        self.transport.flush(clock.now()).map(drop)
    }

    /// Takes what one turn brings.
    fn receive(&mut self, clock: Clock) -> Result<Received, TransportError> {
        let received = self.transport.receive(&mut self.engine, || clock.now(), &mut |_, _| ())?;
        while let Some(event) = self.engine.poll_event(clock.now()) {
            self.events.extend(match event {
                Event::Request { stream, .. } => Some(RoleEvent::Request(stream)),
                Event::Response { head, .. } => Some(RoleEvent::Response(head.status)),
                Event::Data { data, end_stream, .. } => Some(RoleEvent::Data(data.len(), end_stream)),
                Event::Reset { code, initiator, .. } => Some(RoleEvent::Reset(code, initiator)),
                Event::GoAway { .. } => Some(RoleEvent::GoAway),
                Event::Closed { error } => Some(RoleEvent::Closed(error.is_none())),
                _ => None,
            });
        }
        Ok(received)
    }

    fn quic(&mut self) -> &mut QuicSession {
        self.transport.quic_mut().expect("it is QUIC")
    }

    /// Bytes of bodies that were received, and whether one has ended.
    fn body(&self) -> (usize, bool) {
        let pieces = self.events.iter().filter_map(|events| match events {
            RoleEvent::Data(bytes, end) => Some((*bytes, *end)),
            _ => None,
        });
        pieces.fold((0, false), |(sum, ended), (bytes, end)| (sum + bytes, ended || end))
    }
}

struct Pair {
    clock: Clock,
    endpoint: Arc<QuicEndpoint>,
    client: End,
    server: End,
}

impl Pair {
    /// Both ends of a connection whose handshake is complete.
    fn new(server: &Config) -> Self {
        Self::of(&Config::new(Role::Client), server, false)
    }

    /// The same; with `asks_for_proof` the client must first prove its address.
    fn of(config: &Config, server: &Config, mut asks_for_proof: bool) -> Self {
        let clock = Clock::start();
        let tls = ServerTls::self_signed(&["localhost"], &[]).unwrap();
        let any = (Ipv4Addr::LOCALHOST, 0).into();
        let congestion = Congestion::default();
        let endpoint = QuicEndpoint::listen(any, &tls, clock).unwrap();
        let trust =
            TlsOptions { ca_pem: Some(tls.certificate_pem().as_bytes().to_vec()), ..TlsOptions::default() };
        let tls = ClientTls::new("localhost", "h3", &trust).unwrap();
        let address = endpoint.local_address().unwrap();
        let mut dialled = QuicEndpoint::dial(address, &tls, config, congestion, clock, clock.now()).unwrap();
        let (mut accepted, until) = (None, Instant::now() + DEADLINE);
        loop {
            let is_ready = dialled.handshake(clock.now()).unwrap();
            endpoint
                .receive(clock.now(), &mut |arrival| match arrival {
                    RoutedDatagram::New(incoming) if std::mem::take(&mut asks_for_proof) => {
                        assert!(!incoming.remote_address_validated());
                        endpoint.ask_for_proof(incoming);
                    }
                    RoutedDatagram::New(incoming) => {
                        accepted = endpoint.accept(incoming, server, congestion, clock.now()).ok();
                    }
                    RoutedDatagram::Known(_, event) => {
                        accepted.as_mut().expect("it came first").handle(event);
                    }
                })
                .unwrap();
            let accepts = accepted.as_mut().is_some_and(|quic| quic.handshake(clock.now()).unwrap());
            if is_ready && accepts {
                break;
            }
            assert!(Instant::now() < until, "the handshake does not end");
        }
        let accepted = accepted.expect("it was accepted");
        let (client, server) = (End::new(dialled, config, clock), End::new(accepted, server, clock));
        Self { clock, endpoint, client, server }
    }

    /// Runs both ends until `is_enough`.
    #[track_caller]
    fn until(&mut self, is_enough: impl Fn(&End, &End) -> bool) {
        let until = Instant::now() + DEADLINE;
        while !is_enough(&self.client, &self.server) {
            self.client.proceed(self.clock).unwrap();
            self.serve();
            assert!(Instant::now() < until, "{:?} {:?}", self.client.events, self.server.events);
        }
    }

    fn serve(&mut self) {
        self.deliver();
        self.server.proceed(self.clock).unwrap();
    }

    /// Delivers its datagrams to the server's session; the engine does not take them yet.
    fn deliver(&mut self) {
        let quic = self.server.quic();
        let mut take = |arrival| {
            if let RoutedDatagram::Known(_, event) = arrival {
                quic.handle(event);
            }
        };
        self.endpoint.receive(self.clock.now(), &mut take).unwrap();
    }

    /// Runs both ends until `is_enough`, without reading the shared socket.
    #[track_caller]
    fn until_alone(&mut self, is_enough: impl Fn(&End, &End) -> bool) {
        let until = Instant::now() + DEADLINE;
        while !is_enough(&self.client, &self.server) {
            self.turn_alone();
            assert!(Instant::now() < until, "{:?} {:?}", self.client.events, self.server.events);
        }
    }

    fn turn_alone(&mut self) {
        self.client.proceed(self.clock).unwrap();
        self.server.proceed(self.clock).unwrap();
    }

    /// Begins a POST whose body is not complete, without reading the shared socket.
    fn post_alone(&mut self) -> StreamId {
        self.until_alone(|client, _| client.engine.available_streams() > 0);
        self.client.engine.send_request(self.clock.now(), &POST).expect("a stream is available")
    }

    /// Begins a POST whose body is not complete.
    fn post(&mut self) -> StreamId {
        self.until(|client, _| client.engine.available_streams() > 0);
        self.client.engine.send_request(self.clock.now(), &POST).expect("a stream is available")
    }
}

const POST: Request<'_> = Request {
    method: "POST",
    authority: "localhost",
    path: "/",
    fields: &[],
    body_length: None,
    end_stream: false,
};

const OK: Response<'_> = Response { status: 200, fields: &[], body_length: None, end_stream: false };

#[test]
fn a_session_with_a_socket_of_its_own_goes_on_while_nobody_reads_the_shared_one() {
    let mut pair = Pair::new(&Config::new(Role::Server));
    pair.until(|_, server| server.engine.is_established());
    assert!(pair.server.quic().separate().unwrap() && !pair.server.quic().separate().unwrap());
    pair.deliver(); // what came before
    let (stream, now) = (pair.post_alone(), pair.clock.now());
    let body = vec![1; 100_000];
    let mut left = &*body;
    while !left.is_empty() {
        left = &left[pair.client.engine.send_data(now, stream, left, true)..];
        pair.turn_alone();
    }
    pair.until_alone(|_, server| server.body().1);
    assert_eq!(pair.server.body().0, 100_000);
    pair.server.engine.send_response(now, stream, &OK);
    let body = vec![7; 200_000];
    let mut left = &*body;
    while !left.is_empty() {
        left = &left[pair.server.engine.send_data(now, stream, left, true)..];
        pair.turn_alone();
    }
    pair.until_alone(|client, _| client.body().1);
    assert_eq!(pair.client.body().0, 200_000);
    assert!(pair.endpoint.take_strays().is_empty());
}

#[test]
fn a_server_that_is_to_close_waits_until_its_answer_has_arrived() {
    let mut pair = Pair::new(&Config { max_requests: Some(1), ..Config::new(Role::Server) });
    let (stream, now) = (pair.post(), pair.clock.now());
    pair.client.engine.send_data(now, stream, b"question", true);
    pair.until(|_, server| server.body().1);
    let engine = &mut pair.server.engine;
    engine.send_response(now, stream, &OK);
    engine.send_data(now, stream, &[7; 9_000], true);
    // Handed to QUIC; then the engine has nothing left to do.
    pair.serve();
    pair.serve();
    let quic = pair.server.quic();
    assert!(quic.is_closing() && !quic.is_drained(), "the client has not even read it");
    let before = quic.acknowledgements();
    pair.serve();
    assert_eq!(pair.server.quic().acknowledgements(), before, "nor acknowledged");
    pair.until(|client, _| client.events.iter().any(|events| matches!(events, RoleEvent::Closed(_))));
    assert_eq!(pair.client.body(), (9_000, true));
    assert!(pair.client.events.contains(&RoleEvent::Response(200)));
    assert!(pair.server.quic().acknowledgements() > before);
}

#[test]
fn datagrams_grow_to_what_the_route_takes() {
    let mut pair = Pair::new(&Config::new(Role::Server));
    let address = pair.endpoint.local_address().unwrap();
    assert!(crate::udp::largest_payload(address).unwrap() > 9_000, "loopback has long packets");
    let until = Instant::now() + DEADLINE;
    while [&mut pair.client, &mut pair.server].into_iter().any(|end| end.quic().summary().mtu <= 9_000) {
        pair.client.proceed(pair.clock).unwrap();
        pair.serve();
        assert!(Instant::now() < until, "they stay small");
    }
}

#[test]
fn what_nobody_reads_any_more_is_not_reported_as_sent_and_the_engine_is_rid_of_it() {
    for is_stopped in [false, true] {
        let mut pair = Pair::new(&Config::new(Role::Server));
        let (stream, now) = (pair.post(), pair.clock.now());
        pair.until(|_, server| server.events.contains(&RoleEvent::Request(stream)));
        if is_stopped {
            pair.client.engine.reset(now, stream, ErrorCode::H3_REQUEST_CANCELLED);
            pair.client.proceed(pair.clock).unwrap();
        }
        // QUIC has the data; the engine has not taken it yet.
        pair.deliver();
        let (server, mut seen, mut recorded) = (&mut pair.server, 0, 0);
        server.engine.send_response(now, stream, &OK);
        server.engine.send_data(now, stream, &[7; 1_000], true);
        let queued = server.engine.unsent();
        let mut see = |crossing: Crossing<'_>| {
            if let Crossing::Bytes { bytes, .. } = crossing {
                seen += bytes.len();
            }
        };
        while let Sent::Bytes { bytes, .. } =
            server.transport.send(&mut server.engine, now, &mut see).unwrap()
        {
            recorded += bytes;
        }
        let expected = if is_stopped { 0 } else { queued };
        assert!(queued > 1_000);
        assert_eq!(
            (seen, recorded, server.engine.unsent()),
            (expected, expected, 0),
            "stopped: {is_stopped}"
        );
    }
}

#[test]
fn the_end_does_not_overtake_the_goaway_that_announces_it() {
    let mut pair = Pair::new(&Config::new(Role::Server));
    pair.until(|client, server| client.engine.is_established() && server.engine.is_established());
    // Nothing has happened for longer than a server waits.
    pair.server.engine.handle_timeout(pair.clock.now() + Duration::from_secs(80));
    pair.until(|client, _| client.events.contains(&RoleEvent::Closed(true)));
    assert_eq!(pair.client.events, [RoleEvent::GoAway, RoleEvent::Closed(true)]);
}

#[test]
fn the_most_urgent_stream_goes_first_and_one_of_which_nothing_is_said_amid_them() {
    // RFC 9218 §4.1: its urgency is 3.
    let mut pair = Pair::new(&Config::new(Role::Server));
    let streams = [(); 4].map(|()| pair.post());
    let now = pair.clock.now();
    for (stream, urgency) in [(streams[0], 0), (streams[2], 3), (streams[3], 7)] {
        pair.client.engine.send_priority_update(now, stream, Priority { urgency, incremental: false });
    }
    pair.client.proceed(pair.clock).unwrap();
    let mut rank = |dir, number| {
        let id = quinn_proto::StreamId::new(quinn_proto::Side::Client, dir, number);
        pair.client.quic().proto.send_stream(id).priority().expect("it is open")
    };
    let [first, silent, usual, last] = [0, 1, 2, 3].map(|number| rank(quinn_proto::Dir::Bi, number));
    assert!(first > silent && silent == usual && usual > last, "{first} {silent} {usual} {last}");
    assert!(rank(quinn_proto::Dir::Uni, 0) > first, "what is said of them goes before them");
}

#[test]
fn a_client_whose_address_is_in_doubt_shows_it_and_is_served() {
    let client = Config::new(Role::Client);
    let mut pair = Pair::of(&client, &Config::new(Role::Server), true);
    let stream = pair.post();
    pair.until(|_, server| server.events.contains(&RoleEvent::Request(stream)));
}

#[test]
fn streams_behind_those_that_bring_much_have_their_turn() {
    const BODY: usize = 200_000;
    let flow = FlowControl { stream_window: 1 << 20, connection_window: 8 << 20, ..FlowControl::default() };
    let client = Config { send_buffer: 8 << 20, ..Config::new(Role::Client) };
    let mut pair = Pair::of(&client, &Config { flow, ..Config::new(Role::Server) }, false);
    // All of them are begun before anything is sent.
    pair.client.quic().expect_streams(6);
    pair.until(|client, _| client.engine.available_streams() >= 6);
    let streams = [(); 6].map(|()| pair.post());
    let now = pair.clock.now();
    for stream in streams {
        assert_eq!(pair.client.engine.send_data(now, stream, &vec![1; BODY], true), BODY);
    }
    // All of it is there before anything is taken: more than two turns.
    let until = Instant::now() + DEADLINE;
    let sent = |client: &mut End| client.quic().summary().datagram_bytes_sent;
    while sent(&mut pair.client) < (6 * BODY) as u64 || pair.client.engine.unsent() > 0 {
        pair.client.proceed(pair.clock).unwrap();
        pair.deliver();
        let now = pair.clock.now();
        pair.server.quic().handle_timeout(now);
        pair.server.quic().flush(now).unwrap();
        assert!(Instant::now() < until);
    }
    pair.deliver();
    for _ in 0..2 {
        pair.server.receive(pair.clock).unwrap();
    }
    let begun = streams.iter().filter(|stream| pair.server.events.contains(&RoleEvent::Request(**stream)));
    assert_eq!(begun.count(), streams.len(), "{:?}", pair.server.events);
}

#[test]
fn a_server_that_is_silent_for_too_long_is_given_up() {
    for (silent, is_lost) in [(80, false), (91, true)] {
        let mut pair = Pair::new(&Config::new(Role::Server));
        pair.until(|client, server| client.engine.is_established() && server.engine.is_established());
        pair.client.transport.handle_timeout(pair.clock.now() + Duration::from_secs(silent));
        let events = loop {
            match pair.client.receive(pair.clock) {
                Ok(Received::Bytes(_)) => {}
                silence_or_end => break silence_or_end,
            }
        };
        let timed_out = |error: &TransportError| match error {
            TransportError::Io(error) => error.kind() == std::io::ErrorKind::TimedOut,
            _ => false,
        };
        assert_eq!(events.is_err_and(|error| timed_out(&error)), is_lost, "{silent} s");
    }
}

#[test]
fn a_server_that_owes_an_answer_is_asked_whether_it_is_there() {
    let mut pair = Pair::new(&Config::new(Role::Server));
    let stream = pair.post();
    pair.until(|_, server| server.events.contains(&RoleEvent::Request(stream)));
    let later = pair.clock.now() + Duration::from_secs(15);
    let pings = |client: &mut End| client.quic().proto.stats().frame_tx.ping;
    let before = pings(&mut pair.client);
    assert!(pair.client.quic().timeout() <= later);
    pair.client.transport.handle_timeout(later);
    pair.client.transport.flush(later).unwrap();
    assert!(pings(&mut pair.client) > before);
}

#[test]
fn a_connection_that_is_over_is_forgotten_even_if_its_last_word_was_not_passed_on() {
    let mut pair = Pair::new(&Config::new(Role::Server));
    assert_eq!(pair.endpoint.connections(), 1);
    // Time passes without traffic; no flush follows.
    pair.server.transport.handle_timeout(pair.clock.now() + Duration::from_secs(200));
    assert!(pair.server.quic().is_drained());
    let Pair { server, endpoint, .. } = pair;
    drop(server);
    assert_eq!(endpoint.connections(), 0);
}

#[test]
fn a_reset_that_comes_behind_the_close_does_not_take_its_reasons_place() {
    let mut pair = Pair::new(&Config::new(Role::Server));
    let stream = pair.post();
    let Pair { clock, endpoint, mut client, mut server } = pair;
    let now = clock.now();
    server.quic().close(now, ErrorCode::H3_EXCESSIVE_LOAD, Bytes::from_static(b"enough"));
    server.transport.flush(now).unwrap();
    // The server drops the connection, as at the end of its draining period; and the client sends before it receives.
    server.transport.handle_timeout(now + Duration::from_secs(200));
    drop(server);
    client.engine.send_data(now, stream, &[1; 1_000], true);
    while let Sent::Bytes { .. } = client.transport.send(&mut client.engine, now, &mut |_| ()).unwrap() {}
    client.transport.flush(now).unwrap();
    endpoint.receive(now, &mut |_| ()).unwrap();
    let until = Instant::now() + DEADLINE;
    while client.quic().lost.is_none() {
        // A lost connection may be an error, too.
        let _ = client.receive(clock);
        assert!(Instant::now() < until, "{:?}", client.events);
    }
    let lost = client.quic().lost.clone();
    assert!(matches!(lost, Some(ConnectionError::ApplicationClosed(_))), "{lost:?}");
}

#[test]
fn what_the_role_does_not_want_stays_in_quic_and_holds_the_peer_up() {
    const WINDOW: u32 = 20_000;
    const BODY: usize = 100_000;
    let flow = FlowControl { stream_window: WINDOW, manual_release: true, ..FlowControl::default() };
    let mut pair = Pair::new(&Config { flow, ..Config::new(Role::Server) });
    let (stream, now) = (pair.post(), pair.clock.now());
    assert_eq!(pair.client.engine.send_data(now, stream, &vec![1; BODY], true), BODY);
    // The role holds one window of data, and QUIC another.
    pair.until(|client, server| {
        server.body().0 >= WINDOW as usize && client.engine.unsent() <= BODY - 2 * WINDOW as usize + 100
    });
    for _ in 0..100 {
        pair.client.proceed(pair.clock).unwrap();
        pair.serve();
    }
    let (held, ended) = pair.server.body();
    assert!(held < 3 * WINDOW as usize && !ended, "{held}");
    assert!(pair.client.engine.unsent() > 0);
    let mut released = 0;
    while !pair.server.body().1 {
        let arrived = pair.server.body().0;
        pair.server.engine.release(pair.clock.now(), stream, (arrived - released) as u32);
        released = arrived;
        pair.until(|_, server| server.body().0 > arrived || server.body().1);
    }
    assert_eq!(pair.server.body(), (BODY, true));
}

#[test]
fn a_stream_that_is_given_up_is_reported_with_its_code_either_way() {
    let mut pair = Pair::new(&Config::new(Role::Server));
    let reset = |code| RoleEvent::Reset(code, Initiator::Remote);
    let stream = pair.post();
    pair.until(|_, server| server.events.contains(&RoleEvent::Request(stream)));
    pair.client.engine.reset(pair.clock.now(), stream, ErrorCode::CANCEL);
    pair.until(|_, server| server.events.contains(&reset(ErrorCode::H3_REQUEST_CANCELLED)));
    let stream = pair.post();
    pair.until(|_, server| server.events.contains(&RoleEvent::Request(stream)));
    pair.server.engine.reset(pair.clock.now(), stream, ErrorCode::REFUSED_STREAM);
    pair.until(|client, _| client.events.contains(&reset(ErrorCode::H3_REQUEST_REJECTED)));
}

/// RFC 9001 §6: either end may begin one at any time.
#[test]
fn a_key_update_of_either_end_costs_nothing() {
    const BODY: usize = 300_000;
    let client = Config { send_buffer: 1 << 20, ..Config::new(Role::Client) };
    let mut pair = Pair::of(&client, &Config::new(Role::Server), false);
    for is_ours in [true, false, true] {
        let (stream, now, before) = (pair.post(), pair.clock.now(), pair.server.body().0);
        assert_eq!(pair.client.engine.send_data(now, stream, &vec![1; BODY], true), BODY);
        pair.until(|_, server| server.body().0 > before);
        let end = if is_ours { &mut pair.client } else { &mut pair.server };
        end.quic().proto.force_key_update();
        pair.until(|_, server| server.body().0 == before + BODY);
        pair.server.engine.send_response(pair.clock.now(), stream, &OK);
        pair.server.engine.send_data(pair.clock.now(), stream, b"", true);
        pair.until(|client, _| client.engine.open_streams() == 0);
    }
    let responses = pair.client.events.iter().filter(|event| **event == RoleEvent::Response(200));
    assert_eq!(responses.count(), 3);
}

#[test]
fn what_the_engine_does_not_want_yet_is_counted_until_it_was_read() {
    let mut config = Config::new(Role::Server);
    config.flow.stream_window = 64 * 1024;
    config.flow.manual_release = true;
    let mut pair = Pair::new(&config);
    let (stream, now) = (pair.post(), pair.clock.now());
    let body = vec![1; 200_000];
    let mut left = &body[..];
    while pair.server.quic().unread() < 32 * 1024 {
        left = &left[pair.client.engine.send_data(now, stream, left, true)..];
        pair.client.proceed(pair.clock).unwrap();
        pair.serve();
    }
    // No credit was returned, so that the engine has taken one window, and QUIC has at most another one.
    assert!(pair.server.quic().unread() <= 64 * 1024);
    let until = Instant::now() + DEADLINE;
    while !pair.server.body().1 {
        pair.server.engine.release(now, stream, 64 * 1024);
        left = &left[pair.client.engine.send_data(now, stream, left, true)..];
        pair.client.proceed(pair.clock).unwrap();
        pair.serve();
        assert!(Instant::now() < until, "{:?}", pair.server.body());
    }
    assert_eq!((pair.server.body().0, pair.server.quic().unread()), (200_000, 0));
}

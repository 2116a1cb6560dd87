//! Client against server, every framing, the byte streams cut at random.

use proptest::prelude::*;

use super::*;
use crate::Field;

/// One message's body, as a role has it.
#[derive(Debug, Clone, Copy)]
struct Body {
    size: usize,
    announced: bool,
    trailer: bool,
}

impl Body {
    /// Its bytes: without repetition, so that a lost or doubled piece shows.
    fn bytes(self) -> Vec<u8> {
        (0..self.size).map(|n| (n * 7 + n / 251) as u8).collect()
    }

    /// Whether the role ends the message with its head.
    fn is_none(self) -> bool {
        self.announced && self.size == 0
    }

    fn length(self) -> Option<u64> {
        self.announced.then_some(self.size as u64)
    }
}

#[derive(Debug, Clone)]
struct Exchange {
    method: &'static str,
    request: Body,
    interims: u16,
    status: u16,
    response: Body,
    /// The server answers before it has read the request's body.
    early: bool,
}

fn body() -> impl Strategy<Value = Body> {
    let size = prop_oneof![Just(0), 1..50_usize, 5_000..40_000_usize];
    (size, any::<bool>(), any::<bool>()).prop_map(|(size, announced, trailer)| Body {
        size,
        announced,
        trailer,
    })
}

fn exchange() -> impl Strategy<Value = Exchange> {
    let method = prop_oneof![Just("GET"), Just("POST"), Just("HEAD")];
    let status = prop_oneof![Just(200_u16), Just(204), Just(304), Just(404), Just(599)];
    (method, body(), 0..3_u16, status, body(), any::<bool>()).prop_map(
        |(method, request, interims, status, response, early)| Exchange {
            method,
            request,
            interims,
            status,
            response,
            early,
        },
    )
}

/// One side's part in an exchange: what of its body is still to be sent.
struct Sender {
    stream: StreamId,
    rest: Vec<u8>,
    trailer: bool,
    done: bool,
}

impl Sender {
    fn new(stream: StreamId, body: Body) -> Self {
        Self { stream, rest: body.bytes(), trailer: body.trailer, done: body.is_none() }
    }

    /// Sends what the engine takes.
    fn push(&mut self, connection: &mut Connection) {
        if self.done {
            return;
        }
        let taken = connection.send_data(NOW, self.stream, &self.rest, !self.trailer);
        self.rest.drain(..taken);
        self.done = self.rest.is_empty();
        if self.done && self.trailer {
            connection.send_trailers(NOW, self.stream, &[Field::new("x-sum", "42")]);
        }
    }
}

/// One side: its engine and what it has seen.
struct Side {
    engine: Connection,
    saw: Vec<Seen>,
}

impl Side {
    fn new(config: Config) -> Self {
        Self { engine: Connection::new(config), saw: Vec::new() }
    }

    /// Moves at most `cut` bytes to the other side; whether there were any.
    fn carry(&mut self, cut: usize, to: &mut Self) -> bool {
        let bytes = self.engine.poll_transmit(NOW);
        let bytes = bytes[..cut.min(bytes.len())].to_vec();
        self.engine.handle_transmitted(NOW, bytes.len());
        drain(&mut self.engine, &mut self.saw);
        feed(&mut to.engine, &bytes, &mut to.saw);
        !bytes.is_empty()
    }
}

/// A client, a server, and a network that hands over a few bytes at a time.
struct Pair {
    client: Side,
    server: Side,
    cuts: std::iter::Cycle<std::vec::IntoIter<usize>>,
}

impl Pair {
    fn new(cuts: Vec<usize>, send_buffer: usize) -> Self {
        let side = |role| Side::new(Config { send_buffer, ..Config::new(role) });
        Self { client: side(Role::Client), server: side(Role::Server), cuts: cuts.into_iter().cycle() }
    }

    /// Moves one piece each way; whether anything moved.
    fn step(&mut self) -> bool {
        let cut = self.cuts.next().unwrap_or(1);
        let up = self.client.carry(cut, &mut self.server);
        let down = self.server.carry(cut, &mut self.client);
        up | down
    }

    /// Runs one exchange to its end.
    fn run(&mut self, exchange: &Exchange) {
        let request = Request {
            method: exchange.method,
            authority: "a.test:8080",
            path: "/p?q=1",
            fields: &[Field::new("x-a", "1"), Field::new("x-empty", "")],
            body_length: exchange.request.length(),
            end_stream: exchange.request.is_none(),
        };
        let stream = self.client.engine.send_request(NOW, &request).expect("the connection is idle");
        let mut up = Sender::new(stream, exchange.request);
        let mut down: Option<Sender> = None;
        loop {
            up.push(&mut self.client.engine);
            let asked = self.server.saw.iter().any(|seen| matches!(seen, Seen::Request { .. }));
            let read = self.server.saw.contains(&Seen::End(stream));
            if down.is_none() && (read || (asked && exchange.early)) {
                down = Some(self.answer(stream, exchange));
            }
            if let Some(down) = &mut down {
                down.push(&mut self.server.engine);
            }
            if !self.step() && up.done && down.as_ref().is_some_and(|down| down.done) {
                break;
            }
        }
    }

    fn answer(&mut self, stream: StreamId, exchange: &Exchange) -> Sender {
        for _ in 0..exchange.interims {
            self.server.engine.send_interim(NOW, stream, 103, &[Field::new("link", "</a.css>")]);
        }
        let response = Response {
            status: exchange.status,
            fields: &[Field::new("server", "test")],
            body_length: exchange.response.length(),
            end_stream: exchange.response.is_none(),
        };
        self.server.engine.send_response(NOW, stream, &response);
        Sender::new(stream, exchange.response)
    }
}

/// The events that a body brings, without heads.
fn expected_body(body: Body, stream: StreamId, carried: bool) -> Vec<Seen> {
    let mut seen = Vec::new();
    if carried && body.size > 0 {
        seen.push(Seen::Body(body.bytes()));
    }
    if carried && body.trailer && !body.announced {
        seen.push(Seen::Trailers(vec![("x-sum".into(), "42".into())]));
    }
    seen.push(Seen::End(stream));
    seen
}

/// What was seen, without heads and interims; bodies in one piece.
fn bodies(seen: &[Seen]) -> Vec<Seen> {
    let mut bodies = Vec::new();
    for seen in seen {
        match (seen, bodies.last_mut()) {
            (Seen::Body(piece), Some(Seen::Body(body))) => body.extend_from_slice(piece),
            (Seen::Body(_) | Seen::Trailers(_) | Seen::End(_) | Seen::Closed(_), _) => {
                bodies.push(seen.clone());
            }
            _ => {}
        }
    }
    bodies
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_framing_survives_both_ways_however_the_streams_are_cut(
        exchanges in prop::collection::vec(exchange(), 1..4),
        cuts in prop::collection::vec(prop_oneof![1..20_usize, 500..9_000_usize], 1..40),
        send_buffer in prop_oneof![Just(100_usize), Just(3_000), Just(256 * 1024)],
    ) {
        let mut pair = Pair::new(cuts, send_buffer);
        for (n, exchange) in exchanges.iter().enumerate() {
            let stream = StreamId::of_request(n as u32);
            pair.run(exchange);
            let up = expected_body(exchange.request, stream, true);
            prop_assert!(bodies(&pair.server.saw) == up, "the request arrived otherwise");
            let bodiless = exchange.method == "HEAD" || matches!(exchange.status, 204 | 304);
            let down = expected_body(exchange.response, stream, !bodiless);
            prop_assert!(bodies(&pair.client.saw) == down, "the response arrived otherwise");
            let interims = pair.client.saw.iter().filter(|seen| **seen == Seen::Interim(103)).count();
            prop_assert_eq!(interims, usize::from(exchange.interims));
            let answered = |seen: &Seen| matches!(seen, Seen::Response { status, .. } if *status == exchange.status);
            prop_assert!(pair.client.saw.iter().any(answered));
            prop_assert_eq!((pair.client.engine.available_streams(), pair.server.engine.open_streams()), (1, 0));
            pair.client.saw.clear();
            pair.server.saw.clear();
        }
        prop_assert_eq!(pair.client.engine.counters().requests, exchanges.len() as u64);
        prop_assert_eq!(pair.client.engine.counters().headers_sent, pair.server.engine.counters().headers_received);
        prop_assert_eq!(pair.server.engine.counters().headers_sent, pair.client.engine.counters().headers_received);
    }

    #[test]
    fn random_bytes_never_panic_and_end_a_connection_at_most_once(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
        prefix in prop_oneof![
            Just(&b""[..]),
            Just(&b"GET / HTTP/1.1\r\nhost: a\r\n"[..]),
            Just(&b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"[..]),
            Just(&b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n"[..]),
            Just(&b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n"[..]),
        ],
        cut in 1..100_usize,
    ) {
        for mut connection in [client(), server()] {
            connection.send_request(NOW, &GET);
            let mut seen = Vec::new();
            for piece in [prefix, &bytes].concat().chunks(cut) {
                feed(&mut connection, piece, &mut seen);
            }
            connection.handle_eof(NOW);
            drain(&mut connection, &mut seen);
            sent(&mut connection);
            drain(&mut connection, &mut seen);
            let ends = seen.iter().filter(|seen| matches!(seen, Seen::Closed(_))).count();
            prop_assert!(ends <= 1, "{:?}", seen);
        }
    }
}

#[test]
fn a_message_costs_no_allocation_once_the_buffers_have_grown() {
    // Capacity is what an allocation would change; the engine has no other growing part.
    let mut pair = Pair::new(vec![usize::MAX], 256 * 1024);
    let body = Body { size: 1_024, announced: true, trailer: false };
    let exchange =
        Exchange { method: "POST", request: body, interims: 0, status: 200, response: body, early: false };
    let capacities = |pair: &Pair| {
        [&pair.client.engine, &pair.server.engine].map(|engine| {
            let scratch = &engine.scratch;
            (engine.output.capacity(), scratch.bytes.capacity(), scratch.spans.capacity())
        })
    };
    pair.run(&exchange);
    let before = capacities(&pair);
    for _ in 0..100 {
        pair.run(&exchange);
    }
    assert_eq!(capacities(&pair), before);
}

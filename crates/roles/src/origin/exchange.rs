//! One request and its answer.

use std::sync::Arc;
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_wire::connection::{Request, Response};
use h2lab_wire::{Connection, ErrorCode, Field, Fields, RequestHead, StreamId};

use super::digests::Known;
use super::early;
use super::handler;
use super::plan::{Answering, Echo, Moment, ResponsePlan};
use h2lab_net::storage::Body;

/// How often to check whether an awaited digest is known, or an upload is finished.
const DIGEST_PERIOD: Duration = Duration::from_millis(5);

/// How long a client may continue a request that was answered before it was complete.
const LINGER: Duration = Duration::from_secs(5);
/// How many bytes of it are discarded meanwhile.
const MOST_DISCARDED: u64 = 4 << 20;

/// How much of a body may be held.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Bytes.
    pub bytes: usize,
    /// Whether it is less than one connection may have, because of what is held for others.
    pub is_shared: bool,
}

/// One request in progress.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "what happened to both directions is independent")]
pub struct Exchange {
    /// Its stream.
    pub stream: StreamId,
    plan: ResponsePlan,
    /// HEAD: the answer has no body, whatever its Content-Length.
    is_head: bool,
    stage: Stage,
    /// The request's body, if it is to be echoed.
    collected: Vec<u8>,
    /// Of `collected`, in a tunnel: the bytes that were sent back.
    returned: usize,
    /// A tunnel that has been answered.
    opened: bool,
    /// A tunnel: bytes that arrived and whose credit was not returned to the client yet.
    owed: u32,
    /// A tunnel: more bytes have arrived than there is room for, which takes hundreds of tunnels, or windows as large
    /// as the room.
    overflown: bool,
    /// The request's trailers, if they are to be echoed after its body.
    trailers: Vec<(Vec<u8>, Vec<u8>)>,
    /// The digest that is to follow the body.
    awaited: Option<Arc<Known>>,
    /// When the next piece of a drip may go.
    piece_due: Time,
    /// Bytes of its present piece that may still go: the engine may take them in parts.
    piece_left: u64,
    /// The engine did not take everything: it reports when to continue.
    is_blocked: bool,
    /// The request is complete.
    is_received: bool,
    /// Until when to wait for the rest of it, once it is answered.
    lingers_until: Time,
    /// Bytes of it that were discarded.
    discarded: u64,
    /// Pushes that it promised and that are to be answered, by path.
    promised: Vec<(StreamId, String)>,
}

/// How far the exchange has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The request is not complete.
    Receiving,
    /// It is.
    Received,
    /// The answer's head was sent.
    Answering,
}

/// The state of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// All was handed to the engine.
    Done,
    /// It continues when the peer sends or takes more.
    WaitsForPeer,
    /// It continues at this time.
    WaitsUntil(Time),
}

impl Exchange {
    /// A request whose head has arrived.
    pub fn new(stream: StreamId, mut plan: ResponsePlan, is_head: bool, is_complete: bool) -> Self {
        let piece_due = plan.due;
        if let Some(receipt) = plan.receipt.as_mut().filter(|_| is_complete) {
            receipt.complete();
        }
        let stage = if is_complete { Stage::Received } else { Stage::Receiving };
        let trailers = plan.trailers.drain(..).map(|(name, value)| (name.into(), value.into())).collect();
        Self {
            stream,
            plan,
            is_head,
            stage,
            collected: Vec::new(),
            returned: 0,
            opened: false,
            owed: 0,
            overflown: false,
            trailers,
            awaited: None,
            piece_due,
            piece_left: 0,
            is_blocked: false,
            is_received: is_complete,
            lingers_until: Time::NEVER,
            discarded: 0,
            promised: Vec::new(),
        }
    }

    /// Some of the request's body has arrived. It is kept if it is to be echoed and there is `room` for it.
    pub fn take_body(&mut self, now: Time, data: &[u8], room: Room, is_last: bool) {
        if let Some(receipt) = &mut self.plan.receipt {
            receipt.take(data);
            self.plan.is_final |= receipt.is_refused();
        }
        if self.plan.is_final {
            self.discarded += data.len() as u64;
        }
        if is_last {
            self.hear_the_end();
        }
        if self.plan.echo.is_none() && !self.plan.tunnel {
            return;
        }
        if self.plan.tunnel {
            self.owed += data.len() as u32;
        }
        if data.len() > room.bytes && self.plan.tunnel {
            self.overflown = true;
            return;
        }
        if data.len() > room.bytes {
            self.collected = Vec::new();
            self.plan = if room.is_shared { handler::too_much(now) } else { handler::too_large(now) };
            return;
        }
        self.collected.extend_from_slice(data);
    }

    /// The request's trailers have arrived, and so it is complete. They are echoed; the engine bounds how many bytes they have.
    pub fn take_trailers(&mut self, fields: Fields<'_>) {
        if let Some(receipt) = &mut self.plan.receipt {
            receipt.take_trailers(fields);
        }
        self.hear_the_end();
        if self.plan.echo == Some(Echo::Same) {
            self.trailers = fields.iter().map(|field| (field.name.to_vec(), field.value.to_vec())).collect();
        }
    }

    /// The request is complete.
    fn hear_the_end(&mut self) {
        self.is_received = true;
        if self.stage == Stage::Receiving {
            self.stage = Stage::Received;
        }
        if let Some(receipt) = &mut self.plan.receipt {
            receipt.complete();
        }
    }

    fn trailer_bytes(&self) -> usize {
        self.trailers.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// Bytes of bodies and trailers that are held for it.
    pub fn held(&self) -> usize {
        self.collected.len() + self.trailer_bytes() + self.plan.held()
    }

    /// The engine takes more of its body.
    pub const fn unblock(&mut self) {
        self.is_blocked = false;
    }

    /// Hands the engine what may be sent now. `handler_delay` is added to every answer.
    pub fn advance(&mut self, now: Time, engine: &mut Connection, handler_delay: Duration) -> Standing {
        if self.plan.tunnel {
            return self.relay(now, engine, handler_delay);
        }
        match self.answer(now, engine, handler_delay) {
            Standing::Done if !self.is_received => self.linger(now, engine),
            standing => standing,
        }
    }

    /// The answer is complete and the request continues. The client need not send the rest, and is notified in the end
    /// (RFC 9113 §8.1, RFC 9114 §4.1; HTTP/1.1 ends its connection by that). Some clients, such as curl 7.88 over
    /// HTTP/2, take that for a failure if it arrives before they have read the answer, so they first get time to stop
    /// by themselves.
    fn linger(&mut self, now: Time, engine: &mut Connection) -> Standing {
        if !self.lingers_until.happened() {
            self.lingers_until = now + LINGER;
        }
        if now < self.lingers_until && self.discarded < MOST_DISCARDED {
            return Standing::WaitsUntil(self.lingers_until);
        }
        engine.reset(now, self.stream, ErrorCode::NO_ERROR);
        Standing::Done
    }

    fn answer(&mut self, now: Time, engine: &mut Connection, handler_delay: Duration) -> Standing {
        if (self.stage == Stage::Receiving && !self.plan.is_final) || self.is_blocked {
            return match self.plan.receipt.as_mut().map(|receipt| receipt.save(now)) {
                Some(due) if due.happened() => Standing::WaitsUntil(due),
                _ => Standing::WaitsForPeer,
            };
        }
        if let Some(receipt) = &mut self.plan.receipt {
            let Some(plan) = receipt.answer(now) else { return Standing::WaitsUntil(now + DIGEST_PERIOD) };
            self.plan = ResponsePlan { alt_svc: self.plan.alt_svc, ..plan };
        }
        if self.stage != Stage::Answering {
            self.hint(now, engine);
            let due = self.plan.due + handler_delay;
            if now < due {
                let next = self.plan.interim.front().map_or(due, |next| next.due.min(due));
                return Standing::WaitsUntil(next);
            }
            if let Some(awaited) = &self.plan.awaited
                && awaited.is_patient
                && awaited.digest.is_pending()
            {
                return Standing::WaitsUntil(now + DIGEST_PERIOD);
            }
            self.promise(now, engine, Moment::Final);
            self.send_head(now, engine);
        }
        self.send_body(now, engine)
    }

    /// Sends what precedes the answer, as far as it is due.
    fn hint(&mut self, now: Time, engine: &mut Connection) {
        self.promise(now, engine, Moment::Request);
        while let Some(interim) = self.plan.interim.front().copied().filter(|next| next.due <= now) {
            self.plan.interim.pop_front();
            // A promise goes before the response that names what is promised (RFC 9113 §8.4.1).
            self.promise(now, engine, Moment::Interim);
            let links = early::links(interim.links);
            let link = [Field::new("link", &links)];
            let fields = if interim.links == 0 { &[][..] } else { &link[..] };
            engine.send_interim(now, self.stream, interim.status, fields);
        }
    }

    /// Promises what the client accepts, if this is the moment.
    fn promise(&mut self, now: Time, engine: &mut Connection, moment: Moment) {
        let Some(push) = self.plan.push.take_if(|push| push.moment == moment) else { return };
        for n in 1..=push.count {
            let path = early::resource(n);
            let request = Request {
                method: "GET",
                authority: &push.authority,
                path: &path,
                fields: &[],
                body_length: None,
                end_stream: true,
            };
            let Some(stream) = engine.send_push(now, self.stream, &request) else { return };
            self.promised.push((stream, path));
        }
    }

    /// Takes the new promises, as exchanges that are to be answered as if the client had requested them.
    pub fn take_promised(&mut self, now: Time) -> Vec<Self> {
        let answered = |(stream, path): (StreamId, String)| {
            let head = RequestHead {
                method: b"GET",
                scheme: b"",
                authority: b"",
                path: path.as_bytes(),
                protocol: b"",
                is_http10: false,
                fields: Fields::default(),
            };
            Self::new(stream, handler::route(now, &head), false, true)
        };
        self.promised.drain(..).map(answered).collect()
    }

    /// Whether it is a tunnel: credit goes back by [`Exchange::advance`].
    pub const fn is_tunnel(&self) -> bool {
        self.plan.tunnel
    }

    /// The exchange ends early: returns to the connection all credit that was withheld from the client.
    pub fn abandon(&mut self, now: Time, engine: &mut Connection) {
        engine.release(now, self.stream, std::mem::take(&mut self.owed));
    }

    /// A tunnel: opens it, and sends back what has arrived through it. It ends when the client has ended its side and
    /// has received everything. The client may send as much as it has received, plus one window: credit is returned as
    /// bytes are sent back, so a client that does not read cannot send either.
    fn relay(&mut self, now: Time, engine: &mut Connection, handler_delay: Duration) -> Standing {
        if self.overflown {
            engine.reset(now, self.stream, ErrorCode::ENHANCE_YOUR_CALM);
            self.abandon(now, engine);
            return Standing::Done;
        }
        if !self.opened {
            let due = self.plan.due + handler_delay;
            if now < due {
                return Standing::WaitsUntil(due);
            }
            let fields = [Field::new("server", "h2lab")];
            let response = Response { status: 200, fields: &fields, body_length: None, end_stream: false };
            engine.send_response(now, self.stream, &response);
            self.opened = true;
        }
        if self.is_blocked {
            return Standing::WaitsForPeer;
        }
        let is_last = self.stage == Stage::Received;
        let pending = &self.collected[self.returned..];
        if pending.is_empty() && !is_last {
            return Standing::WaitsForPeer;
        }
        let moved = engine.send_data(now, self.stream, pending, is_last);
        engine.release(now, self.stream, moved as u32);
        self.owed -= moved as u32;
        self.returned += moved;
        let all = self.returned == self.collected.len();
        self.is_blocked = !all;
        // Not at every step: moving bytes must not cost more than sending them.
        if self.returned > self.collected.len() / 2 {
            self.collected.drain(..self.returned);
            self.returned = 0;
        }
        if all && is_last { Standing::Done } else { Standing::WaitsForPeer }
    }

    fn send_head(&mut self, now: Time, engine: &mut Connection) {
        if let Some(echo) = self.plan.echo.take() {
            self.plan.body = Body::bytes(echo.answer(std::mem::take(&mut self.collected)));
        }
        let length = self.plan.body.length();
        let alt_svc = self.plan.alt_svc.map(|port| format!("h3=\":{port}\""));
        let fields = [
            Field::new("server", "h2lab"),
            Field::new("content-type", self.plan.content_type),
            Field::new("alt-svc", alt_svc.as_deref().unwrap_or_default()),
        ];
        let fields = &fields[..fields.len() - usize::from(alt_svc.is_none())];
        let follows =
            |awaited: &mut Answering| awaited.may_follow && length > 0 && awaited.digest.is_pending();
        self.awaited = self.plan.awaited.take_if(follows).map(|awaited| awaited.digest);
        // A known digest is sent before the body. A reference is held until the body is sent: the client may ask for it
        // then.
        if let Some(field) = self.plan.awaited.as_ref().and_then(|awaited| awaited.digest.field()) {
            self.plan.fields.push(("repr-digest", field));
        }
        if self.awaited.is_some() {
            self.plan.fields.push(("trailer", "repr-digest".to_owned()));
        }
        let mut more = Vec::new();
        let fields = if self.plan.fields.is_empty() {
            fields
        } else {
            more.extend_from_slice(fields);
            more.extend(self.plan.fields.iter().map(|(name, value)| Field::new(name, value)));
            &more[..]
        };
        let has_body = !matches!(self.plan.status, 204 | 304);
        if self.is_head || !has_body {
            self.trailers.clear();
        }
        let end_stream = self.is_head || (length == 0 && self.trailers.is_empty()) || !has_body;
        // In HTTP/1.1 only a body of unknown length can have trailers.
        let declares_length = match engine {
            Connection::H1(_) => self.trailers.is_empty() && self.awaited.is_none(),
            Connection::H2(_) | Connection::H3(_) => self.trailers.is_empty(),
        };
        let body_length = (has_body && declares_length).then_some(length);
        engine.send_response(
            now,
            self.stream,
            &Response { status: self.plan.status, fields, body_length, end_stream },
        );
        self.stage = Stage::Answering;
        self.piece_due = now + self.plan.drip.map_or(Duration::ZERO, |drip| drip.every);
        if end_stream {
            self.plan.body = Body::filler(0);
        }
    }

    fn send_body(&mut self, now: Time, engine: &mut Connection) -> Standing {
        while self.plan.body.length() > 0 {
            if let Some(drip) = self.plan.drip
                && self.piece_left == 0
            {
                if now < self.piece_due {
                    return Standing::WaitsUntil(self.piece_due);
                }
                self.piece_left = drip.piece;
                // By the schedule rather than from now on: a late piece does not delay the next ones.
                self.piece_due += drip.every;
            }
            let limit = if self.plan.drip.is_some() { self.piece_left } else { u64::MAX };
            let left = self.plan.body.length();
            let lasting = self.plan.body.lasting_piece(limit);
            let Ok(piece) = lasting.map_or_else(|| self.plan.body.piece(limit), Ok) else {
                // Its length was announced: only a broken stream, or connection, shows the client that this is not all.
                engine.reset(now, self.stream, ErrorCode::INTERNAL_ERROR);
                return Standing::Done;
            };
            let is_last = piece.len() as u64 == left && self.trailers.is_empty() && self.awaited.is_none();
            let asked = piece.len();
            let taken = match lasting {
                Some(piece) => engine.send_static(now, self.stream, piece, is_last),
                None => engine.send_data(now, self.stream, piece, is_last),
            };
            self.plan.body.advance(taken);
            self.piece_left = self.piece_left.saturating_sub(taken as u64);
            if taken < asked {
                self.is_blocked = true;
                return Standing::WaitsForPeer;
            }
        }
        if let Some(digest) = &self.awaited {
            if digest.is_pending() {
                return Standing::WaitsUntil(now + DIGEST_PERIOD);
            }
            match digest.field() {
                Some(sum) => engine.send_trailers(now, self.stream, &[Field::new("repr-digest", &sum)]),
                None => drop(engine.send_data(now, self.stream, &[], true)),
            }
        } else if !self.trailers.is_empty() {
            let trailers = std::mem::take(&mut self.trailers);
            let fields: Vec<Field<'_>> = trailers.iter().map(|(name, value)| Field { name, value }).collect();
            engine.send_trailers(now, self.stream, &fields);
        }
        Standing::Done
    }
}

#[cfg(test)]
mod tests {
    use h2lab_wire::connection::Request;
    use h2lab_wire::{Config, Event, Role};

    use super::*;

    /// What `path` sends to a client that takes everything at once: (milliseconds after the request, bytes so far), each
    /// time that bytes leave.
    fn leaving(path: &str) -> Vec<(u64, u64)> {
        let begun = Time::from_millis(1_000);
        let mut engine = Connection::h1(Config::new(Role::Server));
        engine.handle_input(begun, format!("GET {path} HTTP/1.1\r\nhost: h\r\n\r\n").as_bytes());
        let mut exchange = None;
        while let Some(event) = engine.poll_event(begun) {
            if let Event::Request { stream, head, end_stream } = event {
                exchange = Some(Exchange::new(stream, handler::route(begun, &head), false, end_stream));
            }
        }
        let mut exchange = exchange.expect("the request was read");
        let (mut now, mut sent, mut log) = (begun, 0, Vec::new());
        loop {
            let standing = exchange.advance(now, &mut engine, Duration::ZERO);
            let bytes = engine.unsent();
            engine.handle_transmitted(now, bytes);
            while let Some(event) = engine.poll_event(now) {
                if let Event::Writable { .. } = event {
                    exchange.unblock();
                }
            }
            if bytes > 0 {
                sent += bytes as u64;
                log.push((now.since(begun).as_millis() as u64, sent));
            }
            match standing {
                Standing::Done => return log,
                Standing::WaitsForPeer => assert!(bytes > 0, "it waits for a client that has taken all"),
                Standing::WaitsUntil(at) => now = at,
            }
        }
    }

    #[test]
    fn a_drip_takes_the_time_that_was_asked_for_whatever_its_size() {
        for bytes in [1_u64, 11, 1_000, 655_360, 655_361, 4 << 20] {
            let log = leaving(&format!("/drip?bytes={bytes}&ms=600"));
            let head = log[0].1;
            assert_eq!(log[0].0, 0, "the head goes at once");
            let (ended, sent) = *log.last().unwrap();
            assert_eq!((ended, sent - head), (600, bytes), "{bytes} bytes: {log:?}");
        }
    }

    #[test]
    fn each_tenth_of_a_large_drip_leaves_at_its_time_as_a_whole() {
        let log = leaving("/drip?bytes=2000000&ms=1000");
        for tenth in 1..=10 {
            let by_then =
                log.iter().filter(|(at, _)| *at <= tenth * 100).map(|(_, sent)| *sent).max().unwrap();
            assert_eq!(by_then - log[0].1, 200_000 * tenth, "after {tenth} tenths");
        }
    }

    /// A client and the origin's engine with nothing between them, and the tunnel that the origin made.
    struct Tunnel {
        client: Connection,
        server: Connection,
        exchange: Option<Exchange>,
        room: usize,
        /// Bytes that were echoed.
        echoed: Vec<u8>,
        /// How the client saw it end.
        end: Option<&'static str>,
    }

    const NOW: Time = Time::from_millis(1_000);

    impl Tunnel {
        fn new(room: usize) -> Self {
            Self::with(room, &Config::new(Role::Client))
        }

        fn with(room: usize, client: &Config) -> Self {
            let config = Config { connect_protocol: true, ..Config::new(Role::Server) };
            Self {
                client: Connection::h2(*client, NOW),
                server: Connection::h2(config, NOW),
                exchange: None,
                room,
                echoed: Vec::new(),
                end: None,
            }
        }

        /// Carries bytes until both sides are silent.
        fn settle(&mut self) {
            loop {
                let up = self.client.poll_transmit(NOW).to_vec();
                self.client.handle_transmitted(NOW, up.len());
                self.server.handle_input(NOW, &up);
                self.serve();
                let down = self.server.poll_transmit(NOW).to_vec();
                self.server.handle_transmitted(NOW, down.len());
                self.client.handle_input(NOW, &down);
                while let Some(event) = self.client.poll_event(NOW) {
                    match event {
                        Event::Data { data, end_stream, .. } => {
                            self.echoed.extend_from_slice(data);
                            self.end = end_stream.then_some("ended").or(self.end);
                        }
                        Event::Reset { .. } => self.end = Some("reset"),
                        _ => {}
                    }
                }
                if up.is_empty() && down.is_empty() {
                    return;
                }
            }
        }

        fn serve(&mut self) {
            while let Some(event) = self.server.poll_event(NOW) {
                match event {
                    Event::Request { stream, head, end_stream } => {
                        self.exchange =
                            Some(Exchange::new(stream, handler::route(NOW, &head), false, end_stream));
                        self.server.release_by_hand(stream);
                    }
                    Event::Data { data, end_stream, .. } => {
                        if let Some(exchange) = &mut self.exchange {
                            let room = Room { bytes: self.room, is_shared: false };
                            exchange.take_body(NOW, data, room, end_stream);
                        }
                    }
                    Event::Writable { .. } => self.exchange.iter_mut().for_each(Exchange::unblock),
                    _ => {}
                }
            }
            let standing = self.exchange.as_mut().map(|it| it.advance(NOW, &mut self.server, Duration::ZERO));
            if standing == Some(Standing::Done) {
                self.exchange = None;
            }
        }

        fn open(&mut self) -> StreamId {
            self.settle();
            let request = Request {
                method: "CONNECT",
                authority: "h",
                path: "/echo",
                fields: &[],
                body_length: None,
                end_stream: false,
            };
            let stream = self.client.send_connect(NOW, "websocket", &request).expect("it was announced");
            self.settle();
            stream
        }
    }

    #[test]
    fn a_tunnel_sends_back_what_comes_as_it_comes_and_ends_with_its_client() {
        let mut tunnel = Tunnel::new(1 << 20);
        let stream = tunnel.open();
        tunnel.client.send_data(NOW, stream, b"one", false);
        tunnel.settle();
        assert_eq!((&tunnel.echoed[..], tunnel.end), (&b"one"[..], None), "before the client has ended");
        tunnel.client.send_data(NOW, stream, b", two", true);
        tunnel.settle();
        assert_eq!((&tunnel.echoed[..], tunnel.end), (&b"one, two"[..], Some("ended")));
        assert!(tunnel.exchange.is_none() && tunnel.server.open_streams() == 0);
    }

    #[test]
    fn a_tunnel_holds_what_there_is_room_for_and_is_reset_beyond() {
        for (bytes, end) in [(1_000, None), (1_001, Some("reset"))] {
            let mut tunnel = Tunnel::new(1_000);
            let stream = tunnel.open();
            tunnel.client.send_data(NOW, stream, &vec![b'x'; bytes], false);
            tunnel.settle();
            assert_eq!(tunnel.end, end, "{bytes}");
        }
    }

    #[test]
    fn who_does_not_read_from_a_tunnel_cannot_send_and_loses_nothing() {
        const WINDOW: usize = 65_535;
        let mut config = Config::new(Role::Client);
        config.flow.manual_release = true;
        let mut tunnel = Tunnel::with(1 << 20, &config);
        let stream = tunnel.open();
        let letters: Vec<u8> = (0..1_000_000_u32).map(|k| (k % 251) as u8).collect();
        let mut sent = 0;
        let mut fill = |tunnel: &mut Tunnel| {
            loop {
                let rest = &letters[sent..];
                let taken = tunnel.client.send_data(NOW, stream, rest, true);
                tunnel.settle();
                sent += taken;
                if taken == 0 || rest.len() == taken {
                    return sent;
                }
            }
        };
        // One window is full of echoed bytes, the other of bytes that cannot be echoed, except for credit too small to
        // return.
        let sent = fill(&mut tunnel);
        let held = tunnel.exchange.as_ref().unwrap().held();
        assert_eq!((tunnel.echoed.len(), held), (WINDOW, sent - WINDOW));
        assert!((WINDOW / 2..=WINDOW).contains(&held), "{held} bytes are held");
        let mut released = 0;
        while tunnel.end.is_none() {
            let read = tunnel.echoed.len() - released;
            assert!(read > 0, "it does not continue");
            tunnel.client.release(NOW, stream, read as u32);
            released += read;
            tunnel.settle();
            fill(&mut tunnel);
            assert!(tunnel.exchange.as_ref().is_none_or(|exchange| exchange.held() <= WINDOW));
        }
        assert_eq!((tunnel.end, tunnel.echoed == letters), (Some("ended"), true));
    }

    #[test]
    fn what_is_refused_is_answered_before_it_has_come_and_the_rest_is_not_read() {
        let head = "PUT /x HTTP/1.1\r\nhost: h\r\ncontent-length: 1000000\r\n\r\nabc";
        let mut engine = Connection::h1(Config::new(Role::Server));
        engine.handle_input(NOW, head.as_bytes());
        let mut exchange = None;
        while let Some(event) = engine.poll_event(NOW) {
            if let Event::Request { stream, .. } = event {
                exchange = Some(Exchange::new(stream, ResponsePlan::text(NOW, 403, "no\n"), false, false));
            }
        }
        let mut exchange = exchange.expect("the head was read");
        let mut advance = |at, is_final| {
            exchange.plan.is_final = is_final;
            let standing = exchange.advance(at, &mut engine, Duration::ZERO);
            let sent = String::from_utf8(engine.poll_transmit(at).to_vec()).unwrap();
            engine.handle_transmitted(at, sent.len());
            let events =
                std::iter::from_fn(|| engine.poll_event(at).map(|it| matches!(it, Event::Closed { .. })));
            (standing, sent, events.last() == Some(true))
        };
        assert_eq!(advance(NOW, false), (Standing::WaitsForPeer, String::new(), false));
        let (standing, sent, is_closed) = advance(NOW, true);
        assert!(sent.starts_with("HTTP/1.1 403 ") && sent.ends_with("no\n"), "{sent}");
        assert_eq!((standing, is_closed), (Standing::WaitsUntil(NOW + LINGER), false));
        // A client that continues all the same is cut off.
        assert_eq!(advance(NOW + LINGER, true), (Standing::Done, String::new(), true));
    }
}

//! Advances an exchange: its request goes to an instance, its response to the client.

use h2lab_base::units::Time;
use h2lab_net::tcp::Written;
use h2lab_proxy::fields::{self, Host, Version};
use h2lab_proxy::grpc;
use h2lab_proxy::head::{Head, Part};
use h2lab_proxy::proxy_protocol;
use h2lab_proxy::websocket;
use h2lab_wire::connection::{Request, Response};
use h2lab_wire::{ErrorCode, Field, StreamId};

use super::body::Body;
use super::exchange::{Exchange, StreamAt};
use super::guard::own_answer;
use super::side::{Peer, Side};
use super::{Sidecar, mark, side, side_at};

/// The field that announces another version of HTTP elsewhere (RFC 7838).
const ALT_SVC: &str = "alt-svc";
/// From this status on, a response says that its request was not done. Then little of a request that is still arriving
/// is read in vain.
const NOT_DONE: u16 = 400;
/// Bytes of a segment.
const SEGMENT: usize = 1_448;

impl Sidecar<'_> {
    /// Does what can be done now for an exchange.
    pub(super) fn advance(&mut self, id: u32) {
        let now = self.now;
        let exchange = self.exchanges.get(id);
        if !exchange.is_open {
            return;
        }
        if exchange.down.is_none() && !self.is_probing(id, now) {
            return self.end(id, now);
        }
        let exchange = self.exchanges.get(id);
        if exchange.refusal.is_none()
            && exchange.up.is_none()
            && !exchange.waits
            && !exchange.response.has_ended()
        {
            self.find_connection(id, now);
        }
        if self.exchanges.get(id).refusal.is_some() {
            self.answer(id, now);
        }
        self.pass_request(id, now);
        self.pass_response(id, now);
        self.conclude(id, now);
    }

    /// Gives a request to a connection that has room for it.
    pub(super) fn send(&mut self, id: u32, slot: u32, now: Time) {
        self.tell_client(id, slot);
        let exchange = self.exchanges.get(id);
        let Some(up) = side(&mut self.slots, slot) else { return };
        if exchange.asked.websocket
            && up.version == Version::H1
            && exchange.head.field(websocket::KEY.as_bytes()).is_none()
        {
            exchange.key = Some(websocket::key(&mut self.random));
        }
        let own = match &up.peer {
            Peer::Instance(number) => {
                self.pools.all.get(*number as usize).map_or("", |pool| pool.authority())
            }
            Peer::Client { .. } => "",
        };
        let stream = match send_request(exchange, up, (own, self.config.file.fields.host), now) {
            Begun::On(stream) => stream,
            Begun::TooLarge(most) => {
                let why = format!("the request's header fields exceed the instance's limit of {most} bytes");
                return exchange.refuse(431, why);
            }
            Begun::Never(why) => return exchange.refuse(502, why),
            Begun::Later => return self.wait(id),
        };
        up.streams.insert(stream, id);
        up.begin_request(now);
        self.observer.given(exchange, up, stream, now);
        up.carries(1 + (exchange.request.waiting() / SEGMENT) as u32);
        mark(up, slot, &mut self.dirty);
        exchange.up = Some(StreamAt { slot, serial: up.serial, stream });
        (exchange.sent_at, exchange.watched.moved_at, exchange.watched.is_last) = (now, now, false);
        if exchange.instance.is_some_and(|instance| self.pools.get(instance).proxied.is_some()) {
            up.engine.announce_end(now, b""); // the next client needs another connection
        }
        if up.engine.is_tunnel() {
            // The instance does not speak HTTP: that it accepts the connection is its answer.
            let mut answer = Head::default();
            answer.status = 200;
            exchange.answer = Some(answer);
            exchange.is_tunnel = true;
        }
        self.watch(id);
    }

    /// Sends the header of the PROXY protocol to an instance that takes it. The request that follows is the only one on
    /// its connection. Nothing was written on that yet, so the socket has room.
    fn tell_client(&mut self, id: u32, slot: u32) {
        let exchange = self.exchanges.get(id);
        let Some(version) = exchange.instance.and_then(|instance| self.pools.get(instance).proxied) else {
            return;
        };
        let ends = exchange.down.and_then(|down| side_at(&mut self.slots, down)?.ends());
        let Some(up) = side(&mut self.slots, slot) else { return };
        let Some(tcp) = up.transport.tcp() else { return };
        // A health check by the sidecar itself has no client.
        let header = ends.map_or_else(
            || proxy_protocol::own(version),
            |(client, to)| proxy_protocol::header(version, client, to),
        );
        if !matches!(tcp.write(&header), Ok(Written::Bytes(n)) if n == header.len()) {
            // It is broken: the next write returns the error.
            up.engine.goaway(Time::ZERO, ErrorCode::NO_ERROR, b"");
        }
    }

    fn pass_request(&mut self, id: u32, now: Time) {
        let exchange = self.exchanges.get(id);
        // What follows a request for a tunnel waits for the answer to that.
        let waits = exchange.asked.is_tunnel() && !exchange.is_tunnel;
        if waits && !(exchange.is_answered || exchange.answer.is_some()) {
            return;
        }
        let Exchange { up: Some(to), down, request, watched, .. } = exchange else { return };
        if pump(&mut self.slots, &mut self.dirty, request, *to, *down, now) {
            watched.moved_at = now;
        }
    }

    fn pass_response(&mut self, id: u32, now: Time) {
        let exchange = self.exchanges.get(id);
        let Some(to) = exchange.down else { return };
        if exchange.answer.is_none() && !exchange.is_answered && exchange.interims.is_empty() {
            return;
        }
        let Some(down) = side_at(&mut self.slots, to) else { return };
        self.spare.lend(&mut down.engine);
        for interim in exchange.interims.drain(..) {
            let fields: Vec<Field<'_>> = interim.fields().collect();
            down.engine.send_interim(now, to.stream, interim.status, &fields);
            mark(down, to.slot, &mut self.dirty);
        }
        if let Some(mut head) = exchange.answer.take() {
            // RFC 9110 §6.6.1: a recipient with a clock adds the time at which it received a message without Date.
            if !exchange.is_tunnel && head.field(b"date").is_none() {
                head.add(b"date", &[self.date.now().as_bytes()]);
            }
            let end_stream = exchange.response.is_none();
            let key = exchange.is_tunnel.then(|| exchange.head.field(websocket::KEY.as_bytes())).flatten();
            if exchange.is_tunnel && exchange.asked.websocket {
                accept(&head, key, down, to, now);
            } else {
                if head.status >= NOT_DONE && !exchange.request.has_ended() && down.engine.is_much_to_come() {
                    down.engine.announce_end(now, b"");
                }
                let is_head = exchange.head.get(Part::Method) == b"HEAD" || head.status == 304;
                let body_length =
                    if is_head { head.body_length } else { fields::body_length(&head, down.version) };
                let alt_svc = match &down.peer {
                    Peer::Client { listener, .. } => self.listeners.alt_svc(*listener),
                    Peer::Instance(_) => None,
                };
                send_response(&head, (body_length, end_stream, alt_svc), down, to, now);
            }
            mark(down, to.slot, &mut self.dirty);
            down.carries(1);
            let is_handshake = exchange.is_tunnel && exchange.asked.websocket;
            exchange.seen.status = if is_handshake { accepts(down.version) } else { head.status };
            if exchange.watched.is_grpc && exchange.seen.grpc.is_none() {
                exchange.seen.grpc = head.field(b"grpc-status").map(grpc::status_of);
            }
            exchange.is_answered = true;
            exchange.spare = head;
            exchange.watched.moved_at = now;
            exchange.request.keep_no_longer();
            if end_stream {
                exchange.response.was_sent_with_head();
            }
        }
        let begins = exchange.watched.moved_at == now;
        if exchange.is_answered {
            let Exchange { up, response, watched, .. } = exchange;
            if pump(&mut self.slots, &mut self.dirty, response, to, *up, now) {
                watched.moved_at = now;
            }
        }
        if begins {
            self.watch(id);
        }
    }

    /// Ends an exchange whose response the client has.
    fn conclude(&mut self, id: u32, now: Time) {
        let exchange = self.exchanges.get(id);
        if exchange.is_answered && exchange.response.is_done() && !self.is_half_open(id) {
            self.end(id, now);
        }
    }

    /// Ends an exchange: what is left of it at either side is ended, too.
    fn end(&mut self, id: u32, now: Time) {
        self.note_answered(id, now);
        let exchange = self.exchanges.get(id);
        let (is_asked, is_answered) = (exchange.request.is_done(), exchange.response.has_ended());
        let owed = [exchange.request.owed(), exchange.response.owed()];
        let (has_ended, down, up) = (exchange.request.has_ended(), exchange.down.take(), exchange.up.take());
        if let Some(at @ StreamAt { slot, stream, .. }) = down
            && let Some(client) = side_at(&mut self.slots, at)
        {
            client.streams.remove(stream);
            client.used_at = now;
            client.engine.release(now, stream, owed[0] as u32);
            if !has_ended {
                // The rest of the request is of no use (RFC 9113 §8.1).
                client.engine.forgo(now, stream);
            }
            mark(client, slot, &mut self.dirty);
        }
        if let Some(at @ StreamAt { slot, stream, .. }) = up
            && let Some(instance) = side_at(&mut self.slots, at)
        {
            instance.streams.remove(stream);
            instance.engine.release(now, stream, owed[1] as u32);
            if !is_asked || !is_answered {
                instance.cancel(stream, now);
            }
            mark(instance, slot, &mut self.dirty);
        }
        self.leave(id);
        let exchange = self.exchanges.get(id);
        if std::mem::take(&mut exchange.watched.is_counted) {
            self.guard.release(exchange.service);
        }
        self.exchanges.end(id);
    }

    /// The sidecar answers by itself. If the client has the head of a response already, that response is broken off.
    fn answer(&mut self, id: u32, now: Time) {
        let exchange = self.exchanges.get(id);
        let Some(to) = exchange.down else { return self.exchanges.stir(id) };
        let Some(refusal) = exchange.refusal.take() else { return };
        let why = refusal.detail.as_deref().unwrap_or(&refusal.why);
        self.observer.refused(exchange, refusal.status, why, now);
        if let Some(detail) = &refusal.detail {
            self.guard.note(exchange.service, "", refusal.error, detail, now);
        }
        if exchange.is_answered {
            self.totals.broken += 1;
            if let Some(client) = side_at(&mut self.slots, to) {
                client.streams.remove(to.stream);
                client.engine.reset(now, to.stream, ErrorCode::INTERNAL_ERROR);
                if client.version == Version::H1 && (exchange.asked.is_tunnel() || exchange.is_raw()) {
                    client.abort();
                }
                mark(client, to.slot, &mut self.dirty);
            }
            exchange.down = None;
            return self.end(id, now);
        }
        self.totals.refused += 1;
        let via = self.config.file.fields.via.as_deref();
        let (head, text) =
            own_answer(&refusal, via, exchange.watched.is_grpc, std::mem::take(&mut exchange.spare));
        exchange.interims.clear();
        (exchange.watched.request_due, exchange.watched.moved_at) = (Time::NEVER, now);
        exchange.answer = Some(head);
        exchange.response.begin(false);
        exchange.response.push(text.as_bytes(), true);
        exchange.seen.bytes[0] = text.len() as u64;
        exchange.response.owed(); // nobody sent it
        if exchange.head.get(Part::Method) == b"HEAD" {
            exchange.seen.bytes[0] = 0;
            exchange.response.begin(false);
            exchange.response.push(&[], true);
        }
        if let Some(up) = exchange.up.take()
            && let Some(instance) = side_at(&mut self.slots, up)
        {
            instance.streams.remove(up.stream);
            instance.cancel(up.stream, now);
            mark(instance, up.slot, &mut self.dirty);
        }
        self.leave(id);
        self.watch(id);
    }
}

/// Moves a body on, and returns the credit to its sender. Returns whether any of the body moved.
fn pump(
    slots: &mut [super::Slot],
    dirty: &mut Vec<u32>,
    body: &mut Body,
    to: StreamAt,
    from: Option<StreamAt>,
    now: Time,
) -> bool {
    let Some(sink) = side_at(slots, to) else { return false };
    if body.is_done() {
        return false;
    }
    let credit = body.pump(now, &mut sink.engine, to.stream);
    mark(sink, to.slot, dirty);
    if credit > 0
        && let Some(from) = from
        && let Some(source) = side_at(slots, from)
    {
        source.engine.release(now, from.stream, credit as u32);
        mark(source, from.slot, dirty);
    }
    credit > 0 || body.is_done()
}

/// Whether a request has begun.
enum Begun {
    /// On this stream.
    On(StreamId),
    /// It must wait until the engine of the connection is established.
    Later,
    /// The instance does not take it.
    Never(&'static str),
    /// The instance takes at most so many bytes of fields (RFC 9113 §6.5.2).
    TooLarge(u32),
}

/// The authority that an instance is asked for. `own` is the instance's. It is used for a request of HTTP/1.0 that
/// names none, since HTTP/1.1 and later versions must name one (RFC 9112 §3.2); or, with [`Host::Instance`], for all
/// requests except those that name where a tunnel leads.
fn authority<'a>(exchange: &'a Exchange, (own, host): (&'a str, Host)) -> &'a str {
    let asked = str::from_utf8(exchange.head.get(Part::Authority)).unwrap_or_default(); // `fields::request` has checked it
    let is_own = asked.is_empty() || (host == Host::Instance && !exchange.asked.connect);
    if is_own { own } else { asked }
}

/// Begins a request on a connection; `own` is the instance's authority, and when that is asked for.
fn send_request(exchange: &mut Exchange, up: &mut Side, own: (&str, Host), now: Time) -> Begun {
    if exchange.asked.websocket {
        return send_handshake(exchange, up, own, now);
    }
    let head = &exchange.head;
    let text = |part| str::from_utf8(head.get(part)).unwrap_or_default(); // `fields::request` has checked them
    let fields: Vec<Field<'_>> = head.fields().chain(fields::te(head, up.version)).collect();
    let most = up.engine.most_fields_of_peer();
    let authority = authority(exchange, own);
    let size = || size_of_fields(head) + authority.len() - text(Part::Authority).len();
    if most != u32::MAX && size() > most as usize {
        return Begun::TooLarge(most);
    }
    let end_stream = match up.version {
        Version::H1 => exchange.request.is_none(),
        Version::H2 | Version::H3 => exchange.request.has_ended_with_head(),
    };
    let request = Request {
        method: text(Part::Method),
        authority,
        path: text(Part::Path),
        fields: &fields,
        body_length: fields::body_length(head, up.version),
        end_stream,
    };
    let Some(stream) = up.engine.send_request(now, &request) else {
        return Begun::Never("the connection to the instance cannot take the request");
    };
    if end_stream {
        exchange.request.was_sent_with_head();
    }
    Begun::On(stream)
}

/// The fields of a request as RFC 9113 §6.5.2 counts them, pseudo-header fields and content-length included.
fn size_of_fields(head: &Head) -> usize {
    const ENTRY: usize = 32;
    let parts = [(Part::Method, 7), (Part::Authority, 10), (Part::Path, 5)];
    let control = parts.iter().map(|(part, name)| name + head.get(*part).len() + ENTRY).sum::<usize>();
    let scheme = ":schemehttps".len() + ENTRY;
    let length = head.body_length.map_or(0, |_| "content-length".len() + 20 + ENTRY);
    let fields = head.fields().map(|field| field.name.len() + field.value.len() + ENTRY).sum::<usize>();
    control + scheme + length + fields
}

/// Asks for a WebSocket: by GET and a key in HTTP/1.1, by CONNECT without one in HTTP/2.
fn send_handshake(exchange: &Exchange, up: &mut Side, of_instance: (&str, Host), now: Time) -> Begun {
    let is_h1 = up.version == Version::H1;
    if !is_h1 && !up.engine.is_established() {
        return Begun::Later;
    }
    if !is_h1 && !up.engine.takes_connect_protocol() {
        return Begun::Never(
            "the instance does not support WebSocket over HTTP/2 (RFC 8441) or HTTP/3 (RFC 9220)",
        );
    }
    let (head, key) = (&exchange.head, exchange.key.as_deref());
    let text = |part| str::from_utf8(head.get(part)).unwrap_or_default(); // `fields::request` has checked them
    let passes = |field: &Field<'_>| is_h1 || field.name != websocket::KEY.as_bytes();
    let key = key.map(|key| Field::new(websocket::KEY, key));
    let fields: Vec<Field<'_>> = head.fields().filter(passes).chain(key.filter(|_| is_h1)).collect();
    let request = Request {
        method: "CONNECT",
        authority: authority(exchange, of_instance),
        path: text(Part::Path),
        fields: &fields,
        body_length: None,
        end_stream: false,
    };
    match up.engine.send_connect(now, "websocket", &request) {
        Some(stream) => Begun::On(stream),
        None => Begun::Never("the connection to the instance cannot take the request"),
    }
}

/// The status that accepts a WebSocket (RFC 6455 §4.2.2, RFC 8441 §5).
const fn accepts(version: Version) -> u16 {
    if matches!(version, Version::H1) { 101 } else { 200 }
}

/// Accepts a WebSocket: with 101 and the answer to the client's key in HTTP/1.1, with 200 in HTTP/2.
fn accept(head: &Head, key: Option<&[u8]>, down: &mut Side, to: StreamAt, now: Time) {
    let is_h1 = down.version == Version::H1;
    let answer = key.map(websocket::accept);
    let answer = answer.as_deref().filter(|_| is_h1).map(|answer| Field::new(websocket::ACCEPT, answer));
    let others = head.fields().filter(|field| field.name != websocket::ACCEPT.as_bytes());
    let upgrade = is_h1.then_some(Field::new("upgrade", "websocket"));
    let fields: Vec<Field<'_>> = upgrade.into_iter().chain(answer).chain(others).collect();
    let response =
        Response { status: accepts(down.version), fields: &fields, body_length: None, end_stream: false };
    down.engine.send_response(now, to.stream, &response);
}

/// Begins a response. `alt_svc` announces the listener's HTTP/3, in place of what the instance announces of its own.
fn send_response(
    head: &Head,
    (body_length, end_stream, alt_svc): (Option<u64>, bool, Option<&str>),
    down: &mut Side,
    to: StreamAt,
    now: Time,
) {
    let passes = |field: &Field<'_>| alt_svc.is_none() || field.name != ALT_SVC.as_bytes();
    let own = alt_svc.map(|value| Field::new(ALT_SVC, value));
    let fields: Vec<Field<'_>> = head.fields().filter(passes).chain(own).collect();
    let response = Response { status: head.status, fields: &fields, body_length, end_stream };
    down.engine.send_response(now, to.stream, &response);
}

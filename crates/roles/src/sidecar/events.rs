//! Applies the events of the engines to the exchanges.

use h2lab_base::units::Time;
use h2lab_proxy::config::RetryOn;
use h2lab_proxy::fields::{self, Origin, Refused, Version};
use h2lab_proxy::grpc::is_grpc;
use h2lab_proxy::head::{Head, Part};
use h2lab_proxy::refusal::ProxyError;
use h2lab_proxy::retry::Fate;
use h2lab_proxy::websocket;
use h2lab_wire::{Error, ErrorCode, Event, Initiator, Limit, RequestHead, StreamId};

use super::Sidecar;
use super::after_handshake;
use super::exchange::{Exchange, Refusal, StreamAt};
use super::side::{Peer, Side};
use super::streams::Streams;

/// The last stream of a GOAWAY that refuses none yet (RFC 9113 §6.8).
const LAST: u32 = i32::MAX as u32;

impl Sidecar<'_> {
    /// Takes the events of a connection, which is not in its slot meanwhile. Returns whether there were any.
    pub(super) fn take_events(&mut self, slot: u32, side: &mut Side, now: Time) -> bool {
        let mut were_any = false;
        let is_client = matches!(side.peer, Peer::Client { .. });
        loop {
            self.upgrade(side, now);
            let Some(event) = side.engine.poll_event(now) else { break };
            were_any = true;
            let is_idle = side.version != Version::H1 && side.streams.len() == 0;
            let idle_since = is_idle.then_some(side.used_at);
            self.note_keep_alive(&side.peer, (&mut side.liveness, idle_since), &event);
            self.observer.goaway(&side.peer, &mut side.watched, &event, now);
            if let Some((stream, why)) = refused(side.version, &event) {
                self.refuse_response(side, stream, why, now);
                continue;
            }
            let complete = completed(&event);
            match event {
                Event::Request { stream, head, end_stream } => {
                    let id = self.exchanges.begin();
                    side.streams.insert(stream, id);
                    side.used_at = now;
                    self.totals.requests += 1;
                    let Peer::Client { listener, address } = &side.peer else { continue };
                    let service = self.listeners.service(*listener, &head);
                    let (service, destination) =
                        self.destine((side.intercepted.as_deref().copied(), side.version), service, now);
                    let exchange = self.exchanges.get(id);
                    exchange.destination = destination;
                    exchange.down = Some(StreamAt { slot, serial: side.serial, stream });
                    exchange.began_at = now;
                    let origin = Origin { version: side.version, address, tls: side.transport.is_tls() };
                    take_request(exchange, &head, origin, &self.config.file.fields, service);
                    self.observer.began(exchange, &side.peer, side.version, service.ok());
                    // What follows a request for a tunnel, which has no body, is the tunnel's.
                    if end_stream && !exchange.asked.is_tunnel() {
                        if side.version == Version::H3 && is_grpc(exchange.head.field(b"content-type")) {
                            // HTTP/3 has no frame that ends a stream. In gRPC over HTTP/2 a DATA frame does that, and
                            // grpc-go waits for it.
                            exchange.request.push(&[], true);
                        } else {
                            exchange.request.end_with_head();
                        }
                    }
                    self.admit_request(id, *listener, address, now);
                    self.hint(id, slot, side, now);
                }
                Event::Interim { stream, head } => {
                    self.change((&side.streams, side.version), stream, |exchange, version, own| {
                        let mut interim = Head::default();
                        fields::response(&head, version, own, &mut interim);
                        exchange.interims.push(interim);
                    });
                }
                Event::Response { stream, head, end_stream } => {
                    self.note_spoken(&side.peer, side.version);
                    if self.answered(&side.peer, side.streams.get(stream), (&head, end_stream), now) {
                        self.drop_stream(side, stream, end_stream, now);
                        continue;
                    }
                    self.change((&side.streams, side.version), stream, |exchange, version, own| {
                        let mut answer = std::mem::take(&mut exchange.spare);
                        fields::response(&head, version, own, &mut answer);
                        take_tunnel(exchange, version, &mut answer);
                        exchange.answer = Some(answer);
                        exchange.response.push(&[], end_stream);
                    });
                    self.learn(side.streams.get(stream), now);
                }
                Event::Data { stream, data, end_stream } => {
                    let n = data.len();
                    let is_known = self.change((&side.streams, side.version), stream, |exchange, _, _| {
                        exchange.body_of(is_client).push(data, end_stream);
                        exchange.seen.bytes[usize::from(is_client)] += n as u64;
                    });
                    if !is_known {
                        // Nobody takes it, and the connection's window needs the credit back.
                        side.engine.release(now, stream, n as u32);
                    }
                }
                Event::Trailers { stream, fields } => {
                    self.note_trailers(&side.peer, side.streams.get(stream), fields, now);
                    self.change((&side.streams, side.version), stream, |exchange, _, _| {
                        let mut trailers = Head::default();
                        fields::trailers(fields, &mut trailers);
                        exchange.body_of(is_client).end_with(trailers);
                    });
                }
                Event::Writable { stream } => {
                    self.change((&side.streams, side.version), stream, |_, _, _| ());
                }
                Event::Reset { stream, code, initiator } => self.reset(side, stream, (code, initiator)),
                Event::Settings => self.note_settings(side),
                Event::GoAway { last_stream, code, debug } => {
                    let requests = side.streams.len();
                    side.was_too_much |= self.note_goaway(&side.peer, requests, (last_stream, code, debug));
                }
                Event::PushPromise { .. } | Event::Pong { .. } => {}
                Event::Closed { error } => self.closed(side, error.as_ref(), now),
            }
            if let Some(stream) = complete.filter(|_| !is_client) {
                self.whole(side, stream, now);
            }
        }
        self.note_engine_refused(side, now);
        were_any
    }

    /// If a client continues in HTTP/2, its connection is set up like one that begins so.
    fn upgrade(&mut self, side: &mut Side, now: Time) {
        if side.version == Version::H1 && self.engines.upgrade(&mut side.engine, &self.config.server, now) {
            side.version = Version::H2;
            side.path = Side::path_of(side.version, &side.peer);
            self.fit_new(side);
        }
    }

    /// An instance ends a connection with `requests` requests under way; returns whether they are too much for it.
    fn note_goaway(
        &mut self,
        peer: &Peer,
        requests: usize,
        (last_stream, code, debug): (StreamId, ErrorCode, &[u8]),
    ) -> bool {
        let Peer::Instance(instance) = peer else { return false };
        let pool = self.pools.get(*instance);
        if is_excess(code) {
            let is_of_pings = is_of_pings(requests, debug);
            pool.refuses_pings |= is_of_pings;
            return !is_of_pings;
        }
        if is_orderly(code) && last_stream.0 < LAST {
            pool.quota.ended_after(last_stream.0.div_ceil(2));
        }
        false
    }

    fn closed(&mut self, side: &mut Side, error: Option<&Error>, now: Time) {
        side.is_closed = true;
        let fate = self.fate(side, error, now);
        if self.ended_malformed(side, error, fate, now) {
            return;
        }
        let why = after_handshake::words_of_engine(error, &side.peer);
        self.abandon(side, fate, &why);
    }

    /// The engine of a client's connection has answered requests by itself. One of HTTP/1.1 ends with that: see [`Self::note_client_end`].
    fn note_engine_refused(&mut self, side: &mut Side, now: Time) {
        if side.version != Version::H1
            && matches!(side.peer, Peer::Client { .. })
            && let Some(refused) = side.engine.take_refused()
        {
            self.observer.bad_request(side, refused, now);
        }
    }

    /// A client's connection has ended: reports why, unless the client has simply gone away.
    pub(super) fn note_client_end(&mut self, side: &mut Side, error: Option<&Error>, now: Time) {
        if !matches!(side.peer, Peer::Client { .. }) {
            return;
        }
        let is_idle = side.streams.len() == 0;
        let broke = match error {
            Some(Error::PeerMisbehaved { .. } | Error::BadHttp1(_) | Error::WrongProtocol { .. }) => true,
            // A client that is idle for long has done nothing wrong.
            Some(Error::Exceeded(exceeded)) => exceeded.limit != Limit::Idle,
            _ => false,
        };
        let refused = side.engine.take_refused();
        match (refused, error) {
            (Some(refused), _) if is_idle => return self.observer.bad_request(side, refused, now),
            (None, Some(error)) if is_idle && broke => {
                let why = after_handshake::words_of_engine(Some(error), &side.peer);
                return self.observer.bad_client(side, &why, now);
            }
            _ => {}
        }
        let error = error.filter(|error| !matches!(error, Error::UnexpectedEof(_)));
        let error = error.map(|error| after_handshake::words_of_engine(Some(error), &side.peer));
        let Some(why) = error.or_else(|| refused.map(|refused| refused.reason.to_owned())) else { return };
        for (_, id) in side.streams.iter() {
            self.observer.left(self.exchanges.get(id), why.clone(), refused);
        }
    }

    /// A response is complete: its connection has room for another request, however slowly the client reads this one.
    fn whole(&mut self, side: &mut Side, stream: StreamId, now: Time) {
        if let Some(id) = side.streams.remove(stream) {
            self.exchanges.get(id).seen.whole_at = Some(now);
            self.judge_whole(&side.peer, id, now);
        }
        side.used_at = now;
        self.call(side);
    }

    /// Applies `work` to the exchange on a stream, which is then advanced; `false` if there is none.
    fn change(
        &mut self,
        (streams, version): (&Streams, Version),
        stream: StreamId,
        work: impl FnOnce(&mut Exchange, Version, &fields::OwnFields),
    ) -> bool {
        let Some(id) = streams.get(stream) else { return false };
        work(self.exchanges.get(id), version, &self.config.file.fields);
        self.exchanges.stir(id);
        true
    }

    /// What still comes on a stream is of no use.
    pub(super) fn drop_stream(&mut self, side: &mut Side, stream: StreamId, is_over: bool, now: Time) {
        side.streams.remove(stream);
        side.used_at = now;
        if !is_over {
            side.cancel(stream, now);
        }
        self.call(side);
    }

    /// A stream has ended before its time.
    fn reset(&mut self, side: &mut Side, stream: StreamId, (code, initiator): (ErrorCode, Initiator)) {
        let Some(id) = side.streams.remove(stream) else { return };
        let is_client = matches!(side.peer, Peer::Client { .. });
        if is_client {
            let why = match initiator {
                Initiator::Remote => format!("the client reset the stream ({code})"),
                Initiator::Engine if is_excess(code) => {
                    format!("the client was too slow or sent too much: its stream was reset ({code})")
                }
                Initiator::Engine => {
                    format!("the client's message is malformed: its stream was reset ({code})")
                }
                Initiator::Local => format!("the proxy reset the client's stream ({code})"),
            };
            self.observer.left(self.exchanges.get(id), why, None);
        }
        let malformed = self.malformed(side, (code, initiator));
        self.observer.reset(side, code, initiator);
        if !is_client && self.is_past_deadline(id) {
            return;
        }
        let fate = match code {
            code if code.is_refusal() => Fate::Unprocessed,
            code if is_excess(code) || malformed.is_some() => Fate::Answered,
            _ => Fate::Unknown,
        };
        if let Peer::Instance(instance) = &side.peer
            && (fate == Fate::Unknown || malformed.is_some())
        {
            self.judge(*instance, true, self.now);
        }
        let why = malformed.unwrap_or_else(|| match initiator {
            Initiator::Remote => format!("the instance reset the stream ({code})"),
            Initiator::Engine | Initiator::Local => {
                format!("the stream to the instance was ended at a limit ({code})")
            }
        });
        self.cut(id, is_client, fate, &why);
    }

    /// What is known of the requests of a connection that has ended.
    fn fate(&mut self, side: &mut Side, error: Option<&Error>, now: Time) -> Fate {
        self.note_end(side, now);
        self.note_client_end(side, error, now);
        if self.falls_back(side, error) {
            return Fate::Unprocessed;
        }
        match fate_of(side.version, error) {
            Fate::Unknown if side.was_never_reached() => Fate::Unprocessed,
            fate => fate,
        }
    }

    /// All that a connection carried has ended with it.
    pub(super) fn abandon(&mut self, side: &mut Side, fate: Fate, why: &str) {
        let guess = self.after_handshake(side, why);
        let why = guess.as_deref().unwrap_or(why);
        self.observer.abandoned(side, why, self.clock.now());
        let is_client = matches!(side.peer, Peer::Client { .. });
        let is_busy = side.streams.len() > 0;
        if side.was_too_much && fate == Fate::Unknown {
            // Requests that were too much for this instance would end the next connection, too, with other requests
            // that are under way there.
            for (_, id) in side.streams.take() {
                let why = format!("the instance closed the connection because of excessive load: {why}");
                self.cut(id, is_client, Fate::Answered, &why);
            }
            return;
        }
        if let Peer::Instance(instance) = &side.peer
            && fate != Fate::Unprocessed
            && is_busy
        {
            self.judge(*instance, true, self.now); // one failure, whatever it carried
        }
        for (_, id) in side.streams.take() {
            self.cut(id, is_client, fate, &format!("the connection to the instance ended: {why}"));
        }
    }

    /// Cancels the request of an HTTP/1.1 client that has closed its direction before it got any of the response, as
    /// nginx does (499): such a client cannot be distinguished from one that has closed both directions.
    pub(super) fn cancel_if_gone(&mut self, side: &mut Side, now: Time) {
        if !side.has_ended() || side.version != Version::H1 || !matches!(side.peer, Peer::Client { .. }) {
            return;
        }
        let waiting: Vec<(StreamId, u32)> = side.streams.iter().collect();
        for (stream, id) in waiting {
            if !self.exchanges.get(id).is_answered {
                side.streams.remove(stream);
                self.cut(id, true, Fate::Unknown, "");
                side.engine.reset(now, stream, ErrorCode::CANCEL);
            }
        }
    }

    /// One side of an exchange has ended before its time.
    fn cut(&mut self, id: u32, is_client: bool, fate: Fate, why: &str) {
        let error = match fate {
            Fate::Answered => ProxyError::HttpProtocolError,
            Fate::Unprocessed | Fate::Unknown => ProxyError::ConnectionTerminated,
        };
        self.cut_as(id, is_client, (fate, error), why);
    }

    /// The same, with the error that clients get.
    pub(super) fn cut_as(&mut self, id: u32, is_client: bool, (fate, error): (Fate, ProxyError), why: &str) {
        let exchange = self.exchanges.get(id);
        if is_client && exchange.is_left_to_the_instance() {
            // The rest of what its client has sent is still passed on.
        } else if is_client {
            exchange.down = None;
        } else {
            exchange.up = None;
            let is_whole = exchange.response.has_ended();
            let now = self.now;
            if !is_whole && self.repeats(id, fate, RetryOn::Reset, now) {
                self.repeat(id, fate, now);
            } else if !is_whole {
                let exchange = self.exchanges.get(id);
                let of = self.guard.services.get(exchange.service as usize);
                exchange.refusal = Some(ended(of.map_or("", |of| of.name.as_str()), error, why));
            }
        }
        self.exchanges.stir(id);
    }
}

/// Whether a peer had too much of something (RFC 9113 §7, RFC 9114 §8.1).
const fn is_excess(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::ENHANCE_YOUR_CALM | ErrorCode::H3_EXCESSIVE_LOAD)
}

/// Whether PINGs are what an instance had too much of: servers of gRPC say so (`too_many_pings`). Without requests
/// under way, it has received nothing else.
fn is_of_pings(requests: usize, debug: &[u8]) -> bool {
    let says = debug.windows(4).any(|word| word.eq_ignore_ascii_case(b"ping"));
    says || (requests == 0 && debug.is_empty())
}

/// Whether a connection ends without an error.
pub fn is_orderly(code: ErrorCode) -> bool {
    code.in_http3() == ErrorCode::H3_NO_ERROR
}

/// The stream whose message is complete with this event.
const fn completed(event: &Event<'_>) -> Option<StreamId> {
    match event {
        Event::Response { stream, end_stream: true, .. }
        | Event::Data { stream, end_stream: true, .. }
        | Event::Trailers { stream, .. } => Some(*stream),
        _ => None,
    }
}

/// The answer to a request whose stream or connection ended so.
fn ended(service: &str, error: ProxyError, why: &str) -> Refusal {
    // The rest may have addresses, and is advice to the operator.
    let kind = why.split(": ").next().unwrap_or_default();
    Refusal::new(502, format!("service {service}: {kind}")).because(error).with_detail(why)
}

/// What is known of requests whose connection has ended with this.
fn fate_of(version: Version, error: Option<&Error>) -> Fate {
    let is_answer = match error {
        Some(Error::BadHttp1(_) | Error::WrongProtocol { .. } | Error::Exceeded(_)) => true,
        Some(Error::UnexpectedEof(what)) => *what != "an exchange, before any of the response",
        _ => false,
    };
    if version == Version::H1 && is_answer { Fate::Answered } else { Fate::Unknown }
}

/// The stream of a response, interim or final, that may not be passed on, with the reason and whether the response is
/// whole. Only HTTP/1.1 has `Connection`.
fn refused(version: Version, event: &Event<'_>) -> Option<(StreamId, (Refused, bool))> {
    let (stream, head, is_whole) = match event {
        _ if version != Version::H1 => return None,
        Event::Interim { stream, head } => (*stream, head, false),
        Event::Response { stream, head, end_stream } => (*stream, head, *end_stream),
        _ => return None,
    };
    fields::check_response(head).err().map(|why| (stream, (why, is_whole)))
}

/// If `Via` has this many entries with our name, the request is in a loop. A chain may have several sidecars with the
/// same name.
const MOST_HOPS: usize = 8;

/// Puts a request into an exchange.
fn take_request(
    exchange: &mut Exchange,
    head: &RequestHead<'_>,
    origin: Origin<'_>,
    own: &fields::OwnFields,
    service: Result<u32, (u16, &'static str)>,
) {
    match fields::request(head, origin, own, &mut exchange.head) {
        Err(refused) => {
            exchange.asked.is_http10 = head.is_http10;
            exchange.head.clear(); // nothing of the one before; for the log, in which it is escaped:
            exchange.head.set(Part::Method, head.method);
            exchange.head.set(Part::Authority, head.authority);
            exchange.head.set(Part::Path, head.path);
            return exchange.refuse(400, refused.to_string());
        }
        Ok(asked) => exchange.asked = asked,
    }
    exchange.is_extended = exchange.asked.websocket && origin.version != Version::H1;
    if let (Some(name), Some(via)) = (&own.via, exchange.head.field(b"via")) {
        let is_own = |member: &&[u8]| {
            member.trim_ascii().rsplit(u8::is_ascii_whitespace).next() == Some(name.as_bytes())
        };
        if via.split(|byte| *byte == b',').filter(is_own).count() > MOST_HOPS {
            return exchange
                .refuse(508, "forwarding loop: the request has passed through this proxy more than 8 times");
        }
    }
    if exchange.asked.ends_here {
        return exchange.refuse(200, "Max-Forwards is 0: this proxy is the recipient");
    }
    match service {
        Ok(service) => exchange.service = service,
        Err((status, why)) => exchange.refuse(status, why),
    }
}

/// The answer to a request has come. If the request asked for a tunnel, decides whether the tunnel begins.
fn take_tunnel(exchange: &mut Exchange, version: Version, answer: &mut Head) {
    if exchange.asked.websocket {
        take_handshake(exchange, version, answer);
    } else if exchange.asked.connect {
        take_connect(exchange, answer);
    }
}

/// The answer to a CONNECT has come: a tunnel follows a 2xx, which has no length (RFC 9110 §9.3.6).
fn take_connect(exchange: &mut Exchange, answer: &mut Head) {
    if (200..300).contains(&answer.status) {
        answer.body_length = None;
        exchange.is_tunnel = true;
    } else {
        exchange.request.push(&[], true); // there is no tunnel, and the request has no body
    }
}

/// The answer to a handshake of WebSocket has come: decides whether the instance accepts it.
fn take_handshake(exchange: &mut Exchange, version: Version, answer: &mut Head) {
    let is_taken = match version {
        Version::H1 => answer.status == 101,
        Version::H2 | Version::H3 => (200..300).contains(&answer.status),
    };
    if !is_taken {
        // There is no tunnel, and the request has no body.
        exchange.request.push(&[], true);
        // In HTTP/1.1 this is an ordinary response, of an instance that ignores Upgrade. To an extended CONNECT it would be an open
        // WebSocket (RFC 8441 §4).
        if exchange.is_extended && (200..300).contains(&answer.status) {
            let why = format!(
                "the instance answered the WebSocket handshake with {} instead of 101",
                answer.status
            );
            exchange.refusal = Some(Refusal::new(502, why).because(ProxyError::HttpUpgradeFailed));
        }
        return;
    }
    let own = exchange.key.as_ref().map(String::as_bytes);
    let key = own.or_else(|| exchange.head.field(websocket::KEY.as_bytes()));
    let proves =
        |key: &[u8]| answer.field(websocket::ACCEPT.as_bytes()) == Some(websocket::accept(key).as_bytes());
    // The sidecar answers its client's key by itself: nobody else would notice a wrong answer of the instance.
    if version == Version::H1 && key.is_some_and(|key| !proves(key)) {
        let why = "the instance accepted the WebSocket without a valid sec-websocket-accept (RFC 6455 §4.1)";
        exchange.refusal = Some(Refusal::new(502, why).because(ProxyError::HttpUpgradeFailed));
        return;
    }
    exchange.is_tunnel = true;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_ends_for_excess_says_whether_pings_were_it() {
        assert!(is_of_pings(3, b"too_many_pings") && is_of_pings(0, b""));
        assert!(!is_of_pings(1, b"") && !is_of_pings(0, b"too many headers"));
        assert!(is_excess(ErrorCode::ENHANCE_YOUR_CALM) && is_excess(ErrorCode::H3_EXCESSIVE_LOAD));
        assert!(!is_excess(ErrorCode::NO_ERROR) && !is_excess(ErrorCode::INTERNAL_ERROR));
    }

    /// What becomes of a WebSocket's handshake that an instance of HTTP/1.1 answers so: the status of the refusal, if it is refused, and
    /// whether there is a tunnel.
    fn handshake(is_extended: bool, status: u16, accept: Option<&str>) -> (Option<u16>, bool) {
        let mut exchange = Exchange { is_extended, ..Exchange::default() };
        exchange.asked.websocket = true;
        if is_extended {
            exchange.key = Some("dGhlIHNhbXBsZSBub25jZQ==".to_owned());
        } else {
            exchange.head.add(websocket::KEY.as_bytes(), &[b"dGhlIHNhbXBsZSBub25jZQ=="]);
        }
        let mut answer = Head::default();
        answer.status = status;
        if let Some(accept) = accept {
            answer.add(websocket::ACCEPT.as_bytes(), &[accept.as_bytes()]);
        }
        take_tunnel(&mut exchange, Version::H1, &mut answer);
        (exchange.refusal.map(|refusal| refusal.status), exchange.is_tunnel)
    }

    #[test]
    fn only_101_with_the_proof_opens_a_websocket_at_an_instance_of_http1() {
        let right = Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        for is_extended in [false, true] {
            assert_eq!(handshake(is_extended, 101, right), (None, true));
            assert_eq!(handshake(is_extended, 101, Some("x")), (Some(502), false));
            assert_eq!(handshake(is_extended, 101, None), (Some(502), false));
            for status in [302, 404, 503] {
                assert_eq!(handshake(is_extended, status, None), (None, false));
            }
        }
        // To an extended CONNECT each 2xx is an open WebSocket; in HTTP/1.1 it is a page.
        assert_eq!(handshake(true, 200, None), (Some(502), false));
        assert_eq!(handshake(true, 204, right), (Some(502), false));
        assert_eq!(handshake(false, 200, None), (None, false));
    }
}

//! A proxy between two arbitrary peers: engines on both sides, and the translation of `h2lab_proxy` between them.
//!
//! What leaves over HTTP/1.1 is parsed again by a strict parser that is independent of ours: it must be exactly the one
//! message that was meant, or the beginning of it. With a pair of proxies that speak HTTP/2 to each other, the output
//! of the second one is parsed again, and it must be what went into the first.

mod strict;

use h2lab_base::units::Time;
use h2lab_proxy::fields::{self, Asked, Origin, OwnFields, Version};
use h2lab_proxy::head::{Head, Part};
use h2lab_proxy::websocket;
use h2lab_wire::connection::{Request, Response};
use h2lab_wire::h2::frame::PREFACE;
use h2lab_wire::{Config, Connection, ErrorCode, Event, Field, Role, StreamId};

use strict::{Content, Meant};

const NOW: Time = Time::from_millis(5);
/// Exchanges of an input that are passed on.
const MOST: usize = 6;

/// Bits of the first byte of the input.
mod option {
    /// The client speaks HTTP/2.
    pub(super) const CLIENT_H2: u8 = 1;
    /// The instance speaks HTTP/2; then nothing is parsed again.
    pub(super) const INSTANCE_H2: u8 = 2;
    /// The instance is a second proxy, which speaks HTTP/2. The instance's bytes are those of the instance behind it,
    /// which speaks HTTP/1.1.
    pub(super) const PAIR: u8 = 16;
    /// A preface precedes the client's bytes.
    pub(super) const GREETED: u8 = 4;
    /// Clients are trusted in what they say of others, and `Forwarded` is written.
    pub(super) const TRUSTED: u8 = 8;
}

/// What the requests are sent to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Instance {
    H1,
    H2,
    /// Another proxy, over HTTP/2, before an instance that speaks HTTP/1.1.
    Proxy,
}

/// A message as far as it has been received.
#[derive(Default)]
struct Message {
    head: Head,
    body: Vec<u8>,
    trailers: Option<Head>,
    /// All of it has come.
    is_whole: bool,
}

/// A request of the client.
struct Asking {
    stream: StreamId,
    asked: Asked,
    message: Message,
}

/// The input is a client's bytes followed by an instance's; its second byte says where they are split.
pub(super) fn proxy(data: &[u8]) {
    let [options, share, bytes @ ..] = data else { return };
    let has = |option| options & option != 0;
    let (of_client, of_instance) = bytes.split_at(bytes.len() * usize::from(*share) / 256);
    let own = OwnFields {
        client: if has(option::TRUSTED) {
            fields::ClientFields::Forwarded
        } else {
            fields::ClientFields::XForwarded
        },
        trusted: has(option::TRUSTED),
        ..OwnFields::default()
    };
    let instance = match (has(option::PAIR), has(option::INSTANCE_H2)) {
        (true, _) => Instance::Proxy,
        (false, true) => Instance::H2,
        (false, false) => Instance::H1,
    };
    let from = if has(option::CLIENT_H2) { Version::H2 } else { Version::H1 };
    let mut down = server(from);
    if has(option::GREETED) && from == Version::H2 {
        down.handle_input(NOW, PREFACE);
        down.handle_input(NOW, &[0, 0, 0, 4, 0, 0, 0, 0, 0]);
    }
    down.handle_input(NOW, of_client);
    let mut passed = 0;
    loop {
        let all = requests(&mut down, from, &own);
        if all.is_empty() || passed >= MOST {
            return;
        }
        for asking in all {
            passed += 1;
            // After `Upgrade: h2c` the client speaks another version than it began with.
            let is_h1 = matches!(down, Connection::H1(_));
            let response = pass_request(&asking, instance, of_instance, &own);
            pass_response(&mut down, is_h1, &asking, response);
        }
    }
}

/// The engine of a proxy's listener.
fn server(version: Version) -> Connection {
    let mut config = Config::new(Role::Server);
    (config.connect_protocol, config.h2c_upgrade) = (true, Some(1_000));
    if version == Version::H2 { Connection::h2(config, NOW) } else { Connection::h1(config) }
}

/// The requests that have come, as they are passed on. Those that the proxy refuses are answered.
fn requests(down: &mut Connection, from: Version, own: &OwnFields) -> Vec<Asking> {
    let (mut all, mut refused) = (Vec::<Asking>::new(), Vec::new());
    while let Some(event) = down.poll_event(NOW) {
        let find = |all: &mut Vec<Asking>, stream| all.iter().position(|asking| asking.stream == stream);
        match event {
            Event::Request { stream, head, end_stream } => {
                let origin = Origin { version: from, address: "192.0.2.1", tls: false };
                let mut message = Message { is_whole: end_stream, ..Message::default() };
                let asked = fields::request(&head, origin, own, &mut message.head);
                let is_tunnel = |asked: &Asked| head.method == b"CONNECT" && !asked.websocket;
                match asked {
                    Ok(asked) if !is_tunnel(&asked) && !asked.ends_here => {
                        all.push(Asking { stream, asked, message });
                    }
                    _ => refused.push(stream),
                }
            }
            Event::Data { stream, data, end_stream } => {
                if let Some(n) = find(&mut all, stream) {
                    all[n].message.body.extend_from_slice(data);
                    all[n].message.is_whole |= end_stream;
                }
            }
            Event::Trailers { stream, fields } => {
                if let Some(n) = find(&mut all, stream) {
                    let mut trailers = Head::default();
                    fields::trailers(fields, &mut trailers);
                    (all[n].message.trailers, all[n].message.is_whole) = (Some(trailers), true);
                }
            }
            Event::Reset { stream, .. } => {
                // A part of it may have left already.
                if let Some(n) = find(&mut all, stream) {
                    all[n].message.is_whole = false;
                }
            }
            _ => {}
        }
    }
    for stream in refused {
        let response = Response { status: 400, fields: &[], body_length: Some(0), end_stream: true };
        down.send_response(NOW, stream, &response);
        let _ = down.take_transmit(NOW);
    }
    all
}

/// Sends a body and its trailers as far as the peer's windows allow, and appends the bytes that leave to `sent`.
fn finish(to: &mut Connection, stream: StreamId, message: &Message, sent: &mut Vec<u8>) {
    let ends = message.is_whole && message.trailers.is_none();
    let mut rest = &message.body[..];
    loop {
        let n = to.send_data(NOW, stream, rest, ends);
        rest = &rest[n..];
        let left = to.take_transmit(NOW);
        sent.extend_from_slice(&left);
        while to.poll_event(NOW).is_some() {}
        if rest.is_empty() || (n == 0 && left.is_empty()) {
            break;
        }
    }
    if let Some(trailers) = message.trailers.as_ref().filter(|_| message.is_whole && rest.is_empty()) {
        let fields: Vec<Field<'_>> = trailers.fields().collect();
        to.send_trailers(NOW, stream, &fields);
        sent.extend_from_slice(&to.take_transmit(NOW));
    }
}

/// Passes a request to an instance that sends `answer`. Returns what the proxy reads: interim responses, and the final
/// one.
fn pass_request(
    asking: &Asking,
    instance: Instance,
    answer: &[u8],
    own: &OwnFields,
) -> (Vec<Head>, Option<Message>) {
    let Message { head, body, trailers, is_whole } = &asking.message;
    let to = if instance == Instance::H1 { Version::H1 } else { Version::H2 };
    let config = Config::new(Role::Client);
    let mut up = if to == Version::H2 { Connection::h2(config, NOW) } else { Connection::h1(config) };
    if to == Version::H2 {
        // A server that takes WebSocket over HTTP/2.
        up.handle_input(NOW, &[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1]);
        while up.poll_event(NOW).is_some() {}
    }
    let text = |part| str::from_utf8(head.get(part)).expect("it was checked");
    let own_key = Field::new(websocket::KEY, "dGhlIHNhbXBsZSBub25jZQ==");
    let needs_key = asking.asked.websocket && head.field(websocket::KEY.as_bytes()).is_none();
    let te = fields::te(head, to).filter(|_| !asking.asked.websocket);
    let fields: Vec<Field<'_>> = head.fields().chain(te).chain(needs_key.then_some(own_key)).collect();
    let is_alone = *is_whole && body.is_empty() && trailers.is_none();
    let request = Request {
        method: if asking.asked.websocket { "CONNECT" } else { text(Part::Method) },
        authority: text(Part::Authority),
        path: text(Part::Path),
        fields: &fields,
        body_length: fields::body_length(head, to).filter(|_| !asking.asked.websocket),
        end_stream: is_alone && !asking.asked.websocket,
    };
    let stream = if asking.asked.websocket {
        up.send_connect(NOW, "websocket", &request)
    } else {
        up.send_request(NOW, &request)
    };
    let Some(stream) = stream else { return (Vec::new(), None) };
    let mut sent = up.take_transmit(NOW);
    if !request.end_stream && !asking.asked.websocket {
        finish(&mut up, stream, &asking.message, &mut sent);
    }
    if to == Version::H1 {
        let method = if asking.asked.websocket { "GET" } else { request.method };
        let meant = Meant {
            authority: request.authority,
            body,
            is_whole: *is_whole || asking.asked.websocket,
            is_websocket: asking.asked.websocket,
        };
        strict::request(&sent, method, request.path, &meant);
    }
    if instance != Instance::Proxy {
        up.handle_input(NOW, answer);
        up.handle_eof(NOW);
        return responses(&mut up, stream, to, own);
    }
    let (said, meant) = second(&sent, asking, answer, own);
    up.handle_input(NOW, &said);
    up.handle_eof(NOW);
    let (interims, told) = responses(&mut up, stream, to, own);
    if let Some((status, body)) = meant {
        let told = told.as_ref().expect("a whole response of the second proxy");
        assert!(told.is_whole && told.head.status == status && told.body == body, "another response");
    }
    (interims, told)
}

/// Sends these bytes, which are one request, to a second proxy. Returns its output, and status and body if it passes on
/// a whole response.
fn second(sent: &[u8], asking: &Asking, answer: &[u8], own: &OwnFields) -> (Vec<u8>, Option<(u16, Vec<u8>)>) {
    let mut middle = server(Version::H2);
    middle.handle_input(NOW, sent);
    let mut come = requests(&mut middle, Version::H2, own);
    assert!(come.len() <= 1, "two requests of one");
    // It may have refused the request: one hop fewer is left, or the fields are too large together with those of the
    // first proxy.
    let Some(again) = come.pop() else { return (middle.take_transmit(NOW), None) };
    let (first, then) = (&asking.message, &again.message);
    assert_eq!(again.asked.websocket, asking.asked.websocket);
    for part in [Part::Method, Part::Authority, Part::Path] {
        assert!(asking.asked.websocket || first.head.get(part) == then.head.get(part), "another request");
    }
    assert!(!then.is_whole || (first.is_whole && first.body == then.body), "another body");
    let response = pass_request(&again, Instance::H1, answer, own);
    let whole = response.1.as_ref().filter(|answer| answer.is_whole && !asking.asked.websocket);
    let whole = whole.filter(|answer| answer.head.status != 101);
    let meant = whole.map(|answer| (answer.head.status, answer.body.clone()));
    (pass_response(&mut middle, false, &again, response), meant)
}

/// The responses of an instance on a stream.
fn responses(
    up: &mut Connection,
    on: StreamId,
    from: Version,
    own: &OwnFields,
) -> (Vec<Head>, Option<Message>) {
    let (mut interims, mut answer) = (Vec::new(), None::<Message>);
    while let Some(event) = up.poll_event(NOW) {
        match event {
            Event::Interim { stream, head } if stream == on && fields::check_response(&head).is_ok() => {
                let mut interim = Head::default();
                fields::response(&head, from, own, &mut interim);
                interims.push(interim);
            }
            Event::Response { stream, head, end_stream }
                if stream == on && fields::check_response(&head).is_ok() =>
            {
                let mut message = Message { is_whole: end_stream, ..Message::default() };
                fields::response(&head, from, own, &mut message.head);
                answer = Some(message);
            }
            Event::Data { stream, data, end_stream } if stream == on => {
                if let Some(message) = &mut answer {
                    message.body.extend_from_slice(data);
                    message.is_whole |= end_stream;
                }
            }
            Event::Trailers { stream, fields } if stream == on => {
                if let Some(message) = &mut answer {
                    let mut trailers = Head::default();
                    fields::trailers(fields, &mut trailers);
                    (message.trailers, message.is_whole) = (Some(trailers), true);
                }
            }
            _ => {}
        }
    }
    (interims, answer)
}

/// Passes a response to the client, or resets the stream; returns what leaves.
fn pass_response(
    down: &mut Connection,
    is_h1: bool,
    asking: &Asking,
    (interims, answer): (Vec<Head>, Option<Message>),
) -> Vec<u8> {
    let stream = asking.stream;
    let mut all = down.take_transmit(NOW);
    let answer = answer.filter(|answer| !asking.asked.websocket && answer.head.status != 101);
    for interim in &interims {
        let fields: Vec<Field<'_>> = interim.fields().collect();
        down.send_interim(NOW, stream, interim.status, &fields);
    }
    let mut sent = down.take_transmit(NOW);
    let Some(answer) = answer else {
        down.reset(NOW, stream, ErrorCode::INTERNAL_ERROR);
        all.extend_from_slice(&sent);
        all.extend_from_slice(&down.take_transmit(NOW));
        return all;
    };
    let fields: Vec<Field<'_>> = answer.head.fields().collect();
    let is_alone = answer.is_whole && answer.body.is_empty() && answer.trailers.is_none();
    let is_head = asking.message.head.get(Part::Method) == b"HEAD" || answer.head.status == 304;
    let to = if is_h1 && !is_head { Version::H1 } else { Version::H2 };
    let (status, body_length) = (answer.head.status, fields::body_length(&answer.head, to));
    let response = Response { status, fields: &fields, body_length, end_stream: is_alone };
    down.send_response(NOW, stream, &response);
    sent.extend_from_slice(&down.take_transmit(NOW));
    if !is_alone {
        finish(down, stream, &answer, &mut sent);
    }
    // A connection that has ended before sends nothing.
    if is_h1 && !sent.is_empty() {
        let is_head = asking.message.head.get(Part::Method) == b"HEAD";
        let has_body = !is_head && status != 204 && status != 304;
        let content = if has_body { Content::Any(&answer.body) } else { Content::None };
        strict::response(&sent, interims.len(), status, content, answer.is_whole);
    }
    all.extend_from_slice(&sent);
    if !answer.is_whole {
        down.reset(NOW, stream, ErrorCode::INTERNAL_ERROR);
        all.extend_from_slice(&down.take_transmit(NOW));
    }
    all
}

/// An exchange between every two versions, and the elements of request smuggling.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    use h2lab_wire::fuzz as connections;
    let with = |options: u8, client: &[u8], instance: &[u8]| {
        let share = (client.len() * 256).div_ceil((client.len() + instance.len()).max(1)).min(255);
        [&[options, share as u8][..], client, instance].concat()
    };
    let requests: [&[u8]; 4] = [
        b"POST /a?b HTTP/1.1\r\nhost: a\r\nte: trailers\r\nconnection: te, x-hop\r\nx-hop: 1\r\ntransfer-encoding: chunked\r\n\r\n\
          5\r\nhello\r\n0\r\nx-sum: 9\r\n\r\nGET / HTTP/1.1\r\nhost: b\r\ncookie: a=b\r\n\r\n",
        b"PUT / HTTP/1.1\r\nhost: a:80\r\ncontent-length: 5\r\nexpect: 100-continue\r\nx-forwarded-for: 192.0.2.7\r\n\r\nhello",
        b"GET /chat HTTP/1.1\r\nhost: a\r\nconnection: keep-alive, Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
          sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\nconnection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n\
          max-forwards: 3\r\n\r\n",
    ];
    let answers: [&[u8]; 3] = [
        b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nvia: 1.1 x\r\n\r\n\
          2\r\nhi\r\n0\r\ngrpc-status: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: x-hop\r\nx-hop: 1\r\n\r\nhi",
        b"HTTP/1.1 304 Not Modified\r\netag: \"a\"\r\ncontent-length: 7\r\n\r\n",
    ];
    let mut seeds = Vec::new();
    for request in requests {
        for answer in answers {
            seeds.push(with(0, request, answer));
            seeds.push(with(option::PAIR, request, answer));
        }
    }
    let (client, server) = (connections::recorded_client(true), connections::recorded_server(true));
    seeds.push(with(option::CLIENT_H2, &client, answers[0]));
    seeds.push(with(option::CLIENT_H2 + option::TRUSTED, &client, answers[1]));
    seeds.push(with(option::CLIENT_H2 + option::INSTANCE_H2, &client, &server));
    seeds.push(with(option::CLIENT_H2 + option::PAIR, &client, answers[0]));
    seeds.push(with(option::INSTANCE_H2, requests[0], &server));
    let frames = &client[PREFACE.len()..];
    seeds.push(with(option::CLIENT_H2 + option::GREETED, frames, answers[0]));
    seeds
}

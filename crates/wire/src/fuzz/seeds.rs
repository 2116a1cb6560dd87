//! Valid conversations: the corpus for mutations.

use crate::connection::{Request, Response};
use crate::h2::frame::{PREFACE, flag, kind};
use crate::h2::raw::frame;
use crate::{Config, Connection, Event, Field, Role};
use h2lab_base::units::Time;

const NOW: Time = Time::from_millis(5);

fn output(connection: &mut Connection) -> Vec<u8> {
    let bytes = connection.poll_transmit(NOW).to_vec();
    connection.handle_transmitted(NOW, bytes.len());
    bytes
}

fn new(role: Role, is_h2: bool) -> Connection {
    let config = Config::new(role);
    if is_h2 { Connection::h2(config, Time::ZERO) } else { Connection::h1(config) }
}

const TRAILERS: [Field<'static>; 1] = [Field { name: b"x-sum", value: b"1" }];

/// What a client sends: requests with and without body and trailers, and over HTTP/2 a frame of every kind.
pub fn recorded_client(is_h2: bool) -> Vec<u8> {
    if !is_h2 {
        let mut bytes = b"GET /a HTTP/1.1\r\nhost: a\r\nx-n: value\r\n\r\n".to_vec();
        bytes.extend(b"POST / HTTP/1.1\r\nHost: b:80\r\nTransfer-Encoding: chunked\r\nTrailer: x\r\n\r\n");
        bytes.extend(b"4;name=value\r\nWiki\r\n05\r\npedia\r\n0\r\nx: 1\r\n\r\n");
        bytes.extend(
            b"PUT http://a/b?c HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\nexpect: 100-continue\r\n\r\nbody",
        );
        bytes.extend(b"HEAD * HTTP/1.0\r\nconnection: keep-alive, close\r\n\r\n");
        return bytes;
    }
    let mut client = new(Role::Client, true);
    for n in 0..4 {
        let fields = [Field::new("x-n", "value"), Field::new("cookie", "a=b")];
        let request = Request {
            method: "GET",
            authority: "example.com",
            path: "/path",
            fields: &fields,
            body_length: None,
            end_stream: n % 2 == 0,
        };
        let Some(stream) = client.send_request(NOW, &request) else { break };
        if n % 2 == 1 {
            client.send_data(NOW, stream, &[b'b'; 3_000], false);
            client.send_trailers(NOW, stream, &TRAILERS);
        }
    }
    client.ping(NOW);
    let mut bytes = output(&mut client);
    bytes.extend(frame(kind::SETTINGS, flag::ACK, 0, &[]));
    bytes.extend(frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 9, 0, 1, 0, 0, 16, 0, 0, 5, 0, 0, 64, 0]));
    bytes.extend(frame(kind::PRIORITY, 0, 9, &[0, 0, 0, 3, 16]));
    bytes.extend(frame(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 4, 0]));
    bytes.extend(frame(
        kind::HEADERS,
        flag::PRIORITY | flag::PADDED,
        9,
        &[2, 0, 0, 0, 0, 16, 0x82, 0x86, 0, 0],
    ));
    bytes.extend(frame(kind::CONTINUATION, flag::END_HEADERS, 9, &[0x84, 0x41, 1, b'a']));
    bytes.extend(frame(kind::DATA, flag::PADDED | flag::END_STREAM, 9, &[3, b'x', 0, 0, 0]));
    bytes.extend(frame(kind::RST_STREAM, 0, 5, &[0, 0, 0, 8]));
    bytes.extend(frame(0xbe, 0, 0, b"unknown"));
    bytes.extend(frame(kind::GOAWAY, 0, 0, &[0; 8]));
    bytes
}

/// The bytes of a client that opens its windows little by little, so that answers wait for them one at a time.
pub fn sparing_client() -> Vec<u8> {
    let request = [0x82, 0x86, 0x84, 0x41, 1, b'a'];
    let mut bytes = PREFACE.to_vec();
    bytes.extend(frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 9]));
    for stream in [1, 3, 5] {
        bytes.extend(frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, &request));
        for increment in [1, 4, 200] {
            bytes.extend(frame(kind::WINDOW_UPDATE, 0, stream, &[0, 0, increment, 0]));
        }
    }
    bytes.extend(frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 64, 0]));
    bytes.extend(frame(kind::WINDOW_UPDATE, 0, 0, &[0, 2, 0, 0]));
    bytes
}

/// What a server answers to the recorded client.
pub fn recorded_server(is_h2: bool) -> Vec<u8> {
    if !is_h2 {
        let mut bytes = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n".to_vec();
        bytes.extend(b"HTTP/1.1 200 OK\r\nserver: a\r\ntransfer-encoding: chunked\r\n\r\n");
        bytes.extend(b"3\r\nabc\r\n0\r\nx-sum: 1\r\n\r\n");
        bytes.extend(b"HTTP/1.0 404 \r\ncontent-length: 3\r\nconnection: keep-alive\r\n\r\nabc");
        return bytes;
    }
    let mut server = new(Role::Server, true);
    server.handle_input(NOW, &recorded_client(true));
    let mut asked = Vec::new();
    while let Some(event) = server.poll_event(NOW) {
        if let Event::Request { stream, .. } = event {
            asked.push(stream);
        }
    }
    // The client of the target has begun these.
    for stream in asked.into_iter().filter(|stream| stream.0 <= 7) {
        server.send_interim(NOW, stream, 103, &TRAILERS);
        let response =
            Response { status: 200, fields: &TRAILERS, body_length: Some(9_000), end_stream: false };
        server.send_response(NOW, stream, &response);
        let ends = stream.0 % 4 == 1;
        server.send_data(NOW, stream, &[b's'; 9_000], ends);
        if !ends {
            server.send_trailers(NOW, stream, &TRAILERS);
        }
    }
    let mut bytes = frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0]);
    let promise = [&[0, 0, 0, 2][..], &[0x82, 0x86, 0x84, 0x41, 1, b'a']].concat();
    bytes.extend(frame(kind::PUSH_PROMISE, flag::END_HEADERS, 3, &promise));
    bytes.extend(output(&mut server));
    bytes.extend(frame(kind::WINDOW_UPDATE, 0, 3, &[0, 1, 0, 0]));
    bytes.extend(frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 5, 0, 0, 0, 0]));
    bytes
}

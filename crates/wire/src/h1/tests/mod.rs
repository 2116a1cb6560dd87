//! The engine against itself and against scripted peers.

mod deadlines;
mod framing;
mod idle_input;
mod legality;
mod lending;
mod pair;
mod refusals;
mod repetition;
mod scripted;
mod tunnel;
mod unwanted;

use super::Connection;
use crate::connection::{Config, Request, Response};
use crate::{Error, Event, Fields, Role, StreamId};
use h2lab_base::units::Time;

const NOW: Time = Time::ZERO;
const FIRST: StreamId = StreamId::of_request(0);

/// An event that owns its parts. Pieces of a body are joined, so that chunking does not show.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    Request { method: String, authority: String, path: String, fields: Vec<(String, String)> },
    Interim(u16),
    Response { status: u16, fields: Vec<(String, String)> },
    Body(Vec<u8>),
    Trailers(Vec<(String, String)>),
    End(StreamId),
    Writable,
    Closed(Option<Error>),
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn owned(fields: Fields<'_>) -> Vec<(String, String)> {
    fields.iter().map(|field| (text(field.name), text(field.value))).collect()
}

/// Polls all events off a connection and appends them to `seen`.
fn drain(connection: &mut Connection, seen: &mut Vec<Seen>) {
    while let Some(event) = connection.poll_event(NOW) {
        let mut end = None;
        match event {
            Event::Request { stream, head, end_stream } => {
                end = end_stream.then_some(stream);
                seen.push(Seen::Request {
                    method: text(head.method),
                    authority: text(head.authority),
                    path: text(head.path),
                    fields: owned(head.fields),
                });
            }
            Event::Interim { head, .. } => seen.push(Seen::Interim(head.status)),
            Event::Response { stream, head, end_stream } => {
                end = end_stream.then_some(stream);
                seen.push(Seen::Response { status: head.status, fields: owned(head.fields) });
            }
            Event::Data { stream, data, end_stream } => {
                end = end_stream.then_some(stream);
                match seen.last_mut() {
                    _ if data.is_empty() => assert!(end_stream, "an empty piece only ends a body"),
                    Some(Seen::Body(body)) => body.extend_from_slice(data),
                    _ => seen.push(Seen::Body(data.to_vec())),
                }
            }
            Event::Trailers { stream, fields } => {
                end = Some(stream);
                seen.push(Seen::Trailers(owned(fields)));
            }
            Event::Writable { .. } => seen.push(Seen::Writable),
            Event::Closed { error } => seen.push(Seen::Closed(error)),
            other => panic!("HTTP/1.1 has no {other:?}"),
        }
        seen.extend(end.map(Seen::End));
    }
}

/// Feeds bytes as if they had been read, polling after every read.
fn feed(connection: &mut Connection, bytes: &[u8], seen: &mut Vec<Seen>) {
    let mut left = bytes;
    while !left.is_empty() {
        let space = connection.recv_space();
        let n = space.len().min(left.len());
        space[..n].copy_from_slice(&left[..n]);
        connection.handle_received(NOW, n);
        left = &left[n..];
        drain(connection, seen);
    }
}

/// All that a connection has to send.
fn sent(connection: &mut Connection) -> Vec<u8> {
    let bytes = connection.poll_transmit(NOW).to_vec();
    connection.handle_transmitted(NOW, bytes.len());
    bytes
}

fn client() -> Connection {
    Connection::new(Config::new(Role::Client))
}

fn server() -> Connection {
    Connection::new(Config::new(Role::Server))
}

const GET: Request<'_> = Request {
    method: "GET",
    authority: "a.test",
    path: "/",
    fields: &[],
    body_length: None,
    end_stream: true,
};

const POST: Request<'_> = Request { method: "POST", end_stream: false, ..GET };

const OK: Response<'_> = Response { status: 200, fields: &[], body_length: Some(0), end_stream: true };

//! Server push (RFC 9113 §8.4): the sending half. Promises that we receive are in `headers`.

use super::frame::{MAX_31_BITS, kind};
use super::send::Lead;
use super::stream::Side;
use super::{Connection, Role};
use crate::connection::Request;
use crate::{Error, ErrorCode, StreamId};
use h2lab_base::units::Time;

impl Connection {
    /// See [`super::super::Connection::send_push`].
    pub fn send_push(&mut self, _now: Time, stream: StreamId, request: &Request<'_>) -> Option<StreamId> {
        if !self.takes_promise_on(stream.0) {
            return None;
        }
        if !matches!(request.method, "GET" | "HEAD") || !request.end_stream {
            const MISUSE: &str = "a promised request is not GET or HEAD, or has a body";
            self.fail(Error::Misuse(MISUSE), ErrorCode::INTERNAL_ERROR, MISUSE.as_bytes());
            return None;
        }
        let promised = self.next_local;
        self.next_local += 2;
        let reserved = self.new_stream(promised, Side::Head, Side::Ended);
        self.streams.insert(reserved);
        let lead =
            Lead { kind: kind::PUSH_PROMISE, stream: stream.0, end_stream: false, promised: Some(promised) };
        let scheme = if self.config.tls { "https" } else { "http" };
        self.put_block(lead, |block| {
            block.request_line(request, scheme, None);
            block.fields(request.fields);
        });
        Some(StreamId(promised))
    }

    /// Whether the client accepts a promise on the request `stream` now. Promised streams count against its
    /// `SETTINGS_MAX_CONCURRENT_STREAMS` only once they are answered (§5.1.2); we answer at once, so they count here.
    fn takes_promise_on(&self, stream: u32) -> bool {
        let is_open = || {
            let key = self.streams.find(stream).filter(|_| self.is_of_peer(stream));
            key.is_some_and(|key| self.streams[key].local != Side::Ended)
        };
        self.config.role == Role::Server
            && self.end.is_open()
            && self.peer_settings.enable_push
            && self.streams.promised() < self.peer_settings.max_concurrent_streams
            && self.next_local <= MAX_31_BITS
            && !self.drain.peer_is_leaving()
            && is_open()
    }
}

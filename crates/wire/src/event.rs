//! The events that a connection reports to its role: one vocabulary for HTTP/1.1, HTTP/2 and HTTP/3.

use std::time::Duration;

use super::{Error, ErrorCode, Initiator, StreamId};

/// One header or trailer field line. Names are lower case in every protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field<'a> {
    /// The name, lower case.
    pub name: &'a [u8],
    /// The value, without surrounding white space.
    pub value: &'a [u8],
}

impl<'a> Field<'a> {
    /// A field from text, for the roles.
    pub const fn new(name: &'a str, value: &'a str) -> Self {
        Self { name: name.as_bytes(), value: value.as_bytes() }
    }
}

/// Decoded field lines, lent from the engine's scratch space until the next call.
///
/// Pseudo-header fields are not in here; they are in [`RequestHead`] and [`ResponseHead`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Fields<'a> {
    bytes: &'a [u8],
    spans: &'a [FieldSpan],
}

/// Where a field lies in the scratch bytes: `name` is `start..value_start`, `value` is `value_start..end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldSpan {
    /// First byte of the name.
    pub start: u32,
    /// First byte of the value, one past the name.
    pub value_start: u32,
    /// One past the value.
    pub end: u32,
}

impl<'a> Fields<'a> {
    /// Field lines over `bytes`; every span must lie within it.
    pub const fn new(bytes: &'a [u8], spans: &'a [FieldSpan]) -> Self {
        Self { bytes, spans }
    }

    /// Passes a list of these names and values to `read`. Engines hand out decoded fields; this builds them from text,
    /// for tests of code that reads fields.
    pub fn of<T>(pairs: &[(&str, &str)], read: impl FnOnce(Fields<'_>) -> T) -> T {
        let (mut bytes, mut spans) = (Vec::new(), Vec::new());
        for (name, value) in pairs {
            let start = bytes.len() as u32;
            bytes.extend_from_slice(name.as_bytes());
            let value_start = bytes.len() as u32;
            bytes.extend_from_slice(value.as_bytes());
            spans.push(FieldSpan { start, value_start, end: bytes.len() as u32 });
        }
        read(Fields::new(&bytes, &spans))
    }

    /// The field lines, in the order in which they came.
    pub fn iter(self) -> impl Iterator<Item = Field<'a>> {
        self.spans.iter().map(move |span| Field {
            name: &self.bytes[span.start as usize..span.value_start as usize],
            value: &self.bytes[span.value_start as usize..span.end as usize],
        })
    }

    /// The value of the first field with this lower-case name.
    pub fn get(self, name: &str) -> Option<&'a [u8]> {
        self.iter().find(|field| field.name == name.as_bytes()).map(|field| field.value)
    }

    /// How many field lines there are.
    pub const fn len(self) -> usize {
        self.spans.len()
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.spans.is_empty()
    }
}

/// The head of a request, as received.
#[derive(Debug, Clone, Copy)]
pub struct RequestHead<'a> {
    /// `GET`, `POST` …
    pub method: &'a [u8],
    /// `http`, `https`; empty in HTTP/1.1 origin form, which has none.
    pub scheme: &'a [u8],
    /// `:authority`, or the Host field of HTTP/1.1.
    pub authority: &'a [u8],
    /// Path and query.
    pub path: &'a [u8],
    /// `:protocol` of an extended CONNECT (RFC 8441); empty otherwise.
    pub protocol: &'a [u8],
    /// It came in HTTP/1.0.
    pub is_http10: bool,
    /// The other field lines.
    pub fields: Fields<'a>,
}

/// The head of an interim or final response, as received.
#[derive(Debug, Clone, Copy)]
pub struct ResponseHead<'a> {
    /// 100 to 999.
    pub status: u16,
    /// It came in HTTP/1.0.
    pub is_http10: bool,
    /// The field lines.
    pub fields: Fields<'a>,
}

/// What happened on a connection. Borrowed parts live until the next call on the connection.
#[derive(Debug)]
pub enum Event<'a> {
    /// A request arrived (server role).
    Request {
        /// Its stream.
        stream: StreamId,
        /// Method, path, fields.
        head: RequestHead<'a>,
        /// Nothing follows: no body, no trailers.
        end_stream: bool,
    },
    /// A 1xx response arrived (client role). Any number may precede the final one.
    Interim {
        /// Its stream.
        stream: StreamId,
        /// Status 100 to 199 and fields.
        head: ResponseHead<'a>,
    },
    /// The final response's head arrived (client role).
    Response {
        /// Its stream.
        stream: StreamId,
        /// Status 200 to 999 and fields; 101 where the answer to [`super::Connection::send_connect`] switches
        /// protocols.
        head: ResponseHead<'a>,
        /// Nothing follows.
        end_stream: bool,
    },
    /// Body bytes arrived, from a DATA frame or from a piece of a long one. Credit is returned automatically unless
    /// [`super::FlowControl::manual_release`] is set.
    Data {
        /// Its stream.
        stream: StreamId,
        /// The bytes, without padding or chunk framing. May be empty when `end_stream` is set.
        data: &'a [u8],
        /// This was the last of it.
        end_stream: bool,
    },
    /// Trailer fields arrived; the message is complete.
    Trailers {
        /// Its stream.
        stream: StreamId,
        /// The fields.
        fields: Fields<'a>,
    },
    /// The server promises a response (client role, RFC 9113 §8.4).
    PushPromise {
        /// The stream of the request that caused it.
        stream: StreamId,
        /// The stream that the response will come on.
        promised: StreamId,
        /// The request that it answers.
        head: RequestHead<'a>,
    },
    /// A stream can take more body: its windows opened or the output buffer drained after a short `send_data`. HTTP/2
    /// reserves room for it until `poll_event` has returned `None` and is called again. A role that has nothing to send
    /// then need not do anything.
    Writable {
        /// The stream.
        stream: StreamId,
    },
    /// A stream ended prematurely.
    Reset {
        /// The stream.
        stream: StreamId,
        /// Why.
        code: ErrorCode,
        /// Who ended it.
        initiator: Initiator,
    },
    /// The peer will accept no new streams; those above `last_stream` were not and will not be processed and may be
    /// sent again elsewhere (RFC 9113 §6.8).
    GoAway {
        /// The highest stream that was or might be processed.
        last_stream: StreamId,
        /// Why.
        code: ErrorCode,
        /// Additional debug data, opaque.
        debug: &'a [u8],
    },
    /// The peer's SETTINGS arrived (again): limits such as [`super::Connection::available_streams`] may have changed.
    Settings,
    /// Our PING was acknowledged.
    Pong {
        /// The time since it was sent.
        rtt: Duration,
    },
    /// The connection is finished: `None` after an orderly end, else why. Nothing follows this event.
    ///
    /// Streams that were still open are lost; what has been transmitted of them may or may not have been processed.
    Closed {
        /// The cause.
        error: Option<Error>,
    },
}

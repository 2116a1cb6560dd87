//! Sans-IO HTTP engines: HTTP/3 (RFC 9114, QPACK RFC 9204), HTTP/2 (RFC 9113, HPACK RFC 7541) and HTTP/1.1 (RFC 9112),
//! both roles, one vocabulary.
//!
//! Every role of h2lab (generator, origin, probe, sidecar) drives a [`Connection`]. It never does I/O, never reads the
//! clock and never allocates per frame on the hot path. Its methods form three families:
//!
//! - `handle_*`: inputs. Bytes are read straight into [`Connection::recv_space`] and announced by
//!   [`Connection::handle_received`]; the end of the stream by [`Connection::handle_eof`]; the passing of a deadline by
//!   [`Connection::handle_timeout`]; bytes accepted by the transport by [`Connection::handle_transmitted`].
//! - `send_*`, `reset`, `goaway`, `ping`: commands. They only queue bytes.
//! - `poll_*`: outputs. After any input call [`Connection::poll_event`] until it returns `None`, then write what
//!   [`Connection::poll_transmit`] shows, then arm a timer for [`Connection::poll_timeout`]. Bodies passed to
//!   [`Connection::send_static`] lie elsewhere: [`Connection::poll_transmit_slices`].
//!
//! HTTP/3 has its bytes in many streams, which those methods cannot express: see [`h3::transport`]. All else is the
//! same.
//!
//! A peer can never cause a panic. What it does wrong becomes an [`Error`] whose variant says whose fault it was; the
//! engine itself queues the GOAWAY or RST_STREAM, and then reports [`Event::Closed`] or [`Event::Reset`].
//!
//! Never contains: sockets, a clock, TLS, QUIC packets, runs, reports.
#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod authority;
pub mod budget;
mod compression;
pub mod connection;
mod content;
mod ending;
pub mod engine;
pub mod error;
pub mod event;
mod fault;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod h1;
pub mod h2;
pub mod h3;
pub mod limits;
mod message;
pub mod own_answers;
mod priority;
mod queue;
pub mod structured;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
pub mod trace;
mod upgrade;

pub use authority::is_authority;
pub use budget::WindowBudget;
pub use connection::{Config, Counters, FlowControl};
pub use engine::{Connection, setting_name_in};
pub use error::{Error, ErrorCode, Initiator};
pub use event::{Event, Field, Fields, RequestHead, ResponseHead};
pub use limits::{Exceeded, Limit, Limits};
pub use priority::Priority;

/// Which side of the connection we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Sends requests.
    Client,
    /// Answers them.
    Server,
}

/// A stream within its connection.
///
/// HTTP/2: RFC 9113 §5.1.1, odd for requests of the client. HTTP/1.1 has no streams, and those of HTTP/3 have QUIC's
/// numbers ([`h3::stream::QuicStreamId`]): the n-th request of a connection, counted from 0, is given 2n + 1, so that
/// all protocols count alike.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct StreamId(pub u32);

impl StreamId {
    /// Stream 0: the connection itself.
    pub const CONNECTION: Self = Self(0);

    /// The id of the `n`-th request of a client, counted from 0.
    pub const fn of_request(n: u32) -> Self {
        Self(2 * n + 1)
    }
}

impl std::fmt::Display for StreamId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

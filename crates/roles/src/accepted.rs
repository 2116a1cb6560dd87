//! What every server of ours does with an accepted connection, apart from HTTP itself: it detects which version the
//! client speaks, and after the last response it reads for a while what the client still sends.

use std::time::Duration;

use h2lab_base::units::Time;

use h2lab_net::byte_stream::ByteStream;
use h2lab_net::tcp::Read;
use h2lab_net::transport::{Sent, Transport, TransportError};
use h2lab_wire::Connection;
use h2lab_wire::trace::Crossing;

/// The beginning of an HTTP/2 connection by prior knowledge (RFC 9113 §3.4). Four bytes distinguish it from any real HTTP/1.1
/// request; the engine checks the rest.
const PREFACE_START: &[u8] = b"PRI ";
/// How long we read what a client still sends after our last response.
pub const LINGER: Duration = Duration::from_secs(5);
/// How many of these bytes we read at most. This is more than any window that we grant, so a client that stops after
/// our last response has sent everything that was in flight.
pub const LINGER_BYTES: usize = 64 << 20;
/// Bytes that one connection sends, or that are read from it, before the other connections get their turn.
pub const TURN: usize = 1 << 20;

/// Which version of HTTP a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spoken {
    /// Too few bytes have arrived to tell.
    Unknown,
    /// The client closed its direction before it had sent enough bytes to tell.
    Nothing,
    /// HTTP/1.1.
    H1,
    /// HTTP/2.
    H2,
}

/// Detects which version a client speaks over TCP, after the TLS handshake if there is one: by ALPN, or by the first
/// bytes, which are kept in `first_bytes`.
pub fn spoken(stream: &mut ByteStream, first_bytes: &mut Vec<u8>) -> Result<Spoken, TransportError> {
    if let Some(alpn) = stream.alpn() {
        return Ok(if alpn == b"h2" { Spoken::H2 } else { Spoken::H1 });
    }
    let mut space = [0; 16 * 1024];
    loop {
        match stream.read(&mut space)? {
            Read::WouldBlock => return Ok(Spoken::Unknown),
            Read::Eof | Read::Truncated => return Ok(Spoken::Nothing),
            Read::Bytes(n) => first_bytes.extend_from_slice(&space[..n]),
        }
        let known = first_bytes.len().min(PREFACE_START.len());
        match first_bytes[..known] == PREFACE_START[..known] {
            false => return Ok(Spoken::H1),
            true if known == PREFACE_START.len() => return Ok(Spoken::H2),
            true => {} // a client that sends "PR" and no more runs into the timeout
        }
    }
}

/// Writes what the engine has to send. Returns `false` if the socket was full before everything was written. Adds the
/// bytes written to `sent`, even on an error.
pub fn flush(
    transport: &mut Transport,
    engine: &mut Connection,
    now: Time,
    sent: &mut u64,
) -> Result<bool, TransportError> {
    flush_seen(transport, engine, now, sent, &mut |_| ())
}

/// The same, observed by `see`.
pub fn flush_seen(
    transport: &mut Transport,
    engine: &mut Connection,
    now: Time,
    sent: &mut u64,
    see: &mut impl FnMut(Crossing<'_>),
) -> Result<bool, TransportError> {
    loop {
        match transport.send(engine, now, see)? {
            Sent::Bytes { bytes, .. } => *sent += bytes as u64,
            Sent::Nothing => return transport.flush(now),
            Sent::WouldBlock => return Ok(false),
        }
    }
}

/// A connection on which everything was sent and our direction is closed. What the client still sends is read and
/// discarded for a limited time, up to a limited number of bytes, or until it ends. Otherwise the kernel would answer
/// unread bytes of a closed socket with a reset, which may destroy our last response on its way (RFC 9112 §9.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lingering {
    /// When it ends.
    pub until: Time,
    left: usize,
}

impl Lingering {
    /// It begins.
    pub fn new(now: Time) -> Self {
        Self { until: now + LINGER, left: LINGER_BYTES }
    }

    /// Discards what has arrived, up to [`TURN`]. Returns `None` if the client has finished or has sent too much;
    /// otherwise whether more may be readable.
    pub fn discard(&mut self, stream: &mut ByteStream) -> Result<Option<bool>, TransportError> {
        let mut space = [0; 16 * 1024];
        let mut turn = 0;
        while turn <= TURN {
            match stream.read(&mut space)? {
                Read::Bytes(n) => {
                    turn += n;
                    self.left = self.left.saturating_sub(n);
                }
                Read::WouldBlock => return Ok((self.left > 0).then_some(false)),
                Read::Eof | Read::Truncated => return Ok(None),
            }
        }
        Ok((self.left > 0).then_some(true))
    }
}

//! What every server of ours does with a connection that it has accepted, beside HTTP: finds out which version the client speaks, and
//! reads for a while what it still sends after the last response.

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
/// How long what a client still sends is read after our last word.
pub const LINGER: Duration = Duration::from_secs(5);
/// How many bytes of that at most: more than any window that we grant, so that a client which takes note of our last word has sent
/// all that was under way.
pub const LINGER_BYTES: usize = 64 << 20;
/// Bytes that one connection sends, or that are read of it, before it is the others' turn.
pub const TURN: usize = 1 << 20;

/// Which version of HTTP a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spoken {
    /// It has not said enough.
    Unknown,
    /// It has said that it is done.
    Nothing,
    /// HTTP/1.1.
    H1,
    /// HTTP/2.
    H2,
}

/// Finds out which version a client speaks over TCP: by ALPN, or by the first bytes, which are kept in `first_bytes`. After TLS's
/// handshake.
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

/// Writes what the engine has until it is empty, or the socket is full: then `false`. Adds what was taken to `sent`, even on an
/// error.
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

/// All was said and our direction is closed. What still comes is read and thrown away for a while, so many bytes, or to the end: the
/// kernel answers unread bytes of a closed socket by a reset, which may destroy our last answer on its way (RFC 9112 §9.6).
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

    /// Throws away what has come, up to [`TURN`]. `None` if that was all there will be, or too much; else whether more may be there.
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

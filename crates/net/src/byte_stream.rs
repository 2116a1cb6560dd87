//! TCP or TLS over TCP as one type that moves plaintext.

use std::io;

use h2lab_base::counters::TlsRecords;
use h2lab_base::units::Time;

use super::crossing::TransportError;
use super::rcvlowat::RcvLowat;
use super::tcp::{Read, StreamSocket, Written};
use super::tls::{RecordMeter, TlsFacts, TlsSession};

/// Plaintext of a TLS record, in bytes, at most (RFC 8446 §5.1).
const LONGEST_RECORD: u64 = 16 * 1024;

/// How many bytes at least will come on the socket if `expected` bytes of a body are still to be read. TLS may already
/// have the beginning of a record; ciphertext is longer than its plaintext.
const fn to_come(expected: u64, is_tls: bool) -> u64 {
    if is_tls { expected.saturating_sub(LONGEST_RECORD) } else { expected }
}

/// A connected stream, in clear or with TLS.
#[derive(Debug)]
pub struct ByteStream {
    stream: StreamSocket,
    tls: Option<Box<Encrypted>>,
    /// The last read left nothing in the socket.
    drained: bool,
    rcvlowat: RcvLowat,
}

/// What TLS needs beside the socket.
#[derive(Debug)]
struct Encrypted {
    session: TlsSession,
    /// Ciphertext read from the socket; `from..to` has not been taken by the session yet.
    incoming: Vec<u8>,
    from: usize,
    to: usize,
    records: RecordMeter,
}

impl Encrypted {
    /// The first size of `incoming`: a small answer, or a server's part of a handshake. Ten thousand connections need no more.
    const FIRST_INCOMING: usize = 4 * 1024;
    /// A read that fills it doubles its size, up to 16 records, which one system call then reads.
    const MOST_INCOMING: usize = 256 * 1024;
}

impl ByteStream {
    /// `stream` in clear.
    pub const fn clear(stream: StreamSocket) -> Self {
        Self { stream, tls: None, drained: false, rcvlowat: RcvLowat::new() }
    }

    /// `stream` under `session`. A client's `ClientHello` goes with the first [`ByteStream::flush`].
    pub fn tls(stream: StreamSocket, session: TlsSession) -> Self {
        let incoming = Vec::new();
        let tls =
            Some(Box::new(Encrypted { session, incoming, from: 0, to: 0, records: RecordMeter::default() }));
        Self { tls, ..Self::clear(stream) }
    }

    /// The socket below, for its addresses and `TCP_INFO`.
    #[inline]
    pub const fn stream(&self) -> &StreamSocket {
        &self.stream
    }

    /// The socket of a stream in clear, after everything was written; `None` with TLS, whose session ends.
    pub fn into_clear(self) -> Option<StreamSocket> {
        self.tls.is_none().then_some(self.stream)
    }

    /// Whether it is TLS.
    pub const fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether the TLS handshake is still under way.
    pub fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.session.is_handshaking())
    }

    /// The protocol that ALPN chose, if any.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.tls.as_ref().and_then(|tls| tls.session.alpn())
    }

    /// Whether the TLS handshake resumed an earlier session; `None` in clear and until that is known.
    pub fn is_resumed(&self) -> Option<bool> {
        self.tls.as_ref().and_then(|tls| tls.session.is_resumed())
    }

    /// What TLS negotiated; `None` in clear and until that is known.
    pub fn tls_facts(&self) -> Option<TlsFacts> {
        self.tls.as_ref().and_then(|tls| tls.session.facts())
    }

    /// The TLS records that have come; none in clear.
    pub fn tls_records(&self) -> TlsRecords {
        self.tls.as_ref().map_or_else(TlsRecords::default, |tls| tls.records.counted())
    }

    /// Drives the TLS handshake with what the socket has; `true` when it is over, which it always is in clear. Takes no
    /// plaintext: when the handshake ends, read at once, since the first bytes may have come with it.
    pub fn handshake(&mut self) -> Result<bool, TransportError> {
        let Some(tls) = &mut self.tls else { return Ok(true) };
        let result = tls.handshake(&self.stream);
        // On an error this sends the peer an alert, if it still reads; our own error matters more than a failure of that.
        let flushed = tls.flush(&self.stream);
        let over = result?;
        flushed?;
        Ok(over)
    }

    /// Reads plaintext; drives the handshake. Follow it by a [`ByteStream::flush`] or [`ByteStream::write`]: TLS may have
    /// something to send.
    #[inline]
    pub fn read(&mut self, space: &mut [u8]) -> Result<Read, TransportError> {
        let Some(tls) = &mut self.tls else {
            let read = self.stream.read(space)?;
            if let Read::Bytes(n) = read {
                self.rcvlowat.received(n);
            }
            self.drained = !matches!(read, Read::Bytes(n) if n == space.len());
            return Ok(read);
        };
        self.drained = false;
        match tls.read(&self.stream, space) {
            Ok(read) => {
                self.drained = read == Read::WouldBlock;
                if let Read::Bytes(n) = read {
                    self.rcvlowat.received(n);
                }
                Ok(read)
            }
            Err(error) => {
                // Send the peer an alert, if it still reads; our own error matters more than a failure of that.
                let _ = self.flush();
                Err(error)
            }
        }
    }

    /// Whether the last read emptied the socket, so that no further read is needed unless there was a hang-up.
    #[inline]
    pub const fn is_drained(&self) -> bool {
        self.drained
    }

    /// The socket is drained at `now`, and `expected` bytes of a body come next on it: if these come fast, a completion is
    /// reported for many at a time.
    #[inline]
    pub fn rest(&mut self, expected: u64, now: Time) {
        if let Some(bytes) = self.rcvlowat.next(to_come(expected, self.is_tls()), now) {
            self.stream.set_rcvlowat(bytes);
        }
    }

    /// Writes plaintext. What was taken by TLS but not yet by the socket is kept, see [`ByteStream::wants_write`].
    #[inline]
    pub fn write(&mut self, plaintext: &[u8]) -> Result<Written, TransportError> {
        let Some(tls) = &mut self.tls else { return Ok(self.stream.write(plaintext)?) };
        if !tls.flush(&self.stream)? {
            return Ok(Written::WouldBlock);
        }
        match tls.session.write(plaintext)? {
            0 => Ok(Written::WouldBlock),
            n => {
                tls.flush(&self.stream)?;
                Ok(Written::Bytes(n))
            }
        }
    }

    /// The same for plaintext in several buffers. In clear it is one system call; TLS takes the first buffer only, so hand it one
    /// at a time.
    pub fn write_scattered(&mut self, places: &[&[u8]]) -> Result<Written, TransportError> {
        match (&self.tls, places) {
            (_, []) => Ok(Written::Bytes(0)),
            (None, places) => Ok(self.stream.write_scattered(places)?),
            (Some(_), [first, ..]) => self.write(first),
        }
    }

    /// Sends what TLS holds; `false` if the socket did not take it all and a completion must be awaited.
    #[inline]
    pub fn flush(&mut self) -> Result<bool, TransportError> {
        match &mut self.tls {
            Some(tls) => tls.flush(&self.stream),
            None => Ok(true),
        }
    }

    /// Whether bytes wait for room in the socket that only [`ByteStream::flush`] will send.
    pub fn wants_write(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.session.wants_send())
    }

    /// Takes the buffer for ciphertext, if there is one and nothing is in it. The next read allocates another, unless it is
    /// [given](ByteStream::give_buffer) one: of thousands of connections few read at a time.
    pub fn take_buffer(&mut self) -> Option<Vec<u8>> {
        let tls = self.tls.as_mut().filter(|tls| tls.from == tls.to && !tls.incoming.is_empty())?;
        Some(std::mem::take(&mut tls.incoming))
    }

    /// Whether it needs a buffer for ciphertext, and has none.
    pub fn wants_buffer(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.incoming.is_empty())
    }

    /// Gives it a buffer that [`ByteStream::take_buffer`] has taken from another stream.
    pub fn give_buffer(&mut self, buffer: Vec<u8>) {
        if let Some(tls) = self.tls.as_mut().filter(|tls| tls.incoming.is_empty()) {
            tls.incoming = buffer;
        }
    }

    /// Closes our direction (`close_notify` in TLS, then FIN).
    pub fn shutdown(&mut self) -> Result<(), TransportError> {
        if let Some(tls) = &mut self.tls {
            tls.session.close();
            tls.flush(&self.stream)?;
        }
        Ok(self.stream.shutdown_write()?)
    }
}

impl Encrypted {
    /// Reads plaintext, with as much ciphertext as that takes.
    fn read(&mut self, stream: &StreamSocket, space: &mut [u8]) -> Result<Read, TransportError> {
        loop {
            match self.session.read(space)? {
                Read::WouldBlock => {}
                read => return Ok(read),
            }
            if !self.feed(stream)? {
                return Ok(Read::WouldBlock);
            }
        }
    }

    /// Feeds the session until its handshake is over or the socket is empty.
    fn handshake(&mut self, stream: &StreamSocket) -> Result<bool, TransportError> {
        while self.session.is_handshaking() {
            if !self.feed(stream)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Gives the session ciphertext, from the socket if none is left over; `false` if there is none now.
    fn feed(&mut self, stream: &StreamSocket) -> Result<bool, TransportError> {
        if self.from == self.to {
            if self.incoming.is_empty() {
                self.incoming = vec![0; Self::FIRST_INCOMING];
            }
            match stream.read(&mut self.incoming)? {
                Read::Bytes(n) => {
                    self.records.feed(&self.incoming[..n]);
                    (self.from, self.to) = (0, n);
                    if n == self.incoming.len() && n < Self::MOST_INCOMING {
                        self.incoming.resize(2 * n, 0);
                    }
                }
                Read::WouldBlock => return Ok(false),
                Read::Eof | Read::Truncated => {
                    self.session.receive_eof()?;
                    return Ok(true);
                }
            }
        }
        self.from += self.session.receive(&self.incoming[self.from..self.to])?;
        Ok(true)
    }

    /// Sends ciphertext; `false` if some is left.
    fn flush(&mut self, mut stream: &StreamSocket) -> Result<bool, TransportError> {
        while self.session.wants_send() {
            match self.session.send(&mut stream) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn under_tls_nothing_is_waited_for_that_may_have_come_with_a_record_that_is_not_whole() {
        // A body of 100,000 bytes of which a whole record less one byte has come, and cannot be read yet.
        let (body, unread) = (100_000, LONGEST_RECORD - 1);
        assert!(to_come(body, true) <= body - unread);
        assert_eq!(to_come(unread, true), 0);
        assert_eq!(to_come(body, false), body);
    }
}

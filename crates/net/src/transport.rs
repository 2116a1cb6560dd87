//! What carries an engine's bytes: a TCP stream, in clear or with TLS, or the streams of QUIC.
//!
//! Roles drive both by the same calls: [`Transport::receive`] hands what has come to the engine, [`Transport::send`] takes what
//! it has to send, [`Transport::flush`] makes sure that it leaves. The difference between one byte stream and many stays in here.

use h2lab_base::counters::TlsRecords;
use h2lab_base::units::Time;
use h2lab_wire::trace::Crossing;
use h2lab_wire::{Config, Connection, ErrorCode};

use super::byte_stream::ByteStream;
pub use super::crossing::{Received, Sent, TransportError};
use super::quic::QuicSession;
use super::tcp::{Read, StreamSocket, Written};
use super::tls::TlsFacts;

/// A connection that carries an engine's bytes.
#[derive(Debug)]
pub enum Transport {
    /// TCP, with or without TLS.
    Stream(ByteStream),
    /// QUIC.
    Quic(Box<QuicSession>),
}

impl Transport {
    /// The TCP or Unix socket below, for its addresses and `TCP_INFO`; `None` below QUIC.
    #[inline]
    pub const fn tcp(&self) -> Option<&StreamSocket> {
        match self {
            Self::Stream(stream) => Some(stream.stream()),
            Self::Quic(_) => None,
        }
    }

    /// The byte stream, to be changed; `None` for QUIC.
    #[inline]
    pub const fn stream_mut(&mut self) -> Option<&mut ByteStream> {
        match self {
            Self::Stream(stream) => Some(stream),
            Self::Quic(_) => None,
        }
    }

    /// The QUIC connection, if it is one.
    #[inline]
    pub const fn quic(&self) -> Option<&QuicSession> {
        match self {
            Self::Stream(_) => None,
            Self::Quic(quic) => Some(quic),
        }
    }

    /// The same, to be changed.
    #[inline]
    pub const fn quic_mut(&mut self) -> Option<&mut QuicSession> {
        match self {
            Self::Stream(_) => None,
            Self::Quic(quic) => Some(quic),
        }
    }

    /// Whether the bytes are encrypted.
    pub const fn is_tls(&self) -> bool {
        match self {
            Self::Stream(stream) => stream.is_tls(),
            Self::Quic(_) => true,
        }
    }

    /// Whether the handshake is still under way.
    pub fn is_handshaking(&self) -> bool {
        match self {
            Self::Stream(stream) => stream.is_handshaking(),
            Self::Quic(quic) => quic.is_handshaking(),
        }
    }

    /// Whether the handshake resumed an earlier session; `None` where that is not known.
    pub fn is_resumed(&self) -> Option<bool> {
        match self {
            Self::Stream(stream) => stream.is_resumed(),
            Self::Quic(_) => None, // `quinn-proto` does not report it
        }
    }

    /// The TLS records that have come; none in clear, and in QUIC, which has none.
    pub fn tls_records(&self) -> TlsRecords {
        match self {
            Self::Stream(stream) => stream.tls_records(),
            Self::Quic(_) => TlsRecords::default(),
        }
    }

    /// What was negotiated; `None` in clear and while that is open.
    pub fn tls_facts(&self) -> Option<TlsFacts> {
        match self {
            Self::Stream(stream) => stream.tls_facts(),
            Self::Quic(quic) => quic.facts(),
        }
    }

    /// Drives the handshake with what the socket has; `true` when it is over, which it always is in clear. Takes no
    /// plaintext: when the handshake ends, receive at once, since the first bytes may have come with it.
    pub fn handshake(&mut self, now: Time) -> Result<bool, TransportError> {
        match self {
            Self::Stream(stream) => stream.handshake(),
            Self::Quic(quic) => quic.handshake(now),
        }
    }

    /// From now on windows are at most `bytes` bytes, below those of `config`.
    pub fn limit_windows(&mut self, engine: &mut Connection, config: &Config, bytes: u32) {
        engine.set_window_limit(bytes);
        if let Self::Quic(quic) = self {
            quic.limit_window(config.flow.within(bytes).connection_window);
        }
    }

    /// Whether it waits for what was written to arrive before it closes, and must go on receiving for that. With TCP
    /// the kernel does it.
    pub const fn is_closing(&self) -> bool {
        match self {
            Self::Stream(_) => false,
            Self::Quic(quic) => quic.is_closing(),
        }
    }

    /// When [`Transport::handle_timeout`] must be called. TCP's timers are in the kernel.
    #[inline]
    pub const fn timeout(&self) -> Time {
        match self {
            Self::Stream(_) => Time::NEVER,
            Self::Quic(quic) => quic.timeout(),
        }
    }

    /// Does what is due by now; returns whether anything was: then receive and flush.
    #[inline]
    pub fn handle_timeout(&mut self, now: Time) -> bool {
        match self {
            Self::Stream(_) => false,
            Self::Quic(quic) => quic.handle_timeout(now),
        }
    }

    /// Whether to receive now. An engine may have to wait until its peer has read: over TCP its only byte stream then
    /// has to wait. QUIC must still process acknowledgements, and leaves unread what the engine does not want.
    #[inline]
    pub fn may_receive(&self, engine: &Connection) -> bool {
        matches!(self, Self::Quic(_)) || engine.wants_input()
    }

    /// Whether something has arrived that the engine did not want then and wants now; over TCP a completion reports it.
    pub fn has_unread(&self, engine: &mut Connection) -> bool {
        match self {
            Self::Stream(_) => false,
            Self::Quic(quic) => engine.as_h3().is_some_and(|engine| quic.has_unread(engine)),
        }
    }

    /// Takes what has come and hands it to `engine`, whose events must be taken after each call; `see` observes it. A flush must
    /// follow: the transport may have to answer. `now` is called once, also if it ends in an error.
    pub fn receive(
        &mut self,
        engine: &mut Connection,
        now: impl Fn() -> Time,
        see: &mut impl FnMut(Time, Crossing<'_>),
    ) -> Result<Received, TransportError> {
        match self {
            Self::Stream(stream) => {
                let space = engine.recv_space();
                let read = stream.read(space);
                let now = now(); // of what was read, or of the error
                match read? {
                    Read::Bytes(n) => {
                        see(now, Crossing::tcp(&space[..n]));
                        engine.handle_received(now, n);
                        Ok(Received::Bytes(n))
                    }
                    Read::WouldBlock => Ok(Received::WouldBlock),
                    Read::Eof => {
                        engine.handle_eof(now);
                        Ok(Received::Eof)
                    }
                    Read::Truncated => {
                        engine.handle_truncation(now);
                        Ok(Received::Eof)
                    }
                }
            }
            Self::Quic(quic) => {
                let now = now();
                let Some(engine) = engine.as_h3() else { return Ok(Received::WouldBlock) };
                quic.receive(engine, now, &mut |crossing| see(now, crossing))
            }
        }
    }

    /// Whether the last call of [`Transport::receive`] emptied the socket, so that without a hangup another one is not needed.
    #[inline]
    pub const fn is_drained(&self) -> bool {
        match self {
            Self::Stream(stream) => stream.is_drained(),
            Self::Quic(_) => false,
        }
    }

    /// Called when nothing more is there at `now`, and `engine` has taken everything: waits for a completion. That may
    /// come later for bytes in the middle of a body that arrives fast. With `gathers` it comes later for whatever
    /// arrives during long bodies, and this is called again from time to time in case the peer has nothing more to
    /// send.
    #[inline]
    pub fn rest(&mut self, engine: &Connection, gathers: bool, now: Time) {
        if let Self::Stream(stream) = self {
            stream.rest(if gathers { engine.announced() } else { engine.expected() }, now);
        }
    }

    /// Takes some of what `engine` has to send; `see` observes it.
    pub fn send(
        &mut self,
        engine: &mut Connection,
        now: Time,
        see: &mut impl FnMut(Crossing<'_>),
    ) -> Result<Sent, TransportError> {
        match self {
            Self::Stream(stream) => {
                if engine.is_scattered() {
                    return send_scattered(stream, engine, now, see);
                }
                let bytes = engine.poll_transmit(now);
                if bytes.is_empty() {
                    return Ok(Sent::Nothing);
                }
                match stream.write(bytes)? {
                    Written::Bytes(n) => {
                        see(Crossing::tcp(&bytes[..n]));
                        engine.handle_transmitted(now, n);
                        Ok(Sent::Bytes { stream: None, bytes: n })
                    }
                    Written::WouldBlock => Ok(Sent::WouldBlock),
                }
            }
            Self::Quic(quic) => {
                let Some(engine) = engine.as_h3() else { return Ok(Sent::Nothing) };
                Ok(quic.send(engine, now, see))
            }
        }
    }

    /// Sends what the transport itself holds; `false` if the socket did not take it all and a completion must be awaited.
    #[inline]
    pub fn flush(&mut self, now: Time) -> Result<bool, TransportError> {
        match self {
            Self::Stream(stream) => stream.flush(),
            Self::Quic(quic) => quic.flush(now),
        }
    }

    /// Closes the transport and ends our direction: `close_notify` and FIN, or `CONNECTION_CLOSE`.
    pub fn shutdown(&mut self, now: Time) -> Result<(), TransportError> {
        match self {
            Self::Stream(stream) => stream.shutdown(),
            Self::Quic(quic) => {
                quic.close(now, ErrorCode::H3_NO_ERROR, bytes::Bytes::new());
                quic.flush(now).map(drop)
            }
        }
    }
}

/// Takes some of what `engine` has to send from several buffers, in one system call.
fn send_scattered(
    stream: &mut ByteStream,
    engine: &mut Connection,
    now: Time,
    see: &mut impl FnMut(Crossing<'_>),
) -> Result<Sent, TransportError> {
    let mut places = [&[][..]; StreamSocket::PLACES];
    let count = engine.poll_transmit_slices(now, &mut places);
    let Written::Bytes(n) = stream.write_scattered(&places[..count])? else { return Ok(Sent::WouldBlock) };
    let mut left = n;
    for place in &places[..count] {
        let (taken, _) = place.split_at(place.len().min(left));
        left -= taken.len();
        if !taken.is_empty() {
            see(Crossing::tcp(taken));
        }
    }
    engine.handle_transmitted(now, n);
    Ok(Sent::Bytes { stream: None, bytes: n })
}

#[cfg(test)]
mod tests {
    use h2lab_wire::connection::{Request, Response};
    use h2lab_wire::{Event, Role};

    use super::*;
    use crate::storage::body::Body;

    const NOW: Time = Time::from_millis(1_000);

    /// Hands what one end has to send to the other.
    fn carry(from: &mut Connection, to: &mut Connection) {
        to.handle_input(NOW, &from.take_transmit(NOW));
    }

    #[test]
    fn all_that_an_engine_has_to_say_in_frames_of_16_kib_is_one_write() {
        let mut config = Config::new(Role::Client);
        (config.flow.stream_window, config.flow.connection_window) = (1 << 24, 1 << 24);
        let mut client = Connection::h2(config, NOW);
        let mut server = Connection::h2(Config::new(Role::Server), NOW);
        let request = Request {
            method: "GET",
            authority: "h",
            path: "/",
            fields: &[],
            body_length: None,
            end_stream: true,
        };
        carry(&mut server, &mut client);
        let stream = client.send_request(NOW, &request).unwrap();
        carry(&mut client, &mut server);
        while !matches!(server.poll_event(NOW), Some(Event::Request { .. })) {}
        let response = Response { status: 200, fields: &[], body_length: None, end_stream: false };
        server.send_response(NOW, stream, &response);
        let (mut body, mut frames) = (Body::filler(1 << 30), 0);
        loop {
            let n = server.send_static(NOW, stream, body.lasting_piece(u64::MAX).unwrap(), false);
            if n == 0 {
                break;
            }
            body.advance(n);
            frames += n.div_ceil(16_384);
        }
        assert!(frames >= 16, "{frames} of 16 KiB");
        let unsent = server.unsent();
        let mut places = [&[][..]; StreamSocket::PLACES];
        let count = server.poll_transmit_slices(NOW, &mut places);
        assert_eq!(places[..count].iter().map(|place| place.len()).sum::<usize>(), unsent);
    }
}

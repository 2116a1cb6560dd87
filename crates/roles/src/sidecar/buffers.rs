//! Memory that connections work in: those of clients over HTTP/1.1, and all over TLS. A loop has as much of it as
//! connections are at work at the same time, not as connections are open: it is lent before something is read or
//! written, and taken back when nothing is in it any more.

use h2lab_net::byte_stream::ByteStream;
use h2lab_net::transport::Transport;
use h2lab_wire::Connection;
use h2lab_wire::h1::Buffers;

/// Unused memory is kept up to this many bytes, which large bodies reach, and up to [`MOST`] buffers, more than a turn
/// of the loop usually needs at a time.
const MOST_BYTES: usize = 4 * 1024 * 1024;
/// See [`MOST_BYTES`].
const MOST: usize = 256;

/// Buffers that no connection uses. The one that was used last is lent first: the CPU has it in its caches.
#[derive(Debug, Default)]
pub struct SpareBuffers {
    all: Vec<Buffers>,
    bytes: usize,
    /// Buffers for ciphertext, bounded likewise.
    ciphertext: Vec<Vec<u8>>,
    ciphertext_bytes: usize,
}

impl SpareBuffers {
    /// Before a connection reads, or a response is written on it.
    pub fn lend(&mut self, engine: &mut Connection) {
        if engine.wants_buffers()
            && let Some(buffers) = self.all.pop()
        {
            self.bytes -= buffers.held();
            engine.lend_buffers(buffers);
        }
    }

    /// After a connection was written.
    pub fn take_back(&mut self, engine: &mut Connection) {
        let Some(buffers) = engine.take_buffers() else { return };
        let bytes = self.bytes + buffers.held();
        if self.all.len() < MOST && bytes <= MOST_BYTES {
            self.bytes = bytes;
            self.all.push(buffers);
        }
    }
}

impl SpareBuffers {
    /// Before a connection reads, or continues its handshake.
    pub fn lend_transport(&mut self, transport: &mut Transport) {
        if let Some(stream) = transport.stream_mut()
            && stream.wants_buffer()
            && let Some(buffer) = self.ciphertext.pop()
        {
            self.ciphertext_bytes -= buffer.len();
            stream.give_buffer(buffer);
        }
    }

    /// After a connection was written.
    pub fn take_back_transport(&mut self, transport: &mut Transport) {
        let Some(buffer) = transport.stream_mut().and_then(ByteStream::take_buffer) else { return };
        let bytes = self.ciphertext_bytes + buffer.len();
        if self.ciphertext.len() < MOST && bytes <= MOST_BYTES {
            self.ciphertext_bytes = bytes;
            self.ciphertext.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use h2lab_base::units::Time;
    use h2lab_wire::{Config, Role};

    use super::*;

    const NOW: Time = Time::from_millis(1_000);

    fn server() -> Connection {
        Connection::h1(Config::new(Role::Server))
    }

    #[test]
    fn ten_connections_one_after_the_other_work_in_the_same_memory() {
        let mut spare = SpareBuffers::default();
        let mut open: Vec<Connection> = (0..10).map(|_| server()).collect();
        let bare = open[0].held_bytes();
        let mut first = None;
        for engine in &mut open {
            spare.lend(engine);
            engine.handle_input(NOW, b"\r\n");
            assert!(engine.poll_event(NOW).is_none());
            let place = *first.get_or_insert(engine.recv_space().as_ptr());
            assert_eq!(engine.recv_space().as_ptr(), place);
            spare.take_back(engine);
            assert_eq!(engine.held_bytes(), bare);
        }
        assert_eq!(spare.all.len(), 1);
    }

    #[test]
    fn what_is_spare_is_bounded() {
        let mut spare = SpareBuffers::default();
        let mut open: Vec<Connection> = (0..2 * MOST).map(|_| server()).collect();
        for engine in &mut open {
            engine.handle_input(NOW, b"\r\n");
            assert!(engine.poll_event(NOW).is_none());
        }
        for engine in &mut open {
            spare.take_back(engine);
        }
        assert_eq!(spare.all.len(), MOST);
        assert_eq!(spare.bytes, spare.all.iter().map(Buffers::held).sum::<usize>());
    }
}

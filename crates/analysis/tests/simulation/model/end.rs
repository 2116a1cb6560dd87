//! One end of a connection: a socket, an engine, and the role that drives both. The same for client and server.

use h2lab_base::units::Time;
use h2lab_wire::{Connection, Event};

use h2lab_link::tcp::Socket;

/// The reaction of an end to its engine's events.
pub trait Role {
    /// Bytes were read from the socket.
    fn received(&mut self, now: Time, bytes: &[u8]);
    /// Bytes were accepted by the socket.
    fn sent(&mut self, now: Time, bytes: &[u8]);
    /// An event of the engine.
    fn note(&mut self, now: Time, event: &Event<'_>);
    /// The peer closed its direction, and the engine has reported all events before that.
    fn at_end(&mut self, now: Time);
    /// The connection was reset.
    fn broken(&mut self, now: Time);
    /// Gives the engine its commands; returns whether there were any.
    fn act(&mut self, now: Time, engine: &mut Connection) -> bool;
    /// Whether the connection is to be closed after everything has been sent.
    fn is_over(&self) -> bool;
}

/// A socket and an engine.
#[derive(Debug)]
pub struct End {
    /// The transport.
    pub socket: Socket,
    /// The protocol.
    pub engine: Connection,
    /// The end of input was reported to the role.
    reported: bool,
}

impl End {
    /// An engine on a socket.
    pub fn new(socket: Socket, engine: Connection) -> Self {
        Self { socket, engine, reported: false }
    }

    /// Reads, acts and writes until there is no progress.
    pub fn advance(&mut self, now: Time, role: &mut impl Role) {
        self.socket.handle_timeout(now);
        if self.engine.poll_timeout() <= now {
            self.engine.handle_timeout(now);
        }
        loop {
            self.take_events(now, role); // commands have consequences too
            let mut moved = self.receive(now, role);
            moved |= role.act(now, &mut self.engine);
            moved |= self.transmit(now, role);
            if !moved {
                break;
            }
        }
        if role.is_over() && self.engine.poll_transmit(now).is_empty() {
            self.socket.close();
        }
    }

    fn take_events(&mut self, now: Time, role: &mut impl Role) {
        while let Some(event) = self.engine.poll_event(now) {
            role.note(now, &event);
        }
    }

    fn receive(&mut self, now: Time, role: &mut impl Role) -> bool {
        let mut moved = false;
        loop {
            let space = self.engine.recv_space();
            let n = self.socket.read(now, space);
            if n == 0 {
                break;
            }
            role.received(now, &space[..n]);
            self.engine.handle_received(now, n);
            self.take_events(now, role);
            moved = true;
        }
        if self.reported {
            return moved;
        }
        if self.socket.is_reset() {
            self.reported = true;
            role.broken(now);
        } else if self.socket.is_at_end() {
            self.reported = true;
            self.engine.handle_eof(now);
            self.take_events(now, role);
            role.at_end(now);
        }
        moved
    }

    fn transmit(&mut self, now: Time, role: &mut impl Role) -> bool {
        let mut moved = false;
        loop {
            let bytes = self.engine.poll_transmit(now);
            let n = self.socket.write(bytes);
            if n == 0 {
                return moved;
            }
            role.sent(now, &bytes[..n]);
            self.engine.handle_transmitted(now, n);
            self.take_events(now, role);
            moved = true;
        }
    }

    /// When [`End::advance`] must be called although nothing arrives.
    pub fn deadline(&self) -> Time {
        self.socket.poll_timeout().min(self.engine.poll_timeout())
    }
}

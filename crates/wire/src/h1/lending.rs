//! Buffers that a role lends to a server's connection while it works on something.

use super::buffer::Buffers;
use super::connection::{Connection, Life, Receiving, Sending};
use crate::Role;

impl Connection {
    /// See [`crate::Connection::wants_buffers`].
    pub(crate) fn wants_buffers(&self) -> bool {
        self.input.is_bare() && self.config.role == Role::Server
    }

    /// See [`crate::Connection::lend_buffers`].
    pub(crate) fn lend_buffers(&mut self, buffers: Buffers) {
        if self.wants_buffers() {
            buffers.give(&mut self.input, &mut self.output, &mut self.scratch);
        }
    }

    /// See [`crate::Connection::take_buffers`]. A connection keeps its buffers during a body, which is read and written
    /// piece by piece and determines their size.
    pub(crate) fn take_buffers(&mut self) -> Option<Buffers> {
        let is_waiting = self.exchange.as_ref().is_none_or(|exchange| exchange.sending == Sending::Head)
            && matches!(self.receiving, Receiving::Head | Receiving::Complete)
            && matches!(self.life, Life::Open);
        let is_unused = self.input.is_empty() && self.output.is_empty() && !self.input.is_bare();
        // A client's scratch has the fields of the last response, which may come again.
        (is_waiting && is_unused && self.config.role == Role::Server)
            .then(|| Buffers::taken(&mut self.input, &mut self.output, &mut self.scratch))
    }
}

//! `PRIORITY_UPDATE` (RFC 9218 §7), both roles. The `priority` field of a request is read where that begins, in `headers`.

use std::collections::VecDeque;
use std::ops::Range;

use super::fault::Fault;
use super::frame::kind;
use super::{Connection, Occurrence, Role};
use crate::units::Time;
use crate::wire::{Priority, StreamId};

/// Wishes for requests that are still to come, which a client may send first. The oldest give way: a client can have
/// few requests on their way that it has already thought better of.
#[derive(Debug, Default)]
pub(super) struct EarlyWishes(VecDeque<(u32, Priority)>);

impl EarlyWishes {
    /// How many are kept.
    const MOST: usize = 100;

    fn put(&mut self, stream: u32, value: &[u8]) {
        // It replaces all that was said before: what it leaves out has its default.
        self.take(stream);
        let wish = Priority::default().updated_by(value);
        if self.0.len() == Self::MOST {
            self.0.pop_front();
        }
        self.0.push_back((stream, wish));
    }

    /// The wish for a stream that begins now. It outweighs the `priority` field, being the later word (RFC 9218 §7).
    pub(super) fn take(&mut self, stream: u32) -> Option<Priority> {
        if self.0.is_empty() {
            return None;
        }
        let at = self.0.iter().position(|(early, _)| *early == stream)?;
        self.0.remove(at).map(|(_, wish)| wish)
    }
}

impl Connection {
    pub(super) fn receive_priority_update(
        &mut self,
        id: u32,
        value: Range<usize>,
    ) -> Result<Option<Occurrence>, Fault> {
        if self.config.role == Role::Client {
            return Err(Fault::protocol("PRIORITY_UPDATE from a server (RFC 9218 §7.1)"));
        }
        let is_promise = !self.is_of_peer(id);
        if id == 0 || (is_promise && self.is_idle(id)) {
            return Err(Fault::protocol("PRIORITY_UPDATE of a stream that cannot be (RFC 9218 §7.1)"));
        }
        self.noise()?; // it changes the order of our answers, but who changes its mind so often?
        let value = self.input.slice(value.start, value.end);
        match self.streams.find(id) {
            Some(key) => {
                let wish = Priority::default().updated_by(value);
                self.reprioritise(key, wish);
            }
            None if self.is_idle(id) => self.wishes.put(id, value),
            None => {} // it has ended
        }
        Ok(None)
    }

    /// See [`super::super::Connection::send_priority_update`].
    pub fn send_priority_update(&mut self, _now: Time, stream: StreamId, priority: Priority) {
        if self.config.role == Role::Client && self.end.is_open() && self.streams.find(stream.0).is_some() {
            let value = priority.to_string();
            let payload = [&stream.0.to_be_bytes()[..], value.as_bytes()].concat();
            self.put_frame(kind::PRIORITY_UPDATE, 0, 0, &payload);
        }
    }
}

//! `PRIORITY_UPDATE` (RFC 9218 §7), both roles. The `priority` field of a request is read when the request begins, in
//! `headers`.

use std::ops::Range;

use super::fault::Fault;
use super::frame::kind;
use super::{Connection, Received, Role};
use crate::{Priority, StreamId};
use h2lab_base::units::Time;

impl Connection {
    pub(super) fn receive_priority_update(&mut self, id: u32, value: Range<usize>) -> Received {
        if self.config.role == Role::Client {
            return Err(Fault::protocol("PRIORITY_UPDATE from a server (RFC 9218 §7.1)"));
        }
        let is_promise = !self.is_of_peer(id);
        if id == 0 || (is_promise && self.is_idle(id)) {
            return Err(Fault::protocol("PRIORITY_UPDATE of a stream that cannot be (RFC 9218 §7.1)"));
        }
        self.noise()?; // it changes the order of our answers, but no client needs it this often
        let value = self.input.slice(value.start, value.end);
        match self.streams.find(id) {
            Some(key) => {
                let priority = Priority::default().updated_by(value);
                self.reprioritise(key, priority);
            }
            None if self.is_idle(id) => self.early_priorities.put(id, value),
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

//! Reactions to a peer that exceeds one of its [`crate::Limits`].

use super::Connection;
use super::fault::Fault;
use super::frame::HEADER_LENGTH;
use super::stream::{Side, Wait};
use super::streams::Ending;
use crate::limits::deadlines::Overdue;
use crate::limits::{Exceeded, Limit};
use crate::{Error, ErrorCode, Role};
use h2lab_base::units::Time;

impl Connection {
    /// The peer sent a frame that changes nothing.
    pub(super) fn noise(&mut self) -> Result<(), Fault> {
        let streams = match self.config.role {
            Role::Server => self.highest_peer.div_ceil(2),
            Role::Client => self.next_local / 2,
        };
        self.accounts.noise(u64::from(streams))
    }

    /// Ends the connection with the bound that the peer exceeded.
    pub(super) fn exceed(&mut self, exceeded: Exceeded, code: ErrorCode) {
        self.counters.limit_hit(exceeded.limit);
        self.fail(Error::Exceeded(exceeded), code, exceeded.to_string().as_bytes());
    }

    /// All whole frames are taken: starts the timer of a head, or frame without body, that is incomplete.
    pub(super) fn watch_input(&mut self, now: Time) {
        let unread = self.input.unread();
        let is_data =
            self.rest.is_some() || (unread.len() >= HEADER_LENGTH && unread[3] == super::kind::DATA);
        let block = self.assembly.begun_at_frame();
        let number = match (block, unread.is_empty() || is_data) {
            (Some(_), _) => block,
            (None, true) => None,
            (None, false) => Some(self.accounts.frames()),
        };
        // The rest may have come: we do not read it.
        let number = number.filter(|_| self.wants_input());
        self.deadlines.head_under_way(now, number);
    }

    /// The number of the frame under way.
    pub(super) const fn frame_number(&self) -> u64 {
        self.accounts.frames()
    }

    /// See [`crate::Connection::handle_acknowledged`]. The bytes that a stream has sent may still be on their way, so
    /// that the peer cannot have opened the window again.
    pub fn handle_acknowledged(&mut self, now: Time) {
        self.deadlines.taken(now);
        self.took_at = now;
    }

    /// Acts on the peer's expired deadlines.
    pub(super) fn handle_timeouts(&mut self, now: Time) {
        while let Some(overdue) = self.deadlines.overdue(now, self.streams.len() > 0) {
            match overdue {
                Overdue::Head => self.exceed_time(Limit::SlowHead),
                Overdue::Output => self.exceed_time(Limit::Stall),
                Overdue::Idle => {
                    let idle = self.deadlines.exceeded(Limit::Idle);
                    self.counters.limit_hit(Limit::Idle);
                    self.accept_no_more(ErrorCode::NO_ERROR, idle.to_string().as_bytes());
                }
                Overdue::Body(mark) => self.evict_slow_bodies(now, mark),
                Overdue::BodyInTime => self.rearm_bodies(now),
                Overdue::Windows => self.evict_stalled(now),
            }
        }
    }

    fn exceed_time(&mut self, limit: Limit) {
        self.exceed(self.deadlines.exceeded(limit), ErrorCode::ENHANCE_YOUR_CALM);
    }

    /// Ends the streams whose body was due when the period began and still is.
    fn evict_slow_bodies(&mut self, now: Time, mark: u32) {
        for key in self.streams.keys() {
            let stream = &self.streams[key];
            if stream.id <= mark && self.is_body_due(stream) && self.lets_send(stream) {
                self.evict(stream.id, Limit::SlowBody);
            }
        }
        self.rearm_bodies(now);
    }

    /// Begins a new period if bodies are due, even if they wait for us: they are checked again in case they no longer
    /// do.
    fn rearm_bodies(&mut self, now: Time) {
        let keys = self.streams.keys();
        let due = keys.into_iter().map(|key| &self.streams[key]).filter(|stream| self.is_body_due(stream));
        if let Some(highest) = due.map(|stream| stream.id).max() {
            self.deadlines.body_waits(now, highest);
        }
    }

    /// Whether the stream waits for the peer's body: one that is already answered may be as slow as both sides like.
    fn is_body_due(&self, stream: &super::stream::Stream) -> bool {
        let open = stream.remote != Side::Ended && stream.local == Side::Head;
        open && self.is_of_peer(stream.id)
    }

    /// Whether the peer could send: it has credit, and we read its input.
    fn lets_send(&self, stream: &super::stream::Stream) -> bool {
        stream.receive.has_room() && self.receive_window.has_room() && self.wants_input()
    }

    /// Ends the streams that have waited for a window for too long.
    fn evict_stalled(&mut self, now: Time) {
        let Some(overdue_since) = self.deadlines.windows_overdue_since(now) else { return };
        for key in self.streams.keys() {
            let stream = &self.streams[key];
            match self.short_of_window_since(stream).map(|since| since.max(self.took_at)) {
                Some(since) if since <= overdue_since => self.evict(stream.id, Limit::Stall),
                Some(since) => self.deadlines.window_waits(since),
                // It waits for output room, or its turn, and may wait for a window next without having sent a piece.
                None if stream.wait == Wait::Turn => self.deadlines.window_waits(now),
                None => {}
            }
        }
    }

    /// Resets a stream; the next events report it to the role.
    fn evict(&mut self, stream: u32, limit: Limit) {
        let Some(key) = self.streams.find(stream) else { return };
        self.counters.limit_hit(limit);
        self.put_reset(stream, ErrorCode::ENHANCE_YOUR_CALM);
        self.remove(key, Ending::ResetByUs);
        self.accounts.evicted.push(stream);
    }
}

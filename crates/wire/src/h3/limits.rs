//! Reactions to a peer that exceeds one of its [`crate::Limits`].

use super::Connection;
use super::stream::QuicStreamId;
use crate::content::Side;
use crate::limits::deadlines::Overdue;
use crate::{Error, ErrorCode, Exceeded, Limit};
use h2lab_base::units::Time;

impl Connection {
    /// Ends the connection with the bound that the peer exceeded.
    pub(super) fn exceed(&mut self, exceeded: Exceeded) {
        self.counters.limit_hit(exceeded.limit);
        self.fail(Error::Exceeded(exceeded), ErrorCode::H3_EXCESSIVE_LOAD, exceeded.to_string());
    }

    /// Acts on the peer's expired deadlines.
    pub(super) fn handle_timeouts(&mut self, now: Time) {
        while let Some(overdue) = self.deadlines.overdue(now, self.open > 0) {
            match overdue {
                Overdue::Head => self.evict_slow_heads(now),
                Overdue::Body(mark) => {
                    self.evict_where(Limit::SlowBody, |connection, request| {
                        let stream = QuicStreamId::of_number(request);
                        request <= mark && connection.is_body_due(request) && connection.wants_stream(stream)
                    });
                    self.rearm_bodies(now);
                }
                Overdue::BodyInTime => self.rearm_bodies(now),
                Overdue::Output => {} // never set: QUIC reports per stream what it does not take
                Overdue::Windows => self.evict_stalled(now),
                Overdue::Idle => {
                    let idle = self.deadlines.exceeded(Limit::Idle);
                    self.counters.limit_hit(Limit::Idle);
                    self.drain.reason = idle.to_string();
                    self.accept_no_more(now);
                }
            }
        }
    }

    /// Ends the streams for which `is_due` holds.
    fn evict_where(&mut self, limit: Limit, is_due: impl Fn(&Self, u32) -> bool) {
        let all: Vec<u32> = self.streams.keys().copied().collect();
        for request in all {
            if is_due(self, request) {
                self.counters.limit_hit(limit);
                self.give_up(request, ErrorCode::H3_EXCESSIVE_LOAD);
            }
        }
    }

    fn evict_slow_heads(&mut self, now: Time) {
        let Some(overdue_since) = self.deadlines.heads_overdue_since(now) else { return };
        if !self.wants_input() {
            // Their rest may have come: we do not read it.
            return self.deadlines.stream_head_waits(now);
        }
        self.evict_where(Limit::SlowHead, |connection, request| {
            let stream = connection.streams.get(&request);
            stream.is_some_and(|stream| stream.remote == Side::Head && stream.begun_at <= overdue_since)
        });
        let next = self.streams.values().filter(|stream| stream.remote == Side::Head);
        if let Some(begun_at) = next.map(|stream| stream.begun_at).min() {
            self.deadlines.stream_head_waits(begun_at);
        }
    }

    /// Whether the client's body is due.
    fn is_body_due(&self, request: u32) -> bool {
        self.streams
            .get(&request)
            .is_some_and(|stream| stream.remote == Side::Body && stream.local == Side::Head)
    }

    /// Until now the client's input stayed unread in QUIC: that time counts against neither bodies nor heads.
    pub(super) fn excuse_unread(&mut self, now: Time) {
        self.deadlines.excuse_bodies();
        if self.wants_input() {
            for stream in self.streams.values_mut().filter(|stream| stream.remote == Side::Head) {
                stream.begun_at = now;
            }
        }
    }

    /// Begins a new period if bodies are due, even if they wait for us: they are checked again in case they no longer
    /// do.
    fn rearm_bodies(&mut self, now: Time) {
        if let Some(highest) = self.streams.keys().rev().copied().find(|request| self.is_body_due(*request)) {
            self.deadlines.body_waits(now, highest);
        }
    }

    /// Ends the streams whose data the peer has not taken for too long, or the connection if it is our control stream.
    fn evict_stalled(&mut self, now: Time) {
        let Some(overdue_since) = self.deadlines.windows_overdue_since(now) else { return };
        let control = self.control.blocked_since;
        if control.happened() && control <= overdue_since {
            return self.exceed(self.deadlines.exceeded(Limit::Stall));
        }
        self.evict_where(Limit::Stall, |connection, request| {
            connection.streams.get(&request).is_some_and(|stream| {
                stream.out.blocked_since.happened() && stream.out.blocked_since <= overdue_since
            })
        });
        let blocked = self.streams.values().map(|stream| stream.out.blocked_since).chain([control]);
        if let Some(since) = blocked.filter(|since| since.happened()).min() {
            self.deadlines.window_waits(since);
        }
    }
}

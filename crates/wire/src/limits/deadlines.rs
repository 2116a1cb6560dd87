//! How long to wait for a peer: the deadlines of [`Limits`], shared by all engines.
//!
//! An engine notes what is under way and polls what is overdue. A deadline that is postponed often is not moved each
//! time: when it fires early, it is set anew.

use std::sync::Arc;
use std::time::Duration;

use super::{Exceeded, Limit};
use crate::connection::Config;
use h2lab_base::units::Time;

/// What the peer has taken too long for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overdue {
    /// The rest of a head; in HTTP/3, of the oldest incomplete one.
    Head,
    /// Bodies, below the required rate: those due when the period began, on streams up to this one.
    Body(u32),
    /// Bodies may or may not be due; if some are, they keep to the rate.
    BodyInTime,
    /// Room for our output: the transport takes nothing.
    Output,
    /// It is time to check streams that wait for a window.
    Windows,
    /// Any byte.
    Idle,
}

/// The deadlines of one connection.
#[derive(Debug)]
pub(crate) struct Deadlines {
    /// Its limits; shared with the engine and with others like it.
    config: Arc<Config>,
    /// Bytes received.
    received: u64,
    /// When a byte moved last, either way; [`Time::NEVER`] before the first call that has the time.
    active_at: Time,
    head_due: Time,
    /// The number of that head.
    head: u64,
    body_due: Time,
    /// Streams up to this one had a body due when the period began.
    body_mark: u32,
    /// Bytes received when the period began.
    body_base: u64,
    /// The peer could not send for a part of the period, because of us.
    body_excused: bool,
    output_due: Time,
    windows_due: Time,
    idle_due: Time,
}

impl Deadlines {
    /// Nothing is under way.
    pub(crate) const fn new(config: Arc<Config>) -> Self {
        Self {
            config,
            received: 0,
            active_at: Time::NEVER,
            head_due: Time::NEVER,
            head: 0,
            body_due: Time::NEVER,
            body_mark: 0,
            body_base: 0,
            body_excused: false,
            output_due: Time::NEVER,
            windows_due: Time::NEVER,
            idle_due: Time::NEVER,
        }
    }

    /// The same for a connection that begins now.
    pub(crate) fn begun(config: Arc<Config>, now: Time) -> Self {
        let mut deadlines = Self::new(config);
        deadlines.begin(now);
        deadlines
    }

    /// The connection begins now, unless it has.
    pub(crate) fn begin(&mut self, now: Time) {
        if !self.active_at.happened() {
            self.active_at = now;
            self.idle_due = after(now, self.config.limits.idle);
        }
    }

    /// `n` bytes arrived.
    pub(crate) fn received(&mut self, now: Time, n: usize) {
        self.begin(now);
        self.active_at = now;
        self.received += n as u64;
    }

    /// The transport took `n` bytes.
    pub(crate) const fn transmitted(&mut self, now: Time, n: usize) {
        if n > 0 {
            self.active_at = now;
            self.output_due = Time::NEVER;
        }
    }

    /// The peer has acknowledged bytes that the transport had taken before: if output waits, its time begins anew.
    pub(crate) fn taken(&mut self, now: Time) {
        if self.output_due.happened() {
            self.output_due = after(now, self.config.limits.stall);
        }
    }

    /// Whether some of our output waits for the transport.
    pub(crate) fn output_waits(&mut self, now: Time, waits: bool) {
        self.begin(now);
        if waits && !self.output_due.happened() {
            self.output_due = after(now, self.config.limits.stall);
        }
    }

    /// The head that has begun to arrive and is incomplete, if any; `number` identifies it.
    pub(crate) fn head_under_way(&mut self, now: Time, number: Option<u64>) {
        match number {
            None => self.head_due = Time::NEVER,
            Some(number) if self.head != number || !self.head_due.happened() => {
                (self.head, self.head_due) = (number, after(now, self.config.limits.head));
            }
            Some(_) => {}
        }
    }

    /// The head of a stream's message has been incomplete since then, while others may come on other streams.
    pub(crate) fn stream_head_waits(&mut self, since: Time) {
        self.head_due = self.head_due.min(after(since, self.config.limits.head));
    }

    /// Since when a head must have been incomplete to have taken too long; `None` if there is no bound.
    pub(crate) fn heads_overdue_since(&self, now: Time) -> Option<Time> {
        self.config.limits.head.map(|head| now - head)
    }

    /// A request with a body began with the bytes that arrived last, on this stream, the highest so far.
    pub(crate) fn body_begins(&mut self, stream: u32) {
        self.body_waits(self.active_at, stream);
    }

    /// The body of a request is due; `highest` is the highest stream on which one is.
    pub(crate) fn body_waits(&mut self, now: Time, highest: u32) {
        if !self.body_due.happened() {
            self.body_due = after(now, self.config.limits.body_period);
            (self.body_mark, self.body_base) = (highest, self.received);
            self.body_excused = false;
        }
    }

    /// Until now we kept the peer from sending: we left its input in the transport, or its credit with our role. Such a
    /// period does not count for bodies. An attacker who causes it spends a window or our whole output, more than the
    /// bytes of a period that it would save.
    pub(crate) const fn excuse_bodies(&mut self) {
        self.body_excused = true;
    }

    /// A stream waits for a window.
    pub(crate) fn window_waits(&mut self, since: Time) {
        self.windows_due = self.windows_due.min(after(since, self.config.limits.stall));
    }

    /// Streams that wait for a window since then or earlier are overdue; `None` if there is no bound.
    pub(crate) fn windows_overdue_since(&self, now: Time) -> Option<Time> {
        self.config.limits.stall.map(|stall| now - stall)
    }

    /// When [`Deadlines::overdue`] must be called.
    pub(crate) fn next(&self) -> Time {
        self.head_due.min(self.body_due).min(self.output_due).min(self.windows_due).min(self.idle_due)
    }

    /// What is overdue, each once; call until `None`. `busy`: a request is under way.
    pub(crate) fn overdue(&mut self, now: Time, busy: bool) -> Option<Overdue> {
        if has_passed(self.head_due, now) {
            self.head_due = Time::NEVER;
            return Some(Overdue::Head);
        }
        if has_passed(self.output_due, now) {
            self.output_due = Time::NEVER;
            return Some(Overdue::Output);
        }
        if has_passed(self.windows_due, now) {
            self.windows_due = Time::NEVER;
            return Some(Overdue::Windows);
        }
        if has_passed(self.body_due, now) {
            self.body_due = Time::NEVER;
            return Some(self.judge_bodies());
        }
        if !has_passed(self.idle_due, now) {
            return None;
        }
        // A head that has begun has a deadline of its own.
        let is_busy = busy || self.head_due.happened();
        let active_at = if is_busy { now } else { self.active_at };
        self.idle_due = after(active_at, self.config.limits.idle);
        if now < self.idle_due {
            return None;
        }
        self.idle_due = Time::NEVER;
        Some(Overdue::Idle)
    }

    fn judge_bodies(&self) -> Overdue {
        let period = self.config.limits.body_period.unwrap_or_default();
        let wanted = u128::from(self.config.limits.body_rate) * period.as_millis() / 1_000;
        if self.body_excused || u128::from(self.received - self.body_base) >= wanted {
            Overdue::BodyInTime
        } else {
            Overdue::Body(self.body_mark)
        }
    }

    /// The bound that was exceeded.
    pub(crate) fn exceeded(&self, limit: Limit) -> Exceeded {
        let time = |allowed: Option<Duration>| Exceeded::time(limit, allowed.unwrap_or_default());
        match limit {
            Limit::SlowHead => time(self.config.limits.head),
            Limit::SlowBody => Exceeded { limit, allowed: u64::from(self.config.limits.body_rate) },
            Limit::Idle => time(self.config.limits.idle),
            _ => time(self.config.limits.stall),
        }
    }
}

/// Whether this deadline is set and has passed.
fn has_passed(deadline: Time, now: Time) -> bool {
    deadline.happened() && now >= deadline
}

/// `timeout` after `start`; never if there is no bound.
fn after(start: Time, timeout: Option<Duration>) -> Time {
    timeout.map_or(Time::NEVER, |timeout| start + timeout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;

    const START: Time = Time::from_millis(1_000);

    fn at(ms: u64) -> Time {
        START + Duration::from_millis(ms)
    }

    fn server() -> Deadlines {
        Deadlines::begun(Config::new(Role::Server).into(), START)
    }

    #[test]
    fn a_head_is_overdue_ten_seconds_after_its_first_byte_and_not_before() {
        let mut deadlines = server();
        deadlines.head_under_way(START, Some(1));
        deadlines.head_under_way(at(9_000), Some(1));
        assert_eq!((deadlines.next(), deadlines.overdue(at(9_999), true)), (at(10_000), None));
        assert_eq!(deadlines.overdue(at(10_000), true), Some(Overdue::Head));
        assert_eq!(deadlines.overdue(at(10_000), true), None, "once");
    }

    #[test]
    fn each_head_has_its_own_time() {
        let mut deadlines = server();
        deadlines.head_under_way(START, Some(1));
        deadlines.head_under_way(at(9_000), Some(2));
        assert_eq!(deadlines.overdue(at(18_999), true), None);
        assert_eq!(deadlines.overdue(at(19_000), true), Some(Overdue::Head));
        deadlines.head_under_way(at(19_000), Some(3));
        deadlines.head_under_way(at(20_000), None);
        assert_eq!(deadlines.overdue(at(60_000), true), None);
    }

    #[test]
    fn bodies_must_arrive_at_240_bytes_a_second() {
        for (bytes, expected) in [(2_399, Overdue::Body(7)), (2_400, Overdue::BodyInTime)] {
            let mut deadlines = server();
            deadlines.received(START, 1_000_000);
            deadlines.body_waits(at(5), 7);
            deadlines.body_waits(at(500), 9);
            deadlines.received(at(1_000), bytes);
            assert_eq!(deadlines.overdue(at(10_004), true), None);
            assert_eq!(deadlines.overdue(at(10_005), true), Some(expected), "{bytes}");
        }
    }

    #[test]
    fn a_period_in_which_we_kept_the_peer_from_sending_counts_for_nothing_and_the_next_one_does() {
        let mut deadlines = server();
        deadlines.body_waits(START, 7);
        deadlines.excuse_bodies();
        assert_eq!(deadlines.overdue(at(10_000), true), Some(Overdue::BodyInTime));
        deadlines.body_waits(at(10_000), 7);
        assert_eq!(deadlines.overdue(at(20_000), true), Some(Overdue::Body(7)));
    }

    #[test]
    fn output_that_nobody_takes_is_overdue_and_one_byte_taken_starts_anew() {
        let mut deadlines = server();
        deadlines.output_waits(START, true);
        deadlines.transmitted(at(29_000), 0);
        assert_eq!(deadlines.overdue(at(29_999), true), None);
        deadlines.transmitted(at(29_999), 1);
        deadlines.output_waits(at(29_999), true);
        assert_eq!(deadlines.overdue(at(59_998), true), None);
        assert_eq!(deadlines.overdue(at(59_999), true), Some(Overdue::Output));
    }

    #[test]
    fn a_peer_that_takes_what_the_transport_had_is_not_late_although_the_transport_takes_nothing() {
        let mut deadlines = server();
        deadlines.taken(START);
        assert_eq!(deadlines.overdue(at(60_000), true), None, "nothing waits");
        deadlines.output_waits(at(60_000), true);
        deadlines.taken(at(80_000));
        assert_eq!(deadlines.overdue(at(109_999), true), None);
        assert_eq!(deadlines.overdue(at(110_000), true), Some(Overdue::Output));
    }

    #[test]
    fn a_connection_is_idle_75_seconds_after_the_last_byte_unless_a_request_is_under_way() {
        let mut deadlines = server();
        deadlines.received(at(40_000), 1);
        assert_eq!(deadlines.overdue(at(75_000), false), None);
        assert_eq!(deadlines.next(), at(115_000));
        assert_eq!(deadlines.overdue(at(115_000), true), None, "a request is under way");
        assert_eq!(deadlines.overdue(at(189_999), false), None);
        assert_eq!(deadlines.overdue(at(190_000), false), Some(Overdue::Idle));
    }

    #[test]
    fn a_head_that_has_begun_has_its_own_time_however_short_that_of_an_idle_connection_is() {
        let mut config = Config::new(Role::Server);
        config.limits.idle = Some(Duration::from_millis(600));
        let mut deadlines = Deadlines::begun(config.into(), START);
        deadlines.received(at(500), 1);
        deadlines.head_under_way(at(500), Some(1));
        for ms in [600, 1_100, 5_000, 10_499] {
            assert_eq!(deadlines.overdue(at(ms), false), None, "{ms}");
        }
        assert_eq!(deadlines.overdue(at(10_500), false), Some(Overdue::Head));
        // A complete head is not waited for any more.
        deadlines.head_under_way(at(10_500), Some(2));
        deadlines.received(at(11_000), 1);
        deadlines.head_under_way(at(11_000), None);
        assert_eq!(deadlines.overdue(at(12_000), false), Some(Overdue::Idle));
    }

    #[test]
    fn a_client_waits_for_ever() {
        let mut deadlines = Deadlines::new(Config::new(Role::Client).into());
        deadlines.received(START, 1);
        deadlines.head_under_way(START, Some(1));
        deadlines.body_waits(START, 1);
        deadlines.output_waits(START, true);
        deadlines.window_waits(START);
        assert_eq!(deadlines.next(), Time::NEVER);
    }
}

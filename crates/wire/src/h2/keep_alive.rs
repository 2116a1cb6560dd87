//! Liveness of a silent peer: PING after silence (RFC 9113 §6.7).
//!
//! Only silence counts. Any byte of the peer proves that it is alive, so that an acknowledgement queued behind a large
//! body on a slow link does not time out; [`super::shutdown::Pings`] measures round trips.

use std::time::Duration;

use super::{Connection, Role};
use h2lab_base::units::Time;

/// The payload of our probes: distinguished from all other PINGs, whose payloads count up from 0. One is under way at
/// most.
const PROBE: [u8; 8] = *b"\xffalive?\xff";

/// The action when a deadline of [`KeepAlive`] has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Nothing, or not yet.
    Wait,
    /// The peer has been silent for the interval.
    Ask,
    /// It was probed and is still silent.
    GiveUp,
}

/// The silence of one peer.
#[derive(Debug)]
pub(super) struct KeepAlive {
    /// `None`: no probes.
    interval: Option<Duration>,
    /// When its last byte arrived, or the connection began.
    received_at: Time,
    /// When to check the silence again; [`Time::NEVER`] while a probe is under way, or without probes. Received bytes
    /// do not move it: when it fires early, it is set anew.
    probe_due: Time,
    /// The deadline for the answer to the probe under way; [`Time::NEVER`] without one.
    answer_due: Time,
}

impl KeepAlive {
    pub(super) fn new(interval: Option<Duration>, now: Time) -> Self {
        let probe_due = interval.map_or(Time::NEVER, |interval| now + interval);
        Self { interval, received_at: now, probe_due, answer_due: Time::NEVER }
    }

    /// Something arrived.
    pub(super) const fn note_received(&mut self, now: Time) {
        self.received_at = now;
    }

    /// When the next deadline passes.
    pub(super) fn next(&self) -> Time {
        self.probe_due.min(self.answer_due)
    }

    /// Whether `payload` acknowledges the probe under way.
    pub(super) fn acknowledged(&mut self, payload: [u8; 8]) -> bool {
        let Some(interval) = self.interval.filter(|_| payload == PROBE && self.answer_due.happened()) else {
            return false;
        };
        self.answer_due = Time::NEVER;
        self.probe_due = self.received_at + interval;
        true
    }

    /// The action due at `now`; after a probe the peer may be silent for `timeout`. `wanted`: whether to probe at all.
    fn step(&mut self, now: Time, timeout: Duration, wanted: bool) -> Step {
        let Some(interval) = self.interval.filter(|_| self.next().happened() && now >= self.next()) else {
            return Step::Wait;
        };
        let probing = self.answer_due.happened();
        let until = self.received_at + if probing { timeout } else { interval };
        let due = if probing { &mut self.answer_due } else { &mut self.probe_due };
        if now < until {
            *due = until;
            return Step::Wait;
        }
        if probing {
            return Step::GiveUp;
        }
        if !wanted {
            *due = now + interval;
            return Step::Wait;
        }
        self.probe_due = Time::NEVER;
        self.answer_due = now + timeout;
        Step::Ask
    }
}

impl Connection {
    /// A deadline may have passed: probes a silent peer. `true` if a probe went unanswered.
    pub(super) fn is_peer_dead(&mut self, now: Time) -> bool {
        let bounded = self.config.role == Role::Server && self.config.limits.idle.is_some();
        let wanted = self.streams.len() > 0 || !bounded;
        match self.keep_alive.step(now, self.config.peer_timeout, wanted) {
            Step::Wait => false,
            Step::Ask => {
                self.put_ping(PROBE);
                false
            }
            Step::GiveUp => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(5);
    const TIMEOUT: Duration = Duration::from_secs(2);

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    fn keep_alive() -> KeepAlive {
        KeepAlive::new(Some(INTERVAL), at(0))
    }

    fn step(keep_alive: &mut KeepAlive, ms: u64) -> Step {
        keep_alive.step(at(ms), TIMEOUT, true)
    }

    #[test]
    fn a_peer_is_asked_after_the_interval_of_silence_and_not_before() {
        let mut silence = keep_alive();
        assert_eq!((silence.next(), step(&mut silence, 4_999)), (at(5_000), Step::Wait));
        silence.note_received(at(3_000));
        assert_eq!((step(&mut silence, 5_000), silence.next()), (Step::Wait, at(8_000)));
        assert_eq!(step(&mut silence, 7_999), Step::Wait);
        assert_eq!((step(&mut silence, 8_000), silence.next()), (Step::Ask, at(10_000)));
    }

    #[test]
    fn a_peer_that_does_not_answer_is_given_up_after_the_timeout_and_not_before() {
        let mut silence = keep_alive();
        assert_eq!(step(&mut silence, 5_000), Step::Ask);
        assert_eq!(step(&mut silence, 6_999), Step::Wait);
        assert_eq!(step(&mut silence, 7_000), Step::GiveUp);
    }

    #[test]
    fn any_byte_proves_that_it_lives_and_the_acknowledgement_starts_anew() {
        let mut silence = keep_alive();
        assert_eq!(step(&mut silence, 5_000), Step::Ask);
        silence.note_received(at(6_500));
        assert_eq!((step(&mut silence, 7_000), silence.next()), (Step::Wait, at(8_500)));
        silence.note_received(at(8_000));
        assert!(!silence.acknowledged([0; 8]), "another PING's");
        assert!(silence.acknowledged(PROBE));
        assert!(!silence.acknowledged(PROBE), "once");
        assert_eq!(silence.next(), at(13_000));
    }

    #[test]
    fn nobody_is_asked_where_nobody_cares_or_it_is_off() {
        let mut silence = keep_alive();
        assert_eq!(silence.step(at(5_000), TIMEOUT, false), Step::Wait);
        assert_eq!(silence.next(), at(10_000));
        assert_eq!(step(&mut silence, 10_000), Step::Ask);
        let mut off = KeepAlive::new(None, at(0));
        assert_eq!((off.next(), step(&mut off, u64::MAX / 1_000_000 - 1)), (Time::NEVER, Step::Wait));
    }
}

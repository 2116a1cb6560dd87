//! Whether the peer of a QUIC connection still has it.
//!
//! A restarted process has no state of the connections of the one before. Over TCP its host answers the next segment
//! with RST. Over QUIC only a process with the same static key can answer with a stateless reset (RFC 9000 §10.3);
//! others drop the packets in silence. A peer that has the connection acknowledges by itself what it has to, however
//! long the response takes (RFC 9000 §13.2.1). What is lost is sent again each time the probe timeout expires, which
//! doubles (RFC 9002 §6.2).

use std::time::Duration;

use h2lab_base::units::Time;

/// A peer that is there may be this slow: its host is busy, or it collects garbage.
const LEAST: Duration = Duration::from_millis(1_250);
/// Probe timeouts without an answer until a connection is suspect: the first one, and two of probes that were lost, too.
const TIMEOUTS: u32 = 7;
/// The longest that a peer may wait before it acknowledges (RFC 9000 §18.2).
const ACK_DELAY: Duration = Duration::from_millis(25);
/// The most that the time between two looks counts: while our own process paused, nothing could be received.
const MOST_BETWEEN: Duration = Duration::from_millis(200);

/// What is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Silence {
    /// The counts at the last look: what was received, and what was sent that asks for an acknowledgement.
    heard: u64,
    asked: u64,
    looked_at: Time,
    /// Since when what was sent has no answer.
    since: Option<Time>,
    /// For how long; the time between two looks counts up to [`MOST_BETWEEN`].
    lasted: Duration,
    /// After which time it is suspect.
    limit: Duration,
}

impl Silence {
    /// Looks, ten times per second. `asked` rises with each frame sent that asks for an acknowledgement, `heard` with
    /// each frame that has come. Returns whether anything has come since the last look.
    pub fn look(&mut self, now: Time, (asked, heard): (u64, u64), rtt: Duration) -> bool {
        let between = now.since(self.looked_at).min(MOST_BETWEEN);
        self.looked_at = now;
        if heard != self.heard {
            *self = Self { heard, asked, looked_at: now, ..Self::default() };
            return true;
        }
        if self.since.is_some() {
            self.lasted += between;
        } else if asked != self.asked {
            // As long as before the first measurement of the variation (RFC 9002 §5.3).
            let timeout = rtt * 3 + ACK_DELAY;
            (self.since, self.limit) = (Some(now), LEAST.max(timeout * TIMEOUTS));
        }
        false
    }

    /// Since when it owes an acknowledgement, if it does.
    pub const fn since(&self) -> Option<Time> {
        self.since
    }

    /// Whether it is likely that the peer no longer has the connection.
    pub fn is_suspect(&self) -> bool {
        self.since.is_some() && self.lasted >= self.limit
    }

    /// Whether that has been so for as long again.
    pub fn is_over(&self) -> bool {
        self.is_suspect() && self.lasted >= self.limit * 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(1);

    /// Looks from `from` to `to` milliseconds; when it becomes suspect, and over.
    fn looks(
        silence: &mut Silence,
        (from, to): (u64, u64),
        traffic: (u64, u64),
        rtt: Duration,
    ) -> [Option<u64>; 2] {
        let (mut suspect, mut over) = (None, None);
        for at in (from..to).step_by(100) {
            silence.look(Time::from_millis(at), traffic, rtt);
            suspect = suspect.or(silence.is_suspect().then_some(at));
            over = over.or(silence.is_over().then_some(at));
        }
        [suspect, over]
    }

    #[test]
    fn a_peer_that_acknowledges_nothing_is_suspect_after_some_probe_timeouts() {
        let mut silence = Silence::default();
        assert!(silence.look(Time::from_millis(1_000), (3, 5), RTT));
        let idle = looks(&mut silence, (1_100, 60_000), (3, 5), RTT);
        assert_eq!(idle, [None, None], "it owes nothing");
        assert_eq!(looks(&mut silence, (60_000, 63_000), (4, 5), RTT), [Some(61_300), Some(62_500)]);
        assert_eq!(silence.since(), Some(Time::from_millis(60_000)));
        assert!(silence.look(Time::from_millis(63_000), (9, 6), RTT));
        assert!(!silence.is_suspect() && silence.since().is_none(), "it was only slow");
        let far = Duration::from_millis(150);
        assert_eq!(looks(&mut silence, (63_100, 69_000), (10, 6), far)[0], Some(66_500), "a long path");
    }

    #[test]
    fn what_was_sent_and_lost_just_after_something_came_is_found_by_its_probe() {
        let mut silence = Silence::default();
        silence.look(Time::from_millis(100), (1, 1), RTT);
        // Between two looks something came, and then a request was sent and lost.
        assert!(silence.look(Time::from_millis(200), (2, 2), RTT));
        assert_eq!(looks(&mut silence, (300, 2_000), (3, 2), RTT)[0], Some(1_600), "sent again");
    }

    #[test]
    fn a_pause_of_our_own_is_no_silence_of_the_peer() {
        let mut silence = Silence::default();
        silence.look(Time::from_millis(100), (2, 1), RTT);
        silence.look(Time::from_millis(200), (3, 1), RTT);
        silence.look(Time::from_millis(9_000), (3, 1), RTT);
        assert!(!silence.is_suspect());
        assert!(silence.look(Time::from_millis(9_100), (3, 2), RTT), "it had answered meanwhile");
    }
}

//! When a PING is sent after other data, so that TCP detects sooner that this was lost.
//!
//! TCP detects that a segment was lost by those that arrive after it. Nothing comes after the last segment of a
//! request, so that it would be sent again only by a timeout: 200 ms and more in Linux (RFC 8985 §7 shortens that to
//! two round trips where more than one segment is under way). So on a path that loses packets a PING follows it a
//! quarter of a round trip later: RACK waits as long for reordering (§6.2).
//!
//! The PING may be lost, too, and so may the retransmission. If there is no acknowledgement one round trip after the
//! PING, further PINGs follow, half a round trip apart. Each one that arrives makes TCP send again what was lost before
//! it.
//!
//! Servers of gRPC end a connection with `ENHANCE_YOUR_CALM` at the fourth PING between two frames of messages that they send (grpc-go
//! 1.7x `maxPingStrikes`, grpc-java `KeepAliveEnforcer`, grpc core `grpc.http2.max_ping_strikes`: the first is free, two are tolerated).
//! Probes are two of them at most; the third is left for the question whether the peer is still there.

use std::time::Duration;

use h2lab_base::units::Time;

/// The most PINGs since a frame of a message came: beyond that, TCP's own timeouts do the rest.
const MOST: u32 = 2;

/// The PINGs of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Probe {
    /// When nothing has followed a message for long enough.
    tail_at: Time,
    /// When the acknowledgement of what was written up to `mark` should be there.
    check_at: Time,
    mark: u64,
}

impl Default for Probe {
    fn default() -> Self {
        Self { tail_at: Time::NEVER, check_at: Time::NEVER, mark: 0 }
    }
}

impl Probe {
    /// The end of a message, or as much as there is of it, has gone into the socket.
    pub fn sent(&mut self, now: Time, rtt: Duration) {
        self.tail_at = now + rtt / 4;
    }

    /// When [`Probe::is_due`] is to be asked.
    pub fn at(&self) -> Time {
        self.tail_at.min(self.check_at)
    }

    /// Whether a PING is to be sent now, where the peer may have got this many `pings` since it last sent a part of a
    /// message. `counts` returns the bytes that were acknowledged and those that were written so far.
    pub fn is_due(
        &mut self,
        now: Time,
        rtt: Duration,
        pings: u32,
        counts: impl FnOnce() -> (u64, u64),
    ) -> bool {
        if self.at() > now {
            return false;
        }
        if pings >= MOST {
            *self = Self::default();
            return false;
        }
        let (acknowledged, written) = counts();
        let is_tail = self.tail_at <= now;
        if is_tail {
            self.tail_at = Time::NEVER;
        }
        if !self.check_at.happened() {
            (self.check_at, self.mark) = (now + rtt + rtt / 4, written);
        } else if self.check_at <= now {
            if acknowledged < self.mark {
                self.check_at = now + rtt / 2;
                return true;
            }
            let is_more = acknowledged < written;
            self.check_at = if is_more { now + rtt + rtt / 4 } else { Time::NEVER };
            self.mark = written;
        }
        is_tail
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(20);

    /// When PINGs are sent behind a message of 100 bytes at 0 ms, of which all is acknowledged at `acknowledged`, in milliseconds.
    fn pings(acknowledged: u64) -> Vec<u64> {
        let (mut probe, mut sent) = (Probe::default(), Vec::new());
        probe.sent(Time::ZERO, RTT);
        let mut written = 100;
        while probe.at().happened() {
            let now = probe.at();
            let is_acknowledged = now >= Time::from_millis(acknowledged);
            let counts = (if is_acknowledged { written } else { 0 }, written);
            if probe.is_due(now, RTT, sent.len() as u32, || counts) {
                sent.push(now.since(Time::ZERO).as_millis() as u64);
                written += 17;
            }
        }
        sent
    }

    #[test]
    fn one_follows_at_once_and_others_while_nothing_is_acknowledged() {
        assert_eq!(pings(29), [5]);
        assert_eq!(pings(45), [5, 30]);
        assert_eq!(pings(10_000), [5, 30], "it gives up");
    }

    #[test]
    fn what_follows_puts_it_off() {
        let mut probe = Probe::default();
        for ms in 0..50 {
            let now = Time::from_millis(ms);
            assert!(!probe.is_due(now, RTT, 0, || (ms, ms)));
            probe.sent(now, RTT);
        }
        assert!(probe.is_due(Time::from_millis(54), RTT, 1, || (54, 54)));
    }

    #[test]
    fn there_is_none_where_the_peer_has_had_two_and_sent_nothing_of_a_message() {
        let mut probe = Probe::default();
        probe.sent(Time::ZERO, RTT);
        assert!(!probe.is_due(Time::from_millis(5), RTT, 2, || (0, 100)));
        assert!(!probe.at().happened(), "until the next message of ours");
        probe.sent(Time::from_millis(30), RTT);
        assert!(probe.is_due(Time::from_millis(35), RTT, 0, || (100, 200)), "a message of the peer has come");
    }
}

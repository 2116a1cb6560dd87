//! The path of each QUIC connection as the server's end sees it, for the lab, which reads TCP's from the kernel.

use std::collections::BTreeMap;
use std::time::Duration;

use h2lab_base::counters::TcpTick;
use h2lab_base::units::Time;
use h2lab_lab::sut::QUIC_SAMPLE as LINE;
use h2lab_net::clock::Clock;
use h2lab_net::quic::QuicSession;

/// As often as the generator samples its own end.
const PERIOD: Duration = Duration::from_millis(10);

/// When each connection, by its client's port, is sampled next. Connections are sampled when something happens on them.
#[derive(Debug, Default)]
pub(super) struct QuicSamples {
    due: BTreeMap<u16, Time>,
}

impl QuicSamples {
    /// A line about a connection, unless it was sampled a moment ago: `quic-sample TIME PORT LOST WINDOW RTT UNACKNOWLEDGED`. The time
    /// is in nanoseconds of the monotonic clock, the port is the client's; the rest is as in [`TcpTick`].
    pub fn line(&mut self, clock: Clock, quic: &QuicSession) -> Option<String> {
        let (now, port) = (clock.now(), quic.remote_address().port());
        let due = self.due.entry(port).or_insert(now);
        if now < *due {
            return None;
        }
        *due = now + PERIOD;
        let TcpTick { at, retransmits, cwnd, rtt_us, unacked, .. } = quic.tick(now, 0);
        let at = clock.origin_ns() + at.as_nanos();
        Some(format!("{LINE}{at} {port} {retransmits} {cwnd} {rtt_us} {unacked}"))
    }
}

/// The sample of such a line and the client's port, on the clock with this origin; `None` if the line is not one.
pub fn read(line: &str, origin_ns: u64) -> Option<(u16, TcpTick)> {
    let mut fields = line.trim_end().strip_prefix(LINE)?.split(' ').map(|field| field.parse::<u64>().ok());
    let mut next = || fields.next().flatten();
    let at = Time::ZERO + Duration::from_nanos(next()?.checked_sub(origin_ns)?);
    let port = u16::try_from(next()?).ok()?;
    let mut small = || u32::try_from(next()?).ok();
    let [retransmits, cwnd, rtt_us, unacked] = [small()?, small()?, small()?, small()?];
    Some((port, TcpTick { at, connection: 0, retransmits, cwnd, rtt_us, unacked, server: true }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_lines_since_the_origin_are_samples() {
        let (port, tick) = read("quic-sample 5000 4433 1 10 25000 9\n", 1_000).expect("it is one");
        assert_eq!((port, tick.at), (4433, Time::ZERO + Duration::from_micros(4)));
        assert_eq!(
            (tick.retransmits, tick.cwnd, tick.rtt_us, tick.unacked, tick.server),
            (1, 10, 25_000, 9, true)
        );
        for other in [
            "",
            "served 3",
            "quic-sample 900 4433 0 10 0 0",
            "quic-sample 6000 70000 1 1 1 1",
            "quic-sample 7000 4434 2",
        ] {
            assert_eq!(read(other, 1_000), None, "{other}");
        }
    }
}

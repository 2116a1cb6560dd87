//! What one connection would do with the requests of all: an estimate for people, by the same model that decides on the number
//! ([`super::estimate`]).
//!
//! A lost segment stops the connection for 1.25 round trips. Losses come one by one and are repaired side by side, so that the times in
//! which it is stopped are the busy periods of a queue with any number of servers (M/D/∞): they last `(e^{λd} - 1) / λ` on average, for
//! `λ` losses per second that stop it for `d` each. And it carries at most a congestion window per round trip (Mathis et al. 1997); what
//! comes near to that waits as in an M/M/1 queue.

use std::time::Duration;

/// How many round trips a lost segment stops its connection (RFC 8985 §6.2).
const HOLE_ROUNDS: f64 = 1.25;

/// What all connections to an instance carry together.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Carried {
    /// Segments with data that are sent per second, repetitions included.
    pub sent: f64,
    /// Segments with data that come per second.
    pub received: f64,
    /// Segments that are sent again per second.
    pub again: f64,
    /// The round trip.
    pub rtt: Duration,
}

/// What one connection would do with that.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OneConnection {
    /// The part of it that it would carry, 0 to 1.
    pub carries: f64,
    /// How much longer than the median the slowest of 100 requests would take; `None` where it does not carry all.
    pub waits: Option<Duration>,
}

/// One of a hundred.
const TAIL: f64 = 0.01;
/// A longer wait is not a meaningful figure.
const LONGEST: f64 = 3_600.0;

/// The estimate.
pub fn one_connection(all: &Carried) -> OneConnection {
    if all.again <= 0.0 || all.sent <= 0.0 {
        return OneConnection { carries: 1.0, waits: Some(Duration::ZERO) };
    }
    let loss = (all.again / all.sent).min(1.0);
    let rtt = all.rtt.as_secs_f64();
    let used = all.sent.max(all.received) * rtt / window_at(loss);
    if used >= 1.0 {
        return OneConnection { carries: 1.0 / used, waits: None };
    }
    // The other direction loses as much, as far as can be seen from here.
    let losses = all.again + loss * all.received;
    let stops = losses * HOLE_ROUNDS * rtt;
    let stopped = 1.0 - (-stops).exp();
    let lasts = (stops.exp() - 1.0) / losses;
    let by_holes = if stopped > TAIL { lasts * (stopped / TAIL).ln() } else { 0.0 };
    let round = rtt / window_at(loss);
    let by_window = if used > TAIL { round / (1.0 - used) * (used / TAIL).ln() } else { 0.0 };
    OneConnection { carries: 1.0, waits: Some(Duration::from_secs_f64((by_holes + by_window).min(LONGEST))) }
}

/// The congestion window, in segments, of a sender that loses this share of them.
fn window_at(loss: f64) -> f64 {
    (1.5 / loss).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(per_second: f64, loss: f64, rtt_ms: u64) -> OneConnection {
        one_connection(&Carried {
            sent: per_second,
            received: per_second,
            again: per_second * loss,
            rtt: Duration::from_millis(rtt_ms),
        })
    }

    #[test]
    fn a_clean_path_needs_one_and_a_lossy_one_overloads_it() {
        assert_eq!(at(1_000.0, 0.0, 25), OneConnection { carries: 1.0, waits: Some(Duration::ZERO) });
        // Measured at 1,000 requests per second, RTT 25 ms, 3 % loss: one connection carries 258 of 1,000 (results/2026-11-27-2-cpus).
        let overloaded = at(1_000.0, 0.03, 25);
        assert!((0.2..0.35).contains(&overloaded.carries) && overloaded.waits.is_none(), "{overloaded:?}");
    }

    #[test]
    fn more_loss_a_longer_path_and_more_requests_wait_for_longer() {
        let waits = |per_second, loss, rtt| at(per_second, loss, rtt).waits.expect("it carries all");
        let base = waits(100.0, 0.01, 25);
        assert!(base > Duration::from_millis(20) && base < Duration::from_millis(500), "{base:?}");
        for worse in [waits(100.0, 0.02, 25), waits(100.0, 0.01, 50), waits(200.0, 0.01, 25)] {
            assert!(worse > base, "{worse:?} {base:?}");
        }
        let near = at(1_000.0, 0.001, 38);
        assert!(near.waits.is_some_and(|waits| waits <= Duration::from_secs(3_600)), "{near:?}");
    }
}

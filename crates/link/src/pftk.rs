//! The throughput of one TCP connection over a lossy link: the PFTK model.
//!
//! Padhye, Firoiu, Towsley, Kurose: "Modeling TCP Reno Performance: A Simple Model and Its Empirical Validation",
//! IEEE/ACM Transactions on Networking 8(2), 2000 (first at SIGCOMM 1998). This is the full form, with retransmission
//! timeouts. The widely quoted square-root formula does not have them, and they decide everything where windows are
//! small. Of the paper's two rates this is the throughput T(p), which reaches the receiver, not the send rate B(p),
//! which includes what is lost. The model is of Reno; CUBIC behaves like it at the windows that losses of a percent
//! leave (RFC 9438 §4.3). BBR, which does not treat loss as congestion, is not modelled: [`Sender::is_modelled`].

use std::time::Duration;

use super::{Extent, Impairment, LinkSpec};

/// Payload of a full segment at an MTU of 1500 with timestamps: 1500 − 20 (IPv4) − 20 (TCP) − 12 (RFC 7323).
pub const SEGMENT_BYTES: f64 = 1448.0;

/// The sender that the model describes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sender {
    /// Round trips that the window takes to grow by one segment: the model's `b`. Linux counts acknowledged bytes, not
    /// acknowledgements (RFC 3465), so that delaying these does not slow it down: 1.
    pub rounds_per_segment: f64,
    /// The least retransmission timeout, to which the round trip is added (Linux: `srtt` + at least `tcp_rto_min_us`).
    pub least_timeout: Duration,
    /// The most segments in flight; infinite unless a window of the receiver or a buffer bounds it.
    pub most_in_flight: f64,
}

impl Sender {
    /// Default Linux: a least timeout of 200 ms, and buffers that grow.
    pub const LINUX: Self = Self {
        rounds_per_segment: 1.0,
        least_timeout: Duration::from_millis(200),
        most_in_flight: f64::INFINITY,
    };

    /// Whether the model covers this congestion control: one that reduces its window on a loss.
    pub fn is_modelled(congestion: &str) -> bool {
        matches!(congestion, "reno" | "cubic")
    }

    /// Segments per second that reach the receiver of a connection that always has data to send, if a share `loss` of its
    /// segments begins a loss (0 to below 1) and a round trip takes `rtt`. Infinite without loss.
    ///
    /// Between two losses (1 − p)/p segments are acknowledged; then the round in which the loss is detected brings half a window
    /// more, and each sequence of timeouts one segment. The send rate has a whole window instead, and all that the
    /// timeouts send.
    pub fn segments_per_second(&self, loss: f64, rtt: Duration) -> f64 {
        if loss <= 0.0 {
            return f64::INFINITY;
        }
        // Below the smallest normal number 1 / p overflows.
        let p = loss.clamp(f64::MIN_POSITIVE, 0.99);
        let (b, rtt) = (self.rounds_per_segment, rtt.as_secs_f64());
        let timeout = rtt + self.least_timeout.as_secs_f64();
        // The mean window at a loss without a bound.
        let grown = (2.0 + b) / (3.0 * b);
        let unbounded = grown + (8.0 * (1.0 - p) / (3.0 * b * p) + grown * grown).sqrt();
        let (window, rounds) = if unbounded < self.most_in_flight {
            (unbounded, b / 2.0 * unbounded + 1.0)
        } else {
            let most = self.most_in_flight;
            (most, b / 8.0 * most + (1.0 - p) / (p * most) + 2.0)
        };
        let by_timeout = timeout_share(p, window);
        let received = (1.0 - p) / p + window / 2.0 + by_timeout;
        received / (rtt * rounds + by_timeout * backoff(p) * timeout / (1.0 - p))
    }

    /// Bytes per second that a connection carries in this direction of a link with this round trip; infinite if it loses
    /// nothing. Losses of one burst are one event to the sender, which halves once.
    pub fn bytes_per_second(&self, direction: &Impairment, rtt: Duration) -> f64 {
        let burst = match direction.loss.extent() {
            Some(Extent::Packets(packets)) => packets.max(1.0),
            // How many packets fall into a time depends on the load.
            Some(Extent::Time(_)) | None => 1.0,
        };
        self.segments_per_second(direction.worst_loss().get() / burst, rtt) * SEGMENT_BYTES
    }

    /// Connections that together carry `rate` requests per second of `request` bytes upwards and `response` bytes
    /// downwards: at least 1. What each of them carries on average is then no more than it can; the model does not predict the
    /// latency of slow requests.
    pub fn connections_for(&self, link: &LinkSpec, rate: f64, request: f64, response: f64) -> u32 {
        let needed =
            |direction: &Impairment, bytes: f64| rate * bytes / self.bytes_per_second(direction, link.rtt());
        let most = needed(&link.uplink, request).max(needed(&link.downlink, response));
        most.ceil().clamp(1.0, 20_000.0) as u32
    }
}

/// The share of losses that end in a timeout rather than in a fast retransmission, at a window of `window` segments: the
/// model's Q.
fn timeout_share(p: f64, window: f64) -> f64 {
    // 1 − (1 − p)ⁿ; written as a difference it would be 0 for small p.
    let any_lost = |n: f64| -(n * (-p).ln_1p()).exp_m1();
    let share = any_lost(3.0) * (1.0 + (1.0 - p).powi(3) * any_lost(window - 3.0)) / any_lost(window);
    share.clamp(0.0, 1.0)
}

/// The factor by which timeouts, which double up to the sixth time, are longer on average than the first one: the
/// model's G.
fn backoff(p: f64) -> f64 {
    1.0 + (1..=6).map(|k| 2_f64.powi(k - 1) * p.powi(k)).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LossModel;
    use h2lab_base::units::Ratio;

    fn at(loss: f64, rtt_ms: u64) -> f64 {
        Sender::LINUX.segments_per_second(loss, Duration::from_millis(rtt_ms))
    }

    #[track_caller]
    fn assert_near(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 0.005, "{found}, not {expected}");
    }

    /// Worked by hand from the paper's equation, step by step: p = 3 %, b = 1, RTT 25 ms, timeout 225 ms. Window 10.34,
    /// Q 0.3824, G 1.0320; (32.33 + 5.17 + 0.382) / (25 ms · 6.17 + 0.3824 · 1.0320 · 225 ms / 0.97).
    #[test]
    fn the_formula_gives_what_it_gives_by_hand() {
        assert_near(timeout_share(0.03, 10.339), 0.3824);
        assert_near(backoff(0.03), 1.0320);
        assert_near(at(0.03, 25), 154.2);
        // Without a round trip only the timeouts are left: 37.89 / (0.3824 · 1.0320 · 200 ms / 0.97).
        assert_near(at(0.03, 0), 465.6);
    }

    #[test]
    fn a_rare_loss_gives_the_square_root_that_is_quoted_and_timeouts_make_the_difference() {
        let mathis = |p: f64| (3.0 / (2.0 * p)).sqrt() / 0.1;
        assert_near(at(1e-6, 100) / mathis(1e-6), 1.0);
        assert!(at(0.2, 100) < 0.6 * mathis(0.2), "{}", at(0.2, 100));
    }

    #[test]
    fn a_window_that_is_bounded_bounds_the_rate_from_there_on() {
        let bounded = |most| Sender { most_in_flight: most, ..Sender::LINUX };
        let rtt = Duration::from_millis(100);
        let (below, above) = (bounded(10.0), bounded(1e9));
        assert!(below.segments_per_second(1e-4, rtt) <= 100.0);
        assert!(below.segments_per_second(1e-4, rtt) > 90.0);
        assert_near(above.segments_per_second(1e-4, rtt), at(1e-4, 100));
    }

    #[test]
    fn more_loss_and_longer_round_trips_carry_less_and_no_loss_carries_all() {
        let falls = |rates: &[f64]| rates.windows(2).all(|pair| pair[1] < pair[0]);
        assert!(falls(&[0.001, 0.01, 0.03, 0.1, 0.5, 0.99].map(|p| at(p, 25))));
        assert!(falls(&[0, 1, 10, 25, 250].map(|rtt| at(0.01, rtt))));
        assert!(at(0.0, 25).is_infinite());
        assert!(at(1.0, 25) > 0.0, "a link that loses all has a model of nothing, but no division by zero");
    }

    fn link(delay_ms: u64, up: LossModel, down: LossModel) -> LinkSpec {
        let impairment =
            |loss| Impairment { delay: Duration::from_millis(delay_ms), loss, ..Impairment::default() };
        LinkSpec { uplink: impairment(up), downlink: impairment(down) }
    }

    #[test]
    fn connections_are_those_of_the_worse_direction_and_a_burst_is_one_loss() {
        let three = Ratio::new(0.03).unwrap();
        let (random, none) = (LossModel::bernoulli(three), LossModel::None);
        let needed = |up, down| Sender::LINUX.connections_for(&link(12, up, down), 1000.0, 1090.0, 545.0);
        assert_eq!([needed(none, none), needed(random, none), needed(none, random)], [1, 5, 3]);
        let at_50_ms = link(25, random, none);
        assert_eq!(Sender::LINUX.connections_for(&at_50_ms, 1000.0, 1062.0, 1062.0), 8, "it sends for 7");
        assert_eq!(needed(LossModel::burst(three, 3), none), 2);
        assert_eq!(Sender::LINUX.connections_for(&link(12, random, none), 0.0, 1.0, 1.0), 1);
    }

    #[test]
    fn however_rare_a_loss_is_the_model_has_a_number_for_it() {
        let rates = [1e-9, 1e-15, 1e-17, 1e-30, 1e-300, 5e-324].map(|p| at(p, 25));
        assert!(rates.iter().all(|rate| rate.is_finite()), "{rates:?}");
        assert!(rates.windows(2).all(|pair| pair[0] < pair[1]), "{rates:?}");
        let mathis = (3.0_f64 / 2e-17).sqrt() / 0.025;
        assert_near(at(1e-17, 25), mathis);
        let rare = LossModel::bernoulli(Ratio::new(1e-17).unwrap());
        let link = link(12, rare, LossModel::None);
        assert_eq!(Sender::LINUX.connections_for(&link, 1000.0, 1090.0, 545.0), 1);
    }

    #[test]
    fn what_does_not_halve_on_a_loss_is_not_modelled() {
        assert_eq!(["cubic", "reno", "bbr"].map(Sender::is_modelled), [true, true, false]);
    }
}

//! How much may be in flight: Reno and CUBIC, counted in segments.

use std::time::Duration;

use h2lab_base::units::Time;

/// A congestion control algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Congestion {
    /// RFC 5681: one segment more per round trip, half after a loss.
    Reno,
    /// RFC 9438: a cubic function of the time since the last loss, 0.7 after a loss.
    Cubic,
}

impl Congestion {
    /// The name that Linux has for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
        }
    }

    /// The factor by which a loss reduces the window.
    const fn beta(self) -> f64 {
        match self {
            Self::Reno => 0.5,
            Self::Cubic => 0.7,
        }
    }
}

/// CUBIC's constant C, in segments per cubed second (RFC 9438 §5).
const C: f64 = 0.4;

/// The window of one sender.
#[derive(Debug)]
pub(super) struct Window {
    kind: Congestion,
    segments: f64,
    threshold: f64,
    /// CUBIC: the window before the last loss.
    before_loss: f64,
    /// CUBIC: the growth since the last loss; `None` until the first acknowledgement after it.
    epoch: Option<Epoch>,
}

/// A time of growth without a loss (RFC 9438 §4.2).
#[derive(Debug, Clone, Copy)]
struct Epoch {
    began: Time,
    /// Seconds until the window is back at its size before the loss.
    k: f64,
    /// The window that Reno would have by now.
    reno: f64,
}

impl Window {
    pub fn new(kind: Congestion, initial: u32) -> Self {
        let segments = f64::from(initial.max(1));
        Self { kind, segments, threshold: f64::INFINITY, before_loss: 0.0, epoch: None }
    }

    /// Segments that may be in flight, at least one.
    pub fn segments(&self) -> u32 {
        (self.segments as u32).max(1)
    }

    /// `count` segments were newly acknowledged while the window limited the sender.
    pub fn grow(&mut self, now: Time, count: u32, rtt: Duration) {
        let mut count = f64::from(count);
        if self.segments < self.threshold {
            let room = self.threshold - self.segments;
            self.segments += count.min(room);
            count -= count.min(room);
        }
        if count == 0.0 {
            return;
        }
        match self.kind {
            Congestion::Reno => self.segments += count / self.segments,
            Congestion::Cubic => self.grow_cubic(now, count, rtt),
        }
    }

    fn grow_cubic(&mut self, now: Time, count: f64, rtt: Duration) {
        let segments = self.segments;
        let before_loss = self.before_loss.max(segments);
        let begin = || Epoch { began: now, k: ((before_loss - segments) / C).cbrt(), reno: segments };
        let epoch = self.epoch.get_or_insert_with(begin);
        let cubic = |after: f64| C * (after - epoch.k).powi(3) + before_loss;
        let elapsed = now.since(epoch.began).as_secs_f64();
        let target = cubic(elapsed + rtt.as_secs_f64()).clamp(segments, 1.5 * segments);
        // The Reno-friendly region, §4.3: as fast as Reno would be on average with CUBIC's smaller reduction.
        let beta = self.kind.beta();
        let alpha = if epoch.reno < before_loss { 3.0 * (1.0 - beta) / (1.0 + beta) } else { 1.0 };
        epoch.reno += alpha * count / segments;
        let is_friendly = cubic(elapsed) < epoch.reno;
        let reno = epoch.reno;
        self.segments += (target - segments) / segments * count;
        if is_friendly {
            self.segments = self.segments.max(reno);
        }
    }

    /// A loss was found by acknowledgements.
    pub fn shrink(&mut self) {
        let beta = self.kind.beta();
        // Fast convergence, RFC 9438 §4.7: a flow with less than last time leaves room for newcomers.
        let less = self.segments < self.before_loss;
        self.before_loss = if less { self.segments * (1.0 + beta) / 2.0 } else { self.segments };
        self.threshold = (self.segments * beta).max(2.0);
        self.segments = self.threshold;
        self.epoch = None;
    }

    /// A retransmission timeout expired: slow start, from a single segment up to the threshold.
    pub fn restart(&mut self) {
        self.segments = 1.0;
        self.epoch = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    /// The window after `rounds` round trips in which all of it was acknowledged.
    fn grown(window: &mut Window, from: Time, rounds: u32) -> f64 {
        let mut now = from;
        for _ in 0..rounds {
            now += RTT;
            window.grow(now, window.segments(), RTT);
        }
        window.segments
    }

    #[test]
    fn slow_start_doubles_per_round_trip_up_to_the_threshold() {
        let mut window = Window::new(Congestion::Reno, 10);
        assert!((grown(&mut window, Time::ZERO, 3) - 80.0).abs() < 1e-9);
        window.shrink();
        window.restart();
        assert!((grown(&mut window, Time::ZERO, 5) - 32.0).abs() < 1e-9);
        assert!(grown(&mut window, Time::ZERO, 1) <= 41.0, "the threshold is 40");
    }

    #[test]
    fn reno_halves_and_then_grows_by_one_per_round_trip() {
        let mut window = Window::new(Congestion::Reno, 20);
        window.shrink();
        assert_eq!(window.segments(), 10);
        assert!((grown(&mut window, Time::ZERO, 10) - 20.0).abs() < 0.5);
    }

    #[test]
    fn cubic_keeps_seven_tenths_and_returns_after_k_seconds() {
        let mut window = Window::new(Congestion::Cubic, 1000);
        window.shrink();
        assert_eq!(window.segments(), 700);
        let k = (300.0_f64 / C).cbrt(); // 9.1 s
        let rounds = (k / RTT.as_secs_f64()) as u32;
        let at_k = grown(&mut window, Time::ZERO, rounds);
        assert!((at_k - 1000.0).abs() < 10.0, "{at_k}");
    }

    #[test]
    fn a_small_cubic_window_is_as_fast_as_reno_on_average() {
        // Sawteeth of Reno between w/2 and w have the mean of CUBIC's between 0.7 w' and w' (RFC 9438 §4.3).
        let mut window = Window::new(Congestion::Cubic, 10);
        window.shrink();
        let grown = grown(&mut window, Time::ZERO, 5);
        assert!((grown - (7.0 + 5.0 * 0.53)).abs() < 0.6, "{grown}");
    }

    #[test]
    fn no_loss_leaves_less_than_one_segment() {
        let mut window = Window::new(Congestion::Cubic, 1);
        (0..50).for_each(|_| window.shrink());
        assert_eq!(window.segments(), 2);
        window.restart();
        assert_eq!(window.segments(), 1);
    }
}

//! Delay, its variation, and the order in which packets come out.

use std::collections::VecDeque;
use std::time::Duration;

use super::reorder::Displacement;
use h2lab_base::random::Counter;
use h2lab_base::units::{ParseQuantityError, Time, nanos};

/// Whether jitter lets packets overtake each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, strum::Display, strum::EnumString)]
#[strum(serialize_all = "lowercase", parse_err_ty = ParseQuantityError, parse_err_fn = no_jitter_order)]
pub enum JitterOrder {
    /// None overtakes: a late one holds up those behind it, as in the queues that make jitter in a real network.
    #[default]
    Kept,
    /// Each has its own delay, as in netem: at thousands of packets per second most come out of order.
    Free,
}

fn no_jitter_order(text: &str) -> ParseQuantityError {
    ParseQuantityError::new(text, "an order under jitter (kept, free)")
}

super::text_form!(JitterOrder);

/// Packets in flight, each until it is due.
#[derive(Debug)]
pub struct DelayLine<T> {
    /// The shortest delay: `delay - jitter`.
    floor: Duration,
    /// Full width of the jitter in nanoseconds, 0 for none.
    width: u64,
    order: JitterOrder,
    jitter: Counter,
    /// By due time; equal times in the order of arrival.
    line: VecDeque<(Time, T)>,
    /// Due time of the last packet in order: no later one in order overtakes it.
    last_due: Time,
}

impl<T> DelayLine<T> {
    /// A delay of `delay ± jitter`, drawn under `seed`.
    pub fn new(delay: Duration, jitter: Duration, order: JitterOrder, seed: u64) -> Self {
        let mut line = Self {
            floor: Duration::ZERO,
            width: 0,
            order,
            jitter: Counter::new(seed, "jitter"),
            line: VecDeque::new(),
            last_due: Time::ZERO,
        };
        line.change(delay, jitter);
        line
    }

    /// Changes the delay from now on; packets in flight keep their due time.
    pub fn change(&mut self, delay: Duration, jitter: Duration) {
        let jitter = jitter.min(delay);
        self.floor = delay.saturating_sub(jitter);
        self.width = nanos(jitter).saturating_mul(2);
    }

    /// The least delay of the next packet, whatever is drawn.
    pub fn floor(&self, may_skip: bool) -> Duration {
        if may_skip { Duration::ZERO } else { self.floor }
    }

    /// Takes packet `index`, sent at `sent`; `displaced` says how it leaves its place in the order.
    pub fn enter(&mut self, sent: Time, index: u64, displaced: Option<Displacement>, item: T) {
        let own = sent + self.floor + self.jitter_of(index);
        let due = match displaced {
            Some(Displacement::Ahead) => sent,
            Some(Displacement::Behind(extra)) => own + extra,
            None if self.order == JitterOrder::Free => own,
            None => {
                self.last_due = own.max(self.last_due);
                self.last_due
            }
        };
        if self.line.back().is_none_or(|(last, _)| *last <= due) {
            self.line.push_back((due, item));
        } else {
            let place = self.line.partition_point(|(other, _)| *other <= due);
            self.line.insert(place, (due, item));
        }
    }

    /// Takes out the next packet that is due at `now`, with the time at which it was due.
    pub fn leave(&mut self, now: Time) -> Option<(Time, T)> {
        if self.next_at() > now { None } else { self.line.pop_front() }
    }

    /// When the next packet is due; [`Time::NEVER`] if none is in flight.
    pub fn next_at(&self) -> Time {
        self.line.front().map_or(Time::NEVER, |(due, _)| *due)
    }

    /// Packets in flight.
    pub fn inside(&self) -> usize {
        self.line.len()
    }

    /// How much later than the shortest delay packet `index` is, drawn from the seed.
    fn jitter_of(&self, index: u64) -> Duration {
        Duration::from_nanos((self.jitter.f64_at(index) * self.width as f64).round() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// What comes out of `n` packets a microsecond apart, with the times at which they are due.
    fn through(line: &mut DelayLine<u64>, n: u64) -> Vec<(Time, u64)> {
        (0..n).for_each(|k| line.enter(Time::from_micros(k), k, None, k));
        std::iter::from_fn(|| line.leave(Time::NEVER)).collect()
    }

    #[test]
    fn jitter_spreads_the_delay_over_its_whole_width() {
        for order in [JitterOrder::Kept, JitterOrder::Free] {
            let mut line = DelayLine::new(10 * MS, 3 * MS, order, 2);
            // A second between packets, so that ordering never delays one.
            let delays: Vec<f64> = (0..10_000)
                .map(|k| {
                    let now = Time::from_millis(k * 1000);
                    line.enter(now, k, None, ());
                    line.leave(Time::NEVER).unwrap().0.since(now).as_secs_f64() * 1e3
                })
                .collect();
            let mean = delays.iter().sum::<f64>() / delays.len() as f64;
            assert!((mean - 10.0).abs() < 0.06, "mean {mean}");
            assert!(delays.iter().all(|d| (7.0..=13.0).contains(d)));
            assert!(delays.iter().any(|d| *d < 7.01) && delays.iter().any(|d| *d > 12.99));
        }
    }

    #[test]
    fn order_is_kept_or_free_under_the_same_draws() {
        let (kept, free) = (JitterOrder::Kept, JitterOrder::Free);
        let [kept, free] =
            [kept, free].map(|order| through(&mut DelayLine::new(10 * MS, 3 * MS, order, 2), 2000));
        assert!(kept.is_sorted_by_key(|(due, k)| (*due, *k)));
        assert!(free.is_sorted_by_key(|(due, _)| *due) && !free.is_sorted_by_key(|(_, k)| *k));
        // Two packets of 2000 are 1 µs apart against 6 ms of jitter: nearly half of the pairs are reordered.
        let swapped = free.windows(2).filter(|pair| pair[0].1 > pair[1].1).count();
        assert!((900..1100).contains(&swapped), "{swapped}");
        // With order kept, a packet is due at the latest due time up to and including its own.
        let mut own = vec![Time::ZERO; 2000];
        for (due, k) in &free {
            own[*k as usize] = *due;
        }
        let mut latest = Time::ZERO;
        for (due, k) in kept {
            latest = latest.max(own[k as usize]);
            assert_eq!(due, latest);
        }
    }

    #[test]
    fn a_packet_ahead_skips_the_delay_and_one_behind_is_held_back() {
        let mut line = DelayLine::new(10 * MS, Duration::ZERO, JitterOrder::Kept, 1);
        let at = |ms| Time::from_millis(ms);
        line.enter(at(0), 0, None, 'a');
        line.enter(at(1), 1, Some(Displacement::Behind(2 * MS)), 'b');
        line.enter(at(2), 2, None, 'c');
        line.enter(at(3), 3, None, 'd');
        line.enter(at(4), 4, Some(Displacement::Ahead), 'e');
        let out: Vec<_> = std::iter::from_fn(|| line.leave(Time::NEVER)).collect();
        assert_eq!(out, [(at(4), 'e'), (at(10), 'a'), (at(12), 'c'), (at(13), 'b'), (at(13), 'd')]);
    }

    #[test]
    fn a_shorter_delay_lets_nobody_overtake_unless_order_is_free() {
        for (order, expected) in [(JitterOrder::Kept, ['a', 'b']), (JitterOrder::Free, ['b', 'a'])] {
            let mut line = DelayLine::new(10 * MS, Duration::ZERO, order, 1);
            line.enter(Time::ZERO, 0, None, 'a');
            line.change(2 * MS, Duration::ZERO);
            line.enter(Time::from_millis(1), 1, None, 'b');
            let out: Vec<char> =
                std::iter::from_fn(|| line.leave(Time::NEVER)).map(|(_, item)| item).collect();
            assert_eq!(out, expected);
        }
    }
}

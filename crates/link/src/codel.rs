//! CoDel: drops at the head of a standing queue (RFC 8289).

use std::time::Duration;

use h2lab_base::units::Time;

/// Bytes of the largest packet: a queue no larger is never dropped from (RFC 8289 §5.5, `maxpacket`).
const LARGEST_PACKET: u64 = 1500;

/// A packet taken from the head of the queue.
#[derive(Debug)]
pub struct HeadPacket<T> {
    /// When it entered the queue.
    pub entered: Time,
    /// Bytes that stay in the queue behind it.
    pub backlog: u64,
    /// The packet.
    pub item: T,
}

/// The state of one queue's CoDel; the names are the RFC's.
#[derive(Debug, Clone)]
pub struct Codel {
    target: Duration,
    interval: Duration,
    /// When the sojourn time will have been above the target for an interval; `None`: it is below.
    first_above_time: Option<Time>,
    dropping: bool,
    drop_next: Time,
    count: u32,
    lastcount: u32,
}

impl Codel {
    /// Drops once the sojourn time has exceeded `target` for an `interval`.
    pub const fn new(target: Duration, interval: Duration) -> Self {
        Self {
            target,
            interval,
            first_above_time: None,
            dropping: false,
            drop_next: Time::ZERO,
            count: 0,
            lastcount: 0,
        }
    }

    /// The next packet to send at `now`, of those that `pop` takes from the queue; what it drops before goes to `drop`
    /// (RFC 8289 §5.6, `dequeue`).
    pub fn dequeue<T>(
        &mut self,
        now: Time,
        mut pop: impl FnMut() -> Option<HeadPacket<T>>,
        mut drop: impl FnMut(T),
    ) -> Option<T> {
        let mut head = pop();
        let mut ok_to_drop = self.may_drop(now, head.as_ref());
        if self.dropping {
            self.dropping = ok_to_drop;
            while self.dropping && now >= self.drop_next {
                drop(head.take()?.item);
                self.count = self.count.saturating_add(1);
                head = pop();
                ok_to_drop = self.may_drop(now, head.as_ref());
                if ok_to_drop {
                    self.drop_next = self.control_law(self.drop_next);
                } else {
                    self.dropping = false;
                }
            }
        } else if ok_to_drop {
            drop(head.take()?.item);
            head = pop();
            self.may_drop(now, head.as_ref());
            self.begin_dropping(now);
        }
        head.map(|head| head.item)
    }

    /// Begins to drop. If the last dropping state ended recently, it resumes at about the rate that had controlled the queue.
    fn begin_dropping(&mut self, now: Time) {
        let delta = self.count.wrapping_sub(self.lastcount);
        let is_recent = now.since(self.drop_next) < 16 * self.interval;
        self.count = if delta > 1 && is_recent { delta } else { 1 };
        self.dropping = true;
        self.drop_next = self.control_law(now);
        self.lastcount = self.count;
    }

    /// Whether packets have stood in the queue above the target for an interval (RFC 8289 §5.5, `dodequeue`).
    fn may_drop<T>(&mut self, now: Time, head: Option<&HeadPacket<T>>) -> bool {
        let stands =
            head.is_some_and(|head| now.since(head.entered) >= self.target && head.backlog > LARGEST_PACKET);
        match self.first_above_time {
            _ if !stands => {
                self.first_above_time = None;
                false
            }
            None => {
                self.first_above_time = Some(now + self.interval);
                false
            }
            Some(at) => now >= at,
        }
    }

    /// When to drop next after a drop at `at` (RFC 8289 §5.4): the more it has dropped, the sooner.
    fn control_law(&self, at: Time) -> Time {
        at + self.interval.div_f64(f64::from(self.count).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const TARGET: Duration = Duration::from_millis(5);
    const INTERVAL: Duration = Duration::from_millis(100);

    /// A queue that sends a packet of 1500 bytes each millisecond and then receives `arrivals`.
    struct Bench {
        codel: Codel,
        queue: VecDeque<(Time, u64)>,
        next: u64,
        now: Time,
        /// When packets were dropped.
        drops: Vec<Time>,
        /// How long those that left had stood in the queue, in order.
        sojourns: Vec<Duration>,
    }

    impl Bench {
        fn new() -> Self {
            Self {
                codel: Codel::new(TARGET, INTERVAL),
                queue: VecDeque::new(),
                next: 0,
                now: Time::ZERO,
                drops: Vec::new(),
                sojourns: Vec::new(),
            }
        }

        fn arrive(&mut self, packets: u64) {
            for _ in 0..packets {
                self.queue.push_back((self.now, self.next));
                self.next += 1;
            }
        }

        /// One packet leaves, at `now`; a millisecond passes.
        fn leave(&mut self) {
            let Self { codel, queue, now, drops, sojourns, .. } = self;
            let pop = || {
                let (entered, item) = queue.pop_front()?;
                Some(HeadPacket { entered, backlog: queue.len() as u64 * 1500, item: (entered, item) })
            };
            if let Some((entered, _)) = codel.dequeue(*now, pop, |_| drops.push(*now)) {
                sojourns.push(now.since(entered));
            }
            *now += Duration::from_millis(1);
        }
    }

    #[test]
    fn a_burst_that_drains_within_an_interval_is_left_alone() {
        let mut bench = Bench::new();
        bench.arrive(90);
        (0..200).for_each(|_| bench.leave());
        assert_eq!((bench.drops.len(), bench.sojourns.len()), (0, 90));
    }

    #[test]
    fn a_queue_that_stands_is_dropped_from_after_an_interval_above_target_and_then_ever_sooner() {
        let mut bench = Bench::new();
        bench.arrive(20);
        for _ in 0..1000 {
            bench.leave();
            // As many packets come in as leave, whatever is dropped: the queue stands.
            let missing = 20 - bench.queue.len() as u64;
            bench.arrive(missing);
        }
        // 5 ms of standing, an interval above target, and then intervals of 100 / sqrt(n) ms.
        let first = bench.drops[0];
        assert!((first.since(Time::ZERO).as_millis() as i64 - 105).abs() <= 1, "{first}");
        let mut due = first;
        for (n, drop) in bench.drops[1..].iter().enumerate() {
            due += INTERVAL.div_f64(((n + 1) as f64).sqrt());
            // Packets leave each millisecond: the drop comes with the first one at or after its time.
            assert!(
                *drop >= due && drop.since(due) < Duration::from_millis(1),
                "drop {n} at {drop}, due at {due}"
            );
        }
        assert!(bench.drops.len() > 10);
    }

    #[test]
    fn a_sender_that_honours_drops_ends_with_a_queue_below_target() {
        let mut bench = Bench::new();
        // A crude model of TCP: first a burst of 40, then 1.1 packets for each that leaves. A drop reduces this rate by
        // 30 %, which it regains within 600 ms.
        let (mut credit, mut pace, mut seen) = (40.0, 1.1, 0);
        for _ in 0..5_000 {
            credit += pace;
            let arriving = credit as u64;
            credit -= arriving as f64;
            bench.arrive(arriving);
            bench.leave();
            pace += 0.0005;
            if bench.drops.len() > seen {
                (seen, pace) = (bench.drops.len(), pace * 0.7);
            }
        }
        let mean = |sojourns: &[Duration]| sojourns.iter().sum::<Duration>() / sojourns.len() as u32;
        let (first, last) =
            (mean(&bench.sojourns[..100]), mean(&bench.sojourns[bench.sojourns.len() - 1000..]));
        assert!(first > 2 * TARGET, "the queue stood: {first:?}");
        assert!(last < TARGET, "the queue was brought below target: {last:?}");
        assert!(seen > 0);
    }

    #[test]
    fn a_queue_of_one_packet_is_never_dropped_from() {
        let mut bench = Bench::new();
        for _ in 0..1000 {
            // Two packets each 20 ms: one always waits longer than the target, but none is behind it.
            bench.arrive(2);
            bench.now += Duration::from_millis(10);
            bench.leave();
            bench.now += Duration::from_millis(10);
            bench.leave();
        }
        assert_eq!(bench.drops, []);
    }

    #[test]
    fn at_the_target_it_drops_and_just_below_it_does_not() {
        for (below, drops) in [(1, false), (0, true)] {
            let mut codel = Codel::new(TARGET, INTERVAL);
            let mut dropped = 0;
            for k in 0..1000 {
                let now = Time::from_millis(100 + k);
                let entered = now - TARGET + Duration::from_nanos(below);
                codel.dequeue(
                    now,
                    || Some(HeadPacket { entered, backlog: 15_000, item: () }),
                    |()| dropped += 1,
                );
            }
            assert_eq!(dropped > 0, drops, "{below} ns below the target");
        }
    }

    #[test]
    fn at_one_packet_of_backlog_it_does_not_drop_and_just_above_it_does() {
        for (backlog, drops) in [(LARGEST_PACKET, false), (LARGEST_PACKET + 1, true)] {
            let mut codel = Codel::new(TARGET, INTERVAL);
            let mut dropped = 0;
            for k in 0..1000 {
                let now = Time::from_millis(100 + k);
                codel.dequeue(
                    now,
                    || Some(HeadPacket { entered: now - 2 * TARGET, backlog, item: () }),
                    |()| dropped += 1,
                );
            }
            assert_eq!(dropped > 0, drops, "{backlog} bytes behind");
        }
    }
}

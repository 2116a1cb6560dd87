//! Which connection a request takes, and when another one is dialled. Decisions only, no sockets.
//!
//! One policy for all protocols: they differ in how many requests a connection takes at a time, and in whether the pool
//! may grow beyond its warm size.

use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_model::scenario::Cell;
use h2lab_model::workload::{Arrival, DialPolicy};

/// The policy's view of a cell's connections, which are named by small numbers of the caller's choice.
#[derive(Debug, Default)]
pub struct Pool {
    /// Connections to keep: opened before measuring, replaced when they end.
    warm: u32,
    /// The most connections while requests wait.
    max: u32,
    /// How many requests a connection carries at a time.
    share: u32,
    dial: DialPolicy,
    /// Idle connections that are kept.
    keep_idle: u32,
    /// Connections that may carry further requests, now or later.
    live: u32,
    /// Connections being dialled.
    dialling: u32,
    /// Connections that failed, or ended at once, since a request was last served.
    failures: u32,
    has_served: bool,
    /// No dial before this time.
    not_before: Time,
    usable: LeastLoaded,
}

impl Pool {
    /// The pause after a first failed dial; it doubles with each further one.
    const FIRST_PAUSE: Duration = Duration::from_millis(10);
    /// The longest pause between failed dials.
    const LONGEST_PAUSE: Duration = Duration::from_secs(1);

    /// The most connections at a time of a stampede without another bound, as in an open loop whose server does not
    /// answer.
    const MOST_STAMPEDING: u32 = 512;

    /// The pool of `cell`, by its policy. The part of a warm pool beyond `pool_size` would be closed unused: it is not opened. In
    /// a stampede every caller may dial, also where one connection could serve all.
    pub fn of(cell: &Cell) -> Self {
        let keep_idle = cell.policy.pool_size.unwrap_or(u32::MAX);
        let callers = match cell.work.arrival {
            Arrival::Closed { concurrency } => concurrency,
            _ => Self::MOST_STAMPEDING,
        };
        let stampedes = cell.dial == DialPolicy::Stampede && cell.max_connections <= cell.connections;
        let max = if stampedes { cell.connections.max(callers) } else { cell.max_connections };
        let share = if cell.protocol.is_multiplexed() { cell.streams } else { 1 };
        let pool = Self::new(cell.connections.min(keep_idle), max.max(cell.connections));
        Self { share: share.max(1), dial: cell.dial, keep_idle, ..pool }
    }

    /// A pool of `warm` connections that may grow to `max`; at least one. Each carries one request at a time.
    pub fn new(warm: u32, max: u32) -> Self {
        let warm = warm.max(1);
        Self { warm, max: max.max(warm), share: 1, keep_idle: u32::MAX, ..Self::default() }
    }

    /// The usable connection with the fewest open streams; of several the one that has been idle for longest, so that the work
    /// spreads evenly. `None` if all are full or none is up.
    pub fn pick(&self) -> Option<u32> {
        self.usable.first()
    }

    /// The connection of [`Pool::pick`], and for how many requests in a row it would be picked, if it can take so many:
    /// until another one has fewer open streams, or as few and has been idle for longer. A caller that begins that many
    /// needs [`Pool::update`] only once.
    pub fn pick_for_many(&self) -> Option<(u32, u32)> {
        self.pick().map(|connection| (connection, self.usable.lead()))
    }

    /// How many dials to begin now, with `waiting` requests that found no connection: what the warm pool lacks, and, as
    /// far as the pool may grow, as many as the waiting requests need; in a stampede, one for each of them. Pending
    /// dials count, so that none is made twice. 0 during a pause after a failure.
    pub fn dials_wanted(&self, now: Time, waiting: usize) -> u32 {
        if now < self.not_before {
            return 0;
        }
        let planned = self.live + self.dialling;
        let missing = self.warm.saturating_sub(planned);
        let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
        let for_them = match self.dial {
            DialPolicy::SingleFlight => waiting.div_ceil(self.share),
            DialPolicy::Stampede if self.pick().is_some() => 0,
            DialPolicy::Stampede => waiting,
        };
        let demanded = for_them.saturating_sub(self.dialling).min(self.max.saturating_sub(planned));
        let wanted = missing.max(demanded);
        // After a failure one dial probes whether the server is back; the others wait for its result.
        if self.failures > 0 { wanted.min(1_u32.saturating_sub(self.dialling)) } else { wanted }
    }

    /// When the result of [`Pool::dials_wanted`] may change merely because time passes.
    pub fn pause_until(&self) -> Time {
        if self.failures > 0 && self.dialling == 0 { self.not_before } else { Time::NEVER }
    }

    /// Connections that failed, or ended at once, since a request was last served.
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// Connections that may carry requests, now or later.
    pub const fn live(&self) -> u32 {
        self.live
    }

    /// Connections that are being made.
    pub const fn dialling(&self) -> u32 {
        self.dialling
    }

    /// Whether the warm pool is complete and no dial is pending.
    pub const fn is_warm(&self) -> bool {
        self.live >= self.warm && self.dialling == 0
    }

    /// A dial has begun.
    pub const fn dial_began(&mut self) {
        self.dialling += 1;
    }

    /// A dial has succeeded; its connection is usable from the first [`Pool::update`] on.
    pub const fn dial_succeeded(&mut self) {
        self.dialling -= 1;
        self.live += 1;
    }

    /// Whether a connection that has just been established came too late: the others could have shared an existing one by now,
    /// and no request waits for it. Clients that stampede close it.
    pub fn comes_too_late(&self, waiting: usize) -> bool {
        let shared = self.dial == DialPolicy::Stampede && self.share > 1;
        shared && self.live >= self.warm && (waiting == 0 || self.pick().is_some())
    }

    /// A dial has succeeded, and its connection is closed unused.
    pub const fn dial_wasted(&mut self) {
        self.dialling -= 1;
    }

    /// Whether an idle connection is one too many; those of the warm pool that have not `carried` anything yet stay.
    pub const fn is_surplus(&self, carried: bool) -> bool {
        self.usable.idle > self.keep_idle && (carried || self.live > self.warm)
    }

    /// A dial has failed.
    pub fn dial_failed(&mut self, now: Time) {
        self.dialling -= 1;
        self.pause(now);
    }

    /// A request was served: the server works.
    pub const fn served(&mut self) {
        (self.failures, self.has_served) = (0, true);
    }

    /// Whether any request was served.
    pub const fn has_served(&self) -> bool {
        self.has_served
    }

    /// A connection failed, or was established and ended unused (a proxy without its backend accepts and closes): the next dial
    /// waits, longer after each failure, so that a dead server is not hammered.
    pub fn pause(&mut self, now: Time) {
        let doublings = self.failures.min(16);
        self.failures += 1;
        self.not_before = now + (Self::FIRST_PAUSE * (1 << doublings)).min(Self::LONGEST_PAUSE);
    }

    /// A live connection now has `open` streams and can take `available` more.
    pub fn update(&mut self, connection: u32, open: u32, available: u32) {
        self.usable.set(connection, (available > 0).then_some(open));
    }

    /// A live connection takes no further requests, ever; it may still finish those that it has.
    pub fn retire(&mut self, connection: u32) {
        self.usable.set(connection, None);
        self.live -= 1;
    }
}

/// No connection.
const NONE: u32 = u32::MAX;

/// Connections ordered by load, each operation O(1): one doubly linked list per load, threaded through an array.
#[derive(Debug, Default)]
struct LeastLoaded {
    /// First and last connection with each load.
    lists: Vec<(u32, u32)>,
    /// By connection: its neighbours, and its load if it is in a list.
    links: Vec<Link>,
    /// No list below this one has an element.
    lowest: usize,
    /// How many have no load.
    idle: u32,
}

#[derive(Debug, Clone, Copy)]
struct Link {
    previous: u32,
    next: u32,
    load: u32,
}

impl LeastLoaded {
    const ABSENT: Link = Link { previous: NONE, next: NONE, load: NONE };

    /// The first connection of the lowest list that has one.
    fn first(&self) -> Option<u32> {
        self.lists.get(self.lowest).map(|&(first, _)| first).filter(|&first| first != NONE)
    }

    /// How many requests the first connection may take before another one is first.
    fn lead(&self) -> u32 {
        if self.lists.get(self.lowest).is_none_or(|(first, last)| first != last) {
            return 1;
        }
        let others = self.lists.iter().skip(self.lowest + 1);
        let distance = others.zip(1..).find(|&(&(first, _), _)| first != NONE).map(|(_, distance)| distance);
        distance.unwrap_or(u32::MAX)
    }

    /// Puts `connection` at the end of the list of `load`, or in none. An unchanged load keeps its place.
    fn set(&mut self, connection: u32, load: Option<u32>) {
        let index = connection as usize;
        if index >= self.links.len() {
            self.links.resize(index + 1, Self::ABSENT);
        }
        let load = load.unwrap_or(NONE);
        if self.links[index].load == load {
            return;
        }
        self.remove(connection);
        if load != NONE {
            self.append(connection, load);
        }
        if load != NONE && load as usize <= self.lowest {
            self.lowest = load as usize;
        } else if self.first().is_none() {
            let found = self.lists.iter().skip(self.lowest).position(|&(first, _)| first != NONE);
            self.lowest = found.map_or(0, |at| self.lowest + at);
        }
    }

    fn remove(&mut self, connection: u32) {
        let Link { previous, next, load } =
            std::mem::replace(&mut self.links[connection as usize], Self::ABSENT);
        if load == NONE {
            return;
        }
        self.idle -= u32::from(load == 0);
        match previous {
            NONE => self.lists[load as usize].0 = next,
            previous => self.links[previous as usize].next = next,
        }
        match next {
            NONE => self.lists[load as usize].1 = previous,
            next => self.links[next as usize].previous = previous,
        }
    }

    fn append(&mut self, connection: u32, load: u32) {
        if load as usize >= self.lists.len() {
            self.lists.resize(load as usize + 1, (NONE, NONE));
        }
        let (first, last) = &mut self.lists[load as usize];
        let previous = std::mem::replace(last, connection);
        match previous {
            NONE => *first = connection,
            previous => self.links[previous as usize].next = connection,
        }
        self.links[connection as usize] = Link { previous, next: NONE, load };
        self.idle += u32::from(load == 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pool with `live` connections up, numbered from 0 and idle.
    fn pool(warm: u32, max: u32, live: u32) -> Pool {
        let mut pool = Pool::new(warm, max);
        for connection in 0..live {
            pool.dial_began();
            pool.dial_succeeded();
            pool.update(connection, 0, 1);
        }
        pool
    }

    #[test]
    fn the_connection_with_the_fewest_streams_is_picked() {
        let mut pool = pool(3, 3, 3);
        pool.update(0, 5, 95);
        pool.update(1, 2, 98);
        pool.update(2, 7, 93);
        assert_eq!(pool.pick(), Some(1));
        pool.update(1, 6, 94);
        assert_eq!(pool.pick(), Some(0));
        pool.update(2, 0, 100);
        assert_eq!(pool.pick(), Some(2));
    }

    #[test]
    fn equally_loaded_connections_take_turns() {
        let mut pool = pool(3, 3, 3);
        let mut picked = Vec::new();
        for _ in 0..6 {
            let connection = pool.pick().unwrap();
            picked.push(connection);
            pool.update(connection, 1, 0);
            pool.update(connection, 0, 1);
        }
        assert_eq!(picked, [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn a_connection_is_picked_for_as_many_requests_as_would_pick_it_one_by_one() {
        let mut random = h2lab_base::random::Counter::new(2, "pool");
        for _ in 0..2_000 {
            let mut pool = pool(4, 4, 4);
            let mut loads = [0; 4];
            for (connection, load) in (0..).zip(&mut loads) {
                *load = random.below(6) as u32;
                pool.update(connection, *load, u32::from(random.below(4) > 0));
            }
            let Some((picked, most)) = pool.pick_for_many() else {
                assert_eq!(pool.pick(), None);
                continue;
            };
            for _ in 0..most.min(20) {
                assert_eq!(pool.pick(), Some(picked), "{loads:?}: {most}");
                loads[picked as usize] += 1;
                pool.update(picked, loads[picked as usize], 1);
            }
            assert!(most == u32::MAX || pool.pick() != Some(picked), "{loads:?}: more than {most}");
        }
    }

    #[test]
    fn a_full_or_retired_connection_is_never_picked() {
        let mut pool = pool(2, 2, 2);
        pool.update(0, 1, 0);
        assert_eq!(pool.pick(), Some(1));
        pool.retire(1);
        assert_eq!(pool.pick(), None);
        pool.update(0, 0, 1);
        assert_eq!(pool.pick(), Some(0));
    }

    #[test]
    fn picks_agree_with_a_plain_search_for_the_minimum() {
        let mut random = h2lab_base::random::Counter::new(1, "pool");
        let mut pool = pool(20, 20, 20);
        let mut loads = [Some(0_u64); 20];
        for _ in 0..20_000 {
            let connection = random.below(20) as usize;
            let load = (random.below(4) > 0).then(|| random.below(9));
            loads[connection] = load;
            pool.update(connection as u32, load.unwrap_or(0) as u32, u32::from(load.is_some()));
            let least = loads.iter().flatten().min();
            assert_eq!(pool.pick().and_then(|picked| loads[picked as usize]).as_ref(), least);
        }
    }

    #[test]
    fn the_warm_pool_is_dialled_at_once_and_no_more() {
        let mut pool = pool(16, 16, 0);
        assert_eq!(pool.dials_wanted(Time::ZERO, 0), 16);
        for _ in 0..16 {
            pool.dial_began();
        }
        assert_eq!(pool.dials_wanted(Time::ZERO, 1000), 0);
        assert!(!pool.is_warm());
        for _ in 0..16 {
            pool.dial_succeeded();
        }
        assert!(pool.is_warm());
        assert_eq!(pool.dials_wanted(Time::ZERO, 1000), 0);
    }

    #[test]
    fn a_pool_that_may_grow_dials_one_connection_per_waiting_request_up_to_its_limit() {
        let mut pool = pool(2, 5, 2);
        assert_eq!(pool.dials_wanted(Time::ZERO, 0), 0);
        assert_eq!(pool.dials_wanted(Time::ZERO, 1), 1);
        pool.dial_began();
        assert_eq!(pool.dials_wanted(Time::ZERO, 1), 0); // that dial is for it
        assert_eq!(pool.dials_wanted(Time::ZERO, 2), 1);
        assert_eq!(pool.dials_wanted(Time::ZERO, 100), 2); // 2 up + 1 under way + 2 = 5
    }

    #[test]
    fn a_connection_that_ended_is_replaced_only_if_the_warm_pool_or_a_request_needs_it() {
        let mut pool = pool(2, 8, 4);
        pool.retire(3);
        assert_eq!(pool.dials_wanted(Time::ZERO, 0), 0);
        pool.retire(2);
        assert_eq!(pool.dials_wanted(Time::ZERO, 0), 0);
        pool.retire(1);
        assert_eq!(pool.dials_wanted(Time::ZERO, 0), 1);
    }

    /// A pool of one connection that up to 100 requests share; up to 100 connections may be dialled.
    fn shared(dial: DialPolicy) -> Pool {
        Pool { share: 100, dial, ..Pool::new(1, 100) }
    }

    #[test]
    fn a_single_flight_dials_what_all_who_wait_can_share() {
        let mut pool = shared(DialPolicy::SingleFlight);
        for (waiting, dials) in [(0, 1), (1, 1), (100, 1), (101, 2), (200, 2), (201, 3)] {
            assert_eq!(pool.dials_wanted(Time::ZERO, waiting), dials, "{waiting}");
        }
        pool.dial_began();
        assert_eq!([100, 101].map(|waiting| pool.dials_wanted(Time::ZERO, waiting)), [0, 1]);
        pool.dial_succeeded();
        assert!(!pool.comes_too_late(0), "what was dialled for a purpose is kept");
    }

    #[test]
    fn in_a_stampede_each_who_waits_dials_and_nobody_twice() {
        let mut pool = shared(DialPolicy::Stampede);
        assert_eq!(
            [0, 1, 70, 100, 300].map(|waiting| pool.dials_wanted(Time::ZERO, waiting)),
            [1, 1, 70, 100, 100]
        );
        for _ in 0..70 {
            pool.dial_began();
        }
        assert_eq!([70, 71].map(|waiting| pool.dials_wanted(Time::ZERO, waiting)), [0, 1]);
        assert!(!pool.comes_too_late(0), "the first is the warm one");
        pool.dial_succeeded();
        pool.update(0, 0, 100);
        assert_eq!(pool.dials_wanted(Time::ZERO, 100), 0, "a connection is usable");
        assert!(pool.comes_too_late(5), "they go to the one that is there");
        pool.update(0, 100, 0);
        assert!(pool.comes_too_late(0) && !pool.comes_too_late(1), "somebody waits for it");
        pool.dial_wasted();
        assert_eq!(pool.dialling, 68);
    }

    #[test]
    fn a_stampede_of_connections_that_cannot_be_shared_wastes_none() {
        let mut pool = Pool { dial: DialPolicy::Stampede, ..Pool::new(1, 9) };
        pool.dial_began();
        pool.dial_succeeded();
        assert!(!pool.comes_too_late(0));
    }

    #[test]
    fn one_idle_connection_beyond_the_pools_size_is_surplus() {
        let mut pool = Pool { keep_idle: 2, ..pool(1, 9, 3) };
        assert!(pool.is_surplus(true) && pool.is_surplus(false));
        pool.update(1, 1, 0);
        assert!(!pool.is_surplus(true), "two are idle and one works");
        pool.update(1, 0, 1);
        assert!(pool.is_surplus(true));
        pool.retire(2);
        assert!(!pool.is_surplus(true));
    }

    #[test]
    fn failed_dials_are_repeated_one_at_a_time_after_growing_pauses() {
        let mut pool = pool(4, 4, 0);
        let mut now = Time::from_millis(5);
        for pause in [10, 20, 40] {
            pool.dial_began();
            pool.dial_failed(now);
            let again = now + Duration::from_millis(pause);
            assert_eq!(pool.pause_until(), again);
            assert_eq!(pool.dials_wanted(again - Duration::from_nanos(1), 9), 0);
            assert_eq!(pool.dials_wanted(again, 9), 1);
            now = again;
        }
        assert_eq!(pool.failures(), 3);
        pool.dial_began();
        assert_eq!(pool.dials_wanted(now, 9), 0);
        pool.dial_succeeded();
        assert_eq!(pool.dials_wanted(now, 9), 1); // that it connects proves little
        pool.served();
        assert_eq!((pool.failures(), pool.dials_wanted(now, 9)), (0, 3));
    }

    #[test]
    fn pauses_stop_growing_at_a_second() {
        let mut pool = pool(1, 1, 0);
        for _ in 0..40 {
            pool.dial_began();
            pool.dial_failed(Time::ZERO);
        }
        assert_eq!(pool.pause_until(), Time::from_millis(1000));
    }
}

//! Which instance and which connection take the next request.

use std::time::Duration;

use h2lab_base::random::Counter;

use super::path::PathReading;

/// What is known of an instance of a service.
#[derive(Debug, Clone, Copy, Default)]
pub struct Load {
    /// Requests that it has not answered, those that wait for a connection included.
    pub open: u32,
    /// What a response takes, smoothed; `None` before the first one.
    pub takes: Option<Duration>,
    /// Whether it could not be reached lately.
    pub is_down: bool,
    /// Its share of the requests beside others that are as fast; 0 takes none.
    pub weight: u32,
}

impl Load {
    /// How long one more request is expected to take there, as a number that only compares: those before it and itself, each for as long
    /// as one takes, divided by the weight. An instance without a response yet counts as quick, so that it is tried.
    fn delay(&self) -> f64 {
        let each = self.takes.map_or(0.0, |takes| takes.as_secs_f64()).max(1e-6);
        f64::from(self.open + 1) * each / f64::from(self.weight.max(1))
    }
}

/// The instance for the next request: of two drawn at random, the one with the lower expected delay, so that no two proxies choose the
/// same one (Mitzenmacher 2001, "The Power of Two Choices in Randomized Load Balancing"). Those that are down are asked only where all
/// are. `None` if there is none.
pub fn instance(loads: &[Load], random: &mut Counter) -> Option<usize> {
    let of = |is_down: bool| {
        let fit =
            loads.iter().enumerate().filter(move |(_, load)| load.weight > 0 && load.is_down == is_down);
        fit.map(|(index, _)| index).collect::<Vec<usize>>()
    };
    let up = of(false);
    let candidates = if up.is_empty() { of(true) } else { up };
    let draw = |random: &mut Counter, n: usize| random.below(n as u64) as usize;
    match candidates.len() {
        0 => None,
        1 => Some(candidates[0]),
        n => {
            let first = draw(random, n);
            let second = (first + 1 + draw(random, n - 1)) % n;
            let [first, second] = [candidates[first], candidates[second]];
            Some(if loads[second].delay() < loads[first].delay() { second } else { first })
        }
    }
}

/// Smooths what responses take: each counts for a sixteenth, an unusually slow one as well.
pub fn smoothed(before: Option<Duration>, takes: Duration) -> Duration {
    before.map_or(takes, |before| (before * 15 + takes) / 16)
}

/// What is known of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Room {
    /// Requests that it can take now.
    pub free: u32,
    /// Requests that it has not answered.
    pub open: u32,
    /// For how long a request that is placed here waits, beyond the round trip.
    pub wait: Duration,
}

/// For how long a request that is placed on a connection with this path waits, beyond the round trip: for the congestion window, and for
/// a repair. `added`: segments of requests that were placed since the reading. A request counts from when its connection is chosen, not
/// from when it is sent: else all that come at once choose the same one.
pub fn wait(path: &PathReading, added: u32) -> Duration {
    let ahead = path.in_flight + added + path.unsent.div_ceil(SEGMENT);
    let rounds = ahead.checked_div(path.window).unwrap_or(0);
    let repair = if path.is_repairing { path.rtt / 4 } else { Duration::ZERO };
    path.rtt * rounds + repair
}

/// Bytes of a segment.
const SEGMENT: u32 = 1_448;

/// The connection for the next request: the one with the shortest wait; of those the one with the fewest open requests; of those the
/// next behind the one that got the last, so that equals take turns. `None` if none has room.
pub fn connection(rooms: &[Room], last: usize) -> Option<usize> {
    let n = rooms.len();
    let turn = (1..=n).map(|step| (last + step) % n);
    turn.filter(|index| rooms[*index].free > 0).min_by_key(|index| (rooms[*index].wait, rooms[*index].open))
}

/// The connection that is given up where one fewer is enough: the one with the fewest open requests. Only where the others have room for
/// all that are open: else it would be dialled again at once. `None` if none is.
pub fn to_retire(rooms: &[Room]) -> Option<usize> {
    let (index, fewest) = rooms.iter().enumerate().min_by_key(|(_, room)| room.open)?;
    let open: u64 = rooms.iter().map(|room| u64::from(room.open)).sum();
    let free: u64 = rooms.iter().map(|room| u64::from(room.free)).sum();
    (free - u64::from(fewest.free) >= open).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UP: Load = Load { open: 0, takes: Some(Duration::from_millis(10)), is_down: false, weight: 1 };

    fn shares(loads: &[Load]) -> Vec<usize> {
        let mut random = Counter::new(7, "instances");
        let mut shares = vec![0; loads.len()];
        for _ in 0..10_000 {
            shares[instance(loads, &mut random).expect("there is one")] += 1;
        }
        shares
    }

    #[test]
    fn equal_instances_get_equal_shares_and_a_slow_one_less() {
        let even = shares(&[UP; 4]);
        assert!(even.iter().all(|share| (2_300..2_700).contains(share)), "{even:?}");
        let slow = shares(&[UP, UP, UP, Load { takes: Some(Duration::from_millis(500)), ..UP }]);
        assert_eq!(slow[3], 0, "of two it is never the quicker one");
        let busy = shares(&[Load { open: 40, ..UP }, UP]);
        assert_eq!(busy[0], 0);
    }

    #[test]
    fn instances_that_are_down_are_asked_only_where_all_are() {
        let down = Load { is_down: true, ..UP };
        assert_eq!(shares(&[down, UP, down]), [0, 10_000, 0]);
        assert!(shares(&[down, down]).iter().all(|share| *share > 4_000));
        assert_eq!(instance(&[Load { weight: 0, ..UP }], &mut Counter::new(1, "instances")), None);
        assert_eq!(instance(&[], &mut Counter::new(1, "instances")), None);
    }

    #[test]
    fn a_heavier_instance_takes_more_before_it_is_as_slow() {
        let mut loads = [UP, Load { weight: 3, ..UP }];
        let mut random = Counter::new(3, "instances");
        for _ in 0..400 {
            let index = instance(&loads, &mut random).expect("one");
            loads[index].open += 1;
        }
        assert!((95..=105).contains(&loads[0].open), "{loads:?}");
    }

    #[test]
    fn connections_take_turns_and_full_ones_are_passed_over() {
        let room = |free, open| Room { free, open, wait: Duration::ZERO };
        assert_eq!(connection(&[room(9, 1), room(9, 0), room(0, 0)], 0), Some(1));
        let equal = [room(9, 2); 3];
        assert_eq!([0, 1, 2].map(|last| connection(&equal, last)), [Some(1), Some(2), Some(0)]);
        assert_eq!(connection(&[room(0, 3), room(0, 0)], 0), None);
        let waiting = Room { wait: Duration::from_millis(1), ..room(9, 0) };
        assert_eq!(connection(&[waiting, room(9, 7)], 0), Some(1), "the wait counts before the number");
        assert_eq!(connection(&[], 0), None);
    }

    #[test]
    fn the_least_busy_connection_is_given_up_where_the_others_have_room() {
        let room = |free, open| Room { free, open, wait: Duration::ZERO };
        assert_eq!(to_retire(&[room(90, 10), room(98, 2), room(95, 5)]), Some(1));
        assert_eq!(to_retire(&[room(90, 10), room(100, 0)]), Some(1));
        assert_eq!(
            to_retire(&[room(4, 6), room(8, 2)]),
            None,
            "eight are open, and the other one takes four more"
        );
        assert_eq!(to_retire(&[room(8, 6), room(8, 2)]), Some(1));
        assert_eq!(to_retire(&[room(u32::MAX, 0)]), Some(0), "nothing is open");
        assert_eq!(to_retire(&[room(5, 1)]), None, "the only one");
        assert_eq!(to_retire(&[]), None);
    }

    #[test]
    fn a_request_waits_for_the_congestion_window_and_for_a_repair() {
        let rtt = Duration::from_millis(20);
        let path = PathReading { rtt, window: 10, in_flight: 4, ..PathReading::default() };
        assert_eq!([wait(&path, 5), wait(&path, 6), wait(&path, 17)], [0, 1, 2].map(|rounds| rtt * rounds));
        let unsent = PathReading { unsent: 6 * SEGMENT, ..path };
        assert_eq!(wait(&unsent, 0), rtt);
        assert_eq!(wait(&PathReading { is_repairing: true, ..path }, 0), rtt / 4);
        assert_eq!(wait(&PathReading::default(), 9), Duration::ZERO, "nothing is known");
    }

    #[test]
    fn times_are_smoothed() {
        assert_eq!(smoothed(None, Duration::from_millis(16)), Duration::from_millis(16));
        assert_eq!(
            smoothed(Some(Duration::from_millis(16)), Duration::from_millis(32)),
            Duration::from_millis(17)
        );
    }
}

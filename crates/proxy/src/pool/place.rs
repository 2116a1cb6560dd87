//! Which instance and which connection take the next request.

use std::time::Duration;

use h2lab_base::random::Counter;

use super::choice::{answers_well, of_two};
use super::path::PathReading;

/// What is known of an instance of a service.
#[derive(Debug, Clone, Copy, Default)]
pub struct Load {
    /// Requests that it has not answered, those that wait for a connection included.
    pub open: u32,
    /// What a response takes, smoothed; `None` before the first one.
    pub takes: Option<Duration>,
    /// The share of its responses and other results that are failures, smoothed, 0 to 1.
    pub fails: f64,
    /// Whether it could not be reached lately.
    pub is_down: bool,
    /// Its share of the requests beside others that are as fast; 0 takes none. Only relative to the others'.
    pub weight: u32,
    /// Instances of a higher number are asked only where all of the lower ones are down, or fail far more.
    pub priority: u16,
    /// Whether it is in the proxy's own zone.
    pub is_near: bool,
}

/// The share of a group of instances that is enough for all requests of the group, if it is up and answers well:
/// 1 / 1.4, as in Envoy. Below that, requests spill over in proportion: to other zones, or the next priority.
const ENOUGH: f64 = 0.71;

/// The instance for the next request: of two drawn at random, the one with less to do for its capacity
/// ([`super::choice`]), so that proxies do not all choose the same one. Those that are down are used only where all
/// are. Of the others the lowest priority goes first, as long as it answers as well as the others; within it the own
/// zone goes first, as long as enough of it is up and answers well. `None` if there is none.
pub fn instance(loads: &[Load], random: &mut Counter) -> Option<usize> {
    let Some(priority) = priority(loads, random) else {
        return of_two(loads, random, |load| load.weight > 0);
    };
    let of = |is_near: bool| {
        move |load: &Load| is_up(load) && load.priority == priority && load.is_near == is_near
    };
    let weigh = |fits: &dyn Fn(&Load) -> bool| -> u64 {
        loads.iter().filter(|load| fits(load)).map(|load| u64::from(load.weight)).sum()
    };
    let (near, far) = (weigh(&of(true)), weigh(&of(false)));
    if near == 0 || far == 0 {
        return of_two(loads, random, of(near > 0));
    }
    let whole = weigh(&|load| load.is_near && load.priority == priority);
    let [those_near, those_far] =
        [true, false].map(|is_near| loads.iter().filter(move |load| of(is_near)(load)));
    let is_near = !spills(those_near, those_far, whole, random);
    of_two(loads, random, of(is_near))
}

/// The priority that takes the next request; `None` if all are down.
fn priority(loads: &[Load], random: &mut Counter) -> Option<u16> {
    let up = || loads.iter().filter(|load| is_up(load));
    let mut priority = up().map(|load| load.priority).min()?;
    while let Some(next) = up().map(|load| load.priority).filter(|other| *other > priority).min() {
        let (own, others) =
            (|load: &&Load| load.priority == priority, |load: &&Load| load.priority > priority);
        let whole = up().filter(own).map(|load| u64::from(load.weight)).sum(); // those that are down spill nothing
        if !spills(up().filter(own), up().filter(others), whole, random) {
            break;
        }
        priority = next;
    }
    Some(priority)
}

/// Whether the next request goes to `others`, and not to its `own` instances that are up. It does in proportion, where
/// these are too small a part of what weighs `whole`.
fn spills<'a>(
    own: impl Iterator<Item = &'a Load>,
    others: impl Iterator<Item = &'a Load>,
    whole: u64,
    random: &mut Counter,
) -> bool {
    let (well, needed) = (well_beside(own, others), whole as f64 * ENOUGH);
    well < needed && random.next_f64() * needed >= well
}

/// The weight of its `own` instances, each scaled by how well it answers compared with `others`. It is squared, as in
/// the choice of two: an instance that always fails is left 1.6 % of the requests, which show when it has recovered.
/// Where all fail alike, that is no reason to go elsewhere.
fn well_beside<'a>(own: impl Iterator<Item = &'a Load>, others: impl Iterator<Item = &'a Load>) -> f64 {
    let (well, all) = others.fold((0.0, 0.0), |(well, all), load| {
        let weight = f64::from(load.weight);
        (well + weight * answers_well(load), all + weight)
    });
    own.map(|load| f64::from(load.weight) * (answers_well(load) * all / well).min(1.0).powi(2)).sum()
}

fn is_up(load: &Load) -> bool {
    load.weight > 0 && !load.is_down
}

/// Smooths what responses take: each counts for a sixteenth, an unusually slow one as well.
pub fn smoothed(before: Option<Duration>, takes: Duration) -> Duration {
    before.map_or(takes, |before| (before * 15 + takes) / 16)
}

/// The half-life of what responses took while there are none; it falls in steps.
const REMEMBERED: Duration = Duration::from_secs(10);

/// What is left of `takes` when the last response came `age` ago: half for each of [`REMEMBERED`]. Otherwise an
/// instance that was slow once, and gets no request for that reason, would count as slow for ever.
pub fn remembered(takes: Duration, age: Duration) -> Duration {
    let halves = (age.as_secs() / REMEMBERED.as_secs()).min(30) as u32;
    takes / (1 << halves)
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

/// How long a request that is placed on a connection with this path waits, beyond the round trip: for the congestion
/// window, and for a repair. `added`: segments of requests that were placed since the reading. A request counts from
/// when its connection is chosen, not from when it is sent: otherwise all that come at once choose the same one.
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

/// The connection that is given up where one fewer is enough: the one with the fewest open requests. Only where the
/// others have room for all that are open: otherwise it would be dialled again at once. `None` if there is none.
pub fn to_retire(rooms: &[Room]) -> Option<usize> {
    let (index, fewest) = rooms.iter().enumerate().min_by_key(|(_, room)| room.open)?;
    let open: u64 = rooms.iter().map(|room| u64::from(room.open)).sum();
    let free: u64 = rooms.iter().map(|room| u64::from(room.free)).sum();
    (free - u64::from(fewest.free) >= open).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UP: Load = Load {
        open: 0,
        takes: Some(Duration::from_millis(10)),
        fails: 0.0,
        is_down: false,
        weight: 1,
        priority: 0,
        is_near: false,
    };

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
        assert!(slow[3] <= 5, "it is asked now and then whether it still is: {slow:?}");
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
        assert!((90..=110).contains(&loads[0].open), "{loads:?}");
        let each = shares(&[Load { weight: 9, ..UP }, UP]);
        assert!((8_800..9_200).contains(&each[0]), "of two as well: {each:?}");
        let busy = shares(&[Load { open: 5, weight: 9, ..UP }, UP]);
        assert!((8_800..9_200).contains(&busy[0]), "five are less than its part: {busy:?}");
        let quiet = shares(&[UP, Load { weight: 3, takes: Some(Duration::from_millis(11)), ..UP }]);
        assert!(
            (2_300..2_700).contains(&quiet[0]),
            "by weight where none is busy or clearly slower: {quiet:?}"
        );
    }

    #[test]
    fn one_that_has_just_appeared_is_tried_and_not_buried() {
        let new = Load { takes: None, ..UP };
        let of = shares(&[UP, UP, UP, new]);
        assert!((2_300..2_700).contains(&of[3]), "{of:?}");
        let waits = shares(&[UP, UP, UP, Load { open: 3, ..new }]);
        assert_eq!(waits[3], 0, "what it has not answered counts");
        assert!(shares(&[new; 2]).iter().all(|share| *share > 4_500));
    }

    #[test]
    fn a_lower_priority_takes_all_while_any_of_it_is_up() {
        let down = Load { is_down: true, ..UP };
        let spare = Load { priority: 1, ..UP };
        assert_eq!(shares(&[down, UP, spare])[1..], [10_000, 0]);
        assert_eq!(shares(&[down, spare, Load { priority: 2, ..UP }]), [0, 10_000, 0]);
        assert_eq!(shares(&[Load { weight: 0, ..UP }, spare]), [0, 10_000]);
    }

    #[test]
    fn the_next_priority_takes_what_a_lower_one_fails_and_not_where_it_fails_alike() {
        let fails = Load { fails: 1.0, ..UP };
        let spare = Load { priority: 1, ..UP };
        let last = Load { priority: 2, ..UP };
        let of = shares(&[fails, fails, spare]);
        assert!(of[2] > 9_600, "1/64 of 71 % are left, which show when it is well again: {of:?}");
        let of = shares(&[Load { is_down: true, ..UP }, fails, spare]);
        assert!(of[0] == 0 && of[2] > 9_600, "{of:?}");
        assert_eq!(shares(&[Load { is_down: true, ..UP }, UP, spare]), [0, 10_000, 0]);
        assert_eq!(shares(&[Load { fails: 0.1, ..UP }, spare])[1], 0, "not for a few");
        let of = shares(&[Load { fails: 0.5, ..UP }, spare]);
        assert!((6_200..6_800).contains(&of[1]), "1 - 25 / 71: {of:?}");
        assert_eq!(shares(&[fails, Load { fails: 1.0, ..spare }])[1], 0, "it is not the instance");
        let of = shares(&[fails, Load { fails: 1.0, ..spare }, last]);
        assert!(of[2] > 8_900, "{of:?}");
    }

    #[test]
    fn the_own_zone_takes_all_until_too_much_of_it_is_down() {
        let near = Load { is_near: true, ..UP };
        let lost = Load { is_down: true, ..near };
        let far = |loads: &[Load]| {
            shares(loads).iter().zip(loads).filter(|(_, load)| !load.is_near).map(|(n, _)| n).sum::<usize>()
        };
        assert_eq!(far(&[near, near, UP, UP]), 0);
        assert_eq!(far(&[near, near, near, lost, UP]), 0, "three of four are enough");
        let half = far(&[near, lost, UP, UP]);
        assert!((2_700..3_200).contains(&half), "1 - 50 / 71 of them: {half}");
        assert_eq!(far(&[lost, lost, UP, UP]), 10_000);
        assert_eq!(far(&[near, near]), 0);
        assert_eq!(far(&[lost, Load { is_down: true, ..UP }, UP]), 10_000);
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
    fn one_that_was_slow_once_is_asked_again() {
        let mut random = Counter::new(1, "place");
        let quick = Load { takes: Some(Duration::from_millis(1)), weight: 100, ..Load::default() };
        let mut asked = |seconds: u64| {
            let takes = remembered(Duration::from_millis(40), Duration::from_secs(seconds));
            let slow = Load { takes: Some(takes), ..quick };
            (0..1_000).filter(|_| instance(&[quick, slow], &mut random) == Some(1)).count()
        };
        assert!(asked(0) <= 5 && asked(9) <= 5, "1 of 1,600");
        assert!((3..30).contains(&asked(29)), "a quarter of 40 ms: 1 of 100");
        assert!((400..600).contains(&asked(u64::MAX)), "what is forgotten is tried");
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

//! Two sockets with a perfect or a deliberately bad path between them.

use std::collections::BTreeSet;
use std::time::Duration;

use h2lab_base::random::Counter;
use h2lab_base::units::Time;

use super::{Config, Segment, Socket};

/// One way.
const DELAY: Duration = Duration::from_millis(10);
/// Both.
const RTT: Duration = Duration::from_millis(20);

/// A client and a server whose segments take [`DELAY`].
struct Pair {
    ends: [Socket; 2],
    now: Time,
    /// In flight: when each arrives, and at which end.
    inside: Vec<(Time, usize, Segment)>,
    /// Segments with payload of the client to lose, by their number from 0.
    lose: BTreeSet<u32>,
    /// All other losses, as a share.
    share: f64,
    dice: Counter,
    /// Segments with payload that the client has sent.
    sent: u32,
    /// What the server has read, and when its last byte came.
    read: Vec<u8>,
    read_at: Time,
}

impl Pair {
    /// Dials.
    fn new(client: Config, server: Config) -> Self {
        Self {
            ends: [Socket::dial(client, Time::ZERO), Socket::listen(server)],
            now: Time::ZERO,
            inside: Vec::new(),
            lose: BTreeSet::new(),
            share: 0.0,
            dice: Counter::new(1, "loss"),
            sent: 0,
            read: Vec::new(),
            read_at: Time::NEVER,
        }
    }

    fn open(client: Config, server: Config) -> Self {
        let mut pair = Self::new(client, server);
        pair.run_until(Time::ZERO + RTT * 2);
        assert!(pair.ends.iter().all(Socket::is_open));
        pair
    }

    fn send(&mut self) {
        for (from, end) in self.ends.iter_mut().enumerate() {
            while let Some(segment) = end.poll_transmit(self.now) {
                let is_data = from == 0 && !segment.payload.is_empty();
                let number = self.sent;
                self.sent += u32::from(is_data);
                let lost = (is_data && self.lose.contains(&number)) || self.dice.next_f64() < self.share;
                if !lost {
                    self.inside.push((self.now + DELAY, 1 - from, segment));
                }
            }
        }
    }

    /// Goes on to the next event; `false` if there is none before `until`.
    fn step(&mut self, until: Time) -> bool {
        self.send();
        let arrival = self.inside.first().map_or(Time::NEVER, |(at, ..)| *at);
        let next = self.ends.iter().map(Socket::poll_timeout).fold(arrival, Time::min);
        if next > until {
            self.now = until;
            return false;
        }
        self.now = self.now.max(next);
        if arrival <= self.now {
            let (_, to, segment) = self.inside.remove(0);
            self.ends[to].handle_segment(self.now, segment);
        }
        self.ends.iter_mut().for_each(|end| end.handle_timeout(self.now));
        true
    }

    /// Lets time pass; the server's application reads nothing.
    fn run_until(&mut self, until: Time) {
        while self.step(until) {}
    }

    /// Writes `bytes` at the client as room comes, and reads at the server until it has them all.
    fn transfer(&mut self, bytes: &[u8]) -> Duration {
        let began = self.now;
        let mut written = 0;
        self.read.clear();
        for _ in 0..1_000_000 {
            written += self.ends[0].write(&bytes[written..]);
            self.read_all();
            if self.read.len() == bytes.len() {
                assert!(self.read == bytes, "what arrived is not what was sent");
                return self.read_at.since(began);
            }
            assert!(self.step(Time::NEVER - Duration::from_secs(1)), "nothing moves: {:?}", self.ends);
        }
        panic!("the transfer does not end: {:?}", self.ends);
    }

    fn read_all(&mut self) {
        let mut space = [0; 4096];
        loop {
            let n = self.ends[1].read(self.now, &mut space);
            if n == 0 {
                return;
            }
            self.read.extend_from_slice(&space[..n]);
            self.read_at = self.now;
        }
    }
}

fn open() -> Pair {
    Pair::open(Config::default(), Config::default())
}

/// `n` full segments.
fn segments(n: usize) -> Vec<u8> {
    (0..=255).cycle().take(n * Config::default().segment).collect()
}

#[test]
fn a_connection_is_open_after_a_round_trip_and_data_takes_half_of_one() {
    let mut pair = Pair::new(Config::default(), Config::default());
    pair.run_until(Time::ZERO + RTT - Duration::from_nanos(1));
    assert!(!pair.ends[0].is_open());
    pair.run_until(Time::ZERO + RTT);
    assert!(pair.ends[0].is_open());
    assert_eq!(pair.transfer(b"hello"), DELAY);
}

#[test]
fn a_lost_syn_costs_a_second() {
    let mut pair = Pair::new(Config::default(), Config::default());
    pair.share = 1.0;
    pair.run_until(Time::from_millis(999));
    pair.share = 0.0;
    pair.run_until(Time::from_millis(1_000) + RTT);
    assert!(pair.ends[0].is_open());
}

#[test]
fn slow_start_sends_ten_segments_and_doubles_per_round_trip() {
    for (n, trips) in [(10, 0), (11, 1), (30, 1), (31, 2)] {
        let mut pair = open();
        let took = pair.transfer(&segments(n));
        assert_eq!(took, DELAY + RTT * trips, "{n} segments");
    }
}

#[test]
fn three_later_segments_repair_a_loss_within_a_round_trip() {
    let mut pair = open();
    pair.lose.insert(2);
    assert_eq!(pair.transfer(&segments(6)), DELAY + RTT);
    let figures = pair.ends[0].figures();
    assert_eq!((figures.retransmits, figures.timeouts, figures.cwnd), (1, 0, 7));
}

#[test]
fn fewer_than_three_take_a_quarter_of_a_round_trip_longer() {
    let mut pair = open();
    pair.lose.insert(2);
    assert_eq!(pair.transfer(&segments(5)), DELAY + RTT + RTT / 4);
}

#[test]
fn a_lost_end_of_several_segments_waits_for_the_tail_loss_probe() {
    let mut pair = open();
    pair.lose.insert(1);
    // The first segment's acknowledgement is delayed beyond two round trips and the shortest timer.
    assert_eq!(pair.transfer(&segments(2)), DELAY + RTT * 2 + Duration::from_millis(2));
    let figures = pair.ends[0].figures();
    assert_eq!((figures.retransmits, figures.timeouts), (1, 0));
}

#[test]
fn a_lost_single_segment_waits_for_the_timeouts_floor() {
    let mut pair = open();
    pair.lose.insert(0);
    let took = pair.transfer(b"x");
    assert_eq!(took, DELAY + RTT + Duration::from_millis(200));
}

#[test]
fn timeouts_double() {
    let mut pair = open();
    pair.lose.extend([0, 1, 2, 3]);
    let timeout = RTT + Duration::from_millis(200);
    // The probe, the timeout after it, and two doubled ones.
    assert_eq!(pair.transfer(b"x"), DELAY + timeout * (1 + 1 + 2 + 4));
    let figures = pair.ends[0].figures();
    assert_eq!((figures.retransmits, figures.timeouts), (4, 3));
}

#[test]
fn a_full_receiver_stops_the_sender_and_a_probe_finds_it_open_again() {
    let small = Config { receive_buffer: 10_000, ..Config::default() };
    let mut pair = Pair::open(Config::default(), small);
    let bytes = segments(20);
    assert_eq!(pair.ends[0].write(&bytes), bytes.len());
    pair.run_until(Time::from_millis(5_000));
    assert!(pair.sent <= 7, "{} segments into 10,000 bytes", pair.sent);
    // All window updates of the server are lost from now on, except answers to probes.
    pair.share = 1.0;
    pair.read_all();
    pair.send();
    pair.share = 0.0;
    while pair.read.len() < bytes.len() {
        assert!(pair.step(Time::from_millis(600_000)), "stuck at {} bytes", pair.read.len());
        pair.read_all();
    }
    assert!(pair.read == bytes);
}

#[test]
fn the_end_arrives_after_the_last_byte_and_both_ways() {
    let mut pair = open();
    pair.lose.insert(1);
    let bytes = segments(3);
    pair.ends[0].write(&bytes);
    pair.ends[0].close();
    while !pair.ends[1].is_at_end() {
        assert!(pair.step(Time::from_millis(5_000)));
        pair.read_all();
    }
    assert!(pair.read == bytes);
    assert_eq!(pair.ends[0].write(b"more"), 0);
    assert_eq!(pair.ends[1].write(b"answer"), 6, "the other direction stays open");
    pair.ends[1].close();
    pair.run_until(pair.now + Duration::from_secs(10));
    let mut space = [0; 9];
    assert_eq!(pair.ends[0].read(pair.now, &mut space), 6);
    assert!(pair.ends[0].is_at_end());
    assert!(pair.ends.iter().all(|end| !end.poll_timeout().happened()), "nothing is left to do");
}

#[test]
fn a_reset_ends_both_sides_even_if_it_is_lost_once() {
    let mut pair = open();
    pair.ends[1].abort();
    pair.share = 1.0;
    pair.send();
    pair.share = 0.0;
    pair.ends[0].write(b"anyone there?");
    pair.run_until(pair.now + RTT);
    assert!(pair.ends.iter().all(Socket::is_reset));
}

#[test]
fn whatever_is_lost_and_however_it_is_cut_the_bytes_arrive_in_order() {
    let bytes: Vec<u8> = (0..100_000_u32).map(|n| (n ^ (n >> 8)) as u8).collect();
    for seed in 0..20 {
        let shred = (seed % 2 == 0).then_some(seed);
        let client = Config { shred, ..Config::default() };
        let server = Config { shred, receive_buffer: 5_000 << (seed % 4), ..Config::default() };
        let mut pair = Pair::open(client, server);
        pair.dice = Counter::new(seed, "loss");
        pair.share = 0.01 * (seed % 5) as f64;
        pair.transfer(&bytes);
    }
}

/// Throughput under random loss against the square-root law of Mathis, Semke, Mahdavi and Ott (1997): the window is about
/// 1.22 / √p segments for Reno with every segment acknowledged.
#[test]
fn reno_under_random_loss_follows_the_square_root_law() {
    let config = Config {
        congestion: super::Congestion::Reno,
        delayed_ack: Duration::ZERO,
        send_buffer: 1 << 20,
        ..Config::default()
    };
    let mut pair = Pair::open(config, config);
    let loss = 0.01;
    let bytes = segments(6_000);
    // Only the data is lost: the law does not cover lost acknowledgements.
    let dice = Counter::new(3, "data");
    pair.lose.extend((0..20_000).filter(|n| dice.f64_at(u64::from(*n)) < loss));
    let took = pair.transfer(&bytes);
    let window = 6_000.0 * RTT.as_secs_f64() / took.as_secs_f64();
    let law = 1.22 / loss.sqrt();
    assert!((0.75..1.25).contains(&(window / law)), "{window:.1} segments, the law has {law:.1}");
}

//! Auto-tuned windows compared with the actual bandwidth-delay product of the link.
//!
//! The sender always has data: it is limited only by the window or its own buffers, which are just large enough to keep
//! the link full. (With larger buffers it would fill them as fast as credit arrives, and count a stall although the
//! link is never idle.)

use std::time::Duration;

use h2lab_base::units::{Bandwidth, Time};
use h2lab_model::scenario::{Axis, Capacity, Cell, QueueSize};
use h2lab_model::workload::Protocol;
use h2lab_wire::StreamId;
use h2lab_wire::trace::{Direction, FrameKind};

use crate::model::{self, Disturbance, DisturbanceKind, Repetition, Setup, Side, at_once};
use crate::trial;

/// The initial size of every window: the default of RFC 9113.
const INITIAL: u32 = 65_535;

/// More than any test needs.
const AMPLE: Option<u32> = Some(1 << 30);

/// The most segments in a bandwidth-delay product: as with offload, larger paths have larger segments. The model of TCP
/// visits all that are in flight for each segment that it sends.
const MOST_SEGMENTS: u64 = 1_000;

/// A link.
#[derive(Debug, Clone, Copy)]
struct Path {
    rtt: Duration,
    bandwidth: Bandwidth,
    loss: f64,
}

impl Path {
    fn new(rtt_ms: u64, megabits: u64) -> Self {
        let bandwidth = Bandwidth::from_bits_per_second(megabits * 1_000_000).expect("above zero");
        Self { rtt: Duration::from_millis(rtt_ms), bandwidth, loss: 0.0 }
    }

    /// The bandwidth-delay product in bytes.
    fn product(self) -> u64 {
        (u128::from(self.bandwidth.bits_per_second()) * self.rtt.as_nanos() / 8_000_000_000) as u64
    }

    /// One GET over one connection.
    fn cell(self) -> Cell {
        let mut scenario = trial::one(Protocol::H2c, 1, self.loss);
        scenario.link.delay = Axis::one(self.rtt / 2);
        scenario.link.bandwidth = Axis::one(Capacity(Some(self.bandwidth)));
        scenario.link.queue = Axis::one(QueueSize(Some(self.product())));
        "GET".clone_into(&mut scenario.work.method);
        scenario.work.body_bytes = 0;
        scenario.work.concurrency = Some(1);
        scenario.work.warmup = Duration::ZERO;
        scenario.work.measure = Axis::one(Duration::from_millis(100));
        (scenario.work.drain, scenario.work.timeout) = (Duration::from_secs(600), Duration::from_secs(600));
        trial::cell(&scenario)
    }

    fn setup(self, auto_limit: Option<u32>) -> Setup<'static> {
        let mut setup = Setup::new();
        let flow = &mut setup.client.flow;
        (flow.stream_window, flow.connection_window, flow.auto_limit) = (INITIAL, INITIAL, auto_limit);
        setup.server.send_buffer = 64 << 10;
        let tcp = &mut setup.server_tcp;
        tcp.send_buffer = self.product() as usize * 5 / 4;
        let first = tcp.initial_window as usize * tcp.segment;
        tcp.segment = tcp.segment.max((self.product() / MOST_SEGMENTS) as usize);
        tcp.initial_window = (first / tcp.segment).max(1) as u32;
        setup.client_tcp.receive_buffer = 64 << 20;
        setup
    }
}

/// Fetches `products` bandwidth-delay products of bytes, once.
fn fetch(path: Path, setup: &Setup<'_>, products: u64) -> Repetition {
    let bytes = products * path.product();
    let application = at_once(bytes);
    let repetition = model::repetition(&path.cell(), &Setup { application: &application, ..setup.clone() });
    let first = repetition.record.samples.get(0).expect("a request");
    assert!(first.outcome.is_success() && first.body_bytes == bytes, "{first:?}");
    repetition
}

/// Round trips from the first byte of the response to `until`.
fn trips(path: Path, repetition: &Repetition, until: Time) -> f64 {
    until.since(repetition.record.samples.get(0).expect("a request").first_byte_at).as_secs_f64()
        / path.rtt.as_secs_f64()
}

/// The credit that the peer had according to the client's sent and received frames, after each frame: for the
/// connection or for stream 1.
fn credit(repetition: &Repetition, stream: StreamId) -> impl Iterator<Item = (Time, u64)> {
    let mut window = i64::from(INITIAL);
    repetition.record.frames.iter().filter_map(move |frame| {
        match (frame.kind, frame.direction) {
            (FrameKind::WINDOW_UPDATE, Direction::Up) if frame.stream == stream => {
                window += i64::from(frame.value);
            }
            (FrameKind::DATA, Direction::Down) => window -= i64::from(frame.length),
            _ => return None,
        }
        Some((frame.at, u64::try_from(window).expect("the peer keeps to its windows")))
    })
}

/// The largest credit at any time within `times`, of the connection or of the stream.
fn largest(repetition: &Repetition, times: impl Fn(Time) -> bool) -> u64 {
    let both = [StreamId::CONNECTION, StreamId(1)];
    let windows = both.into_iter().flat_map(|stream| credit(repetition, stream));
    windows.filter(|(at, _)| times(*at)).map(|(_, window)| window).max().expect("frames at that time")
}

fn pings(repetition: &Repetition) -> u64 {
    repetition.servers[0].frames_received[usize::from(FrameKind::PING.0)]
}

/// No stall after `most` round trips, and no window above 4 products.
fn keeps_its_promise(path: Path, setup: &Setup<'_>, most: f64) {
    let repetition = fetch(path, setup, 24);
    let stalled = trips(path, &repetition, repetition.stalled_until[0]);
    assert!(stalled > 0.0, "the initial window is too small on {path:?}");
    assert!(stalled < most, "stalled {stalled} round trips after the first byte on {path:?}");
    let window = largest(&repetition, |_| true);
    let products = window as f64 / path.product() as f64;
    assert!((2.0..4.0).contains(&products), "a window of {products} products on {path:?}");
    assert!((1..=16).contains(&pings(&repetition)), "{} PINGs on {path:?}", pings(&repetition));
}

/// 100, 400 and 1000 Mbit/s at each round trip: products of 0.3 to 31 MB.
fn paths() -> impl Iterator<Item = Path> {
    [25, 250].into_iter().flat_map(|rtt| [100, 400, 1_000].map(|megabits| Path::new(rtt, megabits)))
}

#[test]
fn a_tuned_window_stalls_nobody_after_10_round_trips_and_stays_below_4_products() {
    for path in paths() {
        // TCP's own slow start is already over.
        let mut setup = path.setup(AMPLE);
        setup.server_tcp.initial_window = (path.product() / setup.server_tcp.segment as u64) as u32;
        keeps_its_promise(path, &setup, 10.0);
    }
}

#[test]
fn on_a_connection_that_has_just_begun_the_window_is_four_round_trips_behind_tcp_at_most() {
    for path in paths().chain([Path::new(250, 20)]) {
        let setup = path.setup(AMPLE);
        let first = setup.server_tcp.initial_window as usize * setup.server_tcp.segment;
        // TCP doubles its window from the first one to the product. The client notices the need for a larger window
        // when the data has arrived, and the server half a round trip later. For the larger products this alone takes
        // longer than ten round trips.
        let slow_start = (path.product() as f64 / first as f64).log2();
        keeps_its_promise(path, &setup, (slow_start + 4.0).max(10.0));
    }
}

#[test]
fn the_same_transfers_with_fixed_windows_stall_to_their_end() {
    for path in [Path::new(25, 100), Path::new(250, 20)] {
        let repetition = fetch(path, &path.setup(None), 24);
        let counters = &repetition.servers[0];
        let whole = repetition.record.samples.get(0).expect("a request").service_time();
        assert!(counters.stalled_stream_window > whole / 2, "{counters:?} in {whole:?}");
        assert!(trips(path, &repetition, repetition.stalled_until[0]) > 24.0);
        assert!(largest(&repetition, |_| true) <= u64::from(INITIAL));
        assert_eq!(pings(&repetition), 0);
    }
}

#[test]
fn body_that_a_lost_packet_held_up_is_not_taken_for_a_faster_path() {
    let path = Path { loss: 0.01, ..Path::new(25, 100) };
    let repetition = fetch(path, &path.setup(AMPLE), 40);
    let products = largest(&repetition, |_| true) as f64 / path.product() as f64;
    assert!((0.5..4.0).contains(&products), "a window of {products} products");
}

#[test]
fn a_window_ends_at_the_limit_that_it_was_given() {
    let path = Path::new(25, 100);
    for limit in [100_000, 300_000] {
        let window = largest(&fetch(path, &path.setup(Some(limit)), 24), |_| true);
        // The bytes in flight after it has grown become visible only as they arrive.
        assert!((u64::from(limit) * 9 / 10..=u64::from(limit)).contains(&window), "{window} of {limit}");
    }
}

#[test]
fn a_window_shrinks_when_memory_is_short_and_grows_again_when_it_is_not() {
    let path = Path::new(25, 100);
    let [short, ample] = [20, 40].map(|trips| path.rtt * trips);
    let limit = 80_000;
    let mut setup = path.setup(AMPLE);
    setup.disturbances = [(short, limit), (ample, u32::MAX)]
        .map(|(after, bytes)| Disturbance {
            after,
            connection: 0,
            kind: DisturbanceKind::WindowLimit(Side::Client, bytes),
        })
        .into();
    let repetition = fetch(path, &setup, 60);
    let begun = repetition.record.samples.get(0).expect("a request").sent_at;
    let between =
        |from: Duration, to: Duration| largest(&repetition, |at| begun + from < at && at < begun + to);
    assert!(between(path.rtt * 15, short) > 2 * path.product());
    // It takes some time to use up credit granted before memory became short.
    assert!(between(short + 4 * path.rtt, ample) <= u64::from(limit));
    assert!(between(ample + 10 * path.rtt, ample + 20 * path.rtt) > 2 * path.product());
}

#[test]
fn a_slow_reader_gets_no_growth_and_a_faster_one_gets_what_its_pace_needs() {
    let path = Path::new(25, 100);
    let read = |bits_per_second| {
        let reader = Bandwidth::from_bits_per_second(bits_per_second);
        largest(&fetch(path, &Setup { reader, ..path.setup(AMPLE) }, 8), |_| true)
    };
    // The initial window is 3 × the round trip at 7 Mbit/s.
    assert!(read(1_000_000) <= u64::from(INITIAL));
    assert!(read(6_000_000) <= u64::from(INITIAL));
    assert!(read(10_000_000) > u64::from(INITIAL));
    let faster = read(20_000_000);
    assert!((2 * INITIAL..4 * INITIAL).contains(&(faster as u32)), "{faster}");
}

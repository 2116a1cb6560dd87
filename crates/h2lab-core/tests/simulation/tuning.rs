//! Windows that tune themselves, against the bandwidth-delay product that the link really has.

use std::time::Duration;

use h2lab_core::scenario::{Axis, Capacity, Cell, Queue};
use h2lab_core::trace::{Direction, FrameKind};
use h2lab_core::units::{Bandwidth, Time};
use h2lab_core::wire::StreamId;
use h2lab_core::workload::Protocol;

use crate::model::{self, Deed, Disturbance, Setup, Side, Visit, at_once};
use crate::trial;

/// What every window begins with: RFC 9113's own.
const INITIAL: u32 = 65_535;

/// A link, and a sender whose own buffers hold no more than it takes to keep that link full.
#[derive(Debug, Clone, Copy)]
struct Path {
    rtt: Duration,
    bandwidth: Bandwidth,
}

impl Path {
    fn new(rtt_ms: u64, megabits: u64) -> Self {
        let bandwidth = Bandwidth::from_bits_per_second(megabits * 1_000_000).expect("above zero");
        Self { rtt: Duration::from_millis(rtt_ms), bandwidth }
    }

    /// The bandwidth-delay product in bytes.
    fn product(self) -> u64 {
        (u128::from(self.bandwidth.bits_per_second()) * self.rtt.as_nanos() / 8_000_000_000) as u64
    }

    /// One GET over one connection.
    fn cell(self) -> Cell {
        let mut scenario = trial::one(Protocol::H2c, 1, 0.0);
        scenario.link.delay = Axis::one(self.rtt / 2);
        scenario.link.bandwidth = Axis::one(Capacity(Some(self.bandwidth)));
        scenario.link.queue = Axis::one(Queue(Some(self.product())));
        "GET".clone_into(&mut scenario.work.method);
        scenario.work.body_bytes = 0;
        scenario.work.concurrency = Some(1);
        scenario.work.warmup = Duration::ZERO;
        scenario.work.measure = Axis::one(Duration::from_millis(100));
        scenario.work.drain = Duration::from_secs(120);
        trial::cell(&scenario)
    }

    fn setup(self, auto_limit: Option<u32>) -> Setup<'static> {
        let mut setup = Setup::new();
        let flow = &mut setup.client.flow;
        (flow.stream_window, flow.connection_window, flow.auto_limit) = (INITIAL, INITIAL, auto_limit);
        setup.server.send_buffer = 64 << 10;
        setup.server_tcp.send_buffer = self.product() as usize * 5 / 4;
        setup.client_tcp.receive_buffer = 64 << 20;
        setup
    }
}

/// Fetches `bytes` once.
fn fetch(path: Path, setup: &Setup<'_>, bytes: u64) -> Visit {
    let application = at_once(bytes);
    let visit = model::visit(&path.cell(), &Setup { application: &application, ..setup.clone() });
    let first = visit.record.samples.first().expect("a request");
    assert!(first.outcome.is_success() && first.body_bytes == bytes, "{first:?}");
    visit
}

/// How long the sender stood before closed windows.
fn stalled(visit: &Visit) -> Duration {
    visit.servers[0].stalled_stream_window + visit.servers[0].stalled_connection_window
}

/// The credit that the sender had by what the client had sent and received: of the connection or of stream 1, at every
/// frame.
fn windows(visit: &Visit, stream: StreamId) -> Vec<(Time, i64)> {
    let mut window = i64::from(INITIAL);
    let mut windows = Vec::new();
    for frame in &visit.record.frames {
        match (frame.kind, frame.direction) {
            (FrameKind::WINDOW_UPDATE, Direction::Up) if frame.stream == stream => {
                window += i64::from(frame.value);
            }
            (FrameKind::DATA, Direction::Down) => window -= i64::from(frame.length),
            _ => continue,
        }
        windows.push((frame.at, window));
    }
    windows
}

fn largest(visit: &Visit) -> u64 {
    let both = [StreamId::CONNECTION, StreamId(1)].map(|stream| windows(visit, stream));
    both.iter().flatten().map(|(_, window)| *window).max().expect("frames").unsigned_abs()
}

#[test]
fn probe() {
    for path in [Path::new(25, 100), Path::new(250, 100), Path::new(25,1000)] {
        for auto in [None, Some(64 << 20)] {
        let setup = path.setup(auto);
        for n in [6, 8,10,15, 20, 30] {
            let v = fetch(path, &setup, path.product() * n);
            println!("{path:?} {auto:?} {n}: {:?} trips stalled {:?} largest {:.2} pings {} wu {}",
                v.record.samples[0].service_time().as_secs_f64() / path.rtt.as_secs_f64(), stalled(&v), largest(&v) as f64 / path.product() as f64,
                v.servers[0].frames_received[6], v.servers[0].frames_received[8]);
        }}
    }
}

//! Windows compared with the bandwidth-delay product: examples of such tests.

use std::time::Duration;

use h2lab_base::units::Bandwidth;
use h2lab_model::scenario::{Axis, Cell};
use h2lab_model::workload::Protocol;

use crate::model::{self, Repetition, Setup, at_once};
use crate::trial;

/// What is fetched: 2 MiB.
const BYTES: u64 = 2 << 20;

/// One GET at a time over one connection with this round trip.
fn bulk(rtt: Duration) -> Cell {
    let mut scenario = trial::one(Protocol::H2c, 1, 0.0);
    scenario.link.delay = Axis::one(rtt / 2);
    "GET".clone_into(&mut scenario.work.method);
    scenario.work.body_bytes = 0;
    scenario.work.concurrency = Some(1);
    scenario.work.warmup = Duration::ZERO;
    scenario.work.measure = Axis::one(Duration::from_millis(100));
    scenario.work.drain = Duration::from_secs(120);
    trial::cell(&scenario)
}

/// Fetches once with stream windows of this size, and a reader of this speed.
fn fetch(rtt: Duration, window: u32, reader: Option<Bandwidth>) -> Repetition {
    let mut setup = Setup::new();
    setup.client.flow.stream_window = window;
    setup.server_tcp.send_buffer = 4 << 20; // otherwise the socket holds the sender back
    let application = at_once(BYTES);
    let setup = Setup { application: &application, reader, ..setup };
    model::repetition(&bulk(rtt), &setup)
}

fn duration(repetition: &Repetition) -> Duration {
    let first = repetition.record.samples.get(0).expect("a request");
    assert!(first.outcome.is_success() && first.body_bytes == BYTES, "{first:?}");
    first.service_time()
}

#[test]
fn a_window_below_the_body_stalls_its_sender_once_per_round_trip_and_a_larger_one_never() {
    for rtt in [Duration::from_millis(25), Duration::from_millis(250)] {
        let narrow = fetch(rtt, 64 << 10, None);
        let wide = fetch(rtt, 4 << 20, None);
        assert!(narrow.servers[0].stalled_stream_window > rtt, "{:?}", narrow.servers[0]);
        assert_eq!(wide.servers[0].stalled_stream_window, Duration::ZERO);
        // Credit is returned by halves of the window: 64 halves, and a round trip for each one or two of them.
        let trips = duration(&narrow).as_secs_f64() / rtt.as_secs_f64();
        assert!((30.0..66.0).contains(&trips), "{trips} round trips at {rtt:?}");
        assert!(duration(&wide) < duration(&narrow) / 3, "{:?}", duration(&wide));
    }
}

#[test]
fn a_slow_reader_holds_the_sender_back_by_the_window() {
    let pace = Bandwidth::from_bits_per_second(8_000_000).expect("above zero"); // 1 MB/s
    let window = 256 << 10;
    let repetition = fetch(Duration::from_millis(25), window, Some(pace));
    let least = pace.transmission_time(BYTES - u64::from(window));
    // Credit is returned by halves of the window.
    let most = least + pace.transmission_time(u64::from(window / 2)) + Duration::from_millis(50);
    assert!((least..most).contains(&duration(&repetition)), "{:?}", duration(&repetition));
    assert!(repetition.servers[0].stalled_stream_window > least / 2);
}

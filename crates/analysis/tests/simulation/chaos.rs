//! Client engine with server engine under every kind of disturbance: every request ends, and ends once.

use std::time::Duration;

use h2lab_base::random::Counter;
use h2lab_base::units::Ratio;
use h2lab_link::LossModel;
use h2lab_model::record::{CloseReason, ConnectionRecord, Outcome};
use h2lab_model::scenario::{Axis, Cell};
use h2lab_model::workload::Protocol;
use h2lab_wire::ErrorCode;

use crate::model::{self, Answer, Disturbance, DisturbanceKind, Repetition, Setup, Side};
use crate::trial;

/// Repetitions of each kind. Both kinds passed for 2,000 seeds when this was written.
const SEEDS: std::ops::Range<u64> = 0..120;
/// Longer than any sequence of timeouts: a request that has not ended by then hangs.
const FOREVER: Duration = Duration::from_secs(3_600);

/// The error codes of our disturbances.
const CODES: [ErrorCode; 4] =
    [ErrorCode::NO_ERROR, ErrorCode::INTERNAL_ERROR, ErrorCode::CANCEL, ErrorCode::REFUSED_STREAM];

/// Prints the seed if the test fails while this is in scope.
struct Announce(u64);

impl Drop for Announce {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failed with seed {}", self.0);
        }
    }
}

/// Random choices of one repetition.
struct Dice(Counter);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }

    fn millis(&mut self, bound: u64) -> Duration {
        Duration::from_micros(self.below(bound * 1_000))
    }
}

/// About 75 requests over a bad link, or 4 at a time.
fn cell(dice: &mut Dice, seed: u64) -> Cell {
    let protocol = dice.one_of(&[Protocol::H1, Protocol::H2c, Protocol::H2c]);
    let mut scenario = trial::one(protocol, 1 + dice.below(3) as u32, 0.0);
    scenario.seed = Axis::one(seed);
    scenario.matrix.warm_pool = 1 + dice.below(3) as u32;
    scenario.matrix.max_connections = scenario.matrix.warm_pool + dice.below(8) as u32;
    scenario.matrix.streams = Axis::one(dice.one_of(&[1, 3, 100]));
    scenario.link.delay = Axis::one(dice.millis(20));
    scenario.link.jitter = Axis::one(dice.millis(5));
    scenario.link.loss = Axis::one(Ratio::new(dice.one_of(&[0.0, 0.01, 0.1])).expect("a share"));
    dice.one_of(&["GET", "POST"]).clone_into(&mut scenario.work.method);
    scenario.work.body_bytes =
        if scenario.work.method == "GET" { 0 } else { dice.one_of(&[0, 1, 300, 3_000]) };
    scenario.work.rate = Axis::one(500.0);
    scenario.work.concurrency = dice.one_of(&[None, None, Some(4)]);
    scenario.work.warmup = Duration::ZERO;
    scenario.work.measure = Axis::one(Duration::from_millis(150));
    (scenario.work.drain, scenario.work.timeout) = (FOREVER, 2 * FOREVER);
    trial::cell(&scenario)
}

/// Engines with small and large limits, sockets with small buffers, streams cut into small pieces.
fn setup(dice: &mut Dice) -> Setup<'static> {
    let mut setup = Setup::new();
    for (tcp, engine) in
        [(&mut setup.client_tcp, &mut setup.client), (&mut setup.server_tcp, &mut setup.server)]
    {
        tcp.shred = dice.one_of(&[None, Some(())]).map(|()| dice.below(u64::MAX));
        tcp.send_buffer = dice.one_of(&[500, 3_000, 64 << 10]);
        tcp.receive_buffer = dice.one_of(&[2_000, 10_000, 1 << 20]);
        tcp.delayed_ack = dice.one_of(&[Duration::ZERO, Duration::from_millis(40)]);
        engine.flow.stream_window = dice.one_of(&[100, 4_096, 65_535, 1 << 20]);
        engine.flow.connection_window = dice.one_of(&[65_535, 1 << 20]);
        engine.flow.update_threshold_percent = dice.one_of(&[1, 50, 100]);
        engine.header_table_size = dice.one_of(&[0, 100, 4_096]);
        engine.send_buffer = dice.one_of(&[7, 1_000, 256 << 10]);
        // A timeout long enough for the worst link, on which 3 kB may take a minute: that is not an attack, and a
        // handshake that exceeds its own limit is another test.
        engine.peer_timeout = FOREVER;
        let limits = &mut engine.limits;
        (limits.stall, limits.head, limits.body_period, limits.idle) = (None, None, None, None);
        // Windows of 100 bytes are not an attack here either.
        limits.small_data_frames = u32::MAX;
    }
    setup.server.max_concurrent_streams = dice.one_of(&[Some(1), Some(7), None]);
    setup
}

/// Up to 12 disturbances in the first 200 ms.
fn disturbances(dice: &mut Dice) -> Vec<Disturbance> {
    let mut list: Vec<Disturbance> = (0..dice.below(13)).map(|_| disturbance(dice)).collect();
    list.sort_by_key(|disturbance| disturbance.after);
    list
}

fn disturbance(dice: &mut Dice) -> Disturbance {
    let side = dice.one_of(&[Side::Client, Side::Server]);
    let place = dice.below(100) as usize;
    let code = dice.one_of(&CODES);
    let kinds = [
        DisturbanceKind::GoAway(side, ErrorCode::NO_ERROR),
        DisturbanceKind::GoAway(side, code),
        DisturbanceKind::Reset(place, code),
        DisturbanceKind::Reset(place, code),
        DisturbanceKind::Cancel(place),
        DisturbanceKind::Cancel(place),
        DisturbanceKind::Ping(side),
        DisturbanceKind::Abort(side),
    ];
    Disturbance { after: dice.millis(200), connection: place, kind: dice.one_of(&kinds) }
}

/// A repetition under `seed`, and the length of its responses.
fn repetition(seed: u64, disturbed: bool) -> (Repetition, u64) {
    let mut dice = Dice(Counter::new(seed, if disturbed { "storm" } else { "calm" }));
    let mut cell = cell(&mut dice, seed);
    let mut setup = setup(&mut dice);
    if disturbed {
        setup.disturbances = disturbances(&mut dice);
        setup.server.max_requests = dice.one_of(&[None, None, Some(1), Some(10)]);
        // A dead process sends one RST. If that is lost, a client that waits for an answer waits forever: that is how
        // TCP works. The generator has its timeout for it; here the timeout would hide real hangs.
        if setup.disturbances.iter().any(|disturbance| matches!(disturbance.kind, DisturbanceKind::Abort(_)))
        {
            let link = cell.link.as_mut().expect("a link");
            (link.uplink.loss, link.downlink.loss) = (LossModel::None, LossModel::None);
        }
    }
    let body_bytes = dice.one_of(&[0, 1, 300, 3_000]);
    let delays = Counter::new(seed, "answers");
    let application = move |now: h2lab_base::units::Time, _: &[u8]| {
        let delay = Duration::from_micros(delays.at(now.as_nanos()) % 30_000);
        Answer { due: now + delay, status: 200, body_bytes }
    };
    (model::repetition(&cell, &Setup { application: &application, ..setup }), body_bytes)
}

/// The invariants under any disturbance. Where requests end, an assertion checks that none ends twice.
fn check(repetition: &Repetition, body_bytes: u64) {
    let record = &repetition.record;
    assert!(record.samples.len() >= 4);
    for (n, sample) in record.samples.iter().enumerate() {
        assert!(sample.completed_at.happened(), "request {n} has no end: {sample:?}");
        assert_ne!(sample.outcome, Outcome::Unfinished, "request {n} hangs: {sample:?}");
        if sample.outcome == Outcome::Succeeded {
            assert_eq!(sample.body_bytes, body_bytes, "request {n}");
        }
    }
    record.connections.iter().for_each(check_peace);
    let link = record.link.as_ref().expect("a link");
    assert!(link.up.adds_up() && link.down.adds_up());
}

/// Neither engine reports a protocol violation by the other: every code and every reason is one of ours.
fn check_peace(connection: &ConnectionRecord) {
    let goaways = connection.goaways.iter().map(|goaway| goaway.code);
    for code in goaways.chain(connection.resets_received.iter().map(|(code, _)| *code)) {
        assert!(CODES.contains(&ErrorCode(code)), "{}: {connection:?}", ErrorCode(code));
    }
    if let CloseReason::Local { why } = &connection.closed {
        assert!(why.starts_with("we ") || why == "a request was cancelled", "{connection:?}");
    }
}

#[test]
fn without_disturbance_every_request_succeeds_whatever_the_pieces_windows_and_losses() {
    for seed in SEEDS {
        let _announce = Announce(seed);
        let (repetition, body_bytes) = repetition(seed, false);
        check(&repetition, body_bytes);
        for (n, sample) in repetition.record.samples.iter().enumerate() {
            assert_eq!(sample.outcome, Outcome::Succeeded, "request {n}: {sample:?}");
        }
    }
}

#[test]
fn goaways_resets_cancellations_and_dead_processes_leave_no_request_without_an_end() {
    let mut ends = [0_u32; Outcome::ALL.len()];
    let mut replays = 0;
    for seed in SEEDS {
        let _announce = Announce(seed);
        let (repetition, body_bytes) = repetition(seed, true);
        check(&repetition, body_bytes);
        for sample in &repetition.record.samples {
            ends[sample.outcome as usize] += 1;
            replays += u32::from(sample.replays);
        }
    }
    for outcome in [Outcome::Succeeded, Outcome::Timeout, Outcome::Reset, Outcome::Closed] {
        assert!(ends[outcome as usize] > 0, "no request ended as {outcome}: the storm is too weak");
    }
    assert!(replays > 0, "no request was sent again: the storm is too weak");
}

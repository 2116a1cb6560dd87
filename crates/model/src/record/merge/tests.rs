//! Several generators give what one would have given.

use std::time::Duration;

use h2lab_base::random::Counter;
use h2lab_base::text::PeerText;

use super::*;
use crate::record::tally::Counts;
use crate::record::{GoAwayRecord, Outcome, testing};
use crate::workload::Protocol;

/// The driver's time of the common instant.
const START: Time = Time::from_millis(10_000);

/// The load's clock less that of each agent.
const SHIFTS: [i64; 3] = [0, -250_000_000, 7_000_000_123];

/// The first `count` requests of agent `number` of `of` that share a load, on the driver's clock: it has one each 2 ms. They take a
/// microsecond to half a minute, and every 50th fails.
fn samples(random: &mut Counter, count: u32, number: u32, of: u32) -> Vec<Sample> {
    let one = |k: u32| {
        let due = START + Duration::from_millis(2) * (k * of + number);
        let bits = random.below(26);
        let time = Duration::from_nanos(1_000 + random.below(1_000 << bits));
        let failed = k % 50 == 7;
        Sample {
            number: k * of + number,
            connection: if failed { Sample::NO_CONNECTION } else { k % 2 },
            sent_at: if failed { Time::NEVER } else { due },
            first_byte_at: if failed { Time::NEVER } else { due + time / 2 },
            completed_at: due + time,
            outcome: if failed { Outcome::Connect } else { Outcome::Succeeded },
            status: if failed { 0 } else { 200 },
            body_bytes: 3,
            ..Sample::due(due, due >= START + Duration::from_millis(500))
        }
    };
    (0..count).map(one).collect()
}

/// What agent `number` reports of these requests, at this level.
fn share(number: u32, level: Level, samples: &[Sample]) -> SharePart {
    let shift = SHIFTS[number as usize];
    let cell = testing::cell(0, 0, Protocol::H2c, 6, 0.0);
    let connection = |index| ConnectionRecord {
        index,
        dialled_at: START,
        connected_at: START,
        ready_at: START,
        closed_at: Time::NEVER,
        ..ConnectionRecord::default()
    };
    let mut record = CellRecord {
        started_at: START,
        samples: samples.iter().copied().collect(),
        connections: vec![connection(0), connection(1)],
        warnings: vec!["it rained".to_owned()],
        ..CellRecord::empty(cell)
    };
    if level != Level::Full {
        record = testing::counted(record);
    }
    record.generator = GeneratorSummary { level, ..generator(u64::from(number) + 1) };
    let mut part = taken_out(&mut record, level);
    move_times(&mut record, &mut part, -shift);
    record.samples = part.samples.into_iter().collect();
    (record.tallies, record.connections) = (part.tallies, part.connections);
    SharePart { agent: format!("kek-{number}"), record, shift }
}

fn generator(n: u64) -> GeneratorSummary {
    GeneratorSummary {
        cpu_ns: 100 * n,
        wall_ns: 1_000 + n,
        threads: 2,
        backlog_at_cut: n,
        busiest_ns: 60 * n,
        awake_ns: 10 * n,
        stolen_ns: n,
        paused_ns: 5 * n,
        longest_pause_ns: 4 * n,
        level: Level::Full,
        memory: GeneratorMemory { before: n, connected: 10 * n, peak: 20 * n },
    }
}

/// The requests of three agents, of unequal number.
fn of_three(seed: u64) -> [Vec<Sample>; 3] {
    let mut random = Counter::new(seed, "shares");
    let counts = [1_500, 700, 1];
    std::array::from_fn(|number| samples(&mut random, counts[number], number as u32, 3))
}

fn histogram(tallies: &[Tally]) -> Histogram {
    let mut all = Histogram::default();
    for tally in tallies {
        all.merge(&tally.response);
    }
    all
}

#[test]
fn percentiles_of_merged_shares_are_those_of_all_requests_together() {
    for seed in 0..20 {
        let shares = of_three(seed);
        let mut times: Vec<u64> = shares.iter().flatten().map(Sample::response_ns).collect();
        times.sort_unstable();
        for levels in [
            [Level::Tail; 3],
            [Level::Hist; 3],
            [Level::Full, Level::Tail, Level::Full],
            [Level::Tail, Level::Full, Level::Hist],
        ] {
            let parts = (0..).zip(levels).zip(&shares).map(|((k, level), own)| share(k, level, own));
            let merged = merge_shares(parts.collect()).unwrap();
            let level = levels.into_iter().max().unwrap_or_default();
            assert_eq!(merged.generator.level, level);
            let keeps = level == Level::Tail && levels.contains(&Level::Full);
            assert_eq!(merged.samples.iter().next().is_some(), keeps, "{levels:?}");
            let counted = histogram(&merged.tallies);
            let all = Histogram::of(times.iter().map(|ns| Duration::from_nanos(*ns)));
            assert_eq!(counted, all, "{levels:?}");
            for per_mille in [500, 990, 999] {
                let rank = (times.len() * per_mille).div_ceil(1_000);
                let (read, exact) = (counted.at_rank(rank as u64).as_nanos() as f64, times[rank - 1] as f64);
                assert!(read >= exact && read <= exact * 1.001 + 1.0, "{per_mille} ‰: {read} for {exact}");
            }
            let counts = Counts::total(&merged.tallies);
            assert_eq!((counts.requests, counts.body_bytes), (2_201, 3 * 2_201));
            let slices = merged.tallies.iter().map(|tally| tally.at.nanos_since(START));
            assert!(slices.clone().all(|offset| offset % 100_000_000 == 0), "slices count from the start");
        }
    }
}

#[test]
fn requests_that_all_agents_kept_are_all_there_as_if_one_had_made_them() {
    for seed in 0..20 {
        let shares = of_three(seed);
        let mut expected: Vec<Sample> = Vec::new();
        for (k, own) in (0..).zip(&shares) {
            let is_on = |connection: u32| connection != Sample::NO_CONNECTION;
            let numbered = |mut sample: Sample| {
                sample.connection += if is_on(sample.connection) { 2 * k } else { 0 };
                sample
            };
            expected.extend(own.iter().copied().map(numbered));
        }
        expected.sort_by_key(|sample| (sample.scheduled_at, sample.number));
        let parts = (0..).zip(&shares).map(|(k, own)| share(k, Level::Full, own)).collect();
        let merged = merge_shares(parts).unwrap();
        assert!(merged.samples.iter().eq(expected), "seed {seed}");
        assert_eq!((merged.started_at, merged.tallies.len()), (START, 0));
        let indices: Vec<u32> = merged.connections.iter().map(|connection| connection.index).collect();
        assert_eq!(indices, [0, 1, 2, 3, 4, 5]);
        assert!(merged.connections.iter().all(|it| it.dialled_at == START && !it.closed_at.happened()));
    }
}

#[test]
fn a_share_that_kept_all_is_counted_whatever_order_its_requests_ended_in() {
    let own = samples(&mut Counter::new(1, "shares"), 1_000, 0, 1);
    let mut by_end = own.clone();
    by_end.sort_by_key(|sample| sample.completed_at);
    let mut tallier = Tallier::new(testing::cell(0, 0, Protocol::H2c, 6, 0.0).work.phases, START);
    for sample in &by_end {
        tallier.add(sample);
    }
    let counted_elsewhere = share(1, Level::Tail, &[]);
    let merged = merge_shares(vec![share(0, Level::Full, &own), counted_elsewhere]).unwrap();
    assert_eq!(merged.tallies, tallier.finish(0));
    let failed = |sample: &Sample| sample.outcome == Outcome::Connect;
    assert_eq!(merged.samples.iter().filter(failed).count(), 20, "failed requests are kept");
    assert!(merged.samples.iter().count() < 60, "the slowest and a few more");
}

#[test]
fn the_load_begins_with_the_first_share_and_each_counts_from_its_own_beginning() {
    let mut late = share(1, Level::Tail, &samples(&mut Counter::new(1, "shares"), 200, 1, 2));
    let delay = Duration::from_millis(37);
    late.shift += 37_000_000;
    let early = share(0, Level::Tail, &samples(&mut Counter::new(2, "shares"), 200, 0, 2));
    let merged = merge_shares(vec![late, early]).unwrap();
    assert_eq!(merged.started_at, START);
    let offsets: Vec<u64> = merged.tallies.iter().map(|tally| tally.at.nanos_since(START)).collect();
    assert!(offsets.iter().all(|offset| offset % 100_000_000 == 0), "{offsets:?}");
    let alone = merge_shares(vec![share(1, Level::Full, &samples(&mut Counter::new(1, "shares"), 1, 1, 2))]);
    assert_eq!(alone.unwrap().started_at, START, "what is alone keeps its beginning");
    let mut only = share(1, Level::Full, &[]);
    only.shift += 37_000_000;
    assert_eq!(merge_shares(vec![only]).unwrap().started_at, START + delay);
}

#[test]
fn generators_of_agents_add_up_and_threads_see_one_memory() {
    let both = |beside| {
        let parts = [1, 2].map(|n| Measured { generator: generator(n), ..Measured::default() });
        Measured::together(parts, beside).generator
    };
    let expected = GeneratorSummary {
        cpu_ns: 300,
        wall_ns: 1_002,
        threads: 4,
        backlog_at_cut: 3,
        busiest_ns: 120,
        awake_ns: 30,
        stolen_ns: 2,
        paused_ns: 10,
        longest_pause_ns: 8,
        level: Level::Full,
        memory: GeneratorMemory { before: 3, connected: 30, peak: 60 },
    };
    assert_eq!(both(Beside::Processes), expected);
    let memory = GeneratorMemory { before: 2, connected: 20, peak: 40 };
    assert_eq!(both(Beside::Threads), GeneratorSummary { memory, ..expected });
}

#[test]
fn figures_of_a_generator_that_are_too_large_together_stay_at_the_largest_number() {
    let sum = |less: u64| {
        let large = GeneratorSummary {
            cpu_ns: u64::MAX - less,
            threads: u32::MAX - less as u32,
            backlog_at_cut: u64::MAX - less,
            awake_ns: u64::MAX - less,
            ..generator(1)
        };
        let one = GeneratorSummary { cpu_ns: 1, threads: 1, backlog_at_cut: 1, awake_ns: 1, ..generator(1) };
        let parts = [large, one].map(|generator| Measured { generator, ..Measured::default() });
        let all = Measured::together(parts, Beside::Processes).generator;
        (all.cpu_ns, all.threads, all.backlog_at_cut, all.awake_ns)
    };
    let most = (u64::MAX, u32::MAX, u64::MAX, u64::MAX);
    assert_eq!((sum(0), sum(1)), (most, most));
    assert_eq!(sum(2), (u64::MAX - 1, u32::MAX - 1, u64::MAX - 1, u64::MAX - 1));
}

#[test]
fn tallies_that_an_agent_makes_of_its_requests_add_up() {
    for seed in 0..20 {
        for level in [Level::Tail, Level::Hist] {
            for (number, own) in (0..).zip(&of_three(seed)) {
                assert!(tally::add_up(&share(number, level, own).record.tallies), "seed {seed}");
            }
        }
    }
}

#[test]
fn warnings_and_other_placement_bear_the_name_of_their_agent() {
    let mut parts: Vec<SharePart> = (0..3).map(|k| share(k, Level::Full, &[])).collect();
    for (part, priority) in parts.iter_mut().zip(["real-time", "real-time", "ordinary"]) {
        part.record.environment.placement = vec![("generator priority".to_owned(), priority.to_owned())];
    }
    let seconds = [1, 3, 2].map(Duration::from_secs);
    for (part, measure) in parts.iter_mut().zip(seconds) {
        part.record.cell.work.phases.measure = measure;
    }
    parts[0].agent = "kek\x1b[2J".to_owned();
    let merged = merge_shares(parts).unwrap();
    assert_eq!(merged.warnings[1..], ["agent kek-1: it rained", "agent kek-2: it rained"]);
    assert!(merged.warnings[0].ends_with(": it rained") && !merged.warnings[0].contains('\x1b'));
    let placement = [("generator priority", "real-time"), ("generator priority of agent kek-2", "ordinary")];
    let placement = placement.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(merged.environment.placement, placement);
    assert_eq!(merged.cell.work.phases.measure, Duration::from_secs(3), "as long as the longest");
}

#[test]
fn times_move_with_their_clock_and_what_never_happened_has_not_on_another() {
    let mut part = share(0, Level::Full, &[]);
    let goaway = |at| GoAwayRecord { at, code: 0, last_stream: 1, debug: PeerText::from("bye") };
    part.record.connections[0].goaways = vec![goaway(START)];
    part.record.connections[1].dialled_at = Time::from_nanos(5);
    part.shift = -10;
    let merged = merge_shares(vec![part]).unwrap();
    let moved = Time::from_nanos(START.as_nanos() - 10);
    assert_eq!(merged.started_at, moved);
    let [first, second] = &merged.connections[..] else { panic!("two connections") };
    assert_eq!((first.ready_at, first.goaways[0].at, first.closed_at), (moved, moved, Time::NEVER));
    assert_eq!(second.dialled_at, Time::ZERO, "not before the origin of the clock");
}

#[test]
fn what_does_not_belong_together_is_not_merged() {
    assert_eq!(merge_shares(Vec::new()), Err(MergeError::Nothing));
    let mut other = share(1, Level::Full, &[]);
    other.record.cell.connections += 1;
    let error = merge_shares(vec![share(0, Level::Full, &[]), other]).unwrap_err();
    let expected = MergeError::OtherLoad { agent: "kek-0".to_owned(), other: "kek-1".to_owned() };
    assert_eq!(error, expected);
}

#[test]
fn an_index_that_no_load_has_is_no_panic() {
    let mut strange = share(0, Level::Full, &[]);
    strange.record.connections[1].index = u32::MAX;
    let merged = merge_shares(vec![strange, share(1, Level::Full, &[])]).unwrap();
    assert_eq!(merged.connections.len(), 4);
}

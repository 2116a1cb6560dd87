use super::*;
use crate::stats::{Conclusion, analyse, correction};
use h2lab_model::bulk::testing::bulk_repetition;
use h2lab_model::record::CellRecord;
use h2lab_model::record::testing::{Model, cell, one_repetition, run};
use h2lab_model::scenario::Sidecar;
use h2lab_model::workload::Protocol;

/// Two cells of two groups; the second uses bbr and is `slow` times as slow.
fn under_bbr(slow: f64, change: impl Fn(&mut Cell)) -> Vec<Pair> {
    let mut cubic = cell(0, 0, Protocol::H2c, 1, 0.0);
    cubic.congestion = Some("cubic".to_owned());
    let mut bbr = Cell { index: 1, group: 1, congestion: Some("bbr".to_owned()), ..cubic.clone() };
    change(&mut bbr);
    let repetitions = (0..2).flat_map(|round| {
        [
            one_repetition(&cubic, round, &Model::CLEAN),
            one_repetition(&bbr, round, &Model { factor: slow, ..Model::CLEAN }),
        ]
    });
    analyse(&run(repetitions.collect())).pairs
}

/// The pairs of cells of one group each that are made by these changes: setting, first, other.
fn pairs_of(changes: &[&dyn Fn(&mut Cell)]) -> Vec<(Setting, u32, u32)> {
    let made = (0..).zip(changes).map(|(index, change)| {
        let mut cell = cell(index, index, Protocol::H2c, 1, 0.0);
        change(&mut cell);
        one_repetition(&cell, 0, &Model::CLEAN)
    });
    let pairs = analyse(&run(made.collect())).pairs;
    pairs.into_iter().map(|pair| (pair.setting, pair.verdict.baseline, pair.verdict.cell)).collect()
}

#[test]
fn cells_that_differ_in_one_setting_are_compared_across_groups() {
    let [pair] = under_bbr(2.0, |_| {}).try_into().expect("one");
    assert_eq!((pair.setting, pair.verdict.baseline, pair.verdict.cell), (Setting::Congestion, 0, 1));
    assert_eq!(pair.verdict.conclusion, Conclusion::Slower);
    let [alike] = under_bbr(1.0, |_| {}).try_into().expect("one");
    assert_eq!(alike.verdict.conclusion, Conclusion::NoDifference);
}

#[test]
fn cells_that_differ_in_more_or_in_the_work_are_not_compared() {
    assert_eq!(under_bbr(2.0, |cell| (cell.connections, cell.max_connections) = (4, 4)), []);
    assert_eq!(under_bbr(2.0, |cell| cell.work.path = "/other".to_owned()), []);
    assert_eq!(under_bbr(2.0, |cell| cell.request_seed = 9), []);
    assert_eq!(under_bbr(2.0, |cell| cell.client.no_coalesce = true), []);
    assert_eq!(under_bbr(2.0, |cell| cell.group = 0), [], "its group has a verdict on it");
}

#[test]
fn a_window_and_a_frame_size_are_two_settings_of_an_engine() {
    let none: &dyn Fn(&mut Cell) = &|_| {};
    let frame: &dyn Fn(&mut Cell) = &|cell| cell.client.max_frame_size = Some(16_384);
    let window: &dyn Fn(&mut Cell) = &|cell| cell.client.stream_window = Some(65_535);
    let both: &dyn Fn(&mut Cell) = &|cell| {
        (cell.client.stream_window, cell.client.max_frame_size) = (Some(65_535), Some(16_384));
    };
    let engine = Setting::ClientEngine;
    assert_eq!(pairs_of(&[none, frame, window]), [(engine, 0, 1), (engine, 0, 2)]);
    assert_eq!(pairs_of(&[none, both]), []);
    assert_eq!(pairs_of(&[window, both]), [(engine, 0, 1)]);
    assert_eq!(pairs_of(&[frame, window]), [], "each has what the other lacks");
}

#[test]
fn each_sysctl_of_each_side_is_a_setting_and_the_buffers_of_a_scenario_are_one() {
    let set = |cell: &mut Cell, server: bool, name: &str, value: &str| {
        let side = if server { &mut cell.sysctls.server } else { &mut cell.sysctls.client };
        side.insert(name.to_owned(), value.to_owned());
    };
    let none: &dyn Fn(&mut Cell) = &|_| {};
    let server: &dyn Fn(&mut Cell) = &|cell| set(cell, true, READ_BUFFERS, "1 2 3");
    let other: &dyn Fn(&mut Cell) = &|cell| set(cell, true, READ_BUFFERS, "1 2 4");
    let sides: &dyn Fn(&mut Cell) =
        &|cell| [false, true].iter().for_each(|side| set(cell, *side, READ_BUFFERS, "1 2 3"));
    let buffers: &dyn Fn(&mut Cell) = &|cell| {
        for side in [false, true] {
            for name in [READ_BUFFERS, WRITE_BUFFERS] {
                set(cell, side, name, "1 2 3");
            }
        }
    };
    let sysctls = Setting::Sysctls;
    assert_eq!(pairs_of(&[none, server, other]), [(sysctls, 0, 1), (sysctls, 0, 2)]);
    assert_eq!(pairs_of(&[none, sides]), []);
    assert_eq!(pairs_of(&[none, buffers]), [(sysctls, 0, 1)]);
}

#[test]
fn a_topology_a_sidecar_and_a_target_are_three_settings() {
    let with = |cell: &mut Cell, name: &str| {
        cell.sidecar = Some(Sidecar { name: name.to_owned(), warm_pool: 8, max_connections: 512 });
    };
    let sut = |name: &str| Target::Sut { name: name.to_owned() };
    let none: &dyn Fn(&mut Cell) = &|_| {};
    let one: &dyn Fn(&mut Cell) = &|cell| with(cell, "haproxy");
    let another: &dyn Fn(&mut Cell) = &|cell| with(cell, "envoy");
    let two: &dyn Fn(&mut Cell) = &|cell| {
        with(cell, "haproxy");
        cell.target = sut("haproxy");
    };
    let nginx: &dyn Fn(&mut Cell) = &|cell| cell.target = sut("nginx");
    let behind: &dyn Fn(&mut Cell) = &|cell| {
        with(cell, "haproxy");
        cell.target = sut("nginx");
    };
    let parties = Setting::Parties;
    let topologies = [(parties, 0, 1), (parties, 0, 2)];
    assert_eq!(pairs_of(&[none, one, two]), topologies, "each with the first one");
    assert_eq!(pairs_of(&[one, another]), [(parties, 0, 1)]);
    assert_eq!(pairs_of(&[none, nginx]), [(parties, 0, 1)]);
    assert_eq!(pairs_of(&[none, behind]), [], "a sidecar and another server");
    assert_eq!(pairs_of(&[another, two]), [], "another sidecar and another topology");
}

#[test]
fn connections_of_a_group_are_compared_with_its_first_number_unless_that_is_the_baseline() {
    let found = |first: Protocol| {
        let made = [(first, 1), (Protocol::H2c, 1), (Protocol::H2c, 4), (Protocol::H2c, 16)];
        let made = (0..).zip(made).map(|(index, (protocol, connections))| {
            one_repetition(&cell(index, 0, protocol, connections, 0.0), 0, &Model::CLEAN)
        });
        let pairs = analyse(&run(made.collect())).pairs;
        pairs.iter().map(|pair| (pair.setting, pair.verdict.baseline, pair.verdict.cell)).collect::<Vec<_>>()
    };
    let connections = Setting::Connections;
    assert_eq!(found(Protocol::H1), [(connections, 1, 2), (connections, 1, 3)]);
    // The first cell is what the verdicts compare with; the second one is its equal.
    assert_eq!(found(Protocol::H2c), []);
}

#[test]
fn streams_and_dial_policies_of_a_group_are_compared_and_http1_has_neither() {
    let found = |protocol: Protocol| {
        let first = cell(1, 0, protocol, 1, 0.0);
        let dial = DialPolicy::Stampede;
        let cells = [
            cell(0, 0, Protocol::H1, 1, 0.0),
            first.clone(),
            Cell { index: 2, streams: 7, ..first.clone() },
            Cell { index: 3, dial, ..first },
        ];
        let made = cells.iter().map(|cell| one_repetition(cell, 0, &Model::CLEAN));
        let pairs = analyse(&run(made.collect())).pairs;
        pairs.iter().map(|pair| (pair.setting, pair.verdict.baseline, pair.verdict.cell)).collect::<Vec<_>>()
    };
    assert_eq!(found(Protocol::H2c), [(Setting::Streams, 1, 2), (Setting::Dial, 1, 3)]);
    assert_eq!(found(Protocol::H1), []);
}

#[test]
fn frame_sizes_of_bulk_work_are_compared_by_bytes_per_second_with_corrected_intervals() {
    let with = |index: u32, frame: Option<u32>, rate: f64| -> CellRecord {
        let mut record = bulk_repetition(Protocol::H2c, rate);
        (record.cell.index, record.cell.group) = (index, index);
        record.cell.client.max_frame_size = frame;
        record
    };
    let made = vec![with(0, None, 100e6), with(1, Some(16_384), 50e6), with(2, Some(1 << 20), 99e6)];
    let pairs = analyse(&run(made)).pairs;
    let found: Vec<_> = pairs.iter().map(|pair| (pair.verdict.cell, pair.verdict.conclusion)).collect();
    assert_eq!(found, [(1, Conclusion::Slower), (2, Conclusion::NoDifference)]);
    let ratio = pairs[0].verdict.bytes.unwrap().ratio;
    assert!((ratio - 0.5).abs() < 0.01 && pairs[0].verdict.tail_ratio.is_none(), "{ratio}");
}

#[test]
fn intervals_are_widened_for_all_pairs_of_the_run() {
    let width = |pair: &Pair| {
        let tail = pair.verdict.tail_ratio.unwrap();
        (tail.high / tail.low).ln()
    };
    let [one] = under_bbr(1.5, |_| {}).try_into().expect("one");
    let mut cubic = cell(0, 0, Protocol::H2c, 1, 0.0);
    cubic.congestion = Some("cubic".to_owned());
    let bbr = Cell { index: 1, group: 1, congestion: Some("bbr".to_owned()), ..cubic.clone() };
    let reno = Cell { index: 2, group: 2, congestion: Some("reno".to_owned()), ..cubic.clone() };
    let repetitions = (0..2).flat_map(|round| {
        [
            one_repetition(&cubic, round, &Model::CLEAN),
            one_repetition(&bbr, round, &Model { factor: 1.5, ..Model::CLEAN }),
            one_repetition(&reno, round, &Model { factor: 1.5, ..Model::CLEAN }),
        ]
    });
    let two = analyse(&run(repetitions.collect())).pairs;
    // Whichever part of the interval is the wider one: Student's t for one of two claims over that for one, of the two
    // degrees of freedom of two repetitions each, or of the many of their blocks, which is that of the normal distribution.
    let by = width(&two[0]) / width(&one);
    let [most, least] = [correction::of_looks(2, 2), correction::of_looks_at_known_variation(2)];
    assert!(by >= least - 1e-6 && by <= most + 1e-6, "{by}");
}

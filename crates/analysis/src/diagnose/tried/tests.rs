use super::*;
use crate::stats::repetitions_by_cell;
use h2lab_model::bulk::testing::bulk_repetition;
use h2lab_model::record::testing::{Model, cell, one_repetition};
use h2lab_model::scenario::labels;

fn fix(role: Role, knob: Knob, value: Option<u64>) -> Fix {
    Fix { wish: Some(Wish { knob, role, value }), ..Fix::new("client", "x", "y") }
}

fn connections() -> Fix {
    fix(Role::Client, Knob::UpstreamConnections, Some(16))
}

/// What is left of a finding of cell 0 with this fix: how many fixes, and what it says it costs.
fn left(fix: Fix, records: &[CellRecord]) -> (usize, String) {
    let cells = repetitions_by_cell(records);
    let labels = labels(cells.values().map(|repetitions| &repetitions[0].cell));
    let mut findings = [Finding { fixes: vec![fix], cost: "much".to_owned(), ..Finding::default() }];
    drop_worse(&mut findings, &cells, &labels);
    let [finding] = findings;
    (finding.fixes.len(), finding.cost)
}

/// One HTTP/2 connection, and beside it the same cell with a change, whose requests take `factor` times as long.
fn beside(factor: f64, change: impl Fn(&mut Cell)) -> Vec<CellRecord> {
    let first = cell(0, 0, Protocol::H2c, 1, 0.0);
    let mut other = Cell { index: 1, ..first.clone() };
    change(&mut other);
    let slower = Model { factor, ..Model::CLEAN };
    let of_round =
        |round: u32| [one_repetition(&first, round, &Model::CLEAN), one_repetition(&other, round, &slower)];
    (0..2).flat_map(of_round).collect()
}

/// 16 connections.
fn sixteen(cell: &mut Cell) {
    (cell.connections, cell.max_connections) = (16, 16);
}

/// The finding as it was.
fn kept() -> (usize, String) {
    (1, "much".to_owned())
}

#[test]
fn a_fix_is_dropped_where_the_cell_that_has_it_is_slower_and_kept_where_it_is_not() {
    let (fixes, cost) = left(connections(), &beside(2.0, sixteen));
    assert_eq!(fixes, 0);
    assert!(cost.starts_with("much; not x, which is worse here: h2c × 16, p9"), "{cost}");
    assert!(cost.contains(" ms instead of 2"), "of about 25 ms: {cost}");
    assert_eq!(left(connections(), &beside(0.5, sixteen)), kept(), "it is faster");
    assert_eq!(left(connections(), &beside(1.0, sixteen)), kept(), "it is as fast");
}

#[test]
fn a_fix_that_a_program_of_the_run_refused_is_dropped_whatever_its_value() {
    let refused = |change: fn(&mut Cell)| {
        let mut records = beside(1.0, change);
        let other = records.pop().expect("there are two").cell;
        records.retain(|record| record.cell.index == 0);
        records.push(CellRecord::unsupported(other, "haproxy cannot hold them".to_owned()));
        left(connections(), &records)
    };
    let four = |cell: &mut Cell| (cell.connections, cell.max_connections) = (4, 4);
    assert_eq!(refused(four), (0, "much; not x: haproxy cannot hold them".to_owned()));
    assert_eq!(refused(|cell| cell.work.path = "/other".to_owned()), kept(), "another change was refused");
}

#[test]
fn a_fix_is_kept_where_no_cell_has_it_and_nothing_else() {
    let eight = |cell: &mut Cell| (cell.connections, cell.max_connections) = (8, 8);
    assert_eq!(left(connections(), &beside(2.0, eight)), kept());
    let with_path = |cell: &mut Cell| {
        sixteen(cell);
        cell.work.path = "/other".to_owned();
    };
    assert_eq!(left(connections(), &beside(2.0, with_path)), kept());
    assert_eq!(left(Fix::new("client", "x", "y"), &beside(2.0, sixteen)), kept(), "no change of a cell");
    let frame = fix(Role::Client, Knob::MaxFrameSize, Some(1 << 20));
    assert_eq!(left(frame, &beside(2.0, sixteen)), kept());
}

#[test]
fn connections_without_a_number_are_more_than_the_cell_has() {
    let more = || fix(Role::Client, Knob::UpstreamConnections, None);
    assert_eq!(left(more(), &beside(2.0, |cell| (cell.connections, cell.max_connections) = (2, 2))).0, 0);
    assert_eq!(left(more(), &beside(2.0, |cell| cell.max_connections = 2)), kept());
}

#[test]
fn another_congestion_control_is_looked_for_in_other_groups_and_named() {
    let bbr = || fix(Role::Kernel, Knob::CongestionControl, None);
    let under = |name: &str, factor: f64| {
        let records = beside(factor, |cell| (cell.group, cell.congestion) = (1, Some(name.to_owned())));
        left(bbr(), &records)
    };
    let (fixes, cost) = under("bbr", 2.0);
    assert!(fixes == 0 && cost.contains("worse here: h2c × 1 under bbr, p9"), "{cost}");
    assert_eq!(under("bbr", 0.5), kept());
    assert_eq!(under("reno", 2.0), kept());
}

#[test]
fn http1_is_another_protocol_with_a_pool_of_its_own() {
    let http1 = || fix(Role::Client, Knob::UpstreamProtocol, None);
    let as_http1 = |cell: &mut Cell| {
        (cell.protocol, cell.connections, cell.max_connections, cell.streams) = (Protocol::H1, 32, 512, 1);
    };
    let (fixes, cost) = left(http1(), &beside(2.0, as_http1));
    assert!(fixes == 0 && cost.contains("worse here: h1, p9"), "{cost}");
    assert_eq!(left(http1(), &beside(0.5, as_http1)), kept());
}

#[test]
fn a_cell_that_does_not_carry_the_load_is_worse() {
    let mut records = beside(1.0, sixteen);
    for record in records.iter_mut().filter(|record| record.cell.index == 1) {
        let cut = record.cell.work.phases.cut(record.started_at);
        record.samples.edit().iter_mut().step_by(2).for_each(|sample| sample.completed_at = cut);
    }
    let (fixes, cost) = left(connections(), &records);
    assert!(fixes == 0 && cost.contains("h2c × 16, it serves "), "{cost}");
    assert!(cost.ends_with(" of 1,000 requests/s"), "{cost}");
}

#[test]
fn bulk_work_is_judged_by_its_rate() {
    let with = |rate: f64| {
        let mut records = [bulk_repetition(Protocol::H2c, 100e6), bulk_repetition(Protocol::H2c, rate)];
        records[1].cell.index = 1;
        sixteen(&mut records[1].cell);
        left(connections(), &records)
    };
    let (fixes, cost) = with(50e6);
    assert!(fixes == 0 && cost.ends_with(", 50.0 Mbit/s instead of 100 Mbit/s"), "{cost}");
    assert_eq!(with(200e6), kept());
}

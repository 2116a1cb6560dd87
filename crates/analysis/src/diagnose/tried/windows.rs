//! Cells of a run that differ in a window of the client alone. Where the larger one is better, a finding about the smaller
//! one is a cause, whatever else that cell is compared with, and the larger one is a fix that was measured.

use std::fmt::Write as _;

use super::{Cells, how_much_worse};
use crate::diagnose::Finding;
use h2lab_base::units::format_bytes;
use h2lab_model::Fix;
use h2lab_model::scenario::Cell;
use h2lab_model::settings::{Knob, Peer, Role, Wish, advise};
use h2lab_model::workload::EngineSettings;

/// The windows that a client offers.
const WINDOWS: [Knob; 2] = [Knob::StreamWindow, Knob::ConnectionWindow];

/// A larger window that is better in this run.
#[derive(Debug)]
pub(in crate::diagnose) struct Wider {
    /// The index of the cell with the smaller one.
    cell: u32,
    knob: Knob,
    /// The larger one.
    bytes: u32,
    /// What the smaller one comes to against it: `p95 157 ms instead of 32.0 ms`.
    how: String,
}

/// The largest window of each kind that another cell has, for each cell that is worse without it. Intervals have
/// Bonferroni's correction for all cells that are looked at.
pub(in crate::diagnose) fn wider(cells: &Cells<'_>) -> Vec<Wider> {
    let mut looks: Vec<(u32, u32, Knob, u32)> = Vec::new();
    for (index, repetitions) in cells {
        for knob in WINDOWS {
            let larger = larger(&repetitions[0].cell, knob, cells);
            looks.extend(larger.map(|(other, bytes)| (*index, other, knob, bytes)));
        }
    }
    let among = looks.len() as u32;
    let better = looks.into_iter().filter_map(|(cell, other, knob, bytes)| {
        let how = how_much_worse(&cells[&other], &cells[&cell], among)?;
        Some(Wider { cell, knob, bytes, how })
    });
    better.collect()
}

/// The cell with the largest window that differs from `cell` in nothing else, and that window.
fn larger(cell: &Cell, knob: Knob, cells: &Cells<'_>) -> Option<(u32, u32)> {
    let own = window(&cell.client, knob)?;
    let others = cells.values().map(|repetitions| &repetitions[0].cell).filter(|other| {
        let Cell { index, group, repetition, seed, request_seed, .. } = **other;
        let mut same = Cell { index, group, repetition, seed, request_seed, ..cell.clone() };
        match knob {
            Knob::StreamWindow => same.client.stream_window = other.client.stream_window,
            _ => same.client.connection_window = other.client.connection_window,
        }
        same == **other
    });
    let larger = others.filter_map(|other| {
        let bytes = window(&other.client, knob).filter(|bytes| *bytes > own)?;
        Some((other.index, bytes))
    });
    larger.max_by_key(|(_, bytes)| *bytes)
}

/// The window that is set; the default is not known here.
const fn window(client: &EngineSettings, knob: Knob) -> Option<u32> {
    match knob {
        Knob::StreamWindow => client.stream_window,
        _ => client.connection_window,
    }
}

impl Wider {
    /// Whether it was measured what lifts this finding. If so, the larger window becomes the first fix, and the finding's cost says what
    /// was measured.
    pub(in crate::diagnose) fn lifts(&self, finding: &mut Finding) -> bool {
        let is_its =
            |fix: &Fix| fix.wish.is_some_and(|wish| (wish.role, wish.knob) == (Role::Client, self.knob));
        if finding.cell != self.cell || !finding.fixes.iter().any(is_its) {
            return false;
        }
        let wish = Wish { knob: self.knob, role: Role::Client, value: Some(self.bytes.into()) };
        let setting = advise(&Peer::started("h2lab"), wish).setting;
        let name = if self.knob == Knob::StreamWindow { "stream" } else { "connection" };
        let (size, how) = (format_bytes(self.bytes.into()), &self.how);
        let _ = write!(finding.cost, "; against the same cell with a {name} window of {size}: {how}");
        finding.fixes.retain(|fix| fix.setting != setting);
        let why = format!("measured in this run: without it {how}");
        finding.fixes.insert(0, Fix { wish: Some(wish), ..Fix::new("client", &setting, why) });
        true
    }

    #[cfg(test)]
    pub(in crate::diagnose) fn testing(cell: u32, knob: Knob, bytes: u32) -> Self {
        Self { cell, knob, bytes, how: "p95 157 ms instead of 32.0 ms".to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::repetitions_by_cell;
    use h2lab_model::record::CellRecord;
    use h2lab_model::record::testing::{Model, cell, one_repetition};
    use h2lab_model::workload::Protocol;

    /// A cell with a stream window of 64 KiB, and beside it the same with a change, whose requests take `factor` times as
    /// long.
    fn beside(factor: f64, change: impl Fn(&mut Cell)) -> Vec<CellRecord> {
        let mut first = cell(0, 0, Protocol::H2c, 4, 0.0);
        first.client.stream_window = Some(1 << 16);
        let mut other = Cell { index: 1, group: 1, ..first.clone() };
        change(&mut other);
        let changed = Model { factor, ..Model::CLEAN };
        let of_round = |round: u32| {
            [one_repetition(&first, round, &Model::CLEAN), one_repetition(&other, round, &changed)]
        };
        (0..2).flat_map(of_round).collect()
    }

    /// Whether a larger window of this kind lifts a finding about the first cell, and what becomes of it.
    fn lifted(knob: Knob, records: &[CellRecord]) -> (bool, Finding) {
        let wish = Wish { knob, role: Role::Client, value: Some(4 << 20) };
        let fixes = vec![Fix { wish: Some(wish), ..Fix::new("client", "x", "y") }];
        let mut finding = Finding { fixes, cost: "much".to_owned(), ..Finding::default() };
        let wider = wider(&repetitions_by_cell(records));
        (wider.iter().any(|wider| wider.lifts(&mut finding)), finding)
    }

    fn stream_window(bytes: u32) -> impl Fn(&mut Cell) {
        move |cell| cell.client.stream_window = Some(bytes)
    }

    #[test]
    fn a_larger_window_of_another_cell_that_is_better_is_the_first_fix() {
        let (is_lifted, finding) = lifted(Knob::StreamWindow, &beside(0.5, stream_window(1 << 20)));
        assert!(is_lifted);
        let settings: Vec<&str> = finding.fixes.iter().map(|fix| fix.setting.as_str()).collect();
        assert_eq!(settings, ["-w 1048576", "x"]);
        assert!(finding.fixes[0].why.starts_with("measured in this run: without it p9"));
        let begin = "much; against the same cell with a stream window of 1 MiB: p9";
        assert!(finding.cost.starts_with(begin), "{}", finding.cost);
    }

    #[test]
    fn nothing_is_lifted_by_a_window_that_is_no_larger_or_no_better_or_not_the_only_difference() {
        let is_lifted =
            |factor, change: &dyn Fn(&mut Cell)| lifted(Knob::StreamWindow, &beside(factor, change)).0;
        assert!(!is_lifted(1.0, &stream_window(1 << 20)), "as quick");
        assert!(!is_lifted(2.0, &stream_window(1 << 20)), "slower");
        assert!(is_lifted(0.5, &stream_window((1 << 16) + 1)));
        assert!(!is_lifted(0.5, &stream_window(65_535)), "smaller");
        let other_path = |cell: &mut Cell| {
            cell.client.stream_window = Some(1 << 20);
            cell.work.path = "/other".to_owned();
        };
        assert!(!is_lifted(0.5, &other_path));
        assert!(!lifted(Knob::ConnectionWindow, &beside(0.5, stream_window(1 << 20))).0, "another window");
    }
}

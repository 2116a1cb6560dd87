//! The same cell with another value of one setting: congestion control, sysctls, the parties, the engines of client and
//! server.
//!
//! Cells of one group are compared with the group's baseline (`verdict.rs`); the pairs here are from different groups.
//! Each cell is compared with the first cell of the run that differs from it in exactly one setting. Link and work are
//! the question, not settings: their values are not compared.

use super::{CellSummary, CellVerdict, correction, verdict};
use h2lab_model::scenario::{Cell, Sysctls, Target};
use h2lab_model::workload::EngineSettings;

/// A setting whose values divide cells into groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Setting {
    /// The congestion control of both ends.
    Congestion,
    /// The sysctls of client and server.
    Sysctls,
    /// The servers, and the sidecars before them.
    Parties,
    /// The HTTP/2 engine of our client.
    ClientEngine,
    /// The HTTP/2 engine of our origin.
    ServerEngine,
}

impl Setting {
    const ALL: [Self; 5] =
        [Self::Congestion, Self::Sysctls, Self::Parties, Self::ClientEngine, Self::ServerEngine];

    /// The name in JSON.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The cell without this setting, for comparison with others. Repetitions of two cells with one seed have the same
    /// request seed.
    fn without(self, cell: &Cell) -> Cell {
        let mut alike = Cell { index: 0, group: 0, seed: 0, ..cell.clone() };
        match self {
            Self::Congestion => alike.congestion = None,
            Self::Sysctls => alike.sysctls = Sysctls::default(),
            Self::Parties => (alike.target, alike.sidecar) = (Target::Origin, None),
            Self::ClientEngine => alike.client = EngineSettings::default(),
            Self::ServerEngine => alike.server = EngineSettings::default(),
        }
        alike
    }
}

/// A cell against the first one that differs in one setting only.
#[derive(Debug, Clone, PartialEq)]
pub struct Pair {
    /// The setting.
    pub setting: Setting,
    /// The verdict; its baseline has the first value. Intervals are widened by Bonferroni's correction for all pairs of the run.
    pub verdict: CellVerdict,
}

/// The pairs of these cells, by setting, in the order of the matrix.
pub(super) fn compare(cells: &[CellSummary], seed: u64) -> Vec<Pair> {
    // Bulk work is judged by bytes over time, not by requests.
    if cells.iter().any(|summary| summary.cell.work.bulk) {
        return Vec::new();
    }
    let found: Vec<(Setting, &CellSummary, &CellSummary)> =
        Setting::ALL.into_iter().flat_map(|setting| of_setting(cells, setting)).collect();
    let widened = correction::of_looks(found.len() as u32);
    let pair = |(setting, first, other): (Setting, &CellSummary, &CellSummary)| Pair {
        setting,
        verdict: verdict::one(first, other, seed).widened(widened),
    };
    found.into_iter().map(pair).collect()
}

/// Each cell with the first one that is equal except for `setting`.
fn of_setting(cells: &[CellSummary], setting: Setting) -> Vec<(Setting, &CellSummary, &CellSummary)> {
    let mut firsts: Vec<(Cell, &CellSummary)> = Vec::new();
    let mut pairs = Vec::new();
    for summary in cells {
        let alike = setting.without(&summary.cell);
        match firsts.iter().find(|(known, _)| *known == alike) {
            // Within a group, targets are compared by the group's own verdicts.
            Some((_, first)) if first.cell.group == summary.cell.group => {}
            Some((_, first)) => pairs.push((setting, *first, summary)),
            None => firsts.push((alike, summary)),
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{Conclusion, analyse};
    use h2lab_model::record::testing::{Model, cell, one_repetition, run};
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
        assert_eq!(under_bbr(2.0, |cell| cell.connections = 4), []);
        assert_eq!(under_bbr(2.0, |cell| cell.work.path = "/other".to_owned()), []);
        assert_eq!(under_bbr(2.0, |cell| cell.request_seed = 9), []);
        assert_eq!(under_bbr(2.0, |cell| cell.client.no_coalesce = true), []);
        assert_eq!(under_bbr(2.0, |cell| cell.group = 0), [], "its group has a verdict on it");
    }
}

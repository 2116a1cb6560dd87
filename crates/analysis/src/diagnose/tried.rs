//! Fixes that another cell of the same run has in force. Where that cell is worse, the fix is not offered.

pub(super) mod windows;

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Finding;
use crate::stats::{Conclusion, lower_rate, verdict_of};
use h2lab_base::counts::count;
use h2lab_base::units::measured_time;
use h2lab_model::Fix;
use h2lab_model::bulk::rate::bits_text;
use h2lab_model::record::CellRecord;
use h2lab_model::scenario::Cell;
use h2lab_model::settings::{Knob, Role, Wish};
use h2lab_model::workload::Protocol;

/// The repetitions of each cell of a run.
type Cells<'a> = BTreeMap<u32, Vec<&'a CellRecord>>;

/// The congestion control that fixes mean.
const BBR: &str = "bbr";

/// Takes away the fixes that are worse in this run or cannot be made in it, and says so in what the finding costs. Intervals have Bonferroni's
/// correction for all cells that are looked at.
pub(super) fn drop_worse(findings: &mut [Finding], cells: &Cells<'_>, labels: &BTreeMap<u32, String>) {
    for finding in findings.iter_mut() {
        drop_refused(finding, cells);
    }
    let mut looks: BTreeMap<(u32, u32), Option<String>> = BTreeMap::new();
    for finding in findings.iter() {
        let others = finding.fixes.iter().filter_map(|fix| cell_with(fix, finding.cell, cells));
        looks.extend(others.map(|other| ((finding.cell, other), None)));
    }
    let among = looks.len() as u32;
    for ((cell, other), worse) in &mut looks {
        *worse = how_much_worse(&cells[cell], &cells[other], among);
    }
    for finding in findings {
        for fix in std::mem::take(&mut finding.fixes) {
            let other = cell_with(&fix, finding.cell, cells);
            let worse = other.and_then(|other| Some((other, looks.get(&(finding.cell, other))?.as_ref()?)));
            match worse {
                Some((other, how)) => {
                    let (label, setting) = (label(&labels[&other], &fix), fix.setting);
                    let _ = write!(finding.cost, "; not {setting}, which is worse here: {label}, {how}");
                }
                None => finding.fixes.push(fix),
            }
        }
    }
}

/// Takes away the fixes to whatever value that a program of the run refused, such as connections that a sidecar cannot
/// hold.
fn drop_refused(finding: &mut Finding, cells: &Cells<'_>) {
    for fix in std::mem::take(&mut finding.fixes) {
        let any = Fix { wish: fix.wish.map(|wish| Wish { value: None, ..wish }), ..fix.clone() };
        let other = cell_with(&any, finding.cell, cells);
        let why = other.and_then(|other| cells[&other].iter().find_map(|one| one.unsupported.as_deref()));
        match why {
            Some(why) => {
                let _ = write!(finding.cost, "; not {}: {why}", fix.setting);
            }
            None => finding.fixes.push(fix),
        }
    }
}

/// The cell that differs from this one in what `fix` changes, and in nothing else; of several numbers of connections,
/// the least that is enough.
fn cell_with(fix: &Fix, index: u32, cells: &Cells<'_>) -> Option<u32> {
    let cell = &cells.get(&index)?.first()?.cell;
    let others = cells.values().map(|repetitions| &repetitions[0].cell).filter(|other| other.index != index);
    let with = others.filter(|other| changed(cell, fix, other).as_ref() == Some(*other));
    with.min_by_key(|other| (other.connections, other.index)).map(|other| other.index)
}

/// `cell` with the change that `fix` is for, as `other` has it; `None` if `other` does not have it, or if it is not a
/// change of a cell.
fn changed(cell: &Cell, fix: &Fix, other: &Cell) -> Option<Cell> {
    let wish = fix.wish?;
    // What tells repetitions and places in the plan apart.
    let Cell { index, group, repetition, seed, request_seed, .. } = *other;
    let same = Cell { index, group, repetition, seed, request_seed, ..cell.clone() };
    match (wish.role, wish.knob) {
        (Role::Client, Knob::UpstreamConnections) => {
            let least = wish.value.unwrap_or(u64::from(cell.connections) + 1);
            let Cell { connections, max_connections, .. } = *other;
            (u64::from(connections) >= least).then_some(Cell { connections, max_connections, ..same })
        }
        (Role::Client, Knob::UpstreamProtocol) => {
            let protocol = if cell.protocol.is_tls() { Protocol::H1s } else { Protocol::H1 };
            // The rest of these do not concern HTTP/1.1.
            let Cell { h2c_mode, connections, max_connections, streams, dial, client, server, .. } = *other;
            let pool = Cell { protocol, h2c_mode, connections, max_connections, ..same };
            Some(Cell { streams, dial, client, server, ..pool })
        }
        (Role::Kernel, Knob::CongestionControl) => Some(Cell { congestion: Some(BBR.to_owned()), ..same }),
        _ => None,
    }
}

/// A cell's label, with the congestion control if that is the change: cells of another group have the same label.
fn label(label: &str, fix: &Fix) -> String {
    let is_congestion = fix.wish.is_some_and(|wish| wish.knob == Knob::CongestionControl);
    if is_congestion && !label.contains(BBR) { format!("{label} under {BBR}") } else { label.to_owned() }
}

/// What is worse in the repetitions with a change, in numbers; `None` if nothing is known to be. It is one of `looks`.
fn how_much_worse(without: &[&CellRecord], with: &[&CellRecord], looks: u32) -> Option<String> {
    let seed = without.first()?.cell.seed;
    let verdict = verdict_of(without, with, seed, looks);
    let rate = |rps: f64| count(rps.round() as u64);
    match verdict.conclusion {
        Conclusion::Slower => Some(match (verdict.bytes, verdict.tail_ratio) {
            (Some(of), _) => {
                let [with, without] = [of.cell_rps, of.baseline_rps].map(|bytes| bits_text(bytes * 8.0));
                format!("{with} instead of {without}")
            }
            (None, tail) => {
                let tail = tail?;
                let [with, without] = [tail.candidate, tail.baseline].map(measured_time);
                format!("{} {with} instead of {without}", verdict.tail.name())
            }
        }),
        Conclusion::Unstable { offered_rps, served_rps } => {
            Some(format!("it serves {} of {} requests/s", rate(served_rps), rate(offered_rps)))
        }
        Conclusion::BothUnstable => {
            let of = lower_rate(without, with, looks)?;
            Some(format!("{} requests/s instead of {}", rate(of.cell_rps), rate(of.baseline_rps)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;

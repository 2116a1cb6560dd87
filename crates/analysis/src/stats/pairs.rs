//! The same cell with another value of one setting: connections, congestion control, a sysctl, the parties, a setting of
//! the engine of client or server.
//!
//! The verdicts compare the cells of a group with the group's baseline (`verdict.rs`), which is one question. The pairs
//! answer another: what a setting does. Each cell is compared with the first cell of the run that differs from it in
//! exactly one setting. Link and work are the question, not settings: their values are not compared.

use std::collections::{BTreeMap, BTreeSet};

use super::{Analysis, CellSummary, CellVerdict, bulk_rate, repetitions_by_cell, verdict};
use h2lab_model::record::RunRecord;
use h2lab_model::scenario::sysctl::{READ_BUFFERS, WRITE_BUFFERS};
use h2lab_model::scenario::{Cell, Sysctls, Target, Topology};
use h2lab_model::workload::{DialPolicy, EngineSettings};

/// A kind of setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Setting {
    /// The number of connections.
    Connections,
    /// Streams per connection.
    Streams,
    /// What is dialled when no connection is usable.
    Dial,
    /// The congestion control of both ends.
    Congestion,
    /// A sysctl of client or server.
    Sysctls,
    /// The server, the sidecar before it, or where sidecars stand.
    Parties,
    /// A setting of the HTTP/2 engine of our client.
    ClientEngine,
    /// A setting of the HTTP/2 engine of our origin.
    ServerEngine,
}

impl Setting {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Whether cells of one group may differ in it: others that do are changes of an experiment, which compares them.
    pub const fn is_within_groups(self) -> bool {
        matches!(self, Self::Connections | Self::Streams | Self::Dial | Self::Parties)
    }
}

/// A setting by its kind and its name among those of its kind.
type Key = (Setting, String);
/// The settings of a cell; what is not set is left out.
type Settings = BTreeMap<Key, String>;

/// The name of the sidecar among the parties.
const SIDECAR: &str = "sidecar";

/// All settings of a cell that concern it, and the cell without them, for comparison with others. Repetitions of two
/// cells with one seed have the same request seed.
fn settings(cell: &Cell) -> (Settings, Cell) {
    let mut rest = Cell { index: 0, group: 0, seed: 0, ..cell.clone() };
    let mut settings = Settings::new();
    let mut set = |setting, name: &str, value: String| settings.insert((setting, name.to_owned()), value);
    if let Some(congestion) = rest.congestion.take() {
        set(Setting::Congestion, "", congestion);
    }
    let Sysctls { client, server } = std::mem::take(&mut rest.sysctls);
    for (side, sysctls) in [("client", client), ("server", server)] {
        for (name, value) in sysctls {
            set(Setting::Sysctls, &format!("{side} {name}"), value);
        }
    }
    let topology = cell.topology();
    // Of two sidecars the one at the far end is the target, and our origin is behind it.
    let target = if topology == Topology::TwoSidecars { Target::Origin.name() } else { cell.target.name() };
    set(Setting::Parties, "target", target.to_owned());
    set(Setting::Parties, "topology", topology.name().to_owned());
    rest.target = Target::Origin;
    if let Some(sidecar) = rest.sidecar.take() {
        let pool = format!("{} {} {}", sidecar.name, sidecar.warm_pool, sidecar.max_connections);
        set(Setting::Parties, SIDECAR, pool);
    }
    let is_multiplexed = cell.protocol.is_multiplexed();
    // In bulk work HTTP/1.1 has no growing pool.
    if is_multiplexed || cell.work.bulk {
        set(Setting::Connections, "", cell.connections.to_string());
        (rest.connections, rest.max_connections) = (0, 0);
    }
    if is_multiplexed {
        set(Setting::Streams, "", cell.streams.to_string());
        set(Setting::Dial, "", cell.dial.name().to_owned());
        (rest.streams, rest.dial) = (0, DialPolicy::default());
        let engines = [(Setting::ClientEngine, &mut rest.client), (Setting::ServerEngine, &mut rest.server)];
        for (setting, engine) in engines {
            for (name, value) in engine_settings(&std::mem::take(engine)) {
                if let Some(value) = value {
                    set(setting, name, value.to_string());
                }
            }
        }
    }
    (settings, rest)
}

/// Each setting of an engine by its name, as a number; `None` if it is not set.
fn engine_settings(engine: &EngineSettings) -> [(&'static str, Option<u128>); 13] {
    let EngineSettings {
        stream_window,
        connection_window,
        auto_window,
        window_update_threshold,
        window_update_bytes,
        max_frame_size,
        window_budget,
        no_coalesce,
        keep_alive,
        push,
        encoder_header_table_size,
        no_huffman,
        await_settings,
    } = *engine;
    [
        ("stream-window", stream_window.map(u128::from)),
        ("connection-window", connection_window.map(u128::from)),
        ("auto-window", auto_window.map(u128::from)),
        ("window-update-threshold", window_update_threshold.map(u128::from)),
        ("window-update-bytes", window_update_bytes.map(u128::from)),
        ("max-frame-size", max_frame_size.map(u128::from)),
        ("window-budget", window_budget.map(u128::from)),
        ("no-coalesce", no_coalesce.then_some(1)),
        ("keep-alive", keep_alive.map(|time| time.as_nanos())),
        ("push", push.then_some(1)),
        ("encoder-header-table-size", encoder_header_table_size.map(u128::from)),
        ("no-huffman", no_huffman.then_some(1)),
        ("await-settings", await_settings.then_some(1)),
    ]
}

/// The setting in which two cells differ, if it is one.
fn only_difference(one: &Settings, other: &Settings) -> Option<Key> {
    let mut keys: BTreeSet<&Key> =
        one.keys().chain(other.keys()).filter(|key| one.get(*key) != other.get(*key)).collect();
    // A cell without sidecars differs from one with some in the topology.
    keys.retain(|key| key.1 != SIDECAR || (one.contains_key(*key) && other.contains_key(*key)));
    // `tcp-buffer` of a scenario is one setting, and four sysctls.
    let buffers = ["client", "server"]
        .map(|side| [READ_BUFFERS, WRITE_BUFFERS].map(|name| (Setting::Sysctls, format!("{side} {name}"))));
    if keys.iter().copied().eq(buffers.iter().flatten()) {
        return Some((Setting::Sysctls, "tcp-buffer".to_owned()));
    }
    let mut keys = keys.into_iter();
    keys.next().filter(|_| keys.next().is_none()).cloned()
}

/// A cell against the first one that differs in one setting only.
#[derive(Debug, Clone, PartialEq)]
pub struct Pair {
    /// The kind of the setting.
    pub setting: Setting,
    /// The verdict; its baseline has the first value. Intervals have Bonferroni's correction for all pairs of the run.
    pub verdict: CellVerdict,
}

/// The pairs of a run, by setting, in the order of the matrix.
pub(super) fn compare(analysis: &Analysis, run: &RunRecord) -> Vec<Pair> {
    let found = differing_in_one(analysis);
    if found.is_empty() {
        return Vec::new();
    }
    let looks = found.len() as u32;
    let repetitions = repetitions_by_cell(&run.repetitions);
    let verdict = |first: &CellSummary, other: &CellSummary| {
        let bulk = [first, other].map(|summary| repetitions.get(&summary.cell.index));
        match bulk {
            [Some(first), Some(other)] if other[0].cell.work.bulk => {
                bulk_rate::compared(first, other, run.seed, looks)
            }
            _ => verdict::one(first, other, run.seed, looks),
        }
    };
    let pair = |(setting, first, other)| Pair { setting, verdict: verdict(first, other) };
    found.into_iter().map(pair).collect()
}

/// Each cell with the first one that differs from it in one setting, for each setting.
fn differing_in_one(analysis: &Analysis) -> Vec<(Setting, &CellSummary, &CellSummary)> {
    let mut alike: Vec<(Cell, Vec<(Settings, &CellSummary)>)> = Vec::new();
    let mut found = Vec::new();
    for summary in &analysis.cells {
        let (settings, rest) = settings(&summary.cell);
        let place = alike.iter().position(|(known, _)| *known == rest).unwrap_or(alike.len());
        if place == alike.len() {
            alike.push((rest, Vec::new()));
        }
        let before = &mut alike[place].1;
        let mut seen: BTreeSet<Key> = BTreeSet::new();
        for (first, other) in before.iter() {
            let Some(key) = only_difference(first, &settings) else { continue };
            let setting = key.0;
            if seen.insert(key) && is_open(analysis, setting, other, summary) {
                found.push((setting, *other, summary));
            }
        }
        before.push((settings, summary));
    }
    found.sort_by_key(|(setting, ..)| *setting);
    found
}

/// Whether nothing else compares these two cells.
fn is_open(analysis: &Analysis, setting: Setting, first: &CellSummary, other: &CellSummary) -> bool {
    let pair = (first.cell.index, other.cell.index);
    let has_verdict = analysis.verdicts.iter().any(|verdict| (verdict.baseline, verdict.cell) == pair);
    !has_verdict && (setting.is_within_groups() || first.cell.group != other.cell.group)
}

#[cfg(test)]
mod tests;

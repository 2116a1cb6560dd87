//! Units of a run that several agents measure: what is compared is measured by one of them.

use std::collections::BTreeMap;

use h2lab_analysis::stats::{Study, analyse};
use h2lab_model::fleet::queue::units;
use h2lab_model::record::CellRecord;
use h2lab_model::record::testing::run;
use h2lab_model::scenario::Scenario;

/// The file that asks for timelines: it has no cells.
const TIMELINES: &str = "early-push.toml";

/// The scenario files that come with h2lab, by name.
#[allow(clippy::disallowed_methods, reason = "only a test can read the repository's folder of scenarios")]
fn shipped() -> BTreeMap<String, Scenario> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
    let files = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let files = files.filter(|file| file.file_name() != TIMELINES);
    files
        .map(|file| {
            let name = file.file_name().into_string().unwrap();
            let text = std::fs::read_to_string(file.path()).unwrap();
            let scenario = Scenario::from_toml(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
            (name, scenario)
        })
        .collect()
}

#[test]
fn what_is_compared_in_a_shipped_scenario_is_one_unit() {
    let (mut verdicts, mut pairs) = (0, 0);
    for (name, scenario) in shipped() {
        let plan = scenario.plan();
        let mut unit_of: BTreeMap<u32, u32> = BTreeMap::new();
        for unit in units(&plan) {
            for (index, _) in unit.cells {
                let of = *unit_of.entry(index).or_insert(unit.number);
                assert_eq!(of, unit.number, "{name}: repetitions of cell {index} are in two units");
            }
        }
        // Which cells are compared does not depend on what was measured.
        let records = plan.iter().map(|cell| CellRecord::unsupported(cell.clone(), String::new()));
        let analysis = analyse(&run(records.collect()));
        let compared = analysis.verdicts.iter().chain(analysis.pairs.iter().map(|pair| &pair.verdict));
        for verdict in compared {
            let (cell, baseline) = (verdict.cell, verdict.baseline);
            assert_eq!(unit_of[&cell], unit_of[&baseline], "{name}: cells {cell} and {baseline}");
        }
        if scenario.study {
            let study = Study::of(&analysis, &scenario);
            for condition in 0..study.conditions.len() {
                let cells = study.configurations.iter().filter_map(|one| one.cells[condition]);
                let of: Vec<u32> = cells.map(|cell| unit_of[&cell]).collect();
                assert!(of.windows(2).all(|two| two[0] == two[1]), "{name}: condition {condition}: {of:?}");
            }
        }
        (verdicts, pairs) = (verdicts + analysis.verdicts.len(), pairs + analysis.pairs.len());
    }
    assert!(verdicts > 100 && pairs > 100, "{verdicts} verdicts, {pairs} pairs");
}

#[test]
fn a_study_of_many_conditions_is_many_units() {
    let shipped = shipped();
    let count = |name: &str| units(&shipped[name].plan()).len();
    assert_eq!(count("sidecar-chaos.toml"), 9, "its conditions");
    // Four links; congestion controls are compared with each other.
    assert_eq!(count("bbr-vs-cubic.toml"), 4);
}

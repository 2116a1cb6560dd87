//! `--quick`: a scenario in minutes, with fewer conditions or shorter repetitions.

use std::time::Duration;

use toml::{Table, Value};

use super::axis::Axis;
use super::error::ScenarioError;
use super::file::Scenario;

impl Scenario {
    /// The scenario for a short run: with the keys of its own `[quick]` table in place of the file's, or with one repetition of
    /// 1 s to each cell if it has none. A list in there replaces the file's whole list.
    pub fn quickened(&self) -> Result<Self, ScenarioError> {
        let Some(quick) = &self.quick else {
            let mut scenario = self.clone();
            scenario.repetitions = 1;
            scenario.work.measure = Axis::one(Duration::from_secs(1));
            return Ok(scenario);
        };
        let whole = self.in_full().to_toml();
        let mut table: Table = toml::from_str(&whole).expect("it was written just now");
        put(&mut table, quick);
        let text = toml::to_string(&table).expect("it is a table with string keys");
        Self::from_toml(&text).map_err(|error| match error {
            ScenarioError::Syntax(why) => ScenarioError::Syntax(format!("its [quick] table: {why}")),
            other => other,
        })
    }

    /// The scenario without `--quick`.
    #[must_use]
    pub fn in_full(&self) -> Self {
        Self { quick: None, ..self.clone() }
    }
}

/// Puts every key of `over` in its place in `table`; tables are merged recursively.
pub(super) fn put(table: &mut Table, over: &Table) {
    for (key, value) in over {
        match (table.get_mut(key), value) {
            (Some(Value::Table(inner)), Value::Table(over)) => put(inner, over),
            _ => drop(table.insert(key.clone(), value.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str =
        "repetitions = 3\n[work]\nrate = 500\nmeasure = '1m'\n[link]\ndelay = '0ms,5ms'\nloss = '0%,3%'";

    #[test]
    fn without_a_table_of_its_own_a_quick_look_is_one_short_repetition() {
        let quick = Scenario::from_toml(FILE).unwrap().quickened().unwrap();
        assert_eq!((quick.repetitions, quick.work.measure.to_string().as_str()), (1, "1s"));
        assert_eq!(quick.link.loss.to_string(), "0%,3%");
    }

    #[test]
    fn its_own_table_replaces_keys_and_leaves_their_neighbours() {
        let file = format!("{FILE}\n[quick]\nrepetitions = 1\nwork.measure = '5s'\nlink.loss = '3%'");
        let scenario = Scenario::from_toml(&file).unwrap();
        assert_eq!(scenario.in_full(), Scenario::from_toml(FILE).unwrap());
        let quick = scenario.quickened().unwrap();
        assert_eq!((quick.repetitions, quick.link.loss.to_string().as_str()), (1, "3%"));
        assert_eq!((quick.work.measure.to_string().as_str(), quick.work.rate.values()), ("5s", &[500.0][..]));
        assert_eq!((quick.link.delay.to_string().as_str(), quick.quick), ("0ms,5ms", None));
    }

    #[test]
    fn a_table_that_is_no_scenario_is_refused_when_the_file_is_read() {
        for bad in
            ["work.mesure = '1s'", "repetitions = 0", "quick.repetitions = 1\nquick.quick.repetitions = 0"]
        {
            assert!(Scenario::from_toml(&format!("{FILE}\n[quick]\n{bad}")).is_err(), "{bad}");
        }
    }
}

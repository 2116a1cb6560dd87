//! `[[vary]]`: cells beside those of the file's own axes, where a product of axes would be mostly unwanted
//! cells. One factor at a time from a baseline is one table for each factor.

use toml::{Table, Value};

use super::cell::Cell;
use super::error::ScenarioError;
use super::file::Scenario;
use super::quick::put;
use h2lab_base::text::made_printable_lines;

use crate::workload::{DialPolicy, H2cMode, Protocol};

impl Scenario {
    /// The scenarios that its `[[vary]]` tables stand for, in their order: each is this one with the table's keys in place of
    /// its own, as in `[quick]`, and has no variations itself. A list is an axis there, too: a table may be a product. The keys
    /// of `[client]` and `[server]`, which are no axes elsewhere, are axes here.
    pub fn variations(&self) -> Result<Vec<Self>, ScenarioError> {
        if self.vary.is_empty() {
            return Ok(Vec::new());
        }
        let baseline = Self { vary: Vec::new(), quick: None, ..self.clone() };
        // A number above i64::MAX can be written and not be read.
        let baseline: Table = toml::from_str(&baseline.to_toml())
            .map_err(|error| ScenarioError::Syntax(made_printable_lines(error.to_string().trim_end())))?;
        let expanded = |(place, vary)| expanded(vary).into_iter().map(move |table| (place, table));
        let varied = |(place, vary): (usize, Table)| {
            let mut table = baseline.clone();
            put(&mut table, &vary);
            let text = toml::to_string(&table).expect("it is a table with string keys");
            let rendered = |why| ScenarioError::Syntax(format!("its [[vary]] table {}: {why}", place + 1));
            let scenario = Self::from_toml(&text).map_err(|error| match error {
                ScenarioError::Syntax(why) => rendered(why),
                other => other,
            })?;
            // Keys common to all cells cannot vary.
            let own = ["claim", "seed", "repetitions", "visits", "study", "quick", "vary"];
            match vary.keys().find(|key| own.contains(&key.as_str())) {
                Some(key) => Err(rendered(format!("`{key}` is the same in all cells"))),
                None => Ok(scenario),
            }
        };
        self.vary.iter().enumerate().flat_map(expanded).map(varied).collect()
    }
}

/// One table for each combination of values, where keys of `[client]` and `[server]` have several.
fn expanded(vary: &Table) -> Vec<Table> {
    let mut tables = vec![vary.clone()];
    for end in ["client", "server"] {
        let Some(Value::Table(keys)) = vary.get(end) else { continue };
        for (key, value) in keys {
            let Value::Array(values) = value else { continue };
            let with = |table: &Table, value: &Value| {
                let mut table = table.clone();
                if let Some(Value::Table(keys)) = table.get_mut(end) {
                    keys.insert(key.clone(), value.clone());
                }
                table
            };
            tables =
                tables.iter().flat_map(|table| values.iter().map(move |value| with(table, value))).collect();
        }
    }
    tables
}

/// Joins the points of several scenarios: each point once, and those of one condition in one group, whichever table
/// they come from.
pub(super) fn joined(points: Vec<Cell>) -> Vec<Cell> {
    let mut conditions: Vec<Cell> = Vec::new();
    let mut all: Vec<Cell> = Vec::new();
    for mut point in points {
        let condition = condition_of(&point);
        let known = conditions.iter().position(|other| *other == condition);
        point.group = known.unwrap_or(conditions.len()) as u32;
        if known.is_none() {
            conditions.push(condition);
        }
        point.index = 0;
        if !all.contains(&point) {
            all.push(point);
        }
    }
    // A group's cells are adjacent, so that they are measured one after the other.
    all.sort_by_key(|point| point.group);
    for (index, point) in all.iter_mut().enumerate() {
        point.index = index as u32;
    }
    all
}

/// The point without the part in which cells of a group differ.
fn condition_of(point: &Cell) -> Cell {
    Cell {
        index: 0,
        group: 0,
        protocol: Protocol::H1,
        h2c_mode: H2cMode::default(),
        twin: 0,
        connections: 0,
        max_connections: 0,
        streams: 0,
        max_requests_per_connection: None,
        dial: DialPolicy::default(),
        ..point.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Estimate;

    const FILE: &str = "repetitions = 1\n[work]\nconcurrency = 8\n[link]\ndelay = '5ms'\n[matrix]\nprotocols = ['h1', 'h2c']\n";

    fn plan(vary: &str) -> Vec<Cell> {
        Scenario::from_toml(&format!("{FILE}{vary}")).unwrap().plan()
    }

    #[test]
    fn one_factor_at_a_time_is_a_table_for_each_and_no_product() {
        let plan = plan(
            "[[vary]]\nlink.delay = ['0ms', '20ms']\n[[vary]]\nlink.loss = '1%'\nmatrix.protocols = 'h2c'\n\
             [[vary]]\nclient.stream-window = 65535\nmatrix.protocols = 'h2c'",
        );
        let rendered: Vec<(u32, String, u128, f64)> = plan
            .iter()
            .map(|cell| {
                (cell.group, cell.label(), cell.link.clone().unwrap().uplink.delay.as_millis(), cell.loss())
            })
            .collect();
        let row = |group, label: &str, delay, loss| (group, label.to_owned(), delay, loss);
        assert_eq!(
            rendered,
            [
                row(0, "h1", 5, 0.0),
                row(0, "h2c × 1", 5, 0.0),
                row(1, "h1", 0, 0.0),
                row(1, "h2c × 1", 0, 0.0),
                row(2, "h1", 20, 0.0),
                row(2, "h2c × 1", 20, 0.0),
                row(3, "h2c × 1", 5, 0.01),
                row(4, "h2c × 1", 5, 0.0),
            ]
        );
        assert_eq!(plan[7].client.stream_window, Some(65_535));
        assert_eq!(plan.iter().map(|cell| cell.index).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(Estimate::new(&plan).open(), 8);
    }

    #[test]
    fn another_configuration_is_of_the_baselines_group_and_what_is_there_already_is_not_measured_twice() {
        let plan = plan("[[vary]]\nmatrix.connections = [1, 4]\n[[vary]]\nmatrix.protocols = ['h2', 'h2c']");
        let rendered: Vec<(u32, String)> = plan.iter().map(|cell| (cell.group, cell.label())).collect();
        assert_eq!(rendered, ["h1", "h2c × 1", "h2c × 4", "h2 × 1"].map(|label| (0, label.to_owned())));
    }

    #[test]
    fn what_is_no_axis_elsewhere_is_one_in_a_variation() {
        let plan = plan(
            "[[vary]]\nclient = { stream-window = [65535, 1048576], max-frame-size = [16384, 65536] }\n\
             matrix.protocols = 'h2c'",
        );
        let rendered: Vec<String> = plan[2..].iter().map(|cell| cell.client.rendered().join(", ")).collect();
        let row = |window: &str, frame: &str| format!("stream window {window}, frames up to {frame} KiB");
        let (least, more) = ("64 KiB - 1", "1 MiB");
        assert_eq!(
            rendered,
            [row(least, "16"), row(more, "16"), row(least, "64"), row(more, "64")].map(|one| one.clone())
        );
    }

    #[test]
    fn a_quick_look_may_have_other_variations_or_none() {
        let file = format!(
            "{FILE}[[vary]]\nlink.delay = ['0ms', '20ms']\n[quick]\nvary = [{{ link.delay = '0ms' }}]"
        );
        let scenario = Scenario::from_toml(&file).unwrap();
        assert_eq!((scenario.plan().len(), scenario.quickened().unwrap().plan().len()), (6, 4));
        let none =
            Scenario::from_toml(&file.replace("vary = [{ link.delay = '0ms' }]", "vary = []")).unwrap();
        assert_eq!(none.quickened().unwrap().plan().len(), 2);
        assert_eq!(Scenario::from_toml(&scenario.to_toml()).unwrap(), scenario);
    }

    #[test]
    fn a_table_that_is_no_scenario_or_says_what_all_cells_share_is_refused_when_the_file_is_read() {
        let refusal =
            |vary: &str| Scenario::from_toml(&format!("{FILE}[[vary]]\n{vary}")).unwrap_err().to_string();
        assert!(refusal("link.dealy = '1ms'").contains("[[vary]] table 1"));
        assert!(refusal("link.delay = '61s'").contains("delay"));
        for key in ["repetitions = 2", "seed = 3", "claim = 'x'"] {
            assert!(refusal(key).contains("is the same in all cells"), "{key}");
        }
        let two_seeds = Scenario::from_toml(&format!("seed = [1, 2]\n{FILE}[[vary]]\nlink.delay = '1ms'"));
        assert!(two_seeds.unwrap_err().to_string().contains("vary"), "groups of several seeds");
    }

    #[test]
    fn a_scenario_without_the_table_reads_writes_and_is_numbered_as_before_there_was_one() {
        let scenario = Scenario::default();
        assert!(!scenario.to_toml().contains("vary") && !scenario.to_toml().contains("[server]"));
        let json = serde_json::to_string(&scenario.plan()[0]).unwrap();
        assert!(!json.contains("bulk") && !json.contains("server\":{"), "{json}");
    }
}

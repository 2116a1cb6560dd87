//! A scenario that came as a message from another machine: the same checks as for a file, and a bound on its size.
//!
//! Whoever reads a file has written it, and waits as long as its plan needs. An agent plans what a driver sends: a
//! few kilobytes whose axes multiply to a billion cells must not take its memory.

use toml::{Table, Value};

use super::axis::Axis;
use super::error::ScenarioError;
use super::file::{MatrixAxes, Scenario};
use super::link::LinkAxes;
use super::quick::put;
use h2lab_base::text::made_printable_lines;

/// The most points of all axes together, before equal ones are joined.
const MOST_POINTS: u64 = 10_000;

/// The most bytes of a plan, if each cell were as large as the scenario and this much more.
const MOST_BYTES: u64 = 512 << 20;
const BESIDES: u64 = 1 << 10;

impl Scenario {
    /// The scenario as [`Scenario::from_toml`] reads it from a file, with all checks; what no file can say is
    /// refused. Its short run is left out: whoever started the run has decided that. A plan that takes too much
    /// memory is refused before it is made.
    pub fn as_received(&self) -> Result<Self, ScenarioError> {
        let text = toml::to_string(&self.in_full()).map_err(|error| syntax(&error))?;
        // What is written as a number may be above all that a file has.
        let mut baseline: Table = toml::from_str(&text).map_err(|error| syntax(&error))?;
        baseline.remove("vary");
        let size = text.len() as u64;
        let copies = (self.vary.len() as u64).max(self.matrix.arms.len() as u64);
        let mut points = if copies.saturating_mul(size) > MOST_BYTES { u64::MAX } else { points(self) };
        for vary in self.vary.iter().take(MOST_POINTS as usize) {
            if points > MOST_POINTS {
                break;
            }
            points = points.saturating_add(points_of_variation(&baseline, vary)?);
        }
        let cells = points.saturating_mul(u64::from(self.repetitions));
        if points > MOST_POINTS || cells.saturating_mul(size + BESIDES) > MOST_BYTES {
            return Err(ScenarioError::Range {
                field: "matrix",
                value: format!(
                    "{} points or more of its axes, each measured {} times",
                    points.min(MOST_POINTS + 1),
                    self.repetitions
                ),
                expected: "an agent plans up to 10000 points and 512 MiB; make several runs of it",
            });
        }
        Self::from_toml(&text)
    }
}

fn syntax(error: &impl std::fmt::Display) -> ScenarioError {
    ScenarioError::Syntax(made_printable_lines(error.to_string().trim_end()))
}

/// The points of a `[[vary]]` table, of which keys of `[client]` and `[server]` may have several values.
fn points_of_variation(baseline: &Table, vary: &Table) -> Result<u64, ScenarioError> {
    // Each of them would have variations of its own before the whole is refused.
    if let Some(key) = ["vary", "quick"].into_iter().find(|key| vary.contains_key(*key)) {
        return Err(ScenarioError::Syntax(format!("its [[vary]] tables: `{key}` is the same in all cells")));
    }
    let mut vary = vary.clone();
    let mut points = 1_u64;
    for end in ["client", "server"] {
        let Some(Value::Table(keys)) = vary.remove(end) else { continue };
        for (_, value) in keys {
            if let Value::Array(values) = value {
                points = points.saturating_mul(values.len() as u64);
            }
        }
    }
    let mut varied = baseline.clone();
    put(&mut varied, &vary);
    let text = toml::to_string(&varied).map_err(|error| syntax(&error))?;
    let varied = Scenario::of_a_run(&text)?;
    let copies = (varied.matrix.arms.len() as u64).saturating_mul(text.len() as u64);
    Ok(if copies > MOST_BYTES { u64::MAX } else { points.saturating_mul(self::points(&varied)) })
}

/// The points of a scenario's own axes, before equal ones are joined.
fn points(scenario: &Scenario) -> u64 {
    let Scenario { seed, work, link, sysctl, matrix, .. } = scenario;
    let sysctls = sysctl.client.values().chain(sysctl.server.values()).map(count);
    let buffers = sysctl.tcp_buffer.as_ref().map_or(1, count);
    let works = [count(&work.shape), count(&work.rate), count(&work.measure)];
    let conditions = product(sysctls.chain([count(seed), buffers, points_of_link(link)]).chain(works));
    let matrices = matrix.matrices().iter().map(points_of_matrix).fold(0, u64::saturating_add);
    conditions.saturating_mul(matrices)
}

/// The pattern names every field, so that a new one is not forgotten.
fn points_of_link(axes: &LinkAxes) -> u64 {
    let LinkAxes {
        delay,
        jitter,
        jitter_order,
        loss,
        loss_model,
        loss_per,
        bandwidth,
        queue,
        queue_discipline,
        reorder,
        duplicate,
        corrupt,
        congestion,
        loopback: _,
        blackout: _,
        steps: _,
        uplink: _,
        downlink: _,
    } = axes;
    product([
        count(delay),
        count(jitter),
        count(jitter_order),
        count(loss),
        count(loss_model),
        count(loss_per),
        count(bandwidth),
        count(queue),
        count(queue_discipline),
        count(reorder),
        count(duplicate),
        count(corrupt),
        count(congestion),
    ])
}

fn points_of_matrix(matrix: &MatrixAxes) -> u64 {
    let parties = [count(&matrix.origin), count(&matrix.topology), matrix.sidecar.as_ref().map_or(1, count)];
    let variants = [
        count(&matrix.protocols),
        count(&matrix.connections),
        count(&matrix.streams),
        count(&matrix.max_requests_per_connection),
        count(&matrix.dial_policy),
    ];
    product(parties.into_iter().chain(variants).chain([(matrix.live.len() as u64).max(1)]))
}

fn count<T: Clone>(axis: &Axis<T>) -> u64 {
    axis.values().len() as u64
}

fn product(counts: impl IntoIterator<Item = u64>) -> u64 {
    counts.into_iter().fold(1, u64::saturating_mul)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::scenario::plan::testing;

    fn received(json: &str) -> Result<Scenario, ScenarioError> {
        serde_json::from_str::<Scenario>(json).map_err(|error| syntax(&error))?.as_received()
    }

    fn read(value: &serde_json::Value) -> Result<Scenario, ScenarioError> {
        received(&value.to_string())
    }

    /// Whether it is refused for the size of its plan.
    fn is_too_large(value: &serde_json::Value) -> bool {
        match read(value) {
            Ok(_) => false,
            Err(ScenarioError::Range { field: "matrix", .. }) => true,
            Err(other) => panic!("{other}"),
        }
    }

    /// `1,2,3 …`
    fn list(count: u64) -> String {
        (1..=count).map(|n| n.to_string()).collect::<Vec<_>>().join(",")
    }

    #[test]
    fn shipped_scenarios_arrive_as_they_are() {
        for text in [
            include_str!("../../../../scenarios/compare.toml"),
            include_str!("../../../../scenarios/sidecar-chaos.toml"),
            include_str!("../../../../scenarios/connections-knob.toml"),
            include_str!("../../../../scenarios/frame-size.toml"),
        ] {
            let scenario = Scenario::from_toml(text).unwrap().in_full();
            assert_eq!(read(&serde_json::to_value(&scenario).unwrap()), Ok(scenario));
        }
    }

    #[test]
    fn a_short_run_is_left_out() {
        let text = "repetitions = 3\n[quick]\nrepetitions = 1";
        let scenario = Scenario::from_toml(text).unwrap();
        assert_eq!(scenario.as_received(), Ok(scenario.in_full()));
    }

    #[test]
    fn what_a_file_may_not_say_a_message_may_not_say_either() {
        for name in [
            "kernel.core_pattern",
            "net/../kernel/core_pattern",
            "/net/ipv4/x",
            "net.ipv4.tcp_congestion_control",
        ] {
            for side in ["client", "server"] {
                let refused = read(&json!({"sysctl": {side: {name: "x"}}})).unwrap_err().to_string();
                let expected = format!("`sysctl.{side}` cannot set `{name}`: ");
                assert!(refused.starts_with(&expected), "{refused}");
            }
            let varied = json!({"vary": [{"sysctl": {"server": {name: "x"}}}]});
            assert!(read(&varied).unwrap_err().to_string().contains(name));
        }
        for value in [
            json!({"repetitions": 0}),
            json!({"work": {"timeout": "0s"}}),
            json!({"work": {"headers": [["a", "b\nc"]]}}),
            json!({"work": {"path": "no slash"}}),
            json!({"work": {"rate": []}}),
            json!({"work": null}),
            json!({"unknown": 1}),
            json!({"link": {"queue": "64k"}}),
            json!(null),
        ] {
            assert!(read(&value).is_err(), "{value}");
        }
        assert!(received("{").is_err());
        assert!(received("").is_err());
    }

    #[test]
    fn a_number_that_no_file_has_is_an_error() {
        let above = json!({"client": {"window-budget": u64::MAX}, "vary": [{"work": {"rate": 5}}]});
        assert!(matches!(read(&above), Err(ScenarioError::Syntax(_))));
    }

    #[test]
    fn errors_are_printable() {
        let refused = read(&json!({"\u{1b}[2J": 1})).unwrap_err().to_string();
        assert!(refused.contains("u{1b}") && !refused.contains('\u{1b}'), "{refused}");
    }

    #[test]
    fn axes_that_multiply_to_too_many_cells_are_refused_before_they_are_planned() {
        // Two protocols.
        assert!(!is_too_large(&json!({"seed": list(50), "work": {"rate": list(100)}})));
        assert!(is_too_large(&json!({"seed": list(51), "work": {"rate": list(100)}})));
        let all = list(2000).replace(',', "ms,") + "ms";
        let capacities = list(2000).replace(',', "mbit,") + "mbit";
        assert!(is_too_large(&json!({"link": {"delay": all, "jitter": all, "bandwidth": capacities}})));
        let arms: Vec<_> = (0..200).map(|_| json!({"origin": list(100)})).collect();
        assert!(is_too_large(&json!({"matrix": {"arms": arms}})));
    }

    #[test]
    fn variations_that_multiply_to_too_many_cells_are_refused_before_they_are_planned() {
        let windows = |count: u64| (0..count).map(|n| 65_535 + n).collect::<Vec<_>>();
        let vary = |table: serde_json::Value| json!({"matrix": {"protocols": "h2c"}, "vary": [table]});
        assert!(!is_too_large(&vary(
            json!({"client": {"stream-window": windows(5), "connection-window": windows(4)}})
        )));
        let product =
            json!({"client": {"stream-window": windows(100)}, "server": {"stream-window": windows(100)}});
        assert!(is_too_large(&vary(product)));
        assert!(is_too_large(&vary(json!({"work": {"rate": list(10_000)}}))));
        let many: Vec<_> = (0..10_001).map(|n| json!({"work": {"rate": n + 1}})).collect();
        assert!(is_too_large(&json!({"vary": many})));
        for key in ["vary", "quick"] {
            let refused = read(&vary(json!({key: [{}]}))).unwrap_err().to_string();
            assert!(refused.contains(&format!("`{key}` is the same in all cells")), "{refused}");
        }
    }

    #[test]
    fn a_large_body_is_not_planned_for_many_cells() {
        let with =
            |seeds| json!({"seed": list(seeds), "repetitions": 2, "work": {"body": "x".repeat(1 << 20)}});
        assert!(!is_too_large(&with(50)));
        assert!(is_too_large(&with(150)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_message_is_what_its_file_is(scenario in testing::scenarios()) {
            let received = received(&serde_json::to_string(&scenario).unwrap());
            if !matches!(received, Err(ScenarioError::Range { field: "matrix", .. })) {
                prop_assert_eq!(received, Scenario::from_toml(&scenario.to_toml()));
            }
        }

        #[test]
        fn no_text_is_more_than_an_error(text in ".*") {
            let _ = received(&text);
        }
    }
}

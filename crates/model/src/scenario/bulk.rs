//! Bulk work in a scenario: how its responses are spread over connections, and what it excludes.

use super::axis::ConnectionCount;
use super::cell::Cell;
use super::error::ScenarioError;
use super::file::{MatrixAxes, Scenario};
use super::topology::Topology;
use crate::workload::Protocol;

impl Cell {
    /// Gives each connection its share of the concurrent responses, and no more connections than responses. A
    /// protocol that is not multiplexed has one connection for each, opened at the beginning: pools are for requests that
    /// come and go.
    pub(super) fn spread_responses(&mut self) {
        let at_a_time = self.work.concurrency().unwrap_or(1).max(1);
        let connections =
            if self.protocol.is_multiplexed() { self.connections.clamp(1, at_a_time) } else { at_a_time };
        (self.connections, self.max_connections) = (connections, connections);
        // A file is refused if its connections cannot have the same number of responses each.
        self.streams = at_a_time.div_ceil(connections);
    }
}

/// Refuses keys without a meaning in bulk work, and those with a meaning only there.
pub(super) fn combinations(scenario: &Scenario, matrices: &[MatrixAxes]) -> Result<(), ScenarioError> {
    let refuse = |field, value: String, with, why: &str| {
        Err(ScenarioError::Conflict { field, value, with, why: why.to_owned() })
    };
    let is_tcp = |matrix: &&MatrixAxes| matrix.protocols.values().contains(&Protocol::Tcp);
    let work = &scenario.work;
    if !work.bulk {
        let Some(matrix) = matrices.iter().find(is_tcp) else { return Ok(()) };
        let why = "tcp has no requests: it is the reference for protocols in bulk work (`bulk = true`)";
        return refuse("protocols", matrix.protocols.to_string(), "work", why);
    }
    let rendered = |with, why| refuse("bulk", "true".to_owned(), with, why);
    if work.concurrency.is_none() {
        return rendered("rate", "`concurrency` sets the number of concurrent responses");
    }
    if work.method != "GET" {
        return rendered("method", "its data is in responses: give GET");
    }
    if !work.mix.is_empty() || work.template || work.body.is_some() || !work.headers.is_empty() {
        return rendered("mix", "all its requests are identical, without a body or additional header fields");
    }
    if scenario.capture.causes {
        return rendered(
            "causes",
            "it has no slow requests: what limited the rate is reported per connection",
        );
    }
    uneven(scenario, matrices)?;
    let is_origin = |matrix: &MatrixAxes| {
        let origins = matrix.origin.values().iter().all(|name| name == "origin");
        origins && matrix.topology.values().iter().all(|topology| *topology == Topology::Direct)
    };
    if !scenario.matrix.live.is_empty() || !matrices.iter().all(is_origin) {
        return rendered(
            "origin",
            "it needs figures of both ends, which only our origin reports, without a proxy",
        );
    }
    Ok(())
}

/// Refuses connections that cannot have the same number of responses each: the cell's label would not show how they are
/// spread.
fn uneven(scenario: &Scenario, matrices: &[MatrixAxes]) -> Result<(), ScenarioError> {
    let at_a_time = scenario.work.concurrency.unwrap_or(1).max(1);
    for matrix in matrices {
        let is_shared = matrix.protocols.values().iter().any(|protocol| protocol.is_multiplexed());
        for count in matrix.connections.values() {
            if let ConnectionCount::Exactly(connections) = count
                && is_shared
                && !at_a_time.is_multiple_of((*connections).clamp(1, at_a_time))
            {
                let why = format!(
                    "{at_a_time} concurrent responses cannot be spread evenly over {connections} connections"
                );
                return Err(ScenarioError::Conflict {
                    field: "connections",
                    value: connections.to_string(),
                    with: "concurrency",
                    why,
                });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::scenario::Scenario;

    const BULK: &str =
        "repetitions = 1\n[work]\nbulk = true\nmethod = 'GET'\nbody-bytes = 0\npath = '/bytes/1000G'\n";

    #[test]
    fn responses_are_spread_over_no_more_connections_than_there_are_responses() {
        let shape = |concurrency: u32, connections: &str| -> Vec<(String, u32)> {
            let text = format!(
                "{BULK}concurrency = {concurrency}\n[matrix]\nprotocols = ['tcp', 'h1', 'h2c']\nconnections = {connections}"
            );
            let plan = Scenario::from_toml(&text).unwrap().plan();
            plan.iter()
                .map(|cell| (format!("{} over {}", cell.protocol, cell.connections), cell.streams))
                .collect()
        };
        let row = |rendered: &str, streams| (rendered.to_owned(), streams);
        assert_eq!(shape(1, "1"), [row("tcp over 1", 1), row("h1 over 1", 1), row("h2c over 1", 1)]);
        assert_eq!(
            shape(10, "[1, 5, 16]"),
            [
                row("tcp over 10", 1),
                row("h1 over 10", 1),
                row("h2c over 1", 10),
                row("h2c over 5", 2),
                row("h2c over 10", 1)
            ]
        );
    }

    #[test]
    fn what_does_not_go_with_bulk_work_is_refused() {
        let refusal = |text: &str| Scenario::from_toml(text).map_err(|error| error.to_string()).err();
        assert_eq!(refusal(&format!("{BULK}concurrency = 1")), None);
        for (text, words) in [
            (BULK.to_owned(), "concurrency"),
            (format!("{BULK}concurrency = 1").replace("'GET'", "'POST'"), "GET"),
            (
                format!("{BULK}concurrency = 10\n[matrix]\nprotocols = 'h2c'\nconnections = 4"),
                "evenly over 4",
            ),
            (format!("{BULK}concurrency = 1\ntemplate = true"), "identical"),
            (format!("{BULK}concurrency = 1\n[matrix]\norigin = 'nginx'"), "our origin"),
            (format!("{BULK}concurrency = 1\n[capture]\ncauses = true"), "limited the rate"),
            ("[matrix]\nprotocols = 'tcp'".to_owned(), "bulk = true"),
            (format!("{BULK}concurrency = 1\n[link]\nloopback = true\nloss = '1%'"), "loopback"),
        ] {
            assert!(
                refusal(&text).is_some_and(|rendered| rendered.contains(words)),
                "{words}: {:?}",
                refusal(&text)
            );
        }
        assert_eq!(
            refusal(&format!("{BULK}concurrency = 1\n[link]\nloopback = true\ncongestion = 'reno'")),
            None
        );
    }
}

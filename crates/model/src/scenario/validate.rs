//! Reading a scenario, and whether its values are in range.

use std::time::Duration;

use super::axis::ConnectionCount;
use super::error::ScenarioError;
use super::file::{Scenario, WorkAxes};
use super::refusals;
use crate::foreign;
use crate::workload::without_placeholders;
use h2lab_base::text::made_printable_lines;

impl Scenario {
    /// Reads a scenario file and checks its values. A file without any key was more likely cut off than meant to have defaults
    /// only.
    pub fn from_toml(text: &str) -> Result<Self, ScenarioError> {
        let scenario = Self::of_a_run(text)?;
        if text.parse().is_ok_and(|table: toml::Table| table.is_empty()) {
            return Err(ScenarioError::Syntax(
                "it has no key, so it does not say what to measure; a scenario has at least one, such as \
                 `repetitions = 3`, or `protocols = [\"h1\", \"h2\"]` under `[matrix]`"
                    .to_owned(),
            ));
        }
        scenario.validate()?;
        Ok(scenario)
    }

    /// Reads the scenario of a recorded run, without validating it again: the rules can change from
    /// version to version, and a run keeps no values of header fields.
    pub fn of_a_run(text: &str) -> Result<Self, ScenarioError> {
        let syntax = |error: toml::de::Error| {
            ScenarioError::Syntax(made_printable_lines(error.to_string().trim_end()))
        };
        let mut scenario: Self = toml::from_str(text).map_err(syntax)?;
        scenario.claim = made_printable_lines(&scenario.claim);
        Ok(scenario)
    }

    /// The same for display: all of its texts are printable. A scenario that is measured again must be what was asked,
    /// to the byte.
    pub fn of_a_run_to_show(text: &str) -> Result<Self, ScenarioError> {
        let Self { claim, .. } = Self::of_a_run(text)?;
        let shown = foreign::read_toml(text, &["claim"]).map(|shown| Self { claim, ..shown });
        shown.map_err(|error| ScenarioError::Syntax(made_printable_lines(&error.to_string())))
    }

    /// Writes the scenario so that [`Scenario::from_toml`] reads it back.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a scenario is plain data with string keys")
    }

    /// Checks every range.
    pub fn validate(&self) -> Result<(), ScenarioError> {
        let refuse = |field, value: String, expected| Err(ScenarioError::Range { field, value, expected });
        if !(1..=1000).contains(&self.repetitions) {
            return refuse("repetitions", self.repetitions.to_string(), "1 to 1000");
        }
        self.work.validate()?;
        self.sysctl.validate()?;
        self.link.validate()?;
        let matrix = &self.matrix;
        for one in matrix.matrices() {
            let is_above =
                |count: &ConnectionCount| matches!(count, ConnectionCount::Exactly(n) if *n > 20_000);
            let pools = [matrix.warm_pool, matrix.max_connections].map(ConnectionCount::Exactly);
            if one.connections.values().iter().chain(&pools).any(is_above) {
                return refuse("connections", one.connections.to_string(), "1 to 20000");
            }
        }
        if matrix.warm_pool == 0 || matrix.warm_pool > matrix.max_connections {
            return refuse("warm-pool", matrix.warm_pool.to_string(), "1 to max-connections");
        }
        if self.client.policy.reconnect_every == Some(0) {
            return refuse("reconnect-every", "0".to_owned(), "1 or more");
        }
        let policy = &self.client.policy;
        for (field, time) in
            [("cancel-after", policy.cancel_after), ("connect-timeout", policy.connect_timeout)]
        {
            if time.is_some_and(|time| time.is_zero()) {
                return refuse(field, "0".to_owned(), "above 0");
            }
        }
        for engine in [&self.client.engine, &self.server] {
            if let Some((field, value, expected)) = engine.out_of_range() {
                return refuse(field, value.to_string(), expected);
            }
        }
        refusals::combinations(self)?;
        self.variations()?;
        // An impossible short run is reported when the file is read, not when `--quick` is used.
        self.quick.as_ref().map_or(Ok(()), |_| self.quickened().map(drop))
    }
}

impl WorkAxes {
    /// Checks every range.
    fn validate(&self) -> Result<(), ScenarioError> {
        let refuse = |field, value: String, expected| Err(ScenarioError::Range { field, value, expected });
        let literal: fn(&str) -> String = if self.template { without_placeholders } else { str::to_owned };
        request(&self.method, &literal(&self.path), &self.headers)?;
        for entry in &self.mix {
            if !(1..=1_000_000).contains(&entry.weight) {
                return refuse("mix.weight", entry.weight.to_string(), "1 to 1000000");
            }
            let method = entry.method.as_ref().unwrap_or(&self.method);
            request(method, &literal(&entry.path), &entry.headers)?;
        }
        if let Some(rate) = self.rate.values().iter().find(|rate| **rate > 10_000_000.0) {
            return refuse("rate", rate.to_string(), "above 0, at most 10000000 requests per second");
        }
        if self.concurrency.is_some_and(|n| n == 0 || n > 1_000_000) {
            return refuse("concurrency", format!("{:?}", self.concurrency.unwrap_or(0)), "1 to 1000000");
        }
        if self.body_bytes > 1 << 30 {
            return refuse("body-bytes", self.body_bytes.to_string(), "0 to 1 GiB");
        }
        for measure in self.measure.values() {
            if *measure < Duration::from_millis(100) || *measure > Duration::from_secs(24 * 3600) {
                return refuse("measure", format!("{measure:?}"), "100ms to 24h");
            }
        }
        for (field, duration) in [("warmup", self.warmup), ("drain", self.drain), ("timeout", self.timeout)] {
            if duration > Duration::from_secs(24 * 3600) || (field == "timeout" && duration.is_zero()) {
                return refuse(field, format!("{duration:?}"), "up to 24h; timeout above 0");
            }
        }
        Ok(())
    }
}

/// Checks one kind of request; `path` is the part of its path that goes on the wire literally.
fn request(method: &str, path: &str, headers: &[(String, String)]) -> Result<(), ScenarioError> {
    let refuse = |field, value: String, expected| Err(ScenarioError::Malformed { field, value, expected });
    let is_token = |text: &str| {
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
    };
    if !is_token(method) {
        return refuse("method", method.to_owned(), "an HTTP method such as GET or POST");
    }
    if method == "CONNECT" {
        let (value, expected) = (method.to_owned(), "a method other than CONNECT, which asks for a tunnel");
        return Err(ScenarioError::Range { field: "method", value, expected });
    }
    if !path.starts_with('/') || !path.bytes().all(|b| b.is_ascii_graphic()) {
        return refuse(
            "path",
            path.to_owned(),
            "a path that begins with / and has no spaces or control characters",
        );
    }
    let is_value = |text: &str| text.bytes().all(|b| b == b'\t' || (b >= b' ' && b != 0x7f));
    if let Some((name, _)) = headers.iter().find(|(name, value)| !is_token(name) || !is_value(value)) {
        return refuse("headers", format!("{name}: …"), "`Name: value` without control characters");
    }
    refusals::fields(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_any_key_is_no_scenario() {
        for text in ["", "\n", "# measures nothing\n"] {
            let error = Scenario::from_toml(text).unwrap_err().to_string();
            assert!(error.contains("has no key"), "{error}");
        }
        assert!(Scenario::from_toml("repetitions = 3").is_ok());
    }
}

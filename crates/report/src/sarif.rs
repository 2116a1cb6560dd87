//! SARIF 2.1.0 (OASIS) for code scanning: a rule for each thing that was looked for, a result for each verdict on it.

use serde_json::{Value, json};

/// The version's schema.
const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// A verdict on a rule.
#[derive(Debug, Clone)]
pub(super) struct SarifResult {
    /// The rule's id.
    pub rule: String,
    /// `fail`, `pass`, `open`, `review`, `informational` or `notApplicable` (§3.27.9).
    pub kind: &'static str,
    /// `note`, `warning` or `error`, where it failed.
    pub level: &'static str,
    /// What it is about: a URL, or the name of a server that h2lab started.
    pub target: String,
    /// What was seen.
    pub message: String,
    /// More of it, for programs.
    pub properties: Value,
}

/// The log of this version of h2lab. `rules` have an `id` each. `failures` say what could not be measured: with any, the execution was not
/// successful (§3.20.14).
pub(super) fn log(version: &str, rules: &[Value], results: &[SarifResult], failures: &[String]) -> Value {
    let notification = |failure: &String| json!({ "level": "error", "message": { "text": failure } });
    let result = |one: &SarifResult| {
        let mut result = json!({
            "ruleId": one.rule,
            "kind": one.kind,
            // Only failures have a level other than `none` (§3.27.10).
            "level": if one.kind == "fail" { one.level } else { "none" },
            "message": { "text": one.message },
            "locations": [{
                "physicalLocation": { "artifactLocation": { "uri": one.target } },
                "logicalLocations": [{ "fullyQualifiedName": one.target, "kind": "resource" }],
            }],
            "properties": one.properties,
        });
        if let Some(index) = rules.iter().position(|rule| rule["id"] == one.rule.as_str()) {
            result["ruleIndex"] = json!(index);
        }
        result
    };
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "h2lab", "version": version, "rules": rules } },
            "invocations": [{
                "executionSuccessful": failures.is_empty(),
                "toolExecutionNotifications": failures.iter().map(notification).collect::<Vec<_>>(),
            }],
            "results": results.iter().map(result).collect::<Vec<_>>(),
        }],
    })
}

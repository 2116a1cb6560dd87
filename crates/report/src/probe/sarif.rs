//! SARIF of a probe: a rule for each check that was made, a result for each verdict.

use serde_json::{Value, json};

use super::causes_of;
use super::junit::details;
use crate::sarif::{SarifResult, log};
use h2lab_model::probe::{Check, CheckMeta, ProbeReport, Severity, Verdict, explain};

/// The report as a SARIF log. Results that did not fail are included, with their kind, to show what was checked.
pub fn sarif(report: &ProbeReport) -> Value {
    let mut rules: Vec<&CheckMeta> = Vec::new();
    for meta in report.checks.iter().filter_map(|check| explain(&check.id)) {
        if !rules.contains(&meta) {
            rules.push(meta);
        }
    }
    let rules: Vec<Value> = rules.iter().map(|meta| rule(meta)).collect();
    let results: Vec<SarifResult> = report.checks.iter().map(|check| result(check, &report.target)).collect();
    log(&report.version, &rules, &results, &[])
}

fn rule(meta: &CheckMeta) -> Value {
    json!({
        "id": meta.id,
        "name": meta.name,
        "shortDescription": { "text": meta.question() },
        "help": { "text": meta.page(), "markdown": meta.page() },
        "defaultConfiguration": { "level": level(meta.severity) },
        "properties": { "security-severity": score(meta.severity) },
    })
}

fn result(check: &Check, target: &str) -> SarifResult {
    let case = check.case.as_ref().map(|case| format!("{case}: ")).unwrap_or_default();
    let is_failed = check.verdict == Verdict::Fail;
    let details = if is_failed { format!("\n{}", details(check)) } else { String::new() };
    let causes: Vec<&str> = causes_of(check).map(|cause| cause.id).collect();
    SarifResult {
        rule: check.id.clone(),
        kind: match check.verdict {
            Verdict::Fail => "fail",
            Verdict::Pass => "pass",
            Verdict::Ignored => "informational",
            Verdict::Unsupported => "notApplicable",
            Verdict::Undecided => "open",
        },
        level: level(check.severity),
        target: target.to_owned(),
        message: format!("{case}{}{details}", check.summary),
        properties: json!({
            "verdict": check.verdict,
            "severity": check.severity,
            "causes": causes,
            "evidence": check.evidence,
        }),
    }
}

const fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Info | Severity::Low => "note",
        Severity::Medium => "warning",
        Severity::High | Severity::Critical => "error",
    }
}

/// GitHub's score of security findings, 0 to 10.
const fn score(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "0.0",
        Severity::Low => "2.0",
        Severity::Medium => "5.0",
        Severity::High => "8.0",
        Severity::Critical => "9.5",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::testing::report;

    #[test]
    fn every_result_names_a_rule_and_only_what_failed_has_a_level() {
        let log = sarif(&report());
        assert_eq!(log["version"], "2.1.0");
        let run = &log["runs"][0];
        for result in run["results"].as_array().unwrap() {
            let rule = &run["tool"]["driver"]["rules"][result["ruleIndex"].as_u64().unwrap() as usize];
            assert_eq!(rule["id"], result["ruleId"]);
            assert_eq!(result["kind"] == "fail", result["level"] != "none", "{result}");
        }
        let kinds: Vec<&str> = run["results"]
            .as_array()
            .unwrap()
            .iter()
            .map(|result| result["kind"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, ["fail", "pass", "informational", "notApplicable", "open"]);
        let [failed, passed] = [&run["results"][0], &run["results"][1]];
        assert_eq!(failed["properties"]["causes"], json!(["CONN108"]));
        let message = failed["message"]["text"].as_str().unwrap();
        assert!(message.contains("\ncause CONN108: h2lab explain CONN108\n"), "{message}");
        assert_eq!(passed["properties"]["causes"], json!([]), "it did not fail");
    }
}

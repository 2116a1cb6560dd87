//! The causes in the catalogue that failed checks are evidence for.

use h2lab_analysis::diagnose::{CAUSES, CauseMeta, of_check};
use h2lab_base::JsonSchema;
use h2lab_model::probe::{Check, ProbeReport, Verdict};
use serde::{Deserialize, Serialize};

/// The document of `probe --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeDocument {
    /// What the probe found.
    #[serde(flatten)]
    pub report: ProbeReport,
    /// The causes of slowness or failures that checks which failed are evidence for, in the order of the catalogue.
    #[serde(default)]
    pub causes: Vec<ProbeCauseDocument>,
}

/// A cause that failed checks are evidence for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeCauseDocument {
    /// Its id in the catalogue, for `h2lab explain`: `CONN101`.
    pub id: String,
    /// Its name: `request-quota-per-connection`.
    pub name: String,
    /// The ids of the checks that failed.
    pub checks: Vec<String>,
}

/// For programs.
pub fn probe_document(report: &ProbeReport) -> ProbeDocument {
    let of = |cause: &&CauseMeta| {
        let is_of_it = |check: &&Check| causes_of(check).any(|other| other.id == cause.id);
        let mut checks: Vec<String> =
            report.checks.iter().filter(is_of_it).map(|check| check.id.clone()).collect();
        // A check may fail in several cases.
        checks.dedup();
        let (id, name) = (cause.id.to_owned(), cause.name.to_owned());
        (!checks.is_empty()).then_some(ProbeCauseDocument { id, name, checks })
    };
    ProbeDocument { report: report.clone(), causes: CAUSES.iter().filter_map(of).collect() }
}

/// The causes that a check is evidence for; none unless it failed.
pub(crate) fn causes_of(check: &Check) -> impl Iterator<Item = &'static CauseMeta> {
    of_check(&check.id).filter(move |_| check.verdict == Verdict::Fail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::testing::report;
    use h2lab_model::probe::id;

    #[test]
    fn a_failed_check_names_its_causes_once_and_the_others_name_none() {
        let mut report = report();
        // Fails in a second case; another check fails that is evidence for two causes.
        report.checks.insert(1, Check::new(id::PROT101, Verdict::Fail, "no response").of("over TLS"));
        report.checks.push(Check::new(id::LIMT104, Verdict::Fail, "one stream at a time"));
        report.checks.push(Check::new(id::LIMT101, Verdict::Pass, "at least 1,000"));
        let document = probe_document(&report);
        let causes: Vec<(&str, &[String])> =
            document.causes.iter().map(|cause| (cause.id.as_str(), &cause.checks[..])).collect();
        let [first, second] = ["PROT101", "LIMT104"].map(|id| [id.to_owned()]);
        assert!(causes.contains(&("CONN108", &first[..])), "{causes:?}");
        assert!(causes.contains(&("MUX101", &second[..])), "{causes:?}");
        assert!(causes.iter().all(|(id, _)| *id != "CONN101"), "its check passed: {causes:?}");
        let json = serde_json::to_value(&document).expect("it can be written");
        assert_eq!(json["target"], report.target, "the rest is the report as it is");
        assert_eq!(json["causes"][0]["id"], document.causes[0].id);
    }
}

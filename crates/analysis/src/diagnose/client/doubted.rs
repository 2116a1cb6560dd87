//! Findings of a run whose times are not to be trusted.

use crate::diagnose::{Confidence, Finding};

/// Causes that are based on times alone; a late link or a late server of ours has the same symptoms.
const TIMED: [&str; 6] = ["HOST105", "HOST106", "LIMIT105", "LOSS102", "LOSS105", "MUX105"];

/// Causes that were counted, and whose cost is a time that the same lateness makes longer: they then come after all
/// others.
const COSTED: [&str; 1] = ["CONN111"];

/// The findings of such a run that are kept, and a sentence on those that are not reported because our own lateness may
/// be their cause.
pub(super) fn of(findings: impl Iterator<Item = Finding>) -> (Vec<Finding>, Option<String>) {
    let is_in = |rules: &[&str], finding: &Finding| rules.contains(&finding.rule.as_str());
    let (withheld, kept): (Vec<Finding>, Vec<Finding>) = findings.partition(|finding| is_in(&TIMED, finding));
    let (last, first): (Vec<Finding>, Vec<Finding>) =
        kept.into_iter().partition(|finding| is_in(&COSTED, finding));
    let costed = |finding: Finding| {
        let cost = format!("{}; this machine was late, which makes that longer", finding.cost);
        Finding { cost, confidence: Confidence::Inferred, ..finding }
    };
    let rules: Vec<&str> = withheld.iter().map(|finding| finding.rule.as_str()).collect();
    let said = (!rules.is_empty()).then(|| {
        let rules = rules.join(", ");
        format!("not reported: {rules}, which this machine's lateness imitates; run it again while nothing else runs")
    });
    (first.into_iter().chain(last.into_iter().map(costed)).collect(), said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_late_link_imitates_is_withheld_and_what_it_makes_longer_comes_last() {
        let findings = ["CONN111", "HOST106", "CONN101"].map(|rule| Finding {
            rule: rule.to_owned(),
            confidence: Confidence::Observed,
            ..Finding::default()
        });
        let (kept, said) = of(findings.into_iter());
        let rules: Vec<(&str, Confidence)> =
            kept.iter().map(|finding| (finding.rule.as_str(), finding.confidence)).collect();
        assert_eq!(rules, [("CONN101", Confidence::Observed), ("CONN111", Confidence::Inferred)]);
        assert!(said.is_some_and(|said| said.starts_with("not reported: HOST106, which")));
        assert_eq!(of(kept.into_iter()).1, None);
    }
}

//! What is said beside the findings of records: that there are none, what was seen, and what was looked for. All forms of a
//! report have it.

use super::{NONE, looked_for, seen};
use crate::Report;

/// What is said where nothing was compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// What is said if there is no finding.
    pub(super) none: &'static str,
    /// What was seen and looked for.
    pub(super) looked: String,
    has_findings: bool,
}

impl Said {
    fn new(report: &Report<'_>, none: &'static str, looked: String) -> Self {
        Self { none, looked, has_findings: !report.findings.is_empty() }
    }

    /// Of the records of a run.
    pub fn of_run(report: &Report<'_>) -> Self {
        let looked = format!(
            "{} Nothing was changed, so nothing is confirmed: `h2lab diagnose` without a run folder does that.",
            looked_for(false)
        );
        Self::new(report, NONE, looked)
    }

    /// Of a capture; no request was read on `unread` connections of it.
    pub fn of_capture(report: &Report<'_>, unread: u64) -> Self {
        let (seen, looked) = (seen(report, unread), looked_for(false));
        Self::new(report, NONE, format!("{seen} {looked} Nothing was measured, changed or compared."))
    }

    /// Of a client that the user named; `is_ours` says that warnings name what our own server did. No request was read on
    /// `unread` connections of it.
    pub fn of_client(report: &Report<'_>, unread: u64, is_ours: bool) -> Self {
        let none =
            if is_ours { "Nothing was found that the client could change: see the warnings." } else { NONE };
        let looked = format!(
            "{} {} The client was run once and nothing was changed: what was found is observed, not confirmed. To \
             confirm it, change the client as the fix says, and run the same command again.",
            seen(report, unread),
            looked_for(true)
        );
        let looked = if report.run.interrupted {
            format!("Interrupted: this is what was seen until then. {looked}")
        } else {
            looked
        };
        Self::new(report, none, looked)
    }

    /// A paragraph each.
    pub(crate) fn paragraphs(&self) -> Vec<String> {
        let none = (!self.has_findings).then(|| self.none.to_owned());
        none.into_iter().chain([self.looked.clone()]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Fixture;
    use h2lab_analysis::stats::analyse;
    use h2lab_model::scenario::Target;

    #[test]
    fn all_forms_of_a_capture_say_the_same_and_name_no_network_and_no_seed() {
        let mut fixture = Fixture::new();
        fixture.findings.clear();
        for one in &mut fixture.run.repetitions {
            one.generator.wall_ns = 0;
            one.cell.link = None;
            one.cell.target = Target::Url { url: "http://10.9.0.2:8080".to_owned() };
        }
        fixture.run.seed = 0;
        fixture.run.command = vec!["h2lab".to_owned(), "diagnose".to_owned(), "a.pcap".to_owned()];
        fixture.analysis = analyse(&fixture.run);
        let forms = |fixture: &Fixture| {
            let report = fixture.report();
            let said = Said::of_capture(&report, 2);
            [crate::findings_page(&report, &said), crate::markdown_of_findings(&report, &said)]
        };
        for form in forms(&fixture) {
            for words in ["No cause was found.", "Nothing was measured, changed or compared."] {
                assert!(form.contains(words), "{words}: {form}");
            }
            for words in ["live network", "seed 0"] {
                assert!(!form.contains(words), "{words}: {form}");
            }
        }
        fixture.run.seed = 42;
        assert!(forms(&fixture).iter().all(|form| form.contains("seed 42")), "drawn for a client");
        fixture.findings = Fixture::new().findings;
        assert!(forms(&fixture).iter().all(|form| !form.contains("No cause was found.")));
    }
}

//! A diagnosis as a page: the answer, the experiments, the findings, what was ruled out; then all that was measured.

use super::{Section, Shell, findings, parts, whole};
use crate::diagnosis::{COLUMNS, CORRECTED, Diagnosis, Said};
use crate::{Report, answer};

/// The page of a run of `diagnose`.
pub fn diagnosis_page(diagnosis: &Diagnosis<'_>) -> String {
    let whole = whole(&diagnosis.report);
    let own = diagnosis.own_findings();
    let subject = diagnosis.of_subject(&own);
    let mut sections = Vec::new();
    if !diagnosis.experiment.trials.is_empty() {
        let metric = diagnosis.experiment.metric.name();
        let title = format!("Experiments: one setting changed at a time, {metric}");
        sections.push(Section::new("experiments", title, experiments(diagnosis)));
    }
    if let Some(diff) = diagnosis.diff() {
        sections.push(Section::new(
            "fix",
            "Fix",
            parts::preformatted("The changed configuration, as a diff", diff),
        ));
    }
    if !own.is_empty() {
        sections.push(Section::new("findings", "Findings", findings(&subject)));
    }
    let open = diagnosis.ruled_out();
    if !open.is_empty() {
        sections.push(Section::new("open", "Ruled out and open", parts::list(&open, open.len(), "")));
    }
    sections.extend(whole.sections.into_iter().filter(|section| section.id != "findings"));
    Shell {
        kind: "diagnose".to_owned(),
        answer: diagnosis.answer(),
        // What was seen of a client is among what is open, and something was changed.
        notes: if diagnosis.unread.is_some() { Vec::new() } else { super::about(&diagnosis.report) },
        sections,
        style: super::RUN_STYLE,
        script: super::RUN_SCRIPT,
        ..whole
    }
    .render()
}

/// The page of what records show of which nothing was compared: a run folder, a capture, a client.
pub fn findings_page(report: &Report<'_>, said: &Said) -> String {
    // What was seen in packets is said already.
    let about = if report.is_of_packets() { Vec::new() } else { super::about(report) };
    Shell {
        answer: answer::of(report),
        notes: about.into_iter().chain(said.paragraphs()).collect(),
        style: super::RUN_STYLE,
        script: super::RUN_SCRIPT,
        ..whole(report)
    }
    .render()
}

/// The columns of the text in their order on the page: the result is what matters.
const PLACES: [usize; COLUMNS.len()] = [0, 5, 3, 4, 1, 2];

/// Each change with its effect, and the command that repeats the best of them.
fn experiments(diagnosis: &Diagnosis<'_>) -> String {
    let columns = PLACES.map(|place| (COLUMNS[place].title, COLUMNS[place].unit)).to_vec();
    let rows = diagnosis.rows().iter().map(|row| PLACES.map(|place| row[place].clone()).to_vec()).collect();
    let table = parts::table(&(columns, rows));
    let notes = [CORRECTED.to_owned(), format!("Repeat it: `{}`", diagnosis.repeated())];
    table + &parts::list(&notes, notes.len(), "")
}

#[cfg(test)]
mod tests {
    use super::super::tests::assert_sound;
    use super::*;
    use crate::diagnosis::Fixing;
    use crate::diagnosis::tests::experiment;
    use crate::testing::Fixture;

    #[test]
    fn a_diff_can_be_copied_as_it_is() {
        let fixture = Fixture::new();
        let experiment = experiment(&fixture);
        let diff = "--- a\n+++ a\n@@ -1,2 +1,2 @@\n \tserver {\n-        a `b` 5 ms;\n+        a `c` 6 ms;\n";
        let fix = Fixing::Made {
            words: "a".to_owned(),
            cause: None,
            remedy: None,
            diff: diff.to_owned(),
            files: Vec::new(),
        };
        let page = diagnosis_page(&Diagnosis {
            report: fixture.report(),
            experiment: &experiment,
            subject: fixture.findings[0].cell,
            repeat: &[],
            fix: Some(&fix),
            is_via: false,
            unread: None,
            took: None,
            failure: None,
        });
        assert_sound(&page);
        let (_, rest) = page.split_once("<pre class=\"copied\">").expect("it is there");
        assert_eq!(rest.split_once("</pre>").unwrap().0, diff);
    }

    #[test]
    fn the_page_begins_with_the_answer_and_has_each_change_with_its_result() {
        let fixture = Fixture::new();
        let experiment = experiment(&fixture);
        let subject = fixture.findings[0].cell;
        let diagnosis = Diagnosis {
            report: fixture.report(),
            experiment: &experiment,
            subject,
            repeat: &["h2lab".to_owned()],
            fix: None,
            is_via: false,
            unread: None,
            took: None,
            failure: None,
        };
        let page = diagnosis_page(&diagnosis);
        assert_sound(&page);
        let places: Vec<Option<usize>> =
            ["id=\"experiments\"", "id=\"findings\"", "id=\"open\"", "id=\"verdicts\""]
                .iter()
                .map(|id| page.find(id))
                .collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}");
        for words in [
            "confirmed, closes 88 %",
            "refuted",
            "9 of 10 requests failed",
            "Repeat it",
            "<td data-title=\"result\">confirmed",
        ] {
            assert!(page.contains(words), "{words}");
        }
    }
}

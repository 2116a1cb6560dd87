//! Settings with several values: what each does to the same cell, in sentences.

use super::style::{Paint, TextStyle, painted, paragraph};
use super::{Report, format, sentences};
use h2lab_analysis::stats::{Conclusion, Pair};

/// Of more differences, only the first of this many are sentences; JSON has all.
const MOST: usize = 12;

/// What is shown of the pairs of a run.
pub(super) struct Pairs {
    /// The heading.
    pub title: String,
    /// A sentence for each difference.
    pub sentences: Vec<String>,
    /// What is not in a sentence.
    pub note: Option<String>,
}

/// The pairs of a run; `None` if no setting had several values.
pub(super) fn of(report: &Report<'_>) -> Option<Pairs> {
    let all = &report.analysis.pairs;
    if all.is_empty() {
        return None;
    }
    let n = format::plural(all.len() as u64, "comparison");
    let (found, rest): (Vec<&Pair>, Vec<&Pair>) = all.iter().partition(|pair| is_difference(pair));
    let (void, alike): (Vec<&Pair>, Vec<&Pair>) = rest.into_iter().partition(|pair| is_void(pair));
    let more = found.len().saturating_sub(MOST);
    Some(Pairs {
        title: format!(
            "Settings: each value compared with the first one, all else equal (intervals corrected for {n})"
        ),
        sentences: found.into_iter().take(MOST).map(|pair| sentences::pair(report, pair)).collect(),
        note: note([more, alike.len(), void.len()]),
    })
}

/// How many differences are not listed, how many comparisons show none, and how many have no verdict; `None` if all are 0.
fn note([more, alike, void]: [usize; 3]) -> Option<String> {
    let some = |n: usize, noun: &str| (n > 0).then(|| format::plural(n as u64, noun));
    let clauses = [
        some(more, "further difference").map(|more| format!("not listed: {more}")),
        some(alike, "comparison").map(|alike| format!("no difference was resolved in {alike}")),
        some(void, "comparison").map(|void| {
            let why = "a cell failed, was not measured reliably, or was measured on an unlike machine";
            format!("there is no verdict on {void} ({why})")
        }),
    ];
    let clauses: Vec<String> = clauses.into_iter().flatten().collect();
    let all = sentences::capitalised(&clauses.join("; "));
    (!all.is_empty()).then(|| format!("{all}. --json has all of them."))
}

/// The answer of a run whose cells are compared in nothing else: the setting that does most.
pub(super) fn answer(report: &Report<'_>) -> Option<String> {
    let all = &report.analysis.pairs;
    let ratio = |pair: &&Pair| pair.verdict.tail_ratio.map_or(f64::INFINITY, |tail| tail.ratio.ln().abs());
    let most = all.iter().filter(|pair| is_difference(pair)).max_by(|a, b| ratio(a).total_cmp(&ratio(b)));
    most.map(|pair| sentences::pair(report, pair))
}

/// Appends them to a report for a terminal.
pub(super) fn text(out: &mut String, report: &Report<'_>, style: TextStyle) {
    let Some(pairs) = of(report) else { return };
    out.push('\n');
    painted(out, style, Paint::Bold, "", &pairs.title);
    for sentence in &pairs.sentences {
        paragraph(out, style, "- ", sentence);
    }
    if let Some(note) = &pairs.note {
        paragraph(out, style, "", note);
    }
}

/// Whether tails, usual requests or the load that is carried differ.
fn is_difference(pair: &Pair) -> bool {
    let verdict = &pair.verdict;
    let claims = |conclusion: &Conclusion| conclusion.claims_a_difference();
    claims(&verdict.conclusion)
        || verdict.median_conclusion.as_ref().is_some_and(claims)
        || matches!(verdict.conclusion, Conclusion::Unstable { .. } | Conclusion::BaselineUnstable { .. })
}

const fn is_void(pair: &Pair) -> bool {
    use Conclusion::{Failed, Invalid, UnlikeMachines, Unsupported};
    matches!(pair.verdict.conclusion, Failed | Invalid | Unsupported | UnlikeMachines)
}

#[cfg(test)]
mod tests {
    use super::super::testing::Fixture;
    use super::*;
    use h2lab_analysis::stats::{Setting, analyse};

    /// The default run, with bbr in the cells of its last condition and their load as before.
    fn with_bbr() -> Fixture {
        let mut fixture = Fixture::new();
        let last = fixture.run.repetitions.iter().map(|repetition| repetition.cell.group).max().unwrap();
        let mut bbr: Vec<_> = fixture.run.repetitions.clone();
        bbr.retain(|repetition| repetition.cell.group == last);
        for repetition in &mut bbr {
            repetition.cell.congestion = Some("bbr".to_owned());
            repetition.environment.congestion_client = "bbr".to_owned();
            repetition.cell.group += 1;
            repetition.cell.index += 100;
        }
        fixture.run.repetitions.extend(bbr);
        fixture.analysis = analyse(&fixture.run);
        fixture
    }

    #[test]
    fn the_same_cells_under_another_setting_are_compared_and_nothing_is_claimed_of_the_same_times() {
        let fixture = with_bbr();
        let report = fixture.report();
        assert!(report.analysis.pairs.iter().all(|pair| pair.setting == Setting::Congestion));
        let pairs = of(&report).expect("there are some");
        assert_eq!(pairs.sentences, Vec::<String>::new());
        assert!(
            pairs.note.as_ref().is_some_and(|note| note.starts_with("No difference was resolved in ")),
            "{:?}",
            pairs.note
        );
        let text = super::super::text(&[report], TextStyle::default());
        assert!(
            text.contains("Settings: each value compared with the first one, all else equal (intervals"),
            "{text}"
        );
        assert!(super::super::markdown(&[report]).contains("## Settings"));
        assert!(super::super::html(&[report]).contains("id=\"settings\""));
        assert_eq!(super::super::document(&report).pairs.len(), report.analysis.pairs.len());
        assert!(of(&Fixture::new().report()).is_none());
    }

    #[test]
    fn comparisons_that_are_no_sentence_are_counted_in_words() {
        let json = "--json has all of them.";
        assert_eq!(note([0, 0, 0]), None);
        let alone = note([0, 0, 1]).unwrap();
        assert!(alone.starts_with("There is no verdict on 1 comparison (a cell failed, "), "{alone}");
        let all = note([3, 4, 2]).unwrap();
        let begin = "Not listed: 3 further differences; no difference was resolved in 4 comparisons; \
                     there is no verdict on 2 comparisons (";
        assert!(all.starts_with(begin) && all.ends_with(&format!(" machine). {json}")), "{all}");
    }

    #[test]
    fn a_difference_says_what_was_set_instead() {
        let mut fixture = with_bbr();
        let pair = &mut fixture.analysis.pairs[0];
        let mut verdict = fixture.analysis.verdicts.iter().find(|v| v.tail_ratio.is_some()).unwrap().clone();
        (verdict.cell, verdict.baseline, verdict.group) =
            (pair.verdict.cell, pair.verdict.baseline, pair.verdict.group);
        verdict.conclusion = Conclusion::Slower;
        pair.verdict = verdict;
        let pairs = of(&fixture.report()).expect("there are some");
        let [sentence] = pairs.sentences.as_slice() else { panic!("{:?}", pairs.sentences) };
        assert!(sentence.contains("bbr: HTTP/1.1 is slower than that at cubic: p9"), "{sentence}");
    }
}

//! Settings with several values: what each does to the same cell, in sentences.

use super::style::{Paint, TextStyle, painted, paragraph};
use super::{Report, factors, format, sentences};
use h2lab_analysis::stats::{Conclusion, Pair, Setting};
use h2lab_model::scenario::Cell;

/// More differences than this are no sentences, but counted for each value of a setting; JSON has all.
const MOST: usize = 12;

/// What is shown of the pairs of a run.
pub(super) struct Pairs {
    /// The heading.
    pub title: String,
    /// A sentence for each difference; for each value, if there are too many.
    pub sentences: Vec<String>,
    /// What is not in a sentence.
    pub note: Option<String>,
}

/// The pairs of a run; `None` if no setting had several values, or if the work was not the same since it is that of clients
/// whose packets were read.
pub(super) fn of(report: &Report<'_>) -> Option<Pairs> {
    let all = &report.analysis.pairs;
    if all.is_empty() || report.is_of_packets() {
        return None;
    }
    let n = format::plural(all.len() as u64, "comparison");
    let (found, rest): (Vec<&Pair>, Vec<&Pair>) = all.iter().partition(|pair| is_difference(pair));
    let (void, alike): (Vec<&Pair>, Vec<&Pair>) = rest.into_iter().partition(|pair| is_void(pair));
    let is_too_many = found.len() > MOST;
    let title = "Settings: each value compared with the first one, all else equal";
    Some(Pairs {
        title: format!("{title} (intervals corrected for {n})"),
        sentences: if is_too_many {
            by_value(report)
        } else {
            found.into_iter().map(|pair| sentences::pair(report, pair)).collect()
        },
        // By value, these are counted, too.
        note: note([if is_too_many { 0 } else { alike.len() }, void.len()]),
    })
}

/// What the comparisons of one value of a setting with the first one come to.
#[derive(Debug, Default)]
struct Step {
    /// Both values in words: `16 connections against 1 connection`.
    name: String,
    /// The ratios of those that are faster, and of those that are slower.
    differences: [Vec<f64>; 2],
    /// How many show no difference.
    alike: usize,
}

impl Step {
    /// `16 connections against 1 connection, 15 comparisons: faster in 13 (0.31–0.84 ×), no difference resolved in 2.`
    fn line(&self) -> String {
        let [faster, slower] = &self.differences;
        let alike = format::count(self.alike as u64);
        let clauses = [
            different("faster", faster),
            different("slower", slower),
            (self.alike > 0).then(|| format!("no difference resolved in {alike}")),
        ];
        let clauses: Vec<String> = clauses.into_iter().flatten().collect();
        let all = format::plural((faster.len() + slower.len() + self.alike) as u64, "comparison");
        format!("{}, {all}: {}.", self.name, clauses.join(", "))
    }
}

/// How many comparisons differ in this direction, and in which range; `None` without any.
fn different(word: &str, ratios: &[f64]) -> Option<String> {
    // Where a cell does not carry its load there is no ratio.
    let known = || ratios.iter().copied().filter(|ratio| ratio.is_finite() && *ratio > 0.0);
    let range = known().reduce(f64::min).zip(known().reduce(f64::max)).map(|(least, most)| {
        let [least, most] = [least, most].map(format::ratio);
        if least == most { format!(" ({least} ×)") } else { format!(" ({least}–{most} ×)") }
    });
    let n = format::count(ratios.len() as u64);
    (!ratios.is_empty()).then(|| format!("{word} in {n}{}", range.unwrap_or_default()))
}

/// A line for each value of a setting.
fn by_value(report: &Report<'_>) -> Vec<String> {
    let mut steps: Vec<Step> = Vec::new();
    for pair in report.analysis.pairs.iter().filter(|pair| !is_void(pair)) {
        let Some(name) = step_name(report, pair) else { continue };
        let place = steps.iter().position(|step| step.name == name).unwrap_or(steps.len());
        if place == steps.len() {
            steps.push(Step { name, ..Step::default() });
        }
        let step = &mut steps[place];
        match ratio_of_times(pair) {
            Some(ratio) => step.differences[usize::from(ratio > 1.0)].push(ratio),
            None => step.alike += 1,
        }
    }
    steps.iter().map(Step::line).collect()
}

/// What a step is called; `None` if the cells are not in the report.
fn step_name(report: &Report<'_>, pair: &Pair) -> Option<String> {
    let of = |index| report.analysis.cell(index).map(|summary| &summary.cell);
    let (first, cell) = (of(pair.verdict.baseline)?, of(pair.verdict.cell)?);
    let name = |of: &Cell, other: &Cell| match pair.setting {
        Setting::Connections => format::plural(of.connections.into(), "connection"),
        Setting::Streams => format::plural(of.streams.into(), "stream"),
        Setting::Dial => of.dial.name().to_owned(),
        _ => factors::setting(other, of),
    };
    Some(format!("{} against {}", name(cell, first), name(first, cell)))
}

/// How many times as long requests took, or the bytes of bulk work; 0 and infinity where one of the cells does not carry
/// its load. `None` without a difference.
fn ratio_of_times(pair: &Pair) -> Option<f64> {
    let verdict = &pair.verdict;
    match verdict.conclusion {
        Conclusion::Unstable { .. } => Some(f64::INFINITY),
        Conclusion::BaselineUnstable { .. } => Some(0.0),
        _ if !is_difference(pair) => None,
        Conclusion::Faster | Conclusion::Slower => {
            let of_bytes = verdict.bytes.map(|bytes| 1.0 / bytes.ratio);
            of_bytes.or_else(|| verdict.tail_ratio.map(|tail| tail.ratio))
        }
        // Only the usual request differs.
        _ => verdict.median_ratio.map(|median| median.ratio),
    }
}

/// How many comparisons show no difference, and how many have no verdict; `None` if both are 0.
fn note([alike, void]: [usize; 2]) -> Option<String> {
    let some = |n: usize, noun: &str| (n > 0).then(|| format::plural(n as u64, noun));
    let clauses = [
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
    largest(report, |_| true).map(|pair| sentences::pair(report, pair))
}

/// The largest difference that settings of whole conditions make: windows, sysctls, congestion control. Verdicts do not
/// compare those.
pub(super) fn largest_between_conditions<'a>(report: &Report<'a>) -> Option<&'a Pair> {
    largest(report, |pair| !pair.setting.is_within_groups())
}

/// The largest difference among these pairs.
fn largest<'a>(report: &Report<'a>, is_asked: impl Fn(&Pair) -> bool) -> Option<&'a Pair> {
    let analysis = report.analysis;
    let ratio = |pair: &&Pair| pair.verdict.tail_ratio.map_or(f64::INFINITY, |tail| tail.ratio.ln().abs());
    let asked = analysis.pairs.iter().filter(|pair| is_asked(pair) && is_difference(pair));
    asked.filter(|_| !report.is_of_packets()).max_by(|a, b| ratio(a).total_cmp(&ratio(b)))
}

/// The cell of a pair that is worse; `None` if only their usual requests differ.
pub(super) const fn worse(pair: &Pair) -> Option<u32> {
    match pair.verdict.conclusion {
        Conclusion::Slower | Conclusion::Unstable { .. } => Some(pair.verdict.cell),
        Conclusion::Faster | Conclusion::BaselineUnstable { .. } => Some(pair.verdict.baseline),
        _ => None,
    }
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
    use h2lab_analysis::stats::{RatioInterval, analyse};

    /// The default run, with bbr in the cells of its last condition and their load as before: the pairs of both congestion
    /// controls.
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
        fixture.analysis.pairs.retain(|pair| pair.setting == Setting::Congestion);
        fixture
    }

    /// The default run with these verdicts on its first pair, 4 connections against 1: slower or alike.
    fn with_pairs(are_slower: &[bool]) -> Fixture {
        let mut fixture = Fixture::new();
        let pair = fixture.analysis.pairs[0].clone();
        let tail = fixture.analysis.verdicts.iter().find_map(|verdict| verdict.tail_ratio).unwrap();
        let made = are_slower.iter().map(|is_slower| {
            let mut pair = pair.clone();
            let (ratio, conclusion) =
                if *is_slower { (2.0, Conclusion::Slower) } else { (1.0, Conclusion::NoDifference) };
            pair.verdict.conclusion = conclusion;
            pair.verdict.median_conclusion = None;
            pair.verdict.tail_ratio =
                Some(RatioInterval { ratio, low: ratio - 0.05, high: ratio + 0.05, ..tail });
            pair
        });
        fixture.analysis.pairs = made.collect();
        fixture
    }

    #[test]
    fn the_same_cells_under_another_setting_are_compared_and_nothing_is_claimed_of_the_same_times() {
        let fixture = with_bbr();
        let report = fixture.report();
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
        assert!(of(&with_pairs(&[]).report()).is_none());
    }

    #[test]
    fn numbers_of_connections_are_compared_with_each_other_by_their_names() {
        let mut fixture = with_pairs(&[true]);
        let pairs = of(&fixture.report()).expect("there are some");
        let [sentence] = pairs.sentences.as_slice() else { panic!("{:?}", pairs.sentences) };
        let words = "4 HTTP/2 connections are slower than one HTTP/2 connection: p9";
        assert!(sentence.contains(words), "{sentence}");
        assert!(answer(&fixture.report()).is_some_and(|told| told == *sentence));
        fixture.run.repetitions.iter_mut().for_each(|one| one.generator.wall_ns = 0);
        assert!(of(&fixture.report()).is_none(), "clients of others did not do the same work");
        assert_eq!(answer(&fixture.report()), None);
    }

    #[test]
    fn more_differences_than_a_reader_reads_are_counted_for_each_value() {
        let with = |slower: usize| {
            let verdicts: Vec<bool> = (0..=slower).map(|n| n < slower).collect();
            of(&with_pairs(&verdicts).report()).expect("there are some")
        };
        let few = with(MOST);
        assert_eq!(few.sentences.len(), MOST);
        let note = few.note.expect("one is alike");
        assert!(note.starts_with("No difference was resolved in 1 comparison."), "{note}");
        let many = with(MOST + 1);
        let line = "4 connections against 1 connection, 14 comparisons: slower in 13 (2.00 ×), no difference \
                    resolved in 1.";
        assert_eq!(many.sentences, [line]);
        assert_eq!(many.note, None);
    }

    #[test]
    fn a_value_that_lets_a_cell_carry_its_load_is_faster_and_has_no_ratio() {
        let mut fixture = with_pairs(&[true; MOST + 1]);
        for pair in &mut fixture.analysis.pairs {
            pair.verdict.conclusion = Conclusion::BaselineUnstable { offered_rps: 2.0, served_rps: 1.0 };
        }
        let pairs = of(&fixture.report()).expect("there are some");
        assert_eq!(pairs.sentences, ["4 connections against 1 connection, 13 comparisons: faster in 13."]);
    }

    #[test]
    fn settings_of_bulk_work_are_compared_by_their_rates() {
        let fixture = Fixture::bulk();
        let report = fixture.report();
        let pairs = of(&report).expect("there are some");
        let [sentence] = pairs.sentences.as_slice() else { panic!("{:?}", pairs.sentences) };
        let words = "is slower than that at the default setting: rate 0.50 × (95 % interval ";
        assert!(sentence.contains(words), "{sentence}");
        assert!(sentence.ends_with("; 100 Mbit/s against 200 Mbit/s)."), "{sentence}");
        let text = super::super::text(&[report], TextStyle::default());
        assert!(text.contains("Settings: each value compared with the first one"), "{text}");
    }

    #[test]
    fn comparisons_that_are_no_sentence_are_counted_in_words() {
        let json = "--json has all of them.";
        assert_eq!(note([0, 0]), None);
        let alone = note([0, 1]).unwrap();
        assert!(alone.starts_with("There is no verdict on 1 comparison (a cell failed, "), "{alone}");
        let all = note([4, 2]).unwrap();
        let begin = "No difference was resolved in 4 comparisons; there is no verdict on 2 comparisons (";
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

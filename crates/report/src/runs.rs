//! Runs against the first of them, as rows and sentences: the same for text, Markdown and HTML.

use super::Report;
use super::format::{millis, rate, ratio};
use super::table::{Column, name, number};
use h2lab_analysis::stats::{CellComparison, Conclusion, RunsComparison, compare_runs};

/// The columns of [`Compared::rows`].
pub(super) const COLUMNS: [Column; 7] = [
    name("cell"),
    name("figure"),
    number("first", ""),
    number("then", ""),
    number("ratio", ""),
    name("95 %"),
    name("difference"),
];

/// A run and what distinguishes it from the first one.
pub(super) struct Compared<'a> {
    /// The first run.
    pub first: &'a Report<'a>,
    /// The other run.
    pub second: &'a Report<'a>,
    /// The figures.
    pub comparison: RunsComparison,
}

impl<'a> Compared<'a> {
    /// Each run but the first against the first; nothing of a single one.
    pub fn all(reports: &'a [Report<'a>]) -> Vec<Self> {
        let [first, others @ ..] = reports else { return Vec::new() };
        let compare = |second: &'a Report<'a>| Self {
            first,
            second,
            comparison: compare_runs((first.run, first.analysis), (second.run, second.analysis)),
        };
        others.iter().map(compare).collect()
    }

    /// What is compared, and whether there is a difference.
    pub fn heading(&self) -> String {
        let differences = &self.comparison.differences;
        let real = differences.iter().filter(|difference| difference.is_real()).count();
        let void = |conclusion: &Conclusion| {
            matches!(conclusion, Conclusion::Failed | Conclusion::Invalid | Conclusion::Unsupported)
        };
        let claim = match (differences.len(), real) {
            (0, _) => "no cell of the one corresponds to one of the other".to_owned(),
            (_, 0) if differences.iter().all(|d| d.conclusions.iter().all(void)) => {
                "not measured well enough to compare".to_owned()
            }
            (_, 0) => "no difference was resolved".to_owned(),
            (1, _) => "the difference is real".to_owned(),
            (all, real) => format!("the difference is real in {real} of {all} cells"),
        };
        format!("{} against {}: {claim}", self.second.name(), self.first.name())
    }

    /// Three rows for each pair of cells: median, tail, throughput.
    pub fn rows(&self) -> Vec<Vec<String>> {
        self.comparison.differences.iter().flat_map(rows).collect()
    }

    /// The reasons to doubt the ratios, in sentences; the last one always applies.
    pub fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        for difference in &self.comparison.differences {
            if !difference.differs_in.is_empty() {
                let what = difference.differs_in.join(", ");
                doubts.push(format!("{}: the two runs differ in {what}.", difference.label));
            }
            if difference.tail_ratio.is_some_and(|tail| !tail.is_sound()) {
                let why = "stalls are too long for the time measured: its interval is too narrow";
                doubts.push(format!(
                    "{}: nothing is concluded from {}, {why}.",
                    difference.label,
                    difference.tail.name()
                ));
            }
        }
        let only = [(&self.comparison.only_first, self.first), (&self.comparison.only_second, self.second)];
        for (cells, run) in only.into_iter().filter(|(cells, _)| !cells.is_empty()) {
            doubts.push(format!("Only in {}: {}.", run.name(), cells.join(", ")));
        }
        doubts.push(
            "Two runs at different times differ in more than what was changed: what the machine, the network and caches \
             did otherwise is in the ratios and in no interval. `h2lab compare` and `h2lab run` interleave what they \
             compare."
                .to_owned(),
        );
        doubts
    }
}

fn rows(difference: &CellComparison) -> [Vec<String>; 3] {
    let [median, tail, throughput] = difference.conclusions;
    let time = |figure: &str, of: Option<h2lab_analysis::stats::RatioInterval>, conclusion: Conclusion| {
        let figures = of.map(|of| {
            [millis(of.baseline), millis(of.candidate), ratio(of.ratio), interval(of.low, of.high)]
        });
        row(format!("{figure}, ms"), figures, word(conclusion, ["faster", "slower"]))
    };
    let served = difference
        .throughput
        .map(|of| [rate(of.baseline_rps), rate(of.cell_rps), ratio(of.ratio), interval(of.low, of.high)]);
    let mut rows = [
        time("p50", difference.median, median),
        time(difference.tail.name(), difference.tail_ratio, tail),
        row("served/s".to_owned(), served, word(throughput, ["more", "less"])),
    ];
    rows[0][0].clone_from(&difference.label);
    rows
}

/// A row without its cell.
fn row(figure: String, figures: Option<[String; 4]>, word: &str) -> Vec<String> {
    let figures = figures.unwrap_or_else(|| ["-", "-", "-", ""].map(str::to_owned));
    [String::new(), figure].into_iter().chain(figures).chain([word.to_owned()]).collect()
}

fn interval(low: f64, high: f64) -> String {
    format!("{} to {}", ratio(low), ratio(high))
}

fn word(conclusion: Conclusion, [less, more]: [&'static str; 2]) -> &'static str {
    match conclusion {
        Conclusion::Faster => less,
        Conclusion::Slower => more,
        Conclusion::Failed => "failed",
        Conclusion::Invalid => "invalid",
        Conclusion::Unsupported => "unsupported",
        _ => "none resolved",
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Fixture;
    use super::super::{TextStyle, documents, markdown, text};
    use super::*;
    use h2lab_analysis::stats::analyse;
    use h2lab_model::record::testing::{Model, cell, one_repetition, run};
    use h2lab_model::workload::Protocol;

    /// The texts of a clean run and one that takes `factor` times as long.
    fn rendered(factor: f64) -> [String; 3] {
        let of = |factor| {
            let cell = cell(0, 0, Protocol::H1, 32, 0.0);
            let model = Model { factor, ..Model::CLEAN };
            run(vec![one_repetition(&cell, 0, &model), one_repetition(&cell, 1, &model)])
        };
        let (first, second) = (of(1.0), of(factor));
        let analyses = (analyse(&first), analyse(&second));
        let report = |run, analysis, folder| Report {
            run,
            analysis,
            findings: &[],
            causes: &[],
            folder: Some(folder),
            page: None,
        };
        let reports = [report(&first, &analyses.0, "runs/a"), report(&second, &analyses.1, "runs/b")];
        let json = serde_json::to_string(&documents(&reports)).unwrap();
        [text(&reports, TextStyle::default()), markdown(&reports), json]
    }

    #[test]
    fn every_form_says_that_a_difference_is_real_and_that_times_differ() {
        let [text, markdown, json] = rendered(1.5);
        for form in [&text, &markdown] {
            assert!(form.contains("runs/b against runs/a: the difference is real"), "{form}");
            assert!(form.contains("Two runs at different times"), "{form}");
        }
        let line = text.lines().find(|line| line.contains("p50, ms")).unwrap();
        assert!(line.starts_with("h1") && line.contains("1.50") && line.ends_with("slower"), "{line}");
        let line = text.lines().find(|line| line.contains("served/s")).unwrap();
        assert!(line.ends_with("none resolved"), "{line}");
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let cell = &json["comparisons"][0]["cells"][0];
        assert_eq!((&cell["real"], &cell["median_verdict"]), (&true.into(), &"slower".into()));
        assert!(cell["median"]["low"].as_f64().unwrap() > 1.0);
    }

    #[test]
    fn alike_runs_have_no_difference_and_one_run_no_comparison() {
        let [text, _, json] = rendered(1.0);
        assert!(text.contains("no difference was resolved"), "{text}");
        assert!(json.contains("\"real\":false"), "{json}");
        let fixture = Fixture::new();
        assert!(Compared::all(&[fixture.report()]).is_empty());
    }
}

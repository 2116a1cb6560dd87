//! A run against an earlier one, as rows and sentences: the same for text, Markdown and HTML.

use super::format::{NOT_RESOLVED, bound, count, interval_of, millis, plural, rate, ratio};
use super::sentences::lower_first;
use super::table::{Column, name, number};
use super::{Report, condition};
use h2lab_analysis::stats::{CellComparison, Conclusion, RunsComparison, Unclaimed, compare_runs};

/// The columns of [`Compared::rows`].
pub(super) const COLUMNS: [Column; 7] = [
    name("cell"),
    name("figure").rank(0),
    number("first", "").rank(4),
    number("then", "").rank(3),
    number("ratio", "").rank(1),
    name("95 %").rank(2),
    name("difference").rank(0),
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

/// The figures that are compared, in the order of [`CellComparison::conclusions`].
fn figures(difference: &CellComparison) -> [String; 3] {
    ["p50, ms".to_owned(), format!("{}, ms", difference.tail.name()), "served/s".to_owned()]
}

impl<'a> Compared<'a> {
    /// Each run but the first against the first; nothing of a single one.
    pub fn all(reports: &'a [Report<'a>]) -> Vec<Self> {
        let [first, others @ ..] = reports else { return Vec::new() };
        others.iter().map(|second| Self::new(first, second)).collect()
    }

    /// `second` against `first`.
    pub fn new(first: &'a Report<'a>, second: &'a Report<'a>) -> Self {
        let comparison = compare_runs((first.run, first.analysis), (second.run, second.analysis));
        Self { first, second, comparison }
    }

    /// What is compared, and whether there is a difference: the one statement on it.
    pub fn heading(&self) -> String {
        format!("{} against {}: {}", self.second.name(), self.first.name(), self.statement())
    }

    fn statement(&self) -> String {
        let differences = &self.comparison.differences;
        let void = |conclusion: &Conclusion| {
            matches!(conclusion, Conclusion::Failed | Conclusion::Invalid | Conclusion::Unsupported)
        };
        if differences.is_empty() {
            return "no cell of one run corresponds to a cell of the other".to_owned();
        }
        if differences.iter().all(|difference| difference.conclusions.iter().all(void)) {
            return "not measured well enough to compare".to_owned();
        }
        let [worse, better] =
            [Conclusion::Slower, Conclusion::Faster].map(|conclusion| self.most(conclusion));
        let said: Vec<String> = [worse, better].into_iter().flatten().collect();
        match said.as_slice() {
            [] => self.nothing(),
            _ => format!("{} ({})", said.join("; "), self.rule()),
        }
    }

    /// The rule by which differences are claimed.
    fn rule(&self) -> String {
        let floors = self.comparison.differences.iter().map(|difference| difference.floor);
        format!(
            "no difference below 10 %, or below {} in time, is claimed",
            floors.max().map_or_else(|| "0.2 ms".to_owned(), bound)
        )
    }

    /// `the floor of 0.2 ms`; without a figure where pairs of cells differ in it.
    fn floor(&self) -> String {
        let mut floors = self.comparison.differences.iter().map(|difference| difference.floor);
        match floors.next() {
            Some(first) if floors.all(|floor| floor == first) => format!("the floor of {}", bound(first)),
            _ => "the floor".to_owned(),
        }
    }

    /// `slower in 2 of 4 cells, most of all h2c × 1 at 3% loss: p99, ms 1.50 × (1.40 to 1.60)`.
    fn most(&self, conclusion: Conclusion) -> Option<String> {
        let differences = &self.comparison.differences;
        let its = |difference: &&CellComparison| difference.conclusions.contains(&conclusion);
        let cells = differences.iter().filter(its).count();
        let of_all = |difference: &CellComparison| -> Vec<(f64, String, [f64; 3])> {
            let figures =
                figures(difference).into_iter().zip(difference.ratios()).zip(difference.conclusions);
            let its = figures.filter(|(_, concluded)| *concluded == conclusion);
            its.filter_map(|((figure, ratio), _)| Some((ratio?[0].ln().abs(), figure, ratio?))).collect()
        };
        let all = differences
            .iter()
            .flat_map(|difference| of_all(difference).into_iter().map(move |figure| (difference, figure)));
        let (most, (_, figure, of)) = all.max_by(|(_, a), (_, b)| a.0.total_cmp(&b.0))?;
        let word = if conclusion == Conclusion::Slower { "slower" } else { "faster" };
        let place = match differences.len() {
            1 => String::new(),
            all => format!(
                " in {} of {}, most of all {}",
                count(cells as u64),
                plural(all as u64, "cell"),
                self.label(most)
            ),
        };
        let figure = figure.trim_end_matches(", ms");
        Some(format!("{word}{place}: {figure} {} × ({})", ratio(of[0]), interval(of)))
    }

    /// The statement where no difference is claimed.
    fn nothing(&self) -> String {
        let unclaimed =
            self.comparison.differences.iter().flat_map(|difference| difference.unclaimed).flatten();
        let all: Vec<Unclaimed> = unclaimed.collect();
        let figures = |which: fn(&Unclaimed) -> bool, state: &str| {
            let n = all.iter().filter(|why| which(why)).count() as u64;
            (n > 0).then(|| format!("{} {state}", plural(n, "figure")))
        };
        let below = figures(|why| *why == Unclaimed::BelowFloor, &format!("below {}", self.floor()));
        let open = figures(|why| !why.is_alike(), "undecided");
        let rest: Vec<String> = below.into_iter().chain(open).collect();
        match rest.as_slice() {
            [] => format!("no difference ({})", self.rule()),
            rest => format!("no difference was found, {} ({})", rest.join(", "), self.rule()),
        }
    }

    /// The name of a pair of cells: the label, and the condition where there are several.
    pub fn label(&self, difference: &CellComparison) -> String {
        let groups = self.second.analysis.groups();
        let is_its = |group: &&Vec<_>| {
            group
                .iter()
                .any(|summary: &&h2lab_analysis::stats::CellSummary| summary.cell.index == difference.cell)
        };
        let place = groups.iter().find(is_its).and_then(|group| condition::beginning(self.second, group));
        place.map_or_else(
            || difference.label.clone(),
            |at| format!("{} {}", difference.label, lower_first(&at)),
        )
    }

    /// Three rows for each pair of cells: median, tail, throughput.
    pub fn rows(&self) -> Vec<Vec<String>> {
        self.comparison
            .differences
            .iter()
            .flat_map(|difference| rows(difference, self.label(difference)))
            .collect()
    }

    /// The reasons to doubt the ratios, in sentences; the last one always applies.
    pub fn doubts(&self) -> Vec<String> {
        let (first, second) = (self.first, self.second);
        if (first.name(), &first.run.started) == (second.name(), &second.run.started) {
            return vec!["Both are the same run.".to_owned()];
        }
        let mut doubts = Vec::new();
        for difference in &self.comparison.differences {
            if !difference.differs_in.is_empty() {
                let what = difference.differs_in.join(", ");
                doubts.push(format!("{}: the two runs differ in {what}.", difference.label));
            }
            if difference.tail_ratio.is_some_and(|tail| !tail.is_sound()) {
                doubts.push(format!(
                    "{}: nothing is concluded from {}: the measurement is too short for stalls as long as these; \
                     measure longer (-z).",
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
            "Two runs at different times differ in more than the change: other effects of machine, network and \
             caches are in the ratios but in no interval. `h2lab compare` and `h2lab run` interleave the cells they \
             compare."
                .to_owned(),
        );
        doubts
    }
}

fn rows(difference: &CellComparison, label: String) -> [Vec<String>; 3] {
    let [median, tail, throughput] = difference.conclusions;
    let [of_median, of_tail, of_throughput] = difference.unclaimed;
    let [p50, tail_name, served_name] = figures(difference);
    let time = |of: Option<h2lab_analysis::stats::RatioInterval>| {
        of.map(|of| {
            let [ratio, interval] = cells([of.ratio, of.low, of.high]);
            [millis(of.baseline), millis(of.candidate), ratio, interval]
        })
    };
    let served = difference.throughput.map(|of| {
        let [ratio, interval] = cells([of.ratio, of.low, of.high]);
        [rate(of.baseline_rps), rate(of.cell_rps), ratio, interval]
    });
    let times = ["faster", "slower"];
    let mut rows = [
        row(p50, time(difference.median), word(median, of_median, times)),
        row(tail_name, time(difference.tail_ratio), word(tail, of_tail, times)),
        row(served_name, served, word(throughput, of_throughput, ["more", "less"])),
    ];
    rows[0][0] = label;
    rows
}

/// A row without its cell.
fn row(figure: String, figures: Option<[String; 4]>, word: &str) -> Vec<String> {
    let figures = figures.unwrap_or_else(|| ["-", "-", "-", ""].map(str::to_owned));
    [String::new(), figure].into_iter().chain(figures).chain([word.to_owned()]).collect()
}

fn interval(of: [f64; 3]) -> String {
    interval_of(of, " to ").unwrap_or_else(|| NOT_RESOLVED.to_owned())
}

/// The ratio and its interval.
fn cells(of: [f64; 3]) -> [String; 2] {
    let interval = interval(of);
    [if interval == NOT_RESOLVED { "-".to_owned() } else { ratio(of[0]) }, interval]
}

fn word(conclusion: Conclusion, why: Option<Unclaimed>, [less, more]: [&'static str; 2]) -> &'static str {
    match conclusion {
        Conclusion::Faster => less,
        Conclusion::Slower => more,
        Conclusion::Failed => "failed",
        Conclusion::Invalid => "invalid",
        Conclusion::Unsupported => "unsupported",
        _ => match why {
            Some(Unclaimed::NoFigure) => "-",
            Some(Unclaimed::BelowFloor) => "below floor",
            Some(why) if why.is_alike() => "same",
            _ => "undecided",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Fixture;
    use super::super::{Diff, DiffSide, TextStyle};
    use super::*;
    use h2lab_analysis::stats::analyse;
    use h2lab_model::record::testing::{Model, cell, one_repetition, run};
    use h2lab_model::workload::Protocol;

    /// The texts of `diff` of a clean run and one that takes `factor` times as long.
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
            conditions: &[],
        };
        let sides = [report(&first, &analyses.0, "runs/a"), report(&second, &analyses.1, "runs/b")]
            .map(DiffSide::Run);
        let diff = Diff::new(&sides[0], &sides[1]);
        let json = serde_json::to_string(&diff.document()).unwrap();
        [diff.text(TextStyle::default()), diff.markdown(&[]), json]
    }

    #[test]
    fn every_form_says_once_that_there_is_a_difference_and_that_times_differ() {
        let [text, markdown, json] = rendered(1.5);
        for form in [&text, &markdown] {
            let flat = form.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(
                flat.contains("runs/b against runs/a: slower: p") && flat.contains(" 1.50 × ("),
                "{form}"
            );
            assert!(flat.contains("below 0.2 ms in time, is claimed"), "{form}");
            assert!(flat.contains("Two runs at different times"), "{form}");
            assert!(!flat.contains("none resolved") && !flat.contains("is real"), "{form}");
        }
        let line = text.lines().find(|line| line.contains("p50, ms")).unwrap();
        assert!(line.starts_with("h1") && line.contains("1.50") && line.ends_with("slower"), "{line}");
        let line = text.lines().find(|line| line.contains("served/s")).unwrap();
        assert!(line.ends_with("same"), "{line}");
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let cell = &json["cells"][0];
        assert_eq!((&cell["real"], &cell["median_verdict"]), (&true.into(), &"slower".into()));
        assert!(cell["median"]["low"].as_f64().unwrap() > 1.0);
    }

    #[test]
    fn alike_runs_have_no_difference_and_one_run_no_comparison() {
        let [text, _, json] = rendered(1.0);
        assert!(text.contains("runs/b against runs/a: no difference (no difference below 10 %"), "{text}");
        assert!(json.contains("\"real\":false"), "{json}");
        let fixture = Fixture::new();
        assert!(Compared::all(&[fixture.report()]).is_empty());
    }

    #[test]
    fn a_difference_below_the_floor_is_said_to_be_that_and_not_to_be_none() {
        let fixture = Fixture::new();
        let report = fixture.report();
        let mut compared = Compared::new(&report, &report);
        assert!(compared.statement().starts_with("no difference ("), "{}", compared.statement());
        let one = &mut compared.comparison.differences[0];
        one.unclaimed[0] = Some(Unclaimed::BelowFloor);
        let floor = format!("1 figure below the floor of {}", bound(one.floor));
        assert_eq!(rows(one, String::new())[0].last().unwrap(), "below floor");
        let said = compared.statement();
        assert!(said.starts_with("no difference was found, ") && said.contains(&floor), "{said}");
    }

    #[test]
    fn the_same_run_at_every_width_fits_and_names_what_is_left_out() {
        let fixture = Fixture::new();
        let sides = [DiffSide::Run(fixture.report()), DiffSide::Run(fixture.report())];
        for width in [40, 60, 80] {
            let text = Diff::new(&sides[0], &sides[1]).text(TextStyle { width, ..TextStyle::default() });
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= width, "{width}: {text}");
            assert!(text.contains("h2c × 16 at 3% loss"), "{text}");
        }
    }

    #[test]
    fn a_run_against_itself_shows_no_difference_and_leaves_nothing_undecided() {
        let fixture = Fixture::new();
        let sides = [DiffSide::Run(fixture.report()), DiffSide::Run(fixture.report())];
        let text = Diff::new(&sides[0], &sides[1]).text(TextStyle::default());
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(": no difference (") && flat.contains("1.00 to 1.00"), "{text}");
        assert!(!flat.contains("undecided") && flat.ends_with("Both are the same run."), "{text}");
    }

    #[test]
    fn what_a_json_file_calls_invalid_is_no_base_and_no_result() {
        let fixture = Fixture::new();
        let json = serde_json::to_string(&crate::document(&fixture.report())).unwrap();
        let invalid = json.replace("\"state\":\"ok\"", "\"state\":\"invalid\"");
        let invalid = invalid.replace("\"state\":\"unstable\"", "\"state\":\"invalid\"");
        assert_ne!(json, invalid);
        let read = |json: &str| DiffSide::Printed(super::super::PrintedRun::read("a", json).unwrap());
        let (sound, unsound) = (read(&json), read(&invalid));
        let both = Diff::new(&sound, &sound);
        assert!(both.is_sound() && !both.is_invalid());
        for (first, second) in [(&sound, &unsound), (&unsound, &sound)] {
            let diff = Diff::new(first, second);
            assert!(diff.is_invalid() && !diff.is_sound());
            assert!(diff.text(TextStyle::default()).contains("invalid"));
        }
    }

    #[test]
    fn the_statement_on_json_files_has_a_figure_of_the_table_and_none_of_an_invalid_cell() {
        let fixture = Fixture::new();
        let json = serde_json::to_value(crate::document(&fixture.report())).unwrap();
        // 3,000 requests have a p95, 5,000 have a p99.
        let text = |n: u64, state: &str| {
            let mut of = json.clone();
            for cell in of["cells"].as_array_mut().unwrap() {
                cell["latency_us"]["response"]["n"] = n.into();
                cell["state"] = state.into();
            }
            let read = |name| super::super::PrintedRun::read(name, &of.to_string()).unwrap();
            let sides = [DiffSide::Printed(read("a")), DiffSide::Printed(read("b"))];
            Diff::new(&sides[0], &sides[1]).text(TextStyle::default())
        };
        for (n, tail, other) in [(4_999, "p95", "p99"), (5_000, "p99", "p95")] {
            let text = text(n, "ok");
            assert!(text.lines().next().unwrap().contains(&format!("pairs of cells: {tail} of ")), "{text}");
            assert!(text.contains(&format!("{tail}, ms")) && !text.contains(other), "{text}");
        }
        let invalid = text(5_000, "invalid");
        assert!(invalid.contains("pairs of cells. Whether"), "{invalid}");
    }

    #[test]
    fn other_commands_and_targets_are_named_also_where_only_json_is_left() {
        let fixture = Fixture::new();
        let mut other = fixture.run.clone();
        other.command[1] = "load".to_owned();
        let of_load = Report { run: &other, ..fixture.report() };
        let sides = [DiffSide::Run(fixture.report()), DiffSide::Run(of_load)];
        let named = "One is of `h2lab compare`, the other of `h2lab load`.";
        assert!(Diff::new(&sides[0], &sides[1]).text(TextStyle::default()).contains(named));
        let json = serde_json::to_string(&crate::document(&fixture.report())).unwrap();
        let there = json.replace("\"target\":\"origin\"", "\"target\":\"http://b/\"");
        assert_ne!(json, there);
        let [a, b] = [("a", json), ("b", there)]
            .map(|(name, json)| DiffSide::Printed(super::super::PrintedRun::read(name, &json).unwrap()));
        let text = Diff::new(&a, &b).text(TextStyle::default());
        assert!(text.contains("the two differ in target (origin; http://b/)."), "{text}");
    }
}

//! `diff`: what changed from one run, or one document of `--json`, to another.

use std::fmt::Write;

use super::document::{
    CellDocument, Document, LoadDocument, RunsComparisonDocument, figure_pairs, run_comparison,
};
use super::format::{number, plural, ratio};
use super::markdown::{self, escaped};
use super::runs::{self, Compared};
use super::sentences::lower_first;
use super::style::{Paint, TextStyle, painted, paragraph};
use super::table::Column;
use super::{Condition, Report, condition, fold};
use h2lab_analysis::stats::{CellFigures, Conclusion, Tail};
use h2lab_base::units::Ratio;
use serde::Deserialize;

/// One of the two sides.
#[derive(Debug, Clone)]
pub enum DiffSide<'a> {
    /// A run with all of its requests.
    Run(Report<'a>),
    /// What `--json` printed: figures without the requests behind them.
    Printed(PrintedRun),
}

/// A document of `--json`.
#[derive(Debug, Clone)]
pub struct PrintedRun {
    /// The file's name.
    pub name: String,
    command: Vec<String>,
    cells: Vec<CellDocument>,
}

/// What `diagnose --json` prints, as far as it is about a run.
#[derive(Deserialize)]
struct Measured {
    run: Document,
}

/// Why a file is no document of one run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrintedError {
    /// It is none of `compare`, `run`, `report`, `load` or `diagnose`.
    #[error(
        "is neither a run folder nor --json output of `compare`, `run`, `load`, `diagnose` or `report`: {0}"
    )]
    Unknown(String),
}

impl PrintedRun {
    /// Reads the document of a run, or of a load.
    pub fn read(name: &str, json: &str) -> Result<Self, PrintedError> {
        let of_run =
            serde_json::from_str::<Document>(json).map(|document| (document.command, document.cells));
        let of_load = || {
            serde_json::from_str::<LoadDocument>(json).map(|document| (document.command, vec![document.cell]))
        };
        // A diagnosis has the document of its run in it.
        let of_diagnosis =
            || serde_json::from_str::<Measured>(json).map(|Measured { run }| (run.command, run.cells));
        // The first error is about the form that most files have.
        let (command, cells) = of_run.or_else(|error| {
            of_load().or_else(|_| of_diagnosis()).map_err(|_| PrintedError::Unknown(error.to_string()))
        })?;
        Ok(Self { name: name.to_owned(), command, cells })
    }

    /// What distinguishes a cell's condition from the others: `at 3% loss`; nothing if there are no others.
    fn place(&self, cell: &CellDocument) -> Option<String> {
        let link = cell.link.as_ref()?;
        let links = || self.cells.iter().filter_map(|cell| cell.link.as_ref());
        let mut words = Vec::new();
        if links().any(|other| (other.rtt_ms - link.rtt_ms).abs() > f64::EPSILON) {
            words.push(format!("RTT {}ms", number(link.rtt_ms)));
        }
        if links().any(|other| (other.loss - link.loss).abs() > f64::EPSILON) {
            let share = Ratio::new(link.loss).filter(|_| link.loss > 0.0);
            words.push(share.map_or_else(|| "no loss".to_owned(), |share| format!("{share} loss")));
        }
        match words.join(", ").as_str() {
            "" => None,
            "no loss" => Some("without loss".to_owned()),
            words => Some(format!("at {words}")),
        }
    }
}

impl DiffSide<'_> {
    fn name(&self) -> &str {
        match self {
            Self::Run(report) => report.name(),
            Self::Printed(printed) => &printed.name,
        }
    }

    /// The subcommand that measured it.
    fn subcommand(&self) -> &str {
        let command = match self {
            Self::Run(report) => &report.run.command,
            Self::Printed(printed) => &printed.command,
        };
        command.get(1).map_or("", String::as_str)
    }

    /// Each cell: its label, its name with its condition, its figures, and which percentile its tail has enough requests for.
    fn cells(&self) -> Vec<SideCell> {
        match self {
            Self::Run(report) => {
                let groups = report.analysis.groups();
                let of_group = |group: &Vec<&h2lab_analysis::stats::CellSummary>| -> Vec<SideCell> {
                    let at = condition::beginning(report, group).map(|at| lower_first(&at));
                    let cell = |summary: &&h2lab_analysis::stats::CellSummary| {
                        let cell = &summary.cell;
                        let target = cell.target.name().to_owned();
                        let about = [target, cell.protocol.to_string(), cell.connections.to_string()];
                        SideCell::new(CellFigures::of(summary), at.clone(), summary.response.tail(), about)
                    };
                    group.iter().map(cell).collect()
                };
                groups.iter().flat_map(of_group).collect()
            }
            Self::Printed(printed) => {
                let cell = |cell: &CellDocument| {
                    let n = cell.latency_us.response.map_or(0, |response| response.n);
                    let tail = if n / 100 >= Tail::NEEDED_ABOVE { Tail::P99 } else { Tail::P95 };
                    let about =
                        [cell.target.clone(), cell.protocol.to_string(), cell.connections.to_string()];
                    let state = cell.state.clone();
                    SideCell { state, ..SideCell::new(figures(cell), printed.place(cell), tail, about) }
                };
                printed.cells.iter().map(cell).collect()
            }
        }
    }
}

/// The figures of a printed cell. Those of a state that forbids them are infinite, as elsewhere.
fn figures(cell: &CellDocument) -> CellFigures {
    let requests = &cell.requests;
    let without = match cell.state.as_str() {
        _ if requests.sent == 0 => Some("was not measured"),
        "unstable" => Some("does not carry the load"),
        _ if requests.succeeded == 0 => Some("has no successful response"),
        _ => None,
    };
    let ms = |micros: f64| if without.is_some() { f64::INFINITY } else { micros / 1e3 };
    let times = cell
        .latency_us
        .response
        .map_or([f64::INFINITY; 7], |of| [of.p50, of.p90, of.p95, of.p99, of.p999, of.max, of.mean].map(ms));
    let [p50, p90, p95, p99, p999, max, mean] = times;
    // The document has no such figure; where there are no times at all, it is as infinite as the others.
    let p9999 = if p999.is_finite() { f64::NAN } else { p999 };
    let errors = if requests.sent == 0 {
        1.0
    } else {
        (requests.failed + requests.unfinished) as f64 / requests.sent as f64
    };
    CellFigures {
        label: cell.label.clone(),
        protocol: cell.protocol.name().to_owned(),
        without: without.map(str::to_owned),
        requests: cell.latency_us.response.map_or(0, |of| of.n),
        values: [p50, p90, p95, p99, p999, p9999, max, mean, errors, cell.throughput_rps],
    }
}

/// A cell of one side.
#[derive(Debug, Clone)]
struct SideCell {
    figures: CellFigures,
    /// `h2c × 1 at 3% loss`.
    name: String,
    tail: Tail,
    /// Its values of [`ABOUT`].
    about: [String; 3],
    /// The state that a printed cell names; for a run the comparison has it.
    state: String,
}

/// What a cell must have in common with another one for a difference to be one of speed.
const ABOUT: [&str; 3] = ["target", "protocol", "connections"];

impl SideCell {
    fn new(figures: CellFigures, at: Option<String>, tail: Tail, about: [String; 3]) -> Self {
        let name = at.map_or_else(|| figures.label.clone(), |at| format!("{} {at}", figures.label));
        Self { figures, name, tail, about, state: String::new() }
    }

    /// Whether its state says that it was not measured soundly, or failed.
    fn is_void(&self) -> bool {
        matches!(&*self.state, "invalid" | "failed" | "unsupported")
    }
}

/// One side against the other.
pub struct Diff<'a> {
    first: &'a DiffSide<'a>,
    second: &'a DiffSide<'a>,
    /// The cells that correspond.
    pairs: Vec<(SideCell, SideCell)>,
    /// With intervals, where both are runs.
    compared: Option<Compared<'a>>,
}

impl<'a> Diff<'a> {
    /// `second` against `first`. Cells correspond as those of two runs do.
    pub fn new(first: &'a DiffSide<'a>, second: &'a DiffSide<'a>) -> Self {
        let (mut bases, cells) = (first.cells(), second.cells());
        let is_pair = bases.len() == 1 && cells.len() == 1;
        let mut pairs = Vec::new();
        for cell in cells {
            let place = bases.iter().position(|base| is_pair || base.figures.label == cell.figures.label);
            if let Some(place) = place {
                pairs.push((bases.remove(place), cell));
            }
        }
        let compared = match (first, second) {
            (DiffSide::Run(first), DiffSide::Run(second)) => Some(Compared::new(first, second)),
            _ => None,
        };
        Self { first, second, pairs, compared }
    }

    /// The figures of cells that correspond, first and then: what a condition compares. Each has its name in the second
    /// one.
    pub fn pairs(&self) -> Vec<(CellFigures, CellFigures)> {
        self.pairs.iter().map(|(base, cell)| (base.figures.clone(), cell.figures.clone())).collect()
    }

    /// Whether there is a pair of which both were measured soundly, as far as that is known.
    pub fn is_sound(&self) -> bool {
        match &self.compared {
            None => self.pairs.iter().any(|(base, cell)| [base, cell].iter().all(|side| !side.is_void())),
            Some(compared) => {
                let differences = &compared.comparison.differences;
                differences.iter().any(|difference| {
                    difference.conclusions[0].claims_a_difference() || difference.unclaimed[0].is_some()
                })
            }
        }
    }

    /// Whether every pair was measured unsoundly on a side: its figures say nothing.
    pub fn is_invalid(&self) -> bool {
        let Some(compared) = &self.compared else {
            let is_invalid =
                |(base, cell): &(SideCell, SideCell)| [base, cell].iter().any(|side| side.state == "invalid");
            return !self.pairs.is_empty() && self.pairs.iter().all(is_invalid);
        };
        let differences = &compared.comparison.differences;
        !differences.is_empty()
            && differences.iter().all(|difference| difference.conclusions[0] == Conclusion::Invalid)
    }

    /// The one statement: what is compared, and what the difference is.
    fn statement(&self) -> String {
        if let Some(compared) = &self.compared {
            return compared.heading();
        }
        let head = format!("{} against {}", self.second.name(), self.first.name());
        if self.pairs.is_empty() {
            return format!("{head}: no cell of one corresponds to a cell of the other");
        }
        let ratios = self.pairs.iter().filter(|(base, cell)| !base.is_void() && !cell.is_void());
        let ratios = ratios.filter_map(|(base, cell)| {
            let tail = base.tail.min(cell.tail).name();
            let ratio = cell.figures.value(tail)? / base.figures.value(tail)?;
            (ratio.is_finite() && ratio > 0.0).then_some((ratio, tail, cell))
        });
        let most = ratios.max_by(|(a, ..), (b, ..)| a.ln().abs().total_cmp(&b.ln().abs()));
        let most = most.map_or(String::new(), |(of, tail, cell)| {
            let place = if self.pairs.len() == 1 { String::new() } else { format!(" of {}", cell.name) };
            format!(": {tail}{place} is {} ×", ratio(of))
        });
        let pairs = plural(self.pairs.len() as u64, "pair");
        format!(
            "{head}, {pairs} of cells{most}. Whether that is a difference cannot be told from files of --json, which \
             hold no single requests: compare the run folders"
        )
    }

    fn rows(&self) -> Vec<Vec<String>> {
        if let Some(compared) = &self.compared {
            return compared.rows();
        }
        let of = |(base, cell): &(SideCell, SideCell)| {
            let tail = base.tail.min(cell.tail).name();
            let figures = [
                ("p50", "p50, ms".to_owned()),
                (tail, format!("{tail}, ms")),
                ("throughput", "served/s".to_owned()),
            ];
            let row = |(k, (figure, title)): (usize, (&str, String))| {
                let value = |of: &SideCell| of.figures.value(figure).filter(|value| value.is_finite());
                let (first, then) = (value(base), value(cell));
                let of = first
                    .zip(then)
                    .filter(|(first, _)| *first > 0.0)
                    .map(|(first, then)| ratio(then / first));
                let shown = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
                let name = if k == 0 { cell.name.clone() } else { String::new() };
                let void = |of: &SideCell| of.is_void().then(|| of.state.clone());
                let state = |of: &SideCell| of.figures.without.clone().or_else(|| void(of));
                let word = state(cell).or_else(|| state(base)).unwrap_or_default();
                vec![
                    name,
                    title,
                    shown(first),
                    shown(then),
                    of.unwrap_or_else(|| "-".to_owned()),
                    String::new(),
                    word,
                ]
            };
            figures.into_iter().enumerate().map(row).collect::<Vec<_>>()
        };
        self.pairs.iter().flat_map(of).collect()
    }

    fn doubts(&self) -> Vec<String> {
        let mut doubts: Vec<String> = self.commands().into_iter().collect();
        if let Some(compared) = &self.compared {
            doubts.extend(compared.doubts());
            return doubts;
        }
        doubts.extend(self.pairs.iter().filter_map(|(base, cell)| {
            let values = ABOUT.iter().zip(base.about.iter().zip(&cell.about));
            let other = values.filter(|(_, (one, other))| one != other);
            let what: Vec<String> =
                other.map(|(what, (one, other))| format!("{what} ({one}; {other})")).collect();
            (!what.is_empty()).then(|| format!("{}: the two differ in {}.", cell.name, what.join(", ")))
        }));
        let called =
            |side: &DiffSide<'_>| -> Vec<String> { side.cells().into_iter().map(|cell| cell.name).collect() };
        let pairs: (Vec<&str>, Vec<&str>) =
            self.pairs.iter().map(|(base, cell)| (base.name.as_str(), cell.name.as_str())).unzip();
        let only = |side: &DiffSide<'_>, known: &[&str]| {
            let rest: Vec<String> =
                called(side).into_iter().filter(|name| !known.contains(&name.as_str())).collect();
            (!rest.is_empty()).then(|| format!("Only in {}: {}.", side.name(), rest.join(", ")))
        };
        doubts.extend([only(self.first, &pairs.0), only(self.second, &pairs.1)].into_iter().flatten());
        doubts
    }

    /// That different commands measured the two, if so.
    fn commands(&self) -> Option<String> {
        let [one, other] = [self.first, self.second].map(DiffSide::subcommand);
        (one != other).then(|| format!("One is of `h2lab {one}`, the other of `h2lab {other}`."))
    }

    /// For a terminal.
    pub fn text(&self, style: TextStyle) -> String {
        let mut out = String::new();
        painted(&mut out, style, Paint::Bold, "", &format!("{}.", self.statement()));
        let rows = self.rows();
        if !rows.is_empty() {
            out.push('\n');
            Self::table(&mut out, &rows, style);
            out.push('\n');
        }
        for doubt in self.doubts() {
            paragraph(&mut out, style, "- ", &doubt);
        }
        style.printable(out)
    }

    /// Under the name of each cell a line for each figure: names may be long.
    fn table(out: &mut String, rows: &[Vec<String>], style: TextStyle) {
        const LONGEST_NAME: usize = 20;
        let has_own_line = rows.iter().any(|row| row[0].chars().count() > LONGEST_NAME);
        let mut shown = rows.to_vec();
        if has_own_line {
            for row in &mut shown {
                row[0] = String::new();
            }
        }
        let table = fold::fold(&runs::COLUMNS, &shown, style);
        for line in &table.header {
            let _ = writeln!(out, "{}", style.paint(Paint::Dim, line));
        }
        for (line, row) in table.rows.iter().zip(rows) {
            if has_own_line && !row[0].is_empty() {
                paragraph(out, style, "", &row[0]);
            }
            let word = row.last().map_or("", String::as_str);
            let paint = match word {
                "slower" | "less" => Some(Paint::Red),
                "faster" | "more" => Some(Paint::Green),
                _ => None,
            };
            let line = match (paint, line.strip_suffix(word)) {
                (Some(paint), Some(rest)) => format!("{rest}{}", style.paint(paint, word)),
                _ => line.clone(),
            };
            let _ = writeln!(out, "{line}");
        }
        if let Some(note) = &table.note {
            painted(out, style, Paint::Dim, "", note);
        }
    }

    /// As Markdown, with what conditions say.
    pub fn markdown(&self, conditions: &[Condition]) -> String {
        let mut out = format!("# {}\n\n", escaped(&self.statement()));
        let titles: Vec<String> =
            runs::COLUMNS.iter().map(|column: &Column| column.title.to_owned()).collect();
        let sides: Vec<bool> = runs::COLUMNS.iter().map(|column| column.left).collect();
        markdown::table(&mut out, &titles, &sides, &self.rows());
        markdown::conditions(&mut out, conditions);
        out.push('\n');
        for doubt in self.doubts() {
            let _ = writeln!(out, "- {}", escaped(&doubt));
        }
        out
    }

    /// As a document.
    pub fn document(&self) -> RunsComparisonDocument {
        match &self.compared {
            Some(compared) => {
                RunsComparisonDocument { figures: figure_pairs(&self.pairs()), ..run_comparison(compared) }
            }
            None => RunsComparisonDocument {
                first: self.first.name().to_owned(),
                second: self.second.name().to_owned(),
                statement: self.statement(),
                cells: Vec::new(),
                figures: figure_pairs(&self.pairs()),
                only_first: Vec::new(),
                only_second: Vec::new(),
                warnings: self.doubts(),
            },
        }
    }
}

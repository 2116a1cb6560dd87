//! Verdicts as a table: a row for each condition, a column for each configuration that is compared. All forms of a report have it.

use std::fmt::Write;

use super::format::{NOT_RESOLVED, interval_of, millis_unit, rate, ratio};
use super::style::{Paint, TextStyle, painted, paragraph};
use super::table::{self, Column};
use super::{Report, condition, fold, sentences};
use h2lab_analysis::stats::{CellState, CellSummary, CellVerdict, Conclusion, Unclaimed};

/// All verdicts of a run.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub(super) struct VerdictMatrix {
    /// The configurations, as their cells are labelled: `h2c × 1`. One for each field of a row.
    pub columns: Vec<String>,
    /// A row for each group of cells, in the order of the plan.
    pub rows: Vec<MatrixRow>,
}

/// The verdicts under one condition.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub(super) struct MatrixRow {
    /// The group.
    pub group: u32,
    /// What distinguishes it from the others, `3% loss`; its heading if there are no others.
    pub condition: String,
    /// The label of the cell that the others are compared with: `h1`.
    pub baseline: String,
    /// Its tail or its state: `p99 25.5 ms`, `unstable`.
    pub baseline_figure: String,
    /// The verdicts; `None` where the condition has no such cell.
    pub fields: Vec<Option<MatrixField>>,
}

/// One verdict.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub(super) struct MatrixField {
    /// The cell's index in the plan.
    pub cell: u32,
    /// What it comes to.
    pub mark: Mark,
    /// The same in words that need no colour: `slower`, `unstable`, `h1 unstable`.
    pub word: String,
    /// The ratio of the tails, `1.83 ×`; of an unstable cell what it served: `290 of 1,000/s`. Empty if it has neither.
    pub figure: String,
    /// The 95 % interval of the ratio: `0.89–2.46`. Empty without a ratio.
    pub interval: String,
    /// The ratio and the ends of its interval; `None` where a state forbids it.
    pub ratio: Option<[f64; 3]>,
    /// The label of what it is compared with, where that is not the row's baseline.
    pub against: Option<String>,
    /// The verdict in full.
    pub sentence: String,
}

/// What a verdict comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Mark {
    /// Its tail is faster.
    Faster,
    /// Its tail is slower.
    Slower,
    /// It does not carry the load, the baseline does.
    Unstable,
    /// It carries the load, the baseline does not.
    BaselineUnstable,
    /// Neither carries the load.
    BothUnstable,
    /// The tails are alike.
    NoDifference,
    /// A difference may be there, and was not resolved.
    Undecided,
    /// Not measured, not soundly, or nothing was answered.
    Invalid,
}

impl Mark {
    fn of(verdict: &CellVerdict) -> Self {
        match verdict.conclusion {
            Conclusion::Faster => Self::Faster,
            Conclusion::Slower => Self::Slower,
            Conclusion::Unstable { .. } => Self::Unstable,
            Conclusion::BaselineUnstable { .. } => Self::BaselineUnstable,
            Conclusion::BothUnstable => Self::BothUnstable,
            Conclusion::UnlikeMachines => Self::Undecided,
            Conclusion::Failed | Conclusion::Invalid | Conclusion::Unsupported => Self::Invalid,
            Conclusion::NoDifference => match verdict.unclaimed() {
                Some(why) if why.is_alike() => Self::NoDifference,
                _ => Self::Undecided,
            },
        }
    }

    /// Whether HTTP/2 (what is compared) is the better one (`Some(true)`), the worse one, or neither.
    pub const fn is_better(self) -> Option<bool> {
        match self {
            Self::Faster | Self::BaselineUnstable => Some(true),
            Self::Slower | Self::Unstable => Some(false),
            Self::BothUnstable | Self::NoDifference | Self::Undecided | Self::Invalid => None,
        }
    }
}

/// The matrix of a run; `None` if it has no verdict.
pub(super) fn of(report: &Report<'_>) -> Option<VerdictMatrix> {
    let verdicts = &report.analysis.verdicts;
    let label = |index: u32| report.analysis.cell(index).map_or("", |summary| summary.label.as_str());
    let mut columns: Vec<String> = Vec::new();
    for verdict in verdicts {
        let label = label(verdict.cell);
        if !columns.iter().any(|column| column == label) {
            columns.push(label.to_owned());
        }
    }
    let rows = report.analysis.groups().into_iter().filter_map(|group| row(report, &group, &columns));
    let rows: Vec<MatrixRow> = rows.collect();
    (!rows.is_empty()).then_some(VerdictMatrix { columns, rows })
}

fn row(report: &Report<'_>, group: &[&CellSummary], columns: &[String]) -> Option<MatrixRow> {
    let index = group.first()?.cell.group;
    let verdicts: Vec<&CellVerdict> =
        report.analysis.verdicts.iter().filter(|verdict| verdict.group == index).collect();
    let baseline = report.analysis.cell(verdicts.first()?.baseline)?;
    let field = |column: &String| {
        let is_its = |verdict: &&&CellVerdict| {
            report.analysis.cell(verdict.cell).is_some_and(|summary| summary.label == *column)
        };
        verdicts.iter().find(is_its).map(|verdict| field(report, verdict, baseline))
    };
    Some(MatrixRow {
        group: index,
        condition: condition::distinction(report, group).unwrap_or_else(|| condition::heading(report, group)),
        baseline: baseline.label.clone(),
        baseline_figure: baseline_figure(baseline),
        fields: columns.iter().map(field).collect(),
    })
}

/// The tail of the row's baseline, or its state in a word.
fn baseline_figure(baseline: &CellSummary) -> String {
    let tail = baseline.response.tail();
    match &baseline.state {
        CellState::Ok if baseline.requests.succeeded == 0 => "no answer".to_owned(),
        CellState::Ok => {
            format!("{} {}", tail.name(), millis_unit(baseline.response.quantile(tail.share())))
        }
        state => state.name().to_owned(),
    }
}

fn field(report: &Report<'_>, verdict: &CellVerdict, baseline: &CellSummary) -> MatrixField {
    let mark = Mark::of(verdict);
    let against =
        report.analysis.cell(verdict.baseline).filter(|other| other.cell.index != baseline.cell.index);
    let compared = against.unwrap_or(baseline);
    let served = |served: f64, offered: f64| format!("{} of {}/s", rate(served), rate(offered));
    let of_tail = verdict.tail_ratio.filter(|_| mark != Mark::Invalid);
    let interval = of_tail.and_then(|tail| interval_of([tail.ratio, tail.low, tail.high], "–"));
    MatrixField {
        cell: verdict.cell,
        mark,
        word: word(report, verdict, mark, compared),
        figure: match (verdict.conclusion, of_tail) {
            (
                Conclusion::Unstable { offered_rps, served_rps }
                | Conclusion::BaselineUnstable { offered_rps, served_rps },
                _,
            ) => served(served_rps, offered_rps),
            (_, Some(_)) if interval.is_none() => NOT_RESOLVED.to_owned(),
            (_, Some(tail)) => format!("{} ×", ratio(tail.ratio)),
            _ => String::new(),
        },
        ratio: of_tail.filter(|_| interval.is_some()).map(|tail| [tail.ratio, tail.low, tail.high]),
        interval: interval.unwrap_or_default(),
        against: against.map(|other| other.label.clone()),
        sentence: sentences::verdict(report, verdict),
    }
}

fn word(report: &Report<'_>, verdict: &CellVerdict, mark: Mark, baseline: &CellSummary) -> String {
    let own = report.analysis.cell(verdict.cell);
    match mark {
        Mark::Faster => "faster".to_owned(),
        Mark::Slower => "slower".to_owned(),
        Mark::Unstable => "unstable".to_owned(),
        Mark::BaselineUnstable => format!("{} unstable", baseline.label),
        Mark::BothUnstable => "both unstable".to_owned(),
        Mark::NoDifference if verdict.unclaimed() == Some(Unclaimed::BelowFloor) => "below floor".to_owned(),
        Mark::NoDifference => "same".to_owned(),
        Mark::Undecided if verdict.conclusion == Conclusion::UnlikeMachines => "unlike machines".to_owned(),
        Mark::Undecided => "undecided".to_owned(),
        // The state that forbids a verdict, of whichever has it.
        Mark::Invalid => {
            let state = |summary: &CellSummary| match &summary.state {
                CellState::Ok | CellState::Unstable { .. } => None,
                state => Some(state.name()),
            };
            own.and_then(state).or_else(|| state(baseline)).unwrap_or("no answer").to_owned()
        }
    }
}

/// A condition that is longer has a line of its own, so that the verdicts stay in their columns.
const LONGEST_CONDITION: usize = 16;

/// Appends the matrix, and how verdicts came about, to a report for a terminal.
pub(super) fn text(out: &mut String, report: &Report<'_>, style: TextStyle) {
    let Some(matrix) = of(report) else { return };
    out.push('\n');
    painted(out, style, Paint::Bold, "", &matrix.title());
    let is_cut = if style.is_narrow() {
        blocks(out, &matrix, style);
        false
    } else {
        in_columns(out, &matrix, style)
    };
    for note in matrix.notes() {
        paragraph(out, style, "", &note);
    }
    if style.verdicts || is_cut {
        for field in matrix.rows.iter().flat_map(|row| row.fields.iter().flatten()) {
            match field.mark.paint() {
                Some(paint) => painted(out, style, paint, "- ", &field.sentence),
                None => paragraph(out, style, "- ", &field.sentence),
            }
        }
    }
    for note in [sentences::how_sure(report), sentences::missing_tails(report)].into_iter().flatten() {
        paragraph(out, style, "", &note);
    }
}

/// A block of lines for each condition.
fn blocks(out: &mut String, matrix: &VerdictMatrix, style: TextStyle) {
    for row in &matrix.rows {
        let figures = matrix.columns.iter().zip(&row.fields).filter_map(|(column, field)| {
            let field = field.as_ref()?;
            let (first, second) = (field.first(), field.second());
            let second = if field.ratio.is_some() { format!("({second})") } else { second };
            Some(format!("{column}: {first} {second}"))
        });
        let baseline = format!("{}: {}", row.baseline, row.baseline_figure);
        *out += &fold::block(&row.condition, std::iter::once(baseline).chain(figures), style);
        out.push('\n');
    }
}

/// The matrix in columns; whether a field of it is cut.
fn in_columns(out: &mut String, matrix: &VerdictMatrix, style: TextStyle) -> bool {
    let longest = matrix.rows.iter().map(|row| row.condition.chars().count()).max().unwrap_or(0);
    let has_own_line = longest > LONGEST_CONDITION;
    let table = matrix.table(has_own_line);
    let columns: Vec<Column> = matrix.titles().iter().map(|_| table::name("")).collect();
    let parts = table::parts(&columns, &table, style.limit());
    // A field that is wider than the terminal is not in the table.
    let is_cut = parts.iter().any(|part| {
        let rows: Vec<Vec<String>> = table.iter().map(|row| table::picked(row, part)).collect();
        table::left_out(&table::picked(&columns, part), &rows, style.limit()).is_some()
    });
    for part in parts {
        let rows: Vec<Vec<String>> = table.iter().map(|row| table::picked(row, &part)).collect();
        let lines = table::lay_out(&table::picked(&columns, &part), &rows, style.limit());
        let _ = writeln!(out, "{}", style.paint(Paint::Dim, &lines[2]));
        for ((lines, rows), row) in lines[3..].chunks(2).zip(rows[1..].chunks(2)).zip(&matrix.rows) {
            if has_own_line {
                painted(out, style, Paint::Dim, "", &row.condition);
            }
            let marks = part.iter().map(|&place| row.mark(place));
            let _ = writeln!(out, "{}", coloured(&lines[0], &rows[0], marks, style));
            if !lines[1].is_empty() {
                let _ = writeln!(out, "{}", lines[1]);
            }
        }
    }
    is_cut
}

/// A line with its verdicts in colour: the fields stand in it one after the other.
fn coloured(
    line: &str,
    fields: &[String],
    marks: impl Iterator<Item = Option<Mark>>,
    style: TextStyle,
) -> String {
    let (mut out, mut rest) = (String::new(), line);
    for (field, mark) in fields.iter().zip(marks) {
        let Some((before, after)) = rest.split_once(field.as_str()).filter(|_| !field.is_empty()) else {
            continue;
        };
        out += before;
        out += &mark.and_then(Mark::paint).map_or_else(|| field.clone(), |paint| style.paint(paint, field));
        rest = after;
    }
    out + rest
}

impl VerdictMatrix {
    /// The title: what the fields have.
    pub fn title(&self) -> String {
        let mut baselines: Vec<&str> = self.rows.iter().map(|row| row.baseline.as_str()).collect();
        baselines.sort_unstable();
        baselines.dedup();
        match baselines.as_slice() {
            [one] => format!("Verdicts: ratio of the tails to {one}, and its 95 % interval"),
            _ => "Verdicts: ratio of the tails, and its 95 % interval".to_owned(),
        }
    }

    /// The titles of the columns: condition, baseline, and what is compared with it.
    pub fn titles(&self) -> Vec<String> {
        let first = self.rows.first().map_or("", |row| row.baseline.as_str());
        let is_same = self.rows.iter().all(|row| row.baseline == first);
        let baseline = if is_same { first } else { "compared with" };
        ["", baseline].into_iter().map(str::to_owned).chain(self.columns.iter().cloned()).collect()
    }

    /// The titles, then two rows for each condition: verdicts, and intervals or what was served.
    fn table(&self, has_own_line: bool) -> Vec<Vec<String>> {
        let is_named = self.titles()[1] != self.rows.first().map_or("", |row| row.baseline.as_str());
        let mut table = vec![self.titles()];
        for row in &self.rows {
            let condition = if has_own_line { String::new() } else { row.condition.clone() };
            let beneath = if is_named { row.baseline.clone() } else { String::new() };
            let fields = row.fields.iter();
            let firsts =
                fields.clone().map(|field| field.as_ref().map_or("-".to_owned(), MatrixField::first));
            let seconds = fields.map(|field| field.as_ref().map_or(String::new(), MatrixField::second));
            table.push([condition, row.baseline_figure.clone()].into_iter().chain(firsts).collect());
            table.push([String::new(), beneath].into_iter().chain(seconds).collect());
        }
        table
    }

    /// What is compared with something else than the row's baseline.
    pub fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = Vec::new();
        for row in &self.rows {
            for (column, field) in self.columns.iter().zip(&row.fields) {
                let Some(against) = field.as_ref().and_then(|field| field.against.as_ref()) else { continue };
                let note = format!("{column} is compared with {against}.");
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
        }
        notes
    }
}

impl MatrixRow {
    /// The mark of the column at this place of [`VerdictMatrix::titles`].
    fn mark(&self, place: usize) -> Option<Mark> {
        self.fields.get(place.checked_sub(2)?)?.as_ref().map(|field| field.mark)
    }
}

impl MatrixField {
    /// `slower 1.83 ×`, `unstable`.
    pub fn first(&self) -> String {
        match self.ratio {
            Some(_) => format!("{} {}", self.word, self.figure),
            None => self.word.clone(),
        }
    }

    /// `0.89–2.46`; of an unstable cell `290 of 1,000/s`.
    pub fn second(&self) -> String {
        match self.ratio {
            Some(_) => self.interval.clone(),
            None => self.figure.clone(),
        }
    }
}

impl Mark {
    /// The colour beside the word.
    const fn paint(self) -> Option<Paint> {
        match self.is_better() {
            Some(true) => Some(Paint::Green),
            Some(false) => Some(Paint::Red),
            None if matches!(self, Self::NoDifference) => None,
            None => Some(Paint::Yellow),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Fixture;
    use super::*;

    #[test]
    fn every_verdict_is_a_field_under_its_condition_and_way() {
        let fixture = Fixture::new();
        let matrix = of(&fixture.report()).expect("it has verdicts");
        assert_eq!(matrix.columns, ["h2c × 1", "h2c × 4", "h2c × 16"]);
        let rows: Vec<(&str, Vec<String>)> = matrix
            .rows
            .iter()
            .map(|row| {
                (row.condition.as_str(), row.fields.iter().flatten().map(MatrixField::first).collect())
            })
            .collect();
        let same = ["same 1.00 ×"; 3].map(str::to_owned).to_vec();
        let lossy = ["unstable", "unstable", "undecided 1.83 ×"].map(str::to_owned).to_vec();
        assert_eq!(rows, [("no loss", same), ("3% loss", lossy)]);
        let field = matrix.rows[1].fields[0].as_ref().unwrap();
        assert_eq!((field.mark, field.second().as_str()), (Mark::Unstable, "290 of 1,000/s"));
        assert_eq!(matrix.rows[1].fields[2].as_ref().unwrap().interval, "0.89–2.46");
    }

    #[test]
    fn every_mark_has_a_word_of_its_own_so_that_no_colour_is_needed() {
        let mut fixture = Fixture::new();
        let load = (1000.0, 300.0);
        let conclusions = [
            Conclusion::Faster,
            Conclusion::Slower,
            Conclusion::Unstable { offered_rps: load.0, served_rps: load.1 },
            Conclusion::BaselineUnstable { offered_rps: load.0, served_rps: load.1 },
            Conclusion::BothUnstable,
            Conclusion::Failed,
        ];
        for (verdict, conclusion) in fixture.analysis.verdicts.iter_mut().zip(conclusions) {
            verdict.conclusion = conclusion;
        }
        let matrix = of(&fixture.report()).unwrap();
        let fields: Vec<&MatrixField> =
            matrix.rows.iter().flat_map(|row| row.fields.iter().flatten()).collect();
        let words: Vec<&str> = fields.iter().map(|field| field.word.as_str()).collect();
        assert_eq!(words, ["faster", "slower", "unstable", "h1 unstable", "both unstable", "no answer"]);
        assert!(fields[5].ratio.is_none() && fields[5].mark == Mark::Invalid, "its ratio is no verdict");
    }

    #[test]
    fn the_matrix_fits_narrow_terminals_and_loses_no_way() {
        let fixture = Fixture::study();
        for width in [60, 80, 100] {
            let mut out = String::new();
            text(&mut out, &fixture.report(), TextStyle { width, ..TextStyle::default() });
            let widest = out.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= width, "{width}: {out}");
            for way in ["h2c × 1", "h2c × 4", "h2c × 16"] {
                assert!(out.contains(way), "{width}: {way}");
            }
        }
    }

    #[test]
    fn on_a_narrow_terminal_each_condition_has_a_block_with_every_verdict() {
        let shown_at = |width| {
            let mut out = String::new();
            text(&mut out, &Fixture::new().report(), TextStyle { width, ..TextStyle::default() });
            out
        };
        let narrow = shown_at(40);
        assert!(narrow.lines().all(|line| line.chars().count() <= 40), "{narrow}");
        let block = "\n3% loss\n  h1: p99 276 ms\n  h2c × 1: unstable 290 of 1,000/s\n  \
                     h2c × 4: unstable 916 of 1,000/s\n  h2c × 16: undecided 1.83 × (0.89–2.46)\n";
        assert!(narrow.contains(block), "{narrow}");
        let wide = shown_at(80);
        assert!(wide.contains("\n3% loss  p99 276 ms   unstable ") && !wide.contains("h1: "), "{wide}");
    }

    #[test]
    fn only_verdicts_are_coloured_and_the_text_is_the_same() {
        let fixture = Fixture::new();
        let of = |colour| {
            let mut out = String::new();
            text(&mut out, &fixture.report(), TextStyle { colour, ..TextStyle::default() });
            out
        };
        let coloured = of(true);
        assert!(coloured.contains("\x1b[31munstable\x1b[0m"), "{coloured}");
        let mut plain = String::new();
        let mut in_escape = false;
        for c in coloured.chars() {
            in_escape |= c == '\x1b';
            if !in_escape {
                plain.push(c);
            }
            in_escape &= c != 'm';
        }
        assert_eq!(plain, of(false));
    }
}

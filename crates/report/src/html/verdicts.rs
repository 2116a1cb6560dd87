//! The verdicts as a table of conditions and configurations, and as sentences behind it.

use serde::Serialize;

use super::condition_id;
use super::svg::Svg;
use super::template::render;
use super::ways::Ways;
use crate::matrix::{self, Mark, MatrixField, MatrixRow, VerdictMatrix};
use crate::{Report, sentences};

/// What the template shows.
#[derive(Serialize)]
struct Part {
    /// How sure verdicts are.
    how: String,
    /// All of them as sentences.
    sentences: String,
    /// Look and name of each configuration.
    columns: Vec<(String, String)>,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    /// The address of the condition in the page.
    anchor: String,
    condition: String,
    baseline: String,
    baseline_figure: String,
    fields: Vec<Option<Field>>,
}

#[derive(Serialize)]
struct Field {
    class: &'static str,
    sign: &'static str,
    /// The configuration, for screens without room for a row of headings.
    way: String,
    word: String,
    figure: String,
    interval: String,
    against: Option<String>,
    sentence: String,
}

#[derive(Serialize)]
struct Sentences {
    sentences: Vec<Sentence>,
}

#[derive(Serialize)]
struct Sentence {
    class: &'static str,
    sign: &'static str,
    text: String,
}

/// The class of a verdict, and the sign that repeats the colour's meaning for readers without colour.
const fn look(mark: Mark) -> (&'static str, &'static str) {
    match mark {
        Mark::Faster | Mark::BaselineUnstable => ("better", "▲"),
        Mark::Slower | Mark::Unstable => ("worse", "▼"),
        Mark::NoDifference => ("same", "="),
        Mark::BothUnstable | Mark::Undecided | Mark::Invalid => ("doubtful", "?"),
    }
}

/// The table of a run with all sentences behind it, if it has verdicts.
pub(super) fn draw(report: &Report<'_>, ways: &Ways, prefix: &str) -> Option<String> {
    let matrix = matrix::of(report)?;
    let sample = |label: &String| {
        let summary = report.analysis.cells.iter().find(|summary| summary.label == *label);
        summary.map_or_else(String::new, |summary| {
            let (mut svg, way) = (Svg::new(34.0, 12.0, "").sample(), ways.way(summary));
            svg.shape(&format!("dot {}", way.class()), way.shape(), ((17.0, 6.0), 5.0), "");
            svg.finish()
        })
    };
    let row = |row: &MatrixRow| Row {
        anchor: condition_id(prefix, row.group),
        condition: row.condition.clone(),
        baseline: row.baseline.clone(),
        baseline_figure: row.baseline_figure.clone(),
        fields: row
            .fields
            .iter()
            .zip(&matrix.columns)
            .map(|(one, way)| Some(field(one.as_ref()?, way)))
            .collect(),
    };
    let part = Part {
        columns: matrix.columns.iter().map(|label| (sample(label), label.clone())).collect(),
        rows: matrix.rows.iter().map(row).collect(),
        how: sentences::how_sure(report).unwrap_or_default(),
        sentences: in_full(&matrix),
    };
    Some(render(include_str!("matrix.html"), &part))
}

fn field(field: &MatrixField, way: &str) -> Field {
    let (class, sign) = look(field.mark);
    Field {
        class,
        sign,
        way: way.to_owned(),
        word: field.word.clone(),
        figure: field.figure.clone(),
        interval: field.interval.clone(),
        against: field.against.clone(),
        sentence: field.sentence.clone(),
    }
}

fn sentence(field: &MatrixField) -> Sentence {
    let (class, sign) = look(field.mark);
    Sentence { class, sign, text: field.sentence.clone() }
}

/// All verdicts as sentences, if there are any.
pub(super) fn sentences(report: &Report<'_>) -> Option<String> {
    matrix::of(report).map(|matrix| in_full(&matrix))
}

fn in_full(matrix: &VerdictMatrix) -> String {
    let all = matrix.rows.iter().flat_map(|row| &row.fields).flatten();
    render(include_str!("sentences.html"), &Sentences { sentences: all.map(sentence).collect() })
}

//! A study in words and tables: what text, JSON and HTML tell of it alike.

use std::fmt::Write;

use super::format::{count, millis, number};
use super::table::{self, Column};
use super::text::{Paint, TextStyle, paragraph};
use super::{Report, format};
use crate::scenario::{Cell, Topology};
use crate::stats::study::{Condition, Needed, Study, Way};
use crate::stats::{CellState, CellSummary, Tail};
use crate::units::{Ratio, format_duration};

/// The study of a run whose scenario asks for one.
pub(super) fn of(report: &Report<'_>) -> Option<Study> {
    report.run.scenario.study.then(|| Study::of(report.analysis)).filter(|study| !study.ways.is_empty())
}

/// What a condition is called beside the others.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(super) struct Told {
    /// `RTT 25ms`.
    pub rtt: String,
    /// `3% loss`.
    pub loss: String,
    /// What else differs between conditions: loss model, congestion control, sysctls, rate. Empty if nothing does.
    pub rest: String,
}

impl Told {
    /// In one line: `RTT 25ms, 3% loss, bbr`.
    pub fn line(&self) -> String {
        [&self.rtt, &self.loss, &self.rest]
            .map(String::as_str)
            .into_iter()
            .filter(|p| !p.is_empty())
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// The names of all conditions, in their order.
pub(super) fn conditions(report: &Report<'_>, study: &Study) -> Vec<Told> {
    let cells: Vec<&Cell> = study
        .conditions
        .iter()
        .map(|condition| &report.analysis.cell(condition.first).expect("a condition is of a cell").cell)
        .collect();
    let pieces: Vec<[String; 4]> = cells.iter().map(|cell| rest(cell)).collect();
    let varies = |k: usize| {
        let mut told = pieces.iter().map(|pieces| &pieces[k]).filter(|piece| !piece.is_empty());
        let first = told.next();
        told.any(|other| Some(other) != first)
    };
    let name = |(condition, pieces): (&Condition, &[String; 4])| Told {
        rtt: format!("RTT {}", format_duration(condition.rtt)),
        loss: Ratio::new(condition.loss).map_or_else(String::new, |share| format!("{share} loss")),
        rest: (0..4)
            .filter(|&k| varies(k) && !pieces[k].is_empty())
            .map(|k| pieces[k].clone())
            .collect::<Vec<_>>()
            .join(", "),
    };
    study.conditions.iter().zip(&pieces).map(name).collect()
}

/// What conditions can differ in besides round trip and loss; empty where it has no meaning.
fn rest(cell: &Cell) -> [String; 4] {
    let model = cell.link.as_ref().map_or(String::new(), |link| {
        let worse = if link.uplink.loss.share() >= link.downlink.loss.share() {
            &link.uplink
        } else {
            &link.downlink
        };
        if worse.loss.share() == Ratio::ZERO { String::new() } else { worse.loss.name().to_owned() }
    });
    let rate = cell.work.arrival.rate().map_or(String::new(), |rate| format!("{}/s", format::rate(rate)));
    let sysctls = cell.sysctls.told().collect::<Vec<_>>().join(", ");
    [model, cell.congestion.clone().unwrap_or_default(), sysctls, rate]
}

/// Who takes part, in a few words: `direct`, `envoy sidecar`, `two envoys`; with the target where others have another.
pub(super) fn parties(report: &Report<'_>, cell: &Cell) -> String {
    let of_topology = |summary: &&CellSummary| summary.cell.topology() == cell.topology();
    let mut targets =
        report.analysis.cells.iter().filter(of_topology).map(|summary| summary.cell.target.name());
    let several = targets.any(|target| target != cell.target.name());
    let target = if several { format!(" to {}", cell.target.name()) } else { String::new() };
    match (&cell.sidecar, cell.topology()) {
        (Some(sidecar), Topology::TwoSidecars) => format!("two {}s", sidecar.name),
        (Some(sidecar), _) => format!("{} sidecar{target}", sidecar.name),
        (None, _) => format!("direct{target}"),
    }
}

/// What a way is called: `two envoys, h2c × 1`.
pub(super) fn way(report: &Report<'_>, way: &Way) -> String {
    let cell = way.cells.iter().flatten().find_map(|index| report.analysis.cell(*index));
    let parties = cell.map_or_else(|| way.parties.clone(), |summary| parties(report, &summary.cell));
    format!("{parties}, {}", way.label)
}

/// The slow requests of a cell in milliseconds, or its state in a word.
fn tail(summary: &CellSummary) -> String {
    match &summary.state {
        CellState::Ok if summary.response.is_empty() => "none".to_owned(),
        CellState::Ok => {
            let tail = summary.response.tail();
            let mark = if tail == Tail::P99 { "" } else { "*" };
            format!("{}{mark}", millis(summary.response.quantile(tail.share())))
        }
        state => state.name().to_owned(),
    }
}

/// How many connections are needed, in a word.
pub(super) fn needed(needed: Needed) -> String {
    match needed {
        Needed::Connections(n) => count(u64::from(n)),
        Needed::MoreThan(n) => format!(">{}", count(u64::from(n))),
        Needed::CameOut { held, matches } => {
            format!("{}, {}", number(held), if matches { "enough" } else { "too few" })
        }
        Needed::Unknown => "?".to_owned(),
    }
}

/// A table of the study: a row for each way or need, a column for each condition.
#[derive(Debug)]
pub(super) struct Matrix {
    /// What it shows.
    pub title: String,
    /// How to read it.
    pub key: String,
    /// Name and figures of each row.
    pub rows: Vec<(String, Vec<String>)>,
}

/// The tables of a study: slow requests, ramps, connections needed.
pub(super) fn matrices(report: &Report<'_>, study: &Study) -> Vec<Matrix> {
    let cells = |figure: &dyn Fn(&CellSummary) -> String| -> Vec<(String, Vec<String>)> {
        let of = |index: &Option<u32>| {
            index.and_then(|index| report.analysis.cell(index)).map_or("-".to_owned(), figure)
        };
        study.ways.iter().map(|one| (way(report, one), one.cells.iter().map(of).collect())).collect()
    };
    let ramps = |summary: &CellSummary| {
        let share = study.ramps_of(summary.cell.index).and_then(|ramps| ramps.share());
        share.map_or("-".to_owned(), |share| format!("{:.0}%", share * 100.0))
    };
    let tails = Matrix {
        title: "Slow requests: p99 of the response time, ms".to_owned(),
        key: "* p95, where fewer than 50 requests lie above the p99; unstable: does not carry the load"
            .to_owned(),
        rows: cells(&tail),
    };
    let ramps = Matrix {
        title: "Share of the slow requests that lie on ramps".to_owned(),
        key: "on lines of slope -1 (± 10 %): sent one after the other, answered together; - where no request is slow".to_owned(),
        rows: cells(&ramps),
    };
    [Some(tails), Some(ramps), needs(report, study)].into_iter().flatten().collect()
}

/// The table of connections; none where no multiplexed protocol stands beside HTTP/1.1.
fn needs(report: &Report<'_>, study: &Study) -> Option<Matrix> {
    let named = |need: &crate::stats::study::Need| {
        let is_of = |way: &&Way| way.parties == need.parties;
        let of = study.ways.iter().find(is_of).and_then(|way| way.cells.iter().flatten().next());
        let cell = of.and_then(|index| report.analysis.cell(*index));
        let parties = cell.map_or_else(|| need.parties.clone(), |summary| parties(report, &summary.cell));
        (format!("{parties}, {}", need.protocol), need.found.iter().map(|found| needed(*found)).collect())
    };
    let mut rows: Vec<(String, Vec<String>)> = study.needs.iter().map(named).collect();
    let predicted =
        |condition: &Condition| condition.predicted.map_or("-".to_owned(), |n| count(u64::from(n)));
    rows.push(("PFTK model: to carry the load".to_owned(), study.conditions.iter().map(predicted).collect()));
    (rows.len() > 1).then(|| Matrix {
        title: "Connections that HTTP/2 needs to match HTTP/1.1".to_owned(),
        key: "the least number tried whose slow requests are no more than 10 % slower; > more than the most tried; \
              where the proxy decides, what it held"
            .to_owned(),
        rows,
    })
}

/// Appends the study's tables to a report for a terminal.
pub(super) fn text(out: &mut String, report: &Report<'_>, style: TextStyle) {
    const NAME: Column = table::name("");
    const FIGURE: Column = table::number("", "");
    let Some(study) = of(report) else { return };
    let named = conditions(report, &study);
    let mut columns = vec![NAME];
    columns.extend(named.iter().map(|_| FIGURE));
    for matrix in matrices(report, &study) {
        let _ = writeln!(out, "\n{}", style.paint(Paint::Bold, &matrix.title));
        let heads: [&dyn Fn(&Told) -> &str; 3] = [&|told| &told.rtt, &|told| &told.loss, &|told| &told.rest];
        let mut rows: Vec<Vec<String>> = heads
            .iter()
            .map(|head| std::iter::once("").chain(named.iter().map(head)).map(str::to_owned).collect())
            .filter(|row: &Vec<String>| row.iter().any(|piece| !piece.is_empty()))
            .collect();
        let headers = rows.len();
        rows.extend(matrix.rows.into_iter().map(|(name, figures)| [vec![name], figures].concat()));
        for (k, line) in table::lay_out(&columns, &rows, style.limit()).into_iter().skip(2).enumerate() {
            *out += &if k < headers { style.paint(Paint::Dim, &line) } else { line };
            out.push('\n');
        }
        let mut key = String::new();
        paragraph(&mut key, style, "", &matrix.key);
        let _ = writeln!(out, "{}", style.paint(Paint::Dim, key.trim_end()));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Fixture;
    use super::*;

    #[test]
    fn the_tables_of_a_study_stand_before_the_verdicts() {
        let fixture = Fixture::study();
        let all = crate::report::text(&[fixture.report()], TextStyle::default());
        let from = all.find("Slow requests: p99").expect("it is there");
        let to = all.find("\nVerdict").expect("it is there");
        insta::assert_snapshot!(&all[from..to]);
        assert!(!crate::report::text(&[Fixture::new().report()], TextStyle::default()).contains("on ramps"));
    }

    #[test]
    fn the_document_has_the_same_figures_as_the_tables() {
        let fixture = Fixture::study();
        let document = crate::report::document(&fixture.report()).study.expect("it was asked for");
        assert_eq!(crate::report::document(&Fixture::new().report()).study, None);
        let names: Vec<&str> = document.conditions.iter().map(|condition| condition.name.as_str()).collect();
        assert_eq!(names, ["RTT 25ms, 0% loss", "RTT 25ms, 3% loss"]);
        assert_eq!(document.conditions[1].predicted_connections, Some(5));
        let ways: Vec<&str> = document.ways.iter().map(|way| way.name.as_str()).collect();
        assert_eq!(ways, ["direct, h1", "direct, h2c × 1", "direct, h2c × 4", "direct, h2c × 16"]);
        let needed: Vec<_> =
            document.needed.iter().map(|needed| (needed.condition, needed.connections)).collect();
        assert_eq!(needed[0], (0, Some(1)));
        let share = |label: &str| {
            let at = ways.iter().position(|way| *way == label).unwrap();
            let cell = document.ways[at].cells[1].unwrap();
            document.ramps.iter().find(|ramps| ramps.cell == cell).unwrap().share.unwrap()
        };
        assert!(share("direct, h2c × 1") > 0.5 && share("direct, h1") < 0.05, "{:?}", document.ramps);
    }

    #[test]
    fn conditions_are_told_by_what_tells_them_apart() {
        let mut fixture = Fixture::study();
        for visit in fixture.run.visits.iter_mut().filter(|visit| visit.cell.group == 0) {
            (visit.cell.congestion, visit.environment.congestion_client) =
                (Some("bbr".to_owned()), "bbr".to_owned());
        }
        fixture.analysis = crate::stats::analyse(&fixture.run);
        let study = of(&fixture.report()).unwrap();
        let told: Vec<String> = conditions(&fixture.report(), &study).iter().map(Told::line).collect();
        assert_eq!(told, ["RTT 25ms, 0% loss, bbr", "RTT 25ms, 3% loss, cubic"]);
        assert_eq!(
            study.conditions.iter().map(|condition| condition.predicted).collect::<Vec<_>>(),
            [None, Some(5)]
        );
    }

    #[test]
    fn numbers_of_connections_are_told_in_a_word() {
        let all = [
            Needed::Connections(4),
            Needed::MoreThan(16),
            Needed::CameOut { held: 2.5, matches: false },
            Needed::CameOut { held: 1.0, matches: true },
            Needed::Unknown,
        ];
        assert_eq!(all.map(needed), ["4", ">16", "2.50, too few", "1, enough", "?"]);
    }
}

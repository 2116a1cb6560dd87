//! The study's part of the page: every configuration beside every other, under every condition.

mod drawn;
mod figures;
mod heat;
mod scatters;

use serde::Serialize;

use super::shell::Section;
use super::template::render;
use super::ways::Ways;
use crate::Report;
use crate::study;
use crate::study::ConditionLabel;
use drawn::{Drawn, Panel, Panels};

/// A study's part of a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StudyPart {
    /// The table of tails, and how many connections are needed.
    tables: Vec<(String, String)>,
    /// The cost against HTTP/1.1: heading and pictures; none where nothing is held against it.
    cost: Option<(String, String)>,
    /// Every topology under every condition.
    figures: String,
    /// Requests one by one under the worst conditions: heading and pictures.
    scatters: Vec<(String, String)>,
}

#[derive(Serialize)]
struct Table {
    key: String,
    columns: Vec<ConditionLabel>,
    rows: Vec<(String, Vec<String>)>,
}

impl StudyPart {
    /// The sections before the findings, and those behind them.
    pub fn sections(self, prefix: &str) -> (Vec<Section>, Vec<Section>) {
        let of = |id: String, title: String, body: String| Section::new(format!("{prefix}{id}"), title, body);
        let tables = self.tables.into_iter().enumerate();
        let mut first: Vec<Section> =
            tables.map(|(n, (title, body))| of(format!("table-{n}"), title, body)).collect();
        // The table of tails, and a picture of it, before what explains them.
        if let Some((title, body)) = self.cost {
            first.insert(first.len().min(1), of("cost".to_owned(), title, body));
        }
        let figures =
            of("topologies".to_owned(), "Every topology under every condition".to_owned(), self.figures)
                .folded("A panel for each condition");
        let scatters = self.scatters.into_iter().enumerate().map(|(n, (title, body))| {
            of(format!("requests-{n}"), title, body).folded("A picture for each configuration")
        });
        let rest = std::iter::once(figures).chain(scatters).collect();
        (first, rest)
    }
}

/// The study's part, if the run has one.
pub(super) fn draw(report: &Report<'_>, ways: &Ways) -> Option<StudyPart> {
    let study = study::of(report)?;
    let drawn = Drawn { report, study: &study, ways, conditions: study::conditions(report, &study) };
    let tables = study::matrices(report, &study).into_iter().map(|matrix| {
        let table = Table { key: matrix.key, columns: drawn.conditions.clone(), rows: matrix.rows };
        (matrix.title, render(include_str!("table.html"), &table))
    });
    let scatters = scatters::draw(&drawn).into_iter().map(|scatters| {
        let body = render(include_str!("scatters.html"), &scatters);
        (format!("Requests one by one: {}", scatters.heading), body)
    });
    Some(StudyPart {
        tables: tables.collect(),
        cost: cost(&drawn),
        figures: panels(figures::KEY.to_owned(), figures::draw(&drawn)),
        scatters: scatters.collect(),
    })
}

fn panels(key: String, panels: Vec<Panel>) -> String {
    render(include_str!("panels.html"), &Panels { key, panels })
}

/// What the shared protocols cost against HTTP/1.1: heading and pictures.
fn cost(drawn: &Drawn<'_>) -> Option<(String, String)> {
    let grids = heat::draw(drawn);
    let priced = heat::versions(drawn);
    let verb = if priced.contains(" and ") { "cost" } else { "costs" };
    let title = format!("What {priced} {verb} against HTTP/1.1");
    (!grids.is_empty())
        .then(|| (title, render(include_str!("heat.html"), &Panels { key: String::new(), panels: grids })))
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::Fixture;
    use super::super::tests::assert_well_formed;
    use super::*;

    fn drawn(fixture: &Fixture) -> Option<StudyPart> {
        let report = fixture.report();
        draw(&report, &Ways::of(&report))
    }

    #[test]
    fn a_run_has_the_part_only_if_its_scenario_asks_for_it() {
        assert_eq!(drawn(&Fixture::new()), None);
        let page = crate::html(&[Fixture::study().report()]);
        assert_well_formed(&page);
        assert!(page.contains("Every topology under every condition"));
    }

    #[test]
    fn every_condition_has_bars_of_its_topologies_and_every_configuration_its_requests_where_most_is_lost() {
        let fixture = Fixture::study();
        let page = crate::html(&[fixture.report()]);
        let pictures = |label: &str| page.matches(&format!("aria-label=\"{label}")).count();
        assert_eq!(pictures("Mean, median, p95 and p99"), 2, "{page}");
        assert_eq!(pictures("Response times of direct, h"), 4 + 3, "four configurations and three overlays");
        assert_eq!(pictures("The tail of direct, h2c"), 3);
        assert!(
            !page.contains("direct, h2c × 4: mean"),
            "figures are of the topologies, with the fewest connections"
        );
        assert!(page.contains("unstable: serves 290 of 1,000/s"));
    }

    #[test]
    fn a_study_of_nothing_that_was_answered_renders() {
        let mut fixture = Fixture::study();
        for repetition in &mut fixture.run.repetitions {
            let mut all = repetition.samples.edit();
            all.iter_mut().for_each(|sample| sample.outcome = h2lab_model::record::Outcome::Connect);
        }
        fixture.analysis = h2lab_analysis::stats::analyse(&fixture.run);
        assert_well_formed(&crate::html(&[fixture.report()]));
        fixture.run.repetitions.clear();
        fixture.findings.clear();
        fixture.analysis = h2lab_analysis::stats::analyse(&fixture.run);
        assert_eq!(drawn(&fixture), None);
    }
}

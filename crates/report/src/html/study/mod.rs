//! The study's part of the page: every configuration beside every other, under every condition.

mod bars;
mod drawn;
mod heat;
mod scatters;

use serde::Serialize;

use super::template::render;
use crate::Report;
use crate::study;
use crate::study::ConditionLabel;
use drawn::{Drawn, Panel, Scatters};

/// The data of the template.
#[derive(Serialize)]
struct Part {
    /// Name and colour of each statistic.
    statistics: Vec<(String, &'static str)>,
    bars: Vec<Panel>,
    heat: Vec<Panel>,
    /// The protocols of the heat map: `HTTP/2`, `HTTP/2 and HTTP/3`.
    priced: String,
    /// Whether these are several.
    are_several: bool,
    tables: Vec<Table>,
    /// The conditions whose requests are shown one by one.
    scatters: Vec<Scatters>,
}

#[derive(Serialize)]
struct Table {
    title: String,
    key: String,
    columns: Vec<ConditionLabel>,
    rows: Vec<(String, Vec<String>)>,
}

/// The study's part, if the run has one.
pub(super) fn draw(report: &Report<'_>) -> Option<String> {
    let study = study::of(report)?;
    let drawn = Drawn { report, study: &study, conditions: study::conditions(report, &study) };
    let priced = heat::versions(&drawn);
    let part = Part {
        statistics: bars::STATISTICS.map(|(name, _, class)| (name.to_owned(), class)).to_vec(),
        bars: bars::draw(&drawn),
        heat: heat::draw(&drawn),
        are_several: priced.contains(" and "),
        priced,
        tables: study::matrices(report, &study)
            .into_iter()
            .map(|matrix| Table {
                title: matrix.title,
                key: matrix.key,
                columns: drawn.conditions.clone(),
                rows: matrix.rows,
            })
            .collect(),
        scatters: scatters::draw(&drawn),
    };
    Some(render(include_str!("study.html"), &part))
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::Fixture;
    use super::super::tests::assert_well_formed;
    use super::*;

    #[test]
    fn a_run_has_the_part_only_if_its_scenario_asks_for_it() {
        assert_eq!(draw(&Fixture::new().report()), None);
        let page = crate::html(&[Fixture::study().report()]);
        assert_well_formed(&page);
        assert!(page.contains("Every topology under every condition"));
    }

    #[test]
    fn every_condition_has_bars_of_its_topologies_and_every_configuration_its_requests_where_most_is_lost() {
        let fixture = Fixture::study();
        let part = draw(&fixture.report()).unwrap();
        let pictures = |label: &str| part.matches(&format!("aria-label=\"{label}")).count();
        assert_eq!(pictures("Mean, median, p95 and p99"), 2, "{part}");
        assert_eq!(pictures("Response times of direct, h"), 4 + 3, "four configurations and three overlays");
        assert_eq!(pictures("The tail of direct, h2c"), 3);
        assert!(
            !part.contains("direct, h2c × 4: mean"),
            "bars are of the topologies, with the fewest connections"
        );
        assert!(part.contains("unstable: 290/s of 1,000/s"));
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
        assert_eq!(draw(&fixture.report()), None);
    }
}

//! The cost of HTTP/2 and HTTP/3: how their tails compare with that of HTTP/1.1 between the same parties, over delay and loss.

use super::super::svg::{Anchor, Svg};
use super::drawn::{Drawn, Panel};
use crate::format;
use crate::study;
use crate::study::ConditionLabel;
use h2lab_analysis::stats::study::Configuration;
use h2lab_analysis::stats::{CellVerdict, Conclusion};

const LEFT: f64 = 92.0;
const TOP: f64 = 26.0;
const HEIGHT: f64 = 38.0;
/// The width of a box where there are few; more share what there is.
const WIDEST: f64 = 86.0;
/// The width of a picture, beyond which text would be too small on a narrow screen.
const WIDTH: f64 = 400.0;
/// Ratios at which a colour becomes stronger, and their inverses: within a tenth is no difference.
const STEPS: [f64; 3] = [1.1, 2.0, 4.0];

/// A grid for each configuration with a multiplexed protocol, and for each value of what differs besides delay and loss.
pub(super) fn draw(drawn: &Drawn<'_>) -> Vec<Panel> {
    let mut panels = Vec::new();
    for rest in distinct(drawn.conditions.iter().map(|condition_label| &condition_label.rest)) {
        for configuration in &drawn.study.configurations {
            let is_of =
                |k: &usize| drawn.conditions[*k].rest == *rest && verdict(drawn, configuration, *k).is_some();
            let conditions: Vec<usize> = (0..drawn.conditions.len()).filter(is_of).collect();
            if conditions.is_empty() {
                continue;
            }
            let configuration_name = study::configuration(drawn.report, configuration);
            let name =
                if rest.is_empty() { configuration_name } else { format!("{configuration_name}, {rest}") };
            panels.push(Panel { picture: grid(drawn, configuration, &conditions, &name), name });
        }
    }
    panels
}

/// The verdict on a configuration's cell under a condition. Only protocols that share connections have a cost, and only beside
/// HTTP/1.1 between the same parties: the baseline of a verdict may be of another target, or the same cell without a limit.
fn verdict<'a>(
    drawn: &Drawn<'a>,
    configuration: &Configuration,
    condition: usize,
) -> Option<&'a CellVerdict> {
    let index = (*configuration.cells.get(condition)?)?;
    let analysis = drawn.report.analysis;
    let verdict = analysis.verdicts.iter().find(|verdict| verdict.cell == index)?;
    let (cell, baseline) = (&analysis.cell(index)?.cell, &analysis.cell(verdict.baseline)?.cell);
    let is_price = cell.protocol.is_multiplexed() && !baseline.protocol.is_multiplexed();
    (is_price && baseline.parties() == cell.parties()).then_some(verdict)
}

/// The versions of HTTP whose cost is drawn.
pub(super) fn versions(drawn: &Drawn<'_>) -> String {
    let has_price = |configuration: &&Configuration| {
        (0..drawn.conditions.len()).any(|k| verdict(drawn, configuration, k).is_some())
    };
    let cell = |configuration: &Configuration| {
        drawn.report.analysis.cell(configuration.cells.iter().flatten().next().copied()?)
    };
    let priced = drawn.study.configurations.iter().filter(has_price).filter_map(cell);
    study::versions(priced.map(|summary| summary.cell.protocol))
}

fn distinct<'a>(values: impl Iterator<Item = &'a String>) -> Vec<&'a String> {
    let mut found: Vec<&String> = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

fn grid(drawn: &Drawn<'_>, configuration: &Configuration, conditions: &[usize], name: &str) -> String {
    let condition_label = |k: &usize| -> &ConditionLabel { &drawn.conditions[*k] };
    let rows = distinct(conditions.iter().map(|k| &condition_label(k).rtt));
    let columns = distinct(conditions.iter().map(|k| &condition_label(k).loss));
    let wide = ((WIDTH - LEFT - 2.0) / columns.len().max(1) as f64).min(WIDEST);
    let height = TOP + rows.len() as f64 * HEIGHT + 2.0;
    let mut svg = Svg::new(WIDTH, height, &format!("The tail of {name} against HTTP/1.1"));
    for (column, loss) in columns.iter().enumerate() {
        let middle = LEFT + (column as f64 + 0.5) * wide;
        svg.text("label", (middle, TOP - 8.0), Anchor::Middle, loss);
    }
    for (row, rtt) in rows.iter().enumerate() {
        let middle = TOP + (row as f64 + 0.5) * HEIGHT;
        svg.text("label", (LEFT - 8.0, middle + 4.0), Anchor::End, rtt);
    }
    for &k in conditions {
        let row = rows.iter().position(|rtt| **rtt == condition_label(&k).rtt);
        let column = columns.iter().position(|loss| **loss == condition_label(&k).loss);
        if let (Some(row), Some(column), Some(verdict)) = (row, column, verdict(drawn, configuration, k)) {
            let at = (LEFT + column as f64 * wide, TOP + row as f64 * HEIGHT);
            one(&mut svg, at, (wide, HEIGHT), verdict, name);
        }
    }
    svg.finish()
}

fn one(svg: &mut Svg, at: (f64, f64), size: (f64, f64), verdict: &CellVerdict, name: &str) {
    let (class, words) = look(verdict);
    let inner = (size.0 - 2.0, size.1 - 2.0);
    let note = match &verdict.tail_ratio {
        Some(ratio) => {
            format!(
                "{name}: {} {words} × HTTP/1.1's, 95 % interval {:.2} to {:.2}",
                verdict.tail.name(),
                ratio.low,
                ratio.high
            )
        }
        None => format!("{name}: {}", verdict.conclusion.name()),
    };
    svg.rectangle(&format!("heat {class}"), (at.0 + 1.0, at.1 + 1.0), inner, &note);
    if class == "worst" {
        svg.rectangle("hatched", (at.0 + 1.0, at.1 + 1.0), inner, &note);
    }
    let middle = (at.0 + size.0 / 2.0, at.1 + size.1 / 2.0 + 4.0);
    svg.text(&format!("heat-value {class}"), middle, Anchor::Middle, &words);
}

/// The class and the text of a box.
fn look(verdict: &CellVerdict) -> (String, String) {
    let Some(ratio) = verdict.tail_ratio.map(|ratio| ratio.ratio) else {
        let (class, words) = match verdict.conclusion {
            Conclusion::Unstable { .. } => ("worst", "unstable"),
            Conclusion::BaselineUnstable { .. } => ("better3", "h1 unstable"),
            Conclusion::BothUnstable => ("none", "both unstable"),
            other => ("none", other.name()),
        };
        return (class.to_owned(), words.to_owned());
    };
    (class(ratio), format::ratio(ratio))
}

/// How strong a ratio's colour is: `worse2`, `even`, `better1`.
fn class(ratio: f64) -> String {
    let strength = |ratio: f64| STEPS.iter().filter(|step| ratio >= **step).count();
    match (strength(ratio), strength(1.0 / ratio.max(1e-9))) {
        (0, 0) => "even".to_owned(),
        (worse, 0) => format!("worse{worse}"),
        (_, better) => format!("better{better}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::testing::Fixture;
    use h2lab_model::record::CellRecord;
    use h2lab_model::workload::Protocol;

    /// The heat maps' pictures of the fixture's study with other repetitions.
    fn drawn(change: impl Fn(&mut Vec<CellRecord>)) -> (String, Vec<Panel>) {
        let mut fixture = Fixture::study();
        change(&mut fixture.run.repetitions);
        fixture.analysis = h2lab_analysis::stats::analyse(&fixture.run);
        let report = fixture.report();
        let study = study::of(&report).unwrap();
        let ways = crate::html::ways::Ways::of(&report);
        let conditions = study::conditions(&report, &study);
        let drawn = Drawn { report: &report, study: &study, ways: &ways, conditions };
        (versions(&drawn), draw(&drawn))
    }

    /// Boxes in all panels.
    fn boxes((_, panels): &(String, Vec<Panel>)) -> usize {
        panels.iter().map(|panel| panel.picture.matches("class=\"heat ").count()).sum()
    }

    #[test]
    fn every_condition_has_its_box_whatever_it_differs_in() {
        assert_eq!(boxes(&drawn(|_| ())), 2 * 3);
        let doubled = drawn(|repetitions| {
            let beside = |repetition: &CellRecord| {
                let mut repetition = repetition.clone();
                (repetition.cell.index, repetition.cell.group) =
                    (repetition.cell.index + 100, repetition.cell.group + 100);
                let link = repetition.cell.link.as_mut().unwrap();
                (link.uplink.bandwidth, link.downlink.bandwidth) =
                    ("10mbit".parse().ok(), "10mbit".parse().ok());
                repetition
            };
            let others: Vec<_> = repetitions.iter().map(beside).collect();
            repetitions.extend(others);
        });
        assert_eq!((boxes(&doubled), doubled.1.len()), (2 * 2 * 3, 2 * 3), "a panel for each bandwidth");
    }

    #[test]
    fn only_what_is_held_against_http_1_1_between_the_same_parties_has_a_price() {
        let without =
            drawn(|repetitions| repetitions.retain(|repetition| repetition.cell.protocol.is_multiplexed()));
        assert_eq!((boxes(&without), without.0.as_str()), (0, ""));
        let limited = drawn(|repetitions| {
            let limited: Vec<_> = repetitions
                .iter()
                .map(|repetition| {
                    let mut repetition = repetition.clone();
                    repetition.cell.index += 100;
                    repetition.cell.max_requests_per_connection = Some(137);
                    repetition
                })
                .collect();
            repetitions.extend(limited);
        });
        assert_eq!(boxes(&limited), 2 * 3, "a limit is held against the cell without it");
        let elsewhere = drawn(|repetitions| {
            for repetition in
                repetitions.iter_mut().filter(|repetition| repetition.cell.protocol.is_multiplexed())
            {
                repetition.cell.target = h2lab_model::scenario::Target::Url { url: "http://b/".to_owned() };
            }
        });
        assert_eq!(boxes(&elsewhere), 0);
    }

    #[test]
    fn the_versions_whose_price_is_drawn_are_named() {
        let spoken = |protocols: &[Protocol]| {
            drawn(|repetitions| {
                let shared =
                    repetitions.iter_mut().filter(|repetition| repetition.cell.protocol.is_multiplexed());
                for repetition in shared {
                    repetition.cell.protocol = protocols[repetition.cell.index as usize % protocols.len()];
                }
            })
            .0
        };
        assert_eq!(spoken(&[Protocol::H2c]), "HTTP/2");
        assert_eq!(spoken(&[Protocol::H3]), "HTTP/3");
        assert_eq!(spoken(&[Protocol::H2c, Protocol::H3]), "HTTP/2 and HTTP/3");
    }

    #[test]
    fn a_tenth_has_no_colour_and_twice_as_much_a_stronger_one() {
        let classes = [0.2, 0.26, 0.5, 0.6, 0.95, 1.0, 1.09, 1.11, 1.99, 2.0, 4.0].map(class);
        let expected = [
            "better3", "better2", "better2", "better1", "even", "even", "even", "worse1", "worse1", "worse2",
            "worse3",
        ];
        assert_eq!(classes, expected);
    }
}

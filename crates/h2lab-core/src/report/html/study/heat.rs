//! The price of HTTP/2: how its slow requests compare with those of HTTP/1.1 between the same parties, over delay and loss.

use super::super::svg::{Anchor, Svg};
use super::{Drawn, Panel};
use crate::report::format;
use crate::report::study::{self, Told};
use crate::stats::study::Way;
use crate::stats::{Conclusion, Verdict};

const LEFT: f64 = 92.0;
const TOP: f64 = 26.0;
const BOX: (f64, f64) = (86.0, 38.0);
/// Ratios from which on a colour is stronger, and their inverses: within a tenth is no difference.
const STEPS: [f64; 3] = [1.1, 2.0, 4.0];

/// A grid for each way in a multiplexed protocol, and for each value of what differs besides delay and loss.
pub(super) fn draw(drawn: &Drawn<'_>) -> Vec<Panel> {
    let mut panels = Vec::new();
    for rest in distinct(drawn.conditions.iter().map(|told| &told.rest)) {
        for way in &drawn.study.ways {
            let is_of = |k: &usize| drawn.conditions[*k].rest == *rest && verdict(drawn, way, *k).is_some();
            let conditions: Vec<usize> = (0..drawn.conditions.len()).filter(is_of).collect();
            if conditions.is_empty() {
                continue;
            }
            let way_name = study::way(drawn.report, way);
            let name = if rest.is_empty() { way_name } else { format!("{way_name}, {rest}") };
            panels.push(Panel { picture: grid(drawn, way, &conditions, &name), name });
        }
    }
    panels
}

/// The verdict on a way's cell under a condition: only protocols that share connections have a price.
fn verdict<'a>(drawn: &Drawn<'a>, way: &Way, condition: usize) -> Option<&'a Verdict> {
    let index = (*way.cells.get(condition)?)?;
    let cell = &drawn.report.analysis.cell(index)?.cell;
    drawn.report.analysis.verdicts.iter().find(|v| v.cell == index).filter(|_| cell.protocol.is_multiplexed())
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

fn grid(drawn: &Drawn<'_>, way: &Way, conditions: &[usize], name: &str) -> String {
    let told = |k: &usize| -> &Told { &drawn.conditions[*k] };
    let rows = distinct(conditions.iter().map(|k| &told(k).rtt));
    let columns = distinct(conditions.iter().map(|k| &told(k).loss));
    let size = (LEFT + columns.len() as f64 * BOX.0 + 2.0, TOP + rows.len() as f64 * BOX.1 + 2.0);
    let mut svg = Svg::new(size.0.max(360.0), size.1, &format!("Slow requests of {name} against HTTP/1.1"));
    for (column, loss) in columns.iter().enumerate() {
        let middle = LEFT + (column as f64 + 0.5) * BOX.0;
        svg.text("label", (middle, TOP - 8.0), Anchor::Middle, loss);
    }
    for (row, rtt) in rows.iter().enumerate() {
        let top = TOP + row as f64 * BOX.1;
        svg.text("label", (LEFT - 8.0, top + BOX.1 / 2.0 + 4.0), Anchor::End, rtt);
        for (column, loss) in columns.iter().enumerate() {
            let at = (LEFT + column as f64 * BOX.0, top);
            let here = conditions.iter().find(|k| (&told(k).rtt, &told(k).loss) == (rtt, loss));
            if let Some(verdict) = here.and_then(|k| verdict(drawn, way, *k)) {
                one(&mut svg, at, verdict, name);
            }
        }
    }
    svg.finish()
}

fn one(svg: &mut Svg, at: (f64, f64), verdict: &Verdict, name: &str) {
    let (class, words) = look(verdict);
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
    svg.rectangle(&format!("heat {class}"), (at.0 + 1.0, at.1 + 1.0), (BOX.0 - 2.0, BOX.1 - 2.0), &note);
    if class == "worst" {
        svg.rectangle("hatched", (at.0 + 1.0, at.1 + 1.0), (BOX.0 - 2.0, BOX.1 - 2.0), &note);
    }
    let middle = (at.0 + BOX.0 / 2.0, at.1 + BOX.1 / 2.0 + 4.0);
    svg.text(&format!("heat-value {class}"), middle, Anchor::Middle, &words);
}

/// The class and the words of a box.
fn look(verdict: &Verdict) -> (String, String) {
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

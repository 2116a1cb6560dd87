//! The transfers of a fleet as a page: what all carried together, each pair, what limited them.

use super::axis::{Scale, Unit};
use super::bulk::{RateCurve, rates_over_time};
use super::form::{Form, Rows, both};
use super::parts;
use super::shell::{Repeat, Section, Shell};
use super::svg::Svg;
use super::ways::Way;
use crate::bulk_cells::rates;
use crate::fleet_text;
use h2lab_model::fleet::{FleetRecord, FleetSummary, PairRecord, PairState};

/// Points of the rate over time.
const POINTS: usize = 120;
/// What is listed without being asked for.
const SHOWN: usize = 10;

/// The transfers of a fleet as a page that loads nothing.
pub fn fleet_page(record: &FleetRecord) -> String {
    let summary = FleetSummary::of(record);
    let of = fleet_text::parts(record);
    let mut sections = Vec::new();
    let (span, rates) = rates(&summary.meter, POINTS);
    if rates.len() > 1 {
        let curve =
            RateCurve { way: Way::of(record.protocol), name: "all pairs together".to_owned(), span, rates };
        let body = format!("<figure class=\"wide\" data-legend>{}</figure>", rates_over_time(&[curve]));
        sections.push(Section::new("rate", "Rate over time", body));
    }
    let pairs = format!(
        "<figure class=\"wide\">{}</figure>\n{}",
        both(|form| picture(record, form)),
        parts::table(&of.pairs)
    );
    sections.push(Section::new("pairs", "Each pair", pairs));
    let listed = [("limits", "What limited them", &of.limits), ("troubles", "Not complete", &of.troubles)];
    for (id, title, items) in listed {
        if !items.is_empty() {
            sections.push(Section::new(id, title, parts::list(items, SHOWN, "")));
        }
    }
    if !of.servers.1.is_empty() {
        sections.push(Section::new("servers", "Each server, as it reported", parts::table(&of.servers)));
    }
    sections.push(Section::new("figures", "Figures", parts::lines(&of.lines)));
    Shell {
        kind: "bulk drive".to_owned(),
        answer: vec![of.answer],
        warnings: record.warnings.clone(),
        sections,
        repeat: Repeat {
            command: record.command.clone(),
            seed: Some(record.seed),
            version: record.version.clone(),
            started: record.started.clone(),
            machine: record.machine.clone(),
            ..Repeat::default()
        },
        ..Shell::default()
    }
    .render()
}

/// A bar for each pair, on a linear axis.
fn picture(record: &FleetRecord, form: Form) -> String {
    let names: Vec<String> = record.pairs.iter().map(|pair| fleet_text::pair_name(record, pair)).collect();
    let largest = record.pairs.iter().map(PairRecord::rate).fold(1.0, f64::max);
    let unit = Unit::of_rate(largest);
    let rows = Rows::new(form, names.iter().map(String::as_str), 12);
    let height = names.len() as f64 * rows.height() + 4.0;
    let frame = rows.area(height, Scale::linear(unit.scaled(largest)));
    let mut svg = Svg::new(form.width(), height + 48.0, "The rate of each pair");
    frame.draw_x(&mut svg, &format!("{} over its own time", unit.name), 0.0);
    let colour = Way::of(record.protocol).class();
    for (n, (pair, name)) in record.pairs.iter().zip(&names).enumerate() {
        let y = frame.top + n as f64 * rows.height();
        let (middle, end) = (rows.middle(y), frame.at_x(unit.scaled(pair.rate())));
        rows.label(&mut svg, "label", y, name);
        let state = pair.state();
        let text = match state {
            PairState::Complete => unit.text(pair.rate()),
            state => format!("{}, {}", unit.text(pair.rate()), state.name()),
        };
        let class = if state == PairState::Complete { format!("bar {colour}") } else { "hatched".to_owned() };
        let size = ((end - frame.left).max(1.0), 12.0);
        svg.rectangle(&class, (frame.left, middle - 6.0), size, &format!("{name}: {text}"));
        rows.value(&mut svg, y, end, &text);
    }
    svg.finish()
}

#[cfg(test)]
mod tests {
    use super::super::tests::assert_sound;
    use super::*;
    use h2lab_model::fleet::testing;

    #[test]
    fn a_page_of_a_fleet_has_each_pair_and_what_is_not_complete() {
        let record = testing::record();
        let page = fleet_page(&record);
        assert_sound(&page);
        assert!(page.contains("<h1>1.15 Gbit&#x2f;s over h2c: 4 pairs, 1 complete"), "{page}");
        assert_eq!(page.matches("aria-label=\"The rate of each pair\"").count(), 2);
        for words in ["Not complete", "its agent ended: killed by signal 9", "Each server, as it reported"] {
            assert!(page.contains(words), "{words}");
        }
    }
}

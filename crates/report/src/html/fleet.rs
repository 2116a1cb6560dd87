//! The transfers of a fleet as a page: what all carried together, each pair, what limited them.

use serde::Serialize;

use super::axis::{Scale, Unit};
use super::bulk::{RateCurve, rates_over_time};
use super::form::{Form, Rows, both};
use super::parts;
use super::shell::{Repeat, Section, Shell};
use super::svg::Svg;
use super::template::render;
use super::ways::Way;
use crate::bulk_cells::rates;
use crate::{fleet_text, machines};
use h2lab_model::fleet::{AgentRecord, FleetRecord, FleetSummary, PairRecord, PairState};

/// Points of the rate over time.
const POINTS: usize = 120;
/// What is listed without being asked for.
const SHOWN: usize = 10;

/// What limited pairs, and what lifts each limit.
#[derive(Serialize)]
struct Limits<'a> {
    limits: &'a [(String, Vec<String>)],
}

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
    if !of.limits.is_empty() {
        let limits = render(include_str!("fleet_limits.html"), &Limits { limits: &of.limits });
        sections.push(Section::new("limits", "What limited them", limits));
    }
    if !of.troubles.is_empty() {
        sections.push(Section::new("troubles", "Not complete", parts::list(&of.troubles, SHOWN, "")));
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
            agents: agents(record),
            ..Repeat::default()
        },
        ..Shell::default()
    }
    .render()
}

/// The agents with their machines, in words; empty if all of them were on the driver's machine.
fn agents(record: &FleetRecord) -> String {
    let agents = record.clients.iter().chain(&record.servers);
    let known: Vec<&AgentRecord> = agents.filter(|agent| agent.machine.is_some()).collect();
    if known.iter().all(|agent| is_here(&agent.name)) {
        return String::new();
    }
    machines::in_words(known.iter().map(|agent| (agent.name.as_str(), agent.machine.as_deref())))
}

/// Whether it is the name of a place on the driver's machine: `local`, the second one `local#2`, and `netns:NAME`.
fn is_here(name: &str) -> bool {
    name.starts_with("netns:") || name.split('#').next() == Some("local")
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
    use h2lab_model::bulk::{Binding, BindingKind};
    use h2lab_model::fleet::{PairEnd, testing};
    use h2lab_model::{Confidence, Fix};

    #[test]
    fn what_lifts_a_limit_has_a_line_of_its_own() {
        let mut record = testing::record();
        let PairEnd::Reported(figures) = &mut record.pairs[0].end else { panic!("it has figures") };
        figures.limit = Some(Binding {
            kind: BindingKind::StreamWindow,
            cause: None,
            confidence: Some(Confidence::Guessed),
            sentence: "its window is small.".to_owned(),
            fixes: vec![Fix::new("client", "-w 16M", "a larger window"), Fix::new("client", "-c 2", "two")],
        });
        let page = fleet_page(&record);
        assert_sound(&page);
        let fix = |flag: &str, rest: &str| {
            format!("\n<br><b>Fix:</b> client: <span class=\"whole\">{flag}</span> {rest}")
        };
        let lines = [fix("-w", "16M - a larger window"), fix("-c", "2 - two")].concat();
        assert!(page.contains(&format!("its window is small.{lines}\n</li>")), "{page}");
    }

    #[test]
    fn a_citation_names_the_machines_of_agents_unless_all_are_on_the_drivers() {
        let mut record = testing::record();
        let cited = |record: &FleetRecord| {
            let page = fleet_page(record);
            page.rsplit_once("To cite it:").expect("it is there").1.to_owned()
        };
        let there = cited(&record);
        let machines =
            "on ssh:kek-1, ssh:kek-2, ssh:lyon-1, ssh:lyon-2 (Linux 6.12.0 x86_64, 4 CPUs); driven from";
        assert!(there.contains(machines), "{there}");
        let names = ["local", "local#2", "netns:a", "netns:b"];
        for (agent, name) in record.clients.iter_mut().chain(&mut record.servers).zip(names) {
            name.clone_into(&mut agent.name);
        }
        let here = cited(&record);
        assert!(
            here.contains(", on Linux 6.12.0 x86_64, 2 CPUs.") && !here.contains("driven from"),
            "{here}"
        );
    }

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

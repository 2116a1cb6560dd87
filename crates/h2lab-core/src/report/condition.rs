//! The condition that a group of cells was measured under: its heading, and what tells it from the others.

use std::fmt::Write;

use super::Report;
use super::format::{count, rate};
use crate::link::{Impairment, LossModel};
use crate::scenario::Cell;
use crate::stats::CellSummary;
use crate::units::{format_bytes, format_duration};
use crate::workload::Arrival;

/// One aspect of a condition.
struct Aspect {
    /// Aspects with the same place compare with each other.
    place: &'static str,
    /// As headings have it: `loss 3% (bernoulli)`.
    long: String,
    /// As sentences have it where that is clear enough: `3% loss`.
    short: String,
}

impl Aspect {
    fn new(place: &'static str, long: String) -> Self {
        Self { place, short: long.clone(), long }
    }
}

/// How a heading names a link that loses nothing.
const NO_LOSS: &str = "no loss";

/// The heading of a group: `RTT 25ms, loss 3% (bernoulli), cubic`, and what else differs between groups.
pub(super) fn heading(report: &Report<'_>, group: &[&CellSummary]) -> String {
    let always = ["rtt", "loss", "bandwidth", "up", "down", "link", "congestion"];
    let others = all(report);
    let told = aspects(group).into_iter().filter(|a| always.contains(&a.place) || differs(a, &others));
    told.map(|aspect| aspect.long).collect::<Vec<_>>().join(", ")
}

/// The beginning of a sentence: what tells a group from the others, `At 3% loss`; nothing if there is only one group.
pub(super) fn beginning(report: &Report<'_>, group: &[&CellSummary]) -> Option<String> {
    let others = all(report);
    let told = aspects(group).into_iter().filter(|aspect| differs(aspect, &others));
    let words = told.map(|aspect| if is_clear(&aspect, &others) { aspect.short } else { aspect.long });
    match words.collect::<Vec<_>>().join(", ") {
        text if text.is_empty() => None,
        text if text == NO_LOSS => Some("Without loss".to_owned()),
        text => Some(format!("At {text}")),
    }
}

/// The aspects of every group.
fn all(report: &Report<'_>) -> Vec<Aspect> {
    report.analysis.groups().iter().flat_map(|group| aspects(group)).collect()
}

fn differs(aspect: &Aspect, others: &[Aspect]) -> bool {
    others.iter().any(|other| other.place == aspect.place && other.long != aspect.long)
}

/// Whether the short form tells the aspect from all others of its place.
fn is_clear(aspect: &Aspect, others: &[Aspect]) -> bool {
    let same_short = others.iter().filter(|other| other.place == aspect.place && other.short == aspect.short);
    same_short.into_iter().all(|other| other.long == aspect.long)
}

/// The aspects of a group's condition, in the order in which they are printed.
fn aspects(group: &[&CellSummary]) -> Vec<Aspect> {
    let Some(summary) = group.first() else { return Vec::new() };
    let cell = &summary.cell;
    let mut aspects = Vec::new();
    match &cell.link {
        Some(link) if link.uplink == link.downlink => symmetric(&link.uplink, &mut aspects),
        Some(link) => {
            aspects.push(Aspect::new("up", format!("uplink {}", link.uplink)));
            aspects.push(Aspect::new("down", format!("downlink {}", link.downlink)));
        }
        None => aspects.push(Aspect::new("link", "the network as it is".to_owned())),
    }
    aspects.extend(summary.congestion.clone().map(|name| Aspect::new("congestion", name)));
    aspects.push(Aspect::new("work", offered(cell)));
    aspects.push(Aspect::new("shape", format!("{} headers", cell.work.shape)));
    // HTTP/1.1 has one stream whatever was asked for.
    let streams = group.iter().map(|summary| summary.cell.streams).max().unwrap_or(1);
    aspects.push(Aspect::new("streams", format!("{streams} streams per connection")));
    aspects.push(Aspect::new("target", cell.target.name().to_owned()));
    aspects
}

fn symmetric(impairment: &Impairment, aspects: &mut Vec<Aspect>) {
    let mut rtt = format!("RTT {}", format_duration(impairment.delay * 2));
    if !impairment.jitter.is_zero() {
        let _ = write!(rtt, " ± {}", format_duration(impairment.jitter * 2));
    }
    aspects.push(Aspect::new("rtt", rtt));
    aspects.push(match impairment.loss {
        LossModel::None => Aspect::new("loss", NO_LOSS.to_owned()),
        model => Aspect {
            place: "loss",
            long: format!("loss {} ({})", model.share(), model.name()),
            short: format!("{} loss", model.share()),
        },
    });
    if let Some(bandwidth) = impairment.bandwidth {
        let queue =
            impairment.queue_bytes.map_or(String::new(), |bytes| format!(", queue {}", format_bytes(bytes)));
        aspects.push(Aspect::new("bandwidth", format!("bandwidth {bandwidth}{queue}")));
    }
}

/// The work in a few words: `1,000 requests/s`, `32 in flight`.
pub(super) fn offered(cell: &Cell) -> String {
    match cell.work.arrival {
        Arrival::Closed { concurrency } => format!("{} in flight", count(u64::from(concurrency))),
        Arrival::Constant { rate: rps } => format!("{} requests/s", rate(rps)),
        Arrival::Poisson { rate: rps } => format!("{} requests/s (Poisson)", rate(rps)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::LinkSpec;
    use crate::record::testing::{Model, cell, run, visit};
    use crate::scenario::Target;
    use crate::stats::analyse;
    use crate::units::Ratio;
    use crate::workload::Protocol;
    use std::time::Duration;

    /// Headings and beginnings of groups of one cell each.
    fn conditions(cells: &[Cell]) -> Vec<(String, Option<String>)> {
        let run = run(cells.iter().map(|cell| visit(cell, 0, &Model::CLEAN)).collect());
        let analysis = analyse(&run);
        let report = Report { run: &run, analysis: &analysis, findings: &[], folder: None, page: None };
        let groups = analysis.groups();
        groups.iter().map(|group| (heading(&report, group), beginning(&report, group))).collect()
    }

    #[test]
    fn a_heading_names_the_condition_and_whatever_else_differs_between_groups() {
        let mut first = cell(0, 0, Protocol::H1, 4, 0.0);
        let uplink = first.link.clone().unwrap().uplink;
        let downlink = Impairment { delay: Duration::from_millis(5), ..uplink.clone() };
        first.link = Some(LinkSpec { uplink, downlink });
        let mut second = cell(1, 1, Protocol::H1, 4, 0.0);
        second.target = Target::Url { url: "http://a/".to_owned() };
        second.work.arrival = Arrival::Constant { rate: 50.0 };
        second.link = None;
        let headings: Vec<String> =
            conditions(&[first, second]).into_iter().map(|(heading, _)| heading).collect();
        let expected = [
            "uplink delay 12.5ms, downlink delay 5ms, cubic, 1,000 requests/s, origin",
            "the network as it is, cubic, 50 requests/s, http://a/",
        ];
        assert_eq!(headings, expected);
    }

    #[test]
    fn a_sentence_begins_with_what_tells_its_group_from_the_others_and_no_more() {
        let beginnings = |cells: &[Cell]| -> Vec<Option<String>> {
            conditions(cells).into_iter().map(|(_, beginning)| beginning).collect()
        };
        let lossy = |group, loss| cell(group, group, Protocol::H1, 4, loss);
        assert_eq!(beginnings(&[lossy(0, 0.03)]), [None]);
        let words = |texts: [&str; 2]| texts.map(|text| Some(text.to_owned()));
        assert_eq!(beginnings(&[lossy(0, 0.0), lossy(1, 0.03)]), words(["Without loss", "At 3% loss"]));
        let mut bursts = lossy(1, 0.03);
        let model = LossModel::gilbert_elliott(Ratio::new(0.03).unwrap(), 3.0);
        let impairment = Impairment { loss: model, ..bursts.link.unwrap().uplink };
        bursts.link = Some(LinkSpec::symmetric(impairment));
        let told = ["At loss 3% (bernoulli)", "At loss 3% (gilbert-elliott)"];
        assert_eq!(beginnings(&[lossy(0, 0.03), bursts]), words(told));
    }
}

//! The condition that a group of cells was measured under: its heading, and what distinguishes it from the others.

use std::fmt::Write;
use std::net::IpAddr;

use super::Report;
use super::format::{count, number, per_second, rate};
use h2lab_analysis::stats::CellSummary;
use h2lab_base::units::{Ratio, format_bytes, format_duration};
use h2lab_link::{Extent, Impairment, JitterOrder, LossModel, LossPer, QueueDiscipline};
use h2lab_model::scenario::{Cell, Target};
use h2lab_model::workload::Arrival;

/// One aspect of a condition.
#[derive(Clone)]
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

/// The heading of a link without loss.
const NO_LOSS: &str = "no loss";
/// The heading of a link of unlimited capacity, where others have a limit.
const UNLIMITED: &str = "unlimited bandwidth";
/// The headings of links without an impairment that others have.
const WITHOUT: [&str; 4] = [UNLIMITED, "no reordering", "no duplicates", "no corruption"];

/// The heading of a group: `RTT 25ms, loss 3% (bernoulli), cubic`, and what else differs between groups.
pub(super) fn heading(report: &Report<'_>, group: &[&CellSummary]) -> String {
    let always = [
        "rtt",
        "loss",
        "bandwidth",
        "reorder",
        "duplicate",
        "corrupt",
        "events",
        "up",
        "down",
        "link",
        "congestion",
        "sysctl",
    ];
    let is_reported =
        |aspect: &Aspect| always.contains(&aspect.place) && !WITHOUT.contains(&aspect.long.as_str());
    let all = all(report);
    let rendered =
        aspects(report, group).into_iter().filter(|aspect| is_reported(aspect) || differs(aspect, &all));
    let is_alike = |aspect: &Aspect| aspect.place == "sysctl" && !differs(aspect, &all);
    let (alike, rendered): (Vec<Aspect>, Vec<Aspect>) = rendered.partition(is_alike);
    let mut rendered: Vec<String> = rendered.into_iter().map(|aspect| aspect.long).collect();
    match alike.as_slice() {
        // Several that all groups have are in the facts; here they would hide what distinguishes the groups.
        [_, _, ..] => rendered.push(format!("{} sysctls", alike.len())),
        few => rendered.extend(few.iter().map(|aspect| aspect.long.clone())),
    }
    rendered.join(", ")
}

/// What distinguishes a group from the others: `3% loss`; nothing if there is only one group.
pub(super) fn distinction(report: &Report<'_>, group: &[&CellSummary]) -> Option<String> {
    let all = all(report);
    let rendered = aspects(report, group).into_iter().filter(|aspect| differs(aspect, &all));
    let words = rendered.map(|aspect| if is_clear(&aspect, &all) { aspect.short } else { aspect.long });
    Some(words.collect::<Vec<_>>().join(", ")).filter(|text| !text.is_empty())
}

/// The same as the beginning of a sentence: `At 3% loss`.
pub(super) fn beginning(report: &Report<'_>, group: &[&CellSummary]) -> Option<String> {
    distinction(report, group).map(|text| match text.strip_prefix("no ") {
        Some(what) if !what.contains(", ") => format!("Without {what}"),
        _ => format!("At {text}"),
    })
}

/// What distinguishes conditions besides their headlines, whatever side it is on: `bbr, bandwidth 10mbit`; nothing where nothing
/// else differs. A condition is given as a group of its cells. Its headline has the round trip and the loss, as `RTT 25ms` and
/// `3% loss`: the rest of these two is rendered only where headlines are alike.
pub(super) fn besides(
    report: &Report<'_>,
    groups: &[Vec<&CellSummary>],
    headlines: &[[String; 2]],
) -> Vec<String> {
    let of_condition = |group: &Vec<&CellSummary>| -> Vec<Aspect> {
        aspects(report, group).into_iter().filter(|aspect| aspect.place != "target").collect()
    };
    let all: Vec<Vec<Aspect>> = groups.iter().map(of_condition).collect();
    let rendered = |(aspects, headline): (&Vec<Aspect>, &[String; 2])| {
        let is_alike = |(_, other): &(&Vec<Aspect>, &[String; 2])| *other == headline;
        let alike: Vec<Vec<Aspect>> =
            all.iter().zip(headlines).filter(is_alike).map(|(aspects, _)| aspects.clone()).collect();
        let is_reported = |aspect: &&Aspect| match aspect.place {
            "rtt" | "loss" | "up" | "down" => differs(aspect, &alike),
            _ => differs(aspect, &all),
        };
        let words = aspects.iter().filter(is_reported).map(|aspect| beneath_headline(aspect, headline));
        words.filter(|words| !words.is_empty()).collect::<Vec<_>>().join(", ")
    };
    all.iter().zip(headlines).map(rendered).collect()
}

/// What an aspect adds to the headline above it: of `RTT 25ms ± 2ms` only `± 2ms`, of `loss 3% (bernoulli)` only `bernoulli`.
fn beneath_headline(aspect: &Aspect, [rtt, loss]: &[String; 2]) -> String {
    let share = loss.strip_suffix(" loss").unwrap_or(loss);
    let rest = match aspect.place {
        "rtt" => aspect.long.strip_prefix(rtt.as_str()).map(str::trim_start),
        "loss" if aspect.long == NO_LOSS => Some(""),
        "loss" => {
            aspect.long.strip_prefix(&format!("loss {share} (")).and_then(|rest| rest.strip_suffix(')'))
        }
        _ => None,
    };
    rest.unwrap_or(&aspect.long).to_owned()
}

/// The aspects of every group.
fn all(report: &Report<'_>) -> Vec<Vec<Aspect>> {
    report.analysis.groups().iter().map(|group| aspects(report, group)).collect()
}

/// Whether an aspect is not the same in all groups. That something is absent is rendered only where another link, alike in both
/// directions too, has it: an asymmetric link has its directions rendered in full.
fn differs(aspect: &Aspect, all: &[Vec<Aspect>]) -> bool {
    if aspect.long != UNLIMITED && WITHOUT.contains(&aspect.long.as_str()) {
        return all.iter().flatten().any(|other| other.place == aspect.place && other.long != aspect.long);
    }
    let is_there = |group: &Vec<Aspect>| {
        group.iter().any(|other| other.place == aspect.place && other.long == aspect.long)
    };
    !all.iter().all(is_there)
}

/// Whether the short form distinguishes the aspect from all others of its place.
fn is_clear(aspect: &Aspect, all: &[Vec<Aspect>]) -> bool {
    let same_place = all.iter().flatten().filter(|other| other.place == aspect.place);
    same_place.filter(|other| other.short == aspect.short).all(|other| other.long == aspect.long)
}

/// The aspects of a group's condition, in the order in which they are printed.
fn aspects(report: &Report<'_>, group: &[&CellSummary]) -> Vec<Aspect> {
    let Some(summary) = group.first() else { return Vec::new() };
    let cell = &summary.cell;
    let mut aspects = Vec::new();
    match &cell.link {
        Some(link) if link.uplink == link.downlink => symmetric(&link.uplink, &mut aspects),
        Some(link) => {
            let direction = |name, way: &Impairment| {
                let bursts = bursts(way.loss).map_or(String::new(), |bursts| format!(" in {bursts}"));
                format!("{name} {way}{bursts}")
            };
            aspects.push(Aspect::new("up", direction("uplink", &link.uplink)));
            aspects.push(Aspect::new("down", direction("downlink", &link.downlink)));
        }
        // Over what the packets of a capture went is not known.
        None if report.is_of_packets() => {}
        None if matches!(&cell.target, Target::Url { url } if !is_loopback(url)) => {
            aspects.push(Aspect::new("link", "live network, no emulation".to_owned()));
        }
        None => aspects.push(Aspect::new("link", "loopback".to_owned())),
    }
    // As read back; for an unmeasured cell as configured.
    let congestion = group.iter().find_map(|one| one.congestion.clone()).or_else(|| cell.congestion.clone());
    aspects.extend(congestion.map(|name| Aspect::new("congestion", name)));
    aspects.extend(cell.sysctls.rendered().map(|sysctl| Aspect::new("sysctl", sysctl)));
    aspects.extend(cell.client.rendered().into_iter().map(|set| Aspect::new("client", set)));
    let of_server = |set: String| Aspect::new("server", format!("server's {set}"));
    aspects.extend(cell.server.rendered().into_iter().map(of_server));
    aspects.push(Aspect::new("work", offered(cell)));
    if cell.work.bulk {
        aspects.push(Aspect::new("path", cell.work.path.clone()));
    }
    aspects.push(Aspect::new("shape", format!("{} headers", cell.work.shape)));
    // How long a client was seen is no condition of its requests.
    if !report.is_of_packets() {
        aspects.push(Aspect::new("measure", measured_time(cell)));
    }
    aspects.push(Aspect::new("target", cell.parties()));
    let scenario = &report.run.scenario;
    let seed = scenario.seed_of(cell.group).filter(|_| scenario.seed.varies());
    aspects.extend(seed.map(|seed| Aspect::new("seed", format!("seed {seed}"))));
    aspects
}

/// `a measured time of 5s`
pub(super) fn measured_time(cell: &Cell) -> String {
    format!("a measured time of {}", format_duration(cell.work.phases.measure))
}

/// Whether a URL names this machine by its loopback device.
fn is_loopback(url: &str) -> bool {
    let authority = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let host = match host.strip_prefix('[') {
        Some(literal) => literal.split(']').next(),
        None => host.split(':').next(),
    };
    let host = host.unwrap_or_default();
    let is_name = host.eq_ignore_ascii_case("localhost") || host.to_ascii_lowercase().ends_with(".localhost");
    is_name || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn symmetric(impairment: &Impairment, aspects: &mut Vec<Aspect>) {
    let mut rtt = format!("RTT {}", format_duration(impairment.delay * 2));
    if !impairment.jitter.is_zero() {
        let _ = write!(rtt, " ± {}", format_duration(impairment.jitter * 2));
        if impairment.jitter_order == JitterOrder::Free {
            rtt.push_str(" in free order");
        }
    }
    aspects.push(Aspect::new("rtt", rtt));
    aspects.push(match impairment.loss {
        LossModel::None => Aspect::new("loss", NO_LOSS.to_owned()),
        model => {
            let bursts = bursts(model).map_or(String::new(), |bursts| format!(", {bursts}"));
            let per = if impairment.loss_per == LossPer::Connection { ", per connection" } else { "" };
            Aspect {
                place: "loss",
                long: format!("loss {} ({}{bursts}{per})", model.share(), model.name()),
                short: format!("{} loss", model.share()),
            }
        }
    });
    let bandwidth = impairment.bandwidth.map(|bandwidth| {
        let queue =
            impairment.queue_bytes.map_or(String::new(), |bytes| format!(", queue {}", format_bytes(bytes)));
        let codel = match impairment.queue_discipline {
            QueueDiscipline::DropTail => String::new(),
            codel @ QueueDiscipline::Codel { .. } => format!(", {codel}"),
        };
        format!("bandwidth {bandwidth}{queue}{codel}")
    });
    aspects.push(Aspect::new("bandwidth", bandwidth.unwrap_or_else(|| UNLIMITED.to_owned())));
    let [_, in_order, single, intact] = WITHOUT;
    let reorder = impairment.reorder;
    for (place, share, value, without) in [
        ("reorder", reorder.share, reorder.to_string(), in_order),
        ("duplicate", impairment.duplicate, impairment.duplicate.to_string(), single),
        ("corrupt", impairment.corrupt, impairment.corrupt.to_string(), intact),
    ] {
        let rendered = if share == Ratio::ZERO { without.to_owned() } else { format!("{place} {value}") };
        aspects.push(Aspect::new(place, rendered));
    }
    // The same in every cell of a scenario.
    aspects.extend(impairment.events().into_iter().map(|event| Aspect::new("events", event)));
}

/// The burst length of a loss model, where it is not the default.
fn bursts(model: LossModel) -> Option<String> {
    match model.extent()? {
        Extent::Packets(packets) => {
            let is_default = (packets - LossModel::DEFAULT_BURST).abs() < 1e-9;
            (!is_default).then(|| format!("bursts of {}", number(packets)))
        }
        Extent::Time(time) => Some(format!("bursts of {}", format_duration(time))),
    }
}

/// The work in a few words: `1,000 requests/s`, `32 in flight`.
pub(super) fn offered(cell: &Cell) -> String {
    match cell.work.arrival {
        Arrival::Closed { concurrency } => format!("{} in flight", count(u64::from(concurrency))),
        Arrival::Constant { rate: rps } => per_second(rps, "request"),
        Arrival::Poisson { rate: rps } => format!("{} (Poisson)", per_second(rps, "request")),
        Arrival::Ramp { from, to, .. } => format!("{} to {} requests/s", rate(from), rate(to)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study;
    use h2lab_analysis::stats::{Study, analyse};
    use h2lab_link::LinkSpec;
    use h2lab_model::record::RunRecord;
    use h2lab_model::record::testing::{Model, cell, one_repetition, run};
    use h2lab_model::scenario::plan::testing::scenarios;
    use h2lab_model::workload::Protocol;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::time::Duration;

    /// Headings and beginnings of groups of one cell each.
    fn conditions(cells: &[Cell]) -> Vec<(String, Option<String>)> {
        let run = run(cells.iter().map(|cell| one_repetition(cell, 0, &Model::CLEAN)).collect());
        let analysis = analyse(&run);
        let report = Report {
            run: &run,
            analysis: &analysis,
            findings: &[],
            causes: &[],
            folder: None,
            page: None,
            conditions: &[],
        };
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
            "live network, no emulation, cubic, 50 requests/s, http://a/",
        ];
        assert_eq!(headings, expected);
        let [mut long, short] = [0, 1].map(|group| cell(group, group, Protocol::H1, 4, 0.0));
        long.work.phases.measure = Duration::from_secs(9);
        let beginning = conditions(&[long, short]).remove(0).1;
        assert_eq!(beginning.as_deref(), Some("At a measured time of 9s"), "and no bare number");
    }

    #[test]
    fn a_live_server_on_this_machine_is_reached_over_loopback() {
        for url in
            ["http://127.0.0.1:80/", "https://localhost/x", "http://a.localhost", "http://u:p@[::1]:8?x"]
        {
            assert!(is_loopback(url), "{url}");
        }
        for url in
            ["http://a/", "http://localhost.example/", "http://10.0.0.1/127.0.0.1", "http://[2001:db8::1]/"]
        {
            assert!(!is_loopback(url), "{url}");
        }
    }

    #[test]
    fn a_sentence_begins_with_what_distinguishes_its_group_and_no_more() {
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
        let rendered = ["At loss 3% (bernoulli)", "At loss 3% (gilbert-elliott)"];
        assert_eq!(beginnings(&[lossy(0, 0.03), bursts]), words(rendered));
    }
    #[test]
    fn a_group_is_named_by_what_only_the_others_have() {
        let with = |group, bandwidth: &str, up: f64| {
            let mut cell = cell(group, group, Protocol::H1, 4, 0.03);
            let mut link = cell.link.unwrap();
            link.uplink.loss = LossModel::bernoulli(Ratio::new(up).unwrap());
            link.uplink.bandwidth = bandwidth.parse().ok();
            link.downlink.bandwidth = bandwidth.parse().ok();
            cell.link = Some(link);
            cell
        };
        let beginnings = |cells: &[Cell]| -> Vec<String> {
            conditions(cells).into_iter().map(|(_, beginning)| beginning.unwrap_or_default()).collect()
        };
        let rendered = ["At unlimited bandwidth", "At bandwidth 10mbit"];
        assert_eq!(beginnings(&[with(0, "", 0.03), with(1, "10mbit", 0.03)]), rendered);
        let rendered = [
            "At RTT 25ms, 3% loss, unlimited bandwidth",
            "At uplink delay 12.5ms, downlink delay 12.5ms, loss 3% (bernoulli)",
        ];
        assert_eq!(beginnings(&[with(0, "", 0.03), with(1, "", 0.0)]), rendered);
        assert_eq!(conditions(&[with(0, "", 0.03)])[0].0, "RTT 25ms, loss 3% (bernoulli), cubic");
    }

    #[test]
    fn what_only_some_links_do_is_shown_of_all() {
        let with = |group, change: &dyn Fn(&mut Impairment)| {
            let mut cell = cell(group, group, Protocol::H1, 4, 0.03);
            let mut impairment = cell.link.unwrap().uplink;
            change(&mut impairment);
            cell.link = Some(LinkSpec::symmetric(impairment));
            cell
        };
        let plain = with(0, &|_| {});
        let doubled = with(1, &|way| way.duplicate = Ratio::new(0.01).unwrap());
        let rendered = conditions(&[plain.clone(), doubled]);
        assert_eq!(
            rendered[0],
            ("RTT 25ms, loss 3% (bernoulli), no duplicates, cubic".into(), Some("Without duplicates".into()))
        );
        assert_eq!(rendered[1].0, "RTT 25ms, loss 3% (bernoulli), duplicate 1%, cubic");
        let codel = with(0, &|way| {
            way.bandwidth = "10mbit".parse().ok();
            way.queue_discipline = QueueDiscipline::CODEL;
            way.loss = LossModel::BurstByTime { share: way.loss.share(), length: Duration::from_millis(20) };
            way.loss_per = LossPer::Connection;
            way.blackouts = vec!["1s..2s".parse().unwrap()];
        });
        let expected = "RTT 25ms, loss 3% (burst by time, bursts of 20ms, per connection), bandwidth 10mbit, codel, \
                        black-out 1s..2s, cubic";
        assert_eq!(conditions(&[codel])[0].0, expected);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn groups_have_distinct_headings_whatever_axis_differs(scenario in scenarios()) {
            let plan = scenario.plan();
            let mut firsts: Vec<Cell> = Vec::new();
            for cell in plan {
                if firsts.last().is_none_or(|last| last.group != cell.group) {
                    firsts.push(cell);
                }
            }
            prop_assume!(firsts.len() <= 64);
            let repetitions = firsts.iter().map(|cell| {
                let mut quiet = cell.clone();
                quiet.work.arrival = Arrival::Constant { rate: 2.0 };
                let mut record = one_repetition(&quiet, 0, &Model::CLEAN);
                record.cell.work.arrival = cell.work.arrival;
                record.environment.congestion_client = cell.congestion.clone().unwrap_or_default();
                record
            });
            let run = RunRecord { scenario: scenario.clone(), ..run(repetitions.collect()) };
            let analysis = analyse(&run);
            let report = Report { run: &run, analysis: &analysis, findings: &[], causes: &[], folder: None, page: None, conditions: &[] };
            let groups = analysis.groups();
            let headings: BTreeSet<String> = groups.iter().map(|group| heading(&report, group)).collect();
            let beginnings: BTreeSet<_> = groups.iter().map(|group| beginning(&report, group)).collect();
            prop_assert_eq!((headings.len(), beginnings.len()), (firsts.len(), firsts.len()));
            let study = Study::of(&analysis, &scenario);
            let named: BTreeSet<String> =
                study::conditions(&report, &study).iter().map(study::ConditionLabel::line).collect();
            prop_assert_eq!(named.len(), study.conditions.len());
            let cells = study.configurations.iter().flat_map(|way| way.cells.iter().flatten()).count();
            prop_assert_eq!(cells, firsts.len());
        }
    }
}

//! A study in words and tables: what text, JSON and HTML have in common.

use super::format::{count, interval_of, millis, number, ratio};
use super::style::{Paint, TextStyle, painted};
use super::table::{self, Column};
use super::{Report, condition, fold};
use h2lab_analysis::stats::study::{Condition, Configuration, Need, Needed, Study};
use h2lab_analysis::stats::{CellState, CellSummary, Tail};
use h2lab_base::units::{Ratio, format_duration};
use h2lab_model::scenario::{Cell, Topology};
use h2lab_model::workload::Protocol;

/// In the place of a figure that is not known.
const UNKNOWN: &str = "?";

/// The study of a run whose scenario asks for one.
pub(super) fn of(report: &Report<'_>) -> Option<Study> {
    let study = report.run.scenario.study.then(|| Study::of(report.analysis, &report.run.scenario));
    study.filter(|study| !study.configurations.is_empty())
}

/// The name of a condition, unique among the others.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(super) struct ConditionLabel {
    /// `RTT 25ms`.
    pub rtt: String,
    /// `3% loss`.
    pub loss: String,
    /// What else differs between conditions: see [`condition::besides`]. Empty if nothing does.
    pub rest: String,
}

impl ConditionLabel {
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
pub(super) fn conditions(report: &Report<'_>, study: &Study) -> Vec<ConditionLabel> {
    let headline = |condition: &Condition| {
        let loss = Ratio::new(condition.loss).map_or_else(String::new, |share| format!("{share} loss"));
        [format!("RTT {}", format_duration(condition.rtt)), loss]
    };
    let headlines: Vec<[String; 2]> = study.conditions.iter().map(headline).collect();
    let groups = report.analysis.groups();
    let group = |condition: &Condition| {
        let is_its = |group: &&Vec<&CellSummary>| group.iter().any(|one| one.cell.index == condition.first);
        groups.iter().find(is_its).expect("a condition is of a group").clone()
    };
    let besides =
        condition::besides(report, &study.conditions.iter().map(group).collect::<Vec<_>>(), &headlines);
    headlines.into_iter().zip(besides).map(|([rtt, loss], rest)| ConditionLabel { rtt, loss, rest }).collect()
}

/// The multiplexed protocols among these, by the names of HTTP's versions: `HTTP/2`, `HTTP/2 and HTTP/3`.
pub(super) fn versions(protocols: impl IntoIterator<Item = Protocol>) -> String {
    let version = |protocol: Protocol| if protocol.is_quic() { "HTTP/3" } else { "HTTP/2" };
    let shared = protocols.into_iter().filter(|protocol| protocol.is_multiplexed());
    let named: std::collections::BTreeSet<&str> = shared.map(version).collect();
    named.into_iter().collect::<Vec<_>>().join(" and ")
}

/// The parties in a few words: `direct`, `envoy sidecar`, `two envoys`; with the target where it differs.
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

/// The name of a configuration: `two envoys, h2c × 1`.
pub(super) fn configuration(report: &Report<'_>, configuration: &Configuration) -> String {
    let cell = configuration.cells.iter().flatten().find_map(|index| report.analysis.cell(*index));
    let parties =
        cell.map_or_else(|| configuration.parties.clone(), |summary| parties(report, &summary.cell));
    format!("{parties}, {}", configuration.label)
}

/// The tail of a cell in milliseconds, or its state in a word.
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
        Needed::AtMost(n) => format!("≤{}", count(u64::from(n))),
        Needed::MoreThan(n) => format!(">{}", count(u64::from(n))),
        Needed::CameOut { held, matches } => {
            let word = matches.map_or("undecided", |matches| if matches { "enough" } else { "too few" });
            format!("{}, {word}", number(held))
        }
        Needed::Undecided { connections, tail } => {
            let connections = count(u64::from(connections));
            let measured = tail.and_then(|tail| {
                let interval = interval_of([tail.ratio, tail.low, tail.high], "–")?;
                Some(format!(" at {} × ({interval})", ratio(tail.ratio)))
            });
            format!("undecided: {connections}{}", measured.unwrap_or_default())
        }
        Needed::Unknown => UNKNOWN.to_owned(),
    }
}

/// A table of the study: a row for each configuration or need, a column for each condition.
#[derive(Debug)]
pub(super) struct Matrix {
    /// Its title.
    pub title: String,
    /// How to read it.
    pub key: String,
    /// Name and figures of each row.
    pub rows: Vec<(String, Vec<String>)>,
}

/// The tables of a study: tails, ramps, connections needed.
pub(super) fn matrices(report: &Report<'_>, study: &Study) -> Vec<Matrix> {
    let cells = |figure: &dyn Fn(&CellSummary) -> String| -> Vec<(String, Vec<String>)> {
        let of = |index: &Option<u32>| {
            index.and_then(|index| report.analysis.cell(index)).map_or("-".to_owned(), figure)
        };
        study
            .configurations
            .iter()
            .map(|one| (configuration(report, one), one.cells.iter().map(of).collect()))
            .collect()
    };
    let ramps = |summary: &CellSummary| {
        // Of a cell that has no sound result the requests say nothing.
        let is_sound = matches!(summary.state, CellState::Ok | CellState::Unstable { .. });
        match study.ramps_of(summary.cell.index).filter(|_| is_sound) {
            Some(ramps) => ramps.share().map_or("-".to_owned(), |share| format!("{:.0}%", share * 100.0)),
            None => UNKNOWN.to_owned(),
        }
    };
    let tails = Matrix {
        title: "Tail: p99 of the response time, ms".to_owned(),
        key: "* p95, where fewer than 50 requests lie above the p99; unstable: does not carry the load"
            .to_owned(),
        rows: cells(&tail),
    };
    let ramps = Matrix {
        title: "Share of the delayed requests that lie on ramps".to_owned(),
        key: "delayed: by 10 ms and twice as long as the fastest twentieth; on lines of slope -1 (± 10 %): sent one \
             after another, answered together; - where no request is delayed; ? not measured reliably, or not every \
             request was kept"
            .to_owned(),
        rows: cells(&ramps),
    };
    [Some(tails), Some(ramps), needs(report, study)].into_iter().flatten().collect()
}

/// The name of a need: `two envoys, h2c`.
pub(super) fn need(report: &Report<'_>, study: &Study, need: &Need) -> String {
    let is_of = |configuration: &&Configuration| configuration.parties == need.parties;
    let of = study
        .configurations
        .iter()
        .find(is_of)
        .and_then(|configuration| configuration.cells.iter().flatten().next());
    let cell = of.and_then(|index| report.analysis.cell(*index));
    let parties = cell.map_or_else(|| need.parties.clone(), |summary| parties(report, &summary.cell));
    format!("{parties}, {}", need.label)
}

/// The table of connections; none where no multiplexed protocol is compared with HTTP/1.1.
fn needs(report: &Report<'_>, study: &Study) -> Option<Matrix> {
    let row = |one: &Need| (need(report, study, one), one.found.iter().copied().map(needed).collect());
    let mut rows: Vec<(String, Vec<String>)> = study.needs.iter().map(row).collect();
    let predicted =
        |condition: &Condition| condition.predicted.map_or("-".to_owned(), |n| count(u64::from(n)));
    rows.push(("PFTK model: to carry the load".to_owned(), study.conditions.iter().map(predicted).collect()));
    let versions = versions(study.needs.iter().map(|need| need.protocol));
    let verb = if versions.contains(" and ") { "need" } else { "needs" };
    (rows.len() > 1).then(|| Matrix {
        title: format!("Connections that {versions} {verb} to match HTTP/1.1"),
        key: "the smallest number tried whose tail is at most 10 % slower, ≤ if fewer are undecided or were not measured \
             reliably; > more than the largest tried; undecided: the smallest number whose verdict is undecided, with the \
             ratio of the tails; ? not measured reliably; where the proxy decides, the number it held"
            .to_owned(),
        rows,
    })
}

/// Appends the study's tables to a report for a terminal.
pub(super) fn text(out: &mut String, report: &Report<'_>, style: TextStyle) {
    let Some(study) = of(report) else { return };
    let named = conditions(report, &study);
    for matrix in matrices(report, &study) {
        out.push('\n');
        painted(out, style, Paint::Bold, "", &matrix.title);
        match side_by_side(&named, &matrix.rows, style) {
            Some(table) => *out += &table,
            None => blocks(out, &named, &matrix.rows, style),
        }
        painted(out, style, Paint::Dim, "", &matrix.key);
    }
}

/// Rows with a column for each condition, in several parts if they are too wide; `None` on a terminal that is narrower than
/// tables are, and if a name and one figure have no room beside each other, so that a column would be left out.
fn side_by_side(
    named: &[ConditionLabel],
    rows: &[(String, Vec<String>)],
    style: TextStyle,
) -> Option<String> {
    const NAME: Column = table::name("");
    const FIGURE: Column = table::number("", "");
    if style.is_narrow() {
        return None;
    }
    let columns: Vec<Column> = std::iter::once(NAME).chain(named.iter().map(|_| FIGURE)).collect();
    let heads: [fn(&ConditionLabel) -> &str; 3] = [|one| &one.rtt, |one| &one.loss, |one| &one.rest];
    let mut table: Vec<Vec<String>> = heads
        .iter()
        .map(|head| std::iter::once("").chain(named.iter().map(head)).map(str::to_owned).collect())
        .filter(|row: &Vec<String>| row.iter().any(|piece| !piece.is_empty()))
        .collect();
    let headers = table.len();
    table
        .extend(rows.iter().map(|(name, figures)| [std::slice::from_ref(name), figures.as_slice()].concat()));
    let mut out = String::new();
    for part in table::parts(&columns, &table, style.limit()) {
        let columns = table::picked(&columns, &part);
        let rows: Vec<Vec<String>> = table.iter().map(|row| table::picked(row, &part)).collect();
        if table::left_out(&columns, &rows, style.limit()).is_some() {
            return None;
        }
        for (k, line) in table::lay_out(&columns, &rows, style.limit()).into_iter().skip(2).enumerate() {
            out += &if k < headers { style.paint(Paint::Dim, &line) } else { line };
            out.push('\n');
        }
    }
    Some(out)
}

/// The name of each row, and below it a line for each condition.
fn blocks(out: &mut String, named: &[ConditionLabel], rows: &[(String, Vec<String>)], style: TextStyle) {
    for (name, figures) in rows {
        let lines = named.iter().zip(figures);
        let lines = lines.map(|(condition, figure)| format!("{}: {figure}", condition.line()));
        *out += &fold::block(name, lines, style);
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::testing::Fixture;
    use super::*;
    use h2lab_analysis::stats::RatioInterval;

    #[test]
    fn the_tables_of_a_study_stand_before_the_verdicts() {
        let fixture = Fixture::study();
        let all = crate::text(&[fixture.report()], TextStyle::default());
        let from = all.find("Tail: p99").expect("it is there");
        let to = all.find("\nVerdicts").expect("it is there");
        insta::assert_snapshot!(&all[from..to]);
        assert!(!crate::text(&[Fixture::new().report()], TextStyle::default()).contains("on ramps"));
    }

    /// The tables of a study on a terminal of so many columns; no line is wider.
    fn shown_at(report: &Report<'_>, width: usize) -> String {
        let mut out = String::new();
        text(&mut out, report, TextStyle { width, ..TextStyle::default() });
        assert!(out.lines().all(|line| line.chars().count() <= width), "{width}: {out}");
        out
    }

    #[test]
    fn a_table_without_room_for_a_figure_beside_its_name_becomes_blocks_of_lines() {
        let fixture = Fixture::study();
        let report = fixture.report();
        let figure = "undecided: 16 at 1.83 × (0.89–2.46)";
        let narrow = shown_at(&report, 40);
        let tails = "\nTail: p99 of the response time, ms\ndirect, h1\n  RTT 25ms, 0% loss: 25.5\n  \
                     RTT 25ms, 3% loss: 276\n";
        let needs = "to match\nHTTP/1.1\ndirect, h2c\n  RTT 25ms, 0% loss: 1\n  \
                     RTT 25ms, 3% loss: undecided: 16 at\n  1.83 × (0.89–2.46)\n\
                     PFTK model: to carry the load\n  RTT 25ms, 0% loss: 1\n  RTT 25ms, 3% loss: 5\n";
        assert!(narrow.contains(tails) && narrow.contains(needs), "{narrow}");
        let medium = shown_at(&report, 60);
        assert!(medium.contains("\ndirect, h1            25.5       276\n"), "it has room: {medium}");
        let block = format!("\ndirect, h2c\n  RTT 25ms, 0% loss: 1\n  RTT 25ms, 3% loss: {figure}\n");
        assert!(medium.contains(&block), "{medium}");
        let wide = shown_at(&report, 80);
        let row = wide.lines().find(|line| line.starts_with("direct, h2c  ")).expect("it has room");
        assert!(row.ends_with(&format!(" 1  {figure}")), "{wide}");
    }

    #[test]
    fn no_column_is_left_out_however_wide_its_figures_are() {
        let label = |rtt: &str| ConditionLabel {
            rtt: rtt.to_owned(),
            loss: "3% loss".to_owned(),
            rest: String::new(),
        };
        let named = ["RTT 10ms", "RTT 25ms"].map(label);
        let rows = |width: usize| [("n".repeat(20), vec!["1".to_owned(), "f".repeat(width)])];
        let style = |width| TextStyle { width, ..TextStyle::default() };
        for width in [60, 80] {
            // A name of 20, a space, and the figure.
            let table = side_by_side(&named, &rows(width - 21), style(width)).expect("it has room");
            assert!(table.contains(&"f".repeat(width - 21)), "{table}");
            assert!(table.lines().all(|line| line.len() <= width), "{table}");
            assert_eq!(side_by_side(&named, &rows(width - 20), style(width)), None);
        }
        assert_eq!(side_by_side(&named, &rows(1), style(40)), None);
        let mut out = String::new();
        blocks(&mut out, &named, &rows(30), style(40));
        let figure = "f".repeat(30);
        let block = format!("{}\n  RTT 10ms, 3% loss: 1\n  RTT 25ms, 3% loss:\n  {figure}\n", "n".repeat(20));
        assert_eq!(out, block);
    }

    #[test]
    fn ramps_of_a_cell_without_a_sound_result_are_unknown_and_not_none() {
        let mut fixture = Fixture::study();
        let shares = |fixture: &Fixture| {
            let report = fixture.report();
            let all = matrices(&report, &of(&report).unwrap());
            all[1].rows.iter().map(|(_, figures)| figures.join(" ")).collect::<Vec<_>>()
        };
        assert_eq!(shares(&fixture), ["- 0%", "- 76%", "- 58%", "- 47%"]);
        let why = || "it does not speak it".to_owned();
        for (cell, state) in [
            (0, CellState::Invalid { reasons: vec!["the link was late".to_owned()] }),
            (1, CellState::Unsupported { why: why() }),
            (5, CellState::Failed { why: why(), how: h2lab_analysis::stats::Failed::NoResponse }),
        ] {
            let summary = fixture.analysis.cells.iter_mut().find(|one| one.cell.index == cell);
            summary.expect("it is there").state = state;
        }
        assert_eq!(shares(&fixture), ["? 0%", "? ?", "- 58%", "- 47%"]);
    }

    /// A ratio with its interval.
    fn interval(ratio: f64, low: f64, high: f64) -> RatioInterval {
        let [baseline, candidate] = [1.0, ratio].map(Duration::from_secs_f64);
        let (block, longest_stall) = (Duration::from_millis(250), Duration::ZERO);
        RatioInterval { share: 0.99, baseline, candidate, ratio, low, high, block, longest_stall, blocks: 12 }
    }

    /// Every figure of the document, formatted as in the tables, in their order.
    fn from_document(document: &crate::document::Document) -> Vec<Vec<(String, Vec<String>)>> {
        let study = document.study.as_ref().expect("it was asked for");
        let cell = |index: u32| document.cells.iter().find(|cell| cell.index == index).expect("it is there");
        let of_configurations = |figure: &dyn Fn(u32) -> String| -> Vec<(String, Vec<String>)> {
            let figure = |cell: &Option<u32>| cell.map_or_else(|| "-".to_owned(), figure);
            study
                .configurations
                .iter()
                .map(|configuration| {
                    (configuration.name.clone(), configuration.cells.iter().map(figure).collect())
                })
                .collect()
        };
        let tails = of_configurations(&|index| match cell(index) {
            one if one.state == "ok" => {
                number(one.latency_us.response.as_ref().expect("it has samples").p99 / 1000.0)
            }
            one => one.state.clone(),
        });
        let ramps = of_configurations(&|index| {
            let ramps = study.ramps.iter().find(|ramps| ramps.cell == index).expect("all were kept");
            let share = (ramps.slow > 0).then(|| ramps.slow_on_ramps as f64 / ramps.slow as f64);
            assert_eq!(share.map(|share| (share * 1e3).round() / 1e3), ramps.share);
            ramps.share.map_or("-".to_owned(), |share| format!("{:.0}%", share * 100.0))
        });
        let mut needs: Vec<(String, Vec<String>)> = Vec::new();
        for one in &study.needed {
            let found = match (one.connections, one.at_most, one.more_than, one.held, one.matches) {
                (Some(n), None, None, None, Some(true)) => Needed::Connections(n),
                (None, Some(n), None, None, Some(true)) => Needed::AtMost(n),
                (None, None, Some(n), None, Some(false)) => Needed::MoreThan(n),
                (None, None, None, Some(held), matches) => Needed::CameOut { held, matches },
                (None, None, None, None, None) => {
                    let tail = one.undecided_tail.map(|tail| interval(tail.ratio, tail.low, tail.high));
                    let undecided = |connections| Needed::Undecided { connections, tail };
                    one.undecided.map_or(Needed::Unknown, undecided)
                }
                other => panic!("{other:?} says nothing"),
            };
            match needs.iter_mut().find(|(name, _)| *name == one.name) {
                Some((_, figures)) => figures.push(needed(found)),
                None => needs.push((one.name.clone(), vec![needed(found)])),
            }
        }
        let predicted = study.conditions.iter().map(|one| one.predicted_connections);
        let predicted = predicted.map(|n| n.map_or("-".to_owned(), |n| n.to_string())).collect();
        needs.push(("PFTK model: to carry the load".to_owned(), predicted));
        vec![tails, ramps, needs]
    }

    #[test]
    fn the_document_has_the_same_figures_as_the_tables() {
        assert_eq!(crate::document(&Fixture::new().report()).study, None);
        let mut fixture = Fixture::study();
        // And the same behind a proxy that decides by itself.
        let behind = |repetition: &h2lab_model::record::CellRecord| {
            let mut repetition = repetition.clone();
            let name = "haproxy".to_owned();
            repetition.cell.target = h2lab_model::scenario::Target::Sut { name: name.clone() };
            repetition.cell.sidecar =
                Some(h2lab_model::scenario::Sidecar { name, warm_pool: 32, max_connections: 512 });
            repetition.sidecar =
                Some(h2lab_model::record::SidecarSummary { connections: 3, ..Default::default() });
            (repetition.cell.index, repetition.cell.group) =
                (repetition.cell.index + 100, repetition.cell.group + 100);
            repetition
        };
        let copies: Vec<_> = fixture.run.repetitions.iter().map(behind).collect();
        fixture.run.repetitions.extend(copies);
        fixture.analysis = h2lab_analysis::stats::analyse(&fixture.run);
        let report = fixture.report();
        let study = of(&report).expect("it was asked for");
        let document = crate::document(&report);
        let tables: Vec<_> = matrices(&report, &study).into_iter().map(|matrix| matrix.rows).collect();
        assert_eq!(from_document(&document), tables);
        assert!(tables[2][1].1[0].ends_with("enough"), "{tables:?}");
        assert!(tables[2][0].1[1].starts_with("undecided: 16 at "), "{tables:?}");
        assert!(crate::html(&[fixture.report()]).contains(&format!("<td>{}</td>", tables[2][0].1[1])));
        let document = document.study.unwrap();
        let condition_label: Vec<String> =
            conditions(&report, &study).iter().map(ConditionLabel::line).collect();
        assert_eq!(
            document.conditions.iter().map(|one| one.name.clone()).collect::<Vec<_>>(),
            condition_label
        );
        for (one, condition) in document.conditions.iter().zip(&study.conditions) {
            assert_eq!(
                (one.rtt_ms, one.loss),
                (h2lab_base::units::millis_f64(condition.rtt), condition.loss)
            );
        }
        for configuration in &document.configurations {
            let cell = &report.analysis.cell(configuration.cells[0].unwrap()).unwrap().cell;
            assert_eq!(
                (configuration.protocol, configuration.topology, &configuration.parties),
                (cell.protocol, cell.topology(), &cell.parties())
            );
            assert_eq!(
                configuration.sidecar.as_deref(),
                cell.sidecar.as_ref().map(|sidecar| sidecar.name.as_str())
            );
        }
        for one in &document.needed {
            let is_of = |configuration: &&crate::document::ConfigurationDocument| {
                (&configuration.parties, configuration.protocol) == (&one.parties, one.protocol)
            };
            assert!(
                document.configurations.iter().any(|configuration| is_of(&configuration)),
                "{one:?} is of no configuration"
            );
        }
        let places: Vec<usize> = document.needed.iter().map(|one| one.condition).collect();
        assert_eq!(places, [0, 1, 0, 1]);
    }

    /// The fixture's repetitions and the same again under another link.
    fn with_another_link(change: impl Fn(&mut h2lab_link::Impairment)) -> Fixture {
        let mut fixture = Fixture::study();
        let beside = |repetition: &h2lab_model::record::CellRecord| {
            let mut repetition = repetition.clone();
            (repetition.cell.index, repetition.cell.group) =
                (repetition.cell.index + 100, repetition.cell.group + 100);
            let link = repetition.cell.link.as_mut().expect("it is emulated");
            change(&mut link.uplink);
            change(&mut link.downlink);
            repetition
        };
        let others: Vec<_> = fixture.run.repetitions.iter().map(beside).collect();
        fixture.run.repetitions.extend(others);
        fixture.analysis = h2lab_analysis::stats::analyse(&fixture.run);
        fixture
    }

    #[test]
    fn whatever_else_differs_between_conditions_is_reported() {
        use h2lab_link::{LossModel, LossPer};
        let condition_label = |change: &dyn Fn(&mut h2lab_link::Impairment)| -> Vec<String> {
            let fixture = with_another_link(change);
            let study = of(&fixture.report()).unwrap();
            conditions(&fixture.report(), &study)
                .into_iter()
                .map(|condition_label| condition_label.rest)
                .collect()
        };
        let millis = Duration::from_millis;
        assert_eq!(
            condition_label(&|configuration| configuration.jitter = millis(1)),
            ["", "", "± 2ms", "± 2ms"]
        );
        let unlimited = "unlimited bandwidth";
        let limited = "bandwidth 10mbit";
        assert_eq!(
            condition_label(&|configuration| configuration.bandwidth = "10mbit".parse().ok()),
            [unlimited, unlimited, limited, limited]
        );
        let bursts = |length| {
            condition_label(&move |configuration| {
                if configuration.loss != LossModel::None {
                    configuration.loss = LossModel::burst(configuration.loss.share(), length);
                }
            })
        };
        assert_eq!(bursts(3), ["", "bernoulli", "burst"], "without loss there is nothing to distinguish");
        assert_eq!(bursts(4)[2], "burst, bursts of 4");
        let per_connection = condition_label(&|configuration| {
            if configuration.loss != LossModel::None {
                configuration.loss_per = LossPer::Connection;
            }
        });
        assert_eq!(per_connection, ["", "bernoulli", "bernoulli, per connection"]);
    }

    #[test]
    fn versions_of_http_are_named_once_and_only_those_that_share_connections() {
        use Protocol::{H1, H2, H2c, H3};
        assert_eq!(versions([H1, H2, H2c]), "HTTP/2");
        assert_eq!(versions([H3, H1, H3]), "HTTP/3");
        assert_eq!(versions([H3, H2]), "HTTP/2 and HTTP/3");
    }

    #[test]
    fn conditions_are_named_by_what_differs() {
        let mut fixture = Fixture::study();
        for repetition in fixture.run.repetitions.iter_mut().filter(|repetition| repetition.cell.group == 0) {
            (repetition.cell.congestion, repetition.environment.congestion_client) =
                (Some("bbr".to_owned()), "bbr".to_owned());
        }
        fixture.analysis = h2lab_analysis::stats::analyse(&fixture.run);
        let study = of(&fixture.report()).unwrap();
        let condition_label: Vec<String> =
            conditions(&fixture.report(), &study).iter().map(ConditionLabel::line).collect();
        assert_eq!(condition_label, ["RTT 25ms, 0% loss, bbr", "RTT 25ms, 3% loss, cubic"]);
        assert_eq!(
            study.conditions.iter().map(|condition| condition.predicted).collect::<Vec<_>>(),
            [None, Some(5)]
        );
    }

    #[test]
    fn numbers_of_connections_are_described_in_a_word() {
        let all = [
            Needed::Connections(4),
            Needed::AtMost(2),
            Needed::MoreThan(16),
            Needed::CameOut { held: 2.5, matches: Some(false) },
            Needed::CameOut { held: 1.0, matches: Some(true) },
            Needed::CameOut { held: 1.0, matches: None },
            Needed::Unknown,
        ];
        let words = ["4", "≤2", ">16", "2.50, too few", "1, enough", "1, undecided", "?"];
        assert_eq!(all.map(needed), words);
        let undecided = |tail| needed(Needed::Undecided { connections: 16, tail });
        assert_eq!(undecided(Some(interval(1.83, 0.89, 2.46))), "undecided: 16 at 1.83 × (0.89–2.46)");
        assert_eq!(undecided(None), "undecided: 16");
        assert_eq!(undecided(Some(interval(1.0, 0.01, 100.0))), "undecided: 16", "it says nothing");
    }
}

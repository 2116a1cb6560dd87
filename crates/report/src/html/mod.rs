//! Reports as HTML files that load nothing: the answer first, then the verdicts as a table, one picture, and the detail behind
//! lines that unfold it.
//!
//! Pictures are SVG written here rather than by a plotting library: hover notes, hatching, dark mode and print come
//! from the page's style sheet, which such a library's fixed colours and fonts would defeat.

mod axis;
mod bulk;
mod curves;
mod diagnosis;
mod fleet;
mod form;
mod latency_breakdown;
mod overlay;
mod parts;
mod probe;
mod raster;
mod scatter;
mod shell;
mod sidecar;
mod study;
mod svg;
mod tails;
mod template;
mod timeline;
mod timeline_study;
mod transfer;
mod verdicts;
mod ways;

pub use diagnosis::{diagnosis_page, findings_page};
pub use fleet::fleet_page;
pub use probe::probe_page;
pub use sidecar::sidecar_page;
pub use timeline::{timeline_page, timeline_svg};
pub use timeline_study::study_page;
pub use transfer::bulk_page;

use serde::Serialize;
use template::render;

use super::runs::{self, Compared};
use super::style::TextStyle;
use super::{Report, answer, condition, format, load_text, machines, notes, pairs, sentences, text};
use h2lab_analysis::stats::{CellSummary, RampSteps, measured_of_plan, repetitions_of};
use h2lab_model::record::{Level, LinkSummary, RunRecord};
use shell::{Repeat, Section, Shell};
use ways::Ways;

/// Every condition of a run.
#[derive(Serialize)]
struct Conditions {
    /// Whether all are shown unfolded.
    open: bool,
    /// Whether there was an emulated link.
    is_emulated: bool,
    columns: Vec<(String, String)>,
    groups: Vec<Group>,
}

#[derive(Serialize)]
struct Group {
    /// Its address in the page.
    id: String,
    heading: String,
    /// How large requests were, where that is known.
    sizes: Option<String>,
    curves: String,
    cells: Vec<CellBox>,
    /// What slow requests waited for, if that was analysed.
    causes: String,
}

#[derive(Serialize)]
struct CellBox {
    label: String,
    state: String,
    reason: Option<String>,
    /// How its connections ended, and how requests failed.
    notes: Vec<String>,
    /// How requests were recorded, where not all were kept.
    recorded: Option<&'static str>,
    row: Vec<String>,
    scatter: String,
    /// The latency breakdowns that marks of the scatter open, if there are any.
    breakdowns: String,
}

#[derive(Serialize)]
struct FindingsPart {
    /// For each rule, the hop that it is about.
    hops: Vec<String>,
    findings: Vec<FindingBox>,
    /// How many are shown unfolded.
    shown: usize,
    /// What they leave of each difference.
    unexplained: Vec<String>,
}

#[derive(Serialize)]
struct FindingBox {
    title: String,
    symptom: String,
    evidence: Vec<String>,
    cost: String,
    fixes: Vec<(String, String, String)>,
    confirm: String,
    rule: String,
}

/// A run against the first one: on narrow screens each row has its figures below each other.
#[derive(Serialize)]
struct Comparison {
    columns: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    doubts: Vec<String>,
}

/// The answer and the subject of one of several runs.
#[derive(Serialize)]
struct Lines {
    lines: Vec<String>,
}

#[derive(Serialize)]
struct Counted {
    text: String,
}

#[derive(Serialize)]
struct Facts {
    method: &'static str,
    facts: Vec<(String, String)>,
}

/// Findings that are shown unfolded, the costliest.
const SHOWN: usize = 3;
/// A run of more conditions has them folded.
const OPEN: usize = 1;

const METHOD: &str = "Response time: from when a request was due to the last byte of its response, so a stalled \
    client cannot hide its own waiting. Served: successful and complete within the measured time; completions in the \
    drain do not count. Percentiles are over all requests of all repetitions, exact where each request was kept; \
    failures are counted, never timed. A configuration is unstable if it served less than 98 % of the offered rate or \
    its response times grew during the measured time.";
const METHOD_OF_BULK: &str = "A rate is all bytes of data in the measured time, after the warm-up in which TCP \
     reaches its rate, divided by that time; unfinished transfers count with the bytes received. Frames and \
     WINDOW_UPDATEs are counted at the socket. What limited the rate is determined from the kernel's counters at the \
     server's end and from the sizes of windows and buffers.";

/// The report as a self-contained HTML page, several runs one after the other. It loads nothing, so it opens from disk and under
/// any content security policy.
pub fn html(reports: &[Report<'_>]) -> String {
    let shell = match reports {
        [report] => Shell { answer: answer::of(report), notes: about(report), ..whole(report) },
        _ => of_several(reports),
    };
    Shell { style: RUN_STYLE, script: RUN_SCRIPT, ..shell }.render()
}

/// The style sheet of pages of runs.
const RUN_STYLE: &str = concat!(include_str!("study/study.css"), include_str!("latency_breakdown.css"));
/// Their script.
const RUN_SCRIPT: &str = include_str!("latency_breakdown.js");

/// What a run is about, in a few lines.
fn about(report: &Report<'_>) -> Vec<String> {
    sentences::work(report).into_iter().collect()
}

/// The page of one run but for its headline.
fn whole(report: &Report<'_>) -> Shell {
    let command = &report.run.command;
    Shell {
        kind: command.get(1).filter(|word| !word.starts_with('-')).cloned().unwrap_or_default(),
        warnings: sentences::warnings(report),
        sections: sections(report, ""),
        repeat: Repeat {
            command: command.clone(),
            seed: report.seed(),
            version: report.run.version.clone(),
            started: report.run.started.clone(),
            machine: report.run.machine.clone(),
            agents: machines::measured_by(report),
            partial: partial(report.run),
            folder: report.folder.map_or_else(String::new, |_| report.short_name().to_owned()),
        },
        ..Shell::default()
    }
}

/// `partial (12 of 40 repetitions)` of a run that was interrupted; else empty.
fn partial(run: &RunRecord) -> String {
    if !run.interrupted {
        return String::new();
    }
    match measured_of_plan(run) {
        Some([measured, planned]) => format!("partial ({measured} of {planned} repetitions)"),
        None => "partial (it was interrupted)".to_owned(),
    }
}

/// A page of several runs: what distinguishes them first, then each by itself.
fn of_several(reports: &[Report<'_>]) -> Shell {
    let mut answer = vec![format!("{} runs", reports.len())];
    let compared = Compared::all(reports);
    answer.extend(compared.iter().map(|compared| format!("{}.", compared.heading())));
    let mut sections: Vec<Section> = Vec::new();
    // What the comparison says is the answer, above.
    for (n, compared) in compared.iter().enumerate() {
        let [first, second] = [compared.first, compared.second].map(Report::short_name);
        let title = format!("{second} against {first}");
        sections.push(Section::new(format!("comparison-{n}"), title, comparison(compared)));
    }
    for (n, overlay) in overlay::draw(reports).iter().enumerate() {
        let body = render(include_str!("overlay.html"), overlay);
        sections.push(Section::new(format!("together-{n}"), overlay.heading.clone(), body));
    }
    for (n, report) in reports.iter().enumerate() {
        let prefix = format!("run-{n}-");
        let lines: Vec<String> = answer::of(report).into_iter().chain(about(report)).collect();
        let body = render(include_str!("run.html"), &Lines { lines });
        sections.push(Section::new(format!("run-{n}"), format!("Run {}", report.name()), body));
        let of_run = |section: Section| Section {
            title: format!("{} of {}", section.title, report.short_name()),
            ..section
        };
        sections.extend(self::sections(report, &prefix).into_iter().map(of_run));
    }
    let first = reports.first().map(whole).unwrap_or_default();
    Shell {
        kind: "report".to_owned(),
        answer,
        warnings: reports.iter().flat_map(named_warnings).collect(),
        sections,
        ..first
    }
}

/// The warnings of one of several runs.
fn named_warnings(report: &Report<'_>) -> Vec<String> {
    let named = |warning: String| format!("{}: {warning}", report.short_name());
    sentences::warnings(report).into_iter().map(named).collect()
}

fn comparison(compared: &Compared<'_>) -> String {
    let columns = runs::COLUMNS.iter().map(|column| column.title).collect();
    let page = Comparison { columns, rows: compared.rows(), doubts: compared.doubts() };
    render(include_str!("comparison.html"), &page)
}

/// The sections of one run. Addresses in the page begin with `prefix`.
fn sections(report: &Report<'_>, prefix: &str) -> Vec<Section> {
    let section = |id: &str, title: &str, body: String| Section::new(format!("{prefix}{id}"), title, body);
    let ways = Ways::of(report);
    let study = study::draw(report, &ways);
    let is_study = study.is_some();
    let bulk = bulk::draw(report, &ways, prefix);
    let is_bulk = bulk.is_some();
    let several = report.analysis.cells.len() > 1;
    let mut sections: Vec<Section> = Vec::new();
    if let Some(verdicts) = verdicts::draw(report, &ways, prefix).filter(|_| !is_study) {
        sections.push(section("verdicts", "Verdicts", verdicts));
    }
    if let Some(pairs) = pairs::of(report) {
        sections.push(section("settings", "Settings", settings(&pairs)));
    }
    let (first, rest) = study.map_or_else(Default::default, |study| study.sections(prefix));
    sections.extend(first);
    if several && !is_bulk && !is_study {
        let picture = format!(
            "<figure class=\"wide\">{}</figure>\n<p class=\"note\">{}</p>",
            tails::draw(report, &ways),
            tails::KEY
        );
        sections.push(section("times", "Response times", picture));
    }
    sections.extend(bulk.into_iter().flatten());
    if let [summary] = report.analysis.cells.as_slice()
        && let Some(steps) = RampSteps::of(summary)
    {
        let columns = load_text::STEP_COLUMNS.iter().map(|column| (column.title, column.unit)).collect();
        let table = parts::table(&(columns, load_text::step_rows(&steps)));
        sections.push(section("steps", "Each step of the rate", table));
    }
    if let Some(agents) = load_text::agents::parts(report) {
        sections.push(section("agents", "Agents", agents_of(agents)));
    }
    let conditions = (!is_bulk).then(|| {
        let title = if several { "Each condition" } else { "Response times" };
        section("conditions", title, conditions(report, &ways, prefix))
    });
    let findings = (!report.findings.is_empty()).then(|| section("findings", "Findings", findings(report)));
    // Of one configuration the pictures of its condition are the first ones.
    let (before, behind) = if several { (None, conditions) } else { (conditions, None) };
    sections.extend(before.into_iter().chain(findings).chain(rest).chain(behind));
    sections.extend(of_machines(report).map(|(id, title, body)| section(id, title, body)));
    if let Some(counted) = counted(report) {
        sections.push(section("counted", "All counters", render(include_str!("counted.html"), &counted)));
    }
    if let Some(verdicts) = verdicts::sentences(report).filter(|_| is_study) {
        let n = report.analysis.verdicts.len();
        let summary = format!("{} in full", format::plural(n as u64, "verdict"));
        sections.push(section("verdicts", "Verdicts", verdicts).folded(summary));
    }
    sections.push(
        section("method", "How it was measured", method(report, is_bulk)).folded("Method, settings, machine"),
    );
    sections
}

/// The agents that made a load.
fn agents_of(agents: load_text::agents::AgentParts) -> String {
    let table = parts::table(&(agents.columns, agents.rows));
    let said = &agents.sentences;
    let list = if said.is_empty() { String::new() } else { parts::list(said, said.len(), "") };
    parts::lines(&agents.lines) + &table + &list
}

/// What settings with several values do.
fn settings(pairs: &pairs::Pairs) -> String {
    let all = pairs.sentences.iter().chain(&pairs.note).cloned().collect::<Vec<_>>();
    listed(&pairs.title, &all)
}

/// A list under what it comes to.
fn listed(title: &str, items: &[String]) -> String {
    format!("<p>{}</p>\n{}", svg::escape(title), parts::list(items, items.len(), ""))
}

/// Address, title and text of the sections about the machines of agents, if there were any.
fn of_machines(report: &Report<'_>) -> impl Iterator<Item = (&'static str, &'static str, String)> {
    let machines = machines::of(report).map(|of| ("machines", "Machines", listed(&of.title, &of.lines)));
    let found = machines::reproductions(report);
    let found = found.map(|of| ("reproduction", "Reproduction", listed(&of.title, &of.lines)));
    machines.into_iter().chain(found)
}

fn is_emulated(report: &Report<'_>) -> bool {
    report.run.repetitions.iter().any(|repetition| repetition.link.is_some())
}

/// The counts of a run that has one cell: those of several are better read in JSON.
fn counted(report: &Report<'_>) -> Option<Counted> {
    match report.analysis.cells.as_slice() {
        [summary] if summary.repetitions > 0 => Some(Counted {
            text: load_text::counts(summary, TextStyle { width: 110, ..TextStyle::default() }),
        }),
        _ => None,
    }
}

fn conditions(report: &Report<'_>, ways: &Ways, prefix: &str) -> String {
    let groups = report.analysis.groups();
    let page = Conditions {
        open: groups.len() <= OPEN,
        is_emulated: is_emulated(report),
        columns: text::columns(),
        groups: groups.iter().map(|group| group_box(report, ways, group, prefix)).collect(),
    };
    render(include_str!("conditions.html"), &page)
}

fn findings(report: &Report<'_>) -> String {
    let page = FindingsPart {
        hops: sentences::hops(report),
        findings: report.findings.iter().map(|finding| finding_box(report, finding)).collect(),
        shown: SHOWN,
        unexplained: sentences::unexplained_lines(report),
    };
    render(include_str!("findings.html"), &page)
}

fn method(report: &Report<'_>, is_bulk: bool) -> String {
    let method = if is_bulk { METHOD_OF_BULK } else { METHOD };
    render(include_str!("facts.html"), &Facts { method, facts: facts(report) })
}

/// The address of a condition in the page.
fn condition_id(prefix: &str, group: u32) -> String {
    format!("{prefix}condition-{group}")
}

fn group_box(report: &Report<'_>, ways: &Ways, group: &[&CellSummary], prefix: &str) -> Group {
    let heading = condition::heading(report, group);
    let scale = scatter::scale(group);
    Group {
        id: condition_id(prefix, group.first().map_or(0, |first| first.cell.group)),
        sizes: sentences::request_sizes(group),
        curves: curves::draw(group, ways, &heading),
        cells: group.iter().map(|summary| cell_box(report, summary, scale)).collect(),
        causes: latency_breakdown::table(report, group),
        heading,
    }
}

fn cell_box(report: &Report<'_>, summary: &CellSummary, scale: axis::Scale) -> CellBox {
    let repetitions = repetitions_of(report.run, summary.cell.index);
    let points = latency_breakdown::points(report, summary, &repetitions);
    CellBox {
        label: summary.label.clone(),
        state: summary.state.name().to_owned(),
        reason: sentences::state(summary),
        notes: notes::of(summary),
        recorded: (summary.level != Level::Full).then(|| sentences::recorded(summary.level)),
        row: text::figures(report, summary),
        scatter: scatter::draw(summary, &repetitions, scale, &points),
        breakdowns: latency_breakdown::beneath(report, summary, &points),
    }
}

fn finding_box(report: &Report<'_>, finding: &h2lab_analysis::diagnose::Finding) -> FindingBox {
    let evidence = |evidence: &h2lab_analysis::diagnose::Evidence| {
        let connection = evidence.connection.map_or(String::new(), |index| format!(", connection {index}"));
        let at = evidence.at.filter(|at| at.happened()).map_or(String::new(), |at| format!(", at {at}"));
        format!("{}: {} {}{connection}{at}", evidence.what, format::number(evidence.value), evidence.unit)
    };
    FindingBox {
        title: sentences::finding_title(report, finding),
        symptom: finding.symptom.clone(),
        evidence: finding.evidence.iter().map(evidence).collect(),
        cost: finding.cost.clone(),
        fixes: finding.fixes.iter().map(|f| (f.product.clone(), f.setting.clone(), f.why.clone())).collect(),
        confirm: finding.confirm.clone(),
        rule: finding.rule.clone(),
    }
}

/// How it was measured: settings as asked and as read back.
fn facts(report: &Report<'_>) -> Vec<(String, String)> {
    let run = report.run;
    let mut facts = vec![
        ("seed", run.seed.to_string()),
        ("h2lab", run.version.clone()),
        ("started", run.started.clone()),
    ];
    match machines::measured_by(report) {
        agents if agents.is_empty() => facts.push(("machine", run.machine.clone())),
        agents => facts.extend([("measured on", agents), ("driven from", run.machine.clone())]),
    }
    facts.push(("run folder", report.folder.unwrap_or("not kept").to_owned()));
    if let Some(repetition) = run.repetitions.first() {
        let environment = &repetition.environment;
        if repetition.link.is_some() {
            facts.push(("rights", if environment.root { "root" } else { "a user namespace" }.to_owned()));
        }
        facts.extend(environment.placement.iter().map(|(who, place)| match place.parse::<u32>() {
            Ok(cpu) => ("placement", format!("{who} on CPU {cpu}")),
            Err(_) => ("placement", format!("{who}: {place}")),
        }));
        facts.extend(repetition.link.as_ref().map(|link| ("packets moved by", moved_by(link))));
        facts.extend(
            repetition
                .server
                .as_ref()
                .map(|server| ("server", format!("{} {}", server.name, server.version))),
        );
        facts.extend(
            environment.sysctls.iter().map(|(name, value)| ("read back", format!("{name} = {value}"))),
        );
    }
    facts.extend(sentences::recordings(report).into_iter().map(|level| ("recorded", level)));
    facts.extend(
        [sentences::how_sure(report), sentences::missing_tails(report)]
            .into_iter()
            .flatten()
            .map(|note| ("figures", note)),
    );
    let named = facts.into_iter().map(|(name, value)| (name.to_owned(), value));
    let generators = if report.is_of_packets() { Vec::new() } else { generators(report) };
    named.chain(generators).collect()
}

/// The link's mechanism, and why it is not the preferred one.
fn moved_by(link: &LinkSummary) -> String {
    let reason = link.fallback_reason.as_ref().map(|reason| format!(" instead of veth+af_packet: {reason}"));
    link.mechanism.clone() + &reason.unwrap_or_default()
}

/// How good the generator and the link were in each condition: the figures depend on them.
fn generators(report: &Report<'_>) -> Vec<(String, String)> {
    let describe = |group: &Vec<&CellSummary>| {
        let worst = |pick: &dyn Fn(&CellSummary) -> f64| group.iter().map(|s| pick(s)).fold(0.0, f64::max);
        let late = worst(&|s| s.generator.lateness.quantile(0.99).as_secs_f64() * 1e6);
        let cpu = worst(&|s| s.generator.cpu_us_per_request);
        let link = worst(&|s| s.link.as_ref().map_or(0.0, |link| link.late_p99.as_secs_f64() * 1e6));
        let link = format!("; link late by p99 {} µs at most", format::number(link.round()));
        let text = format!(
            "generator late by p99 {} µs at most, {} µs of CPU per request{}",
            format::number(late.round()),
            format::number(cpu),
            if is_emulated(report) { link.as_str() } else { "" },
        );
        (condition::heading(report, group), text)
    };
    report.analysis.groups().iter().map(describe).collect()
}

#[cfg(test)]
mod tests;

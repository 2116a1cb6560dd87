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
mod study;
mod svg;
mod tails;
mod template;
mod timeline;
mod timeline_study;
mod transfer;
mod verdicts;
mod ways;

pub use diagnosis::diagnosis_page;
pub use fleet::fleet_page;
pub use probe::probe_page;
pub use timeline::{timeline_page, timeline_svg};
pub use timeline_study::study_page;
pub use transfer::bulk_page;

use serde::Serialize;
use template::render;

use super::runs::{self, Compared};
use super::style::TextStyle;
use super::{Report, answer, condition, format, load_text, notes, pairs, sentences, text};
use h2lab_analysis::stats::{CellSummary, RampSteps, repetitions_of};
use h2lab_model::record::{Level, LinkSummary};
use shell::{Repeat, Section, Shell};
use ways::Ways;

/// Every condition of a run.
#[derive(Serialize)]
struct Conditions {
    /// Whether all are shown without being asked for.
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
    /// How many are shown without being asked for.
    shown: usize,
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

/// Findings that are shown without being asked for, the costliest.
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
            seed: Some(report.run.seed),
            version: report.run.version.clone(),
            started: report.run.started.clone(),
            machine: report.run.machine.clone(),
            folder: report.folder.map_or_else(String::new, |_| report.short_name().to_owned()),
        },
        ..Shell::default()
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
        warnings: reports.iter().flat_map(|report| sentences::warnings(report)).collect(),
        sections,
        ..first
    }
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
    let conditions = (!is_bulk).then(|| {
        let title = if several { "Each condition" } else { "Response times" };
        section("conditions", title, conditions(report, &ways, prefix))
    });
    let findings = (!report.findings.is_empty()).then(|| section("findings", "Findings", findings(report)));
    // Of one configuration the pictures of its condition are the first ones.
    let (before, behind) = if several { (None, conditions) } else { (conditions, None) };
    sections.extend(before.into_iter().chain(findings).chain(rest).chain(behind));
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

/// What settings with several values do.
fn settings(pairs: &pairs::Pairs) -> String {
    let all = pairs.sentences.iter().chain(&pairs.note).cloned().collect::<Vec<_>>();
    format!("<p>{}</p>\n{}", svg::escape(&pairs.title), parts::list(&all, all.len(), ""))
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
        ("machine", run.machine.clone()),
        ("run folder", report.folder.unwrap_or("not kept").to_owned()),
    ];
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
    named.chain(generators(report)).collect()
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
mod tests {
    use super::super::testing::Fixture;
    use super::*;
    use h2lab_model::workload::Protocol;

    fn page() -> String {
        html(&[Fixture::new().report()])
    }

    /// Checks that every tag is closed in order; void elements of HTML close themselves.
    pub(super) fn assert_well_formed(html: &str) {
        const VOID: [&str; 3] = ["meta", "br", "col"];
        let mut open: Vec<&str> = Vec::new();
        let mut rest = html;
        while let Some(start) = rest.find('<') {
            let end = start + rest[start..].find('>').expect("every tag ends");
            let tag = &rest[start + 1..end];
            rest = &rest[end + 1..];
            let name = tag.trim_start_matches('/').split([' ', '\n', '/']).next().unwrap();
            if tag.starts_with('!') || tag.ends_with('/') || VOID.contains(&name) {
                continue;
            }
            if tag.starts_with('/') {
                assert_eq!(
                    open.pop(),
                    Some(name),
                    "closed out of order before: {}",
                    &rest[..rest.len().min(80)]
                );
                continue;
            }
            open.push(name);
            if name == "script" || name == "style" {
                rest = &rest[rest.find(&format!("</{name}>")).expect("it is closed")..];
            }
        }
        assert_eq!(open, Vec::<&str>::new());
    }

    /// Checks all that every page promises: it is well formed, loads nothing, lets in its own style and script only, leads to places
    /// that are there, and its pictures can be read on a phone.
    pub(super) fn assert_sound(page: &str) {
        assert_well_formed(page);
        for load in [
            "http://",
            "https://",
            "<link",
            " src=",
            "@import",
            "url(",
            "unsafe-inline",
            " style=",
            " onclick=",
        ] {
            let own = page.replace("url(#", "");
            let at =
                own.find(load).map(|at| own[at.saturating_sub(80)..].chars().take(200).collect::<String>());
            assert_eq!(at, None, "{load}");
        }
        assert_policy(page);
        assert_addresses(page);
        assert_readable(page);
    }

    /// The text of an element without attributes.
    fn inside<'a>(page: &'a str, element: &str) -> &'a str {
        let rest = page.split_once(&format!("<{element}>")).expect("it begins").1;
        rest.split_once(&format!("</{element}>")).expect("it ends").0
    }

    fn assert_policy(page: &str) {
        use h2lab_transfer::{Algorithm, Digest};
        let policy = page.split("http-equiv=\"Content-Security-Policy\" content=\"").nth(1).unwrap();
        let policy = policy.split('"').next().unwrap();
        for (element, directive) in [("style", "style-src"), ("script", "script-src")] {
            let mut digest = Digest::new(Algorithm::Sha256);
            digest.update(inside(page, element).as_bytes());
            let hash = h2lab_base::units::base64(digest.checksum().unwrap().bytes());
            assert!(policy.contains(&format!("{directive} 'sha256-{hash}'")), "{policy}");
            assert_eq!(page.matches(&format!("<{element}>")).count(), 1, "one that has the hash");
        }
        assert!(policy.starts_with("default-src 'none'"), "{policy}");
    }

    fn assert_addresses(page: &str) {
        let body = page.split_once("<body>").unwrap().1;
        let values = |attribute: &str| -> Vec<String> {
            body.split(attribute)
                .skip(1)
                .filter_map(|rest| rest.split('"').next())
                .map(str::to_owned)
                .collect()
        };
        let ids = values(" id=\"");
        let distinct: std::collections::BTreeSet<&String> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len(), "an address leads to one place: {ids:?}");
        let links = values(" href=\"#");
        assert!(links.len() > 2, "there are contents");
        let dead = links.iter().find(|link| !distinct.contains(link));
        assert_eq!(dead, None, "an address that leads nowhere");
    }

    /// Text of pictures is 11 px or more on a screen of 420 px, or of 760 px where wide forms begin: by the size of the style sheet
    /// and the width of each picture.
    fn assert_readable(page: &str) {
        const LEAST: f64 = 11.0;
        // What the page leaves of a screen of 420 px and of one of 761 px.
        let (narrow, wide) = (420.0 - 2.0 * 12.0, 761.0 - 2.0 * 24.0);
        let css = inside(page, "style");
        let of_text = css
            .lines()
            .filter(|line| line.contains("svg") && line.contains("text {") || line.starts_with("svg ."));
        let sizes = of_text.filter_map(|line| {
            let size = line
                .split(['{', ';', ' ', ':'])
                .find_map(|word| word.strip_suffix("px")?.parse::<f64>().ok());
            size.filter(|_| line.contains("font"))
        });
        let least = sizes.fold(f64::INFINITY, f64::min);
        assert!((11.0..14.0).contains(&least), "{least}");
        let mut seen = 0;
        for (before, picture) in page.match_indices("<svg viewBox=\"0 0 ").map(|(at, _)| page.split_at(at)) {
            let width: f64 = picture.split([' ', '"']).nth(4).unwrap().parse().unwrap();
            let is_sample = picture.split('>').next().unwrap().contains("aria-hidden");
            if is_sample || !picture.split("</svg>").next().unwrap().contains("<text") {
                continue;
            }
            let room = if before.ends_with("<div class=\"on-wide\">") { wide } else { narrow };
            let size = least * room / width;
            assert!(size >= LEAST, "text of {size:.1} px in {}", &picture[..120]);
            seen += 1;
        }
        assert!(seen > 0 || !page.contains("<svg viewBox"), "{seen}");
    }

    /// Labels of the ticks of each picture of a page, by axis: all distinct.
    fn assert_ticks_distinct(page: &str) {
        for picture in page.split("<svg viewBox").skip(1).filter_map(|rest| rest.split("</svg>").next()) {
            let ticks = picture.split("<text class=\"tick\"").skip(1);
            let mut axes: std::collections::BTreeMap<(String, bool), Vec<&str>> =
                std::collections::BTreeMap::new();
            for tick in ticks {
                let value =
                    |name: &str| tick.split(name).nth(1).and_then(|rest| rest.split('"').next()).unwrap();
                let is_x = value("text-anchor=\"") == "middle";
                let line = if is_x { value("y=\"") } else { "" };
                let text = tick.split(['>', '<']).nth(1).unwrap();
                axes.entry((line.to_owned(), is_x)).or_default().push(text);
            }
            for labels in axes.values() {
                let distinct: std::collections::BTreeSet<&&str> = labels.iter().collect();
                assert_eq!(distinct.len(), labels.len(), "{labels:?}");
            }
        }
    }

    #[test]
    fn every_kind_of_page_keeps_its_promises() {
        for fixture in [Fixture::new(), Fixture::study(), Fixture::explained(), Fixture::bulk()] {
            let (one, two) = (html(&[fixture.report()]), html(&[fixture.report(), fixture.report()]));
            assert_sound(&one);
            assert_sound(&two);
            assert_ticks_distinct(&one);
        }
    }

    #[test]
    fn a_configuration_has_one_colour_in_all_reports() {
        // Every mark of a configuration takes its colour from the protocol; nothing else names a colour by its place.
        for fixture in [Fixture::new(), Fixture::study(), Fixture::bulk()] {
            let page = html(&[fixture.report()]);
            let body = page.split_once("<body>").unwrap().1;
            for protocol in Protocol::ALL.into_iter().chain([Protocol::Tcp]) {
                let is_there = fixture.analysis.cells.iter().any(|summary| summary.cell.protocol == protocol);
                assert_eq!(body.contains(&format!("way-{}\"", protocol.name())), is_there, "{protocol}");
            }
            for placed in ["fill0", "stroke0", "swatch0", "fill1", "stroke1"] {
                assert!(!body.contains(placed), "{placed}");
            }
        }
    }

    #[test]
    fn a_link_that_could_not_be_the_one_of_choice_says_why() {
        let chosen = LinkSummary { mechanism: "veth+af_packet".to_owned(), ..LinkSummary::default() };
        assert_eq!(moved_by(&chosen), "veth+af_packet");
        let reason = Some("cannot open a packet socket".to_owned());
        let other = LinkSummary { mechanism: "tun".to_owned(), fallback_reason: reason, ..chosen };
        assert_eq!(moved_by(&other), "tun instead of veth+af_packet: cannot open a packet socket");
    }

    #[test]
    fn a_page_with_latency_breakdowns_stays_small() {
        let page = html(&[Fixture::explained().report()]);
        assert!(page.len() < 700_000, "{}", page.len());
    }

    #[test]
    fn the_answer_is_the_title() {
        let fixture = Fixture::new();
        let answer = crate::answer::of(&fixture.report());
        let title = svg::escape(&answer[0]).replace('/', "&#x2f;");
        assert!(page().contains(&format!("<h1>{title}</h1>")), "{title}");
    }

    /// Where `what` is in a page.
    fn place(page: &str, what: &str) -> usize {
        page.find(what).unwrap_or_else(|| panic!("{what} is missing"))
    }

    #[test]
    fn a_page_is_answer_matrix_picture_and_then_detail_that_is_folded() {
        let fixture = Fixture::new();
        let page = page();
        let order = [
            "<h1>",
            "class=\"contents\"",
            "class=\"matrix\"",
            "id=\"times\"",
            "id=\"findings\"",
            "id=\"conditions\"",
            "id=\"repeat\"",
        ];
        let places = order.map(|what| place(&page, what));
        assert!(places.is_sorted(), "{places:?}");
        assert_eq!(page.matches("class=\"verdicts\"").count(), 1);
        let sentences = fixture.analysis.verdicts.len();
        assert_eq!(page.matches("class=\"sign\"").count(), 2 * sentences, "in the table, and in full");
        assert_eq!(page.matches("<details class=\"fold\"").count(), fixture.analysis.groups().len());
        assert!(!page.contains("<details class=\"fold\" open"), "several conditions are folded");
    }

    #[test]
    fn a_study_has_its_tables_first_and_its_verdicts_folded() {
        let fixture = Fixture::study();
        let study = html(&[fixture.report()]);
        assert!(place(&study, "id=\"table-0\"") < place(&study, "id=\"cost\""));
        assert!(place(&study, "id=\"cost\"") < place(&study, "id=\"topologies\""));
        assert!(place(&study, "<summary>6 verdicts in full") < place(&study, "<ul class=\"verdicts\">"));
        assert_eq!(study.matches("class=\"sign\"").count(), fixture.analysis.verdicts.len());
    }

    #[test]
    fn the_command_and_a_citation_are_at_the_end() {
        let page = page();
        let end = page.split("id=\"repeat\"").nth(1).unwrap();
        assert!(
            end.contains("h2lab compare --seed 42") && end.contains("20260131T120000Z-42, seed 42"),
            "{end}"
        );
    }

    #[test]
    fn what_a_request_is_sent_in_is_named_by_its_transport() {
        use Protocol::{H1, H2c, H3};
        let spoken = |protocols: [Protocol; 2]| {
            let mut fixture = Fixture::new();
            for repetition in &mut fixture.run.repetitions {
                repetition.cell.protocol = protocols[usize::from(repetition.cell.protocol.is_multiplexed())];
            }
            fixture.analysis = h2lab_analysis::stats::analyse(&fixture.run);
            let found = html(&[fixture.report()]);
            let text = crate::text(&[fixture.report()], TextStyle { width: 200, ..TextStyle::default() });
            ["segments, h2c", "datagrams, h3", "segments, h3"]
                .map(|words| (found.contains(words), text.contains(words)))
        };
        assert_eq!(spoken([H1, H2c]), [(true, true), (false, false), (false, false)]);
        assert_eq!(spoken([H3, H3]), [(false, false), (true, true), (false, false)]);
        assert_eq!(spoken([H1, H3]), [(false, false), (true, true), (true, true)]);
    }

    #[test]
    fn a_run_of_one_cell_has_its_counts_and_says_nothing_of_a_link_that_it_had_not() {
        let whole = page();
        assert!(!whole.contains("All counters") && whole.contains("packets dropped by the link"));
        let mut fixture = Fixture::new();
        fixture.findings.clear();
        fixture.run.repetitions.retain(|repetition| repetition.cell.index == 0);
        for repetition in &mut fixture.run.repetitions {
            repetition.link = None;
            repetition.environment.placement = vec![
                ("generator".to_owned(), "1".to_owned()),
                ("generator priority".to_owned(), "ordinary".to_owned()),
            ];
        }
        fixture.analysis = h2lab_analysis::stats::analyse(&fixture.run);
        let page = html(&[fixture.report()]);
        assert_well_formed(&page);
        for words in ["All counters", "Connections   ", "generator on CPU 1", "priority: ordinary"] {
            assert!(page.contains(words), "{words}");
        }
        for words in ["packets dropped by the link", "link late", "a user namespace", "on CPU ordinary"] {
            assert!(!page.contains(words), "{words}");
        }
    }

    #[test]
    fn what_a_server_says_is_never_markup() {
        let mut fixture = Fixture::new();
        fixture.findings[0].symptom = "<script>alert(1)</script>".to_owned();
        fixture.run.machine = "<img onerror=x>".to_owned();
        let page = html(&[fixture.report()]);
        assert!(!page.contains("<script>alert") && !page.contains("<img"));
    }

    #[test]
    fn a_page_of_nothing_and_a_page_of_failures_render() {
        let mut fixture = Fixture::new();
        for repetition in &mut fixture.run.repetitions {
            let mut all = repetition.samples.edit();
            all.iter_mut().for_each(|sample| sample.outcome = h2lab_model::record::Outcome::Connect);
        }
        fixture.analysis = h2lab_analysis::stats::analyse(&fixture.run);
        assert_well_formed(&html(&[fixture.report()]));
        fixture.run.repetitions.clear();
        fixture.findings.clear();
        fixture.analysis = h2lab_analysis::stats::analyse(&fixture.run);
        assert_well_formed(&html(&[fixture.report()]));
    }

    #[test]
    fn what_the_comparison_of_two_runs_says_stands_once() {
        let fixture = Fixture::new();
        let two = html(&[fixture.report(), Report { folder: Some("second-run"), ..fixture.report() }]);
        let statement = ": no difference (";
        assert_eq!(two.matches(statement).count(), 1, "in the answer");
        assert!(two.contains("<td data-title=\"difference\">same</td>"), "each figure has its title");
        let body = two.split_once("<body>").unwrap().1.split("<pre").next().unwrap();
        assert!(!body.contains('`') && body.contains("<code>h2lab compare</code>"));
    }

    #[test]
    fn several_runs_stand_one_after_the_other_under_their_names() {
        let fixture = Fixture::new();
        let one = html(&[fixture.report()]);
        let two = html(&[fixture.report(), Report { folder: Some("second-run"), ..fixture.report() }]);
        assert_well_formed(&two);
        assert!(two.contains("<h1>2 runs</h1>"));
        for (what, of_one, of_two) in
            [("<h2>How it was measured", 1, 2), ("<h2>Run ", 0, 2), ("id=\"hatch\"", 1, 1)]
        {
            assert_eq!((one.matches(what).count(), two.matches(what).count()), (of_one, of_two), "{what}");
        }
        assert!(two.contains("second-run"));
    }

    #[test]
    fn the_page_stays_small_whatever_was_measured() {
        let small = page().len();
        assert!(small < 600_000, "{small}");
    }
}

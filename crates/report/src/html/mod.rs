//! The report as one HTML file that loads nothing: verdict first, then pictures, the table, findings, and how it was
//! measured. A study has a verdict for each of its many cells: there its pictures and tables come first, and the verdicts are
//! folded.
//!
//! Pictures are SVG written here rather than by a plotting library: hover notes, hatching, dark mode and print come
//! from the page's style sheet, which such a library's fixed colours and fonts would defeat.

mod axis;
mod bars;
mod bulk;
mod curves;
mod latency_breakdown;
mod overlay;
mod raster;
mod scatter;
mod study;
mod svg;
mod template;
mod timeline;
mod timeline_study;

pub use timeline::{timeline_page, timeline_svg};
pub use timeline_study::study_page;

use serde::Serialize;
use template::render;

use super::runs::{self, Compared};
use super::style::TextStyle;
use super::{Report, answer, condition, format, load_text, notes, sentences, text};
use h2lab_analysis::stats::{CellSummary, Conclusion, repetitions_of};
use h2lab_model::record::{Level, LinkSummary};

/// The data of the template.
#[derive(Serialize)]
struct Page {
    title: String,
    /// Of several runs: each but the first against the first.
    comparisons: Vec<Comparison>,
    /// Of several runs: pictures with all of them.
    overlays: Vec<overlay::Overlay>,
    runs: Vec<Run>,
    style: &'static str,
    script: &'static str,
}

/// A run against the first one.
#[derive(Serialize)]
struct Comparison {
    heading: String,
    columns: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    doubts: Vec<String>,
}

/// One run.
#[derive(Serialize)]
struct Run {
    /// Its name and its claim, where there are several runs.
    heading: Option<(String, String)>,
    verdicts: Vec<VerdictLine>,
    notes: Vec<String>,
    bars: String,
    /// The study's part, if the scenario asks for one.
    study: Option<String>,
    /// What is shown of bulk work, in place of latencies.
    bulk: Option<String>,
    /// Whether there was an emulated link.
    is_emulated: bool,
    groups: Vec<Group>,
    /// Statuses, errors, connections, frames, as the summary of a load has them: where there is only one cell.
    counted: Option<String>,
    columns: Vec<(String, String)>,
    /// For each rule, the hop that it is about.
    hops: Vec<String>,
    findings: Vec<FindingBox>,
    warnings: Vec<String>,
    facts: Vec<(String, String)>,
}

#[derive(Serialize)]
struct VerdictLine {
    class: &'static str,
    sign: &'static str,
    sentence: String,
}

#[derive(Serialize)]
struct Group {
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
struct FindingBox {
    title: String,
    symptom: String,
    evidence: Vec<String>,
    cost: String,
    fixes: Vec<(String, String, String)>,
    confirm: String,
    rule: String,
}

/// The report as a self-contained HTML page, several runs one after the other. It loads nothing, so it opens from disk and under
/// any content security policy.
pub fn html(reports: &[Report<'_>]) -> String {
    let several = reports.len() != 1;
    let page = Page {
        title: match reports {
            [report] => title(report),
            _ => format!("{} runs", reports.len()),
        },
        comparisons: Compared::all(reports).iter().map(comparison).collect(),
        overlays: overlay::draw(reports),
        runs: reports.iter().map(|report| run(report, several)).collect(),
        style: concat!(
            include_str!("style.css"),
            include_str!("study/study.css"),
            include_str!("latency_breakdown.css"),
            include_str!("bulk.css")
        ),
        script: concat!(include_str!("script.js"), include_str!("latency_breakdown.js")),
    };
    render(include_str!("report.html"), &page)
}

fn comparison(compared: &Compared<'_>) -> Comparison {
    Comparison {
        heading: compared.heading(),
        columns: runs::COLUMNS.iter().map(|column| column.title).collect(),
        rows: compared.rows(),
        doubts: compared.doubts(),
    }
}

fn run(report: &Report<'_>, several: bool) -> Run {
    Run {
        heading: several.then(|| (report.name().to_owned(), title(report))),
        verdicts: report.analysis.verdicts.iter().map(|verdict| verdict_line(report, verdict)).collect(),
        notes: [sentences::work(report), sentences::how_sure(report), sentences::missing_tails(report)]
            .into_iter()
            .flatten()
            .collect(),
        bars: bars::draw(report),
        study: study::draw(report),
        bulk: bulk::draw(report),
        is_emulated: is_emulated(report),
        groups: report.analysis.groups().iter().map(|group| group_box(report, group)).collect(),
        counted: counted(report),
        columns: text::columns(),
        hops: sentences::hops(report),
        findings: report.findings.iter().map(|finding| finding_box(report, finding)).collect(),
        warnings: sentences::warnings(report),
        facts: facts(report),
    }
}

fn is_emulated(report: &Report<'_>) -> bool {
    report.run.repetitions.iter().any(|repetition| repetition.link.is_some())
}

/// The counts of a run that has one cell: those of several are better read in JSON.
fn counted(report: &Report<'_>) -> Option<String> {
    match report.analysis.cells.as_slice() {
        [summary] if summary.repetitions > 0 => {
            Some(load_text::counts(summary, TextStyle { width: 110, ..TextStyle::default() }))
        }
        _ => None,
    }
}

/// The first sentence of the answer.
fn title(report: &Report<'_>) -> String {
    answer::of(report).into_iter().next().unwrap_or_default()
}
fn verdict_line(report: &Report<'_>, verdict: &h2lab_analysis::stats::CellVerdict) -> VerdictLine {
    // The sign repeats the colour's meaning, for readers without colour.
    let (class, sign) = match verdict.conclusion {
        Conclusion::Faster | Conclusion::BaselineUnstable { .. } => ("better", "▲"),
        Conclusion::Slower | Conclusion::Unstable { .. } => ("worse", "▼"),
        Conclusion::BothUnstable | Conclusion::Failed | Conclusion::Invalid | Conclusion::Unsupported => {
            ("doubtful", "?")
        }
        Conclusion::NoDifference => ("same", "="),
    };
    VerdictLine { class, sign, sentence: sentences::verdict(report, verdict) }
}

fn group_box(report: &Report<'_>, group: &[&CellSummary]) -> Group {
    let heading = condition::heading(report, group);
    let scale = scatter::scale(group);
    Group {
        sizes: sentences::request_sizes(group),
        curves: curves::draw(group, &heading),
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
        row: text::figures(summary),
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
        ("command", run.command.join(" ")),
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

    #[test]
    fn a_link_that_could_not_be_the_one_of_choice_says_why() {
        let chosen = LinkSummary { mechanism: "veth+af_packet".to_owned(), ..LinkSummary::default() };
        assert_eq!(moved_by(&chosen), "veth+af_packet");
        let reason = Some("cannot open a packet socket".to_owned());
        let other = LinkSummary { mechanism: "tun".to_owned(), fallback_reason: reason, ..chosen };
        assert_eq!(moved_by(&other), "tun instead of veth+af_packet: cannot open a packet socket");
    }

    #[test]
    fn the_page_is_well_formed_and_loads_nothing() {
        let page = page();
        assert_well_formed(&page);
        for load in ["http://", "https://", "<link", "src=", "@import", "url("] {
            assert!(!page.replace("url(#", "").contains(load), "{load}");
        }
    }

    #[test]
    fn a_page_with_latency_breakdowns_is_well_formed_loads_nothing_and_stays_small() {
        let page = html(&[Fixture::explained().report()]);
        assert_well_formed(&page);
        for load in ["http://", "https://", "<link", "src=", "@import", "url("] {
            assert!(!page.replace("url(#", "").contains(load), "{load}");
        }
        assert!(page.len() < 700_000, "{}", page.len());
    }

    #[test]
    fn the_answer_is_the_title() {
        let page = page();
        let claim = "Overloaded at 3% loss: one HTTP/2 connection serves 290 of 1,000 requests/s, HTTP/1.1 all of them.";
        assert!(
            page.contains(&format!("<h1>{}</h1>", svg::escape(claim).replace('/', "&#x2f;"))),
            "{}",
            &page[..2000]
        );
    }

    #[test]
    fn verdicts_come_first_but_in_a_study_after_its_part_and_folded() {
        let place = |page: &str, what: &str| page.find(what).unwrap_or_else(|| panic!("{what} is missing"));
        let fixture = Fixture::study();
        let study = html(&[fixture.report()]);
        let sentences = "<ul class=\"verdicts\">";
        assert!(place(&study, "What was asked") < place(&study, "Every topology under every condition"));
        assert!(
            place(&study, "Connections that HTTP&#x2f;2 needs")
                < place(&study, "<details><summary>6 verdicts")
        );
        assert!(place(&study, "<details><summary>6 verdicts") < place(&study, sentences));
        assert!(place(&study, sentences) < place(&study, "The tail of each cell"));
        assert_eq!(study.matches("class=\"sign\"").count(), fixture.analysis.verdicts.len());
        let page = page();
        assert!(!page.contains("<summary>6 verdicts"));
        assert!(place(&page, "<h2>Verdict</h2>") < place(&page, sentences));
        assert!(place(&page, sentences) < place(&page, "The tail of each cell"));
        assert_eq!(page.matches("class=\"sign\"").count(), fixture.analysis.verdicts.len());
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
        assert_eq!(spoken([H1, H3]), [(false, false), (false, false), (true, true)]);
    }

    #[test]
    fn a_run_of_one_cell_has_its_counts_and_says_nothing_of_a_link_that_it_had_not() {
        let whole = page();
        assert!(!whole.contains("All that was counted") && whole.contains("packets that the link dropped"));
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
        for words in [
            "All that was counted",
            "Connections   ",
            "What was asked",
            "generator on CPU 1",
            "priority: ordinary",
        ] {
            assert!(page.contains(words), "{words}");
        }
        for words in ["packets that the link dropped", "link late", "a user namespace", "on CPU ordinary"] {
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
    fn several_runs_stand_one_after_the_other_under_their_names() {
        let fixture = Fixture::new();
        let one = html(&[fixture.report()]);
        let two = html(&[fixture.report(), Report { folder: Some("second-run"), ..fixture.report() }]);
        assert_well_formed(&two);
        assert!(two.contains("<h1>2 runs</h1>"));
        for (what, each) in [("How it was measured", 1), ("class=\"run\"", 0), ("id=\"hatch\"", 1)] {
            let expected = if what.contains("hatch") { 1 } else { 2 };
            assert_eq!(one.matches(what).count(), each, "{what}");
            assert_eq!(two.matches(what).count(), expected, "{what}");
        }
        assert!(two.contains("second-run"));
    }

    #[test]
    fn the_page_stays_small_whatever_was_measured() {
        let small = page().len();
        assert!(small < 600_000, "{small}");
    }
}

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
            assert_eq!(open.pop(), Some(name), "closed out of order before: {}", &rest[..rest.len().min(80)]);
            continue;
        }
        open.push(name);
        if name == "script" || name == "style" {
            rest = &rest[rest.find(&format!("</{name}>")).expect("it is closed")..];
        }
    }
    assert_eq!(open, Vec::<&str>::new());
}

/// Checks all that holds for every page: it is well formed, loads nothing, allows only its own style and script, has
/// links only to places that exist, and its pictures can be read on a phone.
pub(super) fn assert_sound(page: &str) {
    assert_well_formed(page);
    for load in
        ["http://", "https://", "<link", " src=", "@import", "url(", "unsafe-inline", " style=", " onclick="]
    {
        let own = page.replace("url(#", "");
        let at = own.find(load).map(|at| own[at.saturating_sub(80)..].chars().take(200).collect::<String>());
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
        body.split(attribute).skip(1).filter_map(|rest| rest.split('"').next()).map(str::to_owned).collect()
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
        let size =
            line.split(['{', ';', ' ', ':']).find_map(|word| word.strip_suffix("px")?.parse::<f64>().ok());
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
            let value = |name: &str| tick.split(name).nth(1).and_then(|rest| rest.split('"').next()).unwrap();
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
fn each_figure_of_a_condition_has_the_title_of_its_column_for_narrow_screens() {
    let page = page();
    let (_, figures) = page.split_once("<th scope=\"row\">h1</th>").expect("a row of h1");
    assert!(figures.starts_with("<td data-title=\"offered &#x2f;s\">"), "{}", &figures[..80]);
}

#[test]
fn the_command_and_a_citation_are_at_the_end() {
    let page = page();
    let end = page.split("id=\"repeat\"").nth(1).unwrap();
    for words in ["h2lab compare <span class=\"whole\">--seed</span> 42", "20260131T120000Z-42, seed 42"] {
        assert!(end.contains(words), "{words}: {end}");
    }
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
fn of_several_runs_a_warning_says_of_which_it_is() {
    let mut fixture = Fixture::new();
    fixture.analysis.warnings.push("it was late".to_owned());
    let two = html(&[fixture.report(), Report { folder: Some("second-run"), ..fixture.report() }]);
    assert!(two.contains("second-run: it was late") && two.contains("20260131T120000Z-42: it was late"));
    assert!(!html(&[fixture.report()]).contains("-42: it was late"));
}

#[test]
fn a_run_that_was_interrupted_is_cited_as_partial_with_what_there_is_of_it() {
    let mut fixture = Fixture::new();
    fixture.run.scenario.repetitions = 5;
    assert!(!crate::html(&[fixture.report()]).contains("partial ("));
    fixture.run.interrupted = true;
    let page = crate::html(&[fixture.report()]);
    assert!(page.contains(", partial (4 of 10 repetitions), seed 42, "), "{page}");
}

#[test]
fn the_page_stays_small_whatever_was_measured() {
    let small = page().len();
    assert!(small < 600_000, "{small}");
}

#[test]
fn a_fix_is_code_and_one_in_words_has_only_its_flag_as_code() {
    let mut fixture = Fixture::new();
    let fix = h2lab_model::Fix::new("h2lab", "a larger `--limit`", "the server has one");
    fixture.findings[0].fixes.push(fix);
    fixture.findings[0].confirm = "change it, and run `h2lab` again".to_owned();
    let page = html(&[fixture.report()]);
    for words in [
        "<b>Fix</b> (client): <code>connections = 16</code> –",
        "<b>Fix</b> (h2lab): a larger <code><span class=\"whole\">--limit</span></code> –",
        "<b>Confirm:</b> change it, and run <code>h2lab</code> again ·",
    ] {
        assert!(page.contains(words), "{words}");
    }
}

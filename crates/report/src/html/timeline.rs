//! Waterfalls as pictures: stand-alone, and in a page.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::Serialize;

use super::axis::{PlotArea, Scale};
use super::svg::{Anchor, Svg, escape};
use super::template::render;
use crate::document::TimelineDocument;
use crate::timeline::{
    EventKind, TimelineEvent, connect_events, heading, left_off, stream_events, stream_title,
};
use h2lab_model::timeline::hops::HopVerdict;
use h2lab_model::timeline::{TimelineStream, TimelineSummary};

const WIDTH: f64 = 960.0;
const RIGHT: f64 = 120.0;
const LEFT: f64 = 230.0;
const LANE: f64 = 34.0;
const HEADING: f64 = 30.0;
/// Characters of a lane's name.
const NAME: usize = 31;

/// The page's style and script.
pub(super) const STYLE: &str = concat!(include_str!("style.css"), include_str!("timeline.css"));
pub(super) const SCRIPT: &str = include_str!("script.js");

/// The data of the template.
#[derive(Serialize)]
pub(super) struct Page {
    pub title: String,
    pub notes: Vec<String>,
    pub hops: Vec<HopRow>,
    pub parts: Vec<Part>,
    pub facts: Vec<Vec<String>>,
    pub version: String,
    pub style: &'static str,
    pub script: &'static str,
}

#[derive(Serialize)]
pub(super) struct HopRow {
    server: String,
    what: &'static str,
    class: &'static str,
    verdict: String,
    evidence: String,
}

/// A picture, and the text around it.
#[derive(Default, Serialize)]
pub(super) struct Part {
    pub heading: String,
    pub notes: Vec<String>,
    pub columns: Vec<(&'static str, &'static str)>,
    pub rows: Vec<Vec<String>>,
    pub picture: String,
    /// Further pictures, each with its description.
    pub more: Vec<(String, String)>,
}

impl Page {
    /// The page as text.
    pub fn render(&self) -> String {
        render(include_str!("timeline.html"), self)
    }
}

/// A timeline as a page that loads nothing.
pub fn timeline_page(document: &TimelineDocument) -> String {
    let parts = sections(document).into_iter().map(|section| Part {
        heading: section.title.clone().unwrap_or_default(),
        picture: picture(std::slice::from_ref(&Section { title: None, ..section }), most(document)),
        ..Part::default()
    });
    let asked = &document.asked;
    let facts = if document.legs.is_empty() { facts(&document.summary) } else { Vec::new() };
    Page {
        title: format!("{} {} over {}", asked.method, asked.url, asked.protocol),
        notes: notes(document),
        hops: hops(document),
        parts: parts.collect(),
        facts,
        version: format!("h2lab {}", document.version),
        style: STYLE,
        script: SCRIPT,
    }
    .render()
}

/// A timeline as a stand-alone picture. Its colours are literal: not every viewer supports CSS variables.
pub fn timeline_svg(document: &TimelineDocument) -> String {
    let picture = picture(&sections(document), most(document));
    let namespace = "<svg xmlns=\"http://www.w3.org/2000/svg\" ";
    let picture = picture.replacen("<svg ", namespace, 1);
    let after = picture.find('>').map_or(0, |end| end + 1);
    let (opening, shapes) = picture.split_at(after);
    let title = escape(&heading(document));
    // Variables, the page's dark colours and its print rules are blocks of several lines; a rule that is drawn is one line.
    let rules = STYLE.split("@media").next().unwrap_or_default();
    let drawn: String =
        STYLE.lines().filter(|line| !line.starts_with(['@', ' ', '}', ':'])).collect::<Vec<_>>().join("\n");
    let style = written_out(rules, &drawn);
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{opening}\n<title>{title}</title>\n<style>{style}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>{shapes}\n"
    )
}

/// `css` with its variables replaced by the values in `rules`.
fn written_out(rules: &str, css: &str) -> String {
    let variables = rules.split(['{', ';', '\n']).filter_map(|part| part.trim().split_once(": "));
    let named = variables.filter(|(name, _)| name.starts_with("--"));
    named.fold(css.to_owned(), |css, (name, value)| css.replace(&format!("var({name})"), value))
}

/// The lines under the title.
fn notes(document: &TimelineDocument) -> Vec<String> {
    let mut notes = vec![format!("{}.", heading(document))];
    if !document.legs.is_empty() {
        notes.push(
            "Each picture is the same exchange, seen where bytes enter that server: the first by the client, the others by \
             a listener of h2lab that passes bytes on. All times are of one clock."
                .to_owned(),
        );
    }
    if document.answered < document.runs {
        let why = document.each.iter().find_map(|run| run.failed.as_deref()).unwrap_or("no response came");
        let missing = document.runs - document.answered;
        notes.push(format!("{missing} of {} runs were not answered: {why}.", document.runs));
    }
    let more = |section: &Section<'_>| {
        let place = section.title.as_ref().map_or_else(String::new, |title| format!("{title}: "));
        left_off(section.summary).map(|text| format!("{place}{text}."))
    };
    notes.extend(sections(document).iter().filter_map(more));
    notes
}

fn hops(document: &TimelineDocument) -> Vec<HopRow> {
    let rulings = document.hops.iter().flat_map(|hop| {
        [("1xx", &hop.early_hints), ("push", &hop.push), ("trailers", &hop.trailers)]
            .map(|(what, ruling)| (hop.server.clone(), what, ruling))
    });
    let row = |(server, what, ruling): (String, &'static str, &h2lab_model::timeline::hops::Ruling)| HopRow {
        server,
        what,
        class: match ruling.verdict {
            HopVerdict::Broken => "verdict-broken",
            HopVerdict::Swallowed | HopVerdict::HeldBack | HopVerdict::Partly => "verdict-poor",
            HopVerdict::Forwarded | HopVerdict::Added => "verdict-good",
            HopVerdict::None | HopVerdict::Refused => "",
        },
        verdict: ruling.verdict.to_string(),
        evidence: ruling.evidence.clone(),
    };
    rulings.map(row).collect()
}

/// A line for each time, with its spread.
fn facts(summary: &TimelineSummary) -> Vec<Vec<String>> {
    let line = |of: &str, event: TimelineEvent| {
        let spread = event.spread;
        let ms = |ms: Option<f64>| ms.map_or_else(String::new, |ms| format!("{ms:.2}"));
        vec![
            of.to_owned(),
            event.name,
            format!("{:.2}", event.ms),
            ms(spread.map(|one| one.min)),
            ms(spread.map(|one| one.max)),
            spread.map_or_else(String::new, |one| one.runs.to_string()),
        ]
    };
    let mut rows: Vec<Vec<String>> =
        connect_events(summary).into_iter().map(|event| line("connect", event)).collect();
    for one in &summary.streams {
        let title = stream_title(one);
        rows.extend(stream_events(one).into_iter().map(|event| line(&title, event)));
    }
    rows
}

/// A waterfall of the picture.
pub(super) struct Section<'a> {
    pub title: Option<String>,
    pub summary: &'a TimelineSummary,
}

fn sections(document: &TimelineDocument) -> Vec<Section<'_>> {
    if document.legs.is_empty() {
        return vec![Section { title: None, summary: &document.summary }];
    }
    let leg = |leg: &'_ h2lab_model::timeline::hops::Leg| {
        format!("In front of {} ({}), asked in {}", leg.server, leg.version, leg.protocol)
    };
    document.legs.iter().map(|one| Section { title: Some(leg(one)), summary: &one.summary }).collect()
}

fn most(document: &TimelineDocument) -> f64 {
    sections(document).iter().map(|section| latest(section.summary)).fold(0.0, f64::max)
}

/// The time of the last event.
pub(super) fn latest(summary: &TimelineSummary) -> f64 {
    let streams = summary.streams.iter().flat_map(stream_events);
    connect_events(summary).into_iter().chain(streams).fold(0.0, |most, event| most.max(event.ms))
}

/// Waterfalls one below the other, on one axis from 0 to `most` milliseconds.
pub(super) fn picture(sections: &[Section<'_>], most: f64) -> String {
    let lanes = |section: &Section<'_>| {
        usize::from(!connect_events(section.summary).is_empty()) + section.summary.streams.len()
    };
    let headings = sections.iter().filter(|section| section.title.is_some()).count() as f64;
    let height = sections.iter().map(lanes).sum::<usize>() as f64 * LANE + headings * HEADING + 6.0;
    let frame = PlotArea {
        left: LEFT,
        top: 6.0,
        width: WIDTH - LEFT - RIGHT,
        height,
        x: Scale::linear(most.max(1e-3)),
        y: Scale::Linear { from: 0.0, to: 1.0 },
    };
    let mut svg = Svg::new(WIDTH, height + 46.0, "A waterfall: when each thing happened, in milliseconds");
    frame.draw_x(&mut svg, "ms since the client began to connect", 0.0);
    let mut y = frame.top;
    for section in sections {
        if let Some(title) = &section.title {
            svg.text("condition", (8.0, y + 20.0), Anchor::Start, title);
            y += HEADING;
        }
        let connect = connect_events(section.summary);
        if !connect.is_empty() {
            connect_lane(&mut svg, &frame, y, &connect);
            y += LANE;
        }
        for one in &section.summary.streams {
            stream_lane(&mut svg, &frame, y, one);
            y += LANE;
        }
    }
    svg.finish()
}

fn connect_lane(svg: &mut Svg, frame: &PlotArea, y: f64, events: &[TimelineEvent]) {
    svg.text("lane", (LEFT - 10.0, y + 23.0), Anchor::End, "connection");
    let mut from = 0.0;
    for event in events {
        let (x, end) = (frame.at_x(from), frame.at_x(event.ms));
        svg.rectangle("handshake", (x, y + 14.0), ((end - x).max(0.8), 12.0), &rendered(event));
        svg.line("whisker", (end, y + 11.0), (end, y + 29.0));
        from = event.ms;
    }
    let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
    svg.text("mark", (frame.at_x(from) + 6.0, y + 24.0), Anchor::Start, &names.join(", "));
}

/// One stream: when it waited, when it received, and the events in between.
fn stream_lane(svg: &mut Svg, frame: &PlotArea, y: f64, one: &TimelineStream) {
    let events = stream_events(one);
    let pushed = if one.stream.pushed { " pushed" } else { "" };
    let mut name = format!("{}{pushed} {}", one.stream.id, one.stream.path);
    if name.chars().count() > NAME {
        name = name.chars().take(NAME - 1).chain(['…']).collect();
    }
    svg.text("lane", (LEFT - 10.0, y + 23.0), Anchor::End, &name);
    let (Some(first), Some(last)) = (events.first(), events.last()) else { return };
    let response = one.stream.headers_ms;
    let waited_until = response.unwrap_or(last.ms);
    let (x, middle) = (frame.at_x(first.ms), frame.at_x(waited_until));
    let class = if response.is_some() { "wait" } else { "broken" };
    svg.rectangle(class, (x, y + 15.0), ((middle - x).max(0.8), 10.0), "waiting for the response");
    let end = frame.at_x(one.stream.end_ms.unwrap_or(waited_until));
    if response.is_some() {
        svg.rectangle("receive", (middle, y + 13.0), ((end - middle).max(1.6), 14.0), "receiving it");
    }
    let mut taken = BTreeSet::new();
    for event in &events {
        marks(svg, frame, y, event, &mut taken);
    }
    let text = match (response, one.stream.status) {
        (Some(ms), Some(status)) if one.stream.is_over() => format!("{status} at {ms:.1} ms"),
        (Some(ms), Some(status)) => format!("{status} at {ms:.1} ms, not finished"),
        _ => "no response".to_owned(),
    };
    svg.text("mark", (end.max(frame.at_x(last.ms)) + 7.0, y + 24.0), Anchor::Start, &text);
}

/// A dot for an event that neither begins nor ends a bar, with its name above it where there is room.
fn marks(svg: &mut Svg, frame: &PlotArea, y: f64, event: &TimelineEvent, taken: &mut BTreeSet<i64>) {
    let class = match event.kind {
        EventKind::Interim => "dot interim",
        EventKind::Promise => "dot promise",
        EventKind::Headers => "dot headers",
        EventKind::Reset => "dot reset",
        EventKind::Request => "dot request",
        EventKind::Connect | EventKind::Data | EventKind::End => return,
    };
    let x = frame.at_x(event.ms);
    if let Some(spread) = event.spread {
        // Below the bars, where there is no text.
        svg.line("whisker", (frame.at_x(spread.min), y + 31.0), (frame.at_x(spread.max), y + 31.0));
    }
    svg.dot(class, (x, y + 20.0), &rendered(event));
    let named = matches!(event.kind, EventKind::Interim | EventKind::Promise | EventKind::Reset);
    // Names of closer events would overlap.
    let place = (x / 70.0) as i64;
    if named && taken.insert(place) {
        let short = event.name.split(" (").next().unwrap_or_default();
        svg.text("mark", (x, y + 9.0), Anchor::Start, short);
    }
}

/// `103 (1 link): 2.10 ms (1.9 to 2.6 in 11 runs)`.
fn rendered(event: &TimelineEvent) -> String {
    let mut text = format!("{}: {:.2} ms", event.name, event.ms);
    if let Some(spread) = event.spread {
        let _ = write!(text, " ({:.2} to {:.2} in {} runs)", spread.min, spread.max, spread.runs);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{TimelineAsked, timeline_document};
    use h2lab_model::timeline::hops::{Leg, judge};
    use h2lab_model::timeline::testing::{exchange, pushed};
    use h2lab_model::workload::Protocol;

    fn document(path: &str) -> TimelineDocument {
        let asked = TimelineAsked {
            url: path.to_owned(),
            protocol: Protocol::H2c,
            method: "GET".to_owned(),
            push: true,
            interrupted: false,
        };
        let mut run = exchange(path, &[(103, 2.0)], 80.0);
        run.streams.push(pushed("/style.css", 1.0, 4.0));
        let front = Leg::of("proxy", "1.2", Protocol::H2c, path, std::slice::from_ref(&run));
        let back = Leg::of("origin", "0.1", Protocol::H1, path, &[exchange(path, &[], 79.0)]);
        let hops = vec![judge(&front, &back, path)];
        timeline_document(asked, vec![run], (vec![front, back], hops))
    }

    #[test]
    fn a_page_loads_nothing_and_shows_each_leg_and_verdict() {
        let page = timeline_page(&document("/<script>alert(1)</script>"));
        assert!(
            !page.contains("<script>alert") && !page.contains("src=") && !page.contains("http://"),
            "{page}"
        );
        assert!(
            page.contains("In front of proxy (1.2), asked in h2c") && page.contains("In front of origin")
        );
        assert!(page.contains("verdict-good") && page.contains("PUSH_PROMISE: 1.00 ms"));
    }

    #[test]
    fn a_picture_by_itself_is_xml_with_its_colours_written_out() {
        let picture = timeline_svg(&document("/"));
        assert!(picture.starts_with("<?xml") && picture.contains("xmlns=\"http://www.w3.org/2000/svg\""));
        assert!(!picture.contains("var(--") && picture.contains("#0072b2"), "{picture}");
        assert_eq!(picture.matches("<svg").count(), 1);
        let style = picture.split("<style>").nth(1).unwrap().split("</style>").next().unwrap();
        let unbalanced = style.lines().find(|line| line.matches('{').count() != line.matches('}').count());
        assert_eq!(unbalanced, None, "each rule is a line");
    }
}

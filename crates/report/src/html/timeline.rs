//! Waterfalls as pictures: stand-alone, and in a page.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde::Serialize;

use super::axis::{PlotArea, Scale};
use super::form::{Form, both};
use super::shell::{Repeat, STYLE, Section, Shell};
use super::svg::{Anchor, Svg, escape};
use super::template::render;
use crate::document::TimelineDocument;
use crate::format::plural;
use crate::timeline::{
    EventKind, TimelineEvent, connect_events, heading, left_off, stream_events, stream_title,
};
use h2lab_model::timeline::hops::HopVerdict;
use h2lab_model::timeline::{TimelineStream, TimelineSummary};

const HEADING: f64 = 30.0;

/// What the pages of timelines have beside the style of every page.
pub(super) const OWN_STYLE: &str = include_str!("timeline.css");

#[derive(Serialize)]
struct Hops {
    hops: Vec<HopRow>,
}

#[derive(Serialize)]
struct HopRow {
    server: String,
    what: &'static str,
    class: &'static str,
    verdict: String,
    evidence: String,
}

/// A picture, and the text around it.
#[derive(Default, Serialize)]
pub(super) struct Part {
    pub notes: Vec<String>,
    pub columns: Vec<(&'static str, &'static str)>,
    pub rows: Vec<Vec<String>>,
    pub picture: String,
    /// Further pictures, each with its description.
    pub more: Vec<(String, String)>,
}

impl Part {
    /// The part as markup.
    pub fn render(&self) -> String {
        render(include_str!("timeline.html"), self)
    }
}

#[derive(Serialize)]
struct Figures {
    figures: Vec<Vec<String>>,
}

/// A timeline as a page that loads nothing; `command` is the command line that made it.
pub fn timeline_page(document: &TimelineDocument, command: &[String]) -> String {
    let mut sections: Vec<Section> = Vec::new();
    let hops = hops(document);
    if !hops.is_empty() {
        let body = render(include_str!("hops.html"), &Hops { hops });
        sections.push(Section::new("hops", "What each server did", body));
    }
    for (n, section) in self::sections(document).into_iter().enumerate() {
        let title = section.title.clone().unwrap_or_else(|| "Waterfall".to_owned());
        let alone = Waterfall { title: None, ..section };
        let picture = both(|form| picture(std::slice::from_ref(&alone), most(document), form));
        sections.push(Section::new(
            format!("waterfall-{n}"),
            title,
            Part { picture, ..Part::default() }.render(),
        ));
    }
    if document.legs.is_empty() {
        let body =
            render(include_str!("timeline_figures.html"), &Figures { figures: facts(&document.summary) });
        sections.push(Section::new("figures", "Figures", body).folded("Each time, with its spread"));
    }
    let mut notes = notes(document);
    let answer = if notes.is_empty() { Vec::new() } else { vec![notes.remove(0)] };
    Shell {
        kind: "timeline".to_owned(),
        answer,
        notes,
        sections,
        repeat: Repeat { command: command.to_vec(), version: document.version.clone(), ..Repeat::default() },
        style: OWN_STYLE,
        ..Shell::default()
    }
    .render()
}

/// A timeline as a stand-alone picture. Its colours are literal: not every viewer supports CSS variables.
pub fn timeline_svg(document: &TimelineDocument) -> String {
    let picture = picture(&sections(document), most(document), Form::Wide);
    let namespace = "<svg xmlns=\"http://www.w3.org/2000/svg\" ";
    let picture = picture.replacen("<svg ", namespace, 1);
    let after = picture.find('>').map_or(0, |end| end + 1);
    let (opening, shapes) = picture.split_at(after);
    let title = escape(&heading(document));
    // Variables, the page's dark colours and its print rules are blocks of several lines; a rule that is drawn is one line.
    let rules = STYLE.split("@media").next().unwrap_or_default();
    let drawn: String = [STYLE, OWN_STYLE]
        .concat()
        .lines()
        .filter(|line| !line.starts_with(['@', ' ', '}', ':']) && !line.contains("--way"))
        .collect::<Vec<_>>()
        .join("\n");
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
            "Each picture shows the same exchange where bytes enter that server: the first at the client, the others \
             at an h2lab listener that forwards bytes. All times are from one clock."
                .to_owned(),
        );
    }
    if document.answered < document.runs {
        let why =
            document.each.iter().find_map(|run| run.failed.as_deref()).unwrap_or("no response received");
        let missing = document.runs - document.answered;
        notes.push(format!("Not answered: {missing} of {}: {why}.", plural(document.runs.into(), "run")));
    }
    let more = |section: &Waterfall<'_>| {
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
pub(super) struct Waterfall<'a> {
    pub title: Option<String>,
    pub summary: &'a TimelineSummary,
}

fn sections(document: &TimelineDocument) -> Vec<Waterfall<'_>> {
    if document.legs.is_empty() {
        return vec![Waterfall { title: None, summary: &document.summary }];
    }
    let leg = |leg: &'_ h2lab_model::timeline::hops::Leg| {
        format!("In front of {} ({}), asked in {}", leg.server, leg.version, leg.protocol)
    };
    document.legs.iter().map(|one| Waterfall { title: Some(leg(one)), summary: &one.summary }).collect()
}

fn most(document: &TimelineDocument) -> f64 {
    sections(document).iter().map(|section| latest(section.summary)).fold(0.0, f64::max)
}

/// The time of the last event.
pub(super) fn latest(summary: &TimelineSummary) -> f64 {
    let streams = summary.streams.iter().flat_map(stream_events);
    connect_events(summary).into_iter().chain(streams).fold(0.0, |most, event| most.max(event.ms))
}

/// Where a waterfall's lanes are.
#[derive(Clone, Copy)]
struct Lanes {
    form: Form,
}

impl Lanes {
    const fn left(self) -> f64 {
        if matches!(self.form, Form::Wide) { 190.0 } else { 12.0 }
    }

    const fn right(self) -> f64 {
        if matches!(self.form, Form::Wide) { 120.0 } else { 22.0 }
    }

    /// The height of a lane. On a narrow screen its name stands above it.
    const fn height(self) -> f64 {
        if matches!(self.form, Form::Wide) { 36.0 } else { 54.0 }
    }

    /// How far the marks are below the top of a lane.
    const fn below(self) -> f64 {
        if matches!(self.form, Form::Wide) { 0.0 } else { 16.0 }
    }

    fn name(self, svg: &mut Svg, y: f64, name: &str) {
        let most = if self.form == Form::Wide { 25 } else { 34 };
        let mut name = name.to_owned();
        if name.chars().count() > most {
            name = name.chars().take(most - 1).chain(['…']).collect();
        }
        match self.form {
            Form::Wide => svg.text("lane", (self.left() - 10.0, y + 25.0), Anchor::End, &name),
            Form::Narrow => svg.text("lane", (6.0, y + 14.0), Anchor::Start, &name),
        }
    }

    /// What a lane came to, behind its last mark at `x`.
    fn result(self, svg: &mut Svg, y: f64, x: f64, text: &str) {
        match self.form {
            Form::Wide => svg.text("mark", (x + 7.0, y + 25.0), Anchor::Start, text),
            Form::Narrow => svg.text("mark", (self.form.width() - 6.0, y + 14.0), Anchor::End, text),
        }
    }
}

/// Waterfalls one below the other, on one axis from 0 to `most` milliseconds.
pub(super) fn picture(waterfalls: &[Waterfall<'_>], most: f64, form: Form) -> String {
    let lanes = Lanes { form };
    let count = |waterfall: &Waterfall<'_>| {
        usize::from(!connect_events(waterfall.summary).is_empty()) + waterfall.summary.streams.len()
    };
    let headings = waterfalls.iter().filter(|waterfall| waterfall.title.is_some()).count() as f64;
    let height =
        waterfalls.iter().map(count).sum::<usize>() as f64 * lanes.height() + headings * HEADING + 6.0;
    let frame = PlotArea {
        left: lanes.left(),
        top: 6.0,
        width: form.width() - lanes.left() - lanes.right(),
        height,
        x: Scale::linear(most.max(1e-3)),
        y: Scale::Linear { from: 0.0, to: 1.0 },
    };
    let mut svg =
        Svg::new(form.width(), height + 48.0, "Waterfall: when each event happened, in milliseconds");
    frame.draw_x(&mut svg, "ms since the client began to connect", 0.0);
    let mut y = frame.top;
    for waterfall in waterfalls {
        if let Some(title) = &waterfall.title {
            svg.text("condition", (8.0, y + 20.0), Anchor::Start, title);
            y += HEADING;
        }
        let connect = connect_events(waterfall.summary);
        if !connect.is_empty() {
            connect_lane(&mut svg, &frame, lanes, y, &connect);
            y += lanes.height();
        }
        for one in &waterfall.summary.streams {
            stream_lane(&mut svg, &frame, lanes, y, one);
            y += lanes.height();
        }
    }
    svg.finish()
}

fn connect_lane(svg: &mut Svg, frame: &PlotArea, lanes: Lanes, top: f64, events: &[TimelineEvent]) {
    lanes.name(svg, top, "connection");
    let y = top + lanes.below();
    let mut from = 0.0;
    for event in events {
        let (x, end) = (frame.at_x(from), frame.at_x(event.ms));
        svg.rectangle("handshake", (x, y + 15.0), ((end - x).max(0.8), 12.0), &rendered(event));
        svg.line("whisker", (end, y + 12.0), (end, y + 30.0));
        from = event.ms;
    }
    let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
    lanes.result(svg, top, frame.at_x(from), &names.join(", "));
}

/// One stream: when it waited, when it received, and the events in between.
fn stream_lane(svg: &mut Svg, frame: &PlotArea, lanes: Lanes, top: f64, one: &TimelineStream) {
    let events = stream_events(one);
    let pushed = if one.stream.pushed { " pushed" } else { "" };
    lanes.name(svg, top, &format!("{}{pushed} {}", one.stream.id, one.stream.path));
    let (Some(first), Some(last)) = (events.first(), events.last()) else { return };
    let y = top + lanes.below();
    let response = one.stream.headers_ms;
    let waited_until = response.unwrap_or(last.ms);
    let (x, middle) = (frame.at_x(first.ms), frame.at_x(waited_until));
    let class = if response.is_some() { "wait" } else { "broken" };
    svg.rectangle(class, (x, y + 16.0), ((middle - x).max(0.8), 10.0), "waiting for the response");
    let end = frame.at_x(one.stream.end_ms.unwrap_or(waited_until));
    if response.is_some() {
        svg.rectangle("receive", (middle, y + 14.0), ((end - middle).max(1.6), 14.0), "receiving it");
    }
    let mut taken = BTreeSet::new();
    for event in &events {
        marks(svg, frame, lanes, top, event, &mut taken);
    }
    let text = match (response, one.stream.status) {
        (Some(ms), Some(status)) if one.stream.is_over() => format!("{status} at {ms:.1} ms"),
        (Some(ms), Some(status)) => format!("{status} at {ms:.1} ms, not finished"),
        _ => "no response".to_owned(),
    };
    lanes.result(svg, top, end.max(frame.at_x(last.ms)), &text);
}

/// A dot for an event that neither begins nor ends a bar, with its name above it where there is room.
fn marks(
    svg: &mut Svg,
    frame: &PlotArea,
    lanes: Lanes,
    top: f64,
    event: &TimelineEvent,
    taken: &mut BTreeSet<i64>,
) {
    let class = match event.kind {
        EventKind::Interim => "dot interim",
        EventKind::Promise => "dot promise",
        EventKind::Headers => "dot headers",
        EventKind::Reset => "dot reset",
        EventKind::Request => "dot request",
        EventKind::Connect | EventKind::Data | EventKind::End => return,
    };
    let (x, y) = (frame.at_x(event.ms), top + lanes.below());
    if let Some(spread) = event.spread {
        // Below the bars, where there is no text.
        svg.line("whisker", (frame.at_x(spread.min), y + 32.0), (frame.at_x(spread.max), y + 32.0));
    }
    svg.dot(class, (x, y + 21.0), &rendered(event));
    let named = matches!(event.kind, EventKind::Interim | EventKind::Promise | EventKind::Reset);
    // Names of closer events would overlap; on a narrow screen the lane's own name is above.
    let place = (x / 80.0) as i64;
    if named && lanes.form == Form::Wide && taken.insert(place) {
        let short = event.name.split(" (").next().unwrap_or_default();
        svg.text("mark", (x, y + 11.0), Anchor::Start, short);
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
        let page = timeline_page(&document("/<script>alert(1)</script>"), &[]);
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
        assert!(!picture.contains("var(--") && picture.contains("#0a5a92"), "{picture}");
        assert_eq!(picture.matches("<svg").count(), 1);
        let style = picture.split("<style>").nth(1).unwrap().split("</style>").next().unwrap();
        let unbalanced = style.lines().find(|line| line.matches('{').count() != line.matches('}').count());
        assert_eq!(unbalanced, None, "each rule is a line");
    }
}

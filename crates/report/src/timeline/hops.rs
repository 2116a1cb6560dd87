//! A chain of servers as text: what each did, and the waterfall in front of each.

use std::fmt::Write as _;

use super::track::{Track, waterfall};
use crate::document::TimelineDocument;
use crate::fold::fold;
use crate::style::{Paint, TextStyle, paragraph};
use crate::table::{name, number};
use h2lab_model::timeline::hops::{Hop, HopVerdict, Leg, Ruling};

/// Renders all of it.
pub(super) fn render(out: &mut String, document: &TimelineDocument, style: TextStyle) {
    overview(out, document, style);
    for hop in &document.hops {
        rulings(out, hop, style);
    }
    let summaries = document.legs.iter().map(|leg| &leg.summary);
    let track = Track::of(summaries, style);
    for leg in &document.legs {
        let title = format!("\nin front of {} ({}), asked in {}", leg.server, leg.version, leg.protocol);
        let _ = writeln!(out, "{}", style.paint(Paint::Bold, &title));
        waterfall(out, &leg.summary, &track);
    }
}

/// The chain from the client to the origin: when each server was seen to send what.
fn overview(out: &mut String, document: &TimelineDocument, style: TextStyle) {
    let columns = [
        name("server"),
        name("asked in"),
        number("promise", "ms"),
        number("first 1xx", "ms"),
        number("response", "ms"),
        number("answered", "runs"),
        name("1xx"),
        name("push"),
        name("trailers"),
    ];
    let rows: Vec<Vec<String>> =
        document.legs.iter().enumerate().map(|(n, leg)| row(document, n, leg)).collect();
    out.push('\n');
    let table = fold(&columns, &rows, style);
    for line in table.header.iter().chain(&table.rows) {
        let _ = writeln!(out, "{line}");
    }
    if let Some(note) = &table.note {
        paragraph(out, style, "", note);
    }
}

fn row(document: &TimelineDocument, place: usize, leg: &Leg) -> Vec<String> {
    let hop = document.hops.get(place);
    let rendered = |ruling: fn(&Hop) -> &Ruling| {
        hop.map_or_else(|| "(origin)".to_owned(), |hop| ruling(hop).verdict.to_string())
    };
    let waterfall = leg.summary.waterfall();
    let main = waterfall.asked(Some(&document.asked.url)).or_else(|| waterfall.asked(None));
    let ms = |ms: Option<f64>| ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}"));
    vec![
        leg.server.clone(),
        leg.protocol.to_string(),
        ms(waterfall.first_promise_ms()),
        ms(main.and_then(|main| main.interim.first()).map(|interim| interim.ms)),
        ms(main.and_then(|main| main.headers_ms)),
        format!("{}/{}", leg.answered, leg.asked),
        rendered(|hop| &hop.early_hints),
        rendered(|hop| &hop.push),
        rendered(|hop| &hop.trailers),
    ]
}

/// What a server did, with the evidence.
fn rulings(out: &mut String, hop: &Hop, style: TextStyle) {
    for (what, ruling) in [("1xx", &hop.early_hints), ("push", &hop.push), ("trailers", &hop.trailers)] {
        if ruling.evidence.is_empty() || ruling.verdict == HopVerdict::Refused {
            continue;
        }
        let paint = match ruling.verdict {
            HopVerdict::Broken => Paint::Red,
            HopVerdict::Swallowed | HopVerdict::HeldBack | HopVerdict::Partly | HopVerdict::None => {
                Paint::Yellow
            }
            HopVerdict::Forwarded | HopVerdict::Added | HopVerdict::Refused => Paint::Green,
        };
        let verdict = style.paint(paint, &ruling.verdict.to_string());
        let begun = format!("{}: {what} {verdict}", hop.server);
        paragraph(out, style, "  ", &format!("{begun}: {}", ruling.evidence));
    }
}

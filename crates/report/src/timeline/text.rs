//! The waterfalls of a document as text.

use super::hops;
use super::track::{Track, waterfall};
use crate::document::TimelineDocument;
use crate::format::plural;
use crate::style::{Paint, TextStyle, paragraph};

/// The heading of the figures.
pub fn heading(document: &TimelineDocument) -> String {
    let times = if document.runs == 1 {
        "one run".to_owned()
    } else {
        format!("medians of {} runs and spread (min–max)", document.runs)
    };
    let asked = &document.asked;
    let push = if asked.protocol.is_multiplexed() && !asked.push { ", push refused" } else { "" };
    format!(
        "{} {} over {}{push}: {times}, in ms since the client began to connect",
        asked.method, asked.url, asked.protocol
    )
}

/// That the client did not run in some of the runs, if so.
fn pauses(document: &TimelineDocument) -> Option<String> {
    let paused = || document.each.iter().map(|run| run.paused_ms).filter(|ms| *ms > 0.0);
    let longest = paused().reduce(f64::max)?;
    Some(format!(
        "In {} of {} runs h2lab did not run for up to {longest:.0} ms: it, or its machine, was stopped. Their times \
         may not reflect the server.",
        paused().count(),
        document.runs
    ))
}

/// The document for people.
pub fn timeline_text(document: &TimelineDocument, style: TextStyle) -> String {
    let mut out = String::new();
    paragraph(&mut out, style, "", &style.paint(Paint::Bold, &heading(document)));
    if document.legs.is_empty() {
        let track = Track::of([&document.summary], style);
        waterfall(&mut out, &document.summary, &track);
    } else {
        hops::render(&mut out, document, style);
    }
    if document.answered < document.runs {
        let missing = document.runs - document.answered;
        let why =
            document.each.iter().find_map(|run| run.failed.as_deref()).unwrap_or("no response received");
        let text = format!("\nnot answered: {missing} of {}: {why}\n", plural(document.runs.into(), "run"));
        out.push_str(&style.paint(Paint::Red, &text));
    }
    if let Some(words) = pauses(document) {
        out.push('\n');
        paragraph(&mut out, style, "", &style.paint(Paint::Red, &words));
    }
    style.printable(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::style::AnswerPlace;

    /// Of a terminal that accepts nothing else.
    const ASCII: TextStyle =
        TextStyle { colour: false, width: 100, unicode: false, verdicts: false, answer: AnswerPlace::First };
    use crate::document::{TimelineAsked, timeline_document};
    use crate::timeline::event::{EventKind, stream_events};
    use h2lab_model::timeline::testing::{exchange, pushed};
    use h2lab_model::timeline::{TimeSpread, TimelineStream, WaterfallStream};
    use h2lab_model::workload::Protocol;

    fn document(runs: Vec<h2lab_model::timeline::Waterfall>) -> TimelineDocument {
        let asked = TimelineAsked {
            url: "http://h/early".to_owned(),
            protocol: Protocol::H2c,
            method: "GET".to_owned(),
            push: true,
            interrupted: false,
        };
        timeline_document(asked, runs, (Vec::new(), Vec::new()))
    }

    #[test]
    fn each_thing_has_its_line_in_order_of_time() {
        let mut run = exchange("/early", &[(103, 2.0)], 80.0);
        run.streams.push(pushed("/style.css", 1.0, 4.0));
        let text = timeline_text(&document(vec![run]), ASCII);
        let names: Vec<&str> =
            text.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(
            names,
            [
                "stream",
                "request",
                "103",
                "HEADERS",
                "first",
                "end",
                "stream",
                "PUSH_PROMISE",
                "HEADERS",
                "end"
            ]
        );
        assert!(text.is_ascii(), "{text}");
        let at = |name: &str| text.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        assert!(at("103").contains("2.00") && at("HEADERS 200").ends_with('*'), "{text}");
    }

    #[test]
    fn several_runs_show_how_far_they_lie_apart_and_what_was_not_answered() {
        let mut lost = exchange("/early", &[(103, 9.0)], 80.0);
        (lost.streams[0].status, lost.streams[0].end_ms, lost.streams[0].headers_ms) = (None, None, None);
        lost.failed = Some("the server closed it".to_owned());
        let runs =
            vec![exchange("/early", &[(103, 2.0)], 80.0), lost, exchange("/early", &[(103, 3.0)], 90.0)];
        let text = timeline_text(&document(runs), TextStyle::default());
        assert!(text.contains("medians of 3 runs"), "{text}");
        let hints = text.lines().find(|line| line.trim_start().starts_with("103")).unwrap();
        assert!(hints.contains("3.00") && hints.contains("2.0–9.0"), "{hints}");
        assert!(text.contains("not answered: 1 of 3 runs: the server closed it"), "{text}");
    }

    #[test]
    fn runs_in_which_the_client_did_not_run_are_counted() {
        let run = exchange("/early", &[(103, 2.0)], 80.0);
        let paused = h2lab_model::timeline::Waterfall { paused_ms: 2_900.4, ..run.clone() };
        let text = |runs| timeline_text(&document(runs), TextStyle::default());
        assert!(!text(vec![run.clone(), run.clone()]).contains("did not run"));
        let text = text(vec![run, paused]);
        assert!(text.contains("In 1 of 2 runs h2lab did not run for up to 2900 ms"), "{text}");
    }

    #[test]
    fn spreads_go_by_their_names() {
        let spread = TimeSpread { min: 1.0, max: 2.0, runs: 2 };
        let spreads = std::collections::BTreeMap::from([("interim[0]".to_owned(), spread)]);
        let stream = exchange("/", &[(103, 1.5)], 9.0).streams.remove(0);
        let events = stream_events(&TimelineStream { stream, spread: spreads, ..TimelineStream::default() });
        assert_eq!(events.iter().find(|one| one.kind == EventKind::Interim).unwrap().spread, Some(spread));
        assert_eq!(events.iter().filter(|one| one.spread.is_some()).count(), 1);
    }

    #[test]
    fn what_no_time_shows_stands_in_the_title_and_below() {
        let run = |status: u16, end: Option<f64>| {
            let mut run = exchange("/early", &[], 80.0);
            run.streams[0].status = Some(status);
            run.streams.push(WaterfallStream { end_ms: end, ..pushed("/style.css", 1.0, 4.0) });
            run
        };
        let mut last = run(200, None);
        last.left_off = 3;
        let text = timeline_text(&document(vec![run(200, Some(4.0)), run(502, None), last]), ASCII);
        assert!(text.contains("/early (200 in 2, 502 in 1 runs)"), "{text}");
        assert!(text.contains("/style.css, pushed, not finished in 2 of 3 runs"), "{text}");
        assert!(text.contains("3 more streams not shown"), "{text}");
        let alone = timeline_text(&document(vec![run(200, None)]), ASCII);
        assert!(alone.contains("/style.css, pushed, not finished\n"), "{alone}");
    }
}

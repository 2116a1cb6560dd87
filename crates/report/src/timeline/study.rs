//! The table of a study of waterfalls as text, with another study's beside it.

use std::fmt::Write as _;

use crate::fold::fold;
use crate::style::{Paint, TextStyle, paragraph};
use crate::table::{Column, name, number};
use h2lab_model::timeline::study::{Announcement, StudyTable, TimelineRow};

/// The columns of the table.
pub(crate) const STUDY_COLUMNS: [Column; 10] = [
    name("page"),
    name("announced by").rank(1),
    name("behind").rank(1),
    name("103 on").rank(7),
    number("promise", "ms").rank(2),
    number("103", "ms").rank(2),
    number("pushed", "ms").rank(4),
    number("response", "ms").rank(3),
    number("lead", "ms").rank(1),
    Column { unit: "/ 103 / response, lead", ..name("the original: promise") }.goes_on().rank(1),
];

/// How a page was announced, as the server's setting.
pub(crate) fn announcement(row: &TimelineRow) -> String {
    match row.case.announcement {
        Announcement::BackendLink => "Link from upstream".to_owned(),
        Announcement::BackendHints => "103 from upstream".to_owned(),
        Announcement::Link | Announcement::Early => row.case.setting.clone(),
    }
}

/// The cells of a row.
pub(crate) fn study_cells(document: &StudyTable, row: &TimelineRow) -> Vec<String> {
    let ms = |ms: Option<f64>| ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}"));
    let main = match (row.answered, row.main_ms) {
        (_, None) => "never".to_owned(),
        (0, main) => format!("{}, cut", ms(main)),
        (n, main) if n < row.runs => format!("{} in {n}/{}", ms(main), row.runs),
        (_, main) => ms(main),
    };
    vec![
        row.case.source.to_string(),
        announcement(row),
        row.case.backend.map_or_else(|| "-".to_owned(), |backend| backend.to_string()),
        row.case.early_hints.map_or("-", |on| if on { "yes" } else { "no" }).to_owned(),
        ms(row.promise_ms),
        ms(row.early_hints_ms),
        ms(row.pushed_ms),
        main,
        ms(row.promise_lead_ms.or(row.early_hints_lead_ms)),
        original(document, row),
    ]
}

/// `slow proxy, H2PushResource, behind h2c, 103 on`.
pub(crate) fn label(row: &TimelineRow) -> String {
    let behind = row.case.backend.map_or_else(String::new, |backend| format!(", {backend} behind"));
    let hints = match row.case.early_hints {
        Some(true) => ", 103 on",
        Some(false) => ", 103 off",
        None => "",
    };
    format!("{}, {}{behind}{hints}", row.case.source, announcement(row))
}

/// The errors of a row, a sentence each.
pub(crate) fn flaws(document: &StudyTable, row: &TimelineRow) -> Vec<String> {
    let mut flaws = Vec::new();
    if row.answered < row.runs {
        let why = row.failed.as_deref().unwrap_or("no response received");
        flaws.push(format!("not answered in {} of {} runs: {why}", row.runs - row.answered, row.runs));
    }
    if row.runs < document.runs {
        flaws.push(format!("{} of {} runs were made", row.runs, document.runs));
    }
    if row.unfinished > 0 {
        flaws.push(format!("a promised response was incomplete in {} of {} runs", row.unfinished, row.runs));
    }
    flaws
}

/// The other study's result for the same row.
fn original(document: &StudyTable, row: &TimelineRow) -> String {
    let Some(original) = document.original.as_ref().filter(|one| one.server == row.case.server) else {
        return String::new();
    };
    let same = |other: &&h2lab_model::timeline::study::OriginalRow| {
        other.source == row.case.source && other.announcement == row.case.announcement
    };
    original.rows.iter().find(same).map_or_else(String::new, |other| {
        let hints = other.early_hints_ms.filter(|_| row.case.early_hints == Some(true));
        let hints = hints.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.0}"));
        let lead = other.main_ms - other.promise_ms;
        format!("{:.0} / {hints} / {:.0}, {lead:.0}", other.promise_ms, other.main_ms)
    })
}

/// The study for people.
pub fn study_text(document: &StudyTable, style: TextStyle) -> String {
    let mut out = String::new();
    paragraph(&mut out, style, "", &style.paint(Paint::Bold, &document.claim));
    let how = format!(
        "Over {}, medians of {} runs, in ms since the client began to connect; lead: how long the first promise, else the \
         first 103, came before the response (the median of the differences). The slow backend takes {} ms, the CGI \
         program {} ms.",
        document.protocol, document.runs, document.backend_delay_ms, document.cgi_delay_ms
    );
    paragraph(&mut out, style, "", &how);
    for group in document.rows.chunk_by(|a, b| a.case.server == b.case.server) {
        let title = format!("\n{} {}", group[0].case.server, group[0].version);
        let _ = writeln!(out, "{}", style.paint(Paint::Bold, &title));
        let has_original = document.original.as_ref().is_some_and(|one| one.server == group[0].case.server);
        let columns =
            if has_original { &STUDY_COLUMNS[..] } else { &STUDY_COLUMNS[..STUDY_COLUMNS.len() - 1] };
        let rows: Vec<Vec<String>> = group.iter().map(|row| study_cells(document, row)).collect();
        let table = fold(columns, &rows, style);
        for line in table.header.iter().chain(&table.rows) {
            let _ = writeln!(out, "{line}");
        }
        if let Some(note) = &table.note {
            paragraph(&mut out, style, "", note);
        }
        for row in group {
            for text in flaws(document, row) {
                let text = format!("{}: {text}", label(row));
                paragraph(&mut out, style, "  ", &style.paint(Paint::Red, &text));
            }
        }
    }
    for missing in &document.missing {
        let text = format!("{} in front of {}: {}", missing.server, missing.backend, missing.why);
        paragraph(&mut out, style, "not asked: ", &text);
    }
    if let Some(original) = &document.original {
        paragraph(&mut out, style, "\nThe original study: ", &original.what);
    }
    style.printable(out)
}

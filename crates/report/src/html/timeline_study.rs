//! A study of waterfalls as a page: for each server its table, all of its rows as one picture, and every waterfall.

use super::axis::Scale;
use super::form::{Form, Rows, both};
use super::shell::{Repeat, Section, Shell};
use super::svg::Svg;
use super::timeline::{OWN_STYLE, Part, Waterfall, latest, picture};
use crate::timeline::{STUDY_COLUMNS, announcement, flaws, label, study_cells};
use h2lab_model::timeline::study::{Original, OriginalRow, StudyTable, TimelineRow};

/// A study as a page that loads nothing; `command` is the command line that made it.
pub fn study_page(document: &StudyTable, command: &[String]) -> String {
    let mut sections: Vec<Section> = document.original.iter().map(|one| original(document, one)).collect();
    let servers = document.rows.chunk_by(|a, b| a.case.server == b.case.server);
    sections.extend(servers.enumerate().map(|(n, rows)| part(document, rows, n)));
    let mut notes = vec![format!(
        "Over {}, medians of {} runs, in milliseconds since the client began to connect; lead: how long the first promise, else \
         the first 103, came before the response. The slow backend takes {} ms, the CGI program {} ms.",
        document.protocol, document.runs, document.backend_delay_ms, document.cgi_delay_ms,
    )];
    notes.extend(
        document
            .missing
            .iter()
            .map(|one| format!("Not asked: {} in front of {}: {}.", one.server, one.backend, one.why)),
    );
    Shell {
        kind: "run".to_owned(),
        answer: vec![document.claim.clone()],
        notes,
        sections,
        repeat: Repeat { command: command.to_vec(), version: document.version.clone(), ..Repeat::default() },
        style: OWN_STYLE,
        ..Shell::default()
    }
    .render()
}

/// The other study's results, as a picture like ours.
fn original(document: &StudyTable, original: &Original) -> Section {
    // With the labels of the same server's rows.
    let words = |row: &OriginalRow| {
        let same = |ours: &&TimelineRow| {
            ours.case.server == original.server && ours.case.announcement == row.announcement
        };
        document.rows.iter().find(same).map(announcement).unwrap_or_default()
    };
    let lane = |row: &OriginalRow| format!("{}, {}", row.source, words(row));
    let lanes: Vec<Lane> = original
        .rows
        .iter()
        .map(|row| Lane {
            label: lane(row),
            promise: Some(row.promise_ms),
            hints: row.early_hints_ms,
            pushed: Some(row.pushed_ms),
            main: Some(row.main_ms),
        })
        .collect();
    let title = format!("Original study: {}", original.server);
    let part = Part {
        notes: vec![original.what.clone()],
        picture: both(|form| lanes_picture(&lanes, form)),
        ..Part::default()
    };
    Section::new("original", title, part.render())
}

/// The rows of one server.
fn part(document: &StudyTable, rows: &[TimelineRow], n: usize) -> Section {
    let has_original = document.original.as_ref().is_some_and(|one| one.server == rows[0].case.server);
    let columns = if has_original { STUDY_COLUMNS.len() } else { STUDY_COLUMNS.len() - 1 };
    let lanes: Vec<Lane> = rows
        .iter()
        .map(|row| Lane {
            label: label(row),
            promise: row.promise_ms,
            hints: row.early_hints_ms,
            pushed: row.pushed_ms,
            main: row.main_ms,
        })
        .collect();
    let flawed = rows
        .iter()
        .flat_map(|row| flaws(document, row).into_iter().map(|text| format!("{}: {text}", label(row))));
    let part = Part {
        notes: flawed.collect(),
        columns: STUDY_COLUMNS[..columns].iter().map(|column| (column.title, column.unit)).collect(),
        rows: rows.iter().map(|row| study_cells(document, row).into_iter().take(columns).collect()).collect(),
        picture: both(|form| lanes_picture(&lanes, form)),
        more: rows.iter().map(|row| (label(row), waterfall(row))).collect(),
    };
    Section::new(format!("server-{n}"), format!("{} {}", rows[0].case.server, rows[0].version), part.render())
}

fn waterfall(row: &TimelineRow) -> String {
    let alone = [Waterfall { title: None, summary: &row.waterfall }];
    both(|form| picture(&alone, latest(&row.waterfall), form))
}

/// A row as a line of the picture.
struct Lane {
    label: String,
    promise: Option<f64>,
    hints: Option<f64>,
    pushed: Option<f64>,
    main: Option<f64>,
}

/// One lane for each row: how long the response took, and the events before it.
fn lanes_picture(lanes: &[Lane], form: Form) -> String {
    let all = lanes.iter().flat_map(|lane| [lane.promise, lane.hints, lane.pushed, lane.main]).flatten();
    let most = all.fold(1e-3, f64::max);
    let rows = Rows::new(form, lanes.iter().map(|lane| lane.label.as_str()), 2);
    let frame = rows.area(lanes.len() as f64 * rows.height() + 6.0, Scale::linear(most));
    let mut svg = Svg::new(
        form.width(),
        frame.height + 48.0,
        "When promises, 103 and responses arrived, a line for each page",
    );
    frame.draw_x(&mut svg, "ms since the client began to connect", 0.0);
    for (n, lane) in lanes.iter().enumerate() {
        let top = frame.top + n as f64 * rows.height();
        let y = rows.middle(top);
        rows.label(&mut svg, "lane", top, &lane.label);
        match lane.main {
            Some(main) => {
                let (note, end) = (format!("response: {main:.1} ms"), frame.at_x(main));
                svg.rectangle("wait", (frame.left, y - 5.0), (end - frame.left, 10.0), &note);
                svg.rectangle("receive", (end - 1.5, y - 8.0), (3.0, 16.0), &note);
            }
            None => {
                svg.rectangle("broken", (frame.left, y - 5.0), (frame.width, 10.0), "no response received");
            }
        }
        for (class, what, ms) in
            [("dot promise", "PUSH_PROMISE", lane.promise), ("dot interim", "103", lane.hints)]
        {
            if let Some(ms) = ms {
                let below = if what == "103" { 3.0 } else { -3.0 };
                svg.dot(class, (frame.at_x(ms), y + below), &format!("{what}: {ms:.1} ms"));
            }
        }
    }
    svg.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use h2lab_model::timeline::study::{Announcement, PageSource, TimelineCase};
    use h2lab_model::timeline::testing::{exchange, pushed};
    use h2lab_model::workload::Protocol;

    #[test]
    fn a_study_has_a_part_for_each_server_beside_the_original() {
        let row = |server: &str, main: f64| {
            let mut run = exchange("/", &[(103, 2.0)], main);
            run.streams.push(pushed("/style.css", 2.0, 3.0));
            let case = TimelineCase {
                server: server.to_owned(),
                backend: Some(Protocol::H1),
                early_hints: Some(true),
                source: PageSource::SlowProxy,
                announcement: Announcement::Early,
                setting: "H2PushResource".to_owned(),
                path: "/".to_owned(),
            };
            TimelineRow::of(case, "2.4", &[run])
        };
        let other = OriginalRow {
            source: PageSource::SlowProxy,
            announcement: Announcement::Early,
            promise_ms: 13.0,
            early_hints_ms: Some(13.0),
            pushed_ms: 13.0,
            main_ms: 24.0,
        };
        let document = StudyTable {
            version: "0".to_owned(),
            claim: "early is early".to_owned(),
            protocol: Protocol::H2,
            runs: 1,
            backend_delay_ms: 80.0,
            cgi_delay_ms: 60.0,
            interrupted: false,
            rows: vec![row("apache", 82.0), row("nginx", 83.0)],
            missing: Vec::new(),
            original: Some(Original {
                what: "a post".to_owned(),
                server: "apache".to_owned(),
                rows: vec![other],
            }),
        };
        let page = study_page(&document, &[]);
        assert!(page.contains("<h2>apache 2.4 ") && page.contains("<h2>nginx 2.4 "), "{page}");
        assert!(page.contains("24, 11"), "the original stands beside ours: {page}");
        assert!(page.contains("Original study: apache") && page.contains("Every waterfall"));
        let text = crate::study_text(&document, crate::TextStyle::default());
        assert!(text.contains("13 / 13 / 24, 11") && text.contains("80.0"), "{text}");
        let mut flawed = document;
        (flawed.runs, flawed.rows[0].answered, flawed.rows[1].unfinished) = (11, 0, 1);
        let (page, text) =
            (study_page(&flawed, &[]), crate::study_text(&flawed, crate::TextStyle::default()));
        for rendered in [
            "not answered in 1 of 1 runs",
            "1 of 11 runs were made",
            "a promised response was incomplete in 1 of 1 runs",
            "82.0, cut",
        ] {
            // Undoes the line breaks.
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(page.contains(rendered) && text.contains(rendered), "{rendered}: {text}");
        }
    }
}

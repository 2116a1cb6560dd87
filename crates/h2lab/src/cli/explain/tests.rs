//! Lists, searches, and the commands on pages.

use super::*;
use crate::cli::command;

fn asked(words: &str) -> Selection {
    select(&[words.to_owned()]).unwrap_or_else(|error| panic!("{words}: {error}"))
}

#[test]
fn the_list_has_every_cause_and_check_in_80_columns_and_marks_those_with_a_rule() {
    let text = list(
        &select(&[]).expect("all"),
        h2lab_report::TextStyle { width: 80, ..h2lab_report::TextStyle::default() },
    );
    for cause in CAUSES {
        let line = text.lines().find(|line| line.starts_with(cause.id)).expect(cause.id);
        assert_eq!(line.contains('*'), cause.status.is_found(), "{line}");
        assert!(line.contains(cause.summary), "{line}");
    }
    for check in CHECKS {
        assert!(text.lines().any(|line| line.starts_with(check.id)), "{}", check.id);
    }
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn an_id_or_a_name_in_any_case_is_one_page() {
    for word in ["LOSS101", "loss101", "tcp-head-of-line-blocking"] {
        let found = asked(word);
        assert_eq!((found.causes.len(), found.checks.len()), (1, 0), "{word}");
        assert!(cause_page(found.causes[0]).contains("- how it is found: rule, stable"), "{word}");
    }
    let found = asked("prot105");
    assert_eq!((found.causes.len(), found.checks[0].name), (0, "h2c-upgrade"));
}

#[test]
fn words_list_those_with_all_of_them_in_name_or_summary() {
    let found = asked("window");
    assert!(found.causes.iter().any(|cause| cause.id == "FLOW103"));
    assert!(found.checks.iter().any(|check| check.id == "CLNT103"));
    let words = ["Stream".to_owned(), "window".to_owned()];
    let both = select(&words).expect("some have both");
    assert!(both.causes.len() < found.causes.len());
    assert!(both.causes.iter().all(|cause| cause.family() == "FLOW"));
}

#[test]
fn a_wrong_id_is_an_error_with_near_ones() {
    let error = select(&["LOSS110".to_owned()]).err().expect("there is no such cause").to_string();
    assert!(error.starts_with("there is no cause or check `LOSS110`; near: "), "{error}");
    assert!(error.contains("LOSS101"), "{error}");
}

/// What stands in backquotes and begins with `h2lab `, with line ends as spaces.
fn commands(page: &str) -> Vec<String> {
    let quoted = page.split('`').skip(1).step_by(2);
    let words = quoted.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
    words.filter(|text| text.starts_with("h2lab ")).collect()
}

#[test]
fn every_command_on_a_page_parses() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for cause in CAUSES {
        for text in commands(cause.page) {
            let mut words = Vec::new();
            for (k, part) in text.split('\'').enumerate() {
                match k % 2 {
                    0 => words.extend(part.split_whitespace().map(str::to_owned)),
                    _ => words.push(part.to_owned()),
                }
            }
            // A command's name alone is prose: `h2lab bulk get`.
            if text.contains(" -") || text.contains("://") {
                seen += 1;
                let parsed = command().try_get_matches_from(&words);
                wrong.extend(parsed.err().map(|error| format!("{}: {text}: {error}", cause.id)));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(seen > CAUSES.len(), "{seen} commands");
}

#[test]
fn every_page_names_a_command_that_confirms_it_or_says_that_there_is_none() {
    for cause in CAUSES {
        let confirm = cause.page.split("## Confirm").nth(1).and_then(|rest| rest.split("\n## ").next());
        let confirm = confirm.expect("a section").replace('\n', " ");
        assert!(confirm.contains("`h2lab ") || confirm.contains("h2lab cannot"), "{}: {confirm}", cause.id);
    }
}

#[test]
fn the_document_has_every_cause_with_how_it_is_found() {
    let all = select(&[]).expect("all");
    let json = serde_json::to_value(document::document(&all.causes, &all.checks)).expect("it can be written");
    assert_eq!(json["causes"].as_array().map(Vec::len), Some(CAUSES.len()));
    let loss = json["causes"].as_array().into_iter().flatten().find(|cause| cause["id"] == "LOSS101");
    assert_eq!(
        loss.map(|cause| (&cause["found"], &cause["rule_status"])),
        Some((&"rule".into(), &"stable".into()))
    );
    let client = json["causes"].as_array().into_iter().flatten().find(|cause| cause["id"] == "CONN108");
    assert_eq!(
        client.map(|cause| (&cause["found"], &cause["rule_status"])),
        Some((&"of-client".into(), &"preview".into()))
    );
}

#[test]
fn the_page_of_all_causes_is_that_of_this_program() {
    let published = include_str!("../../../../../docs/causes.md");
    assert!(
        published == markdown(),
        "docs/causes.md lags behind: `cargo run -- gen causes > docs/causes.md`"
    );
}

//! What every cause and every page must have.

use std::collections::BTreeSet;

use super::*;
use h2lab_model::probe::{CHECKS, Group};
use h2lab_model::settings::{self, Peer, Wish};

/// The headings of every page, in this order.
const HEADINGS: [&str; 6] =
    ["What it is", "Why it is slower than HTTP/1.1", "Evidence", "Confirm", "Fix", "References"];

#[test]
fn all_causes_are_listed_once_by_family_and_number() {
    let place = |cause: &CauseMeta| FAMILIES.iter().position(|(letters, _)| *letters == cause.family());
    for cause in CAUSES {
        assert!(place(cause).is_some(), "{} is of no family", cause.id);
        let number = cause.id.strip_prefix(cause.family()).and_then(|number| number.parse::<u32>().ok());
        assert!(number.is_some_and(|number| (101..1_000).contains(&number)), "{}", cause.id);
    }
    assert!(CAUSES.is_sorted_by(|a, b| (place(a), a.id) < (place(b), b.id)));
    let names: BTreeSet<&str> = CAUSES.iter().map(|cause| cause.name).collect();
    assert_eq!(names.len(), CAUSES.len());
}

#[test]
fn a_cause_is_found_by_id_and_name_and_no_check_has_either() {
    for one in CAUSES {
        assert_eq!(cause(&one.id.to_lowercase()).map(|found| found.id), Some(one.id));
        assert_eq!(cause(one.name).map(|found| found.id), Some(one.id));
        assert_eq!(Group::of(one.id), None, "{} has the letters of a group of checks", one.id);
    }
    for check in CHECKS {
        assert!(cause(check.id).is_none() && cause(check.name).is_none(), "{}", check.id);
    }
    assert!(cause("LOSS999").is_none());
}

#[test]
fn names_are_words_with_hyphens_and_summaries_fit_a_line_of_a_list() {
    let is_word = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    for cause in CAUSES {
        assert!(is_word(cause.name) && is_word(cause.knob), "{}", cause.id);
        assert!((20..=70).contains(&cause.summary.chars().count()), "{}: {}", cause.id, cause.summary);
        assert!(!cause.summary.ends_with('.'), "{}", cause.id);
        assert!(cause.status.needs().is_none_or(|needs| needs.len() > 20), "{}", cause.id);
    }
}

#[test]
fn pages_have_their_title_the_fixed_headings_a_length_and_links_that_are_https() {
    for cause in CAUSES {
        let title =
            cause.page.lines().next().and_then(|line| line.strip_prefix(&format!("# {}: ", cause.id)));
        let title = title.expect(cause.id).to_lowercase();
        assert_eq!(title.replace(['-', '/', '.'], " "), cause.name.replace('-', " "));
        let headings: Vec<&str> = cause.page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        assert_eq!(headings, HEADINGS, "{}", cause.id);
        assert!((25..=60).contains(&cause.page.lines().count()), "{}", cause.id);
        let wide = cause.page.lines().find(|line| line.chars().count() > 110);
        assert_eq!(wide, None, "{}", cause.id);
        let references = cause.page.split("## References").nth(1).unwrap_or_default();
        assert!(references.lines().any(|line| line.starts_with("- ")), "{}", cause.id);
        for line in references.lines().filter(|line| line.contains("://")) {
            assert!(line.starts_with("- https://"), "{}: {line}", cause.id);
        }
        let fix = cause.page.split("## Fix").nth(1).unwrap_or_default();
        assert!(fix.lines().any(|line| line.starts_with("- ")), "{}", cause.id);
    }
}

#[test]
fn what_a_cause_supersedes_exists_and_no_two_supersede_each_other() {
    fn reaches(from: &str, to: &str, left: usize) -> bool {
        let below = cause(from).map_or(&[][..], |cause| cause.supersedes);
        left > 0 && below.iter().any(|id| *id == to || reaches(id, to, left - 1))
    }
    for one in CAUSES {
        for id in one.supersedes {
            assert!(cause(id).is_some(), "{} supersedes {id}, which does not exist", one.id);
        }
        assert!(!reaches(one.id, one.id, CAUSES.len()), "{} supersedes itself", one.id);
    }
}

#[test]
fn evidence_is_named_once_per_cause() {
    for cause in CAUSES {
        let checks: BTreeSet<&str> = cause.checks.iter().map(|check| check.id).collect();
        let waits: BTreeSet<_> = cause.waits.iter().map(|kind| kind.name()).collect();
        let limits: BTreeSet<_> = cause.limits.iter().map(|kind| kind.name()).collect();
        let listed = cause.checks.len() + cause.waits.len() + cause.limits.len();
        assert_eq!(checks.len() + waits.len() + limits.len(), listed, "{}", cause.id);
    }
}

#[test]
fn fixes_that_name_a_knob_are_in_the_table_and_the_page_does_not_repeat_its_settings() {
    for cause in CAUSES {
        let fix = cause.page.split("## Fix").nth(1).unwrap_or_default();
        for line in fix.lines().filter(|line| line.starts_with("- setting:")) {
            let wish = settings::wish(line).unwrap_or_else(|| panic!("{}: {line}", cause.id));
            let names = settings::fixes(&Peer::unknown(), Wish { value: None, ..wish });
            assert!(!names.is_empty(), "{}: {line}", cause.id);
            for name in names {
                assert!(!fix.contains(&format!("`{}`", name.setting)), "{}: {}", cause.id, name.setting);
            }
        }
        let text = cause.text();
        assert!(!text.contains("- setting:"), "{}", cause.id);
        // Else Markdown joins it to the item of a list before it.
        let is_apart = |(at, _): (usize, &str)| text[..at].ends_with('\n');
        assert!(text.match_indices("\nSettings ").all(is_apart), "{}", cause.id);
    }
}

#[test]
fn limits_and_waits_lead_to_causes_that_name_them_as_evidence() {
    for kind in BindingKind::ALL {
        for we_send in [false, true] {
            assert!(of_limit(*kind, we_send).is_none_or(|cause| cause.limits.contains(kind)), "{kind}");
        }
    }
    for kind in CauseKind::ALL {
        assert!(of_wait(*kind).is_none_or(|cause| cause.waits.contains(kind)), "{}", kind.name());
    }
    assert_eq!(of_limit(BindingKind::StreamWindow, true).map(|cause| cause.id), Some("FLOW102"));
    assert_eq!(of_limit(BindingKind::StreamWindow, false).map(|cause| cause.id), Some("FLOW101"));
    assert_eq!(of_limit(BindingKind::Disk, true).map(|cause| cause.id), Some("HOST107"));
    assert_eq!(of_wait(CauseKind::CongestionWindow).map(|cause| cause.id), Some("LOSS102"));
}

#[test]
fn a_check_leads_to_the_causes_that_name_it_as_evidence_and_to_no_other() {
    let of = |id: &str| of_check(id).map(|cause| cause.id).collect::<Vec<_>>();
    assert_eq!(of("LIMT101"), ["CONN101"]);
    assert!(of("LIMT104").contains(&"MUX101") && of("LIMT104").len() > 1, "{:?}", of("LIMT104"));
    assert!(of("LIMT999").is_empty());
    for cause in CAUSES {
        assert!(cause.checks.iter().all(|check| of(check.id).contains(&cause.id)), "{}", cause.id);
    }
}

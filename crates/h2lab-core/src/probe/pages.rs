//! All checks. One check is one page in `pages/`, one line here, and one place in the shell that decides it.

use super::{CheckMeta, Severity};

/// Declares the checks: what the shell calls them, and the list of all.
macro_rules! checks {
    ($($(#[doc = $doc:literal])* $constant:ident = $name:literal, $severity:ident;)*) => {
        /// The checks, by their ids, for whoever decides them.
        pub mod id {
            use super::{CheckMeta, Severity};

            $(
                $(#[doc = $doc])*
                pub const $constant: &CheckMeta = &CheckMeta {
                    id: stringify!($constant),
                    name: $name,
                    severity: Severity::$severity,
                    since: "0.1.0",
                    doc: include_str!(concat!("pages/", stringify!($constant), ".md")),
                };
            )*
        }

        /// All checks, in the order of the reports. The only list.
        pub const CHECKS: &[&CheckMeta] = &[$(id::$constant,)*];
    };
}

checks! {
    /// HTTP/1.1 in clear or over TLS.
    PROT101 = "http-1.1", Low;
}

/// The check with this id, for its page.
pub fn explain(id: &str) -> Option<&'static CheckMeta> {
    CHECKS.iter().copied().find(|meta| meta.id == id)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::diagnose;
    use crate::probe::{Group, HEADINGS};

    #[test]
    fn every_check_has_an_id_of_a_group_and_is_listed_once() {
        let ids: BTreeSet<&str> = CHECKS.iter().map(|meta| meta.id).collect();
        assert_eq!(ids.len(), CHECKS.len());
        for meta in CHECKS {
            assert!(Group::of(meta.id).is_some(), "{}", meta.id);
            assert_eq!(explain(meta.id), Some(*meta));
            assert_eq!(diagnose::explain(meta.id), None, "rules and checks share `h2lab explain`");
        }
        assert!(CHECKS.is_sorted_by_key(|meta| (Group::of(meta.id), meta.id)));
    }

    #[test]
    fn every_page_has_its_title_the_fixed_headings_a_question_and_something_to_do() {
        for meta in CHECKS {
            assert!(meta.doc.starts_with(&format!("# {}: {}\n", meta.id, meta.name)), "{}", meta.id);
            let headings: Vec<&str> = meta.doc.lines().filter_map(|line| line.strip_prefix("## ")).collect();
            assert_eq!(headings, HEADINGS, "{}", meta.id);
            assert!(meta.question().ends_with(['.', '?']), "{}: {}", meta.id, meta.question());
            assert!(!meta.fixes().is_empty(), "{} has no line of a fix", meta.id);
        }
    }
}

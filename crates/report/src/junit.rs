//! `JUnit` XML for CI systems: suites of test cases, of `probe` and `diagnose`.

use std::fmt::Write;

/// What became of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CaseOutcome {
    /// It holds; what was seen.
    Passed(String),
    /// It fails: its kind (a severity), what is wrong, and lines of detail.
    Failed {
        /// The attribute `type`.
        kind: String,
        /// What is wrong.
        message: String,
        /// Evidence and fixes, a line each.
        details: String,
    },
    /// It was not decided; why.
    Skipped(String),
    /// It could not be measured: nothing is known, and whoever reads the document alone must see that.
    Errored {
        /// The attribute `type`.
        kind: String,
        /// Why.
        message: String,
    },
}

/// A test case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Case {
    /// What it belongs to: `h2lab.probe.PROT101`.
    pub class: String,
    /// Its name.
    pub name: String,
    /// What became of it.
    pub outcome: CaseOutcome,
}

/// A document: its name, how long it took, and its suites. Suites without a case are left out.
#[derive(Debug, Clone)]
pub(super) struct Suites {
    /// The command and what it was about.
    pub name: String,
    /// Seconds that it took.
    pub seconds: f64,
    /// Each suite's name with its cases.
    pub all: Vec<(String, Vec<Case>)>,
}

impl Suites {
    /// As XML 1.0.
    pub fn xml(&self) -> String {
        let cases = || self.all.iter().flat_map(|(_, cases)| cases);
        let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let _ = writeln!(
            out,
            "<testsuites name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" time=\"{:.3}\">",
            escape(&self.name),
            cases().count(),
            cases().filter(|case| case.is_failed()).count(),
            cases().filter(|case| case.is_error()).count(),
            self.seconds,
        );
        for (name, cases) in self.all.iter().filter(|(_, cases)| !cases.is_empty()) {
            suite(&mut out, name, cases);
        }
        out.push_str("</testsuites>\n");
        out
    }
}

impl Case {
    const fn is_failed(&self) -> bool {
        matches!(self.outcome, CaseOutcome::Failed { .. })
    }

    /// Whether it could not be measured.
    pub const fn is_error(&self) -> bool {
        matches!(self.outcome, CaseOutcome::Errored { .. })
    }
}

fn suite(out: &mut String, name: &str, cases: &[Case]) {
    let skipped = cases.iter().filter(|case| matches!(case.outcome, CaseOutcome::Skipped(_))).count();
    let _ = writeln!(
        out,
        "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{skipped}\">",
        escape(name),
        cases.len(),
        cases.iter().filter(|case| case.is_failed()).count(),
        cases.iter().filter(|case| case.is_error()).count(),
    );
    for case in cases {
        let (class, name) = (escape(&case.class), escape(&case.name));
        let _ = writeln!(out, "    <testcase classname=\"{class}\" name=\"{name}\">");
        let _ = match &case.outcome {
            CaseOutcome::Passed(seen) => writeln!(out, "      <system-out>{}</system-out>", escape(seen)),
            CaseOutcome::Failed { kind, message, details } => writeln!(
                out,
                "      <failure type=\"{}\" message=\"{}\">{}</failure>",
                escape(kind),
                escape(message),
                escape(details),
            ),
            CaseOutcome::Errored { kind, message } => {
                writeln!(out, "      <error type=\"{}\" message=\"{}\"/>", escape(kind), escape(message))
            }
            CaseOutcome::Skipped(why) => writeln!(out, "      <skipped message=\"{}\"/>", escape(why)),
        };
        out.push_str("    </testcase>\n");
    }
    out.push_str("  </testsuite>\n");
}

/// Text for XML 1.0: markup escaped, forbidden characters replaced.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\t' | '\n' => out.push(character),
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            _ => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_and_shown() {
        let message = "no response was a success".to_owned();
        let case = |outcome| Case { class: "c".to_owned(), name: "n".to_owned(), outcome };
        let errored = case(CaseOutcome::Errored { kind: "failed".to_owned(), message });
        let all = vec![("S".to_owned(), vec![errored, case(CaseOutcome::Passed(String::new()))])];
        let xml = Suites { name: "x".to_owned(), seconds: 1.5, all }.xml();
        assert_eq!(xml.matches("tests=\"2\" failures=\"0\" errors=\"1\"").count(), 2, "{xml}");
        assert!(xml.contains("<error type=\"failed\" message=\"no response was a success\"/>"), "{xml}");
    }

    #[test]
    fn what_xml_cannot_have_is_replaced() {
        assert_eq!(escape("a\u{0}b\u{1b}c\nd<&>\""), "a\u{fffd}b\u{fffd}c\nd&lt;&amp;&gt;&quot;");
    }
}

//! One check: what was concluded, how bad it is, and what it rests on.

use h2lab_base::JsonSchema;
use h2lab_base::text::made_printable;
use serde::{Deserialize, Serialize};

use super::meta::{CheckMeta, Severity};
use super::pages::explain;
use crate::Fix;
use crate::settings::Peer;
use h2lab_wire::trace::Direction;

/// The verdict of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[derive(strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum Verdict {
    /// It is as it should be; for something optional: it is there.
    Pass,
    /// A defect was shown.
    Fail,
    /// The peer ignored what it was sent: it neither acted on it nor refused it.
    Ignored,
    /// The peer does not have what is checked, and need not.
    Unsupported,
    /// What was seen does not decide it: a budget was used up before, or something else answered.
    Undecided,
}

impl Verdict {
    /// All of them, in the order in which summaries count them.
    pub const ALL: [Self; 5] = [Self::Fail, Self::Pass, Self::Ignored, Self::Unsupported, Self::Undecided];
}

/// A frame, or bytes, that crossed a connection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EvidenceItem {
    /// Which way: `up` from the client to the server.
    pub direction: Direction,
    /// Milliseconds since the connection was dialled.
    pub at_ms: f64,
    /// The frame as `h2lab trace` prints it, or the bytes with what is not printable escaped as in a string of C.
    pub seen: String,
}

/// What a verdict rests on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckEvidence {
    /// What was done or seen, in a sentence.
    pub what: String,
    /// The frames or bytes that show it, in their order; the middle of a long exchange is left out.
    #[serde(alias = "exhibits")]
    pub items: Vec<EvidenceItem>,
}

/// What was concluded of one question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// The check's id, for `h2lab explain`: `PROT105`.
    pub id: String,
    /// Its name: `h2c-upgrade`.
    pub name: String,
    /// Which case of it, if it has several: `HTTP/1.1`, `split headers` …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub case: Option<String>,
    /// Its verdict.
    pub verdict: Verdict,
    /// How bad that is: `info` unless the verdict is `fail`.
    pub severity: Severity,
    /// The answer, in a sentence with numbers.
    pub summary: String,
    /// What it rests on.
    pub evidence: Vec<CheckEvidence>,
    /// What to change, for each product: those of the product that was seen come first. Empty unless it failed.
    pub fix: Vec<Fix>,
}

impl Check {
    /// A verdict on the check that `meta` is about. A failed one is as severe as its page says, and has the fixes there.
    pub fn new(meta: &CheckMeta, verdict: Verdict, summary: impl Into<String>) -> Self {
        let failed = verdict == Verdict::Fail;
        Self {
            id: meta.id.to_owned(),
            name: meta.name.to_owned(),
            case: None,
            verdict,
            severity: if failed { meta.severity } else { Severity::Info },
            summary: printable(summary),
            evidence: Vec::new(),
            fix: if failed { meta.fixes(&Peer::unknown()) } else { Vec::new() },
        }
    }

    /// The same for one of several cases.
    #[must_use]
    pub fn of(mut self, case: impl Into<String>) -> Self {
        self.case = Some(printable(case));
        self
    }

    /// The same with a severity of its own; nothing changes unless it failed.
    #[must_use]
    pub fn severe(mut self, severity: Severity) -> Self {
        if self.verdict == Verdict::Fail {
            self.severity = severity;
        }
        self
    }

    /// The same with a further piece of evidence.
    #[must_use]
    pub fn with(mut self, what: impl Into<String>, items: Vec<EvidenceItem>) -> Self {
        let item = |item: EvidenceItem| EvidenceItem { seen: printable(item.seen), ..item };
        self.evidence
            .push(CheckEvidence { what: printable(what), items: items.into_iter().map(item).collect() });
        self
    }

    /// The same with the fixes of `product` (the text of a `server` field, such as `nginx/1.22.1`) before the others, and by its
    /// version.
    #[must_use]
    pub fn for_product(mut self, product: Option<&str>) -> Self {
        if let (Some(software), Some(meta), false) = (product, explain(&self.id), self.fix.is_empty()) {
            self.fix = meta.fixes(&Peer::of_field(software));
        }
        self
    }

    /// The same without the fixes that `command` has as a flag already.
    #[must_use]
    pub fn beside(mut self, command: &str) -> Self {
        self.fix.retain(|fix| !command.split_whitespace().any(|word| word == fix.setting));
        self
    }

    /// Whether it failed with at least this severity.
    pub fn is_at_least(&self, severity: Severity) -> bool {
        self.verdict == Verdict::Fail && self.severity >= severity
    }
}

/// Our own text may quote a peer's.
fn printable(text: impl Into<String>) -> String {
    made_printable(&text.into()).into_owned()
}

/// Whether `software` (the text of a `server` field) is `product`: by the table of settings, else by its first word, up to the
/// slash before the version.
pub fn is_product(software: &str, product: &str) -> bool {
    if let Some(known) = Peer::of_field(software).product {
        return known.name.eq_ignore_ascii_case(product);
    }
    let name = software.split(|c: char| c == '/' || c.is_whitespace()).next().unwrap_or_default();
    name.eq_ignore_ascii_case(product)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::{CHECKS, id};

    #[test]
    fn a_severity_reads_as_it_is_written() {
        for severity in Severity::ALL {
            assert_eq!(severity.to_string().parse(), Ok(severity));
        }
        assert_eq!("HIGH".parse(), Ok(Severity::High));
        assert!("bad".parse::<Severity>().unwrap_err().contains("medium"));
    }

    #[test]
    fn what_a_check_quotes_of_a_peer_is_printable() {
        let item = EvidenceItem { direction: Direction::Down, at_ms: 0.0, seen: "\u{202e}".to_owned() };
        let check = Check::new(CHECKS[0], Verdict::Pass, "\u{1b}[2J").of("\u{9b}").with("\0", vec![item]);
        let texts = [&check.summary, check.case.as_ref().unwrap(), &check.evidence[0].what];
        assert_eq!(texts, ["\\u{1b}[2J", "\\u{9b}", "\\u{0}"]);
        assert_eq!(check.evidence[0].items[0].seen, "\\u{202e}");
    }

    #[test]
    fn only_a_failed_check_is_severe_and_has_fixes() {
        let meta = CHECKS.iter().find(|meta| !meta.fixes(&Peer::unknown()).is_empty()).unwrap();
        let failed = Check::new(meta, Verdict::Fail, "bad");
        assert_eq!(failed.severity, meta.severity);
        assert!(!failed.fix.is_empty() && failed.is_at_least(Severity::Info));
        assert_eq!(failed.clone().severe(Severity::Critical).severity, Severity::Critical);
        for verdict in [Verdict::Pass, Verdict::Ignored, Verdict::Unsupported, Verdict::Undecided] {
            let check = Check::new(meta, verdict, "well").severe(Severity::Critical);
            assert_eq!((check.severity, check.fix.len()), (Severity::Info, 0));
            assert!(!check.is_at_least(Severity::Info));
        }
    }

    #[test]
    fn fixes_of_the_product_that_was_seen_come_first() {
        let meta = CHECKS.iter().find(|meta| meta.fixes(&Peer::unknown()).len() > 1).unwrap();
        let last = meta.fixes(&Peer::unknown()).last().unwrap().product.clone();
        let check = Check::new(meta, Verdict::Fail, "bad").for_product(Some(&format!("{last}/1.2")));
        assert_eq!(check.fix[0].product, last);
    }
    #[test]
    fn a_product_is_known_by_its_name_and_not_by_a_part_of_it() {
        for (software, product) in
            [("nginx/1.22.1", "nginx"), ("Apache (Debian)", "apache"), ("envoy", "envoy")]
        {
            assert!(is_product(software, product), "{software}");
        }
        for (software, product) in [("Apache-Coyote/1.1", "apache"), ("mongoose/7", "go"), ("", "go")] {
            assert!(!is_product(software, product), "{software}");
        }
    }

    #[test]
    fn a_flag_that_the_command_has_is_no_fix() {
        const FLAG: &str = "--http2-prior-knowledge";
        let has = |command: &str| {
            let check =
                Check::new(id::CLNT101, Verdict::Fail, "it ends with 16").for_product(Some("curl/7.88.1"));
            check.beside(command).fix.iter().any(|fix| fix.setting == FLAG)
        };
        assert!(has("curl -s {url}") && has("curl --http2-prior-knowledge-not {url}"));
        assert!(!has("curl -s --http2-prior-knowledge {url}"));
    }
}

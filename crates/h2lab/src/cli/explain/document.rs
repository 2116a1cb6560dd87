//! What `h2lab explain --json` prints.

use h2lab_analysis::diagnose::waits::CauseKind;
use h2lab_analysis::diagnose::{CauseMeta, Status};
use h2lab_base::JsonSchema;
use h2lab_model::bulk::BindingKind;
use h2lab_model::probe::{CheckMeta, Severity};
use serde::Serialize;

/// Causes and checks.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ExplainDocument {
    /// Version of h2lab.
    version: &'static str,
    /// Causes, by family and number.
    causes: Vec<CauseEntry>,
    /// Checks of `h2lab probe`.
    checks: Vec<CheckEntry>,
}

/// How a cause is found.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Found {
    /// By a rule, which makes findings.
    Rule,
    /// By a rule of `h2lab diagnose --run`: in the connections of a user's client to our own server.
    OfClient,
    /// Not without a view of the server or of another program.
    NeedsServer,
    /// By no rule yet.
    Page,
}

/// A cause.
#[derive(Debug, Serialize, JsonSchema)]
struct CauseEntry {
    /// Its id: `LOSS101`.
    id: &'static str,
    /// Its name in words.
    name: &'static str,
    /// What happens.
    summary: &'static str,
    /// How it is found.
    found: Found,
    /// How far its rule can be trusted: `preview` or `stable`; absent without a rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    rule_status: Option<String>,
    /// What a rule would need, or what would show it; absent with a rule for any record.
    #[serde(skip_serializing_if = "Option::is_none")]
    needs: Option<&'static str>,
    /// The version of h2lab that introduced it.
    since: &'static str,
    /// The checks of `h2lab probe` that are evidence for it.
    checks: Vec<&'static str>,
    /// The parts of a slow request's time that are evidence for it.
    waits: &'static [CauseKind],
    /// The limits of bulk transfers that are evidence for it.
    limits: &'static [BindingKind],
    /// The causes that it explains, so that they are not reported beside it.
    supersedes: &'static [&'static str],
    /// What the confirming experiment changes.
    knob: &'static str,
    /// Its page in Markdown.
    page: String,
}

/// A check of `h2lab probe`.
#[derive(Debug, Serialize, JsonSchema)]
struct CheckEntry {
    /// Its id: `PROT105`.
    id: &'static str,
    /// Its name in words.
    name: &'static str,
    /// How bad it is if it fails.
    severity: Severity,
    /// The version of h2lab that introduced it.
    since: &'static str,
    /// Its page in Markdown.
    page: String,
}

/// The document of these.
pub fn document(causes: &[&'static CauseMeta], checks: &[&'static CheckMeta]) -> ExplainDocument {
    ExplainDocument {
        version: env!("CARGO_PKG_VERSION"),
        causes: causes.iter().copied().map(cause_entry).collect(),
        checks: checks.iter().copied().map(check_entry).collect(),
    }
}

fn cause_entry(cause: &'static CauseMeta) -> CauseEntry {
    let (found, rule_status) = match cause.status {
        Status::Rule { status, .. } => (Found::Rule, Some(status.to_string())),
        Status::OfClient(status) => (Found::OfClient, Some(status.to_string())),
        Status::NeedsServer(_) => (Found::NeedsServer, None),
        Status::Page(_) => (Found::Page, None),
    };
    CauseEntry {
        id: cause.id,
        name: cause.name,
        summary: cause.summary,
        found,
        rule_status,
        needs: cause.status.needs(),
        since: cause.since,
        checks: cause.checks.iter().map(|check| check.id).collect(),
        waits: cause.waits,
        limits: cause.limits,
        supersedes: cause.supersedes,
        knob: cause.knob,
        page: cause.text(),
    }
}

fn check_entry(check: &'static CheckMeta) -> CheckEntry {
    CheckEntry {
        id: check.id,
        name: check.name,
        severity: check.severity,
        since: check.since,
        page: check.page(),
    }
}

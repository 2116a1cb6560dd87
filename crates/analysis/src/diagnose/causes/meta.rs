//! The static part of a cause.

use std::fmt;

use crate::diagnose::waits::CauseKind;
use crate::diagnose::{Rule, RuleStatus};
use h2lab_model::bulk::BindingKind;
use h2lab_model::probe::CheckMeta;
use h2lab_model::settings;

/// The families, in the order of lists: the letters that ids begin with, and what the causes have in common. No check
/// of a probe begins with these letters ([`Group::ALL`](h2lab_model::probe::Group::ALL)).
pub const FAMILIES: [(&str, &str); 10] = [
    ("CONN", "Connections: how they are dialled, kept and ended"),
    ("FLOW", "Flow control: stream and connection windows"),
    ("MUX", "Streams that share a connection"),
    ("LOSS", "TCP and the network"),
    ("HPACK", "Header fields and their compression"),
    ("FRAME", "Frames, TLS records and writes"),
    ("PROXY", "Proxies, translation, and what backends send"),
    ("LIMIT", "Limits that a peer sets"),
    ("SEC", "Security"),
    ("HOST", "The machines at both ends"),
];

/// How a cause is found.
#[derive(Debug, Clone, Copy)]
pub enum Status {
    /// By a rule, which makes findings.
    Rule {
        /// How far it can be trusted.
        status: RuleStatus,
        /// The code.
        rule: &'static dyn Rule,
    },
    /// By `diagnose --run`, of a user's client against our own server: only there is it known what the server offers.
    OfClient(RuleStatus),
    /// Not visible from a client and its link: a rule would need this view of a server or of another program.
    NeedsServer(&'static str),
    /// By no rule yet; this data in our records or in a capture would show it.
    Page(&'static str),
}

impl Status {
    /// In a word or two, for lists.
    pub fn word(self) -> String {
        match self {
            Self::Rule { status, .. } => format!("rule, {status}"),
            Self::OfClient(status) => format!("rule of `diagnose --run`, {status}"),
            Self::NeedsServer(_) => "needs a view of the server".to_owned(),
            Self::Page(_) => "page only".to_owned(),
        }
    }

    /// What a rule would need, or what would show the cause.
    pub const fn needs(self) -> Option<&'static str> {
        match self {
            Self::Rule { .. } => None,
            Self::OfClient(_) => Some("a client of yours, which `h2lab diagnose --run` runs"),
            Self::NeedsServer(what) | Self::Page(what) => Some(what),
        }
    }

    /// Whether h2lab finds the cause, in records or of a user's client.
    pub const fn is_found(self) -> bool {
        matches!(self, Self::Rule { .. } | Self::OfClient(_))
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule { .. } | Self::OfClient(_) => f.write_str(&self.word()),
            Self::NeedsServer(what) => write!(f, "{}: {what}", self.word()),
            Self::Page(what) => write!(f, "{}; what would show it: {what}", self.word()),
        }
    }
}

/// A cause without its rule's code: what lists, reports and `h2lab explain` print about it.
#[derive(Debug, Clone, Copy)]
pub struct CauseMeta {
    /// The letters of its family and a number from 101: `LOSS101`. Never used again for anything else.
    pub id: &'static str,
    /// The name in words: `tcp-head-of-line-blocking`.
    pub name: &'static str,
    /// What happens, in a line of at most 70 characters without a full stop.
    pub summary: &'static str,
    /// How it is found.
    pub status: Status,
    /// The version of h2lab that introduced it.
    pub since: &'static str,
    /// Its page, Markdown with fixed headings, which names the knobs of settings (`h2lab_model::settings::wish`).
    pub page: &'static str,
    /// The checks of `probe` that are evidence for it.
    pub checks: &'static [&'static CheckMeta],
    /// The parts of a slow request's time that are evidence for it.
    pub waits: &'static [CauseKind],
    /// The limits of bulk transfers that are evidence for it.
    pub limits: &'static [BindingKind],
    /// The ids of causes that are not reported beside it, since it explains them.
    pub supersedes: &'static [&'static str],
    /// What the confirming experiment changes, and nothing else.
    pub knob: &'static str,
}

impl CauseMeta {
    /// The letters of its family.
    pub fn family(&self) -> &'static str {
        self.id.trim_end_matches(|c: char| c.is_ascii_digit())
    }

    /// Its page as `h2lab explain` prints it, with the settings of products.
    pub fn text(&self) -> String {
        settings::expanded(self.page)
    }

    /// Its rule, if it has one that looks at records of any client.
    pub const fn rule(&self) -> Option<&'static dyn Rule> {
        match self.status {
            Status::Rule { rule, .. } => Some(rule),
            Status::OfClient(_) | Status::NeedsServer(_) | Status::Page(_) => None,
        }
    }
}

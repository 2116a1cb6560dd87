//! The static part of a check: its page, and the fixes on it.

use std::fmt;

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use super::check::is_product;
use crate::Fix;
use crate::settings::{self, Peer};

/// What a check belongs to. Reports are in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// Protocols and extensions, `PROT`.
    Speaks,
    /// The server's limits, and how it ends a connection, `LIMT`.
    Limits,
    /// Whether a handler behaves the same over HTTP/1.1 and HTTP/2, `MIGR`.
    Readiness,
    /// Attacks, `RESI`.
    Resistance,
    /// Upgrades that a proxy forwards, `SMUG`.
    Smuggling,
    /// HTTP/2 requests that a proxy translates to HTTP/1.1, `DOWN`.
    Translation,
    /// A client, `CLNT`.
    Client,
}

impl Group {
    /// All of them, with the letters that their ids begin with.
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::Speaks, "PROT"),
        (Self::Limits, "LIMT"),
        (Self::Readiness, "MIGR"),
        (Self::Resistance, "RESI"),
        (Self::Smuggling, "SMUG"),
        (Self::Translation, "DOWN"),
        (Self::Client, "CLNT"),
    ];

    /// The group of the check with this id.
    pub fn of(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, letters)| id.starts_with(letters)).map(|(group, _)| group)
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Speaks => "What it speaks",
            Self::Limits => "Its limits",
            Self::Readiness => "h2c migration readiness",
            Self::Resistance => "Resistance",
            Self::Smuggling => "h2c smuggling",
            Self::Translation => "Translation of HTTP/2 into HTTP/1.1",
            Self::Client => "The client under test",
        })
    }
}

/// How bad a failed check is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[derive(strum::Display, strum::EnumString)]
#[strum(serialize_all = "lowercase", ascii_case_insensitive, parse_err_ty = String, parse_err_fn = no_severity)]
pub enum Severity {
    /// Nothing to do.
    Info,
    /// Costs a little, or might one day.
    Low,
    /// Requests are lost or slowed down.
    Medium,
    /// Requests fail permanently, or anyone who can reach the port can harm the service.
    High,
    /// Access control is bypassed, or messages are mistaken for others.
    Critical,
}

impl Severity {
    /// All of them, the least first.
    pub const ALL: [Self; 5] = [Self::Info, Self::Low, Self::Medium, Self::High, Self::Critical];
}

fn no_severity(text: &str) -> String {
    format!("`{text}` is not a severity: info, low, medium, high or critical")
}

/// A check without its verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckMeta {
    /// Four letters of its group and a number: `PROT105`. Never used again for anything else.
    pub id: &'static str,
    /// The name in words: `h2c-upgrade`.
    pub name: &'static str,
    /// How bad it is if it fails.
    pub severity: Severity,
    /// The version of h2lab that introduced it.
    pub since: &'static str,
    /// Its page, as `h2lab explain` prints it: Markdown with the headings of [`HEADINGS`].
    pub doc: &'static str,
}

/// The headings of every page, in this order.
pub const HEADINGS: [&str; 5] =
    ["What is checked", "Why it matters", "How it is decided", "Fix", "References"];

impl CheckMeta {
    /// The fixes for what was seen of the server or the client, those of its product first: the lines of the form
    /// ``- product: `setting` why`` below `## Fix`, and what the table of settings has for lines that name a knob.
    pub fn fixes(&self, peer: &Peer) -> Vec<Fix> {
        let of_line = |line: &str| match settings::wish(line) {
            Some(wish) => settings::fixes(peer, wish),
            None => fix(line).into_iter().collect(),
        };
        let mut fixes: Vec<Fix> = Vec::new();
        for fix in self.section("Fix").flat_map(of_line) {
            let is_said = |other: &Fix| other.product == fix.product && other.setting == fix.setting;
            if !fixes.iter().any(is_said) {
                fixes.push(fix);
            }
        }
        fixes.sort_by_key(|fix| !is_product(&peer.name, &fix.product));
        fixes
    }

    /// Its page, with the settings of products.
    pub fn page(&self) -> String {
        settings::expanded(self.doc)
    }

    /// The first paragraph of its page, as one line.
    pub fn question(&self) -> String {
        let lines = self.section("What is checked").skip_while(|line| line.is_empty());
        lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
    }

    /// The lines below a heading.
    fn section(&self, heading: &str) -> impl Iterator<Item = &'static str> {
        let heading = format!("## {heading}");
        let mut lines = self.doc.lines();
        lines.by_ref().find(|line| *line == heading);
        lines.take_while(|line| !line.starts_with("## "))
    }
}

fn fix(line: &str) -> Option<Fix> {
    let (product, rest) = line.strip_prefix("- ")?.split_once(": ")?;
    let (setting, why) = rest.strip_prefix('`')?.split_once('`')?;
    let own = |text: &str| text.trim().to_owned();
    // The same name as the table's.
    let product =
        Peer::started(product.trim()).product.map_or_else(|| own(product), |known| known.name.clone());
    Some(Fix::new(&product, &own(setting), own(why)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const META: CheckMeta = CheckMeta {
        id: "PROT999",
        name: "a-name",
        severity: Severity::Low,
        since: "0.1.0",
        doc: "# PROT999: a-name\n\n## What is checked\n\nWhether it\nworks.\n\nMore.\n\n## Fix\n\n- nginx: `a b;` because\n- see the manual\n\n## References\n\n- x: `y` z\n",
    };

    #[test]
    fn fixes_are_the_lines_of_their_form_in_their_section() {
        let fix = Fix::new("nginx", "a b;", "because");
        assert_eq!(META.fixes(&Peer::unknown()), [fix]);
        assert_eq!(META.question(), "Whether it works.");
    }

    #[test]
    fn a_line_that_names_a_knob_has_a_fix_for_each_product_and_the_seen_version_first() {
        let doc = "# PROT999: a-name\n\n## Fix\n\n- setting: `h2.stream-window.receive` front 1048576\n- client: `x` y\n";
        let meta = CheckMeta { doc, ..META };
        let fixes = meta.fixes(&Peer::of_field("HAProxy/2.6.12"));
        assert_eq!(fixes[0].setting, "tune.h2.initial-window-size 1048576");
        let of = |product: &str| fixes.iter().filter(|fix| fix.product == product).count();
        assert_eq!(["HAProxy", "nginx", "client", "h2lab"].map(of), [1, 1, 1, 0]);
        let none = meta.fixes(&Peer::of_field("hypercorn-h2"));
        assert!(none[0].product == "Hypercorn" || none[0].product == "hypercorn", "{:?}", none[0]);
        assert!(!none[0].has_setting(), "why it has none is said of the product that was seen");
        let page = meta.page();
        assert!(page.contains("- nginx: `http2_body_preread_size 1024k;` (by default: 64k)\n"), "{page}");
        assert!(page.lines().all(|line| line.chars().count() <= 110), "{page}");
    }
}

//! The variants of the offer of `Upgrade: h2c` (RFC 7540 §3.2) that proxies treat differently.

use h2lab_base::JsonSchema;
use h2lab_wire::{Config, Connection, Role};

/// The field that names a request's attempt and the [`Strictness`] of the backend for it. Proxies
/// forward unknown fields.
pub const ATTEMPT: &str = "x-h2lab-attempt";

/// How careful our backend is.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Strictness {
    /// Switches as RFC 7540 §3.2.1 requires: `Connection` must name `HTTP2-Settings`, and there must be exactly one of
    /// these. So do Go's `h2c` package and nghttp2.
    Strict,
    /// Switches for `Upgrade: h2c` alone, as hypercorn and other servers do.
    Lax,
}

impl Strictness {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Strict, Self::Lax];

    /// `strict`, `lax`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Lax => "lax",
        }
    }
}

/// A variant of the offer to switch to HTTP/2 on a request of HTTP/1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OfferVariant {
    /// Its name in reports.
    pub id: &'static str,
    /// What is special about it.
    pub about: &'static str,
    /// Its field lines; `{}` stands for the value of `HTTP2-Settings`.
    lines: &'static [&'static str],
}

/// Every variant, the most ordinary one first.
pub const OFFERS: [OfferVariant; 8] = [
    OfferVariant {
        id: "both-tokens",
        about: "as RFC 7540 has it: Connection names Upgrade and HTTP2-Settings",
        lines: &["Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: {}"],
    },
    OfferVariant {
        id: "upgrade-only",
        about: "Connection names Upgrade alone, so a proxy forwards HTTP2-Settings like any field",
        lines: &["Connection: Upgrade", "Upgrade: h2c", "HTTP2-Settings: {}"],
    },
    OfferVariant {
        id: "settings-only",
        about: "Connection names HTTP2-Settings alone, so a proxy forwards Upgrade like any field",
        lines: &["Connection: HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: {}"],
    },
    OfferVariant {
        id: "no-settings",
        about: "without HTTP2-Settings",
        lines: &["Connection: Upgrade", "Upgrade: h2c"],
    },
    OfferVariant {
        id: "split",
        about: "two Connection fields, one token in each",
        lines: &["Connection: Upgrade", "Connection: HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: {}"],
    },
    OfferVariant {
        id: "lower-case",
        about: "all names and tokens in lower case",
        lines: &["connection: upgrade, http2-settings", "upgrade: h2c", "http2-settings: {}"],
    },
    OfferVariant {
        id: "upper-case",
        about: "all names and tokens in upper case, which case-sensitive rules may miss",
        lines: &["CONNECTION: UPGRADE, HTTP2-SETTINGS", "UPGRADE: H2C", "HTTP2-SETTINGS: {}"],
    },
    OfferVariant {
        id: "listed",
        about: "h2c after another protocol in Upgrade, which rules for `Upgrade: h2c` may miss",
        lines: &["Connection: Upgrade, HTTP2-Settings", "Upgrade: websocket, h2c", "HTTP2-Settings: {}"],
    },
];

impl OfferVariant {
    /// The field lines, with their line ends.
    fn fields(&self, settings: &str) -> String {
        self.lines.iter().map(|line| line.replace("{}", settings) + "\r\n").collect()
    }
}

/// A plain request, or one with an `offer`: GET of `path` at `authority`, marked with `attempt`.
pub fn request(offer: Option<&OfferVariant>, authority: &str, path: &str, attempt: &str) -> Vec<u8> {
    let settings = Connection::h2c_offer(&Config::new(Role::Client));
    let offered = offer.map_or_else(String::new, |offer| offer.fields(&settings));
    let product = concat!("h2lab/", env!("CARGO_PKG_VERSION"));
    format!(
        "GET {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: {product}\r\nAccept: */*\r\n\
         Cache-Control: no-cache\r\n{ATTEMPT}: {attempt}\r\n{offered}\r\n"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_carries_its_offer_and_its_attempt() {
        let text = |offer| String::from_utf8(request(offer, "a.test", "/x", "3-lax")).unwrap();
        let plain = text(None);
        assert!(
            plain.starts_with("GET /x HTTP/1.1\r\nHost: a.test\r\n") && plain.ends_with("\r\n\r\n"),
            "{plain}"
        );
        assert!(!plain.to_ascii_lowercase().contains("upgrade"), "{plain}");
        assert!(
            plain.contains("\r\nCache-Control: no-cache\r\n"),
            "an answer from a cache says nothing: {plain}"
        );
        let offered = text(Some(&OFFERS[0]));
        assert!(
            offered.contains("\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA")
        );
        assert!(offered.contains("\r\nx-h2lab-attempt: 3-lax\r\n"), "{offered}");
    }

    #[test]
    fn variants_have_names_of_their_own_and_each_names_h2c() {
        for offer in &OFFERS {
            assert_eq!(OFFERS.iter().filter(|other| other.id == offer.id).count(), 1);
            assert!(offer.fields("x").to_ascii_lowercase().contains("h2c"), "{}", offer.id);
        }
    }
}

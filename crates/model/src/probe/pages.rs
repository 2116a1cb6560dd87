//! All checks. One check is one page in `pages/`, one line here, and one place in `roles::probe` that decides it.

use super::{CheckMeta, Severity};

/// Declares the checks: what roles call them, and the list of all.
macro_rules! checks {
    ($($(#[doc = $doc:literal])* $constant:ident = $name:literal, $severity:ident;)*) => {
        /// The checks, by their ids, for the code that decides them.
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
    /// HTTP/1.0.
    PROT102 = "http-1.0", Medium;
    /// HTTP/2 chosen by ALPN.
    PROT103 = "h2-alpn", Medium;
    /// HTTP/2 in clear at once.
    PROT104 = "h2c-prior-knowledge", Medium;
    /// HTTP/2 in clear by `Upgrade: h2c`.
    PROT105 = "h2c-upgrade", Medium;
    /// HTTP/3 over QUIC, and what Alt-Svc says of it.
    PROT106 = "http-3", Medium;
    /// The protocols of one port.
    PROT107 = "one-port", Medium;
    /// The SETTINGS of the server.
    PROT108 = "settings", Low;
    /// RFC 8441.
    PROT109 = "extended-connect", Low;
    /// 1xx.
    PROT110 = "interim-responses", Medium;
    /// Server push.
    PROT111 = "push", Low;
    /// Requests for other names.
    PROT112 = "misdirected", Low;
    /// The protocols of other ports.
    PROT113 = "other-ports", Low;
    /// Requests on one connection.
    LIMT101 = "requests-per-connection", Medium;
    /// Graceful, abrupt or no GOAWAY.
    LIMT102 = "goaway", Low;
    /// Streams above the last one of a GOAWAY.
    LIMT103 = "unprocessed-streams", Medium;
    /// Streams at a time.
    LIMT104 = "concurrent-streams", Medium;
    /// Idle connections.
    LIMT105 = "idle-timeout", Low;
    /// Length of a header field.
    LIMT106 = "header-size", Medium;
    /// Length of a request's body.
    LIMT107 = "body-size", Low;
    /// PINGs.
    LIMT108 = "pings", Low;
    /// Credit for uploads.
    LIMT109 = "upload-windows", Medium;
    /// Length of DATA frames.
    LIMT110 = "data-frames", Low;
    /// Same answer over both versions.
    MIGR101 = "same-answer", High;
    /// Fields that HTTP/2 forbids.
    MIGR102 = "illegal-fields", High;
    /// Responses in pieces.
    MIGR103 = "streaming", Medium;
    /// Trailers.
    MIGR104 = "trailers", Medium;
    /// WebSocket and other upgrades.
    MIGR105 = "connection-upgrade", Medium;
    /// `Expect: 100-continue` in both versions.
    MIGR106 = "expect", Low;
    /// Bodies of requests that upgrade.
    MIGR107 = "upgrade-body", Medium;
    /// Responses that are faster over HTTP/1.1.
    MIGR108 = "large-responses", Low;
    /// Limits of bodies over each way in.
    MIGR109 = "body-limit", Medium;
    /// CVE-2023-44487.
    RESI101 = "rapid-reset", Low;
    /// CVE-2025-8671.
    RESI102 = "made-you-reset", Low;
    /// CVE-2024-27316.
    RESI103 = "continuation-flood", High;
    /// CVE-2016-6581.
    RESI104 = "hpack-bomb", High;
    /// CVE-2019-9512.
    RESI105 = "ping-flood", High;
    /// CVE-2019-9515.
    RESI106 = "settings-flood", High;
    /// CVE-2019-9518.
    RESI107 = "empty-frames", Low;
    /// More streams than announced.
    RESI108 = "streams-beyond-limit", Medium;
    /// Responses that the client never reads.
    RESI109 = "zero-window", Low;
    /// Memory and survival of the server's process.
    RESI110 = "server-memory", Medium;

    /// A tunnel to a backend that takes `Upgrade: h2c` by RFC 7540.
    SMUG101 = "h2c-tunnel-strict", Critical;
    /// A tunnel to a backend that takes any `Upgrade: h2c`.
    SMUG102 = "h2c-tunnel-lax", Critical;
    /// How much of an offer reaches the backend.
    SMUG103 = "h2c-offer-forwarded", Low;
    /// The proxy takes the upgrade itself.
    SMUG104 = "h2c-upgrade-of-the-proxy", Critical;

    /// Line ends and NUL in values.
    DOWN101 = "field-value-injection", Critical;
    /// Line ends and other bytes in names.
    DOWN102 = "field-name-injection", Critical;
    /// Spaces and line ends in method and path.
    DOWN103 = "request-line-injection", High;
    /// `host` against `:authority`.
    DOWN104 = "authority-against-host", High;
    /// `content-length` against DATA.
    DOWN105 = "content-length-against-data", Critical;
    /// `transfer-encoding`.
    DOWN106 = "transfer-encoding", Critical;
    /// Fields of one connection.
    DOWN107 = "connection-specific-fields", Medium;
    /// Pseudo-header fields where none may be.
    DOWN108 = "pseudo-headers-out-of-place", Medium;

    /// What the client speaks.
    CLNT101 = "client-protocol", High;
    /// `SETTINGS_MAX_FRAME_SIZE`.
    CLNT102 = "client-frame-size", Low;
    /// Windows at the start.
    CLNT103 = "client-windows", Medium;
    /// Cadence of WINDOW_UPDATE.
    CLNT104 = "client-window-updates", Medium;
    /// Connections for each GOAWAY.
    CLNT105 = "client-dials-per-goaway", Medium;
    /// Requests above the last stream.
    CLNT106 = "client-replays-after-goaway", High;
    /// Requests lost at a graceful end.
    CLNT107 = "client-graceful-goaway", High;
    /// `REFUSED_STREAM`.
    CLNT108 = "client-replays-refused", Medium;
    /// 1xx.
    CLNT109 = "client-interim-responses", Medium;
    /// Promises.
    CLNT110 = "client-push", Medium;
    /// The settings of the server.
    CLNT111 = "client-obeys-settings", High;
    /// Settings that change.
    CLNT112 = "client-acknowledges-settings", Medium;
    /// Bodies that trickle.
    CLNT113 = "client-slow-body", Medium;
    /// Bodies that stop.
    CLNT114 = "client-stalled-body", Low;
    /// Connections that fall silent.
    CLNT115 = "client-recovers", Medium;
    /// PING on silent connections.
    CLNT116 = "client-pings", Low;
    /// `TCP_NODELAY`.
    CLNT117 = "client-tcp-nodelay", Medium;
    /// Requests after an error's GOAWAY.
    CLNT118 = "client-abrupt-goaway", Medium;
    /// Uploads through small windows.
    CLNT119 = "client-small-windows", High;
}

/// The check with this id, for its page.
pub fn explain(id: &str) -> Option<&'static CheckMeta> {
    CHECKS.iter().copied().find(|meta| meta.id == id)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::probe::{Group, HEADINGS};
    use crate::settings::{self, Peer, Product, Wish};

    #[test]
    fn every_check_has_an_id_of_a_group_and_is_listed_once() {
        let ids: BTreeSet<&str> = CHECKS.iter().map(|meta| meta.id).collect();
        assert_eq!(ids.len(), CHECKS.len());
        for meta in CHECKS {
            assert!(Group::of(meta.id).is_some(), "{}", meta.id);
            assert_eq!(explain(meta.id), Some(*meta));
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
            assert!(!meta.fixes(&Peer::unknown()).is_empty(), "{} has no line of a fix", meta.id);
        }
    }

    #[test]
    fn lines_of_pages_that_name_a_knob_are_understood_and_no_page_repeats_a_setting_of_the_table() {
        for meta in CHECKS {
            let fix = meta.doc.split("## Fix").nth(1).unwrap_or_default();
            for line in fix.lines().filter(|line| line.starts_with("- setting:")) {
                let wish = settings::wish(line).unwrap_or_else(|| panic!("{}: {line}", meta.id));
                let names = settings::fixes(&Peer::unknown(), Wish { value: None, ..wish });
                assert!(!names.is_empty(), "{}: {line}", meta.id);
                for name in names {
                    assert!(!fix.contains(&format!("`{}`", name.setting)), "{}: {}", meta.id, name.setting);
                }
            }
        }
    }

    /// Whether what a line says of a product is a setting: code, or the name of one that the table has.
    fn is_setting(product: &Product, said: &str) -> bool {
        let mut parts = said.split('`').skip(1).step_by(2);
        let words = parts.next().unwrap_or_default();
        let is_plain = words.replace("HTTP/1.1", "").chars().all(|c| c.is_alphanumeric() || c == ' ');
        let is_name = product.settings.iter().any(|setting| setting.name.as_deref() == Some(words));
        !is_plain || is_name || parts.next().is_some()
    }

    #[test]
    fn settings_of_products_stand_in_the_table_and_no_page_has_one() {
        let nginx = Peer::started("nginx").product.unwrap();
        for said in ["`proxy_request_buffering on;` why", "`return 421`", "`update` or `http2 on;`"] {
            assert!(is_setting(nginx, said), "{said}");
        }
        for said in ["`update` to 1.21.1 or newer", "`HTTP/1.1 for WebSockets` since it has no RFC 8441"] {
            assert!(!is_setting(nginx, said), "{said}");
        }
        for meta in CHECKS {
            let fix = meta.doc.split("## Fix").nth(1).unwrap_or_default();
            let lines = fix.lines().filter_map(|line| line.strip_prefix("- ")?.split_once(": "));
            for (name, said) in lines {
                let is_bad = Peer::started(name).product.is_some_and(|product| is_setting(product, said));
                assert!(!is_bad, "{}: {name}: {said}", meta.id);
            }
        }
    }
}

//! `HAProxy`: one port in clear, which recognises HTTP/2 by its preface, and one for both versions over TLS.
//!
//! One process with one thread. It logs nothing when it listens, so readiness is checked by connecting.

use std::fmt::Write as _;

use h2lab_model::timeline::study::{Announcement, PageSource};
use h2lab_model::workload::Protocol;
use rustix::process::Signal;

use super::early::{self, Page};
use super::error::SutError;
use super::kind::{
    About, Endpoints, Launch, MAX_CONCURRENT_STREAMS, Program, Ready, SCRATCH, Site, StartOptions, Sut,
    VersionQuery, certificate,
};
use super::package::Package;
use super::upstream::Upstream;

/// See the [module](self).
#[derive(Debug)]
pub struct Haproxy;

/// The configuration's file.
const CONFIG: &str = "haproxy.cfg";

/// The labels of a key log's lines, and `HAProxy`'s names for the secrets.
const SECRETS: [(&str, &str); 4] = [
    ("CLIENT_HANDSHAKE_TRAFFIC_SECRET", "client_handshake_traffic_secret"),
    ("SERVER_HANDSHAKE_TRAFFIC_SECRET", "server_handshake_traffic_secret"),
    ("CLIENT_TRAFFIC_SECRET_0", "client_traffic_secret_0"),
    ("SERVER_TRAFFIC_SECRET_0", "server_traffic_secret_0"),
];

impl Sut for Haproxy {
    fn about(&self) -> About {
        About {
            name: "haproxy",
            program: Program::Installed { name: "haproxy", package: Package::Debian("haproxy") },
            // `HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https://haproxy.org/`.
            version: VersionQuery {
                arguments: &["-v"],
                read: |line| line.strip_prefix("HAProxy version ")?.split(' ').next(),
            },
            is_proxy: true,
            has_hints_switch: false,
            ready: Ready::Silent,
            built: None,
            // SIGUSR1 stops it gracefully; SIGTERM would at once.
            drain_signal: Signal::USR1,
        }
    }

    /// It has no limit of requests per connection before 3.0 (`tune.h2.fe.max-total-streams`), and then only for HTTP/2.
    fn launch(&self, site: Site<'_>, options: &StartOptions) -> Result<Launch, SutError> {
        options.unlimited(self.name())?;
        let upstream = site.upstream(self.name(), &Protocol::OVER_TCP)?.unforced(self.name())?;
        let endpoints = site.two_ports(options.ip);
        let (certificate, key) = certificate(self.name(), options.ip)?;
        let arguments = ["-db", "-f", CONFIG].map(str::to_owned).to_vec();
        Ok(Launch {
            files: vec![
                (CONFIG.to_owned(), configuration(&endpoints, upstream, options)),
                (format!("{SCRATCH}/server.pem"), certificate + &key),
            ],
            check: std::iter::once("-c".to_owned()).chain(arguments.iter().cloned()).collect(),
            arguments,
            endpoints,
        })
    }

    fn pages(&self) -> Vec<Page> {
        Page::both(&[PageSource::SlowProxy], "http-response add-header Link", "http-request early-hint Link")
    }
}

/// The rules for the pages of its upstream. When the response comes, the path of the request is not available, so it is
/// stored in a variable.
fn early(options: &StartOptions) -> String {
    let Some(pages) = options.pages() else { return String::new() };
    let mut text = "    http-request set-var(txn.page) path\n".to_owned();
    for page in Haproxy.pages() {
        for resource in early::RESOURCES {
            let link = early::link_to(resource).replace(' ', "\\ ");
            let path = &page.path;
            let _ = if page.announcement == Announcement::Early {
                writeln!(text, "    http-request early-hint Link {link} if {{ path {path} }}")
            } else {
                writeln!(
                    text,
                    "    http-response add-header Link {link} if {{ var(txn.page) -m str {path} }}"
                )
            };
        }
        if let Some(behind) = page.behind(pages) {
            let _ = writeln!(text, "    http-request set-path {behind} if {{ path {} }}", page.path);
        }
    }
    let _ = writeln!(text, "    http-request set-path /bytes/4k if {{ path_beg /{}/ }}", early::FOLDER);
    text
}

/// The configuration.
///
/// `fd-hard-limit` bounds the memory that it reserves if a machine allows a billion open files. Retries and the pool of
/// connections to the upstream keep their defaults: they are what is measured.
///
/// It writes the secrets of its clients' TLS 1.3 only into its log, from which they are taken before the log is kept:
/// as lines of a key log, once on each connection, when its first request has ended. The secrets of its own connections
/// to an upstream it writes only from 3.0 on.
fn configuration(endpoints: &Endpoints, upstream: Upstream, options: &StartOptions) -> String {
    let early = early(options);
    let (keep, log_secrets) = if options.key_log.is_some() {
        let line = |(label, fetch)| format!("{label} %[ssl_fc_client_random,hex] %[ssl_fc_{fetch}]");
        let lines = SECRETS.map(line).join("\\n");
        (
            "\n    tune.ssl.keylog on\n    log stdout len 4096 format raw local0",
            format!(
                "
    log global
    http-request set-log-level silent if {{ var(sess.logged) -m bool }}
    http-request set-var(sess.logged) bool(true)
    log-format \"{lines}\""
            ),
        )
    } else {
        ("", String::new())
    };
    let [clear, tls] = [Protocol::H1, Protocol::H1s].map(|protocol| endpoints[&protocol]);
    let server = match upstream.protocol {
        Protocol::H1 => "",
        Protocol::H2c => " proto h2",
        Protocol::H1s => " ssl verify none alpn http/1.1 sni str(server)",
        // With the protocol configured, it need not wait for ALPN: otherwise each request that comes before that dials
        // again.
        Protocol::H2 => " proto h2 ssl verify none alpn h2 sni str(server)",
        Protocol::H3 | Protocol::Tcp => unreachable!("no upstream in HTTP/3 or without HTTP is let in"),
    };
    let address = upstream.address;
    format!(
        "\
global
    nbthread 1
    fd-hard-limit 65536
    tune.h2.max-concurrent-streams {MAX_CONCURRENT_STREAMS}{keep}
defaults
    mode http
    http-reuse always
    option http-no-delay
    timeout connect 5s
    timeout client 1h
    timeout server 1h
    timeout http-keep-alive 1h
frontend clear
    bind {clear}
    default_backend upstream
frontend tls
    bind {tls} ssl crt {SCRATCH}/server.pem alpn h2,http/1.1{log_secrets}
    default_backend upstream
backend upstream
{early}    server upstream {address}{server}
"
    )
}

#[cfg(test)]
mod tests {
    use super::super::testing::{launched, launched_with, options};
    use super::*;

    #[test]
    fn each_protocol_of_the_upstream_has_its_words() {
        for (protocol, words) in [
            (Protocol::H1, "server upstream 127.0.0.1:40001\n"),
            (Protocol::H2c, "server upstream 127.0.0.1:40001 proto h2\n"),
            (Protocol::H1s, "alpn http/1.1 sni"),
            (Protocol::H2, "alpn h2 sni"),
        ] {
            let config = launched(&Haproxy, protocol).unwrap().files.remove(0).1;
            assert!(config.contains(words), "{config}");
        }
    }

    #[test]
    fn an_unsupported_setting_is_refused() {
        assert!(matches!(launched_with(&Haproxy, Protocol::H2c, 2, None), Err(SutError::Unsupported { .. })));
        assert!(matches!(
            launched_with(&Haproxy, Protocol::H1, 1, Some(9)),
            Err(SutError::Unsupported { .. })
        ));
    }

    #[test]
    fn it_logs_secrets_only_if_they_are_wanted() {
        let endpoints = Endpoints::from(
            [Protocol::H1, Protocol::H1s].map(|protocol| (protocol, ([10, 9, 0, 2], 80).into())),
        );
        let upstream = Upstream::new("127.0.0.1:40001".parse().unwrap(), Protocol::H1);
        let options = options();
        let silent = configuration(&endpoints, upstream, &options);
        assert!(!silent.contains("keylog") && !silent.contains("log-format"), "{silent}");
        let rendered =
            configuration(&endpoints, upstream, &StartOptions { key_log: Some("keys".into()), ..options });
        assert!(rendered.contains(
            "SERVER_TRAFFIC_SECRET_0 %[ssl_fc_client_random,hex] %[ssl_fc_server_traffic_secret_0]\""
        ));
        assert_eq!(rendered.matches("\\n").count(), 3, "{rendered}");
    }

    #[test]
    fn its_version_is_reported_without_the_date() {
        let line = "HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https://haproxy.org/";
        assert_eq!((Haproxy.about().version.read)(line), Some("2.6.12-1+deb12u4"));
        assert_eq!((Haproxy.about().version.read)("Status: long-term supported branch"), None);
    }
}

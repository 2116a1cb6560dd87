//! h2o: one port in clear and one over TLS, both versions of HTTP on each. Upstream it speaks HTTP/1.1 only.

use std::fmt::Write as _;

use h2lab_model::timeline::study::{Announcement, PageSource};
use h2lab_model::workload::Protocol;
use rustix::process::{Signal, geteuid};
use rustix::thread::CapabilitySet;

use super::early::{self, Page};
use super::error::SutError;
use super::kind::{
    About, Endpoints, Launch, MAX_CONCURRENT_STREAMS, Program, Ready, SCRATCH, Site, StartOptions, Sut,
    VersionQuery, files,
};
use super::package::Package;
use super::upstream::Upstream;

/// See the [module](self).
#[derive(Debug)]
pub struct H2o;

/// The configuration's file.
const CONFIG: &str = "h2o.conf";

impl Sut for H2o {
    fn about(&self) -> About {
        About {
            name: "h2o",
            program: Program::Installed { name: "h2o", package: Package::Debian("h2o") },
            // `h2o version 2.2.5`.
            version: VersionQuery {
                arguments: &["--version"],
                read: |line| line.strip_prefix("h2o version "),
            },
            is_proxy: true,
            has_hints_switch: false,
            ready: Ready::Line(|line| line.contains("is ready to serve requests")),
            built: None,
            drain_signal: Signal::TERM,
        }
    }

    /// It sets the groups of its user, even if it has that user already.
    fn capabilities(&self) -> CapabilitySet {
        CapabilitySet::SETGID
    }

    fn launch(&self, site: Site<'_>, options: &StartOptions) -> Result<Launch, SutError> {
        options.unlimited(self.name())?;
        let upstream = site.upstream(self.name(), &[Protocol::H1, Protocol::H1s])?.unforced(self.name())?;
        let endpoints = site.two_ports(options.ip);
        let text = configuration(&endpoints, upstream, geteuid().is_root(), &early(upstream, options));
        let arguments = ["-c", CONFIG].map(str::to_owned).to_vec();
        Ok(Launch {
            files: files(self.name(), options.ip, CONFIG, text)?,
            check: std::iter::once("-t".to_owned()).chain(arguments.iter().cloned()).collect(),
            arguments,
            endpoints,
        })
    }

    /// It has no setting for early push: it pushes what Link fields name, in responses and in a 103 from its upstream.
    fn pages(&self) -> Vec<Page> {
        let page = |source| Page::new(source, Announcement::Link, "header.add: link");
        [PageSource::File, PageSource::SlowProxy].map(page).into()
    }
}

/// The paths of pages, before the path that goes to the upstream.
fn early(upstream: Upstream, options: &StartOptions) -> String {
    let Some(pages) = options.pages() else { return String::new() };
    let mut text = String::new();
    for page in H2o.pages() {
        let _ = writeln!(text, "      {}:", page.path);
        for resource in early::RESOURCES {
            let _ = writeln!(text, "        header.add: \"link: {}\"", early::link_to(resource));
        }
        let _ = match page.behind(pages) {
            Some(path) => {
                writeln!(
                    text,
                    "        proxy.reverse.url: {}://{}{path}",
                    upstream.scheme(),
                    upstream.address
                )
            }
            None => writeln!(text, "        file.file: {}", page.path.trim_start_matches('/')),
        };
    }
    let _ = writeln!(text, "      /{0}/:\n        file.dir: {0}", early::FOLDER);
    text
}

/// The configuration, YAML.
///
/// As root, h2o changes to `nobody` by default, and then cannot write to its folder here. `neverbleed` would keep the
/// key in a process of its own, whose CPU time is not counted; for OCSP stapling h2o would ask a server outside.
fn configuration(endpoints: &Endpoints, upstream: Upstream, is_root: bool, early: &str) -> String {
    let user = if is_root { "user: root\n" } else { "" };
    let [clear, tls] = [Protocol::H1, Protocol::H1s].map(|protocol| endpoints[&protocol]);
    format!(
        "\
{user}num-threads: 1
pid-file: {SCRATCH}/h2o.pid
error-log: /dev/stderr
http1-request-timeout: 3600
http2-idle-timeout: 3600
http2-max-concurrent-requests-per-connection: {MAX_CONCURRENT_STREAMS}
proxy.timeout.io: 3600000
proxy.timeout.keepalive: 3600000
proxy.preserve-host: ON
proxy.ssl.verify-peer: OFF
listen:
  host: \"{}\"
  port: {}
listen:
  host: \"{}\"
  port: {}
  ssl:
    certificate-file: {SCRATCH}/certificate.pem
    key-file: {SCRATCH}/key.pem
    neverbleed: OFF
    ocsp-update-interval: 0
hosts:
  default:
    paths:
{early}      /:
        proxy.reverse.url: {}://{}/
",
        clear.ip(),
        clear.port(),
        tls.ip(),
        tls.port(),
        upstream.scheme(),
        upstream.address,
    )
}

#[cfg(test)]
mod tests {
    use super::super::testing::launched;
    use super::*;

    #[test]
    fn http2_upstream_is_refused_and_tls_is_chosen_by_the_scheme() {
        assert!(matches!(launched(&H2o, Protocol::H2c), Err(SutError::Unsupported { .. })));
        let config = launched(&H2o, Protocol::H1s).unwrap().files.remove(0).1;
        assert!(config.contains("proxy.reverse.url: https://127.0.0.1:40001/\n"), "{config}");
    }
}

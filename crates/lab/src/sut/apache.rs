//! Apache httpd with `mod_http2`, `mod_proxy_http` and `mod_proxy_http2`.
//!
//! `-X` makes it one process with serving threads: child processes would outlive a killed parent.

use std::fmt::Write as _;
use std::path::Path;

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
pub struct Apache;

/// The configuration's file.
const CONFIG: &str = "apache.conf";

/// Where Debian has the modules.
pub const MODULES: &str = "/usr/lib/apache2/modules";

/// Threads. Each serves one request at a time, so they bound the requests in flight.
const THREADS: u32 = 256;

impl Sut for Apache {
    fn about(&self) -> About {
        About {
            name: "apache",
            program: Program::Installed { name: "apache2", package: Package::Debian("apache2-bin") },
            // `Server version: Apache/2.4.71 (Debian)`.
            version: VersionQuery {
                arguments: &["-v"],
                read: |line| line.strip_prefix("Server version: Apache/")?.split(' ').next(),
            },
            is_proxy: true,
            has_hints_switch: true,
            // With `-X` it logs nothing when it listens.
            ready: Ready::Silent,
            built: None,
            drain_signal: Signal::TERM,
        }
    }

    /// `MaxKeepAliveRequests` does not apply to HTTP/2, so a limit would not treat both protocols alike.
    fn launch(&self, site: Site<'_>, options: &StartOptions) -> Result<Launch, SutError> {
        options.unlimited(self.name())?;
        let upstream = site.upstream(self.name(), &Protocol::OVER_TCP)?.unforced(self.name())?;
        let endpoints = site.two_ports(options.ip);
        let folder = site.folder.to_string_lossy();
        let config = Path::new(&*folder).join(CONFIG);
        let early = self.early(site.folder, upstream, options);
        let text = configuration(&endpoints, upstream, geteuid().is_root(), &early);
        let with =
            |what: &str| ["-d", &*folder, "-f", &config.to_string_lossy(), what].map(str::to_owned).to_vec();
        Ok(Launch {
            files: files(self.name(), options.ip, CONFIG, text)?,
            check: with("-t"),
            arguments: with("-X"),
            endpoints,
        })
    }

    /// It changes to the user that its configuration names, and then has no capabilities.
    fn capabilities(&self) -> CapabilitySet {
        CapabilitySet::SETUID | CapabilitySet::SETGID
    }

    /// `mod_cgi` instead of `mod_cgid`, whose daemon would outlive us.
    fn pages(&self) -> Vec<Page> {
        let sources = [PageSource::File, PageSource::Proxy, PageSource::SlowProxy, PageSource::Cgi];
        Page::both(&sources, "Header add Link", "H2PushResource")
    }
}

impl Apache {
    /// The directives for early hints and pages.
    fn early(&self, folder: &Path, upstream: Upstream, options: &StartOptions) -> String {
        let mut text = if options.forwards_hints() { "H2EarlyHints on\n".to_owned() } else { String::new() };
        let Some(pages) = options.pages() else { return text };
        for module in ["headers", "alias", "cgi"] {
            let _ = writeln!(text, "LoadModule {module}_module {MODULES}/mod_{module}.so");
        }
        let root = folder.join(early::FOLDER);
        let root = root.display();
        let _ = writeln!(text, "Alias /{}/ \"{root}/\"", early::FOLDER);
        let _ = writeln!(
            text,
            "<Directory \"{root}\">\n    Require all granted\n    Options +ExecCGI\n</Directory>"
        );
        for page in self.pages() {
            if let Some(path) = page.behind(pages) {
                let _ = writeln!(
                    text,
                    "ProxyPass {} {}://{}{path}",
                    page.path,
                    scheme(upstream),
                    upstream.address
                );
            }
            let _ = writeln!(text, "<Location {}>", page.path);
            if page.source == PageSource::Cgi {
                text.push_str("    SetHandler cgi-script\n");
            }
            for resource in early::RESOURCES {
                let _ = if page.announcement == Announcement::Early {
                    writeln!(text, "    H2PushResource {resource}")
                } else {
                    writeln!(text, "    Header add Link \"{}\"", early::link_to(resource))
                };
            }
            text.push_str("</Location>\n");
        }
        let _ = writeln!(text, "ProxyPass /{}/ !", early::FOLDER);
        text
    }
}

/// The URL scheme of the upstream.
fn scheme(upstream: Upstream) -> &'static str {
    match upstream.protocol {
        Protocol::H2c => "h2c",
        Protocol::H2 => "h2",
        Protocol::H1 | Protocol::H1s => upstream.scheme(),
        Protocol::H3 | Protocol::Tcp => unreachable!("no upstream in HTTP/3 or without HTTP is let in"),
    }
}

/// The configuration. As root, Apache refuses to serve as root and needs the name of another user, which Debian always
/// has. It has read all its files before it changes to that user.
fn configuration(endpoints: &Endpoints, upstream: Upstream, is_root: bool, early: &str) -> String {
    let user = if is_root { "User www-data\nGroup www-data\n" } else { "" };
    let modules: String = ["mpm_event", "authz_core", "ssl", "http2", "proxy", "proxy_http", "proxy_http2"]
        .map(|module| format!("LoadModule {module}_module {MODULES}/mod_{module}.so\n"))
        .concat();
    let [clear, tls] = [Protocol::H1, Protocol::H1s].map(|protocol| endpoints[&protocol]);
    let scheme = scheme(upstream);
    let address = upstream.address;
    format!(
        "\
ServerName server
{user}DefaultRuntimeDir {SCRATCH}
PidFile {SCRATCH}/apache.pid
ErrorLog /dev/stderr
LogLevel warn
{modules}ServerLimit 1
StartServers 1
ThreadLimit {THREADS}
ThreadsPerChild {THREADS}
MaxRequestWorkers {THREADS}
AsyncRequestWorkerFactor 64
KeepAlive On
KeepAliveTimeout 3600
MaxKeepAliveRequests 0
Timeout 3600
H2MaxSessionStreams {MAX_CONCURRENT_STREAMS}
SSLSessionCache none
SSLProxyEngine on
SSLProxyVerify none
SSLProxyCheckPeerName off
SSLProxyCheckPeerExpire off
ProxyPreserveHost On
{early}ProxyPass / {scheme}://{address}/
Listen {clear}
Listen {tls}
<VirtualHost {clear}>
    Protocols h2c http/1.1
</VirtualHost>
<VirtualHost {tls}>
    Protocols h2 http/1.1
    SSLEngine on
    SSLCertificateFile {SCRATCH}/certificate.pem
    SSLCertificateKeyFile {SCRATCH}/key.pem
</VirtualHost>
"
    )
}

#[cfg(test)]
mod tests {
    use super::super::testing::launched;
    use super::*;

    #[test]
    fn the_upstreams_protocol_is_the_scheme() {
        for (protocol, scheme) in
            [(Protocol::H1, "http"), (Protocol::H1s, "https"), (Protocol::H2c, "h2c"), (Protocol::H2, "h2")]
        {
            let config = launched(&Apache, protocol).unwrap().files.remove(0).1;
            assert!(config.contains(&format!("ProxyPass / {scheme}://127.0.0.1:40001/\n")), "{config}");
        }
    }

    #[test]
    fn only_root_names_a_user() {
        let endpoints =
            Endpoints::from(Protocol::OVER_TCP.map(|protocol| (protocol, "10.9.0.2:1".parse().unwrap())));
        let upstream = Upstream::new("127.0.0.1:40001".parse().unwrap(), Protocol::H1);
        assert!(configuration(&endpoints, upstream, true, "").contains("User www-data\n"));
        assert!(!configuration(&endpoints, upstream, false, "").contains("User "));
    }
}

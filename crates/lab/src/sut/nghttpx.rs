//! nghttpx, the proxy of nghttp2: one port in clear, which recognises HTTP/2 by its preface, and one for both over TLS.
//!
//! One process. Each of its worker threads holds one HTTP/2 connection to the upstream, so the number of threads is the number of
//! connections.

use h2lab_model::workload::Protocol;
use rustix::process::Signal;

use super::error::SutError;
use super::kind::{
    About, Endpoints, Launch, MAX_CONCURRENT_STREAMS, Program, Ready, SCRATCH, Site, StartOptions, Sut,
    VersionQuery, files,
};
use super::package::Package;
use super::upstream::Upstream;

/// See the [module](self).
#[derive(Debug)]
pub struct Nghttpx;

/// The configuration's file.
const CONFIG: &str = "nghttpx.conf";

impl Sut for Nghttpx {
    fn about(&self) -> About {
        About {
            name: "nghttpx",
            program: Program::Installed { name: "nghttpx", package: Package::Debian("nghttp2-proxy") },
            // `nghttpx nghttp2/1.52.0`.
            version: VersionQuery {
                arguments: &["--version"],
                read: |line| line.strip_prefix("nghttpx nghttp2/"),
            },
            is_proxy: true,
            has_hints_switch: false,
            // Its last line at start: its sockets have been listening for some time, and now workers serve them.
            ready: Ready::Line(|line| line.contains("Created worker thread #0")),
            built: None,
            drain_signal: Signal::QUIT,
        }
    }

    /// It has no mode that only checks the configuration: an unknown line makes it exit at once.
    fn launch(&self, site: Site<'_>, options: &StartOptions) -> Result<Launch, SutError> {
        let upstream = site.upstream(self.name(), &Protocol::OVER_TCP)?;
        let endpoints = site.two_ports(options.ip);
        let text = configuration(&endpoints, upstream, options.max_requests_per_connection);
        Ok(Launch {
            files: files(self.name(), options.ip, CONFIG, text)?,
            check: Vec::new(),
            arguments: ["--conf", CONFIG].map(str::to_owned).to_vec(),
            endpoints,
        })
    }
}

/// The configuration. Addresses are host and port with a comma, never in brackets.
fn configuration(endpoints: &Endpoints, upstream: Upstream, max_requests: Option<u32>) -> String {
    let comma = |address: std::net::SocketAddr| format!("{},{}", address.ip(), address.port());
    let [clear, tls] = [Protocol::H1, Protocol::H1s].map(|protocol| comma(endpoints[&protocol]));
    let backend = match upstream.protocol {
        Protocol::H1 => "proto=http/1.1",
        Protocol::H1s => "proto=http/1.1;tls;sni=server",
        Protocol::H2c => "proto=h2",
        Protocol::H2 => "proto=h2;tls;sni=server",
        Protocol::H3 | Protocol::Tcp => unreachable!("no upstream in HTTP/3 or without HTTP is let in"),
    };
    let limit = max_requests.map_or(String::new(), |requests| format!("frontend-max-requests={requests}\n"));
    let (address, workers) = (comma(upstream.address), upstream.connections);
    format!(
        "\
frontend={clear};no-tls
frontend={tls}
backend={address};;{backend}
insecure=yes
private-key-file={SCRATCH}/key.pem
certificate-file={SCRATCH}/certificate.pem
no-ocsp=yes
workers={workers}
single-process=yes
errorlog-file=/dev/stderr
accesslog-file=/dev/null
frontend-http2-max-concurrent-streams={MAX_CONCURRENT_STREAMS}
backend-http2-max-concurrent-streams={MAX_CONCURRENT_STREAMS}
frontend-keep-alive-timeout=1h
frontend-http2-read-timeout=1h
backend-read-timeout=1h
backend-keep-alive-timeout=1h
{limit}"
    )
}

#[cfg(test)]
mod tests {
    use super::super::testing::launched_with;
    use super::*;

    fn config(protocol: Protocol, connections: u32, limit: Option<u32>) -> String {
        launched_with(&Nghttpx, protocol, connections, limit).unwrap().files.remove(0).1
    }

    #[test]
    fn connections_are_workers_and_protocols_have_their_words() {
        assert!(config(Protocol::H2c, 4, None).contains("backend=127.0.0.1,40001;;proto=h2\n"));
        assert!(config(Protocol::H2c, 4, None).contains("workers=4\n"));
        assert!(config(Protocol::H1s, 1, None).contains(";;proto=http/1.1;tls;sni=server\n"));
    }

    #[test]
    fn a_limit_of_requests_is_set_only_if_there_is_one() {
        assert!(config(Protocol::H1, 1, Some(7)).ends_with("frontend-max-requests=7\n"));
        assert!(!config(Protocol::H1, 1, None).contains("max-requests"));
    }
}

//! Our own sidecar, started as an ordinary proxy: HTTP/1.1 and HTTP/2 on one port in clear, and on one over TLS.
//!
//! One process with one thread. If a cell sets no number of connections, the sidecar decides itself, by its
//! measurements of the path.

use h2lab_model::workload::Protocol;
use rustix::process::Signal;

use super::error::SutError;
use super::kind::{About, Endpoints, Launch, Program, Ready, Site, StartOptions, Sut, VersionQuery};
use super::origin::listens;
use super::upstream::Upstream;

/// See the [module](self).
#[derive(Debug)]
pub struct H2lab;

/// The configuration's file.
const CONFIG: &str = "sidecar.toml";

impl Sut for H2lab {
    fn about(&self) -> About {
        About {
            name: "h2lab",
            program: Program::Ourselves,
            version: VersionQuery { arguments: &["--version"], read: |line| line.strip_prefix("h2lab ") },
            is_proxy: true,
            has_hints_switch: false,
            ready: Ready::Addresses(listens),
            built: None,
            drain_signal: Signal::TERM,
        }
    }

    fn launch(&self, site: Site<'_>, options: &StartOptions) -> Result<Launch, SutError> {
        options.unlimited(self.name())?;
        let upstream = site.upstream(self.name(), &Protocol::OVER_TCP)?;
        let endpoints = site.two_ports(options.ip);
        let arguments = ["sidecar", "--config", CONFIG].map(str::to_owned).to_vec();
        Ok(Launch {
            files: vec![(CONFIG.to_owned(), configuration(&endpoints, upstream))],
            check: arguments.iter().cloned().chain(["--check".to_owned()]).collect(),
            arguments,
            // It prints where it listens.
            endpoints: Endpoints::new(),
        })
    }
}

/// The configuration.
fn configuration(endpoints: &Endpoints, upstream: Upstream) -> String {
    let [clear, tls] = [Protocol::H1, Protocol::H1s].map(|protocol| endpoints[&protocol]);
    let scheme = match upstream.protocol {
        Protocol::H1 => "http",
        Protocol::H2c => "h2c",
        Protocol::H1s => "h1s",
        Protocol::H2 => "h2",
        Protocol::H3 | Protocol::Tcp => unreachable!("no upstream in HTTP/3 or without HTTP is let in"),
    };
    let (address, n) = (upstream.address, upstream.connections);
    let policy = if n == 1 { "adaptive".to_owned() } else { format!("fixed:{n}") };
    format!(
        "\
[[listen]]
address = \"{clear}\"
service = \"upstream\"

[[listen]]
address = \"{tls}\"
tls = true
service = \"upstream\"

[service.upstream]
instances = [\"{scheme}://{address}\"]
policy = \"{policy}\"
server-name = \"server\"
insecure = true

[timeouts]
response = \"1h\"
"
    )
}

#[cfg(test)]
mod tests {
    use super::super::testing::launched_with;
    use super::*;

    fn config(protocol: Protocol, connections: u32) -> String {
        launched_with(&H2lab, protocol, connections, None).unwrap().files.remove(0).1
    }

    #[test]
    fn protocols_have_their_schemes_and_a_number_of_connections_is_fixed() {
        for (protocol, scheme) in
            [(Protocol::H1, "http"), (Protocol::H2c, "h2c"), (Protocol::H1s, "h1s"), (Protocol::H2, "h2")]
        {
            let text = config(protocol, 1);
            assert!(
                text.contains(&format!("[\"{scheme}://127.0.0.1:40001\"]\npolicy = \"adaptive\"\n")),
                "{text}"
            );
        }
        assert!(config(Protocol::H2c, 4).contains("policy = \"fixed:4\"\n"));
    }
}

//! A chain of real servers with our origin behind the last, and a tap before each but the first: one exchange, seen
//! everywhere by one clock.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use h2lab_model::timeline::Waterfall;
use h2lab_model::timeline::hops::{Hop, Leg, judge};
use h2lab_model::workload::Protocol;

use super::exchange::{Asking, exchange};
use super::tap::Tap;
use crate::load::{LoadError, LoadSpec};
use h2lab_lab::sut;
use h2lab_lab::sut::{StartOptions, StartedSut, SutError, Upstream};
use h2lab_net::clock::Clock;
use h2lab_net::resources;

/// The server behind the last proxy.
const ORIGIN: &str = "origin";

/// How long to wait for the answer of a server behind, if the client was not answered and did not stop waiting by
/// itself.
const SETTLE: Duration = Duration::from_secs(1);

/// How long to wait, once the client has everything, for what a proxy does not wait for: the end of a response whose
/// length was declared.
const TRAIL: Duration = Duration::from_millis(100);

/// A server of a chain: `nginx`, or `nginx/h2c` for one that is reached over another protocol than HTTP/1.1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its name.
    pub server: String,
    /// The protocol to reach it; `None` leaves it to the client.
    pub protocol: Option<Protocol>,
}

impl FromStr for Link {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (server, protocol) = match text.split_once('/') {
            Some((server, protocol)) => {
                let known = protocol.parse::<Protocol>().map_err(|error| format!("`{text}`: {error}"))?;
                (server, Some(known))
            }
            None => (text, None),
        };
        // The nginx that answers by itself is not a proxy.
        let server = if server == "nginx" { "nginx-proxy" } else { server };
        sut::find(server).map_err(|error| error.to_string())?;
        Ok(Self { server: server.to_owned(), protocol })
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            Some(protocol) => write!(f, "{}/{protocol}", self.server),
            None => f.write_str(&self.server),
        }
    }
}

/// Why there is no chain.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// The servers do not form a chain.
    #[error("{0}")]
    Order(String),
    /// A server does not start.
    #[error(transparent)]
    Sut(#[from] SutError),
    /// A listener of ours could not be opened.
    #[error("cannot listen on loopback: {0}")]
    Io(#[from] io::Error),
}

/// A server of a chain that runs.
#[derive(Debug)]
struct Server {
    started: StartedSut,
    /// The protocol to reach it.
    protocol: Protocol,
    /// Its name in the chain.
    label: String,
}

/// A running chain of servers. Dropping it stops them, front to back.
#[derive(Debug)]
pub struct ServerChain {
    /// In order from the client; the origin is the last.
    servers: Vec<Server>,
    /// `taps[n]` is in front of `servers[n + 1]`.
    taps: Vec<Arc<Tap>>,
}

/// The chain to start.
#[derive(Debug, Clone, Copy)]
pub struct ChainSpec<'a> {
    /// In order from the client. If the last is a proxy, the origin is behind it, over HTTP/1.1.
    pub links: &'a [Link],
    /// The protocol of the first server.
    pub protocol: Protocol,
    /// Whether servers that forward 103 only by configuration are configured to.
    pub early_hints: bool,
    /// Whether servers have pages of their own that announce what they need.
    pub pages: Option<sut::Pages>,
    /// Where their configurations and logs go.
    pub folder: &'a Path,
}

impl ChainSpec<'_> {
    /// Each server with its protocol, the origin at the end.
    fn servers(&self) -> Result<Vec<(String, Protocol)>, ChainError> {
        let refuse = |text: String| Err(ChainError::Order(text));
        let mut servers = Vec::new();
        for (n, link) in self.links.iter().enumerate() {
            let protocol = match link.protocol {
                Some(protocol) if n == 0 && protocol != self.protocol => {
                    return refuse(format!(
                        "{link} receives the first request, in {} (--proto)",
                        self.protocol
                    ));
                }
                Some(protocol @ (Protocol::H1 | Protocol::H2c)) => protocol,
                Some(protocol) if n > 0 => {
                    return refuse(format!(
                        "{link}: between servers {protocol} cannot be read in transit; h1 and h2c can"
                    ));
                }
                _ if n == 0 => self.protocol,
                _ => Protocol::H1,
            };
            let is_last = n + 1 == self.links.len();
            if !sut::find(&link.server)?.is_proxy() && !is_last {
                return refuse(format!("{} is not a proxy: it must come last", link.server));
            }
            servers.push((link.server.clone(), protocol));
        }
        let needs_origin = match servers.last() {
            Some((name, _)) => sut::find(name)?.is_proxy(),
            None => true,
        };
        if needs_origin {
            let protocol = if servers.is_empty() { self.protocol } else { Protocol::H1 };
            servers.push((ORIGIN.to_owned(), protocol));
        }
        Ok(servers)
    }
}

/// The label of each server: its name; from the second server of the same name on, with a number.
fn labels(servers: &[(String, Protocol)]) -> Vec<String> {
    let label = |(place, (name, _)): (usize, &(String, Protocol))| match servers[..place]
        .iter()
        .filter(|(other, _)| other == name)
        .count()
    {
        0 => name.clone(),
        before => format!("{name}-{}", before + 1),
    };
    servers.iter().enumerate().map(label).collect()
}

impl ServerChain {
    /// Starts the servers, the last one first.
    pub fn start(wanted: ChainSpec<'_>, clock: Clock) -> Result<Self, ChainError> {
        // Each connection between two servers is two connections of ours.
        resources::raise_open_files();
        let mut servers: Vec<Server> = Vec::new();
        let mut taps: Vec<Arc<Tap>> = Vec::new();
        let chosen = wanted.servers()?;
        for ((name, protocol), label) in chosen.iter().zip(labels(&chosen)).rev() {
            // Servers of the same name write the same files.
            let logs = if label == *name { wanted.folder.to_owned() } else { wanted.folder.join(&label) };
            let options = StartOptions {
                h3: protocol.is_quic().then(sut::H3::default),
                early: Some(sut::Early { hints: wanted.early_hints, pages: wanted.pages }),
                ..StartOptions::new(Ipv4Addr::LOCALHOST.into(), logs)
            };
            let place = |program: &Path| Command::new(program);
            let started = match servers.last() {
                None => sut::start(name, &options, &place)?,
                Some(behind) => {
                    let tap = Tap::start(behind.endpoint()?, behind.protocol, clock)?;
                    let upstream = Upstream::new(tap.address(), behind.protocol);
                    taps.push(Arc::new(tap));
                    sut::start_sidecar(name, &options, upstream, &place)?
                }
            };
            let server = Server { started, protocol: *protocol, label };
            server.endpoint()?;
            servers.push(server);
        }
        servers.reverse();
        taps.reverse();
        Ok(Self { servers, taps })
    }

    /// The version of the first server.
    pub fn version(&self) -> &str {
        &self.servers[0].started.version
    }

    /// The address of the first server.
    pub fn address(&self) -> Result<SocketAddr, ChainError> {
        self.servers[0].endpoint()
    }

    /// Sends the one request of `spec` to the first server. Returns what was seen in front of each server.
    pub fn exchange(&self, spec: &LoadSpec<'_>, asking: Asking) -> Result<Vec<Waterfall>, LoadError> {
        let taps = self.taps.clone();
        let first = exchange(spec, asking, move |at| taps.iter().for_each(|tap| tap.begin(at)))?;
        let timeout = match &first.failed {
            None => TRAIL,
            // What a server behind sends after that is too late for any proxy.
            Some(_) if first.timed_out => Duration::ZERO,
            Some(_) => SETTLE,
        };
        let behind: Vec<Waterfall> = self.taps.iter().map(|tap| tap.waterfall(timeout)).collect();
        Ok(std::iter::once(first).chain(behind).collect())
    }

    /// What many exchanges for `path` showed in front of each server, and what each but the last did.
    pub fn conclude(&self, path: &str, exchanges: &[Vec<Waterfall>]) -> (Vec<Leg>, Vec<Hop>) {
        let leg = |(n, server): (usize, &Server)| {
            let runs: Vec<Waterfall> = exchanges.iter().filter_map(|all| all.get(n).cloned()).collect();
            Leg::of(&server.label, &server.started.version, server.protocol, path, &runs)
        };
        let legs: Vec<Leg> = self.servers.iter().enumerate().map(leg).collect();
        let hops = legs.windows(2).map(|pair| judge(&pair[0], &pair[1], path)).collect();
        (legs, hops)
    }
}

impl Drop for ServerChain {
    fn drop(&mut self) {
        // Front to back: a proxy that still runs would send requests to a server that is gone.
        for server in self.servers.drain(..) {
            drop(server);
        }
    }
}

impl Server {
    /// Its address.
    fn endpoint(&self) -> Result<SocketAddr, ChainError> {
        let Self { started, protocol, .. } = self;
        let found = started.endpoint(*protocol);
        found.ok_or_else(|| ChainError::Order(format!("{} does not speak {protocol}", started.name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(links: &str, protocol: Protocol) -> Result<Vec<(String, Protocol)>, String> {
        let links: Vec<Link> = links.split(',').map(|link| link.parse().unwrap()).collect();
        let wanted =
            ChainSpec { links: &links, protocol, early_hints: false, pages: None, folder: Path::new("x") };
        wanted.servers().map_err(|error| error.to_string())
    }

    #[test]
    fn a_chain_ends_with_the_origin_and_continues_in_http_1_unless_another_is_given() {
        let named = |name: &str, protocol| (name.to_owned(), protocol);
        assert_eq!(
            servers("haproxy,nginx/h2c", Protocol::H2).unwrap(),
            [
                named("haproxy", Protocol::H2),
                named("nginx-proxy", Protocol::H2c),
                named("origin", Protocol::H1)
            ]
        );
        assert_eq!(
            servers("apache,origin/h2c", Protocol::H1).unwrap(),
            [named("apache", Protocol::H1), named("origin", Protocol::H2c)]
        );
        assert_eq!(servers("origin", Protocol::H2c).unwrap(), [named("origin", Protocol::H2c)]);
        assert_eq!(servers("go", Protocol::H2).unwrap(), [named("go", Protocol::H2)], "it answers by itself");
    }

    #[test]
    fn the_second_of_a_name_has_a_number() {
        let chosen = servers("nginx,haproxy,nginx,nginx", Protocol::H1).unwrap();
        assert_eq!(labels(&chosen), ["nginx-proxy", "haproxy", "nginx-proxy-2", "nginx-proxy-3", "origin"]);
        assert!(servers("origin,origin", Protocol::H1).unwrap_err().contains("must come last"));
    }

    #[test]
    fn what_makes_no_chain_is_refused_with_the_reason() {
        assert!(
            servers("origin,nginx", Protocol::H1)
                .unwrap_err()
                .contains("origin is not a proxy: it must come last")
        );
        assert!(servers("go,haproxy", Protocol::H1).unwrap_err().contains("go is not a proxy"));
        assert!(servers("nginx,haproxy/h2", Protocol::H1).unwrap_err().contains("h1 and h2c can"));
        assert!(servers("nginx/h2c", Protocol::H2).unwrap_err().contains("--proto"));
        let unknown = "ngnix".parse::<Link>().unwrap_err();
        assert!(unknown.contains("`ngnix`") && unknown.contains("nginx"), "{unknown}");
        assert!("nginx/h9".parse::<Link>().unwrap_err().contains("h9"));
    }
}

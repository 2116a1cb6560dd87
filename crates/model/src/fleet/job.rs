//! The job of a fleet.

use std::net::SocketAddr;
use std::time::Duration;

use super::{FetchTask, FleetPlan, Reach, ServeTask, Trust};
use crate::bulk::TransferDirection;
use crate::workload::{EngineSettings, Protocol};
use h2lab_base::random::Counter;
use h2lab_transfer::Sizes;

/// How many sizes a pair draws, if they are drawn; then they repeat.
const DRAWN: u64 = 64;

/// A server of a fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// What it is called.
    pub name: String,
    /// Where it runs.
    pub place: ServerPlace,
}

/// Where a server runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerPlace {
    /// It runs already. Without a path the URL stands for `/bytes/N`.
    Url(String),
    /// An agent will be asked to serve there.
    Agent {
        /// Where it listens.
        listen: SocketAddr,
        /// The name or address by which clients reach it: it may listen on all of its addresses.
        host: String,
    },
}

/// Timeouts of a fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FleetTimeouts {
    /// For all agents to be ready, and again for all clients to receive the plan.
    pub setup: Duration,
    /// After the end of the transfers, for their results. After half of it agents are sent Stop.
    pub grace: Duration,
}

/// The whole job.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetJob {
    /// Names of the clients.
    pub clients: Vec<String>,
    /// The servers.
    pub servers: Vec<Server>,
    /// Concurrent transfers of each client, from which the plan was made.
    pub concurrency: u32,
    /// Who fetches from whom.
    pub plan: FleetPlan,
    /// Which way the bytes of all pairs go.
    pub direction: TransferDirection,
    /// The protocol.
    pub protocol: Protocol,
    /// Whether `h2c` begins with an upgrade; servers that agents start do not take one.
    pub upgrade: bool,
    /// How much each request asks for, or sends.
    pub sizes: Sizes,
    /// For how long.
    pub duration: Duration,
    /// After so long without a byte a client treats its server as gone.
    pub timeout: Duration,
    /// Settings of the engines of both ends that were set explicitly.
    pub settings: EngineSettings,
    /// Further header fields of each request, with names in lower case.
    pub fields: Vec<(String, String)>,
    /// Congestion control of both ends.
    pub congestion: Option<String>,
    /// What clients trust of servers that run already. Those that agents start are trusted: they send filler.
    pub trust: Trust,
    /// Where clients look for servers that run already.
    pub reach: Reach,
    /// The seed of all random choices.
    pub seed: u64,
    /// Timeouts.
    pub waits: FleetTimeouts,
}

impl FleetJob {
    /// The task of the agent of `server`; `None` if it has none.
    pub fn serve_task(&self, server: usize) -> Option<ServeTask> {
        let ServerPlace::Agent { listen, .. } = self.servers.get(server)?.place else { return None };
        Some(ServeTask {
            listen,
            protocol: self.protocol,
            settings: self.settings,
            congestion: self.congestion.clone(),
        })
    }

    /// The task of the client of a pair, with a server at `url`.
    pub fn fetch_task(&self, pair: usize, url: &str) -> Option<FetchTask> {
        let planned = self.plan.pairs.get(pair)?;
        let is_ours = matches!(self.servers.get(planned.server as usize)?.place, ServerPlace::Agent { .. });
        let full_handshakes = self.trust.full_handshakes;
        let (trust, reach) = if is_ours {
            (Trust { insecure: true, full_handshakes, ..Trust::default() }, Reach::default())
        } else {
            (self.trust.clone(), self.reach.clone())
        };
        Some(FetchTask {
            pair: pair as u32,
            direction: self.direction,
            urls: self.urls(pair, url),
            protocol: self.protocol,
            upgrade: self.upgrade && !is_ours,
            connections: planned.connections,
            streams: planned.streams,
            duration: self.duration,
            timeout: self.timeout,
            settings: self.settings,
            fields: self.fields.clone(),
            congestion: self.congestion.clone(),
            trust,
            reach,
        })
    }

    /// The URLs of a pair's requests to a server at `url`.
    fn urls(&self, pair: usize, url: &str) -> Vec<String> {
        let after_scheme = url.find("://").map_or(0, |at| at + "://".len());
        let path = url[after_scheme..].find('/').map_or("", |at| &url[after_scheme + at..]);
        if !matches!(path, "" | "/") {
            return vec![url.to_owned()];
        }
        let base = url.trim_end_matches('/');
        let random = Counter::new(self.seed, Sizes::PURPOSE);
        let first = pair as u64 * DRAWN;
        let count = if matches!(self.sizes, Sizes::Fixed(_)) { 1 } else { DRAWN };
        (first..first + count).map(|n| format!("{base}/bytes/{}", self.sizes.of(n, &random))).collect()
    }

    /// The URL of a server whose agent listens on `address`; as given if it has none.
    pub fn url(&self, server: usize, address: SocketAddr) -> String {
        let scheme = if self.protocol.is_tls() { "https" } else { "http" };
        match self.servers.get(server).map(|server| &server.place) {
            Some(ServerPlace::Url(url)) => url.clone(),
            Some(ServerPlace::Agent { host, .. }) if host.contains(':') => {
                format!("{scheme}://[{host}]:{}", address.port())
            }
            Some(ServerPlace::Agent { host, .. }) => format!("{scheme}://{host}:{}", address.port()),
            None => format!("{scheme}://{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::testing;

    #[test]
    fn a_server_without_a_path_is_asked_for_bytes_and_one_with_a_path_for_that() {
        let job = testing::job(1, 1);
        for url in ["http://a:1", "http://a:1/"] {
            assert_eq!(job.fetch_task(0, url).unwrap().urls, ["http://a:1/bytes/1073741824"]);
        }
        assert_eq!(job.fetch_task(0, "http://a:1/data.tar").unwrap().urls, ["http://a:1/data.tar"]);
    }

    #[test]
    fn the_bytes_of_all_pairs_go_one_way() {
        for direction in [TransferDirection::Get, TransferDirection::Put] {
            let job = FleetJob { direction, ..testing::job(1, 1) };
            assert_eq!(job.fetch_task(0, "http://a:1").unwrap().direction, direction);
        }
    }

    #[test]
    fn drawn_sizes_are_other_ones_for_each_pair_and_the_same_ones_by_the_seed() {
        let drawn = |seed| {
            let sizes = Sizes::Normal { mean: 100 << 20, deviation: 20 << 20 };
            let job = FleetJob { sizes, seed, ..testing::job(2, 1) };
            [0, 1].map(|pair| job.fetch_task(pair, "http://a:1").unwrap().urls)
        };
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
        assert_ne!(drawn(1)[0], drawn(1)[1]);
        assert_eq!(drawn(1)[0].len(), DRAWN as usize);
    }

    #[test]
    fn the_url_of_an_agent_has_the_name_by_which_it_is_reached_and_the_port_that_it_took() {
        let mut job = testing::job(1, 1);
        let address = "0.0.0.0:4711".parse().unwrap();
        assert_eq!(job.url(0, address), "http://10.0.0.1:4711");
        job.protocol = Protocol::H3;
        let listen = "[::]:0".parse().unwrap();
        job.servers[0].place = ServerPlace::Agent { listen, host: "2001:db8::1".to_owned() };
        assert_eq!(job.url(0, address), "https://[2001:db8::1]:4711");
    }

    #[test]
    fn certificates_of_servers_that_we_started_are_not_verified() {
        let mut job = testing::job(1, 1);
        assert!(job.fetch_task(0, "https://a").unwrap().trust.insecure);
        job.servers[0].place = ServerPlace::Url("https://a".to_owned());
        assert!(!job.fetch_task(0, "https://a").unwrap().trust.insecure);
        assert_eq!((job.serve_task(0), job.fetch_task(9, "https://a")), (None, None));
    }
}

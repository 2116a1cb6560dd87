//! The flags of the servers that are started behind the emulated link, and of the sidecars beside it.

use clap::Args;
use h2lab_model::scenario::{Axis, RequestLimit, Scenario, Topology};

use super::values::{axis, replace};

/// The servers behind the link.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Servers behind the link (several values: comma list)")]
pub struct ServerArgs {
    /// Servers to start behind the link: origin (built in), nginx, go, tomcat; or proxies in front of origin: nginx-proxy,
    /// envoy, haproxy, caddy, nghttpx, apache, h2o, h2lab (our sidecar)
    #[arg(long, value_name = "LIST", value_parser = axis::<String>)]
    pub origin: Option<Axis<String>>,
    /// Where sidecar proxies run: direct (none), sidecar (beside the client), two-sidecars (at both ends of the link)
    ///
    /// The generator speaks HTTP/1.1 to its sidecar; --proto is the protocol over the link.
    #[arg(long, value_name = "LIST", value_parser = axis::<Topology>)]
    pub topology: Option<Axis<Topology>>,
    /// Programs to use as sidecars: h2lab (ours), haproxy, envoy, nghttpx, caddy, apache, nginx-proxy, h2o; and
    /// haproxy-retry and envoy-retry, which send again what their upstream did not take
    #[arg(long, value_name = "LIST", value_parser = axis::<String>)]
    pub sidecar: Option<Axis<String>>,
    /// Requests after which a server behind the link closes a connection, or unlimited
    #[arg(long, value_name = "LIST", value_parser = axis::<RequestLimit>)]
    pub max_requests_per_connection: Option<Axis<RequestLimit>>,
    /// Servers of --origin with that limit, such as a proxy but not its origin [default: all]
    #[arg(long, value_name = "LIST", value_parser = axis::<String>)]
    pub limited: Option<Axis<String>>,
}

impl ServerArgs {
    /// Overrides the scenario's values with the flags.
    pub fn apply(&self, scenario: &mut Scenario) {
        let matrix = &mut scenario.matrix;
        if self.origin.is_some() || self.topology.is_some() || self.sidecar.is_some() {
            // The flags replace all parties.
            matrix.arms.clear();
        }
        replace(&mut matrix.origin, self.origin.as_ref());
        replace(&mut matrix.topology, self.topology.as_ref());
        if self.sidecar.is_some() {
            matrix.sidecar.clone_from(&self.sidecar);
        }
        replace(&mut matrix.max_requests_per_connection, self.max_requests_per_connection.as_ref());
        if self.limited.is_some() {
            matrix.limited.clone_from(&self.limited);
        } else if self.origin.is_some() {
            // Servers that have been dropped have no limit to report.
            matrix.limited = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_parties_are_no_arms() {
        let mut scenario = Scenario::from_toml("[[matrix.arms]]\nprotocols = 'h2c'").unwrap();
        ServerArgs { topology: "direct".parse().ok(), ..ServerArgs::default() }.apply(&mut scenario);
        assert!(scenario.matrix.arms.is_empty());
    }

    #[test]
    fn every_flag_of_the_servers_has_its_key_in_a_scenario_file() {
        let flags = ServerArgs {
            max_requests_per_connection: "1000".parse().ok(),
            limited: "origin".parse().ok(),
            ..ServerArgs::default()
        };
        let mut scenario = Scenario::default();
        flags.apply(&mut scenario);
        let file = Scenario::from_toml("[matrix]\nmax-requests-per-connection = 1000\nlimited = 'origin'");
        assert_eq!(scenario, file.unwrap());
    }
}

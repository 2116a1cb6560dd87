//! The flags for how connections are dialled and kept, and when requests are cancelled or sent again, the same in
//! `load`, `compare` and `run`.

use std::time::Duration;

use clap::Args;
use h2lab_model::scenario::{Axis, Scenario};
use h2lab_model::workload::DialPolicy;

use super::exit::MissingRequirement;
use super::values::{axis, duration, replace, whole};
use h2lab_lab::topology::available_congestion;
use h2lab_net::privileges::{self, CapabilitySet};
use h2lab_net::tcp::StreamSocket;

/// How our client treats connections.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Client")]
pub struct PolicyArgs {
    /// Maximum HTTP/1.1 connections; more are opened while requests wait [default: of `load` -c]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=20_000))]
    pub max_connections: Option<u32>,
    /// Dial policy of h2, h2c and h3 when requests wait without a usable connection
    ///
    /// single-flight: one connection for all waiting requests. stampede: one for each, as Go's net/http and others do after a
    /// GOAWAY.
    #[arg(long, value_name = "POLICY", value_parser = axis::<DialPolicy>)]
    pub dial_policy: Option<Axis<DialPolicy>>,
    /// Close a connection after this many requests, and dial a new one
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..))]
    pub reconnect_every: Option<u32>,
    /// Keep at most this many idle connections, like the pools of `OkHttp` and Go [default: all]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(0..=20_000))]
    pub pool_size: Option<u32>,
    /// Cancel each request after this long without a response, as clients do whose user has left
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub cancel_after: Option<Duration>,
    /// Time to establish a connection, TLS included [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub connect_timeout: Option<Duration>,
    /// Acknowledge over TCP at once whatever is read (`TCP_QUICKACK`), where the kernel would delay that by up to 40 ms
    ///
    /// A server with Nagle's algorithm waits for that with its next small segment.
    #[arg(long)]
    pub quick_acks: bool,
    /// Do not send requests again that the server certainly did not process; they fail
    ///
    /// Otherwise these are sent again, up to six times: streams above the last of a GOAWAY or refused with `REFUSED_STREAM`,
    /// and requests on a connection that had served others and that the server had closed before they arrived: its TCP had
    /// acknowledged no byte of them. A request that may have arrived is never sent again, over no protocol: if the server
    /// closes or resets its connection without a response, it has failed.
    #[arg(long)]
    pub no_replay: bool,
}

impl PolicyArgs {
    /// Overrides the scenario's values with the flags.
    pub fn apply(&self, scenario: &mut Scenario) {
        let matrix = &mut scenario.matrix;
        replace(&mut matrix.dial_policy, self.dial_policy.as_ref());
        if let Some(max_connections) = self.max_connections {
            matrix.max_connections = max_connections;
            matrix.warm_pool = matrix.warm_pool.min(max_connections);
        }
        let policy = &mut scenario.client.policy;
        policy.reconnect_every = self.reconnect_every.or(policy.reconnect_every);
        policy.pool_size = self.pool_size.or(policy.pool_size);
        policy.cancel_after = self.cancel_after.or(policy.cancel_after);
        policy.connect_timeout = self.connect_timeout.or(policy.connect_timeout);
        policy.quick_acks |= self.quick_acks;
        scenario.work.replay &= !self.no_replay;
    }
}

/// Congestion control of what we send, the same for every command whose sockets are not behind the emulated link.
#[derive(Debug, Clone, Default, Args)]
pub struct CongestionArgs {
    /// Congestion control of our sockets: cubic, bbr, reno … any that the kernel has (h3: those three)
    ///
    /// It applies to what h2lab sends; the other end uses its own. `bulk drive` sets it at both ends.
    #[arg(long, value_name = "NAME")]
    pub congestion: Option<String>,
}

impl CongestionArgs {
    /// The capabilities that our sockets need.
    pub fn rights(&self) -> CapabilitySet {
        self.congestion.as_deref().map_or(privileges::NONE, StreamSocket::rights_for_congestion)
    }
}

/// Refuses congestion control that no TCP socket of this process could have.
pub fn check_congestion(name: &str) -> Result<(), MissingRequirement> {
    StreamSocket::may_have_congestion(name).map_err(|error| {
        let available = available_congestion().join(", ");
        MissingRequirement(format!(
            "--congestion {name}: the kernel does not allow it for this process ({error}); available: {available}; \
             for more, `sudo modprobe tcp_{name}`; without root, net.ipv4.tcp_allowed_congestion_control must also \
             name it"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_has_its_key_in_a_scenario_file() {
        let flags = PolicyArgs {
            max_connections: Some(40),
            dial_policy: "single-flight,stampede".parse().ok(),
            reconnect_every: Some(10),
            pool_size: Some(3),
            cancel_after: Some(Duration::from_millis(20)),
            connect_timeout: Some(Duration::from_secs(2)),
            quick_acks: true,
            no_replay: true,
        };
        let mut scenario = Scenario::default();
        flags.apply(&mut scenario);
        let file = "[matrix]\nmax-connections = 40\ndial-policy = ['single-flight', 'stampede']\n[work]\nreplay = false\n\
                    [client]\nreconnect-every = 10\npool-size = 3\ncancel-after = '20ms'\nconnect-timeout = '2s'\n\
                    quick-acks = true";
        assert_eq!(scenario, Scenario::from_toml(file).unwrap());
    }
}

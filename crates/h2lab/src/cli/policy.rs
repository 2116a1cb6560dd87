//! The flags of what our client does with its connections and requests, the same in `load`, `compare` and `run`.

use std::time::Duration;

use clap::Args;
use h2lab_model::workload::ClientPolicy;

use super::exit::Missing;
use super::flags::first_given;
use super::values::duration;
use h2lab_lab::topology::available_congestion;
use h2lab_net::tcp::Stream;

/// How our client treats connections, besides what it dials.
#[derive(Debug, Clone, Copy, Default, Args)]
#[command(next_help_heading = "Client")]
pub struct PolicyArgs {
    /// End a connection ourselves after so many requests, and dial a new one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub reconnect_every: Option<u32>,
    /// Keep at most so many idle connections, as the pools of `OkHttp` and Go do; all if it is not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=20_000))]
    pub pool_size: Option<u32>,
    /// Cancel each request that is unanswered for this long, as callers do whose user has left
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub cancel_after: Option<Duration>,
    /// Give up on a connection that is not established, TLS and all, within this long; 10 s unless given
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub connect_timeout: Option<Duration>,
    /// Fail what a server certainly did not process (after GOAWAY, `REFUSED_STREAM`), rather than send it again
    #[arg(long)]
    pub no_replay: bool,
}

impl PolicyArgs {
    /// The first flag given, if any.
    pub fn given(&self) -> Option<&'static str> {
        let Self { reconnect_every, pool_size, cancel_after, connect_timeout, no_replay } = self;
        let flags = [
            (reconnect_every.is_some(), "--reconnect-every"),
            (pool_size.is_some(), "--pool-size"),
            (cancel_after.is_some(), "--cancel-after"),
            (connect_timeout.is_some(), "--connect-timeout"),
            (*no_replay, "--no-replay"),
        ];
        first_given(flags)
    }

    /// Puts the flags in place of `policy`. Whether requests are sent again is a part of the work.
    pub fn apply(&self, policy: &mut ClientPolicy) {
        policy.reconnect_every = self.reconnect_every.or(policy.reconnect_every);
        policy.pool_size = self.pool_size.or(policy.pool_size);
        policy.cancel_after = self.cancel_after.or(policy.cancel_after);
        policy.connect_timeout = self.connect_timeout.or(policy.connect_timeout);
    }
}

/// Refuses congestion control that no TCP socket of this process could have.
pub fn check_congestion(name: &str) -> Result<(), Missing> {
    Stream::may_have_congestion(name).map_err(|error| {
        let available = available_congestion().join(", ");
        Missing(format!(
            "--congestion {name}: the kernel refuses it to this process ({error}); it has {available}, and more after \
             `sudo modprobe tcp_{name}`; without root also net.ipv4.tcp_allowed_congestion_control must name it"
        ))
    })
}

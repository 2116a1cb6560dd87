//! What a bulk transfer is to do, and what our engines announce for it.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use h2lab_model::workload::{EngineSettings, Protocol};
use h2lab_wire::{Config, FlowControl};

use super::fetch::TransferOptions;
use super::transfers::RequestedFile;
use crate::client::defaults;
use h2lab_net::clock::Clock;
use h2lab_net::tcp::Endpoint;
use h2lab_net::tls::TlsOptions;

/// What to move, from or to where, and how.
#[derive(Debug, Clone)]
pub struct Job<'a> {
    /// The files, all of one server.
    pub wanted: Vec<RequestedFile>,
    /// Where the server is.
    pub address: Endpoint,
    /// Host and, unless it is the scheme's own, port.
    pub authority: &'a str,
    /// The server's name in TLS.
    pub server_name: &'a str,
    /// What to trust in TLS.
    pub tls: &'a TlsOptions,
    /// What to speak.
    pub protocol: Protocol,
    /// Whether h2c begins with HTTP/1.1 and `Upgrade: h2c`.
    pub upgrade: bool,
    /// Congestion control of our sockets.
    pub congestion: Option<String>,
    /// Settings of our engine that were given.
    pub settings: EngineSettings,
    /// Further header fields of each request, with names in lower case.
    pub fields: &'a [(String, String)],
    /// Connections.
    pub connections: u32,
    /// Requests at a time on each.
    pub streams: u32,
    /// The direction of the files, and how each is transferred.
    pub options: TransferOptions,
    /// Repeat the files for so long.
    pub duration: Option<Duration>,
    /// If files are repeated, how many complete ones are listed one by one; further ones are summed.
    pub listed: usize,
    /// After so long without a byte the server has gone.
    pub timeout: Duration,
    /// Set to end early.
    pub stop: Option<&'a AtomicBool>,
    /// What times are counted from.
    pub clock: Clock,
}

/// The default of [`Job::listed`].
pub const LISTED: usize = 10_000;

/// The windows of stream and connection that we offer: 1 GiB. Half of it covers 10 Gbit/s over a round trip of 430 ms,
/// even just before credit is returned. These windows commit no memory: what has arrived is stored before more is read,
/// so TCP's own window, at most 1 GiB (RFC 7323 §2.3), limits a server first.
pub const WINDOW: u32 = 1 << 30;

/// The longest frame that we accept: beyond 64 KiB longer ones gain nothing (docs/bulk.md).
pub const FRAME: u32 = 64 << 10;

/// What our end of a bulk transfer announces by default.
pub fn engine(tls: bool) -> Config {
    let config = defaults::engine(tls);
    let flow = FlowControl { stream_window: WINDOW, connection_window: WINDOW, ..config.flow };
    Config { flow, max_frame_size: FRAME, ..config }
}

/// What our engines announce.
pub fn config(job: &Job<'_>, tls: bool) -> Config {
    let mut config = engine(tls);
    job.settings.apply(&mut config);
    job.options.chunk.make_room(&mut config);
    config
}

/// CPU time that a run took.
#[derive(Debug, Clone, Copy)]
pub(super) struct CpuTime {
    /// Of all threads.
    pub process: Duration,
    /// Of the one that drives the connections and stores the bytes.
    pub thread: Duration,
    /// How long the run took, connecting and syncing included.
    pub wall: Duration,
}

impl CpuTime {
    /// The thread's CPU time in a part of the run, assuming an even load.
    pub fn of(self, part: Duration) -> Duration {
        let share = self.thread.as_secs_f64() / self.wall.as_secs_f64().max(1e-9);
        part.mul_f64(share.min(1.0))
    }
}

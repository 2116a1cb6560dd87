//! `h2lab origin`: the built-in server.

use std::cell::Cell;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use h2lab_wire::Exceeded;

use super::exit::Usage;
use super::limits::{self, LimitArg};
use super::listen::{ListenArgs, announce, unannounced};
use super::tls;
use super::values::{duration, whole};
use super::{Exit, help, output, rights, signals};
use h2lab_net::privileges::{self, CapabilitySet};
use h2lab_net::quic::Congestion;
use h2lab_net::resources;
use h2lab_net::tcp::StreamSocket;
use h2lab_roles::origin;
use h2lab_roles::origin::{GoAwayMode, OriginConfig, OriginContent, OriginError};

/// The built-in server: h1, h2c, h1s, h2 and h3 with httpbin's paths
///
/// Prints one line `listening URL` per socket when ready, and serves until it is stopped. It answers open requests before it
/// exits; the last line summarises what was served. With SSLKEYLOGFILE set, TLS secrets are written to that file, for
/// Wireshark.
///
/// An extended CONNECT (RFC 8441, such as websocket) on /echo or /anything echoes the client's data.
///
/// Paths: / (1 KiB), /bytes/N, /delay/MS, /drip?bytes=&ms=, /status/N, /headers, /anything, /echo, /stream/N,
/// /early?ms= (103, then the response; at= status= links= on= push= bytes= body= trailers= play other servers, see
/// docs/timeline.md), /push?count= (pushes /bytes/4k), /stall?every=&ms=&at= (the whole server pauses at intervals).
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[
        ("h2lab origin --listen 127.0.0.1:8080 --tls-listen 127.0.0.1:8443", "in clear and over TLS"),
        ("h2lab origin --tls-listen 127.0.0.1:8443 --h3", "HTTP/3 on UDP port 8443, too"),
        ("h2lab origin --listen 127.0.0.1:0 --max-requests-per-connection 1000", "a free port, with a quota"),
    ],
))]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag by itself")]
pub struct OriginArgs {
    /// Congestion control of our end of HTTP/3: cubic, reno, bbr. TCP uses the system's
    #[arg(long, value_name = "NAME", default_value = "cubic", value_parser = quic_congestion, requires = "h3")]
    quic_congestion: Congestion,
    /// Write the congestion window of each HTTP/3 connection to standard output every 10 ms, for the lab
    #[arg(long, hide = true, requires = "h3")]
    quic_samples: bool,
    /// Answer all other paths as /, for the lab: in the place of a server whose paths are not known
    #[arg(long, hide = true)]
    any_path: bool,
    /// Refuse TLS clients without a certificate signed by one of these authorities (PEM)
    #[arg(long, value_name = "FILE")]
    client_ca: Option<PathBuf>,
    /// A full TLS handshake for every connection: no tickets
    #[arg(long)]
    no_tls_resumption: bool,
    /// Accept HTTP/1.1 alone over TLS, whatever a client offers
    #[arg(long = "http1.1")]
    http1: bool,
    /// Close a connection after this many requests, like nginx's `keepalive_requests`
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..))]
    max_requests_per_connection: Option<u32>,
    /// How HTTP/2 announces that close: one GOAWAY at once, or one a round trip before
    #[arg(long, value_name = "HOW", value_enum, default_value_t = GoAwayArg::Abrupt)]
    goaway: GoAwayArg,
    /// Streams that a client may have open on a connection
    #[arg(long, value_name = "N", default_value_t = origin::MAX_CONCURRENT_STREAMS, value_parser = whole::<u32>(0..))]
    max_concurrent_streams: u32,
    /// Accept `Upgrade: h2c` in the first request of a connection; its body may have up to 64 KiB
    #[arg(long)]
    h2c_upgrade: bool,
    /// Octets of padding in every HEADERS and DATA
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<u8>(0..=255))]
    padding: u8,
    /// Leave Nagle's algorithm on, as servers without `TCP_NODELAY` do: with --no-coalesce small responses wait for delayed ACKs
    #[arg(long)]
    nagle: bool,
    /// Delay added to each response
    #[arg(long, value_name = "TIME", value_parser = duration)]
    handler_delay: Option<Duration>,
    /// Limits after which a client is cut off (resets, floods, slowness), repeatable
    #[arg(long = "limit", value_name = "NAME=VALUE", value_parser = LimitArg::parse, long_help = limits::HELP)]
    limits: Vec<LimitArg>,
    // Last, since the heading of the engine's flags applies to all flags that follow.
    #[command(flatten)]
    server: ListenArgs,
}

fn quic_congestion(text: &str) -> Result<Congestion, String> {
    Congestion::named(text)
        .ok_or_else(|| format!("`{text}` is not a congestion control of QUIC (reno, cubic, bbr)"))
}

/// `--goaway`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum GoAwayArg {
    /// At once, as nginx does: requests in flight are lost
    Abrupt,
    /// A round trip ahead, as RFC 9113 recommends: no request is lost
    Graceful,
}

/// Logs a client that was cut off, ten times a second at most: the log must not become a target either.
fn report_exceeded(exceeded: &Exceeded, held: usize) {
    const MOST: u32 = 10;
    thread_local! {
        static REPORTED: Cell<(Option<Instant>, u32)> = const { Cell::new((None, 0)) };
    }
    let (since, reported) = match REPORTED.get() {
        (Some(since), reported) if since.elapsed() < Duration::from_secs(1) => (since, reported),
        _ => (Instant::now(), 0),
    };
    REPORTED.set((Some(since), reported + 1));
    if reported < MOST {
        say!("cut off: {exceeded}; {held} bytes were held for it");
    }
}

/// Serves until it is stopped.
pub fn main(args: &OriginArgs) -> Result<Exit> {
    let mut config = args.server.config(&[
        (args.client_ca.is_some(), "--client-ca"),
        (args.no_tls_resumption, "--no-tls-resumption"),
        (args.http1, "--http1.1"),
    ])?;
    let client_ca =
        args.client_ca.as_deref().map(|path| tls::authorities("--client-ca", path)).transpose()?;
    config.tls.client_ca_pem = client_ca.map(String::into_bytes);
    config.tls.full_handshakes = args.no_tls_resumption;
    config.http1 = args.http1;
    if args.any_path {
        config.site = OriginContent::AnyPath;
    }
    config.h3 = args.server.h3.then_some(args.quic_congestion);
    config.engine.max_requests = args.max_requests_per_connection;
    config.engine.max_concurrent_streams = Some(args.max_concurrent_streams);
    args.server.tune(&mut config);
    config.engine.h2c_upgrade = args.h2c_upgrade.then_some(origin::UPGRADE_BODY);
    config.engine.padding = args.padding;
    config.nagle = args.nagle;
    config.goaway = match args.goaway {
        GoAwayArg::Abrupt => GoAwayMode::Abrupt,
        GoAwayArg::Graceful => GoAwayMode::Graceful,
    };
    config.handler_delay = args.handler_delay.unwrap_or(config.handler_delay);
    for limit in &args.limits {
        limit.apply(&mut config.engine.limits).map_err(Usage)?;
    }
    config.on_exceeded = Some(report_exceeded);
    // A line that nobody reads is lost.
    config.on_quic_sample = args.quic_samples.then_some(|line| drop(writeln!(std::io::stdout(), "{line}")));
    serve(&config)
}

/// Serves as `config` says until a signal ends it: says where it listens, and at the end what it has served.
pub fn serve(config: &OriginConfig) -> Result<Exit> {
    let sockets = config.congestion.as_deref().map_or(privileges::NONE, StreamSocket::rights_for_congestion);
    rights::reduce(CapabilitySet::NET_BIND_SERVICE | sockets)?;
    resources::raise_open_files();
    crate::stderr::write_aside();
    let stop = signals::stop_flag()?;
    let mut reported = Ok(());
    let served = origin::run(config, &stop, &mut |sockets| reported = announce(sockets, &stop));
    match served {
        Ok(served) => {
            reported.map_err(|error| unannounced(&error))?;
            output::print_last(&served);
            Ok(Exit::Done)
        }
        Err(error @ (OriginError::Listen { .. } | OriginError::ListenUdp { .. })) => {
            Err(Usage(error.to_string()).into())
        }
        Err(error) => Err(error.into()),
    }
}

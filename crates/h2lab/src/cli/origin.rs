//! `h2lab origin`: the built-in server.

use std::cell::Cell;
use std::io::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use h2lab_core::units::{parse_bytes, parse_duration};
use h2lab_core::wire::Exceeded;

use super::exit::Usage;
use super::limits::{self, LimitArg};
use super::{Exit, help, signals};
use crate::origin::{self, GoAway, OriginConfig, OriginError};

/// The built-in server: h1, h2c, h1s and h2 with httpbin's paths
///
/// It prints one line `listening URL` per socket when it is ready, and serves until it is stopped: what was asked until
/// then is still answered.
///
/// A CONNECT that names a protocol (RFC 8441, such as websocket) on /echo or /anything gets back what it sends.
///
/// Paths: / (1 KiB), /bytes/N, /delay/MS, /drip?bytes=&ms=, /status/N, /headers, /anything, /echo, /stream/N,
/// /early?ms= (103, then the response), /push?count= (pushes /bytes/4k), /stall?every=&ms= (the whole server pauses now
/// and then).
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[
        ("h2lab origin --listen 127.0.0.1:8080 --tls-listen 127.0.0.1:8443", "in clear and over TLS"),
        ("h2lab origin --listen 127.0.0.1:0 --max-requests-per-connection 1000", "a free port, with a quota"),
    ],
))]
pub struct OriginArgs {
    /// Listen in clear: h1, and h2c by prior knowledge; port 0 takes a free one
    #[arg(long, value_name = "ADDR")]
    listen: Vec<SocketAddr>,
    /// Listen with TLS: h1s and h2 by ALPN; the certificate is made at start
    #[arg(long, value_name = "ADDR")]
    tls_listen: Vec<SocketAddr>,
    /// End a connection after this many requests, as nginx's `keepalive_requests` does
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_requests_per_connection: Option<u32>,
    /// How HTTP/2 tells it: one GOAWAY at once, or a warning a round trip before
    #[arg(long, value_name = "HOW", value_enum, default_value_t = GoAwayArg::Abrupt)]
    goaway: GoAwayArg,
    /// Streams that a client may have open on a connection
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    max_concurrent_streams: u32,
    /// Stream window: bytes (64k), or bits up to 31 (16)
    #[arg(short = 'w', long, value_name = "SIZE", value_parser = window)]
    stream_window: Option<u32>,
    /// Connection window: bytes, or bits up to 31
    #[arg(short = 'W', long, value_name = "SIZE", value_parser = window)]
    connection_window: Option<u32>,
    /// Largest frame that we accept: 16k to 16M - 1
    #[arg(short = 'f', long, value_name = "SIZE", value_parser = frame_size)]
    max_frame_size: Option<u32>,
    /// Switch to HTTP/2 in clear when the first request asks for it by `Upgrade: h2c`; its body may have 64 KiB
    #[arg(long)]
    h2c_upgrade: bool,
    /// Octets of padding in every HEADERS and DATA
    #[arg(long, value_name = "N", default_value_t = 0)]
    padding: u8,
    /// Time added to every answer
    #[arg(long, value_name = "TIME", value_parser = |text: &str| parse_duration(text).map_err(|e| e.to_string()))]
    handler_delay: Option<Duration>,
    /// Ask a client that is silent for so long during a request whether it is still there (PING); off by default
    #[arg(long, value_name = "TIME", value_parser = |text: &str| parse_duration(text).map_err(|e| e.to_string()))]
    keep_alive: Option<Duration>,
    /// How long requests under way may take after the first SIGTERM or Ctrl-C; the second one ends at once
    #[arg(long, value_name = "TIME", default_value = "10s",
        value_parser = |text: &str| parse_duration(text).map_err(|e| e.to_string()))]
    drain_timeout: Duration,
    /// What a client may do before it is cut off (resets, floods, slowness), repeatable
    #[arg(long = "limit", value_name = "NAME=VALUE", value_parser = LimitArg::parse, long_help = limits::HELP)]
    limits: Vec<LimitArg>,
}

/// `--goaway`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum GoAwayArg {
    /// At once, as nginx does: requests on their way are lost
    Abrupt,
    /// A round trip ahead, as RFC 9113 recommends: nothing is lost
    Graceful,
}

/// Bits up to 31 or a size, as h2load's users write both.
fn window(text: &str) -> Result<u32, String> {
    const EXPECTED: &str =
        "a window: bits from 16 to 31, or a size from 65535 to 2147483647 (such as 16, 64k, 16M)";
    let size = match text.parse::<u32>() {
        Ok(bits @ 0..=31) => (1_u64 << bits) - 1,
        _ => parse_bytes(text).map_err(|_| format!("`{text}` is not {EXPECTED}"))?,
    };
    u32::try_from(size)
        .ok()
        .filter(|size| (65_535..1 << 31).contains(size))
        .ok_or(format!("`{text}` is not {EXPECTED}"))
}

fn frame_size(text: &str) -> Result<u32, String> {
    let size = parse_bytes(text).map_err(|error| error.to_string())?;
    u32::try_from(size)
        .ok()
        .filter(|size| (1 << 14..1 << 24).contains(size))
        .ok_or_else(|| format!("`{text}` is not a frame size from 16384 to 16777215"))
}

/// Tells the operator of a client that was cut off, ten times a second at most: the log is no target either.
fn tell_exceeded(exceeded: &Exceeded, held: usize) {
    const MOST: u32 = 10;
    thread_local! {
        static TOLD: Cell<(Option<Instant>, u32)> = const { Cell::new((None, 0)) };
    }
    let (since, told) = match TOLD.get() {
        (Some(since), told) if since.elapsed() < Duration::from_secs(1) => (since, told),
        _ => (Instant::now(), 0),
    };
    TOLD.set((Some(since), told + 1));
    if told < MOST {
        eprintln!("cut off: {exceeded}; {held} bytes were held for it");
    }
}

/// Serves until it is stopped.
pub fn main(args: &OriginArgs) -> Result<Exit> {
    if args.listen.is_empty() && args.tls_listen.is_empty() {
        return Err(Usage(
            "give --listen ADDR, --tls-listen ADDR or both (such as 127.0.0.1:8080)".to_owned(),
        )
        .into());
    }
    let mut config = OriginConfig::new(args.listen.clone(), args.tls_listen.clone());
    config.engine.max_requests = args.max_requests_per_connection;
    config.engine.max_concurrent_streams = Some(args.max_concurrent_streams);
    config.engine.flow.stream_window = args.stream_window.unwrap_or(config.engine.flow.stream_window);
    config.engine.flow.connection_window =
        args.connection_window.unwrap_or(config.engine.flow.connection_window);
    config.engine.max_frame_size = args.max_frame_size.unwrap_or(config.engine.max_frame_size);
    config.engine.h2c_upgrade = args.h2c_upgrade.then_some(origin::UPGRADE_BODY);
    config.engine.padding = args.padding;
    config.goaway = match args.goaway {
        GoAwayArg::Abrupt => GoAway::Abrupt,
        GoAwayArg::Graceful => GoAway::Graceful,
    };
    config.handler_delay = args.handler_delay.unwrap_or(config.handler_delay);
    config.engine.keep_alive = args.keep_alive;
    config.drain_timeout = args.drain_timeout;
    for limit in &args.limits {
        limit.apply(&mut config.engine.limits).map_err(Usage)?;
    }
    config.on_exceeded = Some(tell_exceeded);
    let stop = signals::stop_flag()?;
    let mut told = Ok(());
    let served = origin::run(&config, &stop, &mut |sockets| {
        let mut out = std::io::stdout().lock();
        told = sockets
            .iter()
            .try_for_each(|socket| writeln!(out, "listening {socket}"))
            .and_then(|()| out.flush());
    });
    match served {
        Ok(()) => told.context("cannot print where it listens").map(|()| Exit::Done),
        Err(error @ OriginError::Listen { .. }) => Err(Usage(error.to_string()).into()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_bits_or_bytes() {
        assert_eq!(window("16"), Ok(65_535));
        assert_eq!(window("31"), Ok(2_147_483_647));
        assert_eq!(window("64k"), Ok(65_536));
        for bad in ["15", "2G", "x", "1k"] {
            assert!(window(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn frame_sizes_stay_in_the_range_of_rfc_9113() {
        assert_eq!(frame_size("16k"), Ok(16_384));
        assert_eq!(frame_size("16777215"), Ok(16_777_215));
        assert!(frame_size("16383").is_err());
        assert!(frame_size("16M").is_err());
    }
}

//! `h2lab bulk serve`: the origin, with files.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use h2lab_core::workload::EngineSettings;

use super::super::engine::EngineArgs;
use super::super::exit::Usage;
use super::super::tls::{self, IdentityArgs};
use super::super::values::duration;
use super::super::{Exit, help, origin, policy};
use crate::bulk;
use crate::io::quic::Congestion;
use crate::io::tls::ServerTlsOptions;
use crate::origin::{Bulk, OriginConfig, Site};

/// Files that one connection gets at a time. Each takes a buffer of 128 KiB while it is sent, and so many fit into what the
/// origin holds for a connection; filler takes none.
const FILES: u32 = 100;

/// Serve the files of a folder, or bytes of memory, over h1, h2c, h1s, h2 and h3
///
/// GET and HEAD, with a range (`Range`, `If-Range`), a strong `ETag` and `Last-Modified`; and the checksum of the whole
/// (`Repr-Digest`, RFC 9530) to whoever asks for it by `Want-Repr-Digest`: crc32c, sha-256, sha-512. It is made once, in a
/// thread of its own. Nothing outside of the folder can be had, also not by symbolic links; there are no listings.
///
/// It prints one line `listening URL` per socket when it is ready, and serves until it is stopped; a last line tells what it
/// has served.
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[
        ("h2lab bulk serve --listen 127.0.0.1:8080 /srv/data", "a folder in clear: h1, and h2c by prior knowledge"),
        ("h2lab bulk serve --listen 0.0.0.0:8080 --memory --congestion cubic", "/bytes/10G, from no disk"),
        ("curl -C - -O http://127.0.0.1:8080/file", "curl takes files and ranges"),
    ],
))]
pub struct ServeArgs {
    /// The folder whose files are served
    #[arg(value_name = "DIR", required_unless_present = "memory", conflicts_with = "memory")]
    folder: Option<PathBuf>,
    /// No folder: /bytes/N is N bytes of filler (64k, 10G), the same ones each time
    #[arg(long)]
    memory: bool,
    /// Listen in clear: h1, and h2c by prior knowledge; port 0 takes a free one
    #[arg(long, value_name = "ADDR")]
    listen: Vec<SocketAddr>,
    /// Listen with TLS: h1s and h2 by ALPN; without --cert the certificate is made at start
    #[arg(long, value_name = "ADDR")]
    tls_listen: Vec<SocketAddr>,
    /// Speak HTTP/3, too: over UDP, on the ports of --tls-listen
    #[arg(long, requires = "tls_listen")]
    h3: bool,
    #[command(flatten)]
    identity: IdentityArgs,
    /// Congestion control of what we send: cubic, bbr, reno … whatever the kernel has (h3: those three) [default: the
    /// system's, and cubic of h3]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// A line on stderr for each request: status, method, path, and which bytes (first, and one past the last)
    #[arg(long)]
    log: bool,
    /// How long transfers under way may take after the first SIGTERM or Ctrl-C; the second one ends at once
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    drain_timeout: Duration,
    #[command(flatten)]
    engine: EngineArgs,
}

/// Serves until it is stopped.
pub fn main(args: &ServeArgs) -> Result<Exit> {
    if args.listen.is_empty() && args.tls_listen.is_empty() {
        let words = "give --listen ADDR, --tls-listen ADDR or both (such as 127.0.0.1:8080)";
        return Err(Usage(words.to_owned()).into());
    }
    if args.tls_listen.is_empty() && args.identity.is_given() {
        return Err(Usage("--cert is for TLS: give --tls-listen ADDR".to_owned()).into());
    }
    let mut config = OriginConfig::new(args.listen.clone(), args.tls_listen.clone());
    config.site = Site::Bulk(Arc::new(content(args)?.logged(args.log)));
    config.h3 = args.h3.then(|| quic_congestion(args.congestion.as_deref())).transpose()?;
    if let Some(name) = &args.congestion {
        policy::check_congestion(name)?;
        config.congestion = Some(name.clone());
    }
    let ours = bulk::engine(false);
    (config.engine.flow, config.engine.max_frame_size) = (ours.flow, ours.max_frame_size);
    if args.folder.is_some() {
        config.engine.max_concurrent_streams = Some(FILES);
    }
    let mut settings = EngineSettings::default();
    args.engine.apply(&mut settings);
    settings.apply(&mut config.engine);
    config.window_budget = settings.window_budget.unwrap_or(config.window_budget);
    config.drain_timeout = args.drain_timeout;
    config.tls = ServerTlsOptions { identity: args.identity.read()?, ..ServerTlsOptions::default() };
    tls::announce_key_log()?;
    origin::serve(&config)
}

/// What is served.
fn content(args: &ServeArgs) -> Result<Bulk, Usage> {
    match &args.folder {
        Some(path) => Bulk::folder(path)
            .map_err(|error| Usage(format!("{}: cannot be served: {error}", path.display()))),
        None => Ok(Bulk::memory()),
    }
}

/// QUIC's congestion control of this name.
fn quic_congestion(name: Option<&str>) -> Result<Congestion, Usage> {
    let Some(name) = name else { return Ok(Congestion::default()) };
    let none = || Usage(format!("--congestion {name}: HTTP/3 has reno, cubic and bbr"));
    Congestion::named(name).ok_or_else(none)
}

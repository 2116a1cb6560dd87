//! `h2lab bulk serve`: the origin, with files.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;

use super::super::exit::Usage;
use super::super::listen::ListenArgs;
use super::super::policy::{self, CongestionArgs};
use super::super::{Exit, help, origin, output};
use super::token::TokenArgs;
use super::transfer::chunk;
use super::uploads::UploadArgs;
use h2lab_net::quic::Congestion;
use h2lab_net::storage::Chunk;
use h2lab_roles::bulk;
use h2lab_roles::origin::{Bulk, OriginContent};

/// Files that one connection gets at a time. Each takes a buffer of 128 KiB while it is sent, and so many fit into what the
/// origin holds for a connection; filler takes none.
const FILES: usize = 100;

/// Longer chunks leave fewer files, so that no connection takes more memory for them, in bytes.
const MOST_HELD: usize = 64 << 20;

/// But so many are always served at a time.
const LEAST_FILES: usize = 4;

/// Serve files of a folder, or bytes from memory, over h1, h2c, h1s, h2 and h3; accept uploads
///
/// GET and HEAD, with a range (`Range`, `If-Range`), a strong `ETag` and `Last-Modified`; and the checksum of the whole
/// (`Repr-Digest`, RFC 9530) on request (`Want-Repr-Digest`): crc32c, sha-256, sha-512. It is computed
/// once, in a separate thread. With --writable also PUT: a file gets its name when it is completely on disk and its checksum
/// matches; --memory counts and discards what it receives. Nothing outside the folder can be read or changed,
/// not even through symbolic links. There are no listings.
///
/// It prints one line `listening URL` per socket when it is ready, and serves until it is stopped; the last line summarises
/// what was served.
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[
        ("h2lab bulk serve --listen 127.0.0.1:8080 /srv/data", "a folder in clear: h1, and h2c by prior knowledge"),
        ("h2lab bulk serve --listen 0.0.0.0:8080 --memory --congestion cubic", "/bytes/10G, without a disk"),
        ("h2lab bulk serve --listen 127.0.0.1:8080 --writable /srv/data", "accept files from h2lab bulk put or curl -T"),
        ("curl -C - -O http://127.0.0.1:8080/file", "curl fetches files and ranges"),
    ],
))]
pub struct ServeArgs {
    /// The folder whose files are served
    #[arg(value_name = "DIR", conflicts_with = "memory")]
    folder: Option<PathBuf>,
    /// No folder: /bytes/N is N bytes of filler (64k, 10G), always the same bytes
    #[arg(long)]
    memory: bool,
    #[command(flatten)]
    socket: CongestionArgs,
    /// Log each request to stderr: status, method, path, and byte range (first, and one past the last)
    #[arg(long)]
    log: bool,
    /// Bytes passed to the engine at once, also the longest frame [default: the value of -f if that is more than
    /// 128k; else 128k of a file, 64k of memory]
    ///
    /// Each file in transfer uses this much memory; from 656k on, a connection may have fewer than 100 at once.
    #[arg(long, value_name = "SIZE", value_parser = chunk)]
    chunk: Option<u32>,
    #[command(flatten)]
    access: TokenArgs,
    #[command(flatten)]
    uploads: UploadArgs,
    // The last: the heading of the engine's flags goes for all that follow them.
    #[command(flatten)]
    server: ListenArgs,
}

/// Serves until it is stopped.
pub fn main(args: &ServeArgs) -> Result<Exit> {
    if args.folder.is_none() && !args.memory {
        let words = "give the folder to serve (bulk serve --listen ADDR DIR), or --memory to serve bytes from \
             memory, at /bytes/N";
        return Err(Usage(words.to_owned()).into());
    }
    let mut config = args.server.config(&[])?;
    config.h3 = args.server.h3.then(|| quic_congestion(args.socket.congestion.as_deref())).transpose()?;
    if let Some(name) = &args.socket.congestion {
        policy::check_congestion(name)?;
        config.congestion = Some(name.clone());
    }
    let ours = bulk::engine(false);
    (config.engine.flow, config.engine.max_frame_size) = (ours.flow, ours.max_frame_size);
    let settings = args.server.tune(&mut config);
    let chunk = Chunk::of_frame(args.chunk, settings.max_frame_size);
    chunk.make_room(&mut config.engine);
    if args.folder.is_some() {
        let files = (MOST_HELD / chunk.file()).clamp(LEAST_FILES, FILES);
        config.engine.max_concurrent_streams = Some(files as u32);
        config.held = config.held.max(files * chunk.file());
    }
    let content = Arc::new(
        content(args)?
            .guarded(args.access.token()?)
            .in_chunks(chunk)
            .logged(args.log)
            .expiring(args.uploads.expire())
            .context("cannot start the thread that removes unfinished uploads")?,
    );
    config.site = OriginContent::Bulk(Arc::clone(&content));
    let exit = origin::serve(&config)?;
    if content.taken() > 0 {
        output::print_last(&format_args!("took {} bytes", content.taken()));
    }
    Ok(exit)
}

/// What is served.
fn content(args: &ServeArgs) -> Result<Bulk, Usage> {
    match &args.folder {
        Some(path) => Bulk::folder(path, args.uploads.limits())
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

//! `h2lab bulk get`: files from any server.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use clap::Args;
use h2lab_core::bulk::Algorithm;
use h2lab_core::report;
use h2lab_core::workload::{EngineSettings, Protocol};

use super::super::engine::EngineArgs;
use super::super::exit::Usage;
use super::super::live::{self, LiveArgs};
use super::super::output;
use super::super::protocols::{ProtocolArgs, check_streams};
use super::super::reach::{self, ReachArgs};
use super::super::values::{duration, size, value};
use super::super::{Exit, help, policy, signals, tls};
use super::view::View;
use crate::bulk::get::{GetError, Got, Job};
use crate::bulk::sink::{FileSink, SinkError, collide};
use crate::bulk::{FetchError, Manner, Place, RunError, Wanted, get};
use crate::client::ConnectError;
use crate::client::url::Url;
use crate::io::clock::Clock;
use crate::io::resources;
use crate::io::tcp::Endpoint;
use crate::io::tls::{TlsError, TlsOptions};
use crate::run::folder;
use crate::run::messages::{Failure, FailureKind};

/// Fetch files: whole or in parts, resumable, checked end to end
///
/// A file is written as NAME.part, with a journal of what is there beside it, and takes its name when all of it is on the disk
/// and its checksum is right. What was interrupted, by us, by the server or by a full disk, is gone on with by the same command;
/// if the file on the server has changed meanwhile that is refused.
///
/// With -c and -m the file is fetched in parts, by ranges; a server that has none sends it over one stream. Servers that tell
/// no checksum (`Repr-Digest`, RFC 9530) are believed: ours is printed then, for you to compare.
///
/// https:// is asked in HTTP/2 if the server takes it (ALPN), else in HTTP/1.1; http:// in HTTP/1.1 unless a flag says
/// otherwise. All URLs have one scheme, host and port.
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[
        ("h2lab bulk get https://service.example/data.tar", "into ./data.tar"),
        ("h2lab bulk get -c 4 -o /mnt/data.tar https://service.example/data.tar", "in parts, over four connections"),
        ("h2lab bulk get --out-dir /mnt --http3 https://service.example/a https://service.example/b", "two files, HTTP/3"),
        ("h2lab bulk get --discard -z 60s --h2c -m 8 http://127.0.0.1:8080/bytes/1G", "nothing kept: how fast is it?"),
    ],
))]
pub struct GetArgs {
    /// What to fetch (http:// or https://)
    #[arg(value_name = "URL", required = true)]
    urls: Vec<String>,
    /// Write to this file [default: the last part of the URL, here]
    #[arg(short = 'o', long, value_name = "FILE", group = "to")]
    output: Option<PathBuf>,
    /// Write into this folder, by the last part of each URL
    #[arg(long, value_name = "DIR", group = "to")]
    out_dir: Option<PathBuf>,
    /// Keep nothing: the network is measured, and no disk
    #[arg(long, group = "to")]
    discard: bool,
    /// Connections
    #[arg(short = 'c', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    connections: u32,
    /// Requests at a time on one connection of HTTP/2 or HTTP/3 [default: 1]
    #[arg(short = 'm', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    streams: Option<u32>,
    /// Bytes of a part, less if a lane would get none [default: a quarter of each lane's share, 16M to 1G]. One lane (no -c,
    /// no -m) has no parts
    #[arg(long, value_name = "SIZE", value_parser = part)]
    part: Option<u64>,
    #[command(flatten)]
    protocol: ProtocolArgs,
    /// crc32c, sha-256, sha-512 or none [default: crc32c, none with --discard]
    #[arg(long, value_name = "NAME", value_parser = value::<Algorithm>)]
    checksum: Option<Algorithm>,
    /// Begin anew, whatever an earlier run has left
    #[arg(long)]
    no_resume: bool,
    /// Fetch the URLs over and over for so long; what is under way then is cut, and counted
    #[arg(short = 'z', long, value_name = "TIME", value_parser = duration, requires = "discard")]
    duration: Option<Duration>,
    /// After so long without a byte the server is given up
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    timeout: Duration,
    /// Congestion control of our sockets. It governs what we send; a server has its own
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    live: LiveArgs,
    #[command(flatten)]
    reach: ReachArgs,
    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,
    /// No progress
    #[arg(short = 'q', long)]
    quiet: bool,
}

fn part(text: &str) -> Result<u64, String> {
    match size(text)? {
        0 => Err("a part has at least one byte".to_owned()),
        bytes => Ok(bytes),
    }
}

/// Fetches and tells how it went.
pub fn main(args: &GetArgs, command_line: Vec<String>) -> Result<Exit> {
    let urls: Vec<Url> = args.urls.iter().map(|text| live::parse(text)).collect::<Result<_, _>>()?;
    check_server(&args.urls, &urls)?;
    let plan = Plan {
        args,
        url: &urls[0],
        wanted: places(args, &urls)?,
        tls: live::trust(&args.live)?.options(),
        manner: manner(args)?,
        settings: settings(args)?,
        stop: signals::stop_flag()?,
    };
    if let Some(name) = &args.congestion {
        policy::check_congestion(name)?;
    }
    signals::ignore_file_size_limit()?;
    tls::announce_key_log()?;
    resources::raise_open_files();
    let started = SystemTime::now();
    let protocols = plan.protocols()?;
    let endpoints = reach::endpoints(&args.urls[0], &urls[0], &args.live.resolve, &args.reach)?;
    let Got { mut record, files } = plan.first_that_works(&protocols, &endpoints)?;
    record.command = command_line;
    VERSION.clone_into(&mut record.version);
    record.started = humantime::format_rfc3339_seconds(started).to_string();
    record.machine = folder::machine();
    let text = if args.json {
        serde_json::to_string_pretty(&report::bulk_document(&record))? + "\n"
    } else {
        report::bulk_text(&record, output::style())
    };
    output::print(&text)?;
    if files.iter().any(|file| file.is_resumable() && file.outcome().is_some_and(Result::is_err)) {
        eprintln!("note: what has arrived is kept; the same command goes on with it");
    }
    Ok(files
        .iter()
        .filter_map(|file| file.outcome()?.as_ref().err())
        .map(exit_of)
        .max_by_key(|exit| gravity(*exit))
        .unwrap_or(Exit::Done))
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The exit code that a file deserves which did not arrive.
const fn exit_of(error: &FetchError) -> Exit {
    match error {
        FetchError::Deadline => Exit::Done, // as it was to be
        FetchError::Mismatch { .. } => Exit::CheckFailed,
        FetchError::Sink(SinkError::Journal { .. } | SinkError::NotAFile { .. }) => Exit::Usage,
        FetchError::Sink(_) => Exit::Environment,
        FetchError::Interrupted => Exit::Interrupted,
        _ => Exit::Unreachable,
    }
}

/// Of several codes the one that is told: that the user wanted an end, then that a file is wrong, then the others.
const fn gravity(exit: Exit) -> u8 {
    match exit {
        Exit::Done => 0,
        Exit::Unreachable => 1,
        Exit::Usage => 2,
        Exit::Environment => 3,
        Exit::CheckFailed => 4,
        _ => 5,
    }
}

/// All URLs are of one server: its connections are shared.
fn check_server(texts: &[String], urls: &[Url]) -> Result<(), Usage> {
    let server = |url: &Url| (url.is_tls(), url.authority().to_owned());
    match urls.iter().position(|url| server(url) != server(&urls[0])) {
        Some(other) => Err(Usage(format!(
            "{}: another server than that of {}; give each its own run",
            texts[other], texts[0]
        ))),
        None => Ok(()),
    }
}

/// Where each file goes.
fn places(args: &GetArgs, urls: &[Url]) -> Result<Vec<Wanted>> {
    if args.output.is_some() && urls.len() > 1 {
        return Err(Usage("-o/--output is for one URL; give --out-dir DIR".to_owned()).into());
    }
    if let Some(folder) = &args.out_dir {
        std::fs::create_dir_all(folder).with_context(|| format!("--out-dir {}", folder.display()))?;
    }
    let mut wanted: Vec<Wanted> = Vec::new();
    for (text, url) in args.urls.iter().zip(urls) {
        let place = match &args.output {
            _ if args.discard => Place::Discard,
            Some(path) => Place::File(path.clone()),
            None => Place::File(args.out_dir.as_deref().unwrap_or(Path::new("")).join(name(text, url)?)),
        };
        if let Place::File(path) = &place
            && path.is_dir()
        {
            // The rename at the end would find out, after an hour perhaps.
            return Err(Usage(format!(
                "{}: there is a folder of this name; give -o FILE or --out-dir DIR",
                path.display()
            ))
            .into());
        }
        if let Place::File(path) = &place {
            FileSink::check(path).map_err(|error| Usage(error.to_string()))?;
            let meets = |other: &&Wanted| matches!(&other.place, Place::File(other) if collide(other, path));
            if let Some(other) = wanted.iter().find(meets) {
                let words =
                    "would be written to the same name, or to that of its part; fetch it with -o FILE";
                return Err(Usage(format!("{text}: it and {} {words}", other.url)).into());
            }
        }
        wanted.push(Wanted { url: text.clone(), path: url.path_and_query().to_owned(), place });
    }
    Ok(wanted)
}

/// The name of a file: the last part of its URL's path, as it stands there.
fn name<'a>(text: &str, url: &'a Url) -> Result<&'a str, Usage> {
    let path = url.path_and_query().split('?').next().unwrap_or_default();
    match path.rsplit('/').next().unwrap_or_default() {
        "" | "." | ".." => Err(Usage(format!("{text}: the URL names no file; give -o FILE"))),
        name => Ok(name),
    }
}

fn manner(args: &GetArgs) -> Result<Manner, Usage> {
    let lanes = args.connections.saturating_mul(args.streams.unwrap_or(1));
    let usual = if args.discard { Algorithm::None } else { Algorithm::Crc32c };
    let checksum = args.checksum.unwrap_or(usual);
    if args.discard && checksum != Algorithm::None && !checksum.combines() && lanes > 1 {
        let words = "sums parts in their order only, and with --discard they cannot be read again; give crc32c, or neither -c nor -m";
        return Err(Usage(format!("--checksum {checksum} {words}")));
    }
    Ok(Manner { lanes, part: args.part, checksum, resume: !args.no_resume })
}

fn settings(args: &GetArgs) -> Result<EngineSettings, Usage> {
    let mut settings = EngineSettings::default();
    args.engine.apply(&mut settings);
    match settings.out_of_range() {
        Some((key, value, expected)) => Err(Usage(format!("--{key} = {value} is out of range: {expected}"))),
        None => Ok(settings),
    }
}

/// All that attempts to reach the server have in common.
struct Plan<'a> {
    args: &'a GetArgs,
    url: &'a Url,
    wanted: Vec<Wanted>,
    tls: TlsOptions,
    manner: Manner,
    settings: EngineSettings,
    stop: Arc<AtomicBool>,
}

impl Plan<'_> {
    /// The protocols to try, the best first; only one if it was asked for by name.
    fn protocols(&self) -> Result<Vec<Protocol>, Usage> {
        let is_tls = self.url.is_tls();
        let protocols = match self.args.protocol.asked(is_tls)? {
            Some(protocol) => vec![protocol],
            None if is_tls => vec![Protocol::H2, Protocol::H1s],
            None => vec![Protocol::H1],
        };
        check_streams(protocols[0], self.args.streams)?;
        Ok(protocols)
    }

    /// Tries the protocols and the endpoints, in order, until one carries files. An attempt that fails has asked for none.
    fn first_that_works(&self, protocols: &[Protocol], endpoints: &[Endpoint]) -> Result<Got> {
        let (mut protocol, mut place) = (0, 0);
        loop {
            let at = &endpoints[place];
            let error = match self.get(protocols[protocol], at) {
                Ok(got) => return Ok(got),
                Err(error) => error,
            };
            match &error {
                GetError::Run(RunError::Unreachable(why))
                    if why.is_not_spoken() && protocol + 1 < protocols.len() =>
                {
                    protocol += 1;
                    eprintln!("note: {why}, so {} is used", protocols[protocol]);
                }
                GetError::Run(RunError::Unreachable(why))
                    if why.is_not_there() && place + 1 < endpoints.len() =>
                {
                    place += 1;
                    eprintln!("note: {at}: {why}; trying {}", endpoints[place]);
                }
                _ => return Err(failure(at, &error).into()),
            }
        }
    }

    fn get(&self, protocol: Protocol, address: &Endpoint) -> Result<Got, GetError> {
        let args = self.args;
        let job = Job {
            wanted: self.wanted.clone(),
            address: address.clone(),
            authority: self.url.authority(),
            server_name: self.url.host(),
            tls: &self.tls,
            protocol,
            upgrade: protocol == Protocol::H2c && args.protocol.http2,
            congestion: args.congestion.clone(),
            settings: self.settings,
            connections: args.connections,
            streams: args.streams.filter(|_| protocol.is_multiplexed()).unwrap_or(1),
            manner: self.manner,
            duration: args.duration,
            patience: args.timeout,
            stop: Some(&self.stop),
            clock: Clock::start(),
        };
        let view = View::new(args.quiet || args.json);
        get(&job, &mut |progress| view.show(progress))
    }
}

/// What an error means for the exit code.
fn failure(at: &Endpoint, error: &GetError) -> Failure {
    let (kind, message) = match error {
        GetError::Tls(TlsError::NoRoots) => (FailureKind::Environment, error.to_string()),
        GetError::Tls(error) => (FailureKind::Usage, error.to_string()),
        GetError::Run(RunError::Unreachable(ConnectError::Io(error))) => {
            (FailureKind::Unreachable, format!("{at}: cannot connect: {error}"))
        }
        GetError::Run(RunError::Unreachable(why)) => (FailureKind::Unreachable, format!("{at}: {why}")),
        GetError::Run(error) => (FailureKind::Environment, error.to_string()),
    };
    Failure { kind, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_name_that_its_url_ends_with_or_needs_one() {
        let of = |text: &str| name(text, &text.parse().unwrap()).map(str::to_owned).ok();
        assert_eq!(of("http://a/b/data.tar?x=/y"), Some("data.tar".to_owned()));
        assert_eq!(of("http://a/%2e%2e"), Some("%2e%2e".to_owned()));
        for bad in ["http://a", "http://a/b/", "http://a/b/..", "http://a/."] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_gravest_code_of_several_files_is_told() {
        let codes = [
            Exit::Done,
            Exit::Unreachable,
            Exit::Usage,
            Exit::Environment,
            Exit::CheckFailed,
            Exit::Interrupted,
        ];
        assert!(codes.is_sorted_by(|a, b| gravity(*a) < gravity(*b)));
    }
}

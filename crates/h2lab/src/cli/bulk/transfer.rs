//! What `bulk get` and `bulk put` have in common: their flags, how the server is reached, and what is reported afterwards.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use clap::Args;
use h2lab_model::bulk::TransferDirection;
use h2lab_model::workload::{EngineSettings, Protocol};
use h2lab_transfer::Algorithm;

use super::super::client::ClientArgs;
use super::super::documents::FormArgs;
use super::super::exit::Usage;
use super::super::files::PageArg;
use super::super::flags::{FlagRefusal, Flags};
use super::super::needs;
use super::super::output;
use super::super::policy::{self, CongestionArgs};
use super::super::protocols::check_streams;
use super::super::reach::ReachArgs;
use super::super::values::{duration, size, value, whole};
use super::super::{Exit, note, rights, signals, tls};
use super::fields_and_settings;
use super::kept::{KeptFolder, Moved as _};
use super::view::BulkView;
use crate::run::folder;
use crate::run::messages::{Failure, FailureKind};
use h2lab_net::clock::Clock;
use h2lab_net::resources;
use h2lab_net::storage::body::LONGEST_CHUNK;
use h2lab_net::storage::{Chunk, SinkError};
use h2lab_net::tcp::Endpoint;
use h2lab_net::tls::{TlsError, TlsOptions};
use h2lab_roles::bulk::job::LISTED;
use h2lab_roles::bulk::{
    FetchError, FileLocation, Job, JobError, Moved, RequestedFile, RunError, TransferOptions, run,
};
use h2lab_roles::client::reach::tls_options;
use h2lab_roles::client::url::Url;

/// How files are moved, whichever way.
#[derive(Debug, Args)]
pub struct TransferArgs {
    /// Connections
    #[arg(short = 'c', long, value_name = "N", default_value_t = 1, value_parser = whole::<u32>(1..=1_000))]
    pub connections: u32,
    /// Concurrent requests per connection of HTTP/2 or HTTP/3 [default: 1]
    #[arg(short = 'm', long, value_name = "N", value_parser = whole::<u32>(1..=100_000))]
    pub streams: Option<u32>,
    /// Size of a part; smaller if a worker would get none [default: a quarter of each worker's share, 16M to 1G]. With
    /// one worker (no -c, no -m) there are no parts
    #[arg(long, value_name = "SIZE", value_parser = part)]
    pub part: Option<u64>,
    /// crc32c, sha-256, sha-512 or none [default: crc32c, none where no file is involved]
    #[arg(long, value_name = "NAME", value_parser = value::<Algorithm>)]
    pub checksum: Option<Algorithm>,
    /// Start from the beginning, even if an earlier run left a part
    #[arg(long)]
    no_resume: bool,
    /// Give up after this long without a byte from the server
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    timeout: Duration,
    #[command(flatten)]
    socket: CongestionArgs,
    #[command(flatten)]
    form: FormArgs,
    #[command(flatten)]
    page: PageArg,
    /// Also keep what was measured in this folder: `h2lab report` and `h2lab diagnose` read it again
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Suppress progress
    #[arg(short_alias = 's', long, alias = "silent")]
    quiet: bool,
    // The last: the headings of these flags go for all that follow them.
    #[command(flatten)]
    client: Flags<ClientArgs, Files>,
    #[command(flatten)]
    reach: ReachArgs,
}

/// The requests follow from the files that are moved.
#[derive(Debug, Clone, Default)]
pub struct Files;

impl FlagRefusal for Files {
    fn why(id: &str) -> Option<&'static str> {
        match id {
            "method" | "data" | "data_raw" | "body_bytes" => Some(
                "has no effect on files: `bulk get` uses GET, `bulk put` uses PUT; use it with `h2lab load`",
            ),
            "shape" | "template" => {
                Some("has no effect on files: each is requested once, or in parts; use it with `h2lab load`")
            }
            "push" => {
                Some("has no effect on files: pushed responses are not kept; `h2lab timeline` shows them")
            }
            _ => None,
        }
    }
}

fn part(text: &str) -> Result<u64, String> {
    match size(text)? {
        0 => Err("a part has at least one byte".to_owned()),
        bytes => Ok(bytes),
    }
}

/// Bytes that an engine gets at once, `--chunk`.
pub fn chunk(text: &str) -> Result<u32, String> {
    let expected = || format!("`{text}` is not a size from 1k to {LONGEST_CHUNK} (such as 64k, 1M)");
    u32::try_from(size(text)?)
        .ok()
        .filter(|bytes| (1_024..=LONGEST_CHUNK).contains(bytes))
        .ok_or_else(expected)
}

/// What is moved.
#[derive(Debug)]
pub struct Cargo {
    /// Which way.
    pub direction: TransferDirection,
    /// The files, all of the server at `url`.
    pub wanted: Vec<RequestedFile>,
    /// As it was given.
    pub text: String,
    /// What that says.
    pub url: Url,
    /// Nothing of it is a file.
    pub is_memory: bool,
    /// Over and over for so long.
    pub duration: Option<Duration>,
    /// How much of what is sent an engine gets at once.
    pub chunk: Option<u32>,
}

impl Cargo {
    /// Refuses files to send that are not there, before anything is dialled.
    fn check_sources(&self) -> Result<(), Usage> {
        for one in self.wanted.iter().filter(|_| self.direction == TransferDirection::Put) {
            if let FileLocation::File(path) = &one.place {
                let there = std::fs::metadata(path);
                there.map_err(|error| Usage(format!("{}: cannot be read: {error}", path.display())))?;
            }
        }
        Ok(())
    }
}

impl TransferArgs {
    /// Moves `cargo` and says how it went.
    pub fn run(&self, cargo: Cargo, command_line: Vec<String>) -> Result<Exit> {
        self.page.validate()?;
        let (fields, settings) = fields_and_settings(&self.client)?;
        cargo.check_sources()?;
        rights::reduce(self.socket.rights())?;
        let plan = TransferPlan {
            args: self,
            tls: tls_options(&self.reach.tls.trust()?),
            fields,
            options: self.options(&cargo, &settings)?,
            settings,
            stop: signals::stop_flag()?,
            cargo,
        };
        if let Some(name) = &self.socket.congestion {
            policy::check_congestion(name)?;
        }
        tls::announce_key_log()?;
        resources::raise_open_files();
        let started = SystemTime::now();
        let protocols = plan.protocols()?;
        let Cargo { text, url, .. } = &plan.cargo;
        let endpoints = self.reach.endpoints(text, url)?;
        let kept = KeptFolder::make(self.out.as_deref())?;
        let Moved { mut record, files } = plan.first_that_works(&protocols, &endpoints)?;
        if !self.client.request.secrets {
            record = record.without_secrets();
        }
        record.command = command_line;
        VERSION.clone_into(&mut record.version);
        record.started = humantime::format_rfc3339_seconds(started).to_string();
        record.machine = folder::machine();
        output::print(&record.render(self.form.form(), output::style())?)?;
        self.page.write(|| h2lab_report::bulk_page(&record))?;
        kept.keep_transfer(&record)?;
        if files.iter().any(|file| file.is_resumable() && file.outcome().is_some_and(Result::is_err)) {
            say!("note: the bytes received are kept; the same command resumes the transfer");
        }
        if record.moved_nothing() && !record.interrupted {
            return Ok(Exit::Unreachable); // a time that was over before a byte moved is no success
        }
        let ended = Exit::first(files.iter().filter_map(|file| file.outcome()?.as_ref().err()).map(exit_of));
        // A file is whole whoever was stopped meanwhile; a rate that was asked for is not.
        let is_measured = record.asked.duration.is_some() || plan.cargo.is_memory;
        Ok(if ended == Exit::Done && is_measured && record.is_void() { Exit::Invalid } else { ended })
    }

    fn options(&self, cargo: &Cargo, settings: &EngineSettings) -> Result<TransferOptions, Usage> {
        let workers = self.connections.saturating_mul(self.streams.unwrap_or(1));
        let usual = if cargo.is_memory { Algorithm::None } else { Algorithm::Crc32c };
        let checksum = self.checksum.unwrap_or(usual);
        let is_gone = cargo.is_memory && cargo.direction == TransferDirection::Get;
        if is_gone && checksum != Algorithm::None && !checksum.combines() && workers > 1 {
            let words = "must hash parts in order, and --discard keeps none to read again; give crc32c, or neither \
                 -c nor -m";
            return Err(Usage(format!("--checksum {checksum} {words}")));
        }
        Ok(TransferOptions {
            direction: cargo.direction,
            workers,
            part: self.part,
            checksum,
            resume: !self.no_resume,
            chunk: match cargo.direction {
                TransferDirection::Get => Chunk::default(),
                TransferDirection::Put => Chunk::of_frame(cargo.chunk, settings.max_frame_size),
            },
            trailers: true,
        })
    }
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The exit code that a file deserves which did not arrive.
fn exit_of(error: &FetchError) -> Exit {
    match error {
        FetchError::Deadline => Exit::Done, // as it was to be
        FetchError::Mismatch { .. } | FetchError::Status { .. } => Exit::CheckFailed,
        FetchError::Sink(SinkError::Journal { .. } | SinkError::NotAFile { .. }) => Exit::Usage,
        FetchError::Source(error) if error.is_wrong_name() => Exit::Usage,
        FetchError::Sink(_) | FetchError::Source(_) | FetchError::SourceChanged => Exit::Environment,
        FetchError::Interrupted => Exit::Interrupted,
        _ => Exit::Unreachable,
    }
}

/// All that attempts to reach the server have in common.
struct TransferPlan<'a> {
    args: &'a TransferArgs,
    cargo: Cargo,
    tls: TlsOptions,
    options: TransferOptions,
    settings: EngineSettings,
    /// Further header fields of each request.
    fields: Vec<(String, String)>,
    stop: Arc<AtomicBool>,
}

impl TransferPlan<'_> {
    /// The protocols to try, the best first; only one if it was asked for by name.
    fn protocols(&self) -> Result<Vec<Protocol>, Usage> {
        self.args.reach.check(&self.args.client.protocol)?;
        let protocols = self.args.client.protocol.to_try(self.cargo.url.is_tls(), &[Protocol::H1])?;
        check_streams(protocols[0], self.args.streams)?;
        needs::check(&self.args.client, &protocols)?;
        Ok(protocols)
    }

    /// Tries the protocols and the endpoints, in order, until one carries files. An attempt that fails has asked for none.
    fn first_that_works(&self, protocols: &[Protocol], endpoints: &[Endpoint]) -> Result<Moved> {
        let (mut protocol, mut place) = (0, 0);
        loop {
            let at = &endpoints[place];
            let error = match self.attempt(protocols[protocol], at) {
                Ok(moved) => return Ok(moved),
                Err(error) => error,
            };
            match &error {
                JobError::Run(RunError::Unreachable(why))
                    if why.is_not_spoken() && protocol + 1 < protocols.len() =>
                {
                    protocol += 1;
                    note(&format_args!("{why}, so {} is used", protocols[protocol]));
                    if let Some(told) = needs::without_effect(&self.args.client, protocols[protocol]) {
                        note(&told);
                    }
                }
                JobError::Run(RunError::Unreachable(why))
                    if why.is_not_there() && place + 1 < endpoints.len() =>
                {
                    place += 1;
                    note(&format_args!("{at}: {why}; trying {}", endpoints[place]));
                }
                _ => return Err(failure(at, &error).into()),
            }
        }
    }

    fn attempt(&self, protocol: Protocol, address: &Endpoint) -> Result<Moved, JobError> {
        let args = self.args;
        let job = Job {
            wanted: self.cargo.wanted.clone(),
            address: address.clone(),
            authority: self.cargo.url.authority(),
            server_name: self.cargo.url.host(),
            tls: &self.tls,
            protocol,
            upgrade: args.client.protocol.upgrades(protocol),
            congestion: args.socket.congestion.clone(),
            settings: self.settings,
            fields: &self.fields,
            connections: args.connections,
            streams: args.streams.filter(|_| protocol.is_multiplexed()).unwrap_or(1),
            options: self.options,
            duration: self.cargo.duration,
            listed: LISTED,
            timeout: args.timeout,
            stop: Some(&self.stop),
            clock: Clock::start(),
        };
        let view = BulkView::new(args.quiet || args.form.is_document(), self.cargo.duration);
        run(&job, &mut |progress| view.show(progress))
    }
}

/// What an error means for the exit code.
fn failure(at: &Endpoint, error: &JobError) -> Failure {
    let (kind, message) = match error {
        JobError::Tls(TlsError::NoRoots) => (FailureKind::Environment, error.to_string()),
        JobError::Tls(error) => (FailureKind::Usage, error.to_string()),
        JobError::Run(RunError::Unreachable(why)) => (why.into(), format!("{at}: {why}")),
        JobError::Run(error) => (FailureKind::Environment, error.to_string()),
    };
    Failure { kind, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_between_a_kibibyte_and_the_longest_frame() {
        assert_eq!((chunk("1k"), chunk("16777215")), (Ok(1_024), Ok(LONGEST_CHUNK)));
        for bad in ["1023", "16M", "x", "0"] {
            assert!(chunk(bad).is_err(), "{bad}");
        }
    }
}

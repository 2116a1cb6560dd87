//! `h2lab sidecar`: the proxy.

mod admin;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use h2lab_proxy::config::{Config, Instance, LogFormat, Policy, Size, Threads};
use h2lab_proxy::nft;
use h2lab_roles::sidecar::registry::Registries;
use h2lab_roles::sidecar::{
    self, AccessLog, AccessLogWriter, Live, SidecarConfig, SidecarError, Sockets, check_mark,
};

use super::exit::{MissingRequirement, Usage};
use super::listen::{announce, unannounced};
use super::{Exit, help, output, quotable, rights, signals, values};
use h2lab_net::handover::{self, Offer, Predecessor};
use h2lab_net::privileges::User;
use h2lab_net::resources;

mod confine;
mod reload;

use confine::Confinement;

/// The schema of the file, as a test makes sure.
const SCHEMA: &str = include_str!("../../../../docs/schema/sidecar-config.schema.json");
/// For so long the first answers of registries are waited for before it listens.
const FIRST_ANSWERS: Duration = Duration::from_secs(2);

/// A proxy between services: HTTP/1.1 and HTTP/2 on either side
///
/// Listens in clear (h1, and h2c by prior knowledge or upgrade) or with TLS (h1s and h2 by ALPN), and passes each request on to an
/// instance of the service that its host and path belong to. Requests that an HTTP/2 instance did not process (those above the last
/// stream of a GOAWAY, and `REFUSED_STREAM`) are sent again, whatever their method.
///
/// Prints one line `listening URL` per socket when ready, and serves until it is stopped. It passes open requests on before it exits;
/// the last line says what it did. At SIGHUP, and with --watch whenever it has changed, the file is read again, and requests under way
/// go on. What the file may have: docs/sidecar.md.
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[
        ("h2lab sidecar --listen 127.0.0.1:15001 --to h2c://10.0.0.7:8080", "callers speak HTTP/1.1, the service gets HTTP/2"),
        ("h2lab sidecar --listen 127.0.0.1:15001 --to h2c://10.0.0.7:8080 --policy fixed:8", "on eight connections"),
        (
            "h2lab sidecar --listen 127.0.0.1:15001 --to h2c://10.0.0.7:8080 --admin 127.0.0.1:9901 --access-log -",
            "with metrics, a page and a log",
        ),
        ("h2lab sidecar --config sidecar.toml --check", "whether a file is right"),
    ],
))]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct SidecarArgs {
    /// Listen in clear; port 0 picks a free one
    #[arg(long, value_name = "ADDR", conflicts_with = "config")]
    listen: Option<SocketAddr>,
    /// Where requests go, repeatable: http://HOST:PORT (h1), h2c://HOST:PORT, https://HOST:PORT (h2 or h1s by ALPN) or
    /// h3://HOST:PORT
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    to: Vec<Instance>,
    /// HTTP/2 connections per instance: adaptive (as many as the path needs), fixed:N, or per-request (one for each under way)
    #[arg(long, value_name = "POLICY", default_value_t = Policy::default(), conflicts_with = "config")]
    policy: Policy,
    /// Read listeners, services and routes from this file (TOML) instead
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Pass requests on in so many threads, or in as many as there are CPUs that it may use: auto [default: 1]
    #[arg(long, value_name = "N")]
    threads: Option<Threads>,
    /// Bound its memory: over 80 % of it new requests are answered 503, over 95 % connections are closed
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    memory: Option<u64>,
    /// Take the listening sockets over from the process that was started with the same SOCKET, which then passes on what it has begun
    /// and ends; without one, listen anew. No request is lost. The next process takes over from this one
    #[arg(long, value_name = "SOCKET")]
    take_over: Option<PathBuf>,
    /// When all sockets are open become this user, who needs no rights (name, or UID:GID); for root
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Do not restrict which files it may open (Landlock)
    #[arg(long)]
    no_landlock: bool,
    /// Read the file again when it, or a certificate or key that it names, has changed; SIGHUP always does that
    #[arg(long, requires = "config")]
    watch: bool,
    /// Log each request to this file, or to standard output: -
    #[arg(long, value_name = "FILE")]
    access_log: Option<String>,
    /// How it is logged: text, or json (an object on each line)
    #[arg(long, value_name = "FORMAT", requires = "access_log")]
    log_format: Option<LogFormat>,
    /// Serve metrics, status and a page for people here; a loopback address, unless the file has public = true
    #[arg(long, value_name = "ADDR")]
    admin: Option<SocketAddr>,
    /// Check the configuration, and exit
    #[arg(long, requires = "config")]
    check: bool,
    /// Print the rules of netfilter that bring connections to the transparent listeners of the file, and exit. Nothing is changed
    #[arg(long, requires = "config", conflicts_with = "check")]
    print_nft: bool,
    /// Print the JSON Schema of the file, for editors, and exit
    #[arg(long, exclusive = true)]
    schema: bool,
}

/// Serves until it is stopped.
pub fn main(args: &SidecarArgs) -> Result<Exit> {
    if args.schema {
        output::print(SCHEMA)?;
        return Ok(Exit::Done);
    }
    let mut file = match (&args.config, args.listen) {
        (Some(path), _) => read_config(path)?,
        (None, Some(listen)) if !args.to.is_empty() => Config::simple(listen, args.to.clone(), args.policy),
        (None, _) => return Err(Usage(args.missing()).into()),
    };
    let written = file.clone();
    file.memory = args.memory.map(Size).or(file.memory);
    file.threads = args.threads.unwrap_or(file.threads);
    args.observe(&mut file);
    let path = args.config.as_deref().unwrap_or(Path::new(""));
    let mut config = prepared(path, file)?;
    for warning in config.warnings() {
        say!("warning: {}", quotable(&warning));
    }
    if args.check {
        let mut out = std::io::stdout();
        writeln!(out, "{}", summary(&config.file))?;
        return Ok(Exit::Done);
    }
    if args.print_nft {
        return print_nft(args, &config.file);
    }
    let mut predecessor = take_sockets(&mut config, args.take_over.as_deref())?;
    let confinement = Confinement::begin(args, &config.file, path)?;
    check_mark(&config).map_err(explained)?;
    let files = resources::raise_open_files();
    if let Some(line) = config.file.few_files(files, config.threads) {
        say!("warning: {line}");
    }
    let (stop, [hangup, reload]) = signals::serving()?;
    let writer = open_log(&mut config, &folder_of(path), confinement.user(), hangup)?;
    let admin = admin::Admin::bind(&mut config)?;
    let (file, sockets) = (config.file.clone(), config.sockets.clone());
    let live = Arc::new(Live::new(config, |line| say!("{}", quotable(line))));
    let admin = admin.map(|admin| admin.serve(Arc::clone(&live))).transpose()?;
    let mut registries = Registries::new(Arc::clone(&live), folder_of(path));
    registries.follow(&file, FIRST_ANSWERS);
    let mut follow = Some((registries, reload, written)).filter(|_| args.config.is_some());
    let (mut reported, mut changed) = (Ok(()), Ok(()));
    let totals = sidecar::run(&live, &stop, &mut |listening| {
        if let Err(error) = confinement.become_user() {
            changed = Err(error);
            stop.store(true, Ordering::Relaxed);
            return;
        }
        reported =
            announce(listening, &stop).and_then(|()| admin.as_ref().map_or(Ok(()), admin::Admin::announce));
        for address in sockets.close_unused() {
            crate::stderr::say(format_args!(
                "the socket on {address} was given, and the configuration does not listen there: it is closed"
            ));
        }
        if reported.is_ok()
            && let Some(path) = &args.take_over
            && let Err(error) = take_over(&sockets, predecessor.take(), path, &stop)
        {
            crate::stderr::say(format_args!("nobody can take over at {}: {error}", path.display()));
        }
        // After the change of user: threads have their own rights.
        reload::look_up_again(&live);
        if let Some((registries, reload, written)) = follow.take()
            && let Err(error) =
                reload::start(path, args.watch, (&file, written), Arc::clone(&live), registries, reload)
        {
            say!("{error:#}: the file is not read again");
        }
    });
    drop(admin);
    live.end_log();
    if let Some(writer) = writer {
        writer.finish();
    }
    let totals = totals.map_err(explained)?;
    changed.map_err(|error| MissingRequirement(format!("user or --user: it takes root: {error}")))?;
    reported.map_err(|error| unannounced(&error))?;
    // If stdout's reader is gone, the line is lost; a proxy that has done its work has not failed.
    let _ = writeln!(std::io::stdout(), "{totals}");
    Ok(Exit::Done)
}

/// Prints the rules that bring connections to the transparent listeners.
fn print_nft(args: &SidecarArgs, file: &Config) -> Result<Exit> {
    let uid = confine::user_of(args, file)?.map(h2lab_net::privileges::User::uid);
    let rules = nft::rules(file, nft::Exempt { mark: file.mark, uid });
    output::print(&rules.map_err(|error| Usage(error.to_string()))?)?;
    Ok(Exit::Done)
}

/// Sockets that the service manager has opened, or that the process before has.
fn take_sockets(config: &mut SidecarConfig, path: Option<&Path>) -> Result<Option<Predecessor>> {
    // SAFETY: at the start of the command nothing else has taken descriptors that were passed to the process.
    let mut given = unsafe { handover::from_service_manager() };
    let asked = path.map(handover::ask).transpose();
    let asked = asked.map_err(|error| Usage(format!("--take-over {}: {error}", shown(path))))?.flatten();
    let predecessor = asked.map(|(predecessor, sockets)| {
        given.extend(sockets);
        predecessor
    });
    config.sockets =
        Sockets::given(given).map_err(|error| Usage(format!("a socket that was given: {error}")))?;
    Ok(predecessor)
}

fn shown(path: Option<&Path>) -> String {
    path.map(|path| path.display().to_string()).unwrap_or_default()
}

/// The process before may end; the one after may ask.
fn take_over(
    sockets: &Sockets,
    predecessor: Option<Predecessor>,
    path: &Path,
    stop: &Arc<AtomicBool>,
) -> std::io::Result<()> {
    // First the place where the next one asks: who finds it there finds us.
    let offer = Offer::at(path)?;
    let (sockets, stop) = (sockets.clone(), Arc::clone(stop));
    let wait = move || {
        let is_replaced = offer.wait(|| sockets.leave(), || sockets.keep()).is_ok();
        if is_replaced {
            sockets.handed_on();
        }
        stop.fetch_or(is_replaced, Ordering::Relaxed);
    };
    std::thread::Builder::new().name("handover".to_owned()).spawn(wait)?;
    predecessor.map_or(Ok(()), Predecessor::is_replaced)
}

impl SidecarArgs {
    /// What is to be given beside the flags that there are.
    fn missing(&self) -> String {
        match (self.listen, self.to.first()) {
            (Some(listen), _) => format!(
                "--listen {listen} says where callers connect, and --to URL where their requests go: give both, for example --to \
                 h2c://127.0.0.1:8080"
            ),
            (None, Some(to)) => format!(
                "--to {to} says where requests go, and --listen ADDR where callers connect: give both, for example --listen \
                 127.0.0.1:15001"
            ),
            (None, None) => "give --listen ADDR and --to URL, or --config FILE".to_owned(),
        }
    }

    /// Puts the flags of log and admin listener in place of what the file says.
    fn observe(&self, file: &mut Config) {
        if let Some(log) = &self.access_log {
            file.log.file = Some(log.clone());
            file.log.format = self.log_format.unwrap_or(file.log.format);
        }
        if self.admin.is_some() {
            file.admin.address = self.admin;
        }
    }
}

/// Opens the access log. A file of the configuration is relative to its folder; one of a flag too, which is the working folder without a
/// configuration.
fn open_log(
    config: &mut SidecarConfig,
    folder: &Path,
    user: Option<User>,
    hangup: Arc<AtomicBool>,
) -> Result<Option<AccessLogWriter>> {
    let Some(name) = &config.file.log.file else { return Ok(None) };
    let path = if name == "-" { name.clone() } else { folder.join(name).display().to_string() };
    let tell = |words: &str| super::note(&words);
    let (log, writer) = AccessLog::open(&path, config.file.log.format, user, hangup, tell)
        .map_err(|error| Usage(format!("cannot write the access log {path}: {error}")))?;
    config.log = Some(log);
    Ok(Some(writer))
}

fn folder_of(path: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new("")).to_owned()
}

/// Reads the files that a configuration names, which are beside it.
fn prepared(path: &Path, file: Config) -> Result<SidecarConfig> {
    let folder = folder_of(path);
    let read = |name: &str| {
        let path = folder.join(name);
        std::fs::read(&path).map_err(|source| confine::unreadable(&path, source))
    };
    let mut config = SidecarConfig::new(file, std::process::id().into(), &read).map_err(explained)?;
    config.on_note = Some(|text: &str| say!("{text}"));
    Ok(config)
}

fn read_config(path: &Path) -> Result<Config> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Usage(format!("cannot read {}: {error}", path.display())))?;
    Ok(Config::parse(&text).map_err(|error| Usage(format!("{}: {error}", path.display())))?)
}

/// A configuration that is wrong is an error of usage (exit code 2); a broken event loop is not.
fn explained(error: SidecarError) -> anyhow::Error {
    match error {
        SidecarError::Io(_) => error.into(),
        SidecarError::Tproxy { .. } | SidecarError::Mark(_) => MissingRequirement(error.to_string()).into(),
        _ => Usage(error.to_string()).into(),
    }
}

/// `2 listeners, 3 services, 5 instances: right`.
fn summary(config: &Config) -> String {
    use h2lab_base::counts::plural;
    let instances: usize = config.service.values().map(|service| service.instances.len()).sum();
    let registries = config.service.values().filter(|service| service.registry().is_some()).count() as u64;
    let registries = match registries {
        0 => String::new(),
        1 => ", 1 registry".to_owned(),
        n => format!(", {n} registries"),
    };
    format!(
        "{}, {}, {}{registries}: right",
        plural(config.listen.len() as u64, "listener"),
        plural(config.service.len() as u64, "service"),
        plural(instances as u64, "instance")
    )
}

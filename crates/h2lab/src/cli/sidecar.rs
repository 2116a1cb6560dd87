//! `h2lab sidecar`: the proxy.

mod admin;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use h2lab_base::counts::plural;
use h2lab_proxy::config::{Config, Instance, LogFormat, Policy, Size, Threads, parse_address};
use h2lab_proxy::nft;
use h2lab_roles::sidecar::registry::{Registries, Watched};
use h2lab_roles::sidecar::{
    self, AccessLog, AccessLogWriter, Live, SidecarConfig, SidecarError, Sockets, check_mark,
};

use super::exit::{MissingRequirement, Usage};
use super::listen::{announce, unannounced};
use super::{Exit, help, output, quotable, rights, signals, values};
use h2lab_net::handover::{self, Offer, Predecessor};
use h2lab_net::privileges::User;
use h2lab_net::resources;

mod check;
mod confine;
mod reload;

use confine::Confinement;

/// The schema of the file, as a test makes sure.
const SCHEMA: &str = include_str!("../../../../docs/schema/sidecar-config.schema.json");
/// How long it waits for the first answers of registries before it listens.
const FIRST_ANSWERS: Duration = Duration::from_secs(2);

/// A proxy between services: HTTP/1.1, HTTP/2 and HTTP/3 on either side
///
/// Accepts HTTP/1.1 and HTTP/2 (without TLS, or by ALPN) and HTTP/3, and forwards each request to an instance of the service that its
/// host and path select. Requests that an instance provably did not process (GOAWAY, `REFUSED_STREAM`) are retried, whatever their method.
/// With netfilter rules it works transparently, without a change to callers: see --print-nft.
///
/// Prints a line `listening URL` per socket once it accepts connections, and a summary when it has stopped. The keys of the
/// configuration file are in docs/sidecar-reference.md.
#[derive(Debug, Args)]
#[command(after_long_help = help::after_with(
    &[
        ("h2lab sidecar --listen 127.0.0.1:15001 --to h2c://10.0.0.7:8080", "callers use HTTP/1.1, the service gets HTTP/2"),
        ("h2lab sidecar --listen [::1]:15001 --to https://api.example --admin [::1]:9901", "with an admin page and metrics"),
        ("h2lab sidecar --config sidecar.toml --check", "check a configuration file"),
        ("h2lab sidecar --config sidecar.toml --watch --user nobody", "as root: bind, then drop privileges"),
    ],
    &format!("{SIGNALS}\n\n{EXIT_CODES}"),
))]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct SidecarArgs {
    /// Accept connections without TLS on this address; port 0 picks a free port
    #[arg(long, value_name = "IP:PORT", value_parser = parse_address, conflicts_with = "config")]
    listen: Option<SocketAddr>,
    /// Forward requests to this instance (repeatable): http://HOST:PORT for HTTP/1.1, h2c:// for HTTP/2 without TLS, https:// for
    /// HTTP/2 or HTTP/1.1 over TLS, h3:// for HTTP/3
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    to: Vec<Instance>,
    /// HTTP/2 connections per instance: adaptive (as many as the path needs), fixed:N, or per-request (one per open request)
    #[arg(long, value_name = "POLICY", default_value_t = Policy::default(), conflicts_with = "config")]
    policy: Policy,
    /// Read listeners, services and routes from this TOML file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Number of worker threads, or `auto` (one per CPU) [default: 1]
    #[arg(long, value_name = "N")]
    threads: Option<Threads>,
    /// Limit memory, for example to 512M: above 80 % new requests get 503, above 95 % connections are closed
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    memory: Option<u64>,
    /// Take over the listening sockets, and idle clients, of the process that was started with the same SOCKET, without losing a request;
    /// that process finishes its requests and exits. If there is none, open new sockets
    #[arg(long, value_name = "SOCKET")]
    take_over: Option<PathBuf>,
    /// Switch to this unprivileged user (NAME or UID:GID) once all sockets are open; requires root
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Do not restrict file access with Landlock
    #[arg(long)]
    no_landlock: bool,
    /// Reload when the configuration file, or a certificate or key that it names, changes (SIGHUP always reloads)
    #[arg(long, requires = "config")]
    watch: bool,
    /// Write the access log to this file; - is stdout
    #[arg(long, value_name = "FILE")]
    access_log: Option<String>,
    /// Format of the access log: text, or json (one object per line)
    #[arg(long, value_name = "FORMAT", requires = "access_log")]
    log_format: Option<LogFormat>,
    /// Serve the admin page, metrics and status on this address; loopback only, unless the file has public = true
    #[arg(long, value_name = "IP:PORT", value_parser = parse_address)]
    admin: Option<SocketAddr>,
    /// Check the configuration file and exit
    #[arg(long, requires = "config")]
    check: bool,
    /// Print netfilter rules for the transparent listeners of the file and exit; changes nothing
    #[arg(long, requires = "config", conflicts_with = "check")]
    print_nft: bool,
    /// Print the JSON Schema of the configuration file and exit
    #[arg(long, exclusive = true)]
    schema: bool,
}

/// What signals do while it runs.
const SIGNALS: &str = "\
Signals:
  SIGTERM, SIGINT  stop: finish open requests, accept no connections; a second
                   SIGINT (Ctrl-C) exits at once
  SIGHUP           reload the configuration file, reopen the access log
  SIGUSR1          reopen the access log
  SIGUSR2          ignored";

/// How it ends.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  stopped by a signal, after open requests were finished; or --check found
     no error
  2  wrong usage or configuration, a file that cannot be read, or an address
     that cannot be listened on
  4  a permission or a kernel feature is missing, for example CAP_NET_ADMIN
     for mark";

/// Serves until it is stopped.
pub fn main(args: &SidecarArgs) -> Result<Exit> {
    if args.schema {
        output::print(SCHEMA)?;
        return Ok(Exit::Done);
    }
    args.of_file()?;
    let path = args.config.as_deref().unwrap_or(Path::new(""));
    let mut watched = Watched::new(vec![path.to_owned()]);
    let mut file = match (&args.config, args.listen) {
        (Some(path), _) => read_config(path)?,
        (None, Some(listen)) if !args.to.is_empty() => Config::simple(listen, args.to.clone(), args.policy),
        (None, _) => return Err(Usage(args.missing()).into()),
    };
    let written = file.clone();
    file.memory = args.memory.map(Size).or(file.memory);
    file.threads = args.threads.unwrap_or(file.threads);
    args.observe(&mut file);
    watched.add(reload::named(path, &file));
    let mut config = prepared(path, file)?;
    for warning in config.warnings() {
        say!("warning: {}", quotable(&warning));
    }
    if args.check {
        return check::run(args, path, &config);
    }
    if args.print_nft {
        return print_nft(args, &config.file);
    }
    let mut predecessor = take_sockets(&mut config, args.take_over.as_deref())?;
    let confinement = Confinement::begin(args, &config.file, path)?;
    crate::stderr::write_aside();
    check_mark(&config).map_err(explained)?;
    let files = resources::raise_open_files();
    if let Some(line) = config.file.few_files(files, config.threads) {
        say!("warning: {line}");
    }
    let (stop, [hangup, reload]) = signals::serving()?;
    let writer = open_log(&mut config, &folder_of(path), confinement.user(), hangup)?;
    let mut bound = admin::Admin::bind(&mut config)?;
    let (file, sockets) = (config.file.clone(), config.sockets.clone());
    let live = Arc::new(Live::new(config, |line| say!("{}", quotable(line))));
    let mut registries = Registries::new(Arc::clone(&live), folder_of(path), confine::unreadable);
    registries.follow(&file, FIRST_ANSWERS);
    let mut follow = Some((registries, reload, (watched, written))).filter(|_| args.config.is_some());
    let (mut reported, mut changed, mut offered, mut admin) = (Ok(()), Ok(()), Ok(()), Ok(None));
    let totals = sidecar::run(&live, &stop, &mut |listening| {
        if let Err(error) = confinement.become_user() {
            changed = Err(error);
            stop.store(true, Ordering::Relaxed);
            return;
        }
        // Not earlier: until now the previous process answers.
        admin = bound.take().map(|bound| bound.serve(Arc::clone(&live))).transpose();
        let is_admin = admin.as_ref().ok().and_then(Option::as_ref);
        reported = announce(listening, &stop).and_then(|()| is_admin.map_or(Ok(()), admin::Admin::announce));
        if admin.is_err() {
            stop.store(true, Ordering::Relaxed);
            return;
        }
        for address in sockets.close_unused() {
            crate::stderr::say(format_args!(
                "warning: the inherited socket on {address} is closed: the configuration has no listener there"
            ));
        }
        if reported.is_ok()
            && let Some(path) = &args.take_over
            && let Err(error) = take_over(&sockets, predecessor.take(), path, &stop)
        {
            offered = Err(format!("--take-over {}: cannot create the socket: {error}", path.display()));
            stop.store(true, Ordering::Relaxed);
            return;
        }
        // After the change of user: each thread has its own credentials.
        reload::look_up_again(&live);
        if let Some((registries, reload, before)) = follow.take()
            && let Err(error) = reload::start(path, args.watch, before, Arc::clone(&live), registries, reload)
        {
            say!("warning: the configuration cannot be reloaded: {error:#}");
        }
    });
    drop(admin?);
    live.end_log();
    if let Some(lost) = writer.and_then(AccessLogWriter::finish) {
        super::note(&format_args!(
            "the access log took nothing until the end: {} lost",
            plural(lost, "line")
        ));
    }
    let totals = totals.map_err(explained)?;
    changed.map_err(|error| {
        MissingRequirement(format!(
            "cannot switch to another user (user or --user): {error}; this requires root"
        ))
    })?;
    offered.map_err(MissingRequirement)?;
    reported.map_err(|error| unannounced(&error))?;
    output::print_last(&totals);
    Ok(Exit::Done)
}

/// Prints the rules that redirect connections to the transparent listeners.
fn print_nft(args: &SidecarArgs, file: &Config) -> Result<Exit> {
    let uid = confine::user_of(args, file)?.map(h2lab_net::privileges::User::uid);
    let rules = nft::rules(file, nft::Exempt { mark: file.mark, uid });
    output::print(&rules.map_err(|error| Usage(error.to_string()))?)?;
    Ok(Exit::Done)
}

/// Takes the sockets that the service manager or the previous process has opened.
fn take_sockets(config: &mut SidecarConfig, path: Option<&Path>) -> Result<Option<Predecessor>> {
    // SAFETY: at the start of the command nothing else has taken descriptors that were passed to the process.
    let mut given = unsafe { handover::from_service_manager() };
    path.map_or(Ok(()), check::take_over_path)?;
    let asked = path.map(handover::ask).transpose();
    let asked = asked.map_err(|error| Usage(format!("--take-over {}: {error}", shown(path))))?.flatten();
    let predecessor = asked.map(|(predecessor, sockets)| {
        given.extend(sockets);
        predecessor
    });
    config.sockets = Sockets::given(given)
        .map_err(|error| Usage(format!("inherited socket (LISTEN_FDS or --take-over): {error}")))?;
    Ok(predecessor)
}

fn shown(path: Option<&Path>) -> String {
    path.map(|path| path.display().to_string()).unwrap_or_default()
}

/// Lets the previous process end, and the next one ask for the sockets.
fn take_over(
    sockets: &Sockets,
    predecessor: Option<Predecessor>,
    path: &Path,
    stop: &Arc<AtomicBool>,
) -> std::io::Result<()> {
    // First the socket at which the next process asks: if it finds the socket, it reaches this process.
    let offer = Offer::at(path)?;
    let passing = sockets.passing().clone();
    let (sockets, stop) = (sockets.clone(), Arc::clone(stop));
    let wait = move || {
        let Ok((successor, takes)) = offer.wait(|| sockets.leave(), || sockets.keep()) else { return };
        drop(offer);
        sockets.passing().begin(&takes);
        sockets.handed_on();
        stop.store(true, Ordering::Relaxed);
        sockets.passing().serve(successor);
    };
    std::thread::Builder::new().name("handover".to_owned()).spawn(wait)?;
    let Some(predecessor) = predecessor else { return Ok(()) };
    match predecessor.is_replaced(&passing.line()) {
        Ok(before) => {
            passing.expect();
            std::thread::Builder::new()
                .name("takeover".to_owned())
                .spawn(move || passing.take_over(before))?;
        }
        // Its sockets have arrived.
        Err(error) => say!("note: the previous process ended before the hand-over was complete: {error}"),
    }
    Ok(())
}

impl SidecarArgs {
    /// What must be given in addition to the flags that are given.
    fn missing(&self) -> String {
        match (self.listen, self.to.first()) {
            (Some(listen), _) => {
                format!("--listen {listen} also requires --to URL, for example --to h2c://127.0.0.1:8080")
            }
            (None, Some(to)) => {
                format!("--to {to} also requires --listen IP:PORT, for example --listen 127.0.0.1:15001")
            }
            (None, None) => "give --listen IP:PORT and --to URL, or --config FILE".to_owned(),
        }
    }

    /// Refuses flags about a configuration file without one: clap does not do this, since --listen excludes --config.
    fn of_file(&self) -> Result<()> {
        let flags = [("--check", self.check), ("--print-nft", self.print_nft), ("--watch", self.watch)];
        match flags.into_iter().find(|(_, is_set)| *is_set && self.config.is_none()) {
            Some((flag, _)) => Err(Usage(format!("{flag} requires --config FILE")).into()),
            None => Ok(()),
        }
    }

    /// Overrides the file's values for log and admin listener with the flags.
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

/// Opens the access log. Its name is relative to the folder of the configuration, whether the file or a flag gives it;
/// without a configuration, to the working folder.
fn open_log(
    config: &mut SidecarConfig,
    folder: &Path,
    user: Option<User>,
    hangup: Arc<AtomicBool>,
) -> Result<Option<AccessLogWriter>> {
    let Some(name) = &config.file.log.file else { return Ok(None) };
    let path = if name == "-" { name.clone() } else { folder.join(name).display().to_string() };
    let tell = |words: &str| super::note(&words);
    let is_there = name != "-" && Path::new(&path).exists();
    let (log, writer) = AccessLog::open(&path, config.file.log.format, user, hangup, tell)
        .map_err(|error| Usage(format!("cannot open the access log {path}: {error}")))?;
    if let Some(warning) =
        user.filter(|_| is_there).and_then(|user| check::of_another(user, Path::new(&path)))
    {
        say!("warning: {}", quotable(&warning));
    }
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
    // Messages name files as they are opened: relative to the working folder, or absolute.
    let shown = |name: &String| folder.join(name).display().to_string();
    let of_folder = |error| match error {
        SidecarError::Pem { paths, source } => {
            SidecarError::Pem { paths: paths.iter().map(shown).collect(), source }
        }
        SidecarError::Registry { path, why } => SidecarError::Registry { path: shown(&path), why },
        other => other,
    };
    let config = SidecarConfig::new(file, std::process::id().into(), &read);
    let mut config = config.map_err(|error| explained(of_folder(error)))?;
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
        SidecarError::Tproxy { .. } | SidecarError::Mark(_) | SidecarError::RestrictedCongestion { .. } => {
            MissingRequirement(error.to_string()).into()
        }
        _ => Usage(error.to_string()).into(),
    }
}

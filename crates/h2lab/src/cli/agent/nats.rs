//! `h2lab agent --nats`: an agent as a service.

mod folder;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use h2lab_base::units::format_duration;
use h2lab_model::fleet::subjects::{self, RandomId};
use h2lab_model::fleet::{AgentCard, AgentLimits, AgentName, AllowEntry, Permissions};
use h2lab_nats::{Event, Nats, NatsError, ServerOptions, Subscription};

use self::folder::AgentFolder;
use super::super::exit::Usage;
use super::super::nats::{NatsArgs, explained, explained_cause};
use super::super::values::{duration, size, value, whole};
use super::super::{Exit, rights, signals};
use super::log;
use crate::run::agent::share::AgentShares;
use crate::run::agent::units::{Polled, Units, UnitsSetup};
use crate::run::agent::who::Presence;
use crate::run::agent::{OwnPermits, card};
use crate::run::messages::with_causes;
use h2lab_net::privileges::{self, CapabilitySet};
use h2lab_net::resources;
use h2lab_roles::fleet::agent::{AgentSetup, DESERTED};
use h2lab_roles::fleet::service::{Service, Surroundings};

/// One attempt to reach an absent server: so often signals are looked at meanwhile.
const ATTEMPT: Duration = Duration::from_secs(2);
/// How often the log says that the server is absent, or that units cannot be taken.
const REMIND: Duration = Duration::from_secs(60);
/// Different troubles that are remembered.
const MOST_TROUBLES: usize = 16;
/// How long another agent of the same name may take to answer before this one begins to work.
const OTHERS: Duration = Duration::from_secs(1);
/// How often signals are looked at while there is nothing to do.
const GLANCE: Duration = Duration::from_millis(100);
/// How long a free agent waits before it looks for units of runs again.
const IDLE: Duration = Duration::from_secs(1);
/// How long the last packets may take.
const FAREWELL: Duration = Duration::from_secs(2);

/// The flags of a service, which an agent on standard input and output has not. `--nats` is not among them: the variable
/// `H2LAB_NATS` is for all commands.
pub const FLAGS: [&str; 8] =
    ["name", "allow", "max_rate", "max_connections", "max_bytes", "max_time", "folder", "drain_time"];

/// An agent at a NATS server.
#[derive(Debug, Args)]
pub struct ServiceArgs {
    /// Name of this agent, by which drivers address it: 1 to 64 letters, digits, - and _
    #[arg(long, value_name = "NAME", value_parser = value::<AgentName>)]
    name: Option<AgentName>,
    /// What drivers may have it do (repeatable): requests to <https://HOST>[:PORT] or <http://HOST>[:PORT], `lab` (cells
    /// behind the emulated link), `serve` (a server of bytes)
    ///
    /// HOST is a name, `*.` and a name for all names below it, an address, a network such as 10.1.0.0/16, or `*`; PORT is
    /// a number, or `*`. Anything else is refused before a packet leaves.
    #[arg(long, value_name = "WHAT", value_parser = value::<AllowEntry>)]
    allow: Vec<AllowEntry>,
    /// Refuse loads with more requests per second, and those without a rate
    #[arg(long, value_name = "RATE", value_parser = rate)]
    max_rate: Option<f64>,
    /// Refuse tasks with more connections
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..))]
    max_connections: Option<u32>,
    /// End a load or a transfer after so many bytes; refuse cells of studies and servers, whose bytes are not counted
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_bytes: Option<u64>,
    /// Refuse tasks that take longer; also the longest wait before a start
    #[arg(long, value_name = "TIME", value_parser = duration)]
    max_time: Option<Duration>,
    /// Where results are written before they are stored at the NATS server; removed at the end [default: a temporary
    /// folder]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// How long work may go on after SIGTERM or Ctrl-C
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    drain_time: Duration,
    // The last: the heading of these flags goes for all that follow them.
    #[command(flatten)]
    server: NatsArgs,
}

/// Requests per second: a number above 0.
fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| format!("`{text}` is not a number of requests per second above 0"))
}

impl ServiceArgs {
    /// Whether a server is named.
    pub const fn is_given(&self) -> bool {
        self.server.is_given()
    }

    /// The name and what is permitted: an agent that permits nothing is of no use.
    fn checked(&self) -> Result<(AgentName, Permissions), Usage> {
        let name = self.name.clone().ok_or_else(|| {
            Usage(
                "--nats: give the agent a name by which drivers address it, such as --name kek-1".to_owned(),
            )
        })?;
        if self.allow.is_empty() {
            let words = "--nats: say what drivers may have it do: --allow 'https://*.staging.example', --allow lab, \
                         --allow serve";
            return Err(Usage(words.to_owned()));
        }
        let limits = AgentLimits {
            rate: self.max_rate,
            connections: self.max_connections,
            bytes: self.max_bytes,
            time: self.max_time,
        };
        Ok((name, Permissions { allow: self.allow.iter().cloned().collect(), limits }))
    }

    fn has(&self, word: &str) -> bool {
        self.allow.iter().any(|entry| entry.to_string() == word)
    }

    /// The rights that root's agent keeps; `None` is all of them, since a lab needs them and gives them up itself.
    fn rights(&self) -> Option<CapabilitySet> {
        (!self.has("lab")).then_some(privileges::NONE)
    }

    /// The folder of this agent alone, which is removed when it is dropped.
    fn make_folder(&self) -> Result<AgentFolder> {
        let parent = self.folder.clone().unwrap_or_else(std::env::temp_dir);
        for left in folder::remove_left(&parent) {
            log::line(&format!("removed {}, which an agent that was killed has left", left.display()));
        }
        let made = AgentFolder::make(&parent);
        made.with_context(|| format!("--folder {}: cannot make a folder in it", parent.display()))
    }
}

/// Serves until a signal comes.
pub fn main(args: &ServiceArgs) -> Result<Exit> {
    let (name, permissions) = args.checked()?;
    let options = ServerOptions { timeout: ATTEMPT, ..args.server.options(name.as_str())? };
    // Before the first thread.
    let card = card::examined(name, permissions.allow.texts(), permissions.limits)?;
    let stop = signals::stop_flag()?;
    if let Some(rights) = args.rights() {
        rights::reduce(rights)?;
    }
    crate::stderr::write_aside();
    resources::raise_open_files();
    let folder = args.make_folder()?;
    match connected(args, &options, &stop)? {
        Some(nats) => serve(args, &nats, card, permissions, &folder, &stop)?,
        None => log::line("ended before the NATS server was reached"),
    }
    Ok(Exit::Done)
}

/// Connects, however long the server is absent; `None` if a signal comes before. A login that is refused stays so.
fn connected(args: &ServiceArgs, options: &ServerOptions, stop: &AtomicBool) -> Result<Option<Nats>> {
    let mut told: Option<Instant> = None;
    while !stop.load(Ordering::Relaxed) {
        match Nats::connect(options) {
            Ok(nats) => return Ok(Some(nats)),
            Err(error @ (NatsError::Unreachable { .. } | NatsError::Timeout { .. })) => {
                if told.is_none_or(|at| at.elapsed() >= REMIND) {
                    log::line(&format!("waits for the NATS server: {error}"));
                    told = Some(Instant::now());
                }
            }
            Err(error) => return Err(explained(error, &args.server.servers())),
        }
    }
    Ok(None)
}

/// Answers drivers and measures units, until a signal comes and what is under way has ended.
fn serve(
    args: &ServiceArgs,
    nats: &Nats,
    card: AgentCard,
    permissions: Permissions,
    folder: &AgentFolder,
    stop: &Arc<AtomicBool>,
) -> Result<()> {
    let name = card.name.clone();
    let server = nats.server();
    log::line(&format!("connected as {name} to {}: nats-server {}", args.server.servers(), server.version));
    let is_back = follow_events(nats);
    let (own, place) = (name.clone(), folder.path().to_owned());
    let shares = AgentShares::new(nats.clone(), own, permissions.limits, place, log::line);
    let setup = AgentSetup {
        summarize: h2lab_analysis::fleet::pair_figures,
        shares: Some(Arc::new(shares)),
        permits: Some(Arc::new(OwnPermits(permissions.clone()))),
        card: Some(Box::new(card.clone())),
        timeout: DESERTED,
    };
    let service = Service::start(setup, surroundings(nats, &name)).context("cannot start a thread")?;
    let service = Arc::new(service);
    let servers = args.server.servers();
    let asked = Arc::clone(&service);
    let presence = Presence::begin(nats, card.clone(), move || asked.busy())
        .map_err(|error| explained_cause(error, &servers))?;
    wait_for_others(&presence, &name, stop)?;
    let sessions = receive_sessions(nats, &name, &service).map_err(|error| explained(error, &servers))?;
    log::line(&format!("{name} waits for drivers; it permits {}", permissions.allow.texts().join(", ")));
    let abort = Arc::new(AtomicBool::new(false));
    let draining = drain_at(stop, &abort, Arc::clone(&service), args.drain_time)?;
    let folder = folder.path().to_owned();
    // Cells of runs are all behind the emulated link.
    let setup = UnitsSetup { nats: nats.clone(), card, permissions, folder };
    let mut units = args.has("lab").then(|| Units::new(setup));
    let mut troubles = Troubles::default();
    while !stop.load(Ordering::Relaxed) && !presence.is_double() {
        if is_back.swap(false, Ordering::Relaxed)
            && let Err(error) = presence.ask_for_doubles()
        {
            troubles.note(&format!("cannot ask for other agents of this name: {}", with_causes(&error)));
        }
        let is_free = || service.busy().is_none();
        let reserve = |with| service.reserve(with).ok();
        let polled = units.as_mut().map(|units| units.poll(&abort, is_free, reserve));
        match polled.unwrap_or(Ok(Polled::Nothing)) {
            Ok(Polled::Measured { what }) => log::line(&format!("has measured {what}")),
            Ok(Polled::NotMeasured { what, why }) => log::line(&format!("has not measured {what}: {why}")),
            Ok(Polled::Nothing) => thread::sleep(IDLE),
            Err(error) => {
                troubles.note(&format!("cannot take units of runs: {error}"));
                thread::sleep(IDLE);
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    // Its panic is no reason to leave sessions open.
    let _ = draining.join();
    let is_double = presence.is_double();
    drop((units, presence));
    // What it still does for a driver ends; the driver is told, and its answer comes by the subscription.
    drop(service);
    drop(sessions);
    // What is not taken by then is lost; drivers notice the silence.
    let _ = nats.flush(FAREWELL);
    log::line(&format!("{name} has ended"));
    if is_double { Err(double(&name).into()) } else { Ok(()) }
}

/// How a service reaches its drivers, and where it logs.
fn surroundings(nats: &Nats, name: &AgentName) -> Surroundings {
    let (nats, name) = (nats.clone(), name.clone());
    Surroundings {
        send: Box::new(move |session: RandomId, packet: Vec<u8>| {
            // What cannot be sent now is sent again by the session.
            let _ = nats.publish(&subjects::from_agent(&name, session), packet);
        }),
        log: Box::new(log::line),
    }
}

/// Passes packets of all sessions on to the service.
fn receive_sessions(nats: &Nats, name: &AgentName, service: &Service) -> Result<Subscription, NatsError> {
    let inlet = service.inlet();
    nats.subscribe(&subjects::to_agent_of_all_sessions(name), move |subject, packet| {
        if let Some((_, session)) = subjects::of_session(subject) {
            inlet.put(session, packet);
        }
    })
}

/// Logs what happens to the connection from now on; the flag is set when it is there again.
fn follow_events(nats: &Nats) -> Arc<AtomicBool> {
    let is_back = Arc::new(AtomicBool::new(false));
    let (back, mut troubles) = (Arc::clone(&is_back), Troubles::default());
    nats.on_event(move |event| match event {
        Event::Connected => {
            back.store(true, Ordering::Relaxed);
            log::line("connected again");
        }
        Event::Disconnected => {
            log::line("disconnected from NATS; what is under way goes on, and the server is dialled again");
        }
        Event::SlowConsumer { subject } => {
            troubles.note(&format!("messages at {subject} were lost: this machine is too busy to read them"));
        }
        Event::Denied { subject } => troubles.note(&format!(
            "NATS does not permit this agent the subject {subject}; docs/agents.md has the permissions that it needs"
        )),
        Event::Error { text } => troubles.note(&format!("NATS: {text}")),
    });
    is_back
}

/// Gives another agent of this name the time to answer; that one was there before, so that this one must not begin.
fn wait_for_others(presence: &Presence, name: &AgentName, stop: &AtomicBool) -> Result<(), Usage> {
    let until = Instant::now() + OTHERS;
    while Instant::now() < until && !stop.load(Ordering::Relaxed) {
        if presence.is_double() {
            return Err(double(name));
        }
        thread::sleep(GLANCE);
    }
    Ok(())
}

fn double(name: &AgentName) -> Usage {
    Usage(format!(
        "--name {name}: another agent of this name is connected; end that one, or give another name"
    ))
}

/// Drains when `stop` is set: nothing new is begun, and what still runs after `time` is ended by `abort`, or with the service.
fn drain_at(
    stop: &Arc<AtomicBool>,
    abort: &Arc<AtomicBool>,
    service: Arc<Service>,
    time: Duration,
) -> Result<JoinHandle<()>> {
    let (stop, abort) = (Arc::clone(stop), Arc::clone(abort));
    let drain = move || {
        while !stop.load(Ordering::Relaxed) {
            thread::sleep(GLANCE);
        }
        service.drain();
        if let Some(with) = service.busy() {
            log::line(&format!("drains: finishes its work for {with}, within {}", format_duration(time)));
        }
        if !service.wait_until_free(time) {
            log::line(&format!(
                "ends its work, which was not done {} after the signal",
                format_duration(time)
            ));
        }
        abort.store(true, Ordering::Relaxed);
    };
    thread::Builder::new().name("drain".to_owned()).spawn(drain).context("cannot start a thread")
}

/// What goes wrong over and over: each is logged once a minute.
#[derive(Debug, Default)]
struct Troubles {
    /// The latest, and when they were logged.
    logged: VecDeque<(String, Instant)>,
}

impl Troubles {
    /// Logs a trouble, unless the same one was logged within the minute.
    fn note(&mut self, trouble: &str) {
        if self.is_new(trouble, Instant::now()) {
            log::line(trouble);
        }
    }

    fn is_new(&mut self, trouble: &str, now: Instant) -> bool {
        self.logged.retain(|(_, at)| now.saturating_duration_since(*at) < REMIND);
        if self.logged.iter().any(|(known, _)| known == trouble) {
            return false;
        }
        self.logged.truncate(MOST_TROUBLES - 1);
        self.logged.push_front((trouble.to_owned(), now));
        true
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::AgentArgs;
    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        agent: AgentArgs,
    }

    fn checked(line: &str) -> Result<(AgentName, Permissions), String> {
        let words = ["x"].into_iter().chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        line.agent.service.checked().map_err(|error| error.to_string())
    }

    #[test]
    fn an_agent_needs_a_name_and_something_that_it_permits() {
        for (line, words) in [
            ("--nats a --allow lab", "--name kek-1"),
            ("--nats a --name kek-1", "--allow lab"),
            ("--nats a --name kek.1 --allow lab", "1 to 64"),
            ("--nats a --name kek-1 --allow ftp://a", "--allow"),
        ] {
            let refusal = checked(line).unwrap_err();
            assert!(refusal.contains(words), "{line}: {refusal}");
        }
        let (name, permissions) =
            checked("--nats a --name kek-1 --allow lab --allow https://*.a.example").unwrap();
        assert_eq!(name.as_str(), "kek-1");
        assert_eq!(permissions.allow.texts(), ["lab", "https://*.a.example"]);
        assert_eq!(permissions.limits, AgentLimits::default());
    }

    #[test]
    fn bounds_are_read_with_their_units_and_none_is_zero() {
        let line =
            "--nats a --name b --allow lab --max-rate 0.5 --max-connections 10 --max-bytes 1G --max-time 10m";
        let limits = checked(line).unwrap().1.limits;
        let expected = AgentLimits {
            rate: Some(0.5),
            connections: Some(10),
            bytes: Some(1 << 30),
            time: Some(Duration::from_secs(600)),
        };
        assert_eq!(limits, expected);
        for bad in
            ["--max-rate 0", "--max-rate inf", "--max-rate fast", "--max-connections 0", "--max-time soon"]
        {
            assert!(checked(&format!("--nats a --name b --allow lab {bad}")).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_flags_of_a_service_are_refused_beside_stdio() {
        for flag in ["--name b", "--allow lab", "--max-rate 1", "--folder .", "--drain-time 1s"] {
            let refusal = checked(&format!("--stdio {flag}")).unwrap_err();
            assert!(refusal.contains("cannot be used with"), "{flag}: {refusal}");
        }
    }

    #[test]
    fn only_an_agent_with_labs_keeps_the_rights_of_root() {
        let rights = |line: &str| {
            let words = ["x", "--nats", "a", "--name", "b"].into_iter().chain(line.split_whitespace());
            Line::try_parse_from(words).unwrap().agent.service.rights()
        };
        assert_eq!(rights("--allow lab --allow serve"), None);
        assert_eq!(rights("--allow serve --allow http://a"), Some(privileges::NONE));
    }

    #[test]
    fn a_trouble_that_repeats_is_logged_once_a_minute_and_others_beside_it() {
        let (mut troubles, begin) = (Troubles::default(), Instant::now());
        let mut is_new = |trouble: &str, after: Duration| troubles.is_new(trouble, begin + after);
        assert!(is_new("a", Duration::ZERO) && is_new("b", Duration::ZERO));
        let just_before = REMIND.saturating_sub(Duration::from_nanos(1));
        assert!(!is_new("a", just_before) && !is_new("b", just_before));
        assert!(is_new("a", REMIND));
        for n in 0..MOST_TROUBLES {
            assert!(is_new(&n.to_string(), REMIND));
        }
        assert!(is_new("a", REMIND), "no more are remembered");
    }

    #[test]
    fn the_folder_of_an_agent_is_gone_when_it_ends() {
        let parent = tempfile::tempdir().unwrap();
        let args = |folder: PathBuf| {
            let words = ["x".into(), "--folder".into(), folder.into_os_string()];
            Line::try_parse_from(words).unwrap().agent.service
        };
        let folder = args(parent.path().to_owned()).make_folder().unwrap();
        let path = folder.path().to_owned();
        assert!(path.is_dir() && path.parent() == Some(parent.path()));
        drop(folder);
        assert!(!path.exists());
        let error = args(parent.path().join("none")).make_folder().unwrap_err().to_string();
        assert!(error.starts_with("--folder "), "{error}");
    }
}

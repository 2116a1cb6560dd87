//! `h2lab agent --nats`: an agent as a service.

mod flags;
mod folder;
mod troubles;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use h2lab_base::units::format_duration;
use h2lab_model::fleet::subjects::{self, RandomId};
use h2lab_model::fleet::{AgentCard, AgentName, Permissions};
use h2lab_nats::{Nats, NatsError, ServerOptions, Subscription};

use self::flags::permitted;
pub use self::flags::{FLAGS, ServiceArgs};
use self::folder::AgentFolder;
use self::troubles::{Troubles, follow_events};
use super::super::exit::Usage;
use super::super::nats::{explained, explained_cause};
use super::super::{Exit, rights, signals};
use super::log;
use crate::run::agent::share::AgentShares;
use crate::run::agent::units::{Polled, Units, UnitsSetup};
use crate::run::agent::who::Presence;
use crate::run::agent::{OwnPermits, card};
use crate::run::messages::with_causes;
use h2lab_net::resources;
use h2lab_roles::fleet::agent::{AgentSetup, SILENCE_TIMEOUT};
use h2lab_roles::fleet::service::{Service, ServiceIo};

/// One attempt to reach an absent server: so often signals are looked at meanwhile.
const ATTEMPT: Duration = Duration::from_secs(2);
/// How often the log says that the server is absent, or that units cannot be taken.
const REMIND: Duration = Duration::from_secs(60);
/// How long another agent of the same name may take to answer before this one begins to work.
const OTHERS: Duration = Duration::from_secs(1);
/// How often signals are looked at while there is nothing to do.
const CHECK_PERIOD: Duration = Duration::from_millis(100);
/// How long a free agent waits before it looks for units of runs again.
const IDLE: Duration = Duration::from_secs(1);
/// How long the last packets may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

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
    if !server.has_jetstream {
        log::line(
            "JetStream is off at this NATS server: `load --agents` and `run --agents` need it (`nats-server -js`)",
        );
    }
    let is_back = follow_events(nats);
    let (own, place) = (name.clone(), folder.path().to_owned());
    let shares = AgentShares::new(nats.clone(), own, permissions.limits, place, log::line);
    let setup = AgentSetup {
        summarize: h2lab_analysis::fleet::pair_figures,
        shares: Some(Arc::new(shares)),
        permits: Some(Arc::new(OwnPermits(permissions.clone()))),
        timeout: SILENCE_TIMEOUT,
    };
    let service = Service::start(setup, service_io(nats, &name)).context("cannot start a thread")?;
    let service = Arc::new(service);
    let servers = args.server.servers();
    let asked = Arc::clone(&service);
    let presence = Presence::begin(nats, card.clone(), move || asked.busy())
        .map_err(|error| explained_cause(error, &servers))?;
    wait_for_others(&presence, &name, stop)?;
    let sessions = receive_sessions(nats, &name, &service).map_err(|error| explained(error, &servers))?;
    let permits = permitted(&args.allow, &permissions.limits);
    log::line(&format!("{name} waits for drivers; it permits {permits}"));
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
    let _ = nats.flush(CLOSE_TIMEOUT);
    log::line(&format!("{name} has ended"));
    if is_double { Err(double(&name).into()) } else { Ok(()) }
}

/// How a service reaches its drivers, and where it logs.
fn service_io(nats: &Nats, name: &AgentName) -> ServiceIo {
    let (nats, name) = (nats.clone(), name.clone());
    ServiceIo {
        send: Box::new(move |session: RandomId, packet: Vec<u8>| {
            // What cannot be sent now is sent again by the session.
            let _ = nats.publish(&subjects::from_agent(&name, session), packet);
        }),
        log: Box::new(log::line),
    }
}

/// Passes packets of all sessions on to the service.
fn receive_sessions(nats: &Nats, name: &AgentName, service: &Service) -> Result<Subscription, NatsError> {
    let sender = service.sender();
    nats.subscribe(&subjects::to_agent_of_all_sessions(name), move |subject, packet| {
        if let Some((_, session)) = subjects::of_session(subject) {
            sender.put(session, packet);
        }
    })
}

/// Gives another agent of this name the time to answer; that one was there before, so that this one must not begin.
fn wait_for_others(presence: &Presence, name: &AgentName, stop: &AtomicBool) -> Result<(), Usage> {
    let until = Instant::now() + OTHERS;
    while Instant::now() < until && !stop.load(Ordering::Relaxed) {
        if presence.is_double() {
            return Err(double(name));
        }
        thread::sleep(CHECK_PERIOD);
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
            thread::sleep(CHECK_PERIOD);
        }
        service.drain();
        if let Some(with) = service.busy() {
            log::line(&format!("stopping: finishes its work for {with}, within {}", format_duration(time)));
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

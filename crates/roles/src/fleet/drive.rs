//! The driver: between a coordinator and the agent transports.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_model::fleet::{
    Coordinator, Decider, FleetJob, FleetRecord, LoadCoordinator, LoadJob, LoadOutcome, ToAgent,
};

use super::agent_transport::{AgentTransport, Inbox, IncomingEvent, TransportKind};
use h2lab_net::clock::Clock;

/// How often `stop` is checked at least, and `watch` is called with the progress.
const TICK: Duration = Duration::from_millis(100);

/// How often agents get a PING: one that receives nothing for long ends ([`super::agent::SILENCE_TIMEOUT`]).
const PING_EVERY: Duration = Duration::from_secs(5);

/// The number of such a PING, which the coordinator ignores.
const ALIVE: u32 = u32::MAX;

/// Why nothing could be begun: the number of agents is not what the job needs.
#[derive(Debug, thiserror::Error)]
#[error("the job needs {needed} agents, and there are {given} transports")]
pub struct DriveError {
    /// Clients, and servers that are to be started; or the agents of a load.
    pub needed: usize,
    /// Those given.
    pub given: usize,
}

/// Does a job of bulk transfers with the agents at the end of these transports: those of clients first, then those of servers that
/// do not run already. That one cannot be started, dies or falls silent is reported with its pairs in the record. No agent is left
/// when it returns. `stop` is checked ten times per second at least; `watch` is called as often, and after each message.
pub fn drive(
    job: FleetJob,
    transport_kinds: Vec<TransportKind>,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(&mut Coordinator, Time),
) -> Result<FleetRecord, DriveError> {
    let needed = Coordinator::agents_of(&job);
    let clock = Clock::start();
    let coordinator = Coordinator::new(job, clock.now());
    Ok(decide(coordinator, needed, clock, transport_kinds, stop, watch)?.into_record())
}

/// Makes a load with the agents at the end of these transports, one for each share, like [`drive`]. `watch` may take the response
/// times since its last call from the coordinator's progress. Times of what comes of it are those of `clock`.
pub fn drive_load(
    job: LoadJob,
    clock: Clock,
    transport_kinds: Vec<TransportKind>,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(&mut LoadCoordinator, Time),
) -> Result<LoadOutcome, DriveError> {
    let needed = job.agents.len();
    let coordinator = LoadCoordinator::new(job, clock.now());
    Ok(decide(coordinator, needed, clock, transport_kinds, stop, watch)?.into_result())
}

/// Connects `coordinator` with its `needed` agents until its job is over, and ends them.
fn decide<D: Decider>(
    mut coordinator: D,
    needed: usize,
    clock: Clock,
    transport_kinds: Vec<TransportKind>,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(&mut D, Time),
) -> Result<D, DriveError> {
    if transport_kinds.len() != needed {
        return Err(DriveError { needed, given: transport_kinds.len() });
    }
    let (all, mail) = channel();
    let open = |(agent, transport_kind)| {
        AgentTransport::open(transport_kind, Inbox { agent, clock, all: all.clone() })
    };
    let mut transports: Vec<Option<AgentTransport>> = Vec::new();
    for (agent, opened) in transport_kinds.into_iter().enumerate().map(open).enumerate() {
        if let Err(error) = &opened {
            coordinator.handle_gone(clock.now(), agent, &format!("it cannot be started: {error}"));
        }
        transports.push(opened.ok());
    }
    let mut ping_at = clock.now() + PING_EVERY;
    loop {
        send(&mut coordinator, &transports, clock);
        if coordinator.is_over() {
            break;
        }
        let now = clock.now();
        if now >= ping_at {
            ping_at = now + PING_EVERY;
            // An agent that this does not reach is reported by the end of its output, or its silence.
            transports
                .iter()
                .flatten()
                .for_each(|transport| drop(transport.send(ToAgent::Ping { number: ALIVE })));
        }
        match mail.recv_timeout(coordinator.poll_timeout().since(now).min(TICK)) {
            Ok((at, agent, IncomingEvent::Message(message))) => {
                coordinator.handle_message(at, agent, *message);
            }
            Ok((at, agent, IncomingEvent::Closed(why))) => {
                coordinator.handle_gone(at, agent, &why);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => unreachable!("we hold a sender ourselves"),
        }
        let now = clock.now();
        if now >= coordinator.poll_timeout() {
            coordinator.handle_timeout(now);
        }
        if stop.load(Ordering::Relaxed) {
            coordinator.handle_interrupt(now);
        }
        watch(&mut coordinator, now);
    }
    end(transports);
    Ok(coordinator)
}

/// Sends the coordinator's pending messages.
fn send(coordinator: &mut impl Decider, transports: &[Option<AgentTransport>], clock: Clock) {
    while let Some((agent, message)) = coordinator.poll_message() {
        let sent = match transports.get(agent) {
            Some(Some(transport)) => transport.send(message),
            _ => Err(io::ErrorKind::NotConnected.into()),
        };
        if let Err(error) = sent {
            coordinator.handle_gone(clock.now(), agent, &format!("nothing can be sent to it: {error}"));
        }
    }
}

/// Ends all agents, all at the same time: each may take a moment. Sessions need no thread for that.
fn end(transports: Vec<Option<AgentTransport>>) {
    let mut sessions = Vec::new();
    std::thread::scope(|scope| {
        for transport in transports.into_iter().flatten() {
            if let AgentTransport::Session(mut session) = transport {
                session.close();
                sessions.push(session);
                continue;
            }
            // If the thread cannot be started, the closure and the transport in it are dropped here, one after another.
            let _ = std::thread::Builder::new().spawn_scoped(scope, || drop(transport));
        }
    });
}

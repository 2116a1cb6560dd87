//! The driver: between the conductor and the carriers.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_model::fleet::{Conductor, FleetJob, FleetRecord, ToAgent};

use super::carrier::{Carrier, Heard, Mailbox, Way};
use h2lab_net::clock::Clock;

/// How often is looked whether somebody wants an end, and `watch` is shown how it goes.
const TICK: Duration = Duration::from_millis(100);

/// How often agents hear that there is somebody: one that hears nothing for long ends ([`super::agent::DESERTED`]).
const PING_EVERY: Duration = Duration::from_secs(5);

/// The number of such a PING, of which the conductor knows nothing.
const ALIVE: u32 = u32::MAX;

/// Why nothing could be begun.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// There are other agents than the job needs.
    #[error("the job needs {needed} agents, and there are {given} ways to one")]
    Ways {
        /// Clients, and servers that are to be started.
        needed: usize,
        /// Those given.
        given: usize,
    },
}

/// Does a job with the agents at the end of these ways: those of clients first, then those of servers that do not run already.
/// That one cannot be woken, dies or falls silent is told of its pairs in the record. Nobody is left when it returns. `stop` is
/// looked at ten times per second, and as often `watch` is shown how it goes.
pub fn drive(
    job: FleetJob,
    ways: Vec<Way>,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(&Conductor, Time),
) -> Result<FleetRecord, DriveError> {
    let needed = Conductor::agents_of(&job);
    if ways.len() != needed {
        return Err(DriveError::Ways { needed, given: ways.len() });
    }
    let clock = Clock::start();
    let mut conductor = Conductor::new(job, clock.now());
    let (all, mail) = channel();
    let open = |(agent, way)| Carrier::open(way, Mailbox { agent, clock, all: all.clone() });
    let mut carriers: Vec<Option<Carrier>> = Vec::new();
    for (agent, opened) in ways.into_iter().enumerate().map(open).enumerate() {
        if let Err(error) = &opened {
            conductor.handle_gone(clock.now(), agent, &format!("it cannot be started: {error}"));
        }
        carriers.push(opened.ok());
    }
    let mut ping_at = clock.now() + PING_EVERY;
    loop {
        send(&mut conductor, &carriers, clock);
        if conductor.is_over() {
            break;
        }
        let now = clock.now();
        if now >= ping_at {
            ping_at = now + PING_EVERY;
            // Whom that does not reach is told of by the end of its output, or its silence.
            carriers.iter().flatten().for_each(|carrier| drop(carrier.send(ToAgent::Ping { number: ALIVE })));
        }
        match mail.recv_timeout(conductor.poll_timeout().since(now).min(TICK)) {
            Ok((at, agent, Heard::Message(message))) => conductor.handle_message(at, agent, message),
            Ok((at, agent, Heard::Closed(why))) => {
                conductor.handle_gone(at, agent, &why);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => unreachable!("we hold a sender ourselves"),
        }
        let now = clock.now();
        if now >= conductor.poll_timeout() {
            conductor.handle_timeout(now);
        }
        if stop.load(Ordering::Relaxed) {
            conductor.handle_interrupt(now);
        }
        watch(&conductor, now);
    }
    end(carriers);
    Ok(conductor.into_record())
}

/// Sends what is to be sent.
fn send(conductor: &mut Conductor, carriers: &[Option<Carrier>], clock: Clock) {
    while let Some((agent, message)) = conductor.poll_message() {
        let sent = match carriers.get(agent) {
            Some(Some(carrier)) => carrier.send(message),
            _ => Err(io::ErrorKind::NotConnected.into()),
        };
        if let Err(error) = sent {
            conductor.handle_gone(clock.now(), agent, &format!("it cannot be told anything: {error}"));
        }
    }
}

/// Ends all agents, all at the same time: each may take a moment.
fn end(carriers: Vec<Option<Carrier>>) {
    std::thread::scope(|scope| {
        for carrier in carriers.into_iter().flatten() {
            scope.spawn(|| drop(carrier));
        }
    });
}

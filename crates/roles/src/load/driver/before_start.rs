//! What the generator does before its first request: it dials, and waits for the instant at which the load begins.

use std::io;
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_net::resources::Memory;

use super::super::spec::LoadError;
use super::super::start_gate::StartGate;
use super::{Driver, TICK};
use crate::client::ConnectError;

/// A first frame may be lost and be sent again: TCP's initial timeout is a second (RFC 6298 §2).
const LEAST_SILENCE: Duration = Duration::from_secs(1);

/// So long before the instant at which a load begins its threads meet: each looks for it once per [`TICK`].
const START_MARGIN: Duration = Duration::from_millis(20);

impl Driver<'_> {
    /// Opens the warm pool. A failure is fatal if no connection has worked yet, or if it repeats.
    pub fn dial(&mut self) -> Result<(), LoadError> {
        let mut asked_at = None;
        loop {
            self.dial_and_send()?;
            let warm = self.connections.pool().is_warm()
                && self.connections.slots.sessions().all(|(_, session, _)| session.is_usable());
            if warm || self.is_stopped() {
                self.generator.memory.connected = Memory::now().resident;
                return Ok(());
            }
            // A live server that has sent nothing yet gets as long for its first frame as for a response: otherwise each request
            // would expire. The least is what TCP needs to repair a loss. Behind an emulated link the server is known to be there.
            let timeout = self.spec.cell.work.timeout.max(LEAST_SILENCE);
            let now = self.clock.now();
            let is_live = self.spec.cell.link.is_none();
            if is_live && !self.proven && self.connections.slots.sessions().next().is_some() {
                let silent = now.since(*asked_at.get_or_insert(now));
                if silent >= timeout {
                    let (address, why) = (self.spec.address.clone(), ConnectError::NoAnswer(timeout));
                    return Err(LoadError::Unreachable { address, why });
                }
            }
            // The deadlines of dials and engines are timers of the reactor: this ends.
            self.receive(self.connections.pool().pause_until().min(now + TICK))?;
        }
    }

    /// Before the first request: dials what the pool wants, and sends what the connections have to say.
    fn dial_and_send(&mut self) -> Result<(), LoadError> {
        // Checked twice, since a dial may fail at once, and after a fatal failure none is to be begun.
        self.check_reachable()?;
        self.connections.dial_wanted(self.clock.now(), &mut self.requests);
        self.connections.flush(&mut self.requests);
        self.check_reachable()
    }

    /// Before the first request: acts on what comes, until `until` at the latest.
    fn receive(&mut self, until: Time) -> io::Result<()> {
        self.connections.slots.wait(until, None)?;
        while let Some(completion) = self.connections.slots.next_completion() {
            self.connections.act_on(completion, &mut self.requests);
        }
        Ok(())
    }

    /// When the first request is due; `None` if the load was stopped before.
    pub(super) fn start(&mut self) -> Result<Option<Time>, LoadError> {
        let instant = match self.spec.start {
            Some(gate) => self.wait_at(gate)?,
            None => Some(Time::ZERO),
        };
        let (clock, lead) = (self.clock, self.lead);
        Ok(match self.part.team {
            Some(team) => team.meet(clock, instant),
            None => instant.map(|instant| instant.max(clock.now() + lead)),
        })
    }

    /// Keeps the connections until shortly before the instant that the gate is given, and returns that; `None` if it is stopped
    /// before.
    fn wait_at(&mut self, gate: &StartGate) -> Result<Option<Time>, LoadError> {
        gate.arrive();
        loop {
            if self.is_stopped() {
                return Ok(None);
            }
            let now = self.clock.now();
            if let Some(instant) = gate.instant().filter(|instant| *instant <= now + START_MARGIN) {
                return Ok(Some(instant));
            }
            self.dial_and_send()?;
            // Not until the pool's pause is over: after a failure its end stays in the past until a request is served.
            self.receive(now + TICK)?;
        }
    }

    /// Ends a load that was stopped before it began.
    pub(super) fn end_before_start(&mut self) {
        self.started_at = self.clock.now();
        self.requests.begin(self.started_at);
        self.interrupted = true;
        self.cut(0);
    }
}

//! Probes: what a server, a proxy or a client does when it is asked what nobody asks it.
//!
//! [`Prober`] is how a host is met: where it is, and the budget that bounds everything sent to it. A [`Line`] carries bytes of
//! our choosing over TCP or TLS and keeps what crossed it as evidence. Each group of checks is a module; [`url`] has all
//! that `h2lab probe URL` does. Verdicts, budgets and pages are [`h2lab_core::probe`]'s.

pub mod ask;
pub mod client;
pub mod gate;
mod line;
pub mod smuggling;
pub mod talk;
mod tape;
pub mod url;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use h2lab_core::probe::{Budget, Exhausted};
use h2lab_core::units::Time;
use h2lab_core::workload::Protocol;

use crate::client::{ConnectError, Target};
use crate::io::clock::Clock;
use crate::io::tcp::Endpoint;
use crate::io::tls::{TlsError, TlsOptions};
pub use line::{Heard, Line, Put};
pub use tape::Tape;

/// Whom a probe asks.
#[derive(Debug, Clone)]
pub struct Host {
    /// Where it is.
    pub endpoint: Endpoint,
    /// Its name in TLS.
    pub server_name: String,
    /// Host and, unless it is the scheme's own, port.
    pub authority: String,
    /// Path and query of requests.
    pub path: String,
    /// What to trust in TLS.
    pub tls: TlsOptions,
}

/// Why a check could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The budget does not allow it.
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
    /// We were told to stop.
    #[error("interrupted")]
    Interrupted,
    /// TLS cannot be set up on our side.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The kernel refused us something that has nothing to do with the host.
    #[error("the probe cannot work: {0}")]
    Io(#[from] io::Error),
}

/// Asks a host within a budget. All that is sent to it goes through here.
#[derive(Debug)]
pub struct Prober {
    /// Whom.
    pub host: Host,
    /// How long it may take over anything before that counts as silence.
    pub patience: Duration,
    clock: Clock,
    budget: Budget,
    stop: Arc<AtomicBool>,
}

impl Prober {
    /// Nothing has been sent yet. `stop` ends it early.
    pub fn new(host: Host, budget: Budget, clock: Clock, patience: Duration, stop: Arc<AtomicBool>) -> Self {
        Self { host, patience, clock, budget, stop }
    }

    /// The time.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// The clock of all times here.
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    /// What has been sent, and what may be.
    pub const fn budget(&self) -> &Budget {
        &self.budget
    }

    /// `patience` from now.
    pub fn soon(&self) -> Time {
        self.now() + self.patience
    }

    /// Fails once we were told to stop.
    pub fn check_stop(&self) -> Result<(), ProbeError> {
        if self.stop.load(Ordering::Relaxed) { Err(ProbeError::Interrupted) } else { Ok(()) }
    }

    /// Takes a request from the budget and waits until it may go.
    pub fn take_request(&mut self) -> Result<(), ProbeError> {
        self.check_stop()?;
        let at = self.budget.request(self.now())?;
        let wait = at.since(self.now());
        if !wait.is_zero() {
            std::thread::sleep(wait); // the rate that was promised, not something that is waited for
        }
        Ok(())
    }

    /// Takes bytes that are to be sent from the budget.
    pub fn take_bytes(&mut self, n: usize) -> Result<(), ProbeError> {
        self.check_stop()?;
        Ok(self.budget.bytes(self.now(), n)?)
    }

    /// Takes a connection from the budget.
    pub fn take_connection(&mut self) -> Result<(), ProbeError> {
        self.check_stop()?;
        Ok(self.budget.connection(self.now())?)
    }

    /// The host as `protocol` is dialled there.
    pub fn target(&self, protocol: Protocol) -> Result<Target, ProbeError> {
        let host = &self.host;
        let mut target = Target::new(host.endpoint.clone(), protocol, &host.server_name, &host.tls, None)?;
        target.patience = self.patience;
        Ok(target)
    }
}

//! Probes: what a server, a proxy or a client does with unusual input.
//!
//! [`Prober`] is how a host is met: where it is, and the budget that bounds everything sent to it. A [`RawConnection`] carries
//! bytes of our choosing over TCP or TLS and keeps what crossed it as evidence. Each group of checks is a module; [`url`] has all
//! that `h2lab probe URL` does. Verdicts, budgets and pages are [`h2lab_model::probe`]'s.

pub mod ask;
pub mod client;
mod dial;
mod h1;
mod raw_connection;
pub mod raw_h2_client;
pub mod smuggling;
pub mod target_authorization;
#[cfg(test)]
mod testing;
mod transcript;
pub mod url;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_model::probe::{Budget, Exhausted};
use h2lab_model::workload::Protocol;

use crate::client::{ConnectError, Target};
use h2lab_net::clock::Clock;
use h2lab_net::tcp::Endpoint;
use h2lab_net::tls::{TlsError, TlsOptions};
pub use raw_connection::{Put, RawConnection, ReadOutcome};
pub use transcript::Transcript;

/// The target of a probe.
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
    /// Stopped by the user.
    #[error("interrupted")]
    Interrupted,
    /// TLS cannot be set up on our side.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The kernel refused us something that has nothing to do with the host.
    #[error("the probe cannot work: {0}")]
    Io(#[from] io::Error),
}

impl ProbeError {
    /// Whether nothing else can be checked either: the user stopped us, or one of us does not trust the other's certificate.
    pub const fn ends_it(&self) -> bool {
        match self {
            Self::Exhausted(_) => false,
            Self::Connect(error) => distrusts(error),
            Self::Interrupted | Self::Tls(_) | Self::Io(_) => true,
        }
    }
}

/// Whether an attempt failed because of a certificate, which says nothing of what is spoken.
pub const fn distrusts(error: &ConnectError) -> bool {
    matches!(
        error,
        ConnectError::Tls(
            TlsError::Certificate(_)
                | TlsError::ClientCertificateRequired
                | TlsError::ClientCertificateRefused(_)
                | TlsError::NoRoots
        )
    )
}

/// Bytes of a response's body that are read at first: enough to recognise a large one.
pub const MOST_READ: u64 = (8 << 20) + 1;

/// How often a wait checks whether the user stopped us.
const LOOK: Duration = Duration::from_millis(50);

/// Asks a host within a budget. All that is sent to it goes through here.
#[derive(Debug)]
pub struct Prober {
    /// The target.
    pub host: Host,
    /// How long it may take over anything before that counts as silence.
    pub patience: Duration,
    /// Bytes of a response's body that are read; more is not requested.
    pub most_read: u64,
    clock: Clock,
    budget: Budget,
    stop: Arc<AtomicBool>,
}

impl Prober {
    /// Nothing has been sent yet. `stop` ends it early.
    pub fn new(host: Host, budget: Budget, clock: Clock, patience: Duration, stop: Arc<AtomicBool>) -> Self {
        Self { host, patience, most_read: MOST_READ, clock, budget, stop }
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

    /// Fails once the user has stopped us.
    pub fn check_stop(&self) -> Result<(), ProbeError> {
        if self.stop.load(Ordering::Relaxed) { Err(ProbeError::Interrupted) } else { Ok(()) }
    }

    /// Takes a request from the budget and waits until it may go.
    pub fn take_request(&mut self) -> Result<(), ProbeError> {
        self.check_stop()?;
        let at = self.budget.request(self.now())?;
        loop {
            let wait = at.since(self.now());
            if wait.is_zero() {
                return Ok(());
            }
            std::thread::sleep(wait.min(LOOK)); // the rate that was promised, not something that is waited for
            self.check_stop()?;
        }
    }

    /// Takes bytes that are to be sent from the budget.
    pub fn take_bytes(&mut self, n: usize) -> Result<(), ProbeError> {
        self.check_stop()?;
        Ok(self.budget.bytes(self.now(), n)?)
    }

    /// Fails if `n` bytes that are to be sent are more than is left; [`Prober::sent`] counts what has gone.
    pub fn may_send(&self, n: usize) -> Result<(), ProbeError> {
        self.check_stop()?;
        let mut budget = self.budget;
        Ok(budget.bytes(self.now(), n)?)
    }

    /// Counts bytes that have gone.
    pub const fn sent(&mut self, n: usize) {
        self.budget.sent(n);
    }

    /// How many bytes may be read at once, `n` at most; the error once none may.
    pub fn may_receive(&self, n: usize) -> Result<usize, ProbeError> {
        let left = self.budget.receivable()?;
        Ok(usize::try_from(left).unwrap_or(usize::MAX).min(n))
    }

    /// Counts bytes that have come.
    pub const fn received(&mut self, n: usize) {
        self.budget.received(n);
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

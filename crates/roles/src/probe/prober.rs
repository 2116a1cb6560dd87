//! How to reach a host, and the budget that bounds everything sent to it.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_model::probe::server::FieldLines;
use h2lab_model::probe::{Budget, Exhausted};
use h2lab_model::workload::Protocol;
use h2lab_wire::trace::detail::Secrets;

use crate::client::{ConnectError, DialTarget};
use h2lab_net::clock::Clock;
use h2lab_net::tcp::Endpoint;
use h2lab_net::tls::{TlsError, TlsOptions};

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
    /// Further fields of every well-formed request, lower-case names; a check's own field of the same name replaces one.
    pub fields: FieldLines,
    /// The protocols to ask for; empty for all.
    pub protocols: Vec<Protocol>,
    /// What evidence does not show: credentials, queries, and the values of the further fields.
    pub hidden: Secrets,
}

impl Host {
    /// Whether `protocol` is to be asked for.
    pub fn asks(&self, protocol: Protocol) -> bool {
        self.protocols.is_empty() || self.protocols.contains(&protocol)
    }

    /// The further fields that `own` does not replace.
    pub fn fields_beside<'a>(
        &'a self,
        own: &'a [impl AsRef<str>],
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        let is_own = |name: &str| own.iter().any(|own| own.as_ref().eq_ignore_ascii_case(name));
        let further = self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        further.filter(move |(name, _)| !is_own(name))
    }

    /// The further fields as lines of HTTP/1.1.
    pub fn lines(&self) -> String {
        let line = |(name, value): &(String, String)| [name, ": ", value, "\r\n"].concat();
        self.fields.iter().map(line).collect()
    }
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
    /// Whether nothing else can be checked either: the user stopped us, or one end does not trust the other's
    /// certificate.
    pub const fn ends_it(&self) -> bool {
        match self {
            Self::Exhausted(_) => false,
            Self::Connect(error) => distrusts(error),
            Self::Interrupted | Self::Tls(_) | Self::Io(_) => true,
        }
    }
}

/// The result of asking a host.
pub type Result<T, E = ProbeError> = std::result::Result<T, E>;

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
const CHECK_PERIOD: Duration = Duration::from_millis(50);

/// When a wait for the host is over. A probe of a host waits by the clock; one of a server in our own process can ask it whether
/// it has something to act on, so that a busy machine is not taken for a silent host.
pub(crate) trait WaitPolicy: fmt::Debug + Send + Sync {
    /// Whether a wait that lasts until `until` is over at `now`, after so many connections were dialled.
    fn is_over(&self, now: Time, until: Time, dialled: u64) -> bool {
        _ = dialled;
        now >= until
    }

    /// When such a wait is to check again, after `now`.
    fn next_check(&self, now: Time, until: Time) -> Time {
        _ = now;
        until
    }

    /// How long it may take to connect, if `timeout` is what the host may take over anything.
    fn connect_timeout(&self, timeout: Duration) -> Duration {
        timeout
    }
}

/// Waits last as long as they were asked to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ByClock;

impl WaitPolicy for ByClock {}

/// Asks a host within a budget. All that is sent to it goes through here.
#[derive(Debug)]
pub struct Prober {
    /// The target.
    pub host: Host,
    /// How long it may take over anything before that counts as silence.
    pub timeout: Duration,
    /// Bytes of a response's body that are read; more is not requested.
    pub most_read: u64,
    /// When a wait for it is over.
    pub(crate) waits: Arc<dyn WaitPolicy>,
    /// The clock of all times here.
    pub clock: Clock,
    /// What has been sent, and what may be.
    pub budget: Budget,
    stop: Arc<AtomicBool>,
}

impl Prober {
    /// Nothing has been sent yet. `stop` ends it early.
    pub fn new(host: Host, budget: Budget, clock: Clock, timeout: Duration, stop: Arc<AtomicBool>) -> Self {
        Self { host, timeout, most_read: MOST_READ, waits: Arc::new(ByClock), clock, budget, stop }
    }

    /// The time.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// `timeout` from now.
    pub fn soon(&self) -> Time {
        self.now() + self.timeout
    }

    /// Whether a wait that lasts until `until` is over. What arrived before that has still to be read.
    pub fn is_over(&self, until: Time) -> bool {
        let now = self.now();
        self.waits.is_over(now, until, self.budget.spent(now).connections)
    }

    /// When such a wait is to check again. A wait beyond the budget's time ends when that is over, and its silence
    /// proves nothing.
    pub fn next_check(&self, until: Time) -> Result<Time> {
        let (now, ends_at) = (self.now(), self.budget.ends_at());
        let next = self.waits.next_check(now, until);
        match (until > ends_at, now >= ends_at) {
            (false, _) => Ok(next),
            (true, false) => Ok(next.min(ends_at)),
            (true, true) => Err(Exhausted::Time(self.budget.allowance().time).into()),
        }
    }

    /// Fails once the user has stopped us.
    pub fn check_stop(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) { Err(ProbeError::Interrupted) } else { Ok(()) }
    }

    /// Takes a request from the budget and waits until it may go.
    pub fn take_request(&mut self) -> Result<()> {
        self.check_stop()?;
        let at = self.budget.request(self.now())?;
        loop {
            let wait = at.since(self.now());
            if wait.is_zero() {
                return Ok(());
            }
            std::thread::sleep(wait.min(CHECK_PERIOD)); // keeps the rate that was promised; nothing is polled
            self.check_stop()?;
        }
    }

    /// Takes bytes that are to be sent from the budget.
    pub fn take_bytes(&mut self, n: usize) -> Result<()> {
        self.check_stop()?;
        Ok(self.budget.bytes(self.now(), n)?)
    }

    /// Fails if `n` bytes that are to be sent are more than is left; [`Prober::sent`] counts what has gone.
    pub fn may_send(&self, n: usize) -> Result<()> {
        self.check_stop()?;
        let mut budget = self.budget;
        Ok(budget.bytes(self.now(), n)?)
    }

    /// Counts bytes that have gone.
    pub const fn sent(&mut self, n: usize) {
        self.budget.sent(n);
    }

    /// How many bytes may be read at once, `n` at most; the error once none may.
    pub fn may_receive(&self, n: usize) -> Result<usize> {
        let left = self.budget.receivable()?;
        Ok(usize::try_from(left).unwrap_or(usize::MAX).min(n))
    }

    /// Counts bytes that have come.
    pub const fn received(&mut self, n: usize) {
        self.budget.received(n);
    }

    /// Takes a connection from the budget.
    pub fn take_connection(&mut self) -> Result<()> {
        self.check_stop()?;
        Ok(self.budget.connection(self.now())?)
    }

    /// The host as `protocol` is dialled there.
    pub fn target(&self, protocol: Protocol) -> Result<DialTarget> {
        let host = &self.host;
        let mut target =
            DialTarget::new(host.endpoint.clone(), protocol, &host.server_name, &host.tls, None)?;
        target.connect_timeout = self.waits.connect_timeout(self.timeout);
        Ok(target)
    }
}

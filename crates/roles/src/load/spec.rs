//! What the generator is to do, why it cannot, and who observes it.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use h2lab_model::record::{Histogram, Level, Sample};
use h2lab_model::scenario::Cell;
use h2lab_model::workload::{Share, TemplateError};

use super::start_gate::StartGate;
use crate::client::{ConnectError, Watch};
use h2lab_net::tcp::Endpoint;
use h2lab_net::tls::{TlsError, TlsOptions};

/// All that the generator needs to know.
#[derive(Debug, Clone)]
pub struct LoadSpec<'a> {
    /// The work; its link and target are not used, except that TCP's congestion control is set per socket only where there is no
    /// link whose routes set it.
    pub cell: Cell,
    /// Where the server is.
    pub address: Endpoint,
    /// Host and, unless it is the scheme's own, port: `:authority` or Host.
    pub authority: String,
    /// The server's name in TLS.
    pub server_name: String,
    /// What to trust in TLS.
    pub tls: TlsOptions,
    /// Origin of the run's clock, see [`Clock::new`].
    pub clock_origin_ns: u64,
    /// At most so many requests are sent, by all shares together; `None` leaves it to the phases.
    pub requests: Option<usize>,
    /// Threads that share the work; over all shares never more than connections, or in closed loop than requests in flight. All
    /// shares must state the same number.
    pub threads: u32,
    /// What is kept of each request; `None` keeps all as long as they are no more than 50,000 per second or 131,072
    /// together, and in all no more than eight million, and goes over to [`Level::Tail`] then.
    pub record: Option<Level>,
    /// Whether every frame is recorded, as in every cell. Off shows the cost of recording.
    pub tap: bool,
    /// Called in each thread that it starts, before anything else, to pin that thread or set its priority: scheduling attributes
    /// of the calling thread are not necessarily inherited.
    pub on_thread: Option<fn()>,
    /// Whether a thread of an open loop may spin before a request is due, for 60 µs at most, as long as it has a CPU that others
    /// do not need. In a lab all CPUs are needed.
    pub sharp: bool,
    /// Which part of the cell's load this process makes, which others make together with it; the cell is that of the whole load.
    pub share: Share,
    /// Where the load waits, once its connections are up, for the instant at which it begins; without one it begins at once.
    pub start: Option<&'a StartGate>,
    /// Set to end early: what has been measured until then is kept.
    pub stop: Option<&'a AtomicBool>,
}

/// Why no load could be generated.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// No working connection could be made before measuring.
    #[error("{address}: {why}")]
    Unreachable {
        /// The server.
        address: Endpoint,
        /// What is wrong with it.
        why: ConnectError,
    },
    /// TLS cannot be set up on our side.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The work has an unknown placeholder.
    #[error("the request is not a valid template: {0}")]
    Template(#[from] TemplateError),
    /// A system call failed for a reason other than the server.
    #[error("the load generator cannot work: {0}")]
    Io(#[from] io::Error),
}

/// The progress of a cell, reported about ten times per second.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoadProgress {
    /// Since the first request was due.
    pub elapsed: Duration,
    /// Warm-up and measured time together.
    pub total: Duration,
    /// Requests that were due so far.
    pub due: u64,
    /// Requests that were answered with 2xx or 3xx.
    pub succeeded: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests waiting for a connection or a stream.
    pub waiting: u64,
    /// Requests that have a connection and have not ended.
    pub in_flight: u64,
    /// Connections that are up.
    pub connections: u32,
    /// Connections that were established so far.
    pub opened: u64,
    /// Response times of the requests that succeeded since the last report.
    pub recent: Histogram,
}

/// Is notified of each request as it ends, warm-up included, and of the bytes that are moved.
pub trait SampleListener: fmt::Debug + Send + Sync {
    /// A request of this process's generator `thread`, from 0 on, has ended; connections are numbered within their thread. It is called on the
    /// generator's thread: blocking here makes requests late.
    fn ended(&self, thread: u32, sample: &Sample);

    /// So many more bytes were sent and received: heads, frames and bodies as they go and come, of requests that never end as well, in
    /// clear. It is called on the generator's thread, once for all that came or went together.
    fn moved(&self, _bytes: u64) {}
}

/// How the work of a cell is observed.
#[derive(Debug, Clone)]
pub struct Watching {
    /// The observer.
    pub watch: Arc<dyn Watch>,
    /// Whether servers may push.
    pub accept_push: bool,
    /// How long connections are kept when all is done, to see what the server does with them.
    pub linger: Duration,
    /// How long the server may take to accept and, again, to show that it speaks the protocol. A load has the client's own
    /// [`defaults`](crate::client::defaults): with a request's timeout, a busy server would be dialled again and again.
    pub timeout: Duration,
}

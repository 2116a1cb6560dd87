//! One cell in numbers: all repetitions of it, pooled.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::Latency;
use super::PoolLimit;
use super::Silence;
use super::connections::ConnectionTotals;
use super::process::ProcessTotals;
use super::shares::LostShares;
use super::transfer::{self, Transfers};
use super::transport::{GeneratorTotals, LinkTotals, PerRequest, QuicEnd, TcpEnd};
use h2lab_base::JsonSchema;
use h2lab_base::counts::{count, plural};
use h2lab_base::packed::Packed;
use h2lab_base::units::millis_f64;
use h2lab_model::record::{Fault, Level, MeasuredOn, Outcome};
use h2lab_model::scenario::{Cell, Naming};
use serde::{Deserialize, Serialize};

/// How requests ended; `sent` is the sum of `succeeded`, `failed` and `unfinished`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct RequestCounts {
    /// Due inside the measured time.
    pub sent: u64,
    /// Got a complete 2xx or 3xx response.
    pub succeeded: u64,
    /// Got another status, or none.
    pub failed: u64,
    /// Still in flight when the cell was cut.
    pub unfinished: u64,
    /// How often requests were sent again after a server had left them unprocessed.
    pub replayed: u64,
    /// Of those counted in `sent`, the ones that were not sent at all: they found no connection, or none in time.
    #[serde(default)]
    pub unsent: u64,
}

/// Failures of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorCount {
    /// `status`, `timeout`, `connect`, `tls`, `reset`, `refused`, `go-away`, `closed`, `protocol`, `cancelled`.
    #[schemars(with = "String")]
    pub kind: Outcome,
    /// The status of `status`, else the HTTP/2 error code or 0.
    pub code: u32,
    /// Who caused it.
    pub fault: Fault,
    /// How many.
    pub count: u64,
}

/// The measured requests of one repetition, by when they were due: the data that a block bootstrap resamples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepetitionSeries {
    /// The round: the repetitions that cells have in one round were made one after the other.
    pub round: u32,
    /// The measured time.
    pub duration: Duration,
    /// The longest time for which two requests of one connection waited together, beyond the median response time: they
    /// are one event. A request that waits alone is an event of its own, however long it waits.
    pub longest_stall: Duration,
    /// (time since measuring began, response time) of each successful or unfinished request, in the order in which they
    /// were due.
    pub points: Packed<(Duration, Duration), 2>,
    /// (beginning since measuring began, successes) of slices of the measured time, in order; slices without any are
    /// left out.
    pub served: Vec<(Duration, u64)>,
    /// The same for requests with a failure by which a server does not indicate overload.
    pub failed: Vec<(Duration, u64)>,
}

/// Whether a cell's figures can be trusted.
#[derive(Debug, Clone, PartialEq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum CellState {
    /// Valid.
    Ok,
    /// The cell could not carry what it was offered: its latencies depend on the duration, so none is printed.
    Unstable {
        /// Requests per second that were due.
        offered_rps: f64,
        /// Requests per second that were served.
        served_rps: f64,
        /// The symptom.
        why: Instability,
    },
    /// There is no work whose speed could be measured: that is the result.
    Failed {
        /// What happened, in a sentence.
        why: String,
        /// In which way.
        how: Failed,
    },
    /// We measured ourselves rather than the cell. It must be measured again.
    Invalid {
        /// Why, in sentences.
        reasons: Vec<String>,
    },
    /// The target does not speak this protocol, or gave no result.
    Unsupported {
        /// Why, in a sentence.
        why: String,
    },
}

/// How a cell failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failed {
    /// The server ended by itself while it was measured, could no longer be reached, or stopped answering: a figure for
    /// the whole time says nothing about its speed.
    ServerEnded,
    /// No request got a complete response.
    NoResponse,
    /// Responses arrived, and none was a success.
    NoSuccess,
}

impl CellState {
    /// The name in JSON and reports.
    pub fn name(&self) -> &'static str {
        self.into()
    }
}

/// How a cell showed that it cannot carry its load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Instability {
    /// It served less than 98 % inside the measured time. `failed` is the share of the offered requests that failed, 0
    /// to 1.
    Served {
        /// Served over offered, 0 to 1.
        share: f64,
        /// Failed over offered, 0 to 1.
        failed: f64,
    },
    /// Its response times grew while it was measured.
    Growing {
        /// Mean response time of the first half.
        first: Duration,
        /// Mean response time of the second half.
        second: Duration,
    },
}

impl Instability {
    /// Whether the missing requests failed rather than waited: then it is not overload.
    pub fn is_of_failures(&self) -> bool {
        matches!(self, Self::Served { share, failed } if *failed * 2.0 >= 1.0 - *share)
    }
}

impl fmt::Display for Instability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Served { share, failed } if *failed > 0.01 => {
                write!(f, "served {:.0} % of what was offered, {:.0} % failed", share * 100.0, failed * 100.0)
            }
            Self::Served { share, .. } => write!(f, "served {:.0} % of what was offered", share * 100.0),
            Self::Growing { first, second } => write!(
                f,
                "mean response time grew from {:.0} ms to {:.0} ms during the measured time",
                millis_f64(*first),
                millis_f64(*second)
            ),
        }
    }
}

/// All figures of a cell, its repetitions pooled.
#[derive(Debug, Clone, PartialEq)]
pub struct CellSummary {
    /// The cell, from its first repetition: protocol, connections, link, work.
    pub cell: Cell,
    /// How tables name it within its group: `h1`, `h2c × 4`, and further differences from the others there.
    pub label: String,
    /// Those differences; empty until the cell is compared with its group.
    pub naming: Naming,
    /// How many repetitions are pooled; 0 if the target does not speak the protocol, so that none was made.
    pub repetitions: u32,
    /// Congestion control as read back from the kernel, or of our end of QUIC; the configured one if it could not be
    /// read; `None` means the system's default.
    pub congestion: Option<String>,
    /// The measured time of all repetitions.
    pub measured: Duration,
    /// How the measured requests ended.
    pub requests: RequestCounts,
    /// Complete responses by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Quartiles of the lengths of successful responses' bodies, in bytes as received; `None` if not every request was
    /// kept, or none succeeded.
    pub body_quartiles: Option<[u64; 3]>,
    /// Failures by kind, code and fault, the most frequent first.
    pub errors: Vec<ErrorCount>,
    /// Requests per second that were due inside the measured time, those of lost shares included.
    pub offered_rps: f64,
    /// Successful responses per second that were complete inside the measured time, whenever their request was due.
    /// What completes in the drain is not served: otherwise it would hide a backlog.
    pub served_rps: f64,
    /// Body bytes per second of those responses.
    pub goodput_bytes_per_s: f64,
    /// Completed − scheduled of successful requests; for unfinished ones their age at the cut. Failures are only in the
    /// counts: a quick error would look like a quick answer.
    pub response: Latency,
    /// Completed − sent of successful requests.
    pub service: Latency,
    /// First byte − sent of successful requests.
    pub ttfb: Latency,
    /// Response times by when the requests were due, one series per repetition.
    pub series: Vec<RepetitionSeries>,
    /// Connections, their frames and bytes.
    pub connections: ConnectionTotals,
    /// Our end of TCP.
    pub tcp_client: Option<TcpEnd>,
    /// The server's end, if it is visible to us.
    pub tcp_server: Option<TcpEnd>,
    /// Our end of QUIC. The server's is not visible.
    pub quic_client: Option<QuicEnd>,
    /// How long responses take, and the data on those that did not end in time.
    pub transfers: Transfers,
    /// The totals of the emulated link; `None` over a real network.
    pub link: Option<LinkTotals>,
    /// The figures of the generator.
    pub generator: GeneratorTotals,
    /// The server that we started; for a proxy its own figures, without the servers behind it.
    pub server: Option<ProcessTotals>,
    /// The client's sidecar.
    pub sidecar: Option<ProcessTotals>,
    /// TCP connections that the sidecar held over the link, of all repetitions; `None` without a sidecar.
    pub hop_connections: Option<u64>,
    /// Bytes and segments of one request: they decide the figures, so they are printed.
    pub per_request: PerRequest,
    /// The coarsest level at which requests were recorded: below [`Level::Full`], percentiles are accurate to three
    /// digits.
    pub level: Level,
    /// The agents that measured it with their machines, each once; none if no agent did.
    pub machines: Vec<MeasuredOn>,
    /// The shares of a load by several agents that are missing in all other figures but `offered_rps`; `None` if none is.
    pub lost_shares: Option<LostShares>,
    /// Whether the client's connections were what limited an open loop.
    pub pool: Option<PoolLimit>,
    /// The longest time in which nothing arrived from the server, if the percentiles do not show it.
    pub silence: Option<Silence>,
    /// Whether the figures can be trusted and compared.
    pub state: CellState,
    /// Warnings about the measurement, in sentences.
    pub warnings: Vec<String>,
}

impl CellSummary {
    /// Requests per connection, on average over the connections that were opened.
    pub fn requests_per_connection(&self) -> f64 {
        self.connections.requests as f64 / self.connections.opened.max(1) as f64
    }

    /// Whether requests were made and none succeeded: then the ages of unfinished ones are not latencies. A server that
    /// still answered requests of the warm-up, so that it reached none of the measured ones, is overloaded and not
    /// dead.
    pub fn is_dead(&self) -> bool {
        self.requests.sent > 0 && self.requests.succeeded == 0 && self.served_rps <= 0.0
    }

    /// A sentence if responses arrived and none was a success: that is not the work that was to be measured. Bulk work
    /// reports its own outcome.
    pub fn no_success(&self) -> Option<String> {
        if self.cell.work.bulk || self.requests.succeeded > 0 || self.statuses.is_empty() {
            return None;
        }
        let statuses: Vec<String> =
            self.statuses.iter().map(|(status, n)| format!("{} × {status}", count(*n))).collect();
        Some(format!("no response was a success: {}", statuses.join(", ")))
    }

    /// A sentence if not a single request got a complete response, whatever its status. Requests that we cancelled
    /// ourselves do not count against the server.
    pub fn no_response(&self) -> Option<String> {
        let first = self.errors.iter().find(|error| error.kind != Outcome::Cancelled);
        // Those that were served were due in the warm-up, and count as answers, too.
        let is_answered = self.requests.succeeded > 0 || !self.statuses.is_empty() || self.served_rps > 0.0;
        if self.cell.work.bulk || is_answered || (first.is_none() && self.requests.unfinished == 0) {
            return None;
        }
        let ended = first.map_or_else(String::new, |error| {
            let which = if self.failed_as(error.kind) == self.requests.sent { "all" } else { "most" };
            format!("; {which} ended as `{}`", error.kind)
        });
        let sent = plural(self.requests.sent, "request");
        Some(match self.transfers.parts() {
            Some(parts) => format!("no complete response to {sent}: {parts}{ended}"),
            None => {
                let advice = transfer::after_timeouts(self).unwrap_or_default();
                format!("no response to {sent}{ended}{advice}")
            }
        })
    }

    /// How many of the measured requests failed in this way.
    pub(super) fn failed_as(&self, kind: Outcome) -> u64 {
        self.errors.iter().filter(|error| error.kind == kind).map(|error| error.count).sum()
    }

    /// A sentence if no request of a cell succeeded, whatever their outcomes.
    pub fn without_success(&self) -> Option<String> {
        if self.cell.work.bulk || !self.is_dead() {
            return None;
        }
        let why = self.no_success().or_else(|| self.no_response());
        Some(why.unwrap_or_else(|| format!("none of {} succeeded", plural(self.requests.sent, "request"))))
    }

    /// Whether it is not a sound measurement.
    pub const fn is_invalid(&self) -> bool {
        matches!(self.state, CellState::Invalid { .. })
    }

    /// The share of offered requests that was served, 0 to 1 (a little above 1 when a backlog of the warm-up drains).
    pub fn served_share(&self) -> f64 {
        if self.offered_rps > 0.0 { self.served_rps / self.offered_rps } else { 0.0 }
    }
}

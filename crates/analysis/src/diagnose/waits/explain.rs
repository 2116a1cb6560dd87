//! From connections that were read, and the record of a repetition, to the latency breakdowns of its slow requests.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use h2lab_base::JsonSchema;
use h2lab_base::counts::plural;
use serde::{Deserialize, Serialize};

use super::causes::{self, Delays, NearEnd};
use super::connection::{Flaw, Traced};
use super::latency_breakdown::{Interval, LatencyBreakdown, LinkStream};
use super::split::Split;
use h2lab_base::units::{Time, nanos};
use h2lab_model::record::{CellRecord, Sample};
use h2lab_wire::trace::Direction;

/// Why less is known than could be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "doubt")]
pub enum Doubt {
    /// Connections were encrypted and no key log opens them: drops are reported, and not whose bytes they carried.
    NoKeys {
        /// How many connections.
        connections: u32,
    },
    /// Connections were open when the capture began, so that their bytes cannot be read.
    BeganMidFlow {
        /// How many connections.
        connections: u32,
    },
    /// Bytes are missing from the capture: what follows them on the same connection could not be read.
    BytesMissing {
        /// How many connections.
        connections: u32,
    },
    /// Connections carry neither HTTP/1.1 nor HTTP/2.
    NotHttp {
        /// How many connections.
        connections: u32,
    },
    /// Slow requests were not found on the link.
    NotFound {
        /// How many of them.
        requests: u32,
    },
    /// The cell speaks HTTP/3, and no secrets open its packets: what its slow requests waited for is not known.
    Quic {
        /// How many of them there are.
        requests: u32,
        /// While how many of them lasted a datagram of their connection was lost, of whichever stream.
        beside_drops: u32,
    },
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoKeys { connections } => write!(
                f,
                "{} encrypted, and no key log opens them: which stream a lost segment belonged to is not known",
                plural((*connections).into(), "connection")
            ),
            Self::BeganMidFlow { connections } => write!(
                f,
                "{} open before the capture began: which stream a lost segment belonged to is not known",
                plural((*connections).into(), "connection")
            ),
            Self::BytesMissing { connections } => {
                write!(
                    f,
                    "bytes of {} are missing from the capture, and what follows them could not be read",
                    plural((*connections).into(), "connection")
                )
            }
            Self::NotHttp { connections } => {
                write!(f, "{} with neither HTTP/1.1 nor HTTP/2", plural((*connections).into(), "connection"))
            }
            Self::NotFound { requests } => {
                write!(f, "{} not found on the link", plural((*requests).into(), "slow request"))
            }
            Self::Quic { requests, beside_drops } => write!(
                f,
                "unsupported: no TLS secrets open QUIC's packets, so that what {requests} slow requests waited for is not known; while {beside_drops} of them lasted, a datagram of their connection was lost"
            ),
        }
    }
}

/// What the slow requests of a repetition waited for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Waits {
    /// The 95th percentile of the repetition's response times, in nanoseconds: a request that took longer is slow.
    pub slower_than_ns: u64,
    /// Every slow request that was measured, in the order of the samples.
    pub breakdowns: Vec<LatencyBreakdown>,
    /// Their time by cause.
    pub split: Split,
    /// Why less is known than could be.
    pub doubts: Vec<Doubt>,
}

impl Waits {
    /// The 95th percentile of the repetition's response times.
    pub const fn slower_than(&self) -> Duration {
        Duration::from_nanos(self.slower_than_ns)
    }
}

/// Explains the measured requests of a repetition that took longer than `slower_than`. `is_whole`: every packet of the
/// repetition was recorded.
pub(super) fn explain(
    traced: &[Traced],
    is_whole: bool,
    delays: &Delays,
    repetition: &CellRecord,
    ids: &[u64],
    slower_than: Duration,
) -> Waits {
    let join = Join::new(traced, is_whole, delays, repetition, ids);
    let breakdowns: Vec<LatencyBreakdown> =
        slow(repetition, slower_than).map(|(index, sample)| join.breakdown(index, &sample)).collect();
    let is_lost = |breakdown: &&LatencyBreakdown| breakdown.place.is_none() && join.near.is_none();
    let not_found = breakdowns.iter().filter(is_lost).count() as u32;
    let mut doubts = flaws(traced.iter().filter_map(|connection| connection.flaw));
    doubts.extend((not_found > 0).then_some(Doubt::NotFound { requests: not_found }));
    Waits { slower_than_ns: nanos(slower_than), split: breakdowns.iter().collect(), breakdowns, doubts }
}

/// The measured requests of a repetition that took longer than `slower_than`, each with its index.
pub(super) fn slow(repetition: &CellRecord, slower_than: Duration) -> impl Iterator<Item = (usize, Sample)> {
    let is_slow = move |sample: &Sample| sample.measured && sample.response_time() > slower_than;
    repetition.samples.iter().enumerate().filter(move |(_, sample)| is_slow(sample))
}

/// The flaws of connections.
pub(super) fn flaws(flaws: impl Iterator<Item = Flaw>) -> Vec<Doubt> {
    let mut counts: BTreeMap<Flaw, u32> = BTreeMap::new();
    for flaw in flaws {
        *counts.entry(flaw).or_default() += 1;
    }
    let doubt = |(flaw, connections)| match flaw {
        Flaw::NoKeys => Doubt::NoKeys { connections },
        Flaw::BeganMidFlow => Doubt::BeganMidFlow { connections },
        Flaw::BytesMissing => Doubt::BytesMissing { connections },
        Flaw::NotHttp => Doubt::NotHttp { connections },
    };
    counts.into_iter().map(doubt).collect()
}

/// Requests and the streams on which they were sent.
struct Join<'a> {
    traced: &'a [Traced],
    delays: &'a Delays,
    repetition: &'a CellRecord,
    ids: &'a [u64],
    /// The generator's connections cross the link directly.
    is_direct: bool,
    /// By `x-h2lab-id`: connection and stream; for a replayed request, those of the last attempt.
    by_id: BTreeMap<u64, (usize, u32)>,
    /// Connections by their ports, in the order of their begins.
    by_ports: BTreeMap<(u16, u16), Vec<usize>>,
    /// What held requests that never entered the link; `None` if that is uncertain.
    near: Option<NearEnd>,
}

impl<'a> Join<'a> {
    fn new(
        traced: &'a [Traced],
        is_whole: bool,
        delays: &'a Delays,
        repetition: &'a CellRecord,
        ids: &'a [u64],
    ) -> Self {
        let is_direct = repetition.cell.sidecar.is_none();
        let mut by_id: BTreeMap<u64, (Time, (usize, u32))> = BTreeMap::new();
        let mut by_ports: BTreeMap<(u16, u16), Vec<usize>> = BTreeMap::new();
        for (index, connection) in traced.iter().enumerate() {
            by_ports.entry(connection.ports).or_default().push(index);
            for (stream, exchange) in connection.streams.exchanges() {
                let Some(id) = exchange.id else { continue };
                let first = connection.frames_of(exchange, Direction::Up).next();
                let sent = first.map_or(Time::ZERO, |frame| connection.up.first_sent(frame.bytes.start));
                let last = by_id.entry(id).or_insert((sent, (index, stream)));
                if sent >= last.0 {
                    *last = (sent, (index, stream));
                }
            }
        }
        let by_id: BTreeMap<_, _> = by_id.into_iter().map(|(id, (_, place))| (id, place)).collect();
        // An id that was not seen is significant only if everything was read, and if the programs forward ids.
        let is_read = is_whole && traced.iter().all(|connection| connection.flaw.is_none());
        let is_tls = repetition.cell.protocol.is_tls();
        let near = (is_read && !by_id.is_empty()).then(|| NearEnd::new(traced, is_tls, delays));
        Self { traced, delays, repetition, ids, is_direct, by_id, by_ports, near }
    }

    fn breakdown(&self, index: usize, sample: &Sample) -> LatencyBreakdown {
        let (place, intervals) = self.life(index, sample);
        LatencyBreakdown::new(index, sample, place, intervals)
    }

    fn life(&self, index: usize, sample: &Sample) -> (Option<LinkStream>, Vec<Interval>) {
        let own = if self.is_direct { self.own_connection(sample) } else { None };
        let by_id = self.ids.get(index).and_then(|id| self.by_id.get(id)).copied();
        let found = own.map(|connection| (connection, sample.stream.0));
        // The generator's record of its own streams is more reliable than a header that may occur twice.
        for (connection, stream) in found.into_iter().chain(by_id) {
            let traced = &self.traced[connection];
            if let Some(life) = causes::life(traced, stream, sample, self.is_direct, self.delays) {
                return (Some(place(traced, Some(stream))), life);
            }
        }
        if let Some(near) = &self.near {
            let Some(traced) = own.map(|connection| &self.traced[connection]) else {
                return (None, near.life(sample, self.is_direct));
            };
            return (Some(place(traced, None)), causes::assigned(traced, sample, self.delays));
        }
        if let Some(connection) = own {
            let traced = &self.traced[connection];
            let ready = self.repetition.connections.iter().find(|known| known.index == sample.connection);
            let ready_at = ready.map_or(Time::ZERO, |known| known.ready_at);
            return (Some(place(traced, None)), causes::unread(traced, sample, ready_at, self.delays));
        }
        let unread: Vec<&Traced> = self.traced.iter().filter(|traced| traced.flaw.is_some()).collect();
        (None, causes::unlocated(&unread, sample, self.delays))
    }

    /// The generator's connection on which a request was sent.
    fn own_connection(&self, sample: &Sample) -> Option<usize> {
        let known = self.repetition.connections.iter().find(|known| known.index == sample.connection)?;
        let between = self.by_ports.get(&(known.local_port, known.remote_port))?;
        // Ports may be reused.
        between.iter().rev().find(|&&index| self.traced[index].begins_at <= sample.completed_at).copied()
    }
}

const fn place(traced: &Traced, stream: Option<u32>) -> LinkStream {
    LinkStream { client_port: traced.ports.0, server_port: traced.ports.1, stream }
}

//! The explanation of a slow request: the [`LatencyBreakdown`] of its time, interval by interval, each with its [`Cause`].

use std::fmt;
use std::time::Duration;

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use h2lab_base::units::{Time, millis_f64};
use h2lab_model::record::Sample;
use h2lab_wire::trace::Direction;
use strum::VariantArray;

/// A packet that did not reach its receiver, by its name in the packet log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Drop {
    /// Its direction.
    pub direction: Direction,
    /// Its index among all packets of its direction, as in [`PacketRecord`](h2lab_model::record::PacketRecord).
    pub index: u64,
    /// When it had entered the link.
    pub at: Time,
}

/// How a sender detected that a segment was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Repair {
    /// By acknowledgements of later bytes (RFC 5681 §3.2, RACK of RFC 8985): about a round trip.
    Fast,
    /// A tail-loss probe (RFC 8985 §7): silence, but for less than the least retransmission timeout. In QUIC every
    /// probe timeout (RFC 9002 §6.2), since it has no other.
    Probe,
    /// Silence for at least the least retransmission timeout (RFC 6298). If a single segment is in flight, Linux sends
    /// the probe with that timer; it is reported as a timeout, since the request waits for that long.
    Timeout,
    /// It was not repaired before the request ended.
    Never,
}

impl Repair {
    /// The name in tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast retransmit",
            Self::Probe => "tail-loss probe",
            Self::Timeout => "retransmission timeout",
            Self::Never => "no repair",
        }
    }
}

/// Whose bytes a lost segment carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "whose")]
pub enum Whose {
    /// The request's own, or its response's.
    Own,
    /// Another stream's: head-of-line blocking.
    Other {
        /// The first stream with bytes in the segment, 0 for a frame of the connection.
        stream: u32,
        /// The `x-h2lab-id` of its request, if it had one.
        id: Option<u64>,
    },
    /// Not known, since the connection could not be read: see [`Doubt`](super::Doubt).
    Unnamed,
}

/// What an interval of a request's life was spent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "cause")]
pub enum Cause {
    /// A segment was lost, and later bytes could not be read until it had been sent again (RFC 9293 §3.4). In QUIC: a
    /// packet with bytes of the stream (RFC 9000 §2.2).
    Loss {
        /// Whose bytes it carried.
        #[serde(flatten)]
        whose: Whose,
        /// The packet that was dropped. If its retransmission is lost too, that is a further interval with its own drop.
        drop: Drop,
        /// How the sender detected the loss.
        repair: Repair,
    },
    /// The connection was being set up: TCP, and TLS where it is spoken; or QUIC.
    Handshake {
        /// The packet of the handshake whose loss caused the wait; `None` for the round trips that a handshake needs
        /// anyway.
        drop: Option<Drop>,
    },
    /// Bytes were ready, and the congestion window of TCP or QUIC did not allow them to be sent.
    CongestionWindow {
        /// The last drop that had reduced the window, if any had.
        after: Option<Drop>,
    },
    /// DATA was ready, and the flow-control window of the stream or of the connection, HTTP/2's (RFC 9113 §5.2) or
    /// QUIC's (RFC 9000 §4.1), did not allow it to be sent.
    FlowWindow {
        /// The window of the connection rather than that of the stream.
        connection: bool,
        /// The packet with the WINDOW_UPDATE, or QUIC's `MAX_DATA` or `MAX_STREAM_DATA`, if it was lost.
        drop: Option<Drop>,
    },
    /// It had no connection or no stream: `SETTINGS_MAX_CONCURRENT_STREAMS`, `MAX_STREAMS` of QUIC, or our own limit.
    StreamSlot,
    /// The far end of the link had the request and not yet the response: the server, with a sidecar before it if there is one.
    Server,
    /// The near end had everything that it needed: the generator or the client's sidecar, before or after the link.
    Client,
    /// The link took longer than its least delay: its queue, jitter, or a packet that was overtaken.
    Queue,
    /// The link's least delay.
    Propagation,
    /// No observed event explains it.
    Unknown,
}

/// The name of a cause, without its circumstances: a tail is divided by these names.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema, VariantArray,
)]
#[serde(rename_all = "kebab-case")]
pub enum CauseKind {
    /// Its own segment was lost.
    OwnLoss,
    /// Another stream's segment was lost.
    HeadOfLine,
    /// A segment was lost; the owner of its bytes is unknown.
    UnnamedLoss,
    /// A packet of the handshake was lost.
    HandshakeLoss,
    /// The handshake, without a loss.
    Handshake,
    /// The congestion window.
    CongestionWindow,
    /// The flow-control window.
    FlowWindow,
    /// A connection or a stream slot.
    StreamSlot,
    /// The server.
    Server,
    /// The near end.
    Client,
    /// The queue of the link.
    Queue,
    /// The link's least delay.
    Propagation,
    /// Not known.
    Unknown,
}

impl CauseKind {
    /// All, in the order of tables.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OwnLoss => "own lost segment",
            Self::HeadOfLine => "another stream's lost segment",
            Self::UnnamedLoss => "lost segment",
            Self::HandshakeLoss => "lost in the handshake",
            Self::Handshake => "handshake",
            Self::CongestionWindow => "congestion window",
            Self::FlowWindow => "flow-control window",
            Self::StreamSlot => "stream slot",
            Self::Server => "server",
            Self::Client => "client",
            Self::Queue => "link queue",
            Self::Propagation => "propagation",
            Self::Unknown => "unknown",
        }
    }
}

impl Cause {
    /// Its name.
    pub const fn kind(self) -> CauseKind {
        match self {
            Self::Loss { whose: Whose::Own, .. } => CauseKind::OwnLoss,
            Self::Loss { whose: Whose::Other { .. }, .. } => CauseKind::HeadOfLine,
            Self::Loss { whose: Whose::Unnamed, .. } => CauseKind::UnnamedLoss,
            Self::Handshake { drop: Some(_) } => CauseKind::HandshakeLoss,
            Self::Handshake { drop: None } => CauseKind::Handshake,
            Self::CongestionWindow { .. } => CauseKind::CongestionWindow,
            Self::FlowWindow { .. } => CauseKind::FlowWindow,
            Self::StreamSlot => CauseKind::StreamSlot,
            Self::Server => CauseKind::Server,
            Self::Client => CauseKind::Client,
            Self::Queue => CauseKind::Queue,
            Self::Propagation => CauseKind::Propagation,
            Self::Unknown => CauseKind::Unknown,
        }
    }

    /// The drop in it, if any.
    pub const fn drop(self) -> Option<Drop> {
        match self {
            Self::Loss { drop, .. } => Some(drop),
            Self::Handshake { drop } | Self::FlowWindow { drop, .. } => drop,
            Self::CongestionWindow { after } => after,
            _ => None,
        }
    }
}

impl fmt::Display for Drop {
    /// `down 17`: the packet with index 17 of the downlink.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = if self.direction == Direction::Up { "up" } else { "down" };
        write!(f, "{direction} {}", self.index)
    }
}

impl fmt::Display for Cause {
    /// `stream 5's lost segment (down 17), retransmission timeout`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loss { whose, drop, repair } => {
                match whose {
                    Whose::Own => f.write_str("its own lost segment"),
                    Whose::Other { stream: 0, .. } => {
                        f.write_str("a lost segment of the connection's frames")
                    }
                    Whose::Other { stream, .. } => write!(f, "stream {stream}'s lost segment"),
                    Whose::Unnamed => f.write_str("a lost segment"),
                }?;
                write!(f, " ({drop}), {}", repair.name())
            }
            Self::Handshake { drop: Some(drop) } => write!(f, "a lost packet of the handshake ({drop})"),
            Self::CongestionWindow { after: Some(drop) } => {
                write!(f, "the congestion window, after a loss ({drop})")
            }
            Self::FlowWindow { connection, drop } => {
                write!(f, "the {}'s flow-control window", if *connection { "connection" } else { "stream" })?;
                drop.map_or(Ok(()), |drop| write!(f, ", whose update was lost ({drop})"))
            }
            other => write!(f, "the {}", other.kind().name()),
        }
    }
}

/// A part of a request's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// When it begins.
    pub from: Time,
    /// When it ends; after `from`.
    pub until: Time,
    /// What it was spent on.
    #[serde(flatten)]
    pub cause: Cause,
}

impl Interval {
    /// How long it is.
    pub const fn length(&self) -> Duration {
        self.until.since(self.from)
    }
}

/// Where a request went over the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LinkStream {
    /// The client's port of the TCP or QUIC connection.
    pub client_port: u16,
    /// The server's port.
    pub server_port: u16,
    /// The stream there; `None` if the connection could not be read, or if the request never entered the link.
    pub stream: Option<u32>,
}

/// What a request waited for, from when it was due to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyBreakdown {
    /// Its index among the samples of the repetition.
    pub sample: u32,
    /// When it was due.
    pub scheduled_at: Time,
    /// When it ended.
    pub completed_at: Time,
    /// Where it was sent; `None` if it was not found on the link, or if it never entered the link and had no connection
    /// yet.
    pub place: Option<LinkStream>,
    /// Its time, in order and without gaps from `scheduled_at` to `completed_at`.
    pub intervals: Vec<Interval>,
    /// What most of it was spent on, as returned by [`dominant`].
    pub dominant: CauseKind,
}

/// The kind that is reported as *the* cause: the one that took most of the time. The link's least delay is left out,
/// since every request has it, unless all else is less than a tenth of the whole.
pub fn dominant(intervals: &[Interval]) -> CauseKind {
    let whole: Duration = intervals.iter().map(Interval::length).sum();
    let spent = |kind: CauseKind| -> Duration {
        intervals.iter().filter(|interval| interval.cause.kind() == kind).map(Interval::length).sum()
    };
    let avoidable = CauseKind::ALL.iter().copied().filter(|kind| *kind != CauseKind::Propagation);
    let first_most = avoidable
        .map(|kind| (spent(kind), kind))
        .reduce(|best, next| if next.0 > best.0 { next } else { best });
    let (time, kind) = first_most.expect("there are kinds");
    if time * 10 >= whole && !time.is_zero() { kind } else { CauseKind::Propagation }
}

impl LatencyBreakdown {
    /// The breakdown of the sample at this index, with its intervals in order.
    pub(super) fn new(
        index: usize,
        sample: &Sample,
        place: Option<LinkStream>,
        intervals: Vec<Interval>,
    ) -> Self {
        Self {
            sample: index as u32,
            scheduled_at: sample.scheduled_at,
            completed_at: sample.completed_at,
            place,
            dominant: dominant(&intervals),
            intervals,
        }
    }

    /// The longest interval of the dominant cause.
    pub fn main(&self) -> Option<&Interval> {
        let of_kind = self.intervals.iter().filter(|interval| interval.cause.kind() == self.dominant);
        of_kind.reduce(|best, next| if next.length() > best.length() { next } else { best })
    }

    /// Whether the request is known never to have entered the link: then all of its time has a cause, and none is a
    /// cause in the link.
    pub fn never_went(&self) -> bool {
        let has_gone = |interval: &Interval| matches!(interval.cause, Cause::Propagation | Cause::Unknown);
        self.place.and_then(|place| place.stream).is_none() && !self.intervals.iter().any(has_gone)
    }
}

impl fmt::Display for LatencyBreakdown {
    /// One line per interval: `12.5 ms  the propagation`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for interval in &self.intervals {
            writeln!(f, "{:>9.3} ms  {}", millis_f64(interval.length()), interval.cause)?;
        }
        Ok(())
    }
}

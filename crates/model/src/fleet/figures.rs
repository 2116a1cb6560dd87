//! The figures of a pair and of its server, small enough to be sent.

use h2lab_base::JsonSchema;
use h2lab_base::counters::TcpSummary;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::bulk::rate::cpu_per_gb;
use crate::bulk::{Binding, ByteMeter, FrameFigures, RateSpread, TransferOutcome};

/// The largest sound count: a pebibyte, which takes a day at 100 Gbit/s. Ten thousand of them can be added up.
pub(super) const MOST_COUNT: u64 = 1 << 50;

/// The longest sound time, in nanoseconds: 36 years.
const MOST_NANOS: u128 = 1 << 60;

/// Files that ended in the same way. Every file is counted in one of these.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ending {
    /// `complete`, `partial` or `failed`; why, and of a failure whose fault it was.
    #[serde(flatten)]
    pub outcome: TransferOutcome,
    /// How many.
    pub files: u64,
    /// Bytes of them that came.
    pub bytes: u64,
}

/// The result of a pair. Times are those of the client's clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PairFigures {
    /// How its files ended, in the order in which each first occurred.
    pub endings: Vec<Ending>,
    /// Bytes over time.
    pub meter: ByteMeter,
    /// Rates of its streams, each over its own time.
    pub per_stream: Option<RateSpread>,
    /// Streams that ended before all of theirs had come.
    pub broken_streams: u64,
    /// Connections that were dialled.
    pub connections: u64,
    /// Frames of the data and the credit returned for it.
    pub frames: FrameFigures,
    /// The longest frame that the client accepted; `None` in HTTP/1.1.
    pub max_frame_size: Option<u32>,
    /// Bytes of a stream window after which it returned credit; `None` in HTTP/1.1.
    pub update_bytes: Option<u32>,
    /// What held most of its bytes back.
    pub limit: Option<Binding>,
    /// CPU time of the client's thread that fetched it, and did only that.
    pub cpu: Duration,
    /// Whether it was stopped before its time was over.
    pub interrupted: bool,
    /// In sum, for how long the client's thread did not run although it had to: its process was stopped, or its machine was.
    pub paused: Duration,
}

impl PairFigures {
    /// Bytes that arrived, whatever the outcome of their files.
    pub fn bytes(&self) -> u64 {
        self.endings.iter().map(|ending| ending.bytes).sum()
    }

    /// Whether its numbers can be added up, also with those of other pairs: they come from another machine. More than a pebibyte
    /// (2^50 bytes) is refused.
    pub fn is_sound(&self) -> bool {
        let files = self.endings.iter().map(|ending| u128::from(ending.files.max(ending.bytes)));
        let intervals = self.meter.intervals().iter().map(|&bytes| u128::from(bytes));
        let frames =
            [self.frames.data, self.frames.data_bytes, self.frames.updates, self.frames.update_bytes];
        let frames = frames.into_iter().map(u128::from);
        [files.sum::<u128>(), intervals.sum(), frames.sum()].iter().all(|sum| *sum <= u128::from(MOST_COUNT))
            && self.cpu.as_nanos() <= MOST_NANOS
    }

    /// Whether something went wrong: a file failed, or nothing came.
    pub fn is_failed(&self) -> bool {
        let failed = |ending: &Ending| matches!(ending.outcome, TransferOutcome::Failed { .. });
        self.bytes() == 0 || self.endings.iter().any(failed)
    }
}

/// The cost of serving, from when the server listened until it was stopped.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ServerFigures {
    /// CPU time of its thread, which does only that.
    pub cpu: Duration,
    /// Bytes of HTTP that it sent, before they were encrypted: bodies, heads, frames. Bytes still in flight when its client
    /// stopped are among them.
    pub sent: u64,
    /// Bytes of request bodies that it took, those of uploads that were cut among them.
    #[serde(default)]
    pub received: u64,
    /// Connections that it accepted.
    pub connections: u64,
    /// Segments that its kernel retransmitted, over all its TCP connections; `None` over QUIC, and if the kernel does not report
    /// it.
    pub retransmits: Option<u64>,
    /// Congestion control of what it sent; `None` if nobody connected.
    pub congestion: Option<String>,
    /// In sum, for how long its thread did not run although it had to.
    pub paused: Duration,
    /// Its kernel's counts of the TCP connection over which most was acknowledged, at its end.
    #[serde(default)]
    pub busiest: Option<TcpSummary>,
}

impl ServerFigures {
    /// CPU seconds per GB (10^9 bytes) of what it sent and took together: of transfers one of the two is next to nothing. `None` if
    /// there was neither.
    pub fn cpu_per_gb(&self) -> Option<f64> {
        cpu_per_gb(self.cpu, self.sent.saturating_add(self.received))
    }

    /// Whether its numbers can be added up and its texts be printed: they come from another machine.
    pub fn is_sound(&self) -> bool {
        /// Four times the maximum of Linux (`TCP_CA_NAME_MAX`).
        const LONGEST_NAME: usize = 64;
        let numbers = [self.sent, self.received, self.connections, self.retransmits.unwrap_or(0)];
        let is_name =
            |name: &String| name.len() <= LONGEST_NAME && name.chars().all(|c| c.is_ascii_graphic());
        let busiest = self.busiest.as_ref();
        numbers.iter().all(|number| *number <= MOST_COUNT)
            && self.cpu.as_nanos() <= MOST_NANOS
            && self.congestion.as_ref().is_none_or(is_name)
            && busiest.is_none_or(|end| is_name(&end.congestion_control) && end.bytes_acked <= MOST_COUNT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::testing as fleet;

    #[test]
    fn what_a_server_spent_is_per_gb_that_it_sent_or_took_and_sound_or_nothing() {
        let figures = fleet::server_figures();
        assert!(figures.is_sound());
        assert_eq!(figures.cpu_per_gb(), Some(0.5));
        assert_eq!(ServerFigures { sent: 0, ..figures.clone() }.cpu_per_gb(), None);
        let taken = ServerFigures { sent: 0, received: figures.sent, ..figures.clone() };
        assert_eq!(taken.cpu_per_gb(), Some(0.5));
        let most = MOST_COUNT;
        assert!(ServerFigures { sent: most, retransmits: Some(most), ..figures.clone() }.is_sound());
        for wrong in [
            ServerFigures { sent: most + 1, ..figures.clone() },
            ServerFigures { received: most + 1, ..figures.clone() },
            ServerFigures { connections: u64::MAX, ..figures.clone() },
            ServerFigures { retransmits: Some(most + 1), ..figures.clone() },
            ServerFigures { cpu: Duration::MAX, ..figures.clone() },
            ServerFigures { congestion: Some("cubic\u{1b}[2J".to_owned()), ..figures.clone() },
            ServerFigures { congestion: Some("x".repeat(65)), ..figures.clone() },
            ServerFigures {
                busiest: Some(TcpSummary { congestion_control: "x".repeat(65), ..TcpSummary::default() }),
                ..figures.clone()
            },
            ServerFigures {
                busiest: Some(TcpSummary { bytes_acked: most + 1, ..TcpSummary::default() }),
                ..figures
            },
        ] {
            assert!(!wrong.is_sound(), "{wrong:?}");
        }
    }

    #[test]
    fn what_is_sound_of_each_pair_can_be_added_up_over_all() {
        let with = |bytes: u64, cpu: Duration| {
            let mut figures = fleet::figures(0, 0, 1);
            figures.endings[0].bytes = bytes;
            PairFigures { cpu, ..figures }
        };
        // The other ending has one file and no byte: the larger of both counts.
        let (most, longest) = (MOST_COUNT - 1, Duration::from_nanos(1 << 60));
        assert!(with(most, longest).is_sound());
        assert!(!with(most + 1, longest).is_sound());
        assert!(!with(most, longest + Duration::from_nanos(1)).is_sound());
        assert!(MOST_COUNT.checked_mul(10_000).is_some());
    }
}

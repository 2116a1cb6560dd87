//! What came of a pair, small enough to be sent.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::bulk::{Binding, BulkRecord, FrameFigures, Further, Meter, Spread, Summary, TransferOutcome};

/// Files that ended in the same way. Of thousands each has its place in one of these: none is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    /// How.
    #[serde(flatten)]
    pub outcome: TransferOutcome,
    /// How many.
    pub files: u64,
    /// Bytes of them that came.
    pub bytes: u64,
}

/// What came of a pair. Times are those of the client's clock.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PairFigures {
    /// How its files ended, in the order in which each way was first met.
    pub endings: Vec<Ending>,
    /// Bytes over time.
    pub meter: Meter,
    /// Rates of its streams, each over its own time.
    pub per_stream: Option<Spread>,
    /// Streams that ended before all of theirs had come.
    pub broken_streams: u64,
    /// Connections that were dialled.
    pub connections: u64,
    /// Frames of the data and the credit returned for it.
    pub frames: FrameFigures,
    /// The longest frame that the client let in; `None` in HTTP/1.1.
    pub max_frame_size: Option<u32>,
    /// Bytes of a stream window after which it returned credit; `None` in HTTP/1.1.
    pub update_bytes: Option<u32>,
    /// What held most of its bytes back.
    pub limit: Option<Binding>,
    /// CPU time of the client's process in that time; pairs of one process cannot be told apart.
    pub cpu: Duration,
    /// Whether it was told to stop before its time was over.
    pub interrupted: bool,
}

impl PairFigures {
    /// Of a record of `bulk get`.
    pub fn of(record: &BulkRecord) -> Self {
        let summary = Summary::of(record);
        let mut endings: Vec<Ending> = Vec::new();
        for transfer in &record.transfers {
            let known = endings.iter_mut().find(|ending| ending.outcome == transfer.outcome);
            match known {
                Some(ending) => {
                    (ending.files, ending.bytes) = (ending.files + 1, ending.bytes + transfer.bytes);
                }
                None => endings.push(Ending {
                    outcome: transfer.outcome.clone(),
                    files: 1,
                    bytes: transfer.bytes,
                }),
            }
        }
        let Further { files, bytes, .. } = record.further;
        if files > 0 {
            let is_complete = |ending: &&mut Ending| ending.outcome == TransferOutcome::Complete;
            match endings.iter_mut().find(is_complete) {
                Some(ending) => (ending.files, ending.bytes) = (ending.files + files, ending.bytes + bytes),
                None => endings.push(Ending { outcome: TransferOutcome::Complete, files, bytes }),
            }
        }
        Self {
            endings,
            meter: record.meter.clone(),
            per_stream: summary.per_stream,
            broken_streams: summary.broken_streams,
            connections: record.connections.len() as u64,
            frames: record.frames,
            max_frame_size: record.asked.max_frame_size,
            update_bytes: record.asked.update_bytes,
            limit: summary.binding().map(|bound| bound.binding.clone()),
            cpu: record.cpu,
            interrupted: record.interrupted,
        }
    }

    /// Bytes that came, whatever became of their files.
    pub fn bytes(&self) -> u64 {
        self.endings.iter().map(|ending| ending.bytes).sum()
    }

    /// Whether its numbers can be added up: they come from another machine. More than an exabyte (2^60 bytes) is no figure.
    pub fn is_sound(&self) -> bool {
        let files = self.endings.iter().map(|ending| u128::from(ending.files.max(ending.bytes)));
        let intervals = self.meter.intervals().iter().map(|&bytes| u128::from(bytes));
        let frames =
            [self.frames.data, self.frames.data_bytes, self.frames.updates, self.frames.update_bytes];
        let frames = frames.into_iter().map(u128::from);
        [files.sum::<u128>(), intervals.sum(), frames.sum()].iter().all(|sum| *sum <= 1 << 60)
    }

    /// Whether something went wrong: a file failed, or nothing came.
    pub fn is_failed(&self) -> bool {
        let failed = |ending: &Ending| matches!(ending.outcome, TransferOutcome::Failed { .. });
        self.bytes() == 0 || self.endings.iter().any(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bulk::testing;

    #[test]
    fn no_file_and_no_byte_of_a_record_is_left_out() {
        let mut record = testing::record();
        let again = record.transfers[1].clone();
        record.transfers.push(again);
        let figures = PairFigures::of(&record);
        assert_eq!(figures.bytes(), record.transfers.iter().map(|transfer| transfer.bytes).sum::<u64>());
        let files: Vec<u64> = figures.endings.iter().map(|ending| ending.files).collect();
        assert_eq!(files, [1, 2, 1], "the two that failed alike stand together");
        assert!(figures.is_failed());
    }

    #[test]
    fn figures_that_nobody_could_add_up_are_not_sound() {
        let mut figures = PairFigures::of(&testing::record());
        assert!(figures.is_sound());
        figures.endings.iter_mut().for_each(|ending| ending.bytes = 1 << 63);
        assert!(!figures.is_sound());
        let mut figures = PairFigures::of(&testing::record());
        figures.meter.add(figures.meter.ended(), 1 << 60);
        assert!(!figures.is_sound());
    }

    #[test]
    fn a_pair_of_which_nothing_is_known_has_failed_and_one_that_was_cut_has_not() {
        let mut record = testing::record();
        record.transfers.retain(|transfer| !matches!(transfer.outcome, TransferOutcome::Failed { .. }));
        assert!(!PairFigures::of(&record).is_failed());
        record.transfers.iter_mut().for_each(|transfer| transfer.bytes = 0);
        assert!(PairFigures::of(&record).is_failed(), "it was cut before a byte came");
        record.transfers.clear();
        assert!(PairFigures::of(&record).is_failed());
    }
}

//! An agent's report on a pair.

use h2lab_model::bulk::{BulkRecord, Overflow, TransferOutcome};
use h2lab_model::fleet::{Ending, PairFigures};

use crate::bulk::BulkSummary;

/// The figures of a pair, of its record.
pub fn pair_figures(record: &BulkRecord) -> PairFigures {
    let summary = BulkSummary::of(record);
    let mut endings: Vec<Ending> = Vec::new();
    for transfer in &record.transfers {
        let known = endings.iter_mut().find(|ending| ending.outcome == transfer.outcome);
        match known {
            Some(ending) => {
                (ending.files, ending.bytes) = (ending.files + 1, ending.bytes + transfer.bytes);
            }
            None => {
                endings.push(Ending { outcome: transfer.outcome.clone(), files: 1, bytes: transfer.bytes });
            }
        }
    }
    let Overflow { files, bytes, .. } = record.overflow;
    if files > 0 {
        let is_complete = |ending: &&mut Ending| ending.outcome == TransferOutcome::Complete;
        match endings.iter_mut().find(is_complete) {
            Some(ending) => (ending.files, ending.bytes) = (ending.files + files, ending.bytes + bytes),
            None => endings.push(Ending { outcome: TransferOutcome::Complete, files, bytes }),
        }
    }
    PairFigures {
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
        paused: record.paused,
    }
}

#[cfg(test)]
mod tests {
    use h2lab_model::bulk::testing as bulk;

    use super::*;

    #[test]
    fn no_file_and_no_byte_of_a_record_is_left_out() {
        let mut record = bulk::record();
        let again = record.transfers[1].clone();
        record.transfers.push(again);
        let figures = pair_figures(&record);
        assert_eq!(figures.bytes(), record.transfers.iter().map(|transfer| transfer.bytes).sum::<u64>());
        let files: Vec<u64> = figures.endings.iter().map(|ending| ending.files).collect();
        assert_eq!(files, [1, 2, 1], "the two that failed alike stand together");
        assert!(figures.is_failed());
    }

    #[test]
    fn figures_that_nobody_could_add_up_are_not_sound() {
        let mut figures = pair_figures(&bulk::record());
        assert!(figures.is_sound());
        figures.endings.iter_mut().for_each(|ending| ending.bytes = 1 << 63);
        assert!(!figures.is_sound());
        let mut figures = pair_figures(&bulk::record());
        figures.meter.add(figures.meter.ended(), 1 << 60);
        assert!(!figures.is_sound());
    }

    #[test]
    fn a_pair_of_which_nothing_is_known_has_failed_and_one_that_was_cut_has_not() {
        let mut record = bulk::record();
        record.transfers.retain(|transfer| !matches!(transfer.outcome, TransferOutcome::Failed { .. }));
        assert!(!pair_figures(&record).is_failed());
        record.transfers.iter_mut().for_each(|transfer| transfer.bytes = 0);
        assert!(pair_figures(&record).is_failed(), "it was cut before a byte came");
        record.transfers.clear();
        assert!(pair_figures(&record).is_failed());
    }
}

//! The distribution of response times, as a few bars for a terminal.

use std::time::Duration;

use super::Latency;

/// A bar of the histogram of response times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistogramBar {
    /// Response times up to this, and above the limit of the bar before.
    pub up_to: Duration,
    /// How many.
    pub count: u64,
}

/// Ten bars of equal width from the shortest to the longest, as in hey; one if all times are the same.
pub fn bars(response: &Latency) -> Vec<HistogramBar> {
    const BARS: u32 = 10;
    let counted = response.histogram();
    let Some((shortest, longest)) = counted.extremes() else { return Vec::new() };
    let width = longest.saturating_sub(shortest) / BARS;
    if width.is_zero() {
        return vec![HistogramBar { up_to: longest, count: counted.n() }];
    }
    let mut bars: Vec<HistogramBar> =
        (1..=BARS).map(|k| HistogramBar { up_to: shortest + width * k, count: 0 }).collect();
    bars[BARS as usize - 1].up_to = longest;
    for &(from_ns, count) in counted.buckets() {
        let above = Duration::from_nanos(from_ns).saturating_sub(shortest);
        let bar = above.as_nanos() / width.as_nanos();
        bars[(bar as usize).min(BARS as usize - 1)].count += count;
    }
    bars
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::CellSummary;
    use h2lab_model::record::testing::{Model, cell, one_repetition};
    use h2lab_model::workload::Protocol;

    #[test]
    fn every_request_is_in_one_bar_and_bars_are_equally_wide() {
        let record = one_repetition(&cell(0, 0, Protocol::H2c, 4, 0.03), 0, &Model::LOSSY_SHARED);
        let all = bars(&CellSummary::of(&[&record]).response);
        assert_eq!((all.len(), all.iter().map(|bar| bar.count).sum::<u64>()), (10, 3000));
        let widths: Vec<u128> =
            all.windows(2).map(|pair| pair[1].up_to.saturating_sub(pair[0].up_to).as_micros()).collect();
        assert!(widths.iter().all(|width| width.abs_diff(widths[0]) <= 1), "{widths:?}");
        assert_eq!(bars(&Latency::new([Duration::from_millis(3); 5])).len(), 1);
        assert_eq!(bars(&Latency::default()), []);
    }
}

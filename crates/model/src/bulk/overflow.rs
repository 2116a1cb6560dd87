//! Files of a long run that are not listed one by one: only their sums are kept, so that no run fills the memory.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::rate::bits_per_second;
use super::{TransferOutcome, TransferRecord};
use h2lab_base::units::Time;

/// Rates that differ by less than a hundredth are counted together.
const STEP: f64 = 1.01;

/// Files that are complete, beyond those that are listed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Overflow {
    /// How many.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Requests that carried them.
    pub streams: u64,
    /// Of those, the ones that ended early.
    pub broken_streams: u64,
    /// How many of the streams had which rate: key `n` is 1.01^n bits per second.
    rates: BTreeMap<u32, u64>,
    /// The lowest and the highest of those rates.
    extremes: Option<(f64, f64)>,
    /// What each connection carried of them.
    pub connections: BTreeMap<u32, Share>,
}

/// What a connection carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// When the first byte came.
    pub from: Time,
    /// When the last request ended.
    pub until: Time,
    /// Bytes.
    pub bytes: u64,
}

impl Overflow {
    /// Adds a file that is complete; incomplete ones are always listed.
    pub fn add(&mut self, transfer: &TransferRecord) {
        debug_assert!(transfer.outcome == TransferOutcome::Complete, "it is listed");
        self.files += 1;
        self.bytes += transfer.bytes;
        for part in &transfer.parts {
            self.streams += 1;
            self.broken_streams += u64::from(!part.is_complete);
            if let Some(rate) = bits_per_second(part.bytes, part.ended_at.since(part.sent_at)) {
                *self.rates.entry(rate.max(1.0).log(STEP).round() as u32).or_default() += 1;
                let (least, most) = self.extremes.unwrap_or((rate, rate));
                self.extremes = Some((least.min(rate), most.max(rate)));
            }
            if part.first_byte_at.happened() {
                let none = Share { from: Time::NEVER, until: Time::ZERO, bytes: 0 };
                let share = self.connections.entry(part.connection).or_insert(none);
                share.from = share.from.min(part.first_byte_at);
                share.until = share.until.max(part.ended_at);
                share.bytes += part.bytes;
            }
        }
    }

    /// The rates of its streams and how many had each. They are accurate to half a percent; the extremes are exact.
    pub fn rates(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let (least, most) = self.extremes.unwrap_or_default();
        let highest_at = self.rates.len().saturating_sub(1);
        self.rates.iter().enumerate().flat_map(move |(n, (&key, &count))| {
            let rate = STEP.powi(i32::try_from(key).unwrap_or(i32::MAX)).clamp(least, most);
            // The extremes are exact: one stream each.
            let lowest = u64::from(n == 0);
            let highest = u64::from(n == highest_at && count > lowest);
            [(least, lowest), (rate, count - lowest - highest), (most, highest)]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bulk::{RateSpread, testing};

    #[test]
    fn what_is_not_listed_is_counted_to_the_byte_and_its_rates_to_a_hundredth() {
        let mut transfer = testing::record().transfers.swap_remove(0);
        assert_eq!(transfer.outcome, TransferOutcome::Complete);
        transfer.parts.truncate(1);
        let mut overflow = Overflow::default();
        let mut rates = Vec::new();
        for n in 1..=1000 {
            let part = &mut transfer.parts[0];
            (part.sent_at, part.first_byte_at) = (Time::from_millis(0), Time::from_millis(1));
            (part.ended_at, part.bytes) = (Time::from_millis(1000), 1000 * n);
            transfer.bytes = part.bytes;
            rates.push(8000.0 * n as f64);
            overflow.add(&transfer);
        }
        assert_eq!((overflow.files, overflow.streams, overflow.bytes), (1000, 1000, 500_500_000));
        let exact = RateSpread::of(rates).unwrap();
        let rendered = RateSpread::weighted(overflow.rates()).unwrap();
        assert_eq!((rendered.n, rendered.min, rendered.max), (exact.n, exact.min, exact.max));
        assert!((rendered.median / exact.median - 1.0).abs() < 0.011, "{rendered:?}");
        let share = overflow.connections.values().next().unwrap();
        assert_eq!((overflow.connections.len(), share.bytes), (1, overflow.bytes));
        let text = serde_json::to_string(&overflow).unwrap();
        assert_eq!(serde_json::from_str::<Overflow>(&text).unwrap(), overflow);
    }
}

//! How a value is written: units, ranges, rounding.

use serde::Deserialize;

/// The unit in which a product takes a value. Callers give bytes, counts or milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Unit {
    /// Bytes.
    #[serde(rename = "bytes")]
    Bytes,
    /// 1,024 bytes.
    #[serde(rename = "KiB")]
    Kib,
    /// The exponent of a window of 2^n - 1 bytes.
    #[serde(rename = "bits")]
    Bits,
    /// A number of things.
    #[serde(rename = "count")]
    Count,
    /// Seconds.
    #[serde(rename = "s")]
    Seconds,
    /// Milliseconds.
    #[serde(rename = "ms")]
    Millis,
}

/// A value as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// In the unit of the setting.
    pub number: u64,
    /// Whether the range of the setting ends below what was wanted.
    pub is_capped: bool,
}

impl Unit {
    /// `wanted` in this unit, never less than wanted unless `range` ends below it.
    pub fn write(self, wanted: u64, range: Option<(u64, u64)>) -> Written {
        let number = match self {
            Self::Bytes | Self::Count | Self::Millis => wanted,
            Self::Kib => wanted.div_ceil(1 << 10),
            Self::Bits => (0..63).find(|bits| (1 << bits) > wanted).unwrap_or(63),
            Self::Seconds => wanted.div_ceil(1_000),
        };
        let (least, most) = range.unwrap_or((0, u64::MAX));
        Written { number: number.clamp(least, most), is_capped: number > most }
    }

    /// A number of this unit in bytes, a count or milliseconds.
    pub(super) fn base(self, number: u64) -> u64 {
        match self {
            Self::Bytes | Self::Count | Self::Millis => number,
            Self::Kib => number.saturating_mul(1 << 10),
            Self::Bits => 1_u64.checked_shl(number as u32).map_or(u64::MAX, |above| above - 1),
            Self::Seconds => number.saturating_mul(1_000),
        }
    }

    /// A configuration's value in bytes, a count or milliseconds: `64k`, `75s`, `1000`. `None` if it is no such value.
    pub(super) fn read(self, text: &str) -> Option<u64> {
        let text = text.trim_end_matches(';').trim_matches(['"', '\'']);
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let number: u64 = text[..end].parse().ok()?;
        let suffix = &text[end..];
        let is_time = matches!(self, Self::Seconds | Self::Millis);
        if let Some(next) = suffix.find(|c: char| c.is_ascii_digit()).filter(|_| is_time) {
            // Such as `1h30m`.
            let (first, rest) = text.split_at(end + next);
            return Some(self.read(first)?.saturating_add(self.read(rest)?));
        }
        let factor = match (self, suffix.to_ascii_lowercase().as_str()) {
            (Self::Bits, "") => return Some(self.base(number)),
            (Self::Bytes | Self::Kib, "k") | (Self::Bytes, "kib") => 1 << 10,
            (Self::Bytes | Self::Kib, "m") | (Self::Bytes, "mib") => 1 << 20,
            (Self::Bytes | Self::Kib, "g") | (Self::Bytes, "gib") => 1 << 30,
            (Self::Bytes, "mb") => 1_000_000,
            (Self::Bytes, "gb") => 1_000_000_000,
            (Self::Bytes, "b")
            | (Self::Seconds | Self::Millis, "ms")
            | (Self::Millis | Self::Bytes | Self::Kib | Self::Count, "") => 1,
            (Self::Bytes, "kb") | (Self::Seconds, "") | (Self::Seconds | Self::Millis, "s") => 1_000,
            (Self::Seconds | Self::Millis, "m") => 60_000,
            (Self::Seconds | Self::Millis, "h") => 3_600_000,
            (Self::Seconds | Self::Millis, "d") => 86_400_000,
            _ => return None,
        };
        Some(number.saturating_mul(factor))
    }
}

/// A size that people write: `bytes` rounded up to an eighth of the power of two below it, so by less than 13 %.
pub fn rounded_up(bytes: u64) -> u64 {
    let step = 1_u64 << bytes.checked_ilog2().unwrap_or(0).saturating_sub(3);
    bytes.checked_next_multiple_of(step).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(unit: Unit, wanted: u64) -> u64 {
        unit.write(wanted, None).number
    }

    #[test]
    fn each_unit_is_rounded_up_and_never_below_what_is_wanted() {
        assert_eq!((number(Unit::Bytes, 70_000), number(Unit::Count, 7)), (70_000, 7));
        assert_eq!((number(Unit::Kib, 65_536), number(Unit::Kib, 65_537)), (64, 65));
        assert_eq!((number(Unit::Bits, 65_535), number(Unit::Bits, 65_536)), (16, 17));
        assert_eq!((number(Unit::Seconds, 1_000), number(Unit::Seconds, 1_001)), (1, 2));
        assert_eq!(number(Unit::Millis, 1_500), 1_500);
    }

    #[test]
    fn a_range_bounds_the_value_and_says_when_it_ends_below_the_wanted_one() {
        let range = Some((4_096, 65_536));
        assert_eq!(Unit::Bytes.write(65_536, range), Written { number: 65_536, is_capped: false });
        assert_eq!(Unit::Bytes.write(65_537, range), Written { number: 65_536, is_capped: true });
        assert_eq!(Unit::Bytes.write(1, range), Written { number: 4_096, is_capped: false });
    }

    #[test]
    fn sizes_are_rounded_up_by_less_than_an_eighth() {
        let expected = [(0, 0), (5, 5), (117_494, 122_880), (131_070, 131_072), (62_500_000, 62_914_560)];
        for (bytes, rounded) in expected {
            assert_eq!(rounded_up(bytes), rounded);
        }
        for bytes in [1, 9, 65_535, 65_536, 1 << 40, u64::MAX - 9] {
            assert!(rounded_up(bytes) >= bytes && rounded_up(bytes) - bytes <= bytes / 8, "{bytes}");
        }
    }
}

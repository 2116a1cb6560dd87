//! The number formats of all reports.

use std::time::Duration;

use h2lab_base::units::millis_f64;

/// `1,234,567`.
pub(super) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A larger value is the end of an interval that is open on that side.
const MOST: f64 = 1e12;

/// A number with three significant digits and thousands separated: `0.231`, `25.1`, `1,230`; a whole one without
/// decimals.
pub(super) fn number(value: f64) -> String {
    match value {
        v if v > MOST => "∞".to_owned(),
        v if v >= 0.0 && v.fract() == 0.0 => count(v as u64),
        v if v >= 99.95 => count(v.round() as u64),
        v if v >= 9.995 => format!("{v:.1}"),
        v if v >= 0.9995 => format!("{v:.2}"),
        v if v >= 0.0005 => format!("{v:.3}"),
        v if v > 0.0 => small(v),
        _ => "0".to_owned(),
    }
}

/// A number above 0 and below 1 with two significant digits: it is never written as 0.
fn small(value: f64) -> String {
    let decimals = (1.0 - value.log10().floor()) as usize;
    format!("{value:.decimals$}").trim_end_matches('0').to_owned()
}

/// Milliseconds without their unit, for columns: `25.1`.
pub(super) fn millis(duration: Duration) -> String {
    number(millis_f64(duration))
}

/// Milliseconds with their unit, for sentences: `25.1 ms`.
pub(super) fn millis_unit(duration: Duration) -> String {
    format!("{} ms", millis(duration))
}

/// A bound in milliseconds: `0.2 ms`, `1.04 ms`.
pub(super) fn bound(duration: Duration) -> String {
    format!("{} ms", (millis_f64(duration) * 1e3).round() / 1e3)
}

/// A rate without its unit: `1,000`, `49.8`.
pub(super) fn rate(rps: f64) -> String {
    // An offered rate is a count over a time: 999.97 is printed as 1,000.
    if rps > MOST {
        number(rps)
    } else if rps >= 99.95 {
        count(rps.round() as u64)
    } else if rps > 0.0 && rps < 0.95 {
        small(rps)
    } else {
        format!("{rps:.1}").trim_end_matches(".0").to_owned()
    }
}

/// A ratio: two decimals near 1, three significant digits far from it.
pub(super) fn ratio(ratio: f64) -> String {
    if (0.1..10.0).contains(&ratio) { format!("{ratio:.2}") } else { number(ratio) }
}

/// Bytes in decimal units with three significant digits: `62.9 MB`.
pub(super) fn bytes(bytes: f64) -> String {
    match bytes {
        b if b >= 1e9 => format!("{} GB", number(b / 1e9)),
        b if b >= 1e6 => format!("{} MB", number(b / 1e6)),
        b if b >= 1e4 => format!("{} kB", number(b / 1e3)),
        b => format!("{} B", number(b.round())),
    }
}

/// The singular or plural of a regular noun after its count: `1 repetition`, `2 repetitions`.
pub(super) fn plural(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(n), if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn an_interval_without_an_end_is_no_number() {
        assert_eq!([number(f64::INFINITY), number(f64::MAX), rate(1e300)], ["∞"; 3]);
    }

    #[test]
    fn numbers_keep_three_significant_digits() {
        let values = [0.0, 4.0, 0.0312, 0.9999, 2.345, 9.999, 25.12, 99.96, 263.4, 1234.5];
        let texts = ["0", "4", "0.031", "1.00", "2.35", "10.0", "25.1", "100", "263", "1,235"];
        assert_eq!(values.map(number), texts);
    }

    #[test]
    fn rates_and_ratios_read_naturally() {
        assert_eq!([50.0, 49.83, 999.97].map(rate), ["50", "49.8", "1,000"]);
        assert_eq!([0.0, 0.000_1, 0.05, 0.123, 0.96].map(rate), ["0", "0.0001", "0.05", "0.12", "1"]);
        assert_eq!([0.000_04, 0.000_5, 0.002_1].map(number), ["0.00004", "0.001", "0.002"]);
        assert_eq!([0.95, 1.0, 12.34, 0.0123].map(ratio), ["0.95", "1.00", "12.3", "0.012"]);
    }
}

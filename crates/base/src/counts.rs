//! How counts and figures are written: `1,234,567`, `1 request`, `2 requests`, `25.1`.

/// `1,234,567`.
pub fn count(n: u64) -> String {
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

/// A count with a regular noun: `1 repetition`, `2 repetitions`, `3 successes`.
pub fn plural(n: u64, noun: &str) -> String {
    format!("{} {}", count(n), noun_of(n, noun))
}

/// Only the noun, for where the count is written elsewhere or is not a whole number.
pub fn noun_of(n: u64, noun: &str) -> String {
    let ending = match n {
        1 => "",
        _ if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{noun}{ending}")
}

/// A larger value is the end of an interval that is open on that side.
const MOST: f64 = 1e12;

/// A number with three significant digits and thousands separated: `0.231`, `25.1`, `1,230`; a whole one without
/// decimals.
pub fn number(value: f64) -> String {
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
pub fn small(value: f64) -> String {
    let decimals = (1.0 - value.log10().floor()) as usize;
    format!("{value:.decimals$}").trim_end_matches('0').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn one_is_singular_and_every_other_count_is_plural() {
        let written = |noun| [0, 1, 2, 1_000].map(|n| plural(n, noun));
        assert_eq!(written("file read"), ["0 file reads", "1 file read", "2 file reads", "1,000 file reads"]);
        assert_eq!(written("success")[1..3], ["1 success", "2 successes"]);
    }
}

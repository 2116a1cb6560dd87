//! How counts are written: `1,234,567`, `1 request`, `2 requests`.

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

/// A regular noun behind its count: `1 repetition`, `2 repetitions`, `3 successes`.
pub fn plural(n: u64, noun: &str) -> String {
    format!("{} {}", count(n), noun_of(n, noun))
}

/// The noun alone, where the count stands elsewhere or is no whole number.
pub fn noun_of(n: u64, noun: &str) -> String {
    let ending = match n {
        1 => "",
        _ if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{noun}{ending}")
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

//! The number formats of all reports.

use std::time::Duration;

pub(super) use h2lab_base::counts::{count, noun_of, number, plural, small};
use h2lab_base::units::millis_f64;

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
    let text = millis(duration);
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} ms")
}

/// A rate without its unit: `1,000`, `49.8`.
pub(super) fn rate(rps: f64) -> String {
    // An offered rate is a count over a time: 999.97 is printed as 1,000.
    if rps >= 99.95 {
        number(rps.round())
    } else if rps > 0.0 && rps < 0.95 {
        small(rps)
    } else {
        format!("{rps:.1}").trim_end_matches(".0").to_owned()
    }
}

/// A rate of things: `1 request/s`, `1,000 requests/s`.
pub fn per_second(rps: f64, noun: &str) -> String {
    let text = rate(rps);
    let noun = noun_of(if text == "1" { 1 } else { 2 }, noun);
    format!("{text} {noun}/s")
}

/// Times of an axis in milliseconds, without their unit: with as many digits as distinguish each from the next.
pub(super) fn distinct_millis(times: &[Duration]) -> Vec<String> {
    let differ = |texts: &Vec<String>| texts.windows(2).all(|pair| pair[0] != pair[1]);
    let rounded =
        |decimals: usize| times.iter().map(|time| format!("{:.decimals$}", millis_f64(*time))).collect();
    let usual: Vec<String> = times.iter().map(|time| millis(*time)).collect();
    if differ(&usual) { usual } else { (1..=6).map(rounded).find(differ).unwrap_or(usual) }
}

/// A ratio: two decimals near 1, three significant digits far from it.
pub(super) fn ratio(ratio: f64) -> String {
    if (0.1..10.0).contains(&ratio) { format!("{ratio:.2}") } else { number(ratio) }
}

/// In the place of a ratio whose interval says nothing.
pub(super) const NOT_RESOLVED: &str = "not resolved";
/// An interval that contains 1, and whose upper end is more than this many times the lower one, says nothing.
const WIDEST: f64 = 100.0;

/// The interval of a ratio, the lower end and the upper: `0.82–1.09`; `None` where it says nothing.
pub(super) fn interval_of([_, low, high]: [f64; 3], joint: &str) -> Option<String> {
    let says_nothing = low <= 1.0 && high >= 1.0 && high > low * WIDEST;
    (!says_nothing).then(|| format!("{}{joint}{}", ratio(low), ratio(high)))
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

/// A command line without these flags and their values: `-c 4`, `-c=4`, `-c4`, `--connections 4`, `--connections=4`.
pub fn without_flags(words: &[String], flags: &[&str]) -> Vec<String> {
    let is_joined = |word: &str| {
        flags.iter().any(|flag| {
            let value = word.strip_prefix(flag).unwrap_or_default();
            value.starts_with('=') || (!flag.starts_with("--") && !value.is_empty())
        })
    };
    let mut kept = Vec::new();
    let mut is_value = false;
    for word in words {
        if std::mem::take(&mut is_value) || is_joined(word) {
            continue;
        }
        is_value = flags.contains(&word.as_str());
        if !is_value {
            kept.push(word.clone());
        }
    }
    kept
}

/// A command line as a shell takes it.
pub fn shell_line(words: &[String]) -> String {
    words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ")
}

/// A command line for a shell that repeats what it made: with the seed that was drawn, and without the folder, which would
/// be there already.
pub(super) fn repeated_line(command: &[String], seed: Option<u64>) -> String {
    let has_seed = command.iter().any(|word| word == "--seed" || word.starts_with("--seed="));
    // The folder of the program is of no use elsewhere.
    let program = |word: &str| word.rsplit('/').next().unwrap_or_default().to_owned();
    let words = without_flags(command, &["--out"]);
    let words = words.iter().enumerate();
    let words = words.map(|(n, word)| if n == 0 { program(word) } else { shell_word(word) });
    let seed = seed.filter(|_| !has_seed && !command.is_empty());
    words.chain(seed.map(|seed| format!("--seed {seed}"))).collect::<Vec<_>>().join(" ")
}

/// A word as a shell takes it.
pub(super) fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_goes_with_its_value_however_it_is_written() {
        let without = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            without_flags(&words, &["-c", "--connections"]).join(" ")
        };
        for line in ["a -c 4 b", "a -c=4 b", "a -c4 b", "a --connections 4 b", "a --connections=4 b"] {
            assert_eq!(without(line), "a b", "{line}");
        }
        assert_eq!(without("a --connect x --congestion bbr b"), "a --connect x --congestion bbr b");
    }

    #[test]
    fn an_interval_without_an_end_is_no_number() {
        assert_eq!([number(f64::INFINITY), number(f64::MAX), rate(1e300)], ["∞"; 3]);
    }

    #[test]
    fn an_interval_that_says_nothing_is_not_resolved() {
        let said = |low, high| interval_of([1.0, low, high], "–");
        assert_eq!(said(0.46, 46.0).as_deref(), Some("0.46–46"));
        assert_eq!(said(0.46, 46.1), None);
        assert_eq!(said(0.46, 216_813.0), None);
        assert_eq!(said(1.1, 216_813.0).as_deref(), Some("1.10–216,813"), "it is slower, by whatever");
    }

    #[test]
    fn a_command_line_is_what_a_shell_takes() {
        let words =
            ["h2lab", "load", "--fail-if", "errors > 1%", "http://a/?b=c&d", "it's", ""].map(str::to_owned);
        assert_eq!(shell_line(&words), r"h2lab load --fail-if 'errors > 1%' 'http://a/?b=c&d' 'it'\''s' ''");
    }

    #[test]
    fn numbers_keep_three_significant_digits() {
        let values = [0.0, 4.0, 0.0312, 0.9999, 2.345, 9.999, 25.12, 99.96, 263.4, 1234.5];
        let texts = ["0", "4", "0.031", "1.00", "2.35", "10.0", "25.1", "100", "263", "1,235"];
        assert_eq!(values.map(number), texts);
    }

    #[test]
    fn times_of_an_axis_differ_as_the_times_do() {
        let texts = |micros: &[u64]| {
            distinct_millis(&micros.iter().map(|us| Duration::from_micros(*us)).collect::<Vec<_>>())
        };
        assert_eq!(texts(&[25_120, 26_340]), ["25.1", "26.3"]);
        assert_eq!(texts(&[323_010, 323_120, 324_000]), ["323.0", "323.1", "324.0"]);
        assert_eq!(texts(&[323_010, 323_020]), ["323.01", "323.02"]);
        assert_eq!(texts(&[5, 5]), ["0.005", "0.005"], "they do not differ");
    }

    #[test]
    fn one_a_second_is_singular() {
        assert_eq!(
            [0.4, 1.0, 1.02, 2.0].map(|of| per_second(of, "success")),
            ["0.4 successes/s", "1 success/s", "1 success/s", "2 successes/s"]
        );
    }

    #[test]
    fn rates_and_ratios_read_naturally() {
        assert_eq!([50.0, 49.83, 999.97].map(rate), ["50", "49.8", "1,000"]);
        assert_eq!([0.0, 0.000_1, 0.05, 0.123, 0.96].map(rate), ["0", "0.0001", "0.05", "0.12", "1"]);
        assert_eq!([0.000_04, 0.000_5, 0.002_1].map(number), ["0.00004", "0.001", "0.002"]);
        assert_eq!([0.95, 1.0, 12.34, 0.0123].map(ratio), ["0.95", "1.00", "12.3", "0.012"]);
    }
}

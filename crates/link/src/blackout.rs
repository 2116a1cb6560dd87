//! Times in which no packet passes.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use h2lab_base::units::{ParseQuantityError, format_exact, parse_duration};

/// A time in which every packet that enters is dropped, counted from the start of the link. What entered before
/// still comes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlackOut {
    /// From then on.
    pub from: Duration,
    /// Up to, but not including, then.
    pub to: Duration,
}

impl BlackOut {
    /// Whether it has begun and is not over.
    pub fn covers(&self, at: Duration) -> bool {
        self.from <= at && at < self.to
    }
}

impl FromStr for BlackOut {
    type Err = ParseQuantityError;

    /// `2s..2.5s`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || ParseQuantityError::new(text, "a black-out (FROM..TO, such as 2s..2.5s)");
        let (from, to) = text.split_once("..").ok_or_else(refuse)?;
        let (from, to) = (parse_duration(from)?, parse_duration(to)?);
        if from < to { Ok(Self { from, to }) } else { Err(refuse()) }
    }
}

impl fmt::Display for BlackOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", format_exact(self.from), format_exact(self.to))
    }
}

super::text_form!(BlackOut);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_with_its_first_moment_and_is_over_at_its_last() {
        let blackout: BlackOut = "2s..2.5s".parse().unwrap();
        for (millis, is_dark) in [(1_999, false), (2_000, true), (2_499, true), (2_500, false)] {
            assert_eq!(blackout.covers(Duration::from_millis(millis)), is_dark, "{millis} ms");
        }
    }

    #[test]
    fn it_parses_as_it_prints_and_does_not_run_backwards() {
        assert_eq!("2s..2.5s".parse::<BlackOut>().unwrap().to_string(), "2s..2500ms");
        for bad in ["2s", "2s..2s", "3s..2s", "..2s", "1s..", "1..2"] {
            assert!(bad.parse::<BlackOut>().is_err(), "{bad}");
        }
    }
}

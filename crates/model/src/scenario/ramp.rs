//! A rate that changes while a cell is measured, in its text form.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::workload::Arrival;
use h2lab_base::units::{ParseQuantityError, format_exact, parse_duration};

/// `FROM..TO/TIME[/STEPS]`: requests per second at the beginning and at the end, how long the change takes, and in how
/// many equal steps it goes (in a straight line if that is not given).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ramp {
    /// Requests per second at the beginning; 0 is allowed.
    pub from: f64,
    /// Requests per second at the end.
    pub to: f64,
    /// How long the change takes.
    pub over: Duration,
    /// Steps, 2 or more; 0 is a straight line.
    pub steps: u32,
}

impl Ramp {
    /// The same for the generator.
    pub fn arrival(self) -> Arrival {
        let Self { from, to, over, steps } = self;
        Arrival::Ramp { from, to, over, steps }
    }
}

impl FromStr for Ramp {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || {
            let mut parts = text.split('/');
            let (from, to) = parts.next()?.split_once("..")?;
            let over = parse_duration(parts.next()?).ok().filter(|over| !over.is_zero())?;
            let steps = match parts.next() {
                None => 0,
                Some(steps) => steps.parse().ok().filter(|steps| (2..=1_000_000).contains(steps))?,
            };
            let rate = |text: &str| text.trim().parse::<f64>().ok().filter(|rate| (0.0..=1e7).contains(rate));
            let (from, to) = (rate(from)?, rate(to)?);
            (parts.next().is_none() && from.max(to) > 0.0).then_some(Self { from, to, over, steps })
        };
        read().ok_or_else(|| {
            ParseQuantityError::new(
                text,
                "a ramp FROM..TO/TIME[/STEPS], such as 100..5000/60s or 100..5000/60s/10",
            )
        })
    }
}

impl fmt::Display for Ramp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}/{}", self.from, self.to, format_exact(self.over))?;
        if self.steps > 0 { write!(f, "/{}", self.steps) } else { Ok(()) }
    }
}

impl Serialize for Ramp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Ramp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_steps_are_read_and_written_alike() {
        for text in ["0..5000/60s", "100..5000/60s/2", "5000..0/1500ms/10"] {
            let ramp: Ramp = text.parse().unwrap();
            assert_eq!(ramp.to_string().parse::<Ramp>().unwrap(), ramp, "{text}");
        }
        let ramp: Ramp = "0.5..20/2s/4".parse().unwrap();
        assert_eq!(ramp, Ramp { from: 0.5, to: 20.0, over: Duration::from_secs(2), steps: 4 });
    }

    #[test]
    fn what_is_no_ramp_is_refused() {
        for text in [
            "",
            "5",
            "0..0/1s",
            "1..2",
            "1..2/0s",
            "1..2/1s/1",
            "1..2/1s/2/3",
            "-1..2/1s",
            "1..nan/1s",
            "1..2e9/1s",
        ] {
            assert!(text.parse::<Ramp>().is_err(), "{text}");
        }
    }
}

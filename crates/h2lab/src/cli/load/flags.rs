//! The flags of `load` that say how much is sent and how fast, by the names that users of other load generators know.

use std::time::Duration;

use clap::Args;
use h2lab_model::record::Level;
use h2lab_model::scenario::Ramp;

use super::super::policy::CongestionArgs;
use super::super::values::{duration, value, whole};
use super::super::work::ArrivalArg;

/// How much load, and over what.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Load")]
pub struct AmountArgs {
    /// Connections [default: 50 of HTTP/1.1, 1 of HTTP/2]
    #[arg(short = 'c', long, value_name = "N", value_parser = whole::<u32>(1..=20_000))]
    pub connections: Option<u32>,
    /// Concurrent requests per HTTP/2 connection [default: 1 with -c, else 100; as many as are due with -q]
    #[arg(short = 'm', long, value_name = "N", value_parser = whole::<u32>(1..=1_000_000))]
    pub streams: Option<u32>,
    /// Stop after this many requests
    #[arg(short = 'n', long, value_name = "N", value_parser = whole::<u64>(1..), conflicts_with = "warmup")]
    pub requests: Option<u64>,
    /// Stop after this time [default: 10s, no end with -n]
    #[arg(short = 'z', short_alias = 'D', long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Threads that generate the load, never more than connections [default: CPUs; one less in open loop]
    #[arg(short = 't', long, value_name = "N", value_parser = whole::<u32>(1..=1024))]
    pub threads: Option<u32>,
    /// Open loop: requests per second in total, due by the clock whatever the server does
    #[arg(short = 'q', short_alias = 'R', long, alias = "qps", value_name = "RATE", value_parser = rate)]
    pub rate: Option<f64>,
    /// Arrival process of an open loop
    #[arg(long, value_name = "SHAPE", requires = "rate")]
    pub arrival: Option<ArrivalArg>,
    /// Open loop whose rate changes linearly or in steps: 100..5000/60s, 100..5000/60s/10
    #[arg(long, value_name = "FROM..TO/TIME[/STEPS]", value_parser = ramp, conflicts_with = "rate")]
    pub ramp: Option<Ramp>,
    /// Time before measuring in which requests are sent but not counted [default: 0s]
    #[arg(long, alias = "warm-up-time", value_name = "TIME", value_parser = duration)]
    pub warmup: Option<Duration>,
    /// Grace period for requests in flight after the last one is sent [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub drain: Option<Duration>,
    /// Cancel a request after this long without a response
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = duration)]
    pub timeout: Duration,
    #[command(flatten)]
    pub socket: CongestionArgs,
    /// Requests to record: full, tail (histograms and the slow ones), hist, or auto (full up to 50,000/s
    /// or 131,072 requests)
    #[arg(long, value_name = "LEVEL", default_value = "auto", value_parser = level)]
    pub record: Record,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u64>(0..))]
    pub seed: u64,
    /// wrk's, ab's and bombardier's: percentiles are always reported, and lengths of responses may vary
    #[arg(long = "latency", alias = "latencies", short_alias = 'l', hide = true, action = clap::ArgAction::Count)]
    _latency: u8,
}

/// `--record`: a level, or `None` for the one that the rate allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Record(pub Option<Level>);

fn level(text: &str) -> Result<Record, String> {
    match text {
        "auto" => Ok(Record(None)),
        text => text
            .parse()
            .map(|level| Record(Some(level)))
            .map_err(|_| format!("`{text}` is not a level of recording (full, tail, hist, auto)")),
    }
}

/// Requests per second: the rates that a schedule can keep in nanoseconds.
fn rate(text: &str) -> Result<f64, String> {
    let rate = text.trim_end_matches("/s").parse().ok().filter(|rate| *rate > 0.0 && *rate <= 10_000_000.0);
    rate.ok_or_else(|| format!("`{text}` is not a rate: requests per second, above 0, at most 10000000"))
}

/// A ramp that does not end at 0: at no rate a load of so many requests would never end.
fn ramp(text: &str) -> Result<Ramp, String> {
    let ramp: Ramp = value(text)?;
    if ramp.to > 0.0 { Ok(ramp) } else { Err(format!("`{text}` ends at rate 0 and would never end")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ramps_are_lines_or_steps() {
        let over = Duration::from_secs(60);
        assert_eq!(ramp("0..5000/60s"), Ok(Ramp { from: 0.0, to: 5000.0, over, steps: 0 }));
        assert_eq!(ramp("100..5000/60s/2"), Ok(Ramp { from: 100.0, to: 5000.0, over, steps: 2 }));
        for bad in ["100..5000", "100/60s", "5..0/60s", "-1..5/60s", "1..2/0s", "1..2/1s/1", "1..2/1s/2/3"] {
            assert!(ramp(bad).unwrap_err().contains(bad), "{bad}");
        }
    }

    #[test]
    fn rates_are_finite_and_above_zero() {
        assert_eq!(rate("0.5"), Ok(0.5));
        assert_eq!(rate("10000000"), Ok(10_000_000.0));
        for bad in ["0", "-1", "10000001", "NaN", "inf", "fast"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }
}

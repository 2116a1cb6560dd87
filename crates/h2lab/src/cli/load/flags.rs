//! The flags of `load` that say what is sent and how fast, by the names that users of other load generators know.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use h2lab_model::record::Level;
use h2lab_model::scenario::{AxisValue, Ramp};
use h2lab_model::workload::{DialPolicy, RequestShape};

use super::super::axes::{ArrivalArg, H2cModeArg};
use super::super::policy::PolicyArgs;
use super::super::protocols::ProtocolArgs;
use super::super::values::{duration, size, value};

/// How much load, and over what.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Load")]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own, as people know them")]
pub struct AmountArgs {
    /// Connections [default: 50 of HTTP/1.1, 1 of HTTP/2]
    #[arg(short = 'c', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub connections: Option<u32>,
    /// Requests at a time on one connection of HTTP/2 [default: 1 with -c, else 100; as many as are due with -q]
    #[arg(short = 'm', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub streams: Option<u32>,
    /// End after so many requests
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "warmup")]
    pub requests: Option<u64>,
    /// End after this time [default: 10s, no end with -n]
    #[arg(short = 'z', long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Threads that generate the load, never more than connections [default: CPUs]
    #[arg(short = 't', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Open loop: requests per second in all, due by the clock whatever the server does
    #[arg(short = 'q', long, value_name = "RATE", value_parser = rate)]
    pub rate: Option<f64>,
    /// How open-loop requests are spread
    #[arg(long, value_name = "SHAPE", requires = "rate")]
    pub arrival: Option<ArrivalArg>,
    /// Open loop whose rate changes, in a straight line or in steps: 100..5000/60s, 100..5000/60s/10
    #[arg(long, value_name = "FROM..TO/TIME[/STEPS]", value_parser = ramp, conflicts_with = "rate")]
    pub ramp: Option<Ramp>,
    /// Time before measuring in which requests are sent but not counted [default: 0s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub warmup: Option<Duration>,
    /// Time after the last request in which answers may still come [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub drain: Option<Duration>,
    /// A request unanswered for this long is cancelled
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = duration)]
    pub timeout: Duration,
    #[command(flatten)]
    pub protocol: ProtocolArgs,
    /// How h2c begins: HTTP/2 at once, or HTTP/1.1 with `Upgrade: h2c`
    #[arg(long, value_name = "MODE")]
    pub h2c_mode: Option<H2cModeArg>,
    /// Connections up to which HTTP/1.1 grows while requests wait [default: -c]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub max_connections: Option<u32>,
    /// What h2, h2c and h3 dial when requests wait and no connection takes them: single-flight (one for all), stampede (one for
    /// each, as Go's net/http)
    #[arg(long, value_name = "POLICY", value_parser = dial_policy)]
    pub dial_policy: Option<DialPolicy>,
    /// Congestion control of our sockets: cubic, bbr, reno … whatever the kernel has (h3: those three)
    ///
    /// It governs what we send. What the server sends, which is nearly all in most loads, is under the server's.
    #[arg(long, value_name = "NAME")]
    pub congestion: Option<String>,
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// What is kept of each request: full, tail (histograms and the slow ones), hist, or auto (full up to 50,000/s
    /// or 131,072 requests)
    #[arg(long, value_name = "LEVEL", default_value = "auto", value_parser = level)]
    pub record: Record,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// `--record`: a level, or `None` for whatever the rate allows.
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

/// What a request is.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Requests")]
pub struct RequestArgs {
    /// File of what to ask for: `URL`, `METHOD URL`, each with `weight=N` if need be, or vegeta's targets
    #[arg(long = "urls", value_name = "FILE")]
    pub urls_file: Option<PathBuf>,
    /// Request method [default: GET, POST with a body]
    #[arg(short = 'X', long = "request", value_name = "METHOD")]
    pub method: Option<String>,
    /// A further header field, `Name: value`; repeatable
    #[arg(short = 'H', long = "header", value_name = "LINE")]
    pub headers: Vec<String>,
    /// Request body: text, or @FILE
    #[arg(short = 'd', long = "data", value_name = "DATA", conflicts_with = "body_bytes")]
    pub data: Option<String>,
    /// Request body in bytes of filler (such as 1k, 64k)
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub body_bytes: Option<u64>,
    /// Fill placeholders in paths, fields and bodies anew for each request: {{counter}}, {{random 1..99}}, {{uuid}} …
    ///
    /// {{counter}} is the number of the request, from 0; {{random LOW..HIGH}} a whole number, both included; {{hex DIGITS}}
    /// so many hexadecimal digits; {{uuid}} a random UUID; {{pick A|B|C}} one of these; {{{{ stands for itself. The same
    /// --seed makes the same requests.
    #[arg(long)]
    pub template: bool,
    /// Header fields of each request: bare (a plain client's) or mesh (a sidecar's, 15 fields)
    #[arg(long, value_name = "NAME", value_parser = shape)]
    pub shape: Option<RequestShape>,
    /// Basic authentication, NAME:PASSWORD
    #[arg(short = 'u', short_alias = 'a', long, value_name = "USER", conflicts_with = "oauth2_bearer")]
    pub user: Option<String>,
    /// Bearer token
    #[arg(long, value_name = "TOKEN")]
    pub oauth2_bearer: Option<String>,
    /// Cookies, NAME=VALUE; NAME2=VALUE2
    #[arg(short = 'b', long, value_name = "DATA")]
    pub cookie: Option<String>,
}

fn shape(text: &str) -> Result<RequestShape, String> {
    value(text)
}

/// Requests per second: the rates that a schedule can keep in nanoseconds.
fn rate(text: &str) -> Result<f64, String> {
    let rate = text.trim_end_matches("/s").parse().ok().filter(|rate| *rate > 0.0 && *rate <= 10_000_000.0);
    rate.ok_or_else(|| format!("`{text}` is not a rate: requests per second, above 0, at most 10000000"))
}

/// A ramp that goes on: at no rate at all a load of so many requests would never end.
fn ramp(text: &str) -> Result<Ramp, String> {
    let ramp: Ramp = value(text)?;
    if ramp.to > 0.0 { Ok(ramp) } else { Err(format!("`{text}` ends at no rate, and so would never end")) }
}

fn dial_policy(text: &str) -> Result<DialPolicy, String> {
    AxisValue::parse(text).map_err(|error| error.to_string())
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

//! What a probe may do to which host.

use std::time::Duration;

use clap::Args;
use h2lab_base::units::{format_bytes, format_duration};
use h2lab_model::probe::Allowance;

use super::super::values::whole;
use crate::cli::exit::Usage;
use crate::cli::values::{duration, size};
use h2lab_net::tcp::Endpoint;
use h2lab_roles::probe::target_authorization::Distance;

/// The flag that lifts the target authorization, as messages name it.
const FLAG: &str = "--i-own-this-host";

/// Bounds of what is sent.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Safety")]
pub struct SafetyArgs {
    /// Allow hosts elsewhere, more than 100 requests, 1 MiB, 3 min or 50 requests/s, and attacks: the host is yours, or
    /// its owner has agreed
    #[arg(long = "i-own-this-host")]
    owned: bool,
    /// Maximum requests to send [default: 100; 30000 with --i-own-this-host]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(1..=10_000_000))]
    max_requests: Option<u64>,
    /// Maximum bytes to send [default: 1M; 256M with --i-own-this-host]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_bytes: Option<u64>,
    /// Maximum time of the probe [default: 3m; 10m with --i-own-this-host]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    max_time: Option<Duration>,
    /// Maximum requests per second [default: 50; 2000 with --i-own-this-host]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    max_rate: Option<f64>,
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.1..=100_000.0).contains(rate));
    rate.ok_or_else(|| format!("`{text}` is not a rate from 0.1 to 100000 requests per second"))
}

impl SafetyArgs {
    /// What may be sent. More than the default bounds is refused unless the user owns the host.
    pub fn allowance(&self) -> Result<Allowance, Usage> {
        let most = if self.owned { Allowance::OWNED } else { Allowance::GENTLE };
        let chosen = Allowance {
            requests: self.max_requests.unwrap_or(most.requests),
            bytes: self.max_bytes.unwrap_or(most.bytes),
            time: self.max_time.unwrap_or(most.time),
            rate: self.max_rate.unwrap_or(most.rate),
            received: most.received,
        };
        let is_more = chosen.requests > most.requests
            || chosen.bytes > most.bytes
            || chosen.time > most.time
            || chosen.rate > most.rate;
        if !self.owned && is_more {
            return Err(Usage(format!(
                "more than {} requests, {}, {} or {} requests per second need {FLAG}: give it if the host is yours, \
                 or its owner has agreed",
                most.requests,
                format_bytes(most.bytes),
                format_duration(most.time),
                most.rate,
            )));
        }
        Ok(chosen)
    }

    /// The same for a host that is known to be ours, without the flag.
    pub fn owning(&self) -> Self {
        Self { owned: true, ..self.clone() }
    }

    /// Refuses a host that is neither this machine nor in a private namespace, unless the user has the right to probe
    /// it.
    pub fn admit(&self, endpoint: &Endpoint) -> Result<(), Usage> {
        if self.owned || Distance::of(endpoint) != Distance::Elsewhere {
            return Ok(());
        }
        Err(Usage(format!(
            "{endpoint} is neither this machine nor in a network namespace without external connectivity; if the \
             host is yours, or its owner has agreed, give {FLAG} (docs/probe.md, \"Responsible use\")"
        )))
    }

    /// Refuses `what`, which may do harm, unless the user has the right to do it to the host.
    pub fn require(&self, what: &str) -> Result<(), Usage> {
        if self.owned {
            return Ok(());
        }
        Err(Usage(format!(
            "{what} needs {FLAG}: it may do harm; give it if the host is yours, or its owner has agreed"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_a_hundred_requests_or_a_mebibyte_need_the_flag() {
        let with = |max_requests, max_bytes, owned| {
            SafetyArgs { owned, max_requests, max_bytes, ..SafetyArgs::default() }.allowance()
        };
        assert_eq!(with(Some(100), Some(1 << 20), false).unwrap().requests, 100);
        assert!(with(Some(101), None, false).unwrap_err().0.contains(FLAG));
        assert!(with(None, Some((1 << 20) + 1), false).unwrap_err().0.contains(FLAG));
        assert_eq!(with(Some(101), None, true).unwrap().requests, 101);
        assert_eq!(with(None, None, false).unwrap(), Allowance::GENTLE);
    }

    #[test]
    fn faster_or_longer_needs_the_flag() {
        let gentle = Allowance::GENTLE;
        let with = |max_rate, max_time, owned| {
            SafetyArgs { owned, max_time, max_rate, ..SafetyArgs::default() }.allowance()
        };
        assert!(with(Some(gentle.rate), Some(gentle.time), false).is_ok());
        assert!(with(Some(gentle.rate + 1.0), None, false).unwrap_err().0.contains(FLAG));
        assert!(with(None, Some(gentle.time + Duration::from_secs(1)), false).unwrap_err().0.contains(FLAG));
        assert!(with(Some(10_000.0), Some(Duration::from_secs(3_600)), true).is_ok());
    }

    #[test]
    fn loopback_is_admitted_and_attacks_are_not() {
        let args = SafetyArgs::default();
        assert!(args.admit(&Endpoint::Tcp("127.0.0.1:1".parse().unwrap())).is_ok());
        assert!(args.require("--resistance").unwrap_err().0.contains("--resistance needs"));
        assert!(SafetyArgs { owned: true, ..args }.require("--resistance").is_ok());
    }
}

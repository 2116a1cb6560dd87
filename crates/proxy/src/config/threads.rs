//! `threads`.

use std::fmt;
use std::str::FromStr;

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Config, ConfigError, Policy, Service};

/// The most threads.
pub const MOST_THREADS: u32 = 64;

/// How many threads pass requests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(into = "Written", try_from = "Written")]
pub enum Threads {
    /// As many as there are CPUs that the process may use, or fewer where a service may have fewer connections.
    Auto,
    /// This many, from 1 to [`MOST_THREADS`].
    Fixed(u32),
}

impl Default for Threads {
    /// One: it costs least for each request, and what runs beside it needs the other CPUs.
    fn default() -> Self {
        Self::Fixed(1)
    }
}

/// As it is in a file.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "invalid thread count: expected a number from 1 to 64, or \"auto\" (one per CPU)"
)]
enum Written {
    Number(u32),
    Text(String),
}

impl TryFrom<Written> for Threads {
    type Error = ConfigError;

    fn try_from(written: Written) -> Result<Self, ConfigError> {
        match written {
            Written::Number(0) => Ok(Self::Auto),
            Written::Number(n @ 1..=MOST_THREADS) => Ok(Self::Fixed(n)),
            Written::Number(n) => Err(ConfigError::Threads(n.to_string())),
            Written::Text(text) => text.parse(),
        }
    }
}

impl From<Threads> for Written {
    fn from(threads: Threads) -> Self {
        match threads {
            Threads::Auto => Self::Text("auto".to_owned()),
            Threads::Fixed(n) => Self::Number(n),
        }
    }
}

impl FromStr for Threads {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        match text.parse() {
            Ok(number) => Written::Number(number).try_into(),
            Err(_) if text == "auto" => Ok(Self::Auto),
            Err(_) => Err(ConfigError::Threads(text.to_owned())),
        }
    }
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Fixed(n) => n.fmt(f),
        }
    }
}

/// The bounds on the connections to an instance of a service, as they are written.
fn bounds(service: &Service) -> impl Iterator<Item = (u32, &'static str)> {
    let fixed = match service.policy {
        Policy::Fixed(n) => Some(n),
        Policy::Adaptive | Policy::PerRequest => None,
    };
    let limit = service.limits.connections.map(|n| (n, "limits.connections = "));
    fixed.map(|n| (n, "policy = fixed:")).into_iter().chain(limit)
}

impl Config {
    /// How many threads there are where the process may use `cpus` CPUs.
    pub fn threads_on(&self, cpus: u32) -> u32 {
        match self.threads {
            Threads::Fixed(n) => n,
            Threads::Auto => {
                let least = self.service.values().flat_map(bounds).map(|(n, _)| n).min();
                let most = cpus.clamp(1, MOST_THREADS).min(least.unwrap_or(MOST_THREADS)).max(1);
                let fits = |threads: &u32| self.memory.is_none_or(|memory| memory.check(*threads).is_ok());
                (1..=most).rev().find(fits).unwrap_or(1)
            }
        }
    }

    /// Checks that there is memory for `threads` threads, and that each of them may have a connection of its own to
    /// every instance: bounds are divided among the threads.
    pub fn check_threads(&self, threads: u32) -> Result<(), ConfigError> {
        self.memory.map_or(Ok(()), |memory| memory.check(threads))?;
        for (name, service) in &self.service {
            if let Some((n, what)) = bounds(service).find(|(n, _)| *n < threads) {
                let bound = format!("{what}{n}");
                return Err(ConfigError::TooManyThreads { service: name.clone(), bound, threads });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(keys: &str, service: &str) -> Result<Config, String> {
        let text = format!(
            "{keys}\nlisten = [{{ address = '127.0.0.1:1', service = 'a' }}]\n[service.a]\ninstances = ['http://a']\n{service}"
        );
        Config::parse(&text).map_err(|error| error.to_string())
    }

    #[test]
    fn they_are_a_number_or_as_many_as_there_are_cpus() {
        let on = |keys: &str, cpus| parse(keys, "").expect(keys).threads_on(cpus);
        assert_eq!([on("", 8), on("threads = 3", 8), on("threads = 64", 1)], [1, 3, 64]);
        assert_eq!(
            [on("threads = 0", 8), on("threads = 'auto'", 8), on("threads = 'auto'", 1_000)],
            [8, 8, 64]
        );
        for wrong in ["65", "-1", "'many'", "1.5"] {
            let told = parse(&format!("threads = {wrong}"), "").expect_err(wrong);
            assert!(told.contains("thread count"), "{told}");
        }
        assert_eq!(on("threads = '3'", 1), 3);
        for text in ["auto", "1", "64"] {
            assert_eq!(text.parse::<Threads>().map(|threads| threads.to_string()).as_deref(), Ok(text));
        }
        assert_eq!("0".parse(), Ok(Threads::Auto));
        for wrong in ["65", "-1", "", "many"] {
            assert!(wrong.parse::<Threads>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_shown_is_read_again() {
        for keys in ["threads = 3", "threads = 'auto'"] {
            let config = parse(keys, "").expect(keys);
            assert_eq!(
                Config::parse(&config.shown()).map(|again| again.threads),
                Ok(config.threads),
                "{keys}"
            );
        }
    }

    #[test]
    fn each_thread_may_have_a_connection_to_every_instance() {
        let told = parse("threads = 4", "policy = 'fixed:3'").expect_err("too few");
        assert!(
            told.contains("\"a\"") && told.contains("policy = fixed:3") && told.contains("4 threads"),
            "{told}"
        );
        let told = parse("threads = 4", "limits = { connections = 1 }").expect_err("too few");
        assert!(told.contains("limits.connections = 1"), "{told}");
        assert!(parse("threads = 4", "policy = 'fixed:4'\nlimits = { connections = 4 }").is_ok());
        let told = parse("threads = 10\nmemory = '135M'", "").expect_err("too little");
        assert!(told.contains("10 threads needs at least 136 MiB"), "{told}");
        assert!(parse("threads = 10\nmemory = '136M'", "").is_ok());
        let small = parse("threads = 'auto'\nmemory = '75M'", "").expect("fewer threads are enough");
        assert_eq!(small.threads_on(8), 2);
        let auto = parse("threads = 'auto'", "policy = 'fixed:3'").expect("fewer threads are enough");
        assert_eq!((auto.threads_on(8), auto.threads_on(2)), (3, 2));
    }
}

//! Times that are too short or too long to be intended.

use std::time::Duration;

use h2lab_base::units::format_exact;

use super::{Config, ConfigError};

/// The longest time of a file: a longer one is a typing error.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3_600);
/// More frequent health checks would be a noticeable load on the instance.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);
/// Any time above 0.
const SOME: Duration = Duration::from_nanos(1);
/// 0 has a meaning.
const NONE: Duration = Duration::ZERO;

/// A key, its value, and the least that makes sense.
type Key = (&'static str, Duration, Duration);

fn check(place: &str, keys: impl IntoIterator<Item = Key>) -> Result<(), ConfigError> {
    for (key, time, least) in keys {
        let why = if time > LONGEST {
            format!("{key} must be at most 366 days, and is {}", format_exact(time))
        } else if time >= least {
            continue;
        } else if least == SOME {
            format!("{key} must be greater than 0")
        } else {
            format!("{key} must be at least {}", format_exact(least))
        };
        return Err(ConfigError::Time { place: place.to_owned(), why });
    }
    Ok(())
}

impl Config {
    /// Checks every time of the file, except those that [`super::ConfigError`] has a variant for.
    pub(super) fn check_times(&self) -> Result<(), ConfigError> {
        let all = &self.timeouts;
        let general = [
            ("connect", all.connect),
            ("response", all.response),
            ("attempt", all.attempt),
            ("client-idle", all.client_idle),
            ("stream", all.stream),
            ("request", all.request),
            ("idle", all.idle),
            ("ping", all.ping),
            ("drain", all.drain),
        ];
        check("[timeouts]", general.map(|(key, time)| (key, time, NONE)))?;
        for listen in &self.listen {
            let place = format!("alt-svc of the listener on {}", listen.address);
            check(&place, [("alt-svc", listen.alt_svc, NONE)])?;
            let place = format!("detect of the listener on {}", listen.address);
            check(&place, listen.detect.map(|detect| ("detect", detect, NONE)))?;
        }
        for (name, service) in &self.service {
            let place = |table: &str| format!("[service.{name}.{table}]");
            let own = &service.timeouts;
            let own = [
                ("connect", own.connect),
                ("response", own.response),
                ("attempt", own.attempt),
                ("stream", own.stream),
                ("request", own.request),
            ];
            check(&place("timeouts"), own.into_iter().filter_map(|(key, time)| Some((key, time?, NONE))))?;
            check(&place("limits"), service.limits.wait.map(|wait| ("wait", wait, SOME)))?;
            if let Some(health) = &service.health {
                let keys =
                    [("interval", health.interval, SHORTEST_INTERVAL), ("timeout", health.timeout, SOME)];
                check(&place("health"), keys)?;
            }
            let outlier = &service.outlier;
            let keys = [("base", outlier.base, SOME), ("most", outlier.most, outlier.base)];
            check(&place("outlier"), keys)?;
            let others = [("refresh", service.refresh), ("slow-start", service.slow_start)];
            let others = others.into_iter().filter_map(|(key, time)| Some((key, time?, NONE)));
            check(&format!("service \"{name}\""), others)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "[[listen]]\naddress = '127.0.0.1:1'\nservice = 'a'\n[service.a]\ninstances = ['http://a']\n";

    #[test]
    fn times_that_nobody_means_are_refused_with_their_line() {
        for (more, told) in [
            (
                "[timeouts]\nresponse = '9000h'",
                "line 7: [timeouts]: response must be at most 366 days, and is 32400000s",
            ),
            (
                "[service.a.timeouts]\nstream = '9000h'",
                "line 7: [service.a.timeouts]: stream must be at most 366 days, and is 32400000s",
            ),
            (
                "[timeouts]\nattempt = '9000h'",
                "line 7: [timeouts]: attempt must be at most 366 days, and is 32400000s",
            ),
            (
                "[service.a.timeouts]\nattempt = '9000h'",
                "line 7: [service.a.timeouts]: attempt must be at most 366 days, and is 32400000s",
            ),
            (
                "slow-start = '9000h'",
                "line 6: service \"a\": slow-start must be at most 366 days, and is 32400000s",
            ),
            ("limits = { wait = '0s' }", "line 6: [service.a.limits]: wait must be greater than 0"),
            (
                "health = { path = '/', interval = '1ms' }",
                "line 6: [service.a.health]: interval must be at least 100ms",
            ),
            (
                "health = { path = '/', timeout = '0' }",
                "line 6: [service.a.health]: timeout must be greater than 0",
            ),
            ("[service.a.outlier]\nbase = '0s'", "line 7: [service.a.outlier]: base must be greater than 0"),
            ("[service.a.outlier]\nmost = '1s'", "line 7: [service.a.outlier]: most must be at least 10s"),
        ] {
            let result = Config::parse(&format!("{TEXT}{more}\n")).map_err(|error| error.to_string());
            assert_eq!(result.err().as_deref(), Some(told), "{more}");
        }
        for right in ["[timeouts]\nconnect = '0s'\nidle = '8784h'", "slow-start = '0s'"] {
            assert!(Config::parse(&format!("{TEXT}{right}\n")).is_ok(), "{right}");
        }
    }
}

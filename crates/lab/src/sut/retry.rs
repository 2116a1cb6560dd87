//! Proxies that send again what their upstream did not take, each by its own setting. By default, none does so for
//! every method. Caddy's `retries` are not among them: with a limit of 137 requests per connection just as many
//! requests failed with them.
//!
//! They also repeat requests that may have been processed, so these settings are not recommended for requests that must
//! not be processed twice.

use super::error::SutError;
use super::kind::{About, Launch, Site, StartOptions, Sut};
use super::{envoy, haproxy};

/// A proxy with such a setting.
#[derive(Debug)]
pub struct Retrying {
    name: &'static str,
    of: &'static dyn Sut,
    /// Texts in its configuration by default, and with the setting.
    changes: &'static [(&'static str, &'static str)],
}

/// Envoy with a retry policy of its route. It waits 25 ms before it repeats.
pub const ENVOY: Retrying = Retrying {
    name: "envoy-retry",
    of: &envoy::Envoy,
    changes: &[
        (
            "\"timeout\": \"0s\"",
            "\"timeout\": \"0s\", \"retry_policy\": { \"retry_on\": \"connect-failure,refused-stream,reset-before-request,reset\", \
         \"num_retries\": 3 }",
        ),
        (
            // By default, at most three retries are active at a time in total.
            "\"max_requests\": 1000000",
            "\"max_requests\": 1000000, \"max_retries\": 1000000",
        ),
    ],
};

/// `HAProxy` with `retry-on`.
pub const HAPROXY: Retrying = Retrying {
    name: "haproxy-retry",
    of: &haproxy::Haproxy,
    changes: &[(
        "    server upstream ",
        "    retries 3\n    option redispatch\n    retry-on all-retryable-errors\n    server upstream ",
    )],
};

impl Sut for Retrying {
    fn about(&self) -> About {
        About { name: self.name, ..self.of.about() }
    }

    fn launch(&self, site: Site<'_>, options: &StartOptions) -> Result<Launch, SutError> {
        let mut launch = self.of.launch(site, options)?;
        if let Some((_, text)) = launch.files.first_mut() {
            for (as_it_comes, with) in self.changes {
                *text = text.replace(as_it_comes, with);
            }
        }
        Ok(launch)
    }
}

#[cfg(test)]
mod tests {
    use h2lab_model::workload::Protocol;
    use serde_json::Value;

    use super::super::testing::launched;
    use super::*;

    #[test]
    fn each_configuration_has_its_setting_and_is_still_one() {
        for (proxy, setting, is_json) in [(&ENVOY, "retry_on", true), (&HAPROXY, "retry-on", false)] {
            let text = launched(proxy, Protocol::H2c).unwrap().files.remove(0).1;
            let plain = launched(proxy.of, Protocol::H2c).unwrap().files.remove(0).1;
            assert!(text.contains(setting) && !plain.contains(setting), "{text}");
            assert!(!is_json || serde_json::from_str::<Value>(&text).is_ok(), "{text}");
        }
    }
}

//! `[timeouts]`.

use std::time::Duration;

use h2lab_base::JsonSchema;
use h2lab_base::units::{duration_text, format_duration, optional_duration_text};
use serde::{Deserialize, Serialize};

/// How long a sidecar waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Timeouts {
    /// For a connection to an instance, with TLS; 0 is for ever.
    #[serde(with = "duration_text")]
    #[schemars(with = "String")]
    pub connect: Duration,
    /// For the head of the response, from the moment at which the request was complete; 0 is for ever.
    #[serde(with = "duration_text")]
    #[schemars(with = "String")]
    pub response: Duration,
    /// For one instance: for a connection, and then for the head of the response. After that the request is sent to
    /// another one, if `[retry]` allows it; otherwise it goes on until `response`. 0: as long as that.
    #[serde(with = "duration_text")]
    #[schemars(with = "String")]
    pub attempt: Duration,
    /// For the first byte of a request on a client's connection that has none, a new connection included. Then the
    /// connection is ended, over HTTP/2 in two steps, so that a request that is on its way is still taken. 0 is for
    /// ever.
    #[serde(with = "duration_text")]
    #[schemars(with = "String")]
    pub client_idle: Duration,
    /// For the next byte of a body, in either direction, those of a tunnel included; 0 is for ever.
    #[serde(with = "duration_text")]
    #[schemars(with = "String")]
    pub stream: Duration,
    /// For the whole of a request, to the end of its response; 0 is for ever. A gRPC deadline bounds it, too.
    #[serde(with = "duration_text")]
    #[schemars(with = "String")]
    pub request: Duration,
    /// For a request on a connection to an instance. Then the connection is closed, before the instance would close it.
    /// Less where the instance says so (`Keep-Alive: timeout=`), or its closes have shown it. 0 is for ever.
    #[serde(with = "duration_text")]
    #[schemars(with = "String")]
    pub idle: Duration,
    /// For a byte of an instance that has requests. Then a PING is sent over HTTP/2; if its answer takes as long again
    /// (20 round trips, if those are longer), the connection is given up. 0 sends none.
    #[serde(with = "duration_text")]
    #[schemars(with = "String")]
    pub ping: Duration,
    /// For requests under way when it is stopped.
    #[serde(with = "duration_text")]
    #[schemars(with = "String")]
    pub drain: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let secs = Duration::from_secs;
        Self {
            connect: secs(5),
            response: secs(60),
            attempt: Duration::ZERO,
            client_idle: secs(75),
            stream: secs(300),
            request: Duration::ZERO,
            idle: secs(60),
            ping: secs(5),
            drain: secs(10),
        }
    }
}

/// `[service.NAME.timeouts]`: those of one service, instead of the general ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ServiceTimeouts {
    /// See [`Timeouts::connect`].
    #[serde(with = "optional_duration_text")]
    #[schemars(with = "Option<String>")]
    pub connect: Option<Duration>,
    /// See [`Timeouts::response`].
    #[serde(with = "optional_duration_text")]
    #[schemars(with = "Option<String>")]
    pub response: Option<Duration>,
    /// See [`Timeouts::attempt`].
    #[serde(with = "optional_duration_text")]
    #[schemars(with = "Option<String>")]
    pub attempt: Option<Duration>,
    /// See [`Timeouts::stream`].
    #[serde(with = "optional_duration_text")]
    #[schemars(with = "Option<String>")]
    pub stream: Option<Duration>,
    /// See [`Timeouts::request`].
    #[serde(with = "optional_duration_text")]
    #[schemars(with = "Option<String>")]
    pub request: Option<Duration>,
}

/// Longer than anything runs.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// 0 is for ever.
const fn or_for_ever(time: Duration) -> Duration {
    if time.is_zero() { FOR_EVER } else { time }
}

impl Timeouts {
    /// Those of a service.
    #[must_use]
    pub fn of(&self, service: &ServiceTimeouts) -> Self {
        Self {
            connect: or_for_ever(service.connect.unwrap_or(self.connect)),
            response: or_for_ever(service.response.unwrap_or(self.response)),
            attempt: service.attempt.unwrap_or(self.attempt),
            stream: service.stream.unwrap_or(self.stream),
            request: service.request.unwrap_or(self.request),
            ..*self
        }
    }

    /// [`Timeouts::response`], if it is not for ever.
    pub fn response_limit(&self) -> Option<Duration> {
        Some(self.response).filter(|time| !time.is_zero() && *time < FOR_EVER)
    }

    /// A warning about timeouts of a service that have no effect.
    pub(super) fn warning(&self, name: &str) -> Option<String> {
        let is_longer = !self.attempt.is_zero() && self.attempt >= self.response;
        is_longer.then(|| {
            format!(
                "attempt ({}) of service \"{name}\" has no effect: it must be shorter than response ({})",
                format_duration(self.attempt),
                format_duration(self.response)
            )
        })
    }
}

impl Timeouts {
    /// A warning about a [`Timeouts::response`] of `place`, which sets its own, if it has no effect.
    pub(super) fn unused_response(&self, place: &str) -> Option<String> {
        let response = self.response_limit().filter(|response| *response > self.request)?;
        (!self.request.is_zero()).then(|| {
            format!(
                "response ({}) of {place} has no effect: request ({}) ends before",
                format_duration(response),
                format_duration(self.request)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_for_ever_for_whatever_is_waited_for() {
        let of = ServiceTimeouts { connect: Some(Duration::ZERO), ..ServiceTimeouts::default() };
        let timeouts = Timeouts { response: Duration::ZERO, ..Timeouts::default() }.of(&of);
        assert_eq!((timeouts.connect, timeouts.response), (FOR_EVER, FOR_EVER));
        assert_eq!(Timeouts::default().of(&ServiceTimeouts::default()), Timeouts::default());
    }

    #[test]
    fn an_attempt_that_may_take_as_long_as_the_response_is_of_no_use() {
        let of = |attempt, response| {
            let general = Timeouts { attempt: Duration::from_secs(attempt), ..Timeouts::default() };
            general.of(&ServiceTimeouts {
                response: Some(Duration::from_secs(response)),
                ..ServiceTimeouts::default()
            })
        };
        for (attempt, response) in [(0, 60), (1, 60), (1, 0)] {
            assert_eq!(of(attempt, response).warning("a"), None, "{attempt} {response}");
        }
        let words = of(60, 60).warning("a").expect("a warning");
        assert!(
            words.starts_with("attempt (60s) of service \"a\" has no effect")
                && words.ends_with("response (60s)"),
            "{words}"
        );
    }
}

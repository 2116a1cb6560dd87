//! What an engine's own answers contain besides the reason: the answers to requests that no role ever sees.

use h2lab_base::calendar::http_date;

use crate::structured::quoted;

/// Who answers, and when. A role gives it to its connections by [`crate::Connection::set_own_answers`]; they share it.
#[derive(Debug)]
pub struct OwnAnswers {
    /// Of a proxy: `Proxy-Status` (RFC 9209) up to its `details`, as `edge-1; error=http_request_error`.
    pub proxy_status: Option<String>,
    /// The role's clock: seconds since 1970. A server that has one sends `Date` in each answer (RFC 9110 §6.6.1).
    pub unix_s: Option<fn() -> u64>,
}

impl OwnAnswers {
    /// The fields of an answer that refuses a request for this reason: name and value.
    pub(crate) fn fields(&self, reason: &str) -> impl Iterator<Item = (&'static str, String)> {
        let date = self.unix_s.map(|unix_s| ("date", http_date(unix_s())));
        let status = self.proxy_status.as_ref();
        let status = status.map(|value| ("proxy-status", format!("{value}; details={}", quoted(reason))));
        date.into_iter().chain(status)
    }
}

//! What the proxy adds to a response that it makes by itself: `Proxy-Status` (RFC 9209). It says which service and what
//! went wrong, and no address: addresses are only for the operator.

use h2lab_wire::structured::quoted;

/// What went wrong: the error types of RFC 9209 §2.3 that occur here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProxyError {
    /// No route takes the request.
    DestinationNotFound,
    /// The service has no instance that could be asked.
    DestinationUnavailable,
    /// The names of its instances have no address.
    DnsError,
    /// An instance does not accept connections.
    ConnectionRefused,
    /// It did not accept one in time.
    ConnectionTimeout,
    /// The connection ended before the response.
    ConnectionTerminated,
    /// A bound of what may be under way is reached.
    ConnectionLimitReached,
    /// TLS failed.
    TlsProtocolError,
    /// The instance's certificate is not accepted.
    TlsCertificateError,
    /// The instance refused TLS by an alert.
    TlsAlertReceived,
    /// The request is one that cannot be passed on.
    HttpRequestError,
    /// The request is not allowed.
    HttpRequestDenied,
    /// The response broke off.
    HttpResponseIncomplete,
    /// The response did not come in time.
    HttpResponseTimeout,
    /// The protocol was not switched as asked for.
    HttpUpgradeFailed,
    /// The response is not HTTP.
    HttpProtocolError,
    /// The proxy is its own next hop.
    ProxyLoopDetected,
    /// The proxy answers by itself, without an instance.
    ProxyInternalResponse,
    /// Something in the proxy went wrong.
    ProxyInternalError,
}

impl ProxyError {
    /// Its name in the registry "HTTP Proxy Error Types".
    pub const fn name(self) -> &'static str {
        match self {
            Self::DestinationNotFound => "destination_not_found",
            Self::DestinationUnavailable => "destination_unavailable",
            Self::DnsError => "dns_error",
            Self::ConnectionRefused => "connection_refused",
            Self::ConnectionTimeout => "connection_timeout",
            Self::ConnectionTerminated => "connection_terminated",
            Self::ConnectionLimitReached => "connection_limit_reached",
            Self::TlsProtocolError => "tls_protocol_error",
            Self::TlsCertificateError => "tls_certificate_error",
            Self::TlsAlertReceived => "tls_alert_received",
            Self::HttpRequestError => "http_request_error",
            Self::HttpRequestDenied => "http_request_denied",
            Self::HttpResponseIncomplete => "http_response_incomplete",
            Self::HttpResponseTimeout => "http_response_timeout",
            Self::HttpUpgradeFailed => "http_upgrade_failed",
            Self::HttpProtocolError => "http_protocol_error",
            Self::ProxyLoopDetected => "proxy_loop_detected",
            Self::ProxyInternalResponse => "proxy_internal_response",
            Self::ProxyInternalError => "proxy_internal_error",
        }
    }

    /// What a status says by itself.
    pub const fn of_status(status: u16) -> Self {
        match status {
            404 | 421 => Self::DestinationNotFound,
            400 | 408 | 413 | 414 | 417 | 431 | 501 | 505 => Self::HttpRequestError,
            403 | 429 => Self::HttpRequestDenied,
            502 => Self::HttpProtocolError,
            503 => Self::DestinationUnavailable,
            504 => Self::HttpResponseTimeout,
            508 => Self::ProxyLoopDetected,
            200..=299 => Self::ProxyInternalResponse,
            _ => Self::ProxyInternalError,
        }
    }
}

/// What `Proxy-Status` says of requests that the HTTP engine refuses by itself, before their details: `edge-1; error=http_request_error`.
pub fn of_engine(name: &str) -> String {
    format!("{}; error={}", named(name), ProxyError::HttpRequestError.name())
}

/// A proxy's name: a token, or else a string.
fn named(name: &str) -> String {
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) { name.to_owned() } else { quoted(name) }
}

/// The value of `Proxy-Status` of the proxy with this name: `edge-1; error=connection_refused; details="the service users …"`.
pub fn proxy_status(name: &str, error: ProxyError, details: &str) -> String {
    format!("{}; error={}; details={}", named(name), error.name(), quoted(details))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_structured_field() {
        assert_eq!(
            proxy_status("edge-1", ProxyError::ConnectionRefused, "the service `a`: \"no\"\n"),
            r#"edge-1; error=connection_refused; details="the service `a`: \"no\"?""#
        );
        assert_eq!(
            proxy_status("1st", ProxyError::of_status(504), "x"),
            r#""1st"; error=http_response_timeout; details="x""#
        );
        assert_eq!(of_engine("1st"), r#""1st"; error=http_request_error"#);
    }
}

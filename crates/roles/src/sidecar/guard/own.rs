//! The sidecar's own messages: the client gets the service and what went wrong, the operator gets the rest.

use h2lab_base::units::{format_duration, nanos};
use h2lab_net::tls::TlsError;
use h2lab_proxy::grpc;
use h2lab_proxy::head::Head;
use h2lab_proxy::refusal::{self, ProxyError};

use super::super::exchange::Refusal;
use crate::client::connect::ConnectError;

/// An answer to a request, in the memory of `head`, and its body. `via` is the sidecar's name. gRPC's is a response of trailers only.
pub fn own_answer(refusal: &Refusal, via: Option<&str>, is_grpc: bool, mut head: Head) -> (Head, String) {
    head.clear();
    let status = refusal::proxy_status(via.unwrap_or("h2lab"), refusal.error, &refusal.why);
    head.add(b"proxy-status", &[status.as_bytes()]);
    if let Some(after) = refusal.retry_after {
        let seconds = nanos(after).div_ceil(1_000_000_000).max(1);
        head.add(b"retry-after", &[seconds.to_string().as_bytes()]);
    }
    if is_grpc {
        head.status = 200;
        head.add(b"content-type", &[b"application/grpc"]);
        head.add(b"grpc-status", &[grpc::status(refusal.status).to_string().as_bytes()]);
        head.add(b"grpc-message", &[grpc::message(&refusal.why).as_bytes()]);
        return (head, String::new());
    }
    let text = format!("{}\n", refusal.why);
    (head.status, head.body_length) = (refusal.status, Some(text.len() as u64));
    head.add(b"content-type", &[b"text/plain; charset=utf-8"]);
    (head, text)
}

/// No connection to `instance` of `service` could be made.
pub fn unreachable(service: &str, instance: &str, error: &ConnectError) -> Refusal {
    let (kind, words) = in_short(error);
    Refusal::new(502, format!("service {service} is unreachable: {words}"))
        .because(kind)
        .with_detail(format!("cannot connect to {instance}: {}", advised(service, error)))
}

/// Why there is no connection, without an address or advice.
pub fn in_short(error: &ConnectError) -> (ProxyError, String) {
    match error {
        ConnectError::Refused => (ProxyError::ConnectionRefused, "connection refused".to_owned()),
        ConnectError::Timeout(after) | ConnectError::TlsTimeout(after) => {
            (ProxyError::ConnectionTimeout, format!("connection timed out after {}", format_duration(*after)))
        }
        ConnectError::Tls(TlsError::Certificate(_)) => {
            (ProxyError::TlsCertificateError, "its certificate is not trusted".to_owned())
        }
        ConnectError::Tls(
            TlsError::Alert(_) | TlsError::ClientCertificateRequired | TlsError::ClientCertificateRefused(_),
        ) => (ProxyError::TlsAlertReceived, "it rejected the TLS handshake".to_owned()),
        ConnectError::Tls(_) => (ProxyError::TlsProtocolError, "TLS handshake failed".to_owned()),
        ConnectError::NoUdp => (ProxyError::ConnectionRefused, "connection refused (UDP)".to_owned()),
        ConnectError::QuicTimeout(after) => (
            ProxyError::ConnectionTimeout,
            format!("no response over UDP within {}", format_duration(*after)),
        ),
        _ => (ProxyError::DestinationUnavailable, "no connection".to_owned()),
    }
}

/// Why there is no connection, and what to write into the file: the words of [`TlsError`] name flags that other commands have.
fn advised(service: &str, error: &ConnectError) -> String {
    let advice = match error {
        ConnectError::Tls(TlsError::Certificate(why)) => {
            let reason = why.split("; ").next().unwrap_or_default();
            if why.contains("names no host") || why.contains("X.509 version 1") {
                // No name that could be set would be in the certificate.
                return format!(
                    "the instance's certificate is not trusted: {reason}; make one with its name in subjectAltName, or set insecure = true for \
                     tests in [service.{service}]"
                );
            }
            let keys = if why.contains("not valid for name") {
                "server-name = \"a name of the certificate\""
            } else if why.contains("expired") || why.contains("not valid yet") {
                return format!("the instance's certificate is not trusted: {reason}");
            } else {
                "ca = \"FILE\" (its issuer)"
            };
            format!(
                "the instance's certificate is not trusted: {reason}; set {keys}, or insecure = true for tests"
            )
        }
        ConnectError::Tls(TlsError::ClientCertificateRequired) => {
            "the instance requires a client certificate; set identity = { cert = \"FILE\", key = \"FILE\" }"
                .to_owned()
        }
        ConnectError::Tls(TlsError::ClientCertificateRefused(alert)) => {
            format!("the instance rejected our client certificate (alert {alert}); check identity")
        }
        ConnectError::Tls(TlsError::NotTls) => {
            "the instance does not speak TLS on this port; use http:// or h2c://".to_owned()
        }
        _ => {
            let words = match error {
                ConnectError::Io(error) => error.to_string(),
                error => error.to_string(),
            };
            let (what, advice) = words.split_once("; ").unwrap_or((&words, ""));
            // Flags are of other commands.
            return if advice.contains("--") { what.to_owned() } else { words };
        }
    };
    format!("{advice} in [service.{service}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_learns_the_service_and_the_operator_what_to_write() {
        let certificate = |why: &str| ConnectError::Tls(TlsError::Certificate(why.to_owned()));
        let name =
            "certificate not valid for name \"10.0.0.7\"; use a name of the certificate (--resolve …), or -k";
        for (error, kind, advice) in [
            (certificate(name), ProxyError::TlsCertificateError, "set server-name = "),
            (
                certificate("its issuer is not trusted; trust it by --cacert FILE, or -k"),
                ProxyError::TlsCertificateError,
                "set ca = ",
            ),
            (
                certificate(
                    "it names no host (it has no subjectAltName); make one that does, or skip verification by -k",
                ),
                ProxyError::TlsCertificateError,
                "(it has no subjectAltName); make one with its name in subjectAltName, or set insecure = true",
            ),
            (ConnectError::Refused, ProxyError::ConnectionRefused, "connection refused"),
            (
                ConnectError::Io(std::io::ErrorKind::HostUnreachable.into()),
                ProxyError::DestinationUnavailable,
                "cannot connect to https://10.0.0.7:443: host unreachable",
            ),
            (ConnectError::Tls(TlsError::NotTls), ProxyError::TlsProtocolError, "use http://"),
            (ConnectError::Tls(TlsError::NoRoots), ProxyError::TlsProtocolError, "no root certificates"),
        ] {
            let refusal = unreachable("users", "https://10.0.0.7:443", &error);
            let detail = refusal.detail.as_deref().unwrap_or_default();
            assert_eq!((refusal.status, refusal.error), (502, kind));
            assert!(
                refusal.why.contains("service users") && !refusal.why.contains("10.0.0.7"),
                "{}",
                refusal.why
            );
            assert!(detail.contains("10.0.0.7") && detail.contains(advice), "{detail}");
            assert!(!detail.contains("--") && !detail.contains("-k"), "{detail}");
        }
    }

    #[test]
    fn grpc_gets_trailers_only() {
        let refusal = Refusal::new(504, "too late").come_again_after(std::time::Duration::from_millis(1_200));
        let (head, body) = own_answer(&refusal, Some("edge"), true, Head::default());
        assert_eq!((head.status, body.as_str(), head.field(b"grpc-status")), (200, "", Some(&b"4"[..])));
        assert_eq!(head.field(b"retry-after"), Some(&b"2"[..]));
        let (head, body) = own_answer(&refusal, None, false, Head::default());
        assert_eq!((head.status, body.as_str()), (504, "too late\n"));
        let told = head.field(b"proxy-status").expect("it says why");
        assert_eq!(told, b"h2lab; error=http_response_timeout; details=\"too late\"");
    }
}

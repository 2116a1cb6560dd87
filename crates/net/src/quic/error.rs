//! Errors that end a QUIC connection.

use std::io;

use h2lab_base::text::made_printable;
use quinn_proto::{ConnectionError, TransportErrorCode};
use rustls::AlertDescription;

use crate::crossing::TransportError;
use crate::tls::{TlsError, refusal};

/// Transport error codes from here to 0x1ff are TLS alerts (RFC 9001 §4.8).
const FIRST_ALERT: u64 = 0x100;

/// What `reason` means to an end that asked for `wanted` by ALPN and has or has not shown a certificate.
pub(super) fn explain(reason: ConnectionError, wanted: &str, shown: bool) -> TransportError {
    match reason {
        ConnectionError::VersionMismatch => TransportError::QuicVersion,
        ConnectionError::Reset => {
            let why = "the peer no longer has this connection (stateless reset)";
            io::Error::new(io::ErrorKind::ConnectionReset, why).into()
        }
        ConnectionError::TimedOut => {
            io::Error::new(io::ErrorKind::TimedOut, "idle timeout: nothing received").into()
        }
        // For an alert that our side of TLS raised there is only rustls's own message.
        ConnectionError::TransportError(error) if alert(error.code).is_some() => {
            let certificate = error.reason.strip_prefix("invalid peer certificate: ");
            certificate
                .map_or_else(
                    || TlsError::Other(printable(&error.reason)),
                    |why| TlsError::Certificate(refusal(why)),
                )
                .into()
        }
        ConnectionError::ConnectionClosed(ref close) => match alert(close.error_code) {
            Some(alert) => TlsError::refused(alert, Some(wanted), shown).into(),
            None => TransportError::Quic(printable(&reason)),
        },
        other => TransportError::Quic(printable(&other)),
    }
}

/// What `reason` means to the end that accepts the connection.
pub(super) fn explain_client(reason: ConnectionError) -> TransportError {
    match reason {
        ConnectionError::ConnectionClosed(ref close) => match alert(close.error_code) {
            Some(alert) => TlsError::refused(alert, None, false).into(),
            None => TransportError::Quic(printable(&reason)),
        },
        reason => explain(reason, "", false),
    }
}

/// The text may contain the reason phrase of a `CONNECTION_CLOSE`, or names from a certificate.
fn printable(what: &impl ToString) -> String {
    made_printable(&what.to_string()).into_owned()
}

/// The TLS alert that a transport error code stands for.
fn alert(code: TransportErrorCode) -> Option<AlertDescription> {
    let number = u64::from(code).checked_sub(FIRST_ALERT)?;
    u8::try_from(number).ok().map(AlertDescription::from)
}

#[cfg(test)]
mod tests {
    use quinn_proto::{ConnectionClose, TransportError as Broken};

    use super::*;

    fn closed(code: TransportErrorCode) -> String {
        let close = ConnectionClose { error_code: code, frame_type: None, reason: b"".as_slice().into() };
        explain(ConnectionError::ConnectionClosed(close), "h3", false).to_string()
    }

    #[test]
    fn alerts_inside_of_quic_are_reported_as_those_over_tcp() {
        let reported = closed(TransportErrorCode::crypto(120));
        assert_eq!(reported, "the server does not speak `h3` over TLS (ALPN): it chose none of ours");
        let reported = closed(TransportErrorCode::crypto(116));
        assert!(reported.contains("requires a client certificate"), "{reported}");
        assert!(closed(TransportErrorCode::CONNECTION_REFUSED).starts_with("QUIC: "));
    }

    #[test]
    fn a_server_is_told_the_alert_of_its_client() {
        let close =
            |code| ConnectionClose { error_code: code, frame_type: None, reason: b"".as_slice().into() };
        let told = |code| explain_client(ConnectionError::ConnectionClosed(close(code)));
        let refused = told(TransportErrorCode::crypto(48));
        assert!(matches!(&refused, TransportError::Tls(TlsError::Alert(_))), "{refused}");
        assert!(matches!(told(TransportErrorCode::NO_ERROR), TransportError::Quic(_)));
    }

    #[test]
    fn what_a_peer_says_at_its_end_is_printable() {
        let reason: bytes::Bytes = b"\x1b[2J\xe2\x80\xae\0".as_slice().into();
        let close = |error_code| ConnectionClose { error_code, frame_type: None, reason: reason.clone() };
        let application = quinn_proto::ApplicationClose { error_code: 7u8.into(), reason: reason.clone() };
        for end in [
            ConnectionError::ConnectionClosed(close(TransportErrorCode::CONNECTION_REFUSED)),
            ConnectionError::ApplicationClosed(application),
        ] {
            let reported = explain(end, "h3", false).to_string();
            assert!(
                reported.contains("\\u{1b}[2J\\u{202e}\\u{0}") && !reported.contains('\u{1b}'),
                "{reported}"
            );
        }
    }

    #[test]
    fn a_certificate_that_we_do_not_accept_is_reported_with_what_to_do() {
        let error = Broken {
            code: TransportErrorCode::crypto(48),
            frame: None,
            reason: "invalid peer certificate: UnknownIssuer".to_owned(),
        };
        let reported = explain(error.into(), "h3", false).to_string();
        assert!(reported.contains("its issuer is not trusted; trust it by --cacert FILE"), "{reported}");
        let error = Broken {
            code: TransportErrorCode::crypto(46),
            frame: None,
            reason: "invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))".to_owned(),
        };
        let reported = explain(error.into(), "h3", false).to_string();
        assert!(reported.contains("CA:TRUE") && !reported.contains("CaUsed"), "{reported}");
    }
}

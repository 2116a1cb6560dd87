//! Why TLS fails, in words that say what a user can do about it.

use h2lab_base::text::made_printable;
use rustls::{AlertDescription, CertificateError};

use super::alert;

/// Why TLS could not be set up or went wrong. The text says what to do where that is known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// `server_name` is neither a DNS name nor an address.
    #[error("`{0}` is not a name that a certificate can be checked against")]
    Name(String),
    /// The custom CA file holds no certificate, or one that is malformed.
    #[error("the CA file cannot be used: {0}")]
    Authority(String),
    /// The system has no root certificates and none were given.
    #[error(
        "this system has no root certificates (Debian: ca-certificates); give --cacert FILE, or -k to skip the check"
    )]
    NoRoots,
    /// The server's certificate was not accepted.
    #[error("the server's certificate is not trusted: {0}")]
    Certificate(String),
    /// A certificate file cannot be used.
    #[error("the certificate cannot be used: {0}")]
    Identity(String),
    /// A key file cannot be used.
    #[error("the private key cannot be used: {0}")]
    Key(String),
    /// The key does not match the certificate.
    #[error("the private key does not belong to the certificate")]
    KeyMismatch,
    /// The server asks for a client certificate, and we have none (RFC 8446 §6.2, `certificate_required`). In TLS 1.3 it says so
    /// after our handshake is over.
    #[error("the server requires a client certificate; give --cert FILE and --key FILE")]
    ClientCertificateRequired,
    /// The server does not know the authority of our certificate, or rejects it for another reason.
    #[error(
        "the server does not accept our client certificate (alert {0}); give one by --cert that its authority has signed"
    )]
    ClientCertificateRefused(String),
    /// The server speaks TLS but not the protocol that we asked for.
    #[error("the server does not speak `{wanted}` over TLS (ALPN): it chose {chosen}")]
    Alpn {
        /// The protocol name that we offered.
        wanted: String,
        /// What it chose instead, in words.
        chosen: String,
    },
    /// The first bytes are no TLS record: most often a cleartext port.
    #[error("the server does not speak TLS on this port; try http:// instead of https://")]
    NotTls,
    /// The server refused us by an alert.
    #[error("the server refused the TLS connection with the alert {0}")]
    Alert(String),
    /// Anything else.
    #[error("TLS failed: {0}")]
    Other(String),
}

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidCertificate(why) if is_nameless(&why) => Self::Certificate(
                "it names no host (it has no subjectAltName); make one that does (openssl req -x509 -addext \
                 subjectAltName=DNS:NAME), or skip verification by -k"
                    .to_owned(),
            ),
            rustls::Error::InvalidCertificate(why) => Self::Certificate(refusal(&why.to_string())),
            rustls::Error::InvalidMessage(
                rustls::InvalidMessage::InvalidContentType | rustls::InvalidMessage::UnknownProtocolVersion,
            ) => Self::NotTls,
            rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => {
                Self::ClientCertificateRequired
            }
            rustls::Error::AlertReceived(alert) => Self::Alert(alert::words(alert)),
            rustls::Error::InconsistentKeys(_) => Self::KeyMismatch,
            other => Self::Other(made_printable(&other.to_string()).into_owned()),
        }
    }
}

/// Why a certificate is refused and what to do, from rustls's words.
pub(crate) fn refusal(why: &str) -> String {
    const TRUST: &str = "trust it by --cacert FILE, or skip verification by -k";
    let has = |words: &str| why.to_ascii_lowercase().contains(words);
    // `openssl req -x509` makes such a certificate by default.
    if is_of_an_authority(why) {
        return format!("it is self-signed, or an authority's own (CA:TRUE); {TRUST}");
    }
    if is_too_old(why) {
        return TOO_OLD.to_owned();
    }
    if has("unknownissuer") {
        return format!("its issuer is not trusted; {TRUST}");
    }
    if has("expired") {
        return "it has expired; renew it, or skip verification by -k".to_owned();
    }
    if has("notvalidyet") || has("not valid yet") {
        return "it is not valid yet; check the clock of this machine, or skip verification by -k".to_owned();
    }
    let named = why.replace("DnsName(\"", "").replace("\")", "");
    let named =
        if named.contains("IpAddress(") { named.replace("IpAddress(", "").replace(')', "") } else { named };
    let why = made_printable(&named).into_owned();
    if has("not valid for name") || has("notvalidforname") {
        return format!(
            "{why}; use a name of the certificate (--resolve NAME:PORT:ADDR dials any address), or -k"
        );
    }
    format!("{why}; {TRUST}")
}

/// The text about a certificate whose version is no longer supported.
pub(super) const TOO_OLD: &str = "it is of X.509 version 1, which has no subjectAltName and is not supported; make one of version 3 (openssl req \
     -x509 -addext subjectAltName=DNS:NAME)";

/// Whether a certificate is refused for its version; webpki has no type of its own for it.
pub(super) fn is_too_old(why: &str) -> bool {
    why.contains("UnsupportedCertVersion")
}

/// Whether a certificate is refused because it is an authority's; webpki has no type of its own for it.
pub(super) fn is_of_an_authority(why: &str) -> bool {
    why.contains("CaUsedAsEndEntity")
}

/// Whether a certificate is refused for naming no host at all.
pub(super) fn is_nameless(why: &CertificateError) -> bool {
    matches!(why, CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty())
}

impl TlsError {
    /// The error that an alert means to a client that asked for the protocol `wanted` and has `shown` a certificate or not; to a
    /// server if `wanted` is `None`.
    pub(crate) fn refused(alert: AlertDescription, wanted: Option<&str>, shown: bool) -> Self {
        match (alert, wanted) {
            (AlertDescription::NoApplicationProtocol, Some(wanted)) => {
                Self::Alpn { wanted: wanted.to_owned(), chosen: "none of ours".to_owned() }
            }
            (alert, Some(_)) if shown && is_about_certificates(alert) => {
                Self::ClientCertificateRefused(alert::name(alert))
            }
            (alert, _) => rustls::Error::AlertReceived(alert).into(),
        }
    }
}

/// Whether an alert is about a client's certificate (RFC 8446 §6.2).
const fn is_about_certificates(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::DecryptError
    )
}

//! The alerts of TLS in words: the name of RFC 8446 §6, and what it means to its receiver.

use rustls::AlertDescription;

/// `protocol_version: the peer accepts no TLS version of ours (1.2, 1.3)`.
pub(super) fn words(alert: AlertDescription) -> String {
    let name = name(alert);
    match meaning(alert) {
        Some(meaning) => format!("{name}: {meaning}"),
        None => name,
    }
}

/// The name of the RFC: `unknown_ca`; of those that rustls does not know the number.
pub(super) fn name(alert: AlertDescription) -> String {
    if let AlertDescription::Unknown(number) = alert {
        return format!("number {number}");
    }
    let rusts =
        format!("{alert:?}").replace("recognised", "recognized").replace("PSK", "Psk").replace("CA", "Ca");
    let mut name = String::new();
    let mut is_upper_before = true;
    for c in rusts.chars() {
        if c.is_ascii_uppercase() && !is_upper_before {
            name.push('_');
        }
        is_upper_before = c.is_ascii_uppercase();
        name.push(c.to_ascii_lowercase());
    }
    name
}

fn meaning(alert: AlertDescription) -> Option<&'static str> {
    use AlertDescription as Alert;
    Some(match alert {
        Alert::ProtocolVersion => "the peer accepts no TLS version of ours (1.2, 1.3)",
        Alert::HandshakeFailure => {
            "the peer accepts none of our ciphers, curves or signatures, or requires a client certificate"
        }
        Alert::InsufficientSecurity => "the peer requires stronger ciphers than ours",
        Alert::UnrecognisedName => "the peer has no certificate for the name that was asked for (SNI)",
        Alert::UnknownCA => "the peer does not know the authority of the certificate",
        Alert::BadCertificate | Alert::CertificateUnknown | Alert::UnsupportedCertificate => {
            "the peer does not accept the certificate"
        }
        Alert::CertificateExpired => "the certificate has expired",
        Alert::CertificateRevoked => "the certificate was revoked",
        Alert::AccessDenied => "the peer denies access to this certificate",
        Alert::InternalError => "an internal error of the peer; its log may say more",
        Alert::DecodeError | Alert::IllegalParameter | Alert::UnexpectedMessage | Alert::MissingExtension => {
            "the peer does not understand our messages"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_has_the_name_of_the_rfc_and_a_meaning_and_never_that_of_rust() {
        let of = words;
        assert!(
            of(AlertDescription::ProtocolVersion)
                .starts_with("protocol_version: the peer accepts no TLS version")
        );
        assert!(of(AlertDescription::UnknownCA).starts_with("unknown_ca: "));
        assert!(of(AlertDescription::UnrecognisedName).starts_with("unrecognized_name: "));
        assert_eq!(of(AlertDescription::BadRecordMac), "bad_record_mac");
        assert_eq!(of(AlertDescription::UnknownPSKIdentity), "unknown_psk_identity");
        assert_eq!(of(AlertDescription::Unknown(99)), "number 99");
    }
}

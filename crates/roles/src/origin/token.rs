//! The token that clients must show (RFC 6750).

use std::fmt;

use h2lab_base::units::Time;
use h2lab_transfer::{Algorithm, Checksum, Digest};
use h2lab_wire::Fields;
use subtle::ConstantTimeEq as _;

use super::plan::ResponsePlan;
use super::refusal::Refusal;

/// A bearer token. Only its SHA-256 is kept, so the token can get into no log and no report, and a comparison reveals
/// neither where another token differs nor how long this one is.
#[derive(Clone, PartialEq, Eq)]
pub struct BearerToken(Checksum);

/// Why a text is no token. It is not repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not a bearer token: letters, digits and -._~+/ are allowed, and = at the end (RFC 6750 §2.1)")]
pub struct NotAToken;

impl fmt::Debug for BearerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BearerToken(not shown)")
    }
}

impl BearerToken {
    /// Of a text that the `Authorization` field can carry.
    pub fn new(text: &str) -> Result<Self, NotAToken> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
        let body = text.trim_end_matches('=');
        if body.is_empty() || !body.bytes().all(is_allowed) {
            return Err(NotAToken);
        }
        sum(text.as_bytes()).map(Self).ok_or(NotAToken)
    }

    /// The answer to a request that does not show it: 401 with a challenge (RFC 6750 §3); `None` if it does.
    pub(super) fn refuse(&self, now: Time, fields: Fields<'_>) -> Option<ResponsePlan> {
        let (words, challenge) = match fields.get("authorization").and_then(bearer) {
            Some(shown) if self.is(shown) => return None,
            Some(_) => ("this token is wrong", "Bearer realm=\"h2lab\", error=\"invalid_token\""),
            None => (
                "this server requires a token: Authorization: Bearer TOKEN (bulk get and bulk put: --oauth2-bearer)",
                "Bearer realm=\"h2lab\"",
            ),
        };
        Some(Refusal::new(401, words).plan(now).with("www-authenticate", challenge))
    }

    fn is(&self, shown: &[u8]) -> bool {
        sum(shown).is_some_and(|sum| self.0.bytes().ct_eq(sum.bytes()).into())
    }
}

/// The token of an `Authorization` field; `None` if it is of another scheme, whose name has no case (RFC 9110 §11.1).
fn bearer(field: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = field.split_at_checked("bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

fn sum(text: &[u8]) -> Option<Checksum> {
    let mut digest = Digest::new(Algorithm::Sha256);
    digest.update(text);
    digest.checksum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_itself_is_let_in() {
        let token = BearerToken::new("secret-1~+/==").unwrap();
        let refused = |value: &str| {
            let plan = Fields::of(&[("authorization", value)], |fields| token.refuse(Time::ZERO, fields))?;
            let (_, challenge) = plan.fields.iter().find(|(name, _)| *name == "www-authenticate").unwrap();
            assert!(plan.status == 401 && plan.is_final, "{value}: {plan:?}");
            Some(challenge.contains("invalid_token"))
        };
        for right in ["Bearer secret-1~+/==", "bearer secret-1~+/==", "BEARER   secret-1~+/== "] {
            assert_eq!(refused(right), None, "{right}");
        }
        for wrong in
            ["Bearer secret-1~+/=", "Bearer secret-1~+/===", "Bearer Secret-1~+/==", "Bearer ", "Bearer x"]
        {
            assert_eq!(refused(wrong), Some(true), "{wrong}");
        }
        for none in ["", "Bearer", "secret-1~+/==", "Basic secret-1~+/==", "Bearersecret-1~+/=="] {
            assert_eq!(refused(none), Some(false), "{none}");
        }
        assert!(token.refuse(Time::ZERO, Fields::default()).is_some());
    }

    #[test]
    fn a_token_is_what_the_field_can_carry_and_is_never_shown() {
        for bad in ["", "=", "x y", "a=b", "ä", "a\n", "a,b", "\"a\""] {
            let error = BearerToken::new(bad).unwrap_err();
            assert!(bad.len() < 2 || !error.to_string().contains(bad), "{error}");
        }
        let shown = format!("{:?}", BearerToken::new("hunter2").unwrap());
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

//! `[[hint]]` and `[hints]`: links that clients get for a page before its response.

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ConfigError;
use crate::hints::members;

/// Links of a page that clients get when they ask for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Hint {
    /// The host of the request's authority, without port. Any, if there is none.
    #[serde(default)]
    host: Option<String>,
    /// The path of the page, without its query.
    path: String,
    /// Values of `Link` (RFC 8288): `</app.css>; rel=preload; as=style`.
    #[serde(with = "joined")]
    #[schemars(with = "Vec<String>")]
    link: String,
}

impl Hint {
    /// Links of the page at `path`.
    pub fn new(host: Option<&str>, path: &str, link: &[&str]) -> Self {
        Self { host: host.map(str::to_owned), path: path.to_owned(), link: link.join(", ") }
    }

    /// Whether a request is for its page.
    pub fn is_of(&self, authority: &[u8], path: &[u8]) -> bool {
        let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
        let is_host = |host: &String| crate::route::host_of(authority).eq_ignore_ascii_case(host.as_bytes());
        path == self.path.as_bytes() && self.host.as_ref().is_none_or(is_host)
    }

    /// Whether it names no host.
    pub(crate) const fn is_of_every_host(&self) -> bool {
        self.host.is_none()
    }

    /// All of them as one value.
    pub const fn links(&self) -> &[u8] {
        self.link.as_bytes()
    }

    /// Checks the hints of a file: each is valid, and no two are for the same page.
    pub(super) fn check_all(hints: &[Self]) -> Result<(), ConfigError> {
        hints.iter().try_for_each(Self::check)?;
        let host = |hint: &Self| hint.host.as_deref().map(str::to_ascii_lowercase);
        let is_same = |one: &Self, other: &Self| one.path == other.path && host(one) == host(other);
        let same = (1..hints.len()).find(|n| hints[..*n].iter().any(|other| is_same(other, &hints[*n])));
        same.map_or(Ok(()), |n| {
            let host = hints[n].host.as_ref().map_or_else(String::new, |host| format!(" of host \"{host}\""));
            Err(ConfigError::SameHint { path: hints[n].path.clone(), host })
        })
    }

    /// Checks that it can be sent as the value of a field.
    fn check(&self) -> Result<(), ConfigError> {
        if let Some((host, why)) = self.host.as_ref().and_then(|host| Some((host, why_no_name(host)?))) {
            return Err(ConfigError::HintHost { host: host.clone(), why });
        }
        let is_text = self.link.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        let is_link = |member: &[u8]| member.starts_with(b"<") && member.contains(&b'>');
        let mut links = members(self.link.as_bytes()).peekable();
        if !self.path.starts_with('/')
            || self.path.contains('?')
            || !is_text
            || links.peek().is_none()
            || !links.all(is_link)
        {
            return Err(ConfigError::Hint(self.path.clone()));
        }
        Ok(())
    }
}

/// Why no request can have this host, which is compared without port, brackets and a dot at its end.
fn why_no_name(host: &str) -> Option<&'static str> {
    match host {
        _ if host.contains('*') => Some("patterns are not supported: leave host out to match every host"),
        _ if host.starts_with('[') => Some("remove the brackets, and the port"),
        _ if host.ends_with('.') => Some("remove the dot at its end"),
        _ => crate::route::why_no_host(host),
    }
}

/// A list in the file, one value in the field.
mod joined {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    pub fn serialize<S: Serializer>(text: &str, to: S) -> Result<S::Ok, S::Error> {
        [text].serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
        Ok(Vec::<String>::deserialize(from)?.join(", "))
    }
}

/// How clients get the links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Hints {
    /// Links of earlier responses to the same path are sent, too.
    pub learn: bool,
    /// HTTP/2 clients that allow it get preloaded links pushed: PUSH_PROMISE.
    pub push: bool,
    /// HTTP/1.1 clients get 103, too. Some take it for the response.
    pub http1: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_that_no_request_gets_is_refused() {
        let check =
            |host: Option<&str>, path: &str| Hint::new(host, path, &["</a.css>; rel=preload"]).check();
        for host in ["", "x:80", "*.x", "*", "[::1]", "[::1]:80", "x.", "b\u{fc}cher.test"] {
            let error = check(Some(host), "/").expect_err(host);
            assert!(matches!(error, ConfigError::HintHost { .. }), "{error}");
        }
        for path in ["/?a", "a"] {
            assert_eq!(check(None, path), Err(ConfigError::Hint(path.to_owned())));
        }
        for host in [None, Some("x"), Some("::1"), Some("192.0.2.1"), Some("xn--bcher-kva.test")] {
            assert_eq!(check(host, "/a"), Ok(()), "{host:?}");
        }
    }
}

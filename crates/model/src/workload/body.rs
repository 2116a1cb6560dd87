//! The body of a request as it was given.

use serde::{Deserialize, Serialize};

/// A request body, byte for byte. In files it is text if it is UTF-8, else a list of its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Body(Vec<u8>);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Bytes(Vec<u8>),
}

impl From<Written> for Body {
    fn from(written: Written) -> Self {
        match written {
            Written::Text(text) => Self(text.into_bytes()),
            Written::Bytes(bytes) => Self(bytes),
        }
    }
}

impl From<Body> for Written {
    fn from(Body(bytes): Body) -> Self {
        String::from_utf8(bytes).map_or_else(|error| Self::Bytes(error.into_bytes()), Self::Text)
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl From<&str> for Body {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self(text.into_bytes())
    }
}

impl Body {
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The same as text; `None` if it is none.
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_text_in_a_file_where_it_can_be_and_stays_the_same_in_any_case() {
        let written = |body: &Body| serde_json::to_string(body).unwrap();
        for (body, expected) in [(Body::from("a\n"), "\"a\\n\""), (Body::from(vec![0, 255]), "[0,255]")] {
            assert_eq!(written(&body), expected);
            assert_eq!(serde_json::from_str::<Body>(expected).unwrap(), body);
        }
        assert_eq!((Body::from("é").text(), Body::from(vec![255]).text()), (Some("é"), None));
    }
}

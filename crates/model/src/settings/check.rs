//! How an entry of the table was checked.

use std::fmt;

use serde::Deserialize;

/// One way in which an entry was checked, with the version of the product.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Check {
    /// The program's own test of a configuration accepts it: `cargo xtask verify settings` repeats that.
    ConfigTest(String),
    /// The program itself: its help, its strings, what it sends.
    Binary(String),
    /// Its manual.
    Manual(String),
    /// Its source at a tag or a commit.
    Source(String),
}

/// Makes a check from the version that follows the words.
type Make = fn(String) -> Check;

impl TryFrom<String> for Check {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let kinds: [(&str, Make); 4] = [
            ("config test of ", Self::ConfigTest),
            ("binary of ", Self::Binary),
            ("manual of ", Self::Manual),
            ("source at ", Self::Source),
        ];
        let found = kinds.iter().find_map(|(words, check)| Some(check(text.strip_prefix(words)?.to_owned())));
        found.ok_or_else(|| {
            format!("`{text}` is none of: config test of, binary of, manual of VERSION, source at TAG")
        })
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ConfigTest(version) => write!(f, "config test of {version}"),
            Self::Binary(version) => write!(f, "binary of {version}"),
            Self::Manual(version) => write!(f, "manual of {version}"),
            Self::Source(tag) => write!(f, "source at {tag}"),
        }
    }
}

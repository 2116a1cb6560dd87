//! `memory`.

use std::fmt;
use std::str::FromStr;

use h2lab_base::JsonSchema;
use h2lab_base::units::{format_bytes, parse_bytes};
use serde::{Deserialize, Serialize};

use super::ConfigError;
use crate::guard::memory::least;

/// A size in bytes, as text: `256M`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(into = "String", try_from = "String")]
pub struct Size(pub u64);

impl Size {
    /// Checks that it is enough for `threads` threads.
    pub(super) fn check(self, threads: u32) -> Result<(), ConfigError> {
        if self.0 >= least(threads) {
            return Ok(());
        }
        Err(ConfigError::Memory { size: self.0, threads })
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_bytes(text).map(Self).map_err(|error| error.to_string())
    }
}

impl TryFrom<String> for Size {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Size> for String {
    fn from(size: Size) -> Self {
        size.0.to_string()
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_bytes(self.0))
    }
}

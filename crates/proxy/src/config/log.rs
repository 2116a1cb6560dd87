//! `[log]`: the access log.

use std::fmt;
use std::str::FromStr;

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ConfigError;

/// What is logged of each request, and where.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Log {
    /// The file, to which lines are added; `-` is standard output. Without it nothing is logged.
    pub file: Option<String>,
    /// How a line is written.
    pub format: LogFormat,
}

impl Log {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let why = "file must not be empty; without the key nothing is logged";
        match self.file.as_deref() {
            Some("") => Err(ConfigError::Value { place: "[log]".to_owned(), why }),
            _ => Ok(()),
        }
    }
}

/// How a line of the access log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people: a line of words.
    #[default]
    Text,
    /// For programs: an object of JSON on each line.
    Json,
}

impl FromStr for LogFormat {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err("expected text or json"),
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

//! Versions of products, as far as ranges need them.

use std::cmp::Ordering;
use std::fmt;

use serde::Deserialize;

/// The numbers of a version: `1.22.1`. Missing numbers are 0, so that `2.8` is `2.8.0`.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
pub struct Version(Vec<u32>);

impl Version {
    /// The version at the beginning of `text`: `1.22.1` of `1.22.1-3+deb12u4`, after a `v` or `go` if there is one.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim_start_matches(|c: char| c.is_ascii_alphabetic());
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let numbers: Result<Vec<u32>, _> =
            text[..end].trim_end_matches('.').split('.').map(str::parse).collect();
        numbers.ok().map(Self)
    }

    fn number(&self, at: usize) -> u32 {
        self.0.get(at).copied().unwrap_or(0)
    }
}

impl TryFrom<String> for Version {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("`{text}` is not a version"))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        let length = self.0.len().max(other.0.len());
        (0..length)
            .map(|at| self.number(at).cmp(&other.number(at)))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Version {}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(u32::to_string).collect();
        f.pad(&numbers.join("."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Version {
        Version::parse(text).unwrap()
    }

    #[test]
    fn versions_are_compared_by_numbers_and_missing_ones_are_0() {
        assert!(version("1.9.15") < version("1.22.1") && version("2.8") == version("2.8.0"));
        assert!(version("3.0.1") > version("3") && version("go1.24") < version("go1.26.8"));
    }

    #[test]
    fn what_follows_the_numbers_is_ignored_and_what_has_none_is_no_version() {
        assert_eq!(version("2.6.12-1+deb12u4").to_string(), "2.6.12");
        assert_eq!(version("v1.40.0/Clean").to_string(), "1.40.0");
        assert!(Version::parse("").is_none() && Version::parse("unknown").is_none());
    }
}

//! An agent's part of a load that several machines make together.

use serde::{Deserialize, Serialize};

/// One of several equal parts of a load. In an open loop shares interleave: of `of` shares, share `number` has every `of`-th request
/// of the schedule, so that all of them together are the arrival process that one generator would make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Parts")]
pub struct Share {
    /// Which one, from 0 on; below `of`.
    pub number: u32,
    /// How many there are, 1 to [`Share::MOST`].
    pub of: u32,
}

/// A share as it is sent.
#[derive(Deserialize)]
struct Parts {
    number: u32,
    of: u32,
}

/// Why there is no such share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("share {number} of {of} does not exist: there are 1 to {most} shares, counted from 0", most = Share::MOST)]
pub struct ShareError {
    /// The number that was given.
    pub number: u32,
    /// Of how many.
    pub of: u32,
}

impl Share {
    /// Into so many shares a load can be divided.
    pub const MOST: u32 = 10_000;

    /// Share `number` of `of`.
    pub const fn new(number: u32, of: u32) -> Result<Self, ShareError> {
        if number < of && of <= Self::MOST { Ok(Self { number, of }) } else { Err(ShareError { number, of }) }
    }
}

impl Default for Share {
    /// The whole load.
    fn default() -> Self {
        Self { number: 0, of: 1 }
    }
}

impl TryFrom<Parts> for Share {
    type Error = ShareError;

    fn try_from(Parts { number, of }: Parts) -> Result<Self, ShareError> {
        Self::new(number, of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_that_is_sent_exists_or_is_refused() {
        let read = |number: u32, of: u32| {
            serde_json::from_str::<Share>(&format!(r#"{{"number":{number},"of":{of}}}"#))
        };
        for (number, of) in [(0, 1), (2, 3), (9_999, 10_000)] {
            let share = read(number, of).unwrap();
            assert_eq!(share, Share { number, of });
            assert_eq!(
                serde_json::from_str::<Share>(&serde_json::to_string(&share).unwrap()).unwrap(),
                share
            );
        }
        for (number, of) in [(0, 0), (1, 1), (3, 3), (0, 10_001), (u32::MAX, u32::MAX)] {
            let error = read(number, of).unwrap_err().to_string();
            assert!(error.contains(&format!("share {number} of {of} does not exist")), "{error}");
        }
    }

    #[test]
    fn by_default_it_is_the_whole_load() {
        assert_eq!(Share::new(0, 1), Ok(Share::default()));
    }
}

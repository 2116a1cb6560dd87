//! `[service.NAME.outlier]`.

use std::time::Duration;

use h2lab_base::JsonSchema;
use h2lab_base::units::duration_text;
use serde::{Deserialize, Serialize};

use super::ConfigError;
use crate::guard::outlier::Rules;

/// When an instance that fails is left out. The last instance never is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Outlier {
    /// After this many failures in a row; 0 never.
    pub consecutive: u32,
    /// If this percentage of its requests in ten seconds failed, and three times the share of the others'; 0 never.
    pub failures: u32,
    /// For how long at the first time; twice as long at the second one, and so on.
    #[serde(with = "duration_text")]
    #[schemars(with = "String")]
    pub base: Duration,
    /// The longest.
    #[serde(with = "duration_text")]
    #[schemars(with = "String")]
    pub most: Duration,
    /// The percentage of the instances that are left out at most, but one may be; 0 none.
    pub share: u32,
    /// If less than this percentage of the instances are fit, in each priority and there of the own zone and of the
    /// others, all are used; 0 never.
    pub panic: u32,
}

impl Default for Outlier {
    fn default() -> Self {
        Self {
            consecutive: 5,
            failures: 50,
            base: Duration::from_secs(10),
            most: Duration::from_secs(300),
            share: 50,
            panic: 50,
        }
    }
}

impl Outlier {
    /// The rules.
    pub const fn rules(&self) -> Rules {
        let Self { consecutive, failures, base, most, share, panic } = *self;
        Rules { consecutive, percent: failures, base, most, share, panic }
    }

    pub(super) fn check(&self, place: &str) -> Result<(), ConfigError> {
        if [self.failures, self.share, self.panic].iter().all(|percent| *percent <= 100) {
            return Ok(());
        }
        Err(ConfigError::Value {
            place: place.to_owned(),
            why: "failures, share and panic are percentages: from 0 to 100",
        })
    }
}

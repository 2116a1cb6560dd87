//! A suggested change, in a product's own terms.

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::settings::{self, Wish};

/// A change that should help.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fix {
    /// The product that it is for: `nginx`, `client`, `kernel` …
    pub product: String,
    /// The setting, as it is written in that product's configuration.
    pub setting: String,
    /// What it does and what it costs.
    pub why: String,
    /// The wish from which the table of settings made it, for code that applies it; documents have it as text.
    #[serde(skip)]
    pub wish: Option<Wish>,
}

impl Fix {
    /// A change of this setting of this product.
    pub fn new(product: &str, setting: &str, why: impl Into<String>) -> Self {
        Self { product: product.to_owned(), setting: setting.to_owned(), why: why.into(), wish: None }
    }

    /// `nginx: keepalive_requests 100000; - connections end after 20 requests here`; without a setting
    /// `Undertow: we know of no setting of Undertow for Early Hints (103)`.
    pub fn line(&self) -> String {
        if !self.has_setting() {
            return format!("{}: {}", self.product, self.why);
        }
        format!("{}: {} - {}", self.product, self.setting, self.why)
    }

    /// Whether it names a setting. If not, it says why there is none, or that none is known.
    pub fn has_setting(&self) -> bool {
        ![settings::NOT_KNOWN, settings::NONE].contains(&self.setting.as_str())
    }
}

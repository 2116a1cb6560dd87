//! The one table of the settings of products: product × version range × role × what it controls.
//!
//! A rule names *what* must change, a [`Knob`] and a value; the table says *how it is written* in the product that was seen, what
//! that costs, or why the product has nothing. Each product is a file in `products/`; how to add an entry: CONTRIBUTING.md.

mod advice;
mod check;
pub mod edit;
mod knob;
mod lines;
mod peer;
#[cfg(test)]
mod tests;
mod unit;
mod version;

use std::sync::LazyLock;

use serde::Deserialize;

pub use advice::{NONE, NOT_KNOWN, Wish, advise, first, known, newer, proxies, written};
pub use check::Check;
pub use knob::{Knob, Role};
pub use lines::{expanded, fixes, wish};
pub use peer::{Peer, UNKNOWN_PRODUCT};
pub use unit::{Unit, rounded_up};
pub use version::Version;

/// The files of the table, in the order in which products are listed.
const FILES: &[(&str, &str)] = &[
    ("nginx", include_str!("products/nginx.toml")),
    ("haproxy", include_str!("products/haproxy.toml")),
    ("envoy", include_str!("products/envoy.toml")),
    ("apache", include_str!("products/apache.toml")),
    ("caddy", include_str!("products/caddy.toml")),
    ("nghttpx", include_str!("products/nghttpx.toml")),
    ("h2o", include_str!("products/h2o.toml")),
    ("traefik", include_str!("products/traefik.toml")),
    ("nghttpd", include_str!("products/nghttpd.toml")),
    ("go", include_str!("products/go.toml")),
    ("hyper", include_str!("products/hyper.toml")),
    ("node", include_str!("products/node.toml")),
    ("jdk", include_str!("products/jdk.toml")),
    ("netty", include_str!("products/netty.toml")),
    ("jetty", include_str!("products/jetty.toml")),
    ("tomcat", include_str!("products/tomcat.toml")),
    ("undertow", include_str!("products/undertow.toml")),
    ("dotnet", include_str!("products/dotnet.toml")),
    ("hypercorn", include_str!("products/hypercorn.toml")),
    ("httpx", include_str!("products/httpx.toml")),
    ("grpc-go", include_str!("products/grpc-go.toml")),
    ("grpc-core", include_str!("products/grpc-core.toml")),
    ("curl", include_str!("products/curl.toml")),
    ("nghttp", include_str!("products/nghttp.toml")),
    ("okhttp", include_str!("products/okhttp.toml")),
    ("h2lab", include_str!("products/h2lab.toml")),
    ("linux", include_str!("products/linux.toml")),
];

static TABLE: LazyLock<Vec<Product>> = LazyLock::new(|| {
    FILES
        .iter()
        .map(|(id, text)| Product::parse(id, text).unwrap_or_else(|error| panic!("{id}.toml: {error}")))
        .collect()
});

/// All products, in the order in which they are listed.
fn products() -> &'static [Product] {
    &TABLE
}

/// A product and what can be set in it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Product {
    /// The name of its file.
    #[serde(skip)]
    pub id: &'static str,
    /// Its name, as reports write it.
    pub name: String,
    /// What it calls itself in the `server` field, and how h2lab calls the server that it starts; in lower case.
    #[serde(default)]
    pub markers: Vec<String>,
    /// Whether it forwards to other servers.
    #[serde(default)]
    pub proxy: bool,
    /// The entries.
    #[serde(rename = "setting")]
    pub settings: Vec<Setting>,
}

impl Product {
    fn parse(id: &'static str, text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text).map(|product| Self { id, ..product })
    }

    /// The entries for this knob and role, in the order of versions.
    pub fn entries(&self, knob: Knob, role: Role) -> impl Iterator<Item = &Setting> {
        self.settings.iter().filter(move |setting| setting.knob == knob && setting.role == role)
    }
}

/// An entry: how something is written in a range of versions of a product, or why it is not.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// What it controls.
    pub knob: Knob,
    /// The end that it is about.
    pub role: Role,
    /// The first version that has it; `None` if all earlier ones have it, too.
    pub from: Option<Version>,
    /// The first version that does not have it any more.
    pub until: Option<Version>,
    /// The name of the setting; `None` if there is none.
    pub name: Option<String>,
    /// Where it stands: the section of the configuration, in the product's terms.
    pub place: Option<String>,
    /// How it is written, with `{value}` where the value stands. Without a unit it has no value.
    pub write: Option<String>,
    /// The unit of the value.
    pub unit: Option<Unit>,
    /// The least and the most that it takes, in its unit.
    pub range: Option<(u64, u64)>,
    /// What it is if it is not set.
    pub default: Option<String>,
    /// Whether 0 means no limit; elsewhere it is the least value, such as nginx's `keepalive_requests 0`.
    #[serde(default)]
    pub zero_is_no_limit: bool,
    /// How many more it lets through than is written.
    #[serde(default)]
    pub more: u64,
    /// What it costs, or what else to know.
    pub side: Option<String>,
    /// Why there is no setting.
    pub none: Option<String>,
    /// How the entry was checked; not at all if empty.
    #[serde(default)]
    pub checked: Vec<Check>,
}

impl Setting {
    /// Whether `version` lies in its range.
    pub fn is_in(&self, version: &Version) -> bool {
        self.from.as_ref().is_none_or(|from| version >= from)
            && self.until.as_ref().is_none_or(|until| version < until)
    }

    /// The range in words: `since 3.0`, `before 2.8`, `from 2.8 to before 3.1`; `None` for all versions.
    fn versions(&self) -> Option<String> {
        match (&self.from, &self.until) {
            (None, None) => None,
            (Some(from), None) => Some(format!("since {from}")),
            (None, Some(until)) => Some(format!("before {until}")),
            (Some(from), Some(until)) => Some(format!("from {from} to before {until}")),
        }
    }
}

//! Which product is at the other end.

use super::{Product, Version, products};

/// What a fix calls a server of which nothing is known.
pub const UNKNOWN_PRODUCT: &str = "server";

/// What is known of a server or a client: its product and version, if they were recognised.
#[derive(Debug, Clone, Default)]
pub struct Peer {
    /// As it calls itself, or as h2lab calls it; empty if nothing was seen.
    pub name: String,
    /// Its product.
    pub product: Option<&'static Product>,
    /// Its version.
    pub version: Option<Version>,
}

impl Peer {
    /// The sender of this `server` field, such as `nginx/1.22.1` or `Apache/2.4.62 (Debian)`. The first word that is a
    /// name of a product decides, alone or with more after or before a hyphen (`istio-envoy`).
    pub fn of_field(field: &str) -> Self {
        let found = field.split_whitespace().find_map(|word| {
            let (name, version) = word.split_once(['/', '(']).unwrap_or((word, ""));
            Some((product_called(&name.to_ascii_lowercase())?, Version::parse(version)))
        });
        let (product, version) = found.map_or((None, None), |(product, version)| (Some(product), version));
        Self { name: field.to_owned(), product, version }
    }

    /// A server that h2lab started under this name, or a product by its id.
    pub fn started(name: &str) -> Self {
        Self { name: name.to_owned(), product: product_called(name), version: None }
    }

    /// The server that h2lab started, if it did, else the sender of this field: a proxy passes on the field of its
    /// upstream. The field adds the version if it names the same product.
    pub fn seen(started: Option<&str>, field: Option<&str>) -> Self {
        let sender = field.map_or_else(Self::unknown, Self::of_field);
        let id = |peer: &Self| peer.product.map(|product| product.id);
        match started.map(Self::started) {
            Some(ours) if ours.product.is_some() && id(&ours) != id(&sender) => ours,
            _ => sender,
        }
    }

    /// A peer of which nothing is known.
    pub fn unknown() -> Self {
        Self::default()
    }

    /// The product with its version, else what it calls itself.
    pub(super) fn words(&self) -> String {
        match (self.product, &self.version) {
            (Some(product), Some(version)) => format!("{} {version}", product.name),
            (Some(product), None) => product.name.clone(),
            (None, _) if self.name.is_empty() => UNKNOWN_PRODUCT.to_owned(),
            (None, _) => self.name.clone(),
        }
    }
}

fn product_called(name: &str) -> Option<&'static Product> {
    let is_called = |marker: &str| {
        name == marker
            || name.strip_prefix(marker).is_some_and(|rest| rest.starts_with('-'))
            || name.strip_suffix(marker).is_some_and(|rest| rest.ends_with('-'))
    };
    // `Apache-Coyote` is Tomcat: the longest marker decides.
    let markers =
        products().iter().flat_map(|product| product.markers.iter().map(move |marker| (marker, product)));
    markers
        .filter(|(marker, _)| is_called(marker))
        .max_by_key(|(marker, _)| marker.len())
        .map(|(_, product)| product)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(field: &str) -> (Option<&'static str>, Option<String>) {
        let peer = Peer::of_field(field);
        (peer.product.map(|product| product.id), peer.version.map(|version| version.to_string()))
    }

    #[test]
    fn products_are_recognised_by_what_they_call_themselves() {
        for (field, id, version) in [
            ("nginx/1.22.1", "nginx", Some("1.22.1")),
            ("openresty/1.21.4.1", "nginx", Some("1.21.4.1")),
            ("Apache/2.4.62 (Debian)", "apache", Some("2.4.62")),
            ("Apache-Coyote/1.1", "tomcat", Some("1.1")),
            ("istio-envoy", "envoy", None),
            ("HAProxy", "haproxy", None),
            ("Jetty(12.0.1)", "jetty", Some("12.0.1")),
            ("nghttpd nghttp2/1.52.0", "nghttpd", None),
            ("hypercorn-h2", "hypercorn", None),
            ("h2o/2.2.5", "h2o", Some("2.2.5")),
            ("Kestrel", "dotnet", None),
            ("nghttp2/1.52.0", "nghttp", Some("1.52.0")),
            ("h2load nghttp2/1.52.0", "nghttp", None),
            ("okhttp/4.12.0", "okhttp", Some("4.12.0")),
        ] {
            assert_eq!(seen(field), (Some(id), version.map(str::to_owned)), "{field}");
        }
        for field in ["", "acme/1", "mynginx", "cloudflare"] {
            assert_eq!(seen(field).0, None, "{field}");
        }
    }

    #[test]
    fn servers_that_h2lab_starts_are_recognised_by_their_names() {
        let id = |name| Peer::started(name).product.map(|product| product.id);
        assert_eq!(["nginx-proxy", "origin", "go"].map(id), [Some("nginx"), Some("h2lab"), Some("go")]);
    }

    #[test]
    fn a_server_that_was_started_goes_before_a_field_that_it_may_have_passed_on() {
        let seen = |started, field| {
            let peer = Peer::seen(started, field);
            (peer.product.map(|product| product.id), peer.version.map(|version| version.to_string()))
        };
        assert_eq!(seen(Some("haproxy"), Some("h2lab")), (Some("haproxy"), None));
        assert_eq!(
            seen(Some("nginx-proxy"), Some("nginx/1.22.1")),
            (Some("nginx"), Some("1.22.1".to_owned()))
        );
        assert_eq!(seen(None, Some("nginx/1.22.1")).0, Some("nginx"));
        assert_eq!((seen(Some("haproxy"), None).0, seen(None, None).0), (Some("haproxy"), None));
    }
}

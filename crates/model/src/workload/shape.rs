//! Named request shapes: the header fields that go with each request.
//!
//! Bytes and segments per request decide the figures, so each shape is listed here in full and printed with a run.

use h2lab_base::JsonSchema;

use serde::{Deserialize, Serialize};

use h2lab_base::units::ParseQuantityError;
use h2lab_wire::Field;

/// Which header fields a request carries besides method, authority, path and content-length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[derive(strum::Display, strum::IntoStaticStr, strum::EnumString)]
#[strum(serialize_all = "lowercase", parse_err_ty = ParseQuantityError, parse_err_fn = no_request_shape)]
pub enum RequestShape {
    /// What a bare client sends: `user-agent` and `accept`.
    Bare,
    /// What one service sends to another through a mesh sidecar: identity, tracing and routing fields. Default.
    #[default]
    Mesh,
}

/// Fields of [`RequestShape::Bare`].
const BARE: &[(&str, &str)] = &[("user-agent", "h2lab"), ("accept", "*/*")];

/// Fields of [`RequestShape::Mesh`]: what Envoy, Linkerd and OpenTelemetry add to a JSON call.
const MESH: &[(&str, &str)] = &[
    ("user-agent", "checkout-service/4.12.0 (linux; amd64) h2lab"),
    ("accept", "application/json"),
    ("accept-encoding", "gzip, deflate"),
    ("content-type", "application/json"),
    ("x-request-id", "6f1d0f0e-3b2a-4a8e-9d65-2f6a1c7b9e10"),
    ("x-forwarded-for", "10.42.7.19"),
    ("x-forwarded-proto", "http"),
    ("x-envoy-attempt-count", "1"),
    ("x-envoy-expected-rq-timeout-ms", "15000"),
    ("x-b3-traceid", "80f198ee56343ba864fe8b2a57d3eff7"),
    ("x-b3-spanid", "e457b5a2e4d86bd1"),
    ("x-b3-parentspanid", "05e3ac9a4f6e3b90"),
    ("x-b3-sampled", "1"),
    ("traceparent", "00-80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-01"),
    (
        "authorization",
        "Bearer eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJjaGVja291dCIsImF1ZCI6ImludmVudG9yeSJ9.c2lnbmF0dXJl",
    ),
];

impl RequestShape {
    /// All shapes.
    pub const ALL: [Self; 2] = [Self::Bare, Self::Mesh];

    /// The name in flags, TOML, JSON and reports.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The header fields, lower-case names.
    pub const fn fields(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Bare => BARE,
            Self::Mesh => MESH,
        }
    }

    /// The fields as the engines take them.
    pub fn wire_fields(self) -> Vec<Field<'static>> {
        self.fields().iter().map(|(name, value)| Field::new(name, value)).collect()
    }

    /// Bytes of the fields as HTTP/1.1 text: name, `: `, value, CRLF.
    pub fn plain_bytes(self) -> usize {
        self.fields().iter().map(|(name, value)| name.len() + value.len() + 4).sum()
    }
}

fn no_request_shape(text: &str) -> ParseQuantityError {
    ParseQuantityError::new(text, "a request shape (bare, mesh)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_lower_case_as_http2_demands() {
        for shape in RequestShape::ALL {
            for (name, _) in shape.fields() {
                assert_eq!(*name, name.to_ascii_lowercase());
            }
        }
    }

    #[test]
    fn a_mesh_request_of_1_kib_still_fits_two_segments_in_http1() {
        assert_eq!(RequestShape::Mesh.plain_bytes(), 628, "docs/method.md has this number");
        assert_eq!(RequestShape::Bare.plain_bytes(), 32, "docs/method.md has this number");
    }
}

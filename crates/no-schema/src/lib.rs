//! A derive of `JsonSchema` that makes nothing. `h2lab_base::JsonSchema` is this one unless the feature `schema` is on, so that
//! who builds from source does not compile schemas, which only `h2lab gen schema` prints (a tenth of the build).
//!
//! Never contains: anything else.
#![forbid(unsafe_code)]

use proc_macro::TokenStream;

/// Accepts what schemars' derive accepts.
#[proc_macro_derive(JsonSchema, attributes(schemars))]
pub fn no_schema(_: TokenStream) -> TokenStream {
    TokenStream::new()
}

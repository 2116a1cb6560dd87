//! A derive of `JsonSchema` that generates nothing. `h2lab_base::JsonSchema` is this one unless the feature `schema` is
//! on. So builds from source do not compile schemas (a tenth of the build), which only `h2lab gen schema` prints.
//!
//! Never contains: anything else.
#![forbid(unsafe_code)]

use proc_macro::TokenStream;

/// Accepts what schemars' derive accepts.
#[proc_macro_derive(JsonSchema, attributes(schemars))]
pub fn no_schema(_: TokenStream) -> TokenStream {
    TokenStream::new()
}

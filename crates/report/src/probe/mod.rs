//! A probe's results for people, for scripts, for code scanning (SARIF) and for CI (`JUnit`).

mod causes;
mod junit;
mod markdown;
mod sarif;
#[cfg(test)]
pub(crate) mod testing;
mod text;

pub(crate) use causes::causes_of;
pub use causes::{ProbeCauseDocument, ProbeDocument, probe_document};
pub use junit::junit;
pub use markdown::probe_markdown;
pub use sarif::sarif;
pub use text::probe_text;
pub(crate) use text::{amount, closing, known_limits};

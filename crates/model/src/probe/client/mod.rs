//! The client under test: its behaviour when the server misbehaves as servers sometimes do.
//!
//! A [`TestCase`] is one run of the client's command against our server with one behaviour. What is [seen](seen) of the
//! client is recorded as facts: connections, frames, requests and their fates. [`grade`] turns them into checks and a
//! score card.

pub mod grade;
mod score_card;
pub mod seen;
mod settings;
pub mod test_case;

pub use score_card::score_card;
pub use seen::{CaseRun, ConnectionSeen, FrameNote, RequestSeen};
pub use test_case::{AnswerState, RequestHandling, RequestPosition, TestCase};

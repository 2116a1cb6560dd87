//! The client under test: what it does when the server behaves as servers do now and then.
//!
//! An [`TestCase`] is one run of the client's command against a server of ours that behaves in one way. What was [seen](seen) of
//! it is facts: connections, frames, requests and their fates. [`grade`] makes the checks of them, and a score card.

pub mod grade;
mod score_card;
pub mod seen;
mod settings;
pub mod test_case;

pub use score_card::score_card;
pub use seen::{CaseRun, ConnectionSeen, FrameNote, RequestSeen};
pub use test_case::{Fate, Place, Stage, TestCase};

//! The client under test: what it does when the server behaves as servers do now and then.
//!
//! An [`Act`] is one run of the client's command against a server of ours that behaves in one way. What was [seen](seen) of it is
//! facts: connections, frames, requests and their fates. [`grade`] makes the checks of them, and a score card.

pub mod act;
mod card;
pub mod grade;
pub mod seen;
mod settings;

pub use act::{Act, Fate, Place, Stage};
pub use card::score_card;
pub use seen::{ConnectionSeen, FrameNote, Performance, RequestSeen};

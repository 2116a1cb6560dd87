//! Waterfalls as text: a line for each thing that happened, with a track that shows when.

mod hops;
mod study;
mod text;

pub use study::study_text;
pub(super) use study::{STUDY_COLUMNS, announcement, flaws, label, study_cells};
pub use text::timeline_text;
pub(super) use text::{Event, EventKind, connect_events, heading, left_off, stream_events, stream_title};

//! Waterfalls as text: a line for each event, with a track that shows its time.

mod event;
mod hops;
mod study;
mod text;
mod track;

pub(super) use event::{EventKind, TimelineEvent, connect_events, left_off, stream_events, stream_title};
pub use study::study_text;
pub(super) use study::{STUDY_COLUMNS, announcement, flaws, label, study_cells};
pub(super) use text::heading;
pub use text::timeline_text;

//! Files and filler as both ends of a bulk transfer have them: [`body`] is where bytes come from, [`sink`] where they go.

pub mod body;
mod checksum;
pub mod names;
mod room;
mod saver;
pub mod sink;

pub use body::{Body, Chunk, FileState};
pub use checksum::{READ, checksum, disk_wait};
pub use names::Names;
pub use room::Spare;
pub use sink::{FileSink, Sink, SinkError, collide};

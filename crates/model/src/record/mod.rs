//! All data that passes from a run to a report. Every number in a report can be recomputed from here.
//!
//! A [`CellRecord`] is one repetition of one cell of the plan: its requests, connections, frames and packets.
//! If there are too many requests to keep each, tallies count them. The shell
//! stores it (`run.json` and Parquet files in the run folder) and reads it back; [`h2lab_analysis::stats`] and
//! [`h2lab_analysis::diagnose`] read nothing else.

pub mod agents;
mod bulk;
pub mod connection;
mod data_frames;
pub mod disturbance;
pub mod histogram;
pub mod level;
pub mod link;
mod measured_on;
pub mod merge;
pub mod meter;
pub mod outcome;
pub mod run;
pub mod sample;
mod tail;
pub mod tally;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use agents::ShareSummary;
pub use bulk::{BulkRepetition, IoFigures, Offered};
pub use connection::{CloseReason, ConnectionRecord, GoAwayRecord, HttpRecord};
pub use data_frames::FrameFigures;
pub use disturbance::{Disturbance, DisturbanceKind};
pub use histogram::Histogram;
pub use level::Level;
pub use link::{LinkSummary, Marks, PacketFate, PacketRecord};
pub use measured_on::{HostId, MeasuredOn};
pub use meter::{ByteMeter, RateSpread};
pub use outcome::{Fault, Outcome};
pub use run::{
    CellRecord, Environment, GeneratorMemory, GeneratorSummary, OriginCounts, RunDelay, RunRecord,
    SCHEMA_VERSION, ServerSummary, SidecarSummary,
};
pub use sample::{Sample, Samples};
pub use tail::TailSample;
pub use tally::Tally;

//! What is known of an upload.

use h2lab_transfer::Extents;

use crate::bulk::source::UploadSource;

/// What is known of an upload.
#[derive(Debug, Default)]
pub(super) struct Upload {
    pub source: UploadSource,
    /// The tag by which the server identifies it.
    pub tag: String,
    /// Whether the server reports what it has; `None` before it was asked.
    pub is_resumable: Option<bool>,
    /// Ranges that are in flight.
    pub under_way: Extents,
    /// Bytes of these ranges that were sent.
    pub flying: u64,
    /// Bytes of requests that broke: it is unknown whether they arrived.
    pub doubtful: u64,
    /// Bytes of requests that were reported as sent and were not, see [`Fetch::take_back`].
    pub taken_back: u64,
    /// Everything goes in one request.
    pub is_whole: bool,
    /// Queries in flight of what the server has.
    pub questions: u32,
    /// What the server took since the first of those queries: their answers may be older.
    pub proved: Extents,
}

impl Upload {
    /// Whether another run can resume what arrived.
    pub const fn is_kept(&self) -> bool {
        matches!(self.is_resumable, Some(true)) && self.source.is_file()
    }
}

//! The flags of what a server takes.

use std::time::Duration;

use clap::Args;

use super::super::values::{duration, size};
use h2lab_net::storage::Spare;
use h2lab_roles::origin::UploadLimits;

/// What clients may store.
#[derive(Debug, Args)]
#[command(next_help_heading = "Uploads")]
pub struct UploadArgs {
    /// Accept files (PUT): whole, in parts, resumable. Anyone who can connect can then store files, within these limits
    #[arg(long, conflicts_with = "memory")]
    writable: bool,
    /// Let uploads replace files; without it an existing name is refused (412)
    #[arg(long, requires = "writable")]
    overwrite: bool,
    /// Largest file accepted; a larger one is refused (413) before its content [default: unlimited]
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "writable")]
    max_upload: Option<u64>,
    /// Total bytes stored, unfinished files included; further uploads are refused (507) [default: unlimited]
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "writable")]
    max_total: Option<u64>,
    /// Remove unfinished uploads that received nothing for this long, also those of an earlier process
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = expiry, requires = "writable")]
    expire: Duration,
    /// Disk space that uploads leave free (507) [default: 5 % of the disk, at most 1G]
    #[arg(long, value_name = "SIZE", value_parser = size, requires = "writable")]
    reserve: Option<u64>,
}

fn expiry(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        time if time < Duration::from_secs(1) => Err(format!("`{text}` is below 1s")),
        time => Ok(time),
    }
}

impl UploadArgs {
    /// How long an unfinished upload is kept after its last byte.
    pub const fn expire(&self) -> Duration {
        self.expire
    }

    /// What uploads may take; `None` if none are accepted.
    pub fn limits(&self) -> Option<UploadLimits> {
        let Self { writable, overwrite, max_upload, max_total, reserve, .. } = *self;
        let spare = reserve.map_or(Spare::Usual, Spare::Bytes);
        writable.then_some(UploadLimits { max_upload, max_total, spare, overwrite })
    }
}

//! Checksums of files, and the time that disks take.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use h2lab_transfer::{Algorithm, Checksum, Digest};

/// Bytes that are read at once for a checksum.
pub const READ: u64 = 1 << 20;

/// How much of the `time` that a file took for `bytes` bytes was spent on its disk: what exceeds a copy in memory, at 1
/// GB/s. The page cache is several times faster than that.
pub fn disk_wait(time: Duration, bytes: usize) -> Duration {
    time.saturating_sub(Duration::from_nanos(bytes as u64))
}

/// The checksum of the first `total` bytes of `file`; `None` where nothing is summed.
pub fn checksum(file: &File, algorithm: Algorithm, total: u64) -> io::Result<Option<Checksum>> {
    if algorithm == Algorithm::None {
        return Ok(None);
    }
    let mut digest = Digest::new(algorithm);
    let mut block = vec![0; READ.min(total) as usize];
    let mut at = 0;
    while at < total {
        let piece = &mut block[..READ.min(total - at) as usize];
        file.read_exact_at(piece, at)?;
        digest.update(piece);
        at += piece.len() as u64;
    }
    Ok(digest.checksum())
}

//! A checksum within each table: a byte that a disk has changed is an error, and not another figure.
//!
//! Parquet's own checksums cover pages and not the footer, where a changed number of rows would go unnoticed, and the Parquet crate
//! does not write them. So the footer has a key whose value is the CRC-32C of the whole file, computed with [`UNKNOWN`] in its place.
//! Other readers ignore it. Files of before the key have none, and pass.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt as _;

use anyhow::{Context, Result, ensure};
use h2lab_transfer::{Algorithm, Digest};
use parquet::file::metadata::KeyValue;

/// The key in the footer.
const KEY: &str = "h2lab.crc32c";
/// The value while the checksum is computed: as many digits as it has.
const UNKNOWN: &str = "00000000";
/// The key is so near to the end of the file, whatever the rest of the footer holds: only the writer's name and the order of the
/// columns follow.
const TAIL: usize = 4_096;
/// Bytes that are read at once.
const PIECE: usize = 1 << 16;

/// The key before its value is known.
pub fn placeholder() -> KeyValue {
    KeyValue::new(KEY.to_owned(), UNKNOWN.to_owned())
}

/// Where in the last bytes of a file the value begins.
fn place(tail: &[u8]) -> Option<usize> {
    let at = tail.windows(KEY.len()).rposition(|window| window == KEY.as_bytes())?;
    // Between them are Thrift's type and length of a field, one byte each.
    Some(at + KEY.len() + 2).filter(|value| value + UNKNOWN.len() <= tail.len())
}

fn digits(digest: &Digest) -> Result<String> {
    Ok(digest.checksum().context("there is no checksum")?.hex())
}

/// A table that is being written.
#[derive(Debug)]
pub struct Sealed<'a> {
    file: &'a File,
    digest: Digest,
    /// The last bytes that were written, at least [`TAIL`] of them.
    tail: Vec<u8>,
}

impl<'a> Sealed<'a> {
    /// One of which nothing was written yet.
    pub fn new(file: &'a File) -> Self {
        Self { file, digest: Digest::new(Algorithm::Crc32c), tail: Vec::new() }
    }

    /// Puts the checksum in its place, once all is written.
    pub fn finish(self) -> Result<()> {
        let value = place(&self.tail).context("the footer has no place for the checksum")?;
        let from_end = (self.tail.len() - value) as u64;
        Ok(self.file.write_all_at(digits(&self.digest)?.as_bytes(), self.digest.bytes() - from_end)?)
    }
}

impl Write for Sealed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.file.write(bytes)?;
        let written = &bytes[..taken];
        self.digest.update(written);
        self.tail.extend_from_slice(&written[taken.saturating_sub(TAIL)..]);
        let spare = self.tail.len().saturating_sub(TAIL);
        // Seldom, so that few bytes are moved.
        if spare > TAIL {
            self.tail.drain(..spare);
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Fails if a table is not as it was written.
pub fn check(file: &File) -> Result<()> {
    let length = file.metadata()?.len();
    let from = length.saturating_sub(TAIL as u64);
    let mut tail = vec![0; (length - from) as usize];
    file.read_exact_at(&mut tail, from)?;
    let Some(place) = place(&tail) else { return Ok(()) };
    let written = tail[place..place + UNKNOWN.len()].to_vec();
    tail[place..place + UNKNOWN.len()].copy_from_slice(UNKNOWN.as_bytes());
    let mut digest = Digest::new(Algorithm::Crc32c);
    let mut piece = vec![0; PIECE];
    for at in (0..from).step_by(PIECE) {
        let piece = &mut piece[..(from - at).min(PIECE as u64) as usize];
        file.read_exact_at(piece, at)?;
        digest.update(piece);
    }
    digest.update(&tail);
    ensure!(digits(&digest)?.as_bytes() == written, "its bytes differ from those written (CRC-32C)");
    Ok(())
}

//! Bodies that are sent piece by piece, without holding gigabytes.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::{Arc, OnceLock};

use h2lab_wire::Config;

/// A block of filler: from any offset within [`ROUND`] on, it has the [`PIECE`] bytes of a piece.
static BLOCK: [u8; PIECE + ROUND] = letters();

/// The same for the longest pieces, made when first needed: 16 MiB that most runs never need.
static LONG_BLOCK: OnceLock<Vec<u8>> = OnceLock::new();

/// Bytes of filler that are handed to an engine at once by default: they fill several frames and several TLS records.
const PIECE: usize = 64 * 1024;

/// The most that can be handed to an engine at once, in bytes: the longest frame that HTTP/2 has (RFC 9113 §4.2).
pub const LONGEST_CHUNK: u32 = (1 << 24) - 1;

/// Filler repeats after this many bytes. The only power of two besides 1 that divides it is 2, so that any checksum
/// detects a part of a file in the wrong place.
const PERIOD: usize = 26;

/// The start of pieces varies over so many bytes, about a page, instead of staying near one place. The kernel copies each into
/// pages of its own, and copying may be many times slower where the offsets of source and destination within their pages are
/// unfavourable: on AMD's Zen 4 where the destination is 1 to 31 bytes further on in its page. In HTTP/1.1 pieces of 64 KiB would
/// keep their relative offsets for a whole connection, which cost a fifth of the rate on loopback
/// (`results/2026-11-22-2-cpus/bulk.md`).
const ROUND: usize = 157 * PERIOD;

/// Bytes that are read of a file at once by default. Twice that of filler: reading costs a system call.
const FILE_BLOCK: usize = 128 * 1024;

#[allow(clippy::large_stack_arrays, reason = "evaluated by the compiler: it is on no stack")]
const fn letters() -> [u8; PIECE + ROUND] {
    let mut block = [0; PIECE + ROUND];
    let mut k = 0;
    while k < block.len() {
        block[k] = b'a' + (k % PERIOD) as u8;
        k += 1;
    }
    block
}

/// The filler from an offset on, as long as one piece is. The byte at an offset depends on the offset only.
pub fn filler_from(at: u64) -> &'static [u8] {
    filler_of(at, PIECE)
}

/// `most` bytes of it, up to [`LONGEST_CHUNK`].
fn filler_of(at: u64, most: usize) -> &'static [u8] {
    let phase = (at % ROUND as u64) as usize;
    let block = if most <= PIECE { &BLOCK[..] } else { LONG_BLOCK.get_or_init(long_block) };
    &block[phase..phase + most]
}

fn long_block() -> Vec<u8> {
    BLOCK[..ROUND].repeat((LONGEST_CHUNK as usize).div_ceil(ROUND) + 1)
}

/// How much of a body is handed to an engine at once, in bytes. It bounds the memory that a body of a file takes, and the
/// length of its frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Chunk(Option<u32>);

impl Chunk {
    /// This many bytes, from 1 to [`LONGEST_CHUNK`]; `None` is the default: 64 KiB of filler, 128 KiB of a file.
    pub fn of(bytes: Option<u32>) -> Self {
        Self(bytes.map(|bytes| bytes.clamp(1, LONGEST_CHUNK)))
    }

    /// As `given`; else as long as the longest `frame` that was asked for, where that is longer than the default.
    pub fn of_frame(given: Option<u32>, frame: Option<u32>) -> Self {
        Self::of(given.or(frame.filter(|frame| *frame as usize > FILE_BLOCK)))
    }

    /// Makes filler of this length now, so that no response waits for it.
    pub fn prepare_filler(self) {
        filler_of(0, self.filler());
    }

    const fn filler(self) -> usize {
        match self.0 {
            Some(bytes) => bytes as usize,
            None => PIECE,
        }
    }

    /// The same for files: bytes of memory that each of them takes while it is sent.
    pub const fn file(self) -> usize {
        match self.0 {
            Some(bytes) => bytes as usize,
            None => FILE_BLOCK,
        }
    }

    /// Gives an engine room for two pieces, each with its frame header, so that none is split: a stream continues when half of
    /// the room is free. What the engine may leave unsent before it stops reading grows with it; else the peer's credit would not
    /// be read while the room is full.
    pub fn make_room(self, engine: &mut Config) {
        const HEAD: usize = 16;
        let Some(bytes) = self.0 else { return };
        let room = 2 * (bytes as usize + HEAD);
        if room > engine.send_buffer {
            engine.limits.unread_output += room - engine.send_buffer;
            engine.send_buffer = room;
        }
    }
}

/// What is left of a body.
#[derive(Debug)]
pub enum Body {
    /// Filler.
    Filler {
        /// The offset of the next one.
        at: u64,
        /// How many are left.
        left: u64,
        /// How many are handed out at once.
        chunk: Chunk,
    },
    /// These bytes, from an offset.
    Bytes(Vec<u8>, usize),
    /// A range of a file.
    File(FileBody),
}

/// What distinguishes a state of a file's content from others: its length, and when it was last written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileState {
    length: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
}

impl FileState {
    /// The state that the metadata of a file show.
    pub fn of(metadata: &Metadata) -> Self {
        Self { length: metadata.len(), modified: (metadata.mtime(), metadata.mtime_nsec()) }
    }
}

/// What is left of a range of a file.
#[derive(Debug)]
pub struct FileBody {
    file: Arc<File>,
    /// The state of the file that the bytes must belong to; `None`: any.
    state: Option<FileState>,
    /// The offset of the first byte that is not sent.
    at: u64,
    /// Bytes that are left.
    left: u64,
    /// What was read of it; nothing before the first piece.
    block: Vec<u8>,
    /// How much of that was sent.
    sent: usize,
    chunk: Chunk,
}

impl FileBody {
    /// Reads the next block if all of the last one was sent.
    fn refill(&mut self) -> io::Result<()> {
        if self.sent < self.block.len() || self.left == 0 {
            return Ok(());
        }
        self.sent = 0;
        self.block.resize(self.left.min(self.chunk.file() as u64) as usize, 0);
        let read = loop {
            match self.file.read_at(&mut self.block, self.at) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        self.block.truncate(*read.as_ref().unwrap_or(&0));
        if read? == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the file became shorter while it was sent",
            ));
        }
        // Checked after the read, so that anything written before it is seen.
        match self.state {
            Some(state) if FileState::of(&self.file.metadata()?) != state => {
                Err(io::Error::other("the file was changed while it was sent"))
            }
            _ => Ok(()),
        }
    }
}

impl Default for Body {
    /// Nothing.
    fn default() -> Self {
        Self::filler(0)
    }
}

impl Body {
    /// `bytes` bytes of filler.
    pub const fn filler(bytes: u64) -> Self {
        Self::filler_from(0, bytes, Chunk(None))
    }

    /// These bytes.
    pub const fn bytes(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes, 0)
    }

    /// `left` bytes of filler from `at` on.
    pub const fn filler_from(at: u64, left: u64, chunk: Chunk) -> Self {
        Self::Filler { at, left, chunk }
    }

    /// `left` bytes of `file` from `at` on.
    pub const fn file(file: Arc<File>, at: u64, left: u64, chunk: Chunk) -> Self {
        Self::File(FileBody { file, state: None, at, left, block: Vec::new(), sent: 0, chunk })
    }

    /// The same, but all bytes must belong to this state of the file: reading fails once the file has another one.
    #[must_use]
    pub fn of_state(self, state: FileState) -> Self {
        match self {
            Self::File(file) => Self::File(FileBody { state: Some(state), ..file }),
            other => other,
        }
    }

    /// Bytes that are left.
    pub const fn length(&self) -> u64 {
        match self {
            Self::Filler { left, .. } | Self::File(FileBody { left, .. }) => *left,
            Self::Bytes(bytes, sent) => (bytes.len() - *sent) as u64,
        }
    }

    /// Bytes of memory that it takes.
    pub const fn held(&self) -> usize {
        match self {
            Self::Filler { .. } => 0,
            Self::Bytes(bytes, _) => bytes.len(),
            Self::File(file) => file.chunk.file(),
        }
    }

    /// The next piece, of at most `limit` bytes, if it is `'static`: filler.
    pub fn lasting_piece(&self, limit: u64) -> Option<&'static [u8]> {
        let Self::Filler { at, left, chunk } = self else { return None };
        Some(filler_of(*at, (*left).min(limit).min(chunk.filler() as u64) as usize))
    }

    /// The next piece, of at most `limit` bytes; empty at the end. Fails if a file cannot be read, or has fewer bytes than were
    /// announced.
    pub fn piece(&mut self, limit: u64) -> io::Result<&[u8]> {
        if let Some(piece) = self.lasting_piece(limit) {
            return Ok(piece);
        }
        let whole = match self {
            Self::Filler { .. } => &[],
            Self::Bytes(bytes, sent) => &bytes[*sent..],
            Self::File(file) => {
                file.refill()?;
                &file.block[file.sent..]
            }
        };
        Ok(&whole[..(whole.len() as u64).min(limit) as usize])
    }

    /// `n` bytes of the piece were sent.
    pub const fn advance(&mut self, n: usize) {
        match self {
            Self::Filler { at, left, .. } => {
                *at += n as u64;
                *left -= n as u64;
            }
            Self::Bytes(_, sent) => *sent += n,
            Self::File(file) => {
                file.at += n as u64;
                file.left -= n as u64;
                file.sent += n;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// All of a body, of which the peer takes a few bytes at a time.
    fn all(body: &mut Body) -> Vec<u8> {
        let mut sent = Vec::new();
        while body.length() > 0 {
            let piece = body.piece(70_001).unwrap();
            let n = piece.len().min(9_999);
            assert!(n > 0);
            sent.extend_from_slice(&piece[..n]);
            body.advance(n);
        }
        assert!(body.piece(u64::MAX).unwrap().is_empty());
        sent
    }

    fn file(bytes: &[u8]) -> Arc<File> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Arc::new(file)
    }

    #[test]
    fn a_body_ends_after_its_length_whatever_the_pieces() {
        let whole = all(&mut Body::filler(300_000));
        assert_eq!(whole.len(), 300_000);
        assert_eq!(all(&mut Body::bytes(whole.clone())), whole);
        assert_eq!(all(&mut Body::file(file(&whole), 0, 300_000, Chunk::default())), whole);
    }

    #[test]
    fn a_byte_range_of_a_body_equals_that_range_of_the_whole() {
        let whole = all(&mut Body::filler(400_000));
        let file = file(&whole);
        for (from, length) in [(0_u64, 1_u64), (65_536, 100_000), (131_071, 200_000), (399_999, 1)] {
            let range = &whole[from as usize..(from + length) as usize];
            assert!(all(&mut Body::filler_from(from, length, Chunk::default())) == range, "{from}");
            assert!(
                all(&mut Body::file(Arc::clone(&file), from, length, Chunk::default())) == range,
                "{from}"
            );
        }
    }

    #[test]
    fn pieces_are_as_long_as_the_chunk_says_and_hold_the_same() {
        let bytes = 40 << 20;
        for (chunk, longest) in [
            (None, PIECE),
            (Some(16_384), 16_384),
            (Some(65_537), 65_537),
            (Some(1 << 20), 1 << 20),
            (Some(u32::MAX), LONGEST_CHUNK as usize),
            (Some(0), 1),
        ] {
            let chunk = Chunk::of(chunk);
            for at in [0, 25, 1 << 40] {
                let mut body = Body::filler_from(at, bytes, chunk);
                let piece = body.piece(u64::MAX).unwrap();
                assert_eq!(piece.len(), longest);
                assert!(piece.starts_with(&filler_from(at)[..longest.min(PIECE)]), "{longest} at {at}");
                assert_eq!(piece.last(), filler_from(at + longest as u64 - 1).first());
            }
        }
    }

    #[test]
    fn pieces_lie_at_many_places_within_a_page() {
        let mut places: Vec<_> =
            (0..64).map(|piece| filler_from(piece * PIECE as u64).as_ptr().addr() % 4_096).collect();
        places.sort_unstable();
        places.dedup();
        assert!(places.len() >= 60, "{places:?}");
    }

    #[test]
    fn a_file_that_is_changed_while_it_is_sent_is_an_error_if_one_state_was_asked_for() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        std::fs::write(&path, vec![7; 1_000_000]).unwrap();
        let file = Arc::new(File::open(&path).unwrap());
        let state = FileState::of(&file.metadata().unwrap());
        let mut bodies = [true, false].map(|is_one| {
            let body = Body::file(Arc::clone(&file), 0, 1_000_000, Chunk::default());
            if is_one { body.of_state(state) } else { body }
        });
        for body in &mut bodies {
            let first = body.piece(u64::MAX).unwrap().len();
            body.advance(first);
        }
        // The length stays, and the clock of a file system may tick every 4 ms only.
        let changed = File::options().write(true).open(&path).unwrap();
        changed.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        assert!(bodies[0].piece(u64::MAX).is_err() && bodies[1].piece(u64::MAX).is_ok());
    }

    #[test]
    fn a_file_that_became_shorter_is_an_error_and_no_endless_body() {
        let mut body = Body::file(file(&[7; 1_000]), 0, 2_000, Chunk::default());
        assert_eq!(body.piece(u64::MAX).unwrap().len(), 1_000);
        body.advance(1_000);
        assert_eq!(body.piece(u64::MAX).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}

//! Bodies that are sent piece by piece, without holding gigabytes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

/// A block of filler: whatever the letter that a piece begins with, [`PIECE`] bytes from there on are in it.
static BLOCK: [u8; PIECE + PERIOD] = letters();

/// Bytes of filler that are handed to an engine at once: they fill several frames and several TLS records.
const PIECE: usize = 64 * 1024;

/// After so many bytes filler repeats. It shares no divisor with a power of two but 2, so that a part of a file that ends up
/// in a wrong place is seen by any checksum.
const PERIOD: usize = 26;

/// Bytes that are read of a file at once. Twice that of filler: reading costs a system call.
const FILE_BLOCK: usize = 128 * 1024;

#[allow(clippy::large_stack_arrays, reason = "evaluated by the compiler: it is on no stack")]
const fn letters() -> [u8; PIECE + PERIOD] {
    let mut block = [0; PIECE + PERIOD];
    let mut k = 0;
    while k < block.len() {
        block[k] = b'a' + (k % PERIOD) as u8;
        k += 1;
    }
    block
}

/// The filler from an offset on, as long as one piece is. What stands at an offset depends on nothing else.
pub fn filler_from(at: u64) -> &'static [u8] {
    let phase = (at % PERIOD as u64) as usize;
    &BLOCK[phase..phase + PIECE]
}

/// What is left of a body.
#[derive(Debug)]
pub enum Body {
    /// So many bytes of filler.
    Filler {
        /// The offset of the next one.
        at: u64,
        /// How many are left.
        left: u64,
    },
    /// These bytes, from an offset.
    Bytes(Vec<u8>, usize),
    /// A stretch of a file.
    File(FileBody),
}

/// What is left of a stretch of a file.
#[derive(Debug)]
pub struct FileBody {
    file: Arc<File>,
    /// The offset of the first byte that is not sent.
    at: u64,
    /// Bytes that are left.
    left: u64,
    /// What was read of it; nothing before the first piece.
    block: Vec<u8>,
    /// How much of that was sent.
    sent: usize,
}

impl FileBody {
    /// Reads the next block if all of the last one was sent.
    fn refill(&mut self) -> io::Result<()> {
        if self.sent < self.block.len() || self.left == 0 {
            return Ok(());
        }
        self.sent = 0;
        self.block.resize(self.left.min(FILE_BLOCK as u64) as usize, 0);
        let read = loop {
            match self.file.read_at(&mut self.block, self.at) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        self.block.truncate(*read.as_ref().unwrap_or(&0));
        match read? {
            0 => {
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter while it was sent"))
            }
            _ => Ok(()),
        }
    }
}

impl Body {
    /// So many bytes of filler.
    pub const fn filler(bytes: u64) -> Self {
        Self::Filler { at: 0, left: bytes }
    }

    /// These bytes.
    pub const fn bytes(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes, 0)
    }

    /// `left` bytes of `file` from `at` on.
    pub const fn file(file: Arc<File>, at: u64, left: u64) -> Self {
        Self::File(FileBody { file, at, left, block: Vec::new(), sent: 0 })
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
            Self::File(_) => FILE_BLOCK,
        }
    }

    /// The next piece, of at most `limit` bytes; empty at the end. Fails if a file cannot be read, or has fewer bytes than were
    /// announced.
    pub fn piece(&mut self, limit: u64) -> io::Result<&[u8]> {
        let whole = match self {
            Self::Filler { at, left } => &filler_from(*at)[..(*left).min(PIECE as u64) as usize],
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
            Self::Filler { at, left } => {
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
        assert_eq!(all(&mut Body::file(file(&whole), 0, 300_000)), whole);
    }

    #[test]
    fn a_stretch_of_a_body_is_what_stands_there_in_the_whole() {
        let whole = all(&mut Body::filler(400_000));
        let file = file(&whole);
        for (from, length) in [(0_u64, 1_u64), (65_536, 100_000), (131_071, 200_000), (399_999, 1)] {
            let stretch = &whole[from as usize..(from + length) as usize];
            assert!(all(&mut Body::Filler { at: from, left: length }) == stretch, "{from}");
            assert!(all(&mut Body::file(Arc::clone(&file), from, length)) == stretch, "{from}");
        }
    }

    #[test]
    fn a_file_that_became_shorter_is_an_error_and_no_endless_body() {
        let mut body = Body::file(file(&[7; 1_000]), 0, 2_000);
        assert_eq!(body.piece(u64::MAX).unwrap().len(), 1_000);
        body.advance(1_000);
        assert_eq!(body.piece(u64::MAX).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}

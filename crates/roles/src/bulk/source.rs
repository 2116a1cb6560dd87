//! Where a file lies, and where the bytes of an upload come from: filler, or a file that must not change while it is sent.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use h2lab_transfer::{Algorithm, Checksum, Digest};
use h2lab_wire::Field;
use rustix::fs::{Advice, fadvise};

use h2lab_net::storage::body::filler_from;
use h2lab_net::storage::{Body, Chunk, checksum, disk_wait};

/// Where a file goes, or comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum FileLocation {
    /// Nowhere.
    #[default]
    Discard,
    /// To this path, or from it.
    File(PathBuf),
    /// From nowhere: so many bytes of filler.
    Memory(u64),
}

/// Why a file cannot be sent.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", .path.display())]
pub struct SourceError {
    path: PathBuf,
    source: io::Error,
}

impl SourceError {
    /// Whether there is no file of this name that can be sent, so that another name would help.
    pub fn is_wrong_name(&self) -> bool {
        use io::ErrorKind::{InvalidInput, NotADirectory, NotFound, PermissionDenied};
        matches!(self.source.kind(), InvalidInput | NotADirectory | NotFound | PermissionDenied)
    }
}

/// Where the bytes of one upload come from.
#[derive(Debug, Default)]
pub enum UploadSource {
    /// Nothing is sent, or the source is not known yet.
    #[default]
    None,
    /// So many bytes of filler.
    Memory(u64),
    /// A file.
    File(FileSource),
}

/// A file that is being sent.
#[derive(Debug)]
pub struct FileSource {
    path: PathBuf,
    file: Arc<File>,
    state: State,
}

/// What distinguishes one state of a file from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    inode: u64,
    length: u64,
    changed: (i64, i64),
}

impl State {
    fn of(metadata: &Metadata) -> Self {
        let changed = (metadata.mtime(), metadata.mtime_nsec());
        Self { inode: metadata.ino(), length: metadata.len(), changed }
    }

    /// Whether that is the state of `file` now.
    fn is_of(&self, file: &File) -> bool {
        file.metadata().is_ok_and(|metadata| Self::of(&metadata) == *self)
    }
}

impl UploadSource {
    /// Opens the source at `place`. Only a file is opened.
    pub fn open(place: &FileLocation) -> Result<Self, SourceError> {
        match place {
            FileLocation::Discard => Ok(Self::None),
            FileLocation::Memory(bytes) => Ok(Self::Memory(*bytes)),
            FileLocation::File(path) => FileSource::open(path).map(Self::File),
        }
    }

    /// Bytes of the whole.
    pub const fn length(&self) -> u64 {
        match self {
            Self::None => 0,
            Self::Memory(bytes) => *bytes,
            Self::File(file) => file.state.length,
        }
    }

    /// The tag by which the server identifies the upload. It is the same for the same version of the same file, so that
    /// another run can resume it; with `is_new`, and for filler, it is new each time.
    pub fn tag(&self, is_new: bool, number: usize) -> String {
        // No two processes of a machine share both time and process id.
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let unique = || format!("{:x}-{:x}-{number:x}", now(), std::process::id());
        match self {
            Self::File(FileSource { state, .. }) => {
                let State { inode, length, changed: (seconds, nanos) } = state;
                let known = format!("{inode:x}-{length:x}-{seconds:x}.{nanos:x}");
                if is_new { format!("\"{known}-{}\"", unique()) } else { format!("\"{known}\"") }
            }
            _ => format!("\"memory-{}\"", unique()),
        }
    }

    /// `length` bytes of the source from `from` on.
    pub fn body(&self, from: u64, length: u64, chunk: Chunk) -> Body {
        match self {
            Self::File(file) => Body::file(Arc::clone(&file.file), from, length, chunk),
            _ => Body::filler_from(from, length, chunk),
        }
    }

    /// Its checksum, by reading it all; `None` where nothing is summed.
    pub fn checksum(&self, algorithm: Algorithm) -> Result<Option<Checksum>, SourceError> {
        match self {
            Self::File(it) => {
                checksum(&it.file, algorithm, it.state.length).map_err(|source| it.failed(source))
            }
            _ => {
                let (mut digest, mut at) = (Digest::new(algorithm), 0);
                while at < self.length() && algorithm != Algorithm::None {
                    let filler = filler_from(at);
                    let piece = &filler[..filler.len().min((self.length() - at) as usize)];
                    digest.update(piece);
                    at += piece.len() as u64;
                }
                Ok(digest.checksum())
            }
        }
    }

    /// Whether it is a file.
    pub const fn is_file(&self) -> bool {
        matches!(self, Self::File(_))
    }

    /// Whether it has not changed since it was opened.
    pub fn is_unchanged(&self) -> bool {
        let Self::File(FileSource { file, state, .. }) = self else { return true };
        state.is_of(file)
    }

    /// The error of a failed read.
    pub fn failed(&self, source: io::Error) -> SourceError {
        match self {
            Self::File(file) => file.failed(source),
            _ => SourceError { path: PathBuf::new(), source },
        }
    }
}

impl FileSource {
    fn open(path: &Path) -> Result<Self, SourceError> {
        let failed = |source| SourceError { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file")));
        }
        // Only read-ahead keeps a disk busy while a block is being sent. Without it we are only slower.
        let _ = fadvise(&file, 0, None, Advice::Sequential);
        Ok(Self { path: path.to_owned(), file: Arc::new(file), state: State::of(&metadata) })
    }

    fn failed(&self, source: io::Error) -> SourceError {
        SourceError { path: self.path.clone(), source }
    }
}

/// The body of one request, for an engine.
#[derive(Debug)]
pub struct Sending {
    body: Body,
    /// One past its last byte, in the whole.
    until: u64,
    /// The checksum of what was passed to `show`.
    sum: Digest,
    /// One past the last byte that the checksum covers.
    summed: u64,
    /// Whether the checksum follows the body as a trailer.
    has_trailer: bool,
    /// The file behind it, which must be unchanged when the last piece is sent.
    watched: Option<(Arc<File>, State)>,
    /// Why the next piece could not be read.
    error: Option<io::Error>,
    /// The time that reading took beyond a copy, since [`Sending::take_wait`].
    waited: Duration,
}

impl Sending {
    /// Sends `body`, which ends at `until` of the whole. With `has_trailer` its checksum follows it.
    pub fn new(body: Body, until: u64, algorithm: Algorithm, has_trailer: bool) -> Self {
        let summed = until - body.length();
        Self {
            body,
            until,
            sum: Digest::new(algorithm),
            summed,
            has_trailer,
            watched: None,
            error: None,
            waited: Duration::ZERO,
        }
    }

    /// The same, but its last piece is sent only if its file has not changed since `source` was opened.
    #[must_use]
    pub fn watching(self, source: &UploadSource) -> Self {
        let watched = match source {
            UploadSource::File(of) => Some((Arc::clone(&of.file), of.state)),
            UploadSource::None | UploadSource::Memory(_) => None,
        };
        Self { watched, ..self }
    }

    /// Bytes of it that are left.
    pub const fn left(&self) -> u64 {
        self.body.length()
    }

    /// Whether the checksum follows the body.
    pub const fn has_trailer(&self) -> bool {
        self.has_trailer
    }

    /// Passes the next piece to `show` when `left` bytes remain, with whether it is the last. An empty piece before the
    /// end means that reading failed: [`Sending::take_error`] has the reason.
    pub fn show<T>(&mut self, left: u64, show: impl FnOnce(&[u8], bool) -> T) -> T {
        let taken = self.body.length().saturating_sub(left);
        self.body.advance(taken as usize);
        let at = self.until - left;
        let began = self.watched.is_some().then(Instant::now);
        match self.body.piece(u64::MAX) {
            Ok(piece) => {
                self.waited += began.map_or(Duration::ZERO, |began| disk_wait(began.elapsed(), piece.len()));
                let is_last = piece.len() as u64 == left;
                if is_last && self.watched.as_ref().is_some_and(|(file, state)| !state.is_of(file)) {
                    // Without its end, the server keeps the upload as unfinished.
                    return show(&[], false);
                }
                // What an engine did not take is passed again, but summed only once.
                let known = (self.summed - at) as usize;
                self.sum.update(piece.get(known..).unwrap_or_default());
                self.summed = self.summed.max(at + piece.len() as u64);
                show(piece, is_last)
            }
            Err(error) => {
                self.error = Some(error);
                show(&[], false)
            }
        }
    }

    /// The checksum, if all of the body was passed to `show`.
    pub fn sum(&self) -> Option<&Digest> {
        (self.summed == self.until).then_some(&self.sum)
    }

    /// Shows the trailers.
    pub fn show_trailers<T>(&self, show: impl FnOnce(&[Field<'_>]) -> T) -> T {
        let sum = self.sum().and_then(Digest::checksum).map(|sum| sum.to_field());
        match &sum {
            Some(sum) => show(&[Field::new("repr-digest", sum)]),
            None => show(&[]),
        }
    }

    /// The time waited for a disk since the last call.
    pub const fn take_wait(&mut self) -> Duration {
        std::mem::replace(&mut self.waited, Duration::ZERO)
    }

    /// Why the last piece could not be read.
    pub const fn take_error(&mut self) -> Option<io::Error> {
        self.error.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_again_is_summed_once() {
        let source = UploadSource::Memory(300_000);
        let expected = source.checksum(Algorithm::Crc32c).unwrap();
        let body = source.body(0, 300_000, Chunk::default());
        let mut sending = Sending::new(body, 300_000, Algorithm::Crc32c, true);
        let (mut left, mut round) = (300_000, 0);
        while left > 0 {
            round += 1;
            // The engine takes a few bytes at a time, and sometimes none.
            let most = if round % 2 == 0 { 33_333 } else { 0 };
            let (taken, is_last) = sending.show(left, |piece, last| (piece.len().min(most), last));
            assert_eq!(is_last, sending.sum().is_some());
            left -= taken as u64;
        }
        assert_eq!(sending.sum().and_then(Digest::checksum), expected);
    }

    #[test]
    fn a_tag_is_of_one_state_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, "one").unwrap();
        let open = || UploadSource::open(&FileLocation::File(path.clone())).unwrap();
        let first = open();
        assert_eq!(first.tag(false, 0), open().tag(false, 1));
        assert_ne!(first.tag(true, 0), first.tag(false, 0));
        assert!(first.is_unchanged());
        std::fs::write(&path, "longer").unwrap();
        assert!(!first.is_unchanged());
        assert_ne!(first.tag(false, 0), open().tag(false, 0));
        assert!(
            UploadSource::open(&FileLocation::File(folder.path().to_owned())).is_err(),
            "a folder is not a file"
        );
    }
}

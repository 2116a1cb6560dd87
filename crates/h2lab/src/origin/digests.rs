//! Checksums of what is served (RFC 9530), made in a thread of their own while the bytes are being sent, and remembered.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use h2lab_core::bulk::{Algorithm, Digest};

use crate::io::storage::body::filler_from;

/// What is summed.
#[derive(Debug, Clone)]
pub enum Content {
    /// Filler.
    Filler,
    /// A file.
    File(Arc<File>),
}

/// A checksum that is known, or will be.
#[derive(Debug, Default)]
pub struct Known {
    /// The value of a `Repr-Digest` field; `None` if the content could not be read.
    field: OnceLock<Option<String>>,
}

impl Known {
    /// Whether it is still being made.
    pub fn is_pending(&self) -> bool {
        self.field.get().is_none()
    }

    /// The value of a `Repr-Digest` field, if it is known.
    pub fn field(&self) -> Option<String> {
        self.field.get().cloned().flatten()
    }
}

/// One state of one representation, by its entity tag, and with what it is summed.
type Key = (String, Algorithm);

/// What is to be summed.
struct Job {
    content: Content,
    length: u64,
    algorithm: Algorithm,
    known: Arc<Known>,
}

/// The checksums of all that is served.
#[derive(Debug, Default)]
pub struct Digests {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    known: BTreeMap<Key, Arc<Known>>,
    /// To the thread that makes them, once there is one: sums of large files one after the other, since each is bound by the
    /// disk or by memory.
    worker: Option<Sender<Job>>,
}

/// Checksums that are remembered; a client may ask for any number of `/bytes/N`. Beyond, all are forgotten.
const MOST: usize = 4_096;

/// Bytes that are read at once for summing.
const BLOCK: usize = 256 * 1024;

impl Digests {
    /// The checksum of the `length` bytes of `content`, whose state `etag` names. Whoever asks first has it made.
    pub fn ask(&self, etag: &str, algorithm: Algorithm, content: &Content, length: u64) -> Arc<Known> {
        // What the lock guards is valid between any two statements.
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (etag.to_owned(), algorithm);
        if let Some(known) = inner.known.get(&key) {
            return Arc::clone(known);
        }
        if inner.known.len() >= MOST {
            inner.known.clear();
        }
        let known = Arc::<Known>::default();
        inner.known.insert(key, Arc::clone(&known));
        let job = Job { content: content.clone(), length, algorithm, known: Arc::clone(&known) };
        let worker = inner.worker.get_or_insert_with(|| {
            let (sender, jobs) = channel();
            thread::spawn(move || work(&jobs));
            sender
        });
        if worker.send(job).is_err() {
            // The thread has died: nobody waits for what will never come.
            let _ = known.field.set(None);
        }
        known
    }
}

/// Makes checksums until nobody can ask any more.
fn work(jobs: &Receiver<Job>) {
    for Job { content, length, algorithm, known } in jobs {
        let checksum = sum(&content, length, algorithm).ok().and_then(|digest| digest.checksum());
        let _ = known.field.set(checksum.map(|checksum| checksum.to_field()));
    }
}

fn sum(content: &Content, length: u64, algorithm: Algorithm) -> io::Result<Digest> {
    let mut digest = Digest::new(algorithm);
    let mut block = match content {
        Content::Filler => Vec::new(),
        Content::File(_) => vec![0; BLOCK],
    };
    let mut at = 0;
    while at < length {
        let most = (length - at).min(BLOCK as u64) as usize;
        let piece = match content {
            Content::Filler => {
                let filler = filler_from(at);
                &filler[..filler.len().min(most)]
            }
            Content::File(file) => {
                file.read_exact_at(&mut block[..most], at)?;
                &block[..most]
            }
        };
        digest.update(piece);
        at += piece.len() as u64;
    }
    Ok(digest)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::time::{Duration, Instant};

    use super::*;

    fn wait(known: &Known) -> Option<String> {
        let until = Instant::now() + Duration::from_secs(60);
        while known.is_pending() {
            assert!(Instant::now() < until, "it is never made");
            thread::yield_now();
        }
        known.field()
    }

    #[test]
    fn filler_and_a_file_with_the_same_bytes_have_the_same_sum() {
        let bytes: Vec<u8> = (b'a'..=b'z').cycle().take(1_000_003).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let file = Content::File(Arc::new(file));
        let digests = Digests::default();
        for algorithm in [Algorithm::Crc32c, Algorithm::Sha256] {
            let mut digest = Digest::new(algorithm);
            digest.update(&bytes);
            let expected = digest.checksum().map(|checksum| checksum.to_field());
            for (etag, content) in [("\"filler\"", &Content::Filler), ("\"file\"", &file)] {
                let known = digests.ask(etag, algorithm, content, bytes.len() as u64);
                assert_eq!(wait(&known), expected, "{etag} {algorithm}");
            }
        }
        let again = digests.ask("\"file\"", Algorithm::Crc32c, &file, bytes.len() as u64);
        assert!(!again.is_pending(), "it is remembered");
    }

    #[test]
    fn what_cannot_be_read_has_no_sum_and_keeps_nobody_waiting() {
        let digests = Digests::default();
        let content = Content::File(Arc::new(tempfile::tempfile().unwrap()));
        assert_eq!(wait(&digests.ask("\"shorter\"", Algorithm::Crc32c, &content, 10)), None);
    }
}

//! Checksums of what is served (RFC 9530). A separate thread computes them while the bytes are being sent, and they are
//! kept.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use h2lab_transfer::{Algorithm, Digest};

use h2lab_net::lock::lock;
use h2lab_net::storage::body::filler_from;

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
    /// The value of a `Repr-Digest` field; `None` if the content could not be read, or it was no longer wanted.
    field: OnceLock<Option<String>>,
    /// It was no longer wanted: the next request has it made anew.
    is_abandoned: AtomicBool,
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

/// One state of one representation, named by its entity tag, and the algorithm of the checksum.
type Key = (String, Algorithm);

/// What is to be summed.
struct Job {
    content: Content,
    length: u64,
    algorithm: Algorithm,
    known: Arc<Known>,
}

/// The checksums of all that is served.
#[derive(Debug)]
pub struct Digests {
    inner: Mutex<Inner>,
    /// See [`GRACE`].
    grace: Duration,
}

impl Default for Digests {
    fn default() -> Self {
        Self { inner: Mutex::default(), grace: GRACE }
    }
}

#[derive(Debug, Default)]
struct Inner {
    known: BTreeMap<Key, Arc<Known>>,
    /// The queue of the thread that computes them, once there is one. It handles large files one after the other, since
    /// each is limited by the disk or by memory.
    worker: Option<SyncSender<Job>>,
}

/// Checksums that are kept; a client may ask for any number of `/bytes/N`. Beyond that, all computed ones are dropped.
const MOST: usize = 4_096;

/// Checksums that wait to be made. A request beyond that gets none.
const QUEUE: usize = 64;

/// How long to continue a checksum that no request waits for: between its last part and the HEAD that asks for the
/// checksum, a client has nothing in flight.
const GRACE: Duration = Duration::from_secs(10);

/// Bytes that are read at once for summing.
const BLOCK: usize = 256 * 1024;

impl Digests {
    /// The checksum of the `length` bytes of `content`, whose state `etag` names. The first request starts its
    /// computation.
    pub fn ask(&self, etag: &str, algorithm: Algorithm, content: &Content, length: u64) -> Arc<Known> {
        // What the lock guards is valid between any two statements.
        let mut inner = lock(&self.inner);
        let key = (etag.to_owned(), algorithm);
        let known = inner.known.get(&key).filter(|known| !known.is_abandoned.load(Ordering::Relaxed));
        if let Some(known) = known {
            return Arc::clone(known);
        }
        if inner.known.len() >= MOST {
            // Pending ones are kept, since requests wait for them.
            inner.known.retain(|_, known| known.is_pending());
        }
        let known = Arc::<Known>::default();
        inner.known.insert(key.clone(), Arc::clone(&known));
        let job = Job { content: content.clone(), length, algorithm, known: Arc::clone(&known) };
        let grace = self.grace;
        let worker = inner.worker.get_or_insert_with(|| {
            let (sender, jobs) = sync_channel(QUEUE);
            // If it cannot be started the receiver is dropped, and the send below fails.
            let _ = thread::Builder::new().name("checksums".to_owned()).spawn(move || work(&jobs, grace));
            sender
        });
        if let Err(error) = worker.try_send(job) {
            if matches!(error, TrySendError::Disconnected(_)) {
                // The next request tries to start it again.
                inner.worker = None;
            }
            inner.known.remove(&key);
            // Too many checksums wait, or there is no thread: no request may wait for one that will never be computed.
            let _ = known.field.set(None);
        }
        known
    }
}

/// Computes checksums until nobody can ask for one.
fn work(jobs: &Receiver<Job>, grace: Duration) {
    for Job { content, length, algorithm, known } in jobs {
        let mut waiting = Waiting { known: &known, grace, alone_since: None };
        let digest = sum(&content, length, algorithm, &mut waiting).ok().flatten();
        known.is_abandoned.store(digest.is_none() && waiting.alone_since.is_some(), Ordering::Relaxed);
        let checksum = digest.and_then(|digest| digest.checksum());
        let _ = known.field.set(checksum.map(|checksum| checksum.to_field()));
    }
}

/// The requests that wait for a checksum in the making.
struct Waiting<'a> {
    known: &'a Arc<Known>,
    grace: Duration,
    alone_since: Option<Instant>,
}

impl Waiting<'_> {
    /// Whether no request has waited for it for longer than `grace`.
    fn is_over(&mut self) -> bool {
        // One reference is ours, and one is that of the map of all checksums.
        if Arc::strong_count(self.known) > 2 {
            self.alone_since = None;
            return false;
        }
        self.alone_since.get_or_insert_with(Instant::now).elapsed() > self.grace
    }
}

/// The sum of `content`; `None` if no request waits for it any more.
fn sum(
    content: &Content,
    length: u64,
    algorithm: Algorithm,
    waiting: &mut Waiting<'_>,
) -> io::Result<Option<Digest>> {
    let mut digest = Digest::new(algorithm);
    let mut block = match content {
        Content::Filler => Vec::new(),
        Content::File(_) => vec![0; BLOCK],
    };
    let mut at = 0;
    while at < length {
        if waiting.is_over() {
            return Ok(None);
        }
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
    Ok(Some(digest))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

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

    #[test]
    fn what_nobody_waits_for_keeps_nobody_waiting_and_can_be_asked_for_again() {
        let digests = Digests { grace: Duration::ZERO, ..Digests::default() };
        let ask = |etag: &str, length| digests.ask(etag, Algorithm::Sha512, &Content::Filler, length);
        // Longer than any test.
        let endless = ask("\"endless\"", 1 << 50);
        let next = ask("\"next\"", 10);
        assert!(next.is_pending());
        drop(endless);
        assert!(wait(&next).is_some());
        assert!(ask("\"endless\"", 1 << 50).is_pending(), "it is not taken for one that cannot be read");
    }

    #[test]
    fn too_many_that_wait_get_none_and_may_ask_again() {
        let digests = Digests { grace: Duration::ZERO, ..Digests::default() };
        let ask =
            |etag: usize, length| digests.ask(&etag.to_string(), Algorithm::Sha512, &Content::Filler, length);
        let endless = ask(0, 1 << 50);
        let waiting: Vec<_> = (1..=2 * QUEUE).map(|etag| ask(etag, 10)).collect();
        let refused = waiting.iter().filter(|known| !known.is_pending()).count();
        assert!((QUEUE..=QUEUE + 1).contains(&refused), "{refused}: the endless one may wait itself");
        drop(endless);
        for known in waiting.iter().take(QUEUE - 1) {
            assert!(wait(known).is_some());
        }
        assert!(wait(&ask(2 * QUEUE, 10)).is_some());
    }
}

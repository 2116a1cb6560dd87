//! The uploads of a server: which are in progress, what is here of each, and how a file gets its name.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use h2lab_base::units::Time;
use h2lab_transfer::{Checksum, Extents, Journal, Sums, Validator};

use super::finish::{Awaited, Finisher, Task, UploadEnd};
use super::folder;
use super::put_content::PutContent;
use super::quota::{Charge, Quota, UploadLimits};
use super::refusal::Refusal;
use h2lab_net::lock::lock;
use h2lab_net::storage::{FileSink, Names, Sink};

/// Uploads without a request that are kept open, so that the next part need not reopen them. Beyond, the oldest are closed: their
/// journals are written, and they are resumed when a client asks.
const MOST_IDLE: usize = 64;

/// Where an upload goes.
#[derive(Debug)]
pub enum Destination {
    /// Nowhere: the bytes are only counted, under this path.
    Nowhere(String),
    /// To the file with these names, whose path is for people.
    File(Names, PathBuf),
}

impl Destination {
    /// The key of an upload, of which there can be one at a time: one per file, but any number of uploads that go
    /// nowhere.
    pub(super) fn key(&self, tag: &str) -> Key {
        match self {
            Self::Nowhere(path) => (path.into(), tag.to_owned()),
            Self::File(_, path) => (path.clone(), String::new()),
        }
    }
}

/// The key of an upload: its path, and its tag if it goes nowhere.
pub(super) type Key = (PathBuf, String);

/// One upload, over one request or many.
#[derive(Debug)]
pub(super) struct Upload {
    /// Where it goes; `None` when it is being finished, or is over.
    pub sink: Option<Sink>,
    /// What is here, of what; its validator is the client's tag.
    pub journal: Journal,
    /// Whether it can be resumed: it has a name and a length.
    pub is_resumable: bool,
    /// The sums of parts, as far as they were made.
    pub sums: Sums,
    /// The checksum of the whole, as declared by the client.
    pub declared: Option<Checksum>,
    /// What this process has stored of it.
    pub charge: Charge,
    /// Requests in progress for it.
    pub receipts: u32,
    /// When its journal was last asked to be written.
    pub saved_at: Time,
}

impl Upload {
    /// Whether an offer is for it. One that cannot be resumed belongs to the request which began it.
    pub fn is_of(&self, offer: &PutContent, tag: &str) -> bool {
        self.sink.is_some()
            && self.is_resumable
            && self.journal.validator.if_range() == tag
            && offer.total.is_none_or(|total| total == self.journal.total)
    }
}

/// The uploads of a server.
#[derive(Debug, Default)]
pub struct Uploads {
    pub(super) inner: Mutex<Inner>,
    pub(super) finisher: Finisher,
    pub(super) quota: Quota,
    /// Bytes that arrived.
    taken: AtomicU64,
}

#[derive(Debug, Default)]
pub(super) struct Inner {
    pub open: BTreeMap<Key, Arc<Mutex<Upload>>>,
    /// What is stored of unfinished uploads that are closed.
    pub closed: BTreeMap<Key, Charge>,
    /// How many uploads without a tag there were so far: each is a separate one.
    pub nameless: u64,
    /// Those that were completed last: their clients may not have got the answer.
    complete: VecDeque<Complete>,
}

/// An upload that is complete, or being finished.
#[derive(Debug)]
pub(super) struct Complete {
    key: Key,
    pub upload: Arc<Mutex<Upload>>,
    pub verdict: Awaited,
}

/// How many of them are kept.
const MOST_COMPLETE: usize = 64;

impl Inner {
    /// The complete upload with this tag, as long as its file has not changed since.
    pub fn complete(&self, destination: &Destination, tag: &str) -> Option<&Complete> {
        let key = destination.key(tag);
        let known = self.complete.iter().rev().find(|known| known.key == key)?;
        let is_there = match (known.verdict.get(), destination) {
            (Some(UploadEnd::Refused(_)), _) => false,
            (Some(UploadEnd::Stored { etag, .. }), Destination::File(names, _)) => {
                names.stat().ok().flatten().map(|stat| folder::etag_of(&stat)) == *etag
            }
            (Some(UploadEnd::Stored { .. }), Destination::Nowhere(_)) | (None, _) => true,
        };
        let is_its = || lock(&known.upload).journal.validator.if_range() == tag;
        (is_there && is_its()).then_some(known)
    }
}

impl Uploads {
    /// Those of a server that may take as much as `limits` allow.
    pub fn new(limits: UploadLimits) -> Self {
        let quota = Quota::new(limits);
        Self { inner: Mutex::default(), finisher: Finisher::default(), quota, taken: AtomicU64::new(0) }
    }

    /// Bytes that arrived, of all uploads.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    pub(super) fn count(&self, bytes: u64) {
        self.taken.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What there is of the upload that its client calls `tag`.
    pub fn held(&self, destination: &Destination, tag: &str) -> Extents {
        let is_its = |journal: &Journal| journal.validator.if_range() == tag;
        let inner = lock(&self.inner);
        let known = inner.open.get(&destination.key(tag));
        if let Some(upload) = known.or(inner.complete(destination, tag).map(|complete| &complete.upload)) {
            let upload = lock(upload);
            let is_its = is_its(&upload.journal);
            return if is_its { upload.journal.extents.clone() } else { Extents::new() };
        }
        drop(inner);
        let Destination::File(names, path) = destination else { return Extents::new() };
        // An unreadable journal counts as none: the upload begins anew.
        let journal = FileSink::journal_in(names, path).ok().flatten();
        journal.filter(is_its).map(|journal| journal.extents).unwrap_or_default()
    }

    /// Closes an upload that no client continues, if there are too many.
    pub(super) fn put_surplus_down(&self, inner: &mut Inner) {
        let is_idle = |upload: &Mutex<Upload>| lock(upload).receipts == 0;
        let mut idle = inner.open.iter().filter(|(_, upload)| is_idle(upload));
        let first = idle.next().map(|(key, _)| key.clone());
        let others = idle.count();
        let Some((key, upload)) =
            first.filter(|_| others >= MOST_IDLE).and_then(|key| inner.open.remove_entry(&key))
        else {
            return;
        };
        let mut upload = lock(&upload);
        if let Some(sink) = upload.sink.take() {
            inner.closed.insert(key, std::mem::take(&mut upload.charge));
            self.finisher.keep(sink, upload.journal.clone());
        }
    }

    /// No request continues the upload `key` for now; what cannot be resumed is deleted.
    pub(super) fn rest(&self, key: &Key, upload: &Arc<Mutex<Upload>>) {
        let mut inner = lock(&self.inner);
        let mut resting = lock(upload);
        resting.receipts -= 1;
        if resting.receipts > 0 {
            return;
        }
        let Upload { sink, journal, is_resumable, .. } = &mut *resting;
        match sink {
            Some(sink) if *is_resumable => _ = sink.save(|| Some(journal.clone())),
            Some(sink) => {
                sink.throw_away();
                resting.charge = Charge::default();
                inner.open.remove(key);
            }
            None => {}
        }
    }

    /// Removes the open uploads that no request continues, and to which nothing came after `latest`; returns their paths.
    pub(super) fn expire_open(&self, latest: SystemTime) -> Vec<PathBuf> {
        let is_old = |sink: &Sink| {
            let written = sink.metadata().and_then(|metadata| metadata.modified().ok());
            written.is_some_and(|written| written <= latest)
        };
        let mut old = Vec::new();
        lock(&self.inner).open.retain(|(path, _), shared| {
            let Upload { sink, receipts, .. } = &mut *lock(shared);
            let sink = sink.take_if(|sink| *receipts == 0 && is_old(sink));
            let expires = sink.is_some();
            old.extend(sink.map(|sink| (path.clone(), sink)));
            !expires
        });
        // Without the lock: it may have to wait until a journal is written.
        for (_, sink) in &mut old {
            sink.throw_away();
        }
        old.into_iter().map(|(path, _)| path).collect()
    }

    /// The unfinished upload that was stored under this path is gone.
    pub(super) fn forget(&self, path: &Path) {
        lock(&self.inner).closed.remove(&(path.to_owned(), String::new()));
    }

    /// All of an upload is here: it is no longer open, and [`Finisher`] does the rest.
    pub(super) fn complete(&self, key: &Key, upload: &Arc<Mutex<Upload>>, task: Task) {
        let mut inner = lock(&self.inner);
        if inner.open.get(key).is_some_and(|known| Arc::ptr_eq(known, upload)) {
            inner.open.remove(key);
        }
        let (upload, verdict) = (Arc::clone(upload), Arc::clone(&task.verdict));
        inner.complete.push_back(Complete { key: key.clone(), upload, verdict });
        if inner.complete.len() > MOST_COMPLETE {
            inner.complete.pop_front();
        }
        drop(inner);
        self.finisher.finish(task);
    }
}

impl Drop for Uploads {
    /// Unfinished uploads are synced, so that another process can resume them.
    fn drop(&mut self) {
        let open = std::mem::take(&mut lock(&self.inner).open);
        for upload in open.into_values() {
            let mut upload = lock(&upload);
            let journal = upload.journal.clone();
            let is_resumable = upload.is_resumable;
            if let Some(mut sink) = upload.sink.take() {
                if is_resumable {
                    // No client is left to be notified; the last journal written is still valid.
                    let _ = sink.keep(&journal);
                } else {
                    sink.throw_away();
                }
            }
        }
    }
}

impl Uploads {
    /// Begins an upload, or continues what there is of it. Whether there is room for what it needs is checked, but
    /// nothing is reserved.
    pub(super) fn open(
        &self,
        inner: &mut Inner,
        offer: &PutContent,
        tag: String,
        destination: Destination,
    ) -> Result<Upload, Refusal> {
        let key = destination.key(&tag);
        let validator = Validator::Etag(tag);
        let is_resumable = offer.total.is_some() && (offer.tag.is_some() || !offer.is_whole());
        let mut journal = match &destination {
            Destination::Nowhere(path) => Journal::new(path, offer.total.unwrap_or(0), validator),
            Destination::File(_, path) => {
                Journal::new(&path.display().to_string(), offer.total.unwrap_or(0), validator)
            }
        };
        let (sink, charge) = match destination {
            Destination::Nowhere(_) => (Sink::Discard, Charge::default()),
            Destination::File(names, path) => {
                let known = FileSink::journal_in(&names, &path).ok().flatten();
                let known = known.filter(|known| {
                    is_resumable && known.validator == journal.validator && known.total == journal.total
                });
                let held = known.as_ref().map_or(0, |known| known.extents.held());
                let before = inner.closed.get(&key).filter(|_| known.is_none());
                let missing = offer.total.map_or(0, |total| total.saturating_sub(held));
                let charge = self.quota.open(missing, before)?;
                if let Some(total) = offer.total {
                    FileSink::check_room(&names, &path, total, held, self.quota.limits.spare)?;
                }
                let (file, found) = FileSink::open_in(names, &path, known.is_some())?;
                // If it begins anew, what was stored before has gone.
                let before = inner.closed.remove(&key).filter(|_| found.is_some());
                journal = found.unwrap_or(journal);
                (Sink::File(Box::new(file)), before.unwrap_or(charge))
            }
        };
        let (sums, declared, receipts) = (Sums::default(), None, 0);
        let sink = Some(sink);
        Ok(Upload { sink, journal, is_resumable, sums, declared, charge, receipts, saved_at: Time::ZERO })
    }
}

#[cfg(test)]
mod tests;

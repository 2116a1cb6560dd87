//! The uploads of a server: which are in progress, what is here of each, and how a file gets its name.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use h2lab_base::units::Time;
use h2lab_transfer::{Checksum, Extents, Journal, Sums, Validator};

use super::finish::{Awaited, Finisher, Task, UploadEnd};
use super::folder;
use super::offer::Offer;
use super::refusal::Refusal;
use h2lab_net::lock::lock;
use h2lab_net::storage::{FileSink, Names, Sink};

/// Uploads without a request that are kept open, so that the next part need not reopen them. Beyond, the oldest are closed: their
/// journals are written, and they are resumed when a client asks.
const MOST_IDLE: usize = 64;

/// Where an upload goes.
#[derive(Debug)]
pub enum Destination {
    /// Nowhere; what is counted has this path.
    Nowhere(String),
    /// To the file with these names, whose path is for people.
    File(Names, PathBuf),
}

impl Destination {
    /// What there can be one upload of at a time: a file, and of what goes nowhere any number.
    pub(super) fn key(&self, tag: &str) -> Key {
        match self {
            Self::Nowhere(path) => (path.into(), tag.to_owned()),
            Self::File(_, path) => (path.clone(), String::new()),
        }
    }
}

/// What there can be one upload of at a time: its path, and its name if it goes nowhere.
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
    /// What the client says the sum of the whole is.
    pub declared: Option<Checksum>,
    /// Requests in progress for it.
    pub receipts: u32,
    /// When its journal was last asked to be written.
    pub saved_at: Time,
}

impl Upload {
    /// Whether an offer is for it. One that cannot be resumed belongs to the request which began it.
    pub fn is_of(&self, offer: &Offer, tag: &str) -> bool {
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
    /// Bytes that arrived.
    taken: AtomicU64,
}

#[derive(Debug, Default)]
pub(super) struct Inner {
    pub open: BTreeMap<Key, Arc<Mutex<Upload>>>,
    /// Uploads without a name so far: each is another one.
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

/// So many are remembered.
const MOST_COMPLETE: usize = 64;

impl Inner {
    /// The upload of this name that is complete, as long as its file is as it became.
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
        let Some(upload) = first.filter(|_| others >= MOST_IDLE).and_then(|key| inner.open.remove(&key))
        else {
            return;
        };
        let mut upload = lock(&upload);
        if let Some(sink) = upload.sink.take() {
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
                inner.open.remove(key);
            }
            None => {}
        }
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

/// Begins an upload, or takes up what there is of it.
pub(super) fn open(offer: &Offer, tag: String, destination: Destination) -> Result<Upload, Refusal> {
    let validator = Validator::Etag(tag);
    let is_resumable = offer.total.is_some() && (offer.tag.is_some() || !offer.is_whole());
    let mut journal = match &destination {
        Destination::Nowhere(path) => Journal::new(path, offer.total.unwrap_or(0), validator),
        Destination::File(_, path) => {
            Journal::new(&path.display().to_string(), offer.total.unwrap_or(0), validator)
        }
    };
    let mut sink = match destination {
        Destination::Nowhere(_) => Sink::Discard,
        Destination::File(names, path) => {
            let known = FileSink::journal_in(&names, &path).ok().flatten();
            let known = known.filter(|known| {
                is_resumable && known.validator == journal.validator && known.total == journal.total
            });
            let (file, found) = FileSink::open_in(names, &path, known.is_some())?;
            journal = found.unwrap_or(journal);
            Sink::File(Box::new(file))
        }
    };
    if let Some(total) = offer.total
        && let Err(error) = sink.reserve(total)
    {
        // Of what is not there nothing is left; what an earlier request brought is kept.
        let _ = sink.keep(&journal);
        return Err(error.into());
    }
    let (sums, declared) = (Sums::default(), None);
    Ok(Upload { sink: Some(sink), journal, is_resumable, sums, declared, receipts: 0, saved_at: Time::ZERO })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, Instant};

    use h2lab_transfer::{Algorithm, Digest};
    use tempfile::TempDir;

    use super::super::plan::ResponsePlan;
    use h2lab_wire::Fields;

    use super::super::offer::tests::offer;
    use super::super::receipt::Receipt;
    use super::*;

    /// A server of uploads into a folder of its own.
    struct Place {
        folder: TempDir,
        uploads: Arc<Uploads>,
    }

    const CONTENT: &[u8] = b"0123456789";

    impl Place {
        fn new() -> Self {
            Self { folder: tempfile::tempdir().unwrap(), uploads: Arc::default() }
        }

        fn destination(&self) -> Destination {
            let path = self.folder.path().join("f");
            Destination::File(Names::of(&path).unwrap(), PathBuf::from("f"))
        }

        fn begin(&self, fields: &[(&str, &str)]) -> Result<Receipt, Refusal> {
            self.uploads.begin(Time::ZERO, offer(fields)?, self.destination())
        }

        /// What a request with these fields and this body is answered.
        fn put(&self, fields: &[(&str, &str)], body: &[u8]) -> ResponsePlan {
            match self.begin(fields) {
                Ok(mut receipt) => {
                    receipt.take(body);
                    receipt.complete();
                    answer(&mut receipt)
                }
                Err(refusal) => refusal.plan(Time::ZERO),
            }
        }

        /// Bytes `from..until` of [`CONTENT`], as a part.
        fn part(&self, from: usize, until: usize) -> ResponsePlan {
            let range = format!("bytes {from}-{}/10", until - 1);
            let fields = [(TAG, "\"t\""), ("content-range", range.as_str()), ("upload-complete", "?0")];
            self.put(&fields, &CONTENT[from..until])
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(self.folder.path()).unwrap();
            let mut names: Vec<String> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }

        fn read(&self) -> Vec<u8> {
            fs::read(self.folder.path().join("f")).unwrap()
        }
    }

    const TAG: &str = h2lab_transfer::upload::TAG_FIELD;
    const LAST_WORD: (&str, &str) = ("content-range", "bytes */10");

    fn answer(receipt: &mut Receipt) -> ResponsePlan {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(plan) = receipt.answer(Time::ZERO) {
                return plan;
            }
            assert!(Instant::now() < until, "it is never finished");
            std::thread::yield_now();
        }
    }

    fn sum(algorithm: Algorithm) -> String {
        let mut digest = Digest::new(algorithm);
        digest.update(CONTENT);
        digest.checksum().unwrap().to_field()
    }

    #[test]
    fn parts_in_any_order_become_a_file_with_the_last_word() {
        for algorithm in [Algorithm::Crc32c, Algorithm::Sha256] {
            let place = Place::new();
            assert_eq!(place.part(7, 10).status, 204);
            assert_eq!(place.part(0, 4).status, 204);
            let held = place.uploads.held(&place.destination(), "\"t\"");
            assert_eq!(held, [0..4, 7..10].into_iter().collect());
            assert!(place.uploads.held(&place.destination(), "\"other\"").is_empty());
            assert_eq!(place.put(&[(TAG, "\"t\""), LAST_WORD], b"").status, 409, "something is missing");
            assert_eq!(place.part(4, 7).status, 204);
            assert_eq!(place.names(), ["f.part"], "it has no name yet");
            let (sum, want) = (sum(algorithm), algorithm.want().unwrap());
            let fields =
                [(TAG, "\"t\""), LAST_WORD, ("repr-digest", sum.as_str()), ("want-repr-digest", &want)];
            let done = place.put(&fields, b"");
            assert_eq!(done.status, 201);
            assert!(done.fields.contains(&("repr-digest", sum.clone())), "{:?}", done.fields);
            assert_eq!((place.read(), place.names()), (CONTENT.to_vec(), vec!["f".to_owned()]));
            // The answer may have been lost: it is given again.
            assert_eq!(place.put(&fields, b"").status, 201);
            assert_eq!(place.uploads.held(&place.destination(), "\"t\""), Extents::all(10));
        }
    }

    #[test]
    fn a_wrong_checksum_leaves_nothing_and_names_what_arrived() {
        for wrong in [("repr-digest", "crc32c=:AAAAAA==:"), ("content-digest", "crc32c=:AAAAAA==:")] {
            let place = Place::new();
            let refused = place.put(&[("content-length", "10"), wrong], CONTENT);
            assert_eq!(refused.status, 400, "{wrong:?}");
            assert!(refused.fields.contains(&("repr-digest", sum(Algorithm::Crc32c))), "{wrong:?}");
            assert!(place.names().is_empty(), "{wrong:?}");
        }
        let place = Place::new();
        let mut receipt = place.begin(&[("content-length", "10")]).unwrap();
        receipt.take(CONTENT);
        Fields::of(&[("repr-digest", "crc32c=:AAAAAA==:")], |fields| receipt.take_trailers(fields));
        receipt.complete();
        assert_eq!(answer(&mut receipt).status, 400, "in a trailer, too");
        assert!(place.names().is_empty());
    }

    #[test]
    fn what_broke_is_kept_if_it_has_a_name_and_outlives_the_server() {
        let mut place = Place::new();
        let mut nameless = place.begin(&[("content-length", "10")]).unwrap();
        nameless.take(&CONTENT[..3]);
        assert_eq!(place.begin(&[(TAG, "\"t\""), ("content-length", "10")]).unwrap_err().status, 409);
        drop(nameless);
        assert!(place.names().is_empty());
        let mut named = place.begin(&[(TAG, "\"t\""), ("content-length", "10")]).unwrap();
        named.take(&CONTENT[..3]);
        drop(named);
        place.uploads = Arc::default();
        assert_eq!(place.uploads.held(&place.destination(), "\"t\""), std::iter::once(0..3).collect());
        assert_eq!(place.part(3, 10).status, 204);
        let sum = sum(Algorithm::Crc32c);
        assert_eq!(place.put(&[(TAG, "\"t\""), LAST_WORD, ("repr-digest", &sum)], b"").status, 201);
        assert_eq!(place.read(), CONTENT);
        // Another state of the file begins anew, and replaces it.
        assert_eq!(place.put(&[(TAG, "\"u\""), ("content-length", "2")], b"xy").status, 204);
        assert_eq!(place.read(), b"xy");
    }

    #[test]
    fn more_or_less_than_was_announced_is_refused() {
        for body in [&CONTENT[..9], b"0123456789a"] {
            let place = Place::new();
            assert_eq!(place.put(&[("content-length", "10")], body).status, 400, "{}", body.len());
            assert!(place.names().is_empty());
        }
    }

    #[test]
    fn an_upload_that_cannot_be_resumed_belongs_to_its_request() {
        let place = Place::new();
        let mut open = place.begin(&[(TAG, "\"t\"")]).unwrap();
        open.take(CONTENT);
        let part = [(TAG, "\"t\""), ("content-range", "bytes 70-99/100"), ("upload-complete", "?0")];
        assert_eq!(place.put(&part, &[0; 30]).status, 409, "it has no length, and is under way");
        open.complete();
        assert!(matches!(answer(&mut open).status, 201 | 204));
        assert_eq!(place.read(), CONTENT);
    }

    #[test]
    fn a_last_word_that_comes_again_with_another_sum_is_not_believed() {
        let place = Place::new();
        assert_eq!(place.part(0, 10).status, 204);
        let right = sum(Algorithm::Crc32c);
        let last = |sum: &str| place.put(&[(TAG, "\"t\""), LAST_WORD, ("repr-digest", sum)], b"").status;
        assert_eq!(last(&right), 201);
        assert!(matches!(last(&right), 201 | 204));
        assert_eq!(last("crc32c=:AAAAAA==:"), 400);
    }

    #[test]
    fn parts_that_nothing_keeps_are_refused_a_sum_of_their_order_before_they_come() {
        let uploads = Arc::new(Uploads::default());
        let begin = |want: &str, range: &str| {
            let fields = [
                (TAG, "\"t\""),
                ("content-range", range),
                ("upload-complete", "?0"),
                ("want-repr-digest", want),
            ];
            let nowhere = Destination::Nowhere("f".to_owned());
            uploads.begin(Time::ZERO, offer(&fields).unwrap(), nowhere).map(drop)
        };
        let refusal = begin("sha-256=10", "bytes 0-4/10").unwrap_err().plan(Time::ZERO);
        assert_eq!(refusal.status, 400);
        assert!(begin("crc32c=10", "bytes 0-4/10").is_ok());
    }

    #[test]
    fn gaps_have_a_bound() {
        let uploads = Arc::new(Uploads::default());
        let mut status = 204;
        let part = |from: u64, length: usize| {
            let range = format!("bytes {from}-{}/1000000", from + length as u64 - 1);
            let fields = [(TAG, "\"t\""), ("content-range", range.as_str()), ("upload-complete", "?0")];
            let nowhere = Destination::Nowhere("f".to_owned());
            let mut receipt = uploads.begin(Time::ZERO, offer(&fields).unwrap(), nowhere).unwrap();
            receipt.take(&vec![0; length]);
            receipt.complete();
            answer(&mut receipt).status
        };
        let mut pieces = 0;
        while status == 204 && pieces < 20_000 {
            status = part(2 * pieces, 1);
            pieces += 1;
        }
        assert_eq!((status, pieces), (409, 10_001));
        assert_eq!(part(1, 1), 204, "what fills a gap is taken");
    }

    #[test]
    fn who_replaces_an_upload_that_is_still_being_saved_waits_elsewhere() {
        let place = Place::new();
        assert_eq!(place.part(0, 4).status, 204);
        for upload in lock(&place.uploads.inner).open.values() {
            lock(upload).sink.as_ref().unwrap().seem_saving();
        }
        assert_eq!(
            place.put(&[("content-length", "10")], CONTENT).status,
            409,
            "nobody waits under the lock"
        );
        let until = Instant::now() + Duration::from_secs(60);
        while place.put(&[("content-length", "10")], CONTENT).status == 409 {
            assert!(Instant::now() < until, "it is never put away");
            std::thread::yield_now();
        }
        assert_eq!(place.read(), CONTENT);
    }

    #[test]
    fn what_could_not_be_saved_for_another_save_is_saved_later() {
        let place = Place::new();
        let part = [(TAG, "\"t\""), ("content-range", "bytes 0-9/10"), ("upload-complete", "?0")];
        let mut receipt = place.begin(&part).unwrap();
        receipt.take(&CONTENT[..5]);
        for upload in lock(&place.uploads.inner).open.values() {
            lock(upload).sink.as_ref().unwrap().seem_saving();
        }
        let later = Time::ZERO + Duration::from_secs(10);
        assert!(receipt.save(later).happened(), "it asks to be asked again");
        assert!(receipt.save(later + Duration::from_secs(10)).happened());
    }

    #[test]
    fn files_are_finished_side_by_side() {
        let place = Place::new();
        for n in 0..20 {
            let name = format!("f{n}");
            let destination = || {
                Destination::File(Names::of(&place.folder.path().join(&name)).unwrap(), name.clone().into())
            };
            let mut receipt = place
                .uploads
                .begin(Time::ZERO, offer(&[("content-length", "10")]).unwrap(), destination())
                .unwrap();
            receipt.take(CONTENT);
            receipt.complete();
            assert_eq!(answer(&mut receipt).status, 201, "{n}");
        }
        assert_eq!(place.names().len(), 20);
    }
}

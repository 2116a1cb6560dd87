//! One request that carries an upload, or a part of it.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_transfer::{Algorithm, Checksum, Digest, upload};
use h2lab_wire::Fields;

use super::finish::{Awaited, Task};
use super::log::Log;
use super::put_content::{DeclaredSums, PutContent};
use super::refusal::Refusal;
use super::uploads::{Key, Upload, Uploads};
use h2lab_net::lock::lock;

/// How often what arrived is saved, so that it survives the end of this process.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// Disjoint pieces of one upload, at most: a client learns of no more than these
/// ([`MOST_RANGES`](h2lab_transfer::upload::MOST_RANGES)) when it resumes, and each costs memory.
const MOST_PIECES: usize = 10 * upload::MOST_RANGES;

/// What becomes of the bytes of one request.
#[derive(Debug)]
pub struct Receipt {
    uploads: Arc<Uploads>,
    key: Key,
    pub(super) upload: Arc<Mutex<Upload>>,
    offer: PutContent,
    /// The next byte.
    at: u64,
    /// Up to where there is room on the disk.
    room: u64,
    /// One past the last byte that a journal covers.
    saved: u64,
    began: Time,
    /// The CRC-32C of what came, from which that of the whole is made.
    crc: Option<Digest>,
    /// The same with another algorithm that was asked for.
    other: Option<Digest>,
    /// How it ended, once it has.
    pub(super) end: Option<End>,
    /// The log, if there is one, and the path that it names; and what was answered.
    log: Option<(Arc<Log>, String)>,
    pub(super) status: u16,
}

/// How a request ended.
#[derive(Debug)]
pub(super) enum End {
    /// It carried its part, and other requests carry the rest.
    Part,
    /// It was the last, or the file is being finished; with the checksum of the whole that was declared after finishing
    /// had begun.
    Whole(Awaited, Option<Checksum>),
    /// It was refused.
    Refused(Refusal),
}

impl Receipt {
    pub(super) fn new(
        now: Time,
        uploads: Arc<Uploads>,
        key: Key,
        upload: Arc<Mutex<Upload>>,
        offer: PutContent,
    ) -> Self {
        let algorithm = offer.algorithm();
        lock(&upload).receipts += 1;
        let is_crc = algorithm == Algorithm::Crc32c;
        // Sums of parts that do not combine say nothing of the whole: it is read back.
        let other = !is_crc && (offer.from == 0 || offer.declared.content.is_some());
        Self {
            uploads,
            key,
            upload,
            at: offer.from,
            room: offer.from,
            saved: offer.from,
            began: now,
            offer,
            crc: is_crc.then(|| Digest::new(Algorithm::Crc32c)),
            other: other.then(|| Digest::new(algorithm)),
            end: None,
            log: None,
            status: 0,
        }
    }

    /// The final request of an upload that is complete already, or being finished: the answer to an earlier one was
    /// lost. It may declare another checksum than that one.
    pub(super) fn settled(mut self, verdict: Awaited) -> Self {
        let declared = self.offer.declared.whole.take();
        self.end = Some(End::Whole(verdict, declared));
        self
    }

    /// The same, and when it is over a line of `log`: status (0 if it broke), method, path, and which bytes came.
    pub fn logged(mut self, log: Option<(Arc<Log>, String)>) -> Self {
        self.log = log;
        self
    }

    fn arrived(&self) -> Range<u64> {
        self.offer.from..self.at
    }

    /// Bytes of it have come.
    pub fn take(&mut self, data: &[u8]) {
        if self.end.is_none()
            && let Err(refusal) = self.store(data)
        {
            self.end = Some(End::Refused(refusal));
        }
    }

    fn store(&mut self, data: &[u8]) -> Result<(), Refusal> {
        let end = self.at + data.len() as u64;
        if self.offer.until.is_some_and(|until| end > until) {
            return Err(Refusal::new(400, "more bytes than declared"));
        }
        let mut upload = lock(&self.upload);
        if self.at == self.offer.from && upload.journal.extents.ranges() >= MOST_PIECES {
            let words = format!(
                "there are {MOST_PIECES} pieces with gaps between them; send what is missing from the first on"
            );
            if !upload.journal.extents.touches(self.at..end) {
                return Err(Refusal::new(409, words));
            }
        }
        let Upload { sink: Some(sink), journal, charge, .. } = &mut *upload else { return Err(over()) };
        let new = data.len() as u64 - journal.extents.held_in(self.at..end);
        let quota = &self.uploads.quota;
        if sink.is_kept() {
            quota.check_length(end)?;
            charge.add(new)?;
        }
        if end > self.room {
            let room = sink.take_room(self.offer.from, self.at..end, self.offer.until, quota.limits.spare);
            self.room = room.inspect_err(|_| charge.give_back(new))?;
        }
        sink.write_at(self.at, data).inspect_err(|_| charge.give_back(new))?;
        journal.extents.insert(self.at..end);
        drop(upload);
        for sum in [&mut self.crc, &mut self.other].into_iter().flatten() {
            sum.update(data);
        }
        self.uploads.count(data.len() as u64);
        self.at = end;
        Ok(())
    }

    /// Saves in the background what has arrived, so that it survives the end of this process. Returns when to call it
    /// again.
    pub fn save(&mut self, now: Time) -> Time {
        let mut upload = lock(&self.upload);
        if !upload.is_resumable || self.at == self.saved {
            return Time::NEVER;
        }
        let due = upload.saved_at.max(self.began) + SAVE_EVERY;
        if now < due {
            return due;
        }
        let Upload { sink, journal, saved_at, .. } = &mut *upload;
        *saved_at = now;
        if sink.as_mut().is_none_or(|sink| sink.save(|| Some(journal.clone()))) {
            self.saved = self.at;
            return Time::NEVER;
        }
        now + SAVE_EVERY // what came since the last one is not in it
    }

    /// Its trailers have arrived. They may carry checksums that were known only at the end.
    pub fn take_trailers(&mut self, fields: Fields<'_>) {
        match DeclaredSums::of(fields) {
            Ok(declared) => self.offer.declared = declared.or(std::mem::take(&mut self.offer.declared)),
            Err(refusal) => self.end = self.end.take().or(Some(End::Refused(refusal))),
        }
    }

    /// All of the request is here.
    pub fn complete(&mut self) {
        if self.end.is_none() {
            self.end = Some(self.conclude().unwrap_or_else(End::Refused));
        }
    }

    fn conclude(&mut self) -> Result<End, Refusal> {
        if self.offer.until.is_some_and(|until| self.at < until) {
            return Err(Refusal::new(400, "fewer bytes than declared"));
        }
        self.compare_content()?;
        self.record_bytes();
        let mut upload = lock(&self.upload);
        upload.declared = self.offer.declared.whole.take().or(upload.declared.take());
        if !upload.is_resumable {
            upload.journal.total = self.at;
        }
        let total = upload.journal.total;
        if !self.offer.completes || upload.sink.is_none() {
            return if upload.sink.is_some() { Ok(End::Part) } else { Err(over()) };
        }
        if !upload.journal.extents.is_complete(total) {
            let words = format!(
                "{} of {total} bytes are missing",
                total.saturating_sub(upload.journal.extents.held())
            );
            return if self.offer.is_last_word() { Err(Refusal::new(409, words)) } else { Ok(End::Part) };
        }
        let Some(sink) = upload.sink.take() else { return Err(over()) };
        let crc = upload.sums.whole(total).map(Checksum::crc32c);
        let other = self.other.as_ref().filter(|sum| sum.bytes() == total).and_then(Digest::checksum);
        let verdict = Awaited::default();
        let task = Task {
            sink,
            total,
            made: crc.into_iter().chain(other).collect(),
            charge: std::mem::take(&mut upload.charge),
            declared: upload.declared.take(),
            wanted: self.offer.wanted,
            verdict: Arc::clone(&verdict),
            preconditions: std::mem::take(&mut self.offer.preconditions),
            may_replace: self.uploads.quota.limits.overwrite,
        };
        drop(upload);
        self.uploads.complete(&self.key, &self.upload, task);
        Ok(End::Whole(verdict, None))
    }

    /// Compares the checksum of this request's content with the declared one; a wrong part counts as not received.
    fn compare_content(&mut self) -> Result<(), Refusal> {
        let Some(declared) = self.offer.declared.content.take() else { return Ok(()) };
        let made = [&self.crc, &self.other].into_iter().flatten().filter_map(Digest::checksum);
        let found = made.into_iter().find(|made| made.algorithm() == declared.algorithm());
        let refusal = match found {
            Some(found) if found == declared => return Ok(()),
            Some(found) => Refusal::mismatch("this content", &declared, found),
            None => {
                let words = format!(
                    "Content-Digest {} cannot be compared: name it before the content",
                    declared.algorithm()
                );
                Refusal::new(400, words)
            }
        };
        let mut upload = lock(&self.upload);
        let gone = upload.journal.extents.held_in(self.offer.from..self.at);
        upload.charge.give_back(gone);
        upload.journal.extents.remove(self.offer.from..self.at);
        (self.crc, self.other) = (None, None);
        Err(refusal)
    }

    /// Records the sum of what has come.
    fn record_bytes(&mut self) {
        let sum = self.crc.take().and_then(|sum| sum.checksum());
        if let Some(crc) = sum.and_then(|sum| sum.bytes().try_into().ok()) {
            lock(&self.upload).sums.add(self.arrived(), u32::from_be_bytes(crc));
        }
    }

    /// Whether it was refused: the rest of the request is discarded.
    pub const fn is_refused(&self) -> bool {
        matches!(self.end, Some(End::Refused(_)))
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        // What came before a break is valid, and can be resumed.
        self.record_bytes();
        self.uploads.rest(&self.key, &self.upload);
        if let Some((log, path)) = &self.log {
            log.write_out(&format!("{} PUT {path} {}-{}", self.status, self.offer.from, self.at));
        }
    }
}

/// The answer to a request for an upload that is over.
fn over() -> Refusal {
    Refusal::new(409, "this upload is complete or was abandoned")
}

//! An upload to a server.
//!
//! The server is asked first what it has. A server that supports resumable uploads ([`upload`]) gets what it lacks: in
//! parts, followed by a final request; or everything in one request, followed by the checksum. Any other server gets a
//! plain PUT.

use std::cell::RefCell;
use std::rc::Rc;

use h2lab_base::text::PeerText;
use h2lab_base::units::Time;
use h2lab_model::bulk::DigestVerdict;
use h2lab_transfer::{Algorithm, Checksum, Extents, Parts, content_range, upload};
use h2lab_wire::ResponseHead;

use super::fields::text;
use super::file_request::{FileRequest, No, OutcomeClass, RequestPurpose};
use super::{Fetch, FetchError, MAX_FRUITLESS, Stage, always_refused};
use crate::bulk::source::{Sending, SourceError, UploadSource};

impl Fetch {
    /// Opens what is sent.
    pub(super) fn open_source(&mut self, index: usize) -> Result<(), SourceError> {
        if self.total.is_none() {
            self.upload.source = UploadSource::open(&self.place)?;
            self.upload.tag = self.upload.source.tag(!self.options.resume, index);
            self.total = Some(self.upload.source.length());
        }
        Ok(())
    }

    /// Asks what the server has.
    pub(super) fn question(&mut self, index: usize) -> FileRequest {
        if self.upload.questions == 0 {
            self.upload.proved = Extents::new();
        }
        self.upload.questions += 1;
        FileRequest::new(index, RequestPurpose::Held)
    }

    /// Attaches to `ask` the bytes that it sends.
    pub(super) fn load(&mut self, mut ask: FileRequest) -> FileRequest {
        let (from, until) = (ask.from, ask.until.unwrap_or(ask.from));
        let is_whole = self.upload.is_whole;
        // The checksum of a part is useful for the whole only if checksums combine.
        let algorithm = self.options.checksum;
        let algorithm = if is_whole || algorithm.combines() { algorithm } else { Algorithm::None };
        let has_trailer = is_whole && self.is_resumable_there() && algorithm != Algorithm::None;
        let body = self.upload.source.body(from, until - from, self.options.chunk);
        let sending = Sending::new(body, until, algorithm, has_trailer).watching(&self.upload.source);
        ask.sending = Some(Rc::new(RefCell::new(sending)));
        self.upload.under_way.insert(from..until);
        ask
    }

    fn is_resumable_there(&self) -> bool {
        self.upload.is_resumable == Some(true)
    }

    /// The method of `ask` and the fields of its request, lower-case names.
    pub(super) fn request_to_put(&self, ask: &FileRequest) -> (&'static str, Vec<(&'static str, String)>) {
        let total = self.total.unwrap_or(0);
        let mut fields = vec![("user-agent", super::USER_AGENT.to_owned())];
        let tag = || (upload::TAG_FIELD, self.upload.tag.clone());
        if ask.purpose == RequestPurpose::Held {
            fields.push(tag());
            return ("HEAD", fields);
        }
        fields.push(("content-type", "application/octet-stream".to_owned()));
        if !self.is_resumable_there() {
            return ("PUT", fields);
        }
        fields.extend([tag(), (upload::LENGTH_FIELD, total.to_string())]);
        if let Some(want) = self.options.checksum.want() {
            fields.push(("want-repr-digest", want));
        }
        if ask.purpose == RequestPurpose::LastWord {
            fields.push(("content-range", content_range::to_field(&(total..total), total)));
            fields.extend(self.found.as_ref().map(|found| ("repr-digest", found.to_field())));
        } else if !self.upload.is_whole {
            let range = ask.from..ask.until.unwrap_or(ask.from);
            fields.push(("content-range", content_range::to_field(&range, total)));
            fields.push((upload::COMPLETE_FIELD, "?0".to_owned()));
        } else if self.options.checksum != Algorithm::None {
            fields.push(("trailer", "repr-digest".to_owned()));
        }
        ("PUT", fields)
    }

    /// The head of an answer has come.
    pub(super) fn answered_to_put(&mut self, ask: &mut FileRequest, head: &ResponseHead<'_>) {
        if ask.purpose == RequestPurpose::Held && matches!(head.status, 500 | 502..=504) {
            // It may have an upload, but is too busy to look it up.
            ask.no = Some(No { status: head.status, location: None, words: Vec::new() });
        } else if ask.purpose == RequestPurpose::Held {
            self.deal_what_is_missing(head);
        } else if (200..300).contains(&head.status) {
            ask.is_accepted = true;
        } else {
            let location = text(head.fields, "location").map(PeerText::from);
            ask.no = Some(No { status: head.status, location, words: Vec::new() });
        }
        if self.is_about_the_whole(ask) {
            self.note_checksum(head.fields);
        }
    }

    /// Whether the checksum in the answer to `ask` covers everything that was sent: the answer accepts the whole, or
    /// states that it arrived otherwise. An earlier file of that name, or a part, has another checksum.
    pub(super) fn is_about_the_whole(&self, ask: &FileRequest) -> bool {
        let is_end = match ask.purpose {
            RequestPurpose::Held => false,
            RequestPurpose::Bytes => self.upload.is_whole,
            RequestPurpose::LastWord => true,
        };
        is_end && (ask.is_accepted || ask.no.as_ref().is_some_and(|no| no.status == 400))
    }

    /// The server has reported what it has, or does not support that.
    fn deal_what_is_missing(&mut self, head: &ResponseHead<'_>) {
        let total = self.total.unwrap_or(0);
        let declared = upload::from_fields(head.fields, total).filter(|_| (200..300).contains(&head.status));
        let is_first = self.upload.is_resumable.replace(declared.is_some()).is_none();
        let mut there = match declared {
            Some(there) => there,
            None if is_first => Extents::new(),
            None => {
                return self.fail(FetchError::Contradiction("it no longer reports what it has".to_owned()));
            }
        };
        for range in self.upload.proved.iter() {
            there.insert(range);
        }
        for range in self.upload.under_way.iter() {
            there.remove(range); // recorded when its request ends
        }
        if is_first {
            self.held_before = there.held();
        }
        if there.held() > self.extents.held() {
            self.fruitless = 0;
        }
        self.extents = there;
        self.upload.doubtful = 0;
        self.stage = Stage::Dealing;
        self.deal(total, &self.upload.under_way.clone());
        let dealt = self.parts.clone().and_then(|mut parts| parts.next());
        let is_alone = self.extents.is_empty() && self.upload.under_way.is_empty();
        self.upload.is_whole = is_alone && dealt == Some(0..total);
        if !self.is_resumable_there() && total > 0 {
            self.parts = Some(Parts::new(std::iter::once(0..total), u64::MAX, 1));
            (self.upload.is_whole, self.part_bytes) = (true, None);
        }
        self.recount();
    }

    /// `bytes` of a request were handed to the engine.
    pub fn sent(&mut self, ask: &mut FileRequest, now: Time, bytes: u64) {
        ask.at += bytes;
        self.upload.flying += bytes;
        self.figures.first_byte = self.figures.first_byte.min(now);
        if let Some(sending) = ask.sending.as_ref().filter(|_| self.upload.source.is_file()) {
            self.figures.reads += 1;
            self.figures.disk_wait += sending.borrow_mut().take_wait();
        }
        self.recount();
    }

    /// The next piece of a request could not be read.
    pub fn ran_dry(&mut self, ask: &FileRequest) {
        if let Err(changed) = self.check_source() {
            return self.fail(changed);
        }
        let error = ask.sending.as_ref().and_then(|sending| sending.borrow_mut().take_error());
        let error = error.unwrap_or_else(|| std::io::ErrorKind::UnexpectedEof.into());
        self.fail(self.upload.source.failed(error).into());
    }

    /// Counts what this run has sent: what is known to have arrived, and what is in flight.
    fn recount(&mut self) {
        let arrived = self.extents.held().saturating_sub(self.held_before);
        let arrived = arrived + self.upload.flying + self.upload.doubtful;
        self.upload.taken_back += self.figures.arrived.saturating_sub(arrived);
        self.figures.arrived = arrived;
    }

    /// Takes the number of bytes that were reported as sent, and that turned out to need sending again.
    pub fn take_back(&mut self) -> u64 {
        std::mem::take(&mut self.upload.taken_back)
    }

    /// `bytes` of what a request has sent have not left us.
    pub fn left_behind(&mut self, ask: &mut FileRequest, bytes: u64) {
        ask.behind += bytes;
        self.upload.flying -= bytes;
        self.recount();
    }

    /// A request has ended. `why` says why its answer is incomplete; `None` if it is complete.
    pub(super) fn ended_to_put(&mut self, ask: &mut FileRequest, now: Time, why: Option<&str>) {
        let gone = ask.moved();
        // If the server answers before it has taken everything, the file is not complete there, whatever the answer
        // says.
        let is_early = ask.purpose == RequestPurpose::Bytes && ask.awaits_bytes();
        let is_done = ask.is_accepted && why.is_none() && !is_early;
        if ask.purpose == RequestPurpose::Bytes {
            self.upload.under_way.remove(ask.from..ask.until.unwrap_or(ask.from));
            self.upload.flying -= gone;
            if is_done {
                self.take_sum(ask);
                self.extents.insert(ask.arrived());
                self.upload.proved.insert(ask.arrived());
                self.pauses = 0;
            } else {
                self.upload.doubtful += gone;
            }
            self.recount();
        } else if ask.purpose == RequestPurpose::Held {
            self.upload.questions -= 1;
        }
        if let Stage::Over(_) = self.stage {
            self.figures.ended = now;
        } else if let Some(no) = ask.no.take() {
            self.refused(ask, no, now);
        } else if is_done {
            self.fruitless = 0;
            self.completed(ask, now);
        } else if ask.is_accepted && why.is_none() && !self.is_resumable_there() {
            let words = format!("it reports a complete file, but had accepted only {gone} bytes");
            self.fail(FetchError::Contradiction(words));
        } else if ask.purpose != RequestPurpose::Held || why.is_some() {
            let early = if is_early {
                "the server answered before it had all"
            } else {
                "the server sends no response"
            };
            self.try_again(ask, now, why.unwrap_or(early));
        } else {
            self.conclude(now); // the query was answered: the server may have everything
        }
    }

    /// A request succeeded.
    fn completed(&mut self, ask: &FileRequest, now: Time) {
        if ask.purpose == RequestPurpose::LastWord {
            return self.compare(now);
        }
        let is_last = self.upload.is_whole && self.total == Some(ask.at);
        if !is_last {
            return self.conclude(now);
        }
        match self.sum(ask.at) {
            Ok(found) => {
                self.found = found;
                self.compare(now);
            }
            Err(error) => self.fail(error),
        }
    }

    /// The server refused a request.
    fn refused(&mut self, ask: &FileRequest, no: No, now: Time) {
        // Another process is writing it, or the server itself is still saving what it had.
        let is_busy = no.status == 409 && ask.purpose == RequestPurpose::Bytes && self.is_resumable_there();
        if (is_busy || ask.purpose == RequestPurpose::Held) && self.put_off(now) {
            self.stage = Stage::Unasked;
            return;
        }
        if no.status == 409 && ask.purpose == RequestPurpose::LastWord && self.fruitless < MAX_FRUITLESS {
            // The server has lost something that it had: after a restart it has only what its journal says.
            self.fruitless += 1;
            self.stage = Stage::Unasked;
            return;
        }
        // The checksum of less than everything would be that of another file.
        if self.found.is_none() && self.upload.is_whole && self.total == Some(ask.at) {
            self.take_sum(ask);
            self.found = self.in_order.checksum().or_else(|| self.sums.whole(ask.at).map(Checksum::crc32c));
        }
        if let (400, Some(expected), Some(found)) = (no.status, &self.expected, &self.found)
            && DigestVerdict::of(Some(expected), Some(found)) == DigestVerdict::Differs
        {
            let (expected, found) = (expected.clone(), found.clone());
            return self.fail(FetchError::Mismatch { expected, found });
        }
        let words =
            no.words.trim_ascii().split(|byte| matches!(byte, b'\r' | b'\n')).next().map(PeerText::new);
        let words = words.filter(|words| !words.is_empty() && !words.starts_with('<')); // an HTML page
        // What the server refused, it does not have.
        self.upload.doubtful = 0;
        self.recount();
        self.fail(FetchError::Status { status: no.status, location: no.location, words });
    }

    /// A request broke: asks the server what it received, or sends it again if that is allowed.
    fn try_again(&mut self, ask: &FileRequest, now: Time, why: &str) {
        self.fruitless += u32::from(ask.outcome_class != OutcomeClass::Unprocessed);
        let is_known = ask.purpose != RequestPurpose::Bytes || self.is_resumable_there();
        if self.is_fruitless() {
            self.fail(FetchError::Vanished(why.to_owned()));
        } else if !self.may_repeat(ask, now) {
            self.fail(always_refused(why));
        } else if ask.purpose == RequestPurpose::LastWord {
            self.stage = Stage::Comparing { asked: false };
        } else if is_known {
            self.stage = Stage::Unasked;
        } else if ask.may_repeat || ask.at == ask.from {
            self.upload.doubtful = 0;
            if let (Some(parts), Some(until)) = (&mut self.parts, ask.until) {
                parts.give_back(ask.from..until);
            }
        } else {
            let words = format!(
                "{why}, and the server does not report what it has of an upload, so it cannot be resumed"
            );
            self.fail(FetchError::Vanished(words));
        }
    }

    /// Takes the checksum of what a request has sent, if it has sent all of it.
    fn take_sum(&mut self, ask: &FileRequest) {
        let Some(sending) = &ask.sending else { return };
        let sending = sending.borrow();
        let Some(sum) = sending.sum() else { return };
        let crc = sum.checksum().filter(|_| self.options.checksum.combines());
        if let Some(crc) = crc.and_then(|crc| crc.bytes().try_into().ok()) {
            self.sums.add(ask.from..ask.until.unwrap_or(ask.from), u32::from_be_bytes(crc));
        } else if self.upload.is_whole {
            self.in_order.clone_from(sum);
        }
    }

    /// Checks that the file has not changed: only then are all the sent bytes of one version.
    pub(super) fn check_source(&self) -> Result<(), FetchError> {
        if self.upload.source.is_unchanged() { Ok(()) } else { Err(FetchError::SourceChanged) }
    }
}

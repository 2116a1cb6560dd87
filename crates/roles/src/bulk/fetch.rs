//! One file in transfer: what is requested, what an answer means, when it is complete.

mod answer;
mod error;
mod fields;
mod file_request;
mod put;
mod upload;

use std::time::{Duration, Instant};

use h2lab_base::text::made_printable;
use h2lab_base::units::Time;
use h2lab_model::bulk::{
    DigestRecord, DigestVerdict, PartRecord, TransferDirection, TransferOutcome, TransferRecord,
};
use h2lab_transfer::{Algorithm, Checksum, Digest, Extents, Journal, Parts, Sums};

pub use error::FetchError;
use fields::Version;
pub use file_request::{FileRequest, OutcomeClass, RequestPurpose};
use upload::Upload;

use super::source::FileLocation;
use h2lab_net::storage::{Chunk, FileSink, READ, Sink, SinkError, disk_wait};

/// The first part of a file of unknown length, if it is to be fetched in parts: large enough to be worth a request and small
/// enough to leave something for the other requests.
const FIRST_PART: u64 = 16 << 20;

/// The default number of parts per worker. The last parts even out differences in speed between workers; in HTTP/1.1
/// each part costs an idle round trip.
const PARTS_PER_WORKER: u64 = 4;

/// The first pause before a retry, if the server was busy or refused the request, or if another client was writing the
/// upload.
const PAUSE: Duration = Duration::from_millis(100);

/// After so many pauses, 12.7 s in all, the server's refusal is final.
const MOST_PUT_OFF: u32 = 7;

/// How often each worker may retry before any of them brings a byte.
const MAX_FRUITLESS: u32 = 5;

const USER_AGENT: &str = concat!("h2lab/", env!("CARGO_PKG_VERSION"));

/// How a file is fetched or sent; the same for all of a run.
#[derive(Debug, Clone, Copy)]
pub struct TransferOptions {
    /// Which way it goes.
    pub direction: TransferDirection,
    /// Requests that may be in flight at a time, over all connections.
    pub workers: u32,
    /// Bytes of a part; `None` leaves it to the file's length and the workers.
    pub part: Option<u64>,
    /// The algorithm of the checksum.
    pub checksum: Algorithm,
    /// Whether the result of an earlier run is resumed.
    pub resume: bool,
    /// How much of an upload is passed to an engine at a time.
    pub chunk: Chunk,
    /// Whether checksums may follow the bytes as trailers: in HTTP/1.1 they would replace Content-Length.
    pub trailers: bool,
}

impl Default for TransferOptions {
    /// Fetches each file in one request: without parts, resumption or checksums.
    fn default() -> Self {
        Self {
            direction: TransferDirection::Get,
            workers: 1,
            part: None,
            checksum: Algorithm::None,
            resume: false,
            chunk: Chunk::default(),
            trailers: false,
        }
    }
}

/// The progress of a file.
#[derive(Debug, Default)]
enum Stage {
    /// Nothing was requested.
    #[default]
    Unasked,
    /// One request is in flight. Its answer says what the server has, of the file or of an upload.
    Probing,
    /// Its parts are being assigned to workers.
    Dealing,
    /// Every byte has arrived, and the server is to declare its checksum, or to check ours.
    Comparing {
        /// Whether the server was asked.
        asked: bool,
    },
    /// It is over.
    Over(Result<(), FetchError>),
}

/// One file.
#[derive(Debug, Default)]
pub struct Fetch {
    /// As given.
    pub url: String,
    /// Path and query.
    pub path: String,
    /// Where it goes, or comes from.
    pub place: FileLocation,
    options: TransferOptions,
    stage: Stage,
    sink: Sink,
    /// The length of the whole, if it is known.
    pub total: Option<u64>,
    /// The length that was asked for, if one was.
    wanted: Option<u64>,
    /// What distinguishes this version of the file from others, and which bytes are stored here: by an earlier run, or
    /// later by this one.
    journal: Option<Journal>,
    /// The bytes moved by requests that have ended.
    extents: Extents,
    /// The version in the first answer, possibly weak. Without a strong validator, only this distinguishes answers of
    /// different versions within a run.
    version: Option<Version>,
    /// The server declares no version, so ranges could be of different ones: the file comes in one answer.
    needs_the_whole: bool,
    parts: Option<Parts>,
    /// The size of its parts; `None` if it has no parts.
    pub part_bytes: Option<u64>,
    sums: Sums,
    /// The checksum of the bytes from the first on, as long as they arrive in order.
    in_order: Digest,
    /// The server's checksum.
    expected: Option<Checksum>,
    /// Why the server's checksum is unknown although it was asked for, if more is known than that it is missing.
    doubt: Option<String>,
    /// Our checksum.
    found: Option<Checksum>,
    /// Bytes that an earlier run had left here.
    pub held_before: u64,
    /// Requests that carried it, in the order in which they ended.
    log: Vec<PartRecord>,
    /// What arrived is kept, and can be resumed.
    is_resumable: bool,
    /// It is complete, and its record and figures were taken.
    pub is_put_away: bool,
    under_way: u32,
    /// No request is sent before this.
    not_before: Time,
    /// How often in a row it was put off.
    pauses: u32,
    /// Requests in a row that the server did not process.
    unprocessed: u32,
    /// Requests in a row that moved no byte.
    fruitless: u32,
    /// What else is known of an upload.
    upload: Upload,
    /// Figures of this run.
    pub figures: FileFigures,
}

/// What the transfer of a file took.
#[derive(Debug, Clone, Copy)]
pub struct FileFigures {
    /// Bytes that came, or went, in this run.
    pub arrived: u64,
    /// Blocks that were read of a file, to send or to sum them.
    pub reads: u64,
    /// Pieces that were written to a file.
    pub writes: u64,
    /// The time that its disk took while it was transferred.
    pub disk_wait: Duration,
    /// When the first request was sent; [`Time::NEVER`] if none was.
    pub began: Time,
    /// When the first byte of it came.
    pub first_byte: Time,
    /// When it was over: if it is kept, with its last byte synced.
    pub ended: Time,
}

impl Default for FileFigures {
    fn default() -> Self {
        let never = Time::NEVER;
        let disk_wait = Duration::ZERO;
        Self { arrived: 0, reads: 0, writes: 0, disk_wait, began: never, first_byte: never, ended: never }
    }
}

impl Fetch {
    /// The file at `url`, whose path and query are `path`, to be moved to `place`.
    pub fn new(url: String, path: String, place: FileLocation, options: TransferOptions) -> Self {
        let in_order = Digest::new(options.checksum);
        Self { url, path, place, options, in_order, ..Self::default() }
    }

    /// It must have this length.
    pub(super) fn with_bytes(self, wanted: Option<u64>) -> Self {
        Self { wanted, ..self }
    }

    /// How it ended; `None` while it is in transfer.
    pub const fn outcome(&self) -> Option<&Result<(), FetchError>> {
        match &self.stage {
            Stage::Over(outcome) => Some(outcome),
            _ => None,
        }
    }

    /// Its record for reports.
    pub fn record(&self) -> TransferRecord {
        let outcome = match self.outcome() {
            Some(Ok(())) => TransferOutcome::Complete,
            Some(Err(error @ (FetchError::Deadline | FetchError::Interrupted))) => {
                TransferOutcome::Partial { why: error.to_string() }
            }
            // The error may quote validators of the server.
            Some(Err(error)) => TransferOutcome::Failed {
                why: made_printable(&error.to_string()).into_owned(),
                fault: error.fault(),
            },
            None => TransferOutcome::Partial { why: "never started".to_owned() },
        };
        let direction = self.options.direction;
        let is_gone = direction == TransferDirection::Get
            && matches!(self.outcome(), Some(Err(FetchError::Mismatch { .. })));
        TransferRecord {
            url: self.url.clone(),
            file: match &self.place {
                // A corrupt download was discarded; the source of an upload is still there.
                FileLocation::File(path) if !is_gone => Some(path.display().to_string()),
                _ => None,
            },
            direction,
            bytes: self.figures.arrived,
            held: self.held_before,
            total: self.total,
            outcome,
            started_at: self.figures.began,
            first_byte_at: self.figures.first_byte,
            ended_at: self.figures.ended,
            digest: DigestRecord::new(self.options.checksum, self.expected.clone(), self.found.clone()),
            parts: self.parts(),
        }
    }

    /// Why it is unknown whether the bytes are right, if there is more to say than that the server declared no checksum.
    pub fn doubt(&self) -> Option<&str> {
        self.doubt.as_deref()
    }

    /// The requests that carried it, in the order in which they were sent.
    pub fn parts(&self) -> Vec<PartRecord> {
        let mut parts = self.log.clone();
        parts.sort_by_key(|part| part.sent_at);
        parts
    }

    /// A request that carried some of it is over.
    pub fn log(&mut self, part: PartRecord) {
        self.log.push(part);
    }

    /// Whether the rest can be fetched by another run.
    pub const fn is_resumable(&self) -> bool {
        self.is_resumable
    }

    /// The next request; `None` if there is none now. `index` is the file's place in the run.
    pub fn next_ask(&mut self, index: usize) -> Option<FileRequest> {
        let ask = match self.stage {
            Stage::Unasked => {
                if let Err(error) = self.open(index) {
                    self.stage = Stage::Over(Err(error));
                    return None;
                }
                self.stage = Stage::Probing;
                match self.options.direction {
                    TransferDirection::Get => self.first_ask(index),
                    TransferDirection::Put => self.question(index),
                }
            }
            Stage::Dealing => {
                let range = self.parts.as_mut()?.next()?;
                let ask = self.ask(index, range.start, Some(range.end));
                match self.options.direction {
                    TransferDirection::Get => ask,
                    TransferDirection::Put => self.load(ask),
                }
            }
            Stage::Comparing { asked: false } => {
                self.stage = Stage::Comparing { asked: true };
                FileRequest::new(index, RequestPurpose::LastWord)
            }
            Stage::Probing | Stage::Comparing { asked: true } | Stage::Over(_) => return None,
        };
        self.under_way += 1;
        Some(ask)
    }

    /// Whether its next request must still wait.
    pub fn is_put_off(&self, now: Time) -> bool {
        now < self.not_before
    }

    /// Whether the first request is in flight, whose answer says what the server has.
    pub const fn is_probing(&self) -> bool {
        matches!(self.stage, Stage::Probing)
    }

    /// Whether [`Fetch::next_ask`] has a request now.
    pub fn waits(&self) -> bool {
        match &self.stage {
            Stage::Unasked | Stage::Comparing { asked: false } => true,
            Stage::Dealing => self.parts.as_ref().is_some_and(|parts| !parts.is_empty()),
            Stage::Probing | Stage::Comparing { asked: true } | Stage::Over(_) => false,
        }
    }

    fn ask(&self, fetch: usize, from: u64, until: Option<u64>) -> FileRequest {
        FileRequest {
            from,
            until,
            has_range: from > 0 || until.is_some(),
            at: from,
            sum: self.options.checksum.combines().then(|| Digest::new(self.options.checksum)),
            ..FileRequest::new(fetch, RequestPurpose::Bytes)
        }
    }

    /// Opens its sink, or its source.
    fn open(&mut self, index: usize) -> Result<(), FetchError> {
        match self.options.direction {
            TransferDirection::Get => Ok(self.open_sink()?),
            TransferDirection::Put => Ok(self.open_source(index)?),
        }
    }

    /// Opens its sink, and resumes what is there.
    fn open_sink(&mut self) -> Result<(), SinkError> {
        let FileLocation::File(path) = &self.place else { return Ok(()) };
        if self.sink.is_kept() {
            return Ok(()); // the first request is repeated: it was not answered
        }
        let (file, journal) = FileSink::open(path, self.options.resume)?;
        if let Some(journal) = journal.as_ref().filter(|journal| !journal.is_of(&self.url)) {
            let why = format!("it is of {}, and not of {}", journal.url, self.url);
            return Err(SinkError::Journal { path: path.clone(), why });
        }
        self.sink = Sink::File(Box::new(file));
        if let Some(journal) = journal {
            self.total = Some(journal.total);
            self.extents = journal.extents.clone();
            self.held_before = self.extents.held();
            // The last run may have used another algorithm.
            let is_asked = |declared: &Checksum| declared.algorithm() == self.options.checksum;
            self.expected = journal.checksum.clone().filter(is_asked);
            self.journal = Some(journal);
        }
        Ok(())
    }

    /// The first request; its answer says what the server has.
    fn first_ask(&mut self, index: usize) -> FileRequest {
        if let Some(total) = self.total {
            self.deal(total, &Extents::new());
            let range = self.parts.as_mut().and_then(Iterator::next);
            // If the file is already complete here, only its last byte is requested, to check that the server has the
            // same file.
            let range = range.unwrap_or(total.saturating_sub(1)..total);
            return self.ask(index, range.start, Some(range.end));
        }
        let takes_parts = self.options.workers > 1 && !self.needs_the_whole;
        let until = takes_parts.then(|| self.options.part.unwrap_or(FIRST_PART));
        self.ask(index, 0, until)
    }

    /// Divides what is missing into parts, except for what is in flight.
    fn deal(&mut self, total: u64, under_way: &Extents) {
        let mut taken = self.extents.clone();
        for range in under_way.iter() {
            taken.insert(range);
        }
        let left = total - taken.held().min(total);
        let workers = self.options.workers;
        let share = left.div_ceil(u64::from(workers) * PARTS_PER_WORKER).clamp(FIRST_PART, 1 << 30);
        let part = match (self.options.part, workers) {
            (_, 1) => u64::MAX,
            (Some(part), _) => part,
            (None, _) => share,
        };
        let parts = Parts::new(taken.missing(total).collect::<Vec<_>>(), part, workers);
        self.part_bytes = (workers > 1).then(|| parts.part_bytes());
        self.parts = Some(parts);
    }

    /// The method of `ask` and the fields of its request, lower-case names.
    pub fn request(&self, ask: &FileRequest) -> (&'static str, Vec<(&'static str, String)>) {
        if self.options.direction == TransferDirection::Put {
            return self.request_to_put(ask);
        }
        let mut fields = vec![
            ("user-agent", USER_AGENT.to_owned()),
            ("accept", "*/*".to_owned()),
            // Ranges and checksums refer to the stored bytes.
            ("accept-encoding", "identity".to_owned()),
        ];
        if let Some(want) = self.options.checksum.want() {
            fields.push(("want-repr-digest", want));
        }
        if ask.purpose == RequestPurpose::LastWord {
            return ("HEAD", fields);
        }
        if self.options.trailers && self.options.workers == 1 {
            fields.push(("te", "trailers".to_owned()));
        }
        if ask.has_range {
            let (from, until) = (ask.from, ask.until);
            let last = until.map_or_else(String::new, |until| (until - 1).to_string());
            fields.push(("range", format!("bytes={from}-{last}")));
            if let Some(journal) = &self.journal {
                fields.push(("if-range", journal.validator.if_range().to_owned()));
            }
        }
        ("GET", fields)
    }

    /// Bytes of an answer have come.
    #[inline]
    pub fn store(&mut self, ask: &mut FileRequest, data: &[u8]) {
        if let Some(no) = &mut ask.no {
            no.receive(data);
        }
        let is_get = self.options.direction == TransferDirection::Get;
        if !is_get || !ask.is_accepted || !matches!(self.stage, Stage::Dealing) {
            return; // the body of an error, or of the response to an upload
        }
        let end = ask.at + data.len() as u64;
        if ask.until.is_some_and(|until| end > until) {
            return self.fail(FetchError::Contradiction("more bytes than it announced".to_owned()));
        }
        let began = self.sink.is_kept().then(Instant::now);
        if let Err(error) = self.sink.write_at(ask.at, data) {
            return self.fail(error.into());
        }
        self.figures.disk_wait +=
            began.map_or(Duration::ZERO, |began| disk_wait(began.elapsed(), data.len()));
        match &mut ask.sum {
            Some(sum) => sum.update(data),
            None if ask.at == self.in_order.bytes() => self.in_order.update(data),
            None => {}
        }
        ask.at = end;
        (self.fruitless, self.pauses) = (0, 0);
        self.figures.arrived += data.len() as u64;
        self.figures.writes += u64::from(self.sink.is_kept());
    }

    /// A request has ended. `why` says why its answer is incomplete; `None` if it is complete.
    pub fn ended(&mut self, ask: &mut FileRequest, now: Time, why: Option<&str>) {
        self.under_way -= 1;
        if self.options.direction == TransferDirection::Put {
            return self.ended_to_put(ask, now, why);
        }
        self.record_bytes(ask);
        let is_last_word = ask.purpose == RequestPurpose::LastWord;
        if let Stage::Over(_) = self.stage {
            if !is_last_word {
                self.figures.ended = now;
            }
            return;
        }
        let is_held_against = ask.outcome_class != OutcomeClass::Unprocessed;
        let may_repeat = self.may_repeat(ask, now);
        if is_last_word {
            let held_against = why.filter(|_| is_held_against || !may_repeat);
            return self.had_the_last_word(ask, now, held_against, why.is_some() && may_repeat);
        }
        if ask.outcome_class == OutcomeClass::Idle {
            self.stage = Stage::Unasked;
            return;
        }
        let is_short = ask.until.map_or(why.is_some(), |until| ask.at < until);
        self.fruitless += u32::from(is_short && is_held_against && ask.at == ask.from);
        let is_lost =
            ask.is_accepted && (ask.until.is_none() || (self.journal.is_none() && ask.at > ask.from));
        let words = why.unwrap_or("the server sends nothing");
        if is_short && self.is_fruitless() {
            self.fail(FetchError::Vanished(words.to_owned()));
        } else if is_short && !may_repeat {
            self.fail(always_refused(words));
        } else if is_short && is_lost {
            // It is unknown whether the rest would be of the same version of the file, or even what is missing.
            let words = format!("{words}, and the server sends no ETag, so it cannot be resumed");
            self.fail(FetchError::Vanished(words));
        } else if is_short {
            self.ask_again(ask);
        } else if ask.until.is_none() {
            self.total = Some(ask.at);
        }
        self.conclude(now);
    }

    /// The request for the checksum is over.
    fn had_the_last_word(&mut self, ask: &FileRequest, now: Time, why: Option<&str>, is_broken: bool) {
        self.fruitless += u32::from(why.is_some());
        if ask.outcome_class == OutcomeClass::Silent {
            self.note_doubt("the server does not respond");
        } else if is_broken && self.fruitless <= MAX_FRUITLESS {
            self.stage = Stage::Comparing { asked: false };
            return;
        } else if let Some(why) = why {
            self.note_doubt(why);
        }
        self.compare(now);
    }

    /// Whether a request that has ended may be sent again. One that the server did not process does not count as a
    /// failure: a GOAWAY leaves one of each worker unprocessed. If the server refuses more in a row, requests are put
    /// off; after the last pause there are no more.
    fn may_repeat(&mut self, ask: &FileRequest, now: Time) -> bool {
        if ask.outcome_class != OutcomeClass::Unprocessed {
            self.unprocessed = 0;
            return true;
        }
        self.unprocessed = self.unprocessed.saturating_add(1);
        self.unprocessed <= MAX_FRUITLESS.saturating_mul(self.options.workers) || self.put_off(now)
    }

    /// Retries after a pause, unless the limit is reached: each pause is twice as long as the one before.
    fn put_off(&mut self, now: Time) -> bool {
        if self.not_before > now {
            return true; // one pause for the requests of all workers that failed for the same reason
        }
        self.pauses += 1;
        self.not_before = now + PAUSE * (1 << (self.pauses - 1).min(MOST_PUT_OFF));
        self.pauses <= MOST_PUT_OFF
    }

    /// Whether all workers together have retried too often without a byte.
    const fn is_fruitless(&self) -> bool {
        self.fruitless > MAX_FRUITLESS.saturating_mul(self.options.workers)
    }

    /// The rest of a request is to be requested again.
    fn ask_again(&mut self, ask: &FileRequest) {
        if matches!(self.stage, Stage::Probing) {
            self.stage = Stage::Unasked;
        } else if let (Some(parts), Some(until)) = (&mut self.parts, ask.until) {
            parts.give_back(ask.at..until);
        }
    }

    /// Records what an ask has brought.
    fn record_bytes(&mut self, ask: &FileRequest) {
        let range = ask.arrived();
        self.extents.insert(range.clone());
        let sum = ask.sum.as_ref().and_then(Digest::checksum);
        if let Some(crc) = sum.and_then(|sum| sum.bytes().try_into().ok()) {
            self.sums.add(range, u32::from_be_bytes(crc));
        }
    }

    /// Concludes the transfer if everything has arrived.
    fn conclude(&mut self, now: Time) {
        let Some(total) = self.total else { return };
        if !matches!(self.stage, Stage::Dealing) || self.under_way > 0 || !self.extents.is_complete(total) {
            return;
        }
        if let Some(wanted) = self.wanted.filter(|&wanted| wanted != total) {
            return self.fail(FetchError::OtherLength { wanted, sent: total });
        }
        let began = Instant::now();
        // This must come before the server learns that it has everything: after that it has a file, possibly made of
        // two versions of ours.
        match self.check_source().and_then(|()| self.sum(total)) {
            Ok(found) => self.found = found,
            Err(error) => return self.fail(error),
        }
        self.stage = Stage::Comparing { asked: false };
        let is_get = self.options.direction == TransferDirection::Get;
        if is_get && (self.found.is_none() || self.expected.is_some()) {
            self.compare(now + began.elapsed());
        }
    }

    /// The checksum of what is here; `None` if nothing is summed, or it cannot be: discarded bytes came out of order.
    fn sum(&mut self, total: u64) -> Result<Option<Checksum>, FetchError> {
        let of_parts = || self.sums.whole(total).map(Checksum::crc32c);
        let in_order = || self.in_order.checksum().filter(|_| self.in_order.bytes() == total);
        let algorithm = self.options.checksum;
        let found = match algorithm {
            Algorithm::None => return Ok(None),
            Algorithm::Crc32c => of_parts(),
            Algorithm::Sha256 | Algorithm::Sha512 => in_order(),
        };
        match found {
            Some(checksum) => Ok(Some(checksum)),
            // The bytes of an earlier run were not summed.
            None => {
                let is_file = self.sink.is_kept() || self.upload.source.is_file();
                self.figures.reads += if is_file { total.div_ceil(READ) } else { 0 };
                match self.options.direction {
                    TransferDirection::Get => Ok(self.sink.checksum(algorithm, total)?),
                    TransferDirection::Put => Ok(self.upload.source.checksum(algorithm)?),
                }
            }
        }
    }

    /// Everything is here, and the server has declared its checksum, or will not.
    fn compare(&mut self, now: Time) {
        let began = Instant::now();
        let total = self.total.unwrap_or(0);
        let verdict = DigestVerdict::of(self.expected.as_ref(), self.found.as_ref());
        match (&self.expected, &self.found) {
            (Some(expected), Some(found)) if verdict == DigestVerdict::Differs => {
                let (expected, found) = (expected.clone(), found.clone());
                self.sink.throw_away();
                self.stage = Stage::Over(Err(FetchError::Mismatch { expected, found }));
            }
            _ => {
                let finished = self.check_source().and_then(|()| Ok(self.sink.finish(total, true)?));
                self.stage = Stage::Over(finished);
                self.sink = Sink::Discard;
            }
        }
        // The sync may have taken long.
        self.figures.ended = now + began.elapsed();
    }

    /// No more requests are sent. A download that is complete and only waits for the server's checksum counts as
    /// complete. Whether an upload is complete, only the server can say.
    pub fn give_up(&mut self, why: FetchError, now: Time) {
        if matches!((&self.stage, self.options.direction), (Stage::Comparing { .. }, TransferDirection::Get))
        {
            self.note_doubt(&why.to_string());
            self.compare(now);
        } else {
            self.fail(why);
        }
    }

    /// It ends here. What has arrived is kept by [`Fetch::keep`] once no request of it is in flight.
    pub fn fail(&mut self, error: FetchError) {
        if self.outcome().is_none() {
            self.stage = Stage::Over(Err(error));
        }
    }

    /// The journal as if `under_way` were over.
    fn journal<'a>(&self, under_way: impl Iterator<Item = &'a FileRequest>) -> Option<Journal> {
        let mut journal = self.journal.clone()?;
        journal.extents = self.extents.clone();
        for ask in under_way {
            journal.extents.insert(ask.arrived());
        }
        journal.checksum.clone_from(&self.expected);
        Some(journal)
    }

    /// Saves in the background what has arrived, so that it survives the end of this process.
    pub fn save<'a>(&mut self, under_way: impl Iterator<Item = &'a FileRequest>) {
        if let Stage::Dealing = self.stage {
            let journal = self.journal(under_way).filter(|journal| !journal.extents.is_empty());
            self.sink.save(|| journal);
        }
    }

    /// Keeps what arrived of an incomplete file, if it can be resumed. Called when no request of the file is in flight
    /// any more.
    pub fn keep(&mut self) {
        if !matches!(self.stage, Stage::Over(Err(ref error)) if !matches!(error, FetchError::Mismatch { .. }))
        {
            return;
        }
        let is_as_it_was = !matches!(self.stage, Stage::Over(Err(FetchError::SourceChanged)));
        let has_some = self.held_before + self.figures.arrived > 0;
        self.is_resumable |= is_as_it_was && self.upload.is_kept() && has_some;
        // The sink is closed, so that this is done only once.
        let mut sink = std::mem::replace(&mut self.sink, Sink::Discard);
        match self.journal(std::iter::empty()) {
            Some(journal) => match sink.keep(&journal) {
                Ok(()) => self.is_resumable |= sink.is_kept() && !journal.extents.is_empty(),
                Err(error) => self.stage = Stage::Over(Err(error.into())),
            },
            None => sink.throw_away(),
        }
    }
}

/// The error of requests that the server did not process, however often they were made.
fn always_refused(why: &str) -> FetchError {
    FetchError::Vanished(format!("{why}, after every retry"))
}

#[cfg(test)]
mod tests;

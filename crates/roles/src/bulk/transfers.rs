//! All files of a run, and their requests in flight.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_model::bulk::{FrameFigures, IoFigures, Overflow, PartRecord, TransferDirection, TransferRecord};
use h2lab_model::record::{Fault, Outcome};
use h2lab_wire::connection::Request;
use h2lab_wire::trace::{FrameEvent, FrameKind};
use h2lab_wire::{Field, Fields, ResponseHead, StreamId};

use super::fetch::{Fetch, FetchError, FileRequest, OutcomeClass, RequestPurpose, TransferOptions};
use super::source::{FileLocation, Sending};
use crate::client::{Outgoing, RequestEnd, RequestObserver};

/// A file that is wanted.
#[derive(Debug, Clone)]
pub struct RequestedFile {
    /// As given.
    pub url: String,
    /// Path and query.
    pub path: String,
    /// Where it goes.
    pub place: FileLocation,
    /// The length that was asked for: a file of another one is a failure.
    pub bytes: Option<u64>,
}

/// A request in flight.
#[derive(Debug)]
struct UnderWay {
    ask: FileRequest,
    /// The slot of its connection, and its stream there.
    at: Option<(usize, StreamId)>,
    /// The index of its connection.
    connection: u32,
    sent_at: Time,
    first_byte_at: Time,
    /// When it last made progress; initially when it was made.
    received_at: Time,
    /// Body bytes sent but not counted until the response arrives.
    unconfirmed: u64,
}

/// A request that is no longer needed.
#[derive(Debug, PartialEq, Eq)]
pub struct Doomed {
    /// The slot of its connection.
    pub slot: usize,
    /// Its stream there.
    pub stream: StreamId,
    /// Whether it was cancelled for lack of progress.
    pub is_silent: bool,
}

/// Sums over completed files whose entries were removed (repeated mode).
#[derive(Debug, Clone, Copy, Default)]
struct Moved {
    held: u64,
    bytes: u64,
    reads: u64,
    writes: u64,
    disk_wait: Duration,
}

impl Moved {
    fn add(&mut self, fetch: &Fetch) {
        self.held = self.held.saturating_add(fetch.held_before);
        self.bytes = self.bytes.saturating_add(fetch.figures.arrived);
        self.reads += fetch.figures.reads;
        self.writes += fetch.figures.writes;
        self.disk_wait += fetch.figures.disk_wait;
    }
}

/// The files of a run.
#[derive(Debug, Default)]
pub struct Transfers {
    fetches: Vec<Fetch>,
    /// Those that are not over, in their order.
    open: VecDeque<usize>,
    /// What is fetched repeatedly, and how often it was begun.
    again: Option<(Vec<RequestedFile>, usize)>,
    options: TransferOptions,
    requests: Vec<Option<UnderWay>>,
    free: Vec<u32>,
    /// Indices of requests to cancel.
    doomed: Vec<u32>,
    /// Lower bound of the arrival time of what is being processed.
    now: Time,
    /// Last activity of each slot.
    last_received: Vec<Time>,
    /// Per slot: connection index, bytes the server had acknowledged, whether more is queued.
    taken: Vec<Option<(u32, u64, bool)>>,
    /// The last time at which a file made progress, or at which no request was in flight.
    awaited_since: Time,
    /// Bytes that came since the last [`Transfers::take_fresh`].
    fresh: u64,
    /// Bytes that were reported as sent and will be sent again, or never left us, since the last
    /// [`Transfers::take_fresh`].
    taken_back: u64,
    /// Records of completed files (repeated mode).
    over: Vec<TransferRecord>,
    /// Completed files beyond `listed`, summed.
    overflow: Overflow,
    /// How many complete files are kept one by one; `None` if files are moved once.
    listed: Option<usize>,
    /// Places of `fetches` that are free.
    vacant: Vec<usize>,
    /// What the files that are over have moved, and their reads, writes and time on disks.
    moved: Moved,
    /// Concurrent requests per connection: (current, maximum).
    at_a_time: BTreeMap<u32, (u32, u32)>,
    frames: FrameFigures,
    /// Connections that have carried data.
    carried: BTreeSet<u32>,
    /// The longest piece that an engine gave us, in bytes.
    largest: usize,
}

impl Transfers {
    /// All of `wanted` once. If `again` is given, repeatedly until [`Transfers::give_up`]: `again` is how many complete
    /// files are kept one by one. The others are summed, so that a long run does not fill the memory.
    pub fn new(wanted: Vec<RequestedFile>, options: TransferOptions, again: Option<usize>) -> Self {
        let fetch = |wanted: RequestedFile| {
            Fetch::new(wanted.url, wanted.path, wanted.place, options).with_bytes(wanted.bytes)
        };
        let (listed, again) = (again, again.map(|_| (wanted.clone(), 0)));
        let fetches: Vec<Fetch> =
            if again.is_some() { Vec::new() } else { wanted.into_iter().map(fetch).collect() };
        Self { open: (0..fetches.len()).collect(), fetches, again, options, listed, ..Self::default() }
    }

    /// The files, in the order in which they were begun. If files are moved repeatedly, the complete ones are not among
    /// them: see [`Transfers::complete`].
    pub fn fetches(&self) -> &[Fetch] {
        &self.fetches
    }

    /// If files are moved repeatedly: the complete ones that are kept, and the sum of the others.
    pub fn complete(&self) -> (&[TransferRecord], &Overflow) {
        (&self.over, &self.overflow)
    }

    /// How many files were begun, and how many of them are over.
    pub fn count(&self) -> (u64, u64) {
        let gone = self.over.len() as u64 + self.overflow.files;
        let open = (self.fetches.len() - self.vacant.len()) as u64;
        let over = self.fetches.iter().filter(|fetch| fetch.outcome().is_some()).count() - self.vacant.len();
        (gone + open, gone + over as u64)
    }

    /// The most requests for bytes that a connection has had at a time.
    pub fn at_a_time(&self, connection: u32) -> u32 {
        self.at_a_time.get(&connection).map_or(0, |(_, most)| *most)
    }

    /// The time waited for disks; `None` if there was none.
    pub fn disk_wait(&self) -> Option<Duration> {
        let has_disk = self.fetches.iter().any(|fetch| matches!(fetch.place, FileLocation::File(_)));
        let open = self.fetches.iter().filter(|fetch| !fetch.is_put_away);
        let waits = open.map(|fetch| fetch.figures.disk_wait);
        has_disk.then(|| self.moved.disk_wait + waits.sum::<Duration>())
    }

    /// The files, when all is over.
    pub fn into_fetches(self) -> Vec<Fetch> {
        self.fetches.into_iter().filter(|fetch| !fetch.is_put_away).collect()
    }

    /// The frames that carried data.
    pub const fn frames(&self) -> FrameFigures {
        self.frames
    }

    /// The system calls, counted.
    pub fn io(&self) -> IoFigures {
        let open = || self.fetches.iter().filter(|fetch| !fetch.is_put_away);
        let sum = |of: fn(&Fetch) -> u64| open().map(of).sum::<u64>();
        let file_reads = self.moved.reads + sum(|fetch| fetch.figures.reads);
        let file_writes = self.moved.writes + sum(|fetch| fetch.figures.writes);
        IoFigures { file_reads, file_writes, largest_buffer: self.largest as u64, ..IoFigures::default() }
    }

    /// Bytes received, and the total as far as it is known.
    pub fn amount(&self) -> (u64, u64) {
        let here = |fetch: &Fetch| fetch.held_before + fetch.figures.arrived;
        let open = self.fetches.iter().filter(|fetch| !fetch.is_put_away);
        let amounts = open.map(|fetch| (here(fetch), fetch.total.unwrap_or(0).max(here(fetch))));
        // Lengths announced by servers may add up to anything.
        let gone = self.moved.held.saturating_add(self.moved.bytes);
        amounts.fold((gone, gone), |(a, b), (c, d)| (a.saturating_add(c), b.saturating_add(d)))
    }

    /// Whether nothing is left to be done.
    pub fn is_over(&self) -> bool {
        self.again.is_none() && self.open.is_empty() && !self.is_busy()
    }

    /// Whether a request is in flight.
    pub fn is_busy(&self) -> bool {
        self.requests.len() > self.free.len()
    }

    /// Whether there is something to ask now.
    pub fn waits(&self) -> bool {
        let is_due = |fetch: &Fetch| fetch.waits() && !fetch.is_put_off(self.now);
        self.may_begin_again() || self.open.iter().any(|&index| is_due(&self.fetches[index]))
    }

    /// Sets the time at which the events that follow arrived.
    pub const fn set_now(&mut self, now: Time) {
        self.now = now;
    }

    /// When a connection in this slot last moved bytes of a file; [`Time::ZERO`] if never.
    pub fn last_received(&self, slot: usize) -> Time {
        self.last_received.get(slot).copied().unwrap_or(Time::ZERO)
    }

    /// Something arrived for a request, or the engine took more of its body. The engine has room only for what the
    /// socket does not take.
    fn note_received(&mut self, number: u32) {
        let Some(Some(request)) = self.requests.get_mut(number as usize) else { return };
        request.received_at = request.received_at.max(self.now);
        let slot = request.at.map(|(slot, _)| slot);
        self.note_moved(slot);
    }

    /// Bytes moved over the connection in a slot.
    fn note_moved(&mut self, slot: Option<usize>) {
        self.awaited_since = self.awaited_since.max(self.now);
        let Some(slot) = slot else { return };
        if slot >= self.last_received.len() {
            self.last_received.resize(slot + 1, Time::ZERO);
        }
        self.last_received[slot] = self.now;
    }

    /// Records how much of what we sent over this connection the server has taken, and whether more is queued. While
    /// this grows, an upload makes progress, even if all of it has been in our socket for long. Bytes that were taken
    /// when nothing had been queued, such as the answer to a PING, are no upload.
    pub fn taken(&mut self, slot: usize, connection: u32, state: impl FnOnce() -> Option<(u64, bool)>) {
        if self.options.direction == TransferDirection::Get {
            return; // A GET has no body whose progress could be watched.
        }
        let Some((bytes, is_waiting)) = state() else { return };
        if slot >= self.taken.len() {
            self.taken.resize(slot + 1, None);
        }
        let before = self.taken[slot].replace((connection, bytes, is_waiting));
        if before.is_some_and(|(other, before, waited)| other == connection && before < bytes && waited) {
            self.note_moved(Some(slot));
        }
    }

    /// Which way the bytes go.
    pub const fn direction(&self) -> TransferDirection {
        self.options.direction
    }

    /// The error text for a silent server.
    pub const fn silence(&self) -> &'static str {
        match self.options.direction {
            TransferDirection::Get => "no data received",
            TransferDirection::Put => "the server accepted no data and sent no response",
        }
    }

    /// Ends the requests that received nothing for longer than `timeout`, if the server still responds otherwise: they
    /// are repeated. While anything arrives over its connection, no request counts as silent, since many servers send
    /// one stream after the other. The exception is a request that waits for a checksum: only its own answer counts.
    /// Returns how long nothing arrived at all, if that is too long: the server has gone.
    pub fn fail_silent(&mut self, timeout: Duration) -> Option<Duration> {
        if !self.is_busy() {
            self.awaited_since = self.now;
            return None;
        }
        let is_get = self.options.direction == TransferDirection::Get;
        let mut gone = None;
        for (number, request) in (0..).zip(&mut self.requests) {
            let Some(UnderWay { ask, at: Some((slot, _)), received_at, .. }) = request else { continue };
            let is_verified = ask.purpose == RequestPurpose::LastWord && is_get;
            let beside =
                self.last_received.get(*slot).copied().filter(|_| !is_verified).unwrap_or(Time::ZERO);
            let silence = self.now.since(beside.max(*received_at));
            if silence <= timeout || ask.outcome_class != OutcomeClass::Usual {
                continue;
            }
            if is_verified || *received_at < self.awaited_since {
                ask.outcome_class = OutcomeClass::Silent;
                self.doomed.push(number);
            } else {
                gone = Some(silence);
            }
        }
        // A repeated request has the full timeout again, and one that is refused again and again is never silent.
        let in_all = self.now.since(self.awaited_since);
        gone.or((in_all > timeout * 2).then_some(in_all))
    }

    /// Takes two counts: the bytes that arrived since the last call, and the bytes that were reported before but were
    /// not sent, or will be sent again.
    pub fn take_fresh(&mut self) -> (u64, u64) {
        let (fresh, back) = (std::mem::take(&mut self.fresh), std::mem::take(&mut self.taken_back));
        let both = fresh.min(back);
        (fresh - both, back - both)
    }

    /// `bytes` of this connection's requests have not left us: they are not counted as sent.
    pub fn take_back(&mut self, connection: u32, mut bytes: u64) {
        let is_there = |request: &&mut UnderWay| request.at.is_some() && request.connection == connection;
        for UnderWay { ask, .. } in self.requests.iter_mut().flatten().filter(is_there) {
            if ask.purpose == RequestPurpose::Bytes && self.options.direction == TransferDirection::Put {
                let behind = bytes.min(ask.moved());
                self.fetches[ask.fetch].left_behind(ask, behind);
                self.taken_back += self.fetches[ask.fetch].take_back();
                bytes -= behind;
            }
        }
    }

    /// The next request to make, under a free number; `None` if there is none now.
    pub fn next(&mut self, now: Time) -> Option<u32> {
        let ask = self.next_ask()?;
        let figures = &mut self.fetches[ask.fetch].figures;
        figures.began = figures.began.min(now);
        let number = self.free.pop().unwrap_or_else(|| {
            self.requests.push(None);
            self.requests.len() as u32 - 1
        });
        let never = Time::NEVER;
        let request = UnderWay {
            ask,
            at: None,
            connection: 0,
            sent_at: now,
            first_byte_at: never,
            received_at: now,
            unconfirmed: 0,
        };
        self.requests[number as usize] = Some(request);
        Some(number)
    }

    fn next_ask(&mut self) -> Option<FileRequest> {
        let mut at = 0;
        while let Some(&index) = self.open.get(at) {
            if self.fetches[index].is_put_off(self.now) {
                at += 1;
                continue;
            }
            if let Some(ask) = self.fetches[index].next_ask(index) {
                return Some(ask);
            }
            if self.fetches[index].outcome().is_some() && self.of_file(index).next().is_none() {
                self.close(index); // its first request could not even be made
            } else {
                at += 1;
            }
        }
        if !self.may_begin_again() {
            return None;
        }
        let index = self.begin_again()?;
        self.fetches[index].next_ask(index)
    }

    /// Whether the next of what is moved repeatedly may begin. A second copy of a file waits until a response says how large the
    /// first is: how many workers share that file must not depend on which of them is connected first.
    fn may_begin_again(&self) -> bool {
        self.again.as_ref().is_some_and(|(wanted, begun)| {
            let is_second = (wanted.len()..2 * wanted.len()).contains(begun);
            !is_second || !self.open.iter().any(|&index| self.fetches[index].is_probing())
        })
    }

    /// Begins the next of what is moved repeatedly; `None` if there is none.
    fn begin_again(&mut self) -> Option<usize> {
        let (wanted, begun) = self.again.as_mut()?;
        let RequestedFile { url, path, place, bytes } = wanted[*begun % wanted.len()].clone();
        *begun += 1;
        let fetch = Fetch::new(url, path, place, self.options).with_bytes(bytes);
        let index = match self.vacant.pop() {
            Some(index) => {
                self.fetches[index] = fetch;
                index
            }
            None => {
                self.fetches.push(fetch);
                self.fetches.len() - 1
            }
        };
        self.open.push_back(index);
        Some(index)
    }

    /// A request from [`Transfers::next`] was begun there, on the connection with this index.
    pub fn begun(&mut self, number: u32, slot: usize, connection: u32, stream: StreamId) {
        if let Some(Some(request)) = self.requests.get_mut(number as usize) {
            (request.at, request.connection) = (Some((slot, stream)), connection);
            if request.ask.purpose == RequestPurpose::Bytes {
                let (now, most) = self.at_a_time.entry(connection).or_default();
                *now += 1;
                *most = (*most).max(*now);
            }
        }
    }

    /// A request from [`Transfers::next`] could not be begun: it is put back.
    pub fn not_begun(&mut self, number: u32, now: Time) {
        self.over(number, now, None, true);
    }

    /// The next request that is no longer needed.
    pub fn next_doomed(&mut self) -> Option<Doomed> {
        while let Some(number) = self.doomed.pop() {
            if let Some(Some(UnderWay { at: Some((slot, stream)), ask, .. })) =
                self.requests.get(number as usize)
            {
                let is_silent = ask.outcome_class == OutcomeClass::Silent;
                return Some(Doomed { slot: *slot, stream: *stream, is_silent });
            }
        }
        None
    }

    /// Begins nothing new, and ends what is in flight for the given reason. If the reason is the server's fault, files
    /// that are moved repeatedly end with one that failed, even if none was in flight: the time was not over.
    pub fn give_up(&mut self, mut why: impl FnMut() -> FetchError) {
        for index in self.open.clone() {
            self.fetches[index].give_up(why(), self.now);
            self.close(index);
        }
        // If a file has failed, there is nothing to begin again.
        if why().fault() == Fault::Sut
            && let Some(index) = self.begin_again()
        {
            self.fetches[index].fail(why());
            self.close(index);
        }
        self.again = None;
    }

    /// Saves in the background what has arrived, so that it survives the end of this process.
    pub fn save(&mut self) {
        for &index in &self.open {
            let asks = self.requests.iter().flatten().map(|request| &request.ask);
            self.fetches[index].save(asks.filter(|ask| ask.fetch == index));
        }
    }

    /// No request is in flight any more: unfinished files are left so that they can be resumed.
    pub fn keep(&mut self) {
        self.fetches.iter_mut().for_each(Fetch::keep);
        self.open.clear();
    }

    /// Requests in flight of a file.
    fn of_file(&self, index: usize) -> impl Iterator<Item = u32> + '_ {
        let is_its = move |request: &&Option<UnderWay>| {
            request.as_ref().is_some_and(|request| request.ask.fetch == index)
        };
        (0..).zip(&self.requests).filter(move |(_, request)| is_its(request)).map(|(number, _)| number)
    }

    /// A request is over.
    fn over(&mut self, number: u32, now: Time, why: Option<&str>, is_unsent: bool) {
        let Some(mut request) = self.requests.get_mut(number as usize).and_then(Option::take) else { return };
        self.free.push(number);
        // The next request of this number is another one.
        self.doomed.retain(|doomed| *doomed != number);
        if is_unsent && request.ask.outcome_class == OutcomeClass::Usual {
            request.ask.outcome_class = OutcomeClass::Unprocessed;
        }
        let index = request.ask.fetch;
        let why = why.or(is_unsent.then_some("the connection accepted no request"));
        let why = if request.ask.outcome_class == OutcomeClass::Silent { Some(self.silence()) } else { why };
        if let Some((_, stream)) = request.at.filter(|_| request.ask.purpose == RequestPurpose::Bytes) {
            if let Some((open, _)) = self.at_a_time.get_mut(&request.connection) {
                *open -= 1;
            }
            self.fetches[index].log(PartRecord {
                connection: request.connection,
                stream,
                from: request.ask.arrived().start,
                bytes: request.ask.moved(),
                sent_at: request.sent_at,
                first_byte_at: request.first_byte_at,
                ended_at: now,
                is_complete: why.is_none(),
            });
        }
        self.fresh += std::mem::take(&mut request.unconfirmed);
        self.fetches[index].ended(&mut request.ask, now, why);
        self.taken_back += self.fetches[index].take_back();
        self.close(index);
    }

    /// Removes a file that is over from the list, and its requests from their connections.
    fn close(&mut self, index: usize) {
        match self.fetches[index].outcome() {
            None => return,
            // What failed once would fail again and again, as fast as the server answers.
            Some(Err(_)) => self.again = None,
            Some(Ok(())) => {}
        }
        let left: Vec<u32> = self.of_file(index).collect();
        if left.is_empty() {
            let before = self.open.len();
            self.open.retain(|open| *open != index);
            self.fetches[index].keep();
            if before > self.open.len() {
                self.put_away(index);
            }
        } else {
            self.doomed.extend(left);
        }
    }

    /// If files are moved repeatedly, a complete one leaves only its record; if there are many, not even that.
    fn put_away(&mut self, index: usize) {
        let fetch = &self.fetches[index];
        let Some(listed) = self.listed else { return };
        if !matches!(fetch.outcome(), Some(Ok(()))) || fetch.doubt().is_some() {
            return;
        }
        self.moved.add(fetch);
        let record = fetch.record();
        if self.over.len() < listed {
            self.over.push(record);
        } else {
            self.overflow.add(&record);
        }
        self.fetches[index].is_put_away = true;
        self.vacant.push(index);
    }
}

impl RequestObserver for Transfers {
    fn sent(&mut self, _: u32, _: Time, _: Duration) {}

    fn head(&mut self, number: u32, _: Time, head: &ResponseHead<'_>) {
        let Some(Some(request)) = self.requests.get_mut(number as usize) else { return };
        let index = request.ask.fetch;
        self.fetches[index].answered(&mut request.ask, head);
        self.taken_back += self.fetches[index].take_back();
        if request.ask.outcome_class == OutcomeClass::Idle {
            self.doomed.push(number);
        }
        self.note_received(number);
        self.close(index);
    }

    #[inline]
    fn body(&mut self, number: u32, data: &[u8]) {
        let Some(Some(UnderWay { ask, first_byte_at, .. })) = self.requests.get_mut(number as usize) else {
            return;
        };
        let fetch = &mut self.fetches[ask.fetch];
        let before = fetch.figures.arrived;
        fetch.store(ask, data);
        let fresh = fetch.figures.arrived - before; // Bytes of an error response do not count.
        if fresh > 0 && !first_byte_at.happened() {
            *first_byte_at = self.now;
            fetch.figures.first_byte = fetch.figures.first_byte.min(self.now);
        }
        self.fresh += fresh;
        self.largest = self.largest.max(data.len());
        let over = fetch.outcome().is_some().then_some(ask.fetch);
        self.note_received(number);
        if let Some(index) = over {
            self.close(index);
        }
    }

    fn left_behind(&mut self, connection: u32, bytes: u64) {
        self.take_back(connection, bytes);
    }

    fn body_sent(&mut self, number: u32, at: Time, bytes: usize) {
        let Some(Some(request)) = self.requests.get_mut(number as usize) else { return };
        request.first_byte_at = request.first_byte_at.min(at);
        self.fetches[request.ask.fetch].sent(&mut request.ask, at, bytes as u64);
        request.unconfirmed = u64::from(!request.ask.awaits_bytes());
        self.fresh += bytes as u64 - request.unconfirmed;
        self.largest = self.largest.max(bytes);
        self.note_received(number);
    }

    fn body_ran_dry(&mut self, request: u32) {
        let Some(Some(UnderWay { ask, .. })) = self.requests.get(request as usize) else { return };
        let index = ask.fetch;
        self.fetches[index].ran_dry(ask);
        self.close(index);
    }

    fn trailers(&mut self, request: u32, fields: Fields<'_>) {
        let Some(Some(UnderWay { ask, .. })) = self.requests.get(request as usize) else { return };
        self.fetches[ask.fetch].trailed(ask, fields);
    }

    fn ended(&mut self, request: u32, at: Time, fate: RequestEnd) {
        let why = match fate {
            RequestEnd::Complete => None,
            RequestEnd::Unprocessed => Some("the server processed no request"),
            RequestEnd::Unanswered { .. } => Some("the server closed the connection without a response"),
            RequestEnd::Failed { outcome, .. } => Some(words(outcome)),
        };
        if let Some(Some(UnderWay { ask, .. })) = self.requests.get_mut(request as usize) {
            ask.may_repeat = matches!(fate, RequestEnd::Unprocessed | RequestEnd::Unanswered { .. });
        }
        self.over(request, at, why, fate == RequestEnd::Unprocessed);
    }

    fn frame(&mut self, event: FrameEvent) {
        match event.kind {
            FrameKind::DATA => {
                self.carried.insert(event.connection);
            }
            // The first one of a connection enlarges its window, and returns no credit.
            FrameKind::WINDOW_UPDATE
                if event.stream == StreamId::CONNECTION && !self.carried.contains(&event.connection) =>
            {
                return;
            }
            _ => {}
        }
        self.frames.see(&event, self.options.direction.of_data());
    }
}

/// Why a request failed, as text for people.
const fn words(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Reset => "the server reset the stream",
        Outcome::GoAway => "the server closed the connection midway",
        Outcome::Protocol => "the server violated the protocol",
        Outcome::Closed => "the connection broke",
        Outcome::Cancelled | Outcome::Unfinished => "it was cancelled",
        _ => "the connection failed",
    }
}

/// The heads of requests for files, and their bodies.
#[derive(Debug)]
pub struct Outbox<'a> {
    authority: &'a str,
    /// Further fields of each request.
    fields: &'a [(String, String)],
    /// The head of the request that is being begun.
    head: Head,
    /// The bodies that are being sent, by the number of their request.
    bodies: Vec<Option<Rc<RefCell<Sending>>>>,
}

#[derive(Debug, Default)]
struct Head {
    method: &'static str,
    path: String,
    fields: Vec<(&'static str, String)>,
    body_length: Option<u64>,
}

impl<'a> Outbox<'a> {
    /// For requests to `authority`, each with these further fields, which replace ours of the same name; `host`
    /// replaces the authority.
    pub fn new(authority: &'a str, fields: &'a [(String, String)]) -> Self {
        let host = fields.iter().find(|(name, _)| name == "host").map(|(_, value)| value.as_str());
        Self { authority: host.unwrap_or(authority), fields, head: Head::default(), bodies: Vec::new() }
    }

    /// Sets the request to begin next: the one of `work` with this number.
    pub fn prepare(&mut self, work: &Transfers, number: u32) {
        let Some(Some(UnderWay { ask, .. })) = work.requests.get(number as usize) else { return };
        let fetch = &work.fetches[ask.fetch];
        let (method, fields) = fetch.request(ask);
        let left = ask.sending.as_ref().map(|sending| sending.borrow().left());
        let body_length = left.or((method == "PUT").then_some(0));
        self.head = Head { method, path: fetch.path.clone(), fields, body_length };
        let number = number as usize;
        if self.bodies.len() <= number {
            self.bodies.resize(number + 1, None);
        }
        self.bodies[number].clone_from(&ask.sending);
    }
}

impl Outgoing for Outbox<'_> {
    fn with_head<T>(&self, _: u64, show: impl FnOnce(&Request<'_>) -> T) -> T {
        let Head { method, path, fields, body_length } = &self.head;
        let given = |name: &str| self.fields.iter().any(|(given, _)| given == name);
        let own = fields.iter().filter(|(name, _)| !given(name)).map(|(name, value)| (*name, value));
        let more = self.fields.iter().filter(|(name, _)| name != "host");
        let more = more.map(|(name, value)| (name.as_str(), value));
        let fields: Vec<Field<'_>> = own.chain(more).map(|(name, value)| Field::new(name, value)).collect();
        show(&Request {
            method,
            authority: self.authority,
            path,
            fields: &fields,
            body_length: *body_length,
            end_stream: body_length.is_none_or(|length| length == 0),
        })
    }

    fn with_piece<T>(&self, number: u64, left: u64, show: impl FnOnce(&[u8], bool) -> T) -> T {
        match self.bodies.get(number as usize) {
            Some(Some(sending)) => sending.borrow_mut().show(left, show),
            _ => show(&[], true),
        }
    }

    fn has_trailers(&self, number: u64) -> bool {
        let sending = self.bodies.get(number as usize).and_then(Option::as_ref);
        sending.is_some_and(|sending| sending.borrow().has_trailer())
    }

    fn with_trailers<T>(&self, number: u64, show: impl FnOnce(&[Field<'_>]) -> T) -> T {
        match self.bodies.get(number as usize) {
            Some(Some(sending)) => sending.borrow().show_trailers(show),
            _ => show(&[]),
        }
    }
}

#[cfg(test)]
mod tests;

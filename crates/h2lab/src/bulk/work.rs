//! All files of a run, and the requests that are under way for them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use h2lab_core::bulk::{FrameFigures, IoFigures, PartRecord, TransferDirection};
use h2lab_core::record::Outcome;
use h2lab_core::trace::FrameEvent;
use h2lab_core::units::Time;
use h2lab_core::wire::connection::Request;
use h2lab_core::wire::{Field, Fields, ResponseHead, StreamId};

use super::fetch::{Ask, Errand, Fetch, FetchError, Manner, Place};
use super::source::Sending;
use crate::client::{Exchange, Fate, Outgoing};

/// A file that is wanted.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// As given.
    pub url: String,
    /// Path and query.
    pub path: String,
    /// Where it goes.
    pub place: Place,
}

/// A request under way.
#[derive(Debug)]
struct UnderWay {
    ask: Ask,
    /// The seat of its connection, and its stream there.
    at: Option<(usize, StreamId)>,
    /// The index of its connection.
    connection: u32,
    sent_at: Time,
    first_byte_at: Time,
    /// Bytes of what it sends that count only when its answer is there: the last one, so that time ends with that.
    unconfirmed: u64,
}

/// The files of a run.
#[derive(Debug)]
pub struct Work {
    fetches: Vec<Fetch>,
    /// Those that are not over, in their order.
    open: VecDeque<usize>,
    /// What is fetched over and over, and how often it was begun.
    again: Option<(Vec<Wanted>, usize)>,
    manner: Manner,
    requests: Vec<Option<UnderWay>>,
    free: Vec<u32>,
    /// Requests whose files are over.
    doomed: Vec<u32>,
    /// Bytes that came since they were last asked for.
    fresh: u64,
    frames: FrameFigures,
    /// The longest piece that an engine gave us, in bytes.
    largest: usize,
}

impl Work {
    /// All of `wanted` once, or `again` and again until [`Work::stop_beginning`].
    pub fn new(wanted: Vec<Wanted>, manner: Manner, again: bool) -> Self {
        let fetch = |wanted: Wanted| Fetch::new(wanted.url, wanted.path, wanted.place, manner);
        let again = again.then(|| (wanted.clone(), 0));
        let fetches: Vec<Fetch> =
            if again.is_some() { Vec::new() } else { wanted.into_iter().map(fetch).collect() };
        Self {
            open: (0..fetches.len()).collect(),
            fetches,
            again,
            manner,
            requests: Vec::new(),
            free: Vec::new(),
            doomed: Vec::new(),
            fresh: 0,
            frames: FrameFigures::default(),
            largest: 0,
        }
    }

    /// The files, in the order in which they were begun.
    pub fn fetches(&self) -> &[Fetch] {
        &self.fetches
    }

    /// The files, when all is over.
    pub fn into_fetches(self) -> Vec<Fetch> {
        self.fetches
    }

    /// The frames that carried data.
    pub const fn frames(&self) -> FrameFigures {
        self.frames
    }

    /// What was asked of the kernel.
    pub fn io(&self) -> IoFigures {
        let pieces = self.fetches.iter().map(|fetch| fetch.figures.pieces).sum();
        let (file_reads, file_writes) = match self.manner.direction {
            TransferDirection::Get => (0, pieces),
            TransferDirection::Put => (pieces, 0),
        };
        IoFigures { file_reads, file_writes, largest_buffer: self.largest as u64, ..IoFigures::default() }
    }

    /// Bytes that are here, and that there will be as far as is known.
    pub fn amount(&self) -> (u64, u64) {
        let here = |fetch: &Fetch| fetch.held_before() + fetch.figures.arrived;
        let amounts =
            self.fetches.iter().map(|fetch| (here(fetch), fetch.total().unwrap_or(0).max(here(fetch))));
        amounts.fold((0, 0), |(a, b), (c, d)| (a + c, b + d))
    }

    /// Whether nothing is left to be done.
    pub fn is_over(&self) -> bool {
        self.again.is_none() && self.open.is_empty() && !self.is_busy()
    }

    /// Whether a request is under way.
    fn is_busy(&self) -> bool {
        self.requests.len() > self.free.len()
    }

    /// Whether bytes should be moving.
    pub fn awaits_bytes(&self) -> bool {
        self.requests.iter().flatten().any(|request| request.ask.awaits_bytes())
    }

    /// Bytes that came since this was last called.
    pub fn take_fresh(&mut self) -> u64 {
        std::mem::take(&mut self.fresh)
    }

    /// The next request to make, under a number that is free; `None` if there is none to make now.
    pub fn next(&mut self, now: Time) -> Option<u32> {
        let ask = self.next_ask()?;
        let figures = &mut self.fetches[ask.fetch].figures;
        figures.began = figures.began.min(now);
        let number = self.free.pop().unwrap_or_else(|| {
            self.requests.push(None);
            self.requests.len() as u32 - 1
        });
        let never = Time::NEVER;
        let request =
            UnderWay { ask, at: None, connection: 0, sent_at: now, first_byte_at: never, unconfirmed: 0 };
        self.requests[number as usize] = Some(request);
        Some(number)
    }

    fn next_ask(&mut self) -> Option<Ask> {
        let mut at = 0;
        while let Some(&index) = self.open.get(at) {
            if let Some(ask) = self.fetches[index].next_ask(index) {
                return Some(ask);
            }
            if self.fetches[index].outcome().is_some() && self.of_file(index).next().is_none() {
                self.close(index); // it could not even be begun
            } else {
                at += 1;
            }
        }
        let (wanted, begun) = self.again.as_mut()?;
        let Wanted { url, path, place } = wanted[*begun % wanted.len()].clone();
        *begun += 1;
        let index = self.fetches.len();
        self.fetches.push(Fetch::new(url, path, place, self.manner));
        self.open.push_back(index);
        self.fetches[index].next_ask(index)
    }

    /// A request that [`Work::next`] gave was begun there, on the connection with this index.
    pub fn begun(&mut self, number: u32, seat: usize, connection: u32, stream: StreamId) {
        if let Some(Some(request)) = self.requests.get_mut(number as usize) {
            (request.at, request.connection) = (Some((seat, stream)), connection);
        }
    }

    /// A request that [`Work::next`] gave could not be begun: it is as if it had not been given.
    pub fn not_begun(&mut self, number: u32, now: Time) {
        self.over(number, now, None, true);
    }

    /// The next request that nobody waits for any more: its seat and stream.
    pub fn next_doomed(&mut self) -> Option<(usize, StreamId)> {
        while let Some(number) = self.doomed.pop() {
            if let Some(Some(UnderWay { at: Some(at), .. })) = self.requests.get(number as usize) {
                return Some(*at);
            }
        }
        None
    }

    /// Begins nothing any more that was not begun, and ends what is under way because of that.
    pub fn give_up(&mut self, mut why: impl FnMut() -> FetchError) {
        self.again = None;
        for index in self.open.clone() {
            self.fetches[index].fail(why());
            self.close(index);
        }
    }

    /// Has what arrived survive the end of this process, by and by.
    pub fn save(&mut self) {
        for &index in &self.open {
            let asks = self.requests.iter().flatten().map(|request| &request.ask);
            self.fetches[index].save(asks.filter(|ask| ask.fetch == index));
        }
    }

    /// No request is under way any more: what is unfinished is left so that it can be gone on with.
    pub fn keep(&mut self) {
        self.fetches.iter_mut().for_each(Fetch::keep);
        self.open.clear();
    }

    /// Requests under way of a file.
    fn of_file(&self, index: usize) -> impl Iterator<Item = u32> + '_ {
        let is_its = move |request: &&Option<UnderWay>| {
            request.as_ref().is_some_and(|request| request.ask.fetch == index)
        };
        (0..).zip(&self.requests).filter(move |(_, request)| is_its(request)).map(|(number, _)| number)
    }

    /// A request is over.
    fn over(&mut self, number: u32, now: Time, why: Option<&str>, is_unsent: bool) {
        let Some(mut request) = self.requests.get_mut(number as usize).and_then(Option::take) else {
            return;
        };
        self.free.push(number);
        let index = request.ask.fetch;
        let why = why.or(is_unsent.then_some("the connection took no request"));
        if let Some((_, stream)) = request.at.filter(|_| request.ask.errand == Errand::Bytes) {
            let arrived = request.ask.arrived();
            self.fetches[index].log(PartRecord {
                connection: request.connection,
                stream,
                from: arrived.start,
                bytes: arrived.end - arrived.start,
                sent_at: request.sent_at,
                first_byte_at: request.first_byte_at,
                ended_at: now,
                is_complete: why.is_none(),
            });
        }
        self.fresh += std::mem::take(&mut request.unconfirmed);
        self.fetches[index].ended(&mut request.ask, now, why);
        self.close(index);
    }

    /// Takes a file that is over off the list, and its requests off their connections.
    fn close(&mut self, index: usize) {
        match self.fetches[index].outcome() {
            None => return,
            // What could not be had once would fail over and over, as fast as the server says so.
            Some(Err(_)) => self.again = None,
            Some(Ok(())) => {}
        }
        let left: Vec<u32> = self.of_file(index).collect();
        if left.is_empty() {
            self.open.retain(|open| *open != index);
            self.fetches[index].keep();
        } else {
            self.doomed.extend(left);
        }
    }
}

impl Exchange for Work {
    fn sent(&mut self, _: u32, _: Time, _: Duration) {}

    fn head(&mut self, request: u32, at: Time, head: &ResponseHead<'_>) {
        let Some(Some(request)) = self.requests.get_mut(request as usize) else { return };
        if self.manner.direction == TransferDirection::Get {
            request.first_byte_at = at;
        }
        let index = request.ask.fetch;
        self.fetches[index].answered(&mut request.ask, at, head);
        self.close(index);
    }

    #[inline]
    fn body(&mut self, request: u32, data: &[u8]) {
        let Some(Some(UnderWay { ask, .. })) = self.requests.get_mut(request as usize) else { return };
        let fetch = &mut self.fetches[ask.fetch];
        let before = fetch.figures.arrived;
        fetch.store(ask, data);
        self.fresh += fetch.figures.arrived - before; // not the words of an error
        self.largest = self.largest.max(data.len());
        if fetch.outcome().is_some() {
            let index = ask.fetch;
            self.close(index);
        }
    }

    fn waited_for_window(&mut self, _: u32, _: Duration) {}

    fn body_sent(&mut self, request: u32, at: Time, bytes: usize) {
        let Some(Some(request)) = self.requests.get_mut(request as usize) else { return };
        request.first_byte_at = request.first_byte_at.min(at);
        self.fetches[request.ask.fetch].sent(&mut request.ask, at, bytes as u64);
        request.unconfirmed = u64::from(!request.ask.awaits_bytes());
        self.fresh += bytes as u64 - request.unconfirmed;
        self.largest = self.largest.max(bytes);
    }

    fn body_ran_dry(&mut self, request: u32) {
        let Some(Some(UnderWay { ask, .. })) = self.requests.get(request as usize) else { return };
        let index = ask.fetch;
        self.fetches[index].ran_dry(ask);
        self.close(index);
    }

    fn trailers(&mut self, request: u32, fields: Fields<'_>) {
        let Some(Some(UnderWay { ask, .. })) = self.requests.get(request as usize) else { return };
        self.fetches[ask.fetch].told(fields);
    }

    fn ended(&mut self, request: u32, at: Time, fate: Fate) {
        let why = match fate {
            Fate::Complete => None,
            Fate::Unprocessed => Some("the server processed no request"),
            Fate::Unanswered { .. } => Some("the server closed the connection without an answer"),
            Fate::Failed { outcome, .. } => Some(words(outcome)),
        };
        if let Some(Some(UnderWay { ask, .. })) = self.requests.get_mut(request as usize) {
            ask.may_repeat = matches!(fate, Fate::Unprocessed | Fate::Unanswered { .. });
        }
        self.over(request, at, why, false);
    }

    fn frame(&mut self, event: FrameEvent) {
        self.frames.see(&event, self.manner.direction.of_data());
    }
}

/// Why a request came to nothing, for people.
const fn words(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Reset => "the server reset the stream",
        Outcome::GoAway => "the server ended the connection in the middle",
        Outcome::Protocol => "the server broke the protocol",
        Outcome::Closed => "the connection broke",
        Outcome::Cancelled | Outcome::Unfinished => "it was given up",
        _ => "the connection failed",
    }
}

/// The heads of requests, made of what their files ask for, and what those send.
#[derive(Debug)]
pub struct Outbox<'a> {
    authority: &'a str,
    /// The one that is being begun.
    head: Head,
    /// What is sent, by the number of its request.
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
    /// To `authority`.
    pub fn new(authority: &'a str) -> Self {
        Self { authority, head: Head::default(), bodies: Vec::new() }
    }

    /// The next request to be begun is this one of `work`.
    pub fn prepare(&mut self, work: &Work, number: u32) {
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
    fn kind(&self, _: u64) -> u16 {
        0
    }

    fn is_constant(&self, _: u16) -> bool {
        false
    }

    fn is_idempotent(&self, _: u64) -> bool {
        true
    }

    fn with_head<T>(&self, _: u64, show: impl FnOnce(&Request<'_>) -> T) -> T {
        let Head { method, path, fields, body_length } = &self.head;
        let fields: Vec<Field<'_>> = fields.iter().map(|(name, value)| Field::new(name, value)).collect();
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

//! The requests of a connection, from its frames.

use std::collections::BTreeMap;
use std::time::Duration;

use h2lab_base::text::PeerText;
use h2lab_base::units::Time;
use h2lab_model::record::connection::count_one;
use h2lab_model::record::{ConnectionRecord, GoAwayRecord, Outcome, Sample};
use h2lab_wire::trace::detail::{Detail, DetailedFrame, Head};
use h2lab_wire::trace::{Direction, FrameEvent, FrameKind};
use h2lab_wire::{ErrorCode, StreamId};

/// Bytes of a `server` field that are kept.
const SOFTWARE_KEPT: usize = 100;
/// Bytes of a GOAWAY's debug data that are kept.
const DEBUG_KEPT: usize = 200;

/// Settings and error codes that are counted separately: there are only a few, but a peer may make up any number.
const MOST_KINDS: usize = 64;
/// GOAWAYs of a connection that are kept: a server that shuts down gracefully sends two.
const MOST_GOAWAYS: usize = 64;
/// A client that cancels requests, or closes, this soon after a GOAWAY arrived gave them up because of it.
const GIVEN_UP: Duration = Duration::from_millis(100);

/// A request in progress.
#[derive(Debug, Clone, Copy)]
struct Exchange {
    sample: Sample,
    /// The response has ended, and its fields are still to come.
    has_ended: bool,
    /// The `content-length` of the request.
    announced: Option<u64>,
    /// Body bytes of the request so far.
    sent: u64,
    /// The request has been sent completely.
    is_sent: bool,
}

impl Exchange {
    /// What was sent of the body, and what was announced, if these differ (RFC 9113 §8.1.1).
    fn misfit(&self) -> Option<(u64, u64)> {
        let announced = self.announced?;
        let differs = self.sent > announced || (self.is_sent && self.sent < announced);
        differs.then_some((self.sent, announced))
    }
}

/// Who ended a connection, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The client, or both at once.
    Client,
    /// The server.
    Server,
    /// It was reset.
    Reset,
    /// It was open when the capture ended.
    Capture,
}

/// What is read of a connection.
#[derive(Debug)]
pub(super) struct Exchanges {
    open: BTreeMap<u32, Exchange>,
    /// Requests that have ended.
    pub samples: Vec<Sample>,
    /// All frames, as far as there was room.
    pub frames: Vec<FrameEvent>,
    /// What the frames show about the connection.
    pub record: ConnectionRecord,
    /// Body bytes of requests.
    pub uploaded: u64,
    /// Requests that the server refused unprocessed, completed when the client received the refusal: it is not known
    /// whether it sent them again.
    pub refused: Vec<Sample>,
    /// Of the first request that the server reset with `PROTOCOL_ERROR` for it: body bytes that were sent, and those that
    /// its `content-length` had announced.
    pub misfit: Option<(u64, u64)>,
    /// The client has closed the connection.
    pub is_closed_by_client: bool,
    /// The client has sent a GOAWAY.
    has_left: bool,
    /// Field blocks that could not be decoded.
    pub undecoded: u32,
    /// Requests whose end is missing from the capture, and which are not among the samples.
    pub untimed: u32,
    /// When the bytes that are being read arrived, if they could be read only later: within a TLS record; else
    /// [`Time::NEVER`].
    pub came_at: Time,
}

impl Default for Exchanges {
    fn default() -> Self {
        Self {
            open: BTreeMap::new(),
            samples: Vec::new(),
            frames: Vec::new(),
            record: ConnectionRecord::default(),
            uploaded: 0,
            refused: Vec::new(),
            misfit: None,
            is_closed_by_client: false,
            has_left: false,
            undecoded: 0,
            untimed: 0,
            came_at: Time::NEVER,
        }
    }
}

impl Exchanges {
    /// Processes the next frame. `room` is how many more may be kept.
    pub fn see(&mut self, frame: &DetailedFrame, room: &mut usize) {
        let event = frame.event;
        self.count(&event);
        if *room > 0 {
            *room -= 1;
            self.frames.push(event);
        }
        match (&frame.detail, event.direction) {
            (Detail::Head(head), Direction::Up) => self.request(&event, head),
            (Detail::Head(head), Direction::Down) if head.promised_stream.is_none() => {
                self.response(&event, head);
            }
            (Detail::Data { data_bytes, .. }, Direction::Up) => {
                self.uploaded += u64::from(*data_bytes);
                if let Some(exchange) = self.open.get_mut(&event.stream.0) {
                    exchange.sent += u64::from(*data_bytes);
                }
            }
            (Detail::Data { data_bytes, .. }, Direction::Down) => {
                if let Some(exchange) = self.open.get_mut(&event.stream.0) {
                    exchange.sample.body_bytes += u64::from(*data_bytes);
                }
            }
            (Detail::Settings { settings, .. }, direction) => {
                let known = match direction {
                    Direction::Up => &mut self.record.http.settings_local,
                    Direction::Down => &mut self.record.http.settings_remote,
                };
                for set in settings {
                    match known.iter().position(|(id, _)| *id == set.id) {
                        Some(place) => known[place].1 = set.value,
                        None if known.len() < MOST_KINDS => known.push((set.id, set.value)),
                        None => {}
                    }
                }
            }
            (Detail::PriorityUpdate { prioritized_stream, priority_field_value }, Direction::Up) => {
                let stream = StreamId(*prioritized_stream);
                self.record.http.note_priority(stream, priority_field_value.as_bytes());
            }
            (Detail::Reset { .. }, _) => self.reset(&event),
            (Detail::GoAway { .. }, Direction::Up) => self.has_left = true,
            (Detail::GoAway { last_stream_id, debug, .. }, Direction::Down)
                if self.record.goaways.len() < MOST_GOAWAYS && !self.is_over() =>
            {
                self.record.goaways.push(GoAwayRecord {
                    at: event.at,
                    code: event.value,
                    last_stream: *last_stream_id,
                    debug: PeerText::cut(debug.as_bytes(), DEBUG_KEPT),
                });
            }
            _ => {}
        }
        let is_continued = matches!(&frame.detail, Detail::Head(head) if head.continues);
        match event.direction {
            Direction::Down if event.ends_stream() => self.end(&event, is_continued),
            Direction::Up if event.ends_stream() => {
                if let Some(exchange) = self.open.get_mut(&event.stream.0) {
                    exchange.is_sent = true;
                }
            }
            _ => {}
        }
    }

    /// Whether the client has ended the connection by itself: a GOAWAY that answers this, or crosses it, ends nothing.
    fn is_over(&self) -> bool {
        let is_left = self.is_closed_by_client || (self.has_left && self.open.is_empty());
        is_left && self.record.goaways.is_empty()
    }

    fn count(&mut self, event: &FrameEvent) {
        let counters = &mut self.record.counters;
        let is_fields =
            matches!(event.kind, FrameKind::HEADERS | FrameKind::CONTINUATION | FrameKind::PUSH_PROMISE);
        let (frames, fields) = match event.direction {
            Direction::Up => (&mut counters.frames_sent, &mut counters.headers_sent),
            Direction::Down => (&mut counters.frames_received, &mut counters.headers_received),
        };
        let last = frames.len() - 1;
        frames[usize::from(event.kind.0).min(last)] += 1;
        *fields += if is_fields { u64::from(event.length) } else { 0 };
    }

    fn request(&mut self, event: &FrameEvent, head: &Head) {
        let plain = |field: &h2lab_wire::trace::detail::PrintableField| {
            field.name.len() as u64 + u64::from(field.value_bytes) + 4
        };
        self.record.counters.headers_plain += head.fields.iter().map(plain).sum::<u64>();
        self.undecoded += u32::from(head.undecoded.is_some());
        let stream = event.stream.0;
        if stream == 0 || self.open.contains_key(&stream) || stream <= self.record.highest_stream.0 {
            return; // a trailer section, or the rest of a field block
        }
        self.record.highest_stream = StreamId(stream);
        self.record.requests += 1;
        self.record.counters.requests += 1;
        if let Some(field) = head.fields.iter().find(|field| field.name.eq_ignore_ascii_case("priority")) {
            self.record.http.note_priority(event.stream, field.value.as_bytes());
        }
        let mut sample = Sample::due(event.at, true);
        (sample.sent_at, sample.stream) = (event.at, event.stream);
        let length = head.fields.iter().find(|field| field.name.eq_ignore_ascii_case("content-length"));
        let announced = length.and_then(|field| field.value.parse().ok());
        self.open.insert(stream, Exchange { sample, has_ended: false, announced, sent: 0, is_sent: false });
    }

    fn response(&mut self, event: &FrameEvent, head: &Head) {
        self.undecoded += u32::from(head.undecoded.is_some());
        if head.continues {
            return;
        }
        let status = status_of(head);
        if (100..200).contains(&status) && status != 101 {
            count_one(&mut self.record.http.interim, status);
            return;
        }
        if self.record.server_software.is_none() {
            let named = head.fields.iter().find(|field| field.name.eq_ignore_ascii_case("server"));
            self.record.server_software =
                named.map(|field| PeerText::cut(field.value.as_bytes(), SOFTWARE_KEPT));
        }
        let Some(exchange) = self.open.get_mut(&event.stream.0) else { return };
        if !exchange.sample.first_byte_at.happened() {
            // The server's time ends when its packets arrive, not when the client can decrypt them.
            let came_at = event.at.min(self.came_at).max(exchange.sample.sent_at);
            (exchange.sample.first_byte_at, exchange.sample.status) = (came_at, status);
        }
        if exchange.has_ended {
            self.finish(event.stream.0, event.at, None);
        }
    }

    fn end(&mut self, event: &FrameEvent, is_continued: bool) {
        match self.open.get_mut(&event.stream.0) {
            Some(exchange) if is_continued => exchange.has_ended = true,
            Some(_) => self.finish(event.stream.0, event.at, None),
            None => {}
        }
    }

    fn reset(&mut self, event: &FrameEvent) {
        let code = event.value;
        let (resets, outcome) = match event.direction {
            Direction::Up => (&mut self.record.http.resets_sent, Outcome::Cancelled),
            Direction::Down if ErrorCode(code) == ErrorCode::REFUSED_STREAM => {
                (&mut self.record.resets_received, Outcome::Refused)
            }
            Direction::Down => (&mut self.record.resets_received, Outcome::Reset),
        };
        if resets.len() < MOST_KINDS || resets.iter().any(|(known, _)| *known == code) {
            count_one(resets, code);
        }
        let stream = event.stream.0;
        // With another code the client objects to what the server did on this stream.
        let is_plain = matches!(ErrorCode(code), ErrorCode::CANCEL | ErrorCode::NO_ERROR);
        let (at, outcome) = match (outcome, self.refused_at(stream)) {
            (Outcome::Cancelled, Some(at)) => (at, Outcome::Refused),
            (Outcome::Cancelled, None) if is_plain => (event.at, self.given_up(event.at)),
            (other, _) => (event.at, other),
        };
        let Some(exchange) = self.open.get_mut(&stream) else { return };
        if outcome == Outcome::Reset && ErrorCode(code) == ErrorCode::PROTOCOL_ERROR {
            self.misfit = self.misfit.or(exchange.misfit());
        }
        // What the client says of a request that a GOAWAY ended is not why it ended.
        let is_why = event.direction == Direction::Down || outcome == Outcome::Cancelled;
        exchange.sample.code = if is_why { code } else { 0 };
        self.finish(stream, at, Some(outcome));
    }

    /// When a GOAWAY arrived that says that the server does not process this stream.
    fn refused_at(&self, stream: u32) -> Option<Time> {
        let goaways = self.record.goaways.iter().filter(|goaway| stream > goaway.last_stream);
        goaways.map(|goaway| goaway.at).min()
    }

    /// How a request ended that the client gave up at `at`, by a reset or by closing the connection: with a GOAWAY, if
    /// one had just arrived.
    fn given_up(&self, at: Time) -> Outcome {
        let is_just = |goaway: &GoAwayRecord| goaway.at <= at && at.since(goaway.at) <= GIVEN_UP;
        if self.record.goaways.iter().any(is_just) { Outcome::GoAway } else { Outcome::Cancelled }
    }

    /// A request has ended: with this outcome, or with the response's status.
    fn finish(&mut self, stream: u32, at: Time, outcome: Option<Outcome>) {
        let Some(Exchange { mut sample, .. }) = self.open.remove(&stream) else { return };
        sample.completed_at = at.max(sample.sent_at);
        if outcome == Some(Outcome::Refused) {
            sample.outcome = Outcome::Refused;
            self.refused.push(sample);
            return;
        }
        sample.outcome = outcome.unwrap_or(match sample.status {
            // Status 0: the fields could not be decoded; it is only known that the request was answered.
            0 | 101 | 200..400 => Outcome::Succeeded,
            _ => Outcome::Status,
        });
        self.samples.push(sample);
    }

    /// The connection has ended, or the capture. In HTTP/1.1 the end of the connection ends a response of unknown
    /// length.
    pub fn close(&mut self, at: Time, end: End, is_http1: bool) {
        let unprocessed: Vec<(u32, Time)> =
            self.open.keys().filter_map(|stream| Some((*stream, self.refused_at(*stream)?))).collect();
        for (stream, at) in unprocessed {
            self.finish(stream, at, Some(Outcome::Refused));
        }
        for stream in self.open.keys().copied().collect::<Vec<u32>>() {
            let begun = self.open[&stream].sample.first_byte_at.happened();
            let outcome = match end {
                End::Server if is_http1 && begun => None,
                End::Server | End::Reset if !self.record.goaways.is_empty() => Some(Outcome::GoAway),
                End::Server | End::Reset => Some(Outcome::Closed),
                End::Client => Some(self.given_up(at)),
                End::Capture => Some(Outcome::Unfinished),
            };
            self.finish(stream, at, outcome);
        }
    }
}

impl Exchanges {
    /// Removes the requests that had not ended when bytes were missing: the times of their ends are unknown.
    pub fn leave_out_unfinished(&mut self) {
        let all = self.samples.len();
        self.samples.retain(|sample| sample.outcome != Outcome::Unfinished);
        self.untimed = u32::try_from(all - self.samples.len()).unwrap_or(u32::MAX);
    }
}

/// The status of a response; 0 if its fields could not be decoded.
fn status_of(head: &Head) -> u16 {
    let of_line = head.start_line.as_deref().and_then(|line| line.split_ascii_whitespace().nth(1));
    let of_field =
        || head.fields.iter().find(|field| field.name == ":status").map(|field| field.value.as_str());
    of_line.or_else(of_field).and_then(|code| code.parse().ok()).unwrap_or(0)
}

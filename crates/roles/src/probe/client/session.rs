//! One connection of the client, served as the test case requires.

use std::cell::Cell;
use std::rc::Rc;

use h2lab_base::text::printable;
use h2lab_base::units::Time;
use h2lab_model::probe::client::seen::KEPT;
use h2lab_model::probe::client::test_case::{CHANGED, INTERIM, WINDOWS};
use h2lab_model::probe::client::{
    AnswerState, ConnectionSeen, FrameNote, RequestHandling, RequestPosition, RequestSeen, TestCase,
};
use h2lab_wire::connection::{Request, Response};
use h2lab_wire::h2::frame::kind;
use h2lab_wire::h2::raw::frame;
use h2lab_wire::trace::detail::{Reader, Secrets};
use h2lab_wire::trace::{Dialect, Direction};
use h2lab_wire::{Connection, Error, ErrorCode, Event, Field, StreamId};

use crate::probe::Transcript;
use crate::probe::raw_h2_client::settings;
use h2lab_net::byte_stream::ByteStream;
use h2lab_net::tcp::{Read, Written};

/// The beginning of HTTP/2 by prior knowledge (RFC 9113 §3.4).
const PREFACE_START: &[u8] = b"PRI ";
/// What bodies are made of.
const FILLER: [u8; 16_384] = [b'.'; 16_384];
/// Reads in a row: a client that never pauses must not keep the others, or the command's end, from being seen.
const READS: usize = 64;
/// What is promised.
const PROMISED: &str = "/promised";

/// How far a test case is.
#[derive(Debug, Clone, Copy, Default)]
pub struct TestCaseProgress {
    /// Requests that have come, over all connections.
    requests: usize,
    /// The first connection that carried one.
    first: Option<usize>,
}

/// A response in progress.
#[derive(Debug)]
struct Reply {
    stream: StreamId,
    /// Among the requests seen; `None` for what was promised.
    request: Option<usize>,
    handling: RequestHandling,
    /// When it begins: not before the request has ended.
    due: Time,
    /// The head has gone.
    begun: Option<Time>,
    /// Bytes of body that were taken.
    sent: u64,
}

/// A connection.
#[derive(Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "what socket, client and test case are ready for is independent"
)]
pub struct TestCaseSession {
    stream: ByteStream,
    test_case: TestCase,
    /// Which connection of the test case it is, from 0.
    index: usize,
    /// What the connections of the test case have in common.
    step: Rc<Cell<TestCaseProgress>>,
    /// Requests that the command makes.
    expected: usize,
    engine: Option<Connection>,
    first: Vec<u8>,
    reader: Reader,
    transcript: Transcript,
    replies: Vec<Reply>,
    /// Frames that our engine would not send; they are sent after its own output.
    raw: Vec<u8>,
    /// The socket did not take everything.
    pub blocked: bool,
    /// Nothing more is sent; what arrives is recorded.
    is_dark: bool,
    /// The last stream that was taken.
    accepted: u32,
    /// It has sent GOAWAY: no further request is taken.
    is_ending: bool,
    /// Everything was sent except what waits for the socket; what arrives is recorded.
    is_over: bool,
    /// Our direction is closed, too.
    is_shut: bool,
    /// The client has closed, or the connection broke.
    is_gone: bool,
    /// Its client's socket was looked for.
    pub was_looked_at: bool,
    /// What was seen.
    pub seen: ConnectionSeen,
}

impl TestCaseSession {
    /// The `index`-th connection of a test case, accepted at `now`.
    pub fn new(
        stream: ByteStream,
        test_case: TestCase,
        index: usize,
        step: Rc<Cell<TestCaseProgress>>,
        expected: usize,
        now: Time,
    ) -> Self {
        Self {
            stream,
            test_case,
            index,
            step,
            expected,
            engine: None,
            first: Vec::new(),
            reader: Reader::new(Dialect::Http2, index as u32),
            transcript: Transcript::new(now, Secrets::default()),
            replies: Vec::new(),
            raw: Vec::new(),
            blocked: false,
            is_dark: false,
            accepted: 0,
            is_ending: false,
            is_over: false,
            is_shut: false,
            is_gone: false,
            was_looked_at: false,
            seen: ConnectionSeen { opened_at: now, ..ConnectionSeen::default() },
        }
    }

    /// The socket.
    pub const fn stream(&self) -> &ByteStream {
        &self.stream
    }

    /// Whether more may come.
    pub const fn is_live(&self) -> bool {
        !self.is_gone
    }

    /// Since when the command waits for what will never come.
    pub fn quiet_since(&self) -> Option<Time> {
        self.seen.quiet_since()
    }

    /// When [`TestCaseSession::proceed`] must be called though nothing arrives.
    pub fn deadline(&self) -> Time {
        if self.is_dark || self.is_over || self.is_gone {
            return Time::NEVER;
        }
        let replies = self.replies.iter().map(Reply::next).min().unwrap_or(Time::NEVER);
        self.engine.as_ref().map_or(replies, |engine| engine.poll_timeout().min(replies))
    }

    /// The evidence, when all is over.
    pub fn finish(mut self) -> ConnectionSeen {
        self.seen.items = self.transcript.items();
        self.seen
    }

    /// Reads what there is.
    pub fn receive(&mut self, now: Time) {
        let mut space = [0; 16 * 1024];
        for _ in 0..READS {
            if self.is_gone {
                break;
            }
            match self.stream.read(&mut space) {
                Ok(Read::Bytes(n)) => self.take(now, &space[..n]),
                Ok(Read::WouldBlock) => break,
                Ok(Read::Eof | Read::Truncated) => {
                    self.is_gone = true;
                    if let Some(engine) = self.engine.as_mut().filter(|_| !self.is_dark && !self.is_over) {
                        engine.handle_eof(now);
                        self.honour(now);
                    }
                }
                Err(_) => (self.is_gone, self.is_over) = (true, true),
            }
        }
        self.proceed(now);
    }

    fn take(&mut self, now: Time, bytes: &[u8]) {
        if self.engine.is_none() && !self.choose(now, bytes) {
            return;
        }
        let first = std::mem::take(&mut self.first);
        let bytes = if first.is_empty() { bytes } else { &first };
        self.note(now, Direction::Up, bytes);
        if self.is_dark || self.is_over {
            return;
        }
        if let Some(engine) = &mut self.engine {
            engine.handle_input(now, bytes);
        }
        self.honour(now);
    }

    /// Finds out what is spoken; `false` while there are too few bytes, which are kept.
    fn choose(&mut self, now: Time, bytes: &[u8]) -> bool {
        self.first.extend_from_slice(bytes);
        let known = self.first.len().min(PREFACE_START.len());
        let may_be_h2 = self.first[..known] == PREFACE_START[..known];
        if may_be_h2 && known < PREFACE_START.len() {
            return false;
        }
        let config = self.test_case.config();
        if may_be_h2 {
            self.seen.protocol = Some("h2");
            self.transcript.reads_frames();
            self.engine = Some(Connection::h2(config, now));
        } else {
            self.seen.protocol = Some("http/1.1");
            self.engine = Some(Connection::h1(config));
        }
        true
    }

    /// Notes what crossed.
    fn note(&mut self, now: Time, direction: Direction, bytes: &[u8]) {
        self.transcript.record(now, direction, bytes);
        if self.seen.protocol == Some("h2") {
            let frames = &mut self.seen.frames;
            self.reader.feed(now, direction, bytes, &mut |detailed| {
                if frames.len() < KEPT {
                    frames.push(FrameNote::of(&detailed));
                }
            });
        }
    }

    /// Takes the engine's events.
    fn honour(&mut self, now: Time) {
        let Some(engine) = &mut self.engine else { return };
        let (mut requests, mut whole) = (Vec::new(), Vec::new());
        while let Some(event) = engine.poll_event(now) {
            match event {
                Event::Request { stream, head, end_stream } => {
                    if end_stream {
                        whole.push(stream);
                    }
                    if self.seen.user_agent.is_none() {
                        self.seen.user_agent = head.fields.get("user-agent").map(printable);
                    }
                    requests.push((stream, format!("{} {}", printable(head.method), printable(head.path))));
                }
                Event::Data { stream, end_stream: true, .. } | Event::Trailers { stream, .. } => {
                    whole.push(stream);
                }
                Event::Reset { stream, .. } => self.replies.retain(|reply| reply.stream != stream),
                Event::Closed { error } => {
                    self.seen.error = error.filter(is_of_the_client).map(|error| error.to_string());
                    self.is_over = true;
                }
                _ => {}
            }
        }
        for (stream, line) in requests {
            self.begin(now, stream, line);
        }
        // If an upload were answered before its end, this would show how the client handles that, and not what the test
        // case is about.
        for reply in self.replies.iter_mut().filter(|reply| whole.contains(&reply.stream)) {
            reply.due = reply.due.min(now + reply.handling.delay);
        }
    }

    /// A request has come.
    fn begin(&mut self, now: Time, stream: StreamId, line: String) {
        let n = self.seen.requests.len();
        let mut step = self.step.get();
        let first = *step.first.get_or_insert(self.index);
        let place =
            RequestPosition { of_all: step.requests, on_connection: n, on_first: first == self.index };
        step.requests += 1;
        self.step.set(step);
        let handling = self.test_case.handling(place, self.expected);
        let mut request = RequestSeen { at: now, stream: stream.0, line, fate: AnswerState::Open };
        let Some(engine) = &mut self.engine else { return };
        let is_h2 = matches!(engine, Connection::H2(_));
        if handling.goes_dark {
            // SETTINGS are sent, so that nothing but the answer is missing.
            self.transmit(now);
            self.seen.dark_since.get_or_insert(now);
            (self.is_dark, self.blocked) = (true, false);
        } else if handling.refuses && is_h2 {
            engine.reset(now, stream, ErrorCode::REFUSED_STREAM);
            request.fate = AnswerState::Refused;
        } else if is_h2 && (handling.ends_below || self.is_ending) {
            if !std::mem::replace(&mut self.is_ending, true) {
                self.say_goaway(ErrorCode::NO_ERROR);
            }
        } else if is_h2 && (handling.cuts || self.is_over) {
            if !std::mem::replace(&mut self.is_over, true) {
                self.say_goaway(ErrorCode::INTERNAL_ERROR);
                self.replies.clear();
                self.transmit(now);
            }
        } else {
            if handling.lowers_windows && is_h2 {
                self.raw.extend(frame(kind::SETTINGS, 0, 0, &settings(&[(4, WINDOWS[1])])));
            }
            let (request, due) = ((n < KEPT).then_some(n), Time::NEVER);
            self.accepted = self.accepted.max(stream.0);
            self.replies.push(Reply { stream, request, handling, due, begun: None, sent: 0 });
        }
        if n < KEPT {
            self.seen.requests.push(request);
        }
    }

    /// Sends a GOAWAY in a frame that our engine would not send: nothing above the last stream taken is processed.
    fn say_goaway(&mut self, code: ErrorCode) {
        let payload = [self.accepted.to_be_bytes(), code.0.to_be_bytes()].concat();
        self.raw.extend(frame(kind::GOAWAY, 0, 0, &payload));
    }

    /// Continues what is due, and sends, until there is no more that could go.
    pub fn proceed(&mut self, now: Time) {
        if self.is_dark || self.is_shut {
            return;
        }
        if let Some(engine) = self.engine.as_mut().filter(|engine| engine.poll_timeout() <= now) {
            engine.handle_timeout(now);
        }
        while !self.is_dark {
            let moved = self.reply(now);
            self.honour(now);
            self.transmit(now);
            if !moved || self.blocked || self.is_over {
                break;
            }
        }
        self.is_over |= self.is_ending && self.replies.is_empty() && !self.blocked;
        if self.is_over && !self.blocked {
            // A client that is closing its connection waits for our end.
            let _ = self.stream.shutdown();
            self.is_shut = true;
        }
    }

    /// Hands what is due to the engine; whether it took anything.
    fn reply(&mut self, now: Time) -> bool {
        let Some(engine) = &mut self.engine else { return false };
        let mut moved = false;
        let mut promised = Vec::new();
        let (raw, requests, stalled) = (&mut self.raw, &mut self.seen.requests, &mut self.seen.stalled_since);
        self.replies.retain_mut(|reply| {
            let before = (reply.begun, reply.sent);
            let done = reply.proceed(now, engine, raw, &mut promised);
            moved |= before != (reply.begun, reply.sent);
            if let Some(request) = reply.request.filter(|_| done) {
                requests[request].fate = AnswerState::Answered;
            }
            if reply.has_stalled() {
                stalled.get_or_insert(now);
            }
            !done
        });
        self.replies.append(&mut promised);
        moved
    }

    /// Sends what there is to send.
    fn transmit(&mut self, now: Time) {
        self.blocked = false;
        loop {
            let bytes = match &mut self.engine {
                Some(engine) => engine.poll_transmit(now).to_vec(),
                None => Vec::new(),
            };
            let is_raw = bytes.is_empty();
            let bytes = if is_raw { std::mem::take(&mut self.raw) } else { bytes };
            if bytes.is_empty() {
                break;
            }
            match self.stream.write(&bytes) {
                Ok(Written::Bytes(n)) => {
                    self.note(now, Direction::Down, &bytes[..n]);
                    if is_raw {
                        self.raw = bytes[n..].to_vec();
                    } else if let Some(engine) = &mut self.engine {
                        engine.handle_transmitted(now, n);
                    }
                }
                Ok(Written::WouldBlock) => {
                    if is_raw {
                        self.raw = bytes;
                    }
                    self.blocked = true;
                    return;
                }
                Err(_) => {
                    self.is_over = true;
                    return;
                }
            }
        }
        // TLS may hold some of it, and may have bytes of its own to send.
        match self.stream.flush() {
            Ok(flushed) => self.blocked = !flushed,
            Err(_) => self.is_over = true,
        }
    }
}

/// Whether it was the client that broke a rule. Ending a connection in the middle, or with an error, breaks none: that
/// shows in the client's exit code and the missing requests.
const fn is_of_the_client(error: &Error) -> bool {
    !matches!(error, Error::UnexpectedEof(_) | Error::GoAway(_) | Error::Misuse(_))
}

impl Reply {
    /// When something is due; now, as far as only windows are in the way.
    fn next(&self) -> Time {
        let Some(begun) = self.begun else { return self.due };
        let (pieces, gap) = self.handling.pieces;
        let piece = self.sent * pieces / self.handling.length.max(1);
        if gap.is_zero() || piece == 0 {
            // Data that waits for the windows continues with the next frame that arrives.
            return Time::NEVER;
        }
        begun + gap * u32::try_from(piece).unwrap_or(u32::MAX)
    }

    /// Whether a body that stops in its middle has been sent up to there.
    const fn has_stalled(&self) -> bool {
        let (pieces, _) = self.handling.pieces;
        self.handling.stalls && self.sent == self.handling.length * (pieces - 1) / pieces
    }

    /// How much of the body may have gone by `now`.
    fn allowed(&self, now: Time) -> u64 {
        let (pieces, gap) = self.handling.pieces;
        let begun = self.begun.unwrap_or(now);
        let due = if gap.is_zero() {
            pieces
        } else {
            1 + u64::try_from(now.since(begun).as_nanos() / gap.as_nanos()).unwrap_or(u64::MAX)
        };
        let last = if self.handling.stalls { pieces - 1 } else { pieces };
        self.handling.length * due.min(last) / pieces
    }

    /// Sends what is due; returns whether the response is complete. `raw` takes frames that are to be sent after it.
    fn proceed(
        &mut self,
        now: Time,
        engine: &mut Connection,
        raw: &mut Vec<u8>,
        promised: &mut Vec<Self>,
    ) -> bool {
        if self.begun.is_none() {
            if now < self.due {
                return false;
            }
            if std::mem::take(&mut self.handling.changes_settings) && matches!(engine, Connection::H2(_)) {
                // They go out before the response: a client that has all its responses may read nothing more.
                raw.extend(frame(kind::SETTINGS, 0, 0, &settings(&CHANGED)));
                return false;
            }
            self.open(now, engine, promised);
        }
        let allowed = self.allowed(now);
        while self.sent < allowed {
            let n = (allowed - self.sent).min(FILLER.len() as u64);
            let ends = self.sent + n == self.handling.length;
            let taken = engine.send_data(now, self.stream, &FILLER[..n as usize], ends);
            self.sent += taken as u64;
            if (taken as u64) < n {
                return false; // a window is full, or the buffer
            }
        }
        self.sent == self.handling.length
    }

    /// All that comes before the body.
    fn open(&mut self, now: Time, engine: &mut Connection, promised: &mut Vec<Self>) {
        self.begun = Some(now);
        if self.handling.interim {
            let link = [Field::new("link", "</style.css>; rel=preload")];
            for status in INTERIM {
                let fields: &[Field<'_>] = if status == 103 { &link } else { &[] };
                engine.send_interim(now, self.stream, status, fields);
            }
        }
        if self.handling.pushes {
            let request = Request {
                method: "GET",
                authority: "localhost",
                path: PROMISED,
                fields: &[],
                body_length: None,
                end_stream: true,
            };
            if let Some(stream) = engine.send_push(now, self.stream, &request) {
                let handling = RequestHandling { pushes: false, ..self.handling };
                promised.push(Self { stream, request: None, handling, due: now, begun: None, sent: 0 });
            }
        }
        let fields = [Field::new("content-type", "text/plain"), Field::new("server", "h2lab")];
        let response = Response {
            status: 200,
            fields: &fields,
            body_length: Some(self.handling.length),
            end_stream: false,
        };
        engine.send_response(now, self.stream, &response);
        if self.handling.says_goaway {
            engine.goaway(now, ErrorCode::NO_ERROR, b"");
        }
    }
}

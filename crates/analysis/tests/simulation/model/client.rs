//! The client's end: from requests to samples. The rules are those of the generator's sessions.

use std::collections::{BTreeMap, VecDeque};

use h2lab_base::counters::TlsRecords;
use h2lab_base::text::PeerText;
use h2lab_base::units::{Bandwidth, Time, nanos};
use h2lab_model::record::{CloseReason, ConnectionRecord, GoAwayRecord, HttpRecord, Outcome, Sample};
use h2lab_model::workload::Work;
use h2lab_wire::connection::Request;
use h2lab_wire::trace::{Dialect, Direction, FrameEvent, Tap};
use h2lab_wire::{Connection, Error, ErrorCode, Event, Field, Initiator, StreamId};

use super::end::{End, Role};
use super::requests::Fate;
use h2lab_link::tcp::{self, Socket};

/// The part shared by all requests of a repetition.
pub struct Prepared<'a> {
    work: &'a Work,
    fields: Vec<Field<'static>>,
    body: Vec<u8>,
}

impl<'a> Prepared<'a> {
    /// The request of `work`: its shape's fields and a body of its length, filled with the letters of the alphabet.
    pub fn new(work: &'a Work) -> Self {
        let body = (b'a'..=b'z').cycle().take(work.body_length() as usize).collect();
        Self { work, fields: work.shape.wire_fields(), body }
    }

    fn head(&self) -> Request<'_> {
        let announced = !self.body.is_empty() || self.work.method == "POST";
        Request {
            method: &self.work.method,
            authority: "model.invalid",
            path: &self.work.path,
            fields: &self.fields,
            body_length: announced.then_some(self.body.len() as u64),
            end_stream: self.body.is_empty(),
        }
    }
}

/// A request on its stream.
#[derive(Debug)]
struct Carried {
    request: usize,
    sample: Sample,
    /// Bytes of its body that the engine has accepted.
    body_taken: usize,
    begun_at: Time,
    /// Since when its body has been waiting for room; [`Time::NEVER`] if it is not.
    waits_since: Time,
    /// Where its head ends in the bytes of the connection.
    head_end: u64,
}

/// The parameters of a new connection.
pub struct Dial<'a> {
    /// Its index in the repetition.
    pub index: u32,
    /// The client's port and the server's.
    pub ports: (u16, u16),
    /// The client's end of TCP.
    pub tcp: tcp::Config,
    /// The client's engine.
    pub engine: Connection,
    /// How many requests it carries at once.
    pub limit: u32,
    /// The requests.
    pub prepared: &'a Prepared<'a>,
    /// How fast response bodies are read; `None`: at once.
    pub reader: Option<Bandwidth>,
}

/// The client's end of one connection.
pub struct Client<'a> {
    /// Socket and engine.
    pub end: End,
    state: ClientState<'a>,
    /// The most streams that we allow ourselves at a time.
    limit: u32,
}

/// The state of the client's role.
struct ClientState<'a> {
    prepared: &'a Prepared<'a>,
    record: ConnectionRecord,
    tap: Tap,
    frames: Vec<FrameEvent>,
    carried: BTreeMap<StreamId, Carried>,
    /// Streams whose head the socket has not accepted.
    unsent: VecDeque<StreamId>,
    writable: Vec<StreamId>,
    finished: Vec<(usize, Sample, Fate)>,
    reader: Option<Reader>,
    /// Why we are ending the connection ourselves, if we are.
    ending: Option<&'static str>,
    over: bool,
}

/// A user that reads response bodies at its own speed.
#[derive(Debug)]
struct Reader {
    pace: Bandwidth,
    /// Pieces of bodies, each with the time at which it will have been read.
    pieces: VecDeque<(Time, StreamId, u32)>,
    free_at: Time,
}

impl<'a> Client<'a> {
    /// Dials at `now`.
    pub fn new(dial: Dial<'a>, now: Time) -> Self {
        let Dial { index, ports, tcp, engine, limit, prepared, reader } = dial;
        let dialect = if matches!(engine, Connection::H2(_)) { Dialect::Http2 } else { Dialect::Http1 };
        let record = ConnectionRecord {
            index,
            local_port: ports.0,
            remote_port: ports.1,
            dialled_at: now,
            connected_at: Time::NEVER,
            ready_at: Time::NEVER,
            tls_resumed: None,
            tls_records: TlsRecords::default(),
            closed_at: Time::NEVER,
            closed: CloseReason::Cell,
            goaways: Vec::new(),
            resets_received: Vec::new(),
            highest_stream: StreamId::CONNECTION,
            requests: 0,
            bytes_sent: 0,
            bytes_received: 0,
            counters: engine.counters(),
            server_software: None,
            tcp_client: None,
            tcp_server: None,
            quic_client: None,
            http: HttpRecord::default(),
        };
        let reader = reader.map(|pace| Reader { pace, pieces: VecDeque::new(), free_at: now });
        let state = ClientState {
            prepared,
            record,
            tap: Tap::new(dialect, index),
            frames: Vec::new(),
            carried: BTreeMap::new(),
            unsent: VecDeque::new(),
            writable: Vec::new(),
            finished: Vec::new(),
            reader,
            ending: None,
            over: false,
        };
        Self { end: End::new(Socket::dial(tcp, now), engine), state, limit }
    }

    /// Makes all possible progress.
    pub fn advance(&mut self, now: Time) {
        self.end.advance(now, &mut self.state);
        let record = &mut self.state.record;
        if self.end.socket.is_open() && !record.connected_at.happened() {
            (record.connected_at, record.ready_at) = (now, now);
        }
        if self.state.carried.is_empty() && self.end.engine.is_draining() {
            // The server has finished, and so has the client.
            self.state.finish(now, CloseReason::Server, (Outcome::GoAway, 0));
            self.end.advance(now, &mut self.state);
        }
    }

    /// When [`Client::advance`] must be called.
    pub fn deadline(&self) -> Time {
        let reader = self.state.reader.as_ref().and_then(|reader| reader.pieces.front());
        reader.map_or(Time::NEVER, |(at, ..)| *at).min(self.end.deadline())
    }

    /// How many more requests may be sent now.
    pub fn available(&self) -> u32 {
        if !self.end.socket.is_open() || self.state.over {
            return 0;
        }
        self.end.engine.available_streams().min(self.limit.saturating_sub(self.open()))
    }

    /// Requests in flight.
    pub fn open(&self) -> u32 {
        self.state.carried.len() as u32
    }

    /// Whether it is established and the server has sent its preface.
    pub fn is_established(&self) -> bool {
        self.end.socket.is_open() && self.end.engine.is_established()
    }

    /// Whether it will accept no further requests, ever.
    pub fn is_spent(&self) -> bool {
        self.state.over || self.end.engine.is_draining()
    }

    /// Sends a request; `false` if the engine does not accept it.
    pub fn begin(&mut self, now: Time, request: usize, mut sample: Sample) -> bool {
        let Some(stream) = self.end.engine.send_request(now, &self.state.prepared.head()) else {
            return false;
        };
        let record = &mut self.state.record;
        record.requests += 1;
        record.highest_stream = record.highest_stream.max(stream);
        let head_end = record.bytes_sent + self.end.engine.unsent() as u64;
        (sample.connection, sample.stream) = (record.index, stream);
        let carried =
            Carried { request, sample, body_taken: 0, begun_at: now, waits_since: Time::NEVER, head_end };
        self.state.carried.insert(stream, carried);
        self.state.unsent.push_back(stream);
        self.state.writable.push(stream);
        true
    }

    /// Gives up the request on `stream`; `false` if there is none. In HTTP/1.1 the connection ends with it.
    pub fn cancel(&mut self, now: Time, stream: StreamId) -> bool {
        let fate = Fate::Failed(Outcome::Timeout, ErrorCode::CANCEL.0);
        let found = self.state.settle(stream, fate);
        if found {
            if matches!(self.end.engine, Connection::H1(_)) {
                self.state.ending = Some("a request was cancelled");
            }
            self.end.engine.reset(now, stream, ErrorCode::CANCEL);
        }
        found
    }

    /// Accepts no further requests.
    pub fn goaway(&mut self, now: Time, code: ErrorCode) {
        self.state.ending = Some("we said that we are going away");
        self.end.engine.goaway(now, code, b"model");
    }

    /// The open stream at this index, modulo their number.
    pub fn open_stream(&self, place: usize) -> Option<StreamId> {
        self.state.carried.keys().nth(place % self.state.carried.len().max(1)).copied()
    }

    /// The stream that carries this request.
    pub fn stream_of(&self, request: usize) -> Option<StreamId> {
        self.state.carried.iter().find(|(_, carried)| carried.request == request).map(|(stream, _)| *stream)
    }

    /// Requests that have ended here since the last call, and the frames that crossed.
    pub fn take_news(&mut self) -> (Vec<(usize, Sample, Fate)>, Vec<FrameEvent>) {
        (std::mem::take(&mut self.state.finished), std::mem::take(&mut self.state.frames))
    }

    /// The repetition is cut: requests in flight are unfinished.
    pub fn cut(&mut self) {
        self.state.abandon(|_| Fate::Failed(Outcome::Unfinished, 0));
    }

    /// The record of the connection.
    pub fn into_record(self) -> ConnectionRecord {
        ConnectionRecord { counters: self.end.engine.counters(), ..self.state.record }
    }
}

impl ClientState<'_> {
    /// Removes a request from its stream; returns whether there was one.
    fn settle(&mut self, stream: StreamId, fate: Fate) -> bool {
        let carried = self.carried.remove(&stream);
        let found = carried.is_some();
        self.finished.extend(carried.map(|carried| (carried.request, carried.sample, fate)));
        found
    }

    /// Removes all requests from their streams, the newest first: each is put back in front of the others, so their
    /// order is kept.
    fn abandon(&mut self, fate: impl Fn(&Carried) -> Fate) {
        while let Some((_, carried)) = self.carried.pop_last() {
            let fate = fate(&carried);
            self.finished.push((carried.request, carried.sample, fate));
        }
    }

    /// The connection is over: records it once, and every request that it still carried.
    fn finish(&mut self, now: Time, closed: CloseReason, (outcome, code): (Outcome, u32)) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        // After a GOAWAY these requests ended because of it, whatever happened later.
        let (outcome, code) =
            self.record.goaways.last().map_or((outcome, code), |goaway| (Outcome::GoAway, goaway.code));
        let sent = self.record.bytes_sent;
        self.abandon(
            |carried| {
                if carried.head_end > sent { Fate::Unprocessed } else { Fate::Failed(outcome, code) }
            },
        );
        let ours = self.ending.map(|why| CloseReason::Local { why: why.to_owned() });
        (self.record.closed_at, self.record.closed) = (now, ours.unwrap_or(closed));
    }

    fn body_arrived(&mut self, now: Time, stream: StreamId, bytes: u32) {
        if let Some(reader) = &mut self.reader {
            reader.free_at = reader.free_at.max(now) + reader.pace.transmission_time(bytes.into());
            reader.pieces.push_back((reader.free_at, stream, bytes));
        }
        if let Some(carried) = self.carried.get_mut(&stream) {
            carried.sample.body_bytes += u64::from(bytes);
        }
    }

    fn reset(&mut self, stream: StreamId, code: ErrorCode, initiator: Initiator) {
        let fate = match initiator {
            _ if code == ErrorCode::REFUSED_STREAM => Fate::Unprocessed,
            Initiator::Engine => Fate::Failed(Outcome::Protocol, code.0),
            Initiator::Remote | Initiator::Local => Fate::Failed(Outcome::Reset, code.0),
        };
        if self.settle(stream, fate) && initiator == Initiator::Remote {
            match self.record.resets_received.iter_mut().find(|(known, _)| *known == code.0) {
                Some((_, count)) => *count += 1,
                None => self.record.resets_received.push((code.0, 1)),
            }
        }
    }

    fn goaway(&mut self, now: Time, last_stream: StreamId, code: ErrorCode, debug: &[u8]) {
        self.record.goaways.push(GoAwayRecord {
            at: now,
            code: code.0,
            last_stream: last_stream.0,
            debug: PeerText::new(debug),
        });
        let beyond: Vec<StreamId> =
            self.carried.keys().rev().copied().take_while(|stream| *stream > last_stream).collect();
        for stream in beyond {
            self.settle(stream, Fate::Unprocessed);
        }
    }

    fn closed(&mut self, now: Time, error: Option<&Error>) {
        let why = || error.map(ToString::to_string).unwrap_or_default();
        match error {
            None => self.finish(now, CloseReason::Server, (Outcome::GoAway, 0)),
            Some(Error::GoAway(code)) => {
                self.finish(now, CloseReason::Broken { why: why() }, (Outcome::GoAway, code.0));
            }
            Some(Error::PeerMisbehaved { code, .. }) => {
                self.finish(now, CloseReason::Local { why: why() }, (Outcome::Protocol, code.0));
            }
            Some(Error::UnexpectedEof(_)) => {
                self.finish(now, CloseReason::Broken { why: why() }, (Outcome::Closed, 0));
            }
            Some(_) => self.finish(now, CloseReason::Local { why: why() }, (Outcome::Protocol, 0)),
        }
    }

    /// Passes as much of a stream's body to the engine as it accepts.
    fn push_body(&mut self, now: Time, stream: StreamId, engine: &mut Connection) {
        let Some(carried) = self.carried.get_mut(&stream) else { return };
        if carried.waits_since.happened() {
            carried.sample.stall_window_ns += nanos(now.since(carried.waits_since));
            carried.waits_since = Time::NEVER;
        }
        let rest = &self.prepared.body[carried.body_taken..];
        if rest.is_empty() {
            return;
        }
        let taken = engine.send_data(now, stream, rest, true);
        carried.body_taken += taken;
        if taken < rest.len() {
            carried.waits_since = now;
        }
    }
}

impl Role for ClientState<'_> {
    fn received(&mut self, now: Time, bytes: &[u8]) {
        self.record.bytes_received += bytes.len() as u64;
        let frames = &mut self.frames;
        self.tap.feed(now, Direction::Down, bytes, &mut |frame| frames.push(frame));
    }

    fn sent(&mut self, now: Time, bytes: &[u8]) {
        self.record.bytes_sent += bytes.len() as u64;
        let frames = &mut self.frames;
        self.tap.feed(now, Direction::Up, bytes, &mut |frame| frames.push(frame));
        while let Some(stream) = self.unsent.front() {
            if let Some(carried) = self.carried.get_mut(stream) {
                if carried.head_end > self.record.bytes_sent {
                    break;
                }
                if !carried.sample.sent_at.happened() {
                    // The model's generator is never late: the socket delayed the head.
                    carried.sample.stall_socket_ns = nanos(now.since(carried.begun_at));
                    carried.sample.sent_at = now;
                }
            }
            self.unsent.pop_front();
        }
    }

    fn note(&mut self, now: Time, event: &Event<'_>) {
        match *event {
            Event::Response { stream, head, end_stream } => {
                if let Some(carried) = self.carried.get_mut(&stream) {
                    carried.sample.first_byte_at = now;
                    carried.sample.status = head.status;
                }
                if end_stream {
                    self.settle(stream, Fate::Complete);
                }
            }
            Event::Data { stream, data, end_stream } => {
                self.body_arrived(now, stream, data.len() as u32);
                if end_stream {
                    self.settle(stream, Fate::Complete);
                }
            }
            Event::Trailers { stream, .. } => {
                self.settle(stream, Fate::Complete);
            }
            Event::Writable { stream } => self.writable.push(stream),
            Event::Reset { stream, code, initiator } => self.reset(stream, code, initiator),
            Event::GoAway { last_stream, code, debug } => self.goaway(now, last_stream, code, debug),
            Event::Closed { ref error } => self.closed(now, error.as_ref()),
            _ => {} // interim responses, SETTINGS and PING change nothing here
        }
    }

    fn at_end(&mut self, now: Time) {
        self.finish(now, CloseReason::Server, (Outcome::GoAway, 0));
    }

    fn broken(&mut self, now: Time) {
        self.finish(now, CloseReason::Broken { why: "reset".to_owned() }, (Outcome::Closed, 0));
    }

    fn act(&mut self, now: Time, engine: &mut Connection) -> bool {
        let mut acted = false;
        if let Some(reader) = &mut self.reader {
            while let Some(&(_, stream, bytes)) = reader.pieces.front().filter(|(at, ..)| *at <= now) {
                reader.pieces.pop_front();
                engine.release(now, stream, bytes);
                acted = true;
            }
        }
        while let Some(stream) = self.writable.pop() {
            self.push_body(now, stream, engine);
            acted = true;
        }
        acted
    }

    fn is_over(&self) -> bool {
        self.over
    }
}

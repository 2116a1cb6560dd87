//! HTTP/2 (RFC 9113): frames, header compression, flow control, streams, for both roles.
//!
//! [`Connection`] is one state machine over two byte buffers. Receiving is lazy: [`Connection::poll_event`] takes the
//! next frame out of the input buffer, checks it, and lends it as an event. Sending is eager: every command encodes its
//! frames at the end of the output buffer at once, so that the HEADERS and DATA of a request leave in one write.
//!
//! | file | what it decides |
//! |---|---|
//! | [`frame`], `settings`, `hpack/`, `preface` | bytes ↔ values |
//! | `flow`, `stream`, `streams`, `wire/message`, `wire/content` | what is legal |
//! | `connection`, `control`, `headers` | how received frames change the state |
//! | `send`, `push`, `backlog`, `send_scheduler`, `priority` | what we send, and in which order |
//! | `tuning` | how large the windows are that we announce |
//! | `shutdown` | errors, deadlines, GOAWAY, the end |
//! | `keep_alive` | liveness of a silent peer |
//! | `limits` | limits on what a peer may do |
//! | `upgrade` | how it begins after HTTP/1.1 |
//! | [`inspect`] | decoding for an observer of a connection |
//!
//! A stream that the role resets is gone at once: there is no [`Event::Reset`] for its own reset. A request that is
//! malformed or refused is answered with RST_STREAM and never shown to the server role.

mod backlog;
mod buffer;
mod connection;
mod control;
mod credit_watch;
mod fault;
mod flow;
pub mod frame;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod headers;
mod hpack;
pub mod inspect;
mod keep_alive;
mod limits;
mod preface;
mod priority;
mod push;
pub mod raw;
mod send;
mod send_scheduler;
mod settings;
mod shutdown;
mod stream;
mod streams;
#[cfg(test)]
mod tests;
mod tuning;
mod upgrade;

use std::sync::Arc;
use std::time::Duration;

use self::backlog::Backlog;
use self::buffer::{Input, Output};
use self::connection::least_payload;
use self::credit_watch::CreditWatch;
use self::flow::{ReceiveWindow, SendWindow};
use self::frame::{FrameHeader, HEADER_LENGTH, MAX_31_BITS, PREFACE, kind};
use self::headers::Assembly;
use self::hpack::{Decoder, Encoder};
use self::keep_alive::KeepAlive;
use self::send::CachedHeaderBlock;
pub use self::settings::id as setting;
use self::settings::{DEFAULT_WINDOW, MAX_FRAME_SIZE, MIN_FRAME_SIZE, PeerSettings};
use self::shutdown::{Drain, Handshake, Pings};
use self::streams::Streams;
use self::tuning::Tuner;
pub(crate) use self::upgrade::{announced_settings, are_client_settings};
use super::compression::FieldList;
use super::connection::{Config, Counters, Refused, SettingValues};
use super::ending::End;
use super::limits::accounts::Accounts;
use super::limits::deadlines::Deadlines;
use super::message::{RequestParts, ResponseParts};
use super::own_answers::OwnAnswers;
use super::priority::EarlyPriorities;
use super::{ErrorCode, Event, Initiator, Role, StreamId};
use h2lab_base::units::Time;

/// How many requests may be begun before the peer has said how many it accepts (RFC 9113 §6.5.2 recommends that it be
/// at least 100).
const STREAMS_BEFORE_SETTINGS: u32 = 100;

/// An HTTP/2 connection. See [`super::Connection`] for what its methods mean; they are the same.
#[derive(Debug)]
pub struct Connection {
    config: Arc<Config>,
    counters: Counters,
    input: Input,
    /// The rest of a DATA frame of which the role already has a piece.
    rest: Option<FrameHeader>,
    output: Output,
    decoder: Decoder,
    encoder: Encoder,
    /// The last request's block.
    cached_header_block: CachedHeaderBlock,
    /// The field block under way.
    assembly: Assembly,
    /// The fields of the last block, lent to the role.
    fields: FieldList,
    /// The request in the last block, if it is one.
    request: RequestParts,
    /// See [`super::Connection::take_refused`].
    refused: Option<Refused>,
    /// See [`super::Connection::set_own_answers`].
    own_answers: Option<Arc<OwnAnswers>>,
    /// The response in the last block, if it is known to be one.
    response: ResponseParts,
    is_response_known: bool,
    streams: Streams,
    peer_settings: PeerSettings,
    send_window: SendWindow,
    receive_window: ReceiveWindow,
    /// Whether the peer used up the connection's receive window.
    credit_watch: CreditWatch,
    /// When the peer was last seen to acknowledge bytes that the transport had taken before.
    took_at: Time,
    /// The least time from a WINDOW_UPDATE of ours to data that needed it; [`Duration::MAX`] before any.
    credit_rtt: Duration,
    /// The receive window of new streams: before our SETTINGS are acknowledged, the larger of ours and the default.
    stream_window: u32,
    tuner: Tuner,
    /// The role releases by hand on some stream: only then each stream is checked.
    any_by_hand: bool,
    backlog: Backlog,
    /// Priorities received before their requests.
    early_priorities: EarlyPriorities,
    /// The next stream that we may begin.
    next_local: u32,
    /// The highest stream that the peer began.
    highest_peer: u32,
    handshake: Handshake,
    pings: Pings,
    keep_alive: KeepAlive,
    drain: Drain,
    accounts: Accounts,
    deadlines: Deadlines,
    end: End,
}

/// An event without borrowed parts: [`Connection::lend`] makes an [`Event`] of it. It is moved for every frame, so
/// large parts stay elsewhere: heads in [`Connection::request`] and [`Connection::response`], why the connection closed
/// in [`Connection::end`].
#[derive(Debug, Clone, Copy)]
enum Occurrence {
    Request { stream: u32, end_stream: bool },
    Response { stream: u32, end_stream: bool },
    Data { stream: u32, start: usize, end: usize, end_stream: bool },
    Trailers { stream: u32 },
    PushPromise { stream: u32, promised: u32 },
    Writable { stream: u32 },
    Reset { stream: u32, code: ErrorCode, initiator: Initiator },
    GoAway { last_stream: u32, code: ErrorCode, debug_start: usize },
    Settings,
    Pong { rtt: Duration },
    Closed,
}

/// The result of receiving something: an event for the role, if any.
type Received = Result<Option<Occurrence>, fault::Fault>;

impl Connection {
    /// A connection by prior knowledge or ALPN: the preface, SETTINGS and, if the connection window is larger than the
    /// initial one, a WINDOW_UPDATE are queued at once. Values outside the ranges of [`Config`] are clamped.
    pub fn new(config: impl Into<Arc<Config>>, now: Time) -> Self {
        let mut connection = Self::silent(config.into(), now);
        connection.greet();
        connection
    }

    /// A connection that has sent nothing yet.
    fn silent(mut config: Arc<Config>, now: Time) -> Self {
        let in_range = clamped(*config);
        if in_range != *config {
            config = in_range.into();
        }
        let flow = config.flow;
        Self {
            counters: Counters::default(),
            input: Input::new(),
            rest: None,
            output: Output::default(),
            decoder: Decoder::new(config.header_table_size),
            encoder: Encoder::with(config.encoder_table_size, config.huffman),
            cached_header_block: CachedHeaderBlock::default(),
            assembly: Assembly::default(),
            fields: FieldList::with_most_decoded(
                config.max_header_list_size,
                config.limits.field_list_factor,
            ),
            request: RequestParts::default(),
            refused: None,
            own_answers: None,
            response: ResponseParts::default(),
            is_response_known: false,
            streams: Streams::new(),
            peer_settings: PeerSettings::default(),
            send_window: SendWindow::new(DEFAULT_WINDOW),
            receive_window: ReceiveWindow::new(flow.connection_window),
            credit_watch: CreditWatch::NEW,
            took_at: Time::ZERO,
            credit_rtt: Duration::MAX,
            stream_window: flow.stream_window.max(DEFAULT_WINDOW),
            tuner: Tuner::new(&flow, now),
            any_by_hand: false,
            backlog: Backlog::default(),
            early_priorities: EarlyPriorities::default(),
            next_local: if config.role == Role::Client { 1 } else { 2 },
            highest_peer: 0,
            handshake: Handshake::new(config.role, now + config.peer_timeout),
            pings: Pings::default(),
            keep_alive: KeepAlive::new(config.keep_alive, now),
            drain: Drain::default(),
            accounts: Accounts::new(config.limits, config.flow.connection_window, now),
            deadlines: Deadlines::begun(Arc::clone(&config), now),
            end: End::Open,
            config,
        }
    }

    fn greet(&mut self) {
        if self.config.role == Role::Client {
            self.output.tail().extend_from_slice(PREFACE);
        }
        self.output.frames_follow();
        let settings = settings::announce(&self.config);
        self.put_frame(kind::SETTINGS, 0, 0, &settings);
        let increment = self.config.flow.connection_window - DEFAULT_WINDOW;
        if increment > 0 {
            self.put_frame(kind::WINDOW_UPDATE, 0, 0, &increment.to_be_bytes());
        }
    }

    /// The number of streams whose bodies [`Connection::announced`] adds up: a few long ones are enough to wait for.
    const LOOKED_AT: usize = 16;

    /// See [`super::Connection::recv_space`].
    pub fn recv_space(&mut self) -> &mut [u8] {
        let begun = self.input.unread().first_chunk().filter(|_| self.rest.is_none()).map(FrameHeader::parse);
        // A frame that is too large will be refused by its header; no room is made for it.
        let begun = begun.filter(|header| header.length <= self.config.max_frame_size);
        self.input.space(begun.map_or(0, |header| HEADER_LENGTH + least_payload(header)))
    }

    /// See [`super::Connection::expected`].
    pub fn expected(&self) -> u64 {
        let left = self.rest.map_or(0, |rest| rest.length as usize);
        left.saturating_sub(self.input.unread().len()) as u64
    }

    /// See [`super::Connection::announced`].
    pub fn announced(&self) -> u64 {
        let due = |stream: &stream::Stream| stream.content.due().min(stream.receive.quarter());
        let bodies: u64 = self.streams.iter().take(Self::LOOKED_AT).map(due).sum();
        let bodies = bodies.min(self.receive_window.quarter());
        bodies.saturating_sub(self.input.unread().len() as u64).max(self.expected())
    }

    /// See [`super::Connection::handle_received`].
    pub fn handle_received(&mut self, now: Time, n: usize) {
        self.deadlines.received(now, n);
        self.keep_alive.note_received(now);
        self.input.filled(n);
    }

    /// See [`super::Connection::handle_transmitted`].
    pub fn handle_transmitted(&mut self, now: Time, n: usize) {
        self.deadlines.transmitted(now, n);
        if !self.wants_input() {
            self.deadlines.excuse_bodies();
        }
        self.output.consume(n);
        self.pings.transmitted(n);
        self.output_drained();
    }

    /// See [`super::Connection::poll_event`].
    pub fn poll_event(&mut self, now: Time) -> Option<Event<'_>> {
        let occurrence = self.advance(now);
        if occurrence.is_none() {
            self.backlog.all_events_taken();
        }
        occurrence.map(|occurrence| self.lend(occurrence))
    }

    /// See [`super::Connection::poll_transmit`].
    pub fn poll_transmit(&mut self, now: Time) -> &[u8] {
        self.deadlines.output_waits(now, self.output.len() > 0);
        self.pings.offered(self.output.len());
        if self.config.coalesce { self.output.pending() } else { self.output.pending_frame() }
    }

    /// See [`super::Connection::is_scattered`].
    pub fn is_scattered(&self) -> bool {
        self.output.is_scattered()
    }

    /// See [`super::Connection::poll_transmit_slices`].
    pub fn poll_transmit_slices<'a>(&'a mut self, now: Time, into: &mut [&'a [u8]]) -> usize {
        self.poll_transmit(now);
        self.output.slices(into)
    }

    /// See [`super::Connection::unsent`].
    pub const fn unsent(&self) -> usize {
        self.output.len()
    }

    /// See [`super::Connection::available_streams`].
    pub fn available_streams(&self) -> u32 {
        if self.config.role == Role::Server || self.is_draining() {
            return 0;
        }
        let limit = if self.is_established() {
            self.peer_settings.max_concurrent_streams
        } else if self.config.await_settings {
            0
        } else {
            STREAMS_BEFORE_SETTINGS
        };
        limit.saturating_sub(self.streams.requested())
    }

    /// See [`super::Connection::open_streams`].
    pub fn open_streams(&self) -> u32 {
        self.streams.len()
    }

    /// See [`super::Connection::set_own_answers`].
    pub fn set_own_answers(&mut self, own: Option<Arc<OwnAnswers>>) {
        self.own_answers = own;
    }

    /// See [`super::Connection::take_refused`].
    pub const fn take_refused(&mut self) -> Option<Refused> {
        self.refused.take()
    }

    /// See [`super::Connection::is_established`].
    pub fn is_established(&self) -> bool {
        self.handshake.is_established()
    }

    /// See [`super::Connection::takes_connect_protocol`].
    pub fn takes_connect_protocol(&self) -> bool {
        self.config.role == Role::Client && self.peer_settings.connect_protocol
    }

    /// See [`super::Connection::settings_in_effect`].
    pub fn settings_in_effect(&self) -> (SettingValues, SettingValues) {
        let (ours, theirs) = match self.config.role {
            Role::Client => (Role::Client, Role::Server),
            Role::Server => (Role::Server, Role::Client),
        };
        let remote = self.is_established().then(|| self.peer_settings.in_effect(theirs));
        (PeerSettings::of(&self.config).in_effect(ours), remote.unwrap_or_default())
    }

    /// See [`super::Connection::wants_input`].
    pub fn wants_input(&self) -> bool {
        let limits = &self.config.limits;
        self.output.len() <= limits.unread_output && self.pings.queued_answers() <= limits.unread_answers
    }

    /// See [`super::Connection::held_bytes`].
    pub fn held_bytes(&self) -> usize {
        let buffers = self.input.held() + self.output.held() + self.assembly.held() + self.fields.held();
        let tables = self.decoder.held() + self.encoder.held();
        size_of::<Self>()
            + buffers
            + tables
            + self.streams.held()
            + self.backlog.held()
            + self.accounts.held()
    }

    /// See [`super::Connection::release_memory`].
    pub fn release_memory(&mut self) {
        if self.streams.len() == 0 && self.rest.is_none() && !self.assembly.is_under_way() {
            self.input.release_memory();
            self.output.release_memory();
            self.fields.release_memory();
            self.is_response_known = false;
        }
    }

    /// See [`super::Connection::counters`].
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    fn lend(&mut self, occurrence: Occurrence) -> Event<'_> {
        match occurrence {
            Occurrence::Request { stream, end_stream } => {
                let head = self.request.lend(&self.fields);
                Event::Request { stream: StreamId(stream), head, end_stream }
            }
            Occurrence::Response { stream, end_stream } => {
                let (stream, head) = (StreamId(stream), self.response.lend(&self.fields));
                if head.status < 200 {
                    Event::Interim { stream, head }
                } else {
                    Event::Response { stream, head, end_stream }
                }
            }
            Occurrence::Data { stream, start, end, end_stream } => {
                Event::Data { stream: StreamId(stream), data: self.input.slice(start, end), end_stream }
            }
            Occurrence::Trailers { stream } => {
                Event::Trailers { stream: StreamId(stream), fields: self.fields.starting_at(0) }
            }
            Occurrence::PushPromise { stream, promised } => Event::PushPromise {
                stream: StreamId(stream),
                promised: StreamId(promised),
                head: self.request.lend(&self.fields),
            },
            Occurrence::Writable { stream } => Event::Writable { stream: StreamId(stream) },
            Occurrence::Reset { stream, code, initiator } => {
                Event::Reset { stream: StreamId(stream), code, initiator }
            }
            Occurrence::GoAway { last_stream, code, debug_start } => {
                // To the end of its frame, the last one that was taken.
                let debug = self.input.slice(debug_start, self.input.position());
                Event::GoAway { last_stream: StreamId(last_stream), code, debug }
            }
            Occurrence::Settings => Event::Settings,
            Occurrence::Pong { rtt } => Event::Pong { rtt },
            Occurrence::Closed => Event::Closed { error: self.end.report(|error| error).flatten() },
        }
    }
}

/// The configuration with every value in its range.
fn clamped(mut config: Config) -> Config {
    config.max_frame_size = config.max_frame_size.clamp(MIN_FRAME_SIZE, MAX_FRAME_SIZE);
    config.flow.stream_window = config.flow.stream_window.min(MAX_31_BITS);
    config.flow.connection_window = config.flow.connection_window.clamp(DEFAULT_WINDOW, MAX_31_BITS);
    config.send_buffer = config.send_buffer.max(1);
    config
}

//! HTTP/3 (RFC 9114): frames, header compression (QPACK, RFC 9204), streams and messages, for both roles. QUIC is not
//! part of it.
//!
//! [`Connection`] is one state machine over the bytes of many streams. It speaks the same vocabulary as the other
//! engines, [`crate::Event`] in and out of [`crate::Connection`]; its bytes do not form a single sequence, so that it
//! has an interface of its own for them, see [`transport`].
//!
//! | file | what it decides |
//! |---|---|
//! | [`frame`], `varint`, `settings`, `qpack/` | bytes ↔ values |
//! | `receive`, `control`, `request` | how received bytes change the state, by kind of stream |
//! | `send` | what we send |
//! | [`inspect`] | what an observer of a connection reads |
//! | [`stream`], [`transport`] | how streams are numbered, the interface to QUIC |
//! | `shutdown` | errors, deadlines, GOAWAY, the end |
//!
//! QUIC does what HTTP/2 does itself: flow control, the order of streams, PING, idle timeouts, padding. Not
//! implemented: push (we never send `MAX_PUSH_ID`, so that a server must not), and a dynamic table.
//!
//! As in HTTP/2, a stream that the role resets is gone at once, and a request that is malformed or refused is never
//! shown to the server role. Streams have the numbers of HTTP/2 towards the role: the n-th request is 2n + 1.

mod control;
mod fault;
pub mod frame;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod inspect;
mod limits;
#[cfg(test)]
mod model;
mod qpack;
mod receive;
mod request;
mod send;
mod settings;
mod shutdown;
pub mod stream;
#[cfg(test)]
mod tests;
pub mod transport;
mod varint;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use self::control::{PeerStreams, Uni};
use self::settings::Settings;
pub use self::settings::setting_name;
use self::shutdown::Drain;
use self::stream::{MOST_REQUESTS, Outgoing, QuicStreamId, Stream};
use self::transport::{Action, Arrivals};
use super::compression::FieldList;
use super::connection::{Config, Counters, Refused, SettingValues};
use super::ending::End;
use super::limits::accounts::Accounts;
use super::limits::deadlines::Deadlines;
use super::message::{RequestParts, ResponseParts};
use super::priority::EarlyPriorities;
use super::{Error, ErrorCode, Event, Initiator, Role, StreamId};
use h2lab_base::units::Time;

/// The slot of RST_STREAM among the counters of frames: `RESET_STREAM` and `STOP_SENDING` of QUIC count there, a stream
/// that is aborted in both directions once.
const RESET_SLOT: usize = 3;

/// An HTTP/3 connection. See [`super::Connection`] for what its methods mean, and [`transport`] for those about
/// streams.
#[derive(Debug)]
pub struct Connection {
    config: Arc<Config>,
    counters: Counters,
    arrivals: Arrivals,
    actions: VecDeque<Action>,
    /// Streams with output for the transport, in the order in which it came.
    offers: VecDeque<QuicStreamId>,
    /// Our control stream.
    control: Outgoing,
    /// Bytes that wait for the transport on all streams.
    unsent: usize,
    /// How much of that is body.
    unsent_bodies: usize,
    /// Streams of requests that are not over or still have output, by number.
    streams: BTreeMap<u32, Stream>,
    /// How many of those are not over.
    open: u32,
    /// Streams that may send more body.
    writable: VecDeque<u32>,
    /// Streams whose end has yet to be reported to the role.
    ended: VecDeque<(u32, ErrorCode, Initiator)>,
    /// The peer's unidirectional streams, by number.
    unis: BTreeMap<u64, Uni>,
    peer_streams: PeerStreams,
    /// The fields of the last section, lent to the role.
    fields: FieldList,
    /// The response decoded from the last section.
    known_response: Option<ResponseParts>,
    /// The section that is being written.
    section: Vec<u8>,
    /// The section of the last request, and what it takes as HTTP/1.1 text.
    cached_header_block: (Vec<u8>, u64),
    /// The peer's settings; `None` until they arrive.
    peer_settings: Option<Settings>,
    /// Priorities received before their requests.
    early_priorities: EarlyPriorities,
    /// Client role: how many requests the transport lets us begin in all.
    granted: u64,
    /// The number of the next request: of ours, or the lowest above all that the client has begun.
    next: u32,
    /// Server role: numbers below that whose streams have not begun to arrive.
    late: BTreeSet<u32>,
    /// By when the peer's SETTINGS are due.
    settings_due: Time,
    drain: Drain,
    accounts: Accounts,
    deadlines: Deadlines,
    /// See [`super::Connection::take_refused`].
    refused: Option<Refused>,
    end: End,
}

/// An event without borrowed parts: [`Connection::lend`] makes an [`Event`] of it. Streams are numbers of requests.
#[derive(Debug)]
enum Occurrence {
    Request { request: u32, parts: RequestParts, end_stream: bool },
    Response { request: u32, parts: ResponseParts, end_stream: bool },
    Data { request: u32, start: usize, end: usize, end_stream: bool },
    Trailers { request: u32 },
    Writable { request: u32 },
    Reset { request: u32, code: ErrorCode, initiator: Initiator },
    GoAway { last_stream: StreamId },
    Settings,
    Closed { error: Option<Error> },
}

/// The result of receiving something: an event for the role, if any.
type Received = Result<Option<Occurrence>, fault::Fault>;

impl Connection {
    /// A connection whose handshake is complete; the control stream and SETTINGS are queued at once.
    pub fn new(config: impl Into<Arc<Config>>, now: Time) -> Self {
        let mut config: Arc<Config> = config.into();
        if config.send_buffer == 0 {
            Arc::make_mut(&mut config).send_buffer = 1;
        }
        let mut connection = Self {
            counters: Counters::default(),
            arrivals: Arrivals::default(),
            actions: VecDeque::new(),
            offers: VecDeque::new(),
            control: Outgoing::new(),
            unsent: 0,
            unsent_bodies: 0,
            streams: BTreeMap::new(),
            open: 0,
            writable: VecDeque::new(),
            ended: VecDeque::new(),
            unis: BTreeMap::new(),
            peer_streams: PeerStreams::default(),
            fields: FieldList::with_most_decoded(
                config.max_header_list_size,
                config.limits.field_list_factor,
            ),
            known_response: None,
            section: Vec::new(),
            cached_header_block: (Vec::new(), 0),
            peer_settings: None,
            early_priorities: EarlyPriorities::default(),
            granted: 0,
            next: 0,
            late: BTreeSet::new(),
            settings_due: now + config.peer_timeout,
            drain: Drain::default(),
            accounts: Accounts::new(config.limits, config.flow.connection_window, now),
            deadlines: Deadlines::begun(Arc::clone(&config), now),
            refused: None,
            end: End::Open,
            config,
        };
        connection.greet();
        connection
    }

    /// See [`super::Connection::poll_event`].
    pub fn poll_event(&mut self, now: Time) -> Option<Event<'_>> {
        let occurrence = self.advance(now)?;
        Some(self.lend(occurrence))
    }

    /// See [`super::Connection::unsent`]: on all streams.
    pub const fn unsent(&self) -> usize {
        self.unsent
    }

    /// See [`super::Connection::available_streams`]: what [`Connection::handle_streams_granted`] leaves.
    pub fn available_streams(&self) -> u32 {
        if self.config.role == Role::Server || self.is_draining() {
            return 0;
        }
        let granted = self.granted.min(u64::from(MOST_REQUESTS)) as u32;
        granted.saturating_sub(self.next)
    }

    /// See [`super::Connection::take_refused`].
    pub const fn take_refused(&mut self) -> Option<Refused> {
        self.refused.take()
    }

    /// See [`super::Connection::open_streams`].
    pub const fn open_streams(&self) -> u32 {
        self.open
    }

    /// See [`super::Connection::is_established`].
    pub const fn is_established(&self) -> bool {
        self.peer_settings.is_some()
    }

    /// See [`super::Connection::is_output_full`]. Whether QUIC's windows or congestion control block is not visible
    /// here; it is the transport in either case.
    pub fn is_output_full(&self) -> bool {
        self.unsent > 0
    }

    /// See [`super::Connection::takes_connect_protocol`].
    pub fn takes_connect_protocol(&self) -> bool {
        self.config.role == Role::Client && self.peer().connect_protocol
    }

    /// See [`super::Connection::settings_in_effect`]; their names are those of [`setting_name`].
    pub fn settings_in_effect(&self) -> (SettingValues, SettingValues) {
        let theirs = self.peer_settings.map(Settings::in_effect);
        (Settings::of(&self.config).in_effect(), theirs.unwrap_or_default())
    }

    /// The peer's settings, or the initial values until they arrive.
    fn peer(&self) -> Settings {
        self.peer_settings.unwrap_or_default()
    }

    /// See [`super::Connection::wants_input`]. Bodies do not count: each stream has its windows, so that many bodies
    /// may wait without a fault of the peer; `send_data` bounds them.
    pub fn wants_input(&self) -> bool {
        self.unsent - self.unsent_bodies <= self.config.limits.unread_output
    }

    /// See [`super::Connection::held_bytes`].
    pub fn held_bytes(&self) -> usize {
        let streams: usize = self.streams.values().map(Stream::held_bytes).sum();
        let unis: usize = self.unis.values().map(Uni::held_bytes).sum();
        let queues = self.offers.capacity() * size_of::<QuicStreamId>()
            + self.actions.capacity() * size_of::<Action>()
            + (self.writable.capacity() + self.late.len()) * size_of::<u32>()
            + self.peer_streams.held_bytes();
        let buffers = self.arrivals.held() + self.fields.held() + self.section.capacity();
        size_of::<Self>() + streams + unis + queues + buffers + self.cached_header_block.0.capacity()
    }

    /// See [`super::Connection::counters`].
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    fn lend(&self, occurrence: Occurrence) -> Event<'_> {
        let id = StreamId::of_request;
        match occurrence {
            Occurrence::Request { request, parts, end_stream } => {
                Event::Request { stream: id(request), head: parts.lend(&self.fields), end_stream }
            }
            Occurrence::Response { request, parts, .. } if parts.status < 200 => {
                Event::Interim { stream: id(request), head: parts.lend(&self.fields) }
            }
            Occurrence::Response { request, parts, end_stream } => {
                Event::Response { stream: id(request), head: parts.lend(&self.fields), end_stream }
            }
            Occurrence::Data { request, start, end, end_stream } => {
                Event::Data { stream: id(request), data: self.arrivals.slice(start, end), end_stream }
            }
            Occurrence::Trailers { request } => {
                Event::Trailers { stream: id(request), fields: self.fields.starting_at(0) }
            }
            Occurrence::Writable { request } => Event::Writable { stream: id(request) },
            Occurrence::Reset { request, code, initiator } => {
                Event::Reset { stream: id(request), code, initiator }
            }
            Occurrence::GoAway { last_stream } => {
                Event::GoAway { last_stream, code: ErrorCode::H3_NO_ERROR, debug: &[] }
            }
            Occurrence::Settings => Event::Settings,
            Occurrence::Closed { error } => Event::Closed { error },
        }
    }
}

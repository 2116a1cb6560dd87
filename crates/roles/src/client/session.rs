//! One connection that carries requests: transport, engine and bookkeeping, the same for every protocol.

use std::cell::Cell;
use std::time::Duration;

use h2lab_base::counters::TcpTick;
use h2lab_base::units::{Time, nanos};
use h2lab_model::record::connection::count_one;
use h2lab_model::record::{ConnectionRecord, Outcome};
use h2lab_wire::connection::Request;
use h2lab_wire::trace::{Crossing, Dialect, Direction};
use h2lab_wire::{Config, Connection, ErrorCode, Field, StreamId};

use super::connect::{DialTarget, Established, UpgradeOffer};
use super::connection_statistics::{ConnectionStatistics, SessionEnd};
use super::observer::Observer;
use super::request::Outgoing;
use super::request_observer::{NoObserver, RequestEnd, RequestObserver};
use super::streams::Carried;
use super::watch::WatchEvent;
use h2lab_net::clock::Clock;
use h2lab_net::quic::QuicSession;
use h2lab_net::receive_buffer;
use h2lab_net::tcp::StreamSocket;
use h2lab_net::tcp_info::TcpInfo;
use h2lab_net::transport::{Received, Sent, Transport, TransportError};

/// The slot of `PUSH_PROMISE` among the counters of frames.
const PUSH_PROMISE: usize = 5;

/// One connection and the requests on it.
///
/// After any call check [`ClientSession::end`]: once it is set, every request has been reported and only
/// [`ClientSession::into_record`] is left to do.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "what socket and engine are ready for is independent")]
pub struct ClientSession {
    transport: Transport,
    engine: Connection,
    /// The engine's configuration.
    config: Config,
    observer: Observer,
    statistics: ConnectionStatistics,
    /// Our own limit of concurrent streams.
    limit: u32,
    /// The socket is full: only a completion makes writing worthwhile again.
    blocked: bool,
    /// Since when it is.
    blocked_since: Time,
    /// Some bodies wait, and may continue once something was written or has arrived.
    is_short: bool,
    /// The socket may have more to read: it was the others' turn, or too much of our output waits for the server to read it.
    unread: bool,
    /// The server has finished sending; what it sent may not have been read yet.
    hangup: bool,
    /// The kind of the last request, or [`ClientSession::NO_KIND`].
    last_kind: u16,
    /// Whether a server that has a whole request and stays silent is to blame, see [`DialTarget::blames_silence`].
    blames_silence: bool,
    /// See [`DialTarget::gathers`].
    gathers: bool,
    /// See [`DialTarget::turn`].
    turn: usize,
    /// Why this session gets no further requests, if it gets none. It ends when its requests are over.
    leaving: Option<&'static str>,
}

impl ClientSession {
    /// No request was sent yet, or the last one was a template: the next head cannot reuse the one before it.
    const NO_KIND: u16 = u16::MAX;

    /// Puts an engine on an established connection that carries up to `limit` requests at a time and whose windows may
    /// have `window_limit` bytes. Call [`ClientSession::receive`] and [`ClientSession::flush`] next.
    pub fn open(
        established: Established,
        target: &DialTarget,
        limit: u32,
        window_limit: u32,
        now: Time,
    ) -> Self {
        let multiplexed = target.protocol.is_multiplexed();
        let config = Config { flow: target.engine.flow.within(window_limit), ..target.engine };
        let dialect = Dialect::of(multiplexed, target.protocol.is_quic());
        let mut engine = match (&target.upgrade, dialect) {
            (Some(UpgradeOffer::ByRequest), _) => Connection::h2c_upgrade_by_request(config),
            (Some(UpgradeOffer::ByOptions { authority }), _) => {
                Connection::h2c_upgrade(config, authority, now)
            }
            (None, Dialect::Http1) => Connection::h1(config),
            (None, Dialect::Http2) => Connection::h2(config, now),
            (None, Dialect::Http3) => Connection::h3(config, now),
        };
        let Established { mut transport, record } = established;
        if let Some(quic) = transport.quic_mut() {
            quic.expect_streams(limit);
        }
        transport.limit_windows(&mut engine, &config, window_limit);
        target.show(now, WatchEvent::Ready { record: &record, tls: transport.tls_facts() });
        if let Some(tcp) = transport.tcp().filter(|_| target.gathers) {
            receive_buffer::bound(tcp);
        }
        Self {
            observer: Observer::new(target, dialect, record.index),
            transport,
            engine,
            config,
            statistics: ConnectionStatistics {
                record: *record,
                multiplexed,
                by_stream: target.protocol.is_quic(),
                ..ConnectionStatistics::default()
            },
            limit: if multiplexed { limit.max(1) } else { 1 },
            blocked: false,
            blocked_since: Time::NEVER,
            is_short: false,
            unread: false,
            hangup: false,
            last_kind: Self::NO_KIND,
            blames_silence: target.blames_silence,
            gathers: target.gathers,
            turn: target.turn,
            leaving: None,
        }
    }

    /// From now on windows have at most `bytes` bytes. [`ClientSession::flush`] grants the server the credit that this
    /// allows.
    pub fn limit_windows(&mut self, bytes: u32) {
        self.transport.limit_windows(&mut self.engine, &self.config, bytes);
    }

    /// How many requests may be begun now: none while the server does not read, since more would only queue up.
    pub fn available(&self) -> u32 {
        if self.statistics.end.is_some() || self.leaving.is_some() || !self.engine.wants_input() {
            return 0;
        }
        self.engine.available_streams().min(self.limit.saturating_sub(self.statistics.streams.open()))
    }

    /// Requests in flight.
    pub const fn open_streams(&self) -> u32 {
        self.statistics.streams.open()
    }

    /// Whether it will take no further requests.
    pub fn is_draining(&self) -> bool {
        self.statistics.end.is_some() || self.leaving.is_some() || self.engine.is_draining()
    }

    /// Whether the server has shown that it speaks our protocol; HTTP/1.1 servers show nothing until asked.
    pub fn is_established(&self) -> bool {
        self.engine.is_established()
    }

    /// Whether requests can begin without waiting for anything from the server.
    pub fn is_usable(&self) -> bool {
        self.engine.is_usable()
    }

    /// Its number in the cell.
    pub const fn index(&self) -> u32 {
        self.statistics.record.index
    }

    /// Whether the server ended it within `time` before it had completed a single response. If we ended it, the server is not to
    /// blame.
    pub const fn was_useless(&self, time: Duration) -> bool {
        let record = &self.statistics.record;
        let short = record.closed_at.since(record.ready_at).as_nanos() < time.as_nanos();
        short
            && self.statistics.responses == 0
            && !matches!(self.statistics.end, None | Some(SessionEnd::Local(_)))
    }

    /// Responses that were complete.
    pub const fn responses(&self) -> u32 {
        self.statistics.responses
    }

    /// Whether [`ClientSession::receive`] must be called again without a new event of the socket: it stopped early.
    pub fn has_unread(&self) -> bool {
        self.unread && self.statistics.end.is_none() && self.may_read()
    }

    /// To be called when everything available has been read: sets how many bytes must arrive before
    /// [`ClientSession::receive`] is called again. With [`DialTarget::gathers`] the number set before may have been too
    /// large; what has arrived by now is then reported by a completion.
    pub fn look(&mut self, now: Time) {
        self.transport.rest(&self.engine, self.gathers, now);
    }

    /// Whether to read now. After the server has finished, always: there is no more to come.
    fn may_read(&self) -> bool {
        self.hangup || self.transport.may_receive(&self.engine)
    }

    /// Requests that were begun.
    pub const fn requests(&self) -> u32 {
        self.statistics.record.requests
    }

    /// Bytes that the server's kernel has acknowledged so far, as they went over TCP, and whether more are still to be
    /// acknowledged; `None` for QUIC, which queues no more than it may send.
    pub fn bytes_taken(&self) -> Option<(u64, bool)> {
        let info = TcpInfo::of(self.transport.tcp()?).ok()?;
        Some((info.bytes_acked, info.unacked > 0 || info.unsent_bytes > 0))
    }

    /// Bytes of requests in the engine or the socket, not yet taken by the server's kernel.
    pub fn left_behind(&self) -> u64 {
        let queued = self.engine.unsent() as u64;
        let Some(info) = self.transport.tcp().and_then(|tcp| TcpInfo::of(tcp).ok()) else { return queued };
        // The socket of a broken connection reports no unsent bytes, hence this difference. `bytes_acked` includes
        // TLS's overhead, which makes the difference too small, but a live socket's unsent bytes count in any case.
        let unknown = self.statistics.record.bytes_sent.saturating_sub(info.bytes_acked);
        queued + unknown.max(u64::from(info.unsent_bytes))
    }

    /// Bytes received so far, in clear.
    pub const fn bytes_received(&self) -> u64 {
        self.statistics.record.bytes_received
    }

    /// Bytes sent so far, in clear.
    pub const fn bytes_sent(&self) -> u64 {
        self.statistics.record.bytes_sent
    }

    /// Bytes that wait to be sent.
    pub fn unsent(&self) -> usize {
        self.engine.unsent()
    }

    /// Why it has ended; `None` while it is alive.
    pub const fn end(&self) -> Option<&SessionEnd> {
        self.statistics.end.as_ref()
    }

    /// When [`ClientSession::expire`] must be called.
    pub fn deadline(&self) -> Time {
        self.engine.poll_timeout().min(self.transport.timeout())
    }

    /// Begins `request`, which is the `prepared` one with this number, and returns its stream. Returns `None` if no
    /// stream is available, or if the server does not read, as in [`ClientSession::available`].
    /// [`ClientSession::flush`] sends the request. All requests of a session come from the same `prepared`.
    pub fn begin(
        &mut self,
        now: Time,
        request: u32,
        number: u64,
        prepared: &impl Outgoing,
        exchange: &mut impl RequestObserver,
    ) -> Option<StreamId> {
        if !self.engine.wants_input() {
            return None;
        }
        let kind = prepared.kind(number);
        let before = self.engine.unsent();
        let is_offer = !self.engine.is_established() && self.engine.is_usable();
        let (engine, again) = (&mut self.engine, kind == self.last_kind);
        // In HTTP/1.1 only a body of unknown length can have trailers.
        let declares_length = self.statistics.multiplexed || !prepared.has_trailers(number);
        let (http, has_priorities) = (&mut self.statistics.record.http, self.statistics.multiplexed);
        let (stream, body_left) = prepared.with_head(number, |head| {
            let body = head.body_length.unwrap_or(0);
            let head = Request { body_length: head.body_length.filter(|_| declares_length), ..*head };
            let stream =
                if again { engine.send_request_again(now, &head) } else { engine.send_request(now, &head) };
            if has_priorities
                && let (Some(stream), Some(field)) =
                    (stream, head.fields.iter().find(|field| is_priority(field)))
            {
                http.note_priority(stream, field.value);
            }
            stream.map(|stream| (stream, body))
        })?;
        // The head that follows an upgrade offer is the first one of HTTP/2.
        self.last_kind = if prepared.is_constant(kind) && !is_offer { kind } else { Self::NO_KIND };
        let head_end = self.place(0, before);
        let record = &mut self.statistics.record;
        record.requests += 1;
        record.highest_stream = record.highest_stream.max(stream);
        let carried = Carried {
            request,
            number,
            body_left,
            blocked_since: Time::NEVER,
            answered: false,
            begun_at: now,
            head_end,
            end: head_end,
            sent: 0,
            is_sent: false,
            received_before: record.bytes_received,
            written_before: self.transport.tcp().map_or(0, StreamSocket::written),
        };
        self.statistics.streams.insert(stream, carried);
        if body_left > 0 {
            self.push_body(now, stream, prepared, exchange);
        }
        Some(stream)
    }

    /// The position after what was just queued for a stream: in the bytes of the connection, or in those of the stream
    /// if positions are counted on each stream. `so_far` is the position before, `before` is how many bytes waited
    /// ahead.
    fn place(&self, so_far: u64, before: usize) -> u64 {
        let unsent = self.engine.unsent();
        if self.statistics.by_stream {
            so_far + unsent.saturating_sub(before) as u64
        } else {
            self.statistics.record.bytes_sent + unsent as u64
        }
    }

    /// Passes the engine as much of a stream's body as it takes. If the next piece was missing, the role calls this
    /// again.
    pub fn push_body(
        &mut self,
        now: Time,
        stream: StreamId,
        prepared: &impl Outgoing,
        exchange: &mut impl RequestObserver,
    ) {
        let Some(carried) = self.statistics.streams.get_mut(stream) else { return };
        if carried.blocked_since.happened() {
            exchange.waited_for_window(carried.request, now.since(carried.blocked_since));
            carried.blocked_since = Time::NEVER;
        }
        let (number, mut body_left, mut end) = (carried.number, carried.body_left, carried.end);
        let (request, has_trailers) = (carried.request, prepared.has_trailers(number));
        let mut blocked_since = Time::NEVER;
        while body_left > 0 {
            let before = self.engine.unsent();
            let engine = &mut self.engine;
            let (taken, whole, is_dry) = prepared.with_piece(number, body_left, |piece, last| {
                let taken = engine.send_data(now, stream, piece, last && !has_trailers);
                (taken, taken == piece.len(), piece.is_empty())
            });
            body_left -= taken as u64;
            if taken > 0 {
                exchange.body_sent(request, now, taken);
            }
            if body_left == 0 && has_trailers {
                let engine = &mut self.engine;
                prepared.with_trailers(number, |fields| engine.send_trailers(now, stream, fields));
            }
            end = self.place(end, before);
            if is_dry {
                exchange.body_ran_dry(request);
                break;
            }
            if !whole {
                self.is_short = true;
                // If the socket or our own buffer is full, the body waits for that, not for the window.
                let is_full = self.blocked || self.engine.is_output_full();
                blocked_since = if is_full { Time::NEVER } else { now };
                break;
            }
        }
        if let Some(carried) = self.statistics.streams.get_mut(stream) {
            (carried.body_left, carried.end, carried.blocked_since) = (body_left, end, blocked_since);
        }
    }

    /// Reads what the socket has, up to [`DialTarget::turn`], and acts on it; see [`ClientSession::has_unread`]. `hangup`:
    /// the completion reported a hangup.
    pub fn receive(
        &mut self,
        clock: Clock,
        hangup: bool,
        prepared: &impl Outgoing,
        exchange: &mut impl RequestObserver,
    ) {
        self.hangup |= hangup;
        self.unread = false;
        let mut turn = 0;
        while self.statistics.end.is_none() {
            if turn > self.turn || !self.may_read() {
                self.unread = true;
                break;
            }
            let (statistics, observer, latest) =
                (&mut self.statistics, &mut self.observer, Cell::new(Time::ZERO));
            let time = || {
                latest.set(clock.now());
                latest.get()
            };
            let received = self.transport.receive(&mut self.engine, time, &mut |at, crossing| {
                if let Crossing::Bytes { bytes, .. } = crossing {
                    statistics.record.bytes_received += bytes.len() as u64;
                }
                observer.see(at, Direction::Down, crossing, exchange);
            });
            let now = latest.get();
            match received {
                Ok(Received::Bytes(n)) => {
                    turn += n;
                    self.take_events(now, prepared, exchange);
                    if self.transport.is_drained() && !self.hangup {
                        self.look(now);
                        break;
                    }
                }
                Ok(Received::WouldBlock) => {
                    self.look(now);
                    break;
                }
                Ok(Received::Eof) => {
                    self.note_acknowledged();
                    self.take_events(now, prepared, exchange);
                    self.finish(now, SessionEnd::Orderly, exchange);
                }
                Err(error) => self.finish(now, SessionEnd::Transport(error), exchange),
            }
        }
    }

    /// The server has closed the connection: records how many of our bytes had reached it by then. After a reset this
    /// is unknown: the kernel does not count what a reset acknowledges.
    fn note_acknowledged(&mut self) {
        if self.statistics.streams.open() > 0
            && let Some(info) = self.transport.tcp().and_then(|tcp| TcpInfo::of(tcp).ok())
        {
            // We dialled, so the first byte is our SYN.
            self.statistics.acknowledged = Some(info.bytes_acked.saturating_sub(1));
        }
    }

    /// The connection is over, whatever the engine had left to report.
    fn finish(&mut self, now: Time, end: SessionEnd, exchange: &mut impl RequestObserver) {
        if self.statistics.end.is_none() && self.statistics.streams.open() > 0 {
            exchange.left_behind(self.index(), self.left_behind());
        }
        self.statistics.finish(now, end, exchange);
    }

    /// A deadline of the engine has passed.
    pub fn expire(&mut self, now: Time, prepared: &impl Outgoing, exchange: &mut impl RequestObserver) {
        self.engine.handle_timeout(now);
        // What it finds is processed as received data is.
        self.unread |= self.transport.handle_timeout(now);
        self.take_events(now, prepared, exchange);
    }

    /// Gives up a request. [`RequestObserver::ended`] is called at once with `outcome`, or with [`Outcome::Unanswered`]
    /// if that is a timeout for which the server is to blame. Returns `false` if `stream` carries no request. In
    /// HTTP/1.1 the connection ends with the request.
    pub fn cancel(
        &mut self,
        now: Time,
        stream: StreamId,
        outcome: Outcome,
        prepared: &impl Outgoing,
        exchange: &mut impl RequestObserver,
    ) -> bool {
        let Some(carried) = self.statistics.streams.take(stream) else { return false };
        let is_silent = outcome == Outcome::Timeout && self.is_unanswered(now, stream, &carried);
        let outcome = if is_silent { Outcome::Unanswered } else { outcome };
        carried.end(now, RequestEnd::Failed { outcome, code: self.cancel_code().0 }, exchange);
        let why = match outcome {
            Outcome::Cancelled => "a request was cancelled",
            _ => "a request was not answered in time",
        };
        self.discard(now, stream, why);
        self.take_events(now, prepared, exchange);
        true
    }

    /// Whether the server has the whole request and has not begun to answer it: only the server is to blame for that.
    fn is_unanswered(&mut self, now: Time, stream: StreamId, carried: &Carried) -> bool {
        let reached =
            if self.statistics.by_stream { carried.sent } else { self.statistics.record.bytes_sent };
        let is_written = carried.body_left == 0 && carried.end <= reached;
        if !self.blames_silence || carried.answered || !is_written {
            return false;
        }
        let age = now.since(carried.begun_at);
        if let Some(quic) = self.transport.quic_mut() {
            return quic.has_arrived(stream);
        }
        // A Unix socket has no TCP acknowledgements, but also no network that could lose data.
        let info = self.transport.tcp().and_then(|tcp| TcpInfo::of(tcp).ok());
        info.is_none_or(|info| info.has_acknowledged(age))
    }

    /// The error code on the wire of a request that is given up.
    const fn cancel_code(&self) -> ErrorCode {
        if self.statistics.by_stream { ErrorCode::CANCEL.in_http3() } else { ErrorCode::CANCEL }
    }

    /// Ends a stream that is no longer needed.
    fn discard(&mut self, now: Time, stream: StreamId, why: &'static str) {
        if self.statistics.multiplexed {
            let code = self.cancel_code().0;
            count_one(&mut self.statistics.record.http.resets_sent, code);
        } else {
            self.statistics.ending = Some(why);
        }
        self.engine.reset(now, stream, ErrorCode::CANCEL);
    }

    /// Takes the engine's events.
    fn take_events(&mut self, now: Time, prepared: &impl Outgoing, exchange: &mut impl RequestObserver) {
        loop {
            while let Some(event) = self.engine.poll_event(now) {
                self.statistics.note(&event, now, exchange);
            }
            if !self.statistics.writable.is_empty() {
                self.push_bodies(now, prepared, exchange);
                // The engine lets a few streams continue at a time. Others may wait behind them, now and after these
                // have been written.
                self.is_short = true;
                continue;
            }
            let Some(stream) = self.statistics.answered_early.pop() else { break };
            self.discard(now, stream, "the server answered before it had the whole request");
        }
        if self.statistics.streams.open() > 0 {
            return;
        }
        if self.engine.is_draining() {
            // Both sides are finished: do not wait for the server to close.
            self.statistics.finish(now, SessionEnd::Orderly, exchange);
        } else if let Some(why) = self.leaving {
            self.engine.goaway(now, ErrorCode::NO_ERROR, why.as_bytes());
            self.statistics.finish(now, SessionEnd::Local(why), exchange);
        }
    }

    /// Takes no further requests and ends when those in flight are over: at once if there are none. No request is lost by it.
    /// `why` is the reason in the record and our GOAWAY.
    pub fn leave(
        &mut self,
        now: Time,
        why: &'static str,
        prepared: &impl Outgoing,
        exchange: &mut impl RequestObserver,
    ) {
        self.leaving = self.leaving.or(Some(why));
        self.take_events(now, prepared, exchange);
    }

    /// Continues the bodies that can continue, in the engine's order.
    fn push_bodies(&mut self, now: Time, prepared: &impl Outgoing, exchange: &mut impl RequestObserver) {
        let mut writable = std::mem::take(&mut self.statistics.writable);
        for stream in writable.drain(..) {
            self.push_body(now, stream, prepared, exchange);
        }
        self.statistics.writable = writable;
    }

    /// Writes what the engine wants to send. Returns whether anything else changed: requests or the session may have ended.
    pub fn flush(
        &mut self,
        clock: Clock,
        prepared: &impl Outgoing,
        exchange: &mut impl RequestObserver,
    ) -> bool {
        let mut news = false;
        if self.blocked {
            self.statistics.full_until = clock.now();
        }
        let written = loop {
            match self.write(clock, exchange) {
                // The write made room for more of the waiting bodies.
                Ok(false) if std::mem::take(&mut self.is_short) => {
                    self.blocked = false;
                    news = true;
                    self.take_events(clock.now(), prepared, exchange);
                    if self.statistics.end.is_some() || !self.engine.has_output(clock.now()) {
                        break self.transport.flush(clock.now()).map(|all| !all);
                    }
                }
                written => break written,
            }
        };
        match written {
            Ok(blocked) => {
                // If data waits although the socket has room, it waits for QUIC's windows. For the request that is no
                // difference.
                self.note_blocked(blocked || self.engine.unsent() > 0, clock);
                if !self.engine.wants_input() {
                    // Nothing will be read until the server has read some of our output. It may already have exceeded a
                    // bound.
                    self.take_events(clock.now(), prepared, exchange);
                }
            }
            Err(error) => {
                // What the server sent before it closed, a response or a GOAWAY, matters more than our failed write.
                self.receive(clock, true, prepared, exchange);
                self.finish(clock.now(), SessionEnd::Transport(error), exchange);
                news = true;
            }
        }
        news
    }

    /// The socket is full now, or not; the time in between is counted.
    fn note_blocked(&mut self, blocked: bool, clock: Clock) {
        if blocked && !self.blocked_since.happened() {
            self.blocked_since = clock.now();
        } else if !blocked && self.blocked_since.happened() {
            let since = std::mem::replace(&mut self.blocked_since, Time::NEVER);
            self.statistics.record.http.socket_full_ns += nanos(clock.now().since(since));
        }
        self.blocked = blocked;
    }

    /// Writes until there is nothing left or the socket is full, and returns whether it is.
    fn write(&mut self, clock: Clock, exchange: &mut impl RequestObserver) -> Result<bool, TransportError> {
        let mut now = clock.now();
        loop {
            match self.send(now, exchange)? {
                Sent::Bytes { .. } if self.engine.unsent() > 0 => now = clock.now(),
                // QUIC may have more to send on its own.
                Sent::Bytes { .. } if self.transport.quic().is_some() => {}
                Sent::Bytes { .. } | Sent::Nothing => return Ok(!self.transport.flush(now)?),
                Sent::WouldBlock => return Ok(true),
            }
        }
    }

    /// Hands some of the engine's output to the transport, and records it.
    fn send(&mut self, now: Time, exchange: &mut impl RequestObserver) -> Result<Sent, TransportError> {
        let observer = &mut self.observer;
        let sent = self.transport.send(&mut self.engine, now, &mut |crossing| {
            observer.see(now, Direction::Up, crossing, exchange);
        })?;
        if let Sent::Bytes { stream, bytes } = sent {
            self.statistics.transmitted(now, stream, bytes, exchange);
        }
        Ok(sent)
    }

    /// System calls that read from its socket and wrote to it; `None` over QUIC, whose connections share sockets.
    pub fn calls(&self) -> Option<(u64, u64)> {
        self.transport.tcp().map(StreamSocket::calls)
    }

    /// A sample of `TCP_INFO`, or of QUIC's path, as a point of the time series.
    pub fn tcp_tick(&self, now: Time) -> Option<TcpTick> {
        if let Some(quic) = self.transport.quic() {
            return Some(quic.tick(now, self.index()));
        }
        TcpInfo::of(self.transport.tcp()?).ok().map(|info| info.tick(now, self.index()))
    }

    /// Brings the record up to date with the engine and TCP.
    pub fn record(&mut self) -> &ConnectionRecord {
        let record = &mut self.statistics.record;
        record.counters = self.engine.counters();
        (record.http.settings_local, record.http.settings_remote) = self.engine.settings_in_effect();
        // The engine refuses pushes by itself without an event.
        let promised = u32::try_from(record.counters.frames_received[PUSH_PROMISE]).unwrap_or(u32::MAX);
        record.http.pushes_refused = promised.saturating_sub(record.http.pushes_accepted);
        if let Some(tcp) = self.transport.tcp()
            && let (Ok(info), Ok(congestion)) = (TcpInfo::of(tcp), tcp.congestion())
        {
            record.tcp_client = Some(info.summary(congestion));
        }
        record.tls_records = self.transport.tls_records();
        record.quic_client = self.transport.quic().map(QuicSession::summary);
        record
    }

    /// The cell is cut: all requests in flight are reported as unfinished, and the connection stays open.
    pub fn cut(&mut self, now: Time, exchange: &mut impl RequestObserver) {
        let fate = RequestEnd::Failed { outcome: Outcome::Unfinished, code: 0 };
        while let Some(carried) = self.statistics.streams.take_above(StreamId::CONNECTION) {
            carried.end(now, fate, exchange);
        }
    }

    /// Sends the closing frames as far as the socket takes them without waiting. Dropping the session closes the connection.
    pub fn close_gracefully(&mut self, now: Time) {
        self.engine.goaway(now, ErrorCode::NO_ERROR, b"");
        // A peer that does not read these frames will see the close.
        while let Ok(Sent::Bytes { bytes: 1.., .. }) = self.send(now, &mut NoObserver) {}
        let _ = self.transport.shutdown(now);
    }

    /// The record of a connection that has ended, and why it did.
    pub fn into_record(mut self) -> (ConnectionRecord, Option<SessionEnd>) {
        self.record();
        if let Some(SessionEnd::Local(_)) = self.statistics.end {
            // We close in an orderly way: with TLS this sends `close_notify`, and the peer must be able to read our
            // reason.
            let _ = self.transport.shutdown(self.statistics.record.closed_at);
            if let Some(tcp) = self.transport.tcp() {
                tcp.discard();
            }
        }
        (self.statistics.record, self.statistics.end)
    }
}

/// Whether the field says how urgently the response is wanted (RFC 9218 §5).
fn is_priority(field: &Field<'_>) -> bool {
    field.name == b"priority"
}

#[cfg(test)]
mod tests;

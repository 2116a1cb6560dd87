//! Streams whose body cannot be sent now: which sends next, and how long the windows stalled them.
//!
//! A stream that waits for its own window is not queued until that opens. All others (connection window, full output,
//! another stream's turn) queue in the order of `send_scheduler`; while several wait, each is given one frame's worth
//! at a time, so that their DATA interleaves.

use std::time::Duration;

use super::send_scheduler::{SendPlace, SendScheduler};
use super::settings::DEFAULT_WINDOW;
use super::stream::{Stream, Wait};
use super::streams::{Key, Streams};
use super::{Connection, Role};
use crate::Priority;
use crate::limits::accounts::FAIR_PIECE;
use h2lab_base::units::Time;

/// Bytes of body that a server sends after an upgrade before it has the client's preface.
const BEFORE_PREFACE: usize = 16 * 1024;

/// Adds up the time in which something was stalled.
#[derive(Debug, Clone, Copy)]
struct StallClock {
    /// [`Time::NEVER`] while stopped.
    since: Time,
}

impl Default for StallClock {
    fn default() -> Self {
        Self { since: Time::NEVER }
    }
}

impl StallClock {
    fn start(&mut self, now: Time) {
        if !self.since.happened() {
            self.since = now;
        }
    }

    /// The time since the start or the last lap; keeps running if `running`.
    fn lap(&mut self, now: Time, running: bool) -> Duration {
        let lap = if self.since.happened() { now.since(self.since) } else { Duration::ZERO };
        if !running {
            self.since = Time::NEVER;
        } else if self.since.happened() {
            self.since = now;
        }
        lap
    }
}

/// The waiting streams of a connection.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    send_scheduler: SendScheduler,
    /// Streams in the queue.
    queued: u32,
    /// Of these, by urgency: those that share the bandwidth, and the non-incremental ones.
    equals: [[u32; 2]; Priority::URGENCIES],
    /// Bytes that streams were allowed to send and have not sent yet: output room reserved for them.
    owed: usize,
    /// The lowest urgency value of those streams. Less urgent streams must not take the remaining room.
    owed_level: u8,
    /// The role has taken all events: when it asks for the next, what was reserved before is void.
    all_taken: bool,
    /// Streams that wait for their own window.
    stalled: u32,
    stream_clock: StallClock,
    connection_clock: StallClock,
    /// The next stream waits for the connection's window.
    short_of_connection_window: bool,
    /// When a body last made fair progress; [`Time::ZERO`] if none has.
    progress: Time,
    /// The output was full; no stream sends until half of it was sent, so that frames stay large.
    output_full: bool,
}

/// Void send places beyond the number of waiting streams at which they are swept out.
const VOID_SEND_PLACES: usize = 64;

impl Backlog {
    /// The memory that it takes, in bytes.
    pub(super) fn held(&self) -> usize {
        self.send_scheduler.held()
    }

    /// Send places that are held, void ones included.
    #[cfg(test)]
    pub(super) const fn send_places(&self) -> usize {
        self.send_scheduler.send_places()
    }

    /// A stream left the store, or our side of it ended, or is about to wait for something else.
    pub(super) fn forget(&mut self, stream: &Stream) {
        let send_place = stream.send_place;
        match stream.wait {
            Wait::No => {}
            Wait::Turn => {
                self.queued -= 1;
                self.equals[usize::from(send_place.level)][usize::from(send_place.shares)] -= 1;
            }
            Wait::Window => self.stalled -= 1,
            Wait::Role => {
                self.owed = self.owed.saturating_sub(stream.offer as usize);
                self.send_scheduler.returned(send_place);
            }
        }
    }

    /// The role has taken all events. Streams that were allowed to send do so before the role asks for more events, or
    /// have nothing to send: then others may have their room.
    pub(super) const fn all_events_taken(&mut self) {
        self.all_taken = true;
    }

    /// Whether others of its urgency wait beside a stream that was just taken.
    fn has_equals(&self, send_place: SendPlace) -> bool {
        let [one_by_one, sharing] = self.equals[usize::from(send_place.level)];
        sharing > 0 || (send_place.shares && one_by_one > 0)
    }
}

impl Connection {
    /// How much a stream may send now in view of the others. One that waits for its turn, or finds others waiting, may
    /// send nothing before [`Event::Writable`](crate::Event::Writable): otherwise the order would be that in which the
    /// role calls.
    pub(super) fn take_turn(&mut self, key: Key) -> usize {
        let stream = &mut self.streams[key];
        let mut most = usize::MAX;
        if stream.wait == Wait::Role {
            most = stream.offer as usize;
            self.backlog.forget(stream);
            stream.wait = Wait::No;
        } else if self.backlog.queued > 0 {
            return 0;
        } else if self.backlog.owed > 0 {
            most = self.turn();
        }
        if self.backlog.queued == 0 && self.backlog.owed == 0 { usize::MAX } else { most }
    }

    /// What the peer's windows let a stream send now, without what is reserved for others.
    pub(super) fn usable_window(&self, key: Key) -> usize {
        self.streams[key].send.usable().min(self.connection_room().saturating_sub(self.backlog.owed))
    }

    /// How much of `wanted` bytes of body a stream may send now, with a window of `window` and `most` for its turn.
    pub(super) fn allowance(&self, key: Key, wanted: usize, window: usize, most: usize) -> usize {
        // A stream that got its `Writable` may send what it then waited for.
        let shortest = self.accounts.shortest_piece(wanted).min(self.streams[key].shortest as usize);
        let room = self.output_room().saturating_sub(self.backlog.owed);
        if window < shortest || room < self.least_room(wanted) {
            return 0;
        }
        wanted.min(window).min(room).min(most)
    }

    /// What a stream may send in one turn while others of its urgency wait: a frame.
    fn turn(&self) -> usize {
        (self.peer_settings.max_frame_size as usize).min(self.config.send_buffer / 2).max(1)
    }

    /// What the connection window allows. Between an upgrade and the client's preface it is only a part of it: curl
    /// breaks when more than its buffer of 32 KiB follows the 101 at once.
    fn connection_room(&self) -> usize {
        let usable = self.send_window.usable();
        if self.config.role == Role::Server && self.handshake.is_preface_due() {
            return usable.saturating_sub(DEFAULT_WINDOW as usize - BEFORE_PREFACE);
        }
        usable
    }

    /// See [`crate::Connection::is_output_full`].
    pub fn is_output_full(&self) -> bool {
        self.backlog.output_full
    }

    fn output_room(&self) -> usize {
        self.config.send_buffer.saturating_sub(self.output.len())
    }

    /// The least room that is worth a frame for a body of `wanted` bytes.
    fn least_room(&self, wanted: usize) -> usize {
        wanted.min(FAIR_PIECE).min(self.config.send_buffer)
    }

    /// The stream has `wanted` bytes to send and was allowed `accepted`: queues it, or parks it until its window opens.
    pub(super) fn wait(&mut self, now: Time, key: Key, wanted: usize, accepted: usize) {
        let shortest = self.accounts.shortest_piece(wanted - accepted);
        // Less than this is not progress, unless the peer's windows were that small from the beginning.
        let fair = FAIR_PIECE.min(self.peer_settings.initial_window_size as usize / 2).max(1);
        let stream = &mut self.streams[key];
        stream.shortest = shortest as u32;
        stream.sent_since = stream.sent_since.saturating_add(u32::try_from(accepted).unwrap_or(u32::MAX));
        let is_fair = stream.sent_since as usize >= fair;
        if is_fair {
            self.backlog.progress = now;
        }
        if is_fair || !stream.waiting_since.happened() {
            (stream.waiting_since, stream.sent_since) = (now, 0);
            self.deadlines.window_waits(now);
        }
        if stream.send.usable() < shortest {
            return self.stall(now, key);
        }
        if self.connection_room() < shortest {
            self.backlog.connection_clock.start(now);
        } else if self.output_room() < self.least_room(wanted - accepted) {
            self.backlog.output_full = true;
        }
        if self.streams[key].wait != Wait::Turn {
            self.enqueue(key);
        }
    }

    /// Since when the peer's windows have stalled the stream, if they do. While other bodies progress through the
    /// connection window, it waits for its turn and not for the peer.
    pub(super) fn short_of_window_since(&self, stream: &Stream) -> Option<Time> {
        match stream.wait {
            Wait::Window => Some(stream.waiting_since),
            Wait::Turn if self.connection_room() < stream.shortest as usize => {
                Some(stream.waiting_since.max(self.backlog.progress))
            }
            _ => None,
        }
    }

    fn stall(&mut self, now: Time, key: Key) {
        let stream = &mut self.streams[key];
        if stream.wait != Wait::Window {
            self.backlog.forget(stream);
            stream.wait = Wait::Window;
            self.backlog.stalled += 1;
            self.backlog.stream_clock.start(now);
        }
    }

    /// Moves the stream behind all others of its urgency.
    fn enqueue(&mut self, key: Key) {
        let stream = &mut self.streams[key];
        self.backlog.forget(stream);
        stream.wait = Wait::Turn;
        stream.send_place = self.backlog.send_scheduler.push(stream.id, stream.priority);
        self.backlog.queued += 1;
        self.backlog.equals[usize::from(stream.send_place.level)][usize::from(stream.send_place.shares)] += 1;
        if self.backlog.send_scheduler.send_places() > 2 * self.backlog.queued as usize + VOID_SEND_PLACES {
            let streams = &self.streams;
            self.backlog.send_scheduler.retain(&|send_place| waiting(streams, send_place).is_some());
        }
    }

    /// The client changed the priority of a stream (RFC 9218 §7).
    pub(super) fn reprioritise(&mut self, key: Key, priority: Priority) {
        self.streams[key].priority = Some(priority);
        if self.streams[key].wait == Wait::Turn {
            self.enqueue(key);
        }
    }

    /// The stream's window changed: if it waited for that and the window is open, it queues.
    pub(super) fn stream_window_changed(&mut self, key: Key) {
        let stream = &self.streams[key];
        if stream.wait == Wait::Window && stream.send.usable() >= stream.shortest as usize {
            self.enqueue(key);
        }
    }

    /// Part of the output was sent.
    pub(super) fn output_drained(&mut self) {
        if self.output.len() <= self.config.send_buffer / 2 {
            self.backlog.output_full = false;
        }
        if self.output.len() == 0 {
            // Streams that were notified have sent by now, or have nothing to send.
            self.backlog.owed = 0;
        }
    }

    /// The next stream that can send at least one byte.
    pub(super) fn next_writable(&mut self, now: Time) -> Option<u32> {
        let id = self.find_writable(now);
        self.record_stalls(now);
        id
    }

    fn find_writable(&mut self, now: Time) -> Option<u32> {
        self.backlog.short_of_connection_window = false;
        if std::mem::take(&mut self.backlog.all_taken) {
            self.backlog.owed = 0;
        }
        while self.backlog.queued > 0 {
            let owed = self.backlog.owed;
            let room = self.connection_room();
            if room <= owed {
                self.short_of_connection_window(now, room == 0);
                return None;
            }
            if self.backlog.output_full || self.output_room() < self.turn() {
                self.backlog.output_full = true;
                return None;
            }
            if self.output_room() < owed + self.turn() {
                return None;
            }
            let least = if owed > 0 { self.backlog.owed_level } else { u8::MAX };
            let streams = &self.streams;
            let send_place = self
                .backlog
                .send_scheduler
                .pop(least, &|send_place| waiting(streams, send_place).is_some())?;
            let key = self.streams.find(send_place.stream)?;
            let shortest = self.streams[key].shortest as usize;
            if self.streams[key].send.usable() < shortest {
                // A non-incremental stream keeps its place only while it can use it.
                self.backlog.send_scheduler.returned(send_place);
                self.stall(now, key);
                continue;
            }
            if room - owed < shortest {
                self.backlog.send_scheduler.put_back(send_place);
                self.short_of_connection_window(now, room < shortest);
                return None;
            }
            return Some(self.offer(key, send_place));
        }
        None
    }

    /// The next stream cannot send; `is_short`: the connection window itself is too small for it, rather than what is
    /// reserved for others.
    fn short_of_connection_window(&mut self, now: Time, is_short: bool) {
        self.backlog.short_of_connection_window = is_short;
        if is_short {
            self.backlog.connection_clock.start(now);
        }
    }

    /// Allows a stream to send: one turn, or, if no other of its urgency waits, all the room that there is.
    fn offer(&mut self, key: Key, send_place: SendPlace) -> u32 {
        let owed = self.backlog.owed;
        self.backlog.forget(&self.streams[key]);
        let alone = owed == 0 && !self.backlog.has_equals(send_place);
        let offer = if alone { self.output_room() } else { self.turn() };
        self.backlog.owed += offer;
        self.backlog.owed_level = send_place.level;
        let stream = &mut self.streams[key];
        stream.wait = Wait::Role;
        stream.offer = offer as u32;
        send_place.stream
    }

    /// Records the stalls up to now.
    fn record_stalls(&mut self, now: Time) {
        let stream_stalls = self.backlog.stream_clock.lap(now, self.backlog.stalled > 0);
        self.counters.stalled_stream_window += stream_stalls;
        let waiting = self.backlog.short_of_connection_window;
        self.counters.stalled_connection_window += self.backlog.connection_clock.lap(now, waiting);
    }
}

/// The stream that a send place belongs to, if it is not void.
fn waiting(streams: &Streams, send_place: SendPlace) -> Option<Key> {
    let is_its_place = |key: &Key| streams[*key].wait == Wait::Turn && streams[*key].send_place == send_place;
    streams.find(send_place.stream).filter(is_its_place)
}

//! Streams that have body to send and cannot: who goes on next, and how long the windows kept them.
//!
//! A stream that waits for its own window stands aside until that opens. All others (connection window, full output,
//! another stream's turn) wait in one queue, first come first served; while several wait, each is given one frame's
//! worth at a time, so that their DATA interleaves.

use std::collections::VecDeque;
use std::time::Duration;

use super::guard::FAIR_PIECE;
use super::settings::DEFAULT_WINDOW;
use super::stream::{Stream, Wait};
use super::streams::Key;
use super::{Connection, Role};
use crate::units::Time;

/// Bytes of body that a server sends after an upgrade before it has the client's preface.
const BEFORE_PREFACE: usize = 16 * 1024;

/// Adds up the time in which something was stalled.
#[derive(Debug, Clone, Copy)]
struct StallClock {
    /// [`Time::NEVER`] while it stands.
    since: Time,
}

impl StallClock {
    const STOPPED: Self = Self { since: Time::NEVER };

    fn start(&mut self, now: Time) {
        if !self.since.happened() {
            self.since = now;
        }
    }

    /// The time since the start or the last lap; goes on if `running`.
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
#[derive(Debug)]
pub(super) struct Backlog {
    /// Ids, first come first served. Those that ended, or wait for something else now, are skipped.
    queue: VecDeque<u32>,
    /// Streams that wait for their own window.
    stalled: u32,
    stream_clock: StallClock,
    connection_clock: StallClock,
    /// The output was full; nobody goes on until half of it was sent, so that frames stay large.
    output_full: bool,
}

impl Backlog {
    pub(super) const fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            stalled: 0,
            stream_clock: StallClock::STOPPED,
            connection_clock: StallClock::STOPPED,
            output_full: false,
        }
    }

    /// What it takes of memory, in bytes.
    pub(super) fn held(&self) -> usize {
        self.queue.capacity() * size_of::<u32>()
    }

    /// A stream left the store, or our side of it ended.
    pub(super) fn forget(&mut self, stream: &Stream) {
        self.stalled -= u32::from(stream.wait == Wait::Window);
    }
}

impl Connection {
    /// What the peer's windows let a stream send now.
    pub(super) fn usable_window(&self, key: Key) -> usize {
        self.streams[key].send.usable().min(self.connection_room())
    }

    /// How much of `wanted` bytes of body a stream may send now, with a window of `window`.
    pub(super) fn allowance(&self, key: Key, wanted: usize, window: usize) -> usize {
        let stream = &self.streams[key];
        let others_wait = self.backlog.queue.len() > usize::from(stream.wait == Wait::Turn);
        let turn = if others_wait { self.peer_settings.max_frame_size as usize } else { usize::MAX };
        // A stream that was told that it can go on may do so with what it then waited for.
        let shortest = self.guard.shortest_piece(wanted).min(stream.shortest as usize);
        if window < shortest || self.output_room() < self.least_room(wanted) {
            return 0;
        }
        wanted.min(window).min(self.output_room()).min(turn)
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

    fn output_room(&self) -> usize {
        self.config.send_buffer.saturating_sub(self.output.len())
    }

    /// The least room that is worth a frame for a body of `wanted` bytes.
    fn least_room(&self, wanted: usize) -> usize {
        wanted.min(FAIR_PIECE).min(self.config.send_buffer)
    }

    /// The stream has `wanted` bytes to send and was allowed `accepted`: makes it wait for what held it back.
    pub(super) fn wait(&mut self, now: Time, key: Key, wanted: usize, accepted: usize) {
        let shortest = self.guard.shortest_piece(wanted - accepted);
        // Less than that is no progress, unless the peer's windows are so small from the beginning.
        let fair = FAIR_PIECE.min(self.peer_settings.initial_window_size as usize / 2).max(1);
        let stream = &mut self.streams[key];
        stream.shortest = shortest as u32;
        if accepted >= fair || !stream.waiting_since.happened() {
            stream.waiting_since = now;
            self.patience.window_waits(now);
        }
        if stream.send.usable() < shortest {
            return self.stall(now, key);
        }
        if self.connection_room() < shortest {
            self.backlog.connection_clock.start(now);
        } else if self.output_room() < self.least_room(wanted - accepted) {
            self.backlog.output_full = true;
        }
        self.enqueue(key);
    }

    /// Whether the peer's windows keep the stream from going on.
    pub(super) fn is_short_of_window(&self, stream: &Stream) -> bool {
        let window = stream.send.usable().min(self.connection_room());
        stream.wait != Wait::No && window < stream.shortest as usize
    }

    fn stall(&mut self, now: Time, key: Key) {
        let stream = &mut self.streams[key];
        if stream.wait != Wait::Window {
            stream.wait = Wait::Window;
            self.backlog.stalled += 1;
            self.backlog.stream_clock.start(now);
        }
    }

    fn enqueue(&mut self, key: Key) {
        let stream = &mut self.streams[key];
        if stream.wait != Wait::Turn {
            stream.wait = Wait::Turn;
            self.backlog.queue.push_back(stream.id);
        }
    }

    /// The stream's window changed: if it waited for that and the window is open, it queues.
    pub(super) fn stream_window_changed(&mut self, key: Key) {
        let stream = &mut self.streams[key];
        if stream.wait == Wait::Window && stream.send.usable() >= stream.shortest as usize {
            self.backlog.stalled -= 1;
            self.enqueue(key);
        }
    }

    /// Part of the output was sent.
    pub(super) fn output_drained(&mut self) {
        if self.output.len() <= self.config.send_buffer / 2 {
            self.backlog.output_full = false;
        }
    }

    /// The next stream that can go on; it can send at least one byte.
    pub(super) fn next_writable(&mut self, now: Time) -> Option<u32> {
        let id = self.find_writable(now);
        self.book_stalls(now);
        id
    }

    fn find_writable(&mut self, now: Time) -> Option<u32> {
        while let Some(&id) = self.backlog.queue.front() {
            let waiting = self.streams.find(id).filter(|&key| self.streams[key].wait == Wait::Turn);
            let Some(key) = waiting else {
                self.backlog.queue.pop_front();
                continue;
            };
            let shortest = self.streams[key].shortest as usize;
            if self.connection_room() < shortest {
                self.backlog.connection_clock.start(now);
                return None;
            }
            if self.backlog.output_full || self.output_room() < self.least_room(usize::MAX) {
                self.backlog.output_full = true;
                return None;
            }
            self.backlog.queue.pop_front();
            self.streams[key].wait = Wait::No;
            if self.streams[key].send.usable() >= shortest {
                return Some(id);
            }
            self.stall(now, key);
        }
        None
    }

    /// Books the stalls up to now.
    fn book_stalls(&mut self, now: Time) {
        let stream_stalls = self.backlog.stream_clock.lap(now, self.backlog.stalled > 0);
        self.counters.stalled_stream_window += stream_stalls;
        let front = self.backlog.queue.front().and_then(|&id| self.streams.find(id));
        let shortest = front.map_or(1, |key| self.streams[key].shortest as usize);
        let waiting = !self.backlog.queue.is_empty() && self.connection_room() < shortest;
        self.counters.stalled_connection_window += self.backlog.connection_clock.lap(now, waiting);
    }
}

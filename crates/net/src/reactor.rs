//! One thread's event loop behind a submit/complete interface.
//!
//! A role *submits* what it waits for (a connect, accepted connections, traffic on a stream, a timer), *waits*, and then
//! takes *completions*, each of which carries the role's own token:
//!
//! ```text
//! submit_connect(token, stream)   → one  Connected { token, result }, then Ready { token, … } as below
//! submit_accept(token, listener)  → many Accepted { token, result }
//! submit_stream(token, &stream)   → many Ready { token, readable, writable, hangup }
//! submit_datagrams(token, &socket) → many Ready { token, readable, writable }
//! submit_wakeups(token, &wakeup)  → many Ready { token, … }
//! set_timer(token, at)            → one  Timer { token } at or after `at`
//! ```
//!
//! Sending is submitted by writing to the stream: the non-blocking write nearly always completes at once, and where it
//! did not, `Ready { writable: true }` is its completion.
//!
//! Behind it is epoll, edge-triggered: interest costs one `epoll_ctl` per connection and none per message. `io_uring` fits behind
//! the same interface without a change in any role; it was tried with multishot receives and one call per turn, and rejected: it
//! saves two of three system calls, but on HTTP/2 no CPU time, which is spent in TCP's sending and in sleeping
//! (`results/2026-11-21-2-cpus/io_uring.md`).
//!
//! Nothing is allocated per completion. Timers have the resolution of the kernel's nanosecond clock: the thread's timer slack is
//! set to 1 ns and the sleep is an `epoll_pwait2`, or a `ppoll` where the kernel has none. Later deadlines are left to a
//! [`WakeTimer`], which is set once and not for each sleep.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::time::Duration;

use h2lab_base::units::Time;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::Timespec;

use super::clock::{Clock, thread_cpu_ns};
use super::cpu_budget::REST;
use super::precise_wakeup::PreciseWakeup;
use super::tcp::{Listener, StreamSocket};
use super::wake_timer::WakeTimer;
use super::wakeup::Wakeup;

/// A role's name for one of its sources. Tokens index a table in the reactor, so they must be small and dense: the index in the
/// role's own table of connections is the natural choice. A token may have a timer, a socket, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u32);

/// Something that was submitted has happened.
#[derive(Debug)]
pub enum Completion {
    /// Connecting ended. On success the stream is handed back, and its traffic is reported as [`Completion::Ready`]
    /// from now on without a further submission.
    Connected {
        /// As submitted.
        token: Token,
        /// The stream, or why there is none.
        result: io::Result<StreamSocket>,
    },
    /// A connection was accepted; the role gives it a token of its own with [`Reactor::submit_stream`].
    Accepted {
        /// The listener's token.
        token: Token,
        /// The connection, or why the kernel gave none (too many open files …): the others still wait.
        result: io::Result<StreamSocket>,
    },
    /// The state of a stream has changed. Edge-triggered: read until [`super::tcp::Read::WouldBlock`] (or, without
    /// `hangup`, until a read gives less than its space), else the rest is not reported again.
    Ready {
        /// As submitted.
        token: Token,
        /// There is something to read: bytes, the end of the stream, or an error.
        readable: bool,
        /// There is room to write. Often set beside `readable` although nothing changed: try only if a write was short.
        writable: bool,
        /// The peer has finished sending, or the connection broke.
        hangup: bool,
    },
    /// The timer of a token has passed.
    Timer {
        /// As submitted.
        token: Token,
    },
}

/// What waits under a token.
#[derive(Debug, Default)]
enum Source {
    /// Nothing, or only a timer.
    #[default]
    None,
    /// A stream whose connect has not ended: few have one, and it would make the table twice as large.
    Connecting(Box<StreamSocket>),
    /// Accepts connections, or lets them wait for now.
    Listening { listener: Listener, is_paused: bool },
    /// A stream that the role owns.
    Stream,
    /// A UDP socket that the role owns.
    Datagrams,
}

/// One entry of the table of tokens.
#[derive(Debug)]
struct Slot {
    source: Source,
    /// Distinguishes events of a socket that has been forgotten from those of its successor under the same token.
    generation: u32,
    /// When the timer is due.
    deadline: Time,
    /// The earliest entry in the heap of timers that stands for this token; [`Time::NEVER`] if there is none.
    queued: Time,
}

impl Default for Slot {
    fn default() -> Self {
        Self { source: Source::None, generation: 0, deadline: Time::NEVER, queued: Time::NEVER }
    }
}

/// The event loop of one thread. See the [module](self).
pub struct Reactor {
    epoll: OwnedFd,
    clock: Clock,
    slots: Vec<Slot>,
    timers: BinaryHeap<Reverse<(Time, u32)>>,
    /// Events of the last wait, and how many of them have been taken.
    events: Vec<Event>,
    taken: usize,
    /// When the last wait returned; timers up to here complete.
    woken_at: Time,
    wake_timer: WakeTimer,
}

impl Reactor {
    /// Events taken from the kernel at once.
    const BATCH: usize = 256;

    /// A reactor for the calling thread, whose timer slack becomes 1 ns.
    pub fn new(clock: Clock) -> io::Result<Self> {
        rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
        Ok(Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            clock,
            slots: Vec::new(),
            timers: BinaryHeap::new(),
            events: Vec::with_capacity(Self::BATCH),
            taken: 0,
            woken_at: clock.now(),
            wake_timer: WakeTimer::default(),
        })
    }

    /// The clock of the timers.
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    /// Waits for a connect that [`StreamSocket::connect`] began.
    pub fn submit_connect(&mut self, token: Token, stream: StreamSocket) -> io::Result<()> {
        self.register(token, &stream, STREAM_EVENTS)?;
        self.slot(token).source = Source::Connecting(Box::new(stream));
        Ok(())
    }

    /// The stream of a connect that has not ended.
    pub fn connecting(&self, token: Token) -> Option<&StreamSocket> {
        match &self.slots.get(token.0 as usize)?.source {
            Source::Connecting(stream) => Some(stream),
            _ => None,
        }
    }

    /// Accepts connections until [`Reactor::forget`]. If file descriptors or memory run out, that is reported; the
    /// connections wait in the kernel's queue, and are tried again a little later. The reactor uses the timer of
    /// `token`.
    pub fn submit_accept(&mut self, token: Token, listener: Listener) -> io::Result<()> {
        // Level-triggered: what is still in the queue is reported again.
        self.register(token, &listener, ACCEPT_EVENTS)?;
        self.slot(token).source = Source::Listening { listener, is_paused: false };
        Ok(())
    }

    /// Stops accepting at the listener of `token`, so that connections wait in the kernel's queue, or resumes. Does
    /// nothing if `token` has no listener.
    pub fn pause_accept(&mut self, token: Token, pause: bool) {
        if let Some(Slot { source: Source::Listening { is_paused, .. }, .. }) =
            self.slots.get_mut(token.0 as usize)
        {
            *is_paused = pause;
            self.accept_again(token);
        }
    }

    /// Reports the traffic of an accepted stream, which the role keeps, until [`Reactor::forget`]. What is already there
    /// is reported at once.
    pub fn submit_stream(&mut self, token: Token, stream: &StreamSocket) -> io::Result<()> {
        self.register(token, stream, STREAM_EVENTS)?;
        self.slot(token).source = Source::Stream;
        Ok(())
    }

    /// Reports what arrives on a UDP socket, and when there is room again, as [`Reactor::submit_stream`] does. Datagrams have no
    /// end, so that there is never a hangup; an error of the socket is reported as something to read.
    pub fn submit_datagrams(&mut self, token: Token, socket: &impl AsFd) -> io::Result<()> {
        self.register(token, socket, STREAM_EVENTS)?;
        self.slot(token).source = Source::Datagrams;
        Ok(())
    }

    /// Reports each [`Wakeup::wake`] of another thread; one report may stand for several. The first report may come
    /// without one.
    pub fn submit_wakeups(&mut self, token: Token, wakeup: &Wakeup) -> io::Result<()> {
        self.submit_datagrams(token, wakeup)
    }

    /// Stops reporting on this socket, even where other descriptors of it remain, here or in another process.
    pub fn withdraw(&mut self, token: Token, socket: &impl AsFd) {
        self.forget(token);
        let _ = epoll::delete(&self.epoll, socket); // it was added
    }

    /// Sets the timer of `token` to `at`, in place of what it was set to before; [`Time::NEVER`] disarms it.
    #[inline]
    pub fn set_timer(&mut self, token: Token, at: Time) {
        let slot = self.slot(token);
        slot.deadline = at;
        // A later deadline needs no new entry: the old one checks the deadline when it comes up. So a timer that is pushed back
        // with every request costs nothing.
        if at < slot.queued {
            slot.queued = at;
            self.timers.push(Reverse((at, token.0)));
        }
    }

    /// Forgets the socket and the timer of `token`; their pending completions are dropped. Call it before the stream is closed.
    /// It closes a listener or a connecting stream.
    pub fn forget(&mut self, token: Token) {
        let slot = self.slot(token);
        let source = std::mem::take(&mut slot.source);
        slot.generation = slot.generation.wrapping_add(1);
        slot.deadline = Time::NEVER;
        if let Source::Listening { listener, .. } = source {
            // Closing is not enough where other descriptors of the socket remain, here or in another process.
            let _ = epoll::delete(&self.epoll, listener); // it was added
        }
    }

    /// Sleeps until a socket has events, a timer is due or `until` has come, and returns the time of waking.
    ///
    /// Does not sleep if completions of the last wait have not been taken yet. A signal wakes it early.
    pub fn wait(&mut self, until: Time) -> io::Result<Time> {
        if self.taken < self.events.len() {
            return Ok(self.woken_at);
        }
        let until = self.timers.peek().map_or(until, |Reverse((at, _))| until.min(*at));
        let timeout = self.timeout(until).map(timespec);
        self.events.clear();
        self.taken = 0;
        match self.take_events(timeout.as_ref()) {
            Ok(()) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        self.woken_at = self.clock.now();
        if self.wake_timer.fires_at() <= self.woken_at {
            self.take_ring();
        }
        Ok(self.woken_at)
    }

    /// Removes the wake timer's own event: no role waits for it.
    fn take_ring(&mut self) {
        if let Some(at) = self.events.iter().position(|event| event.data.u64() == WAKE_TIMER.u64()) {
            self.events.remove(at);
            self.wake_timer.has_fired();
        }
    }

    /// How long a sleep until `until` may last at most; `None` for no bound: the wake timer ends it, or `until` never comes.
    fn timeout(&mut self, until: Time) -> Option<Duration> {
        // A wake timer that should have fired by the last wake-up is not relied on: with a missed expiry the sleep would not end.
        let is_set = self.woken_at < self.wake_timer.fires_at() && self.wake_timer.fires_at() <= until;
        if is_set || !until.happened() {
            return None;
        }
        let left = until.since(self.clock.now());
        let is_set = left >= SOON && self.wake_timer.set(&self.epoll, WAKE_TIMER, until, left).is_ok();
        (!is_set).then_some(left)
    }

    /// As [`Reactor::wait`], but back at `until` exactly: for the `precise_wakeup`'s margin before that it polls the kernel
    /// without sleeping. What comes meanwhile is reported at once. A thread that has used up its budget rests first, so that what
    /// comes or is due meanwhile is reported together.
    pub fn wait_precisely(&mut self, until: Time, precise_wakeup: &mut PreciseWakeup) -> io::Result<Time> {
        let mut now = self.clock.now();
        let budget = &mut precise_wakeup.budget;
        if budget.is_old(now) {
            budget.settle(now, thread_cpu_ns());
        }
        if budget.is_overdrawn() {
            std::thread::sleep(REST);
            now = self.wait(Time::ZERO)?;
            budget.settle(now, thread_cpu_ns());
            return Ok(now);
        }
        let wake_at = until - precise_wakeup.margin();
        if now < wake_at {
            now = self.wait(wake_at)?;
            if now < wake_at || self.has_news() {
                return Ok(now);
            }
            precise_wakeup.woke(now.since(wake_at));
        } else {
            precise_wakeup.skipped();
        }
        let awake_from = now;
        while now < until && !self.has_news() {
            // Another thread of ours may be due on this CPU. With real-time scheduling it would wait for our next
            // sleep.
            rustix::thread::sched_yield();
            now = self.wait(Time::ZERO)?;
        }
        precise_wakeup.stayed_awake(now.since(awake_from));
        Ok(now)
    }

    /// Whether the last wait has found anything that was not taken yet.
    fn has_news(&self) -> bool {
        let is_due = |&Reverse((at, _)): &Reverse<(Time, u32)>| at <= self.woken_at;
        self.taken < self.events.len() || self.timers.peek().is_some_and(is_due)
    }

    /// Fills the empty list of events.
    fn take_events(&mut self, timeout: Option<&Timespec>) -> Result<(), Errno> {
        let space = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(&self.epoll, space, timeout) {
            Ok(_) => Ok(()),
            Err(Errno::NOSYS) => self.take_events_before_5_11(timeout),
            Err(error) => Err(error),
        }
    }

    /// Without `epoll_pwait2` (Linux before 5.11, gVisor, valgrind): ppoll sleeps to the nanosecond too, then epoll returns the
    /// events.
    fn take_events_before_5_11(&mut self, timeout: Option<&Timespec>) -> Result<(), Errno> {
        const BATCH: libc::c_int = 256;
        if poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], timeout)? == 0 {
            return Ok(());
        }
        let mut events = [const { MaybeUninit::<libc::epoll_event>::uninit() }; BATCH as usize];
        let first = events.as_mut_ptr().cast();
        // SAFETY: the kernel writes at most BATCH events, which is what the array holds.
        let count = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), first, BATCH, 0) };
        let count = usize::try_from(count).map_err(|_| Errno::INTR)?;
        self.events.extend(events[..count].iter().map(|event| {
            // SAFETY: the kernel has written so many.
            let event = unsafe { event.assume_init() };
            Event { flags: EventFlags::from_bits_retain(event.events), data: EventData::new_u64(event.u64) }
        }));
        Ok(())
    }

    /// The next completion of the last [`Reactor::wait`]; `None` when all have been taken. Timers come first, in the
    /// order of their deadlines.
    #[inline]
    pub fn next_completion(&mut self) -> Option<Completion> {
        while let Some(token) = self.expired_timer() {
            if !self.accept_again(token) {
                return Some(Completion::Timer { token });
            }
        }
        while self.taken < self.events.len() {
            let event = self.events[self.taken];
            if let Some(completion) = self.complete(event) {
                return Some(completion);
            }
            self.taken += 1;
        }
        None
    }

    /// Takes the next timer that was due when the last wait returned.
    #[inline]
    fn expired_timer(&mut self) -> Option<Token> {
        while let Some(&Reverse((at, index))) = self.timers.peek()
            && at <= self.woken_at
        {
            self.timers.pop();
            let slot = &mut self.slots[index as usize];
            if at != slot.queued {
                continue; // an earlier entry stood for this token and has dealt with it
            }
            slot.queued = Time::NEVER;
            if slot.deadline <= self.woken_at {
                slot.deadline = Time::NEVER;
                return Some(Token(index));
            }
            if slot.deadline.happened() {
                slot.queued = slot.deadline;
                self.timers.push(Reverse((slot.deadline, index)));
            }
        }
        None
    }

    /// Turns the current event into a completion; `None` when it is used up.
    fn complete(&mut self, event: Event) -> Option<Completion> {
        let (index, generation) = unpack(event.data);
        let flags = event.flags;
        let slot = self.slots.get_mut(index as usize)?;
        if slot.generation != generation {
            return None;
        }
        let token = Token(index);
        match std::mem::take(&mut slot.source) {
            Source::None => None,
            Source::Connecting(stream) => {
                // The event is not used up: it may report the first bytes too, as an ordinary stream's from now on.
                let result = stream.take_error().map(|()| *stream);
                if result.is_ok() {
                    slot.source = Source::Stream;
                }
                Some(Completion::Connected { token, result })
            }
            // Reported before it was paused.
            source @ Source::Listening { is_paused: true, .. } => {
                slot.source = source;
                None
            }
            Source::Listening { listener, is_paused } => {
                let result = listener.accept().transpose();
                let failed = matches!(result, Some(Err(_)));
                if failed {
                    // The queue stays as it is, and would be reported again at once.
                    let _ = epoll::modify(&self.epoll, &listener, event.data, EventFlags::empty()); // else we spin
                    self.taken += 1;
                }
                slot.source = Source::Listening { listener, is_paused };
                if failed {
                    self.set_timer(token, self.woken_at + ACCEPT_PAUSE);
                }
                result.map(|result| Completion::Accepted { token, result })
            }
            source @ (Source::Stream | Source::Datagrams) => {
                let is_stream = matches!(source, Source::Stream);
                slot.source = source;
                self.taken += 1;
                let failed = flags.intersects(EventFlags::ERR | EventFlags::HUP);
                let ended = failed || flags.contains(EventFlags::RDHUP);
                Some(Completion::Ready {
                    token,
                    readable: ended || flags.contains(EventFlags::IN),
                    writable: failed || flags.contains(EventFlags::OUT),
                    // Datagrams have no end.
                    hangup: is_stream && ended,
                })
            }
        }
    }

    /// Has the connections that wait at the listener of `token` reported again; `false` if `token` has no listener.
    fn accept_again(&mut self, token: Token) -> bool {
        let Some(Slot { source: Source::Listening { listener, is_paused }, generation, .. }) =
            self.slots.get(token.0 as usize)
        else {
            return false;
        };
        let data = pack(token.0, *generation);
        let events = if *is_paused { EventFlags::empty() } else { ACCEPT_EVENTS };
        if epoll::modify(&self.epoll, listener, data, events).is_err() {
            self.set_timer(token, self.woken_at + ACCEPT_PAUSE);
        }
        true
    }

    /// Adds a socket to the kernel's set under a fresh generation of `token`.
    fn register(&mut self, token: Token, socket: &impl AsFd, flags: EventFlags) -> io::Result<()> {
        let slot = self.slot(token);
        slot.generation = slot.generation.wrapping_add(1);
        let data = pack(token.0, slot.generation);
        Ok(epoll::add(&self.epoll, socket, data, flags)?)
    }

    #[inline]
    fn slot(&mut self, token: Token) -> &mut Slot {
        let index = token.0 as usize;
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, Slot::default);
        }
        &mut self.slots[index]
    }
}

impl fmt::Debug for Reactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reactor")
            .field("slots", &self.slots)
            .field("timers", &self.timers)
            .finish_non_exhaustive()
    }
}

/// The events of a stream: both directions at once, so that interest never has to be changed. Edge-triggered, a writable socket
/// causes no wake-up until it has been full.
const STREAM_EVENTS: EventFlags =
    EventFlags::IN.union(EventFlags::OUT).union(EventFlags::RDHUP).union(EventFlags::ET);

/// The events of a listener.
const ACCEPT_EVENTS: EventFlags = EventFlags::IN;

/// How long nothing is accepted after accepting failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A deadline sooner than this is the timeout of one sleep. Later ones span enough sleeps to make a wake timer
/// worthwhile.
const SOON: Duration = Duration::from_millis(2);

/// The data of the wake timer's events: no token is so large.
const WAKE_TIMER: EventData = EventData::new_u64(u64::MAX);

fn pack(index: u32, generation: u32) -> EventData {
    EventData::new_u64(u64::from(generation) << 32 | u64::from(index))
}

fn unpack(data: EventData) -> (u32, u32) {
    let data = data.u64();
    (data as u32, (data >> 32) as u32)
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(duration.subsec_nanos()),
    }
}

#[cfg(test)]
mod tests;

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
use super::tcp::{Listener, Stream};
use super::wake_timer::WakeTimer;

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
        result: io::Result<Stream>,
    },
    /// A connection was accepted; the role gives it a token of its own with [`Reactor::submit_stream`].
    Accepted {
        /// The listener's token.
        token: Token,
        /// The connection, or why the kernel gave none (too many open files …): the others still wait.
        result: io::Result<Stream>,
    },
    /// The state of a stream has changed. Edge-triggered: read until [`super::tcp::Read::WouldBlock`] (or, without
    /// `hangup`, until a read gives less than its space), else the rest is not reported again.
    Ready {
        /// As submitted.
        token: Token,
        /// There is something to read: bytes, the end of the stream, or an error.
        readable: bool,
        /// There is room to write. Often set beside `readable` without news: try only if a write was short.
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
    /// A stream whose connect has not ended.
    Connecting(Stream),
    /// Accepts connections.
    Listening(Listener),
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

    /// The clock that the timers go by.
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    /// Waits for a connect that [`Stream::connect`] began.
    pub fn submit_connect(&mut self, token: Token, stream: Stream) -> io::Result<()> {
        self.register(token, &stream, STREAM_EVENTS)?;
        self.slot(token).source = Source::Connecting(stream);
        Ok(())
    }

    /// Accepts connections until [`Reactor::forget`]. Where file descriptors or memory have run out, which is reported, the
    /// connections wait in the kernel's queue, and are tried again a little later. The timer of `token` is the reactor's.
    pub fn submit_accept(&mut self, token: Token, listener: Listener) -> io::Result<()> {
        // Level-triggered: what is still in the queue is reported again.
        self.register(token, &listener, ACCEPT_EVENTS)?;
        self.slot(token).source = Source::Listening(listener);
        Ok(())
    }

    /// Reports the traffic of an accepted stream, which the role keeps, until [`Reactor::forget`]. What is already there
    /// is reported at once.
    pub fn submit_stream(&mut self, token: Token, stream: &Stream) -> io::Result<()> {
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
        slot.source = Source::None;
        slot.generation = slot.generation.wrapping_add(1);
        slot.deadline = Time::NEVER;
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
            // Another thread of ours may be due on this CPU, and a real-time one would wait for our next sleep.
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
                let result = stream.take_error().map(|()| stream);
                if result.is_ok() {
                    slot.source = Source::Stream;
                }
                Some(Completion::Connected { token, result })
            }
            Source::Listening(listener) => {
                let result = listener.accept().transpose();
                let failed = matches!(result, Some(Err(_)));
                if failed {
                    // The queue stays as it is, and would be reported again at once.
                    let _ = epoll::modify(&self.epoll, &listener, event.data, EventFlags::empty()); // else we spin
                    self.taken += 1;
                }
                slot.source = Source::Listening(listener);
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

    /// Has the connections that wait at the listener of `token` reported again; `false` if that is none.
    fn accept_again(&mut self, token: Token) -> bool {
        let Some(Slot { source: Source::Listening(listener), generation, .. }) =
            self.slots.get(token.0 as usize)
        else {
            return false;
        };
        let data = pack(token.0, *generation);
        if epoll::modify(&self.epoll, listener, data, ACCEPT_EVENTS).is_err() {
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

/// For how long nothing is accepted after that failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What is due sooner is the timeout of one sleep. Later deadlines span enough sleeps to make a wake timer worthwhile.
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
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::*;
    use crate::cpu_budget::{CpuBudget, CpuShares};
    use crate::tcp::{ConnectOptions, Read, Written};

    const LISTENER: Token = Token(0);
    const CLIENT: Token = Token(1);
    const SERVER: Token = Token(2);
    const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

    fn reactor() -> Reactor {
        Reactor::new(Clock::start()).unwrap()
    }

    /// Waits for one completion, at most a minute: a test that waits longer has failed.
    fn next(reactor: &mut Reactor) -> Completion {
        let until = reactor.clock().now() + Duration::from_secs(60);
        loop {
            if let Some(completion) = reactor.next_completion() {
                return completion;
            }
            assert!(reactor.wait(until).unwrap() < until, "no completion came");
        }
    }

    /// Sleeps up to `until`, however often it is woken before, and returns how often that was.
    fn sleep(reactor: &mut Reactor, until: Time) -> usize {
        let mut times = 0;
        while reactor.wait(until).unwrap() < until {
            assert!(reactor.next_completion().is_none());
            times += 1;
        }
        times
    }

    #[test]
    fn what_is_due_later_rings_once_and_not_too_early() {
        let mut reactor = reactor();
        for ms in [1, 3, 20] {
            let until = reactor.clock().now() + Duration::from_millis(ms);
            assert_eq!(sleep(&mut reactor, until), 0, "{ms} ms");
            assert!(reactor.next_completion().is_none());
        }
    }

    #[test]
    fn a_wake_timer_that_was_set_for_earlier_fires_for_nothing_and_one_for_later_is_set_anew() {
        let mut reactor = reactor();
        let soon = reactor.clock().now() + Duration::from_millis(10);
        reactor.set_timer(CLIENT, soon);
        // As for a sleep that another event ends.
        let _ = reactor.timeout(soon);
        reactor.set_timer(CLIENT, Time::NEVER);
        let later = reactor.clock().now() + Duration::from_millis(40);
        assert!(sleep(&mut reactor, later) <= 2, "what was set before, and no more");
        let far = reactor.clock().now() + Duration::from_secs(3600);
        reactor.set_timer(SERVER, far);
        let _ = reactor.timeout(far);
        let near = reactor.clock().now() + Duration::from_millis(5);
        reactor.set_timer(CLIENT, near);
        while reactor.wait(Time::NEVER).unwrap() < near {
            assert!(reactor.next_completion().is_none());
        }
        assert!(matches!(reactor.next_completion(), Some(Completion::Timer { token: CLIENT })));
    }

    /// Waits until `token` becomes readable.
    fn readable(reactor: &mut Reactor, token: Token) -> bool {
        loop {
            match next(reactor) {
                Completion::Ready { token: of, readable: true, hangup, .. } if of == token => return hangup,
                Completion::Ready { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// A connected pair, both ends known to the reactor.
    fn pair(reactor: &mut Reactor) -> (Stream, Stream) {
        let listener = Listener::bind(LOOPBACK).unwrap();
        let address = listener.local_address().unwrap();
        reactor.submit_accept(LISTENER, listener).unwrap();
        reactor
            .submit_connect(CLIENT, Stream::connect(&address.into(), &ConnectOptions::default()).unwrap())
            .unwrap();
        let (mut client, mut server) = (None, None);
        while client.is_none() || server.is_none() {
            match next(reactor) {
                Completion::Connected { token: CLIENT, result } => client = Some(result.unwrap()),
                Completion::Accepted { token: LISTENER, result } => {
                    let stream = result.unwrap();
                    reactor.submit_stream(SERVER, &stream).unwrap();
                    server = Some(stream);
                }
                Completion::Ready { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        (client.unwrap(), server.unwrap())
    }

    #[test]
    fn bytes_cross_a_pair_and_its_end_is_reported_as_a_hangup() {
        let mut reactor = reactor();
        let (client, server) = pair(&mut reactor);
        assert_eq!(client.write(b"hello").unwrap(), Written::Bytes(5));
        assert!(!readable(&mut reactor, SERVER));
        let mut space = [0; 16];
        assert_eq!(server.read(&mut space).unwrap(), Read::Bytes(5));
        assert_eq!(server.read(&mut space).unwrap(), Read::WouldBlock);
        reactor.forget(CLIENT);
        drop(client);
        assert!(readable(&mut reactor, SERVER));
        assert_eq!(server.read(&mut space).unwrap(), Read::Eof);
    }

    #[test]
    fn a_full_socket_reports_when_there_is_room_again() {
        let mut reactor = reactor();
        let (client, server) = pair(&mut reactor);
        let block = vec![7; 1 << 20];
        while client.write(&block).unwrap() != Written::WouldBlock {}
        let mut space = vec![0; 1 << 20];
        loop {
            match next(&mut reactor) {
                Completion::Ready { token: SERVER, .. } => {
                    while let Read::Bytes(_) = server.read(&mut space).unwrap() {}
                }
                Completion::Ready { token: CLIENT, writable: true, .. }
                    if client.write(b"more").unwrap() == Written::Bytes(4) =>
                {
                    return;
                }
                _ => {}
            }
        }
    }

    #[test]
    fn a_refused_connect_completes_with_its_error() {
        let mut reactor = reactor();
        let address = Listener::bind(LOOPBACK).unwrap().local_address().unwrap(); // closed again: nobody listens
        let connecting = Stream::connect(&address.into(), &ConnectOptions::default()).unwrap();
        reactor.submit_connect(CLIENT, connecting).unwrap();
        match next(&mut reactor) {
            Completion::Connected { token: CLIENT, result: Err(error) } => {
                assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn before_linux_5_11_events_and_deadlines_come_too() {
        let mut reactor = reactor();
        let (client, _server) = pair(&mut reactor);
        while reactor.next_completion().is_some() {}
        reactor.events.clear();
        client.write(b"news").unwrap();
        let long = Timespec { tv_sec: 10, tv_nsec: 0 };
        reactor.take_events_before_5_11(Some(&long)).unwrap();
        let (token, _) = unpack(reactor.events[0].data);
        assert_eq!((reactor.events.len(), Token(token)), (1, SERVER));
        reactor.events.clear();
        let short = Timespec { tv_sec: 0, tv_nsec: 1 };
        reactor.take_events_before_5_11(Some(&short)).unwrap();
        assert!(reactor.events.is_empty(), "an edge is reported once");
    }

    #[test]
    fn timers_complete_in_the_order_of_their_deadlines_and_never_early() {
        let mut reactor = reactor();
        let start = reactor.clock().now();
        let at = |us| start + Duration::from_micros(us);
        reactor.set_timer(Token(3), at(900));
        reactor.set_timer(Token(1), at(300));
        reactor.set_timer(Token(2), at(600));
        for (expected, due) in [(1, at(300)), (2, at(600)), (3, at(900))] {
            match next(&mut reactor) {
                Completion::Timer { token } => assert_eq!(token, Token(expected)),
                other => panic!("{other:?}"),
            }
            assert!(reactor.clock().now() >= due);
        }
    }

    #[test]
    fn a_sharp_wait_ends_at_its_time_or_with_what_comes_before() {
        let mut reactor = reactor();
        let mut precise_wakeup = precise_wakeup(CpuShares { waiting: 100, working: 100 });
        // Nearer than the margin: there is no sleep, and it cannot be early.
        while precise_wakeup.awake().is_zero() {
            let until = reactor.clock().now() + precise_wakeup.margin() / 2;
            assert!(reactor.wait_precisely(until, &mut precise_wakeup).unwrap() >= until);
        }
        // Farther: it sleeps first.
        let margin = precise_wakeup.margin();
        let until = reactor.clock().now() + 4 * margin;
        assert!(reactor.wait_precisely(until, &mut precise_wakeup).unwrap() >= until);
        assert_ne!(precise_wakeup.margin(), margin, "it has learnt how long waking took");
        // Events of a socket and timers end it at once.
        let far = reactor.clock().now() + Duration::from_secs(600);
        let (client, _server) = pair(&mut reactor);
        while reactor.next_completion().is_some() {}
        client.write(b"news").unwrap();
        assert!(reactor.wait_precisely(far, &mut precise_wakeup).unwrap() < far);
        while reactor.next_completion().is_some() {}
        let due = reactor.clock().now() + Duration::from_millis(1);
        reactor.set_timer(Token(7), due);
        while reactor.wait_precisely(far, &mut precise_wakeup).unwrap() < due {
            while reactor.next_completion().is_some() {}
        }
        assert!(matches!(reactor.next_completion(), Some(Completion::Timer { token: Token(7) })));
    }

    /// One that stays awake for half a millisecond at most, and is now at that.
    fn precise_wakeup(shares: CpuShares) -> PreciseWakeup {
        let budget = CpuBudget::new(shares, Time::ZERO, thread_cpu_ns());
        let mut precise_wakeup = PreciseWakeup::new(4, Duration::from_micros(500), budget);
        (0..1_000).for_each(|_| precise_wakeup.woke(Duration::from_secs(1)));
        precise_wakeup
    }

    #[test]
    fn who_has_used_up_its_cpu_rests_even_if_something_has_come() {
        let mut reactor = reactor();
        let (client, _server) = pair(&mut reactor);
        while reactor.next_completion().is_some() {}
        let mut precise_wakeup = precise_wakeup(CpuShares { waiting: 0, working: 0 });
        client.write(b"news").unwrap();
        let mut waited = |precise_wakeup: &mut PreciseWakeup| {
            let from = reactor.clock().now();
            let until = reactor.wait_precisely(from + REST / 2, precise_wakeup).unwrap();
            let news = std::iter::from_fn(|| reactor.next_completion()).count();
            (until.since(from), news)
        };
        assert_eq!(waited(&mut precise_wakeup).1, 1, "there is a millisecond to use");
        client.write(b"news").unwrap();
        let used = thread_cpu_ns();
        while thread_cpu_ns() < used + 2_000_000 {}
        let (took, news) = waited(&mut precise_wakeup);
        assert!(took >= REST && news == 1, "{took:?}, {news}");
    }

    #[test]
    fn a_timer_that_was_moved_or_disarmed_completes_once_or_never() {
        let mut reactor = reactor();
        let start = reactor.clock().now();
        let at = |us| start + Duration::from_micros(us);
        reactor.set_timer(Token(1), at(100));
        reactor.set_timer(Token(1), at(2_000)); // later
        reactor.set_timer(Token(2), at(9_000));
        reactor.set_timer(Token(2), at(1_000)); // earlier
        reactor.set_timer(Token(3), at(500));
        reactor.set_timer(Token(3), Time::NEVER);
        reactor.set_timer(Token(4), at(12_000));
        let mut due_at = |us| {
            reactor.woken_at = at(us);
            std::iter::from_fn(|| reactor.next_completion())
                .map(|completion| match completion {
                    Completion::Timer { token } => token.0,
                    other => panic!("{other:?}"),
                })
                .collect::<Vec<_>>()
        };
        let none = Vec::<u32>::new();
        assert_eq!((due_at(999), due_at(1_000), due_at(1_999)), (none.clone(), vec![2], none.clone()));
        assert_eq!((due_at(2_000), due_at(11_999), due_at(12_000)), (vec![1], none, vec![4]));
    }

    #[test]
    fn completions_of_a_forgotten_stream_never_reach_its_successor() {
        let mut reactor = reactor();
        let (client, server) = pair(&mut reactor);
        client.write(b"for the old one").unwrap();
        // The event has been read from the kernel when the stream is forgotten and another takes its token.
        reactor.wait(reactor.clock().now() + Duration::from_secs(10)).unwrap();
        reactor.forget(SERVER);
        drop(server);
        let idle = Listener::bind(LOOPBACK).unwrap();
        reactor.submit_accept(SERVER, idle).unwrap();
        while let Some(completion) = reactor.next_completion() {
            assert!(!matches!(completion, Completion::Ready { token: SERVER, .. }), "{completion:?}");
        }
    }

    #[test]
    fn below_the_mark_nobody_is_woken_but_by_its_end() {
        let mut reactor = reactor();
        let (client, server) = pair(&mut reactor);
        let mut space = [0; 4096];
        client.set_rcvlowat(2_000);
        while reactor.wait(Time::ZERO).is_ok() && reactor.next_completion().is_some() {}
        let quiet = |reactor: &mut Reactor| {
            let until = reactor.clock().now() + Duration::from_millis(20);
            while reactor.wait(until).unwrap() < until {
                if let Some(completion) = reactor.next_completion() {
                    assert!(!matches!(completion, Completion::Ready { token: CLIENT, .. }), "{completion:?}");
                }
            }
        };
        assert_eq!(server.write(&[1; 1_500]).unwrap(), Written::Bytes(1_500));
        quiet(&mut reactor);
        assert_eq!(server.write(&[1; 500]).unwrap(), Written::Bytes(500));
        assert!(!readable(&mut reactor, CLIENT));
        assert_eq!(client.read(&mut space).unwrap(), Read::Bytes(2_000));
        assert_eq!(server.write(&[1; 10]).unwrap(), Written::Bytes(10));
        quiet(&mut reactor);
        client.set_rcvlowat(1);
        assert!(!readable(&mut reactor, CLIENT), "a lower mark reports what was there");
        assert_eq!(client.read(&mut space).unwrap(), Read::Bytes(10));
        client.set_rcvlowat(2_000);
        assert_eq!(server.write(&[1; 10]).unwrap(), Written::Bytes(10));
        server.shutdown_write().unwrap();
        assert!(readable(&mut reactor, CLIENT), "the end is reported at any mark");
        assert_eq!(client.read(&mut space).unwrap(), Read::Bytes(10));
    }
}

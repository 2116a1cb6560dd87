//! The driver's end of agents that run already and are reached by packets, such as over NATS.
//!
//! One thread has the sessions of all agents of a driver: a thread for each would be more than a hundred for a hundred agents. It
//! sends again what was not acknowledged, tells when an agent is gone, and never waits for one of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use std::{fmt, io, thread};

use h2lab_base::units::{Time, format_duration};
use h2lab_model::fleet::messages::{decode_printable, encode, encode_order};
use h2lab_model::fleet::session::{Session, SessionError};
use h2lab_model::fleet::{FromAgent, MessageError, ToAgent};
use rustix::rand::{GetRandomFlags, getrandom};

use super::agent::SILENCE_TIMEOUT;
use super::agent_transport::{Inbox, IncomingEvent, TransportKind};
use super::service::waiting::{Place, Room};
use h2lab_net::clock::Clock;

/// How long the end of a session waits until the agent has acknowledged it. An agent that does not ends by itself ([`SILENCE_TIMEOUT`]).
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// The thread of the sessions waits this long at most, so that it knows when it was stopped …
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// … which it was if it woke up so late: its process was stopped, or its machine suspended.
const PAUSE: Duration = Duration::from_secs(5);
/// How long it reads what has come meanwhile before it calls an agent silent.
const CATCHING_UP: Duration = Duration::from_secs(5);

/// Takes packets to one agent.
pub trait Datagrams: Send {
    /// Sends a packet, or queues it; it must not wait. [`io::ErrorKind::WouldBlock`] drops the packet, and it is sent again later;
    /// any other error means that the agent cannot be reached.
    fn send(&self, packet: Vec<u8>) -> io::Result<()>;
}

impl<F: Fn(Vec<u8>) -> io::Result<()> + Send> Datagrams for F {
    fn send(&self, packet: Vec<u8>) -> io::Result<()> {
        self(packet)
    }
}

/// Why an agent is lost to its driver.
#[derive(Debug, thiserror::Error)]
enum SessionLoss {
    /// It speaks another version, or sends what is no message.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The session broke: the agent's process was started again, above all.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// It works for another driver, and was heard to say so.
    #[error("it works for another driver")]
    Busy,
    /// Nothing came from it.
    #[error(
        "nothing was heard from it for {}: it has ended, or the network is interrupted",
        format_duration(SILENCE_TIMEOUT)
    )]
    Silent,
    /// Nothing could come from it.
    #[error(
        "this driver did not run for {}s (stopped or suspended), and the agent does not wait for that long",
        .time.as_secs()
    )]
    Stopped {
        /// For how long the driver did not run.
        time: Duration,
    },
    /// Its packets cannot be sent.
    #[error("nothing can be sent to it: {0}")]
    Unsendable(#[from] io::Error),
}

/// The sessions of one driver with its agents. Its thread ends with the last of them.
#[derive(Debug)]
pub struct Sessions {
    driver: String,
    clock: Clock,
    orders: Sender<Order>,
    lines: AtomicUsize,
}

impl Sessions {
    /// No session yet. `driver` tells agents, and whoever finds them busy, who we are.
    pub fn start(driver: String) -> io::Result<Self> {
        let (clock, (orders, taken)) = (Clock::start(), channel());
        let pump = Pump { clock, lines: BTreeMap::new() };
        thread::Builder::new().name("sessions".to_owned()).spawn(move || pump.run(&taken))?;
        Ok(Self { driver, clock, orders, lines: AtomicUsize::new(0) })
    }

    /// One more session, with whom is said by [`SessionLine::to`].
    pub fn line(&self) -> SessionLine {
        let line = self.lines.fetch_add(1, Ordering::Relaxed);
        let (driver, orders) = (self.driver.clone(), self.orders.clone());
        // Each has a room of its own: an agent must not be able to take that of the others.
        SessionLine { line, driver, clock: self.clock, orders, room: Room::of_packets() }
    }
}

/// A session that was not opened yet: where its packets come in is known before the way out, which may need that.
#[derive(Debug)]
pub struct SessionLine {
    line: usize,
    driver: String,
    clock: Clock,
    orders: Sender<Order>,
    room: Room,
}

impl SessionLine {
    /// Where packets of the agent are put.
    pub fn sender(&self) -> PacketSender {
        PacketSender { line: self.line, orders: self.orders.clone(), room: self.room.clone() }
    }

    /// The agent to which `datagrams` takes packets. They are dropped with the session.
    pub fn to(self, datagrams: Box<dyn Datagrams>) -> TransportKind {
        TransportKind::Session(SessionAgent { line: self, datagrams })
    }
}

/// Where the packets of one agent are put.
#[derive(Debug, Clone)]
pub struct PacketSender {
    line: usize,
    orders: Sender<Order>,
    room: Room,
}

impl PacketSender {
    /// Takes a packet that came; it never waits. What comes before the session is opened, or after its end, is dropped,
    /// and so is what there is no room for: sessions send again what was not acknowledged.
    pub fn put(&self, packet: Vec<u8>) {
        if let Some(place) = self.room.take(packet.len()) {
            // Fails only if the thread has panicked: then its sessions have ended.
            let _ = self.orders.send(Order::Packet { line: self.line, packet, place });
        }
    }
}

/// An agent that runs already.
pub struct SessionAgent {
    line: SessionLine,
    datagrams: Box<dyn Datagrams>,
}

impl fmt::Debug for SessionAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionAgent").field("line", &self.line.line).finish_non_exhaustive()
    }
}

/// A random number that tells this end of a session from one of another process.
pub(super) fn epoch() -> io::Result<u64> {
    let mut random = [0; 8];
    getrandom(&mut random[..], GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(random))
}

/// What the thread of the sessions is told.
#[derive(Debug)]
enum Order {
    Open {
        line: usize,
        begin: Box<Line>,
    },
    Packet {
        line: usize,
        packet: Vec<u8>,
        /// What it takes until it was read.
        place: Place,
    },
    Say {
        line: usize,
        message: String,
    },
    /// The driver needs it no more; the sender is dropped when the agent knows, or after [`CLOSE_TIMEOUT`].
    Close {
        line: usize,
        done: Sender<()>,
    },
}

/// The path to one agent.
#[derive(Debug)]
pub(super) struct SessionTransport {
    line: usize,
    orders: Sender<Order>,
    /// Ends when the session has.
    closing: Option<Receiver<()>>,
}

impl SessionTransport {
    /// Opens a session; what comes of that is put into the inbox.
    pub fn open(agent: SessionAgent, inbox: Inbox) -> io::Result<Self> {
        let SessionAgent { line: SessionLine { line, driver, clock, orders, .. }, datagrams } = agent;
        let session = Session::new(clock.now(), epoch()?);
        let transport = Self { line, orders, closing: None };
        transport.order(Order::Open {
            line,
            begin: Box::new(Line { session, datagrams, inbox, closing: None, pause: None }),
        })?;
        transport.send(&ToAgent::Open { driver })?;
        Ok(transport)
    }

    /// Queues a message. One that the agent would not read is an error.
    pub fn send(&self, message: &ToAgent) -> io::Result<()> {
        let message = encode_order(message).map_err(io::Error::other)?;
        self.order(Order::Say { line: self.line, message })
    }

    /// Ends the session, without waiting for it: dropping waits.
    pub fn close(&mut self) {
        let (done, closing) = channel();
        if self.closing.is_none() && self.order(Order::Close { line: self.line, done }).is_ok() {
            self.closing = Some(closing);
        }
    }

    fn order(&self, order: Order) -> io::Result<()> {
        self.orders.send(order).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Drop for SessionTransport {
    fn drop(&mut self) {
        self.close();
        if let Some(closing) = self.closing.take() {
            // Nothing is ever sent: it ends with the session. Longer than that may take.
            let _ = closing.recv_timeout(CLOSE_TIMEOUT * 2);
        }
    }
}

/// One session, and what it is between.
struct Line {
    session: Session,
    datagrams: Box<dyn Datagrams>,
    inbox: Inbox,
    /// When the session is dropped although its end is not acknowledged, and the channel to the thread that ends it.
    closing: Option<(Time, Sender<()>)>,
    /// The last time in which this driver did not run, if any.
    pause: Option<Pause>,
}

/// A time in which this driver did not run.
#[derive(Debug, Clone, Copy)]
struct Pause {
    time: Duration,
    until: Time,
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("inbox", &self.inbox).finish_non_exhaustive()
    }
}

impl Line {
    /// When [`Line::advance`] wants to be called.
    fn poll_timeout(&self) -> Time {
        let ends = match &self.closing {
            Some((until, _)) => *until,
            None => self.silent_at(),
        };
        self.session.poll_timeout().min(ends)
    }

    /// When it counts as silent, if it stays so. After a pause what has come meanwhile is read first.
    fn silent_at(&self) -> Time {
        let silent = self.session.heard_at() + SILENCE_TIMEOUT;
        self.pause.map_or(silent, |pause| silent.max(pause.until + CATCHING_UP))
    }

    /// A packet has come.
    fn receive(&mut self, now: Time, packet: &[u8]) -> Result<(), SessionLoss> {
        for line in self.session.handle(now, packet)? {
            let message = decode_printable::<FromAgent>(&line)?;
            let is_busy = matches!(message, FromAgent::Busy { .. });
            // Nobody reads any more if the drive has ended. That it is busy is a refusal, which a loss of the session is not.
            let _ = self.inbox.put(IncomingEvent::Message(Box::new(message)));
            if is_busy {
                return Err(SessionLoss::Busy);
            }
        }
        Ok(())
    }

    /// The driver needs the agent no more.
    fn close(&mut self, now: Time, done: Sender<()>) -> Result<(), SessionLoss> {
        self.closing = Some((now + CLOSE_TIMEOUT, done));
        // What is before it must arrive first, and may have been on its way for long.
        self.session.send_again(now);
        self.session.send(now, encode(&ToAgent::Bye).map_err(io::Error::from)?);
        Ok(())
    }

    /// Sends what is due. Whether the session goes on: one that is closed ends when the agent knows.
    fn advance(&mut self, now: Time) -> Result<bool, SessionLoss> {
        while let Some(packet) = self.session.poll_packet(now) {
            match self.datagrams.send(packet) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => sent?,
            }
        }
        if let Some((until, _)) = &self.closing {
            return Ok(now < *until && !self.session.is_delivered());
        }
        if now < self.silent_at() {
            return Ok(true);
        }
        // It was not the agent that was silent during a pause: it has given this driver up.
        let heard_before = |pause: &Pause| self.session.heard_at() < pause.until;
        Err(match self.pause.filter(heard_before) {
            Some(Pause { time, .. }) => SessionLoss::Stopped { time },
            None => SessionLoss::Silent,
        })
    }

    /// Whether it goes on after that; if it was lost, the driver is told.
    fn keeps(&self, advanced: Result<bool, SessionLoss>) -> bool {
        advanced.unwrap_or_else(|loss| {
            if self.closing.is_none() {
                self.inbox.put(IncomingEvent::Closed(loss.to_string()));
            }
            false
        })
    }
}

/// The thread that has all sessions.
#[derive(Debug)]
struct Pump {
    clock: Clock,
    lines: BTreeMap<usize, Line>,
}

impl Pump {
    /// Works until nobody can give an order any more.
    fn run(mut self, orders: &Receiver<Order>) {
        loop {
            let next = self.lines.values().map(Line::poll_timeout).min().unwrap_or(Time::NEVER);
            let waits_since = self.clock.now();
            let longest = next.since(waits_since).min(LONGEST_WAIT);
            let order = orders.recv_timeout(longest);
            let now = self.clock.now();
            self.note_pause(now, now.since(waits_since).saturating_sub(longest));
            match order {
                Ok(order) => self.obey(order),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let now = self.clock.now();
            self.lines.retain(|_, line| {
                line.poll_timeout() > now || {
                    let advanced = line.advance(now);
                    line.keeps(advanced)
                }
            });
        }
    }

    /// It woke up so late.
    fn note_pause(&mut self, now: Time, time: Duration) {
        if time >= PAUSE {
            self.lines.values_mut().for_each(|line| line.pause = Some(Pause { time, until: now }));
        }
    }

    fn obey(&mut self, order: Order) {
        let now = self.clock.now();
        match order {
            Order::Open { line, begin } => {
                self.lines.insert(line, *begin);
            }
            Order::Packet { line, packet, place } => {
                self.on(line, now, |line| line.receive(now, &packet));
                drop(place);
            }
            Order::Say { line, message } => self.on(line, now, |line| {
                line.session.send(now, message);
                Ok(())
            }),
            Order::Close { line, done } => self.on(line, now, |line| line.close(now, done)),
        }
    }

    /// Does something in a session, and then what follows. A session that has ended does nothing more.
    fn on(&mut self, place: usize, now: Time, act: impl FnOnce(&mut Line) -> Result<(), SessionLoss>) {
        let Some(line) = self.lines.get_mut(&place) else { return };
        let advanced = act(line).and_then(|()| line.advance(now));
        if !line.keeps(advanced) {
            self.lines.remove(&place);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use h2lab_net::lock::lock;

    use super::super::service::waiting::MOST_BYTES;
    use super::*;

    /// A session whose first packet the network does not take, the packets that it took, and what the driver is told.
    fn line() -> (Line, Arc<Mutex<usize>>, Receiver<super::super::agent_transport::Received>) {
        let (all, mail) = channel();
        let calls = Arc::<Mutex<usize>>::default();
        let counted = Arc::clone(&calls);
        let datagrams = move |_: Vec<u8>| {
            *lock(&counted) += 1;
            if *lock(&counted) == 1 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        };
        let inbox = Inbox { agent: 0, clock: Clock::start(), all };
        let session = Session::new(Time::ZERO, 1);
        (Line { session, datagrams: Box::new(datagrams), inbox, closing: None, pause: None }, calls, mail)
    }

    #[test]
    fn packets_of_an_agent_wait_up_to_a_number_of_bytes_and_leave_those_of_another_alone() {
        let (orders, taken) = channel();
        let sessions =
            Sessions { driver: String::new(), clock: Clock::start(), orders, lines: AtomicUsize::new(0) };
        let [one, other] = [sessions.line().sender(), sessions.line().sender()];
        let packets = || (0..5).for_each(|_| one.put(vec![0; MOST_BYTES / 4]));
        packets();
        other.put(vec![0; MOST_BYTES]);
        let of = |order: Order| match order {
            Order::Packet { line, .. } => line,
            order => panic!("{order:?}"),
        };
        assert!(taken.try_iter().map(of).eq([0, 0, 0, 0, 1]), "the fifth of one has no room");
        packets();
        assert_eq!(taken.try_iter().count(), 4, "those before have left their places");
    }

    #[test]
    fn a_packet_that_the_network_does_not_take_is_sent_again() {
        let (mut line, calls, _mail) = line();
        line.session.send(Time::ZERO, "a line".to_owned());
        assert!(line.advance(Time::ZERO).unwrap());
        let again = line.poll_timeout();
        assert!(again > Time::ZERO && *lock(&calls) == 1);
        assert!(line.advance(again).unwrap());
        assert_eq!(*lock(&calls), 2);
    }

    #[test]
    fn an_agent_of_which_nothing_is_heard_is_lost_after_a_minute_and_not_before() {
        let (mut line, _, mail) = line();
        let last = Time::ZERO + SILENCE_TIMEOUT;
        assert!(line.advance(last - Duration::from_nanos(1)).unwrap());
        let advanced = line.advance(last);
        assert!(matches!(advanced, Err(SessionLoss::Silent)), "{advanced:?}");
        assert!(!line.keeps(advanced));
        let (_, _, told) = mail.try_recv().unwrap();
        assert!(matches!(&told, IncomingEvent::Closed(why) if why.contains("nothing was heard")), "{told:?}");
    }

    #[test]
    fn a_driver_that_was_stopped_for_a_minute_says_so_and_does_not_call_its_agents_silent() {
        let (line, _, mail) = line();
        let mut pump = Pump { clock: Clock::start(), lines: BTreeMap::from([(0, line)]) };
        let (begin, long) = (Time::ZERO, Duration::from_secs(75));
        let until = begin + long;
        pump.note_pause(until, PAUSE.saturating_sub(Duration::from_nanos(1)));
        assert_eq!(pump.lines[&0].silent_at(), begin + SILENCE_TIMEOUT, "it was late, no more");
        pump.note_pause(until, long);
        let line = pump.lines.get_mut(&0).unwrap();
        assert_eq!(line.silent_at(), until + CATCHING_UP);
        assert!(line.advance(until + CATCHING_UP.saturating_sub(Duration::from_nanos(1))).unwrap());
        let advanced = line.advance(until + CATCHING_UP);
        assert!(!line.keeps(advanced));
        let (_, _, told) = mail.try_recv().unwrap();
        let words = "this driver did not run for 75s (stopped or suspended)";
        assert!(matches!(&told, IncomingEvent::Closed(why) if why.starts_with(words)), "{told:?}");
        // One that was heard of since then is silent by itself a minute later.
        let mut agent = Session::new(begin, 2);
        agent.send(begin, "{}".to_owned());
        line.session.handle(until + PAUSE, &agent.poll_packet(begin).unwrap()).unwrap();
        let silent = line.silent_at();
        assert_eq!(silent, until + PAUSE + SILENCE_TIMEOUT);
        assert!(matches!(line.advance(silent), Err(SessionLoss::Silent)));
    }

    #[test]
    fn an_agent_that_is_busy_has_refused_before_its_session_is_lost() {
        let (mut line, _, mail) = line();
        let mut agent = Session::new(Time::ZERO, 2);
        agent.send(Time::ZERO, encode(&FromAgent::Busy { with: "ann at desk, 3 s".to_owned() }).unwrap());
        let packet = agent.poll_packet(Time::ZERO).unwrap();
        let received = line.receive(Time::ZERO, &packet).map(|()| true);
        assert!(!line.keeps(received), "it sends nothing more");
        let told: Vec<_> = mail.try_iter().map(|(_, _, told)| told).collect();
        let [IncomingEvent::Message(message), IncomingEvent::Closed(_)] = &told[..] else {
            panic!("{told:?}")
        };
        assert!(matches!(&**message, FromAgent::Busy { with } if with == "ann at desk, 3 s"), "{message:?}");
    }

    #[test]
    fn the_end_of_a_session_is_waited_for_three_seconds_and_no_longer() {
        let (mut line, _, mail) = line();
        let (done, closing) = channel();
        line.close(Time::ZERO, done).unwrap();
        let until = Time::ZERO + CLOSE_TIMEOUT;
        assert_eq!(until, Time::from_millis(3000));
        assert!(line.advance(until - Duration::from_nanos(1)).unwrap(), "the agent may answer still");
        assert!(!line.advance(until).unwrap());
        drop(line);
        assert!(closing.recv().is_err() && mail.try_recv().is_err(), "the driver wanted that end");
    }
}

//! The agent's end of sessions: an agent that runs on its own and works for one driver after the other.
//!
//! Packets come in with the number of their session and go out with it. One thread has all sessions: that of the driver
//! for whom it works, whose orders a second thread follows (`worker`), and those of others, who are refused in words.
//! What may wait for either thread is bounded (`waiting`).

mod tasks;
pub(super) mod waiting;
mod worker;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fmt, io};

use h2lab_base::units::Time;
use h2lab_model::fleet::messages::{decode, encode};
use h2lab_model::fleet::session::Session;
use h2lab_model::fleet::subjects::RandomId;
use h2lab_model::fleet::{FromAgent, ToAgent};

use super::agent::AgentSetup;
use super::occupancy::{Occupancy, Occupied, Reservation};
use super::permits::Permits;
use super::session_transport::epoch;
use h2lab_net::clock::Clock;
use waiting::{Place, Room};
use worker::Worker;

/// How long a session is kept for which nothing is done: its driver may ask again for what it has not received.
const LINGER: Duration = Duration::from_secs(10);

/// How long the end of the service waits for what it still has to say.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the end of the service waits, [`CLOSE_TIMEOUT`] included, until what it did has let go: a share that is being stored must
/// not write into a folder that is removed meanwhile. A piece of a part may take 10 s. With 60 s of draining before it, this is
/// within the 75 s that a service manager waits for the process (packaging/systemd).
const LET_GO: Duration = Duration::from_secs(10);

/// The most sessions at a time. All but one are of drivers that are being refused: beyond, the one that would end first is dropped.
const MOST_SESSIONS: usize = 64;

/// The longest name of a driver, in characters; the rest is cut.
const LONGEST_NAME: usize = 128;

/// A driver that has not said who it is.
const UNKNOWN: &str = "an unknown driver";

/// What a driver is told whose agent has panicked, and can say no more itself.
const PANICKED: &str = "its agent panicked; its log has the reason";

/// What a service has around it.
pub struct ServiceIo {
    /// Sends a packet of the session with this number, or queues it; it must not wait. A packet that it drops is sent again later.
    pub send: Box<dyn Fn(RandomId, Vec<u8>) + Send>,
    /// Takes an event for the log, in one sentence. It quotes what drivers say as it is, and must be made printable.
    pub log: Box<dyn Fn(&str) + Send>,
}

impl fmt::Debug for ServiceIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceIo").finish_non_exhaustive()
    }
}

/// An agent that works for one driver after the other. Dropping it ends what it does for one, who is told, and waits until that is
/// over, for 10 s at most.
#[derive(Debug)]
pub struct Service {
    orders: Sender<Order>,
    room: Room,
    occupancy: Arc<Occupancy>,
    thread: Option<JoinHandle<()>>,
}

/// Where the packets of all sessions are put.
#[derive(Debug, Clone)]
pub struct ServiceSender {
    orders: Sender<Order>,
    room: Room,
}

impl ServiceSender {
    /// Takes a packet that came for this session; it never waits. One for which there is no room is dropped: sessions
    /// send again what was not acknowledged.
    pub fn put(&self, session: RandomId, packet: &[u8]) {
        if let Some(place) = self.room.take(packet.len()) {
            // Fails only after the service has ended.
            let _ = self.orders.send(Order::Packet { session, packet: packet.to_vec(), place });
        }
    }
}

impl Service {
    /// Works for whoever opens a session.
    pub fn start(setup: AgentSetup, io: ServiceIo) -> io::Result<Self> {
        let ((orders, taken), occupancy) = (channel(), Occupancy::new());
        let pump = Pump {
            clock: Clock::start(),
            setup: Arc::new(setup),
            io,
            occupancy: Arc::clone(&occupancy),
            orders: orders.clone(),
            peers: BTreeMap::new(),
            ends_at: None,
        };
        let thread = thread::Builder::new().name("service".to_owned()).spawn(move || pump.run(&taken))?;
        Ok(Self { orders, room: Room::of_packets(), occupancy, thread: Some(thread) })
    }

    /// Where packets are put.
    pub fn sender(&self) -> ServiceSender {
        ServiceSender { orders: self.orders.clone(), room: self.room.clone() }
    }

    /// For whom it works, and for how long already; `None` if it is free.
    pub fn busy(&self) -> Option<String> {
        self.occupancy.with()
    }

    /// Takes the agent for work that no session orders, such as a unit of a run: until the reservation is dropped drivers are refused,
    /// with these words on whom it works for.
    pub fn reserve(&self, with: String) -> Result<Reservation, Occupied> {
        self.occupancy.take(with)
    }

    /// Begins nothing new from now on, and goes on with what it does.
    pub fn drain(&self) {
        self.occupancy.drain();
    }

    /// Waits until it does nothing, at most so long; whether it is so.
    pub fn wait_until_free(&self, timeout: Duration) -> bool {
        self.occupancy.wait_until_free(timeout)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let until = Instant::now() + LET_GO;
        self.occupancy.drain();
        if self.orders.send(Order::End).is_ok()
            && let Some(thread) = self.thread.take()
        {
            // A panic of it has ended all sessions: their drivers notice the silence.
            let _ = thread.join();
        }
        // The sessions are given up sooner than that may take.
        self.occupancy.wait_until_free(until.saturating_duration_since(Instant::now()));
    }
}

/// What the thread of the sessions is told.
#[derive(Debug)]
enum Order {
    /// A packet has come, which takes this place until it was read.
    Packet { session: RandomId, packet: Vec<u8>, place: Place },
    /// A task is permitted, and begins.
    Begins { session: RandomId, what: String },
    /// What an agent has to say.
    Say { session: RandomId, message: Box<FromAgent> },
    /// The work for this session is over; whether by a panic, so that its driver does not know yet.
    Over { session: RandomId, has_panicked: bool },
    /// The service ends.
    End,
}

/// The driver at the other end of a session.
struct Peer {
    session: Session,
    /// The thread that works for it.
    worker: Option<Worker>,
    /// Who it says that it is; `None` before it opens the session.
    driver: Option<String>,
    /// Whether a task of it was permitted: what is said against it from then on is a failure.
    has_begun: bool,
    /// When the session is forgotten if nothing is done for it.
    until: Time,
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("driver", &self.driver).finish_non_exhaustive()
    }
}

/// The thread that has all sessions.
#[derive(Debug)]
struct Pump {
    clock: Clock,
    setup: Arc<AgentSetup>,
    io: ServiceIo,
    occupancy: Arc<Occupancy>,
    /// To itself.
    orders: Sender<Order>,
    /// By the numbers of their sessions.
    peers: BTreeMap<RandomId, Peer>,
    /// When it ends, whatever is still to be said.
    ends_at: Option<Time>,
}

impl Pump {
    fn run(mut self, orders: &Receiver<Order>) {
        while !self.has_ended() {
            let times = self.peers.values().map(Peer::poll_timeout).chain(self.ends_at);
            let next = times.min().unwrap_or(Time::NEVER);
            match orders.recv_timeout(next.since(self.clock.now())) {
                Ok(Order::Packet { session, packet, place }) => {
                    self.receive(session, &packet);
                    drop(place);
                }
                Ok(Order::Begins { session, what }) => self.note_begin(session, &what),
                Ok(Order::Say { session, message }) => self.say(session, &message),
                Ok(Order::Over { session, has_panicked }) => self.note_over(session, has_panicked),
                Ok(Order::End) => self.end(),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => unreachable!("it holds a sender itself"),
            }
            self.advance();
        }
    }

    /// Whether the service was ended, and everything was said, or there is no time left for it.
    fn has_ended(&self) -> bool {
        let is_done = || self.peers.values().all(|peer| peer.worker.is_none() && peer.session.is_delivered());
        self.ends_at.is_some_and(|at| self.clock.now() >= at || is_done())
    }

    /// Sends what is due, and forgets sessions that have ended.
    fn advance(&mut self) {
        let now = self.clock.now();
        for (id, peer) in &mut self.peers {
            while let Some(packet) = peer.session.poll_packet(now) {
                (self.io.send)(*id, packet);
            }
        }
        self.peers.retain(|_, peer| peer.worker.is_some() || now < peer.until);
    }

    /// A packet of a session, known or new.
    fn receive(&mut self, id: RandomId, packet: &[u8]) {
        let now = self.clock.now();
        if !self.peers.contains_key(&id) {
            // Without random numbers no session is safe: the driver gives up an agent that is silent.
            let Ok(epoch) = epoch() else { return };
            self.make_room();
            let (session, until) = (Session::new(now, epoch), now + LINGER);
            self.peers.insert(id, Peer { session, worker: None, driver: None, has_begun: false, until });
        }
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let lines = match peer.session.handle(now, packet) {
            Ok(lines) => lines,
            Err(error) => return self.give_up(id, &error.to_string()),
        };
        for line in lines {
            match decode(&line) {
                Ok(message) => self.take(id, message, line.len()),
                Err(error) => return self.give_up(id, &error.to_string()),
            }
        }
    }

    /// Drops a session for which nothing is done, if there are too many.
    fn make_room(&mut self) {
        if self.peers.len() < MOST_SESSIONS {
            return;
        }
        let idle = self.peers.iter().filter(|(_, peer)| peer.worker.is_none());
        let first = idle.min_by_key(|(_, peer)| peer.until).map(|(id, _)| *id);
        if let Some(id) = first {
            self.peers.remove(&id);
        }
    }

    /// A message of a driver, whose line has so many bytes.
    fn take(&mut self, id: RandomId, message: ToAgent, bytes: usize) {
        match message {
            ToAgent::Open { driver } => self.open(id, &driver),
            ToAgent::Bye => self.end_work(id, None),
            message => self.order(id, message, bytes),
        }
    }

    /// Gives an order to the thread that works for a session. Those of one who was refused, or whose work has ended,
    /// are dropped.
    fn order(&mut self, id: RandomId, message: ToAgent, bytes: usize) {
        let Some(worker) = self.peers.get(&id).and_then(|peer| peer.worker.as_ref()) else { return };
        if let Err(overrun) = worker.order(message, bytes) {
            self.give_up(id, &overrun.to_string());
        }
    }

    /// A driver wants the agent to work for it.
    fn open(&mut self, id: RandomId, driver: &str) {
        let driver: String = driver.chars().take(LONGEST_NAME).collect();
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if peer.driver.is_some() {
            return;
        }
        peer.driver = Some(driver.clone());
        let refusal = match self.occupancy.take(driver.clone()) {
            Ok(reservation) => match self.work(id, reservation) {
                Ok(()) => {
                    (self.io.log)(&format!("works for {driver}"));
                    return;
                }
                Err(error) => FromAgent::Refused { why: format!("it cannot start a thread: {error}") },
            },
            Err(Occupied::Busy { with }) => FromAgent::Busy { with },
            Err(Occupied::Draining) => FromAgent::Refused { why: Occupied::Draining.to_string() },
        };
        self.say(id, &refusal);
    }

    /// Starts the thread that works for a driver.
    fn work(&mut self, id: RandomId, reservation: Reservation) -> io::Result<()> {
        let announced = |permits: &Arc<dyn Permits>| -> Arc<dyn Permits> {
            let (permits, service) = (Arc::clone(permits), self.orders.clone());
            Arc::new(tasks::Announced { permits, session: id, service })
        };
        let permits = self.setup.permits.as_ref().map(announced);
        let setup = AgentSetup { permits, ..(*self.setup).clone() };
        let worker = Worker::start(id, Arc::new(setup), reservation, self.orders.clone())?;
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.worker = Some(worker);
        }
        Ok(())
    }

    /// A task of a driver begins.
    fn note_begin(&mut self, id: RandomId, what: &str) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.has_begun = true;
        let driver = peer.driver.as_deref().unwrap_or(UNKNOWN);
        (self.io.log)(&format!("begins for {driver}: {what}"));
    }

    /// Says something to the driver of a session: progress once, since newer is better, and all else for certain.
    fn say(&mut self, id: RandomId, message: &FromAgent) {
        let now = self.clock.now();
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let driver = peer.driver.as_deref().unwrap_or(UNKNOWN);
        if let Some(words) = tasks::said(message, driver, peer.has_begun) {
            (self.io.log)(&words);
        }
        match (encode(message), message) {
            (Ok(line), FromAgent::Progress { .. } | FromAgent::Loading(_)) => peer.session.send_once(line),
            (Ok(line), _) => peer.session.send(now, line),
            (Err(error), _) => {
                (self.io.log)(&format!("cannot write a message to {driver}: {error}"));
            }
        }
    }

    /// A session cannot go on.
    fn give_up(&mut self, id: RandomId, why: &str) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if let Some(worker) = &mut peer.worker {
            worker.end(Some(why));
        } else if peer.driver.is_none() {
            // Said once; any packet of ours shows our version, and that we are another process.
            peer.driver = Some(UNKNOWN.to_owned());
            self.say(id, &FromAgent::Refused { why: why.to_owned() });
        }
    }

    /// Ends the work for a session; with the reason if that is not its driver's wish.
    fn end_work(&mut self, id: RandomId, why: Option<&str>) {
        if let Some(worker) = self.peers.get_mut(&id).and_then(|peer| peer.worker.as_mut()) {
            worker.end(why);
        }
    }

    /// The work for a session is over.
    fn note_over(&mut self, id: RandomId, has_panicked: bool) {
        if has_panicked {
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.has_begun = true;
            }
            self.say(id, &FromAgent::Refused { why: PANICKED.to_owned() });
        }
        let now = self.clock.now();
        let Some(peer) = self.peers.get_mut(&id) else { return };
        (peer.worker, peer.until) = (None, now + LINGER);
        let driver = peer.driver.as_deref().unwrap_or(UNKNOWN);
        (self.io.log)(&format!("no longer works for {driver}"));
    }

    /// The service ends.
    fn end(&mut self) {
        self.ends_at = Some(self.clock.now() + CLOSE_TIMEOUT);
        let now = self.clock.now();
        self.peers.values_mut().for_each(|peer| peer.session.send_again(now));
        let ids: Vec<RandomId> = self.peers.keys().copied().collect();
        for id in ids {
            self.end_work(id, Some("the agent was ended"));
        }
    }
}

impl Peer {
    /// When something is to be done for it.
    fn poll_timeout(&self) -> Time {
        let forgotten = if self.worker.is_none() { self.until } else { Time::NEVER };
        self.session.poll_timeout().min(forgotten)
    }
}

#[cfg(test)]
mod tests;

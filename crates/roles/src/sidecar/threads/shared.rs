//! What all loops of a sidecar have in common.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use h2lab_base::units::Time;
use h2lab_net::clock::Clock;
use h2lab_net::wakeup::Wakeup;
use h2lab_proxy::pool::portion::Portion;
use h2lab_proxy::refusal::ProxyError;

use super::inbox::{Assignment, Given, Worker};
use crate::sidecar::guard::{ServiceShare, SharedRate, Standing};
use crate::sidecar::listeners::Place;
use crate::sidecar::live::{Resolved, State};

/// What the first loop has made of a state, for the others.
#[derive(Debug)]
pub struct Common {
    /// The number of the state.
    pub version: u64,
    /// The state.
    pub state: State,
    /// Listeners, by their places.
    pub places: Vec<Place>,
    /// What is counted of services, by name.
    pub services: BTreeMap<String, ServiceShare>,
    /// Rates of listeners, by their places.
    pub rates: Vec<Option<SharedRate>>,
}

/// When the next note on a service may be printed, and how many were suppressed since the last one.
type Notes = BTreeMap<(String, ProxyError), (Time, u64)>;

/// Old entries are dropped when there are more than this.
const MOST_NOTES: usize = 1_000;

/// An instance: its service, address, URL and the name of its certificate.
type Known = (String, SocketAddr, String, String);

/// What is common.
#[derive(Debug)]
pub struct Shared {
    clock: Clock,
    workers: Vec<Arc<Worker>>,
    /// The number of the loop that gets the next connection if several have equally few clients.
    turn: AtomicU32,
    common: Mutex<Option<Arc<Common>>>,
    version: AtomicU64,
    is_closed: AtomicBool,
    /// A listener accepts nothing, since the most clients that are allowed are connected.
    is_full: AtomicBool,
    has_failed: AtomicBool,
    /// Bytes that connections and bodies hold.
    pub held: AtomicU64,
    /// Bytes that the process has beyond that and its own.
    pub slack: AtomicU64,
    /// How short memory is, as a [`h2lab_proxy::guard::memory::Pressure`].
    pub pressure: AtomicU8,
    standings: Mutex<BTreeMap<Known, Weak<Standing>>>,
    /// Rises when an instance is left out, or is fit again.
    judgements: AtomicU64,
    notes: Mutex<Notes>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// For `threads` loops, at least 1.
    pub fn new(threads: u32) -> io::Result<Self> {
        Ok(Self {
            clock: Clock::start(),
            workers: (0..threads.max(1)).map(|n| Worker::new(n).map(Arc::new)).collect::<io::Result<_>>()?,
            turn: AtomicU32::new(0),
            common: Mutex::new(None),
            version: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            held: AtomicU64::new(0),
            slack: AtomicU64::new(0),
            pressure: AtomicU8::new(0),
            standings: Mutex::default(),
            judgements: AtomicU64::new(0),
            notes: Mutex::default(),
        })
    }

    /// The clock of all.
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    /// How many loops there are.
    pub const fn threads(&self) -> u32 {
        self.workers.len() as u32
    }

    /// The part of bounds on connections that a loop may use.
    pub const fn portion(&self, number: u32) -> Portion {
        Portion { number, of: self.threads() }
    }

    /// What wakes a loop.
    pub fn wakeup(&self, number: u32) -> &Wakeup {
        self.workers[number as usize].wakeup()
    }

    /// A connection was accepted by the listener in this place: it goes to the loop with the fewest clients; of equals, to the one whose
    /// turn it is.
    pub fn assign(&self, place: u32) -> Assignment {
        let from = self.turn.load(Ordering::Relaxed) as usize;
        let count = self.workers.len();
        let in_turn = (0..count).map(|step| (from + step) % count);
        let chosen = in_turn.min_by_key(|number| self.workers[*number].clients()).unwrap_or(0);
        self.turn.store(((chosen + 1) % count) as u32, Ordering::Relaxed);
        Assignment::new(&self.workers[chosen], place)
    }

    /// A connection arrived directly at this loop, by the listener in this place.
    pub fn assign_here(&self, number: u32, place: u32) -> Assignment {
        Assignment::new(&self.workers[number as usize], place)
    }

    /// Gives a connection to the loop that its assignment is at.
    pub fn give(&self, given: Given) {
        self.workers[given.assignment.thread() as usize].give(given);
    }

    /// What a loop was given since the last time.
    pub fn take(&self, number: u32) -> Vec<Given> {
        self.workers[number as usize].take()
    }

    /// Whether any loop has connections of the listener in this place.
    pub fn uses(&self, place: u32) -> bool {
        self.workers.iter().any(|worker| worker.uses(place))
    }

    /// Clients' connections of all loops.
    pub fn clients(&self) -> u32 {
        self.workers.iter().map(|worker| worker.clients()).sum()
    }

    /// Those of one loop.
    pub fn clients_at(&self, number: u32) -> u32 {
        self.workers[number as usize].clients()
    }

    /// Those of the listener in this place.
    pub fn clients_of(&self, place: u32) -> u32 {
        self.workers.iter().map(|worker| worker.clients_of(place)).sum()
    }

    /// Whether a listener waits for clients to go.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// See [`Shared::is_full`].
    pub fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Relaxed);
    }

    /// Passes the other loops what the first one has made of a state.
    pub fn publish(&self, common: Common) {
        let version = common.version;
        *lock(&self.common) = Some(Arc::new(common));
        self.version.store(version, Ordering::Release);
        self.wake_others();
    }

    /// The number of the last one.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The last one; `None` before the first.
    pub fn common(&self) -> Option<Arc<Common>> {
        lock(&self.common).clone()
    }

    /// Wakes all loops.
    pub fn wake(&self) {
        self.workers.iter().for_each(|worker| worker.wakeup().wake());
    }

    fn wake_others(&self) {
        self.workers.iter().skip(1).for_each(|worker| worker.wakeup().wake());
    }

    /// Nothing is accepted any more, and all that was is handed over.
    pub fn close(&self) {
        if !self.is_closed.swap(true, Ordering::Release) {
            self.wake_others();
        }
    }

    /// Whether that is so.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// A loop has ended before its time.
    pub fn fail(&self, number: u32) {
        self.has_failed.store(true, Ordering::Release);
        self.take(number);
    }

    /// Whether one has.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// What is known of an instance of a service; all loops that have the instance share it.
    pub fn standing(&self, service: &str, at: &Resolved) -> Arc<Standing> {
        let key = (service.to_owned(), at.address, at.member.url.to_string(), at.server_name.clone());
        let mut all = lock(&self.standings);
        if let Some(standing) = all.get(&key).and_then(Weak::upgrade) {
            return standing;
        }
        if all.len().is_power_of_two() {
            all.retain(|_, standing| standing.strong_count() > 0); // now and then is enough
        }
        let standing = Arc::new(Standing::default());
        all.insert(key, Arc::downgrade(&standing));
        standing
    }

    /// Which instances are fit has changed.
    pub fn judged(&self) {
        self.judgements.fetch_add(1, Ordering::Release);
    }

    /// How often that has changed.
    pub fn judgements(&self) -> u64 {
        self.judgements.load(Ordering::Acquire)
    }

    /// Whether to print a note on a service or its instance now, which is then the last one for `period`. Returns how
    /// many were suppressed since the last one.
    pub fn may_note(
        &self,
        whom: String,
        error: ProxyError,
        now: Time,
        period: std::time::Duration,
    ) -> Option<u64> {
        let mut notes = lock(&self.notes);
        if notes.len() > MOST_NOTES {
            notes.retain(|_, (next, _)| now < *next); // instances come and go
        }
        let (next, others) = notes.entry((whom, error)).or_default();
        if now < *next {
            *others += 1;
            return None;
        }
        *next = now + period;
        Some(std::mem::take(others))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loop_with_the_fewest_clients_gets_the_next_one_and_equals_take_turns() {
        let shared = Shared::new(3).expect("three loops");
        let mut seats: Vec<Assignment> = (0..6).map(|_| shared.assign(0)).collect();
        assert_eq!(seats.iter().map(Assignment::thread).collect::<Vec<_>>(), [0, 1, 2, 0, 1, 2]);
        drop((seats.remove(4), seats.remove(1)));
        assert_eq!([shared.assign(0).thread(), shared.assign(1).thread()], [1, 1], "each is over at once");
        assert!(shared.uses(0) && !shared.uses(1));
        drop(seats);
        assert!(!shared.uses(0));
        let over: Vec<u32> = (0..4).map(|_| shared.assign(0).thread()).collect();
        assert_eq!(over, [2, 0, 1, 2], "connections that are short take turns, too");
    }

    #[test]
    fn what_is_known_of_an_instance_is_one_for_all_while_anyone_has_it() {
        let shared = Shared::new(1).expect("a loop");
        let at = |url: &str| {
            let member =
                h2lab_proxy::config::Member::from(url.parse::<h2lab_proxy::config::Instance>().expect(url));
            Resolved::all(&member).expect("an address").remove(0)
        };
        let (one, other) = (at("http://127.0.0.1:1"), at("http://127.0.0.1:2"));
        let standing = shared.standing("a", &one);
        assert!(Arc::ptr_eq(&standing, &shared.standing("a", &one)));
        assert!(!Arc::ptr_eq(&standing, &shared.standing("a", &other)));
        assert!(!Arc::ptr_eq(&standing, &shared.standing("b", &one)));
        let gone = Arc::downgrade(&standing);
        drop(standing);
        assert!(gone.upgrade().is_none());
        assert_eq!(Arc::strong_count(&shared.standing("a", &one)), 1, "it begins anew");
    }
}

//! State that the event loops share with the admin listener's thread: its queries, and their snapshots.
//!
//! A query is a number that rises. A loop compares it ten times per second, and stores its snapshot behind a lock that is not held
//! while requests pass.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use h2lab_model::record::CellRecord;
use h2lab_model::sidecar::SidecarStatus;

/// The answer of one loop to a query.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Its counters, connections and instances.
    pub status: SidecarStatus,
    /// What it has recorded, if the query is for records.
    pub records: Vec<CellRecord>,
    /// What was left out of that.
    pub notes: Vec<String>,
}

/// Shared by the loops of a sidecar and the thread of its admin listener.
#[derive(Debug, Default)]
pub struct AdminState {
    /// Twice the number of the last query, and one more if it is for records, too.
    last_query: AtomicU64,
    /// The sidecar is being stopped.
    is_draining: AtomicBool,
    /// How many requests for an answer have arrived, or may have, and are not answered yet.
    asked: AtomicUsize,
    loops: Mutex<Vec<Arc<LoopEntry>>>,
    answered: Condvar,
}

/// What a loop has answered.
#[derive(Debug, Default)]
pub struct LoopEntry {
    answer: Mutex<Option<(u64, Snapshot)>>,
    is_left: AtomicBool,
}

impl AdminState {
    /// Registers another loop.
    pub fn register(self: &Arc<Self>) -> LoopHandle {
        let entry = Arc::new(LoopEntry::default());
        let mut loops = self.loops.lock().unwrap_or_else(PoisonError::into_inner);
        loops.retain(|entry| !entry.is_left.load(Ordering::Relaxed));
        loops.push(Arc::clone(&entry));
        // A query that waits at the moment waits for this one, too.
        LoopHandle { state: Arc::clone(self), entry, answered: 0 }
    }

    /// The sidecar is being stopped.
    pub fn drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    /// Whether it is being stopped.
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// A request has arrived, or may have. To be called before it is checked whether a successor answers: loops that
    /// end because of the successor wait for this answer.
    pub fn begin_answer(&self) {
        self.asked.fetch_add(1, Ordering::SeqCst);
    }

    /// That request was answered, or its client has disconnected.
    pub fn end_answer(&self) {
        self.asked.fetch_sub(1, Ordering::SeqCst);
    }

    /// Queries all loops, and waits for `timeout` at most; what each has answered, and how many have not. One query at a time.
    pub fn query(&self, records: bool, timeout: Duration) -> (Vec<Snapshot>, usize) {
        let number = (self.last_query.load(Ordering::Relaxed) / 2 + 1) * 2 + u64::from(records);
        self.last_query.store(number, Ordering::Release);
        let until = Instant::now() + timeout;
        let mut loops = self.loops.lock().unwrap_or_else(PoisonError::into_inner);
        let mut answers = Vec::new();
        let mut taken = vec![false; loops.len()];
        loop {
            taken.resize(loops.len(), false);
            for (entry, taken) in loops.iter().zip(&mut taken).filter(|(_, taken)| !**taken) {
                let mut answer = entry.answer.lock().unwrap_or_else(PoisonError::into_inner);
                if answer.as_ref().is_some_and(|(of, _)| *of == number) {
                    answers.extend(answer.take().map(|(_, snapshot)| snapshot));
                    *taken = true;
                } else if entry.is_left.load(Ordering::Relaxed) {
                    *taken = true;
                }
            }
            let missing = taken.iter().filter(|taken| !**taken).count();
            let left = until.saturating_duration_since(Instant::now());
            if missing == 0 || left.is_zero() {
                return (answers, missing);
            }
            (loops, _) = self.answered.wait_timeout(loops, left).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A query of the admin listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Query {
    number: u64,
}

impl Query {
    /// Whether it is for records, too.
    pub const fn of_records(self) -> bool {
        self.number % 2 == 1
    }
}

/// The side of one loop, which is no longer registered when this is dropped.
#[derive(Debug)]
pub struct LoopHandle {
    state: Arc<AdminState>,
    entry: Arc<LoopEntry>,
    answered: u64,
}

impl LoopHandle {
    /// The query that this loop has not answered, if there is one.
    pub fn pending_query(&self) -> Option<Query> {
        let number = self.state.last_query.load(Ordering::Acquire);
        (number != self.answered).then_some(Query { number })
    }

    /// Answers it.
    pub fn answer(&mut self, query: Query, snapshot: Snapshot) {
        self.answered = query.number;
        *self.entry.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some((self.answered, snapshot));
        self.notify();
    }

    /// Whether the sidecar is being stopped.
    pub fn is_draining(&self) -> bool {
        self.state.is_draining()
    }

    /// Whether somebody may still want an answer.
    pub fn is_asked(&self) -> bool {
        self.state.asked.load(Ordering::SeqCst) > 0
    }

    /// Tells those that ask that the sidecar is being stopped.
    pub fn drain(&self) {
        self.state.drain();
    }

    fn notify(&self) {
        // The lock is taken first: a thread that asks has not read the answers yet, or waits for the notification already.
        drop(self.state.loops.lock().unwrap_or_else(PoisonError::into_inner));
        self.state.answered.notify_all();
    }
}

impl Drop for LoopHandle {
    fn drop(&mut self) {
        self.entry.is_left.store(true, Ordering::Relaxed);
        self.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_loop_answers_once_and_one_that_has_left_is_not_waited_for() {
        let state = Arc::new(AdminState::default());
        let handles: Vec<LoopHandle> = (0..3).map(|_| state.register()).collect();
        assert!(handles.iter().all(|handle| handle.pending_query().is_none()));
        let threads: Vec<_> = handles
            .into_iter()
            .enumerate()
            .map(|(n, mut handle)| {
                std::thread::spawn(move || {
                    if n == 2 {
                        return; // it leaves
                    }
                    loop {
                        if let Some(query) = handle.pending_query() {
                            assert!(query.of_records());
                            let status = SidecarStatus { threads: n as u32, ..SidecarStatus::default() };
                            return handle.answer(query, Snapshot { status, ..Snapshot::default() });
                        }
                        std::thread::yield_now();
                    }
                })
            })
            .collect();
        let (answers, missing) = state.query(true, Duration::from_secs(600));
        let mut threads_said: Vec<u32> = answers.iter().map(|answer| answer.status.threads).collect();
        threads_said.sort_unstable();
        assert_eq!((threads_said, missing), (vec![0, 1], 0));
        for thread in threads {
            thread.join().expect("it ends");
        }
    }

    #[test]
    fn a_loop_that_begins_during_a_query_answers_it() {
        let state = Arc::new(AdminState::default());
        let mut first = state.register();
        let asking = Arc::clone(&state);
        let asking = std::thread::spawn(move || asking.query(false, Duration::from_secs(600)));
        while first.pending_query().is_none() {
            std::thread::yield_now();
        }
        let mut second = state.register();
        for handle in [&mut second, &mut first] {
            let query = handle.pending_query().expect("it is waited for");
            handle.answer(query, Snapshot::default());
        }
        let (answers, missing) = asking.join().expect("it ends");
        assert_eq!((answers.len(), missing), (2, 0));
    }

    #[test]
    fn a_loop_that_hangs_is_counted_and_its_old_answer_is_not_taken() {
        let state = Arc::new(AdminState::default());
        let mut handle = state.register();
        assert_eq!(state.query(false, Duration::ZERO).1, 1);
        let query = handle.pending_query().expect("there is one");
        handle.answer(query, Snapshot::default());
        assert_eq!(handle.pending_query(), None);
        let (answers, missing) = state.query(false, Duration::ZERO);
        assert_eq!((answers.len(), missing), (0, 1));
    }
}

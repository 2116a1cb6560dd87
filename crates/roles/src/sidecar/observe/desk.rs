//! Between the threads that pass requests on and the one that answers questions about them.
//!
//! A question is a number that rises. A loop looks at it ten times per second, and leaves its answer behind a lock that nobody holds
//! while requests pass.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use h2lab_model::record::CellRecord;
use h2lab_model::sidecar::SidecarStatus;

/// What a loop answers.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// How it is.
    pub status: SidecarStatus,
    /// What it has seen, if that was asked for.
    pub records: Vec<CellRecord>,
    /// What was left out of that.
    pub notes: Vec<String>,
}

/// Where questions are put; shared by the loops of a sidecar.
#[derive(Debug, Default)]
pub struct Desk {
    /// Twice the number of the last question, and one more if it is about records, too.
    asked: AtomicU64,
    /// The sidecar is being stopped.
    is_draining: AtomicBool,
    seats: Mutex<Vec<Arc<Seat>>>,
    answered: Condvar,
}

/// The place of a loop at the desk.
#[derive(Debug, Default)]
pub struct Seat {
    answer: Mutex<Option<(u64, Snapshot)>>,
    is_left: AtomicBool,
}

impl Desk {
    /// A place for another loop.
    pub fn join(self: &Arc<Self>) -> Clerk {
        let seat = Arc::new(Seat::default());
        let mut seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        seats.retain(|seat| !seat.is_left.load(Ordering::Relaxed));
        seats.push(Arc::clone(&seat));
        Clerk { desk: Arc::clone(self), seat, answered: self.asked.load(Ordering::Relaxed) }
    }

    /// The sidecar is being stopped.
    pub fn drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    /// Whether it is being stopped.
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Asks all loops, and waits for so long at most; what each has answered, and how many have not. One question at a time.
    pub fn ask(&self, records: bool, patience: Duration) -> (Vec<Snapshot>, usize) {
        let number = (self.asked.load(Ordering::Relaxed) / 2 + 1) * 2 + u64::from(records);
        self.asked.store(number, Ordering::Release);
        let until = Instant::now() + patience;
        let mut seats = self.seats.lock().unwrap_or_else(PoisonError::into_inner);
        let mut answers = Vec::new();
        let mut taken = vec![false; seats.len()];
        loop {
            taken.resize(seats.len(), false);
            for (seat, taken) in seats.iter().zip(&mut taken).filter(|(_, taken)| !**taken) {
                let mut answer = seat.answer.lock().unwrap_or_else(PoisonError::into_inner);
                if answer.as_ref().is_some_and(|(of, _)| *of == number) {
                    answers.extend(answer.take().map(|(_, snapshot)| snapshot));
                    *taken = true;
                } else if seat.is_left.load(Ordering::Relaxed) {
                    *taken = true;
                }
            }
            let missing = taken.iter().filter(|taken| !**taken).count();
            let left = until.saturating_duration_since(Instant::now());
            if missing == 0 || left.is_zero() {
                return (answers, missing);
            }
            (seats, _) = self.answered.wait_timeout(seats, left).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// What was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    number: u64,
}

impl Question {
    /// Whether it is about records, too.
    pub const fn of_records(self) -> bool {
        self.number % 2 == 1
    }
}

/// What answers for a loop; leaves when it is dropped.
#[derive(Debug)]
pub struct Clerk {
    desk: Arc<Desk>,
    seat: Arc<Seat>,
    answered: u64,
}

impl Clerk {
    /// The question without an answer, if there is one.
    pub fn question(&self) -> Option<Question> {
        let number = self.desk.asked.load(Ordering::Acquire);
        (number != self.answered).then_some(Question { number })
    }

    /// Answers it.
    pub fn answer(&mut self, question: Question, snapshot: Snapshot) {
        self.answered = question.number;
        *self.seat.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some((self.answered, snapshot));
        self.notify();
    }

    /// Whether the sidecar is being stopped.
    pub fn is_draining(&self) -> bool {
        self.desk.is_draining()
    }

    /// Tells those that ask that the sidecar is being stopped.
    pub fn drain(&self) {
        self.desk.drain();
    }

    fn notify(&self) {
        // The lock is taken first: a thread that asks has not read the answers yet, or waits for the notification already.
        drop(self.desk.seats.lock().unwrap_or_else(PoisonError::into_inner));
        self.desk.answered.notify_all();
    }
}

impl Drop for Clerk {
    fn drop(&mut self) {
        self.seat.is_left.store(true, Ordering::Relaxed);
        self.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_loop_answers_once_and_one_that_has_left_is_not_waited_for() {
        let desk = Arc::new(Desk::default());
        let clerks: Vec<Clerk> = (0..3).map(|_| desk.join()).collect();
        assert!(clerks.iter().all(|clerk| clerk.question().is_none()));
        let threads: Vec<_> = clerks
            .into_iter()
            .enumerate()
            .map(|(n, mut clerk)| {
                std::thread::spawn(move || {
                    if n == 2 {
                        return; // it leaves
                    }
                    loop {
                        if let Some(question) = clerk.question() {
                            assert!(question.of_records());
                            let status = SidecarStatus { threads: n as u32, ..SidecarStatus::default() };
                            return clerk.answer(question, Snapshot { status, ..Snapshot::default() });
                        }
                        std::thread::yield_now();
                    }
                })
            })
            .collect();
        let (answers, missing) = desk.ask(true, Duration::from_secs(600));
        let mut threads_said: Vec<u32> = answers.iter().map(|answer| answer.status.threads).collect();
        threads_said.sort_unstable();
        assert_eq!((threads_said, missing), (vec![0, 1], 0));
        for thread in threads {
            thread.join().expect("it ends");
        }
    }

    #[test]
    fn a_loop_that_hangs_is_counted_and_its_old_answer_is_not_taken() {
        let desk = Arc::new(Desk::default());
        let mut clerk = desk.join();
        assert_eq!(desk.ask(false, Duration::ZERO).1, 1);
        let question = clerk.question().expect("it was asked");
        clerk.answer(question, Snapshot::default());
        assert_eq!(clerk.question(), None);
        let (answers, missing) = desk.ask(false, Duration::ZERO);
        assert_eq!((answers.len(), missing), (0, 1));
    }
}

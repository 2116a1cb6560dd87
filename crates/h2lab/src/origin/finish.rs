//! The end of an upload: its sum is compared, it is brought to the disk and gets its name. A sync may take seconds, which is
//! why a thread of its own does it, one file after the other; memory is done with at once.

use std::os::unix::fs::MetadataExt as _;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle};

use h2lab_core::bulk::{Algorithm, Checksum, Journal, upload};
use h2lab_core::units::Time;

use super::folder;
use super::handler::Plan;
use super::refusal::Refusal;
use super::uploads::lock;
use crate::io::storage::{Body, Sink, SinkError};

/// What became of an upload.
#[derive(Debug, Clone)]
pub enum Verdict {
    /// All is there, under its name.
    Stored {
        /// There was no file of this name.
        is_new: bool,
        /// The sum of the whole, if it was wanted and could be made.
        sum: Option<Checksum>,
        /// The entity tag of the file.
        etag: Option<String>,
    },
    /// It did not get its name.
    Refused(Refusal),
}

impl Verdict {
    /// As an answer.
    pub fn plan(self, now: Time) -> Plan {
        match self {
            Self::Refused(refusal) => refusal.plan(now),
            Self::Stored { is_new, sum, etag } => {
                let status = if is_new { 201 } else { 204 };
                let plan = Plan::at_once(now, status, "text/plain", Body::filler(0));
                let plan = plan.with(upload::COMPLETE_FIELD, "?1");
                let sum = sum.map(|sum| ("repr-digest", sum.to_field()));
                let fields = sum.into_iter().chain(etag.map(|etag| ("etag", etag)));
                fields.fold(plan, |plan, (name, value)| plan.with(name, value))
            }
        }
    }
}

/// A verdict that is there, or will be.
pub type Awaited = Arc<OnceLock<Verdict>>;

/// An upload of which all bytes are here.
#[derive(Debug)]
pub struct Task {
    /// Where they are.
    pub sink: Sink,
    /// How many.
    pub total: u64,
    /// Sums of the whole that were made as it came.
    pub made: Vec<Checksum>,
    /// What the client says.
    pub told: Option<Checksum>,
    /// What the client wants to know.
    pub wanted: Algorithm,
    /// Whom to tell.
    pub verdict: Awaited,
}

#[derive(Debug)]
enum Order {
    Finish(Box<Task>),
    /// An upload is put down for a while.
    Keep(Sink, Journal),
}

/// Finishes uploads.
#[derive(Debug, Default)]
pub struct Finisher {
    worker: Mutex<Option<(Sender<Order>, JoinHandle<()>)>>,
}

impl Finisher {
    /// Finishes an upload; its verdict tells when that is done.
    pub fn finish(&self, task: Task) {
        if task.sink.is_kept() {
            self.give(Order::Finish(Box::new(task)));
        } else {
            work(Order::Finish(Box::new(task)));
        }
    }

    /// Brings what `journal` tells of to the disk.
    pub fn keep(&self, sink: Sink, journal: Journal) {
        self.give(Order::Keep(sink, journal));
    }

    fn give(&self, order: Order) {
        let mut worker = lock(&self.worker);
        let (sender, _) = worker.get_or_insert_with(|| {
            let (sender, orders): (_, Receiver<Order>) = channel();
            (sender, thread::spawn(move || orders.into_iter().for_each(work)))
        });
        if let Err(order) = sender.send(order) {
            // The thread has died; nobody is to wait for what will never come.
            work(order.0);
        }
    }
}

impl Drop for Finisher {
    /// What was begun is done.
    fn drop(&mut self) {
        if let Some((sender, thread)) = lock(&self.worker).take() {
            drop(sender);
            // It holds no lock and can only have ended by itself.
            let _ = thread.join();
        }
    }
}

fn work(order: Order) {
    match order {
        Order::Finish(mut task) => {
            let verdict = task.finish().unwrap_or_else(Verdict::Refused);
            // It is set by nobody else.
            let _ = task.verdict.set(verdict);
        }
        // Nobody waits for it; the journal that was written last is true as well.
        Order::Keep(mut sink, journal) => drop(sink.keep(&journal)),
    }
}

impl Task {
    fn finish(&mut self) -> Result<Verdict, Refusal> {
        if let Some(told) = self.told.take() {
            match self.sum(told.algorithm())? {
                Some(found) if found != told => {
                    self.sink.throw_away();
                    return Err(Refusal::mismatch("the whole", &told, found));
                }
                Some(_) => {}
                None => {
                    self.sink.throw_away();
                    let words = format!(
                        "{told} cannot be compared: nothing is kept, and Want-Repr-Digest did not name it"
                    );
                    return Err(Refusal::new(400, words));
                }
            }
        }
        let sum = self.sum(self.wanted)?;
        let is_new = self.sink.is_new()?;
        self.sink.finish(self.total)?;
        let etag =
            self.sink.metadata().map(|of| folder::etag(of.ino(), of.len(), of.mtime(), of.mtime_nsec()));
        Ok(Verdict::Stored { is_new, sum, etag })
    }

    /// The sum of the whole: as it was made, or read back.
    fn sum(&self, algorithm: Algorithm) -> Result<Option<Checksum>, SinkError> {
        match self.made.iter().find(|made| made.algorithm() == algorithm) {
            Some(made) => Ok(Some(made.clone())),
            None => self.sink.checksum(algorithm, self.total),
        }
    }
}

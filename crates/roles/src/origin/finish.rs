//! The end of an upload: its sum is compared, it is synced and renamed. A sync may take seconds, which is why separate threads do
//! it, a few files at a time; uploads to memory finish at once.

use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle};

use h2lab_transfer::{Algorithm, Checksum, Journal};

use super::folder;
use super::preconditions::Preconditions;
use super::quota::Charge;
use super::refusal::Refusal;
use h2lab_net::lock::lock;
use h2lab_net::storage::{Sink, SinkError};

/// The result of an upload.
#[derive(Debug, Clone)]
pub enum UploadEnd {
    /// The file is complete, under its name.
    Stored {
        /// There was no file of this name.
        is_new: bool,
        /// The sum of the whole, if it was wanted and could be made.
        sum: Option<Checksum>,
        /// The entity tag of the file.
        etag: Option<String>,
        /// The sums of the whole that are known.
        known: Vec<Checksum>,
    },
    /// It did not get its name.
    Refused(Refusal),
}

impl UploadEnd {
    /// Refuses a later final request whose declared checksum differs from that of what is stored, as far as the
    /// computed checksums show it.
    pub fn contradicts(&self, declared: &Checksum) -> Option<Refusal> {
        let Self::Stored { known, .. } = self else { return None };
        let found = known.iter().find(|found| found.algorithm() == declared.algorithm())?;
        (found != declared).then(|| Refusal::mismatch("the whole", declared, found.clone()))
    }
}

/// A verdict, once it is known.
pub type Awaited = Arc<OnceLock<UploadEnd>>;

/// An upload whose bytes have all arrived.
#[derive(Debug)]
pub struct Task {
    /// Where they are.
    pub sink: Sink,
    /// How many.
    pub total: u64,
    /// Sums of the whole that were made as it arrived.
    pub made: Vec<Checksum>,
    /// The sum that the client declared.
    pub declared: Option<Checksum>,
    /// The sum that the client wants.
    pub wanted: Algorithm,
    /// The bytes stored of it. They count as long as they are there.
    pub charge: Charge,
    /// What must hold of the file that it replaces, according to the last request.
    pub preconditions: Preconditions,
    /// Whether it may replace one at all.
    pub may_replace: bool,
    /// Where to report the result.
    pub verdict: Awaited,
}

#[derive(Debug)]
enum Order {
    Finish(Box<Task>),
    /// An upload is closed for a while.
    Keep(Sink, Journal),
    /// A sink is no longer needed.
    Drop(Sink),
}

/// Threads that finish files: a disk syncs several files as fast as one, and a large one must not delay all others.
const WORKERS: usize = 4;

/// Finishes uploads.
#[derive(Debug, Default)]
pub struct Finisher {
    pool: Mutex<Option<Pool>>,
}

/// The threads, as many as were needed, and their orders.
#[derive(Debug)]
struct Pool {
    orders: Sender<Order>,
    queue: Arc<Mutex<Receiver<Order>>>,
    /// Orders that are not done.
    open: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    fn new() -> Self {
        let (orders, queue) = channel();
        Self { orders, queue: Arc::new(Mutex::new(queue)), open: Arc::default(), threads: Vec::new() }
    }

    /// Queues an order.
    fn give(&mut self, order: Order) {
        let open = self.open.fetch_add(1, Ordering::AcqRel) + 1;
        if open > self.threads.len() && self.threads.len() < WORKERS {
            let (queue, open) = (Arc::clone(&self.queue), Arc::clone(&self.open));
            let run_orders = move || {
                loop {
                    let order = lock(&queue).recv();
                    let Ok(order) = order else { return };
                    work(order);
                    open.fetch_sub(1, Ordering::AcqRel);
                }
            };
            let started = thread::Builder::new().name("uploads".to_owned()).spawn(run_orders);
            self.threads.extend(started.ok());
        }
        // No thread could be started: the caller waits for the disk.
        if self.threads.is_empty() {
            work(order);
            self.open.fetch_sub(1, Ordering::AcqRel);
            return;
        }
        // We hold the receiver ourselves.
        let _ = self.orders.send(order);
    }
}

impl Finisher {
    /// Finishes an upload; its verdict is set when that is done.
    pub fn finish(&self, task: Task) {
        if task.sink.is_kept() {
            self.give(Order::Finish(Box::new(task)));
        } else {
            work(Order::Finish(Box::new(task)));
        }
    }

    /// Brings what `journal` covers to the disk.
    pub fn keep(&self, sink: Sink, journal: Journal) {
        self.give(Order::Keep(sink, journal));
    }

    /// Drops a sink in a thread, since dropping may block.
    pub fn drop_later(&self, sink: Sink) {
        self.give(Order::Drop(sink));
    }

    fn give(&self, order: Order) {
        lock(&self.pool).get_or_insert_with(Pool::new).give(order);
    }
}

impl Drop for Finisher {
    /// Completes what was begun.
    fn drop(&mut self) {
        if let Some(Pool { orders, threads, .. }) = lock(&self.pool).take() {
            drop(orders);
            for thread in threads {
                // It holds no lock while it works and ends by itself.
                let _ = thread.join();
            }
        }
    }
}

fn work(order: Order) {
    match order {
        Order::Finish(mut task) => {
            let verdict = task.finish().unwrap_or_else(UploadEnd::Refused);
            task.charge = Charge::default(); // before the client can ask for what it has freed
            // Nothing else sets it.
            let _ = task.verdict.set(verdict);
        }
        // No request waits for it; the last journal written is still valid.
        Order::Keep(mut sink, journal) => drop(sink.keep(&journal)),
        Order::Drop(sink) => drop(sink),
    }
}

impl Task {
    fn finish(&mut self) -> Result<UploadEnd, Refusal> {
        let declared = self.declared.take();
        if let Some(declared) = &declared {
            match self.sum(declared.algorithm())? {
                Some(found) if found != *declared => {
                    self.sink.throw_away();
                    return Err(Refusal::mismatch("the whole", declared, found));
                }
                Some(_) => {}
                None => {
                    self.sink.throw_away();
                    let words = format!(
                        "{declared} cannot be compared: the bytes are not kept, and it was not computed on receipt: \
                         Want-Repr-Digest did not name it, or they arrived in parts"
                    );
                    return Err(Refusal::new(400, words));
                }
            }
        }
        let sum = self.sum(self.wanted)?;
        let is_new = self.name()?;
        std::mem::take(&mut self.charge).keep();
        let etag =
            self.sink.metadata().map(|of| folder::etag(of.ino(), of.len(), of.mtime(), of.mtime_nsec()));
        let mut known = std::mem::take(&mut self.made);
        known.extend(declared.into_iter().chain(sum.clone()));
        Ok(UploadEnd::Stored { is_new, sum, etag, known })
    }

    /// Gives the file its name; whether that was free.
    fn name(&mut self) -> Result<bool, Refusal> {
        let replaced = self.sink.replaced()?;
        let tag = replaced.as_ref().map(folder::etag_of);
        let named = self.preconditions.check(tag.as_deref()).and_then(|()| {
            let may_replace = self.may_replace && !self.preconditions.exclude_all();
            Ok(self.sink.finish(self.total, may_replace)?)
        });
        if named.as_ref().is_err_and(|refusal| refusal.status == 412) {
            self.sink.throw_away();
        }
        named.map(|()| replaced.is_none())
    }

    /// The sum of the whole: as it was made, or read back.
    fn sum(&self, algorithm: Algorithm) -> Result<Option<Checksum>, SinkError> {
        match self.made.iter().find(|made| made.algorithm() == algorithm) {
            Some(made) => Ok(Some(made.clone())),
            None => self.sink.checksum(algorithm, self.total),
        }
    }
}

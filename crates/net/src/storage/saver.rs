//! Keeps the journal of a file up to date while it is written, in a thread of its own: a sync of the disk may take seconds.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use h2lab_transfer::Journal;

use super::names::Names;

/// Saves the state of one file. What a journal covers is on the disk before the journal is: so the journal stays true after a
/// power failure, and only what came since is lost.
#[derive(Debug)]
pub struct Saver {
    file: Arc<File>,
    names: Arc<Names>,
    /// Whether the thread is saving.
    busy: Arc<AtomicBool>,
    worker: Option<(Sender<Journal>, JoinHandle<()>)>,
}

impl Saver {
    /// For `file`, which is the part with these names.
    pub fn new(file: Arc<File>, names: Arc<Names>) -> Self {
        Self { file, names, busy: Arc::default(), worker: None }
    }

    /// Whether something is being saved.
    pub fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire)
    }

    /// From now on saving behaves as on a slow disk.
    #[cfg(any(test, feature = "testing"))]
    pub fn seem_busy(&self) {
        self.busy.store(true, Ordering::Release);
    }

    /// Saves what `journal` gives, if there is anything; `false` if something else is being saved.
    pub fn save(&mut self, journal: impl FnOnce() -> Option<Journal>) -> bool {
        if self.is_busy() {
            return false;
        }
        let Some(journal) = journal() else { return true };
        if self.worker.is_none() {
            self.worker = self.start_worker().ok();
        }
        match &self.worker {
            Some((sender, _)) => {
                self.busy.store(true, Ordering::Release);
                let _ = sender.send(journal);
            }
            // The thread cannot be started: the caller waits for the disk, and ignores an error as the thread does.
            None => {
                let _ = self.file.sync_data().and_then(|()| self.names.write_journal(&journal));
            }
        }
        true
    }

    fn start_worker(&self) -> io::Result<(Sender<Journal>, JoinHandle<()>)> {
        let (sender, journals) = channel::<Journal>();
        let (file, names) = (Arc::clone(&self.file), Arc::clone(&self.names));
        let busy = Arc::clone(&self.busy);
        let thread = thread::Builder::new().name("journal".to_owned()).spawn(move || {
            for journal in journals {
                // If it fails, the last journal remains, which is still valid; the transfer itself will fail for the
                // same reason.
                let _ = file.sync_data().and_then(|()| names.write_journal(&journal));
                busy.store(false, Ordering::Release);
            }
        })?;
        Ok((sender, thread))
    }

    /// Saves `journal` and returns when that is done.
    pub fn save_now(&mut self, journal: &Journal) -> io::Result<()> {
        self.stop();
        self.file.sync_data()?;
        self.names.write_journal(journal)
    }

    /// Waits for what is under way: no journal is written after this.
    pub fn stop(&mut self) {
        if let Some((sender, thread)) = self.worker.take() {
            drop(sender);
            // It holds no lock and ends by itself.
            let _ = thread.join();
            self.busy.store(false, Ordering::Release);
        }
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        self.stop();
    }
}

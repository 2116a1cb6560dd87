//! A run that the user leaves at once, whatever its driver does just then.

use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use h2lab_nats::Nats;

use super::{KeptRun, driver, resume_line};
use crate::run::execute::NOTHING_MEASURED;
use crate::run::store;

/// What is said of a run that stays open.
const OPEN: &str = "the run cannot be closed at NATS, and agents may go on with it";

/// A run that is being driven, as another thread sees it.
pub struct DrivenRun {
    nats: Nats,
    folder: PathBuf,
}

impl DrivenRun {
    /// The run of `folder`.
    pub(super) fn new(nats: Nats, folder: PathBuf) -> Self {
        Self { nats, folder }
    }

    /// What the user is to know, in one line, if the program ends before it can close the run.
    pub fn if_ended_at_once(&self) -> String {
        let folder = &self.folder;
        let resume = resume(folder).unwrap_or_else(|_| format!("h2lab run --resume {}", folder.display()));
        format!(
            "ended at once: agents may go on with the run; to fetch what they measure, or to end it by a Ctrl-C: \
             {resume}"
        )
    }

    /// Closes the run at NATS, so that agents stop, within `timeout`. Nothing is left of one of which nothing is stored or reported.
    /// Returns what the user is to know.
    pub fn leave(self, timeout: Duration) -> String {
        let (sender, receiver) = channel();
        let Self { nats, folder } = self;
        let own = folder.clone();
        // A server that is away answers nothing: the thread ends with the program.
        thread::spawn(move || {
            let _ = sender.send(close(&nats, &own));
        });
        let resume = || match resume(&folder) {
            Ok(line) => format!("to resume: {line}"),
            Err(error) => format!("{error:#}"),
        };
        match receiver.recv_timeout(timeout) {
            Ok(Ok(true)) => NOTHING_MEASURED.to_owned(),
            Ok(Ok(false)) => resume(),
            Ok(Err(error)) => format!("{OPEN}: {error:#}\n{}", resume()),
            Err(_) => format!("{OPEN}: it does not answer\n{}", resume()),
        }
    }
}

/// The command that resumes the run of this folder.
fn resume(folder: &Path) -> Result<String> {
    Ok(resume_line(&store::read_heads(folder)?, folder))
}

/// Closes a run; whether nothing is left of it.
fn close(nats: &Nats, folder: &Path) -> Result<bool> {
    // Without a number it was not begun.
    let kept: Option<KeptRun> = store::read_agents(folder)?;
    let Some(kept) = kept else { return Ok(false) };
    let id = kept.run.to_string();
    // First, since it is what makes agents stop.
    driver::close(nats, &id, false)?;
    let is_measured = |copy| {
        let folder = store::reproduction(folder, copy);
        let is_there = folder.join("run.json").exists();
        is_there && store::read_heads(&folder).map_or(true, |run| !run.repetitions.is_empty())
    };
    let is_empty =
        !(0..kept.reproduce).any(is_measured) && nats.reports().read(&id, 0, Duration::ZERO)?.is_empty();
    if is_empty {
        driver::close(nats, &id, true)?;
        store::discard(folder)?;
    }
    Ok(is_empty)
}

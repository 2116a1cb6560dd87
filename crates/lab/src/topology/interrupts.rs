//! Signals that ask a lab to end cleanly, whichever of its processes receives them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use signal_hook::low_level::register;

const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Signals that end the work of a lab cleanly instead of killing it. A terminal sends them to every process of its
/// process group. `timeout --foreground` and supervisors send them only to the process that was started, which waits
/// outside of the lab. That process passes each signal on through a pipe. Passing it on as a second signal of the same
/// number was rejected: two pending signals become one, and then it is unknown whether the lab's programs received it,
/// too.
#[derive(Debug)]
pub struct Interrupts {
    signals: Vec<i32>,
    /// How many this process received itself.
    own: Arc<AtomicUsize>,
    /// Where the process outside writes the number of each signal that it receives.
    outside: Option<OwnedFd>,
    /// How many the process outside passed on.
    passed_on: usize,
    /// The number of the last of these.
    last: i32,
    /// How many were given to programs that had not received them.
    given: usize,
}

impl Interrupts {
    /// Catches `signals` from now on, in this process and in processes that it forks. Programs that it executes have
    /// the default actions.
    pub fn catch(signals: &[i32]) -> io::Result<Self> {
        let own = Arc::new(AtomicUsize::new(0));
        for &signal in signals {
            let own = Arc::clone(&own);
            let count = move || {
                own.fetch_add(1, Ordering::SeqCst);
            };
            // SAFETY: it adds to an atomic: it takes no lock and allocates nothing.
            unsafe { register(signal, count) }?;
        }
        Ok(Self { signals: signals.to_vec(), own, outside: None, passed_on: 0, last: 0, given: 0 })
    }

    /// Whether one was received.
    pub fn is_set(&mut self) -> bool {
        self.look();
        self.passed_on > 0 || self.own.load(Ordering::SeqCst) > 0
    }

    /// Waits until `child` has ended, without reaping it, and returns `None`. Returns earlier with a signal that only
    /// the process outside received, so that programs in this process's group have not received it either. Each such
    /// signal is returned once.
    pub fn before_end_of(&mut self, child: Pid) -> Option<i32> {
        let ended = pidfd_open(child, PidfdFlags::empty()).ok()?;
        loop {
            if let Some(signal) = self.missed() {
                return Some(signal);
            }
            let mut fds = vec![PollFd::new(&ended, PollFlags::IN)];
            fds.extend(self.outside.iter().map(|outside| PollFd::new(outside, PollFlags::IN)));
            if poll(&mut fds, None) != Err(Errno::INTR) && fds[0].revents().contains(PollFlags::IN) {
                return None;
            }
        }
    }

    /// The signals that are caught.
    pub(super) fn signals(&self) -> &[i32] {
        &self.signals
    }

    /// A signal that this process received before it could pass it on.
    pub(super) fn early(&self) -> Option<i32> {
        (self.own.load(Ordering::SeqCst) > 0).then(|| self.signals.first().copied()).flatten()
    }

    /// From now on, `outside` has the number of each signal that the process outside receives, as a byte.
    pub(super) fn listen_to(&mut self, outside: OwnedFd) {
        self.outside = Some(outside);
    }

    /// A signal that only the process outside received. If a signal was sent to the whole group, this process has
    /// received it before it can read what is passed on.
    fn missed(&mut self) -> Option<i32> {
        self.look();
        let is_missed = self.passed_on > self.own.load(Ordering::SeqCst) + self.given;
        is_missed.then(|| {
            self.given += 1;
            self.last
        })
    }

    /// Reads the signals that were passed on.
    fn look(&mut self) {
        while let Some(outside) = &self.outside {
            let mut fds = [PollFd::from_borrowed_fd(outside.as_fd(), PollFlags::IN)];
            match poll(&mut fds, Some(&AT_ONCE)) {
                Ok(0) => return,
                Err(Errno::INTR) => continue,
                Ok(_) | Err(_) => {}
            }
            let mut signal = [0_u8];
            match rustix::io::read(outside, &mut signal) {
                Ok(1) => {
                    self.passed_on += 1;
                    self.last = i32::from(signal[0]);
                }
                Err(Errno::INTR) => {}
                // Nothing writes any more.
                Ok(_) | Err(_) => self.outside = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::pipe::{PipeFlags, pipe_with};
    use rustix::process::{Signal, getpid, kill_process};
    use signal_hook::consts::{SIGINT, SIGUSR2};

    use super::*;

    /// Interrupts by `signals`, and the process outside's end of the pipe.
    fn interrupts(signals: &[i32]) -> (Interrupts, OwnedFd) {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let mut interrupts = Interrupts::catch(signals).unwrap();
        interrupts.listen_to(reader);
        (interrupts, writer)
    }

    fn pass_on(writer: &OwnedFd) {
        assert_eq!(rustix::io::write(writer, &[SIGINT as u8]), Ok(1));
    }

    /// No other test uses this signal: a signal is sent to the whole process.
    #[test]
    fn a_program_is_given_only_what_it_did_not_get_itself() {
        let (mut lone, writer) = interrupts(&[SIGUSR2]);
        assert!(!lone.is_set() && lone.missed().is_none());
        pass_on(&writer);
        assert!(lone.is_set(), "only the process outside got it");
        assert_eq!((lone.missed(), lone.missed()), (Some(SIGINT), None), "once");
        pass_on(&writer);
        assert_eq!(lone.missed(), Some(SIGINT), "and the next once more");

        let (mut grouped, writer) = interrupts(&[SIGUSR2]);
        kill_process(getpid(), Signal::USR2).unwrap();
        while !grouped.is_set() {
            std::thread::yield_now();
        }
        assert_eq!(grouped.early(), Some(SIGUSR2));
        pass_on(&writer);
        assert!(grouped.is_set() && grouped.missed().is_none(), "the whole group got it");
        drop(writer);
        assert!(grouped.is_set(), "the end of the process outside takes nothing back");
    }

    #[test]
    fn the_end_of_a_child_ends_the_wait_for_it() {
        let (mut interrupts, writer) = interrupts(&[]);
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = Pid::from_child(&child);
        pass_on(&writer);
        assert_eq!(interrupts.before_end_of(pid), Some(SIGINT));
        drop(writer);
        child.kill().unwrap();
        assert_eq!(interrupts.before_end_of(pid), None);
        child.wait().unwrap();
    }
}

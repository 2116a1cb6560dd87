//! Signals that ask a lab to end in order, whichever of its processes gets them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use signal_hook::low_level::register;

const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Signals that end the work of a lab in order instead of killing it. A terminal sends them to every process of its group; `timeout
/// --foreground` and supervisors send them to the process that was started alone, which only waits outside of the lab. It passes
/// each on through a pipe. A second signal of the same number was rejected: two that are pending become one, and then nothing says
/// whether the lab's programs had it, too.
#[derive(Debug)]
pub struct Interrupts {
    signals: Vec<i32>,
    /// How many this very process got.
    own: Arc<AtomicUsize>,
    /// The number of each that the process outside got.
    outside: Option<OwnedFd>,
    /// How many came from there.
    passed_on: usize,
    /// The last of these.
    last: i32,
    /// How many were given to programs that did not get them.
    given: usize,
}

impl Interrupts {
    /// Catches `signals` from here on, in this process and in what it forks; what it executes gets the defaults.
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

    /// Whether there was one.
    pub fn is_set(&mut self) -> bool {
        self.look();
        self.passed_on > 0 || self.own.load(Ordering::SeqCst) > 0
    }

    /// Waits until `child` has ended, which is not reaped; before that, with a signal that only the process outside got, so that
    /// programs in this process's group have not got it either: each such signal once.
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

    /// The signals.
    pub(super) fn signals(&self) -> &[i32] {
        &self.signals
    }

    /// One that came to this process before it could pass it on.
    pub(super) fn early(&self) -> Option<i32> {
        (self.own.load(Ordering::SeqCst) > 0).then(|| self.signals.first().copied()).flatten()
    }

    /// From here on, the process outside writes the number of each signal that it gets, as a byte.
    pub(super) fn listen_to(&mut self, outside: OwnedFd) {
        self.outside = Some(outside);
    }

    /// A signal that came to the process outside and not to this one. Of a signal to a whole group this process has its own before
    /// it can read what is passed on.
    fn missed(&mut self) -> Option<i32> {
        self.look();
        let is_missed = self.passed_on > self.own.load(Ordering::SeqCst) + self.given;
        is_missed.then(|| {
            self.given += 1;
            self.last
        })
    }

    /// Takes in what was passed on.
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
                // Nobody writes any more.
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

    /// Interrupts by `signals`, and the end of the process outside.
    fn interrupts(signals: &[i32]) -> (Interrupts, OwnedFd) {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let mut interrupts = Interrupts::catch(signals).unwrap();
        interrupts.listen_to(reader);
        (interrupts, writer)
    }

    fn pass_on(writer: &OwnedFd) {
        assert_eq!(rustix::io::write(writer, &[SIGINT as u8]), Ok(1));
    }

    /// No other test uses this signal: signals are the whole process's.
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

//! Servers and other programs as guarded children: they never outlive us, and their output is kept, within bounds.
//!
//! A child dies in each of the ways that we may end. Leaving a scope, by return or panic, drops the guard, which kills the
//! child's process group and waits for it. If we die by SIGKILL, the kernel kills the child (`PR_SET_PDEATHSIG`). And in a lab
//! the end of the first process of the PID namespace ends every process in it, whatever its process group.
//!
//! CPU time is read from the clock of the process, not from `/proc`, which in a lab may show the numbers of another PID
//! namespace; where only `/proc` has it, the process is first looked up by its pidfd.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, PipeReader, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use h2lab_base::text::made_printable;

use crate::privileges;
use crate::process_watch::ProcessWatch;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Resource, Signal, WaitOptions, getpid, getppid, getrlimit, kill_process,
    kill_process_group, pidfd_open, set_child_subreaper, set_parent_process_death_signal, setrlimit, waitpid,
};

/// How a child has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildExit {
    /// Its exit code or the signal that ended it.
    pub status: ExitStatus,
    /// CPU time, user and system, of the child and of those of its own children that it had waited for.
    pub cpu: Duration,
}

/// Why the line that was waited for did not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// The child has closed its output, which in practice means that it has ended.
    #[error("it ended")]
    Ended,
    /// The deadline passed.
    #[error("it did not say so in time")]
    Timeout,
}

/// Called with each line that a child writes, including its line end; a very long line comes in pieces.
pub type OnLine = Box<dyn FnMut(&[u8]) + Send>;

/// A running child. Dropping it kills its process group and waits.
///
/// It lives in a process group of its own, so that a Ctrl-C at our terminal reaches only us, and so that children of its own end
/// with it. It is killed too when the *thread* that spawned it ends (prctl(2), `PR_SET_PDEATHSIG`): spawn from one that lives as
/// long as the child should. The kernel clears `PR_SET_PDEATHSIG` when a program changes its user, so servers must keep the user
/// that they are started as.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    /// Reports the end without reaping, so that the process group's number stays ours until we have killed it.
    pidfd: OwnedFd,
    log: Arc<Log>,
    ended: Option<ChildExit>,
}

impl Child {
    /// Starts `command` with nothing on its standard input and both outputs in the log, and calls `on_line` for each line, if it
    /// is given. Its soft limit of open files becomes the hard one: servers need more than the usual 1,024.
    pub fn spawn(mut command: Command, on_line: Option<OnLine>) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer).process_group(0);
        die_with_us(&mut command);
        let before_exec = || {
            let mut files = getrlimit(Resource::Nofile);
            files.current = files.maximum;
            Ok(setrlimit(Resource::Nofile, files)?)
        };
        // SAFETY: between fork and exec it only makes system calls: no allocation, no lock.
        unsafe { command.pre_exec(before_exec) };
        let child = command.spawn()?;
        drop(command); // holds the pipe's other end, whose last close is the end of the log
        let pid = Pid::from_child(&child);
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        let log = Arc::new(Log::default());
        let guard = Self { pid, pidfd, log: Arc::clone(&log), ended: None };
        std::thread::Builder::new().name("child-log".to_owned()).spawn(move || {
            privileges::renounce();
            log.fill(reader, on_line);
        })?;
        Ok(guard)
    }

    /// Its process id, in our PID namespace.
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// Its output, the last [`Log::LIMIT`] bytes of it, lines of both outputs in the order in which they came.
    pub fn log(&self) -> String {
        self.log.text()
    }

    /// Waits until `find` finds what it looks for in a line of the log, earlier lines included.
    pub fn wait_for_line<T>(
        &self,
        timeout: Duration,
        find: impl FnMut(&str) -> Option<T>,
    ) -> Result<T, WaitError> {
        self.log.wait_for(Instant::now() + timeout, find)
    }

    /// Waits for its end; `None` when it still runs after `timeout`. The rest of its process group is killed.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<Option<ChildExit>> {
        if self.ended.is_none() && wait_readable(&self.pidfd, Instant::now() + timeout)? {
            self.ended = Some(self.reap()?);
        }
        Ok(self.ended)
    }

    /// Sends it a signal, unless it has ended.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match self.ended {
            Some(_) => Ok(()),
            None => Ok(kill_process(self.pid, signal)?),
        }
    }

    /// Asks it to end by `signal`; kills it if it has not ended after `timeout`.
    pub fn stop(&mut self, signal: Signal, timeout: Duration) -> io::Result<ChildExit> {
        if self.ended.is_none() {
            match kill_process(self.pid, signal) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
        match self.wait(timeout)? {
            Some(ended) => Ok(ended),
            None => self.kill(),
        }
    }

    /// Kills its process group and waits for its end.
    pub fn kill(&mut self) -> io::Result<ChildExit> {
        match self.ended {
            Some(ended) => Ok(ended),
            None => Ok(*self.ended.insert(self.reap()?)),
        }
    }

    /// Whether it runs, seen by another thread while this one waits for something else.
    pub fn watch(&self) -> io::Result<ProcessWatch> {
        Ok(ProcessWatch::new(self.pidfd.try_clone()?))
    }

    /// CPU time, user and system, that it has used so far with all of its threads. Its own children count only in
    /// [`ChildExit::cpu`], after its end.
    pub fn cpu(&self) -> Duration {
        // The clock of a process is there until it is reaped, and then `ended` is set.
        self.ended.map_or_else(|| cpu_clock(self.pid).unwrap_or_default(), |ended| ended.cpu)
    }

    /// Bytes of its memory that are resident now; 0 after its end.
    pub fn resident_bytes(&self) -> u64 {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.pid.as_raw_nonzero()));
        let pages = statm.ok().and_then(|statm| statm.split(' ').nth(1)?.parse::<u64>().ok());
        pages.unwrap_or(0) * rustix::param::page_size() as u64
    }

    /// The most bytes of its memory that were resident at a time; 0 after its end, and where that cannot be seen.
    ///
    /// `ru_maxrss`, which comes with the status, was rejected: it begins with the memory that we had ourselves when we
    /// forked, whatever has been executed since.
    pub fn resident_peak(&self) -> u64 {
        let kibibytes = || {
            // Its number in the PID namespace of `/proc`, which in a lab may be another one than ours (pidfd_open(2)).
            let about =
                std::fs::read_to_string(format!("/proc/self/fdinfo/{}", self.pidfd.as_raw_fd())).ok()?;
            let pid: u32 = field(&about, "Pid:")?.parse().ok()?;
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            field(&status, "VmHWM:")?.strip_suffix("kB")?.trim_end().parse::<u64>().ok()
        };
        kibibytes().unwrap_or(0) * 1024
    }

    /// Kills the group while its number is certainly ours, then takes the child's status.
    fn reap(&self) -> io::Result<ChildExit> {
        match kill_process_group(self.pid, Signal::KILL) {
            // PERM: some of the group have changed their user; the rest has been killed.
            Ok(()) | Err(Errno::SRCH | Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
        let ended = wait4(self.pid)?;
        // Its last lines may still be in the pipe, and the log must have them.
        self.log.wait_until_closed(Instant::now() + LAST_OUTPUT_WAIT);
        Ok(ended)
    }
}

/// How long the pipe of an ended program is still read: a process that has left its process group may hold the pipe
/// open for ever.
const LAST_OUTPUT_WAIT: Duration = Duration::from_millis(500);

impl Drop for Child {
    fn drop(&mut self) {
        // Fails only if the child is gone already.
        let _ = self.kill();
    }
}

/// Has the child of `command` killed by the kernel when the calling thread ends, however it ends.
pub fn die_with_us(command: &mut Command) {
    let parent = getpid();
    let before_exec = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid() == Some(parent) {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(libc::ECHILD)) // we died before the call above
        }
    };
    // SAFETY: between fork and exec it only makes system calls: no allocation, no lock.
    unsafe { command.pre_exec(before_exec) };
}

/// Processes whose parent this one is.
pub fn children() -> Vec<Pid> {
    children_of(getpid())
}

/// The children of `ancestor`, theirs, and so on. `/proc` must show the PID namespace of this process.
pub fn descendants(ancestor: Pid) -> Vec<Pid> {
    let mut all = children_of(ancestor);
    let mut next = 0;
    while let Some(&parent) = all.get(next) {
        // A process ID that is reused meanwhile must not cause an endless loop.
        let more: Vec<Pid> = children_of(parent).into_iter().filter(|pid| !all.contains(pid)).collect();
        all.extend(more);
        next += 1;
    }
    all
}

/// Processes whose parent is `parent`: the fourth field of `/proc/PID/stat` (proc(5)).
fn children_of(parent: Pid) -> Vec<Pid> {
    let wanted = parent.as_raw_nonzero().get();
    let is_child = |pid: &i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The command's name may contain spaces and parentheses.
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1));
        parent.and_then(|parent| parent.parse().ok()) == Some(wanted)
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(is_child).filter_map(Pid::from_raw).collect()
}

/// Adopts the orphans of a program that we start, and kills them when this is dropped: those that have left the
/// program's process group would otherwise survive it.
#[derive(Debug)]
pub struct SubreaperGuard {
    /// Children that we had before.
    known: Vec<Pid>,
}

impl SubreaperGuard {
    /// From now on our orphans are reparented to us. Children of ours that are started after this are killed with them:
    /// make the guard before a child, on the thread that waits for the child, and drop it after the child.
    pub fn open() -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        Ok(Self { known: children() })
    }
}

/// Generations of orphans: each may have had children, which are reparented to us when it dies.
const GENERATIONS: usize = 32;

impl Drop for SubreaperGuard {
    fn drop(&mut self) {
        for _ in 0..GENERATIONS {
            let orphans: Vec<Pid> = children().into_iter().filter(|pid| !self.known.contains(pid)).collect();
            for orphan in &orphans {
                // It has not been reaped, so the number is still its own.
                let _ = kill_process(*orphan, Signal::KILL);
                let _ = waitpid(Some(*orphan), WaitOptions::empty());
            }
            if orphans.is_empty() {
                return;
            }
        }
    }
}

/// The value of a line `Name: value` of a file of `/proc`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// Runs `command` to its end, at most for `timeout`; returns its status and its output.
pub fn run(command: Command, timeout: Duration) -> io::Result<(ExitStatus, String)> {
    let mut child = Child::spawn(command, None)?;
    match child.wait(timeout)? {
        Some(ended) => {
            child.log.wait_until_closed(Instant::now() + timeout);
            Ok((ended.status, child.log()))
        }
        None => Err(io::Error::new(io::ErrorKind::TimedOut, "it did not end in time")),
    }
}

/// Waits until `fd` is readable; `false` when it is not by `deadline`.
fn wait_readable(fd: &OwnedFd, deadline: Instant) -> io::Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reaps `pid` with its resource usage, which `std` does not give.
fn wait4(pid: Pid) -> io::Result<ChildExit> {
    let mut status = 0;
    // SAFETY: all zeros is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to values of the right type that outlive the call.
        let result = unsafe { libc::wait4(pid.as_raw_pid(), &raw mut status, 0, &raw mut usage) };
        if result == -1 {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        }
        let cpu = of_timeval(usage.ru_utime) + of_timeval(usage.ru_stime);
        return Ok(ChildExit { status: ExitStatus::from_raw(status), cpu });
    }
}

fn of_timeval(time: libc::timeval) -> Duration {
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0)) + Duration::from_micros(micros)
}

/// CPU time, user and system, of all children that this process has waited for, and of those that they had waited for.
pub fn cpu_of_children() -> Duration {
    // SAFETY: all zeros is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a value of the right type that outlives the call. It cannot fail with these arguments.
    let _ = unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    of_timeval(usage.ru_utime) + of_timeval(usage.ru_stime)
}

/// CPU time, user and system, that a process which has not been waited for has used with all of its threads.
pub fn cpu_clock(pid: Pid) -> io::Result<Duration> {
    let mut clock: libc::clockid_t = 0;
    // SAFETY: `clock` outlives the call.
    let result = unsafe { libc::clock_getcpuclockid(pid.as_raw_pid(), &raw mut clock) };
    if result != 0 {
        return Err(io::Error::from_raw_os_error(result));
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Ok(Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0)) + Duration::from_nanos(nanos))
}

/// The last lines that a child wrote.
#[derive(Debug, Default)]
struct Log {
    state: Mutex<LogState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct LogState {
    lines: VecDeque<String>,
    bytes: usize,
    /// Lines that were dropped at the front.
    dropped: usize,
    closed: bool,
}

impl Log {
    /// Bytes that are kept: enough for a server's error about its configuration, and no memory leak in a long run.
    const LIMIT: usize = 64 * 1024;
    /// Longer lines are cut into pieces.
    const LINE_LIMIT: u64 = 4 * 1024;
    /// Takes lines in until the pipe ends.
    fn fill(&self, reader: PipeReader, mut on_line: Option<OnLine>) {
        let mut reader = BufReader::new(reader);
        let mut line = Vec::new();
        loop {
            line.clear();
            match reader.by_ref().take(Self::LINE_LIMIT).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => break, // `read_until` continues after EINTR by itself
                Ok(_) => {}
            }
            if let Some(on_line) = &mut on_line {
                on_line(&line);
            }
            self.push(made_printable(&String::from_utf8_lossy(line.trim_ascii_end())).into_owned());
        }
        self.lock().closed = true;
        self.changed.notify_all();
    }

    fn push(&self, line: String) {
        let mut state = self.lock();
        state.bytes += line.len() + 1;
        state.lines.push_back(line);
        while state.bytes > Self::LIMIT
            && let Some(oldest) = state.lines.pop_front()
        {
            state.bytes -= oldest.len() + 1;
            state.dropped += 1;
        }
        drop(state);
        self.changed.notify_all();
    }

    fn text(&self) -> String {
        let state = self.lock();
        state.lines.iter().flat_map(|line| [line, "\n"]).collect()
    }

    fn wait_for<T>(
        &self,
        deadline: Instant,
        mut find: impl FnMut(&str) -> Option<T>,
    ) -> Result<T, WaitError> {
        let mut looked_at = 0;
        let mut state = self.lock();
        loop {
            let first = looked_at.max(state.dropped);
            if let Some(found) = state.lines.iter().skip(first - state.dropped).find_map(|line| find(line)) {
                return Ok(found);
            }
            looked_at = state.dropped + state.lines.len();
            if state.closed {
                return Err(WaitError::Ended);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(WaitError::Timeout);
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn wait_until_closed(&self, deadline: Instant) {
        // No line matches, so this ends with the log or the deadline; either will do.
        let _ = self.wait_for(deadline, |_| None::<()>);
    }

    /// A panic while the lock is held loses one line at worst.
    fn lock(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Far above what anything here takes: only a hang reaches it.
    const DEADLINE: Duration = Duration::from_secs(60);
    const ROLE: &str = "H2LAB_TEST_PROCESS_ROLE";

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    fn parse_pid(line: &str) -> Option<Pid> {
        Pid::from_raw(line.strip_prefix("pid ")?.parse().ok()?)
    }

    /// Whether the process behind `pidfd` ends before the deadline.
    fn ends(pidfd: &OwnedFd) -> bool {
        wait_readable(pidfd, Instant::now() + DEADLINE).unwrap()
    }

    #[test]
    fn both_outputs_are_kept_in_order_with_the_exit_code() {
        let (status, said) = run(shell("echo one; echo two >&2; printf three; exit 7"), DEADLINE).unwrap();
        assert_eq!((status.code(), said.as_str()), (Some(7), "one\ntwo\nthree\n"));
    }

    #[test]
    fn what_a_child_writes_is_printable_since_errors_quote_it() {
        let (_, said) = run(shell(r"printf '\033[2J\0\303\251\302\233\377\n'"), DEADLINE).unwrap();
        assert_eq!(said, "\\u{1b}[2J\\u{0}é\\u{9b}\u{fffd}\n");
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error_of_its_kind() {
        let error = Child::spawn(Command::new("/nowhere/at-all"), None).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_dropped_child_and_its_own_children_are_dead() {
        let child = Child::spawn(shell("sleep 1000 & echo pid $!; wait"), None).unwrap();
        let grandchild = child.wait_for_line(DEADLINE, parse_pid).unwrap();
        let ends_of = [child.pid(), grandchild].map(|pid| pidfd_open(pid, PidfdFlags::empty()).unwrap());
        drop(child);
        assert!(ends_of.iter().all(ends));
    }

    #[test]
    #[ignore = "the process that `a_child_dies_with_its_parent` starts and kills; by itself it tests nothing"]
    fn parent_that_is_killed() {
        if std::env::var_os(ROLE).is_none() {
            return;
        }
        let child = Child::spawn(shell("exec sleep 1000"), None).unwrap();
        println!("\npid {}", child.pid().as_raw_pid());
        child.wait_for_line(DEADLINE, |_| None::<()>).unwrap_err();
    }

    #[test]
    fn a_child_dies_with_its_parent() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(ROLE, "parent").args(["--ignored", "--nocapture", "--exact"]);
        command.arg(format!("{}::parent_that_is_killed", module_path!().split_once("::").unwrap().1));
        let parent = Child::spawn(command, None).unwrap();
        let child = parent.wait_for_line(DEADLINE, parse_pid);
        let child = child.unwrap_or_else(|error| panic!("{error}: {}", parent.log()));
        let end_of = pidfd_open(child, PidfdFlags::empty()).unwrap();
        // Only its own process is killed, not the group: nothing but the kernel can end the grandchild now.
        kill_process(parent.pid(), Signal::KILL).unwrap();
        assert!(ends(&end_of));
    }

    #[test]
    fn a_child_that_ignores_the_polite_signal_is_killed() {
        let polite = shell("trap 'exit 3' TERM; echo ready; while :; do sleep 1000 & wait; done");
        let ignoring = shell("trap '' TERM; echo ready; while :; do sleep 1000; done");
        for (command, timeout, code) in
            [(polite, DEADLINE, Some(3)), (ignoring, Duration::from_millis(50), None)]
        {
            let mut child = Child::spawn(command, None).unwrap();
            child.wait_for_line(DEADLINE, |line| (line == "ready").then_some(())).unwrap();
            assert_eq!(child.stop(Signal::TERM, timeout).unwrap().status.code(), code);
        }
    }

    #[test]
    fn waiting_for_a_line_ends_with_the_child_or_the_deadline() {
        let child = Child::spawn(shell("echo something else"), None).unwrap();
        let wait = |timeout| child.wait_for_line(timeout, |line| (line == "ready").then_some(()));
        assert_eq!(wait(DEADLINE), Err(WaitError::Ended));
        let child = Child::spawn(shell("exec sleep 1000"), None).unwrap();
        assert_eq!(child.wait_for_line(Duration::from_millis(1), |_| None::<()>), Err(WaitError::Timeout));
    }

    #[test]
    fn cpu_time_is_read_while_it_runs_and_counts_its_children_in_the_end() {
        let busy = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        let mut child =
            Child::spawn(shell(&format!("{busy}; echo done; ({busy}); exec sleep 1000")), None).unwrap();
        child.wait_for_line(DEADLINE, |line| (line == "done").then_some(())).unwrap();
        let alive = child.cpu();
        assert!(alive > Duration::from_millis(1), "{alive:?}");
        assert!(child.kill().unwrap().cpu >= alive);
        let (own, with_children) = {
            let mut child = Child::spawn(shell(&format!("({busy}); echo done; read never")), None).unwrap();
            child.wait_for_line(DEADLINE, |line| (line == "done").then_some(())).unwrap();
            (child.cpu(), child.wait(DEADLINE).unwrap().unwrap().cpu)
        };
        assert!(with_children > own, "{with_children:?} {own:?}");
    }

    #[test]
    fn a_chatty_child_does_not_fill_our_memory_and_its_last_words_are_kept() {
        let mut child = Child::spawn(shell("yes 0123456789 | head -c 1000000; echo the end"), None).unwrap();
        child.wait(DEADLINE).unwrap().unwrap();
        child.log.wait_until_closed(Instant::now() + DEADLINE);
        let said = child.log();
        assert!(said.len() <= Log::LIMIT && said.len() > Log::LIMIT / 2, "{}", said.len());
        assert!(said.ends_with("the end\n"));
    }

    #[test]
    fn a_line_without_end_is_cut() {
        let (_, said) = run(shell("head -c 10000 /dev/zero | tr '\\0' x"), DEADLINE).unwrap();
        assert_eq!(said.lines().map(str::len).collect::<Vec<_>>(), [4096, 4096, 1808]);
    }
}

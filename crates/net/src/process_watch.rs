//! Whether a child and its own children run, according to `/proc`. A measurement of a server must detect that somebody
//! stopped or killed it, or that it waited for a CPU or a disk.

mod threads;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use h2lab_base::units::Time;

pub use threads::CpuUse;
use threads::Threads;

/// What became of a process and its children since the first look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProcessObservation {
    /// For how long one of them was stopped by a signal or a debugger, and when that was first seen.
    pub stopped: Option<(Time, Duration)>,
    /// When one of the children that existed at the first look was found to have ended.
    pub child_ended: Option<Time>,
    /// When the process itself was found to have ended.
    pub ended: Option<Time>,
    /// How long their threads ran, and waited for a CPU.
    pub cpu: CpuUse,
    /// For how long the main thread of the one that waited longest was in uninterruptible sleep (state `D`): it waited for a
    /// disk, or for a network file system.
    pub disk: Duration,
}

impl ProcessObservation {
    /// Adds the time since the last look if one of the processes is stopped now.
    fn add(&mut self, states: &[(u32, char)], now: Time, since: Duration) {
        if states.iter().any(|(_, state)| matches!(state, 'T' | 't')) {
            let (_, time) = self.stopped.get_or_insert((now, Duration::ZERO));
            *time += since;
        }
    }
}

/// For how long each process waited for a disk, by its number. Workers that wait in turn do not add up to one that waits all the
/// time.
#[derive(Debug, Default)]
struct DiskWaits(BTreeMap<u32, Duration>);

impl DiskWaits {
    /// Adds the time since the last look to those of the processes that wait now. Returns the longest.
    fn add(&mut self, states: &[(u32, char)], since: Duration) -> Duration {
        for (pid, _) in states.iter().filter(|(_, state)| *state == 'D') {
            *self.0.entry(*pid).or_default() += since;
        }
        self.0.values().copied().max().unwrap_or_default()
    }
}

/// Looks at a process and its children. Made by [`Child::watch`](crate::process::Child::watch).
#[derive(Debug)]
pub struct ProcessWatch {
    pidfd: OwnedFd,
    /// The process and its children at the first look; empty before it.
    family: Vec<Member>,
    threads: Threads,
    disk: DiskWaits,
    looked_at: Time,
    seen: ProcessObservation,
}

/// A process by its number and its time of start, since numbers are used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Member {
    pid: u32,
    started: u64,
}

impl ProcessWatch {
    /// `pidfd` refers to a child that has not been waited for.
    pub(crate) fn new(pidfd: OwnedFd) -> Self {
        Self {
            pidfd,
            family: Vec::new(),
            threads: Threads::default(),
            disk: DiskWaits::default(),
            looked_at: Time::ZERO,
            seen: ProcessObservation::default(),
        }
    }

    /// What has become of them until `now`. Times are as precise as the looks are frequent.
    pub fn look(&mut self, now: Time) -> ProcessObservation {
        if self.family.is_empty() && self.seen.ended.is_none() {
            // Its number in the PID namespace of `/proc`, which in a lab may be another one than ours (pidfd_open(2)).
            self.family = number(&self.pidfd).map(family).unwrap_or_default();
            self.looked_at = now;
            if self.family.is_empty() {
                self.seen.ended = Some(now);
            }
        }
        let root = self.family.first().copied();
        let mut states = Vec::new();
        let seen = &mut self.seen;
        self.family.retain(|&member| match state(member) {
            Some(state) => {
                states.push((member.pid, state));
                true
            }
            None if Some(member) == root => {
                seen.ended.get_or_insert(now);
                true
            }
            None => {
                seen.child_ended.get_or_insert(now);
                false
            }
        });
        seen.add(&states, now, now.since(self.looked_at));
        seen.disk = self.disk.add(&states, now.since(self.looked_at));
        self.threads.look(self.family.iter().map(|member| member.pid), now.since(self.looked_at));
        seen.cpu = self.threads.sum;
        self.looked_at = now;
        self.seen
    }
}

/// The process's number as `/proc` has it; `None` once it has been waited for.
fn number(pidfd: &OwnedFd) -> Option<u32> {
    let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
    about.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()
}

/// The process `root` and all that descend from it, itself first.
fn family(root: u32) -> Vec<Member> {
    let mut pids = vec![root];
    let mut next = 0;
    while let Some(&pid) = pids.get(next) {
        pids.extend(children(pid).unwrap_or_default());
        next += 1;
    }
    let member = |pid| stat(pid).map(|(_, started)| Member { pid, started });
    // If the root is gone, the result is empty.
    member(root).into_iter().chain(pids.into_iter().skip(1).filter_map(member)).collect()
}

/// The children of all threads of a process (`/proc/PID/task/TID/children`, proc(5)).
fn children(pid: u32) -> io::Result<Vec<u32>> {
    let mut children = Vec::new();
    for thread in Path::new(&format!("/proc/{pid}/task")).read_dir()? {
        let text = std::fs::read_to_string(thread?.path().join("children"))?;
        children.extend(text.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
    }
    Ok(children)
}

/// The state of this process; `None` if it has ended, whether it has been waited for or not, or its number was reused.
fn state(member: Member) -> Option<char> {
    let (state, started) = stat(member.pid)?;
    (started == member.started && !matches!(state, 'Z' | 'X')).then_some(state)
}

/// State and time of start of a process: the third and the 22nd field of `/proc/PID/stat` (proc(5)).
fn stat(pid: u32) -> Option<(char, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name may contain spaces and parentheses.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.nth(18)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Instant;

    use rustix::process::{Pid, Signal, kill_process};

    use super::*;
    use crate::process::Child;

    const MOMENT: Duration = Duration::from_millis(30);

    fn shell(script: &str) -> Child {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        let child = Child::spawn(command, None).unwrap();
        child.wait_for_line(Duration::from_secs(60), |line| (line == "up").then_some(())).unwrap();
        child
    }

    /// Looks at simulated times until `find` returns true.
    fn look_until(watch: &mut ProcessWatch, find: impl Fn(ProcessObservation) -> bool) -> ProcessObservation {
        let (deadline, mut now) = (Instant::now() + Duration::from_secs(60), Time::ZERO);
        loop {
            let seen = watch.look(now);
            if find(seen) {
                return seen;
            }
            assert!(Instant::now() < deadline, "{seen:?}");
            std::thread::yield_now();
            now += MOMENT;
        }
    }

    #[test]
    fn a_process_that_runs_is_undisturbed() {
        let child = shell("echo up; exec sleep 1000");
        let mut watch = child.watch().unwrap();
        for ms in [0, 20, 40] {
            // It may not be asleep yet.
            assert_eq!(
                ProcessObservation {
                    cpu: CpuUse::default(),
                    disk: Duration::ZERO, // its program may be read from a disk
                    ..watch.look(Time::from_millis(ms))
                },
                ProcessObservation::default()
            );
        }
    }

    #[test]
    fn states_count_for_the_time_since_the_last_look_and_waits_for_a_disk_of_each_process_alone() {
        let (mut seen, mut disk) = (ProcessObservation::default(), DiskWaits::default());
        let mut longest = Vec::new();
        for (ms, states) in [(20, "SR"), (40, "SD"), (60, "DS"), (80, "DD"), (100, "TS"), (120, "")] {
            let states: Vec<(u32, char)> = (1..).zip(states.chars()).collect();
            seen.add(&states, Time::from_millis(ms), Duration::from_millis(20));
            longest.push(disk.add(&states, Duration::from_millis(20)).as_millis());
        }
        assert_eq!(longest, [0, 20, 20, 40, 40, 40], "waits in turn are no longer wait");
        assert_eq!(seen.stopped, Some((Time::from_millis(100), Duration::from_millis(20))));
    }

    #[test]
    fn what_threads_run_is_counted_from_the_first_look_on() {
        let child = shell("echo up; while :; do :; done");
        let mut watch = child.watch().unwrap();
        assert_eq!(watch.look(Time::ZERO).cpu, CpuUse::default());
        let seen = look_until(&mut watch, |seen| seen.cpu.ran >= MOMENT);
        assert_eq!((seen.stopped, seen.ended), (None, None));
    }

    /// A loop that yields to every other program, on the CPU of one that does not.
    #[test]
    fn a_process_beside_a_busier_one_is_seen_to_wait_for_the_cpu() {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
        let cpu = cpus.trim().split([',', '-']).next().unwrap();
        let [_busy, idle] = ["--other", "--idle"].map(|policy| {
            let mut command = Command::new("taskset");
            command.args(["-c", cpu, "chrt", policy, "0", "/bin/sh", "-c", "echo up; while :; do :; done"]);
            let child = Child::spawn(command, None).unwrap();
            child.wait_for_line(Duration::from_secs(60), |line| (line == "up").then_some(())).unwrap();
            child
        });
        let mut watch = idle.watch().unwrap();
        let seen = look_until(&mut watch, |seen| seen.cpu.waited >= MOMENT);
        assert_eq!((seen.stopped, seen.ended), (None, None));
    }

    #[test]
    fn a_stopped_process_is_seen_for_as_long_as_it_is_stopped() {
        let child = shell("echo up; exec sleep 1000");
        let mut watch = child.watch().unwrap();
        assert_eq!(watch.look(Time::ZERO), ProcessObservation::default());
        kill_process(child.pid(), Signal::STOP).unwrap();
        let seen = look_until(&mut watch, |seen| seen.stopped.is_some_and(|(_, time)| time >= MOMENT * 3));
        kill_process(child.pid(), Signal::CONT).unwrap();
        assert_eq!((seen.ended, seen.child_ended), (None, None));
    }

    #[test]
    fn the_end_of_a_process_is_seen_before_it_is_waited_for() {
        let mut child = shell("echo up; exec sleep 1000");
        let mut watch = child.watch().unwrap();
        assert_eq!(watch.look(Time::ZERO), ProcessObservation::default());
        kill_process(child.pid(), Signal::KILL).unwrap();
        assert!(look_until(&mut watch, |seen| seen.ended.is_some()).child_ended.is_none());
        assert!(child.wait(Duration::from_secs(60)).unwrap().is_some());
        assert!(watch.look(Time::from_millis(5)).ended.is_some(), "afterwards, too");
        assert!(child.watch().unwrap().look(Time::ZERO).ended.is_some(), "what ended before the first look");
    }

    #[test]
    fn the_end_and_the_stop_of_a_child_are_seen() {
        let child = shell("sleep 1000 & echo $!; echo up; wait; exec sleep 1000");
        let worker = child.log().lines().next().unwrap().parse().unwrap();
        let mut watch = child.watch().unwrap();
        assert_eq!(watch.look(Time::ZERO), ProcessObservation::default());
        kill_process(Pid::from_raw(worker).unwrap(), Signal::STOP).unwrap();
        assert_eq!(look_until(&mut watch, |seen| seen.stopped.is_some()).child_ended, None);
        kill_process(Pid::from_raw(worker).unwrap(), Signal::KILL).unwrap();
        assert_eq!(look_until(&mut watch, |seen| seen.child_ended.is_some()).ended, None);
    }
}

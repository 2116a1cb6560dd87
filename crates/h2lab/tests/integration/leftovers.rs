//! Nothing outlives us: no process, no namespace, no device, after success, failure, a panic and every signal, at any moment.
//!
//! Every process that a run starts is found while it lives, as a descendant of the run, and recorded with its start
//! time and its namespaces. Afterwards none of the processes may live, none may carry the run's mark in its
//! environment, and no process may be in one of the namespaces: an anonymous namespace without a process or a mount is
//! gone. Counting the machine's namespaces instead was rejected: other programs make and leave their own meanwhile.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{DEADLINE, binary, folder, may_open_tun, need, on_a_hardened_machine, rounds};

/// How long the kernel and pid 1 may take to clear away what has been killed.
const CLEARING: Duration = Duration::from_secs(60);

/// How often the processes of a run are listed.
const CHECK_PERIOD: Duration = Duration::from_millis(10);

/// The environment variable that marks the processes of one run, also those that no listing found.
const MARK: &str = "H2LAB_TEST_MARK";

/// A run that lasts as long as a test needs: several cells of several seconds.
const LONG_COMPARE: [&str; 8] =
    ["compare", "--json", "--proto=h1,h2c", "-c=1,4", "--loss=3%", "-q=200", "-z=20s", "--origin=origin"];

/// A process: its id and its start time, which together are unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Process {
    pid: i32,
    started: u64,
}

/// A namespace: `net:[4026532281]`.
type Namespace = String;

/// The parent and the start time of `pid`, from /proc/PID/stat; `None` once it is gone or a zombie.
fn stat(pid: i32) -> Option<(i32, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name may contain spaces and parentheses; the fields follow its last parenthesis.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let (state, parent, started) = (fields.first()?, fields.get(1)?, fields.get(19)?);
    if *state == "Z" {
        return None;
    }
    Some((parent.parse().ok()?, started.parse().ok()?))
}

fn all_pids() -> Vec<i32> {
    let entries = fs::read_dir("/proc").expect("/proc is mounted");
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The network, PID and user namespaces of `pid`, as far as we may read them.
fn namespaces(pid: i32) -> BTreeSet<Namespace> {
    let read = |kind: &str| fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok();
    ["net", "pid", "user"].into_iter().filter_map(read).map(|link| link.display().to_string()).collect()
}

/// A run, and everything that was ever seen of it.
pub struct Watched {
    child: Child,
    family: BTreeSet<Process>,
    namespaces: BTreeSet<Namespace>,
    ours: BTreeSet<Namespace>,
    mark: String,
    _folder: tempfile::TempDir,
}

/// A program that becomes the one its arguments name, with every signal at its default: a shell starts background jobs
/// with SIGINT ignored, and these tests may be part of one.
fn with_default_signals() -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal");
    command
}

impl Watched {
    /// Starts h2lab in a folder of its own.
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_program(with_default_signals().arg(binary()).args(arguments))
    }

    /// The same where no namespace can be made and `CAP_NET_ADMIN` is all there is.
    fn start_on_a_hardened_machine(arguments: &[&str]) -> Self {
        let words = on_a_hardened_machine(",+net_admin");
        Self::start_program(with_default_signals().args(words).args(arguments))
    }

    fn start_program(command: &mut Command) -> Self {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let me = rustix::process::getpid();
        let mark = format!("{}-{}", me.as_raw_nonzero(), RUNS.fetch_add(1, Ordering::Relaxed));
        // Grandchildren whose parent dies are reparented to us, and so stay descendants that we can find.
        rustix::process::set_child_subreaper(Some(me)).expect("Linux has subreapers");
        let folder = folder();
        let child = command
            .env(MARK, &mark)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary starts");
        let ours = namespaces(me.as_raw_nonzero().get());
        Self { child, family: BTreeSet::new(), namespaces: BTreeSet::new(), ours, mark, _folder: folder }
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("process ids are positive and small")
    }

    /// Records the processes that descend from the run right now, and their namespaces.
    fn glance(&mut self) {
        let root = self.pid();
        let mut members = BTreeSet::from([root]);
        let known: Vec<(i32, i32, u64)> = all_pids()
            .into_iter()
            .filter_map(|pid| stat(pid).map(|(parent, at)| (pid, parent, at)))
            .collect();
        loop {
            let more: Vec<i32> = known
                .iter()
                .filter(|(pid, parent, _)| members.contains(parent) && !members.contains(pid))
                .map(|(pid, ..)| *pid)
                .collect();
            if more.is_empty() {
                break;
            }
            members.extend(more);
        }
        for &(pid, _, started) in known.iter().filter(|(pid, ..)| members.contains(pid)) {
            self.family.insert(Process { pid, started });
            self.namespaces.extend(namespaces(pid));
        }
    }

    /// Watches for `moment`, or until the run ends.
    pub fn look_for(&mut self, moment: Duration) {
        let until = Instant::now() + moment;
        while Instant::now() < until && self.child.try_wait().expect("our child").is_none() {
            self.glance();
            thread::sleep(CHECK_PERIOD); // polling interval, not a wait for something to happen
        }
    }

    /// Watches until the run has made its lab: a descendant in a network namespace that is not ours.
    fn look_until_it_has_a_lab(&mut self) {
        let until = Instant::now() + DEADLINE;
        while !self.namespaces.iter().any(|one| one.starts_with("net:") && !self.ours.contains(one)) {
            assert!(Instant::now() < until, "no network namespace was made within {DEADLINE:?}");
            assert!(
                self.child.try_wait().expect("our child").is_none(),
                "the run ended before it made a lab"
            );
            self.look_for(CHECK_PERIOD);
        }
    }

    pub fn signal(&mut self, signal: Signal) {
        self.glance();
        let pid = Pid::from_raw(self.pid()).expect("a child's id is not 0");
        // The run may just have ended by itself; then there is nothing to signal, and still nothing may be left.
        let _ = kill_process(pid, signal);
    }

    /// Waits for the end; returns the exit code, `None` after a signal.
    pub fn wait(&mut self) -> Option<i32> {
        let until = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.child.try_wait().expect("our child") {
                return status.code();
            }
            assert!(Instant::now() < until, "the run did not end within {DEADLINE:?}");
            self.look_for(CHECK_PERIOD);
        }
    }

    /// What is left of the run: processes, and namespaces with a process in them or a mount that holds them.
    fn remains(&self) -> Vec<String> {
        let alive =
            |process: &&Process| stat(process.pid).is_some_and(|(_, started)| started == process.started);
        let mut remains: Vec<String> =
            self.family.iter().filter(alive).map(|process| format!("process {}", process.pid)).collect();
        let made: BTreeSet<&Namespace> = self.namespaces.difference(&self.ours).collect();
        let mark = format!("{MARK}={}\0", self.mark);
        for pid in all_pids().into_iter().filter(|&pid| stat(pid).is_some()) {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            if environment.windows(mark.len()).any(|window| window == mark.as_bytes()) {
                remains.push(format!("marked process {pid}"));
            }
            let within = namespaces(pid);
            remains.extend(
                within.iter().filter(|one| made.contains(one)).map(|one| format!("{one} of process {pid}")),
            );
        }
        let devices = fs::read_to_string("/proc/self/net/dev").expect("/proc is mounted");
        remains.extend(devices.contains("h2lab-").then(|| format!("a device: {devices}")));
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("/proc is mounted");
        remains.extend(
            made.iter().filter(|one| mounts.contains(one.as_str())).map(|one| format!("{one}, mounted")),
        );
        remains
    }

    /// Fails if anything of the run is still there once the kernel had time to clear up.
    #[track_caller]
    pub fn assert_nothing_left(&self) {
        let until = Instant::now() + CLEARING;
        loop {
            let remains = self.remains();
            if remains.is_empty() {
                return;
            }
            assert!(Instant::now() < until, "left behind: {remains:?}");
            thread::sleep(CHECK_PERIOD); // polling interval
        }
    }
}

impl Drop for Watched {
    /// A failed assertion must not leave behind what it reports.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for process in &self.family {
            if stat(process.pid).is_some_and(|(_, started)| started == process.started) {
                let _: io::Result<()> = Pid::from_raw(process.pid)
                    .map_or(Ok(()), |pid| kill_process(pid, Signal::KILL).map_err(io::Error::from));
            }
        }
    }
}

/// Moments after the start of a run, in no order, from 1 ms on: during setup, during measurement and between cells.
/// `cargo xtask verify` uses more rounds than a test run should take.
fn moments() -> impl Iterator<Item = Duration> {
    let rounds: u64 = rounds().unwrap_or(6);
    // Fractions of the golden ratio are spread evenly for any number of rounds; the sequence has no seed and is the
    // same each time.
    (1..=rounds).map(|round| Duration::from_micros(1_000 + (round * 1_618_034) % 4_000_000))
}

#[track_caller]
fn nothing_is_left_after(signal: Signal, expected: Option<i32>) {
    nothing_is_left_of(Watched::start, signal, expected);
}

#[track_caller]
fn nothing_is_left_of(start: fn(&[&str]) -> Watched, signal: Signal, expected: Option<i32>) {
    for moment in moments() {
        let mut run = start(&LONG_COMPARE);
        run.look_for(moment);
        run.signal(signal);
        let code = run.wait();
        run.assert_nothing_left();
        // Before its handlers are installed, a signal simply kills the process: then there is no code.
        assert!(code == expected || code.is_none(), "exit code {code:?} after {signal:?} at {moment:?}");
    }
}

#[test]
fn nothing_is_left_after_success() {
    let mut run = Watched::start(&crate::support::SHORT_COMPARE);
    let code = run.wait();
    assert!(matches!(code, Some(0 | 5)), "{code:?}");
    assert!(run.namespaces.len() > run.ours.len(), "the lab's namespaces were seen: {:?}", run.namespaces);
    run.assert_nothing_left();
}

#[test]
fn nothing_is_left_after_a_failure() {
    let mut run = Watched::start(&["compare", "--quick", "--congestion=no-such-control", "-z=1s"]);
    let code = run.wait();
    assert!(code.is_some_and(|code| code != 0), "{code:?}");
    run.assert_nothing_left();
}

#[test]
fn ctrl_c_leaves_nothing_and_says_130() {
    nothing_is_left_after(Signal::INT, Some(130));
}

#[test]
fn a_lost_terminal_leaves_nothing() {
    nothing_is_left_after(Signal::HUP, Some(130));
}

#[test]
fn termination_leaves_nothing() {
    nothing_is_left_after(Signal::TERM, Some(130));
}

#[test]
fn even_sigkill_leaves_nothing() {
    nothing_is_left_after(Signal::KILL, None);
}

#[test]
fn without_namespaces_sigkill_leaves_nothing_either() {
    if [need("setpriv"), need("ip")].iter().all(Option::is_some) && may_open_tun() {
        nothing_is_left_of(Watched::start_on_a_hardened_machine, Signal::KILL, None);
    }
}

#[test]
fn without_namespaces_ctrl_c_leaves_nothing_either() {
    if [need("setpriv"), need("ip")].iter().all(Option::is_some) && may_open_tun() {
        nothing_is_left_of(Watched::start_on_a_hardened_machine, Signal::INT, Some(130));
    }
}

#[test]
fn a_crash_leaves_nothing() {
    // SIGABRT is how a panic that may not unwind ends, and how a failed assertion in C does.
    nothing_is_left_after(Signal::ABORT, None);
}

#[test]
fn a_lab_that_dies_takes_everything_with_it_and_is_an_error() {
    let mut run = Watched::start(&LONG_COMPARE);
    run.look_until_it_has_a_lab();
    let root = run.pid();
    let lab = run.family.iter().find(|process| process.pid != root).copied().expect("the lab was seen");
    kill_process(Pid::from_raw(lab.pid).expect("not 0"), Signal::ABORT).expect("the lab is alive");
    let code = run.wait();
    assert!(code.is_some_and(|code| code != 0), "{code:?}");
    run.assert_nothing_left();
}

#[test]
fn a_panic_leaves_nothing() {
    // It panics on request while the server's command runs; there is no other reliable way to cause a panic.
    let mut run =
        Watched::start(&["link", "--panic", "--wait=0s", "--server=sleep 600", "--client=sleep 600"]);
    let code = run.wait();
    assert_ne!(code, Some(0));
    assert!(
        run.namespaces.len() > run.ours.len(),
        "the panic came before there was a lab: {:?}",
        run.namespaces
    );
    run.assert_nothing_left();
}

/// The files in `folder` and below whose names match; none if it is not there.
fn files(folder: &Path, matches: fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
    let is_meant = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()).is_some_and(matches);
    let deeper = folders.iter().flat_map(|inner| self::files(inner, matches));
    files.into_iter().filter(is_meant).chain(deeper).collect()
}

/// Starts what `arguments` say, ends it by `signal` when its key log is in `folder`, and fails if the key log is still
/// there afterwards.
#[track_caller]
fn no_secrets_are_left(arguments: &[&str], folder: &Path, signal: Signal, expected: Option<i32>) {
    let is_key_log = |name: &str| name.starts_with("keys-");
    let mut run = Watched::start(arguments);
    let until = Instant::now() + DEADLINE;
    while files(folder, is_key_log).is_empty() {
        assert!(Instant::now() < until, "no key log was made within {DEADLINE:?}");
        run.look_for(CHECK_PERIOD);
    }
    run.signal(signal);
    assert_eq!(run.wait(), expected, "{signal:?}");
    run.assert_nothing_left();
    let left = files(folder, |name| name.ends_with(".partial"));
    assert!(left.is_empty(), "{signal:?} left {left:?}");
}

#[test]
fn the_secrets_of_a_run_that_is_stopped_are_gone() {
    for (signal, more) in [(Signal::INT, "--pcap"), (Signal::TERM, "--causes"), (Signal::HUP, "--pcap")] {
        let parent = folder();
        let out = format!("--out={}", parent.path().join("run").display());
        let arguments = ["compare", "--proto=h2", "-c=1", "--loss=0%", "-q=200", "-z=20s", more, &out];
        no_secrets_are_left(&arguments, parent.path(), signal, Some(130));
    }
}

#[test]
fn the_secrets_of_a_link_that_is_ended_are_gone() {
    for signal in [Signal::TERM, Signal::HUP] {
        let folder = folder();
        let pcap = format!("--pcap={}", folder.path().join("link.pcapng").display());
        // It dies of the signal, as it did before signals were handled.
        no_secrets_are_left(&["link", &pcap, "--client=sleep 600"], folder.path(), signal, None);
    }
}

//! What root's processes may still do once they work, read from `/proc/PID/status`, and who owns the files that root
//! makes. Users other than root have nothing to give up: `privileges.rs` has those users.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{DEADLINE, SHORT_COMPARE, binary, folder, is_root, need, run_program};

/// How often the processes of a run are listed.
const CHECK_PERIOD: Duration = Duration::from_millis(10);
/// `CAP_KILL` (linux/capability.h): a lab keeps it, to end a server that has changed its user.
const KILL: u64 = 1 << 5;
/// `CAP_SETGID`: servers that set their groups although they remain root.
const SETGID: u64 = 1 << 6;
/// `CAP_SETUID`: the bounding set still has it when Apache has changed its user.
const SETUID: u64 = 1 << 7;

/// What a thread may do, by `/proc/PID/task/TID/status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rights {
    /// `CapInh`, `CapPrm`, `CapEff` and `CapAmb` combined.
    held: u64,
    /// `CapBnd`.
    bound: u64,
    no_new_privs: bool,
}

impl Rights {
    /// `None` if there is no such thread any more.
    fn of(task: &Path) -> Option<Self> {
        let status = fs::read_to_string(task.join("status")).ok()?;
        let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let set = |name| value(name).and_then(|set| u64::from_str_radix(set, 16).ok());
        let held = set("CapInh:")? | set("CapPrm:")? | set("CapEff:")? | set("CapAmb:")?;
        Some(Self { held, bound: set("CapBnd:")?, no_new_privs: value("NoNewPrivs:")? == "1" })
    }

    /// Whether nothing is left but `kept`, and nothing can be regained.
    fn are_only(self, kept: u64) -> bool {
        self.held & !kept == 0 && self.bound & !(kept | SETUID | SETGID) == 0 && self.no_new_privs
    }
}

/// A run that is killed when the value is dropped.
struct Run(Child);

impl Run {
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        Self::of(Command::new(binary()).args(arguments).current_dir(folder))
    }

    fn of(command: &mut Command) -> Self {
        let silent = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(silent.spawn().expect("the program starts"))
    }

    fn signal(pid: u32, signal: Signal) {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("process ids are positive");
        // It may just have ended by itself.
        let _ = kill_process(pid, signal);
    }

    /// The processes that descend from it, without itself.
    fn family(&self) -> Vec<u32> {
        let parent = |pid: u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<u32>().ok()
        };
        let pids = fs::read_dir("/proc").expect("/proc is mounted").flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let parents: BTreeMap<u32, u32> = pids.filter_map(|pid| Some((pid, parent(pid)?))).collect();
        let descends = |pid: &&u32| {
            std::iter::successors(parents.get(pid), |pid| parents.get(pid)).any(|pid| *pid == self.0.id())
        };
        parents.keys().filter(descends).copied().collect()
    }

    /// The rights of every thread, by name: the pump; otherwise its process, by its role if it is ours, else by its
    /// program.
    fn rights(&self) -> Vec<(String, Rights)> {
        let mut all = Vec::new();
        for pid in self.family() {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
            let program = words.first().and_then(|word| word.rsplit('/').next()).unwrap_or_default();
            let ours = program == "h2lab" || program == "exe";
            let role = words.get(1).filter(|_| ours).map_or(program, |role| role);
            for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
                let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
                let name = if name.trim() == "link-pump" { "link-pump" } else { role };
                all.extend(Rights::of(&task.path()).map(|rights| (name.to_owned(), rights)));
            }
        }
        all
    }

    /// Waits until each of `expected` exists and no thread of it has more than it may keep. The rights are given up a
    /// moment after a process has begun.
    #[track_caller]
    fn assert_reduced(&mut self, expected: &[(&str, u64)]) {
        let until = Instant::now() + DEADLINE;
        let mut seen = Vec::new();
        loop {
            let is_over = self.0.try_wait().expect("our child").is_some() || Instant::now() > until;
            assert!(!is_over, "not all of {expected:?} were there with nothing more; at last {seen:#x?}");
            seen = self.rights();
            let is_reduced = |&(name, kept): &(&str, u64)| {
                let mut own = seen.iter().filter(|(role, _)| role == name).peekable();
                own.peek().is_some() && own.all(|(_, rights)| rights.are_only(kept))
            };
            if expected.iter().all(is_reduced) {
                return;
            }
            thread::sleep(CHECK_PERIOD); // polling interval
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A run of one cell that lasts until it is killed.
const LONG: [&str; 6] = ["compare", "--proto=h1", "--loss=1%", "--delay=2ms", "-q=50", "-z=30s"];

#[test]
fn generator_origin_proxy_and_pump_work_without_a_single_right() {
    let Some(_) = need("haproxy") else { return };
    if !is_root() {
        return;
    }
    let folder = folder();
    let sidecar = ["--topology=sidecar", "--sidecar=haproxy"];
    let mut run = Run::start(folder.path(), &[&LONG[..], &sidecar[..]].concat());
    let without = ["__load", "origin", "haproxy", "link-pump"].map(|name| (name, 0));
    run.assert_reduced(&[&without[..], &[("__lab", KILL)]].concat());
}

#[test]
fn servers_that_set_their_user_themselves_keep_only_the_right_to_that() {
    if [need("apache2"), need("h2o"), need("nginx")].iter().any(Option::is_none) || !is_root() {
        return;
    }
    // Apache has no rights left once it has changed its user; h2o remains root.
    for (origin, program, kept) in
        [("--origin=nginx", "nginx", 0), ("--origin=apache", "apache2", 0), ("--origin=h2o", "h2o", SETGID)]
    {
        let folder = folder();
        let mut run = Run::start(folder.path(), &[&LONG[..], &[origin]].concat());
        run.assert_reduced(&[(program, kept), ("__load", 0), ("__lab", KILL)]);
    }
}

#[test]
fn a_client_of_a_url_keeps_only_what_files_and_scheduling_need() {
    /// `CAP_CHOWN`, `CAP_DAC_OVERRIDE`, `CAP_FOWNER` for files, and `CAP_SYS_NICE` for the scheduling class.
    const CLIENT: u64 = 1 | 1 << 1 | 1 << 3 | 1 << 23;
    if !is_root() {
        return;
    }
    let (port, folder) = (std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap(), folder());
    let url = format!("http://{}/", port.local_addr().unwrap());
    // Nobody answers, which does not matter here. The shell is the run; h2lab descends from it.
    for arguments in [format!("load -q 10 -z 60s {url}"), format!("compare -z 60s {url}")] {
        let script = format!("{} {arguments}; true", binary().display());
        let mut run = Run::of(Command::new("sh").args(["-c", &script]).current_dir(folder.path()));
        let role = arguments.split(' ').next().unwrap_or_default();
        run.assert_reduced(&[(role, CLIENT)]);
        run.family().into_iter().for_each(|pid| Run::signal(pid, Signal::KILL));
    }
}

#[test]
fn a_users_own_commands_keep_their_rights() {
    if !is_root() {
        return;
    }
    let script = "grep -E '^(Cap(Prm|Eff|Bnd)|NoNewPrivs)' /proc/self/status";
    let expected = fs::read_to_string("/proc/self/status").unwrap();
    let is_shown =
        |line: &&str| ["CapPrm", "CapEff", "CapBnd", "NoNewPrivs"].iter().any(|name| line.starts_with(name));
    let expected: Vec<&str> = expected.lines().filter(is_shown).collect();
    // `link` ends the server with the client, which therefore waits for it.
    let server = format!("{script} > server.part && mv server.part server.txt");
    let client = format!("until [ -e server.txt ]; do sleep 0.01; done; {script}");
    let folder = folder();
    let words = ["link", "--delay=1ms", "--wait=0s", "--server", &server, "--client", &client];
    let finished = run_program(&binary(), folder.path(), &words);
    assert_eq!(finished.stdout.lines().collect::<Vec<_>>(), expected, "{}", finished.transcript());
    let server = fs::read_to_string(folder.path().join("server.txt")).unwrap();
    assert_eq!(server.lines().collect::<Vec<_>>(), expected);
}

/// `nobody`, in place of the user who called sudo.
const CALLER: u32 = 65534;

/// A folder of [`CALLER`] that nobody else may enter, root without capabilities included.
fn folder_of_the_caller() -> tempfile::TempDir {
    let folder = folder();
    chown(folder.path(), Some(CALLER), Some(CALLER)).expect("root may give away");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).expect("root may");
    folder
}

/// The words that run h2lab as sudo does for [`CALLER`]: arguments of env(1).
fn under_sudo<'a>(arguments: &[&'a str]) -> Vec<Cow<'a, OsStr>> {
    let caller = [format!("SUDO_UID={CALLER}"), format!("SUDO_GID={CALLER}")];
    let words = caller.into_iter().map(OsString::from).chain([binary().into()]).map(Cow::Owned);
    words.chain(arguments.iter().map(|word| Cow::Borrowed(OsStr::new(*word)))).collect()
}

/// Every file and folder below `folder`.
fn all_below(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            all.extend(all_below(&entry.path()));
        }
        all.push(entry.path());
    }
    all
}

/// Fails unless all of `names` were made in `folder`, and all that is there is the caller's.
#[track_caller]
fn assert_the_callers(folder: &Path, names: &[&str]) {
    let made = all_below(folder);
    for name in names {
        assert!(made.iter().any(|path| path.ends_with(name)), "{name}: {made:?}");
    }
    for path in made {
        let about = fs::symlink_metadata(&path).unwrap();
        assert_eq!((about.uid(), about.gid()), (CALLER, CALLER), "{}", path.display());
    }
}

#[test]
fn what_is_made_under_sudo_belongs_to_the_caller() {
    let Some(_) = need("nginx") else { return };
    if !is_root() {
        return;
    }
    let folder = folder_of_the_caller();
    let more = ["--origin=nginx", "--pcap", "-o=page.html", "-o=table.csv"];
    let words = [&SHORT_COMPARE[..], &more[..]].concat();
    run_program(Path::new("env"), folder.path(), &under_sudo(&words)).assert_measured();
    let names = ["h2lab-runs", "run.json", "report.html", "page.html", "table.csv", "nginx.conf"];
    assert_the_callers(folder.path(), &names);
    let link = ["link", "--delay=1ms", "--client=true", "--packets=packets.csv", "--pcap=link.pcapng"];
    assert_eq!(run_program(Path::new("env"), folder.path(), &under_sudo(&link)).code, Some(0));
    assert_the_callers(folder.path(), &["packets.csv", "link.pcapng"]);
}

#[test]
fn a_run_that_is_interrupted_under_sudo_is_the_callers_and_is_resumed_there() {
    if !is_root() {
        return;
    }
    let folder = folder_of_the_caller();
    let out = folder.path().join("kept");
    fs::create_dir(&out).unwrap();
    chown(&out, Some(CALLER), Some(CALLER)).unwrap();
    let words = [&SHORT_COMPARE[..7], &["--repetitions=2", "--out=kept", "--quiet"]].concat();
    let mut run = Run::of(Command::new("env").args(under_sudo(&words)).current_dir(folder.path()));
    let until = Instant::now() + DEADLINE;
    while !fs::read_to_string(out.join("run.json")).is_ok_and(|text| text.contains("\"attempt\"")) {
        assert!(Instant::now() < until, "no repetition was stored");
        thread::sleep(CHECK_PERIOD); // polling interval
    }
    assert_eq!(fs::metadata(&out).unwrap().uid(), 0, "root's, while root's processes write in it");
    Run::signal(run.0.id(), Signal::INT);
    run.0.wait().unwrap();
    assert_the_callers(folder.path(), &["run.json", "logs"]);
    let resumed = run_program(Path::new("env"), folder.path(), &under_sudo(&["run", "--resume", "kept"]));
    resumed.assert_measured();
    assert_the_callers(folder.path(), &["run.json", "report.html"]);
}

//! What every module of the integration tests uses.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, Once};
use std::time::{Duration, Instant};

use h2lab_net::process::Child;
use rustix::fs::Access;
use serde::Deserialize;
use socket2::{Domain, Socket, Type};

/// Every run of the binary must end within this time, or the test fails: far above what any of them takes, so that only
/// a hang exceeds it.
pub const DEADLINE: Duration = Duration::from_secs(300);

/// The binary under test: the one that cargo built beside these tests, or the one that `cargo xtask verify` names.
pub fn binary() -> PathBuf {
    // Tests of one process hold hundreds of connections at once, and shells commonly give 1,024 open files.
    static RAISED: Once = Once::new();
    RAISED.call_once(|| _ = h2lab_net::resources::raise_open_files());
    std::env::var_os("H2LAB_TEST_BINARY")
        .map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_h2lab")), PathBuf::from)
}

/// The workspace's root, for files that ship with it.
pub fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A folder of this test only, removed when the value is dropped.
pub fn folder() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("h2lab-test-").tempdir().expect("a temporary folder")
}

/// The result of a run of a program.
pub struct Finished {
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// What people or scripts read.
    pub stdout: String,
    /// Progress, warnings and errors.
    pub stderr: String,
}

impl Finished {
    /// All that a failed assertion should show.
    pub fn transcript(&self) -> String {
        format!("exit code {:?}\n--- stdout\n{}\n--- stderr\n{}", self.code, self.stdout, self.stderr)
    }

    /// Fails unless it measured: 5 means that the machine was too busy for the figures, but the counts are valid.
    #[track_caller]
    pub fn assert_measured(&self) {
        self.assert_code_unless_busy(0);
    }

    /// Fails unless it ended with this code, or with 5: `--help` says which codes an invalid measurement comes before.
    #[track_caller]
    pub fn assert_code_unless_busy(&self, code: i32) {
        assert!(self.code == Some(code) || self.is_busy(), "{code} is expected: {}", self.transcript());
    }

    /// Whether the machine was too busy for figures.
    pub fn is_busy(&self) -> bool {
        self.code == Some(5)
    }

    /// The JSON document on stdout.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        match serde_json::from_str(&self.stdout) {
            Ok(value) => value,
            Err(error) => panic!("stdout is not one JSON document: {error}\n{}", self.transcript()),
        }
    }
}

impl From<Output> for Finished {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs `program` in `folder` until it ends, at most for [`DEADLINE`].
#[track_caller]
pub fn run_program<S: AsRef<OsStr>>(program: &Path, folder: &Path, arguments: &[S]) -> Finished {
    run_program_for(DEADLINE, program, folder, arguments)
}

/// The same, at most for `time`.
#[track_caller]
pub fn run_program_for<S: AsRef<OsStr>>(
    time: Duration,
    program: &Path,
    folder: &Path,
    arguments: &[S],
) -> Finished {
    let mut command = assert_cmd::Command::new(program);
    command.current_dir(folder).args(arguments).timeout(time);
    // The output must not depend on the locale or the terminal of whoever runs the tests.
    command.env("LC_ALL", "C.UTF-8").env_remove("COLUMNS");
    match command.output() {
        Ok(output) => output.into(),
        Err(error) => panic!("{}: {error}", program.display()),
    }
}

/// How often to repeat tests that run in rounds, if `cargo xtask verify` asks for more than a test run.
pub fn rounds() -> Option<u64> {
    std::env::var("H2LAB_TEST_ROUNDS").ok()?.parse().ok()
}

/// Runs h2lab in a folder of its own.
#[track_caller]
pub fn h2lab<S: AsRef<OsStr>>(arguments: &[S]) -> Finished {
    run_program(&binary(), folder().path(), arguments)
}

/// Reads once. A read with a timeout is interrupted if this process is stopped and continued, as on a machine that was
/// suspended.
pub fn read_once(stream: &mut TcpStream, space: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.read(space) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// An address of this machine that refuses every connection while the socket lives: it is bound and does not listen. A
/// port that is only free may be taken by another test.
pub fn closed_port() -> (Socket, SocketAddr) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("a free port");
    let address = socket.local_addr().ok().and_then(|address| address.as_socket()).expect("it is bound");
    (socket, address)
}

/// Bytes that a process has allocated and that are resident (`RssAnon`), without its code, which in a debug build is
/// three times as large as in a release. 0 after its end.
pub fn allocated_bytes(child: &Child) -> u64 {
    let status =
        fs::read_to_string(format!("/proc/{}/status", child.pid().as_raw_nonzero())).unwrap_or_default();
    let kibibytes =
        status.lines().find_map(|line| line.strip_prefix("RssAnon:")?.trim().split(' ').next()?.parse().ok());
    kibibytes.unwrap_or(0) * 1024
}

/// The first of `count` consecutive free ports, for programs that take no ephemeral port or do not report which one
/// they got. The kernel gives ephemeral ports from 32768 on; these are below, each is given once, and each test process
/// begins at another place.
pub fn free_ports(count: u16) -> u16 {
    const FIRST: u32 = 10_000;
    const ALL: u32 = 22_000;
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let begin = std::process::id() % 220 * 100;
    let is_free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    for _ in 0..ALL {
        let given = GIVEN.fetch_add(count.into(), Ordering::Relaxed);
        // Those that would end beyond the last port are left out: a modulus that depends on `count` would give some
        // ports twice.
        let place = (begin + given) % ALL;
        let first = (FIRST + place) as u16;
        if place + u32::from(count) <= ALL && (first..first + count).all(is_free) {
            return first;
        }
    }
    panic!("no {count} ports in a row are free")
}

/// How often the threads of `pid` and of its descendants have gone to sleep, once all of them sleep: none of them has
/// woken during two hundred looks.
#[track_caller]
pub fn rest(pid: i32) -> u64 {
    let until = Instant::now() + DEADLINE;
    loop {
        let before = sleeps(pid);
        let is_same = |_| {
            std::thread::yield_now();
            sleeps(pid) == before
        };
        match before {
            Some(times) if (0..200).all(is_same) => return times,
            _ => assert!(Instant::now() < until, "{pid} never rests"),
        }
    }
}

/// How often the threads of `pid` and of its descendants have gone to sleep; `None` if one of them is awake.
fn sleeps(pid: i32) -> Option<u64> {
    let of_thread = |folder: &Path| {
        let status = fs::read_to_string(folder.join("status")).ok()?;
        let value = |name: &str| Some(status.lines().find_map(|line| line.strip_prefix(name))?.trim_start());
        let times: u64 = value("voluntary_ctxt_switches:")?.parse().ok()?;
        let children = fs::read_to_string(folder.join("children")).ok()?;
        let of_children =
            children.split_whitespace().map(|child| sleeps(child.parse().ok()?)).sum::<Option<u64>>();
        value("State:")?.starts_with('S').then_some(times + of_children?)
    };
    fs::read_dir(format!("/proc/{pid}/task")).ok()?.map(|thread| of_thread(&thread.ok()?.path())).sum()
}

/// Every request of a measurement is answered, however busy the machine is: it ends when the last one is.
pub const DRAIN: &str = "--drain=60s";

/// Arguments of the shortest real measurement: two cells on a clean link, one repetition of two seconds each: longer than a busy machine stops a process.
pub const SHORT_COMPARE: [&str; 9] =
    ["compare", "--json", "--proto=h1,h2c", "-c=1", "--loss=0%", "-q=100", "-z=2s", "--repetitions=1", DRAIN];

/// A row of `tests/needs.toml`.
#[derive(Debug, Deserialize)]
struct Need {
    probe: String,
    /// Debian's package, or what `go install` takes, or a Python package.
    package: Option<String>,
    go: Option<String>,
    pipx: Option<String>,
    /// What to do where the kernel has not got it.
    kernel: Option<String>,
    why: String,
}

impl Need {
    /// The line that installs it.
    fn installing(&self) -> String {
        match (&self.package, &self.go, &self.pipx) {
            (Some(package), ..) => format!("sudo apt-get install --no-install-recommends -y {package}"),
            (None, Some(path), _) => format!("go install {path}"),
            (None, None, Some(package)) => format!("pipx install {package}"),
            (None, None, None) => "(tests/needs.toml does not say)".to_owned(),
        }
    }
}

/// Finds the program called `name` in `tests/needs.toml`.
///
/// `None` means that `H2LAB_TEST_SKIP` names it: the test returns at once. A program that is merely missing fails the
/// test with the line that installs it.
#[track_caller]
pub fn need(name: &str) -> Option<PathBuf> {
    let need = asked(name)?;
    let found = find(&need.probe);
    assert!(
        found.is_some(),
        "this test needs `{}` ({}); type\n  {}\nor skip it: H2LAB_TEST_SKIP={name}",
        need.probe,
        need.why,
        need.installing()
    );
    found
}

/// The need of this name; `None` if `H2LAB_TEST_SKIP` names it.
fn asked(name: &str) -> Option<Need> {
    let mut needs: BTreeMap<String, Need> =
        toml::from_str(include_str!("../needs.toml")).expect("tests/needs.toml is well-formed");
    let need = needs.remove(name).unwrap_or_else(|| panic!("tests/needs.toml has no [{name}]"));
    let skip = std::env::var("H2LAB_TEST_SKIP").unwrap_or_default();
    if skip.split(',').any(|skipped| skipped.trim() == name) {
        eprintln!("skipped, since H2LAB_TEST_SKIP names {name}: {}", need.why);
        return None;
    }
    Some(need)
}

/// The same for a feature of the kernel: `false` if `H2LAB_TEST_SKIP` names it, and the test returns at once.
#[track_caller]
pub fn need_of_kernel(name: &str, has: bool) -> bool {
    let Some(need) = asked(name) else { return false };
    assert!(
        has,
        "this test needs {} ({}); {}, or skip it: H2LAB_TEST_SKIP={name}",
        need.probe,
        need.why,
        need.kernel.as_deref().unwrap_or("(tests/needs.toml does not say)")
    );
    true
}

/// Whether a link may be made of TUN devices, which only root may open on some machines.
pub fn may_open_tun() -> bool {
    const TUN: &str = "/dev/net/tun";
    let may = rustix::fs::access(TUN, Access::READ_OK | Access::WRITE_OK).is_ok();
    if !may {
        eprintln!("left out: this user may not open {TUN} (sudo chmod 0666 {TUN})");
    }
    may
}

/// An executable in `PATH`, in the administrator's folders, or in those of Go and Python: a user's `PATH` often lacks these.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .chain(go_folders())
        .chain(std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/bin")))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Where `go install` puts programs.
fn go_folders() -> impl Iterator<Item = PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    let path = variable("GOPATH").or_else(|| variable("HOME").map(|home| home.join("go")));
    variable("GOBIN").into_iter().chain(path.map(|path| path.join("bin")))
}

/// Whether the tests run as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The user of the unprivileged leg: `nobody`, who owns nothing.
const NOBODY: u32 = 65534;

/// Runs a copy of the binary as `nobody`, in a folder of theirs; as the tests' own user if that is not root, since only root can
/// change the user. Needs `setpriv`.
#[track_caller]
pub fn as_nobody<S: AsRef<OsStr>>(arguments: &[S]) -> Finished {
    as_nobody_behind(&[], arguments)
}

/// The same behind a command that executes the rest of its command line, such as `prlimit`.
#[track_caller]
pub fn as_nobody_behind<S: AsRef<OsStr>>(prefix: &[&str], arguments: &[S]) -> Finished {
    let folder = folder();
    let prefix = prefix.iter().map(OsStr::new);
    let arguments = arguments.iter().map(AsRef::as_ref);
    if !is_root() {
        let binary = binary();
        let words: Vec<&OsStr> = prefix.chain([binary.as_os_str()]).chain(arguments).collect();
        return run_program(Path::new("env"), folder.path(), &words);
    }
    let copy = folder.path().join("h2lab");
    // By another process: a child that another test starts meanwhile would inherit the file open for writing, and nothing can be
    // executed while it is (execve(2), ETXTBSY).
    let copied = std::process::Command::new("cp").arg(binary()).arg(&copy).status().expect("cp is there");
    assert!(copied.success(), "the binary can be copied");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).expect("it is ours");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    chown(folder.path(), Some(NOBODY), Some(NOBODY)).expect("root may give away");
    let mut words: Vec<&OsStr> =
        ["--reuid=65534", "--regid=65534", "--clear-groups", "--"].map(OsStr::new).into();
    words.extend(prefix.chain([copy.as_os_str()]).chain(arguments));
    run_program(Path::new("setpriv"), folder.path(), &words)
}

/// The command prefix that starts h2lab where no namespace can be made and only these capabilities (`,+net_admin`) are granted;
/// its arguments follow. The network namespace is a fresh one, so that nothing of this machine is changed. Needs `setpriv` and
/// `ip`.
pub fn on_a_hardened_machine(capabilities: &str) -> Vec<String> {
    let script = format!(
        "echo 0 > /proc/sys/user/max_user_namespaces && ip link set lo up && exec setpriv \
         --bounding-set=-all{capabilities} --inh-caps=-all{capabilities} --ambient-caps=-all{capabilities} \
         --no-new-privs \"$@\""
    );
    let binary = binary().to_str().expect("cargo's folders have plain names").to_owned();
    let mut words = ["unshare", "-Urn", "sh", "-c"].map(str::to_owned).to_vec();
    words.extend([script, "sh".to_owned(), binary]);
    words
}

/// A gate that is closed at first.
#[derive(Default)]
pub struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    /// Releases all threads that wait, and those that arrive later.
    pub fn open(&self) {
        *self.is_open.lock().expect("no panic") = true;
        self.opened.notify_all();
    }

    /// Waits until it is open.
    pub fn wait(&self) {
        let is_open = self.is_open.lock().expect("no panic");
        drop(self.opened.wait_while(is_open, |is_open| !*is_open).expect("no panic"));
    }
}

//! Ctrl-C, SIGTERM and SIGHUP stop a run in an orderly way: children die, what was measured is kept.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};

/// Whether a driver has sessions with agents, which would wait for a minute for one that is gone.
static HAS_SESSIONS: AtomicBool = AtomicBool::new(false);

/// Whether a further Ctrl-C came meanwhile.
static MUST_LEAVE: AtomicBool = AtomicBool::new(false);

/// What is said if a Ctrl-C ends the program at once: a line. Prepared, since a signal's handler allocates nothing.
static MESSAGE_AT_ONCE: OnceLock<String> = OnceLock::new();

/// A folder that is removed then if it is empty.
static MADE_FOLDER: OnceLock<CString> = OnceLock::new();

/// What is said of a driver that has nothing else to say.
const SESSIONS_LEFT: &str =
    "h2lab: ended at once, without results: agents that were not told stop within a minute\n";

/// Has a Ctrl-C that ends the program at once say `words` on stderr, in one line: what may go on elsewhere, and how to clean up. The
/// first call counts.
#[cfg(feature = "nats")]
pub fn say_at_once(words: &str) {
    let _ = MESSAGE_AT_ONCE.set(format!("h2lab: {}\n", h2lab_base::text::made_printable(words)));
}

/// Has a Ctrl-C that ends the program at once remove this folder if it is empty: the run folder, before there is anything in it. The
/// first call counts.
pub fn remove_if_empty(folder: &Path) {
    // A path from the command line, or of ours, has no NUL.
    if let Ok(folder) = CString::new(folder.as_os_str().as_bytes()) {
        let _ = MADE_FOLDER.set(folder);
    }
}

/// Does `work`, in which a driver has sessions with agents. A further Ctrl-C does not end the program meanwhile, but makes
/// `must_leave` true, so that `work` tells the agents. The next one ends the program at once, and says so.
pub fn in_sessions<T>(work: impl FnOnce() -> T) -> T {
    HAS_SESSIONS.store(true, Ordering::Relaxed);
    let done = work();
    HAS_SESSIONS.store(false, Ordering::Relaxed);
    done
}

/// Whether a driver is to end its sessions, and then the program, without waiting for results.
pub fn must_leave() -> bool {
    MUST_LEAVE.load(Ordering::Relaxed)
}

/// A flag that the signals set. A further Ctrl-C removes what is drawn and ends the program at once; of a driver, see
/// `in_sessions`. A further SIGTERM or SIGHUP does not: `timeout` sends its signal twice, to the program and to its
/// group. To end the program at once, use SIGKILL.
pub fn stop_flag() -> Result<Arc<AtomicBool>> {
    let stop = interrupted()?;
    signal_hook::flag::register(SIGHUP, Arc::clone(&stop)).context("cannot catch signals")?;
    Ok(stop)
}

/// For commands that serve until they are stopped: the same flag, and two flags that SIGHUP sets, which stops nothing
/// here: one to open the log again, and one to read the configuration again. SIGUSR1 sets the first of these two, as in
/// nginx; in `HAProxy` it is a soft stop, which is SIGTERM here. SIGUSR2 would end the process without a drain, and has
/// no use here: a message says so. SIGPIPE is ignored by the runtime of Rust.
pub fn serving() -> Result<(Arc<AtomicBool>, [Arc<AtomicBool>; 2])> {
    let (stop, hangups) = (interrupted()?, [Arc::default(), Arc::default()]);
    for hangup in &hangups {
        signal_hook::flag::register(SIGHUP, Arc::clone(hangup)).context("cannot catch signals")?;
    }
    signal_hook::flag::register(SIGUSR1, Arc::clone(&hangups[0])).context("cannot catch signals")?;
    let say = || {
        write("h2lab: SIGUSR2 is ignored; SIGHUP reloads, SIGUSR1 reopens the access log, SIGTERM stops\n");
    };
    // SAFETY: it polls and writes to stderr: it takes no lock and allocates nothing.
    unsafe { signal_hook::low_level::register(SIGUSR2, say) }.context("cannot catch signals")?;
    Ok((stop, hangups))
}

/// Writes `words` to stderr, unless it takes nothing now: a signal's handler runs in any thread, also in one that serves, and must not
/// wait for the reader. It takes no lock and allocates nothing.
fn write(words: &str) {
    let stderr = rustix::stdio::stderr();
    let mut ready = [PollFd::new(&stderr, PollFlags::OUT)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    if poll(&mut ready, Some(&now)) == Ok(1) && ready[0].revents().contains(PollFlags::OUT) {
        let _ = rustix::io::write(stderr, words.as_bytes());
    }
}

/// Ends the program in the handler of a signal: without what is drawn, and without an empty folder. It takes no lock and allocates
/// nothing.
fn end_at_once() -> ! {
    crate::stderr::erase();
    if let Some(folder) = MADE_FOLDER.get() {
        // One with a result is not empty, and stays.
        let _ = rustix::fs::rmdir(folder);
    }
    match MESSAGE_AT_ONCE.get() {
        Some(words) => write(words),
        None if HAS_SESSIONS.load(Ordering::Relaxed) => write(SESSIONS_LEFT),
        None => {}
    }
    signal_hook::low_level::exit(130)
}

/// The flag of Ctrl-C and SIGTERM.
fn interrupted() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let repeated = Arc::clone(&stop);
    let further = move || {
        let is_first = !repeated.load(Ordering::Relaxed);
        if is_first || (HAS_SESSIONS.load(Ordering::Relaxed) && !MUST_LEAVE.swap(true, Ordering::Relaxed)) {
            return;
        }
        end_at_once();
    };
    // First: if the flag is set already, exit. Then: set it. In this order the first signal only sets the flag.
    // SAFETY: it uses atomics, removes a folder by rmdir(2), writes to stderr and ends the process by _exit(2): it takes no lock and
    // allocates nothing.
    unsafe { signal_hook::low_level::register(SIGINT, further) }.context("cannot catch signals")?;
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot catch signals")?;
    }
    Ok(stop)
}

/// A write beyond the file size limit of this process (`ulimit -f`) becomes an error of that write, and SIGXFSZ does
/// not end the program.
pub fn ignore_file_size_limit() -> Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::default()).context("cannot catch signals").map(drop)
}

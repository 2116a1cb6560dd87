//! Who may run h2lab. The tests themselves run as whoever calls them, root in CI; here the other users get their turn.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use crate::support::{Finished, SHORT_COMPARE, binary, folder, is_root, need, run_program};

/// The user whom the unprivileged leg becomes: `nobody`, who owns nothing.
const NOBODY: u32 = 65534;

/// The environment cannot do it.
const CANNOT: i32 = 4;

/// Fails unless a comparison was made: every cell has a state and a figure. A cell may be doubtful on a busy machine
/// (exit code 5): whether it measured well is not what is tested here.
#[track_caller]
fn assert_compared(finished: &Finished) {
    assert!(matches!(finished.code, Some(0 | 5)), "{}", finished.transcript());
    let document = finished.json();
    let cells = document["cells"].as_array().expect("cells is a list");
    assert_eq!(cells.len(), 2, "{}", finished.transcript());
    for cell in cells {
        assert!(cell["requests"]["succeeded"].as_u64().is_some_and(|n| n > 0), "{}", finished.transcript());
    }
}

/// A copy of the binary that every user can read and run, in a folder that `nobody` owns.
fn world_readable_copy(folder: &Path) -> PathBuf {
    let copy = folder.join("h2lab");
    fs::copy(binary(), &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    chown(folder, Some(NOBODY), Some(NOBODY)).unwrap();
    copy
}

/// Runs a copy of the binary as [`NOBODY`], through `before`, a command that the copy is appended to.
fn as_nobody(setpriv: &Path, before: &[&str], arguments: &[&str]) -> Finished {
    let folder = folder();
    let copy = world_readable_copy(folder.path());
    let mut words = vec!["--reuid=65534", "--regid=65534", "--clear-groups", "--"];
    words.extend(before);
    words.push(copy.to_str().expect("temporary folders have plain names"));
    words.extend(arguments);
    run_program(setpriv, folder.path(), &words)
}

#[test]
fn whoever_runs_the_tests_can_compare() {
    assert_compared(&crate::support::h2lab(&SHORT_COMPARE));
}

#[test]
fn a_user_without_any_privilege_can_compare() {
    let Some(setpriv) = need("setpriv") else { return };
    if is_root() {
        assert_compared(&as_nobody(&setpriv, &[], &SHORT_COMPARE));
    } // else the test above was this one: only root can become somebody else
}

#[test]
fn where_nothing_is_allowed_the_reason_and_the_next_step_are_given() {
    let Some(_) = need("setpriv") else { return };
    // A user namespace in which no further one may be made, entered without a capability: the state of a hardened
    // machine, without touching this one.
    let folder = folder();
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && \
                  exec setpriv --bounding-set=-all --inh-caps=-all --ambient-caps=-all --no-new-privs \"$@\"";
    let binary = binary();
    let mut words =
        vec!["-Ur", "sh", "-c", script, "sh", binary.to_str().expect("cargo's folders have plain names")];
    words.extend(SHORT_COMPARE);
    let finished = run_program(Path::new("unshare"), folder.path(), &words);
    let shown = finished.transcript();
    assert_eq!(finished.code, Some(CANNOT), "{shown}");
    assert!(finished.stderr.contains("max_user_namespaces"), "the reason\n{shown}");
    assert!(finished.stderr.contains("h2lab doctor"), "the next step\n{shown}");
    assert!(!finished.stderr.contains("panicked"), "{shown}");
}

//! Who may run h2lab. The tests themselves run as whoever calls them, root in CI; here the other users get their turn.

use std::path::Path;

use crate::support::{Finished, SHORT_COMPARE, as_nobody, binary, folder, is_root, need, run_program};

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

#[test]
fn whoever_runs_the_tests_can_compare() {
    assert_compared(&crate::support::h2lab(&SHORT_COMPARE));
}

#[test]
fn a_user_without_any_privilege_can_compare() {
    let Some(_) = need("setpriv") else { return };
    if is_root() {
        assert_compared(&as_nobody(&SHORT_COMPARE));
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

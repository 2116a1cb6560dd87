//! Which users may run h2lab. The tests themselves run as their caller, root in CI; here the other users are covered.

use std::path::Path;

use crate::support::{
    Finished, SHORT_COMPARE, as_nobody, folder, is_root, may_open_tun, need, on_a_hardened_machine,
    run_program,
};

/// The exit code for a machine that cannot do it.
const CANNOT: i32 = 4;

/// Fails unless a comparison was made: every cell has a state and a figure. A cell may be doubtful on a busy machine
/// (exit code 5): whether it measured well is not what is tested here.
#[track_caller]
fn assert_compared(finished: &Finished) {
    finished.assert_measured();
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
    } // otherwise the test above was this one: only root can change to another user
}

/// Runs h2lab where no namespace can be made and only these capabilities are granted.
#[track_caller]
fn without_namespaces(capabilities: &str, arguments: &[&str]) -> Finished {
    let words = on_a_hardened_machine(capabilities);
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    words.extend(arguments);
    run_program(Path::new(words[0]), folder().path(), &words[1..])
}

#[test]
fn with_nothing_but_net_admin_one_can_compare() {
    if [need("setpriv"), need("ip")].iter().all(Option::is_some) && may_open_tun() {
        let finished = without_namespaces(",+net_admin", &SHORT_COMPARE);
        assert_compared(&finished);
    }
}

#[test]
fn with_nothing_but_net_admin_the_link_loses_and_delays_all_the_same() {
    let programs = [need("setpriv"), need("ip"), need("curl"), need("python3")];
    if programs.iter().any(Option::is_none) || !may_open_tun() {
        return;
    }
    let server = "python3 -u -m http.server 8080 --bind $H2LAB_SERVER";
    let client = "for i in 1 2 3 4 5 6 7 8; do curl -sS -o /dev/null -w '%{http_code} %{time_connect} ' \
                  http://$H2LAB_SERVER:8080/; done";
    let link = [
        "link",
        "--wait=60s",
        "--delay=10ms",
        "--loss=10%",
        "--seed=1",
        "--server",
        server,
        "--client",
        client,
    ];
    let finished = without_namespaces(",+net_admin", &link);
    let shown = finished.transcript();
    assert_eq!(finished.code, Some(0), "{shown}");
    let words: Vec<&str> = finished.stdout.split_whitespace().collect();
    assert_eq!(words.iter().filter(|word| **word == "200").count(), 8, "{shown}");
    assert!(words.iter().all(|word| word.parse::<f64>().is_ok_and(|n| n >= 0.02)), "{shown}");
    assert!(finished.stderr.contains("tun+reflector"), "{shown}");
    assert!(finished.stderr.contains("$H2LAB_SERVER and $H2LAB_CLIENT have the addresses"), "{shown}");
    assert!(!finished.stderr.contains(" 0 lost"), "{shown}");
}

#[test]
fn the_doctor_names_the_isolation_level() {
    if [need("setpriv"), need("ip")].iter().all(Option::is_some) {
        let isolation_level =
            |finished: Finished| (finished.code, finished.json()["isolation_level"].clone());
        let here = isolation_level(crate::support::h2lab(&["doctor", "--json"]));
        assert_eq!(here, (Some(0), if is_root() { "root" } else { "user-namespace" }.into()));
        assert_eq!(isolation_level(as_nobody(&["doctor", "--json"])).1, "user-namespace");
        if may_open_tun() {
            assert_eq!(
                isolation_level(without_namespaces(",+net_admin", &["doctor", "--json"])),
                (Some(0), "reflector".into())
            );
        }
        assert_eq!(
            isolation_level(without_namespaces("", &["doctor", "--json"])),
            (Some(CANNOT), serde_json::Value::Null)
        );
    }
}

#[test]
fn where_nothing_is_allowed_the_reason_and_the_next_step_are_given() {
    if [need("setpriv"), need("ip")].iter().any(Option::is_none) {
        return;
    }
    let finished = without_namespaces("", &SHORT_COMPARE);
    let shown = finished.transcript();
    assert_eq!(finished.code, Some(CANNOT), "{shown}");
    assert!(finished.stderr.contains("max_user_namespaces"), "the reason\n{shown}");
    assert!(finished.stderr.contains("h2lab doctor"), "the next step\n{shown}");
    assert!(!finished.stderr.contains("panicked"), "{shown}");
}

/// Listens on the ports of a lab's servers, on every address, as long as the command in its arguments runs.
const BUSY: &str = "import socket, subprocess, sys\n\
                    held = [socket.create_server(('', port)) for port in (8080, 8081, 8443)]\n\
                    sys.exit(subprocess.call(sys.argv[1:]))";

#[test]
fn with_nothing_but_net_admin_servers_keep_off_the_ports_of_others() {
    let programs = [need("setpriv"), need("ip"), need("python3"), need("haproxy")];
    if programs.iter().any(Option::is_none) || !may_open_tun() {
        return;
    }
    let machine = on_a_hardened_machine(",+net_admin");
    let mut words: Vec<&str> = machine.iter().map(String::as_str).collect();
    // After the namespace has been made, and before it is hardened.
    let made = words.iter().position(|word| *word == "sh").expect("a script hardens the machine");
    words.splice(made..made, ["python3", "-c", BUSY]);
    words.extend(SHORT_COMPARE);
    let sidecar = ["--topology=sidecar", "--sidecar=haproxy"];
    for more in [&[][..], &sidecar[..]] {
        let words = [&words[..], more].concat();
        assert_compared(&run_program(Path::new(words[0]), folder().path(), &words[1..]));
    }
}

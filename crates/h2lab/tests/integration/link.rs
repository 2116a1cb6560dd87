//! `h2lab link`: programs that are not ours at both ends of the emulated link, as root and as a plain user.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use h2lab_net::process::Child;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::support::{DEADLINE, Finished, as_nobody, binary, folder, h2lab, need, rest, run_program};

/// A link that any ping sees: RTT 20 ms.
const DELAY: &str = "--delay=10ms";

/// The cells of a column of the packet log, with the direction and index of each packet.
fn packet_log(text: &str, column: &str) -> Vec<(String, String, String)> {
    let mut lines = text.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<String>>());
    let head = lines.next().expect("a head");
    let place = |name: &str| head.iter().position(|other| other == name).expect("the column is there");
    let (direction, index, column) = (place("direction"), place("index"), place(column));
    lines.map(|cells| (cells[direction].clone(), cells[index].clone(), cells[column].clone())).collect()
}

#[test]
fn names_resolve_and_the_clients_output_and_exit_code_are_ours() {
    let Some(_) = need("ping") else { return };
    // A ping of several packets waits for the last one no longer than two round trips.
    let client =
        "for i in 1 2 3; do ping -c 1 server || exit 9; done; ping -c 1 client && cat /etc/hosts && exit 7";
    let done = h2lab(&["link", DELAY, "--client", client]);
    assert_eq!(done.code, Some(7), "{}", done.transcript());
    assert_eq!(done.stdout.matches("1 packets transmitted, 1 received").count(), 4, "{}", done.transcript());
    assert!(done.stdout.contains("10.9.0.2 server"), "{}", done.transcript());
    for words in [
        "uplink    delay 10ms: 3 packets in",
        "downlink  delay 10ms: 3 packets in",
        "ended with exit status: 7",
    ] {
        assert!(done.stderr.contains(words), "{words}\n{}", done.transcript());
    }
    assert!(!fs::read_to_string("/etc/hosts").unwrap_or_default().contains("10.9.0.2 server"), "only inside");
}

#[test]
fn labs_that_begin_together_all_have_their_names() {
    let start = || {
        let mut command = Command::new(binary());
        command.args(["link", "--client", "cat /etc/hosts"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the binary starts")
    };
    let labs: Vec<_> = (0..8).map(|_| start()).collect();
    for lab in labs {
        let done: Finished = lab.wait_with_output().expect("it ends").into();
        assert!(done.stdout.contains("10.9.0.2 server"), "{}", done.transcript());
    }
}

/// A server on a port that only root may use outside.
const HTTPS_PORT: [&str; 8] = [
    "link",
    "--wait=60s",
    "--delay=10ms",
    "--loss=0%",
    "--server",
    "python3 -u -m http.server 443",
    "--client",
    "curl -sS -o /dev/null -w '%{http_code} %{time_connect}' http://server:443/ && ping -q -c 1 server",
];

#[track_caller]
fn assert_served(done: &Finished) {
    assert_eq!(done.code, Some(0), "{}", done.transcript());
    let connected = done.stdout.strip_prefix("200 ").and_then(|rest| rest.get(..5)?.parse::<f64>().ok());
    assert!(
        connected.is_some_and(|seconds| seconds >= 0.02),
        "a handshake takes the RTT\n{}",
        done.transcript()
    );
    assert!(done.stdout.contains("1 packets transmitted, 1 received"), "{}", done.transcript());
    assert!(done.stderr.contains("10.9.0.1 - - "), "what the server says is seen\n{}", done.transcript());
    assert!(!done.stderr.contains("warning"), "{}", done.transcript());
}

#[test]
fn curl_and_ping_reach_a_server_on_port_443() {
    if [need("curl"), need("ping"), need("python3")].iter().all(Option::is_some) {
        assert_served(&h2lab(&HTTPS_PORT));
    }
}

#[test]
fn a_user_without_any_privilege_has_the_same_link() {
    if [need("curl"), need("ping"), need("python3"), need("setpriv")].iter().all(Option::is_some) {
        assert_served(&as_nobody(&HTTPS_PORT));
    }
}

#[test]
fn the_names_mean_ipv6_addresses_if_asked() {
    if [need("curl"), need("ping"), need("python3")].iter().any(Option::is_none) {
        return;
    }
    let client = "head -c 200000 /dev/zero > body && for i in 1 2 3 4; do curl -6 -sS -o got -w '%{http_code} %{remote_ip} ' \
                  http://server/body && cmp body got || exit 9; done; ping -q -c 2 -i 0.01 client; true";
    let server = "python3 -u -m http.server 80 --bind ::";
    let link = [
        "link",
        "--wait=60s",
        "--ipv6",
        "--delay=5ms",
        "--loss=2%",
        "--seed=3",
        "--server",
        server,
        "--client",
        client,
    ];
    let folder = folder();
    let done = run_program(&binary(), folder.path(), &link);
    assert_eq!(done.code, Some(0), "{}", done.transcript());
    assert_eq!(done.stdout.matches("200 fd00:10:9::2 ").count(), 4, "{}", done.transcript());
    assert!(done.stderr.contains("fd00:10:9::1 - - "), "the server saw the client\n{}", done.transcript());
    assert!(!done.stderr.contains("warning") && !done.stderr.contains(" 0 lost"), "{}", done.transcript());
    let done = h2lab(&["link", "--client", "cat /proc/net/if_inet6; cat /etc/hosts"]);
    assert!(
        !done.stdout.contains("fd00") && !done.stdout.contains("eth0"),
        "only if asked\n{}",
        done.transcript()
    );
}

#[test]
fn the_network_rights_of_a_lab_are_kept_by_what_it_runs() {
    let Some(_) = need("setpriv") else { return };
    let done = as_nobody(&["link", "--client", "grep CapAmb /proc/self/status"]);
    // CAP_NET_BIND_SERVICE, CAP_NET_ADMIN, CAP_NET_RAW: bits 10, 12 and 13.
    assert!(done.stdout.ends_with("0000000000003400\n"), "{}", done.transcript());
}

#[test]
fn the_same_seed_drops_the_same_packets_and_another_others() {
    let Some(_) = need("ping") else { return };
    let lost = |seed: &str| -> BTreeSet<(String, String)> {
        let folder = folder();
        let client = "ping -q -c 200 -i 0.002 -W 1 server; true";
        let arguments = ["link", "--loss=10%", "--packets=p.csv", "--seed", seed, "--client", client];
        let done = run_program(&binary(), folder.path(), &arguments);
        assert_eq!(done.code, Some(0), "{}", done.transcript());
        let text = fs::read_to_string(folder.path().join("p.csv")).expect("the packet log is written");
        let fates = packet_log(&text, "fate").into_iter().filter(|(.., fate)| fate == "lost");
        fates
            .map(|(direction, index, _)| (direction, index))
            .filter(|(direction, _)| direction == "up")
            .collect()
    };
    let (first, again, other) = (lost("1"), lost("1"), lost("2"));
    assert!(!first.is_empty());
    assert_eq!(first, again);
    assert_ne!(first, other);
}

#[test]
fn json_is_alone_on_stdout_and_reports_both_ends() {
    let done = h2lab(&[
        "link",
        "--json",
        "--congestion=cubic",
        "--up=loss=100%",
        "--client",
        "echo said; kill -TERM $$",
    ]);
    let document = done.json();
    assert!(done.stderr.contains("said"), "{}", done.transcript());
    assert_eq!(done.code, Some(143), "as the shell has it");
    assert_eq!(document["client_exit_code"], 143);
    assert_eq!(document["congestion"]["server"], "cubic");
    assert_eq!(document["link"]["uplink"]["loss"]["p"], "100%");
    assert_eq!(document["link"]["downlink"]["loss"]["model"], "none");
    assert!(document["server_exit_code"].is_null());
}

#[test]
fn a_device_that_was_down_does_not_keep_the_link_awake() {
    if need("ip").is_none() {
        return;
    }
    let client = "ip link set eth0 down && ip link set eth0 up && echo up && exec sleep 600";
    let mut command = Command::new(binary());
    command.args(["link", "--client", client]);
    let lab = Child::spawn(command, None).expect("the binary starts");
    lab.wait_for_line(DEADLINE, |line| (line == "up").then_some(())).expect("the device is up again");
    rest(lab.pid().as_raw_pid());
}

#[test]
fn what_has_the_secrets_of_tls_is_its_owners_alone() {
    let folder = folder();
    let done = run_program(&binary(), folder.path(), &["link", "--pcap", "it.pcapng", "--client", "true"]);
    assert_eq!(done.code, Some(0), "{}", done.transcript());
    let files = fs::read_dir(folder.path()).expect("it is there").map(|entry| entry.expect("a file"));
    let files: Vec<_> =
        files.map(|file| (file.file_name(), file.metadata().expect("it is there").mode() & 0o777)).collect();
    assert_eq!(files, [("it.pcapng".into(), 0o600)], "and nothing else is left");
}

#[test]
fn a_server_that_fails_ends_the_run_before_the_client_begins() {
    let done = h2lab(&["link", "--server", "exit 9", "--client", "echo began"]);
    assert_eq!((done.code, done.stdout.as_str()), (Some(3), ""), "{}", done.transcript());
    assert!(
        done.stderr.contains("the server's command exited before it listened (exit status: 9)"),
        "{}",
        done.transcript()
    );
}

#[test]
fn a_server_that_never_listens_is_waited_for_and_reported() {
    let done = h2lab(&["link", "--wait=50ms", "--server", "sleep 600", "--client", "echo began"]);
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), "began\n"), "{}", done.transcript());
    assert!(done.stderr.contains("warning   nothing listened on the server's side"), "{}", done.transcript());
}

#[test]
fn one_link_takes_one_value_of_each_flag() {
    let done = h2lab(&["link", "--loss=1%,2%", "--client", "true"]);
    assert_eq!(done.code, Some(2), "{}", done.transcript());
    assert!(done.stderr.contains("each flag takes one value"), "{}", done.transcript());
    let done = h2lab(&["link", "--queue=10k", "--client", "true"]);
    assert_eq!(done.code, Some(2), "a queue without a bandwidth\n{}", done.transcript());
}

/// A link whose client is interrupted by `kill` when it has begun, and what it printed on standard error.
#[track_caller]
fn interrupted(client: &str, kill: impl FnOnce(Pid)) -> (std::process::Output, String) {
    let mut run = Command::new("env")
        .args(["--default-signal".as_ref(), binary().as_os_str()])
        .args(["link", "--server", "python3 -m http.server 80", "--client", client])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .expect("the binary starts");
    let mut line = String::new();
    BufReader::new(run.stdout.as_mut().expect("it is piped"))
        .read_line(&mut line)
        .expect("the client prints");
    assert_eq!(line, "up\n");
    kill(Pid::from_child(&run));
    let output = run.wait_with_output().expect("it ends");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, errors)
}

#[test]
fn an_interrupt_of_the_process_outside_alone_ends_the_client_too() {
    // A shell that waits for its program, which it does not end on a signal; and a program in place of its shell.
    let clients = ["echo up; sleep 600; echo goes on", "echo up; exec sleep 600"];
    for client in clients {
        let (output, errors) = interrupted(client, |run| kill_process(run, Signal::INT).expect("it is ours"));
        assert_eq!(output.status.code(), Some(130), "{errors}");
        assert!(errors.contains("client    ended with signal: 2 (SIGINT)"), "{errors}");
        assert!(output.stdout.is_empty(), "{:?}", output.stdout);
    }
}

#[test]
fn ctrl_c_ends_the_client_and_the_summary_still_comes() {
    // The signal goes to the whole group, as from a terminal.
    let (output, errors) = interrupted("echo up; exec sleep 600", |run| {
        kill_process_group(run, Signal::INT).expect("it is ours");
    });
    assert_eq!(output.status.code(), Some(130), "{errors}");
    assert!(errors.contains("client    ended with signal: 2 (SIGINT)"), "{errors}");
    assert!(!errors.contains("the server's command exited"), "the signal was not for the server\n{errors}");
}

#[test]
fn a_capture_into_a_pipe_leaves_nothing_beside_it() {
    let client = "echo $SSLKEYLOGFILE >&2";
    let done = h2lab(&["link", "--pcap=/dev/stdout", "--client", client]);
    assert_eq!(done.code, Some(0), "{}", done.transcript());
    // The block type of a section header, which reads the same in either order of bytes.
    assert!(done.stdout.starts_with("\n\r\r\n"), "{}", done.transcript());
    let keys = done.stderr.lines().next().expect("the client's line");
    assert!(Path::new(keys).starts_with(std::env::temp_dir()), "{}", done.transcript());
    assert!(!Path::new(keys).exists(), "{}", done.transcript());
}

#[test]
fn a_capture_for_which_there_is_no_room_is_this_machines_fault() {
    let done = h2lab(&["link", "--pcap=/dev/full", "--client", "true"]);
    assert_eq!(done.code, Some(4), "{}", done.transcript());
    assert!(done.stderr.contains("cannot write /dev/full"), "{}", done.transcript());
    assert!(done.stderr.contains("free some space"), "{}", done.transcript());
}

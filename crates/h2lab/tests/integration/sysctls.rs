//! Sysctls of the client's and the server's network namespace, as flags and as a table.

use std::fs;

use crate::support::{folder, h2lab};

const IDLE: &str = "net.ipv4.tcp_slow_start_after_idle";

#[test]
fn link_sets_each_side_for_programs_that_are_not_ours() {
    let show = "cat /proc/sys/net/ipv4/tcp_slow_start_after_idle";
    let (set, of_server) = (format!("--sysctl-server={IDLE}=0"), format!("{show} > server.txt; sleep 60"));
    // The client polls for what the server wrote: no other event would show it that the server's shell has ended.
    let client = format!("until [ -s server.txt ]; do :; done; cat server.txt; {show}");
    let done = h2lab(&["link", &set, "--wait=0s", "--server", &of_server, "--client", &client]);
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), "0\n1\n"), "{}", done.transcript());
    assert!(done.stderr.contains(&format!("sysctl    server {IDLE}=0\n")), "{}", done.transcript());
}

#[test]
fn what_no_kernel_has_is_a_slip_of_the_pen_and_what_this_one_lacks_is_not() {
    for (flag, code, words) in [
        (
            "--sysctl-client=kernel.pid_max=1",
            2,
            "--sysctl-client cannot set `kernel.pid_max`: only sysctls of a network namespace",
        ),
        ("--sysctl-server=net/../kernel/pid_max=1", 2, "not the name of a sysctl"),
        ("--sysctl-server=net.ipv4.tcp_mem=1 2 3", 2, "`net.ipv4.tcp_mem` is machine-wide"),
        ("--sysctl-server=net.ipv4.tcp_slow_start_after_idle=often", 2, "does not accept `often`"),
        ("--sysctl-client=net.ipv4.tcp_warp=9", 4, "this kernel has no sysctl `net.ipv4.tcp_warp`"),
    ] {
        for command in [&["compare", "--quick"][..], &["link", "--client=true"]] {
            let done = h2lab(&[command, &[flag]].concat());
            assert_eq!(done.code, Some(code), "{flag}\n{}", done.transcript());
            assert!(done.stderr.contains(words), "{words}\n{}", done.transcript());
            assert!(
                !done.stderr.contains("run folder"),
                "before anything is measured\n{}",
                done.transcript()
            );
        }
    }
    let live = h2lab(&["compare", "http://127.0.0.1:1/", "--sysctl-client=net.core.somaxconn=1"]);
    assert_eq!(live.code, Some(2), "{}", live.transcript());
    assert!(live.stderr.contains("live servers are measured without emulation"), "{}", live.transcript());
}

#[test]
fn a_table_of_a_scenario_is_an_axis_that_is_set_and_read_back() {
    let place = folder();
    let file = place.path().join("idle.toml");
    let text = format!(
        "repetitions = 1\n[work]\nmeasure = '1s'\nrate = 200\n[matrix]\nprotocols = 'h1'\n\
         [sysctl.server]\n\"{IDLE}\" = [\"1\", \"0\"]\n"
    );
    fs::write(&file, text).expect("the folder is ours");
    let (out, csv) = (place.path().join("run"), place.path().join("cells.csv"));
    let flags = [
        "run".to_owned(),
        file.display().to_string(),
        format!("--out={}", out.display()),
        format!("-o={}", csv.display()),
    ];
    let done = h2lab(&flags);
    done.assert_measured();
    let run: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(out.join("run.json")).expect("stored")).expect("JSON");
    for (place, value) in ["1", "0"].iter().enumerate() {
        let repetition = &run["repetitions"][place];
        assert_eq!(repetition["cell"]["sysctls"]["server"][IDLE], *value);
        let read_back = repetition["environment"]["sysctls"].as_array().expect("a list");
        assert!(read_back.contains(&serde_json::json!([format!("server {IDLE}"), value])), "{read_back:?}");
        assert!(done.stdout.contains(&format!("server {IDLE}={value}")), "{}", done.transcript());
        let cells = fs::read_to_string(&csv).expect("written");
        assert!(cells.contains(&format!(",server {IDLE}={value},")), "{cells}");
    }
    assert!(run["repetitions"][0]["environment"]["sysctls"].to_string().contains("tcp_no_metrics_save"));
}

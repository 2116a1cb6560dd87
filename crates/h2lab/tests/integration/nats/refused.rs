//! What agents refuse, whatever a driver asks, and what is refused before anybody is asked.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};

use super::{ANY, Hub, assert_adds_up, origin, shares};
use crate::support::{DRAIN, h2lab};

/// A server that nobody may reach.
pub struct Untouched {
    listener: TcpListener,
    pub url: String,
}

impl Untouched {
    pub fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        listener.set_nonblocking(true).expect("a socket");
        let url = format!("http://{}/", listener.local_addr().expect("it is bound"));
        Self { listener, url }
    }

    /// Fails if anybody has connected.
    #[track_caller]
    pub fn assert_untouched(&self) {
        let error = self.listener.accept().expect_err("nobody may connect");
        assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
    }
}

#[test]
fn wrong_flags_are_refused_before_a_server_is_asked() {
    let nobody = "--nats=127.0.0.1:1";
    let url = "http://127.0.0.1:1/";
    for (words, told) in [
        (&["agent"][..], "give --nats URL"),
        (&["agent", nobody, "--allow=lab"], "--name kek-1"),
        (&["agent", nobody, "--name=kek-1"], "--allow lab"),
        (&["agent", nobody, "--name=kek.1", "--allow=lab"], "1 to 64"),
        (&["agent", nobody, "--name=kek-1", "--allow=ftp://a"], "ftp://a"),
        (&["agent", nobody, "--name=kek-1", "--allow=lab", "--max-rate=0"], "--max-rate"),
        (&["agent", "--stdio", "--name=kek-1"], "cannot be used with"),
        (&["agents"], "give the NATS server: --nats"),
        (&["agents", "--nats=http://a"], "not a scheme of NATS"),
        (&["agents", nobody, "--creds=none.creds"], "--creds none.creds: cannot read it"),
        (&["load", "--agents=a", url], "give the NATS server: --nats"),
        (&["load", nobody, url], "has no effect without --agents"),
        (&["load", nobody, "--agents=a,b,a", url], "--agents: a is named twice"),
        (&["load", nobody, "--agents=a.b", url], "the name of an agent"),
        (&["load", nobody, "--agents=a,b,c", "-c2", url], "3 agents need a connection each"),
        (&["load", nobody, "--agents=a", "--dump=x.csv", url], "--dump: with --agents"),
        (&["load", nobody, "--agents=a", "--prometheus=0", url], "--prometheus: with --agents"),
        (&["run", "compare", nobody, "--agents=b,a,b"], "--agents: b is named twice"),
        (&["run", "compare", "--reproduce=2"], "has no effect without --agents"),
        (&["bulk", "drive", "--clients=a", "--servers=local"], "an agent of that name is reached over NATS"),
        (&["bulk", "drive", nobody, "--clients=a", "--servers=a=127.0.0.1"], "one client or one server"),
        (&["bulk", "drive", nobody, "--clients=a", "--servers=b"], "give the address"),
    ] {
        let finished = h2lab(words);
        let transcript = finished.transcript();
        assert!(finished.code == Some(2) && transcript.contains(told), "{words:?}, {told}: {transcript}");
    }
    for servers in ["nats://me:secret@a", "me:secret@a", "nats://me:s3,cret@a"] {
        let finished = h2lab(&["agents", "--nats", servers]);
        let transcript = finished.transcript();
        assert!(finished.code == Some(2) && transcript.contains("--creds FILE"), "{transcript}");
        assert!(!transcript.contains("secret") && !transcript.contains("cret@"), "{transcript}");
    }
}

#[test]
fn a_target_that_an_agent_does_not_permit_is_refused_before_a_packet_leaves() {
    let Some(hub) = Hub::start() else { return };
    let target = Untouched::start();
    let _agent = hub.agent("kek-1", &["--allow", "http://127.0.0.1:1", "--allow", "https://127.0.0.1:*"]);
    let load = ["load", "--agents", "kek-1", "-n1", "--out=run"];
    let there = target.url.trim_start_matches("http://").trim_end_matches('/');
    let detour = format!("--connect-to=127.0.0.1:1:{there}");
    let allowed = "is not permitted here; the agent's --allow has http://127.0.0.1:1, https://127.0.0.1:*";
    let permitted = "http://127.0.0.1:1/";
    for (words, told) in [
        (&[target.url.as_str()][..], allowed),
        (&["http://localhost:1/"], allowed),
        (&[permitted, &detour], "is permitted here, but --connect-to leads to"),
        (&[permitted, "--resolve=127.0.0.1:1:127.0.0.2"], "is permitted here, but --resolve leads to"),
        (&[permitted, "--unix-socket=/run/x.sock"], "a Unix socket of an agent's machine is never permitted"),
    ] {
        let finished = hub.drive(&[&load[..], words].concat());
        let is_told = finished.stderr.contains("kek-1: ") && finished.stderr.contains(told);
        assert!(finished.code == Some(3) && is_told, "{words:?}: {}", finished.transcript());
        assert!(!hub.path("run").exists(), "{words:?}: nothing was measured");
    }
    target.assert_untouched();
}

#[test]
fn more_than_the_bounds_of_an_agent_is_refused_and_as_much_is_done() {
    let Some(hub) = Hub::start() else { return };
    let target = Untouched::start();
    let bounds = ["--max-rate", "10", "--max-connections", "2", "--max-time", "30s"];
    let _agent = hub.agent("kek-1", &[&ANY[..], &bounds].concat());
    for (words, told) in [
        (&["-q10.5", "-z1s", "-c1"][..], "10.5/s would be more than this agent does (--max-rate 10/s)"),
        (&["-n1", "-c1"], "a task without a rate (a closed loop, a transfer) is refused by this agent"),
        (&["-q10", "-z1s", "-c3"], "3 connections would be more than this agent does (--max-connections 2)"),
        (
            &["-q10", "-z28s", "-c1", "--drain=3s"],
            "31s (--warmup, -z and --drain together; -n does not bound it) would be more",
        ),
        (
            &["-q10", "-z1s", "-c1", "--congestion=nosuch"],
            "--congestion nosuch: the kernel does not allow it",
        ),
    ] {
        let finished =
            hub.drive(&[&["load", "--agents", "kek-1", "--no-store", &target.url], words].concat());
        let is_told = finished.stderr.contains(told);
        assert!(finished.code == Some(3) && is_told, "{words:?}: {}", finished.transcript());
    }
    target.assert_untouched();
    let (_origin, url) = origin();
    let most = ["-q10", "-z2s", "-c2", "--drain=28s"];
    let finished =
        hub.drive(&[&["load", "--json", "--no-store", "--agents", "kek-1", &url][..], &most].concat());
    finished.assert_measured();
    assert!(assert_adds_up(&finished.json()).abs_diff(20) <= 1, "{}", finished.transcript());
}

#[test]
fn a_load_of_which_one_agent_refuses_its_share_is_not_begun() {
    let Some(hub) = Hub::start() else { return };
    let (_origin, url) = origin();
    let _takes = hub.agent("kek-1", &ANY);
    let _refuses = hub.agent("kek-2", &["--allow", "http://127.0.0.1:1"]);
    let load = ["load", "--json", "--agents", "kek-1,kek-2", "-q40", "-z2s", "-c2", DRAIN, "--out=run"];
    let finished = hub.drive(&[&load[..], &[&url]].concat());
    assert_eq!(finished.code, Some(3), "{}", finished.transcript());
    let told = "the load was not begun: kek-2: ";
    let allowed = "is not permitted here; the agent's --allow has http://127.0.0.1:1";
    let is_told = finished.stderr.contains(told) && finished.stderr.contains(allowed);
    assert!(is_told && !finished.stderr.contains("kek-1: "), "{}", finished.transcript());
    assert!(!hub.path("run").exists(), "nothing was measured");
}

#[test]
fn a_share_ends_with_the_bytes_of_its_agent_and_is_marked() {
    let Some(hub) = Hub::start() else { return };
    let (_origin, url) = origin();
    let _agent = hub.agent("kek-1", &[&ANY[..], &["--max-bytes", "10k"]].concat());
    // 1 KiB each, and their heads: a hundredth of them is permitted.
    let load = ["load", "--json", "--no-store", "--agents", "kek-1", "-q100", "-z10s", "-c1", DRAIN, &url];
    let finished = hub.drive(&load);
    assert_eq!(finished.code, Some(5), "{}", finished.transcript());
    let document = finished.json();
    let share = &shares(&document)[0];
    let doubts = share["doubts"].to_string();
    assert!(
        share["lost"].is_null() && doubts.contains("its agent ended it before its time was over"),
        "{share:#}"
    );
    assert!(document.to_string().contains("--max-bytes 10 KiB was reached"), "{document:#}");
    let succeeded = document["requests"]["succeeded"].as_u64();
    assert!(Some(0) < succeeded && succeeded < Some(20), "{document:#}");
}

//! Several clients and servers in network namespaces of their own, one of them behind the emulated link.
//!
//! ```text
//!   A 10.9.0.1 ══ emulated link ══ 10.9.0.2 C 10.9.1.2 ── veth ── 10.9.1.1 B
//!                                           C 10.9.2.2 ── veth ── 10.9.2.1 D
//! ```
//!
//! A and B fetch, C and D serve; C also forwards packets for others, so that everything that A gets crosses the link.

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use h2lab_lab::topology::{Namespaces, Side, TopologySpec, keep_network_rights};
use h2lab_link::LinkSpec;
use h2lab_model::bulk::TransferDirection;
use h2lab_model::fleet::FleetSummary;
use h2lab_model::fleet::plan::PlanInput;
use h2lab_model::fleet::{
    FleetJob, FleetPlan, FleetTimeouts, PairRecord, PairState, Pairing, Reach, Server, ServerPlace, Stage,
    Trust,
};
use h2lab_model::workload::{EngineSettings, Protocol};
use h2lab_net::process::run;
use h2lab_roles::fleet::{TransportKind, drive};
use h2lab_transfer::Sizes;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use super::AGENT;
use super::cases::{check, impairment, lab, start};

/// Far above what `ip` takes: only a hang exceeds it.
const DEADLINE: Duration = Duration::from_secs(60);

/// A network namespace that is no end of the link.
#[derive(Clone)]
struct Netns(Arc<OwnedFd>);

impl Netns {
    fn new() -> Self {
        let made = std::thread::spawn(|| {
            // SAFETY: no flag here separates file descriptors.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
            File::open("/proc/thread-self/ns/net").unwrap().into()
        });
        let namespace: OwnedFd = made.join().unwrap();
        fcntl_setfd(&namespace, FdFlags::empty()).unwrap();
        Self(Arc::new(namespace))
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let namespace = Arc::clone(&self.0);
        let move_in = move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(())
        };
        // SAFETY: between fork and exec it only makes a system call.
        unsafe { command.pre_exec(move_in) };
        command
    }

    /// Its path for `ip`, which inherits the descriptor: another process's `/proc` entry would need more rights.
    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.0.as_raw_fd())
    }
}

/// Runs `ip` with these words, in the namespace that `command` leads to.
#[track_caller]
fn ip(mut command: Command, words: &str) {
    command.args(words.split_whitespace());
    let (status, said) = run(command, DEADLINE).expect("ip starts (Debian: iproute2)");
    assert!(status.success(), "ip {words}: {said}");
}

/// Connects `netns` with the server's end of the link: it has 10.9.`n`.1, the other end 10.9.`n`.2.
fn connect(namespaces: &Namespaces, netns: &Netns, n: u8) {
    let at_server = || namespaces.command(Side::Server, "ip");
    ip(at_server(), &format!("link add to-{n} type veth peer name eth0 netns {}", netns.path()));
    ip(at_server(), &format!("addr add 10.9.{n}.2/24 dev to-{n}"));
    ip(at_server(), &format!("link set to-{n} up"));
    ip(netns.command("ip"), &format!("addr add 10.9.{n}.1/24 dev eth0"));
    ip(netns.command("ip"), "link set eth0 up");
    ip(netns.command("ip"), &format!("route add default via 10.9.{n}.2"));
    ip(namespaces.command(Side::Client, "ip"), &format!("route add 10.9.{n}.0/24 via 10.9.0.2"));
}

/// `command`, which runs `sh`, as an agent that first writes its process id to `file`.
fn agent(mut command: Command, file: &Path) -> TransportKind {
    let program = std::env::current_exe().unwrap();
    command.args(["-c", "echo $$ > \"$0\"; exec \"$1\""]).arg(file).arg(program).env(AGENT, "1");
    TransportKind::Command(command)
}

fn job() -> FleetJob {
    let input = PlanInput {
        clients: 2,
        servers: 2,
        concurrency: 4,
        connections: Some(1),
        pairing: Pairing::All,
        seed: 1,
    };
    let server = |name: &str, address: &str| Server {
        name: name.to_owned(),
        place: ServerPlace::Agent {
            listen: format!("{address}:0").parse().unwrap(),
            host: address.to_owned(),
        },
    };
    FleetJob {
        direction: TransferDirection::Get,
        clients: vec!["A".to_owned(), "B".to_owned()],
        servers: vec![server("C", "10.9.0.2"), server("D", "10.9.2.1")],
        concurrency: input.concurrency,
        plan: FleetPlan::make(&input).unwrap(),
        protocol: Protocol::H2c,
        upgrade: false,
        sizes: Sizes::Fixed(1 << 40),
        duration: Duration::from_secs(10),
        timeout: Duration::from_secs(30),
        settings: EngineSettings::default(),
        fields: Vec::new(),
        congestion: None,
        trust: Trust::default(),
        reach: Reach::default(),
        seed: 1,
        waits: FleetTimeouts { setup: Duration::from_secs(60), grace: Duration::from_secs(10) },
    }
}

pub fn of_two_clients_and_two_servers_the_one_that_is_killed_is_lost_and_the_rest_is_kept() {
    let namespaces = lab(&TopologySpec::default());
    if !rustix::process::geteuid().is_root() {
        keep_network_rights().unwrap();
    }
    let (b, d) = (Netns::new(), Netns::new());
    connect(&namespaces, &b, 1);
    connect(&namespaces, &d, 2);
    namespaces.within(Side::Server, || fs::write("/proc/sys/net/ipv4/ip_forward", "1")).unwrap().unwrap();
    let pump = start(&namespaces, &LinkSpec::symmetric(impairment(Duration::from_millis(10), 0.01)), 1);

    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let transports = vec![
        agent(namespaces.command(Side::Client, "/bin/sh"), &file("A")),
        agent(b.command("/bin/sh"), &file("B")),
        agent(namespaces.command(Side::Server, "/bin/sh"), &file("C")),
        agent(d.command("/bin/sh"), &file("D")),
    ];
    let job = job();
    let latest = job.duration + job.waits.grace;
    let (mut waited, mut is_killed) = (Duration::ZERO, false);
    let record = drive(job, transports, &AtomicBool::new(false), &mut |coordinator, _| {
        if let Stage::Running { start, until, .. } = coordinator.stage() {
            waited = until.since(start);
        }
        // In the middle: all four are in progress.
        if !is_killed && (0..4).all(|pair| coordinator.bytes_of(pair) > 0) {
            let pid = fs::read_to_string(file("B")).unwrap().trim().parse().unwrap();
            kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
            is_killed = true;
        }
    })
    .unwrap();
    assert!(is_killed, "{record:#?}");
    // `coordinator::tests` shows in virtual time that it ends then, even with silent agents.
    assert_eq!(waited, latest);

    let states: Vec<PairState> = record.pairs.iter().map(PairRecord::state).collect();
    // A pair is invalid if a busy machine stopped it for a part of its time; it fetched all the same.
    let is_over = |state: &PairState| matches!(state, PairState::Complete | PairState::Invalid);
    assert!(states[..2].iter().all(is_over), "{record:#?}");
    assert_eq!(states[2..], [PairState::Lost; 2], "{record:#?}");
    assert!(record.clients[1].lost.as_deref().is_some_and(|why| why.contains("signal: 9")), "{record:#?}");
    assert!(record.servers.iter().all(|server| server.lost.is_none()));
    let summary = FleetSummary::of(&record);
    let mut retransmits = 0;
    for (place, server) in (0..).zip(&record.servers) {
        let served = server.served.as_ref().expect("it lived, and reported what it spent");
        let came = record.pairs.iter().filter(|pair| pair.pair.server == place).map(PairRecord::bytes).sum();
        assert!(served.cpu > Duration::ZERO && served.sent >= came, "{served:?}, {came} came");
        assert_eq!(served.connections, 2, "of the one that was killed, too: {served:?}");
        retransmits += served.retransmits.expect("it is TCP");
    }
    assert!(record.pairs.iter().all(|pair| pair.bytes() > 0), "{record:#?}");
    assert_eq!(summary.bytes, record.pairs.iter().map(PairRecord::bytes).sum::<u64>());
    assert_eq!(summary.lost_bytes, record.pairs[2].bytes() + record.pairs[3].bytes());
    println!(
        "figure: 2 × 2, one behind 10 ms and 1 % loss: kept {:.1} MB, lost {:.1} MB, begun within {:?} (clocks ±{:?})",
        (summary.bytes - summary.lost_bytes) as f64 / 1e6,
        summary.lost_bytes as f64 / 1e6,
        summary.latest_start.unwrap_or_default(),
        summary.clock_uncertainty.unwrap_or_default(),
    );
    let link = pump.stop().unwrap();
    check(&link);
    assert!(link.summary.down.lost > 0, "the impaired one met its losses: {:?}", link.summary);
    assert!(retransmits > 0, "what was lost was sent again by the servers");
}

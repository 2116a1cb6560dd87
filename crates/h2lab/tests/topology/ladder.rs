//! The isolation level below namespaces: `CAP_NET_ADMIN` in the present network namespace, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use h2lab_lab::topology::doctor::{examine, isolation_level};
use h2lab_lab::topology::{IsolationLevel, Mechanism, Namespaces, Side, TopologyError, TopologySpec, enter};
use h2lab_link::LinkSpec;
use h2lab_model::scenario::Sysctls;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::CapabilitySet;

use super::cases::{MARK, again, check, exchange, give_up, impairment, marked, spec, start};

/// Such a machine, made by a privileged caller: no further namespaces, no other capability.
const MACHINE: &str = "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all,+net_admin \
                       --inh-caps=-all,+net_admin --ambient-caps=-all,+net_admin";

/// Runs this case again on such a machine, with this mark.
fn on_such_a_machine(mark: &str) {
    let program = std::env::current_exe().unwrap();
    let shell = format!("{MACHINE} {}", program.display());
    let status = Command::new("unshare")
        .args(["-U", "-r", "-n", "sh", "-c", &shell])
        .env(MARK, mark)
        .status()
        .unwrap();
    assert!(status.success());
}

/// The lab that is possible here.
fn reflected(spec: &TopologySpec) -> Result<Namespaces, TopologyError> {
    let entered = enter().unwrap();
    assert_eq!(entered.isolation_level, IsolationLevel::Reflector);
    assert!(entered.refusal.as_deref().is_some_and(|why| why.contains("namespace")), "{entered:?}");
    let (mechanism, instead_of) = (entered.mechanism(), entered.refusal);
    Namespaces::create(&TopologySpec { mechanism, instead_of, ..spec.clone() })
}

/// Whether the link's devices are in the network namespace of this process.
fn has_devices() -> bool {
    fs::read_to_string("/proc/self/net/dev").unwrap().contains("h2lab-")
}

pub fn a_machine_without_packet_sockets_uses_tun_devices_and_says_why() {
    enter().unwrap();
    give_up(CapabilitySet::NET_RAW);
    let namespaces = Namespaces::create(&spec("reno")).unwrap();
    let reason = namespaces.fallback_reason().expect("packet sockets need CAP_NET_RAW").to_owned();
    assert!(reason.starts_with("cannot open a packet socket with a ring"), "{reason}");
    assert_eq!(namespaces.congestion().client, "reno");
    let pump = start(&namespaces, &LinkSpec::symmetric(impairment(Duration::from_millis(1), 0.01)), 3);
    exchange(&namespaces, 1 << 20);
    let result = pump.stop().unwrap();
    check(&result);
    assert_eq!(result.summary.mechanism, Mechanism::Tun.name());
    assert_eq!(result.summary.fallback_reason, Some(reason));
}

pub fn with_nothing_but_net_admin_both_ends_share_a_namespace() {
    match std::env::var(MARK).as_deref() {
        Err(_) => ["exchange", "refusals", "doctor"].iter().for_each(|mark| on_such_a_machine(mark)),
        Ok("exchange") => {
            let spec = TopologySpec { congestion: Some("reno".to_owned()), ..TopologySpec::default() };
            let namespaces = reflected(&spec).unwrap();
            assert_eq!(namespaces.congestion().server, "reno");
            assert!(has_devices());
            let link = LinkSpec::symmetric(impairment(Duration::from_millis(1), 0.01));
            let pump = start(&namespaces, &link, 3);
            // The second connection must not start with what was learned on the first.
            exchange(&namespaces, 2 << 20);
            exchange(&namespaces, 1 << 10);
            let result = pump.stop().unwrap();
            check(&result);
            assert_eq!(result.summary.mechanism, Mechanism::Reflector.name());
            assert!(result.summary.fallback_reason.is_some());
            assert!(result.summary.up.lost > 0 && result.summary.down.lost > 0, "{:?}", result.summary);
            let ports: BTreeSet<u16> = result.packets.iter().map(|packet| packet.server_port).collect();
            assert_eq!(ports.len(), 2, "two flows, each of them both ways");
            drop(namespaces);
            assert!(!has_devices(), "they are not persistent");
        }
        Ok("refusals") => {
            let sysctl = BTreeMap::from([("net.ipv4.tcp_sack".to_owned(), "0".to_owned())]);
            let sysctls = Sysctls { client: sysctl.clone(), server: sysctl };
            let error = reflected(&TopologySpec { sysctls, ..TopologySpec::default() }).unwrap_err();
            assert!(error.to_string().contains("the machine's own network"), "{error}");
            let ipv6 =
                TopologySpec { ipv6: true, mechanism: Some(Mechanism::Reflector), ..TopologySpec::default() };
            assert!(Namespaces::create(&ipv6).unwrap_err().to_string().contains("IPv6"));
            let one = Namespaces::create(&TopologySpec { ipv6: false, ..ipv6.clone() }).unwrap();
            let second = Namespaces::create(&TopologySpec { ipv6: false, ..ipv6 }).unwrap_err();
            assert!(second.remedy().is_some_and(|line| line.contains("one runs at a time")), "{second:?}");
            drop(one);
        }
        Ok(_) => {
            let examination = examine().unwrap();
            let checks = examination.root.or(examination.user).unwrap();
            assert_eq!(isolation_level(&checks), Some(IsolationLevel::Reflector), "{checks:?}");
        }
    }
}

/// A lab with programs that have programs of their own, which reports ready and waits to be killed.
fn live_until_killed() {
    let namespaces = reflected(&TopologySpec::default()).unwrap();
    let _pump = start(&namespaces, &LinkSpec::default(), 1);
    let grandparent = "sleep 1000 & sleep 1000";
    let mut programs =
        Side::BOTH.map(|side| namespaces.command(side, "sh").args(["-c", grandparent]).spawn().unwrap());
    println!("ready");
    programs[0].wait().unwrap();
}

pub fn killing_a_reflected_lab_leaves_nothing_behind() {
    match std::env::var(MARK).as_deref() {
        Err(_) => on_such_a_machine("machine"),
        Ok("machine") => {
            let mark = format!("reflected-{}", std::process::id());
            let mut lab = again().env(MARK, &mark).stdout(Stdio::piped()).spawn().unwrap();
            let mut line = String::new();
            BufReader::new(lab.stdout.take().unwrap()).read_line(&mut line).unwrap();
            assert_eq!(line.trim(), "ready");
            // The started process, the subreaper, the lab, two shells, and what they have started so far.
            assert!(marked(&mark).len() >= 5 && has_devices(), "{:?}", marked(&mark));
            kill_process(Pid::from_child(&lab), Signal::KILL).unwrap();
            lab.wait().unwrap();
            let deadline = Instant::now() + Duration::from_secs(60);
            while !marked(&mark).is_empty() || has_devices() {
                assert!(Instant::now() < deadline, "still there: {:?}", marked(&mark));
                std::thread::yield_now();
            }
        }
        Ok(_) => live_until_killed(),
    }
}

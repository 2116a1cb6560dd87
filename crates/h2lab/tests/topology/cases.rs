//! The cases. Each runs alone in a process with one thread.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use h2lab_base::units::{Ratio, Time};
use h2lab_lab::topology::doctor::{StepStatus, examine};
use h2lab_lab::topology::sched::allowed_cpus;
use h2lab_lab::topology::{
    LinkResult, Namespaces, Pump, PumpOptions, Side, TopologyError, TopologySpec, available_congestion,
    enter, present_sysctls, try_sysctls,
};
use h2lab_link::{
    Admission, FlowEndpoint, FlowNumber, Impairment, LinkSpec, LossModel, Offload, Packet, Pipe,
    QueueDiscipline,
};
use h2lab_model::record::{PacketFate, PacketRecord};
use h2lab_model::scenario::Sysctls;
use h2lab_wire::trace::Direction;

use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use rustix::thread::CapabilitySet;

use super::causes::{
    causes_are_those_that_scripts_made_under_bbr, causes_are_those_that_scripts_made_under_cubic,
};
use super::fleet::of_two_clients_and_two_servers_the_one_that_is_killed_is_lost_and_the_rest_is_kept;
use super::ladder::{
    a_machine_without_packet_sockets_uses_tun_devices_and_says_why,
    killing_a_reflected_lab_leaves_nothing_behind, with_nothing_but_net_admin_both_ends_share_a_namespace,
};
use super::{Case, EACH, may_open_tun, mechanism};

macro_rules! cases {
    (move packets: $($moving:ident),*; need TUN: $($tun:ident),*; do not: $($other:ident),*;) => {
        pub const ALL: &[Case] = &[
            $(Case { name: stringify!($moving), run: $moving, mechanisms: &EACH, needs_tun: false },)*
            $(Case { name: stringify!($tun), run: $tun, mechanisms: &[None], needs_tun: true },)*
            $(Case { name: stringify!($other), run: $other, mechanisms: &[None], needs_tun: false },)*
        ];
    };
}

cases! {
    move packets:
    a_ping_takes_both_delays_and_nothing_else_uses_the_link,
    both_ends_use_cubic_if_asked,
    both_ends_use_bbr_if_asked,
    both_ends_use_reno_if_asked,
    the_packets_that_arrive_are_those_that_core_lets_pass,
    datagrams_of_a_super_packet_meet_the_loss_model_one_by_one,
    a_bulk_transfer_crosses_a_lossy_link_unchanged,
    super_packets_cross_as_packets_of_the_wire,
    super_packets_of_ipv6_do_too_and_nothing_else_uses_the_link,
    a_full_queue_drops_its_tail_and_tcp_recovers,
    codel_drops_from_a_queue_that_stands_and_tcp_recovers,
    packets_out_of_order_are_put_in_order_by_the_receiver,
    copies_arrive_twice_and_the_receiver_says_so,
    the_receiver_counts_each_corrupt_packet_and_takes_none,
    a_connection_whose_syn_the_script_drops_takes_a_second_longer,
    a_smaller_rto_min_makes_the_retransmission_timeout_of_that_side_smaller,
    a_second_pump_starts_with_an_empty_link,
    of_two_clients_and_two_servers_the_one_that_is_killed_is_lost_and_the_rest_is_kept,
    killing_the_waiting_process_leaves_nothing_behind;
    need TUN:
    a_machine_without_packet_sockets_uses_tun_devices_and_says_why,
    with_nothing_but_net_admin_both_ends_share_a_namespace,
    killing_a_reflected_lab_leaves_nothing_behind;
    do not:
    causes_are_those_that_scripts_made_under_cubic,
    causes_are_those_that_scripts_made_under_bbr,
    an_unknown_congestion_control_is_refused_with_those_that_there_are,
    sysctls_are_set_and_read_back,
    each_side_has_its_own_sysctls_and_other_programs_see_them,
    a_sysctl_of_the_whole_machine_and_a_value_that_is_none_are_slips_of_the_pen,
    a_sysctl_that_does_not_exist_is_named,
    a_machine_without_either_mechanism_names_both,
    a_program_started_by_a_user_has_no_capabilities,
    the_status_of_the_first_process_is_passed_on,
    namespaces_are_not_entered_with_threads_running,
    killing_the_first_process_leaves_nothing_behind,
    the_doctor_finds_that_a_run_is_possible_here,
    the_doctor_finds_that_tun_devices_are_enough,
    a_machine_without_namespaces_learns_what_to_change;
}

pub fn spec(congestion: &str) -> TopologySpec {
    TopologySpec { congestion: Some(congestion.to_owned()), ..TopologySpec::default() }
}

pub fn impairment(delay: Duration, loss: f64) -> Impairment {
    Impairment { delay, loss: LossModel::bernoulli(Ratio::new(loss).unwrap()), ..Impairment::default() }
}

pub fn lab(spec: &TopologySpec) -> Namespaces {
    enter().unwrap();
    let namespaces = Namespaces::create(&TopologySpec { mechanism: mechanism(), ..spec.clone() }).unwrap();
    assert_eq!(namespaces.fallback_reason(), None);
    namespaces
}

pub fn start(namespaces: &Namespaces, link: &LinkSpec, seed: u64) -> Pump {
    Pump::start(namespaces, link, seed, PumpOptions::default()).unwrap()
}

/// The invariants of every link.
pub fn check(result: &LinkResult) {
    let summary = &result.summary;
    assert!(summary.up.adds_up() && summary.down.adds_up(), "{summary:?}");
    assert_eq!(summary.device_drops, 0, "{summary:?}");
    if let Some(mechanism) = mechanism() {
        assert_eq!(summary.mechanism, mechanism.name());
    }
    for (direction, totals) in [(Direction::Up, summary.up), (Direction::Down, summary.down)] {
        let of = || result.packets.iter().filter(|packet| packet.direction == direction);
        let with = |fate| of().filter(|packet| packet.fate == fate).count() as u64;
        for (fate, total) in [
            (PacketFate::Lost, totals.lost),
            (PacketFate::TailDropped, totals.tail_dropped),
            (PacketFate::CodelDropped, totals.codel_dropped),
            (PacketFate::Scripted, totals.scripted),
            (PacketFate::BlackOut, totals.black_out),
            (PacketFate::InFlight, totals.in_flight),
            (PacketFate::Delivered, totals.delivered - result.unrecorded),
        ] {
            assert_eq!(with(fate), total, "{fate:?}");
        }
        let originals = of().filter(|packet| !packet.marks.is_copy);
        assert!(originals.map(|packet| packet.index).eq(0..totals.packets_in), "indexes count up from 0");
        let marked = [totals.duplicated, totals.reordered, totals.corrupted];
        let found = [
            of().filter(|packet| packet.marks.is_copy).count() as u64,
            of().filter(|packet| packet.marks.is_reordered && !packet.marks.is_copy).count() as u64,
            of().filter(|packet| packet.marks.corrupt.is_some()).count() as u64,
        ];
        assert_eq!(found, marked);
        assert!(of().all(|packet| packet.bytes <= 1500), "no packet is larger than the wire takes");
    }
}

fn a_ping_takes_both_delays_and_nothing_else_uses_the_link() {
    let namespaces = lab(&TopologySpec::default());
    let pump = start(&namespaces, &LinkSpec::symmetric(impairment(Duration::from_millis(5), 0.0)), 1);
    let mut ping = namespaces.command(Side::Client, "ping");
    // After its last request ping waits for one interval only; it must be long enough for a pause of a busy machine.
    let output =
        ping.args(["-n", "-c", "3", "-i", "1", "10.9.0.2"]).output().expect("apt-get install iputils-ping");
    let result = pump.stop().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.contains("3 packets transmitted, 3 received"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let times: Vec<f64> =
        text.lines().filter_map(|line| line.split("time=").nth(1)?.split(' ').next()?.parse().ok()).collect();
    assert_eq!(times.len(), 3, "{text}");
    // Only the lower bound: how late a packet may be depends on the machine; `verify` checks it.
    assert!(times.iter().all(|&ms| ms >= 9.99), "{times:?}");
    check(&result);
    assert_eq!((result.summary.up.packets_in, result.summary.down.packets_in), (3, 3), "only the pings");
    for packet in &result.packets {
        assert!(packet.out_at.since(packet.at) >= Duration::from_millis(5), "{packet:?}");
    }
}

fn both_ends_use(name: &str) {
    let namespaces = lab(&spec(name));
    assert_eq!(
        (namespaces.congestion().client.as_str(), namespaces.congestion().server.as_str()),
        (name, name)
    );
}

fn both_ends_use_cubic_if_asked() {
    both_ends_use("cubic");
}

fn both_ends_use_bbr_if_asked() {
    both_ends_use("bbr");
}

fn both_ends_use_reno_if_asked() {
    both_ends_use("reno");
}

fn an_unknown_congestion_control_is_refused_with_those_that_there_are() {
    enter().unwrap();
    match Namespaces::create(&spec("warp")) {
        Err(TopologyError::UnknownCongestion { asked, available }) => {
            assert_eq!((asked.as_str(), available), ("warp", available_congestion()));
        }
        other => panic!("{other:?}"),
    }
}

/// One sysctl, on both sides.
fn on_both(name: &str, value: &str) -> Sysctls {
    let side: BTreeMap<String, String> = [(name.to_owned(), value.to_owned())].into();
    Sysctls { client: side.clone(), server: side }
}

/// What an independent program on `side` sees under `/proc/sys`.
fn shown_to_cat(namespaces: &Namespaces, side: Side, name: &str) -> String {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    let output = namespaces.command(side, "cat").arg(path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn each_side_has_its_own_sysctls_and_other_programs_see_them() {
    const NAME: &str = "net.ipv4.tcp_slow_start_after_idle";
    let sysctls = Sysctls { server: on_both(NAME, "0").server, ..Sysctls::default() };
    let namespaces = lab(&TopologySpec { sysctls, ..TopologySpec::default() });
    assert_eq!(shown_to_cat(&namespaces, Side::Server, NAME), "0");
    assert_eq!(shown_to_cat(&namespaces, Side::Client, NAME), "1", "the kernel's default");
    let report: Vec<&String> = namespaces.sysctls().iter().map(|(name, _)| name).collect();
    assert!(report.contains(&&format!("server {NAME}")) && !report.contains(&&format!("client {NAME}")));
}

/// The kernel's retransmission timeout, in microseconds (`tcpi_rto`).
fn retransmission_timeout(socket: &TcpStream) -> u32 {
    // SAFETY: the kernel's structure consists of integers, for which 0 is valid.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, and `info` has that many.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut length,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    info.tcpi_rto
}

fn a_smaller_rto_min_makes_the_retransmission_timeout_of_that_side_smaller() {
    const NAME: &str = "net.ipv4.tcp_rto_min_us";
    enter().unwrap();
    if present_sysctls([&NAME.to_owned()]).is_empty() {
        eprintln!("skipped: this kernel has no {NAME} (it came with Linux 6.11)");
        return;
    }
    let sysctls = Sysctls { client: on_both(NAME, "20000").client, ..Sysctls::default() };
    let mechanism = mechanism();
    let namespaces =
        Namespaces::create(&TopologySpec { sysctls, mechanism, ..TopologySpec::default() }).unwrap();
    let pump = start(&namespaces, &LinkSpec::symmetric(impairment(Duration::from_millis(2), 0.0)), 1);
    let listener =
        namespaces.within(Side::Server, || TcpListener::bind((Side::Server.address(), 0)).unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let client = namespaces.within(Side::Client, || TcpStream::connect(address).unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        // A round trip of data, so that both ends have measured it.
        for (mut from, mut to) in [(&client, &server), (&server, &client)] {
            from.write_all(b"x").unwrap();
            to.read_exact(&mut [0]).unwrap();
        }
        let (ours, theirs) = (retransmission_timeout(&client), retransmission_timeout(&server));
        assert!(theirs >= 200_000, "the other side has the kernel's own minimum: {theirs} µs");
        // RTT 4 ms + 20 ms, rounded up by the kernel's clock. A long round trip of a busy machine loses weight.
        if ours < 100_000 {
            return check(&pump.stop().unwrap());
        }
        assert!(Instant::now() < until, "{ours} µs");
    }
}

fn sysctls_are_set_and_read_back() {
    let spec = TopologySpec {
        tcp_rmem: Some([4096, 65_536, 1_048_576]),
        sysctls: on_both("net.ipv4.tcp_slow_start_after_idle", "0"),
        ..TopologySpec::default()
    };
    let namespaces = lab(&spec);
    for side in Side::BOTH {
        let value = |name: &str| {
            let name = format!("{} {name}", side.name());
            namespaces.sysctls().iter().find(|(n, _)| *n == name).map(|(_, value)| value.clone())
        };
        assert_eq!(value("net.ipv4.tcp_rmem").as_deref(), Some("4096 65536 1048576"));
        assert_eq!(value("net.ipv4.tcp_no_metrics_save").as_deref(), Some("1"));
        assert_eq!(value("net.ipv4.tcp_slow_start_after_idle").as_deref(), Some("0"));
        let read = || fs::read_to_string("/proc/sys/net/ipv4/tcp_slow_start_after_idle").unwrap();
        assert_eq!(namespaces.within(side, read).unwrap().trim(), "0");
    }
    assert_eq!(fs::read_to_string("/proc/sys/net/ipv4/tcp_slow_start_after_idle").unwrap().trim(), "1");
}

fn a_sysctl_that_does_not_exist_is_named() {
    enter().unwrap();
    let sysctls = on_both("net.ipv4.tcp_warp", "9");
    let error = Namespaces::create(&TopologySpec { sysctls, ..TopologySpec::default() }).unwrap_err();
    assert!(error.to_string().contains("net.ipv4.tcp_warp"), "{error}");
    assert!(!error.is_input(), "another kernel may have it: {error:?}");
}

fn a_sysctl_of_the_whole_machine_and_a_value_that_is_none_are_slips_of_the_pen() {
    let name = "net.ipv4.tcp_mem".to_owned();
    let outside = present_sysctls([&name]);
    enter().unwrap();
    let refusal = |name: &str, value: &str| {
        let error = try_sysctls([&on_both(name, value)]).unwrap_err().seen_from(&outside);
        assert!(error.is_input() && error.to_string().contains(name), "{error:?}");
        error.to_string()
    };
    assert!(refusal(&name, "1 2 3").contains("machine-wide"));
    refusal("net.ipv4.tcp_slow_start_after_idle", "often");
    try_sysctls([&on_both("net.ipv4.tcp_slow_start_after_idle", "0")]).unwrap();
}

/// Indexes of the packets, out of `n`, that pass the uplink of `link`, as `h2lab_link` alone computes it.
fn survivors(link: &LinkSpec, seed: u64, n: u64) -> BTreeSet<u64> {
    let end = |side: Side| FlowEndpoint { address: side.address().into(), port: 9 };
    let (source, destination) = (end(Side::Client), end(Side::Server));
    let offload = Offload::default();
    let packet =
        Packet { source, destination, protocol: 17, bytes: 36, payload: 8, seq: 0, flags: 0, offload };
    let (mut up, _): (Pipe<()>, _) = link.pipes(seed, Time::ZERO);
    let mut passes = || matches!(up.admit(Time::ZERO, &packet, FlowNumber::NONE), Admission::Passes { .. });
    (0..n).filter(|_| passes()).collect()
}

/// The next datagram. A read with a timeout is interrupted if this process is stopped and continued.
fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> usize {
    loop {
        match socket.recv(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            came => return came.expect("what the link lets pass arrives"),
        }
    }
}

fn the_packets_that_arrive_are_those_that_core_lets_pass() {
    const N: u64 = 1_000_000;
    /// Surviving packets that may be in flight: they must fit into the receiver's socket.
    const WINDOW: usize = 100;
    let (link, seed) = (LinkSpec::symmetric(impairment(Duration::ZERO, 0.03)), 7);
    let expected: Vec<u64> = survivors(&link, seed, N).into_iter().collect();
    let namespaces = lab(&TopologySpec::default());
    let pump = start(&namespaces, &link, seed);
    let bind = |side: Side| move || UdpSocket::bind((side.address(), 0)).unwrap();
    let receiver = namespaces.within(Side::Server, bind(Side::Server)).unwrap();
    let sender = namespaces.within(Side::Client, bind(Side::Client)).unwrap();
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut buffer = [0; 16];
    let mut expect = |number: u64| {
        let n = receive(&receiver, &mut buffer);
        assert_eq!(u64::from_be_bytes(buffer[..n].try_into().unwrap()), number);
    };
    let (mut survived, mut arrived) = (0, 0);
    for number in 0..N {
        sender.send(&number.to_be_bytes()).unwrap();
        survived += usize::from(expected.get(survived) == Some(&number));
        if survived - arrived >= WINDOW {
            expect(expected[arrived]);
            arrived += 1;
        }
    }
    expected[arrived..].iter().for_each(|&number| expect(number));
    let result = pump.stop().unwrap();
    check(&result);
    assert_eq!((result.summary.up.packets_in, result.summary.up.delivered), (N, expected.len() as u64));
    let deviation = (N as f64 * 0.03 * 0.97).sqrt();
    assert!(
        (result.summary.up.lost as f64 - N as f64 * 0.03).abs() <= 3.0 * deviation,
        "{:?}",
        result.summary.up
    );
    assert_eq!(result.summary.down.packets_in, 0);
}

/// Sends `bytes` bytes of a pattern from the client to the server and back over one connection.
pub fn exchange(namespaces: &Namespaces, bytes: usize) {
    let pattern: Vec<u8> = (0..bytes).map(|k| (k * 31 % 251) as u8).collect();
    let server = namespaces.addressing().own(Side::Server);
    let listener = namespaces.within(Side::Server, || TcpListener::bind((server, 0)).unwrap()).unwrap();
    let address = namespaces.dialled(listener.local_addr().unwrap());
    let serve = || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut all = Vec::new();
        socket.read_to_end(&mut all).unwrap();
        socket.write_all(&all).unwrap();
    };
    std::thread::scope(|scope| {
        scope.spawn(serve);
        let mut socket = namespaces.within(Side::Client, || TcpStream::connect(address).unwrap()).unwrap();
        socket.write_all(&pattern).unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        let mut back = Vec::new();
        socket.read_to_end(&mut back).unwrap();
        assert!(back == pattern, "{} of {bytes} bytes came back as they were", back.len());
    });
}

fn a_bulk_transfer_crosses_a_lossy_link_unchanged() {
    let namespaces = lab(&spec("bbr"));
    let link = LinkSpec::symmetric(impairment(Duration::from_millis(1), 0.01));
    let cpu = allowed_cpus().unwrap().last().copied();
    let pump = Pump::start(&namespaces, &link, 3, PumpOptions { cpu, ..PumpOptions::default() }).unwrap();
    exchange(&namespaces, 4 << 20);
    let result = pump.stop().unwrap();
    check(&result);
    assert_eq!(result.cpu, cpu);
    assert!(result.summary.up.lost > 0 && result.summary.down.lost > 0, "{:?}", result.summary);
    let port = result.packets[0].server_port;
    assert!(
        result.packets.iter().all(|packet| packet.server_port == port),
        "both directions name the server's port"
    );
}

/// Without loss, bandwidth or queue: then the kernel sends super-packets as large as allowed.
fn super_packets_cross_as_packets_of_the_wire() {
    super_packets_cross(&spec("cubic"));
}

fn super_packets_of_ipv6_do_too_and_nothing_else_uses_the_link() {
    super_packets_cross(&TopologySpec { ipv6: true, ..spec("cubic") });
}

fn super_packets_cross(spec: &TopologySpec) {
    let namespaces = lab(spec);
    let pump = start(&namespaces, &LinkSpec::symmetric(impairment(Duration::from_millis(1), 0.0)), 3);
    exchange(&namespaces, 4 << 20);
    let result = pump.stop().unwrap();
    check(&result);
    let port = result.packets[0].server_port;
    assert!(result.packets.iter().all(|packet| packet.server_port == port), "announcements are not carried");
    for direction in [Direction::Up, Direction::Down] {
        let packets: Vec<_> = result.packets.iter().filter(|packet| packet.direction == direction).collect();
        let together = packets.windows(2).filter(|pair| pair[0].at == pair[1].at).count();
        assert!(
            together > packets.len() / 4,
            "{together} of {} packets came in super-packets",
            packets.len()
        );
        let bytes: u64 = packets.iter().map(|packet| u64::from(packet.payload)).sum();
        assert!(bytes >= 4 << 20, "{bytes} bytes");
        let mut data = packets.iter().filter(|packet| packet.payload > 0);
        let first = data.next().unwrap();
        let mut end = first.seq.wrapping_add(first.payload);
        for packet in data {
            // A segment that is not a retransmission begins where the last one ended: none is cut wrongly.
            let ahead = packet.seq.wrapping_sub(end).cast_signed();
            assert!(ahead <= 0, "{packet:?} enters {ahead} bytes too early");
            let beyond = ahead + packet.payload.cast_signed();
            end = end.wrapping_add_signed(beyond.max(0));
        }
    }
}

/// One super-packet of datagrams: UDP's segmentation offload.
fn datagrams_of_a_super_packet_meet_the_loss_model_one_by_one() {
    const SIZE: u16 = 100;
    const N: u64 = 40;
    let (link, seed) = (LinkSpec::symmetric(impairment(Duration::ZERO, 0.3)), 11);
    let expected: Vec<u64> = survivors(&link, seed, N).into_iter().collect();
    let namespaces = lab(&TopologySpec::default());
    let pump = start(&namespaces, &link, seed);
    let bind = |side: Side| move || UdpSocket::bind((side.address(), 0)).unwrap();
    let receiver = namespaces.within(Side::Server, bind(Side::Server)).unwrap();
    let sender = namespaces.within(Side::Client, bind(Side::Client)).unwrap();
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let size = i32::from(SIZE);
    // SAFETY: UDP_SEGMENT takes an int, which outlives the call.
    let result = unsafe {
        libc::setsockopt(sender.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, (&raw const size).cast(), 4)
    };
    assert_eq!(result, 0, "this kernel cuts datagrams");
    let payload: Vec<u8> = (0..N).flat_map(|number| [number as u8; SIZE as usize]).collect();
    sender.send(&payload).unwrap();
    let mut buffer = [0; 2000];
    for number in &expected {
        let n = receive(&receiver, &mut buffer);
        assert_eq!(buffer[..n], [*number as u8; SIZE as usize]);
    }
    let result = pump.stop().unwrap();
    check(&result);
    assert_eq!((result.summary.up.packets_in, result.summary.up.delivered), (N, expected.len() as u64));
}

/// Packets sent without a pump are lost, and use no draw of the next pump's loss model.
fn a_second_pump_starts_with_an_empty_link() {
    let namespaces = lab(&TopologySpec::default());
    start(&namespaces, &LinkSpec::default(), 1).stop().unwrap();
    let sender =
        namespaces.within(Side::Client, || UdpSocket::bind((Side::Client.address(), 0)).unwrap()).unwrap();
    sender.send_to(b"lost", (Side::Server.address(), 9)).unwrap();
    let result = start(&namespaces, &LinkSpec::default(), 1).stop().unwrap();
    check(&result);
    assert_eq!((result.summary.up.packets_in, result.summary.down.packets_in), (0, 0));
}

/// Permanently drops capabilities of this process, as a container may.
pub fn give_up(capabilities: CapabilitySet) {
    let mut sets = rustix::thread::capabilities(None).unwrap();
    for set in [&mut sets.effective, &mut sets.permitted, &mut sets.inheritable] {
        set.remove(capabilities);
    }
    rustix::thread::set_capabilities(None, sets).unwrap();
}

fn a_machine_without_either_mechanism_names_both() {
    enter().unwrap();
    // A device that cannot be opened, in this process's own mount namespace.
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    mount_change("/", private).unwrap();
    mount_bind("/dev/null", "/dev/net/tun").unwrap();
    give_up(CapabilitySet::NET_RAW);
    let error = Namespaces::create(&TopologySpec::default()).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("cannot open a packet socket with a ring"), "{text}");
    assert!(text.contains("cannot create a TUN device"), "{text}");
    assert!(error.remedy().is_some() && !error.is_input(), "{error:?}");
}

fn a_full_queue_drops_its_tail_and_tcp_recovers() {
    let namespaces = lab(&spec("cubic"));
    let narrow = Impairment {
        bandwidth: Some("20mbit".parse().unwrap()),
        queue_bytes: Some(20_000),
        ..impairment(Duration::from_millis(5), 0.0)
    };
    let pump = start(&namespaces, &LinkSpec::symmetric(narrow), 3);
    let started = Instant::now();
    exchange(&namespaces, 1 << 20);
    let took = started.elapsed();
    let result = pump.stop().unwrap();
    check(&result);
    assert!(result.summary.up.tail_dropped > 0 && result.summary.up.lost == 0, "{:?}", result.summary.up);
    // 2 MiB at 20 Mbit/s: the link is never faster than configured.
    assert!(took >= Duration::from_millis(838), "{took:?}");
}

fn codel_drops_from_a_queue_that_stands_and_tcp_recovers() {
    // CUBIC may leave slow start as soon as the round trips get longer (HyStart), before any queue stands.
    let namespaces = lab(&spec("reno"));
    let shaped = Impairment {
        bandwidth: Some("20mbit".parse().unwrap()),
        queue_bytes: Some(4 << 20),
        queue_discipline: QueueDiscipline::CODEL,
        ..impairment(Duration::from_millis(5), 0.0)
    };
    let pump = start(&namespaces, &LinkSpec::symmetric(shaped), 3);
    exchange(&namespaces, 4 << 20);
    let result = pump.stop().unwrap();
    check(&result);
    let up = result.summary.up;
    assert!(up.codel_dropped > 0 && up.lost == 0 && up.tail_dropped == 0, "{up:?}");
}

/// A counter of a side's kernel: `file` below `/proc/net`, the line that begins with `protocol`, the column `name`.
fn counter(namespaces: &Namespaces, side: Side, file: &str, protocol: &str, name: &str) -> u64 {
    let output = namespaces.command(side, "cat").arg(format!("/proc/net/{file}")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with(&format!("{protocol}: ")));
    let [names, values] = [lines.next(), lines.next()].map(|line| line.expect("two lines a protocol"));
    let place =
        names.split_whitespace().position(|column| column == name).expect("the kernel has this counter");
    values.split_whitespace().nth(place).unwrap().parse().unwrap()
}

/// Exchanges a megabyte over a link of 2 ms each way, with this impairment in both directions.
fn exchange_over(other: &Impairment) -> (Namespaces, LinkResult) {
    let namespaces = lab(&spec("bbr"));
    let link = LinkSpec::symmetric(Impairment { delay: Duration::from_millis(2), ..other.clone() });
    let pump = start(&namespaces, &link, 3);
    exchange(&namespaces, 1 << 20);
    let result = pump.stop().unwrap();
    check(&result);
    (namespaces, result)
}

fn packets_out_of_order_are_put_in_order_by_the_receiver() {
    let reorder = "5%:3ms".parse().unwrap();
    let (namespaces, result) = exchange_over(&Impairment { reorder, ..Impairment::default() });
    assert!(result.summary.up.reordered > 0, "{:?}", result.summary.up);
    let mut up: Vec<_> = result.packets.iter().filter(|packet| packet.direction == Direction::Up).collect();
    up.retain(|packet| packet.fate == PacketFate::Delivered);
    assert!(!up.is_sorted_by_key(|packet| packet.out_at), "packets were overtaken");
    up.retain(|packet| !packet.marks.is_reordered);
    assert!(up.is_sorted_by_key(|packet| packet.out_at), "the others kept their order");
    assert!(counter(&namespaces, Side::Server, "netstat", "TcpExt", "TCPOFOQueue") > 0);
}

fn copies_arrive_twice_and_the_receiver_says_so() {
    let duplicate = Ratio::new(0.1).unwrap();
    let (namespaces, result) = exchange_over(&Impairment { duplicate, ..Impairment::default() });
    let up = result.summary.up;
    assert!(up.duplicated > 0 && up.delivered + up.in_flight == up.packets_in + up.duplicated, "{up:?}");
    // A duplicate SACK (RFC 2883) for data that arrived again.
    assert!(counter(&namespaces, Side::Server, "netstat", "TcpExt", "TCPDSACKOldSent") > 0);
}

fn the_receiver_counts_each_corrupt_packet_and_takes_none() {
    let corrupt = Ratio::new(0.03).unwrap();
    let (namespaces, result) = exchange_over(&Impairment { corrupt, ..Impairment::default() });
    for (side, direction) in [(Side::Server, Direction::Up), (Side::Client, Direction::Down)] {
        let is_counted = |packet: &&PacketRecord| {
            let came = packet.direction == direction && packet.fate == PacketFate::Delivered;
            came && packet.marks.corrupt.is_some()
        };
        let sent = result.packets.iter().filter(is_counted).count() as u64;
        assert!(sent > 0, "{:?}", result.summary);
        assert_eq!(counter(&namespaces, side, "snmp", "Tcp", "InCsumErrors"), sent, "{direction:?}");
    }
}

fn a_connection_whose_syn_the_script_drops_takes_a_second_longer() {
    let namespaces = lab(&spec("cubic"));
    let mut link = LinkSpec::symmetric(impairment(Duration::from_millis(1), 0.0));
    link.uplink.script = vec!["syn 1 of flow 1".parse().unwrap()];
    let pump = start(&namespaces, &link, 3);
    let listen = || TcpListener::bind((Side::Server.address(), 0)).unwrap();
    let listener = namespaces.within(Side::Server, listen).unwrap();
    let address = listener.local_addr().unwrap();
    let connect = || {
        let started = Instant::now();
        let socket = TcpStream::connect(address).unwrap();
        (started.elapsed(), socket)
    };
    let (first, _socket) = namespaces.within(Side::Client, connect).unwrap();
    let (_second, _other) = namespaces.within(Side::Client, connect).unwrap();
    drop(listener);
    let result = pump.stop().unwrap();
    check(&result);
    // The initial retransmission timeout (RFC 6298 §2.1).
    assert!(first >= Duration::from_millis(990), "{first:?}");
    let up: Vec<_> = result.packets.iter().filter(|packet| packet.direction == Direction::Up).collect();
    assert_eq!((up[0].fate, up[1].fate), (PacketFate::Scripted, PacketFate::Delivered));
    assert_eq!((up[0].client_port, up[0].seq), (up[1].client_port, up[1].seq), "the same SYN again");
    assert_eq!(result.summary.up.scripted, 1, "and the second connection has all its packets");
}

fn a_program_started_by_a_user_has_no_capabilities() {
    let is_root = enter().unwrap().is_root();
    let namespaces = Namespaces::create(&TopologySpec::default()).unwrap();
    let output = namespaces.command(Side::Server, "cat").arg("/proc/self/status").output().unwrap();
    let status = String::from_utf8(output.stdout).unwrap();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap().trim();
    assert_eq!(u64::from_str_radix(effective, 16).unwrap() != 0, is_root, "{status}");
}

fn the_status_of_the_first_process_is_passed_on() {
    if std::env::var(MARK).is_ok() {
        enter().unwrap();
        std::process::exit(7);
    }
    assert_eq!(again().env(MARK, "status").status().unwrap().code(), Some(7));
}

fn namespaces_are_not_entered_with_threads_running() {
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || stopped.recv());
    assert!(matches!(enter(), Err(TopologyError::ThreadsRunning { threads: 2 })));
    drop(stop);
    let _ = thread.join();
}

/// This process's program again, with this process's case.
pub fn again() -> Command {
    Command::new(std::env::current_exe().unwrap())
}

/// Marks a lab's processes in their environment.
pub const MARK: &str = "H2LAB_TOPOLOGY_MARK";

/// Processes whose environment contains `mark`.
pub fn marked(mark: &str) -> Vec<u32> {
    let mark = format!("{MARK}={mark}");
    let is_marked = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes())
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_marked).collect()
}

/// A lab with a pump and a program on each side, which reports ready and waits to be killed.
fn live_until_killed() {
    let namespaces = lab(&TopologySpec::default());
    let _pump = start(&namespaces, &LinkSpec::default(), 1);
    let mut programs = Side::BOTH.map(|side| namespaces.command(side, "sleep").arg("1000").spawn().unwrap());
    println!("ready");
    programs[0].wait().unwrap();
}

/// Starts a lab, kills the process of it that `victim` picks, and waits until all of it is gone.
fn kill_and_look(victim: impl Fn(&[u32], u32) -> u32) {
    if std::env::var(MARK).is_ok() {
        return live_until_killed();
    }
    let mark = format!("{}", std::process::id());
    let mut lab = again().env(MARK, &mark).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(lab.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line.trim(), "ready");
    let alive = marked(&mark);
    assert_eq!(alive.len(), 4, "the waiting process, the first process, and two programs");
    let victim = victim(&alive, lab.id());
    let pid = rustix::process::Pid::from_raw(victim.cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let status = lab.wait().unwrap();
    assert!(status.signal() == Some(9) || status.code() == Some(128 + 9), "{status}");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !marked(&mark).is_empty() {
        assert!(Instant::now() < deadline, "still there: {:?}", marked(&mark));
        std::thread::yield_now();
    }
}

fn killing_the_waiting_process_leaves_nothing_behind() {
    kill_and_look(|_, lab| lab);
}

fn killing_the_first_process_leaves_nothing_behind() {
    let parent_of = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse::<u32>().ok())
    };
    kill_and_look(|alive, lab| alive.iter().copied().find(|&pid| parent_of(pid) == Some(lab)).unwrap());
}

fn the_doctor_finds_that_a_run_is_possible_here() {
    let examination = examine().unwrap();
    let root = examination.root.clone().unwrap_or_default();
    let user = examination.user.expect("this user, or nobody if this is root");
    for check in user.iter().chain(&root) {
        assert!(check.is_fine() || !check.is_required(), "{check:?}");
        assert!(!check.consequence.is_empty() && !check.still_works.is_empty(), "{check:?}");
    }
    for (id, works) in [("packet-ring", true), ("tun", may_open_tun())] {
        assert!(user.iter().any(|check| check.id == id && check.is_fine() == works), "{id}: {user:?}");
    }
    let available = available_congestion();
    for check in user.iter().filter(|check| check.id.starts_with("congestion-")) {
        let name = check.id.trim_start_matches("congestion-");
        assert_eq!(check.is_fine(), available.iter().any(|a| a == name), "{check:?}");
    }
    assert_eq!(
        root.first().is_some_and(|check| matches!(check.status, StepStatus::NotNeeded { .. })),
        !root.is_empty()
    );
    assert!(fs::read_dir("/sys/class/net").unwrap().flatten().all(|device| device.file_name() != "client"));
}

/// Only as root: a user has every capability in a user namespace of its own.
fn the_doctor_finds_that_tun_devices_are_enough() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    give_up(CapabilitySet::NET_RAW);
    let checks = examine().unwrap().root.unwrap();
    let find = |id: &str| checks.iter().find(|check| check.id == id).unwrap();
    assert!(matches!(find("packet-ring").status, StepStatus::Failed { .. }), "{checks:?}");
    assert!(find("packet-ring").remedy.is_some());
    assert!(find("tun").is_fine() && find("connection").is_fine(), "{checks:?}");
    assert!(checks.iter().all(|check| check.is_fine() || !check.is_required()), "{checks:?}");
}

fn a_machine_without_namespaces_learns_what_to_change() {
    /// The script of such a machine: a user namespace in which no further one may be made, and no capabilities.
    const MACHINE: &str =
        "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all";
    if std::env::var(MARK).is_ok() {
        let error = enter().unwrap_err();
        assert!(error.to_string().starts_with("cannot create a user namespace: "), "{error}");
        assert!(error.remedy().unwrap().contains("sysctl -w user.max_user_namespaces="), "{error:?}");
        let examination = examine().unwrap();
        let checks = examination.root.or(examination.user).unwrap();
        let find = |id: &str| checks.iter().find(|check| check.id == id).unwrap();
        assert!(matches!(find("user-namespace").status, StepStatus::Failed { .. }));
        assert!(find("user-namespace").remedy.is_some());
        for id in ["network-namespace", "veth", "packet-ring", "connection"] {
            assert_eq!(find(id).status, StepStatus::Blocked { by: "user-namespace".to_owned() });
        }
        assert!(find("death-signal").is_fine());
        return;
    }
    let program = std::env::current_exe().unwrap();
    let shell = format!("{MACHINE} {}", program.display());
    let status =
        Command::new("unshare").args(["-U", "-r", "sh", "-c", &shell]).env(MARK, "bare").status().unwrap();
    assert!(status.success());
}

//! Network namespaces in a star: a hub in which NATS and drivers run, and a node for each agent and for the origin.
//!
//! ```text
//!   node 1  10.77.1.2 ── veth ── 10.77.1.1 ┐
//!   node 2  10.77.2.2 ── veth ── 10.77.2.1 ┼ hub 10.77.0.1, which forwards
//!   …                                      ┘
//! ```
//!
//! A namespace lasts as long as the process that holds it, and that ends with this one, however it ends: nothing is left behind.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::process;
use crate::verify::started::Started;

/// Where the hub is reached from every node.
pub const HUB: &str = "10.77.0.1";

/// Far above what a namespace takes: only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(30);

/// A network namespace.
#[derive(Debug)]
pub struct Namespace {
    holder: Started,
}

impl Namespace {
    /// A new one, whose loopback device is up. `folder` gets what its holder says.
    pub fn new(folder: &Path, name: &str) -> Result<Self> {
        const HOLD: &str = "ip link set lo up && echo ready && exec sleep infinity";
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "unshare", "--net", "sh", "-c", HOLD]);
        let mut holder = Started::begin(&mut command, folder, &format!("{name}-namespace"))?;
        let is_there = holder.until(DEADLINE, |holder| holder.stdout().contains("ready"))?;
        ensure!(is_there, "no network namespace for {name}: {}", holder.stderr().trim());
        Ok(Self { holder })
    }

    /// A command that runs `program` here, as the process that is started and no other. It ends with this process.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "nsenter"])
            .arg(format!("--net=/proc/{}/ns/net", self.holder.id()));
        command.arg("--").arg(program);
        command
    }

    /// Runs a script of sh here to its end.
    pub fn sh(&self, script: &str) -> Result<String> {
        process::said(self.command("sh").args(["-euc", script])).with_context(|| script.to_owned())
    }
}

/// What a device has received and sent, by proc(5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Bytes received, with the headers of packets.
    pub received_bytes: u64,
    /// Packets received; segments that the kernel has not cut yet are one.
    pub received_packets: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Packets sent.
    pub sent_packets: u64,
}

impl Counters {
    /// Those of `device` in the text of `/proc/net/dev`.
    pub fn read(text: &str, device: &str) -> Result<Self> {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(device)?.strip_prefix(':'));
        let line = line.with_context(|| format!("there is no device {device}"))?;
        let numbers: Vec<u64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
        ensure!(numbers.len() >= 16, "`{line}` is not a line of /proc/net/dev");
        Ok(Self {
            received_bytes: numbers[0],
            received_packets: numbers[1],
            sent_bytes: numbers[8],
            sent_packets: numbers[9],
        })
    }

    /// What was counted since `before`.
    pub const fn since(self, before: Self) -> Self {
        Self {
            received_bytes: self.received_bytes.saturating_sub(before.received_bytes),
            received_packets: self.received_packets.saturating_sub(before.received_packets),
            sent_bytes: self.sent_bytes.saturating_sub(before.sent_bytes),
            sent_packets: self.sent_packets.saturating_sub(before.sent_packets),
        }
    }
}

/// The hub and its nodes.
#[derive(Debug)]
pub struct Network {
    hub: Namespace,
    nodes: Vec<(String, Namespace)>,
}

impl Network {
    /// A star with a node of each name.
    pub fn new(folder: &Path, names: &[&str]) -> Result<Self> {
        ensure!(process::is_root(), "namespaces between which packets pass take root");
        let hub = Namespace::new(folder, "hub")?;
        hub.sh(&format!("ip addr add {HUB}/32 dev lo; echo 1 >/proc/sys/net/ipv4/ip_forward"))?;
        let mut nodes = Vec::new();
        for (n, name) in (1..).zip(names) {
            let node = Namespace::new(folder, name)?;
            let holder = node.holder.id();
            hub.sh(&format!(
                "ip link add name v{n} type veth peer name eth0 netns {holder}; ip addr add 10.77.{n}.1/24 dev v{n}; \
                 ip link set v{n} up"
            ))?;
            node.sh(&format!(
                "ip addr add {}/24 dev eth0; ip link set eth0 up; ip route add default via 10.77.{n}.1",
                address(n)
            ))?;
            nodes.push(((*name).to_owned(), node));
        }
        Ok(Self { hub, nodes })
    }

    /// Where NATS and drivers run.
    pub const fn hub(&self) -> &Namespace {
        &self.hub
    }

    /// The node of this name, with its address.
    pub fn node(&self, name: &str) -> Result<(&Namespace, String)> {
        let mut nodes = (1..).zip(&self.nodes);
        let node = nodes.find(|(_, (known, _))| known == name);
        let (n, (_, node)) = node.with_context(|| format!("there is no node {name}"))?;
        Ok((node, address(n)))
    }
}

/// The address of the n-th node, from 1 on.
fn address(n: u32) -> String {
    format!("10.77.{n}.2")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICES: &str = "Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     100       1    0    0    0     0          0         0      100       1    0    0    0     0       0          0
  eth0: 1000000     700    0    0    0     0          0         0    50000     600    0    0    0     0       0          0
";

    #[test]
    fn counters_of_a_device_are_read_and_a_device_that_is_not_there_is_an_error() {
        let counters = Counters::read(DEVICES, "eth0").unwrap();
        let expected = Counters {
            received_bytes: 1_000_000,
            received_packets: 700,
            sent_bytes: 50_000,
            sent_packets: 600,
        };
        assert_eq!(counters, expected);
        assert!(Counters::read(DEVICES, "eth1").is_err() && Counters::read("eth0: 1 2\n", "eth0").is_err());
        assert_eq!(counters.since(counters), Counters::default());
    }
}

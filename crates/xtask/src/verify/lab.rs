//! Other people's programs inside a lab: the client's and the server's namespace with the emulated link between them.
//!
//! Everything that items know of `h2lab link` is here.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::binary::H2lab;

/// The server's name inside a lab.
pub const SERVER: &str = "server";

/// Both directions of the link alike.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    /// One-way delay, as a flag would have it.
    pub delay: &'static str,
    /// Share of packets that are lost independently, such as `3%`.
    pub loss: &'static str,
}

/// Totals of one direction of the packet log.
#[derive(Debug, Deserialize)]
pub struct Direction {
    /// Packets that entered.
    pub packets_in: u64,
    /// Packets that the loss model took.
    pub lost: u64,
}

/// The link's own account.
#[derive(Debug, Deserialize)]
pub struct Summary {
    /// Client to server.
    pub up: Direction,
    /// Server to client.
    pub down: Direction,
    /// How late packets left: 99th percentile in nanoseconds.
    pub late_p99_ns: u64,
    /// Packets that the kernel dropped at our devices.
    pub device_drops: u64,
}

/// What `h2lab link --json` prints.
#[derive(Debug, Deserialize)]
struct Document {
    client_exit_code: u8,
    summary: Summary,
}

/// What came of it.
#[derive(Debug)]
pub struct LabRun {
    /// What the client's command printed.
    pub client: String,
    /// Its exit code.
    pub status: u8,
    /// What the link did.
    pub link: Summary,
    /// Direction (`up`, `down`) and index of every packet that the loss model took.
    pub lost: BTreeSet<(String, u64)>,
}

/// Runs `client`, a command of the shell, in the client's namespace. The server's namespace runs nothing: its kernel answers
/// pings.
pub fn run(h2lab: &H2lab, link: Link, seed: u64, client: &str) -> Result<LabRun> {
    let folder = tempfile::tempdir()?;
    let packets = folder.path().join("packets.csv");
    let words = [
        "link".to_owned(),
        "--json".to_owned(),
        format!("--delay={}", link.delay),
        format!("--loss={}", link.loss),
        "--congestion=cubic".to_owned(),
        format!("--seed={seed}"),
        format!("--packets={}", packets.display()),
        format!("--client={client}"),
    ];
    let run = h2lab.run(folder.path(), &words, "")?;
    let document: Document =
        serde_json::from_str(&run.stdout).with_context(|| format!("h2lab link: {}", run.stderr))?;
    let lost = lost(&std::fs::read_to_string(&packets)?);
    Ok(LabRun { client: run.stderr, status: document.client_exit_code, link: document.summary, lost })
}

/// Direction and index of the lost packets in the packet log of `--packets`.
fn lost(csv: &str) -> BTreeSet<(String, u64)> {
    let packet = |line: &str| {
        let mut cells = line.split(',').skip(2);
        let (direction, index, fate) = (cells.next()?, cells.next()?.parse().ok()?, cells.next()?);
        (fate == "lost").then(|| (direction.to_owned(), index))
    };
    csv.lines().skip(1).filter_map(packet).collect()
}

/// The replies in the output of ping, as (sequence number, milliseconds).
pub fn replies(ping: &str) -> Vec<(u64, f64)> {
    let field = |line: &str, name: &str| Some(line.split(name).nth(1)?.split_whitespace().next()?.to_owned());
    ping.lines()
        .filter_map(|line| {
            Some((field(line, "icmp_seq=")?.parse().ok()?, field(line, "time=")?.parse().ok()?))
        })
        .collect()
}

/// `(transmitted, received)` over all summaries in the output of one or several pings.
pub fn totals(ping: &str) -> (u64, u64) {
    let counts = ping.lines().filter_map(|line| {
        let (transmitted, rest) = line.split_once(" packets transmitted, ")?;
        Some((transmitted.trim().parse::<u64>().ok()?, rest.split_once(" received")?.0.parse::<u64>().ok()?))
    });
    counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: &str = "PING 10.9.0.2 (10.9.0.2) 56(84) bytes of data.
64 bytes from 10.9.0.2: icmp_seq=1 ttl=64 time=25.1 ms
64 bytes from 10.9.0.2: icmp_seq=3 ttl=64 time=25.3 ms

--- 10.9.0.2 ping statistics ---
3 packets transmitted, 2 received, 33.3333% packet loss, time 21ms
rtt min/avg/max/mdev = 25.100/25.200/25.300/0.100 ms
";

    #[test]
    fn ping_is_read() {
        assert_eq!(replies(PING), [(1, 25.1), (3, 25.3)]);
        assert_eq!(totals(PING), (3, 2));
        assert_eq!(totals(&PING.repeat(4)), (12, 8));
    }

    #[test]
    fn lost_packets_are_read_from_the_packet_log() {
        let csv =
            "at_s,out_s,direction,index,fate,client_port\n0.1,0.2,up,0,delivered,0\n0.1,,down,7,lost,0\n";
        assert_eq!(lost(csv), BTreeSet::from([("down".to_owned(), 7)]));
    }
}

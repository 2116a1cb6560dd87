//! Other people's programs inside a lab: the client's and the server's namespace with the emulated link between them.
//!
//! Everything that items know of the developer's subcommand `h2lab __lab` stands here.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};

use super::binary::H2lab;

/// The server's address inside a lab; names do not resolve there.
pub const SERVER: &str = "10.9.0.2";

/// Both directions of the link alike.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    /// One-way delay, as a flag would have it.
    pub delay: &'static str,
    /// Share of packets that are lost independently, such as `3%`.
    pub loss: &'static str,
}

impl Link {
    fn json(self) -> Value {
        let loss = match self.loss {
            "0%" => json!({"model": "none"}),
            share => json!({"model": "bernoulli", "p": share}),
        };
        let direction = json!({"delay": self.delay, "loss": loss});
        json!({"uplink": direction, "downlink": direction})
    }
}

/// Totals of one direction of the ledger.
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

/// The last line that a lab prints.
#[derive(Debug, Deserialize)]
struct Report {
    /// The client's exit code; null after a signal.
    status: Option<i32>,
    link: Summary,
    /// Direction, index and fate of every packet.
    fates: Vec<(String, u64, String)>,
}

/// What came of it.
#[derive(Debug)]
pub struct LabRun {
    /// What the client's command printed.
    pub client: String,
    /// Its exit code; `None` after a signal.
    pub status: Option<i32>,
    /// What the link did.
    pub link: Summary,
    /// Direction (`up`, `down`) and index of every packet that the loss model took.
    pub lost: BTreeSet<(String, u64)>,
}

/// Runs `client` in the client's namespace of a lab. The server's namespace runs nothing: its kernel answers pings.
pub fn run(h2lab: &H2lab, link: Link, seed: u64, client: &[&str]) -> Result<LabRun> {
    let wish = json!({"task": "commands", "link": link.json(), "congestion": "cubic", "seed": seed, "client": client});
    let folder = tempfile::tempdir()?;
    let run = h2lab.run(folder.path(), &["__lab".to_owned()], &format!("{wish}\n"))?;
    if run.code != Some(0) {
        bail!("`h2lab __lab` ended with {:?}: {}", run.code, run.stderr.trim());
    }
    let (client, report) = split(&run.stdout)?;
    let report: Report =
        serde_json::from_str(report).with_context(|| format!("the lab's last line is `{report}`"))?;
    let lost = report.fates.into_iter().filter(|(.., fate)| fate == "lost");
    let lost = lost.map(|(direction, index, _)| (direction, index)).collect();
    Ok(LabRun { client: client.to_owned(), status: report.status, link: report.link, lost })
}

/// The client's lines, and the last line: the report.
fn split(stdout: &str) -> Result<(&str, &str)> {
    let text = stdout.trim_end();
    let report = text.lines().last().context("`h2lab __lab` printed nothing")?;
    Ok((&text[..text.len() - report.len()], report))
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
    fn the_report_is_the_last_line() {
        assert_eq!(split("a\nb\n{}\n").unwrap(), ("a\nb\n", "{}"));
        assert!(split("").is_err());
    }

    #[test]
    fn no_loss_is_a_model_of_its_own() {
        let model = |loss| Link { delay: "0ms", loss }.json()["uplink"]["loss"]["model"].clone();
        assert_eq!((model("0%"), model("3%")), (json!("none"), json!("bernoulli")));
    }
}

//! `cargo xtask bench link`: what the emulated link carries, measured by iperf3 through `h2lab link`.
//!
//! There is no peer to compare with: `sch_netem` is not in every kernel, and the configured bandwidth is itself the
//! reference. Each [`LinkGate`] is run in several rounds, in turn with the others; what is judged is the median.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::ratio::middle;
use super::{Arguments, need};
use crate::verify::binary::H2lab;

/// The default number of rounds.
const ROUNDS: u32 = 3;
/// The program that measures, and its Debian package.
const IPERF: &[(&str, &str)] = &[("iperf3", "iperf3")];
/// Payload and size at the network layer of a full segment over IPv4, with timestamps: the link counts the latter.
const SEGMENT: (f64, f64) = (1448.0, 1500.0);

/// A link, and what one TCP connection must get through it.
struct LinkGate {
    /// How `--only` selects it.
    id: &'static str,
    claim: &'static str,
    /// Flags of `h2lab link`.
    link: &'static [&'static str],
    /// Flags of iperf3's client.
    iperf: &'static str,
    /// What must be carried, in Gbit/s at the network layer, at least and at most.
    limits: (f64, f64),
    /// The least that we want.
    aim: f64,
}

/// Socket buffers for BBR's STARTUP, which needs 2.89 bandwidth-delay products in flight: 3.6 MB. In the kernel's own 4
/// MiB, of which half is overhead, the sender runs out of data. The kernel then takes its rounds for those of an
/// application that has little to send. So BBR stays in STARTUP for 0.5 to 5 s and more, and overflows the queue by 14
/// % (`results/2026-11-22-2-cpus/verify-chaos.md`). That is not a property of the link.
const BUFFERS: [&str; 2] = [
    "--sysctl-client=net.ipv4.tcp_wmem=4096 16384 33554432",
    "--sysctl-server=net.ipv4.tcp_rmem=4096 131072 33554432",
];

const GATES: &[LinkGate] = &[
    LinkGate {
        id: "plain",
        claim: "no impairment, cubic",
        link: &["--loss=0%", "--delay=0ms", "--congestion=cubic"],
        iperf: "-t 4",
        limits: (4.0, f64::INFINITY),
        aim: 14.0,
    },
    LinkGate {
        id: "ipv6",
        claim: "the same over IPv6",
        link: &["--ipv6", "--loss=0%", "--delay=0ms", "--congestion=cubic"],
        iperf: "-6 -t 4",
        limits: (4.0, f64::INFINITY),
        aim: 14.0,
    },
    LinkGate {
        id: "shaped-1g",
        claim: "1 Gbit/s, 5 ms each way, bbr, the last 10 of 15 s",
        link: &["--loss=0%", "--delay=5ms", "--bandwidth=1gbit", "--congestion=bbr", BUFFERS[0], BUFFERS[1]],
        iperf: "-O 5 -t 10",
        limits: (0.97, 1.03),
        aim: 0.97,
    },
    LinkGate {
        id: "captured-1g",
        claim: "the same with `--pcap`, the last 5 of 10 s",
        link: &[
            "--loss=0%",
            "--delay=5ms",
            "--bandwidth=1gbit",
            "--congestion=bbr",
            BUFFERS[0],
            BUFFERS[1],
            "--pcap=link.pcapng",
        ],
        iperf: "-O 5 -t 5",
        limits: (0.97, 1.03),
        aim: 0.97,
    },
    LinkGate {
        id: "shaped-10g",
        claim: "10 Gbit/s, 0.5 ms each way, cubic",
        link: &["--loss=0%", "--delay=0.5ms", "--bandwidth=10gbit", "--queue=5MB", "--congestion=cubic"],
        iperf: "-O 1 -t 5",
        limits: (8.5, 10.3),
        aim: 9.5,
    },
];

/// The part of `h2lab link --json` that is read.
#[derive(Debug, Deserialize)]
struct Document {
    client_exit_code: u8,
    summary: Summary,
}

#[derive(Debug, Deserialize)]
struct Summary {
    mechanism: String,
    up: Direction,
    down: Direction,
    late_p50_ns: u64,
    late_p99_ns: u64,
    late_max_ns: u64,
    cpu_ns: u64,
    wall_ns: u64,
    device_drops: u64,
}

#[derive(Debug, Deserialize)]
struct Direction {
    packets_in: u64,
}

/// The part of `iperf3 --json` that is read.
#[derive(Debug, Deserialize)]
struct Iperf {
    end: End,
}

#[derive(Debug, Deserialize)]
struct End {
    sum_sent: Sent,
    sum_received: Received,
}

#[derive(Debug, Deserialize)]
struct Sent {
    retransmits: u64,
}

#[derive(Debug, Deserialize)]
struct Received {
    bits_per_second: f64,
}

/// The figures of one run.
#[derive(Debug)]
struct LinkFigures {
    /// Carried, in Gbit/s at the network layer.
    gbit: f64,
    retransmits: u64,
    link: Summary,
}

impl LinkFigures {
    fn measure(gate: &LinkGate, h2lab: &H2lab) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut words: Vec<String> =
            ["link", "--json", "--server=iperf3 -s -1", "--server-log=server.log"].map(str::to_owned).into();
        words.extend(gate.link.iter().map(|&word| word.to_owned()));
        words.push(format!("--client=iperf3 --json -c server {}", gate.iperf));
        let run = h2lab.run(folder.path(), &words, "")?;
        let document: Document =
            serde_json::from_str(&run.stdout).with_context(|| format!("h2lab link: {}", run.stderr))?;
        ensure!(document.client_exit_code == 0, "iperf3: {}", run.stderr);
        let iperf: Iperf = serde_json::from_str(&run.stderr).context("the report of iperf3")?;
        let goodput = iperf.end.sum_received.bits_per_second;
        Ok(Self {
            gbit: goodput / 1e9 * SEGMENT.1 / SEGMENT.0,
            retransmits: iperf.end.sum_sent.retransmits,
            link: document.summary,
        })
    }

    /// Nanoseconds of the pump's CPU per packet of the wire.
    fn ns_per_packet(&self) -> f64 {
        self.link.cpu_ns as f64 / (self.link.up.packets_in + self.link.down.packets_in).max(1) as f64
    }
}

/// Runs the gates that `--only` selects, prints them, and records them; fails if a limit does not hold.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    need(IPERF)?;
    let wanted =
        |id: &str| arguments.only.is_empty() || arguments.only.iter().any(|only| id.starts_with(only));
    let gates: Vec<&LinkGate> = GATES.iter().filter(|gate| wanted(gate.id)).collect();
    if gates.is_empty() {
        bail!(
            "nothing begins with that; there are {}",
            GATES.iter().map(|gate| gate.id).collect::<Vec<_>>().join(", ")
        );
    }
    let h2lab = H2lab::build()?;
    let rounds = arguments.rounds.unwrap_or(ROUNDS);
    let mut all: Vec<Vec<LinkFigures>> = gates.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for (gate, figures) in gates.iter().zip(&mut all) {
            figures.push(LinkFigures::measure(gate, &h2lab).context(gate.id)?);
        }
    }
    let mut table = HEAD.to_owned();
    let mut held = true;
    for (gate, figures) in gates.iter().zip(&all) {
        let (line, holds) = judge(gate, figures);
        table.push_str(&line);
        held &= holds;
    }
    print!("{table}");
    if let Some(file) = &arguments.record {
        let mechanism =
            all.iter().flatten().map(|figures| figures.link.mechanism.as_str()).next().unwrap_or("");
        std::fs::write(file, markdown(rounds, mechanism, &table))
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(if held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

const HEAD: &str = "| | Gbit/s | of each round | limit | aim | pump: share of a core | ns/packet | late p50, p99, max µs | \
                    retransmissions | device drops | |\n|---|---|---|---|---|---|---|---|---|---|---|\n";

/// A gate's line of the table, and whether its limits hold.
fn judge(gate: &LinkGate, figures: &[LinkFigures]) -> (String, bool) {
    let of = |value: &dyn Fn(&LinkFigures) -> f64| {
        let mut values: Vec<f64> = figures.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        middle(&values)
    };
    let gbit = of(&|figures| figures.gbit);
    let drops: u64 = figures.iter().map(|figures| figures.link.device_drops).sum();
    // Packets that the devices dropped were not carried by the link.
    let holds = (gate.limits.0..=gate.limits.1).contains(&gbit) && drops == 0;
    let micros = |value: fn(&Summary) -> u64| of(&|figures| value(&figures.link) as f64) / 1e3;
    let mut line = format!("| {} | {gbit:.3} |", gate.id);
    for one in figures {
        let _ = write!(line, " {:.3}", one.gbit); // writing to a String cannot fail
    }
    let (least, most) = gate.limits;
    let limit = if most.is_finite() { format!("{least} to {most}") } else { format!("≥ {least}") };
    let _ = writeln!(
        line,
        " | {limit} | {} | {:.0} % | {:.0} | {:.0}, {:.0}, {:.0} | {:.0} | {drops} | {}{} |",
        gate.aim,
        of(&|figures| figures.link.cpu_ns as f64 / figures.link.wall_ns as f64) * 100.0,
        of(&LinkFigures::ns_per_packet),
        micros(|link| link.late_p50_ns),
        micros(|link| link.late_p99_ns),
        micros(|link| link.late_max_ns),
        of(&|figures| figures.retransmits as f64),
        gate.claim,
        if holds { "" } else { " **MISSED**" },
    );
    (line, holds)
}

/// The table, and how to reproduce it.
fn markdown(rounds: u32, mechanism: &str, table: &str) -> String {
    format!(
        "# What the link carries\n\n`cargo xtask bench link --rounds {rounds}`: one TCP connection of iperf3 through `h2lab link` \
         ({mechanism}), medians of {rounds} rounds. Gbit/s at the network layer, which is what `--bandwidth` limits: goodput × \
         1500/1448. The pump's share of a core and its lateness are the link's own; retransmissions are the sender's.\n\n{table}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(gbit: f64, device_drops: u64) -> LinkFigures {
        let direction = || Direction { packets_in: 500 };
        let link = Summary {
            mechanism: "m".to_owned(),
            up: direction(),
            down: direction(),
            late_p50_ns: 1_000,
            late_p99_ns: 2_000,
            late_max_ns: 3_000,
            cpu_ns: 500_000,
            wall_ns: 1_000_000,
            device_drops,
        };
        LinkFigures { gbit, retransmits: 0, link }
    }

    #[test]
    fn a_bandwidth_may_be_missed_on_both_sides() {
        let gate = GATES.iter().find(|gate| gate.id == "shaped-1g").unwrap();
        let holds = |gbit| judge(gate, &[figures(gbit, 0)]).1;
        assert!(holds(0.97) && holds(1.03));
        assert!(!holds(0.969) && !holds(1.031));
    }

    #[test]
    fn packets_that_devices_dropped_count_against_every_gate() {
        assert!(judge(&GATES[0], &[figures(20.0, 0)]).1);
        assert!(!judge(&GATES[0], &[figures(20.0, 1)]).1);
    }

    #[test]
    fn the_median_of_the_rounds_is_judged() {
        let (line, holds) = judge(&GATES[0], &[figures(1.0, 0), figures(14.0, 0), figures(30.0, 0)]);
        assert!(
            holds
                && line.starts_with(
                    "| plain | 14.000 | 1.000 14.000 30.000 | ≥ 4 | 14 | 50 % | 500 | 1, 2, 3 |"
                ),
            "{line}"
        );
    }
}

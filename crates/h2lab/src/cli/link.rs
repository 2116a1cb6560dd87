//! `h2lab link`: the emulated link for any program.

use h2lab_base::JsonSchema;
use h2lab_base::counts::plural;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use h2lab_base::units::Time;
use h2lab_link::{DirectionTotals, Impairment, LinkSpec};
use h2lab_model::record::{LinkSummary, PacketRecord};
use h2lab_model::scenario::{Scenario, Sysctls};
use serde::Serialize;

use super::capture::SnaplenArgs;
use super::exit::Usage;
use super::impair::LinkArgs;
use super::values::{duration, whole};
use super::{flags, help, output};
use crate::run::commands::{CommandEnd, Commands, CommandsResult, exit_code};
use crate::run::store::direction_name;
use h2lab_net::{ownership, scratch};

/// Run your own server and client with an emulated link between them
///
/// Each shell command runs in its own network namespace. There the names `server` and `client` resolve to the two
/// ends; `$H2LAB_SERVER` and `$H2LAB_CLIENT` hold the addresses. The client starts when something listens at the server's end.
/// Needs no root, and leaves nothing behind. The client's output and exit code are passed on, and a
/// summary of the link follows on standard error.
///
/// The commands see your files, but no other network, not even the machine's own loopback.
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[
        ("h2lab link --delay 12.5ms --loss 3% --server 'nginx -c x.conf' --client 'wrk http://server:8080/'", "any load, any server"),
        ("h2lab link --bandwidth 100mbit --delay 50ms --server 'iperf3 -s -1' --client 'iperf3 -c server'", "a long fat link"),
        ("h2lab link --loss 1% --client 'ping -c 100 -i 0.02 server'", "no server: the kernel answers"),
        ("h2lab link --loss 1% --pcap link.pcapng --client 'curl -k https://server/' --server 'caddy run'", "for Wireshark, decrypted"),
        ("h2lab link --up loss=5% --client bash", "a shell to look around"),
    ],
))]
pub struct LinkCommandArgs {
    /// Run at the server's end until the client has ended
    #[arg(long, value_name = "CMD")]
    server: Option<String>,
    /// Run at the client's end
    #[arg(long, value_name = "CMD")]
    client: String,
    #[command(flatten)]
    link: LinkArgs,
    /// IPv6: `server` and `client` mean IPv6 addresses (the ends have IPv4 addresses too)
    #[arg(short = '6', long)]
    ipv6: bool,
    /// Seed of the link's random choices: the same seed drops the same packets
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u64>(0..))]
    seed: u64,
    /// Time to wait for the server to listen; then the client starts anyway
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10s")]
    wait: Duration,
    /// Write the server's output to this file instead of standard error
    #[arg(long, value_name = "FILE")]
    server_log: Option<PathBuf>,
    /// Write every packet and its fate, as CSV
    #[arg(long, value_name = "FILE")]
    packets: Option<PathBuf>,
    /// Write every packet for Wireshark, with TLS secrets of programs that support `SSLKEYLOGFILE` (such as curl)
    ///
    /// Each packet is recorded when it enters the link and when it leaves it (interfaces `uplink in`, `uplink out`,
    /// `downlink in`, `downlink out`); the reason for a drop is in the packet's comment. `frame.interface_id in {0,3}`
    /// shows what the client saw, `{1,2}` what the server saw. Anyone with the file can read what was sent.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    #[command(flatten)]
    snaplen: SnaplenArgs,
    /// Print the summary as JSON on stdout; the client's output goes to stderr
    #[arg(long)]
    json: bool,
    /// For the test that a panic leaves nothing behind; there is no other sure way to one
    #[arg(long, hide = true)]
    panic: bool,
}

/// What `--json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LinkCommandDocument {
    /// Version of h2lab.
    version: String,
    /// Seed of the link.
    seed: u64,
    /// What the link was asked to do.
    link: LinkSpec,
    /// Congestion control of both ends, as read back from a connection.
    congestion: Ends,
    /// Every sysctl that was set in either network namespace, asked for or not, as read back: `client net.ipv4.tcp_rmem`
    /// and the value.
    sysctls: Vec<(String, String)>,
    /// How the client's command ended, as the shell would have it: 128 and the signal's number after a signal.
    client_exit_code: u8,
    /// How the server's command ended; null if there was none, or if it ran until we ended it.
    server_exit_code: Option<u8>,
    /// For how long the client's command ran, in seconds.
    client_seconds: f64,
    /// What the link did.
    summary: LinkSummary,
    /// Delivered packets that only the totals have, because there were more than the packet log holds.
    unrecorded: u64,
    /// Doubts.
    warnings: Vec<String>,
}

/// A word for each end.
#[derive(Debug, Serialize, JsonSchema)]
struct Ends {
    client: String,
    server: String,
}

/// Runs the commands; the client's exit code.
pub fn main(args: &LinkCommandArgs) -> Result<u8> {
    let (link, congestion, sysctls) = link(&args.link)?;
    // Without the flag the ends have the defaults of any program on this machine.
    let congestion = congestion.filter(|_| args.link.congestion.is_some());
    let packets = args.packets.as_deref().map(create).transpose()?;
    let pcap = args.pcap.as_deref().map(create_secret).transpose()?;
    let commands = Commands {
        link: link.clone(),
        congestion,
        sysctls: sysctls.clone(),
        ipv6: args.ipv6,
        seed: args.seed,
        server: args.server.clone(),
        wait: args.wait,
        server_log: args.server_log.as_deref().map(create).transpose()?,
        client: args.client.clone(),
        detached: None,
        removed: None,
        captured_beside: args.pcap.as_deref().map(scratch_for),
        client_to_stderr: args.json,
        panic: args.panic,
    };
    let done = commands.run()?;
    if let Some(file) = packets {
        write_packets(BufWriter::new(file), &done.link.packets).context("--packets")?;
    }
    if let (Some(file), Some(captured)) = (pcap, &done.captured) {
        let path = args.pcap.as_deref().unwrap_or(Path::new("--pcap"));
        captured.write(file, path, &done.link.packets, args.snaplen.snaplen).context("--pcap")?;
    }
    let code = exit_code(done.client);
    if args.json {
        output::print(&(serde_json::to_string_pretty(&document(args.seed, link, done))? + "\n"))?;
    } else {
        write_out(&mut std::io::stderr().lock(), args.seed, &link, &sysctls, &done)?;
    }
    Ok(code)
}

/// The one link that the flags describe, the congestion control that cells over it have, and the sysctls of its ends.
pub(super) fn link(args: &LinkArgs) -> Result<(LinkSpec, Option<String>, Sysctls)> {
    let mut scenario = Scenario::default();
    args.apply(&mut scenario);
    flags::check(&scenario)?;
    let several = || Usage("link: each flag takes one value; `h2lab compare` takes lists".to_owned());
    let plan = scenario.plan();
    let first = plan.first().context("a scenario has a cell")?;
    if plan.iter().any(|cell| cell.group != first.group) {
        return Err(several().into());
    }
    let link = first.link.clone().context("nothing is live here")?;
    Ok((link, first.congestion.clone(), first.sysctls.clone()))
}

/// The folder for a capture's temporary files: that of its output file; the system's if that is a pipe or a device,
/// since nothing may be created beside `/dev/stdout`.
fn scratch_for(file: &Path) -> PathBuf {
    let file = fs::canonicalize(file).ok().filter(|file| file.is_file());
    file.as_deref().and_then(Path::parent).map_or_else(std::env::temp_dir, Path::to_owned)
}

fn create(path: &Path) -> Result<File> {
    ownership::create(path).with_context(|| format!("cannot write {}", path.display()))
}

fn create_secret(path: &Path) -> Result<File> {
    scratch::secret(path).with_context(|| format!("cannot write {}", path.display()))
}

/// A line per packet, in the order in which they entered.
fn write_packets(mut out: impl Write, packets: &[PacketRecord]) -> Result<()> {
    writeln!(out, "at_s,out_s,direction,index,fate,client_port,server_port,bytes,payload,seq")?;
    for packet in packets {
        let out_at = if packet.out_at == Time::NEVER { String::new() } else { seconds(packet.out_at) };
        writeln!(
            out,
            "{},{out_at},{},{},{},{},{},{},{},{}",
            seconds(packet.at),
            direction_name(packet.direction),
            packet.index,
            packet.fate.name(),
            packet.client_port,
            packet.server_port,
            packet.bytes,
            packet.payload,
            packet.seq
        )?;
    }
    Ok(out.flush()?)
}

fn seconds(time: Time) -> String {
    format!("{:.9}", time.as_nanos() as f64 / 1e9)
}

fn document(seed: u64, link: LinkSpec, done: CommandsResult) -> LinkCommandDocument {
    LinkCommandDocument {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        seed,
        link,
        warnings: warnings(&done),
        client_exit_code: exit_code(done.client),
        server_exit_code: match done.server {
            Some(CommandEnd::Itself(status)) => Some(exit_code(status)),
            Some(CommandEnd::Stopped) | None => None,
        },
        client_seconds: done.took.as_secs_f64(),
        congestion: Ends { client: done.congestion.client, server: done.congestion.server },
        sysctls: done.sysctls,
        unrecorded: done.link.unrecorded,
        summary: done.link.summary,
    }
}

/// What makes the figures doubtful, or the commands meet something unexpected.
fn warnings(done: &CommandsResult) -> Vec<String> {
    let mut all = Vec::new();
    if done.was_deaf {
        all.push("nothing listened on the server's side, loopback apart, when the client started".to_owned());
    }
    if let Some(CommandEnd::Itself(status)) = done.server {
        all.push(format!("the server's command exited before the client's ({status})"));
    }
    all.extend(
        done.nameless.as_ref().map(|why| {
            format!("the names `server` and `client` do not resolve: {why}; $H2LAB_SERVER and $H2LAB_CLIENT have the addresses")
        }),
    );
    // Missing TLS secrets are no warning: the programs may not use TLS.
    all.extend(done.captured.iter().flat_map(|captured| captured.doubts(false)));
    let dropped = done.link.summary.device_drops;
    if dropped > 0 {
        all.push(format!(
            "devices dropped {} that the link was not asked to drop",
            plural(dropped, "packet")
        ));
    }
    all
}

/// The summary for people.
fn write_out(
    out: &mut impl Write,
    seed: u64,
    link: &LinkSpec,
    sysctls: &Sysctls,
    done: &CommandsResult,
) -> Result<()> {
    let summary = &done.link.summary;
    let congestion = if done.congestion.client == done.congestion.server {
        done.congestion.client.clone()
    } else {
        format!("client {}, server {}", done.congestion.client, done.congestion.server)
    };
    let scheduling = if summary.realtime { "real time" } else { "not real-time: see `h2lab doctor`" };
    writeln!(out, "\nlink      {congestion}; seed {seed}; {} ({scheduling})", summary.mechanism)?;
    for sysctl in sysctls.rendered() {
        writeln!(out, "sysctl    {sysctl}")?;
    }
    for (name, way, totals) in
        [("uplink", &link.uplink, &summary.up), ("downlink", &link.downlink, &summary.down)]
    {
        writeln!(out, "{name:<9} {}", direction(way, totals, done.took))?;
    }
    let micros = |ns: u64| ns / 1_000;
    writeln!(
        out,
        "lateness  p50 {} µs, p99 {} µs, max {} µs",
        micros(summary.late_p50_ns),
        micros(summary.late_p99_ns),
        micros(summary.late_max_ns)
    )?;
    writeln!(out, "client    ended with {} after {:.3} s", done.client, done.took.as_secs_f64())?;
    for warning in warnings(done) {
        writeln!(out, "warning   {warning}")?;
    }
    Ok(())
}

/// What was asked of a direction, and what it did.
fn direction(asked: &Impairment, totals: &DirectionTotals, took: Duration) -> String {
    let bits = totals.bytes_in as f64 * 8.0 / took.as_secs_f64().max(1e-9);
    format!(
        "{asked}: {} in ({:.2} Mbit/s), {} delivered, {} lost, {} tail-dropped, {} in flight",
        plural(totals.packets_in, "packet"),
        bits / 1e6,
        totals.delivered,
        totals.lost,
        totals.tail_dropped,
        totals.in_flight
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_lies_beside_its_file_and_never_beside_a_device_or_a_pipe() {
        let folder = tempfile::tempdir().unwrap();
        let real = fs::canonicalize(folder.path()).unwrap();
        let file = folder.path().join("link.pcapng");
        create(&file).unwrap();
        assert_eq!(scratch_for(&file), real);
        let elsewhere = tempfile::tempdir().unwrap();
        let link = elsewhere.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(scratch_for(&link), real, "where the bytes go");
        let (_reader, writer) = std::io::pipe().unwrap();
        let pipe = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&writer));
        for other in ["/dev/null", &pipe] {
            assert_eq!(scratch_for(Path::new(other)), std::env::temp_dir(), "{other}");
        }
    }
}

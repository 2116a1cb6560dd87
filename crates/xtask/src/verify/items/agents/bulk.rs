//! `bulk drive` over NATS: three clients, two servers, the emulated link between them.
//!
//! Both ends are in the lab of `h2lab link`: nats-server and the serving agents at its server's end, the others and the driver
//! at its client's end. How much crossed is read from the device that received it, by the kernel: at the clients' end for get,
//! at the servers' end for put. Its counter has the heads of packets: 52 bytes of IPv4 and TCP with time stamps, and 14 of
//! Ethernet if the device has frames. It is read just before the driver begins and just after it has ended.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use super::doing;
use super::figures::{list, number, text};
use super::fleet::INVALID;
use super::network::Counters;
use crate::process;
use crate::verify::binary::{H2lab, Run};
use crate::verify::outcome::ItemOutcome;

/// The link: wide enough that the machine is not the limit, with a queue that holds all that the buffers below let in.
const LINK: [&str; 4] = ["--bandwidth=200mbit", "--delay=5ms", "--queue=64M", "--congestion=cubic"];
/// Send buffers of both ends: what is in one at the end has been counted by its sender and has not arrived.
const BUFFERS: [&str; 2] = [
    "--sysctl-client=net.ipv4.tcp_wmem=4096 16384 524288",
    "--sysctl-server=net.ipv4.tcp_wmem=4096 16384 524288",
];
const CLIENTS: [&str; 3] = ["c1", "c2", "c3"];
const SERVERS: [&str; 2] = ["s1", "s2"];
/// The device at each end of a lab.
const DEVICE: &str = "eth0";
/// Heads of a packet of IPv4 and TCP with time stamps, and of a frame of Ethernet.
const HEADS: u64 = 52;
const ETHERNET: u64 = 14;
/// By how much the sum may differ from what the device received.
const MOST: f64 = 0.02;
/// The tool calls transfers invalid whose client did not get its CPU.
const TRIES: u32 = 3;

/// How the driver is asked for a direction.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Get,
    Put,
}

/// Get, put, and a client that is killed.
pub fn bulk(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    for way in [Way::Get, Way::Put] {
        let (document, code, received) = trusted(h2lab, way)?;
        outcome.check(code == 0, format!("{way:?}: exit {code}"));
        let bytes = number(&document, "/bytes")?;
        let text = format!(
            "{way:?}: {:.1} MB by the report, {:.1} MB received by the device without heads: {:+.2} %",
            bytes / 1e6,
            received / 1e6,
            (bytes / received - 1.0) * 100.0
        );
        outcome.check(is_near(bytes, received), text);
        let pairs = list(&document, "/pairs")?;
        let sum: f64 = pairs.iter().map(|pair| number(pair, "/bytes")).sum::<Result<f64>>()?;
        let are_complete = pairs.iter().all(|pair| pair["state"] == "complete");
        let text = format!(
            "{way:?}: {} pairs, {:.1} MB in sum, {:.1} Mbit/s together; {}",
            pairs.len(),
            sum / 1e6,
            number(&document, "/rate_bps")? / 1e6,
            limits(pairs)
        );
        let has_all = pairs.len() == CLIENTS.len() * SERVERS.len();
        // The report's own arithmetic: exact.
        outcome.check(has_all && are_complete && (sum - bytes).abs() < 0.5, text);
    }
    lost(&mut outcome, h2lab)?;
    Ok(outcome)
}

/// The transfers of a direction, for 20 s; again while the tool calls them invalid.
fn trusted(h2lab: &H2lab, way: Way) -> Result<(Value, i32, f64)> {
    let mut made = driven(h2lab, way, "20s", "")?;
    for _ in 1..TRIES {
        if made.1 != INVALID {
            break;
        }
        made = driven(h2lab, way, "20s", "")?;
    }
    Ok(made)
}

/// What held each pair back.
fn limits(pairs: &[Value]) -> String {
    let limit = |pair: &Value| {
        let kind = pair.pointer("/limit/kind").and_then(Value::as_str).unwrap_or("nothing known");
        format!(
            "{} of {}: {kind}",
            pair["client"].as_str().unwrap_or("?"),
            pair["server"].as_str().unwrap_or("?")
        )
    };
    pairs.iter().map(limit).collect::<Vec<_>>().join(", ")
}

/// A client that is killed in the middle.
fn lost(outcome: &mut ItemOutcome, h2lab: &H2lab) -> Result<()> {
    let kill = "sleep 5; kill -KILL $c2";
    let (document, code, _) = driven(h2lab, Way::Get, "10s", kill)?;
    outcome.check(code == 3, format!("a client was killed: exit {code}"));
    for pair in list(&document, "/pairs")? {
        let (client, state) = (text(pair, "/client")?, text(pair, "/state")?);
        // Invalid: it worked until its time was over, and is kept, but did not get its CPU.
        let is_kept = matches!(state, "complete" | "invalid");
        let is_expected = if client == CLIENTS[1] { state == "lost" } else { is_kept };
        let why = pair["why"].as_str().unwrap_or_default();
        let bytes = number(pair, "/bytes")?;
        let text = format!("{client} of {}: {state}, {:.1} MB {why}", text(pair, "/server")?, bytes / 1e6);
        outcome.check(is_expected && bytes > 0.0, text);
    }
    Ok(())
}

fn is_near(bytes: f64, received: f64) -> bool {
    (bytes - received).abs() <= received * MOST
}

/// Makes the transfers in a lab; `meanwhile` is a script at the clients' end. The document, the exit code, and the bytes that the
/// receiving device got without heads.
fn driven(h2lab: &H2lab, way: Way, time: &str, meanwhile: &str) -> Result<(Value, i32, f64)> {
    let killed = if meanwhile.is_empty() { "" } else { ", a client is killed" };
    doing(format!("{way:?} for {time} over the link{killed}"));
    let folder = tempfile::tempdir()?;
    let at = |name: &str| folder.path().join(name);
    fs::write(at("server.sh"), server_script(h2lab)?)?;
    fs::write(at("client.sh"), client_script(h2lab, way, time, meanwhile))?;
    let words: Vec<String> = ["link"]
        .iter()
        .chain(&LINK)
        .chain(&BUFFERS)
        .map(|&word| word.to_owned())
        .chain(["--wait=30s", "--server=sh server.sh", "--client=sh client.sh"].map(str::to_owned))
        .collect();
    let Run { code, stdout, stderr } = h2lab.run(folder.path(), &words, "")?;
    let document = fs::read_to_string(at("document.json")).unwrap_or_default();
    let document: Value = serde_json::from_str(&document)
        .with_context(|| format!("bulk drive ended with {code:?}: {} {}", stdout.trim(), stderr.trim()))?;
    let counters = |when: &str| {
        let text = fs::read_to_string(at(when)).with_context(|| when.to_owned())?;
        Counters::read(&text, DEVICE)
    };
    let received = counters("after.dev")?.since(counters("before.dev")?);
    let has_frames = fs::read_to_string(at("type")).is_ok_and(|kind| kind.contains("ether"));
    Ok((document, code.context("the link was killed")?, without_heads(received, has_frames)))
}

/// What of the received bytes was no head.
fn without_heads(counters: Counters, has_frames: bool) -> f64 {
    let heads = counters.received_packets * (HEADS + if has_frames { ETHERNET } else { 0 });
    counters.received_bytes.saturating_sub(heads) as f64
}

/// An agent in the background, with its process in a variable of its name.
fn agent(h2lab: &H2lab, name: &str, allow: &str) -> String {
    format!(
        "{} agent --nats nats://$H2LAB_SERVER:4222 --name {name} {allow} >{name}.log 2>&1 & {name}=$!\n",
        h2lab.path().display()
    )
}

/// nats-server and the serving agents. It lasts until the client's script has ended.
fn server_script(h2lab: &H2lab) -> Result<String> {
    let program = process::find("nats-server").context("nats-server is not installed")?;
    let mut script =
        format!("echo $$ >server.pid\n{} -js -sd store -p 4222 >nats.log 2>&1 &\n", program.display());
    for name in SERVERS {
        script += &agent(h2lab, name, "--allow serve");
    }
    Ok(script + "wait\n")
}

/// The other agents, the driver, and the counters of the receiving device.
fn client_script(h2lab: &H2lab, way: Way, time: &str, meanwhile: &str) -> String {
    let program = h2lab.path().display();
    let mut script = String::new();
    for name in CLIENTS {
        script += &agent(h2lab, name, "--allow http://$H2LAB_SERVER:*");
    }
    let all: Vec<&str> = CLIENTS.iter().chain(&SERVERS).copied().collect();
    // Until each is there: 30 looks, each of which takes 2 s, and 11 s while the server is absent.
    let _ = writeln!(
        script,
        "n=0; until {program} agents --nats nats://$H2LAB_SERVER:4222 --json >there.json 2>there.log && {}; do n=$((n+1)); \
         test $n -lt 30 || exit 99; sleep 1; done",
        all.iter().map(|name| format!("grep -q '\"{name}\"' there.json")).collect::<Vec<_>>().join(" && ")
    );
    script += "ip -d link show dev eth0 >type\n";
    let device = match way {
        Way::Get => "/proc/$$/net/dev",
        Way::Put => "/proc/$(cat server.pid)/net/dev",
    };
    let direction = match way {
        Way::Get => "",
        Way::Put => PUT,
    };
    let servers: Vec<String> = SERVERS.iter().map(|name| format!("{name}=$H2LAB_SERVER")).collect();
    let _ = writeln!(script, "cat {device} >before.dev");
    if !meanwhile.is_empty() {
        let _ = writeln!(script, "({meanwhile}) &");
    }
    let _ = writeln!(
        script,
        "{program} bulk drive --json --quiet --h2c --nats nats://$H2LAB_SERVER:4222 --clients {} --servers {} -z {time} \
         {direction} --grace 10s >document.json",
        CLIENTS.join(","),
        servers.join(",")
    );
    let _ = writeln!(script, "code=$?; cat {device} >after.dev; kill $c1 $c2 $c3 2>kill.log; exit $code");
    script
}

/// What has the driver send instead of fetch.
const PUT: &str = "--put";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_packets_are_no_data() {
        let counters = Counters { received_bytes: 152_000, received_packets: 1_000, ..Counters::default() };
        assert!((without_heads(counters, false) - 100_000.0).abs() < 1e-9);
        assert!((without_heads(counters, true) - 86_000.0).abs() < 1e-9);
    }

    #[test]
    fn a_sum_is_near_within_two_percent() {
        assert!(is_near(102.0, 100.0) && is_near(98.0, 100.0));
        assert!(!is_near(102.1, 100.0) && !is_near(97.9, 100.0));
    }

    #[test]
    fn the_scripts_are_scripts_of_sh() {
        let h2lab = H2lab::at("/bin/h2lab".into());
        for way in [Way::Get, Way::Put] {
            let script = client_script(&h2lab, way, "1s", "sleep 1");
            let parsed = std::process::Command::new("sh").args(["-n", "-c", &script]).status().unwrap();
            assert!(parsed.success(), "{script}");
            assert!(script.contains("s1=$H2LAB_SERVER,s2=$H2LAB_SERVER"));
        }
    }
}

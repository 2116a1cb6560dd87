//! What a fleet costs that does nothing: memory and CPU time of agents and of nats-server.
//!
//! The agents permit cells of studies as well: such an agent looks every second whether there is a unit for it. A load was made
//! before, so that all streams are there.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::doing;
use super::fleet::{Fleet, INVALID, Launch, ORIGIN, THREE};
use crate::verify::binary::H2lab;
use crate::verify::outcome::ItemOutcome;
use crate::verify::started::Ending;

const TIME: Duration = Duration::from_secs(60);
/// Before it begins: what starting took is over then.
const SETTLING: Duration = Duration::from_secs(5);
/// Memory of an agent at most, resident, in MiB.
const MEMORY_MIB: f64 = 40.0;
/// Of a CPU, how much an agent needs at most.
const CPU: f64 = 0.005;
/// `USER_HZ`, in which proc(5) counts on every architecture that Linux has Rust for.
const TICKS_PER_S: f64 = 100.0;

/// Three agents, for a minute.
pub fn rest(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let fleet = fleet(h2lab)?;
    doing(format!("nothing, for {} s", TIME.as_secs()));
    std::thread::sleep(SETTLING);
    let (begun, before) = (Instant::now(), costs(&fleet)?);
    std::thread::sleep(TIME);
    let (took, after) = (begun.elapsed().as_secs_f64(), costs(&fleet)?);
    for ((name, before), after) in THREE.iter().chain(&["nats-server"]).zip(&before).zip(&after) {
        let cpu = (after.cpu_s - before.cpu_s) / took;
        let text = format!("{name}: {:.1} MiB resident, {:.2} % of a CPU", after.resident_mib, cpu * 100.0);
        if THREE.contains(name) {
            outcome.check(after.resident_mib <= MEMORY_MIB && cpu <= CPU, text);
        } else {
            // It is not ours.
            outcome.note(text);
        }
    }
    Ok(outcome)
}

/// Three agents that permit as much as they can, and have made a load.
fn fleet(h2lab: &H2lab) -> Result<Fleet<'_>> {
    let mut fleet = Fleet::new(h2lab, &[THREE[0], THREE[1], THREE[2], ORIGIN])?;
    fleet.start_nats("", "")?;
    fleet.start_origin()?;
    let allow = fleet.url("")?;
    let flags = ["--allow", allow.as_str(), "--allow", "lab", "--allow", "serve"];
    fleet.start_agents(&THREE, Launch { flags: &flags, ..Launch::default() })?;
    let (names, url) = (THREE.join(","), fleet.url("/")?);
    let load = ["load", "--json", "--quiet", "--no-store", "-q30", "-c3", "-z1s", "--agents", &names, &url];
    let ended = fleet.drive(&load)?;
    let is_made = matches!(ended.ending, Ending::Code(0 | INVALID));
    ensure!(is_made, "no load can be made: {}: {}", ended.ending, ended.last_words());
    Ok(fleet)
}

/// Of the agents, and of the server.
fn costs(fleet: &Fleet<'_>) -> Result<Vec<Cost>> {
    let process = |name: &&str| -> Result<u32> { Ok(fleet.agent(name)?.id()) };
    THREE.iter().map(process).chain([fleet.nats_process()]).map(|process| Cost::of(process?)).collect()
}

/// CPU time of a process, and of its children that have ended and were waited for, in seconds.
pub fn cpu_with_children_s(process: u32) -> Result<f64> {
    let path = format!("/proc/{process}/stat");
    let stat = fs::read_to_string(&path).with_context(|| path.clone())?;
    cpu_s(&stat, 4).context("not a line of /proc/PID/stat")
}

/// What a process has used so far.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Cost {
    resident_mib: f64,
    cpu_s: f64,
}

impl Cost {
    fn of(process: u32) -> Result<Self> {
        let read = |file: &str| {
            let path = format!("/proc/{process}/{file}");
            fs::read_to_string(&path).with_context(|| path.clone())
        };
        let cpu_s = cpu_s(&read("stat")?, 2).context("not a line of /proc/PID/stat")?;
        let resident_mib = resident_mib(&read("status")?).context("no VmRSS in /proc/PID/status")?;
        Ok(Self { resident_mib, cpu_s })
    }
}

/// The first so many times of a process, in seconds: user, system, and the same two of its children that were waited for. Its name, in
/// parentheses, may have spaces.
fn cpu_s(stat: &str, times: usize) -> Option<f64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: Option<Vec<f64>> =
        fields.get(11..11 + times)?.iter().map(|field| field.parse().ok()).collect();
    Some(ticks?.iter().sum::<f64>() / TICKS_PER_S)
}

fn resident_mib(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.split_whitespace().next()?.parse::<f64>().ok()? / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_used_is_read_whatever_it_is_called() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 100 0 0 0 150 50 9 9 20 0 1 0 5 1000 10";
        assert!((cpu_s(stat, 2).unwrap() - 2.0).abs() < 1e-9);
        assert!((cpu_s(stat, 4).unwrap() - 2.18).abs() < 1e-9);
        assert!(cpu_s("7 (a) S 1", 2).is_none() && cpu_s("", 2).is_none());
        assert!((resident_mib("Name:\tx\nVmRSS:\t   20480 kB\n").unwrap() - 20.0).abs() < 1e-9);
        assert!(resident_mib("Name:\tx\n").is_none());
    }
}

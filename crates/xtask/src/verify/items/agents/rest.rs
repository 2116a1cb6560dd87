//! What a fleet costs that does nothing: memory and CPU time of agents and of nats-server.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::fleet::{Fleet, THREE};
use crate::verify::binary::H2lab;
use crate::verify::outcome::ItemOutcome;

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
    let fleet = Fleet::of_three(h2lab)?;
    std::thread::sleep(SETTLING);
    let (begun, before) = (Instant::now(), costs(&fleet)?);
    std::thread::sleep(TIME);
    let (took, after) = (begun.elapsed().as_secs_f64(), costs(&fleet)?);
    for (name, before, after) in THREE.iter().zip(&before).zip(&after).map(|((name, a), b)| (name, a, b)) {
        let cpu = (after.cpu_s - before.cpu_s) / took;
        let text = format!("{name}: {:.1} MiB resident, {:.2} % of a CPU", after.resident_mib, cpu * 100.0);
        outcome.check(after.resident_mib <= MEMORY_MIB && cpu <= CPU, text);
    }
    let nats = Cost::of(fleet.nats_process()?)?;
    outcome.note(format!("nats-server: {:.1} MiB resident", nats.resident_mib));
    Ok(outcome)
}

fn costs(fleet: &Fleet<'_>) -> Result<Vec<Cost>> {
    THREE.iter().map(|name| Cost::of(fleet.agent(name)?.id())).collect()
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
        let cpu_s = cpu_s(&read("stat")?).context("not a line of /proc/PID/stat")?;
        let resident_mib = resident_mib(&read("status")?).context("no VmRSS in /proc/PID/status")?;
        Ok(Self { resident_mib, cpu_s })
    }
}

/// User and system time of a process, in seconds. Its name, in parentheses, may have spaces.
fn cpu_s(stat: &str) -> Option<f64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |n: usize| fields.get(n)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS_PER_S)
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
        assert!((cpu_s(stat).unwrap() - 2.0).abs() < 1e-9);
        assert!(cpu_s("7 (a) S 1").is_none() && cpu_s("").is_none());
        assert!((resident_mib("Name:\tx\nVmRSS:\t   20480 kB\n").unwrap() - 20.0).abs() < 1e-9);
        assert!(resident_mib("Name:\tx\n").is_none());
    }
}

//! `cargo xtask verify [step]`: what a step promises, shown with figures on real time.
//!
//! An [`Item`] is one promise, as the plan words it. It drives the published binary as a user would and collects figures, each of
//! which holds or does not. A measurement that the tool itself calls invalid is made again; a promise is never made weaker.

pub mod binary;
mod document;
mod items;
mod lab;
pub mod nginx;
mod numbers;
mod outcome;
mod started;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::{needs, package, process};
use binary::H2lab;
use items::Item;
use outcome::ItemOutcome;

pub use items::{confirmed, staged};

/// A step of the plan whose promises can be shown.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Step {
    /// The main job, end to end.
    Compare,
    /// The HTTP engines.
    Engines,
    /// The load generator.
    Load,
    /// The chaos lab.
    Chaos,
    /// Bulk transfers.
    Bulk,
    /// Probes and waterfalls.
    Probe,
    /// The table of settings, against the programs that are installed.
    Settings,
    /// Hostile servers and a lab that breaks, against every command.
    Faults,
    /// Situations with planted causes, and healthy ones.
    Diagnose,
    /// Planted causes in configurations of servers: `diagnose --fix` takes them away.
    Fix,
    /// The sidecar, beside other proxies.
    Sidecar,
    /// Agents on many machines, over NATS, in network namespaces.
    Agents,
    /// The .deb in a fresh Debian, the static binary in an empty root, the container image.
    Package,
}

/// Arguments of `cargo xtask verify`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Which step to show.
    #[arg(value_enum, default_value = "compare")]
    step: Step,
    /// Show only the item with this id, or else those whose id begins with it; several may be given.
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// Print the items and what they claim, and run none.
    #[arg(long)]
    list: bool,
    /// Of what `faults`, `diagnose` and `fix` draw at random [default: another one each time, which is printed].
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Of `diagnose`, show the situations for CI only, which take 10 minutes at most.
    #[arg(long)]
    ci: bool,
    /// Build what is shown in this profile of cargo; figures that depend on time hold for the default.
    #[arg(long, value_name = "NAME", default_value = process::PROFILE)]
    profile: String,
}

/// How one item went.
struct Shown<'a> {
    item: &'a Item,
    outcome: ItemOutcome,
    took: Duration,
}

/// Runs the items, prints their figures as they come and a table at the end; fails if one does not hold.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let seed = arguments.seed.unwrap_or_else(items::any_seed);
    let items = select(
        match arguments.step {
            Step::Compare => items::compare(),
            Step::Engines => items::engines(),
            Step::Load => items::load(),
            Step::Chaos => items::chaos(),
            Step::Bulk => items::bulk(),
            Step::Probe => items::probe(),
            Step::Settings => items::settings(),
            Step::Faults => items::faults(seed)?,
            Step::Diagnose => items::diagnose(seed, arguments.ci, arguments.only.is_empty())?,
            Step::Fix => items::fix(seed)?,
            Step::Sidecar => items::sidecar(),
            Step::Agents => items::agents(),
            Step::Package => items::package(),
        },
        &arguments.only,
    )?;
    if arguments.list {
        for item in &items {
            println!("{:<24} {}", item.id, item.claim);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let h2lab = match arguments.step {
        Step::Package => H2lab::at(package::static_binary(&arguments.profile)?),
        // It asks other programs only.
        Step::Settings => H2lab::at(PathBuf::new()),
        _ => {
            needs::install_missing()?;
            H2lab::build_in(&arguments.profile)?
        }
    };
    if matches!(arguments.step, Step::Faults | Step::Diagnose) {
        println!("--seed={seed}");
    }
    let mut shown = Vec::new();
    for (n, item) in items.iter().enumerate() {
        println!("[{}/{}] {}: {}", n + 1, items.len(), item.id, item.claim);
        shown.push(show(item, &h2lab));
    }
    println!();
    for one in &shown {
        println!("{:<6} {:<24} {:>6.0} s", one.outcome.word(), one.item.id, one.took.as_secs_f64());
    }
    let failed = shown.iter().filter(|one| !one.outcome.holds()).count();
    println!("{} of {} hold", shown.len() - failed, shown.len());
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn show<'a>(item: &'a Item, h2lab: &H2lab) -> Shown<'a> {
    let (started, stolen) = (Instant::now(), Stolen::now());
    let outcome = (item.run)(h2lab).unwrap_or_else(|error| ItemOutcome::broken(&error));
    let took = started.elapsed();
    for figure in outcome.figures() {
        println!("    {figure}");
    }
    let stolen = stolen.zip(Stolen::now()).and_then(|(before, after)| after.share_since(before));
    let stolen = stolen.map_or_else(String::new, |share| {
        format!("; the hypervisor gave {:.0} % of this machine's CPU time to others (steal)", share * 100.0)
    });
    println!("    {} after {:.0} s{stolen}", outcome.word(), took.as_secs_f64());
    Shown { item, outcome, took }
}

/// Time of all CPUs by proc(5), in ticks: what the hypervisor took, and all there was.
#[derive(Debug, Clone, Copy)]
struct Stolen {
    taken: u64,
    all: u64,
}

impl Stolen {
    fn now() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
        // What guests of this machine had is in the first two as well.
        Some(Self { taken: *ticks.get(7)?, all: ticks[..8].iter().sum() })
    }

    /// The share that was taken, if it is worth mentioning: figures that depend on time may not hold for it.
    fn share_since(self, before: Self) -> Option<f64> {
        let all = self.all.saturating_sub(before.all).max(1);
        let share = self.taken.saturating_sub(before.taken) as f64 / all as f64;
        (share >= 0.02).then_some(share)
    }
}

/// The items that `only` names, by whole ids or, where there is none, by their beginnings; all without any.
fn select(items: Vec<Item>, only: &[String]) -> Result<Vec<Item>> {
    if let Some(unknown) = only.iter().find(|id| !items.iter().any(|item| item.id.starts_with(id.as_str()))) {
        bail!("no item begins with `{unknown}`; --list names them");
    }
    let ids: Vec<String> = items.iter().map(|item| item.id.clone()).collect();
    let names = |asked: &String, id: &String| {
        if ids.contains(asked) { id == asked } else { id.starts_with(asked.as_str()) }
    };
    let wanted = |item: &Item| only.is_empty() || only.iter().any(|asked| names(asked, &item.id));
    Ok(items.into_iter().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_hypervisor_took_is_reported_as_a_share() {
        let stat =
            |stolen| Stolen::parse(&format!("cpu  100 0 50 800 0 0 0 {stolen} 7 7\ncpu0 1\n")).unwrap();
        assert_eq!(stat(50).share_since(stat(50)), None);
        let share = stat(80).share_since(Stolen { taken: 50, all: 930 }).unwrap();
        assert!((share - 0.3).abs() < 1e-9, "{share}");
        assert!(Stolen::parse("cpu  1 2\n").is_none() && Stolen::parse("").is_none());
    }

    #[test]
    fn ids_are_unique_and_selectable_by_their_beginning() {
        let steps = [
            items::compare(),
            items::engines(),
            items::load(),
            items::sidecar(),
            items::chaos(),
            items::bulk(),
            items::probe(),
            items::settings(),
            items::faults(1).unwrap(),
            items::diagnose(1, false, true).unwrap(),
            items::fix(1).unwrap(),
            items::agents(),
            items::package(),
        ];
        for items in steps {
            let mut ids: Vec<String> = items.iter().map(|item| item.id.clone()).collect();
            let count = ids.len();
            ids.sort();
            ids.dedup();
            assert_eq!(ids.len(), count);
        }
        let chosen = select(items::compare(), &["loss-table".to_owned()]).unwrap();
        assert_eq!(chosen.len(), 4, "two servers, two request shapes");
    }

    #[test]
    fn an_unknown_id_is_refused_rather_than_showing_nothing() {
        let study = select(items::chaos(), &["study".to_owned()]).unwrap();
        assert_eq!(study.len(), 1, "and not study-bbr");
        assert!(select(items::chaos(), &["study-".to_owned()]).unwrap().len() > 1);
        assert!(select(items::compare(), &["no-such".to_owned()]).is_err());
    }
}

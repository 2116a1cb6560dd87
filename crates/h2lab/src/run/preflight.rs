//! Whether this kernel takes the sysctls of a plan, asked before anything is measured: the fifth value of an axis must not
//! end a run in its middle.

use std::io::BufReader;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use h2lab_model::scenario::{Cell, Sysctls};

use super::child::{Running, SYSCTLS, self_command};
use super::lab::failure;
use super::messages::{Failure, Writer};
use super::spec::read_task;
use h2lab_lab::topology;
use h2lab_lab::topology::{present_sysctls, try_sysctls};

/// Tries what the cells of `plan` set, in a child and in namespaces that are gone afterwards. Most plans set nothing, and
/// nothing is started. `stop` ends the child; the run then ends at its first repetition.
pub fn sysctls(plan: &[Cell], stop: &AtomicBool) -> Result<()> {
    let mut wanted: Vec<&Sysctls> = Vec::new();
    for sysctls in plan.iter().map(|cell| &cell.sysctls).filter(|sysctls| !sysctls.is_empty()) {
        if !wanted.contains(&sysctls) {
            wanted.push(sysctls);
        }
    }
    if wanted.is_empty() {
        return Ok(());
    }
    Running::start(self_command(SYSCTLS), &wanted)?.receive(stop, &mut |_| {}).map(|_| ())
}

/// The child: `h2lab __sysctls`.
pub fn main() -> Result<()> {
    let wanted: Vec<Sysctls> = read_task(&mut BufReader::new(std::io::stdin()))?;
    let mut writer = Writer::new(std::io::stdout());
    match try_in_namespaces(&wanted) {
        Ok(()) => writer.done(),
        Err(error) => writer.failed(&failure(error)),
    }
}

fn try_in_namespaces(wanted: &[Sysctls]) -> Result<()> {
    let outside = present_sysctls(wanted.iter().flat_map(Sysctls::names));
    topology::enter().map_err(Failure::from)?;
    Ok(try_sysctls(wanted).map_err(|error| Failure::from(error.seen_from(&outside)))?)
}

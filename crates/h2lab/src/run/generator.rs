//! The generator's process: `h2lab __load`.

use std::io::{BufRead, BufReader, Read};
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use serde::de::DeserializeOwned;

use super::messages::{Failure, FailureKind, Progress, VisitHead, Writer};
use super::spec::GeneratorSpec;
use crate::load::{self, LoadError, LoadSpec};
use crate::topology::sched;

/// Makes one visit's load, tells its record, and keeps the connections open until the parent closes our input.
pub fn main() -> Result<()> {
    let mut input = BufReader::new(std::io::stdin());
    let spec: GeneratorSpec = read_task(&mut input)?;
    let mut writer = Writer::new(std::io::stdout());
    if let Some(cpu) = spec.cpu {
        // Placement is a wish: without it the visit is noisier, and its lateness says so.
        let _ = sched::set_affinity(cpu);
    }
    match run(spec, &mut writer) {
        Ok(finished) => {
            writer.done()?;
            // Our connections stay open until then, because the server's ends are read before.
            input.read_to_end(&mut Vec::new()).context("the parent is gone")?;
            drop(finished);
        }
        Err(error) => writer.failed(&failure(&error))?,
    }
    Ok(())
}

/// Reads the task: one line of JSON.
pub(super) fn read_task<T: DeserializeOwned>(input: &mut impl BufRead) -> Result<T> {
    let mut line = String::new();
    input.read_line(&mut line).context("cannot read the task")?;
    serde_json::from_str(&line).context("the task is not what this version of h2lab understands")
}

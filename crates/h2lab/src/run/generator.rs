//! The generator's process: `h2lab __load`.

use std::io::{BufReader, Read, Write};

use anyhow::{Context, Result};
use h2lab_model::record::Environment;
use h2lab_model::workload::Arrival;

use super::bulk;
use super::keys;
use super::messages::{Failure, RepetitionMessage, RepetitionProgress, Writer};
use super::spec::{GeneratorSpec, read_task};
use h2lab_lab::topology::sched;
use h2lab_lab::topology::sched::SchedulingPolicy;
use h2lab_net::privileges;
use h2lab_net::tcp::StreamSocket;
use h2lab_roles::load;
use h2lab_roles::load::{Finished, LoadError};

/// Makes one repetition's load, sends its record, and keeps the connections open until the parent closes our input.
pub fn main() -> Result<()> {
    let mut input = BufReader::new(std::io::stdin());
    let spec: GeneratorSpec = read_task(&mut input)?;
    let mut writer = Writer::new(std::io::stdout());
    if let Some(cpu) = spec.cpu {
        // Best effort: without pinning the repetition is noisier, which its lateness shows.
        let _ = sched::set_affinity(cpu);
    }
    let priority = prioritise(&spec.cell.work.arrival);
    renounce(&spec)?;
    match run(&spec, priority, &mut writer) {
        Ok(finished) => {
            writer.done()?;
            // Our connections stay open until then, because the server's ends are read before.
            input.read_to_end(&mut Vec::new()).context("the parent is gone")?;
            finished.map(Finished::close);
        }
        Err(error) => writer.failed(&failure(error))?,
    }
    Ok(())
}

/// Gives up all rights, now that the scheduling class is set, but what the file of TLS secrets and congestion control of our own
/// sockets need, if there are such.
fn renounce(spec: &GeneratorSpec) -> Result<()> {
    let sockets = bulk::congestion(spec).map_or(privileges::NONE, StreamSocket::rights_for_congestion);
    privileges::keep(keys::rights() | sockets)
        .context("the generator cannot drop its privileges; allow it capset(2) and prctl(2)")
}

/// Lets an open loop run as promptly as this user may ask for: it sleeps between requests, and another program's slice
/// must not make it late. A closed loop never sleeps while the server is fast, and would starve it.
fn prioritise(arrival: &Arrival) -> SchedulingPolicy {
    match arrival {
        Arrival::Closed { .. } => SchedulingPolicy::Ordinary,
        Arrival::Constant { .. } | Arrival::Poisson { .. } | Arrival::Ramp { .. } => sched::prefer(),
    }
}

/// Makes the load and sends its record. Bulk work leaves no connection open.
fn run<W: Write>(
    spec: &GeneratorSpec,
    priority: SchedulingPolicy,
    writer: &mut Writer<W>,
) -> Result<Option<Finished>> {
    if spec.cell.work.bulk {
        // What is to be known of the server's ends is read while data comes.
        return bulk::run(spec, writer).map(|()| None);
    }
    let load = spec.load_spec();
    let finished = load::run(&load, &mut |now| {
        let progress = RepetitionProgress {
            elapsed_s: now.elapsed.as_secs_f64(),
            sent: now.due,
            completed: now.succeeded,
            failed: now.failed,
        };
        // Fails only when the parent is gone, and then we are being killed.
        let _ = writer.progress(&progress);
    })?;
    let result = &finished.result;
    let head = RepetitionMessage {
        started_at: result.started_at,
        connections: result.connections.clone(),
        generator: result.generator,
        warnings: result.warnings.clone(),
        environment: Environment {
            placement: vec![("generator priority".to_owned(), priority.name().to_owned())],
            ..Environment::default()
        },
        ..RepetitionMessage::default()
    };
    writer.repetition(&head, &result.samples, &result.frames, &result.tcp)?;
    Ok(Some(finished))
}

/// What an error means for the exit code.
fn failure(error: anyhow::Error) -> Failure {
    error.downcast::<LoadError>().map_or_else(super::lab::failure, Failure::from)
}

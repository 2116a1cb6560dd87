//! The lab's process: `h2lab __lab`. Namespaces, link, server and generator of one visit; all of it ends with it.

use std::io::{BufReader, Write};
use std::process::Stdio;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use h2lab_core::link::LinkSpec;
use h2lab_core::record::Environment;
use h2lab_core::scenario::{Cell, Target};

use super::child::{Ended, LOAD, Running};
use super::generator::read_task;
use super::messages::{Failure, FailureKind, Incoming, Writer};
use super::server_watch::ServerWatch;
use super::spec::{GeneratorSpec, LabSpec, TlsTrust};
use crate::io::clock::monotonic_ns;
use crate::sut;
use crate::topology::{self, Entered, Namespaces, Pump, Side, TopologySpec, sched};

/// Enters the namespaces and does the task. Returns in the first process of the PID namespace only.
pub fn main() -> Result<()> {
    let spec: LabSpec = read_task(&mut BufReader::new(std::io::stdin()))?;
    let mut writer = Writer::new(std::io::stdout());
    let result = topology::enter().map_err(|error| environment(&error)).and_then(|entered| match spec {
        LabSpec::Visit { cell, clock_origin_ns, logs, max_requests_per_connection } => {
            let visit = Visit { cell: *cell, clock_origin_ns, logs, max_requests_per_connection, entered };
            visit.make(&mut writer)
        }
        LabSpec::Commands { link, congestion, seed, server, client } => {
            commands(&link, congestion, seed, server.as_deref(), &client)
        }
    });
    match result {
        Ok(()) => Ok(()),
        Err(error) => {
            let failure = error.downcast::<Failure>().unwrap_or_else(|error| Failure {
                kind: FailureKind::Harness,
                message: format!("{error:#}"),
            });
            writer.failed(&failure)
        }
    }
}

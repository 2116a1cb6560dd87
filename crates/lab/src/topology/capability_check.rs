//! Tries a step in a process of its own; everything that the step made is removed with that process.

use std::fs::File;
use std::io::{Read, Write};

use rustix::pipe::{PipeFlags, pipe_with};
use serde::{Deserialize, Serialize};

use super::error::{During, Result, TopologyError};
use super::setup_step::SetupStep;
use super::sys::{Forked, exit_now, fork, wait_for};

/// Why a capability check failed, as its process reports it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Refusal {
    /// Id of the step that was refused: that of the capability check or one before it.
    pub step: String,
    /// The kernel's error.
    pub reason: String,
    /// The line that enables the step, if one is known.
    pub remedy: Option<String>,
    /// The whole error as text.
    pub text: String,
}

impl Refusal {
    fn of(error: &TopologyError) -> Self {
        let (step, reason) = match error {
            TopologyError::Refused { step, source, detail } if detail.is_empty() => {
                (*step, source.to_string())
            }
            TopologyError::Refused { step, source, detail } => (*step, format!("{source} ({detail})")),
            TopologyError::UnknownCongestion { .. } => (SetupStep::Route, error.to_string()),
            TopologyError::SysctlAbsent { .. }
            | TopologyError::SysctlOfMachine { .. }
            | TopologyError::SysctlValue { .. }
            | TopologyError::SysctlNotApplied { .. } => (SetupStep::Sysctl, error.to_string()),
            TopologyError::CongestionNotApplied { .. } | TopologyError::ThreadsRunning { .. } => {
                (SetupStep::Connection, error.to_string())
            }
        };
        Self { step: step.id().to_owned(), reason, remedy: error.remedy(), text: error.to_string() }
    }
}

/// Runs a capability check in a child; returns why it failed. The calling process must have only one thread.
pub(super) fn in_child(run: &dyn Fn() -> Result<()>) -> Result<Option<Refusal>> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).during(SetupStep::PidNamespace)?;
    match fork().during(SetupStep::PidNamespace)? {
        Forked::Child => {
            drop(reader);
            let refusal = run().err().map(|error| Refusal::of(&error));
            let text = serde_json::to_vec(&refusal).unwrap_or_default();
            exit_now(i32::from(File::from(writer).write_all(&text).is_err()));
        }
        Forked::Parent(child) => {
            drop(writer);
            let mut text = Vec::new();
            let read = File::from(reader).read_to_end(&mut text);
            wait_for(child);
            read.during(SetupStep::PidNamespace)?;
            // A child that was killed has sent nothing.
            let silent = || {
                let reason = "the capability check's process died".to_owned();
                Refusal { step: String::new(), text: reason.clone(), reason, remedy: None }
            };
            Ok(serde_json::from_slice(&text).unwrap_or_else(|_| Some(silent())))
        }
    }
}

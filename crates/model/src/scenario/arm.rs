//! Arms: ways to talk that a study compares where their full product would be mostly cells that nobody asked for.

use serde::{Deserialize, Serialize};

use super::axis::{Axis, ConnectionCount};
use super::file::MatrixAxes;
use super::topology::Topology;
use crate::workload::Protocol;

/// One arm: its axes in place of the matrix's. What it does not name is the matrix's.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Arm {
    /// See [`MatrixAxes::origin`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Axis<String>>,
    /// See [`MatrixAxes::topology`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<Axis<Topology>>,
    /// See [`MatrixAxes::sidecar`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sidecar: Option<Axis<String>>,
    /// See [`MatrixAxes::protocols`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocols: Option<Axis<Protocol>>,
    /// See [`MatrixAxes::connections`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<Axis<ConnectionCount>>,
}

impl Arm {
    /// `matrix` with this arm's axes, and without arms.
    fn of(&self, matrix: &MatrixAxes) -> MatrixAxes {
        fn own<T: Clone>(axis: Option<&Axis<T>>, otherwise: &Axis<T>) -> Axis<T> {
            axis.unwrap_or(otherwise).clone()
        }
        MatrixAxes {
            origin: own(self.origin.as_ref(), &matrix.origin),
            topology: own(self.topology.as_ref(), &matrix.topology),
            sidecar: self.sidecar.clone().or_else(|| matrix.sidecar.clone()),
            protocols: own(self.protocols.as_ref(), &matrix.protocols),
            connections: own(self.connections.as_ref(), &matrix.connections),
            arms: Vec::new(),
            ..matrix.clone()
        }
    }
}

impl MatrixAxes {
    /// The matrices that this one stands for: one for each arm, or itself.
    pub fn matrices(&self) -> Vec<Self> {
        match self.arms.as_slice() {
            [] => vec![self.clone()],
            arms => arms.iter().map(|arm| arm.of(self)).collect(),
        }
    }
}

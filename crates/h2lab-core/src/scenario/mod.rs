//! What to measure: a scenario file or command line, expanded into a plan of cells.

pub mod axis;
pub mod cell;
pub mod client;
pub mod error;
pub mod file;
pub mod label;
pub mod plan;
pub mod ramp;
mod refusals;
pub mod topology;

pub use axis::{Axis, AxisValue, Capacity, Queue, RequestLimit};
pub use cell::{Cell, Target};
pub use client::ClientAxes;
pub use error::ScenarioError;
pub use file::{ArrivalShape, LinkAxes, LinkOverride, LiveTarget, MatrixAxes, Scenario, WorkAxes};
pub use label::{Difference, Naming, labels};
pub use ramp::Ramp;
pub use topology::{Sidecar, Topology};

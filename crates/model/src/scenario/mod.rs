//! What to measure: a scenario file or command line, expanded into a plan of cells.

pub mod axis;
mod bulk;
pub mod capture;
pub mod cell;
pub mod client;
pub mod error;
pub mod estimate;
pub mod file;
pub mod label;
pub mod link;
mod need;
pub mod plan;
mod quick;
pub mod ramp;
mod received;
mod refusals;
pub mod resume;
mod setup;
#[cfg(test)]
mod shipped;
pub mod sysctl;
pub mod topology;
mod validate;
mod vary;

pub use axis::{Axis, AxisValue, Capacity, ConnectionCount, QueueSize, RequestLimit};
pub use capture::CaptureOptions;
pub use cell::{Cell, Target};
pub use client::ClientAxes;
pub use error::ScenarioError;
pub use estimate::Estimate;
pub use file::{Arm, ArrivalShape, LiveTarget, MatrixAxes, Scenario, WorkAxes};
pub use label::{Difference, Naming, labels};
pub use link::{LinkAxes, LinkOverride, LinkStep};
pub use ramp::Ramp;
pub use setup::{Change, ServerSetup};
pub use sysctl::{SysctlAxes, Sysctls};
pub use topology::{Sidecar, Topology};

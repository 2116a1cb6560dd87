//! What to measure: a scenario file or command line, expanded into a plan of cells.

pub mod axis;
pub mod cell;
pub mod error;
pub mod file;
pub mod label;
pub mod plan;
mod refusals;

pub use axis::{Axis, AxisValue, Capacity, Queue};
pub use cell::{Cell, Target};
pub use error::ScenarioError;
pub use file::{ArrivalShape, LinkAxes, LinkOverride, LiveTarget, MatrixAxes, Scenario, WorkAxes};
pub use label::{Naming, labels};

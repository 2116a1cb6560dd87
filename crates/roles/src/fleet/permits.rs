//! What an agent may do, whatever its driver asks for.

use std::fmt;
use std::time::Duration;

use h2lab_model::fleet::{FetchTask, LoadTask, ServeTask};

/// What the owner of a machine lets its agent do. Each task is checked before a name is resolved or a packet leaves; the error
/// says in words what is refused, and which flag of the agent refuses it.
pub trait Permits: fmt::Debug + Send + Sync {
    /// Whether it may make this share of a load.
    fn load(&self, task: &LoadTask) -> Result<(), String>;

    /// Whether it may do all these transfers at once.
    fn fetch(&self, tasks: &[FetchTask]) -> Result<(), String>;

    /// Whether it may serve this.
    fn serve(&self, task: &ServeTask) -> Result<(), String>;

    /// The most bytes that all transfers of one driver may move; `None` is any number. It is checked ten times per second while
    /// they run. Who makes shares of loads counts by itself, and nobody counts what a server moves.
    fn bytes(&self) -> Option<u64>;

    /// How long it may serve for one driver; `None` is any time. Transfers and loads have a time of their own, which is checked
    /// with their tasks.
    fn time(&self) -> Option<Duration>;
}

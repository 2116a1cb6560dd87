//! What an agent waits for: its driver's messages, and events of its own threads.

use h2lab_base::units::Time;
use h2lab_model::bulk::BulkRecord;
use h2lab_model::fleet::{PairFigures, ServerFigures, ToAgent};

use super::shares::ShareEvent;

/// Makes the figures of a pair from its record: a matter of analysis, which no role does itself.
pub type Summarize = fn(&BulkRecord) -> PairFigures;

/// An event of an agent.
#[derive(Debug)]
pub enum AgentEvent {
    /// A message from the driver.
    Message(ToAgent),
    /// No more messages will come; with the reason if that is not an orderly end.
    End(Option<String>),
    /// Its server listens, or why it does not.
    Serving(Result<std::net::SocketAddr, String>),
    /// Its server has ended; what serving took.
    Served(ServerFigures),
    /// A pair is over.
    Over {
        /// Its place in the plan.
        pair: u32,
        /// When it was really begun.
        began: Time,
        /// The result.
        figures: Result<Box<PairFigures>, String>,
    },
    /// Its share of a load has reported something.
    Share(ShareEvent),
}

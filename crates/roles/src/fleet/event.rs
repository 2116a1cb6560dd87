//! What an agent waits for: its messages, and what its own threads have to say.

use h2lab_base::units::Time;
use h2lab_model::bulk::BulkRecord;
use h2lab_model::fleet::{PairFigures, ServerFigures, ToAgent};

/// Makes the figures of a pair of its record: a matter of analysis, which no role does itself.
pub type Summarize = fn(&BulkRecord) -> PairFigures;

/// What happens to an agent.
#[derive(Debug)]
pub enum Event {
    /// It is told something.
    Message(ToAgent),
    /// Nothing will be told any more; with the reason if that is not an orderly end.
    End(Option<String>),
    /// Its server has gone so far.
    Serving(Result<std::net::SocketAddr, String>),
    /// Its server has ended; what serving took.
    Served(ServerFigures),
    /// A pair is over.
    Over {
        /// Its place in the plan.
        pair: u32,
        /// When it was really begun.
        began: Time,
        /// What came of it.
        figures: Result<Box<PairFigures>, String>,
    },
}

//! Conclusions from a server's answers, and where to search next: the role sends, this module has no I/O.

mod answer;
mod compare;
mod expectation;
mod quota;
mod search;
mod sign;
mod streams;

pub use answer::{Answer, AnswerEnd, FieldLines};
pub use compare::{ComparedAnswers, Comparison};
pub use expectation::expectation;
pub use quota::{SequentialRequests, Stop, quota};
pub use search::{Search, Taken};
pub use sign::{Reaction, sign};
pub use streams::{Held, concurrency};

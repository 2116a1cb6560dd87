//! What follows from what a server answered, and where to search next: the role asks, and here nothing is sent.

mod answer;
mod compare;
mod expectation;
mod quota;
mod search;
mod sign;
mod streams;

pub use answer::{Answer, Ended, Lines};
pub use compare::{Comparison, Pair};
pub use expectation::expectation;
pub use quota::{Row, Stop, quota};
pub use search::{Search, Taken};
pub use sign::{Reaction, sign};
pub use streams::{Held, concurrency};

//! How much of a service's work may be under way: requests beyond that are refused at once, instead of waiting in vain.

use std::time::Duration;

/// The bounds; `None` is unbounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bounds {
    /// Requests under way, those that wait included.
    pub open: Option<u32>,
    /// Of these, those that wait for a connection.
    pub waiting: Option<u32>,
    /// How long one may wait for a connection.
    pub wait: Option<Duration>,
}

/// Which bound was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Overflow {
    /// [`Bounds::open`].
    #[error("{0} in progress (limits.open)")]
    Open(u32),
    /// [`Bounds::waiting`].
    #[error("{0} waiting for a connection (limits.waiting)")]
    Waiting(u32),
}

impl Bounds {
    /// Whether one more request may come while `open` are under way.
    pub fn may_open(&self, open: u32) -> Result<(), Overflow> {
        match self.open {
            Some(most) if open >= most => Err(Overflow::Open(most)),
            _ => Ok(()),
        }
    }

    /// Whether one more request may wait beside `waiting` others.
    pub fn may_wait(&self, waiting: u32) -> Result<(), Overflow> {
        match self.waiting {
            Some(most) if waiting >= most => Err(Overflow::Waiting(most)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_that_fits_is_taken_and_the_next_one_is_not() {
        let bounds = Bounds { open: Some(2), waiting: Some(1), wait: None };
        assert_eq!([bounds.may_open(1), bounds.may_open(2)], [Ok(()), Err(Overflow::Open(2))]);
        assert_eq!([bounds.may_wait(0), bounds.may_wait(1)], [Ok(()), Err(Overflow::Waiting(1))]);
        let none = Bounds::default();
        assert_eq!((none.may_open(u32::MAX), none.may_wait(u32::MAX)), (Ok(()), Ok(())));
    }
}

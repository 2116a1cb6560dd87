//! Whether an instance gets another connection now.

use super::place::Room;
use super::portion::Portion;
use crate::config::Policy;

/// Connections to an instance at most where each carries one request.
pub const MOST: u32 = 1_024;
/// Connections that [`Policy::Adaptive`] makes at most.
pub const MOST_ADAPTIVE: u32 = 64;

/// The connections of an instance, and what waits for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// Those that take further requests and are not about to end.
    pub lasting: u32,
    /// Those that are being dialled.
    pub dialling: u32,
    /// Requests that wait for one.
    pub waiting: u32,
}

impl Count {
    /// How many there should be, those that are being dialled included. `is_single`: each carries one request at a time. `by_path`: what
    /// [`super::estimate`] asks for. `portion`: the part of all bounds that is this loop's.
    pub fn wanted(self, policy: Policy, is_single: bool, by_path: u32, portion: Portion) -> u32 {
        let there = self.lasting + self.dialling;
        match policy {
            // One for each that waits; those being dialled are for the first of them.
            _ if is_single => (self.lasting + self.waiting).min(portion.part(MOST)),
            // All streams are taken, too: one more at a time.
            Policy::Adaptive if self.waiting > 0 && self.dialling == 0 => {
                by_path.max(there + 1).min(portion.part(MOST_ADAPTIVE))
            }
            Policy::Adaptive => by_path.max(1),
            // One at a time: the next when this one is busy, too.
            Policy::Fixed(n) if self.dialling == 0 => portion.part(n).min(there + 1),
            Policy::Fixed(_) | Policy::PerRequest => there,
        }
    }
}

/// Whether no dial is needed for a request that is placed here: the connection carries no other one, and is not about
/// to end.
pub fn is_enough(chosen: Option<Room>, is_lasting: bool) -> bool {
    is_lasting && chosen.is_some_and(|room| room.open == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Portion = Portion { number: 0, of: 1 };

    fn count(lasting: u32, dialling: u32, waiting: u32) -> Count {
        Count { lasting, dialling, waiting }
    }

    #[test]
    fn callers_that_come_at_once_make_one_dial_where_streams_share_a_connection() {
        let wanted = |count: Count| count.wanted(Policy::Adaptive, false, 1, ALL);
        assert_eq!([wanted(count(0, 0, 1)), wanted(count(0, 1, 50))], [1, 1]);
        assert_eq!(wanted(count(1, 0, 50)), 2, "all streams are taken");
        assert_eq!(wanted(count(1, 1, 50)), 1, "the second one is under way");
        assert_eq!(wanted(count(64, 0, 50)), 64);
        let fixed = |count: Count| count.wanted(Policy::Fixed(8), false, 1, ALL);
        assert_eq!([fixed(count(0, 0, 1)), fixed(count(0, 1, 50)), fixed(count(8, 0, 50))], [1, 1, 8]);
    }

    #[test]
    fn what_the_path_needs_is_dialled_at_once() {
        let wanted = |count: Count| count.wanted(Policy::Adaptive, false, 8, ALL);
        assert_eq!([wanted(count(1, 0, 0)), wanted(count(3, 4, 0)), wanted(count(9, 0, 0))], [8; 3]);
        assert_eq!(wanted(count(8, 0, 1)), 9);
    }

    #[test]
    fn one_for_each_request_where_each_carries_one() {
        for policy in [Policy::PerRequest, Policy::Adaptive, Policy::Fixed(3)] {
            let wanted = |count: Count| count.wanted(policy, true, 5, ALL);
            assert_eq!([wanted(count(4, 0, 7)), wanted(count(4, 7, 7)), wanted(count(4, 0, 0))], [11, 11, 4]);
            assert_eq!(wanted(count(1_000, 0, 500)), MOST);
        }
    }

    #[test]
    fn a_thread_has_its_part() {
        let part = Portion { number: 3, of: 4 };
        assert_eq!(count(1, 0, 1).wanted(Policy::Fixed(6), false, 1, part), 1);
        assert_eq!(count(16, 0, 1).wanted(Policy::Adaptive, false, 1, part), 16);
        assert_eq!(count(250, 0, 100).wanted(Policy::PerRequest, true, 1, part), 256);
    }
}

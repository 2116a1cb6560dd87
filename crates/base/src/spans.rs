//! Spans of time that overlap.

use crate::units::Time;

/// The maximum number of these spans, each from one time to another, that overlap; at least 1. If one span ends when
/// another begins, the two do not overlap.
pub fn most_at_once(spans: impl Iterator<Item = (Time, Time)>) -> u32 {
    let mut events: Vec<(Time, bool)> =
        spans.flat_map(|(from, until)| [(from, true), (until, false)]).collect();
    events.sort_unstable();
    let (mut open, mut most) = (0_u32, 1);
    for (_, begins) in events {
        open = if begins { open + 1 } else { open.saturating_sub(1) };
        most = most.max(open);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_that_touch_are_not_at_the_same_time() {
        let most = |spans: &[(u64, u64)]| {
            most_at_once(
                spans.iter().map(|(from, until)| (Time::from_millis(*from), Time::from_millis(*until))),
            )
        };
        assert_eq!(most(&[]), 1);
        assert_eq!(most(&[(0, 5), (5, 9)]), 1);
        assert_eq!(most(&[(0, 6), (5, 9), (1, 2), (5, 6)]), 3);
    }
}

//! Spans of time that overlap.

use crate::units::Time;

/// The most of these spans, from a time until another, that there are at any one time; at least 1. Of two at the same time the one that
/// ends is over before the other begins.
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

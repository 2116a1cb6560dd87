//! Instances that have just appeared: caches are cold, and connections have small windows. They get less at first.

use std::time::Duration;

/// Parts of a weight, so that a part of weight 1 is a whole number, too.
const PARTS: u32 = 100;
/// The first share, in [`PARTS`].
const FIRST: u32 = 10;

/// The weight of an instance that appeared `age` ago, in hundredths: it grows from a tenth of `weight` to all of it within `period`.
/// `age` is `None` for one that was there from the start.
pub fn weight(weight: u32, age: Option<Duration>, period: Duration) -> u32 {
    let part = match age {
        Some(age) if age < period => {
            let grown = age.as_secs_f64() / period.as_secs_f64() * f64::from(PARTS - FIRST);
            FIRST + grown as u32
        }
        _ => PARTS,
    };
    weight.saturating_mul(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_grows_from_a_tenth_to_all() {
        let secs = Duration::from_secs;
        let of = |age| weight(2, Some(secs(age)), secs(10));
        assert_eq!([0, 5, 10, 99].map(of), [20, 110, 200, 200]);
        assert_eq!([weight(3, None, secs(10)), weight(3, Some(secs(0)), Duration::ZERO)], [300; 2]);
        assert_eq!(weight(0, None, secs(10)), 0, "what takes none takes none");
    }
}

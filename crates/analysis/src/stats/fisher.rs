//! Fisher's exact test: whether more of one group failed than of another by more than chance.

use super::correction::FALSE;

/// Whether more fail with a change than without it by more than chance. Each side is the number that failed, and of all. Not
/// corrected for several claims: a change that fails more is left out, so that a false alarm costs a result and claims none.
pub(crate) fn fail_more(without: [u64; 2], with: [u64; 2]) -> bool {
    // At exactly that chance it is more, whatever the sums' last digits.
    by_chance(without, with) <= FALSE * (1.0 + 1e-9)
}

/// The chance that of all failures this many or more are with the change if it makes no difference; 1 if the share with it
/// is no larger.
fn by_chance([failed, all]: [u64; 2], [failed_with, all_with]: [u64; 2]) -> f64 {
    if failed_with as f64 * all as f64 <= failed as f64 * all_with as f64 {
        return 1.0;
    }
    let failures = failed + failed_with;
    let ways = ln_choose(all, failed) + ln_choose(all_with, failed_with);
    let mut chance = (ways - ln_choose(all + all_with, failures)).exp();
    let mut sum = chance;
    // From each number of failures with the change to the next.
    for with in failed_with..failures.min(all_with) {
        let without = failures - with;
        let more = (all_with - with) as f64 * without as f64;
        chance *= more / ((with + 1) as f64 * (all + 1 - without) as f64);
        sum += chance;
    }
    sum
}

/// The logarithm of the number of ways in which `k` of `n` can be chosen.
fn ln_choose(n: u64, k: u64) -> f64 {
    (0..k.min(n.saturating_sub(k))).map(|i| ((n - i) as f64 / (i + 1) as f64).ln()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chance_of_more_failures_is_that_of_fishers_exact_test() {
        let is = |without, with, chance: f64| (by_chance(without, with) - chance).abs() < 1e-12;
        assert!(is([0, 3], [3, 3], 0.05) && is([0, 4], [3, 4], 4.0 / 56.0));
        assert!(is([1, 4], [4, 4], 4.0 / 56.0) && is([0, 80], [0, 80], 1.0) && is([2, 2], [2, 2], 1.0));
        // Fisher's own example, and groups of different sizes: C(5, 2) of C(8, 2).
        assert!(is([1, 4], [3, 4], 17.0 / 70.0) && is([0, 3], [2, 5], 10.0 / 28.0));
        let runs = |failed: u64| by_chance([failed, 80], [40, 80]);
        assert!(runs(20) < 0.01 && runs(38) > 0.3, "of many");
        let requests = |more: u64| by_chance([5_000, 100_000], [5_000 + more, 100_000]);
        assert!(requests(100) > 0.1 && requests(400) < 0.001, "of very many");
    }

    #[test]
    fn more_fail_where_chance_alone_shows_it_once_in_twenty_or_less_often() {
        // One of 20 ways, and 4 of 56.
        assert!(fail_more([0, 3], [3, 3]) && !fail_more([0, 4], [3, 4]));
        assert!(!fail_more([0, 3], [2, 3]) && !fail_more([3, 3], [0, 3]));
        assert!(!fail_more([0, 0], [0, 0]), "nothing was sent");
    }
}

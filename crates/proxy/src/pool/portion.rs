//! The part of a bound that one of several threads may use.

/// One of the threads that share bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Portion {
    /// Its number, from 0 on.
    pub number: u32,
    /// How many there are, 1 at least.
    pub of: u32,
}

impl Default for Portion {
    /// The only one.
    fn default() -> Self {
        Self { number: 0, of: 1 }
    }
}

impl Portion {
    /// Its part of `whole`: those of all threads together are the whole, and differ by one at most. Where the whole is less than there are
    /// threads, the last ones have 0.
    pub const fn part(self, whole: u32) -> u32 {
        whole / self.of + (self.number < whole % self.of) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_alike_and_together_the_whole() {
        for of in 1..10 {
            for whole in [0, 1, 7, 64, 1_024, u32::MAX] {
                let parts: Vec<u32> = (0..of).map(|number| Portion { number, of }.part(whole)).collect();
                let sum: u64 = parts.iter().map(|part| u64::from(*part)).sum();
                assert_eq!(sum, u64::from(whole), "{of}");
                assert!(
                    parts.is_sorted_by(|a, b| a >= b) && parts[0] - parts[parts.len() - 1] <= 1,
                    "{parts:?}"
                );
            }
        }
        assert_eq!(Portion::default().part(7), 7);
    }
}

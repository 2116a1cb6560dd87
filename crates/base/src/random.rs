//! Counter-based randomness: the n-th number of a purpose is a pure function of (seed, purpose, n).
//!
//! Each purpose has its own stream, so that changing the jitter does not change which packets are lost, and the same
//! seed gives the same decision for the same packet index.

/// A stream of random numbers for one purpose.
#[derive(Debug, Clone)]
pub struct Counter {
    key: u64,
    n: u64,
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection on 64 bits with full avalanche.
const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A seed derived from `seed` for one purpose; FNV-1a over the name, mixed with the seed.
pub const fn derive(seed: u64, purpose: &str) -> u64 {
    let bytes = purpose.as_bytes();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut i = 0;
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        i += 1;
    }
    mix(mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15)) ^ hash)
}

impl Counter {
    /// The stream of `purpose` under `seed`.
    pub const fn new(seed: u64, purpose: &str) -> Self {
        Self { key: derive(seed, purpose), n: 0 }
    }

    /// The number with index `n`, whatever was drawn before.
    pub const fn at(&self, n: u64) -> u64 {
        mix(self.key.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// The next number, uniform over 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        let value = self.at(self.n);
        self.n += 1;
        value
    }

    /// The next number, uniform in [0, 1).
    pub fn next_f64(&mut self) -> f64 {
        unit(self.next_u64())
    }

    /// The number with index `n`, uniform in [0, 1).
    pub fn f64_at(&self, n: u64) -> f64 {
        unit(self.at(n))
    }

    /// The next number, uniform in 0..bound. The bias is below bound / 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

/// The top 53 bits as a number in [0, 1).
fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purposes_do_not_share_numbers() {
        let (loss, jitter) = (Counter::new(1, "loss"), Counter::new(1, "jitter"));
        assert!((0..1000).all(|n| loss.at(n) != jitter.at(n)));
    }

    #[test]
    fn the_stream_is_a_function_of_its_index() {
        let mut counter = Counter::new(42, "loss");
        let drawn: Vec<u64> = (0..10).map(|_| counter.next_u64()).collect();
        let indexed: Vec<u64> = (0..10).map(|n| counter.at(n)).collect();
        assert_eq!(drawn, indexed);
    }

    #[test]
    fn numbers_are_uniform_enough_to_lose_packets_by() {
        let counter = Counter::new(7, "loss");
        let n = 1_000_000;
        let below = (0..n).filter(|&k| counter.f64_at(k) < 0.03).count() as f64;
        let (mean, sd) = (0.03 * n as f64, (n as f64 * 0.03 * 0.97).sqrt());
        assert!((below - mean).abs() < 4.0 * sd, "{below}");
    }

    #[test]
    fn below_stays_below() {
        let mut counter = Counter::new(3, "test");
        assert!((0..10_000).all(|_| counter.below(7) < 7));
    }
}

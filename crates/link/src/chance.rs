//! A share of all packets, drawn by their index: duplicate, corrupt, reorder.

use h2lab_base::random::Counter;
use h2lab_base::units::Ratio;

/// Hits a share of packets, each independently of the others.
#[derive(Debug, Clone)]
pub struct Chance {
    share: Ratio,
    counter: Counter,
}

impl Chance {
    /// Hits `share` of packets. Each `purpose` has its own numbers under `seed`.
    pub const fn new(share: Ratio, seed: u64, purpose: &str) -> Self {
        Self { share, counter: Counter::new(seed, purpose) }
    }

    /// Changes the share from now on; a larger share also hits all packets that a smaller one would have hit.
    pub const fn change(&mut self, share: Ratio) {
        self.share = share;
    }

    /// Whether packet `index` is hit.
    pub fn hits(&self, index: u64) -> bool {
        self.share != Ratio::ZERO && self.counter.f64_at(index) < self.share.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_hit_within_three_standard_deviations_and_by_index_alone() {
        let (n, p) = (1_000_000_u64, 0.01);
        let mut chance = Chance::new(Ratio::new(p).unwrap(), 5, "duplicate");
        let hit: Vec<u64> = (0..n).filter(|&k| chance.hits(k)).collect();
        let sd = (n as f64 * p * (1.0 - p)).sqrt();
        assert!((hit.len() as f64 - n as f64 * p).abs() <= 3.0 * sd, "{}", hit.len());
        chance.change(Ratio::new(0.02).unwrap());
        assert!(hit.iter().all(|&k| chance.hits(k)));
        chance.change(Ratio::ZERO);
        assert!(!(0..n).any(|k| chance.hits(k)));
        chance.change(Ratio::ONE);
        assert!((0..n).all(|k| chance.hits(k)));
    }

    #[test]
    fn purposes_hit_different_packets() {
        let of = |purpose| Chance::new(Ratio::new(0.5).unwrap(), 5, purpose);
        let (one, other) = (of("duplicate"), of("corrupt"));
        let same = (0..1000).filter(|&k| one.hits(k) == other.hits(k)).count();
        assert!((400..600).contains(&same), "{same}");
    }
}

//! Packets that leave their place in the order.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use super::chance::Chance;
use h2lab_base::units::{ParseQuantityError, Ratio, format_exact, parse_duration};

/// Which packets leave their place, and by how much.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reorder {
    /// Share of the candidates.
    pub share: Ratio,
    /// Every packet whose number this divides is a candidate: netem's `gap`.
    pub gap: NonZeroU32,
    /// How they are displaced.
    pub displacement: Displacement,
}

impl Default for Reorder {
    fn default() -> Self {
        Self { share: Ratio::ZERO, gap: NonZeroU32::MIN, displacement: Displacement::Ahead }
    }
}

impl Reorder {
    /// Whether it lets packets skip the delay.
    pub fn skips(&self) -> bool {
        self.share != Ratio::ZERO && self.displacement == Displacement::Ahead
    }
}

/// How a packet leaves its place in the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Displacement {
    /// It skips the delay, and so overtakes all packets in the delay line, as in netem.
    Ahead,
    /// It is held back for this long beyond its delay, and so is overtaken by those that come meanwhile.
    Behind(Duration),
}

impl FromStr for Reorder {
    type Err = ParseQuantityError;

    /// `1%` (ahead of the delay), `1%:2ms` (2 ms behind), `50%:gap5` (of every fifth), `50%:2ms:gap5`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || {
            ParseQuantityError::new(
                text,
                "a share of packets out of order (SHARE[:EXTRA-DELAY][:gapN], such as 1%, 1%:2ms or 50%:gap5)",
            )
        };
        let mut parts = text.split(':');
        let share = parts.next().ok_or_else(refuse)?.parse().map_err(|_| refuse())?;
        let mut reorder = Self { share, ..Self::default() };
        let mut rest: Vec<&str> = parts.collect();
        if let Some(gap) = rest.last().and_then(|part| part.strip_prefix("gap")) {
            reorder.gap = gap.parse().map_err(|_| refuse())?;
            rest.pop();
        }
        match rest.as_slice() {
            [] => {}
            [extra] => {
                let extra = parse_duration(extra).ok().filter(|extra| !extra.is_zero()).ok_or_else(refuse)?;
                reorder.displacement = Displacement::Behind(extra);
            }
            _ => return Err(refuse()),
        }
        // Without a share the rest has no effect.
        Ok(if share == Ratio::ZERO { Self::default() } else { reorder })
    }
}

impl fmt::Display for Reorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.share.to_exact_text())?;
        if let Displacement::Behind(extra) = self.displacement {
            write!(f, ":{}", format_exact(extra))?;
        }
        if self.gap != NonZeroU32::MIN {
            write!(f, ":gap{}", self.gap)?;
        }
        Ok(())
    }
}

super::text_form!(Reorder);

/// The state of reordering for one direction.
#[derive(Debug)]
pub struct Reorderer {
    reorder: Reorder,
    chance: Chance,
}

impl Reorderer {
    /// Under `seed`.
    pub const fn new(reorder: Reorder, seed: u64) -> Self {
        Self { reorder, chance: Chance::new(reorder.share, seed, "reorder") }
    }

    /// Changes the reordering.
    pub const fn change(&mut self, reorder: Reorder) {
        self.reorder = reorder;
        self.chance.change(reorder.share);
    }

    /// How packet `index` leaves its place; `None` if it keeps it.
    pub fn displaces(&self, index: u64) -> Option<Displacement> {
        let is_candidate = (index + 1).is_multiple_of(u64::from(self.reorder.gap.get()));
        (is_candidate && self.chance.hits(index)).then_some(self.reorder.displacement)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_parses_as_it_prints() {
        for text in ["0%", "1%", "1%:2ms", "50%:gap5", "50%:2ms:gap5"] {
            assert_eq!(text.parse::<Reorder>().unwrap().to_string(), text);
        }
        assert_eq!("0%:2ms:gap5".parse::<Reorder>().unwrap(), Reorder::default());
        for bad in ["", "101%", "1%:", "1%:0ms", "1%:gap0", "1%:gap", "1%:gap5:2ms", "1%:1ms:2ms", "1%:2"] {
            assert!(bad.parse::<Reorder>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_gap_leaves_the_share_to_every_nth_packet() {
        let every = Reorderer::new("100%:gap5".parse().unwrap(), 1);
        assert!((0..100).all(|k| every.displaces(k).is_some() == (k % 5 == 4)));
        let half = Reorderer::new("50%:1ms:gap5".parse().unwrap(), 1);
        let hit: Vec<u64> = (0..100_000).filter(|&k| half.displaces(k).is_some()).collect();
        assert!(hit.iter().all(|k| k % 5 == 4));
        let sd = (20_000.0 * 0.25_f64).sqrt();
        assert!((hit.len() as f64 - 10_000.0).abs() <= 3.0 * sd, "{}", hit.len());
        assert_eq!(half.displaces(hit[0]), Some(Displacement::Behind(Duration::from_millis(1))));
    }
}

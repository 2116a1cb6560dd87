//! Several kinds of requests in one work: which of them each request is.

use serde::{Deserialize, Serialize};

use super::body::Body;
use h2lab_base::random::Counter;

/// One kind of request of a mix. What it does not name is as in the work itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct MixEntry {
    /// How often it occurs against the others: 1 or more.
    pub weight: u32,
    /// `GET`, `POST` …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Path and query.
    pub path: String,
    /// Header fields beside those of the work; a name given here replaces that of the work.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// The request body instead of that of the work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Body>,
}

/// Which entry of a mix each request is: a function of the seed and the request's number, so that a replayed request
/// stays the same, and the same seed gives the same requests.
#[derive(Debug, Clone)]
pub struct Draw {
    random: Counter,
    /// By entry: the weights up to and including it.
    upto: Vec<u64>,
}

impl Draw {
    /// Draws from `mix`, which may be empty: then there is one kind. An entry whose weight is 0 is never drawn, unless all are 0.
    pub fn new(mix: &[MixEntry], seed: u64) -> Self {
        let upto = mix.iter().scan(0, |sum, entry| {
            *sum += u64::from(entry.weight);
            Some(*sum)
        });
        Self { random: Counter::new(seed, "mix"), upto: upto.collect() }
    }

    /// The entry that request `number` is; 0 if there are none.
    pub fn kind(&self, number: u64) -> u16 {
        if self.upto.len() < 2 {
            return 0;
        }
        let total = u128::from(self.upto[self.upto.len() - 1]);
        let ticket = ((u128::from(self.random.at(number)) * total) >> 64) as u64;
        let entry = self.upto.partition_point(|&upto| upto <= ticket);
        u16::try_from(entry.min(self.upto.len() - 1)).unwrap_or(u16::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(weights: &[u32], seed: u64) -> Draw {
        let entry = |&weight| MixEntry { weight, ..MixEntry::default() };
        Draw::new(&weights.iter().map(entry).collect::<Vec<_>>(), seed)
    }

    #[test]
    fn entries_occur_by_their_weights() {
        let draw = draw(&[1, 0, 6, 3], 7);
        let mut drawn = [0_u32; 4];
        for number in 0..100_000 {
            drawn[usize::from(draw.kind(number))] += 1;
        }
        assert_eq!(drawn[1], 0, "weight 0 is never");
        for (n, expected) in [(drawn[0], 10_000.0), (drawn[2], 60_000.0), (drawn[3], 30_000.0)] {
            assert!((f64::from(n) - expected).abs() < 600.0, "{drawn:?}");
        }
    }

    #[test]
    fn a_kind_depends_on_seed_and_number_and_on_nothing_else() {
        let kinds = |seed| (0..64).map(|number| draw(&[1, 1], seed).kind(number)).collect::<Vec<_>>();
        assert_eq!(kinds(1), kinds(1));
        assert_ne!(kinds(1), kinds(2));
    }

    #[test]
    fn without_a_choice_there_is_one_kind() {
        for weights in [&[][..], &[5], &[0]] {
            assert!((0..100).all(|number| draw(weights, 1).kind(number) == 0));
        }
        assert!((0..100).all(|number| draw(&[0, 0], 1).kind(number) < 2));
    }
}

//! Ids and names that are spelled like a word that is neither.

use h2lab_analysis::diagnose::CAUSES;
use h2lab_base::spelling::distance;
use h2lab_model::probe::CHECKS;

/// How many are listed.
const NAMED: usize = 3;

/// The ids of the causes and checks whose id or name is spelled most like this word.
pub fn near(word: &str) -> Vec<&'static str> {
    let word = word.to_lowercase();
    let causes = CAUSES.iter().map(|cause| (cause.id, cause.name));
    let all = causes.chain(CHECKS.iter().map(|check| (check.id, check.name)));
    let mut apart: Vec<(usize, &str)> =
        all.map(|(id, name)| (distance(&word, &id.to_lowercase()).min(distance(&word, name)), id)).collect();
    apart.sort_unstable();
    apart.into_iter().take(NAMED).map(|(_, id)| id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_id_or_name_finds_what_was_meant() {
        assert_eq!(near("LOS101")[0], "LOSS101");
        assert_eq!(near("connection-windw")[0], "FLOW103");
    }
}

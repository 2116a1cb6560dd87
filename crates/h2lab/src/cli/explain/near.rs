//! Ids and names that are spelled like a word that is neither.

use h2lab_analysis::diagnose::CAUSES;
use h2lab_model::probe::CHECKS;

/// How many are named.
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

/// The number of characters to insert, remove or replace to make one of the other (Levenshtein).
pub fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = replaced.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_counts_insertions_removals_and_replacements() {
        assert_eq!(distance("loss101", "loss101"), 0);
        assert_eq!(distance("los101", "loss102"), 2);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn a_mistyped_id_or_name_finds_what_was_meant() {
        assert_eq!(near("LOS101")[0], "LOSS101");
        assert_eq!(near("connection-windw")[0], "FLOW103");
    }
}

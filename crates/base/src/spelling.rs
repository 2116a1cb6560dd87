//! Words that are spelled like one that was meant.

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

/// The entry of `known` that `word` is probably meant to be: at most a third of its characters differ.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = word.to_lowercase().replace('_', "-");
    let (apart, one) = known.iter().map(|one| (distance(&word, one), *one)).min()?;
    (apart * 3 <= word.chars().count().max(3)).then_some(one)
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
    fn a_word_is_near_if_most_of_it_is_right() {
        let known = ["listen", "service", "server-name", "tls"];
        for (word, meant) in [
            ("servce", Some("service")),
            ("Listen", Some("listen")),
            ("server_name", Some("server-name")),
            ("tl", Some("tls")),
            ("xyz", None),
            ("backends", None),
        ] {
            assert_eq!(nearest(word, &known), meant, "{word}");
        }
        assert_eq!(nearest("a", &[]), None);
    }
}

//! Names that become part of a subject: some come from other machines, and none may hold a wildcard or a second token.

use crate::NatsError;

/// The longest token.
const LONGEST: usize = 64;
/// The longest name of a part: `<run>.<unit>.<measurement>.<agent>`.
const LONGEST_NAME: usize = 200;

/// Fails unless `text` is one token of a subject: 1 to 64 of `A-Z a-z 0-9 _ -`.
pub(crate) fn token(text: &str) -> Result<&str, NatsError> {
    let is_good = (1..=LONGEST).contains(&text.len()) && text.bytes().all(is_of_token);
    is_good.then_some(text).ok_or_else(|| NatsError::invalid(text, "it must be 1 to 64 of A-Z a-z 0-9 _ -"))
}

/// Fails unless `text` can be the name of a part: tokens joined by dots, at most 200 characters.
pub(crate) fn part_name(text: &str) -> Result<&str, NatsError> {
    let is_good = text.len() <= LONGEST_NAME && text.split('.').all(|part| token(part).is_ok());
    is_good.then_some(text).ok_or_else(|| {
        NatsError::invalid(
            text,
            "it must be words of A-Z a-z 0-9 _ - with dots between, at most 200 characters",
        )
    })
}

/// Fails unless `text` is a subject; with `wildcards`, one that may be subscribed to.
pub(crate) fn subject(text: &str, wildcards: bool) -> Result<&str, NatsError> {
    let count = text.split('.').count();
    let is_good = |(index, token): (usize, &str)| match token {
        "*" => wildcards,
        ">" => wildcards && index + 1 == count,
        _ => !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic() && !b"*>".contains(&byte)),
    };
    text.split('.')
        .enumerate()
        .all(is_good)
        .then_some(text)
        .ok_or_else(|| NatsError::invalid(text, "it must be a subject: words with dots between"))
}

fn is_of_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_1_to_64_characters_and_no_dot_or_wildcard() {
        let longest = "x".repeat(64);
        for good in ["a", "kek-1", "A_9", longest.as_str()] {
            assert!(token(good).is_ok(), "{good}");
        }
        let longer = "x".repeat(65);
        for bad in ["", "a.b", "*", ">", "a b", "ü", "a\r\nPUB x 0", "/", longer.as_str()] {
            assert!(token(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_name_of_a_part_is_tokens_with_dots_between() {
        let longest = format!("{0}.{0}.{0}.aaaaa", "x".repeat(64));
        assert_eq!(longest.len(), 200);
        for good in ["run.1.kek-1", "session.kek", longest.as_str()] {
            assert!(part_name(good).is_ok(), "{good}");
        }
        let longer = format!("{longest}a");
        for bad in ["", ".", "..", "a..b", ".a", "a.", "a/b", "../a", "a.*", longer.as_str()] {
            assert!(part_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn wildcards_are_for_subscriptions_only() {
        for both in ["a", "a.b", "$JS.API.INFO"] {
            assert!(subject(both, false).is_ok() && subject(both, true).is_ok(), "{both}");
        }
        for filter in ["a.*", "a.>", ">", "*.b"] {
            assert!(subject(filter, false).is_err() && subject(filter, true).is_ok(), "{filter}");
        }
        for bad in ["", "a..b", "a b", "a.>.b", "a*", "a\r\n"] {
            assert!(subject(bad, true).is_err(), "{bad:?}");
        }
    }
}

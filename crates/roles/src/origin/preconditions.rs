//! Which state of a file an upload may replace: If-Match and If-None-Match (RFC 9110 §13).

use h2lab_wire::Fields;

use super::refusal::Refusal;

/// What a request requires of the file that is there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Preconditions {
    /// There is a file, and it has one of these tags.
    if_match: Option<Tags>,
    /// There is no file, or it has none of these tags.
    if_none_match: Option<Tags>,
}

/// Entity tags (RFC 9110 §8.8.3).
#[derive(Debug, Clone, PartialEq, Eq)]
enum Tags {
    /// `*`: those of any file.
    Any,
    /// These, with their quotes.
    These(Vec<String>),
}

impl Tags {
    fn of(fields: Fields<'_>, name: &str) -> Option<Self> {
        let text = std::str::from_utf8(fields.get(name)?).unwrap_or_default().trim_matches([' ', '\t']);
        let tags = || text.split(',').map(|tag| tag.trim_matches([' ', '\t']).to_owned()).collect();
        // Our tags have no comma. A foreign tag that has one is cut, and matches none of ours.
        Some(if text == "*" { Self::Any } else { Self::These(tags()) })
    }

    /// Whether `tag` is among them. A weak one is the same as a strong one only if `weakly`.
    fn have(&self, tag: &str, weakly: bool) -> bool {
        match self {
            Self::Any => true,
            Self::These(tags) => tags.iter().any(|known| {
                let known = if weakly { known.strip_prefix("W/").unwrap_or(known) } else { known };
                known == tag
            }),
        }
    }
}

impl Preconditions {
    /// What these fields require. A field that cannot be read matches nothing.
    pub fn of(fields: Fields<'_>) -> Self {
        Self { if_match: Tags::of(fields, "if-match"), if_none_match: Tags::of(fields, "if-none-match") }
    }

    /// Refuses with 412 a request that must not replace the file whose strong tag is `current`; `None` if there is no
    /// file.
    pub fn check(&self, current: Option<&str>) -> Result<(), Refusal> {
        let has = |tags: &Tags, weakly| current.is_some_and(|tag| tags.have(tag, weakly));
        if self.if_match.as_ref().is_some_and(|tags| !has(tags, false)) {
            return Err(Refusal::new(412, "If-Match: no file of this name, or its ETag differs"));
        }
        if self.if_none_match.as_ref().is_some_and(|tags| has(tags, true)) {
            return Err(Refusal::new(412, "If-None-Match: a file of this name has such an ETag"));
        }
        Ok(())
    }

    /// Whether they exclude any file.
    pub fn exclude_all(&self) -> bool {
        self.if_none_match == Some(Tags::Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(name: &str, value: &str, current: Option<&str>) -> bool {
        let checked = Fields::of(&[(name, value)], |fields| Preconditions::of(fields).check(current));
        checked.inspect_err(|refusal| assert_eq!(refusal.status, 412)).is_ok()
    }

    #[test]
    fn if_match_wants_this_state_and_if_none_match_any_other() {
        for (name, value, of_none, of_a, of_b) in [
            ("if-match", "*", false, true, true),
            ("if-match", "\"a\"", false, true, false),
            ("if-match", "\"c\" , \"a\"", false, true, false),
            ("if-match", "W/\"a\"", false, false, false),
            ("if-match", "", false, false, false),
            ("if-none-match", "*", true, false, false),
            ("if-none-match", "\"a\"", true, false, true),
            ("if-none-match", "\"c\",W/\"a\"", true, false, true),
            ("x", "*", true, true, true),
        ] {
            let found = [None, Some("\"a\""), Some("\"b\"")].map(|current| holds(name, value, current));
            assert_eq!(found, [of_none, of_a, of_b], "{name}: {value}");
        }
    }

    #[test]
    fn a_star_alone_excludes_all_files() {
        let exclude =
            |value| Fields::of(&[("if-none-match", value)], |fields| Preconditions::of(fields).exclude_all());
        assert_eq!((exclude("*"), exclude(" * "), exclude("\"a\"")), (true, true, false));
    }
}

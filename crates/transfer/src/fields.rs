//! As much of structured fields (RFC 9651) as digests need: the members of a dictionary.

/// A field that is not a dictionary; all of it is to be ignored (RFC 9651 §4.2).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` is not a dictionary of structured fields")]
pub struct Malformed {
    field: String,
}

/// The members of `field`, key and value, in order. A value is returned verbatim, without parameters, and is empty for
/// a member that is only a key. Values are checked only as far as needed to find their ends.
pub(super) fn members(field: &str) -> impl Iterator<Item = Result<(&str, &str), Malformed>> {
    let mut rest = Some(field.trim_matches(' ')).filter(|field| !field.is_empty());
    std::iter::from_fn(move || {
        let text = rest?;
        let end = end_of_member(text);
        rest = text.get(end + 1..).map(|rest| rest.trim_start_matches([' ', '\t']));
        let member = member(text[..end].trim_end_matches([' ', '\t']));
        if member.is_none() {
            rest = None;
        }
        Some(member.ok_or_else(|| Malformed { field: field.to_owned() }))
    })
}

/// Where the member at the beginning of `text` ends: at a comma outside of strings and inner lists.
fn end_of_member(text: &str) -> usize {
    let (mut in_string, mut is_escaped, mut in_list) = (false, false, false);
    let found = text.bytes().position(|byte| {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            b'(' | b')' if !in_string => in_list = byte == b'(',
            b',' => return !in_string && !in_list,
            _ => {}
        }
        false
    });
    found.unwrap_or(text.len())
}

/// Key and value of one member; `None` if it has no proper key (RFC 9651 §3.1.2).
fn member(text: &str) -> Option<(&str, &str)> {
    let is_key = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.*".contains(c);
    let at = text.find(|c| !is_key(c)).unwrap_or(text.len());
    let (key, rest) = text.split_at(at);
    if !key.starts_with(|c: char| c.is_ascii_lowercase() || c == '*') {
        return None;
    }
    match rest.strip_prefix('=') {
        Some(value) => Some((key, value.split(';').next().unwrap_or(value))),
        None if rest.is_empty() || rest.starts_with(';') => Some((key, "")),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(field: &str) -> Result<Vec<(&str, &str)>, Malformed> {
        members(field).collect()
    }

    #[test]
    fn members_come_in_order_without_their_parameters() {
        assert_eq!(read("a=1, b=:AA==:;p=\"x,y\" ,\tc"), Ok(vec![("a", "1"), ("b", ":AA==:"), ("c", "")]));
        assert_eq!(
            read("a=\"q\\\",\", b=(1 2);q, *c=?1"),
            Ok(vec![("a", "\"q\\\",\""), ("b", "(1 2)"), ("*c", "?1")])
        );
        assert_eq!(read("  "), Ok(vec![]));
    }

    #[test]
    fn what_is_no_dictionary_is_refused_as_a_whole() {
        for bad in ["a=1,", ",a=1", "a=1,,b=2", "A=1", "1a=1", "a =1", "a:1", "=1"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}

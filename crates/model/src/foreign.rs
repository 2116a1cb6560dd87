//! JSON and TOML that another program, or another machine, wrote: made printable as it is read.

use h2lab_base::text::made_printable;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads JSON with all its texts made printable, except for those under the keys `as_they_are`.
pub fn read<T: DeserializeOwned>(json: &str, as_they_are: &[&str]) -> serde_json::Result<T> {
    let mut value = serde_json::from_str(json)?;
    make_printable(&mut value, as_they_are);
    T::deserialize(value)
}

/// The same for TOML.
pub fn read_toml<T: DeserializeOwned>(text: &str, as_they_are: &[&str]) -> Result<T, toml::de::Error> {
    let mut value: Value = toml::from_str(text)?;
    make_printable(&mut value, as_they_are);
    T::deserialize(value).map_err(serde::de::Error::custom)
}

fn make_printable(value: &mut Value, as_they_are: &[&str]) {
    match value {
        Value::String(text) => *text = made_printable(text).into_owned(),
        Value::Array(values) => values.iter_mut().for_each(|value| make_printable(value, as_they_are)),
        Value::Object(values) => {
            let printable = |(key, mut value): (String, Value)| {
                if !as_they_are.contains(&key.as_str()) {
                    make_printable(&mut value, as_they_are);
                }
                (made_printable(&key).into_owned(), value)
            };
            *values = std::mem::take(values).into_iter().map(printable).collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_toml_says_is_printable_too_and_says_the_same() {
        let text = "a = [\"\\u001b[2J\", 1, 2.5, true]\nb = { c = \"\\u202e\" }\nclaim = \"\\n\"";
        let read: Value = read_toml(text, &["claim"]).unwrap();
        let expected =
            serde_json::json!({"a": ["\\u{1b}[2J", 1, 2.5, true], "b": {"c": "\\u{202e}"}, "claim": "\n"});
        assert_eq!(read, expected);
        assert!(read_toml::<Vec<u32>>("a = 1", &[]).is_err());
    }

    #[test]
    fn texts_are_printable_but_those_that_must_stay() {
        let text = r#"{"a": ["\u001b[2J", 1], "body": "1\n2", "b": {"c\u0000": "\u202e"}}"#;
        let read: Value = read(text, &["body"]).unwrap();
        assert_eq!(
            read,
            serde_json::json!({"a": ["\\u{1b}[2J", 1], "body": "1\n2", "b": {"c\\u{0}": "\\u{202e}"}})
        );
    }
}

//! JSON that another program, or another machine, wrote: made printable as it is read.

use h2lab_base::text::made_printable;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Reads JSON with all its texts made printable, but for those under the keys `as_they_are`.
pub fn read<T: DeserializeOwned>(json: &str, as_they_are: &[&str]) -> serde_json::Result<T> {
    let mut value = serde_json::from_str(json)?;
    make_printable(&mut value, as_they_are);
    T::deserialize(value)
}

fn make_printable(value: &mut Value, as_they_are: &[&str]) {
    match value {
        Value::String(text) => *text = made_printable(text).into_owned(),
        Value::Array(values) => values.iter_mut().for_each(|value| make_printable(value, as_they_are)),
        Value::Object(values) => {
            for (_, value) in values.iter_mut().filter(|(key, _)| !as_they_are.contains(&key.as_str())) {
                make_printable(value, as_they_are);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_printable_but_those_that_must_stay() {
        let read: Value =
            read(r#"{"a": ["\u001b[2J", 1], "body": "1\n2", "b": {"c": "\u202e"}}"#, &["body"]).unwrap();
        assert_eq!(
            read,
            serde_json::json!({"a": ["\\u{1b}[2J", 1], "body": "1\n2", "b": {"c": "\\u{202e}"}})
        );
    }
}

//! A file of instances: `instances = ["h2c://10.0.0.7:8080", { url = "h2c://10.0.0.8:8080", weight = 2 }]`, or the same as JSON.

use serde::Deserialize;

use crate::config::Member;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    instances: Vec<Member>,
}

/// The instances of a file. `name` decides: what ends in `.json` is JSON, everything else TOML. An empty list is valid;
/// an empty file is not: it may be about to be written.
pub fn instances(name: &str, text: &str) -> Result<Vec<Member>, String> {
    let is_json = std::path::Path::new(name).extension().is_some_and(|end| end.eq_ignore_ascii_case("json"));
    let file: Result<File, String> = if is_json {
        serde_json::from_str(text).map_err(|error| error.to_string())
    } else {
        toml::from_str(text).map_err(|error| crate::config::explained(text, &error).to_string())
    };
    file.map(|file| file.instances)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_toml_or_json() {
        let toml = instances("a.toml", r#"instances = ["h2c://a:1", { url = "http://b", weight = 2 }]"#);
        let json = instances("a.JSON", r#"{"instances": ["h2c://a:1", {"url": "http://b", "weight": 2}]}"#);
        assert_eq!(toml.as_ref().map(Vec::len), Ok(2));
        assert_eq!(toml, json);
        assert_eq!(instances("a.json", r#"{"instances": []}"#), Ok(Vec::new()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (name, text, words) in [
            ("a", "", "missing key \"instances\""),
            ("a.json", "", "EOF"),
            ("a", "instances = [\"ftp://a\"]", "invalid instance URL"),
            ("a.json", r#"{"instances": ["ftp://a"]}"#, "invalid instance URL"),
            ("a.json", r#"{"instance": []}"#, "unknown field"),
            ("a", "instances = [\"http://a\"", "expected"),
        ] {
            let told = instances(name, text).expect_err("it is wrong");
            assert!(told.contains(words), "{text}: {told}");
        }
    }
}

//! docs/sidecar-reference.md has every key of the file, with its default.

use h2lab_base::units::parse_duration;
use serde_json::Value;

const PAGE: &str = include_str!("../../../../docs/sidecar-reference.md");
const SCHEMA: &str = include_str!("../../../../docs/schema/sidecar-config.schema.json");

/// Types of the schema, the heading under which their keys are listed, and the prefix of a key there. Other types
/// have tables or lists of their own, or one sentence.
const TABLES: [(&str, &str, &str); 15] = [
    ("", "## Keys before all tables", ""),
    ("Listen", "## `[[listen]]`", ""),
    ("Service", "## `[service.NAME]`", ""),
    ("Consul", "### `consul`", ""),
    ("ServiceLimits", "### `[service.NAME.limits]`", ""),
    ("Outlier", "### `[service.NAME.outlier]`", ""),
    ("Health", "### `[service.NAME.health]`", ""),
    ("Rate", "### `rate`", ""),
    ("OwnFields", "## `[fields]`", ""),
    ("Timeouts", "## `[timeouts]`", ""),
    ("Retry", "## `[retry]`", ""),
    ("Log", "## `[log]`", "[log] "),
    ("Admin", "## `[log]`", "[admin] "),
    ("Hint", "## `[[hint]]`", "[[hint]] "),
    ("Hints", "## `[[hint]]`", "[hints] "),
];
/// Tables of the file, which have headings of their own.
const HAVE_HEADINGS: [&str; 14] = [
    "admin", "fields", "hint", "hints", "identity", "limits", "listen", "log", "outlier", "retry", "service",
    "timeouts", "trace", "health",
];

/// As it stands in a cell of the page: as TOML.
fn written(value: &Value) -> String {
    value.to_string().replace("\",\"", "\", \"")
}

fn is_same(default: &Value, cell: &str) -> bool {
    let text = cell.trim_matches('`');
    let time = |text: &str| parse_duration(text.trim_matches('"')).ok();
    match default {
        Value::Null => true, // the page says what applies without it
        Value::String(own) => {
            text.trim_matches('"') == own || time(own).is_some_and(|own| time(text) == Some(own))
        }
        other => text == written(other),
    }
}

#[test]
fn the_reference_has_every_key_with_its_default() {
    let schema: Value = serde_json::from_str(SCHEMA).expect("JSON");
    for (name, heading, before) in TABLES {
        let of = if name.is_empty() { &schema } else { &schema["$defs"][name] };
        let begin = PAGE.find(&format!("\n{heading}")).unwrap_or_else(|| panic!("{heading}"));
        let section = &PAGE[begin + 1..];
        let section = &section[..section.find("\n#").unwrap_or(section.len())];
        for (key, property) in of["properties"].as_object().expect(name) {
            if HAVE_HEADINGS.contains(&key.as_str()) && !section.contains(&format!("| `{before}{key}` |")) {
                let is_there = PAGE.lines().any(|line| line.starts_with('#') && line.contains(key.as_str()));
                assert!(is_there, "{key} has no heading");
                continue;
            }
            let row = section.lines().find(|line| line.starts_with(&format!("| `{before}{key}` |")));
            let row = row.unwrap_or_else(|| panic!("{key} is missing below {heading}"));
            let cell = row.split(" | ").nth(1).unwrap_or_default();
            let default = &property["default"];
            assert!(is_same(default, cell), "{key} below {heading}: {default}, and not {cell}");
            let is_required = of["required"].as_array().is_some_and(|all| all.contains(&key.as_str().into()));
            assert_eq!(cell == "*required*", is_required, "{key} below {heading}");
        }
    }
}

//! An instance beside the others of its service: `{ url = "h2c://10.0.0.7:8080", weight = 2, zone = "a" }`, or its URL alone.

use std::fmt;

use h2lab_base::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Instance;

/// The largest weight of an instance.
pub const LARGEST_WEIGHT: u32 = 1_000;

/// An instance, and its place among the others of its service.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(with = "Form")]
pub struct Member {
    /// Where it is, and what it speaks.
    pub url: Instance,
    /// Its share of the requests beside others that are as fast, 0 to [`LARGEST_WEIGHT`]; 0 takes none.
    pub weight: u32,
    /// Where it stands: instances of the sidecar's own zone are preferred.
    pub zone: Option<String>,
    /// Instances of a higher number are used only where none of a lower one can be reached (RFC 2782).
    pub priority: u16,
}

impl From<Instance> for Member {
    fn from(url: Instance) -> Self {
        Self { url, weight: 1, zone: None, priority: 0 }
    }
}

/// The same, as a table.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Table {
    url: Instance,
    #[serde(default = "one")]
    weight: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
    #[serde(default)]
    priority: u16,
}

/// The two forms, for the schema.
#[cfg(feature = "schema")]
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "it is there for its schema")]
enum Form {
    /// Its URL alone.
    Url(Instance),
    /// With its part beside the others.
    Table(Table),
}

const fn one() -> u32 {
    1
}

impl Serialize for Member {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if *self == Self::from(self.url.clone()) {
            return self.url.serialize(serializer);
        }
        let Self { url, weight, zone, priority } = self.clone();
        Table { url, weight, zone, priority }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Member {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Either)
    }
}

/// Reads both forms. Not `untagged`, which would not say what is wrong.
struct Either;

impl<'de> Visitor<'de> for Either {
    type Value = Member;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "an instance: \"h2c://HOST:PORT\" or { url = \"h2c://HOST:PORT\", weight = 2, zone = \"a\" }",
        )
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Member, E> {
        text.parse::<Instance>().map(Member::from).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Member, A::Error> {
        let Table { url, weight, zone, priority } = Table::deserialize(MapAccessDeserializer::new(map))?;
        if weight > LARGEST_WEIGHT {
            return Err(A::Error::custom(format!("weight of {url} must be from 0 to {LARGEST_WEIGHT}")));
        }
        Ok(Member { url, weight, zone, priority })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct List {
        instances: Vec<Member>,
    }

    fn read(text: &str) -> Result<Vec<Member>, String> {
        let list = toml::from_str::<List>(&format!("instances = [{text}]"));
        list.map(|list| list.instances).map_err(|error| error.to_string())
    }

    #[test]
    fn an_instance_is_a_url_or_a_table_and_both_stand_in_one_list() {
        let all = read(
            r#""h2c://a:1", { url = "http://b", weight = 0, zone = "x", priority = 3 }, { url = "http://c" }"#,
        );
        let all = all.expect("it is right");
        assert_eq!(all[0], Member::from("h2c://a:1".parse::<Instance>().expect("one")));
        assert_eq!((all[1].weight, all[1].zone.as_deref(), all[1].priority), (0, Some("x"), 3));
        assert_eq!((all[2].weight, all[2].priority), (1, 0));
        let text = toml::to_string(&List { instances: all }).expect("it is written");
        let again: List = toml::from_str(&text).expect("and read");
        assert_eq!((again.instances[1].weight, again.instances[0].weight), (0, 1), "{text}");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, words) in [
            (r#""ftp://a""#, "invalid instance URL"),
            (r#"{ url = "ftp://a" }"#, "invalid instance URL"),
            (r#"{ url = "http://a", weigth = 2 }"#, "unknown field `weigth`"),
            (r#"{ url = "http://a", weight = 1001 }"#, "from 0 to 1000"),
            (r#"{ url = "http://a", weight = -1 }"#, "-1"),
            ("{ weight = 1 }", "missing field `url`"),
            ("7", "an instance: \"h2c://HOST:PORT\""),
        ] {
            assert!(read(text).is_err_and(|told| told.contains(words)), "{text}");
        }
    }
}

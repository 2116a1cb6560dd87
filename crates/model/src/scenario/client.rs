//! The `[client]` table: non-default behaviour of our client, the same in every cell.

use std::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::workload::{ClientPolicy, EngineSettings};

/// How our client's HTTP/2 engine behaves, and how it treats its connections. How it dials when none is usable is an
/// axis of its own, `dial-policy`.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct ClientAxes {
    /// The HTTP/2 engine.
    #[serde(flatten)]
    pub engine: EngineSettings,
    /// What it does with its connections.
    #[serde(flatten)]
    pub policy: ClientPolicy,
    /// Unknown keys. `deny_unknown_fields` does not work with `flatten`, which ignores them.
    #[serde(flatten, skip_serializing)]
    unknown: NoKey,
}

impl ClientAxes {
    /// Whether the table is empty.
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A table that has no keys: any key in it is refused by its name.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct NoKey;

impl<'de> Deserialize<'de> for NoKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(NoKey)
    }
}

impl<'de> Visitor<'de> for NoKey {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a known key")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        match map.next_entry::<String, IgnoredAny>()? {
            None => Ok(self),
            Some((key, _)) => Err(serde::de::Error::custom(format!("unknown field `{key}`"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::scenario::Scenario;

    use super::*;

    #[test]
    fn engine_and_pool_share_a_table_that_survives_its_own_file() {
        let text = "[client]\nstream-window = 65535\nno-coalesce = true\nreconnect-every = 10\npool-size = 0\n\
                    cancel-after = '20ms'\nconnect-timeout = '2s'\nno-tls-resumption = true\nquick-acks = true";
        let scenario = Scenario::from_toml(text).unwrap();
        let client = scenario.client;
        assert_eq!((client.engine.stream_window, client.engine.no_coalesce), (Some(65_535), true));
        let policy = ClientPolicy {
            reconnect_every: Some(10),
            pool_size: Some(0),
            cancel_after: Some(std::time::Duration::from_millis(20)),
            connect_timeout: Some(std::time::Duration::from_secs(2)),
            no_tls_resumption: true,
            quick_acks: true,
        };
        assert_eq!(client.policy, policy);
        assert_eq!(Scenario::from_toml(&scenario.to_toml()).unwrap(), scenario);
        assert!(!Scenario::default().to_toml().contains("[client]"), "as runs before there was one");
        let json = serde_json::to_string(&scenario).unwrap();
        assert_eq!(serde_json::from_str::<Scenario>(&json).unwrap(), scenario, "run.json keeps it, too");
    }

    #[test]
    fn a_key_that_nobody_knows_is_refused_by_name() {
        for key in ["reconect-every", "dial", "dial-policy"] {
            let error = Scenario::from_toml(&format!("[client]\n{key} = 1")).unwrap_err().to_string();
            assert!(error.contains(key), "{error}");
        }
    }
}

//! Consul's list of healthy instances: `GET /v1/health/service/NAME?passing` and its blocking queries
//! (developer.hashicorp.com/consul/api-docs/health, …/features/blocking).

use std::fmt::Write as _;

use serde::Deserialize;

use crate::config::{Consul, Instance, LARGEST_WEIGHT, Member, Speaks};

/// Path and query of a request. `index`: that of the last answer, 0 before it; the agent answers when something has
/// changed since, or after `wait`.
pub fn path(consul: &Consul, index: u64) -> String {
    let mut path = format!("/v1/health/service/{}?passing=true", escaped(&consul.service));
    for (key, value) in [("dc", &consul.datacenter), ("tag", &consul.tag)] {
        if let Some(value) = value {
            let _ = write!(path, "&{key}={}", escaped(value)); // writing to a string cannot fail
        }
    }
    if index > 0 {
        let _ = write!(path, "&index={index}&wait={}s", consul.wait.as_secs());
    }
    path
}

/// The index of the next request. If the index has gone back, or is 0, it begins anew.
pub const fn next_index(before: u64, answered: Option<u64>) -> u64 {
    match answered {
        Some(index) if index >= before => index,
        _ => 0,
    }
}

/// Escapes everything but the characters that may stand in any part of a URL (RFC 3986 §2.3).
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    node: Node,
    service: Service,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Node {
    #[serde(default)]
    address: String,
    #[serde(default)]
    meta: Option<Meta>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Service {
    #[serde(default)]
    address: String,
    port: u16,
    #[serde(default)]
    tags: Option<Vec<String>>,
    #[serde(default)]
    meta: Option<Meta>,
    #[serde(default)]
    weights: Option<Weights>,
}

/// The meta data that users write for a node or a service.
#[derive(Deserialize)]
struct Meta {
    #[serde(default)]
    zone: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Weights {
    passing: u32,
}

/// The instances of an answer. The tags `h2c`, `h2`, `h3` and `https` say what one speaks, HTTP/1.1 in clear if none does; its address is the
/// service's, or its node's; its zone is the `zone` of the meta data of either; its weight is that of healthy instances.
pub fn instances(json: &[u8]) -> Result<Vec<Member>, String> {
    let entries: Vec<Entry> = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    let member = |Entry { node, service }: Entry| {
        let tags = service.tags.unwrap_or_default();
        let has = |tag: &str| tags.iter().any(|other| other == tag);
        let speaks = match () {
            () if has("h2c") => Speaks::H2c,
            () if has("h2") => Speaks::H2,
            () if has("h3") => Speaks::H3,
            () if has("https") => Speaks::Tls,
            () => Speaks::H1,
        };
        let host = if service.address.is_empty() { node.address } else { service.address };
        let zone = |meta: Option<Meta>| meta.and_then(|meta| meta.zone);
        Member {
            url: Instance { speaks, host, port: service.port },
            weight: service.weights.map_or(1, |weights| weights.passing.min(LARGEST_WEIGHT)),
            zone: zone(service.meta).or_else(|| zone(node.meta)),
            priority: 0,
        }
    };
    let members = entries.into_iter().map(member);
    // What has no address, or no port, cannot be connected to.
    Ok(members.filter(|member| !member.url.host.is_empty() && member.url.port > 0).collect())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The example of Consul's documentation, shortened, with a second instance.
    const ANSWER: &str = r#"[
        {
            "Node": {"ID": "40e4a748-2192-161a-0510-9bf59fe950b5", "Node": "foobar", "Address": "10.1.10.12",
                     "Datacenter": "dc1", "Meta": {"instance_type": "t2.medium", "zone": "b"}},
            "Service": {"ID": "redis", "Service": "redis", "Tags": ["primary"], "Address": "10.1.10.13",
                        "Meta": {"redis_version": "4.0"}, "Port": 8000, "Weights": {"Passing": 10, "Warning": 1}},
            "Checks": [{"Node": "foobar", "CheckID": "service:redis", "Status": "passing"}]
        },
        {
            "Node": {"Node": "x", "Address": "10.1.10.14", "Meta": null},
            "Service": {"Service": "redis", "Tags": ["v1", "h2c"], "Address": "", "Meta": null, "Port": 8001}
        },
        {"Node": {"Address": "10.1.10.15"}, "Service": {"Port": 0}}
    ]"#;

    fn consul() -> Consul {
        toml::from_str("service = 'a b'\ntag = 'x&y'\nwait = '30s'").expect("it is right")
    }

    #[test]
    fn instances_are_those_with_an_address() {
        let members = instances(ANSWER.as_bytes()).expect("it is right");
        let texts: Vec<String> = members.iter().map(|member| member.url.to_string()).collect();
        assert_eq!(texts, ["http://10.1.10.13:8000", "h2c://10.1.10.14:8001"]);
        assert_eq!((members[0].weight, members[0].zone.as_deref()), (10, Some("b")));
        assert_eq!((members[1].weight, members[1].zone.as_deref()), (1, None));
        assert_eq!(instances(b"[]").map(|members| members.len()), Ok(0));
        assert!(instances(b"{}").is_err() && instances(b"[{}]").is_err());
    }

    #[test]
    fn a_question_waits_for_what_is_new_and_begins_anew_where_the_index_goes_back() {
        assert_eq!(path(&consul(), 0), "/v1/health/service/a%20b?passing=true&tag=x%26y");
        assert!(path(&consul(), 7).ends_with("&index=7&wait=30s"));
        assert_eq!(consul().wait, Duration::from_secs(30));
        assert_eq!([next_index(5, Some(7)), next_index(5, Some(5)), next_index(5, Some(4))], [7, 5, 0]);
        assert_eq!([next_index(5, None), next_index(0, Some(0))], [0, 0]);
    }

    #[test]
    fn a_token_is_not_shown() {
        let consul: Consul = toml::from_str("service = 'a'\ntoken = 'hunter2'").expect("it is right");
        assert_eq!(consul.token.as_ref().map(crate::config::Token::secret), Some("hunter2"));
        assert!(!format!("{consul:?}").contains("hunter2"));
    }
}

//! Sysctls of the client's and of the server's network namespace: the `[sysctl.client]` and `[sysctl.server]` tables.
//!
//! Names are written as in sysctl(8). Which names and values exist depends on the kernel; this module refuses what no
//! kernel accepts in a network namespace.

use std::collections::BTreeMap;

use h2lab_base::JsonSchema;
use serde::{Deserialize, Serialize};

use super::axis::{Axis, AxisValue};
use super::error::ScenarioError;
use h2lab_base::units::{ParseQuantityError, parse_bytes};

/// The settings of each side, as in the file: one value or several for each sysctl.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct SysctlAxes {
    /// The maximum size of a socket buffer, in both directions and both namespaces: the third values of
    /// [`READ_BUFFERS`] and [`WRITE_BUFFERS`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_buffer: Option<Axis<TcpBuffer>>,
    /// In the client's namespace.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub client: BTreeMap<String, Axis<String>>,
    /// In the server's namespace.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub server: BTreeMap<String, Axis<String>>,
}

/// Sizes of a socket's receive buffer: the least, the usual, the most, in bytes (tcp(7)).
pub const READ_BUFFERS: &str = "net.ipv4.tcp_rmem";
/// The same of its send buffer.
pub const WRITE_BUFFERS: &str = "net.ipv4.tcp_wmem";

/// The maximum size of a socket buffer, in bytes: a page to 2^31 − 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpBuffer(pub u32);

impl TcpBuffer {
    /// The sysctls for it; minimum and default sizes are those of Linux.
    fn sysctls(self) -> [(String, String); 2] {
        let sizes = |usual: u32| format!("4096 {} {}", usual.min(self.0), self.0);
        [(READ_BUFFERS.to_owned(), sizes(131_072)), (WRITE_BUFFERS.to_owned(), sizes(16_384))]
    }
}

impl AxisValue for TcpBuffer {
    fn parse(text: &str) -> Result<Self, ParseQuantityError> {
        let size = u32::try_from(parse_bytes(text)?).ok().filter(|size| (4096..1 << 31).contains(size));
        size.map(Self).ok_or_else(|| ParseQuantityError::new(text, "a buffer of 4096 to 2147483647 bytes"))
    }

    fn print(&self) -> String {
        self.0.to_string()
    }
}

/// What is set on each side in one cell: names in [`dotted`] form, values in [`words`] form, in the order of the names.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Sysctls {
    /// In the client's namespace, by name.
    pub client: BTreeMap<String, String>,
    /// In the server's namespace, by name.
    pub server: BTreeMap<String, String>,
}

impl Sysctls {
    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        self.client.is_empty() && self.server.is_empty()
    }

    /// The names of both sides.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.client.keys().chain(self.server.keys())
    }

    /// Each with its side, as headings and tables have it: `client net.ipv4.tcp_rto_min_us=20000`.
    pub fn rendered(&self) -> impl Iterator<Item = String> {
        let side = |name: &'static str, all: &BTreeMap<String, String>| -> Vec<String> {
            all.iter().map(|(key, value)| format!("{name} {key}={value}")).collect()
        };
        [side("client", &self.client), side("server", &self.server)].into_iter().flatten()
    }
}

impl SysctlAxes {
    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The key of each table as errors name it, and the table.
    fn tables(&self) -> [(&'static str, &BTreeMap<String, Axis<String>>); 2] {
        [("sysctl.client", &self.client), ("sysctl.server", &self.server)]
    }

    /// Every combination of the values, the last name varying fastest; one that sets nothing if there is no name.
    pub(super) fn points(&self) -> Vec<Sysctls> {
        let mut points: Vec<Sysctls> = match &self.tcp_buffer {
            None => vec![Sysctls::default()],
            Some(sizes) => {
                let both = |sizes: BTreeMap<String, String>| Sysctls { client: sizes.clone(), server: sizes };
                sizes.values().iter().map(|size| both(size.sysctls().into())).collect()
            }
        };
        for (is_server, table) in [(false, &self.client), (true, &self.server)] {
            for (name, values) in table {
                let with = |point: &Sysctls, value: &String| {
                    let mut point = point.clone();
                    let side = if is_server { &mut point.server } else { &mut point.client };
                    side.insert(dotted(name), words(value));
                    point
                };
                points = points
                    .iter()
                    .flat_map(|point| values.values().iter().map(move |value| with(point, value)))
                    .collect();
            }
        }
        points
    }

    /// Refuses names and values that mean nothing in a network namespace of any kernel.
    pub(super) fn validate(&self) -> Result<(), ScenarioError> {
        for (field, table) in self.tables() {
            let refuse = |name: &String, why| Err(ScenarioError::Sysctl { field, name: name.clone(), why });
            for (name, values) in table {
                if let Some(why) = flaw(name) {
                    return refuse(name, why);
                }
                if table.keys().filter(|other| dotted(other) == dotted(name)).count() > 1 {
                    return refuse(name, "duplicate: once with dots, once with slashes");
                }
                if self.tcp_buffer.is_some() && [READ_BUFFERS, WRITE_BUFFERS].contains(&dotted(name).as_str())
                {
                    return refuse(name, "`tcp-buffer` sets it");
                }
                if values.values().iter().any(|value| words(value).is_empty()) {
                    return refuse(name, "an empty value sets nothing");
                }
                if values.values().iter().any(|value| value.chars().any(|c| c.is_control() && c != '\t')) {
                    return refuse(name, "a value is one line of text");
                }
            }
        }
        Ok(())
    }
}

/// What is wrong with a name for any kernel; `None` if it may exist.
fn flaw(name: &str) -> Option<&'static str> {
    let separator = if name.contains('/') { '/' } else { '.' };
    let parts: Vec<&str> = name.split(separator).collect();
    let is_word = |part: &&str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        !part.is_empty() && !part.starts_with('.') && part.chars().all(is_plain)
    };
    if parts.len() < 2 || !parts.iter().all(is_word) {
        return Some("not the name of a sysctl, such as net.ipv4.tcp_rto_min_us");
    }
    if parts[0] != "net" {
        return Some("only sysctls of a network namespace can be set: their names begin with `net.`");
    }
    match dotted(name).as_str() {
        "net.ipv4.tcp_congestion_control" => Some("the link's `congestion` sets it, on the routes"),
        _ => None,
    }
}

/// The name with dots: `net/ipv4/tcp_rmem` is the same sysctl as `net.ipv4.tcp_rmem`. One with dots inside of a part
/// (`net/ipv4/conf/eth0.1/forwarding`) keeps its slashes, as in sysctl(8).
pub fn dotted(name: &str) -> String {
    if name.contains('/') && !name.contains('.') { name.replace('/', ".") } else { name.to_owned() }
}

/// The value in the form that is compared: the kernel separates numbers with tabs, users with spaces.
pub fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use crate::scenario::Scenario;

    fn refusal(table: &str) -> Option<String> {
        Scenario::from_toml(&format!("[sysctl.server]\n{table}")).err().map(|error| error.to_string())
    }

    #[test]
    fn one_value_or_several_of_several_names_on_both_sides_are_axes() {
        let scenario = Scenario::from_toml(
            "repetitions = 1\n[matrix]\nprotocols = 'h1'\n[sysctl.client]\n'net.ipv4.tcp_rto_min_us' = ['200000', 20000]\n\
             [sysctl.server]\n'net/core/somaxconn' = 64\n'net.ipv4.tcp_wmem' = '4096  16384 65536, 4096 16384 131072'",
        )
        .unwrap();
        let rendered: Vec<String> = scenario
            .plan()
            .iter()
            .map(|cell| cell.sysctls.rendered().collect::<Vec<_>>().join("; "))
            .collect();
        let cell = |rto, wmem| {
            format!(
                "client net.ipv4.tcp_rto_min_us={rto}; server net.core.somaxconn=64; \
                 server net.ipv4.tcp_wmem=4096 16384 {wmem}"
            )
        };
        assert_eq!(
            rendered,
            [cell(200_000, 65_536), cell(200_000, 131_072), cell(20_000, 65_536), cell(20_000, 131_072)]
        );
        let groups: Vec<u32> = scenario.plan().iter().map(|cell| cell.group).collect();
        assert_eq!(groups, [0, 1, 2, 3], "each is a condition");
        assert_eq!(Scenario::from_toml(&scenario.to_toml()).unwrap(), scenario);
    }

    #[test]
    fn a_buffer_is_the_most_of_both_ends_and_an_axis() {
        let text = "repetitions = 1\n[matrix]\nprotocols = 'h1'\n[sysctl]\ntcp-buffer = ['4M', '8k']";
        let scenario = Scenario::from_toml(text).unwrap();
        let rendered: Vec<String> = scenario
            .plan()
            .iter()
            .map(|cell| cell.sysctls.rendered().collect::<Vec<_>>().join("; "))
            .collect();
        let of = |side: &str, read: &str, write: &str| {
            format!("{side} net.ipv4.tcp_rmem=4096 {read}; {side} net.ipv4.tcp_wmem=4096 {write}")
        };
        let both = |read, write| format!("{}; {}", of("client", read, write), of("server", read, write));
        assert_eq!(rendered, [both("131072 4194304", "16384 4194304"), both("8192 8192", "8192 8192")]);
        assert_eq!(Scenario::from_toml(&scenario.to_toml()).unwrap(), scenario);
        for bad in ["4095", "2G"] {
            assert!(Scenario::from_toml(&text.replace("8k", bad)).is_err(), "{bad}");
        }
        let twice = format!("{text}\n[sysctl.client]\n'net.ipv4.tcp_rmem' = '1 2 3'");
        assert!(Scenario::from_toml(&twice).unwrap_err().to_string().contains("`tcp-buffer` sets it"));
    }

    #[test]
    fn a_scenario_without_the_table_reads_and_writes_as_before_there_was_one() {
        assert!(!Scenario::default().to_toml().contains("sysctl"));
        let cell = &Scenario::default().plan()[0];
        assert!(cell.sysctls.is_empty());
        assert!(!serde_json::to_string(cell).unwrap().contains("sysctl"));
    }

    #[test]
    fn a_name_that_no_network_namespace_has_is_refused_with_the_reason() {
        assert_eq!(refusal("'net.ipv4.conf.eth0.forwarding' = 1"), None);
        assert_eq!(refusal("'net/ipv4/conf/eth0.1/forwarding' = 1"), None);
        for name in ["net", "net.", "net..x", "net/../kernel/x", "/net/ipv4/x", "net.ipv4 .x", "net.ipv4.ü"]
        {
            let rendered = refusal(&format!("'{name}' = 1")).unwrap();
            assert!(rendered.contains("not the name of a sysctl") && rendered.contains(name), "{rendered}");
        }
        let rendered = refusal("'kernel.sched_rt_runtime_us' = 1").unwrap();
        assert!(
            rendered.starts_with("`sysctl.server` cannot set `kernel.sched_rt_runtime_us`: only"),
            "{rendered}"
        );
        assert!(refusal("'net.ipv4.tcp_congestion_control' = 'bbr'").unwrap().contains("`congestion`"));
    }

    #[test]
    fn a_value_is_there_and_is_one_line_and_a_name_is_there_once() {
        assert!(refusal("'net.core.somaxconn' = ''").unwrap().contains("empty"));
        assert!(refusal("'net.core.somaxconn' = \"1\\n2\"").unwrap().contains("one line"));
        assert!(refusal("'net.core.somaxconn' = 1\n'net/core/somaxconn' = 2").unwrap().contains("duplicate"));
    }

    #[test]
    fn a_value_given_twice_makes_no_second_group() {
        let text = "repetitions = 1\n[matrix]\nprotocols = 'h1'\n[sysctl.client]\n'net.ipv4.tcp_rmem' = ['1 2 3', \"1\\t2 3\"]";
        assert_eq!(Scenario::from_toml(text).unwrap().plan().len(), 1);
    }
}

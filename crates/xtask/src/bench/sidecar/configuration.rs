//! How the proxies are configured: alike, with one thread, without logs or quotas, connections kept as long as the run.
//!
//! They are those of `crates/lab/src/sut`, which `xtask` does not depend on: all of the product would have to be built
//! first.

use serde_json::json;

use super::pair::Proxy;

/// What the two proxies of a pair speak to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Between {
    /// HTTP/1.1.
    H1,
    /// HTTP/2 in clear, by prior knowledge.
    H2c,
    /// HTTP/2 over TLS.
    H2,
}

/// Which of the two it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The callers'.
    Egress,
    /// The service's.
    Ingress,
}

/// Name and text of a proxy's configuration: it listens on the port `at` and forwards to the port `to`. Certificate and
/// key are `cert.pem` and `key.pem` beside it.
pub fn files(proxy: Proxy, between: Between, side: Side, at: u16, to: u16) -> (&'static str, String) {
    // The protocol that it listens for, and the one that it speaks to its upstream.
    let (front, back) = match side {
        Side::Egress => (Between::H1, between),
        Side::Ingress => (between, Between::H1),
    };
    match proxy {
        Proxy::H2lab => ("sidecar.toml", h2lab(front, back, at, to)),
        Proxy::Haproxy => ("haproxy.cfg", haproxy(front, back, at, to)),
        Proxy::Envoy => ("envoy.json", envoy(front, back, at, to)),
        Proxy::Nginx => ("nginx.conf", nginx(at, to)),
    }
}

fn h2lab(front: Between, back: Between, at: u16, to: u16) -> String {
    let scheme = match back {
        Between::H1 => "http",
        Between::H2c => "h2c",
        Between::H2 => "h2",
    };
    let (tls, identity) = match front {
        Between::H2 => ("tls = true\n", "[identity]\ncert = \"cert.pem\"\nkey = \"key.pem\"\n"),
        _ => ("", ""),
    };
    format!(
        "[[listen]]\naddress = \"127.0.0.1:{at}\"\nservice = \"s\"\n{tls}\n[service.s]\ninstances = [\"{scheme}://127.0.0.1:{to}\"]\n\
         insecure = true\n\n{identity}"
    )
}

/// Over TLS it is not measured.
fn haproxy(front: Between, back: Between, at: u16, to: u16) -> String {
    let spoken = |between| if between == Between::H2c { " proto h2" } else { "" };
    let (bind, server) = (spoken(front), spoken(back));
    format!(
        "global\n    nbthread 1\n    fd-hard-limit 65536\ndefaults\n    mode http\n    http-reuse always\n    option http-no-delay\n    \
         timeout connect 5s\n    timeout client 1h\n    timeout server 1h\n    timeout http-keep-alive 1h\nfrontend f\n    \
         bind 127.0.0.1:{at}{bind}\n    default_backend b\nbackend b\n    server s 127.0.0.1:{to}{server}\n"
    )
}

const TYPES: &str = "type.googleapis.com/envoy.extensions";

/// Envoy's circuit breakers stop at 1,024 connections by default, which is not what is measured.
const CIRCUIT: u32 = 1_000_000;

fn envoy(front: Between, back: Between, at: u16, to: u16) -> String {
    let address = |port: u16| json!({ "socket_address": { "address": "127.0.0.1", "port_value": port } });
    let manager = json!({
        "@type": format!("{TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": "s",
        "codec_type": "AUTO",
        "route_config": { "virtual_hosts": [{
            "name": "all",
            "domains": ["*"],
            "routes": [{ "match": { "prefix": "/" }, "route": { "cluster": "s", "timeout": "0s" } }],
        }] },
        "http_filters": [{
            "name": "router",
            "typed_config": { "@type": format!("{TYPES}.filters.http.router.v3.Router") },
        }],
    });
    let mut chain = json!({ "filters": [{ "name": "http_connection_manager", "typed_config": manager }] });
    if front == Between::H2 {
        chain["transport_socket"] = json!({ "name": "tls", "typed_config": {
            "@type": format!("{TYPES}.transport_sockets.tls.v3.DownstreamTlsContext"),
            "common_tls_context": {
                "alpn_protocols": ["h2"],
                "tls_certificates": [{
                    "certificate_chain": { "filename": "cert.pem" },
                    "private_key": { "filename": "key.pem" },
                }],
            },
        } });
    }
    let version = if back == Between::H1 { "http_protocol_options" } else { "http2_protocol_options" };
    let mut cluster = json!({
        "name": "s",
        "type": "STATIC",
        "connect_timeout": "5s",
        "circuit_breakers": { "thresholds": [{
            "max_connections": CIRCUIT, "max_pending_requests": CIRCUIT, "max_requests": CIRCUIT,
        }] },
        "typed_extension_protocol_options": { "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": format!("{TYPES}.upstreams.http.v3.HttpProtocolOptions"),
            "explicit_http_config": { version: {} },
        } },
        "load_assignment": {
            "cluster_name": "s",
            "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": address(to) } }] }],
        },
    });
    if back == Between::H2 {
        cluster["transport_socket"] = json!({ "name": "tls", "typed_config": {
            "@type": format!("{TYPES}.transport_sockets.tls.v3.UpstreamTlsContext"),
            "sni": "localhost",
            "common_tls_context": { "alpn_protocols": ["h2"] },
        } });
    }
    let listener = json!({ "name": "l", "address": address(at), "filter_chains": [chain] });
    json!({ "static_resources": { "listeners": [listener], "clusters": [cluster] } }).to_string()
}

/// HTTP/1.1 on both sides, since Debian's nginx speaks nothing else to an upstream.
fn nginx(at: u16, to: u16) -> String {
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("    {name}_temp_path {name};\n"))
        .concat();
    format!(
        "daemon off;\nmaster_process off;\npid nginx.pid;\nworker_rlimit_nofile 65536;\nevents {{ worker_connections 32768; }}\nhttp {{\n    \
         access_log off;\n    keepalive_requests 1000000000;\n    keepalive_timeout 1h;\n{temporary}    upstream s {{\n        \
         server 127.0.0.1:{to};\n        keepalive 64;\n        keepalive_requests 1000000000;\n    }}\n    server {{\n        \
         listen 127.0.0.1:{at};\n        location / {{\n            proxy_pass http://s;\n            proxy_http_version 1.1;\n            \
         proxy_set_header Connection \"\";\n        }}\n    }}\n}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_two_is_http_2_or_encrypted() {
        let text = |proxy, side| files(proxy, Between::H2, side, 1, 2).1;
        assert!(text(Proxy::H2lab, Side::Egress).contains("h2://127.0.0.1:2"));
        assert!(!text(Proxy::H2lab, Side::Egress).contains("tls = true"));
        assert!(text(Proxy::H2lab, Side::Ingress).contains("tls = true"));
        assert!(text(Proxy::H2lab, Side::Ingress).contains("http://127.0.0.1:2"));
        assert!(text(Proxy::Envoy, Side::Egress).contains("UpstreamTlsContext"));
        assert!(!text(Proxy::Envoy, Side::Egress).contains("DownstreamTlsContext"));
        let text = |side| files(Proxy::Haproxy, Between::H2c, side, 1, 2).1;
        assert!(text(Side::Ingress).contains("bind 127.0.0.1:1 proto h2\n"));
        assert!(text(Side::Ingress).contains("server s 127.0.0.1:2\n"));
        assert!(text(Side::Egress).contains("server s 127.0.0.1:2 proto h2\n"));
    }
}

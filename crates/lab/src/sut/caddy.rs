//! Caddy: one port in clear and one over TLS, both versions of HTTP on each.
//!
//! Its configuration is JSON, because the Caddyfile of 2.6 cannot turn off storage in the user's folders.

use h2lab_model::timeline::study::{Announcement, PageSource};
use h2lab_model::workload::Protocol;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::early::{self, Page, Pages};
use super::error::SutError;
use super::kind::{
    About, Endpoints, Launch, Program, Ready, SCRATCH, Site, StartOptions, Sut, VersionQuery, files,
};
use super::package::Package;
use super::upstream::Upstream;

/// See the [module](self).
#[derive(Debug)]
pub struct Caddy;

/// The configuration's file.
const CONFIG: &str = "caddy.json";

impl Sut for Caddy {
    fn about(&self) -> About {
        About {
            name: "caddy",
            program: Program::Installed { name: "caddy", package: Package::Debian("caddy") },
            // `2.6.2` from Debian, `v2.8.4 h1:…` upstream.
            version: VersionQuery {
                arguments: &["version"],
                read: |line| {
                    let version = line.strip_prefix('v').unwrap_or(line).split(' ').next()?;
                    version.starts_with(|first: char| first.is_ascii_digit()).then_some(version)
                },
            },
            is_proxy: true,
            has_hints_switch: false,
            ready: Ready::Line(|line| line.contains("serving initial configuration")),
            built: None,
            drain_signal: Signal::TERM,
        }
    }

    /// It uses Go's HTTP/2 server, whose limit of streams (250) Caddy cannot change. The same applies to quic-go, whose
    /// congestion control it cannot choose either.
    fn launch(&self, site: Site<'_>, options: &StartOptions) -> Result<Launch, SutError> {
        options.unlimited(self.name())?;
        let upstream = site.upstream(self.name(), &Protocol::OVER_TCP)?.unforced(self.name())?;
        let mut endpoints = site.two_ports(options.ip);
        if options.h3.is_some() {
            endpoints.insert(Protocol::H3, endpoints[&Protocol::H2]);
        }
        let config = configuration(&endpoints, upstream, options);
        let with = |command: &str| [command, "--config", CONFIG].map(str::to_owned).to_vec();
        Ok(Launch {
            files: files(self.name(), options.ip, CONFIG, format!("{config:#}\n"))?,
            check: with("validate"),
            arguments: with("run"),
            endpoints,
        })
    }

    /// Its `push` without resources pushes what Link fields name.
    fn pages(&self) -> Vec<Page> {
        Page::both(&[PageSource::File, PageSource::SlowProxy], "header Link, push", "push RESOURCE")
    }
}

/// The routes of pages, which go before the one to the upstream.
fn early(pages: Option<Pages>, proxy: &Value) -> Vec<Value> {
    let Some(pages) = pages else { return Vec::new() };
    let files = json!({ "handler": "file_server", "root": "." });
    let route = |page: Page| {
        let mut handlers = Vec::new();
        if page.announcement == Announcement::Early {
            let resources = early::RESOURCES.map(|resource| json!({ "target": resource }));
            handlers.push(json!({ "handler": "push", "resources": resources }));
        } else {
            let links = early::RESOURCES.map(early::link_to);
            handlers.push(json!({ "handler": "push" }));
            handlers.push(json!({ "handler": "headers", "response": { "add": { "Link": links } } }));
        }
        match page.behind(pages) {
            Some(path) => {
                handlers.push(json!({ "handler": "rewrite", "uri": path }));
                handlers.push(proxy.clone());
            }
            None => handlers.push(files.clone()),
        }
        json!({ "match": [{ "path": [page.path] }], "handle": handlers, "terminal": true })
    };
    let everything = json!({
        "match": [{ "path": [format!("/{}/*", early::FOLDER)] }], "handle": [files], "terminal": true,
    });
    Caddy.pages().into_iter().map(route).chain([everything]).collect()
}

fn configuration(endpoints: &Endpoints, upstream: Upstream, options: &StartOptions) -> Value {
    let mut transport = json!({ "protocol": "http", "versions": versions(upstream.protocol) });
    if upstream.protocol.is_tls() {
        transport["tls"] = json!({ "insecure_skip_verify": true, "server_name": "server" });
    }
    let proxy = json!({
        "handler": "reverse_proxy",
        "upstreams": [{ "dial": upstream.address.to_string() }],
        "transport": transport,
    });
    let mut routes = early(options.pages(), &proxy);
    routes.push(json!({ "handle": [proxy] }));
    let server = |protocol: Protocol, versions: &[&str]| {
        json!({
            "listen": [endpoints[&protocol].to_string()],
            "protocols": versions,
            "automatic_https": { "disable": true },
            "routes": routes,
        })
    };
    let versions_over_tls: &[&str] =
        if endpoints.contains_key(&Protocol::H3) { &["h1", "h2", "h3"] } else { &["h1", "h2"] };
    let mut tls = server(Protocol::H1s, versions_over_tls);
    tls["tls_connection_policies"] = json!([{}]);
    json!({
        "admin": { "disabled": true, "config": { "persist": false } },
        "storage": { "module": "file_system", "root": format!("{SCRATCH}/storage") },
        "apps": {
            "http": { "servers": { "clear": server(Protocol::H1, &["h1", "h2c"]), "tls": tls } },
            "tls": { "certificates": { "load_files": [{
                "certificate": format!("{SCRATCH}/certificate.pem"),
                "key": format!("{SCRATCH}/key.pem"),
            }] } },
        },
    })
}

/// The name of a protocol in Caddy's transport. `2` alone is HTTP/2 over TLS.
fn versions(protocol: Protocol) -> [&'static str; 1] {
    match protocol {
        Protocol::H1 | Protocol::H1s => ["1.1"],
        Protocol::H2c => ["h2c"],
        Protocol::H2 => ["2"],
        Protocol::H3 | Protocol::Tcp => unreachable!("no upstream in HTTP/3 or without HTTP is let in"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::launched;
    use super::*;

    #[test]
    fn nothing_is_kept_outside_of_its_folder_and_tls_upstream_is_distinguished() {
        for (protocol, version, is_tls) in [
            (Protocol::H1, "1.1", false),
            (Protocol::H1s, "1.1", true),
            (Protocol::H2c, "h2c", false),
            (Protocol::H2, "2", true),
        ] {
            let config: Value =
                serde_json::from_str(&launched(&Caddy, protocol).unwrap().files[0].1).unwrap();
            assert_eq!(config["admin"]["config"]["persist"], false);
            for server in ["clear", "tls"] {
                let handler = &config["apps"]["http"]["servers"][server]["routes"][0]["handle"][0];
                assert_eq!(handler["transport"]["versions"], json!([version]), "{protocol}");
                assert_eq!(handler["transport"]["tls"].is_object(), is_tls, "{protocol}");
            }
        }
    }

    #[test]
    fn its_version_is_the_same_from_debian_and_from_its_makers() {
        assert_eq!((Caddy.about().version.read)("2.6.2"), Some("2.6.2"));
        assert_eq!(
            (Caddy.about().version.read)("v2.8.4 h1:q3pe0wpBj1OcHFZ3n/1nl4V4bxBrYoSoab7rL9BMYNk="),
            Some("2.8.4")
        );
        assert_eq!((Caddy.about().version.read)("unknown"), None);
    }
}

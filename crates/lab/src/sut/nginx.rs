//! Debian's nginx: one port for HTTP/1.1, one for HTTP/2 by prior knowledge, one for both over TLS.
//!
//! It reads each request to its end and answers 1 KiB, as a reverse proxy does: see [`configuration`].
//!
//! Before 1.25.1 a cleartext port that speaks HTTP/2 speaks nothing else, hence two ports. All paths in the configuration are
//! relative to its folder, so that it can be kept, read and reused elsewhere.

use std::net::SocketAddr;

use h2lab_model::workload::Protocol;
use rustix::process::{Signal, geteuid};

use super::error::SutError;
use super::kind::{
    About, BODY_BYTES, Launch, MAX_CONCURRENT_STREAMS, Ports, Program, Ready, SCRATCH, Site, StartOptions,
    Sut, VersionQuery, files,
};
use super::package::Package;

/// See the [module](self).
#[derive(Debug)]
pub struct Nginx;

/// The configuration's file.
const CONFIG: &str = "nginx.conf";

/// nginx's "never": there is no keyword, and the default is 1,000.
const NO_LIMIT: u32 = 1_000_000_000;

/// The program, in either role.
pub(super) const PROGRAM: Program =
    Program::Installed { name: "nginx", package: Package::Debian("nginx-light") };

/// How it prints its version.
pub(super) const VERSION: VersionQuery =
    VersionQuery { arguments: &["-v"], read: |line| line.strip_prefix("nginx version: nginx/") };

/// The backend behind the sockets that clients see.
#[derive(Debug)]
pub(super) struct Backend {
    /// `http` or `https`.
    pub scheme: &'static str,
    /// Its address, as in an `upstream` block.
    pub server: String,
    /// Further directives of the `location` that proxies to it.
    pub request: &'static str,
    /// Further `server` blocks.
    pub servers: String,
    /// Further directives of the `http` block.
    pub http: &'static str,
    /// Further `location` blocks.
    pub locations: String,
}

impl Sut for Nginx {
    fn about(&self) -> About {
        About {
            name: "nginx",
            program: PROGRAM,
            version: VERSION,
            is_proxy: false,
            has_hints_switch: false,
            ready: Ready::Line(listens),
            built: None,
            drain_signal: Signal::QUIT,
        }
    }

    fn launch(&self, site: Site<'_>, options: &StartOptions) -> Result<Launch, SutError> {
        launch(self.name(), site, options, &itself())
    }
}

/// Whether a line of the log shows that every socket listens: the event module logs it then.
pub(super) fn listens(line: &str) -> bool {
    line.contains("event method")
}

/// The backend that answers 1 KiB to everything: nginx itself, over a Unix socket.
///
/// A plain `return` was rejected. It answers before it has read the request's body, and over HTTP/2 each such answer is
/// followed by a `RST_STREAM`, which a service that reads its requests would not send, and which makes some clients
/// treat the answer as failed. And outside of a `location` it runs before nginx checks `keepalive_requests`.
fn itself() -> Backend {
    let body: String = ('a'..='z').cycle().take(BODY_BYTES).collect();
    Backend {
        scheme: "http",
        server: format!("unix:{SCRATCH}/answer.sock"),
        request: "
            proxy_method GET;
            proxy_pass_request_body off;
            proxy_set_header Content-Length \"\";",
        servers: format!(
            "
    server {{
        listen unix:{SCRATCH}/answer.sock;
        keepalive_requests {NO_LIMIT};
        location / {{
            return 200 {body};
        }}
    }}"
        ),
        http: "",
        locations: String::new(),
    }
}

/// How nginx is started in front of `backend`.
pub(super) fn launch(
    name: &'static str,
    site: Site<'_>,
    options: &StartOptions,
    backend: &Backend,
) -> Result<Launch, SutError> {
    let config = configuration(site.ports, options, geteuid().is_root(), backend);
    let mut endpoints = site.two_ports(options.ip);
    endpoints.insert(Protocol::H2c, SocketAddr::new(options.ip, site.ports.h2c));
    // `-e`: otherwise it first opens its compiled-in log, which we may not write.
    let arguments: Vec<String> =
        ["-p", &site.folder.to_string_lossy(), "-c", CONFIG, "-e", "stderr"].map(str::to_owned).into();
    let check = arguments.iter().cloned().chain(["-t".to_owned()]).collect();
    Ok(Launch { files: files(name, options.ip, CONFIG, config)?, check, arguments, endpoints })
}

/// The configuration.
///
/// `master_process off` makes it one process, whose CPU time is the server's and which ends as a whole. With a master
/// the workers would outlive it, and in a user namespace the master could not give them another user. As root, nginx
/// needs the directive `user`, since the user it is built for need not exist; for others the directive must be absent.
fn configuration(ports: Ports, options: &StartOptions, is_root: bool, backend: &Backend) -> String {
    let user = if is_root { "user root;\n" } else { "" };
    let [h1, h2c, tls] = [ports.h1, ports.h2c, ports.tls].map(|port| SocketAddr::new(options.ip, port));
    let keepalive_requests = options.max_requests_per_connection.unwrap_or(NO_LIMIT);
    let Backend { scheme, server, request, servers, http, locations } = backend;
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("    {kind}_temp_path {SCRATCH}/{kind};\n"))
        .concat();
    format!(
        "\
{user}daemon off;
master_process off;
worker_processes 1;
pid {SCRATCH}/nginx.pid;
error_log stderr notice;
events {{
    worker_connections 16384;
}}
http {{
    access_log off;
    default_type text/plain;
    client_max_body_size 0;
    client_body_buffer_size 1m;
    keepalive_timeout 1h;
    http2_max_concurrent_streams {MAX_CONCURRENT_STREAMS};
{http}\
{temporary}\
    upstream answer {{
        server {server};
        keepalive 1024;
        keepalive_requests {NO_LIMIT};
    }}
    server {{
        listen {h1};
        listen {h2c} http2;
        listen {tls} ssl http2;
        ssl_certificate {SCRATCH}/certificate.pem;
        ssl_certificate_key {SCRATCH}/key.pem;
        keepalive_requests {keepalive_requests};
{locations}\
        location / {{
            proxy_pass {scheme}://answer;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";{request}
        }}
    }}{servers}
}}
"
    )
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    fn options(ip: &str, max_requests_per_connection: Option<u32>) -> StartOptions {
        let logs = PathBuf::from("logs");
        StartOptions { max_requests_per_connection, ..StartOptions::new(ip.parse().unwrap(), logs) }
    }

    fn text(ip: &str, max_requests_per_connection: Option<u32>, is_root: bool) -> String {
        configuration(Ports::LAB, &options(ip, max_requests_per_connection), is_root, &itself())
    }

    #[test]
    fn only_roots_configuration_names_a_user() {
        assert!(text("10.9.0.2", None, true).starts_with("user root;\n"));
        assert!(!text("10.9.0.2", None, false).contains("user "));
    }

    #[test]
    fn the_limit_of_requests_is_the_one_asked_for_or_none_that_is_ever_reached() {
        assert!(text("10.9.0.2", Some(1000), false).contains("keepalive_requests 1000;"));
        assert!(!text("10.9.0.2", None, false).contains("keepalive_requests 1000;"));
    }

    #[test]
    fn an_ipv6_address_stands_in_brackets() {
        assert!(text("fd00::2", None, false).contains("listen [fd00::2]:8080;"));
    }

    #[test]
    fn no_path_is_absolute_and_the_key_is_scratch() {
        let site = Site { folder: Path::new("/some where"), ports: Ports::LAB, upstream: None };
        let launch = Nginx.launch(site, &options("10.9.0.2", None)).unwrap();
        let config = launch.files[0].1.replace("location /", "").replace("http://", "");
        assert!(!config.contains(" /") && !config.contains(":/"), "{config}");
        let keys: Vec<_> = launch.files.iter().filter(|(_, text)| text.contains("PRIVATE KEY")).collect();
        assert!(keys.len() == 1 && keys[0].0.starts_with("scratch/"));
    }
}

//! A real nginx on loopback, for the items that measure live servers.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::process;

/// How long nginx may take to listen.
const START: Duration = Duration::from_secs(10);

/// What nginx listens for on a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listen {
    /// HTTP/1.1 in clear.
    H1,
    /// HTTP/2 in clear by prior knowledge. nginx before 1.25 speaks nothing else on such a port.
    H2c,
    /// TLS, HTTP/2 and HTTP/1.1 by ALPN.
    Tls,
}

/// A running nginx, stopped with the value.
#[derive(Debug)]
pub struct Nginx {
    child: Child,
    ports: Vec<u16>,
    folder: tempfile::TempDir,
}

impl Nginx {
    /// Starts it with one port per entry of `listens` and waits until they are open. `keepalive_requests` is its quota
    /// of requests per connection.
    pub fn start(listens: &[Listen], keepalive_requests: u32) -> Result<Self> {
        Self::serving("return 200 'hello';", listens, keepalive_requests)
    }

    /// The same with these directives for every path.
    pub fn serving(directives: &str, listens: &[Listen], keepalive_requests: u32) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("h2lab-verify-").tempdir()?;
        if listens.contains(&Listen::Tls) {
            make_certificate(folder.path())?;
        }
        let ports = free_ports(listens.len())?;
        fs::write(
            folder.path().join("nginx.conf"),
            configuration(folder.path(), directives, listens, &ports, keepalive_requests),
        )?;
        let program = process::find("nginx").context("nginx is not installed")?;
        // It dies with us even if we are killed.
        let child = Command::new("setpriv")
            .args(["--pdeathsig=KILL", "--"])
            .arg(program)
            .args(["-p", ".", "-c", "nginx.conf", "-e", "error.log"])
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start `setpriv` of util-linux")?;
        let mut nginx = Self { child, ports, folder };
        nginx.await_ports()?;
        Ok(nginx)
    }

    /// The port of the n-th entry.
    pub fn port(&self, n: usize) -> u16 {
        self.ports[n]
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn await_ports(&mut self) -> Result<()> {
        let until = Instant::now() + START;
        for &port in &self.ports {
            while TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).is_err() {
                if let Some(status) = self.child.try_wait()? {
                    let log = fs::read_to_string(self.folder.path().join("error.log")).unwrap_or_default();
                    bail!("nginx ended with {status}: {log}");
                }
                if Instant::now() > until {
                    bail!("nginx does not listen on port {port}");
                }
                std::thread::yield_now();
            }
        }
        Ok(())
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Distinct free ports: all are held until the last is known.
fn free_ports(count: usize) -> Result<Vec<u16>> {
    let held: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect::<Result<_, _>>()?;
    held.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}

/// A key and a certificate of `localhost` for two days, `key.pem` and `cert.pem`.
pub fn make_certificate(folder: &Path) -> Result<()> {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args(["-keyout", "key.pem", "-out", "cert.pem", "-days", "2", "-subj", "/CN=localhost"])
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .context("cannot start openssl")?;
    if !made.status.success() {
        bail!("openssl made no certificate: {}", String::from_utf8_lossy(&made.stderr));
    }
    Ok(())
}

/// One process, everything that it writes below `folder`.
fn configuration(
    folder: &Path,
    directives: &str,
    listens: &[Listen],
    ports: &[u16],
    keepalive_requests: u32,
) -> String {
    let folder = folder.display();
    let server = |(listen, port): (&Listen, &u16)| {
        let words = match listen {
            Listen::H1 => "",
            Listen::H2c => " http2",
            Listen::Tls => " ssl http2",
        };
        format!(
            "  server {{ listen 127.0.0.1:{port}{words}; location / {{ {directives} }} }}
"
        )
    };
    let servers = listens.iter().zip(ports).map(server).collect::<Vec<_>>().concat();
    let certificate = if listens.contains(&Listen::Tls) {
        format!("  ssl_certificate {folder}/cert.pem;\n  ssl_certificate_key {folder}/key.pem;\n")
    } else {
        String::new()
    };
    let scratch: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("  {kind}_temp_path {folder}/{kind};\n"))
        .concat();
    // One process in the foreground is one child to stop, and needs no `user`.
    format!(
        "daemon off;\nmaster_process off;\npid {folder}/nginx.pid;\nerror_log {folder}/error.log;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n  access_log off;\n  keepalive_requests {keepalive_requests};\n{certificate}{scratch}{servers}}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_port_gets_its_server_and_nothing_is_written_elsewhere() {
        let text =
            configuration(Path::new("/nowhere"), "return 204;", &[Listen::H1, Listen::Tls], &[81, 82], 1000);
        assert!(
            text.contains("listen 127.0.0.1:81; location / { return 204; }")
                && text.contains("listen 127.0.0.1:82 ssl http2;"),
            "{text}"
        );
        assert!(
            text.contains("keepalive_requests 1000;") && text.contains("pid /nowhere/nginx.pid;"),
            "{text}"
        );
        assert!(
            !configuration(Path::new("/nowhere"), "return 204;", &[Listen::H1], &[81], 1).contains("ssl")
        );
    }

    #[test]
    fn free_ports_are_distinct() {
        let mut ports = free_ports(8).unwrap();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 8);
    }
}

//! Go's `net/http` as a plain server: a few lines of Go beside this file, built where Go is installed.
//!
//! The program serves both versions of HTTP on a port in clear and on one over TLS.

use h2lab_model::timeline::study::{Announcement, PageSource};
use h2lab_model::workload::Protocol;
use rustix::process::Signal;

use super::early::Page;
use super::error::SutError;
use super::kind::{
    About, BODY_BYTES, Launch, MAX_CONCURRENT_STREAMS, Program, Ready, SCRATCH, Site, StartOptions, Sut,
    VersionQuery, files,
};
use super::package::Package;

/// See the [module](self).
#[derive(Debug)]
pub struct Go;

/// The program's text. Its name does not end in `.go`, so that Go's tools do not treat the folder as a package.
const SOURCE: &str = include_str!("go_server.go.txt");

/// The executable.
const SERVER: &str = "scratch/server";

impl Sut for Go {
    fn about(&self) -> About {
        About {
            name: "go",
            // HTTP/2 in clear is a part of `net/http` since Go 1.24.
            program: Program::Installed {
                name: "go",
                package: Package::Page("https://go.dev/dl (1.24 or newer)"),
            },
            // `go version go1.26.8 linux/amd64`.
            version: VersionQuery {
                arguments: &["version"],
                read: |line| line.strip_prefix("go version go")?.split(' ').next(),
            },
            is_proxy: false,
            has_hints_switch: false,
            ready: Ready::Line(|line| line == "listening"),
            built: Some(SERVER),
            drain_signal: Signal::TERM,
        }
    }

    /// What a handler can do; the program waits for as long as the path says.
    fn pages(&self) -> Vec<Page> {
        [
            (Announcement::Link, "Header().Add(Link)", "/early?by=link"),
            (Announcement::Early, "Pusher.Push", "/early?by=push"),
            (Announcement::Early, "WriteHeader(103)", "/early?by=103"),
        ]
        .map(|(announcement, setting, path)| Page {
            source: PageSource::Handler,
            announcement,
            setting,
            path: path.to_owned(),
        })
        .into()
    }

    fn launch(&self, site: Site<'_>, options: &StartOptions) -> Result<Launch, SutError> {
        options.unlimited(self.name())?;
        let endpoints = site.two_ports(options.ip);
        let arguments = [
            format!("--listen={}", endpoints[&Protocol::H1]),
            format!("--tls-listen={}", endpoints[&Protocol::H2]),
            format!("--certificate={SCRATCH}/certificate.pem"),
            format!("--key={SCRATCH}/key.pem"),
            format!("--streams={MAX_CONCURRENT_STREAMS}"),
            format!("--body-bytes={BODY_BYTES}"),
        ];
        Ok(Launch {
            files: files(self.name(), options.ip, "server.go", SOURCE.to_owned())?,
            check: ["build", "-o", SERVER, "server.go"].map(str::to_owned).to_vec(),
            arguments: arguments.to_vec(),
            endpoints,
        })
    }
}

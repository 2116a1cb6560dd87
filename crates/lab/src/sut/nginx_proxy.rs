//! Debian's nginx as a reverse proxy in front of our origin, over persistent HTTP/1.1 connections.
//!
//! It differs from [`nginx`](super::nginx) only in its upstream.

use std::fmt::Write as _;

use h2lab_model::timeline::study::{Announcement, PageSource};
use h2lab_model::workload::Protocol;
use rustix::process::Signal;

use super::early::{self, Page, Pages};
use super::error::SutError;
use super::kind::{About, Launch, Ready, Site, StartOptions, Sut};
use super::nginx::{Backend, PROGRAM, VERSION, launch, listens};

/// See the [module](self).
#[derive(Debug)]
pub struct NginxProxy;

impl Sut for NginxProxy {
    fn about(&self) -> About {
        About {
            name: "nginx-proxy",
            program: PROGRAM,
            version: VERSION,
            is_proxy: true,
            // `http2_push_preload`. Before 1.29 (`early_hints`) it forwards no 103, and mistakes one for the response.
            has_hints_switch: true,
            ready: Ready::Line(listens),
            built: None,
            drain_signal: Signal::QUIT,
        }
    }

    /// `proxy_buffering` and `proxy_next_upstream` keep their defaults: they are what is measured.
    fn launch(&self, site: Site<'_>, options: &StartOptions) -> Result<Launch, SutError> {
        let upstream = site.upstream(self.name(), &Protocol::OVER_TCP)?.unforced(self.name())?;
        if upstream.protocol.is_multiplexed() {
            let why = "before 1.29.4 it speaks only HTTP/1.1 to its upstream, and Debian's version is older"
                .to_owned();
            return Err(SutError::Unsupported { server: self.name(), why });
        }
        let request = "
            proxy_set_header Host $host;
            proxy_read_timeout 1h;";
        launch(
            self.name(),
            site,
            options,
            &Backend {
                scheme: upstream.scheme(),
                server: upstream.address.to_string(),
                request,
                servers: String::new(),
                http: if options.forwards_hints() { "    http2_push_preload on;\n" } else { "" },
                locations: options
                    .pages()
                    .map_or_else(String::new, |pages| locations(upstream.scheme(), pages)),
            },
        )
    }

    fn pages(&self) -> Vec<Page> {
        Page::both(
            &[PageSource::File, PageSource::SlowProxy],
            "add_header Link, http2_push_preload",
            "http2_push",
        )
    }
}

/// The locations of pages.
fn locations(scheme: &str, pages: Pages) -> String {
    let mut text = format!("        location /{}/ {{\n            root .;\n        }}\n", early::FOLDER);
    for page in NginxProxy.pages() {
        let _ = writeln!(text, "        location = {} {{", page.path);
        let _ = match page.behind(pages) {
            Some(path) => writeln!(
                text,
                "            proxy_pass {scheme}://answer{path};\n            proxy_http_version 1.1;\n            proxy_set_header Connection \"\";"
            ),
            None => writeln!(text, "            root .;"),
        };
        for resource in early::RESOURCES {
            let _ = if page.announcement == Announcement::Early {
                writeln!(text, "            http2_push {resource};")
            } else {
                writeln!(text, "            add_header Link \"{}\";", early::link_to(resource))
            };
        }
        if page.announcement == Announcement::Link {
            text.push_str("            http2_push_preload on;\n");
        }
        text.push_str("        }\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::kind::Ports;
    use super::super::testing::options;
    use super::super::upstream::Upstream;
    use super::*;

    #[test]
    fn it_asks_the_origin_and_answers_nothing_itself() {
        let options = StartOptions { max_requests_per_connection: Some(137), ..options() };
        let site = Site { folder: Path::new("x"), ports: Ports::LAB, upstream: None };
        assert!(matches!(NginxProxy.launch(site, &options), Err(SutError::NoUpstream { .. })));
        let upstream = Upstream::new("127.0.0.1:40001".parse().unwrap(), Protocol::H1);
        let site = Site { upstream: Some(upstream), ..site };
        let config = NginxProxy.launch(site, &options).unwrap().files.remove(0).1;
        assert!(
            config.contains("server 127.0.0.1:40001;") && config.contains("keepalive_requests 137;"),
            "{config}"
        );
        assert!(!config.contains("return 200"), "{config}");
    }
}

//! Servers under test: how each is configured for the lab, started, detected as ready, and ended.
//!
//! A server is a file here that implements [`Sut`] with values: which program, which files, which arguments, which line
//! of its log means that it listens. [`start()`] does the rest, which is the same for all. A new server needs a new
//! file and a line in [`ALL`]: see `docs/adding-a-sut.md`.
//!
//! Every configuration provides the same service, so that servers can be compared: 1 KiB in answer to any method on any
//! path, HTTP/1.1 and HTTP/2 in clear and over TLS, many streams, no limit of requests per connection unless asked for,
//! no access log, one process.
//!
//! A proxy stands in front of our own origin, which is started before it, listens on loopback for the proxy only, and answers by
//! path: `/delay/5` takes 5 ms behind every proxy. The same proxy on the client's side of the link is a sidecar:
//! [`start_sidecar`] gives it another upstream, over the link, and otherwise the same configuration.

mod all;
pub mod apache;
pub mod caddy;
mod early;
pub mod envoy;
mod error;
pub mod go;
pub mod h2lab;
pub mod h2o;
pub mod haproxy;
mod kind;
mod log;
pub mod nghttpx;
pub mod nginx;
pub mod nginx_proxy;
pub mod origin;
mod own;
mod package;
mod retry;
mod server_namespace;
mod start;
#[cfg(test)]
mod testing;
pub mod tomcat;
mod upstream;

pub use all::{ALL, Availability, available, find};
pub use early::{Early, Page, Pages};
pub use error::SutError;
pub use kind::{
    About, BODY_BYTES, BulkServer, Endpoints, H3, Launch, ORIGIN_COUNTS, Ports, Program, QUIC_SAMPLE, Ready,
    SCRATCH, Site, StartOptions, Sut, VersionQuery,
};
pub use own::{OwnConfig, ours};
pub use package::Package;
pub use server_namespace::ServerNamespace;
pub use start::{StartedSut, start, start_in_front, start_proxy, start_sidecar};
pub use upstream::Upstream;

//! What a child gets on its standard input: one JSON document.

use std::io::BufRead;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use h2lab_model::fleet::Trust;
use h2lab_model::record::Level;
use h2lab_model::scenario::Cell;
use h2lab_model::workload::Share;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use h2lab_lab::sut::OwnConfig;
use h2lab_net::tcp::Endpoint;
use h2lab_roles::client::reach::tls_options;
use h2lab_roles::load::LoadSpec;

/// Reads the task: one line of JSON.
pub(super) fn read_task<T: DeserializeOwned>(input: &mut impl BufRead) -> Result<T> {
    let mut line = String::new();
    input.read_line(&mut line).context("cannot read the task")?;
    serde_json::from_str(&line).context("the task is not what this version of h2lab understands")
}

/// The work of a generator: `h2lab __load`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GeneratorSpec {
    /// The repetition.
    pub cell: Cell,
    /// Where to connect to.
    #[serde(with = "endpoint")]
    pub address: Endpoint,
    /// Host, and port unless it is the scheme's own.
    pub authority: String,
    /// The name for SNI and for checking the certificate.
    pub server_name: String,
    /// How the server is met in TLS.
    pub tls: Trust,
    /// Origin of all times, on the monotonic clock.
    pub clock_origin_ns: u64,
    /// CPU to stay on, if placed.
    pub cpu: Option<usize>,
}

impl GeneratorSpec {
    /// The same, as the generator itself takes it.
    pub fn load_spec(&self) -> LoadSpec<'static> {
        LoadSpec {
            cell: self.cell.clone(),
            address: self.address.clone(),
            authority: self.authority.clone(),
            server_name: self.server_name.clone(),
            tls: tls_options(&self.tls),
            clock_origin_ns: self.clock_origin_ns,
            requests: None,
            // One thread and every request: what is compared is a protocol, and cells are not loads.
            threads: 1,
            record: Some(Level::Full),
            tap: true,
            on_thread: None,
            sharp: false,
            share: Share::default(),
            start: None,
            stop: None,
        }
    }
}

/// The work of a lab: `h2lab __lab`. One repetition of a cell behind the emulated link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LabSpec {
    /// The repetition.
    pub cell: Cell,
    /// Origin of all times, on the monotonic clock.
    pub clock_origin_ns: u64,
    /// Where servers log.
    pub logs: PathBuf,
    /// Where files go that are only needed while it lasts.
    pub scratch: PathBuf,
    /// The file of the repetition's packets, if there is to be one.
    pub pcap: Option<PathBuf>,
    /// The user's configuration of the server.
    pub own: Option<OwnConfig>,
}

/// An [`Endpoint`] in a document: an address, or else the path of a Unix socket.
mod endpoint {
    use std::net::SocketAddr;
    use std::path::{Path, PathBuf};

    use h2lab_net::tcp::Endpoint;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(endpoint: &Endpoint, to: S) -> Result<S::Ok, S::Error> {
        let either: Result<&SocketAddr, &Path> = match endpoint {
            Endpoint::Tcp(address) => Ok(address),
            Endpoint::Unix(path) => Err(path),
        };
        either.serialize(to)
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Endpoint, D::Error> {
        let either = Result::<SocketAddr, PathBuf>::deserialize(from)?;
        Ok(either.map_or_else(|path| Endpoint::Unix(path.into()), Endpoint::Tcp))
    }
}

//! `h2lab sidecar`: the proxy.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use h2lab_proxy::config::{Config, Instance, Policy, Size};
use h2lab_roles::sidecar::{self, SidecarConfig, SidecarError};

use super::exit::Usage;
use super::listen::{announce, unannounced};
use super::{Exit, help, rights, signals, values};
use h2lab_net::privileges::CapabilitySet;
use h2lab_net::resources;

/// A proxy between services: HTTP/1.1 and HTTP/2 on either side
///
/// Listens in clear (h1, and h2c by prior knowledge or upgrade) or with TLS (h1s and h2 by ALPN), and passes each request on to an
/// instance of the service that its host and path belong to. Requests that an HTTP/2 instance did not process (those above the last
/// stream of a GOAWAY, and `REFUSED_STREAM`) are sent again, whatever their method.
///
/// Prints one line `listening URL` per socket when ready, and serves until it is stopped. It passes open requests on before it exits;
/// the last line says what it did. What the file may have: docs/sidecar.md.
#[derive(Debug, Args)]
#[command(after_long_help = help::after(
    &[
        ("h2lab sidecar --listen 127.0.0.1:15001 --to h2c://10.0.0.7:8080", "callers speak HTTP/1.1, the service gets HTTP/2"),
        ("h2lab sidecar --listen 127.0.0.1:15001 --to h2c://10.0.0.7:8080 --policy fixed:8", "on eight connections"),
        ("h2lab sidecar --config sidecar.toml --check", "whether a file is right"),
    ],
))]
pub struct SidecarArgs {
    /// Listen in clear; port 0 picks a free one
    #[arg(long, value_name = "ADDR", requires = "to", conflicts_with = "config")]
    listen: Option<SocketAddr>,
    /// Where requests go, repeatable: http://HOST:PORT (h1), h2c://HOST:PORT or https://HOST:PORT (h2 or h1s by ALPN)
    #[arg(long, value_name = "URL", requires = "listen")]
    to: Vec<Instance>,
    /// HTTP/2 connections per instance: adaptive (as many as the path needs), fixed:N, or per-request (one for each under way)
    #[arg(long, value_name = "POLICY", default_value_t = Policy::default(), conflicts_with = "config")]
    policy: Policy,
    /// Read listeners, services and routes from this file (TOML) instead
    #[arg(long, value_name = "FILE", required_unless_present = "listen")]
    config: Option<PathBuf>,
    /// Bound its memory: over 80 % of it new requests are answered 503, over 95 % connections are closed
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    memory: Option<u64>,
    /// Check the configuration, and exit
    #[arg(long, requires = "config")]
    check: bool,
}

/// Serves until it is stopped.
pub fn main(args: &SidecarArgs) -> Result<Exit> {
    let mut file = match (&args.config, args.listen) {
        (Some(path), _) => read_config(path)?,
        (None, Some(listen)) => Config::simple(listen, args.to.clone(), args.policy),
        (None, None) => {
            return Err(Usage("give --listen ADDR and --to URL, or --config FILE".to_owned()).into());
        }
    };
    file.memory = args.memory.map(Size).or(file.memory);
    let folder = args.config.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
    let read = |name: &str| {
        // Files are beside the one that names them.
        let path = folder.join(name);
        std::fs::read(&path).map_err(|source| SidecarError::File { path: path.display().to_string(), source })
    };
    let mut config = SidecarConfig::new(file, std::process::id().into(), &read).map_err(explained)?;
    config.on_note = Some(|text: &str| say!("{text}"));
    if args.check {
        let mut out = std::io::stdout();
        writeln!(out, "{}", summary(&config.file))?;
        return Ok(Exit::Done);
    }
    rights::reduce(CapabilitySet::NET_BIND_SERVICE)?;
    resources::raise_open_files();
    let stop = signals::stop_flag()?;
    let mut reported = Ok(());
    let totals = sidecar::run(&config, &stop, &mut |sockets| reported = announce(sockets, &stop));
    let totals = totals.map_err(explained)?;
    reported.map_err(|error| unannounced(&error))?;
    // If stdout's reader is gone, the line is lost; a proxy that has done its work has not failed.
    let _ = writeln!(std::io::stdout(), "{totals}");
    Ok(Exit::Done)
}

fn read_config(path: &Path) -> Result<Config> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Usage(format!("cannot read {}: {error}", path.display())))?;
    Ok(Config::parse(&text).map_err(|error| Usage(format!("{}: {error}", path.display())))?)
}

/// A configuration that is wrong is an error of usage (exit code 2); a broken event loop is not.
fn explained(error: SidecarError) -> anyhow::Error {
    match error {
        SidecarError::Io(_) => error.into(),
        _ => Usage(error.to_string()).into(),
    }
}

/// `2 listeners, 3 services, 5 instances: right`.
fn summary(config: &Config) -> String {
    use h2lab_base::counts::plural;
    let instances: usize = config.service.values().map(|service| service.instances.len()).sum();
    format!(
        "{}, {}, {}: right",
        plural(config.listen.len() as u64, "listener"),
        plural(config.service.len() as u64, "service"),
        plural(instances as u64, "instance")
    )
}

//! What an agent permits, whoever its driver is: which servers it sends requests to, which roles it has, and how much
//! it does.
//!
//! These checks are made by the agent, before it looks up a name and before a packet leaves. A server is permitted by
//! the name in its URL: where that name leads is decided by the resolver of the agent's machine, never by the driver.

mod limits;
mod pattern;
mod place;
mod refusal;
#[cfg(test)]
mod tests;
mod transfers;

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use super::{FetchTask, Reach, ServeTask};
use crate::scenario::{Cell, Target};
use crate::workload::Protocol;
use h2lab_base::units::{ParseQuantityError, format_bytes};
use pattern::{Host, UrlPattern, is_tls};
use place::Place;
use refusal::shown;

pub use limits::{AgentLimits, Demand};
pub use refusal::Refusal;

/// One `--allow`: a URL pattern, `lab` or `serve`.
///
/// A pattern is `SCHEME://HOST[:PORT]`. The host is a name; `*.` and a name, for all names with one or more labels
/// before it; an address, or a network (`10.1.0.0/16`, `[2001:db8::]/32`), for hosts of URLs that are addresses in
/// it; or `*` for all names and addresses. The port is a number, `*` for all, or that of the scheme if there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowEntry {
    /// As it was given.
    text: String,
    permits: Permitted,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Permitted {
    /// Requests to these servers.
    Servers(UrlPattern),
    /// Cells behind the emulated link, in namespaces of their own, with the servers under test that are installed.
    Lab,
    /// A server of bytes, from which others fetch.
    Serve,
}

impl FromStr for AllowEntry {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let permits = match text {
            "lab" => Permitted::Lab,
            "serve" => Permitted::Serve,
            _ => UrlPattern::read(text)
                .map(Permitted::Servers)
                .map_err(|expected| ParseQuantityError::new(text, expected))?,
        };
        Ok(Self { text: text.to_owned(), permits })
    }
}

impl fmt::Display for AllowEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

/// All that an agent permits; nothing if it is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AllowList {
    entries: Vec<AllowEntry>,
}

impl FromIterator<AllowEntry> for AllowList {
    fn from_iter<T: IntoIterator<Item = AllowEntry>>(entries: T) -> Self {
        Self { entries: entries.into_iter().collect() }
    }
}

impl AllowList {
    /// The entries as they were given.
    pub fn texts(&self) -> Vec<String> {
        self.entries.iter().map(|entry| entry.text.clone()).collect()
    }

    /// Whether requests may go to this host of a URL, an IPv6 address without brackets. A name is permitted by its
    /// own pattern only, not by a network with its address.
    pub fn permits_url(&self, scheme: &str, host: &str, port: u16) -> bool {
        let (Some(is_tls), Some(host)) = (is_tls(scheme), Host::read(host)) else { return false };
        self.servers().any(|pattern| pattern.covers(is_tls, &host, port))
    }

    /// Whether requests may go to this address, whatever it is called.
    pub fn permits_address(&self, scheme: &str, address: SocketAddr) -> bool {
        let Some(is_tls) = is_tls(scheme) else { return false };
        let host = Host::Address(address.ip().to_canonical());
        self.servers().any(|pattern| pattern.covers(is_tls, &host, address.port()))
    }

    fn servers(&self) -> impl Iterator<Item = &UrlPattern> {
        self.entries.iter().filter_map(|entry| match &entry.permits {
            Permitted::Servers(pattern) => Some(pattern),
            Permitted::Lab | Permitted::Serve => None,
        })
    }

    fn has(&self, role: &Permitted) -> bool {
        self.entries.iter().any(|entry| entry.permits == *role)
    }

    /// The entries as refusals have them.
    fn rendered(&self) -> String {
        if self.entries.is_empty() { "nothing".to_owned() } else { self.texts().join(", ") }
    }
}

/// A load that an agent is asked for, or its share of one.
#[derive(Debug, Clone, Copy)]
pub struct LoadRequest<'a> {
    /// Where requests go.
    pub url: &'a str,
    /// Where the server is looked for.
    pub reach: &'a Reach,
    /// The protocol.
    pub protocol: Protocol,
    /// Congestion control of its sockets.
    pub congestion: Option<&'a str>,
    /// How much this agent does; see [`Demand::of_cell`].
    pub demand: Demand,
}

/// What an agent permits, and its bounds: its flags.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Permissions {
    /// What it permits.
    pub allow: AllowList,
    /// How much it does.
    pub limits: AgentLimits,
}

impl Permissions {
    /// Refuses a load that is not permitted.
    pub fn check_load(&self, load: &LoadRequest<'_>) -> Result<(), Refusal> {
        self.check_server(load.url, load.reach, load.protocol)?;
        check_congestion(load.congestion)?;
        self.limits.check(&load.demand, limits::TIME_OF_LOAD)
    }

    /// Refuses transfers that are not permitted, and those that no agent makes: they come as a message. All that run at
    /// a time belong together: their connections are added up.
    pub fn check_fetch(&self, tasks: &[FetchTask]) -> Result<(), Refusal> {
        transfers::check(tasks)?;
        for task in tasks {
            for url in &task.urls {
                self.check_server(url, &task.reach, task.protocol)?;
            }
            check_congestion(task.congestion.as_deref())?;
        }
        let connections = tasks.iter().fold(0_u32, |sum, task| sum.saturating_add(task.connections));
        let time = tasks.iter().map(|task| task.duration).max().unwrap_or_default();
        self.limits.check(&Demand { rate: None, connections, time }, limits::TIME_OF_TRANSFERS)
    }

    /// Refuses a server of bytes that is not permitted.
    pub fn check_serve(&self, task: &ServeTask) -> Result<(), Refusal> {
        self.check_role(&Permitted::Serve)?;
        self.check_uncounted("a server of bytes")?;
        transfers::check_requests(&task.settings, &[])?;
        check_congestion(task.congestion.as_deref())?;
        match task.listen.port() {
            port @ 1..1024 => Err(Refusal::Port { port }),
            _ => Ok(()),
        }
    }

    /// Refuses a unit with a cell that is not permitted. These must be all cells that are measured, of a plan that has the
    /// checks of a file ([`RunInfo::plan`](super::RunInfo::plan)): it has come as a message. Cells of other units of the
    /// same run are for agents that permit those.
    pub fn check_unit(&self, cells: &[Cell]) -> Result<(), Refusal> {
        for cell in cells {
            match &cell.target {
                Target::Url { url } => self.check_server(url, &Reach::default(), cell.protocol)?,
                Target::Origin | Target::Sut { .. } => self.check_role(&Permitted::Lab)?,
            }
            check_congestion(cell.congestion.as_deref())?;
            self.limits.check(&Demand::of_cell(cell, 1), limits::TIME_OF_CELL)?;
        }
        self.check_uncounted("a unit of a study")
    }

    /// Refuses a URL whose server is not permitted, or that is looked for in a place that is not. Overrides apply as
    /// in the client: a Unix socket before all, then another host and port, then fixed addresses of these.
    fn check_server(&self, url: &str, reach: &Reach, protocol: Protocol) -> Result<(), Refusal> {
        let place = Place::of_url(url).map_err(|why| Refusal::Url { why })?;
        let allowed = || self.allow.rendered();
        if !self.allow.permits_url(place.scheme(), &place.host, place.port) {
            return Err(Refusal::Server { server: shown(&place.to_string()), allowed: allowed() });
        }
        if protocol.is_tls() != place.is_tls {
            return Err(Refusal::Protocol { protocol: protocol.name(), scheme: place.scheme() });
        }
        if reach.unix_socket.is_some() {
            return Err(Refusal::UnixSocket);
        }
        let detour = |flag, to: String| {
            let server = shown(&place.to_string());
            Err(Refusal::Detour { flag, server, place: shown(&to), allowed: allowed() })
        };
        let (host, port) = reach.place(&place.host, place.port);
        if !self.allow.permits_url(place.scheme(), &host, port) {
            return detour("--connect-to", Place { host, port, ..place.clone() }.to_string());
        }
        let fixed = reach.fixed(&host, port).unwrap_or_default();
        let mut addresses = fixed.iter().map(|address| SocketAddr::new(*address, port));
        match addresses.find(|address| !self.allow.permits_address(place.scheme(), *address)) {
            Some(address) => detour("--resolve", format!("{}://{address}", place.scheme())),
            None => Ok(()),
        }
    }

    /// With `--max-bytes`, refuses a task whose bytes are not counted while it runs.
    fn check_uncounted(&self, task: &'static str) -> Result<(), Refusal> {
        match self.limits.bytes {
            Some(most) => Err(Refusal::Uncounted { task, most: format_bytes(most) }),
            None => Ok(()),
        }
    }

    fn check_role(&self, role: &Permitted) -> Result<(), Refusal> {
        let (task, word) = match role {
            Permitted::Serve => ("a server of bytes", "serve"),
            Permitted::Lab | Permitted::Servers(_) => ("a cell behind the emulated link", "lab"),
        };
        if self.allow.has(role) {
            Ok(())
        } else {
            Err(Refusal::Role { task, word, allowed: self.allow.rendered() })
        }
    }
}

/// Refuses what is no name of a congestion control (Linux has up to 15 characters): a process with the right to does
/// not only look one up, it makes the kernel load the module of that name.
fn check_congestion(name: Option<&str>) -> Result<(), Refusal> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    let is_name = |name: &str| (1..=15).contains(&name.len()) && name.bytes().all(is_plain);
    match name {
        Some(name) if !is_name(name) => Err(Refusal::Congestion { name: shown(name) }),
        _ => Ok(()),
    }
}

//! A user's own configuration, started in a lab as it is, except for what a lab cannot have: its listening addresses,
//! the user that it changes to, its log files, and upstreams that do not exist there, for which our origin stands in.
//!
//! Included files replace the directives that include them. No line moves otherwise, so that a program's message about
//! a line applies to the user's file.

mod apache;
mod envoy;
mod haproxy;
mod nginx;

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};

use h2lab_model::scenario::Change;
use h2lab_model::settings::edit::{ConfigFile, edited, spliced};
use h2lab_model::settings::{Peer, Version, newer};
use h2lab_model::workload::Protocol;
use serde::{Deserialize, Serialize};

use super::error::SutError;
use super::kind::{Endpoints, Launch, Ports, Site, StartOptions, Sut};
use super::upstream::Upstream;

/// Placeholders in an adapted text for values that are known only at the start: the port of our origin in clear, its
/// port over TLS, and the server's folder.
const CLEAR: &str = "@h2lab-origin@";
const TLS: &str = "@h2lab-origin-tls@";
const FOLDER: &str = "@h2lab-folder@";
/// Maximum number of files of a configuration, and how deeply they may include each other.
const MOST_FILES: usize = 500;
/// Maximum bytes of a configuration.
const MOST_BYTES: usize = 4 << 20;

/// A configuration that was read and adapted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnConfig {
    /// Its path, as it was given.
    pub path: PathBuf,
    /// Its whole text, adapted except for what is known only at the start.
    text: String,
    /// The protocols and their ports.
    ports: Vec<(Protocol, u16)>,
    /// What was adapted, for people.
    #[serde(skip)]
    pub notes: Vec<String>,
    /// Its files as they are, the main one first.
    #[serde(skip)]
    pub files: Vec<ConfigFile>,
}

/// A range of a text, and its replacement.
type Edit = (Range<usize>, String);

/// What a product's reader finds in a complete configuration.
#[derive(Debug, Default)]
struct Adapted {
    edits: Vec<Edit>,
    ports: Vec<(Protocol, u16)>,
    notes: BTreeSet<String>,
    /// The protocols at each port, in the order of the text, for `settle`.
    spoken: Vec<(u16, Vec<Protocol>)>,
    /// Why no address was found, if none was: what the reader could not read, with its line.
    missed: Option<String>,
}

impl Adapted {
    /// Replaces `range` by `with`, and notes `what` was done.
    fn replace(&mut self, range: Range<usize>, with: impl Into<String>, what: impl Into<String>) {
        self.edits.push((range, with.into()));
        self.notes.insert(what.into());
    }

    /// Notes that an address at a place in `text` cannot be read, unless another was before it.
    fn misses(&mut self, text: &str, at: usize, why: &str) {
        let line = text[..at].matches('\n').count() + 1;
        self.missed.get_or_insert_with(|| format!("line {line}: {why}"));
    }

    /// Adds the ports of `spoken`: the first one with HTTP/2 is used, one over TLS before one in clear, and HTTP/1.1 at
    /// the same port.
    fn settle(&mut self) {
        let mut spoken = std::mem::take(&mut self.spoken);
        let speaks = |all: &[Protocol], one| all.contains(&one);
        spoken.sort_by_key(|(_, all)| (!speaks(all, Protocol::H2), !speaks(all, Protocol::H2c)));
        for one in [Protocol::H2, Protocol::H2c] {
            let mut ports: Vec<String> = Vec::new();
            for (port, _) in spoken.iter().filter(|(_, all)| speaks(all, one)) {
                let port = port.to_string();
                if !ports.contains(&port) {
                    ports.push(port);
                }
            }
            if ports.len() > 1 {
                self.notes.insert(format!("{one} at ports {}: the first is measured", ports.join(", ")));
            }
        }
        for (port, all) in spoken {
            self.listens(&all, port);
        }
    }

    /// Adds a port, unless the protocol has one.
    fn listens(&mut self, protocols: &[Protocol], port: u16) {
        for protocol in protocols {
            if self.ports.iter().all(|(known, _)| known != protocol) {
                self.ports.push((*protocol, port));
            }
        }
    }
}

/// A place where a text includes files.
struct Include {
    range: Range<usize>,
    /// The path, which may have stars.
    pattern: String,
    /// The folder of relative paths that this text sets before; `None` if it sets none.
    root: Option<String>,
    /// Whether the program accepts that no file is found.
    is_optional: bool,
    /// The block around it; `None` if this text has none around it.
    within: Option<String>,
}

/// How a product includes files.
type Includes = fn(&str) -> Vec<Include>;
/// Adapts a text whose relative paths are relative to a folder.
type Adapt = fn(&str, &Path) -> Adapted;

/// The functions for a product whose configurations can be read.
fn reader(server: &str) -> Option<(Includes, Adapt)> {
    let none: Includes = |_| Vec::new();
    Some(match server {
        "nginx" | "nginx-proxy" => (nginx::includes, nginx::adapted),
        "haproxy" => (none, haproxy::adapted),
        "apache" => (apache::includes, apache::adapted),
        "envoy" => (none, envoy::adapted),
        "origin" => (none, |_, _| Adapted::default()),
        _ => return None,
    })
}

impl OwnConfig {
    /// Reads the configuration of the server called `server` and adapts it.
    pub fn read(server: &'static str, path: &Path) -> Result<Self, SutError> {
        let bad = |why: String| SutError::OwnConfig { server, file: path.to_owned(), why };
        let unread =
            "its configurations cannot be read; those of nginx, haproxy, envoy, apache and origin can";
        let (includes, adapt) = reader(server).ok_or_else(|| bad(unread.to_owned()))?;
        let absolute = std::path::absolute(path).map_err(|error| bad(error.to_string()))?;
        let folder = absolute.parent().unwrap_or(Path::new("/"));
        let (mut files, mut notes) = (Vec::new(), BTreeSet::new());
        let whole = whole(path, folder, includes, None, (&mut files, &mut notes)).map_err(bad)?;
        // A file that is included in several places is one file to change.
        let mut known = BTreeSet::new();
        files.retain(|file| known.insert(file.path.clone()));
        let mut adapted = adapt(&whole, folder);
        adapted.edits.sort_by_key(|(range, _)| range.start);
        let text = spliced(&whole, &adapted.edits);
        if adapted.ports.is_empty() && server != "origin" {
            let plain = || "no address was found in it at which it speaks HTTP".to_owned();
            return Err(bad(adapted.missed.unwrap_or_else(plain)));
        }
        notes.append(&mut adapted.notes);
        let notes = notes.into_iter().collect();
        Ok(Self { path: path.to_owned(), text, ports: adapted.ports, notes, files })
    }

    /// The protocols to compare: those of the address with HTTP/2, preferably over TLS; `None` if all addresses are
    /// HTTP/1.1.
    pub fn protocols(&self) -> Option<Vec<Protocol>> {
        if self.ports.is_empty() {
            return Some(vec![Protocol::H1, Protocol::H2c]); // our origin
        }
        let speaks = |wanted: &Protocol| self.ports.iter().any(|(protocol, _)| protocol == wanted);
        let pairs = [[Protocol::H1s, Protocol::H2], [Protocol::H1, Protocol::H2c]];
        let pair = pairs.into_iter().find(|[_, h2]| speaks(h2))?;
        Some(pair.into_iter().filter(speaks).collect())
    }

    /// The protocol of its first address.
    pub fn first(&self) -> Option<Protocol> {
        self.ports.first().map(|(protocol, _)| *protocol)
    }

    /// Whether our origin stands in for an upstream.
    pub(super) fn has_upstream(&self) -> bool {
        self.text.contains(CLEAR) || self.text.contains(TLS)
    }

    /// The program's message about the adapted text at `copy`, changed to be about the user's file if the lines are the
    /// same.
    pub(super) fn said(&self, said: &str, copy: &Path, program: (&str, &str)) -> String {
        let (server, version) = program;
        let peer = Peer { version: Version::parse(version), ..Peer::started(server) };
        let newer = newer(&peer, said).map_or(String::new(), |newer| format!("\n{newer}"));
        let name = copy.file_name().unwrap_or_default().to_string_lossy();
        let is_whole = self.files.len() <= 1;
        let path = self.path.display().to_string();
        let said = if is_whole {
            said.replace(&*copy.to_string_lossy(), &path).replace(&format!("{name}:"), &format!("{path}:"))
        } else {
            said.to_owned()
        };
        said + &newer
    }

    /// Puts it in place of our configuration in `launch`.
    pub(super) fn fill(&self, launch: &mut Launch, ip: IpAddr, folder: &Path, origin: Option<&Endpoints>) {
        let port = |protocol| {
            origin.and_then(|origin| origin.get(&protocol)).map_or(0, SocketAddr::port).to_string()
        };
        let text = self
            .text
            .replace(CLEAR, &port(Protocol::H1))
            .replace(TLS, &port(Protocol::H1s))
            .replace(FOLDER, &folder.to_string_lossy());
        if let Some((name, ours)) = launch.files.first_mut() {
            // Envoy takes the format from the file's extension.
            if Path::new(name).extension().is_some_and(|end| end == "json")
                && !text.trim_start().starts_with('{')
            {
                let yaml = name.replace(".json", ".yaml");
                for word in launch.arguments.iter_mut().chain(&mut launch.check).filter(|word| *word == name)
                {
                    word.clone_from(&yaml);
                }
                *name = yaml;
            }
            *ours = text;
            launch.endpoints =
                self.ports.iter().map(|(protocol, port)| (*protocol, SocketAddr::new(ip, *port))).collect();
        } else {
            // For our origin: the user's flags, without those of ours that are not addresses.
            launch.arguments.retain(|word| !word.starts_with("--max-concurrent-streams"));
            let flags = text.lines().map(|line| line.split('#').next().unwrap_or_default());
            launch.arguments.extend(flags.flat_map(str::split_whitespace).map(str::to_owned));
        }
    }
}

/// Our own configuration of a server, for users to read: at any address, and in front of an origin at a placeholder
/// port.
pub fn ours(sut: &dyn Sut, max_requests_per_connection: Option<u32>) -> Result<Vec<ConfigFile>, SutError> {
    let any = IpAddr::from([0, 0, 0, 0]);
    let upstream = Upstream::new(SocketAddr::new([127, 0, 0, 1].into(), 8080), Protocol::H1);
    let site = Site { folder: Path::new("."), ports: Ports::LAB, upstream: Some(upstream) };
    let options = StartOptions { max_requests_per_connection, ..StartOptions::new(any, PathBuf::new()) };
    let mut launch = sut.launch(site, &options)?;
    let flags = launch.arguments.iter().skip(1).map(|word| format!("{word}\n")).collect::<Vec<_>>().concat();
    let (path, text) =
        if launch.files.is_empty() { ("origin.flags".to_owned(), flags) } else { launch.files.remove(0) };
    Ok(vec![ConfigFile::main(path, text)])
}

/// Makes these changes in the configuration of a server about to be started.
pub(super) fn change(
    launch: &mut Launch,
    server: &'static str,
    version: &str,
    changes: &[Change],
) -> Result<(), SutError> {
    let peer = Peer { version: Version::parse(version), ..Peer::started(server) };
    for change in changes {
        let file = |text: &str| ConfigFile::main("", text);
        let unsupported = |why| SutError::Unsupported { server, why };
        if let Some((_, text)) = launch.files.first_mut() {
            let mut files = edited(&peer, change, &[file(text)]).map_err(unsupported)?;
            *text = files.remove(0).text;
        } else {
            let mut lines: Vec<String> = Vec::new();
            for word in &launch.arguments[1..] {
                match lines.last_mut() {
                    Some(line) if !word.starts_with('-') => *line = format!("{line} {word}"),
                    _ => lines.push(word.clone()),
                }
            }
            let files = edited(&peer, change, &[file(&lines.join("\n"))]).map_err(unsupported)?;
            launch.arguments.truncate(1);
            launch.arguments.extend(files[0].text.split_whitespace().map(str::to_owned));
        }
    }
    Ok(())
}

/// The text of a file with its included files in place; each file that was read is added to `files`, and each pattern
/// without a file that the program would refuse to `notes`.
fn whole(
    path: &Path,
    folder: &Path,
    includes: Includes,
    within: Option<&str>,
    (files, notes): (&mut Vec<ConfigFile>, &mut BTreeSet<String>),
) -> Result<String, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let within_owned = within.map(str::to_owned);
    files.push(ConfigFile { within: within_owned, ..ConfigFile::main(path.to_string_lossy(), text.clone()) });
    if files.len() > MOST_FILES || files.iter().map(|file| file.text.len()).sum::<usize>() > MOST_BYTES {
        return Err(format!(
            "more than {MOST_FILES} files or {} MiB: does it include itself?",
            MOST_BYTES >> 20
        ));
    }
    let mut edits: Vec<Edit> = Vec::new();
    for Include { range, pattern, root, is_optional, within: block } in includes(&text) {
        let folder = root.map_or_else(|| folder.to_owned(), |root| folder.join(root));
        let pattern = folder.join(&pattern);
        let block = block.as_deref().or(within);
        let found = matching(&pattern);
        if found.is_empty() && !is_optional {
            let shown = pattern.display();
            if !pattern.to_string_lossy().contains('*') {
                return Err(format!("it includes {shown}, which does not exist"));
            }
            notes.insert(format!("Include {shown}: no file matches; Apache itself refuses this"));
        }
        let inner = |path: &PathBuf| whole(path, &folder, includes, block, (&mut *files, &mut *notes));
        let texts: Result<Vec<String>, String> = found.iter().map(inner).collect();
        let mut text = texts?.join("\n");
        if !text.is_empty() {
            text.push('\n');
        }
        edits.push((range, text));
    }
    Ok(spliced(&text, &edits))
}

/// The files of a pattern with stars in the last part of its path, in the order of their names; for a folder, all files
/// in it.
fn matching(pattern: &Path) -> Vec<PathBuf> {
    if pattern.is_file() {
        return vec![pattern.to_owned()];
    }
    let is_folder = pattern.is_dir();
    let (folder, name) = match (pattern.parent(), pattern.file_name()) {
        _ if is_folder => (pattern, "*".into()),
        (Some(folder), Some(name)) => (folder, name.to_string_lossy()),
        _ => return Vec::new(),
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| {
            let its = entry.file_name();
            let its = its.to_string_lossy();
            fits(&name, &its) && !its.starts_with('.')
        })
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    found.sort();
    found
}

/// Whether a name matches a pattern with stars.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, after)) => name.strip_prefix(before).is_some_and(|rest| {
            rest.char_indices().map(|(at, _)| at).chain([rest.len()]).any(|at| fits(after, &rest[at..]))
        }),
    }
}

/// Host and port of a listening address: `443`, `*:443`, `10.0.0.5:443`, `[::]:443`, `:443`.
struct Address<'a> {
    host: &'a str,
    port: u16,
}

impl<'a> Address<'a> {
    fn parse(text: &'a str, default: u16) -> Option<Self> {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port),
            _ if text.parse::<u16>().is_ok() => ("", text),
            _ => return Some(Self { host: text, port: default }),
        };
        // Of a range, the first port.
        let port = port.split('-').next()?;
        Some(Self { host, port: port.parse().ok()? })
    }

    fn is_loopback(&self) -> bool {
        let host = self.host.trim_matches(['[', ']']);
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }

    /// Whether it accepts connections to any IPv4 address.
    fn is_any(&self) -> bool {
        ["", "*", "0.0.0.0"].contains(&self.host)
    }
}

/// The parts of a URL: its scheme, its host with the port, and the rest from the path on.
fn url(text: &str) -> Option<(&str, &str, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    Some((scheme, &rest[..end], &rest[end..]))
}

/// The address of our origin that replaces the host of a URL of this scheme.
fn origin(is_tls: bool) -> String {
    format!("127.0.0.1:{}", if is_tls { TLS } else { CLEAR })
}

/// `path` made absolute, if it is a relative path of a file.
fn absolute(path: &str, folder: &Path) -> Option<String> {
    let is_path = !path.is_empty() && !path.starts_with(['/', '$']) && !path.contains(':');
    is_path.then(|| folder.join(path).to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests;

//! What a lab changes in a configuration of Envoy: in YAML, or in JSON with a line for each field.

use std::path::Path;

use h2lab_model::settings::edit::envoy_field as field;
use h2lab_model::workload::Protocol;

use super::{Adapted, CLEAR, TLS, absolute};

/// A line with its place, and how far it is from the margin.
struct Line<'a> {
    at: usize,
    text: &'a str,
    depth: usize,
}

impl Line<'_> {
    fn named(&self, name: &str) -> bool {
        field(self.text).is_some_and(|(its, _)| its == name)
    }
}

fn lines(text: &str) -> Vec<Line<'_>> {
    let mut at = 0;
    let mut found = Vec::new();
    for line in text.split_inclusive('\n') {
        let body = line.trim_end_matches(['\n', '\r']);
        let trimmed = body.trim_start();
        if !trimmed.is_empty() && !trimmed.starts_with('#') {
            found.push(Line { at, text: body, depth: body.len() - trimmed.len() });
        }
        at += line.len();
    }
    found
}

/// The lines of the list called `name`, item by item.
fn items<'a>(all: &'a [Line<'a>], name: &str) -> Vec<&'a [Line<'a>]> {
    let Some(head) = all.iter().position(|line| line.named(name)) else { return Vec::new() };
    let level = all[head].depth;
    let is_item = |line: &Line<'_>| line.text.trim_start().starts_with(['-', '{']);
    let end = (head + 1..all.len())
        .find(|&at| all[at].depth < level || (all[at].depth == level && !is_item(&all[at])))
        .unwrap_or(all.len());
    let inside = &all[head + 1..end];
    let Some(depth) = inside.first().map(|line| line.depth) else { return Vec::new() };
    let mut starts: Vec<usize> =
        (0..inside.len()).filter(|&at| inside[at].depth == depth && is_item(&inside[at])).collect();
    starts.push(inside.len());
    starts.windows(2).map(|pair| &inside[pair[0]..pair[1]]).collect()
}

/// Replaces the value of every field of this name in a line, however it is nested in it; the value as it was.
fn set<'a>(line: &Line<'a>, name: &str, with: &str) -> Option<(std::ops::Range<usize>, String, &'a str)> {
    // `socket_address` is another name than `address`.
    let begins = |at: usize| !line.text[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let places = line.text.match_indices(name).map(|(at, _)| at).filter(|at| begins(*at));
    let from = places.map(|at| at + name.len()).find_map(|at| {
        let behind = line.text[at..].trim_start_matches(['"', '\'']);
        behind.strip_prefix(':').map(|value| line.text.len() - value.len())
    })?;
    let rest = &line.text[from..];
    let space = rest.len() - rest.trim_start().len();
    let rest = rest.trim_start();
    let end = rest.find([',', '}', '#']).unwrap_or(rest.len());
    let value = rest[..end].trim_end();
    let start = line.at + from + space;
    let is_quoted = value.starts_with(['"', '\'']);
    let with = if is_quoted { format!("\"{with}\"") } else { with.to_owned() };
    Some((start..start + value.len(), with, value.trim_matches(['"', '\''])))
}

pub(super) fn adapted(text: &str, folder: &Path) -> Adapted {
    let mut adapted = Adapted::default();
    let all = lines(text);
    let mut found: Vec<(u16, Vec<Protocol>)> = Vec::new();
    for listener in items(&all, "listeners") {
        let contains = |word: &str| listener.iter().any(|line| line.text.contains(word));
        let port = listener.iter().find_map(|line| set(line, "port_value", "0")?.2.parse::<u16>().ok());
        let mut addresses = listener.iter().filter_map(|line| set(line, "address", "0.0.0.0"));
        if let Some((range, with, was)) = addresses.find(|(_, _, was)| was.contains(['.', ':']))
            && was != "0.0.0.0"
        {
            adapted.replace(range, with, format!("listener at {was}: at all addresses of the lab"));
        }
        let is_tls = contains("DownstreamTlsContext");
        let codec = listener.iter().find_map(|line| Some(set(line, "codec_type", "")?.2)).unwrap_or("AUTO");
        let speaks_h2 = codec != "HTTP1" && contains("alpn") && contains("h2");
        let spoken: Vec<Protocol> = match (is_tls, codec) {
            _ if !contains("HttpConnectionManager") => Vec::new(),
            (true, _) if speaks_h2 => vec![Protocol::H1s, Protocol::H2],
            (true, _) => vec![Protocol::H1s],
            (false, "HTTP1") => vec![Protocol::H1],
            (false, "HTTP2") => vec![Protocol::H2c],
            (false, _) => vec![Protocol::H1, Protocol::H2c],
        };
        found.extend(port.map(|port| (port, spoken)));
    }
    found.sort_by_key(|(_, spoken)| !spoken.contains(&Protocol::H2));
    for (port, spoken) in found {
        adapted.listens(&spoken, port);
    }
    for cluster in items(&all, "clusters") {
        let is_tls = cluster.iter().any(|line| line.text.contains("UpstreamTlsContext"));
        let name = cluster.iter().find_map(|line| Some(set(line, "name", "")?.2)).unwrap_or("?");
        for line in cluster {
            let is_host = |was: &str| !was.is_empty() && was != "{";
            if let Some((range, with, _)) =
                set(line, "address", "127.0.0.1").filter(|(_, _, was)| is_host(was))
            {
                adapted.edits.push((range, with));
            }
            if let Some((range, ..)) = set(line, "port_value", "0") {
                adapted.replace(
                    range,
                    if is_tls { TLS } else { CLEAR },
                    format!("cluster {name}: h2lab's origin stands in for it"),
                );
            }
        }
    }
    files(&all, folder, &mut adapted);
    adapted
}

/// Files from the configuration's folder on, and access logs in the run folder.
fn files(all: &[Line<'_>], folder: &Path, adapted: &mut Adapted) {
    let mut is_log = false;
    for line in all {
        if line.named("@type") {
            is_log = line.text.contains("FileAccessLog");
        }
        let Some((range, with, was)) = set(line, "filename", "@").or_else(|| set(line, "path", "@")) else {
            continue;
        };
        if is_log && was.starts_with('/') && !was.starts_with("/dev/") {
            let log = with.replace('@', "scratch/access.log");
            adapted.replace(range, log, "access logs: in the run folder");
        } else if line.named("filename")
            && let Some(path) = absolute(was, folder)
        {
            adapted.edits.push((range, with.replace('@', &path)));
        }
    }
}

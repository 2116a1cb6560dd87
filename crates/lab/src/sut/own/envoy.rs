//! What a lab changes in a configuration of Envoy: in YAML, or in JSON with a line for each field.

use std::ops::Range;
use std::path::Path;

use h2lab_model::settings::edit::envoy_field as field;
use h2lab_model::workload::Protocol;

use super::super::kind::SCRATCH;
use super::{Adapted, CLEAR, TLS, absolute};

/// A line with its range, and its indentation.
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

/// A value in a line: its range, the new value, and the previous one.
type Set<'a> = (Range<usize>, String, &'a str);

/// Replaces the value of the first field of this name in a line, however deeply it is nested there.
fn set<'a>(line: &Line<'a>, name: &str, with: &str) -> Option<Set<'a>> {
    sets(line, name, with).into_iter().next()
}

/// The same for every field of this name. Fields that contain others, such as `address: { socket_address: …`, have no
/// value of their own.
fn sets<'a>(line: &Line<'a>, name: &str, with: &str) -> Vec<Set<'a>> {
    // `socket_address` must not match `address`.
    let begins = |at: &usize| !line.text[..*at].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let places = line.text.match_indices(name).map(|(at, _)| at).filter(begins);
    let found = places.filter_map(|at| {
        let behind = line.text[at + name.len()..].trim_start_matches(['"', '\'']);
        let rest = behind.trim_start().strip_prefix(':')?.trim_start();
        let value = scalar(rest)?;
        let start = line.at + line.text.len() - rest.len();
        let is_quoted = value.starts_with(['"', '\'']);
        let with = if is_quoted { format!("\"{with}\"") } else { with.to_owned() };
        Some((start..start + value.len(), with, value.trim_matches(['"', '\''])))
    });
    found.collect()
}

/// The value at the beginning of a text; `None` if it consists of other fields, or of the lines below.
fn scalar(text: &str) -> Option<&str> {
    let value = match text.chars().next()? {
        quote @ ('"' | '\'') => &text[..text[1..].find(quote)? + 2],
        '{' | '[' => return None,
        _ => text[..text.find([',', '}', '#']).unwrap_or(text.len())].trim_end(),
    };
    (!value.is_empty()).then_some(value)
}

pub(super) fn adapted(text: &str, folder: &Path) -> Adapted {
    let mut adapted = Adapted::default();
    let all = lines(text);
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
        adapted.spoken.extend(port.map(|port| (port, spoken)));
    }
    adapted.settle();
    if let Some(line) = all.iter().find(|line| has_listeners_inside(line)) {
        let why = "its listeners are in one line; write YAML in blocks, or JSON with a line for each field";
        adapted.misses(text, line.at, why);
    }
    for cluster in items(&all, "clusters") {
        let is_tls = cluster.iter().any(|line| line.text.contains("UpstreamTlsContext"));
        let name = cluster.iter().find_map(|line| Some(set(line, "name", "")?.2)).unwrap_or("?");
        for line in cluster {
            let hosts = sets(line, "address", "127.0.0.1").into_iter();
            adapted.edits.extend(hosts.map(|(range, with, _)| (range, with)));
            for (range, ..) in sets(line, "port_value", "0") {
                adapted.replace(
                    range,
                    if is_tls { TLS } else { CLEAR },
                    format!("cluster {name}: h2lab's origin stands in for it"),
                );
            }
        }
    }
    files(&all, folder, &mut adapted);
    pipes(&all, &mut adapted);
    for cluster in items(&all, "clusters") {
        for (range, what) in validations(text, cluster) {
            // Edits inside the range are removed with it.
            adapted.edits.retain(|(inner, _)| !(range.start <= inner.start && inner.end <= range.end));
            adapted.replace(range, " {}", what);
        }
    }
    adapted
}

/// Whether the listeners are in the same line as their name, or their name in that of what is around it.
fn has_listeners_inside(line: &Line<'_>) -> bool {
    let value = line
        .text
        .split_once("listeners")
        .and_then(|(_, behind)| behind.trim_start_matches(['"', '\'']).trim_start().strip_prefix(':'));
    value.is_some_and(|value| value.contains('{') || !line.named("listeners"))
}

/// Puts sockets in the file system into the run folder: Envoy would remove those of a live service.
fn pipes(all: &[Line<'_>], adapted: &mut Adapted) {
    let mut pipe: Option<usize> = None;
    for line in all {
        if pipe.is_some_and(|depth| line.depth <= depth) {
            pipe = None;
        }
        let is_here = line.text.contains("pipe:") || line.text.contains("\"pipe\":");
        let path = set(line, "path", "").filter(|_| is_here || pipe.is_some());
        if is_here && path.is_none() {
            pipe = Some(line.depth);
        }
        if let Some((range, _, was)) = path
            && !was.starts_with('@')
        {
            let with = format!("\"{SCRATCH}/{}\"", was.trim_matches('/').replace('/', "-"));
            adapted.replace(range, with, format!("pipe {was}: in the run folder"));
        }
    }
}

/// The values of a cluster's `validation_context`, which must go: our origin has a certificate of its own.
fn validations(text: &str, cluster: &[Line<'_>]) -> Vec<(Range<usize>, &'static str)> {
    const NAME: &str = "validation_context";
    let what = "certificates of upstreams: not checked, since h2lab's origin has its own";
    let of = |(nth, line): (usize, &Line<'_>)| {
        // It may be in one line with its surroundings, or have the quotes of JSON.
        let name = line.text.find(NAME)?;
        let is_whole = !line.text[..name].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        let colon = name + NAME.len() + line.text[name + NAME.len()..].find(':').filter(|_| is_whole)?;
        let value = line.text[colon + 1..].trim_start();
        let start = line.at + line.text.len() - value.len();
        let end = if value.starts_with('{') {
            start + balanced(&text[start..])?
        } else {
            let inside = cluster[nth + 1..].iter().take_while(|other| other.depth > line.depth);
            inside.last().map(|last| last.at + last.text.len())?
        };
        Some((line.at + colon + 1..end, what))
    };
    cluster.iter().enumerate().filter_map(of).collect()
}

/// The length of the flow mapping at the beginning of a text.
fn balanced(text: &str) -> Option<usize> {
    let mut depth = 0;
    let mut quote = None;
    for (at, character) in text.char_indices() {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (None, '"' | '\'') => quote = Some(character),
            (None, '{') => depth += 1,
            (None, '}') => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// Makes paths of files absolute, from the configuration's folder, and puts access logs into the run folder.
fn files(all: &[Line<'_>], folder: &Path, adapted: &mut Adapted) {
    // A `path` beside the type belongs to the log; a route has a `path`, too.
    let mut log = None;
    for line in all {
        if log.is_some_and(|depth| line.depth < depth) || line.named("@type") {
            log = None;
        }
        let names_it = line.text.contains("FileAccessLog");
        if names_it && line.named("@type") {
            log = Some(line.depth);
        }
        let is_log = names_it || log.is_some();
        if is_log && let Some((range, with, was)) = set(line, "path", "scratch/access.log") {
            if was.starts_with('/') && !was.starts_with("/dev/") {
                adapted.replace(range, with, "access logs: in the run folder");
            }
            continue;
        }
        for (range, with, was) in sets(line, "filename", "@") {
            if let Some(path) = absolute(was, folder) {
                adapted.edits.push((range, with.replace('@', &path)));
            }
        }
    }
}

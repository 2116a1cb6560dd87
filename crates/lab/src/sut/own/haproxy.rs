//! What a lab changes in a configuration of `HAProxy`.

use std::path::Path;

use h2lab_model::workload::Protocol;

use super::{Adapted, Address, absolute, origin};

/// Lines of `global` about the process.
const PROCESS: [&str; 11] = [
    "daemon",
    "master-worker",
    "user",
    "group",
    "uid",
    "gid",
    "chroot",
    "pidfile",
    "log",
    "log-send-hostname",
    "localpeer",
];
/// Words before the path of a file.
const PATHS: [&str; 6] = ["crt", "ca-file", "crl-file", "crt-list", "lua-load", "-f"];

/// The word after `word`, if `word` is among these.
fn after<'a>(words: &[&'a str], word: &str) -> Option<&'a str> {
    words.iter().position(|one| *one == word).and_then(|at| words.get(at + 1)).copied()
}

pub(super) fn adapted(text: &str, folder: &Path) -> Adapted {
    let mut adapted = Adapted::default();
    let has_base = |base: &str| text.lines().any(|line| line.trim_start().starts_with(base));
    let is_based = has_base("crt-base") || has_base("default-path");
    let is_local = binds(text).all(|address| address.is_loopback());
    let (mut section, mut is_tcp, mut default_is_tcp) = ("", false, false);
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let range = at..at + line.trim_end_matches(['\n', '\r']).len();
        at += line.len();
        let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
        let Some(&first) = words.first() else { continue };
        match first {
            "global" | "defaults" | "frontend" | "backend" | "listen" | "peers" | "resolvers" | "mailers"
            | "userlist" | "cache" | "program" | "ring" => {
                section = first;
                is_tcp = default_is_tcp && section != "defaults";
            }
            "mode" => {
                is_tcp = words.get(1) == Some(&"tcp");
                if section == "defaults" {
                    default_is_tcp = is_tcp;
                }
            }
            _ if section == "global" && PROCESS.contains(&first) => adapted.replace(
                range,
                "",
                "daemon, user, chroot, pidfile, log …: one process in the foreground that logs nowhere",
            ),
            "stats" if section == "global" && words.get(1) == Some(&"socket") => {
                adapted.replace(range, "", "stats socket: none");
            }
            "log" => adapted.replace(
                range,
                "",
                "daemon, user, chroot, pidfile, log …: one process in the foreground that logs nowhere",
            ),
            "bind" if ["frontend", "listen"].contains(&section) => {
                let given = words.get(1).copied().unwrap_or_default();
                if given.contains('$') {
                    let why = format!("`bind {given}` has a variable; write the address itself");
                    adapted.misses(text, range.start, &why);
                }
                let line = bind(&words, (is_tcp, is_local), &mut adapted);
                adapted.edits.push((range, with_paths(line, is_based, folder)));
            }
            "server" | "server-template" if ["backend", "listen"].contains(&section) => {
                adapted.edits.push((range, String::new()));
                if let Some(edit) = adapted.edits.last_mut() {
                    edit.1 = server(&words);
                }
                adapted.notes.insert(format!(
                    "{} {}: h2lab's origin stands in for it",
                    first,
                    words[1..].join(" ")
                ));
            }
            _ if words.iter().any(|word| PATHS.contains(word)) && !is_based => {
                let line = words.iter().map(|word| (*word).to_owned()).collect();
                adapted.edits.push((range, with_paths(line, is_based, folder)));
            }
            _ => {}
        }
    }
    adapted.settle();
    if !text.contains("fd-hard-limit") {
        // If a machine allows a billion open files, it would reserve memory for all of them.
        adapted.edits.push((text.len()..text.len(), "\nglobal\n    fd-hard-limit 65536\n".to_owned()));
    }
    adapted
}

fn binds(text: &str) -> impl Iterator<Item = Address<'_>> {
    let line = |line: &'_ str| line.trim_start().starts_with("bind ");
    text.lines().filter(move |one| line(one)).flat_map(|line| {
        let addresses = unquoted(line.split_whitespace().nth(1).unwrap_or_default());
        addresses.split(',').filter(|one| !is_socket(one)).filter_map(|one| Address::parse(one, 80))
    })
}

fn unquoted(word: &str) -> &str {
    word.trim_matches(['"', '\''])
}

/// Whether an address is a socket in the file system: a path, or behind `unix@` or a family like it.
fn is_socket(address: &str) -> bool {
    let is_unix = |(family, _): (&str, &str)| family == "unix" || family.starts_with("ux");
    address.starts_with('/') || address.split_once('@').is_some_and(is_unix)
}

/// The words of a line, indented, with relative paths made absolute from the configuration's folder.
fn with_paths(mut words: Vec<String>, is_based: bool, folder: &Path) -> String {
    for at in 1..words.len() {
        if !is_based && PATHS.contains(&words[at - 1].as_str()) {
            words[at] = absolute(&words[at], folder).unwrap_or_else(|| words[at].clone());
        }
    }
    format!("    {}", words.join(" "))
}

/// A `bind` line with addresses that the lab has, or no words if it has none; notes the protocols of its ports.
fn bind(words: &[&str], (is_tcp, is_local): (bool, bool), adapted: &mut Adapted) -> Vec<String> {
    let given = unquoted(words.get(1).copied().unwrap_or_default());
    let is_tls = words.contains(&"ssl");
    let alpn = after(words, "alpn");
    let is_h2_only = after(words, "proto") == Some("h2");
    let spoken: &[Protocol] = match (is_tls, alpn) {
        _ if is_tcp || words.contains(&"accept-proxy") => &[],
        // Without `alpn`, versions from 2.8 on offer HTTP/2, and earlier ones do not.
        (true, Some(alpn)) if alpn.split(',').any(|one| one == "h2") => &[Protocol::H1s, Protocol::H2],
        (true, _) => &[Protocol::H1s],
        (false, _) if is_h2_only => &[Protocol::H2c],
        (false, _) => &[Protocol::H1, Protocol::H2c],
    };
    let mut addresses = Vec::new();
    for one in given.split(',') {
        if is_socket(one) {
            adapted.notes.insert(format!("bind {one}: left out, since it would be made on the host"));
            continue;
        }
        let is_inet = !one.contains('@');
        let Some(address) = Address::parse(one, 80).filter(|_| is_inet) else {
            // Variables are read within quotes only.
            addresses.push(if one.contains('$') { format!("\"{one}\"") } else { one.to_owned() });
            continue;
        };
        if address.is_loopback() && !is_local {
            addresses.push(one.to_owned());
            continue;
        }
        adapted.spoken.push((address.port, spoken.to_vec()));
        let place = format!("0.0.0.0:{}", address.port);
        if !address.is_any() {
            adapted.notes.insert(format!("bind {one}: at all addresses of the lab"));
        }
        if !addresses.contains(&place) {
            addresses.push(place);
        }
    }
    if addresses.is_empty() {
        return Vec::new();
    }
    let rest = words.iter().skip(2).map(|word| (*word).to_owned());
    ["bind".to_owned(), addresses.join(",")].into_iter().chain(rest).collect()
}

/// A `server` line to our origin, which supports no PROXY protocol and has a certificate of its own.
fn server(words: &[&str]) -> String {
    let is_tls = words.contains(&"ssl");
    // `server-template NAME COUNT ADDRESS`.
    let rest = if words[0] == "server" { 3 } else { 4 };
    let name = words.get(1).copied().unwrap_or("h2lab");
    let mut line = vec!["server".to_owned(), name.to_owned(), origin(is_tls)];
    let mut rest = words.iter().skip(rest).copied();
    while let Some(word) = rest.next() {
        match word {
            "verify" | "ca-file" | "verifyhost" | "resolvers" | "init-addr" | "resolve-prefer" => {
                rest.next();
            }
            "send-proxy" | "send-proxy-v2" | "check" | "check-ssl" => {}
            _ => line.push(word.to_owned()),
        }
    }
    if is_tls {
        line.extend(["verify", "none"].map(str::to_owned));
    }
    format!("    {}", line.join(" "))
}

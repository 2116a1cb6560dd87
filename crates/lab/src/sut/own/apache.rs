//! What a lab changes in a configuration of Apache.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;

use h2lab_model::settings::edit::HOST;
use h2lab_model::workload::Protocol;
use rustix::process::geteuid;

use super::super::kind::SCRATCH;
use super::{Adapted, Address, FOLDER, Include, absolute, origin, url};

/// The variables that Debian's script sets, and their values here.
const VARIABLES: [(&str, &str); 6] = [
    ("APACHE_RUN_USER", "www-data"),
    ("APACHE_RUN_GROUP", "www-data"),
    ("APACHE_PID_FILE", "apache.pid"),
    ("APACHE_RUN_DIR", ""),
    ("APACHE_LOCK_DIR", ""),
    ("APACHE_LOG_DIR", ""),
];
/// The note on directives about the process.
const PROCESS: &str = "PidFile, ErrorLog, CustomLog, User, Mutex …: one process in the foreground, with its files in the run folder";

/// The note on directives about threads: each of several processes would have a part of them.
const WORKERS: &str = "ThreadsPerChild, MaxRequestWorkers …: the one process has the threads of all";
/// Threads of all processes if the configuration does not set them (event MPM of 2.4).
const MAX_REQUEST_WORKERS: u32 = 400;

/// Lines with their ranges and words; quoted text is one word.
fn lines(text: &str) -> impl Iterator<Item = (Range<usize>, Vec<&str>)> {
    text.split_inclusive('\n').scan(0, |at, line| {
        let range = *at..*at + line.trim_end_matches(['\n', '\r']).len();
        *at += line.len();
        Some((range, words(line)))
    })
}

fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while !(rest.is_empty() || words.is_empty() && rest.starts_with('#')) {
        let (word, behind) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
        };
        words.push(word);
        rest = behind.trim_start();
    }
    words
}

pub(super) fn includes(text: &str) -> Vec<Include> {
    let (mut is_host, mut depth, mut root) = (false, 0_usize, None);
    let found = lines(text).filter_map(|(range, words)| {
        let first = words.first()?.to_ascii_lowercase();
        let argument = words.get(1).copied().unwrap_or_default();
        match first.as_str() {
            "<virtualhost" => is_host = true,
            "</virtualhost>" => is_host = false,
            // Within a block it may be left out (`<IfDefine>`), and the value of a variable is not known.
            "serverroot" if depth == 0 && !argument.contains('$') => root = Some(argument.to_owned()),
            _ => {}
        }
        if first.starts_with("</") {
            depth = depth.saturating_sub(1);
        } else if first.starts_with('<') {
            depth += 1;
        }
        let is_include = first == "include" || first == "includeoptional";
        is_include.then(|| Include {
            range,
            pattern: argument.to_owned(),
            root: root.clone(),
            is_optional: first == "includeoptional",
            within: is_host.then(|| HOST.to_owned()),
        })
    });
    found.collect()
}

/// A virtual host, or the directives outside of any.
#[derive(Debug, Default)]
struct Host {
    port: Option<u16>,
    is_tls: bool,
    protocols: Option<Vec<String>>,
}

pub(super) fn adapted(text: &str, folder: &Path) -> Adapted {
    let mut adapted = Adapted::default();
    // For relative paths up to the text's own one, which replaces it.
    let mut head = format!("ServerRoot \"{}\"\n", folder.display());
    for (variable, value) in VARIABLES {
        if text.contains(&format!("${{{variable}}}")) {
            let value = if value.starts_with("www") {
                value.to_owned()
            } else {
                format!("{FOLDER}/{SCRATCH}/{value}")
            };
            let _ = writeln!(head, "Define {variable} \"{}\"", value.trim_end_matches('/'));
        }
    }
    let _ = writeln!(
        head,
        "DefaultRuntimeDir {FOLDER}/{SCRATCH}\nPidFile {FOLDER}/{SCRATCH}/apache.pid\nErrorLog /dev/stderr"
    );
    adapted.edits.push((0..0, head));
    let is_root = geteuid().is_root();
    let (mut hosts, mut inside) = (vec![Host::default()], false);
    let mut taken = BTreeSet::new();
    let mut workers = MAX_REQUEST_WORKERS;
    for (range, words) in lines(text) {
        let Some(first) = words.first().map(|word| word.to_ascii_lowercase()) else { continue };
        let argument = words.get(1).copied().unwrap_or_default();
        match first.as_str() {
            "listen" => {
                if argument.contains('$') {
                    let why = format!("`Listen {argument}` has a variable; write the address itself");
                    adapted.misses(text, range.start, &why);
                } else {
                    listen(range, argument, &words, (&mut hosts, &mut taken), &mut adapted);
                }
            }
            "<virtualhost" => {
                let address = Address::parse(argument.trim_end_matches('>'), 80);
                hosts.push(Host { port: address.as_ref().map(|address| address.port), ..Host::default() });
                inside = true;
                if let Some(address) = address.filter(|address| !address.is_any() && !address.is_loopback()) {
                    let with = format!("<VirtualHost *:{}>", address.port);
                    adapted.replace(
                        range,
                        with,
                        format!("<VirtualHost {argument} at all addresses of the lab"),
                    );
                }
            }
            "</virtualhost>" => inside = false,
            "serverroot" => {
                if let Some(path) = absolute(argument, folder) {
                    adapted.edits.push((range, format!("ServerRoot \"{path}\"")));
                }
            }
            "sslengine" if argument.eq_ignore_ascii_case("on") => host(&mut hosts, inside).is_tls = true,
            "protocols" => {
                let named = words[1..].iter().map(|word| word.to_ascii_lowercase()).collect();
                host(&mut hosts, inside).protocols = Some(named);
            }
            "threadsperchild" | "threadlimit" | "maxrequestworkers" | "maxclients" | "serverlimit"
            | "startservers" => {
                if first.starts_with("max") {
                    workers = argument.parse().unwrap_or(workers);
                }
                adapted.replace(range, "", WORKERS);
            }
            "pidfile" | "errorlog" | "mutex" | "defaultruntimedir" | "scoreboardfile" => {
                adapted.replace(range, "", PROCESS);
            }
            "user" | "group" if !is_root => adapted.replace(range, "", PROCESS),
            "customlog" | "transferlog" => {
                let quoted: Vec<String> = words[2..].iter().map(|word| format!("\"{word}\"")).collect();
                let line = format!("{} {FOLDER}/{SCRATCH}/access.log {}", words[0], quoted.join(" "));
                adapted.replace(range, line, PROCESS);
            }
            "proxypass" | "balancermember" | "proxypassmatch" => upstream(range, &words, &mut adapted),
            _ => {}
        }
    }
    // After the modules, which define these directives.
    let tail = format!(
        "\n<IfModule !mpm_prefork_module>\nThreadLimit {workers}\nThreadsPerChild {workers}\nMaxRequestWorkers \
         {workers}\n</IfModule>\n"
    );
    adapted.edits.push((text.len()..text.len(), tail));
    ports(&hosts, &mut adapted);
    adapted
}

fn host(hosts: &mut [Host], inside: bool) -> &mut Host {
    let at = if inside { hosts.len() - 1 } else { 0 };
    &mut hosts[at]
}

fn listen(
    range: Range<usize>,
    argument: &str,
    words: &[&str],
    (hosts, taken): (&mut [Host], &mut BTreeSet<u16>),
    adapted: &mut Adapted,
) {
    let Some(address) = Address::parse(argument, 80) else { return };
    if !taken.insert(address.port) {
        return adapted.replace(range, "", format!("Listen {argument}: the port is listened at already"));
    }
    if hosts[0].port.is_none() && !words.contains(&"https") {
        hosts[0].port = Some(address.port);
    }
    if !address.is_any() || address.host.is_empty() {
        let line = format!("Listen 0.0.0.0:{}", address.port);
        if address.host.is_empty() {
            adapted.edits.push((range, line));
        } else {
            adapted.replace(range, line, format!("Listen {argument}: at all addresses of the lab"));
        }
    }
}

/// The protocols at each port: a virtual host has those of the server unless it sets its own.
fn ports(hosts: &[Host], adapted: &mut Adapted) {
    let general = hosts[0].protocols.clone().unwrap_or_else(|| vec!["http/1.1".to_owned()]);
    // The directives outside apply if there is no virtual host.
    let outside = if hosts.len() > 1 { &hosts[1..] } else { hosts };
    for host in outside {
        let protocols = host.protocols.as_ref().unwrap_or(&general);
        let speaks = |name: &str| protocols.iter().any(|one| one == name);
        let each = if host.is_tls {
            [(Protocol::H1s, speaks("http/1.1")), (Protocol::H2, speaks("h2"))]
        } else {
            [(Protocol::H1, speaks("http/1.1")), (Protocol::H2c, speaks("h2c"))]
        };
        let spoken = each.into_iter().filter(|(_, is)| *is).map(|(protocol, _)| protocol).collect();
        adapted.spoken.extend(host.port.map(|port| (port, spoken)));
    }
    adapted.settle();
}

fn upstream(range: Range<usize>, words: &[&str], adapted: &mut Adapted) {
    let place = words.iter().position(|word| url(word).is_some_and(|(scheme, ..)| scheme != "balancer"));
    let Some((at, (scheme, host, path))) = place.and_then(|at| Some((at, url(words[at])?))) else { return };
    if host.starts_with("unix") || !["http", "https", "h2", "h2c", "ws", "wss"].contains(&scheme) {
        adapted.notes.insert(format!(
            "{} {}: it is not in the lab, and answers there are errors",
            words[0], words[at]
        ));
        return;
    }
    let is_tls = ["https", "h2", "wss"].contains(&scheme);
    let mut line: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    line[at] = format!("{scheme}://{}{path}", origin(is_tls));
    adapted.replace(
        range,
        line.join(" "),
        format!("{} {}: h2lab's origin stands in for it", words[0], words[at]),
    );
}

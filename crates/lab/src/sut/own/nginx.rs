//! What a lab changes in a configuration of nginx.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use h2lab_model::settings::edit::nginx::{Statement, statements};
use h2lab_model::workload::Protocol;
use rustix::process::geteuid;

use super::super::kind::SCRATCH;
use super::super::nginx::PROGRAM;
use super::{Adapted, Address, Include, absolute, origin, url};

/// Directives whose first argument is the path of a file or a folder.
const PATHS: [&str; 17] = [
    "ssl_certificate",
    "ssl_certificate_key",
    "ssl_dhparam",
    "ssl_trusted_certificate",
    "ssl_client_certificate",
    "ssl_crl",
    "ssl_password_file",
    "ssl_session_ticket_key",
    "auth_basic_user_file",
    "root",
    "alias",
    "proxy_ssl_certificate",
    "proxy_ssl_certificate_key",
    "proxy_ssl_trusted_certificate",
    "grpc_ssl_certificate",
    "grpc_ssl_certificate_key",
    "grpc_ssl_trusted_certificate",
];
/// The first port of those that stand in for sockets in the file system: above all that the kernel chooses.
const FIRST_PORT: u16 = 61_000;
/// Directives about the process, which are replaced by ours.
const PROCESS: [&str; 6] = ["user", "daemon", "master_process", "worker_processes", "pid", "error_log"];

pub(super) fn includes(text: &str) -> Vec<Include> {
    let includes = statements(text).into_iter().filter(|one| one.name() == "include" && !one.is_block);
    let include = |one: Statement<'_>| Include {
        range: one.range.clone(),
        pattern: one.argument(0).to_owned(),
        root: None,
        is_optional: one.argument(0).contains('*'),
        within: one.within.last().map(|block| (*block).to_owned()),
    };
    includes.map(include).collect()
}

pub(super) fn adapted(text: &str, folder: &Path) -> Adapted {
    let statements = statements(text);
    let mut adapted = Adapted::default();
    let user = if geteuid().is_root() { "user root; " } else { "" };
    let head = format!(
        "{user}daemon off; master_process off; worker_processes 1; pid {SCRATCH}/nginx.pid; error_log stderr notice; "
    );
    adapted.edits.push((0..0, head));
    let listeners = Listeners::of(&statements);
    for statement in &statements {
        let range = statement.range.clone();
        let is_main = statement.within.is_empty();
        match statement.name() {
            name if name == "error_log" || (is_main && PROCESS.contains(&name)) => adapted.replace(
                range,
                lines(&text[statement.range.clone()]),
                format!("{}: one process in the foreground, which logs to h2lab", PROCESS.join(", ")),
            ),
            "http" if is_main && statement.is_block => {
                let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
                    .map(|kind| format!(" {kind}_temp_path {SCRATCH}/{kind};"));
                // Without one, nginx logs to its compiled-in path, which may be in a folder of another user.
                let has_log = |one: &Statement<'_>| one.name() == "access_log" && one.within == ["http"];
                let log = if statements.iter().any(has_log) {
                    String::new()
                } else {
                    format!(" access_log {SCRATCH}/access.log;")
                };
                adapted.edits.push((range.end..range.end, temporary.concat() + &log));
            }
            name if name.ends_with("_temp_path") => {
                adapted.replace(range, "", "…_temp_path: in the run folder");
            }
            "proxy_cache_path" => {
                let rest = statement.words[2..].join(" ");
                let path = format!("proxy_cache_path {SCRATCH}/cache {rest};");
                adapted.replace(range, path, "proxy_cache_path: in the run folder");
            }
            "access_log" if statement.argument(0) != "off" => {
                let rest: Vec<&str> = statement.words.iter().skip(2).copied().collect();
                let line = format!("access_log {SCRATCH}/access.log {};", rest.join(" "));
                adapted.replace(range, line, "access_log: in the run folder");
            }
            "listen" => listen(statement, &statements, &listeners, &mut adapted),
            "load_module" => {
                if let Some(path) = module(statement.argument(0), folder) {
                    adapted.edits.push((range, format!("load_module {path};")));
                }
            }
            name if PATHS.contains(&name) => {
                if let Some(path) = absolute(statement.argument(0), folder) {
                    adapted.edits.push((range, format!("{name} \"{path}\";")));
                }
            }
            _ => upstream(statement, &statements, &listeners, &mut adapted),
        }
    }
    adapted.ports.clone_from(&listeners.ports);
    if !listeners.sockets.is_empty() {
        adapted.missed = Some("it speaks HTTP only at sockets in the file system (`unix:`)".to_owned());
    }
    adapted
}

/// As many line breaks as a text has, so that the lines after it keep their numbers.
fn lines(text: &str) -> String {
    "\n".repeat(text.matches('\n').count())
}

/// All listening addresses, and their protocols.
struct Listeners<'a> {
    ports: Vec<(Protocol, u16)>,
    /// Every port at which something listens.
    all: BTreeSet<u16>,
    /// Whether all listening addresses are loopback addresses.
    is_local: bool,
    /// The paths of sockets in the file system at which something listens, and the ports of loopback in their place.
    sockets: BTreeMap<&'a str, u16>,
}

impl<'a> Listeners<'a> {
    fn of(all: &[Statement<'a>]) -> Self {
        let mut found = Adapted::default();
        let (mut ports, mut is_local) = (BTreeSet::new(), true);
        let listens = all.iter().filter(|one| one.name() == "listen" && !one.within.contains(&"stream"));
        let listens: Vec<(&Statement<'a>, Address<'a>)> =
            listens.filter_map(|one| Some((one, address(one)?))).collect();
        let has = |block: Option<usize>, name: &str| {
            let is_on = |one: &&Statement<'_>| one.name() == name && one.argument(0) == "on";
            all.iter().filter(is_on).any(|one| one.block == block || one.within == ["http"])
        };
        for (statement, address) in &listens {
            is_local &= address.is_loopback();
            ports.insert(address.port);
            let says = |word: &str| statement.words.contains(&word);
            let (is_on, is_old) = (has(statement.block, "http2"), says("http2"));
            let spoken: &[Protocol] = match (says("ssl"), is_old, is_on) {
                _ if says("quic") => &[],
                (true, false, false) => &[Protocol::H1s],
                (true, ..) => &[Protocol::H1s, Protocol::H2],
                (false, true, _) => &[Protocol::H2c],
                (false, false, true) => &[Protocol::H1, Protocol::H2c],
                (false, false, false) => &[Protocol::H1],
            };
            // The first address with HTTP/2 is used, and over TLS also its HTTP/1.1.
            if spoken == [Protocol::H1s, Protocol::H2]
                && !found.ports.iter().any(|(one, _)| *one == Protocol::H2)
            {
                found.ports.retain(|(one, _)| *one != Protocol::H1s);
            }
            found.listens(spoken, address.port);
        }
        Self { ports: found.ports, all: ports, is_local, sockets: sockets(all) }
    }
}

/// Sockets in the file system would be made on the host, which a live service may use: each has a port of loopback in
/// its place.
fn sockets<'a>(all: &[Statement<'a>]) -> BTreeMap<&'a str, u16> {
    let listens: Vec<&'a str> =
        all.iter().filter(|one| one.name() == "listen").filter_map(|one| one.words.get(1).copied()).collect();
    let taken: BTreeSet<u16> =
        listens.iter().filter_map(|text| Some(Address::parse(text, 80)?.port)).collect();
    let paths: BTreeSet<&str> = listens.into_iter().filter_map(|text| text.strip_prefix("unix:")).collect();
    paths.into_iter().zip((FIRST_PORT..=u16::MAX).filter(|port| !taken.contains(port))).collect()
}

/// The parts of an address such as `http://unix:/run/a:/x`: what is before `unix:`, the path of the socket, and the path
/// of the URL.
fn socket(target: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = target.split_once("unix:")?;
    let (path, behind) = rest.split_once(':').unwrap_or((rest, ""));
    Some((before, path, behind))
}

/// The words of a statement behind the first argument, each with a space before it.
fn rest(statement: &Statement<'_>, is_kept: fn(&str) -> bool) -> String {
    let words = statement.words.iter().skip(2).filter(|word| is_kept(word));
    words.map(|word| format!(" {word}")).collect::<Vec<_>>().concat()
}

fn address<'a>(statement: &Statement<'a>) -> Option<Address<'a>> {
    let text = statement.words.get(1).copied()?;
    if text.starts_with("unix:") { None } else { Address::parse(text, 80) }
}

/// An address of the user's machine becomes one of the lab's; loopback stays if there are other addresses.
fn listen(
    statement: &Statement<'_>,
    all: &[Statement<'_>],
    listeners: &Listeners<'_>,
    adapted: &mut Adapted,
) {
    let path = statement.argument(0).strip_prefix("unix:");
    if let Some(port) = path.and_then(|path| listeners.sockets.get(path)) {
        let with = format!("listen 127.0.0.1:{port}{};", rest(statement, |_| true));
        let what = format!("listen {}: at 127.0.0.1:{port} of the lab", statement.argument(0));
        return adapted.replace(statement.range.clone(), with, what);
    }
    let Some(address) = address(statement) else { return };
    if address.is_any() || (address.is_loopback() && !listeners.is_local) {
        return;
    }
    let rest = rest(statement, |word| !word.starts_with("ipv6only"));
    // nginx accepts an address only once in a server.
    let is_same = |one: &&Statement<'_>| {
        one.name() == "listen" && one.block == statement.block && one.range.start != statement.range.start
    };
    let is_double = address.host.starts_with('[')
        && all.iter().filter(is_same).filter_map(self::address).any(|other| other.port == address.port);
    let (with, what) = if is_double {
        (String::new(), "the lab has IPv4")
    } else {
        (format!("listen {}{rest};", address.port), "at all addresses of the lab")
    };
    adapted.replace(statement.range.clone(), with, format!("listen {}: {what}", statement.argument(0)));
}

/// The file of a module: beside the configuration, or in nginx's compiled-in folder.
fn module(path: &str, folder: &Path) -> Option<String> {
    let beside = absolute(path, folder)?;
    if Path::new(&beside).exists() {
        return Some(beside);
    }
    let built = Command::new(PROGRAM.find().ok()?).arg("-V").output().ok()?;
    let built = String::from_utf8_lossy(&built.stderr).into_owned();
    let prefix = built.split_whitespace().find_map(|word| word.strip_prefix("--prefix="))?;
    absolute(path, Path::new(prefix))
}

/// Servers that do not exist in the lab are replaced by our origin.
fn upstream(
    statement: &Statement<'_>,
    all: &[Statement<'_>],
    listeners: &Listeners<'_>,
    adapted: &mut Adapted,
) {
    let name = statement.name();
    let target = statement.argument(0);
    let is_server = name == "server" && statement.within.last() == Some(&"upstream");
    if (is_server || ["proxy_pass", "grpc_pass"].contains(&name))
        && let Some((before, path, behind)) = socket(target)
        && let Some(port) = listeners.sockets.get(path)
    {
        let with = format!("{name} {before}127.0.0.1:{port}{behind}{};", rest(statement, |_| true));
        adapted.edits.push((statement.range.clone(), with));
        return;
    }
    let is_here = |host: &str| {
        Address::parse(host, 80).is_some_and(|at| at.is_loopback() && listeners.all.contains(&at.port))
    };
    let is_block = |host: &str| {
        let named = |one: &Statement<'_>| one.is_block && one.name() == "upstream" && one.argument(0) == host;
        all.iter().any(named)
    };
    match name {
        "server" if is_server && !is_here(target) => {
            let head = statement.block.and_then(|at| all.get(at)).map_or("", |head| head.argument(0));
            let is_tls = all.iter().any(|one| {
                one.name().ends_with("_pass")
                    && url(one.argument(0))
                        .is_some_and(|(scheme, host, _)| host == head && scheme.ends_with('s'))
            });
            let with = format!("server {}{};", origin(is_tls), rest(statement, |word| word != "resolve"));
            adapted.replace(
                statement.range.clone(),
                with,
                format!("upstream {target}: h2lab's origin stands in for it"),
            );
        }
        "proxy_pass" | "grpc_pass" if !statement.within.contains(&"stream") => {
            let plain = if name == "grpc_pass" { "grpc" } else { "http" };
            let (scheme, host, path) = url(target).unwrap_or((plain, target, ""));
            // Here, the path of the socket is in place of a host.
            let path = match socket(target) {
                Some((.., behind)) if host.starts_with("unix:") => behind,
                _ => path,
            };
            if is_here(host) || is_block(host) {
                return;
            }
            // A variable may stand for the whole address.
            let is_variable = host.contains('$') || scheme.contains('$');
            let (scheme, path) = if is_variable { ("http", "") } else { (scheme, path) };
            let with = format!("{name} {scheme}://{}{path};", origin(scheme.ends_with('s')));
            adapted.replace(
                statement.range.clone(),
                with,
                format!("{name} {target}: h2lab's origin stands in for it"),
            );
        }
        "fastcgi_pass" | "uwsgi_pass" | "scgi_pass" => {
            let with = format!("proxy_pass http://{};", origin(false));
            let what = format!("{name} {target}: h2lab's origin stands in for it, over HTTP/1.1");
            adapted.replace(statement.range.clone(), with, what);
        }
        "proxy_ssl_verify" | "grpc_ssl_verify" if target == "on" => {
            adapted.replace(statement.range.clone(), format!("{name} off;"), format!("{name}: off"));
        }
        _ => {}
    }
}

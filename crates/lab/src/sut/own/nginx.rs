//! What a lab changes in a configuration of nginx.

use std::collections::BTreeSet;
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
/// Directives about the process, which are replaced by ours.
const PROCESS: [&str; 6] = ["user", "daemon", "master_process", "worker_processes", "pid", "error_log"];

pub(super) fn includes(text: &str) -> Vec<Include> {
    let includes = statements(text).into_iter().filter(|one| one.name() == "include" && !one.is_block);
    let include = |one: Statement<'_>| Include {
        range: one.range.clone(),
        pattern: one.argument(0).to_owned(),
        is_optional: false,
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
    adapted
}

/// As many line breaks as a text has, so that the lines after it keep their numbers.
fn lines(text: &str) -> String {
    "\n".repeat(text.matches('\n').count())
}

/// All listening addresses, and their protocols.
struct Listeners {
    ports: Vec<(Protocol, u16)>,
    /// Every port at which something listens.
    all: BTreeSet<u16>,
    /// Whether all listening addresses are loopback addresses.
    is_local: bool,
}

impl Listeners {
    fn of(all: &[Statement<'_>]) -> Self {
        let mut found = Adapted::default();
        let (mut ports, mut is_local) = (BTreeSet::new(), true);
        let listens = all.iter().filter(|one| one.name() == "listen" && !one.within.contains(&"stream"));
        let listens: Vec<(&Statement<'_>, Address<'_>)> =
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
        Self { ports: found.ports, all: ports, is_local }
    }
}

fn address<'a>(statement: &Statement<'a>) -> Option<Address<'a>> {
    let text = statement.words.get(1).copied()?;
    if text.starts_with("unix:") { None } else { Address::parse(text, 80) }
}

/// An address of the user's machine becomes one of the lab's; loopback stays if there are other addresses.
fn listen(statement: &Statement<'_>, all: &[Statement<'_>], listeners: &Listeners, adapted: &mut Adapted) {
    let Some(address) = address(statement) else { return };
    if address.is_any() || (address.is_loopback() && !listeners.is_local) {
        return;
    }
    let rest = statement.words[2..].iter().filter(|word| !word.starts_with("ipv6only"));
    let rest = rest.map(|word| format!(" {word}")).collect::<Vec<_>>().concat();
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
fn upstream(statement: &Statement<'_>, all: &[Statement<'_>], listeners: &Listeners, adapted: &mut Adapted) {
    let name = statement.name();
    let target = statement.argument(0);
    let is_here = |host: &str| {
        host.starts_with("unix:")
            || Address::parse(host, 80).is_some_and(|at| at.is_loopback() && listeners.all.contains(&at.port))
    };
    let is_block = |host: &str| {
        let named = |one: &Statement<'_>| one.is_block && one.name() == "upstream" && one.argument(0) == host;
        all.iter().any(named)
    };
    match name {
        "server" if statement.within.last() == Some(&"upstream") && !is_here(target) => {
            let head = statement.block.and_then(|at| all.get(at)).map_or("", |head| head.argument(0));
            let is_tls = all.iter().any(|one| {
                one.name().ends_with("_pass")
                    && url(one.argument(0))
                        .is_some_and(|(scheme, host, _)| host == head && scheme.ends_with('s'))
            });
            let rest = statement.words.iter().skip(2).filter(|word| **word != "resolve");
            let rest = rest.map(|word| format!(" {word}")).collect::<Vec<_>>().concat();
            let with = format!("server {}{rest};", origin(is_tls));
            adapted.replace(
                statement.range.clone(),
                with,
                format!("upstream {target}: h2lab's origin stands in for it"),
            );
        }
        "proxy_pass" | "grpc_pass" if !statement.within.contains(&"stream") => {
            let (scheme, host, path) = url(target).unwrap_or(("http", target, ""));
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

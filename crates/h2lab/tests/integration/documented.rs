//! The commands of README.md and docs/: each is run as it is written, in a network of its own with the servers of the
//! examples. `tests/documented.toml` lists those that cannot be run, each with its reason.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde::Deserialize;

use crate::support::{DEADLINE, binary, folder, is_root, need, run_program, run_program_for, workspace};

/// A row of `tests/documented.toml`.
#[derive(Debug, Deserialize)]
struct Exception {
    command: String,
    why: String,
    run: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Exceptions {
    exception: Vec<Exception>,
}

fn exceptions() -> Vec<Exception> {
    let text = include_str!("../documented.toml");
    toml::from_str::<Exceptions>(text).expect("tests/documented.toml is well-formed").exception
}

/// The commands in the code blocks of these documents, each once, without comments.
fn commands() -> BTreeSet<String> {
    let mut paths = vec![workspace().join("README.md")];
    let pages = fs::read_dir(workspace().join("docs")).expect("the folder is there");
    paths.extend(pages.map(|page| page.expect("it can be read").path()));
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "md"));
    paths.iter().flat_map(|path| of_page(&fs::read_to_string(path).expect("a page is text"))).collect()
}

fn of_page(text: &str) -> Vec<String> {
    let joined = text.replace("\\\n", " ");
    let mut found = Vec::new();
    let mut is_code = false;
    for line in joined.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
        } else if is_code {
            let line = line.strip_prefix("$ ").unwrap_or(line);
            let is_command = ["h2lab ", "cargo "].iter().any(|program| line.starts_with(program));
            found.extend(is_command.then(|| without_comment(line)));
        }
    }
    found
}

/// A line up to ` #` outside of quotes, with single spaces.
fn without_comment(line: &str) -> String {
    let mut quoted = false;
    let mut end = line.len();
    for (at, c) in line.char_indices() {
        match c {
            '\'' => quoted = !quoted,
            '#' if !quoted && line[..at].ends_with(' ') => {
                end = at;
                break;
            }
            _ => {}
        }
    }
    line[..end].split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Makes a network of its own, starts the servers of the examples, and runs the `$2` files `N.sh` of the folder `$1`, each for at most
/// `$3` seconds and in a folder of its own, three at a time. `codes` has the exit code of each; what failed is run once more, by itself:
/// on a machine that stops for a second no response may come within the time of a short cell. The last code counts.
const WORLD: &str = r#"
set -eu
limit=$3
cd "$1"
ip link set lo up
mount --bind hosts /etc/hosts
serve() { "$@" >>servers.log 2>&1 </dev/null & }
tls="--cert server.pem --key server.key"
serve h2lab origin --listen 127.0.0.1:8080 --tls-listen 127.0.0.1:443 $tls
serve h2lab origin --listen 127.0.0.1:8081 --tls-listen 127.0.0.1:8443 --h3 $tls
serve h2lab bulk serve files --tls-listen 127.0.0.2:443 $tls
serve h2lab bulk serve --memory --listen 127.0.0.3:9090
serve h2lab bulk serve --listen 127.0.0.1:9090 --writable uploads
for address in 127.0.0.1/8080 127.0.0.1/443 127.0.0.1/8081 127.0.0.1/8443 127.0.0.2/443 127.0.0.3/9090 127.0.0.1/9090; do
    until (: <"/dev/tcp/$address") 2>/dev/null; do :; done
done
run() {
    rm -rf "$1"
    mkdir "$1"
    cp files/data.tar "$1"
    code=0
    (cd "$1" && timeout --kill-after=10 "$limit" sh "../$1.sh" >"../$1.log" 2>&1 </dev/null) || code=$?
    echo "$1 $code" >>codes
}
lanes=
for lane in 0 1 2; do
    (for ((k = lane; k < $2; k += 3)); do run $k; done) &
    lanes="$lanes $!"
done
wait $lanes
for failed in $(awk '$2 != 0 && $2 != 5 { print $1 }' codes); do
    mv "$failed.log" "$failed.first.log"
    run "$failed"
done
"#;

/// The names of the examples, and where they are.
const HOSTS: &str =
    "127.0.0.1 localhost service.example service\n127.0.0.2 files.example\n127.0.0.3 server\n";

/// Makes an authority (`ca.pem`), and the certificate of servers with these names or addresses (`server.pem`, `server.key`).
pub fn certify(folder: &Path, names: &[&str]) {
    let mut parameters = rcgen::CertificateParams::default();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    parameters.distinguished_name.push(rcgen::DnType::CommonName, "examples");
    let key = rcgen::KeyPair::generate().expect("a key");
    let authority = rcgen::CertifiedIssuer::self_signed(parameters, key).expect("an authority");
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let key = rcgen::KeyPair::generate().expect("a key");
    let parameters = rcgen::CertificateParams::new(names).expect("valid names");
    let certificate = parameters.signed_by(&key, &authority).expect("a certificate");
    for (name, text) in
        [("ca.pem", authority.pem()), ("server.pem", certificate.pem()), ("server.key", key.serialize_pem())]
    {
        fs::write(folder.join(name), text).expect("a temporary folder");
    }
}

#[test]
fn every_exception_is_of_a_documented_command_and_has_a_reason() {
    let commands = commands();
    for exception in exceptions() {
        assert!(commands.contains(&exception.command), "no page has `{}`", exception.command);
        assert!(exception.why.len() > 5, "{}", exception.command);
    }
}

#[test]
fn comments_are_left_out_and_lines_that_go_on_are_joined() {
    let page = "h2lab no\n```sh\nh2lab a '#b'   # c\n$ h2lab d \\\n    --e\nother\n```\nh2lab no\n";
    assert_eq!(of_page(page), ["h2lab a '#b'", "h2lab d --e"]);
}

#[test]
fn the_book_is_built_without_a_warning() {
    let Some(mdbook) = need("mdbook") else { return };
    let folder = folder();
    let docs = workspace().join("docs").display().to_string();
    let book = folder.path().join("book").display().to_string();
    let finished = run_program(&mdbook, folder.path(), &["build", &docs, "--dest-dir", &book]);
    assert_eq!(finished.code, Some(0), "{}", finished.transcript());
    let is_warned = ["WARN", "ERROR"].iter().any(|word| finished.transcript().contains(word));
    assert!(!is_warned, "{}", finished.transcript());
    assert!(folder.path().join("book/compare.html").is_file());
}

#[test]
fn every_documented_command_does_what_it_says() {
    let programs = ["ip", "curl", "nginx", "haproxy", "envoy", "iperf3"];
    let Some(programs) = programs.iter().map(|name| need(name)).collect::<Option<Vec<_>>>() else { return };
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    for name in ["bin", "files", "uploads"] {
        fs::create_dir(at(name)).expect("a temporary folder");
    }
    symlink(binary(), at("bin/h2lab")).expect("a temporary folder");
    fs::write(at("files/data.tar"), vec![7; 3 << 20]).expect("a temporary folder");
    fs::write(at("hosts"), HOSTS).expect("a temporary folder");
    certify(folder.path(), &["service.example", "files.example", "localhost"]);
    let exceptions = exceptions();
    let mut run = Vec::new();
    for command in commands() {
        let exception = exceptions.iter().find(|exception| exception.command == command);
        run.extend(exception.map_or(Some(command), |exception| exception.run.clone()));
    }
    for (k, command) in run.iter().enumerate() {
        fs::write(at(&format!("{k}.sh")), format!("{command}\n")).expect("a temporary folder");
    }
    // With another HOME, programs below the user's are found only by PATH.
    let places: BTreeSet<_> = programs.iter().filter_map(|program| program.parent()).collect();
    let places = places
        .iter()
        .fold(at("bin").display().to_string(), |path, place| format!("{path}:{}", place.display()));
    let path = format!("PATH={places}:{}", std::env::var("PATH").unwrap_or_default());
    let trust = format!("SSL_CERT_FILE={}", at("ca.pem").display());
    let home = format!("HOME={}", folder.path().display());
    let place = folder.path().display().to_string();
    let mut words = vec![path.as_str(), trust.as_str(), home.as_str(), "SHELL=/bin/bash", "unshare"];
    words.extend((!is_root()).then_some("--map-root-user"));
    words.extend(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    let count = run.len().to_string();
    let limit = DEADLINE.as_secs().to_string();
    words.extend(["bash", "-c", WORLD, "bash", &place, &count, &limit]);
    // Some hundred commands, three at a time and beside all other tests. Twelve cells, or a diagnosis with its rounds, took more than
    // 100 s beside 40 busy loops on two CPUs.
    let finished = run_program_for(4 * DEADLINE, Path::new("env"), folder.path(), &words);
    let codes = fs::read_to_string(at("codes")).unwrap_or_default();
    let codes: BTreeMap<&str, &str> = codes.lines().filter_map(|line| line.split_once(' ')).collect();
    assert_eq!(codes.len(), run.len(), "{}", finished.transcript());
    let mut wrong = String::new();
    for (name, code) in codes {
        let command = &run[name.parse::<usize>().expect("a number")];
        // 5: the machine was too busy for figures; 1: what a command that may fail decided.
        let is_right = matches!(code, "0" | "5") || (code == "1" && command.contains("--fail"));
        if !is_right {
            let first = last_lines(&at(&format!("{name}.first.log")));
            let again = last_lines(&at(&format!("{name}.log")));
            let _ = writeln!(wrong, "`{command}` ended with {code}: {again}\nand before: {first}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}of the servers: {}", last_lines(&at("servers.log")));
}

fn last_lines(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

//! Connections that netfilter rules redirect to the sidecar, in network namespaces of the test's own: callers and
//! servers are not configured for it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use h2lab_net::process::Child;
use tempfile::TempDir;

use crate::origin::Origin;
use crate::sidecar::Sidecar;
use crate::sidecar_reload::until;
use crate::support::{DEADLINE, binary, folder, is_root, need};

/// A network namespace, which exists as long as a process in it.
struct Namespace {
    holder: Child,
}

impl Namespace {
    /// A new namespace: inside another one, which may be a plain user's.
    fn new(within: Option<&Self>) -> Self {
        let mut command = within.map_or_else(|| Command::new("unshare"), |other| other.command("unshare"));
        if within.is_none() && !is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--net", "sh", "-c", "ip link set lo up && echo ready && exec sleep infinity"]);
        let holder = Child::spawn(command, None).expect("unshare starts");
        let ready = holder.wait_for_line(DEADLINE, |line| (line == "ready").then_some(()));
        ready.unwrap_or_else(|error| panic!("{error}: {}", holder.log()));
        Self { holder }
    }

    fn pid(&self) -> String {
        self.holder.pid().as_raw_nonzero().to_string()
    }

    /// A command that runs in the namespace.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.pid(), "--net"]);
        if !is_root() {
            command.args(["--user", "--preserve-credentials"]);
        }
        // A plain user's PATH lacks the folders that contain `nft`.
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
        command.arg("--").arg(program);
        command
    }

    /// The output of a command that must succeed.
    fn run(&self, program: &str, arguments: &[&str]) -> String {
        let (told, is_well) = self.attempt(program, arguments);
        assert!(is_well, "{program} {arguments:?}: {told}");
        told
    }

    /// The output of a command, and whether it succeeds.
    fn attempt(&self, program: &str, arguments: &[&str]) -> (String, bool) {
        let output = self.command(program).args(arguments).output().expect("nsenter starts");
        let told = [output.stdout, output.stderr].concat();
        (String::from_utf8_lossy(&told).into_owned(), output.status.success())
    }

    /// The output of curl, with its heads.
    fn curl(&self, arguments: &[&str]) -> (String, bool) {
        self.attempt("curl", &[&["-sSik", "--noproxy", "*", "--max-time", "120"], arguments].concat())
    }
}

/// A caller's machine and a server's, with a wire between them.
struct Pair {
    caller: Namespace,
    server: Namespace,
    folder: TempDir,
}

/// The server's addresses; the caller's end in 1.
const SERVER: &str = "10.99.0.2";
const SERVER_6: &str = "fd99::2";

impl Pair {
    fn new() -> Option<Self> {
        // unshare and nsenter come with setpriv.
        for program in ["nft", "ip", "setpriv", "curl"] {
            need(program)?;
        }
        let caller = Namespace::new(None);
        let server = Namespace::new(Some(&caller));
        let pid = server.pid();
        caller.run("ip", &["link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", &pid]);
        for (machine, end) in [(&caller, 1), (&server, 2)] {
            machine.run("ip", &["address", "add", &format!("10.99.0.{end}/24"), "dev", "wire"]);
            machine.run("ip", &["address", "add", &format!("fd99::{end}/64"), "dev", "wire", "nodad"]);
            machine.run("ip", &["link", "set", "wire", "up"]);
        }
        Some(Self { caller, server, folder: folder() })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Our origin at the server: in clear on port 8080, with TLS on 8443.
    fn origin(&self) -> Origin {
        let mut command = self.server.command(binary());
        command.args(["origin", "--listen", "[::]:8080", "--tls-listen", "[::]:8443"]);
        Origin::run(command)
    }

    /// A sidecar in that namespace whose log has this name.
    fn sidecar(&self, at: &Namespace, name: &str, config: &str) -> Sidecar {
        let path = self.file(&format!("{name}.toml"));
        fs::write(&path, format!("mark = 21\n{config}\n[log]\nfile = '{name}.log'\n")).expect("a file");
        let mut command = at.command(binary());
        command.arg("sidecar").arg("--config").arg(&path);
        Sidecar::run(command)
    }

    /// Applies the rules that a sidecar prints for its file, as its user would.
    fn apply(&self, at: &Namespace, name: &str) {
        let config = self.file(&format!("{name}.toml"));
        let binary = binary();
        let arguments = ["sidecar", "--config", path(&config), "--print-nft"];
        let output = at.command(&binary).args(arguments).output().expect("nsenter starts");
        let rules = String::from_utf8_lossy(&output.stdout).into_owned();
        let file = self.file(&format!("{name}.nft"));
        fs::write(&file, &rules).expect("a file");
        // Twice: the rules replace existing ones.
        at.run("nft", &["-f", path(&file)]);
        at.run("nft", &["-f", path(&file)]);
        for line in rules.lines().filter_map(|line| line.strip_prefix("#   ")) {
            let words: Vec<&str> = line.split(' ').collect();
            at.run(words[0], &words[1..]);
        }
    }

    fn log(&self, name: &str) -> String {
        fs::read_to_string(self.file(&format!("{name}.log"))).expect("it was written")
    }
}

fn path(path: &Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}

/// A listener; it waits long enough for first bytes on any machine.
fn listen(address: &str, by: &str, more: &str) -> String {
    format!("[[listen]]\naddress = '{address}'\ntransparent = '{by}'\ndetect = '120s'\n{more}\n")
}

/// Whether a line of a log contains all of these words.
fn has_line(log: &str, words: &[&str]) -> bool {
    log.lines().any(|line| words.iter().all(|word| line.contains(word)))
}

/// curl → rules → sidecar → rules → sidecar → origin, with both kinds of rules.
fn both_ends_are_intercepted(by: &str) {
    let Some(pair) = Pair::new() else { return };
    let origin = pair.origin();
    let out =
        listen("127.0.0.1:15001", by, "protocol = 'h2c'") + &listen("[::1]:15001", by, "protocol = 'h2c'");
    let egress = pair.sidecar(&pair.caller, "egress", &out);
    let ingress = pair.sidecar(&pair.server, "ingress", &listen("[::]:15006", by, "protocol = 'http'"));
    pair.apply(&pair.caller, "egress");
    pair.apply(&pair.server, "ingress");
    for host in [SERVER.to_owned(), format!("[{SERVER_6}]")] {
        for version in ["--http1.1", "--http2-prior-knowledge"] {
            let (told, is_well) = pair.caller.curl(&[version, &format!("http://{host}:8080/bytes/1000")]);
            assert!(is_well && told.lines().next().is_some_and(|line| line.contains(" 200")), "{told}");
            assert!(told.to_lowercase().contains("via: 1.1 h2lab, 2 h2lab"), "{told}");
        }
        // What is not HTTP passes unchanged, through both.
        let (told, is_well) = pair.caller.curl(&[&format!("https://{host}:8443/bytes/1000")]);
        assert!(is_well && told.contains(" 200") && !told.to_lowercase().contains("via:"), "{told}");
    }
    assert!(egress.stop().contains("; none failed"));
    assert!(ingress.stop().contains("; none failed"));
    let (egress, ingress) = (pair.log("egress"), pair.log("ingress"));
    for (host, from) in [(SERVER.to_owned(), "10.99.0.1"), (format!("[{SERVER_6}]"), "fd99::1")] {
        let asked = format!("\"GET {host}:8080 /bytes/1000 HTTP/1.1\" 200");
        assert!(has_line(&egress, &[&asked, &format!(" original h2c://{host}:8080#")]), "{egress}");
        let asked = format!("{from} \"GET {host}:8080 /bytes/1000 HTTP/2");
        assert!(has_line(&ingress, &[&asked, &format!(" original http://{host}:8080#")]), "{ingress}");
        for log in [&egress, &ingress] {
            let tunnel = format!("\"CONNECT {host}:8443 ");
            assert!(has_line(log, &[&tunnel, &format!(" original tcp://{host}:8443#")]), "{log}");
        }
    }
    drop(origin);
}

#[test]
fn callers_and_servers_need_no_change_where_rules_redirect_their_connections() {
    both_ends_are_intercepted("redirect");
}

#[test]
fn callers_and_servers_need_no_change_where_rules_hand_their_connections_over() {
    both_ends_are_intercepted("tproxy");
}

#[test]
fn routes_and_known_instances_go_before_the_destination() {
    let Some(pair) = Pair::new() else { return };
    let _origin = pair.origin();
    let config =
        listen("127.0.0.1:15001", "redirect", "route = [{ host = 'elsewhere.test', service = 'elsewhere' }]")
            + &format!("[service.known]\ninstances = ['h2c://{SERVER}:8080']\n")
            + &format!("[service.elsewhere]\ninstances = ['http://[{SERVER_6}]:8080']\n")
            + "[service.original.timeouts]\nconnect = '60s'\n";
    let sidecar = pair.sidecar(&pair.caller, "egress", &config);
    pair.apply(&pair.caller, "egress");
    let url = format!("http://{SERVER}:8080/bytes/10");
    for more in [&["-H", "host: a.test"][..], &["-H", "host: elsewhere.test"]] {
        let (told, is_well) = pair.caller.curl(&[&[&*url], more].concat());
        assert!(is_well && told.starts_with("HTTP/1.1 200 "), "{told}");
    }
    // Nobody listens there: the caller gets an answer at once, which names the service.
    let (told, _) = pair.caller.curl(&[&format!("http://{SERVER}:9/")]);
    assert!(told.starts_with("HTTP/1.1 502 ") && told.contains("service original"), "{told}");
    // Nobody listens here either, and the caller's protocol has no error message for it.
    let (told, is_well) = pair.caller.curl(&[&format!("https://{SERVER}:9/")]);
    assert!(!is_well && !told.contains("HTTP/"), "{told}");
    sidecar.stop();
    let log = pair.log("egress");
    assert!(has_line(&log, &["a.test /bytes/10", &format!(" known h2c://{SERVER}:8080#")]), "{log}");
    let elsewhere = format!(" elsewhere http://[{SERVER_6}]:8080#");
    assert!(has_line(&log, &["elsewhere.test /bytes/10", &elsewhere]), "{log}");
}

#[test]
fn nothing_goes_round_for_ever() {
    let Some(pair) = Pair::new() else { return };
    let _origin = pair.origin();
    let sidecar = pair.sidecar(&pair.caller, "egress", &listen("127.0.0.1:15001", "redirect", ""));
    // A connection made to the listener itself.
    let (told, _) = pair.caller.curl(&["http://127.0.0.1:15001/"]);
    assert!(told.starts_with("HTTP/1.1 421 ") && told.contains("only redirected connections"), "{told}");
    let (told, is_well) = pair.caller.curl(&["https://127.0.0.1:15001/"]);
    assert!(!is_well && !told.contains("HTTP/"), "{told}");
    // Rules without an exemption: the sidecar's own connections come back to it.
    let rules = "table inet t { chain output { type nat hook output priority -100; policy accept; \
                 fib daddr type local return; tcp dport 8080 redirect to :15001; }; }";
    pair.caller.run("nft", &[rules]);
    let (told, _) = pair.caller.curl(&[&format!("http://{SERVER}:8080/")]);
    assert!(told.starts_with("HTTP/1.1 502 "), "{told}");
    for words in
        [&*format!("to {SERVER}:8080 was opened by this sidecar itself"), "was made to the listener itself"]
    {
        let said = sidecar.child.wait_for_line(DEADLINE, |line| line.contains(words).then_some(()));
        said.unwrap_or_else(|error| panic!("{words}: {error}: {}", sidecar.child.log()));
    }
    sidecar.stop();
}

/// A server that sends a greeting, answers, shuts down its sending side, and waits for a last message.
const GREETS: &str = "import socket, sys\n\
    s = socket.create_server(('0.0.0.0', 2525)); print('ready', flush=True)\n\
    while True:\n    c, _ = s.accept(); c.sendall(b'220 hello\\n'); d = c.recv(99); c.sendall(b'got ' + d); \
    c.shutdown(socket.SHUT_WR); print('then', c.recv(99), flush=True)";

/// Its client; on another port it sends first.
const CLIENT: &str = "import socket, sys\n\
    c = socket.create_connection((sys.argv[1], int(sys.argv[2]))); f = c.makefile('rwb')\n\
    if sys.argv[2] == '2526': f.write(b'EHLO a\\r\\n'); f.flush()\n\
    print(f.readline())\n\
    if sys.argv[2] == '2525': f.write(b'EHLO a\\r\\n'); f.flush()\n\
    print(f.read()); f.write(b'bye'); f.flush()";

#[test]
fn a_server_that_speaks_first_is_heard_and_what_is_no_http_may_be_refused() {
    let Some(pair) = Pair::new() else { return };
    let Some(_) = need("python3") else { return };
    let mut command = pair.server.command("python3");
    command.args(["-u", "-c", GREETS]);
    let server = Child::spawn(command, None).expect("it starts");
    let ready = server.wait_for_line(DEADLINE, |line| (line == "ready").then_some(()));
    ready.unwrap_or_else(|error| panic!("{error}: {}", server.log()));
    // However slow this machine is meanwhile, the client waits for the greeting, and sends something only then.
    let config = "[[listen]]\naddress = '127.0.0.1:15001'\ntransparent = 'redirect'\ndetect = '50ms'\n"
        .to_owned()
        + &listen("127.0.0.1:15002", "redirect", "other = 'refuse'\nports = [2526]");
    let sidecar = pair.sidecar(&pair.caller, "egress", &config);
    // The second listener's port is more specific.
    let rules = "table inet t { chain output { type nat hook output priority -100; policy accept; meta mark 21 return; \
                 fib daddr type local return; tcp dport 2526 redirect to :15002; meta l4proto tcp redirect to :15001; }; }";
    pair.caller.run("nft", &[rules]);
    let told = pair.caller.run("python3", &["-c", CLIENT, SERVER, "2525"]);
    assert!(told.contains("220 hello") && told.contains("got EHLO a"), "{told}");
    let then = server.wait_for_line(DEADLINE, |line| line.strip_prefix("then ").map(str::to_owned));
    assert_eq!(then.unwrap_or_else(|error| panic!("{error}: {}", server.log())), "b'bye'");
    let (told, _) = pair.caller.attempt("python3", &["-c", CLIENT, SERVER, "2526"]);
    assert!(!told.contains("220") && !told.contains("got"), "{told}");
    let words = format!("to {SERVER}:2526 is not HTTP and was refused");
    until(|| sidecar.child.log().contains(&words), || sidecar.child.log());
    sidecar.stop();
}

/// Connects to an address and port, reports that, and makes a request once the file is there.
const ASKS_LATER: &str = "import os, socket, sys, time\n\
    c = socket.create_connection((sys.argv[1], int(sys.argv[2]))); print('connected', flush=True)\n\
    while not os.path.exists(sys.argv[3]): time.sleep(0.01)\n\
    c.sendall(b'GET /bytes/10 HTTP/1.1\\r\\nhost: a\\r\\nconnection: close\\r\\n\\r\\n'); print('told', c.recv(12), flush=True)";

/// A server that takes a connection, says something, and resets it.
const RESETS: &str = "import socket, struct\n\
    s = socket.create_server(('0.0.0.0', 2527)); print('ready', flush=True)\n\
    while True:\n    c, _ = s.accept(); c.sendall(b'half'); c.recv(99); \
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0)); c.close()";

/// Its client prints how its connection ends.
const HOW_IT_ENDS: &str = "import socket, sys\n\
    c = socket.create_connection((sys.argv[1], int(sys.argv[2]))); c.sendall(b'HELO\\r\\n')\n\
    try:\n        while c.recv(99): pass\n        print('complete')\n\
    except ConnectionResetError: print('reset')";

#[test]
fn rules_leave_alone_what_comes_to_this_machine_and_what_is_older() {
    let Some(pair) = Pair::new() else { return };
    let Some(_) = need("python3") else { return };
    let _origin = pair.origin();
    for by in ["tproxy", "redirect"] {
        let own = {
            let mut command = pair.caller.command(binary());
            command.args(["origin", "--listen", "[::]:8082", "--tls-listen", "[::]:8445"]);
            Origin::run(command)
        };
        let sidecar = pair.sidecar(&pair.caller, by, &listen("127.0.0.1:15001", by, ""));
        let file = pair.file(&format!("{by}.now"));
        let mut command = pair.caller.command("python3");
        command.args(["-u", "-c", ASKS_LATER, SERVER, "8080", path(&file)]);
        let older = Child::spawn(command, None).expect("it starts");
        let connected = older.wait_for_line(DEADLINE, |line| (line == "connected").then_some(()));
        connected.unwrap_or_else(|error| panic!("{error}: {}", older.log()));
        pair.apply(&pair.caller, by);
        fs::write(&file, "").expect("a file");
        let told = older.wait_for_line(DEADLINE, |line| line.strip_prefix("told ").map(str::to_owned));
        assert_eq!(told.unwrap_or_else(|error| panic!("{by} {error}: {}", older.log())), "b'HTTP/1.1 200'");
        // A server on this machine that has nothing to do with the sidecar answers as before.
        let (told, _) = pair.server.curl(&["http://10.99.0.1:8082/bytes/10"]);
        assert!(told.starts_with("HTTP/1.1 200 ") && !told.contains("via:"), "{by} {told}");
        let (told, _) = pair.caller.curl(&[&format!("http://{SERVER}:8080/bytes/10")]);
        assert!(told.to_lowercase().contains("via: 1.1 h2lab"), "what is newer is taken: {by} {told}");
        pair.caller.run("nft", &["delete", "table", "inet", "h2lab_sidecar"]);
        sidecar.stop();
        drop(own);
    }
}

#[test]
fn a_tunnel_whose_server_resets_it_or_is_not_there_is_reset() {
    let Some(pair) = Pair::new() else { return };
    let Some(_) = need("python3") else { return };
    let mut command = pair.server.command("python3");
    command.args(["-u", "-c", RESETS]);
    let server = Child::spawn(command, None).expect("it starts");
    let ready = server.wait_for_line(DEADLINE, |line| (line == "ready").then_some(()));
    ready.unwrap_or_else(|error| panic!("{error}: {}", server.log()));
    let sidecar = pair.sidecar(
        &pair.caller,
        "egress",
        "[[listen]]\naddress = '127.0.0.1:15001'\ntransparent = 'redirect'\ndetect = '50ms'",
    );
    pair.apply(&pair.caller, "egress");
    for port in ["2527", "9"] {
        let told = pair.caller.run("python3", &["-c", HOW_IT_ENDS, SERVER, port]);
        assert_eq!(told.trim(), "reset", "port {port}");
    }
    sidecar.stop();
}

#[test]
fn what_takes_a_right_says_which_where_it_is_missing() {
    let folder = folder();
    let config = folder.path().join("sidecar.toml");
    for (text, words) in [
        (
            listen("127.0.0.1:0", "tproxy", ""),
            "transparent = \"tproxy\" of the listener on 127.0.0.1:0 requires CAP_NET_ADMIN",
        ),
        (
            "mark = 7\n".to_owned() + &listen("127.0.0.1:0", "redirect", ""),
            "mark requires CAP_NET_ADMIN (SO_MARK)",
        ),
    ] {
        fs::write(&config, text).expect("a file");
        let mut command = Command::new(binary());
        command.arg("sidecar").arg("--config").arg(&config);
        h2lab_net::privileges::keep_in(&mut command, h2lab_net::privileges::NONE);
        let output = command.output().expect("it starts");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(4) && told.contains(words), "{told}");
    }
    // No rules are printed if they would not exempt the sidecar's own connections.
    fs::write(&config, listen("127.0.0.1:15001", "redirect", "")).expect("a file");
    let finished = crate::support::h2lab(&["sidecar", "--config", path(&config), "--print-nft"]);
    assert!(
        finished.code == Some(2) && finished.stderr.contains("set mark = 1"),
        "{}",
        finished.transcript()
    );
    let arguments = ["sidecar", "--config", path(&config), "--print-nft", "--user", "65532"];
    let finished = crate::support::h2lab(&arguments);
    assert!(finished.stdout.contains("meta skuid 65532 return"), "{}", finished.transcript());
}

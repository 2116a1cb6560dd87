//! Servers that are not ours, as peers of our client. Each serves `/file`, [`FILE`] bytes.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use h2lab_net::process::Child;

use crate::support::{DEADLINE, folder, free_ports, is_root, need};

/// The size of `/file`.
const FILE: usize = 5_000;

/// A running server in clear.
pub struct Peer {
    pub address: SocketAddr,
    pub child: Child,
    documents: tempfile::TempDir,
}

impl Peer {
    /// nghttp2's server, by prior knowledge; `None` if the tests are to do without it.
    pub fn nghttpd(more: &[&str]) -> Option<Self> {
        let program = need("nghttpd")?;
        Some(Self::start(&|documents, address| {
            let mut command = Command::new(&program);
            command.args(["--verbose", "--no-tls", "--address=127.0.0.1", "--htdocs"]);
            command.arg(documents).args(more).arg(address.port().to_string());
            command
        }))
    }

    /// Apache, whose port speaks HTTP/1.1 and upgrades to HTTP/2.
    pub fn apache() -> Option<Self> {
        // Not mpm_event: with it, Apache 2.4.71 sends GOAWAY on every second upgraded connection as soon as its first
        // response is sent ("timeout"), and whether a request is faster than that is a matter of chance.
        const MODULES: [(&str, &str); 3] = [
            ("mpm_worker_module", "mpm_worker"),
            ("authz_core_module", "authz_core"),
            ("http2_module", "http2"),
        ];
        let program = need("apache2")?;
        Some(Self::start(&|documents, address| {
            let load = |(name, file): (&str, &str)| {
                format!("LoadModule {name} /usr/lib/apache2/modules/mod_{file}.so\n")
            };
            let place = documents.display();
            let configuration = format!(
                "{}ServerName localhost\nListen {address}\nServerRoot {place}\nDefaultRuntimeDir {place}\n\
                 PidFile {place}/pid\nErrorLog {place}/log\nDocumentRoot {place}\nUser nobody\nGroup nogroup\n\
                 Protocols h2c http/1.1\nH2Upgrade on\n<Directory {place}>\nRequire all granted\n</Directory>\n",
                MODULES.map(load).concat()
            );
            let file = documents.join("conf");
            fs::write(&file, configuration).expect("a temporary file");
            let mut command = Command::new(&program);
            command.arg("-DFOREGROUND").arg("-f").arg(file);
            command
        }))
    }

    /// nginx, whose port speaks HTTP/1.1.
    pub fn nginx() -> Option<Self> {
        let program = need("nginx")?;
        Some(Self::start(&|documents, address| {
            let user = if is_root() { "user root;" } else { "" };
            let place = documents.display();
            // `-e`: otherwise it opens its compiled-in log before it has read a line of the configuration; we may not
            // write to that log.
            let configuration = format!(
                "{user} daemon off; master_process off; pid nginx.pid; error_log stderr; events {{}}
                 http {{
                     access_log off; client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f;
                     uwsgi_temp_path u; scgi_temp_path s; sendfile on;
                     client_max_body_size 0;
                     server {{ listen {address}; root {place}; dav_methods PUT; }}
                 }}"
            );
            fs::write(documents.join("nginx.conf"), configuration).expect("a temporary file");
            let mut command = Command::new(&program);
            command.arg("-p").arg(documents).args(["-c", "nginx.conf", "-e", "stderr"]);
            command
        }))
    }

    /// Caddy, whose port speaks HTTP/1.1.
    pub fn caddy() -> Option<Self> {
        let program = need("caddy")?;
        Some(Self::start(&|documents, address| {
            let mut command = Command::new(&program);
            command.args(["file-server", "--listen", &address.to_string(), "--root"]).arg(documents);
            // Its own files must not be in the user's folders.
            command.env("XDG_DATA_HOME", documents).env("XDG_CONFIG_HOME", documents);
            command
        }))
    }

    /// nghttp2's proxy, whose port speaks HTTP/1.1 and upgrades to HTTP/2, before a server in HTTP/1.1.
    pub fn nghttpx(backend: SocketAddr) -> Option<Self> {
        let program = need("nghttpx")?;
        Some(Self::start(&|_, address| {
            let at = |address: SocketAddr| format!("{},{}", address.ip(), address.port());
            let mut command = Command::new(&program);
            command.arg(format!("--frontend={};no-tls", at(address)));
            command.arg(format!("--backend={}", at(backend)));
            command.args(["--workers=1", "--conf=/dev/null"]);
            command
        }))
    }

    /// Hypercorn, whose port speaks HTTP/1.1 and upgrades to HTTP/2. Every path is `/file`.
    pub fn hypercorn() -> Option<Self> {
        let program = need("hypercorn")?;
        Some(Self::start(&|documents, address| {
            let application = format!(
                "async def app(scope, receive, send):
    if scope['type'] == 'http':
        while (await receive()).get('more_body'):
            pass
        await send({{'type': 'http.response.start', 'status': 200, 'headers': []}})
        await send({{'type': 'http.response.body', 'body': b'f' * {FILE}}})
"
            );
            fs::write(documents.join("application.py"), application).expect("a temporary file");
            let mut command = Command::new(&program);
            command.arg("--bind").arg(address.to_string()).arg("application:app").current_dir(documents);
            command
        }))
    }

    /// Serves another document, at `/NAME`.
    pub fn add(&self, name: &str, content: &[u8]) {
        fs::write(self.documents.path().join(name), content).expect("a temporary file");
    }

    /// What lies at `/NAME`.
    pub fn document(&self, name: &str) -> Vec<u8> {
        fs::read(self.documents.path().join(name)).expect("it is there")
    }

    /// Starts the command that `make` makes from a folder with the documents and an address; returns once that accepts.
    fn start(make: &dyn Fn(&Path, SocketAddr) -> Command) -> Self {
        let documents = folder();
        // If started by root, they serve as another user.
        fs::set_permissions(documents.path(), fs::Permissions::from_mode(0o755)).expect("our own folder");
        fs::write(documents.path().join("file"), vec![b'f'; FILE]).expect("a temporary file");
        let until = Instant::now() + DEADLINE;
        while Instant::now() < until {
            // They do not report which port they got for 0. So they are given one that was free a moment ago and that
            // no other test uses.
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_ports(1)));
            let mut child = Child::spawn(make(documents.path(), address), None).expect("the server starts");
            while child.wait(std::time::Duration::ZERO).is_ok_and(|ended| ended.is_none()) {
                if TcpStream::connect(address).is_ok() {
                    return Self { address, child, documents };
                }
                assert!(Instant::now() < until, "it does not listen: {}", child.log());
                std::thread::yield_now();
            }
            assert!(Instant::now() < until, "it does not start: {}", child.log());
        }
        panic!("no server finds a port")
    }
}

//! A client that is none of ours: Python speaks NATS' protocol as text, with or without TLS, and says whatever it is told.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::fleet::{DEADLINE, Fleet};
use super::network::HUB;
use crate::process;
use crate::verify::started::Started;

/// Arguments: host, user, password, seconds, file with what is sent after CONNECT. Prints all that the server says in that
/// time. An empty user has no credentials. A stranger does not look at the server's certificate. With a name as a sixth argument
/// it answers each question who is there as an agent of that name and of another version.
const CLIENT: &str = r#"
import json, socket, ssl, sys, time
host, user, password, seconds, file = sys.argv[1:6]
fake = sys.argv[6] if len(sys.argv) > 6 else None
plain = socket.create_connection((host, 4222), 10)
first = b""
while not first.endswith(b"\n"):
    first += plain.recv(1)
print(first.decode().strip(), flush=True)
wire = plain
if json.loads(first[5:]).get("tls_required"):
    wire = ssl._create_unverified_context().wrap_socket(plain)
connect = {"verbose": False, "pedantic": False, "protocol": 1}
if user:
    connect.update({"user": user, "pass": password})
wire.sendall(b"CONNECT " + json.dumps(connect).encode() + b"\r\n" + open(file, "rb").read() + b"PING\r\n")
wire.settimeout(0.2)
until, buffer = time.monotonic() + float(seconds), b""
while time.monotonic() < until:
    try:
        got = wire.recv(65536)
    except (TimeoutError, ssl.SSLWantReadError):
        continue
    except OSError as error:
        print(error, flush=True)
        break
    if not got:
        print("the server has closed the connection", flush=True)
        break
    buffer += got
    *lines, buffer = buffer.split(b"\r\n")
    for line in lines:
        print(line.decode(errors="replace"), flush=True)
        if line == b"PING":
            wire.sendall(b"PONG\r\n")
        if fake and line.startswith(b"{"):
            session = json.loads(line)["message"]["session"]
            answer = b'{"agent":6,"message":{}}'
            subject = b"h2lab.agent." + fake.encode() + b".from." + session.encode()
            wire.sendall(b"PUB " + subject + b" " + str(len(answer)).encode() + b"\r\n" + answer + b"\r\n")
"#;

/// Who connects.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stranger<'a> {
    /// Its user and password; none if the user is empty.
    pub user: &'a str,
    /// The password.
    pub password: &'a str,
    /// For how many seconds it listens.
    pub seconds: u32,
    /// The name of the agent whose part it plays, one of another version; empty: none.
    pub fake: &'a str,
}

impl Stranger<'_> {
    /// Connects from a node and sends these lines of the protocol.
    pub fn begin(&self, fleet: &Fleet<'_>, node: &str, lines: &str) -> Result<Started> {
        let python = process::find("python3").context("python3 is not installed")?;
        let name = fleet.file_name("stranger");
        let (script, file) = (fleet.folder().join("client.py"), fleet.folder().join(format!("{name}.lines")));
        fs::write(&script, CLIENT)?;
        fs::write(&file, lines)?;
        let mut command: Command = fleet.network().node(node)?.0.command(python);
        command.arg(script).args([HUB, self.user, self.password, &self.seconds.to_string()]).arg(file);
        if !self.fake.is_empty() {
            command.arg(self.fake);
        }
        Started::begin(&mut command, fleet.folder(), &name)
    }

    /// The same to its end; all that the server said.
    pub fn says(&self, fleet: &Fleet<'_>, node: &str, lines: &str) -> Result<String> {
        let ended = self.begin(fleet, node, lines)?.end(DEADLINE)?;
        ensure!(ended.stdout.starts_with("INFO"), "no NATS server: {} {}", ended.stdout, ended.stderr);
        Ok(ended.stdout)
    }
}

/// A subscription.
pub fn subscribe(subject: &str) -> String {
    format!("SUB {subject} 1\r\n")
}

/// A message. A reply subject may follow the subject, after a space.
pub fn publish(subject: &str, payload: &str) -> String {
    format!("PUB {subject} {}\r\n{payload}\r\n", payload.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_its_length_in_bytes() {
        assert_eq!(publish("a.b", "é"), "PUB a.b 2\r\né\r\n");
        assert_eq!(subscribe("a.>"), "SUB a.> 1\r\n");
    }

    #[test]
    fn the_client_is_a_program_of_python() {
        let Some(python) = process::find("python3") else { return };
        let check = "import ast, sys; ast.parse(sys.argv[1])";
        assert!(Command::new(python).args(["-c", check, CLIENT]).status().unwrap().success());
    }
}

//! curl as an independent client of a server: the same request over each of the four protocols.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use h2lab_model::workload::Protocol;

use crate::support::{need, run_program};

/// The protocols in which every curl can reuse a connection. Debian 12's cannot over HTTP/2 by prior knowledge (curl/curl#10634:
/// it fails, whatever the server).
pub const REUSES_CONNECTIONS: [Protocol; 3] = [Protocol::H1, Protocol::H1s, Protocol::H2];

/// What curl reports of one transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Status of the final response.
    pub status: u16,
    /// Connections that curl had to open for it: 0 when it could use the one before.
    pub connects: u32,
    /// Every head that came, interim ones included, as text.
    pub heads: String,
    /// The body.
    pub body: Vec<u8>,
}

/// A curl that speaks one protocol with one server and writes into `folder`.
#[derive(Debug)]
pub struct Curl<'a> {
    program: PathBuf,
    folder: &'a Path,
    protocol: Protocol,
    address: SocketAddr,
}

impl<'a> Curl<'a> {
    /// `None` if the tests are to do without curl.
    pub fn new(folder: &'a Path, protocol: Protocol, address: SocketAddr) -> Option<Self> {
        Some(Self { program: need("curl")?, folder, protocol, address })
    }

    /// One request for `path`.
    #[track_caller]
    pub fn get(&self, path: &str, more: &[&str]) -> Answer {
        let mut answers = self.get_all(&[path], more);
        answers.pop().expect("one path, one answer")
    }

    /// Requests for `paths`, one after the other, by one curl: it keeps its connection as long as the server lets it.
    /// Fails unless each was answered in the protocol that was asked for.
    #[track_caller]
    pub fn get_all(&self, paths: &[&str], more: &[&str]) -> Vec<Answer> {
        let (scheme, version, flag) = match self.protocol {
            Protocol::H1 => ("http", "1.1", "--http1.1"),
            Protocol::H1s => ("https", "1.1", "--http1.1"),
            Protocol::H2 => ("https", "2", "--http2"),
            Protocol::H2c => ("http", "2", "--http2-prior-knowledge"),
            // Debian's curl is built without it, so that no test asks for it.
            Protocol::H3 => ("https", "3", "--http3-only"),
            Protocol::Tcp => unreachable!("curl speaks HTTP"),
        };
        let report = "%{http_version} %{http_code} %{num_connects}\\n";
        let heads = self.folder.join("heads");
        let mut arguments: Vec<String> =
            ["-sS", "-k", "-q", "--noproxy", "*", "--max-time", "60", flag, "-w", report, "-D"]
                .map(str::to_owned)
                .into();
        arguments.push(heads.display().to_string());
        arguments.extend(more.iter().map(|&argument| argument.to_owned()));
        for (k, path) in paths.iter().enumerate() {
            arguments.extend([
                format!("{scheme}://{}{path}", self.address),
                "-o".to_owned(),
                format!("body-{k}"),
            ]);
        }
        let finished = run_program(&self.program, self.folder, &arguments);
        assert_eq!(finished.code, Some(0), "{} {paths:?}: {}", self.protocol, finished.transcript());
        let heads = fs::read_to_string(heads).expect("curl wrote the heads");
        let answer = |(k, line): (usize, &str)| {
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(words[0], version, "{} was answered in another protocol: {line}", self.protocol);
            Answer {
                status: words[1].parse().expect("a status"),
                connects: words[2].parse().expect("a number"),
                heads: heads.clone(),
                // curl makes no file for an empty body.
                body: fs::read(self.folder.join(format!("body-{k}"))).unwrap_or_default(),
            }
        };
        let answers: Vec<Answer> = finished.stdout.lines().enumerate().map(answer).collect();
        assert_eq!(answers.len(), paths.len(), "{}", finished.transcript());
        answers
    }
}

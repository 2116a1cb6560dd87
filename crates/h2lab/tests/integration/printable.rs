//! Text of peers and of foreign files: whatever it contains, output and reports are printable.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use h2lab_wire::h2::frame::{PREFACE, flag, kind};

use crate::hostile::attacker::{frame, read_frame};
use crate::support::{DEADLINE, Finished, binary, folder, run_program};

/// Characters that a terminal interprets, that change the direction of text or hide it, and invalid UTF-8. A C1
/// control, a change of direction and an invalid byte are legal in a field's value (RFC 9110 §5.5).
const LEGAL: &[u8] = b"evil\xc2\x9b31m\xe2\x80\xaecod\xe2\x80\x8b\xff\xc2\x85.";
/// Characters that are not legal there.
const ILLEGAL: &[u8] = b"evil\x1b]0;title\x07\x1b[2J\x00\x7f\x08\xc2\x9b\xff.";

/// Fails if a terminal would interpret something in `text`.
#[track_caller]
fn assert_printable(what: &str, text: &str) {
    let is_bad = |character: &char| {
        let hidden = matches!(*character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{feff}');
        (character.is_control() && *character != '\n') || hidden
    };
    if let Some(bad) = text.chars().find(is_bad) {
        let shown: String = text.chars().flat_map(char::escape_debug).collect();
        panic!("{what} has {bad:?}: {shown}");
    }
}

/// What a server sends, and where.
#[derive(Debug, Clone, Copy)]
enum Evil {
    /// In the status line, fields and body of a response.
    Response(u16, &'static [u8]),
    /// Instead of a response.
    Garbage(&'static [u8]),
}

impl Evil {
    fn response(self, out: &mut TcpStream) -> io::Result<()> {
        let (status, text) = match self {
            Self::Response(status, text) => (status, text),
            Self::Garbage(text) => return out.write_all(&[text, b"\r\n\r\n"].concat()),
        };
        let mut head = format!("HTTP/1.1 {status} ").into_bytes();
        for (before, after) in [
            ("", ""),
            ("server: ", ""),
            ("etag: \"", "\""),
            ("last-modified: ", ""),
            ("alt-svc: h3=\"", ":1\""),
            ("set-cookie: ", ""),
            ("link: <", ">; rel=preload"),
            ("content-disposition: attachment; filename=", ""),
            ("location: http://a/", ""),
            ("x-evil: ", ""),
        ] {
            head.extend([before.as_bytes(), text, after.as_bytes(), b"\r\n"].concat());
        }
        head.extend(format!("content-length: {}\r\n\r\n", text.len()).into_bytes());
        out.write_all(&[&head[..], text].concat())
    }

    /// Answers one connection of HTTP/1.1.
    fn serve_http1(self, stream: TcpStream) -> io::Result<()> {
        let mut out = stream.try_clone()?;
        for line in BufReader::new(stream).split(b'\n') {
            if line? == b"\r" {
                self.response(&mut out)?;
            }
        }
        Ok(())
    }

    /// Answers one connection of HTTP/2: a response with the text in its fields, and then a push and a GOAWAY with
    /// debug data.
    fn serve_http2(self, mut stream: TcpStream) -> io::Result<()> {
        stream.read_exact(&mut [0; PREFACE.len()])?;
        let settings = [frame(kind::SETTINGS, 0, 0, &[]), frame(kind::SETTINGS, flag::ACK, 0, &[])].concat();
        stream.write_all(&settings)?;
        while let Ok((header, _)) = read_frame(&mut stream) {
            if header.kind != kind::HEADERS {
                continue;
            }
            let (status, text) = match self {
                Self::Response(status, text) => (status.to_string(), text),
                Self::Garbage(text) => ("200".to_owned(), text),
            };
            let literal = |name: &str, value: &[u8]| {
                [&[0, name.len() as u8][..], name.as_bytes(), &[value.len() as u8], value].concat()
            };
            let fields = ["server", "x-evil", "set-cookie", "etag", "location"]
                .map(|name| literal(name, text))
                .concat();
            let block = [literal(":status", status.as_bytes()), fields].concat();
            let debug = [&header.stream.to_be_bytes()[..], &[0, 0, 0, 11], text].concat();
            // Also a frame of an unknown type.
            let frames = [
                frame(0xb7, 0, 0, text),
                frame(kind::HEADERS, flag::END_HEADERS, header.stream, &block),
                frame(kind::DATA, flag::END_STREAM, header.stream, text),
                frame(kind::GOAWAY, 0, 0, &debug),
            ];
            stream.write_all(&frames.concat())?;
        }
        Ok(())
    }

    /// Serves until the tests end.
    fn start(self) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout above zero");
                    let mut first = [0; 3];
                    let is_http2 = stream.peek(&mut first).is_ok() && first == PREFACE[..3];
                    // A client that aborts its connection is no error of the server.
                    let _ = if is_http2 { self.serve_http2(stream) } else { self.serve_http1(stream) };
                });
            }
        });
        address
    }
}

/// Runs h2lab in `folder`; its output and all files there except those that were fetched must be printable.
#[track_caller]
fn run(folder: &Path, words: &[&str]) -> Finished {
    let finished = run_program(&binary(), folder, words);
    assert!(finished.code.is_some_and(|code| code != 101), "{words:?}: {}", finished.transcript());
    assert_printable(&format!("stdout of {words:?}"), &finished.stdout);
    assert_printable(&format!("stderr of {words:?}"), &finished.stderr);
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("it can be read").path();
        let is_fetched = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("fetched"));
        if path.is_file() && !is_fetched {
            let text = String::from_utf8_lossy(&fs::read(&path).expect("a file")).into_owned();
            // Pages are indented with tabs, and lines of CSV end with CR LF.
            assert_printable(&path.display().to_string(), &text.replace(['\t', '\r'], ""));
        }
    }
    finished
}

#[test]
fn nothing_that_a_server_sends_reaches_the_terminal_or_a_report_as_it_is() {
    let kinds = [
        Evil::Response(200, LEGAL),
        Evil::Response(302, LEGAL),
        Evil::Response(507, LEGAL),
        Evil::Response(200, ILLEGAL),
        Evil::Garbage(ILLEGAL),
    ];
    for evil in kinds {
        let (folder, address) = (folder(), evil.start());
        fs::write(folder.path().join("upload"), "content").expect("a temporary file");
        let url = &format!("http://{address}/x");
        let run = |words: &[&str]| run(folder.path(), words);
        for proto in ["--proto=h1", "--proto=h2c"] {
            run(&[
                "load",
                url,
                proto,
                "-n=3",
                "-c=1",
                "--timeout=2s",
                "-o=l.html",
                "-o=l.json",
                "-o=l.md",
                "-o=l.csv",
            ]);
            run(&["load", url, proto, "-n=3", "-c=1", "--timeout=2s", "--json", "--no-store"]);
            for form in ["-v", "--json", "--jsonl"] {
                run(&["trace", url, proto, "--timeout=2s", form]);
            }
            run(&["timeline", url, proto, "--timeout=2s", "-o=t.html", "-o=t.svg", "-o=t.json"]);
            run(&[
                "probe",
                url,
                proto,
                "--timeout=300ms",
                "--idle=300ms",
                "--max-requests=30",
                "-v",
                "-o=p.sarif",
                "-o=p.xml",
                "-o=p.json",
                "-o=p.txt",
            ]);
            run(&["bulk", "get", url, proto, "--timeout=2s", "-o=fetched"]);
            run(&["bulk", "get", url, proto, "--timeout=2s", "-o=fetched", "--json", "-c=2"]);
            run(&["bulk", "put", "upload", url, proto, "--timeout=2s"]);
            run(&[
                "compare",
                url,
                proto,
                "-q=20",
                "-z=300ms",
                "--warmup=0ms",
                "--repetitions=1",
                "--timeout=2s",
                "-o=c.html",
            ]);
        }
    }
}

#[test]
fn nothing_that_a_foreign_run_folder_says_reaches_the_terminal_or_a_report_as_it_is() {
    let (folder, address) = (folder(), Evil::Response(200, LEGAL).start());
    let url = format!("http://{address}/x");
    run(folder.path(), &["load", &url, "-n=3", "-c=1", "--out=runs/a"]);
    let path = folder.path().join("runs/a/run.json");
    let mut head: serde_json::Value =
        serde_json::from_slice(&fs::read(&path).expect("run.json")).expect("JSON");
    let evil = String::from_utf8_lossy(ILLEGAL).replace('\u{fffd}', "\u{202e}");
    let mut scenario: toml::Table = toml::from_str(head["scenario"].as_str().expect("TOML")).expect("TOML");
    scenario["claim"] = evil.clone().into();
    scenario["matrix"]["live"][0]["url"] = evil.clone().into();
    scenario["work"]["method"] = evil.clone().into();
    head["scenario"] = toml::to_string(&scenario).expect("TOML").into();
    head["version"] = evil.clone().into();
    head["machine"] = evil.clone().into();
    head["command"] = vec![evil.clone()].into();
    let one = &mut head["repetitions"][0];
    one["cell"]["target"]["url"] = evil.clone().into();
    one["cell"]["work"]["path"] = format!("/{evil}").into();
    one["cell"]["work"]["method"] = evil.clone().into();
    one["cell"]["congestion"] = evil.clone().into();
    one["warnings"] = vec![evil.clone()].into();
    fs::write(&path, serde_json::to_vec(&head).expect("JSON")).expect("a temporary file");
    let shown = run(
        folder.path(),
        &["report", "runs/a", "-o=r.html", "-o=r.md", "-o=r.csv", "-o=r.json", "-o=r.hlog"],
    );
    assert!(shown.stdout.contains("\\u{1b}"), "{}", shown.transcript());
    run(folder.path(), &["report", "runs/a", "--json"]);
    run(folder.path(), &["report", "runs/a", "runs/a"]);
    // Names of folders are foreign, too.
    fs::rename(folder.path().join("runs/a"), folder.path().join(format!("runs/{}", evil.replace('\0', ""))))
        .expect("it is ours");
    fs::create_dir(folder.path().join("runs/\u{1b}[2J")).expect("a new folder");
    run(folder.path(), &["runs", "--dir=runs"]);
    run(folder.path(), &["runs", "--dir=runs", "--json"]);
}

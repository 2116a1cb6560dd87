//! `bulk get` from servers that are not ours, and `bulk serve` for curl.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use h2lab_model::workload::Protocol;

use super::{Server, bytes, document, get, url};
use crate::curl::Curl;
use crate::peers::Peer;
use crate::support::folder;

#[test]
fn curl_fetches_files_ranges_and_heads_over_every_protocol_that_it_has() {
    let (site, content) = (folder(), bytes(1_000_000));
    fs::write(site.path().join("a file"), &content).unwrap();
    let server = Server::start(site.path());
    for protocol in Protocol::OVER_TCP {
        let here = folder();
        let Some(curl) = Curl::new(here.path(), protocol, server.address(protocol)) else { return };
        let whole = curl.get("/a%20file", &[]);
        assert_eq!((whole.status, whole.body == content), (200, true), "{protocol}");
        let heads = whole.heads.to_ascii_lowercase();
        let etag =
            heads.lines().find_map(|line| line.strip_prefix("etag: ")).expect("it has a tag").to_owned();
        assert!(heads.contains("accept-ranges: bytes") && heads.contains("last-modified: "), "{heads}");
        for (range, part, report) in [
            ("10-19", &content[10..20], "bytes 10-19/1000000"),
            ("999990-", &content[999_990..], "bytes 999990-999999/1000000"),
            ("-5", &content[999_995..], "bytes 999995-999999/1000000"),
        ] {
            let answer = curl.get("/a%20file", &["-r", range]);
            assert_eq!((answer.status, &answer.body[..] == part), (206, true), "{protocol} {range}");
            assert!(answer.heads.to_ascii_lowercase().contains(report), "{protocol} {}", answer.heads);
        }
        assert_eq!(curl.get("/a%20file", &["-r", "1000000-"]).status, 416, "{protocol}");
        let same = format!("If-Range: {etag}");
        assert_eq!(curl.get("/a%20file", &["-r", "0-9", "-H", &same]).status, 206, "{protocol}");
        let other = "If-Range: \"another\"";
        assert_eq!(curl.get("/a%20file", &["-r", "0-9", "-H", other]).status, 200, "{protocol}");
        let sum = curl.get("/a%20file", &["-I", "-H", "Want-Repr-Digest: sha-256=10"]);
        assert!(
            sum.heads.to_ascii_lowercase().contains("repr-digest: sha-256=:"),
            "{protocol} {}",
            sum.heads
        );
        assert_eq!(curl.get("/", &[]).status, 404, "{protocol}: there are no listings");
        assert_eq!(curl.get("/../data", &["--path-as-is"]).status, 400, "{protocol}");
        assert_eq!(curl.get("/a%20file", &["-X", "DELETE"]).status, 405, "{protocol}");
    }
}

/// A server that declares no checksum is trusted, and sends its file whole and, if `has_ranges`, in parts.
fn assert_is_enough(peer: &Peer, protocol: Protocol, has_ranges: bool) {
    let content = bytes(3_000_000);
    peer.add("data", &content);
    let url = url(protocol, peer.address, "/data");
    for way in [&[][..], &["-c3", "--part=200k"]] {
        let here = folder();
        let report = document(&get(here.path(), protocol, &[way, &[&url]].concat()), 0);
        assert!(fs::read(here.path().join("data")).unwrap() == content, "{way:?}");
        let checksum = &report["transfers"][0]["checksum"];
        assert_eq!(checksum["verdict"], "undeclared", "{report:#}");
        assert!(checksum["computed"].is_string() && checksum["declared"].is_null(), "{report:#}");
        let streams = report["streams"]["count"].as_u64().unwrap();
        assert_eq!(streams > 1, has_ranges && !way.is_empty(), "{report:#}");
    }
}

#[test]
fn nginx_is_enough() {
    let Some(nginx) = Peer::nginx() else { return };
    assert_is_enough(&nginx, Protocol::H1, true);
}

#[test]
fn apache_is_enough() {
    let Some(apache) = Peer::apache() else { return };
    assert_is_enough(&apache, Protocol::H1, true);
    assert_is_enough(&apache, Protocol::H2c, true);
}

#[test]
fn caddy_is_enough() {
    let Some(caddy) = Peer::caddy() else { return };
    assert_is_enough(&caddy, Protocol::H1, true);
}

#[test]
fn a_server_of_http2_without_ranges_is_enough() {
    let Some(nghttpd) = Peer::nghttpd(&[]) else { return };
    assert_is_enough(&nghttpd, Protocol::H2c, false);
}

/// A server of one answer after another, each on a connection of its own that it closes.
fn scripted(answers: Vec<Vec<u8>>) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}/data", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for answer in answers {
            let Ok((mut stream, _)) = listener.accept() else { return };
            read_head(&mut stream);
            // A client that has read enough may close.
            let _ = stream.write_all(&answer);
        }
    });
    url
}

fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

#[test]
fn a_server_that_sends_no_length_and_no_checksum_is_enough() {
    let content = bytes(100_000);
    let answer = [b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n", &content[..]].concat();
    let gone = b"HTTP/1.1 405 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_vec();
    let url = scripted(vec![answer, gone]);
    let here = folder();
    let report = document(&get(here.path(), Protocol::H1, &[&url]), 0);
    assert!(fs::read(here.path().join("data")).unwrap() == content);
    assert_eq!(report["transfers"][0]["total_bytes"], 100_000, "{report:#}");
}

#[test]
fn a_wrong_checksum_is_reported_and_the_file_does_not_get_its_name() {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nrepr-digest: crc32c=:AAAAAA==:\r\nconnection: close\r\n\r\n";
    let url = scripted(vec![format!("{head}hello").into_bytes()]);
    let here = folder();
    let report = document(&get(here.path(), Protocol::H1, &[&url]), 1);
    assert_eq!(report["transfers"][0]["checksum"]["verdict"], "differs", "{report:#}");
    assert!(super::names(here.path()).is_empty());
}

#[test]
fn what_a_server_contradicts_is_not_stored() {
    let of = |lines: &str, body: &str| {
        format!("HTTP/1.1 {lines}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
            .into_bytes()
    };
    for (answer, code, word) in [
        (of("206 Partial\r\ncontent-range: bytes 5-9/10", "12345"), 3, "range"),
        (of("206 Partial", "12345"), 3, "without Content-Range"),
        (of("200 OK\r\ncontent-encoding: gzip", "12345"), 3, "content-encoding"),
        (of("302 Found\r\nlocation: http://elsewhere.test/x", ""), 1, "http://elsewhere.test/x"),
    ] {
        let url = scripted(vec![answer]);
        let here = folder();
        let report = document(&get(here.path(), Protocol::H1, &[&url]), code);
        let why = report["transfers"][0]["why"].as_str().unwrap();
        assert!(why.contains(word), "{report:#}");
        assert!(super::names(here.path()).is_empty(), "{word}");
    }
}

#[test]
fn a_server_that_is_gone_before_the_checksum_costs_no_file() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\netag: \"a\"\r\nconnection: close\r\n\r\nhello";
    let url = scripted(vec![answer.as_bytes().to_vec()]);
    let here = folder();
    let report = document(&get(here.path(), Protocol::H1, &[&url]), 0);
    assert_eq!(fs::read(here.path().join("data")).unwrap(), b"hello");
    assert_eq!(report["transfers"][0]["checksum"]["verdict"], "undeclared", "{report:#}");
    assert!(report["warnings"][0].as_str().unwrap().contains("no checksum was declared"), "{report:#}");
}

#[test]
fn a_server_that_allows_no_request_is_given_up() {
    let origin = crate::origin::Origin::start(&["--max-concurrent-streams=0"]);
    let here = folder();
    for protocol in [Protocol::H2c, Protocol::H2] {
        let url = url(protocol, origin.address(protocol), "/bytes/1M");
        let report = document(&get(here.path(), protocol, &["--discard", "--timeout=5s", &url]), 3);
        let why = report["transfers"][0]["why"].as_str().unwrap_or_else(|| panic!("{report:#}"));
        assert!(why.contains("SETTINGS_MAX_CONCURRENT_STREAMS"), "{why}");
    }
}

#[test]
fn a_file_that_the_server_has_changed_meanwhile_gets_no_name() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\netag: \"a\"\r\nconnection: close\r\n\r\nhello";
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\netag: \"b\"\r\nrepr-digest: crc32c=:AAAAAA==:\r\nconnection: close\r\n\r\n";
    let url = scripted(vec![answer.as_bytes().to_vec(), head.as_bytes().to_vec()]);
    let here = folder();
    let report = document(&get(here.path(), Protocol::H1, &[&url]), 3);
    assert!(!fs::exists(here.path().join("data")).unwrap());
    assert!(report["transfers"][0]["why"].as_str().unwrap().contains("changed"), "{report:#}");
}

/// A server of `content` in ranges that answers one request on each connection, and every third one not at all.
fn moody(content: Vec<u8>) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}/data", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for (n, stream) in listener.incoming().enumerate() {
            let Ok(mut stream) = stream else { return };
            let content = content.clone();
            std::thread::spawn(move || {
                let head = read_head(&mut stream).to_ascii_lowercase();
                let range = head.lines().find_map(|line| line.strip_prefix("range: bytes=")?.split_once('-'));
                let (Some((from, last)), false) = (range, n % 3 == 2) else { return };
                let (from, last): (usize, usize) = (from.parse().unwrap(), last.parse().unwrap());
                let body = &content[from..content.len().min(last + 1)];
                let head = format!(
                    "HTTP/1.1 206 Partial\r\netag: \"a\"\r\ncontent-range: bytes {from}-{}/{}\r\ncontent-length: {}\r\n\r\n",
                    from + body.len() - 1,
                    content.len(),
                    body.len()
                );
                let _ = stream.write_all(&[head.as_bytes(), body].concat());
            });
        }
    });
    url
}

#[test]
fn connections_that_break_over_and_over_are_replaced_while_they_bring_something() {
    let content = bytes(3_000_000);
    let url = moody(content.clone());
    let here = folder();
    let arguments = ["-c8", "--part=65536", "--checksum=none", &url];
    let report = document(&get(here.path(), Protocol::H1, &arguments), 0);
    assert!(fs::read(here.path().join("data")).unwrap() == content);
    assert_eq!(
        (&report["bytes"], &report["asked"]["part_bytes"]),
        (&3_000_000.into(), &65_536.into()),
        "{report:#}"
    );
}

#[test]
fn a_link_of_the_files_name_is_left_in_its_place() {
    let here = folder();
    std::os::unix::fs::symlink("elsewhere", here.path().join("data")).unwrap();
    let finished = get(here.path(), Protocol::H1, &["http://127.0.0.1:9/data"]);
    assert_eq!(finished.code, Some(2), "{}", finished.transcript());
    assert!(finished.transcript().contains("--discard"), "{}", finished.transcript());
    assert_eq!(super::names(here.path()), ["data"]);
}

#[test]
fn files_that_would_write_to_each_others_parts_are_refused() {
    let (here, url) = (folder(), "http://127.0.0.1:9/data");
    let finished = get(here.path(), Protocol::H1, &[url, &format!("{url}.part")]);
    assert_eq!(finished.code, Some(2), "{}", finished.transcript());
    assert!(finished.transcript().contains("to its .part file"), "{}", finished.transcript());
}

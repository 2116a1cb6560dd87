//! Command lines as people type them: for every command, the exit code that scripts rely on and the first words of an
//! answer.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::origin::Origin;
use crate::support::{Finished, as_nobody, binary, folder, h2lab};

const NO_SUCCESS: i32 = 1;
const USAGE: i32 = 2;
const NO_RESPONSE: i32 = 3;
const CANNOT: i32 = 4;

/// Fails unless `finished` ended with this code and has all of these words on stderr.
#[track_caller]
fn assert_ends(finished: &Finished, code: i32, words: &[&str]) {
    assert_eq!(finished.code, Some(code), "{}", finished.transcript());
    for word in words {
        assert!(finished.stderr.contains(word), "`{word}` is not said\n{}", finished.transcript());
    }
}

/// Listens for as long as the tests run, sends `banner` to each client, and `answer` to each request; counts
/// connections.
fn server(banner: &'static [u8], answer: &'static [u8]) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("a bound socket has an address");
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            counted.fetch_add(1, Ordering::SeqCst);
            std::thread::spawn(move || {
                // The client may close at any time, which is allowed.
                let _ = stream.write_all(banner);
                let mut buffer = [0; 4096];
                while stream.read(&mut buffer).is_ok_and(|n| n > 0) {
                    if !answer.is_empty() {
                        let _ = stream.write_all(answer);
                        return;
                    }
                }
            });
        }
    });
    (address, connections)
}

#[test]
fn responses_of_which_none_is_a_success_are_exit_code_1_in_every_command_that_measures() {
    let origin = Origin::start(&[]);
    for status in ["405", "503"] {
        let url = format!("http://{}/status/{status}", origin.clear);
        for command in [
            &["load", "--no-store", "--quiet", "-n3", "-c1"][..],
            &["load", "--no-store", "--quiet", "-q20", "-z1s"],
            &["compare", "--quiet", "--proto=h1,h2c", "-c1", "-q20", "-z1s", "--repetitions=1"],
        ] {
            let finished = h2lab(&[command, &[&url, "--json"]].concat());
            assert_ends(&finished, NO_SUCCESS, &["no response was a success", &format!("× {status}")]);
            let document = finished.json();
            let cells = document["cells"].as_array().cloned().unwrap_or_else(|| vec![document.clone()]);
            for cell in cells {
                assert_eq!(cell["state"], "failed", "{}", finished.transcript());
            }
        }
        let finished = h2lab(&["bulk", "get", "--discard", &url]);
        assert_eq!(finished.code, Some(NO_SUCCESS), "{}", finished.transcript());
        let watched = h2lab(&["trace", &url]);
        assert_eq!(watched.code, Some(0), "a status is an answer to who watches\n{}", watched.transcript());
    }
}

#[test]
fn no_response_at_all_is_exit_code_3_however_the_load_ends() {
    let (silent, _) = server(b"", b"");
    let url = format!("http://{silent}/");
    for how in [&["-n2", "--timeout=3s"][..], &["-z3s", "--drain=1s"], &["-q20", "-z3s", "--drain=1s"]] {
        let finished = h2lab(&[&["load", "--no-store", "--quiet", "-c1"], how, &[&url]].concat());
        // If our process did not run for a while, no side is at fault.
        let (code, words) = if finished.is_busy() { (5, "") } else { (NO_RESPONSE, "no response to") };
        assert_ends(&finished, code, &[words]);
    }
}

#[test]
fn a_port_that_speaks_no_http_is_traced_with_what_it_says_and_without_frames() {
    let (ssh, connections) = server(b"SSH-2.0-OpenSSH_9.2p1\r\n", b"");
    let finished = h2lab(&["trace", "--timeout=5s", &ssh.to_string()]);
    assert_ends(&finished, NO_RESPONSE, &["not HTTP: got \"SSH-2.0-OpenSSH_9.2p1\""]);
    assert!(finished.stdout.contains("not HTTP"), "{}", finished.transcript());
    assert!(!finished.stdout.contains("← "), "no frame of the server\n{}", finished.transcript());
    assert_eq!(connections.load(Ordering::SeqCst), 1, "no other version is tried");
}

#[test]
fn a_trace_in_http1_to_a_server_of_http_1_0_dials_once() {
    let answer = b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok";
    let (address, connections) = server(b"", answer);
    let finished = h2lab(&["trace", "--http1.1", &address.to_string()]);
    assert_eq!(finished.code, Some(0), "{}", finished.transcript());
    assert_eq!(connections.load(Ordering::SeqCst), 1, "{}", finished.transcript());
}

#[test]
fn a_missing_program_is_exit_code_4_and_a_missing_file_2_in_every_command() {
    let folder = folder();
    let without_programs = |arguments: &[&str]| -> Finished {
        let mut command = Command::new(binary());
        // The places where h2lab looks for programs, except those of administrators.
        command
            .current_dir(folder.path())
            .env("PATH", folder.path())
            .env("HOME", folder.path())
            .args(arguments);
        command.output().expect("the binary starts").into()
    };
    for arguments in [
        &["timeline", "--hops=caddy"][..],
        &["compare", "--origin=caddy", "--quiet"],
        &["compare", "--topology=sidecar", "--sidecar=caddy", "--quiet"],
        &["probe", "smuggling", "--fixture=caddy-default"],
        &[
            "bulk",
            "drive",
            "--clients=ssh:nowhere",
            "--servers=local",
            "--ssh=no-such-ssh",
            "--plain-http",
            "-z1",
        ],
    ] {
        assert_ends(&without_programs(arguments), CANNOT, &[]);
    }
    let url = "http://127.0.0.1:1/";
    for arguments in [
        &["run", "none.toml"][..],
        &["load", "--urls=none.txt"],
        &["load", "-d", "@none.json", url],
        &["load", "--cacert=none.pem", "https://127.0.0.1:1/"],
        &["bulk", "put", "none.tar", url],
        &["bulk", "serve", "--listen=127.0.0.1:0", "none"],
        &["bulk", "serve", "--listen=127.0.0.1:0", "--memory", "--token-file=none.txt"],
        &["origin", "--tls-listen=127.0.0.1:0", "--cert=none.pem"],
        &["report", "none"],
        &["runs", "--dir=none"],
        &["compare", "--resume=none"],
    ] {
        assert_ends(&without_programs(arguments), USAGE, &["none"]);
    }
}

#[test]
fn no_permission_for_an_output_file_is_exit_code_4_and_no_folder_for_it_2_in_every_command() {
    let origin = Origin::start(&[]);
    let url = format!("http://{}/bytes/1k", origin.clear);
    // Nobody may write in the root folder.
    for (place, code) in [("/h2lab-test", CANNOT), ("/h2lab-test/none/x", USAGE)] {
        let [html, csv] = ["html", "csv"].map(|ending| format!("{place}.{ending}"));
        for arguments in [
            &["load", "--no-store", "--quiet", "-n1", "-o", &html, &url][..],
            &["load", "--no-store", "--quiet", "-n1", "--dump", &csv, &url],
            &["compare", "--quiet", "-o", &html, &url],
            &["bulk", "get", "--quiet", "-o", &html, &url],
            &["bulk", "get", "--quiet", "--discard", "--html", &html, &url],
            &["timeline", "-o", &html, &url],
            &["probe", "-o", &html, &url],
        ] {
            let finished = as_nobody(arguments);
            assert_ends(&finished, code, &[place]);
        }
    }
    let refused = as_nobody(&["load", "--quiet", "-n1", "--out=/h2lab-test-run", &url]);
    assert_ends(&refused, CANNOT, &["--out /h2lab-test-run"]);
}

#[test]
fn a_server_of_files_that_is_given_none_names_the_flag_for_memory() {
    assert_ends(&h2lab(&["bulk", "serve"]), USAGE, &["--memory", "folder"]);
}

#[test]
fn a_malformed_header_line_is_called_that() {
    let finished = h2lab(&["load", "-H", "foo bar: s3cret", "http://127.0.0.1:1/"]);
    assert_ends(&finished, USAGE, &["-H/--header = foo bar: … is malformed"]);
    assert!(!finished.stderr.contains("s3cret"), "{}", finished.transcript());
}

#[test]
fn a_threshold_says_which_unit_it_took_and_which_metrics_there_are() {
    let origin = Origin::start(&[]);
    let url = format!("http://{}/", origin.clear);
    let finished = h2lab(&["load", "-n2", "-c1", "--no-store", "--quiet", "--fail-if", "p99 > 60000", &url]);
    finished.assert_measured();
    assert!(finished.stderr.contains("in `p99 > 60000` the bound is 60s"), "{}", finished.transcript());
    let unknown = h2lab(&["load", "--fail-if", "p98 > 1", &url]);
    assert_ends(
        &unknown,
        USAGE,
        &[
            "no metric `p98`",
            "METRIC > BOUND",
            "p50, p90, p95, p99, p999, p9999, max, mean, errors, throughput",
        ],
    );
}

#[test]
fn wrks_and_h2loads_command_lines_load_the_server() {
    let origin = Origin::start(&[]);
    for line in ["-t2 -c2 -n10 --latency", "-n10 -c2 --h1", "-R 50 -D 1 -c1"] {
        let flags: Vec<&str> = line.split(' ').collect();
        let clear = origin.clear.to_string();
        let finished = h2lab(&[&["load", "--no-store", "-s", "--json"], &flags[..], &[&clear]].concat());
        finished.assert_measured();
        assert!(
            finished.json()["requests"]["succeeded"].as_u64().unwrap() >= 10,
            "{}",
            finished.transcript()
        );
    }
    let posted = h2lab(&["load", "-t2", "-c10", "-d1s", &format!("http://{}/", origin.clear)]);
    assert_ends(&posted, USAGE, &["a duration? use -z TIME"]);
}

#[test]
fn a_self_signed_certificate_of_an_authority_is_accepted_if_it_is_named() {
    let folder = folder();
    let mut parameters = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let (cert_file, key_file) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    fs::write(&cert_file, parameters.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(&key_file, key.serialize_pem()).unwrap();
    let [cert, key] = [&cert_file, &key_file].map(|path| path.to_str().unwrap());
    let origin = Origin::start(&["--h3", "--cert", cert, "--key", key]);
    let url = format!("https://localhost:{}/", origin.tls.port());
    for protocol in ["h1s", "h2", "h3"] {
        let ask = |trust: &[&str]| h2lab(&[&["trace", "--proto", protocol, "-4"], trust, &[&url]].concat());
        let trusted = ask(&["--cacert", cert]);
        assert_eq!(trusted.code, Some(0), "{protocol}: {}", trusted.transcript());
        let unknown = ask(&[]);
        assert_eq!(unknown.code, Some(NO_RESPONSE), "{protocol}: {}", unknown.transcript());
        assert!(!unknown.stderr.contains("CaUsed"), "{protocol}: {}", unknown.transcript());
    }
}

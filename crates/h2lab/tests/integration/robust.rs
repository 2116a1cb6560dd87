//! Servers that misbehave in every way, other errors around a load, and many streams at once. Asserted each time: the run ends by
//! itself, and every request is accounted for, failures by kind and fault.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use h2lab::run::store;
use h2lab_wire::h2::frame::{PREFACE, flag, kind};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use socket2::SockRef;

use crate::hostile::attacker::{frame, read_frame};
use crate::hostile::server::served;
use crate::origin::Origin;
use crate::support::{Finished, as_nobody_behind, binary, folder, h2lab, need, run_program};

/// Requests of each load here.
const REQUESTS: u64 = 20;

/// A server that does `script` with each connection, for as long as the tests run.
fn server(script: impl Fn(TcpStream) -> io::Result<()> + Send + Sync + Clone + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let script = script.clone();
            // A client that aborts its connection is no error of the server.
            std::thread::spawn(move || script(stream).unwrap_or_default());
        }
    });
    address
}

/// Reads one request of HTTP/1.1 without a body.
fn read_head(stream: &mut TcpStream) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    Ok(())
}

/// Fails unless every request is accounted for; returns the failures as (kind, fault, count).
#[track_caller]
fn accounted(document: &Value) -> Vec<(String, String, u64)> {
    let of = |name: &str| document["requests"][name].as_u64().expect("a count");
    assert_eq!(of("sent"), REQUESTS);
    assert_eq!(of("sent"), of("succeeded") + of("failed") + of("unfinished"));
    let errors = document["errors"].as_array().expect("a list");
    let text = |value: &Value| value.as_str().expect("a name").to_owned();
    let errors: Vec<_> = errors
        .iter()
        .map(|error| (text(&error["kind"]), text(&error["fault"]), error["count"].as_u64().expect("a count")))
        .collect();
    assert_eq!(errors.iter().map(|(.., count)| count).sum::<u64>(), of("failed"), "{errors:?}");
    errors
}

/// Far longer than a responsive server takes: the timeout expires only if something is waited for that does not come.
const PATIENT: &[&str] = &["-c2", "--timeout=60s"];

/// Loads a server of HTTP/1.1 that runs `script` after each request that it reads, until the script fails.
#[track_caller]
fn meet(flags: &[&str], script: fn(&mut TcpStream) -> io::Result<()>) -> Vec<(String, String, u64)> {
    let address = server(move |mut stream| {
        loop {
            read_head(&mut stream)?;
            script(&mut stream)?;
        }
    });
    let requests = REQUESTS.to_string();
    let arguments = ["load", "--json", "--quiet", "--no-store", "-n", &requests];
    let finished = h2lab(&[&arguments[..], flags, &[&format!("http://{address}/")]].concat());
    // A server that completes nothing counts as unreachable. If nothing arrived, it may be our fault, when our process
    // was not running to receive it.
    finished.assert_code_unless_busy(3);
    accounted(&finished.json())
}

/// All requests failed, with any of these kinds, and the server is at fault.
#[track_caller]
fn assert_all_its_fault(errors: &[(String, String, u64)], kinds: &[&str]) {
    assert_eq!(errors.iter().map(|(.., count)| count).sum::<u64>(), REQUESTS, "{errors:?}");
    for (kind, fault, _) in errors {
        assert!(fault == "sut" && kinds.contains(&kind.as_str()), "{errors:?}");
    }
}

fn closed() -> io::Error {
    io::Error::other("the script ends the connection")
}

#[test]
fn a_server_that_closes_in_the_middle_of_each_response_failed_every_request() {
    let errors = meet(PATIENT, |stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")?;
        Err(closed())
    });
    assert_all_its_fault(&errors, &["closed"]);
}

#[test]
fn a_server_that_resets_each_connection_failed_every_request() {
    let errors = meet(PATIENT, |stream| {
        SockRef::from(&*stream).set_linger(Some(Duration::ZERO))?;
        Err(closed())
    });
    assert_all_its_fault(&errors, &["closed"]);
}

#[test]
fn a_server_that_talks_nonsense_failed_every_request() {
    let errors = meet(PATIENT, |stream| stream.write_all(b"\x00\x01\x02 220 mail.example ready\r\n\r\n"));
    assert_all_its_fault(&errors, &["protocol"]);
}

#[test]
fn a_server_that_never_answers_runs_into_the_timeout_of_every_request() {
    // In two rounds: a machine that pauses leaves at least one of them undisturbed.
    let errors = meet(&["-c10", "--timeout=3s"], |_| Ok(()));
    assert!(errors.iter().all(|(kind, ..)| kind == "timeout"), "{errors:?}");
    assert!(errors.iter().any(|(_, fault, _)| fault == "sut"), "{errors:?}");
}

#[test]
fn a_body_that_trickles_beyond_the_timeout_is_cut_off_by_us() {
    // All at once: each is answered, and then begins to wait.
    let errors = meet(&["-c20", "--timeout=10s"], |stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")?;
        // Until the client has closed.
        loop {
            stream.write_all(b"x")?;
            std::thread::park_timeout(Duration::from_millis(20));
        }
    });
    assert!(errors.iter().all(|(kind, fault, _)| kind == "timeout" && fault == "client"), "{errors:?}");
}

#[test]
fn a_server_without_tls_on_its_tls_port_costs_no_more_than_the_time_to_connect() {
    // It accepts, reads nothing and sends nothing, until the client has closed.
    let address = server(|mut stream| stream.read_to_end(&mut Vec::new()).map(drop));
    let url = format!("https://{address}/");
    for (arguments, why) in [
        (
            &["load", "-n1", "-c1", "--connect-timeout=3s", "--proto=h1s"][..],
            "TLS was not established within 3s",
        ),
        (
            &["load", "-n1", "-c1", "--connect-timeout=3s", "--proto=h2"][..],
            "TLS was not established within 3s",
        ),
        (&["compare", "--connect-timeout=3s", "--proto=h2"][..], "TLS was not established within 3s"),
        (
            &["bulk", "get", "--discard", "--timeout=2s", "--proto=h2"][..],
            "TLS was not established within 2s",
        ),
        (
            &["bulk", "drive", "--clients=local", "-z1s", "--servers"][..],
            "work ended before TLS was established",
        ),
    ] {
        let finished = h2lab(&[arguments, &[url.as_str(), "-k"]].concat());
        assert_eq!(finished.code, Some(3), "{}", finished.transcript());
        let words = finished.transcript().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(why), "{}", finished.transcript());
    }
}

#[test]
fn a_malformed_response_is_no_silence() {
    // `:status: 99x`, as a literal.
    let address = server(|mut stream| {
        stream.read_exact(&mut [0; PREFACE.len()])?;
        stream.write_all(&frame(kind::SETTINGS, 0, 0, &[]))?;
        while let Ok((header, _)) = read_frame(&mut stream) {
            if header.kind == kind::HEADERS {
                let flags = flag::END_HEADERS | flag::END_STREAM;
                stream.write_all(&frame(kind::HEADERS, flags, header.stream, b"\x08\x0399x"))?;
            }
        }
        Ok(())
    });
    let finished = h2lab(&["compare", "--proto=h2c", "--out=run", &format!("http://{address}/")]);
    assert_eq!(finished.code, Some(3), "{}", finished.transcript());
    assert!(finished.stderr.contains("its response is malformed"), "{}", finished.transcript());
}

#[test]
fn a_timeline_of_which_one_exchange_is_missing_is_none() {
    // The first connection is answered, all others are closed.
    let accepted = Arc::new(AtomicU32::new(0));
    let address = server(move |mut stream| {
        read_head(&mut stream)?;
        if accepted.fetch_add(1, Ordering::Relaxed) > 0 {
            return Err(closed());
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")?;
        read_head(&mut stream)
    });
    let finished = h2lab(&["timeline", "--json", "--http1.1", "-n3", &format!("http://{address}/")]);
    assert_eq!(finished.code, Some(3), "{}", finished.transcript());
    assert!(finished.stderr.contains("2 of 3 requests not answered"), "{}", finished.transcript());
    assert_eq!(finished.json()["answered"], 1, "{}", finished.transcript());
}

#[test]
fn answers_behind_a_goaway_count_and_the_rest_is_asked_again_elsewhere() {
    // Each connection announces its end with the first request and still answers it.
    let address = server(|mut stream| {
        stream.read_exact(&mut [0; PREFACE.len()])?;
        let greeting = [frame(kind::SETTINGS, 0, 0, &[]), frame(kind::SETTINGS, flag::ACK, 0, &[])].concat();
        stream.write_all(&greeting)?;
        while let Ok((header, _)) = read_frame(&mut stream) {
            if header.kind == kind::HEADERS && header.stream <= 3 {
                let last = [3_u32.to_be_bytes(), [0; 4]].concat();
                stream.write_all(&frame(kind::GOAWAY, 0, 0, &last))?;
                stream.write_all(&served(header.stream))?;
            }
        }
        Ok(())
    });
    let url = format!("http://{address}/");
    let requests = REQUESTS.to_string();
    let arguments =
        ["load", "--json", "--quiet", "--no-store", "--proto=h2c", "-c1", "-m4", "-n", &requests, &url];
    let document = h2lab(&arguments).json();
    assert_eq!(accounted(&document), [], "{}", document["requests"]);
    assert!(document["connections_opened"].as_u64() >= Some(REQUESTS / 2));
}

#[test]
fn unusual_statuses_and_responses_without_a_body_are_complete_responses() {
    let origin = Origin::start(&[]);
    for (address, flags) in [(origin.clear, ["--proto=h1", "-c2"]), (origin.clear, ["--proto=h2c", "-c1"])] {
        for (path, method, failed) in [
            ("/status/204", "GET", 0),
            ("/status/304", "GET", 0),
            ("/bytes/1000", "HEAD", 0),
            ("/status/418", "GET", REQUESTS),
            ("/status/599", "POST", REQUESTS),
        ] {
            let (url, requests) = (format!("http://{address}{path}"), REQUESTS.to_string());
            let arguments = ["load", "--json", "--quiet", "--no-store", "-X", method, "-n", &requests, &url];
            let document = h2lab(&[&arguments[..], &flags].concat()).json();
            let errors = accounted(&document);
            assert_eq!(errors.iter().map(|(.., count)| count).sum::<u64>(), failed, "{path} {flags:?}");
            assert!(errors.iter().all(|(kind, ..)| kind == "status"), "{errors:?}");
        }
    }
}

#[test]
fn huge_bodies_arrive_whole() {
    let origin = Origin::start(&[]);
    for protocol in ["h1", "h2c"] {
        let url = format!("http://{}/bytes/48M", origin.clear);
        let folder = folder();
        let arguments = ["load", "--quiet", "--out=run", "--proto", protocol, "-n4", "-c2", &url];
        let finished = run_program(&binary(), folder.path(), &arguments);
        let run =
            store::read(&folder.path().join("run")).unwrap_or_else(|_| panic!("{}", finished.transcript()));
        let bytes: Vec<u64> = run.repetitions[0].samples.iter().map(|sample| sample.body_bytes).collect();
        assert_eq!(bytes, [48 << 20; 4], "{protocol}");
    }
}

#[test]
fn a_pool_grows_to_its_bound_and_not_beyond() {
    let origin = Origin::start(&[]);
    let url = format!("http://{}/delay/100", origin.clear);
    let arguments =
        ["load", "--json", "--quiet", "--no-store", "-q100", "-n20", "-c1", "--max-connections=4", &url];
    let document = h2lab(&arguments).json();
    assert_eq!(accounted(&document), []);
    let opened = document["connections_opened"].as_u64().expect("a count");
    assert!((2..=4).contains(&opened), "{opened}");
}

#[test]
fn an_expired_certificate_is_refused_and_with_k_it_is_not_looked_at() {
    let folder = folder();
    let mut parameters = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).expect("a valid name");
    parameters.not_before = rcgen::date_time_ymd(2001, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(2002, 1, 1);
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate = parameters.self_signed(&key).expect("a certificate");
    let [pem, key_pem] = ["c.pem", "c.key"].map(|name| folder.path().join(name));
    std::fs::write(&pem, certificate.pem()).expect("a temporary file");
    std::fs::write(&key_pem, key.serialize_pem()).expect("a temporary file");
    let [cert, key] = [format!("--cert={}", pem.display()), format!("--key={}", key_pem.display())];
    let origin = Origin::start(&[&cert, &key]);
    let url = format!("https://{}/", origin.tls);
    let trusted = format!("--cacert={}", pem.display());
    let refused = h2lab(&["load", "--quiet", "--no-store", "-n1", &trusted, &url]);
    assert_eq!(refused.code, Some(3), "{}", refused.transcript());
    assert!(refused.stderr.contains("xpired"), "{}", refused.transcript());
    let taken = h2lab(&["load", "--quiet", "--no-store", "-n1", "-k", &url]);
    taken.assert_measured();
}

#[test]
fn sigterm_keeps_and_prints_what_was_measured_and_so_does_a_repeated_one() {
    let origin = Origin::start(&[]);
    let folder = folder();
    let mut process = Command::new(binary())
        .current_dir(folder.path())
        .args(["load", "-c2", "-z60s", "--out=run", &format!("http://{}/delay/5", origin.clear)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let mut progress = BufReader::new(process.stderr.take().expect("it is piped")).lines();
    let report = progress.find(|line| line.as_ref().is_ok_and(|line| line.contains("answered")));
    assert!(report.is_some(), "it has measured something");
    // `timeout` sends it to the process and to its group.
    for _ in 0..20 {
        kill_process(Pid::from_child(&process), Signal::TERM).expect("it was not waited for");
        std::thread::sleep(Duration::from_millis(1));
    }
    progress.for_each(drop);
    let output: Finished = process.wait_with_output().expect("it ends").into();
    assert_eq!(output.code, Some(130), "{}", output.transcript());
    assert!(output.stdout.contains("succeeded"), "{}", output.transcript());
    let run = store::read(&folder.path().join("run")).expect("it was kept");
    assert!(run.interrupted && !run.repetitions[0].samples.is_empty());
}

#[test]
fn a_full_disk_costs_the_file_and_not_the_figures() {
    let origin = Origin::start(&[]);
    let folder = folder();
    std::os::unix::fs::symlink("/dev/full", folder.path().join("r.json")).expect("a temporary folder");
    let url = format!("http://{}/", origin.clear);
    let arguments = ["load", "--quiet", "--no-store", "-n20", "-c2", "-o", "r.json", &url];
    let finished = run_program(&binary(), folder.path(), &arguments);
    assert_ne!(finished.code, Some(0), "{}", finished.transcript());
    assert!(
        finished.stderr.contains("r.json") && finished.stderr.contains("space"),
        "{}",
        finished.transcript()
    );
    assert!(finished.stdout.contains("20 succeeded"), "{}", finished.transcript());
}

#[test]
fn a_disk_that_is_full_leaves_no_half_of_a_run_and_is_this_machines_fault() {
    let origin = Origin::start(&[]);
    let folder = folder();
    // A disk of 64 KiB, which a user may mount in a namespace of their own.
    let script = "mount -t tmpfs -o size=64k none . && cd \"$PWD\" && \"$0\" load --quiet -n20000 -c4 --out run \"$1\"; code=$?; \
                  ls; exit $code";
    let url = format!("http://{}/", origin.clear);
    let h2lab = binary().display().to_string();
    let arguments = ["--map-root-user", "--mount", "sh", "-c", script, h2lab.as_str(), url.as_str()];
    let finished = run_program(Path::new("unshare"), folder.path(), &arguments);
    assert_eq!(finished.code, Some(4), "{}", finished.transcript());
    assert_eq!(finished.stderr.matches("No space left").count(), 1, "{}", finished.transcript());
    assert!(finished.stdout.contains("20,000 succeeded"), "{}", finished.transcript());
    assert!(!finished.stdout.lines().any(|line| line == "run"), "{}", finished.transcript());
}

#[test]
fn a_dump_to_a_full_disk_is_this_machines_fault() {
    let origin = Origin::start(&[]);
    let url = format!("http://{}/", origin.clear);
    let folder = folder();
    std::os::unix::fs::symlink("/dev/full", folder.path().join("d.csv")).expect("a temporary folder");
    let arguments = ["load", "--quiet", "--no-store", "-n2000", "-c2", "--dump=d.csv", &url];
    let finished = run_program(&binary(), folder.path(), &arguments);
    assert_eq!(finished.code, Some(4), "{}", finished.transcript());
    assert!(finished.stdout.contains("2,000 succeeded"), "{}", finished.transcript());
}

/// The result of a shell script with h2lab as `$0` and an origin as `$1`.
#[track_caller]
fn scripted(script: &str) -> Finished {
    let (origin, folder) = (Origin::start(&[]), folder());
    let (h2lab, url) = (binary().display().to_string(), format!("http://{}", origin.clear));
    run_program(Path::new("sh"), folder.path(), &["-c", script, &h2lab, &url])
}

#[test]
fn what_cannot_be_said_on_stderr_costs_no_result() {
    for script in [
        "exec \"$0\" load --json --no-store -n20 \"$1\" 2>/dev/full",
        "exec \"$0\" load --json --no-store -n20 \"$1\" 2>&-",
    ] {
        let finished = scripted(script);
        finished.assert_measured();
        accounted(&finished.json());
    }
    let refused = scripted("exec \"$0\" bulk get nonsense 2>/dev/full");
    assert_eq!(refused.code, Some(2), "{}", refused.transcript());
}

#[test]
fn what_cannot_be_printed_is_this_machines_fault_and_no_panic() {
    for command in [
        "--help",
        "--version",
        "load --help",
        "load --help-all",
        "gen completions bash",
        "explain",
        "explain CONN101",
        "doctor",
        "run --list",
        "origin --listen 127.0.0.1:0",
        "load -s --no-store -n20 \"$1\"",
        "load -s --no-store -n20 --dump - \"$1\"",
        "trace \"$1\"",
        "trace --json \"$1\"",
        "link --json --client true",
    ] {
        let finished = scripted(&format!("exec \"$0\" {command} >/dev/full"));
        assert_eq!(finished.code, Some(4), "{command}: {}", finished.transcript());
        let says = &finished.stderr;
        assert!(says.contains("standard output"), "{command}: {}", finished.transcript());
        assert_eq!(
            says.lines().last().unwrap_or_default().matches("os error 28").count(),
            1,
            "{command}: {says}"
        );
    }
}

#[test]
fn a_reader_that_has_closed_the_pipe_ends_a_page_quietly() {
    for command in ["--help", "--version", "explain", "doctor", "gen completions bash", "run --list"] {
        // A pipe whose only reader closes before anything is written.
        let script = format!("mkfifo p && exec 3<>p 4>p 3<&- && exec \"$0\" {command} >&4");
        let finished = scripted(&script);
        assert_eq!(finished.code, Some(0), "{command}: {}", finished.transcript());
        assert_eq!(finished.stderr, "", "{command}");
    }
}

#[test]
fn a_limit_of_the_length_of_files_is_an_error_and_no_signal() {
    for (script, words) in [
        (
            "ulimit -f 16; \"$0\" load --quiet -n5000 --out run \"$1\"; code=$?; ls; exit $code",
            "5,000 succeeded",
        ),
        (
            "ulimit -f 8; \"$0\" load --no-store -n20 -o r.html \"$1\"; code=$?; ls; exit $code",
            "20 succeeded",
        ),
    ] {
        let finished = scripted(script);
        assert_eq!(finished.code, Some(4), "{}", finished.transcript());
        assert!(finished.stdout.contains(words), "{}", finished.transcript());
        let left = |line: &str| line == "run" || line == "r.html";
        assert!(!finished.stdout.lines().any(left), "half of it is left: {}", finished.transcript());
    }
}

#[test]
fn too_many_open_files_are_this_machines_fault_and_not_the_servers() {
    for command in ["trace -c50 -n50 \"$1\"", "compare --quick --loss=0% --proto=h1 --out=run"] {
        let finished = scripted(&format!("ulimit -n 16; exec \"$0\" {command}"));
        assert_eq!(finished.code, Some(4), "{command}: {}", finished.transcript());
        assert!(finished.stderr.contains("Too many open files"), "{command}: {}", finished.transcript());
    }
}

#[test]
fn threads_that_cannot_be_started_are_this_machines_fault_and_no_panic() {
    // prlimit is in the same package.
    let Some(_) = need("setpriv") else { return };
    let origin = Origin::start(&[]);
    let url = format!("http://{}/bytes/10000", origin.clear);
    for command in [
        "load --no-store -n20 -c2 -t2",
        "load --no-store -n20 --dump=dump.csv",
        "load --no-store -n20 --prometheus=0",
        "compare --out=run -q20 -z1s --repetitions=1",
        "bulk get -o got",
        "bulk serve --listen=127.0.0.1:0 --writable .",
    ] {
        let words = command.split(' ').chain(Some(url.as_str()).filter(|_| !command.contains("serve")));
        // The limit allows only the process itself.
        let finished = as_nobody_behind(&["prlimit", "--nproc=1"], &words.collect::<Vec<_>>());
        assert_eq!(finished.code, Some(4), "{command}: {}", finished.transcript());
        assert!(finished.stderr.contains("Resource temporarily unavailable"), "{}", finished.transcript());
    }
}

#[test]
fn a_file_to_be_sent_that_is_not_there_is_a_wrong_name() {
    for name in ["nothing", "."] {
        let finished = scripted(&format!("exec \"$0\" bulk put {name} \"$1/x\""));
        assert_eq!(finished.code, Some(2), "{name}: {}", finished.transcript());
    }
}

/// `results/` has the large version: 10,000 connections with 100 streams each.
#[test]
fn many_streams_are_held_open_at_once_in_little_memory() {
    const CONNECTIONS: u64 = 200;
    const IN_FLIGHT: u64 = 100 * CONNECTIONS;
    let origin = Origin::start(&["--max-concurrent-streams=100"]);
    let folder = folder();
    // The answers are so late that all connections exist before the first one: a connection that has its answer takes
    // requests that wait for another connection.
    let url = format!("http://{}/delay/3000", origin.clear);
    let (connections, requests) = (CONNECTIONS.to_string(), IN_FLIGHT.to_string());
    let arguments =
        ["load", "--quiet", "--out=run", "--proto=h2c", "-m100", "-c", &connections, "-n", &requests, &url];
    let finished = run_program(&binary(), folder.path(), &arguments);
    let run = store::read(&folder.path().join("run")).unwrap_or_else(|_| panic!("{}", finished.transcript()));
    let repetition = &run.repetitions[0];
    assert_eq!(
        repetition.samples.iter().filter(|sample| sample.outcome.is_success()).count() as u64,
        IN_FLIGHT
    );
    assert!(repetition.connections.iter().all(|connection| connection.requests == 100));
    assert_eq!(repetition.connections.len() as u64, CONNECTIONS);
    let first_answer = repetition.samples.iter().map(|sample| sample.completed_at).min();
    let waited = repetition.samples.iter().filter(|sample| Some(sample.sent_at) < first_answer).count();
    println!("{waited} of {IN_FLIGHT} were open when the first was answered");
    let memory = repetition.generator.memory;
    println!("{memory:?}");
    // On a busy machine some requests are in flight before the last connection is: only the sum has a bound.
    let (all, most) = (memory.peak - memory.before, CONNECTIONS * (32 << 10) + IN_FLIGHT * (1 << 10));
    assert!(
        all < most,
        "{all} bytes, and with 32 KiB a connection and 1 KiB a request in flight it would be {most}"
    );
    for words in ["a connection", "a request in flight"] {
        assert!(finished.stdout.contains(words), "{words}\n{}", finished.transcript());
    }
}

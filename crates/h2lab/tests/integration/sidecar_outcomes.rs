//! Instances that fail in ways that look like success: very fast, in gRPC's trailers, or with something that is not a
//! response; and when they are checked.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::sidecar_admin::Watched;
use crate::sidecar_guard::{get, response, server};
use crate::support::{DEADLINE, binary, folder, h2lab};

/// A sidecar with an admin listener and a log for the service `users`; `more` follows `[service.users]`.
fn sidecar(instances: &[&str], more: &str) -> (Watched, std::path::PathBuf, impl Sized + use<>) {
    let folder = folder();
    let [config, log] = ["sidecar.toml", "access.log"].map(|name| folder.path().join(name));
    let text = format!(
        "[[listen]]\naddress = \"127.0.0.1:0\"\nservice = \"users\"\n[admin]\naddress = \"127.0.0.1:0\"\n[log]\nfile = \"{}\"\n\
         format = \"json\"\n[service.users]\ninstances = {instances:?}\n{more}\n",
        log.display()
    );
    fs::write(&config, text).expect("a file");
    let mut command = std::process::Command::new(binary());
    command.arg("sidecar").arg("--config").arg(&config);
    (Watched::run(command), log, folder)
}

/// All that arrives after a request, to the end.
fn ask(sidecar: &Watched, request: &str) -> String {
    let mut stream = TcpStream::connect(sidecar.clear).expect("it listens");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut told = String::new();
    stream.read_to_string(&mut told).expect("text, and then the end");
    told
}

/// The line of the log that contains this word; waits for it.
fn logged(log: &std::path::Path, word: &str) -> Value {
    let until = Instant::now() + DEADLINE;
    loop {
        let text = fs::read_to_string(log).unwrap_or_default();
        if let Some(line) = text.lines().find(|line| line.contains(word)) {
            return serde_json::from_str(line).expect("JSON");
        }
        assert!(Instant::now() < until, "{word} is not in {text}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_instance_that_answers_500_at_once_does_not_get_all_requests_and_is_named() {
    let bad = server(|_| Some(response(500, "bad")));
    let good = server(|_| Some(response(200, "good")));
    // The bad instance is never left out: only the choice between the two can avoid it.
    let (sidecar, _log, _folder) = sidecar(&[&bad, &good], "outlier = { consecutive = 0, failures = 0 }");
    let failed = (0..400).filter(|_| !ask(&sidecar, &get("/", "")).ends_with("good")).count();
    assert!((1..80).contains(&failed), "{failed} of 400");
    let (_, metrics) = sidecar.get("/metrics");
    let line = format!(
        "h2lab_sidecar_instance_responses_total{{service=\"users\",instance=\"{bad}\",code=\"5xx\"}} {failed}"
    );
    assert!(metrics.lines().any(|own| own == line), "{line} is not in\n{metrics}");
    // A share needs at least this many requests; sometimes more of them come.
    let until = Instant::now() + DEADLINE;
    let words = loop {
        (0..100).for_each(|_| drop(sidecar.ask(&get("/", ""))));
        let told = h2lab(&["diagnose", "--sidecar", &sidecar.admin_url()]);
        let words = told.transcript().split_whitespace().collect::<Vec<_>>().join(" ");
        if words.contains("answers 100 % of its requests with 5xx") {
            break words;
        }
        assert!(Instant::now() < until, "{words}");
    };
    assert!(words.contains(&bad) && words.contains("the others fail 0 %"), "{words}");
    sidecar.stop();
}

#[test]
fn a_status_of_grpc_is_logged_counted_and_a_reason_to_leave_an_instance_out() {
    let trailers = |code: &'static str| {
        move |head: &str| {
            let only = head.starts_with("POST /only ");
            let rest = format!("grpc-status: {code}\r\n\r\n");
            Some(if only {
                format!("HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\ncontent-length: 0\r\n{rest}")
            } else {
                format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/grpc\r\ntrailer: grpc-status\r\n\
                     transfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n{rest}"
                )
            })
        }
    };
    let (bad, good) = (server(trailers("14")), server(trailers("0")));
    let rules = "outlier = { consecutive = 4, base = \"1h\", most = \"1h\" }";
    let (sidecar, log, _folder) = sidecar(&[&bad, &good], rules);
    let call = |path: &str| {
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: a\r\nte: trailers\r\ncontent-type: application/grpc\r\nconnection: close\r\n\
             content-length: 0\r\n\r\n"
        );
        ask(&sidecar, &request)
    };
    let is_out = || {
        sidecar
            .get("/metrics")
            .1
            .lines()
            .any(|line| line == "h2lab_sidecar_ejections_total{service=\"users\"} 1")
    };
    let until = Instant::now() + DEADLINE;
    let mut n = 0;
    while !is_out() {
        n += 1;
        call(if n % 2 == 0 { "/only" } else { "/trailers" });
        assert!(Instant::now() < until, "it is never left out");
    }
    for _ in 0..10 {
        assert!(call("/trailers").contains("grpc-status: 0"), "only the other one is asked");
    }
    let line = logged(&log, "UNAVAILABLE");
    assert_eq!((&line["grpc_status"], &line["status"]), (&Value::from("UNAVAILABLE"), &Value::from(200)));
    assert_eq!(line["instance"], Value::from(bad.as_str()));
    assert_eq!(logged(&log, "\"OK\"")["instance"], Value::from(good.as_str()));
    let (_, metrics) = sidecar.get("/metrics");
    for name in [
        "grpc_responses_total{service=\"users\",code=\"UNAVAILABLE\"} ",
        "grpc_responses_total{service=\"users\",code=\"OK\"} ",
    ] {
        assert!(metrics.contains(name), "{name} is not in\n{metrics}");
    }
    let failures = format!("instance_grpc_failures_total{{service=\"users\",instance=\"{bad}\"}} 4");
    assert!(metrics.lines().any(|line| line.ends_with(&failures)), "{failures} is not in\n{metrics}");
    sidecar.stop();
}

#[test]
fn a_response_that_names_more_fields_in_connection_than_may_be_is_answered_502() {
    let url = server(|head| {
        let count = if head.starts_with("GET /sixteen ") { 16 } else { 17 };
        let names: Vec<String> = (1..=count).map(|n| format!("x-hop-{n}")).collect();
        let options = format!("connection: {}\r\nx-hop-{count}: secret\r\n", names.join(", "));
        let ok = |more: &str| format!("HTTP/1.1 200 OK\r\n{more}content-length: 2\r\n\r\nok");
        let early = format!("HTTP/1.1 103 Early Hints\r\n{options}\r\n");
        Some(if head.starts_with("GET /hints ") { early + &ok("") } else { ok(&options) })
    });
    let (sidecar, log, _folder) = sidecar(&[&url], "");
    let told = ask(&sidecar, &get("/sixteen", ""));
    assert!(told.starts_with("HTTP/1.1 200 ") && !told.contains("secret"), "{told}");
    for path in ["/seventeen", "/hints"] {
        let told = ask(&sidecar, &get(path, ""));
        assert!(told.starts_with("HTTP/1.1 502 ") && !told.contains("secret"), "{told}");
        let why = logged(&log, path)["failed"].to_string();
        assert!(why.contains("malformed: more than 16 options of Connection"), "{why}");
    }
    sidecar.stop();
}

/// An HTTP/2 server whose responses have a field with an upper-case name (RFC 9113 §8.2), which no response may.
fn shouting() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("h2c://{}", listener.local_addr().expect("an address"));
    let play = |mut stream: TcpStream| -> std::io::Result<()> {
        stream.read_exact(&mut [0; 24])?;
        stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0])?;
        loop {
            let mut head = [0; 9];
            stream.read_exact(&mut head)?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            std::io::copy(&mut (&mut stream).take(length.into()), &mut std::io::sink())?;
            match (head[3], head[4] & 1) {
                (4, 0) => stream.write_all(&[0, 0, 0, 4, 1, 0, 0, 0, 0])?,
                // `:status: 200` of the static table, and `X: y`, literally.
                (1, _) => stream
                    .write_all(&[&[0, 0, 6, 1, 5][..], &head[5..9], &[0x88, 0, 1, b'X', 1, b'y']].concat())?,
                _ => {}
            }
        }
    };
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("a connection");
            thread::spawn(move || play(stream));
        }
    });
    url
}

#[test]
fn what_the_sidecar_refuses_of_an_instance_is_no_reset_of_that() {
    for url in [
        shouting(),
        server(|_| Some("HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab".to_owned())),
    ] {
        let (sidecar, log, _folder) = sidecar(&[&url], "");
        let told = ask(&sidecar, &get("/", ""));
        let lower = told.to_lowercase();
        assert!(told.starts_with("HTTP/1.1 502 ") && lower.contains("error=http_protocol_error"), "{told}");
        assert!(told.contains("the instance's response is malformed"), "{told}");
        let line = logged(&log, "malformed");
        let why = line["failed"].as_str().expect("it says why");
        assert!(
            why.starts_with("the instance's response is malformed: ") && why.len() > 45,
            "in what: {why}"
        );
        let (_, metrics) = sidecar.get("/metrics");
        for (name, n) in
            [("responses_malformed_total", 1), ("streams_reset_total", 0), ("connections_broken_total", 0)]
        {
            let line = format!("h2lab_sidecar_{name}{{service=\"users\",instance=\"{url}\"}} {n}");
            assert!(metrics.lines().any(|own| own == line), "{line} is not in\n{metrics}");
        }
        sidecar.stop();
    }
}

#[test]
fn checks_of_several_instances_do_not_all_come_at_once() {
    let begun = Instant::now();
    let checks: Arc<Mutex<Vec<(usize, Duration)>>> = Arc::default();
    let instances: Vec<String> = (0..12)
        .map(|number| {
            let checks = Arc::clone(&checks);
            server(move |_| {
                checks.lock().expect("no panic").push((number, begun.elapsed()));
                Some(response(200, "well"))
            })
        })
        .collect();
    let urls: Vec<&str> = instances.iter().map(String::as_str).collect();
    let (sidecar, ..) =
        sidecar(&urls, "health = { path = \"/healthz\", interval = \"2s\", timeout = \"1h\" }");
    let until = Instant::now() + DEADLINE;
    let firsts = loop {
        let seen = checks.lock().expect("no panic").clone();
        let firsts: Vec<Duration> =
            (0..12).filter_map(|n| Some(seen.iter().find(|(of, _)| *of == n)?.1)).collect();
        if firsts.len() == 12 {
            break firsts;
        }
        assert!(Instant::now() < until, "only {firsts:?}");
        thread::sleep(Duration::from_millis(20));
    };
    // On a busy machine some checks are late, which brings none of them closer to the first one.
    let (first, last) = (firsts.iter().min(), firsts.iter().max());
    let apart = last.expect("12").saturating_sub(*first.expect("12"));
    assert!(apart > Duration::from_millis(500), "{firsts:?}");
    sidecar.stop();
}

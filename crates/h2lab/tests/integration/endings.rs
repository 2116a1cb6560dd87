//! How runs end: in the middle of their plan, with cells that could not be measured, and reported again from their folders.
//!
//! The server is made here, so that the requests that it has seen, and not the clock, decide when something happens.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

use crate::support::{Finished, folder, h2lab};

const ENDED: i32 = 1;
const USAGE: i32 = 2;
const UNREACHABLE: i32 = 3;
const CANNOT: i32 = 4;

/// Requests on one connection after which something happens to the first repetition: fewer than a repetition sends, more than the
/// search for protocols does.
const IN_THE_FIRST_REPETITION: usize = 10;

/// A server that speaks HTTP/1.1 only.
struct Http1 {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Http1 {
    /// Starts it on a free port, for as long as the tests run or until it is gone: `happening`, called after each
    /// response with the number of those on its connection, says `true` when no connection is to be accepted any more.
    fn start(happening: impl Fn(usize) -> bool + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let heads = Arc::new(Mutex::new(Vec::new()));
        let (seen, is_gone) = (Arc::clone(&heads), Arc::new(AtomicBool::new(false)));
        let happening = Arc::new(happening);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if is_gone.load(Ordering::SeqCst) {
                    return; // and the listener is closed with it
                }
                let (seen, happening, is_gone) = (seen.clone(), happening.clone(), is_gone.clone());
                thread::spawn(move || {
                    let mut answered = 0;
                    // A client that aborts its connection is no error of the server.
                    let _ = serve(stream, &mut |head| {
                        seen.lock().unwrap().push(head);
                        answered += 1;
                        if happening(answered) && !is_gone.swap(true, Ordering::SeqCst) {
                            drop(TcpStream::connect(address)); // wakes the listener
                        }
                    });
                });
            }
        });
        Self { address, heads }
    }

    fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Measures it with one repetition of a second to each cell, into `out`.
    fn compare(&self, out: &Path, more: &[&str]) -> Finished {
        let (url, out) = (self.url(), format!("--out={}", out.display()));
        h2lab(&[&["compare", &url, &out, "--json", "-z=1s", "--repetitions=1"], more].concat())
    }
}

/// Answers each request of a connection, and reports its head.
fn serve(stream: TcpStream, report: &mut dyn FnMut(String)) -> std::io::Result<()> {
    let mut out = stream.try_clone()?;
    let mut lines = BufReader::new(stream).lines();
    loop {
        let mut head = String::new();
        loop {
            match lines.next() {
                None => return Ok(()),
                Some(line) => match line? {
                    line if line.is_empty() => break,
                    line => head.extend([line.as_str(), "\n"]),
                },
            }
        }
        out.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")?;
        report(head);
    }
}

/// Label and state of each cell.
fn states(document: &Value) -> Vec<(&str, &str)> {
    let cells = document["cells"].as_array().expect("cells is a list").iter();
    cells.map(|cell| (cell["label"].as_str().unwrap(), cell["state"].as_str().unwrap())).collect()
}

/// The one error of a run that had something to report before it.
#[track_caller]
fn error(finished: &Finished) -> &str {
    let errors: Vec<&str> = finished.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 1, "{}", finished.transcript());
    errors[0]
}

#[test]
fn a_server_that_goes_away_ends_the_run_after_what_was_measured_is_reported() {
    let server = Http1::start(|answered| answered == IN_THE_FIRST_REPETITION);
    let folder = folder();
    let out = folder.path().join("run");
    let finished = server.compare(&out, &["--proto=h1,h1"]);
    assert_eq!(finished.code, Some(ENDED), "{}", finished.transcript());
    let document = finished.json();
    assert_eq!(states(&document).len(), 1, "the second repetition was not made\n{}", finished.transcript());
    assert!(
        document["cells"][0]["requests"]["succeeded"].as_u64().unwrap() > 20,
        "{}",
        finished.transcript()
    );
    assert_eq!(document["interrupted"], true);
    assert!(error(&finished).contains("refused") && error(&finished).contains("kept in"));
    assert!(error(&finished).contains("the server can no longer be reached"), "{}", finished.transcript());
    let again = h2lab(&["report", "--json", out.to_str().unwrap()]);
    assert_eq!(again.json()["cells"], document["cells"], "the folder says the same");
    assert!(out.join("report.html").exists());
    let diagnosed = h2lab(&["diagnose", out.to_str().unwrap()]);
    assert_eq!(diagnosed.code, Some(ENDED), "as the run itself: {}", diagnosed.transcript());
    assert!(error(&diagnosed).contains("the server can no longer be reached"), "{}", diagnosed.transcript());
}

#[test]
fn a_folder_that_cannot_be_written_ends_the_run_after_what_was_measured_is_reported() {
    let folder = folder();
    let out = folder.path().join("run");
    let parts = out.join("visits");
    // The disk is full: the next table finds no room.
    let server = Http1::start(move |answered| {
        if answered == IN_THE_FIRST_REPETITION {
            fs::remove_dir_all(&parts).expect("the run has begun");
        }
        false
    });
    let finished = server.compare(&out, &["--proto=h1,h1"]);
    assert_eq!(finished.code, Some(CANNOT), "{}", finished.transcript());
    assert_eq!(states(&finished.json()).len(), 1);
    assert!(error(&finished).contains("cannot be kept in"), "{}", finished.transcript());
    assert!(!error(&finished).contains("is kept"), "{}", finished.transcript());
    assert_eq!(error(&finished).matches(out.to_str().unwrap()).count(), 1, "{}", finished.transcript());
}

#[test]
fn a_wanted_protocol_that_the_server_does_not_speak_is_a_cell_of_its_own() {
    let server = Http1::start(|_| false);
    let folder = folder();
    let out = folder.path().join("run");
    let finished = server.compare(&out, &["--proto=h1,h2c"]);
    let document = finished.json();
    assert_eq!(finished.code, Some(UNREACHABLE), "{}", finished.transcript());
    assert!(error(&finished).contains("nothing to compare: h2c × 1: "), "{}", finished.transcript());
    assert_eq!(states(&document)[1], ("h2c × 1", "unsupported"), "{}", finished.transcript());
    let reason = document["cells"][1]["reasons"][0].as_str().unwrap();
    assert!(!reason.is_empty() && document["cells"][1]["repetitions"] == 0, "{reason}");
    assert_eq!(document["verdicts"][0]["verdict"], "unsupported");
    let text = h2lab(&["report", out.to_str().unwrap()]).stdout;
    let beginning: String = reason.chars().take(20).collect();
    assert!(text.contains(&format!("unsupported: {beginning}")), "{text}");
    assert!(fs::read_to_string(out.join("report.html")).unwrap().contains("unsupported: "));
}

#[test]
fn a_threshold_on_a_protocol_that_was_not_found_is_refused_before_measuring() {
    let server = Http1::start(|_| false);
    let folder = folder();
    let finished = server.compare(&folder.path().join("run"), &["--proto=h1", "--fail-if=h2c.p99 > 1"]);
    assert_eq!(finished.code, Some(USAGE), "{}", finished.transcript());
    assert!(error(&finished).contains("`h2c`") && error(&finished).ends_with("it has h1"));
    let heads = server.heads.lock().unwrap();
    let requests = heads.iter().filter(|head| head.starts_with("GET / ")).count();
    assert_eq!(requests, 1, "that of the search for protocols");
}

#[test]
fn a_server_of_one_protocol_compares_with_nothing_and_is_told_so_before_measuring() {
    let server = Http1::start(|_| false);
    let folder = folder();
    let finished = server.compare(&folder.path().join("run"), &[]);
    assert_eq!(finished.code, Some(UNREACHABLE), "{}", finished.transcript());
    for words in ["nothing to compare", "speaks h1 only", "h2lab load", "--proto h1"] {
        assert!(error(&finished).contains(words), "{words}: {}", finished.transcript());
    }
    let heads = server.heads.lock().unwrap();
    assert!(heads.iter().filter(|head| head.starts_with("GET / ")).count() == 1, "the search for protocols");
    drop(heads);
    let diagnosed = h2lab(&["diagnose", &server.url()]);
    assert_eq!(diagnosed.code, Some(UNREACHABLE), "as --help says: {}", diagnosed.transcript());
    assert!(error(&diagnosed).contains("there is no HTTP/2 to diagnose"), "{}", diagnosed.transcript());
}

#[test]
fn a_host_field_goes_where_the_authority_went() {
    let server = Http1::start(|_| false);
    let folder = folder();
    let finished = server.compare(&folder.path().join("run"), &["--proto=h1", "-H", "Host: elsewhere.test"]);
    finished.assert_measured();
    let heads = server.heads.lock().unwrap();
    let of_requests = heads.iter().filter(|head| head.starts_with("GET / "));
    for head in of_requests {
        let hosts: Vec<&str> = head.lines().filter(|line| line.to_lowercase().starts_with("host:")).collect();
        assert_eq!(hosts, ["host: elsewhere.test"]);
    }
}

#[test]
fn several_runs_are_one_document_and_one_page() {
    let server = Http1::start(|_| false);
    let folder = folder();
    let runs = ["first", "second"].map(|name| folder.path().join(name));
    let documents = runs.clone().map(|out| server.compare(&out, &["--proto=h1"]).json());
    let [first, second] = runs.each_ref().map(|path| path.to_str().unwrap());

    let alone = h2lab(&["report", "--json", first]).json();
    assert_eq!(alone["cells"], documents[0]["cells"], "one run is its own document");
    let files = ["html", "csv", "md"].map(|ending| folder.path().join(format!("both.{ending}")));
    let outputs = files.each_ref().map(|file| format!("-o={}", file.display()));
    let [html, csv, md] = outputs.each_ref().map(String::as_str);
    let both = h2lab(&["report", "--json", first, second, html, csv, md]);
    both.assert_measured();
    let list = both.json();
    for (k, document) in documents.iter().enumerate() {
        assert_eq!(list["runs"][k]["cells"], document["cells"]);
    }
    let [html, csv, md] = files.map(|file| fs::read_to_string(file).unwrap());
    assert!(html.contains("<h1>2 runs</h1>"));
    let named: Vec<&str> = csv.lines().map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(named, ["run", first, second]);
    let titles: Vec<&str> = md.lines().filter(|line| line.starts_with("# ")).collect();
    assert_eq!(titles.len(), 2, "one for each run; `diff` says how they differ: {titles:?}");
    let text = h2lab(&["report", first, second]).stdout;
    assert_eq!(text.lines().filter(|line| line.starts_with("Run ")).count(), 2, "{text}");
}

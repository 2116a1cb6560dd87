//! An upload to an instance that reads slowly: the sidecar holds little of it, and passes it on whole.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use h2lab_wire::h2::frame::{PREFACE, flag, kind};
use h2lab_wire::h2::inspect::FieldBlocks;

use crate::hostile::attacker::{Frames, frame, window_update};
use crate::hostile::server::served;
use crate::sidecar::Sidecar;
use crate::support::{Gate, allocated_bytes};

/// Bytes of the upload: more than the kernel's buffers on the path hold.
const UPLOAD: usize = 128 << 20;
/// How much the sidecar may grow.
const GROWTH: u64 = 24 << 20;

/// An instance that reads the body of a POST once the gate is open, and how many bytes that was.
fn instance(scheme: &str, gate: &Arc<Gate>) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("{scheme}://{}", listener.local_addr().expect("an address"));
    let (is_http2, gate, read) = (scheme == "h2c", Arc::clone(gate), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&read);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, gate, read) =
                (stream.expect("a connection"), Arc::clone(&gate), Arc::clone(&counted));
            // It ends with the sidecar.
            thread::spawn(
                move || if is_http2 { http2(stream, &gate, &read) } else { http1(stream, &gate, &read) },
            );
        }
    });
    (url, read)
}

fn http1(stream: TcpStream, gate: &Gate, read: &AtomicUsize) -> io::Result<()> {
    let mut answers = stream.try_clone()?;
    let mut stream = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if stream.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        if head.starts_with("POST ") {
            gate.wait();
            let n = io::copy(&mut stream.by_ref().take(UPLOAD as u64), &mut io::sink())?;
            read.fetch_add(n as usize, Ordering::SeqCst);
        }
        answers.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello")?;
    }
}

fn http2(mut stream: TcpStream, gate: &Arc<Gate>, read: &AtomicUsize) -> io::Result<()> {
    let mut answers = stream.try_clone()?;
    stream.read_exact(&mut [0; PREFACE.len()])?;
    // The connection's window is not a limit here: other requests share it.
    let ack = frame(kind::SETTINGS, flag::ACK, 0, &[]);
    answers.write_all(&[frame(kind::SETTINGS, 0, 0, &[]), ack, window_update(0, 1 << 30)].concat())?;
    let mut blocks = FieldBlocks::default();
    for (header, payload) in Frames(stream) {
        if header.kind == kind::HEADERS {
            let (fields, _) = blocks.decode(&payload).map_err(io::Error::other)?;
            if fields.iter().any(|field| field.value == b"POST") {
                let (gate, mut answers) = (Arc::clone(gate), answers.try_clone()?);
                thread::spawn(move || {
                    gate.wait();
                    answers.write_all(&window_update(header.stream, 1 << 30))
                });
            }
        }
        if header.kind == kind::DATA {
            read.fetch_add(payload.len(), Ordering::SeqCst);
        }
        if matches!(header.kind, kind::HEADERS | kind::DATA) && header.flags & flag::END_STREAM != 0 {
            answers.write_all(&served(header.stream))?;
        }
    }
    Ok(())
}

#[test]
fn an_upload_to_an_instance_that_reads_slowly_waits_and_comes_whole() {
    for scheme in ["http", "h2c"] {
        let gate = Arc::new(Gate::default());
        let (url, read) = instance(scheme, &gate);
        let sidecar = Sidecar::to(&[url], &[]);
        let get = || {
            let told = sidecar.ask("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
            assert!(told.starts_with("HTTP/1.1 200 "), "{scheme}: {told}");
        };
        get();
        let before = allocated_bytes(&sidecar.child);
        let (written, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            let upload = scope.spawn(|| {
                let mut client = sidecar.connect();
                let head = format!(
                    "POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {UPLOAD}\r\n\r\n"
                );
                client.write_all(head.as_bytes()).expect("it reads");
                let piece = vec![b'x'; 64 << 10];
                for _ in 0..UPLOAD / piece.len() {
                    client.write_all(&piece).expect("it reads on");
                    written.fetch_add(piece.len(), Ordering::SeqCst);
                }
                let mut told = String::new();
                client.read_to_string(&mut told).expect("an answer");
                is_over.store(true, Ordering::SeqCst);
                told
            });
            // Other requests are served, until the upload has not moved for as long as many of them take.
            let (mut last, mut still) = (0, 0);
            while still < 100 {
                get();
                let now = written.load(Ordering::SeqCst);
                still = if now == last && now > 0 { still + 1 } else { 0 };
                last = now;
            }
            assert!(!is_over.load(Ordering::SeqCst) && last < UPLOAD / 2, "{scheme}: it took {last} bytes");
            let grown = allocated_bytes(&sidecar.child).saturating_sub(before);
            println!("{scheme}: {last} bytes written, {grown} of them here");
            assert!(grown < GROWTH, "{scheme}: it grew by {grown} bytes");
            gate.open();
            let told = upload.join().expect("it was served");
            assert!(told.starts_with("HTTP/1.1 200 ") && told.contains("hello"), "{scheme}: {told}");
        });
        assert_eq!(read.load(Ordering::SeqCst), UPLOAD, "{scheme}");
        let last = sidecar.stop();
        assert!(last.contains("; none failed") && !last.contains("retried"), "{scheme}: {last}");
    }
}

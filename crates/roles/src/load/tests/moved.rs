//! The bytes of which a listener is told, as they go and come.

use std::io::{Read as _, Write as _};
use std::sync::atomic::AtomicU64;

use super::super::{SampleListener, run_observed};
use super::*;

/// Adds up what is moved, and stops the load with the first byte above `most`.
#[derive(Debug)]
struct ByteCount {
    moved: AtomicU64,
    most: u64,
    stop: Arc<AtomicBool>,
}

impl SampleListener for ByteCount {
    fn ended(&self, _: u32, _: &Sample) {}

    fn moved(&self, bytes: u64) {
        if self.moved.fetch_add(bytes, Ordering::Relaxed) + bytes > self.most {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

/// What a load gives that is stopped after `most` bytes, and of how many its listener was told.
fn counted(spec: &LoadSpec<'_>, most: u64) -> (LoadResult, u64) {
    let stop = Arc::<AtomicBool>::default();
    let count = Arc::new(ByteCount { moved: AtomicU64::new(0), most, stop: Arc::clone(&stop) });
    let listener = Arc::clone(&count) as Arc<dyn SampleListener>;
    let flag: &AtomicBool = &stop;
    let spec = LoadSpec { stop: Some(flag), ..spec.clone() };
    let result = run_observed(&spec, Some(&listener), &mut |_| ()).unwrap().close();
    (result, count.moved.load(Ordering::Relaxed))
}

#[test]
fn a_listener_is_told_of_all_that_connections_move_heads_and_frames_too() {
    for protocol in Protocol::ALL {
        let server = Server::start(protocol, Behaviour::Serves);
        for threads in [1, 2] {
            let spec = LoadSpec { threads, ..spec(protocol, &server) };
            let (result, moved) = counted(&spec, u64::MAX);
            let recorded: u64 = result
                .connections
                .iter()
                .map(|connection| connection.bytes_sent + connection.bytes_received)
                .sum();
            assert_eq!((count(&result, Outcome::Succeeded), moved), (50, recorded), "{protocol}");
            assert!(moved > 50 * (64 + 5), "more than the bodies: {moved}");
        }
    }
}

#[test]
fn a_body_that_is_never_sent_whole_is_counted_as_far_as_it_goes() {
    let server = Server::start(Protocol::H2c, Behaviour::KeepsCredit);
    let mut spec = together(Protocol::H2c, &server, 1);
    spec.cell.work.body_bytes = 100_000;
    spec.cell.work.phases.measure = DEADLINE;
    let (result, moved) = counted(&spec, 60_000);
    assert!(result.interrupted && moved > 60_000, "{moved}");
    assert_eq!(count(&result, Outcome::Unfinished), result.samples.len());
}

#[test]
fn a_response_that_never_ends_is_counted_as_far_as_it_comes() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let server = Server::start(Protocol::H1, Behaviour::Serves);
    let mut spec = together(Protocol::H1, &server, 1);
    spec.address = listener.local_addr().unwrap().into();
    spec.cell.work.phases.measure = DEADLINE;
    std::thread::scope(|scope| {
        let answering = scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n").unwrap();
            stream.write_all(&vec![b'x'; 100_000]).unwrap();
            stream // open until the load has ended
        });
        let (result, moved) = counted(&spec, 100_000);
        assert!(result.interrupted && moved > 100_000, "{moved}");
        assert_eq!((count(&result, Outcome::Unfinished), result.samples.len()), (1, 1));
        drop(answering.join().unwrap());
    });
}

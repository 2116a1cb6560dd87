use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use h2lab_base::units::Time;
use h2lab_wire::connection::Request;
use h2lab_wire::{Config, Connection, Event, Role};

use super::SERVED;
use crate::support::{DEADLINE, read_once};

/// Makes one request after the other, over HTTP/1.1 and HTTP/2 in turn, until it is stopped.
pub struct Bystander {
    ending: Arc<AtomicBool>,
    thread: JoinHandle<u32>,
}

impl Bystander {
    /// Begins to ask the server at `address` for `/` of an origin.
    pub fn begin(address: SocketAddr) -> Self {
        let ending = Arc::new(AtomicBool::new(false));
        let report = Arc::clone(&ending);
        let thread = std::thread::spawn(move || {
            let mut clients = [Client::new(address, false), Client::new(address, true)];
            let mut served = 0;
            while served < SERVED || !report.load(Ordering::Relaxed) {
                clients[served as usize % 2].ask();
                served += 1;
            }
            served
        });
        Self { ending, thread }
    }

    /// How many requests were served; fails if one was not.
    #[track_caller]
    pub fn end(self) -> u32 {
        self.ending.store(true, Ordering::Relaxed);
        self.thread.join().expect("every request of the bystander is served")
    }
}

/// One connection that is used again and again.
struct Client {
    stream: TcpStream,
    engine: Connection,
}

impl Client {
    fn new(address: SocketAddr, is_h2: bool) -> Self {
        let stream = TcpStream::connect(address).expect("the origin accepts");
        stream.set_read_timeout(Some(DEADLINE)).expect("a timeout above zero");
        stream.set_nodelay(true).expect("TCP");
        let config = Config::new(Role::Client);
        let engine = if is_h2 { Connection::h2(config, Time::ZERO) } else { Connection::h1(config) };
        Self { stream, engine }
    }

    /// One request and its whole answer.
    fn ask(&mut self) {
        let request = Request {
            method: "GET",
            authority: "bystander",
            path: "/",
            fields: &[],
            body_length: None,
            end_stream: true,
        };
        self.engine.send_request(Time::ZERO, &request).expect("the connection lives");
        let (mut status, mut length, mut ended) = (0, 0, false);
        while !ended {
            let pending = self.engine.poll_transmit(Time::ZERO).to_vec();
            self.stream.write_all(&pending).expect("the origin reads");
            self.engine.handle_transmitted(Time::ZERO, pending.len());
            let n =
                read_once(&mut self.stream, self.engine.recv_space()).expect("the origin answers in time");
            assert!(n > 0, "the origin closed the bystander's connection");
            self.engine.handle_received(Time::ZERO, n);
            while let Some(event) = self.engine.poll_event(Time::ZERO) {
                match event {
                    Event::Response { head, end_stream, .. } => (status, ended) = (head.status, end_stream),
                    Event::Data { data, end_stream, .. } => {
                        (length, ended) = (length + data.len(), end_stream);
                    }
                    Event::Settings => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        assert_eq!((status, length), (200, 1024));
    }
}

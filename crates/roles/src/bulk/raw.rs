//! TCP without HTTP: the reference for bulk transfers. One end writes the same bytes to each client that connects, as
//! fast as the kernel takes them; the other discards them. Both do what the HTTP ends do, on the same event loop in one
//! thread, and nothing else. (A program such as iperf3 would be a reference with its own clocks, threads and congestion
//! control.)

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_model::bulk::{ByteMeter, IoFigures, PartRecord};
use h2lab_model::record::{CloseReason, ConnectionRecord};
use h2lab_wire::StreamId;

use crate::client::connect;
use h2lab_net::clock::{Clock, process_cpu};
use h2lab_net::reactor::{Completion, Reactor, Token};
use h2lab_net::receive_buffer;
use h2lab_net::tcp::{ConnectOptions, Endpoint, Listener, Read, StreamSocket, Written};
use h2lab_net::tcp_info::TcpInfo;

/// Bytes that are passed to the kernel, or read from it, in one system call.
const PIECE: usize = 256 << 10;

/// System calls for one connection before the other connections get their turn.
const TURN: usize = 16;

/// How often the time and `stop` are checked.
const TICK: Duration = Duration::from_millis(100);

/// The pieces of a turn begin so many bytes apart, so that not all are badly aligned in their pages
/// ([`h2lab_net::storage::body`]).
const APART: usize = 257;

static FILLER: [u8; PIECE + TURN * APART] = [b'.'; PIECE + TURN * APART];

/// Listens on `address` and writes to each client that connects, until `stop` is set. `ready` is called with its address.
pub fn serve(
    address: SocketAddr,
    congestion: Option<&str>,
    stop: &AtomicBool,
    ready: &mut dyn FnMut(SocketAddr),
) -> io::Result<()> {
    const LISTENER: Token = Token(0);
    let clock = Clock::start();
    let mut reactor = Reactor::new(clock)?;
    let listener = Listener::bind_with(address, congestion)?;
    let at = listener.local_address()?;
    reactor.submit_accept(LISTENER, listener)?;
    ready(at);
    // By token; the listener's place stays empty.
    let mut streams: Vec<Option<StreamSocket>> = vec![None];
    // Streams whose sockets took all bytes of their last turn.
    let mut unsated: Vec<usize> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let again = std::mem::take(&mut unsated);
        reactor.wait(if again.is_empty() { clock.now() + TICK } else { Time::ZERO })?;
        let mut turns = again;
        while let Some(completion) = reactor.next_completion() {
            match completion {
                Completion::Accepted { result, .. } => {
                    let stream = result?;
                    let place = (1..streams.len()).find(|&place| streams[place].is_none());
                    let place = place.unwrap_or_else(|| {
                        streams.push(None);
                        streams.len() - 1
                    });
                    reactor.submit_stream(Token(place as u32), &stream)?;
                    streams[place] = Some(stream);
                }
                Completion::Ready { token, writable, hangup, .. } => {
                    let place = token.0 as usize;
                    if hangup {
                        reactor.forget(token);
                        streams[place] = None;
                    } else if writable && !turns.contains(&place) {
                        turns.push(place);
                    }
                }
                Completion::Timer { .. } | Completion::Connected { .. } => {}
            }
        }
        for place in turns {
            let Some(stream) = &streams[place] else { continue };
            match write(stream) {
                Ok(true) => unsated.push(place),
                Ok(false) => {}
                // The client has closed the connection: it needs no more bytes.
                Err(_) => {
                    reactor.forget(Token(place as u32));
                    streams[place] = None;
                }
            }
        }
    }
    Ok(())
}

/// Writes for one turn. Returns whether the socket would take more.
fn write(stream: &StreamSocket) -> io::Result<bool> {
    for piece in 0..TURN {
        match stream.write(&FILLER[piece * APART..][..PIECE])? {
            Written::Bytes(PIECE) => {}
            // A partial write is reported by the completion when there is room again.
            Written::Bytes(_) | Written::WouldBlock => return Ok(false),
        }
    }
    Ok(true)
}

/// What to read, from where.
#[derive(Debug, Clone)]
pub struct RawJob<'a> {
    /// The server.
    pub address: SocketAddr,
    /// Connections, each from the beginning to the end.
    pub connections: u32,
    /// Congestion control of our sockets.
    pub congestion: Option<&'a str>,
    /// For how long, from the moment at which the first connection is up.
    pub duration: Duration,
    /// What times are counted from.
    pub clock: Clock,
}

/// What was received.
#[derive(Debug)]
pub struct RawGot {
    /// How many bytes arrived when.
    pub meter: ByteMeter,
    /// What each connection carried.
    pub parts: Vec<PartRecord>,
    /// The connections.
    pub connections: Vec<ConnectionRecord>,
    /// System calls, counted.
    pub io: IoFigures,
    /// CPU time of this process meanwhile.
    pub cpu: Duration,
}

/// A connection and what came on it.
#[derive(Debug)]
struct Reading {
    record: ConnectionRecord,
    /// Owned by the reactor until it is connected; `None` again after the server has closed.
    stream: Option<StreamSocket>,
    first_byte_at: Time,
    last_byte_at: Time,
}

/// Reads until the time is over. Fails if a connection could not be made: the reference would be too low. `notify` is
/// called from time to time with the time left.
pub fn fetch(job: &RawJob<'_>, notify: &mut dyn FnMut(Duration)) -> io::Result<RawGot> {
    let clock = job.clock;
    let mut reactor = Reactor::new(clock)?;
    let mut readings = Vec::new();
    let cpu = process_cpu();
    for index in 0..job.connections {
        let stream = StreamSocket::connect(
            &Endpoint::Tcp(job.address),
            &ConnectOptions { congestion: job.congestion, ..ConnectOptions::default() },
        )?;
        reactor.submit_connect(Token(index), stream)?;
        let record = connect::record(index, job.address.port(), clock.now());
        readings.push(Reading {
            record,
            stream: None,
            first_byte_at: Time::NEVER,
            last_byte_at: Time::NEVER,
        });
    }
    let mut meter: Option<ByteMeter> = None;
    let mut space = vec![0; PIECE];
    let (mut largest, mut tick_at) = (0, Time::ZERO);
    let mut unread: Vec<usize> = Vec::new();
    loop {
        let now = clock.now();
        let elapsed = meter.as_ref().map_or(Duration::ZERO, |meter| now.since(meter.began()));
        if elapsed >= job.duration {
            break;
        }
        if now >= tick_at {
            notify(elapsed);
            tick_at = now + TICK;
        }
        let again = std::mem::take(&mut unread);
        reactor.wait(if again.is_empty() { tick_at } else { Time::ZERO })?;
        let mut turns = again;
        while let Some(completion) = reactor.next_completion() {
            match completion {
                Completion::Connected { token, result } => {
                    let now = clock.now();
                    let stream = result?;
                    let reading = &mut readings[token.0 as usize];
                    reading.record.local_port = stream.local_address()?.port();
                    (reading.record.connected_at, reading.record.ready_at) = (now, now);
                    receive_buffer::bound(&stream);
                    reading.stream = Some(stream);
                    meter.get_or_insert_with(|| ByteMeter::new(now));
                    turns.push(token.0 as usize);
                }
                Completion::Ready { token, .. } => turns.push(token.0 as usize),
                Completion::Timer { .. } | Completion::Accepted { .. } => {}
            }
        }
        turns.sort_unstable();
        turns.dedup();
        for place in turns {
            let Some(meter) = &mut meter else { continue };
            let (bytes, longest, is_drained) = read(&mut readings[place], &mut space, clock)?;
            meter.add(clock.now(), bytes);
            largest = largest.max(longest);
            if !is_drained {
                unread.push(place);
            }
        }
    }
    let meter = meter.unwrap_or_else(|| ByteMeter::new(clock.now()));
    let cpu = process_cpu().saturating_sub(cpu);
    Ok(finish(readings, meter, largest, cpu, clock.now()))
}

/// Reads for one turn. Returns how many bytes arrived, the most in one read, and whether the socket is empty.
fn read(reading: &mut Reading, space: &mut [u8], clock: Clock) -> io::Result<(u64, u64, bool)> {
    let (mut bytes, mut longest) = (0, 0);
    for _ in 0..TURN {
        let Some(stream) = &reading.stream else { return Ok((bytes, longest, true)) };
        match stream.read(space)? {
            Read::Bytes(n) => {
                let now = clock.now();
                reading.first_byte_at = reading.first_byte_at.min(now);
                reading.last_byte_at = now;
                reading.record.bytes_received += n as u64;
                (bytes, longest) = (bytes + n as u64, longest.max(n as u64));
            }
            Read::WouldBlock => return Ok((bytes, longest, true)),
            Read::Eof | Read::Truncated => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
    Ok((bytes, longest, false))
}

/// The final statistics, while the sockets are still open.
fn finish(readings: Vec<Reading>, meter: ByteMeter, largest: u64, cpu: Duration, now: Time) -> RawGot {
    let mut got = RawGot {
        parts: Vec::new(),
        connections: Vec::new(),
        io: IoFigures { socket_reads: Some(0), largest_buffer: largest, ..IoFigures::default() },
        meter,
        cpu,
    };
    for Reading { mut record, stream, first_byte_at, last_byte_at, .. } in readings {
        record.closed = CloseReason::Cell;
        if let Some(stream) = stream {
            got.io.socket_reads = got.io.socket_reads.map(|reads| reads + stream.calls().0);
            let info = TcpInfo::of(&stream).ok();
            let congestion = stream.congestion().unwrap_or_default();
            record.tcp_client = info.map(|info| info.summary(congestion));
        }
        got.parts.push(PartRecord {
            connection: record.index,
            stream: StreamId::CONNECTION,
            from: 0,
            bytes: record.bytes_received,
            sent_at: got.meter.began(),
            first_byte_at,
            ended_at: if last_byte_at.happened() { last_byte_at } else { now },
            is_complete: false,
        });
        got.connections.push(record);
    }
    got
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn what_comes_is_counted_on_each_connection_until_the_time_is_over() {
        let stop = AtomicBool::new(false);
        let (sender, receiver) = channel();
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let got = std::thread::scope(|scope| {
            let server = scope.spawn(|| serve(any, None, &stop, &mut |at| sender.send(at).unwrap()));
            let address = receiver.recv().unwrap();
            // If this test is delayed for longer than the first duration, it receives nothing in that time.
            let durations = [Duration::from_millis(150), Duration::from_secs(5), Duration::from_secs(60)];
            let fetched = durations.map(|duration| RawJob {
                address,
                connections: 3,
                congestion: None,
                duration,
                clock: Clock::start(),
            });
            let mut fetched = fetched.iter().map(|job| fetch(job, &mut |_| ()).unwrap());
            let got = fetched.find(|got| got.meter.total() > 0).expect("something comes");
            stop.store(true, Ordering::Relaxed);
            server.join().unwrap().unwrap();
            got
        });
        assert_eq!(got.parts.len(), 3);
        let bytes: u64 = got.parts.iter().map(|part| part.bytes).sum();
        assert_eq!(bytes, got.meter.total());
        assert!(bytes > 0);
        assert!(got.io.socket_reads >= Some(1) && got.io.largest_buffer > 0);
        let of_connections: u64 = got.connections.iter().map(|one| one.bytes_received).sum();
        assert_eq!(of_connections, bytes);
    }

    #[test]
    fn a_server_that_is_not_there_is_an_error() {
        let nobody = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let job = RawJob {
            address: nobody,
            connections: 1,
            congestion: None,
            duration: Duration::from_secs(9),
            clock: Clock::start(),
        };
        assert_eq!(fetch(&job, &mut |_| ()).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}

use std::net::{Ipv4Addr, SocketAddr};

use super::*;
use crate::cpu_budget::{CpuBudget, CpuShares};
use crate::tcp::{ConnectOptions, Read, Written};

const LISTENER: Token = Token(0);
const CLIENT: Token = Token(1);
const SERVER: Token = Token(2);
const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn reactor() -> Reactor {
    Reactor::new(Clock::start()).unwrap()
}

/// Waits for one completion, at most a minute: a test that waits longer has failed.
fn next(reactor: &mut Reactor) -> Completion {
    let until = reactor.clock().now() + Duration::from_secs(60);
    loop {
        if let Some(completion) = reactor.next_completion() {
            return completion;
        }
        assert!(reactor.wait(until).unwrap() < until, "no completion came");
    }
}

/// Sleeps up to `until`, however often it is woken before, and returns how often that was.
fn sleep(reactor: &mut Reactor, until: Time) -> usize {
    let mut times = 0;
    while reactor.wait(until).unwrap() < until {
        assert!(reactor.next_completion().is_none());
        times += 1;
    }
    times
}

#[test]
fn what_is_due_later_fires_once_and_not_too_early() {
    let mut reactor = reactor();
    for ms in [1, 3, 20] {
        let until = reactor.clock().now() + Duration::from_millis(ms);
        assert_eq!(sleep(&mut reactor, until), 0, "{ms} ms");
        assert!(reactor.next_completion().is_none());
    }
}

#[test]
fn a_wake_timer_that_was_set_for_earlier_fires_for_nothing_and_one_for_later_is_set_anew() {
    let mut reactor = reactor();
    let soon = reactor.clock().now() + Duration::from_millis(10);
    reactor.set_timer(CLIENT, soon);
    // As for a sleep that another event ends.
    let _ = reactor.timeout(soon);
    reactor.set_timer(CLIENT, Time::NEVER);
    let later = reactor.clock().now() + Duration::from_millis(40);
    assert!(sleep(&mut reactor, later) <= 2, "what was set before, and no more");
    let far = reactor.clock().now() + Duration::from_secs(3600);
    reactor.set_timer(SERVER, far);
    let _ = reactor.timeout(far);
    let near = reactor.clock().now() + Duration::from_millis(5);
    reactor.set_timer(CLIENT, near);
    while reactor.wait(Time::NEVER).unwrap() < near {
        assert!(reactor.next_completion().is_none());
    }
    assert!(matches!(reactor.next_completion(), Some(Completion::Timer { token: CLIENT })));
}

/// Waits until `token` becomes readable.
fn readable(reactor: &mut Reactor, token: Token) -> bool {
    loop {
        match next(reactor) {
            Completion::Ready { token: of, readable: true, hangup, .. } if of == token => return hangup,
            Completion::Ready { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

/// A connected pair, both ends submitted to the reactor.
fn pair(reactor: &mut Reactor) -> (StreamSocket, StreamSocket) {
    let listener = Listener::bind(LOOPBACK).unwrap();
    let address = listener.local_address().unwrap();
    reactor.submit_accept(LISTENER, listener).unwrap();
    reactor
        .submit_connect(CLIENT, StreamSocket::connect(&address.into(), &ConnectOptions::default()).unwrap())
        .unwrap();
    let (mut client, mut server) = (None, None);
    while client.is_none() || server.is_none() {
        match next(reactor) {
            Completion::Connected { token: CLIENT, result } => client = Some(result.unwrap()),
            Completion::Accepted { token: LISTENER, result } => {
                let stream = result.unwrap();
                reactor.submit_stream(SERVER, &stream).unwrap();
                server = Some(stream);
            }
            Completion::Ready { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    (client.unwrap(), server.unwrap())
}

#[test]
fn bytes_cross_a_pair_and_its_end_is_reported_as_a_hangup() {
    let mut reactor = reactor();
    let (client, server) = pair(&mut reactor);
    assert_eq!(client.write(b"hello").unwrap(), Written::Bytes(5));
    assert!(!readable(&mut reactor, SERVER));
    let mut space = [0; 16];
    assert_eq!(server.read(&mut space).unwrap(), Read::Bytes(5));
    assert_eq!(server.read(&mut space).unwrap(), Read::WouldBlock);
    reactor.forget(CLIENT);
    drop(client);
    assert!(readable(&mut reactor, SERVER));
    assert_eq!(server.read(&mut space).unwrap(), Read::Eof);
}

#[test]
fn a_full_socket_reports_when_there_is_room_again() {
    let mut reactor = reactor();
    let (client, server) = pair(&mut reactor);
    let block = vec![7; 1 << 20];
    while client.write(&block).unwrap() != Written::WouldBlock {}
    let mut space = vec![0; 1 << 20];
    loop {
        match next(&mut reactor) {
            Completion::Ready { token: SERVER, .. } => {
                while let Read::Bytes(_) = server.read(&mut space).unwrap() {}
            }
            Completion::Ready { token: CLIENT, writable: true, .. }
                if client.write(b"more").unwrap() == Written::Bytes(4) =>
            {
                return;
            }
            _ => {}
        }
    }
}

#[test]
fn a_refused_connect_completes_with_its_error() {
    let mut reactor = reactor();
    let address = Listener::bind(LOOPBACK).unwrap().local_address().unwrap(); // closed again: nobody listens
    let connecting = StreamSocket::connect(&address.into(), &ConnectOptions::default()).unwrap();
    reactor.submit_connect(CLIENT, connecting).unwrap();
    match next(&mut reactor) {
        Completion::Connected { token: CLIENT, result: Err(error) } => {
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn before_linux_5_11_events_and_deadlines_come_too() {
    let mut reactor = reactor();
    let (client, _server) = pair(&mut reactor);
    while reactor.wait(Time::ZERO).is_ok() && reactor.next_completion().is_some() {}
    reactor.events.clear();
    client.write(b"news").unwrap();
    let long = Timespec { tv_sec: 10, tv_nsec: 0 };
    reactor.take_events_before_5_11(Some(&long)).unwrap();
    let (token, _) = unpack(reactor.events[0].data);
    assert_eq!((reactor.events.len(), Token(token)), (1, SERVER));
    reactor.events.clear();
    let short = Timespec { tv_sec: 0, tv_nsec: 1 };
    reactor.take_events_before_5_11(Some(&short)).unwrap();
    assert!(reactor.events.is_empty(), "an edge is reported once");
}

#[test]
fn timers_complete_in_the_order_of_their_deadlines_and_never_early() {
    let mut reactor = reactor();
    let start = reactor.clock().now();
    let at = |us| start + Duration::from_micros(us);
    reactor.set_timer(Token(3), at(900));
    reactor.set_timer(Token(1), at(300));
    reactor.set_timer(Token(2), at(600));
    for (expected, due) in [(1, at(300)), (2, at(600)), (3, at(900))] {
        match next(&mut reactor) {
            Completion::Timer { token } => assert_eq!(token, Token(expected)),
            other => panic!("{other:?}"),
        }
        assert!(reactor.clock().now() >= due);
    }
}

#[test]
fn a_sharp_wait_ends_at_its_time_or_with_what_comes_before() {
    let mut reactor = reactor();
    let mut precise_wakeup = precise_wakeup(CpuShares { waiting: 100, working: 100 });
    // Nearer than the margin: there is no sleep, and it cannot be early.
    while precise_wakeup.awake().is_zero() {
        let until = reactor.clock().now() + precise_wakeup.margin() / 2;
        assert!(reactor.wait_precisely(until, &mut precise_wakeup).unwrap() >= until);
    }
    // Farther away: it sleeps first, and adapts to that. A thread that is delayed until there is no time to sleep
    // shrinks its margin by far less. Below the longest margin it can adapt both ways.
    (0..100).for_each(|_| precise_wakeup.woke(Duration::ZERO));
    let patience = reactor.clock().now() + Duration::from_secs(60);
    let margin = precise_wakeup.margin();
    while precise_wakeup.margin().abs_diff(margin) < Duration::from_nanos(100) {
        let until = reactor.clock().now() + 4 * margin;
        assert!(reactor.wait_precisely(until, &mut precise_wakeup).unwrap() >= until);
        assert!(until < patience, "it has not learnt how long waking took");
    }
    // Events of a socket and timers end it at once.
    let far = reactor.clock().now() + Duration::from_secs(600);
    let (client, _server) = pair(&mut reactor);
    while reactor.next_completion().is_some() {}
    client.write(b"news").unwrap();
    assert!(reactor.wait_precisely(far, &mut precise_wakeup).unwrap() < far);
    while reactor.next_completion().is_some() {}
    let due = reactor.clock().now() + Duration::from_millis(1);
    reactor.set_timer(Token(7), due);
    while reactor.wait_precisely(far, &mut precise_wakeup).unwrap() < due {
        while reactor.next_completion().is_some() {}
    }
    assert!(matches!(reactor.next_completion(), Some(Completion::Timer { token: Token(7) })));
}

/// A precise wake-up that stays awake for half a millisecond at most, and whose margin has reached that.
fn precise_wakeup(shares: CpuShares) -> PreciseWakeup {
    let budget = CpuBudget::new(shares, Time::ZERO, thread_cpu_ns());
    let mut precise_wakeup = PreciseWakeup::new(4, Duration::from_micros(500), budget);
    (0..1_000).for_each(|_| precise_wakeup.woke(Duration::from_secs(1)));
    precise_wakeup
}

#[test]
fn who_has_used_up_its_cpu_rests_even_if_something_has_come() {
    let mut reactor = reactor();
    let (client, _server) = pair(&mut reactor);
    while reactor.next_completion().is_some() {}
    let mut precise_wakeup = precise_wakeup(CpuShares { waiting: 0, working: 0 });
    client.write(b"news").unwrap();
    let mut waited = |precise_wakeup: &mut PreciseWakeup| {
        let from = reactor.clock().now();
        // Only the new event ends this in time.
        let until = reactor.wait_precisely(from + Duration::from_secs(60), precise_wakeup).unwrap();
        let news = std::iter::from_fn(|| reactor.next_completion()).count();
        (until.since(from), news)
    };
    assert_eq!(waited(&mut precise_wakeup).1, 1, "there is a millisecond to use");
    client.write(b"news").unwrap();
    let used = thread_cpu_ns();
    while thread_cpu_ns() < used + 2_000_000 {}
    let (took, news) = waited(&mut precise_wakeup);
    assert!(took >= REST && news == 1, "{took:?}, {news}");
}

#[test]
fn a_timer_that_was_moved_or_disarmed_completes_once_or_never() {
    let mut reactor = reactor();
    let start = reactor.clock().now();
    let at = |us| start + Duration::from_micros(us);
    reactor.set_timer(Token(1), at(100));
    reactor.set_timer(Token(1), at(2_000)); // later
    reactor.set_timer(Token(2), at(9_000));
    reactor.set_timer(Token(2), at(1_000)); // earlier
    reactor.set_timer(Token(3), at(500));
    reactor.set_timer(Token(3), Time::NEVER);
    reactor.set_timer(Token(4), at(12_000));
    let mut due_at = |us| {
        reactor.woken_at = at(us);
        std::iter::from_fn(|| reactor.next_completion())
            .map(|completion| match completion {
                Completion::Timer { token } => token.0,
                other => panic!("{other:?}"),
            })
            .collect::<Vec<_>>()
    };
    let none = Vec::<u32>::new();
    assert_eq!((due_at(999), due_at(1_000), due_at(1_999)), (none.clone(), vec![2], none.clone()));
    assert_eq!((due_at(2_000), due_at(11_999), due_at(12_000)), (vec![1], none, vec![4]));
}

#[test]
fn completions_of_a_forgotten_stream_never_reach_its_successor() {
    let mut reactor = reactor();
    let (client, server) = pair(&mut reactor);
    client.write(b"for the old one").unwrap();
    // The event has been read from the kernel when the stream is forgotten and another takes its token.
    reactor.wait(reactor.clock().now() + Duration::from_secs(10)).unwrap();
    reactor.forget(SERVER);
    drop(server);
    let idle = Listener::bind(LOOPBACK).unwrap();
    reactor.submit_accept(SERVER, idle).unwrap();
    while let Some(completion) = reactor.next_completion() {
        assert!(!matches!(completion, Completion::Ready { token: SERVER, .. }), "{completion:?}");
    }
}

#[test]
fn below_the_mark_nobody_is_woken_but_by_its_end() {
    let mut reactor = reactor();
    let (client, server) = pair(&mut reactor);
    let mut space = [0; 4096];
    client.set_rcvlowat(2_000);
    while reactor.wait(Time::ZERO).is_ok() && reactor.next_completion().is_some() {}
    let quiet = |reactor: &mut Reactor| {
        let until = reactor.clock().now() + Duration::from_millis(20);
        while reactor.wait(until).unwrap() < until {
            if let Some(completion) = reactor.next_completion() {
                assert!(!matches!(completion, Completion::Ready { token: CLIENT, .. }), "{completion:?}");
            }
        }
    };
    assert_eq!(server.write(&[1; 1_500]).unwrap(), Written::Bytes(1_500));
    quiet(&mut reactor);
    assert_eq!(server.write(&[1; 500]).unwrap(), Written::Bytes(500));
    assert!(!readable(&mut reactor, CLIENT));
    assert_eq!(client.read(&mut space).unwrap(), Read::Bytes(2_000));
    assert_eq!(server.write(&[1; 10]).unwrap(), Written::Bytes(10));
    quiet(&mut reactor);
    client.set_rcvlowat(1);
    assert!(!readable(&mut reactor, CLIENT), "a lower mark reports what was there");
    assert_eq!(client.read(&mut space).unwrap(), Read::Bytes(10));
    client.set_rcvlowat(2_000);
    assert_eq!(server.write(&[1; 10]).unwrap(), Written::Bytes(10));
    server.shutdown_write().unwrap();
    assert!(readable(&mut reactor, CLIENT), "the end is reported at any mark");
    assert_eq!(client.read(&mut space).unwrap(), Read::Bytes(10));
}

#[test]
fn another_thread_wakes_it_each_time() {
    const WAKEUP: Token = Token(3);
    let mut reactor = reactor();
    let wakeup = Wakeup::new().unwrap();
    reactor.submit_wakeups(WAKEUP, &wakeup).unwrap();
    let is_woken = |reactor: &mut Reactor| matches!(next(reactor), Completion::Ready { token: WAKEUP, .. });
    assert!(is_woken(&mut reactor), "an eventfd is writable from the start");
    for _ in 0..3 {
        std::thread::scope(|scope| {
            scope.spawn(|| wakeup.wake());
            assert!(is_woken(&mut reactor));
        });
    }
    let now = reactor.clock().now();
    reactor.wait(now).unwrap();
    assert!(reactor.next_completion().is_none(), "nothing is reported twice");
}

#[test]
fn connections_wait_at_a_listener_that_is_paused_and_are_accepted_later() {
    let mut reactor = reactor();
    let listener = Listener::bind(LOOPBACK).unwrap();
    let address = listener.local_address().unwrap();
    reactor.submit_accept(LISTENER, listener).unwrap();
    let _clients: Vec<_> = (0..3).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
    let is_accepted =
        |completion| matches!(completion, Completion::Accepted { token: LISTENER, result: Ok(_) });
    assert!(is_accepted(next(&mut reactor)));
    // Two more connections wait; the event that is being taken would report the next one.
    reactor.pause_accept(LISTENER, true);
    assert!(reactor.next_completion().is_none());
    let soon = reactor.clock().now() + Duration::from_millis(5);
    assert_eq!(sleep(&mut reactor, soon), 0, "it does not spin");
    reactor.pause_accept(LISTENER, false);
    assert!(is_accepted(next(&mut reactor)) && is_accepted(next(&mut reactor)));
    reactor.pause_accept(CLIENT, true); // there is no listener
}

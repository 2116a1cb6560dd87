//! The facade against a real nats-server with JetStream.

mod access;
mod host;
mod stored;

use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use h2lab_nats::{Event, Nats, NatsError, ServerOptions, Subscription};
use host::{DEADLINE, Server, eventually, refused};

/// Subscribes, and hands on what comes.
fn received(nats: &Nats, subject: &str) -> (Subscription, Receiver<(String, Vec<u8>)>) {
    let (sender, receiver) = mpsc::channel();
    let subscription = nats.subscribe(subject, move |subject, payload| {
        let _: Result<(), _> = sender.send((subject.to_owned(), payload.to_owned()));
    });
    (subscription.unwrap(), receiver)
}

#[test]
fn a_message_comes_to_whoever_subscribes_until_the_subscription_is_dropped() {
    let Some(server) = Server::start() else { return };
    let (one, other) = (server.connect(), server.connect());
    let (subscription, messages) = received(&one, "h2lab.agent.*.from.1");
    other.publish("h2lab.agent.kek-1.from.1", b"hello".to_vec()).unwrap();
    let expected = ("h2lab.agent.kek-1.from.1".to_owned(), b"hello".to_vec());
    assert_eq!(messages.recv_timeout(DEADLINE), Ok(expected));
    drop(subscription);
    // Its task, and the sender in it, is gone.
    assert!(
        messages.recv_timeout(DEADLINE).is_err_and(|error| error == mpsc::RecvTimeoutError::Disconnected)
    );
}

#[test]
fn messages_come_in_the_order_in_which_they_were_published() {
    let Some(server) = Server::start() else { return };
    let nats = server.connect();
    let (_subscription, messages) = received(&nats, "a");
    for number in 0..1000_u32 {
        nats.publish("a", number.to_le_bytes().to_vec()).unwrap();
    }
    nats.flush(DEADLINE).unwrap();
    for number in 0..1000_u32 {
        assert_eq!(messages.recv_timeout(DEADLINE).unwrap().1, number.to_le_bytes());
    }
}

#[test]
fn the_server_tells_what_it_is() {
    let Some(server) = Server::start() else { return };
    let nats = server.connect();
    let facts = nats.server();
    assert!(facts.version.starts_with("2."), "{facts:?}");
    assert!(!facts.name.is_empty(), "{facts:?}");
    eventually("a round trip ends in time", || nats.server().round_trip.is_some());
    assert_eq!((facts.max_payload, nats.max_payload()), (1 << 20, 1 << 20));
}

#[test]
fn a_message_of_the_largest_size_is_taken_and_one_byte_more_is_not() {
    let Some(server) = Server::start() else { return };
    let nats = server.connect();
    let (_subscription, messages) = received(&nats, "a");
    nats.publish("a", vec![7; nats.max_payload()]).unwrap();
    assert_eq!(messages.recv_timeout(DEADLINE).unwrap().1.len(), nats.max_payload());
    let error = nats.publish("a", vec![7; nats.max_payload() + 1]).unwrap_err();
    assert!(matches!(error, NatsError::TooLarge { .. }), "{error}");
}

#[test]
fn no_server_is_an_error_after_the_time_that_was_allowed() {
    let Some(mut server) = Server::start() else { return };
    server.stop();
    let options = ServerOptions { timeout: Duration::from_millis(300), ..server.options("test") };
    let error = refused(&options);
    assert!(matches!(error, NatsError::Unreachable { .. }), "{error}");
}

#[test]
fn a_server_that_starts_while_it_is_waited_for_is_found() {
    let Some(mut server) = Server::start() else { return };
    server.stop();
    let options = server.options("test");
    let connecting = thread::spawn(move || Nats::connect(&options).map(|nats| nats.is_connected()));
    server.start_again();
    assert!(connecting.join().unwrap().unwrap());
}

#[test]
fn a_subscription_and_a_stream_survive_a_restart_of_the_server() {
    let Some(mut server) = Server::start() else { return };
    let nats = server.set_up();
    let (events, happened) = mpsc::channel();
    nats.on_event(move |event| drop(events.send(event)));
    let (_subscription, messages) = received(&nats, "a");
    nats.reports().add("r", 1, "kek-1", b"before".to_vec()).unwrap();
    server.stop();
    while happened.recv_timeout(DEADLINE).unwrap() != Event::Disconnected {}
    assert!(!nats.is_connected());
    server.start_again();
    while happened.recv_timeout(DEADLINE).unwrap() != Event::Connected {}
    assert!(nats.is_connected());
    nats.publish("a", b"again".to_vec()).unwrap();
    assert_eq!(messages.recv_timeout(DEADLINE).unwrap().1, b"again");
    let reports = nats.reports().read("r", 0, DEADLINE).unwrap();
    assert_eq!(reports.iter().map(|report| report.payload.as_slice()).collect::<Vec<_>>(), [b"before"]);
}

#[test]
fn an_operation_that_begins_while_the_server_is_away_ends_when_it_is_back() {
    let Some(mut server) = Server::start() else { return };
    let nats = server.set_up();
    server.stop();
    eventually("the connection ends", || !nats.is_connected());
    let adding = nats.clone();
    // A machine that is busy for longer than the operation's deadline needs a second attempt.
    let adding = thread::spawn(move || {
        let add = || adding.reports().add("r", 1, "kek-1", b"late".to_vec()).is_ok();
        eventually("the report is stored", add);
    });
    server.start_again();
    adding.join().unwrap();
    assert!(!nats.reports().read("r", 0, DEADLINE).unwrap().is_empty());
}

#[test]
fn an_operation_on_a_server_that_stays_away_is_an_error() {
    let Some(mut server) = Server::start() else { return };
    let nats = server.set_up();
    server.stop();
    eventually("the connection ends", || !nats.is_connected());
    let error = nats.flush(Duration::from_millis(100)).unwrap_err();
    assert!(matches!(error, NatsError::Unreachable { .. }), "{error}");
    // What is published waits.
    nats.publish("a", b"later".to_vec()).unwrap();
}

#[test]
fn a_call_that_waits_from_a_subscriber_is_an_error_and_no_deadlock() {
    let Some(server) = Server::start() else { return };
    let nats = server.connect();
    let (sender, outcome) = mpsc::channel();
    // What a subscriber must not do: this connection never ends by itself.
    let inner = nats.clone();
    let subscription = nats.subscribe("a", move |_, _| {
        let _: Result<(), _> = sender.send(inner.flush(DEADLINE).is_err());
    });
    let _subscription = subscription.unwrap();
    nats.publish("a", Vec::new()).unwrap();
    assert_eq!(outcome.recv_timeout(DEADLINE), Ok(true));
}

//! gRPC over HTTP/3 on either side: what a server of grpc-go answers, and its own suite behind two sidecars.

use std::net::SocketAddr;
use std::process::Command;

use h2lab_net::process::Child;
use h2lab_wire::connection::Request;
use h2lab_wire::{Field, StreamId};

use super::Both;
use super::client::{Client, Seen};
use crate::go::GoProgram;
use crate::sidecar_guard::server;
use crate::support::{DEADLINE, folder, run_program};

static CALLERS: GoProgram = GoProgram::new("callers_go");

/// A message without content, as gRPC frames it.
const EMPTY: &[u8] = &[0; 5];

/// Begins a call; the stream is open in the caller's direction.
fn call(client: &mut Client, path: &str, more: &[(&str, &str)]) -> StreamId {
    let all = [("content-type", "application/grpc"), ("te", "trailers")];
    let fields: Vec<Field<'_>> =
        all.iter().chain(more).map(|(name, value)| Field::new(name, value)).collect();
    let request = Request {
        method: "POST",
        authority: "a",
        path,
        fields: &fields,
        body_length: None,
        end_stream: false,
    };
    client.ask(&request, None)
}

/// grpc-go's server for interoperability, and its address.
fn grpc_go() -> Option<(Child, SocketAddr)> {
    let mut command = Command::new(CALLERS.path()?);
    command.arg("serve");
    let server = Child::spawn(command, None).expect("it starts");
    let address = server
        .wait_for_line(DEADLINE, |line| line.strip_prefix("grpc ")?.trim().parse().ok())
        .unwrap_or_else(|error| panic!("{error}: {}", server.log()));
    Some((server, address))
}

#[test]
fn grpc_passes_from_and_to_http3() {
    let Some((_server, address)) = grpc_go() else { return };
    let last = Both::start(&format!("instances = ['h2c://{address}']"), "");
    let first = Both::start(&format!("instances = ['h3://{}']", last.tls), "");
    for both in [&last, &first] {
        let mut client = Client::connect(both.tls, false);
        let stream = call(&mut client, "/grpc.testing.TestService/EmptyCall", &[("grpc-timeout", "600S")]);
        client.send(stream, EMPTY, true);
        assert_eq!(client.whole(stream), (200, EMPTY.len()));
        assert_eq!((client.body(stream), client.field(stream, "grpc-status")), (EMPTY, Some("0")));
        // A stream in both directions: each message is answered before the next one is sent.
        let stream = call(&mut client, "/grpc.testing.TestService/FullDuplexCall", &[]);
        // StreamingOutputCallRequest { response_parameters { size: 3 } }
        let message = [0, 0, 0, 0, 4, 0x12, 2, 8, 3];
        for count in 1..=3 {
            client.send(stream, &message, false);
            // Five bytes of gRPC, and Payload { body: 3 bytes } in its message.
            let enough = count * (5 + 7);
            let until = std::time::Instant::now() + DEADLINE;
            while client.body(stream).len() < enough {
                assert!(std::time::Instant::now() < until, "{:?}", client.seen);
                client.turn();
            }
        }
        client.send(stream, b"", true);
        client.whole(stream);
        assert_eq!(client.field(stream, "grpc-status"), Some("0"));
        // A stream without any message: it ends with the head, which never happens with gRPC over HTTP/2.
        let stream = call(&mut client, "/grpc.testing.TestService/FullDuplexCall", &[]);
        client.send(stream, b"", true);
        assert_eq!(client.whole(stream), (200, 0));
        assert_eq!(client.field(stream, "grpc-status"), Some("0"));
        // Trailers only.
        let stream = call(&mut client, "/grpc.testing.TestService/NoSuchCall", &[]);
        client.send(stream, EMPTY, true);
        assert_eq!(client.whole(stream), (200, 0));
        assert_eq!(client.field(stream, "grpc-status"), Some("12"));
        assert!(client.field(stream, "grpc-message").is_some_and(|words| words.contains("NoSuchCall")));
    }
}

#[test]
fn grpc_passes_its_own_suite_where_http3_is_between_two_sidecars() {
    let Some((_server, address)) = grpc_go() else { return };
    let last = Both::start(&format!("instances = ['h2c://{address}']"), "");
    let first = Both::start(&format!("instances = ['h3://{}']", last.tls), "");
    let program = CALLERS.path().expect("it was there");
    let clear = first.sidecar.clear.to_string();
    let finished = run_program(&program, folder().path(), &["grpc", &clear]);
    let is_done = finished.code == Some(0) && finished.stdout.lines().last() == Some("done");
    assert!(is_done, "{}\n{}", finished.transcript(), first.sidecar.child.log());
}

#[test]
fn deadlines_and_own_answers_of_grpc_are_those_of_the_other_versions() {
    let silent = server(|_| None);
    let last = Both::start(&format!("instances = ['{silent}']"), "");
    let first = Both::start(&format!("instances = ['h3://{}']", last.tls), "");
    for both in [&last, &first] {
        let mut client = Client::connect(both.tls, false);
        let stream = call(&mut client, "/a.B/C", &[("grpc-timeout", "300m")]);
        client.send(stream, EMPTY, true);
        assert_eq!(client.whole(stream), (200, 0));
        assert_eq!(client.field(stream, "grpc-status"), Some("4"));
        assert_eq!(client.field(stream, "content-type"), Some("application/grpc"));
        assert!(client.seen.iter().all(|(_, seen)| !matches!(seen, Seen::Reset(_))), "{:?}", client.seen);
    }
    let (_socket, closed) = crate::support::closed_port();
    let both = Both::start(&format!("instances = ['h3://{closed}']"), "");
    let mut client = Client::connect(both.tls, false);
    let stream = call(&mut client, "/a.B/C", &[]);
    client.send(stream, EMPTY, true);
    client.whole(stream);
    assert_eq!(client.field(stream, "grpc-status"), Some("14"));
    assert!(client.field(stream, "grpc-message").is_some_and(|words| words.contains("is unreachable")));
}

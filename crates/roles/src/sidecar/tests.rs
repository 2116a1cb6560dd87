//! What an idle connection of a client takes, by its parts: `cargo test -p h2lab-roles sidecar::tests -- --nocapture`
//! prints it.

use h2lab_net::transport::Transport;
use h2lab_wire::{Config, Connection, Role, h1};

use super::Slot;
use super::listeners::Opening;
use super::path::Path;
use super::side::{Peer, Side};
use super::streams::Streams;

/// What the allocator takes for so many bytes: glibc has a header of 8, and sizes are multiples of 16, from 32 on.
const fn allocated(bytes: usize) -> usize {
    let rounded = (bytes + 8).next_multiple_of(16);
    if rounded < 32 { 32 } else { rounded }
}

#[test]
fn an_idle_connection_over_http1_takes_little() {
    let engine = Connection::h1(Config::new(Role::Server));
    assert_eq!(engine.held_bytes(), size_of::<h1::Connection>(), "it has no buffers of its own");
    let parts = [
        ("its place in the table", size_of::<Slot>()),
        ("Side", allocated(size_of::<Side>())),
        ("the engine", allocated(size_of::<h1::Connection>())),
        ("the client's address as text", allocated("255.255.255.255".len())),
    ];
    let inside = [
        ("Side", size_of::<Side>()),
        ("of this Transport", size_of::<Transport>()),
        ("of this Peer", size_of::<Peer>()),
        ("of this Streams", size_of::<Streams>()),
        ("h1::Connection", size_of::<h1::Connection>()),
        ("only while it says what it speaks: Opening", size_of::<Opening>()),
        ("shared: Config", size_of::<Config>()),
        ("only of HTTP/2: Path", size_of::<Path>()),
    ];
    for (what, bytes) in parts.iter().chain(&inside) {
        println!("{bytes:>6}  {what}");
    }
    let all: usize = parts.iter().map(|(_, bytes)| bytes).sum();
    println!("{all:>6}  in all, as allocated");
    assert!(all <= 1_050, "{all}");
}

//! PINGs to a silent peer.

use std::time::Duration;

use super::support::*;
use crate::h2::frame::{flag, kind};
use crate::testing::Seen;
use crate::{Config, Error, Limits, Role};
use h2lab_base::units::Time;

const INTERVAL: Duration = Duration::from_secs(5);

fn asking(role: Role) -> Config {
    Config { keep_alive: Some(INTERVAL), peer_timeout: Duration::from_secs(2), ..Config::new(role) }
}

/// Lets every deadline up to `until` pass; returns the payloads of the PINGs that were sent.
fn pings_until(peer: &mut Scripted, until: Time) -> Vec<Vec<u8>> {
    while peer.engine.poll_timeout() <= until {
        peer.now = peer.engine.poll_timeout();
        peer.engine.handle_timeout(peer.now);
    }
    let is_ping = |kind_: u8, flags: u8| kind_ == kind::PING && flags == 0;
    let sent = peer.sent().into_iter().filter(|(header, _)| is_ping(header.kind, header.flags));
    sent.map(|(_, payload)| payload).collect()
}

#[test]
fn a_silent_client_or_server_is_asked_and_its_answer_is_no_event() {
    let mut peer = Scripted::new(asking(Role::Client));
    assert_eq!(pings_until(&mut peer, NOW + INTERVAL - Duration::from_nanos(1)), [[0; 0]; 0]);
    let asked = pings_until(&mut peer, NOW + INTERVAL);
    assert_eq!(asked.len(), 1);
    peer.now += Duration::from_secs(1);
    assert_eq!(peer.receive(&frame(kind::PING, flag::ACK, 0, &asked[0])), []);
    assert_eq!(peer.engine.poll_timeout(), peer.now + INTERVAL, "the silence begins anew");
}

#[test]
fn a_dead_peer_is_reported_as_a_timeout_and_not_early() {
    let mut peer = Scripted::new(asking(Role::Client));
    assert_eq!(pings_until(&mut peer, NOW + INTERVAL).len(), 1);
    let until = NOW + INTERVAL + Duration::from_secs(2);
    pings_until(&mut peer, until - Duration::from_nanos(1));
    assert_eq!(peer.receive(&[]), []);
    pings_until(&mut peer, until);
    let error = Some(Error::Timeout("the acknowledgement of our keep-alive PING"));
    assert_eq!(peer.receive(&[]), [Seen::Closed { error }]);
}

#[test]
fn our_other_pings_are_distinguished_from_it() {
    let mut peer = Scripted::new(asking(Role::Client));
    let asked = pings_until(&mut peer, NOW + INTERVAL);
    peer.engine.ping(peer.now);
    let measured = peer.sent().pop().unwrap().1;
    assert_ne!(asked[0], measured);
    assert_eq!(
        peer.receive(&frame(kind::PING, flag::ACK, 0, &measured)),
        [Seen::Pong { rtt: Duration::ZERO }]
    );
    assert_eq!(peer.receive(&frame(kind::PING, flag::ACK, 0, &asked[0])), []);
}

#[test]
fn a_server_asks_on_behalf_of_requests_and_leaves_the_rest_to_its_idle_limit() {
    let mut idle = Scripted::new(asking(Role::Server));
    assert_eq!(pings_until(&mut idle, NOW + INTERVAL * 3).len(), 0);
    let mut busy = Scripted::new(asking(Role::Server));
    busy.receive(&frame(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &get_block()));
    assert_eq!(pings_until(&mut busy, NOW + INTERVAL).len(), 1);
    let limits = Limits { idle: None, ..Limits::new(Role::Server) };
    let mut unbounded = Scripted::new(Config { limits, ..asking(Role::Server) });
    assert_eq!(pings_until(&mut unbounded, NOW + INTERVAL).len(), 1);
}

#[test]
fn nobody_is_asked_unless_it_is_wanted() {
    assert_eq!(Config::new(Role::Client).keep_alive, None);
    assert_eq!(Scripted::new(client_config()).engine.poll_timeout(), Time::NEVER);
}

//! Whatever a peer sends, nothing panics and the engine stays consistent: random frames, where the fuzz targets mutate
//! valid ones ([`h2lab_model::fuzz`]).

use proptest::prelude::*;

use super::support::*;
use crate::connection::Request;
use crate::fuzz;
use crate::testing::{Seen, drain_output};
use crate::{Config, Connection, Role};
use h2lab_base::units::Time;

/// The fuzz target for a role, and the option under which its peer greets it properly.
fn converse(role: Role, options: u8, pieces: u8, bytes: &[u8]) {
    let input = [&[options & !fuzz::H1, pieces][..], bytes].concat();
    if role == Role::Server { fuzz::server(&input) } else { fuzz::client(&input) }
}

fn any_role() -> impl Strategy<Value = Role> {
    prop::sample::select(vec![Role::Client, Role::Server])
}

fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..2_000)
}

#[test]
fn the_conversations_where_mutations_begin_are_valid() {
    for role in [Role::Client, Role::Server] {
        let mut peer = Connection::h2(Config { enable_push: true, ..Config::new(role) }, Time::ZERO);
        if role == Role::Client {
            for n in 0..4 {
                let request = Request { end_stream: n % 2 == 0, ..get("/") };
                peer.send_request(NOW, &request).expect("a stream is available");
            }
        }
        drain_output(&mut peer, NOW);
        let recorded =
            if role == Role::Client { fuzz::recorded_server(true) } else { fuzz::recorded_client(true) };
        peer.handle_input(NOW, &recorded);
        let mut events = 0;
        while let Some(event) = peer.poll_event(NOW) {
            let seen = Seen::from(event);
            assert!(!matches!(seen, Seen::Closed { error: Some(_) }), "{role:?}: {seen:?}");
            events += 1;
        }
        assert!(events > 10, "{role:?}: {events}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_bytes_never_panic(role in any_role(), bytes in any_bytes(), options: u8, pieces: u8) {
        converse(role, options, pieces, &bytes);
    }

    #[test]
    fn random_frames_never_panic(
        role in any_role(),
        random in prop::collection::vec((0_u8..11, any::<u8>(), 0_u32..12, prop::collection::vec(any::<u8>(), 0..40)), 0..60),
        options: u8,
        pieces: u8,
    ) {
        let frames = random.iter().flat_map(|(kind, flags, stream, payload)| frame(*kind, *flags, *stream, payload));
        converse(role, options | fuzz::GREETED, pieces, &frames.collect::<Vec<u8>>());
    }
}

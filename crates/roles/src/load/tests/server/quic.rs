//! The same server over QUIC: one thread, since all of its connections share a socket.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use h2lab_base::units::Time;
use h2lab_wire::{Connection, StreamId};

use super::{Behaviour, answer, complete_requests, config};
use h2lab_net::clock::Clock;
use h2lab_net::quic::{Congestion, QuicEndpoint, RoutedDatagram};
use h2lab_net::reactor::{Reactor, Token};
use h2lab_net::transport::{Received, Sent, Transport};

/// How often it checks whether it is to end.
const CHECK_PERIOD: Duration = Duration::from_millis(10);

/// A connection.
struct Served {
    transport: Transport,
    /// `None` until the handshake is over.
    engine: Option<Connection>,
    waiting: Vec<(StreamId, usize)>,
    is_over: bool,
}

/// Serves until `stop`.
pub fn serve(
    endpoint: &Arc<QuicEndpoint>,
    clock: Clock,
    behaviour: Behaviour,
    stop: &AtomicBool,
    accepted: &AtomicU32,
) {
    let mut reactor = Reactor::new(clock).expect("a reactor");
    reactor.submit_datagrams(Token(0), endpoint).expect("its socket");
    let mut all: BTreeMap<usize, Served> = BTreeMap::new();
    while !stop.load(Ordering::SeqCst) {
        let due = all.values().map(|served| served.transport.timeout()).min().unwrap_or(Time::NEVER);
        reactor.wait(due.min(clock.now() + CHECK_PERIOD)).expect("it waits");
        while reactor.next_completion().is_some() {}
        loop {
            let mut arrivals = Vec::new();
            let now = clock.now();
            if endpoint.receive(now, &mut |arrival| arrivals.push(arrival)).unwrap_or(1) == 0 {
                break;
            }
            for arrival in arrivals {
                match arrival {
                    RoutedDatagram::Known(number, event) => {
                        let quic = all.get_mut(&number).and_then(|served| served.transport.quic_mut());
                        quic.expect("it is forgotten when it is over").handle(event);
                    }
                    RoutedDatagram::New(incoming) => {
                        let quic = endpoint.accept(incoming, &config(behaviour), Congestion::default(), now);
                        let quic = quic.expect("a client of ours");
                        accepted.fetch_add(1, Ordering::SeqCst);
                        let (number, transport) = (quic.number(), Transport::Quic(Box::new(quic)));
                        let served = Served { transport, engine: None, waiting: Vec::new(), is_over: false };
                        all.insert(number, served);
                    }
                }
            }
        }
        for served in all.values_mut() {
            served.proceed(clock, behaviour);
        }
        all.retain(|_, served| !served.is_over);
    }
}

impl Served {
    fn proceed(&mut self, clock: Clock, behaviour: Behaviour) {
        self.transport.handle_timeout(clock.now());
        if self.engine.is_none() {
            match self.transport.handshake(clock.now()) {
                Ok(true) => self.engine = Some(Connection::h3(config(behaviour), clock.now())),
                Ok(false) => return,
                Err(_) => return self.is_over = true,
            }
        }
        let Some(engine) = &mut self.engine else { return };
        while let Ok(Received::Bytes(_)) = self.transport.receive(engine, || clock.now(), &mut |_, _| ()) {
            self.waiting.extend(complete_requests(engine, clock).0);
        }
        complete_requests(engine, clock);
        for (stream, path) in self.waiting.drain(..) {
            answer(engine, clock, stream, path, behaviour);
        }
        complete_requests(engine, clock); // which may have been the last ones
        while let Ok(Sent::Bytes { .. }) = self.transport.send(engine, clock.now(), &mut |_| ()) {}
        self.is_over = self.transport.flush(clock.now()).is_err()
            || self.transport.quic().is_some_and(h2lab_net::quic::QuicSession::is_drained);
    }
}

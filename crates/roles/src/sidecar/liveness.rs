//! Connections to instances that are given up: those whose peer is gone, and those that the peer is about to close.

use std::time::Duration;

use h2lab_base::units::{Time, format_duration};
use h2lab_net::tcp::StreamSocket;
use h2lab_net::tcp_info::TcpInfo;
use h2lab_proxy::config::Timeouts;
use h2lab_proxy::fields::Version;
use h2lab_proxy::pool::liveness::{Liveness, Verdict};
use h2lab_wire::{ErrorCode, Event};

use super::events::is_orderly;
use super::side::{Peer, Side};
use super::{Sidecar, Slot, mark};

/// How often connections are looked at.
const CHECK_PERIOD: Duration = Duration::from_millis(100);

impl Sidecar<'_> {
    /// Checks every connection to an instance, before requests are placed: so no request gets one that is about to be
    /// closed, even after a pause of this process.
    pub(super) fn check_instances(&mut self, now: Time) {
        if now < self.check_at {
            return;
        }
        self.check_at = now + CHECK_PERIOD;
        let Timeouts { idle, ping, .. } = self.config.file.timeouts;
        let idle = if idle.is_zero() { Duration::MAX } else { idle };
        for slot in 0..self.slots.len() as u32 {
            self.check_silence(slot, now);
            let Slot::Open(side) = &mut self.slots[slot as usize] else { continue };
            let Peer::Instance(instance) = side.peer else { continue };
            if side.is_closed {
                continue;
            }
            let pool = self.pools.get(instance);
            let waits = side.streams.len() > 0;
            if waits {
                side.used_at = now;
            } else if now.since(side.used_at) >= pool.idle.limit(now, idle) {
                pool.connections.retain(|other| *other != slot);
                side.engine.goaway(now, ErrorCode::NO_ERROR, b"idle");
                mark(side, slot, &mut self.dirty);
                continue;
            }
            if side.version == Version::H1 || ping.is_zero() || pool.refuses_pings {
                continue;
            }
            let rtt = side.path.as_ref().map_or(Duration::ZERO, |path| path.now.rtt);
            match side.liveness.look(now, waits, ping, rtt) {
                Verdict::Fine => {}
                Verdict::Ask => {
                    side.ask(now);
                    mark(side, slot, &mut self.dirty);
                }
                Verdict::Dead => {
                    let why = format!("it did not answer a PING within {}", format_duration(ping));
                    let since = side.liveness.heard_at();
                    let pool = self.pools.get(instance);
                    pool.doubt(now);
                    pool.standing.gone(since);
                    if let Some(side) = self.take_side(slot) {
                        self.lose(slot, *side, &why);
                    }
                }
            }
        }
    }

    /// Records what an instance says about how long a connection lasts. `idle_since` is set if a connection of HTTP/2
    /// or HTTP/3 carries nothing.
    pub(super) fn note_keep_alive(
        &mut self,
        peer: &Peer,
        (liveness, idle_since): (&mut Liveness, Option<Time>),
        event: &Event<'_>,
    ) {
        let Peer::Instance(instance) = peer else { return };
        match event {
            Event::Response { head, .. } => {
                liveness.progressed();
                // HTTP/2 has no such field (RFC 9113 §8.2.2), and its engine refuses it.
                if let Some(value) = head.fields.get("keep-alive") {
                    self.pools.get(*instance).idle.told(value);
                }
            }
            Event::Interim { .. } | Event::Data { .. } | Event::Trailers { .. } => liveness.progressed(),
            // Our engine ends it, too, since nothing is under way: before the end of what comes is read, which `note_end` asks for.
            Event::GoAway { code, .. } if is_orderly(*code) => {
                if let Some(since) = idle_since {
                    self.pools.get(*instance).idle.closed_after(self.now, self.now.since(since));
                }
            }
            _ => {}
        }
    }

    /// A connection has ended. If the instance closed it while nothing was under way, that shows how long it keeps an
    /// idle connection.
    pub(super) fn note_end(&mut self, side: &Side, now: Time) {
        if let Peer::Instance(instance) = side.peer
            && side.has_ended()
            && side.streams.len() == 0
        {
            self.pools.get(instance).idle.closed_after(now, now.since(side.used_at));
        }
    }
}

impl Side {
    /// It gets one more request.
    pub fn begin_request(&mut self, now: Time) {
        self.requests += 1;
        self.used_at = now;
        self.written_before = self.transport.tcp().map_or(0, StreamSocket::written);
    }

    /// Whether the instance closed an HTTP/1.1 connection before any byte of the one request under way had reached it:
    /// its FIN is there, and no byte that was written for the request was ever acknowledged. What arrives after a close
    /// is not read any more, so the request was not processed. Without a FIN nothing is certain: the acknowledgement
    /// may have been lost.
    pub fn was_never_reached(&self) -> bool {
        self.version == Version::H1
            && self.has_ended()
            && self.transport.tcp().is_some_and(|tcp| {
                // Our SYN is acknowledged, too.
                TcpInfo::of(tcp).is_ok_and(|info| info.bytes_acked <= self.written_before + 1)
            })
    }

    /// Has the kernel give up the connection where the peer acknowledges nothing.
    pub fn watch_peer(&self, timeouts: &Timeouts) {
        if timeouts.ping.is_zero() {
            return;
        }
        let unacknowledged = match self.version {
            // As long as a PING and its answer may take.
            Version::H2 | Version::H3 => Some(timeouts.ping * 2),
            // A window of the peer that stays closed counts, too: it may be slow.
            Version::H1 => timeouts.response_limit().map(|response| response.max(timeouts.ping * 2)),
        };
        if let Some(tcp) = self.transport.tcp() {
            tcp.watch_peer(timeouts.ping, unacknowledged);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use h2lab_net::byte_stream::ByteStream;
    use h2lab_net::tcp::{ConnectOptions, Listener, Written};
    use h2lab_net::transport::Transport;
    use h2lab_wire::{Config, Connection, Role};

    use super::*;

    /// A connection to an instance that has been used, and the instance's end of it.
    fn connection() -> (Side, StreamSocket) {
        let listener = Listener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = listener.local_address().unwrap();
        // On loopback the three-way handshake is over when connect returns.
        let ours = StreamSocket::connect(&address.into(), &ConnectOptions::default()).unwrap();
        let theirs = listener.accept().unwrap().expect("it is established");
        let transport = Transport::Stream(ByteStream::clear(ours));
        let mut side =
            Side::new(transport, Connection::h1(Config::new(Role::Client)), Version::H1, Peer::Instance(0));
        write(&side, b"GET / HTTP/1.1\r\n\r\n");
        theirs.read(&mut [0; 64]).unwrap();
        side.begin_request(Time::ZERO);
        (side, theirs)
    }

    fn write(side: &Side, bytes: &[u8]) {
        side.transport.tcp().expect("TCP").write(bytes).expect("the kernel takes it");
    }

    /// Reads to the end of what the instance sends.
    fn end(mut side: Side) -> Side {
        while !side.has_ended() {
            side.receive(Time::ZERO, &mut 0, false).expect("no error");
        }
        side
    }

    #[test]
    fn a_request_that_meets_a_close_was_never_there() {
        let (side, theirs) = connection();
        drop(theirs);
        write(&side, b"POST / HTTP/1.1\r\n\r\n");
        assert!(end(side).was_never_reached());
    }

    #[test]
    fn one_that_was_read_before_the_close_may_have_been_processed() {
        let (side, theirs) = connection();
        write(&side, b"POST / HTTP/1.1\r\n\r\n");
        theirs.read(&mut [0; 64]).unwrap();
        drop(theirs);
        assert!(!end(side).was_never_reached());
    }

    #[test]
    fn the_kernel_gives_up_an_instance_of_http1_no_sooner_than_its_response_is_late() {
        let limit = |timeouts: Timeouts| {
            let (side, _theirs) = connection();
            side.watch_peer(&timeouts);
            rustix::net::sockopt::tcp_user_timeout(side.transport.tcp().expect("TCP")).expect("an option")
        };
        let general = Timeouts { response: Duration::from_secs(60), ..Timeouts::default() };
        let for_ever = Timeouts { response: Duration::ZERO, ..general };
        assert_eq!(limit(general), 60_000);
        assert_eq!(limit(Timeouts { response: Duration::from_secs(1), ..general }), 10_000, "twice ping");
        assert_eq!(limit(for_ever), 0, "none");
        assert_eq!(limit(for_ever.of(&h2lab_proxy::config::ServiceTimeouts::default())), 0, "none");
    }

    #[test]
    fn a_peer_that_reads_what_the_socket_has_takes_some_although_nothing_more_can_be_written() {
        let (mut side, theirs) = connection();
        let piece = vec![0; 64 * 1024];
        let fill = |side: &Side| {
            while matches!(side.transport.tcp().expect("TCP").write(&piece), Ok(Written::Bytes(_))) {}
        };
        fill(&side);
        side.takes_some();
        assert!(!side.takes_some(), "nobody reads");
        let mut space = vec![0; 64 * 1024];
        let until = std::time::Instant::now() + Duration::from_secs(60);
        while !side.takes_some() {
            let _ = theirs.read(&mut space);
            assert!(std::time::Instant::now() < until, "it is seen to read");
        }
    }
}

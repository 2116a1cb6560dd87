//! What our ends of QUIC announce and how they send.

use std::sync::Arc;
use std::time::Duration;

use h2lab_wire::{Config, Role};
use quinn_proto::congestion::{BbrConfig, ControllerFactory, CubicConfig, NewRenoConfig};
use quinn_proto::{IdleTimeout, MtuDiscoveryConfig, TransportConfig, VarInt};

use super::in_flight::CountingFactory;

/// Initial congestion window in bytes: what RFC 9002 §7.2 allows, and the ten segments of Linux's TCP. The same for every
/// congestion control, since `quinn-proto` would let BBR begin with 240,000.
const INITIAL_WINDOW: u64 = 14_720;

/// The most requests that a peer may have open. `quinn-proto` keeps an entry for every stream that it has granted.
const MOST_STREAMS: u32 = 10_000;

/// How long a peer may be silent: longer than the 75 seconds after which an idle connection ends in an orderly way.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);

/// How long an orderly end may take, beyond the time after which it begins.
const ENDING: Duration = Duration::from_secs(15);

/// Bytes that a peer may leave unacknowledged, unless [`super::QuicSession::limit_unacknowledged`] says otherwise: the
/// default of `quinn-proto`.
pub(super) const SEND_WINDOW: u64 = 10_000_000;

/// Unidirectional streams that a peer may have open: control, two of QPACK (RFC 9114 §6.2), and five of unknown types (§6.2.3).
const UNI_STREAMS: u32 = 8;

/// The payload of a datagram where the MTU is 1,500, in bytes. Path MTU discovery searches up to here, whatever is
/// known of the route: probes that are too long are lost, which costs nothing else.
const ETHERNET_PAYLOAD: u16 = 1_452;

/// The longest payload that is tried, in bytes: on loopback longer ones needed no less CPU per byte.
const LARGEST_PAYLOAD: u16 = 16_000;

/// Congestion control of a QUIC connection, by the names that Linux has for TCP's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Congestion {
    /// `NewReno` (RFC 9002 §7).
    Reno,
    /// CUBIC (RFC 9438), the default as it is Linux's.
    #[default]
    Cubic,
    /// BBR, version 1 as `quinn-proto` has it, which calls it experimental.
    Bbr,
}

impl Congestion {
    const ALL: [Self; 3] = [Self::Reno, Self::Cubic, Self::Bbr];

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    /// `reno`, `cubic` or `bbr`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        }
    }

    fn factory(self) -> Arc<dyn ControllerFactory + Send + Sync> {
        match self {
            Self::Reno => {
                let mut config = NewRenoConfig::default();
                config.initial_window(INITIAL_WINDOW);
                Arc::new(config)
            }
            Self::Cubic => {
                let mut config = CubicConfig::default();
                config.initial_window(INITIAL_WINDOW);
                Arc::new(config)
            }
            Self::Bbr => {
                let mut config = BbrConfig::default();
                config.initial_window(INITIAL_WINDOW);
                Arc::new(config)
            }
        }
    }
}

/// The transport parameters of a connection whose engine has these settings: HTTP/2's windows, its limit of streams and its check
/// that the peer is alive have their counterparts in QUIC.
///
/// Path MTU discovery begins at 1,200 bytes, which every path carries (RFC 9000 §14). With datagrams of that size QUIC
/// would need a fifth more packets than TCP for the same bytes, and would have as many more losses under random loss.
/// On a path with an MTU of 1,500 it arrives at 1,452, where TCP has 1,448. `payload` is what the route takes
/// ([`crate::udp::largest_payload`]; 0 if that is not known): on loopback, and with jumbo frames, TCP has longer
/// segments as well.
///
/// A silent peer is given up after [`IDLE_TIMEOUT`], or after the time that [`Config::keep_alive`] gives, but not
/// before the orderly end that [`h2lab_wire::Limits::idle`] asks for. TCP does not need this: the host of a process
/// that is gone resets the connection at the next segment. A restarted server cannot reset a QUIC connection, since it
/// does not have its key.
pub(super) fn transport(engine: &Config, congestion: Congestion, payload: u16) -> TransportConfig {
    let streams = match engine.role {
        Role::Client => 0, // a server begins none (RFC 9114 §6.1)
        Role::Server => engine.max_concurrent_streams.unwrap_or(MOST_STREAMS).min(MOST_STREAMS),
    };
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(payload.clamp(ETHERNET_PAYLOAD, LARGEST_PAYLOAD));
    let mut transport = TransportConfig::default();
    transport
        .mtu_discovery_config(Some(discovery))
        .max_concurrent_bidi_streams(streams.into())
        .max_concurrent_uni_streams(UNI_STREAMS.into())
        .stream_receive_window(engine.flow.stream_window.into())
        .receive_window(engine.flow.connection_window.into())
        .send_window(SEND_WINDOW)
        .datagram_receive_buffer_size(None)
        .max_idle_timeout(silence(engine).and_then(idle_timeout))
        .keep_alive_interval(engine.keep_alive)
        .congestion_controller_factory(Arc::new(CountingFactory(congestion.factory())));
    transport
}

/// For how long a peer may be silent; `None` for ever.
fn silence(engine: &Config) -> Option<Duration> {
    let after = |time: Duration| time.saturating_add(engine.peer_timeout);
    match (engine.keep_alive, engine.limits.idle, engine.role) {
        (Some(asked), ..) => Some(after(asked)),
        (None, Some(idle), _) => Some(IDLE_TIMEOUT.max(after(idle).saturating_add(ENDING))),
        // It is configured to wait for ever, as a server of TCP does. A client that asks for less gets that (RFC 9000
        // §10.1).
        (None, None, Role::Server) => None,
        (None, None, Role::Client) => Some(IDLE_TIMEOUT),
    }
}

/// A timeout longer than QUIC can encode is not announced.
fn idle_timeout(after: Duration) -> Option<IdleTimeout> {
    let millis = u64::try_from(after.as_millis()).ok()?;
    VarInt::from_u64(millis).ok().map(IdleTimeout::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn congestion_control_has_the_names_of_linux() {
        for name in h2lab_model::workload::QUIC_CONGESTION {
            assert_eq!(Congestion::named(name).map(Congestion::name), Some(name));
        }
        assert_eq!(Congestion::named("dctcp"), None);
        assert_eq!(Congestion::default(), Congestion::Cubic);
    }

    #[test]
    fn silence_does_not_end_a_connection_before_its_orderly_end() {
        let silence = |role, idle: Option<u64>| {
            let mut config = Config::new(role);
            config.limits.idle = idle.map(Duration::from_secs);
            super::silence(&config)
        };
        assert_eq!(silence(Role::Client, None), Some(IDLE_TIMEOUT));
        assert_eq!(silence(Role::Server, Some(1)), Some(IDLE_TIMEOUT));
        let long = Duration::from_secs(600);
        assert!(silence(Role::Server, Some(600)).is_some_and(|after| after > long + ENDING));
        assert_eq!(silence(Role::Server, None), None);
        let asking = Config { keep_alive: Some(Duration::from_secs(5)), ..Config::new(Role::Server) };
        assert_eq!(super::silence(&asking), Some(Duration::from_secs(5) + asking.peer_timeout));
    }

    #[test]
    fn an_idle_timeout_ends_only_what_somebody_asks_for() {
        assert!(idle_timeout(Duration::from_secs(30)).is_some());
        assert!(idle_timeout(Duration::MAX).is_none());
    }
}

//! SETTINGS (RFC 9113 §6.5): what the peer announced, and our announcement.

use super::fault::Fault;
use super::frame::MAX_31_BITS;
use super::hpack::Encoder;
use crate::{Config, Role};

/// Setting identifiers (RFC 9113 §6.5.2, RFC 8441 §3, RFC 9218 §2.1).
pub mod id {
    /// `SETTINGS_HEADER_TABLE_SIZE`: bytes of the HPACK table.
    pub const HEADER_TABLE_SIZE: u16 = 1;
    /// `SETTINGS_ENABLE_PUSH`: 0 or 1.
    pub const ENABLE_PUSH: u16 = 2;
    /// `SETTINGS_MAX_CONCURRENT_STREAMS`: streams that the sender lets its peer open.
    pub const MAX_CONCURRENT_STREAMS: u16 = 3;
    /// `SETTINGS_INITIAL_WINDOW_SIZE`: bytes of each stream.
    pub const INITIAL_WINDOW_SIZE: u16 = 4;
    /// `SETTINGS_MAX_FRAME_SIZE`: bytes of a payload.
    pub const MAX_FRAME_SIZE: u16 = 5;
    /// `SETTINGS_MAX_HEADER_LIST_SIZE`: bytes of a header list before compression.
    pub const MAX_HEADER_LIST_SIZE: u16 = 6;
    /// `SETTINGS_ENABLE_CONNECT_PROTOCOL`: 0 or 1.
    pub const ENABLE_CONNECT_PROTOCOL: u16 = 8;
    /// `SETTINGS_NO_RFC7540_PRIORITIES`: 0 or 1.
    pub const NO_RFC7540_PRIORITIES: u16 = 9;
}

/// The initial flow-control window of streams and connections (RFC 9113 §6.9.2).
pub(super) const DEFAULT_WINDOW: u32 = 65_535;
/// The smallest and initial `SETTINGS_MAX_FRAME_SIZE`.
pub(super) const MIN_FRAME_SIZE: u32 = 16_384;
/// The largest `SETTINGS_MAX_FRAME_SIZE`.
pub(super) const MAX_FRAME_SIZE: u32 = 16_777_215;

/// What the peer announced; before it did, the initial values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PeerSettings {
    pub(super) header_table_size: u32,
    pub(super) enable_push: bool,
    /// `u32::MAX` is no limit.
    pub(super) max_concurrent_streams: u32,
    pub(super) initial_window_size: u32,
    pub(super) max_frame_size: u32,
    /// Advisory. `u32::MAX` is no limit.
    pub(super) max_header_list_size: u32,
    /// A server accepts extended CONNECT; ignored from a client (RFC 8441 §3).
    pub(super) connect_protocol: bool,
}

impl Default for PeerSettings {
    fn default() -> Self {
        Self {
            header_table_size: 4_096,
            enable_push: true,
            max_concurrent_streams: u32::MAX,
            initial_window_size: DEFAULT_WINDOW,
            max_frame_size: MIN_FRAME_SIZE,
            max_header_list_size: u32::MAX,
            connect_protocol: false,
        }
    }
}

impl PeerSettings {
    /// Applies the payload of a SETTINGS frame that we, in this `role`, received.
    pub(super) fn apply_all(
        &mut self,
        payload: &[u8],
        role: Role,
        encoder: &mut Encoder,
    ) -> Result<(), Fault> {
        let peer = if role == Role::Client { Role::Server } else { Role::Client };
        // A table that shrinks and grows again has lost its entries (RFC 7541 §4.2), however often it does: the
        // smallest and the last size suffice. Each change is work for the encoder, and a frame has room for thousands.
        let mut smallest_table = self.header_table_size;
        for entry in entries(payload) {
            self.apply(entry, peer)?;
            smallest_table = smallest_table.min(self.header_table_size);
        }
        encoder.set_limit(smallest_table);
        encoder.set_limit(self.header_table_size);
        Ok(())
    }

    /// Applies one setting of a peer that is `peer`. Unknown settings are ignored.
    pub(super) fn apply(&mut self, (setting, value): (u16, u32), peer: Role) -> Result<(), Fault> {
        match setting {
            id::HEADER_TABLE_SIZE => self.header_table_size = value,
            id::ENABLE_PUSH if value > 1 || (value == 1 && peer == Role::Server) => {
                return Err(Fault::protocol("SETTINGS_ENABLE_PUSH has no legal value (RFC 9113 §6.5.2)"));
            }
            id::ENABLE_PUSH => self.enable_push = value == 1,
            id::MAX_CONCURRENT_STREAMS => self.max_concurrent_streams = value,
            id::INITIAL_WINDOW_SIZE if value > MAX_31_BITS => {
                return Err(Fault::flow_control(
                    "SETTINGS_INITIAL_WINDOW_SIZE is above 2^31 - 1 (RFC 9113 §6.5.2)",
                ));
            }
            id::INITIAL_WINDOW_SIZE => self.initial_window_size = value,
            id::MAX_FRAME_SIZE if !(MIN_FRAME_SIZE..=MAX_FRAME_SIZE).contains(&value) => {
                return Err(Fault::protocol(
                    "SETTINGS_MAX_FRAME_SIZE is outside 2^14 to 2^24 - 1 (RFC 9113 §6.5.2)",
                ));
            }
            id::MAX_FRAME_SIZE => self.max_frame_size = value,
            id::MAX_HEADER_LIST_SIZE => self.max_header_list_size = value,
            id::ENABLE_CONNECT_PROTOCOL if peer == Role::Client => {}
            id::ENABLE_CONNECT_PROTOCOL if value > 1 || (value == 0 && self.connect_protocol) => {
                return Err(Fault::protocol(
                    "SETTINGS_ENABLE_CONNECT_PROTOCOL is above 1, or 0 after 1 (RFC 8441 §3)",
                ));
            }
            id::ENABLE_CONNECT_PROTOCOL => self.connect_protocol = value == 1,
            id::NO_RFC7540_PRIORITIES if value > 1 => {
                return Err(Fault::protocol(
                    "SETTINGS_NO_RFC7540_PRIORITIES has no legal value (RFC 9218 §2.1)",
                ));
            }
            _ => {}
        }
        Ok(())
    }

    /// The settings that we announce for `config`.
    pub(super) fn of(config: &Config) -> Self {
        let mut settings = Self::default();
        for entry in entries(&announce(config)) {
            // Our own values are legal.
            let _ = settings.apply(entry, config.role);
        }
        settings
    }

    /// Identifiers and values in effect, announced or initial; an unlimited setting is left out. `role` is the
    /// announcing side: only a client's `ENABLE_PUSH` means anything, and only a server's `ENABLE_CONNECT_PROTOCOL`.
    pub(super) fn in_effect(&self, role: Role) -> Vec<(u16, u32)> {
        let limit = |setting, value| (value != u32::MAX).then_some((setting, value));
        let whose = |owner, setting, value| (role == owner).then_some((setting, u32::from(value)));
        let all = [
            Some((id::HEADER_TABLE_SIZE, self.header_table_size)),
            whose(Role::Client, id::ENABLE_PUSH, self.enable_push),
            limit(id::MAX_CONCURRENT_STREAMS, self.max_concurrent_streams),
            Some((id::INITIAL_WINDOW_SIZE, self.initial_window_size)),
            Some((id::MAX_FRAME_SIZE, self.max_frame_size)),
            limit(id::MAX_HEADER_LIST_SIZE, self.max_header_list_size),
            whose(Role::Server, id::ENABLE_CONNECT_PROTOCOL, self.connect_protocol),
        ];
        all.into_iter().flatten().collect()
    }
}

/// Whether `payload` may be the payload of a SETTINGS frame of a client.
pub(super) fn are_legal(payload: &[u8]) -> bool {
    let mut settings = PeerSettings::default();
    payload.len().is_multiple_of(6)
        && entries(payload).all(|entry| settings.apply(entry, Role::Client).is_ok())
}

/// The settings in a payload, in order.
pub(super) fn entries(payload: &[u8]) -> impl Iterator<Item = (u16, u32)> + '_ {
    payload.chunks_exact(6).map(|entry| {
        (
            u16::from_be_bytes([entry[0], entry[1]]),
            u32::from_be_bytes([entry[2], entry[3], entry[4], entry[5]]),
        )
    })
}

/// The payload of our SETTINGS: what differs from the initial values, and the header list limit.
pub(super) fn announce(config: &Config) -> Vec<u8> {
    let initial = PeerSettings::default();
    let mut payload = Vec::new();
    let mut put = |setting: u16, value: u32| {
        payload.extend_from_slice(&setting.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    };
    if config.header_table_size != initial.header_table_size {
        put(id::HEADER_TABLE_SIZE, config.header_table_size);
    }
    if config.role == Role::Client && !config.enable_push {
        put(id::ENABLE_PUSH, 0);
    }
    if let (Role::Server, Some(limit)) = (config.role, config.max_concurrent_streams) {
        put(id::MAX_CONCURRENT_STREAMS, limit);
    }
    if config.flow.stream_window != initial.initial_window_size {
        put(id::INITIAL_WINDOW_SIZE, config.flow.stream_window);
    }
    if config.max_frame_size != initial.max_frame_size {
        put(id::MAX_FRAME_SIZE, config.max_frame_size);
    }
    put(id::MAX_HEADER_LIST_SIZE, config.max_header_list_size);
    if config.role == Role::Server && config.connect_protocol {
        put(id::ENABLE_CONNECT_PROTOCOL, 1);
    }
    if config.role == Role::Server {
        put(id::NO_RFC7540_PRIORITIES, 1);
    }
    payload
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorCode;

    fn apply(setting: u16, value: u32, peer: Role) -> Result<PeerSettings, ErrorCode> {
        let mut settings = PeerSettings::default();
        match settings.apply((setting, value), peer) {
            Ok(()) => Ok(settings),
            Err(Fault::Connection { code, .. } | Fault::Stream { code, .. }) => Err(code),
            Err(Fault::Excess(exceeded)) => panic!("{exceeded}"),
        }
    }

    #[test]
    fn values_at_their_bounds_are_taken_and_beyond_refused() {
        let cases = [
            (id::INITIAL_WINDOW_SIZE, MAX_31_BITS, MAX_31_BITS + 1, ErrorCode::FLOW_CONTROL_ERROR),
            (id::MAX_FRAME_SIZE, 16_384, 16_383, ErrorCode::PROTOCOL_ERROR),
            (id::MAX_FRAME_SIZE, 16_777_215, 16_777_216, ErrorCode::PROTOCOL_ERROR),
            (id::ENABLE_PUSH, 1, 2, ErrorCode::PROTOCOL_ERROR),
            (id::NO_RFC7540_PRIORITIES, 1, 2, ErrorCode::PROTOCOL_ERROR),
        ];
        for (setting, good, bad, code) in cases {
            assert!(apply(setting, good, Role::Client).is_ok(), "{setting}={good}");
            assert_eq!(apply(setting, bad, Role::Client), Err(code), "{setting}={bad}");
        }
    }

    #[test]
    fn a_server_may_not_enable_push() {
        assert!(apply(id::ENABLE_PUSH, 0, Role::Server).is_ok());
        assert_eq!(apply(id::ENABLE_PUSH, 1, Role::Server), Err(ErrorCode::PROTOCOL_ERROR));
    }

    #[test]
    fn a_payload_is_legal_when_it_is_made_of_legal_settings() {
        assert!(are_legal(&[]) && are_legal(&[0, 4, 0, 0, 0, 1, 0xf0, 0, 0, 0, 0, 7]));
        assert!(!are_legal(&[0, 4, 0, 0, 0]) && !are_legal(&[0, 4, 0x80, 0, 0, 0]));
    }

    #[test]
    fn extended_connect_is_a_servers_to_enable_and_never_to_disable() {
        let setting = id::ENABLE_CONNECT_PROTOCOL;
        assert!(apply(setting, 1, Role::Server).unwrap().connect_protocol);
        assert!(!apply(setting, 0, Role::Server).unwrap().connect_protocol);
        assert_eq!(apply(setting, 2, Role::Server), Err(ErrorCode::PROTOCOL_ERROR));
        assert_eq!(apply(setting, 2, Role::Client), Ok(PeerSettings::default()), "means nothing");
        let mut enabled = apply(setting, 1, Role::Server).unwrap();
        assert!(enabled.apply((setting, 1), Role::Server).is_ok());
        assert!(enabled.apply((setting, 0), Role::Server).is_err());
    }

    #[test]
    fn unknown_settings_change_nothing() {
        assert_eq!(apply(0xf000, 7, Role::Client), Ok(PeerSettings::default()));
    }

    #[test]
    fn an_announcement_reads_back() {
        let mut config = Config::new(Role::Server);
        config.flow.stream_window = 1 << 20;
        config.max_frame_size = 32_768;
        config.header_table_size = 0;
        config.connect_protocol = true;
        let mut read = PeerSettings::default();
        for entry in entries(&announce(&config)) {
            read.apply(entry, Role::Server).unwrap();
        }
        let expected = PeerSettings {
            header_table_size: 0,
            enable_push: true,
            max_concurrent_streams: 100,
            initial_window_size: 1 << 20,
            max_frame_size: 32_768,
            max_header_list_size: 65_536,
            connect_protocol: true,
        };
        assert_eq!(read, expected);
        assert_eq!(PeerSettings::of(&config), expected);
    }

    #[test]
    fn what_is_in_effect_has_the_initial_values_too_and_no_limit_is_left_out() {
        let initial = PeerSettings::default();
        assert_eq!(initial.in_effect(Role::Server), [(1, 4_096), (4, 65_535), (5, 16_384), (8, 0)]);
        let client = PeerSettings::of(&Config::new(Role::Client));
        assert_eq!(
            client.in_effect(Role::Client),
            [(1, 4_096), (2, 0), (4, 65_535), (5, 16_384), (6, 65_536)]
        );
        let server = PeerSettings { max_concurrent_streams: 128, ..initial };
        assert_eq!(server.in_effect(Role::Server)[1], (3, 128));
    }
}

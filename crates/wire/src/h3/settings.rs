//! SETTINGS (RFC 9114 §7.2.4, RFC 9204 §5, RFC 9220 §3).

use super::fault::{Fault, connection, layout};
use super::varint;
use crate::connection::SettingValues;
use crate::{Config, ErrorCode, Role};

/// Identifiers.
mod id {
    pub(super) const QPACK_MAX_TABLE_CAPACITY: u64 = 0x1;
    pub(super) const MAX_FIELD_SECTION_SIZE: u64 = 0x6;
    pub(super) const QPACK_BLOCKED_STREAMS: u64 = 0x7;
    pub(super) const ENABLE_CONNECT_PROTOCOL: u64 = 0x8;
    pub(super) const H3_DATAGRAM: u64 = 0x33;
}

/// Names of the settings that [`crate::Connection::settings_in_effect`] returns for HTTP/3.
pub const fn setting_name(identifier: u16) -> Option<&'static str> {
    Some(match identifier as u64 {
        id::QPACK_MAX_TABLE_CAPACITY => "QPACK_MAX_TABLE_CAPACITY",
        id::MAX_FIELD_SECTION_SIZE => "MAX_FIELD_SECTION_SIZE",
        id::QPACK_BLOCKED_STREAMS => "QPACK_BLOCKED_STREAMS",
        id::ENABLE_CONNECT_PROTOCOL => "ENABLE_CONNECT_PROTOCOL",
        id::H3_DATAGRAM => "H3_DATAGRAM",
        _ => return None,
    })
}

/// The settings that one side announced; until then the initial values of RFC 9114.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Settings {
    table_capacity: u64,
    blocked_streams: u64,
    /// The largest field section, in bytes as RFC 9114 §4.2.2 counts them.
    pub(super) max_field_section: u64,
    /// Whether a CONNECT may name a protocol (RFC 9220 §3).
    pub(super) connect_protocol: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { table_capacity: 0, blocked_streams: 0, max_field_section: u64::MAX, connect_protocol: false }
    }
}

impl Settings {
    /// Ours.
    pub(super) fn of(config: &Config) -> Self {
        Self {
            max_field_section: u64::from(config.max_header_list_size),
            connect_protocol: config.connect_protocol && config.role == Role::Server,
            ..Self::default()
        }
    }

    /// The payload that announces them; initial values are left out.
    pub(super) fn announce(self) -> Vec<u8> {
        let mut payload = Vec::new();
        varint::encode(id::MAX_FIELD_SECTION_SIZE, &mut payload);
        varint::encode(self.max_field_section, &mut payload);
        if self.connect_protocol {
            varint::encode(id::ENABLE_CONNECT_PROTOCOL, &mut payload);
            varint::encode(1, &mut payload);
        }
        payload
    }

    /// Reads the peer's.
    pub(super) fn parse(mut payload: &[u8]) -> Result<Self, Fault> {
        let (mut settings, mut seen) = (Self::default(), Vec::new());
        while !payload.is_empty() {
            let (Some(id), Some(value)) = (varint::take(&mut payload), varint::take(&mut payload)) else {
                return Err(layout("SETTINGS are cut off within a setting (RFC 9114 §7.1)"));
            };
            if seen.contains(&id) {
                return Err(wrong("a duplicate setting (RFC 9114 §7.2.4)"));
            }
            seen.push(id);
            settings.set(id, value)?;
        }
        Ok(settings)
    }

    fn set(&mut self, id: u64, value: u64) -> Result<(), Fault> {
        match id {
            0x0 | 0x2..=0x5 => return Err(wrong("a setting of HTTP/2, or 0 (RFC 9114 §7.2.4.1, §11.2.2)")),
            id::QPACK_MAX_TABLE_CAPACITY => self.table_capacity = value,
            id::MAX_FIELD_SECTION_SIZE => self.max_field_section = value,
            id::QPACK_BLOCKED_STREAMS => self.blocked_streams = value,
            id::ENABLE_CONNECT_PROTOCOL if value > 1 => {
                return Err(wrong("ENABLE_CONNECT_PROTOCOL is neither 0 nor 1 (RFC 9220 §3)"));
            }
            id::ENABLE_CONNECT_PROTOCOL => self.connect_protocol = value == 1,
            id::H3_DATAGRAM if value > 1 => {
                return Err(wrong("H3_DATAGRAM is neither 0 nor 1 (RFC 9297 §2.1.1)"));
            }
            _ => {} // unknown ones are ignored (RFC 9114 §7.2.4)
        }
        Ok(())
    }

    /// Identifiers and values, clamped to 2^32 − 1; unlimited settings are left out.
    pub(super) fn in_effect(self) -> SettingValues {
        let small = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let mut values = vec![(id::QPACK_MAX_TABLE_CAPACITY as u16, small(self.table_capacity))];
        if self.max_field_section != u64::MAX {
            values.push((id::MAX_FIELD_SECTION_SIZE as u16, small(self.max_field_section)));
        }
        values.push((id::QPACK_BLOCKED_STREAMS as u16, small(self.blocked_streams)));
        values.push((id::ENABLE_CONNECT_PROTOCOL as u16, u32::from(self.connect_protocol)));
        values
    }
}

const fn wrong(reason: &'static str) -> Fault {
    connection(ErrorCode::H3_SETTINGS_ERROR, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(settings: &[(u64, u64)]) -> Result<Settings, ErrorCode> {
        let mut payload = Vec::new();
        for (id, value) in settings {
            varint::encode(*id, &mut payload);
            varint::encode(*value, &mut payload);
        }
        read(&payload)
    }

    fn read(payload: &[u8]) -> Result<Settings, ErrorCode> {
        Settings::parse(payload).map_err(|fault| match fault {
            Fault::Connection { code, .. } => code,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn what_we_announce_reads_back() {
        for role in [Role::Client, Role::Server] {
            let config = Config { connect_protocol: true, ..Config::new(role) };
            let ours = Settings::of(&config);
            assert_eq!(ours.connect_protocol, role == Role::Server);
            assert_eq!(Settings::parse(&ours.announce()), Ok(ours));
        }
    }

    #[test]
    fn settings_of_http_2_and_settings_twice_are_refused_and_unknown_ones_ignored() {
        for id in [0, 2, 3, 4, 5] {
            let declared = parse(&[(id, 0)]);
            assert_eq!(declared, Err(ErrorCode::H3_SETTINGS_ERROR), "{id} (RFC 9114 §7.2.4.1, §11.2.2)");
        }
        for id in [6, 0x21, 0x4000] {
            assert_eq!(parse(&[(id, 0), (7, 1), (id, 0)]), Err(ErrorCode::H3_SETTINGS_ERROR), "{id} twice");
        }
        let grease = 0x1f * 77 + 0x21;
        assert_eq!(parse(&[(grease, varint::MAX), (0x4000, 1)]), Ok(Settings::default()));
    }

    #[test]
    fn switches_are_0_or_1() {
        for id in [0x8, 0x33] {
            assert!(parse(&[(id, 0)]).is_ok() && parse(&[(id, 1)]).is_ok());
            assert_eq!(parse(&[(id, 2)]), Err(ErrorCode::H3_SETTINGS_ERROR), "{id}");
        }
    }

    #[test]
    fn a_setting_cut_short_is_a_frame_error() {
        assert_eq!(read(&[]), Ok(Settings::default()));
        for cut in [&[6][..], &[6, 0x40], &[0x40]] {
            assert_eq!(read(cut), Err(ErrorCode::H3_FRAME_ERROR), "{cut:?}");
        }
    }

    #[test]
    fn settings_in_effect_have_names() {
        let declared = parse(&[(1, 4_096), (6, varint::MAX), (7, 16)]).unwrap().in_effect();
        assert_eq!(declared, [(1, 4_096), (6, u32::MAX), (7, 16), (8, 0)]);
        assert!(declared.iter().all(|(id, _)| setting_name(*id).is_some()));
        assert_eq!(Settings::default().in_effect(), [(1, 0), (7, 0), (8, 0)], "no limit");
    }
}

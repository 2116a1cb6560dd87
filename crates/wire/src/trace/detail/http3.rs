//! What is in the frames of HTTP/3 (RFC 9114 §7.2), and in `RESET_STREAM` and `STOP_SENDING` of QUIC.

use super::detailed_frame::{Detail, Head, Setting};
use super::http2::{self, SETTINGS_KEPT};
use super::kept::{Kept, UNKNOWN_KEPT};
use super::words::hexadecimal;
use crate::ErrorCode;
use crate::h3::inspect::{FieldSections, integer};
use crate::h3::setting_name;
use crate::trace::frame::BareFrame;
use crate::trace::frame::FrameKind;

/// What is in `frame`, whose payload is `kept`.
pub(super) fn read(frame: BareFrame, kept: &Kept, sections: &mut FieldSections) -> Detail {
    let payload = kept.bytes.as_slice();
    let detail = match frame.kind {
        FrameKind::DATA => Some(Detail::Data { data_bytes: frame.length, padding: None, chunk: None }),
        FrameKind::HEADERS => Some(head(kept, sections)),
        FrameKind::SETTINGS => settings(payload),
        FrameKind::GOAWAY => integer(payload).map(|(id, _)| Detail::GoAwayFrom { id }),
        FrameKind::PRIORITY_UPDATE => integer(payload).map(|(stream, value)| Detail::PriorityUpdate {
            prioritized_stream: u32::try_from(stream).unwrap_or(u32::MAX),
            priority_field_value: http2::text(value),
        }),
        _ => Some(Detail::Unknown { payload: hexadecimal(&payload[..payload.len().min(UNKNOWN_KEPT)]) }),
    };
    detail.unwrap_or_else(|| Detail::Malformed { malformed: format!("{} bytes are too few", frame.length) })
}

/// The detail of a stream that was aborted with this code.
pub(super) fn given_up(code: u64) -> Detail {
    // The numbers of HTTP/2 have no name here.
    let known = ErrorCode::of_quic(code);
    let is_named = u64::from(known.0) == code;
    Detail::Reset { error_code: if is_named { known.to_string() } else { format!("{code:#x}") } }
}

fn head(kept: &Kept, sections: &mut FieldSections) -> Detail {
    let mut head = Head::default();
    if kept.is_cut() {
        head.undecoded = Some(http2::BLOCK_TOO_LONG.to_owned());
        return Detail::Head(head);
    }
    match sections.decode(&kept.bytes) {
        Ok((fields, all)) => {
            let within = http2::keep(fields, &mut head.fields);
            head.is_cut = !(all && within);
        }
        Err(why) => head.undecoded = Some(why.to_owned()),
    }
    Detail::Head(head)
}

/// Identifiers and values have up to 62 bits; longer ones than HTTP/2's are clamped.
fn settings(mut payload: &[u8]) -> Option<Detail> {
    let mut settings = Vec::new();
    let mut is_cut = false;
    while !payload.is_empty() {
        let (number, rest) = integer(payload)?;
        let (value, rest) = integer(rest)?;
        payload = rest;
        is_cut = settings.len() == SETTINGS_KEPT;
        if is_cut {
            break;
        }
        let id = u16::try_from(number).unwrap_or(u16::MAX);
        let known = u16::try_from(number).ok().and_then(setting_name);
        let name = known.map_or_else(|| format!("{number:#06x}"), str::to_owned);
        settings.push(Setting { name, id, value: u32::try_from(value).unwrap_or(u32::MAX) });
    }
    Some(Detail::Settings { settings, is_cut })
}

//! What is in the frames of HTTP/2 (RFC 9113 §6).
//!
//! It is more tolerant than the engine's `frame::Frame::parse`, which refuses illegal frames: here they must be shown.

use super::detailed_frame::{Dependency, Detail, Head, PrintableField, Setting};
use super::kept::{KEPT, Kept, UNKNOWN_KEPT};
use super::words::{hexadecimal, setting_name};
use crate::h2::frame::{MAX_31_BITS, flag};
use crate::h2::inspect::FieldBlocks;
use crate::trace::frame::BareFrame;
use crate::trace::frame::FrameKind;
use crate::{ErrorCode, Fields};
use h2lab_base::text::printable;

/// Bytes of a field's value that are kept.
pub(super) const VALUE_KEPT: usize = 4_096;
/// Bytes of names and values of one block that are kept.
pub(super) const FIELDS_KEPT: usize = 16_384;
/// Settings of one frame that are kept: ten times what RFCs have defined.
pub(super) const SETTINGS_KEPT: usize = 100;
/// Bytes of debug data, and of priorities, that are kept.
const TEXT_KEPT: usize = 1_024;
pub(super) const BLOCK_TOO_LONG: &str = "a field block was longer than is looked at";

/// The field blocks of one direction.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    compression: FieldBlocks,
    /// The block under way, up to [`KEPT`] bytes.
    block: Kept,
}

impl Blocks {
    /// The next fragment of a block; `cut`: not all of it was kept. If it is the last one, `head` gets the fields.
    fn take(&mut self, fragment: &[u8], cut: bool, is_last: bool, head: &mut Head) {
        self.block.push(fragment, KEPT);
        self.block.length += usize::from(cut);
        head.continues = !is_last;
        if !is_last {
            return;
        }
        let decoded = if self.block.is_cut() {
            Err(self.compression.lose(BLOCK_TOO_LONG))
        } else {
            self.compression.decode(&self.block.bytes)
        };
        match decoded {
            Ok((fields, all)) => {
                let within = keep(fields, &mut head.fields);
                head.is_cut = !(all && within);
            }
            Err(why) => head.undecoded = Some(why.to_owned()),
        }
        self.block.clear();
    }
}

/// Keeps the fields that there is room for; `false` if any was left out or cut.
pub(super) fn keep(fields: Fields<'_>, kept: &mut Vec<PrintableField>) -> bool {
    let mut room = FIELDS_KEPT;
    for field in fields.iter() {
        let value = &field.value[..field.value.len().min(VALUE_KEPT)];
        let Some(left) = room.checked_sub(field.name.len() + value.len()) else { return false };
        room = left;
        kept.push(PrintableField {
            name: printable(field.name),
            value: printable(value),
            value_bytes: field.value.len() as u32,
        });
    }
    kept.iter().all(|field| field.value_bytes as usize <= VALUE_KEPT)
}

/// What is in `frame`, whose payload is `kept`.
pub(super) fn read(frame: BareFrame, kept: &Kept, blocks: &mut Blocks) -> Detail {
    let payload = kept.bytes.as_slice();
    let detail = match frame.kind {
        FrameKind::DATA => data(frame, payload),
        FrameKind::HEADERS | FrameKind::PUSH_PROMISE | FrameKind::CONTINUATION => head(frame, kept, blocks),
        FrameKind::PRIORITY => dependency(payload).map(Detail::Priority),
        FrameKind::RST_STREAM => first_u32(payload).map(|(code, _)| Detail::Reset { error_code: name(code) }),
        FrameKind::SETTINGS => settings(payload, kept.length),
        FrameKind::PING => {
            payload.first_chunk::<8>().map(|opaque| Detail::Ping { opaque: hexadecimal(opaque) })
        }
        FrameKind::GOAWAY => goaway(payload),
        FrameKind::WINDOW_UPDATE => first_u32(payload)
            .map(|(increment, _)| Detail::WindowUpdate { increment: increment & MAX_31_BITS }),
        FrameKind::PRIORITY_UPDATE => first_u32(payload).map(|(stream, value)| Detail::PriorityUpdate {
            prioritized_stream: stream & MAX_31_BITS,
            priority_field_value: text(value),
        }),
        _ => {
            let payload = hexadecimal(&payload[..payload.len().min(UNKNOWN_KEPT)]);
            Some(Detail::Unknown { payload })
        }
    };
    detail.unwrap_or_else(|| {
        // The fragment of a field block that it held is lost.
        if matches!(frame.kind, FrameKind::HEADERS | FrameKind::PUSH_PROMISE) {
            blocks.compression.lose("a malformed frame held a field block");
        }
        Detail::Malformed {
            malformed: format!("{} bytes are too few, or padding exceeds them", frame.length),
        }
    })
}

fn data(frame: BareFrame, payload: &[u8]) -> Option<Detail> {
    let padding = padding(frame, payload).ok()?;
    let around = padding.map_or(0, |padding| 1 + u32::from(padding));
    Some(Detail::Data { data_bytes: frame.length.checked_sub(around)?, padding, chunk: None })
}

/// A frame has PADDED and not even room for the pad length.
struct NoPadLength;

/// The pad length, `None` without PADDED.
fn padding(frame: BareFrame, payload: &[u8]) -> Result<Option<u8>, NoPadLength> {
    if frame.flags & flag::PADDED == 0 {
        return Ok(None);
    }
    payload.first().copied().map(Some).ok_or(NoPadLength)
}

fn head(frame: BareFrame, kept: &Kept, blocks: &mut Blocks) -> Option<Detail> {
    let mut head = Head::default();
    let mut fragment = kept.bytes.as_slice();
    if frame.kind != FrameKind::CONTINUATION {
        // A block that was never finished is discarded.
        if blocks.block.length > 0 {
            blocks.block.clear();
            blocks.compression.lose("a field block was not finished");
        }
        head.padding = padding(frame, fragment).ok()?;
        if let Some(padding) = head.padding {
            let end = (kept.length).checked_sub(usize::from(padding)).filter(|end| *end >= 1)?;
            fragment = &fragment[1..end.min(fragment.len())];
        }
    }
    if frame.kind == FrameKind::HEADERS && frame.flags & flag::PRIORITY != 0 {
        head.priority = Some(dependency(fragment)?);
        fragment = &fragment[5..];
    }
    if frame.kind == FrameKind::PUSH_PROMISE {
        let (promised, rest) = first_u32(fragment)?;
        head.promised_stream = Some(promised & MAX_31_BITS);
        fragment = rest;
    }
    blocks.take(fragment, kept.is_cut(), frame.flags & flag::END_HEADERS != 0, &mut head);
    Some(Detail::Head(head))
}

fn dependency(payload: &[u8]) -> Option<Dependency> {
    let (stream, rest) = first_u32(payload)?;
    let weight = u16::from(*rest.first()?) + 1;
    Some(Dependency { depends_on: stream & MAX_31_BITS, weight, exclusive: stream > MAX_31_BITS })
}

fn settings(payload: &[u8], length: usize) -> Option<Detail> {
    let (entries, rest) = payload.as_chunks::<6>();
    if length == payload.len() && !rest.is_empty() {
        return None;
    }
    let setting = |&[i0, i1, v0, v1, v2, v3]: &[u8; 6]| {
        let id = u16::from_be_bytes([i0, i1]);
        Setting { name: setting_name(id), id, value: u32::from_be_bytes([v0, v1, v2, v3]) }
    };
    let settings = entries.iter().take(SETTINGS_KEPT).map(setting).collect();
    Some(Detail::Settings { settings, is_cut: length / 6 > SETTINGS_KEPT })
}

fn goaway(payload: &[u8]) -> Option<Detail> {
    let (last_stream, rest) = first_u32(payload)?;
    let (code, debug) = first_u32(rest)?;
    Some(Detail::GoAway {
        last_stream_id: last_stream & MAX_31_BITS,
        error_code: name(code),
        debug: text(debug),
    })
}

fn name(code: u32) -> String {
    ErrorCode(code).to_string()
}

pub(super) fn text(bytes: &[u8]) -> String {
    printable(&bytes[..bytes.len().min(TEXT_KEPT)])
}

fn first_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (first, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*first), rest))
}

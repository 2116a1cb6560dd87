//! What is in the messages of HTTP/1.1 (RFC 9112): start lines, fields, and how bodies are cut.

use super::detailed_frame::{Detail, Head, PrintableField};
use super::http2::{FIELDS_KEPT, VALUE_KEPT};
use super::kept::Kept;
use crate::trace::frame::BareFrame;
use crate::trace::frame::FrameKind;
use h2lab_base::text::printable;

/// Bytes of chunk framing that are kept for one piece of body: a few size lines.
pub(super) const FRAMING_KEPT: usize = 64;

/// What is in `frame`: a head or trailer section that is `kept`, or a piece of body after `framing`.
pub(super) fn read(frame: BareFrame, kept: &Kept, framing: &Kept) -> Detail {
    let is_head = frame.kind == FrameKind::HEADERS;
    // An empty trailer section only ends a chunked body.
    let has_lines = kept.bytes.iter().any(|byte| !matches!(byte, b'\r' | b'\n'));
    if is_head || has_lines {
        return Detail::Head(section(kept, is_head));
    }
    Detail::Data { data_bytes: frame.length, padding: None, chunk: chunk(framing) }
}

/// The size lines in `framing`, without extensions and line ends.
fn chunk(framing: &Kept) -> Option<String> {
    let lines = framing.bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let sizes: Vec<String> = lines.filter(|line| !line.is_empty()).map(printable).collect();
    (!sizes.is_empty()).then(|| sizes.join(" "))
}

fn section(kept: &Kept, is_head: bool) -> Head {
    let mut lines = kept.bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let mut lines = lines.by_ref().filter(|line| !line.is_empty());
    let mut head = Head { is_cut: kept.is_cut(), ..Head::default() };
    if is_head {
        let line = lines.next().unwrap_or_default();
        head.start_line = Some(printable(&line[..line.len().min(VALUE_KEPT)]));
    }
    let mut room = FIELDS_KEPT;
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (name, value) = (&line[..colon], line.get(colon + 1..).unwrap_or_default().trim_ascii());
        let shown = &value[..value.len().min(VALUE_KEPT)];
        let Some(left) = room.checked_sub(name.len() + shown.len()) else {
            head.is_cut = true;
            break;
        };
        room = left;
        head.is_cut |= shown.len() < value.len();
        head.fields.push(PrintableField {
            name: printable(name),
            value: printable(shown),
            value_bytes: value.len() as u32,
        });
    }
    head
}

//! A frame on one line, for people.

use super::{Dependency, Detail, DetailedFrame, Head, flag_names};
use h2lab_base::counts::plural;

/// Characters of a head that are put on a line.
const HEAD_WIDTH: usize = 160;

/// The frame on one line: `GOAWAY[0] NO_ERROR last_stream_id 1999`.
pub fn line(frame: &DetailedFrame) -> String {
    let event = &frame.event;
    let mut words = vec![event.to_string()];
    words.extend(flag_names(event.kind, event.flags));
    match &frame.detail {
        Detail::Head(head) => words.push(shortened(&head_words(head))),
        Detail::Settings { settings, .. } => {
            words.extend(settings.iter().map(|one| format!("{}={}", one.name, one.value)));
        }
        Detail::Data { .. } => {
            words.push(plural(event.length.into(), "byte"));
            words.extend(Some(plain(&frame.detail, event.length)).filter(|text| !text.is_empty()));
        }
        detail => words.push(plain(detail, event.length)),
    }
    words.join(" ")
}

fn head_words(head: &Head) -> String {
    let mut words: Vec<String> = head.start_line.iter().cloned().collect();
    words.extend(head.promised_stream.map(|stream| format!("promises stream {stream}")));
    words.extend(head.undecoded.as_ref().map(|why| format!("not decoded: {why}")));
    words.extend(head.fields.iter().map(|field| format!("{} {}", field.name, field.value)));
    words.join(", ")
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(HEAD_WIDTH) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text.to_owned(),
    }
}

/// The details of frames that have no fields; nothing of those that do.
pub fn plain(detail: &Detail, length: u32) -> String {
    match detail {
        Detail::Data { data_bytes, padding, chunk } => {
            let mut words = Vec::new();
            if *data_bytes != length {
                words.push(format!("{} of data", plural((*data_bytes).into(), "byte")));
            }
            words.extend(padding.map(|padding| format!("padding {padding}")));
            words.extend(chunk.as_ref().map(|chunk| format!("chunk {chunk}")));
            words.join(", ")
        }
        Detail::WindowUpdate { increment } => format!("+{increment}"),
        Detail::Reset { error_code } => error_code.clone(),
        Detail::GoAway { last_stream_id, error_code, debug } => {
            let debug = if debug.is_empty() { String::new() } else { format!(" \"{debug}\"") };
            format!("{error_code} last_stream_id {last_stream_id}{debug}")
        }
        Detail::GoAwayFrom { id } => format!("from stream {id} on"),
        Detail::Ping { opaque } => opaque.clone(),
        Detail::Priority(priority) => dependency(*priority),
        Detail::PriorityUpdate { prioritized_stream, priority_field_value } => {
            format!("stream {prioritized_stream}: {priority_field_value}")
        }
        Detail::Unknown { payload } => payload.clone(),
        Detail::Malformed { malformed } => format!("malformed: {malformed}"),
        Detail::CutOff { received } => format!("cut off after {}", plural(*received, "byte")),
        Detail::Head(_) | Detail::Settings { .. } => String::new(),
    }
}

/// A priority of RFC 7540 in words.
pub fn dependency(priority: Dependency) -> String {
    let Dependency { depends_on, weight, exclusive } = priority;
    let exclusive = if exclusive { " alone" } else { "" };
    format!("depends on stream {depends_on}{exclusive}, weight {weight}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::detail::Reader;
    use crate::trace::{Dialect, Direction};
    use h2lab_base::units::Time;

    #[test]
    fn frames_are_reported_on_one_line() {
        let mut reader = Reader::new(Dialect::Http2, 0);
        let mut lines = Vec::new();
        let settings = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 128];
        let head = [0, 0, 1, 1, 5, 0, 0, 0, 1, 0x88];
        let goaway = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 7, 207, 0, 0, 0, 0];
        let bytes = [&settings[..], &head, &goaway].concat();
        reader.feed(Time::ZERO, Direction::Down, &bytes, &mut |frame| lines.push(line(&frame)));
        assert_eq!(
            lines,
            [
                "SETTINGS[0] MAX_CONCURRENT_STREAMS=128",
                "HEADERS[1] END_STREAM END_HEADERS :status 200",
                "GOAWAY[0] NO_ERROR last_stream_id 1999"
            ]
        );
    }
}

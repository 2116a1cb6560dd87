//! `--limit NAME=VALUE`: what a client may do before it is cut off.

use h2lab_base::units::{parse_bytes, parse_duration};
use h2lab_wire::Limits;
use h2lab_wire::limits::Rate;

/// For the help of `--limit`.
pub const HELP: &str = "Limits after which a client is cut off; repeatable. GOAWAY and a line on stderr name the limit. \
    The names, with their defaults: resets=1000/33 (burst/per second), stream-errors=1024, \
    continuations=8, field-list-factor=4, empty-data=100, small-data=25600, short-data=100000/10000, noise=100, \
    settings=100/10, unread-answers=1000, unread-output=1M, small-data-frames=1000, stall=30s, head=10s, \
    body-period=10s, body-rate=240, idle=75s; a time may be off";

/// The names and the form of their values.
const KNOWN: &str = "resets=N/PER_SECOND, stream-errors=N, continuations=N, field-list-factor=N, empty-data=N, \
    small-data=SIZE, short-data=N/PER_SECOND, noise=N, settings=N/PER_SECOND, unread-answers=N, unread-output=SIZE, \
    small-data-frames=N, stall=TIME, head=TIME, body-period=TIME, body-rate=N, idle=TIME";

/// One `--limit`, checked.
#[derive(Debug, Clone)]
pub struct LimitArg {
    name: String,
    value: String,
}

impl LimitArg {
    /// Reads `NAME=VALUE`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').ok_or(format!("`{text}` is not NAME=VALUE"))?;
        let limit = Self { name: name.to_owned(), value: value.to_owned() };
        // A trial, which checks name and value: the limits that it is applied to do not matter.
        limit.apply(&mut Limits::new(h2lab_wire::Role::Server))?;
        Ok(limit)
    }

    /// Sets the limit.
    pub fn apply(&self, limits: &mut Limits) -> Result<(), String> {
        let (name, value) = (self.name.as_str(), self.value.as_str());
        match name {
            "resets" => limits.resets = rate(value)?,
            "stream-errors" => limits.stream_errors = number(value)?,
            "continuations" => limits.continuations = number(value)?,
            "field-list-factor" => limits.field_list_factor = number(value)?,
            "empty-data" => limits.empty_data = number(value)?,
            "small-data" => limits.small_data = Some(size(value)?),
            "short-data" => limits.short_data = rate(value)?,
            "noise" => limits.noise = number(value)?,
            "settings" => limits.settings = rate(value)?,
            "unread-answers" => limits.unread_answers = number(value)?,
            "unread-output" => limits.unread_output = size(value)? as usize,
            "small-data-frames" | "dribbles" => limits.small_data_frames = number(value)?,
            "stall" => limits.stall = time(value)?,
            "head" => limits.head = time(value)?,
            "body-period" => limits.body_period = time(value)?,
            "body-rate" => limits.body_rate = number(value)?,
            "idle" => limits.idle = time(value)?,
            _ => return Err(format!("`{name}` is not a limit; known: {KNOWN}")),
        }
        Ok(())
    }
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number from 0 to {}", u32::MAX))
}

fn size(text: &str) -> Result<u32, String> {
    let bytes = parse_bytes(text).map_err(|error| error.to_string())?;
    u32::try_from(bytes).map_err(|_| format!("`{text}` is not below 4G"))
}

fn rate(text: &str) -> Result<Rate, String> {
    let (burst, per_second) = text.split_once('/').ok_or(format!("`{text}` is not N/PER_SECOND"))?;
    Ok(Rate { burst: number(burst)?, per_second: number(per_second)? })
}

fn time(text: &str) -> Result<Option<std::time::Duration>, String> {
    if text == "off" {
        return Ok(None);
    }
    parse_duration(text).map(Some).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use h2lab_wire::Role;

    use super::*;

    fn with(text: &str) -> Limits {
        let mut limits = Limits::new(Role::Server);
        LimitArg::parse(text).unwrap().apply(&mut limits).unwrap();
        limits
    }

    #[test]
    fn every_name_in_the_help_is_taken_and_changes_something() {
        for form in KNOWN.split(", ") {
            let text =
                form.trim().replace("N/PER_SECOND", "7/3").replace("SIZE", "9k").replace("TIME", "5ms");
            let text = text.replace("=N", "=7");
            assert_ne!(with(&text), Limits::new(Role::Server), "{text}");
        }
    }

    #[test]
    fn values_have_the_form_of_their_limit() {
        assert_eq!(with("resets=5/1").resets, Rate { burst: 5, per_second: 1 });
        assert_eq!(with("idle=off").idle, None);
        assert_eq!(with("head=250ms").head, Some(Duration::from_millis(250)));
        assert_eq!(with("unread-output=64k").unread_output, 65_536);
        for bad in ["resets", "resets=5", "resets=5/x", "head=5", "noise=-1", "small-data=8G", "color=7"] {
            assert!(LimitArg::parse(bad).is_err(), "{bad}");
        }
    }
}

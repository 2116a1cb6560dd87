//! The log of an agent on stderr: a line for each event, with the time, what happened, whom it concerns, and why.

use std::time::SystemTime;

use h2lab_base::secrets;
use h2lab_base::text::made_printable;

/// Writes a line, which may quote what came from elsewhere.
pub fn line(event: &str) {
    crate::stderr::write(format_args!("{}\n", text(SystemTime::now(), event)));
}

/// The line without its end: printable, and without secrets of URLs.
fn text(now: SystemTime, event: &str) -> String {
    let event = secrets::without_secrets(event);
    format!("{} {}", humantime::format_rfc3339_seconds(now), made_printable(&event))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_line_has_the_time_and_nothing_that_a_terminal_would_obey() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        assert_eq!(
            text(at, "refuses a\nb\u{1b}[2J: http://me:secret@a/ is not permitted"),
            "1970-01-01T00:00:01Z refuses a\\nb\\u{1b}[2J: http://***@a/ is not permitted"
        );
    }
}

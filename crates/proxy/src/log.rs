//! A line of the access log. Whatever peers send is printable ASCII in it: no byte of theirs ends a line, a word or a string.

use std::io::Write as _;
use std::time::Duration;

use h2lab_base::calendar::Moment;

use crate::config::LogFormat;
use crate::fields::Version;
use crate::grpc;
use crate::trace::Span;

/// A request that has ended, or a connection of a client that has carried none.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// When it came, since 1970 UTC.
    pub at: Duration,
    /// The client's address.
    pub client: &'a str,
    /// The request's method.
    pub method: &'a [u8],
    /// Host and port that it asks for.
    pub authority: &'a [u8],
    /// Path and query.
    pub path: &'a [u8],
    /// What the client speaks; none where its TLS handshake failed.
    pub version: Option<Version>,
    /// It is HTTP/1.0.
    pub is_http10: bool,
    /// The status that the client was given; 0 if none.
    pub status: u16,
    /// Bytes of the request's body.
    pub received: u64,
    /// Bytes of the response's body.
    pub sent: u64,
    /// From its arrival until its end.
    pub took: Duration,
    /// Its service; none where no route takes it.
    pub service: Option<&'a str>,
    /// The instance that it was sent to, if any.
    pub instance: Option<&'a str>,
    /// The number of the connection among those to the instance.
    pub connection: u32,
    /// How often it was sent.
    pub tries: u32,
    /// gRPC's status that the client was given, where the request is gRPC's.
    pub grpc_status: Option<u32>,
    /// Its ids, where it has a trace.
    pub span: Option<Span>,
    /// Why it failed, if it did.
    pub failed: Option<&'a str>,
}

impl Entry<'_> {
    /// Adds the line to `out`, with its end.
    pub fn write(&self, format: LogFormat, out: &mut Vec<u8>) {
        match format {
            LogFormat::Text => self.write_text(out),
            LogFormat::Json => self.write_json(out),
        }
        out.push(b'\n');
    }

    /// `TIME CLIENT "METHOD AUTHORITY PATH VERSION" STATUS RECEIVED SENT TOOK SERVICE INSTANCE#CONNECTION ×TRIES GRPC TRACE-SPAN "WHY"`,
    /// with `-` for what is missing.
    fn write_text(&self, out: &mut Vec<u8>) {
        write_time(self.at, out);
        put(out, format_args!(" "));
        word(self.client.as_bytes(), out);
        out.extend_from_slice(b" \"");
        for part in [self.method, self.authority, self.path] {
            word(part, out);
            out.push(b' ');
        }
        let (status, received, sent) = (self.status, self.received, self.sent);
        let millis = self.took.as_secs_f64() * 1e3;
        put(
            out,
            format_args!(
                "{}\" {status} {received} {sent} {millis:.3}ms ",
                self.version.map_or("-", |version| name(version, self.is_http10))
            ),
        );
        word(self.service.unwrap_or_default().as_bytes(), out);
        out.push(b' ');
        match self.instance {
            Some(instance) => {
                word(instance.as_bytes(), out);
                put(out, format_args!("#{}", self.connection));
            }
            None => out.push(b'-'),
        }
        put(out, format_args!(" x{} ", self.tries));
        match self.grpc_status {
            Some(status) => write_grpc(status, out),
            None => out.push(b'-'),
        }
        out.push(b' ');
        match &self.span {
            Some(span) => {
                out.extend_from_slice(&span.trace);
                out.push(b'-');
                out.extend_from_slice(&span.id);
            }
            None => out.push(b'-'),
        }
        match self.failed {
            Some(why) => {
                out.extend_from_slice(b" \"");
                escape_bytes(why.as_bytes(), out);
                out.push(b'"');
            }
            None => out.extend_from_slice(b" -"),
        }
    }

    fn write_json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"time\":\"");
        write_time(self.at, out);
        out.push(b'"');
        let texts: [(&str, Option<&[u8]>); 6] = [
            ("client", Some(self.client.as_bytes())),
            ("method", Some(self.method)),
            ("authority", Some(self.authority)),
            ("path", Some(self.path)),
            ("version", self.version.map(|version| name(version, self.is_http10).as_bytes())),
            ("service", self.service.map(str::as_bytes)),
        ];
        for (key, value) in texts {
            // Where there was no request there is no method and no target, and a request in HTTP/1.0 may name no host.
            string(key, value.filter(|value| !value.is_empty()), out);
        }
        string("instance", self.instance.map(str::as_bytes), out);
        if self.instance.is_some() {
            put(out, format_args!(",\"connection\":{}", self.connection));
        }
        put(
            out,
            format_args!(
                ",\"status\":{},\"bytes_received\":{},\"bytes_sent\":{},\"duration_ms\":{:.3},\"tries\":{}",
                self.status,
                self.received,
                self.sent,
                self.took.as_secs_f64() * 1e3,
                self.tries
            ),
        );
        if let Some(status) = self.grpc_status {
            out.extend_from_slice(b",\"grpc_status\":\"");
            write_grpc(status, out);
            out.push(b'"');
        }
        if let Some(span) = &self.span {
            string("trace_id", Some(&span.trace), out);
            string("span_id", Some(&span.id), out);
        }
        string("failed", self.failed.map(str::as_bytes), out);
        out.push(b'}');
    }
}

/// As in logs of other servers.
const fn name(version: Version, is_http10: bool) -> &'static str {
    match version {
        Version::H1 if is_http10 => "HTTP/1.0",
        Version::H1 => "HTTP/1.1",
        Version::H2 => "HTTP/2",
        Version::H3 => "HTTP/3",
    }
}

/// Its name, or the number where it has none.
fn write_grpc(status: u32, out: &mut Vec<u8>) {
    match grpc::name(status) {
        "OTHER" => put(out, format_args!("{status}")),
        name => out.extend_from_slice(name.as_bytes()),
    }
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to a vector cannot fail.
    let _ = out.write_fmt(text);
}

/// A word of the text form: `-` if there is none; blanks are escaped, too.
fn word(bytes: &[u8], out: &mut Vec<u8>) {
    match bytes {
        [] => out.push(b'-'),
        b"-" => out.extend_from_slice(b"\\x2d"),
        bytes => {
            for piece in bytes.split_inclusive(|byte| *byte == b' ') {
                let (piece, blank) = match piece {
                    [piece @ .., b' '] => (piece, true),
                    piece => (piece, false),
                };
                escape_bytes(piece, out);
                if blank {
                    out.extend_from_slice(b"\\x20");
                }
            }
        }
    }
}

/// Bytes as printable ASCII: `\xHH` for others, and for `"` and `\`.
fn escape_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        match byte {
            b'"' | b'\\' => put(out, format_args!("\\x{byte:02x}")),
            b' '..=b'~' => out.push(*byte),
            _ => put(out, format_args!("\\x{byte:02x}")),
        }
    }
}

/// A member of a JSON object; nothing if there is no value. What is not UTF-8 becomes U+FFFD, what is not ASCII is
/// escaped.
fn string(key: &str, value: Option<&[u8]>, out: &mut Vec<u8>) {
    let Some(value) = value else { return };
    put(out, format_args!(",\"{key}\":\""));
    for chunk in value.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '"' | '\\' => out.extend_from_slice(&[b'\\', char as u8]),
                ' '..='~' => out.push(char as u8),
                _ => {
                    let mut units = [0; 2];
                    for unit in char.encode_utf16(&mut units) {
                        put(out, format_args!("\\u{unit:04x}"));
                    }
                }
            }
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice(b"\\ufffd");
        }
    }
    out.push(b'"');
}

/// `2026-11-28T17:22:58.123Z` (RFC 3339), of a time since 1970.
fn write_time(at: Duration, out: &mut Vec<u8>) {
    put(out, format_args!("{}.{:03}Z", Moment::of_unix(at.as_secs().cast_signed()), at.subsec_millis()));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry<'static> {
        Entry {
            at: Duration::from_millis(1_795_886_578_123),
            client: "10.0.0.1",
            method: b"GET",
            authority: b"users.internal",
            path: b"/a?b=c",
            version: Some(Version::H1),
            is_http10: false,
            status: 200,
            received: 0,
            sent: 1_024,
            took: Duration::from_micros(12_345),
            service: Some("users"),
            instance: Some("h2c://10.0.0.7:8080"),
            connection: 3,
            tries: 1,
            grpc_status: None,
            span: None,
            failed: None,
        }
    }

    fn line(entry: &Entry<'_>, format: LogFormat) -> String {
        let mut out = Vec::new();
        entry.write(format, &mut out);
        String::from_utf8(out).expect("ASCII")
    }

    #[test]
    fn a_line_of_text_has_everything_in_its_place() {
        let told = line(&entry(), LogFormat::Text);
        assert_eq!(
            told,
            "2026-11-28T17:22:58.123Z 10.0.0.1 \"GET users.internal /a?b=c HTTP/1.1\" 200 0 1024 12.345ms users \
             h2c://10.0.0.7:8080#3 x1 - - -\n"
        );
        let span = Span { trace: [b'a'; 32], id: [b'1'; 16], flags: *b"01" };
        let failed = Entry {
            version: Some(Version::H2),
            status: 404,
            service: None,
            instance: None,
            tries: 0,
            span: Some(span),
            failed: Some("no \"route\""),
            ..entry()
        };
        let told = line(&failed, LogFormat::Text);
        let end = format!(
            "404 0 1024 12.345ms - - x0 - {}-{} \"no \\x22route\\x22\"\n",
            "a".repeat(32),
            "1".repeat(16)
        );
        assert!(told.ends_with(&end), "{told}");
    }

    #[test]
    fn a_request_in_http_1_0_is_told_as_such() {
        let entry = Entry { is_http10: true, ..entry() };
        assert!(line(&entry, LogFormat::Text).contains("/a?b=c HTTP/1.0\" 200"));
        assert!(line(&entry, LogFormat::Json).contains("\"version\":\"HTTP/1.0\""));
    }

    #[test]
    fn the_status_of_grpc_is_told_by_its_name() {
        for (status, name) in [(0, "OK"), (14, "UNAVAILABLE"), (77, "77")] {
            let call = Entry { grpc_status: Some(status), ..entry() };
            assert!(line(&call, LogFormat::Text).ends_with(&format!(" x1 {name} - -\n")));
            assert!(line(&call, LogFormat::Json).contains(&format!(",\"grpc_status\":\"{name}\"")));
        }
        assert!(!line(&entry(), LogFormat::Json).contains("grpc"));
    }

    #[test]
    fn the_reference_has_every_field_in_its_order() {
        let page = include_str!("../../../docs/sidecar-reference.md");
        let rows = page.split("## The access log").nth(1).and_then(|rest| rest.split("\n## ").next());
        let cells = rows.expect("it is there").lines().filter(|line| line.starts_with("| `"));
        let cells: Vec<Vec<&str>> =
            cells.map(|line| line.trim_start_matches("| ").split(" | ").collect()).collect();
        let text: Vec<&str> = cells.iter().map(|cells| cells[0].trim_matches('`')).collect();
        let own = line(&Entry { grpc_status: Some(14), ..entry() }, LogFormat::Text);
        assert!(text.join(" ").starts_with(own.trim_end().trim_end_matches(" - -")), "{text:?}");
        let failed = Entry {
            failed: Some("x"),
            grpc_status: Some(14),
            span: Some(Span { trace: [b'a'; 32], id: [b'1'; 16], flags: *b"01" }),
            ..entry()
        };
        let json: serde_json::Value = serde_json::from_str(&line(&failed, LogFormat::Json)).expect("JSON");
        let mut keys: Vec<&str> = json.as_object().expect("an object").keys().map(String::as_str).collect();
        let mut told: Vec<&str> =
            cells.iter().flat_map(|cells| cells[1].split(", ")).map(|key| key.trim_matches('`')).collect();
        keys.sort_unstable();
        told.sort_unstable();
        assert_eq!(told, keys);
    }

    #[test]
    fn of_a_connection_that_got_to_no_request_there_is_what_is_known() {
        let refused = Entry {
            method: b"",
            authority: b"",
            path: b"",
            version: None,
            status: 0,
            sent: 0,
            tries: 0,
            service: None,
            instance: None,
            failed: Some("no TLS"),
            ..entry()
        };
        let told = line(&refused, LogFormat::Text);
        assert!(told.ends_with("10.0.0.1 \"- - - -\" 0 0 0 12.345ms - - x0 - - \"no TLS\"\n"), "{told}");
        let json = line(&refused, LogFormat::Json);
        for key in ["method", "authority", "path", "version", "service", "instance", "\"\""] {
            assert!(!json.contains(key), "{key}: {json}");
        }
    }

    #[test]
    fn what_peers_send_ends_no_line_no_word_and_no_string() {
        let hostile = Entry {
            authority: b"a b\"\\",
            path: b"/\r\n2026 \x1b[31m\xff\xe2\x80\xa8\xf0\x9f\x98\x80",
            client: "-",
            failed: Some("\n\u{202e}"),
            ..entry()
        };
        for format in [LogFormat::Text, LogFormat::Json] {
            let told = line(&hostile, format);
            assert!(told.bytes().all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte)), "{told}");
            assert_eq!(told.matches('\n').count(), 1, "{told}");
        }
        let text = line(&hostile, LogFormat::Text);
        assert!(text.contains(r#" \x2d "GET a\x20b\x22\x5c /\x0d\x0a2026\x20\x1b[31m\xff"#), "{text}");
        let json = line(&hostile, LogFormat::Json);
        assert!(json.contains(r#""authority":"a b\"\\","#), "{json}");
        assert!(json.contains(r#""path":"/\u000d\u000a2026 \u001b[31m\ufffd\u2028\ud83d\ude00""#), "{json}");
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        let told = |seconds: u64| {
            let mut out = Vec::new();
            write_time(Duration::from_secs(seconds), &mut out);
            String::from_utf8(out).expect("ASCII")
        };
        for (seconds, day) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (951_868_800, "2000-03-01T00:00:00.000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000Z"),
            (1_735_689_600, "2025-01-01T00:00:00.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(told(seconds), day);
        }
    }
}

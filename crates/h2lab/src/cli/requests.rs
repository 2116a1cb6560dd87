//! The flags that describe a request, by curl's names.

use std::borrow::Cow;
use std::io::Read;
use std::path::Path;

use clap::Args;
use h2lab_base::secrets::without_url_secrets;
use h2lab_base::units::base64;
use h2lab_model::scenario::{Axis, WorkAxes};
use h2lab_model::workload::{Body, RequestShape};
use h2lab_wire::trace::detail::Secrets;

use super::exit::Usage;
use super::values::{axis, duration, replace, size};

/// What a request is.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Requests")]
pub struct RequestArgs {
    /// Request method [default: POST with a body, else GET; over the emulated link the scenario's]
    #[arg(short = 'X', long = "request", value_name = "METHOD")]
    pub method: Option<String>,
    /// An additional header field, `Name: value`; repeatable
    ///
    /// It replaces a field of the shape with the same name. `Host` replaces the authority in every protocol, as in curl. Fields
    /// about the connection or the body's framing are refused: the client sends its own.
    #[arg(short = 'H', long = "header", value_name = "LINE")]
    pub headers: Vec<String>,
    /// Request body: text, @FILE, or @- for standard input, sent byte for byte
    ///
    /// A file may have any bytes, and newlines stay, as with --data-binary of curl; its -d removes them.
    #[arg(short = 'd', long = "data", alias = "data-binary", value_name = "DATA", conflicts_with = "body_bytes", value_parser = data)]
    pub data: Option<String>,
    /// Request body: this text, even if it begins with @ or looks like a time or a file
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["data", "body_bytes"])]
    pub data_raw: Option<String>,
    /// Request body in bytes of filler (such as 1k, 64k)
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub body_bytes: Option<u64>,
    /// Basic authentication, NAME:PASSWORD
    #[arg(short = 'u', short_alias = 'a', long, value_name = "USER", conflicts_with = "oauth2_bearer")]
    pub user: Option<String>,
    /// Bearer token
    #[arg(long, value_name = "TOKEN")]
    pub oauth2_bearer: Option<String>,
    /// Cookies, NAME=VALUE; NAME2=VALUE2
    #[arg(short = 'b', long, value_name = "DATA")]
    pub cookie: Option<String>,
    /// Header fields of each request: bare (a plain client's) or mesh (a sidecar's, 15 fields)
    #[arg(long, value_name = "NAME", value_parser = axis::<RequestShape>)]
    pub shape: Option<Axis<RequestShape>>,
    /// Replace placeholders in paths, fields and bodies for each request: {{counter}}, {{random 1..99}}, {{uuid}} …
    ///
    /// {{counter}} is the number of the request, from 0; {{random LOW..HIGH}} a whole number, both included; {{hex DIGITS}}
    /// that many hexadecimal digits; {{uuid}} a random UUID; {{pick A|B|C}} one of these; {{{{ is a literal {{. The same
    /// --seed makes the same requests.
    #[arg(long)]
    pub template: bool,
    /// Show and keep the values of URL queries, and of credentials in frames, which may be secrets
    ///
    /// Otherwise, output has `?name=***`. Values of -H, -u, -b, --oauth2-bearer and -d are never kept.
    #[arg(long)]
    pub secrets: bool,
}

impl RequestArgs {
    /// Overrides the values of `work` with the flags.
    pub fn apply(&self, work: &mut WorkAxes) -> Result<(), Usage> {
        replace(&mut work.shape, self.shape.as_ref());
        replace(&mut work.method, self.method.as_ref());
        if let Some(bytes) = self.body_bytes {
            (work.body_bytes, work.body) = (bytes, None);
        }
        if let Some(data) = &self.data {
            work.body = Some(read_data(data)?);
        }
        if self.data_raw.is_some() {
            work.body = self.data_raw.as_deref().map(Body::from);
        }
        let has_data = self.data.is_some() || self.data_raw.is_some();
        let has_body = has_data || self.body_bytes.is_some_and(|bytes| bytes > 0);
        if has_body && self.method.is_none() && work.method == "GET" {
            "POST".clone_into(&mut work.method); // as curl does
        }
        work.template |= self.template;
        if work.template && work.body.as_ref().is_some_and(|body| body.text().is_none()) {
            return Err(Usage(
                "--template: the body of -d is not UTF-8, so it can have no placeholders".to_owned(),
            ));
        }
        work.secrets |= self.secrets;
        work.headers.extend(self.fields()?);
        Ok(())
    }

    /// A URL as output shows it.
    pub fn url_as_shown<'a>(&self, url: &'a str) -> Cow<'a, str> {
        if self.secrets { Cow::Borrowed(url) } else { without_url_secrets(url) }
    }

    /// What is hidden in frames that are shown: credentials, the values of the flags' fields, queries.
    pub fn hidden(&self) -> Result<Secrets, Usage> {
        let fields = self.fields()?;
        let names = fields.iter().map(|(name, _)| name.as_str()).filter(|name| *name != "host");
        Ok(if self.secrets { Secrets::shown() } else { Secrets::and(names) })
    }

    /// The header fields of the flags: of `-H`, and of `-u`, `--oauth2-bearer` and `-b` (RFC 7617, RFC 6750, RFC 6265).
    pub fn fields(&self) -> Result<Vec<(String, String)>, Usage> {
        let mut fields = self.headers.iter().map(|line| header(line)).collect::<Result<Vec<_>, _>>()?;
        // As in curl a header line replaces what these flags would send.
        let mut add = |name: &str, value: String| {
            if !fields.iter().any(|(given, _)| given == name) {
                fields.push((name.to_owned(), value));
            }
        };
        if let Some(user) = &self.user {
            if !user.contains(':') {
                return Err(Usage(
                    "-u/--user takes NAME:PASSWORD; h2lab does not prompt for a password".to_owned(),
                ));
            }
            add("authorization", format!("Basic {}", base64(user.as_bytes())));
        }
        if let Some(token) = &self.oauth2_bearer {
            sendable("--oauth2-bearer", token)?;
            add("authorization", format!("Bearer {token}"));
        }
        if let Some(cookie) = &self.cookie {
            sendable("-b/--cookie", cookie)?;
            if !cookie.contains('=') {
                return Err(Usage(
                    "-b/--cookie takes NAME=VALUE; cookie files are not read, and a body is -d DATA"
                        .to_owned(),
                ));
            }
            add("cookie", cookie.clone());
        }
        Ok(fields)
    }
}

/// Refuses a credential that no header field can carry, without repeating it.
fn sendable(flag: &str, value: &str) -> Result<(), Usage> {
    if value.trim().is_empty() || value.chars().any(|character| character.is_control() && character != '\t') {
        return Err(Usage(format!(
            "{flag} is empty or has control characters, which a header field cannot contain"
        )));
    }
    Ok(())
}

/// `Name: value` as curl has it.
pub fn header(line: &str) -> Result<(String, String), Usage> {
    let (name, value) = line
        .split_once(':')
        .ok_or_else(|| Usage("-H/--header takes `Name: value`; one has no colon".to_owned()))?;
    Ok((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
}

/// The value of `-d`. A time is refused: wrk's `-d` is the time of the run, and nobody means to send that.
fn data(text: &str) -> Result<String, String> {
    match duration(text) {
        Ok(_) => Err("a duration? use -z TIME; for the text itself --data-raw".to_owned()),
        Err(_) => Ok(text.to_owned()),
    }
}

/// Text, or the bytes of a file after `@`, of standard input after `@-`. The name of a file without `@` is refused: it
/// is what h2load's `-d` takes, and nobody means to send that.
fn read_data(data: &str) -> Result<Body, Usage> {
    let Some(path) = data.strip_prefix('@') else {
        if Path::new(data).is_file() {
            return Err(Usage(format!("-d {data}: a file? use -d @{data}; for the text itself --data-raw")));
        }
        return Ok(data.into());
    };
    let mut bytes = Vec::new();
    let read = if path == "-" {
        std::io::stdin().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        std::fs::read(path)
    };
    read.map(Body::from).map_err(|error| Usage(format!("-d @{path}: cannot read it: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_makes_a_post_of_a_get_as_in_curl() {
        let of = |flags: RequestArgs| {
            let mut work = WorkAxes { method: "GET".to_owned(), body_bytes: 0, ..WorkAxes::default() };
            flags.apply(&mut work).unwrap();
            (work.method, work.body)
        };
        let data = || RequestArgs { data: Some("{}".to_owned()), ..RequestArgs::default() };
        assert_eq!(of(data()), ("POST".to_owned(), Some("{}".into())));
        assert_eq!(of(RequestArgs { method: Some("PUT".to_owned()), ..data() }).0, "PUT");
        assert_eq!(of(RequestArgs { body_bytes: Some(1), ..RequestArgs::default() }).0, "POST");
        assert_eq!(of(RequestArgs { body_bytes: Some(0), ..RequestArgs::default() }).0, "GET");
    }

    #[test]
    fn a_time_or_a_file_is_no_body_unless_it_is_said_to_be_text() {
        for time in ["1s", "10", "2m", "1h"] {
            assert!(data(time).unwrap_err().contains("use -z TIME"), "{time}");
        }
        assert_eq!(data("{\"a\": 1}").as_deref(), Ok("{\"a\": 1}"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("order.json");
        std::fs::write(&path, "{}").unwrap();
        let path = path.to_str().unwrap();
        assert!(read_data(path).unwrap_err().to_string().contains(&format!("use -d @{path}")));
        assert_eq!(read_data(&format!("@{path}")).unwrap(), "{}".into());
        std::fs::write(path, [b'a', b'\n', 0, 255]).unwrap();
        assert_eq!(read_data(&format!("@{path}")).unwrap().bytes(), [b'a', b'\n', 0, 255]);
        let raw = RequestArgs { data_raw: Some("1s".to_owned()), ..RequestArgs::default() };
        let mut work = WorkAxes::default();
        raw.apply(&mut work).unwrap();
        assert_eq!(work.body, Some("1s".into()));
    }

    #[test]
    fn a_header_line_replaces_the_credentials_of_another_flag() {
        let of = |headers: &[&str]| {
            let headers = headers.iter().map(|line| (*line).to_owned()).collect();
            let (user, cookie) = (Some("a:b".to_owned()), Some("c=d".to_owned()));
            RequestArgs { headers, user, cookie, ..RequestArgs::default() }.fields().unwrap()
        };
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(of(&[]), [field("authorization", "Basic YTpi"), field("cookie", "c=d")]);
        let own = ["Authorization: x", "cookie: y=z"];
        assert_eq!(of(&own), [field("authorization", "x"), field("cookie", "y=z")]);
    }

    #[test]
    fn credentials_that_cannot_be_sent_are_refused_and_not_repeated() {
        for secret in ["", " ", "hunter2\u{1}", "hunter2\r\nx: y"] {
            let bearer = RequestArgs { oauth2_bearer: Some(secret.to_owned()), ..RequestArgs::default() };
            let error = bearer.fields().unwrap_err().to_string();
            assert!(error.starts_with("--oauth2-bearer") && !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn header_lines_are_split_and_lower_cased() {
        assert_eq!(header("X-Tenant:  a b ").unwrap(), ("x-tenant".to_owned(), "a b".to_owned()));
        assert!(!header("bearer s3cret").unwrap_err().to_string().contains("s3cret"));
    }
}

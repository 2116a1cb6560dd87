//! Errors of the TOML parser and of serde in terms of the file's keys: one line, with its number.

use std::net::SocketAddr;

use h2lab_base::spelling::nearest;

use super::{Config, ConfigError};

/// Reads a file, without checking what its types do not say.
pub(super) fn read(text: &str) -> Result<Config, ConfigError> {
    toml::from_str(text).map_err(|error| explained(text, &error))
}

/// What is wrong with TOML text, on one line, with the line's number.
pub(crate) fn explained(text: &str, error: &toml::de::Error) -> ConfigError {
    let span = error.span().unwrap_or_default();
    let written = text.get(span.clone()).unwrap_or_default();
    let words = in_keys(error.message(), written);
    if error.span().is_none() {
        return ConfigError::Toml(words);
    }
    let line = 1 + text.bytes().take(span.start).filter(|byte| *byte == b'\n').count();
    ConfigError::At { line, error: Box::new(ConfigError::Toml(words)) }
}

/// A message of serde for people who write keys. `written` is the text at that place.
fn in_keys(message: &str, written: &str) -> String {
    let message = message.trim_end().replace('\n', "; ");
    if message == "invalid socket address syntax" {
        return no_address(written.trim_matches(['"', '\'']));
    }
    if let Some((kind, rest)) = message.strip_prefix("unknown ").and_then(|rest| rest.split_once(" `"))
        && let Some((name, rest)) = rest.split_once('`')
    {
        let known: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
        let kind = if kind == "field" { "key" } else { "value" };
        let meant = nearest(name, &known).filter(|_| kind == "key");
        return match meant {
            Some(meant) => format!("unknown key \"{name}\"; did you mean \"{meant}\"?"),
            None => format!("unknown {kind} \"{name}\"; expected {}", listed(&known)),
        };
    }
    let message = message.replace("missing field", "missing key").replace("a sequence", "a list");
    let message = message.replace("a map", "a table").replace('`', "\"");
    match message.split_once(", expected struct ") {
        Some((what, _)) => format!("{what}, expected a table"),
        None => message,
    }
}

/// `"text" or "json"`.
fn listed(all: &[&str]) -> String {
    let quoted: Vec<String> = all.iter().map(|one| format!("\"{one}\"")).collect();
    match quoted.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => quoted.concat(),
    }
}

/// The address of a socket; an error says what to write.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| no_address(text))
}

/// Why this text is no address, and what to write instead.
fn no_address(text: &str) -> String {
    let port = text.rsplit_once(':').map_or(text, |(_, port)| port);
    let port = if port.parse::<u16>().is_ok() { port } else { "PORT" };
    let host = text.rsplit_once(':').map_or("", |(host, _)| host);
    let advice = match host {
        _ if text.parse::<std::net::Ipv6Addr>().is_ok() => format!("write IP:PORT: \"[{text}]:PORT\""),
        _ if text.parse::<std::net::Ipv4Addr>().is_ok() => format!("write IP:PORT: \"{text}:PORT\""),
        _ if host.parse::<std::net::Ipv4Addr>().is_ok() || host.starts_with('[') => {
            format!("write IP:PORT, with a port from 0 to 65535, such as \"{host}:8080\"")
        }
        "localhost" => format!("write IP:PORT: \"127.0.0.1:{port}\""),
        "*" | "" => {
            format!("write IP:PORT, such as \"127.0.0.1:{port}\", or \"0.0.0.0:{port}\" for all interfaces")
        }
        _ if host.parse::<std::net::Ipv6Addr>().is_ok() => format!("write IP:PORT: \"[{host}]:{port}\""),
        _ => format!("write IP:PORT, such as \"127.0.0.1:{port}\""),
    };
    format!("\"{text}\" is not an address: {advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> String {
        Config::parse(text).expect_err("it is wrong").to_string()
    }

    #[test]
    fn an_error_is_one_line_with_its_number_and_names_what_was_meant() {
        for (text, words) in [
            ("zone = 'a'\n[servce.a]", "line 2: unknown key \"servce\"; did you mean \"service\"?"),
            ("[timeouts]\nconect = '1s'", "line 2: unknown key \"conect\"; did you mean \"connect\"?"),
            ("[service.a]\ninstances = ['http://a']\nlimit.open = 1", "did you mean \"limits\"?"),
            ("[hints]\nxyz = 1", "line 2: unknown key \"xyz\"; expected \"learn\", \"push\" or \"http1\""),
            ("[log]\nformat = 'xml'", "line 2: unknown value \"xml\"; expected \"text\" or \"json\""),
            ("[timeouts]\nresponse = 5", "line 2: a duration needs a unit: write \"5s\""),
            ("[timeouts]\nresponse = '5'", "it needs a unit (such as 250ms, 5s, 2m)"),
            ("listen = 1", "line 1: invalid type: integer \"1\", expected a list"),
            ("[service]\na = 1", "expected a table"),
            ("[[listen]]\nservice = 'a'", "line 1: missing key \"address\""),
            ("threads = 1.5", "line 1: invalid thread count: expected a number from 1 to 64"),
            ("zone = ", "line 1: "),
        ] {
            let told = told(text);
            assert!(told.contains(words) && !told.contains('\n') && !told.contains('`'), "{text}: {told}");
        }
    }

    #[test]
    fn an_address_that_is_none_is_told_with_what_to_write() {
        for (text, words) in [
            ("localhost:20001", "\"localhost:20001\" is not an address: write IP:PORT: \"127.0.0.1:20001\""),
            (":8080", "write IP:PORT, such as \"127.0.0.1:8080\", or \"0.0.0.0:8080\" for all interfaces"),
            ("8080", "\"127.0.0.1:8080\""),
            ("*:8080", "\"0.0.0.0:8080\""),
            ("::1", "write IP:PORT: \"[::1]:PORT\""),
            ("10.0.0.7", "write IP:PORT: \"10.0.0.7:PORT\""),
            ("fe80::1:x", "is not an address"),
            ("users.internal:80", "such as \"127.0.0.1:80\""),
            (
                "127.0.0.1:70000",
                "\"127.0.0.1:70000\" is not an address: write IP:PORT, with a port from 0 to 65535",
            ),
            ("127.0.0.1:x", "such as \"127.0.0.1:8080\""),
        ] {
            assert!(
                parse_address(text).is_err_and(|told| told.contains(words)),
                "{text}: {:?}",
                parse_address(text)
            );
            let told = told(&format!("[[listen]]\naddress = '{text}'\nservice = 'a'"));
            assert!(told.starts_with("line 2: ") && told.contains(words), "{told}");
        }
        assert_eq!(parse_address("[::1]:1"), Ok("[::1]:1".parse().expect("one")));
    }
}

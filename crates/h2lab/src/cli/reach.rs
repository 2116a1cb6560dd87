//! Where a URL leads: as flags say, else as the system's resolver says; and which certificates to trust there.

use std::net::TcpStream;
use std::path::PathBuf;
use std::str::FromStr as _;
use std::time::Duration;

use clap::Args;
use clap::builder::{StringValueParser, TypedValueParser};
use h2lab_base::secrets::without_url_secrets;
use h2lab_model::fleet::Reach;
use h2lab_model::fleet::reach::{ConnectTo, ResolveEntry};
use h2lab_model::workload::Protocol;

use super::exit::Usage;
use super::protocols::ProtocolArgs;
use super::tls::TlsArgs;
use crate::run::messages::{Failure, FailureKind};
use h2lab_net::tcp::Endpoint;
use h2lab_roles::client::reach::endpoints;
use h2lab_roles::client::url::{Url, UrlError};

/// How to reach live servers.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Live servers")]
pub struct ReachArgs {
    #[command(flatten)]
    pub tls: TlsArgs,
    /// Connect to ADDR for HOST:PORT, as curl does; `*` is any host, several addresses are separated by commas; repeatable
    #[arg(long, value_name = "HOST:PORT:ADDR", value_parser = ResolveEntry::from_str)]
    resolve: Vec<ResolveEntry>,
    /// Connect to HOST2:PORT2 for HOST1:PORT1, as curl does; an empty part means any, or unchanged; repeatable
    #[arg(long, value_name = "HOST1:PORT1:HOST2:PORT2", value_parser = ConnectTo::from_str)]
    connect_to: Vec<ConnectTo>,
    /// Connect to this Unix socket instead of the URL's host, as curl does
    #[arg(long, value_name = "PATH", conflicts_with_all = ["connect_to", "resolve", "ipv4", "ipv6"])]
    unix_socket: Option<PathBuf>,
    /// Use IPv4 addresses only
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,
    /// Use IPv6 addresses only
    #[arg(short = '6', long)]
    ipv6: bool,
}

impl ReachArgs {
    /// The flags of the run that this command line made, except secrets and files: only whether certificates are
    /// verified.
    pub fn as_in(&self, command: &[String]) -> Self {
        let is_it = |word: &String| {
            let switches = word.strip_prefix('-').filter(|rest| rest.chars().all(|c| "ks46".contains(c)));
            word == "--insecure" || switches.is_some_and(|letters| letters.contains('k'))
        };
        let mut args = self.clone();
        args.tls.insecure |= command.iter().any(is_it);
        args
    }
}

/// `text` with a scheme if it is HOST:PORT, as curl reads it: https:// for the ports that are conventionally TLS.
/// Anything else is left as it is, also a host without a port: it may be the name of a file.
pub fn with_scheme(text: &str) -> String {
    let network = text.split(['/', '?', '#']).next().unwrap_or_default();
    let port = network.rsplit_once(':').and_then(|(host, port)| {
        let is_host = !host.is_empty() && !host.contains('@') && (host.ends_with(']') || !host.contains(':'));
        port.parse::<u16>().ok().filter(|_| is_host)
    });
    match port {
        None => text.to_owned(),
        Some(443 | 8443) => format!("https://{text}"),
        Some(_) => format!("http://{text}"),
    }
}

/// The same where only a URL is expected: a host without a port is accepted, too.
pub fn as_url(text: &str) -> String {
    let whole = with_scheme(text);
    let host = whole.split(['/', '?', '#']).next().unwrap_or_default();
    let is_host = host == "localhost" || host.ends_with(']') || host.split('.').count() > 1;
    let is_plain = !host.is_empty() && !host.starts_with('.') && !host.contains(['@', ' ', '\\']);
    if is_host && is_plain && !whole.contains("://") { format!("http://{whole}") } else { whole }
}

/// The same for clap.
pub fn url_text() -> impl TypedValueParser<Value = String> {
    StringValueParser::new().map(|text| as_url(&text))
}

/// Parses `text` as a URL.
pub fn url(text: &str) -> Result<Url, Usage> {
    read_url(text, str::parse)
}

/// The same where `--template` may have been given: then the path may have placeholders.
pub fn template_url(text: &str, is_template: bool) -> Result<Url, Usage> {
    read_url(text, if is_template { Url::with_placeholders } else { str::parse })
}

fn read_url(text: &str, parse: fn(&str) -> Result<Url, UrlError>) -> Result<Url, Usage> {
    parse(text).map_err(|error| {
        // Also without a scheme, the part before an `@` may be a password.
        let begin = if text.contains("://") { "" } else { "://" };
        let url = [begin, text].concat();
        Usage(format!("{}: {error}", &without_url_secrets(&url)[begin.len()..]))
    })
}

/// How long one of several addresses of a name may take to accept a connection.
const ADDRESS_TRIAL: Duration = Duration::from_secs(2);

/// The first of `endpoints` (at least one) that accepts a connection; the first one, if none does. `localhost` is often
/// `::1` first, while most services listen on 127.0.0.1.
pub fn answering(endpoints: &[Endpoint]) -> Endpoint {
    let answers = |endpoint: &&Endpoint| match endpoint {
        Endpoint::Tcp(address) => TcpStream::connect_timeout(address, ADDRESS_TRIAL).is_ok(),
        Endpoint::Unix(_) => true,
    };
    let first = match endpoints {
        [only] => only,
        several => several.iter().find(answers).unwrap_or(&several[0]),
    };
    first.clone()
}

impl ReachArgs {
    /// The addresses to try for a URL's server, in order; at least one. `text` is the URL as given.
    pub fn endpoints(&self, text: &str, url: &Url) -> Result<Vec<Endpoint>, Failure> {
        let unreachable =
            |why: String| Failure { kind: FailureKind::Unreachable, message: format!("{text}: {why}") };
        endpoints(&self.reach(), url).map_err(unreachable)
    }

    /// Refuses a Unix socket for protocols of which one needs an address.
    pub fn check(&self, protocols: &ProtocolArgs) -> Result<(), Usage> {
        if self.unix_socket.is_some() && protocols.either_scheme().contains(&Protocol::H3) {
            let flag = protocols.flag();
            return Err(Usage(format!("{flag}: HTTP/3 needs an address; omit --unix-socket")));
        }
        Ok(())
    }

    /// These flags as a [`Reach`].
    pub fn reach(&self) -> Reach {
        Reach {
            resolve: self.resolve.clone(),
            connect_to: self.connect_to.clone(),
            unix_socket: self.unix_socket.clone(),
            ipv4: self.ipv4,
            ipv6: self.ipv6,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_alone_is_a_url_where_one_is_expected() {
        let of = as_url;
        for (text, whole) in [
            ("127.0.0.1", "http://127.0.0.1"),
            ("localhost/a", "http://localhost/a"),
            ("service.example/a?b=c", "http://service.example/a?b=c"),
            ("[::1]", "http://[::1]"),
            ("a:443", "https://a:443"),
        ] {
            assert_eq!(of(text), whole);
            url(whole).unwrap();
        }
        for same in ["https://a/", "foo", "/a.b", "./a.b", "me@a.b", "ftp://a.b/"] {
            assert_eq!(of(same), same);
        }
    }

    #[test]
    fn a_host_and_a_port_are_a_url_without_a_scheme() {
        let of = with_scheme;
        for (text, whole) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("localhost:80/a?b=c:d", "http://localhost:80/a?b=c:d"),
            ("[::1]:8443/", "https://[::1]:8443/"),
            ("service.example:443", "https://service.example:443"),
        ] {
            assert_eq!(of(text), whole);
            url(whole).unwrap();
        }
        for same in
            ["http://a:80/", "service.example", "me:1@a:80", "::1", ":80", "a:b", "a:99999", "/early?a:1"]
        {
            assert_eq!(of(same), same);
        }
    }

    #[test]
    fn the_error_of_a_url_repeats_no_password() {
        for text in ["http://alice:hunter2@a/", "http://alice:hunter2@a", "alice:hunter2@a/x"] {
            let error = url(text).unwrap_err().to_string();
            assert!(!error.contains("hunter2") && error.contains("@a"), "{error}");
        }
        assert!(url("http://a:99999/@x").unwrap_err().to_string().starts_with("http://a:99999/@x: "));
    }
}

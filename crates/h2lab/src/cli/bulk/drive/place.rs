//! Where clients and servers of a drive are, as the command line names them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::str::FromStr;

use h2lab_model::fleet::{AgentName, ServerPlace};

use super::super::super::exit::MissingRequirement;
use h2lab_roles::client::url::Url;
use h2lab_roles::fleet::TransportKind;

/// What a place is, for the error about anything else.
const EXPECTED: &str = "a place: local, netns:NAME, ssh:[USER@]HOST or the name of an agent, for a server followed by \
     =ADDRESS[:PORT] if clients reach it at another address";

/// How an agent is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// It is in this process.
    Local,
    /// In this network namespace.
    Namespace(String),
    /// Behind ssh, on this host.
    Ssh(String),
    /// It runs already, and is reached over NATS.
    Named(AgentName),
}

/// A place for an agent: `local`, `netns:NAME`, `ssh:HOST`, or the name of one that runs already; with `=ADDRESS` or
/// `=ADDRESS:PORT` where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentPlace {
    /// As given, without an address.
    pub name: String,
    kind: Kind,
    address: Option<SocketAddr>,
}

/// How agents on other machines are started.
#[derive(Debug, Clone, Copy)]
pub struct Remote<'a> {
    /// The command that leads there, in words.
    pub ssh: &'a str,
    /// Path of h2lab on the other machines.
    pub agent_path: &'a str,
}

impl FromStr for AgentPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = |why: &str| Err(format!("`{text}` is not {EXPECTED}{why}"));
        let (name, address) = match text.split_once('=') {
            None => (text, None),
            Some((name, address)) => match listening(address) {
                None => return refuse(&format!(" (`{address}` is not an IP address)")),
                address => (name, address),
            },
        };
        let kind = match name.split_once(':') {
            None if name == "local" => Kind::Local,
            Some(("netns", namespace)) if !namespace.is_empty() => Kind::Namespace(namespace.to_owned()),
            // What begins with a hyphen would be an option of ssh.
            Some(("ssh", host)) if !host.is_empty() && !host.starts_with('-') => Kind::Ssh(host.to_owned()),
            None => match name.parse() {
                Ok(name) => Kind::Named(name),
                Err(_) => return refuse(""),
            },
            Some(_) => return refuse(""),
        };
        Ok(Self { name: name.to_owned(), kind, address })
    }
}

/// `ADDRESS` or `ADDRESS:PORT`; without a port a free one is taken.
fn listening(text: &str) -> Option<SocketAddr> {
    text.parse().ok().or_else(|| {
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        Some(SocketAddr::new(bare.parse().ok()?, 0))
    })
}

impl AgentPlace {
    /// The way to the agent there.
    pub fn transport_kind(&self, remote: Remote<'_>) -> Result<TransportKind, MissingRequirement> {
        match &self.kind {
            Kind::Local => Ok(TransportKind::Thread(h2lab_analysis::fleet::pair_figures)),
            Kind::Namespace(name) => TransportKind::namespace(name).map_err(|error| {
                MissingRequirement(format!("{}: {error}; `ip netns` lists the named namespaces", self.name))
            }),
            Kind::Ssh(host) => {
                let mut words = remote.ssh.split_whitespace();
                let mut command = Command::new(words.next().unwrap_or("ssh"));
                command.args(words).arg(host).arg(format!("{} agent --stdio", remote.agent_path));
                Ok(TransportKind::Command(command))
            }
            Kind::Named(name) => Err(MissingRequirement(unreachable(name))),
        }
    }

    /// The agent's name, if it runs already.
    pub const fn agent(&self) -> Option<&AgentName> {
        match &self.kind {
            Kind::Named(name) => Some(name),
            Kind::Local | Kind::Namespace(_) | Kind::Ssh(_) => None,
        }
    }

    /// Whether the place has an address that only a server has a use for.
    pub const fn has_address(&self) -> bool {
        self.address.is_some()
    }

    /// Whether an agent there is started over ssh.
    pub const fn is_remote(&self) -> bool {
        matches!(self.kind, Kind::Ssh(_))
    }

    /// Where a server there listens, and how it is reached.
    fn served(&self) -> Result<ServerPlace, String> {
        let at = |listen: SocketAddr| ServerPlace::Agent { listen, host: listen.ip().to_string() };
        match (&self.kind, self.address) {
            (_, Some(address)) if address.ip().is_unspecified() => {
                Err(format!("{}: {} cannot be dialled", self.name, address.ip()))
            }
            (_, Some(address)) => Ok(at(address)),
            (Kind::Local, None) => Ok(at(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0))),
            (Kind::Ssh(host), None) => {
                let host = host.rsplit_once('@').map_or(host.as_str(), |(_, host)| host).to_owned();
                Ok(ServerPlace::Agent { listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0), host })
            }
            (Kind::Namespace(_) | Kind::Named(_), None) => Err(format!(
                "{0}: give the address on which the server listens there: {0}=ADDRESS",
                self.name
            )),
        }
    }
}

/// Why there is no agent of this name.
pub fn unreachable(name: &AgentName) -> String {
    let how = if cfg!(feature = "nats") {
        "give --nats URL"
    } else {
        "this h2lab was built without that: build it with the feature `nats`"
    };
    format!(
        "`{name}` is no place (local, netns:NAME, ssh:[USER@]HOST) and no running server (URL, HOST:PORT); an agent of \
         that name is reached over NATS: {how}"
    )
}

/// A server: a place for an agent, or one that runs already: a URL, or `HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerArg {
    /// An agent serves there.
    Agent(AgentPlace),
    /// It runs already; its scheme is known.
    Url(String),
    /// It runs already; what is spoken there is left to the other flags.
    Address(String),
}

impl FromStr for ServerArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.contains("://") {
            text.parse::<Url>().map_err(|error| format!("{text}: {error}"))?;
            return Ok(Self::Url(text.to_owned()));
        }
        if text.contains('=') || text.starts_with("netns:") || text.starts_with("ssh:") {
            return text.parse().map(Self::Agent);
        }
        // The name of an agent has no colon, and what has a port has one.
        if let Some(place) = text.parse::<AgentPlace>().ok().filter(|_| !text.contains(':')) {
            return Ok(Self::Agent(place));
        }
        let has_port = text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        if has_port && format!("http://{text}").parse::<Url>().is_ok() {
            return Ok(Self::Address(text.to_owned()));
        }
        Err(format!("`{text}` is neither a URL nor HOST:PORT of a running server, nor {EXPECTED}"))
    }
}

impl ServerArg {
    /// Whether it speaks TLS, if that is said by its URL.
    pub fn is_tls(&self) -> Option<bool> {
        match self {
            Self::Url(url) => Some(url.starts_with("https://")),
            Self::Agent(_) | Self::Address(_) => None,
        }
    }

    /// Whether its URL has a path of its own.
    pub fn has_path(&self) -> bool {
        match self {
            Self::Url(url) => url.parse::<Url>().is_ok_and(|url| url.path_and_query() != "/"),
            Self::Agent(_) | Self::Address(_) => false,
        }
    }

    /// Whether no agent has to start it.
    pub const fn runs_already(&self) -> bool {
        !matches!(self, Self::Agent(_))
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        match self {
            Self::Agent(place) => &place.name,
            Self::Url(text) | Self::Address(text) => text,
        }
    }

    /// Where it is.
    pub fn place(&self, is_tls: bool) -> Result<ServerPlace, String> {
        match self {
            Self::Agent(place) => place.served(),
            Self::Url(url) => Ok(ServerPlace::Url(url.clone())),
            Self::Address(address) if is_tls => Ok(ServerPlace::Url(format!("https://{address}"))),
            Self::Address(address) => Ok(ServerPlace::Url(format!("http://{address}"))),
        }
    }
}

/// Names of several, each its own: what comes again is called `NAME#2`, and none is dropped.
pub fn names<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut seen: Vec<&str> = Vec::new();
    let mut names = Vec::new();
    for word in words {
        seen.push(word);
        names.push(match seen.iter().filter(|known| **known == word).count() {
            1 => word.to_owned(),
            n => format!("{word}#{n}"),
        });
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(text: &str) -> AgentPlace {
        text.parse().unwrap()
    }

    fn served(text: &str) -> (String, String) {
        match agent(text).served().unwrap() {
            ServerPlace::Agent { listen, host } => (listen.to_string(), host),
            ServerPlace::Url(url) => panic!("{url}"),
        }
    }

    #[test]
    fn places_have_a_name_and_maybe_an_address() {
        assert_eq!(agent("local").kind, Kind::Local);
        assert_eq!(agent("netns:a").kind, Kind::Namespace("a".to_owned()));
        assert_eq!(agent("ssh:me@kek-1").kind, Kind::Ssh("me@kek-1".to_owned()));
        let with = agent("ssh:kek-1=192.0.2.7:8080");
        assert_eq!(
            (with.name.as_str(), with.address),
            ("ssh:kek-1", Some("192.0.2.7:8080".parse().unwrap()))
        );
        assert_eq!(agent("kek-1").kind, Kind::Named("kek-1".parse().unwrap()));
        assert_eq!(agent("kek-1=192.0.2.7").address, Some("192.0.2.7:0".parse().unwrap()));
        for bad in ["", "he re", "netns:", "ssh:", "ssh:-oProxyCommand=x", "kek.1", "local=kek", "ssh:a="] {
            let error = bad.parse::<AgentPlace>().unwrap_err();
            assert!(error.contains(&format!("`{bad}`")) && error.contains("ssh:[USER@]HOST"), "{error}");
        }
    }

    #[test]
    fn a_server_is_reached_where_it_listens_and_behind_ssh_by_its_name() {
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(served("local"), pair("127.0.0.1:0", "127.0.0.1"));
        assert_eq!(served("local=[::1]:8080"), pair("[::1]:8080", "::1"));
        assert_eq!(served("local=::1"), pair("[::1]:0", "::1"));
        assert_eq!(served("ssh:me@kek-1"), pair("0.0.0.0:0", "kek-1"));
        assert_eq!(served("ssh:kek-1=192.0.2.7"), pair("192.0.2.7:0", "192.0.2.7"));
        assert_eq!(served("kek-1=192.0.2.7:8080"), pair("192.0.2.7:8080", "192.0.2.7"));
        for name in ["netns:a", "kek-1"] {
            assert!(agent(name).served().unwrap_err().contains(&format!("{name}=ADDRESS")), "{name}");
        }
        assert!(agent("ssh:a=0.0.0.0:80").served().unwrap_err().contains("cannot be dialled"));
    }

    #[test]
    fn servers_that_run_are_urls_or_addresses_whose_scheme_the_other_flags_say() {
        let place = |text: &str, tls| match text.parse::<ServerArg>().unwrap().place(tls).unwrap() {
            ServerPlace::Url(url) => url,
            ServerPlace::Agent { .. } => panic!("{text} runs already"),
        };
        assert_eq!(place("https://a/x", false), "https://a/x");
        assert_eq!(place("a:9443", true), "https://a:9443");
        assert_eq!(place("[::1]:80", false), "http://[::1]:80");
        for agent in ["local", "local=::1", "kek-1", "kek-1=192.0.2.7:80", "kek-1=[::1]:80", "netns:a"] {
            assert!(matches!(agent.parse(), Ok(ServerArg::Agent(_))), "{agent}");
        }
        for bad in ["", "a.b", "a:b", "a:99999", "ftp://a", "http://", "netns:", "a:80=x"] {
            assert!(bad.parse::<ServerArg>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ssh_is_given_its_words_the_host_and_one_command() {
        let remote = Remote { ssh: "ssh -p 2222 -o BatchMode=yes", agent_path: "/opt/h2lab" };
        let Ok(TransportKind::Command(command)) = agent("ssh:me@kek-1").transport_kind(remote) else {
            panic!("it is a command")
        };
        let words: Vec<_> = command.get_args().map(|word| word.to_str().unwrap()).collect();
        assert_eq!(command.get_program(), "ssh");
        assert_eq!(words, ["-p", "2222", "-o", "BatchMode=yes", "me@kek-1", "/opt/h2lab agent --stdio"]);
    }

    #[test]
    fn who_is_named_twice_is_there_twice() {
        assert_eq!(names(["a", "b", "a", "a"]), ["a", "b", "a#2", "a#3"]);
    }
}

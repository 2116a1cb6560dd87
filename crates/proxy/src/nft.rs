//! The rules of netfilter that bring connections to transparent listeners, as text for `nft -f -`. Nothing is applied here.
//!
//! A listener on a loopback address takes what processes of this machine send (chain `output`); one on another address takes what comes
//! to this machine (chain `prerouting`).

use std::fmt::Write as _;
use std::net::SocketAddr;

use crate::config::{Config, Listen, Transparent};

/// The table that has all of the rules.
const TABLE: &str = "h2lab_sidecar";
/// The mark that TPROXY gives to packets, by which they are delivered here, and the routing table for that.
const ROUTED: u32 = 0x6832;

/// The first packet of a connection. Connections older than the rules are left alone: conntrack, which may begin with
/// the rules, takes the next packet of such a connection for its first.
const SYN: &str = "tcp flags & (fin | syn | rst | ack) == syn";

/// How the sidecar's own connections are recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exempt {
    /// Their mark.
    pub mark: Option<u32>,
    /// The sidecar's user.
    pub uid: Option<u32>,
}

/// Why there are no rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoRules {
    /// Nothing is to be redirected.
    #[error("no listener is transparent: set transparent = \"redirect\" or \"tproxy\" in a [[listen]]")]
    NotTransparent,
    /// Its own connections would come back to it.
    #[error(
        "the sidecar's own connections would be redirected back to it: set mark = 1 (or another number) or user = \"NAME\" at the top of the \
         file, or give --user"
    )]
    NothingExempt,
    /// The port is not known.
    #[error("the listener on {0} has port 0: set a fixed port")]
    NoPort(SocketAddr),
}

/// The rules for the listeners of a file.
pub fn rules(config: &Config, exempt: Exempt) -> Result<String, NoRules> {
    let listeners: Vec<&Listen> =
        config.listen.iter().filter(|listen| listen.transparent.is_some()).collect();
    if listeners.is_empty() {
        return Err(NoRules::NotTransparent);
    }
    if let Some(listen) = listeners.iter().find(|listen| listen.address.port() == 0) {
        return Err(NoRules::NoPort(listen.address));
    }
    let is_of = |by, is_egress: bool| {
        move |listen: &&&Listen| {
            listen.transparent == Some(by) && listen.address.ip().is_loopback() == is_egress
        }
    };
    let all = |by, is_egress| listeners.iter().filter(is_of(by, is_egress)).copied().collect::<Vec<_>>();
    let [out, tproxy_out] = [Transparent::Redirect, Transparent::Tproxy].map(|by| all(by, true));
    let [come, tproxy_come] = [Transparent::Redirect, Transparent::Tproxy].map(|by| all(by, false));
    let has_egress = !out.is_empty() || !tproxy_out.is_empty();
    if has_egress && exempt == Exempt::default() {
        return Err(NoRules::NothingExempt);
    }
    let routed = if exempt.mark == Some(ROUTED) { ROUTED + 1 } else { ROUTED };
    let has_tproxy = !tproxy_out.is_empty() || !tproxy_come.is_empty();
    let mut text = String::from("# h2lab sidecar --config FILE --print-nft | nft -f -\n");
    let _ = writeln!(text, "# To remove them: nft delete table inet {TABLE}");
    if has_tproxy {
        text += &routes(routed);
    }
    let _ = write!(text, "table inet {TABLE}\ndelete table inet {TABLE}\ntable inet {TABLE} {{\n");
    let ours = ours(exempt);
    if !out.is_empty() {
        chain(&mut text, "output", "type nat hook output priority -100", &ours, &each(&out, &redirect));
    }
    if !come.is_empty() {
        let before = come_before(config);
        chain(
            &mut text,
            "prerouting",
            "type nat hook prerouting priority dstnat",
            &before,
            &each(&come, &redirect),
        );
    }
    if !tproxy_out.is_empty() {
        // All packets of a connection must be marked, and none of the answers of local servers.
        let mark = |listen: &Listen| format!("{} {SYN} ct mark set {routed:#x}", matched(listen));
        let mut taken = each(&tproxy_out, &mark);
        taken.push(format!("ct direction original ct mark {routed:#x} meta mark set {routed:#x}"));
        chain(&mut text, "tproxy_output", "type route hook output priority mangle", &ours, &taken);
    }
    if has_tproxy {
        let mut before =
            vec![format!("meta l4proto tcp socket transparent 1 meta mark set {routed:#x} accept")];
        // What comes to the loopback device was sent by this machine: only what was marked for that is taken.
        let marked =
            |listen: &Listen| format!("iifname \"lo\" meta mark {routed:#x} {}", tproxy(listen, routed));
        let mut taken = each(&tproxy_out, &marked);
        before.extend(if tproxy_come.is_empty() { Vec::new() } else { own_ports(config) });
        let arriving = |listen: &Listen| format!("iifname != \"lo\" {}", tproxy(listen, routed));
        taken.extend(each(&tproxy_come, &arriving));
        let of = "type filter hook prerouting priority mangle";
        chain(&mut text, "tproxy_prerouting", of, &before, &taken);
    }
    text += "}\n";
    Ok(text)
}

/// The routes that deliver marked packets to this machine. They are not rules of netfilter.
fn routes(mark: u32) -> String {
    let mut text = String::from("# TPROXY needs these routes, too (to remove them: del instead of add):\n");
    for (ip, all) in [("ip", "0.0.0.0/0"), ("ip -6", "::/0")] {
        let _ = writeln!(text, "#   {ip} rule add fwmark {mark:#x} lookup {mark}");
        let _ = writeln!(text, "#   {ip} route add local {all} dev lo table {mark}");
    }
    text
}

/// The sidecar's own connections, and those that stay on this machine, are left alone.
fn ours(exempt: Exempt) -> Vec<String> {
    let mark = exempt.mark.map(|mark| format!("meta mark {mark:#x} return"));
    let user = exempt.uid.map(|uid| format!("meta skuid {uid} return"));
    let local = "fib daddr type local return".to_owned();
    mark.into_iter().chain(user).chain([local]).collect()
}

/// What comes from this machine, or to a port of the sidecar's own, is left alone.
fn come_before(config: &Config) -> Vec<String> {
    std::iter::once("iifname \"lo\" return".to_owned()).chain(own_ports(config)).collect()
}

fn own_ports(config: &Config) -> Vec<String> {
    let listeners = config.listen.iter().map(|listen| listen.address.port());
    let mut ports: Vec<u16> = listeners.chain(config.admin.address.map(|address| address.port())).collect();
    ports.retain(|port| *port != 0);
    ports.sort_unstable();
    ports.dedup();
    vec![format!("tcp dport {{ {} }} return", joined(&ports))]
}

fn joined(ports: &[u16]) -> String {
    ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
}

fn each(listeners: &[&Listen], rule: &dyn Fn(&Listen) -> String) -> Vec<String> {
    listeners.iter().map(|listen| rule(listen)).collect()
}

fn chain(text: &mut String, name: &str, of: &str, before: &[String], rules: &[String]) {
    let _ = writeln!(text, "\tchain {name} {{\n\t\t{of}; policy accept;");
    for rule in before.iter().chain(rules) {
        let _ = writeln!(text, "\t\t{rule}");
    }
    text.push_str("\t}\n");
}

/// Which packets are for a listener: of its family, to its ports. A socket on `[::]` has both families.
fn matched(listen: &Listen) -> String {
    let family = match listen.address {
        SocketAddr::V4(_) => "meta nfproto ipv4 ",
        SocketAddr::V6(address) if address.ip().is_unspecified() => "",
        SocketAddr::V6(_) => "meta nfproto ipv6 ",
    };
    match listen.ports.as_slice() {
        [] => format!("{family}meta l4proto tcp"),
        ports => format!("{family}tcp dport {{ {} }}", joined(ports)),
    }
}

fn redirect(listen: &Listen) -> String {
    format!("{} {SYN} redirect to :{}", matched(listen), listen.address.port())
}

fn tproxy(listen: &Listen, mark: u32) -> String {
    let port = listen.address.port();
    let to = match listen.address {
        address if address.ip().is_unspecified() => match address {
            SocketAddr::V4(_) => format!("ip to :{port}"),
            SocketAddr::V6(_) => format!("to :{port}"),
        },
        SocketAddr::V4(address) => format!("ip to {address}"),
        SocketAddr::V6(address) => format!("ip6 to {address}"),
    };
    format!("{} tproxy {to} meta mark set {mark:#x} accept", matched(listen))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(listeners: &str, exempt: Exempt) -> Result<String, NoRules> {
        rules(&Config::parse(listeners).expect("it is right"), exempt)
    }

    const USER: Exempt = Exempt { mark: None, uid: Some(65_532) };

    #[test]
    fn what_is_sent_is_redirected_but_what_the_sidecar_sends() {
        let text = "[[listen]]\naddress = '127.0.0.1:15001'\ntransparent = 'redirect'\nports = [80, 8080]\n\
                    [[listen]]\naddress = '[::1]:15001'\ntransparent = 'redirect'\n";
        let both = Exempt { mark: Some(0x15), ..USER };
        let expected = "# h2lab sidecar --config FILE --print-nft | nft -f -\n\
                        # To remove them: nft delete table inet h2lab_sidecar\n\
                        table inet h2lab_sidecar\ndelete table inet h2lab_sidecar\ntable inet h2lab_sidecar {\n\
                        \tchain output {\n\t\ttype nat hook output priority -100; policy accept;\n\
                        \t\tmeta mark 0x15 return\n\t\tmeta skuid 65532 return\n\t\tfib daddr type local return\n\
                        \t\tmeta nfproto ipv4 tcp dport { 80, 8080 } tcp flags & (fin | syn | rst | ack) == syn redirect to :15001\n\
                        \t\tmeta nfproto ipv6 meta l4proto tcp tcp flags & (fin | syn | rst | ack) == syn redirect to :15001\n\t}\n}\n";
        assert_eq!(of(text, both).as_deref(), Ok(expected));
        assert_eq!(of(text, Exempt::default()), Err(NoRules::NothingExempt));
    }

    #[test]
    fn what_comes_is_redirected_but_to_the_sidecars_own_ports() {
        let text = "[[listen]]\naddress = '[::]:15006'\ntransparent = 'redirect'\n[admin]\naddress = '127.0.0.1:9901'\n";
        let rules = of(text, Exempt::default()).expect("nothing of it is sent by the sidecar");
        let chain = "\tchain prerouting {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\
                     \t\tiifname \"lo\" return\n\t\ttcp dport { 9901, 15006 } return\n\
                     \t\tmeta l4proto tcp tcp flags & (fin | syn | rst | ack) == syn redirect to :15006\n\t}\n";
        assert!(rules.contains(chain) && !rules.contains("chain output"), "{rules}");
    }

    #[test]
    fn tproxy_has_routes_and_a_mark_of_its_own() {
        let text = "[[listen]]\naddress = '127.0.0.1:15001'\ntransparent = 'tproxy'\n\
                    [[listen]]\naddress = '0.0.0.0:15006'\ntransparent = 'tproxy'\nports = [80]\n";
        let rules = of(text, Exempt { mark: Some(ROUTED), uid: None }).expect("its mark is exempt");
        for line in [
            "#   ip rule add fwmark 0x6833 lookup 26675\n",
            "#   ip -6 route add local ::/0 dev lo table 26675\n",
            "\t\tmeta mark 0x6832 return\n",
            "\t\tmeta nfproto ipv4 meta l4proto tcp tcp flags & (fin | syn | rst | ack) == syn ct mark set 0x6833\n",
            "\t\tct direction original ct mark 0x6833 meta mark set 0x6833\n",
            "\t\tmeta l4proto tcp socket transparent 1 meta mark set 0x6833 accept\n",
            "iifname \"lo\" meta mark 0x6833 meta nfproto ipv4 meta l4proto tcp tproxy ip to 127.0.0.1:15001 meta mark set 0x6833 accept\n",
            "iifname != \"lo\" meta nfproto ipv4 tcp dport { 80 } tproxy ip to :15006 meta mark set 0x6833 accept\n",
        ] {
            assert!(rules.contains(line), "{line}\n{rules}");
        }
        let plain =
            "[[listen]]\naddress = '127.0.0.1:1'\nservice = 'a'\n[service.a]\ninstances = ['http://a']";
        assert_eq!(of(plain, USER), Err(NoRules::NotTransparent));
        let free = "[[listen]]\naddress = '127.0.0.1:0'\ntransparent = 'tproxy'";
        assert!(matches!(of(free, USER), Err(NoRules::NoPort(_))));
    }
}

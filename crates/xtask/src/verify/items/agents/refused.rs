//! What an agent's `--allow` does not have is refused, and no packet leaves for it: seen by tshark on the agent's device.

use anyhow::{Result, ensure};

use super::doing;
use super::figures::Capture;
use super::fleet::{DEADLINE, Fleet, Launch, ORIGIN, PORT, THREE};
use super::network::HUB;
use crate::verify::binary::H2lab;
use crate::verify::outcome::ItemOutcome;
use crate::verify::started::Ending;

/// A machine that no agent may ask.
const FORBIDDEN: &str = "forbidden";
/// Exit code of a command that had no answer of a server.
const UNREACHABLE: i32 = 3;

/// The port of NATS.
const NATS: &str = "4222";

/// Loads, transfers and servers that are not permitted.
pub fn refused(h2lab: &H2lab) -> Result<ItemOutcome> {
    let mut outcome = ItemOutcome::default();
    let agent = THREE[0];
    let mut fleet = Fleet::new(h2lab, &[agent, FORBIDDEN, ORIGIN])?;
    fleet.start_nats("", "")?;
    fleet.start_origin()?;
    let permitted = fleet.url("")?;
    let bounds =
        ["--allow", permitted.as_str(), "--max-rate", "500", "--max-connections", "40", "--max-time", "30s"];
    fleet.start_agents(&[agent], Launch { flags: &bounds, ..Launch::default() })?;
    let (node, own) = fleet.network().node(agent)?;
    let (_, other) = fleet.network().node(FORBIDDEN)?;
    let name = fleet.file_name("refused");
    let capture = Capture::begin(node, "eth0", fleet.folder(), &name, "ip or ip6")?;
    let urls =
        [format!("http://{other}:{PORT}/"), format!("{permitted}/"), "http://elsewhere.example/".to_owned()];
    let [forbidden, allowed, named] = urls.each_ref().map(String::as_str);
    let (resolve, serve) = (format!("elsewhere.example:80:{other}"), format!("{agent}={own}"));
    let connect = format!("::{other}:{PORT}");
    let load = ["load", "--json", "--quiet", "--no-store", "-z1s", "--agents", agent];
    let drive = ["bulk", "drive", "--json", "--quiet", "--h2c", "-z1s"];
    let asked: [(&str, &[&str], &[&str], &str); 8] = [
        ("another address", &load, &["-q100", forbidden], "--allow"),
        ("a name, which is not looked up", &load, &["-q100", named], "--allow"),
        ("a detour", &load, &["-q100", "--connect-to", &connect, allowed], "--connect-to"),
        ("a name with an address", &load, &["-q100", "--resolve", &resolve, named], "--allow"),
        ("more requests", &load, &["-q501", allowed], "--max-rate"),
        ("more connections", &load, &["-q100", "-c41", allowed], "--max-connections"),
        ("a transfer", &drive, &["--clients", agent, "--servers", forbidden], "--allow"),
        ("a server of bytes", &drive, &["--clients", "local", "--servers", &serve], "--allow serve"),
    ];
    for (what, first, rest, reason) in asked {
        doing(format!("{what} is asked for"));
        fleet.await_free(agent, DEADLINE)?;
        let words: Vec<&str> = first.iter().chain(rest).copied().collect();
        let ended = fleet.drive(&words)?;
        let said = format!("{}{}", ended.stdout, ended.stderr);
        let why = said.lines().find(|line| line.contains(reason)).unwrap_or_else(|| ended.last_words());
        let is_refused = ended.ending == Ending::Code(UNREACHABLE) && said.contains(reason);
        outcome.check(is_refused, format!("{what}: {}: {}", ended.ending, why.trim()));
    }
    let rows = capture.end("ip or ipv6", &["ip.src", "ip.dst", "tcp.dstport"])?;
    let own_packets: Vec<&Vec<String>> = rows.iter().filter(|row| row.first() == Some(&own)).collect();
    ensure!(!own_packets.is_empty(), "nothing was captured, not even what went to NATS");
    let elsewhere: Vec<&str> = own_packets.iter().filter_map(|row| elsewhere(row)).collect();
    let text = format!(
        "{} packets have left the agent, {} of them not for NATS {elsewhere:?}",
        own_packets.len(),
        elsewhere.len()
    );
    outcome.check(elsewhere.is_empty(), text);
    let refusals = fleet.agent(agent)?.stderr().lines().filter(|line| line.contains(" refuses ")).count();
    outcome.check(refusals >= asked.len(), format!("{agent} has logged {refusals} refusals"));
    Ok(outcome)
}

/// Where a packet of IPv4 went that was not for NATS.
fn elsewhere(row: &[String]) -> Option<&str> {
    let to = row.get(1)?;
    let is_for_nats = to == HUB && row.get(2).is_some_and(|port| port == NATS);
    (!is_for_nats).then_some(to.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_for_another_address_or_port_than_that_of_nats_is_found() {
        let row = |to: &str, port: &str| vec!["10.77.1.2".to_owned(), to.to_owned(), port.to_owned()];
        assert_eq!(elsewhere(&row(HUB, NATS)), None);
        assert_eq!(elsewhere(&row("10.77.2.2", NATS)), Some("10.77.2.2"));
        assert_eq!(elsewhere(&row(HUB, "8080")), Some(HUB));
        // Of UDP.
        assert_eq!(elsewhere(&row(HUB, "")), Some(HUB));
    }
}

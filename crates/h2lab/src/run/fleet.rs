//! A driver's sessions with agents over NATS.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use anyhow::{Context, Result};
use h2lab_model::fleet::AgentName;
use h2lab_model::fleet::subjects;
use h2lab_nats::{Nats, NatsError};
use h2lab_roles::fleet::TransportKind;
use h2lab_roles::fleet::session_transport::{PacketSender, SessionLine, Sessions};

use super::agent::who::random_id;

/// The transports to these agents, in their order; each is named once. Nothing is sent before they are opened: that an agent is
/// absent, busy or of another version is found out then, and is its end alone.
///
/// All packets of these agents come by one subscription, whose subject nobody else can guess.
pub fn transports(nats: &Nats, names: &[AgentName]) -> Result<Vec<TransportKind>> {
    let session = random_id().context("the system gave no random numbers")?;
    let sessions = Sessions::start(driver()).context("cannot start a thread for the sessions of agents")?;
    let lines: Vec<(&AgentName, SessionLine)> = names.iter().map(|name| (name, sessions.line())).collect();
    let inlets: BTreeMap<AgentName, PacketSender> =
        lines.iter().map(|(name, line)| ((*name).clone(), line.sender())).collect();
    let deliver = move |subject: &str, packet: &[u8]| {
        let sender = subjects::of_session(subject).and_then(|(name, _)| inlets.get(&name));
        if let Some(sender) = sender {
            sender.put(packet.to_vec());
        }
    };
    let subscription = Arc::new(nats.subscribe(&subjects::from_all_agents(session), deliver)?);
    let transport = |(name, line): (&AgentName, SessionLine)| {
        let (nats, subject) = (nats.clone(), subjects::to_agent(name, session));
        let subscription = Arc::clone(&subscription);
        line.to(Box::new(move |packet: Vec<u8>| {
            // It ends with the last session.
            let _subscription = &subscription;
            nats.publish(&subject, packet).map_err(unsent)
        }))
    };
    Ok(lines.into_iter().map(transport).collect())
}

/// Why a packet was not sent: what waits for a slow or interrupted connection is sent again later.
fn unsent(error: NatsError) -> io::Error {
    match error {
        NatsError::Full => io::Error::new(io::ErrorKind::WouldBlock, error),
        error => io::Error::other(error),
    }
}

/// Who we are, for whoever finds an agent busy: our user and machine.
pub(super) fn driver() -> String {
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
    let user = user.ok().filter(|user| !user.is_empty()).unwrap_or_else(|| {
        let uid = rustix::process::getuid().as_raw();
        let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        account(&accounts, uid)
            .map_or_else(|| if uid == 0 { "root".to_owned() } else { format!("uid {uid}") }, str::to_owned)
    });
    format!("{user} at {}", rustix::system::uname().nodename().to_string_lossy())
}

/// The name of a user in the text of `/etc/passwd`.
fn account(accounts: &str, uid: u32) -> Option<&str> {
    accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (!name.is_empty() && number.parse::<u32>() == Ok(uid)).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_its_number() {
        let accounts = "root:x:0:0:root:/root:/bin/sh\nbroken\n:x:7:7::/:\nann:x:1000:7::/:\n";
        assert_eq!([0, 1000].map(|uid| account(accounts, uid)), [Some("root"), Some("ann")]);
        assert_eq!([7, 1].map(|uid| account(accounts, uid)), [None, None]);
    }

    #[test]
    fn a_packet_for_which_there_is_no_room_is_sent_again_and_one_that_is_not_permitted_is_not() {
        assert_eq!(unsent(NatsError::Full).kind(), io::ErrorKind::WouldBlock);
        let denied = unsent(NatsError::Denied { subject: "h2lab.who".into() });
        assert!(
            denied.kind() != io::ErrorKind::WouldBlock && denied.to_string().contains("h2lab.who"),
            "{denied}"
        );
    }

    #[test]
    fn a_driver_names_its_user_and_its_machine() {
        let (user, machine) = driver().split_once(" at ").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        assert!(!user.is_empty() && !machine.is_empty());
    }
}

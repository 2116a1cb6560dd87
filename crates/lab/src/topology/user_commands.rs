//! What users' programs find in a lab: names of the two ends, and network privileges.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;

use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use rustix::thread::{CapabilitySet, capabilities, configure_capability_in_ambient_set, set_capabilities};

use super::address::Addressing;
use super::side::Side;
use h2lab_net::scratch;

/// The file of names that programs read first (nsswitch.conf(5): `files`).
const HOSTS: &str = "/etc/hosts";

/// Makes `client` and `server` resolve to the ends of the link, for this process and its children: a copy of `/etc/hosts` with
/// two more lines is mounted over it, in our own mount namespace, invisible to others.
///
/// The address is the one that `addressing` puts first: names with addresses of both families would leave the choice to the
/// program, and a server that listens on the other one would be dialled twice, over the link.
///
/// The machine's own entries of these two names are left out: getaddrinfo(3) collects the addresses of all lines, and puts a
/// loopback address first.
///
/// A resolver of our own in the namespaces was rejected: programs read `/etc/hosts` without one.
pub fn name_ends(addressing: Addressing) -> io::Result<()> {
    // In its own PID namespace, each lab has the same PID, and several labs may be about to begin.
    let (path, mut file) = scratch::private(&std::env::temp_dir(), "h2lab-hosts")?;
    let names = Side::BOTH.map(|side| format!("{} {}\n", addressing.own(side), side.name())).concat();
    let own = without_ends(&fs::read_to_string(HOSTS).unwrap_or_default());
    let mounted = file
        .write_all(format!("{names}{own}").as_bytes())
        // Programs that change their user must find the names, too.
        .and_then(|()| file.set_permissions(Permissions::from_mode(0o644)))
        .and_then(|()| Ok(mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?))
        .and_then(|()| Ok(mount_bind(&path, HOSTS)?));
    // The mount keeps the file; its name is not needed any more.
    fs::remove_file(&path)?;
    mounted
}

/// The lines of a file of names without the names of the ends (hosts(5): an address, names, a comment).
fn without_ends(hosts: &str) -> String {
    let is_end = |name: &&str| Side::BOTH.iter().any(|side| side.name() == *name);
    let kept = |line: &str| {
        let entry = line.split('#').next().unwrap_or_default();
        if !entry.split_whitespace().skip(1).any(|name| is_end(&name)) {
            return Some(line.to_owned());
        }
        let words: Vec<&str> = entry.split_whitespace().filter(|word| !is_end(word)).collect();
        (words.len() > 1).then(|| words.join(" "))
    };
    hosts.lines().filter_map(kept).map(|line| line + "\n").collect()
}

/// Lets the programs that this process executes keep the network privileges that it has itself in its user namespace: raw sockets
/// and device settings, for `ping -f`, `tcpdump` and `tc`. They have no effect outside.
///
/// For a process that [`super::enter`] gave a user namespace; root's programs have them anyway.
pub fn keep_network_rights() -> io::Result<()> {
    let rights = [CapabilitySet::NET_ADMIN, CapabilitySet::NET_BIND_SERVICE, CapabilitySet::NET_RAW];
    let mut sets = capabilities(None)?;
    for right in rights {
        sets.inheritable |= right;
    }
    set_capabilities(None, sets)?;
    Ok(rights.into_iter().try_for_each(|right| configure_capability_in_ambient_set(right, true))?)
}

#[cfg(test)]
mod tests {
    use super::without_ends;

    #[test]
    fn the_machines_own_client_and_server_are_left_out_and_nothing_else() {
        let hosts = "127.0.0.1 localhost\n# server\n127.0.0.3 server\n10.0.0.1\tdb server  db.example # of client\n::1 servers";
        assert_eq!(
            without_ends(hosts),
            "127.0.0.1 localhost\n# server\n10.0.0.1 db db.example\n::1 servers\n"
        );
        assert_eq!(without_ends(""), "");
    }
}

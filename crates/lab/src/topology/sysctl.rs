//! Sysctls of a network namespace: set, and read back.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;

use h2lab_model::scenario::Sysctls;
use h2lab_model::scenario::sysctl::words;
use rustix::process::getegid;

use super::error::{Result, TopologyError};
use super::netns_handle::{new_namespace, within};
use super::setup_step::SetupStep;
use super::side::Side;
use super::spec::TopologySpec;

/// A sysctl and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sysctl {
    name: String,
    value: String,
}

fn sysctl(name: &str, value: impl Into<String>) -> Sysctl {
    Sysctl { name: name.to_owned(), value: value.into() }
}

impl Sysctl {
    /// The defaults of every client and server, then those of `spec` for this side, which override them.
    pub fn of_spec(side: Side, spec: &TopologySpec) -> Vec<Self> {
        let gid = getegid().as_raw();
        let mut all = vec![
            // The slow-start threshold of a connection must not come from the one before it.
            sysctl("net.ipv4.tcp_no_metrics_save", "1"),
            // Room for as many connections as a client may open.
            sysctl("net.ipv4.ip_local_port_range", "1024 65535"),
            // Servers without privileges listen on ports 80 and 443.
            sysctl("net.ipv4.ip_unprivileged_port_start", "0"),
            // `ping` works without privileges.
            sysctl("net.ipv4.ping_group_range", format!("{gid} {gid}")),
        ];
        let sizes = |sizes: [u64; 3]| sizes.map(|bytes| bytes.to_string()).join(" ");
        all.extend(spec.tcp_rmem.map(|rmem| sysctl("net.ipv4.tcp_rmem", sizes(rmem))));
        all.extend(spec.tcp_wmem.map(|wmem| sysctl("net.ipv4.tcp_wmem", sizes(wmem))));
        let asked = match side {
            Side::Client => &spec.sysctls.client,
            Side::Server => &spec.sysctls.server,
        };
        all.extend(of_table(asked));
        all
    }

    /// Refuses a specification that sets any sysctl, where the namespace is not ours.
    pub fn refuse_any(spec: &TopologySpec) -> Result<()> {
        if spec.tcp_rmem.is_none() && spec.tcp_wmem.is_none() && spec.sysctls.is_empty() {
            return Ok(());
        }
        let why =
            "they would change the machine's own network: there is only a reflector, no network namespace";
        Err(TopologyError::refused(SetupStep::Sysctl, io::Error::other(why)))
    }

    /// Its file: dots become slashes, unless the name is written with slashes, as in sysctl(8).
    fn path(&self) -> String {
        path(&self.name)
    }

    fn read(&self) -> io::Result<String> {
        fs::read_to_string(self.path()).map(|text| words(&text))
    }

    /// Why its file could not be opened or written.
    fn refused(&self, source: io::Error) -> TopologyError {
        let (name, value) = (self.name.clone(), self.value.clone());
        match source.raw_os_error() {
            Some(libc::ENOENT) => TopologyError::SysctlAbsent { name },
            // In some kernels the sysctls of the whole machine are readable here, but nobody may write them from here.
            Some(libc::EACCES | libc::EPERM) => TopologyError::SysctlOfMachine { name },
            Some(libc::EINVAL | libc::ERANGE) => TopologyError::SysctlValue { name, value, source },
            _ => TopologyError::Refused { step: SetupStep::Sysctl, source, detail: name },
        }
    }
}

fn of_table(table: &BTreeMap<String, String>) -> impl Iterator<Item = Sysctl> {
    table.iter().map(|(name, value)| sysctl(name, value.as_str()))
}

fn path(name: &str) -> String {
    let name = if name.contains('/') { name.to_owned() } else { name.replace('.', "/") };
    format!("/proc/sys/{name}")
}

/// Those of `names` that the calling thread's network namespace has. Called before [`super::enter`], it is what
/// [`TopologyError::seen_from`] needs.
pub fn present<'a>(names: impl IntoIterator<Item = &'a String>) -> BTreeSet<String> {
    names.into_iter().filter(|name| fs::exists(path(name)).unwrap_or(false)).cloned().collect()
}

/// Sets each of these in a temporary namespace: whether this kernel has the names and accepts the values. Call it in the process
/// that returned from [`super::enter`].
pub fn try_all<'a>(wanted: impl IntoIterator<Item = &'a Sysctls>) -> Result<()> {
    for sysctls in wanted {
        for (side, table) in [(Side::Client, &sysctls.client), (Side::Server, &sysctls.server)] {
            let wanted: Vec<Sysctl> = of_table(table).collect();
            within(&new_namespace()?, || apply(side, &wanted))??;
        }
    }
    Ok(())
}

/// Switches IPv6 on or off in the calling thread's namespace, before it has a device. Where it is on, devices have only the
/// addresses that we give them, and the kernel does not solicit others.
pub(super) fn switch_ipv6(on: bool) -> Result<()> {
    let switches: &[(&str, &str)] = if on {
        // 1: no link-local address is made.
        &[("default/addr_gen_mode", "1"), ("default/accept_ra", "0"), ("default/router_solicitations", "0")]
    } else {
        &[("all/disable_ipv6", "1"), ("default/disable_ipv6", "1")]
    };
    for (name, value) in switches {
        let switch = sysctl(&format!("net/ipv6/conf/{name}"), *value);
        match fs::write(switch.path(), &switch.value) {
            // A kernel without IPv6 has nothing to switch; if IPv6 is wanted, adding its addresses will fail.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => result.map_err(|source| TopologyError::Refused {
                step: SetupStep::Sysctl,
                source,
                detail: switch.name,
            })?,
        }
    }
    Ok(())
}

/// Sets the sysctls of the calling thread's namespace. The names come back as `client NAME`, with the values as read back
/// after all were written.
pub(super) fn apply(side: Side, wanted: &[Sysctl]) -> Result<Vec<(String, String)>> {
    for sysctl in wanted {
        fs::write(sysctl.path(), &sysctl.value).map_err(|error| sysctl.refused(error))?;
    }
    let mut read_back = Vec::new();
    for (at, sysctl) in wanted.iter().enumerate() {
        if wanted[at + 1..].iter().any(|later| later.path() == sysctl.path()) {
            continue;
        }
        let found = sysctl.read().map_err(|error| sysctl.refused(error))?;
        if found != words(&sysctl.value) {
            let (name, asked) = (sysctl.name.clone(), sysctl.value.clone());
            return Err(TopologyError::SysctlNotApplied { side: side.name(), name, asked, found });
        }
        read_back.push((format!("{} {}", side.name(), sysctl.name), found));
    }
    Ok(read_back)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_sets_comes_after_what_we_set_and_on_that_side_only() {
        let name = "net.ipv4.ip_local_port_range".to_owned();
        let client = BTreeMap::from([(name.clone(), "2000 3000".to_owned())]);
        let spec =
            TopologySpec { sysctls: Sysctls { client, ..Sysctls::default() }, ..TopologySpec::default() };
        let last = |side| {
            let all = Sysctl::of_spec(side, &spec);
            all.iter().rfind(|sysctl| sysctl.name == name).unwrap().value.clone()
        };
        assert_eq!((last(Side::Client).as_str(), last(Side::Server).as_str()), ("2000 3000", "1024 65535"));
    }

    #[test]
    fn names_are_written_with_dots_or_with_slashes() {
        assert_eq!(path("net.ipv4.tcp_rmem"), "/proc/sys/net/ipv4/tcp_rmem");
        assert_eq!(path("net/ipv4/conf/eth0.1/forwarding"), "/proc/sys/net/ipv4/conf/eth0.1/forwarding");
    }

    #[test]
    fn what_the_kernel_answers_distinguishes_a_wrong_name_a_wrong_value_and_another_kernel() {
        let refused = |code| sysctl("net.x.y", "1").refused(io::Error::from_raw_os_error(code));
        let absent = || refused(libc::ENOENT);
        assert!(matches!(absent(), TopologyError::SysctlAbsent { .. }) && !absent().is_input());
        let outside = BTreeSet::from(["net.x.y".to_owned()]);
        assert!(absent().seen_from(&outside).is_input(), "only the whole machine has it");
        assert!(!absent().seen_from(&BTreeSet::new()).is_input(), "nothing here has it");
        assert!(refused(libc::EINVAL).is_input() && refused(libc::EACCES).is_input());
        assert!(!refused(libc::ENOMEM).is_input());
    }
}

//! Sysctls of a network namespace: set, and read back.

use std::fs;
use std::io;

use rustix::process::getegid;

use super::error::{Step, TopologyError};
use super::namespaces::{Side, TopologySpec};

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
    /// What every client and server gets, then what `spec` says, which therefore wins.
    pub fn of_spec(spec: &TopologySpec) -> Vec<Self> {
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
        all.extend(spec.sysctls.iter().map(|(name, value)| sysctl(name, value.as_str())));
        all
    }

    /// Its file: dots are slashes, unless it is written with slashes, as sysctl(8) has it.
    fn path(&self) -> String {
        let name = if self.name.contains('/') { self.name.clone() } else { self.name.replace('.', "/") };
        format!("/proc/sys/{name}")
    }

    fn read(&self) -> io::Result<String> {
        fs::read_to_string(self.path()).map(|text| words(&text))
    }

    fn refused(&self, source: io::Error) -> TopologyError {
        TopologyError::Refused { step: Step::Sysctl, source, detail: self.name.clone() }
    }
}

/// A value as it is compared: the kernel separates numbers with tabs.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Switches IPv6 off in the calling thread's namespace: its announcements would take draws of the loss model.
pub(super) fn disable_ipv6() -> Result<(), TopologyError> {
    for interface in ["all", "default"] {
        let off = sysctl(&format!("net/ipv6/conf/{interface}/disable_ipv6"), "1");
        match fs::write(off.path(), &off.value) {
            // A kernel without IPv6 needs nothing switched off.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => result.map_err(|error| off.refused(error))?,
        }
    }
    Ok(())
}

/// Sets the sysctls of the calling thread's namespace, IPv6 off first. The names come back as `client NAME`, with the
/// values as read back after all were written.
pub(super) fn apply(side: Side, wanted: &[Sysctl]) -> Result<Vec<(String, String)>, TopologyError> {
    disable_ipv6()?;
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
    fn what_the_user_sets_comes_after_what_we_set() {
        let name = "net.ipv4.ip_local_port_range".to_owned();
        let spec = TopologySpec { sysctls: vec![(name.clone(), "2000 3000".into())], ..Default::default() };
        let all = Sysctl::of_spec(&spec);
        assert_eq!(all.iter().rfind(|sysctl| sysctl.name == name).unwrap().value, "2000 3000");
    }

    #[test]
    fn names_are_written_with_dots_or_with_slashes() {
        assert_eq!(sysctl("net.ipv4.tcp_rmem", "").path(), "/proc/sys/net/ipv4/tcp_rmem");
        assert_eq!(
            sysctl("net/ipv4/conf/eth0.1/forwarding", "").path(),
            "/proc/sys/net/ipv4/conf/eth0.1/forwarding"
        );
    }

    #[test]
    fn values_compare_by_their_words() {
        assert_eq!(words("4096\t131072\t6291456\n"), "4096 131072 6291456");
    }
}

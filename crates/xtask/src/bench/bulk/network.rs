//! The loopback of every measurement: a network namespace of the benchmark's own, in which the connections of every
//! program have the same congestion control.
//!
//! It is set on the route there. A socket option would work for our own programs, but not for nginx, curl and Go. In a
//! namespace the sysctl cannot be set to what the kernel restricts (`tcp_allowed_congestion_control`). What sockets
//! really use is read back by `ss`, at both ends.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::process;

/// The congestion control of everything here: the kernel's default in most distributions. bbr paces, which on loopback
/// costs more than everything that is compared.
pub const CONGESTION: &str = "cubic";

/// Set in the namespace.
const INSIDE: &str = "H2LAB_BENCH_NETWORK";

/// Raises the loopback device, gives its route the congestion control `$0`, and executes the command after it.
const SCRIPT: &str = "ip link set lo up && ip route replace local 127.0.0.1 dev lo proto kernel scope host src 127.0.0.1 \
                      table local congctl \"$0\" && exec \"$@\"";

/// Whether this process is in the namespace.
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Runs this same command again in a namespace of its own.
pub fn enter() -> Result<ExitCode> {
    let mut command = Command::new("unshare");
    command.arg("--net");
    if !process::is_root() {
        command.arg("--map-root-user");
    }
    command.args(["--", "sh", "-c", SCRIPT, CONGESTION]).arg(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1)).env(INSIDE, CONGESTION);
    let status = process::stream(&mut command)?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The congestion control of all TCP connections that are established while `client` runs. Waits for `client`; empty if
/// it has none.
pub fn read_back(mut client: Child) -> Result<BTreeSet<String>> {
    let file = Path::new("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let known = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut names = BTreeSet::new();
    while client.try_wait()?.is_none() {
        names.extend(named(&ss(&["-tinH", "state", "established"])?, &known));
    }
    if !client.wait()?.success() {
        bail!("the client ended with an error while its congestion control was read");
    }
    Ok(names)
}

/// Waits until `port` is listening. Makes no connection: iperf3 would take it for a test.
pub fn await_listening(port: u16) -> Result<()> {
    let port = format!("sport = :{port}");
    while ss(&["-tlnH", &port])?.is_empty() {
        std::thread::yield_now();
    }
    Ok(())
}

fn ss(arguments: &[&str]) -> Result<String> {
    let output = Command::new("ss").args(arguments).output().context("cannot start `ss` of iproute2")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The names of congestion controls in `text`.
fn named(text: &str, known: &str) -> BTreeSet<String> {
    let known: BTreeSet<&str> = known.split_whitespace().collect();
    text.split_whitespace().filter(|word| known.contains(word)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_among_what_ss_says_of_a_socket() {
        let text = "0 0 127.0.0.1:1 127.0.0.1:2\n\t ts sack cubic wscale:10,10\n0 0 127.0.0.1:2 127.0.0.1:1\n\t bbr rto:204";
        let names: Vec<String> = named(text, "reno bbr cubic\n").into_iter().collect();
        assert_eq!(names, ["bbr", "cubic"]);
        assert!(named("", "reno").is_empty());
    }
}

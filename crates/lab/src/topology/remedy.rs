//! What to do about a refused step: the exact line, as far as this machine shows the cause.

use std::fs;
use std::io;

use super::setup_step::SetupStep;

/// The value of a sysctl that restricts namespaces, where this kernel has it.
fn restriction(name: &str) -> Option<u64> {
    fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/"))).ok()?.trim().parse().ok()
}

/// What to do so that the kernel allows `step`, which failed with `error`; `None` if nothing is known.
pub(super) fn remedy(step: SetupStep, error: &io::Error) -> Option<String> {
    let line = match (step, error.raw_os_error()) {
        (SetupStep::UserNamespace | SetupStep::NetworkNamespace, Some(libc::ENOSPC)) => {
            let kind = if step == SetupStep::UserNamespace { "user" } else { "net" };
            format!("sudo sysctl -w user.max_{kind}_namespaces=10000   # it is {}", limit(kind))
        }
        (SetupStep::UserNamespace, _) => user_namespace_line(),
        (
            SetupStep::NetworkNamespace | SetupStep::MountNamespace | SetupStep::PidNamespace,
            Some(libc::EPERM | libc::EACCES),
        ) if restriction("kernel.apparmor_restrict_unprivileged_userns") == Some(1) => {
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0".to_owned()
        }
        (
            SetupStep::NetworkNamespace
            | SetupStep::MountNamespace
            | SetupStep::PidNamespace
            | SetupStep::PacketRing
            | SetupStep::Tun,
            Some(libc::EPERM),
        ) => format!("run as root, or in a container {CONTAINER}"),
        (SetupStep::Veth, Some(libc::EOPNOTSUPP)) => "sudo modprobe veth".to_owned(),
        (SetupStep::PacketRing, Some(libc::EAFNOSUPPORT)) => "sudo modprobe af_packet".to_owned(),
        (SetupStep::Tun, Some(libc::ENOENT | libc::ENODEV)) => {
            "sudo modprobe tun   # and `--device /dev/net/tun` for a container".to_owned()
        }
        (SetupStep::Tun, Some(libc::EBUSY)) => {
            "wait for the other h2lab in this network namespace: without namespaces, only one runs at a time"
                .to_owned()
        }
        (SetupStep::Tun, Some(libc::EACCES)) => "sudo chmod 0666 /dev/net/tun".to_owned(),
        (SetupStep::Route, Some(libc::EINVAL)) => {
            "sudo modprobe -a tcp_cubic tcp_bbr   # then `sysctl net.ipv4.tcp_available_congestion_control`"
                .to_owned()
        }
        (SetupStep::Sysctl, Some(libc::EROFS)) => {
            format!("mount /proc/sys writable, or run the container {CONTAINER}")
        }
        (SetupStep::Realtime, _) => "run as root, or `ulimit -r 1` (LimitRTPRIO=1 in a service)".to_owned(),
        _ => return None,
    };
    Some(line)
}

/// Docker's options for a container in which namespaces can be made.
const CONTAINER: &str = "with `--cap-add SYS_ADMIN --cap-add NET_ADMIN --security-opt seccomp=unconfined \
                         --security-opt apparmor=unconfined`, or with less: `--cap-add NET_ADMIN --device \
                         /dev/net/tun`";

fn limit(kind: &str) -> String {
    restriction(&format!("user.max_{kind}_namespaces"))
        .map_or_else(|| "unknown".to_owned(), |n| n.to_string())
}

/// The remedy for the known restriction that forbids user namespaces.
fn user_namespace_line() -> String {
    if restriction("kernel.unprivileged_userns_clone") == Some(0) {
        "sudo sysctl -w kernel.unprivileged_userns_clone=1".to_owned()
    } else if restriction("kernel.apparmor_restrict_unprivileged_userns") == Some(1) {
        "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0".to_owned()
    } else if restriction("user.max_user_namespaces") == Some(0) {
        "sudo sysctl -w user.max_user_namespaces=10000".to_owned()
    } else {
        format!("run as root, or in a container {CONTAINER}")
    }
}

//! Agents in other places: behind a real sshd, and in network namespaces.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use h2lab_net::process::{Child, run};

use super::{assert_adds_up, assert_servers_reported, document, drive, states};
use crate::support::{DEADLINE, Finished, binary, folder, free_ports, need};

/// An sshd for this test only: its own host key, its own user key, on a free port of loopback. It ends when the value
/// is dropped.
struct Sshd {
    folder: tempfile::TempDir,
    port: u16,
    _child: Child,
}

impl Sshd {
    fn start(sshd: &Path, keygen: &Path) -> Self {
        let folder = folder();
        let path = |name: &str| folder.path().join(name);
        for key in ["host", "user"] {
            let mut command = Command::new(keygen);
            command.args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"]).arg(path(key));
            let (status, said) = run(command, DEADLINE).expect("ssh-keygen starts");
            assert!(status.success(), "{said}");
        }
        fs::copy(path("user.pub"), path("authorized_keys")).unwrap();
        let host_key = fs::read_to_string(path("host.pub")).unwrap();
        // sshd takes no port 0: another program may take the free one before sshd listens, and then another one is tried.
        for _ in 0..16 {
            let port = free_ports(1);
            let config = format!(
                "ListenAddress 127.0.0.1\nPort {port}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\n\
                 UsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPubkeyAuthentication yes\n\
                 PermitRootLogin prohibit-password\nAllowTcpForwarding no\nLogLevel VERBOSE\n",
                path("host").display(),
                path("authorized_keys").display()
            );
            fs::write(path("sshd_config"), config).unwrap();
            fs::write(path("known_hosts"), format!("[127.0.0.1]:{port} {host_key}")).unwrap();
            let mut command = Command::new(sshd);
            command.args(["-D", "-e", "-f"]).arg(path("sshd_config"));
            let child = Child::spawn(command, None).expect("sshd starts");
            let is_ready = |line: &str| line.contains("Server listening on").then_some(());
            match child.wait_for_line(DEADLINE, is_ready) {
                Ok(()) => return Self { folder, port, _child: child },
                Err(error) if child.log().contains("Address already in use") => eprintln!("{error}"),
                Err(error) => panic!("{error}: {}", child.log()),
            }
        }
        panic!("sixteen ports that were free were not");
    }

    /// The flags that lead to it.
    fn flags(&self) -> Vec<String> {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let ssh = format!(
            "--ssh=ssh -F none -p {} -i {} -o IdentitiesOnly=yes -o IdentityAgent=none -o UserKnownHostsFile={} \
             -o StrictHostKeyChecking=yes -o BatchMode=yes",
            self.port,
            path("user"),
            path("known_hosts")
        );
        vec![ssh, format!("--agent-path={}", binary().display())]
    }
}

/// sshd as root needs a folder for its unprivileged process, which Debian creates at boot.
fn programs() -> Option<(PathBuf, PathBuf)> {
    let (sshd, _) = (need("sshd")?, need("ssh")?);
    if rustix::process::geteuid().is_root() {
        fs::create_dir_all("/run/sshd").expect("root may");
    }
    Some((sshd, "ssh-keygen".into()))
}

#[test]
fn clients_and_servers_behind_ssh_do_as_those_here_do() {
    let Some((sshd, keygen)) = programs() else { return };
    let sshd = Sshd::start(&sshd, &keygen);
    let flags = sshd.flags();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let places = ["--clients=ssh:127.0.0.1,local", "--servers=ssh:127.0.0.1,local=127.0.0.1", "--plain-http"];
    let report = document(&drive(&[&flags[..], &places].concat()), 0);
    assert_eq!(states(&report), ["complete"; 4], "{report:#}");
    assert_adds_up(&report);
    assert_servers_reported(&report);
    let url = report["servers"][0]["url"].as_str().unwrap();
    assert!(url.starts_with("http://127.0.0.1:"), "{url}");
    for agent in ["clients", "servers"] {
        assert!(report[agent][0]["clock_uncertainty_ms"].is_number(), "{report:#}");
        assert!(report[agent][0]["machine"].as_str().unwrap().starts_with("Linux "), "{report:#}");
    }
}

#[test]
fn a_host_that_lets_nobody_in_is_lost_with_the_reason_of_ssh() {
    let Some((sshd, keygen)) = programs() else { return };
    let sshd = Sshd::start(&sshd, &keygen);
    fs::write(sshd.folder.path().join("authorized_keys"), "").unwrap();
    let flags = sshd.flags();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let report =
        document(&drive(&[&flags[..], &["--clients=local,ssh:127.0.0.1", "--servers=local"]].concat()), 3);
    assert_eq!(states(&report), ["complete", "lost"], "{report:#}");
    assert!(report["pairs"][1]["why"].as_str().unwrap().contains("Permission denied"), "{report:#}");
}

/// Runs a shell script as root of new namespaces, in which `ip netns` may be used; `$1` is the binary.
fn in_namespaces(script: &str) -> Finished {
    let mut words = vec!["-Urnm".to_owned(), "sh".to_owned(), "-ec".to_owned()];
    // `/run` of our own: nothing of the machine's is seen or touched.
    words.push(format!("mount -t tmpfs none /run\n{script}"));
    words.extend(["sh".to_owned(), binary().display().to_string()]);
    crate::support::run_program(Path::new("unshare"), folder().path(), &words)
}

#[test]
fn agents_run_in_namespaces_that_have_names() {
    let (Some(_), Some(_)) = (need("ip"), need("setpriv")) else { return };
    let finished = in_namespaces(
        "ip netns add a; ip netns add b\n\
         ip -n a link add eth0 type veth peer name eth0 netns b\n\
         ip -n a addr add 10.8.0.1/24 dev eth0; ip -n b addr add 10.8.0.2/24 dev eth0\n\
         ip -n a link set eth0 up; ip -n b link set eth0 up\n\
         exec \"$1\" bulk drive --json --clients netns:a --servers netns:b=10.8.0.2 --plain-http -z3s --size=1M",
    );
    let report = document(&finished, 0);
    assert_eq!(states(&report), ["complete"], "{report:#}");
    assert!(report["servers"][0]["url"].as_str().unwrap().starts_with("http://10.8.0.2:"), "{report:#}");
    assert!(report["bytes"].as_u64().unwrap() > 0);
    assert_servers_reported(&report);
}

#[test]
fn a_namespace_that_is_not_there_is_named() {
    let finished = drive(&["--clients=netns:h2lab-nowhere", "--servers=local"]);
    assert_eq!(finished.code, Some(4), "{}", finished.transcript());
    assert!(finished.stderr.contains("netns:h2lab-nowhere") && finished.stderr.contains("ip netns"));
}

//! How many clients may be connected to a sidecar at a time, and what happens to further ones.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::origin::Origin;
use crate::sidecar_admin::Watched;
use crate::sidecar_reload::until;
use crate::support::{DEADLINE, binary, folder};

const GET: &[u8] = b"GET /status/204 HTTP/1.1\r\nhost: a\r\n\r\n";

fn write(path: &Path, top: &str, of_listener: &str, origin: &Origin) {
    let text = format!(
        "{top}\n[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n{of_listener}\n[admin]\naddress = '127.0.0.1:0'\n\
         [timeouts]\nclient-idle = '0'\n[service.a]\ninstances = ['http://{}']\n",
        origin.clear
    );
    fs::write(path, text).expect("a file");
}

/// A client that has sent a request.
fn client(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("the kernel establishes it");
    stream.set_read_timeout(Some(DEADLINE)).expect("above zero");
    stream.write_all(GET).expect("the kernel takes it");
    stream
}

#[track_caller]
fn is_answered(stream: &mut TcpStream) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        let n = stream.read(&mut byte).expect("in time");
        assert_eq!(n, 1, "it ended: {}", String::from_utf8_lossy(&head));
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 204 "), "{}", String::from_utf8_lossy(&head));
}

/// A value from `/metrics`, by its name and labels.
pub fn metric(sidecar: &Watched, name: &str) -> u64 {
    let metrics = sidecar.get("/metrics").1;
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix("h2lab_sidecar_")?.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name}: {metrics}")).parse().expect("a number")
}

#[test]
fn clients_beyond_the_bound_wait_until_others_have_gone() {
    let origin = Origin::start(&[]);
    for (top, of_listener) in
        [("max-clients = 2", ""), ("threads = 3\nmax-clients = 2", ""), ("", "max-clients = 2")]
    {
        let folder = folder();
        let path = folder.path().join("sidecar.toml");
        write(&path, top, of_listener, &origin);
        let mut command = Command::new(binary());
        command.arg("sidecar").arg("--config").arg(&path);
        let sidecar = Watched::run(command);
        let mut there: Vec<TcpStream> = (0..2).map(|_| client(sidecar.clear)).collect();
        there.iter_mut().for_each(is_answered);
        let mut waiting: Vec<TcpStream> = (0..3).map(|_| client(sidecar.clear)).collect();
        let words = "new clients wait: 2 clients are connected, the limit of max-clients";
        until(|| sidecar.child.log().contains(words), || sidecar.child.log());
        // Connected clients are served, and so is the admin listener.
        for stream in &mut there {
            stream.write_all(GET).expect("it reads");
            is_answered(stream);
        }
        assert_eq!(metric(&sidecar, "clients_open"), 2);
        assert!(metric(&sidecar, "clients_limit_reached_total") >= 1);
        assert!(sidecar.get("/").1.contains("further clients waited"));
        // Waiting clients are accepted in order.
        drop(there.remove(0));
        is_answered(&mut waiting[0]);
        drop(there);
        is_answered(&mut waiting[1]);
        // A reload that allows more clients accepts them.
        write(&path, &top.replace('2', "10"), &of_listener.replace('2', "10"), &origin);
        sidecar.child.signal(Signal::HUP).expect("it runs");
        is_answered(&mut waiting[2]);
        sidecar.stop();
    }
}

#[test]
fn clients_leave_file_descriptors_for_instances_by_default() {
    let origin = Origin::start(&[]);
    let folder = folder();
    let path = folder.path().join("sidecar.toml");
    write(&path, "", "", &origin);
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 64 && exec \"$@\"", "sh"]);
    command.arg(binary()).arg("sidecar").arg("--config").arg(path);
    let sidecar = Watched::run(command);
    let most = metric(&sidecar, "clients_limit") as usize;
    assert!((1..32).contains(&most), "{most}");
    let told = format!(
        "warning: at most {most} clients can be connected at a time, further ones wait: the limit of this process is 64"
    );
    until(|| sidecar.child.log().contains(&told), || sidecar.child.log());
    // As many as may, at the same time: each needs a connection to the instance, and gets it.
    let mut clients: Vec<TcpStream> = (0..64).map(|_| client(sidecar.clear)).collect();
    clients[..most].iter_mut().for_each(is_answered);
    let metrics = sidecar.get("/metrics").1;
    assert!(metrics.contains("h2lab_sidecar_exhausted_total{what=\"files\"} 0\n"), "{metrics}");
    for mut stream in clients.drain(..most) {
        stream.write_all(GET).expect("it reads");
        is_answered(&mut stream);
    }
    // The others are accepted in turn, as those before them close.
    for mut stream in clients {
        is_answered(&mut stream);
    }
    sidecar.stop();
}

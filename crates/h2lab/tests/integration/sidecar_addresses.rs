//! Where the sidecar listens: addresses that overlap, in one configuration and across a reload.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use rustix::process::Signal;

use crate::sidecar::Sidecar;
use crate::sidecar_reload::{ASK, one, until, until_it_says};
use crate::support::{DEADLINE, folder, free_ports, h2lab};

#[test]
fn an_admin_listener_at_the_address_of_another_listener_is_refused_before_anything_listens() {
    let listen = ["sidecar", "--listen", "127.0.0.1:9", "--to", "http://127.0.0.1:9"];
    for admin in ["127.0.0.1:9", "0.0.0.0:9"] {
        let told = h2lab(&[&listen[..], &["--admin", admin]].concat());
        assert_eq!((told.code, &*told.stdout), (Some(2), ""), "{}", told.transcript());
        let is_public = admin.starts_with('0');
        let words = if is_public {
            "would be reachable from other machines".to_owned()
        } else {
            format!(
                "the admin listener on {admin} conflicts with the listener on 127.0.0.1:9: give one of them"
            )
        };
        assert!(told.stderr.contains(&words), "{}", told.stderr);
    }
}

/// A file with a second listener.
fn file(second: &str, instance: &str) -> String {
    format!(
        "[[listen]]\naddress = '127.0.0.1:0'\nservice = 'a'\n[[listen]]\nservice = 'a'\n{second}\n\
         [service.a]\ninstances = ['{instance}']\n"
    )
}

/// Whether a request is answered there.
fn answers(address: SocketAddr) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    stream.set_read_timeout(Some(DEADLINE)).expect("above zero");
    let mut response = String::new();
    let is_read = stream.write_all(ASK.as_bytes()).is_ok() && stream.read_to_string(&mut response).is_ok();
    is_read && response.ends_with("one")
}

#[test]
fn a_listener_is_replaced_by_a_wider_and_by_a_narrower_one_on_its_port() {
    let (folder, port, one) = (folder(), free_ports(1), one());
    let path = folder.path().join("sidecar.toml");
    let write = |ip: &str| {
        fs::write(&path, file(&format!("address = '{ip}:{port}'"), &one)).expect("a file");
    };
    // All of 127.0.0.0/8 are addresses of this machine.
    let [first, second] = [1, 2].map(|last| SocketAddr::from(([127, 0, 0, last], port)));
    write("127.0.0.1");
    let sidecar = Sidecar::with(&path);
    until_it_says(&sidecar, &format!("listening http://{first}"), 1);
    assert!(answers(first) && !answers(second));
    for (times, (ip, is_wide)) in [("0.0.0.0", true), ("127.0.0.1", false)].into_iter().enumerate() {
        write(ip);
        sidecar.child.signal(Signal::HUP).expect("it runs");
        until_it_says(&sidecar, ": reloaded: ", times + 1);
        until(|| answers(second) == is_wide, || sidecar.child.log());
        assert!(answers(first), "{ip}: {}", sidecar.child.log());
    }
    let last = sidecar.stop();
    assert!(last.contains("; none failed"), "{last}");
}

/// The UDP port of a listener is its own until its clients are gone.
#[test]
fn a_reload_that_cannot_have_a_port_of_its_own_says_what_to_do() {
    let (folder, port, one) = (folder(), free_ports(1), one());
    let path = folder.path().join("sidecar.toml");
    let write = |ip: &str| {
        fs::write(&path, file(&format!("address = '{ip}:{port}'\ntls = true\nh3 = true"), &one))
            .expect("a file");
    };
    write("127.0.0.1");
    let sidecar = Sidecar::with(&path);
    until_it_says(&sidecar, &format!("listening https://127.0.0.1:{port} h3"), 1);
    write("0.0.0.0");
    sidecar.child.signal(Signal::HUP).expect("it runs");
    until_it_says(&sidecar, "the previous configuration stays in effect", 1);
    let own = format!("this sidecar's own listener on 127.0.0.1:{port}, which the new configuration removes");
    let words =
        format!("cannot listen on UDP 0.0.0.0:{port}: {own}, still has the port. Restart the sidecar");
    assert!(sidecar.child.log().contains(&words), "{}", sidecar.child.log());
    assert!(sidecar.ask(ASK).ends_with("one"));
    sidecar.stop();
}

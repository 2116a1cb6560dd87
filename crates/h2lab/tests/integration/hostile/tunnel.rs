use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use h2lab_net::tcp;
use h2lab_net::tls::{ClientTls, TlsOptions, TlsSession};
use rustix::event::{PollFd, PollFlags, poll};

/// Bytes of a client that are read once the server has ended.
const MOST_AFTER_THE_END: u64 = 16 << 20;

/// An address in clear whose connections are forwarded over TLS to `tls`, with this protocol: attackers need not
/// implement TLS. If one side does not read, the tunnel stops, too. It ends with the process.
pub fn over_tls(tls: SocketAddr, alpn: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it listens");
    thread::spawn(move || {
        let trusting = TlsOptions { insecure: true, full_handshakes: true, ..TlsOptions::default() };
        let client_tls = ClientTls::new("localhost", alpn, &trusting).expect("a name");
        for client in listener.incoming().map_while(Result::ok) {
            let session = client_tls.session().expect("a session");
            let Ok(server) = TcpStream::connect(tls) else { return };
            // A side that aborts its connection is no error of the tunnel.
            thread::spawn(move || Tunnel::carry(client, server, session).unwrap_or_default());
        }
    });
    address
}

/// A connection: what was read from each side and not passed on yet.
struct Tunnel {
    client: TcpStream,
    server: TcpStream,
    session: TlsSession,
    /// Plaintext of the client; `None` if it sends no more, or nobody takes more.
    up: Option<Vec<u8>>,
    sealed: Vec<u8>,
    opened: Vec<u8>,
}

impl Tunnel {
    /// Carries a connection until the server ends it.
    fn carry(client: TcpStream, server: TcpStream, session: TlsSession) -> io::Result<()> {
        client.set_nonblocking(true)?;
        server.set_nonblocking(true)?;
        server.set_nodelay(true)?;
        let up = Some(Vec::new());
        let mut tunnel = Self { client, server, session, up, sealed: Vec::new(), opened: Vec::new() };
        while tunnel.step()? {}
        tunnel.client.shutdown(Shutdown::Write)?;
        // Closing with unread data would reset the connection, and data on its way to the client would be lost.
        tunnel.client.set_nonblocking(false)?;
        io::copy(&mut tunnel.client.take(MOST_AFTER_THE_END), &mut io::sink()).map(drop)
    }

    /// Passes on what there is, and waits for more; `false` once the server has ended.
    fn step(&mut self) -> io::Result<bool> {
        let other = |error| io::Error::other(format!("{error:?}"));
        if let Some(up) = &mut self.up {
            let n = self.session.write(up).map_err(other)?;
            up.drain(..n);
        }
        while self.session.wants_send() {
            match self.session.send(&mut &self.server) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // It takes no more, and may have said why.
                Err(_) => {
                    self.up = None;
                    break;
                }
            }
        }
        let is_sending = self.up.is_some() && self.session.wants_send();
        if self.opened.is_empty() {
            let n = self.session.receive(&self.sealed).map_err(other)?;
            self.sealed.drain(..n);
            let mut space = [0; 16 * 1024];
            match self.session.read(&mut space).map_err(other)? {
                tcp::Read::Bytes(n) => self.opened.extend_from_slice(&space[..n]),
                tcp::Read::WouldBlock => {}
                _ => return Ok(false),
            }
        }
        let takes_more = self.up.as_ref().is_some_and(Vec::is_empty) && !self.session.is_handshaking();
        let when = |is_so: bool, flag: PollFlags| if is_so { flag } else { PollFlags::empty() };
        let of_client = when(takes_more, PollFlags::IN) | when(!self.opened.is_empty(), PollFlags::OUT);
        let of_server = when(self.opened.is_empty() && self.sealed.is_empty(), PollFlags::IN)
            | when(is_sending, PollFlags::OUT);
        let mut both = [PollFd::new(&self.client, of_client), PollFd::new(&self.server, of_server)];
        poll(&mut both, None)?;
        let [of_client, of_server] = both.map(|one| one.revents());
        let mut space = [0; 16 * 1024];
        if of_client.contains(PollFlags::OUT) {
            let n = self.client.write(&self.opened)?;
            self.opened.drain(..n);
        } else if of_client.intersects(PollFlags::HUP | PollFlags::ERR) {
            return Ok(false); // nobody is there any more
        }
        if of_server.intersects(PollFlags::HUP | PollFlags::ERR) && !self.opened.is_empty() {
            self.client.set_nonblocking(false)?;
            return self.client.write_all(&self.opened).map(|()| false);
        }
        if takes_more && of_client.contains(PollFlags::IN) {
            match self.client.read(&mut space) {
                Ok(n @ 1..) => self.up.get_or_insert_default().extend_from_slice(&space[..n]),
                _ => {
                    self.session.close();
                    self.session.send(&mut &self.server)?;
                    self.server.shutdown(Shutdown::Write)?;
                    self.up = None;
                }
            }
        }
        if of_server.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
            match self.server.read(&mut space) {
                Ok(n @ 1..) => self.sealed.extend_from_slice(&space[..n]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => return Ok(false),
            }
        }
        Ok(true)
    }
}

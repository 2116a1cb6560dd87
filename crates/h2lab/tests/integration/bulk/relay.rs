//! A relay between a client and a server that passes a given number of bytes in one direction, and then holds the rest
//! back until it is dropped. With it a test can act in the middle of a transfer, whatever the speed of either end.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::support::DEADLINE;

/// See the [module](self).
pub struct Relay {
    /// Where clients connect to.
    pub address: SocketAddr,
    held: Receiver<()>,
    connections: Arc<Mutex<Vec<TcpStream>>>,
}

/// What all connections share.
struct Shared {
    /// Bytes that may still pass.
    left: Mutex<u64>,
    /// Notified when no byte may pass.
    held: Mutex<Sender<()>>,
}

impl Relay {
    /// To `server`, for so many bytes of its answers.
    pub fn start(server: SocketAddr, bytes: u64) -> Self {
        Self::holding(server, bytes, false)
    }

    /// To `server`, for so many bytes of the requests.
    pub fn of_requests(server: SocketAddr, bytes: u64) -> Self {
        Self::holding(server, bytes, true)
    }

    fn holding(server: SocketAddr, bytes: u64, holds_requests: bool) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, held) = channel();
        let shared = Arc::new(Shared { left: Mutex::new(bytes), held: Mutex::new(sender) });
        let connections = Arc::<Mutex<Vec<TcpStream>>>::default();
        let ours = Arc::clone(&connections);
        thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                let Ok(server) = TcpStream::connect(server) else { continue };
                let both = [&client, &server].map(|stream| stream.try_clone().unwrap());
                ours.lock().unwrap().extend(both);
                if holds_requests {
                    relay(server, client, &shared);
                } else {
                    relay(client, server, &shared);
                }
            }
        });
        Self { address, held, connections }
    }

    /// Waits until a byte is held back.
    pub fn wait(&self) {
        self.held.recv_timeout(DEADLINE).expect("the transfer comes so far");
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        for stream in self.connections.lock().unwrap().drain(..) {
            // It may be closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Carries bytes both ways, and holds back what comes from `held`.
fn relay(other: TcpStream, held: TcpStream, shared: &Arc<Shared>) {
    let (mut from, mut to) = (other.try_clone().unwrap(), held.try_clone().unwrap());
    thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        let (mut held, mut other) = (held, other);
        let mut block = [0; 16 * 1024];
        while let Ok(n @ 1..) = held.read(&mut block) {
            let pass = {
                let mut left = shared.left.lock().unwrap();
                let pass = (n as u64).min(*left);
                *left -= pass;
                pass as usize
            };
            if other.write_all(&block[..pass]).is_err() {
                break;
            }
            if pass < n {
                // Fails only if the receiver is gone.
                let _ = shared.held.lock().unwrap().send(());
                return; // the connection stays open, and silent
            }
        }
        let _ = other.shutdown(Shutdown::Both);
    });
}

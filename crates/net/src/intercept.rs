//! Connections that the kernel redirects to a listener although they were made to another address. It does so by
//! REDIRECT and DNAT of netfilter (`SO_ORIGINAL_DST`), or by TPROXY (`IP_TRANSPARENT`, ip(7)). Also the mark by which
//! rules distinguish our own connections from those (`SO_MARK`, socket(7)).

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd as _};

use rustix::net::{AddressFamily, SocketType, socket, sockopt};

use super::socket_option::set_option;
use super::tcp::StreamSocket;

impl StreamSocket {
    /// The destination of this connection before netfilter redirected it. If it was not redirected: its own local
    /// address, or an error.
    pub fn redirected_from(&self) -> io::Result<SocketAddr> {
        // An IPv6 socket also has IPv4 connections, and the kernel has a separate option for those.
        if self.local_address()?.ip().to_canonical().is_ipv4() {
            Ok(sockopt::ip_original_dst(self)?.into())
        } else {
            Ok(sockopt::ipv6_original_dst(self)?.into())
        }
    }
}

/// Lets TPROXY deliver connections made to other addresses to this listening socket. Needs `CAP_NET_ADMIN`, unless the
/// socket has the option already.
pub fn take_foreign(listener: impl AsFd) -> io::Result<()> {
    if takes_foreign(&listener) {
        Ok(())
    } else {
        set_option(listener, libc::SOL_IP, libc::IP_TRANSPARENT, &1)
    }
}

fn takes_foreign(listener: impl AsFd) -> bool {
    let mut value: libc::c_int = 0;
    let mut length = size_of_val(&value) as libc::socklen_t;
    let (fd, place) = (listener.as_fd().as_raw_fd(), (&raw mut value).cast());
    // SAFETY: `place` is valid for `length` bytes, which is all that the kernel writes there.
    let result = unsafe { libc::getsockopt(fd, libc::SOL_IP, libc::IP_TRANSPARENT, place, &raw mut length) };
    result == 0 && value != 0
}

/// Gives the packets of a socket this mark. Needs `CAP_NET_ADMIN`.
pub fn mark(socket: impl AsFd, mark: u32) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_MARK, &mark)
}

/// Whether the calling thread may give packets a mark.
pub fn may_mark() -> io::Result<()> {
    mark(socket(AddressFamily::INET, SocketType::STREAM, None)?, 1)
}

/// Whether the calling thread may listen for connections made to other addresses.
pub fn may_take_foreign() -> io::Result<()> {
    take_foreign(socket(AddressFamily::INET, SocketType::STREAM, None)?)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::super::privileges::{CapabilitySet, keep};
    use super::super::tcp::Listener;
    use super::*;

    #[test]
    fn what_was_not_redirected_goes_where_it_is() {
        for any in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let Ok(listener) = Listener::bind(any.parse().unwrap()) else { continue };
            let port = listener.local_address().unwrap().port();
            let to = if any.starts_with("127") { "127.0.0.1" } else { "::1" };
            let _client = TcpStream::connect((to, port)).unwrap();
            let stream = (0..1_000_000).find_map(|_| listener.accept().unwrap()).expect("it was connected");
            let local = stream.local_address().unwrap();
            // Without any rule the kernel may keep no record at all.
            assert!(stream.redirected_from().map_or(true, |original| original == local), "{any}");
        }
    }

    #[test]
    fn without_the_right_to_it_a_listener_takes_its_own_alone() {
        let had = rustix::thread::capabilities(None).unwrap().effective.contains(CapabilitySet::NET_ADMIN);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(take_foreign(&listener).is_ok(), had);
        let refused = std::thread::spawn(|| {
            keep(CapabilitySet::empty()).unwrap();
            [may_mark(), may_take_foreign()].map(|result| result.unwrap_err().kind())
        });
        assert_eq!(refused.join().unwrap(), [io::ErrorKind::PermissionDenied; 2]);
        // An option that is set already is not set again, so that this works for a successor without capabilities.
        let other = listener.try_clone().unwrap();
        let again = std::thread::spawn(move || {
            keep(CapabilitySet::empty()).unwrap();
            take_foreign(&other).is_ok()
        });
        assert_eq!(again.join().unwrap(), had);
    }
}

//! Listening sockets from one process to the next: over a Unix socket (`SCM_RIGHTS`, unix(7)), or from the service manager
//! (`LISTEN_FDS`, `sd_listen_fds(3)`). A connection that waits to be accepted belongs to the socket and not to a process, so that none
//! is lost.
//!
//! The conversation: the new process connects and is sent one message with the sockets; when it accepts connections it writes
//! [`READY`]. A new process that ends before has changed nothing.

use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg, sockopt,
};

/// Sockets in one message at most (`SCM_MAX_FD` of the kernel).
pub const MOST: usize = 253;
/// What the message with the sockets says.
const GREETING: &[u8] = b"h2lab sockets 1\n";
/// What the new process says when it accepts connections.
const READY: &[u8] = b"ready\n";
/// How long the new process may take for that.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// The process that hands over: it goes on until [`Predecessor::is_replaced`] is told.
#[derive(Debug)]
pub struct Predecessor(UnixStream);

/// Asks who listens at `path` for its sockets. `None` if nobody does.
pub fn ask(path: &Path) -> io::Result<Option<(Predecessor, Vec<OwnedFd>)>> {
    let stream = match UnixStream::connect(path) {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    stream.set_read_timeout(Some(READY_TIMEOUT))?;
    let sockets = receive(&stream)?;
    Ok(Some((Predecessor(stream), sockets)))
}

fn receive(stream: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut greeting = [0; GREETING.len()];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
    let received = recvmsg(stream, &mut [IoSliceMut::new(&mut greeting)], &mut control, flags)?;
    let mut sockets = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            sockets.extend(fds);
        }
    }
    if received.bytes != GREETING.len() || greeting != GREETING {
        let why = "the process there handed over no sockets: it is exiting, or is another program";
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(sockets)
}

impl Predecessor {
    /// Tells it that its sockets are in use here: it may end.
    pub fn is_replaced(mut self) -> io::Result<()> {
        self.0.write_all(READY)
    }
}

/// Where a successor may ask for sockets.
#[derive(Debug)]
pub struct Offer(UnixListener);

impl Offer {
    /// Listens at `path`, in place of a process that did before. Only this user and root are answered.
    pub fn at(path: &Path) -> io::Result<Self> {
        match std::fs::symlink_metadata(path) {
            Ok(there) if there.file_type().is_socket() => std::fs::remove_file(path)?,
            // Whatever else it is, it is somebody's.
            Ok(_) => {
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it exists and is not a socket"));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(Self(UnixListener::bind(path)?))
    }

    /// Waits for a successor, hands to it what `sockets` gives, and returns when it is ready. One that ends before is forgotten, of which
    /// `forgotten` is told. An error only if no further one can come.
    pub fn wait(
        &self,
        sockets: impl Fn() -> io::Result<Vec<OwnedFd>>,
        forgotten: impl Fn(),
    ) -> io::Result<()> {
        loop {
            let (stream, _) = self.0.accept()?;
            if !is_ours(&stream) {
                continue;
            }
            if sockets().is_ok_and(|sockets| hand_over(&stream, &sockets).is_ok()) {
                return Ok(());
            }
            forgotten();
        }
    }
}

/// Whether the other end is of this user, or root.
fn is_ours(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid();
    sockopt::socket_peercred(stream).is_ok_and(|peer| peer.uid == own || peer.uid.is_root())
}

fn hand_over(mut stream: &UnixStream, sockets: &[OwnedFd]) -> io::Result<()> {
    let fds: Vec<BorrowedFd<'_>> = sockets.iter().map(|socket| socket.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "more sockets than one message takes"));
    }
    sendmsg(stream, &[IoSlice::new(GREETING)], &mut control, SendFlags::NOSIGNAL)?;
    stream.set_read_timeout(Some(READY_TIMEOUT))?;
    let mut said = [0; READY.len()];
    stream.read_exact(&mut said)?;
    if said == READY { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// The sockets that the service manager has opened for this process, if it has (`sd_listen_fds(3)`). Call it once, at the start:
/// they are taken.
///
/// # Safety
/// Nothing else in the process owns the descriptors that `LISTEN_FDS` counts.
pub unsafe fn from_service_manager() -> Vec<OwnedFd> {
    const FIRST: i32 = 3;
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    if number("LISTEN_PID") != Some(std::process::id()) {
        return Vec::new();
    }
    let count = number("LISTEN_FDS").unwrap_or(0).min(MOST as u32);
    let take = |fd: i32| {
        // SAFETY: a descriptor that is closed is found out, and the caller promises that nobody else has it.
        let open = unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } == 0;
        // SAFETY: it is open, and ours.
        open.then(|| unsafe { OwnedFd::from_raw_fd(fd) })
    };
    (FIRST..).take(count as usize).filter_map(take).collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn sockets_cross_and_who_is_not_ready_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        assert!(ask(&path).unwrap().is_none(), "nobody is there");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let offer = Offer::at(&path).unwrap();
        let old = std::thread::spawn(move || {
            offer.wait(|| Ok(vec![OwnedFd::from(listener.try_clone()?)]), || ()).unwrap();
        });
        let (given_up, _) = ask(&path).unwrap().unwrap();
        drop(given_up);
        let (predecessor, sockets) = ask(&path).unwrap().unwrap();
        predecessor.is_replaced().unwrap();
        old.join().unwrap();
        let [socket] = <[OwnedFd; 1]>::try_from(sockets).unwrap();
        let listener = TcpListener::from(socket);
        assert_eq!(listener.local_addr().unwrap(), address);
        let _client = std::net::TcpStream::connect(address).unwrap();
        assert!(listener.accept().is_ok(), "it listens on");
        // What is left of the one before is in nobody's way.
        assert!(ask(&path).unwrap().is_none());
        assert!(Offer::at(&path).is_ok());
        // A file of somebody's is left alone.
        let file = folder.path().join("file");
        std::fs::write(&file, "x").unwrap();
        assert!(Offer::at(&file).is_err() && std::fs::read(&file).unwrap() == b"x");
    }
}

//! Passes listening sockets from one process to the next: over a Unix socket (`SCM_RIGHTS`, unix(7)), or from the
//! service manager (`LISTEN_FDS`, `sd_listen_fds(3)`). A connection that waits to be accepted belongs to the socket and
//! not to a process, so that none is lost.
//!
//! The conversation: the new process connects and is sent one message with the sockets; when it accepts connections it writes
//! [`READY`]. A new process that ends before has changed nothing.
//!
//! After [`READY`], in the same write, the new process may send a line that says what else it takes. An old process
//! that does not know this line reads no further. One that does gives the new process more sockets
//! ([`Successor::give`], [`Takeover::receive`]), with a header of two 4-byte numbers, big-endian: the header carries
//! the sockets and says how many they are and how many bytes follow. Before the new process uses any, it answers with
//! the number of sockets that it has taken, 4 bytes. If either process ends before this answer, nothing has changed,
//! since the old process still has the sockets.

use std::io::{self, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use rustix::io::retry_on_intr;
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
/// How long it may take for the line after [`READY`], which is there already, and for each answer about sockets that it
/// is given.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest line after [`READY`], in bytes.
const LONGEST_LINE: usize = 64 * 1024;
/// The longest description of the sockets of one message, in bytes.
const MOST_WORDS: usize = 16 << 20;

/// The process that hands over: it goes on until [`Predecessor::is_replaced`] is called.
#[derive(Debug)]
pub struct Predecessor(UnixStream);

/// Asks the process that listens at `path` for its sockets. `None` if there is none.
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
    let mut greeting = [0; GREETING.len()];
    let (bytes, sockets) = receive_into(stream, &mut greeting)?;
    if bytes != GREETING.len() || greeting != GREETING {
        let why = "what answers there hands over no sockets: it closes, or is another program";
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(sockets)
}

/// Reads until `space` is full or a message with sockets ends: how many bytes, and the sockets that came with them.
fn receive_into(stream: &UnixStream, space: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut control = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut control);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
    let mut into = [IoSliceMut::new(space)];
    let received = retry_on_intr(|| recvmsg(stream, &mut into, &mut control, flags))?;
    let mut sockets = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            sockets.extend(fds);
        }
    }
    Ok((received.bytes, sockets))
}

impl Predecessor {
    /// Reports to it that its sockets are in use here, so that it may end. `takes` is the line, without its line end,
    /// that says what else this process takes: the old process may give that from then on.
    pub fn is_replaced(mut self, takes: &str) -> io::Result<Takeover> {
        self.0.write_all(&[READY, takes.as_bytes(), b"\n"].concat())?;
        self.0.set_read_timeout(None)?;
        Ok(Takeover(self.0))
    }
}

/// The new process's end of the conversation, from its first accepted connection on.
#[derive(Debug)]
pub struct Takeover(UnixStream);

impl Takeover {
    /// Waits for sockets and their description. The sockets are still the other process's, until they are
    /// [taken](Self::take). `None` at the end.
    pub fn receive(&mut self) -> io::Result<Option<(Vec<OwnedFd>, Vec<u8>)>> {
        let mut header = [0; 8];
        let (bytes, sockets) = receive_into(&self.0, &mut header)?;
        if bytes == 0 {
            return Ok(None);
        }
        self.0.read_exact(&mut header[bytes..])?;
        let [.., a, b, c, d] = header;
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if length > MOST_WORDS {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut words = vec![0; length];
        self.0.read_exact(&mut words)?;
        Ok(Some((sockets, words)))
    }

    /// The first `count` of these sockets are this process's from now on; the others remain the other process's. An
    /// error if the other process does not wait for this any more: then it keeps all of them.
    pub fn take(&mut self, count: usize) -> io::Result<()> {
        self.0.write_all(&(count as u32).to_be_bytes())
    }
}

/// The old process's end of the conversation, once the new one is ready.
#[derive(Debug)]
pub struct Successor(UnixStream);

impl Successor {
    /// Gives it these sockets, [`MOST`] at most, with the description `words`. Returns how many of them, from the first
    /// on, it has taken: it uses none of the others. If it has not taken all, it takes no further ones.
    pub fn give(&mut self, sockets: &[BorrowedFd<'_>], words: &[u8]) -> usize {
        let taken = self.try_give(sockets, words).unwrap_or_else(|_| {
            // An answer that the new process sends from now on fails, so that it uses none of the sockets. One that it
            // has sent before can still be read.
            let _ = self.0.shutdown(Shutdown::Both);
            self.answer().unwrap_or(0)
        });
        taken.min(sockets.len())
    }

    fn try_give(&mut self, sockets: &[BorrowedFd<'_>], words: &[u8]) -> io::Result<usize> {
        self.0.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        self.0.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        let mut header = [0; 8];
        header[..4].copy_from_slice(&(sockets.len() as u32).to_be_bytes());
        header[4..].copy_from_slice(&(words.len() as u32).to_be_bytes());
        send_with(&self.0, &header, sockets)?;
        self.0.write_all(words)?;
        self.answer()
    }

    fn answer(&mut self) -> io::Result<usize> {
        let mut taken = [0; 4];
        self.0.read_exact(&mut taken)?;
        Ok(u32::from_be_bytes(taken) as usize)
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
            // It is not a socket, so it is not ours to remove.
            Ok(_) => {
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it exists and is not a socket"));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(Self(UnixListener::bind(path)?))
    }

    /// Waits for a successor, hands it the sockets that `sockets` returns, and returns when the successor is ready: the
    /// conversation with it, and the line in which it said what else it takes (empty if it sent none). If a successor
    /// ends before, `forgotten` is called, and the wait goes on. An error only if no further successor can come.
    pub fn wait(
        &self,
        sockets: impl Fn() -> io::Result<Vec<OwnedFd>>,
        forgotten: impl Fn(),
    ) -> io::Result<(Successor, String)> {
        loop {
            let (stream, _) = self.0.accept()?;
            if !is_ours(&stream) {
                continue;
            }
            if let Ok(line) = sockets().and_then(|sockets| hand_over(&stream, &sockets)) {
                return Ok((Successor(stream), line));
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

fn hand_over(mut stream: &UnixStream, sockets: &[OwnedFd]) -> io::Result<String> {
    let fds: Vec<BorrowedFd<'_>> = sockets.iter().map(|socket| socket.as_fd()).collect();
    send_with(stream, GREETING, &fds)?;
    stream.set_read_timeout(Some(READY_TIMEOUT))?;
    let mut said = [0; READY.len()];
    stream.read_exact(&mut said)?;
    if said != READY {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(line_behind(stream))
}

/// The rest of what the new process sent when it was ready. One that sends nothing more has closed its end.
fn line_behind(mut stream: &UnixStream) -> String {
    let mut line = Vec::new();
    let mut space = [0; 1024];
    while !line.contains(&b'\n') && line.len() <= LONGEST_LINE {
        let read = stream.set_read_timeout(Some(ANSWER_TIMEOUT)).and_then(|()| stream.read(&mut space));
        match read {
            Ok(n @ 1..) => line.extend_from_slice(&space[..n]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(_) | Err(_) => return String::new(),
        }
    }
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    String::from_utf8_lossy(line).into_owned()
}

/// Sends bytes that carry sockets.
fn send_with(stream: &UnixStream, bytes: &[u8], sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !sockets.is_empty() && !control.push(SendAncillaryMessage::ScmRights(sockets)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "more sockets than one message takes"));
    }
    let sent = retry_on_intr(|| sendmsg(stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL))?;
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
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
        // SAFETY: a closed descriptor is detected, and the caller promises that nobody else has it.
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
        predecessor.is_replaced("").unwrap();
        old.join().unwrap();
        let [socket] = <[OwnedFd; 1]>::try_from(sockets).unwrap();
        let listener = TcpListener::from(socket);
        assert_eq!(listener.local_addr().unwrap(), address);
        let _client = std::net::TcpStream::connect(address).unwrap();
        assert!(listener.accept().is_ok(), "it listens on");
        // What is left of the previous one does no harm.
        assert!(ask(&path).unwrap().is_none());
        assert!(Offer::at(&path).is_ok());
        // A file that somebody else made is left alone.
        let file = folder.path().join("file");
        std::fs::write(&file, "x").unwrap();
        assert!(Offer::at(&file).is_err() && std::fs::read(&file).unwrap() == b"x");
    }
    /// An old and a new process, both in this one; the line of the new one says `takes`.
    fn pair(takes: &str) -> (Successor, String, Takeover) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let offer = Offer::at(&path).unwrap();
        let old = std::thread::spawn(move || offer.wait(|| Ok(Vec::new()), || ()).unwrap());
        let (predecessor, _) = ask(&path).unwrap().unwrap();
        let takeover = predecessor.is_replaced(takes).unwrap();
        let (successor, line) = old.join().unwrap();
        (successor, line, takeover)
    }

    /// `count` connections: those that were accepted, and their clients.
    fn connections(count: usize) -> (Vec<OwnedFd>, Vec<std::net::TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let pairs = (0..count).map(|_| {
            let client = std::net::TcpStream::connect(address).unwrap();
            (OwnedFd::from(listener.accept().unwrap().0), client)
        });
        pairs.unzip()
    }

    #[test]
    fn connections_cross_with_what_is_said_of_them_and_those_not_taken_stay() {
        let (mut successor, line, mut takeover) = pair("clients 1 127.0.0.1:80");
        assert_eq!(line, "clients 1 127.0.0.1:80");
        let (sockets, mut clients) = connections(MOST);
        let new = std::thread::spawn(move || {
            let long = takeover.receive().unwrap().unwrap();
            takeover.take(long.0.len()).unwrap();
            let (two, words) = takeover.receive().unwrap().unwrap();
            takeover.take(1).unwrap();
            assert!(takeover.receive().unwrap().is_none(), "the other process has ended");
            (long, two, words)
        });
        let words = vec![7; 1 << 20];
        let fds: Vec<BorrowedFd<'_>> = sockets.iter().map(|socket| socket.as_fd()).collect();
        assert_eq!(successor.give(&fds, &words), MOST);
        assert_eq!(successor.give(&fds[..2], b"two"), 1);
        drop(successor);
        let ((all, long), two, said) = new.join().unwrap();
        assert_eq!((all.len(), long, two.len(), &*said), (MOST, words, 2, &b"two"[..]));
        // It is the same connection.
        drop(sockets);
        let mut last = std::net::TcpStream::from(all.into_iter().next_back().unwrap());
        last.write_all(b"x").unwrap();
        let mut byte = [0];
        clients.pop().unwrap().read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");
    }

    #[test]
    fn an_older_successor_takes_nothing_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let offer = Offer::at(&path).unwrap();
        let old = std::thread::spawn(move || offer.wait(|| Ok(Vec::new()), || ()).unwrap());
        let (Predecessor(mut stream), _) = ask(&path).unwrap().unwrap();
        stream.write_all(READY).unwrap();
        drop(stream);
        let (mut successor, line) = old.join().unwrap();
        assert_eq!(line, "");
        let (sockets, _clients) = connections(1);
        assert_eq!(successor.give(&[sockets[0].as_fd()], b""), 0);
    }

    #[test]
    fn a_successor_that_dies_has_taken_what_it_has_said() {
        // The new process dies with the sockets, before it has answered.
        let (mut successor, _, mut takeover) = pair("");
        let new = std::thread::spawn(move || drop(takeover.receive().unwrap()));
        let (sockets, _clients) = connections(1);
        let fds = [sockets[0].as_fd()];
        assert_eq!(successor.give(&fds, b"a"), 0);
        new.join().unwrap();
        assert_eq!(successor.give(&fds, b"a"), 0, "and takes no further ones");
        // The new process has answered, and the old one reads the answer although it waits no longer.
        let (mut successor, _, mut takeover) = pair("");
        takeover.take(1).unwrap();
        successor.0.shutdown(Shutdown::Both).unwrap();
        assert!(takeover.take(1).is_err(), "what it says from here on fails");
        assert_eq!(successor.give(&fds, b"a"), 1);
    }
}

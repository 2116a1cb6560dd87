//! The few system calls without a safe wrapper in `std` or `rustix`, and waiting for a child.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, waitpid};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use h2lab_net::socket_option::set_option;

/// Which process returns from [`fork`].
pub(super) enum Forked {
    /// The process that called.
    Parent(Pid),
    /// The copy.
    Child,
}

/// Number of threads of this process.
pub(super) fn threads() -> io::Result<usize> {
    Ok(std::fs::read_dir("/proc/self/task")?.count())
}

/// Copies the process. An error if it has more than one thread: locks of others would stay locked in the copy for ever.
pub(super) fn fork() -> io::Result<Forked> {
    if threads()? != 1 {
        return Err(io::Error::other("a process with several threads cannot be copied"));
    }
    // SAFETY: this is the only thread, and no other one can begin meanwhile: the child's memory is consistent and may be used as
    // before.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(Pid::from_raw(pid).expect("fork returned the pid of a child"))),
    }
}

/// Ends a forked process at once: no destructors, no `atexit`, no second flush of inherited buffers.
pub(super) fn exit_now(status: i32) -> ! {
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(status) }
}

/// Waits for a child; returns the status to end with.
pub(super) fn wait_for(child: Pid) -> i32 {
    loop {
        match waitpid(Some(child), WaitOptions::empty()) {
            Ok(Some((_, status))) => {
                if let Some(code) = status.exit_status() {
                    return code;
                }
                if let Some(signal) = status.terminating_signal() {
                    return 128 + signal;
                }
            }
            Ok(None) | Err(Errno::INTR) => {}
            Err(_) => return 1,
        }
    }
}

/// Moves into fresh namespaces.
pub(super) fn unshare(flags: UnshareFlags) -> Result<(), Errno> {
    // SAFETY: no flag here separates file descriptors, so that no owned descriptor stops being one.
    unsafe { unshare_unsafe(flags) }
}

/// `getsockopt` of a plain value of which every bit pattern is valid.
///
/// # Safety
/// All zeros, and whatever the kernel stores for this option, must be a valid `T`.
pub(super) unsafe fn get_option<T: Copy>(fd: impl AsFd, level: c_int, name: c_int) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut length = size_of::<T>() as libc::socklen_t;
    let pointer = value.as_mut_ptr().cast::<c_void>();
    // SAFETY: `pointer` is valid for writes of `length` bytes.
    check(unsafe { libc::getsockopt(fd.as_fd().as_raw_fd(), level, name, pointer, &raw mut length) })?;
    // SAFETY: zeroed before, and the caller vouches for what the kernel stored.
    Ok(unsafe { value.assume_init() })
}

/// The congestion control of a TCP socket.
pub(super) fn congestion_of(socket: impl AsFd) -> io::Result<String> {
    // SAFETY: any bytes are a valid array; TCP_CA_NAME_MAX is 16.
    let name: [u8; 16] = unsafe { get_option(socket, libc::IPPROTO_TCP, libc::TCP_CONGESTION)? };
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    Ok(String::from_utf8_lossy(&name[..end]).into_owned())
}

/// Binds a packet socket to one device; packets of `protocol` arrive from then on.
pub(super) fn bind_to_device(fd: impl AsFd, interface: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: all zeros is a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex =
        c_int::try_from(interface).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?;
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: `address` is a sockaddr_ll of `length` bytes that outlives the call.
    check(unsafe { libc::bind(fd.as_fd().as_raw_fd(), (&raw const address).cast(), length) })
}

/// A classic BPF program of the length of ours.
pub(super) type Filter = [libc::sock_filter; 10];

/// Lets a socket receive only what `filter` accepts.
pub(super) fn attach_filter(fd: impl AsFd, filter: &Filter) -> io::Result<()> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // The kernel copies the instructions, and only reads them.
    set_option(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// `struct ethtool_value` of `linux/ethtool.h`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// `struct ifreq` of `linux/if.h`, padded to its union's full size; `V` is the member of the union that a request uses.
#[repr(C)]
pub(super) struct InterfaceRequest<V> {
    name: [u8; libc::IFNAMSIZ],
    value: V,
    padding: [u8; 16],
}

impl<V> InterfaceRequest<V> {
    /// A request about the device of this name, of which 15 bytes count.
    pub fn new(device: &str, value: V) -> Self {
        let mut name = [0; libc::IFNAMSIZ];
        let length = device.len().min(libc::IFNAMSIZ - 1);
        name[..length].copy_from_slice(&device.as_bytes()[..length]);
        Self { name, value, padding: [0; 16] }
    }
}

/// Sets one feature of a device of `socket`'s network namespace: `command` is an `ETHTOOL_S…`.
pub(super) fn set_feature(socket: impl AsFd, device: &str, command: u32, on: bool) -> io::Result<()> {
    let mut value = EthtoolValue { command, data: u32::from(on) };
    let mut request = InterfaceRequest::new(device, &raw mut value);
    // SAFETY: SIOCETHTOOL reads an ifreq whose `ifr_data` points to an ethtool_value; both outlive the call.
    check(unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) })
}

/// The error of a call that answers -1.
pub(super) fn check(result: c_int) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

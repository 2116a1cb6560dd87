//! Socket options that neither `std` nor `rustix` has.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// `setsockopt` with a plain value.
pub fn set_option<T: Copy>(fd: impl AsFd, level: c_int, name: c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    let pointer = std::ptr::from_ref(value).cast::<c_void>();
    // SAFETY: `pointer` is valid for `length` bytes, and the kernel only reads them.
    let result = unsafe { libc::setsockopt(fd.as_fd().as_raw_fd(), level, name, pointer, length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

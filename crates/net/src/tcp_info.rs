//! What the kernel reports on a TCP connection (`TCP_INFO`, linux/tcp.h).

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use h2lab_base::counters::{TcpLimits, TcpSummary, TcpTick};
use h2lab_base::units::Time;

use super::tcp::StreamSocket;

/// The head of the kernel's `struct tcp_info`. It has only ever grown at its end, so a longer one is cut and a shorter one leaves
/// zeros. `libc::tcp_info` stops before `tcpi_min_rtt`, hence our own.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct KernelTcpInfo {
    state_to_flags: [u8; 8],
    rto: u32,
    ato: u32,
    snd_mss: u32,
    rcv_mss: u32,
    unacked: u32,
    sacked: u32,
    lost: u32,
    retrans: u32,
    fackets: u32,
    last_data_sent: u32,
    last_ack_sent: u32,
    last_data_recv: u32,
    last_ack_recv: u32,
    pmtu: u32,
    rcv_ssthresh: u32,
    rtt: u32,
    rttvar: u32,
    snd_ssthresh: u32,
    snd_cwnd: u32,
    advmss: u32,
    reordering: u32,
    rcv_rtt: u32,
    rcv_space: u32,
    total_retrans: u32,
    pacing_rate: u64,
    max_pacing_rate: u64,
    bytes_acked: u64,
    bytes_received: u64,
    segs_out: u32,
    segs_in: u32,
    notsent_bytes: u32,
    min_rtt: u32,
    data_segs_in: u32,
    data_segs_out: u32,
    delivery_rate: u64,
    busy_time: u64,
    rwnd_limited: u64,
    sndbuf_limited: u64,
    delivered: u32,
    delivered_ce: u32,
    bytes_sent: u64,
    bytes_retrans: u64,
    dsack_dups: u32,
    reord_seen: u32,
}

/// Where `tcpi_retransmits` is among the first bytes.
const RETRANSMITS: usize = 2;

/// A sample of a connection, from our end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpInfo {
    /// Segments sent again so far.
    pub retransmits: u32,
    /// Retransmitted segments that the peer had already received, as its DSACKs report; 0 before Linux 4.20. A DSACK arrives a round
    /// trip after the retransmission.
    pub spurious: u32,
    /// Smoothed round-trip time, in microseconds.
    pub rtt_us: u32,
    /// Lowest round-trip time of the last minutes, in microseconds.
    pub min_rtt_us: u32,
    /// Congestion window, in segments.
    pub cwnd: u32,
    /// Segments sent and not acknowledged.
    pub unacked: u32,
    /// Whether loss recovery is under way: a segment is known to be missing, and its retransmission has not been
    /// acknowledged.
    pub is_repairing: bool,
    /// Bytes that wait in the socket and were never sent.
    pub unsent_bytes: u32,
    /// The retransmission timeout, in microseconds.
    pub rto_us: u32,
    /// Whether a retransmission timeout is unresolved.
    pub is_timed_out: bool,
    /// Segments with data sent so far, retransmissions included.
    pub segments_out: u32,
    /// Segments with data received so far.
    pub segments_in: u32,
    /// Bytes of a segment that we send.
    pub segment_bytes: u32,
    /// Bytes that the peer's kernel has acknowledged; if we dialled, one more for our SYN.
    pub bytes_acked: u64,
    /// Bytes received in order.
    pub bytes_received: u64,
    /// What limited sending.
    pub limits: TcpLimits,
}

impl TcpInfo {
    /// Asks the kernel. Costs about a microsecond: do not call it per request.
    pub fn of(stream: &StreamSocket) -> io::Result<Self> {
        let mut info = MaybeUninit::<KernelTcpInfo>::zeroed();
        let mut length = size_of::<KernelTcpInfo>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes, and `info` has that many.
        let result = unsafe {
            libc::getsockopt(
                stream.as_fd().as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: every bit pattern is a valid `KernelTcpInfo`, and it was zeroed before the kernel wrote to it.
        Ok(Self::from_kernel(&unsafe { info.assume_init() }))
    }

    /// Whether the peer's kernel has acknowledged what was written `age` ago. A busy connection always has
    /// unacknowledged data; but data older than two retransmission timeouts would have been retransmitted.
    pub fn has_acknowledged(&self, age: Duration) -> bool {
        let would_be_sent_again = age.as_micros() > 2 * u128::from(self.rto_us) && !self.is_timed_out;
        self.unsent_bytes == 0 && (self.unacked == 0 || would_be_sent_again)
    }

    /// From the bytes of a `struct tcp_info`, as a `sock_diag` answer carries them. What an older kernel leaves out is 0.
    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        let mut info = KernelTcpInfo::default();
        let length = bytes.len().min(size_of::<KernelTcpInfo>());
        // SAFETY: `length` is within both, they do not overlap, and every bit pattern is a valid `KernelTcpInfo`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), (&raw mut info).cast::<u8>(), length) };
        Self::from_kernel(&info)
    }

    const fn from_kernel(info: &KernelTcpInfo) -> Self {
        Self {
            retransmits: info.total_retrans,
            spurious: info.dsack_dups,
            rtt_us: info.rtt,
            min_rtt_us: info.min_rtt,
            cwnd: info.snd_cwnd,
            unacked: info.unacked,
            is_repairing: info.sacked > 0 || info.lost > 0 || info.retrans > 0,
            unsent_bytes: info.notsent_bytes,
            rto_us: info.rto,
            is_timed_out: info.state_to_flags[RETRANSMITS] > 0,
            segments_out: info.data_segs_out,
            segments_in: info.data_segs_in,
            segment_bytes: info.snd_mss,
            bytes_acked: info.bytes_acked,
            bytes_received: info.bytes_received,
            limits: TcpLimits {
                busy_us: info.busy_time,
                rwnd_limited_us: info.rwnd_limited,
                sndbuf_limited_us: info.sndbuf_limited,
            },
        }
    }

    /// As a point of the record's time series, seen at our end.
    pub const fn tick(self, at: Time, connection: u32) -> TcpTick {
        TcpTick {
            at,
            connection,
            retransmits: self.retransmits,
            cwnd: self.cwnd,
            rtt_us: self.rtt_us,
            unacked: self.unacked,
            server: false,
        }
    }

    /// As the record's final statistics of a connection.
    pub const fn summary(self, congestion_control: String) -> TcpSummary {
        TcpSummary {
            retransmits: self.retransmits,
            spurious: self.spurious,
            rtt_us: self.rtt_us,
            min_rtt_us: self.min_rtt_us,
            cwnd: self.cwnd,
            segments_out: self.segments_out,
            segments_in: self.segments_in,
            congestion_control,
            segment_bytes: self.segment_bytes,
            bytes_acked: self.bytes_acked,
            // A connection whose bytes were acknowledged has been busy; 0 then means that the kernel does not report it.
            limits: if self.limits.busy_us > 0 || self.bytes_acked <= 1 { Some(self.limits) } else { None },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::*;
    use crate::tcp::{ConnectOptions, Listener};

    #[test]
    fn what_is_not_acknowledged_has_arrived_only_if_it_would_have_been_sent_again() {
        let quiet = TcpInfo { rto_us: 200_000, ..TcpInfo::default() };
        let busy = TcpInfo { unacked: 1, ..quiet };
        let lost = TcpInfo { is_timed_out: true, ..busy };
        let full = TcpInfo { unsent_bytes: 1, ..quiet };
        let (young, old) = (Duration::from_millis(400), Duration::from_micros(400_001));
        assert!(quiet.has_acknowledged(Duration::ZERO));
        assert!(!busy.has_acknowledged(young) && busy.has_acknowledged(old));
        assert!(!lost.has_acknowledged(old) && !full.has_acknowledged(old));
    }

    #[test]
    fn fields_are_where_linux_has_them() {
        // linux/tcp.h: fields are only ever added at the end.
        assert_eq!(std::mem::offset_of!(KernelTcpInfo, total_retrans), 100);
        assert_eq!(std::mem::offset_of!(KernelTcpInfo, dsack_dups), 216);
    }

    #[test]
    fn a_connection_on_loopback_reports_its_round_trip_and_window() {
        let listener = Listener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = listener.local_address().unwrap();
        // On loopback the three-way handshake is over when connect returns.
        let options = ConnectOptions { congestion: Some("reno"), ..ConnectOptions::default() };
        let client = StreamSocket::connect(&address.into(), &options).unwrap();
        client.take_error().unwrap();
        client.write(b"one segment").unwrap();
        let info = TcpInfo::of(&client).unwrap();
        assert_eq!((info.segments_out, info.segments_in, info.retransmits), (1, 0, 0));
        assert!(info.cwnd >= 2 && info.rtt_us > 0, "{info:?}");
        assert_eq!(client.congestion().unwrap(), "reno", "which every user may have");
    }
}

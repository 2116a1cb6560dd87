//! Everything that touches the kernel or a TLS library: the clock, the reactor, TCP, TLS, QUIC over UDP, and the
//! statistics of TCP.
//!
//! A role (generator, origin, probe) is one thread with one [`reactor::Reactor`]: it submits interest, sleeps in
//! [`reactor::Reactor::wait`], takes [`reactor::Completion`]s and moves bytes between a [`transport::Transport`] and an
//! engine of `h2lab_wire`. Start at `reactor.rs`.
//!
//! Never contains: decisions on what is sent, dialled or retried; a report.

pub mod byte_stream;
pub mod clock;
pub mod confinement;
pub mod cpu_budget;
mod crossing;
pub mod handover;
pub mod intercept;
pub mod lock;
pub mod machine;
pub mod ownership;
pub mod precise_wakeup;
pub mod privileges;
pub mod process;
pub mod process_watch;
pub mod quic;
mod rcvlowat;
pub mod reactor;
pub mod receive_buffer;
pub mod resources;
pub mod scratch;
pub mod sock_diag;
pub mod socket_option;
pub mod storage;
pub mod tcp;
pub mod tcp_info;
pub mod tls;
pub mod transport;
pub mod udp;
mod wake_timer;
pub mod wakeup;

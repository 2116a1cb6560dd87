//! Conversations of whole connections, in virtual time and without sockets.

mod conversation;
mod support;

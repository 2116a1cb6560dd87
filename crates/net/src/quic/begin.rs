//! How a connection begins: dialled, or accepted.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use h2lab_base::units::Time;
use h2lab_wire::Config;
use quinn_proto::{ClientConfig, Incoming, ServerConfig};

use super::endpoint::QuicEndpoint;
use super::error::explain_client;
use super::session::QuicSession;
use super::settings::{self, Congestion};
use super::traffic::Intake;
use crate::clock::Clock;
use crate::crossing::TransportError;
use crate::tls::ClientTls;
use crate::udp::{Socket, largest_payload};

impl QuicEndpoint {
    /// Begins a connection to `remote` with a socket of its own, for the engine settings `engine`. Its flow-control
    /// windows are granted at once and permanently.
    pub fn dial(
        remote: SocketAddr,
        tls: &ClientTls,
        engine: &Config,
        congestion: Congestion,
        clock: Clock,
        now: Time,
    ) -> io::Result<QuicSession> {
        let endpoint = Arc::new(Self::new(Socket::connect(remote)?, None, clock));
        let mut config = ClientConfig::new(tls.quic().map_err(io::Error::other)?);
        let payload = largest_payload(remote).unwrap_or_default();
        config.transport_config(Arc::new(settings::transport(engine, congestion, payload)));
        let at = endpoint.instants().at(now);
        let (handle, connection) =
            endpoint.proto().connect(at, config, remote, &tls.name()).map_err(io::Error::other)?;
        let mut session = QuicSession::client(endpoint, handle, connection, tls, congestion);
        session.intake = Intake::new(engine.flow.stream_window);
        Ok(session)
    }

    /// Accepts a connection for the engine settings `engine`. An error says why the connection is refused, for example
    /// because it offers no protocol of ours; the client has then been notified. Its flow-control windows are granted
    /// at once and permanently.
    pub fn accept(
        self: &Arc<Self>,
        incoming: Incoming,
        engine: &Config,
        congestion: Congestion,
        now: Time,
    ) -> Result<QuicSession, TransportError> {
        let mut answer = Vec::new();
        let at = self.instants().at(now);
        let payload = largest_payload(incoming.remote_address()).unwrap_or_default();
        let config = self.server().map(|server| {
            let mut config = ServerConfig::clone(&server);
            config.transport_config(Arc::new(settings::transport(engine, congestion, payload)));
            Arc::new(config)
        });
        let accepted = self.proto().accept(incoming, at, &mut answer, config);
        match accepted {
            Ok((handle, connection)) => {
                let mut session = QuicSession::server(Arc::clone(self), handle, connection, congestion);
                session.intake = Intake::new(engine.flow.stream_window);
                Ok(session)
            }
            Err(error) => {
                if let Some(transmit) = error.response {
                    self.answer(&transmit, &answer);
                }
                Err(explain_client(error.cause))
            }
        }
    }
}

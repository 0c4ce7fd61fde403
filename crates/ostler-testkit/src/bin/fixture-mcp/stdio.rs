//! One client, on stdin and stdout.
//!
//! `rmcp` speaks both eras on one pipe. A server of one era alone differs in
//! its first words only, so a gate in front of it says those.

use std::sync::Arc;

use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, DiscoverRequestMethod, ErrorCode, ErrorData, GetMeta,
    ServerJsonRpcMessage,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::{IntoTransport, Transport};
use rmcp::{RoleServer, ServiceExt};

use crate::era::Era;
use crate::server::Fixture;
use crate::world::World;

pub(crate) async fn serve(world: Arc<World>, era: Era) -> Result<(), Box<dyn std::error::Error>> {
    let pipe = IntoTransport::<RoleServer, _, _>::into_transport(rmcp::transport::stdio());
    let gate = Gate { era, is_open: false, pipe };
    Fixture::new(world, era).serve(gate).await?.waiting().await?;
    Ok(())
}

struct Gate<T> {
    era: Era,
    /// Whether `initialize` has been seen; only a legacy server cares.
    is_open: bool,
    pipe: T,
}

impl<T> Gate<T> {
    /// What a server of one era answers where `rmcp` would not.
    fn refusal(&mut self, request: &mut ClientRequest) -> Option<ErrorData> {
        match (self.era, &*request) {
            (Era::Dual, _) => None,
            (Era::ModernOnly, ClientRequest::InitializeRequest(initialize)) => {
                let requested = initialize.params.protocol_version.clone();
                Some(ErrorData::unsupported_protocol_version(requested, &self.era.versions()))
            }
            (Era::ModernOnly, _) => None,
            (Era::LegacyOnly, ClientRequest::DiscoverRequest(_)) => {
                Some(ErrorData::method_not_found::<DiscoverRequestMethod>())
            }
            (Era::LegacyOnly, ClientRequest::InitializeRequest(_)) => {
                self.is_open = true;
                None
            }
            (Era::LegacyOnly, ClientRequest::PingRequest(_)) => None,
            (Era::LegacyOnly, _) if !self.is_open => Some(ErrorData::new(
                ErrorCode::INVALID_REQUEST,
                "Received request before initialization",
                None,
            )),
            (Era::LegacyOnly, _) => {
                // Keys that an older server does not know mean nothing to it.
                request.get_meta_mut().0.0.retain(|key, _| !key.starts_with("io.modelcontextprotocol/"));
                None
            }
        }
    }
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for Gate<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.pipe.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            let mut message = self.pipe.receive().await?;
            let ClientJsonRpcMessage::Request(request) = &mut message else { return Some(message) };
            let Some(refusal) = self.refusal(&mut request.request) else { return Some(message) };
            let answer = ServerJsonRpcMessage::error(refusal, Some(request.id.clone()));
            // On its own, so that whoever stops waiting for the next message loses no answer.
            tokio::spawn(self.pipe.send(answer));
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.pipe.close().await
    }
}

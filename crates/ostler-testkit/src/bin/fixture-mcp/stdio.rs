//! Stdio transport: one client on stdin and stdout.
//!
//! `rmcp` speaks both eras on one pipe. A server of one era differs in its first answers only,
//! which a filter in front of it gives.

use std::sync::Arc;

use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, DiscoverRequestMethod, ErrorCode, ErrorData, GetMeta,
    ServerJsonRpcMessage,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::{IntoTransport, Transport};
use rmcp::{RoleServer, ServiceExt};

use crate::era::ServedEras;
use crate::server::FixtureServer;
use crate::shared_state::FixtureState;

pub(crate) async fn serve(
    shared: Arc<FixtureState>,
    era: ServedEras,
) -> Result<(), Box<dyn std::error::Error>> {
    let transport = IntoTransport::<RoleServer, _, _>::into_transport(rmcp::transport::stdio());
    let filter = EraFilter { era, is_initialized: false, inner: transport };
    FixtureServer::new(shared, era).serve(filter).await?.waiting().await?;
    Ok(())
}

struct EraFilter<T> {
    era: ServedEras,
    /// Set by `initialize`; only a legacy server needs it.
    is_initialized: bool,
    inner: T,
}

impl<T> EraFilter<T> {
    /// Returns the error of a server of one era, where `rmcp` would accept the request.
    fn reject(&mut self, request: &mut ClientRequest) -> Option<ErrorData> {
        match (self.era, &*request) {
            (ServedEras::Dual, _) => None,
            (ServedEras::ModernOnly, ClientRequest::InitializeRequest(initialize)) => {
                let requested = initialize.params.protocol_version.clone();
                Some(ErrorData::unsupported_protocol_version(requested, &self.era.versions()))
            }
            (ServedEras::ModernOnly, _) => None,
            (ServedEras::LegacyOnly, ClientRequest::DiscoverRequest(_)) => {
                Some(ErrorData::method_not_found::<DiscoverRequestMethod>())
            }
            (ServedEras::LegacyOnly, ClientRequest::InitializeRequest(_)) => {
                self.is_initialized = true;
                None
            }
            (ServedEras::LegacyOnly, ClientRequest::PingRequest(_)) => None,
            (ServedEras::LegacyOnly, _) if !self.is_initialized => Some(ErrorData::new(
                ErrorCode::INVALID_REQUEST,
                "Received request before initialization",
                None,
            )),
            (ServedEras::LegacyOnly, _) => {
                // An older server ignores keys that it does not know.
                request.get_meta_mut().0.0.retain(|key, _| !key.starts_with("io.modelcontextprotocol/"));
                None
            }
        }
    }
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for EraFilter<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.inner.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            let mut message = self.inner.receive().await?;
            let ClientJsonRpcMessage::Request(request) = &mut message else { return Some(message) };
            let Some(refusal) = self.reject(&mut request.request) else { return Some(message) };
            let answer = ServerJsonRpcMessage::error(refusal, Some(request.id.clone()));
            // In a task of its own, so that no answer is lost when `receive` is cancelled.
            tokio::spawn(self.inner.send(answer));
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}

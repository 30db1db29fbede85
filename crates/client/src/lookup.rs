//! Finding the broker that is in charge: of a group, a transactional id, or the cluster itself.

use std::time::Duration;

use tarn_wire::messages::{FindCoordinatorRequest, FindCoordinatorResponse};
use tarn_wire::{ErrorCode, Request, Str};

use crate::backoff::Backoff;
use crate::cluster::{BrokerNode, Cluster, MetadataTopics};
use crate::handle::Handle;
use crate::{ClientError, HostPort, Peer, Result};

/// How often a request is sent again because the broker was not the one in charge.
const MOVES_MAX: u32 = 5;

/// What a coordinator coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoordinatorKind {
    /// Consumer groups.
    Group,
    /// Transactional ids.
    Transaction,
}

impl Cluster {
    /// A shared connection to the coordinator of this group or transactional id.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with the code the cluster gave (15 = not available yet), or any
    /// other [`ClientError`].
    pub async fn coordinator(&self, kind: CoordinatorKind, key: &str) -> Result<Handle> {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        loop {
            let error = match self.find_coordinator(kind, key).await {
                Ok(handle) => return Ok(handle),
                Err(e) => e,
            };
            let passing = matches!(
                error.code(),
                Some(
                    ErrorCode::COORDINATOR_NOT_AVAILABLE | ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
                )
            );
            // The first question makes a cluster create its internal topic, which takes a moment.
            if !passing || backoff.failures() >= MOVES_MAX {
                return Err(error);
            }
            tokio::time::sleep(backoff.next_wait()).await;
        }
    }

    async fn find_coordinator(&self, kind: CoordinatorKind, key: &str) -> Result<Handle> {
        let any = self.any().await?;
        let code = match kind {
            CoordinatorKind::Group => 0,
            CoordinatorKind::Transaction => 1,
        };
        let known = <FindCoordinatorRequest as tarn_wire::Message>::VERSIONS;
        let version = any
            .versions()
            .require::<FindCoordinatorRequest>(any.peer(), known)?;
        let mut request = FindCoordinatorRequest {
            key_type: code,
            ..Default::default()
        };
        if version >= 4 {
            request.coordinator_keys = vec![Str::from(key)];
        } else {
            request.key = Str::from(key);
        }
        let response = any.call(&request).await?;
        let node = found(any.peer(), &response, version)?;
        let id = node.id;
        self.learn_node(node);
        self.broker(id).await
    }

    /// A shared connection to the controller, or to a broker that passes requests on to it.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn controller(&self) -> Result<Handle> {
        self.metadata(&MetadataTopics::None).await?;
        match self.view().controller {
            Some(id) => self.broker(id).await,
            None => self.any().await,
        }
    }

    /// Sends an administrative request to the controller, again when that has moved. `code_of`
    /// finds the error code that would say so.
    ///
    /// # Errors
    /// Any [`ClientError`]; errors inside the answer are the caller's.
    pub async fn call_controller<R: Request>(
        &self,
        request: &R,
        code_of: impl Fn(&R::Response) -> i16,
    ) -> Result<R::Response> {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        loop {
            let response = self.controller().await?.call(request).await?;
            if code_of(&response) != ErrorCode::NOT_CONTROLLER.0 || backoff.failures() >= MOVES_MAX
            {
                return Ok(response);
            }
            tokio::time::sleep(backoff.next_wait()).await;
        }
    }
}

fn found(peer: &Peer, response: &FindCoordinatorResponse, version: i16) -> Result<BrokerNode> {
    let (code, message, id, host, port) = if version >= 4 {
        let Some(c) = response.coordinators.first() else {
            return Err(ClientError::refused(
                peer,
                "FindCoordinator",
                ErrorCode::COORDINATOR_NOT_AVAILABLE.0,
                None,
            ));
        };
        (
            c.error_code,
            c.error_message.as_deref(),
            c.node_id,
            &c.host,
            c.port,
        )
    } else {
        (
            response.error_code,
            response.error_message.as_deref(),
            response.node_id,
            &response.host,
            response.port,
        )
    };
    if code != ErrorCode::NONE.0 {
        return Err(ClientError::refused(peer, "FindCoordinator", code, message));
    }
    let port = u16::try_from(port).ok().filter(|&p| p > 0);
    let port = port.ok_or_else(|| ClientError::BadAddress(format!("{}:{port:?}", &**host)))?;
    Ok(BrokerNode {
        id,
        address: HostPort {
            host: host.detach(),
            port,
        },
        rack: None,
    })
}

//! DescribeCluster (60): brokers, or controllers, with their addresses.

use std::sync::Arc;

use tarn_wire::messages::describe_cluster_response::DescribeClusterBroker;
use tarn_wire::messages::{DescribeClusterRequest, DescribeClusterResponse};
use tarn_wire::{ErrorCode, Str};

use super::authorized;
use crate::dispatch::Call;
use crate::node::Node;

/// `endpoint_type` of brokers.
const BROKERS: i8 = 1;
/// `endpoint_type` of controllers.
const CONTROLLERS: i8 = 2;

pub(crate) async fn handle(
    node: &Arc<Node>,
    call: &Call,
    request: DescribeClusterRequest,
) -> DescribeClusterResponse {
    let here = if call.connection.controller {
        CONTROLLERS
    } else {
        BROKERS
    };
    if request.endpoint_type != here {
        let error = if matches!(request.endpoint_type, BROKERS | CONTROLLERS) {
            ErrorCode::MISMATCHED_ENDPOINT_TYPE
        } else {
            ErrorCode::UNSUPPORTED_ENDPOINT_TYPE
        };
        let text = "this listener serves the other kind of node; connect to one that fits --bootstrap-server or --bootstrap-controller";
        return DescribeClusterResponse {
            error_code: error.0,
            error_message: Some(Str::from_static(text)),
            ..DescribeClusterResponse::default()
        };
    }
    let image = node.image();
    let brokers = if here == CONTROLLERS {
        let own = node
            .config
            .controller_listeners
            .first()
            .map(|l| (Str::from(l.host.as_str()), i32::from(l.port)));
        own.into_iter()
            .map(|(host, port)| DescribeClusterBroker {
                broker_id: node.id(),
                host,
                port,
                rack: None,
                ..DescribeClusterBroker::default()
            })
            .collect()
    } else {
        image
            .brokers()
            .values()
            .filter(|broker| broker.is_active() || request.include_fenced_brokers)
            .filter_map(|broker| {
                let (host, port) = node.endpoint(&image, broker.id, &call.connection.listener)?;
                Some(DescribeClusterBroker {
                    broker_id: broker.id,
                    host,
                    port,
                    rack: broker.rack.clone(),
                    is_fenced: !broker.is_active(),
                    ..DescribeClusterBroker::default()
                })
            })
            .collect()
    };
    DescribeClusterResponse {
        error_message: None,
        endpoint_type: here,
        cluster_id: node.cluster_id.clone(),
        controller_id: node.id(),
        brokers,
        cluster_authorized_operations: authorized::cluster(
            request.include_cluster_authorized_operations,
        ),
        ..DescribeClusterResponse::default()
    }
}

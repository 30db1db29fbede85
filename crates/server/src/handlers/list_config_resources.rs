//! ListConfigResources (74): which resources have configurations (KIP-1142); version 0 knows client
//! metrics only.

use std::collections::BTreeSet;
use std::sync::Arc;

use tarn_metadata::ResourceType;
use tarn_wire::messages::list_config_resources_response::ConfigResource;
use tarn_wire::messages::{ListConfigResourcesRequest, ListConfigResourcesResponse};
use tarn_wire::{ErrorCode, Str};

use crate::dispatch::Call;
use crate::node::Node;

/// Kinds that can be listed.
const KINDS: [ResourceType; 6] = [
    ResourceType::TOPIC,
    ResourceType::BROKER,
    ResourceType::BROKER_LOGGER,
    ResourceType::CLIENT_METRICS,
    ResourceType::GROUP,
    ResourceType::MIRROR,
];

pub(crate) async fn handle(
    node: &Arc<Node>,
    call: &Call,
    request: ListConfigResourcesRequest,
) -> ListConfigResourcesResponse {
    let asked: Vec<ResourceType> = if call.version == 0 {
        vec![ResourceType::CLIENT_METRICS]
    } else if request.resource_types.is_empty() {
        // The foreign kind is listed for who asks for it: a stock client does not know number 64.
        KINDS
            .into_iter()
            .filter(|kind| *kind != ResourceType::MIRROR)
            .collect()
    } else {
        request
            .resource_types
            .iter()
            .map(|kind| ResourceType(*kind))
            .collect()
    };
    if asked.iter().any(|kind| !KINDS.contains(kind)) {
        return ListConfigResourcesResponse {
            error_code: ErrorCode::UNSUPPORTED_VERSION.0,
            ..ListConfigResourcesResponse::default()
        };
    }
    let image = node.image();
    let mut config_resources = Vec::new();
    for kind in asked {
        let names: BTreeSet<Str> = match kind {
            ResourceType::TOPIC => image
                .topics()
                .iter()
                .map(|topic| topic.name.clone())
                .collect(),
            ResourceType::BROKER | ResourceType::BROKER_LOGGER => image
                .brokers()
                .keys()
                .map(|id| Str::from(id.to_string()))
                .collect(),
            kind => image
                .configured(kind)
                .map(|(name, _)| name.clone())
                .collect(),
        };
        config_resources.extend(names.into_iter().map(|resource_name| ConfigResource {
            resource_name,
            resource_type: kind.0,
            ..ConfigResource::default()
        }));
    }
    ListConfigResourcesResponse {
        config_resources,
        ..ListConfigResourcesResponse::default()
    }
}

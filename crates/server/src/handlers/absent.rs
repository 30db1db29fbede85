//! APIs whose subject this broker does not have: ACLs, transactions, quotas, SCRAM credentials,
//! reassignments, the consumer group protocol of KIP-848. Each answers what a Kafka answers that
//! has none of them, so that tools and clients need no special case.

use std::collections::BTreeMap;
use std::sync::Arc;

use tarn_wire::messages::create_acls_response::AclCreationResult;
use tarn_wire::messages::delete_acls_response::DeleteAclsFilterResult;
use tarn_wire::messages::describe_client_quotas_request::ComponentData;
use tarn_wire::messages::describe_user_scram_credentials_response::DescribeUserScramCredentialsResult;
use tarn_wire::messages::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, CreateAclsRequest,
    CreateAclsResponse, DeleteAclsRequest, DeleteAclsResponse, DescribeAclsRequest,
    DescribeAclsResponse, DescribeClientQuotasRequest, DescribeClientQuotasResponse,
    DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse,
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, ListTransactionsRequest,
    ListTransactionsResponse,
};
use tarn_wire::{ErrorCode, Str};

use crate::dispatch::Call;
use crate::node::Node;

/// Text that goes with [`ErrorCode::SECURITY_DISABLED`].
const NO_AUTHORIZER: Str = Str::from_static("No Authorizer is configured.");

/// States of a transaction that ListTransactions may be asked for.
const TRANSACTION_STATES: [&str; 8] = [
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
];

/// Longest pattern of transactional ids that is read, in bytes.
const PATTERN_BYTES_MAX: usize = 4 * 1024;

/// What a quota can be for.
const QUOTA_ENTITIES: [&str; 3] = ["user", "client-id", "ip"];
/// Match types of quota components.
const MATCH_EXACT: i8 = 0;
const MATCH_DEFAULT: i8 = 1;
const MATCH_ANY: i8 = 2;

/// DescribeAcls (29).
pub(crate) async fn describe_acls(
    _node: &Arc<Node>,
    _call: &Call,
    _request: DescribeAclsRequest,
) -> DescribeAclsResponse {
    DescribeAclsResponse {
        error_code: ErrorCode::SECURITY_DISABLED.0,
        error_message: Some(NO_AUTHORIZER),
        ..DescribeAclsResponse::default()
    }
}

/// CreateAcls (30).
pub(crate) async fn create_acls(
    _node: &Arc<Node>,
    _call: &Call,
    request: CreateAclsRequest,
) -> CreateAclsResponse {
    let refused = || AclCreationResult {
        error_code: ErrorCode::SECURITY_DISABLED.0,
        error_message: Some(NO_AUTHORIZER),
        ..AclCreationResult::default()
    };
    CreateAclsResponse {
        results: request.creations.iter().map(|_| refused()).collect(),
        ..CreateAclsResponse::default()
    }
}

/// DeleteAcls (31).
pub(crate) async fn delete_acls(
    _node: &Arc<Node>,
    _call: &Call,
    request: DeleteAclsRequest,
) -> DeleteAclsResponse {
    let refused = || DeleteAclsFilterResult {
        error_code: ErrorCode::SECURITY_DISABLED.0,
        error_message: Some(NO_AUTHORIZER),
        ..DeleteAclsFilterResult::default()
    };
    DeleteAclsResponse {
        filter_results: request.filters.iter().map(|_| refused()).collect(),
        ..DeleteAclsResponse::default()
    }
}

/// Whether a pattern of transactional ids can be read. It is not compiled, because there is nothing
/// that it could match: what a pattern of 4 KiB can ask for takes half a second.
fn is_readable(pattern: &str) -> bool {
    pattern.len() <= PATTERN_BYTES_MAX
        && regex_syntax::ast::parse::Parser::new()
            .parse(pattern)
            .is_ok()
}

/// ListTransactions (66): none.
pub(crate) async fn list_transactions(
    _node: &Arc<Node>,
    _call: &Call,
    request: ListTransactionsRequest,
) -> ListTransactionsResponse {
    let pattern = request.transactional_id_pattern.unwrap_or_default();
    if !is_readable(&pattern) {
        return ListTransactionsResponse {
            error_code: ErrorCode::INVALID_REGULAR_EXPRESSION.0,
            ..ListTransactionsResponse::default()
        };
    }
    let unknown = |state: &Str| !TRANSACTION_STATES.contains(&state.as_str());
    ListTransactionsResponse {
        unknown_state_filters: request.state_filters.into_iter().filter(unknown).collect(),
        ..ListTransactionsResponse::default()
    }
}

/// DescribeClientQuotas (48): none.
pub(crate) async fn describe_client_quotas(
    _node: &Arc<Node>,
    _call: &Call,
    request: DescribeClientQuotasRequest,
) -> DescribeClientQuotasResponse {
    match check_components(&request.components) {
        Ok(()) => DescribeClientQuotasResponse {
            entries: Some(Vec::new()),
            ..DescribeClientQuotasResponse::default()
        },
        Err((code, text)) => DescribeClientQuotasResponse {
            error_code: code.0,
            error_message: Some(Str::from(text)),
            entries: None,
            ..DescribeClientQuotasResponse::default()
        },
    }
}

/// What Kafka refuses in a filter.
fn check_components(components: &[ComponentData]) -> Result<(), (ErrorCode, String)> {
    let invalid = |text: String| Err((ErrorCode::INVALID_REQUEST, text));
    let mut seen = BTreeMap::new();
    for component in components {
        let entity = component.entity_type.as_str();
        if entity.is_empty() {
            return invalid("an entity type must not be empty".to_owned());
        }
        if !QUOTA_ENTITIES.contains(&entity) {
            let text = format!("entity type {entity} is not known");
            return Err((ErrorCode::UNSUPPORTED_VERSION, text));
        }
        match (component.match_type, &component.match_) {
            (MATCH_EXACT, None) => {
                return invalid(format!("an exact match of {entity} needs a value"));
            }
            (MATCH_DEFAULT | MATCH_ANY, Some(_)) => {
                return invalid(format!("only an exact match of {entity} has a value"));
            }
            (MATCH_EXACT | MATCH_DEFAULT | MATCH_ANY, _) => {}
            (other, _) => return invalid(format!("match type {other} is not known")),
        }
        if seen.insert(entity, ()).is_some() {
            return invalid(format!("entity type {entity} stands twice in the filter"));
        }
    }
    if seen.contains_key("ip") && seen.len() > 1 {
        return invalid("ip cannot be combined with user or client-id".to_owned());
    }
    Ok(())
}

/// DescribeUserScramCredentials (50): none.
pub(crate) async fn describe_user_scram_credentials(
    _node: &Arc<Node>,
    _call: &Call,
    request: DescribeUserScramCredentialsRequest,
) -> DescribeUserScramCredentialsResponse {
    let mut asked: BTreeMap<Str, usize> = BTreeMap::new();
    for user in request.users.unwrap_or_default() {
        *asked.entry(user.name).or_default() += 1;
    }
    let missing = |(user, times): (Str, usize)| {
        let (code, text) = if times > 1 {
            (
                ErrorCode::DUPLICATE_RESOURCE,
                format!("user {user} stands twice in the request"),
            )
        } else {
            (
                ErrorCode::RESOURCE_NOT_FOUND,
                format!("user {user} has no SCRAM credentials"),
            )
        };
        DescribeUserScramCredentialsResult {
            user,
            error_code: code.0,
            error_message: Some(Str::from(text)),
            ..DescribeUserScramCredentialsResult::default()
        }
    };
    DescribeUserScramCredentialsResponse {
        error_message: None,
        results: asked.into_iter().map(missing).collect(),
        ..DescribeUserScramCredentialsResponse::default()
    }
}

/// ListPartitionReassignments (46): none is under way.
pub(crate) async fn list_partition_reassignments(
    _node: &Arc<Node>,
    _call: &Call,
    _request: ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse {
    ListPartitionReassignmentsResponse {
        error_message: None,
        ..ListPartitionReassignmentsResponse::default()
    }
}

/// ConsumerGroupHeartbeat (68): served so that a client with `group.protocol=consumer` hears at
/// once that it must use `classic`; without the API librdkafka waits for ever, without a word.
pub(crate) async fn consumer_group_heartbeat(
    _node: &Arc<Node>,
    _call: &Call,
    _request: ConsumerGroupHeartbeatRequest,
) -> ConsumerGroupHeartbeatResponse {
    ConsumerGroupHeartbeatResponse {
        error_code: ErrorCode::UNSUPPORTED_VERSION.0,
        error_message: Some(Str::from_static(
            "this broker has no consumer group protocol, set group.protocol=classic",
        )),
        ..ConsumerGroupHeartbeatResponse::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F-6: a pattern is read on an async worker, so it must cost nothing to speak of.
    #[test]
    fn a_pattern_of_transactional_ids_is_read_and_not_compiled() {
        let started = std::time::Instant::now();
        assert!(is_readable("orders-.*") && is_readable(""));
        assert!(!is_readable("a(") && !is_readable("[z-a]"));
        assert!(is_readable(&format!("(?i){}", "\\pL".repeat(1_300))));
        assert!(!is_readable(&"\\pL".repeat(2_000)));
        assert!(
            started.elapsed().as_millis() < 100,
            "{:?}",
            started.elapsed()
        );
    }
}

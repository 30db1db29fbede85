//! Brokers come, live and go.

use tarn_metadata::{BrokerImage, Image, Record};
use tarn_wire::ErrorCode;
use tarn_wire::messages::{
    BrokerHeartbeatRequest, BrokerRegistrationChangeRecord, BrokerRegistrationRequest,
    RegisterBrokerRecord, UnregisterBrokerRecord,
    register_broker_record::{BrokerEndpoint, BrokerFeature},
};

use super::{Ctx, fence_broker, unfence_broker};
use crate::ApiError;

/// Value of a change record's fenced field that unfences.
const UNFENCE: i8 = -1;
/// Value of a change record's fenced field that fences.
const FENCE: i8 = 1;

/// A planned registration.
#[derive(Clone, Debug, PartialEq)]
pub struct Registration {
    /// Its records.
    pub records: Vec<Record>,
    /// The broker's epoch.
    pub broker_epoch: i64,
}

/// Registers a broker, fenced. A new incarnation of a known broker first loses what it led, so that
/// nothing of its past counts: the partitions get new leader epochs when it is unfenced.
pub fn plan_registration(
    image: &Image,
    ctx: &Ctx,
    cluster_id: &str,
    request: &BrokerRegistrationRequest,
) -> Result<Registration, ApiError> {
    if request.cluster_id != *cluster_id {
        let message = format!(
            "broker {} belongs to cluster {}, this is cluster {cluster_id}",
            request.broker_id, request.cluster_id
        );
        return Err(ApiError::new(ErrorCode::INCONSISTENT_CLUSTER_ID, message));
    }
    if request.broker_id < 0 {
        return Err(ApiError::new(
            ErrorCode::INVALID_REQUEST,
            format!("broker id {} is negative", request.broker_id),
        ));
    }
    let mut lost = Vec::new();
    let mut broker_epoch = ctx.next_offset;
    let mut fenced = true;
    match image.broker(request.broker_id) {
        Some(known) if known.incarnation == request.incarnation_id => {
            broker_epoch = known.epoch;
            fenced = known.fenced;
        }
        Some(_) => lost = fence_broker(image, request.broker_id),
        None => {}
    }
    let mut records = vec![Record::from(registration_record(
        request,
        broker_epoch,
        fenced,
    ))];
    records.extend(lost);
    Ok(Registration {
        records,
        broker_epoch,
    })
}

/// A planned heartbeat.
#[derive(Clone, Debug, PartialEq)]
pub struct Heartbeat {
    /// Its records.
    pub records: Vec<Record>,
    /// Whether the broker has replayed its own registration.
    pub caught_up: bool,
    /// Whether it is fenced afterwards.
    pub fenced: bool,
    /// Whether it may go.
    pub should_shut_down: bool,
}

/// A heartbeat: unfences a broker that has caught up, fences one that asks for it, and lets one
/// that wants to go hand over its leaderships.
pub fn plan_heartbeat(
    image: &Image,
    request: &BrokerHeartbeatRequest,
) -> Result<Heartbeat, ApiError> {
    let broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)?;
    let caught_up = request.current_metadata_offset >= broker.epoch;
    let mut outcome = Heartbeat {
        records: Vec::new(),
        caught_up,
        fenced: broker.fenced,
        should_shut_down: false,
    };
    if request.want_shut_down || request.want_fence {
        outcome.should_shut_down = request.want_shut_down;
        outcome.fenced = true;
        if !broker.fenced {
            outcome.records.push(broker_change(broker, FENCE).into());
            outcome.records.extend(fence_broker(image, broker.id));
        }
    } else if broker.fenced && caught_up {
        outcome.fenced = false;
        outcome.records.push(broker_change(broker, UNFENCE).into());
        outcome.records.extend(unfence_broker(image, broker.id));
    }
    Ok(outcome)
}

/// Takes a broker out for good.
pub fn plan_unregistration(image: &Image, broker: i32) -> Result<Vec<Record>, ApiError> {
    let Some(known) = image.broker(broker) else {
        return Err(ApiError::new(
            ErrorCode::BROKER_ID_NOT_REGISTERED,
            format!("broker {broker} is not registered"),
        ));
    };
    let mut records = fence_broker(image, broker);
    records.push(
        UnregisterBrokerRecord {
            broker_id: broker,
            broker_epoch: known.epoch,
            ..UnregisterBrokerRecord::default()
        }
        .into(),
    );
    Ok(records)
}

/// The broker, if it is registered with this epoch; 77 otherwise.
pub(super) fn check_broker_epoch(
    image: &Image,
    broker: i32,
    epoch: i64,
) -> Result<&BrokerImage, ApiError> {
    let Some(known) = image.broker(broker) else {
        return Err(ApiError::new(
            ErrorCode::BROKER_ID_NOT_REGISTERED,
            format!("broker {broker} is not registered"),
        ));
    };
    if known.epoch != epoch {
        let message = format!(
            "broker {broker} has epoch {}, the request came from epoch {epoch}",
            known.epoch
        );
        return Err(ApiError::new(ErrorCode::STALE_BROKER_EPOCH, message));
    }
    Ok(known)
}

fn broker_change(broker: &BrokerImage, fenced: i8) -> BrokerRegistrationChangeRecord {
    BrokerRegistrationChangeRecord {
        broker_id: broker.id,
        broker_epoch: broker.epoch,
        fenced,
        cordoned_log_dirs: None,
        ..BrokerRegistrationChangeRecord::default()
    }
}

fn registration_record(
    request: &BrokerRegistrationRequest,
    broker_epoch: i64,
    fenced: bool,
) -> RegisterBrokerRecord {
    let endpoint =
        |l: &tarn_wire::messages::broker_registration_request::Listener| BrokerEndpoint {
            name: l.name.clone(),
            host: l.host.clone(),
            port: l.port,
            security_protocol: l.security_protocol,
            ..BrokerEndpoint::default()
        };
    let feature = |f: &tarn_wire::messages::broker_registration_request::Feature| BrokerFeature {
        name: f.name.clone(),
        min_supported_version: f.min_supported_version,
        max_supported_version: f.max_supported_version,
        ..BrokerFeature::default()
    };
    RegisterBrokerRecord {
        broker_id: request.broker_id,
        incarnation_id: request.incarnation_id,
        broker_epoch,
        end_points: request.listeners.iter().map(endpoint).collect(),
        features: request.features.iter().map(feature).collect(),
        rack: request.rack.clone().filter(|rack| !rack.is_empty()),
        fenced,
        log_dirs: request.log_dirs.clone(),
        cordoned_log_dirs: None,
        ..RegisterBrokerRecord::default()
    }
}

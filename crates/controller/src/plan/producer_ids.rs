//! Handing out blocks of producer ids.

use tarn_metadata::{Image, Record};
use tarn_wire::ErrorCode;
use tarn_wire::messages::ProducerIdsRecord;

use super::brokers::check_broker_epoch;
use crate::ApiError;

/// Producer ids in one block.
pub const PRODUCER_ID_BLOCK: i32 = 1_000;

/// The record that gives the next block to a broker, and the block's first id.
pub fn plan_producer_ids(
    image: &Image,
    broker: i32,
    broker_epoch: i64,
) -> Result<(Record, i64), ApiError> {
    check_broker_epoch(image, broker, broker_epoch)?;
    let first = image.producer_ids().next;
    let Some(next) = first.checked_add(i64::from(PRODUCER_ID_BLOCK)) else {
        return Err(ApiError::new(
            ErrorCode::UNKNOWN_SERVER_ERROR,
            "all producer ids of this cluster are used up",
        ));
    };
    let record = ProducerIdsRecord {
        broker_id: broker,
        broker_epoch,
        next_producer_id: next,
        ..ProducerIdsRecord::default()
    };
    Ok((record.into(), first))
}

//! Membership records: building and changing them in one place.

use tarn_metadata::{DesiredState, Image, Membership, Record};
use tarn_wire::messages::MirrorMembershipRecord;
use tarn_wire::{Str, Uuid};

use crate::dialect::MirrorError;

/// `change_offset` of a record that changes the desired state: "the offset this record gets".
const OWN_OFFSET: i64 = -1;

/// A new or changed wish: always a new change offset, so that leaders see an operator's repeated
/// request too.
pub(super) fn wish(
    topic: &Str,
    topic_id: Uuid,
    mirror: &Str,
    desired: DesiredState,
    source_topic_id: Uuid,
) -> Record {
    Record::MirrorMembership(MirrorMembershipRecord {
        topic_id,
        topic_name: topic.clone(),
        mirror_name: Some(mirror.clone()),
        desired_state: desired.code(),
        source_topic_id,
        stopped: false,
        change_offset: OWN_OFFSET,
        ..Default::default()
    })
}

/// The same membership with the "all partitions are STOPPED" mark; not a new wish.
pub(super) fn stopped(member: &Membership) -> Record {
    Record::MirrorMembership(MirrorMembershipRecord {
        stopped: true,
        ..unchanged(member)
    })
}

/// The same membership with the source's topic id; not a new wish.
pub(super) fn with_source_id(member: &Membership, source_topic_id: Uuid) -> Record {
    Record::MirrorMembership(MirrorMembershipRecord {
        source_topic_id,
        ..unchanged(member)
    })
}

/// Ends a membership.
pub(super) fn cleared(member: &Membership) -> Record {
    Record::MirrorMembership(MirrorMembershipRecord {
        mirror_name: None,
        ..unchanged(member)
    })
}

fn unchanged(member: &Membership) -> MirrorMembershipRecord {
    MirrorMembershipRecord {
        topic_id: member.topic_id,
        topic_name: member.topic.clone(),
        mirror_name: Some(member.mirror.clone()),
        desired_state: member.desired.code(),
        source_topic_id: member.source_topic_id,
        stopped: member.stopped,
        change_offset: member.change_offset,
        ..Default::default()
    }
}

/// Whether a mirror of this name exists.
pub(super) fn mirror_exists(image: &Image, mirror: &str) -> bool {
    image
        .mirror(mirror)
        .is_some_and(|configs| !configs.is_empty())
}

/// A caller that has looked at the states up to a metadata offset (StateValidationOffset) acts on
/// nothing that was wished after it.
pub(super) fn check_unchanged(
    member: &Membership,
    checked_at: Option<i64>,
) -> Result<(), MirrorError> {
    match checked_at {
        Some(offset) if member.change_offset > offset => Err(MirrorError::InvalidStates(format!(
            "what is wished of topic '{}' changed at metadata offset {}, after the states were checked at {offset}; \
             look at it again",
            member.topic, member.change_offset
        ))),
        _ => Ok(()),
    }
}

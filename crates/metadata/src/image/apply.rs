//! How each record changes the image.
//!
//! Invariant: a record that does not fit is an error and the caller throws the half-changed image
//! away ([`Image::apply`] does that itself).

use std::sync::Arc;

use tarn_wire::messages::{
    BrokerRegistrationChangeRecord, ClientQuotaRecord, ConfigRecord, FeatureLevelRecord,
    MirrorMembershipRecord, PartitionChangeRecord, PartitionEpochRecord, PartitionRecord,
    ProducerIdsRecord, RegisterBrokerRecord, RemoveTopicRecord, TopicRecord,
};
use tarn_wire::{Message, Str, Uuid};

use super::{
    BrokerEndpoint, BrokerFeature, BrokerImage, ConfigResource, DesiredState, Image, Membership,
    PartitionImage, ProducerIds, ResourceType, TopicImage,
};
use crate::{Change, Delta, MetadataError, Record};

/// "Unchanged" in [`PartitionChangeRecord`]'s leader field.
const LEADER_UNCHANGED: i32 = -2;
/// "Unchanged" in its leader recovery state.
const RECOVERY_UNCHANGED: i8 = -1;

impl Image {
    /// The image after these records, the last of which stands at `offset` of the metadata log and
    /// was written in quorum epoch `epoch`. All or nothing: on an error there is no new image. The
    /// records stand at consecutive offsets. A membership record with change offset −1 gets its own
    /// offset.
    pub fn apply(
        &self,
        records: &[Record],
        offset: i64,
        epoch: i32,
    ) -> Result<(Image, Delta), MetadataError> {
        let mut image = self.clone();
        let mut delta = Delta::default();
        image.apply_in_place(records, offset, epoch, &mut delta)?;
        Ok((image, delta))
    }

    /// As [`Image::apply`], into this image and delta; after an error both hold part of the records
    /// and must be thrown away. Cheaper when many applications follow each other: what this image
    /// alone holds is changed in place.
    pub fn apply_in_place(
        &mut self,
        records: &[Record],
        offset: i64,
        epoch: i32,
        delta: &mut Delta,
    ) -> Result<(), MetadataError> {
        self.epoch = epoch;
        let first = offset + 1 - records.len() as i64;
        for (index, record) in records.iter().enumerate() {
            self.offset = first + index as i64;
            self.apply_one(record, delta)?;
        }
        self.offset = offset;
        Ok(())
    }

    fn apply_one(&mut self, record: &Record, delta: &mut Delta) -> Result<(), MetadataError> {
        match record {
            Record::Topic(record) => self.create_topic(record, delta),
            Record::Partition(record) => self.set_partition(record, delta),
            Record::PartitionChange(record) => self.change_partition(record, delta),
            Record::PartitionEpoch(record) => self.jump_epoch(record, delta),
            Record::RemoveTopic(record) => self.remove_topic(record, delta),
            Record::Config(record) => self.set_config(record, delta),
            Record::MirrorMembership(record) => self.set_membership(record, delta),
            Record::FeatureLevel(record) => self.set_feature(record, delta),
            Record::ProducerIds(record) => self.set_producer_ids(record, delta),
            Record::RegisterBroker(record) => self.register_broker(record, delta),
            Record::BrokerRegistrationChange(record) => self.change_broker(record, delta),
            Record::FenceBroker(record) => self.edit_broker(
                "FenceBrokerRecord",
                record.id,
                record.epoch,
                delta,
                |broker| broker.fenced = true,
            ),
            Record::UnfenceBroker(record) => self.edit_broker(
                "UnfenceBrokerRecord",
                record.id,
                record.epoch,
                delta,
                |broker| broker.fenced = false,
            ),
            Record::UnregisterBroker(record) => {
                self.unregister_broker(record.broker_id, record.broker_epoch, delta)
            }
            Record::RegisterController(record) => {
                Arc::make_mut(&mut self.controllers).insert(record.controller_id, record.clone());
                Ok(())
            }
            Record::ClientQuota(record) => self.set_quota(record, delta),
            Record::AccessControlEntry(record) => {
                Arc::make_mut(&mut self.acls).insert(record.id, record.clone());
                delta.acls = true;
                Ok(())
            }
            Record::RemoveAccessControlEntry(record) => {
                Arc::make_mut(&mut self.acls).remove(&record.id);
                delta.acls = true;
                Ok(())
            }
            Record::ClearElr(record) => self.clear_elr(&record.topic_name, delta),
            // The brackets of a transaction are the replay's business; what stands between them
            // arrives here complete.
            Record::NoOp(_)
            | Record::BeginTransaction(_)
            | Record::EndTransaction(_)
            | Record::AbortTransaction(_) => Ok(()),
        }
    }

    fn create_topic(
        &mut self,
        record: &TopicRecord,
        delta: &mut Delta,
    ) -> Result<(), MetadataError> {
        let refuse = |reason: String| MetadataError::Contradiction {
            record: TopicRecord::NAME,
            reason,
        };
        if record.topic_id.is_zero() {
            return Err(refuse(format!("topic {} has no id", record.name)));
        }
        if self.topics.by_name(&record.name).is_some() {
            return Err(refuse(format!("topic {} exists", record.name)));
        }
        if let Some(other) = self.topics.by_id(&record.topic_id) {
            return Err(refuse(format!(
                "id {} belongs to topic {}",
                record.topic_id, other.name
            )));
        }
        let name = record.name.detach();
        delta.topic(record.topic_id, &name, Change::Created);
        Arc::make_mut(&mut self.topics).insert(TopicImage {
            name,
            id: record.topic_id,
            partitions: Vec::new(),
        });
        Ok(())
    }

    fn set_partition(
        &mut self,
        record: &PartitionRecord,
        delta: &mut Delta,
    ) -> Result<(), MetadataError> {
        let topic = self.topic_mut(PartitionRecord::NAME, &record.topic_id)?;
        let partition = PartitionImage {
            replicas: record.replicas.clone(),
            directories: record.directories.clone(),
            isr: record.isr.clone(),
            removing: record.removing_replicas.clone(),
            adding: record.adding_replicas.clone(),
            leader: record.leader,
            leader_epoch: record.leader_epoch,
            partition_epoch: record.partition_epoch,
            leader_recovery_state: record.leader_recovery_state,
            eligible_leader_replicas: record.eligible_leader_replicas.clone().unwrap_or_default(),
            last_known_elr: record.last_known_elr.clone().unwrap_or_default(),
        };
        let index = usize::try_from(record.partition_id).unwrap_or(usize::MAX);
        match index.cmp(&topic.partitions.len()) {
            std::cmp::Ordering::Less => topic.partitions[index] = Arc::new(partition),
            std::cmp::Ordering::Equal => topic.partitions.push(Arc::new(partition)),
            std::cmp::Ordering::Greater => {
                let reason = format!(
                    "partition {} of topic {} comes after {} partitions",
                    record.partition_id,
                    topic.name,
                    topic.partitions.len()
                );
                return Err(MetadataError::Contradiction {
                    record: PartitionRecord::NAME,
                    reason,
                });
            }
        }
        delta
            .topic(record.topic_id, &topic.name, Change::Changed)
            .partitions
            .insert(record.partition_id);
        Ok(())
    }

    fn change_partition(
        &mut self,
        record: &PartitionChangeRecord,
        delta: &mut Delta,
    ) -> Result<(), MetadataError> {
        let partition = self.partition_mut(
            PartitionChangeRecord::NAME,
            &record.topic_id,
            record.partition_id,
            delta,
        )?;
        if let Some(isr) = &record.isr {
            partition.isr.clone_from(isr);
        }
        if let Some(replicas) = &record.replicas {
            partition.replicas.clone_from(replicas);
        }
        if let Some(removing) = &record.removing_replicas {
            partition.removing.clone_from(removing);
        }
        if let Some(adding) = &record.adding_replicas {
            partition.adding.clone_from(adding);
        }
        if let Some(directories) = &record.directories {
            partition.directories.clone_from(directories);
        }
        if let Some(eligible) = &record.eligible_leader_replicas {
            partition.eligible_leader_replicas.clone_from(eligible);
        }
        if let Some(last_known) = &record.last_known_elr {
            partition.last_known_elr.clone_from(last_known);
        }
        if record.leader_recovery_state != RECOVERY_UNCHANGED {
            partition.leader_recovery_state = record.leader_recovery_state;
        }
        // Naming a leader, even the present one, is what raises the leader epoch.
        if record.leader != LEADER_UNCHANGED {
            partition.leader = record.leader;
            partition.leader_epoch += 1;
        }
        partition.partition_epoch += 1;
        Ok(())
    }

    fn jump_epoch(
        &mut self,
        record: &PartitionEpochRecord,
        delta: &mut Delta,
    ) -> Result<(), MetadataError> {
        let partition = self.partition_mut(
            PartitionEpochRecord::NAME,
            &record.topic_id,
            record.partition_id,
            delta,
        )?;
        if record.leader_epoch <= partition.leader_epoch
            || record.partition_epoch <= partition.partition_epoch
        {
            let reason = format!(
                "leader epoch {} and partition epoch {} do not rise",
                record.leader_epoch, record.partition_epoch
            );
            return Err(MetadataError::Contradiction {
                record: PartitionEpochRecord::NAME,
                reason,
            });
        }
        partition.leader_epoch = record.leader_epoch;
        partition.partition_epoch = record.partition_epoch;
        Ok(())
    }

    fn remove_topic(
        &mut self,
        record: &RemoveTopicRecord,
        delta: &mut Delta,
    ) -> Result<(), MetadataError> {
        let unknown = MetadataError::UnknownTopic {
            record: RemoveTopicRecord::NAME,
            topic_id: record.topic_id,
        };
        let topic = Arc::make_mut(&mut self.topics)
            .remove(&record.topic_id)
            .ok_or(unknown)?;
        let name = topic.name.clone();
        let mut gone = Delta::default();
        let change = gone.topic(topic.id, &name, Change::Deleted);
        change.partitions = (0..topic.partition_count()).collect();
        change.before = Some(topic);
        delta.merge(gone);
        let resource = ConfigResource::topic(name.clone());
        if self.configs.contains_key(&resource) {
            Arc::make_mut(&mut self.configs).remove(&resource);
            delta.configs.insert(resource);
        }
        if self.memberships.contains_key(&name) {
            Arc::make_mut(&mut self.memberships).remove(&name);
            delta.memberships.insert(name);
        }
        Ok(())
    }

    fn set_config(
        &mut self,
        record: &ConfigRecord,
        delta: &mut Delta,
    ) -> Result<(), MetadataError> {
        let resource = ConfigResource {
            kind: ResourceType(record.resource_type),
            name: record.resource_name.detach(),
        };
        let configs = Arc::make_mut(&mut self.configs);
        match &record.value {
            Some(value) => {
                let values = configs.entry(resource.clone()).or_default();
                Arc::make_mut(values).insert(record.name.detach(), value.detach());
            }
            None => {
                if let Some(values) = configs.get_mut(&resource) {
                    Arc::make_mut(values).remove(&record.name);
                    if values.is_empty() {
                        configs.remove(&resource);
                    }
                }
            }
        }
        delta.configs.insert(resource);
        Ok(())
    }

    fn set_membership(
        &mut self,
        record: &MirrorMembershipRecord,
        delta: &mut Delta,
    ) -> Result<(), MetadataError> {
        let topic = record.topic_name.detach();
        let memberships = Arc::make_mut(&mut self.memberships);
        match &record.mirror_name {
            None => {
                memberships.remove(&topic);
            }
            Some(mirror) => {
                let desired = DesiredState::from_code(record.desired_state).ok_or_else(|| {
                    MetadataError::Contradiction {
                        record: MirrorMembershipRecord::NAME,
                        reason: format!(
                            "desired state {} of topic {topic} is not known",
                            record.desired_state
                        ),
                    }
                })?;
                let membership = Membership {
                    topic: topic.clone(),
                    topic_id: record.topic_id,
                    mirror: mirror.detach(),
                    desired,
                    source_topic_id: record.source_topic_id,
                    stopped: record.stopped,
                    // A decision cannot know where its records will stand, so −1 means "here".
                    change_offset: if record.change_offset < 0 {
                        self.offset
                    } else {
                        record.change_offset
                    },
                };
                memberships.insert(topic.clone(), Arc::new(membership));
            }
        }
        delta.memberships.insert(topic);
        Ok(())
    }

    fn set_feature(
        &mut self,
        record: &FeatureLevelRecord,
        delta: &mut Delta,
    ) -> Result<(), MetadataError> {
        let features = Arc::make_mut(&mut self.features);
        match record.feature_level {
            0 => features.remove(&record.name),
            level => features.insert(record.name.detach(), level),
        };
        delta.features = true;
        Ok(())
    }

    fn set_producer_ids(
        &mut self,
        record: &ProducerIdsRecord,
        delta: &mut Delta,
    ) -> Result<(), MetadataError> {
        if record.next_producer_id < self.producer_ids.next {
            let reason = format!(
                "the counter would go back from {} to {}",
                self.producer_ids.next, record.next_producer_id
            );
            return Err(MetadataError::Contradiction {
                record: ProducerIdsRecord::NAME,
                reason,
            });
        }
        self.producer_ids = ProducerIds {
            next: record.next_producer_id,
            broker: record.broker_id,
            broker_epoch: record.broker_epoch,
        };
        delta.producer_ids = true;
        Ok(())
    }

    fn register_broker(
        &mut self,
        record: &RegisterBrokerRecord,
        delta: &mut Delta,
    ) -> Result<(), MetadataError> {
        let endpoint =
            |e: &tarn_wire::messages::register_broker_record::BrokerEndpoint| BrokerEndpoint {
                name: e.name.detach(),
                host: e.host.detach(),
                port: e.port,
                security_protocol: e.security_protocol,
            };
        let feature =
            |f: &tarn_wire::messages::register_broker_record::BrokerFeature| BrokerFeature {
                name: f.name.detach(),
                min: f.min_supported_version,
                max: f.max_supported_version,
            };
        let broker = BrokerImage {
            id: record.broker_id,
            epoch: record.broker_epoch,
            incarnation: record.incarnation_id,
            endpoints: record.end_points.iter().map(endpoint).collect(),
            features: record.features.iter().map(feature).collect(),
            rack: record.rack.as_ref().map(Str::detach),
            fenced: record.fenced,
            in_controlled_shutdown: record.in_controlled_shutdown,
            log_dirs: record.log_dirs.clone(),
        };
        Arc::make_mut(&mut self.brokers).insert(broker.id, Arc::new(broker));
        delta.brokers.insert(record.broker_id);
        Ok(())
    }

    fn change_broker(
        &mut self,
        record: &BrokerRegistrationChangeRecord,
        delta: &mut Delta,
    ) -> Result<(), MetadataError> {
        self.edit_broker(
            BrokerRegistrationChangeRecord::NAME,
            record.broker_id,
            record.broker_epoch,
            delta,
            |broker| {
                match record.fenced {
                    1 => broker.fenced = true,
                    -1 => broker.fenced = false,
                    _ => {}
                }
                if record.in_controlled_shutdown == 1 {
                    broker.in_controlled_shutdown = true;
                }
                if !record.log_dirs.is_empty() {
                    broker.log_dirs.clone_from(&record.log_dirs);
                }
            },
        )
    }

    fn edit_broker(
        &mut self,
        record: &'static str,
        id: i32,
        epoch: i64,
        delta: &mut Delta,
        edit: impl FnOnce(&mut BrokerImage),
    ) -> Result<(), MetadataError> {
        let unknown = MetadataError::UnknownBroker {
            record,
            broker: id,
            epoch,
        };
        let broker = Arc::make_mut(&mut self.brokers)
            .get_mut(&id)
            .filter(|broker| broker.epoch == epoch)
            .ok_or(unknown)?;
        edit(Arc::make_mut(broker));
        delta.brokers.insert(id);
        Ok(())
    }

    fn unregister_broker(
        &mut self,
        id: i32,
        epoch: i64,
        delta: &mut Delta,
    ) -> Result<(), MetadataError> {
        self.edit_broker("UnregisterBrokerRecord", id, epoch, delta, |_| {})?;
        Arc::make_mut(&mut self.brokers).remove(&id);
        Ok(())
    }

    fn set_quota(
        &mut self,
        record: &ClientQuotaRecord,
        delta: &mut Delta,
    ) -> Result<(), MetadataError> {
        let mut entity: Vec<_> = record
            .entity
            .iter()
            .map(|part| {
                (
                    part.entity_type.detach(),
                    part.entity_name.as_ref().map(Str::detach),
                )
            })
            .collect();
        entity.sort();
        let quotas = Arc::make_mut(&mut self.quotas);
        if record.remove {
            quotas.remove(&(entity, record.key.detach()));
        } else {
            quotas.insert((entity, record.key.detach()), record.value);
        }
        delta.quotas = true;
        Ok(())
    }

    fn clear_elr(&mut self, topic_name: &str, delta: &mut Delta) -> Result<(), MetadataError> {
        let names: Vec<Uuid> = match topic_name {
            "" => self.topics.iter().map(|topic| topic.id).collect(),
            name => self
                .topics
                .by_name(name)
                .iter()
                .map(|topic| topic.id)
                .collect(),
        };
        for id in names {
            let topic = self.topic_mut("ClearElrRecord", &id)?;
            for (index, partition) in topic.partitions.iter_mut().enumerate() {
                if partition.eligible_leader_replicas.is_empty()
                    && partition.last_known_elr.is_empty()
                {
                    continue;
                }
                let partition = Arc::make_mut(partition);
                partition.eligible_leader_replicas.clear();
                partition.last_known_elr.clear();
                delta
                    .topic(id, &topic.name, Change::Changed)
                    .partitions
                    .insert(index as i32);
            }
        }
        Ok(())
    }

    fn topic_mut(
        &mut self,
        record: &'static str,
        id: &Uuid,
    ) -> Result<&mut TopicImage, MetadataError> {
        Arc::make_mut(&mut self.topics)
            .by_id_mut(id)
            .ok_or(MetadataError::UnknownTopic {
                record,
                topic_id: *id,
            })
    }

    fn partition_mut(
        &mut self,
        record: &'static str,
        id: &Uuid,
        partition: i32,
        delta: &mut Delta,
    ) -> Result<&mut PartitionImage, MetadataError> {
        let topic = self.topic_mut(record, id)?;
        let index = usize::try_from(partition).unwrap_or(usize::MAX);
        if index >= topic.partitions.len() {
            return Err(MetadataError::UnknownPartition {
                record,
                topic_id: *id,
                partition,
            });
        }
        delta
            .topic(*id, &topic.name, Change::Changed)
            .partitions
            .insert(partition);
        Ok(Arc::make_mut(&mut topic.partitions[index]))
    }
}

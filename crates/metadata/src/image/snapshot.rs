//! The image as records: what a snapshot holds.
//!
//! Invariant: `Image::default().apply(image.to_records())` equals `image`. Features come first,
//! because readers of a snapshot need metadata.version before anything else; what refers to topics
//! comes after them.

use tarn_wire::messages::{
    ClientQuotaRecord, ConfigRecord, FeatureLevelRecord, MirrorMembershipRecord, PartitionRecord,
    ProducerIdsRecord, RegisterBrokerRecord, TopicRecord, client_quota_record,
    register_broker_record,
};

use super::{
    BrokerImage, ConfigResource, Image, METADATA_VERSION, Membership, PartitionImage, TopicImage,
};
use crate::Record;

impl Image {
    /// Every resource that has configuration values.
    pub fn config_resources(&self) -> impl Iterator<Item = &ConfigResource> {
        self.configs.keys()
    }

    /// The image as a sequence of records.
    pub fn to_records(&self) -> Vec<Record> {
        let mut records = Vec::with_capacity(self.topics.len() * 2 + 64);
        self.feature_records(&mut records);
        records.extend(
            self.brokers
                .values()
                .map(|broker| broker_record(broker).into()),
        );
        records.extend(self.controllers.values().cloned().map(Record::from));
        for topic in self.topics.iter() {
            topic_records(topic, &mut records);
        }
        for (resource, values) in self.configs.iter() {
            records.extend(values.iter().map(|(name, value)| {
                let record = ConfigRecord {
                    resource_type: resource.kind.0,
                    resource_name: resource.name.clone(),
                    name: name.clone(),
                    value: Some(value.clone()),
                    ..ConfigRecord::default()
                };
                Record::from(record)
            }));
        }
        records.extend(
            self.memberships
                .values()
                .map(|membership| membership.to_record().into()),
        );
        self.other_records(&mut records);
        records
    }

    fn feature_records(&self, records: &mut Vec<Record>) {
        let record = |(name, level): (&tarn_wire::Str, &i16)| {
            Record::from(FeatureLevelRecord {
                name: name.clone(),
                feature_level: *level,
                ..FeatureLevelRecord::default()
            })
        };
        records.extend(self.features.get_key_value(METADATA_VERSION).map(record));
        records.extend(
            self.features
                .iter()
                .filter(|(name, _)| ***name != *METADATA_VERSION)
                .map(record),
        );
    }

    fn other_records(&self, records: &mut Vec<Record>) {
        if self.producer_ids.next > 0 {
            records.push(
                ProducerIdsRecord {
                    broker_id: self.producer_ids.broker,
                    broker_epoch: self.producer_ids.broker_epoch,
                    next_producer_id: self.producer_ids.next,
                    ..ProducerIdsRecord::default()
                }
                .into(),
            );
        }
        records.extend(self.acls.values().cloned().map(Record::from));
        records.extend(self.quotas.iter().map(|((entity, key), value)| {
            let part = |(kind, name): &(tarn_wire::Str, Option<tarn_wire::Str>)| {
                client_quota_record::EntityData {
                    entity_type: kind.clone(),
                    entity_name: name.clone(),
                    ..Default::default()
                }
            };
            let record = ClientQuotaRecord {
                entity: entity.iter().map(part).collect(),
                key: key.clone(),
                value: *value,
                ..ClientQuotaRecord::default()
            };
            Record::from(record)
        }));
    }
}

impl Membership {
    /// The record that says this.
    pub fn to_record(&self) -> MirrorMembershipRecord {
        MirrorMembershipRecord {
            topic_id: self.topic_id,
            topic_name: self.topic.clone(),
            mirror_name: Some(self.mirror.clone()),
            desired_state: self.desired.code(),
            source_topic_id: self.source_topic_id,
            stopped: self.stopped,
            change_offset: self.change_offset,
            ..MirrorMembershipRecord::default()
        }
    }

    /// The record that ends this membership.
    pub fn to_clearing_record(&self) -> MirrorMembershipRecord {
        MirrorMembershipRecord {
            mirror_name: None,
            desired_state: -1,
            ..self.to_record()
        }
    }
}

impl PartitionImage {
    /// The record that says this.
    pub fn to_record(&self, topic_id: tarn_wire::Uuid, partition: i32) -> PartitionRecord {
        let optional = |list: &Vec<i32>| {
            if list.is_empty() {
                None
            } else {
                Some(list.clone())
            }
        };
        PartitionRecord {
            partition_id: partition,
            topic_id,
            replicas: self.replicas.clone(),
            isr: self.isr.clone(),
            removing_replicas: self.removing.clone(),
            adding_replicas: self.adding.clone(),
            leader: self.leader,
            leader_recovery_state: self.leader_recovery_state,
            leader_epoch: self.leader_epoch,
            partition_epoch: self.partition_epoch,
            directories: self.directories.clone(),
            eligible_leader_replicas: optional(&self.eligible_leader_replicas),
            last_known_elr: optional(&self.last_known_elr),
            ..PartitionRecord::default()
        }
    }
}

fn topic_records(topic: &TopicImage, records: &mut Vec<Record>) {
    records.push(
        TopicRecord {
            name: topic.name.clone(),
            topic_id: topic.id,
            ..TopicRecord::default()
        }
        .into(),
    );
    records.extend(
        topic
            .partitions
            .iter()
            .enumerate()
            .map(|(index, partition)| Record::from(partition.to_record(topic.id, index as i32))),
    );
}

fn broker_record(broker: &BrokerImage) -> RegisterBrokerRecord {
    let endpoints = broker
        .endpoints
        .iter()
        .map(|e| register_broker_record::BrokerEndpoint {
            name: e.name.clone(),
            host: e.host.clone(),
            port: e.port,
            security_protocol: e.security_protocol,
            ..Default::default()
        });
    let features = broker
        .features
        .iter()
        .map(|f| register_broker_record::BrokerFeature {
            name: f.name.clone(),
            min_supported_version: f.min,
            max_supported_version: f.max,
            ..Default::default()
        });
    RegisterBrokerRecord {
        broker_id: broker.id,
        incarnation_id: broker.incarnation,
        broker_epoch: broker.epoch,
        end_points: endpoints.collect(),
        features: features.collect(),
        rack: broker.rack.clone(),
        fenced: broker.fenced,
        in_controlled_shutdown: broker.in_controlled_shutdown,
        log_dirs: broker.log_dirs.clone(),
        ..RegisterBrokerRecord::default()
    }
}

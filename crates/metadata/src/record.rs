//! Metadata records: one enum over every record that this version understands, and their framing in
//! the log.
//!
//! Owns which record exists, in which version it is written, and the frame before it: frame
//! version, type and record version as unsigned varints, exactly as Kafka frames them, so that its
//! dump tool reads the stock ones. A record type that is not here fails by name: losing it would
//! lose state.

use bytes::Bytes;
use tarn_wire::messages::{
    AbortTransactionRecord, AccessControlEntryRecord, BeginTransactionRecord,
    BrokerRegistrationChangeRecord, ClearElrRecord, ClientQuotaRecord, ConfigRecord,
    EndTransactionRecord, FeatureLevelRecord, FenceBrokerRecord, MirrorMembershipRecord,
    NoOpRecord, PartitionChangeRecord, PartitionEpochRecord, PartitionRecord, ProducerIdsRecord,
    RegisterBrokerRecord, RegisterControllerRecord, RemoveAccessControlEntryRecord,
    RemoveTopicRecord, TopicRecord, UnfenceBrokerRecord, UnregisterBrokerRecord,
};
use tarn_wire::{Message, Reader, RecordMessage, Writer};

use crate::MetadataError;

/// Version of the frame before every metadata record.
pub const RECORD_FRAME_VERSION: u32 = 1;

macro_rules! records {
    ($($(#[$doc:meta])* $variant:ident($message:ty),)*) => {
        /// A metadata record.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Record {
            $($(#[$doc])* $variant($message),)*
        }

        impl Record {
            /// Kafka's name of the record.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => <$message>::NAME,)*
                }
            }

            /// Type number.
            pub fn record_type(&self) -> i16 {
                match self {
                    $(Self::$variant(_) => <$message as RecordMessage>::TYPE,)*
                }
            }

            fn encode_body(&self, w: &mut Writer) -> Result<(), tarn_wire::WireError> {
                let version = self.version();
                match self {
                    $(Self::$variant(message) => message.encode(w, version),)*
                }
            }

            fn decode_body(record_type: u32, version: u32, r: &mut Reader) -> Result<Self, MetadataError> {
                let wire_version = i16::try_from(version).unwrap_or(i16::MAX);
                $(if i64::from(record_type) == i64::from(<$message as RecordMessage>::TYPE) {
                    return match <$message>::decode(r, wire_version) {
                        Ok(message) => Ok(Self::$variant(message)),
                        Err(source) => Err(MetadataError::Decode { record_type, version, source }),
                    };
                })*
                Err(MetadataError::UnknownRecord { record_type, version })
            }
        }

        $(impl From<$message> for Record {
            fn from(message: $message) -> Self {
                Self::$variant(message)
            }
        })*
    };
}

records! {
    /// A broker registers.
    RegisterBroker(RegisterBrokerRecord),
    /// A broker's fencing, shutdown state or directories change.
    BrokerRegistrationChange(BrokerRegistrationChangeRecord),
    /// A broker is fenced (old form).
    FenceBroker(FenceBrokerRecord),
    /// A broker is unfenced (old form).
    UnfenceBroker(UnfenceBrokerRecord),
    /// A broker is taken out.
    UnregisterBroker(UnregisterBrokerRecord),
    /// A controller registers.
    RegisterController(RegisterControllerRecord),
    /// A topic is created.
    Topic(TopicRecord),
    /// A partition is created.
    Partition(PartitionRecord),
    /// A partition changes.
    PartitionChange(PartitionChangeRecord),
    /// A topic, with its configuration and membership, is deleted.
    RemoveTopic(RemoveTopicRecord),
    /// A configuration value is set or removed.
    Config(ConfigRecord),
    /// A feature gets a level.
    FeatureLevel(FeatureLevelRecord),
    /// A block of producer ids was handed out.
    ProducerIds(ProducerIdsRecord),
    /// A client quota is set or removed.
    ClientQuota(ClientQuotaRecord),
    /// An ACL is added.
    AccessControlEntry(AccessControlEntryRecord),
    /// An ACL is removed.
    RemoveAccessControlEntry(RemoveAccessControlEntryRecord),
    /// Eligible leader replicas are forgotten.
    ClearElr(ClearElrRecord),
    /// Nothing.
    NoOp(NoOpRecord),
    /// The records until the end belong together.
    BeginTransaction(BeginTransactionRecord),
    /// They take effect.
    EndTransaction(EndTransactionRecord),
    /// They do not.
    AbortTransaction(AbortTransactionRecord),
    /// Ours, 20001: a topic's membership in a mirror, or its end.
    MirrorMembership(MirrorMembershipRecord),
    /// Ours, 20002: a partition's leader epoch jumps. The stock change record can only add one, and
    /// must stay stock.
    PartitionEpoch(PartitionEpochRecord),
}

impl Record {
    /// The version this record is written in: the lowest that can say it, so that stock readers of
    /// the feature level need nothing newer.
    fn version(&self) -> i16 {
        match self {
            Self::Partition(record)
                if record.eligible_leader_replicas.is_some() || record.last_known_elr.is_some() =>
            {
                2
            }
            Self::PartitionChange(record)
                if record.eligible_leader_replicas.is_some() || record.last_known_elr.is_some() =>
            {
                2
            }
            Self::Partition(_) | Self::PartitionChange(_) => 1,
            Self::RegisterBroker(_) => 3,
            Self::BrokerRegistrationChange(_) => 2,
            _ => 0,
        }
    }

    /// The record as it stands in a batch's record value.
    pub fn encode(&self) -> Result<Bytes, MetadataError> {
        let mut w = Writer::with_capacity(64);
        w.uvarint(RECORD_FRAME_VERSION);
        w.uvarint(self.record_type() as u32);
        w.uvarint(self.version() as u32);
        self.encode_body(&mut w)
            .map_err(|source| MetadataError::Encode {
                name: self.name(),
                source,
            })?;
        Ok(w.finish().to_bytes().unwrap_or_default())
    }

    /// Reads what [`Record::encode`] or Kafka wrote; trailing bytes are an error.
    pub fn decode(value: Bytes) -> Result<Self, MetadataError> {
        let mut r = Reader::new(value);
        let mut varint = |what: &str| {
            r.uvarint()
                .map_err(|error| MetadataError::Frame(format!("{what}: {error}")))
        };
        let frame = varint("frame version")?;
        if frame != RECORD_FRAME_VERSION {
            return Err(MetadataError::Frame(format!(
                "frame version {frame} is not known, {RECORD_FRAME_VERSION} is"
            )));
        }
        let record_type = varint("record type")?;
        let version = varint("record version")?;
        let record = Self::decode_body(record_type, version, &mut r)?;
        match r.remaining() {
            0 => Ok(record),
            left => Err(MetadataError::Frame(format!(
                "{left} bytes follow the {} of version {version}",
                record.name()
            ))),
        }
    }
}

//! Brokers and the producer id counter in the image.

use tarn_wire::{Str, Uuid};

/// Where a broker listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerEndpoint {
    /// Listener name.
    pub name: Str,
    /// Advertised host.
    pub host: Str,
    /// Advertised port.
    pub port: u16,
    /// 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
    pub security_protocol: i16,
}

/// A feature a broker supports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerFeature {
    /// Feature name.
    pub name: Str,
    /// Lowest supported level.
    pub min: i16,
    /// Highest supported level.
    pub max: i16,
}

/// A registered broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerImage {
    /// node.id.
    pub id: i32,
    /// Offset of the registration record: the broker's fence against its own past.
    pub epoch: i64,
    /// Random id of this run of the process.
    pub incarnation: Uuid,
    /// Listeners.
    pub endpoints: Vec<BrokerEndpoint>,
    /// Features.
    pub features: Vec<BrokerFeature>,
    /// Rack, if set.
    pub rack: Option<Str>,
    /// A fenced broker leads nothing.
    pub fenced: bool,
    /// A broker on its way out gets no new leadership.
    pub in_controlled_shutdown: bool,
    /// Ids of its log directories.
    pub log_dirs: Vec<Uuid>,
}

impl BrokerImage {
    /// True if the broker may lead partitions.
    pub fn is_active(&self) -> bool {
        !self.fenced && !self.in_controlled_shutdown
    }

    /// The endpoint of a listener.
    pub fn endpoint(&self, listener: &str) -> Option<&BrokerEndpoint> {
        self.endpoints
            .iter()
            .find(|endpoint| endpoint.name == *listener)
    }
}

/// The producer id counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProducerIds {
    /// First id that no broker was given yet.
    pub next: i64,
    /// Who got the last block; only meaningful when `next` > 0.
    pub broker: i32,
    /// Epoch of that broker.
    pub broker_epoch: i64,
}

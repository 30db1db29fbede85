//! The mirror APIs (keys 94–96, 98–105): requests in every dialect to decisions and back, and the
//! handle by which the server room holds this whole room.

mod answers;
mod control;
pub mod forms;
pub mod reply;
mod states;
mod wanted;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tarn_controller::plan::{self, NewTopic};
use tarn_controller::{AlterHook, ApiError, ConfigChange, ConfigOp, Controller, Ctx, Subscription};
use tarn_coordinator::{
    InternalTopic, ReplicaStore, Runtime, RuntimeConfig, TopicCreator, system_clock,
};
use tarn_metadata::{Change, Image};
use tarn_replica::ReplicaManager;
use tarn_wire::{ApiKey, Str};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

use self::forms::{MirrorRequest, Parsed, Proof};
pub use self::reply::MirrorReply;
use crate::commands::{self, AlterOp, Decision, Planner};
use crate::config::patterns::Patterns;
use crate::config::{BrokerSettings, DescribedKey, MirrorConfig};
use crate::dialect::{Caller, CallerDialects, Dialect, DialectMemory, MirrorError, WireDialect};
use crate::epochs::EpochBumper;
use crate::lifecycle::{LifeCycle, Tools};
use crate::metadata::Metadata;
use crate::refresh::Refresher;
use crate::seam::{DataPlane, FetchEvents};
use crate::store::shard::MirrorShard;
use crate::store::{StateStore, state_topic};
use wanted::WantedTopics;

/// Replicas of the internal topic when nothing is configured: this many, or all live brokers.
const STATE_TOPIC_REPLICAS: usize = 3;

/// How long the partitions may be behind the controller before an image is taken over anyway.
const REPLICAS_BEHIND_MS_MAX: u64 = 10_000;

/// The mirror room of a broker.
pub struct MirrorService {
    tools: Tools,
    life: Arc<LifeCycle>,
    refresher: Arc<Refresher>,
    callers: CallerDialects,
    /// What mirrors want by pattern.
    wanted: Mutex<WantedTopics>,
    tasks: TaskTracker,
    cancel: CancellationToken,
}

impl MirrorService {
    /// Builds and starts the room. Waits for nobody: coordinators load and sources are contacted in
    /// tasks. `bind` hands the data plane whom it reports to, before the first call to it.
    pub fn start(
        controller: Controller,
        replicas: Arc<ReplicaManager>,
        settings: BrokerSettings,
        data: Arc<dyn DataPlane>,
        bind: impl FnOnce(Arc<dyn FetchEvents>),
    ) -> Arc<MirrorService> {
        let clock = system_clock();
        let topic = state_topic(
            settings.state_topic_partitions,
            settings.state_topic_replication_factor.unwrap_or(-1),
        );
        let runtime = Runtime::new(
            RuntimeConfig::new(topic.clone()),
            ReplicaStore::new(replicas.clone(), topic.name),
            creator(controller.clone()),
            clock.clone(),
            |_| MirrorShard::default(),
        );
        let metadata: Arc<dyn Metadata> = Arc::new(controller.clone());
        let tools = Tools {
            settings: Arc::new(settings),
            metadata: metadata.clone(),
            replicas: replicas.clone(),
            store: StateStore::new(runtime),
            data,
            bumper: EpochBumper::new(metadata, replicas),
            clock,
        };
        let life = LifeCycle::new(tools.clone());
        let refresher = Refresher::new(tools.clone(), life.clone());
        bind(life.clone());
        life.start();
        let callers = CallerDialects::new(tools.settings.callers_max);
        let service = Arc::new(MirrorService {
            tools,
            callers,
            life,
            refresher,
            wanted: Mutex::default(),
            tasks: TaskTracker::new(),
            cancel: CancellationToken::new(),
        });
        service
            .tasks
            .spawn(service.clone().follow(controller.subscribe()));
        service
    }

    /// Whom the data plane reports to.
    pub fn events(&self) -> Arc<dyn FetchEvents> {
        self.life.clone()
    }

    /// Ends every task of the room. States stay as they are stored and are taken up again at the
    /// next start.
    pub async fn shutdown(&self) {
        self.cancel.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.refresher.shutdown().await;
        self.life.shutdown().await;
        self.tools.store.runtime().shutdown().await;
    }

    /// Follows the image: coordinators, life cycles and refresh tasks are brought in line with each
    /// one.
    async fn follow(self: Arc<Self>, mut images: Subscription) {
        let mut before = Arc::new(Image::default());
        loop {
            let next = tokio::select! {
                () = self.cancel.cancelled() => return,
                next = images.next() => next,
            };
            let Some((image, delta)) = next else { return };
            tokio::select! {
                () = self.cancel.cancelled() => return,
                () = self.replicas_caught_up(image.offset()) => {}
            }
            self.tools
                .store
                .runtime()
                .apply(&image, self.tools.settings.broker_id);
            self.life.apply(&image);
            if delta.mirrors().next().is_some() || before.mirrors().next().is_none() {
                let compiled = self.prepare_patterns(&image).await;
                self.wanted.lock().keep(compiled);
            }
            self.refresher.apply(&image);
            for change in delta
                .topics
                .values()
                .filter(|c| c.change == Change::Deleted)
            {
                self.forget_deleted(&before, &image, &change.name).await;
            }
            let mirrors_gone = delta.mirrors().any(|m| image.mirror(m).is_none());
            if mirrors_gone || delta.topics.values().any(|c| c.change == Change::Deleted) {
                self.life.sweep_soon();
            }
            before = image;
        }
    }

    /// Compiles the lists of all mirrors, so that neither a refresh nor a client's unknown name has
    /// to.
    async fn prepare_patterns(&self, image: &Image) -> Vec<Arc<Patterns>> {
        let mut held = Vec::new();
        for (name, _) in image.mirrors() {
            let config = MirrorConfig::of(image, name, &self.tools.settings);
            held.extend(config.prepare_patterns().await);
        }
        held
    }

    /// Waits until the partitions of this broker obey the image of `offset`: who leads, who may
    /// append.
    async fn replicas_caught_up(&self, offset: i64) {
        let mut progress = self.tools.replicas.progress();
        let in_force = progress.wait_for(|progress| progress.in_force >= offset);
        let limit = Duration::from_millis(REPLICAS_BEHIND_MS_MAX);
        if tokio::time::timeout(limit, in_force).await.is_err() {
            warn!(
                offset,
                "the partitions do not follow the metadata; mirroring goes on without them"
            );
        }
    }

    /// A mirror topic was deleted here: an operator wanted that, so patterns must not bring it
    /// back.
    async fn forget_deleted(&self, before: &Image, image: &Image, topic: &Str) {
        let Some(member) = before.membership(topic).filter(|m| !m.is_wanted()) else {
            return;
        };
        let config = MirrorConfig::of(image, &member.mirror, &self.tools.settings);
        let matches = config
            .topic_patterns()
            .is_ok_and(|(include, exclude)| include.matches(topic) && !exclude.matches(topic));
        if !matches || image.topic(topic).is_some() {
            return;
        }
        let (mirror, topic) = (member.mirror.clone(), topic.clone());
        let decide = move |image: &Image, _: &mut dyn Planner| {
            let records = commands::exclude_topic(image, &mirror, &topic);
            Ok(Decision {
                records,
                topics: Vec::new(),
            })
        };
        if let Err(error) = self
            .tools
            .metadata
            .decide("exclude a deleted topic", Box::new(decide))
            .await
        {
            warn!(%error, "a deleted mirror topic could not be put on the exclude list");
        }
    }

    /// Serves one request. Never fails: whatever goes wrong is in the answer, in the caller's
    /// dialect.
    pub async fn handle(
        &self,
        key: ApiKey,
        body: Bytes,
        caller: &Caller,
        memory: &mut DialectMemory,
    ) -> MirrorReply {
        memory.note_mirror_key();
        if forms::is_for_brokers(key) && !caller.is_broker {
            let error = MirrorError::BrokersOnly(key.name());
            return reply::refusal(key, self.assumed(memory, caller, &[]), &error);
        }
        let Parsed { request, proof } = match forms::parse(key, &body, memory.configured()) {
            Ok(parsed) => parsed,
            Err(error) => return reply::refusal(key, self.assumed(memory, caller, &[]), &error),
        };
        let dialect = self.dialect(memory, caller, &request, proof);
        if !self.tools.settings.enabled {
            return reply::refusal(key, dialect, &MirrorError::FeatureOff);
        }
        self.serve(key, dialect, request).await
    }

    /// The dialect of an answer; what the request proves is remembered.
    fn dialect(
        &self,
        memory: &mut DialectMemory,
        caller: &Caller,
        request: &MirrorRequest,
        proof: Proof,
    ) -> Dialect {
        match proof {
            Proof::Form(dialect) => {
                memory.prove(dialect);
                self.callers.remember(caller, dialect);
                dialect
            }
            Proof::Content(dialect) if memory.configured() == WireDialect::Auto => {
                memory.prove(dialect);
                let proven = memory.proven().unwrap_or(dialect);
                self.callers.remember(caller, proven);
                proven
            }
            _ => {
                let named = match request {
                    MirrorRequest::Describe { mirrors, .. } => mirrors.as_slice(),
                    _ => &[],
                };
                self.assumed(memory, caller, named)
            }
        }
    }

    /// The dialect of a caller whose request does not tell: the setting, the connection, the
    /// caller, the mirrors, early.
    fn assumed(&self, memory: &DialectMemory, caller: &Caller, mirrors: &[Str]) -> Dialect {
        if let WireDialect::Only(dialect) = memory.configured() {
            return dialect;
        }
        let of_mirrors = || {
            let image = self.tools.metadata.image();
            (!caller.is_own_product)
                .then(|| commands::creators_dialect(&image, mirrors))
                .flatten()
        };
        memory
            .proven()
            .or_else(|| self.callers.recall(caller))
            .or_else(of_mirrors)
            .unwrap_or(Dialect::Early)
    }

    /// Whether a name belongs to mirroring although the topic does not exist: it must not be
    /// created automatically.
    pub fn wants_topic(&self, image: &Image, topic: &str) -> bool {
        if image.membership(topic).is_some() {
            return true;
        }
        let lists = self.wanted.lock().of(image, &self.tools.settings);
        lists
            .iter()
            .any(|lists| lists.0.matches(topic) && !lists.1.matches(topic))
    }

    /// DescribeConfigs of a mirror; `None` = there is no such mirror. `with_defaults`: also keys
    /// that are not set, and secrets without their values. Without it, as the prototypes' tools
    /// read it: what is set and may be shown, so that no value is null.
    pub fn describe_configs(
        &self,
        image: &Image,
        mirror: &str,
        asked: Option<&[Str]>,
        with_defaults: bool,
    ) -> Option<Vec<DescribedKey>> {
        image.mirror(mirror).filter(|c| !c.is_empty())?;
        let config = MirrorConfig::of(image, mirror, &self.tools.settings);
        let mut keys = crate::config::describe(&config, asked, self.tools.settings.show_sensitive);
        if !with_defaults {
            keys.retain(|key| key.is_set && key.value.is_some());
        }
        Some(keys)
    }
}

/// The controller's hook for changes of mirror definitions: validates, brings keys to their stored
/// spelling. Needs no running service.
pub fn alter_hook() -> AlterHook {
    Arc::new(|image, resource, ops| {
        let op = |op: &ConfigOp| {
            let change = match &op.change {
                ConfigChange::Set(value) => AlterOp::Set(value.clone()),
                ConfigChange::Delete => AlterOp::Delete,
                ConfigChange::Append(value) => AlterOp::Append(value.clone()),
                ConfigChange::Subtract(value) => AlterOp::Subtract(value.clone()),
            };
            (op.key.clone(), change)
        };
        let ops: Vec<_> = ops.iter().map(op).collect();
        let changes = commands::alter_mirror(image, &resource.name, &ops).map_err(api_error)?;
        let change = |(key, value): (Str, Option<Str>)| ConfigOp {
            key,
            change: value.map_or(ConfigChange::Delete, ConfigChange::Set),
        };
        Ok(changes.into_iter().map(change).collect())
    })
}

/// For stock APIs, whose clients know no mirror error: the late numbers would be foreign, so
/// unknown ones become an invalid request.
fn api_error(error: MirrorError) -> ApiError {
    let code = match &error {
        MirrorError::UnknownMirror(_) => tarn_wire::ErrorCode::INVALID_REQUEST,
        other => tarn_wire::ErrorCode(other.code(Dialect::Early)),
    };
    ApiError::new(code, error.to_string())
}

/// Creates the internal topic with the broker's identity. "Exists already" is success.
fn creator(controller: Controller) -> TopicCreator {
    Arc::new(move |topic: InternalTopic| {
        let controller = controller.clone();
        Box::pin(async move {
            let decide = move |image: &Image, ctx: &mut Ctx| {
                if image.topic(&topic.name).is_some() {
                    return Ok((Vec::new(), ()));
                }
                let live = image.active_brokers().count().max(1);
                let replicas = match topic.replication_factor {
                    asked if asked > 0 => asked,
                    _ => live.min(STATE_TOPIC_REPLICAS) as i16,
                };
                let new = NewTopic {
                    name: topic.name.clone(),
                    id: None,
                    partitions: topic.partitions,
                    replication_factor: replicas,
                    assignments: Vec::new(),
                    configs: topic.configs.clone(),
                };
                plan::plan_topic(image, ctx, &new).map(|records| (records, ()))
            };
            controller
                .submit("create __mirror_state", decide)
                .await
                .map_err(|e: ApiError| e.to_string())
        })
    })
}

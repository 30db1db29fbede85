//! A data plane that says what the test tells it to, and keeps what it was told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tarn_mirror::seam::{
    BoxFuture, DataPlane, FetchAssignment, FetchProgress, ForeignMirror, MirrorPartition,
    PersistIntent, PrepareOutcome, PrepareRequest, Reachability, Source, SourceCluster,
    SourceEntries, SourceError, SourcePartition, SourceSettings, SourceTopic, SourceTopicConfigs,
    TopicAnswer,
};
use tarn_wire::{Str, Uuid};

/// Cluster id of the scripted source.
pub(crate) const SOURCE: &str = "source-cluster-of-tests";

#[derive(Default)]
pub(crate) struct Script {
    pub(crate) topics: BTreeMap<Str, SourceTopic>,
    pub(crate) configs: BTreeMap<Str, Vec<(Str, Str)>>,
    /// What the source's brokers decide for every topic.
    pub(crate) inherited: Vec<(Str, Str)>,
    /// Topics whose configs the source does not tell, with the reason.
    pub(crate) denied: BTreeMap<Str, String>,
    /// Why the source lists no topics, if it does not; it answers for named ones.
    pub(crate) no_lists: Option<String>,
    /// What the mirror's own connections remember of a source that is back by now.
    pub(crate) remembered: Option<String>,
    pub(crate) down: Option<String>,
    pub(crate) cluster_id: Option<Str>,
    pub(crate) loops: Vec<ForeignMirror>,
    /// `None` = ready at once.
    pub(crate) prepare: Option<PrepareOutcome>,
    /// A cut the next preparation makes known before it is ready.
    pub(crate) intent: Option<i64>,
    pub(crate) prepared: Vec<PrepareRequest>,
    pub(crate) fetching: BTreeSet<(Str, i32)>,
    pub(crate) progress: BTreeMap<(Str, i32), FetchProgress>,
    pub(crate) configured: Vec<SourceSettings>,
    pub(crate) forgotten: Vec<Str>,
    pub(crate) questions: usize,
}

#[derive(Clone, Default)]
pub(crate) struct Scripted(pub(crate) Arc<Mutex<Script>>, Asks);

/// Whose connections a source stands for.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Asks {
    /// Those of the mirror itself, with what they remember.
    #[default]
    Known,
    /// Fresh ones.
    Afresh,
}

impl Scripted {
    pub(crate) fn new() -> Scripted {
        let scripted = Scripted::default();
        scripted.0.lock().cluster_id = Some(Str::from(SOURCE));
        scripted
    }

    pub(crate) fn topic(&self, name: &str, partitions: i32) -> Uuid {
        let id = Uuid::random();
        self.put(name, Some(id), partitions, 0);
        id
    }

    pub(crate) fn put(&self, name: &str, id: Option<Uuid>, partitions: i32, epoch: i32) {
        let partition = |partition| SourcePartition {
            partition,
            leader: Some(9),
            leader_epoch: Some(epoch),
        };
        let topic = SourceTopic {
            name: Str::from(name),
            id,
            partitions: (0..partitions).map(partition).collect(),
        };
        self.0.lock().topics.insert(Str::from(name), topic);
    }

    pub(crate) fn go_down(&self, reason: &str) {
        self.0.lock().down = Some(reason.to_owned());
    }

    pub(crate) fn is_fetching(&self, topic: &str, partition: i32) -> bool {
        self.0
            .lock()
            .fetching
            .contains(&(Str::from(topic), partition))
    }

    fn ask<T>(&self, answer: impl FnOnce(&mut Script) -> T) -> Result<T, SourceError> {
        let mut script = self.0.lock();
        script.questions += 1;
        if let Some(reason) = script.remembered.clone().filter(|_| self.1 == Asks::Known) {
            return Err(SourceError::Unreachable(reason));
        }
        match &script.down {
            Some(reason) => Err(SourceError::Unreachable(reason.clone())),
            None => Ok(answer(&mut script)),
        }
    }
}

fn now<'a, T: Send + 'a>(value: T) -> BoxFuture<'a, T> {
    Box::pin(std::future::ready(value))
}

impl Source for Scripted {
    fn cluster(&self) -> BoxFuture<'_, Result<SourceCluster, SourceError>> {
        now(self.ask(|s| SourceCluster {
            cluster_id: s.cluster_id.clone(),
            brokers: 1,
            has_topic_ids: true,
        }))
    }

    fn all_topics(&self) -> BoxFuture<'_, Result<Vec<SourceTopic>, SourceError>> {
        if let Some(reason) = self.0.lock().no_lists.clone() {
            return now(Err(SourceError::Unreachable(reason)));
        }
        now(self.ask(|s| s.topics.values().cloned().collect()))
    }

    fn topics(&self, names: Vec<Str>) -> BoxFuture<'_, Result<Vec<TopicAnswer>, SourceError>> {
        now(self.ask(|s| {
            let answer = |n: &Str| {
                s.topics
                    .get(n)
                    .cloned()
                    .map_or(TopicAnswer::Absent, TopicAnswer::Present)
            };
            names.iter().map(answer).collect()
        }))
    }

    fn topic_configs(
        &self,
        names: Vec<Str>,
    ) -> BoxFuture<'_, Result<Vec<SourceTopicConfigs>, SourceError>> {
        now(self.ask(|s| {
            let one = |n: &Str| SourceTopicConfigs {
                name: n.clone(),
                entries: match s.denied.get(n) {
                    Some(reason) => Err(reason.clone()),
                    None => Ok(SourceEntries {
                        own: s.configs.get(n).cloned().unwrap_or_default(),
                        inherited: s.inherited.clone(),
                    }),
                },
            };
            names.iter().map(one).collect()
        }))
    }

    fn mirrors_from(&self, _: Str) -> BoxFuture<'_, Result<Vec<ForeignMirror>, SourceError>> {
        now(self.ask(|s| s.loops.clone()))
    }

    fn reachability(&self) -> Reachability {
        match &self.0.lock().down {
            Some(reason) => Reachability::Unreachable {
                since_ms: 1,
                reason: Str::from(reason.as_str()),
            },
            None => Reachability::Reachable,
        }
    }
}

impl DataPlane for Scripted {
    fn configure(&self, settings: SourceSettings) -> Arc<dyn Source> {
        self.0.lock().configured.push(settings);
        Arc::new(self.clone())
    }

    fn probe(&self, _: SourceSettings) -> Arc<dyn Source> {
        Arc::new(Scripted(self.0.clone(), Asks::Afresh))
    }

    fn forget_mirror(&self, mirror: Str) -> BoxFuture<'static, ()> {
        self.0.lock().forgotten.push(mirror);
        now(())
    }

    fn add_partition(&self, assignment: FetchAssignment) {
        let p = assignment.partition;
        self.0.lock().fetching.insert((p.topic, p.partition));
    }

    fn remove_partition<'a>(&'a self, partition: &'a MirrorPartition) -> BoxFuture<'a, ()> {
        self.0
            .lock()
            .fetching
            .remove(&(partition.topic.clone(), partition.partition));
        now(())
    }

    fn prepare(
        &self,
        request: PrepareRequest,
        intent: PersistIntent,
    ) -> BoxFuture<'static, PrepareOutcome> {
        let mut script = self.0.lock();
        script.prepared.push(request);
        let outcome = script
            .prepare
            .clone()
            .unwrap_or(PrepareOutcome::Ready { truncated_to: None });
        let cut = script.intent.take();
        drop(script);
        Box::pin(async move {
            if let Some(offset) = cut
                && let Err(reason) = intent(offset).await
            {
                return PrepareOutcome::Retry { reason };
            }
            outcome
        })
    }

    fn progress(&self, partition: &MirrorPartition) -> Option<FetchProgress> {
        self.0
            .lock()
            .progress
            .get(&(partition.topic.clone(), partition.partition))
            .cloned()
    }

    fn forget_partition(&self, partition: &MirrorPartition) {
        self.0
            .lock()
            .progress
            .remove(&(partition.topic.clone(), partition.partition));
    }

    fn source_metadata(&self, _: &Str, _: &[SourceTopic]) {}
}

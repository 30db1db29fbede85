//! Data plane: fetching from source leaders and appending unchanged batches to local logs.
//!
//! [`FetchPlane`] holds one independent part per mirror, so that a dead source stalls nothing else:
//! its connections, one fetcher manager, and one fetcher for each (source broker, index), on
//! threads apart from those that serve clients. It keeps no intent: whatever is lost with the
//! process the control plane hands over again.

mod answers;
mod checks;
mod manager;
mod mirror;
mod partition_response;
mod partition_state;
mod policy;
mod proof;
#[cfg(test)]
mod testing;
mod threads;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tarn_replica::ReplicaManager;
use tarn_wire::Str;
use tokio_util::sync::CancellationToken;

use crate::prepare;
use crate::seam::{
    BoxFuture, DataPlane, FetchAssignment, FetchEvents, FetchProgress, MirrorPartition,
    PersistIntent, PrepareOutcome, PrepareRequest, Source, SourceSettings, SourceTopic,
};
use crate::source::SourceClient;
use mirror::MirrorPlane;
use threads::Threads;

/// How long the end of a mirror's tasks is waited for; they have nothing to finish, so this is
/// never reached.
const END_WAIT_MAX: Duration = Duration::from_secs(1);

/// The data plane of all mirrors of this broker.
pub struct FetchPlane {
    replicas: Arc<ReplicaManager>,
    events: OnceLock<Arc<dyn FetchEvents>>,
    mirrors: Mutex<HashMap<Str, Arc<MirrorPlane>>>,
    threads: Threads,
    cancel: CancellationToken,
}

impl FetchPlane {
    /// A plane without mirrors. [`FetchPlane::bind`] must follow before the first
    /// [`DataPlane::add_partition`].
    pub fn new(replicas: Arc<ReplicaManager>) -> Arc<FetchPlane> {
        Arc::new(FetchPlane {
            replicas,
            events: OnceLock::new(),
            mirrors: Mutex::default(),
            threads: Threads::default(),
            cancel: CancellationToken::new(),
        })
    }

    /// Tells whom to report to. Only the first call counts.
    pub fn bind(&self, events: Arc<dyn FetchEvents>) {
        let _ = self.events.set(events);
    }

    /// Ends all tasks and connections. No append is in flight afterwards.
    pub async fn shutdown(&self) {
        self.cancel.cancel();
        let names: Vec<Str> = self.mirrors.lock().keys().cloned().collect();
        for name in names {
            self.forget_mirror(name).await;
        }
    }

    fn mirror(&self, name: &Str) -> Option<Arc<MirrorPlane>> {
        self.mirrors.lock().get(name).cloned()
    }
}

impl DataPlane for FetchPlane {
    fn threads(&self) -> tokio::runtime::Handle {
        self.threads.handle()
    }

    fn configure(&self, settings: SourceSettings) -> Arc<dyn Source> {
        let mut mirrors = self.mirrors.lock();
        if let Some(mirror) = mirrors.get(&settings.mirror) {
            mirror.configure(settings);
            return mirror.source();
        }
        let Some(events) = self.events.get() else {
            // Nobody to report to yet: good for questions only.
            return Arc::new(SourceClient::new(&settings));
        };
        let name = settings.mirror.clone();
        let mirror = MirrorPlane::new(
            settings,
            self.replicas.clone(),
            events.clone(),
            self.cancel.child_token(),
        );
        mirror
            .tasks
            .spawn_on(manager::keep(mirror.clone()), &self.threads.handle());
        let source = mirror.source();
        mirrors.insert(name, mirror);
        source
    }

    fn probe(&self, settings: SourceSettings) -> Arc<dyn Source> {
        Arc::new(SourceClient::new(&settings))
    }

    fn forget_mirror(&self, mirror: Str) -> BoxFuture<'static, ()> {
        let Some(mirror) = self.mirrors.lock().remove(&mirror) else {
            return Box::pin(std::future::ready(()));
        };
        let closed = mirror.close_all();
        mirror.cancel.cancel();
        mirror.tasks.close();
        Box::pin(async move {
            closed.await;
            let _ = tokio::time::timeout(END_WAIT_MAX, mirror.tasks.wait()).await;
        })
    }

    fn add_partition(&self, assignment: FetchAssignment) {
        match self.mirror(&assignment.partition.mirror) {
            Some(mirror) => mirror.add(assignment),
            None => {
                tracing::warn!(partition = %assignment.partition, "its mirror is not configured")
            }
        }
    }

    fn remove_partition<'a>(&'a self, partition: &'a MirrorPartition) -> BoxFuture<'a, ()> {
        match self.mirror(&partition.mirror) {
            Some(mirror) => mirror.remove((partition.topic_id, partition.partition)),
            None => Box::pin(std::future::ready(())),
        }
    }

    fn prepare(
        &self,
        request: PrepareRequest,
        intent: PersistIntent,
    ) -> BoxFuture<'static, PrepareOutcome> {
        let partition = &request.assignment.partition;
        let key = (partition.topic_id, partition.partition);
        let Some(mirror) = self.mirror(&partition.mirror) else {
            let reason = format!("mirror {} is not configured", partition.mirror);
            return Box::pin(std::future::ready(PrepareOutcome::Retry { reason }));
        };
        let (source, replicas) = (mirror.source(), self.replicas.clone());
        Box::pin(async move {
            let cut = |offsets| mirror.count_truncated(key, offsets);
            prepare::run(&source, &replicas, &request, &intent, &cut).await
        })
    }

    fn progress(&self, partition: &MirrorPartition) -> Option<FetchProgress> {
        self.mirror(&partition.mirror)?
            .progress((partition.topic_id, partition.partition))
    }

    fn forget_partition(&self, partition: &MirrorPartition) {
        if let Some(mirror) = self.mirror(&partition.mirror) {
            mirror.forget((partition.topic_id, partition.partition));
        }
    }

    fn source_metadata(&self, mirror: &Str, topics: &[SourceTopic]) {
        if let Some(mirror) = self.mirror(mirror) {
            mirror.learn_leaders(topics);
        }
    }
}

//! The refresh of each mirror from its source (mirroring.md §15): cluster id, growth, deletion, re-creation, wanted topics, patterns, topic
//! configs, epochs.
//!
//! Every mirror has its own task, so a dead source stalls no other mirror; the task ends with its mirror. Topics whose wish is PAUSED or
//! STOPPED are never touched (pitfall F8, O14). What is decided is pure ([`plan`]); nothing destructive follows from an absence.

pub mod ask;
pub mod plan;
mod run;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tarn_metadata::Image;
use tarn_wire::Str;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::MirrorConfig;
use crate::lifecycle::{LifeCycle, Tools};
use crate::seam::{Source, SourceSettings};

/// What the refresh of one mirror knows, for describe. Nothing in it decides anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MirrorStatus {
    /// Why the last refresh failed, and since when refreshes fail (epoch ms).
    pub error: Option<(String, i64)>,
    /// Wanted topics: partitions at the source if known, and why they are not there yet.
    pub wanted: BTreeMap<Str, WantedStatus>,
    /// Topic configs that could not be synchronised, by topic: keys with reasons.
    pub config_errors: BTreeMap<Str, Vec<String>>,
    /// Topics that could not be refreshed, with the reason.
    pub topic_errors: BTreeMap<Str, String>,
}

/// A wanted topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedStatus {
    /// Partitions at the source.
    pub partitions: Option<i32>,
    /// Why it has not been created; `None` = it will be at the next refresh.
    pub error: Option<String>,
}

/// One mirror's task and what it works with.
#[derive(Clone)]
struct Running {
    settings: SourceSettings,
    source: Arc<dyn Source>,
    kick: Arc<Notify>,
    cancel: CancellationToken,
    status: Arc<Mutex<MirrorStatus>>,
    /// Newest wish among its members: a newer one means "refresh at once".
    newest_wish: i64,
}

/// Runs the refresh tasks.
pub struct Refresher {
    tools: Tools,
    life: Arc<LifeCycle>,
    mirrors: Mutex<BTreeMap<Str, Running>>,
    tasks: TaskTracker,
    cancel: CancellationToken,
}

impl Refresher {
    /// A refresher without mirrors.
    pub fn new(tools: Tools, life: Arc<LifeCycle>) -> Arc<Refresher> {
        let refresher = Arc::new(Refresher {
            tools,
            life: life.clone(),
            mirrors: Mutex::default(),
            tasks: TaskTracker::new(),
            cancel: CancellationToken::new(),
        });
        let weak = Arc::downgrade(&refresher);
        life.set_refresh_hook(Arc::new(move |mirror: &Str| {
            if let Some(refresher) = weak.upgrade() {
                refresher.kick(mirror);
            }
        }));
        refresher
    }

    /// Brings the tasks in line with the mirrors of the image. Contacts nobody.
    pub fn apply(self: &Arc<Self>, image: &Image) {
        let mut gone = Vec::new();
        let mut mirrors = self.mirrors.lock();
        mirrors.retain(|name, running| {
            let stays = image.mirror(name).is_some_and(|c| !c.is_empty());
            if !stays {
                running.cancel.cancel();
                gone.push(name.clone());
            }
            stays
        });
        for (name, _) in image.mirrors() {
            let config = MirrorConfig::of(image, name, &self.tools.settings);
            let settings = config.source_settings(name, &self.tools.settings);
            let newest_wish = image
                .members_of(name)
                .map(|(_, m)| m.change_offset)
                .max()
                .unwrap_or(-1);
            match mirrors.get_mut(name) {
                Some(running) => {
                    if running.settings != settings {
                        running.source = self.tools.data.configure(settings.clone());
                        running.settings = settings;
                        running.kick.notify_one();
                    }
                    if newest_wish > running.newest_wish {
                        running.newest_wish = newest_wish;
                        running.kick.notify_one();
                    }
                }
                None => {
                    let running = Running {
                        source: self.tools.data.configure(settings.clone()),
                        settings,
                        kick: Arc::new(Notify::new()),
                        cancel: self.cancel.child_token(),
                        status: Arc::default(),
                        newest_wish,
                    };
                    self.tasks
                        .spawn(self.clone().run(name.clone(), running.clone()));
                    mirrors.insert(name.clone(), running);
                }
            }
        }
        drop(mirrors);
        for name in gone {
            // Called here, not in the task: a mirror of this name that follows at once must find it gone.
            let ended = self.tools.data.forget_mirror(name);
            self.tasks.spawn(ended);
        }
    }

    /// Refreshes a mirror soon instead of at the next interval.
    pub fn kick(&self, mirror: &str) {
        if let Some(running) = self.mirrors.lock().get(mirror) {
            running.kick.notify_one();
        }
    }

    /// The source of a mirror; `None` until the image with it was applied.
    pub fn source(&self, mirror: &str) -> Option<Arc<dyn Source>> {
        self.mirrors.lock().get(mirror).map(|r| r.source.clone())
    }

    /// What the refresh of a mirror knows.
    pub fn status(&self, mirror: &str) -> MirrorStatus {
        let status = self.mirrors.lock().get(mirror).map(|r| r.status.clone());
        status.map(|s| s.lock().clone()).unwrap_or_default()
    }

    /// Ends every task.
    pub async fn shutdown(&self) {
        self.cancel.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Text of a mirror whose source answers with another cluster id than the stored one.
pub(crate) fn wrong_cluster_text(stored: &str, found: &str) -> String {
    format!(
        "the source is another cluster: its id is {found}, this mirror belongs to {stored}; correct bootstrap.servers and add the topics again"
    )
}

//! Log directories at a start: which should be there, which are, and which may be formatted.
//!
//! Absence is not emptiness. An empty directory among formatted ones is a new one only if every
//! directory is there that the metadata knows of; otherwise it is more likely one that is not
//! mounted, and the start is refused by name.
//!
//! Guards F-2: absence is not emptiness.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tarn_controller::plan::{InDirectory, plan_directories, plan_online_directories};
use tarn_controller::{ApiError, Controller};
use tarn_log::LogDir;
use tarn_metadata::Image;
use tarn_replica::{directory_id, locate, missing_directories};
use tarn_wire::Uuid;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::error::StartError;
use crate::node::Node;

/// Beside the metadata log: where each directory was last seen, for texts only.
const SEEN: &str = "log-directories";
const METADATA_LOG: &str = "__cluster_metadata-0";

/// Refuses a metadata directory whose log is gone although partitions are there: they would all be
/// taken for strays.
pub(super) fn refuse_lost_metadata(
    config: &Config,
    dirs: &[Arc<LogDir>],
) -> Result<(), StartError> {
    let log = config.metadata_log_dir.join(METADATA_LOG);
    let begun = fs::read_dir(&log).is_ok_and(|entries| {
        entries.flatten().any(|entry| {
            let path = entry.path();
            let extension = path.extension().and_then(|extension| extension.to_str());
            matches!(extension, Some("log" | "checkpoint"))
        })
    });
    if begun {
        return Ok(());
    }
    for dir in dirs {
        let found = dir.scan().map_err(|error| unusable(dir.path(), &error))?;
        if let Some(partition) = found.first() {
            let reason = format!(
                "the metadata log is missing, but {} and other partitions are there: bring it back, or point metadata.log.dir to it",
                partition.path.display()
            );
            let what = log.display().to_string();
            return Err(StartError::Corrupt { what, reason });
        }
    }
    Ok(())
}

/// What is missing, with a text for each.
pub(super) struct Missing {
    pub(super) ids: Vec<Uuid>,
    texts: Vec<String>,
}

pub(super) fn missing(config: &Config, image: &Image, dirs: &[Arc<LogDir>]) -> Missing {
    let present: Vec<Uuid> = dirs.iter().filter_map(|dir| directory_id(dir)).collect();
    let seen = seen(&config.metadata_log_dir);
    let all = missing_directories(image, config.node_id, &present);
    let text = |(id, partitions): &(Uuid, Vec<String>)| {
        let at = seen.get(&id.to_string());
        let at = at.map_or_else(String::new, |path| format!(" (last seen at {path})"));
        let held = match partitions.is_empty() {
            true => String::new(),
            false => format!(", which holds {} and perhaps more", partitions.join(", ")),
        };
        format!("{id}{at}{held}")
    };
    Missing {
        texts: all.iter().map(text).collect(),
        ids: all.into_iter().map(|(id, _)| id).collect(),
    }
}

impl Missing {
    /// Fails when there is an empty directory that may be one of the missing ones.
    pub(super) fn refuse_empty(&self, unformatted: &[PathBuf]) -> Result<(), StartError> {
        let (Some(path), false) = (unformatted.first(), self.ids.is_empty()) else {
            return Ok(());
        };
        let reason = format!(
            "is empty, while log directory {} is missing: mount it, or name it in log.dirs; if it is lost for good, format the empty one \
             with `tarn storage format --ignore-formatted`, and what the lost one held stays offline until its topics are deleted",
            self.texts.join("; ")
        );
        let path = path.clone();
        Err(StartError::Format { path, reason })
    }

    /// Says what is missing when the start goes on without it.
    pub(super) fn tell(&self) {
        for text in &self.texts {
            tracing::error!(
                "log directory {text} is missing: its partitions are offline until it is mounted and named in log.dirs"
            );
        }
    }
}

/// Fails when a directory that was used before has lost its content.
pub(super) fn refuse_emptied(
    config: &Config,
    image: &Image,
    dirs: &[Arc<LogDir>],
) -> Result<(), StartError> {
    let seen = seen(&config.metadata_log_dir);
    for dir in dirs.iter().filter(|dir| dir.is_without_recovery_points()) {
        let Some(id) = directory_id(dir).filter(|id| seen.contains_key(&id.to_string())) else {
            continue;
        };
        let others: Vec<Uuid> = dirs
            .iter()
            .filter_map(|dir| directory_id(dir))
            .filter(|other| *other != id)
            .collect();
        let lost = missing_directories(image, config.node_id, &others)
            .into_iter()
            .find(|(missing, partitions)| *missing == id && !partitions.is_empty());
        if let Some((_, partitions)) = lost {
            let reason = format!(
                "its checkpoints and partitions are gone, although it holds {} and perhaps more: bring them back, or, to begin again without \
                 them, write the two lines `0` and `0` into recovery-point-offset-checkpoint in it",
                partitions.join(", ")
            );
            let path = dir.path().to_owned();
            return Err(StartError::Format { path, reason });
        }
    }
    Ok(())
}

/// Notes in the metadata where each partition is.
pub(super) async fn record(
    config: &Config,
    controller: &Controller,
    dirs: &[Arc<LogDir>],
    missing: &[Uuid],
) -> Result<(), StartError> {
    let (image, node_id) = (controller.image(), config.node_id);
    let (all, missing) = (dirs.to_vec(), missing.to_vec());
    let located =
        tokio::task::spawn_blocking(move || locate(&all, &image, node_id, &missing)).await;
    let failed = |reason: String| StartError::Room {
        room: "the log directories",
        reason,
    };
    let located = located
        .map_err(|error| failed(error.to_string()))?
        .map_err(|error| failed(error.to_string()))?;
    if located.is_empty() {
        return Ok(());
    }
    tracing::info!(
        partitions = located.len(),
        "noting their log directories in the metadata"
    );
    let found: Vec<InDirectory> = located
        .iter()
        .map(|one| InDirectory {
            topic_id: one.topic_id,
            partition: one.partition,
            directory: one.directory,
        })
        .collect();
    let noted = controller.submit("note log directories", move |image, _| {
        Ok::<_, ApiError>((plan_directories(image, node_id, &found), ()))
    });
    noted.await.map_err(|error| failed(error.to_string()))
}

/// Remembers where the directories are.
pub(super) fn remember(config: &Config, dirs: &[Arc<LogDir>]) {
    let mut all = seen(&config.metadata_log_dir);
    let before = all.clone();
    for dir in dirs {
        if let Some(id) = directory_id(dir) {
            all.insert(id.to_string(), dir.path().display().to_string());
        }
    }
    if all == before {
        return;
    }
    let text: String = all
        .iter()
        .map(|(id, path)| format!("{id} {path}\n"))
        .collect();
    let path = config.metadata_log_dir.join(SEEN);
    if let Err(error) = fs::write(&path, text) {
        tracing::warn!(path = %path.display(), %error, "where the log directories are could not be noted");
    }
}

fn seen(metadata_dir: &Path) -> BTreeMap<String, String> {
    let text = fs::read_to_string(metadata_dir.join(SEEN)).unwrap_or_default();
    let line = |line: &str| {
        let (id, path) = line.split_once(' ')?;
        Some((id.to_owned(), path.to_owned()))
    };
    text.lines().filter_map(line).collect()
}

/// Tells the controller which directories work, so that nothing new is placed in one that went
/// offline.
pub(super) async fn follow(node: Arc<Node>, stop: CancellationToken) {
    let mut online = node.replicas.online_dirs();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            changed = online.changed() => if changed.is_err() { return },
        }
        let ids = online.borrow_and_update().clone();
        if ids.is_empty() {
            continue;
        }
        let (id, epoch) = (node.id(), node.broker_epoch);
        let told = node
            .controller
            .submit("online log directories", move |image, _| {
                Ok::<_, ApiError>((plan_online_directories(image, id, epoch, &ids)?, ()))
            });
        if let Err(error) = told.await {
            tracing::warn!(%error, "the controller does not know which log directories work");
        }
    }
}

fn unusable(path: &Path, error: &tarn_log::LogError) -> StartError {
    StartError::LogDir {
        path: path.to_owned(),
        reason: error.to_string(),
    }
}

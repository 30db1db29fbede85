//! Keys 94–96, 102–105: what changes something. Create and add ask the source first; the others
//! never do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tarn_metadata::{Image, Record};
use tarn_wire::messages::BumpLeaderEpochsRequest;
use tarn_wire::{ApiKey, Str, Uuid};

use super::forms::{MirrorRequest, NamedTopic};
use super::{MirrorReply, MirrorService, reply};
use crate::commands::{
    self, AddTopic, AddTopics, BumpRefusal, ChangeTopics, CreateMirror, Decision, EarlierParts,
    NewTopic, Planner, TopicResult, add_topics, bump_epochs, bump_members, change_topics,
    check_create, create_mirror, delete_mirror,
};
use crate::config::MirrorConfig;
use crate::config::compiled::blocking;
use crate::config::patterns::{PatternError, Patterns};
use crate::dialect::{Dialect, MirrorError};
use crate::refresh::ask::{self, NAMES_PER_REQUEST_MAX, PREFLIGHT_MS_MAX};
use crate::refresh::wrong_cluster_text;
use crate::seam::{Source, SourceError, SourceTopic, TopicAnswer};
use crate::state::MirrorState;

/// Topics in one controller decision.
const TOPICS_PER_DECISION_MAX: usize = 500;

/// Validation without placement: nothing is created.
struct DryPlanner;

impl Planner for DryPlanner {
    fn create_topic(&mut self, _: &Image, _: NewTopic<'_>) -> Result<Vec<Record>, MirrorError> {
        Ok(Vec::new())
    }

    fn grow(&mut self, _: &Image, _: &str, _: i32) -> Result<Vec<Record>, MirrorError> {
        Ok(Vec::new())
    }
}

/// What an add names.
struct Named {
    mirror: Str,
    topics: Vec<NamedTopic>,
    patterns: Arc<Patterns>,
    without: Arc<Patterns>,
}

/// The patterns of a request, compiled away from the async workers.
async fn prepared(list: &[Str]) -> Result<Arc<Patterns>, MirrorError> {
    let list = list.iter().map(Str::to_string).collect();
    let refused = |error: PatternError| MirrorError::InvalidRequest(error.to_string());
    Patterns::prepared(list).await.map_err(refused)
}

impl MirrorService {
    pub(super) async fn serve(
        &self,
        key: ApiKey,
        dialect: Dialect,
        request: MirrorRequest,
    ) -> MirrorReply {
        match request {
            MirrorRequest::Create {
                mirror,
                configs,
                allow_unreachable,
            } => {
                let creator = (dialect != Dialect::Early).then_some(dialect);
                let request = CreateMirror {
                    name: mirror,
                    configs,
                    found_cluster_id: None,
                    own_cluster_id: self.tools.settings.cluster_id.clone(),
                    creator,
                };
                let result = self.create(request, allow_unreachable).await;
                reply::plain(key, dialect, result.err().as_ref())
            }
            MirrorRequest::Delete { mirror, checked_at } => {
                let decide = move |image: &Image, _: &mut dyn Planner| {
                    Ok(Decision {
                        records: delete_mirror(image, &mirror, checked_at)?,
                        topics: Vec::new(),
                    })
                };
                let result = self
                    .tools
                    .metadata
                    .decide("delete a mirror", Box::new(decide))
                    .await;
                reply::plain(key, dialect, result.err().as_ref())
            }
            MirrorRequest::Bump(request) => reply::bumped(dialect, self.bump(&request).await),
            MirrorRequest::Add { ref mirror, .. } => {
                let name = mirror.clone();
                topics_reply(key, dialect, &name, self.add(request).await)
            }
            MirrorRequest::Change { ref mirror, .. } => {
                let name = mirror.clone();
                topics_reply(key, dialect, &name, self.change(request, dialect).await)
            }
            other => self.answer(key, dialect, other).await,
        }
    }

    /// Raises leader epochs of mirror topics; gives what was refused, and how many were asked for.
    async fn bump(
        &self,
        request: &BumpLeaderEpochsRequest,
    ) -> Result<(Vec<BumpRefusal>, usize), MirrorError> {
        let partition = |t: &tarn_wire::messages::bump_leader_epochs_request::BumpTopic| {
            let id = t.topic_id;
            t.partitions
                .iter()
                .map(move |p| (id, p.partition_index, p.min_leader_epoch))
                .collect::<Vec<_>>()
        };
        let wanted: Vec<(Uuid, i32, i32)> = request.topics.iter().flat_map(partition).collect();
        let (_, refused) = bump_members(&self.tools.metadata.image(), &wanted);
        let asked = wanted.len();
        let decide = move |image: &Image, _: &mut dyn Planner| {
            let (granted, _) = bump_members(image, &wanted);
            Ok(Decision {
                records: bump_epochs(image, &granted),
                topics: Vec::new(),
            })
        };
        self.tools
            .metadata
            .decide("bump leader epochs", Box::new(decide))
            .await
            .map(|_| (refused, asked))
    }

    async fn create(
        &self,
        request: CreateMirror,
        allow_unreachable: bool,
    ) -> Result<(), MirrorError> {
        let name = request.name.clone();
        let image = self.tools.metadata.image();
        let (definition, mut request) = blocking(move || {
            check_create(&image, &request).map(|definition| (definition, request))
        })
        .await?;
        let source = self
            .tools
            .data
            .probe(definition.source_settings(&name, &self.tools.settings));
        match ask::within(PREFLIGHT_MS_MAX, source.cluster()).await {
            Ok(cluster) => request.found_cluster_id = cluster.cluster_id.map(|id| id.detach()),
            Err(_) if allow_unreachable => {}
            Err(error) => return Err(unreachable(&name, &error)),
        }
        drop(source);
        // Refused before anything is created.
        create_mirror(&self.tools.metadata.image(), &request)?;
        // First the internal topic, so that a mirror never exists without it.
        self.tools.store.ensure_topic().await?;
        let decide = move |image: &Image, _: &mut dyn Planner| {
            Ok(Decision {
                records: create_mirror(image, &request)?,
                topics: Vec::new(),
            })
        };
        self.tools
            .metadata
            .decide("create a mirror", Box::new(decide))
            .await
            .map(|_| ())
    }

    async fn add(&self, request: MirrorRequest) -> Result<Vec<TopicResult>, MirrorError> {
        let MirrorRequest::Add {
            mirror,
            topics,
            patterns,
            without,
            include,
            exclude,
            store_names,
            replication_factor,
            validate_only,
            checked_at,
        } = request
        else {
            return Ok(Vec::new());
        };
        let named = Named {
            mirror: mirror.clone(),
            topics,
            patterns: prepared(&patterns).await?,
            without: prepared(&without).await?,
        };
        // What the decision looks at.
        let _compiled = (prepared(&include).await?, prepared(&exclude).await?);
        let image = self.tools.metadata.image();
        if image.mirror(&mirror).is_none_or(|c| c.is_empty()) {
            return Err(MirrorError::UnknownMirror(mirror.to_string()));
        }
        let config = MirrorConfig::of(&image, &mirror, &self.tools.settings);
        let _compiled_before = config.prepare_patterns().await;
        // Patterns that are only to be stored need no source: discovery looks for their topics.
        let asks = !named.topics.is_empty() || !named.patterns.is_empty();
        let found = if asks {
            self.ask_source(&named).await?
        } else {
            Vec::new()
        };
        let add = AddTopics {
            mirror: mirror.clone(),
            topics: found,
            replication_factor,
            include,
            exclude,
            store_names,
            checked_at,
            ..AddTopics::default()
        };
        if validate_only {
            return add_topics(&self.tools.metadata.image(), &mut DryPlanner, &add)
                .map(|d| d.topics);
        }
        self.tools.store.ensure_topic().await?;
        let results = self.decide_adds(add).await?;
        self.refresher.kick(&mirror);
        Ok(results)
    }

    /// Large requests are decided in parts; each topic is all or nothing anyway, and the last part
    /// stores the patterns.
    async fn decide_adds(&self, mut add: AddTopics) -> Result<Vec<TopicResult>, MirrorError> {
        let mut results = Vec::new();
        let topics = std::mem::take(&mut add.topics);
        let mut parts: Vec<Vec<AddTopic>> = topics
            .chunks(TOPICS_PER_DECISION_MAX)
            .map(<[_]>::to_vec)
            .collect();
        if parts.is_empty() {
            parts.push(Vec::new());
        }
        let count = parts.len();
        for (index, topics) in parts.into_iter().enumerate() {
            let part = AddTopics {
                topics,
                more_follow: index + 1 < count,
                ..add.clone()
            };
            let decide =
                move |image: &Image, planner: &mut dyn Planner| add_topics(image, planner, &part);
            let decided = self
                .tools
                .metadata
                .decide("add topics to a mirror", Box::new(decide))
                .await?;
            for result in &decided {
                let EarlierParts { done, refused } = &mut add.earlier;
                match result.error {
                    None => done.push(result.name.clone()),
                    Some(_) => refused.push(result.name.clone()),
                }
            }
            results.extend(decided);
        }
        Ok(results)
    }

    /// Asks the source about everything an add names. Nothing has been changed when it cannot be
    /// reached.
    async fn ask_source(&self, named: &Named) -> Result<Vec<AddTopic>, MirrorError> {
        let image = self.tools.metadata.image();
        let config = MirrorConfig::of(&image, &named.mirror, &self.tools.settings);
        let source = match self.refresher.source(&named.mirror) {
            Some(source) => source,
            None => self
                .tools
                .data
                .probe(config.source_settings(&named.mirror, &self.tools.settings)),
        };
        // What the mirror's own connections know may be of the past (a source that was away, an
        // address that was another cluster's): only a source that is asked afresh may be called
        // unreachable.
        let questions = async {
            match self.questions(named, &config, &source).await {
                Err(_) => {
                    let settings = config.source_settings(&named.mirror, &self.tools.settings);
                    let fresh = self.tools.data.probe(settings);
                    self.questions(named, &config, &fresh).await
                }
                answers => answers,
            }
        };
        let answer = ask::within(PREFLIGHT_MS_MAX, questions).await;
        let Answers {
            topics,
            mut facts,
            loops,
            undecided,
        } = answer.map_err(|e| unreachable(&named.mirror, &e))?;
        let refused = |name: &Str| match (loops.get(name), undecided.get(name)) {
            (Some(foreign), _) => Some(MirrorError::Loop(ask::loop_text(name, foreign))),
            (None, Some(reason)) if image.topic(name).is_some() => {
                Some(MirrorError::SourceUndecided {
                    topic: name.to_string(),
                    reason: reason.clone(),
                })
            }
            _ => None,
        };
        let add = |(name, asked_id): (Str, Uuid)| AddTopic {
            source: facts.remove(&name),
            refused: refused(&name),
            has_local_data: crate::local::has_data(&self.tools.replicas, &image, &name),
            fresh_id: Uuid::random(),
            asked_id,
            name,
        };
        Ok(topics.into_iter().map(add).collect())
    }

    async fn questions(
        &self,
        named: &Named,
        config: &MirrorConfig,
        source: &Arc<dyn Source>,
    ) -> Result<Answers, SourceError> {
        let cluster = source.cluster().await?;
        if let (Some(stored), Some(found)) = (config.source_cluster_id(), &cluster.cluster_id)
            && stored != *found
        {
            return Err(SourceError::Other(wrong_cluster_text(&stored, found)));
        }
        let mut present: Vec<SourceTopic> = Vec::new();
        let mut topics: Vec<(Str, Uuid)> = Vec::new();
        let mut seen = BTreeSet::new();
        let mut undecided = BTreeMap::new();
        for chunk in named.topics.chunks(NAMES_PER_REQUEST_MAX) {
            let answers = source
                .topics(chunk.iter().map(|t| t.name.clone()).collect())
                .await?;
            for (topic, answer) in chunk.iter().zip(answers) {
                if seen.insert(topic.name.clone()) {
                    topics.push((topic.name.clone(), topic.id));
                    match answer {
                        TopicAnswer::Present(found) => present.push(found),
                        TopicAnswer::Absent => {}
                        TopicAnswer::Unknown(reason) => {
                            undecided.insert(topic.name.clone(), reason);
                        }
                    }
                }
            }
        }
        if !named.patterns.is_empty() {
            let all = source.all_topics().await?;
            for topic in ask::select(all, &named.patterns, &named.without).await {
                if seen.insert(topic.name.detach()) {
                    topics.push((topic.name.detach(), Uuid::ZERO));
                    present.push(topic);
                }
            }
        }
        let (facts, loops) = if topics.is_empty() {
            Default::default()
        } else {
            ask::joining(&self.tools, source, config, &present).await?
        };
        Ok(Answers {
            topics,
            facts,
            loops,
            undecided,
        })
    }

    async fn change(
        &self,
        request: MirrorRequest,
        dialect: Dialect,
    ) -> Result<Vec<TopicResult>, MirrorError> {
        let MirrorRequest::Change {
            wish,
            mirror,
            topics,
            patterns,
            all,
            stored_patterns,
            validate_only,
            checked_at,
        } = request
        else {
            return Ok(Vec::new());
        };
        let literal: BTreeSet<Str> = patterns.iter().cloned().collect();
        let patterns = prepared(&patterns).await?;
        let failed: BTreeSet<Str> = self
            .life
            .shown(&mirror)
            .into_iter()
            .filter(|s| {
                s.record
                    .as_ref()
                    .is_some_and(|r| r.state == MirrorState::Failed)
            })
            .map(|s| s.partition.topic)
            .collect();
        let image = self.tools.metadata.image();
        let by_name = topics.into_iter().map(|t| (t.name, t.id)).collect();
        let mut named: Vec<(Str, Uuid)> = by_name;
        let (of_image, of_mirror, of_failed) = (image.clone(), mirror.clone(), failed.clone());
        let choice = blocking(move || {
            let chosen = |topic: &Str| all || patterns.matches(topic);
            commands::choose(&of_image, &of_mirror, wish, &of_failed, &literal, &chosen)
        });
        named.extend(choice.await);
        let change = ChangeTopics {
            mirror,
            wish,
            topics: named,
            patterns: stored_patterns,
            resume_always: dialect != Dialect::Early,
            failed,
            checked_at,
        };
        if validate_only {
            return change_topics(&image, &change).map(|d| d.topics);
        }
        let decide = move |image: &Image, _: &mut dyn Planner| change_topics(image, &change);
        self.tools
            .metadata
            .decide("change mirror topics", Box::new(decide))
            .await
    }
}

/// What the source said to an add.
struct Answers {
    topics: Vec<(Str, Uuid)>,
    facts: BTreeMap<Str, crate::commands::SourceFacts>,
    loops: BTreeMap<Str, Str>,
    /// Topics of which the source cannot say now whether it has them, with its reason.
    undecided: BTreeMap<Str, String>,
}

fn unreachable(mirror: &Str, error: &SourceError) -> MirrorError {
    MirrorError::SourceUnreachable {
        mirror: mirror.to_string(),
        reason: error.to_string(),
    }
}

fn topics_reply(
    key: ApiKey,
    dialect: Dialect,
    mirror: &Str,
    result: Result<Vec<TopicResult>, MirrorError>,
) -> MirrorReply {
    match result {
        Ok(topics) => reply::topics(key, dialect, mirror, None, &topics),
        Err(error) => reply::topics(key, dialect, mirror, Some(&error), &[]),
    }
}

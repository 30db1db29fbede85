//! What clusters other than ours leave to the tool: resolving patterns, asking the source for its
//! cluster id, creating topics.
//!
//! Both prototype dialects are spoken here, so that the tool also drives a prototype cluster. The
//! source is reached in plain text only.

use std::collections::BTreeSet;
use std::time::Duration;

use tarn_client::{Cluster, HostPort, MetadataTopics};
use tarn_wire::messages as m;
use tarn_wire::{Str, Uuid};

use super::destination::{self, Destination, Server, TopicResult};
use super::failure::{self, Dialect};
use super::options::{Options, Verb};
use super::patterns;
use crate::CliError;

const SOURCE_LIMIT: Duration = Duration::from_secs(15);
/// The early tool gives its brokers this time to learn of new topics.
const SETTLE: Duration = Duration::from_secs(1);
const TOPIC_ALREADY_EXISTS: i16 = tarn_wire::ErrorCode::TOPIC_ALREADY_EXISTS.0;
const BOOTSTRAP_KEY: &str = "bootstrap.servers";
const CLUSTER_ID_KEY: &str = "mirror.source.cluster.id";

fn failed(text: impl Into<String>) -> CliError {
    CliError::Failed(text.into())
}

/// Turns an answer into results. A top-level error counts only when no topic carries one: our
/// broker repeats the first topic's there.
pub(crate) fn collect(
    destination: &Destination,
    mirror: &str,
    code: i16,
    text: Option<&Str>,
    topics: Vec<(String, i16, Option<Str>)>,
) -> Result<Vec<TopicResult>, CliError> {
    let dialect = destination.dialect();
    if code != 0 && topics.iter().all(|(_, code, _)| *code == 0) {
        return Err(failed(
            match failure::is_unknown_mirror_code(dialect, code) {
                true => failure::unknown_mirror(mirror),
                false => failure::line(dialect, code, text),
            },
        ));
    }
    let result = |(topic, code, text): (String, i16, Option<Str>)| TopicResult {
        topic,
        error: (code != 0).then(|| failure::topic_text(dialect, code, text.as_ref())),
    };
    Ok(topics.into_iter().map(result).collect())
}

/// A late cluster wants the source's id in the definition; the tool finds it out. Ours and early
/// ones do without.
pub(crate) async fn complete_config(
    destination: &Destination,
    mirror: &str,
    mut config: Vec<(String, String)>,
) -> Result<Vec<(String, String)>, CliError> {
    if destination.server != Server::Foreign(Dialect::Late)
        || config.iter().any(|(key, _)| key == CLUSTER_ID_KEY)
    {
        return Ok(config);
    }
    let source = connect_source(mirror, &config).await?;
    if let Some(id) = source.view().cluster_id {
        config.push((CLUSTER_ID_KEY.into(), id.to_string()));
    }
    Ok(config)
}

async fn connect_source(mirror: &str, config: &[(String, String)]) -> Result<Cluster, CliError> {
    let unreachable = |reason: String| {
        failed(format!(
            "Cannot reach the source of mirror '{mirror}': {reason}"
        ))
    };
    let value = |key: &str| {
        config
            .iter()
            .find(|(k, _)| k == key)
            .map(|(_, v)| v.as_str())
    };
    if let Some(protocol) =
        value("security.protocol").filter(|p| !p.eq_ignore_ascii_case("PLAINTEXT"))
    {
        return Err(unreachable(format!(
            "security.protocol {protocol} is not supported yet, only PLAINTEXT"
        )));
    }
    let bootstrap = value(BOOTSTRAP_KEY).ok_or_else(|| {
        failed(format!(
            "Mirror '{mirror}' not found or has no configuration"
        ))
    })?;
    let cluster = destination::cluster(
        HostPort::parse_list(bootstrap).map_err(|e| unreachable(e.to_string()))?,
    );
    match tokio::time::timeout(SOURCE_LIMIT, cluster.metadata(&MetadataTopics::None)).await {
        Ok(Ok(_)) => Ok(cluster),
        Ok(Err(e)) => Err(unreachable(e.to_string())),
        Err(_) => Err(unreachable(format!(
            "no answer within {} s",
            SOURCE_LIMIT.as_secs()
        ))),
    }
}

/// A topic at the source.
struct SourceTopic {
    name: String,
    id: Uuid,
    partitions: i32,
}

/// Adds, removes, pauses or resumes topics at a foreign cluster.
pub(crate) async fn topics(
    options: &Options,
    destination: &Destination,
    dialect: Dialect,
    mirror: &str,
    store_patterns: bool,
) -> Result<Vec<TopicResult>, CliError> {
    if options.verb == Verb::Add {
        return add(options, destination, dialect, mirror, store_patterns).await;
    }
    let rows = destination.describe(Some(mirror)).await?.rows;
    let own: BTreeSet<&str> = rows
        .iter()
        .filter(|r| r.mirror == mirror)
        .map(|r| r.topic.as_str())
        .collect();
    let everything = [".*".to_owned()];
    let wanted = if options.all_topics {
        &everything[..]
    } else {
        &options.topics
    };
    let names = patterns::select(own.into_iter(), wanted, &[]);
    if names.is_empty() || options.dry_run {
        return Ok(names
            .into_iter()
            .map(|topic| TopicResult { topic, error: None })
            .collect());
    }
    change(options.verb, destination, dialect, mirror, &names).await
}

/// The requests of remove, pause and resume for named topics.
async fn change(
    verb: Verb,
    destination: &Destination,
    dialect: Dialect,
    mirror: &str,
    names: &[String],
) -> Result<Vec<TopicResult>, CliError> {
    macro_rules! send {
        ($request:ident, $nested:ident) => {{
            let topics = names
                .iter()
                .map(|n| m::$nested::MirrorTopic {
                    topic_name: n.as_str().into(),
                    ..Default::default()
                })
                .collect();
            let request = m::$request {
                mirror_name: mirror.into(),
                topics,
                ..Default::default()
            };
            let answer = destination.call(&request).await?;
            let topics = answer
                .topics
                .into_iter()
                .map(|t| (t.name.to_string(), t.error_code, t.error_message))
                .collect();
            let results = collect(
                destination,
                mirror,
                answer.error_code,
                answer.error_message.as_ref(),
                topics,
            )?;
            // Prototypes forget topics that went well.
            Ok(named(names, results))
        }};
    }
    match (verb, dialect) {
        (Verb::Remove, Dialect::Early) => send!(
            RemoveTopicsFromMirrorRequest,
            remove_topics_from_mirror_request
        ),
        (Verb::Remove, Dialect::Late) => send!(StopMirrorTopicsRequest, stop_mirror_topics_request),
        (Verb::Pause, Dialect::Early) => {
            send!(PauseMirrorTopicsRequest, pause_mirror_topics_request)
        }
        (Verb::Pause, Dialect::Late) => send!(
            LatePauseMirrorTopicsRequest,
            late_pause_mirror_topics_request
        ),
        (_, Dialect::Early) => send!(ResumeMirrorTopicsRequest, resume_mirror_topics_request),
        (_, Dialect::Late) => send!(
            LateResumeMirrorTopicsRequest,
            late_resume_mirror_topics_request
        ),
    }
}

/// One result for every name that was sent.
fn named(names: &[String], results: Vec<TopicResult>) -> Vec<TopicResult> {
    let error_of = |name: &String| {
        results
            .iter()
            .find(|r| r.topic == *name)
            .and_then(|r| r.error.clone())
    };
    names
        .iter()
        .map(|name| TopicResult {
            topic: name.clone(),
            error: error_of(name),
        })
        .collect()
}

async fn add(
    options: &Options,
    destination: &Destination,
    dialect: Dialect,
    mirror: &str,
    store_patterns: bool,
) -> Result<Vec<TopicResult>, CliError> {
    let config = destination.mirror_config(mirror).await?;
    let source = connect_source(mirror, &config).await?;
    let chosen = source_topics(&source, mirror, options).await?;
    // Patterns that match nothing yet can be stored by the late form only.
    let only_stores = store_patterns && dialect == Dialect::Late && !options.dry_run;
    if (chosen.is_empty() && !only_stores) || options.dry_run {
        let seen = |t: SourceTopic| TopicResult {
            topic: t.name,
            error: None,
        };
        return Ok(chosen.into_iter().map(seen).collect());
    }
    let names: Vec<String> = chosen.iter().map(|t| t.name.clone()).collect();
    let results = match dialect {
        Dialect::Early => add_early(options, destination, mirror, &chosen).await?,
        Dialect::Late => {
            let stored = store_patterns.then_some(options);
            add_late(destination, mirror, &chosen, stored).await?
        }
    };
    Ok(named(&names, results))
}

/// The early way: the tool creates the topics, gives the brokers a moment, and then assigns them.
async fn add_early(
    options: &Options,
    destination: &Destination,
    mirror: &str,
    chosen: &[SourceTopic],
) -> Result<Vec<TopicResult>, CliError> {
    use m::add_topics_to_mirror_request::MirrorTopic;
    let refused = create_topics(destination, chosen, options.replication_factor).await?;
    tokio::time::sleep(SETTLE).await;
    let made = chosen
        .iter()
        .filter(|t| !refused.iter().any(|r| r.topic == t.name));
    let topics = made.map(|t| MirrorTopic {
        topic_name: t.name.as_str().into(),
        ..Default::default()
    });
    let request = m::AddTopicsToMirrorRequest {
        mirror_name: mirror.into(),
        topics: topics.collect(),
        ..Default::default()
    };
    let answer = destination.call(&request).await?;
    let text = answer.error_message.as_ref();
    let topics = answer.topics.into_iter();
    let topics = topics
        .map(|t| (t.name.to_string(), t.error_code, t.error_message))
        .collect();
    let mut results = collect(destination, mirror, answer.error_code, text, topics)?;
    results.extend(refused);
    Ok(results)
}

/// The late way: the controller creates what is missing from ids and partition counts, and stores
/// the patterns of `stored`.
async fn add_late(
    destination: &Destination,
    mirror: &str,
    chosen: &[SourceTopic],
    stored: Option<&Options>,
) -> Result<Vec<TopicResult>, CliError> {
    use m::start_mirror_topics_request::MirrorTopic;
    let topics = chosen.iter().map(|t| MirrorTopic {
        topic_id: t.id,
        topic_name: t.name.as_str().into(),
        num_partitions: t.partitions,
        ..Default::default()
    });
    let list = |patterns: &[String]| patterns.iter().map(|p| Str::from(p.as_str())).collect();
    let request = m::StartMirrorTopicsRequest {
        mirror_name: mirror.into(),
        topics: topics.collect(),
        include_patterns: stored.map_or_else(Vec::new, |o| list(&o.topics)),
        exclude_patterns: stored.map_or_else(Vec::new, |o| list(&o.exclude)),
        ..Default::default()
    };
    let answer = destination.call(&request).await?;
    let text = answer.error_message.as_ref();
    let topics = answer.topics.into_iter();
    let topics = topics
        .map(|t| (t.name.to_string(), t.error_code, t.error_message))
        .collect();
    collect(destination, mirror, answer.error_code, text, topics)
}

async fn source_topics(
    source: &Cluster,
    mirror: &str,
    options: &Options,
) -> Result<Vec<SourceTopic>, CliError> {
    let answer = source
        .metadata(&MetadataTopics::All)
        .await
        .map_err(|e| failed(format!("Cannot reach the source of mirror '{mirror}': {e}")))?;
    let all: Vec<SourceTopic> = answer
        .topics
        .into_iter()
        .filter(|t| !t.is_internal)
        .filter_map(|t| {
            let partitions = i32::try_from(t.partitions.len()).ok()?;
            Some(SourceTopic {
                name: t.name?.to_string(),
                id: t.topic_id,
                partitions,
            })
        })
        .collect();
    let names = patterns::select(
        all.iter().map(|t| t.name.as_str()),
        &options.topics,
        &options.exclude,
    );
    Ok(all
        .into_iter()
        .filter(|t| names.contains(&t.name))
        .collect())
}

/// Creates topics with the source's ids (CreateTopics v8); gives those that could not be made. One
/// that exists is fine.
async fn create_topics(
    destination: &Destination,
    topics: &[SourceTopic],
    replication_factor: Option<i16>,
) -> Result<Vec<TopicResult>, CliError> {
    use m::create_topics_request::{CreatableTopic, MirrorInfo};
    let wanted = topics.iter().map(|t| CreatableTopic {
        name: t.name.as_str().into(),
        num_partitions: t.partitions,
        replication_factor: replication_factor.unwrap_or(-1),
        mirror_info: Some(MirrorInfo {
            topic_id: t.id,
            ..Default::default()
        }),
        ..Default::default()
    });
    let answer = destination
        .call(&m::CreateTopicsRequest {
            topics: wanted.collect(),
            ..Default::default()
        })
        .await?;
    let refused = answer
        .topics
        .into_iter()
        .filter(|t| t.error_code != 0 && t.error_code != TOPIC_ALREADY_EXISTS);
    Ok(refused
        .map(|t| TopicResult {
            error: Some(failure::topic_text(
                destination.dialect(),
                t.error_code,
                t.error_message.as_ref(),
            )),
            topic: t.name.to_string(),
        })
        .collect())
}

//! Data plane: one source cluster, its connections and the questions asked of it.
//!
//! Implements [`Source`] for the control plane and gives the fetchers and the preparation what they
//! ask of a source: leaders, log bounds, epoch ends, a batch to compare. It keeps brokers and
//! connections (in `tarn_client`) and whether the source can be reached; it keeps no topics. What a
//! source says is not trusted: names are checked, partitions must be contiguous, an absence is
//! asked for twice.

mod content;
mod epoch_ends;
mod offsets;
mod topics;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tarn_client::{
    ClientError, Cluster, ClusterOptions, ConnectionOptions, HostPort, MetadataTopics, text_cut,
};
use tarn_fetch::NoOffset;
use tarn_wire::messages::MetadataResponse;
use tarn_wire::{ErrorCode, Str};

use crate::lookup::{self, Lookups};
use crate::seam::{
    BoxFuture, ConnectionSettings, ForeignMirror, Reachability, Source, SourceCluster, SourceError,
    SourceSettings, SourceTopic, SourceTopicConfigs, TopicAnswer,
};

pub(crate) use content::{Finding, Subject, compare_all};
pub(crate) use epoch_ends::{EpochQuestion, ends_of_epochs};
pub(crate) use offsets::{LeaderOf, list_bounds};
pub(crate) use topics::source_topic;

/// First pause after a connection attempt that failed.
const RECONNECT_BACKOFF: Duration = Duration::from_millis(50);
/// Longest pause between connection attempts, so that a source that comes back is found at once.
const RECONNECT_BACKOFF_MAX: Duration = Duration::from_secs(1);

/// Epoch milliseconds.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Why nothing comes: a quota of the source.
pub(crate) fn throttled(throttle_ms: i32) -> String {
    format!(
        "the source throttles this mirror: a quota there holds answers back for {throttle_ms} ms"
    )
}

/// Why a source's answer holds no value for a partition that it was asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoValue {
    /// The source's error for it.
    Refused(ErrorCode),
    /// The answer leaves the partition out, and why as far as it is known. It says nothing about
    /// the topic: nobody looks for one that is gone.
    LeftOut(String),
}

impl From<NoOffset> for NoValue {
    fn from(why: NoOffset) -> NoValue {
        match why {
            NoOffset::Refused(code) => NoValue::Refused(code),
            NoOffset::LeftOut { throttle_ms } => NoValue::left_out(throttle_ms),
        }
    }
}

impl NoValue {
    /// Of an answer that leaves a partition out. A broker whose quota is used up answers Fetch
    /// without any partition.
    pub(crate) fn left_out(throttle_ms: i32) -> NoValue {
        NoValue::LeftOut(if throttle_ms > 0 {
            throttled(throttle_ms)
        } else {
            "the source's answer leaves the partition out".to_owned()
        })
    }

    /// For describe: what was asked, and of which partition.
    pub(crate) fn text(&self, what: &str, partition: impl std::fmt::Display) -> String {
        match self {
            NoValue::Refused(code) => {
                let code = code.name();
                format!("the source refused {what} of {partition}: {code}")
            }
            NoValue::LeftOut(why) => format!("{what} of {partition} waits: {why}"),
        }
    }
}

/// Whether a source can be reached, as last seen by anybody who talked to it. One broker that is
/// away makes no source unreachable: that is said when none of its addresses can be talked to.
#[derive(Debug)]
pub(crate) struct Reach(Mutex<ReachState>);

#[derive(Debug)]
struct ReachState {
    shown: Reachability,
    /// The first failure, of any broker, since somebody answered; epoch ms.
    failing_since_ms: Option<i64>,
}

impl Reach {
    pub(crate) fn new() -> Arc<Reach> {
        Arc::new(Reach(Mutex::new(ReachState {
            shown: Reachability::Untried,
            failing_since_ms: None,
        })))
    }

    /// A broker of the source answered.
    pub(crate) fn answered(&self) {
        let mut state = self.0.lock();
        state.shown = Reachability::Reachable;
        state.failing_since_ms = None;
    }

    /// One broker could not be talked to; others may.
    pub(crate) fn broker_failed(&self, now_ms: i64) {
        self.0.lock().failing_since_ms.get_or_insert(now_ms);
    }

    /// No address of the source could be talked to.
    pub(crate) fn failed(&self, reason: &str, now_ms: i64) {
        let mut state = self.0.lock();
        let since_ms = *state.failing_since_ms.get_or_insert(now_ms);
        state.shown = Reachability::Unreachable {
            since_ms,
            reason: Str::from(text_cut(reason)),
        };
    }

    /// Whether the last exchange failed.
    pub(crate) fn is_unreachable(&self) -> bool {
        matches!(self.0.lock().shown, Reachability::Unreachable { .. })
    }

    pub(crate) fn get(&self) -> Reachability {
        self.0.lock().shown.clone()
    }
}

/// The source of one mirror, or of one preflight.
#[derive(Debug)]
pub struct SourceClient {
    cluster: Result<Cluster, String>,
    expected_cluster_id: Option<Str>,
    reach: Arc<Reach>,
    lookups: Lookups,
}

impl SourceClient {
    /// A source behind these settings. Connects when first asked; an address that is none is told
    /// then.
    pub fn new(settings: &SourceSettings) -> SourceClient {
        SourceClient {
            cluster: cluster_of(settings),
            expected_cluster_id: settings.cluster_id.clone(),
            reach: Reach::new(),
            lookups: Lookups::default(),
        }
    }

    /// Look-ups of last mirror epochs that wait for their question.
    pub(crate) fn lookups(&self) -> &Lookups {
        &self.lookups
    }

    pub(crate) fn reach(&self) -> &Arc<Reach> {
        &self.reach
    }

    pub(crate) fn cluster(&self) -> Result<&Cluster, SourceError> {
        self.cluster
            .as_ref()
            .map_err(|e| SourceError::Unreachable(e.clone()))
    }

    /// Notes how an exchange with whichever broker could be had ended and turns its error into
    /// ours.
    pub(crate) fn note<T>(&self, outcome: Result<T, ClientError>) -> Result<T, SourceError> {
        if let Err(e) = &outcome
            && e.is_connectivity()
        {
            self.reach.failed(&e.to_string(), now_ms());
        }
        self.note_answer(outcome)
    }

    /// As [`SourceClient::note`], of an exchange with one certain broker: others may be there
    /// although this one is not.
    pub(crate) fn note_broker<T>(&self, outcome: Result<T, ClientError>) -> Result<T, SourceError> {
        if let Err(e) = &outcome
            && e.is_connectivity()
        {
            self.reach.broker_failed(now_ms());
        }
        self.note_answer(outcome)
    }

    fn note_answer<T>(&self, outcome: Result<T, ClientError>) -> Result<T, SourceError> {
        if outcome.is_ok() {
            self.reach.answered();
        }
        outcome.map_err(|e| source_error(&e))
    }

    /// Asks for metadata and refuses the answer of another cluster than the stored one.
    ///
    /// # Errors
    /// [`AskError::WrongCluster`] with the id that was found, or why there is no answer.
    pub(crate) async fn metadata(
        &self,
        topics: &MetadataTopics,
    ) -> Result<MetadataResponse, AskError> {
        let outcome = self.cluster()?.metadata(topics).await;
        if let Err(ClientError::WrongCluster { found, .. }) = &outcome {
            return Err(AskError::WrongCluster {
                found: found.clone(),
            });
        }
        Ok(self.note(outcome)?)
    }

    /// Compares an answered cluster id with the stored one; an absent id proves nothing.
    pub(crate) fn check_cluster_id(&self, found: Option<&str>) -> Result<(), AskError> {
        match (&self.expected_cluster_id, found) {
            (Some(expected), Some(found)) if !found.is_empty() && expected != found => {
                Err(AskError::WrongCluster {
                    found: Str::from(text_cut(found)),
                })
            }
            _ => Ok(()),
        }
    }
}

/// Why a question of the data plane has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AskError {
    #[error(
        "the source answered as cluster {found}, which is not the one this mirror was made for"
    )]
    WrongCluster { found: Str },
    #[error(transparent)]
    Source(#[from] SourceError),
}

impl From<AskError> for SourceError {
    fn from(e: AskError) -> Self {
        match e {
            AskError::WrongCluster { .. } => SourceError::Other(e.to_string()),
            AskError::Source(e) => e,
        }
    }
}

fn cluster_of(settings: &SourceSettings) -> Result<Cluster, String> {
    let ConnectionSettings {
        bootstrap_servers, ..
    } = &settings.connection;
    let bootstrap: Result<Vec<HostPort>, ClientError> =
        bootstrap_servers.iter().map(|s| s.parse()).collect();
    let bootstrap = bootstrap.map_err(|e| format!("bootstrap.servers: {e}"))?;
    if bootstrap.is_empty() {
        return Err("bootstrap.servers is empty".to_string());
    }
    let mut options = ClusterOptions::new(bootstrap);
    options.connection = connection_options(settings);
    options.reconnect_backoff = RECONNECT_BACKOFF;
    options.reconnect_backoff_max = RECONNECT_BACKOFF_MAX;
    options.idle_max = positive_ms(settings.connection.idle_ms_max);
    options.cluster_id = settings.cluster_id.clone();
    Ok(Cluster::new(options))
}

/// Options of every connection to the source; fetchers set a client id of their own.
fn connection_options(settings: &SourceSettings) -> ConnectionOptions {
    let connection = &settings.connection;
    let or = |ms: Option<Duration>, default: u64| ms.unwrap_or(Duration::from_millis(default));
    ConnectionOptions {
        client_id: Str::from(format!("mirrorName-{}", &*settings.mirror)),
        connect_timeout: or(positive_ms(connection.connect_timeout_ms), 10_000),
        request_timeout: or(positive_ms(connection.request_timeout_ms.into()), 30_000),
        receive_buffer_bytes: u32::try_from(connection.receive_buffer_bytes)
            .ok()
            .filter(|&b| b > 0),
        ..ConnectionOptions::default()
    }
}

fn positive_ms(ms: i64) -> Option<Duration> {
    u64::try_from(ms)
        .ok()
        .filter(|&ms| ms > 0)
        .map(Duration::from_millis)
}

/// The one mapping of client errors to errors of a source.
pub(crate) fn source_error(e: &ClientError) -> SourceError {
    let text = text_cut(&e.to_string()).to_string();
    match e {
        ClientError::Unsupported { .. } => SourceError::Unsupported(text),
        ClientError::Refused { code, .. } if is_denial(*code) => SourceError::Denied(text),
        e if e.is_connectivity() => SourceError::Unreachable(text),
        _ => SourceError::Other(text),
    }
}

pub(crate) fn is_denial(code: ErrorCode) -> bool {
    [
        ErrorCode::TOPIC_AUTHORIZATION_FAILED,
        ErrorCode::CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode::GROUP_AUTHORIZATION_FAILED,
    ]
    .contains(&code)
}

impl Source for SourceClient {
    fn cluster(&self) -> BoxFuture<'_, Result<SourceCluster, SourceError>> {
        Box::pin(topics::cluster(self))
    }

    fn all_topics(&self) -> BoxFuture<'_, Result<Vec<SourceTopic>, SourceError>> {
        Box::pin(topics::all(self))
    }

    fn topics(&self, names: Vec<Str>) -> BoxFuture<'_, Result<Vec<TopicAnswer>, SourceError>> {
        Box::pin(topics::named(self, names))
    }

    fn topic_configs(
        &self,
        names: Vec<Str>,
    ) -> BoxFuture<'_, Result<Vec<SourceTopicConfigs>, SourceError>> {
        Box::pin(topics::configs(self, names))
    }

    fn mirrors_from(
        &self,
        cluster_id: Str,
    ) -> BoxFuture<'_, Result<Vec<ForeignMirror>, SourceError>> {
        Box::pin(lookup::mirrors_from(self, cluster_id))
    }

    fn reachability(&self) -> Reachability {
        self.reach.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One broker that is away does not make the source unreachable; when all are, it has been so
    /// since the first failure.
    #[test]
    fn a_source_is_unreachable_when_no_broker_of_it_can_be_reached() {
        let reach = Reach::new();
        reach.broker_failed(5);
        assert_eq!(reach.get(), Reachability::Untried);
        reach.answered();
        reach.broker_failed(10);
        assert_eq!(reach.get(), Reachability::Reachable);
        reach.failed("nobody answers", 20);
        let reason = Str::from("nobody answers");
        let since_ms = 10;
        assert_eq!(reach.get(), Reachability::Unreachable { since_ms, reason });
        reach.answered();
        assert_eq!(reach.get(), Reachability::Reachable);
    }

    /// Whatever a source says is cut before it is kept.
    #[test]
    fn a_long_text_of_a_source_is_cut_at_the_door() {
        let text = "\u{20ac}".repeat(20_000);
        let reach = Reach::new();
        reach.failed(&text, 1);
        let Reachability::Unreachable { reason, .. } = reach.get() else {
            panic!("unreachable");
        };
        assert!(reason.len() <= 1024 && reason.len() > 1000);
        let error = source_error(&ClientError::NoBroker(text));
        assert!(error.to_string().len() <= 1024);
    }
}

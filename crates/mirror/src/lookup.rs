//! Data plane: what the source remembers of mirroring from us (docs/mirroring.md §2.4), over the
//! mirror RPCs 98 and 99 of a foreign cluster.
//!
//! Asks in the late form, which an early server reads too, and decodes the answer strictly as late,
//! then as early. The result is three-valued: only a source that certainly has no mirror from us,
//! or no mirroring at all, is "no record". What many partitions ask at once goes out in one
//! question to each broker, without the states of all others where the source can leave them out.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tarn_client::{Handle, MetadataTopics, Versions, text_cut};
use tarn_wire::messages::describe_cluster_mirrors_request::LastMirrorEpochLookup;
use tarn_wire::messages::{
    DescribeClusterMirrorsRequest, DescribeClusterMirrorsResponse, DescribeMirrorsResponse,
    ListClusterMirrorsRequest, ListClusterMirrorsResponse, ListMirrorsResponse,
};
use tarn_wire::{ApiKey, ErrorCode, Message, Str, Uuid, decode_exact, encode_body};

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::prepare::decide::Lookup;
use crate::seam::{ForeignMirror, SourceError};
use crate::source::SourceClient;

const LIST: ApiKey = ApiKey(98);
const DESCRIBE: ApiKey = ApiKey(99);
/// How long look-ups are gathered before they are sent together.
const GATHER: Duration = Duration::from_millis(20);
/// Most partitions in one question.
const LOOKUPS_PER_QUESTION_MAX: usize = 5_000;
/// Most brokers of a source that are asked.
const BROKERS_MAX: usize = 1_000;
/// How long connections to the source's brokers are waited for.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(5);
/// The control keys of mirroring; a stock Kafka may use single ones of these numbers for something
/// else.
const MIRROR_KEYS: [i16; 4] = [95, 96, 98, 99];
/// State name of a partition that is not mirrored any more, the same in all dialects.
const STOPPED: &str = "STOPPED";

/// Whether a broker has mirroring.
fn has_mirroring(versions: &Versions) -> bool {
    MIRROR_KEYS.iter().all(|&key| {
        versions
            .range(ApiKey(key))
            .is_some_and(|r| r.min == 0 && r.max == 0)
    })
}

/// One mirror of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listed {
    name: Str,
    source_cluster_id: Str,
    /// Topics that are not stopped; `None` = this dialect does not list them.
    active_topics: Option<Vec<Str>>,
}

/// What a broker of the source says of its mirrors' partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Described {
    /// Mirror, topic, partition, state name, last mirror epoch (early) or −1.
    partitions: Vec<(Str, Str, i32, Str, i32)>,
    /// Answers to the look-ups (late): topic id, partition, epoch, and what our own brokers say.
    lookups: Vec<(Uuid, i32, i32, Option<LookupAnswer>)>,
}

/// What one source broker says of one partition, as it travels between our own brokers (`Answer` of
/// a look-up result).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookupAnswer {
    /// The last epoch it mirrored from the asking cluster.
    Known(i32),
    /// It certainly mirrored nothing.
    None,
    /// It cannot say right now.
    Unknown,
    /// It still mirrors the partition.
    Mirrored,
}

impl LookupAnswer {
    /// 0 is what a broker sends that does not know these answers.
    pub(crate) fn byte(self) -> i8 {
        match self {
            LookupAnswer::Known(_) => 1,
            LookupAnswer::None => 2,
            LookupAnswer::Unknown => 3,
            LookupAnswer::Mirrored => 4,
        }
    }

    /// The epoch for those who read nothing else; −1 = none.
    pub(crate) fn epoch(self) -> i32 {
        match self {
            LookupAnswer::Known(epoch) => epoch,
            _ => -1,
        }
    }

    /// `None` = the broker does not say.
    fn of(byte: i8, epoch: i32) -> Option<LookupAnswer> {
        match byte {
            1 if epoch >= 0 => Some(LookupAnswer::Known(epoch)),
            2 => Some(LookupAnswer::None),
            1 | 3 => Some(LookupAnswer::Unknown),
            4 => Some(LookupAnswer::Mirrored),
            _ => None,
        }
    }
}

/// Mirrors the source runs from `cluster_id`, with the topics that are not stopped. Empty when it
/// has no mirroring.
pub(crate) async fn mirrors_from(
    client: &SourceClient,
    cluster_id: Str,
) -> Result<Vec<ForeignMirror>, SourceError> {
    let Some(brokers) = capable_brokers(client).await? else {
        return Ok(Vec::new());
    };
    let listed = brokers.list(client, true).await?;
    let mut found: BTreeMap<Str, ForeignMirror> = BTreeMap::new();
    let mut ask_topics = false;
    for mirror in listed
        .into_iter()
        .filter(|m| m.source_cluster_id == cluster_id)
    {
        ask_topics |= mirror.active_topics.is_none();
        let foreign = ForeignMirror {
            name: mirror.name.clone(),
            source_cluster_id: mirror.source_cluster_id,
            active_topics: mirror.active_topics.unwrap_or_default(),
        };
        found.insert(mirror.name, foreign);
    }
    if ask_topics {
        let names: Vec<Str> = found.keys().cloned().collect();
        for handle in &brokers.handles {
            // A broker that is away spoils only what it leads.
            let Ok(described) = describe(client, handle, &names, None).await else {
                continue;
            };
            for (mirror, topic, _, state, _) in described.partitions {
                let Some(foreign) = found.get_mut(&mirror).filter(|_| state != STOPPED) else {
                    continue;
                };
                if !foreign.active_topics.contains(&topic) {
                    foreign.active_topics.push(topic);
                }
            }
        }
    }
    Ok(found.into_values().collect())
}

/// What the look-up of one partition gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LookupOutcome {
    /// As far as the decision is concerned.
    Found(Lookup),
    /// The source still mirrors the partition from us.
    Loop(String),
}

/// Which partition is asked for: topic id at the source (zero = none), name, number.
pub(crate) type Asked = (Uuid, Str, i32);

/// Look-ups of one source that wait for the next question.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    waiting: Mutex<VecDeque<Waiting>>,
    /// Whoever holds it asks for all that wait.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Waiting {
    asked: Asked,
    answer: oneshot::Sender<LookupOutcome>,
}

/// Asks every broker of the source for the last epoch it mirrored of this partition from us,
/// together with whoever else asks now.
pub(crate) async fn last_mirror_epoch(
    client: &SourceClient,
    own_cluster_id: &Str,
    asked: Asked,
) -> LookupOutcome {
    let lookups = client.lookups();
    let (answer, mut answered) = oneshot::channel();
    lookups.waiting.lock().push_back(Waiting { asked, answer });
    loop {
        let _turn = tokio::select! {
            biased;
            answer = &mut answered => return answer.unwrap_or_else(|_| given_up()),
            turn = lookups.turn.lock() => turn,
        };
        match answered.try_recv() {
            Ok(answer) => return answer,
            Err(oneshot::error::TryRecvError::Closed) => return given_up(),
            Err(oneshot::error::TryRecvError::Empty) => {}
        }
        tokio::time::sleep(GATHER).await;
        let batch: Vec<Waiting> = {
            let mut waiting = lookups.waiting.lock();
            // Preparations that were given up meanwhile need no answer.
            waiting.retain(|w| !w.answer.is_closed());
            let count = waiting.len().min(LOOKUPS_PER_QUESTION_MAX);
            waiting.drain(..count).collect()
        };
        let asked: Vec<Asked> = batch.iter().map(|w| w.asked.clone()).collect();
        let outcomes = look_up(client, own_cluster_id, &asked).await;
        for (waiting, outcome) in batch.into_iter().zip(outcomes) {
            let _ = waiting.answer.send(outcome);
        }
    }
}

/// Whoever asked for several of us went away before the answer came.
fn given_up() -> LookupOutcome {
    LookupOutcome::Found(Lookup::Unknown("the look-up was given up".to_string()))
}

/// One question to each broker for all of these; as many outcomes in the same order.
async fn look_up(
    client: &SourceClient,
    own_cluster_id: &Str,
    asked: &[Asked],
) -> Vec<LookupOutcome> {
    let all = |lookup: Lookup| vec![LookupOutcome::Found(lookup); asked.len()];
    let brokers = match capable_brokers(client).await {
        Ok(Some(brokers)) => brokers,
        Ok(None) => return all(Lookup::NoRecord),
        Err(e) => return all(Lookup::Unknown(e.to_string())),
    };
    let listed = match brokers.list(client, false).await {
        Ok(listed) => listed,
        Err(e) => return all(Lookup::Unknown(e.to_string())),
    };
    // A mirror that does not know its source yet may be one from us.
    let may_be_ours =
        |m: &&Listed| m.source_cluster_id == *own_cluster_id || m.source_cluster_id.is_empty();
    let names: Vec<Str> = listed
        .iter()
        .filter(may_be_ours)
        .map(|m| m.name.clone())
        .collect();
    let certain = listed
        .iter()
        .any(|m| m.source_cluster_id == *own_cluster_id);
    if names.is_empty() {
        return all(Lookup::NoRecord);
    }
    if let Some(e) = brokers.away {
        return all(Lookup::Unknown(format!(
            "a broker of the source that may know the last mirror epoch is away: {e}"
        )));
    }
    let mut answers = Vec::new();
    for handle in &brokers.handles {
        match describe(client, handle, &names, Some((own_cluster_id, asked))).await {
            Ok(described) => answers.push(described.by_partition()),
            Err(e) => return all(Lookup::Unknown(e.to_string())),
        }
    }
    asked
        .iter()
        .map(|one| judge(&answers, one, certain))
        .collect()
}

/// A last mirror epoch (−1 = none told), and what our own brokers say beyond it.
type LookedUp = (i32, Option<LookupAnswer>);

/// Of one partition: mirror, state name, last mirror epoch.
type MirrorStates = Vec<(Str, Str, i32)>;

/// What a broker said, found by partition.
#[derive(Debug, Default)]
struct ByPartition {
    /// By topic name and number.
    states: BTreeMap<(Str, i32), MirrorStates>,
    /// By topic id and number.
    lookups: BTreeMap<(Uuid, i32), LookedUp>,
}

impl Described {
    fn by_partition(self) -> ByPartition {
        let mut found = ByPartition::default();
        for (mirror, topic, index, state, epoch) in self.partitions {
            let of = found.states.entry((topic, index)).or_default();
            of.push((mirror, state, epoch));
        }
        for (id, index, epoch, answer) in self.lookups {
            found.lookups.insert((id, index), (epoch, answer));
        }
        found
    }
}

/// What our own brokers said of one partition; `None` = somebody did not say.
fn judge_answers(answers: &[ByPartition], key: (Uuid, i32)) -> Option<LookupAnswer> {
    let said = answers.iter().map(|a| a.lookups.get(&key)?.1);
    let said: Vec<LookupAnswer> = said.collect::<Option<_>>()?;
    if said.contains(&LookupAnswer::Mirrored) {
        return Some(LookupAnswer::Mirrored);
    }
    if said.contains(&LookupAnswer::Unknown) {
        return Some(LookupAnswer::Unknown);
    }
    let epoch = said.iter().map(|a| a.epoch()).max()?;
    Some(if epoch >= 0 {
        LookupAnswer::Known(epoch)
    } else {
        LookupAnswer::None
    })
}

/// Pure: the answers of all brokers to one look-up. `certain` = a mirror from us exists.
fn judge(
    answers: &[ByPartition],
    (topic_id, topic, partition): &Asked,
    certain: bool,
) -> LookupOutcome {
    let partition = *partition;
    let still = |mirror: &str, state: &str| {
        LookupOutcome::Loop(format!(
            "the source still mirrors {topic}-{partition} from here{mirror}{state}: stop it there first"
        ))
    };
    let cannot_say = || {
        LookupOutcome::Found(Lookup::Unknown(format!(
            "the source has a mirror from here but does not tell the last mirror epoch of {topic}-{partition} (its coordinator may be loading)"
        )))
    };
    match judge_answers(answers, (*topic_id, partition)) {
        Some(LookupAnswer::Mirrored) => return still("", ""),
        Some(LookupAnswer::Unknown) => return cannot_say(),
        Some(LookupAnswer::Known(epoch)) => return LookupOutcome::Found(Lookup::Epoch(epoch)),
        Some(LookupAnswer::None) => return LookupOutcome::Found(Lookup::NoRecord),
        None => {}
    }
    let mut epoch = -1;
    let mut listed = false;
    for answer in answers {
        let states = answer.states.get(&(topic.clone(), partition));
        for (mirror, state, last_epoch) in states.into_iter().flatten() {
            listed = true;
            if state != STOPPED && certain {
                let (mirror, state) = (format!(" in its mirror {mirror}"), format!(" ({state})"));
                return still(&mirror, &state);
            }
            epoch = epoch.max(*last_epoch);
        }
        let mine = answer.lookups.get(&(*topic_id, partition));
        epoch = mine.map_or(epoch, |(found, _)| epoch.max(*found));
    }
    match epoch {
        0.. => LookupOutcome::Found(Lookup::Epoch(epoch)),
        _ if certain || listed => cannot_say(),
        _ => LookupOutcome::Found(Lookup::NoRecord),
    }
}

/// The brokers of a source that has mirroring.
struct Brokers {
    /// Connections to those that can be reached; never empty.
    handles: Vec<Handle>,
    /// Why one of the others cannot be.
    away: Option<SourceError>,
}

impl Brokers {
    /// The mirrors, as any broker that answers lists them.
    async fn list(
        &self,
        client: &SourceClient,
        with_topics: bool,
    ) -> Result<Vec<Listed>, SourceError> {
        let mut last = None;
        for handle in &self.handles {
            match list(client, handle, with_topics).await {
                Err(e) if e.is_unreachable() => last = Some(e),
                answered => return answered,
            }
        }
        Err(last.unwrap_or_else(|| SourceError::Unreachable("no broker was asked".into())))
    }
}

/// The brokers of the source when it has mirroring; `None` when it has not, which one broker
/// without it decides. Brokers are connected side by side, so that one that swallows connections
/// holds up no other.
async fn capable_brokers(client: &SourceClient) -> Result<Option<Brokers>, SourceError> {
    let cluster = client.cluster()?;
    client.metadata(&MetadataTopics::None).await?;
    let ids = cluster.view().brokers.into_keys().take(BROKERS_MAX);
    let mut connecting = JoinSet::new();
    for id in ids {
        let cluster = cluster.clone();
        connecting.spawn(async move { cluster.broker(id).await });
    }
    let (mut handles, mut away) = (Vec::new(), None);
    let deadline = Instant::now() + CONNECT_WAIT_MAX;
    while !connecting.is_empty() {
        let Ok(next) = tokio::time::timeout_at(deadline, connecting.join_next()).await else {
            let seconds = CONNECT_WAIT_MAX.as_secs();
            let text = format!("no connection within {seconds} s");
            away = Some(SourceError::Unreachable(text));
            break;
        };
        let Some(Ok(outcome)) = next else { continue };
        match client.note_broker(outcome) {
            Ok(handle) if has_mirroring(handle.versions()) => handles.push(handle),
            Ok(_) => return Ok(None),
            Err(e) => away = Some(e),
        }
    }
    if !handles.is_empty() {
        return Ok(Some(Brokers { handles, away }));
    }
    Err(away.unwrap_or_else(|| {
        SourceError::Unreachable("the source names no broker to ask for its mirrors".into())
    }))
}

async fn list(
    client: &SourceClient,
    handle: &Handle,
    with_topics: bool,
) -> Result<Vec<Listed>, SourceError> {
    let mut answer = ask_list(client, handle, false).await?;
    if with_topics && answer.iter().any(|m| m.active_topics.is_some()) {
        // Proven late: only now may the body say so, an early server would misread it.
        answer = ask_list(client, handle, true).await?;
    }
    Ok(answer)
}

async fn ask_list(
    client: &SourceClient,
    handle: &Handle,
    include_topic_names: bool,
) -> Result<Vec<Listed>, SourceError> {
    let request = ListClusterMirrorsRequest {
        include_topic_names,
        ..Default::default()
    };
    let body = ask(client, handle, LIST, &request).await?;
    if let Ok(late) = decode_exact::<ListClusterMirrorsResponse>(body.clone(), 0) {
        check(late.error_code, late.error_message.as_deref())?;
        let listed =
            |m: &tarn_wire::messages::list_cluster_mirrors_response::ListedMirror| Listed {
                name: name_of(&m.mirror_name),
                source_cluster_id: name_of(&m.source_cluster_id),
                active_topics: Some(m.topic_names.iter().map(name_of).collect()),
            };
        return Ok(late.mirrors.iter().map(listed).collect());
    }
    let early = decode_exact::<ListMirrorsResponse>(body, 0)
        .map_err(|e| unreadable("ListMirrors", &e.to_string()))?;
    check(early.error_code, early.error_message.as_deref())?;
    let listed = |m: &tarn_wire::messages::list_mirrors_response::ListedMirror| Listed {
        name: name_of(&m.mirror_name),
        source_cluster_id: name_of(&m.source_cluster_id),
        active_topics: None,
    };
    Ok(early.mirrors.iter().map(listed).collect())
}

async fn describe(
    client: &SourceClient,
    handle: &Handle,
    mirrors: &[Str],
    wanted: Option<(&Str, &[Asked])>,
) -> Result<Described, SourceError> {
    let mut by_topic: BTreeMap<Uuid, Vec<i32>> = BTreeMap::new();
    for (topic_id, _, partition) in wanted.into_iter().flat_map(|(_, asked)| asked) {
        by_topic.entry(*topic_id).or_default().push(*partition);
    }
    let lookup = |(topic_id, partitions): (Uuid, Vec<i32>)| LastMirrorEpochLookup {
        topic_id,
        partitions,
        ..Default::default()
    };
    let request = DescribeClusterMirrorsRequest {
        mirror_names: mirrors.to_vec(),
        cluster_id: wanted.map(|(cluster_id, _)| cluster_id.clone()),
        last_mirror_epoch_lookups: by_topic.into_iter().map(lookup).collect(),
        lookups_only: wanted.is_some(),
        ..Default::default()
    };
    let body = ask(client, handle, DESCRIBE, &request).await?;
    if let Ok(late) = decode_exact::<DescribeClusterMirrorsResponse>(body.clone(), 0) {
        check(late.error_code, late.error_message.as_deref())?;
        return Ok(described_late(&late));
    }
    let early = decode_exact::<DescribeMirrorsResponse>(body, 0)
        .map_err(|e| unreadable("DescribeMirrors", &e.to_string()))?;
    check(early.error_code, early.error_message.as_deref())?;
    Ok(described_early(&early))
}

/// A name that the source gave, cut where it is no name any more.
fn name_of(text: &Str) -> Str {
    Str::from(text_cut(text))
}

fn described_late(response: &DescribeClusterMirrorsResponse) -> Described {
    let mut described = Described::default();
    for mirror in &response.mirrors {
        for topic in &mirror.topics {
            for p in &topic.partitions {
                let entry = (
                    name_of(&mirror.mirror_name),
                    name_of(&topic.topic_name),
                    p.partition_index,
                    name_of(&p.state_value),
                    -1,
                );
                described.partitions.push(entry);
            }
        }
    }
    for result in &response.lookup_results {
        let of = |p: &tarn_wire::messages::describe_cluster_mirrors_response::LookupPartition| {
            let answer = LookupAnswer::of(p.answer, p.last_mirror_epoch);
            let epoch = p.last_mirror_epoch;
            (result.topic_id, p.partition_index, epoch, answer)
        };
        described.lookups.extend(result.partitions.iter().map(of));
    }
    described
}

fn described_early(response: &DescribeMirrorsResponse) -> Described {
    let mut described = Described::default();
    for mirror in &response.mirrors {
        for topic in &mirror.topics {
            for p in &topic.partitions {
                described.partitions.push((
                    name_of(&mirror.mirror_name),
                    name_of(&topic.topic_name),
                    p.partition_index,
                    name_of(&p.state),
                    p.last_mirror_epoch,
                ));
            }
        }
    }
    described
}

async fn ask<M: Message>(
    client: &SourceClient,
    handle: &Handle,
    key: ApiKey,
    request: &M,
) -> Result<Bytes, SourceError> {
    let body = encode_body(request, 0)
        .ok()
        .and_then(|frame| frame.to_bytes());
    let body = body.ok_or_else(|| SourceError::Other(format!("cannot encode {}", M::NAME)))?;
    client.note(handle.call_raw(key, 0, true, body).await)
}

fn unreadable(api: &str, detail: &str) -> SourceError {
    SourceError::Other(format!(
        "the source's answer to {api} fits no known form: {detail}"
    ))
}

fn check(code: i16, message: Option<&str>) -> Result<(), SourceError> {
    match ErrorCode(code) {
        ErrorCode::NONE => Ok(()),
        // The feature is announced but switched off.
        ErrorCode::UNSUPPORTED_VERSION => Ok(()),
        code => Err(SourceError::Other(format!(
            "the source refused: {}",
            message.map_or_else(|| code.message(), text_cut)
        ))),
    }
}

#[cfg(test)]
mod tests {
    //! How the answers of all brokers become one of three values.

    use super::*;

    const ID: Uuid = Uuid([9; 16]);

    fn t() -> Str {
        Str::from("t")
    }

    fn early(state: &str, epoch: i32) -> Described {
        Described {
            partitions: vec![(Str::from("m"), t(), 0, Str::from(state), epoch)],
            lookups: vec![],
        }
    }

    fn judged(answers: &[Described], certain: bool) -> LookupOutcome {
        let answers: Vec<ByPartition> = answers
            .iter()
            .cloned()
            .map(Described::by_partition)
            .collect();
        judge(&answers, &(ID, t(), 0), certain)
    }

    fn said(answer: LookupAnswer) -> Described {
        Described {
            partitions: vec![],
            lookups: vec![(ID, 0, answer.epoch(), Some(answer))],
        }
    }

    /// A source of our own kind that mirrors something else from us says "none", which is neither
    /// unknown nor a reason to wait.
    #[test]
    fn our_own_brokers_say_known_none_or_unknown() {
        use LookupAnswer::{Known, Mirrored, None as Nothing, Unknown};
        let found = |answers: &[LookupAnswer]| {
            let answers: Vec<Described> = answers.iter().map(|a| said(*a)).collect();
            judged(&answers, true)
        };
        let is = |l: Lookup| LookupOutcome::Found(l);
        assert_eq!(found(&[Nothing]), is(Lookup::NoRecord));
        assert_eq!(found(&[Nothing, Known(7)]), is(Lookup::Epoch(7)));
        assert!(matches!(
            found(&[Known(7), Unknown]),
            LookupOutcome::Found(Lookup::Unknown(_))
        ));
        assert!(matches!(
            found(&[Nothing, Mirrored]),
            LookupOutcome::Loop(_)
        ));
        for answer in [Known(3), Nothing, Unknown, Mirrored] {
            assert_eq!(
                LookupAnswer::of(answer.byte(), answer.epoch()),
                Some(answer)
            );
        }
        assert_eq!(LookupAnswer::of(0, -1), None, "a broker that does not say");
    }

    #[test]
    fn the_highest_epoch_any_broker_tells_counts() {
        let late = Described {
            partitions: vec![],
            lookups: vec![(ID, 0, 4, None), (ID, 1, 9, None)],
        };
        let none = Described {
            partitions: vec![],
            lookups: vec![(ID, 0, -1, None)],
        };
        assert_eq!(
            judged(&[none, late], true),
            LookupOutcome::Found(Lookup::Epoch(4))
        );
        assert_eq!(
            judged(&[early(STOPPED, 2)], true),
            LookupOutcome::Found(Lookup::Epoch(2))
        );
    }

    #[test]
    fn minus_one_from_a_source_that_mirrors_from_us_is_not_an_absence() {
        let none = Described {
            partitions: vec![],
            lookups: vec![(ID, 0, -1, None)],
        };
        assert!(matches!(
            judged(&[none], true),
            LookupOutcome::Found(Lookup::Unknown(_))
        ));
        assert!(matches!(
            judged(&[early(STOPPED, -1)], false),
            LookupOutcome::Found(Lookup::Unknown(_))
        ));
        assert_eq!(
            judged(&[Described::default()], false),
            LookupOutcome::Found(Lookup::NoRecord)
        );
    }

    #[test]
    fn a_partition_the_source_still_mirrors_from_us_is_a_loop() {
        assert!(matches!(
            judged(&[early("PAUSED", 3)], true),
            LookupOutcome::Loop(_)
        ));
        assert!(matches!(
            judged(&[early("MIRRORING", -1)], true),
            LookupOutcome::Loop(_)
        ));
    }
}

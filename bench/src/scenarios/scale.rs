//! Owns what the scenarios of scale share: a broker of either side as one value, topics made by one
//! raw request, and a producer that tries until it is accepted. Not here: any figure.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use bytes::Bytes;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{CreateTopicsRequest, ProduceRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use tarn_tests::kafka::Kafka;
use tarn_tests::raw::{self, RawClient};
use tarn_tests::tarn::Tarn;

use crate::machine;
use crate::scenario::{Ctx, Side};

/// Descriptors that a broker with 10,000 partitions may need.
const DESCRIPTORS: u64 = 200_000;
/// Memory mappings that a Java broker with 10,000 partitions may need: two index files a segment.
const MAPPINGS: u64 = 262_144;
const MAPPINGS_FILE: &str = "/proc/sys/vm/max_map_count";
/// How often a producer that was refused tries again.
const TRY_AGAIN: Duration = Duration::from_micros(500);
/// Longest wait for one answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// Shortest wait for one, however little time is left.
const ANSWER_LEAST: Duration = Duration::from_secs(1);
const PRODUCE_VERSION: i16 = 9;
const CREATE_TOPICS_VERSION: i16 = 6;
/// Partitions that one produce request tries at most.
const TRIED_AT_ONCE: usize = 2_000;

/// A broker of either side.
pub(super) enum Broker {
    /// The `tarn` program.
    Tarn(Tarn),
    /// A real Kafka.
    Kafka(Kafka),
}

impl Broker {
    /// A fresh one.
    pub(super) fn start(ctx: &Ctx, side: Side) -> Result<Self> {
        match side {
            Side::Tarn => Ok(Self::Tarn(ctx.tarn(&[]))),
            Side::Kafka => Ok(Self::Kafka(ctx.kafka(&[]))),
            Side::Mm2 => bail!("this scenario has no round for MirrorMaker 2"),
        }
    }

    pub(super) fn port(&self) -> u16 {
        match self {
            Self::Tarn(tarn) => tarn.port(),
            Self::Kafka(kafka) => kafka.port(),
        }
    }

    pub(super) fn pid(&mut self) -> u32 {
        match self {
            Self::Tarn(tarn) => tarn.process().id(),
            Self::Kafka(kafka) => kafka.process().id(),
        }
    }

    /// Ends it the hard way.
    pub(super) fn kill(&mut self) {
        match self {
            Self::Tarn(tarn) => tarn.kill(),
            Self::Kafka(kafka) => kafka.kill(),
        }
    }

    /// Ends it in order.
    pub(super) fn stop(&mut self) {
        match self {
            Self::Tarn(tarn) => drop(tarn.stop()),
            Self::Kafka(kafka) => kafka.stop(),
        }
    }

    /// Starts it again on the same data, without waiting for anything.
    pub(super) fn launch_again(&mut self) {
        match self {
            Self::Tarn(tarn) => tarn.launch_again(),
            Self::Kafka(kafka) => kafka.launch_again(),
        }
    }
}

/// Raises the limits that thousands of partitions need, for this process and what it starts; says
/// it when it could not.
pub(super) fn raise_limits(ctx: &Ctx) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    if now.current.is_some_and(|current| current < DESCRIPTORS) {
        let maximum = now.maximum.map(|maximum| maximum.max(DESCRIPTORS));
        let wanted = Rlimit {
            current: Some(DESCRIPTORS),
            maximum,
        };
        if setrlimit(Resource::Nofile, wanted).is_err() {
            ctx.remark(format!(
                "the descriptor limit could not be raised to {DESCRIPTORS}; it is {:?}",
                now.current
            ));
        }
    }
    let mappings = || {
        std::fs::read_to_string(MAPPINGS_FILE)
            .ok()?
            .trim()
            .parse::<u64>()
            .ok()
    };
    if mappings().is_some_and(|count| count < MAPPINGS)
        && std::fs::write(MAPPINGS_FILE, MAPPINGS.to_string()).is_err()
    {
        ctx.remark(format!(
            "vm.max_map_count could not be raised to {MAPPINGS}; it is {:?}",
            mappings()
        ));
    }
}

/// A topic to be made, and to be produced to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) name: String,
    pub(super) partitions: i32,
}

/// `partitions` in topics of at most `each`, called `prefix`-0000 and so on.
pub(super) fn topics(prefix: &str, partitions: u64, each: u64) -> Vec<Wanted> {
    (0..partitions.div_ceil(each))
        .map(|i| Wanted {
            name: format!("{prefix}-{i:04}"),
            partitions: each.min(partitions - i * each) as i32,
        })
        .collect()
}

/// Makes the topics with one request.
pub(super) fn create(port: u16, topics: &[Wanted]) -> Result<()> {
    let wanted = topics.iter().map(|topic| {
        CreatableTopic::default()
            .with_name(TopicName(StrBytes::from_string(topic.name.clone())))
            .with_num_partitions(topic.partitions)
            .with_replication_factor(1)
    });
    let request = CreateTopicsRequest::default()
        .with_topics(wanted.collect())
        .with_timeout_ms(ANSWER_LIMIT.as_millis() as i32);
    let mut client = RawClient::connect(port)?;
    client.set_read_limit(ANSWER_LIMIT)?;
    let answer = client.call(CREATE_TOPICS_VERSION, &request)?;
    match answer.topics.iter().find(|topic| topic.error_code != 0) {
        None => Ok(()),
        Some(refused) => bail!(
            "topic {} was refused with {}: {:?}",
            refused.name.as_str(),
            refused.error_code,
            refused.error_message.as_deref().unwrap_or_default()
        ),
    }
}

/// Makes topics in steps of `partitions_at_once` partitions (Kafka's controller refuses more than
/// about 10,000 records in one request), as many as the broker takes within `limit`; `each_step`
/// runs after each step with its topics and is part of it. Gives how many of `topics` it holds:
/// all, or the whole steps before the one that failed or came too late, which is remarked.
pub(super) fn create_while_held(
    ctx: &Ctx,
    port: u16,
    topics: &[Wanted],
    partitions_at_once: i32,
    limit: Duration,
    mut each_step: impl FnMut(&[Wanted]) -> Result<()>,
) -> Result<usize> {
    let started = Instant::now();
    let mut held = 0;
    let mut failure = None;
    for step in steps(topics, partitions_at_once) {
        let done = if started.elapsed() < limit {
            create(port, step).and_then(|()| each_step(step))
        } else {
            Err(anyhow!("the time of {limit:?} was over"))
        };
        if let Err(error) = done {
            failure = Some(error);
            break;
        }
        held += step.len();
    }
    if let Some(error) = failure {
        ensure!(held > 0, "no partition could be made: {error:#}");
        ctx.remark(format!(
            "Kafka held {} of the {} partitions that were wanted: {error:#}",
            count(&topics[..held]),
            count(topics)
        ));
    }
    Ok(held)
}

/// Makes all topics in steps of `partitions_at_once` partitions.
pub(super) fn create_in_steps(port: u16, topics: &[Wanted], partitions_at_once: i32) -> Result<()> {
    let mut steps = steps(topics, partitions_at_once).into_iter();
    steps.try_for_each(|step| create(port, step))
}

/// The first of `topics` that a Java broker with `open` partitions can hold beside them; remarks it
/// when those are not all.
pub(super) fn fitting<'a>(ctx: &Ctx, topics: &'a [Wanted], open: i32) -> &'a [Wanted] {
    let most = machine::java_partitions_max();
    let fit = fitting_in(most, topics, open);
    if fit < topics.len() {
        ctx.remark(format!(
            "the limit of descriptors lets a Java broker hold {most} partitions: {} of the {} that were wanted here",
            count(&topics[..fit]),
            count(topics)
        ));
    }
    &topics[..fit]
}

/// How many of `topics` fit where `most` partitions do and `open` are there.
fn fitting_in(most: u64, topics: &[Wanted], open: i32) -> usize {
    let mut partitions = i64::from(open);
    let fits = |topic: &&Wanted| {
        partitions += i64::from(topic.partitions);
        u64::try_from(partitions).is_ok_and(|partitions| partitions <= most)
    };
    topics.iter().take_while(fits).count()
}

/// How many partitions `topics` have together.
pub(super) fn count(topics: &[Wanted]) -> i32 {
    topics.iter().map(|topic| topic.partitions).sum()
}

/// Cuts `topics` into runs of at most `partitions_at_once` partitions, each of one topic at least.
fn steps(topics: &[Wanted], partitions_at_once: i32) -> Vec<&[Wanted]> {
    let mut steps = Vec::new();
    let (mut from, mut partitions) = (0, 0);
    for (at, topic) in topics.iter().enumerate() {
        if at > from && partitions + topic.partitions > partitions_at_once {
            steps.push(&topics[from..at]);
            (from, partitions) = (at, 0);
        }
        partitions += topic.partitions;
    }
    if from < topics.len() {
        steps.push(&topics[from..]);
    }
    steps
}

/// When produce requests were accepted, from the start of the wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Accepted {
    /// The first of all.
    pub(super) first: Duration,
    /// The first in the partition that came last.
    pub(super) all: Duration,
}

/// A partition: index of its topic in a list of [`Wanted`], and its own.
pub(super) type At = (usize, i32);

/// Every partition of `topics`.
pub(super) fn everywhere(topics: &[Wanted]) -> Vec<At> {
    let partitions = |t: usize| (0..topics[t].partitions).map(move |p| (t, p));
    (0..topics.len()).flat_map(partitions).collect()
}

/// The last partition of `topics`.
pub(super) fn last(topics: &[Wanted]) -> Vec<At> {
    everywhere(topics).pop().into_iter().collect()
}

/// Produces one record to each of `open`, partitions of `topics`, again and again until each was
/// accepted once; to one alone until the first is. `started` is when the clock began.
pub(super) fn produce_until_accepted(
    port: u16,
    topics: &[Wanted],
    mut open: Vec<At>,
    started: Instant,
    limit: Duration,
) -> Result<Accepted> {
    let batch = raw::batch(raw::PLAIN, &["accepted?"]);
    let wanted = open.len();
    let mut first = None;
    let mut client: Option<RawClient> = None;
    let mut last_refusal = "nobody listens".to_owned();
    while !open.is_empty() {
        ensure!(
            started.elapsed() < limit,
            "{} of {wanted} partitions accepted nothing within {limit:?}: {last_refusal}",
            open.len()
        );
        // A producer's first request is for one partition; an answer for thousands comes when the
        // last of them is done.
        let most = if first.is_none() { 1 } else { TRIED_AT_ONCE };
        let at_once = open.len().min(most);
        let connected = match client.take() {
            Some(client) => Ok(client),
            None => RawClient::connect(port),
        };
        let tried = connected.and_then(|mut connected| {
            let patience = limit.saturating_sub(started.elapsed()).max(ANSWER_LEAST);
            let refused = produce_once(&mut connected, topics, &open[..at_once], &batch, patience)?;
            Ok((connected, refused))
        });
        match tried {
            Err(error) => last_refusal = format!("{error:#}"),
            Ok((connected, refused)) => {
                if let Some((_, code)) = refused.iter().next() {
                    last_refusal = format!("error code {code}");
                }
                if refused.len() < at_once {
                    first.get_or_insert(started.elapsed());
                }
                let tail = open.split_off(at_once);
                open.retain(|at| refused.contains_key(at));
                // Those that wait behind come first, so that one that stays closed holds up nobody.
                open.splice(0..0, tail);
                client = Some(connected);
                if refused.is_empty() {
                    continue;
                }
            }
        }
        thread::sleep(TRY_AGAIN);
    }
    Ok(Accepted {
        first: first.context("no partition was asked for")?,
        all: started.elapsed(),
    })
}

/// One produce request for all of `open`; gives those that were refused, with the error code.
fn produce_once(
    client: &mut RawClient,
    topics: &[Wanted],
    open: &[At],
    batch: &Bytes,
    patience: Duration,
) -> Result<BTreeMap<At, i16>> {
    let mut by_topic: BTreeMap<usize, Vec<PartitionProduceData>> = BTreeMap::new();
    for &(topic, partition) in open {
        by_topic.entry(topic).or_default().push(
            PartitionProduceData::default()
                .with_index(partition)
                .with_records(Some(batch.clone())),
        );
    }
    let indices: BTreeMap<&str, usize> = by_topic
        .keys()
        .map(|&topic| (topics[topic].name.as_str(), topic))
        .collect();
    let data = by_topic.into_iter().map(|(topic, partitions)| {
        TopicProduceData::default()
            .with_name(TopicName(StrBytes::from_string(topics[topic].name.clone())))
            .with_partition_data(partitions)
    });
    let request = ProduceRequest::default()
        .with_acks(-1)
        .with_timeout_ms(ANSWER_LIMIT.as_millis() as i32)
        .with_topic_data(data.collect());
    client.set_read_limit(patience)?;
    let answer = client.call(PRODUCE_VERSION, &request)?;
    let mut refused = BTreeMap::new();
    for topic in &answer.responses {
        let index = indices.get(topic.name.as_str());
        let index = *index.context("an answer about a topic that was not asked for")?;
        for partition in &topic.partition_responses {
            if partition.error_code != 0 {
                refused.insert((index, partition.index), partition.error_code);
            }
        }
    }
    Ok(refused)
}

/// Fills the partitions of `topic` evenly with about `bytes` of 1 KB records.
pub(super) fn fill(port: u16, topic: &Wanted, bytes: u64) -> Result<()> {
    const RECORDS: usize = 120;
    let value = "v".repeat(1_000);
    let batch = raw::batch(raw::PLAIN, &[value.as_str(); RECORDS]);
    let data = (0..topic.partitions).map(|index| {
        PartitionProduceData::default()
            .with_index(index)
            .with_records(Some(batch.clone()))
    });
    let request = ProduceRequest::default()
        .with_acks(1)
        .with_timeout_ms(ANSWER_LIMIT.as_millis() as i32)
        .with_topic_data(vec![
            TopicProduceData::default()
                .with_name(TopicName(StrBytes::from_string(topic.name.clone())))
                .with_partition_data(data.collect()),
        ]);
    let mut client = RawClient::connect(port)?;
    client.set_read_limit(ANSWER_LIMIT)?;
    let each = batch.len() as u64 * topic.partitions as u64;
    for _ in 0..bytes.div_ceil(each) {
        let answer = client.call(PRODUCE_VERSION, &request)?;
        let partitions = answer.responses.iter().flat_map(|t| &t.partition_responses);
        if let Some(refused) = partitions.clone().find(|p| p.error_code != 0) {
            bail!("filling was refused with error code {}", refused.error_code);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_cut_into_topics_and_none_is_lost() {
        let made = topics("t", 250, 100);
        let sizes: Vec<i32> = made.iter().map(|topic| topic.partitions).collect();
        assert_eq!(
            (sizes, made[2].name.as_str()),
            (vec![100, 100, 50], "t-0002")
        );
    }

    #[test]
    fn topics_are_made_in_steps_of_whole_topics() {
        let made = topics("t", 250, 100);
        let sizes =
            |at_once| -> Vec<i32> { steps(&made, at_once).iter().map(|s| count(s)).collect() };
        assert_eq!(sizes(200), [200, 50]);
        assert_eq!(sizes(10), [100, 100, 50]);
        assert_eq!(sizes(1_000), [250]);
        assert!(steps(&[], 10).is_empty());
    }

    #[test]
    fn a_java_broker_gets_no_more_partitions_than_it_has_descriptors() {
        let made = topics("t", 1_000, 100);
        assert_eq!(fitting_in(18_000, &made, 0), 10);
        assert_eq!(fitting_in(18_000, &made, 17_500), 5);
        assert_eq!(fitting_in(0, &made, 0), 0);
    }

    #[test]
    fn a_broker_that_holds_nothing_is_an_error_that_says_why() {
        let ctx = Ctx::new(1.0, |_| {});
        let nobody = tarn_tests::ports::free_port();
        let said = create_while_held(&ctx, nobody, &topics("t", 2, 1), 1, LIMIT, |_| Ok(()));
        let said = said.unwrap_err().to_string();
        assert!(said.starts_with("no partition could be made"), "{said}");
    }

    const LIMIT: Duration = Duration::from_secs(1);
}

//! The runtime over a store in memory that can be told to fail: loading, order, durability,
//! resignation, deadlines.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tarn_wire::Str;
use tokio::sync::Notify;

use crate::*;

/// One partition in memory.
#[derive(Default)]
struct MemoryStore {
    records: Mutex<Vec<LoadedRecord>>,
    fail_append: AtomicBool,
    fail_read: AtomicBool,
    hold_sync: AtomicBool,
    release: Notify,
    syncs: AtomicI64,
}

impl Store for Arc<MemoryStore> {
    fn bounds(&self, _: i32) -> Result<(i64, i64), CoordinatorError> {
        Ok((0, self.records.lock().len() as i64))
    }

    fn read(&self, _: i32, offset: i64, _: usize) -> Result<Chunk, CoordinatorError> {
        if self.fail_read.load(Ordering::Acquire) && offset > 0 {
            return Err(CoordinatorError::Log("unreadable".into()));
        }
        let records = self.records.lock();
        let record = records[offset as usize].clone();
        Ok(Chunk {
            records: vec![record],
            next_offset: offset + 1,
        })
    }

    fn append(&self, _: i32, new: &[CoordinatorRecord], now: i64) -> Result<i64, CoordinatorError> {
        if self.fail_append.swap(false, Ordering::AcqRel) {
            return Err(CoordinatorError::Log("disk is broken".into()));
        }
        let mut records = self.records.lock();
        for record in new {
            let offset = records.len() as i64;
            let (key, value) = (record.key.clone(), record.value.clone());
            records.push(LoadedRecord {
                offset,
                timestamp_ms: now,
                key,
                value,
            });
        }
        Ok(records.len() as i64)
    }

    fn durable(&self, _: i32, _: i64) -> BoxFuture<'static, Result<(), CoordinatorError>> {
        let store = self.clone();
        Box::pin(async move {
            while store.hold_sync.load(Ordering::Acquire) {
                store.release.notified().await;
            }
            store.syncs.fetch_add(1, Ordering::AcqRel);
            Ok(())
        })
    }
}

/// Sums its records; beats at a deadline.
#[derive(Default)]
struct Sum {
    total: i64,
    deadline: Option<i64>,
    fired: Arc<AtomicI64>,
}

impl Shard for Sum {
    fn replay(&mut self, record: LoadedRecord) -> Result<(), ReplayError> {
        let text = std::str::from_utf8(&record.key).map_err(|e| ReplayError(e.to_string()))?;
        self.total += text
            .parse::<i64>()
            .map_err(|e| ReplayError(e.to_string()))?;
        Ok(())
    }

    fn next_deadline_ms(&self) -> Option<i64> {
        self.deadline
    }

    fn on_deadline(&mut self, _: i64) -> Outcome {
        self.deadline = None;
        let fired = self.fired.clone();
        let after = Box::new(move || {
            fired.fetch_add(1, Ordering::AcqRel);
        });
        Outcome {
            records: vec![number(100)],
            after: Some(after),
        }
    }
}

fn number(value: i64) -> CoordinatorRecord {
    CoordinatorRecord {
        key: Bytes::from(value.to_string()),
        value: None,
    }
}

struct Bench {
    store: Arc<MemoryStore>,
    runtime: Arc<Runtime<Sum>>,
    fired: Arc<AtomicI64>,
}

fn bench() -> Bench {
    let (store, fired) = (
        Arc::new(MemoryStore::default()),
        Arc::new(AtomicI64::new(0)),
    );
    let topic = InternalTopic {
        name: Str::from("__numbers"),
        partitions: 2,
        replication_factor: 1,
        configs: vec![],
    };
    let started = tokio::time::Instant::now();
    let clock: Clock = Arc::new(move || started.elapsed().as_millis() as i64);
    let creator: TopicCreator = Arc::new(|_| Box::pin(async { Ok(()) }));
    let count = fired.clone();
    let factory = move |_| Sum {
        fired: count.clone(),
        ..Sum::default()
    };
    let runtime = Runtime::new(
        RuntimeConfig::new(topic),
        Arc::new(store.clone()),
        creator,
        clock,
        factory,
    );
    Bench {
        store,
        runtime,
        fired,
    }
}

impl Bench {
    async fn add(&self, value: i64) -> Result<i64, CoordinatorError> {
        let add = move |shard: &mut Sum, _| Ok((vec![number(value)], shard.total));
        self.runtime.write(0, add).await
    }

    async fn total(&self) -> Result<i64, CoordinatorError> {
        self.runtime.read(0, |shard, _| shard.total).await
    }

    async fn active(&self) {
        while !self.runtime.is_active(0) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_is_decided_appended_replayed_and_then_answered() {
    let bench = bench();
    bench.runtime.reconcile(&[Some(0), None]);
    bench.active().await;
    assert_eq!(
        bench.add(3).await,
        Ok(0),
        "the decision sees the state before its own records"
    );
    assert_eq!(bench.add(4).await, Ok(3));
    assert_eq!(bench.total().await, Ok(7));
    assert_eq!(bench.store.records.lock().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_loads_says_so_and_one_that_is_not_led_says_that() {
    let bench = bench();
    let not_led = bench.add(1).await;
    assert!(
        matches!(not_led, Err(CoordinatorError::NotCoordinator { .. })),
        "{not_led:?}"
    );
    bench
        .store
        .append(0, &[number(1), number(2)], 0)
        .expect("appends");
    bench.store.fail_read.store(true, Ordering::Release);
    bench.runtime.reconcile(&[Some(0)]);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let loading = bench.total().await;
    assert!(
        matches!(loading, Err(CoordinatorError::Loading { .. })),
        "{loading:?}"
    );
    // A load that failed half-way is not served; it is done again from the start.
    bench.store.fail_read.store(false, Ordering::Release);
    bench.active().await;
    assert_eq!(bench.total().await, Ok(3));
}

#[tokio::test(start_paused = true)]
async fn replies_and_reads_wait_until_what_they_show_is_durable() {
    let bench = bench();
    bench.runtime.reconcile(&[Some(0)]);
    bench.active().await;
    bench.store.hold_sync.store(true, Ordering::Release);
    let (runtime, store) = (bench.runtime.clone(), bench.store.clone());
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let runtime = runtime.clone();
        waiting.spawn(async move {
            let add = |_: &mut Sum, _| Ok::<_, CoordinatorError>((vec![number(1)], 0));
            runtime.write(0, add).await
        });
    }
    let read = tokio::spawn(async move { runtime.read(0, |shard, _| shard.total).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(
        store.records.lock().len(),
        50,
        "appends go on while a sync runs"
    );
    assert!(waiting.try_join_next().is_none());
    assert!(!read.is_finished());
    store.hold_sync.store(false, Ordering::Release);
    store.release.notify_waiters();
    while let Some(done) = waiting.join_next().await {
        assert_eq!(done.expect("no panic"), Ok(0));
    }
    assert_eq!(read.await.expect("no panic"), Ok(50));
    assert!(
        store.syncs.load(Ordering::Acquire) <= 3,
        "one sync serves many"
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_append_leaves_the_state_of_the_log() {
    let bench = bench();
    bench.runtime.reconcile(&[Some(0)]);
    bench.active().await;
    bench.add(5).await.expect("appends");
    bench.store.fail_append.store(true, Ordering::Release);
    let failed = bench.add(6).await;
    assert!(
        matches!(failed, Err(CoordinatorError::Log(_))),
        "{failed:?}"
    );
    bench.active().await;
    assert_eq!(bench.total().await, Ok(5));
}

#[tokio::test(start_paused = true)]
async fn losing_a_partition_drops_only_its_shard_and_answers_who_waits() {
    let bench = bench();
    bench.runtime.reconcile(&[Some(0), Some(0)]);
    bench.active().await;
    bench.store.hold_sync.store(true, Ordering::Release);
    let runtime = bench.runtime.clone();
    let waiting = tokio::spawn(async move {
        let add = |_: &mut Sum, _| Ok::<_, CoordinatorError>((vec![number(1)], 0));
        runtime.write(0, add).await
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    bench.runtime.reconcile(&[None, Some(0)]);
    let answer = waiting.await.expect("no panic");
    assert!(
        matches!(answer, Err(CoordinatorError::NotCoordinator { .. })),
        "{answer:?}"
    );
    assert_eq!(bench.runtime.led(), [1]);
    assert!(bench.runtime.is_active(1));
}

#[tokio::test(start_paused = true)]
async fn a_higher_leader_epoch_of_the_same_leader_keeps_the_shard() {
    let bench = bench();
    bench.runtime.reconcile(&[Some(0)]);
    bench.active().await;
    bench.runtime.reconcile(&[Some(12)]);
    assert!(bench.runtime.is_active(0));
    assert_eq!(bench.add(1).await, Ok(0));
}

#[tokio::test(start_paused = true)]
async fn a_deadline_acts_at_its_time_and_its_answers_follow_its_records() {
    let bench = bench();
    bench.runtime.reconcile(&[Some(0)]);
    bench.active().await;
    let set = |shard: &mut Sum, now: i64| {
        shard.deadline = Some(now + 90_000);
        Ok::<_, CoordinatorError>((Vec::new(), ()))
    };
    bench.runtime.write(0, set).await.expect("decides");
    tokio::time::sleep(Duration::from_secs(89)).await;
    assert_eq!(bench.fired.load(Ordering::Acquire), 0);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(bench.fired.load(Ordering::Acquire), 1);
    assert_eq!(bench.total().await, Ok(100));
}

#[tokio::test(start_paused = true)]
async fn keys_follow_the_partition_count_of_the_topic_not_of_the_settings() {
    let bench = bench();
    assert_eq!(bench.runtime.partition_for("hello"), None);
    bench.runtime.reconcile(&[None; 50]);
    assert_eq!(bench.runtime.partition_for("hello"), Some(22));
    bench.runtime.shutdown().await;
}

/// One record that the shard cannot take is skipped, and the partition loads with all the others.
#[tokio::test(start_paused = true)]
async fn a_bad_record_is_skipped_and_the_partition_loads() {
    let bench = bench();
    for (offset, key) in ["3", "", "no number", "4"].iter().enumerate() {
        bench.store.records.lock().push(LoadedRecord {
            offset: offset as i64,
            timestamp_ms: 0,
            key: Bytes::from_static(key.as_bytes()),
            value: Some(Bytes::new()),
        });
    }
    bench.runtime.reconcile(&[Some(0)]);
    tokio::time::timeout(Duration::from_secs(5), bench.active())
        .await
        .expect("the partition loads");
    assert_eq!(bench.total().await, Ok(7));
    assert_eq!(bench.add(1).await, Ok(7));
}

//! Guards: what was answered survives, whatever happens to the process or to a file.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use support::*;
use tarn_controller::{ApiError, Controller, ControllerError};
use tarn_metadata::{Change, ConfigResource, Image, Record};
use tarn_wire::messages::*;
use tarn_wire::{ErrorCode, Uuid};

fn log_dir(dir: &Path) -> PathBuf {
    dir.join("__cluster_metadata-0")
}

fn files(dir: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut found: Vec<_> = fs::read_dir(log_dir(dir))
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.to_str().unwrap().ends_with(suffix))
        .collect();
    found.sort();
    found
}

/// Everything but the offsets.
fn content(image: &Image) -> Vec<Record> {
    image.to_records()
}

/// The file that says how far the log was synced, and how a power cut leaves it that came before
/// the next sync.
fn synced_end(dir: &Path) -> Vec<u8> {
    fs::read(log_dir(dir).join("synced-end")).unwrap()
}

fn power_cut_before_the_sync(dir: &Path, synced_end: &[u8]) {
    fs::write(log_dir(dir).join("synced-end"), synced_end).unwrap();
}

async fn set(controller: &Controller, name: &'static str, value: &str) -> Result<(), ApiError> {
    let record = ConfigRecord {
        resource_type: 4,
        name: name.into(),
        value: Some(value.into()),
        ..Default::default()
    };
    controller
        .submit("set", move |_, _| Ok((vec![record.into()], ())))
        .await
}

#[tokio::test]
async fn a_restart_keeps_everything_with_or_without_a_clean_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut before = None;
    for round in 0..6 {
        let controller = bare(dir.path()).await;
        if let Some(before) = before.take() {
            assert_eq!(content(&controller.image()), before, "round {round}");
        }
        assert_eq!(controller.quorum_status().await.unwrap().epoch, round + 1);
        controller
            .register_and_unfence(registration(1))
            .await
            .unwrap();
        create_one(&controller, &format!("topic-{round}"), 3).await;
        set(&controller, "k", &round.to_string()).await.unwrap();
        before = Some(content(&controller.image()));
        if round % 2 == 0 {
            controller.shutdown().await.unwrap();
            assert!(
                matches!(set(&controller, "k", "late").await, Err(error) if error.code == ErrorCode::NOT_CONTROLLER)
            );
        }
    }
}

#[tokio::test]
async fn a_cut_anywhere_in_the_last_decision_loses_that_decision_only() {
    let dir = tempfile::tempdir().unwrap();
    let controller = started(dir.path()).await;
    create_one(&controller, "kept", 1).await;
    let before = content(&controller.image());
    let segment = files(dir.path(), ".log").pop().unwrap();
    let size_before = fs::metadata(&segment).unwrap().len();
    let synced_before = synced_end(dir.path());
    create_one(&controller, "torn", 2).await;
    drop(controller);
    let whole = fs::read(&segment).unwrap();
    for cut in [
        size_before + 1,
        size_before + 30,
        size_before + 70,
        whole.len() as u64 - 1,
    ] {
        fs::write(&segment, &whole[..cut as usize]).unwrap();
        power_cut_before_the_sync(dir.path(), &synced_before);
        let controller = bare(dir.path()).await;
        assert_eq!(content(&controller.image()), before, "cut at {cut}");
        create_one(&controller, "torn", 1).await;
        drop(controller);
    }
}

#[tokio::test]
async fn snapshots_are_taken_by_size_and_the_log_prefix_goes() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = settings(dir.path());
    settings.snapshot_after_records = 50;
    settings.segment_bytes = 1 << 20;
    let controller = Controller::start(settings.clone()).await.unwrap();
    let long = "v".repeat(30_000);
    for round in 0..220 {
        set(&controller, "k", &format!("{long}{round}"))
            .await
            .unwrap();
    }
    assert_eq!(files(dir.path(), ".checkpoint").len(), 2);
    assert!(
        !files(dir.path(), ".log")[0].ends_with("00000000000000000000.log"),
        "{:?}",
        files(dir.path(), ".log")
    );
    let before = content(&controller.image());
    drop(controller);
    let controller = Controller::start(settings).await.unwrap();
    assert_eq!(content(&controller.image()), before);
}

#[tokio::test]
async fn a_damaged_snapshot_is_replaced_by_the_one_before_and_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let controller = started(dir.path()).await;
    create_one(&controller, "one", 1).await;
    controller.snapshot().await.unwrap();
    create_one(&controller, "two", 1).await;
    controller.shutdown().await.unwrap();
    let before = content(&controller.image());
    let newest = files(dir.path(), ".checkpoint").pop().unwrap();
    let whole = fs::read(&newest).unwrap();
    for damage in 0..4 {
        let mut bytes = whole.clone();
        match damage {
            0 => bytes.truncate(0),
            1 => bytes.truncate(whole.len() / 2),
            2 => bytes[whole.len() / 2] ^= 0x20,
            _ => bytes.truncate(whole.len() - 80),
        }
        fs::write(&newest, bytes).unwrap();
        let controller = bare(dir.path()).await;
        assert_eq!(content(&controller.image()), before, "damage {damage}");
    }
}

#[tokio::test]
async fn without_a_usable_snapshot_for_a_cut_log_the_start_fails_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = settings(dir.path());
    settings.snapshot_after_records = 20;
    settings.segment_bytes = 1 << 20;
    let controller = Controller::start(settings.clone()).await.unwrap();
    let long = "v".repeat(32_000);
    for _ in 0..100 {
        set(&controller, "k", &long).await.unwrap();
        set(&controller, "k", "short").await.unwrap();
    }
    controller.shutdown().await.unwrap();
    for snapshot in files(dir.path(), ".checkpoint") {
        fs::remove_file(snapshot).unwrap();
    }
    let error = Controller::start(settings).await.unwrap_err().to_string();
    assert!(error.contains("restore the .checkpoint file"), "{error}");
}

/// It may hold a vote, so a lost or broken one is told, with what to do; what the sentence says
/// works.
#[tokio::test]
async fn a_lost_or_broken_quorum_state_refuses_the_start_and_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let controller = started(dir.path()).await;
    create_one(&controller, "t", 1).await;
    let before = content(&controller.image());
    let epoch = controller.quorum_status().await.unwrap().epoch;
    drop(controller);
    let path = log_dir(dir.path()).join("quorum-state");
    for broken in [
        None,
        Some(""),
        Some("{\"leaderId\":1"),
        Some("{\"leaderId\":1,\"leaderEpoch\":-4,\"votedId\":-1,\"data_version\":0}"),
    ] {
        match broken {
            None => fs::remove_file(&path).unwrap(),
            Some(text) => fs::write(&path, text).unwrap(),
        }
        let refused = Controller::start(settings(dir.path())).await;
        let error = refused.expect_err("refused").to_string();
        assert!(error.contains("quorum-state"), "{error}");
        let remedy = &error[error.rfind("write {").unwrap() + 6..=error.rfind('}').unwrap()];
        fs::write(&path, remedy).unwrap();
        let controller = bare(dir.path()).await;
        assert_eq!(content(&controller.image()), before);
        assert!(controller.quorum_status().await.unwrap().epoch > epoch);
    }
}

/// One flipped bit in the last batch, which was synced, is damage and no torn write; so is a tail
/// or a segment that is missing.
#[tokio::test]
async fn damage_below_the_synced_end_is_refused_by_name_and_nothing_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let controller = started(dir.path()).await;
    let segment = files(dir.path(), ".log").pop().unwrap();
    let size_before = fs::metadata(&segment).unwrap().len() as usize;
    create_one(&controller, "last", 1).await;
    drop(controller);
    let whole = fs::read(&segment).unwrap();
    let mut flipped = whole.clone();
    *flipped.last_mut().unwrap() ^= 1;
    for damaged in [
        &flipped,
        &whole[..whole.len() - 9],
        &whole[..size_before],
        &[],
    ] {
        fs::write(&segment, damaged).unwrap();
        let refused = Controller::start(settings(dir.path())).await;
        let error = refused.expect_err("refused").to_string();
        assert!(
            error.contains(".log") && error.contains("was on disk"),
            "{error}"
        );
        assert_eq!(fs::read(&segment).unwrap(), damaged, "nothing was cut");
    }
    fs::remove_file(&segment).unwrap();
    let refused = Controller::start(settings(dir.path())).await;
    let error = refused.expect_err("refused").to_string();
    assert!(error.contains("is missing"), "{error}");
    fs::write(&segment, &whole).unwrap();
    assert!(bare(dir.path()).await.image().topic("last").is_some());
}

/// A log of an older version has no synced end; it starts as it did, and has one from then on.
#[tokio::test]
async fn a_log_without_a_synced_end_starts_and_gets_one() {
    let dir = tempfile::tempdir().unwrap();
    let controller = started(dir.path()).await;
    create_one(&controller, "t", 1).await;
    drop(controller);
    fs::remove_file(log_dir(dir.path()).join("synced-end")).unwrap();
    drop(bare(dir.path()).await);
    let segment = files(dir.path(), ".log").pop().unwrap();
    let mut bytes = fs::read(&segment).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&segment, bytes).unwrap();
    assert!(Controller::start(settings(dir.path())).await.is_err());
}

#[tokio::test]
async fn a_large_decision_is_one_transaction_and_a_crash_inside_leaves_nothing_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let controller = bare(dir.path()).await;
    set(&controller, "small", "1").await.unwrap();
    let before = content(&controller.image());
    let segment = files(dir.path(), ".log").pop().unwrap();
    let size_before = fs::metadata(&segment).unwrap().len() as usize;
    let synced_before = synced_end(dir.path());
    let value = "v".repeat(30_000);
    let record = move |n: i32| {
        let name = format!("key-{n}").into();
        Record::from(ConfigRecord {
            resource_type: 4,
            name,
            value: Some(value.as_str().into()),
            ..Default::default()
        })
    };
    let records: Vec<Record> = (0..600).map(record).collect();
    controller
        .submit("large", move |_, _| Ok::<_, ApiError>((records, ())))
        .await
        .unwrap();
    let after = content(&controller.image());
    assert_eq!(
        controller
            .image()
            .configs(&ConfigResource::new(
                tarn_metadata::ResourceType::BROKER,
                ""
            ))
            .unwrap()
            .len(),
        601
    );
    drop(controller);
    let whole = fs::read(&segment).unwrap();
    assert!(
        whole.len() - size_before > 16 << 20,
        "three batches at least"
    );
    let controller = bare(dir.path()).await;
    assert_eq!(content(&controller.image()), after);
    drop(controller);
    fs::write(&segment, &whole[..size_before + (10 << 20)]).unwrap();
    power_cut_before_the_sync(dir.path(), &synced_before);
    let controller = bare(dir.path()).await;
    assert_eq!(content(&controller.image()), before);
    set(&controller, "small", "2").await.unwrap();
    let before = content(&controller.image());
    drop(controller);
    let controller = bare(dir.path()).await;
    assert_eq!(
        content(&controller.image()),
        before,
        "the open transaction was aborted in the log"
    );
}

#[tokio::test]
async fn a_decision_that_contradicts_the_image_is_refused_and_its_neighbours_live() {
    let dir = tempfile::tempdir().unwrap();
    let controller = bare(dir.path()).await;
    let bad = || -> Vec<Record> {
        let good = ConfigRecord {
            resource_type: 4,
            name: "half".into(),
            value: Some("1".into()),
            ..Default::default()
        };
        vec![
            good.into(),
            RemoveTopicRecord {
                topic_id: Uuid::random(),
                ..Default::default()
            }
            .into(),
        ]
    };
    let (one, refused, two) = tokio::join!(
        set(&controller, "a", "1"),
        controller.submit("bad", move |_, _| Ok::<_, ApiError>((bad(), ()))),
        set(&controller, "b", "1"),
    );
    assert!(one.is_ok() && two.is_ok() && refused.is_err());
    let image = controller.image();
    let resource = ConfigResource::new(tarn_metadata::ResourceType::BROKER, "");
    let keys: Vec<_> = image
        .configs(&resource)
        .unwrap()
        .keys()
        .map(|k| k.as_str().to_owned())
        .collect();
    assert_eq!(keys, ["a", "b"]);
}

#[tokio::test]
async fn a_snapshot_that_cannot_be_written_costs_nothing_but_itself() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = settings(dir.path());
    settings.snapshot_after_records = 1;
    let controller = Controller::start(settings).await.unwrap();
    // A file cannot be written where a directory has its name.
    let block = |offset: i64| {
        fs::create_dir_all(
            log_dir(dir.path()).join(format!("{offset:020}-0000000001.checkpoint.part")),
        )
        .unwrap()
    };
    let next = controller.image().offset() + 2;
    block(next);
    set(&controller, "k", "1").await.unwrap();
    set(&controller, "k", "2").await.unwrap();
    assert!(controller.halted().is_none());
    let before = content(&controller.image());
    drop(controller);
    assert_eq!(content(&bare(dir.path()).await.image()), before);
}

#[tokio::test]
async fn a_panicking_decision_halts_instead_of_hanging_everyone() {
    let dir = tempfile::tempdir().unwrap();
    let controller = bare(dir.path()).await;
    let answer = controller
        .submit(
            "panic",
            |_, _| -> Result<(Vec<Record>, ()), ControllerError> { panic!("on purpose") },
        )
        .await;
    assert!(matches!(
        answer,
        Err(ControllerError::Halted(_) | ControllerError::ShutDown)
    ));
    assert!(matches!(
        controller.wait_halted().await,
        ControllerError::Halted(_)
    ));
    assert!(set(&controller, "k", "v").await.is_err());
}

#[tokio::test]
async fn a_subscriber_sees_everything_first_and_then_every_change_once() {
    let dir = tempfile::tempdir().unwrap();
    let controller = started(dir.path()).await;
    let id = create_one(&controller, "t", 2).await;
    let mut subscription = controller.subscribe();
    let (image, delta) = subscription.next().await.unwrap();
    assert_eq!(
        (delta.topics[&id].change, delta.topics[&id].partitions.len()),
        (Change::Created, 2)
    );
    assert_eq!(image.offset(), controller.image().offset());
    let second = create_one(&controller, "u", 1).await;
    set(&controller, "k", "v").await.unwrap();
    let (mut topics, mut configs) = (Vec::new(), 0);
    while topics.is_empty() || configs == 0 {
        let (_, delta) = subscription.next().await.unwrap();
        topics.extend(delta.topics.keys().copied());
        configs += delta.configs.len();
    }
    assert_eq!((topics, configs), (vec![second], 1));
    controller.shutdown().await.unwrap();
    assert!(subscription.next().await.is_none());
}

#[tokio::test]
async fn waiting_decisions_share_a_sync() {
    let dir = tempfile::tempdir().unwrap();
    let controller = started(dir.path()).await;
    let begin = Instant::now();
    let tasks: Vec<_> = (0..2_000)
        .map(|n| {
            let controller = controller.clone();
            tokio::spawn(async move { set(&controller, "k", &n.to_string()).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert!(begin.elapsed().as_secs() < 10, "{:?}", begin.elapsed());
}

#[tokio::test]
async fn ten_thousand_partitions_are_made_and_re_led_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let controller = started(dir.path()).await;
    let begin = Instant::now();
    let topics = (0..100)
        .map(|n| topic(&format!("topic.{n}"), 100))
        .collect();
    let results = create(&controller, topics).await;
    assert!(results.iter().all(|result| result.error_code == 0));
    let created = begin.elapsed();
    let begin = Instant::now();
    controller
        .register_and_unfence(registration(1))
        .await
        .unwrap();
    let led = begin.elapsed();
    let begin = Instant::now();
    for n in 0..50 {
        create_one(&controller, &format!("later-{n}"), 1).await;
    }
    let single = begin.elapsed() / 50;
    controller.shutdown().await.unwrap();
    let begin = Instant::now();
    let controller = bare(dir.path()).await;
    let started = begin.elapsed();
    println!(
        "created {created:?}, led again {led:?}, one more topic {single:?}, started {started:?}"
    );
    assert_eq!(
        controller
            .image()
            .topic("topic.99")
            .unwrap()
            .partition(99)
            .unwrap()
            .leader_epoch,
        2
    );
    assert!(created.as_millis() < 3_000 && led.as_millis() < 3_000 && started.as_millis() < 3_000);
}

#[tokio::test]
async fn damage_before_acknowledged_decisions_is_refused_by_name_and_nothing_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    let controller = started(dir.path()).await;
    for n in 0..5 {
        create_one(&controller, &format!("t{n}"), 1).await;
    }
    drop(controller);
    let segment = files(dir.path(), ".log").pop().unwrap();
    let whole = fs::read(&segment).unwrap();
    for at in [
        4,
        11,
        16,
        20,
        whole.len() / 2,
        whole.len() / 2 + 61,
        whole.len() - 300,
    ] {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x40;
        fs::write(&segment, &damaged).unwrap();
        let error = Controller::start(settings(dir.path()))
            .await
            .map(|c| c.image().topics().len());
        let error = error.expect_err(&format!("byte {at}")).to_string();
        assert!(
            error.contains("damaged at byte") && error.contains(".log"),
            "{error}"
        );
        assert_eq!(fs::read(&segment).unwrap(), damaged, "nothing was cut");
    }
    fs::write(&segment, &whole).unwrap();
    assert_eq!(bare(dir.path()).await.image().topics().len(), 5);
}

/// The metadata log holds the passwords of mirrors: it and its snapshots are for the broker's user
/// alone, also where an older version made them.
#[tokio::test]
async fn the_metadata_log_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let folder = log_dir(dir.path());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for _ in 0..2 {
        let controller = started(dir.path()).await;
        create_one(
            &controller,
            &format!("t{}", controller.image().topics().len()),
            1,
        )
        .await;
        controller.shutdown().await.unwrap();
        assert_eq!(mode(&folder), 0o700);
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            assert_eq!(mode(&path), 0o600, "{}", path.display());
        }
        assert!(!files(dir.path(), ".checkpoint").is_empty());
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

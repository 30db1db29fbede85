//! Faults found from outside: descriptors, disks, memory and time run short, or bits rot: an
//! answer, never a death.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{CreateTopicsRequest, ProduceRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use tarn_tests::process::Scratch;
use tarn_tests::raw::{self, PLAIN, RawClient, Topic};
use tarn_tests::tarn::Tarn;
use tarn_tests::{not_run, wait};

const STORAGE_ERROR: i16 = 56;

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn create_topic(tarn: &Tarn, name: &str, partitions: i32, configs: &[(&str, &str)]) {
    let configs = configs
        .iter()
        .map(|(key, value)| {
            CreatableTopicConfig::default()
                .with_name(text(key))
                .with_value(Some(text(value)))
        })
        .collect();
    let topic = CreatableTopic::default()
        .with_name(TopicName(text(name)))
        .with_num_partitions(partitions)
        .with_replication_factor(1)
        .with_configs(configs);
    let request = CreateTopicsRequest::default()
        .with_topics(vec![topic])
        .with_timeout_ms(60_000);
    let mut client = RawClient::connect(tarn.port()).unwrap();
    client.set_read_limit(Duration::from_secs(60)).unwrap();
    let answer = client.call(7, &request).unwrap();
    assert_eq!(answer.topics[0].error_code, 0, "{answer:?}");
}

/// One record to each of `partitions` in one request; gives the partitions that refused it, with
/// their codes.
fn produce_to(
    client: &mut RawClient,
    topic: &str,
    partitions: impl Iterator<Item = i32>,
) -> Vec<(i32, i16)> {
    let data = partitions.map(|p| {
        PartitionProduceData::default()
            .with_index(p)
            .with_records(Some(raw::batch(PLAIN, &["x"])))
    });
    let topic = TopicProduceData::default()
        .with_name(TopicName(text(topic)))
        .with_partition_data(data.collect());
    let request = ProduceRequest::default()
        .with_acks(-1)
        .with_timeout_ms(30_000)
        .with_topic_data(vec![topic]);
    let answer = client.call(9, &request).expect("the connection lives");
    let partitions = answer.responses.iter().flat_map(|t| &t.partition_responses);
    partitions
        .filter(|p| p.error_code != 0)
        .map(|p| (p.index, p.error_code))
        .collect()
}

/// As [`produce_to`]; what was refused with an error that clients try again is tried again.
fn produce_to_all(client: &mut RawClient, topic: &str, partitions: std::ops::Range<i32>) {
    let mut left: Vec<i32> = partitions.collect();
    wait::until(
        Duration::from_secs(60),
        "every partition takes its record",
        || {
            let refused = produce_to(client, topic, left.iter().copied());
            assert!(
                refused.iter().all(|(_, code)| *code == STORAGE_ERROR),
                "{refused:?}"
            );
            left = refused.into_iter().map(|(p, _)| p).collect();
            if left.is_empty() {
                Ok(())
            } else {
                Err(format!("{} refused", left.len()))
            }
        },
    );
}

/// Reads the first record, as patiently as a consumer: after a crash thousands of logs are synced
/// before they are shown.
fn read_first(tarn: &Tarn, topic: &str, partition: i32) {
    let mut client = RawClient::connect(tarn.port()).unwrap();
    let name = Topic::Name(topic.into());
    let what = format!("a record of {topic}-{partition}");
    wait::until(Duration::from_secs(30), &what, || {
        let data = raw::fetch_once(&mut client, &name, partition, 0, 1 << 20, false, 1000)
            .map_err(|e| format!("{e:#}"))?;
        let is_there = data.records.is_some_and(|r| !r.is_empty());
        is_there
            .then_some(())
            .ok_or_else(|| format!("code {}", data.error_code))
    });
}

fn open_descriptors(tarn: &mut Tarn) -> usize {
    let pid = tarn.process().id();
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// 3,000 partitions, 1,200 of them in one request, and more idle connections than the process has
/// descriptors for, under a limit of 1,024: everything is served, before and after a crash.
#[test]
fn three_thousand_partitions_are_served_with_a_thousand_descriptors() {
    let mut tarn = Tarn::start_with_nofile(1024, &[]);
    create_topic(&tarn, "wide", 3000, &[]);
    let mut client = RawClient::connect(tarn.port()).unwrap();
    client.set_read_limit(Duration::from_secs(60)).unwrap();
    produce_to_all(&mut client, "wide", 0..1200);
    // Who comes too late is sent away; nobody else notices.
    let idle: Vec<_> = (0..1100).map(|_| RawClient::connect(tarn.port())).collect();
    assert!(idle.iter().filter(|c| c.is_ok()).count() > 400);
    for from in [0, 1000, 2000] {
        produce_to_all(&mut client, "wide", from..from + 1000);
    }
    assert!(open_descriptors(&mut tarn) <= 1024);
    drop(idle);
    wait::until(
        Duration::from_secs(30),
        "new connections are taken again",
        || {
            raw::api_versions(tarn.port())
                .map(|_| ())
                .map_err(|e| format!("{e:#}"))
        },
    );
    for partition in [0, 700, 1500, 2999] {
        read_first(&tarn, "wide", partition);
    }
    tarn.kill();
    tarn.restart();
    for partition in [0, 700, 1500, 2999] {
        read_first(&tarn, "wide", partition);
    }
    let mut client = RawClient::connect(tarn.port()).unwrap();
    client.set_read_limit(Duration::from_secs(60)).unwrap();
    produce_to_all(&mut client, "wide", 0..3000);
    let log = tarn.process().output();
    assert!(!log.contains("is offline"), "{}", tarn.process().tail(20));
    tarn.check_healthy();
}

/// One bit flips on the disk in records that nobody reads: the scrub says which topic, partition
/// and offset.
#[test]
fn the_scrub_names_the_place_of_a_flipped_bit() {
    let mut tarn = Tarn::start_with(&[("log.scrub.interval.ms", "1000")]);
    create_topic(&tarn, "rot", 2, &[]);
    let mut client = RawClient::connect(tarn.port()).unwrap();
    for _ in 0..5 {
        produce_to_all(&mut client, "rot", 0..2);
    }
    let scrubbed = |tarn: &mut Tarn, what: &str| {
        wait::until(Duration::from_secs(60), what, || {
            let log = tarn.process().output();
            let line = log.lines().rev().find(|l| l.contains(what));
            line.map(str::to_owned)
                .ok_or_else(|| tarn.process().tail(5))
        })
    };
    scrubbed(&mut tarn, "scrub is through");
    assert!(!tarn.process().output().contains("the scrub found"));
    tarn.stop();
    let file = tarn
        .partition_dir("rot", 1)
        .join("00000000000000000000.log");
    let mut bytes = fs::read(&file).unwrap();
    let batch = bytes.len() / 5;
    // The last byte of the fourth batch.
    bytes[4 * batch - 1] ^= 4;
    fs::write(&file, bytes).unwrap();
    tarn.restart();
    let told = scrubbed(&mut tarn, "the scrub found");
    for part in ["topic=rot", "partition=1", "offset=3"] {
        assert!(told.contains(part), "{told}");
    }
    tarn.check_healthy();
}

/// A file system in a file, mounted; unmounted when dropped.
struct Ext4(PathBuf);

impl Ext4 {
    fn mount(scratch: &Path) -> Option<Ext4> {
        let (image, at) = (scratch.join("image"), scratch.join("disk"));
        fs::create_dir_all(&at).unwrap();
        let file = fs::File::create(&image).unwrap();
        file.set_len(64 << 20).unwrap();
        let ran = |program: &str, arguments: &[&str]| {
            let output = Command::new(program).args(arguments).output();
            output.is_ok_and(|o| o.status.success())
        };
        let (image, point) = (image.display().to_string(), at.display().to_string());
        let mounted = ran("mkfs.ext4", &["-q", "-F", &image])
            && ran("mount", &["-o", "loop", &image, &point])
            && ran("fsfreeze", &["-f", &point])
            && ran("fsfreeze", &["-u", &point]);
        mounted.then_some(Ext4(at))
    }

    fn freeze(&self) -> Frozen {
        let status = Command::new("fsfreeze").arg("-f").arg(&self.0).status();
        assert!(status.is_ok_and(|s| s.success()), "fsfreeze");
        Frozen(self.0.clone())
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(&self.0).status().ok();
    }
}

/// A frozen file system; a process with a write in it cannot even be killed before it thaws.
struct Frozen(PathBuf);

impl Drop for Frozen {
    fn drop(&mut self) {
        Command::new("fsfreeze")
            .arg("-u")
            .arg(&self.0)
            .status()
            .ok();
    }
}

/// F-6: the disk of some partitions of a mirror stops answering while they are appended to.
/// Describe answers all the time, and a partition elsewhere is copied, paused and resumed; so is
/// another mirror.
#[test]
fn a_stuck_append_of_one_partition_holds_up_no_other_of_its_mirror() {
    const PARTITIONS: i32 = 8;
    const QUICK: Duration = Duration::from_secs(10);
    let scratch = Scratch::new("stuck");
    let Some(disk) = Ext4::mount(scratch.path()) else {
        return not_run::note("device: no file system can be mounted and frozen here");
    };
    let source = Tarn::start();
    let topics: Vec<String> = (0..PARTITIONS).map(|n| format!("t{n}")).collect();
    let mut client = RawClient::connect(source.port()).unwrap();
    for topic in &topics {
        create_topic(&source, topic, 1, &[]);
        assert_eq!(produce_to(&mut client, topic, 0..1), []);
    }
    let (well, dead) = (scratch.path().join("well"), disk.0.join("dead"));
    let dirs = format!("{},{}", well.display(), dead.display());
    let tarn = Tarn::start_with(&[
        ("log.dirs", dirs.as_str()),
        ("log.dir.stall.timeout.ms", "120000"),
        // The states of all partitions are in one log, which a working disk has: the first
        // directory is taken where none has fewer logs.
        ("mirror.state.topic.num.partitions", "1"),
    ]);
    for mirror in ["m", "other"] {
        tarn.create_mirror(mirror, &source.bootstrap(), &[]);
    }
    let mirror_of = |n: usize| if n < 6 { "m" } else { "other" };
    for (n, topic) in topics.iter().enumerate() {
        tarn.add_topics(mirror_of(n), topic);
        tarn.await_caught_up(&source.cluster(), topic, 1, Duration::from_secs(60));
    }
    assert!(well.join("__mirror_state-0").exists());
    let is_well = |n: &usize| well.join(format!("{}-0", topics[*n])).exists();
    let (served, stuck): (Vec<usize>, Vec<usize>) = (0..topics.len()).partition(is_well);
    assert!(
        served.len() >= 3 && stuck.len() >= 3,
        "{served:?} {stuck:?}"
    );
    let within = |what: &str, command: &dyn Fn()| {
        let begun = Instant::now();
        command();
        let took = begun.elapsed();
        assert!(took < QUICK, "{what} took {took:?}");
    };

    let frozen = disk.freeze();
    for &n in &stuck {
        assert_eq!(produce_to(&mut client, &topics[n], 0..1), []);
    }
    // By now every append there is stuck, and the directory is known not to answer.
    std::thread::sleep(Duration::from_secs(3));
    for &n in &served {
        let (topic, mirror) = (&topics[n], mirror_of(n));
        let of_topic = |verb: &str| {
            tarn.mirrors_ok(&[verb, "--mirror", mirror, "--topic", topic, "--wait"]);
        };
        within("describe", &|| {
            assert!(!tarn.describe(mirror).is_empty());
        });
        within("a pause", &|| of_topic("--pause"));
        within("a resume", &|| of_topic("--resume"));
        assert_eq!(produce_to(&mut client, topic, 0..1), []);
        within("the copy of the next record", &|| {
            tarn.await_caught_up(&source.cluster(), topic, 1, QUICK);
        });
    }
    // A pause of what is stuck is taken, and ends when the disk answers.
    for &n in &stuck {
        within("a pause of what is stuck", &|| {
            tarn.mirrors_ok(&["--pause", "--mirror", mirror_of(n), "--topic", &topics[n]]);
        });
    }
    within("a pause beside them", &|| {
        let n = served[0];
        tarn.mirrors_ok(&[
            "--pause",
            "--mirror",
            mirror_of(n),
            "--topic",
            &topics[n],
            "--wait",
        ]);
    });
    drop(frozen);
    for &n in &stuck {
        let state = |state: &'static str| {
            tarn.await_state(mirror_of(n), state, Duration::from_secs(60), |row| {
                row["topic"] == topics[n].as_str()
            });
        };
        state("PAUSED");
        tarn.mirrors_ok(&["--resume", "--mirror", mirror_of(n), "--topic", &topics[n]]);
        tarn.await_caught_up(&source.cluster(), &topics[n], 1, Duration::from_secs(60));
    }
}

/// One of two log directories is on a disk that stops answering in the middle of several writes:
/// new connections, the other directory and new topics there are served all the time, and the dead
/// directory is given up after its time.
#[test]
fn a_frozen_disk_holds_up_nobody_but_its_own_partitions() {
    const PARTITIONS: i32 = 8;
    let scratch = Scratch::new("frozen");
    let Some(disk) = Ext4::mount(scratch.path()) else {
        return not_run::note("device: no file system can be mounted and frozen here");
    };
    let (well, dead) = (scratch.path().join("well"), disk.0.join("dead"));
    let dirs = format!("{},{}", well.display(), dead.display());
    let mut tarn = Tarn::start_with(&[
        ("log.dirs", dirs.as_str()),
        ("log.dir.stall.timeout.ms", "6000"),
    ]);
    create_topic(&tarn, "t", PARTITIONS, &[]);
    let mut client = RawClient::connect(tarn.port()).unwrap();
    produce_to_all(&mut client, "t", 0..PARTITIONS);
    let in_dir = |dir: &Path| -> Vec<i32> {
        let there = |p: &i32| dir.join(format!("t-{p}")).exists();
        (0..PARTITIONS).filter(there).collect()
    };
    let (served, lost) = (in_dir(&well), in_dir(&dead));
    assert!(
        !served.is_empty() && !lost.is_empty(),
        "{served:?} {lost:?}"
    );

    let frozen = disk.freeze();
    let port = tarn.port();
    let stuck: Vec<_> = lost
        .iter()
        .cycle()
        .take(6)
        .map(|&p| {
            std::thread::spawn(move || {
                let mut client = RawClient::connect(port).unwrap();
                client.set_read_limit(Duration::from_secs(60)).unwrap();
                produce_to(&mut client, "t", std::iter::once(p))
            })
        })
        .collect();
    let until = Instant::now() + Duration::from_secs(5);
    let mut rounds = 0;
    while Instant::now() < until || rounds < 10 {
        raw::api_versions(port).expect("a new connection is served");
        let mut client = RawClient::connect(port).unwrap();
        assert_eq!(produce_to(&mut client, "t", served.iter().copied()), []);
        rounds += 1;
        std::thread::sleep(Duration::from_millis(50));
    }
    wait::until(
        Duration::from_secs(60),
        "the dead directory is offline",
        || {
            let mut client = RawClient::connect(port).unwrap();
            let refused = produce_to(&mut client, "t", lost.iter().copied());
            assert_eq!(refused.len(), lost.len());
            assert!(
                refused.iter().all(|(_, code)| *code == STORAGE_ERROR),
                "{refused:?}"
            );
            let log = tarn.process().output();
            if log.contains("log directory is offline") {
                Ok(())
            } else {
                Err(tarn.process().tail(5))
            }
        },
    );
    assert_eq!(produce_to(&mut client, "t", served.iter().copied()), []);
    create_topic(&tarn, "new", 1, &[]);
    assert_eq!(produce_to(&mut client, "new", 0..1), []);
    drop(frozen);
    for thread in stuck {
        // Nobody was told that a record is safe which is not.
        let refused = thread.join().unwrap();
        assert!(refused.iter().all(|(_, code)| *code == STORAGE_ERROR) && !refused.is_empty());
    }
    assert_eq!(produce_to(&mut client, "t", served.iter().copied()), []);
    tarn.check_healthy();
}

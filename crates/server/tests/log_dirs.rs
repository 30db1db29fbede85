//! Several log directories: what should be there is in the metadata, and absence is not emptiness.

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use support::*;
use tarn_server::{Config, Server, StartError};
use tarn_wire::messages::delete_topics_request::DeleteTopicState;
use tarn_wire::messages::{DeleteTopicsRequest, ProduceResponse};

const STORAGE_ERROR: i16 = 56;

/// A place with directories `a`, `b`, … of which `names` are in `log.dirs`; the metadata log is in
/// `a`.
struct Place {
    root: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        Place {
            root: tempfile::tempdir().unwrap(),
        }
    }
    fn dir(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }
    async fn try_start(&self, names: &str) -> Result<Server, StartError> {
        let dirs: Vec<String> = names
            .chars()
            .map(|name| self.dir(&name.to_string()).display().to_string())
            .collect();
        let metadata = self.dir("a").display().to_string();
        let pairs = [
            ("process.roles", "broker,controller"),
            ("node.id", "1"),
            (
                "listeners",
                "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            ),
            ("controller.listener.names", "CONTROLLER"),
            ("log.dirs", &dirs.join(",")),
            ("metadata.log.dir", &metadata),
            ("offsets.topic.num.partitions", "1"),
        ];
        Server::start(Config::from_pairs(&pairs).unwrap()).await
    }
    async fn start(&self, names: &str) -> Server {
        self.try_start(names).await.unwrap()
    }
    /// The directory that holds a topic's only partition.
    fn home(&self, topic: &str) -> String {
        let folder = format!("{topic}-0");
        let holds = |name: &&str| self.dir(name).join(&folder).is_dir();
        ["a", "b", "c"].into_iter().find(holds).unwrap().to_owned()
    }
}

async fn client(server: &Server) -> Client {
    Client::connect(server.address()).await
}

fn code(response: &ProduceResponse) -> i16 {
    response.responses[0].partition_responses[0].error_code
}

async fn produce(client: &mut Client, topic: &str) -> i16 {
    let request = produce_request(topic, 0, batch(&[b"x"]), -1);
    code(&client.call(9, &request).await)
}

async fn delete(client: &mut Client, topic: &str) -> i16 {
    let request = DeleteTopicsRequest {
        topics: vec![DeleteTopicState {
            name: Some(topic.into()),
            ..Default::default()
        }],
        timeout_ms: 10_000,
        ..Default::default()
    };
    client.call(6, &request).await.responses[0].error_code
}

async fn end(client: &mut Client, topic: &str) -> (i16, i64) {
    let answer = client
        .call(12, &fetch_request(topic, 0, 1 << 20, 10_000))
        .await;
    let partition = &answer.responses[0].partitions[0];
    (partition.error_code, partition.high_watermark)
}

/// Topics `t0` to `t3` with as many records as their number plus one.
async fn fill(client: &mut Client) {
    for n in 0..4 {
        let topic = format!("t{n}");
        client.create(&topic, 1, &[]).await;
        for _ in 0..=n {
            assert_eq!(produce(client, &topic).await, 0);
        }
    }
}

fn move_away(dir: &Path) -> PathBuf {
    let away = dir.with_extension("away");
    fs::rename(dir, &away).unwrap();
    away
}

/// Topics of one partition spread over the directories. A directory that is not mounted (its mount
/// point is empty) refuses the start by name, and nothing is formatted.
#[tokio::test(flavor = "multi_thread")]
async fn an_unmounted_directory_refuses_the_start_and_is_not_formatted() {
    let place = Place::new();
    let server = place.start("ab").await;
    let mut one = client(&server).await;
    fill(&mut one).await;
    let homes: Vec<String> = (0..4).map(|n| place.home(&format!("t{n}"))).collect();
    assert_eq!(
        homes.iter().filter(|home| *home == "a").count(),
        2,
        "{homes:?}"
    );
    server.shutdown().await;
    for emptied in ["b", "a"] {
        let dir = place.dir(emptied);
        let away = move_away(&dir);
        for there in [true, false] {
            if there {
                fs::create_dir(&dir).unwrap();
            }
            let error = place.try_start("ab").await.unwrap_err();
            let text = error.to_string();
            assert!(
                matches!(error, StartError::Format { .. })
                    && text.contains(&dir.display().to_string()),
                "{text}"
            );
            if there {
                let names: Vec<_> = fs::read_dir(&dir).unwrap().collect();
                assert!(names.is_empty(), "{names:?}");
                fs::remove_dir(&dir).unwrap();
            }
        }
        _ = fs::remove_dir_all(&dir);
        fs::rename(&away, &dir).unwrap();
    }
    let server = place.start("ab").await;
    let mut one = client(&server).await;
    for n in 0..4 {
        assert_eq!(end(&mut one, &format!("t{n}")).await, (0, n + 1));
    }
    server.shutdown().await;
}

/// A directory left out of `log.dirs` takes its partitions offline; nothing begins again at offset
/// 0 elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_directory_left_out_takes_its_partitions_offline() {
    let place = Place::new();
    let server = place.start("ab").await;
    fill(&mut client(&server).await).await;
    server.shutdown().await;
    let homes: Vec<String> = (0..4).map(|n| place.home(&format!("t{n}"))).collect();
    for round in 0..2 {
        let server = place.start("a").await;
        let mut one = client(&server).await;
        for (n, home) in homes.iter().enumerate() {
            let topic = format!("t{n}");
            let (code, high_watermark) = end(&mut one, &topic).await;
            match home.as_str() {
                "a" => assert_eq!((code, high_watermark), (0, n as i64 + 1)),
                _ => {
                    assert_eq!(code, STORAGE_ERROR);
                    assert_eq!(produce(&mut one, &topic).await, STORAGE_ERROR);
                }
            }
        }
        one.create(&format!("new{round}"), 1, &[]).await;
        assert_eq!(produce(&mut one, &format!("new{round}")).await, 0);
        server.shutdown().await;
    }
    // A new directory is not formatted either while one is missing.
    let error = place.try_start("ac").await.unwrap_err().to_string();
    assert!(
        error.contains(&place.dir("b").display().to_string()),
        "{error}"
    );
    let server = place.start("ab").await;
    let mut one = client(&server).await;
    for n in 0..4 {
        assert_eq!(end(&mut one, &format!("t{n}")).await, (0, n + 1));
    }
    server.shutdown().await;
    // When all are there it is, and new topics go to it.
    let server = place.start("abc").await;
    let mut one = client(&server).await;
    one.create("fresh", 1, &[]).await;
    assert_eq!(produce(&mut one, "fresh").await, 0);
    assert_eq!(place.home("fresh"), "c");
    for n in 0..4 {
        assert_eq!(end(&mut one, &format!("t{n}")).await, (0, n + 1));
    }
    server.shutdown().await;
}

/// A folder that was removed is missed, its partition alone is offline; such a topic can be deleted
/// and made again.
#[tokio::test(flavor = "multi_thread")]
async fn a_removed_folder_takes_one_partition_offline_and_the_topic_can_be_made_again() {
    let place = Place::new();
    let server = place.start("a").await;
    fill(&mut client(&server).await).await;
    server.shutdown().await;
    fs::remove_dir_all(place.dir("a").join("t1-0")).unwrap();
    let server = place.start("a").await;
    let mut one = client(&server).await;
    assert_eq!(end(&mut one, "t1").await.0, STORAGE_ERROR);
    assert_eq!(produce(&mut one, "t1").await, STORAGE_ERROR);
    assert!(!place.dir("a").join("t1-0").exists());
    assert_eq!(end(&mut one, "t2").await, (0, 3));
    assert_eq!(delete(&mut one, "t1").await, 0);
    one.create("t1", 1, &[]).await;
    assert_eq!(produce(&mut one, "t1").await, 0);
    assert_eq!(end(&mut one, "t1").await, (0, 1));
    server.shutdown().await;
    // All of a directory but its identity.
    for entry in fs::read_dir(place.dir("a")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let kept = ["meta.properties", "log-directories", "__cluster_metadata-0"];
        match (kept.contains(&name.as_str()), path.is_dir()) {
            (true, _) => {}
            (false, true) => fs::remove_dir_all(path).unwrap(),
            (false, false) => fs::remove_file(path).unwrap(),
        }
    }
    let error = place.try_start("a").await.unwrap_err().to_string();
    assert!(
        error.contains("checkpoints and partitions are gone"),
        "{error}"
    );
}

/// Partitions without a metadata log are not strays: the start is refused, and nothing is renamed.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_metadata_log_refuses_the_start() {
    let place = Place::new();
    let server = place.start("a").await;
    fill(&mut client(&server).await).await;
    server.shutdown().await;
    fs::remove_dir_all(place.dir("a").join("__cluster_metadata-0")).unwrap();
    let error = place.try_start("a").await.unwrap_err();
    assert!(matches!(error, StartError::Corrupt { .. }), "{error}");
    assert!(place.dir("a").join("t0-0").is_dir());
}

/// What an operator moved from one directory to another is found, and noted; a copy of a directory
/// is refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_moved_folder_is_found_and_a_copied_directory_is_refused() {
    let place = Place::new();
    let server = place.start("ab").await;
    fill(&mut client(&server).await).await;
    server.shutdown().await;
    let from = place.home("t3");
    let to = if from == "a" { "b" } else { "a" };
    fs::rename(place.dir(&from).join("t3-0"), place.dir(to).join("t3-0")).unwrap();
    for _ in 0..2 {
        let server = place.start("ab").await;
        assert_eq!(end(&mut client(&server).await, "t3").await, (0, 4));
        server.shutdown().await;
    }
    let text = fs::read_to_string(place.dir("a").join("meta.properties")).unwrap();
    fs::write(place.dir("b").join("meta.properties"), text).unwrap();
    let error = place.try_start("ab").await.unwrap_err().to_string();
    assert!(error.contains("copy"), "{error}");
}

/// While a directory is offline, its topics can be deleted and made again, in those that work.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_of_an_offline_directory_can_be_made_again_elsewhere() {
    let place = Place::new();
    let server = place.start("ab").await;
    let mut one = client(&server).await;
    fill(&mut one).await;
    let in_b: Vec<String> = (0..4)
        .map(|n| format!("t{n}"))
        .filter(|topic| place.home(topic) == "b")
        .collect();
    for n in 0..4 {
        one.create(&format!("probe{n}"), 1, &[]).await;
    }
    // A file where the directory was: the next new folder in it cannot be made, and the directory
    // goes offline.
    let away = move_away(&place.dir("b"));
    fs::write(place.dir("b"), "").unwrap();
    let mut offline = false;
    for n in 0..4 {
        offline |= produce(&mut one, &format!("probe{n}")).await == STORAGE_ERROR;
    }
    assert!(offline);
    assert_eq!(produce(&mut one, &in_b[0]).await, STORAGE_ERROR);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    loop {
        assert_eq!(delete(&mut one, &in_b[0]).await, 0);
        one.create(&in_b[0], 1, &[]).await;
        if produce(&mut one, &in_b[0]).await == 0 {
            break;
        }
        assert!(
            std::time::Instant::now() < deadline,
            "it goes where it can be written"
        );
    }
    assert_eq!(place.home(&in_b[0]), "a");
    server.shutdown().await;
    // The old folder comes back with its directory: it belongs to a topic that was deleted.
    fs::remove_file(place.dir("b")).unwrap();
    fs::rename(&away, place.dir("b")).unwrap();
    let server = place.start("ab").await;
    assert_eq!(end(&mut client(&server).await, &in_b[0]).await, (0, 1));
    assert!(!place.dir("b").join(format!("{}-0", in_b[0])).exists());
    server.shutdown().await;
}

//! Starts that fail say why, touch nothing, and leave the way free for the next one. Limits of
//! connections.

mod support;

use std::time::{Duration, Instant};

use support::*;
use tarn_server::{Config, Server, StartError, storage};
use tarn_wire::messages::MetadataRequest;

fn config(dir: &std::path::Path, more: &[(&str, &str)]) -> Config {
    let logs = dir.join("logs");
    let mut pairs = vec![
        ("process.roles", "broker,controller"),
        ("node.id", "1"),
        (
            "listeners",
            "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        ),
        ("controller.listener.names", "CONTROLLER"),
        ("log.dirs", logs.to_str().unwrap()),
    ];
    pairs.extend_from_slice(more);
    Config::from_pairs(&pairs).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_port_is_told_before_any_directory_is_touched() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listeners = format!(
        "PLAINTEXT://127.0.0.1:{},CONTROLLER://127.0.0.1:0",
        taken.local_addr().unwrap().port()
    );
    let dir = tempfile::tempdir().unwrap();
    let error = Server::start(config(dir.path(), &[("listeners", &listeners)]))
        .await
        .unwrap_err();
    assert!(matches!(error, StartError::Bind { .. }), "{error}");
    assert_eq!(error.exit_code(), 1);
    assert!(!dir.path().join("logs").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_directory_is_told_and_is_free_after_the_first_server() {
    let dir = tempfile::tempdir().unwrap();
    let first = Server::start(config(dir.path(), &[])).await.unwrap();
    let error = Server::start(config(dir.path(), &[])).await.unwrap_err();
    assert!(matches!(error, StartError::Locked { .. }), "{error}");
    first.shutdown().await;
    Server::start(config(dir.path(), &[]))
        .await
        .unwrap()
        .shutdown()
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_another_node_cluster_or_purpose_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    storage::format(
        &config(dir.path(), &[]),
        &storage::random_cluster_id(),
        false,
    )
    .unwrap();
    let error = Server::start(config(dir.path(), &[("node.id", "2")]))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("belongs to node 1"), "{error}");
    let again = storage::format(
        &config(dir.path(), &[]),
        &storage::random_cluster_id(),
        true,
    )
    .unwrap_err();
    assert!(again.to_string().contains("belongs to cluster"), "{again}");
    let other = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(other.path().join("logs")).unwrap();
    std::fs::write(other.path().join("logs/thesis.txt"), "precious").unwrap();
    let error = Server::start(config(other.path(), &[])).await.unwrap_err();
    assert!(error.to_string().contains("no meta.properties"), "{error}");
    assert_eq!(
        std::fs::read_dir(other.path().join("logs"))
            .unwrap()
            .count(),
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_above_a_cap_are_closed_and_others_go_on() {
    let node = start_with(&[("max.connections.per.ip", "2")]).await;
    let mut first = Client::connect(node.server.address()).await;
    let request = MetadataRequest {
        topics: None,
        ..Default::default()
    };
    first.call(9, &request).await;
    let second = Client::connect(node.server.address()).await;
    let mut third = Client::connect(node.server.address()).await;
    assert!(third.read_frame().await.is_none());
    first.call(9, &request).await;
    drop(second);
    let begin = Instant::now();
    loop {
        let mut again = Client::connect(node.server.address()).await;
        let sent = again.send_frame(&[0, 18, 0, 0, 0, 0, 0, 1, 0, 0]).await;
        if sent.is_ok() && again.read_frame().await.is_some() {
            break;
        }
        assert!(
            begin.elapsed() < Duration::from_secs(5),
            "the place of a closed connection comes back"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_that_does_not_arrive_in_time_closes_its_connection() {
    let node = start_with(&[("socket.frame.timeout.ms", "1000")]).await;
    let mut slow = Client::connect(node.server.address()).await;
    tokio::io::AsyncWriteExt::write_all(&mut slow.stream, &[0, 0, 0, 50, 1, 2])
        .await
        .unwrap();
    let begin = Instant::now();
    assert!(slow.read_frame().await.is_none());
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_ends_long_polls_and_idle_connections_quickly() {
    let node = start().await;
    let mut waiting = Client::connect(node.server.address()).await;
    waiting.create("t", 1, &[]).await;
    waiting.send(12, &fetch_request("t", 0, 1000, 60_000)).await;
    let _idle = Client::connect(node.server.address()).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let begin = Instant::now();
    assert!(node.server.shutdown().await.clean);
    assert!(
        begin.elapsed() < Duration::from_secs(3),
        "{:?}",
        begin.elapsed()
    );
}

//! What a connection says about peers that are not what they should be. The peers here are raw
//! sockets, not mock brokers.

use std::time::{Duration, Instant};

use tarn_client::{
    BrokerNode, ClientError, Cluster, ClusterOptions, Connection, ConnectionOptions, HostPort,
    MetadataTopics, Peer,
};
use tarn_wire::Str;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

fn options() -> ConnectionOptions {
    ConnectionOptions {
        connect_timeout: Duration::from_millis(500),
        request_timeout: Duration::from_millis(500),
        ..ConnectionOptions::default()
    }
}

fn peer(port: u16) -> Peer {
    Peer::bootstrap(HostPort {
        host: Str::from("127.0.0.1"),
        port,
    })
}

/// A listener that sends `answer` after the first bytes it gets, then keeps the connection if
/// `keep`.
async fn listener(answer: &'static [u8], keep: bool) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut buffer = [0u8; 1024];
            let _ = socket.read(&mut buffer).await;
            let _ = socket.write_all(answer).await;
            if keep {
                kept.push(socket);
            }
        }
    });
    port
}

#[tokio::test]
async fn a_closed_port_is_named_with_its_address() {
    let port = {
        let bound = TcpListener::bind("127.0.0.1:0").await.unwrap();
        bound.local_addr().unwrap().port()
    };
    let error = Connection::open(peer(port), options()).await.unwrap_err();
    let text = error.to_string();
    assert_eq!(
        text,
        format!("cannot connect to bootstrap address 127.0.0.1:{port}: connection refused")
    );
    assert!(error.is_before_sending());
}

#[tokio::test]
async fn a_listener_that_never_answers_costs_the_connect_timeout_only() {
    let port = listener(b"", true).await;
    let begun = Instant::now();
    let error = Connection::open(peer(port), options()).await.unwrap_err();
    assert!(matches!(error, ClientError::TimedOut { .. }), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert!(
        error
            .to_string()
            .contains("did not answer the first request within 500 ms"),
        "{error}"
    );
}

#[tokio::test]
async fn something_that_is_not_a_kafka_is_called_so() {
    for (answer, keep) in [
        (&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], true),
        (&b""[..], false),
        (&b"\0\0\0\x08\0\0\0\0\0\0\0\0"[..], true),
        (&b"\x15\x03\x03\0\x02\x02\x50"[..], false),
    ] {
        let port = listener(answer, keep).await;
        let error = Connection::open(peer(port), options()).await.unwrap_err();
        assert!(
            matches!(error, ClientError::NotKafka { .. }),
            "{answer:?}: {error}"
        );
    }
}

#[tokio::test]
async fn a_cluster_without_a_live_address_tells_why_for_each() {
    let silent = listener(b"", false).await;
    let bootstrap = HostPort::parse_list(&format!("127.0.0.1:1,127.0.0.1:{silent}")).unwrap();
    let mut with = ClusterOptions::new(bootstrap);
    with.connection = options();
    let cluster = Cluster::new(with);
    let error = cluster
        .metadata(&MetadataTopics::None)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("127.0.0.1:1: connection refused") && error.contains("does not speak"),
        "{error}"
    );
    let again = cluster
        .metadata(&MetadataTopics::None)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        again.contains("connection refused"),
        "backing off keeps the reason: {again}"
    );
}

/// All brokers that the cluster named are gone, and one bootstrap address still answers. There are
/// more of them than are tried at once.
#[tokio::test]
async fn a_living_bootstrap_address_is_asked_whatever_the_cluster_named() {
    let alive = listener(b"", true).await;
    let cluster = Cluster::new(ClusterOptions {
        connection: options(),
        ..ClusterOptions::new(HostPort::parse_list(&format!("127.0.0.1:{alive}")).unwrap())
    });
    for id in 0..40 {
        cluster.learn_node(BrokerNode {
            id,
            address: HostPort {
                host: Str::from("127.0.0.1"),
                port: 1,
            },
            rack: None,
        });
    }
    let error = cluster.any().await.unwrap_err().to_string();
    assert!(
        error.contains("did not answer the first request"),
        "the bootstrap address was not asked: {error}"
    );
}

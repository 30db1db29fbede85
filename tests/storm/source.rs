//! Answers of a source to its mirror: a real source behind a relay that breaks a part of what it
//! says.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tarn_tests::ports::free_port;
use tarn_tests::raw::{self, PLAIN, RawClient, Topic};
use tarn_tests::tarn::Tarn;

use crate::ceilings::{Bystander, GROWTH_MAX, create_topic};
use crate::mutate::mutate;
use crate::sample::Gen;

/// One broken answer for so many requests of the other storm: a mirror asks again at its own pace.
const REQUESTS_PER_ANSWER: u64 = 50;
/// Longest storm for each broken answer that is wanted; fewer than half of them is a failure.
const TIME_PER_ANSWER: Duration = Duration::from_millis(150);
/// Mirrors, each of a topic of its own: each backs off when it meets with a broken answer.
const MIRRORS: usize = 8;
/// One answer of so many is broken.
const BROKEN_ONE_IN: u64 = 4;
/// Bytes of the correlation id.
const FIXED_BYTES: usize = 4;

/// What the relay does and did.
#[derive(Default)]
struct Storm {
    on: AtomicBool,
    broken: AtomicU64,
    connections: AtomicU64,
}

fn relay(port: u16, to: u16, seed: u64) -> Arc<Storm> {
    let storm = Arc::new(Storm::default());
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port))).expect("a port");
    let shared = storm.clone();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], to))) else {
                continue;
            };
            let (Ok(mut there), Ok(mut back)) = (client.try_clone(), server.try_clone()) else {
                continue;
            };
            thread::spawn(move || {
                std::io::copy(&mut there, &mut back).ok();
                back.shutdown(Shutdown::Both).ok();
            });
            let storm = shared.clone();
            let nth = storm.connections.fetch_add(1, Ordering::Relaxed);
            let g = Gen::new(seed.wrapping_add(nth << 32));
            thread::spawn(move || answers(server, client, &storm, g));
        }
    });
    storm
}

fn answers(mut from: TcpStream, mut to: TcpStream, storm: &Storm, mut g: Gen) {
    let mut length = [0; 4];
    while from.read_exact(&mut length).is_ok() {
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        if from.read_exact(&mut frame).is_err() {
            break;
        }
        if storm.on.load(Ordering::Relaxed) && g.below(BROKEN_ONE_IN) == 0 {
            let fixed = if g.below(20) == 0 { 0 } else { FIXED_BYTES };
            mutate(&mut g, &mut frame, fixed);
            storm.broken.fetch_add(1, Ordering::Relaxed);
        }
        let length = (frame.len() as u32).to_be_bytes();
        if to
            .write_all(&length)
            .and_then(|()| to.write_all(&frame))
            .is_err()
        {
            break;
        }
    }
    to.shutdown(Shutdown::Both).ok();
}

#[test]
fn a_mirror_stands_in_the_storm() {
    let (seed, wanted) = (crate::seed(), crate::count() / REQUESTS_PER_ANSWER);
    let port = free_port();
    let advertised = format!("PLAINTEXT://127.0.0.1:{port}");
    let source = Tarn::start_with(&[("advertised.listeners", &advertised)]);
    let storm = relay(port, source.port(), seed);
    let topics: Vec<String> = (0..MIRRORS).map(|n| format!("stormy-{n}")).collect();
    for topic in &topics {
        create_topic(source.port(), topic, 2);
    }
    let mut tarn = Tarn::start_with(&[
        ("mirror.metadata.refresh.interval.ms", "200"),
        ("mirror.failed.retry.initial.backoff.ms", "1"),
        ("mirror.failed.retry.max.backoff.ms", "50"),
        ("mirror.failed.retry.max.attempts", "32767"),
        ("mirror.fetch.backoff.ms", "5"),
        ("mirror.fetch.wait.max.ms", "20"),
    ]);
    for topic in &topics {
        tarn.create_mirror(topic, &format!("127.0.0.1:{port}"), &[]);
        tarn.add_topics(topic, topic);
    }
    let bystander = Bystander::start(tarn.port());
    let before = tarn.process().resident_bytes();
    let mut producer = RawClient::connect(source.port()).expect("the source");
    storm.on.store(true, Ordering::Relaxed);
    let started = Instant::now();
    let most = TIME_PER_ANSWER * wanted as u32;
    while storm.broken.load(Ordering::Relaxed) < wanted && started.elapsed() < most {
        for (nth, topic) in topics.iter().enumerate() {
            let (topic, partition) = (Topic::Name(topic.clone()), (nth % 2) as i32);
            let batch = raw::batch(PLAIN, &["a", "b", "c"]);
            let produced = raw::produce(&mut producer, &topic, partition, batch, 1, 9);
            assert_eq!(produced.expect("the source").expect("an answer").code, 0);
        }
        thread::sleep(Duration::from_millis(20));
        let grown = tarn.process().resident_bytes().saturating_sub(before);
        assert!(grown <= GROWTH_MAX, "seed {seed}: {} MiB more", grown >> 20);
        tarn.process()
            .check_running()
            .unwrap_or_else(|e| panic!("seed {seed}: {e:#}"));
    }
    let broken = storm.broken.load(Ordering::Relaxed);
    eprintln!(
        "storm: {broken} broken answers on {} connections in {:?}",
        storm.connections.load(Ordering::Relaxed),
        started.elapsed()
    );
    assert!(
        broken >= wanted / 2,
        "only {broken} of {wanted} answers could be broken"
    );
    bystander.judge();
    tarn.check_healthy();
}

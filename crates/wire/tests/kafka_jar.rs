//! Byte equality with the classes inside Kafka's own jars, for every message and version that Kafka
//! 4.3.1 knows: metadata and coordinator records, too, which no other oracle has.
//!
//! Needs a JDK 17 and a folder with the jars (`kafka_2.13`, `kafka-tools` and what they depend on),
//! named by `TARN_KAFKA_LIBS`.

mod sample;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use sample::{Gen, Sample, Visitor, sample, visit_all};
use tarn_wire::{Message, encode_body};

/// Samples of each message and version.
const ROUNDS: u64 = 4;

#[derive(Default)]
struct Lines(Vec<String>);

impl Visitor for Lines {
    fn message<M: Message + Sample>(&mut self) {
        for version in M::VERSIONS.min..=M::VERSIONS.max {
            let samples = (0..ROUNDS).map(|seed| sample::<M>(&mut Gen::new(seed + 100), version));
            for message in samples.chain([M::default()]) {
                let Ok(body) = encode_body(&message, version) else {
                    continue;
                };
                let hex: String = body
                    .to_bytes()
                    .unwrap()
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect();
                self.0.push(format!("{} {version} {hex}", M::NAME));
            }
        }
    }
}

fn answers(lines: &[String], libs: &str) -> Vec<String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/java/RoundTrip.java");
    let mut java = Command::new("java")
        .args(["-cp", &format!("{libs}/*")])
        .arg(source)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("java is installed");
    java.stdin
        .take()
        .unwrap()
        .write_all(lines.join("\n").as_bytes())
        .unwrap();
    let output = java.wait_with_output().unwrap();
    assert!(output.status.success(), "java failed");
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

/// Whether Kafka 4.3.1 cannot know this body: our own messages, and versions that only the mirror
/// prototypes have.
fn is_ours(name: &str, version: &str) -> bool {
    matches!(
        (name, version),
        ("ProduceRequest" | "ProduceResponse", "0" | "1" | "2")
            | ("CreateTopicsRequest" | "CreateTopicsResponse", "8")
            | ("FetchRequest" | "FetchResponse", "19")
            | ("FindCoordinatorRequest" | "FindCoordinatorResponse", "7")
    )
}

#[test]
#[ignore = "needs a JDK and Kafka's jars: TARN_KAFKA_LIBS"]
fn bytes_equal_those_of_kafka() {
    let libs = std::env::var("TARN_KAFKA_LIBS")
        .expect("TARN_KAFKA_LIBS names the folder with Kafka's jars");
    let mut lines = Lines::default();
    visit_all(&mut lines);
    let answers = answers(&lines.0, &libs);
    assert_eq!(answers.len(), lines.0.len());
    let (mut equal, mut wrong, mut pairs) = (0, Vec::new(), BTreeSet::new());
    for (line, answer) in lines.0.iter().zip(&answers) {
        let words: Vec<&str> = line.split(' ').collect();
        if answer == words[2] {
            equal += 1;
            pairs.insert((words[0], words[1]));
        } else if answer != "unknown" && !is_ours(words[0], words[1]) {
            wrong.push(format!("{line}\n  Kafka: {answer}"));
        }
    }
    println!(
        "{equal} bodies of {} pairs of message and version are equal",
        pairs.len()
    );
    assert!(
        wrong.is_empty(),
        "{} of {} differ:\n{}",
        wrong.len(),
        lines.0.len(),
        wrong[..wrong.len().min(40)].join("\n")
    );
    assert!(equal > 3000, "only {equal} bodies were compared");
}

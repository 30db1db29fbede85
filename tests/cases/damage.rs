//! Bad disks: full, torn, flipped. Nothing acknowledged is lost, nothing that may still be good is
//! thrown away, and somebody is told.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::json;
use tarn_tests::process::Scratch;
use tarn_tests::tarn::Tarn;
use tarn_tests::{not_run, segments, wait};

/// A small file system of its own, unmounted when dropped.
pub(crate) struct SmallDisk(pub(crate) PathBuf);

impl SmallDisk {
    pub(crate) fn mount(at: &Path, megabytes: u32) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        let size = format!("size={megabytes}m");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(at)
            .output();
        mount
            .is_ok_and(|o| o.status.success())
            .then(|| Self(at.to_owned()))
    }

    fn resize(&self, megabytes: u32) {
        let size = format!("remount,size={megabytes}m");
        let status = Command::new("mount")
            .args(["-o", &size])
            .arg(&self.0)
            .status();
        assert!(status.is_ok_and(|s| s.success()), "remount");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(&self.0).status().ok();
    }
}

#[test]
fn a_full_disk_is_told_and_loses_nothing_acknowledged() {
    let scratch = Scratch::new("full");
    let Some(disk) = SmallDisk::mount(&scratch.path().join("disk"), 24) else {
        return not_run::note("device: no small file system can be mounted here");
    };
    let data = disk.0.join("data").display().to_string();
    let mut tarn = Tarn::start_with(&[("log.dirs", &data)]);
    let here = tarn.cluster();
    here.create_topic("t", 1, json!({}));
    let props = json!({"retries": "0", "delivery.timeout.ms": "6000", "request.timeout.ms": "5000", "linger.ms": "0",
        "enable.idempotence": "false"});
    let mut acknowledged = 0;
    for seed in 0..60 {
        let record = json!([{"size": 900_000, "seed": seed}]);
        let sent = here.try_call(
            "produce",
            json!({"topic": "t", "records": record, "props": props}),
        );
        if sent.is_err() {
            break;
        }
        acknowledged += 1;
    }
    assert!(
        (5..60).contains(&acknowledged),
        "the disk took {acknowledged} records"
    );
    wait::until(
        Duration::from_secs(10),
        "the log tells of the full disk",
        || {
            let log = tarn.process().output();
            assert!(!log.contains("panicked at"), "{}", tarn.process().tail(40));
            if log.to_lowercase().contains("no space left") {
                Ok(())
            } else {
                Err(tarn.process().tail(10))
            }
        },
    );
    tarn.kill();
    disk.resize(96);
    tarn.restart();
    let kept = here.consume("t", 0, false).len();
    assert!(
        kept >= acknowledged,
        "{kept} records of {acknowledged} acknowledged ones are left"
    );
    here.produce("t", json!([{"size": 900_000}]), json!({}));
    tarn.check_healthy();
}

/// One flipped byte inside the log must not cost what stands behind it, nor any other partition.
#[test]
fn a_flipped_byte_in_the_middle_is_told_and_the_rest_is_kept() {
    let mut tarn = Tarn::start();
    let here = tarn.cluster();
    for topic in ["hurt", "well"] {
        here.create_topic(topic, 1, json!({}));
        for seed in 0..20 {
            here.produce(topic, json!([{"size": 500, "seed": seed}]), json!({}));
        }
    }
    tarn.kill();
    let dir = tarn.partition_dir("hurt", 0);
    let batches = segments::batches(&dir).unwrap();
    let file = dir.join("00000000000000000000.log");
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, &bytes).unwrap();
    tarn.restart();
    assert_eq!(here.consume("well", 0, false).len(), 20);
    let last = &batches[19].bytes;
    let log = tarn.process().output().to_lowercase();
    let told = log.lines().any(|l| {
        l.contains("hurt-0") && ["corrupt", "damaged", "crc"].iter().any(|w| l.contains(w))
    });
    assert!(
        told,
        "nobody is told of the damage:\n{}",
        tarn.process().tail(30)
    );
    assert!(
        is_somewhere(&tarn.dir().join("data"), last),
        "the batches behind the damage are gone"
    );
    tarn.check_healthy();
}

fn is_somewhere(dir: &Path, bytes: &[u8]) -> bool {
    fs::read_dir(dir).unwrap().flatten().any(|entry| {
        let path = entry.path();
        if path.is_dir() {
            return is_somewhere(&path, bytes);
        }
        fs::read(&path).is_ok_and(|content| content.windows(bytes.len()).any(|w| w == bytes))
    })
}

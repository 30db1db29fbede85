//! A disk that does not answer: it is noticed, told, and given up after its time; the others are
//! left alone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::*;

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn open(home: &Home) -> (Arc<LogDir>, Arc<PartitionLog>) {
    let dir = LogDir::open(home.root()).unwrap();
    let log = dir
        .open_log("t", 0, None, LogConfig::default(), NOW)
        .unwrap();
    (dir, log)
}

/// One write that does not come back: its directory is slow, then stalled and refuses, then
/// offline, with a call to who wants to know; the other directory is quick all the time; who waits
/// for the same log is seen as stuck too, and as many threads stand in.
#[test]
fn a_directory_that_does_not_answer_is_refused_and_then_given_up() {
    let (frozen, well) = (Home::new(), Home::new());
    let ((dir, log), (other_dir, other)) = (open(&frozen), open(&well));
    client(&log, batch(0, 0, 1, 10)).unwrap();
    let told = Arc::new(AtomicBool::new(false));
    let news = Arc::clone(&told);
    dir.state()
        .on_offline(move || news.store(true, Ordering::SeqCst));
    dir.state().set_offline_after(Duration::from_secs(4));
    let group = WorkerGroup::new();
    let disk = dir.state().faults.frozen.lock();
    let stuck: Vec<_> = (0..2)
        .map(|_| {
            let (log, group) = (Arc::clone(&log), Arc::clone(&group));
            thread::spawn(move || {
                group.enrol();
                client(&log, batch(0, 0, 1, 10))
            })
        })
        .collect();
    until("slow", || dir.state().pace() >= Pace::Slow);
    assert!(log.may_wait() && !other.may_wait());
    assert!(group.stand_by() && group.stand_by(), "one for each");
    assert!(group.is_needed());
    until("stalled", || dir.state().pace() == Pace::Stalled);
    assert!(matches!(log.wait_place(), Err(LogError::Stalled { .. })));
    client(&other, batch(0, 0, 1, 10)).unwrap();
    assert_eq!(other_dir.state().pace(), Pace::Quick);
    until("offline", || dir.state().offline_reason().is_some());
    assert!(told.load(Ordering::SeqCst));
    assert!(matches!(log.wait_place(), Err(LogError::Offline { .. })));
    assert!(other_dir.state().offline_reason().is_none());
    drop(disk);
    for thread in stuck {
        let outcome = thread.join().unwrap();
        assert!(
            outcome.is_err(),
            "nobody is told that it was written: {outcome:?}"
        );
    }
    until("quick again", || dir.state().pace() == Pace::Quick);
    until("nobody is stuck", || !group.is_needed());
}

/// A disk that is late and comes back loses nothing and nobody.
#[test]
fn a_directory_that_answers_again_goes_on() {
    let home = Home::new();
    let (dir, log) = open(&home);
    client(&log, batch(0, 0, 1, 10)).unwrap();
    let disk = dir.state().faults.frozen.lock();
    let late = {
        let log = Arc::clone(&log);
        thread::spawn(move || client(&log, batch(0, 0, 1, 10)))
    };
    until("slow", || dir.state().pace() == Pace::Slow);
    let places: Vec<_> = (0..16).map(|_| log.wait_place().unwrap()).collect();
    assert!(log.wait_place().is_err(), "no more may wait");
    drop(places);
    assert!(log.wait_place().is_ok());
    drop(disk);
    assert_eq!(late.join().unwrap().unwrap().first_offset, 1);
    until("quick", || dir.state().pace() == Pace::Quick);
    assert_eq!(log.flush().unwrap(), 2);
}

/// A sync that never ends is given up too, later than a write, and makes nobody wait before that.
#[test]
fn a_sync_that_does_not_come_back_takes_the_directory_offline() {
    let home = Home::new();
    let (dir, log) = open(&home);
    client(&log, batch(0, 0, 1, 10)).unwrap();
    dir.state().set_offline_after(Duration::from_millis(500));
    let disk = dir.state().faults.sync_hangs.lock();
    let stuck = {
        let log = Arc::clone(&log);
        thread::spawn(move || log.flush())
    };
    thread::sleep(Duration::from_millis(600));
    client(&log, batch(0, 0, 1, 10)).unwrap();
    assert!(dir.state().offline_reason().is_none() && !log.may_wait());
    until("offline", || dir.state().offline_reason().is_some());
    drop(disk);
    let _ = stuck.join().unwrap();
    assert!(client(&log, batch(0, 0, 1, 10)).is_err());
}

//! Prepares `session-serve` (what the broker does for a client's incremental fetch session) and
//! `session-follow` (what the mirror does for its session at a source). Records play no part in
//! them, so both shapes are the same.

use tarn_fetch::{Ask, FetchSession, Wants};
use tarn_server::fetch_session::{
    Asked, PartitionKey, SessionCache, SessionLimits, Told, TopicKey, Wanted,
};
use tarn_wire::Uuid;

use super::{Prepared, Shape};

const PARTITIONS: usize = 1000;
const MOVED: usize = 10;
const REQUESTS: usize = 50;
const SESSION: i32 = 77;

fn key(index: usize) -> PartitionKey {
    (TopicKey::Id(Uuid([7; 16])), index as i32)
}

fn wanted(index: usize, fetch_offset: i64) -> (PartitionKey, Wanted) {
    let wanted = Wanted {
        fetch_offset,
        max_bytes: 1 << 20,
        current_leader_epoch: 3,
        last_fetched_epoch: -1,
    };
    (key(index), wanted)
}

/// Distance of two partitions that move together.
const STRIDE: usize = PARTITIONS / MOVED;

/// Partitions that move in request `turn`: spread, and others each time.
fn moved(turn: usize) -> impl Iterator<Item = usize> {
    (0..MOVED).map(move |i| turn * 7 % STRIDE + i * STRIDE)
}

fn is_moved(index: i32, turn: usize) -> bool {
    index as usize % STRIDE == turn * 7 % STRIDE
}

fn asked(session_id: i32, turn: usize, partitions: Vec<(PartitionKey, Wanted)>) -> Asked {
    Asked {
        session_id,
        session_epoch: turn as i32,
        by_id: true,
        partitions,
        forgotten: Vec::new(),
    }
}

fn serve(cache: &mut SessionCache, asked: Asked, turn: usize) {
    let plan = cache.begin(asked, 0, || SESSION).expect("a session");
    for (key, _) in &plan.partitions {
        let has_data = turn > 0 && is_moved(key.1, turn);
        let told = Told {
            high_watermark: if has_data { turn as i64 } else { 0 },
            log_start_offset: 0,
        };
        std::hint::black_box(cache.tell(SESSION, key, told, false, has_data));
    }
    std::hint::black_box(plan);
}

pub(super) fn prepare_serve(_: Shape) -> Prepared {
    let mut cache = SessionCache::new(SessionLimits {
        sessions: 10,
        partitions_per_session: 100_000,
        partitions: 100_000,
    });
    let all = (0..PARTITIONS).map(|index| wanted(index, 0)).collect();
    serve(&mut cache, asked(0, 0, all), 0);
    let mut requests: Vec<Asked> = (1..=REQUESTS)
        .map(|turn| {
            let changed = moved(turn)
                .map(|index| wanted(index, turn as i64))
                .collect();
            asked(SESSION, turn, changed)
        })
        .collect();
    let work = move || {
        for (turn, asked) in requests.drain(..).enumerate() {
            serve(&mut cache, asked, turn + 1);
        }
    };
    Prepared {
        work: Box::new(work),
        units: REQUESTS as u64,
        _scratch: None,
    }
}

pub(super) fn prepare_follow(_: Shape) -> Prepared {
    let ask = Ask {
        current_leader_epoch: 3,
        fetch_offset: 0,
        last_fetched_epoch: -1,
        log_start_offset: -1,
        bytes_max: 1 << 20,
    };
    let mut wants = Wants::new(PARTITIONS);
    (0..PARTITIONS).for_each(|index| wants.set(index, Some(ask)));
    let mut session = FetchSession::default();
    session.plan(&mut wants, true);
    session.answered(SESSION);
    let work = move || {
        for turn in 1..=REQUESTS {
            for index in moved(turn) {
                let moved = Ask {
                    fetch_offset: turn as i64,
                    ..ask
                };
                wants.set(index, Some(moved));
            }
            let plan = session.plan(&mut wants, true);
            assert_eq!(plan.named.len(), MOVED, "only what moved is named");
            session.answered(SESSION);
            std::hint::black_box(plan);
        }
    };
    Prepared {
        work: Box::new(work),
        units: REQUESTS as u64,
        _scratch: None,
    }
}

//! Which generation of bodies a caller speaks when its request does not tell: what it has proven
//! before. A tool opens a new connection for each command, so that a connection alone remembers too
//! little. Not here: what proves a generation (`service::forms`).

use std::collections::BTreeMap;
use std::net::IpAddr;

use parking_lot::Mutex;
use tarn_wire::Str;

use super::Dialect;

/// Bytes of a client id that tell callers apart; the rest of a longer one is not kept.
pub const CLIENT_ID_BYTES_MAX: usize = 128;

/// Who sends a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Its address, without the port.
    pub address: IpAddr,
    /// Its client id, empty when it gave none.
    pub client_id: Str,
    /// It came in on the inter-broker listener or from this host.
    pub is_broker: bool,
    /// A client of this product (`client_software_name` in ApiVersions): it proves its dialect on
    /// each connection, and what it speaks says nothing about others.
    pub is_own_product: bool,
}

/// Where a caller is remembered.
type CallerKey = (IpAddr, Str);

/// What was proven, and when.
#[derive(Clone, Copy, Debug)]
struct Proof {
    dialect: Dialect,
    /// Counts proofs; the highest is the last one.
    turn: u64,
}

#[derive(Debug, Default)]
struct Proofs {
    by_caller: BTreeMap<CallerKey, Proof>,
    by_turn: BTreeMap<u64, CallerKey>,
    /// By anybody.
    last: Option<Dialect>,
    turns: u64,
}

/// What the callers of this node have proven. Bounded: the caller whose proof is the oldest is
/// forgotten first.
#[derive(Debug)]
pub struct CallerDialects {
    callers_max: usize,
    proofs: Mutex<Proofs>,
}

fn key(caller: &Caller) -> CallerKey {
    let mut end = caller.client_id.len().min(CLIENT_ID_BYTES_MAX);
    while !caller.client_id.is_char_boundary(end) {
        end -= 1;
    }
    (caller.address, Str::from(&caller.client_id[..end]))
}

impl CallerDialects {
    /// An empty memory for at most `callers_max` callers.
    pub fn new(callers_max: usize) -> CallerDialects {
        CallerDialects {
            callers_max,
            proofs: Mutex::default(),
        }
    }

    /// A request of this caller proved a dialect.
    pub fn remember(&self, caller: &Caller, dialect: Dialect) {
        if caller.is_own_product {
            return;
        }
        let mut proofs = self.proofs.lock();
        let proofs = &mut *proofs;
        proofs.last = Some(dialect);
        proofs.turns += 1;
        let (key, turn) = (key(caller), proofs.turns);
        if let Some(before) = proofs
            .by_caller
            .insert(key.clone(), Proof { dialect, turn })
        {
            proofs.by_turn.remove(&before.turn);
        }
        proofs.by_turn.insert(turn, key);
        while proofs.by_caller.len() > self.callers_max {
            let Some((_, oldest)) = proofs.by_turn.pop_first() else {
                return;
            };
            proofs.by_caller.remove(&oldest);
        }
    }

    /// What this caller proved last; else what was proven last from its address; else what anybody
    /// proved last.
    pub fn recall(&self, caller: &Caller) -> Option<Dialect> {
        if caller.is_own_product {
            return None;
        }
        let proofs = self.proofs.lock();
        let own = key(caller);
        if let Some(proof) = proofs.by_caller.get(&own) {
            return Some(proof.dialect);
        }
        let neighbours = proofs
            .by_caller
            .range((caller.address, Str::EMPTY)..)
            .take_while(|((address, _), _)| *address == caller.address);
        neighbours
            .max_by_key(|(_, proof)| proof.turn)
            .map(|(_, proof)| proof.dialect)
            .or(proofs.last)
    }

    /// How many callers are remembered.
    pub fn len(&self) -> usize {
        self.proofs.lock().by_caller.len()
    }

    /// Whether nobody is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(address: [u8; 4], client_id: &str) -> Caller {
        Caller {
            address: IpAddr::from(address),
            client_id: Str::from(client_id),
            is_broker: false,
            is_own_product: false,
        }
    }

    /// Address and client id first, then the address, then anybody.
    #[test]
    fn the_nearest_proof_wins() {
        let memory = CallerDialects::new(10);
        let (a, b) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        assert_eq!(memory.recall(&caller(a, "x")), None);
        memory.remember(&caller(a, "x"), Dialect::Late);
        memory.remember(&caller(b, "x"), Dialect::Early);
        assert_eq!(memory.recall(&caller(a, "x")), Some(Dialect::Late));
        assert_eq!(memory.recall(&caller(a, "y")), Some(Dialect::Late));
        assert_eq!(
            memory.recall(&caller([10, 0, 0, 3], "x")),
            Some(Dialect::Early)
        );
        memory.remember(&caller(a, "x"), Dialect::Early);
        assert_eq!(memory.recall(&caller(a, "x")), Some(Dialect::Early));
    }

    /// The memory has a bound; the oldest proof goes first.
    #[test]
    fn the_memory_is_bounded_in_callers_and_bytes() {
        let memory = CallerDialects::new(3);
        let long = "x".repeat(40_000);
        for n in 0..100_u8 {
            memory.remember(&caller([10, 0, 0, n], &long), Dialect::Late);
        }
        assert_eq!(memory.len(), 3);
        let proofs = memory.proofs.lock();
        assert_eq!(proofs.by_turn.len(), 3);
        assert!(
            proofs
                .by_caller
                .keys()
                .all(|(address, id)| id.len() == CLIENT_ID_BYTES_MAX
                    && *address >= IpAddr::from([10, 0, 0, 97]))
        );
    }

    #[test]
    fn clients_of_this_product_say_nothing_about_others() {
        let memory = CallerDialects::new(3);
        let own = Caller {
            is_own_product: true,
            ..caller([10, 0, 0, 1], "tarn-mirrors")
        };
        memory.remember(&own, Dialect::Late);
        assert!(memory.is_empty());
        assert_eq!(memory.recall(&caller([10, 0, 0, 1], "a")), None);
    }
}

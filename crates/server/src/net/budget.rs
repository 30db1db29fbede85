//! Budgets of bytes in memory over all connections: of requests (`queued.max.request.bytes`) and of
//! answers (`queued.max.response.bytes`), with a share for each connection and each address.
//! Back-pressure of requests is not reading the socket.
//!
//! One request at a time may go beyond the budget (the "overdraft"): requests are charged while
//! they arrive, and several that are half here could otherwise wait for each other for ever.
//!
//! Guards F-5: what one caller does costs what its request and its share allow.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes one permit stands for.
const UNIT: u64 = 1024;

/// Shared by all connections of a server.
#[derive(Debug, Clone)]
pub(crate) struct ByteBudget {
    total: Arc<Semaphore>,
    overdraft: Arc<Semaphore>,
    addresses: Arc<Mutex<HashMap<IpAddr, Weak<Semaphore>>>>,
    address_units: usize,
    connection_units: usize,
}

/// What of a budget one connection, and one address, may hold at a time; in percent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shares {
    pub(crate) connection_percent: u64,
    pub(crate) address_percent: u64,
}

impl Shares {
    /// No share is smaller than the whole.
    #[cfg(test)]
    pub(crate) const WHOLE: Shares = Shares {
        connection_percent: 100,
        address_percent: 100,
    };
}

fn units(bytes: u64) -> usize {
    (bytes / UNIT + 1).min(u64::from(u32::MAX >> 4)) as usize
}

impl ByteBudget {
    /// A budget of `bytes`.
    pub(crate) fn new(bytes: u64, shares: Shares) -> ByteBudget {
        let part = |percent: u64| units(bytes.saturating_mul(percent.min(100)) / 100);
        ByteBudget {
            total: Arc::new(Semaphore::new(units(bytes))),
            overdraft: Arc::new(Semaphore::new(1)),
            addresses: Arc::default(),
            address_units: part(shares.address_percent),
            connection_units: part(shares.connection_percent),
        }
    }

    /// What a new connection from `peer` may use.
    pub(crate) fn share(&self, peer: IpAddr) -> BudgetShare {
        let mut addresses = self.addresses.lock();
        let address = addresses.get(&peer).and_then(Weak::upgrade);
        let address = address.unwrap_or_else(|| {
            // Addresses that left are forgotten when one comes, so the map is no longer than the
            // connections are many.
            addresses.retain(|_, share| share.strong_count() > 0);
            let share = Arc::new(Semaphore::new(self.address_units));
            addresses.insert(peer, Arc::downgrade(&share));
            share
        });
        BudgetShare(Arc::new(Pools {
            connection: Semaphore::new(self.connection_units),
            address,
            total: self.total.clone(),
            overdraft: self.overdraft.clone(),
        }))
    }

    /// A part of the machine's memory, at least 64 MiB: memory divided by `divisor`.
    pub(crate) fn memory_part_bytes(divisor: u64) -> u64 {
        const FLOOR: u64 = 64 << 20;
        let total = std::fs::read_to_string("/proc/meminfo")
            .ok()
            .and_then(|text| {
                let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
                line.split_whitespace().nth(1)?.parse::<u64>().ok()
            });
        total.map_or(FLOOR, |kib| (kib * 1024 / divisor.max(1)).max(FLOOR))
    }
}

#[derive(Debug)]
struct Pools {
    connection: Semaphore,
    address: Arc<Semaphore>,
    total: Arc<Semaphore>,
    overdraft: Arc<Semaphore>,
}

/// The budget as one connection sees it.
#[derive(Debug, Clone)]
pub(crate) struct BudgetShare(Arc<Pools>);

impl BudgetShare {
    /// Nothing charged yet.
    pub(crate) fn charge(&self) -> Charge {
        Charge {
            pools: self.0.clone(),
            units: 0,
            overdraft: None,
        }
    }
}

/// Bytes that something in memory was charged with; given back on drop.
#[derive(Debug)]
pub(crate) struct Charge {
    pools: Arc<Pools>,
    units: usize,
    overdraft: Option<OwnedSemaphorePermit>,
}

impl Charge {
    /// Raises the charge to `bytes`, waiting until so much is free (or until nothing else overdraws
    /// the budget). Charged already: costs nothing.
    pub(crate) async fn grow(&mut self, bytes: usize) {
        if self.try_grow(bytes) {
            return;
        }
        let more = units(bytes as u64).saturating_sub(self.units) as u32;
        let pools = self.pools.clone();
        tokio::select! {
            biased;
            () = take(&pools, more) => self.units += more as usize,
            // The semaphores are never closed.
            permit = pools.overdraft.clone().acquire_owned() => self.overdraft = permit.ok(),
        }
    }

    /// Raises the charge to `bytes` if so much is free now.
    pub(crate) fn try_grow(&mut self, bytes: usize) -> bool {
        let more = units(bytes as u64).saturating_sub(self.units) as u32;
        if more == 0 || self.overdraft.is_some() {
            return true;
        }
        let pools = &*self.pools;
        let Ok(connection) = pools.connection.try_acquire_many(more) else {
            return false;
        };
        let Ok(address) = pools.address.try_acquire_many(more) else {
            return false;
        };
        let Ok(total) = pools.total.try_acquire_many(more) else {
            return false;
        };
        connection.forget();
        address.forget();
        total.forget();
        self.units += more as usize;
        true
    }
}

async fn take(pools: &Pools, units: u32) {
    // The narrowest first, so that who has used up its own share holds nothing of the others' while
    // it waits.
    let connection = pools.connection.acquire_many(units).await;
    let address = pools.address.acquire_many(units).await;
    let total = pools.total.acquire_many(units).await;
    for permit in [connection, address, total].into_iter().flatten() {
        permit.forget();
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.pools.connection.add_permits(self.units);
        self.pools.address.add_permits(self.units);
        self.pools.total.add_permits(self.units);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn peer(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    /// A connection and an address get their share, and what is given back can be used again.
    #[test]
    fn shares_hold_for_connections_and_addresses() {
        let shares = Shares {
            connection_percent: 25,
            address_percent: 50,
        };
        let budget = ByteBudget::new(1000 << 10, shares);
        let charge = |share: &BudgetShare, kib: usize| {
            let mut charge = share.charge();
            charge.try_grow(kib << 10).then_some(charge)
        };
        let (first, second, third) = (
            budget.share(peer(1)),
            budget.share(peer(1)),
            budget.share(peer(1)),
        );
        let held = charge(&first, 200).unwrap();
        assert!(charge(&first, 100).is_none(), "over its connection's share");
        let _second = charge(&second, 240).unwrap();
        assert!(charge(&third, 100).is_none(), "over its address's share");
        let other = budget.share(peer(2));
        let _other = charge(&other, 240).unwrap();
        drop(held);
        assert!(charge(&third, 100).is_some());
    }

    /// Requests that are half here never wait for each other: one of them may overdraw.
    #[tokio::test(start_paused = true)]
    async fn one_charge_may_overdraw_and_the_others_wait_for_it() {
        let budget = ByteBudget::new(100 << 10, Shares::WHOLE);
        let share = budget.share(peer(1));
        let (mut one, mut two) = (share.charge(), share.charge());
        one.grow(60 << 10).await;
        two.grow(30 << 10).await;
        one.grow(200 << 10).await;
        let more = tokio::time::timeout(Duration::from_secs(1), two.grow(90 << 10)).await;
        assert!(more.is_err(), "the overdraft is taken");
        drop(one);
        two.grow(90 << 10).await;
    }
}

//! A wide area network in user space: a namespace, two TUN devices and a forwarder between them
//! that delays, limits and drops.
//!
//! It stands in for `tc netem`, which small kernels do not have. [`Wan`] makes everything itself
//! and removes it when dropped. Who talks over it is not its business: what runs inside
//! [`Wan::namespace`] is reached at [`Wan::inner_address`], everything else is outside.

mod forwarder;
mod link;
mod place;

pub use forwarder::Traffic;
pub use link::Shape;

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::Result;

use forwarder::Forwarder;
use place::Place;

/// A running emulation.
#[derive(Debug)]
pub struct Wan {
    // Ends before the place it works in is removed.
    forwarder: Forwarder,
    place: Place,
}

impl Wan {
    /// Makes a namespace with a link that neither delays nor drops; [`Wan::set_shape`] makes it a
    /// long one. `seed` decides which packets are lost.
    ///
    /// # Errors
    /// Says what is missing: root, `/dev/net/tun`, or the `ip` program.
    pub fn open(seed: u64) -> Result<Wan> {
        let (place, outer, inner) = Place::make()?;
        Ok(Wan {
            forwarder: Forwarder::start(outer, inner, seed)?,
            place,
        })
    }

    /// Changes what the link does to packets that come from now on.
    pub fn set_shape(&self, shape: Shape) {
        self.forwarder.set_shape(shape);
    }

    /// Has new connections towards the outside send with this congestion control (`bbr`, `cubic`).
    ///
    /// # Errors
    /// The kernel does not have it.
    pub fn set_congestion_control(&self, name: &str) -> Result<()> {
        self.place.set_congestion_control(name)
    }

    /// What went over the link since it was opened.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.forwarder.traffic()
    }

    /// Processor time the forwarder used since it was started.
    #[must_use]
    pub fn processor_time(&self) -> Duration {
        self.forwarder.processor_time()
    }

    /// The namespace behind the link, for `ip netns exec`.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.place.namespace()
    }

    /// Address of what runs inside the namespace, as seen from both sides.
    #[must_use]
    pub fn inner_address(&self) -> Ipv4Addr {
        place::INNER_ADDRESS
    }
}

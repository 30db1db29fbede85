//! The namespace and the devices of a WAN emulation: made by `ip`, removed when dropped, and what a
//! killed harness left is removed at the next start.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use tun_rs::{DeviceBuilder, SyncDevice};

/// Address of this side.
const OUTER_ADDRESS: &str = "10.213.77.1";
/// Address inside the namespace.
pub(super) const INNER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 213, 77, 2);
/// Network of the two.
const NETWORK: &str = "10.213.77.0/30";
/// Smallest, first and largest send buffer of a connection inside: the largest is several
/// bandwidth-delay products, as a host that serves distant readers is set up. The usual 4 MiB end
/// at about 18 MB/s and 100 ms.
const SEND_BUFFER: &str = "4096 16384 33554432";
/// Begin of every namespace's name; the process id of the harness follows.
const PREFIX: &str = "tarnwan-";
/// Packets a device may hold until the forwarder comes: more than a link's worth of 20 ms, so that
/// only the model drops.
const DEVICE_QUEUE_PACKETS: &str = "10000";

/// A namespace with one device in it and one outside.
#[derive(Debug)]
pub(super) struct Place {
    namespace: String,
    inner_device: String,
}

impl Place {
    /// Makes it; gives the device outside and the one inside.
    pub(super) fn make() -> Result<(Place, SyncDevice, SyncDevice)> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "the WAN emulator makes network namespaces and TUN devices, which needs root"
        );
        ensure!(
            Path::new("/dev/net/tun").exists(),
            "the WAN emulator needs /dev/net/tun, and this machine has none"
        );
        remove_left_behind()?;
        let id = std::process::id();
        let (namespace, outer_device, inner_device) = (
            format!("{PREFIX}{id}"),
            format!("tw{id}a"),
            format!("tw{id}b"),
        );
        ip(&["netns", "add", &namespace])?;
        // From here on dropping it cleans up.
        let place = Place {
            namespace,
            inner_device,
        };
        let (outer, inner) = (device(&outer_device)?, device(&place.inner_device)?);
        let namespace = place.namespace.as_str();
        let outer_network = format!("{OUTER_ADDRESS}/30");
        set_up(&[], &outer_device, &outer_network)?;
        ip(&["link", "set", &place.inner_device, "netns", namespace])?;
        ip(&["-n", namespace, "link", "set", "lo", "up"])?;
        // What a kernel learned of earlier connections (`ip tcp_metrics`) slows the next ones down:
        // every connection begins as if it were the first.
        let settings = format!(
            "echo {SEND_BUFFER} > /proc/sys/net/ipv4/tcp_wmem; echo 1 > /proc/sys/net/ipv4/tcp_no_metrics_save"
        );
        ip(&["netns", "exec", namespace, "sh", "-c", &settings])?;
        let inner_network = format!("{INNER_ADDRESS}/30");
        set_up(&["-n", namespace], &place.inner_device, &inner_network)?;
        Ok((place, outer, inner))
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    pub(super) fn set_congestion_control(&self, name: &str) -> Result<()> {
        let own = INNER_ADDRESS.to_string();
        ip(&[
            "-n",
            &self.namespace,
            "route",
            "replace",
            NETWORK,
            "dev",
            &self.inner_device,
            "src",
            &own,
            "congctl",
            name,
        ])
        .with_context(|| format!("congestion control {name} cannot be used here"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(e) = ip(&["netns", "delete", &self.namespace]) {
            eprintln!("{e:#}");
        }
    }
}

fn device(name: &str) -> Result<SyncDevice> {
    DeviceBuilder::new()
        .name(name)
        .mtu(1500)
        .build_sync()
        .with_context(|| format!("cannot make the TUN device {name}"))
}

fn set_up(place: &[&str], device: &str, network: &str) -> Result<()> {
    let with = |rest: &[&str]| ip(&[place, rest].concat());
    with(&["address", "add", network, "dev", device])?;
    with(&[
        "link",
        "set",
        device,
        "up",
        "txqueuelen",
        DEVICE_QUEUE_PACKETS,
    ])
}

/// Removes namespaces of harnesses that are gone.
fn remove_left_behind() -> Result<()> {
    let list = output(&["netns", "list"])?;
    for name in list.lines().filter_map(|l| l.split_whitespace().next()) {
        let Some(id) = name.strip_prefix(PREFIX) else {
            continue;
        };
        if !Path::new("/proc").join(id).exists() {
            ip(&["netns", "delete", name])?;
        }
    }
    Ok(())
}

fn ip(arguments: &[&str]) -> Result<()> {
    output(arguments).map(drop)
}

fn output(arguments: &[&str]) -> Result<String> {
    let output = Command::new("ip").args(arguments).output().context(
        "the WAN emulator needs the program `ip` (package iproute2), which cannot be started",
    )?;
    if !output.status.success() {
        bail!(
            "`ip {}` failed: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

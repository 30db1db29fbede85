//! One embedded broker of the demo: a one-node cluster on free loopback ports with its data in a
//! temporary folder.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::Duration;

use tarn_server::{Config, Server};

use crate::CliError;

/// An end that takes longer is not waited for; the data is thrown away anyhow.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// A running broker.
pub(super) struct Node {
    server: Server,
    dir: tempfile::TempDir,
}

fn failed(what: &str, e: impl std::fmt::Display) -> CliError {
    CliError::Failed(format!("cannot start the embedded {what}: {e}"))
}

/// A port that is free now.
fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port())
}

impl Node {
    /// Starts the broker called `name`.
    pub(super) async fn start(name: &str) -> Result<Self, CliError> {
        let dir = tempfile::Builder::new()
            .prefix(&format!("tarn-demo-{name}-"))
            .tempdir()
            .map_err(|e| failed(name, e))?;
        let (port, controller) = (
            free_port().map_err(|e| failed(name, e))?,
            free_port().map_err(|e| failed(name, e))?,
        );
        let listeners = format!("PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}");
        let (advertised, voters) = (
            format!("PLAINTEXT://127.0.0.1:{port}"),
            format!("1@127.0.0.1:{controller}"),
        );
        let log_dirs = dir.path().join("data").display().to_string();
        let config = Config::from_pairs(&[
            ("process.roles", "broker,controller"),
            ("node.id", "1"),
            ("listeners", &listeners),
            ("advertised.listeners", &advertised),
            ("controller.listener.names", "CONTROLLER"),
            ("controller.quorum.voters", &voters),
            ("log.dirs", &log_dirs),
            ("mirror.metadata.refresh.interval.ms", "2000"),
        ])
        .map_err(|e| failed(name, e))?;
        let server = Server::start(config).await.map_err(|e| failed(name, e))?;
        Ok(Self { server, dir })
    }

    /// `host:port` for clients.
    pub(super) fn address(&self) -> String {
        self.server.address().to_string()
    }

    /// A folder for small files of this node.
    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Ends the broker and removes its data.
    pub(super) async fn stop(self) {
        // A demo that ends late has nothing to lose.
        let _ = tokio::time::timeout(STOP_LIMIT, self.server.shutdown()).await;
    }
}

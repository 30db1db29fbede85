//! Addresses: the written form `host:port`, and whom an address belongs to, so that errors can name
//! it.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use tarn_wire::Str;

use crate::{ClientError, Result};

/// Most socket addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;

/// A host and a port. IPv6 addresses are written in brackets.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    /// Name or address, without brackets.
    pub host: Str,
    /// Port, never 0.
    pub port: u16,
}

impl FromStr for HostPort {
    type Err = ClientError;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || ClientError::BadAddress(text.to_string());
        let trimmed = text.trim();
        let bare = trimmed.rsplit_once("://").map_or(trimmed, |(_, rest)| rest);
        let (host, port) = bare.rsplit_once(':').ok_or_else(bad)?;
        let host = host
            .strip_prefix('[')
            .and_then(|h| h.strip_suffix(']'))
            .unwrap_or(host);
        let port: u16 = port.parse().map_err(|_| bad())?;
        if host.is_empty() || port == 0 || host.chars().any(char::is_whitespace) {
            return Err(bad());
        }
        Ok(HostPort {
            host: Str::from(host),
            port,
        })
    }
}

impl HostPort {
    /// Parses a list separated by commas; empty items are skipped.
    ///
    /// # Errors
    /// [`ClientError::BadAddress`] naming the first item that is not an address, or the whole text
    /// when it holds none.
    pub fn parse_list(text: &str) -> Result<Vec<HostPort>> {
        let list: Vec<HostPort> = text
            .split(',')
            .map(str::trim)
            .filter(|s| !s.is_empty())
            .map(str::parse)
            .collect::<Result<_>>()?;
        if list.is_empty() {
            Err(ClientError::BadAddress(text.to_string()))
        } else {
            Ok(list)
        }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", &*self.host, self.port)
        } else {
            write!(f, "{}:{}", &*self.host, self.port)
        }
    }
}

/// Whom a connection goes to: an address somebody wrote down, or one a broker advertised.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// Where.
    pub address: HostPort,
    /// The node that advertised it; `None` = a bootstrap address.
    pub node: Option<i32>,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node {
            Some(node) => write!(f, "advertised address {} of node {node}", self.address),
            None => write!(f, "bootstrap address {}", self.address),
        }
    }
}

impl Peer {
    /// A bootstrap address.
    pub fn bootstrap(address: HostPort) -> Self {
        Peer {
            address,
            node: None,
        }
    }

    /// The socket addresses of this peer, in the resolver's order.
    pub(crate) async fn resolve(&self, limit: Duration) -> Result<Vec<SocketAddr>> {
        let HostPort { host, port } = &self.address;
        let found = tokio::time::timeout(limit, tokio::net::lookup_host((&**host, *port)))
            .await
            .map_err(|_| ClientError::timed_out(self, "resolve", limit))?;
        let unresolvable = |detail: String| ClientError::Unresolvable {
            peer: self.clone(),
            detail,
        };
        let addresses: Vec<SocketAddr> = found
            .map_err(|e| unresolvable(plain(&e)))?
            .take(ADDRESSES_MAX)
            .collect();
        if addresses.is_empty() {
            Err(unresolvable(String::new()))
        } else {
            Ok(addresses)
        }
    }
}

/// The text of an I/O error without the runtime's decoration.
pub(crate) fn plain(e: &std::io::Error) -> String {
    let text = e.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    text.rsplit(": ").next().unwrap_or(text).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_in_every_written_form() {
        for (text, host, port) in [
            ("a:1", "a", 1),
            (" h.b.c:9092 ", "h.b.c", 9092),
            ("[::1]:80", "::1", 80),
            ("PLAINTEXT://x:5", "x", 5),
        ] {
            let got: HostPort = text.parse().unwrap();
            assert_eq!((&*got.host, got.port), (host, port));
        }
        for text in ["", "a", "a:", ":1", "a:0", "a:70000", "a b:1"] {
            assert!(text.parse::<HostPort>().is_err(), "{text}");
        }
        assert_eq!(HostPort::parse_list("a:1,,b:2").unwrap().len(), 2);
        assert!(HostPort::parse_list(" , ").is_err());
    }

    #[tokio::test]
    async fn an_unresolvable_advertised_host_is_named_with_its_node() {
        let peer = Peer {
            address: "nohost.invalid:9092".parse().unwrap(),
            node: Some(1),
        };
        let error = peer
            .resolve(Duration::from_secs(20))
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("advertised address nohost.invalid:9092 of node 1 d"),
            "{error}"
        );
    }
}

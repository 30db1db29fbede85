//! Parsing of `listeners`, `advertised.listeners`, `listener.security.protocol.map` and
//! `controller.quorum.voters`.

use std::collections::BTreeMap;

/// A named socket address as the configuration writes it: `NAME://HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Listener name, upper case (`PLAINTEXT`, `CONTROLLER`, …).
    pub name: String,
    /// Host to bind or to advertise; empty = all interfaces.
    pub host: String,
    /// Port; 0 = any free port.
    pub port: u16,
}

/// One voter of the metadata quorum: `ID@HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Voter {
    /// Node id.
    pub id: i32,
    /// Host.
    pub host: String,
    /// Port of its controller listener.
    pub port: u16,
}

/// Splits a comma separated list, dropping empty items and blanks around items.
pub(super) fn list(text: &str) -> Vec<String> {
    text.split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Parses a list of `NAME://HOST:PORT`. Names and ports must be unique (port 0 excepted).
pub(super) fn parse_listeners(text: &str) -> Result<Vec<Listener>, String> {
    let mut out: Vec<Listener> = Vec::new();
    for item in list(text) {
        let listener = parse_listener(&item)?;
        if out.iter().any(|l| l.name == listener.name) {
            return Err(format!("listener name {} is used twice", listener.name));
        }
        if listener.port != 0
            && out
                .iter()
                .any(|l| l.port == listener.port && l.host == listener.host)
        {
            return Err(format!(
                "{}:{} is used by two listeners",
                listener.host, listener.port
            ));
        }
        out.push(listener);
    }
    Ok(out)
}

fn parse_listener(item: &str) -> Result<Listener, String> {
    let form = || format!("`{item}` is not a listener; write NAME://HOST:PORT");
    let (name, address) = item.split_once("://").ok_or_else(form)?;
    if name.is_empty() {
        return Err(form());
    }
    let (host, port) = parse_address(address).ok_or_else(form)?;
    Ok(Listener {
        name: name.to_ascii_uppercase(),
        host,
        port,
    })
}

/// `HOST:PORT`, host empty or in brackets allowed.
pub(super) fn parse_address(address: &str) -> Option<(String, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let port: u16 = port.trim().parse().ok()?;
    let host = match host.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']')?,
        None if host.contains(':') => return None,
        None => host,
    };
    Some((host.to_owned(), port))
}

/// Parses `NAME:PROTOCOL` pairs; unknown protocols are refused, those of later versions are kept
/// (they matter only when a listener uses them).
pub(super) fn parse_protocol_map(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut map = BTreeMap::new();
    for item in list(text) {
        let (name, protocol) = item
            .split_once(':')
            .ok_or_else(|| format!("`{item}` is not a pair NAME:PROTOCOL"))?;
        let protocol = protocol.trim().to_ascii_uppercase();
        if !matches!(
            protocol.as_str(),
            "PLAINTEXT" | "SSL" | "SASL_PLAINTEXT" | "SASL_SSL"
        ) {
            return Err(format!(
                "`{protocol}` is not a security protocol; allowed are PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"
            ));
        }
        map.insert(name.trim().to_ascii_uppercase(), protocol);
    }
    Ok(map)
}

/// Parses `ID@HOST:PORT` items; ids must be unique.
pub(super) fn parse_voters(text: &str) -> Result<Vec<Voter>, String> {
    let mut out: Vec<Voter> = Vec::new();
    for item in list(text) {
        let form = || format!("`{item}` is not a voter; write ID@HOST:PORT");
        let (id, address) = item.split_once('@').ok_or_else(form)?;
        let id: i32 = id
            .trim()
            .parse()
            .ok()
            .filter(|id| *id >= 0)
            .ok_or_else(form)?;
        let (host, port) = parse_address(address)
            .filter(|(host, _)| !host.is_empty())
            .ok_or_else(form)?;
        if out.iter().any(|v| v.id == id) {
            return Err(format!("voter {id} is named twice"));
        }
        out.push(Voter { id, host, port });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_parse_as_kafka_writes_them() {
        let got =
            parse_listeners("PLAINTEXT://:9092, CONTROLLER://[::1]:9093,internal://h:0").unwrap();
        assert_eq!(
            got[0],
            Listener {
                name: "PLAINTEXT".into(),
                host: String::new(),
                port: 9092
            }
        );
        assert_eq!(
            got[1],
            Listener {
                name: "CONTROLLER".into(),
                host: "::1".into(),
                port: 9093
            }
        );
        assert_eq!(got[2].name, "INTERNAL");
    }

    #[test]
    fn bad_listeners_say_the_form() {
        for bad in [
            "localhost:9092",
            "PLAINTEXT://host",
            "PLAINTEXT://a:b:1",
            "://:1",
            "A://:70000",
        ] {
            assert!(
                parse_listeners(bad)
                    .unwrap_err()
                    .contains("NAME://HOST:PORT"),
                "{bad}"
            );
        }
        assert!(
            parse_listeners("A://:1,A://:2")
                .unwrap_err()
                .contains("twice")
        );
    }

    #[test]
    fn voters_parse() {
        assert_eq!(
            parse_voters("1@h:2").unwrap(),
            vec![Voter {
                id: 1,
                host: "h".into(),
                port: 2
            }]
        );
        assert!(parse_voters("h:2").is_err());
        assert!(parse_voters("1@a:1,1@b:1").is_err());
    }
}

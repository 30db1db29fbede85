//! Rules between broker keys: roles, listeners, voters, directories. Turns checked text into the
//! typed [`Config`].

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::listeners::{self, Listener, Voter};
use super::{Config, ConfigError, SetValue, text_of, value_of};

type Set = BTreeMap<String, SetValue>;

/// An error about `key`, at the place where it was set.
fn invalid(set: &Set, key: &str, message: impl std::fmt::Display) -> ConfigError {
    let location = set
        .get(key)
        .map_or_else(|| "configuration".to_owned(), |set| set.location.clone());
    ConfigError::Invalid {
        location,
        message: format!("{key}: {message}"),
    }
}

pub(super) fn build(set: Set) -> Result<Config, ConfigError> {
    let node_id = node_id(&set)?;
    check_roles(&set)?;
    let (listeners, controller_listeners) = split_listeners(&set)?;
    let advertised_listeners = advertised(&set, &listeners)?;
    let voters = voters(&set, node_id)?;
    let log_dirs: Vec<PathBuf> = {
        let text = set
            .get("log.dirs")
            .or_else(|| set.get("log.dir"))
            .map(|set| set.value.as_str());
        listeners::list(
            text.or_else(|| text_of(&set, "log.dir"))
                .unwrap_or_default(),
        )
        .into_iter()
        .map(PathBuf::from)
        .collect()
    };
    let Some(first) = log_dirs.first() else {
        return Err(invalid(
            &set,
            "log.dirs",
            "at least one directory is needed",
        ));
    };
    let metadata_log_dir =
        text_of(&set, "metadata.log.dir").map_or_else(|| first.clone(), PathBuf::from);
    Ok(Config {
        node_id,
        listeners,
        controller_listeners,
        advertised_listeners,
        voters,
        metadata_log_dir,
        log_dirs,
        set,
    })
}

fn node_id(set: &Set) -> Result<i32, ConfigError> {
    let read = |key: &str| {
        set.get(key)
            .and_then(|_| value_of(set, key))
            .and_then(|value| value.as_i64())
    };
    match (read("node.id"), read("broker.id")) {
        (Some(node), Some(broker)) if node != broker => Err(invalid(
            set,
            "broker.id",
            format!("is {broker}, but node.id is {node}; set only node.id"),
        )),
        (Some(id), _) | (None, Some(id)) => {
            i32::try_from(id).map_err(|_| invalid(set, "node.id", "out of range"))
        }
        (None, None) => Err(invalid(
            set,
            "node.id",
            "is not set; give this node a number that no other node of the cluster has",
        )),
    }
}

fn check_roles(set: &Set) -> Result<(), ConfigError> {
    let roles = listeners::list(text_of(set, "process.roles").unwrap_or_default());
    if roles.is_empty() {
        return Err(invalid(
            set,
            "process.roles",
            "is not set; write process.roles=broker,controller",
        ));
    }
    if roles.len() != 2 {
        return Err(invalid(
            set,
            "process.roles",
            "must be broker,controller: a node with one role is not supported yet",
        ));
    }
    Ok(())
}

fn split_listeners(set: &Set) -> Result<(Vec<Listener>, Vec<Listener>), ConfigError> {
    let all = listeners::parse_listeners(text_of(set, "listeners").unwrap_or_default())
        .map_err(|e| invalid(set, "listeners", e))?;
    let controller_names: Vec<String> =
        listeners::list(text_of(set, "controller.listener.names").unwrap_or_default())
            .iter()
            .map(|name| name.to_ascii_uppercase())
            .collect();
    if controller_names.is_empty() {
        return Err(invalid(
            set,
            "controller.listener.names",
            "is not set; name the listener of the controller, for example CONTROLLER",
        ));
    }
    let map_text = text_of(set, "listener.security.protocol.map").unwrap_or_default();
    let mut map = listeners::parse_protocol_map(map_text)
        .map_err(|e| invalid(set, "listener.security.protocol.map", e))?;
    if !set.contains_key("listener.security.protocol.map") {
        for name in &controller_names {
            map.entry(name.clone())
                .or_insert_with(|| "PLAINTEXT".to_owned());
        }
    }
    for listener in &all {
        match map.get(&listener.name).map(String::as_str) {
            Some("PLAINTEXT") => {}
            Some(protocol) => {
                let message = format!(
                    "listener {} asks for {protocol}; only PLAINTEXT is supported yet",
                    listener.name
                );
                return Err(invalid(set, "listeners", message));
            }
            None => {
                let message = format!(
                    "no security protocol for listener {}; add {}:PLAINTEXT",
                    listener.name, listener.name
                );
                return Err(invalid(set, "listener.security.protocol.map", message));
            }
        }
    }
    let (controller, broker): (Vec<_>, Vec<_>) = all
        .into_iter()
        .partition(|l| controller_names.contains(&l.name));
    if broker.is_empty() {
        return Err(invalid(
            set,
            "listeners",
            "no listener is left for clients; name one that is not in controller.listener.names",
        ));
    }
    Ok((broker, controller))
}

fn advertised(set: &Set, listeners: &[Listener]) -> Result<Vec<Listener>, ConfigError> {
    const KEY: &str = "advertised.listeners";
    let mut advertised = match text_of(set, KEY) {
        Some(text) => listeners::parse_listeners(text).map_err(|e| invalid(set, KEY, e))?,
        None => listeners.to_vec(),
    };
    advertised.retain(|a| set.contains_key(KEY) || listeners.iter().any(|l| l.name == a.name));
    let controller = listeners::list(text_of(set, "controller.listener.names").unwrap_or_default());
    advertised.retain(|a| {
        !controller
            .iter()
            .any(|name| name.eq_ignore_ascii_case(&a.name))
    });
    for listener in listeners {
        if !advertised.iter().any(|a| a.name == listener.name) {
            return Err(invalid(
                set,
                KEY,
                format!("nothing is advertised for listener {}", listener.name),
            ));
        }
    }
    for a in &mut advertised {
        if !listeners.iter().any(|l| l.name == a.name) {
            return Err(invalid(
                set,
                KEY,
                format!("{} is not one of `listeners`", a.name),
            ));
        }
        if set.contains_key(KEY) && a.host == "0.0.0.0" {
            return Err(invalid(
                set,
                KEY,
                "0.0.0.0 cannot be reached by clients; write a host name or an address",
            ));
        }
        if a.host.is_empty() || a.host == "0.0.0.0" || a.host == "::" {
            a.host = rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned();
        }
    }
    Ok(advertised)
}

fn voters(set: &Set, node_id: i32) -> Result<Vec<Voter>, ConfigError> {
    const KEY: &str = "controller.quorum.voters";
    let voters = listeners::parse_voters(text_of(set, KEY).unwrap_or_default())
        .map_err(|e| invalid(set, KEY, e))?;
    if voters.len() > 1 {
        return Err(invalid(
            set,
            KEY,
            "more than one voter is not supported yet; name this node alone",
        ));
    }
    match voters.first() {
        Some(voter) if voter.id != node_id => Err(invalid(
            set,
            KEY,
            format!("does not name this node ({node_id})"),
        )),
        _ => Ok(voters),
    }
}

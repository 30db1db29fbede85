//! Handlers, all of the same shape: check, call the component, build the response. APIs of one
//! subject stand together in a file. Sockets, versions and framing are done by the time a handler
//! runs.

pub(crate) mod absent;
pub(crate) mod admin;
pub(crate) mod api_versions;
pub(crate) mod authorized;
pub(crate) mod broker_loggers;
pub(crate) mod create_topics;
pub(crate) mod delete_records;
pub(crate) mod describe_cluster;
pub(crate) mod describe_configs;
pub(crate) mod describe_log_dirs;
pub(crate) mod describe_producers;
pub(crate) mod describe_topic_partitions;
pub(crate) mod fetch;
pub(crate) mod groups;
pub(crate) mod init_producer_id;
pub(crate) mod list_config_resources;
pub(crate) mod list_offsets;
pub(crate) mod metadata;
pub(crate) mod mirrors;
pub(crate) mod offset_for_leader_epoch;
pub(crate) mod produce;

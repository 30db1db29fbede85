//! Faults found from outside: what every announced version answers, and what stock clients of every
//! language expect.

mod sweep;

use std::time::Duration;

use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::{IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};
use kafka_protocol::protocol::StrBytes;
use tarn_tests::raw::RawClient;
use tarn_tests::tarn::Tarn;
use tarn_tests::wait;

/// Sets (0) or deletes (1) the level of a logger of broker 1; gives the error code.
fn alter_logger(client: &mut RawClient, logger: &'static str, op: i8, level: &'static str) -> i16 {
    let config = AlterableConfig::default()
        .with_name(StrBytes::from_static_str(logger))
        .with_config_operation(op)
        .with_value(Some(StrBytes::from_static_str(level)));
    let resource = AlterConfigsResource::default()
        .with_resource_type(8)
        .with_resource_name(StrBytes::from_static_str("1"))
        .with_configs(vec![config]);
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    let answer: IncrementalAlterConfigsResponse = client.call(1, &request).unwrap();
    answer.responses[0].error_code
}

/// The loggers that the broker lists have levels, and a change of one takes effect at once.
#[test]
fn the_level_of_a_logger_is_changed_while_the_broker_runs() {
    let mut tarn = Tarn::start();
    let mut client = RawClient::connect(tarn.port()).unwrap();
    // Each connection that ends is a line of this logger at DEBUG.
    let knock = |tarn: &Tarn| drop(RawClient::connect(tarn.port()).unwrap());
    knock(&tarn);
    assert!(!tarn.process().output().contains("DEBUG"));
    assert_eq!(alter_logger(&mut client, "tarn_server", 0, "DEBUG"), 0);
    knock(&tarn);
    wait::until(Duration::from_secs(20), "a line at DEBUG", || {
        let said = tarn.process().output().contains("connection closed");
        said.then_some(()).ok_or_else(|| "none".to_owned())
    });
    assert_eq!(alter_logger(&mut client, "tarn_server", 1, "DEBUG"), 0);
    for (logger, op, level) in [
        ("kafka", 0, "INFO"),
        ("tarn_server", 0, "LOUD"),
        ("root", 1, ""),
    ] {
        assert_eq!(alter_logger(&mut client, logger, op, level), 40);
    }
    assert_eq!(alter_logger(&mut client, "tarn_server", 2, "INFO"), 42);
    tarn.check_healthy();
}

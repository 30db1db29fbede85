module tarn/clients/librdkafka-1-9

go 1.24

require github.com/confluentinc/confluent-kafka-go v1.9.2

require tarn/clients/steps v0.0.0

replace tarn/clients/steps => ../steps

// librdkafka 1.9, through the Go client that carries it, as applications use it: produce with each codec, read, group, admin.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/confluentinc/confluent-kafka-go/kafka"
	"tarn/clients/steps"
)

func main() {
	admin, err := kafka.NewAdminClient(&kafka.ConfigMap{"bootstrap.servers": steps.Bootstrap()})
	if err != nil {
		fmt.Printf("connect\tfailed: %v\n", err)
		return
	}
	ctx := context.Background()
	steps.Step("admin create", func() (string, error) {
		results, err := admin.CreateTopics(ctx, []kafka.TopicSpecification{
			{Topic: steps.Name("codecs"), NumPartitions: 1, ReplicationFactor: 1},
			{Topic: steps.Name("time"), NumPartitions: 1, ReplicationFactor: 1},
			{Topic: steps.Name("group"), NumPartitions: steps.Partitions, ReplicationFactor: 1}})
		return fmt.Sprint(codes(results)), err
	})
	codecs := []string{"none", "gzip", "snappy", "lz4", "zstd"}
	for _, codec := range codecs {
		steps.Step("produce "+codec, func() (string, error) {
			var messages []*kafka.Message
			for i := range steps.Records {
				messages = append(messages, message("codecs", 0, fmt.Sprintf("%s-%d", codec, i)))
			}
			return fmt.Sprintf("%d acknowledged", steps.Records), produce(codec, messages)
		})
	}
	steps.Step("read from the start", func() (string, error) { return read("codecs", kafka.OffsetBeginning, len(codecs)*steps.Records) })
	steps.Step("read from a time", fromTime)
	steps.Step("group", group)
	steps.Step("admin metadata", func() (string, error) {
		stem := steps.Name("group")
		metadata, err := admin.GetMetadata(&stem, false, 20000)
		if err != nil {
			return "", err
		}
		return fmt.Sprint(len(metadata.Brokers), len(metadata.Topics[stem].Partitions)), nil
	})
	steps.Step("admin describe configs", func() (string, error) {
		results, err := admin.DescribeConfigs(ctx, []kafka.ConfigResource{{Type: kafka.ResourceTopic, Name: steps.Name("codecs")}})
		if err != nil {
			return "", err
		}
		return results[0].Config["retention.ms"].Value + " " + results[0].Config["cleanup.policy"].Value, nil
	})
	steps.Step("admin create partitions", func() (string, error) {
		results, err := admin.CreatePartitions(ctx, []kafka.PartitionsSpecification{{Topic: steps.Name("time"), IncreaseTo: 3}})
		return fmt.Sprint(codes(results)), err
	})
	steps.Step("admin delete topic", func() (string, error) {
		results, err := admin.DeleteTopics(ctx, []string{steps.Name("codecs"), steps.Name("nowhere")})
		return fmt.Sprint(codes(results)), err
	})
}

func codes(results []kafka.TopicResult) (out []string) {
	for _, r := range results {
		out = append(out, r.Error.Code().String())
	}
	return out
}

func message(stem string, partition int32, value string) *kafka.Message {
	topic := steps.Name(stem)
	return &kafka.Message{TopicPartition: kafka.TopicPartition{Topic: &topic, Partition: partition}, Value: []byte(value)}
}

func produce(codec string, messages []*kafka.Message) error {
	producer, err := kafka.NewProducer(&kafka.ConfigMap{"bootstrap.servers": steps.Bootstrap(), "compression.codec": codec, "acks": "all",
		"linger.ms": 20, "message.timeout.ms": 30000})
	if err != nil {
		return err
	}
	defer producer.Close()
	delivered := make(chan kafka.Event, len(messages))
	for _, m := range messages {
		if err := producer.Produce(m, delivered); err != nil {
			return err
		}
	}
	for range messages {
		if m := (<-delivered).(*kafka.Message); m.TopicPartition.Error != nil {
			return m.TopicPartition.Error
		}
	}
	return nil
}

func consumer(group string) (*kafka.Consumer, error) {
	return kafka.NewConsumer(&kafka.ConfigMap{"bootstrap.servers": steps.Bootstrap(), "group.id": group, "auto.offset.reset": "earliest",
		"enable.auto.commit": false, "session.timeout.ms": 10000, "heartbeat.interval.ms": 500})
}

func read(stem string, from kafka.Offset, count int) (string, error) {
	c, err := consumer(steps.Name("alone"))
	if err != nil {
		return "", err
	}
	defer c.Close()
	topic := steps.Name(stem)
	if err := c.Assign([]kafka.TopicPartition{{Topic: &topic, Partition: 0, Offset: from}}); err != nil {
		return "", err
	}
	var values []string
	for end := time.Now().Add(steps.Limit); len(values) < count; {
		if time.Now().After(end) {
			return "", errors.New("no more records after " + steps.Digest(values))
		}
		if m, ok := c.Poll(200).(*kafka.Message); ok {
			values = append(values, string(m.Value))
		}
	}
	return steps.Digest(values), nil
}

func fromTime() (string, error) {
	for i := range steps.Records {
		m := message("time", 0, fmt.Sprintf("t-%d", i))
		at := steps.TimeBase + int64(i)*1000
		m.Timestamp = time.Unix(at/1000, 0)
		if err := produce("none", []*kafka.Message{m}); err != nil {
			return "", err
		}
	}
	c, err := consumer(steps.Name("alone"))
	if err != nil {
		return "", err
	}
	defer c.Close()
	topic := steps.Name("time")
	at, err := c.OffsetsForTimes([]kafka.TopicPartition{{Topic: &topic, Partition: 0, Offset: kafka.Offset(steps.TimeBase + 6500)}}, 20000)
	if err != nil {
		return "", err
	}
	values, err := read("time", at[0].Offset, steps.Records-int(at[0].Offset))
	return fmt.Sprintf("offset %d, %s", at[0].Offset, values), err
}

func fill(each int) error {
	var messages []*kafka.Message
	for i := range each * steps.Partitions {
		messages = append(messages, message("group", int32(i%steps.Partitions), "v"))
	}
	return produce("none", messages)
}

// member reads in the group until told to stop; each record is committed.
func member(name string, seen *steps.Seen) (c *kafka.Consumer, stop func(), err error) {
	c, err = consumer(steps.Name("g"))
	if err != nil {
		return nil, nil, err
	}
	if err := c.Subscribe(steps.Name("group"), nil); err != nil {
		return nil, nil, err
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-quit:
				return
			default:
			}
			if m, ok := c.Poll(100).(*kafka.Message); ok {
				seen.Add(name, m.TopicPartition.Partition, int64(m.TopicPartition.Offset))
				_, _ = c.CommitMessage(m)
			}
		}
	}()
	return c, func() { close(quit); <-done; c.Close() }, nil
}

func group() (string, error) {
	if err := fill(10); err != nil {
		return "", err
	}
	var seen steps.Seen
	a, stopA, err := member("a", &seen)
	if err != nil {
		return "", err
	}
	b, stopB, err := member("b", &seen)
	if err != nil {
		return "", err
	}
	err = steps.Await("records", func() bool { return seen.Count() == 10*steps.Partitions })
	shared := steps.Await("shares of 2", func() bool {
		ofA, _ := a.Assignment()
		ofB, _ := b.Assignment()
		return len(ofA) == 2 && len(ofB) == 2
	})
	stopA()
	stopB()
	if err != nil || shared != nil {
		return "", fmt.Errorf("%d read; %v; %v", seen.Count(), err, shared)
	}
	if err := fill(1); err != nil {
		return "", err
	}
	var again steps.Seen
	_, stop, err := member("c", &again)
	if err != nil {
		return "", err
	}
	err = steps.Await("records", func() bool { return again.Count() >= steps.Partitions })
	time.Sleep(300 * time.Millisecond)
	stop()
	return fmt.Sprintf("%d read by two with shares of 2, then %d", seen.Count(), again.Count()), err
}

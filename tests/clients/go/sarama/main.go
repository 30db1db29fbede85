// sarama as applications use it: produce with each codec, read, group, admin. Built twice: with go.mod (now) and with old.mod (1.26, before
// the project moved).
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	"tarn/clients/steps"
)

func config() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.V2_1_0_0
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Return.Successes = true
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	c.Consumer.MaxWaitTime = 200 * time.Millisecond
	return c
}

func addresses() []string { return []string{steps.Bootstrap()} }

func main() {
	admin, err := sarama.NewClusterAdmin(addresses(), config())
	if err != nil {
		fmt.Printf("connect\tfailed: %v\n", err)
		return
	}
	steps.Step("admin create", func() (string, error) {
		for stem, partitions := range map[string]int32{"codecs": 1, "time": 1, "group": steps.Partitions} {
			if err := admin.CreateTopic(steps.Name(stem), &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false); err != nil {
				return "", err
			}
		}
		return "created", nil
	})
	codecs := []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD}
	for _, codec := range codecs {
		steps.Step("produce "+codec.String(), func() (string, error) {
			var messages []*sarama.ProducerMessage
			for i := range steps.Records {
				messages = append(messages, &sarama.ProducerMessage{Topic: steps.Name("codecs"), Value: sarama.StringEncoder(fmt.Sprintf("%s-%d", codec, i))})
			}
			return fmt.Sprintf("%d acknowledged", steps.Records), produce(codec, messages)
		})
	}
	steps.Step("read from the start", func() (string, error) {
		return read("codecs", sarama.OffsetOldest, len(codecs)*steps.Records)
	})
	steps.Step("read from a time", fromTime)
	steps.Step("group", func() (string, error) { return group(admin) })
	adminSteps(admin)
}

func produce(codec sarama.CompressionCodec, messages []*sarama.ProducerMessage) error {
	c := config()
	c.Producer.Compression = codec
	producer, err := sarama.NewSyncProducer(addresses(), c)
	if err != nil {
		return err
	}
	defer producer.Close()
	err = producer.SendMessages(messages)
	var many sarama.ProducerErrors
	if errors.As(err, &many) && len(many) > 0 {
		return many[0].Err
	}
	return err
}

func read(stem string, from int64, count int) (string, error) {
	consumer, err := sarama.NewConsumer(addresses(), config())
	if err != nil {
		return "", err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(steps.Name(stem), 0, from)
	if err != nil {
		return "", err
	}
	defer partition.Close()
	var values []string
	limit := time.After(steps.Limit)
	for len(values) < count {
		select {
		case message := <-partition.Messages():
			values = append(values, string(message.Value))
		case <-limit:
			return steps.Digest(values), errors.New("no more records")
		}
	}
	return steps.Digest(values), nil
}

func fromTime() (string, error) {
	var messages []*sarama.ProducerMessage
	for i := range steps.Records {
		at := steps.TimeBase + int64(i)*1000
		messages = append(messages, &sarama.ProducerMessage{Topic: steps.Name("time"), Value: sarama.StringEncoder(fmt.Sprintf("t-%d", i)),
			Timestamp: time.Unix(at/1000, 0)})
	}
	for _, message := range messages {
		if err := produce(sarama.CompressionNone, []*sarama.ProducerMessage{message}); err != nil {
			return "", err
		}
	}
	client, err := sarama.NewClient(addresses(), config())
	if err != nil {
		return "", err
	}
	defer client.Close()
	offset, err := client.GetOffset(steps.Name("time"), 0, steps.TimeBase+6500)
	if err != nil {
		return "", err
	}
	values, err := read("time", offset, steps.Records-int(offset))
	return fmt.Sprintf("offset %d, %s", offset, values), err
}

func fill(each int) error {
	var messages []*sarama.ProducerMessage
	for i := range each * steps.Partitions {
		messages = append(messages, &sarama.ProducerMessage{Topic: steps.Name("group"), Partition: int32(i % steps.Partitions), Value: sarama.StringEncoder("v")})
	}
	return produce(sarama.CompressionNone, messages)
}

type handler struct {
	name string
	seen *steps.Seen
}

func (handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (h handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			h.seen.Add(h.name, message.Partition, message.Offset)
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

// member reads in the group until told to stop; what it marked is committed each second.
func member(name string, seen *steps.Seen) (stop func(), err error) {
	group, err := sarama.NewConsumerGroup(addresses(), steps.Name("g"), config())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := group.Consume(ctx, []string{steps.Name("group")}, handler{name, seen}); err != nil {
				time.Sleep(100 * time.Millisecond)
			}
		}
	}()
	return func() { cancel(); <-done; group.Close() }, nil
}

func group(admin sarama.ClusterAdmin) (string, error) {
	if err := fill(10); err != nil {
		return "", err
	}
	var seen steps.Seen
	stopA, err := member("a", &seen)
	if err != nil {
		return "", err
	}
	stopB, err := member("b", &seen)
	if err != nil {
		return "", err
	}
	err = steps.Await("records", func() bool { return seen.Count() == 10*steps.Partitions })
	shared := steps.Await("second member", func() bool {
		described, err := admin.DescribeConsumerGroups([]string{steps.Name("g")})
		return err == nil && len(described) == 1 && len(described[0].Members) == 2 && described[0].State == "Stable"
	})
	// 1.26 does not commit at the end of a session, only each second.
	time.Sleep(1500 * time.Millisecond)
	stopA()
	stopB()
	if err != nil || shared != nil {
		return "", fmt.Errorf("%d read; %v; %v", seen.Count(), err, shared)
	}
	if err := fill(1); err != nil {
		return "", err
	}
	var again steps.Seen
	stop, err := member("c", &again)
	if err != nil {
		return "", err
	}
	err = steps.Await("records", func() bool { return again.Count() >= steps.Partitions })
	time.Sleep(300 * time.Millisecond)
	stop()
	return fmt.Sprintf("%d read by two, then %d", seen.Count(), again.Count()), err
}

func adminSteps(admin sarama.ClusterAdmin) {
	steps.Step("admin describe topics", func() (string, error) {
		topics, err := admin.DescribeTopics([]string{steps.Name("group"), steps.Name("nowhere")})
		if err != nil {
			return "", err
		}
		return fmt.Sprint(len(topics[0].Partitions), topics[0].Err, len(topics[1].Partitions), topics[1].Err), nil
	})
	steps.Step("admin list topics", func() (string, error) {
		topics, err := admin.ListTopics()
		return fmt.Sprint(topics[steps.Name("group")].NumPartitions), err
	})
	steps.Step("admin describe config", func() (string, error) {
		entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: steps.Name("codecs"),
			ConfigNames: []string{"cleanup.policy", "retention.ms"}})
		out := ""
		for _, e := range entries {
			out += e.Name + "=" + e.Value + " "
		}
		return out, err
	})
	steps.Step("admin alter config", func() (string, error) {
		value := "86400000"
		return "altered", admin.AlterConfig(sarama.TopicResource, steps.Name("codecs"), map[string]*string{"retention.ms": &value}, false)
	})
	steps.Step("admin create partitions", func() (string, error) {
		return "grown", admin.CreatePartitions(steps.Name("time"), 3, nil, false)
	})
	steps.Step("admin delete records", func() (string, error) {
		return "deleted", admin.DeleteRecords(steps.Name("codecs"), map[int32]int64{0: 5})
	})
	steps.Step("admin list groups", func() (string, error) {
		groups, err := admin.ListConsumerGroups()
		return groups[steps.Name("g")], err
	})
	steps.Step("admin group offsets", func() (string, error) {
		response, err := admin.ListConsumerGroupOffsets(steps.Name("g"), map[string][]int32{steps.Name("group"): {0, 1, 2, 3}})
		if err != nil {
			return "", err
		}
		sum := int64(0)
		for p := int32(0); p < steps.Partitions; p++ {
			sum += response.GetBlock(steps.Name("group"), p).Offset
		}
		return fmt.Sprint(sum), nil
	})
	steps.Step("admin delete group", func() (string, error) { return "deleted", admin.DeleteConsumerGroup(steps.Name("g")) })
	steps.Step("admin delete topic", func() (string, error) { return "deleted", admin.DeleteTopic(steps.Name("codecs")) })
}

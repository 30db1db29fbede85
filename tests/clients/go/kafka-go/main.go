// kafka-go as applications use it: produce with each codec, read, group, admin.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
	"tarn/clients/steps"
)

var client = &kafka.Client{Addr: kafka.TCP(steps.Bootstrap()), Timeout: 20 * time.Second}

func main() {
	ctx := context.Background()
	steps.Step("admin create", func() (string, error) {
		response, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{
			{Topic: steps.Name("codecs"), NumPartitions: 1, ReplicationFactor: 1},
			{Topic: steps.Name("time"), NumPartitions: 1, ReplicationFactor: 1},
			{Topic: steps.Name("group"), NumPartitions: steps.Partitions, ReplicationFactor: 1}}})
		if err != nil {
			return "", err
		}
		for _, e := range response.Errors {
			if e != nil {
				return "", e
			}
		}
		return "created", nil
	})
	codecs := []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd}
	for i, codec := range codecs {
		name := []string{"none", "gzip", "snappy", "lz4", "zstd"}[i]
		steps.Step("produce "+name, func() (string, error) {
			var messages []kafka.Message
			for i := range steps.Records {
				messages = append(messages, kafka.Message{Key: []byte("k"), Value: []byte(fmt.Sprintf("%s-%d", name, i))})
			}
			return fmt.Sprintf("%d acknowledged", steps.Records), write("codecs", codec, messages)
		})
	}
	steps.Step("read from the start", func() (string, error) {
		return read("codecs", kafka.FirstOffset, len(codecs)*steps.Records)
	})
	steps.Step("read from a time", fromTime)
	steps.Step("group", group)
	admin(ctx)
}

func write(stem string, codec kafka.Compression, messages []kafka.Message) error {
	writer := &kafka.Writer{Addr: kafka.TCP(steps.Bootstrap()), Topic: steps.Name(stem), RequiredAcks: kafka.RequireAll,
		Compression: codec, BatchTimeout: 20 * time.Millisecond, Balancer: kafka.BalancerFunc(byKey)}
	defer writer.Close()
	return writer.WriteMessages(context.Background(), messages...)
}

// byKey sends a record to the partition that the first byte of its key names: "0" to "3", anything else to 0.
func byKey(message kafka.Message, partitions ...int) int {
	if p := int(message.Key[0]) - '0'; p >= 0 && p < len(partitions) {
		return p
	}
	return 0
}

func read(stem string, from int64, count int) (string, error) {
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{steps.Bootstrap()}, Topic: steps.Name(stem), MaxWait: 200 * time.Millisecond})
	defer reader.Close()
	if err := reader.SetOffset(from); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), steps.Limit)
	defer cancel()
	var values []string
	for len(values) < count {
		message, err := reader.ReadMessage(ctx)
		if err != nil {
			return steps.Digest(values), err
		}
		values = append(values, string(message.Value))
	}
	return steps.Digest(values), nil
}

func fromTime() (string, error) {
	var messages []kafka.Message
	for i := range steps.Records {
		messages = append(messages, kafka.Message{Key: []byte("k"), Value: []byte(fmt.Sprintf("t-%d", i)),
			Time: time.UnixMilli(steps.TimeBase + int64(i)*1000)})
	}
	if err := write("time", 0, messages); err != nil {
		return "", err
	}
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{steps.Bootstrap()}, Topic: steps.Name("time"), MaxWait: 200 * time.Millisecond})
	defer reader.Close()
	ctx, cancel := context.WithTimeout(context.Background(), steps.Limit)
	defer cancel()
	if err := reader.SetOffsetAt(ctx, time.UnixMilli(steps.TimeBase+6500)); err != nil {
		return "", err
	}
	offset := reader.Offset()
	values, err := read("time", offset, steps.Records-int(offset))
	return fmt.Sprintf("offset %d, %s", offset, values), err
}

func fill(each int) error {
	var messages []kafka.Message
	for i := range each * steps.Partitions {
		messages = append(messages, kafka.Message{Key: []byte(fmt.Sprint(i % steps.Partitions)), Value: []byte("v")})
	}
	return write("group", 0, messages)
}

// member reads in the group until told to stop; each record is committed.
func member(name string, seen *steps.Seen) (stop func()) {
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{steps.Bootstrap()}, GroupID: steps.Name("g"), Topic: steps.Name("group"),
		StartOffset: kafka.FirstOffset, MaxWait: 200 * time.Millisecond, HeartbeatInterval: 500 * time.Millisecond, SessionTimeout: 10 * time.Second})
	go func() {
		for {
			message, err := reader.FetchMessage(context.Background())
			if err != nil {
				return
			}
			seen.Add(name, int32(message.Partition), message.Offset)
			_ = reader.CommitMessages(context.Background(), message)
		}
	}()
	return func() { reader.Close() }
}

func group() (string, error) {
	if err := fill(10); err != nil {
		return "", err
	}
	var seen steps.Seen
	stopA, stopB := member("a", &seen), member("b", &seen)
	err := steps.Await("records", func() bool { return seen.Count() == 10*steps.Partitions })
	shared := steps.Await("second member", func() bool { return members() == 2 })
	stopA()
	stopB()
	if err != nil || shared != nil {
		return "", fmt.Errorf("%d read; %v; %v", seen.Count(), err, shared)
	}
	if err := fill(1); err != nil {
		return "", err
	}
	var again steps.Seen
	stop := member("c", &again)
	err = steps.Await("records", func() bool { return again.Count() >= steps.Partitions })
	time.Sleep(300 * time.Millisecond)
	stop()
	return fmt.Sprintf("%d read by two, then %d", seen.Count(), again.Count()), err
}

func members() int {
	response, err := client.DescribeGroups(context.Background(), &kafka.DescribeGroupsRequest{GroupIDs: []string{steps.Name("g")}})
	if err != nil || len(response.Groups) != 1 {
		return 0
	}
	return len(response.Groups[0].Members)
}

func admin(ctx context.Context) {
	steps.Step("admin metadata", func() (string, error) {
		response, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{steps.Name("group"), steps.Name("nowhere")}})
		if err != nil {
			return "", err
		}
		out := fmt.Sprint(len(response.Brokers))
		for _, t := range response.Topics {
			out += fmt.Sprintf(" %d:%v", len(t.Partitions), t.Error)
		}
		return out, nil
	})
	steps.Step("admin describe configs", func() (string, error) {
		response, err := client.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: steps.Name("codecs"), ConfigNames: []string{"retention.ms", "cleanup.policy"}}}})
		if err != nil {
			return "", err
		}
		values := map[string]string{}
		for _, e := range response.Resources[0].ConfigEntries {
			values[e.ConfigName] = e.ConfigValue
		}
		return fmt.Sprint(values, response.Resources[0].Error), nil
	})
	steps.Step("admin list offsets", func() (string, error) {
		response, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{
			steps.Name("codecs"): {kafka.FirstOffsetOf(0), kafka.LastOffsetOf(0)}}})
		if err != nil {
			return "", err
		}
		p := response.Topics[steps.Name("codecs")][0]
		return fmt.Sprint(p.FirstOffset, p.LastOffset, p.Error), nil
	})
	steps.Step("admin group offsets", func() (string, error) {
		response, err := client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: steps.Name("g"), Topics: map[string][]int{steps.Name("group"): {0, 1, 2, 3}}})
		if err != nil {
			return "", err
		}
		sum := int64(0)
		for _, p := range response.Topics[steps.Name("group")] {
			sum += p.CommittedOffset
		}
		return fmt.Sprint(sum, response.Error), nil
	})
	steps.Step("admin list groups", func() (string, error) {
		response, err := client.ListGroups(ctx, &kafka.ListGroupsRequest{})
		if err != nil {
			return "", err
		}
		for _, g := range response.Groups {
			if g.GroupID == steps.Name("g") {
				return "listed", nil
			}
		}
		return "missing", nil
	})
	steps.Step("admin delete group", func() (string, error) {
		response, err := client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{steps.Name("g")}})
		if err != nil {
			return "", err
		}
		return fmt.Sprint(response.Errors[steps.Name("g")]), nil
	})
	steps.Step("admin delete topic", func() (string, error) {
		response, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{steps.Name("codecs")}})
		if err != nil {
			return "", err
		}
		return fmt.Sprint(response.Errors[steps.Name("codecs")]), nil
	})
}

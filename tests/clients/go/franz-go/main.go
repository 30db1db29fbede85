// franz-go as applications use it: produce with each codec, read, group, admin.
package main

import (
	"context"
	"fmt"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"tarn/clients/steps"
)

func client(options ...kgo.Opt) *kgo.Client {
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(steps.Bootstrap()), kgo.RetryTimeout(30 * time.Second)}, options...)...)
	if err != nil {
		panic(err)
	}
	return c
}

func main() {
	ctx := context.Background()
	c := client()
	defer c.Close()
	admin := kadm.NewClient(c)
	steps.Step("admin create", func() (string, error) {
		for stem, partitions := range map[string]int32{"codecs": 1, "time": 1, "group": steps.Partitions} {
			if _, err := admin.CreateTopic(ctx, partitions, 1, nil, steps.Name(stem)); err != nil {
				return "", err
			}
		}
		return "created", nil
	})
	codecs := []struct {
		name  string
		codec kgo.CompressionCodec
	}{{"none", kgo.NoCompression()}, {"gzip", kgo.GzipCompression()}, {"snappy", kgo.SnappyCompression()}, {"lz4", kgo.Lz4Compression()}, {"zstd", kgo.ZstdCompression()}}
	for _, codec := range codecs {
		steps.Step("produce "+codec.name, func() (string, error) {
			producer := client(kgo.ProducerBatchCompression(codec.codec), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			defer producer.Close()
			for i := range steps.Records {
				record := &kgo.Record{Topic: steps.Name("codecs"), Key: []byte("k"), Value: []byte(fmt.Sprintf("%s-%d", codec.name, i))}
				if err := producer.ProduceSync(ctx, record).FirstErr(); err != nil {
					return "", err
				}
			}
			return fmt.Sprintf("%d acknowledged", steps.Records), nil
		})
	}
	steps.Step("read from the start", func() (string, error) { return read("codecs", 0, len(codecs)*steps.Records) })
	steps.Step("read from a time", func() (string, error) { return fromTime(ctx, admin) })
	steps.Step("group", func() (string, error) { return group(ctx, admin) })
	adminSteps(ctx, admin)
}

func read(stem string, from int64, count int) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), steps.Limit)
	defer cancel()
	c := client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{steps.Name(stem): {0: kgo.NewOffset().At(from)}}))
	defer c.Close()
	var values []string
	for len(values) < count {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return steps.Digest(values), err
		}
		fetches.EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
	}
	return steps.Digest(values), nil
}

func fromTime(ctx context.Context, admin *kadm.Client) (string, error) {
	producer := client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer producer.Close()
	for i := range steps.Records {
		record := &kgo.Record{Topic: steps.Name("time"), Value: []byte(fmt.Sprintf("t-%d", i)), Timestamp: time.UnixMilli(steps.TimeBase + int64(i)*1000)}
		if err := producer.ProduceSync(ctx, record).FirstErr(); err != nil {
			return "", err
		}
	}
	listed, err := admin.ListOffsetsAfterMilli(ctx, steps.TimeBase+6500, steps.Name("time"))
	if err != nil {
		return "", err
	}
	at, _ := listed.Lookup(steps.Name("time"), 0)
	values, err := read("time", at.Offset, steps.Records-int(at.Offset))
	return fmt.Sprintf("offset %d, %s", at.Offset, values), err
}

func fill(ctx context.Context, each int) error {
	producer := client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer producer.Close()
	for i := range each * steps.Partitions {
		record := &kgo.Record{Topic: steps.Name("group"), Partition: int32(i % steps.Partitions), Value: []byte("v")}
		if err := producer.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}

// member reads in the group until told to stop; each poll is committed.
func member(name string, seen *steps.Seen) (stop func()) {
	c := client(kgo.ConsumerGroup(steps.Name("g")), kgo.ConsumeTopics(steps.Name("group")), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.HeartbeatInterval(500*time.Millisecond), kgo.SessionTimeout(10*time.Second), kgo.DisableAutoCommit())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			fetches := c.PollFetches(ctx)
			fetches.EachRecord(func(r *kgo.Record) { seen.Add(name, r.Partition, r.Offset) })
			_ = c.CommitUncommittedOffsets(context.Background())
		}
	}()
	return func() { cancel(); <-done; c.Close() }
}

func group(ctx context.Context, admin *kadm.Client) (string, error) {
	if err := fill(ctx, 10); err != nil {
		return "", err
	}
	var seen steps.Seen
	stopA, stopB := member("a", &seen), member("b", &seen)
	err := steps.Await("records", func() bool { return seen.Count() == 10*steps.Partitions })
	shared := steps.Await("shares of 2", func() bool {
		described, err := admin.DescribeGroups(ctx, steps.Name("g"))
		if err != nil {
			return false
		}
		var sizes []int
		for _, m := range described[steps.Name("g")].Members {
			if assigned, ok := m.Assigned.AsConsumer(); ok {
				for _, t := range assigned.Topics {
					sizes = append(sizes, len(t.Partitions))
				}
			}
		}
		sort.Ints(sizes)
		return fmt.Sprint(sizes) == "[2 2]"
	})
	stopA()
	stopB()
	if err != nil || shared != nil {
		return "", fmt.Errorf("%d read; %v; %v", seen.Count(), err, shared)
	}
	if err := fill(ctx, 1); err != nil {
		return "", err
	}
	var again steps.Seen
	stop := member("c", &again)
	err = steps.Await("records", func() bool { return again.Count() >= steps.Partitions })
	time.Sleep(300 * time.Millisecond)
	stop()
	return fmt.Sprintf("%d read by two with shares of 2, then %d", seen.Count(), again.Count()), err
}

func adminSteps(ctx context.Context, admin *kadm.Client) {
	steps.Step("admin topics", func() (string, error) {
		topics, err := admin.ListTopics(ctx, steps.Name("group"), steps.Name("nowhere"))
		if err != nil {
			return "", err
		}
		return fmt.Sprint(len(topics[steps.Name("group")].Partitions), topics[steps.Name("nowhere")].Err), nil
	})
	steps.Step("admin describe configs", func() (string, error) {
		configs, err := admin.DescribeTopicConfigs(ctx, steps.Name("codecs"))
		if err != nil {
			return "", err
		}
		out := ""
		for _, c := range configs[0].Configs {
			if c.Key == "retention.ms" || c.Key == "cleanup.policy" {
				out += c.Key + "=" + c.MaybeValue() + " " + c.Source.String() + " "
			}
		}
		return out, configs[0].Err
	})
	steps.Step("admin alter configs", func() (string, error) {
		value := "86400000"
		altered, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "retention.ms", Value: &value}}, steps.Name("codecs"))
		if err != nil {
			return "", err
		}
		return "altered", altered[0].Err
	})
	steps.Step("admin list offsets", func() (string, error) {
		out := ""
		for _, list := range []func(context.Context, ...string) (kadm.ListedOffsets, error){admin.ListStartOffsets, admin.ListEndOffsets, admin.ListCommittedOffsets} {
			listed, err := list(ctx, steps.Name("codecs"))
			if err != nil {
				return "", err
			}
			at, _ := listed.Lookup(steps.Name("codecs"), 0)
			out += fmt.Sprint(at.Offset, at.LeaderEpoch >= 0, at.Err, " ")
		}
		return out, nil
	})
	steps.Step("admin delete records", func() (string, error) {
		offsets := kadm.Offsets{}
		offsets.AddOffset(steps.Name("codecs"), 0, 5, -1)
		deleted, err := admin.DeleteRecords(ctx, offsets)
		if err != nil {
			return "", err
		}
		at, _ := deleted.Lookup(steps.Name("codecs"), 0)
		return fmt.Sprint(at.LowWatermark, at.Err), nil
	})
	steps.Step("admin group offsets", func() (string, error) {
		fetched, err := admin.FetchOffsets(ctx, steps.Name("g"))
		if err != nil {
			return "", err
		}
		sum := int64(0)
		fetched.Each(func(o kadm.OffsetResponse) { sum += o.At })
		return fmt.Sprint(sum), nil
	})
	steps.Step("admin lag", func() (string, error) {
		lags, err := admin.Lag(ctx, steps.Name("g"))
		if err != nil {
			return "", err
		}
		return fmt.Sprint(lags[steps.Name("g")].Lag.Total(), lags[steps.Name("g")].State), nil
	})
	steps.Step("admin log dirs", func() (string, error) {
		dirs, err := admin.DescribeAllLogDirs(ctx, nil)
		if err != nil {
			return "", err
		}
		return fmt.Sprint(len(dirs)), nil
	})
	steps.Step("admin delete group", func() (string, error) {
		_, err := admin.DeleteGroup(ctx, steps.Name("g"))
		return "deleted", err
	})
	steps.Step("admin delete topic", func() (string, error) {
		_, err := admin.DeleteTopic(ctx, steps.Name("codecs"))
		return "deleted", err
	})
}

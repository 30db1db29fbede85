// Package steps is what the Go clients share: arguments, the lines they print, and a digest of what they read.
// What is right is not here: the same program runs against a real Kafka, and the outcomes are compared.
package steps

import (
	"fmt"
	"hash/crc32"
	"os"
	"strings"
	"sync"
	"time"
)

// Records is how many records each codec sends.
const Records = 20

// Partitions is how many partitions the topic of the group has.
const Partitions = 4

// Limit is the longest that one step waits for anything.
const Limit = 45 * time.Second

// TimeBase is the timestamp of the first record that the look-up by time is tried on, in milliseconds: a whole second, an hour ago.
var TimeBase = time.Now().Unix()*1000 - 3_600_000

// Bootstrap is the address to talk to.
func Bootstrap() string { return os.Args[1] }

// Name makes a name of this run from a stem.
func Name(stem string) string { return os.Args[2] + "-" + stem }

// Step runs one step and prints its outcome.
func Step(name string, run func() (string, error)) {
	type result struct {
		outcome string
		err     error
	}
	done := make(chan result, 1)
	go func() {
		outcome, err := run()
		done <- result{outcome, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			fmt.Printf("%s\tfailed: %s\n", name, strings.ReplaceAll(r.err.Error(), "\n", " "))
		} else {
			fmt.Printf("%s\t%s\n", name, r.outcome)
		}
	case <-time.After(2 * Limit):
		fmt.Printf("%s\thangs\n", name)
	}
}

// Digest describes values in the order they were read.
func Digest(values []string) string {
	return fmt.Sprintf("%d records, crc %08x", len(values), crc32.ChecksumIEEE([]byte(strings.Join(values, ","))))
}

// Seen collects which records the members of a group have read.
type Seen struct {
	mutex sync.Mutex
	at    map[string]bool
	by    map[string]map[int32]bool
}

// Add notes a record that a member has read.
func (s *Seen) Add(member string, partition int32, offset int64) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.at == nil {
		s.at = map[string]bool{}
		s.by = map[string]map[int32]bool{}
	}
	s.at[fmt.Sprintf("%d@%d", partition, offset)] = true
	if s.by[member] == nil {
		s.by[member] = map[int32]bool{}
	}
	s.by[member][partition] = true
}

// Count is how many different records were read.
func (s *Seen) Count() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return len(s.at)
}

// Await waits until a condition holds.
func Await(what string, holds func() bool) error {
	for end := time.Now().Add(Limit); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("no %s in %s", what, Limit)
		}
	}
	return nil
}

// kfake is franz-go's fake Kafka cluster as a process: one broker, everything in memory, nothing durable.
//
// Usage: kfake PORT. It runs until a signal ends it. An upper bound for what a broker that keeps nothing can do;
// topics are made by clients, as for every other broker of the benchmark.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: kfake PORT")
		os.Exit(2)
	}
	port, err := strconv.Atoi(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "PORT is not a number:", os.Args[1])
		os.Exit(2)
	}
	cluster, err := kfake.NewCluster(kfake.Ports(port), kfake.NumBrokers(1), kfake.DefaultNumPartitions(1))
	if err != nil {
		fmt.Fprintln(os.Stderr, "kfake did not start:", err)
		os.Exit(1)
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
	<-ended
	cluster.Close()
}

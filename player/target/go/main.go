// Target is a target of a Lockstep player, written from player/player.proto alone: it keeps all records that it is
// sent, in order, in one file.
//
//	target -store FILE -listen HOST:PORT | unix:PATH
//	target -store FILE -dump
//
// It owns the rule of a target in Go (marks.go), a store that changes with its mark in one transaction (store.go), and
// the streams (play.go). So a record is stored once, whatever is killed, and when: the tests are in Python
// (tests/player/target), for any program that follows player.proto.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"google.golang.org/grpc"

	"lockstep/target/playerv1"
)

// An entry larger than a player's batches goes alone; gRPC's own limit of 4 MB would stop the target for good.
const mostMessageBytes = 64 << 20

func main() {
	store := flag.String("store", "", "the `FILE` with the mark and the records; made where there is none")
	listen := flag.String("listen", "", "HOST:PORT, or unix:PATH")
	dump := flag.Bool("dump", false, "print the records that were applied as JSON lines, and end; not while it runs")
	hold := flag.String("hold", "", "for tests: while there is a file of this `NAME`, no transaction ends")
	flag.Parse()
	if *store == "" || (*listen == "") != *dump || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	work := func() error { return serve(*store, *hold, *listen) }
	if *dump {
		work = func() error { return printAll(*store) }
	}
	if err := work(); err != nil {
		fmt.Fprintln(os.Stderr, "target:", err)
		os.Exit(1)
	}
}

func printAll(path string) error {
	store, err := Open(path, "", true)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	if err := store.Dump(out); err != nil {
		return err
	}
	return out.Flush()
}

func serve(path, hold, address string) error {
	store, err := Open(path, hold, false)
	if err != nil {
		return err
	}
	defer store.Close()
	network := "tcp"
	if name, isPath := strings.CutPrefix(address, "unix:"); isPath {
		network, address = "unix", name
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(mostMessageBytes))
	playerv1.RegisterTargetServer(server, NewService(store))
	asked, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(asked, server.Stop)
	fmt.Println("target ready, serving players on", listener.Addr())
	return server.Serve(listener)
}

// A closed loop over HTTP/3 with quic-go's client on one connection: prints requests, failures, and microseconds of CPU per request.
//
//	h3_client WORKERS SECONDS URL
//
// Beside h2lab, in turns (speed.md). The module file is that of the integration tests' peer:
//
//	cp crates/h2lab/tests/integration/quic_go/go.* FOLDER; cp h3_client.go FOLDER/main.go; cd FOLDER && go mod tidy && go build -o h3_client
//	taskset -c 0 h2lab origin --listen 127.0.0.1:7810 --tls-listen 127.0.0.1:7811 --h3
//	taskset -c 1 h3_client 100 2 https://127.0.0.1:7811/bytes/100
//	taskset -c 1 h2lab load --http3 -k -c1 -m100 -z2s --no-store --json https://127.0.0.1:7811/bytes/100    # CPU of the whole process: time(1)
package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/quic-go/quic-go/http3"
)

func main() {
	workers, _ := strconv.Atoi(os.Args[1])
	seconds, _ := strconv.ParseFloat(os.Args[2], 64)
	transport := &http3.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	client := &http.Client{Transport: transport}
	get := func() bool {
		response, err := client.Get(os.Args[3])
		if err != nil {
			return false
		}
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
		return response.StatusCode == 200
	}
	if !get() {
		os.Exit(1)
	}
	var before, after syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	var n, failed atomic.Int64
	var group sync.WaitGroup
	for range workers {
		group.Add(1)
		go func() {
			defer group.Done()
			for time.Now().Before(end) {
				if get() {
					n.Add(1)
				} else {
					failed.Add(1)
				}
			}
		}()
	}
	group.Wait()
	syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	us := func(r syscall.Rusage) float64 {
		return float64(r.Utime.Sec+r.Stime.Sec)*1e6 + float64(r.Utime.Usec+r.Stime.Usec)
	}
	fmt.Printf("%d %d %.3f\n", n.Load(), failed.Load(), (us(after)-us(before))/float64(n.Load()))
}

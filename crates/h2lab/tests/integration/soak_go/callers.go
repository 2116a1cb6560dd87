package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

// What became of a request that was not answered as it should have been.
type failure struct {
	number     int
	method     string
	size       int
	begun, end time.Time
	// None of its response had come.
	early bool
	why   string
}

// The place of the client of HTTP/2 among those of a soak.
const h2c = 1

// Each of so many callers has one request under way: more than that no disturbance can cut off.
const atATime = 24

// What must happen while they ask, each at least once.
var promised = []string{
	"KILL http", "KILL h2c", "STOP http", "STOP h2c", "TERM http", "TERM h2c", "RELOAD ingress", "HANDOVER ingress", "RELOAD egress", "HANDOVER egress",
}

type soak struct {
	url      string
	clients  []*http.Client
	lock     sync.Mutex
	failures []failure
	// POSTs that were answered with 200, and those that were sent.
	done, sent        map[int]bool
	gets, others      atomic.Int64
	cancelled, talked atomic.Int64
	// Of the callers' sidecar.
	reloads, handOvers atomic.Int64
}

var sizes = []int{
	0, 0, 1, 300, 300, 1_024, 1_024, 1_024, 1_024, 4_000, 4_000, 4_000, 4_000, 20_000, 20_000, 20_000, 64 * 1024, 70_000, 300_000, 1 << 20,
}

// Numbers that look drawn at random and are the same every time.
func drawn(number, of int) int {
	state := uint64(number)*0x9e3779b97f4a7c15 + 0x1234567
	state ^= state >> 29
	state *= 0xbf58476d1ce4e5b9
	state ^= state >> 32
	return int(state % uint64(of))
}

// Only a Reader: its length is not known.
type unknown struct{ io.Reader }

func (s *soak) request(number int) {
	method := []string{"GET", "GET", "PUT", "POST", "POST"}[drawn(number, 5)]
	up, down := sizes[drawn(number+1_000_003, len(sizes))], sizes[drawn(number+2_000_003, len(sizes))]
	if method == "GET" {
		up = 0
	}
	query := fmt.Sprintf("/do?n=%d&size=%d", number, down)
	for key, one := range map[string]int{"length": 2, "early": 10} {
		if drawn(number+len(key)*7_919, one) == 0 {
			query += "&" + key
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	given := drawn(number+5_003, 50) == 0
	if given {
		query += "&wait"
		ctx, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
	}
	sent := body(number, 0, up)
	var reader io.Reader = bytes.NewReader(sent)
	if drawn(number+3_001, 2) == 0 && method != "GET" {
		reader = unknown{reader}
	}
	if method == "GET" {
		reader = nil
	}
	if method == "POST" {
		s.lock.Lock()
		s.sent[number] = true
		s.lock.Unlock()
		s.others.Add(1)
	} else {
		s.gets.Add(1)
	}
	begun := time.Now()
	early, why := s.exchange(ctx, method, query, reader, number, sent, down)
	if given && (why == "" || ctx.Err() != nil) {
		s.cancelled.Add(1)
		return
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	if why != "" {
		s.failures = append(s.failures, failure{number, method, up, begun, time.Now(), early, why})
	} else if method == "POST" {
		s.done[number] = true
	}
}

func (s *soak) exchange(ctx context.Context, method, query string, reader io.Reader, number int, sent []byte, down int) (bool, string) {
	request, err := http.NewRequestWithContext(ctx, method, s.url+query, reader)
	check(err, "a request")
	// Over HTTP/1.1 net/http of Go itself must not send again. Over HTTP/2 it may where a GOAWAY has come before the request left,
	// for which it closes the body all the same (cleanupWriteRequest).
	request.GetBody = nil
	if number%len(s.clients) == h2c && reader != nil {
		request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(sent)), nil }
	}
	response, err := s.clients[number%len(s.clients)].Do(request)
	if err != nil {
		return true, err.Error()
	}
	defer response.Body.Close()
	if response.StatusCode != 200 {
		text, _ := io.ReadAll(response.Body)
		return true, fmt.Sprintf("%d %s", response.StatusCode, bytes.TrimSpace(text))
	}
	var from io.Reader = response.Body
	if drawn(number+4_001, 40) == 0 {
		from = slow{from}
	}
	came, err := io.ReadAll(from)
	if err != nil {
		return false, fmt.Sprintf("after %d bytes: %v", len(came), err)
	}
	// It is a header field where nothing was sent before it was known.
	told := cmp.Or(response.Trailer.Get("X-Digest"), response.Header.Get("X-Digest"))
	digest := sha256.Sum256(sent)
	switch {
	case response.Header.Get("X-Number") != strconv.Itoa(number):
		fail("%d: the answer to another request: %v", number, response.Header)
	case !bytes.Equal(came, body(number, 1, down)):
		fail("%d: another body of %d bytes instead of %d", number, len(came), down)
	case told != hex.EncodeToString(digest[:]):
		fail("%d: the instance got another body: %q, %v %v", number, told, response.Header, response.Trailer)
	}
	return false, ""
}

// Reads slowly for a while.
type slow struct{ io.Reader }

func (s slow) Read(into []byte) (int, error) {
	time.Sleep(time.Millisecond)
	return s.Reader.Read(into[:min(len(into), 16*1024)])
}

func (s *soak) talk(number int) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	begun := time.Now()
	why := func() error {
		socket, _, err := websocket.Dial(ctx, s.url+"/ws", nil)
		if err != nil {
			return err
		}
		defer socket.CloseNow()
		socket.SetReadLimit(1 << 20)
		for n := range 4 {
			sent := body(number, n, sizes[drawn(number+n, len(sizes)-2)])
			if err := socket.Write(ctx, websocket.MessageBinary, sent); err != nil {
				return err
			}
			_, came, err := socket.Read(ctx)
			if err != nil {
				return err
			}
			if !bytes.Equal(came, sent) {
				fail("%d: another message came back", number)
			}
		}
		return socket.Close(websocket.StatusNormalClosure, "")
	}()
	s.talked.Add(1)
	if why != nil {
		s.lock.Lock()
		s.failures = append(s.failures, failure{number, "WebSocket", 0, begun, time.Now(), false, why.Error()})
		s.lock.Unlock()
	}
}

func callers(h2lab, address, folder string, n int, most time.Duration) {
	ready(address)
	// A port that is free: a successor of a sidecar at port 0 would get another one.
	free, err := net.Listen("tcp", "127.0.0.1:0")
	check(err, "a port")
	free.Close()
	egress := newSidecar(h2lab, folder, "egress", fmt.Sprintf(
		"[[listen]]\naddress = %q\nservice = \"a\"\n[service.a]\ninstances = [\"h2c://%s\"]\n", free.Addr(), address))
	protocols := func(h2c bool) *http.Client {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(!h2c)
		protocols.SetUnencryptedHTTP2(h2c)
		return &http.Client{Transport: &http.Transport{Protocols: protocols, MaxIdleConnsPerHost: 32}}
	}
	s := &soak{url: "http://" + egress.address, clients: []*http.Client{protocols(false), protocols(true)}, done: map[int]bool{}, sent: map[int]bool{}}
	var next, asked atomic.Int64
	var group sync.WaitGroup
	begun := time.Now()
	over := make(chan struct{})
	disturbed := make(chan struct{})
	go func() {
		defer close(disturbed)
		for turn := 0; ; turn++ {
			select {
			case <-over:
				return
			case <-time.After(5 * time.Second):
			}
			if turn%2 == 0 {
				egress.reload()
				s.reloads.Add(1)
			} else {
				egress.handOver()
				s.handOvers.Add(1)
			}
		}
	}()
	var enough atomic.Bool
	go func() {
		// On a machine that is busy the disturbances take longer.
		for time.Since(begun) < most || (len(s.missing(disturbances(folder))) > 0 && time.Since(begun) < 3*most) {
			time.Sleep(200 * time.Millisecond)
		}
		enough.Store(true)
	}()
	for range atATime {
		group.Go(func() {
			for {
				number := int(next.Add(1))
				if n > 0 && number > n || enough.Load() {
					return
				}
				asked.Add(1)
				if number%10_000 == 0 {
					fmt.Fprintf(os.Stderr, "%d after %.0f s\n", number, time.Since(begun).Seconds())
				}
				if number%200 == 0 {
					s.talk(number)
				} else {
					s.request(number)
				}
			}
		})
	}
	group.Wait()
	close(over)
	<-disturbed
	egress.stop()
	s.judge(folder, asked.Load(), int64(n), time.Since(begun))
}

// What was disturbed, and how: an instance, by what it speaks, or the sidecar before them. When an instance was gone that was killed or
// ended in order, and when another one was there.
type disturbance struct {
	kind, of          string
	begun, gone, over time.Time
}

// What was promised and has not happened.
func (s *soak) missing(all []disturbance) (missing []string) {
	happened := map[string]bool{"RELOAD egress": s.reloads.Load() > 0, "HANDOVER egress": s.handOvers.Load() > 0}
	for _, d := range all {
		happened[d.kind+" "+d.of] = true
	}
	for _, name := range promised {
		if !happened[name] {
			missing = append(missing, name)
		}
	}
	return missing
}

func disturbances(folder string) (all []disturbance) {
	text, err := os.ReadFile(filepath.Join(folder, "disturbed"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	check(err, "the notes")
	for line := range strings.Lines(string(text)) {
		var kind, of string
		var begun, gone, over int64
		_, err := fmt.Sscan(line, &kind, &of, &begun, &gone, &over)
		check(err, line)
		all = append(all, disturbance{kind, of, time.UnixMilli(begun), time.UnixMilli(gone), time.UnixMilli(over)})
	}
	return all
}

// A request may fail only if an instance that may have had it was killed meanwhile, and what it asked for was not safe to ask for
// again, or was being answered already; or if the request was not safe, and its connection of HTTP/1.1 was closed by an instance that
// ended in good order just when it came (RFC 9112 §9.5); or if its body was too long to be kept, and its stream was above the last one of
// the only GOAWAY with which Go's server ends a connection of HTTP/2 in good order: RFC 9113 §6.8 asks for two, so that no stream is, and
// meanwhile a window of 1 MiB lets much of the body leave. A second later the sidecar before it has noticed.
func (d disturbance) excuses(f failure) bool {
	during := func(end time.Time) bool { return f.begun.Before(end.Add(time.Second)) && f.end.After(d.begun) }
	// Each of an instance's WebSockets ends with it, and no other one takes them.
	if f.method == "WebSocket" {
		return d.of == "http" && (d.kind == "KILL" || d.kind == "TERM") && during(d.over)
	}
	isKept := f.size <= 64*1024 // in each sidecar, until the response begins
	again := f.early && (f.method == "GET" || f.method == "PUT") && isKept
	closes := d.kind == "TERM" && d.of == "http" && f.early
	refuses := d.kind == "TERM" && d.of == "h2c" && f.early && !isKept && strings.Contains(f.why, "(REFUSED_STREAM)")
	return !again && (d.kind == "KILL" || closes || refuses) && during(d.gone)
}

// The place of the disturbance that excuses a failure, of several the one that has cut off the fewest; -1 without one.
func excused(f failure, all []disturbance, cut []int) int {
	found := -1
	for at, d := range all {
		if d.excuses(f) && (found < 0 || cut[at] < cut[found]) {
			found = at
		}
	}
	return found
}

func (s *soak) judge(folder string, n, wanted int64, took time.Duration) {
	all := disturbances(folder)
	kinds := map[string]int64{}
	for _, d := range all {
		kinds[d.kind]++
	}
	lost, cut, cuts := 0, 0, make([]int, len(all))
	for _, f := range s.failures {
		if at := excused(f, all, cuts); at >= 0 {
			cuts[at]++
			cut++
			continue
		}
		lost++
		if lost <= 20 {
			fmt.Printf("lost: %d %s of %d bytes, after %v: %s\n", f.number, f.method, f.size, f.end.Sub(f.begun), f.why)
		}
	}
	times := map[int]int{}
	for _, name := range []string{"ledger-1", "ledger-2"} {
		text, err := os.ReadFile(filepath.Join(folder, name))
		check(err, name)
		for line := range strings.Lines(string(text)) {
			number, err := strconv.Atoi(strings.TrimSpace(line))
			check(err, line)
			times[number]++
		}
	}
	repeated, missing := 0, 0
	for number, count := range times {
		if count > 1 || !s.sent[number] {
			repeated++
			fmt.Printf("repeated: POST %d was begun %d times\n", number, count)
		}
	}
	for number := range s.done {
		if times[number] != 1 {
			missing++
			fmt.Printf("missing: POST %d was answered and never begun\n", number)
		}
	}
	fmt.Printf("%d requests in %.0f s: %d GET and PUT, %d POST, %d given up by their callers, %d WebSockets; instances killed %d times, "+
		"stopped %d, ended in order %d; sidecars reloaded %d times, replaced %d: %d cut off or not safe to send again, %d lost, %d repeated, %d missing\n",
		n, took.Seconds(), s.gets.Load(), s.others.Load(), s.cancelled.Load(), s.talked.Load(), kinds["KILL"], kinds["STOP"], kinds["TERM"],
		s.reloads.Load()+kinds["RELOAD"], s.handOvers.Load()+kinds["HANDOVER"], cut, lost, repeated, missing)
	failed := lost+repeated+missing > 0
	for _, name := range s.missing(all) {
		failed = true
		fmt.Printf("not shown: there was no %s\n", name)
	}
	for at, count := range cuts {
		if count > atATime {
			failed = true
			fmt.Printf("not explained: %d requests of %d callers were cut off by one %s of %s\n", count, atATime, all[at].kind, all[at].of)
		}
	}
	if n < wanted {
		failed = true
		fmt.Printf("not shown: %d requests of %d\n", n, wanted)
	}
	if failed {
		os.Exit(1)
	}
	fmt.Println("done")
}

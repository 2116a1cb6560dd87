// A client on net/http: so many GETs of a URL over HTTP/2 in clear by prior knowledge. The first goes alone, so that there is a
// connection and each further dial has another reason; the others go all at a time. With a third argument callers dial together.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
)

// Callers that dial begin four at a time, or as many as have no answer yet: whether they dial together is seen then, however quick
// the first of them is.
type together struct {
	lock                  sync.Mutex
	changed               sync.Cond
	open, begun, released int
}

func (t *together) change(what *int, by int) int {
	t.lock.Lock()
	defer t.lock.Unlock()
	*what += by
	if t.begun-t.released >= min(4, t.open) {
		t.released = t.begun
		t.changed.Broadcast()
	}
	return *what
}

func (t *together) dial(ctx context.Context, network, address string) (net.Conn, error) {
	number := t.change(&t.begun, 1)
	t.lock.Lock()
	for t.released < number {
		t.changed.Wait()
	}
	t.lock.Unlock()
	return new(net.Dialer).DialContext(ctx, network, address)
}

func main() {
	url := os.Args[1]
	n, err := strconv.Atoi(os.Args[2])
	if err != nil {
		panic(err)
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	callers := new(together)
	callers.changed.L = &callers.lock
	transport := &http.Transport{Protocols: protocols}
	if len(os.Args) > 3 {
		transport.DialContext = callers.dial
	}
	client := &http.Client{Transport: transport}
	var group sync.WaitGroup
	failed := make(chan error, n)
	get := func() {
		callers.change(&callers.open, 1)
		defer callers.change(&callers.open, -1)
		response, err := client.Get(url)
		if err == nil {
			_, err = io.Copy(io.Discard, response.Body)
			response.Body.Close()
		}
		if err != nil {
			failed <- err
		}
	}
	get()
	for range n - 1 {
		group.Go(get)
	}
	group.Wait()
	close(failed)
	code := 0
	for err := range failed {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

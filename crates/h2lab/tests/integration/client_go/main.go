// A client on net/http: so many GETs of a URL over HTTP/2 in clear by prior knowledge. The first goes alone, so that there is a
// connection and each further dial has another reason; the others go all at a time.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
)

func main() {
	url := os.Args[1]
	n, err := strconv.Atoi(os.Args[2])
	if err != nil {
		panic(err)
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	var group sync.WaitGroup
	failed := make(chan error, n)
	get := func() {
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

// A server on golang.org/x/net's h2c, which upgrades within the handler of a path. It prints where it listens, and
// answers with the protocol of the request. With an argument, http.MaxBytesHandler limits bodies to so many bytes, as
// its documentation has it: around everything. Then a handler that cannot read a body answers 413.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/h2c"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	answer := func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			http.Error(w, "too large", http.StatusRequestEntityTooLarge)
			return
		}
		fmt.Fprint(w, r.Proto)
	}
	handler := h2c.NewHandler(http.HandlerFunc(answer), &http2.Server{})
	if len(os.Args) > 1 {
		limit, err := strconv.ParseInt(os.Args[1], 10, 64)
		if err != nil {
			panic(err)
		}
		handler = http.MaxBytesHandler(handler, limit)
	}
	fmt.Println("listening", listener.Addr())
	panic(http.Serve(listener, handler))
}

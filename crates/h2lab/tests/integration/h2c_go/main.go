// A server on golang.org/x/net's h2c, which upgrades within the handler of a path. It prints where it listens, and answers with the
// protocol of the request.
package main

import (
	"fmt"
	"net"
	"net/http"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/h2c"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) })
	fmt.Println("listening", listener.Addr())
	panic(http.Serve(listener, h2c.NewHandler(handler, &http2.Server{})))
}

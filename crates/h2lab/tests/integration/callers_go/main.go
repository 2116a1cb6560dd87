// Callers and a server that know nothing of a proxy: net/http, gRPC's own suite for interoperability, a WebSocket client.
//
//	serve          prints "http ADDRESS" (HTTP/1.1 and HTTP/2 in clear, WebSocket at /ws) and "grpc ADDRESS"
//	call URL HOW   net/http by h1, h2c, h1s or h2
//	ws URL         a WebSocket at ws://
//	grpc ADDRESS   gRPC's suite
//
// It exits with 1 and the reason when something comes out otherwise than without a proxy.
package main

import (
	"fmt"
	"os"
)

func main() {
	switch {
	case len(os.Args) == 2 && os.Args[1] == "serve":
		serve()
	case len(os.Args) == 4 && os.Args[1] == "call":
		call(os.Args[2], os.Args[3])
	case len(os.Args) == 3 && os.Args[1] == "ws":
		talk(os.Args[2])
	case len(os.Args) == 3 && os.Args[1] == "grpc":
		interoperate(os.Args[2])
	default:
		fail("usage: serve | call URL HOW | ws URL | grpc ADDRESS")
	}
}

func fail(format string, values ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", values...)
	os.Exit(1)
}

func check(err error, what string) {
	if err != nil {
		fail("%s: %v", what, err)
	}
}

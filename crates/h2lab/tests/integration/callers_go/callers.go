package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
)

func client(how string) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(how == "h1" || how == "h1s")
	protocols.SetUnencryptedHTTP2(how == "h2c")
	protocols.SetHTTP2(how == "h2")
	return &http.Client{
		Transport: &http.Transport{
			Protocols:             protocols,
			TLSClientConfig:       &tls.Config{InsecureSkipVerify: true},
			ExpectContinueTimeout: time.Minute,
		},
		Timeout: 5 * time.Minute,
	}
}

// Only a Reader: net/http does not know how long it is.
type unknown struct{ io.Reader }

func call(url, how string) {
	client := client(how)
	major := 1
	if how == "h2" || how == "h2c" {
		major = 2
	}
	var group sync.WaitGroup
	for n := range 24 {
		group.Go(func() { exchange(client, url, n, major) })
	}
	group.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, "GET", url+"/slow", nil)
	check(err, "a request")
	if _, err = client.Do(request); !errors.Is(err, context.DeadlineExceeded) {
		fail("a request that was given up: %v", err)
	}
	exchange(client, url, 24, major)
	fmt.Println("done")
}

// One exchange of each shape: sizes from none to half a mebibyte, with a length and without, with Expect, trailers and 103.
func exchange(client *http.Client, url string, n, major int) {
	body := bytes.Repeat([]byte{byte('a' + n)}, []int{0, 1, 1_000, 70_000, 500_000}[n%5])
	var reader io.Reader = bytes.NewReader(body)
	if n%2 == 1 {
		reader = unknown{reader}
	}
	// Not both: net/http over HTTP/2 waits for ever for 100 that comes behind 103, without a proxy, too.
	expects, hinted := n%4 == 0 && len(body) > 0, n%3 == 0 && n%4 != 0
	early := 0
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, fields textproto.MIMEHeader) error {
		if code == 103 && fields.Get("Link") != "" {
			early++
		}
		return nil
	}}
	target := url + "/echo"
	if hinted {
		target += "?early"
	}
	request, err := http.NewRequestWithContext(httptrace.WithClientTrace(context.Background(), trace), "POST", target, reader)
	check(err, "a request")
	if expects {
		request.Header.Set("Expect", "100-continue")
	}
	if n%2 == 1 {
		request.Trailer = http.Header{"X-Asked": []string{"yes"}}
	}
	response, err := client.Do(request)
	check(err, "a response")
	defer response.Body.Close()
	echoed, err := io.ReadAll(response.Body)
	check(err, "a body")
	digest := sha256.Sum256(body)
	switch {
	case response.StatusCode != 200 || response.ProtoMajor != major:
		fail("%d: %s by %s: %s", n, response.Status, response.Proto, echoed)
	case !bytes.Equal(echoed, body):
		fail("%d: %d bytes came back of %d", n, len(echoed), len(body))
	case response.Trailer.Get("X-Digest") != hex.EncodeToString(digest[:]):
		fail("%d: trailers %v", n, response.Trailer)
	case n%2 == 1 && len(body) > 0 && response.Trailer.Get("X-Asked") != "yes":
		fail("%d: the request's trailers did not come: %v", n, response.Trailer)
	case hinted && early != 1:
		fail("%d: %d times 103", n, early)
	}
}

func talk(url string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	socket, _, err := websocket.Dial(ctx, url, &websocket.DialOptions{Subprotocols: []string{"chat"}})
	check(err, "a handshake")
	if socket.Subprotocol() != "chat" {
		fail("subprotocol %q", socket.Subprotocol())
	}
	socket.SetReadLimit(8 << 20)
	for _, size := range []int{0, 1, 125, 126, 65_536, 4 << 20} {
		sent := bytes.Repeat([]byte{byte(size)}, size)
		go func() { check(socket.Write(ctx, websocket.MessageBinary, sent), "a message") }()
		_, came, err := socket.Read(ctx)
		check(err, "an echo")
		if !bytes.Equal(came, sent) {
			fail("%d bytes came back of %d", len(came), size)
		}
	}
	check(socket.Close(websocket.StatusNormalClosure, "done"), "the end")
	fmt.Println("done")
}

func interoperate(address string) {
	connection, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err, "a channel")
	service := testgrpc.NewTestServiceClient(connection)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	// Each ends the process where something is wrong.
	interop.DoEmptyUnaryCall(ctx, service)
	interop.DoLargeUnaryCall(ctx, service)
	interop.DoClientStreaming(ctx, service)
	interop.DoServerStreaming(ctx, service)
	interop.DoPingPong(ctx, service)
	interop.DoEmptyStream(ctx, service)
	interop.DoTimeoutOnSleepingServer(ctx, service)
	interop.DoCancelAfterBegin(ctx, service)
	interop.DoCancelAfterFirstResponse(ctx, service)
	interop.DoCustomMetadata(ctx, service)
	interop.DoStatusCodeAndMessage(ctx, service)
	interop.DoSpecialStatusMessage(ctx, service)
	interop.DoUnimplementedMethod(ctx, connection)
	interop.DoUnimplementedService(ctx, testgrpc.NewUnimplementedServiceClient(connection))
	fmt.Println("done")
}

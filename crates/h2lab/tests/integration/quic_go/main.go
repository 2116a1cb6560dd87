// A server and a client of HTTP/3 that are not ours: quic-go's, as the peers of h2lab's tests.
//
//	quic_go serve CERTIFICATE KEY      prints "listening ADDRESS", serves until SIGTERM, then ends in order
//	quic_go get CA COUNT BYTES URL     sends COUNT requests, all at once, with bodies of BYTES, and prints what came back
//
// The server answers /bytes/N with N bytes, /echo with what it was sent, /slow after what it was sent has come, and
// /refuse by giving the stream up.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/quic-go/quic-go/http3"
)

func main() {
	var err error
	switch {
	case len(os.Args) == 4 && os.Args[1] == "serve":
		err = serve(os.Args[2], os.Args[3])
	case len(os.Args) == 6 && os.Args[1] == "get":
		err = get(os.Args[2], os.Args[3], os.Args[4], os.Args[5])
	default:
		err = fmt.Errorf("usage: quic_go serve CERTIFICATE KEY | quic_go get CA COUNT BYTES URL")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(certificate, key string) error {
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return err
	}
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http3.Server{
		Handler:   http.HandlerFunc(answer),
		TLSConfig: http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{pair}}),
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	go func() {
		<-stop
		timeout, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		server.Shutdown(timeout)
	}()
	fmt.Println("listening", socket.LocalAddr())
	if err := server.Serve(socket); err != nil && err != http.ErrServerClosed {
		return err
	}
	return nil
}

func answer(w http.ResponseWriter, r *http.Request) {
	if count, found := strings.CutPrefix(r.URL.Path, "/bytes/"); found {
		n, _ := strconv.Atoi(count)
		w.Header().Set("content-length", strconv.Itoa(n))
		io.CopyN(w, zeros{}, int64(n))
		return
	}
	switch r.URL.Path {
	case "/echo":
		io.Copy(w, r.Body)
	case "/slow":
		io.Copy(io.Discard, r.Body)
		time.Sleep(time.Minute)
	case "/refuse":
		panic(http.ErrAbortHandler)
	default:
		http.NotFound(w, r)
	}
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(space []byte) (int, error) {
	clear(space)
	return len(space), nil
}

func get(ca, countText, bytesText, url string) error {
	authority, err := os.ReadFile(ca)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return fmt.Errorf("%s holds no certificate", ca)
	}
	count, err := strconv.Atoi(countText)
	if err != nil {
		return err
	}
	size, err := strconv.Atoi(bytesText)
	if err != nil {
		return err
	}
	transport := &http3.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.Close()
	client := http.Client{Transport: transport}
	var all sync.WaitGroup
	answers := make(chan string, count)
	for range count {
		all.Go(func() { answers <- one(&client, url, size) })
	}
	all.Wait()
	close(answers)
	for line := range answers {
		fmt.Println(line)
	}
	return nil
}

// one sends a request, with a body if it is to have one, and tells status, protocol and length of the answer, and whether
// that is what was sent.
func one(client *http.Client, url string, size int) string {
	var body io.Reader
	method, sent := http.MethodGet, bytes.Repeat([]byte("quic"), size/4)
	if size > 0 {
		method, body = http.MethodPost, bytes.NewReader(sent)
	}
	request, err := http.NewRequest(method, url, body)
	if err != nil {
		return err.Error()
	}
	response, err := client.Do(request)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	received, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %s %d same=%t", response.StatusCode, response.Proto, len(received), bytes.Equal(sent, received))
}

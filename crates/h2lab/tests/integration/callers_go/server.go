package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
)

// What a browser opens: it asks, talks, and reports what came out, which is printed.
const page = `<!doctype html><title>a page</title><script>
const body = 'abc'.repeat(60000), seen = [];
const ask = async n => {
  const answer = await fetch('/echo?' + n, { method: 'POST', body });
  if (await answer.text() !== body) throw new Error('the body of ' + n);
};
const talk = () => new Promise((done, fail) => {
  const socket = new WebSocket(location.origin.replace('http', 'ws') + '/ws');
  socket.onopen = () => socket.send(body);
  socket.onerror = () => fail(new Error('the WebSocket'));
  socket.onmessage = event => event.data === body ? done(socket.close()) : fail(new Error('the echo'));
});
Promise.all([...Array(20).keys()].map(ask)).then(talk)
  .then(() => 'done ' + performance.getEntriesByType('navigation')[0].nextHopProtocol)
  .catch(error => 'failed: ' + error.message)
  .then(outcome => fetch('/outcome', { method: 'POST', body: location.search + ' ' + outcome }));
</script>`

func echo(w http.ResponseWriter, r *http.Request) {
	digest := sha256.New()
	w.Header().Set("Trailer", "X-Digest")
	if r.URL.Query().Has("early") {
		w.Header().Set("Link", "</style.css>; rel=preload; as=style")
		w.WriteHeader(http.StatusEarlyHints)
	}
	controller := http.NewResponseController(w)
	_ = controller.EnableFullDuplex()
	piece := make([]byte, 16*1024)
	for {
		n, err := r.Body.Read(piece)
		digest.Write(piece[:n])
		if _, failed := w.Write(piece[:n]); failed != nil {
			return
		}
		_ = controller.Flush()
		if err == io.EOF {
			break
		} else if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
	w.Header().Set("X-Digest", hex.EncodeToString(digest.Sum(nil)))
	w.Header().Set(http.TrailerPrefix+"X-Asked", r.Trailer.Get("X-Asked"))
}

func converse(w http.ResponseWriter, r *http.Request) {
	socket, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true, Subprotocols: []string{"chat"}})
	if err != nil {
		return
	}
	defer socket.CloseNow()
	socket.SetReadLimit(8 << 20)
	for {
		kind, message, err := socket.Read(r.Context())
		if err != nil || socket.Write(r.Context(), kind, message) != nil {
			return
		}
	}
}

func listen(what string) net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err, what)
	fmt.Println(what, listener.Addr())
	return listener
}

func serve() {
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", echo)
	mux.HandleFunc("/ws", converse)
	mux.HandleFunc("/page", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, page)
	})
	mux.HandleFunc("/outcome", func(_ http.ResponseWriter, r *http.Request) {
		outcome, _ := io.ReadAll(r.Body)
		fmt.Printf("page %s\n", outcome)
	})
	mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-time.After(time.Minute):
		}
	})
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: mux, Protocols: protocols}
	go func() { check(server.Serve(listen("http")), "http") }()
	service := grpc.NewServer()
	testgrpc.RegisterTestServiceServer(service, interop.NewTestServer())
	check(service.Serve(listen("grpc")), "grpc")
}

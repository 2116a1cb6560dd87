package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/coder/websocket"
)

func instance(address, ledger string) {
	file, err := os.OpenFile(ledger, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	check(err, "the ledger")
	mux := http.NewServeMux()
	mux.HandleFunc("/do", func(w http.ResponseWriter, r *http.Request) { do(w, r, file) })
	mux.HandleFunc("/ws", echo)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Addr: address, Handler: mux, Protocols: protocols}
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	drained := make(chan struct{})
	go func() {
		<-terminated
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = server.Shutdown(ctx)
		close(drained)
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		fail("%v", err)
	}
	<-drained
}

// Answers with as much as is asked for, and with the digest of what came behind it.
func do(w http.ResponseWriter, r *http.Request, ledger *os.File) {
	query := r.URL.Query()
	number, _ := strconv.Atoi(query.Get("n"))
	size, _ := strconv.Atoi(query.Get("size"))
	if r.Method == "POST" {
		// One write: lines of several requests do not mix.
		_, _ = fmt.Fprintf(ledger, "%d\n", number)
	}
	if query.Has("early") {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
	}
	digest := sha256.New()
	if _, err := io.Copy(digest, r.Body); err != nil {
		panic(http.ErrAbortHandler)
	}
	if query.Has("wait") {
		select {
		case <-r.Context().Done():
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
	w.Header().Set("X-Number", query.Get("n"))
	w.Header().Set("Trailer", "X-Digest")
	if query.Has("length") {
		// HTTP/1.1 has no trailers behind a length.
		w.Header().Del("Trailer")
		w.Header().Set("Content-Length", strconv.Itoa(size))
		w.Header().Set("X-Digest", hex.EncodeToString(digest.Sum(nil)))
	}
	answer := body(number, 1, size)
	for len(answer) > 0 {
		piece := answer[:min(len(answer), 64*1024)]
		if _, err := w.Write(piece); err != nil {
			return
		}
		answer = answer[len(piece):]
	}
	if !query.Has("length") {
		w.Header().Set("X-Digest", hex.EncodeToString(digest.Sum(nil)))
	}
}

func echo(w http.ResponseWriter, r *http.Request) {
	socket, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer socket.CloseNow()
	socket.SetReadLimit(1 << 20)
	for {
		kind, message, err := socket.Read(r.Context())
		if err != nil || socket.Write(r.Context(), kind, message) != nil {
			return
		}
	}
}

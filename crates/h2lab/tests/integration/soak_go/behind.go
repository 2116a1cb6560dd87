package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A program that dies with this one, and is ready when its socket is.
func start(name string, arguments ...string) *exec.Cmd {
	command := exec.Command(name, arguments...)
	command.Stderr = os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	check(command.Start(), name)
	return command
}

func ready(address string) {
	for {
		if connection, err := net.Dial("tcp", address); err == nil {
			connection.Close()
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// A sidecar that reads its file again at SIGHUP, and whose successors take its listener over.
type sidecar struct {
	h2lab, file, socket string
	command             *exec.Cmd
	// Of its listener.
	address string
	// Those that a successor has replaced, until they have ended.
	replaced sync.WaitGroup
}

func newSidecar(h2lab, folder, name, config string) *sidecar {
	s := &sidecar{h2lab: h2lab, file: filepath.Join(folder, name+".toml"), socket: filepath.Join(folder, name+".sock")}
	check(os.WriteFile(s.file, []byte(config), 0o600), s.file)
	s.start()
	return s
}

// Starts a process; it is ready when it says where it listens.
func (s *sidecar) start() {
	command := exec.Command(s.h2lab, "sidecar", "--config", s.file, "--take-over", s.socket)
	command.Stderr = os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	pipe, err := command.StdoutPipe()
	check(err, "a pipe")
	check(command.Start(), s.h2lab)
	lines := bufio.NewReader(pipe)
	line, err := lines.ReadString('\n')
	check(err, "the sidecar listens")
	go func() { _, _ = io.Copy(os.Stderr, lines) }()
	s.command, s.address = command, strings.TrimSpace(strings.TrimPrefix(line, "listening http://"))
}

func (s *sidecar) reload() {
	check(s.command.Process.Signal(syscall.SIGHUP), "a signal")
}

// Another process takes its listener over, and it ends by itself.
func (s *sidecar) handOver() {
	before, address := s.command, s.address
	s.start()
	if s.address != address {
		fail("the successor listens at %s instead of %s", s.address, address)
	}
	s.replaced.Go(func() { check(before.Wait(), "the replaced sidecar ends in order") })
}

func (s *sidecar) stop() {
	check(s.command.Process.Signal(syscall.SIGTERM), "a signal")
	check(s.command.Wait(), "the sidecar ends in order")
	s.replaced.Wait()
}

type disturbed struct {
	command *exec.Cmd
	speaks  string
	address string
	ledger  string
}

func (d *disturbed) start() {
	self, err := os.Executable()
	check(err, "this program")
	d.command = start(self, "instance", d.address, d.ledger)
	ready(d.address)
}

func behind(h2lab, address, folder string, port int) {
	note, err := os.OpenFile(filepath.Join(folder, "disturbed"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	check(err, "the notes")
	// One speaks HTTP/1.1 and one HTTP/2.
	instances := []*disturbed{
		{speaks: "http", address: fmt.Sprintf("127.0.0.1:%d", port), ledger: filepath.Join(folder, "ledger-1")},
		{speaks: "h2c", address: fmt.Sprintf("127.0.0.1:%d", port+1), ledger: filepath.Join(folder, "ledger-2")},
	}
	for _, instance := range instances {
		instance.start()
	}
	ingress := newSidecar(h2lab, folder, "ingress", fmt.Sprintf(
		"[[listen]]\naddress = %q\nservice = \"a\"\nroute = [{ path = \"/ws\", service = \"sockets\" }]\n"+
			"[service.a]\ninstances = [\"http://%s\", \"h2c://%s\"]\n"+
			// Go's server takes no WebSocket over HTTP/2.
			"[service.sockets]\ninstances = [\"http://%s\"]\n",
		address, instances[0].address, instances[1].address, instances[0].address))
	over := make(chan os.Signal, 1)
	signal.Notify(over, syscall.SIGTERM, syscall.SIGINT)
	ticks := time.NewTicker(4 * time.Second)
	for turn := 0; ; turn++ {
		select {
		case <-over:
			ingress.stop()
			return
		case <-ticks.C:
		}
		kinds := []string{"KILL", "RELOAD", "STOP", "HANDOVER", "TERM"}
		kind, instance := kinds[turn%len(kinds)], instances[turn/len(kinds)%2]
		begun, of := time.Now(), instance.speaks
		// When it had nothing under way any more that it had before.
		var gone time.Time
		switch kind {
		case "RELOAD":
			of = "ingress"
			ingress.reload()
		case "HANDOVER":
			of = "ingress"
			ingress.handOver()
		case "STOP":
			check(instance.command.Process.Signal(syscall.SIGSTOP), "a signal")
			time.Sleep(2 * time.Second)
			check(instance.command.Process.Signal(syscall.SIGCONT), "a signal")
		case "KILL":
			check(instance.command.Process.Kill(), "a signal")
			_ = instance.command.Wait()
			gone = time.Now()
			time.Sleep(300 * time.Millisecond)
			instance.start()
		case "TERM":
			check(instance.command.Process.Signal(syscall.SIGTERM), "a signal")
			_ = instance.command.Wait()
			gone = time.Now()
			instance.start()
		}
		over := time.Now()
		if gone.IsZero() {
			gone = over
		}
		fmt.Fprintf(note, "%s %s %d %d %d\n", kind, of, begun.UnixMilli(), gone.UnixMilli(), over.UnixMilli())
	}
}

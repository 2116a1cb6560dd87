// A soak of a pair of sidecars: mixed requests, whose instances are killed, stopped and restarted meanwhile.
//
//	instance ADDRESS LEDGER      a server; it writes the number of every POST that it begins to the ledger
//	behind H2LAB ADDRESS FOLDER PORT  two instances, at PORT and the next one, and a sidecar before them at ADDRESS; each instance in turn
//	                             is killed, stopped for two seconds, ended in order and started again, until SIGTERM; in between
//	                             the sidecar reads its file again, or another process takes its listener over
//	callers H2LAB ADDRESS FOLDER N TIME  a sidecar that leads to ADDRESS, N requests through it in TIME (0: as many as there are in
//	                             TIME and until all has happened that was promised), and the verdict; the sidecar is reloaded and
//	                             replaced, too
//
// What both ends must agree on lies in FOLDER: the ledgers, and when an instance was disturbed.
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

func main() {
	wanted := map[string]int{"instance": 4, "behind": 6, "callers": 7}
	if len(os.Args) < 2 || len(os.Args) != wanted[os.Args[1]] {
		fail("usage: instance ADDRESS LEDGER | behind H2LAB ADDRESS FOLDER PORT | callers H2LAB ADDRESS FOLDER N TIME")
	}
	switch os.Args[1] {
	case "instance":
		instance(os.Args[2], os.Args[3])
	case "behind":
		port, err := strconv.Atoi(os.Args[5])
		check(err, "a port")
		behind(os.Args[2], os.Args[3], os.Args[4], port)
	case "callers":
		n, err := strconv.Atoi(os.Args[5])
		check(err, "a number")
		most, err := time.ParseDuration(os.Args[6])
		check(err, "a time")
		callers(os.Args[2], os.Args[3], os.Args[4], n, most)
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

// The body of a message: so many bytes that nothing else has.
func body(number, salt, size int) []byte {
	bytes := make([]byte, size)
	state := uint32(number)*2_654_435_761 + uint32(salt)
	for n := range bytes {
		state = state*1_664_525 + 1_013_904_223
		bytes[n] = byte(state >> 24)
	}
	return bytes
}

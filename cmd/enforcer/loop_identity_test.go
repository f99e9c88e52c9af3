package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/openrlc/rlc/enforcer/loopstate"
	"github.com/openrlc/rlc/internal/mtls/mtlstest"
)

// Only listed certificates are a zone, under their own names, and an enforcer's
// certificate is none of them.
func TestOnlyListedCertificatesAttendAndJoin(t *testing.T) {
	dir, config := t.TempDir(), t.TempDir()
	writePolicy(t, config, 200)
	ca := mtlstest.New(t)
	authority := mtlstest.Write(t, dir, "ca", ca.PEM)
	as := func(name string) (flags []string) {
		cert, key := ca.Issue(t, name, time.Now().Add(time.Hour))
		return []string{"--tls-cert", mtlstest.Write(t, dir, name+".crt", cert), "--tls-key", mtlstest.Write(t, dir, name+".key", key)}
	}
	zones := filepath.Join(dir, "zones")
	list := func(file string, names ...string) {
		if err := os.WriteFile(file, []byte(strings.Join(names, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list(zones, "zone")
	nodes := filepath.Join(dir, "nodes")
	list(nodes, "node")

	controller := begin(t, control, append(as("controller"), "--ca", authority, "--clients", zones,
		"--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--config-dir", config, "--state", t.TempDir())...)
	attend := func(cert, name string) *begun {
		return begin(t, aggregate, append(as(cert), "--ca", authority, "--clients", nodes, "--name", name,
			"--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--zone", "z", "--controller", controller.address(t, "grpcs"))...)
	}
	known := func() (names []string) {
		var s loopstate.State
		if err := json.Unmarshal([]byte(get(t, "http://"+controller.address(t, "http")+"/v1/loop")), &s); err != nil {
			t.Fatal(err)
		}
		for _, z := range s.Zones {
			names = append(names, z.Name)
		}
		return names
	}
	own, stranger := attend("zone", "a"), attend("service", "b")
	within(t, "the listed one attends", func() bool { return len(known()) == 1 && known()[0] == "zone/a" })
	within(t, "the other one is turned away", func() bool { return strings.Contains(controller.log.String(), "not listed") })

	join := func(cert string) *begun {
		return begin(t, serve, append(as(cert), "--grpc", "off", "--http", "127.0.0.1:0", "--name", "e", "--zone", "z",
			"--aggregator", own.address(t, "grpcs"), "--aggregator-ca", authority)...)
	}
	join("node")
	within(t, "an enforcer of the list joins", func() bool {
		return strings.Contains(get(t, "http://"+controller.address(t, "http")+"/metrics"), `rlc_loop_enforcers{version="0.1"} 1`)
	})
	join("service")
	within(t, "another is turned away", func() bool { return strings.Contains(own.log.String(), "not listed") })

	list(zones, "zone", "service")
	within(t, "once it is listed it attends", func() bool { return len(known()) == 2 })
	stranger.end()
}

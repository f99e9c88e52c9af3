package web_test

import (
	"cmp"
	"net"
	"os"
	"testing"

	"github.com/openrlc/rlc/web"
)

// TestView serves the fixture for looking at it in a browser, in one of the
// worlds that worlds_test.go lists (calm):
//
//	RLC_WEB_VIEW=127.0.0.1:8090 RLC_WEB_WORLD=trouble go test ./web -run TestView -timeout 0
//
// Without the variable it checks that the fixture's server starts and ends.
func TestView(t *testing.T) {
	addr := os.Getenv("RLC_WEB_VIEW")
	look := addr != ""
	if !look {
		addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	world := worlds[cmp.Or(os.Getenv("RLC_WEB_WORLD"), "calm")]
	if world == nil {
		t.Fatal("there is no such world")
	}
	server := web.Server(world(t))
	if look {
		t.Logf("http://%s, token %s", l.Addr(), token)
		t.Log(server.Serve(l))
		return
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	<-done
}

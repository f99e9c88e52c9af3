package porttest

import (
	"net"
	"testing"
)

func TestAPortIsOneTestsAlone(t *testing.T) {
	seen := map[string]bool{}
	for range 200 {
		addr := Free(t)
		if seen[addr] {
			t.Fatalf("%s twice", addr)
		}
		seen[addr] = true
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := take(t, port); ok {
			t.Fatalf("%s is held twice", addr)
		}
	}
}

func TestAPortThatIsTakenIsNotGiven(t *testing.T) {
	var port string
	t.Run("given back", func(t *testing.T) { _, port, _ = net.SplitHostPort(Free(t)) })
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	if addr, ok := take(t, port); ok {
		t.Errorf("%s, where somebody listens", addr)
	}
	l.Close()
	if _, ok := take(t, port); !ok {
		t.Errorf("%s is free and was not given", port)
	}
}

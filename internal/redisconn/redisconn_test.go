package redisconn

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/internal/distribute/redistest"
)

// The library looks once more for a cluster up to a second after a connection
// of its own ended; that goroutine ends by itself.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}

func TestAURLIsReadStrictlyAndNeverRepeated(t *testing.T) {
	for _, raw := range []string{
		"", "http://u:hunter2@h:1", "redis://u:hunter2@", "redis://u:hunter2@h:99999", "redis://u:hunter2@h:1/x",
		"redis://u:hunter2@h:1/-1", "redis://u:hunter2@h:1/0?skip_verify=true", "redis://u:hunter2%@h:1",
		"redis://u:hunter2 @h:1", "redis:u:hunter2@h:1", "redis://u:hunter2@h:1#x",
		"redis://u:hunter2@a:1,b:2/1", "redis://u:hunter2@a:1,", "redis://u:hunter2@a:1,b:0", "redis://u:hunter2@a:1,b:2?x=1",
		"redis://u:hunter2@a:1,hunter2/b:2",
	} {
		if _, err := New(Config{URL: raw}); !errors.Is(err, rlc.ErrInvalid) || strings.Contains(err.Error(), "hunter") {
			t.Errorf("%s: %v", raw, err)
		}
	}
	for raw, want := range map[string]server{
		"redis://h":                    {addrs: []string{"h:6379"}, host: "h"},
		"rediss://[::1]:7/3":           {addrs: []string{"[::1]:7"}, host: "::1", tls: true, database: 3},
		"redis://u:p%40%2Fw@h:1/":      {addrs: []string{"h:1"}, host: "h", user: "u", password: "p@/w"},
		"redis://u:a,b@h:1,i,[::1]:2":  {addrs: []string{"h:1", "i:6379", "[::1]:2"}, host: "h", user: "u", password: "a,b"},
		"rediss://10.0.0.1,10.0.0.2/0": {addrs: []string{"10.0.0.1:6379", "10.0.0.2:6379"}, host: "10.0.0.1", tls: true},
	} {
		if got, err := parse(raw); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v %v", raw, got, err)
		}
	}
}

func TestAPasswordFileIsReadAtEachConnection(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "first")
	file := filepath.Join(t.TempDir(), "password")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(" \n")
	config := Config{URL: server.URL(), PasswordFile: file, DialTimeout: 5 * time.Second, Silence: 5 * time.Second}
	if _, err := New(config); !errors.Is(err, rlc.ErrInvalid) {
		t.Errorf("an empty file: %v", err)
	}
	write("wrong")
	c, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Client(t.Context()); err == nil || strings.Contains(err.Error(), "wrong\"") || c.Turns() == 0 {
		t.Errorf("%v after %d turns", err, c.Turns())
	}
	write("first\n")
	client, err := c.Client(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := c.Turns()
	c.Drop()
	ask := func() error { return client.Do(t.Context(), client.B().Ping().Build()).Error() }
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ask() != nil {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("no connection after Drop")
		}
	}
	if c.Turns() < before+2 {
		t.Error("Drop kept the connection")
	}
}

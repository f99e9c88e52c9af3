package accesslog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/openrlc/rlc"
	"github.com/openrlc/rlc/enforcer"
)

var noon = time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)

// written is what a log of c writes of these decisions.
func written(t *testing.T, c Config, decide func(*Log)) []string {
	t.Helper()
	var out bytes.Buffer
	c.Out = &out
	if c.Reveal == nil {
		c.Reveal = func(_ string, a rlc.Attributes) rlc.Attributes { return a }
	}
	if c.Now == nil {
		c.Now = func() time.Time { return noon }
	}
	l, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	decide(l)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := l.Run(ended); err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

var request = enforcer.Request{Service: "s", Attributes: rlc.Attributes{"caller": "a", "procedure": "Get"}, Cost: 3}

func decided(o enforcer.Outcome, bucket string) enforcer.Decision {
	return enforcer.Decision{Outcome: o, Bucket: bucket, Key: rlc.Key{"caller": "a"}, Version: rlc.Version{Epoch: 1, Number: 7}}
}

func TestALineSaysWhatWasDecided(t *testing.T) {
	hide := func(service string, a rlc.Attributes) rlc.Attributes {
		return rlc.Attributes{"caller": "~1234", "procedure": a["procedure"]}
	}
	got := written(t, Config{Reveal: hide}, func(l *Log) { l.Decided("gateway", request, decided(enforcer.Drop, "callers")) })
	want := `{"time":"2026-11-02T12:00:00.000Z","service":"s","bucket":"callers","key":{"caller":"a"},"outcome":"drop","attributes":{"caller":"~1234","procedure":"Get"},"cost":3,"peer":"gateway","snapshot":"1.7","sampled":false}`
	if len(got) != 1 || got[0] != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestRefusalsAndTheUnmatchedAreWrittenAndTheRestIsAShare(t *testing.T) {
	all := func(l *Log) {
		l.Decided("", request, decided(enforcer.Admit, "callers"))
		l.Decided("", request, decided(enforcer.Drop, "callers"))
		l.Decided("", request, decided(enforcer.VirtualDrop, "callers"))
		l.Decided("", request, decided(enforcer.Admit, enforcer.Unmatched))
		look := request
		look.Peek = true
		l.Decided("", look, decided(enforcer.Drop, "callers"))
	}
	outcomes := func(lines []string) string {
		var out []string
		for _, text := range lines {
			var v line
			if err := json.Unmarshal([]byte(text), &v); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			out = append(out, string(v.Outcome)+" "+v.Bucket)
		}
		return strings.Join(out, ", ")
	}
	if got := outcomes(written(t, Config{}, all)); got != "drop callers, virtual_drop callers, admit __unmatched__" {
		t.Errorf("share 0: %s", got)
	}
	if got := outcomes(written(t, Config{Share: 1}, all)); got != "admit callers, drop callers, virtual_drop callers, admit __unmatched__" {
		t.Errorf("share 1: %s", got)
	}
	half := written(t, Config{Share: 0.5, Now: func() time.Time { return noon }}, func(l *Log) {
		for range 1000 {
			l.Decided("", request, decided(enforcer.Admit, "callers"))
		}
	})
	// 1,000 draws at 0.5: 500 with a standard deviation of 16; six of them.
	if n := len(half); n < 405 || n > 595 {
		t.Errorf("share 0.5: %d of 1000", n)
	}
}

func TestASecondHasRoomForSoManyRefusals(t *testing.T) {
	now := noon
	got := written(t, Config{Most: 10, Now: func() time.Time { return now }}, func(l *Log) {
		for range 2 {
			for range 500 {
				l.Decided("", request, decided(enforcer.Drop, "callers"))
			}
			l.Decided("", request, decided(enforcer.Admit, enforcer.Unmatched)) // has its own room
			now = now.Add(time.Second)
		}
	})
	if n := len(got); n != 2*11+1 || got[n-1] != `{"time":"2026-11-02T12:00:02.000Z","left_out":980}` {
		t.Errorf("%d lines, the last %s", n, got[n-1])
	}
}

// stopped is an output that takes nothing until it is let go.
type stopped struct{ let chan struct{} }

func (s stopped) Write(b []byte) (int, error) {
	<-s.let
	return len(b), nil
}

func TestASlowDiskHoldsUpNoDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let := make(chan struct{})
		l, err := New(Config{Out: stopped{let}, Share: 1, Reveal: func(_ string, a rlc.Attributes) rlc.Attributes { return a }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		for range 3 * queue {
			l.Decided("", request, decided(enforcer.Admit, "callers")) // a held one would end the bubble
		}
		if l.left.Load() < queue {
			t.Errorf("%d lines left out", l.left.Load())
		}
		close(let)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestHostileValuesStayOneShortLine(t *testing.T) {
	r := enforcer.Request{Service: "s", Attributes: rlc.Attributes{"caller": "a\r\n{\"outcome\":\"admit\"}\x00\xff" + strings.Repeat("x", 64<<10)}}
	d := decided(enforcer.Drop, "callers")
	d.Key = rlc.Key{"caller": r.Attributes["caller"]}
	got := written(t, Config{}, func(l *Log) { l.Decided("", r, d) })
	var v line
	if len(got) != 1 || len(got[0]) > 1500 || json.Unmarshal([]byte(got[0]), &v) != nil || v.Outcome != enforcer.Drop {
		t.Errorf("%d lines: %.300q", len(got), got)
	}
}

func TestAFileThatIsMovedAwayIsOpenedAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { f.Close() }()
	put := func(text string) {
		f.looked = time.Time{}
		if _, err := f.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	put("one\n")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	put("two\n")
	put("three\n")
	old, _ := os.ReadFile(path + ".1")
	next, _ := os.ReadFile(path)
	if string(old) != "one\n" || string(next) != "two\nthree\n" {
		t.Errorf("moved %q, there %q", old, next)
	}
}

func TestWhatCannotBeALogIsRefused(t *testing.T) {
	reveal := func(_ string, a rlc.Attributes) rlc.Attributes { return a }
	for _, c := range []Config{{}, {Out: os.Stderr}, {Out: os.Stderr, Reveal: reveal, Share: 1.5}, {Out: os.Stderr, Reveal: reveal, Share: math.NaN()}, {Out: os.Stderr, Reveal: reveal, Most: -1}} {
		if _, err := New(c); !errors.Is(err, rlc.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := Open("/no/such/folder/access.log"); err == nil {
		t.Error("opened what cannot be")
	}
}

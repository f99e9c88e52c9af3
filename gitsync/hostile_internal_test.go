package gitsync

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/openrlc/rlc"
)

// tiny writes a pack that says to hold claimed blobs and holds so many, each of
// four bytes and another one than the others: some 20 bytes in the pack. In a
// chain each is a delta of the one before.
func tiny(out io.Writer, claimed, objects uint32, chain bool) error {
	sum := sha1.New()
	w := bufio.NewWriter(io.MultiWriter(out, sum))
	_, _ = w.WriteString("PACK\x00\x00\x00\x02")
	_ = binary.Write(w, binary.BigEndian, claimed)
	var deflated bytes.Buffer
	z, err := zlib.NewWriterLevel(&deflated, zlib.NoCompression)
	if err != nil {
		return err
	}
	for last, n := 0, uint32(0); n < objects; n++ {
		deflated.Reset()
		z.Reset(&deflated)
		data := binary.BigEndian.AppendUint32(nil, n)
		head := []byte{3<<4 | 4} // a blob of four bytes
		if chain && n > 0 {
			data = append([]byte{4, 4, 4}, data...) // of four bytes make four: insert four
			head = []byte{6<<4 | 7, byte(last)}     // a delta of what begins last bytes before
		}
		_, _ = z.Write(data)
		_ = z.Close()
		_, _ = w.Write(head)
		_, _ = w.Write(deflated.Bytes())
		last = len(head) + deflated.Len()
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err = out.Write(sum.Sum(nil))
	return err
}

// BenchmarkHostilePack receives a pack of as many objects as are accepted, and
// prints the most memory that this process had meanwhile.
func BenchmarkHostilePack(b *testing.B) {
	objects := 1_000_000
	if n, err := strconv.Atoi(os.Getenv("RLC_BENCH_OBJECTS")); err == nil {
		objects = n
	}
	file, err := os.Create(b.TempDir() + "/pack")
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	if err := tiny(file, uint32(objects), uint32(objects), os.Getenv("RLC_BENCH_CHAIN") != ""); err != nil {
		b.Fatal(err)
	}
	size, _ := file.Seek(0, io.SeekCurrent)
	for b.Loop() {
		f, err := openRemote(Config{URL: "https://example.org/x", Dir: b.TempDir(), Branch: "main"})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := f.mirror(); err != nil {
			b.Fatal(err)
		}
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			b.Fatal(err)
		}
		debug.FreeOSMemory()
		before := resident("VmRSS")
		_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // resets VmHWM
		err = receive(f.dir, file, 256<<20, objects)
		b.ReportMetric(resident("VmHWM")-before, "peak-MiB")
		b.ReportMetric(float64(size)/(1<<20), "pack-MiB")
		if err != nil {
			b.Log(err)
		}
	}
}

// resident is a line of /proc/self/status in MiB.
func resident(name string) float64 {
	data, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			kB, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kB / 1024
		}
	}
	return 0
}

// D10: what a pack says to hold is believed before it is looked at: too many are
// refused by the header alone, and one that holds more than it says is broken.
func TestAPackOfTooManyObjectsIsRefusedByItsHeader(t *testing.T) {
	for _, c := range []struct {
		claimed, holds uint32
		chain          bool
		want           string
	}{
		{200, 200, false, ""},
		{200, 200, true, ""},
		{201, 0, false, "201 objects, limit 200"},
		{1 << 31, 201, false, "2147483648 objects, limit 200"},
		{100, 200, false, "broken"},
	} {
		var pack bytes.Buffer
		if err := tiny(&pack, c.claimed, c.holds, c.chain); err != nil {
			t.Fatal(err)
		}
		f := newTestRemote(t, "https://example.org/x", Config{FetchObjects: 200})
		err := receive(f.dir, &pack, f.cfg.FetchBytes, f.cfg.FetchObjects)
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, rlc.ErrInvalid) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%d objects said, %d held, in a chain %t: %v, want %q", c.claimed, c.holds, c.chain, err, c.want)
		}
	}
}

// D10: a server that sends without end is listened to up to the limit, and is
// left alone for a while.
func TestAServerThatSendsWithoutEndIsHungUpOn(t *testing.T) {
	var sent atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/info/refs") {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			line := strings.Repeat("5", 40) + " refs/heads/main\x00ofs-delta\n"
			fmt.Fprintf(w, "001e# service=git-upload-pack\n0000%04x%s0000", len(line)+4, line)
			return
		}
		w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
		_, _ = io.WriteString(w, "0008NAK\nPACK\x00\x00\x00\x02\x00\x00\x00\x01")
		for block := make([]byte, 64<<10); sent.Load() < 2<<30; {
			n, err := w.Write(block)
			if sent.Add(int64(n)); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	const limit = 1 << 20
	f := newTestRemote(t, server.URL+"/x.git", Config{FetchBytes: limit})
	if err := f.follow(t.Context()); !errors.Is(err, rlc.ErrInvalid) || !strings.Contains(err.Error(), "too large") && !strings.Contains(err.Error(), "more than") {
		t.Errorf("%v, want it to say that the pack is too large", err)
	}
	server.CloseClientConnections()
	if n := sent.Load(); n > limit+32<<20 { // what lay in buffers between the two
		t.Errorf("%d bytes were taken, limit %d", n, limit)
	}
	if p := f.pause[fetching]; p == nil || p.wait != patience {
		t.Errorf("the server is asked again after %+v, want after %s", p, patience)
	}
	if left, _ := filepath.Glob(filepath.Join(f.dir, "*.tmp")); left != nil {
		t.Errorf("left behind: %v", left)
	}
}

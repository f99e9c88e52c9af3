//go:build linux

package loopwire

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/openrlc/rlc/enforcer/loop"
	pb "github.com/openrlc/rlc/enforcer/loopwire/looppb"
)

// rawNodes are the nodes of a measurement, each with a connection of its own on
// which it reports every bucket each second. One loop serves them all without
// gRPC, a millisecond's worth at a time, so that a machine that can carry their
// aggregator can carry them, too.
type rawNodes struct {
	size   treeSize
	to     syscall.SockaddrInet4
	began  time.Time
	epoll  int
	nodes  map[int32]*rawNode // by file descriptor
	order  []*rawNode
	index  map[uint32]int // which bucket a number stands for, on all streams
	buffer []byte         // for what is read
	out    []byte         // for what is written
	list   []uint64
}

// rawNode is offered perSecond requests per bucket and second, as chance has it,
// and drops what it is told.
type rawNode struct {
	fd               int
	seq              uint64
	due              time.Duration // of the next report
	at               time.Duration // of the last one
	rest             []byte        // read, and no whole frame yet
	offered, dropped []uint64
	keep, kept       []float64     // of each bucket: now, and summed over the seconds since the last report
	since            time.Duration // since when keep is in force
}

const (
	perSecond = 10
	rampUp    = 2 * time.Millisecond // between two that come
	pace      = time.Millisecond
)

func newRawNodes(address string, size treeSize) (*rawNodes, error) {
	a, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		return nil, err
	}
	epoll, err := syscall.EpollCreate1(0)
	if err != nil {
		return nil, err
	}
	return &rawNodes{size: size, to: syscall.SockaddrInet4{Port: a.Port, Addr: [4]byte(a.IP.To4())}, began: time.Now(), epoll: epoll,
		nodes: map[int32]*rawNode{}, index: map[uint32]int{}, buffer: make([]byte, 256<<10)}, nil
}

// run serves the nodes until done is closed.
func (f *rawNodes) run(done <-chan struct{}) error {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	events := make([]syscall.EpollEvent, 1024)
	next := 0 // whose report is due next
	for {
		select {
		case <-tick.C:
		case <-done:
			return nil
		}
		now := time.Since(f.began)
		for more := true; more; {
			n, err := syscall.EpollWait(f.epoll, events, 0)
			if err != nil && err != syscall.EINTR {
				return err
			}
			for _, e := range events[:max(n, 0)] {
				if err := f.read(f.nodes[e.Fd], now); err != nil {
					return err
				}
			}
			more = n == len(events)
		}
		if len(f.order) < f.size.nodes && now >= rampUp*time.Duration(len(f.order)) {
			if err := f.join(now); err != nil {
				return fmt.Errorf("join: %w", err)
			}
		}
		for ; len(f.order) > 0 && f.order[next].due <= now; next = (next + 1) % len(f.order) {
			if err := f.report(f.order[next], now); err != nil {
				return fmt.Errorf("report: %w", err)
			}
		}
	}
}

// The frames of HTTP/2 (RFC 9113, 6) that a gRPC stream needs.
const (
	frameData, frameHeaders, frameSettings, framePing, frameWindow = 0, 1, 4, 6, 8

	endHeaders, ack = 4, 1
	http2Preface    = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	frameHead       = 9
	messageHead     = 5 // of gRPC
)

func appendFrame(to []byte, kind, flags byte, stream uint32, payload []byte) []byte {
	n := len(payload)
	to = append(to, byte(n>>16), byte(n>>8), byte(n), kind, flags)
	return append(binary.BigEndian.AppendUint32(to, stream), payload...)
}

// join opens a node's stream and sends its first report.
func (f *rawNodes) join(now time.Duration) error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := syscall.Connect(fd, &f.to); err != nil {
		return err
	}
	if err := syscall.SetNonblock(fd, true); err != nil {
		return err
	}
	if err := syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1); err != nil {
		return err
	}
	if err := syscall.EpollCtl(f.epoll, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)}); err != nil {
		return err
	}
	var headers []byte
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", pb.Aggregator_Join_FullMethodName}, {":authority", "aggregator"},
		{"content-type", "application/grpc"}, {"te", "trailers"}} {
		headers = append(append(headers, 0, byte(len(h[0]))), h[0]...) // literal, not indexed
		headers = append(append(headers, byte(len(h[1]))), h[1]...)
	}
	const much = 1 << 30 // so that nothing has to be said about windows any more
	begin := appendFrame([]byte(http2Preface), frameSettings, 0, 0, binary.BigEndian.AppendUint32([]byte{0, 4}, much))
	begin = appendFrame(begin, frameWindow, 0, 0, binary.BigEndian.AppendUint32(nil, much))
	f.out = appendFrame(begin, frameHeaders, endHeaders, 1, headers)

	b := f.size.buckets
	n := &rawNode{fd: fd, due: now + time.Second, at: now, since: now, seq: 1,
		offered: make([]uint64, b), dropped: make([]uint64, b), keep: make([]float64, b), kept: make([]float64, b)}
	r := loop.Report{Seq: 1, At: now}
	for i := range b {
		n.keep[i] = 1
		r.Paths = append(r.Paths, loop.PathReport{Path: loop.Path{bucketName(i)}, Since: time.Second, Dropped: []uint64{0}})
	}
	w := newWriter()
	report := encodeReport(w, r)
	names, err := w.take()
	if err != nil {
		return err
	}
	first, err := proto.Marshal(&pb.NodeUp{Hello: &pb.NodeHello{Node: strconv.Itoa(len(f.order)), Incarnation: 1}})
	if err != nil {
		return err
	}
	second, err := proto.Marshal(&pb.NodeUp{Names: names, Report: report})
	if err != nil {
		return err
	}
	for _, m := range [][]byte{first, second} {
		f.out = appendFrame(f.out, frameData, 0, 1, append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(m))), m...))
	}
	f.nodes[int32(fd)] = n
	f.order = append(f.order, n)
	return f.write(n)
}

func bucketName(i int) string { return "service\x00callers\x00callers/caller=" + strconv.Itoa(i) }

// write sends out whole; what waits in a socket is far below its buffer.
func (f *rawNodes) write(n *rawNode) error {
	if k, err := syscall.Write(n.fd, f.out); err != nil || k < len(f.out) {
		return fmt.Errorf("%d of %d bytes went: %w", k, len(f.out), err)
	}
	return nil
}

// report sends a node's report: a pb.NodeUp, written as encodeReport would.
func (f *rawNodes) report(n *rawNode, now time.Duration) error {
	n.count(now)
	span := (now - n.at).Seconds() // a node that gets the processor late reports late, and more
	mean := perSecond * span
	for i := range n.offered {
		came := max(0, math.Floor(mean+rand.NormFloat64()*math.Sqrt(mean)+0.5))
		n.offered[i] += uint64(came)
		n.dropped[i] += uint64(came*(1-n.kept[i]/span) + rand.Float64())
		n.kept[i] = 0
	}
	n.seq++
	since := uint64((now - n.at).Microseconds())
	if n.at, n.due = now, n.due+time.Second; n.due < now {
		n.due = now + time.Second // what it was late for is in this report
	}

	const longest = 2 + 5 // bytes of a tag and the length after it
	body := f.out[:0]
	body = append(body, make([]byte, frameHead+messageHead+longest)...)
	head := len(body)
	body = protowire.AppendVarint(protowire.AppendTag(body, fieldSeq, protowire.VarintType), n.seq)
	body = protowire.AppendVarint(protowire.AppendTag(body, fieldAt, protowire.VarintType), uint64(now.Microseconds()))
	body = f.pack(body, fieldPaths, 1, func(i, _ int) uint64 { return uint64(i + 1) })
	body = f.pack(body, fieldSince, 1, func(int, int) uint64 { return since })
	body = f.pack(body, fieldOffer, loop.Classes, func(i, c int) uint64 {
		if c != int(loop.Normal) {
			return 0
		}
		return n.offered[i]
	})
	body = f.pack(body, fieldDrop, 1, func(i, _ int) uint64 { return n.dropped[i] })

	// The heads are as long as they are, so they are written backwards.
	tag := protowire.AppendVarint(protowire.AppendTag(nil, fieldReport, protowire.BytesType), uint64(len(body)-head))
	message := len(tag) + len(body) - head
	front := binary.BigEndian.AppendUint32([]byte{0}, uint32(message))
	frame := appendFrame(nil, frameData, 0, 1, nil)
	payload := messageHead + message
	frame[0], frame[1], frame[2] = byte(payload>>16), byte(payload>>8), byte(payload)
	start := head - len(tag) - messageHead - frameHead
	copy(body[start:], frame)
	copy(body[start+frameHead:], front)
	copy(body[start+frameHead+messageHead:], tag)
	whole := f.out
	f.out = body[start:]
	err := f.write(n)
	f.out = whole
	if cap(body) > cap(whole) {
		f.out = body[:0]
	}
	return err
}

// pack appends a packed list of k numbers for each bucket.
func (f *rawNodes) pack(to []byte, field protowire.Number, k int, value func(bucket, of int) uint64) []byte {
	f.list = f.list[:0]
	size := 0
	for i := range f.size.buckets {
		for c := range k {
			v := value(i, c)
			size += protowire.SizeVarint(v)
			f.list = append(f.list, v)
		}
	}
	to = protowire.AppendVarint(protowire.AppendTag(to, field, protowire.BytesType), uint64(size))
	for _, v := range f.list {
		to = protowire.AppendVarint(to, v)
	}
	return to
}

// count brings kept up to now.
func (n *rawNode) count(now time.Duration) {
	span := (now - n.since).Seconds()
	for i, k := range n.keep {
		n.kept[i] += k * span
	}
	n.since = now
}

// read obeys what came for a node.
func (f *rawNodes) read(n *rawNode, now time.Duration) error {
	k := copy(f.buffer, n.rest)
	got, err := syscall.Read(n.fd, f.buffer[k:])
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if got == 0 {
		return fmt.Errorf("the aggregator has ended node %d's stream", n.fd)
	}
	in := f.buffer[:k+got]
	for len(in) >= frameHead {
		end := frameHead + int(in[0])<<16 + int(in[1])<<8 + int(in[2])
		if len(in) < end {
			break
		}
		switch kind, flags := in[3], in[4]; {
		case kind == framePing && flags&ack == 0:
			f.out = appendFrame(f.out[:0], framePing, ack, 0, in[frameHead:end])
			err = f.write(n)
		case kind == frameData && end > frameHead+messageHead: // documents do not come here, so a message is one frame
			err = f.obey(n, in[frameHead+messageHead:end], now)
		}
		if err != nil {
			return err
		}
		in = in[end:]
	}
	n.rest = append(n.rest[:0], in...)
	return nil
}

// The fields of a pb.Down that are read here, and of its directives.
const (
	fieldNames, fieldDirectives = 1, 2
	fieldBuckets, fieldKeep     = 3, 6
)

// obey reads a pb.Down.
func (f *rawNodes) obey(n *rawNode, message []byte, now time.Duration) error {
	n.count(now)
	var buckets, keeps []byte
	for rest := message; len(rest) > 0; {
		field, _, value, size := next(rest)
		if size < 0 {
			return protowire.ParseError(size)
		}
		rest = rest[size:]
		switch field {
		case fieldNames:
			if err := f.learn(value); err != nil {
				return err
			}
		case fieldDirectives:
			for len(value) > 0 {
				field, _, list, size := next(value)
				if size < 0 {
					return protowire.ParseError(size)
				}
				value = value[size:]
				switch field {
				case fieldBuckets:
					buckets = list
				case fieldKeep:
					keeps = list
				}
			}
		}
	}
	var err error
	if f.list, err = unpack(f.list[:0], buckets); err != nil {
		return err
	}
	for i, number := range f.list {
		at := 8 * (i*loop.Classes + int(loop.Normal))
		n.keep[f.index[uint32(number)]] = math.Float64frombits(binary.LittleEndian.Uint64(keeps[at:]))
	}
	return nil
}

// learn reads a pb.Names. A number stands for the same on all streams.
func (f *rawNodes) learn(data []byte) error {
	var names pb.Names
	if err := proto.Unmarshal(data, &names); err != nil {
		return err
	}
	for i, number := range names.Numbers {
		if _, ok := f.index[number]; ok {
			continue
		}
		for b := range f.size.buckets {
			if bucketName(b) == names.Buckets[i] {
				f.index[number] = b
			}
		}
	}
	return nil
}

// nodesMain is the nodes' process. It ends with its parent's pipe.
func nodesMain(address string) error {
	size, err := treeOf(os.Getenv(treeVariable))
	if err != nil {
		return err
	}
	f, err := newRawNodes(address, size)
	if err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1)) // until the parent is done
		close(done)
	}()
	return f.run(done)
}
